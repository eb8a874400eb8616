"""Comparisons, clamp and select under their documented names.

Documents: operation semantics, Compare (in older documents element-wise comparison operations), Clamp and Select. Operands
broadcast as in `elementwise`, and raise InvalidArgument as there; comparisons are PRED of the dimensions they broadcast to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.errors import InvalidArgument
from ..hlo.choices import ComparisonDirection, ComparisonType
from ..hlo.ir import Computation
from ..opcodes import comparison
from ._documented import documented
from .control import Conditional
from .hlo_builder import Builder, Operand, XlaOp, broadcast_operands, broadcast_scalars, lift_operands, packed

__all__ = [
    "Clamp", "Compare", "ComparisonDirection", "ComparisonType", "Eq", "EqTotalOrder", "Ge", "GeTotalOrder", "Gt",
    "GtTotalOrder", "Le", "LeTotalOrder", "Lt", "LtTotalOrder", "Ne", "NeTotalOrder", "Select",
]


@documented
def Compare(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] | ComparisonDirection | str = (),
            direction: ComparisonDirection | str | None = None, compare_type: ComparisonType | str | None = None) -> XlaOp:
    """PRED: how the elements compare. ``Compare(lhs, rhs, direction)`` is accepted as well.

    `direction` is one of EQ NE GE GT LE LT. `compare_type` is FLOAT (IEEE: NaN is unequal to all) or TOTALORDER
    (-NaN < -inf < ... < -0 < +0 < ... < inf < NaN) for floats, and must be SIGNED, UNSIGNED or FLOAT, if given, for signed
    integers, unsigned integers and PRED, and complex numbers (compared in lexicographic order).
    Raises InvalidArgument for a comparison type that the element type does not have, and for operands that do not fit.

    >>> ops.Compare(torch.tensor([1.0, 2.0]), torch.tensor([2.0, 2.0]), "LT")
    tensor([ True, False])
    """
    if isinstance(broadcast_dimensions, str):
        broadcast_dimensions, direction = (), broadcast_dimensions
    if direction is None:
        raise InvalidArgument("no comparison direction", subject="Compare", expected="EQ, NE, GE, GT, LE or LT")
    lhs, rhs = broadcast_operands(comparison.compare, lhs, rhs, broadcast_dimensions)
    attributes = {"direction": direction} | ({"type": compare_type} if compare_type else {})
    return lhs.builder.add(comparison.compare, [lhs, rhs], attributes)


def _total_order(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int], direction: str) -> XlaOp:
    """Only floats have a total order of their own; for all other types it is the plain comparison."""
    element_type = next((o.element_type for o in (lhs, rhs) if isinstance(o, XlaOp)), None)
    total = element_type is not None and element_type.is_floating
    return Compare(lhs, rhs, broadcast_dimensions, direction, "TOTALORDER" if total else None)


@documented
def Eq(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """PRED: lhs is equal to rhs; never of NaN.

    >>> ops.Eq(torch.tensor([1.0, float("nan")]), torch.tensor([1.0, float("nan")]))
    tensor([ True, False])
    """
    return Compare(lhs, rhs, broadcast_dimensions, "EQ")


@documented
def EqTotalOrder(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """PRED: lhs is equal to rhs in the total order of floats; for other types the same as Eq.

    >>> ops.EqTotalOrder(torch.tensor([0.0, float("nan")]), torch.tensor([-0.0, float("nan")]))
    tensor([False,  True])
    """
    return _total_order(lhs, rhs, broadcast_dimensions, "EQ")


@documented
def Ne(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """PRED: lhs is not equal to rhs; NaN is unequal to all.

    >>> ops.Ne(torch.tensor([1.0, float("nan")]), torch.tensor([1.0, float("nan")]))
    tensor([False,  True])
    """
    return Compare(lhs, rhs, broadcast_dimensions, "NE")


@documented
def NeTotalOrder(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """PRED: lhs is not equal to rhs in the total order of floats; for other types the same as Ne.

    >>> ops.NeTotalOrder(torch.tensor([0.0, float("nan")]), torch.tensor([-0.0, float("nan")]))
    tensor([ True, False])
    """
    return _total_order(lhs, rhs, broadcast_dimensions, "NE")


@documented
def Ge(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """PRED: lhs is greater or equal to rhs; never of NaN.

    >>> ops.Ge(torch.tensor([1.0, 2.0, 3.0]), 2.0)
    tensor([False,  True,  True])
    """
    return Compare(lhs, rhs, broadcast_dimensions, "GE")


@documented
def GeTotalOrder(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """PRED: lhs is greater or equal to rhs in the total order of floats; for other types the same as Ge.

    >>> ops.GeTotalOrder(torch.tensor([-0.0, float("nan")]), torch.tensor([0.0, 1.0]))
    tensor([False,  True])
    """
    return _total_order(lhs, rhs, broadcast_dimensions, "GE")


@documented
def Gt(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """PRED: lhs is greater than rhs; never of NaN.

    >>> ops.Gt(torch.tensor([1.0, 2.0, 3.0]), 2.0)
    tensor([False, False,  True])
    """
    return Compare(lhs, rhs, broadcast_dimensions, "GT")


@documented
def GtTotalOrder(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """PRED: lhs is greater than rhs in the total order of floats; for other types the same as Gt.

    >>> ops.GtTotalOrder(torch.tensor([0.0, float("nan")]), torch.tensor([-0.0, 1.0]))
    tensor([True, True])
    """
    return _total_order(lhs, rhs, broadcast_dimensions, "GT")


@documented
def Le(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """PRED: lhs is less or equal to rhs; never of NaN.

    >>> ops.Le(torch.tensor([1.0, 2.0, 3.0]), 2.0)
    tensor([ True,  True, False])
    """
    return Compare(lhs, rhs, broadcast_dimensions, "LE")


@documented
def LeTotalOrder(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """PRED: lhs is less or equal to rhs in the total order of floats; for other types the same as Le.

    >>> ops.LeTotalOrder(torch.tensor([0.0, 1.0]), torch.tensor([-0.0, float("nan")]))
    tensor([False,  True])
    """
    return _total_order(lhs, rhs, broadcast_dimensions, "LE")


@documented
def Lt(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """PRED: lhs is less than rhs; never of NaN.

    >>> ops.Lt(torch.tensor([1.0, 2.0, 3.0]), 2.0)
    tensor([ True, False, False])
    """
    return Compare(lhs, rhs, broadcast_dimensions, "LT")


@documented
def LtTotalOrder(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """PRED: lhs is less than rhs in the total order of floats; for other types the same as Lt.

    >>> ops.LtTotalOrder(torch.tensor([-0.0, 1.0]), torch.tensor([0.0, float("nan")]))
    tensor([True, True])
    """
    return _total_order(lhs, rhs, broadcast_dimensions, "LT")


@documented
def Clamp(min: Operand, operand: Operand, max: Operand) -> XlaOp:
    """``min`` where the operand is smaller, ``max`` where it is larger; ``max`` wins over ``min``, and NaN over all.

    Scalars among the three broadcast to the shape of the others. Raises InvalidArgument for different element types and
    for bounds of other dimensions than the operand's.

    >>> ops.Clamp(0.0, torch.tensor([-1.0, 0.5, 2.0]), 1.0)
    tensor([0.0000, 0.5000, 1.0000])
    """
    operands = broadcast_scalars(*lift_operands(comparison.clamp, min, operand, max))
    return operands[0].builder.add(comparison.clamp, operands)


@documented
def Select(pred: XlaOp, on_true: Operand | Sequence[Any], on_false: Operand | Sequence[Any]) -> XlaOp:
    """Elements of `on_true` where `pred` (PRED, a scalar or of the same dimensions) holds, elsewhere of `on_false`.

    A scalar `on_true` or `on_false` broadcasts. Tuples (or Python tuples or lists) are selected whole, by a scalar `pred`.
    Raises InvalidArgument for a `pred` of another type and for operands of different types or dimensions.

    >>> ops.Select(torch.tensor([True, False]), torch.tensor([1.0, 2.0]), torch.tensor([10.0, 20.0]))
    tensor([ 1., 20.])
    """
    if any(isinstance(o, (list, tuple)) or (isinstance(o, XlaOp) and o.shape.is_tuple) for o in (on_true, on_false)):
        return _select_tuple(pred, packed(on_true), packed(on_false))
    like = [o for o in (on_true, on_false) if isinstance(o, XlaOp)]
    if not like:
        raise InvalidArgument("on_true or on_false must be an XlaOp or a tensor", subject=comparison.select,
                              hint="make one of them with ConstantR0 and Broadcast")
    on_true, on_false = lift_operands(comparison.select, on_true, on_false)  # pyright: ignore[reportArgumentType] (no sequences left)
    if on_true.shape.is_scalar and on_false.shape.is_scalar and not pred.shape.is_scalar:
        _, on_true, on_false = broadcast_scalars(pred, on_true, on_false)
    else:
        on_true, on_false = broadcast_scalars(on_true, on_false)
    return pred.builder.add(comparison.select, [pred, on_true, on_false])


def _select_tuple(pred: XlaOp, on_true: Operand, on_false: Operand) -> XlaOp:
    if not (isinstance(on_true, XlaOp) and isinstance(on_false, XlaOp) and on_true.shape.is_tuple and on_false.shape.is_tuple):
        raise InvalidArgument("select between a tuple and an array", subject=comparison.select, got=f"{on_true}, {on_false}",
                              expected="two tuples of one shape, or no tuple")
    branches: list[Computation] = []
    for name, operand in (("select_true", on_true), ("select_false", on_false)):
        branch = Builder(name)
        branches.append(branch.finish(branch.parameter(0, operand.shape)))
    return Conditional(pred, on_true, branches[0], on_false, branches[1])
