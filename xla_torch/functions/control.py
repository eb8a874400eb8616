"""Calls, loops, branches and tuples under their documented names.

Documents: operation semantics, the sections of the functions' own names. Where a tuple is an operand, a Python tuple or list
of operands stands for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.errors import InvalidArgument
from ..core.shape import Shape
from ..core.types import PRED
from ..hlo.canonical_values import sequence_of
from ..opcodes import control, internal
from ..opcodes.shapes import require
from ._documented import documented, renamed, variadic
from ._regions import form_of, of_values
from .hlo_builder import Builder, Region, Value, XlaOp, packed

__all__ = ["AddDependency", "Call", "CompositeCall", "Conditional", "GetTupleElement", "OptimizationBarrier", "Tuple", "While"]

@variadic("elements...")
@documented
def Tuple(builder: Builder, elements: Sequence[Value]) -> XlaOp:
    """A tuple of the elements (a list, or one by one), which have any shapes.

    >>> ops.Tuple([torch.tensor(1.0), torch.tensor([2, 3])])
    (tensor(1.), tensor([2, 3]))
    """
    return builder.add(control.tuple_, [packed(e) for e in elements])


@documented
def GetTupleElement(tuple_data: Value, index: int) -> XlaOp:
    """Element `index` of a tuple. Raises InvalidArgument for a non-tuple or an index out of range.

    >>> ops.GetTupleElement((torch.tensor(1.0), torch.tensor(2.0)), 1)
    tensor(2.)
    """
    tuple_data = packed(tuple_data)
    return tuple_data.builder.add(control.get_tuple_element, [tuple_data], {"index": index})


@variadic("operands...")
@renamed(args="operands")
@documented
def Call(builder: Builder, computation: Region, operands: Sequence[Value] = ()) -> XlaOp:
    """The result of a computation of the operands (a list, or one by one).

    Raises InvalidArgument where number or shapes of the operands are not those of the computation's parameters.

    >>> ops.Call(lambda x, y: x * y + 1.0, [torch.tensor(2.0), torch.tensor(3.0)])
    tensor(7.)
    """
    region = of_values(computation, operands, "the computation")
    return builder.add(control.call, [packed(o) for o in operands], {"to_apply": region})


@variadic("operands...")
@renamed(args="operands", decomposition="computation", composite_attributes="attributes")
@documented
def CompositeCall(builder: Builder, computation: Region, operands: Sequence[Value], name: str, attributes: str | None = None,
                  version: int | None = None) -> XlaOp:
    """The operation `name`, of which the computation is the decomposition; this is what is evaluated.

    `attributes` is a dictionary in text, by default ``{}``; `version` says which semantics of the operation is meant, by
    default 0. Raises InvalidArgument as `Call` does.

    >>> ops.CompositeCall(lambda x: x * x, [torch.tensor(3.0)], "my.square")
    tensor(9.)
    """
    described = {"composite.name": name, "composite.attributes": attributes or "{}", "composite.version": str(version or 0)}
    region = of_values(computation, operands, "the computation")
    return builder.add(control.call, [packed(o) for o in operands], {"to_apply": region, "is_composite": True},
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

    >>> two, three = torch.tensor(2.0), torch.tensor(3.0)
    >>> ops.Conditional(torch.tensor(False), two, lambda x: x + 1.0, three, lambda x: x * 10.0)
    tensor(30.)
    >>> ops.Conditional(torch.tensor(1, dtype=torch.int32), [ops.Neg, ops.Square], [two, three])
    tensor(9.)
    """
    names = _TWO_WAY if len(branches) + len(named) == len(_TWO_WAY) else _MANY_WAY
    places = names[len(branches):]
    if len(branches) + len(named) != len(names) or named.keys() != set(places):
        raise InvalidArgument("wrong arguments", subject="Conditional", got=f"{1 + len(branches)}, and by name {sorted(named)}",
                              expected=f"predicate, {', '.join(_TWO_WAY)}; or branch_index, {', '.join(_MANY_WAY)}")
    given = (*branches, *(named[n] for n in places))
    if names is _TWO_WAY:
        return predicate.builder.add(control.conditional, [predicate, packed(given[0]), packed(given[2])], {
            "true_computation": of_values(given[1], given[:1], "the true branch"),
            "false_computation": of_values(given[3], given[2:3], "the false branch")})
    if predicate.element_type is PRED:
        raise InvalidArgument("the branch index is not S32", subject="Conditional", got=predicate.shape, expected="s32[]")
    computations, operands = sequence_of(given[0], "a list of computations"), sequence_of(given[1], "a list of operands")
    require(len(computations) == len(operands), "one operand is needed for each branch", got=len(operands),
            expected=len(computations))
    numbered = enumerate(zip(computations, operands, strict=True))
    regions = [of_values(branch, [operand], f"branch {k}") for k, (branch, operand) in numbered]
    return predicate.builder.add(control.conditional, [predicate, *map(packed, operands)], {"branch_computations": regions})


@documented
def While(condition: Region, body: Region, init: Value) -> XlaOp:
    """Repeat `body` while `condition` holds, from `init`. Both take, and `body` returns, one value of init's shape;
    `condition` returns a PRED scalar. Where init is a Python tuple, functions in Python take and return such. Raises
    InvalidArgument for anything else.

    >>> ops.While(lambda x: x < 100.0, lambda x: x * 2.0, torch.tensor(3.0))
    tensor(192.)
    >>> ops.While(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * c[1]), (torch.tensor(0), torch.tensor(2.0)))
    (tensor(3), tensor(256.))
    """
    form, carry = form_of(init), packed(init)
    return carry.builder.add(control.while_, [carry], {"condition": of_values(condition, [init], "the condition", Shape(PRED)),
                                                       "body": of_values(body, [init], "the body", form)})


@documented
def OptimizationBarrier(operand: Value) -> XlaOp:
    """The operand, of any shape: nothing that depends on it moves before it.

    >>> ops.OptimizationBarrier(torch.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    operand = packed(operand)
    return operand.builder.add(internal.opt_barrier, [operand])


@documented
def AddDependency(operand: Value, token: XlaOp) -> XlaOp:
    """The operand, made to wait for a token. Raises InvalidArgument where that is none.

    >>> ops.AddDependency(torch.tensor([1.0, 2.0]), ops.CreateToken())
    tensor([1., 2.])
    """
    operand = packed(operand)
    return operand.builder.add(internal.add_dependency, [operand, token])
