"""What partitions exchange, as ops on an array with the partitions along dimension 0 (see `partitions`).

Each function takes the instruction, the groups of partitions (or pairs of source and target), how many there are, and the
operands of all partitions; it returns the results of all partitions, one array for each result.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from .. import ops
from ..builder import XlaOp
from ..errors import InvalidArgument, UnsupportedError
from ..hlo.ir import Computation, Instruction
from ..types import S32
from .inline import Replay, Value, as_op
from .recognise import reducer_kind

Groups = tuple[tuple[int, ...], ...]
Exchange = Callable[[Instruction, Groups, int, list[XlaOp]], list[XlaOp]]

# ------------------------------------------------------------------------------------------------ rows and tiles


def rows(value: XlaOp, places: Sequence[int] | np.ndarray) -> XlaOp:
    """These rows of dimension 0, in this order."""
    places, sizes = list(map(int, places)), value.shape.dimensions
    first, count = (places[0] if places else 0), len(places)
    if places == list(range(first, first + count)):
        whole = first == 0 and count == sizes[0]
        return value if whole else ops.SliceInDim(value, first, first + count, 1, 0)
    if len(set(places)) == 1:
        one = ops.Reshape(ops.SliceInDim(value, first, first + 1, 1, 0), sizes[1:])
        return ops.BroadcastInDim(one, [count, *sizes[1:]], range(1, len(sizes)))
    numbers = ops.GatherDimensionNumbers(tuple(range(1, len(sizes))), (0,), (0,), 1)
    index = value.builder.constant(np.array(places, np.int32)[:, None], S32)
    return ops.Gather(value, index, numbers, [1, *sizes[1:]])


def tiled(value: XlaOp, counts: Sequence[int], local: Sequence[int], batched: bool) -> XlaOp:
    """The tiles of an array, or of each array of a batch, along dimension 0; what sticks out at the end is filled with 0.

    Raises InvalidArgument where a tile does not have the size `local`.
    """
    first = value.shape.dimensions[:batched]
    sizes = value.shape.dimensions[batched:]
    if tuple(local) != tuple(-(-n // count) for n, count in zip(sizes, counts, strict=True)):
        raise InvalidArgument("a partition's array does not have the size of a tile", got=list(local),
                              expected=f"{list(sizes)} in {list(counts)} tiles")
    missing = [(0, n * count - size, 0) for n, count, size in zip(local, counts, sizes, strict=True)]
    if any(high for _, high, _ in missing):
        value = ops.Pad(value, value.builder.constant(0, value.element_type), [(0, 0, 0)] * batched + missing)
    cut = [n for pair in zip(counts, local, strict=True) for n in pair]
    value = ops.Reshape(value, [*first, *cut])
    at, rank = len(first), len(counts)
    order = [*range(at), *(at + 2 * d for d in range(rank)), *(at + 2 * d + 1 for d in range(rank))]
    return ops.Reshape(_transposed(value, order), [math.prod(first) * math.prod(counts), *local])


def untiled(value: XlaOp, counts: Sequence[int], whole: Sequence[int], batch: int | None) -> XlaOp:
    """The inverse of `tiled`: the array of size `whole`, or a `batch` of them. Raises InvalidArgument."""
    first, local, rank = ([] if batch is None else [batch]), value.shape.dimensions[1:], len(counts)
    if any(not 0 <= n * count - size < max(count, 1) for n, count, size in zip(local, counts, whole, strict=True)):
        raise InvalidArgument("a partition's array does not have the size of a tile", got=list(local),
                              expected=f"{list(whole)} in {list(counts)} tiles")
    at = len(first)
    value = ops.Reshape(value, [*first, *counts, *local])
    order = [*range(at), *(at + d + part * rank for d in range(rank) for part in (0, 1))]
    full = [n * count for n, count in zip(local, counts, strict=True)]
    value = ops.Reshape(_transposed(value, order), [*first, *full])
    for d, (have, want) in enumerate(zip(full, whole, strict=True)):
        value = value if have == want else ops.SliceInDim(value, 0, want, 1, at + d)
    return value


def _transposed(value: XlaOp, order: Sequence[int]) -> XlaOp:
    sizes = value.shape.dimensions
    long = [d for d in order if sizes[d] != 1]
    return ops.Reshape(value, [sizes[d] for d in order]) if long == sorted(long) else ops.Transpose(value, order)


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


class _Bare(Replay):
    """A reducer without annotations."""

    def visit(self, instruction: Instruction, operands: list[Value], arguments: Sequence[Value]) -> Value:
        marked = instruction.opcode == "custom-call" and instruction.attributes["custom_call_target"] == "Sharding"
        return operands[0] if marked else super().visit(instruction, operands, arguments)


def _bare(reducer: Computation) -> Computation:
    from ..builder import XlaBuilder

    builder = XlaBuilder(reducer.name)
    scalars: list[Value] = [builder.parameter(k, p.shape, p.name) for k, p in enumerate(reducer.parameters)]
    return builder.finish(as_op(builder, _Bare(builder).run(reducer, scalars)))


_PLAIN = frozenset({"add", "multiply", "minimum", "maximum", "and", "or", "xor"})


def _reduced(value: XlaOp, reducer: Computation) -> XlaOp:
    """[groups, members, ...] reduced to [groups, ...], member by member, as participants do."""
    first, members, *sizes = value.shape.dimensions
    parts = [ops.Reshape(ops.SliceInDim(value, k, k + 1, 1, 1), [first, *sizes]) for k in range(members)]
    kind = reducer_kind(reducer)
    if kind in _PLAIN and value.element_type is reducer.root.shape.element_type:
        return functools.reduce(lambda total, part: value.builder.add(kind, [total, part]), parts)
    everywhere = {"to_apply": reducer, "dimensions": tuple(range(len(sizes) + 1))}
    return functools.reduce(lambda total, part: value.builder.add("map", [total, part], everywhere), parts)


# ------------------------------------------------------------------------------------------------ exchanges


def _all_reduce(inst: Instruction, groups: Groups, size: int, given: list[XlaOp]) -> list[XlaOp]:
    reducer = _bare(inst.attributes["to_apply"])
    return _by_group(groups, size, given, lambda parts, length: [_to_all(_reduced(p, reducer), length) for p in parts])


def _reduce_scatter(inst: Instruction, groups: Groups, size: int, given: list[XlaOp]) -> list[XlaOp]:
    reducer, (dim,) = _bare(inst.attributes["to_apply"]), inst.attributes["dimensions"]
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
        raise InvalidArgument("there is not an operand for each member of a group", got=len(parts), expected=members)
    columns = [ops.Reshape(p, [groups, members, 1, *sizes]) for p in parts]
    whole = ops.ConcatInDim(columns[0].builder, columns, 2)  # [groups, j, k, ...]
    return [ops.Reshape(ops.SliceInDim(whole, j, j + 1, 1, 1), [groups, members, *sizes]) for j in range(members)]


def _collective_permute(inst: Instruction, groups: Groups, size: int, given: list[XlaOp]) -> list[XlaOp]:
    if len(given) > 1 and "slice_sizes" in inst.attributes:
        raise UnsupportedError("a collective-permute into a buffer, in a program that has not been partitioned",
                               hint="partition the program with XLA, and run what it gives")
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
    raise UnsupportedError(f"partitions cannot do {inst.opcode} together in a program that has not been partitioned",
                           hint="partition the program with XLA, and run what it gives")


def _split(value: XlaOp, dim: int, count: int) -> XlaOp:
    """A dimension as blocks and places in them."""
    sizes = list(value.shape.dimensions)
    return ops.Reshape(value, [*sizes[:dim], count, sizes[dim] // count, *sizes[dim + 1:]])


def _moved(value: XlaOp, start: int, to: int) -> XlaOp:
    """A dimension moved to another place among the others."""
    order = [d for d in range(value.shape.rank) if d != start]
    order.insert(to, start)
    return _transposed(value, order)


EXCHANGES: dict[str, Exchange] = {
    "all-reduce": _all_reduce, "reduce-scatter": _reduce_scatter, "all-gather": _all_gather, "all-to-all": _all_to_all,
    "collective-permute": _collective_permute, "collective-broadcast": _collective_broadcast,
    **dict.fromkeys(("ragged-all-to-all", "collective-reduce", "all-reduce-start", "all-gather-start",
                     "collective-permute-start"), _refused)}
