"""Hexadecimal digits to the bytes that they spell, a piece at a time, so that no copy of the text is made."""

from __future__ import annotations

import binascii

import numpy as np

from .memory import give_back

_PIECE = 1 << 18
"""How many digits are decoded at once: few enough that they stay in the cache, and an even number."""


def unhexed(text: str | memoryview, start: int, end: int) -> tuple[np.ndarray, int] | None:
    """The bytes that the digits from `start` spell, up to the next quote or to `end`, and which place that is; None where what
    stands there is not pairs of digits.

    The quote is not looked for beforehand, since that would read the text twice: it is where decoding fails.
    """
    found, at = bytearray(), start  # it grows in place; NumPy 2.5 copies an array that it resizes
    while at < end:
        part = text[at:min(at + _PIECE, end)]
        piece = _decoded(part)
        length = len(part)
        if piece is None:
            length = part.find('"') if isinstance(part, str) else bytes(part).find(b'"')
            piece = _decoded(part[:length]) if length >= 0 else None
            if piece is None:
                return None
            end = at + length
        found += piece
        at += length
        if isinstance(part, memoryview):
            give_back(part)
    return np.frombuffer(found, np.uint8), at


def _decoded(digits: str | memoryview) -> bytes | None:
    try:
        return binascii.unhexlify(digits)
    except ValueError:
        return None
