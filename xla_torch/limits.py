"""How much a program may take: what is counted while it is made, and when it has become too much.

Whatever makes instructions charges them (`charge`) to the account of the work that is under way on this thread (`counting`), so
that work which grows exponentially ends with an error and not with the machine's memory.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from contextvars import ContextVar

from . import tuning
from .errors import LimitError


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
    if account.instructions > tuning.MADE_INSTRUCTIONS:
        raise LimitError(f"{account.what} makes too many instructions", expected=f"at most {tuning.MADE_INSTRUCTIONS}",
                         hint="a computation that is used in many places may have to be copied for each")
