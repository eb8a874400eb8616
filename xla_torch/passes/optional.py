"""Passes that programs can do without: one that fails is left out, and the program is lowered again."""

from __future__ import annotations

import contextvars
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from ..core import tuning
from ..core.errors import XlaError, XlaWarning

T = TypeVar("T")

_failed: contextvars.ContextVar[frozenset[str]] = contextvars.ContextVar("failed", default=frozenset())
"""The passes that have failed on the program that is being lowered."""


class _PassFailed(BaseException):
    """A pass failed that can be left out. No Exception: nobody but `without_failing` handles it."""


def runs(name: str) -> bool:
    """Whether a pass runs: the user has not left it out, and it has not failed on this program."""
    return name not in tuning.WITHOUT_PASSES and name not in _failed.get()


def attempt(name: str, run: Callable[..., T], *given: Any) -> T:
    """Run a pass that can be left out. Where it fails, it may leave a half rewritten program behind: `without_failing` begins
    again."""
    try:
        return run(*given)
    except (XlaError, RecursionError, MemoryError):
        raise
    except Exception as error:
        raise _PassFailed(name) from error


def without_failing(program: str, lower: Callable[[], T]) -> T:
    """Lower a program, again for each pass that fails, without that pass. Warns of each."""
    token = _failed.set(frozenset())
    try:
        while True:
            try:
                return lower()
            except _PassFailed as failed:
                _failed.set(_failed.get() | {str(failed)})
                _warn(program, str(failed), failed.__cause__)
    finally:
        _failed.reset(token)


def _warn(program: str, name: str, error: BaseException | None) -> None:
    warnings.warn(XlaWarning(f"the pass {name!r} failed and was left out: results are the same, but may take longer",
                             subject=program, got=f"{type(error).__name__}: {error}",
                             hint="report this as a defect of xla_torch, with the program"), stacklevel=4)
