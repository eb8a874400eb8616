"""Schemas: compare, clamp and select.

Specification: hlo/SPEC.md, Comparison and selection.
"""

# pyright: reportMissingParameterType=false, reportUnknownParameterType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..hlo.attributes import CompareType, Direction
from ..hlo.codecs import ChoiceCodec
from ..hlo.ir import Instruction
from ..hlo.schema import Newer, Trait, op
from .shapes import clamp_shape, compare_shape, select_shape


def _type_of_order(operands: Sequence[Instruction], attributes: dict[str, Any]) -> str:
    """``order=TOTAL`` for ``type=TOTALORDER``, from jaxlib 0.12 on. Of integers every order is total."""
    order = attributes.pop("order", "")
    if order and "type" in attributes:
        return "a comparison says both its type and its order"
    if order == "TOTAL" and operands[0].shape.element_type.is_floating:
        attributes["type"] = "TOTALORDER"
    return ""


@op("compare", infer=compare_shape, stablehlo="compare", traits=Trait.ELEMENTWISE | Trait.CHEAP,
    newer=Newer({"order": ChoiceCodec(("TOTAL", "PARTIAL"))}, _type_of_order))
def compare(lhs, rhs, *, direction: Direction, type: CompareType = ""): ...


@op("clamp", infer=clamp_shape, stablehlo="clamp", traits=Trait.ELEMENTWISE)
def clamp(min, operand, max): ...


@op("select", infer=select_shape, stablehlo="select", traits=Trait.ELEMENTWISE)
def select(pred, on_true, on_false): ...
