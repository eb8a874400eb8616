"""Calls, loops, branches and tuples under their documented names.

Documents: operation semantics, the sections of the functions' own names. Where a tuple is an operand, a Python tuple or list
of operands stands for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import InvalidArgument
from ..hlo.canonical_values import sequence_of
from ..hlo_builder import Builder, Value, XlaOp, packed, region_of
from ..opcodes import control, internal
from ..types import PRED
from ._documented import documented, renamed, variadic

__all__ = ["AddDependency", "Call", "CompositeCall", "Conditional", "GetTupleElement", "OptimizationBarrier", "Tuple", "While"]

@variadic("elements...")
@documented
def Tuple(builder: Builder, elements: Sequence[Value]) -> XlaOp:
    """A tuple of the elements (a list, or one by one), which have any shapes."""
    return builder.add(control.tuple_, [packed(e) for e in elements])


@documented
def GetTupleElement(tuple_data: Value, index: int) -> XlaOp:
    """Element `index` of a tuple. Raises InvalidArgument for a non-tuple or an index out of range."""
    tuple_data = packed(tuple_data)
    return tuple_data.builder.add(control.get_tuple_element, [tuple_data], {"index": index})


@variadic("operands...")
@renamed(args="operands")
@documented
def Call(builder: Builder, computation: Any, operands: Sequence[Value] = ()) -> XlaOp:
    """The result of a computation of the operands (a list, or one by one).

    Raises InvalidArgument where number or shapes of the operands are not those of the computation's parameters.
    """
    return builder.add(control.call, [packed(o) for o in operands], {"to_apply": region_of(computation)})


@variadic("operands...")
@renamed(args="operands", decomposition="computation", composite_attributes="attributes")
@documented
def CompositeCall(builder: Builder, computation: Any, operands: Sequence[Value], name: str, attributes: str | None = None,
                  version: int | None = None) -> XlaOp:
    """The operation `name`, of which the computation is the decomposition; this is what is evaluated.

    `attributes` is a dictionary in text, by default ``{}``; `version` says which semantics of the operation is meant, by
    default 0. Raises InvalidArgument as `Call` does.
    """
    described = {"composite.name": name, "composite.attributes": attributes or "{}", "composite.version": str(version or 0)}
    return builder.add(control.call, [packed(o) for o in operands], {"to_apply": region_of(computation), "is_composite": True},
                       common={"frontend_attributes": described})


_TWO_WAY = ("true_operand", "true_computation", "false_operand", "false_computation")
_MANY_WAY = ("branch_computations", "branch_operands")


@renamed(pred="predicate", branch_index="predicate")
@documented
def Conditional(predicate: XlaOp, *branches: Any, **named: Any) -> XlaOp:
    """Run one of several computations of one operand each.

    ``Conditional(predicate, true_operand, true_computation, false_operand, false_computation)`` with a PRED scalar, or
    ``Conditional(branch_index, branch_computations, branch_operands)`` with an S32 scalar; an index out of range runs the
    last branch. Raises InvalidArgument for a predicate of another type, and where operands do not fit their computations or
    these differ in their result.
    """
    names = _TWO_WAY if len(branches) + len(named) == len(_TWO_WAY) else _MANY_WAY
    places = names[len(branches):]
    if len(branches) + len(named) != len(names) or named.keys() != set(places):
        raise InvalidArgument("wrong arguments", subject="Conditional", got=f"{1 + len(branches)}, and by name {sorted(named)}",
                              expected=f"predicate, {', '.join(_TWO_WAY)}; or branch_index, {', '.join(_MANY_WAY)}")
    given = (*branches, *(named[n] for n in places))
    if names is _TWO_WAY:
        return predicate.builder.add(control.conditional, [predicate, packed(given[0]), packed(given[2])], {
            "true_computation": region_of(given[1]), "false_computation": region_of(given[3])})
    if predicate.element_type is PRED:
        raise InvalidArgument("the branch index is not S32", subject="Conditional", got=predicate.shape, expected="s32[]")
    computations, operands = sequence_of(given[0], "a list of computations"), sequence_of(given[1], "a list of operands")
    return predicate.builder.add(control.conditional, [predicate, *map(packed, operands)], {
        "branch_computations": tuple(map(region_of, computations))})


@documented
def While(condition: Any, body: Any, init: Value) -> XlaOp:
    """Repeat `body` while `condition` holds, from `init`. Both take, and `body` returns, one value of init's shape;
    `condition` returns a PRED scalar. Raises InvalidArgument for anything else."""
    init = packed(init)
    return init.builder.add(control.while_, [init], {"condition": region_of(condition), "body": region_of(body)})


@documented
def OptimizationBarrier(operand: Value) -> XlaOp:
    """The operand, of any shape: nothing that depends on it moves before it."""
    operand = packed(operand)
    return operand.builder.add(internal.opt_barrier, [operand])


@documented
def AddDependency(operand: Value, token: XlaOp) -> XlaOp:
    """The operand, made to wait for a token. Raises InvalidArgument where that is none."""
    operand = packed(operand)
    return operand.builder.add(internal.add_dependency, [operand, token])
