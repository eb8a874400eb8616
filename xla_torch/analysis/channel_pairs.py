"""Channel pairs: a send of a program and the recv of the same channel in the same program, which every participant runs, so
that values go from one participant to another."""

from __future__ import annotations

import dataclasses

from ..hlo.ir import Computation, Instruction, reachable
from ..opcodes import token
from ..opcodes.token import source_target_pairs


@dataclasses.dataclass(frozen=True, slots=True)
class ChannelPair:
    """One channel of a computation, between devices: its ends, of which one may stand in another program, and a number that
    no other channel has, for what a derivative sends beside its values or back."""

    send: Instruction | None
    done: Instruction | None
    """The recv-done, whose result is what was sent."""
    number: int

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Who sends to whom; empty where the program does not say."""
        end = self.send or self.done
        assert end is not None
        return source_target_pairs(end)


def channel_pairs(computation: Computation) -> list[ChannelPair]:
    """The channels between devices that have an end in a computation, in the order of their sends."""
    sends = [i for i in computation.instructions if i.opcode == token.send and not i.attributes.get("is_host_transfer")]
    dones = [i for i in computation.instructions if i.opcode == token.recv_done and not i.attributes.get("is_host_transfer")]
    if not sends and not dones:
        return []
    first = 1 + max(i.attributes.get("channel_id") or 0 for c in reachable([computation]) for i in c.instructions)
    ends: list[tuple[Instruction | None, Instruction | None]] = []
    for send in sends:
        done = next((d for d in dones if _name(d) == _name(send)), None)
        if done is not None:
            dones.remove(done)
        ends.append((send, done))
    ends += [(None, done) for done in dones]
    return [ChannelPair(send, done, first + k) for k, (send, done) in enumerate(ends)]


def _name(end: Instruction) -> object:
    return end.attributes.get("channel_id", 0), source_target_pairs(end)
