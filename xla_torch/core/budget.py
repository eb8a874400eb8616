"""How much a program may take: what is counted while it is read, made and run, and when it has become too much.

Whatever makes instructions charges them (`charge`) to the account of the work that is under way on this thread (`counting`), so
that work which grows exponentially ends with an error and not with the machine's memory. Users set limits of their own for a
block (`limits`), where loops, loading, lowering and runs ask `running` for them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import TypeVar

from . import tuning
from .errors import InvalidArgument, LimitError

_T = TypeVar("_T")
_LOOKED_AFTER = 256
"""Instructions that are made between two looks at the clock."""


@dataclasses.dataclass
class _Account:
    what: str
    instructions: int = 0


_account: ContextVar[_Account | None] = ContextVar("account", default=None)


@contextlib.contextmanager
def counting(what: str) -> Iterator[None]:
    """Count what is made in one piece of work, with all parts of it that are counted themselves. Raises LimitError for too much
    of it, also for nesting at which Python ends."""
    if _account.get() is not None:
        yield
        return
    token = _account.set(_Account(what))
    try:
        yield
    except RecursionError as error:
        raise LimitError(f"{what} goes too deep", expected="fewer loops, branches or tuples in each other") from error
    finally:
        _account.reset(token)


def charge(instructions: int = 1) -> None:
    """Count instructions that are made. Raises LimitError."""
    account = _account.get()
    if account is None:
        return
    account.instructions += instructions
    if account.instructions % _LOOKED_AFTER == 0 and (own := running()) is not None:
        own.look()
    if account.instructions > tuning.MADE_INSTRUCTIONS:
        raise LimitError(f"{account.what} makes too many instructions", expected=f"at most {tuning.MADE_INSTRUCTIONS}",
                         hint="raise max_instructions, or call shared computations less often: each call may copy them")


# ------------------------------------------------------------------------------------------------ limits of users


class Limited:
    """A block with limits, and what was taken in it. `stop`, from another thread, ends what runs in it at its next step."""

    def __init__(self, max_instructions: int | None, max_bytes: int | None, max_seconds: float | None,
                 max_loop_steps: int | None):
        self.max_instructions, self.max_bytes = max_instructions, max_bytes
        self.max_seconds, self.max_loop_steps = max_seconds, max_loop_steps
        self.loop_steps = 0
        self._end = None if max_seconds is None else time.monotonic() + max_seconds
        self._stopped = False

    def stop(self) -> None:
        """End what runs in the block: at the next step of a loop, before the next run, or while a program is made."""
        self._stopped = True

    def look(self) -> None:
        """Raise LimitError where the block was stopped or its time is over."""
        if self._stopped:
            raise LimitError("stopped", hint="look for the thread that called stop()")
        if self._end is not None and time.monotonic() > self._end:
            raise LimitError("the time is over", expected=f"at most {self.max_seconds:g} seconds (max_seconds)")

    def step(self) -> None:
        """Count a step of a loop."""
        self.loop_steps += 1
        if self.max_loop_steps is not None and self.loop_steps > self.max_loop_steps:
            raise LimitError("loops take too many steps", expected=f"at most {self.max_loop_steps} (max_loop_steps)")
        self.look()

    def has_instructions(self, count: Callable[[], int]) -> None:
        """Raise LimitError where a program has too many instructions."""
        self.look()
        if self.max_instructions is not None and (found := count()) > self.max_instructions:
            raise LimitError("the program has too many instructions", got=found,
                             expected=f"at most {self.max_instructions} (max_instructions)")

    def takes_bytes(self, program: str, count: Callable[[], int]) -> None:
        """Raise LimitError where a run would take too much memory."""
        self.look()
        if self.max_bytes is not None and (found := count()) > self.max_bytes:
            raise LimitError("a run would take too much memory", subject=program, got=f"{found} bytes",
                             expected=f"at most {self.max_bytes} (max_bytes)")


_running: ContextVar[Limited | None] = ContextVar("limits", default=None)


@contextlib.contextmanager
def limits(*, max_instructions: int | None = None, max_bytes: int | None = None, max_seconds: float | None = None,
           max_loop_steps: int | None = None) -> Iterator[Limited]:
    """Limit the instructions, memory, time and loop steps of programs in this block.

    The limits hold for loading, lowering and running on this thread; exceeding one raises LimitError. `max_instructions` bounds
    one program, as written and with its calls inlined. `max_bytes` bounds the live buffers of a run, by shape, before
    allocation; scratch memory of single ops isn't counted. `max_seconds` and `max_loop_steps` bound the whole block. Time is
    checked between loop steps, during compilation, and before each run. The context's value has a method `stop` that ends the
    block's programs from any thread. In nested blocks the innermost limits hold. Loops run in torch, since generated C can't be
    stopped; steps of loops that torch.compile compiled aren't counted.

    >>> with xla_torch.limits(max_instructions=100, max_seconds=10):
    ...     square = xla_torch.parse_hlo("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] multiply(x, x) }")
    ...     square(torch.tensor([1.0, 2.0]))
    tensor([1., 4.])
    """
    for name, value in (("max_instructions", max_instructions), ("max_bytes", max_bytes), ("max_seconds", max_seconds),
                        ("max_loop_steps", max_loop_steps)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0):
            raise InvalidArgument(f"{name} is not a valid limit", subject="limits", got=repr(value),
                                  expected="a number of 0 or more, or None")
    block = Limited(max_instructions, max_bytes, max_seconds, max_loop_steps)
    token = _running.set(block)
    try:
        yield block
    finally:
        _running.reset(token)


def running() -> Limited | None:
    """The limits that hold here."""
    return _running.get()


def stepwise(items: Iterable[_T]) -> Iterable[_T]:
    """The steps of a loop, counted where there are limits."""
    block = _running.get()
    return items if block is None else _counted(items, block)


def _counted(items: Iterable[_T], block: Limited) -> Iterator[_T]:
    for item in items:
        block.step()
        yield item
