"""What an array is known to be, read off the instruction that makes it and those before it.

``1 / (1 + exp(-x))`` is how XLA's optimised dumps and many models write logistic(x). Besides being one call instead of four,
logistic has a gradient where the long form has none: once exp(-x) overflows, the derivative of the quotient is 0 times
infinity.
"""

from __future__ import annotations

from ..core.types import has_zero
from ..hlo.inference import origin, splat_of
from ..hlo.ir import Instruction
from ..opcodes import elementwise, movement


def logistic_argument(numerator: Instruction, denominator: Instruction) -> Instruction | None:
    """The x for which numerator / denominator is ``1 / (1 + exp(-x))``, or None."""
    if not numerator.shape.element_type.is_floating or not _is_one(numerator) or denominator.opcode != elementwise.add:
        return None
    for one, power in (denominator.operands, denominator.operands[::-1]):
        if _is_one(one) and power.opcode == elementwise.exponential and power.operands[0].opcode == elementwise.negate:
            return power.operands[0].operands[0]
    return None


def _is_one(instruction: Instruction) -> bool:
    literal = splat_of(instruction)
    return literal is not None and bool(literal.array == 1)


def is_positive_zero(instruction: Instruction) -> bool:
    """Whether each element is known to be +0.0 (of complex numbers both parts), 0 or false."""
    literal = splat_of(instruction)
    return literal is not None and has_zero(literal.shape.element_type) and not any(literal.array.tobytes())


def counts_along(instruction: Instruction, dimension: int) -> bool:
    """Whether the values are known to be 0, 1, 2, ... along a dimension, without wrapping round, the same at all other
    positions."""
    instruction = origin(instruction)
    if instruction.opcode == movement.broadcast:
        placed = instruction.attributes.get("dimensions", ())
        return dimension in placed and counts_along(instruction.operands[0], placed.index(dimension))
    if instruction.opcode != movement.iota or instruction.attributes["iota_dimension"] != dimension:
        return False
    element_type, size = instruction.shape.element_type, instruction.shape.dimensions[dimension]
    return not element_type.is_integral or size <= 1 << (element_type.bits - element_type.is_signed)
