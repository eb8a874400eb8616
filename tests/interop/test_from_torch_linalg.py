"""Linear algebra, loops and branches by way of `from_torch`: values and gradients as torch has them, and by real XLA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import linalg
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as mapped
from torch.export.experimental import _export_forward_backward
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

import xla_torch
from support.aten_linalg_rows import positive
from support.aten_rows import floats
from support.oracle import needs_xla, run_xla
from xla_torch.errors import UnsupportedError
from xla_torch.storage import torch_private

F64, C128 = torch.float64, torch.complex128
SQUARE, TALL, WIDE = floats(3, 3, dtype=F64), floats(2, 4, 2, dtype=F64), floats(2, 4, dtype=F64)
COMPLEX = torch.complex(SQUARE, floats(3, 3, dtype=F64, seed=1))
BATCH, ONE, NONE = floats(2, 3, 3, dtype=F64), torch.full((1, 1), 2.0, dtype=F64), torch.zeros(0, 0, dtype=F64)
INDEFINITE = torch.stack([torch.eye(3), torch.diag(torch.tensor([1.0, -1.0, 2.0])), torch.diag(torch.tensor([2.0, 1.0, 0.0]))])
SINGULAR = torch.tensor([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]], dtype=F64)


def symmetric(x: torch.Tensor) -> torch.Tensor:
    return x + x.mH


def svd(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    u, s, v = linalg.svd(x, full_matrices=False)
    return u.abs(), s, v.abs()


def eigh(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    values, vectors = linalg.eigh(symmetric(x))
    return values, vectors.abs()


SQUARES, ALL = [SQUARE, COMPLEX, BATCH, ONE, NONE], [SQUARE, COMPLEX, BATCH, ONE, TALL, WIDE]
CALLS: dict[str, tuple[Callable[..., Any], list[torch.Tensor]]] = {
    "svd": (svd, ALL), "svdvals": (linalg.svdvals, ALL), "eigh": (eigh, SQUARES),
    "eigvalsh": (lambda x: linalg.eigvalsh(symmetric(x), UPLO="U"), SQUARES),
    "eig": (lambda x: tuple(part.abs() for part in linalg.eig(x)), SQUARES),
    "eigvals": (lambda x: linalg.eigvals(x).abs(), SQUARES),
    "cholesky": (lambda x: (linalg.cholesky(positive(x)), linalg.cholesky(positive(x), upper=True)), SQUARES),
    "cholesky_solve": (lambda x: torch.cholesky_solve(x, linalg.cholesky(positive(x))), SQUARES),
    "cholesky_inverse": (lambda x: torch.cholesky_inverse(linalg.cholesky(positive(x))), SQUARES[:4]),
    "solve": (lambda x: (linalg.solve(x, symmetric(x)), linalg.solve(x, symmetric(x), left=False)), SQUARES),
    "solve of a vector": (lambda x: linalg.solve(x, x[0]), [SQUARE, COMPLEX, ONE]),
    "solve_triangular": (lambda x: (linalg.solve_triangular(x.triu(), x, upper=True),
                                    linalg.solve_triangular(x.tril(), x, upper=False, left=False)), SQUARES),
    "lu": (linalg.lu, ALL), "lu_factor": (linalg.lu_factor, ALL),
    "lu_solve": (lambda x: [linalg.lu_solve(*linalg.lu_factor(x), symmetric(x), left=left, adjoint=adjoint)
                            for left in (True, False) for adjoint in (True, False)], SQUARES),
    "qr": (linalg.qr, ALL), "det": (linalg.det, [*SQUARES, SQUARE.mT]), "slogdet": (linalg.slogdet, SQUARES),
    "logdet": (lambda x: torch.logdet(positive(x)), SQUARES), "inv": (linalg.inv, SQUARES),
    "matrix_exp": (lambda x: (linalg.matrix_exp(x), linalg.matrix_exp(9 * x)), SQUARES),
    "matrix_power": (lambda x: (linalg.matrix_power(x, 3), linalg.matrix_power(x, -2)), SQUARES),
    "pinv": (lambda x: (linalg.pinv(x), linalg.pinv(x, rtol=0.1)), ALL),
    "pinv of Hermitian": (lambda x: linalg.pinv(symmetric(x), hermitian=True), SQUARES),
    "norms": (lambda x: (linalg.matrix_norm(x, "nuc"), linalg.matrix_norm(x, 2), linalg.vector_norm(x, 3)), ALL),
    "cond": (linalg.cond, SQUARES[:4]), "matrix_rank": (linalg.matrix_rank, ALL),
}
ROWS = [pytest.param(name, k, marks=() if k == 0 else pytest.mark.slow) for name, (_, given) in CALLS.items()
        for k in range(len(given))]


def leaves(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def gradient(function: Callable[..., Any], x: torch.Tensor) -> torch.Tensor | None:
    """By a fixed cotangent for each result; None where there is none."""
    given = x.clone().requires_grad_()
    results = [r for r in leaves(function(given)) if r.requires_grad]
    if not results:
        return None
    cotangents = [torch.linspace(-1, 1, r.numel(), dtype=torch.float64).reshape(r.shape).to(r.dtype) for r in results]
    return torch.autograd.grad(results, given, cotangents, materialize_grads=True)[0]


def agree(function: Callable[..., Any], ours: Callable[..., Any], x: torch.Tensor, rough: float) -> None:
    """Our values and gradients are those of a function in torch."""
    for found, expected in zip(leaves(ours(x)), leaves(function(x)), strict=True):
        torch.testing.assert_close(found, expected, rtol=rough, atol=rough)
    wanted = gradient(function, x)
    if wanted is not None and wanted.numel():
        torch.testing.assert_close(gradient(ours, x), wanted, rtol=10 * rough, atol=10 * rough)


@pytest.mark.parametrize(("name", "number"), ROWS)
def test_linear_algebra_has_the_values_and_gradients_of_torch(name: str, number: int):
    function, given = CALLS[name]
    agree(function, xla_torch.from_torch(function, given[number]), given[number], 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_narrow_floats(name: str):
    function, given = CALLS[name]
    x = given[0].float()
    agree(function, xla_torch.from_torch(function, x), x, 2e-4)


@needs_xla
@pytest.mark.slow
@pytest.mark.parametrize(("name", "number"), ROWS)
def test_real_xla_gives_the_same(name: str, number: int):
    function, given = CALLS[name]
    text = xla_torch.from_torch(function, given[number]).to_hlo_text()
    for found, expected in zip(run_xla(text, given[number].numpy()), leaves(function(given[number])), strict=True):
        torch.testing.assert_close(torch.from_numpy(np.array(found)), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("function", "x", "expected"), [
    (lambda x: linalg.cholesky_ex(x).info, INDEFINITE, [0, 2, 3]),
    (lambda x: linalg.cholesky_ex(x, upper=True).info, INDEFINITE, [0, 2, 3]),
    (lambda x: linalg.cholesky(x).isnan().any(-1).any(-1), INDEFINITE, [False, True, True]),
    (lambda x: linalg.lu_factor_ex(x).info, SINGULAR, 3), (lambda x: linalg.inv_ex(x).info, SINGULAR, 3),
    (lambda x: linalg.solve_ex(x, x).info, SINGULAR, 3), (linalg.det, torch.zeros(2, 2), 0.0)])
def test_a_failed_decomposition_returns_its_info(function: Any, x: torch.Tensor, expected: Any):
    assert xla_torch.from_torch(function, x)(x).tolist() == expected


class Weighted(torch.nn.Module):
    def __init__(self, function: Callable[..., torch.Tensor], weight: torch.Tensor):
        super().__init__()
        self.weight, self._function = torch.nn.Parameter(weight), function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self._function(self.weight) * x).sum()


@pytest.mark.parametrize("function", [
    linalg.det, lambda w: linalg.det(w.mT), lambda w: linalg.slogdet(w.mT)[1], lambda w: linalg.solve_ex(w, w.mT.exp())[0],
    lambda w: linalg.det(torch.stack([w, w])[1]), lambda w: linalg.solve_ex(torch.stack([w, w])[1].mT, w.exp())[0]])
def test_a_joint_graph_reads_the_factors_that_torch_keeps(function: Any):
    model, x = Weighted(function, SQUARE), floats(3, 3, dtype=F64, seed=2)
    ours = xla_torch.from_torch(torch_private.quietly(lambda: _export_forward_backward(torch.export.export(model, (x,)))))
    model(x).backward()
    torch.testing.assert_close(ours(ours.weights, x)[1]["weights"]["weight"], model.weight.grad)


# ------------------------------------------------------------------------------------------- loops and branches

# What torch's own tracer warns of.
quiet = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning", "ignore:The .grad attribute of a Tensor:UserWarning")
X = floats(3, 4)
LOOPS: dict[str, Callable[[torch.Tensor], Any]] = {
    "cond": lambda x: torch.cond(x.sum() > 0, torch.cos, torch.sin, (x,)),
    "cond of several results": lambda x: torch.cond(
        x.sum() < 0, lambda x: (x.cos(), x[0] * 2), lambda x: (x.sin(), x[1] * 3), (x,)),
    "cond within cond": lambda x: torch.cond(
        x.sum() < 0, lambda x: torch.cond(x[0, 0] > 0, lambda x: x * 2, lambda x: x * 3, (x,)), torch.sin, (x,)),
    "scan": lambda x: scan(lambda c, a: (c + a, c * a), torch.zeros(4), x),
    "scan backwards": lambda x: scan(lambda c, a: (c + a, c * a), torch.zeros(4), x, reverse=True),
    "scan with what is around": lambda x: scan(lambda c, a: (c + a * x[0].exp(), c.sin()), torch.zeros(4), x),
    "associative_scan": lambda x: associative_scan(
        lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (x, x.sin()), 0, combine_mode="generic"),
    "map": lambda x: mapped(lambda row, y: row.sin() * y, x, x[0].exp()),  # pyright: ignore[reportArgumentType]
    "checkpoint": lambda x: checkpoint(torch.exp, x.sin(), use_reentrant=False) * 2,
    "vmap": torch.func.vmap(lambda row: row.sin() * row.sum()),
    "jvp": lambda x: torch.func.jvp(lambda x: x.sin() * x, (x,), (x.cos(),)),
}
WHILE: dict[str, Callable[[torch.Tensor], Any]] = {
    "a count": lambda x: while_loop(lambda k, a: k < 5, lambda k, a: (k + 1, a * 1.1), (torch.tensor(0), x)),
    "values": lambda x: while_loop(lambda a: a.abs().sum() < 100, lambda a: (a * 1.5,), (x,)),
}


def unrolled(step: Callable[..., Any], x: torch.Tensor, reverse: bool = False) -> Any:
    """A scan in Python."""
    carry, found = torch.zeros(4), []
    for a in reversed(x) if reverse else x:
        carry, y = step(carry, a)
        found.append(y)
    return carry, torch.stack(found[::-1] if reverse else found)


TRUE = {
    "scan": lambda x: unrolled(lambda c, a: (c + a, c * a), x),
    "scan backwards": lambda x: unrolled(lambda c, a: (c + a, c * a), x, reverse=True),
    "scan with what is around": lambda x: unrolled(lambda c, a: (c + a * x[0].exp(), c.sin()), x),
}
"""Loops whose gradients torch 2.11 has wrong, in Python."""


@quiet
@pytest.mark.parametrize("name", LOOPS)
def test_loops_and_branches_have_the_values_and_gradients_of_torch(name: str):
    ours = xla_torch.from_torch(LOOPS[name], X)
    for x in (X, -X):
        agree(TRUE.get(name, LOOPS[name]), ours, x, 1e-5)


@quiet
@pytest.mark.parametrize("name", WHILE)
def test_a_loop_whose_steps_depend_on_values(name: str):
    ours = xla_torch.from_torch(WHILE[name], X)
    for found, expected in zip(leaves(ours(X)), leaves(WHILE[name](X)), strict=True):
        torch.testing.assert_close(found, expected)
    ratio = (leaves(ours(X))[-1] / X)[0, 0]
    torch.testing.assert_close(gradient(ours, X), ratio * torch.linspace(-1, 1, 12).view(3, 4), rtol=1e-4, atol=1e-4)


@needs_xla
@pytest.mark.slow
@quiet
@pytest.mark.parametrize("name", [*LOOPS, *WHILE])
def test_real_xla_runs_loops_and_branches(name: str):
    function = {**LOOPS, **WHILE}[name]
    found = run_xla(xla_torch.from_torch(function, X).to_hlo_text(), X.numpy())
    for got, expected in zip(found, leaves(function(X)), strict=True):
        torch.testing.assert_close(torch.from_numpy(np.array(got)), expected)


@pytest.mark.parametrize(("function", "words"), [
    (lambda x: linalg.ldl_factor(x @ x.mT), "lu_factor"), (lambda x: linalg.lu_factor(x[:, :3], pivot=False), "without pivots")])
def test_what_is_refused(function: Any, words: str):
    with pytest.raises(UnsupportedError, match=words):
        xla_torch.from_torch(function, X)
