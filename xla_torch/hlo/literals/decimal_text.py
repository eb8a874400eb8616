"""Decimal numbers in text to doubles, many at once: the usual ones, which are exact without long arithmetic.

A number is an integer of its digits times a power of ten. Where the integer is below 2**53 and the power is at most 10**22, both
are doubles, and one multiplication or division rounds as reading the number must (W. Clinger, How to Read Floating Point Numbers
Accurately, 1990). Eight digits become an integer in three multiplications of a word.
"""

from __future__ import annotations

import numpy as np

_PADDING = b"0" * 16
"""In front of the text, so that two words can be read from the end of every number."""

_TENS = 10.0 ** np.arange(23)
_WHOLE_TENS = 10 ** np.arange(17, dtype=np.int64)
_LAST = np.array([(2**64 - 1) << (8 * (8 - n)) & (2**64 - 1) for n in range(9)], np.uint64)
"""By a number of bytes, what keeps so many of the last of a word."""

_STEPS = tuple((np.uint64(mask), np.uint64(factor), np.uint64(shift)) for mask, factor, shift in (
    (0x0F0F0F0F0F0F0F0F, 2561, 8), (0x00FF00FF00FF00FF, 6553601, 16), (0x0000FFFF0000FFFF, 42949672960001, 32)))
"""What makes numbers of two digits of those of one, and so on."""


def usual_decimals(text: bytes) -> np.ndarray | None:
    """Numbers ``-12.5`` and ``1.5e-05`` with commas between them, and a blank or none behind each comma, as doubles. None where a
    number is spelt in any other way, or is not exact in this one."""
    letters = np.frombuffer(_PADDING + text + b",        ", np.uint8)
    ends = np.flatnonzero(letters == ord(","))
    starts = np.empty_like(ends)
    starts[0], starts[1:] = len(_PADDING), ends[:-1] + 1
    starts += letters[starts] == ord(" ")
    minus = letters[starts] == ord("-")
    starts += minus
    exponents = _exponents(letters, ends)
    if exponents is None:
        return None
    mantissas, exponent, digits_of_exponents = exponents
    points = _points(letters, starts, mantissas, ends)
    if points is None:
        return None
    before, behind = points - starts, np.maximum(mantissas - points - 1, 0)
    if before.min() < 1 or before.max() > 8 or behind.max() > 16 or (before + behind).max() > 17:
        return None
    # What is not a digit has been found, so if there are as many digits as places for them, there is nothing else.
    digits = np.count_nonzero((letters - np.uint8(ord("0"))) < 10) - len(_PADDING)
    if digits != int((before + behind).sum()) + digits_of_exponents:
        return None
    words = np.ndarray(len(letters) - 7, np.dtype("<u8"), letters, strides=(1,))
    whole = _number(words[points - 8], before) * _WHOLE_TENS[behind] + _number(words[mantissas - 8], np.minimum(behind, 8))
    if behind.max() > 8:
        whole += _number(words[mantissas - 16], np.maximum(behind - 8, 0)) * 10**8
    power = exponent - behind
    if whole.max() >= 2**53 or np.abs(power).max() > 22:
        return None
    numbers = whole.astype(np.float64)
    numbers = np.where(power < 0, numbers / _TENS[np.abs(power)], numbers * _TENS[np.abs(power)])
    return np.negative(numbers, out=numbers, where=minus)


def _number(words: np.ndarray, digits: np.ndarray) -> np.ndarray:
    """The integers that the last so many digits of words spell, the rest of each word being anything."""
    words = words & _LAST[digits]
    for mask, factor, shift in _STEPS:
        words = (words & mask) * factor >> shift
    return words.astype(np.int64)


def _points(letters: np.ndarray, starts: np.ndarray, mantissas: np.ndarray, ends: np.ndarray) -> np.ndarray | None:
    """Where the points of numbers stand; the ends of mantissas where there are none."""
    found = np.flatnonzero(letters == ord("."))
    numbers = np.arange(len(ends)) if len(found) == len(ends) else np.searchsorted(ends, found)
    if len(found) > len(ends) or (np.diff(numbers) <= 0).any():
        return None
    if (found < starts[numbers]).any() or (found >= mantissas[numbers]).any():
        return None
    points = mantissas.copy()
    points[numbers] = found
    return points


def _exponents(letters: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray, int] | None:
    """Where mantissas end, the exponents, and how many digits these have together."""
    found = np.flatnonzero(letters == ord("e"))
    exponents = np.zeros(len(ends), np.int64)
    if not len(found):
        return ends, exponents, 0
    numbers = np.searchsorted(ends, found)
    signs = letters[found + 1]
    first = found + 1 + ((signs == ord("-")) | (signs == ord("+")))
    digits = ends[numbers] - first
    if (np.diff(numbers) <= 0).any() or digits.min() < 1 or digits.max() > 3:
        return None
    values = np.zeros(len(found), np.int64)
    for place in range(3):
        values = np.where(place < digits, 10 * values + letters[first + place] - ord("0"), values)
    exponents[numbers] = np.where(signs == ord("-"), -values, values)
    mantissas = ends.copy()
    mantissas[numbers] = found
    return mantissas, exponents, int(digits.sum())
