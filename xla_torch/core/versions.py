"""The versions of a library that the package is tested with, and what happens with any other."""

from __future__ import annotations

import itertools
import re
import warnings
from dataclasses import dataclass

from .errors import MissingDependency


@dataclass(frozen=True)
class Window:
    """The oldest version of a library that works, and the newest that the tests ran with."""

    library: str
    oldest: tuple[int, ...]
    newest: tuple[int, ...]
    """Its first two numbers: later patches of it count as tested."""

    def __str__(self) -> str:
        return f"{self.library} {_dotted(self.oldest)} to {_dotted(self.newest)}"

    @property
    def requirement(self) -> str:
        """What pip installs from the window: ``torch>=2.11,<2.16``."""
        *first, last = self.newest
        return f"{self.library}>={_dotted(self.oldest)},<{_dotted((*first, last + 1))}"

    def check(self, version: str) -> None:
        """Raise MissingDependency for a version below the window; warn of one above it."""
        found = numbers(version)
        if found < self.oldest:
            raise MissingDependency(f"this {self.library} is too old for xla_torch", got=f"{self.library} {version}",
                                    expected=str(self), hint=f"pip install '{self.requirement}'")
        if found[:len(self.newest)] > self.newest:
            warnings.warn(f"xla_torch is tested with {self}; this is {self.library} {version}", stacklevel=3)


def numbers(version: str) -> tuple[int, ...]:
    """The numbers that a version starts with: ``(2, 13, 0)`` of ``2.13.0+cpu``, ``(2, 16, 0)`` of ``2.16.0a0``."""
    parts = (re.match(r"\d+", part) for part in version.split("."))
    return tuple(int(part[0]) for part in itertools.takewhile(bool, parts) if part)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
