"""Drawn programs as data: instructions with their operands, from which texts are printed, shrunk, batched and widened.

Whether a value is *rough* says what its comparison may ask. A value is rough where it is rounded in a way that XLA leaves open
(order of sums, products joined with sums, precision of functions) or computed of such; all others are the same in every bit.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Sequence

import numpy as np

FLOATING = re.compile(r"b?f\d\w*")
WIDE = {"c64": "c128", "c128": "c128"}


@dataclasses.dataclass(frozen=True)
class Part:
    """An array's element type and dimensions, a bound where `dynamic` holds for a dimension; and whether it is rough."""

    type: str
    dims: tuple[int, ...]
    rough: bool = False
    dynamic: tuple[bool, ...] = ()

    def text(self, widened: bool = False) -> str:
        sizes = [f"{'<=' if k < len(self.dynamic) and self.dynamic[k] else ''}{n}" for k, n in enumerate(self.dims)]
        return f"{self.wide if widened and self.rough else self.type}[{','.join(sizes)}]"

    @property
    def is_float(self) -> bool:
        return FLOATING.fullmatch(self.type) is not None

    @property
    def is_complex(self) -> bool:
        return self.type in WIDE

    @property
    def wide(self) -> str:
        """The type of the judging evaluation."""
        return WIDE.get(self.type, "f64" if self.is_float else self.type)

    @property
    def count(self) -> int:
        return int(np.prod(self.dims))


@dataclasses.dataclass(frozen=True)
class Value:
    """An instruction. Several parts are a tuple's; `contents` is what stands in the parentheses in place of operands."""

    name: str
    parts: tuple[Part, ...]
    opcode: str
    operands: tuple[str, ...] = ()
    attributes: str = ""
    contents: str = ""
    regions: tuple[str, ...] = ()
    is_tuple: bool = False

    @property
    def part(self) -> Part:
        assert not self.is_tuple
        return self.parts[0]

    def shape(self, widened: bool = False) -> str:
        texts = [p.text(widened) for p in self.parts]
        return f"({', '.join(texts)})" if self.is_tuple else texts[0]

    def line(self, operands: Sequence[str] | None = None, widened: bool = False) -> str:
        given = ", ".join(self.operands if operands is None else operands) or self.contents
        attributes = f", {self.attributes}" if self.attributes else ""
        return f"{self.name} = {self.shape(widened)} {self.opcode}({given}){attributes}"


@dataclasses.dataclass
class Computation:
    """Instructions in order, the last of which is the root of a region."""

    name: str
    values: list[Value]

    def text(self, printed: Callable[[Computation], Iterable[str]] | None = None) -> str:
        lines = [v.line() for v in self.values] if printed is None else list(printed(self))
        return f"{self.name} {{\n" + "".join(f"  {line}\n" for line in lines[:-1]) + f"  ROOT {lines[-1]}\n}}\n"


@dataclasses.dataclass
class Program:
    """Regions before those that use them, the entry's instructions, its arguments in order, and which values are its results.

    Of several participants each has arguments of its own: `others` are those of all but the first.
    """

    regions: list[Computation]
    values: list[Value]
    arguments: dict[str, np.ndarray]
    results: list[str]
    others: list[dict[str, np.ndarray]] = dataclasses.field(default_factory=list)
    replicas: int = 1
    partitions: int = 1

    def named(self) -> dict[str, Value]:
        return {v.name: v for v in self.values}

    def text(self) -> str:
        return text_of([self])

    def given(self) -> list[list[np.ndarray]]:
        """Each participant's arguments."""
        return [list(arguments.values()) for arguments in (self.arguments, *self.others)]

    def all_values(self) -> list[Value]:
        return [*self.values, *(v for r in self.regions for v in r.values)]

    def size(self) -> int:
        return sum(v.opcode not in ("parameter", "constant") for v in self.all_values())

    def result_parts(self) -> list[Part]:
        named = self.named()
        return [named[name].part for name in self.results]


def text_of(programs: Sequence[Program]) -> str:
    """One module of several programs, whose names differ: a tuple of all their results."""
    regions = "".join(r.text() for p in programs for r in p.regions)
    lines, number = [], 0
    for program in programs:
        for value in program.values:
            if value.opcode == "parameter":
                value = dataclasses.replace(value, contents=str(number))
                number += 1
            lines.append(value.line())
    named = [(name, part.text()) for p in programs for name, part in zip(p.results, p.result_parts(), strict=True)]
    root = f"ROOT all_results = ({', '.join(t for _, t in named)}) tuple({', '.join(n for n, _ in named)})"
    return _module("drawn", programs[0], regions, [*lines, root])


def _module(name: str, of: Program, regions: str, entry: Sequence[str]) -> str:
    counts = f", replica_count={of.replicas}, num_partitions={of.partitions}" if of.others else ""
    return "\n".join([f"HloModule {name}{counts}", regions, "ENTRY e {", *(f"  {line}" for line in entry), "}", ""])


def needed(program: Program) -> Program:
    """Without what no result uses."""
    named, wanted, queue = program.named(), set(), list(program.results)
    while queue:
        name = queue.pop()
        if name not in wanted:
            wanted.add(name)
            queue += named[name].operands
    values = [v for v in program.values if v.name in wanted]
    used, regions = {r for v in values for r in v.regions}, []
    for region in reversed(program.regions):
        if region.name in used:
            used |= {r for v in region.values for r in v.regions}
            regions.append(region)
    keep = {v.name for v in values}
    return dataclasses.replace(
        program, values=values, regions=regions[::-1], arguments={n: a for n, a in program.arguments.items() if n in keep},
        others=[{n: a for n, a in each.items() if n in keep} for each in program.others])


def widened(program: Program, noise: Callable[[str, Part], None] | None = None) -> str:
    """The program whose rough values are of the widest types. `noise` is told names and parts of parameters, which come behind
    those of the program and are multiplied with what is rounded: each rough value, and what such a value is computed of."""
    number = len(program.arguments)

    def lines(computation: Computation, is_entry: bool) -> list[str]:
        nonlocal number
        found: list[str] = []
        parts = {v.name: v for v in computation.values}
        names: dict[str, str] = {v.name: v.name for v in computation.values}
        parameter = 0

        def noisy(name: str, part: Part, at: str) -> str:
            nonlocal number
            if noise is None or not is_entry or any(part.dynamic):
                return name
            shape = f"{part.wide}[{','.join(map(str, part.dims))}]"
            noise(f"noise_{at}", part)
            found.extend([f"noise_{at} = {shape} parameter({number})", f"noisy_{at} = {shape} multiply({name}, noise_{at})"])
            number += 1
            return f"noisy_{at}"

        for value in computation.values:
            rough = any(p.rough for p in value.parts)
            operands = [names[o] for o in value.operands]
            if rough and value.opcode not in ("parameter", "get-tuple-element"):
                for k, o in enumerate(value.operands):
                    source = parts[o]
                    if source.is_tuple or source.part.rough or not (source.part.is_float or source.part.is_complex):
                        continue
                    if _stays(value, k):
                        continue
                    part = source.part
                    found.append(f"wide_{value.name}_{k} = {dataclasses.replace(part, rough=True).text(True)} convert({o})")
                    operands[k] = noisy(f"wide_{value.name}_{k}", part, f"{value.name}_{k}")
            if value.opcode == "parameter" and is_entry:
                value = dataclasses.replace(value, contents=str(parameter))
                parameter += 1
            found.append(value.line(operands, True))
            if rough and not value.is_tuple:
                names[value.name] = noisy(value.name, value.part, value.name)
        if is_entry:
            named = [(names[r], parts[r].part.text(True)) for r in program.results]
            found.append(f"ROOT all_results = ({', '.join(t for _, t in named)}) tuple({', '.join(n for n, _ in named)})")
        return found

    regions = "".join(r.text(lambda c: lines(c, False)) for r in program.regions)
    entry = Computation("e", program.values)
    return _module("wide", program, regions, lines(entry, True))


def _stays(value: Value, operand: int) -> bool:
    """Whether an operand keeps its type where its user is rough: regions' parameters are what their arguments are, and parts of
    a tuple that are not rough stay what they are."""
    if value.opcode in ("call", "map"):
        return True
    if value.opcode == "tuple" or (value.is_tuple and value.opcode in ("while", "sort", "reduce", "opt-barrier")):
        return not value.parts[operand % len(value.parts)].rough
    return False
