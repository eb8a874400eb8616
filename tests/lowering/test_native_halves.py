"""Floats of 16 bits in native code: every op over all of their values, arrays, sums, products and bundles, beside torch's."""

from __future__ import annotations

import ast
import math
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch

import xla_torch
from support.native_programs import leaves_of, loop_of_rows, natively, run_both
from support.native_rows import CONTROL, FLOATS, OPERANDS, ROWS, SUM, operands
from xla_torch.codegen.compiled import is_available
from xla_torch.core import tuning
from xla_torch.kernels.native import NativeLoop
from xla_torch.kernels.native_bundles import NativeBundle
from xla_torch.storage import torch_private

pytestmark = pytest.mark.skipif(not is_available(), reason="there is no C compiler")

DTYPES = {"bf16": np.dtype(ml_dtypes.bfloat16), "f16": np.dtype(np.float16)}
ALL = 1 << 16
EVERY = np.arange(ALL, dtype=np.uint16)
TYPES = ["f16", "bf16", "f32", "f64", "s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64", "pred"]
LIBRARY = frozenset({"power", "atan2", "exponential", "exponential-minus-one", "log", "log-plus-one", "cbrt", "sine", "cosine",
                     "tan", "tanh", "logistic", "erf", "asin", "acos", "atan", "asinh", "acosh", "atanh", "sinh", "cosh"})
"""Functions that one library rounds otherwise than another in the last place of float32."""


@pytest.fixture(autouse=True)
def as_native_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_TORCH_CACHE", str(tmp_path))
    monkeypatch.setattr(tuning, "NATIVE_UNDER", math.inf)
    monkeypatch.setattr(tuning, "UNROLLED_STEPS", 0)


def near_ties(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Wider floats at each value of a type, half way to the next, and a little beside that, and numbers of all sizes."""
    rng = np.random.default_rng(3)
    with np.errstate(all="ignore"):
        values = EVERY.view(DTYPES[name]).astype(np.float64)
        half = values + (np.roll(values, 1) - values) / 2
        beside = 1 + rng.choice([0, 2.0**-40, -2.0**-40, 2.0**-23, -2.0**-23], ALL)
        wide = np.where(rng.random(ALL) < 0.5, half, values) * beside
        wide[::16] = rng.integers(0, 1 << 64, ALL // 16, dtype=np.uint64).view(np.float64)
        return wide.astype(np.float32), wide


def given(name: str) -> dict[str, tuple[str, np.ndarray]]:
    """All values of a type, in order and mixed, their bits, and numbers of other types."""
    rng = np.random.default_rng(0)
    mixed = rng.permutation(EVERY)
    wide = rng.integers(0, 1 << 64, ALL, dtype=np.uint64) >> rng.integers(0, 64, ALL, dtype=np.uint64)
    singles, doubles = near_ties(name)
    return {"x": (name, EVERY.view(DTYPES[name])), "y": (name, mixed.view(DTYPES[name])), "c": ("pred", mixed % 3 == 0),
            "u16s": ("u16", mixed), "s16s": ("s16", mixed.view(np.int16)), "u64s": ("u64", wide),
            "s64s": ("s64", wide.view(np.int64)), "s32s": ("s32", wide.astype(np.uint32).view(np.int32)),
            "f32s": ("f32", singles), "f64s": ("f64", doubles)}


def rows_of(name: str) -> list[str]:
    rows = [f"{name}[{ALL}] {row}" for row in [*FLOATS, "select(c, x, y)"]]
    rows += [f"pred[{ALL}] compare(x, y), direction={d}{order}" for d in ("EQ", "NE", "GE", "GT", "LE", "LT")
             for order in ("", ", type=TOTALORDER")]
    rows += [f"pred[{ALL}] is-finite(x)", *(f"{t}[{ALL}] bitcast-convert(x)" for t in ("u16", "s16", "f16", "bf16"))]
    rows += [f"{name}[{ALL}] bitcast-convert({x})" for x in ("u16s", "s16s")]
    rows += [f"{t}[{ALL}] convert(x)" for t in TYPES]
    return rows + [f"{name}[{ALL}] convert({x})" for x in ("c", "u16s", "s16s", "u64s", "s64s", "s32s", "f32s", "f64s")]


def bits_of(array: np.ndarray) -> np.ndarray:
    """Bits, of which a NaN has the same everywhere."""
    array = np.where(np.isnan(array), np.abs(array.dtype.type(np.nan)), array) if array.dtype in DTYPES.values() else array
    return array.view(np.uint16) if array.dtype in DTYPES.values() else array


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("part", range(6))
def test_every_op_of_every_value_as_torch(name: str, part: int, tmp_path: Path) -> None:
    """The same bits; where a library computes the function in float32, a few times in 65536 a number beside it."""
    rows, arguments = rows_of(name)[part::6], given(name)
    text = loop_of_rows(rows, {x: f"{t}[{ALL}]" for x, (t, _) in arguments.items()}, steps=1)
    assert natively(text)
    with np.errstate(all="ignore"):
        want, got = run_both(text, [array for _, array in arguments.values()], tmp_path)
        for row, theirs, mine in zip(rows, want, got, strict=True):
            unlike = bits_of(mine) != bits_of(theirs)
            opcode = row.split()[1].partition("(")[0]
            if opcode not in LIBRARY:
                np.testing.assert_array_equal(bits_of(mine), bits_of(theirs), err_msg=row)
                continue
            if opcode in ("sinh", "cosh"):  # torch's overflow earlier, between 88.7 and 89.4
                unlike &= ~np.isinf(theirs)
            steps = np.abs(bits_of(mine)[unlike].astype(np.int32) - bits_of(theirs)[unlike])
            assert len(steps) <= 8, row
            assert (steps == 1).all(), row


@pytest.mark.parametrize("name", DTYPES)
def test_functions_round_what_float32_is(name: str, tmp_path: Path) -> None:
    """Native code of float32 gives, rounded, the same bits for every value."""
    x, y = (given(name)[k][1] for k in "xy")
    half, single = (loop_of_rows([f"{t}[{ALL}] {row}" for row in FLOATS], dict.fromkeys("xy", f"{t}[{ALL}]"), steps=1)
                    for t in (name, "f32"))
    _, got = run_both(half, [x, y], tmp_path)
    with np.errstate(all="ignore"):
        _, want = run_both(single, [x.astype(np.float32), y.astype(np.float32)], tmp_path)
        for row, mine, theirs in zip(FLOATS, got, want, strict=True):
            np.testing.assert_array_equal(bits_of(mine), bits_of(theirs.astype(x.dtype)), err_msg=row)


def test_what_moves_keeps_the_bits_of_nan(tmp_path: Path) -> None:
    for name, dtype in DTYPES.items():
        rows = [f"{name}[256,256] transpose(x), dimensions={{1,0}}", "u16[256,256] bitcast-convert(r0)",
                f"{name}[256,512] concatenate(x, x), dimensions={{1}}", "u16[256,512] bitcast-convert(r2)"]
        x = EVERY.view(dtype).reshape(256, 256)
        _, got = run_both(loop_of_rows(rows, {"x": f"{name}[256,256]"}), [x], tmp_path)
        bits = EVERY.reshape(256, 256)
        np.testing.assert_array_equal(got[1], bits.T)
        np.testing.assert_array_equal(got[0].view(np.uint16), bits.T)
        np.testing.assert_array_equal(got[3], np.concatenate([bits, bits], 1))


# ------------------------------------------------------------------------------------------- arrays


SUMS = [row for row in ROWS if "to_apply=sum" in row and not row.split()[1].startswith("map(")]


def region(region: str, name: str, *lines: str) -> str:
    return "\n  ".join([f"{region} {{", f"a = {name}[] parameter(0)", f"b = {name}[] parameter(1)", *lines]) + "\n}\n"


def halved(text: str, name: str) -> str:
    return text.replace("f32[", f"{name}[")


@pytest.mark.parametrize("name", DTYPES)
def test_arrays_as_torch(name: str, tmp_path: Path) -> None:
    rows = [halved(row, name) for row in ROWS if row not in SUMS]
    text = loop_of_rows(rows, {k: halved(shape, name) for k, shape in OPERANDS.items()}, halved(SUM, name))
    assert natively(text)
    arguments = [o.astype(DTYPES[name]) if o.dtype == np.float32 else o for o in operands()]
    want, got = run_both(text, arguments, tmp_path)
    for row, mine, theirs in zip([r for r in rows for _ in leaves_of(r)], got, want, strict=True):
        np.testing.assert_array_equal(bits_of(mine), bits_of(theirs), err_msg=row)


@pytest.mark.parametrize("row", [
    *SUMS, "f32[3] reduce(m, r0), dimensions={1}, to_apply=half_sum", "f32[3] reduce(m, s), dimensions={1}, to_apply=sum",
    "f32[3,3] dot(m, single), lhs_contracting_dims={1}, rhs_contracting_dims={1}"])
def test_what_stays_in_torch(row: str) -> None:
    """Sums that are rounded at every step, or begin with a number: torch and XLA have orders of their own for them."""
    half = region("half_sum", "bf16", "c = bf16[] add(a, b)", "ROOT r = bf16[] multiply(c, c)")
    shapes = {k: halved(shape, "bf16") for k, shape in OPERANDS.items()} | {"single": "f32[3,4]"}
    assert not natively(loop_of_rows(["bf16[] constant(0)", halved(row, "bf16")], shapes, halved(SUM, "bf16") + half))


@pytest.mark.parametrize(("to_apply", "is_native"), [("sum", False), ("second", True)])
def test_scatters_into_a_carry(to_apply: str, is_native: bool, tmp_path: Path) -> None:
    row = ("bf16[3,4] scatter(old, k, r), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
           f"index_vector_dim=1, to_apply={to_apply}")
    text = loop_of_rows([row], {k: halved(OPERANDS[k], "bf16") for k in "kr"}, halved(SUM, "bf16"))
    text = text.replace("  r0 = ", "  old = bf16[3,4] get-tuple-element(carry), index=3\n  r0 = ", 1)
    assert natively(text) == is_native
    r = np.random.default_rng(8).normal(size=(5, 4)).astype(DTYPES["bf16"])
    want, got = run_both(text, [np.array([0, 2, -1, 7, 2], "i4"), r], tmp_path)
    np.testing.assert_array_equal(bits_of(got[0]), bits_of(want[0]))


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("columns", [4, 40])
def test_control_flow_and_exchanged_carries(name: str, columns: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    drawn = [np.asarray(rng.normal(size=size)).astype(DTYPES[name]) for size in [(3, columns), (3, columns), (), (5, columns)]]
    text = "HloModule control\n" + halved(SUM + CONTROL, name)
    if columns != 4:
        text = text.replace("3,4]", f"3,{columns}]").replace("5,4]", f"5,{columns}]").replace("1,4]", f"1,{columns}]")
        text = text.replace("[12]", f"[{3 * columns}]").replace("{1,4}", f"{{1,{columns}}}").replace("[0:4]", f"[0:{columns}]")
    assert natively(text)
    want, got = run_both(text, [*drawn, np.zeros(2, "i4")], tmp_path)
    for mine, theirs in zip(got, want, strict=True):
        np.testing.assert_array_equal(bits_of(mine), bits_of(theirs))


@pytest.mark.parametrize("name", DTYPES)
def test_sums_are_rounded_once(name: str, tmp_path: Path) -> None:
    """Of many ones, which rounding at each step would not count beyond 256 (2048); of products; of what torch sums up as well."""
    ones = [f"{name}[] constant(1)", f"{name}[4000,3] broadcast(r0), dimensions={{}}", f"{name}[] constant(0)",
            f"{name}[3] reduce(r1, r2), dimensions={{0}}, to_apply=plus",
            f"{name}[] reduce(r1, r2), dimensions={{0,1}}, to_apply=plus",
            f"{name}[7,33] copy(m)", f"{name}[7] reduce(m, r2), dimensions={{1}}, to_apply=plus",
            f"{name}[33] reduce(m, r2), dimensions={{0}}, to_apply=plus",
            f"{name}[33] reduce(m, r0), dimensions={{0}}, to_apply=times"]
    regions = region("plus", name, f"ROOT r = {name}[] add(a, b)") + region("times", name, f"ROOT r = {name}[] multiply(a, b)")
    text = loop_of_rows(ones, {"m": f"{name}[7,33]"}, regions)
    assert natively(text)
    given = np.random.default_rng(5).normal(size=(7, 33)).astype(DTYPES[name])
    want, got = run_both(text, [given], tmp_path)
    np.testing.assert_array_equal(got[3].astype(np.float32), np.float32(4000).astype(DTYPES[name]).astype(np.float32))
    np.testing.assert_array_equal(got[4].astype(np.float32), np.float32(12000).astype(DTYPES[name]).astype(np.float32))
    for mine, theirs in zip(got, want, strict=True):
        np.testing.assert_array_equal(bits_of(mine), bits_of(theirs))


# ------------------------------------------------------------------------------------------- products


PLAIN = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize(("lhs", "rhs", "result", "more", "by_blas"), [
    ("[32,64]", "[64,48]", "[32,48]", PLAIN, True),
    ("[64,32]", "[48,64]", "[32,48]", "lhs_contracting_dims={0}, rhs_contracting_dims={1}", True),
    ("[2,32,64]", "[2,64,48]", "[2,32,48]",
     "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}", True),
    ("[256]", "[256,64]", "[64]", "lhs_contracting_dims={0}, rhs_contracting_dims={0}", False),  # widening takes longer than it
    ("[5,300]", "[4,300]", "[5,4]", "lhs_contracting_dims={1}, rhs_contracting_dims={1}", False),
])
@pytest.mark.parametrize("widens", [False, True])
def test_products_are_rounded_once(name: str, lhs: str, rhs: str, result: str, more: str, by_blas: bool,
                                   widens: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Formed in float32, whose order of additions is the only freedom; also with results of float32, and in the carry."""
    rng, dtype = np.random.default_rng(4), DTYPES[name]
    a, b = (rng.normal(size=ast.literal_eval(dims)).astype(dtype) for dims in (lhs, rhs))
    into = "f32" if widens else name
    text = loop_of_rows([f"{into}{result} dot(a, b), {more}", f"{into}{result} add(r0, r0)"],
                        {"a": f"{name}{lhs}", "b": f"{name}{rhs}"}, steps=2)
    program = xla_torch.parse_hlo(text)
    monkeypatch.setattr(tuning, "NATIVE_AFTER", 0.0)
    got, twice = program.run_numpy(a, b)
    (loop,) = [m for m in program.lowered().modules() if isinstance(m, NativeLoop)]
    assert bool(loop.source.routines) == (by_blas and bool(torch_private.blas()))
    lines = f"a = f64{lhs} parameter(0)", f"b = f64{rhs} parameter(1)", f"ROOT r = f64{result} dot(a, b), {more}"
    wide = xla_torch.parse_hlo("\n".join(["ENTRY main {", *lines, "}"]))
    (want,) = wide.run_numpy(a.astype(np.float64), b.astype(np.float64))
    if widens:
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)
        return
    assert (bits_of(got) == bits_of(want.astype(np.float32).astype(dtype))).mean() > 0.98
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=2.0 ** -(8 if name == "bf16" else 11), atol=1e-4)
    np.testing.assert_array_equal(bits_of(twice), bits_of((got.astype(np.float32) * 2).astype(dtype)))


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("widens", [False, True])
def test_products_that_are_added_to_a_carry(name: str, widens: bool, tmp_path: Path) -> None:
    """BLAS adds those of float32 to it where it is; others are rounded before."""
    rng, dtype, into = np.random.default_rng(6), DTYPES[name], "f32" if widens else name
    a, b = (rng.normal(size=size).astype(dtype) for size in ((32, 64), (64, 48)))
    text = loop_of_rows([f"{into}[32,48] dot(a, b), {PLAIN}", f"{into}[32,48] add(old, again)"],
                        {"a": f"{name}[32,64]", "b": f"{name}[64,48]"}, steps=3)
    more = f"  again = {into}[32,48] dot(a, b), {PLAIN}\n  old = {into}[32,48] get-tuple-element(carry), index=4\n"
    text = text.replace("  r0 = ", more + "  r0 = ", 1)
    assert natively(text)
    _, (once, total) = run_both(text, [a, b], tmp_path)
    if widens:
        np.testing.assert_allclose(total, 3 * once, rtol=1e-5, atol=1e-4)
    else:
        want = once
        for _ in range(2):
            want = (want.astype(np.float32) + once.astype(np.float32)).astype(dtype)
        np.testing.assert_array_equal(bits_of(total), bits_of(want))


# ------------------------------------------------------------------------------------------- bundles


@pytest.mark.parametrize("name", DTYPES)
def test_bundles_as_torch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["x = f32[4,8] parameter(0)", "k = f32[4,8] constant({{1,2,3,4,5,6,7,8}, {0.1,0,nan,inf,-inf,-0,1e-7,3}, "
             "{1,2,3,4,5,6,7,8}, {8,7,6,5,4,3,2,1}})", "e = f32[4,8] tanh(x)", "l = f32[4,8] logistic(k)",
             "m = f32[4,8] multiply(e, l)", "t = f32[8,4] transpose(m), dimensions={1,0}", "zero = f32[] constant(0)",
             "s = f32[8] reduce(t, zero), dimensions={1}, to_apply=plus", "b = f32[4,8] broadcast(s), dimensions={1}",
             "d = f32[4,8] subtract(b, x)", "c = s32[4,8] convert(d)", "p = pred[4,8] compare(d, k), direction=LT",
             "w = f32[4,8] select(p, d, k)", "ROOT r = (f32[4,8], s32[4,8], f32[4,8]) tuple(w, c, d)"]
    plus = "plus { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = f32[] add(a, b) }"
    text = halved("\n".join(["HloModule small", plus, "ENTRY main {", *lines, "}"]), name)
    monkeypatch.setattr(tuning, "BUNDLE_LEAST", 2)
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16 if name == "bf16" else torch.float16)
    monkeypatch.setattr(tuning, "NATIVE_AFTER", math.inf)
    want = xla_torch.parse_hlo(text)(x)
    monkeypatch.setattr(tuning, "NATIVE_AFTER", 0.0)
    computation = xla_torch.parse_hlo(text)
    got = computation(x)
    assert [m for m in computation.lowered().modules() if isinstance(m, NativeBundle)]
    for mine, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0, equal_nan=True)
