# pyright: reportCallIssue=false, reportArgumentType=false
"""Rows of the collectives' gradients: a program of four participants, and the same computation as one program in torch whose
arguments and results are those of all participants, stacked.

The sum of all participants' losses is one number for both. So the one program's gradients are, row by row, those that each
participant must get.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

import xla_torch
from support.gradient_checks import built, smooth_values, values
from xla_torch import Shape, XlaComputation, XlaOp, ops
from xla_torch.functions.hlo_builder import Builder
from xla_torch.types import F64, U32

Arrays = tuple[Any, ...]
Groups = Sequence[Sequence[int]]
COUNT = 4
EVERYBODY = ((0, 1, 2, 3),)
HALVES = ((0, 1), (2, 3))
CROSSED = ((3, 0), (1, 2))
UNEVEN = ((2, 0, 3), (1,))
PAIRS = ((0, 1), (1, 2), (3, 0))


@dataclasses.dataclass(frozen=True)
class Row:
    """`build` makes a participant's program of XlaOps, `whole` the results of all from the stacked arguments of all."""

    build: Callable[..., Any]
    whole: Callable[..., Any]
    arguments: Callable[[int], Arrays] = lambda k: (values(2, 4, seed=k), values(2, 4, seed=k + 9))
    partitions: int = 1

    @property
    def replicas(self) -> int:
        return COUNT // self.partitions

    def program(self) -> XlaComputation:
        return built(self.build, *self.arguments(0))

    def given(self) -> list[Arrays]:
        """Each participant's arguments."""
        return [self.arguments(k) for k in range(COUNT)]

    def stacked(self) -> list[torch.Tensor]:
        """Those of all, differentiable where they are floats."""
        columns = [torch.from_numpy(np.stack(column)) for column in zip(*self.given(), strict=True)]
        return [c.requires_grad_(c.is_floating_point()) for c in columns]

    def results(self, *stacked: torch.Tensor) -> list[torch.Tensor]:
        """Each result of all participants, stacked."""
        found = self.whole(*stacked)
        return found if isinstance(found, list) else [found]

    def cotangents(self) -> list[Arrays]:
        """Each participant's, for its results."""
        shapes = [tuple(r.shape[1:]) for r in self.results(*self.stacked())]
        return [tuple(smooth_values(s, False, 40 + 10 * p + k) for k, s in enumerate(shapes)) for p in range(COUNT)]

    def gradients(self) -> list[list[np.ndarray]]:
        """What each participant must get: of the sum of all losses, with respect to its own arguments."""
        stacked = self.stacked()
        loss = total(self.results(*stacked), self.cotangents())
        found = torch.autograd.grad(loss, [s for s in stacked if s.requires_grad], materialize_grads=True)
        return [[g[p].numpy() for g in found] for p in range(COUNT)]


def total(results: Sequence[torch.Tensor], cotangents: Sequence[Arrays]) -> torch.Tensor:
    """The sum of all participants' losses, which are their results times the cotangents."""
    columns = [torch.from_numpy(np.stack(column)) for column in zip(*cotangents, strict=True)]
    return sum(((r * c).sum() for r, c in zip(results, columns, strict=True)), torch.zeros((), dtype=torch.float64))


# ------------------------------------------------------------------------------------------- how all of it goes at once


def among(z: torch.Tensor, groups: Groups, result: Callable[[torch.Tensor, int], torch.Tensor]) -> torch.Tensor:
    """Each participant's result, from what its group has and its place in it; zeros for a participant in no group."""
    found = {p: result(z[list(group)], place) for group in groups for place, p in enumerate(group)}
    return torch.stack([found[p] if p in found else torch.zeros_like(z[p]) for p in range(COUNT)])


def summed(z: torch.Tensor, groups: Groups = EVERYBODY) -> torch.Tensor:
    return among(z, groups, lambda v, _: v.sum(0))


def gathered(z: torch.Tensor, dim: int, groups: Groups = EVERYBODY) -> torch.Tensor:
    return among(z, groups, lambda v, _: torch.cat(v.unbind(0), dim))


def scattered(z: torch.Tensor, dim: int, groups: Groups = EVERYBODY,
              reduce: Callable[[torch.Tensor], torch.Tensor] = lambda v: v.sum(0)) -> torch.Tensor:
    return among(z, groups, lambda v, place: reduce(v).chunk(len(v), dim)[place])


def exchanged(z: torch.Tensor, split: int, concat: int, groups: Groups = EVERYBODY) -> torch.Tensor:
    return among(z, groups, lambda v, place: torch.cat([part.chunk(len(v), split)[place] for part in v], concat))


def permuted(z: torch.Tensor, pairs: Groups = PAIRS) -> torch.Tensor:
    sources = {target: source for source, target in pairs}
    return torch.stack([z[sources[p]] if p in sources else torch.zeros_like(z[p]) for p in range(COUNT)])


def largest(v: torch.Tensor) -> torch.Tensor:
    return v.amax(0)


def mixed(v: torch.Tensor) -> torch.Tensor:
    """A reducer that nothing has a word for, in the group's order: a b + a / 2 + b."""
    result = v[0]
    for part in v[1:]:
        result = result * part + result / 2 + part
    return result


# ------------------------------------------------------------------------------------------- what programs say


def region(function: Callable[..., XlaOp]) -> XlaComputation:
    builder = xla_torch.XlaBuilder("region")
    return builder.build(function(*(builder.parameter(k, Shape.array(F64)) for k in range(2))))


ADD, MUL, MAX, MIN, SUB = map(region, (ops.Add, ops.Mul, ops.Max, ops.Min, ops.Sub))
MIXED = region(lambda a, b: a * b + a * 0.5 + b)


def several(tuple_op: XlaOp) -> list[XlaOp]:
    return [ops.GetTupleElement(tuple_op, k) for k in range(len(tuple_op.shape.tuple_shapes))]


def in_halves(x: XlaOp, opcode: str, result: str, attributes: dict[str, Any], passed_on: bool = False) -> XlaOp:
    """A start whose result also passes its operand on, and a done: all-gather-start with all-gather-done, and so on."""
    shape = Shape.parse(result)
    start = x.builder.add(f"{opcode}-start", [x], attributes, shape)
    done = x.builder.add(f"{opcode}-done", [start], {}, shape.tuple_shapes[1])
    return done + ops.GetTupleElement(start, 0) if passed_on else done


def wrapped(x: XlaOp, build: Callable[[XlaOp], XlaOp]) -> XlaOp:
    """In an async-start and an async-done."""
    builder = xla_torch.XlaBuilder("wrapped")
    called = builder.finish(build(builder.parameter(0, x.shape)))
    shape = Shape.tuple([Shape.tuple([x.shape]), called.root.shape])
    start = x.builder.add("async-start", [x], {"calls": called}, shape)
    return x.builder.add("async-done", [start], {"calls": called}, called.root.shape)


def posted(x: XlaOp) -> XlaOp:
    """A permutation by a send and a recv."""
    builder, channel = x.builder, {"channel_id": 1}
    written = "{" + ",".join(f"{{{source},{target}}}" for source, target in PAIRS) + "}"
    common = {"frontend_attributes": {"_xla_send_recv_source_target_pairs": written}}
    builder.add("send-done", [builder.add("send", [x, ops.CreateToken(builder)], channel, common=common)], channel, common=common)
    whole = Shape.tuple([x.shape, Shape(U32), Shape.token()])
    begun = builder.add("recv", [ops.CreateToken(builder)], channel, whole, common=common)
    return ops.GetTupleElement(builder.add("recv-done", [begun], channel, common=common), 0)


# ------------------------------------------------------------------------------------------- slices in place


def place_arguments(k: int) -> Arrays:
    """An input, an output, and starts of two slices in each: (2, 2) from (0 or 1, k), (1, k) to (k, 0), (k, 1)."""
    return (values(3, 5, seed=k), values(6, 3, seed=k + 9), *(np.int32(n) for n in (k % 2, k, min(k + 1, 3))))


def in_place(x: XlaOp, y: XlaOp, *numbers: XlaOp, pairs: Groups = ((0, 1), (1, 0), (2, 3), (0, 0), (1, 1)),
             start: bool = False) -> XlaOp:
    """Participant 3 only gets a slice, 2 only sends one; the second slice that 0 and 1 get lies partly over the first."""
    a, k, b = numbers
    zero = x.builder.constant(np.int32(0))
    operands = [x, y, ((a, k), (zero, a)), ((k, zero), (b, zero))]
    attributes = {"source_target_pairs": pairs, "slice_sizes": ((2, 2), (2, 2))}
    if not start:
        return ops.MultiCollectivePermute(operands, pairs, inplace=True, slice_sizes=[(2, 2), (2, 2)])
    given = [o if isinstance(o, XlaOp) else _packed(x.builder, o) for o in operands]
    made = x.builder.add("collective-permute-start", given, attributes, Shape.parse("(f64[3,5], f64[6,3], u32[], u32[])"))
    done = x.builder.add("collective-permute-done", [made], {}, y.shape)
    return ops.Mul(done, ops.Pad(ops.GetTupleElement(made, 0), x.builder.constant(1.0, F64), [(0, 3, 0), (0, -2, 0)]))


def _packed(builder: Builder, value: Any) -> XlaOp:
    return value if isinstance(value, XlaOp) else ops.Tuple(builder, [_packed(builder, v) for v in value])


def placed(x: torch.Tensor, y: torch.Tensor, *numbers: torch.Tensor, start: bool = False) -> torch.Tensor:
    a, k, b = (n.tolist() for n in numbers)
    results = [row.clone() for row in y]
    for source, target, i, j in ((0, 1, 0, 0), (1, 0, 0, 0), (2, 3, 0, 0), (0, 0, 1, 1), (1, 1, 1, 1)):
        row, column = (a[source], min(k[source], 3)) if i == 0 else (0, a[source])
        at = k[target] if j == 0 else b[target]
        results[target][at:at + 2, 0:2] = x[source, row:row + 2, column:column + 2]
    done = torch.stack(results)
    return done * torch.nn.functional.pad(x[:, :, :3], (0, 0, 0, 3), value=1.0) if start else done


def both_in_place(x: XlaOp, y: XlaOp, a: XlaOp) -> list[XlaOp]:
    """Two arrays at once, around a ring."""
    zero = x.builder.constant(np.int32(0))
    starts = ((a, zero), (zero, a))
    return several(ops.MultiCollectivePermute([(x, y), (y, x), starts, starts], [(k, (k + 1) % 4) for k in range(4)],
                                              inplace=True, slice_sizes=[(1, 2), (2, 1)]))


def both_placed(x: torch.Tensor, y: torch.Tensor, a: torch.Tensor) -> list[torch.Tensor]:
    first, second = [row.clone() for row in y], [row.clone() for row in x]
    for k, n in enumerate(a.tolist()):
        there = (k + 1) % 4
        m = int(a[there])
        first[there][m:m + 1, :2] = x[k, n:n + 1, :2]
        second[there][:, m:m + 1] = y[k, :, n:n + 1]
    return [torch.stack(first), torch.stack(second)]


# ------------------------------------------------------------------------------------------- pieces of any size


def plans(sizes: np.ndarray, starts: np.ndarray) -> Callable[[int], Arrays]:
    """Arguments for a ragged exchange: participant i reads `sizes[i, j]` rows from `starts[i, j]` on for participant j, where
    they come after those of the participants before. Of three dimensions the last counts a pair's updates."""
    order = sizes.reshape(COUNT, COUNT, -1).transpose(1, 0, 2)
    places = (np.cumsum(order.reshape(COUNT, -1), 1).reshape(order.shape) - order).transpose(1, 0, 2).reshape(sizes.shape)
    return lambda k: (values(5, 2, seed=k), values(12, 2, seed=k + 9),
                      *(np.ascontiguousarray(a).astype(np.int32) for a in (starts[k], sizes[k], places[k], sizes[:, k])))


def ragged(x: XlaOp, y: XlaOp, starts: XlaOp, sizes: XlaOp, places: XlaOp, got: XlaOp, **groups: Any) -> XlaOp:
    return ops.RaggedAllToAll(x * 2.0, starts, sizes, y, places, got, **groups)


def ragged_whole(x: torch.Tensor, y: torch.Tensor, starts: torch.Tensor, sizes: torch.Tensor, places: torch.Tensor,
                 got: torch.Tensor, groups: Groups = EVERYBODY) -> torch.Tensor:
    results = [row.clone() for row in y]
    for group in groups:
        for i in group:
            for j, target in enumerate(group):
                pieces = (plan[i, j].reshape(-1).tolist() for plan in (starts, sizes, places))
                for start, size, place in zip(*pieces, strict=True):
                    results[target][place:place + size] = 2 * x[i, start:start + size]
    return torch.stack(results)


APART = plans(np.array([[1, 0, 2, 1], [0, 2, 1, 1], [0, 0, 1, 2], [2, 1, 0, 1]]),
              np.array([[0, 1, 1, 3], [0, 0, 2, 3], [1, 1, 1, 2], [0, 2, 3, 3]]))
SHARED = plans(np.array([[2, 3, 1, 0], [1, 1, 1, 1], [0, 2, 2, 1], [3, 0, 1, 1]]),
               np.array([[0, 1, 1, 0], [2, 2, 2, 2], [4, 3, 1, 1], [0, 0, 0, 4]]))
TWICE = plans(np.array([[[1, 1], [0, 1], [1, 0], [1, 1]], [[0, 1], [2, 0], [1, 1], [0, 0]],
                        [[1, 0], [0, 0], [1, 2], [1, 1]], [[2, 1], [1, 0], [0, 1], [1, 1]]]),
              np.array([[[0, 1], [2, 2], [3, 3], [0, 4]], [[1, 1], [0, 2], [2, 3], [4, 4]],
                        [[0, 0], [1, 1], [1, 2], [3, 4]], [[0, 2], [2, 3], [3, 3], [4, 0]]]))
"""Pieces apart; rows that are sent several times; two pieces for each pair of participants."""


def in_pairs(k: int) -> Arrays:
    """Ragged, for groups of two: each member sends k % 2 + 1 rows to the first and two to the second."""
    sizes = np.array([[1, 2], [2, 2], [1, 2], [2, 2]], np.int32)
    places = np.array([[0, 3], [4, 6], [0, 3], [4, 6]], np.int32)
    pair = {p: group for group in CROSSED for p in group}[k]
    return (values(5, 2, seed=k), values(12, 2, seed=k + 9), np.array([0, 3], np.int32), sizes[k], places[k],
            np.array([sizes[p][pair.index(k)] for p in pair], np.int32))


# ------------------------------------------------------------------------------------------- rows

GRID: dict[str, Any] = {"partitions": 2}
ACROSS = ((2, 3, 0, 1),)
"""What `replica_groups={{1,0}}` with a channel means for 2 replicas x 2 partitions: all partitions of both replicas."""
OF_REPLICAS = ((0, 2), (1, 3))
OF_PARTITIONS = ((1, 0), (3, 2))
FLAT: dict[str, Any] = {"channel_id": 1, "use_global_device_ids": True}

ROWS: dict[str, Row] = {
    "all-reduce add": Row(lambda x, y: ops.AllReduce(x * x, ADD), lambda x, y: summed(x * x)),
    "all-reduce add in groups": Row(lambda x, y: ops.AllReduce(x * y, ADD, HALVES), lambda x, y: summed(x * y, HALVES)),
    "all-reduce add in uneven groups": Row(
        lambda x, y: ops.AllReduce(x * y, ADD, UNEVEN), lambda x, y: summed(x * y, UNEVEN)),
    "all-reduce max": Row(lambda x, y: ops.AllReduce(x * y, MAX), lambda x, y: among(x * y, EVERYBODY, lambda v, _: v.amax(0))),
    "all-reduce min in uneven groups": Row(
        lambda x, y: ops.AllReduce(x * y, MIN, UNEVEN), lambda x, y: among(x * y, UNEVEN, lambda v, _: v.amin(0))),
    "all-reduce mul": Row(lambda x, y: ops.AllReduce(x * y, MUL), lambda x, y: among(x * y, EVERYBODY, lambda v, _: v.prod(0))),
    "all-reduce mul in groups": Row(
        lambda x, y: ops.AllReduce(x, MUL, CROSSED), lambda x, y: among(x, CROSSED, lambda v, _: v.prod(0))),
    "all-reduce of any kind": Row(
        lambda x, y: ops.AllReduce(x * y, MIXED, EVERYBODY), lambda x, y: among(x * y, EVERYBODY, lambda v, _: mixed(v))),
    "all-reduce of any kind in groups": Row(
        lambda x, y: ops.AllReduce(x * y, MIXED, CROSSED), lambda x, y: among(x * y, CROSSED, lambda v, _: mixed(v))),
    "all-reduce subtract": Row(lambda x, y: ops.AllReduce(x * y, SUB, CROSSED),
                               lambda x, y: among(x * y, CROSSED, lambda v, _: v[0] - v[1])),
    "all-reduce of two": Row(lambda x, y: several(ops.AllReduceTuple([x * y, y], ADD)),
                             lambda x, y: [summed(x * y), summed(y)]),
    "all-reduce of two, of any kind": Row(
        lambda x, y: several(ops.AllReduceTuple([x * y, y], MIXED, HALVES)),
        lambda x, y: [among(v, HALVES, lambda v, _: mixed(v)) for v in (x * y, y)]),
    "all-reduce in two halves": Row(
        lambda x, y: ops.AllReduceDone(ops.AllReduceStart(x * x, ADD)), lambda x, y: summed(x * x)),
    "all-reduce of replicas": Row(
        lambda x, y: ops.AllReduce(x * y, ADD, [[0, 1]]), lambda x, y: summed(x * y, OF_REPLICAS), **GRID),
    "all-reduce of replicas and partitions": Row(
        lambda x, y: ops.AllReduce(x * y, ADD, [[1, 0]], 1), lambda x, y: summed(x * y, ACROSS), **GRID),
    "all-reduce max of flat ids": Row(
        lambda x, y: ops.AllReduce(x * y, MAX, CROSSED, **FLAT),
        lambda x, y: among(x * y, CROSSED, lambda v, _: v.amax(0)), **GRID),
    "all-reduce of any kind of flat ids": Row(
        lambda x, y: ops.AllReduce(x * y, MIXED, CROSSED, **FLAT),
        lambda x, y: among(x * y, CROSSED, lambda v, _: mixed(v)), **GRID),
    "cross-replica-sum": Row(lambda x, y: ops.CrossReplicaSum(x * y), lambda x, y: summed(x * y)),
    "reduce-scatter": Row(lambda x, y: ops.ReduceScatter(x * y, ADD, 1, 4), lambda x, y: scattered(x * y, 1)),
    "reduce-scatter in groups": Row(lambda x, y: ops.ReduceScatter(x * y, ADD, 0, 2, CROSSED),
                                    lambda x, y: scattered(x * y, 0, CROSSED)),
    "reduce-scatter of two": Row(lambda x, y: several(ops.ReduceScatter(ops.Tuple(x.builder, [x * y, y]), ADD, 1, 4)),
                                 lambda x, y: [scattered(x * y, 1), scattered(y, 1)]),
    "reduce-scatter max": Row(lambda x, y: ops.ReduceScatter(x * y, MAX, 1, 2, CROSSED),
                              lambda x, y: scattered(x * y, 1, CROSSED, lambda v: v.amax(0))),
    "reduce-scatter mul": Row(lambda x, y: ops.ReduceScatter(x * y, MUL, 1, 4),
                              lambda x, y: scattered(x * y, 1, EVERYBODY, lambda v: v.prod(0))),
    "reduce-scatter of any kind": Row(lambda x, y: ops.ReduceScatter(x * y, MIXED, 1, 4),
                                      lambda x, y: scattered(x * y, 1, EVERYBODY, mixed)),
    "reduce-scatter of any kind in groups": Row(lambda x, y: ops.ReduceScatter(x * y, MIXED, 0, 2, CROSSED),
                                                lambda x, y: scattered(x * y, 0, CROSSED, mixed)),
    "reduce-scatter of any kind of replicas and partitions": Row(
        lambda x, y: ops.ReduceScatter(x * y, MIXED, 1, 4, [[1, 0]], 1),
        lambda x, y: scattered(x * y, 1, ACROSS, mixed), **GRID),
    "reduce-scatter of flat ids": Row(
        lambda x, y: ops.ReduceScatter(x * y, MIN, 1, 2, CROSSED, **FLAT),
        lambda x, y: scattered(x * y, 1, CROSSED, lambda v: v.amin(0)), **GRID),
    "reduce-scatter wrapped": Row(lambda x, y: wrapped(x * y, lambda v: ops.ReduceScatter(v, ADD, 1, 4)),
                                  lambda x, y: scattered(x * y, 1)),
    "all-gather": Row(lambda x, y: ops.AllGather(x * y, 1, 4), lambda x, y: gathered(x * y, 1)),
    "all-gather in groups": Row(lambda x, y: ops.AllGather(x * y, 0, 2, CROSSED), lambda x, y: gathered(x * y, 0, CROSSED)),
    "all-gather of two": Row(lambda x, y: several(ops.AllGatherTuple([x * y, y], 0, 4)),
                             lambda x, y: [gathered(x * y, 0), gathered(y, 0)]),
    "all-gather in two halves": Row(
        lambda x, y: in_halves(x * y, "all-gather", "(f64[2,4], f64[8,4])", {"dimensions": (0,)}),
        lambda x, y: gathered(x * y, 0)),
    "all-gather of replicas": Row(
        lambda x, y: ops.AllGather(x * y, 0, 2, [[1, 0]]), lambda x, y: gathered(x * y, 0, ((2, 0), (3, 1))), **GRID),
    "all-gather of replicas and partitions": Row(
        lambda x, y: ops.AllGather(x * y, 1, 4, [[1, 0]], 1), lambda x, y: gathered(x * y, 1, ACROSS), **GRID),
    "all-gather of flat ids": Row(
        lambda x, y: ops.AllGather(x * y, 1, 2, CROSSED, **FLAT), lambda x, y: gathered(x * y, 1, CROSSED), **GRID),
    "all-to-all": Row(lambda x, y: ops.AllToAll(x * y, 1, 1, 4), lambda x, y: exchanged(x * y, 1, 1)),
    "all-to-all across": Row(lambda x, y: ops.AllToAll(x * y, 1, 0, 4), lambda x, y: exchanged(x * y, 1, 0)),
    "all-to-all in groups": Row(lambda x, y: ops.AllToAll(x * y, 0, 0, 2, CROSSED), lambda x, y: exchanged(x * y, 0, 0, CROSSED)),
    "all-to-all of partitions": Row(
        lambda x, y: ops.AllToAll(x * y, 0, 0, 2, [[1, 0]], channel_id=1),
        lambda x, y: exchanged(x * y, 0, 0, OF_PARTITIONS), **GRID),
    "all-to-all of several": Row(
        lambda x, y: several(ops.AllToAllTuple([x * y, y], CROSSED)),
        lambda x, y: [among(torch.stack([x * y, y], 1), CROSSED, lambda v, place, k=k: v[k, place]) for k in range(2)]),
    "all-to-all wrapped": Row(lambda x, y: wrapped(x * y, lambda v: ops.AllToAll(v, 1, 1, 4)),
                              lambda x, y: exchanged(x * y, 1, 1)),
    "collective-permute": Row(lambda x, y: ops.CollectivePermute(x * y, PAIRS), lambda x, y: permuted(x * y)),
    "collective-permute of two": Row(lambda x, y: several(ops.MultiCollectivePermute([y, x * y], PAIRS)),
                                     lambda x, y: [permuted(y), permuted(x * y)]),
    "collective-permute of partitions": Row(
        lambda x, y: ops.CollectivePermute(x * y, [(0, 1)], 1), lambda x, y: permuted(x * y, ((0, 1), (2, 3))), **GRID),
    "collective-permute in two halves": Row(
        lambda x, y: in_halves(x * y, "collective-permute", "(f64[2,4], f64[2,4], u32[], u32[])", {"source_target_pairs": PAIRS}),
        lambda x, y: permuted(x * y)),
    "collective-permute passing on": Row(
        lambda x, y: in_halves(x * y, "collective-permute", "(f64[2,4], f64[2,4], u32[], u32[])",
                               {"source_target_pairs": PAIRS}, True),
        lambda x, y: permuted(x * y) + x * y),
    "send and recv": Row(lambda x, y: posted(x * y), lambda x, y: permuted(x * y)),
    "collective-permute in place": Row(in_place, placed, place_arguments),
    "collective-permute in place in two halves": Row(
        lambda *given: in_place(*given, start=True), lambda *given: placed(*given, start=True), place_arguments),
    "collective-permute of two in place": Row(
        both_in_place, both_placed, lambda k: (values(2, 4, seed=k), values(2, 4, seed=k + 9), np.int32(k % 2))),
    "collective-broadcast": Row(lambda x, y: ops.CollectiveBroadcast(x * y, ((2, 1, 0),)),
                                lambda x, y: among(x * y, ((2, 1, 0),), lambda v, _: v[0])),
    "collective-broadcast of partitions": Row(
        lambda x, y: ops.CollectiveBroadcast(x * y, ((1, 0),), 1),
        lambda x, y: among(x * y, OF_PARTITIONS, lambda v, _: v[0]), **GRID),
    "collective-reduce": Row(
        lambda x, y: x.builder.add("collective-reduce", [x * y], {"to_apply": ADD.module.entry, "replica_groups": UNEVEN},
                                   x.shape),
        lambda x, y: among(x * y, UNEVEN, lambda v, place: v[0] * 0 if place else v.sum(0))),
    "ragged-all-to-all": Row(ragged, ragged_whole, APART),
    "ragged-all-to-all of rows that several get": Row(ragged, ragged_whole, SHARED),
    "ragged-all-to-all in two updates": Row(ragged, ragged_whole, TWICE),
    "ragged-all-to-all in groups": Row(
        lambda *given: ragged(*given, replica_groups=CROSSED), lambda *given: ragged_whole(*given, groups=CROSSED), in_pairs),
}
