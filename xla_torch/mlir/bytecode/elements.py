"""Dense elements from raw bytes: views into the file, copied only where the bits are packed."""

from __future__ import annotations

import math
import re

import ml_dtypes
import numpy as np

from ...core.errors import UnsupportedError
from ...core.types import PrimitiveType
from .. import ir
from .cursor import malformed

_OTHER = {"index": np.dtype(np.int64), "f6E2M3FN": np.dtype(ml_dtypes.float6_e2m3fn),
          "f6E3M2FN": np.dtype(ml_dtypes.float6_e3m2fn)}


def numpy_type(element: ir.ElementType) -> np.dtype:
    """How NumPy holds the elements: quantized ones as their storage, integers of odd widths in whole bytes. Raises
    UnsupportedError where it has nothing."""
    if isinstance(element, ir.Quantized):
        element = element.storage
    if isinstance(element, PrimitiveType) and element.numpy is not None:
        return element.numpy
    text = element.text if isinstance(element, ir.OtherType) else str(element)
    width = re.fullmatch(r"(u?)s?i(\d+)", text)
    if width and 0 < int(width[2]) <= 64 and -(-int(width[2]) // 8) in (1, 2, 4, 8):
        return np.dtype(f"{width[1] or 'i'}{-(-int(width[2]) // 8)}")
    if text not in _OTHER:
        raise UnsupportedError("NumPy has no such element type", subject="MLIR bytecode", got=text)
    return _OTHER[text]


def from_bytes(of: object, data: memoryview, offset: int) -> ir.Elements:
    """The elements of the type `of` that lie in `data`, which begins at `offset` of the file: all of them, or one that stands for
    all. Raises HloSyntaxError where their sizes do not fit."""
    if not isinstance(of, ir.Tensor) or of.dimensions is None or not of.is_static:
        raise malformed("elements of a type without sizes", offset, of)
    sizes: list[int] = [size or 0 for size in of.dimensions]
    number, dtype = math.prod(sizes), numpy_type(of.element)
    if number * dtype.itemsize >= 1 << 62 or len(sizes) > 32:
        raise malformed("elements of a type that is too large", offset, of)
    if of.element is PrimitiveType.PRED:
        flat = _bits(data, number)
    elif len(data) in (number * dtype.itemsize, dtype.itemsize):
        flat = np.frombuffer(data, dtype)
    else:
        flat = None
    if flat is None or len(flat) not in (1, number):
        raise malformed("elements that do not fill their type", offset, f"{len(data)} bytes", f"{of}")
    return ir.Elements(of, np.broadcast_to(flat, sizes) if len(flat) != number else flat.reshape(sizes))


def _bits(data: memoryview, number: int) -> np.ndarray | None:
    """Booleans: eight in a byte, one in a byte (as some versions wrote them), or one byte of equal bits for all."""
    if len(data) == -(-number // 8):
        return np.unpackbits(np.frombuffer(data, np.uint8), count=number, bitorder="little").view(np.bool_)
    if len(data) in (1, number):
        return np.frombuffer(data, np.uint8) != 0
    return None
