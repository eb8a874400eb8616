"""Schemas: compare, clamp and select.

Specification: hlo/SPEC.md, Comparison and selection.
"""

# pyright: reportMissingParameterType=false, reportUnknownParameterType=false

from __future__ import annotations

from ..hlo.attributes import CompareType, Direction
from ..hlo.schema import Trait, op
from .shapes import clamp_shape, compare_shape, select_shape


@op("compare", infer=compare_shape, stablehlo="compare", traits=Trait.ELEMENTWISE | Trait.CHEAP)
def compare(lhs, rhs, *, direction: Direction, type: CompareType = ""): ...


@op("clamp", infer=clamp_shape, stablehlo="clamp", traits=Trait.ELEMENTWISE)
def clamp(min, operand, max): ...


@op("select", infer=select_shape, stablehlo="select", traits=Trait.ELEMENTWISE)
def select(pred, on_true, on_false): ...
