"""Op bodies: calls, loops, branches, tuples, asynchronous wrappers. Their bodies hand computations to the lowering."""

from __future__ import annotations

from ...hlo.attributes import Bool, FusionKind, Int, OperandAliases, Region, Regions, Text
from ...hlo.ir import Instruction
from ..body_table import body
from ..bundles import lower_fusion
from ..control import lower_conditional, lower_while
from ..values import Value, evaluator


@body("tuple", structural=True)
def tuple_(inst: Instruction, *elements: Value) -> Value:
    return tuple(elements)


@body("get-tuple-element", structural=True)
def get_tuple_element(inst: Instruction, operand: Value, *, index: Int) -> Value:
    return operand[index]


@body("call", structural=True)
def call(inst: Instruction, *operands: Value, to_apply: Region, is_composite: Bool,
         output_to_operand_aliasing: OperandAliases) -> Value:
    return evaluator().run(to_apply, operands)


@body("fusion", structural=True)
def fusion(inst: Instruction, *operands: Value, kind: FusionKind, calls: Region,
           output_to_operand_aliasing: OperandAliases) -> Value:
    return lower_fusion(inst, operands, calls)


@body("conditional", structural=True)
def conditional(inst: Instruction, selector: Value, *operands: Value, true_computation: Region | None,
                false_computation: Region | None, branch_computations: Regions) -> Value:
    branches = branch_computations or (true_computation, false_computation)
    return lower_conditional(inst, selector, operands, [b for b in branches if b is not None])


@body("while", structural=True)
def while_(inst: Instruction, init: Value, *, condition: Region, body: Region) -> Value:
    return lower_while(inst, init, condition, body)


@body("async-start", structural=True)
def async_start(inst: Instruction, *operands: Value, calls: Region, async_execution_thread: Text,
                output_to_operand_aliasing: OperandAliases) -> Value:
    contexts = len(inst.shape.tuple_shapes) - 2
    return (tuple(operands), evaluator().run(calls, operands), *(None,) * contexts)


@body("async-update", structural=True)
def async_update(inst: Instruction, operand: Value, *, calls: Region | None, async_execution_thread: Text) -> Value:
    return operand


@body("async-done", structural=True)
def async_done(inst: Instruction, operand: Value, *, calls: Region | None, async_execution_thread: Text) -> Value:
    return operand[1]
