"""Modules whose Python looks at values: parameters, buffers that a call updates, random numbers and derivatives of their own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import xla_torch
from xla_torch.api.torch_members import RetracedFunction
from xla_torch.errors import AssumptionError, UnsupportedError
from xla_torch.nn import XlaModule

pytestmark = pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad=True to a scalar")
X = torch.tensor([[1.0, 2.0, 3.0], [0.5, -1.0, 2.0]])


class ReadsWeights(nn.Module):
    def __init__(self, fill: float = 0.5):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        nn.init.constant_(self.layer.weight, fill)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) if self.layer.weight.sum() > 0 else x * self.layer.bias


class ReadsViewOfWeights(ReadsWeights):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) if self.layer.weight.T[1:].detach().mean().item() > 0.25 else x * self.layer.bias


class ReadsBuffer(ReadsWeights):
    scale: torch.Tensor
    unsaved: torch.Tensor

    def __init__(self, fill: float = 0.5):
        super().__init__(fill)
        self.register_buffer("scale", torch.tensor(2.0))
        self.register_buffer("unsaved", torch.tensor([1.0, 3.0]), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.scale > 1 and self.unsaved.max() > 2:
            x = x * self.scale
        return self.layer(x)


class Warm(nn.Module):
    """Takes another branch once it has been called."""

    calls: torch.Tensor

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * self.weight if self.calls < 2 else x.exp() * self.weight


class Initialised(nn.Module):
    """An activation normalisation, which its first call initialises."""

    ready: torch.Tensor
    mean: torch.Tensor

    def __init__(self):
        super().__init__()
        self.register_buffer("ready", torch.tensor(False))
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.ready:
            self.mean.copy_(x.mean(0).detach())
            self.ready.fill_(True)
        return x - self.mean


class Normalised(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.isfinite(x).all():
            x = self.norm(x)
        return x * 2


class Dropped(ReadsWeights):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(super().forward(x), 0.5, self.training)


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.round()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        return grads[0]


class Stopped(ReadsWeights):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = super().forward(x)
        with torch.no_grad():
            size = found.abs().max()
        if size > 1:
            found = found / size + found.detach() * self.layer.bias
        return found


class Straight(ReadsWeights):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Rounded.apply(super().forward(x))


class Quantized(nn.Module):
    """A codebook that follows its codes through `data`, once it is there, and takes anew what no row chose."""

    counts: torch.Tensor
    codes: torch.Tensor

    def __init__(self, there: torch.Tensor):
        super().__init__()
        self.there = nn.Buffer(there)
        self.register_buffer("counts", torch.tensor([1.0, 0.5, 0.0]))
        self.register_buffer("codes", torch.tensor([[1.0, 2.0, 2.0], [0.0, -1.0, 1.0], [9.0, 9.0, 9.0]]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.there:
            self.codes.data.copy_(x[[0, 1, 1]])
            self.there.data.copy_(torch.ones((), dtype=torch.bool))
        chosen = torch.cdist(x, self.codes.detach()).argmin(-1)
        hot = nn.functional.one_hot(chosen, 3).to(x.dtype)
        found = hot @ self.codes
        self.counts.data.lerp_(hot.sum(0), 0.2)
        self.codes.data.lerp_(hot.T @ x.detach(), 0.2)
        expired = self.counts < 0.1
        if torch.any(expired):
            self.codes.data[expired] = x.detach()[0]
        return x + (found - x).detach() + (x - found.detach()).square()


MODELS: dict[str, Callable[[], nn.Module]] = {
    "a codebook": lambda: Quantized(torch.tensor(True)), "a codebook to fill": lambda: Quantized(torch.tensor(False)),
    "a codebook and a number as a truth": lambda: Quantized(torch.tensor([1.0])),
    "parameters": ReadsWeights, "other parameters": lambda: ReadsWeights(-0.5), "a view of a parameter": ReadsViewOfWeights,
    "buffers": ReadsBuffer, "a counter": Warm, "a first call": Initialised, "training with running means": Normalised,
    "evaluation": lambda: Normalised().eval(), "dropout that is off": lambda: Dropped().eval(), "detach and no_grad": Stopped}


def gradients(model: Any, found: torch.Tensor, leaves: list[torch.Tensor]) -> list[torch.Tensor]:
    return list(torch.autograd.grad((found * found.detach().cos()).sum(), leaves, materialize_grads=True, allow_unused=True))


@pytest.mark.parametrize("name", MODELS)
def test_modules_have_eagers_values_buffers_and_gradients(name: str):
    model = MODELS[name]()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    ours = XlaModule.from_torch(model, X)
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    mine, theirs = X.clone().requires_grad_(), X.clone().requires_grad_()
    found, expected = ours(mine), model(theirs)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(dict(ours.state_dict()), dict(model.state_dict()))
    for a, b in zip(gradients(ours, found, [mine, *ours.parameters()]), gradients(model, expected, [theirs, *model.parameters()]),
                    strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("fill", [0.5, -0.5, 0.0])
def test_parameters_are_read_as_they_are_each_time(fill: float):
    for _ in range(5):
        ours = xla_torch.from_torch(ReadsWeights(fill), X)
        assert [a.value for a in ours.assumptions] == [fill > 0]


@pytest.mark.parametrize("name", ["a counter", "a first call"])
def test_a_buffer_that_decides_otherwise_afterwards(name: str):
    model = MODELS[name]()
    ours = XlaModule.from_torch(model, X)
    torch.testing.assert_close(ours(X), model(X))
    with pytest.raises(AssumptionError, match="test_from_torch_value_modules"):
        ours(X)
    family = XlaModule.from_torch(copy.deepcopy(MODELS[name]()), X, assumptions="retrace")
    model = MODELS[name]()
    for _ in range(3):
        torch.testing.assert_close(family(X), model(X))


def test_changed_weights_are_traced_again():
    model = ReadsWeights()
    family = xla_torch.from_torch(model, X, assumptions="retrace")
    other = {"layer": {"weight": -model.layer.weight.detach(), "bias": model.layer.bias.detach() + 1}}
    torch.testing.assert_close(family(other, X), X * other["layer"]["bias"])
    torch.testing.assert_close(family(family.weights, X), model(X))
    assert isinstance(family, RetracedFunction)
    assert len(family.members) == 2
    assert (model.layer.weight > 0).all()


def test_a_family_of_members_with_and_without_random_numbers():
    class Sometimes(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.sum() > 0:
                self.seen += 1
                x = nn.functional.dropout(x, 0.5)
            return x * 2

    family = xla_torch.from_torch(Sometimes(), X, assumptions="retrace")
    result, after = family(family.weights, -X)
    torch.testing.assert_close(result, -X * 2)
    torch.testing.assert_close(after, family.weights)
    other = xla_torch.from_torch(Sometimes(), -X, assumptions="retrace")
    with pytest.raises(UnsupportedError, match="family"):
        other(other.weights, X)


def test_a_family_inside_torch_func():
    family = xla_torch.from_torch(lambda x: x.exp() if x.sum() > 0 else x.sin(), X[0], assumptions="retrace")
    with pytest.raises(AssumptionError, match=r"outside of torch\.func"):
        torch.func.grad(lambda x: family(x).sum())(-X[0])
    family(-X[0])
    torch.testing.assert_close(torch.func.grad(lambda x: family(x).sum())(-X[0]), (-X[0]).cos())
    torch.testing.assert_close(torch.func.vmap(family)(X), X.exp())
    with pytest.raises(AssumptionError):
        torch.func.vmap(family)(torch.stack([X[0], -X[0]]))


def test_dropout_keeps_its_state_and_its_gradient_sees_the_same_numbers():
    torch.manual_seed(0)
    ours = XlaModule.from_torch(Dropped(), X)
    given = X.clone().requires_grad_()
    found = ours(given)
    grad, = torch.autograd.grad(found.sum(), given)
    kept = (found != 0).float()
    torch.testing.assert_close(grad, 2 * kept @ ours.get_parameter("layer.weight"))
    assert not torch.equal(ours(X), found)


def test_a_conversion_leaves_torchs_generator_as_one_without_reads_does():
    states = []
    for model in (Dropped(), nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))):
        torch.manual_seed(0)
        xla_torch.from_torch(model, X)
        states.append(torch.random.get_rng_state())
    assert torch.equal(*states)


def test_a_backward_that_torch_export_drops_is_kept():
    model = Straight()
    ours, found, expected = xla_torch.from_torch(model, X), X.clone().requires_grad_(), X.clone().requires_grad_()
    ours(ours.weights, found).sum().backward()
    model(expected).sum().backward()
    torch.testing.assert_close(found.grad, expected.grad)


def test_a_decision_by_chance_is_checked_in_each_call():
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x.exp() if torch.rand(()) < 2 else x.sin()

    ours = xla_torch.from_torch(forward, X)
    state = ours.weights["rng_state"] if isinstance(ours.weights, dict) else None
    found, _ = ours(ours.weights, X)
    torch.testing.assert_close(found, X.exp())
    assert state is not None


class Counts(nn.Module):
    """Keeps in Python what it has seen, which no program can."""

    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        type(self).calls += 1
        return x * self.calls if x.sum() > 0 else x


def test_a_model_that_changes_between_calls_is_refused():
    with pytest.raises(UnsupportedError, match="another result than the model"):
        xla_torch.from_torch(Counts(), X)


# ------------------------------------------------------------------------------------------- what modules keep and make


class Seeded(nn.Module):
    def __init__(self, generator: torch.Generator | None = None):
        super().__init__()
        self.generator = generator

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        generator = self.generator or torch.Generator().manual_seed(3)
        noise = torch.randn(x.shape, generator=generator, dtype=x.dtype) + torch.empty_like(x).uniform_(1, 2, generator=generator)
        return (x * noise)[torch.randperm(len(x), generator=generator)]


class Cached(nn.Module):
    """A cache that its first call fills."""

    def __init__(self):
        super().__init__()
        self.register_buffer("cache", None, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.cache is None:
            self.cache = None
            self.cache = x.detach().cos()
        return x * self.cache


def test_a_generator_that_the_module_seeds_draws_constants():
    ours = xla_torch.from_torch(Seeded(), X)
    for _ in range(2):
        torch.testing.assert_close(ours(2 * X), Seeded()(2 * X))


def test_a_generator_from_outside_is_refused():
    with pytest.raises(UnsupportedError, match="generator from outside"):
        xla_torch.from_torch(Seeded(torch.Generator().manual_seed(3)), X)


def test_a_buffer_that_is_none_is_as_it_was():
    model = Cached()
    ours = xla_torch.from_torch(model, X)
    assert model.cache is None
    torch.testing.assert_close(ours(X + 1), Cached()(X + 1))


def test_a_number_may_go_through_numpy():
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x * float(np.log(x.abs().max().item()) * np.ones(2).sum())

    ours = xla_torch.from_torch(forward, X)
    torch.testing.assert_close(ours(X), forward(X))
    with pytest.raises(AssumptionError, match="max"):
        ours(3 * X)
