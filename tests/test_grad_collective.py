"""Gradients of collectives: what all participants' losses change by when one participant's argument does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import xla_torch
from gradient_rows import Smooth, built, drawn_examples, smooth_values, values
from op_rows import FAMILIES, Row
from xla_torch import Shape, ops
from xla_torch.types import F64

HALVES = ((0, 1), (2, 3))
PAIRS = ((0, 1), (1, 2), (3, 0))


def region(function: Callable[..., xla_torch.XlaOp]) -> xla_torch.XlaComputation:
    builder = xla_torch.XlaBuilder("region")
    return builder.build(function(*(builder.parameter(k, Shape.array(F64)) for k in range(2))))


ADD, MUL, MAX, MIN = map(region, (ops.Add, ops.Mul, ops.Max, ops.Min))


def several(tuple_op: xla_torch.XlaOp) -> list[xla_torch.XlaOp]:
    return [ops.GetTupleElement(tuple_op, k) for k in range(len(tuple_op.shape.tuple_shapes))]


def gathered(x: xla_torch.XlaOp) -> xla_torch.XlaOp:
    """all-gather in two halves."""
    shape = Shape.parse("(f64[2,4], f64[8,4])")
    start = x.builder.add("all-gather-start", [x], {"dimensions": (0,)}, shape)
    return x.builder.add("all-gather-done", [start], {}, shape.tuple_shapes[1])


def permuted(x: xla_torch.XlaOp, passed_on: bool = False) -> xla_torch.XlaOp:
    """collective-permute in two halves; the first half also passes its operand on."""
    shape = Shape.parse("(f64[2,4], f64[2,4], u32[], u32[])")
    start = x.builder.add("collective-permute-start", [x], {"source_target_pairs": PAIRS}, shape)
    done = x.builder.add("collective-permute-done", [start], {}, shape.tuple_shapes[1])
    return done + ops.GetTupleElement(start, 0) if passed_on else done


ROWS: dict[str, Callable[..., object]] = {
    "all-reduce add": lambda x, y: ops.AllReduce(x * x, ADD),
    "all-reduce add in groups": lambda x, y: ops.AllReduce(x * x, ADD, HALVES),
    "all-reduce max": lambda x, y: ops.AllReduce(x * y, MAX),
    "all-reduce min in groups": lambda x, y: ops.AllReduce(x, MIN, HALVES),
    "all-reduce mul": lambda x, y: ops.AllReduce(x, MUL),
    "all-reduce of two": lambda x, y: several(ops.AllReduceTuple([x * y, y], ADD)),
    "all-reduce in two halves": lambda x, y: x.builder.add(
        "all-reduce-done", [x.builder.add("all-reduce-start", [x * x], {"to_apply": ADD.module.entry}, x.shape)], {}, x.shape),
    "cross-replica-sum": lambda x, y: ops.CrossReplicaSum(x * y),
    "reduce-scatter": lambda x, y: ops.ReduceScatter(x * y, ADD, 1, 4),
    "reduce-scatter in groups": lambda x, y: ops.ReduceScatter(x * y, ADD, 0, 2, HALVES),
    "all-gather": lambda x, y: ops.AllGather(x * y, 1, 4),
    "all-gather in groups": lambda x, y: ops.AllGather(x, 0, 2, HALVES),
    "all-gather of two": lambda x, y: several(ops.AllGatherTuple([x, y], 0, 4)),
    "all-gather in two halves": lambda x, y: gathered(x * y),
    "all-to-all": lambda x, y: ops.AllToAll(x * y, 1, 1, 4),
    "all-to-all across": lambda x, y: ops.AllToAll(x * y, 1, 0, 4),
    "all-to-all of several": lambda x, y: several(ops.AllToAllTuple([x, y], HALVES))[1],
    "collective-permute": lambda x, y: ops.CollectivePermute(x * y, PAIRS),
    "collective-permute of two": lambda x, y: several(ops.MultiCollectivePermute([x, x * y], PAIRS)),
    "collective-permute in two halves": lambda x, y: permuted(x * y),
    "collective-permute passing on": lambda x, y: permuted(x * y, True),
    "collective-broadcast": lambda x, y: ops.CollectiveBroadcast(x * y, ((2, 1, 0),)),
    "collective-reduce": lambda x, y: x.builder.add(
        "collective-reduce", [x * y], {"to_apply": ADD.module.entry, "replica_groups": HALVES}, x.shape),
}


@pytest.mark.parametrize("name", ROWS)
def test_collectives(name: str) -> None:
    """The losses' difference along a direction is the gradients' product with it; `all` losses count."""
    arguments = [(values(2, 4, seed=r), values(2, 4, seed=r + 9)) for r in range(4)]
    directions = [(values(2, 4, seed=r + 20), values(2, 4, seed=r + 30)) for r in range(4)]
    check(built(ROWS[name], *arguments[0]), arguments, directions)


def check(program: xla_torch.XlaComputation, arguments: list, directions: list, replicas: int = 4, partitions: int = 1,
          step: float = 1e-5) -> None:
    """`directions` says for each participant where its arguments move to; None for integers, which do not."""
    derivative = xla_torch.vjp(program)
    leaves = [leaf for leaf in program.program_shape.result.leaves() if leaf.element_type.is_differentiable]
    cts = [[smooth_values(s.dimensions, s.element_type.is_complex, r + 40 + k) for k, s in enumerate(leaves)]
           for r in range(len(arguments))]

    def run(program: xla_torch.XlaComputation, given: list) -> list:
        results = xla_torch.run_replicas(program, [tuple(g) for g in given], num_replicas=replicas, num_partitions=partitions)
        return [[a for a in map(np.asarray, of) if a.dtype.kind in "fc"] for of in results]

    def total(sign: int) -> float:
        moved = [[a if d is None else a + sign * step * d for a, d in zip(given, along, strict=True)]
                 for given, along in zip(arguments, directions, strict=True)]
        return sum(product(c, r) for of, ct in zip(run(program, moved), cts, strict=True) for r, c in zip(of, ct, strict=True))

    gradients = run(derivative, [[*a, *c] for a, c in zip(arguments, cts, strict=True)])
    slope = sum(product(g, d) for of, along in zip(gradients, directions, strict=True)
                for g, d in zip(of, (d for d in along if d is not None), strict=True))
    assert slope == pytest.approx((total(1) - total(-1)) / (2 * step), rel=1e-6, abs=1e-6)


def product(ct: np.ndarray, value: np.ndarray) -> float:
    """The real product of a cotangent with a value."""
    return float(np.real(np.conj(ct) * value).sum())


DRAWN = [pytest.param(row, kind, id=f"{row.name} {kind}") for row in FAMILIES["collective"] for kind in ("f64", "c128")
         if kind in row.types]


@pytest.mark.parametrize(("row", "kind"), DRAWN)
def test_drawn_collectives(row: Row, kind: str) -> None:
    """Drawn shapes, groups and dimensions: see `op_rows`."""
    def example(draw: Any) -> None:
        drawn = Smooth(draw, kind)
        root = row.build(drawn)
        assert drawn.builder is not None
        program = drawn.builder.build(ops.Tuple(drawn.builder, list(root)) if isinstance(root, (list, tuple)) else root)
        replicas, partitions = row.participants
        arguments = [drawn.of_participant(k) for k in range(replicas * partitions)]
        directions = [[smooth_values(a.shape, kind == "c128", 100 + 10 * r + k) if a.dtype.kind in "fc" else None
                       for k, a in enumerate(given)] for r, given in enumerate(arguments)]
        if any(d is not None for d in directions[0]):
            check(program, arguments, directions, replicas, partitions)

    drawn_examples(example, 2)


def test_product_of_zeros() -> None:
    """Where one factor is zero it alone has a gradient, where two are nobody has."""
    factors = [np.array([2.0, 0.0, 0.0]), np.array([3.0, 5.0, 0.0]), np.array([0.5, 7.0, 1.0])]
    derivative = xla_torch.vjp(built(lambda x: ops.AllReduce(x, MUL), factors[0]))
    found = xla_torch.run_replicas(derivative, [(f, np.ones(3)) for f in factors], num_replicas=3)
    assert [f[0].tolist() for f in found] == [[4.5, 105.0, 0.0], [3.0, 0.0, 0.0], [18.0, 0.0, 0.0]]


def test_ragged_all_to_all() -> None:
    """Pieces of different sizes go back to where they came from; what was overwritten has no gradient."""
    offsets = [np.array(o) for o in ([0, 1, 1, 3], [0, 0, 2, 3], [1, 1, 1, 2], [0, 2, 3, 3])]
    sizes = np.array([[1, 0, 2, 1], [0, 2, 1, 1], [0, 0, 1, 2], [2, 1, 0, 1]])
    targets = np.stack([np.concatenate([[0], np.cumsum(sizes[:, j])[:-1]]) for j in range(4)], 1)
    arguments = [(values(4, 2, seed=r), values(6, 2, seed=r + 9), offsets[r].astype(np.int32), sizes[r].astype(np.int32),
                  targets[r].astype(np.int32), sizes[:, r].astype(np.int32)) for r in range(4)]
    directions = [(values(4, 2, seed=r + 20), values(6, 2, seed=r + 30), *(None,) * 4) for r in range(4)]
    check(built(lambda x, y, i, s, o, r: ops.RaggedAllToAll(x, i, s, y, o, r), *arguments[0]), arguments, directions)


def test_slices_in_place_are_refused() -> None:
    def program(x: xla_torch.XlaOp) -> xla_torch.XlaOp:
        start = (x.builder.constant(0),)
        return ops.MultiCollectivePermute([x, x, start, start], [(0, 0)], inplace=True, slice_sizes=[[2]])

    with pytest.raises(xla_torch.errors.DifferentiationError, match="dynamic-update-slice"):
        xla_torch.vjp(built(program, values(4)))


def test_refused_reducers() -> None:
    for program in (lambda x: ops.AllReduce(x, region(lambda a, b: a + b + a * b)), lambda x: ops.ReduceScatter(x, MAX, 0, 2)):
        with pytest.raises(xla_torch.errors.DifferentiationError, match="gradient"):
            xla_torch.vjp(built(program, values(4)))
