"""Calls, loops, branches and tuples under their documented names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..builder import XlaBuilder, XlaOp, documented, region_of
from ..errors import InvalidArgument
from ..types import PRED

__all__ = ["AddDependency", "Call", "CompositeCall", "Conditional", "GetTupleElement", "OptimizationBarrier", "Tuple", "While"]


def Tuple(builder: XlaBuilder, elements: Sequence[XlaOp]) -> XlaOp:
    """A tuple of the elements."""
    return builder.add("tuple", elements)


def GetTupleElement(tuple_data: XlaOp, index: int) -> XlaOp:
    """Element `index` of a tuple. Raises InvalidArgument for a non-tuple or an index out of range."""
    return tuple_data.builder.add("get-tuple-element", [tuple_data], {"index": index})


@documented
def Call(builder: XlaBuilder, computation: Any, operands: Sequence[XlaOp] = ()) -> XlaOp:
    """Call a computation. Operand shapes must be compatible with its parameters."""
    return builder.add("call", operands, {"to_apply": region_of(computation)})


@documented
def CompositeCall(builder: XlaBuilder, computation: Any, operands: Sequence[XlaOp], name: str, attributes: str | None = None,
                  version: int | None = None) -> XlaOp:
    """Call a computation that is the decomposition of the operation `name`; evaluates the decomposition."""
    described = {"composite.name": name, "composite.attributes": attributes or "{}", "composite.version": str(version or 0)}
    return builder.add("call", operands, {"to_apply": region_of(computation), "is_composite": True},
                       common={"frontend_attributes": described})


@documented
def Conditional(predicate: XlaOp, *branches: Any, **named: Any) -> XlaOp:
    """Run one of several computations of one operand each.

    ``Conditional(predicate, true_operand, true_computation, false_operand, false_computation)`` with a PRED scalar, or
    ``Conditional(branch_index, branch_computations, branch_operands)`` with an S32 scalar; an index out of range runs the
    last branch.
    """
    names = ("true_operand", "true_computation", "false_operand", "false_computation")
    if any(n in named for n in names):
        branches = branches + tuple(named[n] for n in names[len(branches):])
    elif named:
        branches = branches + tuple(named[n] for n in ("branch_computations", "branch_operands")[len(branches):])
    builder = predicate.builder
    if len(branches) == 4:
        true_operand, true_computation, false_operand, false_computation = branches
        return builder.add("conditional", [predicate, true_operand, false_operand], {
            "true_computation": region_of(true_computation), "false_computation": region_of(false_computation)})
    if len(branches) != 2:
        raise InvalidArgument("wrong number of arguments", subject="Conditional", got=1 + len(branches), expected="5 or 3")
    computations, operands = branches
    if predicate.element_type is PRED:
        raise InvalidArgument("the branch index is not S32", subject="Conditional", got=predicate.shape, expected="s32[]")
    return builder.add("conditional", [predicate, *operands], {
        "branch_computations": tuple(region_of(c) for c in computations)})


@documented
def While(condition: Any, body: Any, init: XlaOp) -> XlaOp:
    """Repeat `body` while `condition` holds, from `init`. Both take, and `body` returns, one value of init's shape."""
    return init.builder.add("while", [init], {"condition": region_of(condition), "body": region_of(body)})


@documented
def OptimizationBarrier(operand: XlaOp) -> XlaOp:
    """The operand, of any shape."""
    return operand.builder.add("opt-barrier", [operand])


def AddDependency(operand: XlaOp, token: XlaOp) -> XlaOp:
    """The operand, made to wait for a token."""
    return operand.builder.add("add-dependency", [operand, token])
