"""The short spelling of asynchronous wrappers: ``negate-start(%a)`` for an ``async-start`` that calls a computation of one
``negate``, and ``negate-update``, ``negate-done`` for what follows it. XLA prints it wherever it can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import InvalidArgument
from ..opcodes import OPS
from ..shape import Shape
from .ir import Computation, Instruction

_suffixes = {"-start": "async-start", "-update": "async-update", "-done": "async-done"}


def split(opcode: str) -> tuple[str, str]:
    """``("async-start", "negate")`` for ``negate-start``; a pair of "" for what has no such ending."""
    for suffix, kind in _suffixes.items():
        if opcode.endswith(suffix):
            return kind, opcode.removesuffix(suffix)
    return "", ""


def wrap(opcode: str, shape: Shape, operands: Sequence[Instruction], attributes: Mapping[str, Any], name: str) -> Computation:
    """The computation that ``opcode-start`` calls. `shape` is that of the start: ((operands), result, contexts...).

    Raises InvalidArgument for another shape.
    """
    if not (shape.is_tuple and len(shape.tuple_shapes) >= 2 and shape.tuple_shapes[0].is_tuple):
        raise InvalidArgument("the result of an asynchronous start has another form", got=shape,
                              expected="((operand shapes), result shape, contexts...)")
    parameters = [Instruction("parameter", operand.shape, (), {"parameter_number": number}, f"param_{number}")
                  for number, operand in enumerate(operands)]
    root = Instruction(opcode, shape.tuple_shapes[1], parameters, attributes, opcode)
    return Computation(name, [*parameters, root], root)


def wrapped(instruction: Instruction) -> Instruction | None:
    """The instruction inside an async-start, -update or -done if the short spelling can say it all, else None."""
    while instruction.opcode in ("async-update", "async-done") and instruction.operands:
        instruction = instruction.operands[0]
    computation = instruction.attributes.get("calls")
    if instruction.opcode != "async-start" or not isinstance(computation, Computation):
        return None
    root, parameters = computation.root, computation.parameters
    plain = (root.operands == parameters and len(computation.instructions) == len(parameters) + 1 and not root.common
             and not any(p.common for p in parameters) and not root.attributes.keys() & instruction.attributes.keys())
    return root if plain and root.opcode in OPS and f"{root.opcode}-start" not in OPS else None
