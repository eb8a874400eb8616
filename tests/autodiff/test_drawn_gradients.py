"""Gradients of drawn examples: every row of the op table (`support/op_rows`) whose op has one, at points where the op is smooth.

First and second derivatives are those of differences (torch.autograd.gradcheck and gradgradcheck on the program), and real
XLA computes the same numbers from the backward program's text. Arrays without elements are among the examples.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("jax")

import xla_torch
from grad_rules import TABLE, GradientKind
from support.gradient_checks import Smooth, drawn_examples, smooth_values
from support.jax_gradient_rows import REAL_ROWS, JaxRow
from support.jax_gradient_rows import ROWS as JAX_ROWS
from support.jax_oracle import Vjp, compare, flat, program
from support.op_rows import FAMILIES, ROWS, Drawn, Row
from support.oracle import run_xla
from xla_torch import XlaComputation

KINDS = ("f64", "c128")
DOMAINS: dict[str, tuple[float, float]] = {
    "Acosh": (1.2, 4.0), "Log": (0.3, 4.0), "Sqrt": (0.3, 4.0), "Rsqrt": (0.3, 4.0), "Pow": (0.3, 3.0), "Tan": (-1.2, 1.2),
    **dict.fromkeys(("Acos", "Asin", "Atanh", "Log1p"), (-0.8, 0.8)),
}
"""Where real functions are smooth, if not everywhere. Complex ones are asked off their cuts."""

BY_CONVENTION = {"ConvertElementType", "ReducePrecision", "NextAfter", "BitcastConvertType", "StochasticConvertType"}
"""Functions whose gradient goes straight through a rounding, or is zero because bits are no numbers: differences say nothing."""

WHOLE_NUMBERS = {"Polygamma": 0}
"""Operands that are whole numbers, in floating types."""

NOT_ON_XLA = re.compile(r"scatter_dims_to_operand_dims={}|start_index_map={}")
"""What stands in backward programs that XLA runs otherwise: windows without an index, of which it writes the last one only."""


def examples(row: Row, kind: str, count: int) -> None:
    """Draw examples and check each."""
    def check(draw: Any) -> None:
        drawn = Smooth(draw, kind)
        if kind == "f64":
            drawn.low, drawn.high = DOMAINS.get(row.functions.split()[0], (-2.0, 2.0))
        _check(row, drawn)

    drawn_examples(check, count)


def _check(row: Row, drawn: Drawn) -> None:
    root = row.build(drawn)
    assert drawn.builder is not None
    computation = drawn.builder.build(xla_torch.ops.Tuple(drawn.builder, list(root)) if isinstance(root, (list, tuple)) else root)
    name = row.functions.split()[0]
    wanted = [k for k, a in enumerate(drawn.arrays) if a.dtype.kind in "fc" and k != WHOLE_NUMBERS.get(name)]
    leaves = [s for s in computation.program_shape.result.leaves() if s.is_array and s.element_type.is_differentiable]
    if not leaves or not wanted:
        return
    cts = [smooth_values(s.dimensions, s.element_type.is_complex, 7 + k).astype(s.element_type.numpy)
           for k, s in enumerate(leaves)]
    try:
        derivative = xla_torch.vjp(computation, wanted)
        found = derivative.run_numpy(*drawn.arrays, *cts)
        assert [f.shape for f in found] == [drawn.arrays[k].shape for k in wanted]
        text = derivative.to_hlo_text()
        if drawn.formula is None and row.reference is None and not NOT_ON_XLA.search(text):
            compare(found, run_xla(text, *drawn.arrays, *cts), 1e-9)
        if name in BY_CONVENTION:
            return
        moving = [*wanted, *range(len(drawn.arrays), len(drawn.arrays) + len(cts))]
        check_differences(computation, drawn.arrays, wanted)
        check_differences(derivative, [*drawn.arrays, *cts], moving)
    except Exception as error:
        arrays = "\n".join(map(repr, drawn.arrays))
        raise AssertionError(f"{row.name}: {error}\n{computation.to_hlo_text()}\n{arrays}") from error


def check_differences(computation: XlaComputation, arrays: Sequence[np.ndarray], moving: Sequence[int]) -> None:
    """The derivatives of all floating results, for those arguments that move, are those of differences."""
    tensors = [torch.from_numpy(np.array(a)).clone(memory_format=torch.contiguous_format) for a in arrays]
    for number in moving:
        tensors[number].requires_grad_()

    def results(*given: torch.Tensor) -> list[torch.Tensor]:
        return flat(computation(*given))

    varying = [k for k, r in enumerate(results(*tensors)) if r.requires_grad and r.numel()]
    if varying and any(tensors[k].numel() for k in moving):
        assert torch.autograd.gradcheck(lambda *given: tuple(results(*given)[k] for k in varying), tensors, fast_mode=True)


SPECIAL = FAMILIES.get("special", [])
"""Functions of which a second derivative is a long program: one example of each is among the slow tests."""

EACH = [pytest.param(row, kind, id=f"{row.name} {kind}", marks=[pytest.mark.slow] if row in SPECIAL else [])
        for row in ROWS for kind in KINDS if kind in row.types and row.participants == (1, 1)]


@pytest.mark.parametrize(("row", "kind"), EACH)
def test_drawn(row: Row, kind: str) -> None:
    examples(row, kind, 1)


@pytest.mark.slow
@pytest.mark.parametrize(("row", "kind"), [each for each in EACH if not each.marks])
def test_many_drawn(row: Row, kind: str) -> None:
    examples(row, kind, 5)


# --------------------------------------------------------------------------------------------------- against jax.vjp


def against_jax(row: JaxRow, kind: str, count: int) -> None:
    """Drawn examples: gradients are JAX's by `vjp`, and by real XLA running what `vjp` gives."""
    def check(draw: Any) -> None:
        function, arrays = row.draw(Drawn(draw, kind))
        want = Vjp(function, arrays)
        derivative = xla_torch.vjp(program(function, *arrays), want.argnums)
        given = [*arrays, *want.cotangents]
        compare(derivative.run_numpy(*given), want.gradients, row.rtol)
        text = derivative.to_hlo_text()
        if row.on_xla and not NOT_ON_XLA.search(text):
            compare(run_xla(text, *given), want.gradients, row.rtol)

    drawn_examples(check, count)


EACH_OF_JAX = [pytest.param(row, kind, id=f"{row.name} {kind}") for row in JAX_ROWS for kind in KINDS]
EACH_OF_JAX += [pytest.param(row, "f64", id=row.name) for row in REAL_ROWS]


@pytest.mark.parametrize(("row", "kind"), EACH_OF_JAX)
def test_against_jax(row: JaxRow, kind: str) -> None:
    against_jax(row, kind, 1)


@pytest.mark.slow
@pytest.mark.parametrize(("row", "kind"), EACH_OF_JAX)
def test_many_against_jax(row: JaxRow, kind: str) -> None:
    against_jax(row, kind, 6)


FROM_FILES = {"collective-reduce"}
"""Opcodes that no documented function builds: `test_grad_collective.py` has it."""


def test_every_rule_is_drawn() -> None:
    """Some drawn program has each op that has a rule."""
    seen: set[str] = set()

    def note(row: Row, kind: str) -> Callable[[Any], None]:
        def build(draw: Any) -> None:
            drawn = Smooth(draw, kind)
            row.build(drawn)
            assert drawn.builder is not None
            seen.update(i.opcode for i in drawn.builder.instructions)
        return build

    for row in ROWS:
        kind = next((k for k in ("f64", "c128", "f32") if k in row.types), None)
        if kind is not None:
            drawn_examples(note(row, kind), 2)
    with_rules = {o for o, entry in TABLE.items() if entry.kind in (GradientKind.FORMULA, GradientKind.LINEAR)}
    assert sorted(with_rules - seen - FROM_FILES) == []
