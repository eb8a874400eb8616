"""PyTorch modules and functions to HLO: the same values and gradients by our lowering, by real XLA, and from the text again."""

from __future__ import annotations

import copy
import functools
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import xla_torch
from support.oracle import needs_xla, run_xla
from support.torch_models import assert_close, loss_of, made
from xla_torch.errors import InvalidArgument, UnsupportedError
from xla_torch.nn import XlaModule

EACH = ["lstm", *(pytest.param(name, marks=pytest.mark.slow) for name in ("residual", "gpt"))]


@pytest.mark.parametrize("name", EACH)
def test_a_model_and_its_gradients(name: str):
    model, x = made(name)
    ours = xla_torch.from_torch(copy.deepcopy(model), x)
    expected, found = model(x), ours(ours.weights, x)
    assert_close(found, expected)
    loss_of(expected).backward()
    loss_of(found).backward()
    for key, parameter in model.named_parameters():
        own: Any = ours.weights
        for part in key.split("."):
            own = own[part]
        assert_close(own.grad, parameter.grad, 2e-4)


@needs_xla
@pytest.mark.parametrize("name", EACH)
def test_real_xla_and_the_texts_give_the_same(name: str):
    model, x = made(name)
    ours = xla_torch.from_torch(model, x)
    flat = [t.detach() for t in ours.tensors(ours.weights, x)]
    expected = pytree.tree_leaves(ours.out_tree.flatten(model(x)))
    text = ours.to_hlo_text()
    by_xla = [torch.from_numpy(np.array(a)) for a in run_xla(text, *(t.numpy() for t in flat))]
    for program in (xla_torch.parse_hlo(text), xla_torch.from_stablehlo(ours.computation.to_stablehlo())):
        again = program(*flat)
        assert_close(list(again) if isinstance(again, tuple) else [again], [e.detach() for e in expected])
    assert_close(by_xla, [e.detach() for e in expected])


@pytest.mark.slow
def test_training_replaces_running_statistics():
    model, x = made("residual", training=True)
    ours = XlaModule.from_torch(copy.deepcopy(model), x)
    assert dict(ours.named_parameters()).keys() == dict(model.named_parameters()).keys()
    for _ in range(2):
        found, expected = ours(x), model(x)
        assert_close(found, expected, 1e-4)
    assert_close(dict(ours.state_dict()), dict(model.state_dict()), 1e-4)
    loss_of(model(x)).backward()
    loss_of(ours(x)).backward()
    for key, parameter in model.named_parameters():
        assert_close(ours.get_parameter(key).grad, parameter.grad, 2e-3)


class Momentum(nn.Module):
    """A copy of a layer that follows it, as in contrastive learning."""

    def __init__(self, frozen: bool = True):
        super().__init__()
        self.layer, self.target = nn.Linear(4, 3), nn.Linear(4, 3).requires_grad_(not frozen)

    def forward(self, x: torch.Tensor, looks: bool = False) -> torch.Tensor:
        rate = 0.5 if looks and x.sum() > 1e3 else 0.1
        with torch.no_grad():
            for after, followed in zip(self.target.parameters(), self.layer.parameters(), strict=True):
                after.lerp_(followed, rate)
            wanted = self.target(x)
        return nn.functional.mse_loss(self.layer(x), wanted)


@pytest.mark.parametrize("looks", [False, True])
def test_training_replaces_frozen_parameters(looks: bool):
    model, x = Momentum(), torch.randn(5, 4)
    ours = XlaModule.from_torch(copy.deepcopy(model), x, looks)
    optimizers = [torch.optim.SGD([p for p in one.parameters() if p.requires_grad], 0.3) for one in (model, ours)]
    for step in range(3):
        losses = [one(x + step, looks) for one in (model, ours)]
        assert_close(*losses)
        for loss, optimizer in zip(losses, optimizers, strict=True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert_close(dict(ours.named_parameters()), dict(model.named_parameters()))
    assert [p.requires_grad for p in ours.parameters()] == [p.requires_grad for p in model.parameters()]
    with pytest.raises(UnsupportedError, match=r"a parameter that requires gradients(.|\n)*target\.weight"):
        xla_torch.from_torch(Momentum(frozen=False), x)


RETURNED = {
    "a flag, a count and a fraction": lambda x: {"found": (x.sin(), True), "parts": [2**40, 0.1, None]},
    "numbers alone": lambda x: (1, 2.5),
    "the step that converged": lambda x: next((x / k, k) for k in range(1, 9) if (x / k).abs().max() < 1)}


@pytest.mark.parametrize("name", RETURNED)
def test_numbers_that_a_model_returns_are_scalars(name: str):
    function, x = RETURNED[name], torch.tensor([2.5, -1.0])
    ours, mine, theirs = xla_torch.from_torch(function, x), x.clone().requires_grad_(), x.clone().requires_grad_()
    found, expected = (pytree.tree_leaves(called(given)) for called, given in ((ours, mine), (function, theirs)))
    for a, b in zip(found, expected, strict=True):
        if isinstance(b, (int, float)):
            assert a.item() == b
            assert type(a.item()) is type(b)
        elif b is not None:
            assert_close(torch.autograd.grad(a.sum(), mine), torch.autograd.grad(b.sum(), theirs))


# ------------------------------------------------------------------------------------------- modules of modules


class State(nn.Module):
    """All that a module's state can be: frozen, tied and unused parameters, integers among them; buffers of several dtypes, not
    persistent, tied or None; one module in two places; modules in training and in evaluation, in no order of names."""

    def __init__(self):
        super().__init__()
        self.second, self.first, self.plain = nn.Linear(3, 3), nn.Linear(3, 3), nn.Sequential(nn.Sequential(nn.ReLU()))
        self.again, self.first.weight = self.second, self.second.weight
        self.second.bias.requires_grad_(False)
        self.norm, self.still = nn.BatchNorm1d(3).requires_grad_(False), nn.BatchNorm1d(3).eval()
        self.other = self.still
        self.whole, self.mask = nn.Buffer(torch.arange(3)), nn.Buffer(torch.ones(3, dtype=torch.float64), persistent=False)
        self.same = self.mask
        self.register_buffer("none", None)
        self.number, self.unused = nn.Parameter(torch.tensor(2), False), nn.Parameter(torch.randn(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.still(self.norm(self.plain(self.again(self.first(self.second(x))))))
        return self.other(x) * self.mask + self.whole * self.same * self.number


STATE: dict[str, Any] = {
    "state": lambda m: [(name, tensor.dtype, tensor.device) for name, tensor in m.state_dict().items()],
    "parameters": lambda m: [(name, p.requires_grad) for name, p in m.named_parameters()],
    "parameters in all places": lambda m: [name for name, _ in m.named_parameters(remove_duplicate=False)],
    "buffers": lambda m: {name: b.dtype for name, b in m.named_buffers(remove_duplicate=False)},
    "the order of buffers": lambda m: [name for name, _ in m.named_buffers()],
    "training": lambda m: {name: inner.training for name, inner in m.named_modules() if "plain" not in name},
    "tied": lambda m: (m.first.weight is m.second.weight, m.again is m.second, m.still is m.other)}


@functools.cache
def stateful() -> tuple[State, XlaModule, torch.Tensor]:
    torch.manual_seed(0)
    model, x = State(), torch.randn(4, 3)
    return model, XlaModule.from_torch(copy.deepcopy(model), x), x


@pytest.mark.parametrize("what", STATE)
def test_a_module_has_the_state_of_torchs(what: str):
    model, ours, _ = stateful()
    assert STATE[what](ours) == STATE[what](model)


def test_a_module_of_all_kinds_of_state_trains_as_torchs():
    model, ours, x = copy.deepcopy(stateful())
    for module in (model, ours):
        optimizer = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], 0.1)
        for _ in range(2):
            optimizer.zero_grad()
            loss_of(module(x)).backward()
            optimizer.step()
    assert_close(dict(ours.state_dict()), dict(model.state_dict()), 2e-4)
    ours.load_state_dict(model.state_dict())
    model.load_state_dict(ours.state_dict())


@pytest.mark.slow
def test_the_state_of_an_exported_program():
    model, _, x = stateful()
    ours = XlaModule.from_torch(torch.export.export(copy.deepcopy(model), (x,)))
    assert {*ours.state_dict()} == {*model.state_dict()}
    assert {n: p.requires_grad for n, p in ours.named_parameters()} == {n: p.requires_grad for n, p in model.named_parameters()}


@pytest.mark.slow
def test_a_module_without_state_is_in_evaluation_as_torchs():
    assert not XlaModule.from_torch(nn.ReLU().eval(), torch.randn(3)).training


def test_weights_may_be_constants():
    model, x = made("lstm")
    ours = xla_torch.from_torch(model, x, weights="constants")
    assert len(ours.program_shape.parameters) == 1
    assert_close(ours(x), model(x))


def test_a_function_is_called_as_it_was():
    def function(a: torch.Tensor, power: int = 2, *, tree: dict[str, Any], scale: float) -> Any:
        return {"sum": (a**power + tree["z"][0]) * scale, "none": None}, [tree["b"]]

    tree = {"z": [torch.randn(3)], "b": torch.arange(3)}
    a = torch.randn(3)
    ours = xla_torch.from_torch(function, a, 3, tree=tree, scale=0.5)
    found, expected = ours(a, tree=tree), function(a, 3, tree=tree, scale=0.5)
    assert_close(found, expected)
    assert_close(ours(a, 3, tree=tree, scale=0.5), expected)
    with pytest.raises(InvalidArgument, match="argument power is static"):
        ours(a, 2, tree=tree)
    with pytest.raises(InvalidArgument, match=r"argument tree\.z\.0"):
        ours(a, tree=tree | {"z": [torch.randn(4)]})


class Added(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3))
        self.offset = nn.Buffer(torch.randn(3))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x @ self.weight - 2 * y + self.offset


SAME: dict[str, Any] = {
    "one tensor": lambda model: (ones := torch.ones(3), ones), "a view": lambda model: (ones := torch.ones(3), ones.view(3)),
    "a part": lambda model: (ones := torch.ones(3, 3), ones[0]), "an expanded one": lambda model: (
        (ones := torch.ones(3)).expand(2, 3), ones),
    "a parameter and a buffer": lambda model: (model.weight, model.offset),
    "parts of them": lambda model: (model.weight.data[:1], model.offset.view(3))}


@pytest.mark.parametrize("name", [
    "one tensor", *(pytest.param(name, marks=pytest.mark.slow) for name in SAME if name != "one tensor")])
def test_examples_that_are_one_tensor_are_several_arguments(name: str):
    model = Added()
    examples = SAME[name](model)
    ours = xla_torch.from_torch(model, *examples)
    others = [torch.randn(e.shape) for e in examples]
    assert_close(ours(ours.weights, *others), model(*others))


@pytest.mark.slow
def test_examples_in_trees_and_by_name_are_several_arguments():
    x, (a, b, c) = torch.randn(3), torch.randn(3, 3)
    ours = xla_torch.from_torch(lambda tree, *, last: tree[0] - 2 * tree[1] + last, [x, x], last=x)
    assert_close(ours([a, b], last=c), a - 2 * b + c)


@pytest.mark.slow
def test_an_exported_program_is_taken_as_it_is():
    model, x = made("lstm")
    ours = xla_torch.from_torch(torch.export.export(model, (x,)))
    assert_close(ours(ours.weights, x), model(x))


@pytest.mark.slow
def test_builtin_functions_and_their_tuples():
    x = torch.randn(3, 4)
    assert_close(xla_torch.from_torch(torch.kron, x, x)(x, x), torch.kron(x, x))
    assert_close(xla_torch.from_torch(lambda x: {"top": x.topk(2)}, x)(x), {"top": tuple(x.topk(2))})
    there_and_back = xla_torch.from_torch(lambda x: torch.fft.irfft2(torch.fft.rfft2(x).conj()), x)
    assert_close(there_and_back(x), torch.fft.irfft2(torch.fft.rfft2(x).conj()))


def clipped(x: torch.Tensor) -> torch.Tensor:
    y = x.exp()
    y.data = y.data.clamp(max=1)
    return y


class Halved(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.weight.data = self.weight / 2
        return super().forward(x)


class Moved(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().to(x.dtype).float().cpu().forward_of(x)

    forward_of = nn.Linear.forward


def test_a_module_that_moves_itself_to_where_it_is():
    model, x = Moved(3, 2), torch.randn(4, 3)
    ours = xla_torch.from_torch(model, x)
    assert_close(ours(ours.weights, x), model(x))


def test_all_operators_without_a_rule_are_named_at_once():
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.poisson(x) + torch.poisson(x) + torch.linalg.ldl_factor(x).LD

    named = r"poisson\.default \(2\)(.|\n)*depends on values(.|\n)*ldl_factor(.|\n)*no such decomposition"
    with pytest.raises(UnsupportedError, match=named):
        xla_torch.from_torch(function, torch.randn(3, 3))


@pytest.mark.parametrize(("function", "error", "words"), [
    (lambda x: x.add_(1), UnsupportedError, "writes into its arguments"),
    (lambda x: (x, "text"), UnsupportedError, "a result is not a tensor or number"),
    (clipped, UnsupportedError, r"assigns to `\.data`(.|\n)*test_from_torch\.py(.|\n)*copy_"),
    (Halved(3, 3), UnsupportedError, r"assigns to `\.data`"),
    (3, InvalidArgument, "not a module or a function")])
def test_what_is_refused(function: Any, error: type[Exception], words: str):
    with pytest.raises(error, match=words):
        xla_torch.from_torch(function, torch.randn(3))




def test_names_survive_in_the_text():
    model, x = made("lstm")
    text = xla_torch.from_torch(model, x).to_hlo_text()
    again = XlaModule(xla_torch.parse_hlo(text), parameters=dict(model.state_dict()))
    assert {*again.state_dict()} == {*model.state_dict()}
    assert_close(again(x)[0], model(x)[0])
