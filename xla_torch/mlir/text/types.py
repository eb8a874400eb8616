"""Types in MLIR's text: ``tensor<4x?xf32>``, ``!quant.uniform<i8:f32, 0.5>``, ``(i32) -> tuple<index>``."""

from __future__ import annotations

import math
import re

from ...core.types import PrimitiveType, type_from_text
from ..ir import INDEX, TOKEN, Attribute, FunctionType, OtherType, Quantized, Tensor, TupleType, Type
from .scanner import BLANK, NAME, TextScanner

_cached = re.compile(rf"{BLANK}(tensor<[^<>\"]*(?:<[^<>\"]*>[^<>\"]*)?>|[a-z]\w*(?!\w|<|\())")
_kind = re.compile(rf"{BLANK}(?:([A-Za-z]\w*)|(!)({NAME})|(\())")
_simple = re.compile(r"[su]?i[1-9]\d{0,7}|f(?:16|32|64|80|128|[468]E\dM\d\w*)|bf16|tf32|index|none")
_integer_type = re.compile(r"([su]?)i([1-9]\d*)")
_sizes = re.compile(rf"{BLANK}(\*\s*x|(?:(?:\d+|\?)\s*x\s*)*)")
_size = re.compile(r"\d+|\?")
_storage = re.compile(rf"{BLANK}([iu])(\d{{1,3}})(?:\s*<\s*(-?\d{{1,19}})\s*:\s*(-?\d{{1,19}})\s*>)?\s*:")
_axis = re.compile(rf"{BLANK}:\s*(\d{{1,9}})")
_block = re.compile(rf"{BLANK}(\d{{1,9}})\s*:\s*(\d{{1,18}})")
_scale = re.compile(rf"{BLANK}(-?\d+\.\d*(?:[eE][+-]?\d+)?|-?0x[0-9a-fA-F]+)(?:\s*:\s*(-?\d{{1,19}}))?")

_COMPLEX = {PrimitiveType.F32: PrimitiveType.C64, PrimitiveType.F64: PrimitiveType.C128}
_BALANCED = ("vector", "memref", "graph", "graph_type")
_SIZE_LIMIT = 2**63


class TypeReader(TextScanner):
    """Reads types. The same text gives the same object, which keeps comparing cheap."""

    def __init__(self, text: str, filename: str = ""):
        super().__init__(text, filename)
        self._types: dict[str, Type] = {}
        self.type_aliases: dict[str, Type] = {}

    def attribute(self) -> Attribute:
        """An attribute at the cursor (`text_attributes.py`)."""
        raise NotImplementedError

    def versioned_type(self, name: str, start: int) -> Type:
        """A type of VHLO at the cursor, behind its name (`text_vhlo.py`)."""
        raise NotImplementedError

    def type(self) -> Type:
        """A type at the cursor."""
        match = _cached.match(self.text, self.pos)
        if not match:
            return self._new_type()
        found = self._types.get(match[1])
        if found is None:
            start, end = self.pos, match.end()
            found = self._new_type()
            if self.pos != end:  # brackets that the pattern took for the type's own
                return found
            self._types[self.text[match.start(1):end]] = found
            self.pos = start
        self.pos = match.end()
        return found

    def types_listed(self) -> list[Type]:
        """``type, type, ...``, at least one."""
        found = [self.type()]
        while self.accept(","):
            found.append(self.type())
        return found

    def types_in_parentheses(self) -> list[Type]:
        """``(type, ...)``; may be empty."""
        return self.listed(self.type, "(", ")")

    def result_types(self) -> list[Type]:
        """What stands behind the arrow of a function: ``(type, ...)`` or one type."""
        return self.types_in_parentheses() if self.peek() == "(" else [self.type()]

    def at_type(self) -> bool:
        """Whether what comes next can only be a type."""
        match = _kind.match(self.text, self.pos)
        if not match:
            return False
        word = match[1]
        return word is None or word in ("tensor", "tuple", *_BALANCED, "complex") or _simple.fullmatch(word) is not None

    def _new_type(self) -> Type:
        self.deeper()
        match = self.take(_kind, "a type")
        start = match.end(match.lastindex or 0) - len(match[match.lastindex or 0])
        word, dialect, name, _ = match.groups()
        if dialect:
            found = self._dialect_type(name, start - 1)
        elif word is None:
            found = self._function_type(start)
        else:
            found = self._builtin_type(word, start)
        self.depth -= 1
        return found

    def _function_type(self, start: int) -> FunctionType:
        self.pos = start
        inputs = self.types_in_parentheses()
        self.expect("->", "in a function's type")
        return FunctionType(tuple(inputs), tuple(self.result_types()))

    def _builtin_type(self, word: str, start: int) -> Type:
        if word == "tensor":
            return self.tensor()
        if word == "tuple":
            return TupleType(tuple(self.listed(self.type, "<", ">")))
        if word == "complex":
            self.expect("<")
            part = self.type()
            self.expect(">")
            return _COMPLEX.get(part) or OtherType(f"complex<{type_text(part)}>")  # pyright: ignore[reportArgumentType, reportCallIssue]
        if word in _BALANCED and self.peek() == "<":
            self.pos = self.balanced_end(self.pos)
            return OtherType(self.text[start:self.pos])
        if not _simple.fullmatch(word):
            raise self.error(f"no type is called {word!r}", start, expected="a type")
        return scalar_type(word)

    def tensor(self) -> Tensor:
        """``<4x?xf32>``, behind the word."""
        self.expect("<", "after 'tensor'")
        start = self.skip()
        written = self.take(_sizes, "sizes")[1]
        sizes = None if written.startswith("*") else self._sizes(written, start)
        at = self.skip()
        element = self.type()
        if isinstance(element, Tensor | TupleType | FunctionType):
            raise self.error("a tensor cannot have elements of this type", at, expected="an element type")
        encoding = self.attribute() if self.accept(",") else None
        self.expect(">", "after a tensor's element type")
        return Tensor(sizes, element, encoding)

    def _sizes(self, written: str, start: int) -> tuple[int | None, ...]:
        texts = _size.findall(written)
        if any(len(t) > 19 for t in texts):
            raise self.error("a size does not fit in 64 bits", start)
        sizes = tuple(None if t == "?" else int(t) for t in texts)
        if any(s is not None and s >= _SIZE_LIMIT for s in sizes):
            raise self.error("a size does not fit in 64 bits", start)
        return sizes

    def _dialect_type(self, name: str, start: int) -> Type:
        if "." not in name and self.text[self.pos:self.pos + 1] != "<":
            if name not in self.type_aliases:
                raise self.error(f"the type alias !{name} is not defined", start)
            return self.type_aliases[name]
        if name.startswith("vhlo."):
            return self.versioned_type(name.partition(".")[2], start)
        if name == "quant.uniform":
            return self._quantized()
        if self.text[self.pos:self.pos + 1] == "<":
            self.pos = self.balanced_end(self.pos)
        text = self.text[start:self.pos].replace("<token>", ".token")
        return TOKEN if text in ("!stablehlo.token", "!mhlo.token") else OtherType(text)

    # ---- quantized types

    def _quantized(self) -> Quantized:
        self.expect("<")
        start = self.skip()
        match = self.take(_storage, "a storage type (i8:)")
        kind, bits = match[1], int(match[2])
        storage = type_from_text(("s" if kind == "i" else "u") + match[2])
        if storage is None:
            raise self.error("no storage type of this width", start)
        low, high = (0, 2**bits - 1) if kind == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        if match[3] is not None:
            low, high = int(match[3]), int(match[4])
        at = self.skip()
        expressed = self.type()
        if not isinstance(expressed, PrimitiveType) or not expressed.is_floating:
            raise self.error("the expressed type is a floating type", at)
        axes, block = self._quantized_axes()
        self.expect(",", "before the scale")
        scales, zero_points = self._quantized_parameters()
        self.expect(">", "after the scales")
        return Quantized(storage, low, high, expressed, tuple(scales), tuple(zero_points), axes, block)

    def _quantized_axes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """``:axis``, ``:{axis:block, ...}``, or nothing."""
        if match := _axis.match(self.text, self.pos):
            self.pos = match.end()
            return (int(match[1]),), (1,)
        if not self.accept(":"):
            return (), ()
        blocks = self.listed(lambda: self.take(_block, "axis:block"))
        return tuple(int(m[1]) for m in blocks), tuple(int(m[2]) for m in blocks)

    def _quantized_parameters(self) -> tuple[list[float], list[int]]:
        """``scale:zero`` or such in braces, which may be nested; row-major."""
        scales, zero_points = [], []
        if self.peek() != "{":
            self._scale(scales, zero_points)
            return scales, zero_points
        open_braces = 0
        while True:
            while self.accept("{"):
                open_braces += 1
            self._scale(scales, zero_points)
            while open_braces and self.accept("}"):
                open_braces -= 1
            if not open_braces:
                return scales, zero_points
            self.expect(",", "between scales")

    def _scale(self, scales: list[float], zero_points: list[int]) -> None:
        match = self.take(_scale, "a scale")
        scale = float(match[1]) if "x" not in match[1] else math.nan
        if not math.isfinite(scale):
            raise self.error("a scale is a finite number", match.start(1))
        scales.append(scale)
        zero_points.append(int(match[2] or 0))


def scalar_type(word: str) -> Type:
    """The type of a word that is spelled as one: ``i1``, ``ui8``, ``f8E4M3FN``, ``index``."""
    match = _integer_type.fullmatch(word)
    if word == "i1":
        return PrimitiveType.PRED
    if word == "index":
        return INDEX
    if match:
        return type_from_text(("u" if match[1] == "u" else "s") + match[2]) or OtherType(word)
    found = type_from_text(word.lower())
    return found if found is not None and found.text.upper() == word.upper() else OtherType(word)


def type_text(given: Type) -> str:
    """A type as MLIR writes it, for messages."""
    if isinstance(given, PrimitiveType):
        return _primitive_text(given)
    if isinstance(given, Tensor):
        sizes = "*x" if given.dimensions is None else "".join(f"{'?' if s is None else s}x" for s in given.dimensions)
        return f"tensor<{sizes}{type_text(given.element)}{', ...' if given.encoding is not None else ''}>"
    if isinstance(given, Quantized):
        return f"!quant.uniform<{type_text(given.storage)}:{type_text(given.expressed)}, ...>"
    if isinstance(given, TupleType):
        return f"tuple<{', '.join(map(type_text, given.elements))}>"
    if isinstance(given, FunctionType):
        inputs, results = (f"({', '.join(map(type_text, part))})" for part in (given.inputs, given.results))
        return f"{inputs} -> {results}"
    return given.text


def _primitive_text(given: PrimitiveType) -> str:
    if given.is_pred:
        return "i1"
    if given.is_integral:
        return ("ui" if given.is_unsigned else "i") + str(given.bits)
    if given.is_complex:
        return f"complex<f{given.bits // 2}>"
    return given.text if given.bits > 8 else "f" + given.text[1:].upper()
