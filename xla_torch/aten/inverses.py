"""Hyperbolic functions, and inverses of these and of the trigonometric ones, in ops that XLA runs everywhere: its CPU knows no
opcode for them."""

from __future__ import annotations

import math
from collections.abc import Callable

from .. import functions as ops
from ..core.types import F64
from ..functions.hlo_builder import XlaOp
from .values import cast, full, wide


def _cosh(x: XlaOp) -> XlaOp:
    """Halves in the exponents, which would overflow before the result does."""
    return ops.Add(ops.Exp(x - math.log(2)), ops.Exp(-x - math.log(2)))


def _sinh(x: XlaOp) -> XlaOp:
    small = ops.Expm1(ops.Select(ops.Lt(ops.Abs(x), 1.0), x, full(x.builder, 0, x.shape)))
    near = (small + small / (small + 1.0)) * 0.5
    far = ops.Sub(ops.Exp(x - math.log(2)), ops.Exp(-x - math.log(2)))
    return ops.Select(ops.Lt(ops.Abs(x), 1.0), near, far)


def _roots(x: XlaOp) -> tuple[XlaOp, XlaOp]:
    """The roots of 1 - x and 1 + x, of which the signs of zeros say on which side of a branch cut a complex x is. Inverses by
    these are Kahan's ("Branch cuts for complex elementary functions", 1987)."""
    real, imaginary = ops.Real(x), ops.Imag(x)
    return ops.Sqrt(ops.Complex(1.0 - real, -imaginary)), ops.Sqrt(ops.Complex(1.0 + real, imaginary))


def _acos(x: XlaOp) -> XlaOp:
    if x.element_type.is_complex:
        less, more = _roots(x)
        return ops.Complex(ops.Atan2(ops.Real(less), ops.Real(more)) * 2.0, _asinh(ops.Imag(ops.Conj(more) * less)))
    return ops.Atan2(ops.Sqrt((1.0 - x) * (1.0 + x)), x)


def _asin(x: XlaOp) -> XlaOp:
    if x.element_type.is_complex:
        less, more = _roots(x)
        return ops.Complex(ops.Atan2(ops.Real(x), ops.Real(less * more)), _asinh(ops.Imag(ops.Conj(less) * more)))
    return ops.Atan2(x, ops.Sqrt((1.0 - x) * (1.0 + x)))


def _large(x: XlaOp) -> float:
    """From where on a square is the same with or without 1."""
    return 1e18 if x.element_type is not F64 else 1e150


def _asinh(x: XlaOp) -> XlaOp:
    if x.element_type.is_complex:
        turned = _asin(ops.Complex(-ops.Imag(x), ops.Real(x)))
        return ops.Complex(ops.Imag(turned), -ops.Real(turned))
    size = ops.Abs(x)
    beyond = ops.Ge(size, _large(x))
    inner = ops.Select(beyond, full(x.builder, 1, x.shape), size)
    near = ops.Log1p(inner + inner * inner / (1.0 + ops.Sqrt(inner * inner + 1.0)))
    far = ops.Log(size) + math.log(2)
    return ops.Select(ops.Eq(x, 0.0), x, ops.Sign(x) * ops.Select(beyond, far, near))


def _acosh(x: XlaOp) -> XlaOp:
    if x.element_type.is_complex:
        less, more = ops.Sqrt(ops.Complex(ops.Real(x) - 1.0, ops.Imag(x))), _roots(x)[1]
        return ops.Complex(_asinh(ops.Real(ops.Conj(less) * more)), ops.Atan2(ops.Imag(less), ops.Real(more)) * 2.0)
    beyond = ops.Ge(x, _large(x))
    less = ops.Select(beyond, full(x.builder, 1, x.shape), x) - 1.0
    near = ops.Log1p(less + ops.Sqrt(less * (less + 2.0)))
    near = ops.Select(ops.Lt(x, 1.0), full(x.builder, math.nan, x.shape), near)
    return ops.Select(beyond, ops.Log(x) + math.log(2), near)


def _atanh(x: XlaOp) -> XlaOp:
    return (ops.Log1p(x) - ops.Log1p(-x)) * 0.5


def _in_wide(function: Callable[[XlaOp], XlaOp]) -> Callable[[XlaOp], XlaOp]:
    return lambda x: cast(function(wide(x)), x.element_type)


INVERSES: dict[str, Callable[[XlaOp], XlaOp]] = {name: _in_wide(function) for name, function in {
    "acos": _acos, "acosh": _acosh, "asin": _asin, "asinh": _asinh, "atanh": _atanh, "cosh": _cosh, "sinh": _sinh}.items()}
