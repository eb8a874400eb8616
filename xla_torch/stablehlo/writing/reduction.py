"""Rules: what combines elements by a region, and batch normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import functions as ops
from ...core.errors import UnsupportedError
from ...core.types import S32
from ...functions.hlo_builder import XlaOp
from ...hlo.attributes import WindowDimension
from ...hlo.ir import Instruction
from ...mlir.ir import Value
from ...opcodes import reduction, sorting, window
from .scope import Scope, matrix
from .writing_rules import Function, rule


@rule(reduction.reduce, says=("dimensions", "to_apply"))
def reduce(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    return scope.add("stablehlo.reduce", operands, instruction.shape,
                     {"dimensions": tuple(instruction.attributes["dimensions"])},
                     [scope.region(instruction.attributes["to_apply"])])


@rule(reduction.map_, says=("dimensions", "to_apply"))
def map_(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    dimensions = instruction.attributes.get("dimensions")
    return scope.add("stablehlo.map", operands, instruction.shape,
                     {"dimensions": tuple(range(instruction.shape.rank) if dimensions is None else dimensions)},
                     [scope.region(instruction.attributes["to_apply"])])


def window_attributes(given: Sequence[WindowDimension], base: str = "base_dilations", own: str = "window_dilations",
                      with_reversal: bool = False) -> dict[str, Any]:
    """A window as attributes. Raises UnsupportedError for a turned one where an operation has no word for that."""
    if not with_reversal and any(d.reversal for d in given):
        raise UnsupportedError("StableHLO turns windows of convolutions only", got=given)
    turned = {"window_reversal": tuple(bool(d.reversal) for d in given)} if given and with_reversal else {}
    return {"window_dimensions": tuple(d.size for d in given), "window_strides": tuple(d.stride for d in given),
            base: tuple(d.base_dilation for d in given), own: tuple(d.window_dilation for d in given),
            "padding": matrix([(d.padding_low, d.padding_high) for d in given]), **turned}


@rule(window.reduce_window, says=("to_apply", "window"))
def reduce_window(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    return scope.add("stablehlo.reduce_window", operands, instruction.shape,
                     window_attributes(instruction.attributes.get("window", ())),
                     [scope.region(instruction.attributes["to_apply"])])


@rule(window.select_and_scatter, says=("select", "scatter", "window"))
def select_and_scatter(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    given = instruction.attributes.get("window", ())
    if any((d.base_dilation, d.window_dilation) != (1, 1) for d in given):
        raise UnsupportedError("StableHLO has no dilated windows here", subject=instruction.subject, got=given)
    attributes = window_attributes(given)
    return scope.add("stablehlo.select_and_scatter", operands, instruction.shape,
                     {n: attributes[n] for n in ("window_dimensions", "window_strides", "padding")},
                     [scope.region(instruction.attributes[n]) for n in ("select", "scatter")])


@rule(sorting.sort, says=("dimensions", "to_apply", "is_stable"))
def sort(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    given = instruction.attributes
    return scope.add("stablehlo.sort", operands, instruction.shape,
                     {"dimension": given["dimensions"][0], "is_stable": bool(given.get("is_stable"))},
                     [scope.region(given["to_apply"])])


@rule(sorting.topk, says=("k", "largest"))
def topk(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    count = instruction.attributes["k"]
    if not instruction.attributes.get("largest", True):
        return scope.spelled(instruction, operands, lambda x: _smallest(x, count))
    return scope.add("chlo.top_k", operands, instruction.shape, {"k": count})


def _smallest(x: XlaOp, count: int) -> XlaOp:
    """The first of what is sorted, with the places, which equal ones keep."""
    last = x.shape.rank - 1
    places = ops.Iota(x.builder, x.shape.with_element_type(S32), last)
    whole = ops.Sort([x, places], lambda a, b, i, j: ops.LtTotalOrder(a, b), last, True)
    return ops.Tuple(x.builder, [ops.SliceInDim(ops.GetTupleElement(whole, k), 0, count, 1, last) for k in range(2)])


@rule(reduction.scan, says=("dimensions", "num_carries", "to_apply", "is_reverse", "is_associative"))
def scan(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    given = instruction.attributes
    carries = given["num_carries"]
    attributes: dict[str, Any] = {
        "dimension": given["dimensions"][0], "is_reverse": bool(given.get("is_reverse")),
        "operandSegmentSizes": (len(operands) - carries, carries),
        "resultSegmentSizes": (len(instruction.shape.tuple_shapes) - carries, carries)}
    if given.get("is_associative") is not None:
        attributes["is_associative"] = bool(given["is_associative"])
    return scope.add("chlo.scan", operands, instruction.shape, attributes, [scope.region(given["to_apply"])])


def _normalised(name: str) -> Function:
    def write(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
        given = instruction.attributes
        return scope.add(name, operands, instruction.shape,
                         {"epsilon": float(given["epsilon"]), "feature_index": given["feature_index"]})

    return write


for _opcode in (reduction.batch_norm_training, reduction.batch_norm_inference, reduction.batch_norm_grad):
    rule(_opcode, says=("epsilon", "feature_index"))(_normalised(f"stablehlo.{_opcode.replace('-', '_')}"))
