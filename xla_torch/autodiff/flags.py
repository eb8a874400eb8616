"""Flags on values: which of their arrays depend on what is differentiated, or have a cotangent."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from typing import TypeAlias

from ..analysis.channel_pairs import ChannelPair
from ..core.shape import Shape
from ..hlo import tree
from ..hlo.ir import Instruction

Flags: TypeAlias = "bool | tuple[Flags, ...]"
"""One flag for an array, a tuple of flags for a tuple; one flag may stand for all parts of a tuple."""


def any_of(flags: Flags) -> bool:
    """Whether any array is flagged."""
    return any(map(any_of, flags)) if isinstance(flags, tuple) else flags


def broadcast_flags(shape: Shape, flags: Flags) -> Flags:
    """The flags in the form of the shape."""
    return tree.mapped(lambda _, flag: any_of(flag), shape, tree.filled(flags, shape))


def differentiable(shape: Shape, flags: Flags = True) -> Flags:
    """The flags in the form of the shape, cleared where the element type has no gradient."""
    return tree.mapped(lambda own, flag: any_of(flag) and own.element_type.is_differentiable, shape, tree.filled(flags, shape))


def either(a: Flags, b: Flags) -> Flags:
    """What one of both flags."""
    return tree.combined(operator.or_, a, b)


def both(a: Flags, b: Flags) -> Flags:
    """What both flag."""
    return tree.combined(operator.and_, a, b)


def flags_of(flags: Flags, count: int) -> tuple[Flags, ...]:
    """The flags of a tuple's elements."""
    return flags if isinstance(flags, tuple) else (flags,) * count


def present(tangent: object) -> Flags:
    """Which parts of a tangent or cotangent are not zero."""
    return tuple(map(present, tangent)) if isinstance(tangent, tuple) else tangent is not None


@dataclasses.dataclass(frozen=True, slots=True)
class Facts:
    """For each instruction: does it depend on what is differentiated, and is its cotangent asked for (only where it does)."""

    active: dict[Instruction, Flags]
    demanded: dict[Instruction, Flags]
    pairs: Sequence[ChannelPair]
    """The channels, along which values depend on each other, too."""

    def is_sent(self, send: Instruction) -> bool:
        """Whether a cotangent comes back along the channel of a send."""
        pair = next((p for p in self.pairs if p.send is send), None)
        if pair is None:  # to the host
            return False
        return any_of(self.active[send]) if pair.done is None else any_of(self.demanded.get(pair.done, False))
