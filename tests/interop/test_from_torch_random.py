"""PyTorch modules that draw random numbers: what is drawn, from which state, and the same on the way back and by real XLA."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.export.experimental import _export_forward_backward

import xla_torch
from support.oracle import needs_xla, run_xla
from xla_torch.errors import InvalidArgument, UnsupportedError
from xla_torch.nn import XlaModule
from xla_torch.storage import torch_private

N = 100_000
F64 = torch.float64


def converted(function: Any, *arguments: torch.Tensor, **options: Any) -> Any:
    torch.manual_seed(7)
    return xla_torch.from_torch(function, *arguments, **options)


def drawn(function: Any, *arguments: torch.Tensor) -> Any:
    ours = converted(function, *arguments)
    return ours(ours.weights, *arguments)[0]


# ------------------------------------------------------------------------------------------- distributions


def normal(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * torch.erfc(-x / math.sqrt(2))


E = torch.empty
CONTINUOUS: dict[str, tuple[Callable[[], torch.Tensor], Callable[[torch.Tensor], torch.Tensor]]] = {
    "rand": (lambda: torch.rand(N), lambda x: x),
    "rand of F64": (lambda: torch.rand(N, dtype=F64), lambda x: x),
    "rand_like": (lambda: torch.rand_like(E(10, N // 10)), lambda x: x),
    "the parts of complex ones": (lambda: torch.view_as_real(torch.rand(N // 2, dtype=torch.complex64)), lambda x: x),
    "uniform_": (lambda: E(N).uniform_(-2, 3), lambda x: (x + 2) / 5),
    "randn": (lambda: torch.randn(N), normal),
    "randn of F64": (lambda: torch.randn(N, dtype=F64), normal),
    "randn_like": (lambda: torch.randn_like(E(N)), normal),
    "the parts of complex normal ones": (lambda: torch.view_as_real(torch.randn(N // 2, dtype=torch.complex64)),
                                         lambda x: normal(x * math.sqrt(2))),
    "normal_": (lambda: E(N).normal_(1, 2), lambda x: normal((x - 1) / 2)),
    "normal of numbers": (lambda: torch.normal(1.0, 2.0, (N,)), lambda x: normal((x - 1) / 2)),
    "normal of tensors": (lambda: torch.normal(torch.full((N,), 3.0), torch.tensor(0.5)), lambda x: normal((x - 3) * 2)),
    "normal of a mean": (lambda: torch.normal(torch.full((N,), 3.0), 0.5), lambda x: normal((x - 3) * 2)),
    "normal of a deviation": (lambda: torch.normal(3.0, torch.full((N,), 0.5)), lambda x: normal((x - 3) * 2)),
    "exponential_": (lambda: E(N).exponential_(2), lambda x: -torch.expm1(-2 * x)),
    "exponential_ of F64": (lambda: E(N, dtype=F64).exponential_(2), lambda x: -torch.expm1(-2 * x)),
    "cauchy_": (lambda: E(N).cauchy_(1, 0.5), lambda x: 0.5 + torch.atan((x - 1) * 2) / math.pi),
    "log_normal_": (lambda: E(N).log_normal_(0.1, 0.5), lambda x: normal((x.log() - 0.1) * 2)),
    "rrelu": (lambda: F.rrelu(-torch.ones(N), 0.2, 0.6, training=True), lambda x: (x + 0.6) / 0.4),
}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_numbers_are_spread_as_they_should_be(name: str):
    """By the distance of Kolmogorov and Smirnov, which exceeds this bound once in a thousand times."""
    draw, spread = CONTINUOUS[name]
    found, expected = drawn(draw), draw()
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    wanted = spread(found.flatten().to(F64).sort().values)
    places = torch.arange(N + 1, dtype=F64) / N
    assert max((places[1:] - wanted).max(), (wanted - places[:-1]).max()) < 1.95 / math.sqrt(N)
    pairs = wanted[torch.argsort(torch.argsort(found.flatten()))].view(-1, 2) - 0.5
    assert abs((pairs[:, 0] * pairs[:, 1]).mean() * 12) < 4 / math.sqrt(N / 2), "neighbours depend on each other"


def choices(*weights: float, first: int = 0) -> dict[int, float]:
    return {first + k: w / sum(weights) for k, w in enumerate(weights)}


WEIGHTS = torch.tensor([1.0, 0.0, 3.0, 0.5])
DISCRETE: dict[str, tuple[Callable[[], torch.Tensor], dict[int, float]]] = {
    "bernoulli": (lambda: torch.bernoulli(torch.full((N,), 0.3)), choices(0.7, 0.3)),
    "bernoulli of a number": (lambda: torch.bernoulli(E(N), 0.3), choices(0.7, 0.3)),
    "bernoulli_": (lambda: E(N, dtype=torch.bool).bernoulli_(0.3), choices(0.7, 0.3)),
    "bernoulli_ of a tensor": (lambda: E(N).bernoulli_(torch.tensor(0.3, dtype=F64)), choices(0.7, 0.3)),
    "randint": (lambda: torch.randint(-3, 4, (N,)), choices(*[1] * 7, first=-3)),
    "randint from 0": (lambda: torch.randint(5, (N,), dtype=torch.int32), choices(*[1] * 5)),
    "randint_like": (lambda: torch.randint_like(E(N), 2, 5), choices(1, 1, 1, first=2)),
    "randint_like from 0": (lambda: torch.randint_like(E(N, dtype=torch.int16), 5), choices(*[1] * 5)),
    "random_ below": (lambda: E(N).random_(4), choices(1, 1, 1, 1)),
    "random_ booleans": (lambda: E(N, dtype=torch.bool).random_(), choices(1, 1)),
    "random_ bytes": (lambda: E(N, dtype=torch.uint8).random_() // 64, choices(1, 1, 1, 1)),
    "the highest bits": (lambda: torch.randint(0, 3 << 53, (N,)) // (1 << 53), choices(1, 1, 1)),
    "geometric_": (lambda: E(N).geometric_(0.3), {k: 0.7 ** (k - 1) * 0.3 for k in range(1, 15)}),
    "geometric_ of integers": (lambda: E(N, dtype=torch.int64).geometric_(0.3), {k: 0.7 ** (k - 1) * 0.3 for k in range(1, 15)}),
    "multinomial": (lambda: torch.multinomial(WEIGHTS, N, True), choices(*WEIGHTS.tolist())),
    "one of each row": (lambda: torch.multinomial(WEIGHTS.expand(N, 4), 1), choices(*WEIGHTS.tolist())),
    "the first of some": (lambda: torch.multinomial(WEIGHTS.expand(N, 4), 3)[:, 0], choices(*WEIGHTS.tolist())),
    "the second of two": (lambda: torch.multinomial(torch.tensor([1.0, 3.0]).expand(N, 2), 2)[:, 1], choices(3, 1)),
    "the first of a permutation": (lambda: torch.stack([torch.randperm(4) for _ in range(64)]), choices(1, 1, 1, 1)),
    "dropout": (lambda: F.dropout(torch.ones(N), 0.3) * 0.7 + 0.5, choices(0.3, 0.7)),
    "native_dropout": (lambda: torch.native_dropout(torch.ones(N), 0.3, True)[1], choices(0.3, 0.7)),
    "gumbel_softmax": (lambda: F.gumbel_softmax(WEIGHTS.log().expand(N, 4), hard=True).argmax(1), choices(*WEIGHTS.tolist())),
}


@pytest.mark.parametrize("name", DISCRETE)
def test_choices_are_as_frequent_as_they_should_be(name: str):
    draw, wanted = DISCRETE[name]
    found, expected = drawn(draw), draw()
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    values, counts = found.to(torch.int64).unique(return_counts=True)
    seen = dict(zip(values.tolist(), counts.tolist(), strict=True))
    assert {k for k in seen if k not in wanted and seen[k] > found.numel() * 0.01} == set()
    for k, p in wanted.items():
        assert (seen.get(k, 0) > 0) == (p > 0)
        assert abs(seen.get(k, 0) / found.numel() - p) <= 4 * math.sqrt(p * (1 - p) / found.numel())


def test_bounds():
    u, half, brain, z = drawn(lambda: (torch.rand(N), torch.rand(N, dtype=torch.float16), torch.rand(N, dtype=torch.bfloat16),
                                       torch.randn(N)))
    for x, digits in ((u, 24), (half, 11), (brain, 8)):
        grid = x.to(F64) * 2**digits
        assert grid.min() >= 0
        assert grid.max() < 2**digits
        assert (grid == grid.floor()).all()
        assert abs((grid % 2).mean() - 0.5) < 0.01, "the last digit is as often 0 as 1"
    assert z.isfinite().all()


def test_permutations_and_draws_without_replacement():
    order, many = drawn(lambda w: (torch.randperm(1000), torch.multinomial(w, 50)), torch.rand(20, 100) * (torch.rand(100) > 0.4))
    assert torch.equal(order.sort().values, torch.arange(1000))
    assert not torch.equal(order, torch.arange(1000))
    assert all(len(row.unique()) == 50 for row in many)


@pytest.mark.parametrize("drop", [F.dropout, F.dropout1d, F.alpha_dropout, F.feature_alpha_dropout])
def test_what_dropout_does_at_its_ends(drop: Any):
    x = torch.randn(4, 5, 6)
    none = converted(lambda x: drop(x, 0.0, True), x)
    assert none.weights == {}
    assert torch.equal(none(x), x)
    every = converted(lambda x: drop(x, 1.0, True), x)
    assert torch.equal(every(every.weights, x)[0] if every.weights else every(x), torch.zeros(4, 5, 6))


@pytest.mark.parametrize(("drop", "dims"), [(F.dropout, ()), (F.dropout1d, (2,)), (F.dropout2d, (2, 3))])
def test_dropout_scales_what_it_leaves(drop: Any, dims: tuple[int, ...]):
    x = torch.rand(30, 40, 5, 6)[:, :, :, 0] + 1 if dims == (2,) else torch.rand(30, 40, 5, 6) + 1
    share = drawn(lambda x: drop(x, 0.25), x) / x
    assert ((share - 4 / 3).abs().lt(1e-6) | (share == 0)).all()
    assert abs((share != 0).float().mean() - 0.75) < 0.05
    assert not dims or ((share == 0).all(dims) | (share != 0).all(dims)).all()


# ------------------------------------------------------------------------------------------- derivatives and real XLA


class Recurrent(nn.Module):
    def __init__(self, kind: Any):
        super().__init__()
        self.cell = kind(3, 4, 2, dropout=0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.cell(x)[0]


def still(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        noise = torch.rand_like(x)
    return x * noise + torch.rand_like(x)


def f64(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, dtype=F64, generator=torch.Generator().manual_seed(sum(sizes)))


def attention(x: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(x, x.cos(), x.sin(), is_causal=True, dropout_p=0.4).transpose(1, 2).reshape(2, 3, -1)


MOVING: dict[str, tuple[Any, list[torch.Tensor]]] = {
    "dropout": (lambda x: F.dropout(x).sin(), [f64(3, 4)]),
    "dropout in place": (lambda x: F.dropout(x.sin(), 0.3, True, True).exp(), [f64(3, 4)]),
    "features": (lambda x: F.dropout2d(x).sin(), [f64(2, 3, 2, 2)]),
    "alpha": (lambda x: F.alpha_dropout(x, 0.4, True).sin(), [f64(3, 4)]),
    "alpha of features": (lambda x: F.feature_alpha_dropout(x, 0.4, True).sin(), [f64(2, 3, 4)]),
    "rrelu": (lambda x: F.rrelu(x, training=True).sin(), [f64(3, 4)]),
    "rrelu in place": (lambda x: F.rrelu(x.sin(), 0.1, 0.3, True, True).exp(), [f64(3, 4)]),
    "attention": (attention, [f64(2, 2, 3, 4)]),
    "masked attention of groups": (lambda q, k, m: F.scaled_dot_product_attention(
        q, k, k, m, 0.4, enable_gqa=True), [f64(1, 4, 3, 2), f64(1, 2, 5, 2), f64(3, 5)]),
    "reparameterised": (lambda m, s: torch.distributions.Normal(m, s.exp(), validate_args=False).rsample().sin(),
                        [f64(3), f64(3)]),
    "gumbel": (lambda x: F.gumbel_softmax(x, 0.7), [f64(3, 4)]),
    "of its own": (lambda x: x * torch.randn_like(x) + x.clone().exponential_() * x, [f64(3, 4)]),
    "without gradients": (still, [f64(3, 4)]),
    "views": (lambda x: torch.cat([F.dropout(part) for part in x.clone().split(1)]) * x, [f64(3, 4)]),
}
QUICK = ("dropout", "rrelu", "attention", "without gradients")


@pytest.mark.parametrize("derivatives", ["torch", pytest.param("as written", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in MOVING])
def test_the_way_back_has_the_numbers_of_the_way_forward(name: str, derivatives: Any):
    """Differences of values are no derivatives where the way back draws again."""
    function, arguments = MOVING[name]
    if name == "without gradients" and derivatives != "torch":
        return
    ours = converted(function, *arguments, derivatives=derivatives)
    given = [a.clone().requires_grad_() for a in arguments]
    _, later = ours(ours.weights, *arguments)
    for state in (ours.weights, later):
        assert torch.autograd.gradcheck(lambda *tensors, state=state: ours(state, *tensors)[0], given)
    assert derivatives != "torch" or ours.computation.entry.derivatives._is_there()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The tensor attributes self.cell._flat_weights")
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_dropout_between_layers(kind: Any):
    model, x = Recurrent(kind).double().train(), f64(2, 3, 3)
    ours = converted(model, x)
    assert torch.autograd.gradcheck(lambda x: ours(ours.weights, x)[0], [x.clone().requires_grad_()])
    model.eval()
    quiet = xla_torch.from_torch(model, x)
    torch.testing.assert_close(quiet(quiet.weights, x), model(x))


@pytest.mark.parametrize("function", [
    lambda x: torch.bernoulli(x.sigmoid()), lambda x: torch.normal(x, 1.0), lambda x: torch.normal(x, x.exp()),
    lambda x: x.clone().uniform_(), lambda x: x.clone().bernoulli_(x.sigmoid())])
def test_what_is_drawn_does_not_move_with_its_distribution(function: Any):
    """As torch has it."""
    found = []
    ours = converted(function, x := torch.randn(3, 4))
    for called in (lambda x: ours(ours.weights, x)[0], function):
        given = x.clone().requires_grad_()
        (called(given) + given * 2).sum().backward()
        found.append(given.grad)
    torch.testing.assert_close(*found)


DRAWS: dict[str, tuple[Any, list[torch.Tensor]]] = {
    "uniform": (lambda: (torch.rand(3, 5), torch.rand(7, dtype=F64), torch.rand(4, dtype=torch.bfloat16), torch.rand(()),
                         torch.rand(0, 3)), []),
    "integers": (lambda: (torch.randint(-3, 1 << 40, (9,)), E(5, dtype=torch.int64).random_(), torch.randperm(11)), []),
    "normal": (lambda: (torch.randn(8), torch.randn(5, dtype=F64), E(3).cauchy_(), E(3).log_normal_(), E(3).geometric_(0.2)), []),
    "choices": (lambda w: (torch.multinomial(w, 3), torch.multinomial(w, 7, True), torch.bernoulli(w)), [torch.rand(2, 5)]),
    **{name: MOVING[name] for name in ("dropout", "rrelu", "attention")},
}


@needs_xla
@pytest.mark.parametrize("name", DRAWS)
def test_real_xla_draws_the_same(name: str):
    function, arguments = DRAWS[name]
    ours = converted(function, *arguments)
    by_xla = run_xla(ours.to_hlo_text(), *(t.view(torch.int64).numpy().view(np.uint64) if t.dtype is torch.uint64 else t.numpy()
                                           for t in ours.tensors(ours.weights, *arguments)))
    result, after = ours(ours.weights, *arguments)
    own = [*(result if isinstance(result, tuple) else [result]), after["rng_state"]]
    for found, expected in zip(by_xla, own, strict=True):
        if expected.dtype in (torch.float32, F64) and name != "uniform":
            np.testing.assert_allclose(found, expected.detach().numpy(), rtol=1e-5, atol=1e-6)
        else:
            wide = torch.float32 if expected.dtype is torch.bfloat16 else expected.dtype
            assert np.array_equal(found.astype(np.float32) if wide is not expected.dtype else found, expected.to(wide).numpy())


# ------------------------------------------------------------------------------------------- the state


class Dropping(nn.Module):
    def __init__(self):
        super().__init__()
        self.line, self.norm, self.drop = nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.drop(self.norm(self.line(x)))


def test_a_module_draws_other_numbers_with_each_call():
    model, x = Dropping(), torch.randn(16, 8)
    ours = XlaModule.from_torch(copy.deepcopy(model), x)
    assert "rng_state" in dict(ours.named_buffers())
    assert {*ours.state_dict()} == {*model.state_dict()}
    ours.load_state_dict(model.state_dict())
    before = ours.get_buffer("rng_state").clone()
    first, second = ours(x), ours(x)
    assert ((first == 0) != (second == 0)).any()
    assert ours.get_buffer("rng_state").tolist() == [before[0].item(), 2 * x.numel()]
    ours.rng_state = before
    assert torch.equal(ours(x) == 0, first == 0)
    torch.testing.assert_close(dict(ours.named_buffers())["norm.num_batches_tracked"], torch.tensor(3))
    first.square().sum().backward()
    quiet = XlaModule.from_torch(model.eval(), x)
    assert "rng_state" not in dict(quiet.named_buffers())


def test_a_seed_sets_the_first_state():
    def function(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x)

    x = torch.ones(100)
    first, again = (converted(function, x) for _ in range(2))
    other = xla_torch.from_torch(function, x)
    assert torch.equal(first(first.weights, x)[0], again(again.weights, x)[0])
    assert first.weights["rng_state"].tolist() != other.weights["rng_state"].tolist()
    assert not torch.equal(first(first.weights, x)[0], other(other.weights, x)[0])
    torch.manual_seed(7)
    xla_torch.from_torch(torch.sin, x)
    assert torch.initial_seed() == 7
    drawn_next, _ = torch.rand(3), torch.manual_seed(7)
    assert torch.equal(drawn_next, torch.rand(3))


def test_weights_may_be_constants_and_the_state_is_none():
    model, x = Dropping(), torch.randn(16, 8)
    ours = xla_torch.from_torch(model, x, weights="constants")
    assert {*ours.weights} == {"rng_state"}
    first, after = ours(ours.weights, x)
    second, _ = ours({"rng_state": after["rng_state"]}, x)
    assert ((first == 0) != (second == 0)).any()


def test_draws_of_one_program_are_apart():
    a, b, c = drawn(lambda: (torch.rand(50), torch.rand(50), torch.randint(1 << 40, (50,))))
    assert not torch.isin(a, b).any()
    assert len(c.unique()) == 50


@pytest.mark.slow
def test_programs_that_torch_has_exported_decomposed_or_joined():
    class Loss(Dropping):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x).square().sum()

    model, x = Loss(), torch.randn(16, 8)
    exported = torch_private.quietly(lambda: torch.export.export(model, (x,)))
    found = {}
    for name, program in {"exported": exported, "decomposed": torch_private.quietly(exported.run_decompositions),
                          "joined": torch_private.quietly(lambda: _export_forward_backward(exported))}.items():
        nodes = len(program.graph.nodes)
        ours = converted(program)
        assert len(program.graph.nodes) == nodes
        weights = ours.weights
        result = ours(weights, x)
        if name == "joined":
            gradient = result[1]["weights"]["line"]["weight"]
        else:
            result[0].backward()
            gradient = weights["line"]["weight"].grad
            weights["line"]["weight"].grad = None
        found[name] = (result[0].detach(), gradient.clone())
        assert result[-1]["rng_state"].tolist()[1] == x.numel()
    for name in ("decomposed", "joined"):
        torch.testing.assert_close(found[name], found["exported"], rtol=1e-4, atol=1e-4)


def test_it_pickles():
    x = torch.randn(3, 4)
    ours = converted(F.dropout, x)
    expected = ours(ours.weights, x)
    for again in (pickle.loads(pickle.dumps(ours)), copy.deepcopy(ours)):
        torch.testing.assert_close(again(again.weights, x), expected)
    model = XlaModule.from_torch(Dropping(), x := torch.randn(16, 8))
    for again in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        torch.testing.assert_close(again(x), copy.deepcopy(model)(x))


def test_it_goes_through_texts():
    ours = converted(F.dropout, x := torch.randn(3, 4))
    again = xla_torch.from_stablehlo(ours.computation.to_stablehlo())
    torch.testing.assert_close(again(ours.weights["rng_state"], x)[0], ours(ours.weights, x)[0])


def _mapped(function: Any, *randomness: str) -> Any:
    for one in reversed(randomness):
        function = torch.func.vmap(function, randomness=one)
    return function


@pytest.mark.parametrize(("randomness", "count"), [
    (("same",), 1), (("different",), 4), (("same", "different"), 5), (("different", "same"), 4), (("different", "different"), 20),
    (("same", "same"), 1)])
def test_mapped_functions_draw_the_same_for_all_or_for_each(randomness: tuple[str, ...], count: int):
    found = drawn(_mapped(lambda x: x * 0 + torch.rand(()), *randomness), torch.ones(4, 5)[:, :5 if len(randomness) > 1 else 1])
    assert len(found.unique()) == count


DRAWING: dict[str, Any] = {
    "dropout": lambda x: F.dropout(x, 0.25), "rand_like": torch.rand_like, "bernoulli": torch.bernoulli,
    "normal_": lambda x: x.clone().normal_(), "multinomial": lambda x: torch.multinomial(x, 5) / 1,
    "after a draw": lambda x: torch.rand(64) + F.dropout(x, 0.5), "randperm": lambda x: x + torch.randperm(64)}


@pytest.mark.parametrize("name", DRAWING)
def test_a_mapped_function_draws_other_numbers_for_each_example(name: str):
    found = drawn(_mapped(DRAWING[name], "different"), torch.full((3, 64), 0.5))
    assert not (found[0] == found[1]).all()
    assert not (found[1] == found[2]).all()


def test_a_later_draw_differs_from_those_of_a_mapped_function():
    first, second = drawn(lambda x: (_mapped(lambda x: x * 0 + torch.rand(8), "different")(x), torch.rand(8)), torch.ones(3, 8))
    assert len(torch.cat([first.flatten(), second]).unique()) == 32


@pytest.mark.parametrize("randomness", ["same", "different"])
def test_an_ensemble_with_dropout_has_the_gradient_of_what_it_kept(randomness: str):
    model = converted(_mapped(lambda x: F.dropout(x, 0.5) * x, randomness), torch.ones(3, 64))
    x = torch.linspace(1, 2, 192).view(3, 64).requires_grad_()
    found = model(model.weights, x)[0]
    (gradient,) = torch.autograd.grad(found.sum(), x)
    torch.testing.assert_close(gradient, torch.where(found == 0, 0, 4 * x.detach()))
    assert ((found[0] == 0) == (found[1] == 0)).all() == (randomness == "same")


class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.rng_state = nn.Buffer(torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x) + self.rng_state


@pytest.mark.parametrize(("function", "error", "words"), [
    (Named(), UnsupportedError, "rename it"),
    (torch.func.vmap(lambda x: x + torch.rand(())), UnsupportedError, "'same' or 'different' randomness"),
    (lambda x: torch.cond(x.sum() > 0, F.dropout, lambda x: x.clone(), (x,)), UnsupportedError,
     "in a loop, a branch"),
    (lambda x: torch.poisson(x.exp()), UnsupportedError, "poisson"),
    (lambda x: x + torch.randint_like(x, 3, 3), InvalidArgument, "no whole number")])
def test_what_is_refused(function: Any, error: Any, words: str):
    with pytest.raises(error, match=words):
        xla_torch.from_torch(function, torch.randn(3))
