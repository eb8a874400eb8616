"""Literals in HLO text: ``{ {1, 2}, {3, nan} }`` to NumPy. They are printed in `literal_printing.py`.

Reading has two ways. Clean text, however long, is checked and converted a large piece at a time by NumPy. A piece that does not
pass there (odd spellings, mistakes) is read element by element, which also finds the exact place and reason of a mistake.
"""

from __future__ import annotations

import enum
import re

import numpy as np

from ...core.shape import UNBOUNDED, Shape
from ...core.types import MAX_RANK, PrimitiveType, complex_part, mantissa_bits
from ..scanner import INT64_MIN, UINT64_MAX, Scanner
from .literal import Literal
from .number_lists import CAREFUL, ListReader, Stretch
from .number_text import decimals, integers, places, rounded_to_odd

LARGE_LITERALS = re.compile(rb"constant\(\s*+(?=\{[-+0-9.eE,{}()\sinfatrulsx/*=]{65536})")
"""What stands in front of the literals that are cut out of a text (`cut_text.py`). Those are read in the first way only."""

_elision = re.compile(r"\{\s*+\.\.\.\s*+\}")
_end = re.compile(r"\}\s*(?:\)|\Z|,\s*[A-Za-z])")
_comment = re.compile(rb"/\*.*?\*/", re.S)
_digits = re.compile(r"[0-9]++")
_payload = re.compile(rb"nan\(0x([0-9a-fA-F]++)\)")
_word = re.compile(rb"-?(?:inf|nan(?:x[0-9a-fA-F]++)?)\b")
_negative_nan = re.compile(rb"-nan(?:x[0-9a-fA-F]++)?\b")
_element = re.compile(
    r"(-?)(nan(?:\(0x([0-9a-fA-F]++)\))?|inf|true|false|(?:[0-9]++(?:\.[0-9]*+)?|(?<=-)\.[0-9]++)(?:[eE][+-]?[0-9]++)?)(?![\w.])")


_SHORT = 512
"""Up to how much text a row of numbers is read at once."""

_BACKWARDS = 1 << 18
"""How much text is searched at once for braces that are open."""


def parse_literal(scanner: Scanner, shape: Shape) -> Literal:
    """Read the body of a literal of `shape` at the scanner's cursor, as it stands in ``constant(...)``.

    Raises HloSyntaxError for a body that is not of this shape, values out of the type's range, and malformed values.
    """
    shape = shape.without_layout()
    if shape.is_tuple:
        return _parse_tuple(scanner, shape)
    if not shape.is_array:
        raise scanner.error(f"a constant cannot have the shape {shape}")
    start = scanner.skip()
    if shape.byte_size >= 2**63:
        raise scanner.error(f"a constant of {shape} is larger than memory can be")
    if shape.rank > MAX_RANK:
        raise scanner.error(f"a constant has more than {MAX_RANK} dimensions", start, "so many as arrays of NumPy have")
    if not shape.dimensions:
        return Literal(shape, _parse_element(scanner, shape.element_type).reshape(()))
    if UNBOUNDED in shape.dimensions:
        raise scanner.error("a constant has a size in each dimension", start, "sizes, or bounds <=N")
    if elision := _elision.match(scanner.text, start):
        scanner.pos = elision.end()
        nothing = np.zeros((), dtype_of(shape.element_type))
        return Literal(shape, np.broadcast_to(nothing, shape.dimensions), elided=True)
    if shape.element_count and not shape.element_type.is_complex and not scanner.looking_at("{"):
        return Literal(shape, _parse_first(scanner, shape))
    flat = _parse_list(scanner, shape)
    return Literal(shape, flat.view(dtype_of(shape.element_type)).reshape(shape.dimensions))


def _parse_first(scanner: Scanner, shape: Shape) -> np.ndarray:
    """One number without braces: as in XLA it is the first element, and zeros are all others."""
    start = scanner.skip()
    element = _parse_element(scanner, shape.element_type).reshape(())
    if not any(element.tobytes()):
        return np.broadcast_to(element, shape.dimensions)
    try:
        array = np.zeros(shape.dimensions, element.dtype)
    except MemoryError:
        raise scanner.error(f"a constant of {shape} is larger than memory is", start) from None
    array.flat[0] = element
    return array


def _parse_tuple(scanner: Scanner, shape: Shape) -> Literal:
    scanner.expect("(", "before the elements of a tuple")
    parts: list[Literal] = []
    for position, part in enumerate(shape.tuple_shapes):
        if position:
            scanner.expect(",", "between the elements of a tuple")
        parts.append(parse_literal(scanner, part))
    scanner.expect(")", "after the elements of a tuple")
    return Literal(shape, tuple(parts), elided=any(p.elided for p in parts))


# ------------------------------------------------------------------------------------------- reading in large pieces


def _parse_list(scanner: Scanner, shape: Shape) -> np.ndarray:
    """The elements in order; of complex numbers the parts."""
    start = scanner.pos
    cut = scanner.cuts.take(start) if scanner.cuts is not None else None
    if cut is not None:
        reader = _reader(Stretch(cut, 0, len(cut)), shape)
        if reader.read() is not None:
            raise scanner.error("the literal is not clean")  # so that the whole text is read instead
        scanner.pos = start + len("{}")
        return reader.values
    end = _end.search(scanner.text, start)
    stop = end.start() + 1 if end else len(scanner.text)
    if stop - start <= _SHORT and len(shape.dimensions) == 1 and (row := _short_row(scanner.text[start:stop], shape)) is not None:
        scanner.pos = stop
        return row
    reader = _reader(Stretch(scanner.text, start, stop), shape)
    scanner.pos, unclean = stop, reader.read()
    while unclean is not None:
        done = _read_elements(scanner, shape, reader, start, unclean)
        if done:
            break
        unclean = reader.read(scanner.pos)
        scanner.pos = stop
    return reader.values


def _short_row(text: str, shape: Shape) -> np.ndarray | None:
    """A clean row of a few real numbers, without what reading of many needs; None for anything else."""
    if shape.element_type.is_complex or not (text.startswith("{") and text.endswith("}") and text.isascii() and "/" not in text):
        return None
    values = text[1:-1].encode()
    if values.count(b",") + 1 != shape.element_count or b"{" in values or b"x" in values:
        return None
    found = _convert(values, shape.element_type)
    return found if found is not None and len(found) == shape.element_count else None


def _reader(text: Stretch, shape: Shape) -> ListReader:
    element_type = shape.element_type
    return ListReader(text, shape.dimensions, "{}", dtype_of(complex_part(element_type)),
                      lambda values: _convert(values, element_type), _plain, pairs=element_type.is_complex)


def _plain(piece: bytes) -> bytes | None:
    """A piece of a list without comments, NaN payloads in words without brackets; None where that is not all."""
    if b"/" in piece:
        piece = _comment.sub(b" ", piece)
        if b"/" in piece:
            return None
    if b"x" in piece:
        if b"nanx" in piece:
            return None
        piece = _payload.sub(rb"nanx\1", piece)
    return piece


def _convert(values: bytes, element_type: PrimitiveType) -> np.ndarray | None:
    """Comma-separated values as an array, or None if one of them is out of range or malformed."""
    if element_type.is_pred:
        values = values.replace(b"true", b"1").replace(b"false", b"0")
        found = integers(values, 0, 1) if b"-" not in values and b"x" not in values else None
        return None if found is None else found != 0
    if element_type.is_integral:
        found = integers(values, *integer_range(element_type)) if b"x" not in values else None
        return None if found is None else found.astype(dtype_of(element_type))
    words = _word.findall(values) if b"n" in values else []
    numbers = decimals(_word.sub(b"0", values) if words else values)
    if numbers is None or np.isinf(numbers).any():
        return None
    part = complex_part(element_type)
    if not words:
        return _round(numbers, part)
    where = places(values, _word)
    numbers[where] = np.array([float(word.partition(b"x")[0]) for word in words])
    numbers[places(values, _negative_nan)] = -np.nan
    rounded = _round(numbers, part)
    return rounded if rounded is None or b"x" not in values else _with_payloads(rounded, where, words, part)


def _with_payloads(rounded: np.ndarray, where: np.ndarray, words: list[bytes], element_type: PrimitiveType) -> np.ndarray | None:
    """With the payloads of NaNs, or None where one does not fit."""
    width, has_one = mantissa_bits(element_type), np.array([b"x" in word for word in words])
    payloads = [int(word.partition(b"x")[2], 16) for word in words if b"x" in word]
    if not has_nan_payload(element_type) or not 0 < min(payloads) <= max(payloads) < 2**width:
        return None
    bits = rounded.view(f"u{element_type.itemsize}")
    bits[where[has_one]] = (bits[where[has_one]] >> width << width) | np.array(payloads, bits.dtype)
    return rounded


def _round(numbers: np.ndarray, element_type: PrimitiveType) -> np.ndarray | None:
    """Doubles rounded to a floating type, or None where a finite value is out of its range. What the type has no value
    for becomes what XLA makes of it: an infinity its NaN, or its greatest value where it has neither."""
    with np.errstate(all="ignore"):
        exact = rounded_to_odd(numbers) if element_type.bits <= 8 else numbers
        converted = exact.astype(dtype_of(element_type))
        lost = np.isfinite(numbers) & ~np.isfinite(converted.astype(np.float64))
    return None if lost.any() else converted


def dtype_of(element_type: PrimitiveType) -> np.dtype:
    """The NumPy dtype of an array's element type."""
    assert element_type.numpy is not None
    return element_type.numpy


def integer_range(element_type: PrimitiveType) -> tuple[int, int]:
    """The least and greatest value of an integer type."""
    bits = element_type.bits
    return (0, 2**bits - 1) if element_type.is_unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


# ------------------------------------------------------------------------------------- reading, element by element


def _read_elements(scanner: Scanner, shape: Shape, reader: ListReader, start: int, piece: int) -> bool:
    """Read elements from the piece on that is not clean. Whether the list is at its end; the cursor is then behind it, and behind
    a comma otherwise. `start` is where the list begins."""
    element_type = shape.element_type
    levels = _Levels(scanner, shape, start)
    values: list[np.ndarray] = []
    if reader.filled:
        levels.resume(reader.filled // (2 if element_type.is_complex else 1), piece - 1)
    else:
        scanner.pos = start
        levels.open()
    at = levels.to_next(None)
    while at is _At.ELEMENT:
        values.append(_parse_element(scanner, element_type))
        levels.counts[-1] += 1
        at = levels.to_next(piece + CAREFUL)
    if values:
        numbers = np.concatenate(values)
        reader.put(numbers.view(dtype_of(complex_part(element_type))))
    return at is _At.END


class _At(enum.Enum):
    """Where a list is read on from: its end, an element, or behind a comma at which the reading may stop."""

    END = enum.auto()
    ELEMENT = enum.auto()
    COMMA = enum.auto()


class _Levels:
    """The braces that are open where a list is read."""

    def __init__(self, scanner: Scanner, shape: Shape, start: int):
        self._scanner, self._shape, self._start = scanner, shape, start
        self.counts: list[int] = []  # items that are read behind each
        self._opened: list[int] = []

    def resume(self, number: int, comma: int) -> None:
        """As they are behind so many elements, in front of the comma there."""
        self._scanner.pos = comma
        sizes = self._shape.dimensions
        self.counts = [int(at) for at in np.unravel_index(number - 1, sizes)]
        self.counts[-1] += 1
        self._opened = _open_braces(self._scanner.text, self._start, comma, len(sizes))

    def open(self) -> None:
        """Open the next level."""
        self._opened.append(self._scanner.skip())
        self._scanner.expect("{", f"at level {len(self._opened)} of a literal of {self._shape}")
        self.counts.append(0)

    def to_next(self, until: int | None) -> _At:
        """Read on to the next element, or to the first comma behind `until`."""
        scanner, sizes = self._scanner, self._shape.dimensions
        while True:
            size = sizes[len(self.counts) - 1]
            if scanner.accept("}"):
                self._close(size)
                if not self.counts:
                    return _At.END
                self.counts[-1] += 1
                continue
            if scanner.accept(","):  # XLA overlooks commas, and that there is none
                if until is not None and self.counts[-1] and scanner.pos > until and self.counts[-1] < size:
                    return _At.COMMA
                continue
            if self.counts[-1] == size:
                raise scanner.error(f"the literal has more than {size} elements in dimension {len(self.counts) - 1}",
                                    expected=str(self._shape))
            if len(self.counts) == len(sizes):
                return _At.ELEMENT
            self.open()

    def _close(self, size: int) -> None:
        count, start = self.counts.pop(), self._opened.pop()
        if count != size:
            raise self._scanner.error(f"expects {size} elements in dimension {len(self.counts)} of the literal, but sees {count}",
                                      start, expected=str(self._shape))


def _open_braces(text: str, start: int, end: int, count: int) -> list[int]:
    """Where the braces stand that are open at `end`, so many, outermost first."""
    found: list[int] = []
    open_behind = 0
    while end > start and len(found) < count:
        begin = max(start, end - _BACKWARDS)
        letters = np.frombuffer(text[begin:end].encode("ascii", "replace"), np.uint8)[::-1]
        steps = (letters == ord("{")).astype(np.int64) - (letters == ord("}"))
        depths = np.cumsum(steps) + open_behind
        highest = np.maximum.accumulate(depths)
        for depth in range(len(found) + 1, count + 1):
            at = int(np.searchsorted(highest, depth))
            if at == len(highest):
                break
            found.insert(0, end - 1 - at)
        open_behind, end = int(depths[-1]), begin
    return [start] * (count - len(found)) + found


def _parse_element(scanner: Scanner, element_type: PrimitiveType) -> np.ndarray:
    """One element as an array of one."""
    if element_type.is_complex:
        if not scanner.looking_at("("):
            raise scanner.error("an element of a complex literal is a pair", expected="(real, imaginary)")
        part = complex_part(element_type)
        scanner.expect("(")
        real = _parse_element(scanner, part)
        scanner.expect(",", "between the real and the imaginary part")
        imaginary = _parse_element(scanner, part)
        scanner.expect(")", "after the imaginary part")
        return np.concatenate([real, imaginary]).view(dtype_of(element_type))
    start = scanner.skip()
    match = scanner.match(_element, f"a value of type {element_type.text}")
    sign, word, payload = match.groups()
    if element_type.is_floating and word.startswith("nan"):
        return _nan(scanner, start, element_type, bool(sign), payload)
    if element_type.is_floating and word in ("true", "false"):
        raise scanner.error("not a number", start, f"a value of type {element_type.text}")
    if element_type.is_floating:
        number = float(sign + word)
        value = _round(np.array([number]), element_type)
        if value is None or (np.isinf(number) and word != "inf"):
            raise scanner.error(f"value {sign}{word[:40]} is out of range for literal's primitive type {element_type}", start)
        return value
    if word in ("true", "false") and not sign and element_type.is_pred:
        return np.array([word == "true"])
    if not _digits.fullmatch(word):
        raise scanner.error(f"expects an integer of type {element_type.text}", start)
    number = _as_int64(int(sign + word))
    if number is None:
        raise scanner.error(f"value {sign}{word[:40]} is out of range: it does not fit in 64 bits", start)
    if element_type.bits == 64 and element_type.is_unsigned:
        number %= 2**64
    if element_type.is_pred:
        return np.array([number != 0])
    low, high = integer_range(element_type)
    if not low <= number <= high:
        raise scanner.error(f"value {number} is out of range for literal's primitive type {element_type} "
                            f"namely [{low}, {high}]", start)
    return np.array([number], dtype_of(element_type))


def _as_int64(number: int) -> int | None:
    """As XLA's lexer keeps an integer: in 64 bits, of which the highest is a sign. None where it does not fit."""
    if not INT64_MIN <= number <= UINT64_MAX:
        return None
    return number - 2**64 if number >= 2**63 else number


def _nan(scanner: Scanner, start: int, element_type: PrimitiveType, negative: bool, payload: str | None) -> np.ndarray:
    """A NaN by sign and payload (its mantissa bits)."""
    value = np.array([-np.nan if negative else np.nan]).astype(dtype_of(element_type))
    if payload is None:
        return value
    number, width = int(payload, 16), mantissa_bits(element_type)
    if not has_nan_payload(element_type):
        raise scanner.error(f"type {element_type} has one NaN and no payloads", start)
    if not 0 < number < 2**width:
        raise scanner.error("the NaN's payload does not fit the type's mantissa", start,
                            f"more than 0 and at most {2**width - 1:#x} for {element_type}")
    bits = value.view(f"u{element_type.itemsize}")
    bits[0] = (int(bits[0]) >> width << width) | number
    return value


def has_nan_payload(element_type: PrimitiveType) -> bool:
    """Whether the type has more NaNs than one of each sign: the types that also have infinities."""
    return bool(np.isinf(np.array(np.inf).astype(dtype_of(element_type)).astype(np.float64)))
