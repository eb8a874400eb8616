"""What a module's header says of its entry's arguments and results: which share memory, which may be reused, how they lie."""

from __future__ import annotations

import re
from typing import NamedTuple

from ..core.shape import ProgramShape
from .ir import Module
from .scanner import Scanner

_ALIAS = re.compile(r"\{([\d,\s]*+)\}\s*+:\s*+\(?\s*+(\d++)\s*+(?:,\s*+\{([\d,\s]*+)\}\s*+(?:,\s*+(may|must)-alias\s*+)?\))?")
_DONOR = re.compile(r"\(\s*+(\d++)\s*+,\s*+\{([\d,\s]*+)\}\s*+\)")

Place = tuple[int, ...]
"""Where an array is in a tuple of tuples."""


class Alias(NamedTuple):
    """A place in the result that has the memory of a place in a parameter."""

    output: Place
    number: int
    place: Place
    must: bool


def aliases(module: Module) -> list[Alias]:
    found = _ALIAS.findall(module.header.get("input_output_alias") or "")
    return [Alias(_place(output), int(number), _place(index), kind == "must") for output, number, index, kind in found]


def donors(module: Module) -> list[tuple[int, Place]]:
    """Parameters, and places in them, whose memory may be reused."""
    return [(int(number), _place(index)) for number, index in _DONOR.findall(module.header.get("buffer_donor") or "")]


def _place(text: str) -> Place:
    return tuple(map(int, re.findall(r"\d+", text)))


def entry_layout(module: Module) -> ProgramShape:
    """The entry's shapes with the layouts that the header gives, if it does and they are the entry's."""
    text, shape = module.header.get("entry_computation_layout", ""), module.entry.program_shape
    if not text:
        return shape
    scanner = Scanner(text)
    scanner.expect("{")
    parameters = tuple(scanner.listed(scanner.shape, "(", ")"))
    scanner.expect("->")
    result = scanner.shape()
    fits = len(parameters) == len(shape.parameters) and all(
        a.compatible(b) for a, b in zip((*parameters, result), (*shape.parameters, shape.result), strict=True))
    return ProgramShape(parameters, result, shape.parameter_names) if fits else shape
