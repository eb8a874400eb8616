"""Codecs of attributes: how a value is checked, parsed from text and printed. The simple ones; `attributes.py` has the others."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np

from .canonical_values import index_of, integers_of, sequence_of, text_of, wrong
from .ir import Computation
from .reader import Reader
from .scanner import nearest, quote

BOOLS: tuple[type[Any], ...] = (bool, np.bool_)

_bare = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[^\s,(){}\[\]"]++', re.S)


class Codec:
    """How one kind of attribute value is parsed from HLO text, printed, and normalised when given from Python."""

    context_free: ClassVar[bool] = True
    """The value depends on nothing but its text, so the reader may reuse what it read for the same text before."""

    def parse(self, reader: Reader) -> Any:
        """The value that stands where the reader's cursor is. Raises HloSyntaxError."""
        raise NotImplementedError(type(self).__name__)

    def format(self, value: Any) -> str:
        """The value's HLO text, which `parse` reads back."""
        raise NotImplementedError(type(self).__name__)

    def normalise(self, value: Any) -> Any:
        """The value in canonical form (lists become tuples of int); raises InvalidArgument for another kind of value."""
        return value


class DimsCodec(Codec):
    """``{0,2}``: a tuple of integers."""

    def parse(self, reader: Reader) -> tuple[int, ...]:
        return tuple(reader.listed(reader.integer))

    def format(self, value: Sequence[int]) -> str:
        return braced(map(str, value))

    def normalise(self, value: Any) -> tuple[int, ...]:
        return integers_of(value)


class IntCodec(Codec):
    """``3``."""

    def parse(self, reader: Reader) -> int:
        return reader.integer()

    def format(self, value: int) -> str:
        return str(value)

    def normalise(self, value: Any) -> int:
        return index_of(value)


class BoolCodec(Codec):
    """``true`` or ``false``."""

    def parse(self, reader: Reader) -> bool:
        return reader.boolean()

    def format(self, value: bool) -> str:
        return "true" if value else "false"

    def normalise(self, value: Any) -> bool:
        if not isinstance(value, BOOLS) and not (type(value) is int and value in (0, 1)):
            raise wrong("a truth value", value)
        return bool(value)


class FloatCodec(Codec):
    """``0.001``: a float32, as XLA stores it, held as the Python float of the same value. Infinities are out of its range."""

    largest: ClassVar[float] = float(np.finfo(np.float32).max)

    def parse(self, reader: Reader) -> float:
        start = reader.skip()
        number = reader.number()
        if abs(number) > self.largest:
            raise reader.error("the number is out of range for a float32", start, f"at most {self.largest:g}")
        return self.normalise(number)

    def format(self, value: float) -> str:
        return str(np.float32(value)).removesuffix(".0")

    def normalise(self, value: Any) -> float:
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            raise wrong("a number", value) from None
        if math.isfinite(number) and abs(number) > self.largest:
            raise wrong(f"a number that float32 holds, at most {self.largest:g}", value)
        return float(np.float32(number))


class TextCodec(Codec):
    """A quoted string with C escapes."""

    def parse(self, reader: Reader) -> str:
        return reader.string()

    def format(self, value: str) -> str:
        return quote(value)

    def normalise(self, value: Any) -> str:
        return text_of(value)


@dataclasses.dataclass(frozen=True)
class ChoiceCodec(Codec):
    """A bare word out of a fixed set, perhaps the members of an enum. The case of its letters matters, unless `any_case` is
    set."""

    words: tuple[str, ...]
    any_case: bool = False

    def parse(self, reader: Reader) -> str:
        start = reader.skip()
        word = reader.word("one of " + " ".join(self.words))
        for known in self.words:
            if known == word or (self.any_case and known.lower() == word.lower()):
                return known
        raise reader.error("unknown value of an attribute", start, "one of " + " ".join(self.words), nearest(word, self.words))

    def format(self, value: str) -> str:
        return value

    def normalise(self, value: Any) -> str:
        for word in self.words:
            if isinstance(value, str) and value.lower() == word.lower():
                return word
        raise wrong("one of " + " ".join(self.words), value)


class RegionCodec(Codec):
    """The name of one computation."""

    context_free = False

    def parse(self, reader: Reader) -> Computation:
        return reader.computation_reference()

    def format(self, value: Computation) -> str:
        return f"%{value.name}"

    def normalise(self, value: Any) -> Computation:
        if not isinstance(value, Computation):
            raise wrong("a computation", value)
        return value


class RegionsCodec(Codec):
    """``{a, b}``: names of computations."""

    context_free = False

    def parse(self, reader: Reader) -> tuple[Computation, ...]:
        return tuple(reader.listed(reader.computation_reference))

    def format(self, value: Sequence[Computation]) -> str:
        return "{" + ", ".join(f"%{computation.name}" for computation in value) + "}"

    def normalise(self, value: Any) -> tuple[Computation, ...]:
        return tuple(map(RegionCodec().normalise, sequence_of(value, "a sequence of computations")))


class RawCodec(Codec):
    """Any balanced value, kept as text and printed back; for what the executor has no use for."""

    def parse(self, reader: Reader) -> str:
        start = reader.skip()
        while True:
            if reader.text.startswith(("{", "[", "("), reader.pos):
                reader.balanced()
            elif reader.pos == start or _bare.match(reader.text, reader.pos):
                reader.match(_bare, "a value")
            else:
                return reader.since(start)

    def format(self, value: str) -> str:
        return value

    def normalise(self, value: Any) -> str:
        return text_of(value)


class ShapesCodec(RawCodec):
    """``{f32[2]{0}, f32[]}``, kept as text."""

    def parse(self, reader: Reader) -> str:
        start = reader.skip()
        reader.listed(reader.shape)
        return reader.since(start)


class OperandAliasesCodec(RawCodec):
    """``{ {0}: (1, {}) }``: which part of the result is which part of an operand; kept as text."""

    def parse(self, reader: Reader) -> str:
        start = reader.skip()
        reader.listed(lambda: alias(reader))
        return reader.since(start)


def alias(reader: Reader, kinds: Sequence[str] = ()) -> None:
    """``{0}: (1, {})``, where a kind may follow."""
    shape_index(reader)
    reader.expect(":", "after the index of a result")
    aliased(reader, kinds)


def aliased(reader: Reader, kinds: Sequence[str] = ()) -> None:
    """``(1, {0})``, or with a kind."""
    reader.expect("(")
    _natural(reader)
    reader.expect(",")
    shape_index(reader)
    if kinds and reader.accept(","):
        start = reader.skip()
        if reader.word(" or ".join(kinds)) not in kinds:
            raise reader.error("unknown kind of alias", start, " or ".join(kinds))
    reader.expect(")")


def shape_index(reader: Reader) -> list[int]:
    """``{0,1}``"""
    return reader.listed(lambda: _natural(reader))


def _natural(reader: Reader) -> int:
    start = reader.skip()
    value = reader.integer()
    if value < 0:
        raise reader.error("the number is negative", start, "0 or more")
    return value


def braced(texts: Iterable[str]) -> str:
    """Texts in braces, with commas between them."""
    return "{" + ",".join(texts) + "}"
