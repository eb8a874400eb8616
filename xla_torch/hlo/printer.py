"""The IR to HLO text, in the conventions of XLA's own printer. What is printed parses back to an equal module.

Printing does not change the module: names that text cannot have, or that are taken, are replaced in the text only.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..core.printable import without_controls
from ..core.shape import Shape
from . import sugar
from .canonical_values import TUPLES
from .common import COMMON, HEADER, TABLES
from .ir import Computation, Instruction, Module
from .literals.literal import Literal
from .literals.printing import format_literal
from .scanner import is_reserved, names_type, quote
from .schema import OPS, Attribute
from .structure import ASYNC_START, CONSTANT, PARAMETER

_always = ("dimensions",)
"""Attributes that are printed where they are written though they have their default, as XLA does."""
_SMALL = 64
"""The most elements of a constant that always stands in the text."""
_valid_name = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*+")


@dataclasses.dataclass(frozen=True)
class PrintOptions:
    """`elide_above`: constants with more elements print as ``{...}``, which cannot be run again; None prints everything."""

    elide_above: int | None = None
    metadata: bool = True
    layouts: bool = True


def print_module(module: Module, options: PrintOptions | None = None) -> str:
    """The module as HLO text: header, tables, and computations with callees before callers, the entry last."""
    return _Printer(options or PrintOptions()).module(module)


def print_apart(module: Module) -> tuple[str, list[Literal]]:
    """The module as HLO text in which large constants are left out, and these constants in the order of the text. `put_back` is
    the inverse, for the module that is read from the text."""
    printer = _Printer(PrintOptions())
    printer.apart = []
    return printer.module(module), printer.apart


def put_back(module: Module, apart: Sequence[Literal]) -> None:
    """Give a module that was read from such a text its large constants again, the very same objects."""
    elided = [i for c in module.computations for i in c.instructions if i.opcode == CONSTANT and i.attributes["literal"].elided]
    for instruction, literal in zip(sorted(elided, key=lambda i: (i.line, i.column)), apart, strict=True):
        instruction.attributes["literal"] = literal


def print_computation(computation: Computation, options: PrintOptions | None = None, entry: bool = False) -> str:
    """One computation as HLO text, without those it calls."""
    return _Printer(options or PrintOptions()).computation(computation, entry)


def print_instruction(instruction: Instruction, options: PrintOptions | None = None) -> str:
    """One instruction as a line of HLO text, without indentation."""
    return _Printer(options or PrintOptions()).instruction(instruction)


class _Printer:
    def __init__(self, options: PrintOptions):
        self.options = options
        self._instruction_names: dict[int, str] = {}
        self._computation_names: dict[int, str] = {}
        self._inlined: set[int] = set()
        self.apart: list[Literal] | None = None

    # ---- modules and computations

    def module(self, module: Module) -> str:
        self._find_inlined(module.computations)
        printed = self._in_text_order([c for c in module.computations if id(c) not in self._inlined])
        self._computation_names = _unique((c, c.name or "computation") for c in printed)
        name = _sanitised(module.name or "module")
        parts = [f"HloModule {name + '_' if is_reserved(name) else name}" + "".join(self._header(module)) + "\n"]
        parts += [self._table(title, module.tables[title]) for title in TABLES if title in module.tables]
        parts += [self.computation(c, c is module.entry) for c in printed]
        return without_controls("\n".join(parts))

    def _find_inlined(self, computations: Iterable[Computation]) -> None:
        """Computations that the short spelling of an asynchronous wrapper says in place."""
        callers: dict[int, list[bool]] = {}
        for computation in computations:
            for instruction in computation.instructions:
                short = instruction.opcode == ASYNC_START and sugar.wrapped(instruction) is not None
                for callee in instruction.called_computations:
                    callers.setdefault(id(callee), []).append(short)
        self._inlined = {callee for callee, uses in callers.items() if uses == [True]}

    def _in_text_order(self, computations: list[Computation]) -> list[Computation]:
        """Computations in the order of the text they were parsed from, if they were and no callee would follow its caller."""
        lines = [c.instructions[0].line if c.instructions else 0 for c in computations]
        if 0 in lines or len(set(lines)) < len(lines):
            return computations
        ordered = [c for _, c in sorted(zip(lines, computations, strict=True), key=lambda pair: pair[0])]
        place = {id(c): number for number, c in enumerate(ordered)}
        callees_first = all(place[id(callee)] < place[id(c)]
                            for c in ordered for i in c.instructions for callee in self._callees(i))
        return ordered if callees_first else computations

    def _callees(self, instruction: Instruction) -> Iterable[Computation]:
        for callee in instruction.called_computations:
            yield from callee.root.called_computations if id(callee) in self._inlined else (callee,)

    def _header(self, module: Module) -> Iterable[str]:
        header = dict(module.header)
        if "entry_computation_layout" not in header:
            shape = module.entry.program_shape
            header["entry_computation_layout"] = f"{{({self._shapes(shape.parameters)})->{self._shape(shape.result)}}}"
        for name in HEADER:
            if name in header and header[name] is not None:
                value = header[name]
                yield f", {name}={value if isinstance(value, str) else HEADER[name].format(value)}"

    def _table(self, title: str, rows: dict[int, str]) -> str:
        return f"{title}\n" + "".join(f"{number} {row}\n" for number, row in sorted(rows.items()))

    def computation(self, computation: Computation, entry: bool = False) -> str:
        self._instruction_names = _unique((i, _instruction_name(i)) for i in computation.instructions)
        shape = computation.program_shape
        parameters = ", ".join(f"{self._instruction_names[id(p)]}: {p.shape.to_text(with_layout=False)}"
                               for p in computation.parameters)
        lines = [f"{'ENTRY ' if entry else ''}%{self._name_of(computation)} ({parameters}) -> "
                 f"{shape.result.to_text(with_layout=False)} {{"]
        for instruction in computation.instructions:
            lines.append(f"  {'ROOT ' if instruction is computation.root else ''}{self.instruction(instruction)}")
        thread = computation.execution_thread
        lines.append("}" + (f", execution_thread={quote(thread)}" if thread and thread != "main" else ""))
        return "\n".join(lines) + "\n"

    def _name_of(self, computation: Computation) -> str:
        return self._computation_names.get(id(computation)) or _sanitised(computation.name or "computation")

    # ---- instructions

    def instruction(self, instruction: Instruction) -> str:
        attributes = dict(instruction.attributes)
        opcode, operands = instruction.opcode, self._operands(instruction)
        if opcode == PARAMETER:
            operands = str(attributes.pop("parameter_number"))
        elif opcode == CONSTANT:
            operands = self._constant(attributes.pop("literal"))
        elif opcode.startswith("async-") and (inner := self._short(instruction)):
            opcode = inner.opcode + opcode.removeprefix("async")
            attributes.pop("calls", None)
            attributes = (inner.attributes if instruction.opcode == ASYNC_START else {}) | attributes
        definitions = self._definitions(instruction)
        texts = [f"{name}={self._attribute(definitions.get(name), value)}" for name, value in attributes.items()
                 if value is not None and (name in _always or name not in definitions or value != definitions[name].default)]
        texts += self._common(instruction)
        return (f"%{self._operand_name(instruction)} = {self._shape(instruction.shape)} {opcode}({operands})"
                + "".join(f", {text}" for text in texts))

    def _short(self, instruction: Instruction) -> Instruction | None:
        inner = sugar.wrapped(instruction)
        start = instruction
        while start.opcode != ASYNC_START and start.operands:
            start = start.operands[0]
        return inner if inner is not None and id(start.attributes["calls"]) in self._inlined else None

    def _operands(self, instruction: Instruction) -> str:
        names = [f"%{self._operand_name(o)}" for o in instruction.operands]
        return ", ".join(f"/*index={i}*/{name}" if i and i % 5 == 0 else name for i, name in enumerate(names))

    def _operand_name(self, instruction: Instruction) -> str:
        return self._instruction_names.get(id(instruction)) or _instruction_name(instruction)

    def _definitions(self, instruction: Instruction) -> Mapping[str, Attribute]:
        """The attributes that an instruction's text may have; in the short spelling of a wrapper also the wrapped opcode's."""
        known = OPS[instruction.opcode].attributes if instruction.opcode in OPS else {}
        inner = sugar.wrapped(instruction) if instruction.opcode.startswith("async-") else None
        return {**OPS[inner.opcode].attributes, **known} if inner is not None else known

    def _attribute(self, definition: Attribute | None, value: Any) -> str:
        if isinstance(value, Computation):
            return f"%{self._name_of(value)}"
        if isinstance(value, TUPLES) and value and isinstance(value[0], Computation):
            return "{" + ", ".join(f"%{self._name_of(c)}" for c in value) + "}"
        if isinstance(value, Literal):
            return f"{value.shape.to_text()} {self._literal(value)}"
        return definition.codec.format(value) if definition is not None else str(value)

    def _common(self, instruction: Instruction) -> Iterable[str]:
        for name, codec in COMMON.items():
            value = instruction.common.get(name.replace("-", "_"))
            if value is None or value in ("", {}, []) or (name == "metadata" and not self.options.metadata):
                continue
            if name == "control-predecessors":
                yield f"{name}={{{', '.join(f'%{self._operand_name(p)}' for p in value)}}}"
            else:
                yield f"{name}={codec.format(value)}"

    def _constant(self, literal: Literal) -> str:
        is_large = literal.elided or (literal.shape.rank and literal.shape.element_count > _SMALL)
        if self.apart is None or literal.shape.is_tuple or not is_large:
            return self._literal(literal)
        self.apart.append(literal)
        return "{...}"

    def _literal(self, literal: Literal) -> str:
        limit = self.options.elide_above
        if limit is not None and not literal.shape.is_tuple and literal.shape.rank and literal.shape.element_count > limit:
            return "{...}"
        return format_literal(literal)

    # ---- shapes

    def _shape(self, shape: Shape) -> str:
        return shape.to_text(self.options.layouts)

    def _shapes(self, shapes: Iterable[Shape]) -> str:
        return ", ".join(f"/*index={i}*/{self._shape(s)}" if i and i % 5 == 0 else self._shape(s) for i, s in enumerate(shapes))


def _sanitised(name: str) -> str:
    """`name` with what an HLO name cannot have replaced by ``_``."""
    if _valid_name.fullmatch(name):
        return name
    name = re.sub(r"[^A-Za-z0-9_.\-]", "_", name)
    return name if _valid_name.fullmatch(name) else f"_{name}"


def _instruction_name(instruction: Instruction) -> str:
    """No instruction may have the name of an element type."""
    name = _sanitised(instruction.name or instruction.opcode)
    return f"{name}_" if names_type(name) else name


def _unique(named: Iterable[tuple[Any, str]]) -> dict[int, str]:
    """A valid name of its own for each object, by id; taken ones get a ``.N`` suffix."""
    names: dict[int, str] = {}
    taken: set[str] = set()
    counters: dict[str, int] = {}
    for thing, wanted in named:
        name = stem = _sanitised(wanted)
        while name in taken:
            counters[stem] = counters.get(stem, 0) + 1
            name = f"{stem}.{counters[stem]}"
        taken.add(name)
        names[id(thing)] = name
    return names
