"""Schemas: conversions of value (convert, stochastic-convert), of bits (bitcast-convert) and of precision.

Specification: hlo/SPEC.md, Conversions.
"""

# pyright: reportMissingParameterType=false, reportUnknownParameterType=false

from __future__ import annotations

from ..hlo.attributes import Int
from ..hlo.schema import Trait, op
from .shapes import bitcast_convert_shape, convert_shape, reduce_precision_shape, stochastic_convert_shape

# ------------------------------------------------------------------------------------------- values


@op("convert", infer=convert_shape, stablehlo="convert", traits=Trait.ELEMENTWISE | Trait.CHEAP, inferable=False)
def convert(operand): ...


@op("stochastic-convert", infer=stochastic_convert_shape, traits=Trait.ELEMENTWISE, inferable=False)
def stochastic_convert(operand, random): ...


@op("reduce-precision", infer=reduce_precision_shape, stablehlo="reduce_precision",
    traits=Trait.ELEMENTWISE | Trait.MIXED_PRECISION, inferable=False)
def reduce_precision(operand, *, exponent_bits: Int, mantissa_bits: Int): ...


# ------------------------------------------------------------------------------------------- bits


@op("bitcast-convert", infer=bitcast_convert_shape, stablehlo="bitcast_convert", inferable=False)
def bitcast_convert(operand): ...
