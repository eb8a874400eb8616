"""Modules of several functions, none of which is the program."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..core.errors import InvalidArgument
from ..runtime.computation import XlaComputation


class Library(Mapping[str, Any]):
    """A module of several functions of which none is the entry: a mapping from their names to computations.

    Each is made on first use, as `from_stablehlo` makes it. Calling the whole, or anything else that takes one program,
    raises InvalidArgument with the names.
    """

    def __init__(self, names: Sequence[str], make: Callable[[str], Any]):
        self._names, self._made = names, functools.cache(make)

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        return self._made(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return f"Library({', '.join(self._names)})"

    def __call__(self, *arguments: Any) -> Any:
        raise self._undecided()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(XlaComputation, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        raise self._undecided()

    def _undecided(self) -> InvalidArgument:
        return InvalidArgument("the module has several functions and none is called main", subject="StableHLO",
                               got=", ".join(self._names), expected="one of them",
                               hint=f"load(path, entry={self._names[0]!r}), or library[{self._names[0]!r}]")
