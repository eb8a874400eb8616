"""Reduce-window and select-and-scatter: against real XLA, the documents' examples, and the errors they name."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import xla_torch
from support.oracle import needs_xla, run_xla
from support.reductions import AFFINE, agree, binary_region, close, entry, module, ours, shape_text, values
from xla_torch import Shape, XlaBuilder, ops
from xla_torch.analysis.comparators import compared_in_order
from xla_torch.codegen.compiled import is_available
from xla_torch.core import tuning
from xla_torch.errors import InvalidArgument
from xla_torch.kernels import native
from xla_torch.ops import Padding
from xla_torch.transform.canonical import canonicalize
from xla_torch.types import F32, S32, PrimitiveType

SAME, VALID = Padding.SAME, Padding.VALID
NAN = float("nan")


def region(function, element_type: PrimitiveType = F32) -> xla_torch.XlaComputation:
    builder = XlaBuilder("region")
    return builder.build(function(*(builder.parameter(k, Shape.array(element_type)) for k in range(2))))


ADD, MIN, MAX, GE = region(ops.Add), region(ops.Min), region(ops.Max), region(ops.Ge)
ADD_INT, MIN_INT, GE_INT = region(ops.Add, S32), region(ops.Min, S32), region(ops.Ge, S32)

Dimension = tuple[int, int, int, int, int, int]
"""Size, stride, low and high padding, base dilation, window dilation."""
PLAIN: Dimension = (1, 1, 0, 0, 1, 1)


def window_text(window: list[Dimension]) -> str:
    def each(write) -> str:
        return "x".join(write(*d) for d in window)

    text = f"size={each(lambda s, *_: str(s))} stride={each(lambda _, s, *__: str(s))}"
    text += f" pad={each(lambda _, __, low, high, *___: f'{low}_{high}')}"
    if any(d[4:] != (1, 1) for d in window):
        text += f" lhs_dilate={each(lambda *d: str(d[4]))} rhs_dilate={each(lambda *d: str(d[5]))}"
    return f"window={{{text}}}"


def positions(dims, window: list[Dimension]) -> list[int]:
    found = []
    for n, (size, stride, low, high, base, dilation) in zip(dims, window, strict=True):
        padded, reach = low + high + ((n - 1) * base + 1 if n else 0), (size - 1) * dilation + 1
        found.append(0 if padded < reach else (padded - reach) // stride + 1)
    return found


def reduce_window_text(text, step, dims, window, init) -> str:
    return module(binary_region(text, step), entry(
        [shape_text(text, dims)], f"i = {text}[] constant({init})",
        f"r = {shape_text(text, positions(dims, window))} reduce-window(p0, i), {window_text(window)}, to_apply=reducer"))


# ------------------------------------------------------------------------------------------------ geometry

WINDOWS = [
    ((6,), [(2, 1, 0, 0, 1, 1)]),
    ((6,), [(2, 2, 1, 0, 1, 1)]),
    ((6,), [(3, 2, 1, 1, 2, 1)]),
    ((6,), [(3, 1, 0, 0, 1, 2)]),
    ((6,), [(3, 2, -1, 2, 1, 2)]),
    ((6,), [(2, 1, -2, -1, 1, 1)]),
    ((6,), [(2, 1, 3, 3, 1, 1)]),
    ((6,), [(9, 1, 0, 0, 1, 1)]),
    ((0,), [(2, 1, 2, 1, 1, 1)]),
    ((4, 6), [(2, 2, 0, 0, 1, 1), (3, 3, 0, 0, 1, 1)]),
    ((4, 5), [(3, 1, 1, 1, 1, 1), (2, 2, 0, 1, 2, 1)]),
    ((2, 5, 5), [PLAIN, (3, 2, 1, 1, 1, 1), (2, 2, 0, 1, 1, 1)]),
    ((64,), [(16, 1, 0, 0, 1, 1)]),
    ((64,), [(13, 1, 12, 3, 1, 2)]),
    ((64,), [(11, 3, 0, 2, 2, 1)]),
    ((3, 64), [PLAIN, (16, 16, 0, 0, 1, 1)]),
    ((64, 3), [(10, 12, 5, 5, 1, 1), PLAIN]),
    ((3, 40), [PLAIN, (40, 40, 0, 0, 1, 1)]),
]

OTHER = "m = T[] maximum(a, b)\n  d = T[] subtract(m, m)\n  ROOT c = T[] add(m, d)"
"""A maximum that is not known to be one."""

INITS = {"add": "0", "maximum": "-100", OTHER: "-100"}


@needs_xla
@pytest.mark.parametrize("step", INITS, ids=["add", "maximum", "other"])
@pytest.mark.parametrize(("dims", "window"), WINDOWS)
def test_windows(step, dims, window):
    agree(reduce_window_text("f32", step, dims, window, INITS[step]), values("f32", *dims))


@needs_xla
@pytest.mark.parametrize(("text", "step", "init"), [
    ("pred", "or", "false"), ("pred", "add", "false"), ("s8", "add", "0"), ("u8", "maximum", "0"),
    ("u32", "minimum", "4294967295"), ("u32", "maximum", "0"), ("s32", "multiply", "1"),
    ("u64", "add", "0"), ("s32", "xor", "0"), ("s32", "and", "-1"),
    ("f16", "add", "0"), ("bf16", "add", "0"), ("bf16", "maximum", "-inf"), ("f64", "multiply", "1"), ("c64", "add", "(0, 0)"),
    ("c64", "multiply", "(1, 0)")])
def test_window_types(text, step, init):
    for window in ([(2, 2, 1, 0, 1, 1), (3, 1, 1, 1, 1, 1)], [PLAIN, (5, 1, 4, 0, 1, 1)], [(4, 1, 0, 3, 1, 1), PLAIN]):
        agree(reduce_window_text(text, step, (4, 5), window, init), values(text, 4, 5))


@needs_xla
@pytest.mark.parametrize("step", ["maximum", "minimum", "add"])
def test_nan_in_windows(step):
    init = {"maximum": "-inf", "minimum": "inf", "add": "0"}[step]
    x = values("f32", 4, 6, choices=[1.0, 2.0, -3.0, NAN])
    for window in ([(2, 2, 1, 1, 1, 1), (3, 1, 1, 0, 1, 1)], [PLAIN, (6, 1, 5, 0, 1, 1)], [(4, 1, 0, 3, 1, 1), PLAIN]):
        agree(reduce_window_text("f32", step, (4, 6), window, init), x)


@needs_xla
@pytest.mark.parametrize(("step", "init"), [("add", "5"), ("multiply", "2"), ("maximum", "3"), ("ROOT c = T[] copy(a)", "5"),
                                            ("subtract", "5")])
def test_an_init_value_counts_once_in_each_window(step, init):
    for window in ([(2, 2, 1, 0, 1, 1)], [(5, 1, 4, 0, 1, 1)], [(5, 1, 0, 4, 1, 1)], [(2, 3, 0, 4, 1, 1)]):
        agree(reduce_window_text("s32", step, (5,), window, init), values("s32", 5))


# ------------------------------------------------------------------------------------------------ repeated elements

TWICE, THRICE, AGAIN = "1_1_1", "2_2_2", (2, 1, 0, 0, 1, 1)
REPEATS: dict[str, tuple[bool, str, list[Dimension], str, str]] = {
    "mean pooling": (True, f"{TWICE}x{TWICE}", [AGAIN, AGAIN], "0", "add"),
    "one dimension": (True, f"0_0x{THRICE}", [PLAIN, (3, 1, 0, 0, 1, 1)], "0", "add"),
    "dilation by the window": (True, "0_0x0_0", [(3, 1, 2, 2, 3, 1), (2, 1, 1, 1, 2, 1)], "0", "add"),
    "both": (True, f"{TWICE}x0_0", [AGAIN, (2, 1, 1, 1, 2, 1)], "0", "add"),
    "ends by the window": (True, "0_0_1x0_0_1", [(2, 1, 1, 1, 1, 1), (2, 1, 1, 1, 1, 1)], "0", "add"),
    "another value": (False, f"{TWICE}x{TWICE}", [AGAIN, AGAIN], "1", "add"),
    "a negative zero": (False, f"{TWICE}x{TWICE}", [AGAIN, AGAIN], "-0", "add"),
    "another reducer": (False, f"{TWICE}x{TWICE}", [AGAIN, AGAIN], "0", "maximum"),
    "a cut end": (False, f"0_1_1x{TWICE}", [AGAIN, AGAIN], "0", "add"),
    "windows that meet": (False, f"{TWICE}x{TWICE}", [(3, 1, 0, 0, 1, 1), AGAIN], "0", "add"),
    "strides": (False, f"{TWICE}x{TWICE}", [(2, 2, 0, 0, 1, 1), AGAIN], "0", "add"),
    "dilated windows": (False, f"{TWICE}x{TWICE}", [(2, 1, 0, 0, 1, 2), AGAIN], "0", "add"),
    "a running sum": (False, "0_0x0_0", [PLAIN, (4, 1, 3, 0, 1, 1)], "0", "add"),
}
"""Whether elements are repeated, the padding, the window, the value between them and the reducer."""


@needs_xla
@pytest.mark.parametrize("text", ["f32", "bf16", "c64", "s32"])
@pytest.mark.parametrize("name", REPEATS)
def test_windows_of_one_element_each_repeat_it(name, text):
    repeats, padding, window, value, step = REPEATS[name]
    if (text, step) == ("c64", "maximum") or (text, value) == ("s32", "-0"):
        pytest.skip("complex numbers have no order, integers no negative zero")
    padded = [low + high + 3 + k + (2 + k) * (inner[0] if inner else 0)
              for k, (low, high, *inner) in enumerate([int(n) for n in each.split("_")] for each in padding.split("x"))]
    number = {"c64": f"({value}, {value})", "s32": str(int(value))}.get(text, value)
    program = module(binary_region(text, step), entry(
        [shape_text(text, (3, 4))], f"i = {text}[] constant({number})",
        f"w = {shape_text(text, padded)} pad(p0, i), padding={padding}",
        f"r = {shape_text(text, positions(padded, window))} reduce-window(w, i), {window_text(window)}, to_apply=reducer"))
    ops_of = [i.opcode for i in canonicalize(xla_torch.parse_hlo(program).module.entry).instructions]
    assert ("reduce-window" in ops_of) is not repeats
    if repeats:  # XLA drops the pad of the other rows where it is the initial value, neutral or not
        x = values(text, 3, 4, choices=[7, 1, 0] if text == "s32" else [-0.0, NAN, 1.5, float("inf"), -2.25])
        kind = np.complex128 if text == "c64" else np.float64
        got, want = (a.astype(kind) for (a,) in (ours(program, x), run_xla(program, x)))
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(np.signbit(got.real[~np.isnan(got)]), np.signbit(want.real[~np.isnan(want)]))


# ------------------------------------------------------------------------------------------------ order

def affine_in_windows(x, y, dims, window, inits):
    """The reference: each window by itself, its elements in row-major order."""
    counts = positions(dims, window)
    first, second = np.empty(counts, np.float32), np.empty(counts, np.float32)
    for at in np.ndindex(*counts):
        a, b = inits
        for element in np.ndindex(*(d[0] for d in window)):
            places = [p * w[1] + k * w[5] - w[2] for p, k, w in zip(at, element, window, strict=True)]
            if all(q >= 0 and q % w[4] == 0 and q // w[4] < n for q, w, n in zip(places, window, dims, strict=True)):
                held = tuple(q // w[4] for q, w in zip(places, window, strict=True))
                a, b = a * x[held], b * x[held] + y[held]
        first[at], second[at] = a, b
    return first, second


@pytest.mark.parametrize(("dims", "window"), [w for w in WINDOWS if 0 not in positions(*w)] + [
    ((7,), [(7, 1, 6, 0, 1, 1)]), ((3, 9), [PLAIN, (9, 1, 0, 8, 1, 1)]), ((9, 3), [(9, 1, 8, 0, 1, 1), PLAIN])])
def test_the_order_of_elements_is_kept(dims, window):
    shape, result = shape_text("f32", dims), shape_text("f32", positions(dims, window))
    text = module(AFFINE, entry([shape, shape], "i = f32[] constant(2)", "j = f32[] constant(3)",
                                f"r = ({result}, {result}) reduce-window(p0, p1, i, j), {window_text(window)}, to_apply=reducer"))
    x, y = 1 + 0.1 * values("f32", *dims), values("f32", *dims, seed=1)
    for got, want in zip(ours(text, x, y), affine_in_windows(x, y, dims, window, (2, 3)), strict=True):
        close(got, want)


@needs_xla
@pytest.mark.parametrize("direction", ["GE", "LE"])
def test_gathering_what_a_window_selects(direction):
    reducer = f"""reducer {{
  a = f32[] parameter(0)
  i = f32[] parameter(1)
  b = f32[] parameter(2)
  j = f32[] parameter(3)
  keep = pred[] compare(a, b), direction={direction}
  v = f32[] select(keep, a, b)
  k = f32[] select(keep, i, j)
  ROOT t = (f32[], f32[]) tuple(v, k)
}}
"""
    text = module(reducer, entry(["f32[4,6]", "f32[4,6]"], f"i = f32[] constant({'-inf' if direction == 'GE' else 'inf'})",
                                 "j = f32[] constant(0)", "r = (f32[3,3], f32[3,3]) reduce-window(p0, p1, i, j), "
                                 "window={size=2x2 stride=1x2}, to_apply=reducer"))
    agree(text, values("f32", 4, 6, choices=[1, 2, 3]), values("f32", 4, 6))


@pytest.mark.parametrize(("step", "call"), [
    ("add", "running_total"), ("multiply", "running_total"), ("maximum", "running_extreme")])
@pytest.mark.parametrize("window", [[PLAIN, (6, 1, 5, 0, 1, 1)], [(4, 1, 0, 3, 1, 1), PLAIN]])
def test_running_windows_are_recognised(step, call, window):
    assert call in xla_torch.parse_hlo(reduce_window_text("f32", step, (4, 6), window, "1")).python_code()


# ------------------------------------------------------------------------------------------------ documents


def test_document_examples_of_reduce_window():
    x = torch.tensor([10000, 1000, 100, 10, 1], dtype=torch.int32)
    worst = 2**31 - 1
    assert ops.ReduceWindow(x, worst, MIN_INT, [3], [2], VALID).tolist() == [100, 1]
    assert ops.ReduceWindow(x, worst, MIN_INT, [3], [2], SAME).tolist() == [1000, 10, 1]
    assert ops.ReduceWindowWithGeneralPadding(x, 5, ADD_INT, [2], [2], padding=[(1, 0)]).tolist() == [10005, 1105, 16]
    matrix = torch.arange(24.0).reshape(4, 6)
    assert ops.ReduceWindow(matrix, float("-inf"), MAX, [2, 3], [2, 3], VALID).tolist() == [[8, 11], [20, 23]]
    holes = ops.ReduceWindowWithGeneralPadding(
        torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), 0.0, ADD, [2, 1], [4, 1], [2, 1], [3, 1], [(2, 1), (0, 0)])
    assert holes.tolist() == [[0, 0], [3, 4]]


FIGURE = torch.tensor([[7, 2, 5, 3, 10, 2], [3, 8, 9, 3, 4, 2], [1, 5, 7, 5, 6, 1], [0, 6, 2, 7, 2, 8]], dtype=torch.float32)


def test_document_examples_of_select_and_scatter():
    source = torch.tensor([[2.0, 6.0], [3.0, 1.0]])
    apart = ops.SelectAndScatter(FIGURE, GE, [2, 3], [2, 3], VALID, source, 0.0, ADD)
    assert {(r, c): apart[r, c].item() for r, c in apart.nonzero().tolist()} == {(0, 4): 6, (1, 2): 2, (2, 2): 3, (3, 5): 1}
    overlapping = ops.SelectAndScatter(FIGURE, GE, [2, 3], [2, 2], VALID, source, 0.0, ADD)
    assert overlapping[1, 2].item() == 2
    assert overlapping[0, 4].item() == 6
    one = ops.SelectAndScatterWithGeneralPadding(torch.tensor([-5, -6, -7], dtype=torch.int32), GE_INT, [2], [2], [(1, 0)],
                                                 torch.tensor([1, 2], dtype=torch.int32), 10, ADD_INT)
    assert one.tolist() == [11, 12, 10]


def test_two_windows_may_select_one_element():
    source = torch.tensor([[2.0, 6.0]])
    both = ops.SelectAndScatter(torch.tensor([[1.0, 2.0, 9.0, 3.0, 4.0]]), GE, [1, 3], [1, 2], VALID, source, 0.0, ADD)
    assert both.tolist() == [[0, 0, 8, 0, 0]]


def test_make_padding():
    assert ops.MakePadding([5, 6], [3, 2], [2, 1], SAME) == [(1, 1), (0, 1)]
    assert ops.MakePadding([5, 6], [3, 2], [2, 1], VALID) == [(0, 0), (0, 0)]
    assert ops.MakePadding([4], [2], [2], SAME) == [(0, 0)]


# ------------------------------------------------------------------------------------------------ select and scatter

SELECTED = [
    ((6,), [(2, 2, 0, 0, 1, 1)]),
    ((6,), [(3, 1, 0, 0, 1, 1)]),
    ((6,), [(3, 1, 2, 1, 1, 1)]),
    ((6,), [(2, 2, -1, -1, 1, 1)]),
    ((5,), [(1, 2, 1, 3, 1, 1)]),
    ((4, 6), [(2, 2, 0, 0, 1, 1), (3, 3, 0, 0, 1, 1)]),
    ((4, 6), [(3, 1, 1, 1, 1, 1), (2, 2, 0, 1, 1, 1)]),
    ((2, 4, 4), [PLAIN, (2, 1, 0, 1, 1, 1), (2, 2, -1, 2, 1, 1)]),
    ((4, 200), [PLAIN, (100, 100, 0, 0, 1, 1)]),
    ((4, 200), [(2, 1, 0, 1, 1, 1), (70, 30, 5, 3, 1, 1)]),
]


def select_text(text, direction, step, dims, window, init) -> str:
    chooser = binary_region(text, f"ROOT c = pred[] compare(a, b), direction={direction}", "chooser")
    shape, source = shape_text(text, dims), shape_text(text, positions(dims, window))
    return module(chooser, binary_region(text, step), entry(
        [shape, source], f"i = {text}[] constant({init})",
        f"r = {shape} select-and-scatter(p0, p1, i), {window_text(window)}, select=chooser, scatter=reducer"))


@needs_xla
@pytest.mark.parametrize("step", ["add", "multiply", "maximum", "m = T[] subtract(a, b)\n  ROOT c = T[] add(m, m)"],
                         ids=["add", "multiply", "maximum", "other"])
@pytest.mark.parametrize(("dims", "window"), SELECTED)
def test_select_and_scatter(step, dims, window):
    x, source = values("f32", *dims, choices=[1, 2, 3, 4]), values("f32", *positions(dims, window), seed=1)
    for direction in ("GE", "LE"):
        agree(select_text("f32", direction, step, dims, window, "1"), x, source)


@needs_xla
@pytest.mark.parametrize(("text", "step"), [
    ("pred", "or"), ("pred", "add"), ("s8", "add"), ("u8", "maximum"), ("s16", "add"), ("u32", "minimum"), ("u64", "add"),
    ("f16", "add"), ("bf16", "add"), ("f64", "multiply")])
def test_select_and_scatter_types(text, step):
    window: list[Dimension] = [(2, 1, 0, 1, 1, 1), (3, 2, 1, 1, 1, 1)]
    x, source = values(text, 4, 6), values(text, *positions((4, 6), window), seed=1)
    agree(select_text(text, "GE", step, (4, 6), window, "true" if text == "pred" else "1"), x, source)


@needs_xla
@pytest.mark.parametrize("row", list(itertools.permutations([1.0, 2.0, 3.0, NAN])))
def test_nan_is_selected_as_the_chooser_says(row):
    for direction in ("GE", "LT"):
        text = select_text("f32", direction, "add", (4,), [(4, 1, 0, 0, 1, 1)], "0")
        agree(text, np.array(row, np.float32), np.ones(1, np.float32))


BY_ONE_FUNCTION = [
    *SELECTED, ((2, 5, 5, 70), [PLAIN, (3, 2, 0, 1, 1, 1), (3, 2, 0, 1, 1, 1), PLAIN]),
    ((3, 4, 9), [PLAIN, PLAIN, (4, 2, 1, 1, 1, 1)]),
    ((2, 150), [PLAIN, (3, 1, 2, 2, 1, 1)]), ((2, 150), [PLAIN, (3, 2, 1, 0, 1, 1)]),  # more windows than go side by side
    ((3, 400), [(2, 1, 0, 0, 1, 1), (5, 3, 4, 3, 1, 1)]), ((2, 7), [PLAIN, (12, 2, 9, 9, 1, 1)]),
    ((2, 3, 4, 5), [PLAIN, (2, 1, 0, 0, 1, 1), (2, 2, 0, 0, 1, 1), (2, 3, 0, 2, 1, 1)]),
    ((3, 2, 4), [(2, 1, 0, 0, 1, 1), PLAIN, (2, 2, 0, 0, 1, 1)])]
OTHERWISE = [
    ((2, 2, 2, 3), [(2, 1, 0, 0, 1, 1)] * 4),  # over more dimensions than the function has: torch's calls
    ((2, 3, 4, 5), [PLAIN, (2, 1, 0, 0, 1, 1), (2, 2, 1, 0, 1, 1), (2, 3, 0, 2, 1, 1)])]  # of equal ones XLA takes another here


@pytest.mark.skipif(not is_available(), reason="there is no C compiler")
@pytest.mark.parametrize("text", ["f32", "f64"])
@pytest.mark.parametrize(("dims", "window"), [*BY_ONE_FUNCTION, *OTHERWISE])
def test_select_and_scatter_in_native_code(dims, window, text, monkeypatch, tmp_path):
    """The bits that torch's calls give, whatever the comparison, with NaNs, infinities, zeros of both signs and ties."""
    monkeypatch.setenv("XLA_TORCH_CACHE", str(tmp_path))
    monkeypatch.setattr(native, "_FOR_A_THREAD", 8)
    x = values(text, *dims, choices=[1, 2, 3, NAN, np.inf, -np.inf, 0.0, -0.0])
    source = values(text, *positions(dims, window), seed=1)
    for direction, mirrored in itertools.product(("GE", "GT", "LE", "LT"), (False, True)):
        program = select_text(text, direction, "add", dims, window, "0.5")
        program = program.replace("compare(a, b)", "compare(b, a)") if mirrored else program
        results = []
        for after in (0.0, np.inf):
            monkeypatch.setattr(tuning, "NATIVE_AFTER", after)
            results.append(ours(program, x, source)[0])
        assert results[0].tobytes() == results[1].tobytes(), (direction, mirrored)


@pytest.mark.skipif(not is_available(), reason="there is no C compiler")
@needs_xla
@pytest.mark.parametrize(("dims", "window"), BY_ONE_FUNCTION)
def test_native_code_selects_as_xla_does(dims, window, monkeypatch, tmp_path):
    monkeypatch.setenv("XLA_TORCH_CACHE", str(tmp_path))
    monkeypatch.setattr(tuning, "NATIVE_AFTER", 0.0)
    test_select_and_scatter("add", dims, window)


@pytest.mark.parametrize(("call", "found"), [
    ("compare(a, b), direction=GE", ">="), ("compare(b, a), direction=GE", "<="), ("compare(a, b), direction=LT", "<"),
    ("compare(a, b), direction=EQ", ""), ("compare(a, b), direction=GE, type=TOTALORDER", ""),
    ("compare(a, a), direction=GE", "")])
def test_what_a_choice_compares(call, found):
    text = module(binary_region("f32", f"ROOT c = pred[] {call}", "chooser"), entry(
        ["f32[4]", "f32[4]"], "r = f32[4] add(p0, p1)"))
    chooser = next(c for c in xla_torch.parse_hlo(text).module.unreachable if c.name == "chooser")
    assert compared_in_order(chooser) == found


def test_a_window_of_padding_writes_nothing():
    out = ops.SelectAndScatterWithGeneralPadding(torch.tensor([1.0, 2.0]), GE, [2], [2], [(2, 2)], torch.tensor([7.0, 8.0, 9.0]),
                                                 0.5, ADD)
    assert out.tolist() == [0.5, 8.5]


# ------------------------------------------------------------------------------------------------ errors

SELECT = region(lambda a, b: ops.Select(ops.Ge(a, b), a, b))


def reduce_window(x, **changes):
    given = {"init_values": 0.0, "computation": ADD, "window_dimensions": [1, 2], "window_strides": [1, 1]} | changes
    return ops.ReduceWindowWithGeneralPadding(x, **given)


def scatter(x, source_dims=(2, 2), **changes):
    source = x.builder.parameter(1, Shape.array(F32, source_dims))
    given = {"select": GE, "window_dimensions": [1, 2], "window_strides": [1, 1], "padding": [(0, 0), (0, 0)], "source": source,
             "init_value": 0.0, "scatter": ADD} | changes
    return ops.SelectAndScatterWithGeneralPadding(x, **given)


@pytest.mark.parametrize(("call", "message"), [
    (lambda x: reduce_window(x, window_dimensions=[2]), "window_dimensions has another length"),
    (lambda x: reduce_window(x, window_strides=[2]), "window_strides has another length"),
    (lambda x: reduce_window(x, padding=[(0, 0)]), "padding has another length"),
    (lambda x: reduce_window(x, window_dimensions=[0, 1]), "size in dimension 0 is not positive"),
    (lambda x: reduce_window(x, window_strides=[1, 0]), "stride in dimension 1 is not positive"),
    (lambda x: reduce_window(x, base_dilations=[1, 0]), "base dilation in dimension 1"),
    (lambda x: reduce_window(x, window_dilations=[1, -1]), "window dilation in dimension 1"),
    (lambda x: reduce_window(x, computation=ADD_INT), "does not fit"),
    (lambda x: reduce_window(x, computation=GE), "not of the type of parameter 0"),
    (lambda x: ops.ReduceWindow(x, 0.0, ADD, [1], [1], SAME), "another number of dimensions"),
    (lambda x: scatter(x, (2, 3)), "one element for each window"),
    (lambda x: scatter(x, select=SELECT), "does not return PRED"),
    (lambda x: scatter(x, select=GE_INT), "select computation does not fit"),
    (lambda x: scatter(x, scatter=ADD_INT), "does not fit"),
    (lambda x: scatter(x, scatter=GE), "not of the type of parameter 0"),
])
def test_windows_refuse(call, message):
    with pytest.raises(InvalidArgument, match=message):
        call(XlaBuilder("b").parameter(0, Shape.array(F32, (2, 3))))


def test_dilated_select_and_scatter_is_refused():
    text = select_text("f32", "GE", "add", (6,), [(2, 1, 0, 0, 1, 2)], "0")
    with pytest.raises(InvalidArgument, match="dilated"):
        xla_torch.parse_hlo(text)
