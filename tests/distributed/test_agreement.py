"""Agreement where somebody has failed: who came before the failure is not given up for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from xla_torch.distributed import agreement
from xla_torch.distributed.exchange import NOWHERE, Aborted
from xla_torch.distributed.exchanges import General


class Plane:
    """A control plane to which messages come at given calls of `ready`."""

    left: set[int] = set()

    def __init__(self, comes: dict[int, int]):
        self.comes, self.calls, self.messages = comes, 0, b""

    def send(self, rank: int, source: int, target: int, channel: int, text: bytes, payload: bytes) -> None:
        self.messages = text

    def peek(self, source: int, target: int, channel: int) -> tuple[bytes, bytes] | None:
        return (self.messages, bytes([source])) if self.comes.get(source, 99) <= self.calls else None

    def pop(self, source: int, target: int, channel: int) -> None: ...

    def wait_for(self, ready: Callable[[], Any], timeout: float) -> Any:
        for self.calls in range(10):
            if (found := ready()) is not None:
                return found
        return None


class Failures:
    def __init__(self, failed: set[int]):
        self.failed = failed

    def check(self, subject: str = "") -> None:
        if self.failed:
            raise Aborted(f"participants {sorted(self.failed)} failed", subject=subject)


class Placement:
    def rank_of(self, number: int) -> int:
        return number


ROWS = [
    # when messages of participants 0 and 2 come, who has failed, how long those on their way are waited for, whether all agree
    ({0: 0, 2: 0}, {0}, 60.0, True),
    ({0: 0, 2: 3}, {0}, 60.0, True),
    ({0: 1, 2: 3}, {0}, 60.0, False),
    ({0: 0, 2: 3}, {2}, 60.0, False),
    ({0: 0, 2: 3}, {0, 2}, 60.0, False),
    ({0: 0, 2: 3}, {0}, 0.0, False),
    ({0: 0, 2: 3}, {3}, 60.0, False),
    ({0: 1, 2: 3}, set(), 60.0, True),
]


@pytest.mark.parametrize(("comes", "failed", "patience", "agrees"), ROWS)
def test_who_came_before_a_failure_agrees(comes: dict[int, int], failed: set[int], patience: float, agrees: bool,
                                          monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "_ON_THEIR_WAY", patience)
    exchange = General(NOWHERE, (0, 1, 2), (torch.ones(1),), lambda values, place: values)
    reached: Any = agreement.Agreement(Plane(comes), Failures(failed), Placement(), 1.0)  # pyright: ignore[reportArgumentType]
    if agrees:
        assert reached.reach(exchange, 1, exchange.group, b"own") == [b"\0", b"own", b"\2"]
        return
    with pytest.raises(Aborted, match="failed"):
        reached.reach(exchange, 1, exchange.group, b"own")
