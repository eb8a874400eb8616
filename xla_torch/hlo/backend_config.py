"""Reading the backend configurations of instructions: JSON, or MLIR attributes as text."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping
from typing import Any

_TYPE = re.compile(r"(?:[su]?i|f|bf|tf)\d\w*+|index|(?:tensor|vector)<.*>", re.S)
_FLOATS = {"f16": "<e", "f32": "<f", "f64": "<d"}
_COMPLEX = re.compile(r"#complex\.number<:f\d+ ([^,]+), ([^>]+)>(?: : complex<f\d+>)?")


def parse_config(text: str | Mapping[str, Any]) -> dict[str, Any]:
    """A backend configuration as a dict: JSON, or MLIR attributes ``{a = 1 : i64, b = "x", c = [1, 2]}``.

    Text of another form gives an empty dict; an attribute whose value is of another form stays text.
    """
    if isinstance(text, Mapping):
        return dict(text)
    text = text.strip()
    if not (text.startswith("{") and text.endswith("}")):
        return {}
    try:
        found: dict[str, Any] = json.loads(text)  # of text in braces nothing else comes
        return found
    except ValueError:
        return _mlir_dict(text)


def _mlir_dict(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for entry in _split(text[1:-1]):
        key, _, value = entry.partition("=")
        found[key.strip().strip('"')] = _mlir_value(value.strip()) if value else True
    return found


def _mlir_value(text: str) -> Any:
    if text.startswith('"') and text.endswith('"'):
        return _mlir_string(text[1:-1])
    if number := _COMPLEX.fullmatch(text):
        return complex(float(number.group(1)), float(number.group(2)))
    value, _, kind = (part.strip() for part in text.rpartition(":"))
    text, kind = (value, kind) if _TYPE.fullmatch(kind) and ":" in text else (text, "")
    if text.startswith("{"):
        return _mlir_dict(text)
    if text.startswith("["):
        return [_mlir_value(v) for v in _split(text[1:-1])]
    if text.startswith("array<"):
        kind, _, listed = text[6:-1].partition(":")
        return [_mlir_value(f"{v} : {kind}" if kind != "i1" else v) for v in _split(listed)]
    if text.startswith("dense<") and kind.startswith(("tensor<", "vector<")):
        return _mlir_value(text[6:-1])
    if text.startswith("0x") and kind in _FLOATS:  # how MLIR writes infinities and NaN
        return struct.unpack(_FLOATS[kind], int(text, 16).to_bytes(len(text) // 2 - 1, "little"))[0]
    try:
        return json.loads(text)
    except ValueError:
        return text


def _mlir_string(text: str) -> str:
    """A string without its escapes, which are two hexadecimal digits of a byte, or a character that stands for itself."""
    def byte(match: re.Match[bytes]) -> bytes:
        code = match.group(1)
        return code if len(code) == 1 else bytes([int(code, 16)])

    return re.sub(rb"\\([0-9a-fA-F]{2}|.)", byte, text.encode("utf-8", "surrogateescape")).decode(
        "utf-8", "surrogateescape")


def _split(text: str) -> list[str]:
    """The parts between commas that stand in no brackets and no string."""
    parts, depth, quoted, start = list[str](), 0, False, 0
    for position, character in enumerate(text):
        if character == '"' and text[position - 1: position] != "\\":
            quoted = not quoted
        elif quoted:
            continue
        elif character in "{[(<":
            depth += 1
        elif character in "}])" or (character == ">" and text[position - 1: position] != "-"):
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]
