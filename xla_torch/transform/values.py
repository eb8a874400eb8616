"""Values while a computation is rebuilt: an op, or for a tuple a list of values.

A list becomes a `tuple` instruction only where one is needed, so that rewriters never meet an element that is taken out of a
tuple just made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..core.shape import Shape
from ..functions.hlo_builder import Builder, XlaOp
from ..hlo import tree
from ..hlo.ir import Instruction
from ..hlo.structure import GET_TUPLE_ELEMENT, TUPLE

Value = XlaOp | list[Any]


def as_op(builder: Builder, value: Value) -> XlaOp:
    """The value as one op: a list becomes a `tuple` instruction."""
    if isinstance(value, XlaOp):
        return value
    return make_tuple(builder, [as_op(builder, v) for v in value])


def make_tuple(builder: Builder, elements: Sequence[XlaOp], name: str = TUPLE) -> XlaOp:
    """A `tuple` instruction; it may be empty."""
    shape = Shape.tuple([e.shape for e in elements])
    return builder.append(Instruction(TUPLE, shape, [e.instruction for e in elements], name=name))


def element(whole: XlaOp, index: int, name: str = GET_TUPLE_ELEMENT) -> XlaOp:
    """Element `index` of a tuple-shaped op."""
    shape = whole.shape.tuple_shapes[index]
    return whole.builder.append(Instruction(GET_TUPLE_ELEMENT, shape, [whole.instruction], {"index": index}, name))


def elements_of(op: XlaOp) -> Value:
    """The op, taken apart into a list where its shape is a tuple."""
    if not op.shape.is_tuple:
        return op
    return [elements_of(element(op, k)) for k in range(len(op.shape.tuple_shapes))]


def leaves(value: Any) -> Iterator[Any]:
    """The ops in a value, or what stands in their places (flags, ...), depth first."""
    if not isinstance(value, list):
        yield value
        return
    for part in value:
        yield from leaves(part)


def regrouped(flat: Iterable[Any], shape: Shape) -> Any:
    """Leaves as nested lists in the form of `shape`."""
    return tree.grouped(flat, shape, list)


def flat_shape(shape: Shape) -> Shape:
    """One tuple of the shape's leaves, without layouts."""
    return Shape.tuple([leaf.without_layout() for leaf in shape.leaves()])


def whole_of(value: Value) -> Instruction | None:
    """The tuple whose elements are all of a list, in their order; of an op itself. None where there is no such tuple."""
    if isinstance(value, XlaOp):
        return value.instruction
    parts = [whole_of(v) for v in value]
    wholes = {p.operands[0] if p is not None and p.is_element else None for p in parts}
    whole = wholes.pop() if len(wholes) == 1 else None
    numbers = [p.attributes["index"] for p in parts if p is not None] if whole is not None else []
    return whole if whole is not None and numbers == list(range(len(whole.shape.tuple_shapes))) else None
