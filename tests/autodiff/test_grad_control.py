"""Gradients of what has no numbers of its own: random numbers, dynamic sizes, copies in two halves, custom calls."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import xla_torch
from xla_torch import Shape, ops
from xla_torch.api.custom_calls import unregister_custom_call


def load(body: str, signature: str) -> xla_torch.XlaComputation:
    return xla_torch.parse_hlo(f"HloModule m\n\nENTRY e {signature} {{\n{body}\n}}\n")


def pull(program: xla_torch.XlaComputation, *arguments: torch.Tensor) -> list[torch.Tensor]:
    return list(xla_torch.vjp(program)(*arguments))


IDENTITIES = {
    "copy in two halves": """
  x = f32[3] parameter(0)
  s = (f32[3], f32[3], u32[]) copy-start(x)
  ROOT d = f32[3] copy-done(s)""",
    "add-dependency": """
  x = f32[3] parameter(0)
  t = token[] after-all()
  ROOT d = f32[3] add-dependency(x, t)""",
    "opt-barrier": """
  x = f32[3] parameter(0)
  ROOT d = f32[3] opt-barrier(x)""",
    "domain": """
  x = f32[3] parameter(0)
  ROOT d = f32[3] domain(x), domain={kind="sharding", entry={maximal device=0}, exit={maximal device=1}}""",
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_identities(name: str) -> None:
    ct = torch.tensor([1.0, 2.0, 3.0])
    (found,) = pull(load(IDENTITIES[name], "(x: f32[3]) -> f32[3]"), torch.zeros(3), ct)
    torch.testing.assert_close(found, ct)


# ------------------------------------------------------------------------------------------------------ random numbers


@pytest.mark.parametrize("distribution", [ops.RngUniform, ops.RngNormal], ids=["uniform", "normal"])
def test_random_numbers_move_with_their_parameters(distribution) -> None:
    """The gradient is that of the numbers that were drawn: sum of (value - shift) / scale, and the rest."""
    a, b = torch.tensor(1.0, requires_grad=True), torch.tensor(3.0, requires_grad=True)
    out = distribution(a, b, Shape.parse("f32[50]"))
    weight = torch.linspace(0, 1, 50)
    first, second = torch.autograd.grad((out * weight).sum(), (a, b))
    noise = (out.detach() - 1) / (2 if distribution is ops.RngUniform else 3)
    shift = weight * (1 - noise) if distribution is ops.RngUniform else weight
    torch.testing.assert_close(first, shift.sum())
    torch.testing.assert_close(second, (weight * noise).sum())


def test_random_numbers_without_width() -> None:
    """Where nothing was random there is no NaN."""
    a = torch.tensor(2.0, requires_grad=True)
    (found,) = torch.autograd.grad(ops.RngUniform(a, a, Shape.parse("f32[4]")).sum(), a)
    assert found.item() == 4.0
    s = torch.tensor(0.0, requires_grad=True)
    (found,) = torch.autograd.grad(ops.RngNormal(torch.tensor(1.0), s, Shape.parse("f32[4]")).sum(), s)
    assert found.item() == 0.0


# ------------------------------------------------------------------------------------------------------- dynamic sizes


def test_smaller_size() -> None:
    """What set-dimension-size cut off has gradient zero."""
    x = torch.arange(5.0)
    (found,) = xla_torch.vjp(_squares())(x, torch.tensor(3, dtype=torch.int32), torch.tensor(1.0))
    assert found.tolist() == [0.0, 2.0, 4.0, 0.0, 0.0]


def _squares() -> xla_torch.XlaComputation:
    builder = xla_torch.XlaBuilder("squares")
    x = builder.parameter(0, Shape.parse("f32[5]"))
    n = builder.parameter(1, Shape.parse("s32[]"))
    part = ops.SetDimensionSize(x, n, 0)
    return builder.build(ops.ReduceAll(part * part, 0.0, _add()))


def _add() -> xla_torch.XlaComputation:
    builder = xla_torch.XlaBuilder("add")
    return builder.build(builder.parameter(0, Shape.parse("f32[]")) + builder.parameter(1, Shape.parse("f32[]")))


def test_dynamic_reshape() -> None:
    """Elements that a smaller shape leaves out have gradient zero."""
    builder = xla_torch.XlaBuilder("reshaped")
    x = builder.parameter(0, Shape.parse("f32[6]"))
    n = builder.parameter(1, Shape.parse("s32[]"))
    part = ops.DynamicReshape(x, [n, 2], [3, 2], [True, False])
    program = builder.build(ops.ReduceAll(part * part, 0.0, _add()))
    (found,) = xla_torch.vjp(program)(torch.arange(6.0), torch.tensor(2, dtype=torch.int32), torch.tensor(1.0))
    assert found.tolist() == [0.0, 2.0, 4.0, 6.0, 0.0, 0.0]


def test_dynamic_sizes_in_a_batch() -> None:
    """One example after the other where results have one size; else refused, with what to do."""
    builder = xla_torch.XlaBuilder("cut")
    x, n = builder.parameter(0, Shape.parse("f32[6]")), builder.parameter(1, Shape.parse("s32[]"))
    cut = ops.SetDimensionSize(x, n, 0)
    program, rows = builder.build(cut * cut), torch.arange(12.0).reshape(2, 6)
    found = torch.func.vmap(program)(rows, torch.tensor([3, 3], dtype=torch.int32))
    torch.testing.assert_close(found, rows[:, :3].square())
    with pytest.raises(xla_torch.errors.UnsupportedError, match="pad the results to their bounds"):
        torch.func.vmap(program)(rows, torch.tensor([3, 4], dtype=torch.int32))
    with pytest.raises(xla_torch.errors.UnsupportedError, match="pad it to its bound"):
        xla_torch.vmap(program, 2)


# -------------------------------------------------------------------------------------------------------- custom calls


@pytest.fixture
def target() -> Iterator[str]:
    yield "test_gradient_target"
    unregister_custom_call("test_gradient_target")


def calling(target: str) -> xla_torch.XlaComputation:
    builder = xla_torch.XlaBuilder("calling")
    x, y = (builder.parameter(k, Shape.parse("f32[3]")) for k in range(2))
    return builder.build(ops.CustomCall(builder, target, [x, y], Shape.parse("f32[3]")))


X, Y, CT = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.5, 1.0, 2.0]), torch.tensor([1.0, 10.0, 100.0])


def test_custom_call_with_its_own_gradient(target: str) -> None:
    xla_torch.register_custom_call(target, torch.mul, lambda ct, out, x, y: (7 * ct * y, None))
    found = pull(calling(target), X, Y, CT)
    torch.testing.assert_close(found, [7 * CT * Y, torch.zeros(3)])


def test_custom_call_through_autograd(target: str) -> None:
    xla_torch.register_custom_call(target, lambda x, y: x * x * y)
    torch.testing.assert_close(pull(calling(target), X, Y, CT), [2 * X * Y * CT, X * X * CT])


def test_unknown_custom_call_is_refused() -> None:
    with pytest.raises(xla_torch.errors.DifferentiationError, match=r"register_(custom_call|gradient)"):
        xla_torch.vjp(calling("nobody_knows"))
