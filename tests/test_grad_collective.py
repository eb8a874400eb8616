"""Gradients of collectives: what all participants' losses change by when one participant's argument does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import xla_torch
from gradient_rows import built, values
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


def check(program: xla_torch.XlaComputation, arguments: list, directions: list, step: float = 1e-5) -> None:
    derivative = xla_torch.vjp(program)
    shapes = [leaf.dimensions for leaf in program.program_shape.result.leaves()]
    cts = [[values(*s, seed=r + 40 + k) for k, s in enumerate(shapes)] for r in range(4)]
    floats = len(directions[0])

    def total(sign: int) -> float:
        moved = [(*(a + sign * step * d for a, d in zip(given[:floats], along, strict=True)), *given[floats:])
                 for given, along in zip(arguments, directions, strict=True)]
        results = xla_torch.run_replicas(program, moved, num_replicas=4)
        return sum(float((c * np.asarray(r)).sum()) for of, ct in zip(results, cts, strict=True)
                   for r, c in zip(of, ct, strict=True))

    gradients = xla_torch.run_replicas(derivative, [(*a, *c) for a, c in zip(arguments, cts, strict=True)], num_replicas=4)
    slope = sum(float((np.asarray(g) * d).sum()) for of, along in zip(gradients, directions, strict=True)
                for g, d in zip(of, along, strict=True))
    assert slope == pytest.approx((total(1) - total(-1)) / (2 * step), rel=1e-6, abs=1e-6)


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
    directions = [(values(4, 2, seed=r + 20), values(6, 2, seed=r + 30)) for r in range(4)]
    check(built(lambda x, y, i, s, o, r: ops.RaggedAllToAll(x, i, s, y, o, r), *arguments[0]), arguments, directions)


def test_refused_reducers() -> None:
    for program in (lambda x: ops.AllReduce(x, region(lambda a, b: a + b + a * b)), lambda x: ops.ReduceScatter(x, MAX, 0, 2)):
        with pytest.raises(xla_torch.errors.DifferentiationError, match="gradient"):
            xla_torch.vjp(built(program, values(4)))
