"""Literals as HLO text: ``{ {1,2}, {3,nan} }``. They are read in `literal_text.py`.

A small literal is a list of texts. A large one is written a piece at a time: the elements with commas between them, then the
braces put in where rows end, all by NumPy. Both give the same text.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np

from ...core.types import F8E8M0FNU, PrimitiveType, complex_part, mantissa_bits
from .float_text import numpy_texts, shortest_texts
from .literal import Literal
from .text import dtype_of, has_nan_payload

LARGE = 1 << 9
"""From how many elements a literal is written in pieces."""

_LONG_ROW = 64
"""From how many elements rows are put together one by one."""

_PIECE = 1 << 14
"""How many elements are written at once."""

_NUMPY_WRITES = tuple(np.dtype(kind) for kind in (np.float16, np.float32, np.float64))

Write: TypeAlias = Callable[[np.ndarray], bytes]
"""The texts of elements, each with a comma behind it."""


def format_literal(literal: Literal) -> str:
    """The body of a literal as ``constant(...)`` takes it: every element, in text that reads back to the same bits."""
    if isinstance(literal.value, tuple):
        return "(" + ", ".join(map(format_literal, literal.value)) + ")"
    if literal.elided:
        return "{...}"
    array, element_type = literal.value, literal.shape.element_type
    if element_type.is_pred and not array.ndim:
        return "true" if array else "false"
    if array.size >= LARGE:
        return b"".join(_pieces(array, element_type)).decode("ascii")
    return _nest(element_texts(array.reshape(-1), element_type), array.shape)


# ------------------------------------------------------------------------------------------------------- small ones


def _nest(texts: Sequence[str], dimensions: tuple[int, ...]) -> str:
    """Elements in row-major order with braces around each row; innermost without blanks, as XLA writes them."""
    if not dimensions:
        return texts[0]
    separator, opening, closing = ",", "{", "}"
    for depth, size in reversed(list(enumerate(dimensions))):
        rows = int(np.prod(dimensions[:depth], dtype=np.int64))
        texts = [opening + separator.join(texts[r * size:(r + 1) * size]) + closing for r in range(rows)]
        separator, opening, closing = ", ", "{ ", " }"
    return texts[0] if texts else "{}"


def element_texts(flat: np.ndarray, element_type: PrimitiveType) -> list[str]:
    """The text of each element of a one-dimensional array."""
    if element_type.is_pred:
        return ["1" if v else "0" for v in flat.tolist()]
    if element_type.is_integral:
        return list(map(str, flat.astype(np.int64 if element_type.is_signed else np.uint64).tolist()))
    if element_type.is_complex:
        parts = element_texts(np.ascontiguousarray(flat).view(dtype_of(complex_part(element_type))), complex_part(element_type))
        return [f"({real}, {imaginary})" for real, imaginary in zip(parts[::2], parts[1::2], strict=True)]
    return _float_texts(flat, element_type)


def _float_texts(flat: np.ndarray, element_type: PrimitiveType) -> list[str]:
    """Shortest texts that read back to the same value: ``0.001``, ``1e+10``."""
    with np.errstate(invalid="ignore"):  # signaling NaNs
        if flat.dtype in _NUMPY_WRITES:
            texts = numpy_texts(flat)
        else:
            texts = _shortest_texts(flat.astype(np.float64), element_type)
        nans = np.flatnonzero(np.isnan(flat))
    for place in nans.tolist():
        texts[place] = _nan_text(flat[place:place + 1], element_type)
    return texts


def _shortest_texts(values: np.ndarray, element_type: PrimitiveType) -> list[str]:
    """For types whose values NumPy spells as doubles: the fewest digits that still round to the value."""
    texts = [f"{value:.17g}" for value in values.tolist()]
    open_places = np.arange(len(texts))
    for digits in range(1, 9):
        shorter = [f"{value:.{digits}g}" for value in values[open_places].tolist()]
        found = np.array(shorter, np.float64).astype(dtype_of(element_type)).astype(np.float64) == values[open_places]
        for place, text, good in zip(open_places.tolist(), shorter, found.tolist(), strict=True):
            if good and len(text) < len(texts[place]):
                texts[place] = text
        open_places = open_places[~found]
    return ["-0.0" if text == "-0" else text for text in texts]


def _nan_text(value: np.ndarray, element_type: PrimitiveType) -> str:
    """``nan``, ``-nan``, or with the payload where it is not that of the quiet NaN."""
    bits, width = int(value.view(f"u{element_type.itemsize}")[0]), mantissa_bits(element_type)
    sign = "-" if bits >> (element_type.bits - 1) and element_type is not F8E8M0FNU else ""
    payload = bits & (2**width - 1)
    quiet = not has_nan_payload(element_type) or payload == 2 ** (width - 1)
    return f"{sign}nan" if quiet else f"{sign}nan({payload:#x})"


# ------------------------------------------------------------------------------------------------------- large ones


def _pieces(array: np.ndarray, element_type: PrimitiveType) -> Iterator[bytes]:
    """The text of a literal that has a dimension."""
    flat, part = array.reshape(-1), complex_part(element_type)
    sizes = (*array.shape, 2) if element_type.is_complex else array.shape
    opening, closing, between = _marks(array.ndim, element_type.is_complex)
    numbers = np.ascontiguousarray(flat).view(dtype_of(part)) if element_type.is_complex else flat
    write = _writer(part)
    yield opening
    for start in range(0, numbers.size, _PIECE):
        yield _with_rows(write(np.ascontiguousarray(numbers[start:start + _PIECE])), start, sizes, between)
    yield closing


def _marks(rank: int, pairs: bool) -> tuple[bytes, bytes, list[bytes]]:
    """What stands in front of all elements, what behind, and what between two: by how many rows end there (a pair is a row)."""
    openings, closings = ["{"] + ["{ "] * (rank - 1), ["}"] + [" }"] * (rank - 1)
    separators = [","] + [", "] * rank
    if pairs:
        openings, closings, separators = ["(", *openings], [")", *closings], [", ", *separators]
    between = ["".join(closings[:k]) + separators[k] + "".join(reversed(openings[:k])) for k in range(len(openings))]
    return "".join(reversed(openings)).encode(), "".join(closings).encode(), [text.encode() for text in between]


def _with_rows(text: bytes, start: int, sizes: tuple[int, ...], between: list[bytes]) -> bytes:
    """The texts of elements from number `start` on, with what stands behind each in place of its comma; behind the last of all
    nothing."""
    letters = np.frombuffer(text, np.uint8)
    commas = np.flatnonzero(letters == ord(","))
    inner = [math.prod(sizes[depth:]) for depth in range(len(sizes))]
    if start + len(commas) == inner[0]:
        letters, commas = letters[:-1], commas[:-1]
    every = inner[-1] if between[0] == b"," else 1  # every so many elements there is something other than a comma
    if every == inner[0]:
        return letters.tobytes()
    chosen = np.arange(-(start + 1) % every, len(commas), every)
    commas, numbers = commas[chosen], chosen + (start + 1)
    kinds = np.zeros(len(commas), np.intp)
    for size in inner[1:]:
        kinds += numbers % size == 0
    if every >= _LONG_ROW:
        edges = [-1, *commas.tolist(), len(letters)]
        marks = [*(between[kind] for kind in kinds.tolist()), b""]
        return b"".join(itertools.chain.from_iterable(
            (text[a + 1:b], mark) for (a, b), mark in zip(itertools.pairwise(edges), marks, strict=True)))
    lengths = np.array([len(mark) for mark in between])[kinds]
    begins = commas + np.cumsum(lengths - 1) - (lengths - 1)
    made = np.empty(len(letters) + int((lengths - 1).sum()), np.uint8)
    old, kept = np.ones(len(made), bool), np.ones(len(letters), bool)
    kept[commas] = False
    found: list[int] = np.unique(kinds).tolist()
    for kind in found:
        places = begins[kinds == kind][:, None] + np.arange(len(between[kind]))
        made[places], old[places] = np.frombuffer(between[kind], np.uint8), False
    made[old] = letters[kept]
    return made.tobytes()


def _writer(element_type: PrimitiveType) -> Write:
    if element_type.is_pred:
        return _write_truths
    if element_type.bits <= 16:
        return _Table(element_type).write
    if element_type.is_integral:
        return lambda flat: repr(flat.tolist())[1:-1].replace(" ", "").encode() + b","
    return lambda flat: _write_floats(flat, element_type)


def _write_truths(flat: np.ndarray) -> bytes:
    text = np.full((flat.size, 2), ord(","), np.uint8)
    text[:, 0] = flat + np.uint8(ord("0"))
    return text.tobytes()


def _write_floats(flat: np.ndarray, element_type: PrimitiveType) -> bytes:
    if np.isnan(flat).any():
        return (",".join(_float_texts(flat, element_type)) + ",").encode()
    if flat.dtype == np.float32:
        return shortest_texts(flat)
    text = repr(flat.tolist())[1:-1].replace(" ", "").encode() + b","  # as NumPy writes doubles
    return text.replace(b".0,", b",").replace(b"-0,", b"-0.0,")


class _Table:
    """Texts of a narrow type, which has few values: each is spelt once, however many elements there are."""

    _WIDTH = 16

    def __init__(self, element_type: PrimitiveType):
        self._type = element_type
        count = 1 << (8 * element_type.itemsize)
        self._texts = np.zeros((count, self._WIDTH), np.uint8)
        self._lengths = np.zeros(count, np.int64)

    def write(self, flat: np.ndarray) -> bytes:
        bits = flat.view(f"u{self._type.itemsize}")
        new = np.unique(bits[self._lengths[bits] == 0])
        if len(new):
            texts = [text + "," for text in element_texts(new.view(dtype_of(self._type)), self._type)]
            self._texts[new] = np.array(texts, f"S{self._WIDTH}").view(np.uint8).reshape(len(texts), self._WIDTH)
            self._lengths[new] = [len(text) for text in texts]
        return self._texts[bits][np.arange(self._WIDTH) < self._lengths[bits][:, None]].tobytes()
