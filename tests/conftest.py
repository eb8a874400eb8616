"""Processes that stay for the tests of a module."""

from __future__ import annotations

import gc
import math
import os
import random
import re
import zlib
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from support.distributed_workers import Workers, workers
from xla_torch.core import tuning

pytest_plugins = ["support.answers", "support.executed_opcodes"]

gc.set_threshold(50_000)
"""Tests make much that lives, and little garbage that is a circle: with Python's own threshold they spent a sixth of their time
in the collector."""


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end, so the collector need not walk it again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def loops_stay_in_torch() -> None:
    """Which loops have run long enough to become native code, and which find some on disk, would depend on the machine.
    `XLA_TORCH_NATIVE_AFTER=0` makes native code of all that can be, before the first step."""
    if "XLA_TORCH_NATIVE_AFTER" not in os.environ:
        tuning.NATIVE_AFTER = math.inf


SEED_TORCH = torch.manual_seed if torch.accelerator.is_available() else torch.default_generator.manual_seed
"""Without a device torch.manual_seed writes down a stack for each kind that might come, which takes longer than most tests."""


def seed() -> None:
    """What is drawn without a generator of its own is the same whatever ran before, and in whichever process."""
    random.seed(0)
    np.random.seed(0)
    SEED_TORCH(0)


@pytest.fixture(autouse=True)
def draws_are_the_same() -> None:
    seed()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """Modules draw when they are imported."""
    if isinstance(collector, pytest.Module):
        seed()
    return (yield)


@pytest.fixture(scope="module")
def four() -> Iterator[Workers]:
    """Four processes, joined by torch.distributed."""
    with workers(4) as made:
        yield made


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", metavar="K/N", help="of N parts of the tests, the one numbered K, from 0 on")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes seconds comes first, notebooks and what reads the whole project: were it last, one worker would be at it while
    the others have nothing left."""
    if part := config.getoption("--part"):
        number, count = map(int, part.split("/"))
        config.hook.pytest_deselected(items=[item for item in items if _part(item, count) != number])
        items[:] = [item for item in items if _part(item, count) == number]
    items.sort(key=lambda item: item.path.parent.name != "project")


def _part(item: pytest.Item, count: int) -> int:
    """The part that a test is in, whatever others there are."""
    return zlib.crc32(item.nodeid.encode()) % count


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """The last line says why tests were skipped."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:
        return
    skipped = reporter.stats.get("skipped", ())
    reasons = Counter(re.sub(r"^Skipped: ", "", str(report.longrepr[-1])) for report in skipped)
    if reasons:
        reporter.write_line(f"skipped {len(skipped)}: " + "; ".join(f"{n} {why}" for why, n in reasons.most_common()))
