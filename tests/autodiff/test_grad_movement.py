"""Gradients of data movement and of indexing with run-time indices: against JAX, and to second order."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("jax")
import jax
import jax.numpy as jnp
from jax import lax

import xla_torch
from support.gradient_checks import Row, built, check_first, check_second, row, twice, values
from support.jax_oracle import compare, to_torch
from xla_torch import Shape, ops

V23, V34, V5 = values(2, 3), values(3, 4), values(5)


def padded(config: list[tuple[int, int, int]]):
    return lambda x, v: lax.pad(x, v, config)


def layouts(x: xla_torch.XlaOp) -> xla_torch.XlaOp:
    """Column-major memory read as row-major: a transpose."""
    columns = x.builder.add("copy", [x], {}, Shape.parse("f64[2,3]{0,1}"))
    return x.builder.add("bitcast", [columns], {}, Shape.parse("f64[3,2]{1,0}"))


MOVEMENT = [
    row("broadcast", lambda x: lax.broadcast_in_dim(x, (3, 2, 4), (1,)), values(2)),
    row("broadcast", lambda x: jnp.broadcast_to(x.T[:, None, :], (3, 4, 2)), V23,
        build=lambda x: x.builder.add("broadcast", [x], {"dimensions": (2, 0)}, Shape.parse("f64[3,4,2]"))),
    row("broadcast", lambda x: lax.broadcast(x, (0, 2)), V5, order=1, build=lambda x: ops.Broadcast(x, [0, 2])),
    row("broadcast", lambda x: lax.broadcast(x, (2, 2)), 1.5),
    row("reshape", lambda x: x.reshape(3, 2, 2), V34),
    row("transpose", lambda x: lax.transpose(x, (2, 0, 1)), values(2, 3, 4)),
    row("reverse", lambda x: lax.rev(x, (0, 2)), values(2, 3, 2)),
    row("slice", lambda x: lax.slice(x, (1, 0), (3, 4)), V34),
    row("slice", lambda x: lax.slice(x, (0, 1), (3, 4), (2, 2)), V34),
    row("slice", lambda x: lax.slice(x, (2, 1), (2, 3)), V34, order=0, build=lambda x: ops.Slice(x, [2, 1], [2, 3])),
    row("slice", lambda x: x[:3] * x[2:], V5),
    row("concatenate", lambda x, y: lax.concatenate([x, y, x], 1), V23, values(2, 1)),
    row("concatenate", lambda x, y: lax.concatenate([x, y], 0), np.zeros((0, 3)), V23, order=0,
        build=lambda x, y: ops.ConcatInDim(x.builder, [x, y], 0)),
    row("pad", padded([(1, 2, 0), (0, 1, 2)]), V23, 0.5),
    row("pad", padded([(-1, 2, 0), (1, -2, 1)]), V34, 0.5),
    row("pad", padded([(-4, 0, 1)]), V5, 0.5),
    row("pad", padded([(-2, -3, 2)]), V5, -0.5),
    row("pad", padded([(1, 1, 3)]), np.zeros(0), 0.5, order=0, build=lambda x, v: ops.Pad(x, v, [(1, 1, 3)])),
    row("copy", lambda x: x * 2, V23, build=lambda x: ops.Copy(x) * 2),
    row("bitcast", lambda x: x.T, V23, build=layouts),
    row("bitcast", lambda x: x.reshape(6), V23, build=lambda x: x.builder.add("bitcast", [x], {}, Shape.parse("f64[6]"))),
    row("opt-barrier", lambda x, y: x * y, V5, V5, build=lambda x, y: ops.Mul(*(
        ops.GetTupleElement(ops.OptimizationBarrier(ops.Tuple(x.builder, [x, y])), k) for k in range(2)))),
]


@pytest.mark.parametrize("row", MOVEMENT, ids=str)
def test_movement(row: Row) -> None:
    check_first(row)


@pytest.mark.parametrize("row", twice(MOVEMENT), ids=str)
def test_movement_twice(row: Row) -> None:
    check_second(row)


def test_slices_add_in_place() -> None:
    """Many slices of one array write their cotangents into one array instead of adding arrays of zeros."""
    program = built(lambda x: sum_of(ops.SliceInDim(x, k, k + 1, 1, 0) * float(k + 1) for k in range(5)), V5)
    text = xla_torch.vjp(program).to_hlo_text()
    assert text.count(" pad(") == 1
    assert text.count("dynamic-update-slice(") == 4


def sum_of(parts):
    total = next(parts)
    for part in parts:
        total = total + part
    return total


# ---------------------------------------------------------------------------------------------------- run-time indices

INT = np.int32


def indices(*numbers) -> np.ndarray:
    return np.array(numbers, INT)


def gathered(mode: str | None = None, **numbers):
    """lax.gather with some dimension numbers and slice sizes."""
    sizes = numbers.pop("slice_sizes")
    dims = lax.GatherDimensionNumbers(**numbers)
    return lambda x, i: lax.gather(x, i, dims, sizes, mode=mode or "clip", fill_value=0)


ROWS_OF = {"offset_dims": (1,), "collapsed_slice_dims": (0,), "start_index_map": (0,), "slice_sizes": (1, 4)}
WINDOWS_OF = {"offset_dims": (1, 2), "collapsed_slice_dims": (), "start_index_map": (0, 1), "slice_sizes": (2, 2)}
PAIRS_OF = {"offset_dims": (), "collapsed_slice_dims": (0, 1), "start_index_map": (1, 0), "slice_sizes": (1, 1)}
PER_ROW = {"offset_dims": (), "collapsed_slice_dims": (1,), "start_index_map": (1,), "slice_sizes": (1, 1),
               "operand_batching_dims": (0,), "start_indices_batching_dims": (0,)}


def raw_gather(x, i):
    """XLA's own gather, which clamps; JAX's modes are programs around it."""
    return ops.Gather(x, i, ops.GatherDimensionNumbers((1,), (0,), (0,), 1), (1, 4))


def scattered(function, **numbers):
    unique = numbers.pop("unique", False)
    dims = lax.ScatterDimensionNumbers(**numbers)
    return lambda x, i, u: function(x, i, u, dims, unique_indices=unique, mode="drop")


ROWS_TO = {"update_window_dims": (1,), "inserted_window_dims": (0,), "scatter_dims_to_operand_dims": (0,)}
WINDOWS_TO = {"update_window_dims": (1, 2), "inserted_window_dims": (), "scatter_dims_to_operand_dims": (0, 1)}
BATCHED_TO = {"update_window_dims": (), "inserted_window_dims": (1,), "scatter_dims_to_operand_dims": (1,),
                  "operand_batching_dims": (0,), "scatter_indices_batching_dims": (0,)}
TIES = (np.array([[1.0, 2.0, 3.0], [0.5, 0.5, 0.5]]), indices([0], [0], [1]),
        np.array([[1.0, 5.0, 0.0], [1.0, 5.0, 3.0], [0.0, 0.5, 1.0]]))
ZEROS = (np.array([[1.5, 0.0, 3.0], [0.5, 0.7, 0.0]]), indices([0], [0], [1]),
         np.array([[0.0, 5.0, 0.0], [2.0, 0.0, 0.0], [0.0, 0.5, 1.0]]))

INDEXING = [
    row("dynamic-slice", lambda x, i: lax.dynamic_slice(x, (i, INT(1)), (2, 2)), V34, INT(1)),
    row("dynamic-slice", lambda x, i: lax.dynamic_slice(x, (i, i), (2, 3)) + x[:2, :3], V34, INT(9)),
    row("dynamic-slice", lambda x: lax.dynamic_slice(x, (2, 0), (0, 3)), V34, order=0,
        build=lambda x: ops.DynamicSlice(x, [2, 0], [0, 3])),
    row("dynamic-update-slice", lambda x, u, i: lax.dynamic_update_slice(x, u, (i, INT(1))), V34, V23, INT(1)),
    row("dynamic-update-slice", lambda x, u, i: lax.dynamic_update_slice(x, u, (i, i)), V34, V23, INT(-7)),
    row("gather", gathered(**ROWS_OF), V34, indices([2], [0], [2])),
    row("gather", gathered(**ROWS_OF), V34, indices([-1], [2], [9])),
    row("gather", gathered("fill", **ROWS_OF), V34, indices([-1], [2], [9])),
    row("gather", lambda x, i: x[jnp.clip(i, 0, 2)[:, 0]], V34, indices([-1], [2], [9]), build=raw_gather),
    row("gather", gathered(**ROWS_OF), V34, np.array([[1], [200]], np.uint8)),
    row("gather", gathered(**WINDOWS_OF), V34, indices([1, 1], [0, 3], [0, 0])),
    row("gather", gathered(**PAIRS_OF), V34, indices([1, 1], [3, 0], [1, 1])),
    row("gather", gathered(**PER_ROW), V34, indices([[1], [3]], [[0], [0]], [[2], [2]])),
    row("gather", lambda x: x[np.array([2, 0, 2])], V34),
    row("gather", lambda x, i: jnp.take(x, i, axis=1), V34, indices([0, 3], [2, 2])),
    row("gather", lambda x, i: jnp.take_along_axis(x, i, 1), V34, indices([0, 3], [2, 2], [1, 0])),
    row("gather", lambda x, i: x[jnp.clip(i[:, 0], 0, 2)], V34, np.zeros((0, 1), INT), order=0, build=raw_gather),
    row("scatter", scattered(lax.scatter_add, **ROWS_TO), V34, indices([2], [0], [2]), values(3, 4, seed=1)),
    row("scatter", scattered(lax.scatter_add, **ROWS_TO), V34, indices([-1], [0], [5]), values(3, 4, seed=1)),
    row("scatter", scattered(lax.scatter_add, **WINDOWS_TO), V34, indices([1, 1], [2, 2], [0, 2]), values(3, 2, 2)),
    row("scatter", scattered(lax.scatter_add, **BATCHED_TO), V34, indices([[1], [3]], [[0], [0]], [[2], [9]]), values(3, 2)),
    row("scatter", scattered(lax.scatter_sub, **ROWS_TO), V34, indices([2], [0]), values(2, 4)),
    row("scatter", scattered(lax.scatter, **ROWS_TO), V34, indices([2], [0], [2]), values(3, 4, seed=1)),
    row("scatter", scattered(lax.scatter, unique=True, **ROWS_TO), V34, indices([2], [0], [7]), values(3, 4, seed=1)),
    row("scatter", scattered(lax.scatter, **WINDOWS_TO), V34, indices([1, 1], [1, 2], [2, 0]), values(3, 2, 2)),
    row("scatter", scattered(lax.scatter_mul, unique=True, **ROWS_TO), V34, indices([2], [0]), values(2, 4)),
    row("scatter", scattered(lax.scatter_min, **ROWS_TO), V34, indices([2], [0], [2]), values(3, 4, seed=1)),
    row("scatter", scattered(lax.scatter_max, **ROWS_TO), V34, indices([2], [0], [9]), values(3, 4, seed=1)),
    row("scatter", scattered(lax.scatter_max, **ROWS_TO), *TIES, order=0),
    row("scatter", scattered(lax.scatter_min, **ROWS_TO), *TIES, order=0),
    row("scatter", scattered(lax.scatter_add, **ROWS_TO), V34, np.zeros((0, 1), INT), np.zeros((0, 4)), order=0,
        build=lambda x, i, u: scatter(x, i, u, lambda a, b: a + b)),
]


def scatter(x, i, u, combine, unique=False):
    """Rows of `u` scattered into `x` with any combiner."""
    builder = xla_torch.XlaBuilder("combine")
    a, b = (builder.parameter(k, Shape.array(x.element_type)) for k in range(2))
    numbers = ops.ScatterDimensionNumbers((1,), (0,), (0,), 1)
    return ops.Scatter(x, i, u, builder.build(combine(a, b)), numbers, unique_indices=unique)


@pytest.mark.parametrize("row", INDEXING, ids=str)
def test_indexing(row: Row) -> None:
    check_first(row)


@pytest.mark.parametrize("row", twice(INDEXING), ids=str)
def test_indexing_twice(row: Row) -> None:
    check_second(row)


def test_scatter_of_products_that_meet() -> None:
    """Each factor's cotangent is the product of the others, also where some are zero."""
    x, i, u = ZEROS

    def product(x, u):
        rows = [x[0] * u[0] * u[1], x[1] * u[2]]
        return jnp.stack(rows)

    outputs, pull = jax.vjp(product, x, u)
    ct = values(*outputs.shape)
    derivative = xla_torch.vjp(built(lambda x, i, u: scatter(x, i, u, lambda a, b: a * b), x, i, u))
    compare(derivative(*map(to_torch, (x, i, u, ct))), list(map(np.asarray, pull(ct))), 1e-12)


def test_scatter_with_any_combiner() -> None:
    """a + sin(a b), where no two updates meet: they are combined at once."""
    x, i, u = V34, indices([2], [0]), values(2, 4)

    def combined(x, u):
        return x.at[np.array([2, 0])].set(x[np.array([2, 0])] + jnp.sin(x[np.array([2, 0])] * u))

    outputs, pull = jax.vjp(combined, x, u)
    ct = values(*outputs.shape)
    program = built(lambda x, i, u: scatter(x, i, u, lambda a, b: a + ops.Sin(a * b), unique=True), x, i, u)
    compare(xla_torch.vjp(program)(*map(to_torch, (x, i, u, ct))), list(map(np.asarray, pull(ct))), 1e-12)


MEETING = V34, indices([1], [2], [1], [9], [1], [0]), values(6, 4, seed=1)
"""Rows of which three go to one place, and one nowhere."""


def in_order(x, i, u):
    """MEETING's rows combined one after another by a + sin(a b)."""
    for number, place in enumerate([1, 2, 1, None, 1, 0]):
        if place is not None:
            x = x.at[place].set(x[place] + jnp.sin(x[place] * u[number]))
    return x


def test_scatter_with_any_combiner_where_updates_meet() -> None:
    """A fold for each element, walked back: JAX's gradients of the fold written out, also on real XLA, and to second order."""
    check = row("scatter", in_order, *MEETING, build=lambda x, i, u: scatter(x, i, u, lambda a, b: a + ops.Sin(a * b)))
    check_first(check)
    check_second(check)


def test_tangents_of_updates_that_meet() -> None:
    x, i, u = map(to_torch, MEETING)
    program = built(lambda x, i, u: scatter(x, i, u, lambda a, b: a + ops.Sin(a * b)), *MEETING)
    _, found = xla_torch.jvp(program)(x, i, u, u[:3], x.repeat(2, 1))
    _, want = jax.jvp(lambda x, u: in_order(x, None, u), (MEETING[0], MEETING[2]), (MEETING[2][:3], np.tile(MEETING[0], (2, 1))))
    compare([found], [np.asarray(want)], 1e-12)


def test_known_indices_cost_no_clamp() -> None:
    """Indices that are constants inside the array are neither clamped nor masked."""
    text = xla_torch.vjp(built(lambda x: ops.Gather(
        x, x.builder.constant(indices([2], [0])), ops.GatherDimensionNumbers((1,), (0,), (0,), 1), (1, 4)), V34)).to_hlo_text()
    assert "clamp(" not in text
    assert "select(" not in text


def test_bounds_are_not_read_through_bits_of_another_type() -> None:
    """The index 1.0 has other bits than the index 1: as S32 it is far out of bounds, and moved back to the last element."""
    program = xla_torch.parse_hlo("""HloModule bits
ENTRY e {
  p = f32[4] parameter(0)
  c = f32[1] constant({1})
  i = s32[1] bitcast(c)
  ROOT r = f32[1] gather(p, i), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1}
}""")
    x = torch.arange(4.0)
    torch.testing.assert_close(program(x), x[3:])
    torch.testing.assert_close(xla_torch.vjp(program)(x, torch.ones(1))[0], torch.tensor([0.0, 0.0, 0.0, 1.0]))


def test_last_update_counts() -> None:
    """Of several updates that overwrite one element, the last has the cotangent."""
    x = torch.zeros(2, 1, requires_grad=True)
    u = torch.zeros(3, 1, requires_grad=True)
    out = ops.Scatter(x, torch.tensor([[0], [0], [1]]), u, _second(), ops.ScatterDimensionNumbers((1,), (0,), (0,), 1))
    found = torch.autograd.grad(out.sum(), (x, u))
    assert [g.flatten().tolist() for g in found] == [[0.0, 0.0], [0.0, 1.0, 1.0]]


def _second() -> xla_torch.XlaComputation:
    builder = xla_torch.XlaBuilder("overwrite")
    builder.parameter(0, Shape.parse("f32[]"))
    return builder.build(builder.parameter(1, Shape.parse("f32[]")))
