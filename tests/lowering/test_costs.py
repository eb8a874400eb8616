"""A guard on counted things: programs take the calls, allocations, bytes and native functions that `tests/data/costs.txt` says.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from support import costs
from xla_torch.codegen.compiled import is_available
from xla_torch.kernels.native import can_fuse

pytestmark = pytest.mark.skipif(costs.read()[0] != costs.versions(), reason=f"the table is of torch {costs.read()[0]}")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """What runs in pieces may have one for each thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", costs.PROGRAMS)
def test_costs_are_those_of_the_table(name: str) -> None:
    if name in costs.BENCHMARKS and not (is_available() and can_fuse()):
        pytest.skip("the table is of native code with a fused multiply-add")
    stored = costs.read()[1]
    found = dict(costs.costs(name))
    changed = [f"  {row}: {field} {was} -> {now}" for row, cost in found.items()
               for field, was, now in zip(cost._fields, stored.get(row, (None,) * 4), cost, strict=True) if was != now]
    assert not changed, "\n".join(["costs changed; if they should, `make costs` writes them anew:", *changed])


def test_the_table_has_the_programs_and_no_others() -> None:
    assert list(dict.fromkeys(name.removesuffix(", with gradient") for name in costs.read()[1])) == costs.PROGRAMS


def test_more_work_is_seen() -> None:
    x = torch.ones(8)
    assert costs.cost(lambda: x + 1) == (1, 1, 32, 0)
    assert costs.cost(lambda: (x + 1).mul_(2)[:4]) == (3, 1, 32, 0)
    assert costs.cost(lambda: (x + 1) * 2) == (2, 2, 64, 0)
