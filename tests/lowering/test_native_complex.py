"""Complex numbers in native code: every op over all pairs of special parts, arrays, sums, products and bundles, beside torch's.

`tests/ops/test_complex_values.py` holds the same functions against real XLA."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
import torch

import xla_torch
from support.agreement import elementwise_hlo
from support.native_programs import loop_of_rows, native_after, natively, run_both, sources_of
from support.native_rows import OPERANDS, ROWS, operands
from xla_torch.codegen.compiled import is_available
from xla_torch.codegen.loops import Machine
from xla_torch.core import tuning
from xla_torch.kernels.native import NativeLoop, can_fuse
from xla_torch.kernels.native_bundles import NativeBundle, fits
from xla_torch.kernels.native_fusions import NativeFusion
from xla_torch.kernels.native_plans import NativePlan

pytestmark = pytest.mark.skipif(not is_available(), reason="there is no C compiler")

DTYPES = {"c64": np.dtype(np.complex64), "c128": np.dtype(np.complex128)}
PART = {"c64": "f32", "c128": "f64"}
UNARY = ["negate", "sign", "exponential", "log", "sqrt", "rsqrt", "tan", "tanh", "sine", "cosine", "sinh", "cosh"]


@pytest.fixture(autouse=True)
def as_native_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_TORCH_CACHE", str(tmp_path))
    monkeypatch.setattr(tuning, "NATIVE_UNDER", math.inf)
    monkeypatch.setattr(tuning, "UNROLLED_STEPS", 0)


def pairs(name: str) -> tuple[Any, Any]:
    """All pairs of numbers whose parts are special."""
    info = np.finfo(DTYPES[name])
    parts = [0.0, -0.0, 1.0, -1.0, 2.5, -0.3, float(info.tiny), float(info.max), np.inf, -np.inf, np.nan]
    values = np.empty(len(parts) ** 2, DTYPES[name])
    values.real, values.imag = np.array(list(itertools.product(parts, parts))).T
    return np.repeat(values, len(values)), np.tile(values, len(values))


def parts(values: Any) -> Any:
    return np.stack([values.real, values.imag])


def rows_of(name: str, n: int) -> list[str]:
    made = [f"{op}(x, y)" for op in ("add", "subtract", "multiply", "divide")] + [f"{op}(x)" for op in UNARY]
    rows = [f"{name}[{n}] {row}" for row in [*made, "select(c, x, y)", "complex(a, b)"]]
    rows += [f"{PART[name]}[{n}] {op}(x)" for op in ("abs", "real", "imag")]
    rows += [f"{PART[name]}[{n}] {op}(a)" for op in ("real", "imag")]
    rows += [f"pred[{n}] compare(x, y), direction={d}" for d in ("EQ", "NE")]
    rows += [f"{t}[{n}] convert(x)" for t in ("c64", "c128", "f64", "f32", "bf16", "f16", "s8", "s32", "u64", "pred")]
    return rows + [f"{name}[{n}] convert({x})" for x in ("a", "s", "u", "h", "c")]


@pytest.mark.parametrize("is_fused", [True, False])
@pytest.mark.parametrize("name", DTYPES)
def test_every_op_of_special_numbers_as_torch(name: str, is_fused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without a fused multiply-add. Zeros that are no sums of products have torch's signs."""
    if not is_fused:
        monkeypatch.setattr("xla_torch.lowering.control.machine", Machine)
        monkeypatch.setattr("xla_torch.kernels.native.options", lambda: ())
    x, y = pairs(name)
    n, rows = x.size, rows_of(name, x.size)
    with np.errstate(all="ignore"):
        more = {"c": ("pred", np.arange(n) % 3 == 0), "a": (PART[name], x.real.copy()), "b": (PART[name], y.imag.copy()),
                "s": ("s64", np.arange(n) << 50), "u": ("u64", np.uint64(1 << 63) + np.arange(n, dtype=np.uint64)),
                "h": ("f16", x.real.astype(np.float16))}
        types = {"x": name, "y": name, **{k: t for k, (t, _) in more.items()}}
        text = loop_of_rows(rows, {k: f"{t}[{n}]" for k, t in types.items()}, steps=1)
        assert natively(text)
        want, got = run_both(text, [x, y, *(a for _, a in more.values())], tmp_path)
        for row, mine, theirs in zip(rows, got, want, strict=True):
            assert_near(row, mine, theirs, x, y)


def assert_near(row: str, mine: Any, theirs: Any, x: Any, y: Any) -> None:
    """The same but for some units of the last place, with zeros of the same signs."""
    a, b = (parts(r) if r.dtype.kind in "fc" else r.astype(np.float32)[None] for r in (mine, theirs))
    near = np.abs(a - b) <= 4 * np.finfo(a.dtype).eps * np.abs(mine)
    wrong = np.flatnonzero(~((a == b) | near | (np.isnan(a) & np.isnan(b))).all(0))
    assert not wrong.size, [(row, x[k], y[k], mine[k], theirs[k]) for k in wrong[:5]]
    if "divide" not in row:
        np.testing.assert_array_equal(np.signbit(a[b == 0]), np.signbit(b[b == 0]), err_msg=row)


@pytest.mark.skipif(not can_fuse(), reason="vector code needs a fused multiply-add")
@pytest.mark.parametrize("name", [*UNARY, "abs", "divide", "log-plus-one", "exponential-minus-one"])
def test_functions_on_large_arrays_are_fusions(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each by itself, at special numbers."""
    monkeypatch.setattr(tuning, "BUNDLED_UP_TO", 0)
    x, y = pairs("c64")
    given = [x, y] if name == "divide" else [x]
    text = elementwise_hlo(name, [("c64", operand) for operand in given], "f32" if name == "abs" else "c64")
    with np.errstate(all="ignore"):
        (want,) = xla_torch.parse_hlo(text).run_numpy(*given)
        program = xla_torch.parse_hlo(text)
        with native_after(0.0, tmp_path):
            (got,) = program.run_numpy(*given)
            assert any(isinstance(m, NativeFusion) for m in program.lowered().modules()) == (name != "negate")
        assert_near(name, got, want, x, y)


@pytest.mark.skipif(not can_fuse(), reason="vector code needs a fused multiply-add")
def test_powers_of_special_numbers_as_torch(tmp_path: Path) -> None:
    """Angles of huge exponents are rounded before they have a sine, in both."""
    x, y = pairs("c64")
    want: Any
    got: Any
    (want,), (got,) = run_both(loop_of_rows([f"c64[{x.size}] power(x, y)"], dict.fromkeys("xy", f"c64[{x.size}]"), steps=1),
                               [x, y], tmp_path)
    np.testing.assert_array_equal(np.isnan(parts(got)), np.isnan(parts(want)))
    usual = ~(np.abs(parts(y)) > 10).any(0) & np.isfinite(parts(want)).all(0)
    with np.errstate(all="ignore"):
        assert (np.abs(parts(got) - parts(want))[:, usual] <= 2e-5 * np.abs(want[usual])).all()
    real = (x.imag == 0) & (y.imag == 0) & (x.real >= 0)
    np.testing.assert_allclose(parts(got)[:, real], parts(want)[:, real], rtol=1e-6)


EXACT: dict[str, tuple[Callable[..., Any], float]] = {
    "power": (mpmath.power, 0.51), "exponential-minus-one": (mpmath.expm1, 0.51),
    "log-plus-one": (lambda x: mpmath.log(1 + x), 0.51)}
"""Functions that numpy has not, or not as exact, and by how many units of the last place of a number's size they may err."""


@pytest.mark.skipif(not can_fuse(), reason="vector code needs a fused multiply-add")
@pytest.mark.parametrize("name", EXACT)
def test_functions_beside_exact_values(name: str, tmp_path: Path) -> None:
    """Of all sizes, beside 0 and around -1, where the sum of squares cancels."""
    function, bound = EXACT[name]
    rng = np.random.default_rng(0)
    drawn = rng.normal(size=(4, 2048)) * np.exp2(rng.integers(-30, 5, (4, 2048)))
    turns: Any = np.exp(1j * rng.uniform(-np.pi, np.pi, 1024)) - 1
    drawn[0, ::2], drawn[1, ::2] = turns.real, turns.imag
    x, y = (drawn[0] + 1j * drawn[1]).astype(np.complex64), (drawn[2] + 1j * drawn[3]).astype(np.complex64)
    y = np.where(np.abs(y) > 8, y / 16, y)
    size = f"c64[{x.size}]"
    row = f"{size} {name}({'x, y' if name == 'power' else 'x'})"
    _, (got,) = run_both(loop_of_rows([row], dict.fromkeys("xy", size), steps=1), [x, y], tmp_path)
    with mpmath.workprec(200):
        want: Any = np.array([complex(function(*map(mpmath.mpmathify, map(complex, given)))) for given in
                         (zip(x, y, strict=True) if name == "power" else zip(x, strict=True))])
    fits = (np.abs(want) > 1e-36) & (np.abs(want) < 1e38)
    error = np.abs(parts(got) - parts(want)) / np.spacing(np.abs(want).astype(np.float32))
    assert fits.mean() > 0.9
    assert error[:, fits].max() <= bound, (x[fits][error[:, fits].max(0).argmax()], error[:, fits].max(1))


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("dims", ["5", "64", "7,9"])
def test_no_product_is_fused(name: str, dims: str, tmp_path: Path) -> None:
    """Neither in vectors nor in what is left of them; torch's own are in the latter."""
    n = math.prod(map(int, dims.split(",")))
    drawn = np.random.default_rng(0).normal(size=(n, 2)) @ [1, 1j]
    z: Any = drawn.reshape([int(d) for d in dims.split(",")]).astype(DTYPES[name])
    w: Any = np.roll(z, 1)
    rows = [f"{name}[{dims}] multiply(x, {factor})" for factor in "yw"]
    got: Any
    _, got = run_both(loop_of_rows(rows, dict.fromkeys("xyw", f"{name}[{dims}]")), [z, z.conj(), w], tmp_path)
    assert not got[0].imag.any()
    np.testing.assert_array_equal(got[1].real, z.real * w.real - z.imag * w.imag)
    np.testing.assert_array_equal(got[1].imag, z.real * w.imag + z.imag * w.real)


FUNCTIONS: dict[str, tuple[Any, float]] = {
    "exponential": (np.exp, 0.501), "log": (np.log, 0.501), "sqrt": (np.sqrt, 0.501), "sine": (np.sin, 0.501),
    "cosine": (np.cos, 0.501), "tan": (np.tan, 0.501), "sinh": (np.sinh, 0.501), "cosh": (np.cosh, 0.501),
    "tanh": (np.tanh, 0.501), "abs": (np.abs, 0.501)}
"""Each function in double precision, and by how many units of the last place a part may err."""


@pytest.mark.skipif(not can_fuse(), reason="vector code needs a fused multiply-add")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_parts_are_as_exact_as_real_functions(name: str, tmp_path: Path) -> None:
    function, bound = FUNCTIONS[name]
    rng = np.random.default_rng(0)
    drawn = rng.uniform(-20, 20, (2, 1 << 16)) * np.exp2(rng.integers(-30, 3, (2, 1 << 16)))
    drawn[:, ::2] = rng.normal(size=(2, 1 << 15))
    z = (drawn[0] + 1j * drawn[1]).astype(np.complex64)
    row = f"{'f32' if name == 'abs' else 'c64'}[{z.size}] {name}(x)"
    _, (got,) = run_both(loop_of_rows([row], {"x": f"c64[{z.size}]"}, steps=1), [z], tmp_path)
    want = parts(function(z.astype(np.complex128)))
    error = np.abs(parts(got) - want) / np.spacing(np.maximum(np.abs(want), np.finfo(np.float32).tiny).astype(np.float32))
    assert error.max() <= bound, (z[error.max(0).argmax()], error.max(1))


# ------------------------------------------------------------------------------------------- arrays


SUM = """sum {
  a = c64[] parameter(0)
  b = c64[] parameter(1)
  ROOT r = c64[] add(a, b)
}
times {
  a = c64[] parameter(0)
  b = c64[] parameter(1)
  ROOT r = c64[] multiply(a, b)
}
second {
  a = c64[] parameter(0)
  ROOT b = c64[] parameter(1)
}
before {
  a = c64[] parameter(0)
  b = c64[] parameter(1)
  x = f32[] real(a)
  y = f32[] real(b)
  ROOT r = pred[] compare(x, y), direction=LT
}
"""
WITHOUT = ("clamp(", "topk(", "to_apply=after", "to_apply=largest", "constant(")
"""What asks for an order, or is another text."""
COMPLEX_ROWS = [row.replace("f32[", "c64[") for row in ROWS if not any(word in row for word in WITHOUT)] + [
    "c64[] reduce(m, s), dimensions={0,1}, to_apply=times", "c64[4] reduce(m, s), dimensions={0}, to_apply=times",
    "c64[3] reduce(m, s), dimensions={1}, to_apply=times", "c64[3] constant({(nan, -0), (-inf, 0), (-0, 1)})",
    "c64[] constant((-0, nan))", "c64[3] constant({(inf, -0), (inf, -0), (inf, -0)})",
    "c64[3,4] dynamic-update-slice(m, w, i, i)"]


def test_arrays_as_torch(tmp_path: Path) -> None:
    text = loop_of_rows(COMPLEX_ROWS, {k: shape.replace("f32", "c64") for k, shape in OPERANDS.items()}, SUM)
    assert natively(text)
    arguments = [(o + 1j * np.roll(o, 1)).astype(np.complex64) if o.dtype == np.float32 else o for o in operands()]
    want, got = run_both(text, arguments, tmp_path)
    for row, mine, theirs in zip(COMPLEX_ROWS, got, want, strict=True):
        np.testing.assert_allclose(parts(mine), parts(theirs), rtol=1e-5, atol=1e-5, err_msg=row)
        np.testing.assert_array_equal(np.signbit(parts(mine)[parts(theirs) == 0]),
                                      np.signbit(parts(theirs)[parts(theirs) == 0]), err_msg=row)


@pytest.mark.parametrize("row", [
    "c128[3] power(v, v)", "c128[3] log-plus-one(v)", "c64[3] maximum(u, u)", "c64[3] clamp(u, u, u)",
    "pred[3] compare(u, u), direction=LT", "c64[1,1] cholesky(m)"])
def test_what_stays_in_torch(row: str) -> None:
    assert not natively(loop_of_rows([row], {"u": "c64[3]", "v": "c128[3]", "m": "c64[1,1]"}))


@pytest.mark.parametrize("shape", ["c64[]", "c64[3]", "c128[40]"])
def test_conjugate_views(shape: str) -> None:
    """Their memory has the other sign."""
    program = xla_torch.parse_hlo(loop_of_rows([f"{shape} add(z, z)"], {"z": shape}))
    dims = [int(n) for n in shape[:-1].partition("[")[2].split(",") if n]
    z = torch.randn(dims, dtype=torch.complex64 if shape.startswith("c64") else torch.complex128)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "NATIVE_AFTER", 0.0)
        torch.testing.assert_close(program(z.conj())[0], 2 * z.conj().resolve_conj())
        (loop,) = [m for m in program.lowered().modules() if isinstance(m, NativeLoop)]
        fixed = [torch.zeros(n, dtype=torch.uint8) for n in loop.given[:-1]]
        assert loop.takes((), (*fixed, z))
        assert not loop.takes((), (*fixed, z.conj()))


# ------------------------------------------------------------------------------------------- bundles


BUNDLE = """HloModule small
larger { a = c64[] parameter(0)
 b = c64[] parameter(1)
 ROOT r = c64[] maximum(a, b) }
sum { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT r = f32[] add(a, b) }
ENTRY main {
  x = c64[4,8] parameter(0)
  y = c64[4,8] parameter(1)
  k = c64[] constant((0.5, -0))
  w = c64[4,8] broadcast(k), dimensions={}
  m = c64[4,8] multiply(x, y)
  d = c64[4,8] divide(m, w)
  v = c64[4,4] slice(y), slice={[0:4], [0:4]}
  u = FUNCTION
  re = f32[4,8] real(u)
  im = f32[4,8] imag(d)
  c = c64[4,8] complex(re, im)
  t = c64[8,4] transpose(c), dimensions={1,0}
  g = c64[4,4] dot(m, t), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  a = f32[4,8] abs(u)
  z = f32[] constant(0)
  s = f32[4] reduce(a, z), dimensions={1}, to_apply=sum
  ROOT r = (c64[4,8], c64[4,4], f32[4]) tuple(c, g, s)
}
"""


@pytest.mark.parametrize(("function", "inside"), [
    ("c64[4,8] exponential(d)", [14]), ("c64[4,8] maximum(d, y)", [5, 8]), ("c64[4,8] map(d, y), to_apply=larger", [5, 8]),
    ("c64[4,8] triangular-solve(v, d), left_side=true, lower=true, transpose_a=NO_TRANSPOSE", [5, 8])])
def test_bundles_as_torch(function: str, inside: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole, or around what native code does not know of complex numbers. Conjugate views are read as what they are."""
    text = BUNDLE.replace("FUNCTION", function)
    monkeypatch.setattr(tuning, "BUNDLE_LEAST", 2)
    x, y = torch.randn(2, 4, 8, dtype=torch.complex64, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr(tuning, "NATIVE_AFTER", math.inf)
    in_torch = xla_torch.parse_hlo(text)
    want = in_torch(x, y), in_torch(x.conj().resolve_conj(), y)
    monkeypatch.setattr(tuning, "NATIVE_AFTER", 0.0)
    computation = xla_torch.parse_hlo(text)
    for given, wanted in zip((x, x.conj()), want, strict=True):
        for mine, theirs in zip(computation(given, y), wanted, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
    assert sorted(source.calls for source in sources_of(computation)) == inside
    (whole,) = [m for m in computation.lowered().modules() if isinstance(m, (NativeBundle, NativePlan))]
    assert not fits(whole, (x.conj(), y))
