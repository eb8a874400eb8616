"""Functions of torch that torch.export cannot take, or takes as a whole: values, gradients and real XLA."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import linalg
from torch.export import Dim, export
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils import _pytree as pytree

import xla_torch
from support.aten_rows import floats
from support.oracle import needs_xla, run_xla
from xla_torch.errors import UnsupportedError

F64 = torch.float64

TALL, WIDE, SQUARE = floats(5, 3, dtype=F64), floats(2, 3, 5, dtype=F64), floats(3, 3, dtype=F64)
STEPS = floats(6, 3, 4, dtype=F64).log_softmax(-1)
LABELS, ROW = torch.tensor([[1, 1, 2], [2, 3, 0], [3, 0, 0]]), torch.tensor([1, 1, 2, 2, 3, 3])
LENGTHS, COUNTS = torch.tensor([6, 4, 1]), torch.tensor([3, 2, 1])

CALLS: dict[str, tuple[Any, list[torch.Tensor]]] = {
    "lstsq": (linalg.lstsq, [TALL, floats(5, 2, dtype=F64)]),
    "lstsq of a vector": (lambda a, b: linalg.lstsq(a, b).solution, [TALL, floats(5, dtype=F64)]),
    "lstsq of least norm": (lambda a, b: linalg.lstsq(a, b).solution, [WIDE, floats(2, 3, 1, dtype=F64)]),
    "lstsq with residuals": (lambda a, b: tuple(linalg.lstsq(a, b, driver="gels")), [TALL, floats(5, 2, dtype=F64)]),
    "lstsq with singular values": (lambda a, b: tuple(linalg.lstsq(a, b, driver="gelsd")), [SQUARE, floats(3, 2, dtype=F64)]),
    "ctc": (lambda x: F.ctc_loss(x, LABELS, LENGTHS, COUNTS), [STEPS]),
    "ctc of each": (lambda x: F.ctc_loss(x, LABELS, LENGTHS, COUNTS, reduction="none"), [STEPS]),
    "ctc of labels in a row": (lambda x, t: F.ctc_loss(x, t, LENGTHS, COUNTS, reduction="sum"), [STEPS, ROW]),
    "ctc with another blank": (
        lambda x: F.ctc_loss(x, LABELS.clamp(min=1), torch.tensor([6, 4, 3]), torch.tensor([2, 1, 1]), blank=0), [STEPS]),
    "ctc of lengths as arguments": (lambda x, t, n, m: torch.ctc_loss(x, t, n, m, 0, 1), [STEPS, LABELS, LENGTHS, COUNTS]),
    "ctc without labels": (
        lambda x: F.ctc_loss(x, LABELS, LENGTHS, torch.tensor([0, 2, 0]), reduction="none"), [STEPS]),
    "ctc that has no path": (
        lambda x: F.ctc_loss(x, LABELS, torch.tensor([2, 1, 1]), COUNTS, reduction="none", zero_infinity=True), [STEPS]),
    "ctc of one": (lambda x: F.ctc_loss(x, torch.tensor([1, 2]), torch.tensor(6), torch.tensor(2)), [STEPS[:, 0]]),
    "a diagonal": (lambda a, b: a.diagonal_scatter(b, 1) * a, [TALL, floats(2, dtype=F64)]),
    "another diagonal": (lambda a, b: a.diagonal_scatter(b, -1, 0, 2) * a, [WIDE, floats(3, 1, dtype=F64)]),
}


def leaves(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if leaf is not None]


def of_arguments(function: Any, given: list[torch.Tensor]) -> tuple[list[torch.Tensor], Any]:
    """The results and the gradients of what moves."""
    inputs = [g.clone().requires_grad_(g.is_floating_point()) for g in given]
    results = leaves(function(*inputs))
    moving = [r for r in results if r.requires_grad and r.numel()]
    cotangents = [torch.linspace(0.5, 2, r.numel(), dtype=r.dtype).view(r.shape) for r in moving]
    found = torch.autograd.grad(moving, [i for i in inputs if i.requires_grad], cotangents, materialize_grads=True)
    return [r.detach() for r in results], found


@pytest.mark.parametrize("name", CALLS)
def test_values_and_gradients_are_those_of_torch(name: str):
    function, given = CALLS[name]
    ours = xla_torch.from_torch(function, *given)
    for found, expected in zip(of_arguments(ours, given), of_arguments(function, given), strict=True):
        torch.testing.assert_close(list(found), list(expected), rtol=1e-9, atol=1e-9)


@needs_xla
@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_real_xla_gives_what_torch_gives(name: str):
    function, given = CALLS[name]
    text = xla_torch.from_torch(function, *given).to_hlo_text()
    for found, expected in zip(run_xla(text, *(g.numpy() for g in given)), leaves(function(*given)), strict=True):
        torch.testing.assert_close(torch.from_numpy(np.array(found)), expected, rtol=1e-9, atol=1e-9)


def test_least_squares_of_less_than_full_rank_are_not_a_number():
    flat = torch.stack([TALL[:, 0], TALL[:, 0] * 2, TALL[:, 1]], 1)
    ours = xla_torch.from_torch(lambda a, b: linalg.lstsq(a, b)[:3:2], flat, TALL)
    solution, rank = ours(flat, TALL)
    assert solution.isnan().all()
    assert int(rank) == 2


# ------------------------------------------------------------------------------------------- attention of functions

Q, K = floats(2, 4, 5, 8, dtype=F64), floats(2, 4, 6, 8, dtype=F64)
FEW = floats(2, 2, 6, 8, dtype=F64)
TABLE = floats(4, 11, dtype=F64)
AHEAD = torch.arange(5)[:, None] - torch.arange(6)
HEADS = torch.arange(4.0, dtype=F64)[:, None, None]


@pytest.fixture(autouse=True)
def _compiled_anew():
    """torch compiles flex_attention for its callers, and compares each with those before, whose closures may be gone."""
    torch.compiler.reset()


def masked(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    block = create_block_mask(lambda b, h, i, j: (i >= j) & (i != 2), None, None, 5, 6, device="cpu")
    return flex_attention(q, k, k.exp(), block_mask=block)


def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, change: Any = lambda s: s, seen: Any = None) -> torch.Tensor:
    """The definition, of scores that change as one array; rows of which nothing is seen are 0."""
    scores = change(q @ k.mT / math.sqrt(8))
    if seen is None:
        return scores.softmax(-1) @ v
    none = ~seen.any(-1, keepdim=True)
    return torch.where(none, 0, torch.where(seen | none, scores, -math.inf).softmax(-1)) @ v


ATTENTION: dict[str, tuple[Any, Any, list[torch.Tensor]]] = {
    "as it is": (lambda q, k: flex_attention(q, k, k.exp()), lambda q, k: plain(q, k, k.exp()), [Q, K]),
    "places": (lambda q, k: flex_attention(q, k, k, score_mod=lambda s, b, h, i, j: s.tanh() * 2 + (i - j) * h),
               lambda q, k: plain(q, k, k, lambda s: s.tanh() * 2 + AHEAD * HEADS), [Q, K]),
    "a table": (lambda q, k, t: flex_attention(q, k, k, score_mod=lambda s, b, h, i, j: s + t[h, i - j + 5]),
                lambda q, k, t: plain(q, k, k, lambda s: s + t[torch.arange(4)[:, None, None], AHEAD + 5]), [Q, K, TABLE]),
    "a mask, a row of which sees nothing": (masked, lambda q, k: plain(
        q, k, k.exp(), seen=(AHEAD >= 0) & (torch.arange(5) != 2)[:, None]), [Q, K]),
    "fewer keys": (lambda q, k: flex_attention(q, k, k, enable_gqa=True, scale=0.5), lambda q, k: plain(
        q * math.sqrt(8) / 2, k.repeat_interleave(2, 1), k.repeat_interleave(2, 1)), [Q, FEW]),
}


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_is_its_definition(name: str):
    function, definition, given = ATTENTION[name]
    ours = xla_torch.from_torch(function, *given)
    torch.testing.assert_close(ours(*given), function(*given))
    for found, expected in zip(of_arguments(ours, given), of_arguments(definition, given), strict=True):
        torch.testing.assert_close(list(found), list(expected))


@needs_xla
@pytest.mark.slow
@pytest.mark.parametrize("name", ATTENTION)
def test_real_xla_gives_the_attention(name: str):
    function, _, given = ATTENTION[name]
    found = run_xla(xla_torch.from_torch(function, *given).to_hlo_text(), *(g.numpy() for g in given))
    torch.testing.assert_close(torch.from_numpy(np.array(found[0])), function(*given))


def test_attention_of_an_exported_program_and_of_any_size():
    class Attention(torch.nn.Module):
        def forward(self, q: torch.Tensor) -> torch.Tensor:
            return flex_attention(q, q, q, score_mod=lambda s, b, h, i, j: s - (i - j).abs())

    ours = xla_torch.from_torch(export(Attention(), (Q,), strict=False))
    torch.testing.assert_close(ours(Q), Attention()(Q))
    ours = xla_torch.from_torch(Attention(), Q, dynamic_shapes=({0: Dim("batch")},))
    for count in (2, 3):
        q = floats(count, 4, 5, 8, dtype=F64)
        torch.testing.assert_close(ours(q), Attention()(q))


# ------------------------------------------------------------------------------------------- derivatives within

def test_a_derivative_within():
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad((x.sin() * x).sum(), x, create_graph=True)[0] * x

    given = [floats(3, 4, dtype=F64).requires_grad_()]
    ours = xla_torch.from_torch(function, *given)
    for found, expected in zip(of_arguments(ours, given), of_arguments(function, given), strict=True):
        torch.testing.assert_close(list(found), list(expected))


@pytest.mark.parametrize(("function", "words"), [
    (torch.func.grad(lambda y: y.sin().sum()), "torch.autograd.grad"),
    (lambda x: torch.func.vjp(torch.sin, x)[1](x)[0], "makes constants"),
    (torch.func.jacrev(torch.sin), "makes constants"),
    (lambda x: flex_attention(x, x, x, score_mod=lambda s, b, h, i, j: s + TABLE[h].sum()), "single elements")])
def test_what_is_refused(function: Any, words: str):
    with pytest.raises(UnsupportedError, match=words):
        xla_torch.from_torch(function, Q)
