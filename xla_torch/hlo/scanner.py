"""The cursor over HLO text that the parser and the attribute codecs share: tokens in, located errors out.

There is no list of tokens. Each method looks at the text where the cursor stands, skips blanks and comments before what it
wants, and moves on past it; every question is one compiled regular expression, so that reading is linear and cheap.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from typing import TypeVar

from ..core.errors import HloSyntaxError
from ..core.layouts import BLANK
from ..core.shape import Shape, scan_shape
from ..core.types import BUFFER, TUPLE, type_from_text
from .cut_text import CutText

T = TypeVar("T")

NAME = r"[A-Za-z_][A-Za-z0-9_.\-]*+"
KEYWORDS = frozenset({
    "HloModule", "ENTRY", "ROOT", "true", "false", "nan", "inf", "maximal", "replicated", "manual", "unreduced", "unknown",
    "last_tile_dim_replicate", "shard_as", "shard_like"})
"""Words of XLA's lexer, which are names only with ``%`` in front."""

_blank = re.compile(BLANK)
_name = re.compile(rf"%({NAME})|({NAME})(:?)")
_word = re.compile(NAME)
_integer = re.compile(r"-?[0-9]++(?![.eExX])")
_number = re.compile(r"-?(?:(?:[0-9]++(?:\.[0-9]*+)?|(?<=-)\.[0-9]++)(?:[eE][+-]?[0-9]++)?|inf\b|nan\b)")
_string = re.compile(r""""([^"\\]*+(?:\\.[^"\\]*+)*+)"|'([^'\\]*+(?:\\.[^'\\]*+)*+)'""", re.S)
_token = re.compile(rf'%?{NAME}|-?[0-9][\w.+\-]*+|"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"?|->|<=|\.\.\.|\S')
_visible = re.compile(r"\S")
_line_ends = re.compile(r'\r\n?|"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.S)
_balance = re.compile(r'[^(){}\[\]"]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^(){}\[\]"]*+)*+', re.S)
_escape = re.compile(r"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]++)|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.?))", re.S)
_simple_escapes = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "\\": "\\", "?": "?", "'": "'",
                   '"': '"'}
_closing = {"(": ")", "{": "}", "[": "]"}

_TOKEN = 200
"""How much of a token an error shows."""

INT64_MIN, UINT64_MAX = -(2**63), 2**64 - 1


class Scanner:
    """A position in a text. `filename` is only for messages. Other texts have another `subject` there and other tokens. `cuts` is
    what was cut out of the text, if anything was."""

    subject = "HLO text"
    token_pattern = _token
    cuts: CutText | None = None
    pos: int

    def __init__(self, text: str, filename: str = ""):
        self.text, self.pos, self.filename = text, 0, filename

    # ---- looking

    def skip(self) -> int:
        """Move past blanks and comments; returns the new position."""
        self.pos = _blank.match(self.text, self.pos).end()  # pyright: ignore[reportOptionalMemberAccess]
        return self.pos

    def at_end(self) -> bool:
        return self.skip() == len(self.text)

    def looking_at(self, mark: str) -> bool:
        """True if `mark` comes next; nothing but blanks is consumed."""
        return self.text.startswith(mark, self.skip())

    def token(self) -> str:
        """The next token as it is written, for messages; "" at the end."""
        match = self.token_pattern.match(self.text, self.skip())
        return match.group() if match else ""

    # ---- taking

    def accept(self, mark: str) -> bool:
        """Consume `mark` (punctuation) if it comes next."""
        if not self.looking_at(mark):
            return False
        self.pos += len(mark)
        return True

    def expect(self, mark: str, context: str = "") -> None:
        """Consume `mark` or raise."""
        if not self.accept(mark):
            raise self.error(f"expects {mark!r}{context and ' ' + context}", expected=repr(mark))

    def match(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        """Consume what `pattern` matches here or raise, naming `what` was expected."""
        match = pattern.match(self.text, self.skip())
        if not match:
            raise self.error(f"expects {what}", expected=what)
        self.pos = match.end()
        return match

    def accept_word(self, word: str) -> bool:
        """Consume the bare word `word` if it comes next as a whole."""
        match = _word.match(self.text, self.skip())
        if not match or match.group() != word:
            return False
        self.pos = match.end()
        return True

    def name(self, what: str = "a name") -> str:
        """An identifier: after ``%`` any, and returned without it. A bare one is no word that means something else to XLA's lexer
        (`is_reserved`), unless a colon stands right behind it, and then the colon belongs to it."""
        start = self.skip()
        marked, bare, colon = self.match(_name, what).groups()
        if bare is not None and not colon:
            if self.text.startswith("=", self.pos):
                raise self.error("expects a name; with '=' right behind it this is an attribute", start, what,
                                 f"put a blank between {bare} and '='")
            if is_reserved(bare):
                raise self.error(f"{bare!r} is a word of the grammar, and no name", start, what, f"write %{bare}")
        return marked if bare is None else bare

    def word(self, what: str) -> str:
        """A bare word, of the grammar or of an attribute's values."""
        return self.match(_word, what).group()

    def integer(self) -> int:
        """An integer that fits in int64 or uint64."""
        start = self.skip()
        digits = self.match(_integer, "an integer").group()
        value = int(digits) if len(digits) < 100 else UINT64_MAX + 1
        if not INT64_MIN <= value <= UINT64_MAX:
            raise self.error("the integer does not fit in 64 bits", start)
        return value

    def number(self) -> float:
        """An integer or decimal number, inf or nan."""
        return float(self.match(_number, "a number").group())

    def boolean(self) -> bool:
        """``true`` or ``false``."""
        start = self.skip()
        word = self.token()
        if word not in ("true", "false"):
            raise self.error("expects true or false", start, expected="true or false")
        self.pos += len(word)
        return word == "true"

    def string(self) -> str:
        """A string in quotes; returns its contents with the C escapes resolved."""
        start = self.skip()
        double, single = self.match(_string, "a string in double quotes").groups()
        try:
            return unescape(single if double is None else double)
        except ValueError as error:
            raise self.error(f"the string has an escape that C does not know: {error}", start) from None

    def shape(self) -> Shape:
        """A shape, with its layout if one is written."""
        start = self.skip()
        try:
            shape, self.pos = scan_shape(self.text, start)
        except HloSyntaxError as error:
            raise self.error(error.what, self._position(error) or start, error.expected, error.hint) from None
        return shape

    def listed(self, item: Callable[[], T], opening: str = "{", closing: str = "}") -> list[T]:
        """``{item, item, ...}``; may be empty."""
        self.expect(opening)
        items: list[T] = []
        if self.accept(closing):
            return items
        while True:
            items.append(item())
            if self.accept(closing):
                return items
            if not self.accept(","):
                raise self.error(f"expects ',' or {closing!r}", expected=f"',' or {closing!r}")

    def balanced(self) -> str:
        """A value in brackets, kept as text: everything from an opening bracket to the one that closes it."""
        start = self.skip()
        text, stack, pos = self.text, list[tuple[str, int]](), start
        while True:
            if text[pos:pos + 1] in _closing:
                stack.append((_closing[text[pos]], pos))
            elif not stack or text[pos:pos + 1] != stack.pop()[0]:
                where = pos if text[pos:pos + 1] else start
                raise self.error("the brackets do not match", where, expected="each bracket closed by its like")
            pos += 1
            if not stack:
                self.pos = pos
                return self.since(start)
            pos = _balance.match(text, pos).end()  # pyright: ignore[reportOptionalMemberAccess]

    def since(self, start: int) -> str:
        """What stands from `start` to the cursor, to be kept as text: with ends of lines as they are printed."""
        text = self.text[start:self.pos]
        return text if "\r" not in text else _line_ends.sub(lambda m: "\n" if m[0][0] == "\r" else m[0], text)

    # ---- errors

    def error(self, what: str, pos: int | None = None, expected: object = "", hint: str = "",
              kind: type[HloSyntaxError] = HloSyntaxError) -> HloSyntaxError:
        """An error at a position (the cursor's unless given) that shows the line and points at the token."""
        if pos is not None:
            self.pos = pos
        got = self.token()
        got = got if len(got) <= _TOKEN else f"{got[:_TOKEN]}..."
        where, line, column = self.place(self.pos)
        error = kind(what, subject=self.subject, got=got if got.startswith('"') else repr(got) if got else "the end of the text",
                     expected=expected, where=where, hint=hint)
        error.line, error.column = line, column
        return error

    def place(self, pos: int) -> tuple[str, int, int]:
        """Where `pos` is: text for a message (file, line, column, the source line and a caret), line, column."""
        line, column = self.line_and_column(pos)
        start, end = self.text.rfind("\n", 0, pos) + 1, self.text.find("\n", pos)
        end = end if end >= 0 else len(self.text)
        left = max(0, pos - start - 60)
        shown = self.text[start + left:min(start + left + 110, end)].replace("\t", " ")
        more = _visible.search(self.text, start + left + 110, end)
        shown = ("..." if left else "") + (shown + "..." if more else shown.rstrip())
        caret = " " * (pos - start - left + (3 if left else 0)) + "^"
        file = f"{self.filename}, " if self.filename else ""
        return f"{file}line {line}, column {column}\n{'':12}{shown}\n{'':12}{caret}", line, column

    def line_and_column(self, pos: int) -> tuple[int, int]:
        """Both from 1."""
        return self.in_whole_text(pos, self.text.count("\n", 0, pos) + 1, pos - self.text.rfind("\n", 0, pos))

    def in_whole_text(self, pos: int, line: int, column: int) -> tuple[int, int]:
        """The line and column of a position, given those in this text, from which literals may have been cut out."""
        return self.cuts.place(pos, line, column) if self.cuts is not None else (line, column)

    def _position(self, error: HloSyntaxError) -> int:
        """The offset of an error that a scan of this same text raised."""
        pos = 0
        for _ in range(error.line - 1):
            pos = self.text.index("\n", pos) + 1
        return pos + error.column - 1


def is_reserved(name: str) -> bool:
    """Whether XLA's lexer sees something else than a name: a keyword, or an element type."""
    return name in KEYWORDS or names_type(name)


def names_type(name: str) -> bool:
    """Whether it is what XLA calls an element type; no instruction may be called so."""
    return type_from_text(name) not in (None, TUPLE, BUFFER)


def unescape(text: str) -> str:
    """Resolve C escapes. Bytes given in octal or hexadecimal are UTF-8, as XLA prints non-ASCII text. Raises ValueError for an
    escape that is none."""
    if "\\" not in text:
        return text

    def replace(match: re.Match[str]) -> str:
        octal, hexadecimal, short, long, simple = match.groups()
        if simple is not None:
            if simple not in _simple_escapes:
                raise ValueError(match.group())
            return _simple_escapes[simple]
        byte = int(octal, 8) if octal else int((hexadecimal or short or long)[-9:], 16)
        if byte > (255 if octal or hexadecimal else 0x10FFFF) or (not octal and len(hexadecimal or "") > 9):
            raise ValueError(match.group()[:20])
        return chr(0xDC00 + byte) if (octal or hexadecimal) and byte > 127 else chr(byte)

    return _escape.sub(replace, text).encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")


_plain = re.compile(r'[^\x00-\x1f"\'\\\x7f-\U0010ffff]*')
_escapes = {'"': '\\"', "'": "\\'", "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def quote(text: str) -> str:
    """A double-quoted string with C escapes, the inverse of reading one."""
    if _plain.fullmatch(text):
        return f'"{text}"'
    raw = text.encode("utf-8", "surrogateescape").decode("latin-1")
    return '"' + "".join(_escapes.get(c) or (c if " " <= c < "\x7f" else f"\\{ord(c):03o}") for c in raw) + '"'


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint with the known word most like `word`, or ""."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"did you mean {str(close[0])!r}?" if close else ""  # a member of an enum is shown as its word
