"""Gradients that a model changes or takes itself: a `backward` that decides, torch.autograd.functional, hooks of parameters."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import xla_torch
from xla_torch.errors import AssumptionError, DifferentiationError, XlaWarning
from xla_torch.nn import XlaModule

F64 = torch.float64
V = torch.tensor([0.7, -0.4, 1.3], dtype=F64)


def gradients(model: Any, x: torch.Tensor, scale: float = 1.0) -> list[torch.Tensor]:
    """The results of a call, and the gradients of x and of the parameters for a cotangent of this size."""
    x = x.clone().requires_grad_()
    held = [p for _, p in sorted(model.named_parameters())] if isinstance(model, nn.Module) else []
    found = pytree.tree_leaves(model(x))
    given = [scale * (r.detach().cos() + 2) for r in found if r.requires_grad]
    found_gradients = torch.autograd.grad([r for r in found if r.requires_grad], [x, *held], given, allow_unused=True,
                                          materialize_grads=True)
    return [*(r.detach() for r in found), *found_gradients]


def assert_same(ours: Any, model: Any, x: torch.Tensor, scale: float = 1.0) -> None:
    for found, expected in zip(gradients(ours, x, scale), gradients(model, x, scale), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


# --------------------------------------------------------------------------------------- decisions by cotangents


class Clipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        if g.norm() > 1:
            g = g / g.norm()
        return g


class Skipped(Clipped):
    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        return g * 3 if g.abs().max() > 0.1 else None


class BySaved(Clipped):
    """Decides by what its forward kept, of which the model itself decides nothing."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return g * 5 if ctx.saved_tensors[0].sum() > 0 else g


def _decided_before(x: torch.Tensor) -> torch.Tensor:
    return Clipped.apply(x.exp() if x.sum() > 0 else x)


def _hooked(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    if y.requires_grad:
        y.register_hook(lambda g: g.clamp(-0.5, 0.5) if g.abs().max() > 0.5 else g)
    return y


DECIDE: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, float]]] = {
    # a function, and an argument and size of cotangents for which its gradient decides otherwise
    "clips": (Clipped.apply, (V * -2, 0.01)),
    "clips a layer": (lambda x: Clipped.apply(x * 2).square(), (V, 0.01)),
    "skips": (Skipped.apply, (V, 0.01)),
    "by what it saved": (BySaved.apply, (-V, 1.0)),
    "after a decision": (_decided_before, (V, 0.01)),
    "a hook": (_hooked, (V, 0.01)),
}


@pytest.mark.parametrize("name", DECIDE)
def test_a_backward_that_decides_is_checked(name: str):
    function, (other, size) = DECIDE[name]
    ours = xla_torch.from_torch(function, V.clone().requires_grad_())
    for x in (V, V * 1.5):
        assert_same(ours, function, x)
    torch.testing.assert_close(ours(other), function(other))
    with pytest.raises(AssumptionError):
        gradients(ours, other, size)


def test_a_backward_that_decides_by_cotangents_has_no_tangents():
    ours = xla_torch.from_torch(Clipped.apply, V)
    with pytest.raises(DifferentiationError, match="decides by its cotangent"):
        xla_torch.jvp(ours)(V, V)
    torch.testing.assert_close(xla_torch.jvp(xla_torch.from_torch(BySaved.apply, V))(V, V)[1], V * 5)


# --------------------------------------------------------------------------------------- derivatives within the model


FUNCTIONAL = torch.autograd.functional


def _cubes(p: torch.Tensor) -> torch.Tensor:
    return p**3


def _sum(p: torch.Tensor) -> torch.Tensor:
    return (p**3).sum()


WITHIN: dict[str, Callable[[torch.Tensor], Any]] = {
    "jacobian": lambda v: FUNCTIONAL.jacobian(_cubes, v, create_graph=True),
    "strict jacobian": lambda v: FUNCTIONAL.jacobian(_cubes, v, create_graph=True, strict=True),
    "vectorized jacobian": lambda v: FUNCTIONAL.jacobian(_cubes, v, create_graph=True, vectorize=True),
    "jacobian of a product": lambda v: FUNCTIONAL.jacobian(_cubes, v * 2, create_graph=True) * v,
    "jacobian of two": lambda v: FUNCTIONAL.jacobian(lambda p, q: p**2 * q, (v, v.detach()), create_graph=True),
    "hessian": lambda v: FUNCTIONAL.hessian(_sum, v, create_graph=True),
    "vjp": lambda v: FUNCTIONAL.vjp(_cubes, v, v.sin(), create_graph=True),
    "jvp": lambda v: FUNCTIONAL.jvp(_cubes, v, v.sin(), create_graph=True),
    "hvp": lambda v: FUNCTIONAL.hvp(_sum, v, v.sin(), create_graph=True),
    "vhp": lambda v: FUNCTIONAL.vhp(_sum, v, v.sin(), create_graph=True),
    "constant jacobian": lambda v: FUNCTIONAL.jacobian(_cubes, v) * v,
    "constant hessian": lambda v: FUNCTIONAL.hessian(_sum, v) * v,
    "constant vjp": lambda v: FUNCTIONAL.vjp(_cubes, v, v.sin())[1] * v,
    "constant hvp": lambda v: FUNCTIONAL.hvp(_sum, v, v.sin())[1] * v,
}


@pytest.mark.parametrize("name", WITHIN)
def test_functional_derivatives_have_gradients(name: str):
    function = WITHIN[name]
    examples = [V, V.clone().requires_grad_()]
    with torch.enable_grad():
        programs = [xla_torch.from_torch(function, example) for example in examples]
    for ours in programs:
        for x in (V, V * -1.5):
            assert_same(ours, function, x)


# --------------------------------------------------------------------------------------- hooks


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
        self.b.weight = self.a.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.a(x))


class Penalty(nn.Module):
    """Differentiates by a parameter with a hook, or by way of a `backward`."""

    def __init__(self, own: bool) -> None:
        super().__init__()
        self.layer, self.own = nn.Linear(3, 3), own

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        found, = torch.autograd.grad(y.square().sum(), self.layer.weight, create_graph=True)
        return (found @ x).sin() + (BySaved.apply(y) if self.own else y)


def _halves(make: Callable[[], nn.Module], name: str) -> nn.Module:
    module = make()
    module.get_parameter(name).register_hook(lambda g: g * 0.5)
    return module


def _with_hook(kind: str, hook: Callable[..., Any]) -> nn.Module:
    module = nn.Linear(3, 3)
    getattr(module, kind)(hook)
    return module


HOOKS: dict[str, Callable[[], nn.Module]] = {
    "a parameter": lambda: _halves(lambda: nn.Linear(3, 3), "weight"),
    "a tied parameter": lambda: _halves(Tied, "a.weight"),
    "a parametrized parameter": lambda: _halves(
        lambda: nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)), "parametrizations.weight.original0"),
    "a parameter of a gradient within": lambda: _halves(lambda: Penalty(own=False), "layer.weight"),
    "a parameter of a gradient within, and a backward": lambda: _halves(lambda: Penalty(own=True), "layer.weight"),
    "full": lambda: _with_hook("register_full_backward_hook", lambda _, given, __: tuple(g * 2 for g in given)),
    "full, before": lambda: _with_hook("register_full_backward_pre_hook", lambda _, given: tuple(g * 2 for g in given)),
    "not full": lambda: _with_hook("register_backward_hook", lambda _, given, __: tuple(None if g is None else g * 2
                                                                                        for g in given)),
}


@pytest.mark.filterwarnings("ignore:Using a non-full backward hook")
@pytest.mark.parametrize("name", HOOKS)
def test_hooks_are_kept(name: str):
    torch.manual_seed(0)
    module = HOOKS[name]().double()
    with warnings.catch_warnings():
        warnings.simplefilter("error", XlaWarning)
        ours = XlaModule.from_torch(module, V.clone().requires_grad_())
    for x in (V, V * 1.5):
        assert_same(ours, module, x)


class Scaled(nn.Module):
    scale: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(3, requires_grad=True))
        self.scale.register_hook(lambda g: g * 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale


def _of_several(mode: Any) -> nn.Module:
    module = nn.Linear(3, 3)
    torch.autograd.graph.register_multi_grad_hook([module.weight, module.bias], lambda _: None, mode=mode)
    return module


def _after() -> nn.Module:
    module = nn.Linear(3, 3)
    module.weight.register_post_accumulate_grad_hook(lambda _: None)
    return module


@pytest.mark.parametrize(("make", "named"), [
    (_after, "register_post_accumulate_grad_hook of weight"), (Scaled, "register_hook of scale"),
    (lambda: _of_several("all"), "register_multi_grad_hook of weight, register_multi_grad_hook of bias"),
    (lambda: _of_several("any"), "register_multi_grad_hook of weight, register_multi_grad_hook of bias")])
def test_hooks_that_only_their_tensors_can_have_are_named(make: Callable[[], nn.Module], named: str):
    with pytest.warns(XlaWarning, match=named):
        XlaModule.from_torch(make(), torch.ones(3))
