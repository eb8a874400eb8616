"""Shapes, layouts and tiles: what XLA's text writes as ``bf16[8,1]{1,0:T(8,128)S(1)}``.

Document: spec `shapes.md`. Everything here is immutable, hashable and free of torch. `parse_shape` and `str` are inverses.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Sequence
from functools import cached_property

from .errors import HloSyntaxError, InvalidArgument
from .types import BUFFER, OPAQUE_TYPE, TOKEN, TUPLE, PrimitiveType, type_from_text

UNBOUNDED = -(2**63)
"""Size of a dimension written ``?``: nothing is known about it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Tile:
    """One tiling level. A dimension of -1 (printed ``*``) is combined with the next more-minor one."""

    dimensions: tuple[int, ...]

    def check(self) -> None:
        """Raise InvalidArgument for a tile that nothing can be laid out in."""
        if not self.dimensions or self.dimensions[-1] == -1 or any(d < 1 and d != -1 for d in self.dimensions):
            raise InvalidArgument("a tile has no size", got=f"T{self}", expected="positive sizes, and '*' not at the end")

    def __str__(self) -> str:
        return "(" + ",".join("*" if d == -1 else str(d) for d in self.dimensions) + ")"


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """How an array lies in memory. `minor_to_major` lists dimensions from fastest to slowest varying.

    `other` keeps, as text and in order, the rare attributes that nothing here computes with: dim level types ``D(..)``,
    index and pointer types, split configs ``SC(..)``, physical shape ``P(..)`` and metadata prefix ``M(..)``.
    """

    minor_to_major: tuple[int, ...]
    tiles: tuple[Tile, ...] = ()
    tail_padding_alignment: int = 1
    element_size_in_bits: int = 0
    memory_space: int = 0
    other: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        kept = dict(self.other)
        text = ""
        if "D" in kept:
            text += f"D({kept['D']})"
        if self.tiles:
            text += "T" + "".join(map(str, self.tiles))
        if self.tail_padding_alignment != 1:
            text += f"L({self.tail_padding_alignment})"
        text += "".join(f"{key}({kept[key]})" for key in ("#", "*") if key in kept)
        if self.element_size_in_bits:
            text += f"E({self.element_size_in_bits})"
        if self.memory_space:
            text += f"S({self.memory_space})"
        text += "".join(f"{key}({kept[key]})" for key in ("SC", "P", "M") if key in kept)
        return "{" + ",".join(map(str, self.minor_to_major)) + (":" + text if text else "") + "}"


@dataclasses.dataclass(frozen=True)
class Shape:
    """An array, tuple, token or opaque shape.

    `dimensions` holds sizes (for a bounded dynamic dimension its bound, for an unbounded one `UNBOUNDED`);
    `dynamic_dimensions` is empty where every dimension is static, else one flag for each dimension.
    """

    element_type: PrimitiveType
    dimensions: tuple[int, ...] = ()
    layout: Layout | None = None
    dynamic_dimensions: tuple[bool, ...] = ()
    tuple_shapes: tuple[Shape, ...] = ()

    # ---- making shapes

    @staticmethod
    def array(element_type: PrimitiveType, dimensions: Sequence[int] = (), dynamic: Sequence[bool] = (),
              layout: Layout | None = None) -> Shape:
        """An array shape; `dynamic` may be empty. Raises InvalidArgument for negative sizes and non-array types."""
        dims = tuple(map(int, dimensions))
        if not element_type.is_array:
            raise InvalidArgument(f"{element_type} is not an element type of arrays")
        if any(d < 0 and d != UNBOUNDED for d in dims):
            raise InvalidArgument("a dimension is negative", got=list(dims), expected="sizes of 0 or more")
        flags = tuple(bool(f) or d == UNBOUNDED for f, d in zip(dynamic or [False] * len(dims), dims, strict=True))
        return Shape(element_type, dims, layout, flags if any(flags) else ())

    @staticmethod
    def tuple(shapes: Sequence[Shape]) -> Shape:
        return Shape(TUPLE, tuple_shapes=tuple(shapes))

    @staticmethod
    def token() -> Shape:
        return Shape(TOKEN)

    @staticmethod
    def parse(text: str) -> Shape:
        return parse_shape(text)

    def with_element_type(self, element_type: PrimitiveType) -> Shape:
        return dataclasses.replace(self, element_type=element_type)

    def with_dimensions(self, dimensions: Sequence[int], dynamic: Sequence[bool] = ()) -> Shape:
        """The same element type over other dimensions, static unless `dynamic` says otherwise; no layout."""
        return Shape.array(self.element_type, dimensions, dynamic)

    def without_layout(self) -> Shape:
        return self if self.layout is None and not self.tuple_shapes else self._bare

    @cached_property
    def _bare(self) -> Shape:
        return Shape(self.element_type, self.dimensions, None, self.dynamic_dimensions,
                     tuple(s.without_layout() for s in self.tuple_shapes))

    # ---- asking shapes

    @property
    def is_tuple(self) -> bool:
        return self.element_type is TUPLE

    @property
    def is_token(self) -> bool:
        return self.element_type is TOKEN

    @property
    def is_array(self) -> bool:
        return self.element_type.is_array

    @property
    def is_scalar(self) -> bool:
        return self.is_array and not self.dimensions

    @property
    def rank(self) -> int:
        return len(self.dimensions)

    @cached_property
    def is_static(self) -> bool:
        return not self.dynamic_dimensions and all(s.is_static for s in self.tuple_shapes)

    @property
    def dynamic_flags(self) -> tuple[bool, ...]:
        """One flag for each dimension, also where all are static."""
        return self.dynamic_dimensions or (False,) * len(self.dimensions)

    @cached_property
    def element_count(self) -> int:
        """Number of elements of an array at its bounds; an unbounded dimension counts as 1."""
        return math.prod(1 if d == UNBOUNDED else d for d in self.dimensions)

    @property
    def byte_size(self) -> int:
        """Bytes of all arrays, untiled and unpacked; tokens and opaques have none."""
        if self.tuple_shapes:
            return sum(s.byte_size for s in self.tuple_shapes)
        return self.element_count * self.element_type.itemsize if self.is_array else 0

    @cached_property
    def minor_to_major(self) -> tuple[int, ...]:
        """The layout's order, row-major where no layout is given."""
        return self.layout.minor_to_major if self.layout else tuple(range(self.rank - 1, -1, -1))

    def at(self, index: Sequence[int]) -> Shape:
        """The part of a tuple shape that a ShapeIndex walks to; ``()`` is the whole. Raises InvalidArgument."""
        shape = self
        for step in index:
            if not 0 <= step < len(shape.tuple_shapes):
                raise InvalidArgument("the index does not lead into the shape", got=f"{list(index)} in {self}")
            shape = shape.tuple_shapes[step]
        return shape

    def leaves(self) -> Iterator[Shape]:
        """The non-tuple shapes, depth first."""
        if not self.is_tuple:
            yield self
        for s in self.tuple_shapes:
            yield from s.leaves()

    def compatible(self, other: Shape, ignore_precision: bool = False, ignore_dynamic: bool = True) -> bool:
        """XLA's Compatible: the same tree, dimensions and element types; layouts do not matter.

        `ignore_precision` lets floating types of different width pass. Unbounded dimensions match anything, and
        unless `ignore_dynamic` is False a dynamic dimension matches a static one of its bound.
        """
        if self is other:
            return True
        if self.is_tuple or other.is_tuple:
            return self.is_tuple and other.is_tuple and len(self.tuple_shapes) == len(other.tuple_shapes) and all(
                a.compatible(b, ignore_precision, ignore_dynamic)
                for a, b in zip(self.tuple_shapes, other.tuple_shapes, strict=True))
        a, b = self.element_type, other.element_type
        if a is not b and not (ignore_precision and a.is_floating and b.is_floating):
            return False
        if len(self.dimensions) != len(other.dimensions):
            return False
        if not ignore_dynamic and self.dynamic_dimensions != other.dynamic_dimensions:
            return False
        return self.dimensions == other.dimensions or all(
            x == y or UNBOUNDED in (x, y) for x, y in zip(self.dimensions, other.dimensions, strict=True))

    # ---- where elements lie

    def linear_index(self, index: Sequence[int]) -> int:
        """The place of an element in the array's buffer, as the layout with its tiles says. Raises InvalidArgument for an
        index outside the array or a tile without a size."""
        if len(index) != self.rank or not all(0 <= i < d for i, d in zip(index, self.dimensions, strict=True)):
            raise InvalidArgument("the index is outside the array", got=list(index), expected=str(self))
        bounds, place = self._tiled(index)
        linear = 0
        for bound, i in zip(bounds, place, strict=True):
            linear = linear * bound + i
        return linear

    def multi_index(self, linear: int) -> tuple[int, ...]:
        """The element at a place of an untiled buffer; the inverse of `linear_index`. Raises InvalidArgument for a place
        outside the buffer or a tiled layout."""
        if self.layout and self.layout.tiles:
            raise InvalidArgument("a tiled layout has places without elements", got=self.to_text())
        if not 0 <= linear < self.element_count:
            raise InvalidArgument("the place is outside the array", got=linear, expected=f"0 to {self.element_count - 1}")
        index = [0] * self.rank
        for dimension in self.minor_to_major:
            linear, index[dimension] = divmod(linear, self.dimensions[dimension])
        return tuple(index)

    @property
    def buffer_size(self) -> int:
        """Elements of the array's buffer with all padding: of the tiles, and at the tail."""
        count = math.prod(self._tiled([0] * self.rank)[0])
        alignment = self.layout.tail_padding_alignment if self.layout else 1
        return -(-count // alignment) * alignment

    def _tiled(self, index: Sequence[int]) -> tuple[list[int], list[int]]:
        """Bounds and index after all tiling levels, most major first."""
        order = self.minor_to_major[::-1]
        bounds, place = [self.dimensions[d] for d in order], [index[d] for d in order]
        for tile in self.layout.tiles if self.layout else ():
            tile.check()
            bounds, place = _apply_tile(bounds, place, tile.dimensions)
        return bounds, place

    # ---- printing

    @cached_property
    def _text(self) -> str:
        return self.to_text(with_layout=False)

    def to_text(self, with_layout: bool = True) -> str:
        """HLO text. `with_layout` prints a layout for each array of rank 1 or more, as XLA does, default ones included."""
        if self.is_tuple:
            parts = [(f"/*index={i}*/" if i and i % 5 == 0 else "") + s.to_text(with_layout)
                     for i, s in enumerate(self.tuple_shapes)]
            return "(" + ", ".join(parts) + ")"
        if self.element_type is BUFFER:
            return "b(" + ", ".join(s.to_text(with_layout) for s in self.tuple_shapes) + ")"
        dims = ",".join("?" if d == UNBOUNDED else f"<={d}" if dyn else str(d)
                        for d, dyn in zip(self.dimensions, self.dynamic_flags, strict=True))
        text = f"{self.element_type.text}[{dims}]"
        if with_layout and self.is_array:
            layout = self.layout or (Layout(self.minor_to_major) if self.dimensions else None)
            if layout and (layout.minor_to_major or str(layout) != "{}"):
                text += str(layout)
        return text

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__


def _apply_tile(bounds: list[int], place: list[int], tile: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """One tiling level over the most minor bounds: tile grid first, then the place inside the tile."""
    missing = max(0, len(tile) - len(bounds))
    bounds, place = [1] * missing + bounds, [0] * missing + place
    start = len(bounds) - len(tile)
    outer, outer_place = bounds[:start], place[:start]
    combined, combined_place = 1, 0
    grid, grid_place, inside, inside_place = [], [], [], []
    for size, i, t in zip(bounds[start:], place[start:], tile, strict=True):
        combined, combined_place = combined * size, combined_place * size + i
        if t == -1:  # joins the next more minor dimension
            continue
        grid.append(-(-combined // t))
        grid_place.append(combined_place // t)
        inside.append(t)
        inside_place.append(combined_place % t)
        combined, combined_place = 1, 0
    return outer + grid + inside, outer_place + grid_place + inside_place


@dataclasses.dataclass(frozen=True)
class ProgramShape:
    """Parameters (shape and name) and result of a computation."""

    parameters: tuple[Shape, ...]
    result: Shape
    parameter_names: tuple[str, ...] = ()

    def __str__(self) -> str:
        names = self.parameter_names or ("",) * len(self.parameters)
        listed = (f"{n}: {s}" if n else str(s) for n, s in zip(names, self.parameters, strict=True))
        return f"({', '.join(listed)}) -> {self.result}"


# ---------------------------------------------------------------------------------------------------- parsing

_LAYOUT = re.compile(r"\s*\{(?=\s*(?:\d|:))([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}|\{\}")
_LAYOUT_PIECE = re.compile(r"\s*(SC|[DTLESPM#*])\s*((?:\([^()]*(?:\([^()]*\)[^()]*)*\)\s*)+)")
_LAYOUT_ORDER = ("D", "T", "L", "#", "*", "E", "S", "SC", "P", "M")


def parse_shape(text: str) -> Shape:
    """Parse a whole string as a shape. Raises HloSyntaxError with the column where it went wrong."""
    shape, end = scan_shape(text, 0)
    if _skip(text, end) != len(text):
        raise _syntax(text, end, "text after the end of the shape", "nothing more")
    return shape


_ARRAY = re.compile(r"([a-z][a-z0-9]*)\[([^\]]*)\]")
_CACHE: dict[str, Shape] = {}


def scan_shape(text: str, start: int) -> tuple[Shape, int]:
    """Parse a shape that begins at `start` of a longer text; returns it and the position after it.

    A ``{`` behind the dimensions begins a layout only if an integer or ``:`` follows it; otherwise it is not part of the
    shape (but the body of a computation, say). Raises HloSyntaxError.
    """
    pos = _skip(text, start)
    if text.startswith("(", pos):
        return _scan_tuple(text, pos)
    if text.startswith("b(", pos):
        inner, end = _scan_tuple(text, pos + 1)
        return Shape(BUFFER, tuple_shapes=inner.tuple_shapes), end
    match = _ARRAY.match(text, pos)
    if not match:
        raise _syntax(text, pos, "not a shape", "element type and dimensions, as in f32[2,3]", _word_at(text, pos))
    end = match.end()
    element_type = type_from_text(match.group(1))
    if element_type is None:
        raise _syntax(text, pos, "unknown element type", "an element type of XLA, as f32 or s8", repr(match.group(1)))
    layout = _LAYOUT.match(text, end) if element_type.is_array else None
    if layout is None or (layout.group(1) is None and match.group(2).strip()):
        return _array_shape(text, pos, element_type, match.group(2), None, end)
    return _array_shape(text, pos, element_type, match.group(2), layout.group(1) or "", layout.end())


def _array_shape(text: str, pos: int, element_type: PrimitiveType, dims: str, layout: str | None,
                 end: int) -> tuple[Shape, int]:
    # Programs repeat the same few shapes thousands of times: one Shape object for each spelling.
    key = text[pos:end]
    shape = _CACHE.get(key)
    if shape is None:
        sizes, flags = _dimensions(text, pos, dims)
        parsed = _layout(text, text.index("{", pos), layout, len(sizes)) if layout is not None else None
        if element_type in (TOKEN, OPAQUE_TYPE):
            shape = Shape(element_type)
        else:
            shape = Shape(element_type, sizes, parsed, flags if any(flags) else ())
        _remember(key, shape)
    return shape, end


def _remember(text: str, shape: Shape) -> None:
    if len(_CACHE) > 100_000:
        _CACHE.clear()
    _CACHE[text] = shape


def _scan_tuple(text: str, pos: int) -> tuple[Shape, int]:
    start, parts = pos, []
    flat = _FLAT_TUPLE.match(text, pos)
    if flat and (known := _CACHE.get(flat.group())):
        return known, flat.end()
    pos = _skip(text, pos + 1)
    while not text.startswith(")", pos):
        shape, pos = scan_shape(text, pos)
        parts.append(shape)
        pos = _skip(text, pos)
        if text.startswith(",", pos):
            pos = _skip(text, pos + 1)
        elif not text.startswith(")", pos):
            raise _syntax(text, pos, "a tuple shape goes on wrongly", "',' or ')'", _word_at(text, pos))
    shape = Shape.tuple(parts)
    if flat and flat.end() == pos + 1:
        _remember(text[start:pos + 1], shape)
    return shape, pos + 1


_FLAT_TUPLE = re.compile(r"\([^()]*\)")
_SPACE = re.compile(r"(?:\s+|/\*.*?\*/|//[^\n]*)*", re.S)


def _word_at(text: str, pos: int) -> str:
    """What stands at `pos`, for a message."""
    word = re.compile(r"\w+|\S|").match(text, pos)
    return repr(word.group()) if word and word.group() else "the end of the text"


def _skip(text: str, pos: int) -> int:
    match = _SPACE.match(text, pos)
    return match.end() if match else pos


def _dimensions(text: str, pos: int, dims: str) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    sizes, flags = [], []
    for part in dims.split(",") if dims.strip() else []:
        word = part.strip()
        try:
            sizes.append(UNBOUNDED if word == "?" else int(word.removeprefix("<=")))
        except ValueError:
            raise _syntax(text, pos, "a dimension is not a size", "N, <=N or ?", got=repr(word)) from None
        if sizes[-1] >= 2**63:
            raise _syntax(text, pos, "a dimension does not fit in 64 bits", "less than 2**63", got=word)
        if sizes[-1] < 0 and word != "?":
            raise _syntax(text, pos, "a dimension is negative", "0 or more", got=word)
        flags.append(word == "?" or word.startswith("<="))
    return tuple(sizes), tuple(flags)


def _layout(text: str, pos: int, body: str, rank: int) -> Layout:
    order_text, _, rest = body.partition(":")
    words = [w.strip() for w in order_text.split(",")] if order_text.strip() else []
    if not all(w.isdigit() for w in words):
        raise _syntax(text, pos, "minor_to_major is not a list of dimensions", "integers", repr(order_text))
    order = tuple(map(int, words))
    if len(order) != rank:
        raise _syntax(text, pos, f"Dimensions size is {rank}, but minor to major size is {len(order)}",
                      "one entry for each dimension")
    if sorted(order) != list(range(rank)):
        raise _syntax(text, pos, "minor_to_major is not a permutation", f"each of 0..{rank - 1} once", str(order))
    facts: dict[str, object] = {}
    other: list[tuple[str, str]] = []
    at, place = 0, -1
    while at < len(rest.rstrip()):
        piece = _LAYOUT_PIECE.match(rest, at)
        if not piece or _LAYOUT_ORDER.index(piece.group(1)) <= place:
            raise _syntax(text, pos, "wrong layout attribute", " ".join(_LAYOUT_ORDER) + ", in this order", repr(rest[at:]))
        key, groups = piece.group(1), re.findall(r"\(([^()]*(?:\([^()]*\)[^()]*)*)\)", piece.group(2))
        place = _LAYOUT_ORDER.index(key)
        try:
            _layout_fact(key, groups, facts, other)
        except ValueError:
            raise _syntax(text, pos, f"malformed layout attribute {key}", "integers in parentheses", repr(rest[at:])) from None
        at = piece.end()
    return Layout(order, other=tuple(other), **facts)  # pyright: ignore[reportArgumentType]


def _layout_fact(key: str, groups: list[str], facts: dict[str, object], other: list[tuple[str, str]]) -> None:
    if key == "T":
        facts["tiles"] = tuple(Tile(tuple(-1 if w.strip() == "*" else int(w) for w in g.split(","))) for g in groups)
    elif key in ("L", "E", "S"):
        facts[{"L": "tail_padding_alignment", "E": "element_size_in_bits", "S": "memory_space"}[key]] = int(groups[0])
    else:
        other.append((key, ")(".join(groups)))


def _syntax(text: str, pos: int, what: str, expected: str, got: str = "") -> HloSyntaxError:
    line = text.count("\n", 0, pos) + 1
    column = pos - (text.rfind("\n", 0, pos) + 1) + 1
    error = HloSyntaxError(what, subject="shape", got=got, expected=expected, where=f"line {line}, column {column}")
    error.line, error.column = line, column
    return error
