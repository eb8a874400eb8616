"""The contents of ``dense<...>`` and ``dense_resource<...>`` to NumPy, without a step of Python for each element.

A splat is a view of one element. Hexadecimal data and lists are decoded a large piece at a time (`hlo/number_lists.py`); only a
piece of a list that does not pass is looked at once more, for the place of the mistake.
"""

from __future__ import annotations

import math
import re
from typing import NoReturn

import numpy as np

from ...core.errors import HloSyntaxError, UnsupportedError
from ...core.types import MAX_RANK, PrimitiveType, complex_part
from ...hlo.hex_text import unhexed
from ...hlo.literals.number_lists import CAREFUL, ListReader, Stretch
from ...hlo.literals.number_text import decimals, integers, places, round_to
from ..ir import INDEX, Elements, Quantized, Tensor, Type
from .scanner import BLANK, TextScanner
from .types import type_text

LARGE_LITERALS = re.compile(rb'"0x(?=[0-9a-fA-F]{65536})|<\s*+(?=\[[-+0-9.eE,\[\]()\sxa-fA-Ftruls]{65536})')
"""What stands in front of the literals that are cut out of a text (`hlo/cut_text.py`)."""

_scalar = re.compile(rf"{BLANK}(true|false|-?0x[0-9a-fA-F]+|-?\d[\w.+\-]*)")
_pair = re.compile(rf"{BLANK}\(\s*([^\s,()<>]+)\s*,\s*([^\s,()<>]+)\s*\)")
_hexadecimal = re.compile(rb"-?0x[0-9a-fA-F]+")
_value = re.compile(r"true|false|-?(?:0x[0-9a-fA-F]+|\d+(?:\.\d*(?:[eE][+-]?\d+)?)?)")
_integer = re.compile(r"-?\d+")
_comment = re.compile(r"//[^\n]*")
_item = re.compile(r"[^\s,\[\]()]+(?:\s+[^\s,\[\]()]+)*")

_BETWEEN = bytes(c in b"[](), \t\r\n" for c in range(256))

_OTHER = {INDEX: np.dtype(np.int64)}


class _Kind:
    """How elements of a type are read: their dtype, and what numbers they are."""

    def __init__(self, element: Type):
        self.type = element.storage if isinstance(element, Quantized) else element
        known = self.type.numpy if isinstance(self.type, PrimitiveType) else _OTHER.get(self.type)  # pyright: ignore
        if known is None:
            raise KeyError
        self.dtype: np.dtype = known
        primitive = self.type if isinstance(self.type, PrimitiveType) else None
        self.is_complex = primitive is not None and primitive.is_complex
        self.is_pred = primitive is PrimitiveType.PRED
        self.is_float = (primitive is not None and primitive.is_floating) or (primitive is None and self.type != INDEX)
        self.is_unsigned = primitive is not None and primitive.is_unsigned
        self.bits = primitive.bits if primitive is not None else 64 if self.type == INDEX else 6
        self.part = np.dtype(complex_part(primitive).numpy) if primitive is not None and primitive.is_complex else self.dtype

    @property
    def integer_range(self) -> tuple[int, int]:
        """MLIR takes a value of an integer without sign by its bits, so that ``255 : i8`` is -1."""
        if self.is_pred:
            return -1, 1
        return 0 if self.is_unsigned else -(2 ** (self.bits - 1)), 2**self.bits - 1


def read_dense(scanner: TextScanner, end: int, type: Type, start: int) -> Elements:
    """The elements whose text lies from the cursor to `end`, where ``>`` stands; `start` is where ``dense`` stands, for errors.

    Raises HloSyntaxError for contents that are not those of this type.
    """
    kind = _kind(scanner, type, start)
    assert isinstance(type, Tensor)
    text, pos, sizes = scanner.text, scanner.skip(), _sizes(type)
    if text.startswith('"', pos):
        return Elements(type, _from_hexadecimal(scanner, pos, end, kind, type))
    if pos == end:
        if math.prod(sizes):
            raise scanner.error("the literal has no elements", start, expected=type_text(type))
        return Elements(type, np.zeros(sizes, kind.dtype))
    if not text.startswith("[", pos):
        return Elements(type, _splat(scanner, end, kind, sizes))
    return Elements(type, _listed(scanner, pos, end, kind, type))


def read_blob(scanner: TextScanner, name: str, data: np.ndarray, type: Type, start: int) -> Elements:
    """The elements of a resource: its bytes, without the alignment in front."""
    kind = _kind(scanner, type, start)
    assert isinstance(type, Tensor)
    return Elements(type, _from_bytes(scanner, data, kind, type, start, f"the resource {name!r}"))


def _kind(scanner: TextScanner, type: Type, start: int) -> _Kind:
    if not isinstance(type, Tensor):
        raise scanner.error("a dense constant has a tensor type", start, expected="tensor<...>")
    if not type.is_static:
        raise scanner.error("a dense constant has a type of known sizes", start, expected=f"known sizes, not {type_text(type)}")
    try:
        kind = _Kind(type.element)
    except KeyError:
        raise scanner.error(f"constants of {type_text(type.element)} cannot be read", start) from None
    if math.prod(_sizes(type)) * kind.dtype.itemsize >= 2**63:
        raise scanner.error(f"a constant of {type_text(type)} is larger than memory can be", start)
    return kind


def _sizes(type: Tensor) -> tuple[int, ...]:
    """The sizes of a type that has no unknown ones. Raises UnsupportedError for more than arrays of NumPy have."""
    if len(type.dimensions or ()) > MAX_RANK:
        raise UnsupportedError(f"a constant has more than {MAX_RANK} dimensions", got=type_text(type))
    return type.dimensions  # pyright: ignore[reportReturnType]


# ------------------------------------------------------------------------------------------------------- one for all


def _splat(scanner: TextScanner, end: int, kind: _Kind, sizes: tuple[int, ...]) -> np.ndarray:
    start = scanner.skip()
    if kind.is_complex:
        match = scanner.take(_pair, "a pair (real, imaginary)")
        parts = [_one(scanner, text, match.start(k), kind) for k, text in ((1, match[1]), (2, match[2]))]
        value = np.array(parts, kind.part).view(kind.dtype).reshape(())
    else:
        match = scanner.take(_scalar, f"an element of type {type_text(kind.type)}")
        value = _one(scanner, match[1], start, kind)
    if scanner.skip() != end:
        raise scanner.error("expects '>' after the element", expected="'>'")
    return np.broadcast_to(value, sizes)


def _one(scanner: TextScanner, text: str, pos: int, kind: _Kind) -> np.ndarray:
    """One number as an array without dimensions."""
    value = _convert(text.encode("ascii", "replace"), kind) if _value.fullmatch(text) else None
    if value is None:
        _refuse(scanner, text, pos, kind)
    return value.reshape(())


def integer_for_float(scanner: TextScanner, text: str, pos: int, type: Type) -> HloSyntaxError:
    """The error of an integer where MLIR wants a point in it, or bits: it could be meant as either."""
    return scanner.error(f"{text[:40]} is an integer, but {type_text(type)} a floating type", pos,
                         expected=f"{text[:40]}.0, or the bits of a number as 0x...")


def integer_as(number: int, type: PrimitiveType) -> int | None:
    """An integer as a type has it, which without a sign may be spelt by its bits (255 is -1 of i8); None where it has none."""
    kind = _Kind(type)
    low, high = kind.integer_range
    if not low <= number <= high:
        return None
    return number - 2**kind.bits if number >= 2 ** (kind.bits - 1) and not kind.is_unsigned and not kind.is_pred else number


def _refuse(scanner: TextScanner, text: str, pos: int, kind: _Kind) -> NoReturn:
    if (kind.is_float or kind.is_complex) and _integer.fullmatch(text):
        raise integer_for_float(scanner, text, pos, kind.type)
    what = "is out of range for" if _value.fullmatch(text) else "is no element of"
    raise scanner.error(f"{text[:40]} {what} the type {type_text(kind.type)}", pos)


# -------------------------------------------------------------------------------------------------------------- lists


def _listed(scanner: TextScanner, start: int, end: int, kind: _Kind, type: Tensor) -> np.ndarray:
    cut = scanner.cuts.take(start) if scanner.cuts is not None else None
    if cut is not None:
        text = Stretch(cut, 0, len(cut))
    elif scanner.text.find("/", start, end) < 0:
        text = Stretch(scanner.text, start, end)
    else:
        plain = _comment.sub(lambda match: " " * len(match[0]), scanner.text[start:end])
        text = Stretch(plain, start, end, origin=start)
    reader = ListReader(text, _sizes(type), "[]", kind.part, lambda values: _convert(values, kind), pairs=kind.is_complex)
    unclean = reader.read()
    if unclean is not None:
        _find_mistake(scanner, text, unclean, reader, kind, type)
    return reader.values.view(kind.dtype).reshape(_sizes(type))


def _convert(values: bytes, kind: _Kind) -> np.ndarray | None:
    """Comma-separated numbers as an array of the type's parts, or None where one is malformed or out of range."""
    if kind.is_pred:
        values = values.replace(b"true", b"1").replace(b"false", b"0")
    if not (kind.is_float or kind.is_complex):
        found = integers(values, *kind.integer_range)
        return None if found is None else found != 0 if kind.is_pred else _narrowed(found, kind)
    patterns = _hexadecimal.findall(values) if b"x" in values else []
    numbers = decimals(_hexadecimal.sub(b"0", values) if patterns else values)
    points = np.count_nonzero(np.frombuffer(values, np.uint8) == ord("."))
    if numbers is None or points + len(patterns) != len(numbers):  # one of them is an integer
        return None
    made = round_to(numbers, kind.part)
    return _with_bits(made, places(values, _hexadecimal), patterns) if patterns else made


def _narrowed(found: np.ndarray, kind: _Kind) -> np.ndarray:
    """Integers by their lowest bits."""
    if kind.bits >= 8:
        return found.astype(kind.dtype)
    low = found & (2**kind.bits - 1)
    if not kind.is_unsigned:
        low = (low ^ (1 << (kind.bits - 1))) - (1 << (kind.bits - 1))
    return low.astype(np.int8).astype(kind.dtype)


def _with_bits(made: np.ndarray, where: np.ndarray, patterns: list[bytes]) -> np.ndarray | None:
    """Floating numbers given by their bits, in their places."""
    width = made.dtype.itemsize
    numbers = [int(p, 16) for p in patterns]
    if min(numbers) < 0 or max(numbers) >= 2 ** (8 * width) or b"-" in b"".join(patterns):
        return None
    made.view(f"u{width}")[where] = np.array(numbers, f"u{width}")
    return made


def _find_mistake(scanner: TextScanner, text: Stretch, unclean: int, reader: ListReader, kind: _Kind, type: Tensor) -> NoReturn:
    """What is wrong with a list from a place on: an element of the piece there, or how many there are."""
    piece = text.piece(unclean, CAREFUL).decode("latin-1")
    items = list(_item.finditer(piece))
    parts = [item.group() for item in items]
    wrong = next((k for k, part in enumerate(parts) if not _value.fullmatch(part)), None)
    if wrong is None and parts:
        wrong = _first_out_of_range([part.encode() for part in parts], kind)
    if wrong is not None:
        first, last = (unclean + at for at in items[wrong].span())
        _refuse(scanner, scanner.text[first:last], first, kind)
    found = reader.filled + sum(map(_count, text.pieces(unclean)))
    if found != reader.count:
        raise scanner.error(f"the literal has {found} numbers, but its type {reader.count}", text.start, expected=type_text(type))
    raise scanner.error("the brackets of the literal are not those of its type", text.start, expected=type_text(type))


def _count(piece: bytes) -> int:
    """How many numbers there are: where something begins behind a bracket, a comma or a blank."""
    between = np.frombuffer(b"\1" + piece.translate(_BETWEEN), np.uint8)
    return int(np.count_nonzero(between[1:] < between[:-1]))


def _first_out_of_range(parts: list[bytes], kind: _Kind) -> int | None:
    """The place of the first number that the type does not have, by halves."""
    low, high = 0, len(parts)
    if _convert(b",".join(parts), kind) is not None:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _convert(b",".join(parts[low:middle]), kind) is None else (middle, high)
    return low


# ------------------------------------------------------------------------------------------------------------ raw bytes


def _from_hexadecimal(scanner: TextScanner, pos: int, end: int, kind: _Kind, type: Tensor) -> np.ndarray:
    """``"0x..."``, from the opening quote at `pos` to the ``>`` at `end`."""
    close = scanner.text.find('"', pos + 1, end)
    if not scanner.text.startswith("0x", pos + 1) or close < 0:
        raise scanner.error("elements that are strings cannot be read", pos, expected='"0x..."')
    data = hexadecimal(scanner, pos + 3, close)
    scanner.pos = close + 1
    if scanner.skip() != end:
        raise scanner.error("expects '>' after the data", expected="'>'")
    return _from_bytes(scanner, data, kind, type, pos, "the hexadecimal text")


def hexadecimal(scanner: TextScanner, start: int, end: int) -> np.ndarray:
    """The bytes that hexadecimal digits from `start` to `end` spell."""
    cut = scanner.cuts.take(start) if scanner.cuts is not None else None
    if cut is not None:
        return np.frombuffer(cut, np.uint8)
    found = unhexed(scanner.text, start, end)
    if found is None:
        raise scanner.error("these are not pairs of hexadecimal digits", start - 3)
    return found[0]


def _from_bytes(scanner: TextScanner, data: np.ndarray, kind: _Kind, type: Tensor, pos: int, what: str) -> np.ndarray:
    sizes = _sizes(type)
    count, width = math.prod(sizes), kind.dtype.itemsize
    if kind.is_pred and len(data) == (count + 7) // 8 and len(data) not in (1, count):  # as it was once written
        return np.unpackbits(data, bitorder="little")[:count].view(np.bool_).reshape(sizes)
    if len(data) not in (count * width, width):
        raise scanner.error(f"{what} has {len(data)} bytes", pos, expected=f"{count * width} bytes for {type_text(type)}")
    flat = _viewed(data, kind)
    return flat.reshape(sizes) if len(data) == count * width else np.broadcast_to(flat[0], sizes)


def _viewed(data: np.ndarray, kind: _Kind) -> np.ndarray:
    """Bytes as elements, without a copy where a byte or more is an element."""
    if kind.is_pred:
        return data != 0
    return data.view(kind.dtype) if kind.bits >= 8 or kind.is_float else _narrowed(data, kind)
