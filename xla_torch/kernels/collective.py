"""Kernels of the collective family. Each says what its group exchanges and leaves the rest to the current participant.

`site` is the instruction and its channel, for errors. Where something else is to be computed meanwhile, the lowering calls the
kernel's twin that only begins the exchange (`BEGINS`) and later `wait`; until then nobody may write to the operands.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..core.errors import ExecutionError
from ..core.participant_groups import HINT_PARTICIPANTS, GroupMode, Groups
from ..core.types import PrimitiveType
from ..distributed.exchange import NOWHERE, Completed, Exchange, Future, Given, Result, Site
from ..distributed.exchanges import (
    AllGather,
    AllReduce,
    AllToAll,
    AllToAllTuple,
    AllToAllV,
    Permute,
    Plans,
    ReduceScatter,
    ReduceToFirst,
)
from ..distributed.participant import current_participant
from ..distributed.reductions import Reducer
from ..distributed.watched import WATCHERS, Watched
from .calls import fresh, fresh_tuple
from .indexing import dynamic_slice, dynamic_update_slice_


def replica_id(device: torch.device) -> torch.Tensor:
    """This participant's replica as a u32 scalar."""
    return torch.full((), current_participant().replica_id, dtype=torch.int32, device=device)


def partition_id(device: torch.device) -> torch.Tensor:
    """This participant's partition as a u32 scalar."""
    return torch.full((), current_participant().partition_id, dtype=torch.int32, device=device)


def _own_group(groups: Groups, mode: GroupMode, site: Site, size: int = 0) -> tuple[int, ...]:
    """The current participant's group, which must exist and, where given, have this size."""
    me = current_participant()
    group = me.group(groups, mode)
    if group is None:
        raise ExecutionError(f"participant {me.number} is in no replica group", subject=site[0], got=[list(g) for g in groups],
                             expected="groups that name every participant once")
    if size and len(group) != size:
        raise ExecutionError("the result shape does not fit the number of participants", subject=site[0],
                             got=f"{len(group)} in the group", expected=f"{size}", hint=HINT_PARTICIPANTS)
    return group


_Plan = Callable[..., Exchange | Completed]

BEGINS: dict[Callable[..., Result], Callable[..., Future]] = {}
"""For each kernel that exchanges, the one that only begins it and returns its future."""


def _kernel(plan: _Plan) -> Callable[..., Result]:
    """A kernel out of the function that says what is exchanged: it also waits for the result."""

    @functools.wraps(plan)
    def kernel(*arguments: Any) -> Result:
        planned = plan(*arguments)
        if isinstance(planned, Completed):
            return planned.result()
        me = current_participant()
        return Watched(me, planned).result() if WATCHERS else me.perform(planned)

    return kernel


def _beginning(kernel: Callable[..., Result]) -> Callable[..., Future]:
    """The kernel that begins the exchange which `kernel` performs. Its name in this module is ``begin_`` and the kernel's."""
    plan: _Plan = kernel.__wrapped__  # pyright: ignore[reportFunctionMemberAccess]

    def begin(*arguments: Any) -> Future:
        planned = plan(*arguments)
        if isinstance(planned, Completed):
            return planned
        me = current_participant()
        return Watched(me, planned) if WATCHERS else me.begin(planned)

    # Generated code calls it by this name, and finds it there after it was stored.
    begin.__name__ = begin.__qualname__ = f"begin_{plan.__name__}"
    begin.__doc__ = f"Begin the exchange of `{plan.__name__}`, without waiting for its result."
    BEGINS[kernel] = begin
    return begin


def _moving(exchange: Exchange, narrow: PrimitiveType | None) -> Exchange:
    """An exchange that only moves elements, of a narrow float in a wider storage dtype if `narrow` is one."""
    exchange.narrow_type = narrow
    return exchange


@fresh
def wait(future: Future) -> torch.Tensor:
    """The result of an exchange that was begun."""
    return future.result()


@fresh_tuple
def wait_all(future: Future) -> tuple[torch.Tensor, ...]:
    """The results of an exchange of several that was begun."""
    return future.result()


@fresh
@_kernel
def all_gather(operand: torch.Tensor, dim: int, shards: int, groups: Groups, mode: GroupMode, site: Site = NOWHERE,
               narrow: PrimitiveType | None = None) -> Exchange:
    """The group's operands one after another along `dim`."""
    return _moving(AllGather(site, _own_group(groups, mode, site, shards), (operand,), dim), narrow)


@fresh
@_kernel
def all_reduce(operand: torch.Tensor, reducer: Reducer, groups: Groups, mode: GroupMode, site: Site = NOWHERE) -> Exchange:
    """The group's operands reduced, in the group's order where the reducer is a region."""
    return AllReduce(site, _own_group(groups, mode, site), (operand,), reducer)


@_kernel
def all_reduce_(operand: torch.Tensor, reducer: Reducer, groups: Groups, mode: GroupMode, site: Site = NOWHERE) -> Exchange:
    """`all_reduce` that may store the result in the operand's memory."""
    return AllReduce(site, _own_group(groups, mode, site), (operand,), reducer, overwrite=True)


@fresh
@_kernel
def reduce_to_first(operand: torch.Tensor, reducer: Reducer, groups: Groups, mode: GroupMode,
                    site: Site = NOWHERE) -> Exchange | Completed:
    """The group's operands reduced for its first member; zeros for all others."""
    group = current_participant().group(groups, mode)
    if group is None:
        return Completed(torch.zeros_like(operand))
    return ReduceToFirst(site, group, (operand,), reducer)


@fresh
@_kernel
def reduce_scatter(operand: torch.Tensor, reducer: Reducer, dim: int, shards: int, groups: Groups, mode: GroupMode,
                   site: Site = NOWHERE) -> Exchange:
    """This participant's shard, along `dim`, of the group's operands reduced."""
    return ReduceScatter(site, _own_group(groups, mode, site, shards), (operand,), reducer, dim)


@fresh
@_kernel
def all_to_all(operand: torch.Tensor, dim: int, groups: Groups, mode: GroupMode, site: Site = NOWHERE,
               narrow: PrimitiveType | None = None) -> Exchange:
    """Block i of the operand along `dim` goes to member i; what comes is put one after another along `dim`."""
    group = _own_group(groups, mode, site)
    if operand.shape[dim] % len(group):
        raise ExecutionError("the split dimension is no multiple of the group's size", subject=site[0],
                             got=f"{operand.shape[dim]} in {len(group)}", expected="a multiple")
    return _moving(AllToAll(site, group, (operand,), dim), narrow)


@fresh_tuple
@_kernel
def all_to_all_tuple(operands: Sequence[torch.Tensor], groups: Groups, mode: GroupMode, site: Site = NOWHERE,
                     narrow: PrimitiveType | None = None) -> Exchange:
    """Operand i goes to member i; result i came from member i."""
    return _moving(AllToAllTuple(site, _own_group(groups, mode, site, len(operands)), tuple(operands)), narrow)


@fresh
@_kernel
def broadcast(operand: torch.Tensor, groups: Groups, mode: GroupMode, site: Site = NOWHERE,
              narrow: PrimitiveType | None = None) -> Exchange | Completed:
    """The operand of the group's first member; zeros for a participant in no group."""
    group = current_participant().group(groups, mode)
    if group is None:
        return Completed(torch.zeros_like(operand))
    return _moving(Permute(site, group, (operand,), (0,) * len(group)), narrow)


@fresh
@_kernel
def permute(operand: torch.Tensor, pairs: Sequence[tuple[int, int]], mode: GroupMode, site: Site = NOWHERE,
            narrow: PrimitiveType | None = None) -> Exchange:
    """What the source of the pair with this participant as target gave; zeros where there is none."""
    everybody, _ = _everybody(pairs, mode, site)
    sources = {target: source for source, target in pairs}
    return _moving(Permute(site, everybody, (operand,), tuple(sources.get(k, -1) for k in range(len(everybody)))), narrow)


def _everybody(pairs: Sequence[tuple[int, int]], mode: GroupMode, site: Site) -> tuple[tuple[int, ...], int]:
    """Whom the numbers in pairs count, and this participant's number. Raises ExecutionError for numbers of nobody."""
    everybody = _own_group((), mode, site)
    for pair in pairs:
        if not all(0 <= i < len(everybody) for i in pair):
            raise ExecutionError("a source-target pair names a participant that does not exist", subject=site[0],
                                 got=list(pair), expected=f"numbers from 0 to {len(everybody) - 1}", hint=HINT_PARTICIPANTS)
    return everybody, everybody.index(current_participant().number)


@fresh
@_kernel
def permute_slices(operand: torch.Tensor, output: torch.Tensor, input_starts: Sequence[Sequence[torch.Tensor]],
                   output_starts: Sequence[Sequence[torch.Tensor]], sizes: Sequence[Sequence[int]],
                   pairs: Sequence[tuple[int, int]], turns: Sequence[tuple[int, int]], mode: GroupMode,
                   site: Site = NOWHERE) -> Exchange:
    """The output, in which slices of operands replace its own: for each pair with this participant as target, and its turn
    (i, j), slice i of the source's operand is written at output start j."""
    everybody, own = _everybody(pairs, mode, site)
    sent = tuple(dynamic_slice(operand, starts, size) for starts, size in zip(input_starts, sizes, strict=True))

    def written(values: Sequence[Given] | Sequence[dict[int, torch.Tensor]], place: int) -> torch.Tensor:
        result = output.clone(memory_format=torch.contiguous_format)
        for (source, target), (i, j) in zip(pairs, turns, strict=True):
            if target == place:
                result = dynamic_update_slice_(result, values[source][i], output_starts[j])
        return result

    def between(source: int, target: int) -> list[int]:
        return [i for pair, (i, _) in zip(pairs, turns, strict=True) if tuple(pair) == (source, target)]

    def put(_: Plans, pieces: list[list[torch.Tensor]]) -> torch.Tensor:
        return written([dict(zip(between(k, own), own_pieces, strict=True)) for k, own_pieces in enumerate(pieces)], own)

    return AllToAllV(site, everybody, sent, written, lambda _, k: [sent[i] for i in between(own, k)],
                  lambda _, k: [tuple(sizes[i]) for i in between(k, own)], put, "of slices", tuple(pairs))


@fresh
@_kernel
def ragged_all_to_all(operand: torch.Tensor, output: torch.Tensor, input_offsets: torch.Tensor, send_sizes: torch.Tensor,
                      output_offsets: torch.Tensor, groups: Groups, mode: GroupMode, site: Site = NOWHERE) -> Exchange:
    """Rows ``[input_offsets[i] : +send_sizes[i]]`` of the operand are written at ``output_offsets[i]`` of member i's output.

    Offsets and sizes are [members] or [members, updates]. Nothing is read back from the device: every row of the output
    finds its source by comparison.
    """
    group = _own_group(groups, mode, site, input_offsets.shape[0])

    def written(values: Sequence[Given], place: int) -> torch.Tensor:
        rows = torch.arange(output.shape[0], device=output.device)
        result = output
        for given, *plan in values:
            if not given.shape[0]:
                continue
            for start, size, target in zip(*(p[place].reshape(-1).unbind() for p in plan), strict=True):
                offset = rows - target
                taken = given.index_select(0, (offset + start).clamp(0, given.shape[0] - 1))
                mask = ((offset >= 0) & (offset < size)).reshape(-1, *[1] * (output.dim() - 1))
                result = torch.where(mask, taken, result)
        return result.clone() if result is output else result

    own, sizes = group.index(current_participant().number), (operand.shape[0], output.shape[0])

    def given(plans: Plans, k: int) -> list[torch.Tensor]:
        return [_rows(operand, start, last - first) for start, first, last in _spans(plans[own], k, *sizes)]

    def dims(plans: Plans, k: int) -> list[tuple[int, ...]]:
        return [(last - first, *operand.shape[1:]) for _, first, last in _spans(plans[k], own, *sizes)]

    def put(plans: Plans, pieces: list[list[torch.Tensor]]) -> torch.Tensor:
        result = output.clone(memory_format=torch.contiguous_format)
        for plan, own_pieces in zip(plans, pieces, strict=True):
            for (_, first, last), piece in zip(_spans(plan, own, *sizes), own_pieces, strict=True):
                result[first:last] = piece
        return result

    return AllToAllV(site, group, (operand, input_offsets, send_sizes, output_offsets), written, given, dims, put,
                  "of ragged rows", planned=3)


def _spans(plan: Sequence[torch.Tensor], target: int, source_rows: int, target_rows: int) -> list[tuple[int, int, int]]:
    """For each piece that a member with this plan sends to a target: its first row, and the rows that it replaces, from the
    first to behind the last."""
    found = []
    for start, size, place in zip(*(p[target].reshape(-1).tolist() for p in plan), strict=True):
        first = max(place, 0)
        last = max(first, min(place + size, target_rows)) if source_rows else first
        found.append((start + first - place, first, last))
    return found


def _rows(operand: torch.Tensor, start: int, count: int) -> torch.Tensor:
    """So many rows of the operand from a start on, the first or last one for those that there are not."""
    if start >= 0 and start + count <= operand.shape[0]:
        return operand.narrow(0, start, count)
    rows = torch.arange(start, start + count, device=operand.device)
    return operand.index_select(0, rows.clamp(0, operand.shape[0] - 1))


# ------------------------------------------------------------------------------------------- several as one


@fresh
def joined(operands: Sequence[torch.Tensor], dims: Sequence[int], shards: int) -> torch.Tensor:
    """[shards, elements]: for each shard of the operands along their `dims` all elements, so that one exchange moves, or
    reduces, all operands as an exchange of each would."""
    return torch.cat([operand.unflatten(dim, (shards, -1)).movedim(dim, 0).reshape(shards, -1) if shards > 1
                      else operand.reshape(1, -1) for operand, dim in zip(operands, dims, strict=True)], 1)


@fresh_tuple
def parted(whole: torch.Tensor, shapes: Sequence[Sequence[int]], dims: Sequence[int]) -> tuple[torch.Tensor, ...]:
    """Arrays of these shapes out of [shards, elements] of all of them; shards stand one after another along their `dims`."""
    shards = whole.shape[0]
    parts = whole.split([math.prod(shape) // shards for shape in shapes], 1)
    return tuple(_of_shards(part, shape, dim).clone(memory_format=torch.contiguous_format)
                 for part, shape, dim in zip(parts, shapes, dims, strict=True))


def _of_shards(part: torch.Tensor, shape: Sequence[int], dim: int) -> torch.Tensor:
    shards = part.shape[0]
    if shards == 1:
        return part.reshape(tuple(shape))
    own = (*shape[:dim], shape[dim] // shards, *shape[dim + 1:])
    return part.reshape(shards, *own).movedim(0, dim).flatten(dim, dim + 1)


begin_all_gather = _beginning(all_gather)
begin_all_reduce = _beginning(all_reduce)
begin_all_reduce_ = _beginning(all_reduce_)
begin_reduce_to_first = _beginning(reduce_to_first)
begin_reduce_scatter = _beginning(reduce_scatter)
begin_all_to_all = _beginning(all_to_all)
begin_all_to_all_tuple = _beginning(all_to_all_tuple)
begin_broadcast = _beginning(broadcast)
begin_permute = _beginning(permute)
begin_permute_slices = _beginning(permute_slices)
begin_ragged_all_to_all = _beginning(ragged_all_to_all)

IN_PLACE = {all_reduce: all_reduce_}
"""What may be called instead where the operand dies."""

BEGUN_IN_PLACE = {begin_all_reduce: begin_all_reduce_}
"""What may be begun instead where the operand dies before the exchange is awaited."""
