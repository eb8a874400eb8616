"""Comparisons, clamp and select: against real XLA on special values, and the documents' examples."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import xla_torch
from support.agreement import (
    ALL,
    COMPLEX,
    FLOATS,
    assert_agree,
    elementwise_hlo,
    pairs,
    run_both,
    run_ours,
    special_values,
)
from support.oracle import needs_xla, run_xla
from xla_torch import ops
from xla_torch.builder import XlaBuilder
from xla_torch.errors import InvalidArgument
from xla_torch.shape import Shape

DIRECTIONS = ("EQ", "NE", "LT", "LE", "GT", "GE")


def check_comparisons(text: str, lhs: np.ndarray, rhs: np.ndarray, directions: tuple[str, ...], kind: str = "") -> None:
    """All directions at once: the root is a tuple, so that XLA compiles one program."""
    count, attribute = len(lhs), f", type={kind}" if kind else ""
    shapes, names = ", ".join([f"pred[{count}]"] * len(directions)), ", ".join(directions)
    hlo = "\n".join([
        "HloModule test", "", "ENTRY entry {", f"  p = {text}[{count}] parameter(0)", f"  q = {text}[{count}] parameter(1)",
        *(f"  {d} = pred[{count}] compare(p, q), direction={d}{attribute}" for d in directions),
        f"  ROOT r = ({shapes}) tuple({names})", "}"])
    for got, want in zip(xla_torch.parse_hlo(hlo).run_numpy(lhs, rhs), run_xla(hlo, lhs, rhs), strict=True):
        assert_agree(got, want, inputs=(lhs, rhs))


@needs_xla
@pytest.mark.parametrize("text", [t for t in ALL if t not in COMPLEX])
def test_compare_agrees_with_xla(text: str) -> None:
    check_comparisons(text, *pairs(special_values(text)), DIRECTIONS)


@needs_xla
@pytest.mark.parametrize("text", [*FLOATS, "f8e4m3fn", "f8e4m3fnuz", "f4e2m1fn"])
def test_total_order_agrees_with_xla(text: str) -> None:
    values = special_values(text)
    both_signs = np.concatenate([values, -values]) if text in FLOATS else values
    check_comparisons(text, *pairs(both_signs), DIRECTIONS, "TOTALORDER")


@needs_xla
def test_complex_order_agrees_with_xla() -> None:
    check_comparisons("c64", *pairs(special_values("c64")[::3]), ("EQ", "NE"))
    try:
        check_comparisons("c64", *pairs(special_values("c64")[::3]), ("LT", "GT"))
    except RuntimeError as error:  # XLA of jaxlib 0.12
        assert "Unknown MLIR failure" in str(error)  # noqa: PT017


@pytest.mark.parametrize(("direction", "result"), [("LE", [True, True, False]), ("GE", [False, True, True])])
def test_complex_order_is_lexicographic(direction: str, result: list[bool]) -> None:
    """XLA's CPU code looks only at the real parts here."""
    lhs, rhs = np.array([1 + 2j, 1 + 2j, 1 + 3j], np.complex64), np.array([1 + 3j, 1 + 2j, 1 + 2j], np.complex64)
    hlo = elementwise_hlo("compare", [("c64", lhs), ("c64", rhs)], "pred", f", direction={direction}")
    assert run_ours(hlo, lhs, rhs).tolist() == result


@needs_xla
@pytest.mark.parametrize("text", [t for t in ALL if t not in COMPLEX])
def test_clamp_and_select_agree_with_xla(text: str) -> None:
    low, x = pairs(special_values(text))
    high, pred = np.roll(x, 7), np.arange(x.size) % 3 == 0
    clamp = elementwise_hlo("clamp", [(text, low), (text, x), (text, high)], text)
    assert_agree(*run_both(clamp, low, x, high), inputs=(low, x, high), signed_zero=False)
    select = elementwise_hlo("select", [("pred", pred), (text, low), (text, x)], text)
    assert_agree(*run_both(select, pred, low, x), inputs=(pred, low, x))


CLAMP_BOUNDS = [("f32", "0", "6"), ("f32", "nan", "6"), ("f32", "6", "0"), ("s32", "-3", "3"), ("u32", "5", "4294967290"),
                ("u8", "3", "100"), ("s4", "-2", "5"), ("bf16", "-1", "inf")]


@needs_xla
@pytest.mark.parametrize(("text", "low", "high"), CLAMP_BOUNDS)
@pytest.mark.parametrize("full", ["", "low", "high"])
def test_clamp_with_constant_bounds(text: str, low: str, high: str, full: str) -> None:
    values = special_values(text)
    names = {"low": "l", "high": "h"} | ({full: "q"} if full else {})
    hlo = f"""HloModule test

ENTRY entry {{
  p = {text}[{len(values)}] parameter(0)
  q = {text}[{len(values)}] parameter(1)
  s = {text}[] constant({low})
  t = {text}[] constant({high})
  l = {text}[{len(values)}] broadcast(s), dimensions={{}}
  h = {text}[{len(values)}] broadcast(t), dimensions={{}}
  ROOT r = {text}[{len(values)}] clamp({names["low"]}, p, {names["high"]})
}}"""
    other = np.roll(values, 3)
    assert_agree(*run_both(hlo, values, other), inputs=(values, other), signed_zero=False)


def test_clamp_and_select_take_scalars() -> None:
    hlo = """HloModule test

ENTRY entry {
  p = s32[3] parameter(0)
  b = pred[] parameter(1)
  l = s32[] constant(0)
  h = s32[] parameter(2)
  c = s32[3] clamp(l, p, h)
  ROOT r = s32[3] select(b, c, p)
}"""
    x = np.array([-1, 5, 9], np.int32)
    assert run_ours(hlo, x, np.array(True), np.int32(6)).tolist() == [0, 5, 6]
    assert run_ours(hlo, x, np.array(False), np.int32(6)).tolist() == [-1, 5, 9]


@pytest.mark.parametrize(("text", "kind"), [("s32", "UNSIGNED"), ("u32", "SIGNED"), ("f32", "SIGNED"), ("c64", "TOTALORDER")])
def test_refused_comparison_type(text: str, kind: str) -> None:
    builder = XlaBuilder("test")
    p = builder.parameter(0, Shape.parse(f"{text}[2]"))
    with pytest.raises(InvalidArgument, match="comparison type"):
        ops.Compare(p, p, (), "LT", kind)


# ------------------------------------------------------------------------------------------- documented functions


def test_compare_takes_its_direction_in_two_places() -> None:
    x, y = torch.tensor([1, 2]), torch.tensor([2, 2])
    assert ops.Compare(x, y, "LT").tolist() == ops.Compare(x, y, (), "LT").tolist() == [True, False]
    with pytest.raises(InvalidArgument, match=r"[dD]irection"):
        ops.Compare(x, y, "LESS")


def test_document_examples_of_clamp_and_select() -> None:
    assert ops.Clamp(0, torch.tensor([-1, 5, 9]), 6).tolist() == [0, 5, 6]
    pred = torch.tensor([True, False, False, True])
    on_true, on_false = torch.tensor([1, 2, 3, 4]), torch.tensor([100, 200, 300, 400])
    assert ops.Select(pred, on_true, on_false).tolist() == [1, 200, 300, 4]
    assert ops.Select(torch.tensor(True), on_true, on_false).tolist() == [1, 2, 3, 4]
    assert ops.Select(pred, on_true, 0).tolist() == [1, 0, 0, 4]
    assert ops.Select(pred, torch.tensor(5), 0).tolist() == [5, 0, 0, 5]
    assert ops.Clamp(torch.tensor([1, 2]), torch.tensor(0), torch.tensor([5, 5])).tolist() == [1, 2]


def test_select_takes_tuples_whole() -> None:
    builder = XlaBuilder("test")
    pred, x, y = (builder.parameter(i, Shape.parse(s)) for i, s in enumerate(("pred[]", "f32[2]", "s32[]")))
    first, second = ops.Tuple(builder, [x, y]), ops.Tuple(builder, [ops.Neg(x), ops.Neg(y)])
    computation = builder.build(ops.Select(pred, first, second))
    got = computation(torch.tensor(False), torch.tensor([1.0, 2.0]), torch.tensor(3, dtype=torch.int32))
    assert [g.tolist() for g in got] == [[-1.0, -2.0], -3]
    with pytest.raises(InvalidArgument, match="tuple"):
        ops.Select(pred, first, x)
