"""Schemas: sort and topk."""

# pyright: reportMissingParameterType=false, reportUnknownParameterType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.shape import UNBOUNDED, Shape
from ..core.types import PRED, S32
from ..hlo.attributes import Bool, Dims, Int, Region
from ..hlo.codecs import BoolCodec
from ..hlo.ir import Computation, Instruction
from ..hlo.schema import Newer, Trait, op
from .shapes import require, require_arrays

# --------------------------------------------------------------------------------------------- shapes


def sort_shape(declared: Shape | None, *operands: Shape, dimensions: Sequence[int], to_apply: Computation,
               **_: Any) -> Shape:
    """The operand's shape, of several operands their tuple. The comparator takes (left, right) of each and returns PRED."""
    require(bool(operands), "sort needs at least one operand", got=0)
    require_arrays(*operands)
    first = operands[0]
    require(len(dimensions) == 1 and 0 <= dimensions[0] < first.rank, "the dimension to sort along is out of range",
            got=f"{list(dimensions)} for {first}", expected="one dimension of the operand")
    signature = to_apply.program_shape
    require(len(signature.parameters) == 2 * len(operands), "the comparator takes another number of parameters",
            got=len(signature.parameters), expected=f"{2 * len(operands)}: left and right of each operand")
    for k, operand in enumerate(operands):
        require(operand.compatible(first.with_element_type(operand.element_type)),
                f"operand {k} has other dimensions than operand 0", got=operand, expected=first)
        for number in (2 * k, 2 * k + 1):
            require(signature.parameters[number].compatible(Shape(operand.element_type), ignore_precision=True),
                    f"parameter {number} of the comparator does not fit operand {k}", got=signature.parameters[number],
                    expected=f"{operand.element_type.text}[]")
    require(signature.result.compatible(Shape(PRED)), "the comparator does not return a PRED scalar", got=signature.result,
            expected="pred[]")
    results = [o.without_layout() for o in operands]
    return results[0] if len(results) == 1 else Shape.tuple(results)


def topk_shape(declared: Shape | None, operand: Shape, *, k: int, **_: Any) -> Shape:
    """(values[..., k], s32 indices[..., k])."""
    require_arrays(operand)
    require(operand.rank >= 1, "topk of a scalar", got=operand, expected="an array of rank 1 or more")
    require(not operand.element_type.is_complex, "topk of a complex type", got=operand)
    size = operand.dimensions[-1]
    require(k >= 0 and (k <= size or size == UNBOUNDED), "k is out of range", got=f"k = {k} for {operand}",
            expected="0 to the last dimension's size")
    dims, flags = (*operand.dimensions[:-1], k), (*operand.dynamic_flags[:-1], False)
    return Shape.tuple([operand.with_dimensions(dims, flags), Shape.array(S32, dims, flags)])


@op("sort", infer=sort_shape, stablehlo="sort", traits=Trait.MOVES_DATA | Trait.MIXED_PRECISION, element_region=2)
def sort(*operands, dimensions: Dims, to_apply: Region, is_stable: Bool = False): ...


def _always_stable(operands: Sequence[Instruction], attributes: dict[str, Any]) -> str:
    """``is_stable``, from jaxlib 0.12 on: here topk is stable in any case."""
    attributes.pop("is_stable", None)
    return ""


@op("topk", infer=topk_shape, stablehlo="chlo.top_k", traits=Trait.MOVES_DATA,
    newer=Newer({"is_stable": BoolCodec()}, _always_stable))
def topk(operand, *, k: Int, largest: Bool = True): ...
