"""Modules that are converted without example arguments, by their first call."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import nn

from xla_torch.errors import UnsupportedError
from xla_torch.nn import XlaModule, _Unconverted


class Tied(nn.Module):
    """Tied weights, a buffer that calls write into, one that is not saved, dropout, and a part without gradients."""

    steps: torch.Tensor

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.norm, self.drop, self.plain = nn.BatchNorm1d(4), nn.Dropout(0.0), nn.Sequential(nn.ReLU())
        self.register_buffer("scale", torch.full((4,), 2.0), persistent=False)
        self.register_buffer("none", None)
        self.second.bias.requires_grad_(False)

    def forward(self, x: torch.Tensor, shift: float = 0.0) -> torch.Tensor:
        x = self.norm(self.second(self.drop(self.plain(self.first(x))))) * self.scale
        with torch.no_grad():
            size = x.abs().amax()
        return x / size + shift


X = torch.linspace(-1, 1, 12).reshape(3, 4).sin()


def pair() -> tuple[Tied, XlaModule]:
    torch.manual_seed(0)
    model = Tied()
    return model, XlaModule.from_torch(model)


def test_weights_are_there_before_the_first_call():
    model, ours = pair()
    for names in (lambda m: list(m.state_dict()), lambda m: [(n, p.requires_grad) for n, p in m.named_parameters()],
                  lambda m: [n for n, _ in m.named_buffers()]):
        assert names(ours) == names(model)
    assert ours.get_parameter("second.weight") is ours.get_parameter("first.weight")
    assert ours.get_parameter("first.weight") is not model.first.weight
    assert "converts on its first call" in repr(ours)


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("how", ["as it is", "a copy", "a pickle"])
def test_a_module_trains_as_torchs_from_its_first_call_on(how: str, mode: Callable[[], torch.no_grad]):
    model, ours = pair()
    ours = {"as it is": lambda: ours, "a copy": lambda: copy.deepcopy(ours),
            "a pickle": lambda: pickle.loads(pickle.dumps(ours))}[how]()
    assert type(ours) is _Unconverted
    optimizers = [torch.optim.SGD([p for p in m.parameters() if p.requires_grad], 0.1) for m in (model, ours)]
    with mode():
        torch.testing.assert_close(ours(X), model(X))
    assert type(ours) is XlaModule
    for _ in range(2):
        for module, optimizer in zip((model, ours), optimizers, strict=True):
            optimizer.zero_grad()
            module(X).square().sum().backward()
            optimizer.step()
    torch.testing.assert_close(dict(ours.state_dict()), dict(model.state_dict()), atol=1e-5, rtol=1e-5)
    weight = ours.get_parameter("first.weight")
    assert ours.get_parameter("second.weight") is weight
    assert "x: f32[3,4]" in repr(ours)
    assert torch.equal(pickle.loads(pickle.dumps(ours)).get_parameter("first.weight"), weight)


CHANGES: dict[str, Callable[[nn.Module], object]] = {
    "evaluation": lambda m: m.eval(),
    "a part in evaluation": lambda m: m.get_submodule("norm").eval(),
    "double precision": lambda m: m.double(),
    "other weights": lambda m: m.load_state_dict({k: v * 2 for k, v in m.state_dict().items()}),
    "a frozen weight": lambda m: m.get_submodule("first").requires_grad_(False)}


@pytest.mark.parametrize("name", CHANGES)
def test_the_first_call_converts_the_module_as_it_is_then(name: str):
    model, ours = pair()
    for module in (model, ours):
        CHANGES[name](module)
    x = X.to(model.first.weight.dtype)
    torch.testing.assert_close(ours(x), model(x))
    torch.testing.assert_close(dict(ours.state_dict()), dict(model.state_dict()))
    assert [p.requires_grad for p in ours.parameters()] == [p.requires_grad for p in model.parameters()]


def test_the_first_call_takes_arguments_by_name():
    model, ours = pair()
    torch.testing.assert_close(ours(X, shift=2.0), model(X, shift=2.0))


def test_random_numbers_get_their_state_at_the_first_call():
    ours = XlaModule.from_torch(nn.Sequential(nn.Linear(4, 50), nn.Dropout(0.5)))
    assert "rng_state" not in ours.state_dict()
    assert not torch.equal(ours(X), ours(X))
    assert "rng_state" in ours.state_dict()


def test_autocast_is_that_of_each_call():
    model, ours = nn.Linear(4, 3), None
    ours = XlaModule.from_torch(model)
    with torch.autocast("cpu", torch.bfloat16):
        assert ours(X).dtype is model(X).dtype
    torch.testing.assert_close(ours(X), model(X))
    for each in (ours, model):
        each(X).square().sum().backward()
    for mine, theirs in zip(ours.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)


def test_a_function_without_parameters_is_converted_at_once():
    assert type(XlaModule.from_torch(lambda: torch.ones(3))) is XlaModule


def test_options_hold_for_the_first_call():
    ours = XlaModule.from_torch(nn.Linear(4, 3), weights="constants")
    ours(X)
    assert len(ours.computation.program_shape.parameters) == 1


def test_what_needs_the_program_says_that_there_is_none_yet():
    _, ours = pair()
    for use in (lambda: ours.computation, ours.to_numpy):
        with pytest.raises(AttributeError, match="no program before its first call"):
            use()


@pytest.mark.parametrize("use", [
    lambda m: torch.func.vmap(m)(X[:, None]), lambda m: torch.fx.symbolic_trace(nn.Sequential(m)),
    lambda m: torch.export.export(m, (X,))], ids=["vmap", "symbolic_trace", "export"])
def test_the_first_call_cannot_be_part_of_a_graph(use: Callable[[nn.Module], object]):
    _, ours = pair()
    with pytest.raises(UnsupportedError, match="call it once before"):
        use(ours)


def test_a_refused_conversion_leaves_the_module_unconverted():
    class Sorts(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.ldl_factor(x @ x.T)[0]

    ours = XlaModule.from_torch(Sorts())
    for _ in range(2):
        with pytest.raises(UnsupportedError, match="ldl"):
            ours(X)
