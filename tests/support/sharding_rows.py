"""Functions that JAX runs on four devices: annotated ones and such with manual regions (shard_map)."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from support.oracle import HAS_XLA

if HAS_XLA:
    import jax
    import jax.numpy as jnp
    from jax import lax
    from jax.sharding import NamedSharding, PartitionSpec


@dataclasses.dataclass(frozen=True)
class Row:
    """`make` gives the function; `arguments` are those of the whole program."""

    name: str
    make: Callable[[], Callable[..., Any]]
    arguments: tuple[np.ndarray, ...]
    rtol: float = 1e-5

    def __str__(self) -> str:
        return self.name


def floats(*sizes: int) -> np.ndarray:
    return np.random.default_rng(sum(sizes)).standard_normal(sizes).astype(np.float32)


@functools.cache
def mesh(*axes: str, order: tuple[int, ...] = (0, 1, 2, 3)) -> Any:
    """Four devices along one axis, or in a square along two."""
    devices = np.array([jax.devices()[k] for k in order])
    return jax.sharding.Mesh(devices.reshape((2, 2) if len(axes) == 2 else 4), axes)


def placed(grid: Any, *axes: Any) -> Any:
    return NamedSharding(grid, PartitionSpec(*axes))


def line(function: Callable[..., Any], ins: Any = "i", outs: Any = "i", **options: Any) -> Callable[[], Any]:
    """A manual region over four devices in a row. A sharding is an axis for dimension 0, or a tuple of axes."""
    return lambda: jax.shard_map(function, mesh=mesh("i"), in_specs=_specs(ins), out_specs=_specs(outs), **options)


def square(function: Callable[..., Any], ins: Any, outs: Any, order: tuple[int, ...] = (0, 1, 2, 3),
           **options: Any) -> Callable[[], Any]:
    """A manual region over devices in a square."""
    return lambda: jax.shard_map(function, mesh=mesh("x", "y", order=order), in_specs=_specs(ins), out_specs=_specs(outs),
                                 **options)


def _specs(written: Any) -> Any:
    if isinstance(written, list):
        return tuple(map(_specs, written))
    return PartitionSpec(*written) if isinstance(written, tuple) else PartitionSpec(written)


def _annotated() -> Callable[..., Any]:
    grid = mesh("x", "y")

    def layer(x: Any, w: Any) -> Any:
        h = lax.with_sharding_constraint(jnp.tanh(x @ w), placed(grid, "x", None))
        return h.sum(0), h

    return jax.jit(layer, in_shardings=(placed(grid, "x", "y"), placed(grid, "y", None)),
                   out_shardings=(placed(grid), placed(grid, "x", "y")))


def _partial(x: Any, w: Any) -> Any:
    return jnp.tanh(x @ w) + lax.axis_index("x").astype(x.dtype) + lax.psum(x.sum(), "x")


def _within_a_loop() -> Callable[..., Any]:
    region = line(lambda a: a + lax.psum(a, "i"))()
    return lambda x: lax.scan(lambda c, _: (region(c) * 0.5, None), x, None, length=3)[0]


def _around_a_loop(a: Any) -> Any:
    turn = [(k, (k + 1) % 4) for k in range(4)]
    last, sums = lax.scan(lambda c, _: (lax.ppermute(c, "i", turn) + 1, c.sum()), a, None, length=3)
    return last + sums.sum()


def _until_large(a: Any) -> Any:
    return lax.while_loop(lambda c: c[0].sum() < 10, lambda c: (c[0] * 2, c[1] + 1), (jnp.abs(a), jnp.zeros_like(a)))[0]


def _within_another(a: Any) -> Any:
    inner = jax.shard_map(lambda b: lax.psum(b + lax.axis_index("y"), "y"), in_specs=PartitionSpec(None, "y"),
                          out_specs=PartitionSpec(), axis_names={"y"})
    return inner(a) + lax.psum(a[:, :2], "x")


def _network() -> Callable[..., Any]:
    region = square(lambda a, b: lax.psum(jnp.sin(a @ b), "y"), [("x", "y"), ("y", None)], ("x", None))()
    return lambda x, w: jnp.tanh(region(x, w)).sum()


def _product() -> Callable[..., Any]:
    region = line(lambda a, b: lax.psum(a @ b, "i"), [(None, "i"), ("i", None)], ())()
    return lambda x, w: jnp.tanh(region(x, w)).sum()


def _convolution(a: Any, k: Any, strides: tuple[int, int] = (2, 1), padding: Any = ((1, 1), (2, 2)), **options: Any) -> Any:
    return lax.conv_general_dilated(a, k, strides, padding, dimension_numbers=("NCHW", "OIHW", "NCHW"), **options)


def _with_halos(a: Any, k: Any) -> Any:
    """Rows are on four devices: each gets the last one of the device before, and the first of the one behind."""
    before, behind = (lax.ppermute(part, "i", [(j, (j + turn) % 4) for j in range(4)])
                      for part, turn in ((a[:, :, -1:], 1), (a[:, :, :1], -1)))
    at = lax.axis_index("i")
    rows = [jnp.where(at == 0, 0, before), a, jnp.where(at == 3, 0, behind)]
    return _convolution(jnp.concatenate(rows, 2), k, padding=((0, 0), (1, 1)))


def _of_halos() -> Callable[..., Any]:
    region = line(_with_halos, [(None, None, "i"), ()], (None, None, "i"))()
    return jax.grad(lambda a, k: jnp.sin(region(a, k)).sum(), (0, 1))


def _convolutions() -> Callable[..., Any]:
    """The gradient of convolutions, one after the other, with holes in the image and in the kernel."""
    def within(a: Any, k: Any) -> Any:
        wide = jnp.sin(_convolution(a, k[:, :2], (1, 2), ((1, 2), (0, 3)), lhs_dilation=(2, 1), rhs_dilation=(1, 2)))
        return _convolution(wide, k, (2, 2), ((0, 1), (2, 0))) + lax.psum(wide.mean(), "i")

    region = line(within, ["i", (None, "i")], "i", check_vma=False)()
    return jax.grad(lambda a, k: jnp.sin(region(a, k)).sum(), (0, 1))


ROWS = [
    Row("annotated", _annotated, (floats(8, 4), floats(4, 2))),
    Row("all-gather", line(lambda a: lax.all_gather(a, "i", axis=1, tiled=True)[None]), (floats(8, 3),)),
    Row("all-gather of new dimension", line(lambda a: lax.all_gather(a, "i", axis=1)), (floats(8, 3),)),
    Row("reduce-scatter", line(lambda a: lax.psum_scatter(a, "i", scatter_dimension=1, tiled=True)), (floats(8, 8),)),
    Row("reduce-scatter along an axis",
        square(lambda a: lax.psum_scatter(a, "x", scatter_dimension=1, tiled=True), ("x", "y"), ("x", "y")), (floats(8, 8),)),
    Row("all-to-all", line(lambda a: lax.all_to_all(a, "i", 0, 1, tiled=True)), (floats(16, 3),)),
    Row("all-to-all of blocks", line(lambda a: lax.all_to_all(a, "i", 0, 0), (None, "i")), (floats(4, 8, 3),)),
    Row("maximum", line(lambda a: lax.pmax(a, "i"), "i", ()), (floats(8, 3),)),
    Row("minimum of integers", line(lambda a: lax.pmin(a, "i"), "i", ()), (np.arange(8, dtype=np.int32),)),
    Row("or of predicates", line(lambda a: lax.pmax(a.astype(jnp.int8), "i"), "i", ()), (floats(8) > 0,)),
    Row("permute", line(lambda a: lax.ppermute(a, "i", [(0, 1), (2, 0)])), (floats(8, 3),)),
    Row("ring", line(_around_a_loop), (floats(8, 4),)),
    Row("axis index", square(lambda a: a + lax.axis_index("y"), (("y", "x"),), (("y", "x"),)), (floats(8),)),
    Row("devices in another order",
        square(lambda a: lax.psum(a, "x") * lax.axis_index("y") + a, ("x", "y"), ("x", "y"), order=(2, 0, 3, 1)),
        (floats(8, 4),)),
    Row("the same for all", line(lambda a: lax.psum(a, "i"), (), ()), (floats(3),)),
    Row("scalar sum", line(lambda a: lax.psum(a.sum(), "i"), "i", ()), (floats(8, 3),)),
    Row("groups", line(lambda a: lax.psum(a, "i", axis_index_groups=[[0, 3], [1, 2]]), check_vma=False), (floats(8, 3),)),
    Row("sum of bfloat16", line(lambda a: lax.psum(a.astype(jnp.bfloat16), "i").astype(a.dtype), check_vma=False),
        (floats(8, 3),), 2e-2),
    Row("branch", line(lambda a: lax.cond(lax.axis_index("i") % 2 == 0, lambda v: v * 2, lambda v: -v, a)), (floats(8, 3),)),
    Row("loops of other lengths", line(_until_large), (floats(8, 3),)),
    Row("region within a loop", _within_a_loop, (floats(8, 4),)),
    Row("region within a region", square(_within_another, ("x",), ("x",), axis_names={"x"}, check_vma=False), (floats(8, 4),)),
    Row("some axes manual", lambda: jax.jit(
        square(_partial, [("x", None), ()], ("x", None), axis_names={"x"})(),
        in_shardings=(placed(mesh("x", "y"), "x", "y"), placed(mesh("x", "y"), "y", None))), (floats(8, 4), floats(4, 2))),
    Row("constant result", line(lambda a: jnp.ones((2, 3), a.dtype), check_vma=False), (floats(8, 3),)),
    Row("convolution", line(lambda a, k: lax.conv(a, k, (1, 1), "SAME"), ["i", ()]), (floats(8, 2, 5, 5), floats(3, 2, 3, 3))),
    Row("convolution with a window", line(lambda a, k: _convolution(a, k, lhs_dilation=(2, 3), rhs_dilation=(3, 2)), ["i", ()]),
        (floats(8, 2, 9, 7), floats(3, 2, 3, 3))),
    Row("convolution of each with its kernel", line(_convolution, [(), "i"], (None, "i")),
        (floats(8, 2, 9, 7), floats(12, 2, 3, 3))),
    Row("convolution in groups", line(lambda a, k: _convolution(a, k, feature_group_count=2), ["i", "i"]),
        (floats(8, 4, 6, 6), floats(16, 2, 3, 3))),
    Row("convolution of groups of examples", line(lambda a, k: _convolution(a, k, batch_group_count=2), ["i", "i"]),
        (floats(16, 4, 6, 6), floats(16, 4, 3, 3))),
    Row("convolution with halos", line(_with_halos, [(None, None, "i"), ()], (None, None, "i")),
        (floats(2, 2, 16, 7), floats(3, 2, 3, 3))),
    Row("gradient of a convolution with halos", _of_halos, (floats(2, 2, 16, 7), floats(3, 2, 3, 3))),
    Row("gradient of convolutions", _convolutions, (floats(8, 2, 9, 7), floats(3, 12, 3, 3)), 1e-4),
    Row("slice at the index", line(lambda a, t: lax.dynamic_slice_in_dim(t, lax.axis_index("i") * 2, 2) + a, ["i", ()]),
        (floats(8, 3), floats(8, 3))),
    Row("sort", line(lambda a: lax.all_gather(jnp.sort(a), "i", tiled=True)), (floats(16),)),
    Row("random numbers", line(lambda a: a + jax.random.normal(
        jax.random.fold_in(jax.random.key(1), lax.axis_index("i")), a.shape, a.dtype)), (floats(8, 3),)),
    Row("product", _product, (floats(4, 8), floats(8, 4))),
    Row("network", _network, (floats(8, 4), floats(4, 4))),
    Row("gradient of a network", lambda: jax.grad(_network()), (floats(8, 4), floats(4, 4))),
]

BY_NAME = {row.name: row for row in ROWS}
