"""Recognising ``1 / (1 + exp(-x))``, which is how XLA's optimised dumps and many models write logistic(x).

Besides being one call instead of four, logistic has a gradient where the long form has none: once exp(-x) overflows, the
derivative of the quotient is 0 times infinity.
"""

from __future__ import annotations

from ..hlo.ir import Instruction


def logistic_argument(numerator: Instruction, denominator: Instruction) -> Instruction | None:
    """The x for which numerator / denominator is ``1 / (1 + exp(-x))``, or None."""
    if not numerator.shape.element_type.is_floating or not _is_one(numerator) or denominator.opcode != "add":
        return None
    for one, exponential in (denominator.operands, denominator.operands[::-1]):
        if _is_one(one) and exponential.opcode == "exponential" and exponential.operands[0].opcode == "negate":
            return exponential.operands[0].operands[0]
    return None


def _is_one(instruction: Instruction) -> bool:
    while instruction.opcode in ("broadcast", "reshape", "copy"):
        instruction = instruction.operands[0]
    if instruction.opcode != "constant" or not instruction.shape.is_scalar:
        return False
    literal = instruction.attributes["literal"]
    return not literal.elided and bool(literal.array == 1)
