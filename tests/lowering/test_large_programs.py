"""Programs of thousands of instructions: twice as many take twice as long, and leave twice as much, until there are results.

Counted on the programs that `tests/benchmarks/large_programs.py` draws, and what it measures: reading, lowering, two calls.
"""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch

import xla_torch
from benchmarks.large_programs import PROGRAMS, inputs
from support.counting import python_calls
from xla_torch.core import tuning
from xla_torch.core.collection import put_off

MOST = 2.3
"""How often as much a program of twice the size may take: pieces of one are of different sizes."""


def objects() -> int:
    """All that Python's search for garbage walks through."""
    gc.collect()
    return len(gc.get_objects())


QUICK = ("ops drawn at random", "of larger arrays")


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in PROGRAMS])
def test_calls_and_objects_are_linear(name: str) -> None:
    def work(size: int) -> tuple[int, int]:
        text = PROGRAMS[name](size)
        tensors = [torch.from_numpy(a) for a in inputs(text)]
        made: list[Any] = []

        def run() -> None:
            program = xla_torch.parse_hlo(text)
            made.extend((program, program(*tensors), program(*tensors)))

        before = objects()
        calls = python_calls(run)
        return calls, objects() - before

    work(150)
    (few_calls, few_objects), (calls, many_objects) = work(200), work(400)
    assert calls < MOST * few_calls
    assert many_objects < MOST * few_objects


@pytest.mark.parametrize("name", QUICK)
def test_second_calls_are_linear(name: str) -> None:
    def work(size: int) -> int:
        text = PROGRAMS[name](size)
        tensors = [torch.from_numpy(a) for a in inputs(text)]
        program = xla_torch.parse_hlo(text)
        program(*tensors)
        return python_calls(lambda: program(*tensors))

    work(150)
    assert work(800) < MOST * work(400)


@pytest.mark.parametrize(("least", "old", "generation"), [(1000, 1, 2), (1000, 1_000_000, 1), (1_000_000, 1, 0)])
def test_what_making_leaves_is_searched_first(least: int, old: int, generation: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Much at once, with all there is where that is little, so that no other search meets it; what is less as Python does."""
    monkeypatch.setattr(tuning, "COLLECTED_FROM", least)
    monkeypatch.setattr(gc, "get_objects", lambda generation: range(old))
    searched: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            searched.append(info["generation"])

    gc.collect()
    gc.callbacks.append(note)
    try:
        with put_off():
            kept = [[k] for k in range(20_000)]
            assert not searched
        kept += [[k] for k in range(2 * gc.get_threshold()[0])]
    finally:
        gc.callbacks.remove(note)
    assert searched[0] == generation
