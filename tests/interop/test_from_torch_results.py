"""Results of torch's models come back in the trees, and in the order, in which torch's own pytrees have them."""

from __future__ import annotations

import dataclasses
import pickle
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import xla_torch
from xla_torch.nn import XlaModule


class Pair(NamedTuple):
    second: Any
    first: Any


@dataclasses.dataclass
class Found:
    scores: Any
    boxes: Any
    other: Any = None


torch.export.register_dataclass(Found, serialized_type_name="tests.Found")

X = torch.randn(3)
FORMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "a dict": lambda x: {"scores": x + 1, "boxes": x + 2, "a": x + 3},
    "keys of several kinds": lambda x: {"b": x + 1, 1: x + 2, "a": (x + 3, None)},
    "an ordered dict": lambda x: OrderedDict(scores=x + 1, boxes=x + 2),
    "a named tuple": lambda x: Pair(x + 1, x + 2),
    "a dataclass": lambda x: Found(x + 1, x + 2),
    "in each other": lambda x: ({"z": [Pair({"y": x + 1, "x": x + 2}, x + 3)], "a": Found(OrderedDict(b=x, a=x + 1), x)}, x - 1),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_result_has_torchs_form_and_order(name: str):
    function = FORMS[name]
    module = nn.Module()
    module.forward = function
    ours = xla_torch.from_torch(function, X)
    expected = function(X)
    for run in (ours, XlaModule.from_torch(module, X), pickle.loads(pickle.dumps(ours))):
        found = run(X)
        assert pytree.tree_structure(found) == pytree.tree_structure(expected)
        torch.testing.assert_close(pytree.tree_leaves(found), pytree.tree_leaves(expected))


@pytest.mark.parametrize("name", FORMS)
def test_gradients_go_back_from_each_result(name: str):
    """Also torch's own, in which a detached result has none."""
    def function(x: torch.Tensor) -> Any:
        return pytree.tree_map(lambda one: one * x if one is not None else None, FORMS[name](x.detach()))

    x = X.clone().requires_grad_()
    for k, expected in enumerate(pytree.tree_leaves(function(x))):
        found = pytree.tree_leaves(xla_torch.from_torch(function, X)(x))[k]
        if expected is not None:
            torch.testing.assert_close(*(torch.autograd.grad(one.sum(), x)[0] for one in (found, expected)))


def test_functions_of_jax_have_jaxs_order():
    pytest.importorskip("jax")
    assert list(xla_torch.from_jax(lambda x: {"b": x, "a": x + 1}, X)(X)) == ["a", "b"]
    found = xla_torch.to_jax(xla_torch.from_torch(FORMS["a dict"], X))(X.numpy())
    for key, expected in FORMS["a dict"](X).items():
        torch.testing.assert_close(torch.tensor(found[key].tolist()), expected)
