"""Which op computes in what, where a program is put in another precision.

**In float16 or bfloat16** (as torch's autocast has it on CUDA):

- products (dot, ragged-dot, convolution) take operands of the lower precision and give it, also where a bias (a smaller array,
  spread over the result) is added; they sum up in float32 inside;
- sums, products and means of many elements, windows and scatters that add, cumulative sums, exponentials, logarithms, powers
  (squares, too) and other transcendental functions, norms, factorizations, FFTs and random numbers compute in the precision
  that the program had: so softmax, norms and losses do;
- everything else (arithmetic, comparisons, selects, what moves elements, largest and smallest elements, sorts) computes in the
  widest precision among its operands, of which constants of one number do not count;
- what loops carry has the widest precision of what comes into it; what is written into an array takes the array's.

**In float32 or float64** all that was of the other of the two is of this one.

Conversions that the program itself makes to a lower precision stay. Bits of floats are those of the precision that the program
had, and what custom calls and exchanges with the outside take and give is of that, too.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Mapping

from ..analysis.reducers import REPEATABLE, reducer_kinds
from ..core.errors import InvalidArgument
from ..core.types import BF16, C64, C128, F16, F32, F64, PrimitiveType
from ..hlo.ir import Instruction
from ..hlo.schema import OPS, Trait
from ..opcodes import contraction, convert, convolution, elementwise, internal, movement, reduction, token, window

PRECISIONS = (F16, BF16, F32, F64)
"""The element types that a program can be put in. Narrower ones are only ever what a program says itself."""

INEXACT = (*PRECISIONS, C64, C128)
"""The element types that change with that."""


class Computes(enum.Enum):
    """In which precision an op computes."""

    LOWER = "the lower one"
    WIDEST = "the widest of its operands"
    ITS_OWN = "that which the program had"
    EXACTLY = "that which the program had, bit for bit"


@dataclasses.dataclass(frozen=True)
class Precision:
    """What a program is put in: products in `lower`, where there is such, and all other types in what `types` says."""

    lower: PrimitiveType | None = None
    types: Mapping[PrimitiveType, PrimitiveType] = dataclasses.field(default_factory=dict)

    def of(self, element_type: PrimitiveType) -> PrimitiveType:
        """The type that an op has, if it computes in its own."""
        return self.types.get(element_type, element_type)


def precision_of(element_type: PrimitiveType) -> Precision:
    """What a program is put in, by the type that its parameters get. Raises InvalidArgument for others than `PRECISIONS`."""
    if element_type not in PRECISIONS:
        raise InvalidArgument("unknown precision", subject="to", got=element_type.text,
                              expected=", ".join(p.text for p in PRECISIONS))
    if element_type.bits == 16:
        return Precision(element_type)
    return Precision(types={F64: F32, C128: C64} if element_type is F32 else {F32: F64, C64: C128})


def widest(types: Iterable[PrimitiveType]) -> PrimitiveType:
    """The narrowest type that holds all numbers of these, of which there is one."""
    found = set(types)
    most = max(t.bits for t in found)
    several = [t for t in found if t.bits == most]
    return several[0] if len(several) == 1 else F32


PRODUCTS = {contraction.dot, contraction.ragged_dot, convolution.convolution}
_EXACTLY = {convert.bitcast_convert, convert.stochastic_convert, internal.custom_call, contraction.scaled_dot, token.infeed,
            token.outfeed}
_FUNCTIONS = {elementwise.acos, elementwise.acosh, elementwise.asin, elementwise.asinh, elementwise.atan, elementwise.atanh,
              elementwise.cosh, elementwise.sinh, elementwise.complex_}
"""Elementwise ops that are no arithmetic, beside those that are transcendental by trait."""
_FIRST_HALVES = {first for schema in OPS.values() for first in (*schema.completes, schema.channel_of)}
_REDUCTIONS = {reduction.reduce, window.reduce_window}
_MOVES = Trait.MOVES_DATA | Trait.REARRANGES | Trait.FORWARDS


def computes(instruction: Instruction) -> Computes:
    """In which precision an instruction computes."""
    opcode, schema = instruction.opcode, instruction.schema
    if opcode in PRODUCTS:
        return Computes.LOWER
    if opcode in _EXACTLY or schema.is_second_half or opcode in _FIRST_HALVES:
        return Computes.EXACTLY
    if opcode in _REDUCTIONS and set(reducer_kinds(instruction.attributes["to_apply"])) <= REPEATABLE:
        return Computes.WIDEST
    if opcode == elementwise.multiply and instruction.operands[0] is instruction.operands[1]:
        return Computes.ITS_OWN  # a power
    is_arithmetic = schema.elementwise and not schema.has(Trait.TRANSCENDENTAL) and opcode not in _FUNCTIONS
    return Computes.WIDEST if is_arithmetic or schema.traits & _MOVES else Computes.ITS_OWN


def is_bias(value: Instruction) -> bool:
    """Whether a value is a smaller array that was broadcast."""
    source = value
    while source.opcode in (movement.broadcast, movement.reshape):
        (source,) = source.operands
    return source.shape.element_count < value.shape.element_count
