"""Schemas: calls, loops, branches, tuples, asynchronous wrappers. Their bodies hand computations to the lowering."""

# pyright: reportMissingParameterType=false, reportUnknownParameterType=false

from __future__ import annotations

from typing import Any

from ..core.shape import Shape
from ..core.types import PRED, S32
from ..hlo.attributes import Bool, FusionKind, Int, OperandAliases, Region, Regions, Text
from ..hlo.schema import Control, Trait, op
from ..hlo.structure import ASYNC_DONE, ASYNC_START, ASYNC_UPDATE, GET_TUPLE_ELEMENT, TUPLE
from .shapes import require, require_declared


def _parameters_match(what: str, computation: Any, operands: tuple[Shape, ...]) -> None:
    parameters = computation.program_shape.parameters
    require(len(parameters) == len(operands), f"{what} takes another number of arguments", got=len(operands),
            expected=f"{len(parameters)} for {computation.program_shape}")
    for number, (parameter, operand) in enumerate(zip(parameters, operands, strict=True)):
        require(parameter.compatible(operand), f"operand {number} does not fit parameter {number} of {what}",
                got=operand, expected=parameter)


# ------------------------------------------------------------------------------------------------ tuples


def _tuple_shape(declared: Shape | None, *elements: Shape) -> Shape:
    return Shape.tuple([e if e.is_tuple else e.without_layout() for e in elements])


@op(TUPLE, infer=_tuple_shape, stablehlo="tuple", traits=Trait.FREE | Trait.NO_TRAFFIC | Trait.MIXED_PRECISION)
def tuple_(*elements): ...


def _element_shape(declared: Shape | None, operand: Shape, *, index: int) -> Shape:
    require(operand.is_tuple, "the operand is not a tuple", got=operand, expected="a tuple shape")
    require(0 <= index < len(operand.tuple_shapes), "the index is out of range", got=index,
            expected=f"0 to {len(operand.tuple_shapes) - 1}")
    return operand.tuple_shapes[index]


@op(GET_TUPLE_ELEMENT, infer=_element_shape, stablehlo="get_tuple_element",
    traits=Trait.NO_TRAFFIC | Trait.MIXED_PRECISION)
def get_tuple_element(operand, *, index: Int): ...


# ------------------------------------------------------------------------------------------------ calls


def _call_shape(declared: Shape | None, *operands: Shape, to_apply: Any, **_: Any) -> Shape:
    _parameters_match(f"computation {to_apply.name!r}", to_apply, operands)
    return to_apply.root.shape


@op("call", infer=_call_shape, stablehlo="call", traits=Trait.MIXED_PRECISION, control=Control.CALL)
def call(*operands, to_apply: Region, is_composite: Bool = False, output_to_operand_aliasing: OperandAliases = ""): ...


def _fusion_shape(declared: Shape | None, *operands: Shape, calls: Any, **_: Any) -> Shape:
    _parameters_match(f"fused computation {calls.name!r}", calls, operands)
    root = calls.root.shape
    require(declared is None or declared.compatible(root, ignore_precision=True),
            "the declared shape is not the fused computation's result", got=declared, expected=root)
    return declared if declared is not None else root


@op("fusion", infer=_fusion_shape, traits=Trait.MIXED_PRECISION, inferable=False, control=Control.CALL)
def fusion(*operands, kind: FusionKind, calls: Region, output_to_operand_aliasing: OperandAliases = ""): ...


# ------------------------------------------------------------------------------------------------ branches and loops


def _conditional_shape(declared: Shape | None, selector: Shape, *operands: Shape, true_computation: Any = None,
                       false_computation: Any = None, branch_computations: Any = ()) -> Shape:
    two = true_computation is not None or false_computation is not None
    require(not (two and branch_computations), "true/false and branch computations exclude each other",
            expected="true_computation and false_computation, or branch_computations")
    require(selector.is_scalar, "the selector is not a scalar", got=selector, expected="pred[] or s32[]")
    if two:
        require(true_computation is not None and false_computation is not None, "both computations are required",
                expected="true_computation and false_computation")
        require(selector.element_type is PRED, "the predicate is not PRED", got=selector, expected="pred[]")
    else:
        require(selector.element_type is S32, "the branch index is not S32", got=selector, expected="s32[]",
                hint="use a PRED to select between true_computation and false_computation")
    branches = (true_computation, false_computation) if two else branch_computations
    branches = [b for b in branches if b is not None]
    require(len(branches) > 0, "there are no branches", expected="1 or more")
    require(len(branches) == len(operands), "one operand is needed for each branch", got=len(operands), expected=len(branches))
    for number, (branch, operand) in enumerate(zip(branches, operands, strict=True)):
        _parameters_match(f"branch {number}", branch, (operand,))
        require(branch.root.shape.compatible(branches[0].root.shape), "branches have different result shapes",
                got=f"branch {number}: {branch.root.shape}", expected=f"branch 0: {branches[0].root.shape}")
    return branches[0].root.shape


@op("conditional", infer=_conditional_shape, stablehlo="case", traits=Trait.MIXED_PRECISION, control=Control.BRANCHES)
def conditional(selector, *operands, true_computation: Region | None = None, false_computation: Region | None = None,
                branch_computations: Regions = ()): ...


def _while_shape(declared: Shape | None, init: Shape, *, condition: Any, body: Any) -> Shape:
    _parameters_match("the condition", condition, (init,))
    _parameters_match("the body", body, (init,))
    test = condition.root.shape
    require(test.is_scalar and test.element_type is PRED, "the condition's result is not a PRED scalar", got=test,
            expected="pred[]")
    require(body.root.shape.compatible(init), "the body's result is not the shape of the init value", got=body.root.shape,
            expected=init)
    return init


@op("while", infer=_while_shape, stablehlo="while", traits=Trait.MIXED_PRECISION, control=Control.LOOP)
def while_(init, *, condition: Region, body: Region): ...


# ------------------------------------------------------------------------------------------------ async wrappers


def _async_start_shape(declared: Shape | None, *operands: Shape, calls: Any, **_: Any) -> Shape:
    _parameters_match(f"computation {calls.name!r}", calls, operands)
    shape = require_declared(declared)
    parts = list(shape.tuple_shapes)
    require(len(parts) >= 2 and parts[0].is_tuple,
            "the result of async-start is a tuple of the operands' tuple, the output and contexts", got=shape)
    require(parts[1].compatible(calls.root.shape), "element 1 is not the output's shape", got=parts[1],
            expected=calls.root.shape)
    return shape


@op(ASYNC_START, infer=_async_start_shape, traits=Trait.MIXED_PRECISION, inferable=False, control=Control.START)
def async_start(*operands, calls: Region, async_execution_thread: Text = "", output_to_operand_aliasing: OperandAliases = ""): ...


def _async_update_shape(declared: Shape | None, operand: Shape, **_: Any) -> Shape:
    require(operand.is_tuple, "the operand is not an async operation in progress", got=operand)
    return operand


@op(ASYNC_UPDATE, infer=_async_update_shape, traits=Trait.MIXED_PRECISION, inferable=False,
    completes=(ASYNC_START, ASYNC_UPDATE))
def async_update(operand, *, calls: Region | None = None, async_execution_thread: Text = ""): ...


def _async_done_shape(declared: Shape | None, operand: Shape, **_: Any) -> Shape:
    parts = list(operand.tuple_shapes)
    require(len(parts) >= 2, "the operand is not an async operation in progress", got=operand)
    return parts[1]


@op(ASYNC_DONE, infer=_async_done_shape, traits=Trait.MIXED_PRECISION, inferable=False,
    completes=(ASYNC_START, ASYNC_UPDATE))
def async_done(operand, *, calls: Region | None = None, async_execution_thread: Text = ""): ...
