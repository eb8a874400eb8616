"""Rules: elementwise arithmetic, comparisons, conversions.

The schemas of HLO's ops say what they are called in StableHLO, and those of a family take the same operands in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.errors import UnsupportedError
from ..core.shape import UNBOUNDED
from ..core.types import PRED, U1
from ..functions.convert import BitcastConvertType, ConvertElementType
from ..functions.elementwise_binary import Pow
from ..functions.hlo_builder import XlaOp
from ..hlo.attributes import ResultAccuracy
from ..hlo.schema import OPS
from ..mlir.ir import Operation
from ..opcodes import comparison, convert, elementwise
from .attributes import fields, integer, word
from .reading_rules import Results, Rule, rule
from .scope import Scope


def accuracy(operation: Operation) -> dict[str, Any]:
    """The attribute ``result_accuracy`` of functions, if it says anything."""
    if operation.attributes.get("result_accuracy") is None:
        return {}
    given = fields(operation, "result_accuracy")
    mode = getattr(given.get("mode"), "value", "DEFAULT")
    if mode == "DEFAULT":
        return {}
    if mode == "HIGHEST":
        return {"result_accuracy": ResultAccuracy("highest")}
    return {"result_accuracy": ResultAccuracy("tolerance", float(given.get("atol", 0)), float(given.get("rtol", 0)),
                                              int(given.get("ulps", 0)))}


def plain(opcode: str) -> Rule:
    """The rule of an operation with the operands of an HLO op, and no attributes."""

    def convert_plain(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
        return scope.program.elementwise(scope.builder, opcode, operands)

    return convert_plain


def function(opcode: str) -> Rule:
    """The rule of a function whose accuracy may be said."""

    def convert_function(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
        return scope.builder.add(opcode, operands, accuracy(operation))

    return convert_function


for _schema in OPS.values():
    _name = f"stablehlo.{_schema.stablehlo}"
    if (_schema.elementwise and _schema.stablehlo and _schema.attributes.keys() <= {"result_accuracy"}
            and _schema.opcode not in (convert.convert, elementwise.cbrt)):
        rule(_name)((function if _schema.attributes else plain)(_schema.opcode))

for _opcode in (elementwise.acos, elementwise.acosh, elementwise.asin, elementwise.asinh, elementwise.atan, elementwise.atanh,
                elementwise.cosh, elementwise.sinh, elementwise.erf):
    rule(f"mhlo.{_opcode}")(function(_opcode))


@rule("stablehlo.cbrt")
def cbrt(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    """Real cube roots as HLO has them; of complex numbers the principal one, for which HLO has no op."""
    if operands[0].element_type.is_complex:
        return Pow(operands[0], 1 / 3)
    return scope.builder.add(elementwise.cbrt, operands, accuracy(operation))


@rule("stablehlo.compare")
def compare(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    attributes = {"direction": word(operation, "comparison_direction")}
    order = word(operation, "compare_type", "NOTYPE")
    if order == "WEAKORDER":
        raise UnsupportedError("a weak order, for which HLO has no comparison", got=order,
                               expected="FLOAT, TOTALORDER, SIGNED or UNSIGNED")
    if order == "TOTALORDER":
        attributes["type"] = order
    return scope.add(comparison.compare, operands, attributes)


@rule("stablehlo.convert")
def convert_type(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return ConvertElementType(operands[0], scope.declared(operation).element_type)


@rule("stablehlo.bitcast_convert")
def bitcast_convert(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    """Here i1 has one bit; in HLO, where PRED counts as 8, that is U1."""
    (operand,), declared = operands, scope.declared(operation)
    source, target = operand.element_type, declared.element_type
    if UNBOUNDED in operand.shape.dimensions:
        return scope.add(convert.bitcast_convert, operands, shape=declared)
    if source is target or PRED not in (source, target):
        return BitcastConvertType(operand, target)
    if source is PRED:
        return BitcastConvertType(ConvertElementType(operand, U1), target)
    return ConvertElementType(BitcastConvertType(operand, U1), PRED)


@rule("stablehlo.reduce_precision")
def reduce_precision(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return scope.add(convert.reduce_precision, operands, {
        "exponent_bits": integer(operation, "exponent_bits"), "mantissa_bits": integer(operation, "mantissa_bits")})


@rule("mhlo.stochastic_convert")
def stochastic_convert(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    shape = operands[0].shape.with_element_type(scope.declared(operation).element_type)
    return scope.add(convert.stochastic_convert, operands, shape=shape)
