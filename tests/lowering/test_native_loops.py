"""Loops as native code: every op's values beside torch's, in all forms of carries, and what stays in torch."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch

import xla_torch
from support.native_programs import leaves_of, loop_of_rows, native_after, natively, run_both
from support.native_rows import CONTROL, FLOATS, OPERANDS, ROWS, SUM, operands
from support.oracle import run_xla
from support.regions import HORNER_OF_TWO, reduce_hlo
from xla_torch.codegen.compiled import MachineCode, is_available
from xla_torch.codegen.loops import Machine, loop_source
from xla_torch.codegen.sums import LONG_ROW
from xla_torch.core import tuning
from xla_torch.hlo.rule_tables import TABLES
from xla_torch.kernels.native import NativeLoop
from xla_torch.transform.canonical import canonicalize

needs_compiler = pytest.mark.skipif(not is_available(), reason="there is no C compiler")


INTEGERS = [
    "add(x, y)", "subtract(x, y)", "multiply(x, y)", "divide(x, y)", "remainder(x, y)", "maximum(x, y)", "minimum(x, y)",
    "negate(x)", "not(x)", "and(x, y)", "or(x, y)", "xor(x, y)", "shift-left(x, y)", "shift-right-arithmetic(x, y)",
    "shift-right-logical(x, y)", "clamp(y, x, x)", "popcnt(x)", "count-leading-zeros(x)", "mulhi(x, y)",
]
PREDS = ["add(x, y)", "multiply(x, y)", "maximum(x, y)", "minimum(x, y)", "not(x)", "and(x, y)", "or(x, y)", "xor(x, y)"]
TYPES = ["f32", "f64", "s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64", "pred"]


def pairs(name: str) -> list[np.ndarray]:
    """All pairs of a type's special values, and some drawn ones."""
    rng = np.random.default_rng(0)
    if name == "pred":
        some = np.array([False, True])
    elif name.startswith("f"):
        drawn = rng.normal(size=4) * 3
        some = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 3.5, 1e-3, 30.0, np.inf, -np.inf, np.nan, -np.nan, *drawn],
                        f"f{int(name[1:]) // 8}")
    else:
        dtype = np.dtype(f"{'i' if name[0] == 's' else 'u'}{int(name[1:]) // 8}")
        limits = np.iinfo(dtype)
        some = np.array([int(v) for v in [0, 1, 2, 7, 31, 63, limits.max, limits.max - 1, limits.min, limits.min + 1,
                                          *([-1, -3] if limits.min else [])]], dtype)
    return [np.repeat(some, len(some)), np.tile(some, len(some))]


def rows_of(name: str, size: int) -> list[str]:
    own = PREDS if name == "pred" else FLOATS if name.startswith("f") else INTEGERS + ["abs(x)", "sign(x)"] * (name[0] == "s")
    rows = [f"{name}[{size}] {row}" for row in own]
    rows += [f"pred[{size}] compare(x, y), direction={d}" for d in ("EQ", "NE", "GE", "GT", "LE", "LT")]
    rows += [f"pred[{size}] compare(x, y), direction={d}, type=TOTALORDER" for d in ("EQ", "GE", "LT") if name[0] == "f"]
    rows += [f"{name}[{size}] select(c, x, y)"] + [f"pred[{size}] is-finite(x)"] * name.startswith("f")
    if name in ("f32", "f64"):
        rows += [f"{name}[{size}] reduce-precision(x), exponent_bits={e}, mantissa_bits={m}"
                 for e, m in ((5, 7), (8, 11), (11, 23))]
    rows += [f"{t}[{size}] bitcast-convert(x)" for t in TYPES[:-1] if name != "pred" and t[1:] == name[1:]]
    return rows + [f"{t}[{size}] convert(x)" for t in TYPES]


@needs_compiler
@pytest.mark.parametrize("name", ["f32"])
def test_elements_as_torch(name: str, tmp_path: Path) -> None:
    check_elements(name, tmp_path)


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(TYPES) - {"f32"}))
def test_elements_of_all_types_as_torch(name: str, tmp_path: Path) -> None:
    check_elements(name, tmp_path)


def check_elements(name: str, folder: Path) -> None:
    x, y = pairs(name)
    rows = rows_of(name, x.size)
    text = loop_of_rows(rows, {"x": f"{name}[{x.size}]", "y": f"{name}[{x.size}]", "c": f"pred[{x.size}]"}, steps=1)
    assert natively(text)
    with np.errstate(all="ignore"):
        want, got = run_both(text, [x, y, np.arange(x.size) % 3 == 0], folder)
        for row, mine, theirs in zip(rows, got, want, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-6 if "32" in row.split()[0] else 1e-13, err_msg=row)
            np.testing.assert_array_equal(np.signbit(mine[mine == 0]), np.signbit(theirs[theirs == 0]), err_msg=row)


@needs_compiler
def test_arrays_as_torch(tmp_path: Path) -> None:
    text = loop_of_rows(ROWS, OPERANDS, SUM)
    assert natively(text)
    want, got = run_both(text, operands(), tmp_path)
    for row, mine, theirs in zip([r for r in ROWS for _ in leaves_of(r)], got, want, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6, err_msg=row)


@needs_compiler
@pytest.mark.parametrize("columns", [4, 40])
def test_control_flow_stacks_and_exchanged_carries(columns: int, tmp_path: Path) -> None:
    """Carries that change places, rows of a stack read before and after they are written, loops and branches inside; of arrays
    that are locals of the native function, and of larger ones."""
    rng = np.random.default_rng(2)
    arguments = [rng.normal(size=size).astype("f4") for size in [(3, columns), (3, columns), (), (5, columns)]]
    arguments = [*arguments[:2], np.asarray(arguments[2], "f4"), arguments[3], np.zeros(2, "i4")]
    text = "HloModule control\n" + SUM + CONTROL
    for old, new in [(",4]", f",{columns}]"), ("[12]", f"[{3 * columns}]"), (":4]", f":{columns}]"), ("1,4}", f"1,{columns}}}")]:
        text = text.replace(old, new)
    assert natively(text)
    want, got = run_both(text, arguments, tmp_path)
    for mine, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


NESTED = """HloModule nested
inner_body {
  p = (s32[], ARRAY, ARRAY) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  a = ARRAY get-tuple-element(p), index=1
  b = ARRAY get-tuple-element(p), index=2
  one = s32[] constant(1)
  zero = s32[] constant(0)
  j = s32[] add(i, one)
  d = ARRAY subtract(a, b)
  row = f32[1,COLUMNS] slice(b), slice={[2:3],[0:COLUMNS]}
  u = ARRAY dynamic-update-slice(a, row, i, zero)
  v = ARRAY dynamic-update-slice(b, row, i, zero)
  ROOT r = (s32[], ARRAY, ARRAY) tuple(j, RESULTS)
}
inner_going {
  p = (s32[], ARRAY, ARRAY) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3)
  ROOT r = pred[] compare(i, n), direction=LT
}
body {
  p = (s32[], ARRAY, ARRAY) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  a = ARRAY get-tuple-element(p), index=1
  b = ARRAY get-tuple-element(p), index=2
  one = s32[] constant(1)
  zero = s32[] constant(0)
  j = s32[] add(i, one)
  init = (s32[], ARRAY, ARRAY) tuple(zero, a, b)
  inner = (s32[], ARRAY, ARRAY) while(init), condition=inner_going, body=inner_body
  x = ARRAY get-tuple-element(inner), index=1
  y = ARRAY get-tuple-element(inner), index=2
  ROOT r = (s32[], ARRAY, ARRAY) tuple(j, y, x)
}
going {
  p = (s32[], ARRAY, ARRAY) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(5)
  ROOT r = pred[] compare(i, n), direction=LT
}
ENTRY main {
  i = s32[] constant(0)
  a = ARRAY parameter(0)
  b = ARRAY parameter(1)
  t = (s32[], ARRAY, ARRAY) tuple(i, a, b)
  w = (s32[], ARRAY, ARRAY) while(t), condition=going, body=body
  x = ARRAY get-tuple-element(w), index=1
  y = ARRAY get-tuple-element(w), index=2
  ROOT r = (ARRAY, ARRAY) tuple(x, y)
}
"""


IN_VECTORS = """HloModule vectors
going {
  p = (s32[], f32[D], bf16[D], s32[D], f32[D]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3)
  ROOT r = pred[] compare(i, n), direction=LT
}
body {
  p = (s32[], f32[D], bf16[D], s32[D], f32[D]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[D] get-tuple-element(p), index=1
  h = bf16[D] get-tuple-element(p), index=2
  n = s32[D] get-tuple-element(p), index=3
  still = f32[D] get-tuple-element(p), index=4
  known = f32[D] constant(KNOWN)
  places = s32[D] iota(), iota_dimension=0
  s = f32[D] sine(x)
  t = f32[D] divide(s, still)
  u = f32[D] add(t, known)
  g = bf16[D] tanh(h)
  few = s32[D] divide(n, places)
  wide = f32[D] convert(few)
  less = pred[D] compare(wide, u), direction=LT
  v = f32[D] select(less, u, wide)
  WORK
  ROOT r = (s32[], f32[D], bf16[D], s32[D], f32[D]) tuple(next, RESULT, g, few, still)
}
ENTRY main {
  i = s32[] constant(0)
  x = f32[D] parameter(0)
  h = bf16[D] parameter(1)
  n = s32[D] parameter(2)
  still = f32[D] parameter(3)
  t = (s32[], f32[D], bf16[D], s32[D], f32[D]) tuple(i, x, h, n, still)
  w = (s32[], f32[D], bf16[D], s32[D], f32[D]) while(t), condition=going, body=body
  y = f32[D] get-tuple-element(w), index=1
  g = bf16[D] get-tuple-element(w), index=2
  few = s32[D] get-tuple-element(w), index=3
  ROOT r = (f32[D], bf16[D], s32[D]) tuple(y, g, few)
}
"""
"""What a loop of short arrays may have: a carry that stays, a constant, places, types of other widths, division by 0."""

DIMS = [(8,), (9,), (10,), (31,), (32,), (33,), (2, 5), (3, 3), (10, 1), (1, 10), (3, 1, 5), (50, 3)]
OTHER_WORK = {  # lines that bring no array of whole vectors
    "nothing": ("", "v"),
    "a reversed one": ("b = f32[D] reverse(v), dimensions={0}", "b"),
    "a call for each element": ("b = f32[D] round-nearest-afz(v)\n  c = f64[D] convert(b)\n  d = f64[D] sine(c)\n"
                                "  e = f32[D] convert(d)", "e"),
}


@needs_compiler
@pytest.mark.parametrize("work", OTHER_WORK)
@pytest.mark.parametrize("dims", DIMS, ids=str)
def test_short_arrays_as_torch_and_xla(dims: tuple[int, ...], work: str, tmp_path: Path) -> None:
    """Loops over all elements at once, and with the rest of the last vector: no value depends on what stands behind."""
    rng, size = np.random.default_rng(5), math.prod(dims)
    known = np.arange(size, dtype="f4").reshape(dims) / 8
    lines, result = OTHER_WORK[work]
    text = IN_VECTORS.replace("WORK", lines).replace("RESULT", result).replace("[D]", str(list(dims)).replace(" ", ""))
    text = text.replace("KNOWN", str(known.tolist()).replace("[", "{").replace("]", "}"))
    assert natively(text)
    x, still = rng.normal(size=(2, *dims)).astype("f4") * 3
    x.flat[:4], still.flat[size - 3:] = [np.inf, -np.inf, np.nan, -0.0], [0.0, -0.0, np.inf]
    h = rng.normal(size=dims).astype(ml_dtypes.bfloat16)
    arguments = [x, h, rng.integers(-99, 99, dims).astype("i4"), still]
    want, got = run_both(text, arguments, tmp_path)
    for mine, *others in zip(got, want, run_xla(text, *arguments), strict=True):
        for other in others:
            np.testing.assert_allclose(mine.astype("f8"), other.astype("f8"), rtol=1e-2 if mine.dtype == h.dtype else 2e-5)


@needs_compiler
@pytest.mark.parametrize("columns", [4, 40])
@pytest.mark.parametrize("results", ["b, a", "d, d", "d, a", "b, d", "u, a", "u, v", "b, v", "u, d"])
def test_a_carry_never_takes_the_memory_of_another(results: str, columns: int, tmp_path: Path) -> None:
    text = NESTED.replace("ARRAY", f"f32[3,{columns}]").replace("COLUMNS", str(columns)).replace("RESULTS", results)
    assert natively(text)
    rng = np.random.default_rng(3)
    want, got = run_both(text, [rng.normal(size=(3, columns)).astype("f4") for _ in range(2)], tmp_path)
    for mine, theirs in zip(got, want, strict=True):
        assert np.array_equal(mine, theirs)


@needs_compiler
def test_a_loop_goes_on_natively_from_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Switched over in mid-run and called again: the same results, arguments untouched, and one function for all calls."""
    text = loop_of_rows(["f32[3,4] add(m, m)"], OPERANDS, SUM, steps=100)
    old = f"old = f32[3,4] get-tuple-element(carry), index={len(OPERANDS) + 1}"
    text = text.replace("r0 = f32[3,4] add(m, m)", f"{old}\n  r0 = f32[3,4] add(old, m)")
    computation, arguments = xla_torch.parse_hlo(text), [torch.from_numpy(a) for a in operands()]
    before = [a.clone() for a in arguments]
    with native_after(math.inf, tmp_path):
        (want,) = computation(*arguments)
    begun: list[int] = []
    taken: list[float] = []
    make, finish, is_ready = MachineCode.make, NativeLoop.finish, NativeLoop.is_ready

    def made_at_once(code: MachineCode) -> None:
        make(code)
        code.wait()

    def ready_later(loop: NativeLoop, seconds: float) -> bool:
        taken.append(seconds)
        return is_ready(loop, 0.0 if len(taken) == 1 else 1.0)

    def noted(loop: NativeLoop, counters: Sequence[int], *state: tuple[torch.Tensor, ...]) -> object:
        begun.append(counters[0])
        return finish(loop, counters, *state)

    monkeypatch.setattr(MachineCode, "make", made_at_once)
    monkeypatch.setattr(NativeLoop, "finish", noted)
    monkeypatch.setattr(NativeLoop, "is_ready", ready_later)
    monkeypatch.setattr(tuning, "NATIVE_CALL", 0.0)
    with native_after(0.5, tmp_path):
        first, second = computation(*arguments)[0], computation(*arguments)[0]
    assert taken[0] < taken[1]
    assert begun[0] in range(16, 100, 16)
    assert begun[1:] == [0]
    torch.testing.assert_close(first, want)
    torch.testing.assert_close(second, want)
    assert all(torch.equal(a, b) for a, b in zip(arguments, before, strict=True))
    assert list((tmp_path / "native").glob("loop_*.so"))


@needs_compiler
@pytest.mark.parametrize(("steps", "begins"), [(100_000, True), (2, False)])
def test_a_loop_that_will_take_long_is_compiled_beside_its_steps(steps: int, begins: bool, tmp_path: Path,
                                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[MachineCode] = []

    def noted(code: MachineCode) -> None:
        begun.append(code)

    monkeypatch.setattr(MachineCode, "make", noted)
    computation = xla_torch.parse_hlo(loop_of_rows(["f32[3,4] add(m, m)"], OPERANDS, SUM, steps))
    (loop,) = [m for m in modules(computation) if isinstance(m, NativeLoop)]
    with native_after(0.005, tmp_path):
        assert loop.watch(tuple(torch.zeros(n // 4, dtype=torch.int32) for n in map(loop.bytes.__getitem__, loop.varying)),
                          tuple(torch.zeros(n, dtype=torch.uint8) for n in map(loop.bytes.__getitem__, loop.fixed)), steps)
    assert bool(begun) == begins
    begun.clear()
    with native_after(0.005, tmp_path):
        xla_torch.parse_hlo(loop_of_rows(["f32[3,4] add(m, m)"], OPERANDS, SUM, steps)).lowered()
    assert bool(begun) == begins, "lowering knows how many steps there will be"


@needs_compiler
@pytest.mark.parametrize("dims", [(5000,), (70, 80)])
def test_long_reductions_whose_order_matters_are_loops(dims: tuple[int, ...], tmp_path: Path) -> None:
    rule = HORNER_OF_TWO
    text = reduce_hlo(rule.text(), rule.types, rule.identity, dims, list(range(len(dims))))
    in_torch, native = run_both(text, rule.operands(dims, 3), tmp_path)
    for a, b in zip(in_torch, native, strict=True):
        np.testing.assert_array_equal(a, b)
    assert list((tmp_path / "native").glob("loop_*.so"))


LONG_ROWS = """HloModule m
%add (a: TYPE[], b: TYPE[]) -> TYPE[] { %a = TYPE[] parameter(0) %b = TYPE[] parameter(1) ROOT %r = TYPE[] add(%a, %b) }
%max (a: TYPE[], b: TYPE[]) -> TYPE[] { %a = TYPE[] parameter(0) %b = TYPE[] parameter(1) ROOT %r = TYPE[] maximum(%a, %b) }
body { p = (s32[], TYPE[3,N]) parameter(0) i = s32[] get-tuple-element(p), index=0 one = s32[] constant(1)
  next = s32[] add(i, one) x = TYPE[3,N] get-tuple-element(p), index=1
  zero = TYPE[] constant(0) low = TYPE[] constant(-inf) scale = TYPE[] constant(0.01)
  scales = TYPE[3] broadcast(scale), dimensions={}
  s = TYPE[3] reduce(x, zero), dimensions={1}, to_apply=%add m = TYPE[3] reduce(x, low), dimensions={1}, to_apply=%max
  part = TYPE[3] multiply(s, scales) d = TYPE[3] subtract(part, m) e = TYPE[3,N] broadcast(d), dimensions={0}
  y = TYPE[3,N] add(x, e) ROOT r = (s32[], TYPE[3,N]) tuple(next, y) }
condition { p = (s32[], TYPE[3,N]) parameter(0) i = s32[] get-tuple-element(p), index=0 n = s32[] constant(5)
  ROOT r = pred[] compare(i, n), direction=LT }
ENTRY e { x = TYPE[3,N] parameter(0) zero = s32[] constant(0) t = (s32[], TYPE[3,N]) tuple(zero, x)
  w = (s32[], TYPE[3,N]) while(t), condition=condition, body=body ROOT r = TYPE[3,N] get-tuple-element(w), index=1 }
"""


@needs_compiler
@pytest.mark.parametrize("count", [LONG_ROW - 1, LONG_ROW, 300])
@pytest.mark.parametrize("of", ["f32", "f64"])
def test_long_rows_have_more_totals_at_once(of: str, count: int, tmp_path: Path) -> None:
    x = np.random.default_rng(count).normal(size=(3, count)).astype({"f32": np.float32, "f64": np.float64}[of])
    x[1, 7], x[2, count - 1] = -np.inf, np.nan
    in_torch, native = run_both(LONG_ROWS.replace("TYPE", of).replace("N]", f"{count}]"), [x], tmp_path)
    for a, b in zip(in_torch, native, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5 if of == "f32" else 1e-13, atol=1e-5 if of == "f32" else 1e-13)
    assert list((tmp_path / "native").glob("loop_*.so"))


def modules(computation: xla_torch.XlaComputation) -> list[torch.nn.Module]:
    return list(computation.lowered().modules())


@pytest.mark.parametrize("row", [
    "f8e5m2[3,4] convert(m)", "f32[3,4] rng(s, s), distribution=rng_uniform",
])
def test_what_stays_in_torch(row: str) -> None:
    minus = "minus_one {\n  a = f32[] parameter(0)\n  ROOT r = f32[] negate(a)\n}\n"
    assert not natively(loop_of_rows([row], OPERANDS, minus))


def test_code_that_does_not_compile_warns_and_falls_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(text: str, options: tuple[str, ...]) -> MachineCode:
        return MachineCode(text, (sys.executable, "-c", "raise SystemExit('no compiler today')"), tmp_path)

    monkeypatch.setattr("xla_torch.lowering.control.is_available", lambda: True)
    monkeypatch.setattr("xla_torch.kernels.native.machine_code", broken)
    computation = xla_torch.parse_hlo(loop_of_rows(["f32[3,4] add(m, m)"], OPERANDS, SUM))
    with native_after(0.0, tmp_path), pytest.warns(RuntimeWarning, match="no compiler today"):
        first = computation.run_numpy(*operands())
    with warnings.catch_warnings(), native_after(0.0, tmp_path):
        warnings.simplefilter("error")
        assert np.array_equal(computation.run_numpy(*operands())[0], first[0])


def test_nothing_of_a_program_s_text_stands_in_the_source() -> None:
    """Names and metadata are untrusted; the code has none of them."""
    text = loop_of_rows(["f32[3,4] add(m, m)"], OPERANDS, SUM).replace("carry", "import_os")
    text = text.replace("\nbody {", "\nexec_me {").replace("body=body", "body=exec_me")
    computation = canonicalize(xla_torch.parse_hlo(text).module.entry)
    (loop,) = [i for i in computation.instructions if i.opcode == "while"]
    source = loop_source(loop, frozenset(), Machine()).text
    assert "import_os" not in source
    assert "exec_me" not in source


def test_tables_name_ops() -> None:
    assert not set(TABLES["native element"]) & set(TABLES["native array"])
