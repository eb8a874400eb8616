"""What a reducer computes, read off its instructions.

Pure functions of the IR. They answer None for what they do not know; the callers then evaluate the region itself.
"""

from __future__ import annotations

from ..core.types import PrimitiveType
from ..hlo.inference import origin
from ..hlo.ir import Computation, Instruction
from ..hlo.regions import callee, is_call
from ..opcodes import convert
from ..opcodes.reducer_kinds import BY_OPCODE, ReducerKind

REPEATABLE = {ReducerKind.AND, ReducerKind.OR, ReducerKind.MINIMUM, ReducerKind.MAXIMUM}
"""What these give does not depend on how often an element occurs, and is one of the elements, or made of their bits."""


def reducer_kind(computation: Computation) -> ReducerKind | None:
    """What a computation of two scalars (accumulated, new) to one scalar of the same type does, or None.

    Computing in a wider type and converting back is looked through: one step gives the same value.
    """
    parameters = computation.parameters
    if len(parameters) != 2 or computation.root.shape.is_tuple:
        return None
    return _kind(computation.root, parameters[0], parameters[1])


def reducer_kinds(computation: Computation) -> tuple[ReducerKind | None, ...]:
    """The kinds of the N results of a computation of 2N scalars, where result k depends on parameters k and N + k only."""
    parameters, root = computation.parameters, origin(computation.root)
    count = len(parameters) // 2
    if not root.shape.is_tuple:
        return (reducer_kind(computation),)
    if not root.is_tuple or len(root.operands) != count:
        return (None,) * count
    return tuple(_kind(r, parameters[k], parameters[count + k]) for k, r in enumerate(root.operands))


def _kind(root: Instruction, left: Instruction, right: Instruction) -> ReducerKind | None:
    root = origin(root)
    element_type = left.shape.element_type
    if root.shape.element_type is not element_type or right.shape.element_type is not element_type:
        return None
    if root is left or root is right:
        return ReducerKind.FIRST if root is left else ReducerKind.SECOND
    if is_call(root):
        return reducer_kind(callee(root)) if [origin(o) for o in root.operands] == [left, right] else None
    wide = origin(root.operands[0]) if root.opcode == convert.convert else None
    if wide is not None and not _widens(element_type, wide.shape.element_type):
        return None
    step = wide or root
    kind = BY_OPCODE.get(step.opcode)
    if kind is None:
        return None
    operands = [origin(o) if wide is None else _widened(o) for o in step.operands]
    return kind if operands == [left, right] or (operands == [right, left] and kind.is_commutative) else None


def _widened(instruction: Instruction) -> Instruction | None:
    instruction = origin(instruction)
    return origin(instruction.operands[0]) if instruction.opcode == convert.convert else None


def _widens(narrow: PrimitiveType, wide: PrimitiveType) -> bool:
    """Whether an add, multiply, min or max done in `wide` and converted back is the same as one done in `narrow`."""
    if narrow.is_floating:
        return wide.is_floating and wide.bits >= 2 * narrow.bits
    same_sign = narrow.is_integral and narrow.kind is wide.kind
    return wide.bits > narrow.bits and (same_sign or (narrow.is_unsigned and wide.is_signed))


# --------------------------------------------------------------------------------------------- bodies of scans

_RUNNING = (ReducerKind.ADD, ReducerKind.MULTIPLY, ReducerKind.MINIMUM, ReducerKind.MAXIMUM)


def running_reducer(computation: Computation, inputs: int) -> ReducerKind | None:
    """The kind (of a sum, product, minimum or maximum) of a scan body ``(x, c) -> (f(c, x), f(c, x))``, or None."""
    root, parameters = computation.root, computation.parameters
    if inputs != 1 or len(parameters) != 2 or not root.is_tuple or len(root.operands) != 2:
        return None
    step = root.operands[0]
    kind = BY_OPCODE.get(step.opcode)
    if step is not root.operands[1] or kind not in _RUNNING:
        return None
    return kind if set(step.operands) == set(parameters) else None


def keeps_every_carry(computation: Computation) -> bool:
    """Whether the outputs of a scan body are its carries: ``(x..., c...) -> (y..., y...)``, as many as there are inputs."""
    root = computation.root
    count = len(root.operands) // 2
    return (root.is_tuple and len(root.operands) == len(computation.parameters) == 2 * count
            and list(root.operands[:count]) == list(root.operands[count:]))
