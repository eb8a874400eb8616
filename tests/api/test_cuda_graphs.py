"""Programs as CUDA graphs. Here a recording is a function that computes anew from where it read, and writes where it wrote."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest
import torch

import xla_torch
from support.agreement import dtype_of
from support.recorder import BRANCHES, Recorder
from xla_torch.core import tuning
from xla_torch.runtime.cuda_graphs import Recorded, Tensors, recorded
from xla_torch.runtime.static import numpy_from_tensor, tensor_from_numpy

CPU, CUDA = torch.device("cpu"), torch.device("cuda")

TEXT = """HloModule m
ENTRY e {
  w = f32[3,3] parameter(0)
  x = f32[3] parameter(1)
  y = f32[3] dot(w, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  s = s32[3] convert(y)
  ROOT r = (f32[3], s32[3], f32[3]) tuple(y, s, x)
}"""


def made(recorder: Recorder, text: str = TEXT) -> tuple[Recorded, xla_torch.XlaComputation]:
    program = xla_torch.parse_hlo(text)
    return Recorded("m", program.program.runner(CPU), CPU, recorder), program


def assert_equal(got: Tensors, want: Tensors) -> None:
    torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)  # sums depend on how arguments lie


@pytest.fixture(autouse=True)
def whatever_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "GRAPH_FROM", 1)


def test_parameters_are_read_where_they_are_and_others_copied() -> None:
    recorder = Recorder()
    run, program = made(recorder)
    w, kept = torch.randn(3, 3), []
    for number in range(5):
        x = torch.randn(3)
        kept.append((run(w, x), program(w, x), x))
        w += number  # in place: the next call sees it
    for got, want, _ in kept:  # nothing has been written over
        assert_equal(got, want)
    assert (recorder.recordings, recorder.replays) == (1, 4)


def test_what_moves_later_is_recorded_once_more() -> None:
    recorder = Recorder()
    run, program = made(recorder)
    places = [[torch.randn(3, 3), torch.randn(3)] for _ in range(4)]
    turns = [0, 0, 0, 1, 2, 3, 0, 1]  # all stay, then all move
    for turn in turns:
        assert_equal(run(*places[turn]), program(*places[turn]))
    assert recorder.recordings == 2
    assert recorder.replays == len(turns) - 1


@pytest.mark.parametrize("other", [
    pytest.param(lambda w: w.t(), id="other strides at one place"),
    pytest.param(lambda w: w.t().contiguous().t(), id="other strides"),
    pytest.param(lambda w: w[:1].expand(3, 3), id="expanded"),
    pytest.param(torch._neg_view, id="negated in name"),
    pytest.param(lambda w: torch.complex(torch.zeros(3, 3), w).conj().imag, id="conjugate in name"),
])
def test_forms_of_arguments(other: Callable[[torch.Tensor], torch.Tensor]) -> None:
    run, program = made(Recorder())
    w, x = torch.randn(3, 3), torch.randn(3)
    for given in (w, w, other(w), w, other(w), other(w)):
        assert_equal(run(given, x), program(given, x))


@pytest.mark.parametrize("kind", ["u32", "u64", "u16", "f8e5m2", "f8e8m0fnu", "c64", "bf16", "s4"])
def test_element_types(kind: str) -> None:
    run, _ = made(Recorder(), f"ENTRY e {{ x = {kind}[2,3] parameter(0) ROOT r = {kind}[3,2] transpose(x), dimensions={{1,0}} }}")
    shape = xla_torch.Shape.parse(f"{kind}[2,3]")
    for seed in range(4):
        x = tensor_from_numpy(np.random.default_rng(seed).integers(1, 3, (2, 3)).astype(dtype_of(kind)), shape, 0)
        result, = run(x)
        assert result.dtype is x.dtype
        assert numpy_from_tensor(result, shape).tolist() == numpy_from_tensor(x, shape).T.tolist()


def test_parameters_require_grad() -> None:
    """As the way forward of a training step has them."""
    run, program = made(Recorder(), """ENTRY e {
      x = f32[3] parameter(0)
      y = f32[3] negate(x)
      ROOT z = f32[3] multiply(y, y)
    }""")
    x = torch.randn(3, requires_grad=True)
    for _ in range(3):
        with torch.no_grad():
            result, = run(x)
        assert result.equal(program(x.detach()))
        assert not result.requires_grad


@pytest.mark.parametrize("first", [False, True])
def test_inference_mode(first: bool) -> None:
    run, program = made(Recorder())
    for number in range(6):
        with torch.inference_mode((number % 2 == 0) is first):
            w, x = torch.randn(3, 3), torch.randn(3)
            got = run(w, x)
        assert_equal(got, program(w.clone(), x.clone()))


def test_threads_take_turns() -> None:
    run, program = made(Recorder())
    found: list[tuple[Tensors, Tensors]] = []

    def work() -> None:
        for _ in range(20):
            w, x = torch.randn(3, 3), torch.randn(3)
            found.append((run(w, x), program(w, x)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 80
    for got, want in found:
        assert_equal(got, want)


WAITS = f"HloModule m\n{BRANCHES}" + """ENTRY e {
  x = f32[3] parameter(0)
  p = pred[] parameter(1)
  ROOT r = f32[3] conditional(p, x, x), true_computation=one, false_computation=other
}"""


def test_what_waits_is_not_recorded() -> None:
    recorder = Recorder()
    run, program = made(recorder, WAITS)
    x = torch.randn(3)
    with pytest.warns(RuntimeWarning, match=r"m runs call by call and not as a CUDA graph: it waits .*_local_scalar_dense"):
        assert_equal(run(x, torch.tensor(True)), (-x,))
    for flag in (False, True):
        assert_equal(run(x, torch.tensor(flag)), (program(x, torch.tensor(flag)),))
    assert recorder.recordings == 0


def test_what_cannot_be_recorded_runs() -> None:
    run, program = made(Recorder("operation not permitted when stream is capturing\nand more"))
    w, x = torch.randn(3, 3), torch.randn(3)
    assert_equal(run(w, x), program(w, x))
    with pytest.warns(RuntimeWarning, match="call by call .*: operation not permitted when stream is capturing$"):
        assert_equal(run(w, x), program(w, x))
    assert_equal(run(w, x), program(w, x))


@pytest.mark.parametrize(("least", "recordings"), [(2, 1), (3, 0)])
def test_few_operators_are_not_recorded(least: int, recordings: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Views are none."""
    monkeypatch.setattr(tuning, "GRAPH_FROM", least)
    recorder = Recorder()
    run, _ = made(recorder, """ENTRY e {
      x = f32[3,2] parameter(0)
      t = f32[2,3] transpose(x), dimensions={1,0}
      y = f32[2,3] tanh(t)
      ROOT r = f32[2,3] sine(y)
    }""")
    for _ in range(3):
        run(torch.ones(3, 2))
    assert recorder.recordings == recordings


def test_nothing_to_record() -> None:
    recorder = Recorder()
    run, _ = made(recorder, "ENTRY e { x = f32[0] parameter(0) ROOT r = f32[0] negate(x) }")
    for _ in range(3):
        run(torch.empty(0))
    assert recorder.recordings == 0


def run_nothing(*tensors: torch.Tensor) -> Tensors:
    return tensors


@pytest.mark.parametrize("root", [
    "rng(a, b), distribution=rng_uniform", "custom-call(a, b), custom_call_target=\"xla_python_cpu_callback\"",
])
def test_effects_are_not_recorded(root: str) -> None:
    program = xla_torch.parse_hlo(f"ENTRY e {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[3] {root} }}").program
    with pytest.warns(RuntimeWarning, match="call by call and not as a CUDA graph: [-a-z]+ .r. does more"):
        assert recorded("m", program.module.entry, run_nothing, CUDA) is run_nothing


def test_on_the_host_it_is_the_program() -> None:
    program = xla_torch.parse_hlo(TEXT)
    compiled = xla_torch.compile(program, "cudagraphs")
    w, x = torch.randn(3, 3, requires_grad=True), torch.randn(3)
    for _ in range(3):
        results = compiled(w, x)
        assert_equal(results, program(w, x))
        results[0].sum().backward()
    assert "compiled by cudagraphs" in repr(compiled)
