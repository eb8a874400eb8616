"""HLO text to the IR. Specification: hlo/SPEC.md, HLO text.

`Parser` knows the grammar of modules, computations and instructions; what attributes an opcode has and how they are written
it learns from the op definitions. Programs are long and their instructions alike, so the common form of an instruction
(``%name = shape opcode(%a, %b), attribute=value``) is read by a few regular expressions, equal shapes and attribute values
are read once, and everything else goes the general way, token by token.
"""

from __future__ import annotations

import collections
import dataclasses
import gc
import re
from typing import Any

from ..core import progress
from ..core.budget import running
from ..core.errors import HloSyntaxError, InvalidArgument, UnknownOpcodeError, XlaError
from ..core.layouts import BLANK
from ..core.shape import Shape
from . import sugar
from .codecs import Codec, RawCodec
from .cut_text import CutText
from .headers import attribute_name, execution_thread, read_header, read_signature, read_tables
from .inference import infer_shape
from .ir import Computation, Instruction, Module, free_name, reachable
from .literals.text import parse_literal
from .plans import POSITIONAL, Plan, plan_of
from .reader import COMPUTATION_NAMED, Reader
from .scanner import NAME, is_reserved, names_type, nearest
from .schema import OPS, OpSchema
from .structure import ASYNC_START, GET_TUPLE_ELEMENT, PARAMETER

_SPACE = r"[ \t\r\n]"
_head = re.compile(rf"{_SPACE}*+(ROOT{_SPACE}++)?%?({NAME}){_SPACE}++={_SPACE}++"
                   rf"([a-z][a-z0-9]*+\[[^\]\s]*+\](?:\{{[^{{}}\s]*+\}})?){_SPACE}++([a-z][a-z0-9\-]*+)\(")
_flat_operands = re.compile(r'([^()\[\]{}"]*+)\)')
_index_comment = re.compile(r"/\*[^*]*+\*/")
_attribute = re.compile(rf"{_SPACE}*+,{_SPACE}*+({NAME})=")
_DICT: type[Any] = dict
_value = re.compile(r'\{[^{}"]*+(?:"[^"\\]*+"[^{}"]*+)*+\}|[^\s,(){}\[\]"\']++')
_opcode = re.compile(r"[A-Za-z][A-Za-z0-9_\-]*+")
_shape_start = re.compile(rf"\(|b{BLANK}\(|[a-z][a-z0-9]*+{BLANK}\[")
_computation_start = re.compile(rf"{BLANK}(?:ENTRY\b|%?{NAME}{BLANK}(?:\{{|\({BLANK}(?:\)|%?{NAME}:?{BLANK}[a-z(])))")
_instruction_start = re.compile(rf"{BLANK}(?:ROOT{BLANK})?(?:%({NAME}){BLANK}|({NAME}):?{BLANK}(?<=[\s:/]))=")

_raw = RawCodec()

def parse_hlo(text: str, filename: str = "", cuts: CutText | None = None) -> Module:
    """Parse HLO text: a module, bare computations, or a single instruction. Nothing is verified; see `verify`. `cuts` is what was
    cut out of the text.

    Raises HloSyntaxError with line, column and a caret (`UnknownOpcodeError`, which lists all of them, for opcodes that are
    not known), and InvalidArgument where a shape that was left out cannot be inferred.
    """
    parser = Parser(text, filename)
    parser.cuts = cuts
    # A parse makes millions of objects and no garbage; the collector would walk all of them again and again.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return parser.module()
    except RecursionError:
        raise parser.error("the text is nested too deeply at this place") from None
    except XlaError as error:
        # After an unknown opcode any error may be its consequence, so the opcodes are what is reported.
        raise parser.unknown_opcodes() or error from None
    except ValueError as error:
        if "integer string conversion" not in str(error):
            raise
        raise parser.error("a number has too many digits at this place") from None  # Python's limit, thousands of them
    finally:
        if collecting:
            gc.enable()


class Parser(Reader):
    """A reader that knows the grammar. The codecs of attributes are handed the parser itself."""

    def __init__(self, text: str, filename: str = ""):
        super().__init__(text, filename)
        self._reached = progress.meter(len(text), "parsing")
        self._instructions: list[Instruction] = []
        self._plans: dict[str, Plan | None] = {}
        self._shapes: dict[str, Shape] = {}
        self._values: dict[tuple[int, str], Any] = {}
        self._unknown: collections.Counter[str] = collections.Counter()
        self._first_unknown = 0
        self._taken: set[str] | None = None
        self._counts: dict[str, int] = {}
        """How often each name was given to an instruction without one, in this computation; for computations in the text."""
        self._computation_counts: dict[str, int] = {}
        self._reserved = False
        """Whether an instruction of the computation has a name that only ``%`` makes a name."""
        self._operands_declare = False
        self._line, self._counted, self._newline = 1, 0, -1
        self._read, self._limits = 0, running()

    # ------------------------------------------------------------------------------------------ module

    def module(self) -> Module:
        """The whole text."""
        if self.at_end():
            raise self.error("the text is empty", expected="an HLO module")
        if self.accept_word("HloModule"):
            name = self.name("the module's name")
            header, tables = read_header(self), read_tables(self)
        elif _computation_start.match(self.text):
            name, header, tables = "", {}, {}
        else:
            return self._single_instruction()
        entry = last = None
        while not self.at_end():
            start = self.pos
            is_entry = self.accept_word("ENTRY")
            last = self._computation()
            if is_entry and entry:
                raise self.error("there are two ENTRY computations", start)
            entry = last if is_entry else entry
        self._reached(len(self.text))
        entry = entry or last
        if entry is None:
            raise self.error("the module has no computation", expected="a computation")
        if unknown := self.unknown_opcodes():
            raise unknown
        reached = set(map(id, reachable([entry])))
        unreachable = [c for c in self.computations.values() if id(c) not in reached]
        return Module(name or f"module_{entry.name}", entry, header, tables, unreachable)

    def _single_instruction(self) -> Module:
        """A module of one instruction; its typed operands become the parameters."""
        named = _instruction_start.match(self.text)
        start = self.skip()
        if named:
            self.pos = named.end()
        shape = self.shape() if _shape_start.match(self.text, self.skip()) else None
        at = self.skip()
        opcode = self.match(_opcode, "an opcode").group()
        if self.skip() and not self.looking_at("("):
            raise self.error("this is neither a module nor a computation nor an instruction", start,
                             "HloModule, ENTRY, a computation or one instruction")
        self._operands_declare = True
        name = free_name((named.group(1) or named.group(2)) if named else opcode, self.names, self._counts)
        instruction = self._rest(name, opcode, shape, at)
        if not self.at_end():
            raise self.error("text after the end of the instruction", expected="the end of the text")
        if unknown := self.unknown_opcodes():
            raise unknown
        entry = Computation("entry", self._instructions, instruction)
        return Module(f"module_{instruction.name}", entry)

    # ------------------------------------------------------------------------------------------ computations

    def _computation(self) -> Computation:
        start = self.skip()
        name = self.name("the name of a computation")
        if name in self.computations:
            raise self.error(f"computation {name} already exists", start, "another name")
        result = read_signature(self)
        self.expect("{", "to open a computation")
        computation = self._instruction_list(name, start)
        computation.execution_thread = execution_thread(self)
        if result is not None and not self._unknown and not result.compatible(computation.root.shape):
            raise self.error(f"the signature's result {result} is not the root's shape {computation.root.shape}", start)
        self.computations[name] = computation
        return computation

    def nested_computation(self) -> Computation:
        """``{ x = f32[] parameter(0) ... }`` in place of a computation's name."""
        start = self.skip()
        self.expect("{")
        outer = self.names, self._counts, self._instructions, self._reserved, self._operands_declare
        self._operands_declare = False
        computation = self._instruction_list(self._fresh_computation("nested"), start)
        self.names, self._counts, self._instructions, self._reserved, self._operands_declare = outer
        self.computations[computation.name] = computation
        return computation

    def _instruction_list(self, name: str, start: int) -> Computation:
        """Instructions up to the brace that ends the computation of this name, which stands at `start`."""
        self.names, self._counts, self._instructions, self._reserved = {}, {}, [], False
        root: Instruction | None = None
        while not self.accept("}"):
            at = self.pos
            self._reached(at)
            if not self.text[at:at + 1]:
                raise self.error("the computation is not closed", expected="'}'")
            instruction, is_root = self._instruction()
            if is_root and root is not None:
                raise self.error("the computation has two ROOT instructions", at)
            root = instruction if is_root else root
        if not self._instructions:
            raise self.error("the computation is empty", start, "at least one instruction")
        computation = Computation(name, self._instructions, root)
        self._check_parameters(computation, start)
        return computation

    def _check_parameters(self, computation: Computation, start: int) -> None:
        numbers = sorted(i.attributes.get("parameter_number", 0) for i in computation.instructions if i.is_parameter)
        if numbers != list(range(len(numbers))):
            raise self.error(f"the parameter numbers of {computation.name} are not dense", start,
                             f"each of 0..{len(numbers) - 1} once, not {numbers}")

    # ------------------------------------------------------------------------------------------ instructions

    def _instruction(self) -> tuple[Instruction, bool]:
        """One instruction of a computation, and whether it is marked ROOT."""
        match = _head.match(self.text, self.pos)
        if not match:
            return self._instruction_in_general()
        root, name, shape_text, opcode = match.groups()
        shape = self._shapes.get(shape_text)
        if shape is None:
            self.pos = match.start(3)
            shape = self.shape()
            if self.pos != match.end(3):
                self.pos = match.start()
                return self._instruction_in_general()
            self._shapes[shape_text] = shape
        if name in self.names:
            raise self.error(f"instruction {name} already exists", match.start(2), "another name")
        if is_reserved(name):
            self.pos = match.start()
            return self._instruction_in_general()
        self.pos = match.end() - 1
        return self._rest(name, opcode, shape, match.start(4), match.start(2)), root is not None

    def _instruction_in_general(self) -> tuple[Instruction, bool]:
        is_root = self.accept_word("ROOT")
        start = self.skip()
        name = self.name("an instruction")
        if names_type(name):
            raise self.error(f"an instruction cannot have the name of an element type, {name}", start, "another name", f"{name}_")
        self._reserved |= is_reserved(name)
        if name in self.names:
            raise self.error(f"instruction {name} already exists", start, "another name")
        self.expect("=", "after the name of an instruction")
        shape = self.shape() if _shape_start.match(self.text, self.skip()) else None
        at = self.skip()
        opcode = self.match(_opcode, "an opcode").group()
        return self._rest(name, opcode, shape, at, start), is_root

    def _rest(self, name: str, opcode: str, shape: Shape | None, opcode_at: int, start: int | None = None) -> Instruction:
        """Operands and attributes of an instruction; adds it to the computation."""
        start = opcode_at if start is None else start
        plan = self._plans.get(opcode) or self._plan(opcode)
        if plan is None:
            return self._sugar_or_unknown(name, opcode, shape, opcode_at, start)
        attributes: dict[str, Any] = {}
        operands: list[Instruction] = []
        if opcode in POSITIONAL:
            attributes[POSITIONAL[opcode]] = self._positional_attribute(opcode, shape)
        else:
            operands = self._operands()
        common = self._attributes(plan, attributes)
        plan.check(self, operands, attributes, opcode_at)
        return self._finish(plan, name, shape, operands, attributes, common, opcode_at, start)

    def _finish(self, plan: Plan, name: str, shape: Shape | None, operands: list[Instruction], attributes: dict[str, Any],
                common: dict[str, Any], opcode_at: int, start: int) -> Instruction:
        opcode = plan.definition.opcode
        inferred = shape
        if inferred is None:
            inferred = self._infer(plan.definition, name, operands, attributes, opcode_at)
        if inferred.is_tuple and "sharding" in common:
            common["sharding"] = common["sharding"].of_tuple(inferred)
        if "parameter_replication" in common:
            stated, has = len(re.findall("true|false", common["parameter_replication"])), sum(1 for _ in inferred.leaves())
            if stated != has:
                raise self.error(f"parameter has {has} leaf buffers, but parameter_replication has {stated} elements", opcode_at)
        if plan.definition.returns_tuple and not inferred.is_tuple:
            own = free_name(f"{name}.tuple", self.names, self._counts)
            whole = self._add(Instruction(opcode, Shape.tuple([inferred]), operands, attributes, own), start)
            return self._add(Instruction(GET_TUPLE_ELEMENT, inferred, (whole,), {"index": 0}, name, common), start)
        return self._add(Instruction(opcode, inferred, operands, attributes, name, common), start)

    def _add(self, instruction: Instruction, start: int) -> Instruction:
        # Lines are counted on from the last instruction, so that positions cost nothing that grows with the text.
        if self._limits is not None:
            self._read += 1
            self._limits.has_instructions(lambda: self._read)
        text = self.text
        if start >= self._counted:
            lines = text.count("\n", self._counted, start)
            if lines:
                self._line += lines
                self._newline = text.rfind("\n", self._counted, start)
            self._counted = start
        instruction.line, instruction.column = self._line, start - self._newline
        if self.cuts is not None:
            instruction.line, instruction.column = self.cuts.place(start, self._line, start - self._newline)
        self.names[instruction.name] = instruction
        self._instructions.append(instruction)
        return instruction

    def _infer(self, definition: OpSchema, name: str, operands: list[Instruction], attributes: dict[str, Any],
               at: int) -> Shape:
        if not definition.inferable:
            raise self.error(f"the shape of {definition.opcode} must be written", at, f"{name} = shape {definition.opcode}(...)")
        try:
            return infer_shape(definition.opcode, None, [o.shape for o in operands], attributes)
        except XlaError as error:
            error.subject = f"{definition.opcode} (%{name})"
            raise error.located(where=self.place(at)[0]) from None

    def _plan(self, opcode: str) -> Plan | None:
        if opcode not in self._plans:
            self._plans[opcode] = plan_of(opcode)
        return self._plans[opcode]

    # ---- operands

    def _positional_attribute(self, opcode: str, shape: Shape | None) -> Any:
        self.expect("(")
        if opcode == PARAMETER:
            start = self.skip()
            value = self.integer()
            if value < 0:
                raise self.error("the parameter number is negative", start)
        elif shape is None:
            raise self.error("the shape of a constant must be written", expected="a shape between '=' and constant")
        else:
            value = parse_literal(self, shape)
        self.expect(")", f"after the contents of {opcode}")
        return value

    def _operands(self) -> list[Instruction]:
        text, names = self.text, self.names
        match = _flat_operands.match(text, self.pos + 1) if text.startswith("(", self.pos) else None
        if match and not self._reserved:
            body = match.group(1)
            if not body:
                self.pos = match.end()
                return []
            if "/" in body:
                body = _index_comment.sub("", body)
            try:
                operands = [names[word.strip().removeprefix("%")] for word in body.split(",")]
            except KeyError:
                pass
            else:
                self.pos = match.end()
                return operands
        return self._listed_operands()

    def _listed_operands(self) -> list[Instruction]:
        """Operands in parentheses. XLA overlooks commas with nothing between them."""
        self.expect("(")
        operands: list[Instruction] = []
        separated = True
        while not self.accept(")"):
            if self.accept(","):
                separated = True
                continue
            if not separated:
                raise self.error("expects ',' or ')'", expected="',' or ')'")
            operands.append(self._operand())
            separated = False
        return operands

    def _operand(self) -> Instruction:
        """``%a``, ``f32[2] %a``, or another instruction in place."""
        shape = self.shape() if _shape_start.match(self.text, self.skip()) else None
        start = self.skip()
        match = _opcode.match(self.text, start)
        if match and self.text.startswith("(", match.end()):
            return self._nested(match.group(), shape, start)
        if shape is not None and self._operands_declare:
            return self._declared_operand(shape)
        found = self.instruction_reference()
        if shape is not None and not shape.compatible(found.shape):
            raise self.error(f"the operand has the shape {found.shape}, not {shape}", start, str(found.shape))
        return found

    def _declared_operand(self, shape: Shape) -> Instruction:
        """In a text of one instruction, a typed operand is a parameter, with a name or without."""
        start = self.skip()
        named = not (self.looking_at(",") or self.looking_at(")"))
        name = self.name("the name of an operand") if named else free_name("operand", self.names, self._counts)
        if known := self.names.get(name):
            if not shape.compatible(known.shape):
                raise self.error(f"the operand has the shape {known.shape}, not {shape}", start, str(known.shape))
            return known
        number = sum(i.is_parameter for i in self._instructions)
        return self._add(Instruction(PARAMETER, shape, (), {"parameter_number": number}, name), start)

    def _nested(self, opcode: str, shape: Shape | None, at: int) -> Instruction:
        """An instruction written as an operand: without a name and without attributes."""
        self.pos = at + len(opcode)
        plan = self._plans.get(opcode) or self._plan(opcode)
        name = free_name(f"{opcode}.anon", self.names, self._counts)
        if plan is None:
            return self._note_unknown(name, opcode, shape, at, at)
        attributes: dict[str, Any] = {}
        operands: list[Instruction] = []
        if opcode in POSITIONAL:
            attributes[POSITIONAL[opcode]] = self._positional_attribute(opcode, shape)
        else:
            operands = self._listed_operands()
        plan.check(self, operands, attributes, at)
        return self._finish(plan, name, shape, operands, attributes, {}, at, at)

    # ---- attributes

    def _attributes(self, plan: Plan, into: dict[str, Any]) -> dict[str, Any]:
        """Read all attributes: the opcode's own go into `into`, the common ones are returned."""
        common: dict[str, Any] = {}
        text = self.text
        while True:
            match = _attribute.match(text, self.pos)
            if match:
                name, start = match.group(1), match.start(1)
                self.pos = match.end()
            elif self.accept(","):
                start = self.skip()
                name = attribute_name(self)
            else:
                return common
            known = plan.codecs.get(name)
            if known is None:
                raise plan.unexpected(self, name, start)
            codec, context_free, own = known
            target, key = (into, name) if own else (common, name.replace("-", "_"))
            if key in target:
                raise self.error(f"attribute {name} already exists", start)
            target[key] = self._shared_value(codec) if context_free else codec.parse(self)

    def _shared_value(self, codec: Codec) -> Any:
        """A value that depends on its text only: equal texts are parsed once."""
        start = self.pos
        match = _value.match(self.text, start)
        if not match:
            return codec.parse(self)
        key = (id(codec), match.group())
        if (value := self._values.get(key)) is None:
            value = codec.parse(self)
            if self.pos == match.end():
                self._values[key] = value
            return value
        self.pos = match.end()
        return dict(value) if type(value) is _DICT else value

    # ---- opcodes without a definition

    def _sugar_or_unknown(self, name: str, opcode: str, shape: Shape | None, at: int, start: int) -> Instruction:
        """``negate-start(%a)`` and the like are async wrappers of another opcode; anything else is unknown."""
        kind, wrapped = sugar.split(opcode)
        inner = wrapped and self._plan(wrapped)
        outer = kind and self._plan(kind)
        if not (kind and wrapped and inner and outer):
            return self._note_unknown(name, opcode, shape, at, start)
        operands = self._operands()
        attributes: dict[str, Any] = {}
        both = dataclasses.replace(inner, codecs=inner.codecs | {
            n: entry for n, entry in outer.codecs.items() if n != "calls" and n not in inner.codecs})
        common = self._attributes(both, attributes)
        given = {n: attributes.pop(n) for n in list(attributes) if n not in inner.definition.attributes}
        if shape is None:
            raise self.error(f"the shape of {opcode} must be written", at, f"{name} = shape {opcode}(...)")
        if kind == ASYNC_START:
            inner.check(self, operands, attributes, at)
            try:
                given["calls"] = sugar.wrap(wrapped, shape, operands, attributes, self._fresh_computation(f"{wrapped}_async"),
                                            common)
            except InvalidArgument as error:
                raise error.located(f"{opcode} (%{name})", self.place(at)[0]) from None
        outer.check(self, operands, given, at)
        return self._finish(outer, name, shape, operands, given, common, at, start)

    def _fresh_computation(self, name: str) -> str:
        """A name that no computation of the text has."""
        if self._taken is None:
            self._taken = set(re.findall(COMPUTATION_NAMED.format(f"({NAME})"), self.text))
        fresh = free_name(name, self._taken, self._computation_counts)
        self._taken.add(fresh)
        return fresh

    def _note_unknown(self, name: str, opcode: str, shape: Shape | None, at: int, start: int) -> Instruction:
        """Remember an unknown opcode and read on, so that one error can name all of them."""
        if not self._unknown:
            self._first_unknown = at
        self._unknown[opcode] += 1
        self.expect("(", "after an opcode")
        self.pos -= 1
        self.balanced()
        while match := _attribute.match(self.text, self.pos):
            self.pos = match.end()
            _raw.parse(self)
        return self._add(Instruction(opcode, shape or Shape.token(), (), {}, name), start)

    def unknown_opcodes(self) -> HloSyntaxError | None:
        """An error that names all unknown opcodes met so far, at the first of them; None if there were none."""
        if not self._unknown:
            return None
        counted = ", ".join(f"{opcode!r} ({count} time{'s' * (count > 1)})" for opcode, count in self._unknown.most_common())
        hints = (nearest(opcode, OPS) and f"{opcode}: {nearest(opcode, OPS)}" for opcode in self._unknown)
        several = "opcodes" if len(self._unknown) > 1 else "opcode"
        return self.error(f"unknown {several} {counted}", self._first_unknown, "opcodes of XLA", "; ".join(filter(None, hints)),
                          kind=UnknownOpcodeError)
