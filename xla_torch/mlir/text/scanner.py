"""The cursor over MLIR's text: blanks, names, numbers, strings, brackets; errors show the line and the place.

As over HLO text (`hlo/scanner.py`) there is no list of tokens: each question is one compiled regular expression that also moves
over the blanks in front. Here a blank may be a comment to the end of the line only, and strings have MLIR's own escapes.
"""

from __future__ import annotations

import re

from ...hlo.scanner import Scanner

BLANK = r"[ \t\r\n]*+(?://[^\n]*+[ \t\r\n]*+)*+"
NAME = r"[A-Za-z_][\w$.]*"
SUFFIX = r"[\w$.\-]+"

_blank = re.compile(BLANK)
_string = re.compile(r'"([^"\\\n]*+(?:\\.[^"\\\n]*+)*+)"')
_word = re.compile(rf"{BLANK}([A-Za-z_]\w*)")
_symbol = re.compile(rf'{BLANK}@(?:({SUFFIX})|(?="))')
_integer = re.compile(rf"{BLANK}(-?(?:0x[0-9a-fA-F]+|\d+))(?![\w.])")
_escape = re.compile(r'\\(?:(["\\nt])|([0-9a-fA-F]{2}))')
_simple_escapes = {'"': '"', "\\": "\\", "n": "\n", "t": "\t"}
_plain = re.compile(r'[^<>(){}\[\]"\-/]*+(?:(?:->|[-/])[^<>(){}\[\]"\-/]*+)*+')
_token = re.compile(rf'[%#!@^]{SUFFIX}|{NAME}|-?\d[\w.+\-]*|"(?:[^"\\\n]|\\.)*"?|->|::|\S')
_closing = {"(": ")", "{": "}", "[": "]", "<": ">"}

_BEGINS_BLANK = " \t\r\n/"

DEPTH = 64
"""How deep types and attributes may lie in each other, so that no text can use up Python's stack."""


class TextScanner(Scanner):
    """A position in MLIR text. Nested types and attributes count their depth in `depth`."""

    subject = "MLIR text"
    token_pattern = _token

    def __init__(self, text: str, filename: str = ""):
        super().__init__(text, filename)
        self.depth = 0

    def skip(self) -> int:
        if self.text[self.pos:self.pos + 1] not in _BEGINS_BLANK:
            return self.pos
        self.pos = _blank.match(self.text, self.pos).end()  # pyright: ignore[reportOptionalMemberAccess]
        return self.pos

    def peek(self) -> str:
        """The next character that is no blank; "" at the end."""
        pos = self.skip()
        return self.text[pos:pos + 1]

    def take(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        """Consume what `pattern`, which begins with blanks, matches here, or raise."""
        match = pattern.match(self.text, self.pos)
        if not match:
            raise self.error(f"expects {what}", expected=what)
        self.pos = match.end()
        return match

    def word(self, what: str = "a word") -> str:
        return self.take(_word, what)[1]

    def accept_word(self, word: str) -> bool:
        match = _word.match(self.text, self.pos)
        if not match or match[1] != word:
            return False
        self.pos = match.end()
        return True

    def integer(self) -> int:
        """A decimal or hexadecimal integer."""
        match = self.take(_integer, "an integer")
        if len(match[1]) > 40:
            raise self.error("the integer is too long", match.start(1))
        return int(match[1], 0) if "x" in match[1] else int(match[1])

    def string(self) -> str:
        """A string; where it is no UTF-8, use `string_or_bytes`."""
        start = self.skip()
        value = self.string_or_bytes()
        if isinstance(value, bytes):
            raise self.error("the string is not UTF-8", start)
        return value

    def string_or_bytes(self) -> str | bytes:
        """A string in double quotes, its escapes resolved; bytes where they are no UTF-8."""
        text = self.match(_string, "a string in double quotes")[1]
        return unescape(text) if "\\" in text else text

    def symbol_name(self) -> str:
        """``@name`` or ``@"any name"``."""
        match = self.take(_symbol, "a symbol (@name)")
        return match[1] if match[1] is not None else self.string()

    def balanced_end(self, pos: int) -> int:
        """The position behind the bracket that closes the one at `pos`. Strings are passed over, and so are arrows."""
        text, stack, start = self.text, [], pos
        while True:
            letter = text[pos:pos + 1]
            if letter in _closing and letter:
                stack.append(_closing[letter])
            elif letter == '"':
                match = _string.match(text, pos)
                if not match:
                    raise self.error("the string has no end", pos)
                pos = match.end() - 1
            elif not letter or not stack or letter != stack.pop():
                raise self.error("the brackets do not match", pos if letter else start,
                                 expected="each bracket closed by its like")
            pos += 1
            if not stack:
                return pos
            pos = _plain.match(text, pos).end()  # pyright: ignore[reportOptionalMemberAccess]

    def deeper(self) -> None:
        """Count one level of nesting; the caller takes it back."""
        self.depth += 1
        if self.depth > DEPTH:
            raise self.error(f"types and attributes are nested more than {DEPTH} deep")


def unescape(text: str) -> str | bytes:
    r"""Resolve MLIR's escapes: ``\"``, ``\\``, ``\n``, ``\t`` and two hexadecimal digits, which are bytes of UTF-8."""
    def replace(match: re.Match[str]) -> str:
        simple, digits = match.groups()
        if simple is not None:
            return _simple_escapes[simple]
        byte = int(digits, 16)
        return chr(byte) if byte < 128 else chr(0xDC00 + byte)

    resolved = _escape.sub(replace, text)
    try:
        raw = resolved.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # the text itself had surrogates
        return resolved
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw
