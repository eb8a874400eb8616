"""Failure detection: who has failed, died or fallen silent, told to all and raised where others wait for them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence

from ..core import tuning
from ..core.errors import ExecutionError
from .control_plane import ControlPlane
from .exchange import Aborted
from .placement import Placement
from .rendezvous import Rendezvous

_FIELDS = ("what", "subject", "got", "expected", "hint")

_CLARIFIES = 1.0
"""Seconds in which it is usually known whose connection broke."""


class Failures:
    """What this process knows of failures. Its own end the waiting of its threads, at `rendezvous`, and of all processes."""

    def __init__(self, control_plane: ControlPlane, placement: Placement, rendezvous: Rendezvous):
        self._control_plane, self._placement, self._rendezvous = control_plane, placement, rendezvous

    @property
    def known(self) -> bool:
        """Whether a participant has failed."""
        return self._control_plane.failure is not None

    @property
    def failed(self) -> set[int]:
        """The participants that have failed, and those whose processes have died, as far as it has been read."""
        failure = self._control_plane.failure
        dead = self._placement.numbers_on(self._control_plane.gone - self._control_plane.left)
        return {*dead, failure["participant"]} if failure is not None else {*dead}

    def report(self, number: int, error: BaseException) -> None:
        """A participant of this process has failed: end the waiting of all others."""
        self._rendezvous.fail(number, error)
        if isinstance(error, Aborted) and error.is_notified:
            return
        story = {f: str(getattr(error, f)) for f in _FIELDS} if isinstance(error, ExecutionError) else {}
        self._control_plane.broadcast_failure(
            {"participant": number, "error": f"{type(error).__name__}: {error}", "story": story})

    @contextlib.contextmanager
    def reported(self, number: int) -> Iterator[None]:
        """Within the block errors are this participant's failure."""
        try:
            yield
        except BaseException as error:
            self.report(number, error)
            raise

    def check(self, subject: str = "") -> None:
        """Raise Aborted where a participant has failed or a process has died, as far as it has been read."""
        failure = self._control_plane.failure
        if failure is not None:
            number, story = failure["participant"], failure["story"]
            if story.get("subject"):
                raise Aborted(**story | {"hint": f"participant {number} says so"})
            raise Aborted(f"participant {number} failed: {failure['error']}", subject=subject)
        dead = self._control_plane.gone - self._control_plane.left
        if dead:
            raise Aborted(f"participants {self._placement.numbers_on(dead)} are gone: the connections to their processes broke",
                          subject=subject, got=f"processes {sorted(dead)}", expected="all processes until the program ends")

    def poll(self) -> None:
        """Read what has arrived, and `check`."""
        self._control_plane.poll()
        self.check()

    def broken(self, error: RuntimeError, members: Sequence[int] = ()) -> Aborted:
        """The error where a connection of these members, or of all, broke. Raises what is known in a moment of whose it was."""
        end = time.monotonic() + _CLARIFIES
        while time.monotonic() < end:
            self.poll()
            time.sleep(0.02)
        return self.unfinished("an operation of torch.distributed failed", error, members)

    def unfinished(self, what: str, error: RuntimeError, members: Sequence[int]) -> Aborted:
        """The error that names who of the members, or of all, is connected but not there: a process that was stopped or hangs.
        Raises what is known by now of a failure."""
        silent = self._placement.numbers_on(self._control_plane.silent(tuning.ANSWER_TIMEOUT))
        self.poll()
        named = sorted(set(members or silent).intersection(silent))
        return Aborted.found_here(what, got=f"no answer from participants {named}" if named else str(error).partition("\n")[0])
