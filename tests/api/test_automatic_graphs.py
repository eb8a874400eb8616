"""Programs that are recorded as CUDA graphs by themselves. The recorder is a stand-in, so the programs run on the CPU."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable

import pytest
import torch

import xla_torch
from support.recorder import BRANCHES, Recorder
from xla_torch.core import tuning
from xla_torch.hlo.custom_calls import unregister
from xla_torch.runtime import automatic_graphs, cuda_graphs, execution

TEXT = """ENTRY e {
  w = f32[3,3] parameter(0)
  x = f32[3] parameter(1)
  y = f32[3] dot(w, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT z = f32[3] tanh(y)
}"""


def chain(size: int) -> str:
    return f"ENTRY e {{ x = f32[{size}] parameter(0) y = f32[{size}] tanh(x) ROOT z = f32[{size}] sine(y) }}"


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """What records, in place of CUDA; whatever the size of a program."""
    recorder = Recorder()
    monkeypatch.setattr(tuning, "GRAPH_FROM", 1)
    monkeypatch.setattr(execution, "records_on", lambda _: True)
    monkeypatch.setattr(automatic_graphs, "captured", recorder)
    monkeypatch.setattr(cuda_graphs, "captured", recorder)
    return recorder


def counts(recorder: Recorder) -> tuple[int, int]:
    return recorder.recordings, recorder.replays


def test_the_third_call_records_and_later_calls_replay(recorder: Recorder) -> None:
    program, w = xla_torch.parse_hlo(TEXT), torch.randn(3, 3)
    kept, found = [], []
    for number in range(6):
        x = torch.randn(3)
        kept.append((program(w, x), torch.tanh(w @ x)))
        found.append(counts(recorder))
        w += number
    assert found == [(0, 0), (0, 0), (1, 1), (1, 2), (1, 3), (1, 4)]
    for got, want in kept:  # later calls have changed no result
        torch.testing.assert_close(got, want)


def test_other_sizes_have_recordings_of_their_own(recorder: Recorder) -> None:
    programs = [xla_torch.parse_hlo(chain(size)) for size in (3, 4)]
    for _ in range(4):
        for program, size in zip(programs, (3, 4), strict=True):
            x = torch.randn(size)
            torch.testing.assert_close(program(x), x.tanh().sin())
    assert counts(recorder) == (2, 4)


def test_training_records_the_way_forward_and_the_way_back(recorder: Recorder) -> None:
    program = xla_torch.parse_hlo(TEXT)
    w = torch.randn(3, 3, requires_grad=True)
    for _ in range(8):
        x = torch.randn(3, requires_grad=True)
        got = torch.autograd.grad(program(w, x).sum(), [w, x])
        torch.testing.assert_close(got, torch.autograd.grad(torch.tanh(w @ x).sum(), [w, x]))
    assert recorder.recordings >= 2
    assert recorder.replays == 12


BRANCH = BRANCHES + """ENTRY e {
  x = f32[3] parameter(0)
  first = f32[1] slice(x), slice={[0:1]}
  number = f32[] reshape(first)
  zero = f32[] constant(0)
  p = pred[] compare(number, zero), direction=GT
  ROOT r = f32[3] conditional(p, x, x), true_computation=one, false_computation=other
}"""

NEVER = {
    "waits": (BRANCH, "it waits for the device"),
    "random": ("ENTRY e { x = f32[3] parameter(0) a = f32[] constant(0) b = f32[] constant(1) "
               "r = f32[3] rng(a, b), distribution=rng_uniform ROOT s = f32[3] add(x, r) }", "rng"),
    "other sizes": ("add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }\n"
                    "ENTRY e { x = f32[<=3] parameter(0) z = f32[] constant(0) "
                    "ROOT r = f32[] reduce(x, z), dimensions={0}, to_apply=add }", "the size of x"),
    "callback": ('ENTRY e { x = f32[3] parameter(0) ROOT r = f32[3] custom-call(x), custom_call_target="graphs_test" }',
                 "graphs_test is a function of the user's"),
}


@pytest.mark.parametrize("kind", NEVER)
def test_what_is_never_recorded(kind: str, recorder: Recorder, caplog: pytest.LogCaptureFixture) -> None:
    text, why = NEVER[kind]
    seen: list[int] = []
    xla_torch.register_custom_call("graphs_test", lambda x: seen.append(1) or x + len(seen))
    try:
        program = xla_torch.parse_hlo(text)
        with caplog.at_level(logging.DEBUG, automatic_graphs.__name__):
            results = [program(torch.full([size], 1.0)) for size in ((3, 2, 1, 3, 1) if kind == "other sizes" else (3,) * 5)]
    finally:
        unregister("graphs_test")
    assert recorder.recordings == 0
    assert [why in record.message for record in caplog.records] == [True]
    if kind == "callback":
        assert [r.tolist() for r in results] == [[1.0 + k] * 3 for k in range(1, 6)]
    if kind == "other sizes":
        assert [r.item() for r in results] == [3, 2, 1, 3, 1]


def calls_by_limits(program: xla_torch.XlaComputation, x: torch.Tensor) -> None:
    with xla_torch.limits(max_seconds=100):
        program(x)


def calls_by_profiler(program: xla_torch.XlaComputation, x: torch.Tensor) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        program(x)


def calls_by_mode(program: xla_torch.XlaComputation, x: torch.Tensor) -> None:
    from torch.utils.flop_counter import FlopCounterMode
    with FlopCounterMode(display=False):
        program(x)


def calls_by_debugger(program: xla_torch.XlaComputation, x: torch.Tensor) -> None:
    with xla_torch.debug.observed(lambda _: None):
        program(x)


@pytest.mark.parametrize("call", [calls_by_limits, calls_by_profiler, calls_by_mode, calls_by_debugger])
def test_limits_profiler_and_modes_see_the_program(call: Callable[..., None], recorder: Recorder) -> None:
    program, x = xla_torch.parse_hlo(chain(3)), torch.randn(3)
    for _ in range(4):
        program(x)
    before = counts(recorder)
    call(program, x)
    assert counts(recorder) == before == (1, 2)
    program(x)
    assert counts(recorder) == (1, 3)


def test_a_subclass_of_tensors_runs_call_by_call(recorder: Recorder) -> None:
    class Other(torch.Tensor):
        pass

    program, x = xla_torch.parse_hlo(chain(3)), torch.randn(3).as_subclass(Other)
    for _ in range(4):
        program(x)
    assert recorder.recordings == 0


@pytest.mark.parametrize("way", ["option", "environment"])
def test_both_ways_to_leave_it_out(way: str, recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "GRAPHS", way == "option")
    program = xla_torch.parse_hlo(TEXT)
    if way == "option":
        program = xla_torch.compile(program, "no-cudagraphs")
    w, x = torch.randn(3, 3, requires_grad=True), torch.randn(3)
    for _ in range(5):
        program(w, x).sum().backward()
    assert recorder.recordings == 0


@pytest.mark.parametrize(("given", "want"), [(("0", "100"), "False 100"), (("1", ""), "True 1073741824")])
def test_environment_variables(given: tuple[str, str], want: str) -> None:
    code = "from xla_torch.core import tuning; print(tuning.GRAPHS, tuning.GRAPHS_LIMIT)"
    names = dict(zip(("XLA_TORCH_CUDA_GRAPHS", "XLA_TORCH_CUDA_GRAPHS_LIMIT"), given, strict=True))
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **names}, capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == (want, "")


def test_the_least_recently_used_recordings_are_freed(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "GRAPHS_LIMIT", 250)
    recorder.held = 100
    first, second, third = programs = [xla_torch.parse_hlo(chain(size)) for size in (3, 4, 5)]
    given = [torch.randn(size) for size in (3, 4, 5)]

    def call(program: xla_torch.XlaComputation, times: int = 1) -> None:
        x = given[programs.index(program)]
        for _ in range(times):
            torch.testing.assert_close(program(x), x.tanh().sin())

    def held() -> list[bool]:
        return [program.program.runner(x.device).nbytes > 0  # pyright: ignore[reportFunctionMemberAccess]
                for program, x in zip(programs, given, strict=True)]

    call(first, 3)
    call(second, 3)
    call(first)
    assert held() == [True, True, False]
    call(third, 3)
    assert held() == [True, False, True]
    for _ in range(6):  # three that do not fit together are not recorded for ever
        for program in programs:
            call(program)
    assert recorder.recordings <= 3 * tuning.GRAPH_TIMES


def test_a_recording_that_is_too_large_is_not_kept(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "GRAPHS_LIMIT", 250)
    recorder.held = 300
    for size in (3, 100):  # the second needs more by its shapes
        program, x = xla_torch.parse_hlo(chain(size)), torch.randn(size)
        for _ in range(6):
            torch.testing.assert_close(program(x), x.tanh().sin())
    assert counts(recorder) == (1, 0)


@pytest.mark.parametrize(("most", "recordings"), [(2, 1), (1, 0)])
def test_programs_of_many_operators_are_not_recorded(most: int, recordings: int, recorder: Recorder,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "GRAPH_UP_TO", most)
    program = xla_torch.parse_hlo(chain(3))
    for _ in range(4):
        program(torch.randn(3))
    assert recorder.recordings == recordings


def test_arguments_that_move_end_in_a_recording_that_copies_all(recorder: Recorder) -> None:
    count = 8
    names = " ".join(f"x{k} = f32[3] parameter({k})" for k in range(count))
    sums = " ".join(f"y{k + 1} = f32[3] add(y{k}, x{k})" for k in range(1, count - 1))
    program = xla_torch.parse_hlo(f"ENTRY e {{ {names} y1 = f32[3] negate(x0) {sums} "
                                  f"ROOT r = f32[3] add(y{count - 1}, x{count - 1}) }}")
    given = [torch.randn(3) for _ in range(count)]
    kept = []
    for number in range(12):
        if number > 3:
            k = number % count
            kept.append(given[k])
            given[k] = torch.randn(3)  # one more has another place
        torch.testing.assert_close(program(*given), torch.stack(given[1:]).sum(0) - given[0])
    assert recorder.recordings == tuning.GRAPH_TIMES
    assert recorder.replays == 10


def test_switches_of_torch_are_followed(recorder: Recorder) -> None:
    program, x = xla_torch.parse_hlo(chain(3)), torch.randn(3)
    for _ in range(3):
        program(x)
    torch.use_deterministic_algorithms(True)
    try:
        program(x)
    finally:
        torch.use_deterministic_algorithms(False)
    assert recorder.recordings == 2


def test_a_recording_that_fails_leaves_the_program(recorder: Recorder, caplog: pytest.LogCaptureFixture) -> None:
    recorder.fault = "CUDA out of memory. Tried to allocate\nand more"
    program, x = xla_torch.parse_hlo(chain(3)), torch.randn(3)
    with caplog.at_level(logging.DEBUG, automatic_graphs.__name__):
        for _ in range(6):
            torch.testing.assert_close(program(x), x.tanh().sin())
    assert [record.message.endswith("CUDA graph: CUDA out of memory. Tried to allocate") for record in caplog.records] == [True]
    assert recorder.tries == 1


def test_a_program_that_is_deleted_frees_its_recording(recorder: Recorder) -> None:
    program, x = xla_torch.parse_hlo(chain(3)), torch.randn(3)
    for _ in range(3):
        program(x)
    run = weakref.ref(program.program.runner(x.device))
    assert run() in automatic_graphs._holding
    del program
    gc.collect()
    assert run() is None


def test_threads_take_turns(recorder: Recorder) -> None:
    program = xla_torch.parse_hlo(TEXT)
    found: list[tuple[torch.Tensor, torch.Tensor]] = []

    def work() -> None:
        for _ in range(20):
            w, x = torch.randn(3, 3), torch.randn(3)
            found.append((program(w, x), torch.tanh(w @ x)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 80
    for got, want in found:
        torch.testing.assert_close(got, want)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no forks")
@pytest.mark.filterwarnings("ignore:.*fork")  # of Python's and of jax's, for processes with threads
def test_a_forked_process_drops_recordings(recorder: Recorder) -> None:
    recorder.held = 100
    program, x = xla_torch.parse_hlo(chain(3)), torch.randn(3)
    for _ in range(4):
        program(x)
    run = program.program.runner(x.device)
    child = os.fork()
    if child == 0:
        right = False
        try:
            dropped = run.nbytes == 0  # pyright: ignore[reportFunctionMemberAccess]
            right = dropped and program(x).equal(x.tanh().sin()) and counts(recorder) == (2, 3)
        finally:
            os._exit(not right)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert run.nbytes > 0  # pyright: ignore[reportFunctionMemberAccess]
