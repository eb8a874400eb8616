"""Regions of any kind in every op that takes one: drawn ones and associative ones, against real XLA."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import xla_torch
from support.oracle import needs_xla, run_xla
from support.reductions import entry, module, shape_text, values
from support.regions import (
    ASSOCIATIVE,
    FLOATS,
    HORNER,
    HORNER_OF_TWO,
    TYPES,
    Associative,
    Draw,
    Regions,
    Side,
    dims_text,
    numbered,
    reduce_hlo,
    reduce_window_hlo,
    scan_body,
    scan_hlo,
    scatter_hlo,
    select_and_scatter_hlo,
    sort_hlo,
    window_counts,
)

Program = tuple[str, list[np.ndarray]]
NAMES = list(ASSOCIATIVE)


def agree(program: Program) -> None:
    """Every result is XLA's, bit for bit but for NaN."""
    text, arrays = program
    got, want = xla_torch.parse_hlo(text).run_numpy(*arrays), run_xla(text, *arrays)
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert g.dtype == w.dtype
        np.testing.assert_array_equal(g, w, err_msg=text)


# ------------------------------------------------------------------------------------------------ drawn regions


class Drawn(Regions):
    """What the rows below draw besides regions. A program has one float type: XLA takes no more in a map or a reduction."""

    def __init__(self, draw: Draw, control: bool = False):
        super().__init__(draw, control)
        one = self.choice(FLOATS)
        self.plain = [t for t in TYPES if t not in FLOATS or t == one]

    def types(self, most: int = 3) -> list[str]:
        return [self.choice(self.plain) for _ in range(self.number(1, most))]

    def dims(self, sizes: Sequence[int], most: int = 2) -> list[int]:
        return [self.choice(sizes) for _ in range(self.number(1, most))]

    def init(self, text: str) -> str:
        return self.choice({"pred": ("false", "true"), "c64": ("(0,0)", "(1,2)")}.get(text, ("0", "1", "3")))

    def arrays(self, types: Sequence[str], dims: Sequence[int]) -> list[np.ndarray]:
        seed = self.number(0, 99)
        return [self.array(t, dims, seed + k) for k, t in enumerate(types)]

    def array(self, text: str, dims: Sequence[int], seed: int) -> np.ndarray:
        if text in ("pred", "c64"):
            return np.round(values(text, *dims, seed=seed)) if text == "c64" else values(text, *dims, seed=seed)
        few = (-2, -1, -0.5, 0.25, 1, 2.5, 3) if text in FLOATS else range(0 if text[0] == "u" else -4, 8)
        return values(text, *dims, seed=seed, choices=[*few] if seed % 3 else None)

    def all_texts(self) -> str:
        return "".join(self.texts)


def _map(d: Drawn) -> Program:
    types, dims = d.types(), d.dims((0, 1, 2, 5))
    result = d.choice(types)
    d.region(types, [result], "mapped", depth=2)
    return module(d.all_texts(), entry([shape_text(t, dims) for t in types],
                                       f"r = {shape_text(result, dims)} map({numbered(len(types))}), "
                                       f"dimensions={{{dims_text(range(len(dims)))}}}, to_apply=mapped")), d.arrays(types, dims)


def _reduce(d: Drawn) -> Program:
    # Of one element alone XLA leaves the init value out, which it takes for the reducer's identity.
    # Of more than 32 elements of one array it takes the init value in more than once; of several arrays it takes one
    # element after another however many there are.
    types = d.types()
    dims = [d.choice((0, 2, 5, 32) if len(types) == 1 else (0, 2, 33)), *d.dims((1, 2, 5, 30), 2)]
    reduced = sorted({0, d.number(0, len(dims) - 1)})
    d.region([*types, *types], types, "reducer")
    return reduce_hlo(d.all_texts(), types, [d.init(t) for t in types], dims, reduced), d.arrays(types, dims)


def _window(d: Drawn, dims: Sequence[int], most: int) -> list[Side]:
    return [(d.number(1, most), d.number(1, 3), d.number(0, 2), d.number(0, 2), d.number(1, 2), d.number(1, 2)) for _ in dims]


def _reduce_window(d: Drawn) -> Program:
    types, dims = d.types(), d.dims((1, 2, 5, 12))
    d.region([*types, *types], types, "reducer")
    text = reduce_window_hlo(d.all_texts(), types, [d.init(t) for t in types], dims, _window(d, dims, 4))
    return text, d.arrays(types, dims)


def _scan(d: Drawn) -> Program:
    inputs, outputs, carries = d.types(2), d.types(2), d.types(2)
    d.region([*inputs, *carries], [*outputs, *carries], "step", packed=False)
    size = d.choice((1, 2, 5, 12))
    flags = d.choice(("", ", is_reverse=true", ", is_associative=false"))
    return (scan_hlo(d.all_texts(), inputs, outputs, carries, [size], 0, flags),
            [*d.arrays(inputs, [size]), *d.arrays(carries, [])])


def _scatter(d: Drawn) -> Program:
    types, dims, updates = d.types(2), d.dims((1, 2, 5)), d.choice((0, 1, 3, 30))
    d.region([*types, *types], types, "reducer", depth=0)
    where = np.random.RandomState(d.number(0, 99)).randint(-1, dims[0] + 1, (updates, 1)).astype(np.int32)
    return (scatter_hlo(d.all_texts(), types, dims, updates),
            [*d.arrays(types, dims), where, *d.arrays(types, [updates, *dims[1:]])])


def _select_and_scatter(d: Drawn) -> Program:
    """Of elements that are all different: of equal ones XLA's CPU code does not always take the first."""
    text, dims = d.choice([t for t in d.plain if t not in ("pred", "c64")]), d.dims((2, 5, 9))
    window: list[Side] = [(size, stride, min(low, size - 1), min(high, size - 1), 1, 1)
                          for size, stride, low, high, *_ in _window(d, dims, 3)]
    d.texts.append(f"chooser {{\n  a = {text}[] parameter(0)\n  b = {text}[] parameter(1)\n  ROOT c = pred[] compare(a, b), "
                   f"direction={d.choice(('GE', 'GT', 'LE', 'LT'))}\n}}\n")
    d.region([text, text], [text], "reducer")
    operand = np.random.RandomState(d.number(0, 99)).permutation(math.prod(dims)).reshape(dims)
    return (select_and_scatter_hlo(d.all_texts(), text, d.init(text), dims, window),
            [operand.astype(values(text, 0).dtype), *d.arrays([text], window_counts(dims, window))])


def _sort(d: Drawn) -> Program:
    """A total preorder: elements are compared by what a drawn region makes of them."""
    types, dims = d.types(), d.dims((1, 2, 5, 33, 100))
    _comparator(d, types)
    return sort_hlo(d.all_texts(), types, dims, d.number(0, len(dims) - 1)), d.arrays(types, dims)


def _comparator(d: Drawn, types: Sequence[str]) -> tuple[str, str]:
    """Draw a region "key" and a comparator "less" of what it makes. The key's type, and the comparison's direction."""
    key, direction = d.choice([t for t in types if t not in ("pred", "c64")] or ["s32"]), d.choice(("LT", "GT", "LE", "GE"))
    d.region(types, [key], "key", depth=2)
    parameters = [f"  {side}{k} = {t}[] parameter({2 * k + (side == 'b')})" for k, t in enumerate(types) for side in "ab"]
    keys = [f"  k{side} = {key}[] call({', '.join(f'{side}{k}' for k in range(len(types)))}), to_apply=key" for side in "ab"]
    less = f"  ROOT r = pred[] compare(ka, kb), direction={direction}"
    d.texts.append("less {\n" + "\n".join([*parameters, *keys, less]) + "\n}\n")
    return key, direction


ROWS: dict[str, Callable[[Drawn], Program]] = {
    "map": _map, "reduce": _reduce, "reduce-window": _reduce_window, "scan": _scan, "scatter": _scatter,
    "select-and-scatter": _select_and_scatter, "sort": _sort,
}


@st.composite
def programs(draw: Draw, name: str) -> Program:
    # In the regions of all other ops XLA's CPU compiler dies of branches and loops.
    return ROWS[name](Drawn(draw, control=name == "scan"))


def check(strategy: Any, test: Callable[[Any], None], examples: int) -> None:
    @settings(max_examples=examples, deadline=None, derandomize=True, database=None,
              suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large,
                                     HealthCheck.large_base_example], phases=(Phase.generate, Phase.shrink))
    @given(strategy)
    def holds(drawn: Any) -> None:
        test(drawn)

    holds()


@needs_xla
@pytest.mark.parametrize("name", ROWS)
def test_drawn_regions_agree_with_xla(name: str):
    check(programs(name), agree, 8)


@needs_xla
@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_many_drawn_regions_agree_with_xla(name: str):
    check(programs(name), agree, 100)


# ------------------------------------------------------------------------------------------------ branches and loops inside


class Scalar:
    """A region run by XLA on scalars, by itself: there, branches and loops are what they are anywhere."""

    def __init__(self, texts: str, name: str, types: Sequence[str], results: Sequence[str], packed: bool):
        shape = f"({', '.join(f'{t}[]' for t in results)})" if packed else f"{results[0]}[]"
        self.text = module(texts, entry([f"{t}[]" for t in types],
                                        f"r = {shape} call({numbered(len(types))}), to_apply={name}"))

    def __call__(self, *scalars: Any) -> list[Any]:
        return run_xla(self.text, *scalars)


Case = tuple[str, list[np.ndarray], Callable[[], list[np.ndarray]]]
"""A program, its operands, and what it ought to give."""


def agree_with_reference(case: Case) -> None:
    text, arrays, reference = case
    for got, want in zip(xla_torch.parse_hlo(text).run_numpy(*arrays), reference(), strict=True):
        np.testing.assert_array_equal(got, want, err_msg=text)


def folded(step: Scalar, start: Sequence[Any], columns: Sequence[np.ndarray], kept: Sequence[bool] | None = None) -> list[Any]:
    """The left fold of one-dimensional columns from a start; elements that are not kept are passed over."""
    total = list(start)
    for k in range(len(columns[0])):
        if kept is None or kept[k]:
            total = step(*total, *(c[k] for c in columns))
    return total


def stacked(results: Sequence[Sequence[Any]], like: Sequence[np.ndarray], dims: Sequence[int]) -> list[np.ndarray]:
    return [np.array([r[k] for r in results], a.dtype).reshape(dims) for k, a in enumerate(like)]


def scalars(d: Drawn, types: Sequence[str]) -> tuple[list[str], list[Any]]:
    """Init values as text and as what they are."""
    texts = [d.init(t) for t in types]
    return texts, [run_xla(module(entry([], f"i = {t}[] constant({text})")))[0] for t, text in zip(types, texts, strict=True)]


def _reducer(d: Drawn, types: Sequence[str]) -> Scalar:
    d.region([*types, *types], types, "reducer")
    return Scalar(d.all_texts(), "reducer", [*types, *types], types, len(types) > 1)


def _map_case(d: Drawn) -> Case:
    text, arrays = _map(d)
    types = [t for t in text.split("ENTRY")[1].split() if t.endswith("]") and "[" in t]
    result = text.split("ROOT r = ")[1].split("[")[0]
    step = Scalar(d.all_texts(), "mapped", [t.split("[")[0] for t in types[:len(arrays)]], [result], False)
    dtype = values(result, 0).dtype
    return text, arrays, lambda: [np.array([step(*e)[0] for e in zip(*(a.reshape(-1) for a in arrays), strict=True)],
                                           dtype).reshape(arrays[0].shape)]


def _reduce_case(d: Drawn) -> Case:
    types, dims = d.types(), [d.number(1, 3), d.choice((2, 5, 20))]
    step = _reducer(d, types)
    texts, starts = scalars(d, types)
    arrays = d.arrays(types, dims)
    return (reduce_hlo(d.all_texts(), types, texts, dims, [1]), arrays,
            lambda: stacked([folded(step, starts, [a[i] for a in arrays]) for i in range(dims[0])], arrays, dims[:1]))


def _reduce_window_case(d: Drawn) -> Case:
    types, dims = d.types(2), [d.choice((1, 5, 12))]
    step = _reducer(d, types)
    texts, starts = scalars(d, types)
    arrays, window = d.arrays(types, dims), _window(d, dims, 4)
    size, stride, low, _, base, dilation = window[0]

    def at(start: int) -> list[Any]:
        places = [start * stride + k * dilation - low for k in range(size)]
        kept = [0 <= p <= (dims[0] - 1) * base and p % base == 0 for p in places]
        return folded(step, starts, [a[[p // base if k else 0 for p, k in zip(places, kept, strict=True)]] for a in arrays], kept)

    count, = window_counts(dims, window)
    return (reduce_window_hlo(d.all_texts(), types, texts, dims, window), arrays,
            lambda: stacked([at(i) for i in range(count)], arrays, [count]))


def _scatter_case(d: Drawn) -> Case:
    types, rows, updates = d.types(2), d.choice((1, 4)), d.choice((1, 3, 25))
    step = _reducer(d, types)
    where = np.random.RandomState(d.number(0, 99)).randint(-1, rows + 1, (updates, 1)).astype(np.int32)
    operands, new = d.arrays(types, [rows]), d.arrays(types, [updates])
    return (scatter_hlo(d.all_texts(), types, [rows], updates), [*operands, where, *new],
            lambda: stacked([folded(step, [o[i] for o in operands], [u[where[:, 0] == i] for u in new]) for i in range(rows)],
                            operands, [rows]))


def _sort_case(d: Drawn) -> Case:
    types, size = d.types(2), d.choice((2, 5, 40))
    key, direction = _comparator(d, types)
    make = Scalar(d.all_texts(), "key", types, [key], False)
    arrays = d.arrays(types, [size])

    def reference() -> list[np.ndarray]:
        keys = np.array([make(*(a[i] for a in arrays))[0] for i in range(size)])
        ranks = np.unique(keys, return_inverse=True)[1] * (1 if direction in ("LT", "LE") else -1)
        order = np.lexsort((np.arange(size) * (1 if direction in ("LT", "GT") else -1), ranks))
        return [a[order] for a in arrays]

    return sort_hlo(d.all_texts(), types, [size], 0), arrays, reference


CASES: dict[str, Callable[[Drawn], Case]] = {
    "map": _map_case, "reduce": _reduce_case, "reduce-window": _reduce_window_case, "scatter": _scatter_case, "sort": _sort_case,
}


@st.composite
def cases(draw: Draw, name: str) -> Case:
    return CASES[name](Drawn(draw, control=True))


@needs_xla
@pytest.mark.parametrize("name", CASES)
def test_drawn_branches_and_loops_inside_regions(name: str):
    check(cases(name), agree_with_reference, 8)


@needs_xla
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_many_drawn_branches_and_loops_inside_regions(name: str):
    check(cases(name), agree_with_reference, 60)


# ------------------------------------------------------------------------------------------------ associative reducers

def slow(*row: Any) -> Any:
    return pytest.param(*row, marks=pytest.mark.slow)


HAS_CONTROL = ("sum within segments", "greatest common divisor")


def whole_fold(rule: Associative, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The left fold of arrays [rows, n] along n, by XLA on scalars."""
    count = len(rule.types)
    step = Scalar(rule.text(), "reducer", [*rule.types, *rule.types], rule.types, count > 1)
    starts = [run_xla(module(entry([], f"i = {t}[] constant({c})")))[0] for t, c in zip(rule.types, rule.identity, strict=True)]
    return stacked([folded(step, starts, [a[i] for a in arrays]) for i in range(len(arrays[0]))], arrays, [len(arrays[0])])


@needs_xla
@pytest.mark.parametrize(("dims", "reduced"), [
    ((131,), [0]), ((9, 2, 11), [0, 2]), slow((1,), [0]), slow((3, 41, 2), [1]), slow((2, 0), [1])])
@pytest.mark.parametrize("name", [n for n in NAMES if n not in HAS_CONTROL])
def test_associative_reducers(name: str, dims: tuple[int, ...], reduced: list[int]):
    rule = ASSOCIATIVE[name]
    agree((reduce_hlo(rule.text(), rule.types, rule.identity, dims, reduced), rule.operands(dims, 3)))


@needs_xla
@pytest.mark.parametrize("size", [2, 33])
@pytest.mark.parametrize("name", HAS_CONTROL)
def test_associative_reducers_with_control(name: str, size: int):
    rule = ASSOCIATIVE[name]
    arrays = rule.operands((2, size), 3)
    text = reduce_hlo(rule.text(), rule.types, rule.identity, (2, size), [1])
    agree_with_reference((text, arrays, lambda: whole_fold(rule, arrays)))


@needs_xla
@pytest.mark.parametrize(("dims", "window"), [
    ((40,), [(9, 4, 3, 11, 2, 3)]), ((9, 12), [(3, 2, 1, 1, 1, 2), (10, 1, 4, 4, 1, 1)]), slow((40,), [(17, 1, 16, 0, 1, 1)]),
    slow((100,), [(70, 1, 0, 5, 1, 1)]), slow((30,), [(30, 1, 0, 29, 1, 1)])])
@pytest.mark.parametrize("name", [n for n in NAMES if n not in (*HAS_CONTROL, "last")])  # "last" has no identity to pad with
def test_associative_reducers_in_windows(name: str, dims: tuple[int, ...], window: list[Side]):
    rule = ASSOCIATIVE[name]
    agree((reduce_window_hlo(rule.text(), rule.types, rule.identity, dims, window), rule.operands(dims, 3)))


@needs_xla
@pytest.mark.parametrize(("dims", "updates"), [((3, 4), 90), slow((5,), 3), slow((5,), 200)])
@pytest.mark.parametrize("name", [n for n in NAMES if n not in HAS_CONTROL])
def test_associative_combiners_in_scatters(name: str, dims: tuple[int, ...], updates: int):
    rule = ASSOCIATIVE[name]
    where = np.random.RandomState(7).randint(-1, dims[0] + 1, (updates, 1)).astype(np.int32)
    agree((scatter_hlo(rule.text(), rule.types, dims, updates),
           [*rule.operands(dims, 3), where, *rule.operands((updates, *dims[1:]), 9)]))


@needs_xla
@pytest.mark.parametrize("flags", [", is_associative=true, is_reverse=true", slow(", is_associative=true"), slow(""),
                                   slow(", is_associative=false, is_reverse=true")])
@pytest.mark.parametrize("name", NAMES)
def test_scans_of_associative_bodies(name: str, flags: str):
    rule = ASSOCIATIVE[name]
    agree((scan_hlo(scan_body(rule), rule.types, rule.types, rule.types, [19], 0, flags),
           [*rule.operands((19,), 3), *rule.operands((), 5)]))


@needs_xla
@pytest.mark.parametrize("dims", [(32,), (33,), (1025,), slow((7,)), slow((1000,)), slow((40000,))])
@pytest.mark.parametrize("rule", [HORNER, HORNER_OF_TWO], ids=["one", "two"])
def test_reducers_that_are_not_associative(rule: Associative, dims: tuple[int, ...]):
    """One array is reduced in pieces, with the init value in each, and two element by element, just as XLA does it."""
    agree((reduce_hlo(rule.text(), rule.types, rule.identity, dims, [0]), rule.operands(dims, 3)))


@needs_xla
@pytest.mark.parametrize(("dims", "reduced"), [((40, 40), [0, 1]), ((5, 70), [0, 1]), ((70, 5), [0, 1]), ((3, 100), [1]),
                                               ((100, 3), [0]), ((33, 2, 34), [0, 2]), ((3, 0), [1]), ((0, 3), [1]),
                                               ((10, 20, 33), [0, 1, 2]), slow((33, 40, 35), [0, 1, 2])])
def test_reducers_that_are_not_associative_over_several_dimensions(dims: tuple[int, ...], reduced: list[int]):
    for rule in (HORNER, HORNER_OF_TWO):
        agree((reduce_hlo(rule.text(), rule.types, rule.identity, dims, reduced), rule.operands(dims, 3)))


ORDERED_WINDOWS = [
    ([100], [(70, 1, 0, 0, 1, 1)]), ([100], [(80, 3, 40, 5, 1, 1)]), ([40], [(70, 1, 40, 35, 2, 1)]),
    ([90], [(35, 2, 3, 0, 1, 2)]), ([20, 12], [(9, 1, 2, 1, 1, 1), (9, 2, 0, 0, 1, 1)]),
    # Running reductions: from both ends, with and without the element itself.
    ([16], [(16, 1, 15, 0, 1, 1)]), ([17], [(17, 1, 16, 0, 1, 1)]), ([40], [(40, 1, 0, 39, 1, 1)]),
    ([40], [(40, 1, 40, 0, 1, 1)]), ([40], [(40, 1, 0, 40, 1, 1)]),
    ([3, 50, 2], [(1, 1, 0, 0, 1, 1), (50, 1, 49, 0, 1, 1), (1, 1, 0, 0, 1, 1)])]
IN_ROWS_OF_ROWS = [([300], [(300, 1, 299, 0, 1, 1)]), ([300], [(300, 1, 0, 300, 1, 1)])]
"""XLA's compiler does not survive these for two arrays."""


@needs_xla
@pytest.mark.parametrize(("rule", "dims", "window"), [
    *((HORNER, *row) for row in ORDERED_WINDOWS + IN_ROWS_OF_ROWS), *((HORNER_OF_TWO, *row) for row in ORDERED_WINDOWS)])
def test_reducers_that_are_not_associative_in_windows(rule: Associative, dims: list[int], window: list[Side]):
    agree((reduce_window_hlo(rule.text(), rule.types, rule.identity, dims, window), rule.operands(dims, 3)))


@needs_xla
@pytest.mark.parametrize("rule", [HORNER, HORNER_OF_TWO], ids=["one", "two"])
def test_combiners_that_are_not_associative_in_scatters(rule: Associative):
    where = np.random.RandomState(7).randint(-1, 4, (200, 1)).astype(np.int32)
    agree((scatter_hlo(rule.text(), rule.types, [3], 200), [*rule.operands((3,), 3), where, *rule.operands((200,), 9)]))


# ------------------------------------------------------------------------------------------------ replicas


@needs_xla
@pytest.mark.parametrize("op", ["all-reduce(p0)", "reduce-scatter(p0), dimensions={0}"])
@pytest.mark.parametrize("name", [n for n in NAMES if len(ASSOCIATIVE[n].types) == 1])
def test_reducers_of_replicas(name: str, op: str):
    rule = ASSOCIATIVE[name]
    result = rule.shape((8,) if op.startswith("all") else (2,))
    text = module(rule.text(), entry([rule.shape((8,))], f"r = {result} {op}, replica_groups={{{{2,0,1,3}}}}, to_apply=reducer"))
    given = [rule.operands((8,), seed)[0] for seed in range(4)]
    got = xla_torch.run_replicas(xla_torch.parse_hlo(text), [[torch.from_numpy(g)] for g in given], num_replicas=4)
    want, = whole_fold(rule, [np.stack([given[k] for k in (2, 0, 1, 3)], 1)])
    for place, number in enumerate((2, 0, 1, 3)):
        part = want if op.startswith("all") else want[2 * place:2 * place + 2]
        np.testing.assert_array_equal(np.asarray(got[number]), part)
