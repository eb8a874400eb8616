"""LAPACK's routines as JAX calls them, and what programs make of them: each target, type and kind of shape against JAX itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import xla_torch
from grad_rules.lapack import ROUTINE_RULES
from support.custom_call import call, random
from support.jax_oracle import check_gradients, evaluated, program
from support.oracle import run_xla
from support.scaled_agreement import assert_close
from xla_torch import ops
from xla_torch.functions.lapack import _laid_out
from xla_torch.hlo.custom_calls import ROUTINES, routine_name
from xla_torch.kernels import lapack, schur
from xla_torch.storage.dtypes import torch_dtype

jax: Any = pytest.importorskip("jax")
jnp: Any = pytest.importorskip("jax.numpy")
internal: Any = pytest.importorskip("jax._src.lax.linalg")
linalg: Any = jax.lax.linalg

TYPES = ["f4", "f8", "c8", "c16"]
FEW = ("f8", "c8")  # with these types, two of the shapes: LAPACK's routines are the same for them
SQUARE = ["1,1", "2,1,4,4", "0,3,3", "7,7"]
MATRICES = [*SQUARE, "6,3", "2,3,6", "1,3"]


def tolerance(dtype: str) -> float:
    return 2e-3 if dtype in ("f4", "c8") else 1e-9


def both(function: Callable[..., Any], *arguments: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """(our results, JAX's) of a JAX function."""
    lowered: Any = jax.jit(function, keep_unused=True).lower(*arguments)
    ours = xla_torch.parse_hlo(lowered.compiler_ir("hlo").as_hlo_text(True)).run_numpy(*arguments)
    return [np.asarray(x) for x in ours], jax.tree.leaves(evaluated(function, *arguments))


def assert_same(function: Callable[..., Any], arguments: list[np.ndarray], relative: float) -> None:
    ours, theirs = both(function, *arguments)
    assert len(ours) == len(theirs)
    for got, want in zip(ours, theirs, strict=True):
        assert_close(got, want, relative=relative)


# --------------------------------------------------------------------------------------------- what is unique

UNIQUE: list[tuple[str, list[str], Callable[..., Any]]] = [
    ("geqrf", MATRICES, internal.geqrf),
    ("geqp3", MATRICES, lambda x: internal.geqp3(x, jnp.zeros((*x.shape[:-2], x.shape[-1]), "int32"))),
    ("geqp3 fixed", MATRICES, lambda x: internal.geqp3(x, jnp.broadcast_to(jnp.arange(x.shape[-1]) % 2,
                                                                           (*x.shape[:-2], x.shape[-1])).astype("int32"))),
    ("qr", MATRICES, lambda x: linalg.qr(x, full_matrices=True)),
    ("qr thin", MATRICES, lambda x: linalg.qr(x, full_matrices=False)),
    ("qr pivoted", MATRICES, lambda x: linalg.qr(x, pivoting=True, full_matrices=False)),
    ("orgqr", ["5,3", "2,4,4", "0,3,2", "1,1"], lambda x: linalg.householder_product(*internal.geqrf(x))),
    ("orgqr of few", ["5,3", "2,4,4"], lambda x: linalg.householder_product(x, internal.geqrf(x)[1][..., :2])),
    *((f"ormqr {left} {adjoint}", ["5,3", "2,4,4", "0,3,3"], lambda x, left=left, adjoint=adjoint: internal.ormqr(
        *internal.geqrf(x), x if left else jnp.swapaxes(x, -1, -2), left=left, transpose=adjoint))
      for left in (True, False) for adjoint in (True, False)),
    ("getrf", MATRICES, linalg.lu),
    ("gehrd", SQUARE, linalg.hessenberg),
    ("sytrd", SQUARE, linalg.tridiagonal),
    ("sytrd upper", SQUARE, lambda x: linalg.tridiagonal(x, lower=False)),
    ("singular values", MATRICES, lambda x: linalg.svd(x, compute_uv=False)),
    ("eigenvalues of hermitian", SQUARE, jnp.linalg.eigvalsh),
    ("potrf", SQUARE, lambda x: linalg.cholesky(x @ jnp.conj(jnp.swapaxes(x, -1, -2)) + 3 * jnp.eye(x.shape[-1], dtype=x.dtype))),
    ("trsm", SQUARE, lambda x: linalg.triangular_solve(x + 3 * jnp.eye(x.shape[-1], dtype=x.dtype), x, left_side=True,
                                                       lower=True, transpose_a=True, conjugate_a=True)),
    ("gtsv", ["3,1,1", "3,2,2", "3,2,5,5", "3,7,7"], lambda x: linalg.tridiagonal_solve(*(x[k, ..., 0, :] for k in range(3)),
                                                                                      jnp.swapaxes(x[0], -1, -2))),
    ("top k", ["3", "4,5", "1,2"], lambda x: jax.lax.top_k(jnp.real(x), 2)),
    ("approximate top k", ["3", "4,5", "1,2"], lambda x: jax.lax.approx_max_k(jnp.real(x).astype("float32"), 2)),
    ("symmetric product", ["2,5,5", "4,3"], lambda x: internal.symmetric_product(
        x.real, x.real @ jnp.swapaxes(x.real, -1, -2), alpha=2.0, symmetrize_output=True)),
]

# Library functions made of these: fewer types.
MADE_OF_THEM: list[tuple[str, str, Callable[..., Any]]] = [
    ("solve", "3,5,5", lambda x: jnp.linalg.solve(x, x[..., :1])), ("inverse", "4,4", jnp.linalg.inv),
    ("determinant", "2,4,4", jnp.linalg.slogdet), ("exponential", "4,4", jax.scipy.linalg.expm),
    ("least squares", "5,3", lambda x: jnp.linalg.lstsq(x, x[:, :1])[0]), ("pseudo inverse", "5,3", jnp.linalg.pinv),
    ("polar", "4,4", jax.scipy.linalg.polar),
    ("square root", "4,4", lambda x: jax.scipy.linalg.sqrtm(x @ adjoint(x))),
]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("name", "shapes", "function"), UNIQUE, ids=[row[0] for row in UNIQUE])
def test_unique_results_are_those_of_lapack(name: str, shapes: list[str], function: Callable[..., Any], dtype: str) -> None:
    """Reflectors, their factors and pivots too. One program has all shapes."""
    _check_all(function, shapes, dtype)


def _check_all(function: Callable[..., Any], shapes: list[str], dtype: str) -> None:
    given = [random(s, dtype) for s in (shapes[1:3] if dtype in FEW else shapes)]
    assert_same(lambda *xs: [function(x) for x in xs], given, tolerance(dtype))


@pytest.mark.parametrize("dtype", ["f8", "c8"])
@pytest.mark.parametrize(("name", "shape", "function"), MADE_OF_THEM, ids=[row[0] for row in MADE_OF_THEM])
def test_library_functions(name: str, shape: str, function: Callable[..., Any], dtype: str) -> None:
    assert_same(function, [random(shape, dtype)], tolerance(dtype))


# --------------------------------------------------------------------------------------------- unique up to phases


def adjoint(x: Any) -> Any:
    return jnp.conj(jnp.swapaxes(x, -1, -2))


def singular(x: Any, algorithm: Any = None, full: bool = False) -> Any:
    u, d, v = linalg.svd(x, full_matrices=full, algorithm=algorithm)
    k = d.shape[-1]
    return d, (u[..., :k] * d[..., None, :]) @ v[..., :k, :], adjoint(u) @ u, v @ adjoint(v)


def hermitian(x: Any, lower: bool) -> Any:
    v, w = linalg.eigh(x, lower=lower, symmetrize_input=False)
    return w, (v * w[..., None, :]) @ adjoint(v)


def restored(x: Any) -> Any:
    form, vectors = linalg.schur(x)
    return vectors @ form @ adjoint(vectors), adjoint(vectors) @ vectors


def projections(v: Any) -> Any:
    """Columns without their phases."""
    return v[..., :, None, :] * jnp.conj(v[..., None, :, :])


def by_order(w: Any, *vectors: Any) -> Any:
    order = jnp.argsort(w.real + 2 * w.imag, axis=-1)
    return jnp.take_along_axis(w, order, -1), *(
        projections(jnp.take_along_axis(v, order[..., None, :], -1)) for v in vectors)


UP_TO_PHASE: list[tuple[str, list[str], Callable[..., Any]]] = [
    ("gesdd", MATRICES, singular), ("gesdd whole", MATRICES, lambda x: singular(x, full=True)),
    ("gesvd", MATRICES, lambda x: singular(x, linalg.SvdAlgorithm.QR)),
    ("syevd", SQUARE, lambda x: hermitian(x, True)), ("syevd upper", SQUARE, lambda x: hermitian(x, False)),
    ("geev", SQUARE, lambda x: by_order(*linalg.eig(x))),
    ("geev right", SQUARE, lambda x: by_order(*linalg.eig(x, compute_left_eigenvectors=False))),
    ("geev values", SQUARE, lambda x: by_order(*linalg.eig(x, compute_left_eigenvectors=False,
                                                           compute_right_eigenvectors=False))),
    ("gees", SQUARE, restored),
    ("gees form", SQUARE, lambda x: jnp.linalg.norm(linalg.schur(x, compute_schur_vectors=False)[0], axis=(-2, -1))),
]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("name", "shapes", "function"), UP_TO_PHASE, ids=[row[0] for row in UP_TO_PHASE])
def test_results_that_are_unique_up_to_phases(name: str, shapes: list[str], function: Callable[..., Any], dtype: str) -> None:
    _check_all(function, shapes, dtype)


def test_eigenvectors_have_lapacks_phase() -> None:
    """Of complex matrices: the largest element is positive."""
    for ours, theirs in zip(*both(linalg.eig, random("3,5,5", "c16")), strict=True):
        assert_close(ours, theirs, relative=1e-9)


# --------------------------------------------------------------------------------------------- Schur forms

SCHUR: list[np.ndarray] = [
    np.zeros((4, 4)), np.eye(5)[::-1].copy(), np.roll(np.eye(6), 1, 0), np.tril(np.ones((4, 4))), np.diag(np.ones(5), -1),
    np.array([[0.0, 1], [-1, 0]]), np.array([[1.0, 2], [0, 3]]), np.ones((6, 6)), np.kron(np.eye(3), [[1.0, 2], [-2, 1]]),
    random("3,12,12", "f8"), random("20,2,2", "f8"), 1e300 * random("4,4", "f8") / 4, 1e-300 * random("4,4", "f8"),
    np.array([[2.0, 0], [5, 1]]),
]


@pytest.mark.parametrize("kind", ["f8", "c16"])
@pytest.mark.parametrize("a", SCHUR, ids=range(len(SCHUR)))
def test_schur_forms(a: np.ndarray, kind: str) -> None:
    """z is unitary, and t triangular, but for blocks of equal diagonal elements and others of different signs."""
    given = torch.from_numpy(a.astype(kind))
    t, z, info = schur.schur(given)
    scale = max(given.abs().max().item(), 1e-300)
    assert not info.any()
    torch.testing.assert_close(z @ z.mH, torch.eye(a.shape[-1], dtype=given.dtype).expand(z.shape), atol=1e-13, rtol=0)
    torch.testing.assert_close(z @ (t / scale) @ z.mH, given / scale, atol=1e-13, rtol=0)
    assert not t.tril(-2 if kind == "f8" else -1).any()
    below, above, diagonal = (t.diagonal(k, -2, -1) for k in (-1, 1, 0))
    block = below != 0
    if kind == "f8":
        assert not (block[..., 1:] & block[..., :-1]).any()
        assert (below.sgn() * above.sgn())[block].eq(-1).all()
        assert diagonal[..., 1:][block].equal(diagonal[..., :-1][block])
    exact = np.linalg.eigvals(a)
    found = schur.eigenvalues(t).numpy()
    for got, want in zip(found.reshape(-1, a.shape[-1]), exact.reshape(-1, a.shape[-1]), strict=True):
        # Each eigenvalue has one near it; multiple ones are known to the root of the precision only.
        assert np.abs(got[:, None] - want[None, :]).min(0).max() < 1e-2 * scale


def test_small_schur_forms_are_those_of_lapack() -> None:
    assert_same(lambda *xs: [linalg.schur(x) for x in xs], [random(s, "f8") for s in ("1,1", "9,2,2", "5,3,3", "4,4,4")], 1e-10)


# --------------------------------------------------------------------------------------------- failures

FAILING: list[tuple[str, Callable[..., Any]]] = [
    ("svd", linalg.svd), ("eigh", linalg.eigh), ("eig", linalg.eig),
    ("lu", lambda x: linalg.lu(x)[0]), ("qr", internal.geqrf), ("hessenberg", linalg.hessenberg),
    ("tridiagonal", linalg.tridiagonal), ("schur", linalg.schur),
    ("pivoted", lambda x: linalg.qr(x, pivoting=True)[1]),
]


@pytest.mark.parametrize(("name", "function"), FAILING, ids=[row[0] for row in FAILING])
def test_what_is_not_finite_gives_nan_and_no_error(name: str, function: Callable[..., Any]) -> None:
    """The other matrices of the batch are as ever."""
    a = np.stack([random("3,3", "f8"), np.full((3, 3), math.nan), np.eye(3)])
    for ours, theirs in zip(*both(function, a), strict=True):
        assert np.isnan(ours).tolist() == np.isnan(theirs).tolist()
        assert_close(np.abs(ours[2]), np.abs(theirs[2]), relative=1e-10)


def test_a_triangle_that_is_not_read_may_hold_anything() -> None:
    a = np.array([[2.0, math.nan], [1, 3]])
    assert_same(lambda x: hermitian(x, True), [a], 1e-12)


def test_singular_systems() -> None:
    """Without a solution they are NaN, and perturbed they have one."""
    ones = np.ones(4)
    b = np.arange(8.0).reshape(4, 2)
    for diagonal in (np.zeros(4), np.array([1.0, 0, 1, 0]), ones):
        for off in (ones, 0 * ones):
            assert_same(linalg.tridiagonal_solve, [off, diagonal, off, b], 1e-9)
            assert_same(lambda *x: linalg.tridiagonal_solve(*x, perturb_singular=True), [off, diagonal, off, b], 1e-6)
    assert_same(lambda *x: linalg.tridiagonal_solve(*x, perturb_singular=True), [random("3,6", "f4", k) for k in range(3)]
                + [random("3,6,2", "f4", 3)], 2e-3)


NOT_NUMBERS = torch.full((2, 2), math.nan)
INFOS: list[tuple[str, str, dict[str, Any], str, int]] = [
    ("lapack_sgesdd_ffi", "(f32[2,2], f32[2], f32[2,2], f32[2,2], s32[])", {"f32[2,2]": NOT_NUMBERS}, "{mode = 65 : ui8}", -4),
    ("lapack_ssyevd_ffi", "(f32[2,2], f32[2], s32[])", {"f32[2,2]": NOT_NUMBERS}, "{mode = 86 : ui8, uplo = 76 : ui8}", 1),
    ("lapack_sgeev_ffi", "(f32[2], f32[2], c64[2,2], c64[2,2], s32[])", {"f32[2,2]": NOT_NUMBERS},
     "{compute_left = 78 : ui8, compute_right = 86 : ui8}", -4),
    ("lapack_sgees_ffi", "(f32[3,3], f32[3,3], f32[3], f32[3], s32[], s32[])", {"f32[3,3]": torch.full((3, 3), math.nan)},
     "{mode = 86 : ui8, sort = 78 : ui8}", 3),
    ("lapack_sgetrf_ffi", "(f32[2,2], s32[2], s32[])", {"f32[2,2]": torch.zeros(2, 2)}, "{}", 1),
    ("lapack_sgehrd_ffi", "(f32[2,2], f32[1], s32[])", {"f32[2,2]": torch.ones(2, 2)}, "{high = 2 : i32, low = 1 : i32}", 0),
]


@pytest.mark.parametrize(("target", "result", "operands", "config", "info"), INFOS, ids=[row[0] for row in INFOS])
def test_infos(target: str, result: str, operands: dict[str, Any], config: str, info: int) -> None:
    assert call(target, result, operands, config)[-1].item() == info


def test_the_factor_of_a_tridiagonal_system_is_lapacks() -> None:
    """What LAPACK writes over the diagonals: its own words."""
    operands = {"f64[4]": torch.tensor([7, 5, 6, 9.0]), "f64[4] ": torch.arange(1, 5.0),
                "f64[4]  ": torch.tensor([1, 2, 3, 77.0]), "f64[4,1]": torch.ones(4, 1)}
    doubles = {shape: value.double() for shape, value in operands.items()}
    lower, diagonal, upper, _, info = call("lapack_dgtsv_ffi", "(f64[4], f64[4], f64[4], f64[4,1], s32[])", doubles)
    assert (lower.tolist(), upper.tolist(), info.item()) == ([7, 2, 3, 9], [2, 3, 4, 77], 0)
    torch.testing.assert_close(diagonal, torch.tensor([5, 6, 9, 1 / 90], dtype=torch.float64))


EMPTY: list[tuple[str, str, list[str], str]] = [
    ("lapack_sgeqrf_ffi", "(f32[2,0,3], f32[2,0])", ["f32[2,0,3]"], "{}"),
    ("lapack_sgeqp3_ffi", "(f32[0,0], s32[0], f32[0])", ["f32[0,0]", "s32[0]"], "{}"),
    ("lapack_sgeqp3_ffi", "(f32[0,3], s32[3], f32[0])", ["f32[0,3]", "s32[3]"], "{}"),
    ("lapack_sgetrf_ffi", "(f32[0,0], s32[0], s32[])", ["f32[0,0]"], "{}"),
    ("lapack_ssyevd_ffi", "(f32[0,0], f32[0], s32[])", ["f32[0,0]"], "{mode = 86 : ui8, uplo = 76 : ui8}"),
    ("lapack_cgees_ffi", "(c64[0,0], c64[0,0], c64[0], s32[], s32[])", ["c64[0,0]"], "{mode = 86 : ui8, sort = 78 : ui8}"),
    ("lapack_sgtsv_ffi", "(f32[0], f32[0], f32[0], f32[0,2], s32[])", ["f32[0]", "f32[0]", "f32[0]", "f32[0,2]"], "{}"),
]


@pytest.mark.parametrize(("target", "result", "operands", "config"), EMPTY)
def test_matrices_without_elements(target: str, result: str, operands: list[str], config: str) -> None:
    shapes = [xla_torch.Shape.parse(s) for s in operands]
    given = {text + " " * k: torch.zeros(shape.dimensions, dtype=torch_dtype(shape.element_type))
             for k, (text, shape) in enumerate(zip(operands, shapes, strict=True))}
    found = call(target, result, given, config)
    assert [tuple(f.shape) for f in found] == [s.dimensions for s in xla_torch.Shape.parse(result).tuple_shapes]


# --------------------------------------------------------------------------------------------- gradients

def up_to_sign(v: Any) -> Any:
    """Columns with a first element of positive real part: LAPACK's builds do not agree on signs."""
    return v * jnp.sign(v[..., :1, :].real)


def eigenvectors(x: Any, left: bool) -> Any:
    w, *v = linalg.eig(x, compute_left_eigenvectors=left, enable_eigvec_derivs=True)
    return w, *map(up_to_sign, v)


def eigh_magnitudes(x: Any, lower: bool = True) -> Any:
    v, w = linalg.eigh((x + adjoint(x)) / 2, lower=lower, symmetrize_input=False)
    return w, jnp.abs(v)


def svd_magnitudes(x: Any, algorithm: Any = None) -> Any:
    u, d, v = linalg.svd(x, full_matrices=False, algorithm=algorithm)
    return d, jnp.abs(u), jnp.abs(v), u @ v


GRADIENTS: list[tuple[str, Callable[..., Any], list[str]]] = [
    ("lu", lambda x: linalg.lu(x)[0], ["2,4,4"]), ("lu, wide", lambda x: linalg.lu(x)[0], ["3,5"]),
    ("lu, tall", lambda x: linalg.lu(x)[0], ["2,5,3"]), ("solve", jnp.linalg.solve, ["2,4,4", "2,4,1"]),
    ("determinant", lambda x: jnp.linalg.slogdet(x)[1], ["2,3,3"]),
    ("svd", svd_magnitudes, ["3,3"]), ("svd, tall", svd_magnitudes, ["2,4,3"]),
    ("svd, wide", lambda x: svd_magnitudes(x, linalg.SvdAlgorithm.QR), ["2,4"]),
    ("singular values", lambda x: linalg.svd(x, compute_uv=False), ["2,4,3"]),
    ("eigh", eigh_magnitudes, ["2,3,3"]), ("eigh, upper", lambda x: eigh_magnitudes(x, lower=False), ["3,3"]),
    ("eigenvalues", lambda x: linalg.eig(x, compute_left_eigenvectors=False, compute_right_eigenvectors=False), ["2,4,4"]),
    ("eig", lambda x: eigenvectors(x, left=False), ["3,3"]),
    ("eig, both", lambda x: eigenvectors(x, left=True), ["3,3"]),
    ("qr", jnp.linalg.qr, ["4,3"]), ("qr of batches", jnp.linalg.qr, ["2,3,3"]),
    ("qr, tall", lambda x: jnp.linalg.qr(x)[1], ["6,2"]), ("qr, wide", lambda x: jnp.linalg.qr(x)[1][:, :2], ["2,5"]),
    ("tridiagonal solve", linalg.tridiagonal_solve, ["2,5", "2,5", "2,5", "2,5,2"]),
    ("tridiagonal solve, perturbed", lambda *x: linalg.tridiagonal_solve(*x, perturb_singular=True), ["5", "5", "5", "5,2"]),
    ("least squares", lambda x, y: jnp.linalg.lstsq(x, y)[0], ["5,3", "5,1"]),
]


@pytest.mark.parametrize("dtype", ["c16", pytest.param("f8", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("name", "function", "shapes"), GRADIENTS, ids=[row[0] for row in GRADIENTS])
def test_gradients(name: str, function: Callable[..., Any], shapes: list[str], dtype: str) -> None:
    """As JAX's, by every entry point: real XLA runs the gradient program, which calls LAPACK as JAX does."""
    check_gradients(function, [random(s, dtype, k) for k, s in enumerate(shapes)], 1e-8)


REDUCED: list[tuple[str, np.ndarray]] = [
    ("identity", np.eye(4)), ("wide", np.eye(2, 4)), ("of both signs", np.diag([-1.0, 2, -3])),
    ("triangular", np.triu(random("4,4", "f8")) + 2 * np.eye(4)),
    ("rows of zeros", np.pad(random("3,3", "f8"), ((0, 2), (0, 0)))),
    ("one column", np.array([[1.0, 2, 3], [0, 4, 5], [0, 6, 7], [0, 1, 2]])),
    ("one of two", np.stack([np.eye(3), random("3,3", "f8")])),
]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f8", "c16"])
@pytest.mark.parametrize(("name", "a"), REDUCED, ids=[row[0] for row in REDUCED])
def test_gradients_of_qr_where_columns_need_no_reflection(name: str, a: np.ndarray, dtype: str) -> None:
    """Reflections jump there, and the factors do not but for signs: JAX's, backwards and forwards."""
    def function(x: Any) -> Any:
        q, r = jnp.linalg.qr(x)
        return q, r[..., :x.shape[-2]]

    given, tangent = a.astype(dtype), random(",".join(map(str, a.shape)), dtype, 1)
    check_gradients(function, [given], 1e-8)
    found = xla_torch.jvp(program(function, given)).run_numpy(given, tangent)
    wanted = jax.tree.leaves(evaluated(lambda x, t: jax.jvp(function, (x,), (t,)), given, tangent))
    for ours, theirs in zip(found, wanted, strict=True):
        assert_close(np.asarray(ours), theirs, relative=1e-8)


@pytest.mark.parametrize("dtype", ["f8", "c16"])
@pytest.mark.parametrize("shape", ["4,2", "2,4", "3,3"])
def test_gradients_of_whole_unitary_matrices(shape: str, dtype: str) -> None:
    """What is beyond the thin ones turns with them. JAX has no rule for it."""
    a, b = random(shape, dtype), random("4,4", dtype, 1)

    def function(x: Any, b: Any) -> Any:
        u, _, v = linalg.svd(x, full_matrices=True)
        k = min(x.shape)
        parts = u[:, :k] @ adjoint(u[:, :k]), u[:, k:] @ adjoint(u[:, k:]), adjoint(v[k:]) @ v[k:], u[:, :k] @ v[:k]
        return [jnp.sum(jnp.abs(p @ b[:p.shape[1]]) ** 2 * jnp.real(b[:p.shape[0]])) for p in parts]

    given = [torch.from_numpy(a).requires_grad_(), torch.from_numpy(b)]
    assert torch.autograd.gradcheck(program(function, a, b), given, nondet_tol=1e-10)


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_what_is_not_read_has_no_gradient(dtype: str, lower: bool) -> None:
    """Differences say so: of a Hermitian matrix that stands in one triangle."""
    whole = program(lambda x: hermitian(x, lower)[0], random("3,3", dtype))
    assert torch.autograd.gradcheck(whole, [torch.from_numpy(random("3,3", dtype)).requires_grad_()], nondet_tol=1e-10)


REDUCTIONS: list[tuple[str, str, list[str], str]] = [
    ("lapack_dgeqrf_ffi", "(f64[2,3,4], f64[2,3])", ["f64[2,3,4]"], "{}"),
    ("lapack_zgeqrf_ffi", "(c128[4,3], c128[3])", ["c128[4,3]"], "{}"),
    ("lapack_dgeqp3_ffi", "(f64[4,3], s32[3], f64[3])", ["f64[4,3]", "s32[3]"], "{}"),
    ("lapack_zgehrd_ffi", "(c128[4,4], c128[3], s32[])", ["c128[4,4]"], "{high = 4 : i32, low = 1 : i32}"),
    ("lapack_dgehrd_ffi", "(f64[2,4,4], f64[2,3], s32[2])", ["f64[2,4,4]"], "{high = 4 : i32, low = 1 : i32}"),
    ("lapack_dsytrd_ffi", "(f64[4,4], f64[4], f64[3], f64[3], s32[])", ["f64[4,4]"], "{uplo = 85 : ui8}"),
    ("lapack_dsytrd_ffi", "(f64[2,4,4], f64[2,4], f64[2,3], f64[2,3], s32[2])", ["f64[2,4,4]"], "{uplo = 76 : ui8}"),
    ("lapack_zhetrd_ffi", "(c128[4,4], f64[4], f64[3], c128[3], s32[])", ["c128[4,4]"], "{uplo = 76 : ui8}"),
    ("lapack_zhetrd_ffi", "(c128[4,4], f64[4], f64[3], c128[3], s32[])", ["c128[4,4]"], "{uplo = 85 : ui8}"),
    ("lapack_dorgqr_ffi", "f64[4,3]", ["f64[4,3]", "f64[3]"], "{}"),
    ("lapack_zungqr_ffi", "c128[2,4,3]", ["c128[2,4,3]", "c128[2,2]"], "{}"),
    ("lapack_dormqr_ffi", "f64[4,2]", ["f64[4,3]", "f64[3]", "f64[4,2]"], "{left = true, transpose = true}"),
    ("lapack_zunmqr_ffi", "c128[2,4]", ["c128[4,3]", "c128[3]", "c128[2,4]"], "{left = false, transpose = false}"),
    ("lapack_zunmqr_ffi", "c128[2,4]", ["c128[4,3]", "c128[3]", "c128[2,4]"], "{left = false, transpose = true}"),
    ("lapack_dgesdd_ffi", "(f64[4,3], f64[3], f64[4,3], f64[3,3], s32[])", ["f64[4,3]"], "{mode = 78 : ui8}"),
    ("lapack_dsyevd_ffi", "(f64[3,3], f64[3], s32[])", ["f64[3,3]"], "{mode = 78 : ui8, uplo = 76 : ui8}"),
    ("tridiagonal_solve_perturbed_ffi", "f64[4,2]", ["f64[4]", "f64[4]", "f64[4]", "f64[4,2]"], "{}"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("target", "result", "operands", "config"), REDUCTIONS, ids=range(len(REDUCTIONS)))
def test_gradients_of_packed_results(target: str, result: str, operands: list[str], config: str) -> None:
    """Against differences; JAX has no rule for these. Real XLA runs the gradient programs, and finds the same."""
    computation, given = _called(target, result, operands, config)
    values = [torch.from_numpy(a).requires_grad_(a.dtype.kind in "fc") for a in given]
    assert torch.autograd.gradcheck(computation, values, nondet_tol=1e-10)
    derivative = xla_torch.vjp(computation)
    cts = [_drawn(leaf, 3) for leaf in computation.program_shape.result.leaves()]
    text = derivative.to_hlo_text()
    assert "xla_torch." not in text
    for ours, theirs in zip(derivative.run_numpy(*given, *cts), run_xla(text, *given, *cts), strict=True):
        assert_close(np.asarray(ours), theirs, relative=1e-9)


def _called(target: str, result: str, operands: list[str], config: str) -> tuple[xla_torch.XlaComputation, list[np.ndarray]]:
    """A program that calls a routine as JAX does and returns what its formula knows of the results, and arguments for it."""
    builder = xla_torch.XlaBuilder("called")
    given = [xla_torch.Shape.parse(s) for s in operands]
    batch = max(s.rank for s in given) - 2
    declared = xla_torch.Shape.parse(result)
    results = list(declared.tuple_shapes) or [declared]
    parameters = [ops.Parameter(builder, k, s, f"p{k}") for k, s in enumerate(given)]
    laid_out = [_laid_out(s, batch) for s in results]
    whole = ops.CustomCallWithLayout(
        builder, target, parameters, xla_torch.Shape.tuple(laid_out) if declared.is_tuple else laid_out[0],
        [_laid_out(s, batch) for s in given], config, api_version="API_VERSION_TYPED_FFI")
    parts = [ops.GetTupleElement(whole, k) for k in range(len(results))] if declared.is_tuple else [whole]
    known = [1] if "mode = 78" in config else sorted(ROUTINE_RULES[routine_name(target)].results)
    return builder.build(ops.Tuple(builder, [parts[k] for k in known])), [_drawn(s, k) for k, s in enumerate(given)]


def _drawn(shape: xla_torch.Shape, seed: int) -> np.ndarray:
    if not shape.element_type.is_differentiable:
        return np.zeros(shape.dimensions, np.int32)
    return random(",".join(map(str, shape.dimensions)), "c16" if shape.element_type.is_complex else "f8", seed)


def test_what_a_routine_leaves_besides_has_its_gradient_here() -> None:
    """The factor of a tridiagonal system: torch's autograd knows it, in a call that only we run."""
    diagonals, b = [random("4", "f8", k) for k in range(3)], random("4,2", "f8", 3)
    text = """HloModule m
ENTRY e {
  l = f64[4] parameter(0)
  d = f64[4] parameter(1)
  u = f64[4] parameter(2)
  b = f64[4,2] parameter(3)
  s = (f64[4], f64[4], f64[4], f64[4,2], s32[]) custom-call(l, d, u, b), custom_call_target="lapack_dgtsv_ffi"
  pivots = f64[4] get-tuple-element(s), index=1
  x = f64[4,2] get-tuple-element(s), index=3
  ROOT r = (f64[4], f64[4,2]) tuple(pivots, x)
}"""
    computation = xla_torch.parse_hlo(text)
    assert torch.autograd.gradcheck(computation, [torch.from_numpy(a).requires_grad_() for a in (*diagonals, b)])
    assert "xla_torch.vjp" in xla_torch.vjp(computation).to_hlo_text()


@pytest.mark.parametrize("target", ["lapack_dgees_ffi", "lapack_zgees_ffi"])
def test_schur_has_no_gradient(target: str) -> None:
    """As in JAX, and the error says why, and what to do."""
    assert ROUTINES[routine_name(target)].no_gradient
    assert routine_name(target) in lapack.ROUTINES
    element = "f64" if target == "lapack_dgees_ffi" else "c128"
    values = "f64[2], f64[2]" if element == "f64" else "c128[2]"
    program = xla_torch.parse_hlo(f"""ENTRY main {{
  a = {element}[2,2] parameter(0)
  s = ({element}[2,2], {element}[2,2], {values}, s32[], s32[]) custom-call(a), custom_call_target="{target}"
  ROOT form = {element}[2,2] get-tuple-element(s), index=0
}}""")
    with pytest.raises(xla_torch.errors.DifferentiationError, match=f"(?s)not unique.*use the eigenvalues.*'{target}'"):
        xla_torch.vjp(program)
