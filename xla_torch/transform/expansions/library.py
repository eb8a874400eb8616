"""The library of spellings: what a function looks like where it was written out in ops.

It has what jaxlib's converter makes of StableHLO and CHLO, what JAX makes of functions that neither has, what XLA's compiler for
CPUs leaves of them, and what this package's own documented functions are made of: the file beside this one, which
``tests/make_expansions.py`` writes. A spelling is parsed when something in a program looks like it.
"""

from __future__ import annotations

import functools
import json
import lzma
from collections.abc import Iterator
from pathlib import Path

from ...core.forks import cached_property
from ...hlo.ir import Computation, Instruction, Module, reachable
from ...hlo.parser import parse_hlo
from ...hlo.printer import PrintOptions, print_module
from ..canonical import canonicalize
from .matching import Match, Outline, looks_like, match, outline

FILE = Path(__file__).with_name("expansions.xz")
_MARK = "//// "

Key = tuple[str, str, bool]
"""A result's opcode, element type, and whether it is a scalar."""


class Spelling:
    """One spelling of a function, a computation in canonical form."""

    def __init__(self, function: str, expected: Outline, text: str):
        self.function, self.expected, self._text = function, expected, text

    @cached_property
    def computation(self) -> Computation:
        return canonicalize(parse_hlo(self._text).entry)

    def fits(self, root: Instruction) -> Match | None:
        """Where it stands in a program, with this result."""
        return match(self.computation, root) if looks_like(root, self.expected) else None


def spellings_of(root: Instruction) -> Iterator[tuple[str, Match]]:
    """The functions that an instruction is the result of as it is spelled, the longest spelling first, with their places."""
    if not root.shape.is_array:
        return
    for spelling in _library().get((root.opcode, root.shape.element_type.text, not root.shape.rank), ()):
        found = spelling.fits(root)
        if found is not None:
            yield spelling.function, found


@functools.cache
def _library() -> dict[Key, list[Spelling]]:
    found: dict[Key, list[Spelling]] = {}
    for part in _parts(FILE.read_bytes()):
        head, _, text = part.partition("\n")
        function, key, expected = json.loads(head)
        found.setdefault(tuple(key), []).append(Spelling(function, _tuples(expected), text))
    return found


def _parts(data: bytes) -> list[str]:
    return lzma.decompress(data).decode().split(_MARK)[1:]


def _tuples(value: list | None) -> Outline:
    return None if value is None else (value[0], *map(_tuples, value[1:]))


def written(spellings: dict[str, list[Computation]], kept: bytes | None = None) -> bytes:
    """The library's file for spellings, computations in canonical form, of functions by their names, and those of a file that is
    kept."""
    parts = set(_parts(kept) if kept else ())
    for function, computations in spellings.items():
        for computation in computations:
            root = computation.root
            key = root.opcode, root.shape.element_type.text, not root.shape.rank
            _rename(computation)
            text = print_module(Module(function, computation), PrintOptions(metadata=False))
            parts.add(f"{json.dumps([function, key, outline(root)])}\n{text}\n")
    longest_first = sorted(parts, key=lambda part: (-part.count(" = "), part))
    return lzma.compress("".join(_MARK + part for part in longest_first).encode(), preset=9)


def _rename(computation: Computation) -> None:
    """Give all instructions short names, the same in all spellings."""
    for number, each in enumerate(reachable([computation])):
        each.name = f"c{number}"
        for k, instruction in enumerate(each.instructions):
            instruction.name = f"v{k}"
