"""Single-precision numbers to the shortest text that reads back to them, many at once: what NumPy writes, without its loop.

Nine digits of each number are computed in doubles, which have 29 bits more than a number. As long as fewer digits still round to
the number, a digit is taken away. Where that is too close to tell, for powers of two, whose neighbours are not equally far, and
for what has no digits, NumPy is asked.
"""

from __future__ import annotations

import numpy as np

_DIGITS = 9
"""So many tell all numbers apart."""

_LONGEST = 17
"""No text with its comma is longer."""

_LEAST, _MOST = -60, 60
_TENS = np.array([float(f"1e{power}") for power in range(_LEAST, _MOST + 1)])
_PLAIN = (1e-4, 1e6)
"""From which and below which number there is no exponent."""

_CLOSE = 1e-6
"""How close to the boundary between two decisions is too close, as a part of what is decided: errors are a quarter of that."""


def shortest_texts(flat: np.ndarray) -> bytes:
    """The texts of float32 numbers, none of them a NaN, each with a comma behind it."""
    numbers = np.abs(flat.astype(np.float64))
    digits, exponents, unclear = _shortest(flat.view(np.uint32), numbers)
    columns, count = _columns(digits)
    minus = np.signbit(flat) & ~unclear
    scientific = ((numbers < _PLAIN[0]) | (numbers >= _PLAIN[1])) & ~unclear
    # Digits with a point behind one of them, or in front and then with zeros, or none; an exponent behind.
    last_whole = np.where(scientific, 0, np.maximum(exponents, -1))
    zeros = np.where(scientific, 0, np.maximum(-exponents, 0))
    has_point = count - 1 > last_whole
    length = np.maximum(count, last_whole + 1) + minus + zeros + has_point + 1 + 4 * scientific
    table, spelt, which = _by_numpy(flat[unclear])
    length[unclear] = spelt[which] + 1
    ends = np.cumsum(length)
    starts = ends - length
    text = np.full(int(ends[-1]) + _LONGEST, ord("0"), np.uint8)
    first = starts + minus + zeros
    # From the last digit: where a number has fewer, its zeros reach into the next one, but never over a digit that is there.
    for place in range(_DIGITS - 1, -1, -1):
        text[first + (place + (place > last_whole))] = columns[place]
    text[(first - zeros + np.maximum(last_whole, 0) + 1)[has_point]] = ord(".")
    text[starts[minus]] = ord("-")
    text[ends - 1] = ord(",")
    _write_exponents(text, ends[scientific] - 5, exponents[scientific])
    for size in np.unique(spelt).tolist():
        rows = spelt[which] == size
        text[starts[unclear][rows][:, None] + np.arange(size)] = table[which[rows], :size]
    return text[:ends[-1]].tobytes()


def numpy_texts(flat: np.ndarray) -> list[str]:
    """What NumPy writes of floats that it has itself, whole numbers without a point. A negative zero keeps it, because XLA reads
    ``-0`` as the integer 0."""
    return [text if text == "-0.0" else text.removesuffix(".0") for text in flat.astype(str).tolist()]


def _by_numpy(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What NumPy writes: the texts of those that differ as rows, their lengths, and which of them each number is."""
    bits, which = np.unique(numbers.view(np.uint32), return_inverse=True)
    texts = numpy_texts(bits.view(np.float32))
    table = np.array(texts, f"S{_LONGEST}").view(np.uint8).reshape(len(texts), _LONGEST)
    return table, np.array([len(text) for text in texts], np.int64), which


def _write_exponents(text: np.ndarray, places: np.ndarray, exponents: np.ndarray) -> None:
    size = np.abs(exponents)
    text[places] = ord("e")
    text[places + 1] = np.where(exponents < 0, ord("-"), ord("+"))
    text[places + 2], text[places + 3] = size // 10 + ord("0"), size % 10 + ord("0")


def _columns(digits: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """The nine digits of integers as letters, each in an array of its own, and how many there are without zeros at the end."""
    whole, ten = digits.astype(np.uint32), np.uint32(10)
    columns: list[np.ndarray] = []
    count = np.ones(len(digits), np.int64)
    for place in range(_DIGITS, 0, -1):
        rest = whole // ten
        column = (whole - rest * ten).astype(np.uint8)
        np.maximum(count, place * (column != 0), out=count)
        columns.append(column + np.uint8(ord("0")))
        whole = rest
    return columns[::-1], count


def _shortest(bits: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The digits of numbers as an integer of nine, zeros standing for those that are not needed; the exponent of the first digit;
    and of which numbers nothing is known: these have zeros."""
    power = (bits >> np.uint32(23) & np.uint32(0xFF)).astype(np.int64)
    unclear = (bits & np.uint32(0x7FFFFF) == 0) | (power == 255)
    numbers = np.where(unclear, 1.5, numbers)
    exponents = np.floor(np.log10(numbers)).astype(np.int64)
    exponents -= numbers < _TENS[exponents - _LEAST]
    exponents += numbers >= _TENS[exponents + 1 - _LEAST]
    unit = _TENS[exponents - (_DIGITS - 1) - _LEAST]
    scaled = numbers / unit
    found = np.rint(scaled)
    unclear |= np.abs(np.abs(scaled - found) - 0.5) < _CLOSE
    reach = np.ldexp(0.5, np.maximum(power, 1) - 150) / unit  # how far decimals may be that still round to the number
    left = np.arange(len(numbers))
    for taken in range(1, _DIGITS):
        shorter = scaled * _TENS[-taken - _LEAST]
        nearest = np.rint(shorter)
        decimal = nearest * 10.0**taken
        away = np.abs(decimal - scaled)
        good = away < reach
        between = np.abs(np.abs(shorter - nearest) - 0.5) < _CLOSE
        unclear[left[(np.abs(away - reach) < _CLOSE * reach) | (good & between)]] = True
        left, scaled, reach = left[good], scaled[good], reach[good]
        if not len(left):
            break
        found[left] = decimal[good]
    grown = found >= 10.0**_DIGITS
    exponents += grown
    found = np.where(grown, found / 10, found)
    unclear |= found < 10.0**(_DIGITS - 1)
    found[unclear], exponents[unclear] = 0, _DIGITS
    return found.astype(np.int64), exponents, unclear
