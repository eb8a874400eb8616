# pyright: reportCallIssue=false, reportArgumentType=false, reportOperatorIssue=false
"""Python functions where documented functions take computations: on tensors at once, and built, beside real XLA; their gradients;
and what is said of functions that cannot stand for a computation."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import xla_torch
from support.oracle import run_xla
from xla_torch import Shape, XlaBuilder, XlaComputation, XlaOp, ops
from xla_torch.api import builder
from xla_torch.errors import InvalidArgument

X = torch.tensor([[0.5, -2.0, 3.0, 1.25], [4.0, 0.25, -1.5, 2.0]])
Y = torch.tensor([[1.0, 2.0, -3.0, 0.5], [-0.5, 1.5, 2.5, -4.0]])
N = torch.tensor(3, dtype=torch.int32)


def larger(a: XlaOp, i: XlaOp, b: XlaOp, j: XlaOp) -> tuple[XlaOp, XlaOp]:
    first = ops.Ge(a, b)
    return ops.Select(first, a, b), ops.Select(first, i, j)


def scattered(combine: Any, *given: Any) -> Any:
    operand, indices, updates = given
    return ops.Scatter(operand, indices, updates, combine, update_window_dims=(), inserted_window_dims=(0,),
                       scatter_dims_to_operand_dims=(0,), index_vector_dim=1)


ROWS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "reduce": (lambda x: ops.Reduce(x, 0.0, ops.Add, [0]), (X,)),
    "reduce, an operator": (lambda x: ops.Reduce(x, 1.0, operator.mul, [1]), (X,)),
    "reduce bf16": (lambda x: ops.Reduce(x, 0.0, lambda a, b: a + b, [1]), (X.bfloat16(),)),
    "reduce pairs": (lambda x, y: ops.Reduce([x, y], [-np.inf, 0.0], larger, [1]), (X, Y)),
    "reduce in order": (lambda x: ops.Reduce(x, 1.0, lambda a, b: 0.5 * a + b, [1]), (X,)),
    "reduce all": (lambda x: ops.ReduceAll(x, -np.inf, ops.Max), (X,)),
    "window": (lambda x: ops.ReduceWindow(x, 0.0, ops.Add, [1, 2], [1, 1], "valid"), (X,)),
    "window, padded": (lambda x: ops.ReduceWindowWithGeneralPadding(
        x, -np.inf, ops.Max, [1, 3], [1, 2], (), (), [(0, 0), (1, 1)]), (X,)),
    "select and scatter": (lambda x, y: ops.SelectAndScatter(x, ops.Ge, [1, 2], [1, 2], "valid", y, 0.0, ops.Add),
                           (X, Y[:, :2])),
    "sort": (lambda x: ops.Sort(x, ops.Gt, 1), (X,)),
    "sort pairs": (lambda x, y: ops.Sort([x, y], lambda a, b, c, d: ops.Lt(abs(a), abs(b)), 1), (X, Y)),
    "approximate": (lambda x: ops.ApproxTopK([x], [-np.inf], 2, 1, ops.Gt), (X,)),
    "map": (lambda x, y: ops.Map([x, y], lambda a, b: a * b + 2.0), (X, Y)),
    "map, a number": (lambda x: ops.Map([x, 3.0], ops.Max), (X,)),
    "map, a constant": (lambda x: ops.Map([x], lambda a: 7), (X,)),
    "partial": (lambda x: ops.Map([x], functools.partial(ops.Max, rhs=0.25)), (X,)),
    "scatter": (lambda x, y: scattered(ops.Add, x, ops.ConstantLiteral(x.builder, np.array([[1], [1], [3]]))
                if isinstance(x, XlaOp) else torch.tensor([[1], [1], [3]]), y), (X[0], Y[0, :3])),
    "call": (lambda x, y: ops.Call(lambda a, b: (a + b, a), x, y), (X, Y)),
    "call, a tuple": (lambda x, y: ops.Call(lambda pair, c: pair[0] * pair[1] + c, [(x, y), x]), (X, Y)),
    "composite": (lambda x: ops.CompositeCall(ops.Tanh, [x], "my.tanh"), (X,)),
    "two branches": (lambda x, y: ops.Conditional(ops.Gt(ops.ReduceAll(x, 0.0, ops.Add), 0.0), x, ops.Sin, (x, y),
                                                  lambda p: p[0] + p[1]), (X, Y)),
    "many branches": (lambda n, x: ops.Conditional(n, [ops.Sin, lambda v: v * v, lambda v: -v], [x, x, x]), (N - 2, X)),
    "loop": (lambda x: ops.While(lambda v: ops.ReduceAll(v, 0.0, ops.Add) < 100.0, lambda v: v * 2.0, x), (X,)),
    "loop, a tuple": (lambda n, x: ops.While(lambda c: c[0] > 0, lambda c: (c[0] - 1, [c[1][0] * c[1][1], c[1][0]]), (n, (x, x))),
                      (N, X)),
    "loop, numbers": (lambda n, x: ops.While(lambda c: c[0] > 1, lambda c: (1, c[1] * 3.0), (n, x)), (N, X)),
    "loop, until equal": (lambda n, x: ops.While(lambda c: c[0] != 6, lambda c: (c[0] + 1, c[1] * 2.0), (n, x)), (N, X)),
    "loop, while equal": (lambda n, x: ops.While(lambda c: operator.eq(3, c[0]), lambda c: (c[0] + 1, c[1] * 2.0), (n, x)),
                          (N, X)),
    "map, equal": (lambda x, y: ops.Map([x, y], lambda a, b: ops.Select(
        (ops.Sign(a) == ops.Sign(b)) | operator.ne(-1.0, ops.Sign(b)), a, b)), (X, Y)),
    "a loop in a loop": (lambda n, x: ops.While(
        lambda c: c[0] > 0, lambda c: (c[0] - 1, ops.While(
            lambda v: ops.ReduceAll(v, 0.0, ops.Add) < 20.0, lambda v: v * 2.0, ops.Map([c[1]], ops.Logistic))), (n, x)), (N, X)),
}


def built(function: Callable[..., Any], arguments: tuple[torch.Tensor, ...]) -> XlaComputation:
    made = XlaBuilder("program")
    function(*[made.parameter(k, Shape.array(str(a.dtype), a.shape)) for k, a in enumerate(arguments)])
    return made.build()


def leaves(value: Any) -> list[torch.Tensor]:
    return [leaf for part in value for leaf in leaves(part)] if isinstance(value, (list, tuple)) else [value]


@pytest.mark.parametrize("name", ROWS)
def test_values_at_once_and_built_are_those_of_xla(name: str) -> None:
    function, arguments = ROWS[name]
    computation = built(function, arguments)
    flat = XlaBuilder("flat")
    inputs = [flat.parameter(k, shape) for k, shape in enumerate(computation.program_shape.parameters)]
    result = ops.Call(flat, computation, inputs)
    ops.Tuple(flat, list(_parts(result)))
    expected = run_xla(flat.build().to_hlo_text(), *map(array_of, arguments))
    for got in (function(*arguments), computation(*arguments)):
        found = leaves(got)
        assert len(found) == len(expected)
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(array_of(ours), theirs, rtol=2e-6, strict=True)


def array_of(tensor: torch.Tensor) -> np.ndarray:
    return tensor.float().numpy().astype(ml_dtypes.bfloat16) if tensor.dtype is torch.bfloat16 else tensor.numpy()


def _parts(op: XlaOp) -> Any:
    if not op.shape.is_tuple:
        yield op
        return
    for k in range(len(op.shape.tuple_shapes)):
        yield from _parts(ops.GetTupleElement(op, k))


@pytest.mark.parametrize("name", [n for n in ROWS if n not in ("reduce bf16", "map, a constant", "approximate")])
def test_gradients_at_once_are_those_of_numbers(name: str) -> None:
    function, arguments = ROWS[name]
    doubles = [a.double().requires_grad_() if a.is_floating_point() else a for a in arguments]

    def of_floats(*floats: torch.Tensor) -> Any:
        rest = iter(floats)
        return leaves(function(*[next(rest) if a.is_floating_point() else a for a in arguments]))[-1]

    torch.autograd.gradcheck(of_floats, [a for a in doubles if a.is_floating_point()])


def test_a_function_is_asked_each_time() -> None:
    """What it closes over may have changed, and a program that was made of what it was would give a wrong number."""
    factor = 2.0
    scaled = lambda v: v * factor  # noqa: E731
    assert torch.equal(ops.Map([X], scaled), X * 2)
    factor = 3.0
    assert torch.equal(ops.Map([X], scaled), X * 3)


def test_equal_functions_are_one_program() -> None:
    """Equal texts are made ready once, whoever wrote them; documented functions are not even called again."""
    before = builder._computation_of.cache_info()
    for _ in range(3):
        ops.Map([Y], lambda v: v * 4.5)
    after = builder._computation_of.cache_info()
    assert (after.misses - before.misses, after.hits - before.hits) == (1, 2)
    for _ in range(2):
        ops.Reduce(Y, 0.0, ops.Max, [0])
    assert builder._computation_of.cache_info() == after


def test_collectives_take_functions() -> None:
    made = XlaBuilder("largest")
    x = made.parameter(0, Shape.parse("f32[2]"))
    ops.Tuple(made, [ops.AllReduce(x, ops.Max), ops.AllReduce((x, x), lambda a, b: a + b), ops.ReduceScatter(x, ops.Add, 0, 2)])
    results = xla_torch.run_replicas(made.build(), [(torch.tensor([1.0, 5.0]),), (torch.tensor([2.0, 3.0]),)], num_replicas=2)
    for number, (largest, (total, again), piece) in enumerate(results):
        assert (largest.tolist(), total.tolist(), again.tolist()) == ([2.0, 5.0], [3.0, 8.0], [3.0, 8.0])
        assert piece.tolist() == [total.tolist()[number]]


@pytest.mark.parametrize("make", [
    lambda x: ops.Fusion(x.builder, "kLoop", [x, x], lambda a, b: a * b),
    lambda x: ops.AsyncDone(ops.AsyncStart(x.builder, [x, x], ops.Mul)),
    lambda x: ops.AllReduceDone(ops.AllReduceStart(ops.Mul(x, x), ops.Add)),
])
def test_ops_of_compiled_programs_take_functions(make: Callable[[XlaOp], XlaOp]) -> None:
    made = XlaBuilder("compiled")
    make(made.parameter(0, Shape.parse("f32[2,4]")))
    assert torch.equal(made.build()(X), X * X)


# ------------------------------------------------------------------------------------------- mistakes


W = torch.ones(4)
ERRORS: dict[str, tuple[Callable[[XlaOp, XlaOp], Any], list[str]]] = {
    "arity": (lambda x, s: ops.Reduce(x, 0.0, lambda a: a, [0]), ["the reducer takes another number of arguments",
                                                                  "a function of 2: f32[], f32[]"]),
    "arity of a documented function": (lambda x, s: ops.Reduce(x, 0.0, ops.Neg, [0]), ["Neg: too many arguments"]),
    "pass a tuple as one argument": (lambda x, s: ops.While(lambda a, b: a < 3.0, lambda a, b: (a, b), (s, x)), [
        "the condition takes another number", "a function of 1: (f32[], f32[2,4])", "pass a tuple as one argument"]),
    "shape": (lambda x, s: ops.While(lambda c: c[0] < 3.0, lambda c: (c[0],), (s, x)), [
        "the body's result is not the shape of the init value", "(f32[], f32[2,4])"]),
    "number of results": (lambda x, s: ops.Reduce(x, 0.0, lambda a, b: (a, b), [0]), ["returns another number of values"]),
    "condition": (lambda x, s: ops.While(lambda c: c, lambda c: c, s), ["condition's result is not a PRED scalar"]),
    "comparator": (lambda x, s: ops.Sort(x, ops.Add), ["pred[]"]),
    "a condition that answers": (lambda x, s: ops.While(lambda c: c is s, lambda c: c, s), [
        "the condition returned a Python value while the computation was built", "False", "==, !="]),
    "a condition that is a number": (lambda x, s: ops.While(lambda c: 1, lambda c: c, s), [
        "the condition returned a Python value", "got       1"]),
    "a comparator that answers": (lambda x, s: ops.Sort(x, lambda a, b: a is b), [
        "the comparator returned a Python value", "False"]),
    "a function that answers": (lambda x, s: ops.Map([x], lambda a: np.True_), [
        "the function returned a Python value", "ops.Constant"]),
    "True for a condition": (lambda x, s: ops.While(True, lambda c: c, s), ["While: condition is of the wrong kind", "True"]),
    "True for a predicate": (lambda x, s: ops.Select(True, x, x), ["Select: pred is of the wrong kind", "True"]),
    "a number for a predicate": (lambda x, s: ops.Conditional(1, x, ops.Sin, x, ops.Cos), ["predicate is of the wrong kind"]),
    "branches": (lambda x, s: ops.Conditional(s > 0.0, x, lambda v: v, x, lambda v: 1), ["different result shapes"]),
    "numbers of branches": (lambda x, s: ops.Conditional(ops.ConvertElementType(s, "s32"), [ops.Sin, ops.Cos], [x]), [
        "one operand is needed for each branch"]),
    "a tensor is returned": (lambda x, s: ops.Reduce(x, 0.0, lambda a, b: W, [0]), ["does not return an op", "Tensor"]),
    "nothing is returned": (lambda x, s: ops.Reduce(x, 0.0, lambda a, b: None, [0]), ["does not return", "is there a return?"]),
    "a closure": (lambda x, s: ops.Reduce(x, 0.0, lambda a, b: a + s, [0]), [
        "belongs to another builder", "the reducer is a computation of its own", "in an operand or carry"]),
    "a closure in front": (lambda x, s: ops.Reduce(x, 0.0, lambda a, b: s + a, [0]), [
        "belongs to another builder", "the reducer is a computation of its own"]),
    "a closure is returned": (lambda x, s: ops.Map([x], lambda a: s), ["returns an op of another builder", "of its own"]),
    "a tensor inside": (lambda x, s: ops.Map([x], lambda a: a * W), ["tensors beside XlaOps", "computation of its own"]),
    "a tensor in an op": (lambda x, s: ops.Map([x], lambda a: ops.Add(a, W)), ["tensors beside XlaOps", "of its own"]),
    "torch's function": (lambda x, s: ops.Reduce(x, 0.0, torch.add, [0]), ["torch functions cannot take XlaOps", "ops.Add"]),
    "Python's function": (lambda x, s: ops.Reduce(x, 0.0, max, [0]), ["no truth value", "ops.Max"]),
    "a text": (lambda x, s: ops.Reduce(x, 0.0, "add", [0]), ["'add'", "or a function of XlaOps"]),
    "a class": (lambda x, s: ops.Map([x], float), ["the class float", "or a function of XlaOps"]),
    "up to the target": (lambda x, s: ops.CustomCallWithComputation("t", [x], lambda a: a, Shape.parse("f32[]")), [
        "not a computation", "XlaBuilder.build()"]),
}


@pytest.mark.parametrize("name", ERRORS)
def test_functions_that_are_no_computations_are_refused_in_words(name: str) -> None:
    made = XlaBuilder("program")
    x, s = made.parameter(0, Shape.parse("f32[2,4]")), made.parameter(1, Shape.parse("f32[]"))
    wrong, words = ERRORS[name]
    with pytest.raises(InvalidArgument) as caught:
        wrong(x, s)
    assert [word for word in words if word not in str(caught.value)] == []
