"""Sort and top-k: against real XLA, the recogniser of comparators, any comparator, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import xla_torch
from support.agreement import FLOATS, INTS
from support.oracle import needs_xla
from support.same_bits import assert_same, dtype_of, filled, program
from xla_torch.analysis.comparators import comparator_keys
from xla_torch.builder import XlaBuilder
from xla_torch.codegen.compiled import is_available
from xla_torch.core import tuning
from xla_torch.errors import InvalidArgument
from xla_torch.functions.hlo_builder import XlaOp
from xla_torch.kernels import sorting
from xla_torch.shape import Shape
from xla_torch.types import F32, S32

ops: Any = xla_torch.ops  # which take tensors for XlaOps


def comparator(*parameters: str, body: str) -> str:
    """A comparator's text; parameters are element types, two for each operand, called a0 b0 a1 b1 ... ."""
    names = [f"{side}{k}" for k in range(len(parameters) // 2) for side in "ab"]
    lines = [f"  {n} = {t}[] parameter({i})" for i, (n, t) in enumerate(zip(names, parameters, strict=True))]
    return "\n".join(["less {", *lines, *(f"  {line.strip()}" for line in body.strip().splitlines()), "}", ""])


def sort_program(shape: str, types: list[str], body: str, dimension: int = 0) -> str:
    names = [f"p{k}" for k in range(len(types))]
    result = ", ".join(f"{t}{shape}" for t in types)
    return program(*(f"{n} = {t}{shape} parameter({k})" for k, (n, t) in enumerate(zip(names, types, strict=True))),
                   f"r = {f'({result})' if len(types) > 1 else result} sort({', '.join(names)}), dimensions={{{dimension}}}, "
                   "is_stable=true, to_apply=less",
                   regions=comparator(*(t for t in types for _ in "ab"), body=body))


def keys_of(text: str):
    return comparator_keys(xla_torch.parse_hlo(text).entry.root.attributes["to_apply"])


# --------------------------------------------------------------------------------------------- known comparators

PLAIN = "ROOT r = pred[] compare(a0, b0), direction={}"
CANONICAL = """
    za = pred[] compare(a0, zero), direction=EQ
    ca = {t}[] select(za, zero, a0)
    na = pred[] compare(a0, a0), direction=NE
    ka = {t}[] select(na, notanumber, ca)
    zb = pred[] compare(b0, zero), direction=EQ
    cb = {t}[] select(zb, zero, b0)
    nb = pred[] compare(b0, b0), direction=NE
    kb = {t}[] select(nb, notanumber, cb)
"""


def canonical(element_type: str, ending: str = "ROOT r = pred[] compare(ka, kb), direction=LT, type=TOTALORDER") -> str:
    constants = f"zero = {element_type}[] constant(0)\nnotanumber = {element_type}[] constant(nan)"
    return constants + CANONICAL.format(t=element_type) + ending


def without_nan(values: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(values), values.dtype.type(0.25), values)


@needs_xla
@pytest.mark.parametrize("direction", ["LT", "GT"])
@pytest.mark.parametrize("element_type", [*INTS, "pred", *FLOATS])
def test_one_key(element_type: str, direction: str) -> None:
    keys = filled(element_type, 60)
    if element_type in FLOATS:
        keys = without_nan(keys)  # with NaN the comparison is no order
    text = sort_program("[60]", [element_type, "s32"], PLAIN.format(direction))
    assert keys_of(text)
    assert_same(text, keys, np.arange(60, dtype=np.int32))


@needs_xla
@pytest.mark.parametrize("direction", ["LT", "GT"])
@pytest.mark.parametrize("element_type", FLOATS)
def test_total_order(element_type: str, direction: str) -> None:
    keys = filled(element_type, 2, 50)
    negative_nan = np.array(np.nan, keys.dtype)
    keys[1, :2] = np.copysign(negative_nan, np.array(-1, keys.dtype))
    text = sort_program("[2,50]", [element_type, "s32"], PLAIN.format(direction) + ", type=TOTALORDER", 1)
    found = keys_of(text)
    assert found
    assert found[0].total_order
    assert_same(text, keys, np.arange(100, dtype=np.int32).reshape(2, 50))


@needs_xla
@pytest.mark.parametrize("element_type", FLOATS)
def test_canonical_order_of_jax(element_type: str) -> None:
    text = sort_program("[2,50]", [element_type, "s32"], canonical(element_type), 1)
    found = keys_of(text)
    assert found
    assert (found[0].operand, found[0].canonical) == (0, True)
    assert_same(text, filled(element_type, 2, 50), np.arange(100, dtype=np.int32).reshape(2, 50))


def test_canonical_order_is_one_sort_and_one_gather() -> None:
    code = xla_torch.parse_hlo(sort_program("[2,50]", ["f32", "s32"], canonical("f32"), 1)).python_code()
    assert code.count("torch.sort(") == 1
    assert code.count("gather(") == 1


# --------------------------------------------------------------------------------------------- sorts by digits


@pytest.fixture(params=[pytest.param(0.0, marks=pytest.mark.skipif(not is_available(), reason="there is no C compiler")), np.inf],
                ids=["native", "torch"])
def after(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> float:
    monkeypatch.setenv("XLA_TORCH_CACHE", str(tmp_path))
    monkeypatch.setattr(tuning, "NATIVE_AFTER", request.param)
    return request.param


def tied(element_type: str, *dims: int) -> np.ndarray:
    """Few values, so that most occur several times; of floats, zeros and NaNs of both signs and infinities are half of them."""
    dtype, draw = dtype_of(element_type), np.random.default_rng(1)
    values = draw.integers(0, 5, dims).astype(dtype) if element_type in ("pred", "u8", "u32", "u64") else (
        draw.integers(-3, 4, dims).astype(dtype))
    if element_type not in FLOATS:
        return values
    special = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf]).astype(dtype)
    return np.where(draw.random(dims) < 0.5, draw.choice(special, dims), values)


CARRIED = [[], ["f32"], ["s32", "f64", "pred", "c128"]]


@needs_xla
@pytest.mark.parametrize("carried", CARRIED, ids=str)
@pytest.mark.parametrize(("dims", "dimension"), [((300,), 0), ((2, 150, 3), 1), ((5, 1), 0), ((0, 4), 1)])
@pytest.mark.parametrize("element_type", ["f32", "f64", "f16", "bf16", "s8", "s32", "s64", "u16", "u32", "u64", "pred"])
def test_sorts_by_digits(element_type: str, dims: tuple[int, ...], dimension: int, carried: list[str], after: float,
                         monkeypatch: pytest.MonkeyPatch) -> None:
    """All bits, from native code as from torch: of many ties, zeros and NaNs of both signs, and of numbers all over the type."""
    for name in ("RADIX_SORTED_FROM", "RADIX_SORTED_ROW", "RADIX_SORTED_IN_TORCH"):
        monkeypatch.setattr(tuning, name, 2)
    shape, others = f"[{','.join(map(str, dims))}]", [filled(name, *dims, seed=k) for k, name in enumerate(carried)]
    for direction in ("LT", "GT"):
        body = canonical(element_type, f"ROOT r = pred[] compare(ka, kb), direction={direction}, type=TOTALORDER") if (
            element_type in FLOATS) else PLAIN.format(direction)
        text = sort_program(shape, [element_type, *carried], body, dimension)
        assert ("sort_rows(" in xla_torch.parse_hlo(text).python_code()) == (dims[dimension] > 1 and 0 not in dims)
        for keys in (tied(element_type, *dims), filled(element_type, *dims)):
            assert_same(text, keys, *others)


@needs_xla
@pytest.mark.parametrize("direction", ["LT", "GT"])
@pytest.mark.parametrize("element_type", ["f32", "f64", "bf16", "s32", "u16", "s64", "pred"])
def test_long_vectors(element_type: str, direction: str, after: float) -> None:
    """By several threads. Own places and elements of 4 bytes go along with the keys."""
    ending = f"ROOT r = pred[] compare(ka, kb), direction={direction}, type=TOTALORDER"
    body = canonical(element_type, ending) if element_type in FLOATS else PLAIN.format(direction)
    text = sort_program("[70000]", [element_type, "s32"], body)
    assert "sort_rows(" in xla_torch.parse_hlo(text).python_code()
    for keys in (tied(element_type, 70000), filled(element_type, 70000)):
        assert_same(text, keys, np.arange(70000, dtype=np.int32))
        assert_same(text.replace("p1 = s32[70000] parameter(1)", "p1 = s32[70000] iota(), iota_dimension=0"), keys)


def test_digits_that_differ_in_no_key_or_in_the_upper_half_only(after: float) -> None:
    values = torch.arange(5000.0)
    for keys in (torch.full((5000,), -7), torch.arange(5000) % 3 << 40, torch.arange(5000) % 700):
        order = torch.sort(keys, stable=True)[1]
        found = sorting.sort_rows(keys, 0, False, (None, values, torch.int16))
        for one, other in zip(found, (keys[order], values[order], order.to(torch.int16)), strict=True):
            assert torch.equal(one, other)


@needs_xla
def test_long_vectors_by_several_keys(after: float) -> None:
    text = sort_program("[5000]", ["s32", "f32", "s32"], LEXICOGRAPHIC["or-and"])
    draw = np.random.default_rng(1)
    first, second = draw.integers(0, 9, 5000, np.int32), draw.integers(0, 9, 5000).astype("f4")
    assert_same(text, first, second, np.arange(5000, dtype=np.int32))


LEXICOGRAPHIC = {
    "or-and": """
        l0 = pred[] compare(a0, b0), direction=LT
        e0 = pred[] compare(a0, b0), direction=EQ
        l1 = pred[] compare(a1, b1), direction=GT
        t = pred[] and(e0, l1)
        ROOT r = pred[] or(l0, t)""",
    "and-or": """
        l0 = pred[] compare(b0, a0), direction=GT
        e0 = pred[] compare(b0, a0), direction=EQ
        l1 = pred[] compare(b1, a1), direction=LT
        t = pred[] and(l1, e0)
        ROOT r = pred[] or(t, l0)""",
    "select": """
        l0 = pred[] compare(a0, b0), direction=LT
        e0 = pred[] compare(a0, b0), direction=EQ
        l1 = pred[] compare(a1, b1), direction=GT
        ROOT r = pred[] select(e0, l1, l0)""",
    "select-ne": """
        l0 = pred[] compare(a0, b0), direction=LT
        e0 = pred[] compare(a0, b0), direction=NE
        l1 = pred[] compare(a1, b1), direction=GT
        ROOT r = pred[] select(e0, l0, l1)""",
    "tie": """
        l0 = pred[] compare(a0, b0), direction=LT
        g0 = pred[] compare(b0, a0), direction=LT
        e0 = pred[] compare(l0, g0), direction=EQ
        l1 = pred[] compare(a1, b1), direction=GT
        ROOT r = pred[] select(e0, l1, l0)""",
}


@needs_xla
@pytest.mark.parametrize("types", [["s32", "f32", "s32"], ["u8", "u32", "s32"], ["pred", "s64", "f32"]], ids=str)
@pytest.mark.parametrize("form", LEXICOGRAPHIC)
def test_several_keys(form: str, types: list[str]) -> None:
    text = sort_program("[90]", types, LEXICOGRAPHIC[form])
    found = keys_of(text)
    assert found
    assert [(k.operand, k.descending) for k in found] == [(0, False), (1, True)]
    rng = np.random.default_rng(1)
    first = rng.choice(filled(types[0], 4, seed=2), 90)
    second = rng.choice(np.array([1, 5, 200 if types[1] == "u32" else 7], filled(types[1]).dtype), 90)
    assert_same(text, first, second, np.arange(90).astype(filled(types[2]).dtype))


@needs_xla
def test_key_is_an_expression_of_several_operands() -> None:
    text = sort_program("[40]", ["s32", "s32"], """
        ka = s32[] add(a0, a1)
        kb = s32[] add(b0, b1)
        ROOT r = pred[] compare(ka, kb), direction=LT""")
    found = keys_of(text)
    assert found
    assert found[0].operand is None
    rng = np.random.default_rng(3)
    assert_same(text, rng.integers(0, 9, 40, np.int32), rng.integers(0, 9, 40, np.int32))


@needs_xla
def test_complex_keys_compare_real_parts_first() -> None:
    text = sort_program("[12]", ["c64"], """
        ra = f32[] real(a0)
        rb = f32[] real(b0)
        ia = f32[] imag(a0)
        ib = f32[] imag(b0)
        l0 = pred[] compare(ra, rb), direction=LT
        e0 = pred[] compare(ra, rb), direction=EQ
        l1 = pred[] compare(ia, ib), direction=LT
        t = pred[] and(e0, l1)
        ROOT r = pred[] or(l0, t)""")
    parts = np.random.default_rng(4).integers(-2, 3, (2, 12))
    assert_same(text, (parts[0] + 1j * parts[1]).astype(np.complex64))


def test_own_places_are_neither_sorted_nor_gathered() -> None:
    body = LEXICOGRAPHIC["or-and"].replace("direction=GT", "direction=LT")
    text = program("p = f32[3,40] parameter(0)", "i = s32[3,40] iota(), iota_dimension=1",
                   "r = (f32[3,40], s32[3,40]) sort(p, i), dimensions={1}, to_apply=less",
                   regions=comparator("f32", "f32", "s32", "s32", body=body))
    computation = xla_torch.parse_hlo(text)
    assert computation.python_code().count("torch.sort(") == 1
    assert "gather(" not in computation.python_code()
    values, order = computation(torch.tensor([[3.0, 1.0, 1.0, 0.0] * 10] * 3))
    assert order[0, :20].tolist() == [*range(3, 40, 4), 1, 2, 5, 6, 9, 10, 13, 14, 17, 18]
    assert values[2].tolist() == sorted([3.0, 1.0, 1.0, 0.0] * 10)


# --------------------------------------------------------------------------------------------- any comparator

ODD = {
    "last-digit": """
        ten = s32[] constant(10)
        ra = s32[] remainder(a0, ten)
        rb = s32[] remainder(b0, ten)
        d = s32[] subtract(ra, rb)
        zero = s32[] constant(0)
        ROOT r = pred[] compare(d, zero), direction=LT""",
    "even-before-odd": """
        one = s32[] constant(1)
        oa = s32[] and(a0, one)
        ob = s32[] and(b0, one)
        d = s32[] subtract(ob, oa)
        zero = s32[] constant(0)
        ROOT r = pred[] compare(d, zero), direction=GT""",
    "nothing-before-anything": "ROOT r = pred[] constant(false)",
}


@needs_xla
@pytest.mark.parametrize("size", [0, 1, 2, 3, 8, 33, 100])
@pytest.mark.parametrize("form", ODD)
def test_any_comparator(form: str, size: int) -> None:
    text = sort_program(f"[3,{size},2]", ["s32", "s32"], ODD[form], 1)
    assert keys_of(text) is None
    keys = np.random.default_rng(size).integers(0, 1000, (3, size, 2), np.int32)
    assert_same(text, keys, np.arange(keys.size, dtype=np.int32).reshape(keys.shape))


def test_documented_example() -> None:
    builder = XlaBuilder("less")
    sides = [builder.parameter(k, Shape(t)) for k, t in enumerate([S32, S32, S32, S32, F32, F32])]
    less = builder.build(ops.Lt(sides[0], sides[1]))
    columns = [torch.tensor([3, 1], dtype=torch.int32), torch.tensor([42, 50], dtype=torch.int32), torch.tensor([-3.0, 1.1])]
    got: Any = ops.Sort(columns, less)
    assert [g.tolist() for g in got] == [[1, 3], [50, 42], [torch.tensor(1.1).item(), -3.0]]


# --------------------------------------------------------------------------------------------- top-k


def topk_program(element_type: str, size: int, k: int, largest: bool) -> str:
    return program(f"p = {element_type}[2,{size}] parameter(0)",
                   f"r = ({element_type}[2,{k}], s32[2,{k}]) topk(p), k={k}, largest={str(largest).lower()}")


@needs_xla
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("element_type", ["f32", "bf16", "s32", "s8", "u8", "u32", "s64", "u64", "f64", "f16", "pred"])
def test_topk(element_type: str, largest: bool) -> None:
    for k in (0, 1, 7, 40):
        assert_same(topk_program(element_type, 40, k, largest), filled(element_type, 2, 40))


@needs_xla
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("element_type", ["f32", "bf16", "s32", "s8", "u8", "u32", "s64", "u64", "f64", "f16", "pred"])
def test_topk_of_ties(element_type: str, largest: bool, after: float) -> None:
    """All bits, from the heaps of native code as from torch."""
    for k in (9, 40):
        assert_same(topk_program(element_type, 40, k, largest), tied(element_type, 2, 40))


def _views_are_batched() -> bool:
    """Whether this torch has a batching rule for views of another dtype: from 2.12 on."""
    try:
        torch.func.vmap(lambda x: x.view(torch.int32))(torch.ones(2, 1))
    except RuntimeError:
        return False
    return True


VIEWS_ARE_BATCHED = _views_are_batched()


@pytest.mark.parametrize("dims", [(3, 1000), (1000,), (7, 2, 9), (5, 1), (0, 4)])
def test_heaps_find_what_a_sort_finds(dims: tuple[int, ...], after: float) -> None:
    """Also where the operand is no contiguous array; and a batch of torch.func.vmap as each of its examples."""
    x = torch.from_numpy(tied("f32", *dims[:-1], 2 * dims[-1]))[..., ::2]
    for k in {0, 1, dims[-1] // 3, dims[-1]}:
        values, places = sorting.top_k(x, k, largest=True)
        total = torch.where(x.view(torch.int32) < 0, x.view(torch.int32) ^ 0x7FFFFFFF, x.view(torch.int32))
        want = torch.sort(total, dim=-1, descending=True, stable=True)[1][..., :k]
        assert torch.equal(places, want.to(torch.int32))
        assert torch.equal(values.view(torch.int32), torch.gather(x, -1, want).view(torch.int32))
        if x.dim() > 1 and x.numel() and VIEWS_ARE_BATCHED:
            mapped = torch.func.vmap(lambda row, k=k: sorting.top_k(row, k, largest=True)[1])(x)
            assert torch.equal(mapped, places)


@pytest.mark.parametrize(("values", "k", "largest", "want"), [
    ([1, float("nan"), 3, 3, 2], 2, True, [1, 2]),
    ([1, float("nan"), 3, 1, 2], 2, False, [0, 3]),
    ([-0.0, 0.0, -0.0, 0.0], 3, True, [1, 3, 0]),
])
def test_topk_examples(values: list[float], k: int, largest: bool, want: list[int], after: float) -> None:
    found: Any = ops.TopK(torch.tensor(values), k, largest)
    assert found[1].tolist() == want


# --------------------------------------------------------------------------------------------- refusals


def _p(*dims: int, element_type=F32) -> XlaOp:
    return XlaBuilder("refused").parameter(0, Shape.array(element_type, dims))


def _compare(*types, result=None):
    builder = XlaBuilder("less")
    sides = [builder.parameter(k, Shape(t)) for k, t in enumerate(types)]
    return builder.build(result(sides) if result else ops.Lt(sides[0], sides[1]))


REFUSALS = [
    (lambda: ops.Sort(_p(2, 3), _compare(F32, F32), 2), "out of range"),
    (lambda: ops.Sort(_p(), _compare(F32, F32), 0), "out of range"),
    (lambda: ops.Sort(_p(3), _compare(F32, F32, F32, F32)), "another number of parameters"),
    (lambda: ops.Sort(_p(3), _compare(S32, S32)), "does not fit operand 0"),
    (lambda: ops.Sort(_p(3), _compare(F32, F32, result=lambda s: s[0] + s[1])), "does not return a PRED scalar"),
    (lambda: ops.Sort([(x := _p(3)), ops.Reshape(x, [3, 1])], _compare(F32, F32, F32, F32), 0), "other dimensions"),
    (lambda: ops.TopK(_p(), 0), "topk of a scalar"),
    (lambda: ops.TopK(_p(3), 4), "k is out of range"),
    (lambda: ops.TopK(_p(3), -1), "k is out of range"),
]


@pytest.mark.parametrize(("call", "message"), REFUSALS, ids=[m for _, m in REFUSALS])
def test_refusals(call, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        call()
