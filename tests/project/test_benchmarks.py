"""What the benchmarks must show, on small sizes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

from benchmarks import loops, measuring
from support import oracle, tables
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


# ------------------------------------------------------------------------------------------------ tables


def test_the_rows_of_the_table_of_rivals():
    """Who has no result in time, or fails, has no cell, and the reason is told."""
    pytest.importorskip("jax")
    from benchmarks import rivals

    one = torch.ones(2)
    case = {"ours": lambda: one, "XLA": lambda: one + 0, "torch by hand": lambda: one * 1,
            "torch.compile": lambda: time.sleep(9), "IREE": lambda: 1 / 0}
    cells, ratio, missing = rivals.row("ones", case, 3, 0.05)
    assert [cell for cell in cells if not cell] == [""] * 3
    assert cells[0] == "ones"
    assert ratio > 0
    assert missing == {"torch.compile": "over 0.05 s", "IREE": "ZeroDivisionError"}
    with pytest.raises(AssertionError, match="torch by hand and XLA differ"):
        rivals.row("ones", {**case, "torch by hand": lambda: one * 2}, 3, 0.05)
    with pytest.raises(ZeroDivisionError):
        rivals.row("ones", {**case, "ours": case["IREE"]}, 3, 0.05)


@pytest.mark.parametrize(("took", "second"), [
    ([1.0] * 10, 0),
    ([3.0] * 6 + [1.0] * 14, 6),
    ([3.0, 1.0, 3.0, 3.0, 3.0, 3.0] + [1.1] * 14, 6),  # a single fast call is none
    ([1.05, 1.0] * 10, 0),
], ids=str)
def test_when_calls_are_steady(took: list[float], second: int):
    pytest.importorskip("jax")
    from benchmarks import first_seconds

    assert first_seconds.steady([(float(k), seconds) for k, seconds in enumerate(took)]) == second


@oracle.needs_xla
@pytest.mark.slow
def test_the_rows_of_the_other_tables(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("jax")
    from benchmarks import large_programs, memory, scaling

    monkeypatch.setattr(scaling, "WARM", 0.1)
    for limit, xla in ((1e-3, ["over 0.001", "", ""]), (0, ["", "", ""])):
        assert large_programs.row("steps of a GRU", 200, large_programs.Phases(), limit)[6:] == xla
    assert float(large_programs.row("steps of a GRU", 200, large_programs.Phases(), 100)[8]) > 0
    assert min(*scaling.measured(scaling.layers(1), True, 1), *scaling.measured(scaling.layers(1), False, 1)) > 0
    assert memory.growth(lambda: torch.zeros(1 << 24)) == pytest.approx(1 << 26, rel=0.1)


@pytest.mark.parametrize("name", ["rivals", "first_seconds", "memory", "large_programs", "scaling", "busy"])
def test_every_table_has_its_place(name: str):
    """`make bench` runs these with WRITE=1."""
    tables.part(measuring.PAGE.read_text(encoding="utf-8"), f"{name}.py")
    assert f" {name} " in (measuring.PAGE.parents[2] / "Makefile").read_text(encoding="utf-8").replace("\n", " \n")


def test_a_table_is_written_between_its_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    page = tmp_path / "README.md"
    page.write_text("before\n<!-- a.py: begin -->\nold\n<!-- a.py: end -->\nafter\n")
    monkeypatch.setattr(measuring, "PAGE", page)
    table = measuring.Table("a.py", ["what", "ms"])
    table.add("one | other", "1.5")
    table.end("messages", write=False)
    assert "old" in page.read_text()
    table.end("messages", write=True)
    written = page.read_text()
    assert "old" not in written
    assert written.startswith("before\n")
    assert written.endswith("\nafter\n")
    assert tables.part(written, "a.py") == f"{table.machine}\n\n| what | ms |\n| --- | --- |\n| one \\| other | 1.5 |\n\nmessages"
