"""Rules: what combines elements by a region: reductions, windows, map, sort; and batch normalisation.

The specification lets a region of a reduction take wider elements than the operands have, which are then promoted. HLO does not:
operands are converted first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.errors import InvalidArgument
from ..core.shape import Shape
from ..core.types import PrimitiveType
from ..functions.convert import ConvertElementType
from ..functions.hlo_builder import XlaOp
from ..functions.sorting import TopK
from ..hlo.attributes import WindowDimension
from ..mlir.ir import Operation, Region
from ..opcodes import reduction, sorting, window
from .attributes import boolean, flags, integer, integers, number, pairs
from .reading_rules import Results, rule
from .scope import Scope, only_block


def promoted(operand: XlaOp, element_type: PrimitiveType) -> XlaOp:
    """The operand with other elements."""
    return operand if operand.element_type is element_type else ConvertElementType(operand, element_type)


def element_shapes(scope: Scope, region: Region) -> list[Shape]:
    """The shapes of a region's arguments, as written."""
    return [scope.program.shape_of(a.type) for a in only_block(region).arguments]


def _halves(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> list[XlaOp]:
    """Arrays and init values with the elements of the results."""
    count = len(operation.results)
    if len(operands) != 2 * count or not count:
        raise InvalidArgument("wrong number of operands", got=len(operands), expected=f"{2 * count} for {count} results")
    elements = [scope.declared(operation, k).element_type for k in range(count)]
    return [promoted(o, elements[k % count]) for k, o in enumerate(operands)]


@rule("stablehlo.reduce")
def reduce(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    region = operation.regions[0]
    made = scope.add(reduction.reduce, _halves(scope, operation, operands), {
        "dimensions": integers(operation, "dimensions"), "to_apply": scope.region(region, element_shapes(scope, region))})
    return scope.several(made, operation)


@rule("stablehlo.reduce_window")
def reduce_window(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    region = operation.regions[0]
    made = scope.add(window.reduce_window, _halves(scope, operation, operands), {
        "to_apply": scope.region(region, element_shapes(scope, region)),
        "window": window_of(operation, integers(operation, "window_dimensions"))})
    return scope.several(made, operation)


def window_of(operation: Operation, sizes: Sequence[int], base: str = "base_dilations", own: str = "window_dilations",
              padding: Sequence[tuple[int, int]] | None = None) -> tuple[WindowDimension, ...]:
    """The window of these sizes, with all else from the attributes."""
    rank = len(sizes)
    strides = integers(operation, "window_strides", (1,) * rank)
    dilations = integers(operation, base, (1,) * rank), integers(operation, own, (1,) * rank)
    reversal = flags(operation, "window_reversal", (False,) * rank)
    padded = pairs(operation, "padding", rank) if padding is None else padding
    if any(len(given) != rank for given in (strides, *dilations, reversal, padded)):
        raise InvalidArgument("the window's attributes differ in number", expected=f"one entry for each of {rank} dimensions")
    return tuple(WindowDimension(size, stride, low, high, lhs, rhs, turned) for size, stride, (low, high), lhs, rhs, turned
                 in zip(sizes, strides, padded, *dilations, reversal, strict=True))


@rule("stablehlo.select_and_scatter")
def select_and_scatter(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    """XLA has the choice in the same type as the sum: where that is wider, the region that chooses goes on in its own."""
    select, scatter = operation.regions
    element = scope.declared(operation).element_type
    chosen = element_shapes(scope, select)

    def prepare(inner: Scope, parameters: list[XlaOp]) -> list[XlaOp]:
        return [promoted(p, own.element_type) for p, own in zip(parameters, chosen, strict=True)]

    return scope.add(window.select_and_scatter, [promoted(o, element) for o in operands], {
        "select": scope.region(select, [s.with_element_type(element) for s in chosen], prepare=prepare),
        "scatter": scope.region(scatter, element_shapes(scope, scatter)),
        "window": window_of(operation, integers(operation, "window_dimensions", (1,) * operands[0].shape.rank))})


@rule("stablehlo.map")
def map_(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    region = operation.regions[0]
    return scope.add(reduction.map_, operands, {
        "to_apply": scope.region(region, element_shapes(scope, region)), "dimensions": integers(operation, "dimensions")})


@rule("stablehlo.sort")
def sort(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    region, dimension = operation.regions[0], integer(operation, "dimension", -1)
    attributes: dict[str, Any] = {"dimensions": (dimension if dimension >= 0 else dimension + operands[0].shape.rank,),
                                  "to_apply": scope.region(region, element_shapes(scope, region))}
    if boolean(operation, "is_stable"):
        attributes["is_stable"] = True
    return scope.several(scope.add(sorting.sort, operands, attributes), operation)


@rule("mhlo.topk")
def topk(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return scope.parts(TopK(operands[0], integer(operation, "k"), boolean(operation, "largest", True)), 2)


@rule("stablehlo.batch_norm_training")
def batch_norm_training(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return scope.parts(scope.add(reduction.batch_norm_training, operands, _normalised(operation)), 3)


@rule("stablehlo.batch_norm_inference")
def batch_norm_inference(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return scope.add(reduction.batch_norm_inference, operands, _normalised(operation))


@rule("stablehlo.batch_norm_grad")
def batch_norm_grad(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return scope.parts(scope.add(reduction.batch_norm_grad, operands, _normalised(operation)), 3)


def _normalised(operation: Operation) -> dict[str, Any]:
    return {"epsilon": number(operation, "epsilon"), "feature_index": integer(operation, "feature_index")}
