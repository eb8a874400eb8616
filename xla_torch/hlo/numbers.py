"""Numbers beside an operand: which of them stand for a constant of its element type, and which are refused.

The rule is one for operands, constants and arguments: **the kind fits, and the value is not lost**.

- A boolean or an integer goes where it is exact: in the range of an integer type, 0 or 1 for PRED, and into floats and complex
  numbers where these hold it without rounding.
- A float goes into floats and complex numbers, and is rounded to them as every literal of a program is. What is finite stays so:
  1e300 is no F32. Infinities and NaN go where the type has them. No float is an integer, not even 2.0.
- A complex number goes into complex numbers, by the same rule for both parts.

Arrays of NumPy go by the same rule, all elements at once; an array of the type itself is taken as it is.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from ..core.errors import InvalidArgument
from ..core.types import Kind, PrimitiveType, complex_part, type_from_numpy

Number = bool | int | float | complex | np.ndarray | np.generic

_WIDE = np.dtype(np.float32), np.dtype(np.float64)

_RANKS = {Kind.PRED: 0, Kind.SIGNED: 1, Kind.UNSIGNED: 1, Kind.FLOAT: 2, Kind.COMPLEX: 3}
"""Kinds of numbers, each of which goes into those that stand behind it."""

HINT = "convert the other operand with ConvertElementType, or give a number that this type holds"


def constant_of(value: Any, element_type: PrimitiveType) -> np.ndarray:
    """A Python number or NumPy array as an array of this element type. Raises InvalidArgument for what it does not hold."""
    if element_type.numpy is None:
        raise InvalidArgument(f"{element_type} is not an element type of arrays")
    if type(value) is float and element_type.is_differentiable:
        return _of_floats(np.asarray(value), element_type)
    if isinstance(value, int) and not isinstance(value, np.generic):
        return _of_integer(int(value), element_type)
    if not isinstance(value, (float, complex, np.ndarray, np.generic)):
        raise InvalidArgument("not a number or array", got=type(value).__name__, expected=f"a value of {element_type.text}")
    array = np.asarray(value)
    given = type_from_numpy(array.dtype) if array.dtype.kind not in "OSUMm" else None
    if given is None:
        raise InvalidArgument("no XLA element type for this NumPy dtype", got=array.dtype,
                              expected=f"numbers of {element_type.text}")
    if given is element_type:
        return array
    if _RANKS[given.kind] > max(_RANKS[element_type.kind], 1):
        raise _refused(_sample(array), element_type, "another kind of number")
    if _RANKS[given.kind] < 2:
        return _of_integers(array, element_type)
    return _of_floats(array, element_type)


def as_array(value: Any) -> np.ndarray:
    """Anything that NumPy understands, as an array of numbers. Raises InvalidArgument for all else: texts, lists of lists of
    different lengths, integers without a type."""
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidArgument("not an array of numbers", got=type(value).__name__, expected=f"numbers ({error})") from None
    if array.dtype.kind in "OSUMm" or type_from_numpy(array.dtype) is None:
        raise InvalidArgument("not an array of numbers", got=f"{type(value).__name__}, for NumPy {array.dtype}",
                              expected="numbers of one of XLA's element types, rows of equal length")
    return array


def range_of(element_type: PrimitiveType) -> tuple[int, int]:
    """The least and the greatest number of an integer type; 0 and 1 of PRED."""
    if element_type.is_pred:
        return 0, 1
    if element_type.is_unsigned:
        return 0, (1 << element_type.bits) - 1
    return -(1 << (element_type.bits - 1)), (1 << (element_type.bits - 1)) - 1


def _of_integer(value: int, element_type: PrimitiveType) -> np.ndarray:
    assert element_type.numpy is not None
    if not element_type.is_differentiable:
        low, high = range_of(element_type)
        if not low <= value <= high:
            raise _refused(value, element_type, "out of range")
        return np.asarray(value).astype(element_type.numpy) if element_type.bits < 64 else np.asarray(value, element_type.numpy)
    try:
        array = _converted(np.asarray(float(value)), element_type)
        if float(np.real(array).astype(np.float64)) == float(value) and int(float(value)) == value:
            return array
    except OverflowError:
        pass
    raise _refused(value, element_type, "not exact", hint=f"write {value}.0, a float, to have it rounded")


def _of_integers(array: np.ndarray, element_type: PrimitiveType) -> np.ndarray:
    assert element_type.numpy is not None
    wide = array if array.dtype.itemsize == 8 else array.astype(np.int64)
    if not array.size:
        return array.astype(element_type.numpy)
    if not element_type.is_differentiable:
        low, high = range_of(element_type)
        least, greatest = int(wide.min()), int(wide.max())
        if least < low or greatest > high:
            raise _refused(least if least < low else greatest, element_type, "out of range")
        return wide.astype(element_type.numpy)
    converted = _converted(wide.astype(np.float64), element_type)
    back = np.real(converted).astype(np.longdouble if element_type.bits >= 64 else np.float64)
    lost = back != wide.astype(np.longdouble)
    if lost.any():
        raise _refused(int(wide[lost][0]), element_type, "not exact",
                       hint="convert to floats, which are rounded: array.astype(float)")
    return converted


def _of_floats(array: np.ndarray, element_type: PrimitiveType) -> np.ndarray:
    converted = _converted(array, element_type)
    if array.dtype.kind == "c":
        lost = _lost(np.real(array), np.real(converted), element_type) | _lost(np.imag(array), np.imag(converted), element_type)
    else:
        lost = _lost(array, np.real(converted), element_type)
    if lost.any():
        raise _refused(array[lost].reshape(-1)[0].item(), element_type, "out of range")
    return converted


def _lost(given: np.ndarray, converted: np.ndarray, element_type: PrimitiveType) -> np.ndarray:
    """Where a float became something else than what it rounds to: infinite, NaN, or no zero and no NaN any more."""
    given, converted = (a if a.dtype in _WIDE else a.astype(np.float32) for a in (given, converted))
    lost = np.isfinite(given) != np.isfinite(converted)
    lost |= np.isnan(given) != np.isnan(converted)
    lost |= (given == 0) & (converted != 0)
    if element_type.bits < 8:  # they have no infinity and no NaN, and their conversion keeps what is too large at the largest
        lost |= np.abs(given) > _largest(element_type)
    return lost


def _converted(array: np.ndarray, element_type: PrimitiveType) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        return array.astype(element_type.numpy)


def _sample(array: np.ndarray) -> Any:
    return array.item() if array.ndim == 0 else f"{array.dtype} array"


def _refused(value: Any, element_type: PrimitiveType, why: str, hint: str = HINT) -> InvalidArgument:
    return InvalidArgument(f"{element_type.text} does not hold this number: {why}", got=repr(value) if not isinstance(
        value, str) else value, expected=_expected(element_type), hint=hint)


def _largest(element_type: PrimitiveType) -> float:
    # Its stubs know NumPy's own floats only.
    return float(ml_dtypes.finfo(element_type.numpy).max)  # pyright: ignore[reportArgumentType, reportUnknownMemberType, reportUnknownArgumentType]


def _expected(element_type: PrimitiveType) -> str:
    if element_type.is_differentiable:
        part = complex_part(element_type)
        largest = _largest(part)
        words = "complex numbers or floats" if element_type.is_complex else "floats"
        return f"{words} up to {largest:g}, or integers that are exact"
    low, high = range_of(element_type)
    return f"an integer from {low} to {high}" if not element_type.is_pred else "True or False"
