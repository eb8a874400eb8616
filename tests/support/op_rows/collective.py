# pyright: reportCallIssue=false, reportArgumentType=false
"""Rows of the collectives: participants are threads here and devices in XLA, each with values of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from support.agreement import element_type
from xla_torch import ops

from .drawn import Drawn, Row
from .kinds import ALL, COMPLEX, FLOATS, INTS

REPLICAS = {"participants": (4, 1), "eager": False}
GRID = {"participants": (2, 2), "eager": False}
GROUPS: tuple[list[list[int]], ...] = ([], [[0, 1, 2, 3]], [[3, 1, 0, 2]], [[0, 2], [3, 1]], [[0, 1], [2, 3]])
MOVED = tuple(t for t in ALL if t in (*INTS, *FLOATS, *COMPLEX, "pred", "f8e5m2", "f8e4m3fn"))
REDUCED = (*INTS, "f16", "f32", "f64", *COMPLEX)


def _groups(d: Drawn) -> tuple[list[list[int]], int]:
    """Replica groups of 4 participants, and how many are in one."""
    groups = d.choice(*GROUPS)
    return groups, len(groups[0]) if groups else 4


def _array(d: Drawn, domain: str = "any", smallest: int = 0) -> Any:
    return d.array(d.dims(1, 3, smallest), domain=domain)


def _gather(d: Drawn) -> Any:
    groups, count = _groups(d)
    dims = d.dims(1, 3, smallest=1)
    return ops.AllGather(d.array(dims), d.integer(0, len(dims) - 1), count, groups)


def _gather_several(d: Drawn) -> Any:
    groups, count = _groups(d)
    dims = d.dims(1, 2, smallest=1)
    return ops.AllGatherTuple([d.array(dims), d.array(dims, "s32")], d.integer(0, len(dims) - 1), count, groups)


def _reduce(combine: Callable[..., Any], domain: str) -> Callable[[Drawn], Any]:
    return lambda d: ops.AllReduce(_array(d, domain), d.region(combine), _groups(d)[0])


def _reduce_several(d: Drawn) -> Any:
    return ops.AllReduceTuple([_array(d, "small"), _array(d, "small")], d.region(ops.Add), _groups(d)[0])


def _reduce_grid(d: Drawn) -> Any:
    """The three ways to read groups where there are replicas and partitions."""
    operand, region = _array(d, "small"), d.region(ops.Add)
    form = d.choice("replicas", "replicas and partitions", "global ids")
    if form == "replicas":
        return ops.AllReduce(operand, region, [[0, 1]])
    if form == "replicas and partitions":
        return ops.AllReduce(operand, region, d.choice([[0, 1]], [[0], [1]]), channel_id=1)
    return ops.AllReduce(operand, region, d.choice([[0, 3], [2, 1]], [[0, 1, 2, 3]]), channel_id=1, use_global_device_ids=True)


def _scatter(d: Drawn) -> Any:
    groups, count = _groups(d)
    dims = d.dims(1, 3, smallest=1)
    at = d.integer(0, len(dims) - 1)
    dims[at] *= count
    return ops.ReduceScatter(d.array(dims, domain="small"), d.region(ops.Add), at, count, groups)


def _all_to_all(d: Drawn) -> Any:
    groups, count = _groups(d)
    dims = d.dims(1, 3, smallest=1)
    split, concat = d.integer(0, len(dims) - 1), d.integer(0, len(dims) - 1)
    dims[split] *= count
    return ops.AllToAll(d.array(dims), split, concat, count, groups)


def _all_to_all_several(d: Drawn) -> Any:
    groups, count = _groups(d)
    dims = d.dims(1, 2, smallest=1)
    return ops.AllToAllTuple([d.array(dims) for _ in range(count)], groups)


def _permute(d: Drawn) -> Any:
    order = d.order(4)
    return ops.CollectivePermute(_array(d), [(k, order[k]) for k in range(4) if d.flag()])


def _permute_several(d: Drawn) -> Any:
    """Several arrays at once, which XLA's way through StableHLO refuses."""
    order = d.order(4)
    d.expect(lambda *arguments: [arguments[order.index(k)] for k in range(4)])
    return ops.MultiCollectivePermute([_array(d), _array(d)], [(k, order[k]) for k in range(4)])


def _ragged(d: Drawn) -> Any:
    """Every participant sends k of its elements to participant k, and puts those of participant j at 10 j."""
    offsets = d.given(np.array([0, 0, 1, 3], np.int32), "s32")
    sizes = d.given(np.array([0, 1, 2, 3], np.int32), "s32")

    def sent(*arguments: list[np.ndarray]) -> list[list[np.ndarray]]:
        results = [a[5].copy() for a in arguments]
        for source, a in enumerate(arguments):
            for target in range(4):
                start = a[0][target]
                results[target][10 * source:10 * source + target] = a[4][start:start + target]
        return [[r] for r in results]

    places = d.array([4], "s32", lambda rng: np.zeros(4))
    got = d.array([4], "s32", lambda rng: np.zeros(4))
    operand, output = d.array([6]), d.array([40])
    d.expect(sent)
    start = ops.Mul(ops.ConvertElementType(ops.Broadcast(ops.ReplicaId(d.builder), [4]), element_type("s32")), 10)
    count = ops.Add(got, ops.ConvertElementType(ops.Broadcast(ops.ReplicaId(d.builder), [4]), element_type("s32")))
    return ops.RaggedAllToAll(operand, offsets, sizes, output, ops.Add(places, start), count)


def _broadcast(d: Drawn) -> Any:
    """The first of a group sends; who is in none gets zeros. XLA's CPU runtime has no such collective."""
    groups = d.choice([[2, 0]], [[1, 0], [3, 2]], [[0, 1, 2, 3]])

    def sent(*arguments: list[np.ndarray]) -> list[list[np.ndarray]]:
        source = {member: group[0] for group in groups for member in group}
        return [[arguments[source[k]][0] if k in source else np.zeros_like(a[0])] for k, a in enumerate(arguments)]

    d.expect(sent)
    return ops.CollectiveBroadcast(_array(d), groups)


def _identity(d: Drawn, function: Callable[..., Any]) -> Any:
    """The participant's number, added to a value. XLA's partitioner refuses partition-id in a program of several."""
    if function is ops.PartitionId:
        d.expect(lambda *arguments: [[a[0] + np.asarray(k % 2, a[0].dtype)] for k, a in enumerate(arguments)])
    number = ops.ConvertElementType(function(d.builder), element_type(d.kind))
    return ops.Add(d.array([1], domain="small"), number)


def _halves(d: Drawn) -> Any:
    """Collectives in two halves, one after another."""
    x = _array(d, "small", smallest=1)
    reduced = ops.AllReduceDone(ops.AllReduceStart(x, d.region(ops.Add)))
    gathered = ops.AllGatherDone(ops.AllGatherStart(reduced, 0, 4))
    order = d.order(4)
    return ops.CollectivePermuteDone(ops.CollectivePermuteStart(gathered, [(k, order[k]) for k in range(4)]))


ROWS: list[Row] = [
    Row("AllGather", _gather, MOVED, **REPLICAS),
    Row("AllGatherTuple", _gather_several, MOVED, **REPLICAS),
    Row("AllReduce", _reduce(ops.Add, "small"), REDUCED, variant="by addition", **REPLICAS),
    Row("AllReduce", _reduce(ops.Max, "finite"), (*INTS, "f32", "f64"), variant="to the largest", **REPLICAS),
    Row("AllReduce", _reduce_grid, ("s32", "f32", "f64"), variant="of replicas and partitions", **GRID),
    Row("AllReduceTuple", _reduce_several, REDUCED, **REPLICAS),
    Row("CrossReplicaSum", lambda d: ops.CrossReplicaSum(_array(d, "small"), _groups(d)[0]), REDUCED, **REPLICAS),
    Row("ReduceScatter", _scatter, REDUCED, **REPLICAS),
    Row("AllToAll", _all_to_all, MOVED, **REPLICAS),
    Row("AllToAllTuple", _all_to_all_several, MOVED, **REPLICAS),
    Row("RaggedAllToAll", _ragged, MOVED, **REPLICAS),
    Row("CollectivePermute", _permute, MOVED, **REPLICAS),
    Row("MultiCollectivePermute", _permute_several, MOVED, **REPLICAS),
    Row("CollectiveBroadcast", _broadcast, MOVED, **REPLICAS),
    Row("ReplicaId", lambda d: _identity(d, ops.ReplicaId), ("u32", "s32", "f32"), **GRID),
    Row("PartitionId BuildPartitionId", lambda d: _identity(d, ops.PartitionId), ("u32", "s32", "f32"), **GRID),
    Row("AllReduceStart AllReduceDone AllGatherStart AllGatherDone CollectivePermuteStart CollectivePermuteDone", _halves,
        ("s32", "f32", "f64"), **REPLICAS),
]
