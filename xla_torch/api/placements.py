"""How one array of a partitioned program lies on a torch DeviceMesh: HLO's sharding as the placements of a DTensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ..core.errors import InvalidArgument, UnsupportedError
from ..core.shape import Shape
from ..hlo.sharding import Sharding
from ..jax_interop.bindings import OptionalModule

_tensors: Any = OptionalModule("torch.distributed.tensor")
"""Importing it takes most of a second."""

_HINT = "out_shardings and in_shardings say another, as ('data', None)"


class Placed:
    """An array that is cut as a sharding says: a participant's `own` shape, and that of the `whole`. Of a result it may be that
    participants have summands; none is cut in these.

    Tiles of XLA's are of one size and filled up; pieces of a DTensor are as large as what there is. Raises InvalidArgument for a
    sharding that no placements are.
    """

    def __init__(self, mesh: Any, sharding: Sharding, own: Shape, whole: Shape):
        self._mesh, self._tile, self._whole = mesh, own.dimensions, torch.Size(whole.dimensions)
        axes = _axes_of(sharding, whole, mesh)
        summed = _summed_axes(sharding, whole, mesh)
        self.placements = _placements(axes, mesh.ndim, summed, replicated="Replicate")
        self._of_gradients = _placements(axes, mesh.ndim, summed, replicated="Partial")
        self._strides = tuple(math.prod(self._whole[d + 1:]) for d in range(len(self._whole)))
        place, _ = sharding.slices(whole.dimensions, mesh.size())[mesh.get_rank()]
        self._sizes = [part.stop - part.start for part in place or ()]

    def cut(self, tensor: torch.Tensor) -> torch.Tensor:
        """A whole tensor, the same on all processes, as a DTensor that lies so."""
        everywhere = [_tensors.Replicate()] * self._mesh.ndim
        whole = _tensors.DTensor.from_local(tensor, self._mesh, everywhere, run_check=False)
        return whole.redistribute(placements=self.placements)

    def piece(self, tensor: torch.Tensor) -> torch.Tensor:
        """This participant's tile of a DTensor or of a whole tensor. Its gradients are summed over those that hold the same.
        Raises InvalidArgument for a DTensor on another mesh, UnsupportedError for the gradient by one of other parts than
        summands."""
        given: Any = tensor if hasattr(tensor, "placements") else self.cut(tensor)
        if given.device_mesh != self._mesh:
            raise InvalidArgument("an argument is on another mesh", got=str(given.device_mesh), expected=str(self._mesh))
        _require_sums(given)
        return self.filled(given.redistribute(placements=self.placements).to_local(grad_placements=self._of_gradients))

    def filled(self, piece: torch.Tensor) -> torch.Tensor:
        filling = [n for size, tile in zip(reversed(self._sizes), reversed(self._tile), strict=True) for n in (0, tile - size)]
        return torch.nn.functional.pad(piece, filling) if any(filling) else piece

    def lies_so(self, tensor: Any) -> bool:
        """Whether it is a DTensor that lies as it should."""
        return getattr(tensor, "placements", None) == self.placements and tensor.device_mesh == self._mesh

    @property
    def sharing(self) -> tuple[int, ...]:
        """The axes of the mesh along which participants hold the same."""
        return tuple(k for k, placement in enumerate(self.placements) if placement.is_replicate())

    def summed_over(self, axes: Sequence[int]) -> list[Any]:
        """The process groups in which to sum, one after another, to have the sum over these axes."""
        return [None] if len(axes) == self._mesh.ndim else [self._mesh.get_group(axis) for axis in axes]

    def gradient(self, tile: torch.Tensor) -> torch.Tensor:
        """The gradient of an argument that lies so, of which this is a participant's tile, not yet summed: differentiable."""
        return self.of_tile(tile, self._of_gradients).redistribute(placements=self.placements)

    def of_tile(self, tile: torch.Tensor, placements: Any) -> Any:
        """The DTensor that lies so, of which this is a participant's tile."""
        piece = tile[tuple(map(slice, self._sizes))] if tuple(self._sizes) != self._tile else tile
        return _tensors.DTensor.from_local(piece, self._mesh, placements, run_check=False, shape=self._whole,
                                           stride=self._strides)

    def whole(self, tile: torch.Tensor) -> torch.Tensor:
        """The DTensor of which this is a participant's tile. Its cotangent counts once, however many hold it."""
        holders = math.prod(self._mesh.size(axis) for axis in self.sharing)
        if tile.requires_grad and holders > 1:
            tile = tile.view_as(tile)
            tile.register_hook(lambda cotangent: cotangent / holders)
        return self.of_tile(tile, self.placements)


def _require_sums(given: Any) -> None:
    others = [p for p in given.placements if p.is_partial() and p.reduce_op != "sum"]
    if others and given.requires_grad and torch.is_grad_enabled():
        raise UnsupportedError("no gradient for an argument that holds partial sums", got=str(given.placements),
                               expected="tiles, whole arrays or Partial('sum')",
                               hint="redistribute it before it requires grad")


def pieces_of(placed: Sequence[Placed], tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """A participant's tiles of all arguments. The gradients of those that lie as they should are summed together."""
    together = [k for k, (own, t) in enumerate(zip(placed, tensors, strict=True))
                if torch.is_grad_enabled() and t.requires_grad and own.lies_so(t)]
    tiles = _Together.apply([placed[k] for k in together], *(tensors[k] for k in together)) if together else ()
    found = dict(zip(together, tiles, strict=True))
    return [found[k] if k in found else own.piece(t) for k, (own, t) in enumerate(zip(placed, tensors, strict=True))]


class _Together(torch.autograd.Function):
    """The tiles of DTensors that lie as they should. Their gradients are summed over those who hold the same, all that are summed
    over the same processes in one exchange."""

    @staticmethod
    def forward(ctx: Any, placed: list[Placed], *tensors: Any) -> tuple[torch.Tensor, ...]:
        ctx.placed = placed
        ctx.set_materialize_grads(False)
        return tuple(own.filled(t.to_local()).detach() for own, t in zip(placed, tensors, strict=True))

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> tuple[Any, ...]:
        placed: list[Placed] = ctx.placed
        if torch.is_grad_enabled():  # differentiated again
            return None, *(None if ct is None else own.gradient(ct) for own, ct in zip(placed, cotangents, strict=True))
        there = {k: ct for k, ct in enumerate(cotangents) if ct is not None}
        groups: dict[Any, list[int]] = {}
        for k, ct in there.items():
            groups.setdefault((placed[k].sharing, ct.dtype), []).append(k)
        for (axes, _), numbers in groups.items():
            if axes:
                summed = _summed([there[k] for k in numbers], placed[numbers[0]].summed_over(axes))
                there.update(zip(numbers, summed, strict=True))
        return None, *(own.of_tile(there[k], own.placements) if k in there else None for k, own in enumerate(placed))


def _summed(tiles: Sequence[torch.Tensor], groups: Sequence[Any]) -> list[torch.Tensor]:
    """Tiles of one type, each summed over process groups, one after another."""
    flat = torch.cat([t.reshape(-1) for t in tiles])
    for group in groups:
        torch.distributed.all_reduce(flat, group=group)
    return [part.view(t.shape) for part, t in zip(flat.split([t.numel() for t in tiles]), tiles, strict=True)]


def _placements(axes: Sequence[Sequence[int]], count: int, summed: Sequence[int], replicated: str) -> tuple[Any, ...]:
    found: list[Any] = [getattr(_tensors, "Partial" if k in summed else replicated)() for k in range(count)]
    for d, own in enumerate(axes):
        for axis in own:
            found[axis] = _tensors.Shard(d)
    return tuple(found)


def _summed_axes(sharding: Sharding, whole: Shape, mesh: Any) -> list[int]:
    """The axes of the mesh along which participants have summands."""
    grid = sharding.grid(whole.rank, mesh.size())
    if grid.sums is None:
        return []
    sums = torch.from_numpy(grid.sums)[mesh.mesh.flatten()].reshape(mesh.mesh.shape)
    found = [axis for axis in range(mesh.ndim) if mesh.size(axis) > 1 and (sums == sums.narrow(axis, 0, 1)).all()]
    if math.prod(mesh.size(axis) for axis in found) != len(grid.summands(0)):
        raise InvalidArgument("partial sums are ordered differently from a DTensor on this mesh",
                              got=str(sharding), expected="sums along whole axes of the mesh", hint=_HINT)
    return found


def _axes_of(sharding: Sharding, whole: Shape, mesh: Any) -> list[list[int]]:
    """The axes of the mesh that each dimension is cut along, the outer ones first."""
    if sharding.is_manual:
        raise InvalidArgument("each participant has its own array, so there is no whole array", got=str(sharding), hint=_HINT)
    grid = sharding.grid(whole.rank, mesh.size())
    if (grid.tiles < 0).any():
        raise InvalidArgument("one participant holds the array, which DTensors cannot express", got=str(sharding), hint=_HINT)
    ranks, rest = mesh.mesh, torch.from_numpy(grid.tiles)[mesh.mesh.flatten()].reshape(mesh.mesh.shape)
    found: list[list[int]] = []
    for count in reversed(grid.counts):
        place, rest = rest % count, rest // count
        own = [axis for axis in range(ranks.ndim) if (place != place.narrow(axis, 0, 1)).any()]
        if math.prod(ranks.shape[a] for a in own) != count or not torch.equal(place, _places(own, ranks.shape)):
            raise InvalidArgument("the tiles are ordered differently from a DTensor on this mesh", got=str(sharding),
                                  expected=f"dimensions cut along whole axes of {tuple(ranks.shape)}, the first outermost",
                                  hint=_HINT)
        if len(own) > 1 and whole.dimensions[-1 - len(found)] % count:
            raise InvalidArgument("a dimension split over several axes is no multiple of its tiles, which DTensors cannot "
                                  "express",
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
