"""Kernels of the collective family. Each says what its group exchanges and leaves the rest to the current participant.

`site` is the instruction and its channel, for errors. Where something else is to be computed meanwhile, the lowering calls
`begin` with a kernel's name and arguments, and `wait`; until then nobody may write to the operands.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...distributed import participants
from ...distributed.exchanges import (
    AllGather,
    AllReduce,
    AllToAll,
    AllToAllTuple,
    Permute,
    Pieces,
    Plans,
    Reducer,
    ReduceScatter,
    ReduceToFirst,
)
from ...distributed.participants import NOWHERE, Done, Exchange, Groups, Pending, Site
from ...errors import ExecutionError
from .indexing import dynamic_slice, dynamic_update_slice_
from .marks import fresh, fresh_tuple

_HINT = "run the program with as many participants as it is made for: run_replicas(..., num_replicas=, num_partitions=)"


def replica_id(device: torch.device) -> torch.Tensor:
    """This participant's replica as a u32 scalar."""
    return torch.full((), participants.current().replica_id, dtype=torch.int32, device=device)


def partition_id(device: torch.device) -> torch.Tensor:
    """This participant's partition as a u32 scalar."""
    return torch.full((), participants.current().partition_id, dtype=torch.int32, device=device)


def _own_group(groups: Groups, mode: str, site: Site, size: int = 0) -> tuple[int, ...]:
    """The current participant's group, which must exist and, where given, have this size."""
    me = participants.current()
    group = me.group(groups, mode)
    if group is None:
        raise ExecutionError(f"participant {me.number} is in no replica group", subject=site[0], got=[list(g) for g in groups],
                             expected="groups that name every participant once")
    if size and len(group) != size:
        raise ExecutionError("the result shape does not fit the number of participants", subject=site[0],
                             got=f"{len(group)} in the group", expected=f"{size}", hint=_HINT)
    return group


_PLANS: dict[str, Callable[..., Exchange | Done]] = {}


def _exchange(function: Callable[..., Exchange | Done]) -> Callable[..., Any]:
    """A kernel out of the function that says what is exchanged: it also waits for the result."""
    _PLANS[function.__name__] = function

    @functools.wraps(function)
    def kernel(*arguments: Any) -> Any:
        planned = function(*arguments)
        return planned.result if isinstance(planned, Done) else participants.current().meet(planned)

    return kernel


def begin(name: str, *arguments: Any) -> Pending:
    """Begin the exchange of the kernel with this name."""
    planned = _PLANS[name](*arguments)
    return planned if isinstance(planned, Done) else participants.current().begin(planned)


def _moving(exchange: Exchange, narrow: str) -> Exchange:
    """An exchange that moves elements, of a type in a wider carrier if `narrow` names one."""
    exchange.narrow = narrow
    return exchange


@fresh
def wait(pending: Pending) -> torch.Tensor:
    """The result of an exchange that was begun."""
    return pending.wait()


@fresh_tuple
def wait_all(pending: Pending) -> tuple[torch.Tensor, ...]:
    """The results of an exchange of several that was begun."""
    return pending.wait()


@fresh
@_exchange
def all_gather(operand: torch.Tensor, dim: int, shards: int, groups: Groups, mode: str, site: Site = NOWHERE,
               narrow: str = "") -> Exchange:
    """The group's operands one after another along `dim`."""
    return _moving(AllGather(site, _own_group(groups, mode, site, shards), (operand,), dim), narrow)


@fresh
@_exchange
def all_reduce(operand: torch.Tensor, reducer: Reducer, groups: Groups, mode: str, site: Site = NOWHERE) -> Exchange:
    """The group's operands reduced, in the group's order where the reducer is a region."""
    return AllReduce(site, _own_group(groups, mode, site), (operand,), reducer)


@_exchange
def all_reduce_(operand: torch.Tensor, reducer: Reducer, groups: Groups, mode: str, site: Site = NOWHERE) -> Exchange:
    """`all_reduce` that may store the result in the operand's memory."""
    return AllReduce(site, _own_group(groups, mode, site), (operand,), reducer, overwrite=True)


@fresh
@_exchange
def reduce_to_first(operand: torch.Tensor, reducer: Reducer, groups: Groups, mode: str, site: Site = NOWHERE) -> Exchange | Done:
    """The group's operands reduced for its first member; zeros for all others."""
    group = participants.current().group(groups, mode)
    if group is None:
        return Done(torch.zeros_like(operand))
    return ReduceToFirst(site, group, (operand,), reducer)


@fresh
@_exchange
def reduce_scatter(operand: torch.Tensor, reducer: Reducer, dim: int, shards: int, groups: Groups, mode: str,
                   site: Site = NOWHERE) -> Exchange:
    """This participant's shard, along `dim`, of the group's operands reduced."""
    return ReduceScatter(site, _own_group(groups, mode, site, shards), (operand,), reducer, dim)


@fresh
@_exchange
def all_to_all(operand: torch.Tensor, dim: int, groups: Groups, mode: str, site: Site = NOWHERE, narrow: str = "") -> Exchange:
    """Block i of the operand along `dim` goes to member i; what comes is put one after another along `dim`."""
    group = _own_group(groups, mode, site)
    if operand.shape[dim] % len(group):
        raise ExecutionError("the split dimension is no multiple of the group's size", subject=site[0],
                             got=f"{operand.shape[dim]} in {len(group)}", expected="a multiple")
    return _moving(AllToAll(site, group, (operand,), dim), narrow)


@fresh_tuple
@_exchange
def all_to_all_tuple(operands: Sequence[torch.Tensor], groups: Groups, mode: str, site: Site = NOWHERE,
                     narrow: str = "") -> Exchange:
    """Operand i goes to member i; result i came from member i."""
    return _moving(AllToAllTuple(site, _own_group(groups, mode, site, len(operands)), tuple(operands)), narrow)


@fresh
@_exchange
def broadcast(operand: torch.Tensor, groups: Groups, mode: str, site: Site = NOWHERE, narrow: str = "") -> Exchange | Done:
    """The operand of the group's first member; zeros for a participant in no group."""
    group = participants.current().group(groups, mode)
    if group is None:
        return Done(torch.zeros_like(operand))
    return _moving(Permute(site, group, (operand,), (0,) * len(group)), narrow)


@fresh
@_exchange
def permute(operand: torch.Tensor, pairs: Sequence[tuple[int, int]], mode: str, site: Site = NOWHERE,
            narrow: str = "") -> Exchange:
    """What the source of the pair with this participant as target gave; zeros where there is none."""
    everybody, _ = _everybody(pairs, mode, site)
    sources = {target: source for source, target in pairs}
    return _moving(Permute(site, everybody, (operand,), tuple(sources.get(k, -1) for k in range(len(everybody)))), narrow)


def _everybody(pairs: Sequence[tuple[int, int]], mode: str, site: Site) -> tuple[tuple[int, ...], int]:
    """Whom the numbers in pairs count, and this participant's number. Raises ExecutionError for numbers of nobody."""
    everybody = _own_group((), mode, site)
    for pair in pairs:
        if not all(0 <= i < len(everybody) for i in pair):
            raise ExecutionError("a source-target pair names a participant that does not exist", subject=site[0],
                                 got=list(pair), expected=f"numbers from 0 to {len(everybody) - 1}", hint=_HINT)
    return everybody, everybody.index(participants.current().number)


@fresh
@_exchange
def permute_slices(operand: torch.Tensor, output: torch.Tensor, input_starts: Sequence[Sequence[torch.Tensor]],
                   output_starts: Sequence[Sequence[torch.Tensor]], sizes: Sequence[Sequence[int]],
                   pairs: Sequence[tuple[int, int]], turns: Sequence[tuple[int, int]], mode: str,
                   site: Site = NOWHERE) -> Exchange:
    """The output, in which slices of operands replace its own: for each pair with this participant as target, and its turn
    (i, j), slice i of the source's operand is written at output start j."""
    everybody, own = _everybody(pairs, mode, site)
    sent = tuple(dynamic_slice(operand, starts, size) for starts, size in zip(input_starts, sizes, strict=True))

    def written(values: Sequence[Any], place: int) -> torch.Tensor:
        result = output.clone(memory_format=torch.contiguous_format)
        for (source, target), (i, j) in zip(pairs, turns, strict=True):
            if target == place:
                result = dynamic_update_slice_(result, values[source][i], output_starts[j])
        return result

    def between(source: int, target: int) -> list[int]:
        return [i for pair, (i, _) in zip(pairs, turns, strict=True) if tuple(pair) == (source, target)]

    def put(_: Plans, pieces: list[list[torch.Tensor]]) -> torch.Tensor:
        return written([dict(zip(between(k, own), own_pieces, strict=True)) for k, own_pieces in enumerate(pieces)], own)

    return Pieces(site, everybody, sent, written, lambda _, k: [sent[i] for i in between(own, k)],
                  lambda _, k: [tuple(sizes[i]) for i in between(k, own)], put, "collective-permute of slices", tuple(pairs))


@fresh
@_exchange
def ragged_all_to_all(operand: torch.Tensor, output: torch.Tensor, input_offsets: torch.Tensor, send_sizes: torch.Tensor,
                      output_offsets: torch.Tensor, groups: Groups, mode: str, site: Site = NOWHERE) -> Exchange:
    """Rows ``[input_offsets[i] : +send_sizes[i]]`` of the operand are written at ``output_offsets[i]`` of member i's output.

    Offsets and sizes are [members] or [members, updates]. Nothing is read back from the device: every row of the output
    finds its source by comparison.
    """
    group = _own_group(groups, mode, site, input_offsets.shape[0])

    def written(values: Sequence[Any], place: int) -> torch.Tensor:
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

    own, sizes = group.index(participants.current().number), (operand.shape[0], output.shape[0])

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

    return Pieces(site, group, (operand, input_offsets, send_sizes, output_offsets), written, given, dims, put,
                  "ragged-all-to-all", planned=3)


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


IN_PLACE = {all_reduce: all_reduce_}
"""What may be called instead where the operand dies."""

SINGLE = frozenset({all_gather, all_reduce, reduce_to_first, reduce_scatter, all_to_all, broadcast, permute, permute_slices,
                    ragged_all_to_all})
"""The kernels that can be begun and return one tensor; `all_to_all_tuple` returns several."""
