"""Attributes and types that dialects without an encoding of their own keep as text."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ...core.errors import HloSyntaxError
from .. import ir
from ..text.attributes import AttributeReader
from .cursor import malformed

T = TypeVar("T")


def attribute_of_text(text: str, offset: int) -> ir.Attribute:
    """The attribute that stands in `text`, at `offset` of the file."""
    return _read(text, offset, AttributeReader.attribute)


def type_of_text(text: str, offset: int) -> ir.Type:
    """The type that stands in `text`, at `offset` of the file."""
    return _read(text, offset, AttributeReader.type)


def _read(text: str, offset: int, read: Callable[[AttributeReader], T]) -> T:
    reader = AttributeReader(text)
    try:
        found = read(reader)
    except HloSyntaxError as error:
        raise malformed(error.what, offset, text[:80], error.expected) from None
    if reader.skip() != len(text):
        raise malformed("the text of an attribute does not end", offset, text[reader.pos:][:80])
    return found
