"""Computations that others share cost what their text does: they are not walked, copied or lowered once for each way to them.

What is linear runs with so many levels that 2^levels of anything would not end. What must be copied is refused at a limit.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import xla_torch
from support import shared_programs as programs
from xla_torch.api.summary import summary
from xla_torch.autodiff.places import keeps_places
from xla_torch.core import tuning
from xla_torch.core.budget import counting
from xla_torch.errors import LimitError

X = torch.tensor([0.5, -1.0, 2.0, 3.0])
LEVELS = 40


def few(instructions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a program's preparation may make from here on."""
    monkeypatch.setattr(tuning, "MADE_INSTRUCTIONS", instructions)


@pytest.mark.parametrize("build", [programs.conditionals, programs.loops])
def test_shared_regions_run(build: Callable[[int], str], monkeypatch: pytest.MonkeyPatch) -> None:
    few(200 * LEVELS, monkeypatch)
    found = xla_torch.parse_hlo(build(LEVELS))(X)
    # The same by hand: levels of conditionals are one after another, and loops end when the first element is negative.
    expected = X
    if build is programs.conditionals:
        for k in range(LEVELS, 0, -1):
            expected = expected if expected[k % 4] > 0 else expected * expected
        expected = torch.sin(expected)
    else:
        expected = -X
    torch.testing.assert_close(found, expected)


def test_shared_branches_have_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    few(1000 * LEVELS, monkeypatch)
    x = X.clone().requires_grad_()
    xla_torch.parse_hlo(programs.conditionals(LEVELS))(x).sum().backward()
    again = X.clone().requires_grad_()
    value = again
    for k in range(LEVELS, 0, -1):
        value = value if value[k % 4] > 0 else value * value
    torch.sin(value).sum().backward()
    torch.testing.assert_close(x.grad, again.grad)


def test_shared_branches_have_tangents(monkeypatch: pytest.MonkeyPatch) -> None:
    few(1000 * LEVELS, monkeypatch)
    program = xla_torch.parse_hlo(programs.conditionals(LEVELS))
    tangent = xla_torch.jvp(program)(X, torch.ones(4))[1]
    value, forward = X, torch.ones(4)
    for k in range(LEVELS, 0, -1):
        forward, value = (forward, value) if value[k % 4] > 0 else (2 * value * forward, value * value)
    torch.testing.assert_close(tangent, forward * torch.cos(value))


def test_shared_loops_are_batched(monkeypatch: pytest.MonkeyPatch) -> None:
    few(500 * LEVELS, monkeypatch)
    rows = torch.stack([X, -X])
    found = torch.vmap(xla_torch.parse_hlo(programs.loops(LEVELS)))(rows)
    torch.testing.assert_close(found, torch.stack([-X, -X]))


@pytest.mark.parametrize("build", [programs.calls, programs.fusions, programs.conditionals, programs.loops, programs.reductions])
def test_reading_and_showing_are_linear(build: Callable[[int], str]) -> None:
    program = xla_torch.parse_hlo(build(LEVELS))
    again = xla_torch.parse_hlo(program.to_hlo_text())
    assert len(again.module.computations) == len(program.module.computations)
    assert summary(program)


@pytest.mark.parametrize("build", [programs.calls, programs.fusions, programs.maps, programs.reductions])
def test_copies_are_refused_at_a_limit(build: Callable[[int], str]) -> None:
    x = X if build is not programs.maps else X[0]
    small = xla_torch.parse_hlo(build(4))(x)
    assert small.shape == (() if build in (programs.maps, programs.reductions) else (4,))
    with pytest.raises(LimitError, match=r"too large once every call is inlined[\s\S]*line"):
        xla_torch.parse_hlo(build(LEVELS))(x)


def test_large_tuples_are_refused() -> None:
    with pytest.raises(LimitError, match="a tuple is too large"):
        xla_torch.parse_hlo(programs.tuples(LEVELS))


def test_what_is_made_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece of work has an account of its own, and parts of another one are on that one's."""
    few(60, monkeypatch)
    for _ in range(5):
        xla_torch.parse_hlo(programs.calls(3))(X)

    def often() -> None:
        for _ in range(5):
            xla_torch.parse_hlo(programs.calls(3))(X)

    with counting("this"), pytest.raises(LimitError, match="too many instructions"):
        often()


def test_deep_calls() -> None:
    """Ten thousand calls in each other run, print, and have gradients."""
    program = xla_torch.parse_hlo(programs.chain(10_000))
    x = X.clone().requires_grad_()
    found = program(x)
    found.sum().backward()
    torch.testing.assert_close(found, torch.sin(X))
    torch.testing.assert_close(x.grad, torch.cos(X))
    assert summary(program)
    assert len(xla_torch.parse_hlo(program.to_hlo_text()).module.computations) == 10_002


@pytest.mark.parametrize("depth", [400, 2000])
@pytest.mark.parametrize("build", [programs.nested_loops, programs.conditionals])
def test_deep_regions_are_refused(build: Callable[[int], str], depth: int) -> None:
    with pytest.raises(LimitError, match="too deep"):
        xla_torch.parse_hlo(build(depth))(X)


def test_nested_loops() -> None:
    torch.testing.assert_close(xla_torch.parse_hlo(programs.nested_loops(30))(X), -X)


def test_places_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each element depends on its own place only, is found in time linear in the text."""
    entry = xla_torch.parse_hlo(programs.calls(LEVELS)).module.entry
    assert keeps_places(entry, (True,), (4,)) is True
    other = xla_torch.parse_hlo(programs.calls(2).replace("sine(%x)", "reverse(%x), dimensions={0}")).module.entry
    assert keeps_places(other, (True,), (4,)) is False
