"""Fusions over rows: sums and largest elements of rows, what is computed of them, and functions that torch rounds otherwise."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import xla_torch
from support.oracle import run_xla
from xla_torch.codegen.compiled import is_available
from xla_torch.core import tuning
from xla_torch.kernels.native import can_fuse
from xla_torch.kernels.native_fusions import NativeFusion

needs_compiler = pytest.mark.skipif(not is_available(), reason="there is no C compiler")


@pytest.fixture(autouse=True)
def at_once(tmp_path: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "NATIVE_AFTER", 0.0)
        patch.setattr(tuning, "BUNDLED_UP_TO", 0)  # these small arrays stand for large ones
        patch.setattr(tuning, "WAITED_FOR_FROM", 1 << 30)
        patch.setenv("XLA_TORCH_CACHE", str(tmp_path))
        yield


REGIONS = """
%max (a: TYPE[], b: TYPE[]) -> TYPE[] { %a = TYPE[] parameter(0) %b = TYPE[] parameter(1) ROOT %m = TYPE[] maximum(%a, %b) }
%add (a: TYPE[], b: TYPE[]) -> TYPE[] { %a = TYPE[] parameter(0) %b = TYPE[] parameter(1) ROOT %m = TYPE[] add(%a, %b) }
"""

HEADER = f"""HloModule m
{REGIONS}
ENTRY %e (x: TYPE[ROWS,COUNT], s: TYPE[COUNT]) -> RESULT {{
  %x = TYPE[ROWS,COUNT] parameter(0)
  %s = TYPE[COUNT] parameter(1)
"""

NORM = """
  %zero = TYPE[] constant(0)
  %sum = TYPE[ROWS] reduce(%x, %zero), dimensions={LAST}, to_apply=%add
  %count = TYPE[] constant(SIZE)
  %counts = TYPE[ROWS] broadcast(%count), dimensions={}
  %mean = TYPE[ROWS] divide(%sum, %counts)
  %means = TYPE[ROWS,COUNT] broadcast(%mean), dimensions={KEPT}
  %off = TYPE[ROWS,COUNT] subtract(%x, %means)
  %square = TYPE[ROWS,COUNT] multiply(%off, %off)
  %squares = TYPE[ROWS] reduce(%square, %zero), dimensions={LAST}, to_apply=%add
  %variance = TYPE[ROWS] divide(%squares, %counts)
  %root = TYPE[ROWS] sqrt(%variance)
  %roots = TYPE[ROWS,COUNT] broadcast(%root), dimensions={KEPT}
  %norm = TYPE[ROWS,COUNT] divide(%off, %roots)
  %scales = TYPE[ROWS,COUNT] broadcast(%s), dimensions={LAST}
"""

BODIES = {
    "norm": NORM + "ROOT %r = TYPE[ROWS,COUNT] multiply(%norm, %scales)",
    "norm and its statistics": NORM + """
  %scaled = TYPE[ROWS,COUNT] multiply(%norm, %scales)
  ROOT %r = (TYPE[ROWS,COUNT], TYPE[ROWS], TYPE[ROWS,COUNT]) tuple(%scaled, %variance, %off)""",
    "largest": """
  %least = TYPE[] constant(-inf)
  %largest = TYPE[ROWS] reduce(%x, %least), dimensions={LAST}, to_apply=%max
  %all = TYPE[ROWS,COUNT] broadcast(%largest), dimensions={KEPT}
  %below = TYPE[ROWS,COUNT] subtract(%x, %all)
  %twice = TYPE[ROWS,COUNT] add(%below, %below)
  %zero = TYPE[] constant(0)
  %sum = TYPE[ROWS] reduce(%twice, %zero), dimensions={LAST}, to_apply=%add
  %more = TYPE[ROWS] add(%sum, %largest)
  %every = TYPE[ROWS,COUNT] broadcast(%more), dimensions={KEPT}
  %part = TYPE[ROWS,COUNT] multiply(%twice, %every)
  ROOT %r = (TYPE[ROWS,COUNT], TYPE[ROWS]) tuple(%part, %sum)""",
}


def program(body: str, rows: str, count: int | str, of: str) -> str:
    """`rows` are the dimensions before those of a row, and `count` are those."""
    rank, own = rows.count(",") + 1, dims_of(count)
    text = HEADER + body + "\n}\n"
    result = body.rpartition("ROOT %r = ")[2]
    result = result[:result.index(")") + 1] if result.startswith("(") else result.split()[0]
    for word, value in {"RESULT": result, "TYPE": of, "ROWS": rows, "COUNT": str(count),
                        "SIZE": str(math.prod(own)), "LAST": ",".join(str(rank + k) for k in range(len(own))),
                        "KEPT": ",".join(map(str, range(rank)))}.items():
        text = text.replace(word, value)
    return text


def dims_of(sizes: int | str) -> tuple[int, ...]:
    return tuple(map(int, str(sizes).split(",")))


def pieces_of(computation: xla_torch.XlaComputation, *arguments: torch.Tensor) -> tuple[list[torch.Tensor], int]:
    """The results, and how many fusions ran as native code."""
    ran: list[NativeFusion] = []
    with pytest.MonkeyPatch.context() as patch:
        kept = NativeFusion.new_results
        patch.setattr(NativeFusion, "new_results", lambda self, *a: (ran.append(self), kept(self, *a))[1])
        before = torch.get_num_threads()
        torch.set_num_threads(3)
        try:
            made = computation(*arguments)
        finally:
            torch.set_num_threads(before)
    return [made] if isinstance(made, torch.Tensor) else list(made), len(ran)


def drawn(dims: tuple[int, ...], dtype: torch.dtype, special: bool) -> torch.Tensor:
    x = torch.from_numpy(np.random.default_rng(sum(dims)).normal(size=dims)).to(dtype)
    if special:
        x[..., 0, 3], x[..., 1, 5], x[..., 2, :] = torch.inf, torch.nan, -0.0
        x[..., -1, 7] = -torch.inf
    return x


@needs_compiler
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize(("rows", "count", "of", "special"), [
    ("64", 1000, "f32", False), ("300", 300, "f32", True), ("2,30,8", 127, "f64", False), ("5", 70_000, "f32", False),
    ("1030", 31, "f32", True), ("2048", 8, "f64", True), ("4096", 7, "f32", False),
    ("64", "3,200", "f32", False), ("6,8", "50,8", "f64", True), ("16", "5,7,20", "f32", True), ("900", "4,8", "f32", False),
])
def test_rows_have_torch_s_bits(body: str, rows: str, count: int | str, of: str, special: bool,
                                monkeypatch: pytest.MonkeyPatch) -> None:
    """In torch's own order of summation, whoever computes; a row of less than a vector stays torch's own."""
    text, dtype = program(BODIES[body], rows, count, of), {"f32": torch.float32, "f64": torch.float64}[of]
    x = drawn((*dims_of(rows), *dims_of(count)), dtype, special)
    s = drawn((4, *dims_of(count)), dtype, False)[1]
    got, ran = pieces_of(xla_torch.parse_hlo(text), x, s)
    monkeypatch.setattr(tuning, "NATIVE_AFTER", np.inf)
    want, none = pieces_of(xla_torch.parse_hlo(text), x, s)
    assert bool(ran) == (math.prod(dims_of(count)) >= 8 or "norm" in body)
    assert not none
    bits = torch.int32 if dtype is torch.float32 else torch.int64
    for one, other in zip(got, want, strict=True):
        assert torch.equal(one.isnan(), other.isnan())
        # Some torch libraries round a root otherwise: what follows from it may differ in the last places.
        if body == "largest":
            assert torch.equal((one.nan_to_num() + 0).view(bits), (other.nan_to_num() + 0).view(bits))
        torch.testing.assert_close(one, other, rtol=4 * torch.finfo(dtype).eps, atol=0, equal_nan=True)


@needs_compiler
def test_results_over_an_array_that_dies_wait_for_its_last_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """The product is read in several passes, and results of the first and of the last stand in its place."""
    body = "  %x = f32[ROWS,COUNT] dot(%y, %y), lhs_contracting_dims={1}, rhs_contracting_dims={0}" + NORM + """
  %more = f32[ROWS,COUNT] add(%norm, %x)
  ROOT %r = (f32[ROWS,COUNT], f32[ROWS,COUNT]) tuple(%off, %more)"""
    text = program(body, "200", 200, "f32").replace("%x = f32[200,200] parameter(0)", "%y = f32[200,200] parameter(0)")
    text = text.replace("(x: f32[200,200], ", "(y: f32[200,200], ")
    x = drawn((200, 200), torch.float32, False)
    program_native = xla_torch.parse_hlo(text)
    assert "into = (0" in program_native.python_code() or "into = (None, 0" in program_native.python_code()
    got, ran = pieces_of(program_native, x, x[0])
    monkeypatch.setattr(tuning, "NATIVE_AFTER", np.inf)
    want, _ = pieces_of(xla_torch.parse_hlo(text), x, x[0])
    assert ran
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


SOFTMAX = """
  %least = f32[] constant(-inf)
  %largest = f32[ROWS] reduce(%x, %least), dimensions={LAST}, to_apply=%max
  %all = f32[ROWS,COUNT] broadcast(%largest), dimensions={KEPT}
  %below = f32[ROWS,COUNT] subtract(%x, %all)
  %exp = f32[ROWS,COUNT] exponential(%below)
  %zero = f32[] constant(0)
  %sum = f32[ROWS] reduce(%exp, %zero), dimensions={LAST}, to_apply=%add
  %sums = f32[ROWS,COUNT] broadcast(%sum), dimensions={KEPT}
  %weights = f32[ROWS,COUNT] divide(%exp, %sums)
  %tanh = f32[ROWS,COUNT] tanh(%weights)
  %gate = f32[ROWS,COUNT] logistic(%x)
  %gated = f32[ROWS,COUNT] multiply(%gate, %tanh)
  %log = f32[ROWS] log(%sum)
  ROOT %r = (f32[ROWS,COUNT], f32[ROWS], f32[ROWS,COUNT]) tuple(%gated, %log, %weights)
"""


@needs_compiler
@pytest.mark.skipif(not can_fuse(), reason="functions need a fused multiply-add")
def test_a_softmax_is_one_piece_and_agrees_with_xla(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "WAITED_FOR_FROM", 1)
    monkeypatch.setattr(tuning, "FUSIONS_FROM", 1 << 10)
    text = program(SOFTMAX, "48", 40, "f32")
    x = drawn((48, 40), torch.float32, False) * 20
    got, ran = pieces_of(xla_torch.parse_hlo(text), x, x[0])
    assert ran == 1
    for one, other in zip(got, run_xla(text, x.numpy(), x[0].numpy()), strict=True):
        torch.testing.assert_close(one, torch.from_numpy(np.array(other)), rtol=2e-6, atol=1e-30 if one.dim() > 1 else 3e-7)


@needs_compiler
@pytest.mark.skipif(not can_fuse(), reason="functions need a fused multiply-add")
@pytest.mark.parametrize(("many", "waits"), [(48 * 40 + 1, False), (48 * 40, True)])
def test_functions_of_many_elements_wait_for_their_code(many: int, waits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "WAITED_FOR_FROM", many)
    monkeypatch.setattr(tuning, "FUSIONS_FROM", 1 << 10)
    modules = xla_torch.parse_hlo(program(SOFTMAX, "48", 40, "f32")).lowered().modules()
    assert [m.waits for m in modules if isinstance(m, NativeFusion)] == [waits]


FUNCTIONS: list[tuple[str, Callable[[torch.Tensor], torch.Tensor], float]] = [
    ("exponential", torch.exp, 0.66), ("tanh", torch.tanh, 0.76), ("log", torch.log, 0.501), ("logistic", torch.sigmoid, 2.49),
    ("sinh", torch.sinh, 0.501), ("cosh", torch.cosh, 0.501), ("asinh", torch.asinh, 0.501), ("acosh", torch.acosh, 0.501),
    ("atanh", torch.atanh, 0.501), ("exponential-minus-one", torch.expm1, 0.501), ("log-plus-one", torch.log1p, 0.501)]


@needs_compiler
@pytest.mark.skipif(not can_fuse(), reason="functions need a fused multiply-add")
@pytest.mark.parametrize(("op", "function", "bound"), FUNCTIONS)
def test_functions_are_as_exact_as_torch_s(op: str, function: Callable[[torch.Tensor], torch.Tensor], bound: float,
                                           monkeypatch: pytest.MonkeyPatch) -> None:
    """Over numbers of all sizes: a million of all bits, and special ones, in units of the last place."""
    monkeypatch.setattr(tuning, "WAITED_FOR_FROM", 1)
    bits = torch.from_numpy(np.random.default_rng(0).integers(-2**31, 2**31, 1 << 20, dtype=np.int64)).to(torch.int32)
    x = bits.view(torch.float32)
    x[:12] = torch.tensor([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 88.7228, 88.73, -87.4, -103.9, -104.5])
    x[12:500_000] = torch.linspace(-20, 20, 499_988)
    text = """HloModule m
ENTRY %e (x: f32[N]) -> f32[N] {
  %x = f32[N] parameter(0)
  %y = f32[N] OP(%x)
  %one = f32[] constant(-1)
  %ones = f32[N] broadcast(%one), dimensions={}
  %z = f32[N] multiply(%y, %ones)
  ROOT %n = f32[N] negate(%z)
}""".replace("[N]", f"[{len(x)}]").replace("OP", op)
    (got,), ran = pieces_of(xla_torch.parse_hlo(text), x)
    exact = function(x.double())
    want = exact.to(torch.float32)
    normal = want.isfinite() & (want.abs() >= torch.finfo(torch.float32).tiny)
    assert ran
    assert torch.equal(got.isnan(), want.isnan())
    assert torch.equal(got[want.isinf() | (want == 0)], want[want.isinf() | (want == 0)])
    ulp = torch.ldexp(torch.ones_like(exact), torch.frexp(want).exponent - 24)
    assert ((got.double() - exact).abs() / ulp)[normal].max() <= bound
    tiny = want.isfinite() & ~normal
    torch_s = (function(x).double() - exact).abs()[tiny]
    assert ((got.double() - exact).abs()[tiny] <= torch_s.clamp_min(2.0**-149)).all()


@needs_compiler
@pytest.mark.skipif(not can_fuse(), reason="functions need a fused multiply-add")
@pytest.mark.parametrize(("op", "alone"), [
    ("asinh", True), ("acosh", True), ("sinh", True), ("cosh", True), ("exponential-minus-one", True), ("exponential", False),
    ("tanh", False), ("atanh", False)])
def test_functions_that_torch_computes_one_by_one_are_native_also_alone(op: str, alone: bool) -> None:
    text = f"ENTRY e {{ x = f32[512,512] parameter(0)\n ROOT r = f32[512,512] {op}(x) }}"
    modules = xla_torch.parse_hlo(text).lowered().modules()
    assert any(isinstance(m, NativeFusion) for m in modules) == alone


@needs_compiler
@pytest.mark.parametrize(("dims", "shared", "roles"), [
    ("16,24,40", "1,2", ["column", "whole"]), ("6,5,24,40", "2,3", ["column", "whole"]), ("6,5,24,40", "1,2,3", None)])
def test_sums_of_masked_matrices_are_one_pass(dims: str, shared: str, roles: list[str] | None,
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    """The mask that all matrices share is read as it is; where only some share it, torch reads it."""
    monkeypatch.setattr(tuning, "FUSIONS_FROM", 1 << 10)
    sizes = dims.split(",")
    lead = ",".join(sizes[:-2])
    mask = ",".join(sizes[int(d)] for d in shared.split(","))
    text = f"""HloModule m
%add (a: f32[], b: f32[]) -> f32[] {{ %a = f32[] parameter(0) %b = f32[] parameter(1) ROOT %m = f32[] add(%a, %b) }}
ENTRY %e (p: pred[{mask}], x: f32[{dims}]) -> f32[{lead}] {{
  %p = pred[{mask}] parameter(0)
  %x = f32[{dims}] parameter(1)
  %q = pred[{dims}] broadcast(%p), dimensions={{{shared}}}
  %zero = f32[] constant(0)
  %zeros = f32[{dims}] broadcast(%zero), dimensions={{}}
  %s = f32[{dims}] select(%q, %x, %zeros)
  ROOT %r = f32[{lead}] reduce(%s, %zero), dimensions={{{len(sizes) - 2},{len(sizes) - 1}}}, to_apply=%add
}}"""
    x = drawn(tuple(map(int, sizes)), torch.float32, False)
    p = drawn(tuple(map(int, mask.split(","))), torch.float32, False) > 0
    computation = xla_torch.parse_hlo(text)
    (got,), _ = pieces_of(computation, p, x)
    native = [m for m in computation.lowered().modules() if isinstance(m, NativeFusion)]
    assert [list(m.roles) for m in native] == ([roles] if roles else [])
    torch.testing.assert_close(got, torch.where(p, x, 0.0).sum((-2, -1)), rtol=1e-5, atol=1e-4)


HALVES = {"bf16": (torch.bfloat16, 8, -133), "f16": (torch.float16, 11, -24)}
"""Their digits, and the exponent of the least number."""


@needs_compiler
@pytest.mark.skipif(not can_fuse(), reason="functions need a fused multiply-add")
@pytest.mark.parametrize("of", HALVES)
@pytest.mark.parametrize(("op", "function", "_"), FUNCTIONS)
def test_functions_of_halves_are_rounded_once(op: str, function: Callable[[torch.Tensor], torch.Tensor], _: float, of: str,
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    """Over all numbers of a type, beside float64."""
    monkeypatch.setattr(tuning, "WAITED_FOR_FROM", 1)
    monkeypatch.setattr(tuning, "FUSIONS_FROM", 1 << 10)
    dtype, digits, least = HALVES[of]
    x = torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(dtype)
    text = f"""HloModule m
ENTRY %e (x: {of}[65536]) -> {of}[65536] {{
  %x = {of}[65536] parameter(0)
  %y = {of}[65536] {op}(%x)
  %one = {of}[] constant(-1)
  %ones = {of}[65536] broadcast(%one), dimensions={{}}
  %z = {of}[65536] multiply(%y, %ones)
  ROOT %n = {of}[65536] negate(%z)
}}"""
    (got,), ran = pieces_of(xla_torch.parse_hlo(text), x)
    exact = function(x.double())
    rounded = exact.to(dtype)
    assert ran
    assert torch.equal(got.isnan(), rounded.isnan())
    assert torch.equal(got[rounded.isinf()], rounded[rounded.isinf()])
    ulp = torch.ldexp(torch.ones_like(exact), (torch.frexp(exact).exponent - digits).clamp_min(least))
    normal = rounded.isfinite() & (rounded.abs().double() >= torch.finfo(torch.float32).tiny)
    assert ((got.double() - exact).abs() / ulp)[normal].max() <= 0.51
    tiny = rounded.isfinite() & ~normal
    torch_s = (function(x).double() - exact).abs()[tiny]
    assert ((got.double() - exact).abs()[tiny] <= torch_s.clamp_min(2.0**least)).all()


SLICES = """HloModule m
%add (a: f32[], b: f32[]) -> f32[] { %a = f32[] parameter(0) %b = f32[] parameter(1) ROOT %m = f32[] add(%a, %b) }
ENTRY %e (x: f32[GIVEN]) -> (f32[LESS], f32[LEAD]) {
  %x = f32[GIVEN] parameter(0)
  %a = f32[LESS] slice(%x), slice={FIRST}
  %b = f32[LESS] slice(%x), slice={LAST}
  %d = f32[LESS] subtract(%a, %b)
  %e = f32[LESS] multiply(%d, %b)
  %f = f32[LESS] add(%e, %a)
  %zero = f32[] constant(0)
  %s = f32[LEAD] reduce(%f, %zero), dimensions={ALONG}, to_apply=%add
  %spread = f32[LESS] broadcast(%s), dimensions={KEPT}
  %g = f32[LESS] multiply(%f, %spread)
  ROOT %r = (f32[LESS], f32[LEAD]) tuple(%g, %s)
}"""


@needs_compiler
@pytest.mark.parametrize(("dims", "along", "is_apart"), [
    ((90, 70), 1, True), ((7, 20, 3, 40), 1, True), ((5000, 8), 1, False), ((5000, 9), 1, True), ((70, 40, 90), 2, True)])
@pytest.mark.parametrize("order", ["dense", "turned", "spread"])
def test_slices_are_read_where_they_lie(dims: tuple[int, ...], along: int, is_apart: bool, order: str,
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    """The last `along` dimensions are a row, which is in one piece where it is one dimension."""
    monkeypatch.setattr(tuning, "FUSIONS_FROM", 1 << 10)
    less, lead = [n - 1 for n in dims], len(dims) - along
    text = SLICES
    for word, value in {"GIVEN": dims, "LESS": less, "LEAD": less[:lead], "ALONG": range(lead, len(dims)), "KEPT": range(lead),
                        "FIRST": [f"[0:{n}]" for n in less], "LAST": [f"[1:{n + 1}]" for n in less]}.items():
        text = text.replace(word, ",".join(map(str, value)))
    x = drawn(dims, torch.float32, False)
    x = {"dense": x, "turned": x.mT.contiguous().mT, "spread": x[:1].expand(dims)}[order]
    computation = xla_torch.parse_hlo(text)
    got, ran = pieces_of(computation, x)
    native = [m for m in computation.lowered().modules() if isinstance(m, NativeFusion)]
    monkeypatch.setattr(tuning, "NATIVE_AFTER", np.inf)
    want, _ = pieces_of(xla_torch.parse_hlo(text), x)
    assert bool(ran) or not is_apart
    assert any("apart" in m.roles for m in native) == is_apart
    for one, other in zip(got, want, strict=True):  # torch adds up a turned array in another order
        torch.testing.assert_close(one, other, rtol=1e-5 * (order == "turned"), atol=1e-3 * (order == "turned"))


@needs_compiler
@pytest.mark.parametrize("rows", ["70", "5,30"])
def test_rows_and_columns_together_are_a_grid(rows: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that is read has a value for each place."""
    monkeypatch.setattr(tuning, "FUSIONS_FROM", 1 << 10)
    rank = rows.count(",") + 1
    text = f"""HloModule m
ENTRY %e (r: s32[{rows}], c: s32[90]) -> s32[{rows},90] {{
  %r = s32[{rows}] parameter(0)
  %c = s32[90] parameter(1)
  %rows = s32[{rows},90] broadcast(%r), dimensions={{{",".join(map(str, range(rank)))}}}
  %columns = s32[{rows},90] broadcast(%c), dimensions={{{rank}}}
  %a = s32[{rows},90] add(%rows, %columns)
  %b = s32[{rows},90] multiply(%a, %a)
  %d = s32[{rows},90] xor(%b, %a)
  %e = s32[{rows},90] subtract(%d, %b)
  ROOT %f = s32[{rows},90] divide(%e, %a)
}}"""
    given = [torch.arange(3, 3 + math.prod(dims_of(d)), dtype=torch.int32).reshape(dims_of(d)) for d in (rows, "90")]
    (got,), ran = pieces_of(xla_torch.parse_hlo(text), *given)
    assert ran
    assert np.array_equal(got.numpy(), run_xla(text, *(t.numpy() for t in given))[0])
