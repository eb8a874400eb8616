"""Gradients that torch stops, beside operators whose way back torch cannot trace: as eager torch has them."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch._higher_order_ops.scan import scan

import xla_torch
from support.oracle import needs_xla, run_xla
from xla_torch.errors import DifferentiationError, LostDerivatives, XlaWarning

X = torch.tensor([[0.5, -1.25, 2.0], [1.5, 0.75, -0.5], [-2.5, 1.0, 0.25], [3.0, -0.75, 1.75]], dtype=torch.float64)
MASK = torch.tensor([True, False, True, True])
ROWS = torch.tensor([[0, 0, 1], [1, 0, 1], [0, 1, 0], [1, 1, 1]])
AT = torch.tensor([0, 1, 3, 1])


def carried(x: torch.Tensor) -> torch.Tensor:
    def step(c: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        c = c + row * c.detach()
        return c, c.clone()

    return scan(step, torch.ones(3, dtype=x.dtype), x)[1]  # pyright: ignore


def carried_without_gradient(x: torch.Tensor) -> torch.Tensor:
    def step(c: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.no_grad():
            factor = c.cos()
        c = c.sin() + row * factor
        return c, c.clone()

    return scan(step, torch.ones(3, dtype=x.dtype), x)[1]  # pyright: ignore


OPERATORS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sine": torch.sin,
    "replicate padding": lambda x: F.pad(x[None], (1, 2), mode="replicate").square(),
    "cdist": lambda x: torch.cdist(x, x.flip(0) * 2),
    "pdist": F.pdist,
    "nearest-exact": lambda x: F.interpolate(x[None], scale_factor=2.0, mode="nearest-exact").square(),
    "a product of what is scattered": lambda x: x.new_zeros(2, 3).scatter_reduce(0, ROWS, x, "prod", include_self=False),
    "a mask": lambda x: x[MASK.clone()].square(),
    "a mask of values": lambda x: x[x > 0] ** 3,
    "a loop": carried,
    "a branch": lambda x: torch.cond(x.sum() > 0, lambda x: x * x.detach(), torch.clone, (x,)),
}


def in_no_grad(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        total, size = x.sin().sum(), x.square().sum()
    return x.sum() * total + size


def in_place(x: torch.Tensor) -> torch.Tensor:
    y = x.cos()
    y.detach_()
    return (y * x).sum()


STOPS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "detach": lambda x: x.square().mean().detach() * x.sum(),
    "detach of a part": lambda x: (x[1:].detach() * x[:-1]).sum(),
    "detach_": in_place,
    "no_grad": in_no_grad,
    "set_grad_enabled": lambda x: x.sum() * torch.set_grad_enabled(False)(lambda: x.square().mean())(),
    "data": lambda x: (x.data * x).sum(),
    "padding": lambda x: F.embedding(AT, x, padding_idx=1).square().sum(),
}
QUICK = [("replicate padding", "no_grad"), ("a mask of values", "detach"), ("cdist", "padding"), ("a loop", "data"),
         ("pdist", "detach_")]
EACH = pytest.mark.parametrize(("name", "stop"), [
    *QUICK, *(pytest.param(name, stop, marks=pytest.mark.slow) for name in OPERATORS for stop in STOPS
              if (name, stop) not in QUICK)])


def program(name: str, stop: str) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: OPERATORS[name](x) * STOPS[stop](x)


def gradients(function: Callable[..., Any], x: torch.Tensor, seed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The gradient, and that of its squares where there is one."""
    given = x.clone().requires_grad_()
    (first,) = torch.autograd.grad(function(given), given, seed, create_graph=True)
    return first.detach(), torch.autograd.grad(first.square().sum(), given)[0]


@pytest.fixture(autouse=True)
def _silent() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error", XlaWarning)
        warnings.filterwarnings("ignore", r"`torch\.jit\.script_method` is deprecated", DeprecationWarning)
        warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)` is deprecated", FutureWarning)
        yield


HAS_NO_SECOND = ("cdist", "pdist", "a branch")
"""What torch has no second derivative of."""


@EACH
def test_derivatives_are_those_of_torch(name: str, stop: str):
    function = program(name, stop)
    ours = xla_torch.from_torch(function, X)
    expected = function(X)
    torch.testing.assert_close(ours(X), expected)
    seed = torch.linspace(0.5, 1.5, expected.numel(), dtype=X.dtype).view_as(expected)
    x = X.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(function(x), x, seed, create_graph=True)
    first, second = gradients(ours, X, seed)
    torch.testing.assert_close(first, wanted.detach())
    if name not in HAS_NO_SECOND:
        torch.testing.assert_close(second, torch.autograd.grad(wanted.square().sum(), x)[0])
    along = torch.cos(X)
    _, tangent = xla_torch.jvp(ours)(X, along)
    torch.testing.assert_close((tangent * seed).sum(), (wanted.detach() * along).sum())


def branching(x: torch.Tensor) -> torch.Tensor:
    def step(c: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        c = torch.cond(row.sum() > 0.5, lambda c, x: c.detach() * c * x, lambda c, x: c * x, (c, row))
        return c, c.clone()

    return scan(step, torch.ones(3, dtype=x.dtype), x)[1]  # pyright: ignore


BODIES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "a loop": carried, "a loop with no_grad": carried_without_gradient, "a branch": OPERATORS["a branch"],
    "a branch in a loop": branching,
    "while": lambda x: torch.while_loop(  # pyright: ignore
        lambda k, c: k < 3, lambda k, c: (k + 1, c * c.detach()), (torch.tensor(0), x))[1]}


@pytest.mark.parametrize("name", BODIES)
def test_bodies_keep_them_beside_a_derivative_within(name: str):
    body = BODIES[name]

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.func.grad(lambda y: (y ** 3).sum())(x) * body(x)

    ours, found, wanted = xla_torch.from_torch(function, X), X.clone().requires_grad_(), X.clone().requires_grad_()
    torch.testing.assert_close(*(
        torch.autograd.grad(f(x).square().sum(), x)[0] for f, x in ((ours, found), (function, wanted))))


MAPPED = ["replicate padding", "cdist", "pdist", "nearest-exact", "a product of what is scattered"]


@pytest.mark.parametrize(("name", "stop"), [
    ("replicate padding", "detach"), ("cdist", "no_grad"),
    *(pytest.param(name, stop, marks=pytest.mark.slow) for name in MAPPED for stop in STOPS)])
def test_batches_and_transforms_keep_them(name: str, stop: str):
    function, batch = program(name, stop), torch.stack([X, X * 1.5, X.flip(0)])
    ours = xla_torch.from_torch(function, X)
    wanted = []
    for one in batch:
        given = one.clone().requires_grad_()
        wanted.append(torch.autograd.grad(function(given).sum(), given)[0])
    wanted = torch.stack(wanted)
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(lambda x: ours(x).sum()))(batch), wanted)
    mapped, given = xla_torch.vmap(ours, 3), batch.clone().requires_grad_()
    torch.testing.assert_close(torch.autograd.grad(mapped(given).sum(), given)[0], wanted)


@pytest.mark.parametrize("way", ["xla", "pickled"])
def test_the_ops_know_where_gradients_stop(way: str):
    function = program("replicate padding", "no_grad")
    ours = xla_torch.from_torch(function, X, derivatives="xla" if way == "xla" else "torch")
    ours = pickle.loads(pickle.dumps(ours)) if way == "pickled" else ours
    seed = torch.ones_like(function(X))
    torch.testing.assert_close(gradients(ours, X, seed), gradients(function, X, seed))


def test_complex_programs_know_where_gradients_stop():
    def function(x: torch.Tensor) -> torch.Tensor:
        return (torch.complex(x, x.detach()) * torch.complex(x, x)).abs().square()

    ours, seed = xla_torch.from_torch(function, X), torch.ones_like(X)
    torch.testing.assert_close(gradients(ours, X, seed), gradients(function, X, seed))


@needs_xla
def test_texts_hold_what_xla_knows_and_say_what_they_lost():
    function = program("replicate padding", "padding")
    ours = xla_torch.from_torch(function, X)
    text = ours.to_hlo_text()
    assert "stop" not in text
    assert all("composite.name" in line for line in text.splitlines() if " call(" in line)
    assert "embedding.default" in text
    torch.testing.assert_close(torch.from_numpy(np.array(run_xla(text, X.numpy())[0])), function(X))
    for again in (xla_torch.parse_hlo(text), xla_torch.from_stablehlo(ours.computation.to_stablehlo())):
        torch.testing.assert_close(again(X), function(X))
    with pytest.warns(LostDerivatives, match="embedding"):
        xla_torch.parse_hlo(text)(X.clone().requires_grad_()).sum().backward()


def written(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    y.detach().mul_(2)
    return F.pad(y[None], (1, 1), mode="replicate")


def written_in_no_grad(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    with torch.no_grad():
        y.mul_(2)
    return F.pad(y[None], (1, 1), mode="replicate")


@pytest.mark.parametrize("function", [written, written_in_no_grad])
def test_what_is_written_beside_autograd_is_refused(function: Any):
    ours = xla_torch.from_torch(function, X)
    torch.testing.assert_close(ours(X), function(X))
    with pytest.raises(DifferentiationError, match="do not know of"):
        ours(X.clone().requires_grad_()).sum().backward()
