"""What goes wrong between participants: every one of them ends with an error that says what did and who is missing, and leaves
no thread, process or connection behind."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import signal
import threading
import time
from concurrent import futures
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

import xla_torch
from support.distributed_programs import ADD, on_processes, run_here, text_of
from support.distributed_workers import Workers, workers
from xla_torch import run_replicas
from xla_torch.distributed import of_process_group
from xla_torch.distributed.control_plane import ControlPlane
from xla_torch.distributed.gloo import GlooBackend
from xla_torch.errors import ExecutionError, InvalidArgument

PATIENT = 3600.0
"""Seconds that a participant waits for another: far more than a test does (`distributed_workers.PATIENCE`), so what ends in a
test was not waited for."""


def fails(text: str, n: int, late: float, timeout: float, raises: bool) -> tuple[str, int]:
    """In a process: how it failed, and how many threads are left."""
    before = threading.active_count()
    program = xla_torch.parse_hlo(text)
    try:
        with of_process_group(timeout=timeout):
            program(torch.zeros(n))
            time.sleep(late)
            if raises:
                raise KeyError("gone astray")
            program(torch.zeros(n))
            program(torch.zeros(n))
    except Exception as error:
        return str(error), threading.active_count() - before
    return "", threading.active_count() - before


def twice(first: str, second: str, n: int = 8) -> str:
    return (f"HloModule m\n{ADD}\nENTRY e {{\n  p = f32[{n}] parameter(0)\n  q = {first}\n  ROOT r = {second}\n}}")


SUM = "f32[8] all-reduce(q), to_apply=f, replica_groups={}, channel_id=5"
PLAIN = "f32[8] all-reduce(p), to_apply=f, replica_groups={}, channel_id=4"
DIFFERENT = {
    "operation": (8, twice(PLAIN, "f32[32] all-gather(q), dimensions={0}, replica_groups={}, channel_id=5")),
    "reducer": (8, twice(PLAIN, "f32[8] all-reduce(q), to_apply=f, replica_groups={}, channel_id=5").replace(
        "add(a, b)", "maximum(a, b)")),
    "channel": (8, twice(PLAIN, "f32[8] all-reduce(q), to_apply=f, replica_groups={}, channel_id=6")),
    "shape": (9, twice(PLAIN, SUM, 9).replace("f32[8]", "f32[9]")),
    "group": (8, twice(PLAIN, "f32[8] all-reduce(q), to_apply=f, replica_groups={{0,1,2,3}}, channel_id=5,"
                       " use_global_device_ids=true").replace("{{0,1,2,3}}", "{{0,2},{1,3}}")),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_another_exchange_is_named_at_once(four: Workers, what: str) -> None:
    n, odd = DIFFERENT[what]
    four.start(fails, [(twice(PLAIN, SUM), 8, 0.0, PATIENT, False)] * 2 + [(odd, n, 0.0, PATIENT, False)]
               + [(twice(PLAIN, SUM), 8, 0.0, PATIENT, False)])
    for outcome in four.outcomes():
        message, threads = outcome[1]
        assert threads == 0
        where = r"all-(reduce|gather) \(%[qr]\), channel [456]: participants \[\d(, \d)*\] run a different collective"
        assert re.match(where, message), message
        assert re.search(r"got +participant \d: All(Reduce|Gather) \w+ of float32\[[89]\] in group .*, channel [456]", message)


def test_a_good_bye_tells_of_the_failure_it_is_for() -> None:
    """Who leaves because another failed may be read of before that other: it has not ended by itself."""
    store = dist.HashStore()
    with futures.ThreadPoolExecutor(2) as pool:
        stays, leaves = pool.map(lambda rank: ControlPlane(store, rank, 2, 30.0), range(2))
        leaves.failure = {"participant": 7, "error": "gone astray", "story": {}}
        closing = pool.submit(leaves.close)
        heard = stays.wait_for(lambda: stays.failure if stays.left else None, 30.0)
        stays.close()
        closing.result()
    assert heard == leaves.failure


DIVERGING = f"""HloModule m
{ADD}
sum {{
  p = f32[8] parameter(0)
  ROOT r = f32[8] all-reduce(p), to_apply=f, replica_groups={{}}, channel_id=1
}}
pairs {{
  p = f32[8] parameter(0)
  ROOT r = f32[8] all-reduce(p), to_apply=f, replica_groups={{{{0,1}},{{2,3}}}}, channel_id=2, use_global_device_ids=true
}}
ENTRY e {{
  p = f32[8] parameter(0)
  choice = pred[] parameter(1)
  ROOT r = f32[8] conditional(choice, p, p), true_computation=sum, false_computation=pairs
}}"""


def test_branches_that_part_are_an_error_everywhere(four: Workers) -> None:
    """Participants 0 and 1 each wait for the other in another exchange: neither waits for long."""
    arguments = [(np.ones(8, "f"), np.bool_(k != 1)) for k in range(4)]
    four.start(run_here, [(DIVERGING, given, {"timeout": PATIENT}) for given in arguments])
    for outcome in four.outcomes():
        assert outcome[0] == "error"
        assert "run a different collective" in outcome[2]
        assert "in group [0, 1], channel 2" in outcome[2]
    with pytest.raises(ExecutionError, match="run a different collective"):
        run_replicas(xla_torch.parse_hlo(DIVERGING), arguments, num_replicas=4)


LOOPING = f"""HloModule m
{ADD}
step {{
  t = (s32[], f32[8], s32[]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  x = f32[8] get-tuple-element(t), index=1
  n = s32[] get-tuple-element(t), index=2
  y = f32[8] all-reduce(x), to_apply=f, replica_groups={{}}, channel_id=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT r = (s32[], f32[8], s32[]) tuple(j, y, n)
}}
goes {{
  t = (s32[], f32[8], s32[]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = s32[] get-tuple-element(t), index=2
  ROOT r = pred[] compare(i, n), direction=LT
}}
ENTRY e {{
  x = f32[8] parameter(0)
  n = s32[] parameter(1)
  z = s32[] constant(0)
  t = (s32[], f32[8], s32[]) tuple(z, x, n)
  w = (s32[], f32[8], s32[]) while(t), condition=goes, body=step
  ROOT r = f32[8] get-tuple-element(w), index=1
}}"""


@pytest.mark.parametrize("steps", [(3, 2, 3, 3), (0, 1, 1, 1), (2, 1, 1, 1)])
def test_loops_of_unequal_length_are_an_error_at_once(four: Workers, steps: tuple[int, ...]) -> None:
    arguments, ended = [(np.ones(8, "f"), np.int32(n)) for n in steps], [k for k, n in enumerate(steps) if n == min(steps)]
    with pytest.raises(ExecutionError, match=r"all-reduce \(%y\), channel 1: participants \[.*\] have ended before"):
        run_replicas(xla_torch.parse_hlo(LOOPING), arguments, num_replicas=4, timeout=PATIENT)
    four.start(run_here, [(LOOPING, given, {"timeout": PATIENT}) for given in arguments])
    reported = [outcome[2] for outcome in four.outcomes() if outcome[0] == "error"]
    assert len(reported) == 4 - len(ended)
    assert all("ended before this exchange" in text for text in reported)


def test_a_cycle_of_waiting_participants_fails_at_once() -> None:
    """0 for 1, 1 for 2, 2 for 0, and 3 for what 0 does not do."""
    pairs = [[[0, 1], [2], [3]], [[1, 2], [0], [3]], [[2, 0], [1], [3]], [[0, 3], [1], [2]]]

    def program(x: torch.Tensor) -> torch.Tensor:
        return xla_torch.ops.AllReduce(x, xla_torch.ops.Add, pairs[int(x)])

    with pytest.raises(ExecutionError, match=r"run a different collective\n +got +participant \d: AllReduce.*; participant \d:"):
        run_replicas(program, [(torch.tensor(float(k)),) for k in range(4)], num_replicas=4, timeout=PATIENT)


def test_one_who_comes_too_late(four: Workers) -> None:
    common = (twice(PLAIN, SUM), 8)
    four.start(fails, [(*common, 4.0 if k == 2 else 0.0, 1.0, False) for k in range(4)])
    for outcome in four.outcomes():
        message, threads = outcome[1]
        assert "participants [2] did not come within 1 seconds" in message
        assert "all-reduce (%q), channel 4" in message
        assert threads == 0


def test_one_who_raises(four: Workers) -> None:
    common = (twice(PLAIN, SUM), 8)
    four.start(fails, [(*common, 0.3 if k == 1 else 0.0, PATIENT, k == 1) for k in range(4)])
    for rank, outcome in enumerate(four.outcomes()):
        message, threads = outcome[1]
        assert threads == 0
        assert "gone astray" in message
        assert rank == 1 or "participant 1 failed: KeyError" in message


def test_the_processes_go_on_after_failures(four: Workers) -> None:
    text = text_of("f32[8] all-reduce(p), to_apply=f, replica_groups={}", "f32[8]")
    assert all((r[0] == 4).all() for r in on_processes(four, text, [(np.ones(8, "f"),)] * 4))


def dies(n: int, victim: bool, begun: bool) -> tuple[str, int]:
    text = text_of(f"f32[{n}] all-reduce(p), to_apply=f, replica_groups={{}}, channel_id=3", f"f32[{n}]")
    program = xla_torch.parse_hlo(text)
    before = threading.active_count()
    try:
        with of_process_group(timeout=PATIENT):
            program(torch.ones(n))
            if victim:
                threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
            while True:
                program(torch.ones(n))
                if victim and not begun:
                    time.sleep(30)
    except Exception as error:
        return str(error), threading.active_count() - before


@pytest.mark.parametrize(("n", "begun"), [(8, False), (1 << 20, True)], ids=["waited for", "in the middle of its data"])
def test_a_killed_process_ends_the_others(n: int, begun: bool) -> None:
    with workers(3) as three:
        three.start(dies, [(n, k == 1, begun) for k in range(3)])
        outcomes = three.outcomes()
        assert outcomes[1] == ("dead",)
        for _, (message, threads) in (outcomes[0], outcomes[2]):
            assert message.startswith("all-reduce (%r), channel 3: participants [1] are gone")
            assert threads == 0
    assert all(not process.is_alive() for process in three.processes)


# ------------------------------------------------------------------------------------------- stopped


def stops(n: int, victim: bool, in_the_middle: bool, timeout: float) -> tuple[str, str, int]:
    """In a process: as `fails`, with the error's class. The victim stops before its second exchange or, with the data on their
    way, in it."""
    text = text_of(f"f32[{n}] all-reduce(p), to_apply=f, replica_groups={{}}, channel_id=3", f"f32[{n}]")
    program = xla_torch.parse_hlo(text)
    before = threading.active_count()
    with pytest.MonkeyPatch.context() as patched:
        def stop(group: GlooBackend, work: Any) -> None:
            patched.undo()
            os.kill(os.getpid(), signal.SIGSTOP)
            group._finish(work)

        try:
            with of_process_group(timeout=timeout):
                program(torch.ones(n))
                if victim and in_the_middle:
                    patched.setattr(GlooBackend, "_finish", stop)
                elif victim:
                    os.kill(os.getpid(), signal.SIGSTOP)
                program(torch.ones(n))
                program(torch.ones(n))  # what the others gave before they failed is there for the victim
        except Exception as error:
            return type(error).__name__, str(error), threading.active_count() - before
    return "", "", threading.active_count() - before


@pytest.mark.parametrize(("n", "in_the_middle"), [
    pytest.param(8, False, id="before a small exchange"),
    pytest.param(1 << 20, False, id="before a large one", marks=pytest.mark.slow),
    pytest.param(1 << 20, True, id="in the middle of its data"),
])
def test_a_stopped_process_is_named(n: int, in_the_middle: bool) -> None:
    """It does not end and closes nothing, so that only the time tells. When it goes on it, too, ends with an error."""
    with workers(3) as three:
        three.start(stops, [(n, k == 1, in_the_middle, 3.0) for k in range(3)])
        outcomes = [three.outcome(0), three.outcome(2)]
        os.kill(three.processes[1].pid, signal.SIGCONT)
        for _, (kind, message, threads) in outcomes:
            assert kind == "Aborted", "also where it was found out"
            assert message.startswith("all-reduce (%r), channel 3: ")
            assert "participants [1]" in message
            assert ("no answer from participants [1]" in message) == in_the_middle
            assert threads == 0
        _, (kind, message, threads) = three.outcome(1)
        assert kind == "Aborted"
        assert message
        assert threads == 0
    assert all(not process.is_alive() for process in three.processes)


# ------------------------------------------------------------------------------------------- what is left behind


def native_threads_and_sockets() -> tuple[int, int]:
    """Of this process: threads, those that no Python code began among them, and open sockets."""
    links = []
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the listing's own is closed again
            links.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return len(os.listdir("/proc/self/task")), sum(link.startswith("socket:") for link in links)


def fails_again_and_again(n: int, victim: bool, rounds: int) -> list[tuple[int, int]]:
    """In a process: what is there after each session, in which a large exchange succeeds and then a participant raises."""
    text = text_of(f"f32[{n}] all-reduce(p), to_apply=f, replica_groups={{}}, channel_id=3", f"f32[{n}]")
    program, found = xla_torch.parse_hlo(text), []
    for _ in range(rounds):
        with contextlib.suppress(ExecutionError, KeyError), of_process_group(timeout=30):
            program(torch.ones(n))
            if victim:
                raise KeyError("gone astray")
            program(torch.ones(n))
        dist.barrier()  # all have ended the session
        gc.collect()
        found.append(native_threads_and_sockets())
    return found


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="threads and sockets are counted where Linux lists them")
def test_failures_leave_nothing_behind(four: Workers) -> None:
    """What the first session leaves (threads that torch keeps for later) does not become more."""
    for counts in four.call(fails_again_and_again, [(1 << 16, k == 1, 6) for k in range(4)]):
        assert counts[-1][0] <= counts[1][0], counts
        assert counts[-1][1] <= counts[1][1], counts


def test_threads_leave_nothing_behind() -> None:
    program = xla_torch.parse_hlo(text_of("f32[8] all-reduce(p), to_apply=f, replica_groups={}", "f32[8]"))
    before = threading.active_count()
    for _ in range(5):
        with pytest.raises(InvalidArgument, match="raised by participant 1 of 4"):
            run_replicas(program, [(torch.zeros(8 + (k == 1)),) for k in range(4)], num_replicas=4)
        with pytest.raises(ExecutionError, match="run a different collective"):
            run_replicas(xla_torch.parse_hlo(DIVERGING), [(np.ones(8, "f"), np.bool_(k != 1)) for k in range(4)], num_replicas=4)
    assert threading.active_count() == before
