# pyright: reportCallIssue=false, reportArgumentType=false
"""Collectives with threads as participants: the documents' examples, all modes of replica groups, real XLA, and failures."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import xla_torch
from support import oracle
from support.many_devices import output_of
from support.oracle import needs_xla
from xla_torch import Shape, ops, run_replicas
from xla_torch.core.participant_groups import GroupMode
from xla_torch.distributed.participant import current_participant, installed
from xla_torch.distributed.rendezvous import Rendezvous
from xla_torch.distributed.threads import ThreadParticipant
from xla_torch.errors import DifferentiationError, ExecutionError, HloSyntaxError, InvalidArgument

ADD = "add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT r = f32[] add(a, b)\n}"


def program(instruction: str, shape: str, regions: str = ADD) -> xla_torch.XlaComputation:
    """One collective of a parameter."""
    return xla_torch.parse_hlo(f"HloModule m\n{regions}\nENTRY e {{\n  p = {shape} parameter(0)\n  ROOT r = {instruction}\n}}")


def run(instruction: str, values: list, replicas: int, partitions: int = 1, regions: str = ADD, dtype: str = "f32") -> list:
    """Results of every participant, each of which has one of the values."""
    arrays = [np.asarray(v, Shape.parse(f"{dtype}[]").element_type.numpy) for v in values]
    shape = f"{dtype}[{','.join(map(str, arrays[0].shape))}]"
    results = run_replicas(program(instruction, shape, regions), [(a,) for a in arrays], num_replicas=replicas,
                           num_partitions=partitions)
    return [r[0].tolist() for r in results]


# --------------------------------------------------------------------------------------------- documents' examples

EXAMPLES = [
    ("f32[4] all-gather(p), dimensions={0}, replica_groups={}", [[1, 2.5], [3, 5.25]], [[1, 2.5, 3, 5.25]] * 2),
    ("f32[2] all-reduce(p), to_apply=add, replica_groups={}", [[1, 2.5], [3, 5.25]], [[4, 7.75]] * 2),
    ("f32[1] reduce-scatter(p), to_apply=add, dimensions={0}, replica_groups={}", [[1, 2.25], [3, 5.25]], [[4], [7.5]]),
    ("f32[2] collective-permute(p), source_target_pairs={{0,1}}", [[1, 2], [3, 4]], [[0, 0], [1, 2]]),
    ("f32[1] collective-broadcast(p), replica_groups={{1,0}}", [[1], [2], [3]], [[2], [2], [0]]),
    ("f32[1] collective-reduce(p), to_apply=add, replica_groups={{1,0}}", [[1], [2], [4]], [[0], [3], [0]]),
    ("f32[4] all-to-all(p), dimensions={0}, replica_groups={{1,0}}", [[1, 2, 3, 4], [5, 6, 7, 8]], [[7, 8, 3, 4], [5, 6, 1, 2]]),
]


@pytest.mark.parametrize(("instruction", "values", "want"), EXAMPLES)
def test_examples(instruction: str, values: list, want: list) -> None:
    assert run(instruction, values, len(values)) == want


def test_ragged_all_to_all_of_the_document() -> None:
    builder = xla_torch.XlaBuilder("ragged")
    shapes = ["f32[3]", "s32[2]", "s32[2]", "f32[4]", "s32[2]", "s32[2]"]
    root = ops.RaggedAllToAll(*(builder.parameter(k, Shape.parse(s)) for k, s in enumerate(shapes)))
    zeros = np.zeros(4, "f")

    def arguments(data: list, *plans: list) -> tuple:
        given = [np.array(plan, "i4") for plan in plans]
        return np.array(data, "f"), given[0], given[1], zeros, given[2], given[3]

    results = run_replicas(builder.build(root), [arguments([1, 2, 2], [0, 1], [1, 2], [0, 0], [1, 1]),
                                                 arguments([3, 4, 0], [0, 1], [1, 1], [1, 2], [2, 1])], num_replicas=2)
    assert [r[0].tolist() for r in results] == [[1, 3, 0, 0], [2, 2, 4, 0]]


def test_all_to_all_changes_dimensions() -> None:
    """Split along 1, concatenate along 0: f32[2,4] of 2 replicas becomes f32[4,2]."""
    builder = xla_torch.XlaBuilder("blocks")
    root = ops.AllToAll(builder.parameter(0, Shape.parse("f32[2,4]")), 1, 0, 2)
    assert str(root.shape) == "f32[4,2]"
    values = [torch.arange(8.0).reshape(2, 4) + 10 * k for k in range(2)]
    results = run_replicas(builder.build(root), [(v,) for v in values], num_replicas=2)
    for number, result in enumerate(results):
        assert torch.equal(result, torch.cat([v[:, 2 * number: 2 * number + 2] for v in values]))


def test_all_to_all_of_a_tuple() -> None:
    builder = xla_torch.XlaBuilder("tuple")
    root = ops.AllToAllTuple([builder.parameter(k, Shape.parse("f32[1]")) for k in range(2)])
    arguments = [tuple(torch.tensor([10.0 * r + k]) for k in range(2)) for r in range(2)]
    results = run_replicas(builder.build(root), arguments, num_replicas=2)
    assert [[t.item() for t in result] for result in results] == [[0, 10], [1, 11]]


# --------------------------------------------------------------------------------------------- replica groups

MODES = [
    # attributes, groups of (replica, partition) in a program of 2 x 2
    ("replica_groups={{0,1}}", {(0, 1): [(0, 1), (1, 1)], (1, 0): [(0, 0), (1, 0)]}),
    ("replica_groups={}", {(0, 1): [(0, 1), (1, 1)], (1, 0): [(0, 0), (1, 0)]}),
    ("replica_groups={{1,0}}, channel_id=1", {(0, 0): [(1, 0), (1, 1), (0, 0), (0, 1)]}),
    ("replica_groups={{0},{1}}, channel_id=1", {(1, 0): [(1, 0), (1, 1)]}),
    ("replica_groups={{0,3},{2,1}}, channel_id=1, use_global_device_ids=true",
     {(0, 0): [(0, 0), (1, 1)], (0, 1): [(1, 0), (0, 1)]}),
    ("replica_groups=[2,2]<=[2,2]T(1,0), channel_id=1, use_global_device_ids=true", {(0, 1): [(0, 1), (1, 1)]}),
]


@pytest.mark.parametrize(("attributes", "groups"), MODES)
def test_modes_of_replica_groups(attributes: str, groups: dict) -> None:
    size = len(next(iter(groups.values())))
    got = run(f"f32[{size}] all-gather(p), dimensions={{0}}, {attributes}", [[0], [1], [2], [3]], 2, 2)
    for (replica, partition), members in groups.items():
        assert got[2 * replica + partition] == [2 * r + p for r, p in members]


SUMS_OF_MODES = [
    # The sums of the participants' 1, 2, 4 and 8 in a program of 2 replicas x 2 partitions; the last mode numbers all four.
    (GroupMode.CROSS_REPLICA, "{{0},{1}}", [1, 2, 4, 8]), (GroupMode.CROSS_REPLICA, "{{1,0}}", [5, 10, 5, 10]),
    (GroupMode.CROSS_PARTITION, "{{0,1}}", [3, 3, 12, 12]), (GroupMode.CROSS_PARTITION, "{}", [3, 3, 12, 12]),
    (GroupMode.CROSS_BOTH, "{{0},{1}}", [3, 3, 12, 12]), (GroupMode.CROSS_BOTH, "{{0,1}}", [15, 15, 15, 15]),
    (GroupMode.FLATTENED, "{{0,3},{1,2}}", [9, 6, 6, 9]),
]


@pytest.mark.parametrize(("mode", "groups", "sums"), SUMS_OF_MODES)
@pytest.mark.parametrize("opcode", ["all-reduce", "all-reduce-start"])
def test_modes_that_are_written(mode: GroupMode, groups: str, sums: list[int], opcode: str) -> None:
    """The mode that is written counts, whatever the channel says."""
    done = "" if opcode == "all-reduce" else "\n  ROOT d = f32[1] all-reduce-done(r)"
    text = (f"HloModule m\n{ADD}\nENTRY e {{\n  p = f32[1] parameter(0)\n  {'' if done else 'ROOT '}r = f32[1] {opcode}(p), "
            f"to_apply=add, replica_groups={groups}, mode={mode}{done}\n}}")
    computation = xla_torch.parse_hlo(text)
    values = [(np.array([float(1 << k)], "f"),) for k in range(4)]
    assert [r[0].item() for r in run_replicas(computation, values, num_replicas=2, num_partitions=2)] == sums
    assert f"mode={mode}" in computation.to_hlo_text()
    assert xla_torch.parse_hlo(computation.to_hlo_text()).to_hlo_text() == computation.to_hlo_text()


@pytest.mark.parametrize(("mode", "channel"), [
    (GroupMode.CROSS_REPLICA, ""), (GroupMode.CROSS_BOTH, ", channel_id=1"),
    (GroupMode.FLATTENED, ", channel_id=1, use_global_device_ids=true")])
def test_modes_of_scattered_reductions(mode: GroupMode, channel: str) -> None:
    """XLA reads a mode there and goes by the channel: one that says the same is taken, others are refused."""
    size = 4 if channel else 2
    groups = "{{0,1,2,3}}" if mode == GroupMode.FLATTENED else "{{0,1}}"

    def computation(mode: str) -> xla_torch.XlaComputation:
        return xla_torch.parse_hlo(
            f"HloModule m\n{ADD}\nENTRY e {{\n  p = f32[{size}] parameter(0)\n  ROOT r = f32[1] reduce-scatter(p), to_apply=add, "
            f"dimensions={{0}}, replica_groups={groups}{channel}{mode}\n}}")

    values = [(np.arange(size, dtype="f") + 10 * k,) for k in range(4)]
    results = [run_replicas(computation(mark), values, num_replicas=2, num_partitions=2) for mark in (f", mode={mode}", "")]
    assert results[0] == results[1]
    assert xla_torch.parse_hlo(computation(f", mode={mode}").to_hlo_text())
    for other in set(GroupMode) - {mode}:
        with pytest.raises(InvalidArgument, match="the mode is not what channel_id"):
            computation(f", mode={other}")


UNKNOWN_MODES = ["by_replica", "CROSS_REPLICA", "flattened-id", "{}", "1", "async"]


@pytest.mark.parametrize("mode", UNKNOWN_MODES)
@pytest.mark.parametrize("opcode", ["all-reduce", "all-reduce-start"])
def test_modes_that_do_not_exist(mode: str, opcode: str) -> None:
    """What is no mode is an error, and not the last one of the modes; XLA says so too."""
    text = (f"HloModule m\n{ADD}\nENTRY e {{\n  p = f32[2] parameter(0)\n  ROOT r = f32[2] {opcode}(p), to_apply=add, "
            f"replica_groups={{{{0}}}}, mode={mode}\n}}")
    with pytest.raises(HloSyntaxError, match="one of cross_replica cross_partition cross_replica_and_partition flattened_id"):
        xla_torch.parse_hlo(text)


@needs_xla
@pytest.mark.parametrize("mode", [*GroupMode, *UNKNOWN_MODES])
def test_xla_knows_the_same_modes(mode: str) -> None:
    text = (f"HloModule m\n{ADD}\nENTRY e {{\n  p = f32[2] parameter(0)\n  ROOT r = f32[2] all-reduce(p), to_apply=add, "
            f"replica_groups={{{{0}}}}, mode={mode}\n}}")
    assert (oracle.xla_accepts(text) is None) is (mode not in UNKNOWN_MODES)


def test_what_is_no_mode_forms_no_group() -> None:
    with pytest.raises(AssertionError, match="by_replica"):
        current_participant().group((), "by_replica")  # pyright: ignore[reportArgumentType]


def test_channels_of_moves_count_partitions() -> None:
    """With a channel, the ids of all-to-all, permute and broadcast are partitions."""
    assert run("f32[1] collective-permute(p), source_target_pairs={{0,1}}, channel_id=1", [[1], [2], [3], [4]], 2, 2) == [
        [0], [1], [0], [3]]
    assert run("f32[2] all-to-all(p), dimensions={0}, channel_id=1, replica_groups={{0,1}}",
               [[0, 1], [2, 3], [4, 5], [6, 7]], 2, 2) == [[0, 2], [1, 3], [4, 6], [5, 7]]


def in_place(operands: str, pairs: str, sizes: str, result: str = "f32[4,4]") -> xla_torch.XlaComputation:
    """A permutation of slices of f32[2,3] into f32[4,4]. Participant r reads from (0, r) and writes at (r, 0); second ones, read
    from (0, 0), are written at (r, 2)."""
    return xla_torch.parse_hlo(f"""HloModule m

ENTRY e {{
  p = f32[2,3] parameter(0)
  q = f32[4,4] parameter(1)
  zero = s32[] constant(0)
  two = s32[] constant(2)
  id = u32[] replica-id()
  r = s32[] convert(id)
  from = (s32[], s32[]) tuple(zero, r)
  to = (s32[], s32[]) tuple(r, zero)
  from2 = ((s32[], s32[]), (s32[], s32[])) tuple(from, (s32[], s32[]) tuple(zero, zero))
  to2 = ((s32[], s32[]), (s32[], s32[])) tuple(to, (s32[], s32[]) tuple(r, two))
  pp = (f32[2,3], f32[2,3]) tuple(p, p)
  qq = (f32[4,4], f32[4,4]) tuple(q, q)
  fromfrom = ((s32[], s32[]), (s32[], s32[])) tuple(from, from)
  toto = ((s32[], s32[]), (s32[], s32[])) tuple(to, to)
  ROOT out = {result} collective-permute({operands}), source_target_pairs={pairs}, slice_sizes={sizes}
}}""")


RING = {0: 2, 1: 0, 2: 1}
"""Who sends to whom is in the other direction: each target's source."""


def test_slices_are_permuted_in_place() -> None:
    """The source says where it reads, the target where it writes; both are moved so that the slice lies inside."""
    arguments = [(np.arange(6, dtype="f").reshape(2, 3) + 10 * r, np.full((4, 4), -1 - r, "f")) for r in range(3)]
    program = in_place("p, q, from, to", "{{0,1},{1,2},{2,0}}", "{{2,2}}")
    wanted = []
    for target, (_, output) in enumerate(arguments):
        column = min(RING[target], 1)
        want = output.copy()
        want[target:target + 2, :2] = arguments[RING[target]][0][:, column:column + 2]
        wanted.append(want)
    for got, want in zip(run_replicas(program, arguments, num_replicas=3), wanted, strict=True):
        assert got[0].tolist() == want.tolist()
    several = in_place("pp, qq, fromfrom, toto", "{{0,1},{1,2},{2,0}}", "{{2,2},{2,2}}", "(f32[4,4], f32[4,4])")
    for got, want in zip(run_replicas(several, arguments, num_replicas=3), wanted, strict=True):
        assert [g.tolist() for g in got] == [want.tolist()] * 2
    assert [r[0].tolist() for r in run_replicas(in_place("p, q, from, to", "{}", "{{2,2}}"), arguments, num_replicas=3)] == [
        a[1].tolist() for a in arguments]


def test_several_slices_between_the_same_participants() -> None:
    """The k-th pair with a source sends its k-th slice, the k-th with a target writes at its k-th place."""
    arguments = [(np.arange(6, dtype="f").reshape(2, 3) + 10 * r, np.full((4, 4), -1 - r, "f")) for r in range(2)]
    program = in_place("p, q, from2, to2", "{{0,1},{1,0},{0,0},{1,1}}", "{{1,2},{1,2}}")
    first, second = (r[0] for r in run_replicas(program, arguments, num_replicas=2))
    assert first[0].tolist() == [11, 12, 0, 1]
    assert second[1].tolist() == [0, 1, 10, 11]
    assert (first[1:] == -1).all()


def test_permuting_in_place_is_built() -> None:
    builder = xla_torch.XlaBuilder("p")
    x, y, i = (builder.parameter(k, Shape.parse(s)) for k, s in enumerate(("f32[3]", "f32[5]", "s32[]")))
    begun = ops.MultiCollectivePermute([x, y, (i,), (i * 2,)], [(0, 0)], inplace=True, slice_sizes=[[2]])
    program = builder.build(begun)
    text = program.to_hlo_text()
    assert oracle.xla_accepts(text) is None
    for again in (program, xla_torch.parse_hlo(text)):
        assert again(torch.arange(3.0), torch.full((5,), -1.0), torch.tensor(1, dtype=torch.int32)).tolist() == [-1, -1, 1, 2, -1]
    halves = xla_torch.parse_hlo("""HloModule m

ENTRY e {
  p = f32[3] parameter(0)
  q = f32[5] parameter(1)
  i = s32[] parameter(2)
  t = (s32[]) tuple(i)
  begun = (f32[3], f32[5], u32[], u32[]) collective-permute-start(p, q, t, t), source_target_pairs={{0,0}}, slice_sizes={{2}}
  ROOT done = f32[5] collective-permute-done(begun)
}""")
    assert halves(torch.arange(3.0), torch.full((5,), -1.0), torch.tensor(1, dtype=torch.int32)).tolist() == [-1, 1, 2, -1, -1]


def test_ids() -> None:
    both = ("HloModule m\nENTRY e {\n  a = u32[] replica-id()\n  b = u32[] partition-id()\n"
            "  ROOT r = (u32[], u32[]) tuple(a, b)\n}")
    results = run_replicas(xla_torch.parse_hlo(both), [()] * 6, num_replicas=2, num_partitions=3)
    assert [(int(a), int(b)) for a, b in results] == [(r, p) for r in range(2) for p in range(3)]


# --------------------------------------------------------------------------------------------- reducers


def reducer(opcode: str, element_type: str) -> str:
    return (f"f {{\n  a = {element_type}[] parameter(0)\n  b = {element_type}[] parameter(1)\n"
            f"  ROOT r = {element_type}[] {opcode}(a, b)\n}}")


REDUCERS = [
    ("add", "s32", [3, -4, 5], 4), ("multiply", "f32", [3, -4, 5], -60), ("maximum", "f32", [3, -4, 5], 5),
    ("minimum", "s32", [3, -4, 5], -4), ("maximum", "u32", [3, 2**32 - 1, 5], 2**32 - 1), ("minimum", "u16", [3, 65535, 5], 3),
    ("and", "s32", [7, 6, 14], 6), ("or", "pred", [False, True, False], True), ("add", "pred", [False, True, True], True),
    ("multiply", "pred", [True, True, False], False), ("xor", "u8", [1, 2, 4], 7), ("subtract", "f32", [10, 3, 4], 3),
    ("add", "u8", [200, 100, 1], 45), ("add", "s4", [7, 7, 7], 5),
]


@pytest.mark.parametrize(("opcode", "element_type", "values", "want"), REDUCERS)
def test_reducers(opcode: str, element_type: str, values: list, want: int) -> None:
    text = f"{element_type}[1] all-reduce(p), to_apply=f, replica_groups={{}}"
    got = run(text, [[v] for v in values], 3, regions=reducer(opcode, element_type), dtype=element_type)
    assert [int(v[0]) for v in got] == [want] * 3


def test_any_reducer() -> None:
    """A computation that torch has no function for is evaluated on whole arrays: a b / (a + b)."""
    parallel = ("f {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  m = f32[] multiply(a, b)\n"
                "  s = f32[] add(a, b)\n  ROOT r = f32[] divide(m, s)\n}")
    got = run("f32[2] all-reduce(p), to_apply=f, replica_groups={}", [[2, 4], [2, 4], [1, 2]], 3, regions=parallel)
    assert got == [[0.5, 1.0]] * 3


# --------------------------------------------------------------------------------------------- starts and dones

HALVES = """HloModule m
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
ENTRY e {
  p = f32[2] parameter(0)
  r0 = f32[2] all-reduce-start(p), to_apply=add, replica_groups={}
  r1 = f32[2] all-reduce-done(r0)
  g0 = (f32[2], f32[4]) all-gather-start(r1), dimensions={0}, replica_groups={}
  g1 = f32[4] all-gather-done(g0)
  c0 = (f32[4], f32[4], u32[], u32[]) collective-permute-start(g1), source_target_pairs={{0,1},{1,0}}
  ROOT c1 = f32[4] collective-permute-done(c0)
}"""


def test_halves_do_as_the_whole() -> None:
    results = run_replicas(xla_torch.parse_hlo(HALVES), [(torch.tensor([1.0, 2]),), (torch.tensor([3.0, 4]),)], num_replicas=2)
    assert [r.tolist() for r in results] == [[4, 6, 4, 6]] * 2


def test_alone_collectives_are_identities() -> None:
    builder = xla_torch.XlaBuilder("alone")
    x = builder.parameter(0, Shape.parse("f32[4]"))
    y = ops.CollectivePermute(ops.AllGather(ops.CrossReplicaSum(x), 0, 1), [(0, 0)])
    assert builder.build(ops.AllToAll(y, 0, 0, 1))(torch.arange(4.0)).tolist() == [0, 1, 2, 3]


# --------------------------------------------------------------------------------------------- running replicas


def test_results_and_arguments_stay_apart() -> None:
    """A program that writes to what it gave away does not change what others read."""
    text = """HloModule m
ENTRY e {
  p = f32[100000] parameter(0)
  x = f32[100000] add(p, p)
  g = f32[400000] all-gather(x), dimensions={0}, replica_groups={}
  n = f32[100000] negate(x)
  ROOT r = (f32[400000], f32[100000]) tuple(g, n)
}"""
    arguments = [(torch.full((100000,), float(k)),) for k in range(4)]
    for gathered, _ in run_replicas(xla_torch.parse_hlo(text), arguments, num_replicas=4):
        assert torch.equal(gathered, torch.arange(4.0).mul(2).repeat_interleave(100000))


def test_failures_end_the_others_at_once() -> None:
    gather = program("f32[4] all-gather(p), dimensions={0}, replica_groups={}", "f32[2]")
    with pytest.raises(InvalidArgument, match="wrong shape") as raised:
        run_replicas(gather, [(torch.zeros(2),), (torch.zeros(3),)], num_replicas=2)  # 0 would wait ten minutes for 1
    assert "raised by participant 1 of 2" in raised.value.__notes__


def test_errors_of_users_functions_say_who_raised_them() -> None:
    def fragile(x: torch.Tensor) -> torch.Tensor:
        if current_participant().number == 1:
            raise KeyError("gone astray")
        return x.clone()

    xla_torch.register_custom_call("tests.fragile", fragile)
    call = program('f32[2] custom-call(p), custom_call_target="tests.fragile"', "f32[2]")
    with pytest.raises(KeyError, match="gone astray") as raised:
        run_replicas(call, [(torch.zeros(2),)] * 3, num_replicas=3)
    assert raised.value.__notes__ == ["raised by participant 1 of 3"]


def test_waiting_for_one_who_does_not_come() -> None:
    uneven = program("f32[2] collective-broadcast(p), replica_groups={{0,1}}", "f32[2]")
    lonely = ThreadParticipant(Rendezvous(timeout=0.05), 0, 2, 1)
    with installed(lonely), pytest.raises(ExecutionError, match=r"\[1\] did not come within 0.05 seconds"):
        uneven(torch.zeros(2))


def test_autograd_is_refused_and_programs_of_gradients_run() -> None:
    """The gradient of every replica's sum of squares of the group's sum."""
    square = xla_torch.parse_hlo(f"""HloModule m
{ADD}
ENTRY e {{
  p = f32[1] parameter(0)
  s = f32[1] all-reduce(p), to_apply=add, replica_groups={{}}
  ROOT r = f32[1] multiply(s, s)
}}""")
    values = [(torch.tensor([1.0], requires_grad=True),), (torch.tensor([2.0]),)]
    with pytest.raises(DifferentiationError, match="does not support autograd"):
        run_replicas(square, values, num_replicas=2)
    with torch.no_grad():
        assert [r.item() for r in run_replicas(square, values, num_replicas=2)] == [9, 9]
        both = run_replicas(xla_torch.value_and_grad(square), values, num_replicas=2)
    assert [gradient.item() for _, gradient in both] == [12, 12]


RUN_REFUSALS = [
    ("f32[4] all-gather(p), dimensions={0}, replica_groups={{0,1}}", 1, "names replica 1, and there are 1"),
    ("f32[4] all-gather(p), dimensions={0}, replica_groups={}", 1, "does not fit the number of participants"),
    ("f32[2] all-reduce(p), to_apply=add, replica_groups={{0}}", 2, "is in no replica group"),
    ("f32[2] all-to-all(p), dimensions={0}, replica_groups={}", 3, "no multiple of the group's size"),
    ("f32[2] collective-permute(p), source_target_pairs={{0,5}}", 2, "a participant that does not exist"),
]


@pytest.mark.parametrize(("instruction", "replicas", "what"), RUN_REFUSALS)
def test_what_is_refused_at_run_time(instruction: str, replicas: int, what: str) -> None:
    with pytest.raises(ExecutionError, match=what):
        run_replicas(program(instruction, "f32[2]"), [(torch.zeros(2),)] * replicas, num_replicas=replicas)


# --------------------------------------------------------------------------------------------- real XLA

ON_XLA = """
import sys
import numpy as np
import xla_torch
from support.many_devices import run_on_devices

ADD = "add { a = f32[] parameter(0)\\n b = f32[] parameter(1)\\n ROOT r = f32[] add(a, b) }"
rows = [row.split(" | ") for row in sys.argv[1].split("\\n")]
for replicas, partitions, shape, instruction in rows:
    replicas, partitions, dims = int(replicas), int(partitions), xla_torch.Shape.parse(shape).dimensions
    header = f"HloModule m, replica_count={replicas}, num_partitions={partitions}"
    text = f"{header}\\n{ADD}\\nENTRY e {{ p = {shape} parameter(0)\\n ROOT r = {instruction} }}"
    values = [(np.arange(np.prod(dims), dtype="f").reshape(dims) + 100 * k,) for k in range(replicas * partitions)]
    want = run_on_devices(text, values, replicas, partitions)
    got = xla_torch.run_replicas(xla_torch.parse_hlo(text), values, num_replicas=replicas, num_partitions=partitions)
    assert all(np.array_equal(g[0], w[0]) for g, w in zip(got, want, strict=True)), (instruction, got, want)
print("agreed", len(rows))
"""

XLA_ROWS = [
    "2 | 2 | f32[2] | f32[8] all-gather(p), dimensions={0}, replica_groups={{0,1}}, channel_id=1",
    "2 | 2 | f32[2] | f32[4] all-gather(p), dimensions={0}, replica_groups={{0,1}}",
    "2 | 2 | f32[1] | f32[2] all-gather(p), dimensions={0}, replica_groups={{0,3},{1,2}}, channel_id=1, "
    "use_global_device_ids=true",
    "2 | 2 | f32[4] | f32[4] all-reduce(p), to_apply=add, replica_groups={}, channel_id=1",
    "2 | 2 | f32[8] | f32[2] reduce-scatter(p), to_apply=add, dimensions={0}, replica_groups={{1,0}}, channel_id=1",
    "4 | 1 | f32[8] | f32[4] reduce-scatter(p), to_apply=add, dimensions={0}, replica_groups={{1,0},{2,3}}",
    "2 | 2 | f32[4] | f32[4] all-to-all(p), dimensions={0}, replica_groups={{1,0}}, channel_id=1",
    "4 | 1 | f32[4,2] | f32[4,2] all-to-all(p), dimensions={1}, replica_groups={{0,3},{1,2}}",
    "4 | 1 | f32[4] | f32[4] collective-permute(p), source_target_pairs={{0,1},{1,2}}",
    "2 | 2 | f32[4] | f32[4] collective-permute(p), source_target_pairs={{0,1}}, channel_id=1",
]


@pytest.mark.slow
@needs_xla
def test_participants_against_real_xla() -> None:
    found = output_of(ON_XLA, "\n".join(XLA_ROWS))
    assert f"agreed {len(XLA_ROWS)}" in found, found
