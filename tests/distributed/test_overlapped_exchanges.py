"""Exchanges that are joined, begun early and awaited late: the same bits as one after another, in one order for all participants;
and the trace that says who waited for whom."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.fx import GraphModule, Node

import xla_torch
from support.distributed_programs import same_as_threads
from support.distributed_workers import Workers
from support.mesh_rows import ROWS
from support.oracle import needs_xla
from xla_torch import debug, partition, run_replicas, shard_arguments
from xla_torch.api.custom_calls import unregister_custom_call
from xla_torch.core import tuning
from xla_torch.core.errors import ExecutionError
from xla_torch.distributed import of_process_group
from xla_torch.kernels import collective
from xla_torch.passes import overlap

ALL = "replica_groups={{0,1,2,3}}, use_global_device_ids=true, channel_id=1"
PAIRS = "replica_groups={{0,1},{2,3}}, use_global_device_ids=true, channel_id=1"
HEAD = """HloModule m, num_partitions=4
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
most { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] maximum(a, b) }
odd { a = f32[] parameter(0) b = f32[] parameter(1) d = f32[] multiply(a, b) s = f32[] add(a, b) ROOT c = f32[] add(s, d) }
body { p = (s32[], f32[4,8]) parameter(0) k = s32[] get-tuple-element(p), index=0 y = f32[4,8] get-tuple-element(p), index=1
  one = s32[] constant(1) n = s32[] add(k, one) INSIDE ROOT r = (s32[], f32[4,8]) tuple(n, z) }
until { p = (s32[], f32[4,8]) parameter(0) k = s32[] get-tuple-element(p), index=0 three = s32[] constant(3)
  ROOT r = pred[] compare(k, three), direction=LT }
ENTRY e {
  x = f32[8,4] parameter(0)
  y = f32[4,8] parameter(1)
"""


def text(*lines: str, inside: str = "z = f32[4,8] sine(y)") -> str:
    """A program of x and y, whose root is a tuple of what has no `%` behind its name."""
    body = "\n".join(f"  {line}" for line in lines)
    return f"{HEAD.replace('INSIDE', inside)}{body}\n}}"


SEVERAL = text(f"s = (f32[8,4], f32[4,8]) all-reduce(x, y), {PAIRS}, to_apply=add",
               "sx = f32[8,4] get-tuple-element(s), index=0", "sy = f32[4,8] get-tuple-element(s), index=1",
               "ROOT r = (f32[8,4], f32[4,8]) tuple(sx, sy)")
GATHERS = text("t = f32[8,4] tanh(x)", f"g = f32[8,16] all-gather(x), dimensions={{1}}, {ALL}",
               f"h = f32[16,8] all-gather(y), dimensions={{0}}, {ALL}", "u = f32[8,8] dot(t, y), lhs_contracting_dims={1}, "
               "rhs_contracting_dims={0}", "gh = f32[8,8] dot(g, h), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
               "ROOT r = (f32[8,8], f32[8,8]) tuple(u, gh)")
SCATTERS = text("d = f32[8,8] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
                f"a = f32[2,8] reduce-scatter(d), dimensions={{0}}, {ALL}, to_apply=add", "e = f32[8,8] exponential(d)",
                f"b = f32[8,2] reduce-scatter(e), dimensions={{1}}, {ALL}, to_apply=add",
                f"c = f32[4,2] reduce-scatter(y), dimensions={{1}}, {ALL}, to_apply=most",
                "ROOT r = (f32[2,8], f32[8,2], f32[4,2]) tuple(a, b, c)")
SLICES = text(*(f"{n} = f32[{s}] all-gather({v}), dimensions={{{d}}}, {ALL}" for n, s, v, d in (("g", "8,16", "x", 1),
                                                                                                   ("h", "16,8", "y", 0))),
              "a = f32[8,3] slice(g), slice={[0:8],[0:3]}", "b = f32[2,8] slice(h), slice={[0:2],[0:8]}",
              "ROOT r = (f32[8,3], f32[2,8]) tuple(a, b)")
IN_TURN = text(f"a = f32[8,4] all-reduce(x), {ALL}, to_apply=add", "t = f32[8,4] sine(a)",
               f"b = f32[8,4] all-reduce(t), {ALL}, to_apply=add", "ROOT r = (f32[8,4], f32[8,4]) tuple(a, b)")
TWO_AXES = text(*(f"{n} = f32[{s}] all-reduce({v}), {PAIRS}, to_apply=add" for n, s, v in (("a", "8,4", "x"), ("b", "4,8", "y"))),
                *(f"{n} = f32[{s}] all-reduce({v}), {PAIRS.replace('{0,1},{2,3}', '{0,2},{1,3}')}, to_apply=add"
                  for n, s, v in (("c", "8,4", "a"), ("d", "4,8", "b"))), "ROOT r = (f32[8,4], f32[4,8]) tuple(c, d)")
REGION = text(*(f"{n} = f32[{s}] all-reduce({v}), {ALL}, to_apply=odd" for n, s, v in (("a", "8,4", "x"), ("b", "4,8", "y"))),
              "ROOT r = (f32[8,4], f32[4,8]) tuple(a, b)")
KINDS = text(f"a = f32[8,4] all-reduce(x), {ALL}, to_apply=add", f"b = f32[8,4] all-reduce(x), {ALL}, to_apply=most",
             f"c = f32[8,4] all-reduce(x), {PAIRS}, to_apply=add", f"d = f32[4,8] all-reduce(y), {ALL}, to_apply=add",
             "ROOT r = (f32[8,4], f32[8,4], f32[8,4], f32[4,8]) tuple(a, b, c, d)")
LATE = text("t = f32[8,4] tanh(x)", "w = f32[8,4] cosine(t)", f"g = f32[16,8] all-gather(y), dimensions={{0}}, {ALL}",
            "gw = f32[8,8] dot(w, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
            "o = f32[16,8] sine(g)", "ROOT r = (f32[8,8], f32[16,8]) tuple(gw, o)")
PRODUCTS = text("t = f32[8,8] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}", "s = f32[8,4] sine(x)",
                f"a = f32[8,4] all-reduce(s), {ALL}, to_apply=add", "u = f32[8,4] cosine(a)",
                "ROOT r = (f32[8,8], f32[8,4]) tuple(t, u)")
LOOP = text("zero = s32[] constant(0)", "i = (s32[], f32[4,8]) tuple(zero, y)",
            "l = (s32[], f32[4,8]) while(i), condition=until, body=body", "z = f32[4,8] get-tuple-element(l), index=1",
            f"a = f32[8,4] all-reduce(x), {ALL}, to_apply=add", "b = f32[8,4] sine(a)",
            "ROOT r = (f32[4,8], f32[8,4]) tuple(z, b)")
EXCHANGING_LOOP = text(*LOOP.split("parameter(1)\n")[1].rstrip("}\n").splitlines(),
                       inside=f"q = f32[4,8] all-reduce(y), {ALL}, to_apply=add z = f32[4,8] sine(q)")
PROGRAMS: dict[str, tuple[str, int, int]] = {
    "several operands": (SEVERAL, 2, 1), "gathers": (GATHERS, 2, 1), "scatters": (SCATTERS, 3, 2),
    "slices": (SLICES, 2, 1), "in turn": (IN_TURN, 2, 2),
    "two axes": (TWO_AXES, 4, 2), "region": (REGION, 2, 2), "kinds": (KINDS, 4, 3), "late": (LATE, 1, 1),
    "products": (PRODUCTS, 1, 1), "loop": (LOOP, 1, 1), "exchanging loop": (EXCHANGING_LOOP, 1, 1),
}
"""Each with its exchanges as written, and when small ones are joined."""

ARGUMENTS = [tuple(np.random.default_rng(10 * k + j).standard_normal(s).astype("f") for j, s in enumerate([(8, 4), (4, 8)]))
             for k in range(4)]
TENSORS = [tuple(map(torch.from_numpy, own)) for own in ARGUMENTS]


def graph_of(program: str) -> list[Node]:
    module: Any = xla_torch.parse_hlo(program).lowered()
    assert isinstance(module, GraphModule)
    return list(module.graph.nodes)


def names(nodes: list[Node]) -> list[str]:
    """What a program calls, in its order."""
    return [getattr(node.target, "__name__", str(node.target)) for node in nodes if node.op in ("call_function", "call_method")]


def exchanging(nodes: list[Node]) -> list[Node]:
    kernels = {*collective.BEGINS, *collective.BEGINS.values()}
    return [node for node in nodes if node.op == "call_function" and node.target in kernels]


def flat(results: Any) -> list[np.ndarray]:
    return [r.numpy() for own in results for r in (own if isinstance(own, tuple) else (own,))]


def bits(results: Any) -> list[bytes]:
    return [r.tobytes() for r in flat(results)]


# ------------------------------------------------------------------------------------------- the same bits, fewer exchanges


@pytest.mark.parametrize("joined", [0, 1 << 8, 1 << 18], ids="joined{}".format)
@pytest.mark.parametrize("ahead", [0, 600, 1 << 24], ids="ahead{}".format)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_bits(name: str, ahead: int, joined: int, monkeypatch: pytest.MonkeyPatch) -> None:
    program = PROGRAMS[name][0]
    monkeypatch.setattr(tuning, "AHEAD_BYTES", ahead)
    monkeypatch.setattr(tuning, "JOINED_BYTES", joined)
    got, slopes = both(program)
    monkeypatch.setattr(tuning, "WITHOUT_PASSES", frozenset({"overlap", "buckets"}))
    want, wanted = both(program)
    assert (got, slopes) == (want, wanted)


def both(program: str) -> tuple[list[bytes], list[bytes]]:
    """Values; and, but for reducers and loops that have none, gradients."""
    values = bits(run_replicas(xla_torch.parse_hlo(program), TENSORS, num_partitions=4))
    if "=odd" in program or "most" in program.split("ENTRY")[1]:
        return values, []
    derived = xla_torch.value_and_grad(xla_torch.parse_hlo(summed(program)), (0, 1))
    results = run_replicas(derived, TENSORS, num_partitions=4)
    return values, bits([value for value, _ in results] + [slope for _, slopes in results for slope in slopes])


def summed(program: str) -> str:
    """The program with the sum of its results' squares as its root."""
    *lines, root = program.rstrip("}\n").splitlines()
    results = root.split("tuple(")[1].rstrip(")").split(", ")
    shapes = root.split("= (")[1].split(") tuple")[0].split(", ")
    more = ["  none = f32[] constant(0)"]
    for k, (result, shape) in enumerate(zip(results, shapes, strict=True)):
        more += [f"  square{k} = {shape} multiply({result}, {result})",
                 f"  sum{k} = f32[] reduce(square{k}, none), dimensions={{0,1}}, to_apply=add",
                 f"  all{k} = f32[] add(sum{k}, {f'all{k - 1}' if k else 'none'})"]
    more[-1] = f"  ROOT{more[-1]}"
    return "\n".join([*lines, *more, "}"])


@pytest.mark.parametrize("name", PROGRAMS)
def test_how_many_exchanges_there_are(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program, written, joined = PROGRAMS[name]
    assert len(exchanging(graph_of(program))) == joined
    with debug.exchanges() as found:
        run_replicas(xla_torch.parse_hlo(program), TENSORS, num_partitions=4)
    monkeypatch.setattr(tuning, "JOINED_BYTES", 0)
    assert len(exchanging(graph_of(program))) == written
    inside = 3 if name == "exchanging loop" else 0
    orders = [[e.subject for e in found.events if e.participant == k] for k in range(4)]
    assert orders[0]
    assert all(order == orders[0] for order in orders)
    assert len(orders[0]) == joined + inside


BUCKETS = [(0, 2), (255, 2), (256, 1), (1 << 18, 1)]
"""Bytes up to which exchanges are joined, of two that take 128 each; and how many there are then."""


@pytest.mark.parametrize(("joined", "count"), BUCKETS)
def test_the_size_of_a_bucket(joined: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "JOINED_BYTES", joined)
    assert len(exchanging(graph_of(SEVERAL))) == count


# ------------------------------------------------------------------------------------------- begun early, awaited late


@pytest.mark.parametrize(("name", "order"), [
    ("late", ["begin_all_gather", "tanh", "cos", "matmul", "wait", "sin"]),
    ("products", ["sin", "begin_all_reduce_", "matmul", "wait", "cos"]),
    ("gathers", ["joined", "begin_all_gather", "tanh", "matmul", "wait", "parted", "matmul"]),
    ("in turn", ["all_reduce", "sin", "all_reduce_"]),
    ("loop", ["begin_all_reduce", "counted_loop", "wait", "sin"]),
    ("exchanging loop", ["counted_loop", "all_reduce", "sin"]),
])
def test_where_exchanges_begin_and_end(name: str, order: list[str]) -> None:
    found = [n for n in names(graph_of(PROGRAMS[name][0])) if n not in ("getitem", "contiguous")]
    assert [n for n in found if n in order] == order


@pytest.mark.parametrize(("ahead", "early"), [(0, False), (511, False), (512, True), (1 << 24, True)])
def test_what_is_brought_before_it_is_needed(ahead: int, early: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gather of 512 bytes."""
    monkeypatch.setattr(tuning, "AHEAD_BYTES", ahead)
    found = names(graph_of(LATE))
    assert (found.index("begin_all_gather") < found.index("tanh")) == early


def many(count: int) -> str:
    """So many gathers of 512 bytes that are used one after another, each beside some arithmetic."""
    lines = ["h0 = f32[4,8] sine(y)"]
    for k in range(count):
        lines += [f"w{k} = f32[4,8] parameter({k + 2})", f"g{k} = f32[16,8] all-gather(w{k}), dimensions={{0}}, {ALL}",
                  f"m{k} = f32[4,16] dot(h{k}, g{k}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}",
                  f"h{k + 1} = f32[4,8] dot(m{k}, g{k}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"]
    return text(*lines, f"ROOT r = f32[4,8] cosine(h{count})")


@pytest.mark.parametrize(("joined", "count"), [(0, 6), (1024, 3)])
@pytest.mark.parametrize("kept", [1, 3])
def test_so_many_bytes_are_on_their_way(kept: int, joined: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gathers of 512 bytes, or three of twice as many: one is ahead beside one in use, however many more there might be."""
    size = 512 * 6 // count
    monkeypatch.setattr(tuning, "JOINED_BYTES", joined)
    monkeypatch.setattr(tuning, "AHEAD_BYTES", size * kept + size - 1)
    held = most = begun = 0
    for name in names(graph_of(many(6))):
        held += (name == "begin_all_gather") - (name == "wait")
        begun += name == "begin_all_gather"
        most = max(most, held)
    assert begun == count
    assert most == 2
    given = [(*own, *[own[1]] * 6) for own in TENSORS]
    got = bits(run_replicas(xla_torch.parse_hlo(many(6)), given, num_partitions=4))
    monkeypatch.setattr(tuning, "WITHOUT_PASSES", frozenset({"overlap"}))
    assert got == bits(run_replicas(xla_torch.parse_hlo(many(6)), given, num_partitions=4))


@pytest.mark.parametrize(("most", "expected"), [(1 << 24, 2048), (1536, 2048), (1535, 1536)])
def test_as_many_bytes_are_ahead_as_the_largest_exchange_has(most: int, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six gathers of 512 bytes and one of 1,536, which may be too large to come ahead: bytes that are brought at once, one of 512
    in use among them."""
    monkeypatch.setattr(tuning, "JOINED_BYTES", 0)
    monkeypatch.setattr(tuning, "AHEAD_BYTES", most)
    program = many(6).replace("  ROOT r = f32[4,8] cosine(h6)", f"""  v = f32[12,8] parameter(8)
  g = f32[48,8] all-gather(v), dimensions={{0}}, {ALL}
  c = f32[4,8] cosine(h6)
  m = f32[4,48] dot(c, g), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
  ROOT r = f32[4,48] sine(m)""")
    held = highest = 0
    for node in graph_of(program):
        awaited = [user for user in node.users if user.target is collective.wait]
        held += sum(overlap.size_of(user) or 0 for user in awaited)
        highest = max(highest, held)
        held -= (overlap.size_of(node) or 0) if node.target is collective.wait else 0
    assert highest == expected


SEEN = {
    "rng": "q = f32[8,4] rng(l, h), distribution=rng_uniform",
    "host": 'q = f32[8,4] custom-call(x), custom_call_target="seen by a host"',
    "outfeed": "k = token[] after-all() o = token[] outfeed(x, k) q = f32[8,4] sine(x)",
}


@pytest.mark.parametrize("name", SEEN)
def test_what_no_exchange_passes(name: str) -> None:
    program = text("l = f32[] constant(0)", "h = f32[] constant(1)", SEEN[name],
                   f"g = f32[16,8] all-gather(y), dimensions={{0}}, {ALL}", "t = f32[8,4] tanh(q)", "o2 = f32[16,8] sine(g)",
                   "ROOT r = (f32[8,4], f32[16,8]) tuple(t, o2)")
    xla_torch.register_custom_call("seen by a host", torch.cos)
    try:
        nodes = graph_of(program)
    finally:
        unregister_custom_call("seen by a host")
    fixed = overlap.fixed_places(nodes[0].graph)
    assert fixed
    assert nodes.index(exchanging(nodes)[0]) > max(fixed)


# ------------------------------------------------------------------------------------------- partitioned programs


@needs_xla
@pytest.mark.parametrize("row", [row for row in ROWS if row.quick], ids=str)
def test_partitioned_programs(row: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    part = partition(xla_torch.from_jax(row.function, *row.arguments), {"a": 2, "b": 2}, row.specs)
    program = part.to_hlo_text()
    given = shard_arguments(part, [torch.tensor(a) for a in row.arguments])
    got = bits(run_replicas(xla_torch.parse_hlo(program), given, num_partitions=4))
    monkeypatch.setattr(tuning, "WITHOUT_PASSES", frozenset({"overlap", "buckets"}))
    assert got == bits(run_replicas(xla_torch.parse_hlo(program), given, num_partitions=4))


# ------------------------------------------------------------------------------------------- processes


@pytest.mark.parametrize("name", ["several operands", "scatters", "products", "two axes"])
def test_over_processes(name: str, four: Workers) -> None:
    same_as_threads(four, PROGRAMS[name][0], ARGUMENTS, partitions=4)


# ------------------------------------------------------------------------------------------- who waited for whom


def test_who_waited_for_whom(tmp_path: Path) -> None:
    with debug.exchanges() as found:
        run_replicas(slow_at(2), TENSORS, num_partitions=4)
    check_late(found, 2)
    check_file(found, tmp_path / "trace.json", 3)
    assert "last to come" in str(found)
    assert "2 (3)" in str(found)


def slow_at(number: int) -> Callable[..., Any]:
    """A program that one participant begins 50 ms after the others."""
    program = xla_torch.parse_hlo(IN_TURN)

    def call(*arguments: Any) -> Any:
        if collective.current_participant().number == number:
            time.sleep(0.05)
        return program(*arguments)

    return call


def check_late(found: debug.ExchangeTrace, number: int) -> None:
    first = [wait for wait in found.waits() if wait.event.turn == 0]
    assert len(found.events) == 8
    assert [wait.last for wait in first] == [None if k == number else number for k in range(4)]
    assert all(0.02 < wait.late <= wait.event.waited for wait in first if wait.last is not None)
    for event in found.events:
        assert event.began <= event.begun <= event.awaited <= event.ended


def check_file(found: debug.ExchangeTrace, path: Path, arrows: int) -> None:
    found.to_chrome_trace(path)
    events = json.loads(path.read_text())["traceEvents"]
    of = {phase: [e for e in events if e["ph"] == phase] for phase in "MXbesf"}
    assert len(of["X"]) == 2 * len(found.events)
    assert sorted(e["id"] for e in of["b"]) == sorted(e["id"] for e in of["e"])
    assert sorted(e["id"] for e in of["s"]) == sorted(e["id"] for e in of["f"])
    assert len(of["f"]) >= arrows
    slices = [(e["pid"], e["ts"], e["ts"] + e["dur"]) for e in of["X"]]
    for end in itertools.chain(of["s"], of["f"]):  # arrows hang on slices
        assert any(pid == end["pid"] and a - 1 <= end["ts"] <= b + 1 for pid, a, b in slices)


def traced(number: int, path: str) -> tuple[int, list[Any]]:
    """In a process: a trace of its own, and that of all."""
    with of_process_group(num_partitions=4) as processes, debug.exchanges() as found:
        me = processes.participants[0].number
        for run in range(2):
            torch.distributed.barrier()
            if run and me == number:
                time.sleep(0.05)
            xla_torch.parse_hlo(IN_TURN)(*TENSORS[me])
    own = len(found.events)
    assert {wait.last for wait in found.waits()} == {None}  # nobody else's times are there
    everything = found.gathered()
    if me == 0:
        everything.to_chrome_trace(path)
    return own, [(w.event.participant, w.event.turn, w.last, w.late, w.event.waited) for w in everything.waits()]


def test_who_waited_for_whom_over_processes(four: Workers, tmp_path: Path) -> None:
    path = tmp_path / "all.json"
    got = four.call(traced, [(1, str(path))] * 4)
    assert [own for own, _ in got] == [4] * 4
    for _, waits in got:
        assert len(waits) == 16
        late = [(who, last, seconds, waited) for who, turn, last, seconds, waited in waits if turn == 2]
        assert [last for _, last, _, _ in late] == [None if who == 1 else 1 for who, *_ in late]
        assert all(0.01 < seconds <= waited for who, _, seconds, waited in late if who != 1)
    assert json.loads(path.read_text())["traceEvents"]


def test_traces_are_gathered_from_processes_only() -> None:
    with pytest.raises(ExecutionError, match="no processes to gather traces from"):
        debug.ExchangeTrace().gathered()


def test_nothing_is_noted_when_nobody_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise AssertionError("noted")

    monkeypatch.setattr(collective, "Watched", refused)
    run_replicas(xla_torch.parse_hlo(IN_TURN), TENSORS, num_partitions=4)
    with debug.exchanges(), pytest.raises(AssertionError, match="noted"):
        run_replicas(xla_torch.parse_hlo(IN_TURN), TENSORS, num_partitions=4)


def test_an_exchange_that_never_ends_is_in_the_trace() -> None:
    program = xla_torch.parse_hlo(PRODUCTS)

    def call(*arguments: Any) -> Any:
        if collective.current_participant().number == 3:
            raise ValueError("gone")
        return program(*arguments)

    with debug.exchanges() as found, pytest.raises(ValueError, match="gone"):
        run_replicas(call, TENSORS, num_partitions=4)
    assert {event.participant for event in found.events} <= {0, 1, 2}
    assert all(wait.last is None for wait in found.waits())
    assert str(found)
