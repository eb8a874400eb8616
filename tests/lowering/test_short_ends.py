"""Operands with a value for each few elements at the end of a result (`passes/short_ends.py`)."""

from __future__ import annotations

import numpy as np
import pytest

import xla_torch
from support.oracle import needs_xla
from support.same_bits import assert_same
from xla_torch.passes.short_ends import FEWER, SHORT


def program(whole: tuple[int, ...], operand: tuple[int, ...]) -> str:
    """A difference of an array and a smaller one, which HLO spreads by a reshape and a broadcast."""
    own = [d for d, n in enumerate(operand) if n != 1]
    of, small = (",".join(map(str, dims)) for dims in (whole, [operand[d] for d in own]))
    return f"""HloModule spread
ENTRY e {{
  x = f32[{of}] parameter(0)
  m = f32[{small}] parameter(1)
  b = f32[{of}] broadcast(m), dimensions={{{','.join(map(str, own))}}}
  ROOT r = f32[{of}] subtract(x, b)
}}"""


@needs_xla
@pytest.mark.parametrize(("whole", "operand", "is_copied"), [
    ((8, 16, 16, 8, 4), (8, 1, 1, 8, 1), True),
    ((8, 16, 16, 2, 2, 4), (1, 1, 1, 2, 1, 1), True),
    ((4, 64, 8, SHORT), (4, 1, 8, 1), True),
    ((4, 64, 8, SHORT + 1), (4, 1, 8, 1), False),
    ((64, FEWER, 16, 4), (64, 1, 16, 1), True),
    ((64, FEWER - 1, 32, 4), (64, 1, 32, 1), False),
    ((4, 64, 8, 4), (4, 1, 8, 4), False),
    ((4, 8, 8, 4), (4, 1, 8, 1), False),
    ((4096, 4), (4096, 1), False),
    ((2, 64, 1024, 8, 4), (2, 1, 1, 8, 1), True),
])
def test_values_for_a_few_elements_are_copied_for_these(whole: tuple[int, ...], operand: tuple[int, ...],
                                                        is_copied: bool) -> None:
    text = program(whole, operand)
    assert ("clone" in xla_torch.parse_hlo(text).python_code()) == is_copied
    rng = np.random.default_rng(0)
    assert_same(text, *(rng.normal(size=dims).astype("f4") for dims in (whole, [n for n in operand if n != 1])))


def test_a_copy_serves_all_who_read_it() -> None:
    text = program((8, 16, 16, 8, 4), (8, 1, 1, 8, 1)).replace("ROOT r", "d").replace("\n}", """
  t = f32[8,16,16,8,4] multiply(d, d)
  q = f32[8,16,16,8,4] divide(t, b)
  ROOT r = f32[8,16,16,8,4] add(q, b)
}""")
    assert xla_torch.parse_hlo(text).python_code().count("torch.clone(") == 1
