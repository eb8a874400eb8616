"""PyTorch programs in which sizes depend on values: values, gradients and real XLA, for masks of nothing, one and all."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.export import Dim, export
from torch.utils import _pytree as pytree

import xla_torch
from support.aten_rows import floats
from support.oracle import HAS_XLA, needs_xla, run_xla
from xla_torch.aten.operator_rules import ALONG_OTHERS, INTO_KNOWN, RULES, WITH_DYNAMIC
from xla_torch.errors import ExecutionError, UnsupportedError
from xla_torch.nn import XlaModule

if HAS_XLA:
    from support.stablehlo_oracle import load_stablehlo

F64 = torch.float64
pytestmark = [pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0"),
              pytest.mark.filterwarnings("ignore:.*only xla_torch runs checks")]
X = floats(6, 3, dtype=F64)
MASKS = [torch.tensor(rows, dtype=torch.bool) for rows in ([1, 0, 1, 1, 0, 1], [0] * 6, [1] * 6, [0, 0, 0, 1, 0, 0])]


def written(x: torch.Tensor, mask: torch.Tensor, value: Any) -> torch.Tensor:
    found = x * 2
    found[mask] = value
    return found


def doubled_where(x: torch.Tensor) -> torch.Tensor:
    found = x * 2
    found[found > 1] *= 2
    return found


def repeated(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    found = x.repeat_interleave(m.long() * torch.tensor([3, 1, 0, 2, 1, 1]), 0)
    torch._check(found.shape[0] <= 20)
    return found.exp()


def halved(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    found = x[m] * 2
    found[found > 0] = 0.5
    return found


def distinct(x: torch.Tensor, m: torch.Tensor) -> Any:
    rows = (x * m[:, None]).sign()
    return (*torch.unique(rows, dim=0, return_inverse=True, return_counts=True), torch.unique(rows, dim=1),
            *torch.unique(rows[:, :1] > 0, dim=0, return_inverse=True), torch.unique(rows[:1], dim=0),
            torch.unique(m.long(), dim=0), torch.unique(rows.view(6, 3, 1) * 2, dim=0, return_counts=True)[1])


def counted(m: torch.Tensor) -> int:
    n = m.sum().item()
    torch._check(n >= 0)
    torch._check(n <= 6)
    return n  # pyright: ignore[reportReturnType]


MASKED: dict[str, Any] = {
    "a sum": lambda x, m: x[x > 0].sum() + 0 * x[m].sum(),
    "rows": lambda x, m: x[m] * 2 + 1,
    "masked_select": lambda x, m: x.masked_select(m[:, None]).softmax(0),
    "nonzero": lambda x, m: (torch.nonzero(m), torch.nonzero(x * m[:, None])),
    "places by where": lambda x, m: (torch.where(m), x[torch.where(x * m[:, None] > 0)]),
    "means": lambda x, m: (x[m].mean(0), x[m].mean(), x[m].mean(1, keepdim=True) * x[m]),
    "several sizes": lambda x, m: x[m].sum() * x[~m].mean(0) + x[x > 0].mean(),
    "masks written with as many": lambda x, m: (
        doubled_where(x[m]), x[m].index_put((x[m][:, 0] > 0,), x[0]), x[m].index_put((x[m] > 0,), x[m][x[m] > 0].sin(), True)),
    "copied": lambda x, m: (torch.zeros_like(x[m]).copy_(x[m] * 2), x[m].clone().copy_(x[0].float())),
    "masks written": lambda x, m: (x.index_put((m,), x.new_zeros(())), written(x, m, 0.5), written(x, m, x[0].exp())),
    "values written": lambda x, m: written(x, m, x[m].exp()),
    "variances": lambda x, m: (x[m].var(0), x[m].var(), torch.var_mean(x[m], 0)[1]),
    "deviations": lambda x, m: (x[m].std(0, unbiased=False), x[m].std(1)),
    "softmax": lambda x, m: (x[m].log_softmax(0), x[m].softmax(1), x[m].log_softmax(1)),
    "products": lambda x, m: (x[m] @ x.T, x[m].T @ x[m], x[m] @ x[m].T, F.linear(x[m], x, x[:, 0])),
    "batched products": lambda x, m: x[m][:, None, :] @ x[m][:, :, None],
    "joined": lambda x, m: (torch.cat([x[m], x[~m]]), torch.cat([x[m], x[:2], x[m].exp()]), torch.cat([x[m], x[m]], 1)),
    "sizes as numbers": lambda x, m: (x[m].shape[0] * x.sum(), x.sum() / (x[m].shape[0] + 1), x.sum() * (x[m].numel() / 2)),
    "slices": lambda x, m: (x[m][:2], x[m][:, 1:], x[m][:, 1], x[m, 1]),
    "slices of known arrays": lambda x, m: x[:x[m].shape[0]] * x[m],
    "views": lambda x, m: (x[m].reshape(-1), x[m].reshape(-1).view(-1, 3).exp(), x[m].T, x[m][None].squeeze(0)),
    "columns": lambda x, m: (x[:, m[:3]], x.T[:, m], x[m, torch.tensor([1])]),
    "masks of what masks chose": lambda x, m: x[m][x[m][:, 1] > 0].sum(0),
    "rows by places": lambda x, m: (x.exp().index_select(0, m.nonzero()[:, 0]), F.embedding(m.nonzero()[:, 0], x)),
    "places from the end": lambda x, m: (x[m.nonzero()[:, 0] - 6], x[m].gather(1, (x[m][:, :1] > 0).long())),
    "added at places": lambda x, m: torch.zeros(6, 3, dtype=F64).index_put((m.nonzero()[:, 0],), x[m].sin(), accumulate=True),
    "arrays of such sizes": lambda x, m: (torch.full((x[m].shape[0], 2), 3.0, dtype=F64) + x[m][:, :1],
                                          torch.arange(x[m].shape[0]), torch.zeros_like(x[m]), torch.ones_like(x[m]) * 2),
    "losses": lambda x, m: (F.mse_loss(x[m], x.exp()[m]), F.binary_cross_entropy_with_logits(x[m], torch.ones_like(x[m])),
                            F.l1_loss(x[m], x.sin()[m]), F.smooth_l1_loss(x[m], x.sin()[m])),
    "cross entropy": lambda x, m: F.cross_entropy(x[m], torch.arange(6)[m] % 3),
    "layer_norm": lambda x, m: F.layer_norm(x[m], (3,), x[0], x[1]),
    "extremes": lambda x, m: (x[m].amax(1), x[m].amin(1), x[m].max(1).values, x[m].argmax(1), x[m].argmin(1), x[m].min(1).values),
    "along known dimensions": lambda x, m: (x[m].sort(1).values, x[m].cumsum(1), x[m].cumprod(1), x[m].flip(1),
                                            x[m].topk(2).values,
                                            x[m].sort(dim=1, stable=True).indices, *x[m].split([1, 2], 1)),
    "norms": lambda x, m: (x[m].norm(), x[m].norm(dim=1), x[m].norm(1), x[m].prod(0), x[m].prod()),
    "truths": lambda x, m: ((x[m] > 1).any(0), (x[m] > 1).any(), (x[m] > -9).all(0), (x[m] != 0) & (x[m] >= 0),
                            (x[m] == 0) | (x[m] < 1),
                            ~(x[m] <= 0), torch.logical_and(x[m] > 0, x[m] < 1), torch.logical_or(x[m] > 0, x[m] < 1)),
    "expanded": lambda x, m: (x[m][:, None].expand(-1, 2, -1) * 2, x[m][:, None, :] - x[m][None, :, :],
                              (x[m][:, None, :] - x[~m][None]).square().sum(-1)),
    "functions": lambda x, m: (
        torch.where(x[m] > 0, x[m].tanh(), x[m].sin()), x[m].clamp(-0.5, 0.5), x[m].abs().sqrt(), torch.maximum(x[m], x[m].cos()),
        torch.minimum(x[m], x[m].cos()), F.gelu(x[m]), F.relu(x[m]), F.elu(x[m]), F.leaky_relu(x[m]), F.hardtanh(x[m]),
        x[m].sigmoid(), x[m].exp().log(), x[m].abs().log1p(), x[m].expm1(), x[m] ** 2, 2 ** x[m], x[m].exp() ** x[m], x[m].erf(),
        1 / x[m], x[m].exp().rsqrt(), x[m].atan(), torch.atan2(x[m], x[m].exp()), x[m].tan(), -x[m], x[m] - 1, x[m] - x[m].exp(),
        x[m] / x[m].exp(), x[m].floor() + x[m].ceil() + x[m].round() + x[m].trunc() + x[m].sign(), x[m].isnan(), x[m].isinf(),
        x[m].to(torch.float32), x[m].clone(), x[m].exp().reciprocal()),
    "repeated as often as is said": lambda x, m: x.repeat_interleave(m.long() + 1 - m.long(), 0, output_size=6).sin(),
    "running sums": lambda x, m: (x[m].cumsum(0), x[m].cumprod(0), x[m].softmax(0).cumsum(0)),
    "sorts": lambda x, m: (*x[m].sort(dim=0, stable=True), x[m].sort(dim=0, descending=True).values,
                           x[m].argsort(dim=0, stable=True),
                           (x * 0)[m].sort(dim=0, stable=True).indices, x[m].sort(dim=0, descending=True).values[:2],
                           (x > 0)[m].sort(dim=0, stable=True, descending=True).indices,
                           torch.where(x > 0, x, torch.nan)[m].sort(dim=0, stable=True).values),
    "backwards": lambda x, m: (x[m].flip(0), x[m].flip(0, 1), x[m].T @ x[m].flip(0)),
    "slices from either end": lambda x, m: (x[m][1:], x[m][-2:], x[m][::2], x[m][1::2], x[m][:-1], x[m][1:-1], x[m][2:4]),
    "extremes along it": lambda x, m: (
        *torch.cat([x[m], x[:1]]).max(0), *torch.cat([x[m], x[:1]]).min(0), torch.cat([x[m], x[:1]]).argmax(0),
        torch.cat([x[m], x[:1]]).argmin(0, keepdim=True), torch.cat([x[m], x[:1]]).argmax(), torch.cat([x[m], x[:1]]).argmin()),
    "repeats": lambda x, m: (x[m].repeat(2, 1), x[m].repeat(2, 1, 2)),
    "masks written within": lambda x, m: (halved(x, m), x[m].masked_fill(x[m] > 0, 0.0)),
    "likeness": lambda x, m: (F.cosine_similarity(x[m], x[m].exp()), F.normalize(x[m], dim=0),
                              F.one_hot(torch.arange(6)[m] % 3, 3)),
    "values as numbers": lambda x, m: (x * m.sum().item(), x * x.sum().item() + 1, x[:counted(m)] * 2,
                                       torch.cat([x, x[:1]])[counted(m)]),
    "distinct slices": distinct,
    "scattered": lambda x, m: (
        x.cos().scatter_add(0, m.nonzero().expand(-1, 3), x[m]), x[:, 0].scatter_add(0, m.nonzero()[:, 0], x[m][:, 0].exp()),
        x.cos().scatter(0, m.nonzero().expand(-1, 3), x[m].sin()), x.cos().scatter(0, m.nonzero().expand(-1, 3), 2.0)),
    "scattered by reductions": lambda x, m: (
        x.cos().scatter_reduce(0, m.nonzero().expand(-1, 3), x[m], "amax"),
        x.cos().scatter_reduce(0, m.nonzero().expand(-1, 3), x[m], "prod"),
        x.cos().scatter_reduce(0, (m.nonzero() // 2).expand(-1, 3), x[m], "mean", include_self=False)),
    "added to groups": lambda x, m: (torch.zeros(3, dtype=F64).scatter_add(0, torch.arange(6)[m] % 3, x[m][:, 0]),
                                     x.cos().index_add(0, m.nonzero()[:, 0], x[m]),
                                     x.cos().index_copy(0, m.nonzero()[:, 0], x[m]),
                                     x.cos().masked_scatter(m[:, None].expand(6, 3), x[m] * 2)),
    "padded": lambda x, m: (F.pad(x[m], (1, 2)), F.pad(x[m], (0, 0, 1, 2), value=3.0), F.pad(x[m].exp(), (-1, 1, 1, 0))),
    "element by element": lambda x, m: (
        x[m].sinh(), x[m].exp2(), m.nonzero() // 2, x[m].fmod(0.5), m.nonzero() ^ 1, x[m].select_scatter(x[m][:, 0] * 2, 1, 1),
        x[m].slice_scatter(x[m][:, :1], 1, 0, 1), x[m].median(1).values,
        torch.searchsorted(torch.arange(3.0, dtype=F64), x[m]), torch.isin(m.nonzero()[:, 0], torch.tensor([1, 2]))),
    "one element": lambda x, m: (x[:1][m[:1]], torch.nonzero(m[:1]), torch.nonzero(m[3]), x[:1, :1][m[:1]].mean()),
    "no element": lambda x, m: (x[:0][m[:0]] > 0, torch.nonzero(m[:0]), x[:0].masked_select(m[:0, None]) > 0),
}
WHOLE = [torch.tensor(row) for row in ([3, 1, 1, 7, 3, 3, 0, 7], [0] * 8, [*range(8)], [5, 5, 4, 3, 2, 1, 1, 1])]
DISTINCT: dict[str, Any] = {
    "unique": lambda i: torch.unique(i, return_inverse=True, return_counts=True),
    "alone": lambda i: (torch.unique(i), torch.unique_consecutive(i)),
    "with one of both": lambda i: (*torch.unique(i, return_inverse=True), *torch.unique(i, return_counts=True)),
    "of floats and flags": lambda i: (*torch.unique(i.double().view(2, 4).sqrt() - 2, return_inverse=True, return_counts=True),
                                      torch.unique(i > 3), torch.unique(torch.where(i > 3, torch.nan, i.double()))),
    "of runs": lambda i: torch.unique_consecutive(i, return_inverse=True, return_counts=True),
    "of one": lambda i: (*torch.unique(i[:1], return_inverse=True, return_counts=True), torch.unique_consecutive(i[:1])),
    "a histogram": lambda i: torch.unique(i, return_counts=True)[1] / i.numel(),
}
CASES = {**{f"masked, {name}": (f, [(X, m) for m in MASKS]) for name, f in MASKED.items()},
         **{f"distinct, {name}": (f, [(w,) for w in WHOLE]) for name, f in DISTINCT.items()}}
EACH = [pytest.param(name, marks=() if 1 <= k < 9 or "unique" in name else pytest.mark.slow) for k, name in enumerate(CASES)]


def gradients(results: Any, given: list[torch.Tensor]) -> list[torch.Tensor]:
    moving = [r for r in pytree.tree_leaves(results) if r.requires_grad]
    cotangents = [torch.linspace(-1, 1, r.numel(), dtype=r.dtype).view(r.shape) for r in moving]
    inputs = [g for g in given if g.requires_grad]
    return list(torch.autograd.grad(moving, inputs, cotangents, allow_unused=True, materialize_grads=True)) if moving else []


@pytest.mark.parametrize("name", EACH)
def test_values_and_gradients_are_those_of_torch(name: str):
    function, rows = CASES[name]
    ours = xla_torch.from_torch(function, *rows[0])
    for row in rows:
        given = [t.clone().requires_grad_(t.is_floating_point()) for t in row]
        expected, found = function(*given), ours(*given)
        torch.testing.assert_close(found, expected, equal_nan=True)
        if name.startswith("masked") and "distinct" not in name:  # torch has no derivative of unique
            torch.testing.assert_close(gradients(found, given), gradients(expected, given), equal_nan=True)


@pytest.mark.parametrize("name", EACH)
def test_stablehlo_says_the_same(name: str):
    """What is read back has the same values and gradients."""
    function, rows = CASES[name]
    ours = xla_torch.from_torch(function, *rows[0])
    back = xla_torch.from_stablehlo(ours.to_stablehlo())
    for row in rows:
        given = [t.clone().requires_grad_(t.is_floating_point()) for t in row]
        expected, found = ours(*given), back(*given)
        torch.testing.assert_close(pytree.tree_leaves(found), pytree.tree_leaves(expected), equal_nan=True)
        if name.startswith("masked") and "distinct" not in name:
            torch.testing.assert_close(gradients(found, given), gradients(expected, given), equal_nan=True)


@needs_xla
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("written", ["HLO", "StableHLO"])
def test_real_xla_gives_what_torch_gives(name: str, written: str):
    """XLA's arrays come back with their bounds, and with their elements side by side in front."""
    function, rows = CASES[name]
    ours = xla_torch.from_torch(function, *rows[0])
    text = ours.to_hlo_text() if written == "HLO" else load_stablehlo(ours.to_stablehlo())
    for row in rows:
        expected = pytree.tree_leaves(function(*row))
        for found, wanted in zip(run_xla(text, *(t.numpy() for t in row)), expected, strict=True):
            first = np.array(found).reshape(-1)[:wanted.numel()].reshape(wanted.shape)
            torch.testing.assert_close(torch.from_numpy(first), wanted, equal_nan=True)


def test_the_sizes_are_bounded_dimensions():
    ours = xla_torch.from_torch(lambda x, m: x[m].exp(), X, MASKS[0])
    text = ours.to_hlo_text()
    assert "f64[<=6,3]" in text
    assert "set-dimension-size" in text
    text = ours.to_stablehlo()
    assert "tensor<?x3xf64, #stablehlo.bounds<6, ?>>" in text
    assert "stablehlo.set_dimension_size" in text


def test_operators_that_are_known_have_rules():
    assert {*RULES} >= WITH_DYNAMIC | ALONG_OTHERS | INTO_KNOWN
    assert not WITH_DYNAMIC & ALONG_OTHERS


# ------------------------------------------------------------------------------------------- what is done with programs


def masked_loss(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    return (x[m].sin() * x[m]).mean()


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # torch.func.jvp asks for it
def test_transforms_and_pickles():
    ours = xla_torch.from_torch(masked_loss, X, MASKS[0])
    given = X.clone().requires_grad_()
    expected, = torch.autograd.grad(masked_loss(given, MASKS[0]), given)
    for function in (ours, pickle.loads(pickle.dumps(ours))):
        torch.testing.assert_close(xla_torch.grad(function)(X, MASKS[0]), expected)
    assert torch.autograd.gradgradcheck(lambda x: ours(x, MASKS[0]), given)
    found = torch.func.jvp(lambda x: ours(x, MASKS[0]), (X,), (X.cos(),))
    torch.testing.assert_close(found, torch.func.jvp(lambda x: masked_loss(x, MASKS[0]), (X,), (X.cos(),)))


def test_beside_sizes_that_are_known_at_the_call():
    batch = Dim("batch", min=2)
    ours = xla_torch.from_torch(lambda x, m: (x[m].sum(0), x[m]), X, MASKS[0], dynamic_shapes=({0: batch}, {0: batch}))
    for count in (3, 9):
        x = floats(count, 3, dtype=F64)
        torch.testing.assert_close(ours(x, x[:, 0] > 0), (x[x[:, 0] > 0].sum(0), x[x[:, 0] > 0]))


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 1)

    def forward(self, x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x[m]).relu()).square().mean()


def test_a_module_trains_through_a_mask():
    model, x = Masked(), X.float()
    for ours in (XlaModule.from_torch(copy.deepcopy(model), x, MASKS[0]),
                 XlaModule.from_torch(export(copy.deepcopy(model), (x, MASKS[0])))):
        modules = [copy.deepcopy(model), ours]
        optimizers = [torch.optim.SGD(module.parameters(), 0.1) for module in modules]
        for mask in (MASKS[0], MASKS[3], MASKS[2]):
            for module, optimizer in zip(modules, optimizers, strict=True):
                optimizer.zero_grad()
                module(x, mask).backward()
                optimizer.step()
        torch.testing.assert_close(dict(ours.state_dict()), dict(modules[0].state_dict()), check_stride=False)


# ------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("function", [
    lambda x, m: x[m].median(0).values, lambda x, m: x[m][0], lambda x, m: x[m].topk(1, 0).values,
    lambda x, m: x.T[:, m].argmax(), lambda x, m: x[m].T.reshape(-1), lambda x, m: F.conv1d(x[m][:, None], x[:1, :2][None]),
    lambda x, m: x[m].scatter_add(0, m.nonzero().clamp(max=1).expand(-1, 3), x),
    lambda x, m: x[m].index_put((torch.tensor([0]),), x[0]), lambda x, m: torch.unique(x[m]),
    lambda x, m: torch.unique(x[m], dim=0), lambda x, m: x.repeat_interleave(m.long(), 0), repeated,
    lambda x, m: torch.bincount(m.cumsum(0)) + x[:1, 0]])
def test_operators_without_a_rule_for_such_sizes_take_those_of_the_example(function: Any):
    ours = xla_torch.from_torch(function, X, MASKS[0])
    torch.testing.assert_close(ours(X, MASKS[0]), function(X, MASKS[0]))
    for mask in MASKS:
        try:
            found = ours(X, mask)
        except ExecutionError:
            assert int(mask.sum()) != int(MASKS[0].sum())
        else:
            torch.testing.assert_close(found, function(X, mask))


def test_sizes_in_branches_are_refused():
    with pytest.raises(UnsupportedError, match="cond"):
        xla_torch.from_torch(lambda x, m: torch.cond(m.any(), torch.sin, torch.cos, (x[m],)), X, MASKS[0])


def test_a_size_may_be_one_that_only_a_check_bounds():
    ours = xla_torch.from_torch(lambda x, m: torch.ones(counted(m), 3) + 1, X, MASKS[0])
    for mask in MASKS:
        torch.testing.assert_close(ours(X, mask), torch.full((int(mask.sum()), 3), 2.0))


def test_gradients_stop_beside_sizes_that_depend_on_values():
    ours = xla_torch.from_torch(lambda x, m: (x.detach() * x)[m].sum(), X, MASKS[0])
    torch.testing.assert_close(ours(X, MASKS[0]), (X * X)[MASKS[0]].sum())
    torch.testing.assert_close(xla_torch.grad(ours)(X, MASKS[0]), torch.where(MASKS[0].view(-1, *[1] * (X.ndim - 1)), X, 0))


def test_batches_of_sizes_that_depend_on_values_are_refused():
    ours, batch = xla_torch.from_torch(lambda x, m: x[m], X, MASKS[0]), torch.stack(MASKS[:2])
    with pytest.raises(UnsupportedError, match=r"dynamic size cannot be batched(.|\n)*hint +pad it to its bound"):
        xla_torch.vmap(ours, 2, [None, 0])(X, batch)
    with pytest.raises(UnsupportedError, match=r"dynamic size cannot run on this batch(.|\n)*hint +pad the results"):
        torch.func.vmap(ours, (None, 0))(X, batch)


def test_sizes_that_torch_knows_are_known():
    def function(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        found = x[m]
        torch._check(found.shape[0] == 4)
        return found.cumsum(0)

    torch.testing.assert_close(xla_torch.from_torch(function, X, MASKS[0])(X, MASKS[0]), X[MASKS[0]].cumsum(0))
