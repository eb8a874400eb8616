"""Element types as they are stored: between the boundary's tensors, NumPy arrays, numbers and what travels in a program.

See `dtypes.py` for what a storage dtype is. Everything that takes a `value` here works on torch tensors and on fx proxies alike:
what to do follows from the element type, never from the tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.fx

from ..core.errors import InvalidArgument
from ..core.types import (
    BF16,
    F4E2M1FN,
    F6E2M3FN,
    F6E3M2FN,
    F8E3M4,
    F8E4M3,
    F8E4M3B11FNUZ,
    F8E4M3FN,
    F8E4M3FNUZ,
    F8E5M2FNUZ,
    F8E8M0FNU,
    F32,
    PRED,
    Kind,
    PrimitiveType,
)
from ..kernels import grids
from ..storage.dtypes import storage_dtype, torch_dtype
from ..storage.nan_codes import SEVERAL
from .values import Value

Number = bool | int | float | complex

_INF, _NAN = float("inf"), float("nan")

_GRIDS: dict[PrimitiveType, tuple[Any, ...]] = {
    F8E4M3: (3, -6, 240.0, _INF),
    F8E3M4: (4, -2, 15.5, _INF),
    F8E4M3FN: (3, -6, 448.0, _NAN),
    F8E4M3B11FNUZ: (3, -10, 30.0, _NAN, False),
}
"""Arguments of `grids.round_to_grid` for the types that torch cannot round to as XLA does."""


_FINITE_GRIDS: dict[PrimitiveType, tuple[int, int, float]] = {
    F4E2M1FN: (1, 0, 6.0), F6E2M3FN: (3, 0, 7.5), F6E3M2FN: (2, -2, 28.0)}
"""Arguments of `grids.round_to_finite_grid`."""

_UNSIGNED_ZERO = (F8E4M3B11FNUZ, F8E4M3FNUZ, F8E5M2FNUZ)


# ------------------------------------------------------------------------------- wrapping and rounding


def normalise(value: Value, element_type: PrimitiveType) -> Value:
    """`value` brought onto the grid of a narrow type. Tensors and proxies of other types pass unchanged.

    Integers of under 8 bits wrap; floats of 8 bits and fewer round to nearest even and overflow to infinity, to NaN or to
    the largest value, whichever the format has. Python numbers are brought onto the grid of any type, wide ones as well.
    """
    if isinstance(value, Number):
        return number_from_numpy(numpy_scalar(value, element_type), element_type)
    if not element_type.is_narrow:
        return value
    if element_type.is_unsigned:
        return value & ((1 << element_type.bits) - 1)
    if element_type.is_signed:
        spare = 8 - element_type.bits
        return (value << spare) >> spare
    if element_type in _GRIDS:
        return _call(grids.round_to_grid, value, *_GRIDS[element_type])
    if element_type is F8E8M0FNU:
        return _call(grids.round_to_power_of_two, value)
    if element_type in _FINITE_GRIDS:
        return _call(grids.round_to_finite_grid, value, *_FINITE_GRIDS[element_type])
    if element_type in SEVERAL:
        return _call(grids.round_to_dtype, value, torch_dtype(element_type))
    return value.to(torch_dtype(element_type)).to(torch.float32)


def _call(function: Callable[..., Any], value: Value, *arguments: Any) -> Value:
    """Call a kernel; on a proxy as one call in the traced program."""
    if isinstance(value, torch.fx.Proxy):
        return value.tracer.create_proxy("call_function", function, (value, *arguments), {})
    return function(value, *arguments)


# ------------------------------------------------------------------------------- the boundary of a program


def to_storage(value: Value, element_type: PrimitiveType) -> Value:
    """A boundary tensor (dtype `element_type.torch`) in its storage dtype. Types without a torch dtype of their own come in
    their storage dtype and are brought onto their grid."""
    if torch_dtype(element_type) is storage_dtype(element_type):
        return normalise(value, element_type)
    if element_type.hides_sign:
        return value.view(storage_dtype(element_type))
    stored = value.to(storage_dtype(element_type))
    return _call(grids.with_payloads, stored, value.view(torch.uint8)) if element_type in SEVERAL else stored


def from_storage(value: Value, element_type: PrimitiveType) -> Value:
    """The inverse of `to_storage`."""
    if torch_dtype(element_type) is storage_dtype(element_type):
        return value
    if element_type.hides_sign:
        return value.view(torch_dtype(element_type))
    plain = value.to(torch_dtype(element_type))
    if element_type not in SEVERAL:
        return plain
    return _call(grids.to_codes, value, plain.view(torch.uint8), *SEVERAL[element_type]).view(torch_dtype(element_type))


def known_payloads(value: Value, element_type: PrimitiveType) -> Value:
    """A stored value whose NaNs all have a payload that says which they are, if the type has several."""
    return _call(grids.with_known_payloads, value, *SEVERAL[element_type]) if element_type in SEVERAL else value


# ------------------------------------------------------------------------------- NumPy and numbers


def storage_from_numpy(array: np.ndarray, element_type: PrimitiveType) -> torch.Tensor:
    """A tensor on the CPU in the storage dtype, with the array's values (of dtype `element_type.numpy`).

    Shares the array's memory where it is writable and what is stored has the same bits; otherwise copies, so that nothing
    done to the tensor can write to read-only memory.
    """
    dtype = numpy_dtype(element_type)
    if array.dtype != dtype:
        raise InvalidArgument("the array's dtype does not fit its element type", got=array.dtype, expected=dtype)
    if element_type.is_narrow:
        with np.errstate(all="ignore"):  # NumPy warns of NaN
            stored = torch.from_numpy(np.asarray(array.astype(_numpy_storage(element_type))))
        if element_type not in SEVERAL:
            return stored
        return grids.with_payloads(stored, torch.from_numpy(np.array(array, order="C").view(np.uint8)))
    shareable = array.flags.writeable and all(stride >= 0 for stride in array.strides)
    array = array if shareable else np.array(array, order="C")
    if element_type is BF16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array.view(f"i{array.itemsize}") if element_type.hides_sign else array)


def numpy_from_storage(tensor: torch.Tensor, element_type: PrimitiveType) -> np.ndarray:
    """The inverse of `storage_from_numpy`; shares memory with a CPU tensor where the bits are the same."""
    dtype = numpy_dtype(element_type)
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    if element_type is BF16:
        return tensor.view(torch.int16).numpy().view(dtype)
    if not element_type.is_narrow:
        return tensor.numpy().view(dtype)
    with np.errstate(all="ignore"):  # NumPy warns of NaN
        plain = tensor.numpy().astype(dtype)
    if element_type not in SEVERAL:
        return plain
    return grids.to_codes(tensor, torch.from_numpy(np.array(plain).view(np.uint8)), *SEVERAL[element_type]).numpy().view(dtype)


def number_from_numpy(scalar: Any, element_type: PrimitiveType) -> Number:
    """A NumPy scalar or 0-dimensional array of the type as a Python number as it is stored.

    U16, U32 and U64 become the signed number with the same bits. F32 becomes the number with the fewest digits that is the
    same float32, so that generated code reads ``0.1`` and not ``0.10000000149011612``.
    """
    kind = element_type.kind
    if kind is Kind.PRED:
        return bool(scalar)
    if kind is Kind.SIGNED:
        return int(scalar)
    if kind is Kind.UNSIGNED:
        return signed_number(int(scalar), element_type.bits) if element_type.hides_sign else int(scalar)
    if kind is Kind.COMPLEX:
        return complex(scalar)
    if kind is Kind.OTHER:
        raise InvalidArgument(f"{element_type} is not an element type of arrays")
    if element_type is F32:
        single = np.float32(scalar)
        short = float(str(single))
        # Near the largest float32 the short decimal lies beyond it, and torch refuses it.
        return short if abs(short) <= float(np.finfo(np.float32).max) else float(single)
    return float(scalar)


def numpy_scalar(number: Number, element_type: PrimitiveType) -> np.ndarray:
    """The inverse of `number_from_numpy`: a 0-dimensional array of the type. Integers wrap and floats round as XLA's
    conversion within the kind does."""
    dtype = numpy_dtype(element_type)
    if element_type.is_integral:
        # Through the eight bytes of the number: NumPy refuses numbers that do not fit instead of wrapping them.
        return np.array(signed_number(int(number.real), 64), np.int64).astype(dtype)
    with np.errstate(all="ignore"):
        return np.array(number).astype(np.complex128 if element_type.is_complex else np.float64).astype(dtype)


def signed_number(number: int, bits: int) -> int:
    """`number` wrapped to a signed integer of so many bits."""
    return ((number + (1 << (bits - 1))) & ((1 << bits) - 1)) - (1 << (bits - 1))


def _numpy_storage(element_type: PrimitiveType) -> type[np.generic]:
    if element_type.is_floating:
        return np.float32
    return np.uint8 if element_type.is_unsigned else np.int8


def numpy_dtype(element_type: PrimitiveType) -> np.dtype:
    """The NumPy dtype of an element type. Raises InvalidArgument for what is no element type of arrays."""
    if element_type.numpy is None:
        raise InvalidArgument(f"{element_type} is not an element type of arrays")
    return element_type.numpy


# ------------------------------------------------------------------------------- order


def sign_flip(value: Value, element_type: PrimitiveType) -> Value:
    """A stored value (tensor, proxy or number) mapped so that the storage dtype's own order is the element type's.

    U16, U32 and U64 travel in signed storage: flipping the top bit puts them in order, and flipping it again restores
    them. All other types are in order already.
    """
    return value ^ -(1 << (element_type.bits - 1)) if element_type.hides_sign else value


def unsigned_less(lhs: Value, rhs: Value, element_type: PrimitiveType) -> Value:
    """``lhs < rhs`` of two stored values in the element type's own order."""
    return sign_flip(lhs, element_type) < sign_flip(rhs, element_type)


def total_order_key(value: Value, element_type: PrimitiveType) -> Value:
    """Signed integers (for PRED: bool) in the type's total order: for floats -NaN < -inf < ... < -0 < +0 < ... < inf < NaN.

    Equal keys mean equal bits. Raises InvalidArgument for complex types, which have no such order.
    """
    if element_type is PRED or element_type.is_integral:
        return sign_flip(value, element_type)
    if not element_type.is_floating:
        raise InvalidArgument(f"{element_type} has no total order", expected="an integer, PRED or floating type")
    width = 32 if element_type.is_narrow else element_type.bits
    bits = known_payloads(value, element_type).view({16: torch.int16, 32: torch.int32, 64: torch.int64}[width])
    # Negative floats have their magnitude in reverse: the shift gives all ones exactly where the sign is set.
    key = bits ^ ((bits >> (width - 1)) & ((1 << (width - 1)) - 1))
    # The one NaN of these formats has the bits of -0.
    return torch.where(value.isnan(), -(1 << 31), key) if element_type in _UNSIGNED_ZERO else key
