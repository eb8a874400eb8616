"""Shapes: what XLA's text writes as ``bf16[8,1]{1,0:T(8,128)S(1)}``.

Specification: hlo/SPEC.md, Shapes and layouts. Everything here is immutable, hashable and free of torch. `parse_shape` and
`to_text` are inverses.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from . import tuning
from .errors import InvalidArgument, LimitError
from .forks import cached_property
from .layouts import BLANK, Layout, apply_tile, default_layout, parse_layout, shape_syntax, whole_numbers
from .sizes import Size, unnamed
from .types import BUFFER, OPAQUE_TYPE, TOKEN, TUPLE, PrimitiveType, require_element_type, type_from_text

UNBOUNDED = -(2**63)
"""Size of a dimension written ``?``: nothing is known about it."""


@dataclasses.dataclass(frozen=True, eq=False)
class Shape:
    """Describe an array, tuple, token or opaque shape.

    `element_type` is TUPLE for a tuple of `tuple_shapes`, and TOKEN for a token. `dimensions` holds the sizes: the bound of a
    bounded dynamic dimension, `UNBOUNDED` for an unbounded one. `dynamic_dimensions` has one flag for each dimension, and is
    empty if all are static. Without a `layout` the array has the default layout, and equality compares layouts, given or
    default. `repr` and `to_text` print every layout, `str` prints none, as XLA's functions do. Raises
    InvalidArgument if a layout has another rank, and LimitError for tuples that are too large.

    >>> shape = Shape.parse("f32[<=4,3]{0,1}")
    >>> shape.rank, shape.dimensions, shape.dynamic_dimensions, shape.dynamic_flags, shape.is_static
    (2, (4, 3), (True, False), (True, False), False)
    >>> shape.to_text(), str(shape.without_layout()), shape.with_element_type(xla_torch.BF16), shape.with_dimensions([5])
    ('f32[<=4,3]{0,1}', 'f32[<=4,3]', bf16[<=4,3]{0,1}, f32[5]{0})
    >>> shape.linear_index([1, 2]), shape.multi_index(9), shape.minor_to_major, shape.buffer_size
    (9, (1, 2), (0, 1), 12)
    >>> shape.element_count, shape.byte_size, shape.floating_types, shape.is_array, shape.is_scalar, shape.has_sizes, shape.key
    (12, 48, frozenset({F32}), True, False, False, f32[<=4,3]{0,1})
    >>> pair = Shape.tuple([Shape.array("f32", [1, 2]), Shape.tuple([Shape.token()])])
    >>> [str(leaf) for leaf in pair.leaves()], pair.leaf_count, pair.leaf_offsets, pair.depth, pair.is_tuple
    (['f32[1,2]', 'token[]'], 2, (0, 1, 2), 2, True)
    >>> pair.at([0]).true_number_of_dimensions, pair.at([0]).true_rank, pair.at([1, 0]).is_token, pair.compatible(pair)
    (1, 1, True, True)
    """

    element_type: PrimitiveType
    dimensions: tuple[int, ...] = ()
    layout: Layout | None = None
    dynamic_dimensions: tuple[bool, ...] = ()
    tuple_shapes: tuple[Shape, ...] = ()

    def __post_init__(self) -> None:
        if type(self.dimensions) is not tuple or not isinstance(self.element_type, PrimitiveType):  # pyright: ignore
            raise InvalidArgument("not an element type and a tuple of sizes", got=f"{self.element_type!r}, {self.dimensions!r}",
                                  subject="Shape", expected="Shape.array('f32', [2, 3]), or Shape.parse('f32[2,3]')")
        if self.tuple_shapes and (self.leaf_count > tuning.TUPLE_LEAVES or self.depth > tuning.TUPLE_DEPTH):
            raise LimitError("a tuple is too large", subject="Shape", got=f"{self.leaf_count} arrays, {self.depth} tuples deep",
                             expected=f"at most {tuning.TUPLE_LEAVES} arrays, {tuning.TUPLE_DEPTH} deep")
        if self.layout is not None and len(self.layout.minor_to_major) != len(self.dimensions):
            count = len(self.layout.minor_to_major)
            raise InvalidArgument(f"Dimensions size is {len(self.dimensions)}, but minor to major size is {count}",
                                  got=str(self.layout), expected="one entry for each dimension")

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (isinstance(other, Shape) and self.element_type is other.element_type and self.dimensions == other.dimensions
                and self.dynamic_dimensions == other.dynamic_dimensions and self.tuple_shapes == other.tuple_shapes
                and (self.layout is other.layout or self._laid_out == other._laid_out))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.element_type, self.dimensions, self.dynamic_dimensions, self.tuple_shapes))

    @property
    def _laid_out(self) -> Layout | None:
        return self.layout or (default_layout(len(self.dimensions)) if self.dimensions else Layout(()))

    # ---- making shapes

    @staticmethod
    def array(element_type: PrimitiveType | Any, dimensions: Sequence[int] = (), dynamic: Sequence[bool] = (),
              layout: Layout | None = None) -> Shape:
        """Make an array shape; the element type may be named as in NumPy and torch.

        `layout` defaults to XLA's; `dynamic` may be empty. Raises InvalidArgument for negative sizes or a layout of another
        rank.
        """
        kind = require_element_type(element_type)
        if layout is not None and not isinstance(layout, Layout):
            raise InvalidArgument("not a layout", subject="Shape", got=repr(layout), expected="a Layout, as Layout((1, 0))")
        shape = _array(kind, dimensions, dynamic, layout)
        return dataclasses.replace(shape, layout=default_layout(shape.rank)) if layout is None else shape

    @staticmethod
    def tuple(shapes: Sequence[Shape]) -> Shape:
        """Make a tuple shape. Raises InvalidArgument for elements that are not shapes."""
        if not hasattr(shapes, "__iter__"):
            raise InvalidArgument("not a tuple of shapes", subject="Shape", got=str(shapes), expected="a sequence of Shapes")
        if not all(isinstance(shape, Shape) for shape in shapes):
            raise InvalidArgument("not a tuple of shapes", subject="Shape", got=", ".join(type(s).__name__ for s in shapes))
        return Shape(TUPLE, tuple_shapes=tuple(shapes))

    @staticmethod
    def token() -> Shape:
        """Return the shape of a token."""
        return Shape(TOKEN)

    @staticmethod
    def parse(text: str) -> Shape:
        """Parse HLO text. Raises HloSyntaxError, and InvalidArgument if `text` is not a string."""
        if not isinstance(text, str):
            raise InvalidArgument("not the text of a shape", subject="Shape.parse", got=repr(text)[:80],
                                  expected='a text, as "f32[2,3]"')
        return parse_shape(text)

    def with_element_type(self, element_type: PrimitiveType) -> Shape:
        """Return the same dimensions and layout with another element type."""
        return dataclasses.replace(self, element_type=element_type)

    def with_dimensions(self, dimensions: Sequence[int], dynamic: Sequence[bool] = ()) -> Shape:
        """Return the same element type with other dimensions, static by default, and no layout."""
        return _array(self.element_type, dimensions, dynamic, None)

    def without_layout(self) -> Shape:
        """Return the same shape with default layouts."""
        return self if self.layout is None and not self.tuple_shapes else self._without_layout

    @cached_property
    def _without_layout(self) -> Shape:
        return Shape(self.element_type, self.dimensions, None, self.dynamic_dimensions,
                     tuple(s.without_layout() for s in self.tuple_shapes))

    # ---- asking shapes

    @property
    def is_tuple(self) -> bool:
        """Whether it is a tuple, which may be empty."""
        return self.element_type is TUPLE

    @property
    def is_token(self) -> bool:
        """Whether it is a token."""
        return self.element_type is TOKEN

    @property
    def is_array(self) -> bool:
        """Whether it is an array; scalars are."""
        return self.element_type.is_array

    @property
    def is_scalar(self) -> bool:
        """Whether it is an array without dimensions."""
        return self.is_array and not self.dimensions

    @property
    def rank(self) -> int:
        """How many dimensions it has."""
        return len(self.dimensions)

    @property
    def true_number_of_dimensions(self) -> int:
        """How many dimensions have a size greater than 1 (an unbounded one may have)."""
        return sum(d > 1 or d == UNBOUNDED for d in self.dimensions)

    @property
    def true_rank(self) -> int:
        """The older name of the true number of dimensions."""
        return self.true_number_of_dimensions

    @cached_property
    def leaf_count(self) -> int:
        """How many shapes in it are no tuples."""
        return sum(s.leaf_count for s in self.tuple_shapes) if self.is_tuple else 1

    @cached_property
    def leaf_offsets(self) -> tuple[int, ...]:
        """How many shapes that are no tuples stand before each element of a tuple, and before its end."""
        return tuple(itertools.accumulate((s.leaf_count for s in self.tuple_shapes), initial=0))

    @cached_property
    def depth(self) -> int:
        """How many tuples stand in each other."""
        return 1 + max((s.depth for s in self.tuple_shapes), default=0) if self.is_tuple else 0

    @cached_property
    def is_static(self) -> bool:
        """Whether no dimension in it is dynamic."""
        return not self.dynamic_dimensions and all(s.is_static for s in self.tuple_shapes)

    @cached_property
    def floating_types(self) -> frozenset[PrimitiveType]:
        """The floating types of its arrays."""
        if self.tuple_shapes:
            return frozenset().union(*(s.floating_types for s in self.tuple_shapes))
        return frozenset((self.element_type,) if self.element_type.is_floating else ())

    @cached_property
    def has_sizes(self) -> bool:
        """Whether sizes that stand for many are in it."""
        return any(isinstance(n, Size) for n in self.dimensions) or any(s.has_sizes for s in self.tuple_shapes)

    @property
    def dynamic_flags(self) -> tuple[bool, ...]:
        """One flag for each dimension, also where all are static."""
        return self.dynamic_dimensions or (False,) * len(self.dimensions)

    @cached_property
    def element_count(self) -> int:
        """Number of elements of an array at its bounds; an unbounded dimension counts as 1."""
        return math.prod(1 if d == UNBOUNDED else d for d in self.dimensions)

    @cached_property
    def key(self) -> Hashable:
        """What stands for it in a dictionary of what was made for equal shapes: of sizes that stand for many nothing is told by
        that (see `sizes.unnamed`)."""
        if self.tuple_shapes:
            return (self.element_type, *(s.key for s in self.tuple_shapes))
        if not any(isinstance(n, Size) for n in self.dimensions):
            return self
        return self.element_type, unnamed(self.dimensions), self.layout, self.dynamic_dimensions

    @cached_property
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
        """Return the part of a tuple shape at a ShapeIndex. Raises InvalidArgument."""
        shape = self
        for step in index:
            if not 0 <= step < len(shape.tuple_shapes):
                raise InvalidArgument("the index does not lead into the shape", got=f"{list(index)} in {self}")
            shape = shape.tuple_shapes[step]
        return shape

    def leaves(self) -> Iterator[Shape]:
        """Return the shapes that are not tuples, depth first."""
        if not self.is_tuple:
            yield self
        for s in self.tuple_shapes:
            yield from s.leaves()

    def compatible(self, other: Shape, ignore_precision: bool = False, ignore_dynamic: bool = True) -> bool:
        """Compare tree, dimensions and element types as XLA's Compatible does, but not layouts.

        `ignore_precision` accepts floating types of any width. Unbounded dimensions match anything. Unless `ignore_dynamic` is
        False, dynamic dimensions match static ones of their bound.
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
        """Return an element's position in the tiled buffer. Raises InvalidArgument if outside."""
        if len(index) != self.rank or not all(0 <= i < d for i, d in zip(index, self.dimensions, strict=True)):
            raise InvalidArgument("the index is outside the array", got=list(index), expected=str(self))
        bounds, place = self._tiled(index)
        linear = 0
        for bound, i in zip(bounds, place, strict=True):
            linear = linear * bound + i
        return linear

    def multi_index(self, linear: int) -> tuple[int, ...]:
        """Return the index of the element at a position; inverts `linear_index`. Raises likewise."""
        if self.layout and self.layout.tiles:
            raise InvalidArgument("a tiled layout has padding, so positions have no unique element", got=self.to_text())
        if not 0 <= linear < self.element_count:
            raise InvalidArgument("the position is outside the array", got=linear, expected=f"0 to {self.element_count - 1}")
        index = [0] * self.rank
        for dimension in self.minor_to_major:
            linear, index[dimension] = divmod(linear, self.dimensions[dimension])
        return tuple(index)

    @property
    def buffer_size(self) -> int:
        """Return the number of elements in the buffer, including padding of tiles and at the tail."""
        count = math.prod(self._tiled([0] * self.rank)[0])
        alignment = self.layout.tail_padding_alignment if self.layout else 1
        return -(-count // alignment) * alignment

    def _tiled(self, index: Sequence[int]) -> tuple[list[int], list[int]]:
        """Bounds and index after all tiling levels, most major first."""
        order = self.minor_to_major[::-1]
        bounds, place = [self.dimensions[d] for d in order], [index[d] for d in order]
        for tile in self.layout.tiles if self.layout else ():
            bounds, place = apply_tile(bounds, place, tile.dimensions)
        return bounds, place

    # ---- printing

    @cached_property
    def _text(self) -> str:
        return self.to_text(with_layout=False)

    def to_text(self, with_layout: bool = True) -> str:
        """Return HLO text, `with_layout` with the layouts of arrays, as XLA does."""
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

    def __repr__(self) -> str:
        return self.to_text()


def _array(element_type: PrimitiveType, dimensions: Sequence[int], dynamic: Sequence[bool], layout: Layout | None) -> Shape:
    """The shape of an array, in the layout that is given or in none."""
    dims = whole_numbers(dimensions, "dimensions")
    if any((d < 0 and d != UNBOUNDED) or d >= 2**63 for d in dims):
        raise InvalidArgument("a dimension is negative" if min(dims) < 0 else "a dimension does not fit in 64 bits",
                              got=list(dims), expected="sizes of 0 or more, less than 2**63")
    if not dynamic and UNBOUNDED not in dims:
        return Shape(element_type, dims, layout)
    if dynamic and len(dynamic) != len(dims):
        raise InvalidArgument("not one flag for each dimension", got=list(dynamic), expected=f"{len(dims)} flags")
    flags = tuple(bool(f) or d == UNBOUNDED for f, d in zip(dynamic or [False] * len(dims), dims, strict=True))
    return Shape(element_type, dims, layout, flags if any(flags) else ())


@dataclasses.dataclass(frozen=True)
class ProgramShape:
    """Hold a computation's `parameters` and `result` shapes, and the `parameter_names` if known.

    >>> square = xla_torch.parse_hlo("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] multiply(x, x) }")
    >>> str(square.program_shape), square.program_shape.parameters[0].dimensions
    ('(x: f32[2]) -> f32[2]', (2,))
    """

    parameters: tuple[Shape, ...]
    result: Shape
    parameter_names: tuple[str, ...] = ()

    def __str__(self) -> str:
        names = self.parameter_names or ("",) * len(self.parameters)
        listed = (f"{n}: {s}" if n else str(s) for n, s in zip(names, self.parameters, strict=True))
        return f"({', '.join(listed)}) -> {self.result}"


# ---------------------------------------------------------------------------------------------------- parsing

_LAYOUT = re.compile(rf"{BLANK}\{{(?={BLANK}(?:[0-9]|:))([^{{}}]*+(?:\{{[^{{}}]*+\}}[^{{}}]*+)*+)\}}|\{{\}}")
def parse_shape(text: str) -> Shape:
    """Parse a whole string as a shape. Raises HloSyntaxError with the column where it went wrong."""
    shape, end = scan_shape(text, 0)
    if _skip(text, end) != len(text):
        raise shape_syntax(text, end, "text after the end of the shape", "nothing more")
    return shape


_ARRAY = re.compile(rf"([a-z][a-z0-9]*+){BLANK}\[([^\]]*+)\]")
_BUFFER = re.compile(rf"b{BLANK}(?=\()")
_SIZE = re.compile(rf"{BLANK}(?:\?|(<=)?{BLANK}(-?[0-9]++)){BLANK}")
_CACHE: dict[str, Shape] = {}


def scan_shape(text: str, start: int) -> tuple[Shape, int]:
    """Parse a shape that begins at `start` of a longer text; returns it and the position after it.

    A ``{`` behind the dimensions begins a layout only if an integer or ``:`` follows it; otherwise it is not part of the
    shape (but the body of a computation, say). Raises HloSyntaxError.
    """
    pos = _skip(text, start)
    if text.startswith("(", pos):
        return _scan_tuple(text, pos)
    if buffer := _BUFFER.match(text, pos):
        inner, end = _scan_tuple(text, buffer.end())
        if len(inner.tuple_shapes) != 1 or not inner.tuple_shapes[0].is_array:
            raise shape_syntax(text, pos, "a buffer holds one array", "b(f32[2])", str(inner))
        return Shape(BUFFER, tuple_shapes=inner.tuple_shapes), end
    match = _ARRAY.match(text, pos)
    if not match:
        raise shape_syntax(text, pos, "not a shape", "element type and dimensions, as in f32[2,3]", _word_at(text, pos))
    end = match.end()
    element_type = type_from_text(match.group(1))
    if element_type is None:
        raise shape_syntax(text, pos, "unknown element type", "an element type of XLA, as f32 or s8", repr(match.group(1)))
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
        parsed = parse_layout(text, text.index("{", pos), layout, len(sizes)) if layout is not None else None
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
    more = not text.startswith(")", pos)
    while more:
        shape, pos = scan_shape(text, pos)
        parts.append(shape)
        pos = _skip(text, pos)
        more = text.startswith(",", pos)
        if more:
            pos = _skip(text, pos + 1)
        elif not text.startswith(")", pos):
            raise shape_syntax(text, pos, "a tuple shape goes on wrongly", "',' or ')'", _word_at(text, pos))
    shape = Shape.tuple(parts)
    if flat and flat.end() == pos + 1:
        _remember(text[start:pos + 1], shape)
    return shape, pos + 1


_FLAT_TUPLE = re.compile(r"\([^()]*+\)")
_SPACE = re.compile(BLANK)


def _word_at(text: str, pos: int) -> str:
    """What stands at `pos`, for a message."""
    word = re.compile(r"\w+|\S|").match(text, pos)
    return repr(word.group()) if word and word.group() else "the end of the text"


def _skip(text: str, pos: int) -> int:
    match = _SPACE.match(text, pos)
    return match.end() if match else pos


def _dimensions(text: str, pos: int, dims: str) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    sizes, flags = [], []
    for part in dims.split(",") if _skip(dims, 0) < len(dims) else []:
        word = _SIZE.fullmatch(part)
        if word is None:
            raise shape_syntax(text, pos, "a dimension is not a size", "N, <=N or ?", got=repr(part[:80]))
        bounded, size = word.groups()
        sizes.append(UNBOUNDED if size is None else int(size))
        if sizes[-1] >= 2**63:
            raise shape_syntax(text, pos, "a dimension does not fit in 64 bits", "less than 2**63", got=part[:80])
        if sizes[-1] < 0 and size is not None:
            raise shape_syntax(text, pos, "a dimension is negative", "0 or more", got=part[:80])
        flags.append(size is None or bounded is not None)
    return tuple(sizes), tuple(flags)
