"""How one array of a partitioned program lies on a torch DeviceMesh: HLO's sharding as the placements of a DTensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ..core.errors import InvalidArgument
from ..core.shape import Shape
from ..hlo.sharding import Sharding
from ..interop.bindings import OptionalModule

_tensors: Any = OptionalModule("torch.distributed.tensor")
"""Importing it takes most of a second."""

_HINT = "out_shardings and in_shardings say another, as ('data', None)"


class Placed:
    """An array that is cut as a sharding says: a participant's `own` shape, and that of the `whole`.

    Tiles of XLA's are of one size and filled up; pieces of a DTensor are as large as what there is. Raises InvalidArgument for a
    sharding that no placements are.
    """

    def __init__(self, mesh: Any, sharding: Sharding, own: Shape, whole: Shape):
        self._mesh, self._tile, self._whole = mesh, own.dimensions, torch.Size(whole.dimensions)
        axes = _axes_of(sharding, whole, mesh)
        self.placements = _placements(axes, mesh.ndim, replicated="Replicate")
        self._of_gradients = _placements(axes, mesh.ndim, replicated="Partial")
        self._strides = tuple(math.prod(self._whole[d + 1:]) for d in range(len(self._whole)))
        self._holders = mesh.size() // math.prod(mesh.size(a) for own_axes in axes for a in own_axes)
        at = mesh.get_coordinate()
        starts = [_place(own_axes, mesh, at) * n for own_axes, n in zip(axes, self._tile, strict=True)]
        self._sizes = [min(n, max(0, size - start)) for start, n, size in zip(starts, self._tile, self._whole, strict=True)]

    def cut(self, tensor: torch.Tensor) -> torch.Tensor:
        """A whole tensor, the same on all processes, as a DTensor that lies so."""
        everywhere = [_tensors.Replicate()] * self._mesh.ndim
        whole = _tensors.DTensor.from_local(tensor, self._mesh, everywhere, run_check=False)
        return whole.redistribute(placements=self.placements)

    def piece(self, tensor: torch.Tensor) -> torch.Tensor:
        """This participant's tile of a DTensor or of a whole tensor. Its gradients are summed over those that hold the same.
        Raises InvalidArgument for a DTensor on another mesh."""
        given: Any = tensor if hasattr(tensor, "placements") else self.cut(tensor)
        if given.device_mesh != self._mesh:
            raise InvalidArgument("an argument lies on another mesh", got=str(given.device_mesh), expected=str(self._mesh))
        piece = given.redistribute(placements=self.placements).to_local(grad_placements=self._of_gradients)
        filling = [n for size, tile in zip(reversed(self._sizes), reversed(self._tile), strict=True) for n in (0, tile - size)]
        return torch.nn.functional.pad(piece, filling) if any(filling) else piece

    def whole(self, tile: torch.Tensor) -> torch.Tensor:
        """The DTensor of which this is a participant's tile. Its cotangent counts once, however many hold it."""
        piece = tile[tuple(map(slice, self._sizes))] if tuple(self._sizes) != self._tile else tile
        if piece.requires_grad and self._holders > 1:
            piece = piece.view_as(piece)
            piece.register_hook(lambda cotangent: cotangent / self._holders)
        return _tensors.DTensor.from_local(piece, self._mesh, self.placements, run_check=False, shape=self._whole,
                                           stride=self._strides)


def _placements(axes: Sequence[Sequence[int]], count: int, replicated: str) -> tuple[Any, ...]:
    dimension = {axis: d for d, own in enumerate(axes) for axis in own}
    return tuple(_tensors.Shard(dimension[k]) if k in dimension else getattr(_tensors, replicated)() for k in range(count))


def _axes_of(sharding: Sharding, whole: Shape, mesh: Any) -> list[list[int]]:
    """The axes of the mesh that each dimension is cut along, the outer ones first."""
    if sharding.is_manual:
        raise InvalidArgument("each participant has an array of its own: there is no whole one", got=str(sharding), hint=_HINT)
    grid = sharding.grid(whole.rank, mesh.size())
    if (grid.tiles < 0).any():
        raise InvalidArgument("one participant has the array: DTensors do not lie so", got=str(sharding), hint=_HINT)
    ranks, rest = mesh.mesh, torch.from_numpy(grid.tiles)[mesh.mesh.flatten()].reshape(mesh.mesh.shape)
    found: list[list[int]] = []
    for count in reversed(grid.counts):
        place, rest = rest % count, rest // count
        own = [axis for axis in range(ranks.ndim) if (place != place.narrow(axis, 0, 1)).any()]
        if math.prod(ranks.shape[a] for a in own) != count or not torch.equal(place, _places(own, ranks.shape)):
            raise InvalidArgument("the tiles stand in another order than those of a DTensor on this mesh", got=str(sharding),
                                  expected=f"dimensions cut along whole axes of {tuple(ranks.shape)}, the first outermost",
                                  hint=_HINT)
        if len(own) > 1 and whole.dimensions[-1 - len(found)] % count:
            raise InvalidArgument("a dimension that several axes cut is no multiple of its tiles: DTensors cut it otherwise",
                                  got=f"{sharding} of {whole}", hint=_HINT)
        found.append(own)
    return found[::-1]


def _places(axes: Sequence[int], sizes: Sequence[int]) -> torch.Tensor:
    """For each place of a mesh its number along these axes, the first outermost."""
    found = torch.zeros(tuple(sizes), dtype=torch.int64)
    for axis in axes:
        along = torch.arange(sizes[axis]).reshape([-1 if k == axis else 1 for k in range(len(sizes))])
        found = found * sizes[axis] + along
    return found


def _place(axes: Sequence[int], mesh: Any, coordinate: Sequence[int]) -> int:
    place = 0
    for axis in axes:
        place = place * mesh.size(axis) + coordinate[axis]
    return place
