"""Every op of StableHLO and CHLO through `from_stablehlo`: against XLA where it takes the program, else against formulas."""

from __future__ import annotations

import re

import numpy as np
import pytest

from support import oracle
from support.stablehlo_oracle import load_stablehlo
from support.stablehlo_rows import ROWS, Row
from xla_torch import from_stablehlo
from xla_torch.runtime.computation import XlaComputation

pytestmark = oracle.needs_xla


def same(got: tuple[np.ndarray, ...], expected: list[np.ndarray]) -> None:
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_op(row: Row):
    got = from_stablehlo(row.program()).run_numpy(*row.arguments)
    if row.expected is None:
        same(got, oracle.run_xla(load_stablehlo(row.program()), *row.arguments))
    else:
        same(got, [np.asarray(row.expected(*row.arguments))])


def unknown_rows(row: Row) -> str:
    """The program with ``?`` for the first dimension of what has two rows (or the like)."""
    return re.sub(r"tensor<[246]x", "tensor<?x", row.program().replace("tensor<3x2x", "tensor<3x?x"))


NOT_SO = ("dynamic_", "real_dynamic", "sort", "rng", "constant", "chlo.constant", "iota", "set_dimension_size", "scatter to",
          "broadcast_in_dim", "async_start")
UNKNOWN = [row for row in ROWS if row.arguments and row.arguments[0].shape == (2, 3) and not row.name.startswith(NOT_SO)]


@pytest.mark.parametrize("row", UNKNOWN, ids=lambda row: row.name)
def test_every_op_on_unknown_sizes(row: Row):
    expected = from_stablehlo(row.program()).run_numpy(*row.arguments)
    got = from_stablehlo(unknown_rows(row)).run_numpy(*row.arguments)
    same(got, list(expected))


def test_constant_sizes_make_a_static_program():
    row = next(row for row in ROWS if row.name == "dynamic_conv of constants")
    assert isinstance(from_stablehlo(row.program()), XlaComputation)
