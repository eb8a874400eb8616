"""Matrix decompositions and approximate TopK: here, on real XLA with JAX's LAPACK targets, and their gradients."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import xla_torch
from support import jax_oracle
from support.oracle import HAS_XLA, needs_xla, run_xla
from support.scaled_agreement import random_array
from xla_torch import Shape, ops
from xla_torch.errors import InvalidArgument

if HAS_XLA:
    import jax

TOLERANCE = {"f32": 2e-5, "c64": 2e-5, "f64": 1e-13, "c128": 1e-13}
DIMS = ("4,3", "3,4", "2,4,4", "2,3,5,2", "1,1")
CASES = list(itertools.product(TOLERANCE, DIMS))


def program(function: Callable[..., Any], shape: str) -> xla_torch.XlaComputation:
    builder = xla_torch.XlaBuilder("program")
    return builder.build(builder.add("tuple", list(function(builder.parameter(0, Shape.parse(shape))))))


@pytest.fixture(scope="module", autouse=True)
def targets() -> None:
    """JAX registers LAPACK with XLA when it first calls it."""
    if HAS_XLA:
        jax.lax.linalg.lu(np.eye(2, dtype=np.float32))


def everywhere(function: Callable[..., Any], shape: str, a: np.ndarray) -> list[list[np.ndarray]]:
    """The results on tensors, of a program here, of the same parsed again, and on real XLA."""
    built = program(function, shape)
    text = built.to_hlo_text()
    found = [[t.numpy() for t in function(torch.from_numpy(a))], list(built.run_numpy(a)),
             list(xla_torch.parse_hlo(text).run_numpy(a)), run_xla(text, a)]
    for results in found:
        assert [(r.shape, r.dtype) for r in results] == [(r.shape, r.dtype) for r in found[0]]
    return found


def adjoint(a: np.ndarray) -> np.ndarray:
    return np.swapaxes(a.conj(), -1, -2)


def assert_orthonormal(q: np.ndarray, tolerance: float) -> None:
    """Its columns are."""
    np.testing.assert_allclose(adjoint(q) @ q, np.broadcast_to(np.eye(q.shape[-1]), (*q.shape[:-2], *[q.shape[-1]] * 2)),
                               atol=tolerance)


@needs_xla
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize(("element_type", "dims"), CASES)
def test_qr(element_type: str, dims: str, full: bool) -> None:
    shape, tolerance = f"{element_type}[{dims}]", TOLERANCE[element_type]
    a = random_array(shape)
    m, n = a.shape[-2:]
    want = jax.lax.linalg.qr(a, full_matrices=full)
    for q, r in everywhere(lambda x: ops.QR(x, full_matrices=full), shape, a):
        k = m if full else min(m, n)
        assert (q.shape[-2:], r.shape[-2:]) == ((m, k), (k, n))
        assert_orthonormal(q, tolerance)
        np.testing.assert_allclose(q @ r, a, atol=tolerance)
        np.testing.assert_array_equal(np.triu(r), r)
        np.testing.assert_allclose(r, want[1], atol=tolerance)


@needs_xla
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize(("element_type", "dims"), list(itertools.product(TOLERANCE, ("4,4", "2,3,3", "1,1"))))
def test_eigh(element_type: str, dims: str, lower: bool) -> None:
    """The other triangle is not read: it holds rubbish."""
    shape, tolerance = f"{element_type}[{dims}]", TOLERANCE[element_type]
    a = random_array(shape)
    whole = a + adjoint(a)
    rows, columns = np.indices(a.shape[-2:])
    given = np.where((rows < columns) if lower else (rows > columns), np.array(99, a.dtype), whole)
    for v, w in everywhere(lambda x: ops.Eigh(x, lower), shape, given):
        assert_orthonormal(v, tolerance)
        np.testing.assert_allclose(whole @ v, v * w[..., None, :], atol=4 * tolerance)
        np.testing.assert_allclose(w, np.linalg.eigvalsh(whole), atol=4 * tolerance)


@needs_xla
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize(("element_type", "dims"), CASES)
def test_svd(element_type: str, dims: str, full: bool) -> None:
    shape, tolerance = f"{element_type}[{dims}]", TOLERANCE[element_type]
    a = random_array(shape)
    m, n = a.shape[-2:]
    k = min(m, n)
    for u, d, v in everywhere(lambda x: ops.SVD(x, full_matrices=full), shape, a):
        assert (u.shape[-2:], d.shape[-1], v.shape[-2:]) == ((m, m if full else k), k, (n, n if full else k))
        assert_orthonormal(u, tolerance)
        assert_orthonormal(v, tolerance)
        np.testing.assert_allclose((u[..., :k] * d[..., None, :]) @ adjoint(v[..., :k]), a, atol=tolerance)
        np.testing.assert_allclose(d, np.linalg.svd(a, compute_uv=False), atol=tolerance)


@needs_xla
@pytest.mark.parametrize(("element_type", "dims"), CASES)
def test_lu(element_type: str, dims: str) -> None:
    shape, tolerance = f"{element_type}[{dims}]", TOLERANCE[element_type]
    a = random_array(shape)
    want = [np.asarray(x) for x in jax.lax.linalg.lu(a)]
    for lu, pivots, permutation in everywhere(ops.LU, shape, a):
        np.testing.assert_allclose(lu, want[0], atol=tolerance)
        np.testing.assert_array_equal(pivots, want[1])
        np.testing.assert_array_equal(permutation, want[2])


def test_lu_of_a_singular_matrix() -> None:
    lu, pivots, permutation = ops.LU(torch.tensor([[0.0, 0], [0, 1]]))
    assert (lu.tolist(), pivots.tolist(), permutation.tolist()) == ([[0, 0], [0, 1]], [0, 1], [0, 1])


# ------------------------------------------------------------------------------------------- gradients

SQUARE = torch.from_numpy(random_array("f64[3,3]") + 3 * np.eye(3))
GRADIENTS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "Eigh": (lambda a: ops.Eigh(a + a.mT)[1], lambda a: torch.linalg.eigvalsh(a + a.mT)),
    "QR": (lambda a: sum(ops.QR(a)), lambda a: sum(torch.linalg.qr(a))),
    "SVD": (lambda a: ops.SVD(a)[1], torch.linalg.svdvals),
    "LU": (lambda a: ops.LU(a)[0].diagonal().abs().log().sum(), lambda a: torch.linalg.slogdet(a)[1]),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name: str) -> None:
    ours, torchs = GRADIENTS[name]
    weights = torch.tensor([1.0, 2, 4], dtype=torch.float64)
    found = []
    for function in (ours, torchs):
        a = SQUARE.clone().requires_grad_()
        found.append(torch.autograd.grad((function(a) * weights).sum(), a)[0])
    torch.testing.assert_close(*found)


@needs_xla
def test_gradient_of_jax_singular_values() -> None:
    """JAX asks LAPACK for no vectors then."""
    computation = jax_oracle.program(lambda a: jax.lax.linalg.svd(a, compute_uv=False), SQUARE.numpy())
    found = []
    for function in (computation, torch.linalg.svdvals):
        a = SQUARE.clone().requires_grad_()
        found.append(torch.autograd.grad(function(a).prod(), a)[0])
    torch.testing.assert_close(*found)


@pytest.mark.parametrize(("function", "shape"), [
    (ops.QR, "f32[3]"), (ops.QR, "f16[3,3]"), (ops.LU, "s32[3,3]"), (ops.SVD, "f32[]"), (ops.Eigh, "f32[2,3]")])
def test_refusals(function: Callable[..., Any], shape: str) -> None:
    with pytest.raises(InvalidArgument, match="no such decomposition"):
        program(function, shape)


# ------------------------------------------------------------------------------------------- approximate TopK


def greater(*types: str) -> Any:
    builder = xla_torch.XlaBuilder("greater")
    values = [builder.parameter(2 * k + side, Shape.parse(f"{t}[]")) for k, t in enumerate(types) for side in range(2)]
    return builder.build(ops.Gt(values[0], values[1]))


@pytest.mark.parametrize("aggregate", [True, False])
@pytest.mark.parametrize("dimension", [0, 1])
def test_approx_top_k_is_exact(dimension: int, aggregate: bool) -> None:
    values = torch.from_numpy(random_array("f32[40,30]"))
    ids = torch.arange(1200, dtype=torch.int32).reshape(40, 30)
    best, where = ops.ApproxTopK(None, [values, ids], [-math.inf, -1], 5, dimension, greater("f32", "s32"), 0.5, aggregate)
    wanted = values.topk(5, dimension)
    torch.testing.assert_close(best, wanted.values)
    torch.testing.assert_close(where, ids.gather(dimension, wanted.indices))


def test_approx_top_k_of_one_operand() -> None:
    best, = ops.ApproxTopK(None, [torch.tensor([3.0, 1, 4, 1, 5])], [0.0], 2, 0, greater("f32"))
    assert best.tolist() == [5, 4]


@pytest.mark.parametrize(("given", "what"), [
    ({"top_k": 6}, "top_k is out of range"), ({"reduction_dim": 1}, "dimension is out of range"),
    ({"init_values": []}, "one init value"), ({"recall_target": 1.5}, "recall target"),
    ({"init_values": [torch.tensor(0.0, dtype=torch.float64)]}, "init value 0 does not fit its operand"),
    ({"init_values": [torch.tensor(0)]}, "init value 0 does not fit its operand"),
    ({"init_values": [torch.zeros(1)]}, "init value 0 does not fit its operand"), ({"init_values": [1j]}, "1j"),
])
def test_approx_top_k_refuses(given: dict[str, Any], what: str) -> None:
    arguments: dict[str, Any] = {"init_values": [0.0], "top_k": 2, "reduction_dim": 0} | given
    with pytest.raises(InvalidArgument, match=what):
        ops.ApproxTopK(operands=[torch.arange(5.0)], comparator=greater("f32"), **arguments)
