"""Op definitions: calls, loops, branches, tuples, asynchronous wrappers. Their bodies hand computations to the lowering."""

from __future__ import annotations

from typing import Any

from ..lowering.values import evaluator
from ..shape import Shape
from ..types import PRED, S32
from .attributes import Bool, FusionKind, Int, Raw, Region, Regions, Text
from .definition import op
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


@op("tuple", infer=_tuple_shape, stablehlo="tuple", control=True)
def tuple_(inst: Any, *elements: Any) -> Any:
    return tuple(elements)


def _element_shape(declared: Shape | None, operand: Shape, *, index: int) -> Shape:
    require(operand.is_tuple, "the operand is not a tuple", got=operand, expected="a tuple shape")
    require(0 <= index < len(operand.tuple_shapes), "the index is out of range", got=index,
            expected=f"0 to {len(operand.tuple_shapes) - 1}")
    return operand.tuple_shapes[index]


@op("get-tuple-element", infer=_element_shape, stablehlo="get_tuple_element", control=True)
def get_tuple_element(inst: Any, operand: Any, *, index: Int) -> Any:
    return operand[index]


# ------------------------------------------------------------------------------------------------ calls


def _call_shape(declared: Shape | None, *operands: Shape, to_apply: Any, **_: Any) -> Shape:
    _parameters_match(f"computation {to_apply.name!r}", to_apply, operands)
    return to_apply.root.shape


@op("call", infer=_call_shape, stablehlo="call", control=True)
def call(inst: Any, *operands: Any, to_apply: Region, is_composite: Bool = False, output_to_operand_aliasing: Raw = "") -> Any:
    return evaluator().run(to_apply, operands)


def _fusion_shape(declared: Shape | None, *operands: Shape, calls: Any, **_: Any) -> Shape:
    _parameters_match(f"fused computation {calls.name!r}", calls, operands)
    root = calls.root.shape
    require(declared is None or declared.compatible(root, ignore_precision=True),
            "the declared shape is not the fused computation's result", got=declared, expected=root)
    return declared if declared is not None else root


@op("fusion", infer=_fusion_shape, control=True, inferable=False)
def fusion(inst: Any, *operands: Any, kind: FusionKind, calls: Region, output_to_operand_aliasing: Raw = "") -> Any:
    return evaluator().run(calls, operands)


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
                hint="a PRED selects between true_computation and false_computation")
    branches = (true_computation, false_computation) if two else branch_computations
    branches = [b for b in branches if b is not None]
    require(len(branches) > 0, "there are no branches", expected="1 or more")
    require(len(branches) == len(operands), "one operand is needed for each branch", got=len(operands), expected=len(branches))
    for number, (branch, operand) in enumerate(zip(branches, operands, strict=True)):
        _parameters_match(f"branch {number}", branch, (operand,))
        require(branch.root.shape.compatible(branches[0].root.shape), "branches have different result shapes",
                got=f"branch {number}: {branch.root.shape}", expected=f"branch 0: {branches[0].root.shape}")
    return branches[0].root.shape


@op("conditional", infer=_conditional_shape, stablehlo="case", control=True)
def conditional(inst: Any, selector: Any, *operands: Any, true_computation: Region | None = None,
                false_computation: Region | None = None, branch_computations: Regions = ()) -> Any:
    from ..lowering.control import lower_conditional

    branches = branch_computations or (true_computation, false_computation)
    return lower_conditional(inst, selector, operands, [b for b in branches if b is not None])


def _while_shape(declared: Shape | None, init: Shape, *, condition: Any, body: Any) -> Shape:
    _parameters_match("the condition", condition, (init,))
    _parameters_match("the body", body, (init,))
    test = condition.root.shape
    require(test.is_scalar and test.element_type is PRED, "the condition's result is not a PRED scalar", got=test,
            expected="pred[]")
    require(body.root.shape.compatible(init), "the body's result is not the shape of the init value", got=body.root.shape,
            expected=init)
    return init


@op("while", infer=_while_shape, stablehlo="while", control=True)
def while_(inst: Any, init: Any, *, condition: Region, body: Region) -> Any:
    from ..lowering.control import lower_while

    return lower_while(inst, init, condition, body)


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


@op("async-start", infer=_async_start_shape, control=True, inferable=False)
def async_start(inst: Any, *operands: Any, calls: Region, async_execution_thread: Text = "",
                output_to_operand_aliasing: Raw = "") -> Any:
    contexts = len(inst.shape.tuple_shapes) - 2
    return (tuple(operands), evaluator().run(calls, operands), *(None,) * contexts)


def _async_update_shape(declared: Shape | None, operand: Shape, **_: Any) -> Shape:
    require(operand.is_tuple, "the operand is not an async operation in progress", got=operand)
    return operand


@op("async-update", infer=_async_update_shape, control=True, inferable=False)
def async_update(inst: Any, operand: Any, *, calls: Region | None = None, async_execution_thread: Text = "") -> Any:
    return operand


def _async_done_shape(declared: Shape | None, operand: Shape, **_: Any) -> Shape:
    parts = list(operand.tuple_shapes)
    require(len(parts) >= 2, "the operand is not an async operation in progress", got=operand)
    return parts[1]


@op("async-done", infer=_async_done_shape, control=True, inferable=False)
def async_done(inst: Any, operand: Any, *, calls: Region | None = None, async_execution_thread: Text = "") -> Any:
    return operand[1]
