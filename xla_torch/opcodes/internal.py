"""Op definitions: what appears in compiled programs only (bitcast, copies in two halves, barriers, custom calls).

Document: spec `ops.md`, sections 9 and 12.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from ..hlo.ir import Computation
from ..hlo.literal import Literal
from ..interop import custom_calls
from ..lowering.kernels import internal as kernels
from ..lowering.values import Splat, emit
from ..shape import Shape
from ..types import PrimitiveType
from .attributes import (
    Bool,
    ConvDimsCodec,
    ConvolutionDimensionNumbers,
    CustomCallApiVersion,
    CustomCallSchedule,
    Int,
    LiteralCodec,
    PaddingType,
    Precision,
    Raw,
    RawCodec,
    RegionCodec,
    Regions,
    Text,
    Window,
)
from .contraction import permuted
from .convert import reinterpreted
from .definition import op
from .shapes import has_parts, require, require_arrays, require_declared, require_declared_array

if TYPE_CHECKING:
    from ..hlo.parser import Parser


class DomainCodec(RawCodec):
    """``{kind="sharding", entry={...}, exit={...}}``, kept as text."""

    def parse(self, parser: Parser) -> str:
        start = parser.skip()
        for mark in ("{", "kind", "=", '"sharding"', ",", "entry", "="):
            parser.expect(mark, "in a domain")
        parser.balanced()
        for mark in (",", "exit", "="):
            parser.expect(mark, "in a domain")
        parser.balanced()
        parser.expect("}", "at the end of a domain")
        return parser.text[start:parser.pos]


Domain = Annotated[str, DomainCodec()]
OptionalRegion = Annotated[Computation | None, RegionCodec()]
OptionalConvDims = Annotated[ConvolutionDimensionNumbers | None, ConvDimsCodec()]
OptionalLiteral = Annotated[Literal | None, LiteralCodec()]


# ------------------------------------------------------------------------------------------- bitcast


def bitcast_shape(declared: Shape | None, operand: Shape, **_: Any) -> Shape:
    """The declared shape, layout included, for the layout says which element is where: a buffer of the operand's size."""
    shape = require_declared_array(declared)
    require_arrays(operand)
    require(shape.element_count * shape.element_type.bits == operand.element_count * operand.element_type.bits,
            "the result has another size than the operand", f"{shape} from {operand}", "equal numbers of bits")
    return shape


@op("bitcast", infer=bitcast_shape, inferable=False, movement=True, view=True)
def bitcast(inst, operand, *, result_layout: Raw = ""):
    source, target = inst.operands[0].shape, inst.shape
    same_type = source.element_type is target.element_type
    if _keeps_order(source, target) and (same_type or source.dimensions == target.dimensions):
        value = operand if same_type else _viewed(operand, source.element_type, target.element_type)
        return value if source.dimensions == target.dimensions else value.reshape(target.dimensions)
    # To the order in memory, to the result's sizes in memory, and to the result's order.
    value = permuted(operand, source.minor_to_major[::-1])
    stored = [target.dimensions[d] for d in reversed(target.minor_to_major)]
    if not same_type:
        value = _viewed(value, source.element_type, target.element_type)
    value = value.reshape(stored)
    order = target.minor_to_major[::-1]
    return permuted(value, [order.index(d) for d in range(target.rank)])


def _keeps_order(source: Shape, target: Shape) -> bool:
    """Row-major on both sides, or the same dimensions in the same layout."""
    row_major = all(_significant(s) == sorted(_significant(s), reverse=True) for s in (source, target))
    return row_major or (source.dimensions == target.dimensions and source.minor_to_major == target.minor_to_major)


def _significant(shape: Shape) -> list[int]:
    """The layout without dimensions of size 1, whose place does not matter."""
    return [d for d in shape.minor_to_major if shape.dimensions[d] != 1]


def _viewed(value: Any, source: PrimitiveType, target: PrimitiveType) -> Any:
    """The elements' bits as elements of another type; of another width, flat and in the order of memory."""
    if source.is_narrow or target.is_narrow:
        if target.bits > source.bits:
            value = value.reshape(-1, target.bits // source.bits)
        return reinterpreted(value, source, target)
    if source.bits == target.bits:
        return value.view(target.carrier)
    return emit(kernels.reinterpret, value, target.carrier)


# ------------------------------------------------------------------------------------------- copies in two halves


def copy_start_shape(declared: Shape | None, operand: Shape, *, cross_program_prefetch_index: int | None = None) -> Shape:
    """(destination, source, u32 context)."""
    shape = require_declared(declared)
    index = cross_program_prefetch_index or 0
    require(-(2**31) <= index < 2**31, "cross_program_prefetch_index does not fit in s32", index)
    require(has_parts(shape, 2), "the result is no triple", shape, "(destination, source, context)")
    require(all(part.compatible(operand) for part in shape.tuple_shapes[:2]),
            "destination and source do not have the operand's shape", shape, f"({operand}, {operand}, u32[])")
    return shape


@op("copy-start", infer=copy_start_shape, inferable=False, movement=True, view=True)
def copy_start(inst, operand, *, cross_program_prefetch_index: Int | None = None):
    return (operand, operand, *(Splat(0, s.dimensions) for s in inst.shape.tuple_shapes[2:]))


def copy_done_shape(declared: Shape | None, operand: Shape, **_: Any) -> Shape:
    """The destination's shape."""
    require(has_parts(operand, 2), "the operand is not the result of copy-start", operand,
            "(destination, source, context)")
    return operand.tuple_shapes[0].without_layout()


@op("copy-done", infer=copy_done_shape, inferable=False, movement=True, view=True)
def copy_done(inst, operand):
    return operand[0]


# ------------------------------------------------------------------------------------------- order and placement


def operand_shape(declared: Shape | None, operand: Shape, *_others: Shape, **_: Any) -> Shape:
    """The first operand's shape, whatever it is."""
    return operand.without_layout()


@op("opt-barrier", infer=operand_shape, stablehlo="optimization_barrier", inferable=False, movement=True, view=True)
def opt_barrier(inst, operand):
    return operand


@op("domain", infer=operand_shape, movement=True, view=True)
def domain(inst, operand, *, domain: Domain):
    return operand


def add_dependency_shape(declared: Shape | None, operand: Shape, token: Shape, **_: Any) -> Shape:
    """The operand's shape."""
    require(token.is_token, "the second operand is not a token", token, "token[]")
    return operand.without_layout()


@op("add-dependency", infer=add_dependency_shape, movement=True, view=True)
def add_dependency(inst, operand, token):
    return operand


# ------------------------------------------------------------------------------------------- custom calls


def custom_call_shape(declared: Shape | None, *operands: Shape, custom_call_target: str, **_: Any) -> Shape:
    """The declared shape."""
    require(bool(custom_call_target), "the custom call has no target", repr(custom_call_target), "a name")
    return require_declared(declared)


@op("custom-call", infer=custom_call_shape, stablehlo="custom_call", inferable=False, effect="custom_call_has_side_effect")
def custom_call(inst, *operands, custom_call_target: Text, api_version: CustomCallApiVersion = "API_VERSION_ORIGINAL",
                custom_call_has_side_effect: Bool = False, operand_layout_constraints: Raw = "", to_apply: OptionalRegion = None,
                called_computations: Regions = (), output_to_operand_aliasing: Raw = "",
                schedule: CustomCallSchedule = "SCHEDULE_NONE", window: Window = (), dim_labels: OptionalConvDims = None,
                feature_group_count: Int = 1, batch_group_count: Int = 1, padding_type: PaddingType = "PADDING_VALID",
                literal: OptionalLiteral = None, operand_precision: Precision = ()):
    return custom_calls.call(inst, operands)
