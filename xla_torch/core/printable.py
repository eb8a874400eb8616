"""Text that came from a file, on its way to a terminal: without what a terminal obeys, and not longer than anybody reads.

A name may hold escape sequences that colour, move or paste, characters that turn the direction of text around, and a hundred
thousand letters. Everything that errors say passes `printable`, and every text of a program `without_controls`.
"""

from __future__ import annotations

import re

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def printable(text: str, most: int) -> str:
    """The text with all that is not printed written as escapes, but for the ends of its lines, and with its middle left out where
    it is longer than `most` characters."""
    if len(text) > most:
        text = f"{text[:most * 3 // 4]} ... ({len(text)} characters) ... {text[len(text) - most // 4:]}"
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(character: str) -> str:
    if character == "\n" or character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")


def without_controls(text: str) -> str:
    """A program's text with control characters as the octal escapes of their bytes, which in quotes mean the same."""
    return _CONTROLS.sub(lambda found: "".join(f"\\{byte:03o}" for byte in found[0].encode()), text)


def within_bytes(text: str, most: int) -> str:
    """The text, cut off where it takes more bytes than `most`."""
    data = text.encode("utf-8", "replace")
    return text if len(data) <= most else data[:most - 4].decode("utf-8", "ignore") + " ..."
