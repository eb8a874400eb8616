"""Who sends to whom, as a collective's attributes say it."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..core.participant_groups import GroupMode
from ..hlo.ir import Instruction
from ..opcodes import collective, token
from ..opcodes.collective import group_mode
from ..opcodes.token import source_target_pairs

_SETS = 64
"""Groups or pairs that are listed."""

_WITH_REPLICAS = (collective.all_gather, collective.all_gather_start, collective.all_reduce, collective.all_reduce_start,
                  collective.reduce_scatter)
"""Where a channel without global ids is between all partitions of replicas; elsewhere it is between partitions."""


class Senders(NamedTuple):
    """Sets of participants that exchange with each other, or pairs of who sends and who receives. `kind` says what the numbers
    are; where nobody is named there is one set of all. `more` were left out."""

    kind: str
    sets: list[list[int]]
    more: int


def senders(instruction: Instruction, replicas: int, partitions: int) -> Senders | None:
    """None for what exchanges nothing."""
    attributes = instruction.attributes
    if not instruction.schema.exchange:
        return _paired(instruction)
    mode = attributes.get("mode") or group_mode(
        attributes.get("channel_id"), bool(attributes.get("use_global_device_ids")),
        GroupMode.CROSS_BOTH if instruction.opcode in _WITH_REPLICAS else GroupMode.CROSS_PARTITION)
    if "source_target_pairs" in attributes:
        return _senders(f"from, to: {_numbers(mode)}", attributes["source_target_pairs"])
    if "replica_groups" not in instruction.schema.attributes:
        return None
    groups: Any = getattr(attributes.get("replica_groups"), "groups", ())
    count = {GroupMode.CROSS_PARTITION: partitions, GroupMode.FLATTENED: replicas * partitions}.get(mode, replicas)
    return _senders(f"among {_numbers(mode)}", groups or [range(count)])


def _paired(instruction: Instruction) -> Senders | None:
    if instruction.opcode not in (token.send, token.recv) or not (pairs := source_target_pairs(instruction)):
        return None
    return _senders("from, to: participants", pairs)


def _numbers(mode: GroupMode) -> str:
    return {GroupMode.CROSS_REPLICA: "replicas, for each partition", GroupMode.CROSS_PARTITION: "partitions, for each replica",
            GroupMode.CROSS_BOTH: "replicas with all their partitions", GroupMode.FLATTENED: "participants"}[mode]


def _senders(kind: str, sets: Any) -> Senders:
    found = [[int(number) for number in each] for each in sets]
    return Senders(kind, found[:_SETS], max(len(found) - _SETS, 0))
