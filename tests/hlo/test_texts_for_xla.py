"""Every program that we print, XLA's parser reads, and what it prints of it is the same program to us: the rows of the op table
and their derivatives, a program of every opcode, and the functions of the sweep with their gradients.

`NOT_XLA` lists what XLA does not know of it, with the reason.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")

import xla_torch
from support import oracle
from support.function_rows import ROWS as FUNCTION_ROWS
from support.function_rows import FunctionRow
from support.function_sweep import ENTRY_POINTS
from support.gradient_checks import built, drawn_examples
from support.mutations import Case, cases
from support.op_rows import ROWS, Drawn, Row
from xla_torch import XlaComputation, ops
from xla_torch.errors import DifferentiationError


@dataclasses.dataclass(frozen=True)
class NotXla:
    """What stands in programs whose texts XLA does not read as they are meant."""

    text: str
    reason: str


NOT_XLA = [
    NotXla(r" (collective-reduce|shuffle)\(", "opcodes of a newer XLA, for which older ones have no words"),
    NotXla(r"f8e8m0fnu\[\] constant\(5.877e-39\)", "XLA prints its least scale so short that it reads another one"),
    NotXla(r"-update\(", "XLA numbers the instruction's name anew where the computation that it wraps has one like it"),
]


def check(computation: XlaComputation) -> None:
    """XLA reads the program's text, and the same of what we print when we have read XLA's own text of it."""
    text = computation.to_hlo_text()
    if any(re.search(row.text, text) for row in NOT_XLA):
        return
    assert oracle.xla_accepts(text) is None, text
    theirs = oracle.xla_canonical(text)
    again = oracle.xla_canonical(xla_torch.parse_hlo(theirs).to_hlo_text())
    assert _computations(again) == _computations(theirs), text


def _computations(text: str) -> list[str]:
    """The header and the computations, which are called in no certain order."""
    return sorted(text.split("\n\n"))


def _derivatives(computation: XlaComputation) -> Iterator[XlaComputation]:
    for derived in (xla_torch.vjp, xla_torch.jvp):
        try:
            yield derived(computation)
        except DifferentiationError:  # an op without a derivative, which other tests name
            return


def check_row(row: Row, kind: str, count: int) -> None:
    def one(draw: Any) -> None:
        drawn = Drawn(draw, kind)
        root = row.build(drawn)
        assert drawn.builder is not None
        program = drawn.builder.build(ops.Tuple(drawn.builder, list(root)) if isinstance(root, (list, tuple)) else root)
        check(program)
        for derived in _derivatives(program) if kind != WITHOUT_ZERO else ():
            check(derived)

    drawn_examples(one, count)


WITHOUT_ZERO = "f8e8m0fnu"
"""The type of scales, in which there is nothing that a gradient of zero could be."""

EACH = [pytest.param(row, kind, id=f"{row.name} {kind}") for row in ROWS for kind in row.types]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_rows(row: Row) -> None:
    check_row(row, "f32" if "f32" in row.types else row.types[0], 1)


@pytest.mark.slow
@pytest.mark.parametrize(("row", "kind"), EACH)
def test_rows_of_every_type(row: Row, kind: str) -> None:
    check_row(row, kind, 1)


@pytest.mark.parametrize("case", cases()[::17], ids=lambda case: case.opcode)
def test_a_sample_of_every_opcode(case: Case) -> None:
    check(xla_torch.parse_hlo(case.text))


@pytest.mark.slow
@pytest.mark.parametrize("row", FUNCTION_ROWS, ids=str)
def test_functions(row: FunctionRow) -> None:
    program = ENTRY_POINTS["StableHLO"](row, row.cases[0])
    check(program)
    for derived in _derivatives(program):
        check(derived)


# --------------------------------------------------------------------------------------------- what is respelled

POINTS = [0.5, -0.0, 2, -3, np.inf, -np.inf, 1e-20, 1e30, 0, 0]
IMAGINARY = [0.3, -2, 5, -0.5, 0, 1, 1e-20, -1e30, 3, -0.7]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
def test_an_arc_tangent_is_one_that_xla_runs(dtype: Any) -> None:
    """In texts and protos; the program keeps the op."""
    x = np.array(POINTS, dtype)
    if x.dtype.kind == "c":
        x.imag = IMAGINARY
    program = built(lambda x: [ops.Atan(x), ops.Neg(x)], x)
    text = program.to_hlo_text()
    assert "atan(" not in text
    (found, _), (want, _) = oracle.run_xla(text, x), program.run_numpy(x)
    np.testing.assert_allclose(found, want, rtol=4 * np.finfo(dtype).eps)
    assert np.signbit(np.real(found)).tolist() == np.signbit(np.real(want)).tolist()
    assert "atan" in [i.opcode for i in program.entry.instructions]
    assert xla_torch.from_hlo_proto(program.to_hlo_proto()).to_hlo_text().count("atan2(") == 1


NESTED = """HloModule m
inner {
  p = f32[2,3]{0,1} parameter(0)
  first = f32[2,3]{0,1} negate(p)
  slope = f32[2,3]{0,1} atan(p), control-predecessors={first}, metadata={op_name="mine"}
  ROOT both = (f32[2,3]{0,1}, f32[2,3]{0,1}) tuple(slope, first)
}
plain { ROOT p = f32[] parameter(0) }
ENTRY e {
  x = f32[2,3]{0,1} parameter(0)
  c = (f32[2,3]{0,1}, f32[2,3]{0,1}) call(x), to_apply=inner
  f = (f32[2,3]{0,1}, f32[2,3]{0,1}) fusion(x), kind=kLoop, calls=inner
  s = f32[] constant(1)
  k = f32[] call(s), to_apply=plain
  a = f32[2,3]{0,1} get-tuple-element(c), index=0
  b = f32[2,3]{0,1} get-tuple-element(f), index=0
  ROOT r = f32[2,3]{0,1} add(a, b)
}"""


def test_what_is_around_an_arc_tangent_stays() -> None:
    """Calls, layouts, names, and what is noted with instructions."""
    text = xla_torch.parse_hlo(NESTED).to_hlo_text()
    assert oracle.xla_accepts(text) is None
    assert re.search(r"%slope = f32\[2,3\]\{0,1\} atan2\(%p, %\S+\), control-predecessors=\{%first\}, metadata=", text)
    assert len(re.findall("atan2", text)) == 1
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_allclose(xla_torch.parse_hlo(text).run_numpy(x)[0], 2 * np.arctan(x), rtol=1e-6)
