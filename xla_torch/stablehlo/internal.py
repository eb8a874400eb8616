"""Rules: what only compilers write: fusions, wrappers that run beside others, bitcasts, borders of domains."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.shape import Shape
from ..functions.hlo_builder import XlaOp
from ..functions.internal import Domain
from ..mlir.ir import Operation
from ..opcodes import control, internal
from .attributes import symbol, text, word
from .calls import computation_of
from .reading_rules import Results, rule
from .scope import Scope


@rule("builtin.unrealized_conversion_cast")
def cast(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    """A value between the types of two dialects that HLO has one type for."""
    return operands


@rule("mhlo.fusion")
def fusion(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    made = scope.add(control.fusion, operands, {
        "kind": word(operation, "fusion_kind", "kLoop"),
        "calls": scope.region(operation.regions[0], [o.shape for o in operands], "fused_computation")})
    return scope.several(made, operation)


@rule("mhlo.bitcast")
def bitcast(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return scope.add(internal.bitcast, operands, shape=scope.declared(operation))


@rule("mhlo.add_dependency")
def add_dependency(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return scope.add(internal.add_dependency, operands)


@rule("mhlo.domain")
def domain(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return Domain(operands[0], text(operation, "exit_metadata", ""), text(operation, "entry_metadata", ""))


@rule("mhlo.async_start")
def async_start(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    called = computation_of(scope, symbol(operation, "called_computation"), operands)
    thread = text(operation, "execution_thread", "main")
    shape = Shape.tuple([Shape.tuple([o.shape.without_layout() for o in operands]), called.root.shape])
    return scope.add(control.async_start, operands, {
        "calls": called, **({"async_execution_thread": thread} if thread != "main" else {})}, shape)


@rule("stablehlo.async_start")
def async_region(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    shapes = [o.shape.without_layout() for o in operands]
    called = scope.region(operation.regions[0], shapes, "async_computation")
    return scope.add(control.async_start, operands, {"calls": called}, Shape.tuple([Shape.tuple(shapes), called.root.shape]))


@rule("mhlo.async_update")
def async_update(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return scope.add(control.async_update, operands, shape=operands[0].shape)


@rule("stablehlo.async_done")
def async_done(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return scope.several(scope.add(control.async_done, operands, shape=operands[0].shape.tuple_shapes[1]), operation)
