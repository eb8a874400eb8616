"""Functions: each becomes a computation, and what calls it a call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.errors import InvalidArgument, UnsupportedError
from ..core.shape import Shape
from ..core.sizes import unnamed
from ..functions.hlo_builder import XlaOp
from ..hlo.ir import Computation
from ..mlir.ir import Operation, Symbol, Tensor, walk
from ..opcodes import control
from .annotations import attribute_text
from .attributes import integer, symbol, text
from .reading_rules import Results, rule
from .scope import Program, Scope, only_block

_DYNAMIC = ("stablehlo.dynamic_", "stablehlo.real_dynamic_", "mhlo.dynamic_", "mhlo.real_dynamic_", "chlo.dynamic_")
_STATIC = frozenset({"stablehlo.dynamic_slice", "stablehlo.dynamic_update_slice", "mhlo.dynamic_slice",
                     "mhlo.dynamic_update_slice"})


def body_of(program: Program, name: str) -> Operation:
    """A function with a body. Raises InvalidArgument for an unknown one, UnsupportedError for a declaration."""
    function = program.functions.get(name)
    if function is None:
        raise InvalidArgument("no such function in the module", subject="StableHLO", got=f"@{name}",
                              expected=", ".join(program.functions))
    if not function.regions or not function.regions[0].blocks:
        raise UnsupportedError("a function without a body", subject="StableHLO", got=f"@{name}")
    return function


def callees(operation: Operation) -> list[str]:
    """The functions that an operation names."""
    return [v.name for v in (operation.attributes.get(k) for k in ("callee", "decomposition", "called_computation"))
            if isinstance(v, Symbol)]


def computes_sizes(program: Program, name: str) -> bool:
    """Whether sizes in a function, or in one that it calls, may depend on the call's arguments."""
    if name not in program.facts:
        program.facts[name] = False  # for recursions, which conversion refuses
        function = program.functions.get(name)
        program.facts[name] = function is not None and any(
            _is_dynamic(o) or any(computes_sizes(program, c) for c in callees(o)) for o in walk(function))
    return program.facts[name]


def _is_dynamic(operation: Operation) -> bool:
    if operation.name.startswith(_DYNAMIC) and operation.name not in _STATIC:
        return True
    arguments = (a for r in operation.regions for b in r.blocks for a in b.arguments)
    return any(isinstance(v.type, Tensor) and not v.type.is_static for vs in (operation.results, arguments) for v in vs)


def computation_of(scope: Scope, name: str, operands: Sequence[XlaOp]) -> Computation:
    """The computation of a function for these operands: the same for all calls, unless sizes depend on them."""
    program = scope.program
    function = body_of(program, name)
    values: list[np.ndarray | None] = [None] * len(operands)
    key: Any = name
    if computes_sizes(program, name):
        values = [scope.known(o) for o in operands]
        key = (name, tuple(o.shape.key for o in operands), tuple(map(_value_key, values)))
    if key in program.open:
        raise UnsupportedError("a function that calls itself", subject="StableHLO", got=f"@{name}")
    if key not in program.called:
        program.open.add(key)
        program.called[key] = _converted(program, function, name, [o.shape for o in operands], values)
        program.open.remove(key)
    return program.called[key]


def _value_key(value: np.ndarray | None) -> Any:
    if value is None or value.dtype != object:
        return None if value is None else (value.dtype.str, value.tobytes())
    return (value.shape, unnamed(tuple(value.reshape(-1).tolist())))


def convert_written(program: Program, name: str) -> None:
    """Convert a function whose sizes do not depend on its arguments before it is called, unless it is called by itself."""
    function = body_of(program, name)
    shapes = [program.shape_of(a.type) for a in only_block(function.regions[0]).arguments]
    if name not in program.called:
        program.open.add(name)
        program.called[name] = _converted(program, function, name, shapes, [None] * len(shapes))
        program.open.remove(name)


def _converted(program: Program, function: Operation, name: str, shapes: Sequence[Shape],
               values: Sequence[np.ndarray | None]) -> Computation:
    block = only_block(function.regions[0])
    scope = Scope(program, program.name(name))
    parameters = [scope.builder.parameter(k, s.without_layout()) for k, s in enumerate(shapes)]
    for parameter, value in zip(parameters, values, strict=True):
        if value is not None:
            program.folder.give(parameter.instruction, value)
    scope.bind(block, parameters)
    results = scope.block(block)
    if len(results) == 1:
        return scope.close(results)
    return scope.builder.finish(scope.add(control.tuple_, results))


def call(scope: Scope, operation: Operation, name: str, operands: Sequence[XlaOp], attributes: dict[str, Any]) -> Results:
    """A call of a function."""
    made = scope.add(control.call, operands, {"to_apply": computation_of(scope, name, operands), **attributes})
    return [made] if len(operation.results) == 1 else scope.parts(made, len(operation.results))


@rule("func.call")
def func_call(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return call(scope, operation, symbol(operation, "callee"), operands, {})


@rule("stablehlo.composite")
def composite(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    """A call of the decomposition that says what it stands for."""
    results = call(scope, operation, symbol(operation, "decomposition"), operands, {"is_composite": True})
    made = scope.builder.instructions[-1] if len(operation.results) == 1 else results[0].instruction.operands[0]  # pyright: ignore
    given = operation.attributes.get("composite_attributes", {})
    made.common["frontend_attributes"] = {
        "composite.attributes": attribute_text(given), "composite.name": text(operation, "name"),
        "composite.version": str(integer(operation, "version", 0))}
    return results
