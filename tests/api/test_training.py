# pyright: reportCallIssue=false, reportArgumentType=false
"""Training steps as programs: the same numbers as torch.optim, on our side and on real XLA."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from support.oracle import HAS_XLA, run_xla
from xla_torch import BF16, C64, F32, F64, S32, Shape, XlaBuilder, ops, training, training_step
from xla_torch.errors import DifferentiationError, InvalidArgument
from xla_torch.storage.dtypes import torch_dtype
from xla_torch.training import adam, adamw, sgd


def add(element_type):
    builder = XlaBuilder("add")
    scalar = Shape.array(element_type)
    return builder.build(ops.Add(builder.parameter(0, scalar), builder.parameter(1, scalar)))


def loss_program(element_type=F64):
    """The sum of squares of tanh(x w + b)."""
    builder = XlaBuilder("loss")
    w = builder.parameter(0, Shape.array(element_type, (3, 2)), "w")
    b = builder.parameter(1, Shape.array(element_type, (2,)), "b")
    x = builder.parameter(2, Shape.array(element_type, (4, 3)), "x")
    y = ops.Tanh(ops.Add(ops.Dot(x, w), ops.BroadcastInDim(b, [4, 2], [1])))
    return builder.build(ops.Reduce(ops.Mul(y, y), builder.constant(0, element_type), add(element_type), [0, 1]))


def halved_every_step(step):
    return 0.1 * ops.Pow(step * 0.0 + 0.5, step)


OPTIMIZERS = {
    "sgd": (sgd(0.1), lambda p: torch.optim.SGD(p, 0.1)),
    "sgd momentum": (sgd(0.1, momentum=0.9), lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)),
    "sgd nesterov": (sgd(0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
                     lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.1)),
    "sgd dampening": (sgd(0.1, momentum=0.9, dampening=0.5), lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, dampening=0.5)),
    "adam": (adam(0.01, weight_decay=0.1), lambda p: torch.optim.Adam(p, 0.01, weight_decay=0.1)),
    "amsgrad": (adam(0.01, amsgrad=True), lambda p: torch.optim.Adam(p, 0.01, amsgrad=True)),
    "adamw": (adamw(0.01), lambda p: torch.optim.AdamW(p, 0.01)),
    "adamw betas": (adamw(0.01, betas=(0.0, 0.9), eps=1e-3), lambda p: torch.optim.AdamW(p, 0.01, betas=(0.0, 0.9), eps=1e-3)),
}


@pytest.mark.parametrize("element_type", [F64, pytest.param(F32, marks=pytest.mark.slow)], ids=str)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_torch_s(name, element_type):
    optimizer, make = OPTIMIZERS[name]
    random = np.random.RandomState(0)
    w, b, x = (torch.from_numpy(random.randn(*dims)).to(torch_dtype(element_type)) for dims in ((3, 2), (2,), (4, 3)))
    rtol, atol = (1e-10, 1e-10) if element_type is F64 else (1e-3, 1e-4)
    step = training_step(loss_program(element_type), optimizer, argnums=(0, 1))
    state, text = optimizer.init([w, b]), step.to_hlo_text()
    on_xla = [t.numpy() for t in (w, b, *state)]
    theirs = [t.clone().requires_grad_() for t in (w, b)]
    torch_s = make(theirs)
    for _ in range(6):
        torch_s.zero_grad()
        want = torch.tanh(x @ theirs[0] + theirs[1]).square().sum()
        want.backward()
        torch_s.step()
        value, (w, b), state = step(w, b, x, *state)
        torch.testing.assert_close(value, want.detach(), rtol=rtol, atol=atol)
        torch.testing.assert_close([w, b], [t.detach() for t in theirs], rtol=rtol, atol=atol)
        if HAS_XLA:
            _, *on_xla = run_xla(text, *on_xla[:2], x.numpy(), *on_xla[2:])
            np.testing.assert_allclose(on_xla[0], w.numpy(), rtol=rtol, atol=atol)
    assert state[0].item() == 6


def test_one_parameter_and_a_schedule():
    step, w = training_step(loss_program(), sgd(halved_every_step)), torch.ones(3, 2, dtype=torch.float64)
    b, x = torch.zeros(2, dtype=torch.float64), torch.ones(4, 3, dtype=torch.float64)
    state = sgd(halved_every_step).init([w])
    assert len(state) == 1
    for k in range(3):
        own = w.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(torch.tanh(x @ own + b).square().sum(), own)
        _, w, state = step(w, b, x, *state)
        torch.testing.assert_close(w, own.detach() - 0.1 * 0.5**k * gradient)


def test_narrow_parameters_are_updated_in_f32():
    optimizer = adamw(0.01)
    w, b, x = torch.ones(3, 2).bfloat16(), torch.zeros(2).bfloat16(), torch.ones(4, 3).bfloat16()
    _, w, state = training_step(loss_program(BF16), optimizer)(w, b, x, *optimizer.init([w]))
    assert w.dtype is torch.bfloat16
    assert [s.dtype for s in state] == [torch.int32, torch.bfloat16, torch.bfloat16]


def test_an_optimizer_of_one_s_own():
    """Sign descent that remembers the last sign."""
    def rule(parameter, gradient, kept, step):
        return parameter - 0.1 * ops.Sign(gradient), [ops.Sign(gradient)]

    optimizer = training.Optimizer(rule, 1)
    w, b, x = (torch.ones(*dims, dtype=torch.float64) for dims in ((3, 2), (2,), (4, 3)))
    _, after, (_, sign) = training_step(loss_program(), optimizer)(w, b, x, *optimizer.init([w]))
    torch.testing.assert_close(after, w - 0.1)
    torch.testing.assert_close(sign, w)


def test_a_tuple_of_parameters():
    builder = XlaBuilder("loss")
    pair = builder.parameter(0, Shape.tuple([Shape.array(F32, (2,)), Shape.array(F32, (2,))]), "pair")
    product = ops.Mul(*(ops.GetTupleElement(pair, k) for k in range(2)))
    loss = builder.build(ops.Reduce(product, builder.constant(0.0), add(F32), [0]))
    _, (first, second), state = training_step(loss, sgd(0.5))((torch.ones(2), torch.full((2,), 2.0)), *sgd(0.5).init([]))
    assert (first.tolist(), second.tolist(), len(state)) == ([0, 0], [1.5, 1.5], 1)


def test_what_cannot_be_trained():
    builder = XlaBuilder("loss")
    z, n = builder.parameter(0, Shape.array(C64)), builder.parameter(1, Shape.array(S32))
    loss = builder.build(ops.Add(ops.Abs(z), ops.ConvertElementType(n, F32)))
    with pytest.raises(InvalidArgument, match="real floating arrays"):
        training_step(loss, sgd())
    with pytest.raises(DifferentiationError, match=r"parameter 1 .p1. has no gradient"):
        training_step(loss, sgd(), 1)
    with pytest.raises(InvalidArgument, match="nesterov needs momentum"):
        sgd(nesterov=True)
