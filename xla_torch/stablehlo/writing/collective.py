"""Rules: what participants do together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core.errors import UnsupportedError
from ...core.shape import Shape
from ...core.types import S64
from ...hlo.ir import Instruction
from ...mlir.ir import Elements, Struct, Tensor, Value
from ...opcodes import collective
from ...opcodes.collective import group_mode
from ..collective import RAGGED_ALL_TO_ALL
from .scope import Scope, matrix, types_of
from .writing_rules import rule

GROUPS_AND_CHANNEL = ("replica_groups", "channel_id", "use_global_device_ids", "constrain_layout")
"""What nearly all say. Layouts that are kept are the compiler's matter."""

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


def _require_usual_mode(instruction: Instruction) -> None:
    """Raises UnsupportedError where ids are meant in another way than channel and kind of ids say."""
    given = instruction.attributes
    mode = given.get("mode")
    if mode not in (None, group_mode(given.get("channel_id"), bool(given.get("use_global_device_ids")))):
        raise UnsupportedError("StableHLO knows by the channel and the kind of ids what they mean", subject=instruction.subject,
                               got=f"mode={mode}")


def reduced(scope: Scope, instruction: Instruction, operands: Sequence[Value], shape: Shape) -> Sequence[Value]:
    _require_usual_mode(instruction)
    return scope.add("stablehlo.all_reduce", operands, shape, _attributes(instruction),
                     [scope.region(instruction.attributes["to_apply"])])


def gathered(scope: Scope, instruction: Instruction, operands: Sequence[Value], shape: Shape) -> Sequence[Value]:
    return scope.add("stablehlo.all_gather", operands, shape,
                     {"all_gather_dim": instruction.attributes["dimensions"][0], **_attributes(instruction)})


def permuted(scope: Scope, instruction: Instruction, operands: Sequence[Value], shape: Shape) -> Sequence[Value]:
    attributes = _attributes(instruction)
    del attributes["replica_groups"]
    pairs = matrix(instruction.attributes["source_target_pairs"])
    types = types_of(shape)
    if len(types) == 1:
        return scope.add("stablehlo.collective_permute", operands, shape, {"source_target_pairs": pairs, **attributes})
    return [v for o, s in zip(operands, shape.leaves(), strict=True)
            for v in scope.add("stablehlo.collective_permute", [o], s, {"source_target_pairs": pairs, **attributes})]


@rule(collective.all_reduce, says=(*GROUPS_AND_CHANNEL, "to_apply", "mode"))
def all_reduce(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    return reduced(scope, instruction, operands, instruction.shape)


@rule(collective.all_gather, says=(*GROUPS_AND_CHANNEL, "dimensions"))
def all_gather(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    return gathered(scope, instruction, operands, instruction.shape)


@rule(collective.collective_permute, says=("source_target_pairs", "channel_id"))
def collective_permute(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    return permuted(scope, instruction, operands, instruction.shape)


@rule(collective.reduce_scatter, says=(*GROUPS_AND_CHANNEL, "dimensions", "to_apply", "mode"))
def reduce_scatter(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    _require_usual_mode(instruction)
    return scope.add("stablehlo.reduce_scatter", operands, instruction.shape,
                     {"scatter_dimension": instruction.attributes["dimensions"][0], **_attributes(instruction)},
                     [scope.region(instruction.attributes["to_apply"])])


@rule(collective.all_to_all, says=("replica_groups", "channel_id", "dimensions", "constrain_layout"))
def all_to_all(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    dimensions = instruction.attributes.get("dimensions") or ()
    groups = instruction.attributes["replica_groups"].groups if "replica_groups" in instruction.attributes else ()
    if not dimensions:
        return _exchanged(scope, instruction, operands, groups or (range(len(operands)),))
    if not groups:
        raise UnsupportedError("StableHLO's exchange says between how many: an exchange without groups does not",
                               subject=instruction.subject, hint="replica_groups={{0,1,...}}")
    return scope.add("stablehlo.all_to_all", operands, instruction.shape, {
        "split_dimension": dimensions[0], "concat_dimension": dimensions[0], "split_count": len(groups[0]),
        **_attributes(instruction)})


def _exchanged(scope: Scope, instruction: Instruction, operands: Sequence[Value], groups: Sequence[Sequence[int]]) -> list[Value]:
    """An array for each member, as the rows of one array."""
    shape = instruction.operands[0].shape
    row, rows = (shape.with_dimensions([n, *shape.dimensions], [False, *shape.dynamic_flags]) for n in (1, len(operands)))
    if any(shape.dynamic_flags):
        raise UnsupportedError("an exchange of arrays whose sizes are not known", subject=instruction.subject, got=shape)
    each = [v for o in operands for v in scope.add("stablehlo.reshape", [o], row)]
    whole = scope.add("stablehlo.concatenate", each, rows, {"dimension": 0})
    made = scope.add("stablehlo.all_to_all", whole, rows, {
        **_attributes(instruction), "split_dimension": 0, "concat_dimension": 0, "split_count": len(operands),
        "replica_groups": _groups(groups)})
    found: list[Value] = []
    for k in range(len(operands)):
        limits = {"start_indices": (k, *(0 for _ in shape.dimensions)), "limit_indices": (k + 1, *shape.dimensions),
                  "strides": (1,) * (shape.rank + 1)}
        found += scope.add("stablehlo.reshape", scope.add("stablehlo.slice", made, row, limits), shape)
    return found


@rule(collective.ragged_all_to_all, says=("replica_groups", "channel_id", "dimensions"))
def ragged_all_to_all(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    """The custom call that JAX writes and XLA takes, whose reader fails where no channel is written, be it none."""
    given = instruction.attributes
    if given.get("dimensions"):
        raise UnsupportedError("a ragged exchange along a dimension is not written", subject=instruction.subject)
    config = {"replica_groups": _attributes(instruction)["replica_groups"], "channel_id": given.get("channel_id") or 0}
    return scope.add("stablehlo.custom_call", operands, instruction.shape, {
        "call_target_name": RAGGED_ALL_TO_ALL, "api_version": 4, "backend_config": config})


@rule(collective.collective_broadcast, says=("replica_groups", "channel_id", "has_dynamic_root"))
def collective_broadcast(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    return scope.add("stablehlo.collective_broadcast", operands, instruction.shape, _attributes(instruction))
