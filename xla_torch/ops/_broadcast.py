"""Implicit broadcast of the documented functions (rule B1): HLO has none, so broadcasts are inserted as XlaBuilder does. And
implicit tuples.

Documents: operation semantics, "Element-wise binary arithmetic operations", and broadcasting.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from ..builder import Liftable, XlaOp, lift
from ..errors import InvalidArgument
from ..opcodes.shapes import merge_size, require_arrays
from ..shape import UNBOUNDED, Shape
from ..types import same_type_ignoring_precision

Operand = XlaOp | Liftable
"""What the documented functions take: an op, or beside one a number or array, which becomes a constant of its type."""

Value = XlaOp | Sequence[Any]
"""An operand of any shape: an op, or a Python tuple or list of such, which stands for a tuple."""


def packed(value: Any) -> XlaOp:
    """The operand as one op. Raises InvalidArgument for a Python tuple of other things or of nothing."""
    if not isinstance(value, (list, tuple)):
        return value
    parts = [packed(v) for v in value]
    if not parts or not all(isinstance(p, XlaOp) for p in parts):
        raise InvalidArgument("not a tuple of operands", got=", ".join(type(p).__name__ for p in parts) or "no elements",
                              expected="XlaOps or tensors, at least one")
    return parts[0].builder.add("tuple", parts)


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
    return _fitted(lhs, left, sizes), _fitted(rhs, right, sizes)


def broadcast_scalars(*operands: XlaOp) -> tuple[XlaOp, ...]:
    """Scalars among the operands broadcast to the shape of the others (of the first that is no scalar)."""
    like = next((o for o in operands if not o.shape.is_scalar), None)
    if like is None:
        return operands
    sizes = list(zip(like.shape.dimensions, like.shape.dynamic_flags, strict=True))
    return tuple(_fitted(o, {}, sizes) if o.shape.is_scalar else o for o in operands)


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


def _fitted(operand: XlaOp, places: Places, sizes: Sequence[tuple[int, bool]]) -> XlaOp:
    """The operand broadcast to `sizes`: of a bounded dimension to its bound, which beside a dynamic operand counts only as far
    as that goes; of an unbounded one to size 1, which stretches when the program runs."""
    shape = operand.shape
    wanted = [1 if size == UNBOUNDED and (d not in places or shape.dimensions[places[d]] == 1) else size
              for d, (size, _) in enumerate(sizes)]
    kept = {d: i for d, i in places.items() if shape.dimensions[i] != 1 or wanted[d] == 1}
    if len(kept) == len(sizes):
        return operand
    if len(kept) < shape.rank:  # what stretches is taken away first, and broadcast back
        operand = operand.builder.add("reshape", [operand], shape=shape.with_dimensions(
            [shape.dimensions[i] for i in kept.values()], [shape.dynamic_flags[i] for i in kept.values()]))
    own = [d in kept and shape.dynamic_flags[kept[d]] for d in range(len(sizes))]
    result = shape.with_dimensions([shape.dimensions[kept[d]] if d in kept else n for d, n in enumerate(wanted)], own)
    return operand.builder.add("broadcast", [operand], {"dimensions": tuple(kept)}, shape=result)
