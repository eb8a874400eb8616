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
    found, filled, at = None, 0, start
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
        if found is None:
            found = np.empty((end - start) // 2, np.uint8)
        found[filled:filled + len(piece)] = np.frombuffer(piece, np.uint8)
        filled, at = filled + len(piece), at + length
        if isinstance(part, memoryview):
            give_back(part)
    if found is None:
        return np.empty(0, np.uint8), at
    found.resize(filled, refcheck=False)  # in place: what was not filled was never in memory
    return found, at


def _decoded(digits: str | memoryview) -> bytes | None:
    try:
        return binascii.unhexlify(digits)
    except ValueError:
        return None
