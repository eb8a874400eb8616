"""Documented functions: sorting.

Documents: operation semantics, the sections of the functions' own names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..opcodes import sorting
from ..opcodes.shapes import require
from ._documented import documented, renamed, variadic
from ._regions import comparator as comparator_of
from .hlo_builder import Region, XlaOp

__all__ = ["Sort", "TopK"]


@variadic("operands...")
@renamed(operand="operands")
@documented
def Sort(operands: XlaOp | Sequence[XlaOp], comparator: Region, dimension: int = -1, is_stable: bool = False) -> XlaOp:
    """Sort arrays of equal dimensions together along a dimension (default: the last), always stably.

    `comparator` takes (left, right) scalars of each operand and returns a PRED scalar: left comes before right; it is a
    strict weak order. One operand gives an array, several a tuple. Raises InvalidArgument for a dimension out of range and
    for a comparator of other types.

    >>> ops.Sort(torch.tensor([3.0, 1.0, 2.0]), ops.Gt)
    tensor([3., 2., 1.])
    >>> ops.Sort([torch.tensor([3, 1, 2]), torch.tensor([30, 10, 20])], lambda a, b, c, d: ops.Lt(a, b))
    (tensor([1, 2, 3]), tensor([10, 20, 30]))
    """
    values = [operands] if isinstance(operands, XlaOp) else list(operands)
    require(len(values) > 0, "there is nothing to sort", expected="at least one operand")
    dimension = values[0].shape.rank - 1 if dimension == -1 and values else dimension
    attributes: dict[str, Any] = {"dimensions": (dimension,), "to_apply": comparator_of(comparator, values)}
    if is_stable:
        attributes["is_stable"] = True
    return values[0].builder.add(sorting.sort, values, attributes)


@renamed(input="operand")
@documented
def TopK(operand: XlaOp, k: int, largest: bool = True) -> XlaOp:
    """The k largest (or smallest) elements along the last dimension: a tuple of values[..., k] and s32 indices[..., k].

    Values stand in descending (ascending) order, equal ones by index; the order is total: +0 is above -0, NaN above
    infinity. Raises InvalidArgument for a scalar and for k out of range.

    >>> ops.TopK(torch.tensor([1.0, 4.0, 2.0, 3.0]), 2)
    (tensor([4., 3.]), tensor([1, 3], dtype=torch.int32))
    """
    return operand.builder.add(sorting.topk, [operand], {"k": k, "largest": largest})
