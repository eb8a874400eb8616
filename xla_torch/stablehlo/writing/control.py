"""Rules: tuples, calls, loops, branches, barriers, sizes, random numbers, participants' numbers, custom calls."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import UnsupportedError
from ...hlo.ir import Instruction
from ...hlo.regions import branches_of, callee, loop_of
from ...mlir.ir import Enum, Symbol, Value
from ...opcodes import collective, control, dynamic, internal, random, token
from ...shape import Shape
from ...types import PRED, S64
from .elementwise import plain
from .scope import Scope, require_static
from .table import rule


@rule(control.tuple_)
def tuple_(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    return operands


@rule(control.get_tuple_element, says=("index",))
def get_tuple_element(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    counts = [len(list(s.leaves())) for s in instruction.operands[0].shape.tuple_shapes]
    index = instruction.attributes["index"]
    start = sum(counts[:index])
    return operands[start:start + counts[index]]


@rule(control.call, says=("to_apply",))
def call(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    name = scope.functions.name_of(callee(instruction))
    return scope.add("func.call", operands, instruction.shape, {"callee": Symbol(name)})


@rule(control.fusion, says=("kind", "calls"))
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
rule(token.after_all)(plain("stablehlo.after_all"))
rule(collective.replica_id)(plain("stablehlo.replica_id"))
rule(collective.partition_id)(plain("stablehlo.partition_id"))


@rule(dynamic.get_dimension_size, dynamic.set_dimension_size, says=("dimensions",))
def dimension_size(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    return scope.add(f"stablehlo.{instruction.schema.stablehlo}", operands, instruction.shape,
                     {"dimension": instruction.attributes["dimensions"][0]})


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


_VERSIONS = {"API_VERSION_ORIGINAL": 1, "API_VERSION_STATUS_RETURNING": 2, "API_VERSION_STATUS_RETURNING_UNIFIED": 3}


@rule(internal.custom_call, says=("custom_call_target", "api_version", "custom_call_has_side_effect"))
def custom_call(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    given = instruction.attributes
    version = given.get("api_version") or "API_VERSION_ORIGINAL"
    parts = instruction.shape.tuple_shapes if instruction.shape.is_tuple else (None, None)
    if any(o.shape.is_tuple for o in instruction.operands) or len(parts) < 2 or any(s and s.is_tuple for s in parts):
        raise UnsupportedError("tuples as operands, within others or of one are not written", subject=instruction.subject)
    if version not in _VERSIONS:
        raise UnsupportedError("calls of typed FFI are not written", subject=instruction.subject, got=version)
    return scope.add("stablehlo.custom_call", operands, instruction.shape, {
        "call_target_name": given["custom_call_target"], "api_version": _VERSIONS[version],
        "has_side_effect": bool(given.get("custom_call_has_side_effect")),
        "backend_config": str(instruction.common.get("backend_config", ""))})
