"""What the benchmarks must show, on small sizes."""

from __future__ import annotations

import pytest
import torch

import oracle
from benchmarks import loops


def test_a_loop_that_fills_a_buffer_is_linear():
    """Were the buffer copied in each step, a step would cost forty times as much at the larger size."""
    small, large = loops.seconds_for_each_step(1000), loops.seconds_for_each_step(40_000, runs=1)
    assert large < 8 * small


def test_the_loop_computes_what_it_says():
    rows = loops.fill(20)(torch.zeros(1, loops.WIDTH))[:, 0]
    torch.testing.assert_close(rows, 1 - 0.5 ** torch.arange(1.0, 21.0))


@oracle.needs_xla
def test_a_forward_pass_needs_no_more_memory_than_by_hand():
    pytest.importorskip("jax")
    from benchmarks import memory

    ours, by_hand = memory.measure()
    assert ours <= 1.3 * by_hand
