"""What regions cost in every op that takes one, counted in torch calls and in elements that these make."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

import xla_torch
from support.counting import Counted
from support.reductions import entry, module, values
from support.regions import (
    ASSOCIATIVE,
    HORNER,
    HORNER_OF_TWO,
    Associative,
    reduce_hlo,
    reduce_window_hlo,
    scan_body,
    scan_hlo,
    scatter_hlo,
    select_and_scatter_hlo,
    sort_hlo,
)

Program = tuple[str, list[np.ndarray]]


def cost(text: str, arrays: Sequence[np.ndarray]) -> tuple[int, int]:
    computation = xla_torch.parse_hlo(text)
    counted = Counted.of(computation.run_numpy, *arrays)
    return counted.calls, counted.elements


AFFINE, WHERE = ASSOCIATIVE["affine maps"], ASSOCIATIVE["largest by key"]

BY_REMAINDER = """less {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  k = s32[] constant(977)
  c = s32[] remainder(a, k)
  d = s32[] remainder(b, k)
  e = s32[] subtract(c, d)
  z = s32[] constant(0)
  ROOT r = pred[] compare(e, z), direction=LT
}
"""
NEAREST = """chooser {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  c = s32[] abs(a)
  d = s32[] abs(b)
  ROOT r = pred[] compare(c, d), direction=GE
}
reducer {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  m = s32[] multiply(a, b)
  s = s32[] add(a, b)
  ROOT r = s32[] add(m, s)
}
"""
HALVING = """goes_on {
  p = (s32[], s32[]) parameter(0)
  x = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  ROOT g = pred[] compare(x, one), direction=GT
}
step {
  p = (s32[], s32[]) parameter(0)
  x = s32[] get-tuple-element(p), index=0
  n = s32[] get-tuple-element(p), index=1
  one = s32[] constant(1)
  two = s32[] constant(2)
  h = s32[] divide(x, two)
  m = s32[] add(n, one)
  ROOT t = (s32[], s32[]) tuple(h, m)
}
mapped {
  x = s32[] parameter(0)
  z = s32[] constant(0)
  t = (s32[], s32[]) tuple(x, z)
  w = (s32[], s32[]) while(t), condition=goes_on, body=step
  ROOT n = s32[] get-tuple-element(w), index=1
}
"""


def _scatters(rule: Associative, size: int, slots: int) -> Program:
    where = (np.arange(size, dtype=np.int32) ** 2 % slots).astype(np.int32).reshape(size, 1)
    return scatter_hlo(rule.text(), rule.types, [slots], size), [*rule.operands((slots,), 3), where, *rule.operands((size,), 9)]


def _selects(size: int, side: int) -> Program:
    window = [(side, 1, 0, 0, 1, 1)]
    return (select_and_scatter_hlo(NEAREST, "s32", "0", [size], window),
            [values("s32", size, seed=1), values("s32", size - side + 1, seed=2)])


def _windows(rule: Associative, size: int, side: int) -> Program:
    window = [(side, 1, side // 2, side // 3, 1, 1)]
    return reduce_window_hlo(rule.text(), rule.types, rule.identity, [size], window), rule.operands((size,), 3)


def _running(rule: Associative, size: int) -> Program:
    window = [(size, 1, size - 1, 0, 1, 1)]
    return reduce_window_hlo(rule.text(), rule.types, rule.identity, [size], window), rule.operands((size,), 3)


def _scans(size: int, flags: str) -> Program:
    return (scan_hlo(scan_body(AFFINE), AFFINE.types, AFFINE.types, AFFINE.types, [size], 0, flags),
            [*AFFINE.operands((size,), 3), *AFFINE.operands((), 5)])


def _reduces(rule: Associative, dims: tuple[int, ...], reduced: list[int]) -> Program:
    return reduce_hlo(rule.text(), rule.types, rule.identity, dims, reduced), rule.operands(dims, 3)


COSTS: dict[str, Callable[[int], Program]] = {
    "reduce": lambda n: _reduces(AFFINE, (n,), [0]),
    "reduce rows": lambda n: _reduces(WHERE, (3, n), [1]),
    "reduce several dimensions": lambda n: _reduces(AFFINE, (n // 32, 5, 32), [0, 2]),
    "reduce, not associative": lambda n: _reduces(HORNER, (n,), [0]),
    "reduce-window, as large as a quarter": lambda n: _windows(AFFINE, n, n // 4),
    "reduce-window, as large as all": lambda n: _windows(WHERE, n, n),
    "running reduction, not associative": lambda n: _running(HORNER, n),
    "select-and-scatter, as large as a quarter": lambda n: _selects(n, n // 4),
    "scatter into one slot": lambda n: _scatters(AFFINE, n, 1),
    "scatter into few slots": lambda n: _scatters(WHERE, n, 7),
    "scatter into all slots": lambda n: _scatters(WHERE, n, n),
    "scan, associative": lambda n: _scans(n, ", is_associative=true"),
    "sort": lambda n: (sort_hlo(BY_REMAINDER, ["s32"], [n], 0), [values("s32", n)]),
    "sort of rows": lambda n: (sort_hlo(BY_REMAINDER, ["s32"], [5, n], 1), [values("s32", 5, n)]),
    "sort, in order": lambda n: (sort_hlo(BY_REMAINDER, ["s32"], [n], 0), [np.arange(n, dtype=np.int32) * 7 // n]),
    "map with a loop": lambda n: (
        module(HALVING, entry([f"s32[{n}]"], f"r = s32[{n}] map(p0), dimensions={{0}}, to_apply=mapped")),
        [np.abs(values("s32", n))]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COSTS)
def test_cost_grows_little_faster_than_the_elements(name: str):
    """Four times as many elements: at most n log n work, in at most log n more calls."""
    small, large = 4096, 16384
    program, larger = COSTS[name](small), COSTS[name](large)
    (calls, elements), (more_calls, more_elements) = cost(*program), cost(*larger)
    logarithms = math.log2(large) / math.log2(small)
    assert more_calls <= calls * logarithms * 1.25 + 16
    assert more_elements <= 4 * elements * logarithms * 1.25
    assert more_elements <= 80 * sum(a.size for a in larger[1]) * math.log2(large)


def test_several_arrays_are_reduced_element_by_element_in_as_many_calls_however_wide_they_are():
    """By what is not associative: as many steps as elements meet."""
    (calls, elements), (wider, more) = (cost(*_reduces(HORNER_OF_TWO, (50, n), [0])) for n in (16, 256))
    assert calls == wider <= 50 * 20
    assert more <= 16 * elements
    assert cost(*_reduces(HORNER_OF_TWO, (200, 16), [0]))[0] <= 4 * calls


def test_windows_are_reduced_element_by_element_in_as_many_calls_however_many_they_are():
    """By what is not associative: as many steps as a window has elements."""
    (calls, elements), (same, more) = (cost(*_windows(HORNER, n, 100)) for n in (200, 2000))
    assert calls == same <= 100 * 20
    assert more <= 20 * elements


def test_a_general_scan_takes_as_many_calls_however_wide_it_is():
    def program(rows: int) -> Program:
        element = f"s32[{rows}]"
        body = (f"step {{\n  x = {element} parameter(0)\n  c = {element} parameter(1)\n  m = {element} multiply(c, c)\n"
                f"  y = {element} xor(m, x)\n  ROOT t = ({element}, {element}) tuple(m, y)\n}}\n")
        text = entry([f"s32[{rows},50]", element],
                     f"r = (s32[{rows},50], {element}) scan(p0, p1), dimensions={{1}}, num_carries=1, to_apply=step")
        return module(body, text), [values("s32", rows, 50), values("s32", rows)]

    (calls, elements), (more_calls, more_elements) = cost(*program(16)), cost(*program(256))
    assert calls == more_calls <= 50 * 8
    assert more_elements <= 16 * elements
