"""Kernels of the collective family. Each asks the current participant to exchange, then computes its own result."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch

from ...distributed import participants
from ...errors import ExecutionError

Groups = Sequence[Sequence[int]]
Reducer = str | Callable[[torch.Tensor, torch.Tensor], Sequence[torch.Tensor]]
"""The name of a reducer that torch has a function for, or the region as a function that returns a tuple of one."""

_REDUCERS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add": torch.add, "multiply": torch.mul, "minimum": torch.minimum, "maximum": torch.maximum,
    "and": torch.bitwise_and, "or": torch.bitwise_or, "xor": torch.bitwise_xor,
}


def replica_id(device: torch.device) -> torch.Tensor:
    """This participant's replica as a u32 scalar."""
    return torch.tensor(participants.current().replica_id, dtype=torch.int32, device=device)


def partition_id(device: torch.device) -> torch.Tensor:
    """This participant's partition as a u32 scalar."""
    return torch.tensor(participants.current().partition_id, dtype=torch.int32, device=device)


def _own_group(groups: Groups, mode: str, size: int = 0) -> tuple[int, ...]:
    """The current participant's group, which must exist and, where given, have this size."""
    me = participants.current()
    group = me.group(groups, mode)
    if group is None:
        raise ExecutionError(f"participant {me.number} is in no replica group", got=[list(g) for g in groups],
                             expected="groups that name every participant once")
    if size and len(group) != size:
        raise ExecutionError("the result shape does not fit the number of participants",
                             got=f"{len(group)} in the group", expected=f"{size}",
                             hint="run the program with run_replicas(..., num_replicas=, num_partitions=)")
    return group


def all_gather(operand: torch.Tensor, dim: int, shards: int, groups: Groups, mode: str) -> torch.Tensor:
    """The group's operands one after another along `dim`."""
    return torch.cat(participants.current().exchange(_own_group(groups, mode, shards), operand), dim)


def all_reduce(operand: torch.Tensor, reducer: Reducer, groups: Groups, mode: str) -> torch.Tensor:
    """The group's operands reduced, in the group's order."""
    return _reduced(participants.current().exchange(_own_group(groups, mode), operand), reducer)


def _reduced(parts: Sequence[torch.Tensor], reducer: Reducer) -> torch.Tensor:
    # The result of a lone participant must not be its operand: that may be overwritten.
    if len(parts) == 1:
        return parts[0].clone()
    if isinstance(reducer, str):
        return functools.reduce(_REDUCERS[reducer], parts)
    return functools.reduce(lambda left, right: reducer(left, right)[0], parts)


def reduce_to_first(operand: torch.Tensor, reducer: Reducer, groups: Groups, mode: str) -> torch.Tensor:
    """The group's operands reduced for its first member; zeros for all others."""
    me = participants.current()
    group = me.group(groups, mode)
    if group is None:
        return torch.zeros_like(operand)
    parts = me.exchange(group, operand)
    return _reduced(parts, reducer) if group[0] == me.number else torch.zeros_like(operand)


def reduce_scatter(operand: torch.Tensor, reducer: Reducer, dim: int, shards: int, groups: Groups, mode: str) -> torch.Tensor:
    """This participant's shard, along `dim`, of the group's operands reduced."""
    me = participants.current()
    group = _own_group(groups, mode, shards)
    width, place = operand.shape[dim] // shards, group.index(me.number)
    parts = me.exchange(group, operand)
    return _reduced([part.narrow(dim, place * width, width) for part in parts], reducer).contiguous()


def all_to_all(operand: torch.Tensor, dim: int, groups: Groups, mode: str) -> torch.Tensor:
    """Block i of the operand along `dim` goes to member i; what comes is put one after another along `dim`."""
    me = participants.current()
    group = _own_group(groups, mode)
    if operand.shape[dim] % len(group):
        raise ExecutionError("the split dimension is no multiple of the group's size",
                             got=f"{operand.shape[dim]} in {len(group)}", expected="a multiple")
    width, place = operand.shape[dim] // len(group), group.index(me.number)
    return torch.cat([part.narrow(dim, place * width, width) for part in me.exchange(group, operand)], dim)


def all_to_all_tuple(operands: Sequence[torch.Tensor], groups: Groups, mode: str) -> tuple[torch.Tensor, ...]:
    """Operand i goes to member i; result i came from member i."""
    me = participants.current()
    group = _own_group(groups, mode, len(operands))
    place = group.index(me.number)
    return tuple(part[place].clone() for part in me.exchange(group, tuple(operands)))


def broadcast(operand: torch.Tensor, groups: Groups, mode: str) -> torch.Tensor:
    """The operand of the group's first member; zeros for a participant in no group."""
    me = participants.current()
    group = me.group(groups, mode)
    return torch.zeros_like(operand) if group is None else me.exchange(group, operand)[0].clone()


def permute(operand: torch.Tensor, pairs: Sequence[tuple[int, int]], mode: str) -> torch.Tensor:
    """What the source of the pair with this participant as target gave; zeros where there is none."""
    me = participants.current()
    everybody = _own_group((), mode)
    own = me.group([[i] for i in range(len(everybody))], mode)
    assert own is not None
    place = everybody.index(own[0])
    for pair in pairs:
        if not all(0 <= i < len(everybody) for i in pair):
            raise ExecutionError("a source-target pair names a participant that does not exist", got=list(pair),
                                 expected=f"numbers from 0 to {len(everybody) - 1}",
                                 hint="run the program with run_replicas(..., num_replicas=, num_partitions=)")
    source = next((source for source, target in pairs if target == place), None)
    parts = me.exchange(everybody, operand)
    return torch.zeros_like(operand) if source is None else parts[source].clone()


def ragged_all_to_all(operand: torch.Tensor, output: torch.Tensor, input_offsets: torch.Tensor, send_sizes: torch.Tensor,
                      output_offsets: torch.Tensor, groups: Groups, mode: str) -> torch.Tensor:
    """Rows ``[input_offsets[i] : +send_sizes[i]]`` of the operand are written at ``output_offsets[i]`` of member i's output.

    Offsets and sizes are [members] or [members, updates]. Nothing is read back from the device: every row of the output
    finds its source by comparison.
    """
    me = participants.current()
    group = _own_group(groups, mode, input_offsets.shape[0])
    place = group.index(me.number)
    rows = torch.arange(output.shape[0], device=output.device)
    result = output
    for given, *plan in me.exchange(group, (operand, input_offsets, send_sizes, output_offsets)):
        for start, size, target in zip(*(p[place].reshape(-1).unbind() for p in plan), strict=True):
            offset = rows - target
            taken = given.index_select(0, (offset + start).clamp(0, max(given.shape[0] - 1, 0)))
            mask = ((offset >= 0) & (offset < size)).reshape(-1, *[1] * (output.dim() - 1))
            result = torch.where(mask, taken, result)
    return result.clone() if result is output else result
