"""Rows of conversions: of value between all pairs of types, of bits, and of precision."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from support.agreement import dtype_of, element_type, special_values
from xla_torch import ops

from .drawn import Drawn, Row
from .kinds import COMPLEX, EVERYTHING, FLOATS, INTEGERS, NARROW_FLOATS

REALS = (*NARROW_FLOATS, "f8e8m0fnu", *FLOATS)


# ------------------------------------------------------------------------------------------- values


def _operand(d: Drawn, dims: list[int]) -> Any:
    """Any values, or powers of two and what lies near them: there conversions go wrong."""
    if d.kind not in FLOATS or d.flag():
        return d.array(dims)

    def near_powers(rng: np.random.Generator) -> np.ndarray:
        with np.errstate(all="ignore"):
            powers = 2.0 ** rng.integers(-12, 66, dims) * rng.choice([1, 1 - 2.0**-9, 1 + 2.0**-9, 1.5], dims)
            return (powers * rng.choice([-1, 1], dims)).astype(dtype_of(d.kind))

    return d.array(dims, domain=near_powers)


def _convert(d: Drawn) -> Any:
    """To every type. For XLA's CPU code the F4 type's 6 is infinite where it goes to integers, so that pair is left out."""
    targets = [t for t in EVERYTHING if d.kind != "f4e2m1fn" or t not in INTEGERS]
    return ops.ConvertElementType(_operand(d, d.dims()), element_type(d.choice(*targets)))


def _f4_to_integer(d: Drawn) -> Any:
    target = d.choice(*INTEGERS)
    d.expect(lambda x: [_saturated(x, target)])
    return ops.ConvertElementType(d.array(d.dims()), element_type(target))


def _saturated(array: np.ndarray, target: str) -> np.ndarray:
    limits = special_values(target).astype(object)
    whole = np.trunc(array.astype(np.float32)).astype(np.int64)
    return np.clip(whole, max(limits.min(), -8), min(limits.max(), 8)).astype(dtype_of(target))


def _stochastic(d: Drawn) -> Any:
    dims = d.dims()
    operand = d.array(dims)
    random = d.array(dims, f"u{element_type(d.kind).bits}", _random_bits(d, dims))
    return ops.StochasticConvertType(operand, random, element_type(d.choice("s8", "s16", "s32", "s64")))


def _random_bits(d: Drawn, dims: list[int]) -> Any:
    dtype = dtype_of(f"u{element_type(d.kind).bits}")
    return lambda rng: rng.integers(0, np.iinfo(dtype).max, dims, dtype, endpoint=True)


def _next_after(d: Drawn) -> Any:
    dims = d.dims()
    return ops.NextAfter(d.array(dims), d.array(dims if d.flag() else []))


# ------------------------------------------------------------------------------------------- precision


def _reduce_precision(d: Drawn) -> Any:
    return ops.ReducePrecision(_operand(d, d.dims()), d.integer(1, 12), d.integer(0, 54))


# ------------------------------------------------------------------------------------------- bits


def _bitcast(d: Drawn) -> Any:
    """To every real type of a width that divides this one's, or that this one's divides."""
    bits = element_type(d.kind).bits
    widths = {t: element_type(t).bits for t in EVERYTHING if t != "pred" and t not in COMPLEX}
    target = d.choice(*(t for t, width in widths.items() if math.gcd(width, bits) == min(width, bits)))
    dims = d.dims(most=3)
    sizes = [*dims, widths[target] // bits] if widths[target] > bits else dims
    return ops.BitcastConvertType(d.array(sizes, domain=_bits_that_stay(d, sizes)), element_type(target))


def _bitcast_complex(d: Drawn) -> Any:
    """Between the complex types."""
    target, dims = d.choice(*COMPLEX), d.dims(most=3)
    widens, narrows = (d.kind, target) == COMPLEX, (target, d.kind) == COMPLEX
    d.expect(lambda x: [x[..., None].view(dtype_of(target)) if narrows
                        else np.ascontiguousarray(x).view(dtype_of(target))[..., 0] if widens else x])
    return ops.BitcastConvertType(d.array([*dims, 2] if widens else dims), element_type(target))


def _bits_that_stay(d: Drawn, dims: list[int]) -> Any:
    """NaNs of the narrow floats are all alike in a program, so none of these."""
    with np.errstate(all="ignore"):
        values = special_values(d.kind)
        kept = values[~np.isnan(values.astype(np.float32))] if d.kind in (*NARROW_FLOATS, "f8e8m0fnu") else values
    return (lambda rng: rng.choice(kept, dims)) if len(kept) < len(values) else "any"


ROWS: list[Row] = [
    Row("ConvertElementType", _convert, EVERYTHING),
    Row("ConvertElementType", _f4_to_integer, ("f4e2m1fn",), variant="to integers"),
    Row("StochasticConvertType", _stochastic, FLOATS),
    Row("ReducePrecision", _reduce_precision, REALS),
    Row("NextAfter", _next_after, (*FLOATS, *NARROW_FLOATS, "f8e8m0fnu")),
    Row("BitcastConvertType", _bitcast, tuple(t for t in EVERYTHING if t != "pred" and t not in COMPLEX)),
    # real XLA on the CPU knows one complex type at a time, and may end the process
    Row("BitcastConvertType", _bitcast_complex, COMPLEX, variant="of complex numbers"),
]
