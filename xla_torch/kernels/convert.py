"""Conversion kernels: between numbers of different kinds, and between the bits of different types."""

from __future__ import annotations

import torch

from .calls import elementwise, elementwise_in_c

_INT64_MIN = torch.iinfo(torch.int64).min
_INT64_MAX = torch.iinfo(torch.int64).max


# ------------------------------------------------------------------------------- floats and integers


@elementwise
def float_to_integer(x: torch.Tensor, low: int, high: int, dtype: torch.dtype) -> torch.Tensor:
    """Truncate toward zero into [low, high] and saturate there; NaN becomes 0. Bounds are of at most 64 signed bits."""
    x = x.to(_exact_for(x.dtype, high))
    largest = _largest_float_below(high, x.dtype)
    whole = x.nan_to_num(nan=0.0).clamp_(low, largest).to(_wide_enough(high, dtype))
    if largest < high:  # the bound is no float: what lies above the float before it must be set by hand
        whole = torch.where(x > largest, high, whole)
    return whole.to(dtype)


def _exact_for(dtype: torch.dtype, bound: int) -> torch.dtype:
    """float32 or float64: the smaller one that holds the values of the dtype, and if possible the bound as well."""
    return torch.float64 if dtype is torch.float64 or 24 < bound.bit_length() <= 53 else torch.float32


def _largest_float_below(bound: int, dtype: torch.dtype) -> int:
    spare = max(bound.bit_length() - (53 if dtype is torch.float64 else 24), 0)
    return bound >> spare << spare


def _wide_enough(high: int, dtype: torch.dtype) -> torch.dtype:
    """The dtype itself, or for an unsigned type in signed storage one that holds all of its values."""
    return dtype if high <= torch.iinfo(dtype).max else torch.int64


@elementwise
def float_to_u64(x: torch.Tensor) -> torch.Tensor:
    """Saturating conversion to U64 in its storage dtype."""
    if x.dtype in (torch.float16, torch.bfloat16):
        x = x.float()
    low = float_to_integer(x, 0, _INT64_MAX, torch.int64)
    high = float_to_integer(x - 2.0**63, 0, _INT64_MAX, torch.int64) ^ _INT64_MIN
    return torch.where(x >= 2.0**63, high, low)


@elementwise
def u64_to_float(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The value of a U64 as it is stored, rounded once."""
    # The top half is halved to fit; the lost bit is kept in the last place, so that rounding sees it.
    halved = ((x >> 1) & _INT64_MAX) | (x & 1)
    return torch.where(x < 0, halved.to(dtype) * 2, x.to(dtype))


@elementwise
def f64_to_f16(x: torch.Tensor) -> torch.Tensor:
    """Round float64 to float16 once: torch goes through float32 and rounds twice."""
    single = x.float()
    bits = single.view(torch.int32)
    error = x - single.double()
    # Where float32 is inexact, take its neighbour with an odd last bit on the other side of x: it is no tie any more.
    step = ((error > 0) == (x > 0)).to(torch.int32) * 2 - 1
    inexact = (error != 0) & error.isfinite() & ((bits & 1) == 0)
    return torch.where(inexact, bits + step, bits).view(torch.float32).to(torch.float16)


@elementwise
def stochastic_convert(x: torch.Tensor, random: torch.Tensor, bits: int, low: int, high: int,
                       dtype: torch.dtype) -> torch.Tensor:
    """Round away from zero with the fraction as probability: where floor(fraction * 2^bits) > random, for random integers
    of so many bits (given as float64). Saturates; NaN becomes 0.
    """
    magnitude = x.double().abs()
    whole = torch.trunc(magnitude)
    away = torch.floor((magnitude - whole) * 2.0**bits) > random
    return float_to_integer(torch.copysign(whole + away, x), low, high, dtype)


# ------------------------------------------------------------------------------- reduced precision


@elementwise_in_c(float="reduce_precision_{t}({0}, {1}, {2})")
def reduce_precision(x: torch.Tensor, exponent_bits: int, mantissa_bits: int) -> torch.Tensor:
    """Round to a format with these widths, kept in the dtype of x: to nearest even; overflow is infinite, and what is
    below the smallest normal number becomes zero. NaN stays NaN."""
    own_exponent, own_mantissa, storage = _LAYOUTS[x.dtype]
    width = 1 + own_exponent + own_mantissa
    bits = x.view(storage)
    if mantissa_bits < own_mantissa:
        spare = own_mantissa - mantissa_bits
        odd = (bits >> spare) & 1
        bits = (bits + odd + ((1 << (spare - 1)) - 1)) & -(1 << spare)
    if exponent_bits < own_exponent:
        bias, reach = (1 << (own_exponent - 1)) - 1, (1 << (exponent_bits - 1)) - 1
        sign, magnitude = bits & -(1 << (width - 1)), bits & ((1 << (width - 1)) - 1)
        exponent = magnitude >> own_mantissa
        infinity = ((1 << own_exponent) - 1) << own_mantissa
        bits = torch.where(exponent > bias + reach, sign | infinity, torch.where(exponent <= bias - reach, sign, bits))
    return torch.where(x.isnan(), x, bits.view(x.dtype))


_LAYOUTS = {torch.float16: (5, 10, torch.int16), torch.bfloat16: (8, 7, torch.int16), torch.float32: (8, 23, torch.int32),
            torch.float64: (11, 52, torch.int64)}
"""Exponent bits, mantissa bits and the integer dtype of the same width."""


# ------------------------------------------------------------------------------- bits


def split(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The bits of each element as several narrower elements along a new last dimension, low part first."""
    return x.contiguous().unsqueeze(-1).view(dtype)


def join(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The inverse of `split`: the last dimension holds the parts of one element."""
    if x.stride(-1) != 1:  # for `contiguous`, an array without elements is contiguous with any strides
        x = x.clone(memory_format=torch.contiguous_format)
    return x.contiguous().view(dtype).squeeze(-1)


def split_units(x: torch.Tensor, width: int, unit: int) -> torch.Tensor:
    """The lowest `width` bits of each uint8 element in units of so many bits along a new last dimension, low ones first."""
    return torch.stack([(x >> shift) & ((1 << unit) - 1) for shift in range(0, width, unit)], -1)


def join_units(x: torch.Tensor, unit: int, width: int) -> torch.Tensor:
    """Pack the lowest `unit` bits of neighbours along the last dimension into uint8 elements of `width` bits, low ones
    first. The last dimension shrinks by width / unit."""
    count = width // unit
    parts = [(x[..., i::count] & ((1 << unit) - 1)) << (unit * i) for i in range(count)]
    return torch.stack(parts).sum(0, dtype=torch.uint8)


def encode_by_table(x: torch.Tensor, keys: torch.Tensor, codes: torch.Tensor, nan: int | None = None) -> torch.Tensor:
    """The bits of float32 values on a narrow grid: `keys` are the total-order keys of all values, ascending, and `codes`
    the bits of each. `nan` has the bits of the NaN, where there is but one."""
    raw = x.view(torch.int32)
    place = torch.searchsorted(keys, raw ^ ((raw >> 31) & 0x7FFFFFFF))
    found = codes[place.clamp_(max=codes.numel() - 1)]
    return found if nan is None else torch.where(x.isnan(), nan, found)


def decode_by_table(codes: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """The float32 values that narrow floats with these bits stand for; `values` has one for each code."""
    return values[codes.long()]
