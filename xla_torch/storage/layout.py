"""Arrays in their physical buffers: `pack` lays a tensor out as its shape's layout says, `unpack` reads it back.

Specification: hlo/SPEC.md, Tiling. The layout's order is a permutation, and each level of tiles is a padding, a split
of every tiled dimension into (tile, place in the tile), and a permutation that moves the places inside to the end. Where
`Shape.linear_index` gives the place of one element, these move all of them at once.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence

import torch

from ..core.errors import InvalidArgument, UnsupportedError
from ..core.shape import UNBOUNDED, Shape
from .dtypes import torch_dtype


def pack(tensor: torch.Tensor, shape: Shape, fill: complex = 0) -> torch.Tensor:
    """Return the buffer of an array under the layout of `shape`, a 1-D tensor.

    It has `shape.buffer_size` elements. Element `index` is at ``shape.linear_index(index)``; padding holds `fill`. The tensor
    has the dimensions of the shape (for a dynamic dimension any size up to the bound) and the dtype of its element type.
    Sub-byte types take one entry for each element, even if the layout packs them (``E(4)``). The result may share memory with
    the tensor, and gradients flow through it.

    Raises InvalidArgument for a tensor that doesn't match the shape, UnsupportedError for layouts that are not dense.

    >>> xla_torch.pack(torch.tensor([[1, 2], [3, 4]]), Shape.parse("s64[2,2]{0,1}"))
    tensor([1, 3, 2, 4])
    """
    bounds = _checked(shape)
    _check_tensor(tensor, shape)
    tensor = _padded(tensor, bounds, fill).permute(shape.minor_to_major[::-1])
    for level in _levels(shape):
        tensor = _padded(tensor.reshape(level.combined), level.padded, fill)
        tensor = tensor.reshape(level.split).permute(level.order)
    return _padded(tensor.reshape(-1), (shape.buffer_size,), fill)


def unpack(buffer: torch.Tensor, shape: Shape) -> torch.Tensor:
    """Return the array that a buffer holds under the layout of `shape`; inverts `pack`.

    Dynamic dimensions have their bounds. The result may share memory with the buffer. Raises InvalidArgument for a buffer of
    another size or dtype.

    >>> xla_torch.unpack(torch.tensor([1, 3, 2, 4]), Shape.parse("s64[2,2]{0,1}"))
    tensor([[1, 2],
            [3, 4]])
    """
    bounds = _checked(shape)
    if buffer.shape != (shape.buffer_size,) or buffer.dtype != torch_dtype(shape.element_type):
        raise InvalidArgument("the buffer does not fit the shape", subject="unpack", got=_described(buffer),
                              expected=f"{torch_dtype(shape.element_type)}[{shape.buffer_size}] for {shape.to_text()}")
    order, levels = shape.minor_to_major[::-1], _levels(shape)
    stored = levels[-1].tiled if levels else [bounds[d] for d in order]
    tensor = buffer[:math.prod(stored)].reshape(stored)
    for level in reversed(levels):
        tensor = tensor.permute(_inverse(level.order)).reshape(level.padded)
        tensor = tensor[tuple(slice(n) for n in level.combined)].reshape(level.bounds)
    return tensor.permute(_inverse(order))


# ------------------------------------------------------------------------------------------- levels of tiles


@dataclasses.dataclass(frozen=True, slots=True)
class _Level:
    """What one level of tiles does to the sizes of an array, most major dimension first."""

    bounds: tuple[int, ...]
    """Sizes before it."""
    combined: tuple[int, ...]
    """With dimensions of size 1 in front where the tile is longer, and those joined that the tile has a ``*`` for."""
    tile: tuple[int, ...]
    """The tile without its ``*``; it is for the last dimensions of `combined`."""

    @property
    def outer(self) -> int:
        """Number of dimensions that the tile does not reach."""
        return len(self.combined) - len(self.tile)

    @property
    def grid(self) -> tuple[int, ...]:
        """Tiles along each tiled dimension; the last one may be filled in part."""
        return tuple(-(-n // t) for n, t in zip(self.combined[self.outer:], self.tile, strict=True))

    @property
    def padded(self) -> tuple[int, ...]:
        """`combined` in whole tiles."""
        return (*self.combined[:self.outer], *(g * t for g, t in zip(self.grid, self.tile, strict=True)))

    @property
    def split(self) -> tuple[int, ...]:
        """`padded` with every tiled dimension as two: the tile, and the place in it."""
        return (*self.combined[:self.outer], *itertools.chain.from_iterable(zip(self.grid, self.tile, strict=True)))

    @property
    def order(self) -> tuple[int, ...]:
        """The dimensions of `split` as they lie in memory: places inside the tile last."""
        end = self.outer + 2 * len(self.tile)
        return (*range(self.outer), *range(self.outer, end, 2), *range(self.outer + 1, end, 2))

    @property
    def tiled(self) -> tuple[int, ...]:
        """Sizes after it."""
        return tuple(self.split[d] for d in self.order)


def _levels(shape: Shape) -> list[_Level]:
    levels: list[_Level] = []
    bounds = tuple(shape.dimensions[d] for d in reversed(shape.minor_to_major))
    for tile in shape.layout.tiles if shape.layout else ():
        levels.append(_level(bounds, tile.dimensions))
        bounds = levels[-1].tiled
    return levels


def _level(bounds: tuple[int, ...], tile: Sequence[int]) -> _Level:
    wide = (1,) * (len(tile) - len(bounds)) + bounds
    start = len(wide) - len(tile)
    combined, joined = list(wide[:start]), 1
    for size, t in zip(wide[start:], tile, strict=True):
        joined *= size
        if t != -1:
            combined.append(joined)
            joined = 1
    return _Level(bounds, tuple(combined), tuple(t for t in tile if t != -1))


# ------------------------------------------------------------------------------------------- checks and helpers


def _checked(shape: Shape) -> tuple[int, ...]:
    """The dimensions of a shape that has a buffer of a known size."""
    if not isinstance(shape, Shape):
        raise InvalidArgument("not a shape", got=repr(shape)[:80], expected='a Shape, as Shape.parse("f32[2,3]{0,1}")')
    if not shape.is_array or UNBOUNDED in shape.dimensions:
        raise InvalidArgument("only arrays of known size have a buffer", got=shape, expected="an array without '?'")
    layout = shape.layout
    if any(not _is_dense(*attribute) for attribute in (layout.other if layout else ())):
        raise UnsupportedError("only dense layouts are laid out", got=shape.to_text(),
                               expected="an order, tiles and a tail alignment")
    return shape.dimensions


def _is_dense(key: str, text: str) -> bool:
    """Whether a rare layout attribute leaves every element where order and tiles put it: dense levels, split configs."""
    return key == "SC" or (key == "D" and set(text) <= set("D,"))


def _check_tensor(tensor: torch.Tensor, shape: Shape) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise InvalidArgument("not a tensor", subject="pack", got=type(tensor).__name__, expected="a tensor of the shape")
    fits = tensor.dim() == shape.rank and all(
        n == size or (dynamic and n < size)
        for n, size, dynamic in zip(tensor.shape, shape.dimensions, shape.dynamic_flags, strict=True))
    if not fits or tensor.dtype != torch_dtype(shape.element_type):
        raise InvalidArgument("the tensor does not fit the shape", subject="pack", got=_described(tensor),
                              expected=f"{torch_dtype(shape.element_type)}{list(shape.dimensions)} for {shape.to_text()}")


def _described(tensor: torch.Tensor) -> str:
    return f"{tensor.dtype}{list(tensor.shape)}"


def _padded(tensor: torch.Tensor, sizes: Sequence[int], fill: complex) -> torch.Tensor:
    """The tensor in the corner of one of these sizes."""
    if tuple(tensor.shape) == tuple(sizes):
        return tensor
    whole = tensor.new_full(tuple(sizes), fill)
    whole[tuple(slice(n) for n in tensor.shape)] = tensor
    return whole


def _inverse(order: Sequence[int]) -> list[int]:
    return sorted(range(len(order)), key=order.__getitem__)
