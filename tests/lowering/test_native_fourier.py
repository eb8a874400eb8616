"""Fourier transforms in native loops and bundles: every kind and factor beside torch's, XLA's and NumPy's in double precision."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax import lax

import xla_torch
from support.native_programs import loop_of_rows, native_after, native_loops, natively, run_both, sources_of
from xla_torch import from_jax
from xla_torch.codegen.butterflies import RADICES
from xla_torch.codegen.compiled import is_available
from xla_torch.core import tuning

needs_compiler = pytest.mark.skipif(not is_available(), reason="there is no C compiler")

MOST, ERROR = tuning.NATIVE_TRANSFORM, {"c64": 3e-7, "c128": 1e-15}
PART, WIDTH = {"c64": "f32", "c128": "f64"}, {"c64": 4, "c128": 8}
KINDS: dict[str, Any] = {"FFT": jnp.fft.fftn, "IFFT": jnp.fft.ifftn, "RFFT": jnp.fft.rfftn, "IRFFT": jnp.fft.irfftn}
EXACT: dict[str, Any] = {"FFT": np.fft.fftn, "IFFT": np.fft.ifftn, "RFFT": np.fft.rfftn, "IRFFT": np.fft.irfftn}

Arrays = list[tuple[tuple[int, ...], int]]
"""Sizes, and how many of the last axes are transformed."""


def sizes_of(dims: tuple[int, ...], kind: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What a transform of so many numbers takes, and what it makes."""
    half = (*dims[:-1], dims[-1] // 2 + 1)
    return half if kind == "IRFFT" else dims, half if kind == "RFFT" else dims


def row_of(kind: str, of: str, dims: tuple[int, ...], axes: int, operand: str) -> str:
    made = PART[of] if kind == "IRFFT" else of
    text = ",".join(map(str, sizes_of(dims, kind)[1]))
    return f"{made}[{text}] fft({operand}), fft_type={kind}, fft_length={{{','.join(map(str, dims[len(dims) - axes:]))}}}"


def drawn(rng: np.random.Generator, kind: str, of: str, dims: tuple[int, ...]) -> Any:
    dims = sizes_of(dims, kind)[0]
    if kind == "RFFT":
        return rng.normal(size=dims).astype(f"f{WIDTH[of]}")
    return (rng.normal(size=(*dims, 2)) @ [1, 1j]).astype(f"c{2 * WIDTH[of]}")


def program_of(of: str, arrays: Arrays) -> tuple[str, list[tuple[str, tuple[int, ...], int]], list[Any]]:
    """A loop with each kind of transform along the last axes of arrays of these sizes."""
    rng = np.random.default_rng(0)
    rows = [(kind, dims, axes) for dims, axes in arrays for kind in KINDS]
    given = [drawn(rng, kind, of, dims) for kind, dims, _ in rows]
    shapes = {f"x{k}": f"{PART[of] if kind == 'RFFT' else of}[{','.join(map(str, x.shape))}]"
              for k, (x, (kind, *_)) in enumerate(zip(given, rows, strict=True))}
    return loop_of_rows([row_of(*row[:1], of, *row[1:], f"x{k}") for k, row in enumerate(rows)], shapes), rows, given


def check(of: str, arrays: Arrays, folder: Path) -> None:
    """Norms of errors, beside double precision's results; and all elements beside torch's and XLA's."""
    text, rows, given = program_of(of, arrays)
    assert natively(text)
    in_torch, native = run_both(text, given, folder)
    for (kind, dims, axes), x, mine, theirs in zip(rows, given, native, in_torch, strict=True):
        sizes, along = dims[len(dims) - axes:], tuple(range(-axes, 0))
        exact = EXACT[kind](x.astype("f8" if kind == "RFFT" else "c16"), sizes, along)
        assert np.linalg.norm(mine - exact) <= ERROR[of] * np.linalg.norm(exact), (kind, dims)
        with jax.enable_x64(of == "c128"):
            xla = np.asarray(jax.jit(lambda x: KINDS[kind](x, sizes, along))(x))  # noqa: B023
        assert mine.dtype == theirs.dtype == xla.dtype
        near = 4 * ERROR[of] * np.abs(exact).max()
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=near, err_msg=f"{kind} {dims}")
        np.testing.assert_allclose(mine, xla, rtol=0, atol=near, err_msg=f"{kind} {dims}")


LENGTHS = [*range(1, 9), 12, 13, 15, 16, 22, 30, 49, 63, 64, 65, 66, 100, 128, 143, 1000]
FAST = {1, 2, 7, 8, 30, 64, 65, 66}


@needs_compiler
@pytest.mark.parametrize("of", ERROR)
@pytest.mark.parametrize("n", [pytest.param(n, marks=() if n in FAST else pytest.mark.slow) for n in LENGTHS])
def test_lengths(n: int, of: str, tmp_path: Path) -> None:
    """Of an array alone, and of rows that do not come out even; rows of more than 64 are transformed each by itself."""
    check(of, [((n, ), 1), ((19, n), 1)], tmp_path)


@needs_compiler
@pytest.mark.parametrize("of", ERROR)
@pytest.mark.parametrize(("dims", "axes"), [
    ((6, 4), 2), ((2, 5, 7), 2), ((20, 16), 2), ((3, 4, 5), 3), ((2, 3, 4, 6), 3), ((1, 1, 1), 3), ((3, 1, 8), 3), ((4, 1), 2),
    ((3, 16, 2), 3)], ids=str)
def test_several_axes(dims: tuple[int, ...], axes: int, of: str, tmp_path: Path) -> None:
    check(of, [(dims, axes)], tmp_path)


@pytest.mark.parametrize(("dims", "is_native"), [
    ((MOST, ), True), ((2 * MOST, ), False), ((max(RADICES), ), True), ((17, ), False), ((2, 34), False),
    ((tuning.BLOCK // 1024, 1024), True), ((tuning.BLOCK // 512, 1024), False)], ids=str)
def test_what_is_torch_s(dims: tuple[int, ...], is_native: bool) -> None:
    """Long transforms, those of large factors, and large arrays."""
    assert natively(loop_of_rows([row_of("FFT", "c64", dims, 1, "x")], {"x": f"c64[{','.join(map(str, dims))}]"})) == (
        is_native and is_available())


@needs_compiler
@pytest.mark.parametrize("n", [1, 2, 5, 6, 8, 16, 30, 64, 128])
def test_infinities_and_nan(n: int, tmp_path: Path) -> None:
    """Nothing is finite that is NaN in XLA (more may be NaN, as in torch), rows are apart, and nothing overflows sooner."""
    (text, rows, given), special = program_of("c64", [((33, n), 1)]), [math.inf, -math.inf, math.nan, 2e38]
    for x in given:
        for k in range(16):
            part = x.imag if k % 2 and x.dtype.kind == "c" else x.real
            part[2 * k, (0, 1, n // 2, -1)[k // 4] % x.shape[1]] = special[k % 4]
    with np.errstate(all="ignore"):
        _, native = run_both(text, given, tmp_path)
    for (kind, *_), x, mine in zip(rows, given, native, strict=True):
        mine, xla = (np.ascontiguousarray(r).view("f4") for r in (mine, np.asarray(KINDS[kind](x, (n, ), (-1, )))))
        assert not np.isfinite(mine[np.isnan(xla)]).any(), kind
        assert np.isfinite(mine[1::2]).all(), kind
        assert np.isfinite(mine[6::8][np.isfinite(xla[6::8])]).all(), kind


# ------------------------------------------------------------------------------------------- whole programs


def waves(x: Any) -> Any:
    """Steps through all kinds of transforms, along one axis and two."""
    turn = jnp.exp(1j * jnp.arange(24, dtype=x.dtype)).reshape(6, 4)

    def step(z: Any, _: Any) -> Any:
        z = jnp.fft.ifft2(jnp.fft.fft2(z) * turn)
        y = jnp.fft.irfft(jnp.fft.rfft(z.real) * (1 + 0.1j), n=4)
        w = jnp.fft.irfft2(jnp.fft.rfft2(z.imag) * (1 - 0.1j), s=(6, 4))
        return lax.complex(jnp.tanh(y), w), jnp.sum(y * y)

    return lax.scan(step, lax.complex(x, x[::-1]), None, length=7)[1]


@needs_compiler
@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_gradients(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both modes, by JAX and by the program itself; all loops are native."""
    found = native_loops(monkeypatch)
    x = np.random.default_rng(0).normal(size=(6, 4)).astype(kind)

    def loss(x: Any) -> Any:
        return (waves(x) ** 2).mean()

    def by_jax(x: Any) -> Any:
        return jax.vjp(loss, x)[1](jnp.ones((), x.dtype))[0], jax.jvp(loss, (x, ), (x, ))[1]

    with jax.enable_x64(kind == "f8"):
        want = jax.device_get(jax.jit(by_jax)(x))
        programs = from_jax(by_jax, x), from_jax(loss, x)
    with native_after(0.0, tmp_path):
        given = torch.from_numpy(x).requires_grad_()
        derived = torch.autograd.grad(programs[1](given), given)[0]
        backward, forward = programs[0](given.detach())
    assert len(found) >= 4
    assert all(found)
    for mine, theirs in ((backward, want[0]), (derived, want[0]), (forward, want[1])):
        rounding = 1e-5 if kind == "f4" else 1e-12
        np.testing.assert_allclose(mine.numpy(), theirs, rtol=rounding, atol=rounding * np.abs(theirs).max())


@needs_compiler
@pytest.mark.parametrize(("most", "inside"), [(MOST, [7]), (4, [3, 3])])
def test_bundles(most: int, inside: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whole, or around a transform that is torch's."""
    text = """HloModule small
ENTRY main {
  x = c64[4,8] parameter(0)
  a = c64[4,8] multiply(x, x)
  b = c64[4,8] add(a, x)
  c = c64[4,8] subtract(b, a)
  f = c64[4,8] fft(c), fft_type=FFT, fft_length={8}
  d = c64[4,8] multiply(f, x)
  e = c64[4,8] add(d, f)
  ROOT g = c64[4,8] subtract(e, x)
}"""
    monkeypatch.setattr(tuning, "BUNDLE_LEAST", 2)
    x = torch.randn(4, 8, dtype=torch.complex64, generator=torch.Generator().manual_seed(0))
    want = xla_torch.parse_hlo(text)(x)
    monkeypatch.setattr(tuning, "NATIVE_TRANSFORM", most)
    with native_after(0.0, tmp_path):
        computation = xla_torch.parse_hlo(text)
        torch.testing.assert_close(computation(x), want, rtol=1e-5, atol=1e-5)
    assert sorted(source.calls for source in sources_of(computation)) == inside
