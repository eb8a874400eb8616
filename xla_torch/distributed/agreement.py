"""Agreement: before data move, the members of an exchange tell each other what they are about to do.

So a member that does something else, or does not come, ends in an error that names it, and not in a hang.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from .control_plane import ControlPlane
from .exchange import Exchange
from .failures import Failures
from .placement import Placement

_CHANNEL = -1
"""The control plane's channel for agreements; those of programs are not negative."""


_ON_THEIR_WAY = 1.0
"""Seconds in which members may still come where all that failed have come: what was sent before a failure may be read later."""


class Agreement:
    """Where the participants of this process agree with others on exchanges, waiting `timeout` seconds at most."""

    def __init__(self, control_plane: ControlPlane, failures: Failures, placement: Placement, timeout: float):
        self._control_plane, self._failures, self._placement, self._timeout = control_plane, failures, placement, timeout

    def reach(self, exchange: Exchange, number: int, members: Sequence[int], payload: bytes = b"") -> list[bytes]:
        """The members' payloads, in their order, after all have said that they are at this exchange.

        `number` is this participant's. Raises ExecutionError that names the members which are at another exchange, have ended
        or do not come, and Aborted where a participant has failed.
        """
        own, plane = str(exchange).encode(), self._control_plane
        others = [other for other in members if other != number]
        for other in others:
            plane.send(self._placement.rank_of(other), number, other, _CHANNEL, own, payload)

        spared = 0.0

        def ready() -> list[bytes] | None:
            nonlocal spared
            messages = {other: plane.peek(other, number, _CHANNEL) for other in others}
            clashing = [(other, message[0].decode()) for other, message in messages.items() if message and message[0] != own]
            if clashing:
                raise exchange.clash(clashing)
            payloads = {other: message[1] for other, message in messages.items() if message}
            if len(payloads) < len(others):
                failed = self._failures.failed
                if failed and failed <= payloads.keys():
                    spared = spared or time.monotonic() + _ON_THEIR_WAY
                    if time.monotonic() < spared:
                        return None
                self._check_absent(exchange, [other for other in others if other not in payloads])
                return None
            for other in others:
                plane.pop(other, number, _CHANNEL)
            return [payload if member == number else payloads[member] for member in members]

        found = plane.wait_for(ready, self._timeout)
        if found is None:
            raise exchange.missing([other for other in others if plane.peek(other, number, _CHANNEL) is None], self._timeout)
        return found

    def _check_absent(self, exchange: Exchange, absent: Sequence[int]) -> None:
        """Raise where members that have not come will not come any more."""
        self._failures.check(exchange.subject)
        left = [number for number in absent if self._placement.rank_of(number) in self._control_plane.left]
        if left:
            raise exchange.ended(left)
