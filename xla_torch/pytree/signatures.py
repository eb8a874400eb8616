"""How a traced function is called: the names of its arguments, and which of them were constants of the trace."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.errors import InvalidArgument
from .nodes import Static
from .structure import Path, Structure, dotted


@dataclasses.dataclass(frozen=True)
class Signature:
    """`names` are those of the arguments that may be given by place, constants among them, as far as they are known; `static`
    the values of constants, by place or name. `key_inputs` and `key_results` say which of the program's parameters and of its
    results' leaves are PRNG keys (their data, as U32), by number, and of which kind."""

    names: tuple[str, ...] = ()
    static: tuple[tuple[int | str, Static], ...] = ()
    key_inputs: tuple[tuple[int, str], ...] = ()
    key_results: tuple[tuple[int, str], ...] = ()

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any],
             structure: Structure) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call without constants, by place and by name as in the trace, whose form was `structure`.

        Constants may be left out; given, they must be as they were. Raises InvalidArgument where they are not.
        """
        by_place, by_name = structure.children
        count, named = len(by_place.children), dict(kwargs)
        static = dict(self.static)
        for name in [n for n in named if n in static or self._place(n) in static]:
            self._check(name, static[name if name in static else self._place(name)], named.pop(name))
        places = [k for k in static if isinstance(k, int)]
        if len(args) > count and places:
            for place in places:
                if place < len(args):
                    self._check(place, static[place], args[place])
            args = [a for k, a in enumerate(args) if k not in static]
        names = self.traced_names()
        moved = [named.pop(n) for n in names[len(args):count] if n in named]
        extra = {n: a for n, a in zip(names[count:], args[count:], strict=False) if n in by_name.keys and n not in named}
        positional = (*args[:len(args) - len(extra)], *moved)
        if len(positional) != count:
            without_weights = len(positional) == count - 1 and names[:1] == ["weights"]
            raise InvalidArgument("wrong number of arguments", got=len(positional),
                                  expected=f"{count}: {', '.join(names[:count]) or 'none'}",
                                  hint="pass the weights first, or make an nn.XlaModule that holds them" * without_weights)
        return positional, named | extra

    def traced_names(self) -> list[str]:
        """The names of the arguments that may be given by place, without constants."""
        return [n for k, n in enumerate(self.names) if k not in dict(self.static) and n not in dict(self.static)]

    def _place(self, name: str) -> int:
        return self.names.index(name) if name in self.names else -1

    def _check(self, which: int | str, static: Static, given: Any) -> None:
        known, value = static.get()
        if known and static.allows(given):
            return
        name = which if isinstance(which, str) else self.names[which] if which < len(self.names) else which
        if not known:
            raise InvalidArgument(f"argument {name} is static and its value was not pickled",
                                  got=repr(given)[:200], hint="leave it out: the value of the trace is part of the program")
        raise InvalidArgument(f"argument {name} is static and differs from its value in the trace", got=repr(given)[:200],
                              expected=repr(value)[:200], hint="trace once for each value")

    def describe(self, path: Path) -> str:
        """What stands at a path in the arguments: ``argument params.Dense_0.kernel``."""
        if len(path) < 2:
            return "positional arguments" if path == (0,) else "keyword arguments"
        names, first = self.traced_names(), path[1]
        name = names[first] if path[0] == 0 and first < len(names) else first
        return f"argument {dotted((name, *path[2:]))}"
