"""Rules: loops, branches, tuples, barriers.

In HLO each computation sees its parameters only. What a region uses from outside becomes an operand more: carried along by a
loop, handed to a branch. Constants are made again within.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..core.errors import InvalidArgument
from ..core.shape import Shape
from ..core.types import PRED
from ..functions.hlo_builder import XlaOp
from ..mlir.ir import Block, Operation, Value
from ..opcodes import control, internal
from .attributes import integer
from .reading_rules import Results, rule
from .scope import Scope, is_constant, only_block


@rule("stablehlo.while")
def while_(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    """A value that the body hands on unchanged is no carried one but one from outside, as XLA's converter has it."""
    condition, body = map(only_block, operation.regions)
    carried, fixed = _changing(operation, body)
    outside = _captured(scope, (condition, body), fixed)
    given = [*[operands[k] for k in carried], *[scope.value(v) for v in outside]]
    shapes = [o.shape for o in given]
    test, _ = _loop_scope(scope, condition, shapes, carried, outside, fixed)
    step, arguments = _loop_scope(scope, body, shapes, carried, outside, fixed)
    made = scope.add(control.while_, [scope.one(given)], {
        "condition": test.close(test.block(condition)),
        "body": step.close([*step.block(body, carried), *arguments[len(carried):]])})
    parts = scope.parts(made, len(given)) if len(given) != 1 else [made]
    return [parts[carried.index(k)] if k in carried else o for k, o in enumerate(operands)]


def _changing(operation: Operation, body: Block) -> tuple[list[int], dict[int, Value]]:
    """The numbers of the carried values that the body changes, and what the others are, by their number."""
    returned = body.operations[-1].operands if body.operations else []
    count = len(operation.operands)
    if len(returned) != count or len(body.arguments) != count:
        raise InvalidArgument("the loop's body has another number of arguments or results", expected=count,
                              got=f"{len(body.arguments)} and {len(returned)}")
    fixed = {k: operation.operands[k] for k, v in enumerate(returned) if v is body.arguments[k]}
    if len(fixed) == count:
        return list(range(count)), {}  # a loop of nothing
    return [k for k in range(count) if k not in fixed], fixed


def _captured(scope: Scope, blocks: Sequence[Block], fixed: dict[int, Value]) -> list[Value]:
    """The values from outside that blocks use under their own names, or as arguments that are fixed."""
    found: dict[Value, None] = {}
    for block in blocks:
        numbers = {a: k for k, a in enumerate(block.arguments)}
        terminator = block.operations[-1]
        used = scope.program.used(block.operations[:-1])
        returned = [v for k, v in enumerate(terminator.operands) if numbers.get(v) != k or k not in fixed]
        own = {r for o in block.operations for r in o.results}
        for value in [*used, *[v for v in returned if v not in own and not is_constant(v)]]:
            outer = value if value not in numbers else fixed.get(numbers[value])
            if outer is not None and not is_constant(outer):
                found.setdefault(outer)
    return list(found)


def _loop_scope(scope: Scope, block: Block, shapes: Sequence[Shape], carried: Sequence[int], outside: Sequence[Value],
                fixed: dict[int, Value]) -> tuple[Scope, list[XlaOp]]:
    """The scope of a loop's condition or body, and the parts of its one parameter, the last of which are from outside."""
    inner, arguments = _inner(scope, shapes, outside)
    inner.values.update({block.arguments[k]: inner.value(v) for k, v in fixed.items() if v in inner.values or is_constant(v)})
    inner.values.update({block.arguments[k]: argument for k, argument in zip(carried, arguments, strict=False)})
    return inner, arguments


def _inner(scope: Scope, shapes: Sequence[Shape], outside: Sequence[Value]) -> tuple[Scope, list[XlaOp]]:
    """A scope with one parameter, a value or a tuple of several, the last of which are values from outside; and its parts."""
    inner = Scope(scope.program, scope.program.name("region"), scope)
    whole = inner.builder.parameter(0, shapes[0] if len(shapes) == 1 else Shape.tuple(shapes))
    arguments = [whole] if len(shapes) == 1 else inner.parts(whole, len(shapes))
    found = dict(zip(outside, arguments[len(shapes) - len(outside):], strict=True))
    inner.values.update(found)
    for value, argument in found.items() if scope.program.is_sized else ():  # sizes within may follow from them
        known = scope.known(scope.value(value))
        if known is not None:
            scope.program.folder.give(argument.instruction, known)
    return inner, arguments


@rule("stablehlo.case")
def case(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return _branches(scope, operation, operands[0])


@rule("stablehlo.if")
def if_(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return _branches(scope, operation, operands[0])


def _branches(scope: Scope, operation: Operation, selector: XlaOp) -> Results:
    known = scope.known(selector)
    if known is not None:  # as XLA's converter, which leaves the other branches away
        last = len(operation.regions) - 1
        index = int(known) if selector.element_type is not PRED else 1 - int(known)
        return scope.block(only_block(operation.regions[index if 0 <= index <= last else last]))
    given, made = [selector], []
    for region in operation.regions:
        captured = scope.program.captured(region)
        values = [scope.value(v) for v in captured]
        given.append(scope.one(values))
        inner, _ = _inner(scope, [v.shape for v in values], captured)
        made.append(inner.finish(only_block(region), []))
    two = selector.element_type is PRED
    attributes = {"true_computation": made[0], "false_computation": made[1]} if two else {"branch_computations": tuple(made)}
    return scope.several(scope.add(control.conditional, given, attributes), operation)


# ------------------------------------------------------------------------------------------------------- tuples and barriers


@rule("stablehlo.tuple")
def tuple_(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return scope.add(control.tuple_, operands)


@rule("stablehlo.get_tuple_element")
def get_tuple_element(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return scope.add(control.get_tuple_element, operands, {"index": integer(operation, "index")})


@rule("stablehlo.optimization_barrier")
def optimization_barrier(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    made = scope.add(internal.opt_barrier, [scope.one(operands)])
    return [made] if len(operands) == 1 else scope.parts(made, len(operands))
