"""Sums of pads that stand side by side are concatenations: which are, and that values are those of the program as it is written,
bit for bit, and XLA's."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import xla_torch
from support.counting import Counted, python_calls
from support.native_programs import native_after
from support.oracle import run_xla
from xla_torch import compile, from_jax
from xla_torch.codegen.compiled import is_available
from xla_torch.core import tuning
from xla_torch.core.types import PrimitiveType, has_infinity, has_zero
from xla_torch.hlo.ir import Computation, reachable
from xla_torch.transform.canonical import canonicalize, is_canonical
from xla_torch.transform.padded_sums import without_padded_sums

DIMS = (2, 3), (1, 3), (3, 3), (8, 3), (3, 8)
SPECIAL = [-0.0, math.nan, math.inf, -math.inf, 1.5, -2.25, 0.0, 0.25, 3e38, -1.0, 7.0, -0.0]
NATIVE = pytest.param(0.0, marks=pytest.mark.skipif(not is_available(), reason="there is no C compiler"))

A, B, C = (f"{name} = T[8,3] pad({name.lower()}, zero), padding={edges}x0_0"
           for name, edges in (("A", "0_6"), ("B", "2_5"), ("C", "5_0")))
PADS = f"{A}  {B}  {C}"
"""Of two, one and three rows, with two rows of zeros before the last."""


def rooted(*lines: str, of: str = "T[8,3]") -> str:
    """Lines, the last of which is the result."""
    return "  ".join([*lines[:-1], f"ROOT r = {of} {lines[-1]}"])


def tree(order: str, form: str) -> str:
    """A sum of four leaves."""
    w, x, y, z = order
    match form:
        case "to the left":
            lines = f"m = T[8,3] add({w}, {x})", f"n = T[8,3] add(m, {y})", f"add(n, {z})"
        case "to the right":
            lines = f"m = T[8,3] add({y}, {z})", f"n = T[8,3] add({x}, m)", f"add({w}, n)"
        case _:
            lines = f"m = T[8,3] add({w}, {x})", f"n = T[8,3] add({y}, {z})", "add(m, n)"
    return rooted(PADS, *lines)


TREES = {f"{form}, {order}": (1, tree(order, form)) for form in ("to the left", "to the right", "both")
         for order in ("qABC", "AqBC", "ABqC", "CBAq")}
SUM = "m = T[8,3] add(A, B)"
UPDATES = """four = s32[] constant(4)  far = s32[] constant(90)  less = s32[] constant(-3)
  all = T[8,3] broadcast(zero), dimensions={}
  U = T[8,3] dynamic-update-slice(all, a, less, four)  V = T[8,3] dynamic-update-slice(all, c, far, four)"""
ROWS: dict[str, tuple[int, str]] = {
    "gaps in the middle": (1, rooted(A, C, "add(A, C)")),
    "a gap behind": (1, rooted(A, B, "add(B, A)")),
    "a gap before": (1, rooted(B, C, "add(B, C)")),
    **TREES,
    "updates of zeros": (1, rooted(UPDATES, B, "m = T[8,3] add(V, B)", "add(m, U)")),
    "columns": (1, rooted("D = T[2,8] pad(a, zero), padding=0_0x0_5", "E = T[2,8] pad(a, zero), padding=0_0x5_0", "add(D, E)",
                          of="T[2,8]")),
    "nothing among others": (1, rooted("n = T[0,3] slice(a), slice={[1:1], [0:3]}", "N = T[8,3] pad(n, zero), padding=3_5x0_0",
                                       PADS, "k = T[8,3] add(B, N)", "m = T[8,3] add(A, k)", "add(m, C)")),
    "with what is a sum itself": (2, rooted(PADS, "D = T[8,3] pad(b, zero), padding=3_4x0_0", SUM, "n = T[8,3] add(C, D)",
                                            "t = T[8,3] multiply(n, n)", "add(m, t)")),
    "with a sum that is used twice": (2, rooted(PADS, "D = T[8,3] pad(b, zero), padding=3_4x0_0", SUM,
                                                "E = T[8,3] pad(c, zero), padding=0_5x0_0", "n = T[8,3] add(C, E)",
                                                "k = T[8,3] add(m, n)", "multiply(k, m)")),
    "a part of a sum with two others": (1, rooted(A, B, "m = T[8,3] add(A, q)", "n = T[8,3] add(B, m)", "add(n, q)")),
    "two others first": (0, rooted(A, B, "m = T[8,3] add(A, q)", "n = T[8,3] multiply(q, q)", "k = T[8,3] add(n, B)",
                                   "add(m, k)")),
    "one pad": (0, rooted(A, "add(A, q)")),
    "one pad twice": (0, rooted(A, "add(A, A)")),
    "pads that overlap": (0, rooted(A, "D = T[8,3] pad(a, zero), padding=1_5x0_0", "add(A, D)")),
    "a pad that is used elsewhere": (0, rooted(A, B, SUM, "multiply(m, B)")),
    "a pad that is a result": (0, rooted(A, B, SUM, "tuple(m, B)", of="(T[8,3], T[8,3])")),
    "along other dimensions": (0, rooted("D = T[8,8] pad(q, zero), padding=0_0x0_5", "w = T[1,8] slice(s), slice={[0:1], [0:8]}",
                                         "E = T[8,8] pad(w, zero), padding=7_0x0_0", "add(D, E)", of="T[8,8]")),
    "along two dimensions": (0, rooted("D = T[8,6] pad(a, zero), padding=0_6x0_3", "E = T[8,6] pad(c, zero), padding=5_0x3_0",
                                       "add(D, E)", of="T[8,6]")),
    "between elements": (0, rooted("D = T[3,3] pad(a, zero), padding=0_0x0_0_1", "E = T[3,3] pad(b, zero), padding=1_1x0_0",
                                   "add(D, E)", of="T[3,3]").replace("0_0x0_0_1", "0_0_1x0_0")),
    "of less": (0, rooted("D = T[8,3] pad(a, zero), padding=-1_7x0_0", C, "add(D, C)")),
    "other values": (0, rooted("one = T[] constant(1)", A, "D = T[8,3] pad(c, one), padding=5_0x0_0", "add(A, D)")),
    "updates at places that are computed": (0, rooted(
        UPDATES, "p = s32[] parameter(5)", "D = T[8,3] dynamic-update-slice(all, b, p, four)", "add(U, D)")),
    "updates of others": (0, rooted(UPDATES, "D = T[8,3] dynamic-update-slice(q, c, far, four)", "add(U, D)")),
}


def program(lines: str, element_type: str = "f32", zero: str = "0") -> str:
    return f"""HloModule pads
ENTRY main {{ a = T[2,3] parameter(0)  b = T[1,3] parameter(1)  c = T[3,3] parameter(2)  q = T[8,3] parameter(3)
  s = T[3,8] parameter(4)  zero = T[] constant({zero})
  {lines} }}""".replace("T[", f"{element_type}[")


def given(text: str, element_type: PrimitiveType = PrimitiveType.F32, special: Sequence[float] = SPECIAL) -> list[Any]:
    """Special values, and others, at different places of each array."""
    values: np.ndarray = np.arange(len(special)) - 3
    if element_type.is_floating:
        values = np.array(special)
    elif element_type.is_complex:
        values = np.array([complex(*pair) for pair in zip(special, special[::-1], strict=True)])
    elif element_type.bits < 3 or element_type.is_unsigned:
        values %= 2
    with np.errstate(all="ignore"):
        made = [np.resize(np.roll(values, k), dims).astype(element_type.numpy) for k, dims in enumerate(DIMS)]
    return [*made, np.int32(4)] if "parameter(5)" in text else made


def canonical(text: str) -> Computation:
    return canonicalize(xla_torch.parse_hlo(text).entry)


def joined(computation: Computation) -> int:
    """How many concatenations a program has more."""
    found = without_padded_sums(computation)
    if found is not computation:
        found.is_canonical = False
        assert is_canonical(found)
    assert without_padded_sums(found) is found
    before, after = ([i.opcode for each in reachable([c]) for i in each.instructions] for c in (computation, found))
    count = after.count("concatenate") - before.count("concatenate")
    assert (found is computation) == (not count)
    return count


def bits(arrays: Any) -> list[bytes]:
    return [np.asarray(a).tobytes() for a in arrays]


def as_written(text: str, arrays: Sequence[Any]) -> Sequence[np.ndarray]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "WITHOUT_PASSES", frozenset({"padded sums"}))
        return xla_torch.parse_hlo(text).run_numpy(*arrays)


@pytest.mark.parametrize("seconds", [math.inf, NATIVE])
@pytest.mark.parametrize("row", ROWS)
def test_which_sums_are_joined(row: str, seconds: float, tmp_path: Path) -> None:
    count, lines = ROWS[row]
    text = program(lines)
    arrays = given(text)
    assert joined(canonical(text)) == count
    with native_after(seconds, tmp_path):
        found = xla_torch.parse_hlo(text).run_numpy(*arrays)
    assert bits(found) == bits(as_written(text, arrays))
    for ours, theirs in zip(found, run_xla(text, *arrays), strict=True):
        np.testing.assert_array_equal(ours, theirs)


TYPES = [t for t in PrimitiveType if t.is_array and has_zero(t)]


@pytest.mark.parametrize("element_type", TYPES, ids=lambda t: t.text)
@pytest.mark.parametrize("row", ["gaps in the middle", "both, ABqC", "updates of zeros"])
def test_all_element_types(element_type: PrimitiveType, row: str) -> None:
    """Without NaN of both signs, which infinities become where there are none: of two, either may be the sum."""
    zero = "(0, 0)" if element_type.is_complex else "false" if element_type.is_pred else "0"
    text = program(ROWS[row][1], element_type.text, zero)
    arrays = given(text, element_type, [1e-40, *(v for v in SPECIAL if v != -math.inf or has_infinity(element_type))])
    assert joined(canonical(text)) == 1
    assert bits(xla_torch.parse_hlo(text).run_numpy(*arrays)) == bits(as_written(text, arrays))


@pytest.mark.parametrize(("element_type", "zero"), [("f32", "-0"), ("bf16", "-0"), ("c64", "(0, -0)"), ("c64", "(-0, 0)"),
                                                    ("f32", "nan"), ("s32", "1"), ("f8e8m0fnu", "1")])
def test_pads_of_other_values_stay(element_type: str, zero: str) -> None:
    assert joined(canonical(program(ROWS["gaps in the middle"][1], element_type, zero))) == 0


LOOP = """HloModule pads
body { p = (s32[], f32[8,3]) parameter(0)  i = s32[] get-tuple-element(p), index=0  q = f32[8,3] get-tuple-element(p), index=1
  one = s32[] constant(1)  j = s32[] add(i, one)  zero = f32[] constant(0)
  a = f32[2,3] slice(q), slice={[6:8], [0:3]}  c = f32[3,3] slice(q), slice={[0:3], [0:3]}
  A = f32[8,3] pad(a, zero), padding=0_6x0_0  C = f32[8,3] pad(c, zero), padding=5_0x0_0
  m = f32[8,3] add(A, q)  y = f32[8,3] add(m, C)  ROOT r = (s32[], f32[8,3]) tuple(j, y) }
goes { p = (s32[], f32[8,3]) parameter(0)  i = s32[] get-tuple-element(p), index=0  n = s32[] constant(9)
  ROOT r = pred[] compare(i, n), direction=LT }
halves { q = f32[8,3] parameter(0)  zero = f32[] constant(0)  a = f32[4,3] slice(q), slice={[4:8], [0:3]}
  c = f32[3,3] slice(q), slice={[0:3], [0:3]}  A = f32[8,3] pad(a, zero), padding=0_4x0_0
  C = f32[8,3] pad(c, zero), padding=5_0x0_0  ROOT r = f32[8,3] add(A, C) }
same { q = f32[8,3] parameter(0)  ROOT r = f32[8,3] copy(q) }
ENTRY main { q = f32[8,3] parameter(0)  k = pred[] parameter(1)  i = s32[] constant(0)
  start = (s32[], f32[8,3]) tuple(i, q)  end = (s32[], f32[8,3]) while(start), condition=goes, body=body
  again = (s32[], f32[8,3]) while(start), condition=goes, body=body  x = f32[8,3] get-tuple-element(end), index=1
  z = f32[8,3] get-tuple-element(again), index=1
  y = f32[8,3] conditional(k, x, x), true_computation=halves, false_computation=same
  ROOT r = (f32[8,3], f32[8,3]) tuple(y, z) }"""


@pytest.mark.parametrize("seconds", [math.inf, NATIVE])
def test_in_loops_and_branches(seconds: float, tmp_path: Path) -> None:
    """Once in each computation, which two loops share."""
    assert joined(canonical(LOOP)) == 2
    q = np.resize(np.array(SPECIAL, np.float32), (8, 3))
    for chosen in (False, True):
        with native_after(seconds, tmp_path):
            found = xla_torch.parse_hlo(LOOP).run_numpy(q, np.bool_(chosen))
        assert bits(found) == bits(as_written(LOOP, [q, np.bool_(chosen)]))
        for ours, theirs in zip(found, run_xla(LOOP, q, np.bool_(chosen)), strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.slow
def test_the_zero_is_added_by_torch_s_compiler() -> None:
    """Which takes additions of zeros for nothing where it may."""
    text = program(ROWS["gaps in the middle"][1])
    arrays = given(text)
    found = compile(xla_torch.parse_hlo(text), "inductor")(*map(torch.from_numpy, arrays))
    assert bits([found]) == bits(as_written(text, arrays))


def test_names_stay() -> None:
    text = program(rooted(A, B, SUM, "add(m, q), metadata={op_name=\"whole\"}"))
    root = without_padded_sums(canonical(text)).root
    assert (root.name, root.op_name) == ("r", "whole")


def stacked(weights: Any, x: Any) -> Any:
    for k in range(len(weights)):
        x = jnp.tanh(x @ weights[k]) + x
    return x


def gradient(weights: Any, x: Any) -> Any:
    result, back = jax.vjp(stacked, weights, x)
    return back(result)


def drawn(*dims: int) -> np.ndarray:
    return np.random.default_rng(len(dims)).normal(size=dims).astype(np.float32) / 4


def test_gradients_by_stacked_weights() -> None:
    with jax.enable_x64(False):
        arrays = drawn(5, 4, 4), drawn(3, 4)
        found = from_jax(gradient, *arrays)(*map(torch.tensor, arrays))
        for ours, theirs in zip(found, gradient(*arrays), strict=True):
            np.testing.assert_allclose(ours.numpy(), theirs, 1e-5, 1e-6)


def test_gradients_by_stacked_weights_are_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(layers: int) -> int:
        arrays = drawn(layers, 64, 64), drawn(2, 64)
        return Counted.of(from_jax(gradient, *arrays), *map(torch.tensor, arrays)).made

    with jax.enable_x64(False):
        assert made(16) < 2.1 * made(8)
        monkeypatch.setattr(tuning, "WITHOUT_PASSES", frozenset({"padded sums"}))
        assert made(16) > 2.5 * made(8)


@pytest.mark.parametrize("form", ["to the left", "to the right", "in pairs"])
def test_the_work_is_linear(form: str) -> None:
    def calls(count: int) -> int:
        lines = [f"pad_{k} = f32[{count}] pad(x, zero), padding={k}_{count - 1 - k}" for k in range(count)]
        names, fresh = [f"pad_{k}" for k in range(count)], (f"sum_{k}" for k in itertools.count())
        while len(names) > 1:
            pairs = [names[:2]] if form == "to the left" else [names[-2:]] if form == "to the right" else \
                [names[k:k + 2] for k in range(0, len(names), 2)]
            sums = [pair[0] if len(pair) == 1 else next(fresh) for pair in pairs]
            lines += [f"{s} = f32[{count}] add({', '.join(pair)})" for s, pair in zip(sums, pairs, strict=True) if len(pair) == 2]
            names = sums + names[2:] if form == "to the left" else names[:-2] + sums if form == "to the right" else sums
        body = "\n".join(lines)
        text = f"HloModule many\nENTRY main {{ x = f32[1] parameter(0)  zero = f32[] constant(0)\n{body}\n" \
               f"ROOT r = f32[{count}] negate({names[0]}) }}"
        computation = canonical(text)
        assert len(without_padded_sums(computation).instructions) == 6
        computation.findings.clear()
        return python_calls(without_padded_sums, computation)

    assert calls(3000) < 2.3 * calls(1500)
