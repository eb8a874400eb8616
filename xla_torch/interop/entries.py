"""The functions of a StableHLO module: which of them is the entry, and what to do where that is not said."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jaxlib.mlir import ir

from ..computation import XlaComputation
from ..errors import InvalidArgument

ENTRY = "main"
"""What XLA's converter calls the function that is run."""



def functions(module: Any) -> dict[str, Any]:
    """The functions of a module by name, in their order."""
    return {_symbol(f): f for f in module.body.operations if f.operation.name == "func.func"}


def _symbol(function: Any) -> str:
    return ir.StringAttr(function.attributes["sym_name"]).value


def entry_names(module: Any) -> list[str]:
    """The functions that may be run: ``main`` where there is one, otherwise all public ones (or all, if none is)."""
    found = functions(module)
    if ENTRY in found:
        return [ENTRY]
    public = [n for n, f in found.items() if not _is_private(f)]
    return public or list(found)


def _is_private(function: Any) -> bool:
    return "sym_visibility" in function.attributes and ir.StringAttr(function.attributes["sym_visibility"]).value == "private"


def make_entry(module: Any, name: str) -> None:
    """Let the function `name` be the entry. A function that was called ``main`` gets another name."""
    found = functions(module)
    if name not in found:
        raise InvalidArgument("no such function in the module", subject="StableHLO", got=f"entry={name!r}",
                              expected=", ".join(found) or "a module with functions")
    if ENTRY in found and name != ENTRY:
        _rename(module, found[ENTRY], next(n for n in map("main_{}".format, range(len(found) + 1)) if n not in found))
    _rename(module, found[name], ENTRY)
    for function in found.values():
        private = ir.StringAttr.get("private")
        function.attributes["sym_visibility"] = ir.StringAttr.get("public") if _symbol(function) == ENTRY else private


def _rename(module: Any, function: Any, name: str) -> None:
    old, new = ir.FlatSymbolRefAttr.get(_symbol(function)), ir.FlatSymbolRefAttr.get(name)
    function.attributes["sym_name"] = ir.StringAttr.get(name)

    def visit(operation: Any) -> Any:
        for attribute in operation.attributes:
            key = attribute if isinstance(attribute, str) else attribute.name
            operation.attributes[key] = _renamed(operation.attributes[key], old, new)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)


def _renamed(value: Any, old: Any, new: Any) -> Any:
    """An attribute with one symbol in place of another, itself or in a list."""
    if value == old:
        return new
    if isinstance(value, ir.ArrayAttr) and old in list(value):
        return ir.ArrayAttr.get([_renamed(v, old, new) for v in value])
    return value


class Library(Mapping[str, Any]):
    """A module of several functions of which none is the entry: a mapping from their names to computations.

    Each is made on first use, as `from_stablehlo` makes it. Calling the whole, or anything else that takes one program,
    raises InvalidArgument with the names.
    """

    def __init__(self, names: list[str], make: Callable[[str], Any]):
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
