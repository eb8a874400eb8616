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


def test_all_operators_without_a_rule_are_named_at_once():
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.poisson(x) + torch.poisson(x) + torch.linalg.ldl_factor(x).LD

    named = r"poisson\.default \(2\)(.|\n)*depends on values(.|\n)*ldl_factor(.|\n)*no such decomposition"
    with pytest.raises(UnsupportedError, match=named):
        xla_torch.from_torch(function, torch.randn(3, 3))


@pytest.mark.parametrize(("function", "error", "words"), [
    (lambda x: x.add_(1), UnsupportedError, "writes into its arguments"),
    (lambda x: (x, 2), UnsupportedError, "a result is not a tensor"),
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
