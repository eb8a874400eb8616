"""What partitions exchange in manual regions: the rule of each collective, as ops along the partitions' dimension.

The arrays of all partitions lie along dimension 0 (see `manual_regions`), so what an exchange does to all of them at once is
to take that dimension apart, to reduce it, or to put its rows in another order.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from .. import functions as ops
from ..analysis.reducers import reducer_kind
from ..core.errors import InvalidArgument, UnsupportedError
from ..core.participant_groups import GroupMode
from ..functions.hlo_builder import Builder, XlaOp
from ..hlo.ir import Computation, Instruction
from ..hlo.replica_groups import Groups
from ..hlo.schema import Trait, schema_of
from ..opcodes import collective, reduction
from ..transform.rewriter import Rewriter
from ..transform.values import Value, as_op
from .annotations import is_sharding
from .collective_table import COLLECTIVES, Collective
from .tiles import rows, transposed

# ------------------------------------------------------------------------------------------------ groups


def _by_group(groups: Groups, size: int, given: list[XlaOp], exchange: Callable[[list[XlaOp], int], list[XlaOp]]) -> list[XlaOp]:
    """An exchange of groups, of which those of one length come at once: as arrays [groups, members, ...], to the same."""
    found: list[list[XlaOp]] = []
    order: list[int] = []
    for length in sorted({len(group) for group in groups}):
        alike = [group for group in groups if len(group) == length]
        members = [number for group in alike for number in group]
        parts = [rows(value, members) for value in given]
        parts = [ops.Reshape(p, [len(alike), length, *p.shape.dimensions[1:]]) for p in parts]
        results = exchange(parts, length)
        found.append([ops.Reshape(r, [len(members), *r.shape.dimensions[2:]]) for r in results])
        order += members
    if sorted(order) != list(range(size)):
        raise InvalidArgument("a partition is in no replica group, or in several", got=[list(g) for g in groups],
                              expected=f"each of 0 to {size - 1} once")
    back = [order.index(number) for number in range(size)]
    columns = [list(column) for column in zip(*found, strict=True)]
    return [rows(c[0] if len(c) == 1 else ops.ConcatInDim(c[0].builder, c, 0), back) for c in columns]


def _to_all(value: XlaOp, length: int) -> XlaOp:
    """[groups, ...] as [groups, members, ...]."""
    first, *sizes = value.shape.dimensions
    return ops.BroadcastInDim(value, [first, length, *sizes], [0, *range(2, len(sizes) + 2)])


class _WithoutMetadata(Rewriter):
    """A reducer without annotations."""

    def visit(self, instruction: Instruction, operands: list[Value], arguments: Sequence[Value]) -> Value:
        return operands[0] if is_sharding(instruction) else super().visit(instruction, operands, arguments)


def _without_metadata(reducer: Computation) -> Computation:
    builder = Builder(reducer.name)
    scalars: list[Value] = [builder.parameter(k, p.shape, p.name) for k, p in enumerate(reducer.parameters)]
    return builder.finish(as_op(builder, _WithoutMetadata(builder).run(reducer, scalars)))


def _as_one_op(reducer: Computation, value: XlaOp) -> str | None:
    """The opcode that reduces whole arrays as the reducer does scalars, or None."""
    kind = reducer_kind(reducer)
    if kind is None or value.element_type is not reducer.root.shape.element_type:
        return None
    return kind if Trait.COMMUTATIVE | Trait.ASSOCIATIVE in schema_of(kind).traits else None


def _reduced(value: XlaOp, reducer: Computation) -> XlaOp:
    """[groups, members, ...] reduced to [groups, ...], member by member, as participants do."""
    first, members, *sizes = value.shape.dimensions
    parts = [ops.Reshape(ops.SliceInDim(value, k, k + 1, 1, 1), [first, *sizes]) for k in range(members)]
    opcode = _as_one_op(reducer, value)
    attributes = {} if opcode else {"to_apply": reducer, "dimensions": tuple(range(len(sizes) + 1))}
    return functools.reduce(lambda total, part: value.builder.add(opcode or reduction.map_, [total, part], attributes), parts)


# ------------------------------------------------------------------------------------------------ exchanges


def _all_reduce(inst: Instruction, groups: Groups, size: int, given: list[XlaOp]) -> list[XlaOp]:
    reducer = _without_metadata(inst.attributes["to_apply"])
    return _by_group(groups, size, given, lambda parts, length: [_to_all(_reduced(p, reducer), length) for p in parts])


def _reduce_scatter(inst: Instruction, groups: Groups, size: int, given: list[XlaOp]) -> list[XlaOp]:
    reducer, (dim,) = _without_metadata(inst.attributes["to_apply"]), inst.attributes["dimensions"]
    return _by_group(groups, size, given, lambda parts, length: [
        _moved(_split(_reduced(p, reducer), dim + 1, length), dim + 1, 1) for p in parts])


def _all_gather(inst: Instruction, groups: Groups, size: int, given: list[XlaOp]) -> list[XlaOp]:
    (dim,) = inst.attributes["dimensions"]

    def gathered(part: XlaOp, length: int) -> XlaOp:
        in_place = _moved(part, 1, dim + 1)
        sizes = list(in_place.shape.dimensions)
        sizes[dim + 1:dim + 3] = [sizes[dim + 1] * sizes[dim + 2]]
        return _to_all(ops.Reshape(in_place, sizes), length)

    return _by_group(groups, size, given, lambda parts, length: [gathered(p, length) for p in parts])


def _all_to_all(inst: Instruction, groups: Groups, size: int, given: list[XlaOp]) -> list[XlaOp]:
    split = inst.attributes.get("dimensions")
    return _by_group(groups, size, given, (lambda parts, length: _all_to_all_of_tuple(parts)) if not split else (
        lambda parts, length: [_all_to_all_along(p, split[0] + 2, length) for p in parts]))


def _all_to_all_along(part: XlaOp, dim: int, length: int) -> XlaOp:
    """Block k of member j becomes block j of member k."""
    cut = _split(part, dim, length)
    order = list(range(cut.shape.rank))
    order[1], order[dim] = order[dim], order[1]
    return ops.Reshape(ops.Transpose(cut, order), part.shape.dimensions)


def _all_to_all_of_tuple(parts: list[XlaOp]) -> list[XlaOp]:
    """Operand k of member j becomes result j of member k."""
    groups, members, *sizes = parts[0].shape.dimensions
    if members != len(parts):
        raise InvalidArgument("the number of operands must equal the group size", got=len(parts), expected=members)
    columns = [ops.Reshape(p, [groups, members, 1, *sizes]) for p in parts]
    whole = ops.ConcatInDim(columns[0].builder, columns, 2)  # [groups, j, k, ...]
    return [ops.Reshape(ops.SliceInDim(whole, j, j + 1, 1, 1), [groups, members, *sizes]) for j in range(members)]


def _collective_permute(inst: Instruction, groups: Groups, size: int, given: list[XlaOp]) -> list[XlaOp]:
    if len(given) > 1 and "slice_sizes" in inst.attributes:
        raise UnsupportedError("an in-place collective-permute is not supported in a program that has not been partitioned",
                               hint="partition the program with XLA, and run the result")
    sources = {target: source for source, target in groups}
    return [_rows_or_zeros(value, [sources.get(number) for number in range(size)]) for value in given]


def _collective_broadcast(inst: Instruction, groups: Groups, size: int, given: list[XlaOp]) -> list[XlaOp]:
    first = {number: group[0] for group in groups for number in group}
    return [_rows_or_zeros(value, [first.get(number) for number in range(size)]) for value in given]


def _rows_or_zeros(value: XlaOp, places: Sequence[int | None]) -> XlaOp:
    if None in places:
        none = [(0, 0, 0)] * (value.shape.rank - 1)
        value = ops.Pad(value, value.builder.constant(0, value.element_type), [(0, 1, 0), *none])
    return rows(value, [len(places) if place is None else place for place in places])


def _refused(inst: Instruction, groups: Groups, size: int, given: list[XlaOp]) -> list[XlaOp]:
    raise UnsupportedError(f"{inst.opcode} across partitions is not supported in a program that has not been partitioned",
                           hint="partition the program with XLA, and run the result")


def _split(value: XlaOp, dim: int, count: int) -> XlaOp:
    """A dimension as blocks and places in them."""
    sizes = list(value.shape.dimensions)
    return ops.Reshape(value, [*sizes[:dim], count, sizes[dim] // count, *sizes[dim + 1:]])


def _moved(value: XlaOp, start: int, to: int) -> XlaOp:
    """A dimension moved to another place among the others."""
    order = [d for d in range(value.shape.rank) if d != start]
    order.insert(to, start)
    return transposed(value, order)


COLLECTIVES.add_all({
    collective.all_reduce: Collective(_all_reduce, GroupMode.CROSS_BOTH),
    collective.reduce_scatter: Collective(_reduce_scatter, GroupMode.CROSS_BOTH),
    collective.all_gather: Collective(_all_gather, GroupMode.CROSS_BOTH),
    collective.all_to_all: Collective(_all_to_all),
    collective.collective_permute: Collective(_collective_permute),
    collective.collective_broadcast: Collective(_collective_broadcast),
    collective.ragged_all_to_all: Collective(_refused),
    collective.collective_reduce: Collective(_refused),
    collective.all_reduce_start: Collective(_refused),
    collective.all_gather_start: Collective(_refused),
    collective.collective_permute_start: Collective(_refused),
})
