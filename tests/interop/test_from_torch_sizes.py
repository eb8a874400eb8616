"""PyTorch programs whose sizes are symbols: one computation for all sizes that torch says."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim, export
from torch.utils import _pytree as pytree

import xla_torch
from support.aten_rows import floats
from support.oracle import needs_xla, run_xla
from support.torch_models import Wrapped
from xla_torch.errors import InvalidArgument, UnsupportedError
from xla_torch.nn import XlaModule

F64 = torch.float64
BATCH, LENGTH, HALF = Dim("batch", min=1, max=64), Dim("length"), Dim("half", min=2, max=64)
ANY = {0: BATCH}


class Reshaped(nn.Module):
    """Sizes in views, in expansions and in numbers, and what a graph says of gradients alone."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 4, dtype=F64)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        with torch.no_grad():
            held = x.sin()
        rows = self.linear(x * held).view(x.shape[0] * 2, 2) + y.detach().square()[:, None].expand(-1, 2) * y[:, None]
        return rows / x.shape[0], torch.arange(x.shape[0]), torch.full((x.shape[0], 2), x.shape[0] * 3)


def attention(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return nn.functional.scaled_dot_product_attention(q, k, k, is_causal=True).transpose(0, 1).reshape(q.shape[1], -1)


Sizes = list[tuple[int, ...]]
CASES: dict[str, tuple[Any, Sizes, Any, list[Sizes]]] = {
    "views, numbers, no_grad": (Reshaped(), [(4, 3), (8,)], (ANY, {0: 2 * BATCH}),
                                [[(1, 3), (2,)], [(4, 3), (8,)], [(64, 3), (128,)]]),
    "one of two sizes": (attention, [(2, 5, 4), (2, 5, 4)], ({0: BATCH, 1: LENGTH}, {0: BATCH, 1: LENGTH}),
                         [[(1, 2, 4)] * 2, [(3, 7, 4)] * 2, [(2, 9, 4)] * 2]),
    "sizes that differ by one": (lambda a, b: a[1:] * b, [(5, 2), (4, 2)], ({0: LENGTH + 1}, {0: LENGTH}),
                                 [[(3, 2), (2, 2)], [(9, 2), (8, 2)]]),
    "multiples alone": (lambda y: y.view(-1, 2).cumsum(0), [(8,)], ({0: 2 * HALF},), [[(4,)], [(6,)], [(128,)]]),
    "a size that torch finds divisible": (lambda y: y.view(y.shape[0] // 2, 2) * 2, [(8,)], ({0: Dim.DYNAMIC},),
                                      [[(4,)], [(10,)]]),
    "whatever torch finds": (lambda x, w: (x @ w).softmax(-1), [(3, 4), (4, 5)],
                            ({0: Dim.AUTO, 1: Dim.AUTO}, {0: Dim.AUTO, 1: 5}),
                             [[(3, 4), (4, 5)], [(7, 2), (2, 5)]]),
    "normalisation over the batch": (nn.BatchNorm1d(3, dtype=F64, track_running_stats=False), [(4, 3)], (ANY,),
                                     [[(2, 3)], [(9, 3)]]),
    "sorts, pools, sizes joined": (
        lambda x: (x.sort(0).values, nn.functional.avg_pool1d(x, 2), torch.cat([x, x.exp(), x.flip(0)])),
        [(4, 6)], ({0: HALF},), [[(2, 6)], [(5, 6)], [(64, 6)]]),
    "a branch": (lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)), [(4, 2)], (ANY,), [[(1, 2)], [(6, 2)]]),
    "a mapped function": (torch.func.vmap(lambda row: row * row.sum()), [(4, 3)], ({1: LENGTH},), [[(4, 2)], [(4, 7)]]),
}
EACH = [pytest.param(name, marks=() if k < 4 else pytest.mark.slow) for k, name in enumerate(CASES)]


def given_for(sizes: Sizes) -> list[torch.Tensor]:
    return [floats(*n, dtype=F64, seed=k).requires_grad_() for k, n in enumerate(sizes)]


def opened(name: str) -> tuple[Any, Any]:
    function, examples, shapes, _ = CASES[name]
    return function, xla_torch.from_torch(function, *given_for(examples), dynamic_shapes=shapes)


def called(ours: Any, *given: Any) -> Any:
    return ours(ours.weights, *given) if ours.weights else ours(*given)


def gradients(results: Any, inputs: list[torch.Tensor]) -> Any:
    moving = [r for r in pytree.tree_leaves(results) if r.requires_grad]
    cotangents = [torch.linspace(-1, 1, r.numel(), dtype=r.dtype).view(r.shape) for r in moving]
    return torch.autograd.grad(moving, inputs, cotangents, allow_unused=True, materialize_grads=True)


@pytest.mark.parametrize("name", EACH)
def test_one_computation_is_for_all_sizes(name: str):
    function, ours = opened(name)
    for sizes in CASES[name][3]:
        given = given_for(sizes)
        held = list(function.parameters()) if isinstance(function, nn.Module) else []
        own = [t for _, t in sorted(pytree.tree_flatten_with_path(ours.weights)[0], key=lambda pair: str(pair[0]))]
        names = sorted(dict(function.named_parameters())) if held else []
        expected, found = function(*given), called(ours, *given)
        torch.testing.assert_close(found, expected)
        wanted = gradients(expected, [*given, *(function.get_parameter(n) for n in names)])
        torch.testing.assert_close(gradients(found, [*given, *own]), wanted)


@needs_xla
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_real_xla_gives_the_same(name: str):
    function, ours = opened(name)
    for sizes in CASES[name][3][:2]:
        given = given_for(sizes)
        flat = [t.detach() for t in ours.tensors(*([ours.weights] if ours.weights else []), *given)]
        text = ours.computation.specialised(*flat).to_hlo_text()
        expected = pytree.tree_leaves(function(*given))
        for found, wanted in zip(run_xla(text, *(t.numpy() for t in flat)), expected, strict=True):
            torch.testing.assert_close(torch.from_numpy(np.array(found)), wanted.detach())


@pytest.mark.parametrize(("name", "sizes", "words"), [
    ("views, numbers, no_grad", [(0, 3), (0,)], r"batch = 0(.|\n)*1 <= batch <= 64"),
    ("views, numbers, no_grad", [(65, 3), (130,)], r"batch = 65(.|\n)*1 <= batch <= 64"),
    ("views, numbers, no_grad", [(4, 3), (7,)], r"2\*batch was 8, as batch = 4, but 7 in argument 3 \(y\)"),
    ("views, numbers, no_grad", [(4, 2), (8,)], r"argument x has another shape(.|\n)*f64\[4,2\]"),
    ("one of two sizes", [(2, 5, 4), (3, 5, 4)], "batch was 2 in argument 0"),
    ("sizes that differ by one", [(5, 2), (5, 2)], r"length \+ 1 was 6, as length = 5, but 5|length was"),
    ("multiples alone", [(7,)], r"\[7\](.|\n)*% 2 == 0"), ("multiples alone", [(130,)], r"2\*half = 130"),
    ("a size that torch finds divisible", [(7,)], r"\[7\](.|\n)*// 2")])
def test_sizes_that_do_not_fit_are_refused(name: str, sizes: Sizes, words: str):
    _, ours = opened(name)
    with pytest.raises(InvalidArgument, match=words):
        called(ours, *given_for(sizes))


@pytest.mark.slow
def test_transforms_and_pickles_are_for_all_sizes():
    def loss(x: torch.Tensor) -> torch.Tensor:
        return (x.detach() * x.view(-1).square()[: x.shape[0]].sum()).sum() / x.shape[0]

    ours = xla_torch.from_torch(loss, floats(4, 2, dtype=F64), dynamic_shapes=(ANY,))
    saved = io.BytesIO()
    program = export(Wrapped(loss), (floats(4, 2, dtype=F64),), dynamic_shapes=((ANY,),))
    torch.export.save(program, saved)
    saved.seek(0)
    x = floats(3, 2, dtype=F64)
    again: list[Any] = [ours, pickle.loads(pickle.dumps(ours)), xla_torch.from_torch(program),
             xla_torch.from_torch(torch.export.load(saved))]
    for function in again:
        for count in (1, 3):
            x = floats(count, 2, dtype=F64)
            given = x.clone().requires_grad_()
            torch.testing.assert_close(xla_torch.grad(function)(x), torch.autograd.grad(loss(given), given)[0])
    batched = xla_torch.vmap(ours, size=2)(torch.stack([x, x * 2]))
    torch.testing.assert_close(batched, torch.stack([loss(x), loss(x * 2)]))


def test_a_program_of_certain_sizes():
    _, ours = opened("views, numbers, no_grad")
    assert "batch" in str(ours.computation)
    assert ours.computation.symbols.names == ("batch",)
    assert "f64[12,2]" in ours.computation.at(batch=6).to_hlo_text()
    with pytest.raises(InvalidArgument, match="cannot be exported as one program"):
        ours.computation.to_stablehlo()
    assert "tensor<12x2xf64>" in ours.computation.at(batch=6).to_stablehlo()
    with pytest.raises(InvalidArgument, match="out of the range"):
        ours.computation.at(batch=65)
    with pytest.raises(InvalidArgument, match="no size 'length'"):
        ours.computation.at(length=5)


def test_a_module_trains_with_batches_of_any_size():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.0), nn.Linear(4, 1))
    ours = XlaModule.from_torch(copy.deepcopy(model), torch.randn(4, 3), dynamic_shapes=(ANY,))
    optimizers = [torch.optim.SGD(m.parameters(), 0.1) for m in (model, ours)]
    for count in (4, 7, 2):
        x = torch.randn(count, 3)
        for module, optimizer in zip((model, ours), optimizers, strict=True):
            optimizer.zero_grad()
            module(x).square().sum().backward()
            optimizer.step()
    torch.testing.assert_close(dict(ours.state_dict()), dict(model.state_dict()), check_stride=False)
    with pytest.raises(InvalidArgument, match="out of the range"):
        ours(torch.randn(65, 3))


def test_random_numbers_are_drawn_for_any_size():
    ours = xla_torch.from_torch(lambda x: torch.rand_like(x) * 1, torch.zeros(4), dynamic_shapes=({0: LENGTH},))
    before = torch.get_rng_state()
    found, _ = ours(ours.weights, torch.zeros(1000))
    assert found.shape == (1000,)
    assert 0.4 < float(found.mean()) < 0.6
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(("function", "given", "shapes", "error", "words"), [
    (lambda x, n: x * n, [torch.ones(3), 2], (None, Dim.DYNAMIC), UnsupportedError, "argument n"),
    (export(Wrapped(torch.sin), (torch.ones(3),)), [], ({0: LENGTH},), InvalidArgument, "an exported program takes no examples")])
def test_what_is_refused(function: Any, given: list[Any], shapes: Any, error: type[Exception], words: str):
    with pytest.raises(error, match=words):
        xla_torch.from_torch(function, *given, dynamic_shapes=shapes)
