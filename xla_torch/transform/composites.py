"""Composites (`hlo/composites.py`) in their two forms: calls, and custom calls where a program has no calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..hlo.composites import TARGET, decomposition, described, kernel_of
from ..hlo.ir import Computation, Instruction
from ..opcodes import control, internal


def as_custom_call(computation: Computation, operands: Sequence[Instruction], common: Mapping[str, Any]) -> Instruction:
    """A composite in canonical form: of a decomposition that is known to be something."""
    return Instruction(internal.custom_call, computation.root.shape.without_layout(), operands,
                       {"custom_call_target": TARGET, "called_computations": (computation,)}, computation.name, _described(
                           computation, common))


def as_call(instruction: Instruction, operands: Sequence[Instruction]) -> Instruction:
    """A composite in canonical form as a call."""
    return Instruction(control.call, instruction.shape, operands, call_attributes(decomposition(instruction)),
                       instruction.name, instruction.common, instruction.line, instruction.column)


def call_attributes(computation: Computation) -> dict[str, Any]:
    """The attributes of a call of a decomposition. XLA cannot make StableHLO of a call with ``is_composite`` and several results;
    such a call has the frontend attributes alone."""
    return {"to_apply": computation} | ({} if computation.root.shape.is_tuple else {"is_composite": True})


def _described(computation: Computation, common: Mapping[str, Any]) -> dict[str, Any]:
    """What is noted with an instruction, and what it is a composite of."""
    kernel = kernel_of(computation)
    assert kernel is not None
    return {**common, "frontend_attributes": {**common.get("frontend_attributes", {}), **described(kernel)}}
