"""What the benchmarks must show, on small sizes."""

from __future__ import annotations

import pytest
import torch

from benchmarks import loops
from support import oracle
from support.counting import Counted
from support.distributed_workers import workers


def test_a_loop_that_fills_a_buffer_is_linear():
    """Were the buffer copied in each step, a step would make four times as many bytes at the larger size."""
    small, large = (Counted.of(loops.fill(n), torch.zeros(1, loops.WIDTH)).made / n for n in (500, 2000))
    assert large < 1.1 * small


def test_the_loop_computes_what_it_says():
    rows = loops.fill(20)(torch.zeros(1, loops.WIDTH))[:, 0]
    torch.testing.assert_close(rows, 1 - 0.5 ** torch.arange(1.0, 21.0))


SMALL = {"perceptron": {"width": 512, "batch": 1024}, "transformer": {"width": 128, "context": 128},
         "convolutions": {"channels": 8, "side": 32, "batch": 4}, "recurrent": {"width": 64, "steps": 16, "batch": 16}}


@oracle.needs_xla
@pytest.mark.parametrize("name", SMALL)
def test_no_more_memory_than_by_hand(name):
    pytest.importorskip("jax")
    from benchmarks import gradients, memory, models

    assert set(SMALL) == set(models.MODELS)
    model = models.MODELS[name](**SMALL[name])
    ours, by_hand = memory.measure(model)
    assert ours <= 1.3 * by_hand
    ours, by_hand = gradients.peaks(gradients.of_model(model))
    assert ours <= 1.2 * by_hand


def test_the_rows_of_the_gradients_benchmark():
    from benchmarks import gradients

    name, make = next(gradients.cases(gradients.SHARED))
    assert name == "demo"
    assert len(gradients._row(make, runs=1).split()) == 3


@pytest.mark.slow
def test_the_rows_of_the_exchanges_benchmark():
    from benchmarks import collectives

    with workers(2) as group:
        for op in collectives.HAND:
            found = group.call(collectives.against_hand, [(op, "bf16", 1 << 15, 2)] * 2)
            assert min(collectives.ratios(found)) > 0
        found = group.call(collectives.overlap, [(64, 32, 3, 0.01, 2)] * 2)
        assert min(collectives.ratios(found)) > 0
        assert all(min(times) > 0 for process in group.call(collectives.joining, [(8, 3, 2)] * 2) for times in process)
    assert collectives.seconds_of_threads(8, 10, participants=2) > 0
    assert collectives.against_copies(1 << 15, 1, participants=2) > 0


def test_the_rows_of_the_benchmark_of_constants(monkeypatch: pytest.MonkeyPatch):
    from benchmarks import constants
    from xla_torch.core import tuning

    assert all(hasattr(tuning, name) for name in constants.CASES)
    monkeypatch.setattr(tuning, "SHORT_WINDOW", tuning.SHORT_WINDOW)
    assert constants.row("SHORT_WINDOW", ("windows of 4", [2], lambda _: constants.slid(4)), runs=1).split()[0] == "SHORT_WINDOW"
