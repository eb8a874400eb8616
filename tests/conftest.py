"""Processes that stay for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from distributed_workers import Workers, workers


@pytest.fixture(scope="module")
def four() -> Iterator[Workers]:
    """Four processes, joined by torch.distributed."""
    with workers(4) as made:
        yield made
