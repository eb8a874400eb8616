"""Rows of calls, branches, loops, tuples and tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from support.agreement import element_type
from xla_torch import Shape, XlaBuilder, XlaComputation, ops

from .drawn import Drawn, Row
from .kinds import ALL, EVERYTHING, INTS, NUMBERS

COUNTED = (*INTS, "f32", "f64")


def _computation(function: Callable[..., Any], *shapes: Shape) -> XlaComputation:
    builder = XlaBuilder("inner")
    root = function(*(ops.Parameter(builder, k, shape, f"x{k}") for k, shape in enumerate(shapes)))
    return builder.build(ops.Tuple(builder, list(root)) if isinstance(root, (list, tuple)) else root)


def _shape(d: Drawn, dims: list[int]) -> Shape:
    return Shape.array(element_type(d.kind), dims)


def _tuple(d: Drawn) -> Any:
    return ops.Tuple(d.builder, [d.array(d.dims(0, 2)), d.array(d.dims(0, 2), "s32")])


def _element(d: Drawn) -> Any:
    return ops.GetTupleElement(ops.Tuple(d.builder, [d.array(d.dims(0, 2)), d.array(d.dims(0, 2), "s32")]), d.integer(0, 1))


def _call(d: Drawn) -> Any:
    dims = d.dims(0, 2)
    double = _computation(lambda x: ops.Sub(x, ops.Neg(x)), _shape(d, dims))
    return ops.Call(d.builder, double, [d.array(dims)])


def _composite_call(d: Drawn) -> Any:
    dims = d.dims(0, 2)
    double = _computation(lambda x: ops.Sub(x, ops.Neg(x)), _shape(d, dims))
    return ops.CompositeCall(d.builder, double, [d.array(dims)], "my.double", "{n = 1 : i32}", 2)


def _branch(d: Drawn) -> Any:
    """Each branch has an operand of its own shape; both give the same."""
    dims = d.dims(1, 2)
    same = _computation(lambda x: x, _shape(d, dims))
    filled = _computation(lambda x: ops.Broadcast(x, dims), _shape(d, []))
    return ops.Conditional(d.array([], "pred"), d.array(dims), same, d.array([]), filled)


def _case(d: Drawn) -> Any:
    dims, count = d.dims(0, 2), d.integer(1, 3)
    branches = [_computation(function, _shape(d, dims)) for function in (lambda x: x, ops.Neg, lambda x: ops.Sub(x, x))[:count]]
    return ops.Conditional(d.index(-2, 4), branches, [d.array(dims) for _ in range(count)])


def _while(d: Drawn) -> Any:
    """Doubles an array as long as a counter is below a limit; the number of turns is data."""
    dims = d.dims(0, 2)
    carry = Shape.tuple([Shape.parse("s32[]"), Shape.parse("s32[]"), _shape(d, dims)])

    def going_on(state: Any) -> Any:
        return ops.Lt(ops.GetTupleElement(state, 0), ops.GetTupleElement(state, 1))

    def turn(state: Any) -> list[Any]:
        counter, limit, x = (ops.GetTupleElement(state, k) for k in range(3))
        return [ops.Add(counter, 1), limit, ops.Sub(x, ops.Neg(x))]

    init = ops.Tuple(d.builder, [d.index(0, 3), d.index(0, 6), d.array(dims, domain="small")])
    return ops.While(_computation(going_on, carry), _computation(turn, carry), init)


def _ordered(d: Drawn) -> Any:
    """A value that waits for tokens of one another."""
    assert d.builder is not None
    x = d.array(d.dims(0, 2))
    token = ops.AfterAll(d.builder, [ops.CreateToken(d.builder), ops.CreateToken(d.builder)])
    return ops.AddDependency(x, token)


ROWS: list[Row] = [
    Row("Tuple", _tuple, EVERYTHING),
    Row("GetTupleElement", _element, EVERYTHING),
    Row("Call", _call, (*NUMBERS, "c64", "c128")),
    Row("CompositeCall", _composite_call, COUNTED),
    Row("Conditional", _branch, ALL, variant="by a predicate"),
    Row("Conditional", _case, COUNTED, variant="by an index"),
    Row("While", _while, COUNTED),
    Row("OptimizationBarrier", lambda d: ops.OptimizationBarrier(d.array(d.dims(0, 2))), ALL),
    Row("AddDependency AfterAll CreateToken", _ordered, ALL, eager=False),
]
