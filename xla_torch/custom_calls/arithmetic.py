"""What kernels of matrix products and convolutions do in their registers: products in a wide type, activations, and results
that are rounded or saturated into a narrow type."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes

from .. import functions as ops
from ..core.types import C64, C128, F32, F64, S32, PrimitiveType
from ..functions.hlo_builder import XlaOp
from ..opcodes.contraction import DotDimensionNumbers
from .calls import Call, converted

# ------------------------------------------------------------------------------------------- types


def wide_type(kind: PrimitiveType) -> PrimitiveType:
    """The type in which products of a type are summed: of narrow floats F32, of integers S32."""
    if kind in (F32, F64, C64, C128):
        return kind
    return F32 if kind.is_floating else S32


def saturated(x: XlaOp, kind: PrimitiveType) -> XlaOp:
    """The values in a type; in a float of 8 bits or fewer what is too large is its largest value."""
    if not kind.is_floating or kind.bits > 8:
        return converted(x, kind)
    largest = float(ml_dtypes.finfo(kind.numpy).max)
    return converted(ops.Clamp(-largest, x, largest), kind)


# ------------------------------------------------------------------------------------------- products


def dot_numbers(call: Call, config: Mapping[str, Any]) -> DotDimensionNumbers:
    """A configuration's dimension numbers, whose integers are texts."""
    if not isinstance(config, Mapping):
        raise call.refused("it does not say which dimensions are contracted")
    try:
        return DotDimensionNumbers(*(tuple(int(d) for d in config.get(name, ())) for name in (
            "lhs_contracting_dimensions", "rhs_contracting_dimensions", "lhs_batch_dimensions", "rhs_batch_dimensions")))
    except (TypeError, ValueError):
        raise call.refused("its dimension numbers are no lists of integers", str(config)) from None


def product(lhs: XlaOp, rhs: XlaOp, numbers: DotDimensionNumbers, result: PrimitiveType,
            precision: Sequence[str] | None = None) -> XlaOp:
    """The product of two arrays, summed in the wide type of the result, and given in it."""
    wide = wide_type(result)
    if lhs.element_type.is_floating and wide is S32:
        wide = F32
    return ops.DotGeneral(lhs, rhs, numbers, precision, None if lhs.element_type is rhs.element_type is wide else wide)


def scaled(x: XlaOp, factor: complex | XlaOp) -> XlaOp:
    """The values times a number, which may be an op."""
    if isinstance(factor, XlaOp):
        return ops.Mul(x, ops.Broadcast(converted(ops.Reshape(factor, ()), x.element_type), x.shape.dimensions))
    if factor == 1:
        return x
    return ops.Mul(x, x.builder.constant(factor if x.element_type.is_complex else factor.real, x.element_type))


# ------------------------------------------------------------------------------------------- activations


def relu(x: XlaOp) -> XlaOp:
    return ops.Max(x, 0)


def gelu_tanh(x: XlaOp) -> XlaOp:
    inner = ops.Mul(ops.Add(x, ops.Mul(ops.Mul(ops.Mul(x, x), x), 0.044715)), math.sqrt(2 / math.pi))
    return ops.Mul(ops.Mul(x, 0.5), ops.Add(ops.Tanh(inner), 1.0))


def gelu_erf(x: XlaOp) -> XlaOp:
    return ops.Mul(ops.Mul(x, 0.5), ops.Add(ops.Erf(ops.Mul(x, math.sqrt(0.5))), 1.0))


def silu(x: XlaOp) -> XlaOp:
    return ops.Mul(x, ops.Logistic(x))


def relu6(x: XlaOp) -> XlaOp:
    return ops.Clamp(0.0, x, 6.0)


def elu(x: XlaOp) -> XlaOp:
    return ops.Select(ops.Gt(x, 0.0), x, ops.Expm1(ops.Min(x, 0.0)))


def leaky_relu(slope: float) -> Callable[[XlaOp], XlaOp]:
    return lambda x: ops.Select(ops.Gt(x, 0.0), x, ops.Mul(x, slope))


def same(x: XlaOp) -> XlaOp:
    return x
