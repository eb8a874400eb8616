"""Rules: work that is begun in one place and awaited in another.

StableHLO has each of these as one operation, which stands where the work begins; what awaits it takes the results. Only a `recv`
announces and does not wait, so that its operation stands where its `recv-done` is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...core.errors import UnsupportedError
from ...core.shape import Shape
from ...hlo.ir import Instruction
from ...hlo.regions import callee
from ...mlir.ir import Struct, Value
from ...opcodes import collective, control, internal, token
from .collective import GROUPS_AND_CHANNEL, gathered, permuted, reduced
from .control import element
from .scope import Scope, noted
from .writing_rules import Function, rule

_BEYOND_PROGRAM = {token.send: 2, token.recv: 3}
"""The type of a channel between the device and its host."""


def _begun(scope: Scope, instruction: Instruction, operands: Sequence[Value], results: Sequence[Value]) -> list[Value]:
    """What a start gives: its operands, the results, and contexts, which nobody reads."""
    contexts = list(instruction.shape.leaves())[len(operands) + len(results):]
    return [*operands, *results, *(v for c in contexts for v in _context(scope, c))]


def _context(scope: Scope, shape: Shape) -> list[Value]:
    if not shape.is_array:
        raise UnsupportedError("a context that is no array", got=shape)
    return scope.constant(np.zeros(shape.dimensions, shape.element_type.numpy), shape)


def _starts(write: Callable[[Scope, Instruction, Sequence[Value], Shape], Sequence[Value]]) -> Function:
    """The rule of a start whose result is the pair of operands and results, and contexts."""

    def begin(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
        return _begun(scope, instruction, operands, write(scope, instruction, operands, instruction.shape.tuple_shapes[1]))

    return begin


def _takes(index: int) -> Function:
    """The rule of what awaits: an element of what the start gave."""

    def take(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
        return element(instruction.operands[0].shape, operands, index)

    return take


rule(collective.all_gather_start, says=(*GROUPS_AND_CHANNEL, "dimensions"))(_starts(gathered))
rule(collective.collective_permute_start, says=("source_target_pairs", "channel_id"))(_starts(permuted))
rule(collective.all_gather_done, collective.collective_permute_done)(_takes(1))
rule(internal.copy_done)(_takes(0))
rule(control.async_done, says=("calls", "async_execution_thread"))(_takes(1))


@rule(collective.all_reduce_start, says=(*GROUPS_AND_CHANNEL, "to_apply", "mode"))
def all_reduce_start(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    return reduced(scope, instruction, operands, instruction.shape)


@rule(collective.all_reduce_done)
def all_reduce_done(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    return operands


@rule(internal.copy_start, says=("cross_program_prefetch_index",))
def copy_start(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    return _begun(scope, instruction, operands, operands)


@rule(control.async_start, says=("calls", "async_execution_thread", "output_to_operand_aliasing"))
def async_start(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    return _begun(scope, instruction, operands, scope.opened(callee(instruction), operands))


@rule(control.async_update, says=("calls", "async_execution_thread"))
def async_update(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    return operands


# ------------------------------------------------------------------------------------------- the host, and channels


@rule(token.infeed, says=("infeed_config",))
def infeed(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    return scope.add("stablehlo.infeed", operands, instruction.shape,
                     {"infeed_config": instruction.attributes.get("infeed_config", "")})


@rule(token.outfeed, says=("outfeed_config", "outfeed_shape"))
def outfeed(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    return scope.add("stablehlo.outfeed", operands, instruction.shape,
                     {"outfeed_config": instruction.attributes.get("outfeed_config", "")})


def _transfer(instruction: Instruction, opcode: str) -> dict[str, object]:
    host = bool(instruction.attributes.get("is_host_transfer"))
    handle = {"handle": instruction.attributes.get("channel_id", 0), "type": _BEYOND_PROGRAM[opcode] if host else 1}
    return {"channel_handle": Struct("stablehlo.channel_handle", handle), "is_host_transfer": host}


@rule(token.send, says=("channel_id", "is_host_transfer"))
def send(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    _, context, end = instruction.shape.tuple_shapes
    made = scope.add("stablehlo.send", operands, end, _transfer(instruction, token.send))
    return [operands[0], *_context(scope, context), *made]


@rule(token.send_done, says=("channel_id", "is_host_transfer"))
def send_done(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    return operands[2:]


@rule(token.recv, says=("channel_id", "is_host_transfer"))
def recv(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    """The token alone: there is nothing yet. (`Scope.written` lets nothing but a `recv-done` take it.)"""
    return operands


@rule(token.recv_done, says=("channel_id", "is_host_transfer"))
def recv_done(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    begun = instruction.operands[0]  # which says between whom
    return scope.add("stablehlo.recv", operands, instruction.shape, _transfer(begun, token.recv) | noted(begun))
