"""Ops that are the structure of programs in derivatives: tuples, and what passes values whole into computations or along
channels. They have no rule in the gradient table.

Each is treated by a `Structural`. Which one, the region interface says where an instruction runs computations of whole values
(`Control`, so that a new op of such a kind is understood), and else the table `STRUCTURE` by opcode. `loops`, `branches` and
`transfers` enter theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from ..analysis.channel_pairs import ChannelPair
from ..functions.hlo_builder import Builder, XlaOp
from ..hlo import tree
from ..hlo.ir import Instruction
from ..hlo.rule_tables import RuleTable
from ..hlo.schema import Control
from ..opcodes import control
from ..transform.values import Value
from .cotangents import Cotangent
from .flags import Facts, Flags
from .options import GradientOptions

Tangent = Cotangent
"""What flows forward with a value: an op of its shape, for a tuple one tangent for each element, None for zero."""


class ReversePass(Protocol):
    """What a `Structural` sees of a recording (see `engine.Recording`)."""

    builder: Builder
    options: GradientOptions
    values: dict[Instruction, Value]
    kept: list[XlaOp]
    emitted: dict[Instruction, Any]

    @property
    def facts(self) -> Facts: ...

    def visit(self, instruction: Instruction, operands: list[Value], arguments: Sequence[Value]) -> Value: ...


class ForwardPass(Protocol):
    """What a `Structural` sees of a run with tangents (see `forward.Forward`)."""

    builder: Builder
    active: dict[Instruction, Flags]
    pairs: list[ChannelPair]

    def visit(self, instruction: Instruction, operands: list[Value], arguments: Sequence[Value]) -> Value: ...


class Structural:
    """How one kind of structure is differentiated."""

    def active(self, instruction: Instruction, operands: list[Flags]) -> Flags:
        """Which parts of the result depend on the flagged parts of the operands."""
        raise NotImplementedError

    def demand(self, instruction: Instruction, wanted: Flags, operands: list[Flags]) -> list[Flags]:
        """For each operand, which of its active parts get a cotangent when the flagged parts of the result have one."""
        raise NotImplementedError

    def forward(self, run: ReversePass, instruction: Instruction, operands: list[Value]) -> Value:
        """Emit the op, with what walking back will need. Called only where a cotangent is demanded."""
        return run.visit(instruction, operands, ())

    def incoming(self, run: ReversePass, instruction: Instruction, ct: Cotangent) -> Cotangent:
        """The result's cotangent, given what the instructions after it made of it."""
        return ct

    def backward(self, run: ReversePass, instruction: Instruction, ct: Cotangent) -> Sequence[Cotangent]:
        """The operands' cotangents."""
        raise NotImplementedError

    def tangent(self, run: ForwardPass, instruction: Instruction, operands: list[Value],
                tangents: list[Tangent]) -> tuple[Value, Tangent]:
        """Emit the op with its tangent, for the operands' tangents: the result's value and its tangent."""
        raise NotImplementedError


REGIONS: dict[Control, Structural] = {}
"""How each kind of op with regions of whole values is differentiated. Calls are none of them: they are opened before, as the
canonical form has it."""

STRUCTURE: RuleTable[Structural] = RuleTable(
    "derivative of structure",
    filled_by=[f"{__package__}.{module}" for module in ("branches", "call_derivatives", "loops", "transfers")])
"""All other structure, by opcode."""


def structural(instruction: Instruction) -> Structural | None:
    """How an instruction is differentiated that is structure; None for an op with rules in the gradient table."""
    kind = instruction.schema.control
    if kind not in REGIONS:
        STRUCTURE.fill()
    return STRUCTURE.get(instruction.opcode) if kind is None else REGIONS.get(kind)


_Kind = TypeVar("_Kind", bound=Structural)


def region_kind(kind: Control) -> Callable[[type[_Kind]], type[_Kind]]:
    """Enter a Structural for a kind of ops with regions."""

    def enter(cls: type[_Kind]) -> type[_Kind]:
        REGIONS[kind] = cls()
        return cls

    return enter


def structure(opcode: str) -> Callable[[type[_Kind]], type[_Kind]]:
    """Enter a Structural for an opcode."""

    def enter(cls: type[_Kind]) -> type[_Kind]:
        STRUCTURE.add(opcode, cls())
        return cls

    return enter


# ------------------------------------------------------------------------------------------------ tuples


@structure(control.tuple_)
class _Tuple(Structural):
    def active(self, instruction: Instruction, operands: list[Flags]) -> Flags:
        return tuple(operands)

    def demand(self, instruction: Instruction, wanted: Flags, operands: list[Flags]) -> list[Flags]:
        assert isinstance(wanted, tuple)
        return list(wanted)

    def backward(self, run: ReversePass, instruction: Instruction, ct: Cotangent) -> Sequence[Cotangent]:
        assert isinstance(ct, tuple)
        return ct

    def tangent(self, run: ForwardPass, instruction: Instruction, operands: list[Value],
                tangents: list[Tangent]) -> tuple[Value, Tangent]:
        return list(operands), tuple(tangents)


@structure(control.get_tuple_element)
class _Element(Structural):
    def active(self, instruction: Instruction, operands: list[Flags]) -> Flags:
        whole = operands[0]
        assert isinstance(whole, tuple)
        return whole[instruction.attributes["index"]]

    def demand(self, instruction: Instruction, wanted: Flags, operands: list[Flags]) -> list[Flags]:
        return [_at(instruction, wanted)]

    def backward(self, run: ReversePass, instruction: Instruction, ct: Cotangent) -> Sequence[Cotangent]:
        return [_at(instruction, ct)]

    def tangent(self, run: ForwardPass, instruction: Instruction, operands: list[Value],
                tangents: list[Tangent]) -> tuple[Value, Tangent]:
        (whole,) = tangents
        part = whole[instruction.attributes["index"]] if isinstance(whole, tuple) else None
        return run.visit(instruction, operands, ()), part


def _at(element: Instruction, part: Any) -> Any:
    """`part` at the element's place in its tuple."""
    return tree.At(element.attributes["index"], len(element.operands[0].shape.tuple_shapes), part)
