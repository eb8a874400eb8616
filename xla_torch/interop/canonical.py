"""StableHLO that XLA's converter refuses or mistakes, in other StableHLO.

Regions of reductions may take wider elements than the op's operands have (the specification promotes the operands, which
the converter forgets), ``unary_einsum`` has no HLO, and shape refinement does not look into composites.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from .modules import operations

_PROMOTED: dict[str, Callable[[int, int], int | None]] = {
    "stablehlo.reduce": lambda operand, count: operand % count,
    "stablehlo.reduce_window": lambda operand, count: operand % count,
    "stablehlo.all_reduce": lambda operand, count: operand,
    "stablehlo.reduce_scatter": lambda operand, count: operand,
    "stablehlo.scatter": lambda operand, count: None if operand == count else operand % (count + 1),
    "stablehlo.select_and_scatter": lambda operand, count: 0,
}
"""An operand's number and the number of results -> the result whose element type the region takes for this operand."""


def canonicalise(module: Any) -> None:
    """Rewrite an MLIR module in place."""
    others = {"stablehlo.unary_einsum": _to_einsum, "stablehlo.composite": _to_call}
    for operation in operations(module):
        change = _promote if operation.name in _PROMOTED else others.get(operation.name)
        if change is not None:
            with operation.location, ir.InsertionPoint(operation):
                change(operation)


def _promote(operation: Any) -> None:
    """Convert operands to the element types that the region takes."""
    result_of = _PROMOTED[operation.name]
    for number, operand in enumerate(operation.operands):
        result = result_of(number, len(operation.results))
        if result is not None:
            operation.operands[number] = _converted(operand, operation.results[result].type.element_type)
    if operation.name == "stablehlo.select_and_scatter":
        # XLA has the choice in the same type as the sum; the region that chooses goes on in its own.
        block = operation.regions[0].blocks[0]
        for argument in block.arguments:
            _widen(argument, operation.results[0].type.element_type, block)


def _converted(value: Any, element: Any) -> Any:
    """`value` with other elements: converted or, to quantized types, quantized."""
    if value.type.element_type == element:
        return value
    name = "stablehlo.uniform_quantize" if str(element).startswith("!quant.") else "stablehlo.convert"
    return ir.Operation.create(name, [ir.RankedTensorType.get(value.type.shape, element, value.type.encoding)], [value]).result


def _widen(argument: Any, element: Any, block: Any) -> None:
    """Give a region's argument another element type, and what uses it the one that it had."""
    own = argument.type.element_type
    if own == element:
        return
    uses = [(use.owner, use.operand_number) for use in argument.uses]
    argument.set_type(ir.RankedTensorType.get(argument.type.shape, element))
    with ir.InsertionPoint.at_block_begin(block):
        narrow = _converted(argument, own)
    for owner, number in uses:
        owner.operands[number] = narrow


def _to_einsum(operation: Any) -> None:
    """A sum of products with one."""
    element = operation.operands[0].type.element_type
    of_one: Callable[..., Any] = ir.IntegerAttr.get if isinstance(element, ir.IntegerType) else ir.FloatAttr.get
    one = ir.DenseElementsAttr.get([of_one(element, 1)], ir.RankedTensorType.get([], element))
    config = ir.StringAttr.get("," + ir.StringAttr(operation.attributes["einsum_config"]).value)
    einsum = ir.Operation.create("stablehlo.einsum", [operation.results[0].type],
                                 [stablehlo.ConstantOp(one).result, operation.operands[0]], {"einsum_config": config})
    operation.results[0].replace_all_uses_with(einsum.result)
    operation.erase()


def _to_call(operation: Any) -> None:
    """A composite as a call of its decomposition."""
    callee = {"callee": operation.attributes["decomposition"]}
    call = ir.Operation.create("func.call", [r.type for r in operation.results], list(operation.operands), callee)
    for before, after in zip(operation.results, call.results, strict=True):
        before.replace_all_uses_with(after)
    operation.erase()
