"""The short spelling of asynchronous wrappers: ``negate-start(%a)`` for an ``async-start`` that calls a computation of one
``negate``, and ``negate-update``, ``negate-done`` for what follows it. XLA prints it wherever it can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..core.errors import InvalidArgument
from ..core.shape import Shape
from .ir import Computation, Instruction
from .schema import OPS
from .structure import ASYNC_DONE, ASYNC_START, ASYNC_UPDATE, PARAMETER

_suffixes = {"-start": ASYNC_START, "-update": ASYNC_UPDATE, "-done": ASYNC_DONE}


_SHARED = "backend_config"


def split(opcode: str) -> tuple[str, str]:
    """``("async-start", "negate")`` for ``negate-start``; a pair of "" for what has no such ending."""
    for suffix, kind in _suffixes.items():
        if opcode.endswith(suffix):
            return kind, opcode.removesuffix(suffix)
    return "", ""


def wrap(opcode: str, shape: Shape, operands: Sequence[Instruction], attributes: Mapping[str, Any], name: str,
         common: Mapping[str, Any]) -> Computation:
    """The computation that ``opcode-start`` calls. `shape` is that of the start: ((operands), result, contexts...). The start's
    configuration, one of its `common` facts, is also what configures the wrapped op.

    Raises InvalidArgument for another shape.
    """
    if not (shape.is_tuple and len(shape.tuple_shapes) >= 2 and shape.tuple_shapes[0].is_tuple):
        raise InvalidArgument("the result of an asynchronous start has another form", got=shape,
                              expected="((operand shapes), result shape, contexts...)")
    parameters = [Instruction(PARAMETER, operand.shape, (), {"parameter_number": number}, f"param_{number}")
                  for number, operand in enumerate(operands)]
    root = Instruction(opcode, shape.tuple_shapes[1], parameters, attributes, opcode,
                       {key: value for key, value in common.items() if key == _SHARED})
    return Computation(name, [*parameters, root], root)


def wrapped(instruction: Instruction) -> Instruction | None:
    """The instruction inside an async-start, -update or -done if the short spelling can say it all, else None."""
    while instruction.opcode in (ASYNC_UPDATE, ASYNC_DONE) and instruction.operands:
        instruction = instruction.operands[0]
    computation = instruction.attributes.get("calls")
    if instruction.opcode != ASYNC_START or not isinstance(computation, Computation):
        return None
    root, parameters = computation.root, computation.parameters
    stated = {_SHARED: instruction.common[_SHARED]} if _SHARED in instruction.common else {}
    plain = (root.operands == parameters and len(computation.instructions) == len(parameters) + 1 and root.common == stated
             and not any(p.common for p in parameters) and not root.attributes.keys() & instruction.attributes.keys())
    return root if plain and root.opcode in OPS and f"{root.opcode}-start" not in OPS else None
