"""Programs on processes joined by torch.distributed: the same results as with threads and as with NumPy."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

import xla_torch
from support.agreement import element_type_of
from support.collective_programs import INNER, ROWS
from support.distributed_programs import (
    ADD,
    HALF_SUM,
    LARGE,
    host_several,
    on_processes,
    reducer,
    run_here,
    same_as_threads,
    text_of,
)
from support.distributed_workers import Workers
from xla_torch import Shape, ops, run_replicas
from xla_torch.distributed import of_process_group, run_on_processes
from xla_torch.distributed.control_plane import ControlPlane
from xla_torch.distributed.exchange import NOWHERE
from xla_torch.distributed.exchanges import AllReduce
from xla_torch.distributed.reductions import Reduction
from xla_torch.errors import InvalidArgument

# ------------------------------------------------------------------------------------------- every collective

@pytest.mark.parametrize("n", [8, LARGE], ids=["in the message", "by process group"])
@pytest.mark.parametrize("name", ROWS)
def test_collectives(four: Workers, name: str, n: int) -> None:
    """Values are small whole numbers, so that sums are exact in any order."""
    instruction, region, formula = ROWS[name]
    values = [np.random.default_rng(k).integers(-8, 8, n).astype("f") for k in range(4)]
    text = text_of(instruction.format(n=n, n2=2 * n, n4=4 * n, h=n // 2, q=n // 4), f"f32[{n}]", region)
    results = [r[0] for r in on_processes(four, text, [(v,) for v in values])]
    by_threads = [r[0] for r in run_replicas(xla_torch.parse_hlo(text), [(v,) for v in values], num_replicas=4)]
    for got, here, want in zip(results, by_threads, formula(values), strict=True):
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(here, want)


@pytest.mark.parametrize("m", [4, 1000])
@pytest.mark.parametrize("instruction", INNER)
def test_inner_dimensions_and_tuples(four: Workers, instruction: str, m: int) -> None:
    values = [np.random.default_rng(k).integers(-8, 8, (2, m, 3)).astype("f") for k in range(4)]
    same_as_threads(four, text_of(instruction.format(m=m, q=m // 4), f"f32[2,{m},3]"), [(v,) for v in values])


MODES = [
    "f32[4] all-gather(p), dimensions={0}, replica_groups={{0,1}}",
    "f32[8] all-gather(p), dimensions={0}, replica_groups={{1,0}}, channel_id=1",
    "f32[4] all-gather(p), dimensions={0}, replica_groups={{0,3},{2,1}}, channel_id=1, use_global_device_ids=true",
    "f32[2] all-to-all(p), dimensions={0}, replica_groups={{1,0}}, channel_id=1",
    "f32[2] collective-permute(p), source_target_pairs={{0,1}}, channel_id=1",
    "f32[2] all-reduce(p), to_apply=f, replica_groups={{0},{1}}, channel_id=1",
]


@pytest.mark.parametrize("instruction", MODES)
def test_modes_of_groups(four: Workers, instruction: str) -> None:
    same_as_threads(four, text_of(instruction, "f32[2]"), [(np.array([k, 10 * k], "f"),) for k in range(4)], 2)


def test_ids(four: Workers) -> None:
    text = ("HloModule m\nENTRY e {\n  a = u32[] replica-id()\n  b = u32[] partition-id()\n"
            "  ROOT r = (u32[], u32[]) tuple(a, b)\n}")
    results = on_processes(four, text, [()] * 4, num_partitions=2, device_assignment=[[2, 0], [3, 1]])
    assert [tuple(map(int, r)) for r in results] == [(0, 1), (1, 1), (0, 0), (1, 0)]


@pytest.mark.parametrize("updates", [1, 2])
@pytest.mark.parametrize("width", [1, 600])
def test_ragged_all_to_all(four: Workers, updates: int, width: int) -> None:
    """Member i sends `size` rows to each member, in one update or in two of half the size."""
    rng = np.random.default_rng(3)
    sizes = rng.integers(0, 3, (4, 4)) * updates
    starts = np.cumsum(sizes, 1) - sizes
    places = np.cumsum(sizes, 0) - sizes
    rows = int(max(sizes.sum(0).max(), sizes.sum(1).max()))
    half = sizes // updates

    def plan(first: np.ndarray, step: np.ndarray) -> np.ndarray:
        several = np.stack([first + u * step for u in range(updates)], -1)
        return np.ascontiguousarray(several[..., 0] if updates == 1 else several).astype("i4")

    zero = np.zeros_like(half)
    arguments = [(rng.standard_normal((rows, width)).astype("f"), np.zeros((rows, width), "f"), plan(starts[r], half[r]),
                  plan(half[r], zero[r]), plan(places[r], half[r]), plan(half[:, r], zero[r])) for r in range(4)]
    builder = xla_torch.XlaBuilder("ragged")
    shapes = [Shape.array(element_type_of(a), a.shape) for a in arguments[0]]
    x, y, *plans = (builder.parameter(k, s) for k, s in enumerate(shapes))
    text = builder.build(ops.RaggedAllToAll(x, plans[0], plans[1], y, plans[2], plans[3])).to_hlo_text()
    got = on_processes(four, text, arguments)
    for r in range(4):
        want = np.concatenate([arguments[s][0][starts[s, r]:starts[s, r] + sizes[s, r]] for s in range(4)])
        np.testing.assert_array_equal(got[r][0][:len(want)], want)
        assert not got[r][0][len(want):].any()


def given_to_gloo(text: str, arguments: tuple[np.ndarray, ...]) -> tuple[list[np.ndarray], int]:
    """In a process: the results, and how many bytes it gave to others in process groups."""
    given = 0
    gloo: Any = dist.ProcessGroupGloo
    swap = gloo.alltoall_base

    def counted(group: Any, received: torch.Tensor, sent: torch.Tensor, takes: list[int], gives: list[int]) -> Any:
        nonlocal given
        shares = gives or [sent.nbytes // group.size()] * group.size()
        given += sum(shares) - shares[group.rank()]
        return swap(group, received, sent, takes, gives)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(gloo, "alltoall_base", counted)
        return run_here(text, arguments, {}), given


RAGGED = """HloModule m
ENTRY e {{
  p = f32[8,{n}] parameter(0)
  q = f32[40,{n}] parameter(1)
  a = s32[4,2] parameter(2)
  b = s32[4,2] parameter(3)
  c = s32[4,2] parameter(4)
  d = s32[4,2] parameter(5)
  ROOT r = f32[40,{n}] ragged-all-to-all(p, q, a, b, c, d), replica_groups={{}}
}}"""


@pytest.mark.parametrize("rows", [1, 0])
def test_ragged_pieces_travel_alone(four: Workers, rows: int) -> None:
    """Two rows of each participant go to each other one: not all eight. What lies outside is as with threads."""
    n = LARGE
    starts = np.array([[0, 5], [1, 1], [3, 7], [6, 6]], "i4")
    sizes = np.array([[rows, rows]] * 4, "i4")
    arguments = [(np.random.default_rng(k).standard_normal((8, n)).astype("f"), np.zeros((40, n), "f"), starts + (k == 2),
                  sizes, np.array([[5 * k, 5 * k + 1]] * 4, "i4") * (3 if k == 3 else 1), sizes) for k in range(4)]
    text = RAGGED.format(n=n)
    want = run_replicas(xla_torch.parse_hlo(text), arguments, num_replicas=4)
    for (got, given), expected in zip(four.call(given_to_gloo, [(text, a) for a in arguments]), want, strict=True):
        assert got[0].tobytes() == expected[0].tobytes()
        assert given <= 3 * (2 * rows * n * 4 + 3 * sizes.nbytes)


IN_PLACE = """HloModule m
ENTRY e {{
  p = f32[4,{n}] parameter(0)
  q = f32[6,{n}] parameter(1)
  i = s32[] parameter(2)
  zero = s32[] constant(0)
  from = ((s32[], s32[]), (s32[], s32[])) tuple((s32[], s32[]) tuple(i, zero), (s32[], s32[]) tuple(zero, zero))
  to = ((s32[], s32[]), (s32[], s32[])) tuple((s32[], s32[]) tuple(zero, zero), (s32[], s32[]) tuple(i, zero))
  ROOT r = f32[6,{n}] collective-permute(p, q, from, to), source_target_pairs={{{{0,1}},{{0,3}},{{2,1}},{{3,3}}}},
    slice_sizes={{{{1,{n}}},{{1,{n}}}}}
}}"""


def test_slices_travel_alone(four: Workers) -> None:
    n = LARGE
    arguments = [(np.random.default_rng(k).standard_normal((4, n)).astype("f"), np.full((6, n), k, "f"), np.int32(k))
                 for k in range(4)]
    text = IN_PLACE.format(n=n)
    want = run_replicas(xla_torch.parse_hlo(text), arguments, num_replicas=4)
    found = four.call(given_to_gloo, [(text, a) for a in arguments])
    for (got, _), expected in zip(found, want, strict=True):
        assert got[0].tobytes() == expected[0].tobytes()
    assert [given for _, given in found] == [2 * 4 * n, 0, 4 * n, 0]


HALVES = """HloModule m
{add}
ENTRY e {{
  p = f32[{n}] parameter(0)
  r0 = f32[{n}] all-reduce-start(p), to_apply=f, replica_groups={{}}
  g0 = (f32[{n}], f32[{n4}]) all-gather-start(p), dimensions={{0}}, replica_groups={{}}
  c0 = (f32[{n}], f32[{n}], u32[], u32[]) collective-permute-start(p), source_target_pairs={{{{0,1}},{{1,0}}}}
  a0 = ((f32[{n}]), f32[{n}]) all-to-all-start(p), dimensions={{0}}, replica_groups={{}}
  square = f32[{n}] multiply(p, p)
  twice = f32[{n}] add(square, square)
  a1 = f32[{n}] all-to-all-done(a0)
  c1 = f32[{n}] collective-permute-done(c0)
  r1 = f32[{n}] all-reduce-done(r0)
  g1 = f32[{n4}] all-gather-done(g0)
  ROOT all = (f32[{n}], f32[{n}], f32[{n}], f32[{n4}], f32[{n}]) tuple(twice, a1, c1, g1, r1)
}}"""


@pytest.mark.parametrize("n", [8, LARGE])
def test_starts_and_dones(four: Workers, n: int) -> None:
    values = [np.random.default_rng(k).integers(-8, 8, n).astype("f") for k in range(4)]
    text = HALVES.format(add=ADD, n=n, n4=4 * n)
    code = xla_torch.parse_hlo(text).python_code()
    assert code.count("collective.begin_") == 4
    assert code.index("collective.begin_all_to_all(") < code.index("p * p") < code.index("collective.wait(")
    same_as_threads(four, text, [(v,) for v in values])


def through_the_cpu(text: str, arguments: tuple[np.ndarray, ...], patch: str) -> list[np.ndarray]:
    """As for a device that the backend does not carry from: the exchange of the program's tensors, then of their copies."""
    from xla_torch.distributed.process_groups import ProcessGroups

    answers = iter([False, True])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ProcessGroups, patch, lambda self, device: next(answers))
        return run_here(text, arguments, {})


@pytest.mark.parametrize("n", [8, LARGE])
def test_tensors_that_travel_through_the_cpu(four: Workers, n: int) -> None:
    text = text_of(f"f32[{n}] all-reduce(p), to_apply=f, replica_groups={{}}", f"f32[{n}]", HALF_SUM)
    values = [(np.random.default_rng(k).integers(-8, 8, n).astype("f"),) for k in range(4)]
    want = run_replicas(xla_torch.parse_hlo(text), values, num_replicas=4)
    got = four.call(through_the_cpu, [(text, v, "carries") for v in values])
    assert all(np.array_equal(g[0], w[0]) for g, w in zip(got, want, strict=True))


def begins(last: bool) -> float:
    """An exchange's result. The last one begins it after all others have begun it and say so in the store."""
    store = dist.distributed_c10d._get_default_store()
    with of_process_group() as processes:
        me = processes.participants[0]
        me.perform(AllReduce(NOWHERE, (0, 1, 2, 3), (torch.ones(1),), Reduction.ADD))
        if last:
            store.wait(["begun 0", "begun 1", "begun 2"])
        future = me.begin(AllReduce(NOWHERE, (0, 1, 2, 3), (torch.ones(LARGE),), Reduction.ADD))
        store.set(f"begun {dist.get_rank()}", "")
        return float(future.result().sum())


def test_beginning_does_not_wait(four: Workers) -> None:
    assert four.call(begins, [(False,), (False,), (False,), (True,)]) == [4.0 * LARGE] * 4


# ------------------------------------------------------------------------------------------- every element type

TYPES = ["pred", "s2", "s4", "s8", "s16", "s32", "s64", "u2", "u4", "u8", "u16", "u32", "u64", "f16", "bf16", "f32",
         "f64", "f8e5m2", "f8e4m3fn", "f8e4m3b11fnuz", "f8e8m0fnu", "f4e2m1fn", "c64", "c128"]


def drawn(element_type: str, n: int, seed: int) -> np.ndarray:
    """Bits at random for all but floats, which get small whole numbers, so that sums are exact in any order."""
    rng = np.random.default_rng(seed)
    known = Shape.parse(f"{element_type}[]").element_type
    if known.is_floating or known.is_complex:
        values = rng.integers(0, 3, n)
        return (values + 1j * rng.integers(0, 3, n) if known.is_complex else values).astype(known.numpy)
    if known.is_pred:
        return rng.integers(0, 2, n).astype(bool)
    low = -(1 << known.bits - 1) if known.is_signed else 0
    return rng.integers(low, low + (1 << known.bits), n, dtype="u8" if known.bits == 64 and not low else "i8").astype(known.numpy)


@pytest.mark.parametrize("element_type", TYPES)
def test_element_types(four: Workers, element_type: str) -> None:
    """Movement of all, sums of all, and the other reducers of what has them, large enough for process groups."""
    n = 4 * LARGE
    known = Shape.parse(f"{element_type}[]").element_type
    opcodes = ["add", "multiply"]
    opcodes += [] if known.is_complex else ["maximum", "minimum"]
    opcodes += [] if known.is_floating or known.is_complex else ["and", "or", "xor"]
    regions = "\n".join(reducer(o, element_type).replace("f {", f"f_{o} {{", 1) for o in opcodes)
    t = f"{element_type}[{n}]"
    lines = [f"  v{k} = {t} all-reduce(p), to_apply=f_{o}, replica_groups={{}}" for k, o in enumerate(opcodes)]
    lines += [f"  g = {element_type}[{4 * n}] all-gather(p), dimensions={{0}}, replica_groups={{}}",
              f"  a = {t} all-to-all(p), dimensions={{0}}, replica_groups={{}}",
              f"  c = {t} collective-permute(p), source_target_pairs={{{{0,1}},{{2,3}}}}",
              f"  s = {element_type}[{n // 4}] reduce-scatter(p), to_apply=f_add, dimensions={{0}}, replica_groups={{}}"]
    results = ", ".join([f"v{k}" for k in range(len(opcodes))] + list("gacs"))
    kinds = ", ".join([t] * len(opcodes) + [f"{element_type}[{4 * n}]", t, t, f"{element_type}[{n // 4}]"])
    text = f"HloModule m\n{regions}\nENTRY e {{\n  p = {t} parameter(0)\n" + "\n".join(lines) + (
        f"\n  ROOT all = ({kinds}) tuple({results})\n}}")
    same_as_threads(four, text, [(drawn(element_type, n, k),) for k in range(4)])


MOVES = [
    # what each participant gives to others, in elements of its operand
    ("{t}[{n4}] all-gather(p), dimensions={{0}}, replica_groups={{}}", [3, 3, 3, 3]),
    ("{t}[{n}] all-to-all(p), dimensions={{0}}, replica_groups={{}}", [0.75] * 4),
    ("({t}[{n}], {t}[{n}], {t}[{n}], {t}[{n}]) all-to-all(p, p, p, p), replica_groups={{}}", [3, 3, 3, 3]),
    ("{t}[{n}] collective-permute(p), source_target_pairs={{{{0,1}},{{2,3}}}}", [1, 0, 1, 0]),
]


@pytest.mark.parametrize("element_type", ["f8e5m2", "f8e4m3b11fnuz", "f8e8m0fnu", "f4e2m1fn"])
@pytest.mark.parametrize(("instruction", "given"), MOVES)
def test_narrow_floats_travel_as_bytes(four: Workers, instruction: str, given: list[float], element_type: str) -> None:
    """All codes of the type, NaN among them; as with threads."""
    known, n = Shape.parse(f"{element_type}[]").element_type, 4 * LARGE
    values = [((np.arange(n) * (k + 1)) % (1 << known.bits)).astype("u1").view(np.dtype(known.numpy)) for k in range(4)]
    text = text_of(instruction.format(t=element_type, n=n, n4=4 * n), f"{element_type}[{n}]", "")
    want = run_replicas(xla_torch.parse_hlo(text), [(v,) for v in values], num_replicas=4)
    found = four.call(given_to_gloo, [(text, (v,)) for v in values])
    for (got, _), expected in zip(found, want, strict=True):
        assert [g.tobytes() for g in got] == [e.tobytes() for e in expected]
    wide = 4 if element_type == "f8e8m0fnu" and "permute" in instruction else 1  # it has no zero for those who get nothing
    assert [sent for _, sent in found] == [wide * share * n for share in given]


@pytest.mark.parametrize("element_type", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("opcode", ["maximum", "minimum"])
def test_extremes_of_odd_numbers(four: Workers, element_type: str, opcode: str) -> None:
    """A NaN wins, whoever has it, and infinities are in order."""
    odd = np.array([0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, -np.nan, 3.0])
    dtype = Shape.parse(f"{element_type}[]").element_type.numpy
    values = [np.tile(np.roll(odd, k), LARGE).astype(dtype) for k in (0, 1, 3, 5)]
    text = text_of(f"{element_type}[{8 * LARGE}] all-reduce(p), to_apply=f, replica_groups={{}}", f"{element_type}[{8 * LARGE}]",
                   reducer(opcode, element_type))
    want = getattr(np, opcode).reduce([v.astype("f8") for v in values])
    for result in on_processes(four, text, [(v,) for v in values]):
        np.testing.assert_array_equal(result[0].astype("f8"), want)


# ------------------------------------------------------------------------------------------- messages

MESSAGES = """HloModule m
ENTRY e {{
  p = u16[{n}] parameter(0)
  start = token[] after-all()
  s = (u16[{n}], u32[], token[]) send(p, start), channel_id=7, frontend_attributes={{{pairs}}}
  sent = token[] send-done(s), channel_id=7, frontend_attributes={{{pairs}}}
  r = (u16[{n}], u32[], token[]) recv(start), channel_id=7, frontend_attributes={{{pairs}}}
  received = (u16[{n}], token[]) recv-done(r), channel_id=7, frontend_attributes={{{pairs}}}
  ROOT data = u16[{n}] get-tuple-element(received), index=0
}}"""


@pytest.mark.parametrize("n", [4, 1 << 16])
def test_send_and_recv(four: Workers, n: int) -> None:
    text = MESSAGES.format(n=n, pairs='_xla_send_recv_source_target_pairs="{{0,1},{1,2},{2,0}}"')
    values = [np.arange(n).astype("u2") + 60000 + k for k in range(4)]
    results = [r[0] for r in on_processes(four, text, [(v,) for v in values])]
    for got, want in zip(results, (values[2], values[0], values[1], values[0] * 0), strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_channel_between_nobody_is_refused(four: Workers) -> None:
    four.start(run_here, [(MESSAGES.format(n=4, pairs='a="b"'), (np.zeros(4, "u2"),), {})] * 4)
    assert all("no source-target pairs" in outcome[2] for outcome in four.outcomes())


# ------------------------------------------------------------------------------------------- several in one process


ASSIGNMENTS = [[0, 0, 1, 1, 2, 2, 3, 3], [3, 2, 1, 0, 0, 1, 2, 3], [0, 0, 0, 0, 0, 1, 2, 3]]


@pytest.mark.parametrize("assignment", ASSIGNMENTS)
@pytest.mark.parametrize("n", [8, LARGE])
@pytest.mark.parametrize("instruction", [
    "f32[{n}] all-reduce(p), to_apply=f, replica_groups={{}}",
    "f32[{n2}] all-gather(p), dimensions={{0}}, replica_groups={{{{0,4}},{{5,1}},{{2,3}},{{7,6}}}}",
    "f32[{n}] all-to-all(p), dimensions={{0}}, replica_groups={{{{0,2,4,6}},{{1,3,5,7}}}}",
    "f32[{n}] collective-permute(p), source_target_pairs={{{{0,7}},{{7,1}},{{1,0}}}}",
])
def test_threads_within_processes(four: Workers, instruction: str, n: int, assignment: list[int]) -> None:
    values = [(np.random.default_rng(k).integers(-8, 8, n).astype("f"),) for k in range(8)]
    text = text_of(instruction.format(n=n, n2=2 * n), f"f32[{n}]")
    want = run_replicas(xla_torch.parse_hlo(text), values, num_replicas=8)
    for numbers, results in four.call(host_several, [(text, values, {"device_assignment": assignment, "timeout": 20.0})] * 4):
        assert numbers == tuple(k for k in range(8) if assignment[k] == assignment[numbers[0]])
        for number, result in zip(numbers, results, strict=True):
            np.testing.assert_array_equal(result[0], want[number][0])


def on_a_mesh(text: str, value: np.ndarray) -> tuple[int, np.ndarray]:
    from torch.distributed.device_mesh import DeviceMesh

    with of_process_group(DeviceMesh("cpu", [[3, 1], [0, 2]])) as processes:
        assert (processes.num_replicas, processes.num_partitions) == (2, 2)
        return processes.numbers[0], processes.run(xla_torch.parse_hlo(text), [(value,)])[0][0]


def test_a_device_mesh_assigns(four: Workers) -> None:
    text = text_of("f32[2] all-gather(p), dimensions={0}, replica_groups={{0,1}}", "f32[1]")
    results = four.call(on_a_mesh, [(text, np.array([r], "f")) for r in range(4)])
    assert [(n, r.tolist()) for n, r in results] == [(2, [3, 0]), (1, [1, 2]), (3, [1, 2]), (0, [3, 0])]


def in_a_part(text: str, value: np.ndarray) -> Any:
    group = dist.new_group([1, 3])
    if dist.get_rank() not in (1, 3):
        return None
    return run_on_processes(xla_torch.parse_hlo(text), [(value,)], group=group)[0][0].tolist()


def test_a_part_of_all_processes(four: Workers) -> None:
    text = text_of("f32[1] all-reduce(p), to_apply=f, replica_groups={}", "f32[1]")
    assert four.call(in_a_part, [(text, np.array([r], "f")) for r in range(4)]) == [None, [4], None, [4]]


# ------------------------------------------------------------------------------------------- what does not fit


def program_for(text: str, options: dict[str, Any]) -> None:
    run_on_processes(xla_torch.parse_hlo(text), [(np.zeros(2, "f"),)], **options)


def test_numbers_that_do_not_fit_are_named(four: Workers) -> None:
    text = text_of("f32[2] all-reduce(p), to_apply=f, replica_groups={}", "f32[2]", header=", replica_count=2")
    four.start(program_for, [(text, {})] * 4)
    for _, kind, message in four.outcomes():
        assert kind == "InvalidArgument"
        assert "4 replicas x 1 partitions on 4 processes" in message
        assert "2 replicas x 1 partitions, 2 participants" in message
    three = text_of("f32[2] negate(p)", "f32[2]", header=", num_partitions=3")
    four.start(program_for, [(three, {})] * 4)
    assert all("4 processes" in o[2] and "3 partitions" in o[2] for o in four.outcomes())


def program_for_while_others_connect(text: str) -> None:
    send = ControlPlane._send

    def late(plane: ControlPlane, rank: int, kind: int, body: bytes) -> None:
        if plane.rank == 3 and rank > 0 and b"connected" in body:
            time.sleep(0.2)
        send(plane, rank, kind, body)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ControlPlane, "_send", late)
        program_for(text, {})


def test_a_failure_while_others_still_connect(four: Workers) -> None:
    # Process 0 is connected first, refuses the program and tells so before process 1 hears that process 3 is there.
    text = text_of("f32[2] negate(p)", "f32[2]", header=", replica_count=2")
    four.start(program_for_while_others_connect, [(text,)] * 4)
    assert {kind for _, kind, _ in four.outcomes()} == {"InvalidArgument"}


def test_without_a_process_group() -> None:
    with pytest.raises(InvalidArgument, match="there is no process group"), of_process_group():
        pass
