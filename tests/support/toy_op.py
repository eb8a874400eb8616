"""An op that XLA does not have, defined in the five places where an op is defined, and put to every use that ops have; and then
in tables that it need not stand in: what it is in StableHLO, what it costs, and its C.

    python -m support.toy_op

Run in a process of its own (by `tests/project/test_toy_op.py`), since the tables keep what is entered. `toy-softsign` is
``x / (1 + |x|)``; `toy-apply` runs a computation of its operands, as a call does, so that everything that walks through calls
must walk through it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import xla_torch
from grad_rules import vjp
from xla_torch import functions as ops
from xla_torch.analysis.cost import computation_cost
from xla_torch.analysis.cost_rules import ARITHMETIC, Cost
from xla_torch.codegen.elements import ELEMENTS, element
from xla_torch.errors import UnsupportedError
from xla_torch.functions._documented import documented
from xla_torch.functions.hlo_builder import XlaOp, region_of
from xla_torch.hlo.attributes import Int, Region
from xla_torch.hlo.ir import Computation, Instruction
from xla_torch.hlo.rule_tables import TABLES
from xla_torch.hlo.schema import Control, Trait, op
from xla_torch.lowering.body_table import body
from xla_torch.lowering.values import Value, evaluator
from xla_torch.opcodes.shapes import FLOATING, unary
from xla_torch.ops import Abs, Div, Square
from xla_torch.shape import Shape
from xla_torch.stablehlo.writing.writing_rules import rule

# --------------------------------------------------------------------------------------------- 1. the schemas


@op("toy-softsign", infer=unary(*FLOATING), traits=Trait.ELEMENTWISE)
def toy_softsign(operand): ...


def _apply_shape(declared: Shape | None, *operands: Shape, to_apply: Computation) -> Shape:
    return to_apply.root.shape


@op("toy-power", infer=lambda declared, operand, toy_exponent: operand)
def toy_power(operand, *, toy_exponent: Int): ...


@op("toy-apply", infer=_apply_shape, control=Control.CALL)
def toy_apply(*operands, to_apply: Region): ...


# --------------------------------------------------------------------------------------------- 2. the bodies


@body("toy-softsign")
def _softsign(inst: Instruction, operand: Value) -> Value:
    return operand / (1 + torch.abs(operand))


@body("toy-power")
def _power(inst: Instruction, operand: Value, *, toy_exponent: int) -> Value:
    return operand**toy_exponent


@body("toy-apply", structural=True)
def _apply(inst: Instruction, *operands: Value, to_apply: Computation) -> Value:
    return evaluator().run(to_apply, operands)


# --------------------------------------------------------------------------------------------- 3. the documented functions


@documented
def ToySoftsign(operand: XlaOp) -> XlaOp:
    """``x / (1 + |x|)``, of floats."""
    return operand.builder.add(toy_softsign, [operand])


@documented
def ToyApply(operand: XlaOp, computation: Any) -> XlaOp:
    """The computation's result."""
    return operand.builder.add(toy_apply, [operand], {"to_apply": region_of(computation)})


# --------------------------------------------------------------------------------------------- 4. the gradient rule

vjp("toy-softsign", operand=lambda ct, operand: Div(ct, Square(Abs(operand) + 1)))


# --------------------------------------------------------------------------------------------- 5. the rows

X = np.array([-2.0, -0.5, 0.0, 0.5, 3.0, 7.0, 1.0, -1.0], np.float32)
WANT = X / (1 + np.abs(X))
SLOPE = 1 / (1 + np.abs(X)) ** 2
CURVE = -2 * np.where(X >= 0, 1, -1) / (1 + np.abs(X)) ** 3  # |x| has the slope 1 at 0, as in JAX

TEXT = """HloModule toy
inner { a = f32[8] parameter(0) ROOT s = f32[8] toy-softsign(a) }
ENTRY e {
  p = f32[8] parameter(0)
  ROOT r = f32[8] toy-apply(p), to_apply=inner
}"""

LOOP = """HloModule toy_loop
body { c = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(c), index=0
  x = f32[8] get-tuple-element(c), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[8] toy-softsign(x)
  ROOT t = (s32[], f32[8]) tuple(j, y) }
condition { c = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(c), index=0
  n = s32[] constant(3)
  ROOT l = pred[] compare(i, n), direction=LT }
ENTRY e {
  p = f32[8] parameter(0)
  z = s32[] constant(0)
  t = (s32[], f32[8]) tuple(z, p)
  w = (s32[], f32[8]) while(t), condition=condition, body=body
  ROOT r = f32[8] get-tuple-element(w), index=1
}"""

REGION = """HloModule toy_region, num_partitions=4
ENTRY e {
  p = f32[8] parameter(0)
  s = f32[8] custom-call(p), custom_call_target="Sharding", sharding={devices=[4]<=[4]}
  x = f32[2] custom-call(s), custom_call_target="SPMDFullToShardShape", sharding={manual}
  y = f32[2] toy-softsign(x), sharding={manual}
  ROOT r = f32[8] custom-call(y), custom_call_target="SPMDShardToFullShape", sharding={devices=[4]<=[4]}
}"""


def close(got: Any, want: np.ndarray) -> None:
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-6, atol=1e-7)


def runs_and_prints() -> None:
    close(ToySoftsign(torch.tensor(X)), WANT)
    builder = xla_torch.XlaBuilder("built")
    x = builder.parameter(0, Shape.parse("f32[8]"))
    close(builder.build(ToySoftsign(x))(torch.tensor(X)), WANT)
    for text in (TEXT, REGION):
        program = xla_torch.parse_hlo(text)
        close(program(torch.tensor(X)), WANT)
        close(xla_torch.parse_hlo(program.to_hlo_text())(torch.tensor(X)), WANT)
    assert "abs" in xla_torch.parse_hlo(TEXT).python_code()
    thrice = X
    for _ in range(3):
        thrice = thrice / (1 + np.abs(thrice))
    close(xla_torch.parse_hlo(LOOP)(torch.tensor(X)), thrice)


def differentiates() -> None:
    for text in (TEXT, REGION):
        x = torch.tensor(X, requires_grad=True)
        (slope,) = torch.autograd.grad(xla_torch.parse_hlo(text)(x).sum(), x, create_graph=True)
        close(slope.detach(), SLOPE)
        close(torch.autograd.grad(slope.sum(), x)[0], CURVE)
    tangent = xla_torch.jvp(xla_torch.parse_hlo(TEXT))(torch.tensor(X), torch.ones(8))
    close(tangent[1] if isinstance(tangent, tuple) else tangent, SLOPE)
    gradient = xla_torch.vjp(xla_torch.parse_hlo(LOOP))
    x = torch.tensor(X, dtype=torch.float32, requires_grad=True)
    y = x
    for _ in range(3):
        y = y / (1 + y.abs())
    y.sum().backward()
    assert x.grad is not None
    close(gradient(torch.tensor(X), torch.ones(8))[0], x.grad.numpy())


def batches() -> None:
    rows = np.stack([X, 2 * X, -X])
    for text in (TEXT, LOOP):
        program = xla_torch.parse_hlo(text)
        batched = xla_torch.vmap(program, 3)(torch.tensor(rows))
        close(batched, np.stack([np.asarray(program(torch.tensor(row))) for row in rows]))


def has_other_rules() -> None:
    """StableHLO without a rule is refused in words; the rules of other tables are found where they are entered."""
    program = xla_torch.parse_hlo(TEXT)
    with pytest.raises(UnsupportedError, match="no rule says what it is in StableHLO"):
        program.to_stablehlo()
    power = xla_torch.parse_hlo("HloModule toy\nENTRY e { p = f32[8] parameter(0) "
                                "ROOT r = f32[8] toy-power(p), toy_exponent=3 }")
    close(power(torch.tensor(X)), X**3)
    with pytest.raises(UnsupportedError, match="HLO protos have no field for the attribute toy_exponent"):
        power.to_hlo_proto()
    rule("toy-power")(lambda scope, instruction, operands: operands)
    with pytest.raises(UnsupportedError, match="no rule says what this attribute is in StableHLO"):
        power.to_stablehlo()
    rule("toy-softsign")(lambda scope, instruction, operands: scope.spelled(
        instruction, operands, lambda x: ops.Div(x, ops.Add(ops.Abs(x), x.builder.constant(1.0, x.element_type)))))
    rule("toy-apply", says=("to_apply",))(lambda scope, instruction, operands: scope.opened(
        instruction.attributes["to_apply"], operands))
    close(xla_torch.from_stablehlo(program.to_stablehlo())(torch.tensor(X)), WANT)
    op_alone = xla_torch.parse_hlo(TEXT.replace("toy-apply(p), to_apply=inner", "toy-softsign(p)"))
    before = computation_cost(op_alone.module.entry).flops
    ARITHMETIC.rule("toy-softsign")(lambda instruction, region: Cost(flops=3 * instruction.shape.element_count))
    assert (before, computation_cost(xla_torch.parse_hlo(op_alone.to_hlo_text()).module.entry).flops) == (8, 24)
    ELEMENTS.rule("toy-softsign")(lambda instruction, operands: f"{operands[0]} / (1 + __builtin_fabsf({operands[0]}))")
    assert element(op_alone.module.entry.root, ["x"]) == "((f32)(x / (1 + __builtin_fabsf(x))))"


def is_complete() -> None:
    """No table that serves every op lacks them, and defining them again is refused."""
    assert [name for name, table in TABLES.items() if {toy_softsign} & set(table.lacking())] == []
    refused(lambda: op("toy-softsign", infer=unary(*FLOATING))(lambda operand: None))
    refused(lambda: body("toy-softsign")(_softsign))
    refused(lambda: body("toy-unknown")(_softsign))
    refused(lambda: vjp("toy-softsign", operand=lambda ct: ct))
    refused(lambda: vjp("toy-unknown", operand=lambda ct: ct))


def refused(define: Callable[[], object]) -> None:
    """Defining this is a TypeError that names the op."""
    with pytest.raises(TypeError, match="toy"):
        define()


if __name__ == "__main__":
    for use in (runs_and_prints, differentiates, batches, has_other_rules, is_complete):
        use()
        print(use.__name__)
