"""What stands around the instructions of HLO text: the module's attributes and tables, signatures and threads of computations."""

from __future__ import annotations

import re
from typing import Any

from ..core.shape import Shape
from .common import HEADER, TABLES
from .reader import Reader
from .scanner import nearest

_ROW = re.compile(r'([0-9]++)\s*+("[^"\\]*+(?:\\.[^"\\]*+)*+"|\{[^{}]*+\})')


def read_header(reader: Reader) -> dict[str, Any]:
    """The attributes of the module, ``, name=value`` each."""
    header: dict[str, Any] = {}
    while reader.accept(","):
        start = reader.skip()
        name = attribute_name(reader)
        if name not in HEADER:
            raise reader.error("unknown attribute of the module", start, "one of " + " ".join(HEADER), nearest(name, HEADER))
        if name in header:
            raise reader.error(f"attribute {name} already exists", start)
        header[name] = HEADER[name].parse(reader)
    return header


def attribute_name(reader: Reader) -> str:
    """``name=`` with nothing between."""
    name = reader.word("an attribute")
    if not reader.text.startswith("=", reader.pos):
        raise reader.error(f"expects '=' right after {name}", expected=f"{name}=")
    reader.pos += 1
    return name


def read_tables(reader: Reader) -> dict[str, dict[int, str]]:
    """The tables of files and of stack frames, where they stand."""
    tables: dict[str, dict[int, str]] = {}
    for title in TABLES if reader.token() == TABLES[0] else ():
        if reader.token() != title:
            raise reader.error(f"expects {title}", expected="the tables " + ", ".join(TABLES))
        reader.pos += len(title)
        rows: dict[int, str] = {}
        while match := _ROW.match(reader.text, reader.skip()):
            rows.setdefault(int(match.group(1)[:20]), match.group(2))
            reader.pos = match.end()
        tables[title] = rows
    return tables


def read_signature(reader: Reader) -> Shape | None:
    """``(p: f32[2]) -> f32[2]``; the parameters are read and dropped, as XLA does."""
    if not reader.looking_at("("):
        return None

    def parameter() -> Shape:
        start, what = reader.skip(), "a parameter as in p: f32[2]"
        reader.name(what)
        if reader.looking_at(":"):
            raise reader.error(f"expects {what}", start, what, "no blank, and no '%', in front of the colon")
        return reader.shape()

    reader.listed(parameter, "(", ")")
    reader.expect("->", "before the result shape of a computation")
    return reader.shape()


def execution_thread(reader: Reader) -> str:
    """What stands behind a computation: ``, execution_thread="name"``."""
    if not reader.accept(","):
        return ""
    start = reader.skip()
    if attribute_name(reader) != "execution_thread":
        raise reader.error("unknown attribute of a computation", start, "execution_thread=")
    return reader.string()
