"""What a call of a model leaves behind in Python, which no program has: a warning where the next call would have other results.
And hooks on gradients, which a program keeps."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import xla_torch
from xla_torch.errors import XlaWarning

X = torch.tensor([0.5, 1.0], dtype=torch.float64)


class Counting(nn.Module):
    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * self.calls


class Remembering(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("last", None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = x if self.last is None else self.last + x
        self.last = found.detach()
        return found


class Replacing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2, dtype=torch.float64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.layer(x)
        self.layer.weight = nn.Parameter(self.layer.weight * 2, requires_grad=False)
        return found


class Listing(nn.Module):
    def __init__(self, matters: bool) -> None:
        super().__init__()
        self.matters, self.seen = matters, {"sizes": []}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen["sizes"].append(x.shape)
        return x * len(self.seen["sizes"]) if self.matters else x * 2


@pytest.mark.parametrize(("model", "name"), [
    (Counting(), "calls"), (Remembering(), "last"), (Replacing(), "layer.weight"), (Listing(True), "seen"),
    (nn.Sequential(Counting()), "0.calls")], ids=lambda v: v if isinstance(v, str) else type(v).__name__)
def test_state_that_changes_the_next_call_warns_by_name_and_is_as_before(model: nn.Module, name: str) -> None:
    before = {**model.state_dict(), **{k: v for k, v in vars(model).items() if not k.startswith("_")}}
    with pytest.warns(XlaWarning, match=f"keeps {name} for its next call, which has other results"):
        xla_torch.from_torch(model, X)
    after = {**model.state_dict(), **{k: v for k, v in vars(model).items() if not k.startswith("_")}}
    assert before.keys() == after.keys()
    assert all(before[k] is after[k] or torch.equal(torch.as_tensor(before[k]), torch.as_tensor(after[k])) for k in before)


class Caching(nn.Module):
    """Keeps what each call would compute again."""

    size: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.size is None:
            self.size = x.shape[0]
        return x * self.size


class Drawing(Counting):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * torch.rand(2, dtype=x.dtype)


@pytest.mark.parametrize("model", [
    Listing(False), Caching(), Drawing(), nn.Sequential(nn.Linear(2, 3, dtype=torch.float64)), nn.Dropout(0.5)],
    ids=lambda m: type(m).__name__)
def test_state_that_changes_no_result_is_no_reason_to_warn(model: nn.Module) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        xla_torch.from_torch(model, X)


# ------------------------------------------------------------------------------------------- hooks


def hooked(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.register_hook(lambda gradient: gradient * 10)
    return y.sin()


def hooked_where_required(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    if y.requires_grad:
        y.register_hook(lambda gradient: gradient * 10)
    return y.sin()


def with_hook_of_a_module() -> nn.Module:
    layer = nn.Linear(2, 2, dtype=torch.float64)
    layer.register_full_backward_hook(lambda module, inner, outer: tuple(g * 10 for g in inner))
    return nn.Sequential(layer, nn.Tanh())


@pytest.mark.parametrize("make", [lambda: hooked, lambda: hooked_where_required, with_hook_of_a_module],
                         ids=["of a tensor", "where a gradient is required", "of a module"])
def test_hooks_change_gradients(make: Callable[[], Callable[..., torch.Tensor]]) -> None:
    model = make()
    program = xla_torch.from_torch(model, X.clone().requires_grad_(), weights="constants")
    ours, theirs = (X.clone().requires_grad_() for _ in range(2))
    program(ours).sum().backward()
    model(theirs).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_a_question_for_gradients_warns_where_the_example_requires_none() -> None:
    with pytest.warns(XlaWarning, match=r"asks whether a tensor requires a gradient \(.*test_from_torch_hidden_state.py"):
        xla_torch.from_torch(hooked_where_required, X)
    before = torch.Tensor.register_hook
    xla_torch.from_torch(lambda x: x * 2, X)
    assert torch.Tensor.register_hook is before
