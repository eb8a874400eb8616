"""Small matrices in native loops: factors, systems and LAPACK's routines beside torch's, and whole filters beside XLA."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax import lax

import xla_torch
from support.native_programs import leaves_of, loop_of_rows, native_after, native_loops, natively, run_both, sources_of
from xla_torch import from_jax
from xla_torch.api.custom_calls import unregister_custom_call
from xla_torch.codegen.compiled import is_available
from xla_torch.core import tuning

needs_compiler = pytest.mark.skipif(not is_available(), reason="there is no C compiler")

MOST = tuning.NATIVE_MATRIX
SOLVES = [
    f"f64[{b}] triangular-solve(a, {right}), left_side={left}, lower={lower}, unit_diagonal={unit}, transpose_a={transpose}"
    for left, b, right in (("true", "2,4,3", "b"), ("false", "2,3,4", "c"))
    for lower in ("true", "false")
    for unit, transpose in (("false", "NO_TRANSPOSE"), ("false", "TRANSPOSE"), ("true", "ADJOINT"))]
SOLVES += ["f32[1,1] triangular-solve(one, one), left_side=true, lower=true, unit_diagonal=false, transpose_a=TRANSPOSE",
           "f32[1,1] triangular-solve(one, one), left_side=false, lower=true, unit_diagonal=true, transpose_a=NO_TRANSPOSE"]
FACTORS = ["f32[1,1] cholesky(one), lower=true", *(f"f64[3,4,4] cholesky(p), lower={lower}" for lower in ("true", "false"))]


@needs_compiler
def test_systems_and_cholesky_factors_as_torch(tmp_path: Path) -> None:
    """A factor reads its own triangle only, and of what is not positive definite it is NaN."""
    rng = np.random.default_rng(2)
    a, positive = rng.normal(size=(2, 4, 4)) + 3 * np.eye(4), rng.normal(size=(3, 4, 4))
    positive[0] = positive[0] @ positive[0].T + np.eye(4)
    positive[1] += 9 * np.eye(4)
    positive[2] = positive[0]
    positive[2, 3, 3] = -1
    shapes = {"a": "f64[2,4,4]", "b": "f64[2,4,3]", "c": "f64[2,3,4]", "p": "f64[3,4,4]", "one": "f32[1,1]"}
    given = [a, rng.normal(size=(2, 4, 3)), rng.normal(size=(2, 3, 4)), positive, np.full((1, 1), 3, "f4")]
    text = loop_of_rows(SOLVES + FACTORS, shapes).replace("one = s32[]", "step = s32[]")
    text = text.replace("add(i, one)", "add(i, step)")
    assert natively(text)
    want, got = run_both(text, given, tmp_path)
    for row, mine, theirs in zip(SOLVES + FACTORS, got, want, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-10 if row.startswith("f64") else 1e-6, atol=1e-12, err_msg=row)
    assert np.isnan(got[-1][2]).all()
    assert not np.isnan(got[-1][:2]).any()


# ------------------------------------------------------------------------------------------- LAPACK's routines


def routine_rows(kind: str, *dims: int) -> list[str]:
    """Each routine for a matrix a, and for its reflectors r with factors t."""
    *batch, m, n = dims
    lead, k, letter = "".join(f"{d}," for d in batch), min(m, n), "s" if kind == "f32" else "d"
    whole, short = f"{kind}[{lead}{m},{n}]", f"[{lead}{k}]"
    rows = [f'({whole}, s32{short}, s32[{",".join(map(str, batch))}]) custom-call(a), '
            f'custom_call_target="lapack_{letter}getrf_ffi"',
            f'({whole}, {kind}{short}) custom-call(a), custom_call_target="lapack_{letter}geqrf_ffi"']
    return rows + [f'{whole} custom-call(r, t), custom_call_target="lapack_{letter}orgqr_ffi"'] * (m >= n)


def check_routines(a: np.ndarray, folder: Path, tolerance: float | None = None) -> list[np.ndarray]:
    """Run them on matrices in torch and natively; returns the native results."""
    kind, dims = f"f{a.itemsize * 8}", a.shape
    rows = routine_rows(kind, *dims)
    reflectors, factors = torch.geqrf(torch.from_numpy(np.nan_to_num(a)))
    shapes = {"a": a, "r": reflectors.numpy(), "t": factors.numpy()}
    text = loop_of_rows(rows, {name: f"{kind}[{','.join(map(str, s.shape))}]" for name, s in shapes.items()})
    assert natively(text)
    want, got = run_both(text, list(shapes.values()), folder)
    tolerance = tolerance or (1e-4 if kind == "f32" else 1e-11)
    for row, mine, theirs in zip([r for r in rows for _ in leaves_of(r)], got, want, strict=True):
        assert mine.dtype == theirs.dtype
        if mine.dtype.kind == "f":
            np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance * np.abs(a[np.isfinite(a)]).max(initial=1),
                                       err_msg=row)
        else:
            np.testing.assert_array_equal(mine, theirs, err_msg=row)
    return list(got)


@needs_compiler
@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.parametrize("dims", [(1, 1), (2, 2), (2, 1, 1), (3, 3), (5, 3), (3, 5), (4, 1), (1, 4), (2, 3, 6, 4), (17, 17),
                                  (MOST, 3), (3, MOST)], ids=str)
def test_routines_as_torch(dims: tuple[int, ...], kind: str, tmp_path: Path) -> None:
    check_routines(np.random.default_rng(0).normal(size=dims).astype(kind), tmp_path)


@needs_compiler
@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.parametrize(("matrix", "info"), [
    ([[1, 2, 3], [2, 4, 6], [1, 0, 1]], 3), ([[0, 1, 2], [0, 3, 4], [0, 5, 7]], 1), ([[0, 0], [0, 0]], 1), ([[0]], 1),
    ([[2, 1], [4, 2]], 2), ([[0, 1], [1, 0]], 0), ([[1, math.nan, 2], [3, 4, 5], [6, 7, 9]], 0), ([[1, 2], [math.inf, 4]], 0),
    ([[4, 1], [4, 3]], 0),
], ids=str)
def test_singular_matrices_and_what_is_not_finite(matrix: list[list[float]], info: int, kind: str, tmp_path: Path) -> None:
    """info is the first pivot that is 0; a column that is zero below its diagonal has no reflector; NaN is where torch has it."""
    a = np.array(matrix, kind)
    assert check_routines(a, tmp_path)[2] == info


@needs_compiler
@pytest.mark.parametrize(("kind", "scale"), [("f4", 1e-30), ("f4", 1e30), ("f8", 1e-200), ("f8", 1e-290), ("f8", 1e200)])
def test_lengths_whose_squares_overflow_or_vanish(kind: str, scale: float, tmp_path: Path) -> None:
    a = np.random.default_rng(1).normal(size=(5, 4)).astype(kind)
    plain, scaled = ([torch.from_numpy(r) for r in check_routines(x, tmp_path)[3:5]] for x in (a, a * np.dtype(kind).type(scale)))
    torch.testing.assert_close(scaled[1], plain[1])
    torch.testing.assert_close(scaled[0].triu() / scale, plain[0].triu())
    torch.testing.assert_close(scaled[0].tril(-1), plain[0].tril(-1))


@pytest.mark.parametrize("row", [
    "f32[{n},{n}] cholesky(a), lower=true", *(r.replace("99", "{n}") for r in routine_rows("f32", 99, 99)[:2]),
    "f32[{n},{n}] triangular-solve(a, a), left_side=true, lower=true, unit_diagonal=false, transpose_a=NO_TRANSPOSE"])
def test_larger_matrices_are_lapack_s(row: str) -> None:
    for n, is_native in ((MOST, is_available()), (MOST + 1, False)):
        assert natively(loop_of_rows([row.replace("{n}", str(n))], {"a": f"f32[{n},{n}]"})) == is_native


@needs_compiler
@pytest.mark.parametrize(("most", "inside"), [(8, 1), (7, 2)])
@pytest.mark.parametrize("factor", [
    "f32[8,8] cholesky(c)", "f32[8,8] triangular-solve(c, c), left_side=true, lower=true, transpose_a=NO_TRANSPOSE"])
def test_bundles(factor: str, most: int, inside: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whole, or around matrices that are LAPACK's."""
    text = f"""HloModule small
ENTRY main {{
  x = f32[8,8] parameter(0)
  a = f32[8,8] multiply(x, x)
  b = f32[8,8] add(a, x)
  c = f32[8,8] multiply(b, b)
  f = {factor}
  d = f32[8,8] multiply(f, x)
  e = f32[8,8] add(d, f)
  ROOT g = f32[8,8] subtract(e, x)
}}"""
    x = torch.eye(8) + 0.1
    monkeypatch.setattr(tuning, "BUNDLE_LEAST", 2)
    want = xla_torch.parse_hlo(text)(x)
    monkeypatch.setattr(tuning, "NATIVE_MATRIX", most)
    with native_after(0.0, tmp_path):
        computation = xla_torch.parse_hlo(text)
        torch.testing.assert_close(computation(x), want, rtol=1e-5, atol=1e-5)
    assert len(sources_of(computation)) == inside


@pytest.mark.parametrize("row", [
    "(c64[3,3], s32[3], s32[]) custom-call(c), custom_call_target=\"lapack_cgetrf_ffi\"", "c64[3,3] cholesky(c), lower=true",
    "(f32[3,3], f32[3], s32[]) custom-call(a), custom_call_target=\"lapack_ssyevd_ffi\"",
    "(f32[3,3], s32[4], s32[]) custom-call(a), custom_call_target=\"lapack_sgetrf_ffi\""])
def test_routines_that_stay_in_torch(row: str) -> None:
    assert not natively(loop_of_rows([row], {"a": "f32[3,3]", "c": "c64[3,3]"}))


@needs_compiler
def test_a_user_s_function_is_not_passed_over() -> None:
    text = loop_of_rows(routine_rows("f32", 3, 3)[:1], {"a": "f32[3,3]"})
    assert natively(text)
    xla_torch.register_custom_call("lapack_sgetrf_ffi", lambda a: (a, a[0].int(), a[0, 0].int()))
    try:
        assert not natively(text)
        np.testing.assert_array_equal(xla_torch.parse_hlo(text).run_numpy(np.eye(3, dtype="f4"))[0], np.eye(3))
    finally:
        unregister_custom_call("lapack_sgetrf_ffi")


# ------------------------------------------------------------------------------------------- filters


def kalman(solve: Callable[[Any, Any], Any], states: int, seen: int) -> Callable[..., Any]:
    rng = np.random.default_rng(0)
    move, see = np.eye(states) + 0.05 * rng.normal(size=(states, states)), rng.normal(size=(seen, states))

    def step(carry: Any, z: Any) -> Any:
        x, p = carry
        a, h = move.astype(z.dtype), see.astype(z.dtype)
        x, p = a @ x, a @ p @ a.T + 0.1 * jnp.eye(states, dtype=z.dtype)
        gain = solve(h @ p @ h.T + jnp.eye(seen, dtype=z.dtype), h @ p).T
        return (x + gain @ (z - h @ x), p - gain @ h @ p), x

    return lambda zs: lax.scan(step, (jnp.zeros(states, zs.dtype), jnp.eye(states, dtype=zs.dtype)), zs)[1]


def gaussian(n: int) -> Callable[..., Any]:
    def step(p: Any, z: Any) -> Any:
        lower = jnp.linalg.cholesky(0.9 * p + jnp.eye(n, dtype=z.dtype))
        white = jax.scipy.linalg.solve_triangular(lower, z, lower=True)
        p = p - 0.5 * p @ jax.scipy.linalg.cho_solve((lower, True), p)
        return p, -0.5 * white @ white - jnp.log(jnp.diag(lower)).sum()

    return lambda zs: lax.scan(step, jnp.eye(n, dtype=zs.dtype), zs)[1]


def of_matrices(n: int, function: Callable[[Any], Any]) -> Callable[..., Any]:
    """A function of the outer products' sum so far, made regular."""
    def step(total: Any, z: Any) -> Any:
        total = 0.5 * total + jnp.outer(z, z[::-1]) + 2 * jnp.eye(n, dtype=z.dtype)
        return total, function(total)

    return lambda zs: lax.scan(step, jnp.zeros((n, n), zs.dtype), zs)[1]


def orthogonal(a: Any) -> Any:
    q, r = jnp.linalg.qr(a)
    return jnp.tanh(q @ r.T) + jnp.diag(r)


FILTERS: dict[str, tuple[Callable[..., Any], int]] = {
    "kalman, solve": (kalman(jnp.linalg.solve, 6, 4), 4), "kalman, inv": (kalman(lambda s, b: jnp.linalg.inv(s) @ b, 4, 9), 9),
    "kalman, one": (kalman(jnp.linalg.solve, 2, 1), 1), "gaussian": (gaussian(5), 5), "gaussian, 10": (gaussian(10), 10),
    "slogdet": (of_matrices(4, lambda a: jnp.linalg.slogdet(a)[1]), 4), "det": (of_matrices(5, jnp.linalg.det), 5),
    "qr": (of_matrices(5, orthogonal), 5),
    "kalman, batch": (jax.vmap(kalman(jnp.linalg.solve, 4, 3), 1), 3), "qr, batch": (jax.vmap(of_matrices(3, orthogonal), 1), 3),
}

FAST = {("kalman, solve", "f4"), ("gaussian, 10", "f8"), ("det", "f8"), ("qr, batch", "f4")}


@needs_compiler
@pytest.mark.parametrize(("name", "kind"), [
    pytest.param(name, kind, marks=() if (name, kind) in FAST else pytest.mark.slow)
    for name in FILTERS for kind in ("f4", "f8")])
def test_filters_and_their_gradients(name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The values, JAX's gradient as a program, and the one that the program itself derives: all their loops are native, with
    XLA's results and torch's."""
    found = native_loops(monkeypatch)
    function, seen = FILTERS[name]
    dims = (20, 2, seen) if "batch" in name else (20, seen)
    zs = np.random.default_rng(1).normal(size=dims).astype(kind)
    rounding = 2e-3 if kind == "f4" else 1e-8

    def loss(zs: Any) -> Any:
        return (function(zs) ** 2).mean()

    with jax.enable_x64(kind == "f8"):
        want = jax.device_get(jax.jit(lambda x: (function(x), jax.grad(loss)(x)))(zs))
        programs = [from_jax(f, zs) for f in (function, jax.grad(loss), loss)]

    def run() -> list[torch.Tensor]:
        given = torch.from_numpy(zs).requires_grad_()
        derived = torch.autograd.grad(programs[2](given), given)[0]
        return [programs[0](given.detach()), programs[1](given.detach()), derived]

    with native_after(math.inf, tmp_path):
        in_torch = run()
    with native_after(0.0, tmp_path):
        native = run()
    assert len(found) >= 4
    assert all(found)
    for mine, theirs, xla in zip(native, in_torch, (*want, want[1]), strict=True):
        scale = rounding * np.abs(xla).max()
        np.testing.assert_allclose(mine.numpy(), xla, rtol=rounding, atol=scale)
        np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=rounding, atol=scale)


@needs_compiler
def test_a_filter_that_meets_a_singular_matrix_goes_on_as_xla_says(tmp_path: Path) -> None:
    """A solution with infinities and NaN, or all NaN, at the steps where there is none; the others are as they were."""
    matrices = np.tile(np.array([[2, 1], [1, 3]], "f4"), (6, 1, 1))
    matrices[1], matrices[3], matrices[4] = [[1, 2], [2, 4]], [[0, 0], [0, 0]], [[math.nan, 1], [1, 1]]

    def function(matrices: Any) -> Any:
        return lax.scan(lambda c, a: (c, jnp.linalg.solve(a, jnp.array([1, 1], a.dtype))), 0, matrices)[1]

    program = from_jax(function, matrices)
    with native_after(0.0, tmp_path):
        got = program(torch.from_numpy(matrices)).numpy()
    assert "_native" in program.computation.python_code() or "bundle(" in program.computation.python_code()
    want = np.asarray(jax.jit(function)(matrices))
    assert np.isfinite(got).all(-1).tolist() == np.isfinite(want).all(-1).tolist() == [True, False, True, False, False, True]
    np.testing.assert_allclose(got[[0, 2, 5]], want[[0, 2, 5]], rtol=1e-6)


@needs_compiler
@pytest.mark.parametrize("n", [2, 3, 4, 5, 8, 16, 31])
def test_choices_by_masks(n: int, tmp_path: Path) -> None:
    """As factors of triangles need them. Of reads under conditions, one behind the other, gcc 12 makes wrong code for AVX2."""
    floats, masks = f"f32[{n},{n}]", f"pred[{n},{n}]"
    rows = [f"{floats} select(p, x, y)", f"{floats} select(q, r0, y)", f"{floats} transpose(r0), dimensions={{1,0}}",
            f"{floats} select(p, r2, r1)"]
    text = loop_of_rows(rows, {"x": floats, "y": floats, "p": masks, "q": masks})
    x, y = np.arange(2 * n * n, dtype=np.float32).reshape(2, n, n)
    lower, some = np.tril(np.ones((n, n), bool)), (np.arange(n * n) % 3 == 0).reshape(n, n)
    in_torch, native = run_both(text, [x, y, some, lower], tmp_path)
    for a, b in zip(in_torch, native, strict=True):
        np.testing.assert_array_equal(a, b)
    assert list((tmp_path / "native").glob("loop_*.so"))
