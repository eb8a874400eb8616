"""Rules: tuples, calls, loops, branches, barriers, sizes, random numbers, participants' numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...core.errors import UnsupportedError
from ...core.shape import Shape
from ...core.types import PRED, S32, S64
from ...hlo.ir import Instruction
from ...hlo.regions import branches_of, callee, loop_of
from ...mlir.ir import Enum, Symbol, Value
from ...opcodes import collective, control, dynamic, internal, random, token
from .elementwise import plain
from .scope import Scope, dictionary_of, require_static
from .writing_rules import rule


@rule(control.tuple_)
def tuple_(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    return operands


@rule(control.get_tuple_element, says=("index",))
def get_tuple_element(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    return element(instruction.operands[0].shape, operands, instruction.attributes["index"])


def element(shape: Shape, values: Sequence[Value], index: int) -> Sequence[Value]:
    """The values of one element of a tuple."""
    return values[shape.leaf_offsets[index]:shape.leaf_offsets[index + 1]]


@rule(control.call, says=("to_apply", "is_composite", "output_to_operand_aliasing"))
def call(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    name = Symbol(scope.functions.name_of(callee(instruction)))
    stated = instruction.common.get("frontend_attributes") or {}
    if not stated.get("composite.name"):
        return scope.add("func.call", operands, instruction.shape, {"callee": name})
    return scope.add("stablehlo.composite", operands, instruction.shape, {
        "name": stated["composite.name"], "decomposition": name, "version": int(stated.get("composite.version") or 0),
        "composite_attributes": dictionary_of(stated.get("composite.attributes") or "{}", instruction)})


@rule(control.fusion, says=("kind", "calls", "output_to_operand_aliasing"))
def fusion(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    """What it is made of: fusions are how a program is compiled, not what it is."""
    return scope.opened(callee(instruction), operands)


@rule(control.while_, says=("condition", "body"))
def while_(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    return scope.add("stablehlo.while", operands, instruction.shape, {}, [scope.region(c) for c in loop_of(instruction)])


@rule(control.conditional, says=("true_computation", "false_computation", "branch_computations"))
def conditional(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    """Branches see what is outside: their parameters are the operands themselves."""
    left, regions = list(operands[1:]), []
    for computation, operand in zip(branches_of(instruction), instruction.operands[1:], strict=True):
        count = len(list(operand.shape.leaves()))
        regions.append(scope.branch(computation, left[:count]))
        left = left[count:]
    two = instruction.operands[0].shape.element_type is PRED
    return scope.add("stablehlo.if" if two else "stablehlo.case", operands[:1], instruction.shape, {}, regions)


rule(internal.opt_barrier)(plain("stablehlo.optimization_barrier"))


@rule(internal.add_dependency)
def add_dependency(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    """A barrier of the value and the token for which it waits."""
    after = Shape.tuple([o.shape for o in instruction.operands])
    return scope.add("stablehlo.optimization_barrier", operands, after)[:-1]


rule(token.after_all)(plain("stablehlo.after_all"))
rule(collective.replica_id)(plain("stablehlo.replica_id"))
rule(collective.partition_id)(plain("stablehlo.partition_id"))


@rule(dynamic.get_dimension_size, dynamic.set_dimension_size, says=("dimensions",))
def dimension_size(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    return scope.add(f"stablehlo.{instruction.schema.stablehlo}", operands, instruction.shape,
                     {"dimension": instruction.attributes["dimensions"][0]})


@rule(dynamic.dynamic_reshape)
def dynamic_reshape(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    one, all_sizes = (Shape.array(S32, [n]) for n in (1, len(operands) - 1))
    if len(operands) == 1:
        return scope.add("stablehlo.reshape", operands, instruction.shape)
    sizes = [v for o in operands[1:] for v in scope.add("stablehlo.reshape", [o], one)]
    whole = scope.add("stablehlo.concatenate", sizes, all_sizes, {"dimension": 0})
    return scope.add("stablehlo.dynamic_reshape", [operands[0], *whole], instruction.shape)


@rule(random.rng, says=("distribution",))
def rng(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    require_static(instruction)
    sizes = np.asarray(instruction.shape.dimensions, np.int64)
    shape = scope.constant(sizes, Shape.array(S64, sizes.shape))
    kind = instruction.attributes["distribution"].lower().removeprefix("rng_").upper()
    return scope.add("stablehlo.rng", [*operands, *shape], instruction.shape,
                     {"rng_distribution": Enum("stablehlo.rng_distribution", kind)})


@rule(random.rng_bit_generator, says=("algorithm",))
def rng_bit_generator(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    if not instruction.shape.is_tuple:
        raise UnsupportedError("numbers without the next state are not written", subject=instruction.subject)
    kind = instruction.attributes["algorithm"].lower().removeprefix("rng_").upper()
    return scope.add("stablehlo.rng_bit_generator", operands, instruction.shape,
                     {"rng_algorithm": Enum("stablehlo.rng_algorithm", kind)})
