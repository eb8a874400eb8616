"""Comma-separated numbers in text to NumPy, all at once: what the readers of HLO's and MLIR's literals share.

Each reader first makes sure that there is nothing but numbers, without looking at them one by one in Python; what is spelt in a
way that it does not know goes through a regular expression, which is slower.
"""

from __future__ import annotations

import json
import re

import numpy as np

from .decimal_text import usual_decimals

_BLANKS = b" \t\r\n\f\v"
_DECIMAL = b"0123456789.eE+-," + _BLANKS
_INTEGER = b"0123456789-,"
_decimal = r"-?+\d++(?:\.\d*+)?+(?:[eE][+-]?+\d++)?+"
_decimals = re.compile(rf"\s*+{_decimal}(?:\s*+,\s*+{_decimal})*+\s*+".encode())
_hexadecimal = re.compile(rb"0x[0-9a-fA-F]++")
_comma = re.compile(rb"(?<!\s)\s++(?=,)|(?<=,)\s++")  # begins where blanks do, so that it is linear

_MANY = 1 << 10
"""From how much text on many numbers are read at once."""


def decimals(values: bytes) -> np.ndarray | None:
    """Comma-separated decimal numbers as doubles, blanks allowed around each; None where one is malformed. What is too great for
    a double is an infinity."""
    if not values or values.translate(None, _DECIMAL):
        return None
    if len(values) > _MANY and (usual := usual_decimals(values)) is not None:
        return usual
    try:
        return np.array(json.loads(b"[%b]" % values, parse_int=float), np.float64)  # -0 is no int
    except (ValueError, OverflowError):  # "1." is no number in JSON
        return _decimals_in_any_spelling(values)


def _decimals_in_any_spelling(values: bytes) -> np.ndarray | None:
    if not _decimals.fullmatch(values):
        return None
    return np.fromstring(values.translate(None, _BLANKS).decode(), np.float64, sep=",")


def integers(values: bytes, low: int, high: int) -> np.ndarray | None:
    """Comma-separated integers, decimal or hexadecimal, as int64 (uint64 where one is too great for that); None where one is
    malformed or not from `low` to `high`."""
    if b"x" in values:
        values = _hexadecimal.sub(lambda m: b"%d" % int(m.group(), 16) if len(m.group()) < 40 else b"x", values)
    values = values.strip(_BLANKS).replace(b", ", b",")
    if len(values.translate(None, _BLANKS)) != len(values):
        values = _comma.sub(b"", values)
    if not _are_integers(values):
        return None
    commas = np.flatnonzero(np.frombuffer(values, np.uint8) == ord(","))
    longest = np.diff(commas, prepend=-1, append=len(values)).max() - 1
    found = _long_integers(values) if longest > 18 else np.fromstring(values.decode(), np.int64, sep=",")
    return found if found is not None and low <= int(found.min()) and int(found.max()) <= high else None


def _are_integers(values: bytes) -> bool:
    """Whether a text is integers with single commas between them: by what follows on what."""
    return bool(values) and not values.translate(None, _INTEGER) and not values.startswith(b",") \
        and not values.endswith((b",", b"-")) and b",," not in values and b"-," not in values \
        and values.count(b"-") == values.count(b",-") + values.startswith(b"-")


def _long_integers(values: bytes) -> np.ndarray | None:
    """Integers of which some may be beyond int64."""
    texts = values.split(b",")
    if max(map(len, texts)) > 40:
        return None
    exact = [int(t) for t in texts]
    low, high = min(exact), max(exact)
    if low < -(2**63) or high >= 2**64:
        return None
    if high < 2**63:
        return np.array(exact, np.int64)
    return np.array([v % 2**64 for v in exact], np.uint64)


def round_to(numbers: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Doubles rounded once to a floating dtype; what is beyond its range becomes what the dtype makes of it."""
    with np.errstate(all="ignore"):
        return (rounded_to_odd(numbers) if dtype.itemsize < 4 and dtype != np.float16 else numbers).astype(dtype)


def rounded_to_odd(numbers: np.ndarray) -> np.ndarray:
    """Doubles as floats from which rounding once more gives what rounding the doubles would: inexact ones become odd.
    The conversions of ml_dtypes go by way of float, and so would round twice."""
    floats = numbers.astype(np.float32)
    bits = floats.view(np.uint32)
    inexact = np.isfinite(floats) & (floats.astype(np.float64) != numbers)
    bits[inexact & (np.abs(floats.astype(np.float64)) > np.abs(numbers))] -= 1
    bits[inexact] |= 1
    return floats


def places(values: bytes, pattern: re.Pattern[bytes]) -> np.ndarray:
    """At which of comma-separated values the matches of a pattern stand."""
    commas = np.flatnonzero(np.frombuffer(values, np.uint8) == ord(","))
    return np.searchsorted(commas, np.array([m.start() for m in pattern.finditer(values)], np.int64))
