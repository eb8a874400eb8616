"""Rules: what participants do together."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.errors import InvalidArgument, UnsupportedError
from ..core.shape import UNBOUNDED, Shape
from ..core.types import U32
from ..functions.collective import AllToAll, CrossReplicaSum
from ..functions.hlo_builder import XlaOp
from ..hlo.attributes import ReplicaGroups
from ..hlo.ir import Computation
from ..hlo.mesh_sharding import Axis, Mesh
from ..hlo.replica_groups import parse_replica_groups
from ..hlo.scanner import Scanner
from ..mlir.ir import Operation, Struct, Symbol
from ..opcodes import collective
from .attributes import boolean, fields, integer, rows_of
from .reading_rules import Results, rule
from .reduction import element_shapes, promoted
from .scope import Scope
from .types import refined

RAGGED_ALL_TO_ALL = "ragged_all_to_all"
"""The target of the custom call that is a ragged exchange."""


def groups_of(scope: Scope, operation: Operation) -> tuple[tuple[int, ...], ...]:
    """The replica groups. Shorter ones are filled up with -1; JAX 0.12 has them along axes of a mesh."""
    given = operation.attributes.get("replica_groups")
    if given is None:
        return ()
    if isinstance(given, Struct):
        return _along_axes(scope, given)
    return tuple(tuple(n for n in row if n >= 0) for row in rows_of(operation, "replica_groups"))


def _along_axes(scope: Scope, given: Struct) -> tuple[tuple[int, ...], ...]:
    """``#stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [...]>``, read as HLO text has it."""
    mesh, axes = given.fields["mesh"], [_axis(axis) for axis in given.fields["axes"]]
    if isinstance(mesh, Symbol):
        found = scope.program.meshes.get(mesh.name)
        if found is None:
            raise InvalidArgument("no mesh has this name", got=mesh.name, expected=", ".join(scope.program.meshes) or "a mesh")
    else:
        devices = mesh.fields.get("device_ids")
        found = Mesh(tuple((a.fields["name"], int(a.fields["size"])) for a in mesh.fields["axes"]),
                     () if devices is None else tuple(np.asarray(getattr(devices, "value", devices)).reshape(-1).tolist()))
    return parse_replica_groups(Scanner(f"{found} {{{','.join(map(str, axes))}}}"))


def _axis(given: Struct) -> Axis:
    part = given.fields.get("sub_axis_info")
    return Axis(given.fields["name"], *(() if part is None else (int(part.fields["pre_size"]), int(part.fields["size"]))))


def _attributes(scope: Scope, operation: Operation) -> dict[str, Any]:
    """Groups, channel and how ids are meant, where they are written."""
    found: dict[str, Any] = {}
    groups = groups_of(scope, operation)
    if groups:
        found["replica_groups"] = ReplicaGroups(groups)
    channel = fields(operation, "channel_handle", {}).get("handle", 0)
    if channel > 0:
        found["channel_id"] = channel
    if boolean(operation, "use_global_device_ids"):
        found["use_global_device_ids"] = True
    return found


def _resized(scope: Scope, operation: Operation, shapes: Sequence[Shape], dimension: int,
             resize: Callable[[int, int], int]) -> Shape:
    """The operands' shapes with the written sizes along one dimension, or what `resize` makes of the size and the number of
    members of a group; of several operands their tuple."""
    found = []
    for number, shape in enumerate(shapes):
        declared = scope.declared(operation, number)
        sizes = [declared.dimensions[d] if d == dimension else n for d, n in enumerate(shape.dimensions)]
        if len(sizes) != declared.rank or not 0 <= dimension < declared.rank:
            raise InvalidArgument("the dimension or the result does not fit", got=f"dimension {dimension}, {shape} to {declared}")
        if sizes[dimension] == UNBOUNDED:
            groups = groups_of(scope, operation)
            if not groups:
                raise InvalidArgument("the size of the result is not known", got=declared, expected="replica groups, or its size")
            sizes[dimension] = resize(shape.dimensions[dimension], len(groups[0]))
        found.append(refined(shape.with_dimensions(sizes, shape.dynamic_flags), declared))
    return found[0] if len(found) == 1 else Shape.tuple(found)


def _exchanged(scope: Scope, operation: Operation, opcode: str, operands: Sequence[XlaOp], attributes: dict[str, Any],
               shape: Shape | None = None) -> Results:
    shape = shape or (Shape.tuple([o.shape.without_layout() for o in operands]) if len(operands) > 1 else operands[0].shape)
    return scope.several(scope.add(opcode, operands, attributes, shape), operation)


@rule("stablehlo.all_gather")
def all_gather(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    dimension = integer(operation, "all_gather_dim")
    attributes = {"dimensions": (dimension,), **_attributes(scope, operation)}
    shape = _resized(scope, operation, [o.shape for o in operands], dimension, operator.mul)
    return _exchanged(scope, operation, collective.all_gather, operands, attributes, shape)


def _combined(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> tuple[list[XlaOp], Computation]:
    """The operands with the elements of the results, and the computation."""
    region = operation.regions[0]
    return ([promoted(o, scope.declared(operation, k).element_type) for k, o in enumerate(operands)],
            scope.region(region, element_shapes(scope, region)))


@rule("stablehlo.all_reduce")
def all_reduce(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    arrays, computation = _combined(scope, operation, operands)
    attributes = {"to_apply": computation, **_attributes(scope, operation)}
    return _exchanged(scope, operation, collective.all_reduce, arrays, attributes)


@rule("stablehlo.reduce_scatter")
def reduce_scatter(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    arrays, computation = _combined(scope, operation, operands)
    dimension = integer(operation, "scatter_dimension")
    attributes = {"dimensions": (dimension,), "to_apply": computation, **_attributes(scope, operation)}
    shape = _resized(scope, operation, [a.shape for a in arrays], dimension, operator.floordiv)
    return _exchanged(scope, operation, collective.reduce_scatter, arrays, attributes, shape)


@rule("stablehlo.all_to_all")
def all_to_all(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    attributes = _attributes(scope, operation)
    if operation.attributes.get("split_dimension") is None:
        return _exchanged(scope, operation, collective.all_to_all, operands, attributes)
    return [AllToAll(o, integer(operation, "split_dimension"), integer(operation, "concat_dimension"),
                     integer(operation, "split_count"), attributes.get("replica_groups", ()), None, attributes.get("channel_id"))
            for o in operands]


@rule("stablehlo.collective_permute")
def collective_permute(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    attributes = {"source_target_pairs": rows_of(operation, "source_target_pairs"), **_attributes(scope, operation)}
    return _exchanged(scope, operation, collective.collective_permute, operands, attributes)


@rule("stablehlo.collective_reduce")
def collective_reduce(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    collective.check_root(boolean(operation, "has_dynamic_root"))
    if boolean(operation, "use_global_device_ids"):
        raise UnsupportedError("a reduction to one participant of a group of global device ids", got="use_global_device_ids",
                               expected="groups of replicas")
    arrays, computation = _combined(scope, operation, operands)
    attributes = {"to_apply": computation, **_attributes(scope, operation)}
    return _exchanged(scope, operation, collective.collective_reduce, arrays, attributes)


@rule("stablehlo.collective_broadcast")
def collective_broadcast(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    collective.check_root(boolean(operation, "has_dynamic_root"))
    return _exchanged(scope, operation, collective.collective_broadcast, operands, _attributes(scope, operation))


@rule("mhlo.ragged_all_to_all")
def ragged_all_to_all(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return scope.add(collective.ragged_all_to_all, operands, _attributes(scope, operation), operands[1].shape)


@rule("stablehlo.cross-replica-sum")
def cross_replica_sum(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return CrossReplicaSum(operands[0], groups_of(scope, operation))


@rule("stablehlo.replica_id")
def replica_id(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return scope.add(collective.replica_id, [], {}, Shape(U32))


@rule("stablehlo.partition_id")
def partition_id(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return scope.add(collective.partition_id, [], {}, Shape(U32))
