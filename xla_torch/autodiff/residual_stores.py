"""Residual stores: where a loop keeps what the way back reads, one row for each iteration, written forwards and read backwards.

`Arrays` are ``[most iterations, ...]``, plain HLO. `Stacks` grow: they are for loops that nobody knows the length of.
"""

from __future__ import annotations

import dataclasses
from typing import Protocol

from grad_rules import _stacks as stacks
from grad_rules._calculus import nothing

from .. import functions as ops
from ..core.shape import Shape
from ..functions.hlo_builder import Builder, XlaOp


class ResidualStore(Protocol):
    """How the rows of each value are kept in a carry of both loops."""

    def empty(self, builder: Builder, shape: Shape) -> XlaOp:
        """A store for values of this shape."""
        ...

    def write(self, store: XlaOp, value: XlaOp, row: XlaOp) -> XlaOp:
        """The store with the value of iteration `row`, the next one."""
        ...

    def read(self, store: XlaOp, shape: Shape, row: XlaOp) -> tuple[XlaOp, XlaOp]:
        """The value of iteration `row`, the last one that was not read, and the store for the others."""
        ...


@dataclasses.dataclass(frozen=True)
class Arrays:
    """Arrays of `count` rows."""

    count: int

    def empty(self, builder: Builder, shape: Shape) -> XlaOp:
        return ops.Broadcast(builder.constant(nothing(shape.element_type), shape.element_type), [self.count, *shape.dimensions])

    def write(self, store: XlaOp, value: XlaOp, row: XlaOp) -> XlaOp:
        return ops.DynamicUpdateSlice(store, ops.Reshape(value, [1, *value.shape.dimensions]), _row_start(store, row))

    def read(self, store: XlaOp, shape: Shape, row: XlaOp) -> tuple[XlaOp, XlaOp]:
        cut = ops.DynamicSlice(store, _row_start(store, row), [1, *shape.dimensions])
        return ops.Reshape(cut, shape.dimensions), store


class Stacks:
    """What is written last is read first, so that the row needs no number."""

    def empty(self, builder: Builder, shape: Shape) -> XlaOp:
        return stacks.new(builder, shape)

    def write(self, store: XlaOp, value: XlaOp, row: XlaOp) -> XlaOp:
        return stacks.push(store, value)

    def read(self, store: XlaOp, shape: Shape, row: XlaOp) -> tuple[XlaOp, XlaOp]:
        return stacks.pop(store)


def _row_start(store: XlaOp, row: XlaOp) -> list[XlaOp]:
    zero = row.builder.constant(0, row.element_type)
    return [row, *[zero] * (store.shape.rank - 1)]
