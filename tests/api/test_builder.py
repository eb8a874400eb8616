# pyright: reportCallIssue=false, reportArgumentType=false
"""XlaBuilder and XlaOp: building, Python operators, lifting of numbers, errors, and documented functions on tensors."""

import operator

import numpy as np
import pytest
import torch

import xla_torch
from xla_torch import F32, S32, U32, Shape, XlaBuilder, ops
from xla_torch.distributed import feeds
from xla_torch.errors import InvalidArgument
from xla_torch.functions import _documented
from xla_torch.functions.hlo_builder import lift, region_of

F = Shape.array(F32, [3])


def two_parameters(element_type=F32):
    builder = XlaBuilder("b")
    shape = Shape.array(element_type, [3])
    return builder, ops.Parameter(builder, 0, shape, "x"), ops.Parameter(builder, 1, shape, "y")


OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.mod, operator.pow, operator.lt, operator.le,
             operator.gt, operator.ge]


@pytest.mark.parametrize("function", OPERATORS)
def test_python_operators_build_the_op(function):
    builder, x, y = two_parameters()
    computation = builder.build(function(x, y))
    a, b = torch.tensor([1.0, 2.5, 3.0]), torch.tensor([0.5, 2.5, 4.0])
    want = torch.fmod(a, b) if function is operator.mod else function(a, b)
    torch.testing.assert_close(computation(a, b), want)


@pytest.mark.parametrize("function", [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift])
def test_integer_operators(function):
    builder, x, y = two_parameters(S32)
    computation = builder.build(function(x, y))
    a, b = torch.tensor([-5, 6, 7], dtype=torch.int32), torch.tensor([1, 2, 3], dtype=torch.int32)
    assert torch.equal(computation(a, b), function(a, b))


def test_right_shift_of_unsigned_is_logical():
    builder, x, y = two_parameters(U32)
    a = np.array([2**31, 2**32 - 1, 5], np.uint32)
    (got,) = builder.build(x >> y).run_numpy(a, np.array([31, 4, 1], np.uint32))
    assert got.tolist() == [1, 2**28 - 1, 2]


@pytest.mark.parametrize(("function", "want"), [
    (lambda x: 2 - x, [1.0, 0.0, -1.0]), (lambda x: 1 / x, [1.0, 0.5, 1 / 3]), (lambda x: 3 * x + 1, [4.0, 7.0, 10.0]),
    (lambda x: -x, [-1.0, -2.0, -3.0]), (abs, [1.0, 2.0, 3.0]), (lambda x: x**2, [1.0, 4.0, 9.0]),
])
def test_numbers_beside_an_op_take_its_type(function, want):
    builder, x, _ = two_parameters()
    result = function(x)
    assert result.element_type is F32
    torch.testing.assert_close(builder.build(result)(torch.tensor([1.0, 2.0, 3.0]), torch.zeros(3)), torch.tensor(want))


def test_an_op_has_no_truth_value():
    _, x, y = two_parameters()
    with pytest.raises(TypeError, match=r"ops\.Select"):
        bool(x < y)


def test_a_built_program_and_its_text_are_the_same():
    builder, x, y = two_parameters()
    computation = builder.build(ops.Max(x * y, x) + 1.5)
    again = xla_torch.parse_hlo(computation.to_hlo_text())
    a, b = torch.randn(3), torch.randn(3)
    assert torch.equal(computation(a, b), again(a, b))
    assert str(computation.program_shape) == str(again.program_shape) == "(x: f32[3], y: f32[3]) -> f32[3]"


def test_parameters_that_nothing_uses_are_kept():
    builder, x, _ = two_parameters()
    assert len(builder.build(ops.Neg(x)).program_shape.parameters) == 2


ERRORS = [
    ("foreign op", lambda b, x, y: ops.Add(x, two_parameters()[1]), ["operand 1", "another builder"]),
    ("number taken", lambda b, x, y: ops.Parameter(b, 0, F, "z"), ["parameter 0 already registered"]),
    ("types differ", lambda b, x, y: ops.Add(x, ops.ConvertElementType(y, S32)), ["add", "f32[3]", "s32[3]"]),
    ("not an op", lambda b, x, y: b.add("add", [x, "y"]), ["operand 1 is not an XlaOp", "str"]),
    ("unknown opcode", lambda b, x, y: b.add("addd", [x, y]), ["unknown opcode 'addd'", "add"]),
    ("unknown attribute", lambda b, x, y: b.add("add", [x, y], {"color": 1}), ["unexpected attribute 'color'"]),
    ("missing attribute", lambda b, x, y: b.add("transpose", [x]), ["'dimensions' is expected"]),
    ("operand count", lambda b, x, y: b.add("add", [x]), ["wrong number of operands", "add(lhs, rhs)"]),
    ("no computation", lambda b, x, y: ops.Call(b, "f", [x]), ["wrong kind", "'f'", "a function of XlaOps"]),
]


@pytest.mark.parametrize(("build", "words"), [row[1:] for row in ERRORS], ids=[row[0] for row in ERRORS])
def test_errors_come_at_once_and_name_the_op(build, words):
    with pytest.raises((InvalidArgument, xla_torch.errors.UnsupportedError)) as caught:
        build(*two_parameters())
    for word in words:
        assert word in str(caught.value)


def test_parameter_numbers_must_be_dense():
    builder = XlaBuilder("b")
    ops.Parameter(builder, 1, F, "x")
    with pytest.raises(InvalidArgument, match="not dense"):
        builder.build()
    with pytest.raises(InvalidArgument, match="nothing was built"):
        XlaBuilder("empty").build()


def test_lift_and_region_of():
    builder, x, _ = two_parameters()
    assert lift(builder, x, x) is x
    assert lift(builder, 3, x).shape == Shape.array(F32)
    assert lift(builder, np.array([1, 2], np.int32), S32).shape == Shape.array(S32, [2])
    inner = XlaBuilder("f")
    ops.Neg(ops.Parameter(inner, 0, F, "x"))
    computation = inner.build()
    assert region_of(computation) is computation.module.entry


# ------------------------------------------------------------------------------ documented functions on tensors


def test_functions_run_on_tensors_at_once():
    a, b = torch.tensor([1.0, -2.0]), torch.tensor([3.0, 4.0])
    assert ops.Add(a, b).tolist() == [4.0, 2.0]
    assert ops.Mul(a, 2.0).tolist() == [2.0, -4.0]
    assert ops.Div(a, -0.0).tolist() == [-float("inf"), float("inf")]
    assert ops.Div(a, 0.0).tolist() == [float("inf"), -float("inf")], "0.0 is not the cached -0.0"
    feeds.feed(a)
    assert ops.Infeed(Shape.parse("f32[2]{0}")).tolist() == [1.0, -2.0]
    with pytest.raises(InvalidArgument, match="must have a layout"):  # though it is an equal shape
        ops.Infeed(Shape.parse("f32[2]"))
    assert ops.ConcatInDim(None, [a, b], 0).tolist() == [1.0, -2.0, 3.0, 4.0]
    assert ops.ConcatInDim([a, b], 0).tolist() == [1.0, -2.0, 3.0, 4.0]


def test_the_builder_is_that_of_the_operands():
    builder, x, y = two_parameters()
    joined = ops.ConcatInDim([x, y], 0)
    assert joined.builder is builder
    for given in (ops.Tuple([x, y]), ops.Map([x, 2.0], builder_of_a_sum().build(), [0]), ops.RngUniform(0, ops.ReduceAll(
            x, 0.0, builder_of_a_sum().build()), F)):
        assert given.builder is builder
    assert ops.RngUniform(0.0, 1.0, F, builder=builder).builder is builder
    assert ops.Iota(builder, F, 0).builder is ops.Iota(shape=F, iota_dimension=0, builder=builder).builder is builder


def builder_of_a_sum():
    inner = XlaBuilder("sum")
    ops.Add(*(ops.Parameter(inner, k, Shape.array(F32), f"p{k}") for k in range(2)))
    return inner


def test_functions_without_operands_run_on_the_default_device():
    assert ops.Iota(F, 0).device == torch.get_default_device()
    first, second = ops.RngUniform(0.0, 1.0, F), ops.RngUniform(0.0, 1.0, F)
    assert not torch.equal(first, second), "numbers are drawn at each call, though the program is cached"


def test_gradients_flow_through_functions_on_tensors():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    ops.Mul(x, ops.Exp(x)).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, torch.exp(x.detach()) * (1 + x.detach()))


def test_errors_of_functions_on_tensors_are_the_same():
    with pytest.raises(InvalidArgument, match="add"):
        ops.Add(torch.zeros(2), torch.zeros(3))


# ------------------------------------------------------------------------------------------- calls that have been seen

X = torch.tensor([[1.001, 2.0], [3.0, 4.0]])
W = torch.tensor([[0.5, 1.25], [2.0, -1.0]])


def product(x):
    return ops.Dot(x, W)


def gradient():
    x = X.clone().requires_grad_()
    product(x).sum().backward()
    return x.grad


def tangent():
    return torch.func.jvp(product, (X,), (torch.ones(2, 2),))[1]


def under(context, function):
    with context:
        return function()


SUMS = W.sum(1).expand(2, 2)


SEEN_CALLS = {
    "again": (lambda: product(X), X @ W),
    "other values": (lambda: product(X + 1), (X + 1) @ W),
    "another shape": (lambda: product(X[:1]), X[:1] @ W),
    "another type": (lambda: ops.Dot(X.double(), W.double()), X.double() @ W.double()),
    "a number": (lambda: ops.Mul(X, 2.0), X * 2),
    "requires grad": (gradient, SUMS),
    "tangents": (tangent, torch.ones(2, 2) @ W),
    "torch.func.grad": (lambda: torch.func.grad(lambda x: product(x).sum())(X), SUMS),
    "torch.func.vmap": (lambda: torch.func.vmap(product)(torch.stack([X, X + 1])), torch.stack([X, X + 1]) @ W),
    "autocast": (lambda: under(torch.autocast("cpu", torch.bfloat16), lambda: product(X)), X @ W),
    "inference mode": (lambda: under(torch.inference_mode(), lambda: product(X)), X @ W),
    "no grad": (lambda: under(torch.no_grad(), lambda: product(X.clone().requires_grad_())), X @ W),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*")  # torch's own, in forward mode
@pytest.mark.parametrize("name", SEEN_CALLS)
def test_a_call_that_has_been_seen_is_the_same_in_every_mode(name):
    call, want = SEEN_CALLS[name]
    for _ in range(2):
        product(X)
        torch.testing.assert_close(call(), want)
    torch.testing.assert_close(product(X), X @ W)


def test_a_call_that_has_been_seen_goes_straight_to_torch(monkeypatch):
    product(X)
    monkeypatch.setattr(_documented._immediate, "run", None)
    torch.testing.assert_close(product(X), X @ W)
    with pytest.raises(TypeError, match="NoneType"):
        product(X.double())
