"""Reductions to a maximum and sums scaled to it: which reducers are recognised, and results beside XLA's and a legal order's."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import torch

import xla_torch
from support.native_programs import native_after
from support.oracle import needs_xla
from support.reductions import agree, close, entry, module, ours, shape_text, values, without
from xla_torch.analysis.scaled_sums import scaling_maximum
from xla_torch.codegen.compiled import is_available
from xla_torch.core import tuning

MAXIMUM = "top = T[] maximum(m, n)"
ROUND = "top = T[] maximum(n, m)"
NAN_FIRST = """more = pred[] compare(m, n), direction=GE
  odd = pred[] compare(m, m), direction=NE
  keep = pred[] or(more, odd)
  top = T[] select(keep, m, n)"""
LOWER_LAST = """less = pred[] compare(n, m), direction=LT
  odd = pred[] compare(m, m), direction=NE
  keep = pred[] or(odd, less)
  chosen = T[] select(keep, m, n)
  top = T[] copy(chosen)"""
LOSES_NAN = """more = pred[] compare(m, n), direction=GT
  top = T[] select(more, m, n)"""
AT_LEAST_ONE = """one = T[] constant(1)
  both = T[] maximum(m, n)
  top = T[] maximum(both, one)"""

SCALES = """dm = T[] subtract(m, top)
  dn = T[] subtract(n, top)
  em = T[] exponential(dm)
  en = T[] exponential(dn)"""
MAXIMUM_AGAIN = """again = T[] maximum(n, m)
  dm = T[] subtract(m, again)
  dn = T[] subtract(n, top)
  em = T[] exponential(dm)
  en = T[] exponential(dn)"""
ABOVE = SCALES.replace("subtract(m, top)", "subtract(top, m)")
SUM = "p = T[] multiply(s, em)\n  q = T[] multiply(t, en)\n  r = T[] add(p, q)"
TURNED = "p = T[] multiply(em, s)\n  q = T[] multiply(t, en)\n  r = T[] add(q, p)"


def reducer(top: str = MAXIMUM, scales: str = SCALES, total: str = SUM, text: str = "f32", first: str = "m",
            results: str = "") -> str:
    """Pairs (m, s) and (n, t), or (s, m) and (t, n) where s is `first`."""
    names = "msnt" if first == "m" else "smtn"
    lines = [f"{name} = T[] parameter({k})" for k, name in enumerate(names)]
    results = results or ("top, r" if first == "m" else "r, top")
    body = "\n  ".join([*lines, top, scales, total, f"ROOT pair = (T[], T[]) tuple({results})"])
    return f"reducer {{\n  {body}\n}}\n".replace("T[]", f"{text}[]")


WEIGHTED = """reducer {
  s = f32[] parameter(0)
  m = f32[] parameter(1)
  v = f32[] parameter(2)
  t = f32[] parameter(3)
  n = f32[] parameter(4)
  w = f32[] parameter(5)
  top = f32[] maximum(m, n)
  dm = f32[] subtract(m, top)
  dn = f32[] subtract(n, top)
  em = f32[] exponential(dm)
  en = f32[] exponential(dn)
  p = f32[] multiply(s, em)
  q = f32[] multiply(t, en)
  r = f32[] add(p, q)
  x = f32[] multiply(em, v)
  y = f32[] multiply(en, w)
  z = f32[] add(x, y)
  ROOT all = (f32[], f32[], f32[]) tuple(r, top, z)
}
"""
"""Sums of weights and of weighted values, as softmax that goes along a row carries them."""


def reduction(text: str, dims: tuple[int, ...], reduced: list[int], kind: str = "f32", count: int = 2,
              inits: tuple[str, ...] = (), given: str = "", second: str = "p1") -> str:
    """Operands p0, p1, ... of a type, and inits that are numbers, or scalars behind them."""
    shape, result = shape_text(kind, dims), shape_text(kind, without(dims, reduced))
    parameters = [shape] * count + ([] if inits else [f"{kind}[]"] * count)
    lines = [f"i{k} = {kind}[] constant({value})" for k, value in enumerate(inits)] or [
        f"i{k} = {kind}[] copy(p{count + k})" for k in range(count)]
    operands = ", ".join(["p0", second, *(f"p{k}" for k in range(2, count)), *(f"i{k}" for k in range(count))])
    whole = ", ".join([result] * count)
    return module(text, entry(parameters, *lines, *filter(None, [given]), f"r = ({whole}) reduce({operands}), "
                              f"dimensions={{{','.join(map(str, reduced))}}}, to_apply=reducer"))


@pytest.mark.parametrize(("text", "found"), [
    (reducer(), 0), (reducer(first="s"), 1), (reducer(ROUND), 0), (reducer(NAN_FIRST), 0), (reducer(LOWER_LAST, total=TURNED), 0),
    (reducer(scales=MAXIMUM_AGAIN), 0), (reducer(total=TURNED, first="s"), 1), (reducer(text="bf16"), 0),
    (reducer(LOSES_NAN), None), (reducer(AT_LEAST_ONE), None), (reducer(scales=ABOVE), None),
    (reducer(MAXIMUM.replace("max", "min")), None),
    (reducer(total=SUM.replace("multiply(s, em)", "multiply(s, en)")), None),
    (reducer(total=SUM.replace("multiply(t, en)", "multiply(n, en)")), None),
    (reducer(total=SUM.replace("multiply(t, en)", "multiply(t, em)")), None),
    (reducer(total=SUM.replace("add", "subtract")), None),
    (reducer(scales=SCALES.replace("exponential(dm)", "exponential-minus-one(dm)")), None),
    (reducer(results="top, top"), None), (reducer(results="m, r"), None),
])
def test_what_is_recognised(text: str, found: int | None) -> None:
    kind = "bf16" if "bf16" in text else "f32"
    program = xla_torch.parse_hlo(reduction(text, (3, 4), [1], kind))
    assert scaling_maximum(program.entry.root.attributes["to_apply"]) == found


def test_more_sums_are_recognised() -> None:
    program = xla_torch.parse_hlo(reduction(WEIGHTED, (3, 4), [1], count=3))
    assert scaling_maximum(program.entry.root.attributes["to_apply"]) == 1


CALLED = reducer().replace("reducer", "inner") + """reducer {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = f32[] parameter(2)
  d = f32[] parameter(3)
  ROOT met = (f32[], f32[]) call(a, b, c, d), to_apply=inner
}
"""

WHOLE = [(reducer(), "f32", 2), (CALLED, "f32", 2), (reducer(NAN_FIRST, first="s"), "f32", 2),
         (reducer(text="f64"), "f64", 2), (WEIGHTED, "f32", 3)]


@needs_xla
@pytest.mark.parametrize(("text", "kind", "count"), WHOLE)
@pytest.mark.parametrize(("dims", "reduced"), [
    ((7,), [0]), ((5, 9), [0]), ((5, 9), [1]), ((5, 9), [0, 1]), ((3, 4, 5), [1]), ((3, 4, 5), [0, 2]),
    ((130, 70), [0]), ((130, 70), [1]), ((3, 0), [1]), ((0, 3), [1]), ((300, 257), [0]), ((300, 257), [1])])
def test_as_xla(text: str, kind: str, count: int, dims: tuple[int, ...], reduced: list[int]) -> None:
    """From scalars that are given, which count once. (XLA leaves them out where one element is reduced.)"""
    program = reduction(text, dims, reduced, kind, count)
    given = [values(kind, *dims, seed=k) for k in range(count)] + [values(kind, seed=9 + k) for k in range(count)]
    assert ("reduce_by" in xla_torch.parse_hlo(program).python_code()) == any(dims[d] == 0 for d in reduced)
    agree(program, *given)


@needs_xla
@pytest.mark.parametrize("inits", [("-3e38", "0"), ("-inf", "0"), ("-inf", "3"), ("1.5", "2"), ("-1", "0"), ("nan", "0"),
                                   ("0", "nan"), ("inf", "0"), ("-inf", "inf"), ("0", "-inf")])
@pytest.mark.parametrize("ones", [True, False])
def test_what_it_begins_with(inits: tuple[str, str], ones: bool) -> None:
    text = reduction(reducer(), (6, 9), [1], inits=inits, second="w" if ones else "p1", given=(
        "one = f32[] constant(1)\n  w = f32[6,9] broadcast(one), dimensions={}" if ones else ""))
    agree(text, *(values("f32", 6, 9, seed=s) for s in range(2)))


def test_ones_are_not_multiplied_by() -> None:
    text = reduction(reducer(), (6, 9), [1], inits=("-inf", "0"), second="w",
                     given="one = f32[] constant(1)\n  w = f32[6,9] broadcast(one), dimensions={}")
    code = xla_torch.parse_hlo(text).python_code()
    assert code.count("torch.exp(") == 1
    assert "*" not in code.replace("*,", "")


def largest_first(m: np.ndarray, s: np.ndarray, m0: float, s0: float) -> list[np.ndarray]:
    """Pairs along the last dimension, and one that they begin with, where the one with the largest number comes first, and all
    others meet it one after another."""
    results = []
    rows = math.prod(m.shape[:-1]), m.shape[-1]
    for numbers, sums in zip(*(x.astype(np.float64).reshape(rows) for x in (m, s)), strict=True):
        pairs = [(m0, s0), *zip(numbers, sums, strict=True)]
        pairs.sort(key=lambda pair: -math.inf if math.isnan(pair[0]) else -pair[0])
        top, total = pairs[0]
        for n, t in pairs[1:]:
            both = np.maximum(top, n)
            top, total = both, total * np.exp(top - both) + t * np.exp(n - both)
        results.append((top, total))
    return [np.array(r, m.dtype).reshape(m.shape[:-1]) for r in zip(*results, strict=True)]


SPECIAL = [0, -1.5, 60, -math.inf, -3e38, math.inf, math.nan]


@pytest.mark.parametrize(("m0", "s0"), [*itertools.product(["-inf", "-3e38", "0", "inf", "nan"], ["0", "2"])])
@pytest.mark.parametrize("known", [5, 6, 7])
@pytest.mark.parametrize("dims", [(40, 4), (40, 1), (4, 30, 9)])
@np.errstate(all="ignore")
def test_infinities_and_nan(m0: str, s0: str, known: int, dims: tuple[int, ...]) -> None:
    """XLA leaves the order open, and results differ by it where minus infinity meets itself (which is NaN) or a sum is infinite.
    They are those of the order in which the largest number comes first: where all are minus infinity, NaN, and else it adds
    nothing."""
    m = values("f32", *dims, choices=SPECIAL[:known])
    s = values("f32", *dims, seed=1, choices=[1, -2, 0, -0.0, math.inf, math.nan][:known - 1])
    text = reduction(reducer(), dims, [len(dims) - 1], inits=(m0, s0))
    want = largest_first(m, s, float(np.float32(m0)), float(s0))
    for got, wanted in zip(ours(text, m, s), want, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
    given = reduction(reducer(), dims, [len(dims) - 1])
    for got, wanted in zip(ours(given, m, s, np.asarray(m0, "f4"), np.asarray(s0, "f4")), want, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


@needs_xla
@pytest.mark.parametrize("low", ["-inf", "-3e38"])
def test_rows_of_minus_infinity_as_xla(low: str) -> None:
    """From a finite number on, in every order: they add nothing. From minus infinity on, in every order: NaN."""
    m = np.full((3, 5), -np.inf, np.float32)
    agree(reduction(reducer(), (3, 5), [1], inits=(low, "0")), m, np.ones_like(m))


@needs_xla
@pytest.mark.parametrize("kind", ["bf16", "f16"])
def test_narrow_floats_meet_one_by_one(kind: str) -> None:
    text = reduction(reducer(text=kind), (5, 9), [1], kind)
    assert "reduce_by" in xla_torch.parse_hlo(text).python_code()
    agree(text, *(values(kind, 5, 9, seed=k) for k in range(2)), *(values(kind, seed=9 + k) for k in range(2)))


@pytest.mark.skipif(not is_available(), reason="there is no C compiler")
@pytest.mark.parametrize("less", [1, 0])
@pytest.mark.parametrize(("dims", "reduced"), [((-1, 16), [0]), ((16, -1), [1]), ((2, -1, 8), [1]), ((2, 8, -1), [1, 2])])
def test_many_elements_by_columns_meet_in_native_code(
        dims: tuple[int, ...], reduced: list[int], less: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tuning, "MET_BY_COLUMNS_FROM", 1 << 14)
    sizes = tuple(1024 - less if n < 0 else n for n in dims)
    text, by_columns = reduction(reducer(), sizes, reduced, inits=("-inf", "0")), len(dims) - 1 not in reduced
    code = xla_torch.parse_hlo(text).python_code()
    assert ("reduce_by" in code) == (by_columns and not less)
    m, s = (values("f32", *sizes, seed=k) for k in range(2))
    axes, top = tuple(reduced), m.max(tuple(reduced))
    with native_after(0.0, tmp_path):
        results = ours(text, m, s)
    for got, wanted in zip(results, [top, (s * np.exp(m - np.expand_dims(top, axes))).sum(axes)], strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("length", [4, 0])
def test_dynamic_dimensions_may_be_empty(length: int) -> None:
    text = reduction(reducer(), (7,), [0], inits=("0.5", "2")).replace("f32[7]", "f32[<=7]")
    m, s = (torch.from_numpy(values("f32", length, seed=k)) for k in range(2))
    want = largest_first(m.numpy()[None], s.numpy()[None], 0.5, 2.0)
    for got, wanted in zip(xla_torch.parse_hlo(text)(m, s), want, strict=True):
        close(got.numpy(), wanted[0])


@pytest.mark.parametrize(("dims", "reduced"), [((5,), [0]), ((2, 3), [1]), ((2, 3, 2), [0, 2])])
def test_gradients(dims: tuple[int, ...], reduced: list[int]) -> None:
    computation = xla_torch.parse_hlo(reduction(reducer(text="f64"), dims, reduced, "f64"))
    given = [torch.from_numpy(values("f64", *p.dimensions, seed=k)).requires_grad_()
             for k, p in enumerate(computation.program_shape.parameters)]
    assert torch.autograd.gradcheck(computation, given)
