"""Programs whose values depend on what XLA leaves open, or does in a way of its own: a row for each, in groups.

Arguments are such that the order of additions does not show: every sum on the way is exact in float32, and what a narrower type
rounds shows how often it is rounded. Where values differ all the same, a line of `tests/documents/values.txt` says why.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from support.agreement import dtype_of, element_type
from support.reductions import binary_region, reduce_text, shape_text

FLOATS = ("bf16", "f16", "f32", "f64", "f8e4m3fn", "f8e5m2", "f8e3m4")
INTEGERS = ("s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64")
NARROW = ("s4", "u4")
"""XLA's CPU compiler takes these in dots and convolutions only where operands and result are of one type."""


class Row(NamedTuple):
    """A program and its arguments; in how many units of the last place two libraries' functions may differ."""

    name: str
    text: str
    arrays: tuple[np.ndarray, ...]
    ulps: int = 0


def array(kind: str, dims: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Numbers whose products and sums of some hundred of them are exact in float32: integers of the type's whole range, quarters
    from -2 to 2."""
    rng, made = np.random.RandomState(seed), element_type(kind)
    if made.is_pred:
        return rng.randint(0, 2, dims).astype(bool)
    if made.is_integral:
        low = -(1 << min(made.bits, 62) - 1) if made.is_signed else 0
        return rng.randint(low, low + (1 << min(made.bits, 62)), dims, np.int64).astype(dtype_of(kind))
    quarters = rng.randint(-8, 9, dims) / 4
    return np.asarray(quarters + 1j * rng.randint(-8, 9, dims) / 4 if made.is_complex else quarters).astype(dtype_of(kind))


def module(instructions: str, *arguments: str, regions: str = "") -> str:
    """A program of instructions, which ``;`` separates, the last of them the root, on parameters p0, p1, ... of these shapes."""
    lines = [f"p{k} = {shape} parameter({k})" for k, shape in enumerate(arguments)]
    *before, last = instructions.split("; ")
    body = "".join(f"  {line}\n" for line in [*lines, *before, f"ROOT r = {last}"])
    return f"HloModule values\n\n{regions}ENTRY e {{\n{body}}}\n"


# ------------------------------------------------------------------------------------------- products


def _small(kind: str) -> bool:
    """Integers of it, as large as they are, have exact sums in float32."""
    return not element_type(kind).is_integral or element_type(kind).bits <= 8


def _dots() -> Iterator[Row]:
    """Operands and results of every two types, and many of three: factors are of the highest, rounded where they are made."""
    kinds = (*FLOATS, *INTEGERS, "pred", "c64", "c128")
    triples = [(a, b, r) for a, b, r in itertools.product(kinds, repeat=3)
               if (a == b or (len(a + b + r) + kinds.index(a) + 2 * kinds.index(b) + 3 * kinds.index(r)) % 61 == 0)]
    for a, b, r in [*triples, *((k, k, k) for k in NARROW)]:
        types = [element_type(k) for k in (a, b, r)]
        if any(t.is_complex for t in types) and not types[2].is_complex and not types[2].is_floating:
            continue  # documents/values.txt: complex
        if not all(t.is_integral or t.is_pred for t in types) and not (_small(a) and _small(b)):
            continue  # large integers as floats: the order of additions would show
        yield Row(f"dot-{a}-{b}-{r}", module(f"{r}[5,4] dot(p0, p1), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
                                             f"{a}[5,9]", f"{b}[9,4]"), (array(a, (5, 9), 1), array(b, (9, 4), 2)))


_CONVOLUTIONS = (
    ((2, 6, 6, 3), (3, 3, 3, 5), "2,6,6,5", "size=3x3 pad=1_1x1_1", "b01f_01io->b01f", ""),
    ((2, 6, 6, 4), (3, 3, 2, 6), "2,11,3,6", "size=3x3 stride=1x2 pad=1_1x0_1 lhs_dilate=2x1 rhs_reversal=1x0", "b01f_01io->b01f",
     ", feature_group_count=2"),
    ((6, 6, 2, 3), (3, 3, 5, 3), "6,6,2,5", "size=3x3 pad=1_1x1_1", "01bf_01oi->01bf", ""),
    ((4, 3, 6, 5), (6, 3, 3, 2), "2,4,4,6", "size=3x2", "bf01_oi01->b01f", ", batch_group_count=2"),
    ((2, 6, 6, 4), (3, 3, 1, 8), "2,8,2,4", "size=3x3 rhs_dilate=2x1 pad=0_0x0_0", "b01f_01io->bf01", ", feature_group_count=4"),
    ((3, 7, 5, 2), (2, 3, 2, 4), "7,3,3,4", "size=2x3 pad=-1_2x1_1 stride=1x2 lhs_dilate=1x1", "b01f_01io->0b1f", ""),
)
_LAYOUTS = ("{3,2,1,0}", "{0,1,2,3}", "{1,3,0,2}", "{2,1,3,0}", "{3,0,1,2}")


def _convolution(form: int, operand: str, result: str, layouts: tuple[str, str, str] = ("", "", "")) -> Row:
    image, kernel, sizes, window, labels, more = _CONVOLUTIONS[form]
    first, second = (shape_text(operand, dims) + layout for dims, layout in zip((image, kernel), layouts, strict=False))
    text = module(f"{result}[{sizes}]{layouts[2]} convolution(p0, p1), window={{{window}}}, dim_labels={labels}{more}",
                  first, second)
    name = f"convolution-{form}-{operand}-{result}" + "".join(layouts)
    return Row(name, text, (array(operand, image, 1), array(operand, kernel, 2)))


def _convolutions() -> Iterator[Row]:
    for form, kind in itertools.product(range(len(_CONVOLUTIONS)), (*FLOATS, *INTEGERS, *NARROW, "c64")):
        yield _convolution(form, kind, kind)
    for operand, result in itertools.permutations(("bf16", "f16", "f32", "f8e4m3fn", "s8", "u8", "s32"), 2):
        if _small(operand) or element_type(result).is_integral:
            yield _convolution(0, operand, result)


def _layouts() -> Iterator[Row]:
    """Layouts say where elements lie, not which they are."""
    for k, (form, kind) in enumerate(itertools.product(range(len(_CONVOLUTIONS)), ("f32", "bf16", "s32"))):
        yield _convolution(form, kind, kind, (_LAYOUTS[k % 5], _LAYOUTS[(2 * k + 1) % 5], _LAYOUTS[(3 * k + 2) % 5]))


# ------------------------------------------------------------------------------------------- sorts


def _comparator(kinds: tuple[str, ...], lines: str) -> str:
    parameters = [f"a{k} = {kind}[] parameter({2 * k}); b{k} = {kind}[] parameter({2 * k + 1})" for k, kind in enumerate(kinds)]
    *before, last = "; ".join([*parameters, lines]).split("; ")
    return "before {\n" + "".join(f"  {line}\n" for line in [*before, f"ROOT r = {last}"]) + "}\n\n"


_ORDERS = {
    "less": "pred[] compare(a0, b0), direction=LT", "greater": "pred[] compare(a0, b0), direction=GT",
    "at-most": "pred[] compare(a0, b0), direction=LE", "at-least": "pred[] compare(a0, b0), direction=GE",
    "total": "pred[] compare(a0, b0), direction=LT, type=TOTALORDER",
    "size": "x = f32[] abs(a0); y = f32[] abs(b0); pred[] compare(x, y), direction=LT",
}
"""Some order elements that are not the same alike, and the second pair of these says of equals that each comes first."""


def _sorts() -> Iterator[Row]:
    """Stable ones of every size; others of up to 16 elements, which XLA leaves in order too (documents/values.txt)."""
    for (name, lines), (count, stable) in itertools.product(_ORDERS.items(), ((5, False), (16, False), (5, True), (17, True),
                                                                               (40, True), (1000, True))):
        keys = np.random.RandomState(count).choice(np.array([0.0, -0.0, 1, -1, 2, np.nan], "f"), count)
        keys = keys if name == "total" else np.nan_to_num(keys, nan=3)  # in other orders NaNs have no place
        text = module(f"(f32[{count}], s32[{count}]) sort(p0, p1), dimensions={{0}}, is_stable={str(stable).lower()}, "
                      "to_apply=before", f"f32[{count}]", f"s32[{count}]", regions=_comparator(("f32", "s32"), lines))
        yield Row(f"sort-{name}-{count}" + "-stable" * stable, text, (keys, np.arange(count, dtype=np.int32)))
    for largest in ("true", "false"):
        text = module(f"(f32[3,7], s32[3,7]) topk(p0), k=7, largest={largest}", "f32[3,50]")
        yield Row(f"topk-{largest}", text, (np.random.RandomState(0).randint(-3, 4, (3, 50)).astype("f"),))


# ------------------------------------------------------------------------------------------- reductions

_REDUCED = (((7,), (0,)), ((5, 9), (1,)), ((5, 9), (0,)), ((300,), (0,)), ((4, 70, 3), (1,)), ((40, 40), (0, 1)))


_STEPS = (("add", 0, (0, 0, 0, 0, 1)), ("add", 1, (0, 1)), ("multiply", 1, (1, 1, 1, 1, 1, 1, 1, 2)), ("maximum", 0, (0, 1, 2)),
          ("minimum", 1, (0, 1, 2)))
"""Reducers, inits, and elements to choose from."""


def _reductions() -> Iterator[Row]:
    """In every type, elements such that nothing is rounded on the way; an init that changes something counts once, as long as XLA
    does not reduce in pieces (documents/values.txt)."""
    for kind in (*FLOATS, "f4e2m1fn", *INTEGERS, *NARROW, "s2", "u2"):
        shapes = _REDUCED if kind in ("bf16", "f32", "s8", "s4") else (_REDUCED[1], _REDUCED[4])
        for (step, init, choices), (dims, reduced) in itertools.product(_STEPS, shapes):
            if (step, init) == ("add", 1) and max(dims) > 32:
                continue
            yield Row(f"reduce-{step}-{kind}-{init}-{dims}-{reduced}".replace(" ", ""),
                      reduce_text(kind, step, dims, reduced, str(init)), (_elements(kind, step, choices, dims),))


def _elements(kind: str, step: str, choices: tuple[int, ...], dims: tuple[int, ...]) -> np.ndarray:
    made, bits = np.random.RandomState(1).choice(choices, dims), element_type(kind).bits
    if bits == 2:
        made = np.minimum(made, 1)
    elif bits < 16 and element_type(kind).is_floating and step in ("add", "multiply"):  # few that change anything
        places = np.arange(made.size).reshape(dims)
        made = np.where((places % 23 < 2) & (places < 70), made, int(step == "multiply"))
    return made.astype(dtype_of(kind))


def _chosen() -> Iterator[Row]:
    """select-and-scatter where NaNs, which no comparison tells apart, make what is chosen a matter of order."""
    lines = ("a = f32[] parameter(0)", "b = f32[] parameter(1)", "ROOT r = pred[] compare(a, b), direction=%s")
    regions = "chooser {\n" + "".join(f"  {line}\n" for line in lines) + "}\n\n" + binary_region("f32", "add") + "\n"
    for direction, (size, stride), nans in itertools.product(("GE", "GT"), ((20, 1), (64, 1), (70, 1), (70, 70)), (0, 1, 3)):
        count = (200 - size) // stride + 1
        values = np.random.RandomState(0).randint(0, 9, 200).astype("f")
        values[np.random.RandomState(5).randint(0, 200, nans)] = np.nan
        text = module(f"z = f32[] constant(0); f32[200] select-and-scatter(p0, p1, z), window={{size={size} stride={stride}}}, "
                      "select=chooser, scatter=reducer", "f32[200]", f"f32[{count}]", regions=regions % direction)
        yield Row(f"select-{direction}-{size}-{stride}-{nans}", text, (values, np.arange(1, count + 1).astype("f")))


# ------------------------------------------------------------------------------------------- powers, conversions, literals

_BASES = ("0", "1", "-1", "2", "-2", "0.5", "-0.5", "3", "-8", "10", "1.5", "inf", "-inf", "nan", "1e4")


def _constant(kind: str, words: tuple[str, ...]) -> str:
    return f"{kind}[{len(words)}] constant({{{', '.join(words)}}})"


def _powers() -> Iterator[Row]:
    """Of parameters, folded, and by a constant, which is simplified; but for what documents/values.txt says."""
    for kind in ("f32", "f64", "bf16", "f16", "s32", "u8", "s8"):
        integral, ulps = element_type(kind).is_integral, 2 if kind == "f64" else 0
        bases = ("0", "1", "2", "3", "7", "5") + ("-1", "-2", "-3") * (kind[0] == "s") if integral else (*_BASES, "-0.0")
        for folded in (False, True):
            pairs = [(a, b) for a in bases for b in bases if not (folded and integral and "-" in b)]
            words = tuple(zip(*pairs, strict=True))
            count, arrays = len(pairs), tuple(np.array([float(w) for w in side]).astype(dtype_of(kind)) for side in words)
            if folded:
                text = module(f"a = {_constant(kind, words[0])}; b = {_constant(kind, words[1])}; {kind}[{count}] power(a, b)")
            else:
                text = module(f"{kind}[{count}] power(p0, p1)", f"{kind}[{count}]", f"{kind}[{count}]")
            yield Row(f"power-{kind}" + "-folded" * folded, text, () if folded else arrays, ulps)
        for exponent in ("2", "3", "0", "1") if integral else ("2", "3", "-1", "0.5", "-0.5", "0", "1", "-2"):
            values = np.array([float(b) for b in bases]).astype(dtype_of(kind))
            shape = f"{kind}[{len(bases)}]"
            yield Row(f"power-{kind}-{exponent}", module(
                f"e = {kind}[] constant({exponent}); b = {shape} broadcast(e), dimensions={{}}; {shape} power(p0, b)", shape),
                (values,), ulps)


_CONVERTED = ("f32", "f16", "bf16", "f8e4m3fn", "f8e5m2", "f8e3m4", "f4e2m1fn", "s8", "u8", "s32", "u32", "s64", "s4", "u4",
              "pred", "f64", "s16")
_FROM = np.array([0, -0.0, 1, -1, 2.5, -2.5, 300, -300, 1e6, -1e6, 65519, 65520, 0.1, 3e9, -3e9, 1e20, np.inf, -np.inf, np.nan,
                  7.5, -8.5, 127.5, 255.5, 1.0009765625 + 2**-12, 17, 19, 27, 0.49999997])


def _conversions() -> Iterator[Row]:
    """Chains of two, which compilers are tempted to shorten, of parameters and folded; there and back between computations."""
    for (i, a), (j, b), (k, c) in itertools.product(enumerate(_CONVERTED), repeat=3):
        if a == b or b == c or (i * 7 + j * 3 + k) % 53 or _from_four_bits(a, b) or _from_four_bits(b, c):
            continue
        with np.errstate(all="ignore"):
            given = _FROM.astype(dtype_of(a)) if element_type(a).is_floating else array(a, (28,), i)
        steps = f"a = {b}[28] convert(%s); {c}[28] convert(a)"
        yield Row(f"convert-{a}-{b}-{c}", module(steps % "p0", f"{a}[28]"), (given,))
        if "f4e2m1fn" not in (b, c):  # documents/values.txt: infinities
            words = tuple(_word(a, x) for x in given)
            yield Row(f"convert-{a}-{b}-{c}-folded", module(f"p0 = {_constant(a, words)}; {steps % 'p0'}"), ())
    values = np.array([1.00390625 + 2**-12, 0.1, 300.3, 1e-3, 65519.0, 1.0009765625 + 2**-13])
    for a, b in itertools.product(("f32", "f64", "bf16", "f16"), ("bf16", "f16", "f8e4m3fn", "f8e5m2", "f32", "s8")):
        if a != b:
            with np.errstate(all="ignore"):
                yield Row(f"convert-between-{a}-{b}", module(
                    f"n = {a}[6] add(p0, p0); c = {b}[6] convert(n); d = {a}[6] convert(c); {a}[6] add(d, p0)", f"{a}[6]"),
                    (values.astype(dtype_of(a)),))


def _from_four_bits(source: str, target: str) -> bool:
    """A conversion that XLA's CPU code does wrong (documents/values.txt)."""
    return source == "f4e2m1fn" and element_type(target).is_integral


def _word(kind: str, value: np.generic) -> str:
    if kind == "pred":
        return str(bool(value)).lower()
    return repr(float(value)) if element_type(kind).is_floating else str(int(value))


def _literals() -> Iterator[Row]:
    for kind, word in itertools.product(("f32", "f64", "bf16", "f16"), (
            "-0.0", "-0e0", "-.0", "0", "-1e-400", "-1e-50", "16777217", "33554433", "9007199254740993", "123456789123456789",
            "9223372036854775807", "-9223372036854775808", "0.1", "1e-45", "1.1754944e-38")):
        if kind != "f16" or abs(float(word)) < 65504:
            yield Row(f"literal-{kind}-{word}", module(f"{kind}[] constant({word})"), ())
    for kind, word in itertools.product(("s64", "u64"), ("-1", "9223372036854775807", "9223372036854775808",
                                                         "18446744073709551615", "-9223372036854775808")):
        yield Row(f"literal-{kind}-{word}", module(f"{kind}[] constant({word})"), ())


# ------------------------------------------------------------------------------------------- sizes known at run time


def _dynamic() -> Iterator[Row]:
    """What is computed of arrays that are smaller than their shapes say, where results have static sizes."""
    cut = "d = {0}[4,<=6] set-dimension-size(p0, p1), dimensions={{1}}"
    total = "z = {0}[] constant(%d); {0}[%s] reduce(d, z), dimensions={%s}, to_apply=reducer"
    for kind, size in itertools.product(("f32", "s32", "bf16"), (0, 1, 5, 6)):
        for name, step, rest in (("size", "", "s32[] get-dimension-size(d), dimensions={1}"),
                                 ("sum", "add", total % (0, "4", "1")), ("product", "multiply", total % (1, "", "0,1")),
                                 ("largest", "maximum", total % (-9, "4", "1")),
                                 ("product-with-itself", "", "{0}[4,4] dot(d, d), lhs_contracting_dims={1}, "
                                                             "rhs_contracting_dims={1}")):
            text = module(f"{cut.format(kind)}; {rest.replace('{0}', kind)}", f"{kind}[4,6]", "s32[]",
                          regions=binary_region(kind, step) + "\n" if step else "")
            values = np.random.RandomState(3).randint(1, 3, (4, 6)).astype(dtype_of(kind))
            yield Row(f"dynamic-{name}-{kind}-{size}", text, (values, np.asarray(size, np.int32)))


GROUPS = {
    "dots": _dots, "convolutions": _convolutions, "layouts": _layouts, "sorts": _sorts, "reductions": _reductions,
    "chosen": _chosen, "powers": _powers, "conversions": _conversions, "literals": _literals, "dynamic": _dynamic}


def rows() -> list[Row]:
    """All rows, group by group."""
    return [row for group in GROUPS.values() for row in group()]
