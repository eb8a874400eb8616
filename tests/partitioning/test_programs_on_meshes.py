"""Programs partitioned for 2, 4 and 8 participants: values and gradients are those of the whole program, and those that JAX's own
run has on as many devices."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

import xla_torch
from support.mesh_rows import ROWS
from support.oracle import HAS_XLA, needs_xla
from support.partition_rows import ROWS as OTHER_ROWS
from support.partition_rows import Row
from support.shard_map_rows import ROWS as SHARD_MAP_ROWS
from support.shard_map_rows import Row as ShardMapRow
from xla_torch import partition, run_replicas, shard_arguments, unshard

if HAS_XLA:
    import jax
    import jax.numpy as jnp
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

FEW = [{"a": 2, "b": 1}, {"a": 2, "b": 2}, {"a": 4, "b": 1}, {"b": 4, "a": 1}]
CUBE = {"a": 2, "b": 2, "c": 2}
EIGHT = [{"a": 8, "b": 1}, {"a": 4, "b": 2}, {"b": 4, "a": 2}, CUBE]


def specs_on(row: Row, mesh: dict[str, int]) -> list[Any]:
    """Where there is an axis c, what is cut along a is cut along both, which are no neighbours."""
    def of(axes: Any) -> Any:
        axes = axes if isinstance(axes, tuple) else (axes,) * (axes is not None)
        longer = tuple(name for axis in axes for name in ((axis, "c") if axis == "a" and "c" in mesh else (axis,)))
        return longer or None

    return [spec and tuple(map(of, spec)) for spec in row.specs]


def run_partitioned(part: Any, arguments: Any, sizes: list[tuple[int, ...]], count: int) -> list[np.ndarray]:
    """Whole results: by way of text, as where there is no jaxlib."""
    program = xla_torch.parse_hlo(part.to_hlo_text())
    results = run_replicas(program, shard_arguments(program, [torch.tensor(a) for a in arguments]), num_partitions=count)
    rows = [r if isinstance(r, tuple) else (r,) for r in results]
    root = program.entry.root
    shardings = root.common["sharding"].leaves(root.shape) if root.shape.is_tuple else [root.common["sharding"]]
    return [unshard([row[k] for row in rows], sharding, sizes[k]).numpy() for k, sharding in enumerate(shardings)]


def with_gradients(function: Any, numbers: tuple[int, ...]) -> tuple[Any, Any]:
    """A loss whose gradient differs from place to place; and a function that gives it, its gradients and the results."""
    def loss(*arguments: Any) -> Any:
        return sum((leaf * jnp.cos(leaf)).sum() for leaf in jax.tree_util.tree_leaves(function(*arguments))
                   if jnp.issubdtype(leaf.dtype, jnp.floating))

    def everything(*arguments: Any) -> Any:
        derived = jax.value_and_grad(loss, numbers)(*arguments) if numbers else []
        return derived, function(*arguments)

    return loss, everything


def leaves_of(results: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(results)]


def mesh_of_jax(mesh: dict[str, int]) -> Any:
    return Mesh(np.array(jax.devices()[:int(np.prod(list(mesh.values())))]).reshape(*mesh.values()), tuple(mesh))


def run_by_jax(everything: Any, arguments: Any, specs: list[Any], mesh: dict[str, int]) -> list[np.ndarray]:
    """On as many devices; dimensions that are no multiples are whole, as JAX wants it."""
    def placed(argument: Any, spec: Any) -> Any:
        tiles = [int(np.prod([mesh[axis] for axis in axes or ()])) for axes in spec or ()]
        return NamedSharding(grid, PartitionSpec(*(None if size % n else axes for size, n, axes in
                                                   zip(np.shape(argument), tiles, spec or (), strict=False))))

    grid = mesh_of_jax(mesh)
    placements = tuple(placed(a, s) for a, s in zip(arguments, specs, strict=True))
    return leaves_of(jax.jit(everything, in_shardings=placements)(*arguments))


def words(mesh: dict[str, int]) -> str:
    return "x".join(f"{axis}{size}" for axis, size in mesh.items())


def tolerances(row: Row) -> tuple[float, float]:
    return max(row.rtol, 1e-3), 1e-4 if row.rtol < 1e-2 else 5e-2


def pairs() -> list[Any]:
    """Each row on a mesh of 8, and those that other tests do not have on one of 2 or 4: in turn, so that all rows and all meshes
    are there, if not all pairs. The quick ones are fast tests."""
    few, eight = itertools.cycle(FEW), itertools.cycle(EIGHT)
    chosen = [(row, CUBE if row.quick and row in ROWS else next(eight)) for row in [*ROWS, *OTHER_ROWS]]
    chosen += [(row, next(few)) for row in ROWS]
    return [pytest.param(row, mesh, id=f"{row}-{words(mesh)}",
                         marks=() if row.quick and row in ROWS and mesh is CUBE else pytest.mark.slow) for row, mesh in chosen]


NO_GRADIENT = ("while", "updates in a loop", "mlp step", "argmax across", "bins")
"""A loop of unknown length has none in reverse, "mlp step" has one of its own, and the others' is zero."""


_KERNEL = "the gradient of the kernel is summed over those that hold the same, too"
WRONG_IN_JAX = {"strided convolution": _KERNEL, "strided convolution of an even kernel": _KERNEL,
                "convolution with halos on one axis": _KERNEL,
                "pooling with halos": "what select-and-scatter sends across a border is lost"}
"""What XLA's partitioner gets wrong in JAX's gradients on some meshes: `known_defects.py` keeps programs here from it."""

REFUSED_BY_XLA = {"xor across": "Unsupported reduction computation"}
"""What XLA does not run on several CPU devices."""


@needs_xla
@pytest.mark.parametrize(("row", "mesh"), pairs())
def test_as_the_whole_program_and_as_jax_on_as_many_devices(row: Row, mesh: dict[str, int]) -> None:
    numbers = tuple(k for k, a in enumerate(row.arguments) if a.dtype == np.float32 and row.name not in NO_GRADIENT)
    specs, count = specs_on(row, mesh), int(np.prod(list(mesh.values())))
    loss, everything = with_gradients(row.function, numbers)
    want = leaves_of(jax.jit(everything)(*row.arguments))
    if row.name in REFUSED_BY_XLA and mesh["a"] > 1:
        with pytest.raises(jax.errors.JaxRuntimeError, match=REFUSED_BY_XLA[row.name]):
            run_by_jax(everything, row.arguments, specs, mesh)
        theirs = want
    else:
        theirs = run_by_jax(everything, row.arguments, specs, mesh)
    sizes = [w.shape for w in want]
    derived = 1 + len(numbers) if numbers else 0
    agree = [np.allclose(other, whole, *tolerances(row)) for other, whole in zip(theirs, want, strict=True)]
    assert all(agree) or (all(agree[derived:]) and row.name in WRONG_IN_JAX)
    got = []
    if numbers:
        whole = xla_torch.from_jax(loss, *row.arguments, derivatives="xla")
        got = run_partitioned(partition(xla_torch.value_and_grad(whole, numbers), mesh, specs), row.arguments, sizes, count)
    part = partition(xla_torch.from_jax(row.function, *row.arguments), mesh, specs)
    got += run_partitioned(part, row.arguments, sizes[derived:], count)
    for own, whole in zip(got, want, strict=True):
        np.testing.assert_allclose(own, whole, *tolerances(row))


# ------------------------------------------------------------------------------------------------ what says itself what is where

def shard_map_pairs() -> list[Any]:
    few = itertools.cycle([{"a": 2}, {"a": 8}])
    chosen = [(row, mesh, mesh in ({"a": 4}, CUBE, {"a": 2, "b": 2})) for row in SHARD_MAP_ROWS for mesh in (
        [{"a": 4}, next(few)], [{"a": 2, "b": 2}, {"a": 4, "b": 2}], [CUBE])[len(row.axes) - 1]]
    return [pytest.param(row, mesh, first, id=f"{row}-{words(mesh)}", marks=() if row.quick and first else pytest.mark.slow)
            for row, mesh, first in chosen]


@needs_xla
@pytest.mark.parametrize(("row", "mesh", "derives"), shard_map_pairs())
def test_programs_that_say_what_each_device_does(row: ShardMapRow, mesh: dict[str, int], derives: bool) -> None:
    """Partitioned as the jitted function says: its values, and the gradients that JAX writes. And those that are derived here,
    of the program about whole arrays."""
    grid, count = mesh_of_jax(mesh), int(np.prod(list(mesh.values())))
    specs = tuple(PartitionSpec(*spec) for spec in row.specs)
    local = jax.shard_map(row.local, mesh=grid, in_specs=specs, out_specs=PartitionSpec(*row.out), check_vma=row.checked)
    numbers = tuple(k for k, a in enumerate(row.arguments) if a.dtype == np.float32)
    want = leaves_of(jax.jit(with_gradients(row.whole, numbers)[1])(*row.arguments))
    loss, everything = with_gradients(local, numbers)
    jitted = jax.jit(everything, in_shardings=tuple(NamedSharding(grid, spec) for spec in specs))
    part = partition(xla_torch.from_jax(jitted, *row.arguments))
    assert [p.shape.dimensions for p in part.entry.parameters] == [
        NamedSharding(grid, spec).shard_shape(a.shape) for a, spec in zip(row.arguments, specs, strict=True)]
    found = [run_partitioned(part, row.arguments, [w.shape for w in want], count), leaves_of(jitted(*row.arguments))]
    if derives:
        derived = xla_torch.value_and_grad(xla_torch.from_jax(loss, *row.arguments, derivatives="xla"), numbers)
        value, slopes = derived(*map(torch.tensor, row.arguments))
        found.append([value, *(slopes if isinstance(slopes, tuple) else [slopes])])
    for results in found:
        assert len(results) in (len(want), 1 + len(numbers))
        for own, whole in zip(results, want, strict=False):
            np.testing.assert_allclose(own, whole, 1e-3, 1e-4)


# ------------------------------------------------------------------------------------------------ what a jitted function says


@needs_xla
@pytest.mark.parametrize("way", ["jit", "jit of trees", "device_put", "shape"])
def test_from_jax_keeps_shardings_of_arguments(way: str) -> None:
    mesh = {"a": 2, "b": 2}
    grid = mesh_of_jax(mesh)
    rows, columns = (NamedSharding(grid, PartitionSpec(*spec)) for spec in (("a",), (None, "b")))
    x, w = np.ones((8, 4), np.float32), np.ones((4, 6), np.float32)
    arguments: tuple[Any, ...] = (x, w)
    function: Any = lambda x, w: jnp.tanh(x @ w)  # noqa: E731
    if way == "jit":
        function = jax.jit(function, in_shardings=(rows, columns), out_shardings=NamedSharding(grid, PartitionSpec(None, "a")))
    elif way == "jit of trees":
        function = jax.jit(lambda p, unused, n: jnp.tanh(p["x"] @ p["w"]) + n,
                           in_shardings=({"x": rows, "w": columns}, rows, None))
        arguments = ({"x": x, "w": w}, np.ones(4, np.float32), 3.0)
    elif way == "device_put":
        arguments = (jax.device_put(x, rows), jax.device_put(w, columns))
    else:
        arguments = tuple(jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s) for a, s in ((x, rows), (w, columns)))
    part = partition(xla_torch.from_jax(function, *arguments))
    sizes = {p.name.strip("_").rpartition("_")[2]: p.shape.dimensions for p in part.entry.parameters}
    assert sizes == {"x": (4, 4), "w": (4, 3), **({"unused": (2,), "n": ()} if way == "jit of trees" else {})}
    if way == "jit":
        assert part.entry.root.shape.dimensions == (8, 3)
        [got] = run_partitioned(part, (x, w), [(8, 6)], 4)
        np.testing.assert_allclose(got, np.tanh(x @ w), 1e-6)
