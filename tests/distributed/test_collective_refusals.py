# pyright: reportCallIssue=false, reportArgumentType=false
"""What is said of collectives and of runs of several participants that do not fit."""

from __future__ import annotations

import pytest
import torch

import xla_torch
from xla_torch import F32, Shape, ops, run_replicas
from xla_torch.errors import InvalidArgument, UnsupportedError

NEGATE = xla_torch.parse_hlo("HloModule m\nENTRY e {\n  p = f32[2] parameter(0)\n  ROOT r = f32[2] negate(p)\n}")
FOR_FOUR = xla_torch.parse_hlo("HloModule m, replica_count=2, num_partitions=2\nENTRY e {\n  ROOT p = f32[2] parameter(0)\n}")
X = torch.zeros(2)

MISFITS = {
    "too few tuples": (NEGATE, [(X,)], {"num_replicas": 2}, "wrong number of participants"),
    "too many tuples": (NEGATE, [(X,)] * 3, {"num_replicas": 2}, r"num_replicas \* num_partitions = 2"),
    "no participants": (NEGATE, [], {"num_replicas": 0}, "wrong number of participants"),
    "a tensor for a tuple": (NEGATE, [X, X], {"num_replicas": 2}, r"write \(x,\) for a single argument"),
    "a program for each": ([NEGATE] * 2, [(X,)] * 2, {"num_replicas": 2}, "one program, which all participants run"),
    "a program for others": (FOR_FOUR, [(X,)] * 4, {"num_replicas": 4}, r"2 replicas x 2 partitions, 4 participants"),
    "too many arguments": (NEGATE, [(X,), (X, X)], {"num_replicas": 2}, r"wrong number of arguments\n  got +2"),
    "too few arguments": (NEGATE, [(X,), ()], {"num_replicas": 2}, r"wrong number of arguments\n  got +0"),
}


@pytest.mark.parametrize("name", MISFITS)
def test_arguments_that_do_not_fit_raise_an_error(name: str) -> None:
    computation, arguments, counts, message = MISFITS[name]
    with pytest.raises(InvalidArgument, match=message):
        run_replicas(computation, arguments, **counts)


REFUSED = [
    (lambda b, x: ops.AllGather(x, 2, 2), "the dimension is out of range"),
    (lambda b, x: ops.AllGather(x, 0, 0), "the number of shards is not positive"),
    (lambda b, x: ops.ReduceScatter(x, add_of(F32), 1, 2), "cannot be divided into shards"),
    (lambda b, x: ops.AllToAll(x, 1, 0, 2), "no multiple of the split count"),
    (lambda b, x: ops.AllToAll(x, 0, 5, 2), "the dimension is out of range"),
    (lambda b, x: ops.CollectivePermute(x, [(0, 1), (0, 2)]), "a source is in several pairs"),
    (lambda b, x: ops.CollectivePermute(x, [(0, 1), (2, 1)]), "a target is in several pairs"),
    (lambda b, x: ops.CollectiveBroadcast(x, [(0, 1), (1, 2)]), "an id is in replica groups twice"),
    (lambda b, x: ops.AllReduce(x, add_of(xla_torch.S32)), "does not fit"),
    (lambda b, x: ops.AllReduce(x, add_of(F32), use_global_device_ids=True), "without a channel_id"),
    (lambda b, x: ops.AllReduce(x, add_of(F32), shape_with_layout=Shape.parse("f32[9]{0}")), "not the operand's shape"),
    (lambda b, x: ops.PartitionId(b, Shape.parse("s32[]")), "an id is u32"),
    (lambda b, x: b.add("all-gather-done", [x]), "not the result of a start"),
]


def add_of(element_type: xla_torch.PrimitiveType) -> xla_torch.XlaComputation:
    builder = xla_torch.XlaBuilder("add")
    return builder.build(ops.Add(*(builder.parameter(k, Shape.array(element_type)) for k in range(2))))


@pytest.mark.parametrize(("build", "what"), REFUSED)
def test_refusals(build, what: str) -> None:
    builder = xla_torch.XlaBuilder("refused")
    with pytest.raises(InvalidArgument, match=what):
        build(builder, builder.parameter(0, Shape.parse("f32[4,3]")))


def test_tuples_of_nothing_or_of_several_types() -> None:
    builder = xla_torch.XlaBuilder("refused")
    x, y = builder.parameter(0, Shape.parse("f32[2]")), builder.parameter(1, Shape.parse("s32[2]"))
    with pytest.raises(UnsupportedError):
        ops.AllGatherTuple([], 0, 2)
    with pytest.raises(UnsupportedError, match="different element types"):
        ops.AllReduceTuple([x, y], add_of(F32))
    with pytest.raises(UnsupportedError, match="different element types"):
        ops.ReduceScatter([x, ops.ConvertElementType(x, "f64")], add_of(F32), 0, 1)
