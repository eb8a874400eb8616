"""Shardy: meshes, shardings by axes of a mesh, and manual computations, in what XLA's converter makes of them.

The shardings themselves go along as frontend attributes; beside them stand the tilings that they mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..core.shape import Shape
from ..functions.hlo_builder import XlaOp
from ..hlo.mesh_sharding import Mesh
from ..hlo.sharding import Sharding
from ..mlir.ir import Opaque, Operation
from ..opcodes import control, internal
from .annotations import SDY_SHARDING, SHARDING, attribute_text
from .reading_rules import Results, rule
from .scope import Scope, only_block
from .tilings import per_value, tilings_of

_RESULT = "xla.sdy.FuncResultSharding"


def constrained(scope: Scope, operand: XlaOp, attribute: Opaque, target: str = "Sharding") -> XlaOp:
    """A value that is to lie as an attribute says."""
    effect = {} if target == "Sharding" else {"custom_call_has_side_effect": True}
    made = scope.add(internal.custom_call, [operand], {"custom_call_target": target, **effect}, operand.shape)
    made.instruction.common["frontend_attributes"] = {f"xla.{SDY_SHARDING}": per_value(attribute.text)}
    if target == "Sharding" and not scope.is_manual:
        made.instruction.common["sharding"] = tilings_of(attribute, scope.program.meshes)[0]
    return made


@rule("sdy.sharding_constraint", "sdy.reshard")
def sharding_constraint(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return _moved(scope, operation, operands[0], "sharding")


@rule("sdy.all_gather", "sdy.all_slice", "sdy.all_to_all", "sdy.collective_permute", "sdy.all_reduce", "sdy.reduce_scatter")
def moved(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    """Shardy's collectives change where the parts of an array lie, and not the array."""
    return _moved(scope, operation, operands[0], "out_sharding")


def _moved(scope: Scope, operation: Operation, operand: XlaOp, name: str) -> XlaOp:
    attribute = operation.attributes.get(name)
    return constrained(scope, operand, attribute) if isinstance(attribute, Opaque) else operand


@rule("sdy.propagation_barrier")
def propagation_barrier(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return operands[0]


@rule("sdy.sharding_group")
def sharding_group(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return []


@rule("sdy.manual_computation")
def manual_computation(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    """A computation of each partition's parts: a call between two borders, at which arrays change their shape."""
    region = operation.regions[0]
    texts = {k: attribute_text(operation.attributes.get(k)) for k in ("in_shardings", "out_shardings", "manual_axes")}
    axes = {"xla.sdy.manual_axes": texts["manual_axes"]}
    local = [scope.program.shape_of(a.type) for a in only_block(region).arguments]
    entered = _border(scope, "xla.sdy.GlobalToLocalShape", operands, local,
                      {"xla.sdy.in_shardings": texts["in_shardings"], **axes})
    body = scope.region(region, local, "xla.sdy.manual_computation_body", is_manual=True)
    called = scope.add(control.call, entered, {"to_apply": body})
    called.instruction.common["frontend_attributes"] = {"inlineable": "false"}
    results = scope.parts(called, len(operation.results)) if called.shape.is_tuple else [called]
    shapes = [scope.declared(operation, k) for k in range(len(operation.results))]
    return _border(scope, "xla.sdy.LocalToGlobalShape", results, shapes,
                   {"xla.sdy.out_shardings": texts["out_shardings"], **axes})


def _border(scope: Scope, target: str, values: Sequence[XlaOp], shapes: Sequence[Shape], frontend: dict[str, str]) -> list[XlaOp]:
    if not values:
        return []
    made = scope.add(internal.custom_call, values, {"custom_call_target": target, "custom_call_has_side_effect": True},
                     shapes[0] if len(shapes) == 1 else Shape.tuple(shapes))
    made.instruction.common["frontend_attributes"] = frontend
    return [made] if len(shapes) == 1 else scope.parts(made, len(shapes))


@rule("sdy.named_computation")
def named_computation(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    body = scope.region(operation.regions[0], [o.shape for o in operands], str(operation.attributes.get("name", "named")))
    called = scope.add(control.call, operands, {"to_apply": body})
    return scope.parts(called, len(operation.results)) if called.shape.is_tuple else [called]


def results_of(scope: Scope, results: Sequence[XlaOp], attributes: Sequence[object]) -> list[XlaOp]:
    """The results of the entry function, those with shardings of Shardy behind a call that says so."""
    found = []
    for result, given in zip(results, attributes, strict=True):
        attribute = given.get(SDY_SHARDING) if isinstance(given, dict) else None
        found.append(constrained(scope, result, attribute, _RESULT) if isinstance(attribute, Opaque) else result)
    return found


def of_argument(given: Mapping[str, object], meshes: Mapping[str, Mesh]) -> tuple[dict[str, str], Sharding | None]:
    """The frontend attribute and the tiling of an argument, or of a result, of the entry function."""
    attribute = given.get(SDY_SHARDING)
    if not isinstance(attribute, Opaque):
        return {}, None
    found = None if SHARDING in given else next(iter(tilings_of(attribute, meshes)), None)
    return {f"xla.{SDY_SHARDING}": attribute.text}, found
