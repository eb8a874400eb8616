"""Literals in HLO text: ``{ {1, 2}, {3, nan} }`` to NumPy and back.

Reading has two ways. Clean text, however long, is checked and converted as a whole by regular expressions and NumPy. What
does not pass there (NaN payloads, odd spellings, mistakes) is read element by element, which also finds the exact place and
reason of a mistake.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from ..shape import Shape
from ..types import F8E8M0FNU, PrimitiveType, complex_part, mantissa_bits
from .literal import Literal
from .scanner import Scanner

_elision = re.compile(r"\{\s*\.\.\.\s*\}|\.\.\.")
_body = re.compile(r"\{[^()=]*\}")
_comment = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
_split_value = re.compile(r"[^\s,{}]\s+[^\s,{}]")
_pair = re.compile(r"\(([^(),]*),([^(),]*)\)")
_integers = re.compile(rb"-?\d+(?:,-?\d+)*+")
_decimal = r"-?(?:\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|inf|nan)"
_decimals = re.compile(rf"{_decimal}(?:,{_decimal})*+".encode())
_bits = re.compile(rb"[01](?:,[01])*+")
_element = re.compile(r"(-?)(nan(?:\(0x([0-9a-fA-F]+)\))?|inf|true|false|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)(?![\w.])")
_not_structure = bytes(set(range(256)) - set(b"{},"))
_layout_characters = b"{} \t\r\n\f\v"


# ----------------------------------------------------------------------------------------------------- reading


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
    if shape.dimensions and (elision := _elision.match(scanner.text, start)):
        scanner.pos = elision.end()
        nothing = np.zeros((), _dtype(shape.element_type))
        return Literal(shape, np.broadcast_to(nothing, shape.dimensions), elided=True)
    value = _parse_whole(scanner, shape) if shape.dimensions else None
    if value is None or value.size != shape.element_count:  # complex elements written as numbers, for example
        scanner.pos = start
        value = _parse_elements(scanner, shape)
    return Literal(shape, value.reshape(shape.dimensions))


def _parse_tuple(scanner: Scanner, shape: Shape) -> Literal:
    scanner.expect("(", "before the elements of a tuple")
    parts = []
    for position, part in enumerate(shape.tuple_shapes):
        if position:
            scanner.expect(",", "between the elements of a tuple")
        parts.append(parse_literal(scanner, part))
    scanner.expect(")", "after the elements of a tuple")
    return Literal(shape, tuple(parts), elided=any(p.elided for p in parts))


def _parse_whole(scanner: Scanner, shape: Shape) -> np.ndarray | None:
    """A clean body at once, or None (the cursor is then anywhere)."""
    element_type = shape.element_type
    if element_type.is_complex:
        if not scanner.looking_at("{"):
            return None
        body, pairs = _pair.subn(r"\1;\2", scanner.balanced())
        if pairs != shape.element_count:
            return None
    else:
        match = _body.match(scanner.text, scanner.pos)
        if not match:
            return None
        scanner.pos = match.end()
        body = match.group()
    if "/" in body:
        body = _comment.sub(" ", body)
    if not body.isascii() or _split_value.search(body.replace(";", ",")):
        return None
    raw = body.encode()
    structure = raw.translate(None, _not_structure)
    if len(structure) != _skeleton_length(shape.dimensions) or structure != _skeleton(shape.dimensions):
        return None
    values = raw.translate(None, _layout_characters).replace(b";", b",")
    if not shape.element_count:
        return np.zeros(0, _dtype(element_type)) if not values.strip(b",") else None
    return _convert(values, element_type)


def _skeleton_length(dimensions: tuple[int, ...]) -> int:
    """How long `_skeleton` is, without making it."""
    length = 0
    for size in reversed(dimensions):
        length = 2 + size * length + max(size - 1, 0)
    return length


@lru_cache(maxsize=16)
def _skeleton(dimensions: tuple[int, ...]) -> bytes:
    """The braces and commas of a literal with these dimensions."""
    text, seen = b"", dimensions[:dimensions.index(0) + 1] if 0 in dimensions else dimensions
    for size in reversed(seen):
        text = b"{" + b",".join([text] * size) + b"}"
    return text


def _convert(values: bytes, element_type: PrimitiveType) -> np.ndarray | None:
    """Comma-separated values as an array, or None if one of them is out of range or malformed."""
    if element_type.is_pred:
        values = values.replace(b"true", b"1").replace(b"false", b"0")
        return np.frombuffer(values, np.uint8)[::2] == ord("1") if _bits.fullmatch(values) else None
    if element_type.is_integral:
        return _convert_integers(values, element_type) if _integers.fullmatch(values) else None
    if not _decimals.fullmatch(values):
        return None
    numbers = np.fromstring(values.decode(), np.float64, sep=",")
    if np.count_nonzero(np.isinf(numbers)) != values.count(b"inf"):
        return None  # a finite number beyond what a double holds
    if b"-nan" in values:
        negative = np.array([v.startswith(b"-nan") for v in values.split(b",")])
        numbers[negative] = -np.nan
    part = complex_part(element_type)
    converted = _round(numbers, part)
    if converted is None:
        return None
    return converted.view(_dtype(element_type)) if element_type.is_complex else converted


def _convert_integers(values: bytes, element_type: PrimitiveType) -> np.ndarray | None:
    low, high = integer_range(element_type)
    if re.search(rb"\d{19}", values):
        exact = [int(v) for v in values.split(b",")]
        return np.array(exact, _dtype(element_type)) if low <= min(exact) and max(exact) <= high else None
    numbers = np.fromstring(values.decode(), np.int64, sep=",")
    return numbers.astype(_dtype(element_type)) if low <= int(numbers.min()) and int(numbers.max()) <= high else None


def _round(numbers: np.ndarray, element_type: PrimitiveType) -> np.ndarray | None:
    """Doubles rounded to a floating type, or None where a finite value is out of its range. What the type has no value
    for becomes what XLA makes of it: an infinity its NaN, or its greatest value where it has neither."""
    with np.errstate(all="ignore"):
        exact = _rounded_to_odd(numbers) if element_type.bits <= 8 else numbers
        converted = exact.astype(_dtype(element_type))
        lost = np.isfinite(numbers) & ~np.isfinite(converted.astype(np.float64))
    return None if lost.any() else converted


def _rounded_to_odd(numbers: np.ndarray) -> np.ndarray:
    """Doubles as floats from which rounding once more gives what rounding the doubles would: inexact ones become odd.
    The conversions to the 8-bit types go by way of float, and so would round twice."""
    floats = numbers.astype(np.float32)
    bits = floats.view(np.uint32)
    inexact = np.isfinite(floats) & (floats.astype(np.float64) != numbers)
    bits[inexact & (np.abs(floats.astype(np.float64)) > np.abs(numbers))] -= 1
    bits[inexact] |= 1
    return floats


def _dtype(element_type: PrimitiveType) -> np.dtype:
    """The NumPy dtype of an array's element type."""
    assert element_type.numpy is not None
    return element_type.numpy


def integer_range(element_type: PrimitiveType) -> tuple[int, int]:
    """The least and greatest value of an integer type."""
    bits = element_type.bits
    return (0, 2**bits - 1) if element_type.is_unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


# ------------------------------------------------------------------------------------- reading, element by element


def _parse_elements(scanner: Scanner, shape: Shape) -> np.ndarray:
    """The general way: any spelling, and located errors."""
    values: list[np.ndarray] = []
    _parse_level(scanner, shape, 0, values)
    return np.concatenate(values) if values else np.zeros(0, _dtype(shape.element_type))


def _parse_level(scanner: Scanner, shape: Shape, depth: int, into: list[np.ndarray]) -> None:
    if depth == shape.rank:
        into.append(_parse_element(scanner, shape.element_type))
        return
    size, count, start = shape.dimensions[depth], 0, scanner.skip()
    scanner.expect("{", f"at level {depth + 1} of a literal of {shape}")
    while not scanner.accept("}"):
        if count and not scanner.accept(","):
            raise scanner.error("the literal goes on wrongly", expected="',' or '}'")
        if count == size:
            raise scanner.error(f"the literal has more than {size} elements in dimension {depth}", expected=str(shape))
        _parse_level(scanner, shape, depth + 1, into)
        count += 1
    if count != size:
        raise scanner.error(f"expects {size} elements in dimension {depth} of the literal, but sees {count}", start,
                            expected=str(shape))


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
        return np.concatenate([real, imaginary]).view(_dtype(element_type))
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
            raise scanner.error(f"value {sign}{word} is out of range for literal's primitive type {element_type}", start)
        return value
    if word in ("true", "false") and not sign and element_type.is_pred:
        return np.array([word == "true"])
    if not word.isdigit():
        raise scanner.error(f"expects an integer of type {element_type.text}", start)
    number = int(sign + word)
    if element_type.is_pred:
        return np.array([number != 0])
    low, high = integer_range(element_type)
    if not low <= number <= high:
        raise scanner.error(f"value {number} is out of range for literal's primitive type {element_type} "
                            f"namely [{low}, {high}]", start)
    return np.array([number], _dtype(element_type))


def _nan(scanner: Scanner, start: int, element_type: PrimitiveType, negative: bool, payload: str | None) -> np.ndarray:
    """A NaN by sign and payload (its mantissa bits)."""
    value = np.array([-np.nan if negative else np.nan]).astype(_dtype(element_type))
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
    return bool(np.isinf(np.array(np.inf).astype(_dtype(element_type)).astype(np.float64)))


# ----------------------------------------------------------------------------------------------------- printing


def format_literal(literal: Literal) -> str:
    """The body of a literal as ``constant(...)`` takes it: every element, in text that reads back to the same bits."""
    if isinstance(literal.value, tuple):
        return "(" + ", ".join(map(format_literal, literal.value)) + ")"
    if literal.elided:
        return "{...}"
    array, element_type = literal.value, literal.shape.element_type
    if element_type.is_pred and not array.ndim:
        return "true" if array else "false"
    return _nest(element_texts(array.reshape(-1), element_type), array.shape)


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
        parts = element_texts(np.ascontiguousarray(flat).view(_dtype(complex_part(element_type))), complex_part(element_type))
        return [f"({real}, {imaginary})" for real, imaginary in zip(parts[::2], parts[1::2], strict=True)]
    if element_type.bits >= 32 or flat.size == 1:
        return _float_texts(flat, element_type)
    # A narrow type has few values, so each is spelt once however many elements there are.
    bits, places = np.unique(np.ascontiguousarray(flat).view(f"u{element_type.itemsize}"), return_inverse=True)
    texts = _float_texts(bits.view(_dtype(element_type)), element_type)
    return [texts[place] for place in places.tolist()]


def _float_texts(flat: np.ndarray, element_type: PrimitiveType) -> list[str]:
    """Shortest texts that read back to the same value: ``0.001``, ``1e+10``. A negative zero keeps its point, because XLA
    reads ``-0`` as the integer 0."""
    with np.errstate(invalid="ignore"):  # signaling NaNs
        if flat.dtype in (np.float16, np.float32, np.float64):
            texts = [text if text == "-0.0" else text.removesuffix(".0") for text in flat.astype(str).tolist()]
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
        found = np.array(shorter, np.float64).astype(_dtype(element_type)).astype(np.float64) == values[open_places]
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
