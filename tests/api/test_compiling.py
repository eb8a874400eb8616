"""`compile`: a program run by a backend of torch.compile's is called, refuses and differentiates like the program."""

from __future__ import annotations

import gc
import pickle
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import func
from torch.autograd import forward_ad
from torch.testing import assert_close

import xla_torch
from support.torch_programs import build, check_gradients, complex_square, dense, f64, random_branch, several
from xla_torch import F32, training
from xla_torch.errors import DeviceError, DifferentiationError, InvalidArgument

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script.*")  # torch's own, in forward mode

X, W = f64(4, 3).detach(), f64(3, 2).detach()
DENSE = build(dense, (4, 3), (3, 2))


def reference(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x @ w)


class Counting:
    """A backend that runs what it gets as it is, and counts what it was given."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, module: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        self.graphs += 1
        return module.forward


@pytest.fixture
def backend() -> Iterator[Counting]:
    yield Counting()
    torch.compiler.reset()


def test_results(backend: Counting):
    compiled = xla_torch.compile(DENSE, backend)
    assert_close(compiled(X, W), reference(X, W))
    assert_close(compiled(X, W), DENSE(X, W))
    assert backend.graphs == 1
    assert xla_torch.compile(DENSE, "eager") is DENSE
    assert xla_torch.compile(compiled, backend) is compiled


LOOP = """HloModule m
body { t = (s32[], f64[4]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  x = f64[4] get-tuple-element(t), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f64[4] sine(x)
  ROOT r = (s32[], f64[4]) tuple(j, y) }
more { t = (s32[], f64[4]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = s32[] constant(12)
  ROOT l = pred[] compare(i, n), direction=LT }
ENTRY e { p = f64[4] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f64[4]) tuple(zero, p)
  w = (s32[], f64[4]) while(t), condition=more, body=body
  ROOT r = f64[4] get-tuple-element(w), index=1 }"""


def test_a_loop_is_compiled_whole(backend: Counting):
    program = xla_torch.parse_hlo(LOOP)
    assert_close(xla_torch.compile(program, backend)(X[:, 0]), program(X[:, 0]))
    assert backend.graphs == 1


def test_the_way_back_is_compiled_too(backend: Counting):
    compiled = xla_torch.compile(DENSE, backend)
    x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
    for _ in range(2):
        found = torch.autograd.grad(compiled(x, w).square().sum(), (x, w))
        assert_close(found, torch.autograd.grad(reference(x, w).square().sum(), (x, w)))
        assert backend.graphs == 2  # forward and backward, once


@pytest.mark.parametrize("row", [
    (dense, (2, 3), (3, 4)), (complex_square, (3,), (3,)), (several, (3,), (3,))], ids=["dense", "complex", "several"])
def test_gradcheck(row: tuple[Any, ...]):
    function, *dims = row
    compiled = xla_torch.compile(build(function, *dims), "aot_eager")
    inputs = tuple(f64(*d, seed=k) for k, d in enumerate(dims))
    check_gradients(compiled, inputs)
    torch.compiler.reset()


def gradient_penalty(function: Callable[..., torch.Tensor]) -> tuple[torch.Tensor, ...]:
    x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
    (g,) = torch.autograd.grad(function(x, w).sum(), x, create_graph=True)
    return torch.autograd.grad(g.square().sum(), (x, w))


def tangent(function: Callable[..., torch.Tensor]) -> torch.Tensor | None:
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(function(forward_ad.make_dual(X, X.cos()), W)).tangent


ENTRY_POINTS: dict[str, Callable[[Callable[..., Any]], Any]] = {
    "create_graph": gradient_penalty,
    "forward mode": tangent,
    "grad": lambda f: func.grad(lambda x: f(x, W).sum())(X),
    "vjp": lambda f: func.vjp(f, X, W)[1](X @ W),
    "jvp": lambda f: func.jvp(f, (X, W), (X, W)),
    "jacrev": lambda f: func.jacrev(f)(X, W),
    "hessian": lambda f: func.hessian(lambda x: f(x, W).sum())(X),
    "vmap": lambda f: func.vmap(f, (0, None))(torch.stack([X, -X]), W),
    "vmap of grad": lambda f: func.vmap(func.grad(lambda x, w: f(x, w).sum()), (0, None))(torch.stack([X, -X]), W),
}


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
def test_transforms_of_torch(entry_point: str, backend: Counting):
    assert_close(ENTRY_POINTS[entry_point](xla_torch.compile(DENSE, backend)), ENTRY_POINTS[entry_point](reference))
    assert backend.graphs


def test_derived_programs_are_compiled(backend: Counting):
    compiled = xla_torch.compile(DENSE, backend)
    assert_close(xla_torch.vjp(compiled)(X, W, X @ W), xla_torch.vjp(DENSE)(X, W, X @ W))
    assert_close(xla_torch.vmap(compiled, 2)(X.expand(2, 4, 3), W.expand(2, 3, 2)), reference(X, W).expand(2, 4, 2))
    assert backend.graphs == 2


WRONG: list[tuple[Any, ...]] = [(X,), (X, W, W), (X.float(), W), (X.T, W), (X, "w"), (X, W.to("meta"))]


@pytest.mark.parametrize("arguments", WRONG, ids=["few", "many", "dtype", "shape", "no tensor", "devices"])
def test_wrong_arguments_are_refused_as_by_the_program(arguments: tuple[Any, ...], backend: Counting):
    with pytest.raises((InvalidArgument, DeviceError)) as expected:
        DENSE(*arguments)
    with pytest.raises(type(expected.value)) as found:
        xla_torch.compile(DENSE, backend)(*arguments)
    assert str(found.value) == str(expected.value)
    assert backend.graphs == 0


def test_an_op_without_gradient_is_refused_on_the_way_back(backend: Counting):
    x = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
    noisy, sine = xla_torch.compile(random_branch(), backend)(x)
    assert_close(torch.autograd.grad(sine.sum(), x, retain_graph=True)[0], x.cos())
    with pytest.raises(DifferentiationError, match="random numbers"):
        noisy.sum().backward()


def test_what_is_not_a_computation_is_refused():
    with pytest.raises(InvalidArgument, match="not a computation"):
        xla_torch.compile(lambda x: x)  # pyright: ignore[reportArgumentType]


def test_a_compiled_program_says_so_and_can_be_pickled():
    compiled = xla_torch.compile(DENSE, "aot_eager")
    assert repr(compiled).endswith("; compiled by aot_eager)")
    again = pickle.loads(pickle.dumps(compiled))
    assert repr(again) == repr(compiled)
    assert compiled.to_hlo_text() == DENSE.to_hlo_text()
    assert compiled.python_code() == DENSE.python_code()


def test_options_and_modules_keep_the_backend(backend: Counting):
    compiled = xla_torch.compile(DENSE, backend).with_gradient_options(xla_torch.GradientOptions(loop_checkpoint=None))
    module = xla_torch.nn.XlaModule(compiled, {1: W})
    module(X).sum().backward()
    (weights,) = module.parameters()
    assert_close(weights.grad, torch.autograd.grad(reference(X, w := W.clone().requires_grad_()).sum(), w)[0])
    assert backend.graphs == 2


@pytest.mark.slow  # inductor builds C++
@pytest.mark.filterwarnings("ignore")  # of torch.compile's own
def test_inductor():
    program = build(dense, (4, 3), (3, 2), element_type=F32)
    compiled = xla_torch.compile(program, "inductor")
    x, w = X.float().requires_grad_(), W.float().requires_grad_()
    assert_close(compiled(x, w), reference(x, w))
    assert_close(torch.autograd.grad(compiled(x, w).sum(), (x, w)), torch.autograd.grad(reference(x, w).sum(), (x, w)))
    torch.compiler.reset()


# ------------------------------------------------------------------------------------------------ one normal form


def test_a_derived_program_is_not_rewritten_again(monkeypatch: pytest.MonkeyPatch):
    """A program is brought into canonical form once, and what is derived from it has that form already."""
    from xla_torch.transform import canonical, expand_custom_calls

    rewritten: list[str] = []

    def counted(rebuilt: Callable[..., Any]) -> Callable[..., Any]:
        def call(computation: Any, rewriter: Any) -> Any:
            rewritten.append(computation.name)
            return rebuilt(computation, rewriter)
        return call

    for module in (canonical, expand_custom_calls):
        monkeypatch.setattr(module, "rebuilt", counted(module.rebuilt))
    loss = xla_torch.parse_hlo(LOSS)
    assert rewritten == []
    w, x = f64(2, 3), f64(3, 2)
    loss(w.detach(), x.detach())
    assert rewritten == ["entry"]
    gradient_of_gradient, = torch.autograd.grad(torch.autograd.grad(loss(w, x), w, create_graph=True)[0].sum(), x)
    assert gradient_of_gradient.shape == x.shape
    func.vmap(func.grad(loss), (0, None))(w.detach().expand(5, 2, 3), x.detach())
    xla_torch.vmap(xla_torch.grad(xla_torch.jvp(loss, 0), 0), 4)(
        *(t.detach().expand(4, *t.shape) for t in (w, x, w)))
    optimizer = training.adamw()
    xla_torch.training_step(loss, optimizer)(w.detach(), x.detach(), *optimizer.init([w.detach()]))
    assert rewritten == ["entry"]


LOSS = """HloModule loss
add { a = f64[] parameter(0) b = f64[] parameter(1) ROOT c = f64[] add(a, b) }
layer {
  w = f64[2,3]{1,0} parameter(0)
  x = f64[3,2]{1,0} parameter(1)
  y = f64[2,2]{1,0} dot(w, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = f64[2,2]{1,0} tanh(y)
}
condition {
  c = (s64[], f64[2,3]{1,0}, f64[]) parameter(0)
  k = s64[] get-tuple-element(c), index=0
  three = s64[] constant(3)
  ROOT less = pred[] compare(k, three), direction=LT
}
body {
  c = (s64[], f64[2,3]{1,0}, f64[]) parameter(0)
  k = s64[] get-tuple-element(c), index=0
  w = f64[2,3]{1,0} get-tuple-element(c), index=1
  total = f64[] get-tuple-element(c), index=2
  zero = f64[] constant(0)
  sum = f64[] reduce(w, zero), dimensions={0,1}, to_apply=add
  one = s64[] constant(1)
  next = s64[] add(k, one)
  square = f64[] multiply(sum, sum)
  more = f64[] add(total, square)
  ROOT r = (s64[], f64[2,3]{1,0}, f64[]) tuple(next, w, more)
}
ENTRY entry {
  w = f64[2,3]{1,0} parameter(0)
  x = f64[3,2]{1,0} parameter(1)
  y = f64[2,2]{1,0} call(w, x), to_apply=layer
  zero = f64[] constant(0)
  sum = f64[] reduce(y, zero), dimensions={0,1}, to_apply=add
  k = s64[] constant(0)
  first = (s64[], f64[2,3]{1,0}, f64[]) tuple(k, w, sum)
  last = (s64[], f64[2,3]{1,0}, f64[]) while(first), condition=condition, body=body
  ROOT total = f64[] get-tuple-element(last), index=2
}
"""


def test_a_program_that_has_run_is_freed_without_garbage_collection():
    square = xla_torch.parse_hlo("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] multiply(x, x) }")
    square(torch.ones(2))
    program = weakref.ref(square.program)
    gc.disable()
    try:
        del square
        assert program() is None
    finally:
        gc.enable()
