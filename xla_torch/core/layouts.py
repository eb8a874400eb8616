"""Layouts and tiles: how an array lies in memory, what XLA's text writes as ``{1,0:T(8,128)S(1)}``.

Specification: hlo/SPEC.md, Shapes and layouts. All is immutable and hashable.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Sequence

from .errors import HloSyntaxError, InvalidArgument
from .sizes import index_of


@dataclasses.dataclass(frozen=True, slots=True)
class Tile:
    """Describe one tiling level of a layout.

    `dimensions` are the sizes of a tile in elements, most major first. A size of -1 (printed ``*``) combines the dimension with
    the next more minor one. Raises InvalidArgument for sizes that can't tile an array.

    >>> str(xla_torch.Tile((8, 128)))
    '(8,128)'
    """

    dimensions: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "dimensions", whole_numbers(self.dimensions, "the sizes of a tile"))
        if not self.dimensions or self.dimensions[-1] == -1 or any(d < 1 and d != -1 for d in self.dimensions):
            raise InvalidArgument("a tile has no size", got=f"T{self}", expected="positive sizes, and '*' not at the end")

    def __str__(self) -> str:
        return "(" + ",".join("*" if d == -1 else str(d) for d in self.dimensions) + ")"


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """Describe how an array is laid out in memory.

    `minor_to_major` lists the dimensions from fastest to slowest varying, and `tiles` the tiling levels within them. The
    buffer's length is a multiple of `tail_padding_alignment` elements. `element_size_in_bits` is 0 for the natural size of the
    type. `memory_space` is the number of the memory. `other` keeps rare attributes as text, in order: dim level types
    ``D(..)``, index and pointer types, split configs ``SC(..)``, physical shape ``P(..)`` and metadata prefix ``M(..)``.

    Raises InvalidArgument for an order that is no permutation, a tail padding below 1, and a negative memory space or element
    size.

    >>> str(Shape.parse("f32[2,3]{0,1}").layout)
    '{0,1}'
    >>> xla_torch.Layout((0, 1)).minor_to_major
    (0, 1)
    """

    minor_to_major: tuple[int, ...]
    tiles: tuple[Tile, ...] = ()
    tail_padding_alignment: int = 1
    element_size_in_bits: int = 0
    memory_space: int = 0
    other: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        order = whole_numbers(self.minor_to_major, "minor_to_major")
        if sorted(order) != list(range(len(order))):
            raise InvalidArgument("minor_to_major is not a permutation", subject="Layout", got=list(order),
                                  expected=f"each of 0..{len(order) - 1} once")
        if not all(isinstance(tile, Tile) for tile in self.tiles):
            raise InvalidArgument("tiles must be Tile objects", subject="Layout", got=self.tiles, expected="Tile((8, 128)), ...")
        for name, least in (("tail_padding_alignment", 1), ("element_size_in_bits", 0), ("memory_space", 0)):
            (number,) = whole_numbers((getattr(self, name),), name)
            if number < least:
                raise InvalidArgument(f"{name} is out of range", subject="Layout", got=number, expected=f"{least} or more")
        object.__setattr__(self, "minor_to_major", order)
        object.__setattr__(self, "tiles", tuple(self.tiles))

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


def whole_numbers(numbers: Sequence[int], what: str) -> tuple[int, ...]:
    """Integers as a tuple. Raises InvalidArgument for anything else."""
    try:
        if not isinstance(numbers, (str, bytes)) and not any(isinstance(n, bool) for n in numbers):
            return tuple(map(index_of, numbers))
    except TypeError:
        pass
    raise InvalidArgument(f"{what}: no integers", got=repr(numbers), expected="a sequence of integers")


@functools.cache
def default_layout(rank: int) -> Layout:
    """The layout that an array has where none is given: the last dimension varies fastest."""
    return Layout(tuple(range(rank - 1, -1, -1)))


def apply_tile(bounds: list[int], place: list[int], tile: tuple[int, ...]) -> tuple[list[int], list[int]]:
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


# ---------------------------------------------------------------------------------------------------- parsing

BLANK = r"(?:[ \t\n\r]++|/\*(?s:.*?)\*/|//[^\n\r]*+)*+"
"""What XLA's lexer skips: no other blanks of Unicode, and comments."""

_GROUP = r"\(([^()]*+(?:\([^()]*+\)[^()]*+)*+)\)"
_LAYOUT_PIECE = re.compile(rf"[ \t\n\r]*+(SC|[DTLESPM#*])[ \t\n\r]*+((?:{_GROUP}[ \t\n\r]*+)++)")
_DIGITS = re.compile(r"[0-9]++")
_OTHER_FACTS = {key: re.compile(pattern) for key, pattern in {
    "D": r"\s*+[DCSH]?[+~]*+\s*+(?:,\s*+[DCSH]?[+~]*+\s*+)*+", "#": r"\s*+[us][0-9]++\s*+", "*": r"\s*+[us][0-9]++\s*+",
    "SC": r"\s*+[0-9]++\s*+:[0-9,\s]*+", "P": r"(?s:.)++", "M": r"\s*+-?[0-9]++\s*+"}.items()}
"""How the attributes of a layout are written that are kept as text."""
_LAYOUT_ORDER = ("D", "T", "L", "#", "*", "E", "S", "SC", "P", "M")


def parse_layout(text: str, pos: int, body: str, rank: int) -> Layout:
    """The layout that stands in braces at `pos` of a text, for a shape of so many dimensions. Raises HloSyntaxError."""
    order_text, _, rest = body.partition(":")
    words = [w.strip() for w in order_text.split(",")] if order_text.strip() else []
    if not all(_DIGITS.fullmatch(w) for w in words):
        raise shape_syntax(text, pos, "minor_to_major is not a list of dimensions", "integers", repr(order_text))
    order = tuple(map(int, words))
    if len(order) != rank:
        raise shape_syntax(text, pos, f"Dimensions size is {rank}, but minor to major size is {len(order)}",
                      "one entry for each dimension")
    if sorted(order) != list(range(rank)):
        raise shape_syntax(text, pos, "minor_to_major is not a permutation", f"each of 0..{rank - 1} once", str(order))
    facts: dict[str, object] = {}
    other: list[tuple[str, str]] = []
    at, place = 0, -1
    while at < len(rest.rstrip()):
        piece = _LAYOUT_PIECE.match(rest, at)
        if not piece or _LAYOUT_ORDER.index(piece.group(1)) <= place:
            raise shape_syntax(text, pos, "wrong layout attribute", " ".join(_LAYOUT_ORDER) + ", in this order", repr(rest[at:]))
        key, groups = piece.group(1), re.findall(_GROUP, piece.group(2))
        place = _LAYOUT_ORDER.index(key)
        try:
            _layout_fact(key, groups, facts, other)
        except InvalidArgument as error:
            raise shape_syntax(text, pos, error.what, str(error.expected), str(error.got)) from None
        except ValueError:
            raise shape_syntax(text, pos, f"malformed layout attribute {key}", "integers in parentheses",
                               repr(rest[at:])) from None
        at = piece.end()
    try:
        return Layout(order, other=tuple(other), **facts)  # pyright: ignore[reportArgumentType]
    except InvalidArgument as error:
        raise shape_syntax(text, pos, error.what, str(error.expected), str(error.got)) from None


def _layout_fact(key: str, groups: list[str], facts: dict[str, object], other: list[tuple[str, str]]) -> None:
    if key == "T":
        facts["tiles"] = tuple(Tile(tuple(-1 if w.strip() == "*" else _whole_number(w) for w in g.split(","))) for g in groups)
    elif key in ("L", "E", "S"):
        facts[{"L": "tail_padding_alignment", "E": "element_size_in_bits", "S": "memory_space"}[key]] = _whole_number(groups[0])
    else:
        if not all(_OTHER_FACTS[key].fullmatch(g) for g in groups):
            raise ValueError(key)
        other.append((key, ")(".join(groups)))


def _whole_number(text: str) -> int:
    """Raises ValueError for what is none, as ``1_0`` or ``+3``."""
    if not re.fullmatch(r"\s*+-?[0-9]++\s*+", text):
        raise ValueError(text)
    return int(text)


def shape_syntax(text: str, pos: int, what: str, expected: str, got: str = "") -> HloSyntaxError:
    """The error of a text that goes wrong as a shape at `pos`."""
    line = text.count("\n", 0, pos) + 1
    column = pos - (text.rfind("\n", 0, pos) + 1) + 1
    error = HloSyntaxError(what, subject="shape", got=got, expected=expected, where=f"line {line}, column {column}")
    error.line, error.column = line, column
    return error
