"""A program that nobody has any more leaves nothing: not its source in torch's caches, not memory."""

from __future__ import annotations

import gc
import linecache
import resource

import pytest
import torch
import torch.fx.graph_module

import xla_torch
from support import shared_programs as programs

X = torch.tensor([0.5, -1.0, 2.0, 3.0])


def load_run_discard(number: int, levels: int = 2) -> None:
    """A program of its own for each number, with branches, which are programs inside it."""
    text = programs.conditionals(levels).replace("constant(0)", f"constant(-{number})")
    xla_torch.parse_hlo(text)(X)


def sources() -> int:
    gc.collect()
    return len(torch.fx.graph_module._loader.eval_cache) + sum(k.startswith("<eval_with_key>") for k in linecache.cache)


def test_sources_are_forgotten() -> None:
    before = sources()
    for number in range(5):
        load_run_discard(number)
    assert sources() <= before


def test_sources_are_there_while_the_program_is() -> None:
    program = xla_torch.parse_hlo(programs.conditionals(2))
    before = sources()
    program(X)
    assert sources() > before


@pytest.mark.slow
def test_memory_is_flat() -> None:
    def peak() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    for number in range(2_000):
        load_run_discard(number % 50, 1)
    gc.collect()
    before = peak()
    for number in range(8_000):
        load_run_discard(number % 50, 1)
    gc.collect()
    assert peak() - before < 4 << 10, "KiB"  # it was 6.6 KiB and more for each of them
