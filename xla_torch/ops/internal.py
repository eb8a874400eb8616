"""Custom calls under their documented names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..builder import XlaBuilder, XlaOp, documented, region_of
from ..hlo.literal import Literal
from ..interop.custom_calls import VJP_PREFIX
from ..opcodes.attributes import ConvolutionDimensionNumbers, WindowDimension
from ..opcodes.shapes import require
from ..shape import Shape

__all__ = ["CustomCall", "CustomCallVjp", "CustomCallWithComputation", "CustomCallWithConvDnums", "CustomCallWithLayout"]


@documented
def CustomCall(builder: XlaBuilder, call_target_name: str, operands: Sequence[XlaOp], shape: Shape, opaque: str = "",
               has_side_effect: bool = False, output_operand_aliasing: Sequence[Any] = (), literal: Literal | None = None,
               schedule: str = "SCHEDULE_NONE", api_version: str = "API_VERSION_ORIGINAL") -> XlaOp:
    """Call a function of the program's surroundings by name; `register_custom_call` says which function that is.

    `opaque` is passed to the function as its configuration. `output_operand_aliasing` lists pairs (result index, (operand,
    operand index)) and has no effect. Raises InvalidArgument for a target that begins with ``$``, which is reserved.
    """
    return _custom_call(builder, call_target_name, operands, shape, opaque, {
        "custom_call_has_side_effect": has_side_effect, "literal": literal,
        "output_to_operand_aliasing": _aliasing(output_operand_aliasing),
        "schedule": schedule if schedule != "SCHEDULE_NONE" else None,
        "api_version": api_version if api_version != "API_VERSION_ORIGINAL" else None})


@documented
def CustomCallWithLayout(builder: XlaBuilder, call_target_name: str, operands: Sequence[XlaOp], shape: Shape,
                         operand_shapes_with_layout: Sequence[Shape], opaque: str = "", has_side_effect: bool = False) -> XlaOp:
    """`CustomCall` with layouts that operands and result must have. Raises InvalidArgument where one is missing."""
    for given in (shape, *operand_shapes_with_layout):
        require(all(leaf.layout is not None or not leaf.rank for leaf in given.leaves()), "a layout is missing", given,
                "a layout for each array")
    constraints = "{" + ", ".join(s.to_text() for s in operand_shapes_with_layout) + "}"
    return _custom_call(builder, call_target_name, operands, shape, opaque, {
        "operand_layout_constraints": constraints, "custom_call_has_side_effect": has_side_effect})


@documented
def CustomCallWithComputation(builder: XlaBuilder, call_target_name: str, operands: Sequence[XlaOp], computation: Any,
                              shape: Shape, opaque: str = "", has_side_effect: bool = False) -> XlaOp:
    """`CustomCall` of a function that gets a computation."""
    return _custom_call(builder, call_target_name, operands, shape, opaque, {
        "to_apply": region_of(computation), "custom_call_has_side_effect": has_side_effect})


@documented
def CustomCallWithConvDnums(builder: XlaBuilder, call_target_name: str, operands: Sequence[XlaOp], shape: Shape,
                            window: Sequence[WindowDimension], dnums: ConvolutionDimensionNumbers, opaque: str = "",
                            has_side_effect: bool = False) -> XlaOp:
    """`CustomCall` of a convolution in other words."""
    return _custom_call(builder, call_target_name, operands, shape, opaque, {
        "window": tuple(window), "dim_labels": dnums, "custom_call_has_side_effect": has_side_effect})


def _custom_call(builder: XlaBuilder, target: str, operands: Sequence[XlaOp], shape: Shape, opaque: str,
                 attributes: dict[str, Any]) -> XlaOp:
    require(not target.startswith("$"), "custom call targets that begin with $ are reserved", target, "another name")
    given = {"custom_call_target": target} | {name: value for name, value in attributes.items() if value}
    return builder.add("custom-call", operands, given, shape, common={"backend_config": opaque} if opaque else None)


def _aliasing(pairs: Sequence[Any]) -> str:
    def index(numbers: Sequence[int]) -> str:
        return "{" + ", ".join(map(str, numbers)) + "}"

    listed = ", ".join(f"{index(result)}: ({operand}, {index(part)})" for result, (operand, part) in pairs)
    return "{" + listed + "}" if pairs else ""


def CustomCallVjp(operands: Sequence[XlaOp], cotangents: Sequence[XlaOp], target: str, opaque: str = "") -> XlaOp:
    """The cotangents of a custom call's floating and complex operands, as a tuple; `cotangents` are of all arrays in its
    result, in order. This is the custom call that gradients of custom calls are made of."""
    builder = cotangents[0].builder
    shapes = [leaf.without_layout() for o in operands for leaf in o.shape.leaves() if leaf.element_type.is_differentiable]
    return builder.add("custom-call", [builder.add("tuple", operands), builder.add("tuple", cotangents)],
                       {"custom_call_target": VJP_PREFIX + target}, Shape.tuple(shapes),
                       common={"backend_config": opaque} if opaque else None)
