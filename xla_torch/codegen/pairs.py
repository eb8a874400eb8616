"""The exponentials of two numbers, each minus the larger of them, as a log-sum-exp of pairs has them: one of the two differences
is nothing, or no number where both are infinite, and its exponential needs no computing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..core.types import F32, F64
from ..hlo.ir import Instruction
from ..opcodes import elementwise
from .elements import element, name_of, same

Readers = Mapping[Instruction, Sequence[Instruction]]


def differences_of_pair(inst: Instruction, readers: Readers) -> tuple[Instruction, Instruction] | None:
    """The differences whose exponentials are this instruction and another one, in the same order for both; None where it is none
    of such a pair."""
    if inst.opcode != elementwise.exponential or inst.shape.element_type not in (F32, F64):
        return None
    own = inst.operands[0]
    if own.opcode != elementwise.subtract or own.operands[1].opcode != elementwise.maximum:
        return None
    top = own.operands[1]
    first, second = (_difference(number, top, readers) for number in top.operands)
    return None if first is None or second is None or first is second or own not in (first, second) else (first, second)


def _difference(number: Instruction, top: Instruction, readers: Readers) -> Instruction | None:
    """What takes `top` from a number, for an exponential."""
    return next((r for r in readers[top] if r.opcode == elementwise.subtract and tuple(r.operands) == (number, top)
                 and any(e.opcode == elementwise.exponential for e in readers[r])), None)


def exponential_of_pair(inst: Instruction, differences: Sequence[str], is_first: bool, fused: bool) -> str:
    """The code of one of the two exponentials, by the code of both differences. A compiler finds that what both need is the same.
    """
    (first, second), of = differences, inst.shape.element_type
    select, is_less = f"select_{name_of(of)}", f"{first} < 0"
    found = element(inst, [f"{select}({is_less}, {first}, {second})"], fused)
    return same(of, f"{select}({is_less}, {found}, 1 + {first})" if is_first else f"{select}({is_less}, 1 + {second}, {found})")
