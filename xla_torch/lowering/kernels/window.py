"""Windows that slide over arrays (rule W1 of the operation semantics): reduced by any combiner, or selecting elements.

A window is given as one tuple of integers for each dimension: size, stride, low and high padding, base dilation, window
dilation. Padding may be negative.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch

from . import indexing
from .movement import pad
from .reduction import Combiner, Number, Tensors, filled, reduce_blocks, shaped

Window = Sequence[tuple[int, ...]]
TRIVIAL = (1, 1, 0, 0, 1, 1)

FOLDED = 64
"""Elements of a window up to which select-and-scatter looks at them one after another, as XLA does."""


def is_trivial(dimension: tuple[int, ...]) -> bool:
    """Whether the window does nothing along a dimension."""
    return tuple(dimension[:5]) == TRIVIAL[:5]


def windows(operand: torch.Tensor, padding_value: torch.Tensor | Number, window: Window) -> torch.Tensor:
    """All windows of an array: first the dimensions of their positions, then those inside a window, trivial ones left out.

    A view of the operand, or of a padded copy of it.
    """
    result = operand
    if any(d[2] or d[3] or d[4] != 1 for d in window):
        result = pad(operand, padding_value, [(low, high, dilation - 1) for _, _, low, high, dilation, _ in window])
    for d, (size, stride, *_, dilation) in enumerate(window):
        if is_trivial(window[d]):
            continue
        reach = (size - 1) * dilation + 1
        if result.shape[d] < reach:
            result = result.narrow(d, 0, 0).unsqueeze(-1).expand(*(-1,) * result.dim(), size)
        else:
            result = result.unfold(d, reach, stride)[..., ::dilation]
    return result


def has_padding(window: Window) -> bool:
    """Whether windows reach positions that hold no element."""
    return any(low > 0 or high > 0 or dilation > 1 for _, _, low, high, dilation, _ in window)


def reduce_windows_by(combine: Combiner, operands: Sequence[torch.Tensor], inits: Sequence[torch.Tensor | Number],
                      window: Window) -> Tensors:
    """Reduce each window with a combiner, elements in row-major order, the inits once as first element.

    Padding and the holes of base dilation are left out; a window of nothing else gives the inits.
    """
    combine, count = shaped(combine), len(operands)
    opened = tuple(windows(o, 0, window) for o in operands)
    rank = len(window)
    dims = opened[0].shape[:rank]
    starts = tuple(filled(init, o, dims) for init, o in zip(inits, operands, strict=True))
    if not has_padding(window):
        return combine(*starts, *(r.reshape(dims) for r in reduce_blocks(combine, tuple(_stacked(o, rank) for o in opened))))

    def combine_valid(*pairs: torch.Tensor) -> Tensors:
        is_old, is_new, old, new = pairs[0], pairs[count + 1], pairs[1:count + 1], pairs[count + 2:]
        both = is_old & is_new
        met = combine(*old, *new)
        return (is_old | is_new, *(torch.where(both, m, torch.where(is_old, o, n)) for m, o, n in zip(met, old, new, strict=True)))

    filled_places = windows(torch.ones_like(operands[0], dtype=torch.bool), False, window)
    valid, *found = reduce_blocks(combine_valid, tuple(_stacked(o, rank) for o in (filled_places, *opened)))
    results = combine(*starts, *(f.reshape(dims) for f in found))
    return tuple(torch.where(valid.reshape(dims), r, s) for r, s in zip(results, starts, strict=True))


def _stacked(opened: torch.Tensor, rank: int) -> torch.Tensor:
    """Windows as [1, elements of a window, positions]."""
    inside = range(rank, opened.dim())
    positions = opened.shape[:rank].numel()
    elements = opened.shape[rank:].numel()
    return opened.permute(*inside, *range(rank)).reshape(1, elements, positions)


# ------------------------------------------------------------------------------------------------ select and scatter


def select_and_scatter(select: Combiner, operand: torch.Tensor, source: torch.Tensor, init: torch.Tensor | Number,
                       combiner: str | Combiner, window: Window) -> torch.Tensor:
    """XLA's select-and-scatter: each source element is combined into the element that its window of the operand selects.

    `select(selected, candidate)` says whether the selected element stays. `combiner` is one of `indexing.COMBINERS`, or a
    function (current, update) -> (new,).
    """
    places = selected_places(select, operand, window).reshape(-1)
    result = filled(init, source, operand.shape).reshape(-1)
    if isinstance(combiner, str):
        result = indexing.scatter(result, places, source.reshape(-1), combiner, **_TO_PLACES)
    else:
        result, = indexing.scatter_by_rounds(combiner, [result], places, [source.reshape(-1)], **_TO_PLACES)
    return result.reshape(operand.shape)


_TO_PLACES = {"update_window_dims": (), "inserted_window_dims": (0,), "scatter_dims_to_operand_dims": (0,), "index_vector_dim": 1}


def selected_places(select: Combiner, operand: torch.Tensor, window: Window) -> torch.Tensor:
    """For each window the row-major index of the element that it selects, -1 where it has none. Padding is never selected."""
    rank, padded = len(window), has_padding(window)
    numbers = torch.arange(operand.numel(), device=operand.device).reshape(operand.shape)
    opened, places = windows(operand, 0, window), windows(numbers, -1, window)

    def better(best: torch.Tensor, place: torch.Tensor, candidate: torch.Tensor, at: torch.Tensor) -> Tensors:
        stays = select(best, candidate)[0]
        if padded:
            stays = (stays & (place >= 0)) | (at < 0)
        return torch.where(stays, best, candidate), torch.where(stays, place, at)

    if opened.shape[rank:].numel() > FOLDED:
        _, place = reduce_blocks(better, (_stacked(opened, rank), _stacked(places, rank)))
        return place.reshape(opened.shape[:rank])
    elements = itertools.product(*(range(n) for n in opened.shape[rank:]))
    first, *others = [(..., *element) for element in elements]
    best, place = opened[first], places[first]
    for element in others:
        best, place = better(best, place, opened[element], places[element])
    return place
