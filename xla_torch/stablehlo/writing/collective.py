"""Rules: what participants do together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import UnsupportedError
from ...hlo.ir import Instruction
from ...mlir.ir import Elements, Struct, Tensor, Value
from ...opcodes import collective
from ...types import S64
from .scope import Scope, matrix
from .table import rule

_SAID = ("replica_groups", "channel_id", "use_global_device_ids")
_BETWEEN_DEVICES = 1


def _attributes(instruction: Instruction) -> dict[str, Any]:
    """Groups (shorter ones filled up with -1), channel, and how ids are meant."""
    given = instruction.attributes
    found: dict[str, Any] = {"replica_groups": _groups(given["replica_groups"].groups if "replica_groups" in given else ())}
    if given.get("channel_id"):
        found["channel_handle"] = Struct("stablehlo.channel_handle", {"handle": given["channel_id"], "type": _BETWEEN_DEVICES})
    if given.get("use_global_device_ids"):
        found["use_global_device_ids"] = True
    return found


def _groups(groups: Sequence[Sequence[int]]) -> Elements:
    width = max(map(len, groups), default=0)
    value = np.full((len(groups), width), -1, np.int64)
    for row, group in zip(value, groups, strict=True):
        row[:len(group)] = group
    return Elements(Tensor(value.shape, S64), value)


@rule(collective.all_reduce, says=(*_SAID, "to_apply"))
def all_reduce(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    return scope.add("stablehlo.all_reduce", operands, instruction.shape, _attributes(instruction),
                     [scope.region(instruction.attributes["to_apply"])])


@rule(collective.all_gather, says=(*_SAID, "dimensions"))
def all_gather(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    return scope.add("stablehlo.all_gather", operands, instruction.shape,
                     {"all_gather_dim": instruction.attributes["dimensions"][0], **_attributes(instruction)})


@rule(collective.reduce_scatter, says=(*_SAID, "dimensions", "to_apply"))
def reduce_scatter(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    return scope.add("stablehlo.reduce_scatter", operands, instruction.shape,
                     {"scatter_dimension": instruction.attributes["dimensions"][0], **_attributes(instruction)},
                     [scope.region(instruction.attributes["to_apply"])])


@rule(collective.all_to_all, says=("replica_groups", "channel_id", "dimensions"))
def all_to_all(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    dimensions = instruction.attributes.get("dimensions") or ()
    groups = instruction.attributes["replica_groups"].groups if "replica_groups" in instruction.attributes else ()
    if len(operands) != 1 or len(dimensions) != 1 or not groups:
        raise UnsupportedError("an exchange of several arrays, or without groups, is not written", subject=instruction.subject)
    return scope.add("stablehlo.all_to_all", operands, instruction.shape, {
        "split_dimension": dimensions[0], "concat_dimension": dimensions[0], "split_count": len(groups[0]),
        **_attributes(instruction)})


@rule(collective.collective_permute, says=("source_target_pairs", "channel_id"))
def collective_permute(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    attributes = _attributes(instruction)
    del attributes["replica_groups"]
    return scope.add("stablehlo.collective_permute", operands, instruction.shape,
                     {"source_target_pairs": matrix(instruction.attributes["source_target_pairs"]), **attributes})


@rule(collective.collective_broadcast, says=("replica_groups", "channel_id"))
def collective_broadcast(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    return scope.add("stablehlo.collective_broadcast", operands, instruction.shape, _attributes(instruction))
