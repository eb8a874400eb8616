"""Mistakes that users make end in errors of our own, which say what was given, and what to do."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import xla_torch
from xla_torch import Shape, XlaBuilder, XlaComputation, XlaOp, ops
from xla_torch.errors import InvalidArgument, XlaError
from xla_torch.hlo import sharding

X = torch.ones(4)
ANY: Any = ops
TORCH: Any = torch


def function(x: Any) -> Any:
    return x


def computation() -> XlaComputation:
    builder = XlaBuilder("square")
    x = builder.parameter(0, Shape.parse("f32[4]"))
    return builder.build(x * x)


OF_OPS: dict[str, tuple[Callable[[Any], Any], list[str]]] = {
    "if": (lambda p: 1 if p > 0.0 else 2, ["no truth value", "ops.Select"]),
    "if equal": (lambda p: 1 if p == 0.0 else 2, ["no truth value", "ops.Select"]),
    "in a list": (lambda p: p in [p + 1.0], ["no truth value"]),
    "equal to a text": (lambda p: p == "a", ["compare", "str"]),
    "equal to nothing": (lambda p: p != None, ["compare", "None"]),  # noqa: E711
    "equal to another type": (lambda p: p == ops.ConvertElementType(p, "s32"), ["compare", "different element types"]),
    "equal to a fraction": (lambda p: ops.ConvertElementType(p, "s32") == 0.5, ["0.5", "s32"]),
    "equal to a tensor": (lambda p: p == X, ["tensors beside XlaOps"]),
    "a tensor is equal": (lambda p: operator.eq(X, p), ["tensors beside XlaOps"]),
    "float": (float, ["no value while", "builder.build()"]),
    "int": (int, ["no value while"]),
    "range": (range, ["no value while"]),
    "an array": (np.asarray, ["no value while"]),
    "an index": (lambda p: p[0], ["takes no index", "ops.Slice"]),
    "a loop": (list, ["takes no index"]),
    "an index of a tuple": (lambda p: ops.Tuple(p.builder, [p])[0], ["ops.GetTupleElement"]),  # pyright: ignore
    "torch.exp": (torch.exp, ["torch functions cannot take XlaOps", "exp", "ops.Exp"]),
    "torch.add": (lambda p: TORCH.add(p, X), ["tensors beside XlaOps"]),
    "a tensor in front": (lambda p: X * p, ["tensors beside XlaOps", "make the tensor a parameter"]),
    "a tensor behind": (lambda p: p * X, ["tensors beside XlaOps", "make the tensor a parameter"]),
    "XlaOp of a tensor": (lambda p: XlaOp(p.builder, X), ["an op is made by a builder", "Tensor"]),  # pyright: ignore
    "two operands": (lambda p: ANY.Exp(p, p), ["Exp: result_accuracy is of the wrong kind", "Exp(operand, result_accuracy)"]),
    "called": (computation(), ["argument 0"]),
}


@pytest.mark.parametrize("name", OF_OPS)
def test_mistakes_with_ops(name: str) -> None:
    wrong, words = OF_OPS[name]
    with pytest.raises(XlaError) as caught:
        wrong(XlaBuilder("program").parameter(0, Shape.parse("f32[4]")))
    assert [word for word in words if word not in str(caught.value)] == []


def test_numbers_stand_in_front_of_every_operator() -> None:
    builder = XlaBuilder("program")
    x = builder.parameter(0, Shape.parse("s32[3]"))
    ops.Tuple(builder, [2 ** x, 7 % x, 6 & x, 6 | x, 6 ^ x, 7 - x])
    values = torch.tensor([1, 2, 3], dtype=torch.int32)
    found = builder.build()(values)
    expected = [[2, 4, 8], [0, 1, 1], [0, 2, 2], [7, 6, 7], [7, 4, 5], [6, 5, 4]]
    assert [t.tolist() for t in found] == expected


def test_equality_builds_an_op_and_keys_are_by_identity() -> None:
    builder = XlaBuilder("program")
    x = builder.parameter(0, Shape.parse("s32[3]"))
    twice = x + x
    assert {x: 1, twice: 2}[twice] == 2
    assert x in {x} - {twice}
    ops.Tuple(builder, [x == 2, operator.eq(2, x), x != 2, np.array([3, 2, 1]) == x, x != np.int32(1), x == twice - 1])
    values = torch.tensor([1, 2, 3], dtype=torch.int32)
    found = [t.tolist() for t in builder.build()(values)]
    assert found == [[n in equal for n in (1, 2, 3)] for equal in ([2], [2], [1, 3], [2], [2, 3], [1])]


D: Any = xla_torch
OF_ENTRY_POINTS: dict[str, tuple[Callable[[], Any], list[str]]] = {
    **{f"{name} of a function": (lambda name=name: getattr(xla_torch, name)(function, *[1] * (name in ("vmap", "rebatch"))
                                                                            , *[1] * (name == "rebatch")),
                                 [name, "not a computation", "from_jax"])
       for name in ("grad", "value_and_grad", "vjp", "jvp", "vmap", "rebatch", "compile")},
    "to_jax of a torch module": (lambda: D.to_jax(torch.nn.Linear(2, 2)), ["to_jax", "Linear", "convert", "from_torch(module"]),
    "compile of a module with weights": (lambda: D.compile(D.nn.XlaModule(computation())), [
        "compile", "pass", "module.computation"]),
    "a torch module's program without weights": (lambda: D.from_torch(torch.nn.Linear(4, 2), X)(X), [
        "wrong number of arguments", "2: weights, input", "pass the weights first", "nn.XlaModule"]),
    "training_step": (lambda: D.training_step(computation(), "adamw"), ["not an optimizer", "training.adamw"]),
    "adamw": (lambda: D.training.adamw("a"), ["adamw: not a learning rate", "'a'", "a number, 0 or more"]),
    "adam": (lambda: D.training.adam(1e-3, 0.9), ["adam: not betas", "0.9", "two numbers"]),
    "sgd": (lambda: D.training.sgd(-0.1), ["sgd: not a learning rate", "-0.1"]),
    "sgd weight decay": (lambda: D.training.sgd(0.1, weight_decay=float("nan")), ["sgd: not a weight decay", "nan"]),
    "Shape": (lambda: D.Shape("f32", [2]), ["'f32', [2]", "Shape.array"]),
    "Shape of a list": (lambda: D.Shape(xla_torch.F32, [2]), ["Shape.array"]),
    "Sharding": (lambda: sharding.Sharding("replicated"), ["'replicated'", "Sharding.parse"]),  # pyright: ignore
    "options": (lambda: D.grad(computation(), 0, 3), ["a GradientOptions"]),
    "shard": (lambda: D.shard(function, "{replicated}", 2), ["shard: not an array"]),
    "unshard": (lambda: D.unshard(X.tolist, "{replicated}"), ["unshard", "a list of arrays"]),
    "unshard numbers": (lambda: D.unshard([1, 2], "{replicated}"), ["unshard: not an array"]),
    "shard_arguments": (lambda: D.shard_arguments(computation(), "a"), ["shard_arguments", "str"]),
    "pack": (lambda: D.pack(X, "f32[4]"), ["not a shape", "Shape.parse"]),
    "pack no tensor": (lambda: D.pack(3, Shape.parse("f32[4]")), ["not a tensor"]),
    "unpack": (lambda: D.unpack(X, 3), ["not a shape"]),
    "Shape.parse": (lambda: D.Shape.parse(3), ["not the text of a shape"]),
    "Shape.tuple": (lambda: D.Shape.tuple(Shape.parse("f32[4]")), ["not a tuple of shapes", "a sequence of Shapes"]),
    "load": (lambda: D.load(3), ["not the path of a file", "parse_hlo"]),
    "from_hlo_proto": (lambda: D.from_hlo_proto("text"), ["an HLO proto must be bytes"]),
    "from_jax": (lambda: D.from_jax(3), ["from_jax: not a function"]),
    "XlaModule": (lambda: D.nn.XlaModule(computation(), parameters=3), ["not the values of parameters"]),
    "register_custom_call": (lambda: D.register_custom_call(3, function), ["must be a string"]),
}


@pytest.mark.parametrize("name", OF_ENTRY_POINTS)
def test_mistakes_at_entry_points(name: str) -> None:
    wrong, words = OF_ENTRY_POINTS[name]
    with pytest.raises(XlaError) as caught:
        wrong()
    assert [word for word in words if word not in str(caught.value)] == []


class Odd:
    """As JAX's PyTreeDef, it compares with nothing else; arrays of NumPy compare by element."""

    def __eq__(self, other: object) -> Any:
        raise TypeError("not comparable")

    __hash__ = None  # pyright: ignore

    def __str__(self) -> str:
        return "PyTreeDef(*)"


@pytest.mark.parametrize("value", [Odd(), np.ones(2), torch.ones(2)])
def test_an_error_shows_whatever_it_got(value: Any) -> None:
    error = InvalidArgument("wrong", got=value, expected=value)
    assert str(error) == f"wrong\n  got       {value}\n  expected  {value}"


@pytest.mark.parametrize(("argument", "is_named"), [
    (torch.ones(5, 3), True), (torch.ones(4, 2), False), (torch.ones(4, 3, 1), False),
    (torch.ones(5, 3, dtype=torch.float64), False)])
def test_rebatch_is_named_where_only_the_batch_differs(argument: torch.Tensor, is_named: bool) -> None:
    program = xla_torch.parse_hlo("HloModule m\nENTRY e { p = f32[4,3] parameter(0) ROOT r = f32[4,3] tanh(p) }")
    with pytest.raises(InvalidArgument, match="wrong shape or dtype") as error:
        program(argument)
    assert ("xla_torch.rebatch(" in str(error.value)) is is_named


@pytest.mark.parametrize(("argument", "messages"), [
    (torch.ones(4, 3, dtype=torch.float64), ".to(torch.float32) converts it"), (torch.ones(4, 3).int(), ".to(torch.float32)"),
    (torch.ones(4, 2, dtype=torch.float64), "")])
def test_a_conversion_is_named_where_only_the_dtype_differs(argument: torch.Tensor, messages: str) -> None:
    program = xla_torch.parse_hlo("HloModule m\nENTRY e { p = f32[4,3] parameter(0) ROOT r = f32[4,3] tanh(p) }")
    with pytest.raises(InvalidArgument) as error:
        program(argument)
    assert messages in error.value.hint
    assert bool(messages) is bool(error.value.hint)


def test_a_module_names_the_conversion_too() -> None:
    program = xla_torch.parse_hlo("HloModule m\nENTRY e { p = s32[4] parameter(0) ROOT r = s32[4] negate(p) }")
    with pytest.raises(InvalidArgument, match=r"has another dtype(.|\n)*\.to\(torch\.int32\) converts it"):
        xla_torch.nn.XlaModule(program)(torch.ones(4))
