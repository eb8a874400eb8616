"""Channels in derivatives. Nothing in a program says that what a recv gives depends on what a send took: `activity` adds that.

Walking back, a cotangent takes the value's way back: where the value was received it is sent, to the participant that sent
the value, and there it is received. So a pipeline, each of whose participants works on what the one before it sent, is
walked back from the last participant to the first. In forward mode tangents are sent beside values. Both are on channels of
their own. What comes from the host is constant, and what goes there has no cotangent.
"""

from __future__ import annotations

from collections.abc import Sequence

from grad_rules._calculus import zeros

from .. import ops
from ..builder import XlaBuilder, XlaOp
from ..errors import DifferentiationError
from ..hlo.ir import Instruction
from ..shape import Shape
from ..transform.channels import Way
from ..types import U32
from .activity import Control, Flags, any_of, control
from .engine import Cotangent, Tape, add

_PAIRS = "_xla_send_recv_source_target_pairs"


def passed_on(builder: XlaBuilder, value: XlaOp, way: Way, back: bool = False) -> XlaOp:
    """Send a value along a way, on the way's own number; the token of that."""
    attributes, common = _described(way, back)
    sent = builder.add("send", [value, ops.CreateToken(builder)], attributes, common=common)
    return builder.add("send-done", [sent], attributes, common=common)


def received(builder: XlaBuilder, shape: Shape, way: Way, back: bool = False) -> XlaOp:
    """What was sent so."""
    attributes, common = _described(way, back)
    whole = Shape.tuple([shape.without_layout(), Shape(U32), Shape.token()])
    begun = builder.add("recv", [ops.CreateToken(builder)], attributes, whole, common=common)
    return ops.GetTupleElement(builder.add("recv-done", [begun], attributes, common=common), 0)


def _described(way: Way, back: bool) -> tuple[dict[str, int], dict[str, dict[str, str]] | None]:
    pairs = [(target, source) if back else (source, target) for source, target in way.pairs]
    written = "{" + ",".join(f"{{{source},{target}}}" for source, target in pairs) + "}"
    return {"channel_id": way.number}, {"frontend_attributes": {_PAIRS: written}} if pairs else None


def whole_way(ways: Sequence[Way], end: Instruction) -> Way:
    """The way with this end. Raises DifferentiationError where its other end is in no sight."""
    way = next(w for w in ways if end in (w.send, w.done))
    if way.send is None or way.done is None:
        raise DifferentiationError(
            "the other end of this channel is not in this program, so its derivative has no way there", subject=end.subject,
            where=end.where, got=f"channel {end.attributes.get('channel_id', 0)}",
            expected="a send and a recv of one channel, in a program that every participant runs",
            hint="cut the program at the channel: what is received is a parameter, what is sent a result")
    return way


@control("send")
class _Send(Control):
    """(what is sent, a context, a token)."""

    def active(self, instruction: Instruction, operands: list[Flags]) -> Flags:
        return any_of(operands[0]), False, False

    def demand(self, instruction: Instruction, wanted: Flags, operands: list[Flags]) -> list[Flags]:
        return [any_of(wanted), False]

    def incoming(self, tape: Tape, instruction: Instruction, ct: Cotangent) -> Cotangent:
        if not tape.facts.is_sent(instruction):
            return ct
        there = received(tape.builder, instruction.operands[0].shape, whole_way(tape.facts.ways, instruction), back=True)
        return add(ct, (there, None, None))

    def backward(self, tape: Tape, instruction: Instruction, ct: Cotangent) -> Sequence[Cotangent]:
        assert isinstance(ct, tuple)
        return ct[0], None


@control("recv-done")
class _Received(Control):
    """(what was received, a token)."""

    def active(self, instruction: Instruction, operands: list[Flags]) -> Flags:
        return False, False

    def demand(self, instruction: Instruction, wanted: Flags, operands: list[Flags]) -> list[Flags]:
        return [False]

    def incoming(self, tape: Tape, instruction: Instruction, ct: Cotangent) -> Cotangent:
        """Zeros where there is none: the other end waits."""
        (value, _) = ct if isinstance(ct, tuple) else (None, None)
        if value is None and any_of(tape.facts.demanded.get(instruction, False)):
            received_here = tape.values[instruction]
            assert isinstance(received_here, list)
            return zeros(received_here[0]), None
        return ct

    def backward(self, tape: Tape, instruction: Instruction, ct: Cotangent) -> Sequence[Cotangent]:
        assert isinstance(ct, tuple)
        tape.kept.append(passed_on(tape.builder, ct[0], whole_way(tape.facts.ways, instruction), back=True))
        return [None]
