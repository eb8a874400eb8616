"""Sends and receives in derivatives. Nothing in a program says that what a recv gives depends on what a send took: `activity`
adds that.

Walking back, a cotangent takes the value's way back: where the value was received it is sent, to the participant that sent
the value, and there it is received. So a pipeline, each of whose participants works on what the one before it sent, is
walked back from the last participant to the first. In forward mode tangents are sent beside values. Both are on channels of
their own. What comes from the host is constant, and what goes there has no cotangent.
"""

from __future__ import annotations

from collections.abc import Sequence

from grad_rules._calculus import zeros

from .. import functions as ops
from ..analysis.channel_pairs import ChannelPair
from ..core.errors import DifferentiationError
from ..core.shape import Shape
from ..core.types import U32
from ..functions.hlo_builder import Builder, XlaOp
from ..hlo.ir import Instruction
from ..opcodes import token
from ..transform.values import Value
from .cotangents import Cotangent, add, materialised
from .flags import Flags, any_of
from .structure import ForwardPass, ReversePass, Structural, Tangent, structure

_PAIRS = "_xla_send_recv_source_target_pairs"


def passed_on(builder: Builder, value: XlaOp, pair: ChannelPair, back: bool = False) -> XlaOp:
    """Send a value as the pair's own is sent, or back, on a channel of the pair's own number; the token of that."""
    attributes, common = _described(pair, back)
    sent = builder.add(token.send, [value, ops.CreateToken(builder)], attributes, common=common)
    return builder.add(token.send_done, [sent], attributes, common=common)


def received(builder: Builder, shape: Shape, pair: ChannelPair, back: bool = False) -> XlaOp:
    """What was sent so."""
    attributes, common = _described(pair, back)
    whole = Shape.tuple([shape.without_layout(), Shape(U32), Shape.token()])
    begun = builder.add(token.recv, [ops.CreateToken(builder)], attributes, whole, common=common)
    return ops.GetTupleElement(builder.add(token.recv_done, [begun], attributes, common=common), 0)


def _described(pair: ChannelPair, back: bool) -> tuple[dict[str, int], dict[str, dict[str, str]] | None]:
    pairs = [(target, source) if back else (source, target) for source, target in pair.pairs]
    written = "{" + ",".join(f"{{{source},{target}}}" for source, target in pairs) + "}"
    return {"channel_id": pair.number}, {"frontend_attributes": {_PAIRS: written}} if pairs else None


def whole_pair(pairs: Sequence[ChannelPair], end: Instruction) -> ChannelPair:
    """The pair with this end. Raises DifferentiationError where its other end is in no sight."""
    pair = next(p for p in pairs if end in (p.send, p.done))
    if pair.send is None or pair.done is None:
        raise DifferentiationError(
            "the other end of this channel is not in this program, so its gradient cannot be sent", subject=end.subject,
            where=end.where, got=f"channel {end.attributes.get('channel_id', 0)}",
            expected="a send and a recv of one channel, in a program that every participant runs",
            hint="cut the program at the channel: make the received value a parameter and the sent value a result")
    return pair


@structure(token.send)
class _Send(Structural):
    """(what is sent, a context, a token)."""

    def active(self, instruction: Instruction, operands: list[Flags]) -> Flags:
        return any_of(operands[0]), False, False

    def demand(self, instruction: Instruction, wanted: Flags, operands: list[Flags]) -> list[Flags]:
        return [any_of(wanted), False]

    def incoming(self, run: ReversePass, instruction: Instruction, ct: Cotangent) -> Cotangent:
        if not run.facts.is_sent(instruction):
            return ct
        there = received(run.builder, instruction.operands[0].shape, whole_pair(run.facts.pairs, instruction), back=True)
        return add(ct, (there, None, None))

    def backward(self, run: ReversePass, instruction: Instruction, ct: Cotangent) -> Sequence[Cotangent]:
        assert isinstance(ct, tuple)
        return ct[0], None

    def tangent(self, run: ForwardPass, instruction: Instruction, operands: list[Value],
                tangents: list[Tangent]) -> tuple[Value, Tangent]:
        value, pair = run.visit(instruction, operands, ()), whole_pair(run.pairs, instruction)
        sent = materialised(run.builder, tangents[0], instruction.operands[0].shape.without_layout())
        assert isinstance(sent, XlaOp)
        passed_on(run.builder, sent, pair)
        return value, (sent, None, None)


@structure(token.recv_done)
class _Received(Structural):
    """(what was received, a token)."""

    def active(self, instruction: Instruction, operands: list[Flags]) -> Flags:
        return False, False

    def demand(self, instruction: Instruction, wanted: Flags, operands: list[Flags]) -> list[Flags]:
        return [False]

    def incoming(self, run: ReversePass, instruction: Instruction, ct: Cotangent) -> Cotangent:
        """Zeros where there is none: the other end waits."""
        (value, _) = ct if isinstance(ct, tuple) else (None, None)
        if value is None and any_of(run.facts.demanded.get(instruction, False)):
            received_here = run.values[instruction]
            assert isinstance(received_here, list)
            return zeros(received_here[0]), None
        return ct

    def backward(self, run: ReversePass, instruction: Instruction, ct: Cotangent) -> Sequence[Cotangent]:
        assert isinstance(ct, tuple)
        sent = ct[0]
        assert isinstance(sent, XlaOp)
        run.kept.append(passed_on(run.builder, sent, whole_pair(run.facts.pairs, instruction), back=True))
        return [None]

    def tangent(self, run: ForwardPass, instruction: Instruction, operands: list[Value],
                tangents: list[Tangent]) -> tuple[Value, Tangent]:
        value, pair = run.visit(instruction, operands, ()), whole_pair(run.pairs, instruction)
        return value, (received(run.builder, instruction.shape.tuple_shapes[0], pair), None)
