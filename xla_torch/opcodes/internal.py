"""Schemas: what appears in compiled programs only (bitcast, copies in two halves, barriers, custom calls).

Specification: hlo/SPEC.md, Compiled programs.
"""

# pyright: reportMissingParameterType=false, reportUnknownParameterType=false

from __future__ import annotations

from typing import Annotated, Any

from ..core.shape import Shape
from ..hlo.attributes import (
    Bool,
    ConvDimsCodec,
    ConvolutionDimensionNumbers,
    CustomCallApiVersion,
    CustomCallSchedule,
    Int,
    LiteralCodec,
    OperandAliases,
    PaddingType,
    Precision,
    Raw,
    RawCodec,
    RegionCodec,
    Regions,
    ShapeTexts,
    Text,
    Window,
)
from ..hlo.ir import Computation
from ..hlo.literals.literal import Literal
from ..hlo.reader import Reader
from ..hlo.schema import Trait, op
from .shapes import has_parts, require, require_arrays, require_declared, require_declared_array


class DomainCodec(RawCodec):
    """``{kind="sharding", entry={...}, exit={...}}``, kept as text."""

    def parse(self, reader: Reader) -> str:
        start = reader.skip()
        for mark in ("{", "kind", "=", '"sharding"', ",", "entry", "="):
            reader.expect(mark, "in a domain")
        reader.balanced()
        for mark in (",", "exit", "="):
            reader.expect(mark, "in a domain")
        reader.balanced()
        reader.expect("}", "at the end of a domain")
        return reader.text[start:reader.pos]


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


@op("bitcast", infer=bitcast_shape,
    traits=(Trait.MOVES_DATA | Trait.REARRANGES | Trait.FORWARDS | Trait.READS_LAYOUT | Trait.FREE | Trait.NO_TRAFFIC),
    inferable=False)
def bitcast(operand, *, result_layout: Raw = ""): ...


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


@op("copy-start", infer=copy_start_shape, traits=Trait.MOVES_DATA | Trait.MIXED_PRECISION, inferable=False)
def copy_start(operand, *, cross_program_prefetch_index: Int | None = None): ...


def copy_done_shape(declared: Shape | None, operand: Shape, **_: Any) -> Shape:
    """The destination's shape."""
    require(has_parts(operand, 2), "the operand is not the result of copy-start", operand,
            "(destination, source, context)")
    return operand.tuple_shapes[0].without_layout()


@op("copy-done", infer=copy_done_shape, traits=Trait.MOVES_DATA | Trait.MIXED_PRECISION, inferable=False,
    completes=("copy-start",))
def copy_done(operand): ...


# ------------------------------------------------------------------------------------------- order and placement


def operand_shape(declared: Shape | None, operand: Shape, *_others: Shape, **_: Any) -> Shape:
    """The first operand's shape, whatever it is."""
    return operand.without_layout()


@op("opt-barrier", infer=operand_shape, stablehlo="optimization_barrier",
    traits=Trait.MOVES_DATA | Trait.FORWARDS | Trait.NO_TRAFFIC | Trait.MIXED_PRECISION, inferable=False)
def opt_barrier(operand): ...


@op("domain", infer=operand_shape, traits=Trait.MOVES_DATA | Trait.FORWARDS | Trait.MIXED_PRECISION)
def domain(operand, *, domain: Domain): ...


def add_dependency_shape(declared: Shape | None, operand: Shape, token: Shape, **_: Any) -> Shape:
    """The operand's shape."""
    require(token.is_token, "the second operand is not a token", token, "token[]")
    return operand.without_layout()


@op("add-dependency", infer=add_dependency_shape, traits=Trait.MOVES_DATA | Trait.FORWARDS | Trait.NO_TRAFFIC)
def add_dependency(operand, token): ...


# ------------------------------------------------------------------------------------------- custom calls


def custom_call_shape(declared: Shape | None, *operands: Shape, custom_call_target: str, operand_layout_constraints: str = "",
                      **_: Any) -> Shape:
    """The declared shape."""
    require(bool(custom_call_target), "the custom call has no target", repr(custom_call_target), "a name")
    if operand_layout_constraints:
        given = Shape.parse(f"({operand_layout_constraints.strip()[1:-1]})").tuple_shapes
        require(len(given) == len(operands), "not one layout constraint for each operand", operand_layout_constraints,
                f"{len(operands)} shapes")
        for shape, operand in zip(given, operands, strict=True):
            require(shape.compatible(operand), "a layout constraint is for another shape than the operand's", shape, operand)
    return require_declared(declared)


@op("custom-call", infer=custom_call_shape, stablehlo="custom_call", traits=Trait.MIXED_PRECISION,
    effect="custom_call_has_side_effect", inferable=False)
def custom_call(*operands, custom_call_target: Text, api_version: CustomCallApiVersion = "API_VERSION_ORIGINAL",
                custom_call_has_side_effect: Bool = False, operand_layout_constraints: ShapeTexts = "",
                to_apply: OptionalRegion = None, called_computations: Regions = (),
                output_to_operand_aliasing: OperandAliases = "", schedule: CustomCallSchedule = "SCHEDULE_NONE",
                window: Window = (), dim_labels: OptionalConvDims = None, feature_group_count: Int = 1,
                batch_group_count: Int = 1, padding_type: PaddingType = "PADDING_INVALID",
                literal: OptionalLiteral = None, operand_precision: Precision = ()): ...
