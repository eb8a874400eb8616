"""Chains of calls on large arrays, elementwise and along rows, give the same in blocks as one after another."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import xla_torch
from support.loops_in_place import UPDATES, drawn_order, loop_in_order
from support.low_thresholds import lower_thresholds
from support.oracle import run_xla
from xla_torch.codegen.compiled import is_available
from xla_torch.core import tuning
from xla_torch.kernels.native_fusions import NativeFusion
from xla_torch.lowering.numerics import numpy_dtype
from xla_torch.passes import blocking
from xla_torch.types import F32

REDUCERS = """sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
most {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] maximum(a, b)
}
"""
PARAMETERS = {"x": "f32[16,8]", "q": "f32[8,8]", "h": "f32[2,3,16,8]", "w": "f32[8]", "v": "f32[8,16]", "r": "f32[16]"}

SOFTMAX = ["m = f32[16] reduce(x, low), dimensions={1}, to_apply=most", "mb = f32[16,8] broadcast(m), dimensions={0}",
           "d = f32[16,8] subtract(x, mb)", "e = f32[16,8] exponential(d)",
           "s = f32[16] reduce(e, zero), dimensions={1}, to_apply=sum", "sb = f32[16,8] broadcast(s), dimensions={0}",
           "p = f32[16,8] divide(e, sb)"]
NORM = ["s = f32[16] reduce(x, zero), dimensions={1}, to_apply=sum", "n = f32[16,1] reshape(s)",
        "cs = f32[16,1] broadcast(eight), dimensions={}", "mean = f32[16,1] divide(n, cs)", "mr = f32[16] reshape(mean)",
        "mb = f32[16,8] broadcast(mr), dimensions={0}", "c = f32[16,8] subtract(x, mb)", "cc = f32[16,8] multiply(c, c)",
        "t = f32[16] reduce(cc, zero), dimensions={1}, to_apply=sum", "i = f32[16] rsqrt(t)",
        "ib = f32[16,8] broadcast(i), dimensions={0}", "scaled = f32[16,8] multiply(c, ib)",
        "wb = f32[16,8] broadcast(w), dimensions={1}", "y = f32[16,8] multiply(scaled, wb)"]
ATTENTION = ["m = f32[2,3,16] reduce(h, low), dimensions={3}, to_apply=most",
             "mb = f32[2,3,16,8] broadcast(m), dimensions={0,1,2}", "d = f32[2,3,16,8] subtract(h, mb)",
             "e = f32[2,3,16,8] exponential(d)", "s = f32[2,3,16] reduce(e, zero), dimensions={3}, to_apply=sum",
             "sb = f32[2,3,16,8] broadcast(s), dimensions={0,1,2}", "p = f32[2,3,16,8] divide(e, sb)"]
SQUARE = ["s = f32[8] reduce(q, zero), dimensions={1}, to_apply=sum", "sb = f32[8,8] broadcast(s), dimensions={0}",
          "a = f32[8,8] add(q, sb)", "wb = f32[8,8] broadcast(w), dimensions={1}", "b = f32[8,8] multiply(a, wb)",
          "sc = f32[8,8] broadcast(s), dimensions={1}", "c = f32[8,8] multiply(b, sc)"]
COLUMNS = ["e = f32[16,8] exponential(x)", "t = f32[16,8] tanh(e)", "s = f32[8] reduce(t, zero), dimensions={0}, to_apply=sum",
           "sb = f32[16,8] broadcast(s), dimensions={1}", "u = f32[16,8] multiply(t, sb)", "y = f32[16,8] add(u, x)"]
OUTSIDE = [*SOFTMAX, "o = f32[16,16] dot(sb, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
           "k = f32[16,1] reshape(s)"]
READ_LATE = ["y = f32[16] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
             "yb = f32[16,8] broadcast(y), dimensions={0}", "a = f32[16,8] multiply(x, yb)", "e = f32[16,8] exponential(a)",
             "s = f32[16] reduce(e, zero), dimensions={1}, to_apply=sum", "sb = f32[16,8] broadcast(s), dimensions={0}",
             "b = f32[16,8] add(e, sb)", "z = f32[16,8] multiply(b, yb)"]
LOSS = ["d = f32[2,3,16,8] multiply(h, h)", "c = f32[2,3,16,8] cosine(d)",
        "t = f32[] reduce(c, zero), dimensions={0,1,2,3}, to_apply=sum", "e = f32[2,3,16,8] sine(h)",
        "g = f32[2,3,16,8] multiply(e, h)", "m = f32[3] reduce(g, low), dimensions={0,2,3}, to_apply=most"]
ROWS_ALONE = ["e = f32[16,8] exponential(x)", "s = f32[16] reduce(e, zero), dimensions={1}, to_apply=sum", "l = f32[16] log(s)",
              "t = f32[16] add(l, r)"]

MASKED = ["xb = f32[2,3,16,8] broadcast(x), dimensions={2,3}", "c = pred[2,3,16,8] compare(h, xb), direction=GT",
          "a = f32[2,3,16,8] multiply(h, xb)", "y = f32[2,3,16,8] select(c, a, h)",
          "s = f32[2,3,16] reduce(y, zero), dimensions={3}, to_apply=sum", "sb = f32[2,3,16,8] broadcast(s), dimensions={0,1,2}",
          "z = f32[2,3,16,8] add(y, sb)"]


def text_of(lines: list[str], results: str) -> str:
    shapes = {line.split(" = ")[0]: line.split(" = ")[1].split(" ")[0] for line in lines}
    parameters = "\n".join(f"  {n} = {s} parameter({k})" for k, (n, s) in enumerate(PARAMETERS.items()))
    body = "\n".join(f"  {line}" for line in lines)
    made = ", ".join(shapes[n] for n in results.split(", "))
    return f"""HloModule rows
{REDUCERS}ENTRY main {{
{parameters}
  zero = f32[] constant(0)
  low = f32[] constant(-inf)
  eight = f32[] constant(8)
{body}
  ROOT made = ({made}) tuple({results})
}}
"""


@pytest.mark.parametrize("after", [math.inf, 0.0])
@pytest.mark.parametrize(("lines", "results", "blocks", "reductions_outside"), [
    (SOFTMAX, "p", 1, 0), (SOFTMAX, "p, s, m", 1, 0), (NORM, "y", 1, 0), (NORM, "y, mean, i", 1, 0), (ATTENTION, "p", 1, 0),
    (SQUARE, "c", 1, 0), (COLUMNS, "y", 2, 1), (OUTSIDE, "p, o, k", 1, 0), (READ_LATE, "s, z", 1, 0),
    (ROWS_ALONE, "t, s", 1, 0), (LOSS, "t, m", 1, 2),
])
def test_rows_in_blocks(lines: list[str], results: str, blocks: int, reductions_outside: int, after: float,
                        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where fusions of them are native code from the first call on."""
    text, rng = text_of(lines, results), np.random.default_rng(0)
    arguments = [rng.normal(size=[int(n) for n in s[4:-1].split(",")]).astype("f4") for s in PARAMETERS.values()]
    want = xla_torch.parse_hlo(text).run_numpy(*arguments)
    monkeypatch.setattr(tuning, "ROW_FUNCTIONS", False)  # torch's own softmax runs in no blocks
    monkeypatch.setattr(tuning, "BLOCKED_FROM", 64)
    monkeypatch.setattr(tuning, "BLOCK", 32)
    monkeypatch.setattr(blocking, "_SPLIT_FROM", 8)
    monkeypatch.setattr(tuning, "NATIVE_AFTER", after)
    monkeypatch.setattr(tuning, "BUNDLED_UP_TO", 0)
    monkeypatch.setenv("XLA_TORCH_CACHE", str(tmp_path))
    program = xla_torch.parse_hlo(text)
    got = program.run_numpy(*arguments)
    code = program.lowered().code
    assert code.count("_blocked(") == blocks
    assert code.count("torch.sum(") + code.count("torch.amax(") == reductions_outside
    for mine, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-6, atol=1e-6)
    for mine, theirs in zip(program.run_numpy(*arguments), got, strict=True):
        assert np.array_equal(mine, theirs)


@pytest.mark.skipif(not is_available(), reason="there is no C compiler")
@pytest.mark.parametrize(("block", "cut"), [
    (32, "((2, 3, 16), 4)"), (256, "((2, 3), 2)"), (512, "((2,), 1)"), (1024, "((2,), 2)"),
])
def test_blocks_lie_in_one_piece_of_memory(block: int, cut: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the first dimensions are small; and rows that come again and again are read where they are."""
    text, rng = text_of(MASKED, "y, z"), np.random.default_rng(0)
    arguments = [rng.normal(size=[int(n) for n in s[4:-1].split(",")]).astype("f4") for s in PARAMETERS.values()]
    want = xla_torch.parse_hlo(text).run_numpy(*arguments)
    monkeypatch.setattr(tuning, "BLOCKED_FROM", 64)
    monkeypatch.setattr(tuning, "BLOCK", block)
    monkeypatch.setattr(tuning, "NATIVE_AFTER", 0.0)
    monkeypatch.setenv("XLA_TORCH_CACHE", str(tmp_path))
    program = xla_torch.parse_hlo(text)
    got = program.run_numpy(*arguments)
    assert f", {cut}, " in program.lowered().code
    for mine, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-6, atol=1e-6)
    fusions = [m for m in program.lowered().modules() if isinstance(m, NativeFusion)]
    assert fusions
    assert all(p.seconds == 0 for p in fusions)


WITHOUT_A_COMPILER = """
import sys
import torch, xla_torch
program = xla_torch.parse_hlo('''HloModule m
ENTRY e {
  p = u32[4000000] parameter(0)
  a = u32[4000000] shift-right-logical(p, p)
  b = u32[4000000] xor(a, p)
  c = f32[4000000] convert(b)
  s = f32[4000000] sign(c)
  ROOT t = f32[4000000] tanh(s)
}''')
assert "_blocked(" in program.lowered().code
program(torch.ones(4_000_000, dtype=torch.uint32))
assert not {"sympy", "torch._dynamo"} & set(sys.modules)
"""


def test_lowering_brings_in_no_compiler() -> None:
    # Torch's functions on tensors without values do, and with it sympy, which takes longer than lowering.
    subprocess.run([sys.executable, "-c", WITHOUT_A_COMPILER], check=True, timeout=100)


@pytest.mark.parametrize("seed", [1, 4, 8, 10, 11])
def test_what_a_loop_writes_over_was_read_before(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain that reads a carry runs before an update in place, wherever its last instruction stands."""
    given = np.random.default_rng(0).standard_normal((2, 16, 8)).astype("f")
    monkeypatch.setattr(tuning, "ACCUMULATED_FROM", 1)
    text = loop_in_order(drawn_order(np.random.default_rng(seed)))
    monkeypatch.setattr(tuning, "BLOCKED_FROM", 64)
    want = run_xla(loop_in_order(list(UPDATES)), *given)
    for one, other in zip(xla_torch.parse_hlo(text).run_numpy(*given), want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


CARRIED = """HloModule carried
body {{
  p = (s32[], {t}[16,8], {t}[16,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = {t}[16,8] get-tuple-element(p), index=1
  y = {t}[16,8] get-tuple-element(p), index=2
  smaller = pred[16,8] compare(x, y), direction=LT
  less = {t}[16,8] select(smaller, x, y)
  more = {t}[16,8] select(smaller, y, x)
  one_x = {t}[16,8] {unary}(x)
  most = {t}[16,8] maximum(one_x, less)
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT out = (s32[], {t}[16,8], {t}[16,8]) tuple(next, more, most)
}}
condition {{
  p = (s32[], {t}[16,8], {t}[16,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3)
  ROOT less = pred[] compare(i, n), direction=LT
}}
ENTRY main {{
  x = {t}[16,8] parameter(0)
  y = {t}[16,8] parameter(1)
  z = s32[] constant(0)
  t = (s32[], {t}[16,8], {t}[16,8]) tuple(z, x, y)
  ROOT r = (s32[], {t}[16,8], {t}[16,8]) while(t), condition=condition, body=body
}}"""


@pytest.mark.parametrize(("kind", "unary"), [
    *((kind, "popcnt") for kind in ("u16", "u32", "u64", "s4", "u4", "s8")),
    *((kind, "rsqrt") for kind in ("bf16", "f16", "f8e5m2", "f8e4m3fn", "f64"))])
def test_carries_of_loops_are_in_the_dtype_that_the_program_computes_in(
        kind: str, unary: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dtype = numpy_dtype(xla_torch.Shape.parse(f"{kind}[]").element_type)
    text = CARRIED.format(t=kind, unary=unary)
    given = [np.random.default_rng(k).integers(1, 7, (16, 8)).astype(dtype) for k in range(2)]
    want = run_xla(text, *given)
    lower_thresholds(monkeypatch.setattr)
    program = xla_torch.parse_hlo(text)
    for one, other in zip(program.run_numpy(*given), want, strict=True):
        np.testing.assert_allclose(one.astype(float), other.astype(float), rtol=1e-15)
    assert "block_0" in program.python_code()


def test_a_number_that_stands_for_an_array_is_no_array_in_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """HloModule invariant
body {
  p = (s32[], f32[3,8], f32[3,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  same = f32[3,8] get-tuple-element(p), index=1
  x = f32[3,8] get-tuple-element(p), index=2
  clamped = f32[3,8] clamp(same, x, same)
  grown = f32[3,8] exponential(clamped)
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT out = (s32[], f32[3,8], f32[3,8]) tuple(next, same, grown)
}
condition {
  p = (s32[], f32[3,8], f32[3,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3)
  ROOT less = pred[] compare(i, n), direction=LT
}
ENTRY main {
  x = f32[] parameter(0)
  y = f32[3,8] parameter(1)
  all = f32[3,8] broadcast(x), dimensions={}
  z = s32[] constant(0)
  t = (s32[], f32[3,8], f32[3,8]) tuple(z, all, all)
  r = (s32[], f32[3,8], f32[3,8]) while(t), condition=condition, body=body
  got = f32[3,8] get-tuple-element(r), index=2
  ROOT sum = f32[3,8] add(got, y)
}"""
    given = np.float32(0.5), np.ones((3, 8), np.float32)
    want = run_xla(text, *given)[0]
    lower_thresholds(monkeypatch.setattr)
    np.testing.assert_allclose(xla_torch.parse_hlo(text).run_numpy(*given)[0], want, rtol=1e-6)


@pytest.mark.parametrize(("reduced", "begun"), [("sum", None), ("amax", None), ("amin", None), ("sum", 0.75), ("amax", 0.25)])
@pytest.mark.parametrize(("dims", "over"), [
    ((33,), (0,)), ((7, 3), (0,)), ((7, 3), (0, 1)), ((2, 9, 3), (1, 2)), ((2, 9, 3), (0, 1))])
def test_blocks_reduce_their_parts(reduced: str, begun: float | None, dims: tuple[int, ...], over: tuple[int, ...],
                                   monkeypatch: pytest.MonkeyPatch) -> None:
    """A reduction of the dimension that is cut, which no block has the whole of; an init value that changes something is one
    more term."""
    lower_thresholds(monkeypatch.setattr)
    monkeypatch.setattr(tuning, "BLOCK", 9)
    array, rest = xla_torch.Shape.array(F32, dims), xla_torch.Shape.array(F32, [n for d, n in enumerate(dims) if d not in over])
    opcode, init = {"sum": ("add", 0), "amax": ("maximum", -np.inf), "amin": ("minimum", np.inf)}[reduced]
    init = init if begun is None else begun
    program = xla_torch.parse_hlo(f"""HloModule parts
reducer {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] {opcode}(a, b)
}}
ENTRY e {{
  x = {array} parameter(0)
  s = {array} sine(x)
  y = {array} multiply(s, x)
  init = f32[] constant({init})
  ROOT r = {rest} reduce(y, init), dimensions={{{",".join(map(str, over))}}}, to_apply=reducer
}}""")
    x = np.random.default_rng(0).standard_normal(dims).astype("f")
    want = getattr(np, reduced)(np.sin(x) * x, axis=over, initial=init)
    np.testing.assert_allclose(program.run_numpy(x)[0], want, rtol=1e-5)
    assert f"torch.{reduced}(" in program.python_code().split("# self.block_0")[1]
