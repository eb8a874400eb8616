"""Kernels of indexing: dynamic slices, gather and scatter, each one call in a program.

Sizes are taken from the tensors, so arrays with run-time sizes work. Nothing here waits for an accelerator, except the
scatter by rounds, which must know how often an element is updated. On the CPU, where reading a tensor costs nothing,
start indices are read, and updates out of bounds are dropped instead of masked.

Functions with a trailing underscore write into their first operand, which must share no memory with the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, NotRequired, TypedDict, Unpack

import torch

from ..core import tuning
from ..opcodes.reducer_kinds import ReducerKind
from ..storage import torch_private
from . import points, rows
from .calls import fresh
from .gathers import dimension_along, elements_along

Index = torch.Tensor | int
Region = Callable[..., tuple[torch.Tensor, ...]]

_INT64_MAX = 2**63 - 1


def widen_index(index: Index, bits: int) -> Index:
    """An unsigned index that travels in signed storage of so many bits, as an int64 of the same or a huge value."""
    if isinstance(index, int):
        return index & ((1 << bits) - 1)
    wide = index.to(torch.int64)
    return torch.where(wide < 0, _INT64_MAX, wide) if bits == 64 else wide & ((1 << bits) - 1)


def on_host(tensor: torch.Tensor) -> bool:
    """Whether the tensor's values can be read without waiting: a real CPU tensor outside of a compiler's trace and a map."""
    return (type(tensor) is torch.Tensor and tensor.device.type == "cpu" and not torch.compiler.is_compiling()
            and not torch_private.is_wrapped(tensor))


# --------------------------------------------------------------------------------------------- dynamic slices


def dynamic_slice(operand: torch.Tensor, starts: Sequence[Index], sizes: Sequence[int]) -> torch.Tensor:
    """The slice of `sizes` that begins at `starts`, which are moved so that it lies inside. May be a view."""
    for d, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        extent = operand.shape[d]
        if size >= extent:
            continue
        at = _clamped(start, extent - size)
        operand = operand.narrow(d, at, size) if isinstance(at, int) else operand.index_select(d, _positions(at, size))
    return operand


@fresh
def dynamic_update_slice(operand: torch.Tensor, update: torch.Tensor, starts: Sequence[Index]) -> torch.Tensor:
    """A copy of `operand` with `update` written at `starts`, which are moved so that it lies inside."""
    return dynamic_update_slice_(operand.clone(memory_format=torch.contiguous_format), update, starts)


def dynamic_update_slice_(operand: torch.Tensor, update: torch.Tensor, starts: Sequence[Index]) -> torch.Tensor:
    """`dynamic_update_slice` in place (of an expanded operand: in a copy)."""
    operand = _writable(operand)
    part, chosen = operand, []
    for d, (start, extent, size) in enumerate(zip(starts, operand.shape, update.shape, strict=True)):
        if size == extent:
            continue
        at = _clamped(start, extent - size)
        if isinstance(at, int):
            part = part.narrow(d, at, size)
        else:
            chosen.append((d, _positions(at, size)))
    if not chosen:
        part.copy_(update)
    elif len(chosen) == 1:
        part.index_copy_(chosen[0][0], chosen[0][1], update)
    else:
        dims = [d for d, _ in chosen]
        order = dims + [d for d in range(operand.dim()) if d not in dims]
        grid = torch.meshgrid(*(positions for _, positions in chosen), indexing="ij")
        part.permute(order).index_put_(grid, update.permute(order))
    return operand


def _writable(operand: torch.Tensor) -> torch.Tensor:
    """The operand itself, unless several of its elements may be one in memory."""
    return operand.contiguous() if 0 in operand.stride() else operand


def _clamped(start: Index, limit: int) -> Index:
    if not isinstance(start, int):
        if not on_host(start):
            return start.to(torch.int64).clamp(0, limit)
        start = int(start)
    return min(max(start, 0), limit)


def _positions(start: torch.Tensor, size: int) -> torch.Tensor:
    return start.reshape(1) if size == 1 else start + torch.arange(size, device=start.device)


# --------------------------------------------------------------------------------------------- windows


class Windows(NamedTuple):
    """Where the windows of a gather or scatter lie, in an array seen as three dimensions.

    Its leading and trailing dimensions that windows span whole are one dimension each (`leading`, `trailing` are their
    counts); all dimensions between are the middle one, and `rows` are the middle positions of all windows: points in
    row-major order, within each its window. `inside` tells for each row whether its whole window is in bounds.
    """

    leading: int
    trailing: int
    rows: torch.Tensor
    inside: torch.Tensor | None

    def flat(self, array: torch.Tensor) -> tuple[torch.Tensor, int]:
        """The array in 1 to 3 dimensions (a view if it is contiguous), and which of them is the middle one."""
        sizes = array.shape
        lead, tail = math.prod(sizes[:self.leading]), math.prod(sizes[len(sizes) - self.trailing:])
        middle = math.prod(sizes[self.leading:len(sizes) - self.trailing])
        return array.reshape([lead] * (lead != 1) + [middle] + [tail] * (tail != 1)), int(lead != 1)


def _is_tiny_float(dtype: torch.dtype) -> bool:
    """Whether torch's indexing may not know the type."""
    return dtype.is_floating_point and dtype.itemsize == 1


def _windows(sizes: Sequence[int], window: Sequence[int], indices: torch.Tensor, index_vector_dim: int,
             start_index_map: Sequence[int], batching: Sequence[tuple[int, int]], clamp: bool) -> Windows:
    """`window` has a size for each operand dimension, `batching` pairs of (operand, index) dimensions. With `clamp`, starts
    are moved so that windows lie inside."""
    leading, trailing = _whole_ends(sizes, window)
    strides = [0] * len(sizes)
    step = 1
    for d in reversed(range(leading, len(sizes) - trailing)):
        strides[d], step = step, step * sizes[d]
    vectors = indices.unsqueeze(-1) if index_vector_dim == indices.dim() else indices.movedim(index_vector_dim, -1)
    points, device = vectors.shape[:-1], indices.device
    parts: list[torch.Tensor] = []
    inside: torch.Tensor | None = None
    for k, d in enumerate(start_index_map):
        start, limit = vectors[..., k].to(torch.int64), sizes[d] - window[d]
        if clamp:
            start = start.clamp(0, limit)
        else:
            valid = (start >= 0) & (start <= limit)
            inside = valid if inside is None else inside & valid
        if strides[d]:
            parts.append(start if strides[d] == 1 else start * strides[d])
    for d, index_dim in batching:
        axis = index_dim - (index_dim > index_vector_dim)
        line = torch.arange(points[axis], device=device) * strides[d]
        parts.append(line.view([-1 if a == axis else 1 for a in range(len(points))]))
    row = sum(parts[1:], parts[0]) if parts else torch.zeros((), dtype=torch.int64, device=device)
    row = row.expand(points).reshape(-1)

    spanned = [d for d in range(leading, len(sizes) - trailing) if window[d] != 1]
    if not spanned:
        return Windows(leading, trailing, row, None if inside is None else inside.reshape(-1))
    offsets = torch.zeros(1, dtype=torch.int64, device=device)
    for d in spanned:
        offsets = (offsets.unsqueeze(-1) + torch.arange(window[d], device=device) * strides[d]).reshape(-1)
    rows = (row.unsqueeze(-1) + offsets).reshape(-1)
    if inside is not None:
        inside = inside.reshape(-1, 1).expand(-1, offsets.numel()).reshape(-1)
    return Windows(leading, trailing, rows, inside)


def _whole_ends(sizes: Sequence[int], window: Sequence[int]) -> tuple[int, int]:
    """How many leading and how many trailing dimensions the window spans whole."""
    partial = [d for d, (w, n) in enumerate(zip(window, sizes, strict=True)) if w != n]
    return (partial[0], len(sizes) - 1 - partial[-1]) if partial else (0, len(sizes))


# --------------------------------------------------------------------------------------------- gather


@fresh
def take(operand: torch.Tensor, indices: torch.Tensor, dimension: int) -> torch.Tensor:
    """The operand's slices at `indices` (clamped) along a dimension, which the dimensions of `indices` replace."""
    at = indices.clamp(0, operand.shape[dimension] - 1)
    at = at if at.dtype in (torch.int32, torch.int64) else at.to(torch.int64)
    # Along other dimensions than the first torch is several times faster with floats of 32 bits than with any other type.
    as_floats = dimension and operand.dtype is torch.int32 and not torch.compiler.is_compiling()
    taken = (operand.view(torch.float32) if as_floats else operand).index_select(dimension, at.reshape(-1))
    taken = taken.view(torch.int32) if as_floats else taken
    shape = operand.shape[:dimension] + indices.shape + operand.shape[dimension + 1:]
    return taken if indices.dim() == 1 else taken.reshape(shape)


@fresh
def gather(operand: torch.Tensor, indices: torch.Tensor, *, offset_dims: Sequence[int], collapsed_slice_dims: Sequence[int],
           start_index_map: Sequence[int], index_vector_dim: int, slice_sizes: Sequence[int],
           operand_batching_dims: Sequence[int] = (), start_indices_batching_dims: Sequence[int] = ()) -> torch.Tensor:
    """XLA's gather; the attributes are HLO's."""
    sizes = operand.shape
    along = dimension_along(
        sizes, indices.shape, offset_dims=offset_dims, collapsed_slice_dims=collapsed_slice_dims, start_index_map=start_index_map,
        index_vector_dim=index_vector_dim, slice_sizes=slice_sizes, operand_batching_dims=operand_batching_dims,
        start_indices_batching_dims=start_indices_batching_dims)
    if along is not None:
        return elements_along(operand, along, indices.squeeze(-1))
    window = [min(w, n) for w, n in zip(slice_sizes, sizes, strict=True)]
    batching = tuple(zip(operand_batching_dims, start_indices_batching_dims, strict=True))
    dropped = (*collapsed_slice_dims, *operand_batching_dims)

    def in_torch() -> torch.Tensor:
        if len(sizes) == len(start_index_map) > 1 and not offset_dims and not _is_tiny_float(operand.dtype):
            vectors = indices.movedim(index_vector_dim, -1).to(torch.int64).unbind(-1)
            at = {d: v.clamp(0, sizes[d] - 1) for d, v in zip(start_index_map, vectors, strict=True)}
            return operand[tuple([at[d] for d in range(len(sizes))])]
        found = _windows(sizes, window, indices, index_vector_dim, start_index_map, batching, clamp=True)
        of_points = [n for d, n in enumerate(indices.shape) if d != index_vector_dim]
        return _taken(operand, found, window, of_points, dropped, offset_dims)

    return points.gather(operand, indices, window=tuple(window), index_vector_dim=index_vector_dim,
                         start_index_map=tuple(start_index_map), collapsed=dropped, offset_dims=tuple(offset_dims),
                         batching=batching, in_torch=in_torch)


def _taken(operand: torch.Tensor, found: Windows, window: Sequence[int], points: Sequence[int], dropped: Sequence[int],
           offset_dims: Sequence[int]) -> torch.Tensor:
    """A gather's windows, of which it has found the rows."""
    flat, middle = found.flat(operand)
    taken = flat.index_select(middle, found.rows)

    # The dimensions of what was taken: the windows' leading ones, the points, the windows' others; dropped ones left out.
    kept = [d for d in range(operand.dim()) if d not in dropped]
    lead = sum(d < found.leading for d in kept)
    shape = [window[d] for d in kept[:lead]] + list(points) + [window[d] for d in kept[lead:]]
    offsets = list(offset_dims)
    batch = [d for d in range(len(shape)) if d not in offsets]
    order = offsets[:lead] + batch + offsets[lead:]
    taken = taken.reshape(shape)
    return taken if order == sorted(order) else taken.permute([order.index(d) for d in range(len(order))])


# --------------------------------------------------------------------------------------------- scatter

_REDUCTIONS = {ReducerKind.MULTIPLY: "prod", ReducerKind.MINIMUM: "amin", ReducerKind.MAXIMUM: "amax"}
COMBINERS = frozenset({ReducerKind.ADD, ReducerKind.SUBTRACT, ReducerKind.SECOND, *_REDUCTIONS})
"""What `scatter` can do: add, subtract, overwrite, multiply, min, max."""


class _Target(NamedTuple):
    """A scatter in its simplest form: `array` (written in place) takes, along `dimension`, each of `updates` at `rows`.
    `inside` marks the updates that count; None where all do."""

    array: torch.Tensor
    dimension: int
    rows: torch.Tensor
    updates: torch.Tensor
    inside: torch.Tensor | None

    def of_rows(self, mask: torch.Tensor) -> torch.Tensor:
        """One value for each row, shaped to broadcast against the updates."""
        shape = [1] * self.updates.dim()
        shape[self.dimension] = -1
        return mask.view(shape)


class ScatterDims(TypedDict):
    """HLO's attributes that say which dimension plays which part."""

    update_window_dims: Sequence[int]
    inserted_window_dims: Sequence[int]
    scatter_dims_to_operand_dims: Sequence[int]
    index_vector_dim: int
    input_batching_dims: NotRequired[Sequence[int]]
    scatter_indices_batching_dims: NotRequired[Sequence[int]]


@fresh
def scatter(operand: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor, combiner: ReducerKind,
            unique_indices: bool = False, **dims: Unpack[ScatterDims]) -> torch.Tensor:
    """XLA's scatter of one operand with one of `COMBINERS`.

    A window that is not wholly in bounds is dropped. Updates of one element are combined in row-major order of the
    indices (SECOND: the last one stays), except that sums and products on an accelerator come in any order. Those of half
    precision may be accumulated in single precision.
    """
    return scatter_(operand.clone(memory_format=torch.contiguous_format), indices, updates, combiner, unique_indices, **dims)


def scatter_(operand: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor, combiner: ReducerKind,
             unique_indices: bool = False, **dims: Unpack[ScatterDims]) -> torch.Tensor:
    """`scatter` in place (of an expanded operand: in a copy)."""
    if operand.numel() == 0 or updates.numel() == 0:
        return operand
    operand = _writable(operand)
    if not operand.is_contiguous():
        return operand.copy_(scatter_(operand.contiguous(), indices, updates, combiner, unique_indices, **dims))
    if _is_of_rows(operand, indices, updates, dims):
        rows.combine_(operand, indices, updates, combiner,
                      lambda: _scatter(operand, indices, updates, combiner, unique_indices, dims))
    else:
        _of_points(operand, indices, updates, combiner, dims,
                   lambda: _scatter(operand, indices, updates, combiner, unique_indices, dims))
    return operand


def _of_points(operand: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor, combiner: ReducerKind, dims: ScatterDims,
               in_torch: Callable[[], None]) -> None:
    """`scatter_` of windows that begin anywhere."""
    batching = tuple(zip(dims.get("input_batching_dims", ()), dims.get("scatter_indices_batching_dims", ()), strict=True))
    absent = {*dims["inserted_window_dims"], *(d for d, _ in batching)}
    kept = iter(dims["update_window_dims"])
    window_dims = tuple(-1 if d in absent else next(kept) for d in range(operand.dim()))
    window = tuple(1 if d < 0 else updates.shape[d] for d in window_dims)
    points.scatter_(operand, indices, updates, combiner, window=window, window_dims=window_dims,
                    index_vector_dim=dims["index_vector_dim"], indexed=tuple(dims["scatter_dims_to_operand_dims"]),
                    batching=batching, in_torch=in_torch)


def _is_of_rows(operand: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor, dims: ScatterDims) -> bool:
    """Whether each update is for all of a row (a place of the first dimension) and the index is that row's number."""
    windows = updates.dim() - (operand.dim() - 1)
    return (tuple(dims["scatter_dims_to_operand_dims"]) == tuple(dims["inserted_window_dims"]) == (0,)
            and not dims.get("input_batching_dims") and tuple(dims["update_window_dims"]) == tuple(range(windows, updates.dim()))
            and updates.shape[windows:] == operand.shape[1:])


def _scatter(operand: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor, combiner: ReducerKind, unique_indices: bool,
             dims: ScatterDims) -> None:
    """`scatter_` in torch, of a contiguous operand."""
    target = _target(operand, indices, updates, dims)
    if combiner == ReducerKind.SECOND:
        _overwrite(target, unique_indices or target.rows.numel() == 1)
    elif combiner in (ReducerKind.ADD, ReducerKind.SUBTRACT):
        _add(target, combiner == ReducerKind.SUBTRACT)
    elif operand.is_floating_point() and combiner != ReducerKind.MULTIPLY:
        _float_extreme(target, combiner)
    else:
        _reduce(target, combiner)


def scatter_by_rounds(region: Region, operands: Sequence[torch.Tensor], indices: torch.Tensor, updates: Sequence[torch.Tensor],
                      associative: bool = False, **dims: Unpack[ScatterDims]) -> tuple[torch.Tensor, ...]:
    """XLA's scatter with any combiner: round r applies, on whole arrays, the r-th update of each element.

    `region` takes the N current values, then the N updates, and returns the N new values. If it is `associative`, more than
    `tuning.MANY_UPDATES` updates of one element are first combined with each other, neighbours first, so that few rounds do.
    """
    results = [o.clone(memory_format=torch.contiguous_format) for o in operands]
    if results[0].numel() == 0 or updates[0].numel() == 0:
        return tuple(results)
    targets = [_target(result, indices, update, dims) for result, update in zip(results, updates, strict=True)]
    order, repeat = _repeats(targets[0].rows, targets[0].inside)
    if order.numel() == 0:
        return tuple(results)
    if associative and int(repeat.max()) >= tuning.MANY_UPDATES:
        targets = _combined(region, targets, order, repeat)
        rounds: Sequence[torch.Tensor] = [torch.arange(targets[0].rows.numel(), device=order.device)]
    else:
        repeat, by_repeat = torch.sort(repeat, stable=True)
        rounds = torch.split(order[by_repeat], torch.bincount(repeat).tolist())
    for chosen in rounds:
        rows = targets[0].rows[chosen]
        current = [t.array.index_select(t.dimension, rows) for t in targets]
        new = region(*current, *(t.updates.index_select(t.dimension, chosen) for t in targets))
        for target, now, value in zip(targets, current, new, strict=True):
            target.array.index_copy_(target.dimension, rows, value.to(now.dtype).expand_as(now))
    return tuple(results)


def _combined(region: Region, targets: list[_Target], order: torch.Tensor, repeat: torch.Tensor) -> list[_Target]:
    """The targets with one update for each row: in each step, of the updates of a row every second one joins the one before."""
    rows = targets[0].rows[order]
    updates = [t.updates.index_select(t.dimension, order) for t in targets]
    while bool(repeat.any()):
        first = (repeat % 2 == 0).nonzero().squeeze(1)
        second = (first + 1).clamp(max=repeat.numel() - 1)
        has_second = repeat[second] % 2 == 1
        rows, repeat = rows[first], repeat[first] // 2
        left, right = ([u.index_select(t.dimension, at) for t, u in zip(targets, updates, strict=True)] for at in (first, second))
        met = region(*left, *right)
        updates = [torch.where(t.of_rows(has_second), m, u) for t, m, u in zip(targets, met, left, strict=True)]
    return [t._replace(rows=rows, updates=u, inside=None) for t, u in zip(targets, updates, strict=True)]


def _target(operand: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor, dims: ScatterDims) -> _Target:
    """The scatter into a contiguous operand in its simplest form."""
    sizes, window_dims = operand.shape, dims["update_window_dims"]
    batching = tuple(zip(dims.get("input_batching_dims", ()), dims.get("scatter_indices_batching_dims", ()), strict=True))
    absent = {*dims["inserted_window_dims"], *(d for d, _ in batching)}
    kept = [d for d in range(len(sizes)) if d not in absent]
    window = [1] * len(sizes)
    for d, update_dim in zip(kept, window_dims, strict=True):
        window[d] = updates.shape[update_dim]
    found = _windows(sizes, window, indices, dims["index_vector_dim"], dims["scatter_dims_to_operand_dims"], batching,
                     clamp=False)
    flat, middle = found.flat(operand)

    lead = sum(d < found.leading for d in kept)
    points = [d for d in range(updates.dim()) if d not in window_dims]
    updates = updates.permute([*window_dims[:lead], *points, *window_dims[lead:]])
    shape = list(flat.shape)
    shape[middle] = found.rows.numel()
    target = _Target(flat, middle, found.rows, updates.reshape(shape), found.inside)
    return _without_outside(target) if found.inside is not None and on_host(found.inside) else target


def _without_outside(target: _Target) -> _Target:
    """The target with updates out of bounds taken away."""
    assert target.inside is not None
    if bool(target.inside.all()):
        return target._replace(inside=None)
    kept = target.inside.nonzero().squeeze(1)
    return target._replace(rows=target.rows[kept], updates=target.updates.index_select(target.dimension, kept), inside=None)


def _masked(target: _Target, neutral: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows and updates in which those out of bounds change nothing: they bring the neutral element to row 0."""
    if target.inside is None:
        return target.rows, target.updates
    return torch.where(target.inside, target.rows, 0), torch.where(target.of_rows(target.inside), target.updates, neutral)


def _overwrite(target: _Target, unique: bool) -> None:
    array, dimension, rows, updates, inside = target
    if unique and inside is None:
        array.index_copy_(dimension, rows, updates)
        return
    if inside is None and on_host(array):  # there, scatter_ goes through the updates in order (and index_copy_ does not)
        array.scatter_(dimension, target.of_rows(rows).expand_as(updates), updates)
        return
    # Where several updates meet, each of them writes the last one's value, so their order does not matter.
    numbers = torch.arange(rows.numel(), device=rows.device)
    if inside is not None:
        numbers = torch.where(inside, numbers, -1)
        rows = torch.where(inside, rows, 0)
    last = torch.full((array.shape[dimension],), -1, device=rows.device)
    last = last.scatter_reduce_(0, rows, numbers, "amax")[rows]
    values = updates.index_select(dimension, last.clamp(min=0))
    if inside is not None:
        values = torch.where(target.of_rows(last >= 0), values, array.index_select(dimension, rows))
    array.index_copy_(dimension, rows, values)


def _add(target: _Target, negated: bool) -> None:
    if target.array.is_complex():  # as pairs of floats, because torch's complex arithmetic loses signs of zeros
        target = target._replace(array=torch.view_as_real(target.array),
                                 updates=torch.view_as_real(target.updates.resolve_conj()))
    # What changes nothing, not even the sign of a zero: adding -0.0, subtracting 0.0.
    rows, values = _masked(target, -0.0 if target.array.is_floating_point() and not negated else 0)
    target.array.index_add_(target.dimension, rows, -values if negated else values)


def _reduce(target: _Target, combiner: ReducerKind) -> None:
    array = target.array
    if array.dtype is torch.bool:
        target = target._replace(array=array.view(torch.uint8), updates=target.updates.view(torch.uint8))
    neutral = 1
    if combiner != ReducerKind.MULTIPLY:
        limits = torch.iinfo(target.array.dtype)
        neutral = limits.max if combiner == ReducerKind.MINIMUM else limits.min
    rows, values = _masked(target, neutral)
    target.array.scatter_reduce_(target.dimension, target.of_rows(rows).expand_as(values), values, _REDUCTIONS[combiner])


def _float_extreme(target: _Target, combiner: ReducerKind) -> None:
    """Min or max of floats as of integers in the same order, in which -0 < +0 and a NaN beats everything."""
    floats = target.array
    bits = {16: torch.int16, 32: torch.int32, 64: torch.int64}[torch.finfo(floats.dtype).bits]
    limits = torch.iinfo(bits)
    nan_key = limits.max if combiner == ReducerKind.MAXIMUM else limits.min

    def key(x: torch.Tensor) -> torch.Tensor:
        raw = x.view(bits)
        return torch.where(x.isnan(), nan_key, raw ^ ((raw >> (limits.bits - 1)) & limits.max))

    keys = target._replace(array=key(floats), updates=key(target.updates.contiguous()))
    _reduce(keys, combiner)
    found = keys.array
    ordered = (found ^ ((found >> (limits.bits - 1)) & limits.max)).view(floats.dtype)
    floats.copy_(torch.where(found == nan_key, float("nan"), ordered))


def _repeats(rows: torch.Tensor, inside: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """The updates' positions in the order of their rows, and for each how many updates of its row come before it."""
    if inside is not None:
        kept = inside.nonzero().squeeze(1)
        order, repeat = _repeats(rows[kept], None)
        return kept[order], repeat
    ordered, order = torch.sort(rows, stable=True)
    place = torch.arange(rows.numel(), device=rows.device)
    starts = torch.ones_like(ordered, dtype=torch.bool)
    starts[1:] = ordered[1:] != ordered[:-1]
    return order, place - torch.cummax(torch.where(starts, place, 0), 0).values


IN_PLACE = {dynamic_update_slice: dynamic_update_slice_, scatter: scatter_}
"""Calls that copy their first operand, and what to call instead where nobody needs that operand any more."""
