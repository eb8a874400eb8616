"""The bridge to torch.autograd: a program as one differentiable function."""

from __future__ import annotations

import threading

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import xla_torch
from support.counting import Counted
from support.kept import everything_kept
from support.torch_programs import build, complex_square, dense, f64, random_branch, several
from xla_torch import F32, F64, Shape, XlaBuilder, ops
from xla_torch.errors import DifferentiationError

CHECKED = [(dense, (2, 3), (3, 4)), (lambda x, y: ops.Div(ops.Sin(x), ops.Exp(y)), (3,), (3,)),
           (complex_square, (3,), (3,)), (lambda x, y: [ops.Mul(x, y), ops.Sub(x, y)], (2, 2), (2, 2))]


@pytest.mark.parametrize("row", CHECKED, ids=["dense", "elementwise", "complex", "tuple"])
def test_gradcheck(row):
    function, *dims = row
    computation, inputs = build(function, *dims), tuple(f64(*d, seed=k) for k, d in enumerate(dims))
    assert gradcheck(computation, inputs)
    assert gradgradcheck(computation, inputs)


def test_gradients_are_torch_s():
    computation = build(dense, (4, 3), (3, 2))
    x, w = f64(4, 3), f64(3, 2)
    ours = torch.autograd.grad(computation(x, w).square().sum(), (x, w))
    theirs = torch.autograd.grad(torch.tanh(x @ w).square().sum(), (x, w))
    torch.testing.assert_close(ours, theirs)


def test_one_node_for_the_whole_program():
    result = build(dense, (4, 3), (3, 2))(f64(4, 3), f64(3, 2))
    assert result.grad_fn.name() == "_ProgramBackward"
    assert all(f is None or f.name() == "torch::autograd::AccumulateGrad" for f, _ in result.grad_fn.next_functions)


def test_results_without_gradient_are_marked():
    product, integers, sine, greater = build(several, (3,), (3,))(f64(3), f64(3, seed=1))
    assert [o.requires_grad for o in (product, integers, sine, greater)] == [True, False, True, False]


def test_results_that_do_not_depend_on_what_requires_grad():
    computation = build(several, (3,), (3,))
    product, _, sine, _ = computation(f64(3), f64(3, seed=1).detach())
    assert product.requires_grad
    assert not sine.requires_grad


@pytest.mark.parametrize("which", [(0,), (1,), (0, 1)])
def test_only_some_results_are_used(which):
    x, y = f64(3), f64(3, seed=1)
    product, _, sine, _ = build(several, (3,), (3,))(x, y)
    ours, theirs = (product, sine), (x * y.exp(), y.sin())
    found, want = (torch.autograd.grad([results[k].sum() for k in which], (x, y), allow_unused=True)
                   for results in (ours, theirs))
    for a, b in zip(found, want, strict=True):
        torch.testing.assert_close(torch.zeros_like(x) if a is None else a, torch.zeros_like(x) if b is None else b)


def test_only_some_inputs_require_grad():
    x, w = f64(4, 3).detach(), f64(3, 2)
    build(dense, (4, 3), (3, 2))(x, w).sum().backward()
    assert x.grad is None
    assert w.grad is not None


def test_gradients_of_a_chosen_input():
    computation, x, w = build(dense, (4, 3), (3, 2)), f64(4, 3), f64(3, 2)
    (found,) = torch.autograd.grad(computation(x, w).sum(), w)
    torch.testing.assert_close(found, torch.autograd.grad(torch.tanh(x @ w).sum(), w)[0])


def test_no_grad_records_nothing():
    with torch.no_grad():
        assert not build(dense, (4, 3), (3, 2))(f64(4, 3), f64(3, 2)).requires_grad


def test_backward_twice():
    computation, x, w = build(dense, (4, 3), (3, 2)), f64(4, 3), f64(3, 2)
    loss = computation(x, w).sum()
    loss.backward(retain_graph=True)
    once = x.grad
    assert once is not None
    once = once.clone()
    loss.backward()
    torch.testing.assert_close(x.grad, 2 * once)
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


@pytest.mark.parametrize("victim", ["input", "result"])
def test_a_tensor_changed_in_place_is_noticed(victim):
    x = f64(3)
    leaf = x * 1
    result = build(lambda x: ops.Exp(ops.Mul(x, x)), (3,))(leaf)
    with torch.no_grad():
        (leaf if victim == "input" else result).add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def test_results_may_be_changed_in_place():
    x = f64(3)
    result = build(lambda x: ops.Add(x, x), (3,))(x)
    result.mul_(3)
    result.sum().backward()
    torch.testing.assert_close(x.grad, torch.full((3,), 6.0, dtype=torch.float64))


def test_chained_programs():
    x, w = f64(4, 3), f64(3, 3)
    computation = build(dense, (4, 3), (3, 3))
    ours = torch.autograd.grad(computation(computation(x, w).relu(), w).sum(), w)
    theirs = torch.autograd.grad(torch.tanh(torch.tanh(x @ w).relu() @ w).sum(), w)
    torch.testing.assert_close(ours, theirs)


def test_gradient_penalty():
    x, w = f64(4, 3), f64(3, 2)

    def penalty(function):
        (g,) = torch.autograd.grad(function(x, w).sum(), x, create_graph=True)
        return torch.autograd.grad(g.square().sum(), (x, w))

    torch.testing.assert_close(penalty(build(dense, (4, 3), (3, 2))), penalty(lambda x, w: torch.tanh(x @ w)))


def test_third_derivative():
    x = f64(3)
    y = build(lambda x: ops.Sin(ops.Mul(x, x)), (3,))(x)
    reference = torch.sin(x * x)
    for _ in range(3):
        (y,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        (reference,) = torch.autograd.grad(reference.sum(), x, create_graph=True)
    torch.testing.assert_close(y, reference)


def test_programs_are_derived_once():
    computation, x, w = build(dense, (4, 3), (3, 2)), f64(4, 3), f64(3, 2)
    computation(x, w).sum().backward()
    derived = everything_kept(computation.program)
    assert len(derived) > 4
    computation(x, w).sum().backward()
    assert everything_kept(computation.program) == derived


def test_many_threads():
    computation = build(dense, (4, 3), (3, 2))
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            x, w = f64(4, 3, seed=seed), f64(3, 2, seed=seed)
            found = torch.autograd.grad(computation(x, w).sum(), (x, w))
            torch.testing.assert_close(found, torch.autograd.grad(torch.tanh(x @ w).sum(), (x, w)))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_an_op_without_gradient_is_an_error_only_on_the_way_back():
    x = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
    noisy, sine = random_branch()(x)
    assert noisy.sum() > 9
    (found,) = torch.autograd.grad(sine.sum(), x, retain_graph=True)
    torch.testing.assert_close(found, x.cos())
    with pytest.raises(DifferentiationError, match="random numbers"):
        noisy.sum().backward()


def test_integer_inputs_pass_through():
    builder = XlaBuilder("pick")
    x, start = builder.parameter(0, Shape.array(F32, (5,))), builder.parameter(1, Shape.array(xla_torch.S32, ()))
    computation = builder.build(ops.DynamicSlice(x, [start], [2]))
    x = torch.arange(5.0, requires_grad=True)
    computation(x, torch.tensor(2, dtype=torch.int32)).sum().backward()
    torch.testing.assert_close(x.grad, torch.tensor([0.0, 0, 1, 1, 0]))


def saved_count(result: torch.Tensor) -> int:
    return len(getattr(result.grad_fn, "saved_tensors", ()))


def test_cheap_values_are_not_kept():
    def function(x):  # the mask of relu is computed again from x, which is kept anyway
        zero = ops.Broadcast(x.builder.constant(0.0, F64), x.shape.dimensions)
        return ops.Select(ops.Gt(x, zero), x, zero)

    assert saved_count(build(function, (3,))(f64(3))) == 1
    assert saved_count(build(ops.Exp, (3,))(f64(3))) == 2
    assert saved_count(build(lambda x: ops.Mul(ops.Exp(ops.Sin(x)), x), (3,))(f64(3))) == 2


def test_arithmetic_on_large_arrays_is_done_again():
    def function(x):
        return ops.Mul(ops.Sin(ops.Mul(x, x)), x)

    assert saved_count(build(function, (3,))(f64(3))) > 1
    x = f64(256, 256)
    result = build(function, (256, 256))(x)
    assert saved_count(result) == 1
    (found,) = torch.autograd.grad(result.sum(), x)
    torch.testing.assert_close(found, torch.autograd.grad((torch.sin(x * x) * x).sum(), x)[0])


def test_what_is_kept_is_freed_while_the_way_back_runs():
    """At most twice a layer's arrays beyond what the forward pass kept, of which the last layers' are gone at the end."""
    layers, side = 8, 256

    def function(x):
        for _ in range(layers):
            x = ops.Tanh(ops.Dot(x, x))
        return x

    computation, x, ct = build(function, (side, side)), f64(side, side), torch.ones(side, side, dtype=torch.float64)
    peak = Counted.of(lambda: torch.autograd.grad(computation(x), x, ct)).peak
    assert peak <= (layers + 4) * side * side * 8
    result = computation(x)
    once = torch.autograd.grad(result, x, ct, retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(result, x, ct), once)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(result, x, ct)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu():
    computation = build(dense, (4, 3), (3, 2))
    x, w = f64(4, 3).detach().cuda().requires_grad_(), f64(3, 2).detach().cuda().requires_grad_()
    ours = torch.autograd.grad(computation(x, w).sum(), (x, w))
    torch.testing.assert_close(ours, torch.autograd.grad(torch.tanh(x @ w).sum(), (x, w)))


def test_a_cotangent_that_is_a_gradient_is_not_copied() -> None:
    program = xla_torch.from_torch(torch.add, torch.ones(2, 3), torch.ones(2, 3))
    x, y, ct = (torch.randn(2, 3) for _ in range(3))
    found = torch.autograd.grad(program(x.requires_grad_(), y.requires_grad_()), [x, y], ct, retain_graph=True)
    assert [g.data_ptr() for g in found] == [ct.data_ptr()] * 2
    program(x, y).backward(ct)
    x.grad.zero_()  # pyright: ignore[reportOptionalMemberAccess]
    torch.testing.assert_close(y.grad, ct)
    assert ct.count_nonzero() == 6
    (wide,) = torch.autograd.grad(program(x, y).sum(), [x])
    assert wide.is_contiguous()
    assert torch.equal(wide, torch.ones(2, 3))
