"""Rules: elementwise arithmetic, comparisons, conversions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import UnsupportedError
from ...hlo.ir import Instruction
from ...hlo.schema import OPS
from ...mlir.ir import Enum, Value
from ...opcodes import comparison, convert, elementwise
from .scope import Scope
from .table import Function, rule


def plain(name: str) -> Function:
    """The rule of an op with the operands of an operation. An accuracy other than the default one is refused."""

    def write(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
        accuracy = instruction.attributes.get("result_accuracy")
        if accuracy is not None and accuracy.mode != "default":
            raise UnsupportedError("an accuracy of results is not written", subject=instruction.subject, got=accuracy)
        return scope.add(name, operands, instruction.shape)

    return write


for _schema in OPS.values():
    if _schema.elementwise and _schema.stablehlo and _schema.attributes.keys() <= {"result_accuracy"}:
        rule(_schema.opcode, says=("result_accuracy",))(plain(f"stablehlo.{_schema.stablehlo}"))

for _opcode in (elementwise.acos, elementwise.acosh, elementwise.asin, elementwise.asinh, elementwise.atan, elementwise.atanh,
                elementwise.cosh, elementwise.sinh, elementwise.erf):
    rule(_opcode, says=("result_accuracy",))(plain(f"chlo.{_opcode}"))

rule(convert.bitcast_convert)(plain("stablehlo.bitcast_convert"))


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
