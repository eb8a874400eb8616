"""Which reducers are proven to be associative, and that what is proven is so."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import xla_torch
from support.reductions import binary_region, entry, module, shape_text
from support.regions import ASSOCIATIVE, HORNER, HORNER_OF_TWO, Regions
from xla_torch.analysis.associativity import is_associative, is_commutative
from xla_torch.hlo.ir import Computation
from xla_torch.lowering import bodies  # noqa: F401  (fills the table)
from xla_torch.lowering.evaluator import Evaluator

ZEROS = {"pred": "false", "c64": "(0,0)"}


def reducer(text: str, types: Sequence[str]) -> Computation:
    """The computation called "reducer" of a text, in a program that reduces arrays of these types with it."""
    shapes = [shape_text(t, ()) for t in types]
    result = f"({', '.join(shapes)})" if len(types) > 1 else shapes[0]
    operands = ", ".join([f"p{k}" for k in range(len(types))] + [f"i{k}" for k in range(len(types))])
    inits = [f"i{k} = {shape_text(t, ())} constant({ZEROS.get(t, '0')})" for k, t in enumerate(types)]
    program = xla_torch.parse_hlo(module(text, entry([shape_text(t, (3,)) for t in types], *inits,
                                                     f"r = {result} reduce({operands}), dimensions={{0}}, to_apply=reducer")))
    return program.entry.root.attributes["to_apply"]


def of_two(text: str, *lines: str) -> Computation:
    """A reducer of two scalars a and b by lines of HLO in which T[] is their shape; the last one is the result."""
    return reducer(binary_region(text, "\n  ".join([*lines[:-1], f"ROOT {lines[-1]}"])), [text])


def of_pairs(first: str, second: str, *lines: str) -> Computation:
    """A reducer of two pairs (a, i) and (b, j); the last two lines are the results."""
    names = [line.partition(" ")[0] for line in lines[-2:]]
    body = "\n  ".join([f"a = {first}[] parameter(0)", f"i = {second}[] parameter(1)", f"b = {first}[] parameter(2)",
                        f"j = {second}[] parameter(3)", *lines, f"ROOT r = ({first}[], {second}[]) tuple({', '.join(names)})"])
    return reducer(f"reducer {{\n  {body}\n}}\n", [first, second])


LOGADDEXP = ("m = T[] maximum(a, b)", "d = T[] subtract(a, b)", "e = T[] abs(d)", "n = T[] negate(e)", "x = T[] exponential(n)",
             "l = T[] log-plus-one(x)", "s = T[] add(m, l)", "t = T[] add(a, b)", "p = pred[] compare(d, d), direction=NE",
             "c = T[] select(p, t, s)")
"""As jax.numpy writes it."""

LARGEST_SQUARE = (
    "x = f32[] multiply(a, a)", "y = f32[] multiply(b, b)", "more = pred[] compare(x, y), direction=GT",
    "same = pred[] compare(x, y), direction=EQ", "na = pred[] compare(a, a), direction=NE",
    "nb = pred[] compare(b, b), direction=NE", "both = pred[] and(na, nb)", "low = pred[] compare(i, j), direction=LT",
    "equal = pred[] or(same, both)", "tie = pred[] and(equal, low)", "fb = pred[] not(nb)", "any_nan = pred[] and(na, fb)",
    "more_or_nan = pred[] or(more, any_nan)", "keep = pred[] or(more_or_nan, tie)", "v = f32[] select(keep, a, b)",
    "k = s32[] select(keep, i, j)")

WELFORD = """reducer {
  na = f32[] parameter(0)
  ma = f32[] parameter(1)
  sa = f32[] parameter(2)
  nb = f32[] parameter(3)
  mb = f32[] parameter(4)
  sb = f32[] parameter(5)
  n = f32[] add(na, nb)
  d = f32[] subtract(mb, ma)
  q = f32[] divide(nb, n)
  e = f32[] multiply(d, q)
  m = f32[] add(ma, e)
  dd = f32[] multiply(d, d)
  w = f32[] multiply(na, q)
  f = f32[] multiply(dd, w)
  ss = f32[] add(sa, sb)
  s = f32[] add(ss, f)
  ROOT t = (f32[], f32[], f32[]) tuple(n, m, s)
}
"""
"""Count, mean and sum of squared differences of two samples together."""

PROVEN = {
    # recognised kinds, also in a wider type
    "sum": of_two("f32", "c = T[] add(a, b)"), "exclusive or": of_two("s32", "c = T[] xor(a, b)"),
    "parity": of_two("pred", "c = T[] xor(a, b)"), "complex product": of_two("c64", "c = T[] multiply(a, b)"),
    "the new one": of_two("f16", "c = T[] copy(b)"), "a constant": of_two("f32", "c = T[] constant(3)"),
    "sum in f32": of_two("bf16", "x = f32[] convert(a)", "y = f32[] convert(b)", "s = f32[] add(x, y)", "c = T[] convert(s)"),
    # polynomials and quotients
    "1 + c = (1 + a)(1 + b)": of_two("f32", "m = T[] multiply(a, b)", "s = T[] add(a, b)", "c = T[] add(m, s)"),
    "sum of velocities": of_two("f64", "m = T[] multiply(a, b)", "k = T[] constant(1)", "n = T[] add(m, k)", "s = T[] add(a, b)",
                                "c = T[] divide(s, n)"),
    "parallel resistors": of_two("f32", "m = T[] multiply(a, b)", "s = T[] add(a, b)", "c = T[] divide(m, s)"),
    "affine maps": of_pairs("f32", "f32", "m = f32[] multiply(a, b)", "n = f32[] multiply(i, b)", "o = f32[] add(n, j)",
                            "x = f32[] copy(m)", "y = f32[] copy(o)"),
    "Welford": reducer(WELFORD, ["f32"] * 3),
    # exponentials, logarithms, roots
    "log of sum of exp": of_two("f64", "p = T[] exponential(a)", "q = T[] exponential(b)", "s = T[] add(p, q)", "c = T[] log(s)"),
    "log of sum of exp, maximum first": of_two(
        "f32", "m = T[] maximum(a, b)", "d = T[] subtract(a, m)", "e = T[] subtract(b, m)", "x = T[] exponential(d)",
        "y = T[] exponential(e)", "z = T[] add(x, y)", "l = T[] log(z)", "c = T[] add(m, l)"),
    "logaddexp": of_two("f32", *LOGADDEXP),
    "running softmax": of_pairs(
        "f32", "f32", "n = f32[] maximum(a, b)", "d = f32[] subtract(a, n)", "e = f32[] subtract(b, n)",
        "x = f32[] exponential(d)",
        "y = f32[] exponential(e)", "p = f32[] multiply(i, x)", "q = f32[] multiply(j, y)", "m = f32[] maximum(a, b)",
        "s = f32[] add(p, q)"),
    "length": of_two("bf16", "m = T[] multiply(a, a)", "n = T[] multiply(b, b)", "s = T[] add(m, n)", "c = T[] sqrt(s)"),
    # order
    "maximum, told by comparing": of_two("s32", "p = pred[] compare(a, b), direction=GT", "c = T[] select(p, a, b)"),
    "maximum of the two and the smaller one": of_two("f32", "m = T[] maximum(a, b)", "d = T[] minimum(a, b)",
                                                     "c = T[] maximum(m, d)"),
    "maximum of sums": of_pairs("f32", "f32", "e = f32[] add(a, b)", "f = f32[] add(i, b)", "x = f32[] copy(e)",
                                "y = f32[] maximum(f, j)"),
    "largest square, NaN first, ties by number": of_pairs("f32", "s32", *LARGEST_SQUARE),
    "first that is not zero": of_two("f32", "z = T[] constant(0)", "p = pred[] compare(a, z), direction=NE",
                                     "c = T[] select(p, a, b)"),
    # all that is associative for every operand in other tests
    **{name: reducer(ASSOCIATIVE[name].text(), ASSOCIATIVE[name].types) for name in (
        "affine maps", "matrix product", "complex product of pairs", "last that is not zero", "last", "circle product",
        "largest by key", "both extremes and where", "sum within segments")},
}

NOT_PROVEN = {
    "difference": of_two("f32", "c = T[] subtract(a, b)"), "mean": of_two(
        "f32", "s = T[] add(a, b)", "h = T[] constant(0.5)", "c = T[] multiply(s, h)"),
    "not a, and b": of_two("pred", "n = T[] not(a)", "c = T[] and(n, b)"),
    "sum of squares": of_two("f32", "m = T[] multiply(b, b)", "c = T[] add(a, m)"),
    "largest absolute value": of_two("f32", "m = T[] abs(b)", "c = T[] maximum(a, m)"),
    "halved sum of integers": of_two("u16", "h = T[] constant(2)", "s = T[] add(a, b)", "c = T[] divide(s, h)"),
    "rounded sum": of_two("f32", "s = T[] add(a, b)", "c = T[] floor(s)"),
    "power": of_two("f32", "c = T[] power(a, b)"),
    "signs that differ in bits that are read in two ways": of_two(
        "s32", "x = s8[] convert(a)", "u = u8[] convert(x)", "y = s32[] convert(u)", "v = s8[] convert(b)",
        "w = s32[] convert(v)", "z = s32[] subtract(y, w)", "c = T[] add(a, z)"),
    "angle": of_two("f32", "c = T[] atan2(a, b)"),
    # which is associative but for one of many operands: what 512 examples need not show
    "sum up to a limit that is seldom met": of_two("s64", "s = T[] add(a, b)", "k = T[] constant(1000000)",
                                                   "c = T[] minimum(s, k)"),
    "sum up to a limit": of_two("f32", "s = T[] add(a, b)", "k = T[] constant(100)", "c = T[] minimum(s, k)"),
    "sum, but for one number": of_two("s32", "s = T[] add(a, b)", "k = T[] constant(123456789)",
                                      "p = pred[] compare(a, k), direction=EQ", "c = T[] select(p, b, s)"),
    "sum with a small part of the product": of_two("f8e5m2", "m = T[] multiply(a, b)", "k = T[] constant(0.015625)",
                                                   "n = T[] multiply(m, a)", "o = T[] multiply(n, k)", "s = T[] add(a, b)",
                                                   "c = T[] add(s, o)"),
    # of NaNs it keeps what stands behind them
    "maximum without NaN, told by comparing": of_two("f32", "p = pred[] compare(a, b), direction=GT", "c = T[] select(p, a, b)"),
    # associative for operands of a certain range only, or with loops
    **{name: reducer(ASSOCIATIVE[name].text(), ASSOCIATIVE[name].types) for name in (
        "sum up to the limit", "brackets", "greatest common divisor")},
    "Horner": reducer(HORNER.text(), HORNER.types), "Horner of two": reducer(HORNER_OF_TWO.text(), HORNER_OF_TWO.types),
}


@pytest.mark.parametrize("name", PROVEN)
def test_proven(name: str):
    assert is_associative(PROVEN[name])
    assert not differing(PROVEN[name], count=4096).any()


@pytest.mark.parametrize("name", PROVEN)
def test_what_commutes(name: str):
    assert is_commutative(PROVEN[name]) == (not differing(PROVEN[name], count=4096, swapped=True).any())


@pytest.mark.parametrize("name", NOT_PROVEN)
def test_not_proven(name: str):
    assert not is_associative(NOT_PROVEN[name])


# ------------------------------------------------------------------------------------------------ what is proven is so

FLOATS = (-2.0, -1.0, 0.0, 0.5, 1.0, 3.0, float("nan"))


def differing(computation: Computation, count: int, swapped: bool = False) -> torch.Tensor:
    """Of drawn triples those for which (a b) c and a (b c) differ, or a b and b a if they are `swapped`: integers at all, floats
    by more than roundings, where no result on the way overflows or is NaN of itself."""
    runner, types = Evaluator(), [p.shape.element_type for p in computation.parameters]
    generator, half = torch.Generator().manual_seed(1), len(types) // 2
    dtypes = [runner.number(0, t).dtype for t in types]
    # A quotient by zero is NaN of itself, which is not told from a NaN that was given.
    floats = FLOATS[:-1] if any(i.opcode == "divide" for i in computation.instructions) else FLOATS

    def drawn(dtype: torch.dtype) -> torch.Tensor:
        if dtype.is_complex:
            return torch.randn(count, generator=generator, dtype=dtype)
        if dtype is torch.bool or dtype.is_floating_point:
            choices = torch.tensor((False, True) if dtype is torch.bool else floats, dtype=dtype)
        else:
            limits = torch.iinfo(dtype)
            choices = torch.tensor([limits.min, limits.min + 1, limits.max, *range(max(limits.min, -3), 4)], dtype=dtype)
        return choices[torch.randint(0, len(choices), (count,), generator=generator)]

    a, b, c = ([drawn(d) for d in dtypes[:half]] for _ in range(3))

    def combined(left: Sequence[torch.Tensor], right: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [r.expand(count) for r in runner.apply_region(computation, [*left, *right], (count,))]

    ab, bc = combined(a, b), combined(b, c)
    one, other = (ab, combined(b, a)) if swapped else (combined(ab, c), combined(a, bc))
    lost = torch.stack([_lost(results, given) for results, given in (
        (ab, [*a, *b]), (bc, [*b, *c]), (one, [*a, *b, *c]), (other, [*a, *b, *c]))])
    differ = torch.stack([~torch.isclose(x, y, 1e-2, 1e-2, equal_nan=True) if x.is_floating_point() or x.is_complex() else x != y
                          for x, y in zip(one, other, strict=True)])
    return differ.any(0) & ~lost.any(0)


def _lost(results: Sequence[torch.Tensor], given: Sequence[torch.Tensor]) -> torch.Tensor:
    """Where a result has overflowed, or is NaN without one among what it comes from."""
    nan = torch.stack([x.isnan() for x in given]).any(0)
    return torch.stack([(x.isnan() & ~nan) | (x.abs() > 1e6) for x in results if x.is_floating_point()] or [nan & False]).any(0)


@given(st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))  # pyright: ignore[reportArgumentType]
def test_no_drawn_reducer_is_proven_wrongly(data: st.DataObject):
    regions = Regions(data.draw, control=False)
    types = data.draw(st.lists(st.sampled_from(("pred", "s8", "u8", "s32", "f32")), min_size=1, max_size=2))
    name = regions.region([*types, *types], types, "reducer")
    assert name == "reducer"
    computation = reducer("".join(regions.texts), types)
    if is_associative(computation):
        assert not differing(computation, count=1024).any()
        assert not (is_commutative(computation) and differing(computation, count=1024, swapped=True).any())


def test_results_that_do_not_depend_on_one_another_are_proven_each():
    one = of_pairs("s32", "f32", "x = s32[] add(a, b)", "y = f32[] multiply(i, j)")
    assert is_associative(one)
    assert not is_associative(of_pairs("s32", "f32", "x = s32[] add(a, b)", "y = f32[] subtract(i, j)"))


def test_a_reducer_of_other_types_than_its_result_is_not_associative():
    lines = ("a = f32[] parameter(0)", "b = s32[] parameter(1)", "c = f32[] convert(b)", "ROOT d = f32[] add(a, c)")
    body = "reducer {\n  " + "\n  ".join(lines) + "\n}\n"
    program = xla_torch.parse_hlo(module(body, entry(
        ["f32[3]", "s32[3]"], "r = f32[3] map(p0, p1), dimensions={0}, to_apply=reducer")))
    assert not is_associative(program.entry.root.attributes["to_apply"])
