"""The second call of a program waits for the native code that its first one had made, and for no other."""

from __future__ import annotations

import math
import threading
from pathlib import Path

import pytest
import torch

import xla_torch
from support.native_programs import loop_of_rows, native_after
from xla_torch.codegen.compiled import compiler, is_available
from xla_torch.core import tuning
from xla_torch.kernels.native import Awaited, NativeLoop, made_after

pytestmark = pytest.mark.skipif(not is_available(), reason="there is no C compiler")

LOOP = loop_of_rows(["f32[3,4] add(m, m)"], {"m": "f32[3,4]"}, steps=100)
CHAIN = """HloModule chain
ENTRY main {
  x = f32[300,100] parameter(0)
  a = f32[300,100] multiply(x, x)
  b = f32[300,100] add(a, x)
  c = f32[300,100] abs(b)
  d = f32[300,100] subtract(c, a)
  ROOT e = f32[300,100] multiply(d, c)
}
"""
SMALL = "HloModule small\nENTRY main {\n" + "\n".join(
    ["  x0 = f32[2,3] parameter(0)", *(f"  x{k + 1} = f32[2,3] negate(x{k})" for k in range(12)),
     "  y = f32[2,3] add(x12, x1)", "  ROOT z = f32[2,3] multiply(y, x0)"]) + "\n}\n"
PROGRAMS = {"a loop": (LOOP, (3, 4)), "a chain": (CHAIN, (300, 100)), "small ops": (SMALL, (2, 3))}


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take longer to compile than anybody waits."""
    monkeypatch.setattr(tuning, "NATIVE_WAIT", 60.0)
    monkeypatch.setattr(tuning, "NATIVE_WAITED_CALLS", 10**9)


@pytest.fixture
def held_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler that waits for this file."""
    go, script = tmp_path / "go", tmp_path / "compiler"
    script.write_text(f'#!/bin/sh\nwhile [ ! -e {go} ]; do sleep 0.01; done\nexec {compiler()[0]} "$@"\n')
    script.chmod(0o700)
    monkeypatch.setattr("xla_torch.codegen.compiled.compiler", lambda: (str(script),))
    return go


def native_parts(program: xla_torch.XlaComputation) -> list[NativeLoop | Awaited]:
    return [m for m in program.lowered().modules() if isinstance(m, (NativeLoop, Awaited))]


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize(("after", "again", "waits"), [
    (0.0001, math.inf, True),  # enough for the first call to begin it, or its lowering
    (1000.0, 0.0, True),  # not enough for that, but for the second call, whatever the first one took
    (1000.0, 1.0, False),
])
def test_the_second_call_waits_for_what_the_first_found_worth_it(
        name: str, after: float, again: float, waits: bool, held_compiler: Path, tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch) -> None:
    text, dims = PROGRAMS[name]
    x = torch.linspace(-2, 2, math.prod(dims)).reshape(dims)
    monkeypatch.setattr(tuning, "BUNDLED_LOOP", 0)  # so that a loop is native code by itself
    with native_after(math.inf, tmp_path):
        want = xla_torch.parse_hlo(text)(x)
    monkeypatch.setattr(tuning, "NATIVE_AGAIN", again)
    monkeypatch.setattr(tuning, "NATIVE_CALL", 1e-4)
    with native_after(after, tmp_path):
        program = xla_torch.parse_hlo(text)
        (part, *others) = native_parts(program)
        assert not others
        part.seconds = 0.001 if after < 1 else 0.0  # what other runs have taken
        torch.testing.assert_close(program(x), want)
        assert part.code is not None
        assert part.code.function is None
        timer = threading.Timer(0.3, held_compiler.touch)
        timer.start()
        torch.testing.assert_close(program(x), want)
        assert (part.code.function is not None) == waits
        timer.join()
        torch.testing.assert_close(program(x), want)


@pytest.mark.parametrize("name", PROGRAMS)
def test_later_calls_go_straight_to_what_runs(name: str, tmp_path: Path) -> None:
    text, dims = PROGRAMS[name]
    x = torch.ones(dims)
    with native_after(1000.0, tmp_path):
        program = xla_torch.parse_hlo(text)
        runs = []
        for _ in range(3):
            program(x)
            runs.append(program.program.runner(x.device))
    assert runs[0] is not runs[1]
    assert runs[1] is runs[2]


@pytest.mark.parametrize(("limit", "value", "begins"), [
    ("NATIVE_WAITED", 100, False),  # bytes: it is longer
    ("NATIVE_WAIT", 0.01, True), ("NATIVE_WAITED_CALLS", 0, True),
    ("NATIVE_TEXT", 1, False),  # for each byte of it torch would have to take as much again
])
def test_nobody_waits_for_what_takes_long_to_compile(limit: str, value: float, begins: bool, held_compiler: Path,
                                                     tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(300, 100)
    monkeypatch.setattr(tuning, "NATIVE_AGAIN", 1e-7)
    with native_after(1.0, tmp_path):
        program = xla_torch.parse_hlo(CHAIN)
        (part,) = native_parts(program)
        program(x)
        assert part.code is not None
        part.seconds = 1e-5
        with monkeypatch.context() as patch:
            patch.setattr(tuning, limit, value)
            program(x)
        assert part.code.is_begun() == begins
        assert part.code.function is None
        held_compiler.touch()
        part.code.wait()
        program(x)
    assert (part.code.function is not None) == begins


@pytest.mark.parametrize(("length", "seconds"), [(100, 2.0), (1000, 2.0), (1001, 2.002), (5000, 10.0)])
def test_longer_sources_are_compiled_later(length: int, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "NATIVE_TEXT", 1000)
    for after in (0.0, 2.0, math.inf):
        monkeypatch.setattr(tuning, "NATIVE_AFTER", after)
        assert made_after(" " * length) == pytest.approx(after / 2 * seconds)


def test_within_limits_nobody_waits(held_compiler: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "NATIVE_AGAIN", 0.0)
    x = torch.ones(300, 100)
    with native_after(1000.0, tmp_path):
        program = xla_torch.parse_hlo(CHAIN)
        (part,) = native_parts(program)
        with xla_torch.limits(max_seconds=60):
            program(x)
            program(x)
        assert part.code is None or part.code.function is None
        held_compiler.touch()
        program(x)
    assert part.code is not None
    assert part.code.function is not None


def test_the_way_back_waits_at_its_own_second_call(held_compiler: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "NATIVE_AGAIN", 0.0)
    x = torch.linspace(0.1, 2, 30_000).reshape(300, 100).requires_grad_()
    with native_after(1000.0, tmp_path):
        program = xla_torch.parse_hlo(CHAIN)
        (want,) = torch.autograd.grad(program(x).sum(), x)
        held_compiler.touch()
        total = program(x).sum()
        there = set((tmp_path / "native").iterdir())
        (got,) = torch.autograd.grad(total, x)
    torch.testing.assert_close(got, want)
    assert there
    assert set((tmp_path / "native").iterdir()) > there
