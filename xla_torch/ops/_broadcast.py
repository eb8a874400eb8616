"""Implicit broadcast of the documented functions (rule B1): HLO has none, so broadcasts are inserted as XlaBuilder does.

Documents: operation semantics, "Element-wise binary arithmetic operations", and broadcasting.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ..builder import Liftable, XlaBuilder, XlaOp, lift
from ..errors import InvalidArgument, UnsupportedError
from ..opcodes.shapes import merge_size, require_arrays
from ..shape import UNBOUNDED, Shape
from ..types import same_type_ignoring_precision

Operand = XlaOp | Liftable
"""What the documented functions take: an op, or beside one a number or array, which becomes a constant of its type."""


def lift_operands(subject: str, *operands: Operand) -> tuple[XlaOp, ...]:
    """The operands as ops of one builder. Raises InvalidArgument where none is an op or an op is no array."""
    like = next((o for o in operands if isinstance(o, XlaOp)), None)
    if like is None:
        raise InvalidArgument("no operand is an XlaOp or a tensor", subject=subject,
                              got=", ".join(type(o).__name__ for o in operands), expected="at least one")
    lifted = tuple(lift(like.builder, o, like) for o in operands)
    try:
        require_arrays(*(o.shape for o in lifted))
    except InvalidArgument as error:
        raise error.located(subject=subject) from None
    return lifted


def broadcast_operands(subject: str, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int]) -> tuple[XlaOp, XlaOp]:
    """Both operands with the dimensions that rule B1 gives the result.

    Of different ranks, the lower-ranked operand is a scalar, or `broadcast_dimensions` says for each of its dimensions which
    dimension of the other it matches. Then dimensions of size 1 stretch. Raises InvalidArgument for operands of different
    element types and for shapes that do not fit.
    """
    lhs, rhs = lift_operands(subject, lhs, rhs)
    got = f"lhs {lhs.shape}, rhs {rhs.shape}"
    if not same_type_ignoring_precision(lhs.element_type, rhs.element_type):
        raise InvalidArgument("operands with different element types", subject=subject, got=got,
                              expected="equal element types", hint="convert one of them with ConvertElementType")
    dims = tuple(int(d) for d in broadcast_dimensions)
    if lhs.shape.dimensions == rhs.shape.dimensions and not dims:
        return lhs, rhs
    left, right = _place(subject, lhs.shape, rhs.shape, dims, got)
    sizes = [_stretched(subject, lhs.shape, left.get(d), rhs.shape, right.get(d), got)
             for d in range(max(lhs.shape.rank, rhs.shape.rank))]
    return _fitted(lhs, left, sizes, (rhs, right)), _fitted(rhs, right, sizes, (lhs, left))


def broadcast_scalars(*operands: XlaOp) -> tuple[XlaOp, ...]:
    """Scalars among the operands broadcast to the shape of the others (of the first that is no scalar)."""
    like = next((o for o in operands if not o.shape.is_scalar), None)
    if like is None:
        return operands
    places = {d: d for d in range(like.shape.rank)}
    sizes = list(zip(like.shape.dimensions, like.shape.dynamic_flags, strict=True))
    return tuple(_fitted(o, {}, sizes, (like, places)) if o.shape.is_scalar else o for o in operands)


Places = dict[int, int]
"""For dimensions of the result: which dimension of an operand stands there."""


def _place(subject: str, lhs: Shape, rhs: Shape, dims: tuple[int, ...], got: str) -> tuple[Places, Places]:
    low, high = (lhs, rhs) if lhs.rank <= rhs.rank else (rhs, lhs)
    identity = {d: d for d in range(high.rank)}
    if low.rank == high.rank:
        if dims and dims != tuple(range(high.rank)):
            raise InvalidArgument("broadcast_dimensions of operands of one rank", subject=subject, got=list(dims),
                                  expected=f"none, or {list(range(high.rank))}")
        return identity, identity
    if len(dims) != low.rank:
        raise InvalidArgument("operands of different rank need broadcast_dimensions", subject=subject,
                              got=f"{got}, broadcast_dimensions {list(dims)}",
                              expected=f"one dimension of the rank-{high.rank} operand for each of the other's {low.rank}")
    if any(not 0 <= d < high.rank for d in dims) or any(a >= b for a, b in itertools.pairwise(dims)):
        raise InvalidArgument("broadcast_dimensions are out of order or range", subject=subject, got=list(dims),
                              expected=f"strictly increasing dimensions from 0 to {high.rank - 1}")
    placed = {d: i for i, d in enumerate(dims)}
    return (placed, identity) if low is lhs else (identity, placed)


def _stretched(subject: str, lhs: Shape, left: int | None, rhs: Shape, right: int | None, got: str) -> tuple[int, bool]:
    """Size and dynamic flag of a result dimension in which these dimensions of the operands meet."""
    sides = [(s.dimensions[d], s.dynamic_flags[d]) for s, d in ((lhs, left), (rhs, right)) if d is not None]
    if len(sides) == 2 and sides[0][0] != sides[1][0]:
        if 1 in (sides[0][0], sides[1][0]):
            return sides[0] if sides[1][0] == 1 else sides[1]
        if UNBOUNDED not in (sides[0][0], sides[1][0]):
            raise InvalidArgument("operands with incompatible shapes", subject=subject, got=got,
                                  expected="dimensions of equal size, or of size 1")
    return merge_size(sides)


def _fitted(operand: XlaOp, places: Places, sizes: Sequence[tuple[int, bool]], other: tuple[XlaOp, Places]) -> XlaOp:
    """The operand broadcast to `sizes`; sizes that it does not have itself come from the other operand."""
    shape = operand.shape
    kept = {d: i for d, i in places.items() if shape.dimensions[i] != 1 or sizes[d][0] == 1}
    if len(kept) == len(sizes):
        return operand
    builder, missing = operand.builder, [d for d in range(len(sizes)) if d not in kept]
    if any(sizes[d][0] == UNBOUNDED for d in missing):
        raise UnsupportedError("broadcast to a dimension of unknown size", got=shape, expected="static or bounded sizes",
                               hint="write the dimension with a bound (<=N)")
    if len(kept) < shape.rank:  # what stretches is taken away first, and broadcast back
        operand = builder.add("reshape", [operand], shape=shape.with_dimensions(
            [shape.dimensions[i] for i in kept.values()], [shape.dynamic_flags[i] for i in kept.values()]))
    flags = [flag and d in kept for d, (_, flag) in enumerate(sizes)]
    result = builder.add("broadcast", [operand], {"dimensions": tuple(kept)},
                         shape=shape.with_dimensions([size for size, _ in sizes], flags))
    for d in missing:
        if sizes[d][1]:
            result = _resized(builder, result, d, *other)
    return result


def _resized(builder: XlaBuilder, operand: XlaOp, dimension: int, other: XlaOp, places: Places) -> XlaOp:
    """The operand cut to the size that a bounded dimension of the other operand has at run time."""
    size = builder.add("get-dimension-size", [other], {"dimensions": (places[dimension],)})
    return builder.add("set-dimension-size", [operand, size], {"dimensions": (dimension,)})

