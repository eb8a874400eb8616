"""Rules: elementwise arithmetic, comparisons, conversions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import functions as ops
from ...core.errors import UnsupportedError
from ...core.types import PRED, U8, PrimitiveType
from ...functions.hlo_builder import XlaOp
from ...hlo.ir import Instruction
from ...hlo.schema import OPS
from ...mlir.ir import Enum, Struct, Value
from ...opcodes import comparison, convert, elementwise
from .scope import Scope
from .writing_rules import Function, rule


def plain(name: str) -> Function:
    """The rule of an op with the operands of an operation."""

    def write(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
        return scope.add(name, operands, instruction.shape, _accuracy(instruction))

    return write


ACCURATE = frozenset({
    elementwise.cbrt, elementwise.cosine, elementwise.exponential, elementwise.exponential_minus_one, elementwise.log,
    elementwise.log_plus_one, elementwise.logistic, elementwise.rsqrt, elementwise.sine, elementwise.sqrt, elementwise.tan,
    elementwise.tanh})
"""The functions of which StableHLO says how accurate they are."""


def _accuracy(instruction: Instruction) -> dict[str, Any]:
    """How accurate the result is asked to be, where that is said."""
    stated = instruction.attributes.get("result_accuracy")
    if stated is None or stated.mode == "default":
        return {}
    if instruction.opcode not in ACCURATE:
        raise UnsupportedError("StableHLO has no accuracy of results here", subject=instruction.subject, got=stated)
    fields = {"atol": float(stated.atol or 0), "rtol": float(stated.rtol or 0), "ulps": stated.ulps or 0,
              "mode": Enum("stablehlo.result_accuracy_mode", stated.mode.upper())}
    return {"result_accuracy": Struct("stablehlo.result_accuracy", fields)}


_OF_CLIENTS = (elementwise.acos, elementwise.acosh, elementwise.asin, elementwise.asinh, elementwise.atan, elementwise.atanh,
               elementwise.cosh, elementwise.sinh, elementwise.erf, elementwise.mulhi)
"""Functions that CHLO has."""

for _schema in OPS.values():
    if (_schema.elementwise and _schema.stablehlo and _schema.attributes.keys() <= {"result_accuracy"}
            and _schema.opcode not in _OF_CLIENTS):
        rule(_schema.opcode, says=("result_accuracy",))(plain(f"stablehlo.{_schema.stablehlo}"))

for _opcode in _OF_CLIENTS:
    rule(_opcode, says=("result_accuracy",))(plain(f"chlo.{_opcode.replace('-', '_')}"))


@rule(convert.bitcast_convert)
def bitcast_convert(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    """StableHLO's i1 has one bit, where HLO counts 8 of a PRED: they are written as bytes."""
    source, target = instruction.operands[0].shape.element_type, instruction.shape.element_type
    if source is target or PRED not in (source, target):
        return scope.add("stablehlo.bitcast_convert", operands, instruction.shape)
    return scope.spelled(instruction, operands, lambda x: _bits_of_bytes(x, target))


def _bits_of_bytes(x: XlaOp, target: PrimitiveType) -> XlaOp:
    if x.element_type is PRED:
        x = ops.ConvertElementType(x, U8)
    wanted = U8 if target is PRED else target
    x = x if x.element_type is wanted else ops.BitcastConvertType(x, wanted)
    return ops.ConvertElementType(x, target)


@rule(comparison.compare, says=("direction", "type"))
def compare(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    attributes: dict[str, Any] = {
        "comparison_direction": Enum("stablehlo.comparison_direction", instruction.attributes["direction"])}
    if instruction.attributes.get("type"):
        attributes["compare_type"] = Enum("stablehlo.comparison_type", instruction.attributes["type"])
    return scope.add("stablehlo.compare", operands, instruction.shape, attributes)


@rule(convert.reduce_precision, says=("exponent_bits", "mantissa_bits"))
def reduce_precision(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    return scope.add("stablehlo.reduce_precision", operands, instruction.shape, dict(instruction.attributes))
