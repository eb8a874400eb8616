"""Rules: custom calls, with what they say of layouts, aliases and the computations that they call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ...core.errors import UnsupportedError
from ...core.shape import Shape
from ...hlo.ir import Instruction
from ...mlir.ir import Struct, Symbol, TupleType, Type, Value
from ...opcodes import internal
from .headers import layout_of
from .scope import Scope, dictionary_of, type_of
from .writing_rules import rule

_TYPED_FFI = "API_VERSION_TYPED_FFI"
_VERSIONS = {"API_VERSION_ORIGINAL": 1, "API_VERSION_STATUS_RETURNING": 2, "API_VERSION_STATUS_RETURNING_UNIFIED": 3,
             _TYPED_FFI: 4}
_ALIAS = re.compile(r"\{([\d, ]*)\}\s*:\s*\(\s*(\d+)\s*,\s*\{([\d, ]*)\}")


@rule(internal.custom_call, says=("custom_call_target", "api_version", "custom_call_has_side_effect", "called_computations",
                                  "operand_layout_constraints", "output_to_operand_aliasing"))
def custom_call(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    given, shape = instruction.attributes, instruction.shape
    version = given.get("api_version") or "API_VERSION_ORIGINAL"
    config = str(instruction.common.get("backend_config", ""))
    attributes: dict[str, Any] = {
        "call_target_name": given["custom_call_target"], "api_version": _VERSIONS[version],
        "has_side_effect": bool(given.get("custom_call_has_side_effect")),
        "backend_config": dictionary_of(config or "{}", instruction) if version == _TYPED_FFI else config}
    called = [Symbol(scope.functions.name_of(c)) for c in given.get("called_computations", ())]
    if called:
        attributes["called_computations"] = tuple(called)
    if given.get("output_to_operand_aliasing"):
        attributes["output_operand_aliases"] = _aliases(given["output_to_operand_aliasing"])
    if given.get("operand_layout_constraints"):
        attributes |= _layouts(instruction, given["operand_layout_constraints"])
    packed = _packed(scope, instruction, operands)
    if shape.is_tuple and len(shape.tuple_shapes) > 1 and not any(s.is_tuple for s in shape.tuple_shapes):
        return scope.add("stablehlo.custom_call", packed, shape, attributes)
    return _taken(scope, scope.made("stablehlo.custom_call", packed, [_whole(shape)], attributes)[0], shape)


# ------------------------------------------------------------------------------------------------------- tuples


def _whole(shape: Shape) -> Type:
    return TupleType(tuple(map(_whole, shape.tuple_shapes))) if shape.is_tuple else type_of(shape)


def _packed(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> list[Value]:
    """The operands as the target takes them, tuples among them."""
    left = iter(operands)

    def pack(shape: Shape) -> Value:
        if not shape.is_tuple:
            return next(left)
        return scope.made("stablehlo.tuple", [pack(s) for s in shape.tuple_shapes], [_whole(shape)], {})[0]

    return [pack(o.shape) for o in instruction.operands]


def _taken(scope: Scope, value: Value, shape: Shape) -> list[Value]:
    """The leaves of a value that may be a tuple."""
    if not shape.is_tuple:
        return [value]
    parts = [scope.made("stablehlo.get_tuple_element", [value], [_whole(s)], {"index": k})[0]
             for k, s in enumerate(shape.tuple_shapes)]
    return [v for part, s in zip(parts, shape.tuple_shapes, strict=True) for v in _taken(scope, part, s)]


# ------------------------------------------------------------------------------------------------------- layouts, aliases


def _layouts(instruction: Instruction, constraints: str) -> dict[str, Any]:
    operands = Shape.parse(f"({constraints.strip()[1:-1]})").tuple_shapes
    shape = instruction.shape
    results = shape.tuple_shapes if shape.is_tuple else (shape,)
    if any(s.is_tuple for s in (*operands, *results)):
        raise UnsupportedError("StableHLO has no layouts of tuples in tuples", subject=instruction.subject, got=constraints)
    return {"operand_layouts": tuple(map(layout_of, operands)), "result_layouts": tuple(map(layout_of, results))}


def _aliases(text: str) -> tuple[Struct, ...]:
    return tuple(Struct("stablehlo.output_operand_alias", {
        "output_tuple_indices": _numbers(output), "operand_index": int(number), "operand_tuple_indices": _numbers(inner)})
        for output, number, inner in _ALIAS.findall(text))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)))
