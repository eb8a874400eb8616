"""LAPACK's routines as JAX calls them, and what programs make of them: each target, type and kind of shape against JAX itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import xla_torch
from contraction_rows import assert_close
from custom_call_rows import call
from jax_oracle import check_gradients
from oracle import run_xla
from xla_torch.interop import custom_calls, schur
from xla_torch.interop.lapack import is_differentiable, routine

jax: Any = pytest.importorskip("jax")
jnp: Any = pytest.importorskip("jax.numpy")
internal: Any = pytest.importorskip("jax._src.lax.linalg")
linalg: Any = jax.lax.linalg

TYPES = ["f4", "f8", "c8", "c16"]
FEW = ("f8", "c8")  # with these types, two of the shapes: LAPACK's routines are the same for them
SQUARE = ["1,1", "2,1,4,4", "0,3,3", "7,7"]
MATRICES = [*SQUARE, "6,3", "2,3,6", "1,3"]


def random(shape: str, dtype: str, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    dims = tuple(map(int, shape.split(",")))
    real = generator.standard_normal(dims)
    return np.asarray(real + 1j * generator.standard_normal(dims) if dtype[0] == "c" else real).astype(dtype)


def tolerance(dtype: str) -> float:
    return 2e-3 if dtype in ("f4", "c8") else 1e-9


def both(function: Callable[..., Any], *arguments: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """(our results, JAX's) of a JAX function."""
    lowered: Any = jax.jit(function, keep_unused=True).lower(*arguments)
    ours = xla_torch.parse_hlo(lowered.compiler_ir("hlo").as_hlo_text(True)).run_numpy(*arguments)
    return [np.asarray(x) for x in ours], [np.asarray(x) for x in jax.tree.leaves(lowered.compile()(*arguments))]


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
    given = {text + " " * k: torch.zeros(shape.dimensions, dtype=shape.element_type.torch)
             for k, (text, shape) in enumerate(zip(operands, shapes, strict=True))}
    found = call(target, result, given, config)
    assert [tuple(f.shape) for f in found] == [s.dimensions for s in xla_torch.Shape.parse(result).tuple_shapes]


# --------------------------------------------------------------------------------------------- gradients

GRADIENTS: list[tuple[str, Callable[..., Any], list[str]]] = [
    ("qr", jnp.linalg.qr, ["4,3"]), ("qr of batches", jnp.linalg.qr, ["2,3,3"]),
    ("qr, tall", lambda x: jnp.linalg.qr(x)[1], ["6,2"]),
    ("tridiagonal solve", linalg.tridiagonal_solve, ["5", "5", "5", "5,2"]),
    ("least squares", lambda x, y: jnp.linalg.lstsq(x, y)[0], ["5,3", "5,1"]),
]


@pytest.mark.parametrize("dtype", ["f8", "c16"])
@pytest.mark.parametrize(("name", "function", "shapes"), GRADIENTS, ids=[row[0] for row in GRADIENTS])
def test_gradients(name: str, function: Callable[..., Any], shapes: list[str], dtype: str) -> None:
    check_gradients(function, [random(s, dtype, k) for k, s in enumerate(shapes)], 1e-8, on_xla=False)


REDUCTIONS: list[tuple[str, str, list[str], str]] = [
    ("lapack_dgeqrf_ffi", "(f64[2,3,4], f64[2,3])", ["f64[2,3,4]"], "{}"),
    ("lapack_dgeqp3_ffi", "(f64[4,3], s32[3], f64[3])", ["f64[4,3]", "s32[3]"], "{}"),
    ("lapack_zgehrd_ffi", "(c128[4,4], c128[3], s32[])", ["c128[4,4]"], "{high = 4 : i32, low = 1 : i32}"),
    ("lapack_dsytrd_ffi", "(f64[4,4], f64[4], f64[3], f64[3], s32[])", ["f64[4,4]"], "{uplo = 85 : ui8}"),
    ("lapack_dorgqr_ffi", "f64[4,3]", ["f64[4,3]", "f64[3]"], "{}"),
    ("lapack_dormqr_ffi", "f64[4,2]", ["f64[4,3]", "f64[3]", "f64[4,2]"], "{left = true, transpose = true}"),
    ("tridiagonal_solve_perturbed_ffi", "f64[4,2]", ["f64[4]", "f64[4]", "f64[4]", "f64[4,2]"], "{}"),
]


@pytest.mark.parametrize(("target", "result", "operands", "config"), REDUCTIONS, ids=[row[0] for row in REDUCTIONS])
def test_gradients_of_packed_results(target: str, result: str, operands: list[str], config: str) -> None:
    """Against differences; JAX has no rule for these."""
    torch.manual_seed(0)
    shapes = [xla_torch.Shape.parse(s) for s in operands]
    values = [torch.randn(s.dimensions, dtype=s.element_type.torch, requires_grad=True)
              if s.element_type.is_differentiable else torch.zeros(s.dimensions, dtype=s.element_type.torch) for s in shapes]

    def function(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = call(target, result, {text + " " * k: v for k, (text, v) in enumerate(zip(operands, given, strict=True))}, config)
        return tuple(f for f in found if f.is_floating_point() or f.is_complex())

    assert torch.autograd.gradcheck(function, values, nondet_tol=1e-10)


@pytest.mark.parametrize("target", ["lapack_dgees_ffi", "lapack_zgees_ffi"])
def test_schur_has_no_gradient(target: str) -> None:
    """As in JAX, and the error says why, and what to do."""
    assert not is_differentiable(target)
    assert routine(target) is not None
    element = "f64" if target == "lapack_dgees_ffi" else "c128"
    values = "f64[2], f64[2]" if element == "f64" else "c128[2]"
    program = xla_torch.parse_hlo(f"""ENTRY main {{
  a = {element}[2,2] parameter(0)
  s = ({element}[2,2], {element}[2,2], {values}, s32[], s32[]) custom-call(a), custom_call_target="{target}"
  ROOT form = {element}[2,2] get-tuple-element(s), index=0
}}""")
    with pytest.raises(xla_torch.errors.DifferentiationError, match=f"(?s)not unique.*use the eigenvalues.*'{target}'"):
        xla_torch.vjp(program)


# --------------------------------------------------------------------------------------------- every target of jaxlib

def test_every_target_that_jaxlib_registers_for_the_cpu_is_known() -> None:
    jaxlib: Any = pytest.importorskip("jaxlib.cpu._lapack")
    sparse: Any = pytest.importorskip("jaxlib.cpu._sparse")
    targets = [*jaxlib.registrations(), *sparse.registrations(), "dce_sink"]
    assert len(targets) > 60
    program = "HloModule m\nENTRY e {{\n  x = f32[2,2] parameter(0)\n  ROOT r = {} custom-call(x), custom_call_target=\"{}\"\n}}"
    for target in targets:
        result = "(f32[2,2], s32[])" if "potrf" in target else "()" if target == "dce_sink" else "f32[2,2]"
        operands = "x, x" if "trsm" in target else "x"
        text = program.format(result, target).replace("(x)", f"({operands})")
        (instruction,) = [i for i in xla_torch.parse_hlo(text).entry.instructions if i.opcode == "custom-call"]
        assert custom_calls.is_known(instruction), target


def test_sparse_products() -> None:
    dense = random("5,4", "f4") * (random("5,4", "f4", 1) > 0)
    sparse: Any = pytest.importorskip("jax.experimental.sparse")
    matrix = sparse.BCSR.fromdense(jnp.asarray(dense), nse=int((dense != 0).sum()) + 2)
    for right in (random("4,3", "f4", 2), random("4", "f4", 3)):
        text = (f"HloModule m\nENTRY e {{\n  d = f32[{matrix.nse}] parameter(0)\n  s = s32[6] parameter(1)\n"
                f"  c = s32[{matrix.nse}] parameter(2)\n  r = f32[{','.join(map(str, right.shape))}] parameter(3)\n"
                f"  ROOT y = f32[{','.join(map(str, (5, *right.shape[1:])))}] custom-call(d, s, c, r), "
                'custom_call_target="cpu_csr_sparse_dense_ffi", api_version=API_VERSION_TYPED_FFI, backend_config={}\n}')
        arguments = [np.asarray(matrix.data), np.asarray(matrix.indptr), np.asarray(matrix.indices), right]
        found = xla_torch.parse_hlo(text).run_numpy(*arguments)
        assert_close(np.asarray(found[0]), dense @ right, relative=1e-5)


def test_the_qr_of_xla_itself() -> None:
    """XLA expands these on its own; JAX uses them where there is no LAPACK."""
    a = random("4,3", "f4")
    text = """HloModule m
ENTRY e {
  a = f32[4,3] parameter(0)
  qr = (f32[4,3], f32[3]) custom-call(a), custom_call_target="Qr"
  packed = f32[4,3] get-tuple-element(qr), index=0
  taus = f32[3] get-tuple-element(qr), index=1
  q = f32[4,3] custom-call(packed, taus), custom_call_target="ProductOfElementaryHouseholderReflectors"
  ROOT r = (f32[4,3], f32[3], f32[4,3]) tuple(packed, taus, q)
}"""
    for ours, theirs in zip(xla_torch.parse_hlo(text).run_numpy(a), run_xla(text, a), strict=True):
        assert_close(np.asarray(ours), theirs, relative=1e-4)


