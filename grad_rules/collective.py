"""Gradients of collectives, in one convention: every participant has a loss of its own, and the gradient that it gets is
that of the SUM of all participants' losses with respect to its own arguments. See `xla_torch.distributed` for what that means
where a loss or an argument is the same everywhere, with an example.

So a cotangent is what the sum changes by when one participant's copy of a value does, and what one participant received from
others sends its cotangent back to all of them: sums stay sums, gathering becomes scattering, a permutation is undone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from grad_rules._calculus import (
    any_over,
    broadcast_over,
    conj,
    constant,
    convert,
    full,
    iota,
    masked,
    nan_where_nan,
    reshape,
    scalar_computation,
    sum_over,
    zeros,
)
from grad_rules._compositions import Cotangents, apply, derived
from grad_rules._table import linear, vjp, zero
from xla_torch.analysis.reducers import reducer_kind
from xla_torch.core.errors import DifferentiationError
from xla_torch.core.participant_groups import GroupMode
from xla_torch.core.shape import Shape
from xla_torch.core.types import S32, S64
from xla_torch.functions import (
    And,
    Conditional,
    DynamicSlice,
    DynamicSliceInDim,
    DynamicUpdateSlice,
    Eq,
    Ge,
    GetTupleElement,
    Gt,
    Lt,
    Max,
    PartitionId,
    ReplicaId,
    Select,
    SliceInDim,
    Tuple,
)
from xla_torch.functions.hlo_builder import Builder, XlaOp
from xla_torch.hlo import tree
from xla_torch.hlo.attributes import ReplicaGroups
from xla_torch.hlo.canonical_values import TUPLES
from xla_torch.hlo.ir import Computation, Instruction
from xla_torch.hlo.schema import schema_of
from xla_torch.opcodes import collective
from xla_torch.opcodes.collective import group_mode, starts_of, turns
from xla_torch.opcodes.reducer_kinds import ReducerKind

_WHO = ("replica_groups", "channel_id", "use_global_device_ids", "mode")


def _exchange(opcode: str, inst: Instruction, operands: Sequence[XlaOp], shape: Shape, **attributes: Any) -> XlaOp:
    """A collective among the participants of `inst`. Built from its attributes, so that none of them is lost."""
    known = schema_of(opcode).attributes
    who = {name: inst.attributes[name] for name in _WHO if name in inst.attributes and name in known}
    return operands[0].builder.add(opcode, operands, who | attributes, shape)


def _added(x: XlaOp, inst: Instruction) -> XlaOp:
    reducer = scalar_computation("Add", x.element_type)
    return _exchange(collective.all_reduce, inst, [x], x.shape, to_apply=reducer)


def _for_each(inst: Instruction, ct: Any, rule: Callable[[XlaOp, int], XlaOp | None]) -> Cotangents:
    """The rule for each operand whose result has a cotangent."""
    cts: tuple[XlaOp | None, ...] = ct if isinstance(ct, TUPLES) else (ct,)
    return [None if c is None else rule(c, k) for k, c in enumerate(cts)]


def _operand_shape(inst: Instruction, number: int) -> Shape:
    return inst.operands[number].shape.without_layout()


# ----------------------------------------------------------------------------------------------------- reductions


def _all_reduce(ct: Any, out: Any, operands: tuple[XlaOp, ...], inst: Instruction, to_apply: Computation) -> Cotangents:
    outs: tuple[XlaOp, ...] = out if isinstance(out, TUPLES) else (out,)
    rule = _KNOWN.get(reducer_kind(to_apply))
    if rule is None:
        size = _group_size(inst)
        return _for_each(inst, ct, lambda c, k: _composed(c, operands[k], lambda x: _folded(_parts(x, inst, size), to_apply)))
    return _for_each(inst, ct, lambda c, k: rule(_added(c, inst), outs[k], operands[k], inst))


def _sum(total: XlaOp, out: XlaOp, operand: XlaOp, inst: Instruction) -> XlaOp:
    return total


def _extreme(total: XlaOp, out: XlaOp, operand: XlaOp, inst: Instruction) -> XlaOp:
    """In equal shares to those who have the extreme; NaN to all where the result is NaN, as for a reduction."""
    here = Eq(operand, out)
    number = _added(convert(here, total.element_type), inst)
    return nan_where_nan(out, masked(here, total / Max(number, zeros(number) + 1)))


def _product(total: XlaOp, out: XlaOp, operand: XlaOp, inst: Instruction) -> XlaOp:
    """Times the product of the others. Where factors are zero it is told by how many are."""
    is_zero = Eq(operand, zeros(operand))
    factor = Select(is_zero, zeros(operand) + 1, operand)
    reducer = scalar_computation("Mul", operand.element_type)
    product = _exchange(collective.all_reduce, inst, [factor], factor.shape, to_apply=reducer)
    own = convert(is_zero, operand.element_type)
    return total * conj(masked(Eq(_added(own, inst), own), product / factor))


_KNOWN: dict[ReducerKind | None, Callable[[XlaOp, XlaOp, XlaOp, Instruction], XlaOp]] = {
    ReducerKind.ADD: _sum, ReducerKind.MAXIMUM: _extreme, ReducerKind.MINIMUM: _extreme, ReducerKind.MULTIPLY: _product}
"""From the sum of all members' cotangents, the result and the operand to the operand's cotangent."""


def _reduce_scatter(ct: Any, out: Any, operands: tuple[XlaOp, ...], inst: Instruction, dimensions: Sequence[int],
                    to_apply: Computation) -> Cotangents:
    """As of an all-reduce whose result has the members' cotangents one after another."""
    outs: tuple[XlaOp, ...] = out if isinstance(out, TUPLES) else (out,)
    rule = _KNOWN.get(reducer_kind(to_apply))
    dim = dimensions[0]

    def whole(shard: XlaOp, k: int) -> XlaOp:
        return _exchange(collective.all_gather, inst, [shard], _operand_shape(inst, k), dimensions=(dim,))

    if rule is None:
        return _for_each(inst, ct, lambda c, k: _composed(
            c, operands[k], lambda x: _folded(_blocks(x, inst, dim, c.shape.dimensions[dim]), to_apply)))
    return _for_each(inst, ct, lambda c, k: rule(whole(c, k), outs[k] if rule is _sum else whole(outs[k], k), operands[k], inst))


# Any other reducer: gather what the members give and fold it in the group's order. That is made of ops which have gradients.


def _composed(ct: XlaOp, operand: XlaOp, function: Callable[[XlaOp], XlaOp]) -> XlaOp | None:
    def results(x: XlaOp) -> list[XlaOp]:
        return [function(x)]

    return derived(results, [operand], [ct])[0]


def _group_size(inst: Instruction) -> int:
    """How many members each group has, where the groups alone say it."""
    groups: ReplicaGroups | None = inst.attributes.get("replica_groups")
    sizes = {len(group) for group in groups.groups} if groups is not None else set[int]()
    stated = group_mode(inst.attributes.get("channel_id"), inst.attributes.get("use_global_device_ids", False))
    mode = inst.attributes.get("mode") or stated
    if len(sizes) != 1 or mode == GroupMode.CROSS_BOTH or mode != stated:  # an all-gather has none of its own
        raise DifferentiationError(
            "an all-reduce with this computation has a gradient for listed groups of one size only",
            got=f"groups of {sorted(sizes) or 'everybody'}, {mode}", expected="add, multiply, maximum, minimum, or such groups",
            hint="list all participants in replica_groups; with a channel_id also set use_global_device_ids")
    return sizes.pop()


def _parts(x: XlaOp, inst: Instruction, size: int) -> list[XlaOp]:
    """What each member gives, in the group's order."""
    dims = x.shape.dimensions
    row = x.shape.with_dimensions([size, *dims])
    rows = _exchange(collective.all_gather, inst, [reshape(x, [1, *dims])], row, dimensions=(0,))
    return [reshape(SliceInDim(rows, k, k + 1, 1, 0), dims) for k in range(size)]


def _blocks(x: XlaOp, inst: Instruction, dim: int, width: int) -> list[XlaOp]:
    """What each member gives of the block along `dim` that this participant keeps."""
    size = x.shape.dimensions[dim] // width
    # The largest of equal numbers, of which this participant keeps its own: its place in the group.
    place = _exchange(collective.reduce_scatter, inst, [iota(x, [size], 0)], Shape.array(S32, [1]), dimensions=(0,),
                      to_apply=scalar_computation("Max", S32))
    return [DynamicSliceInDim(part, reshape(place, []) * width, width, dim) for part in _parts(x, inst, size)]


def _folded(parts: Sequence[XlaOp], to_apply: Computation) -> XlaOp:
    result = parts[0]
    for part in parts[1:]:
        result, = apply(to_apply, [result, part])
    return result


vjp("all-reduce", operands=_all_reduce)
vjp("all-reduce-start", operands=_all_reduce)
linear("all-reduce-done", operand=lambda ct: ct)
vjp("reduce-scatter", operands=_reduce_scatter)

# --------------------------------------------------------------------------------------- gathering and exchanging


def _all_gather(ct: Any, inst: Instruction, dimensions: Sequence[int]) -> Cotangents:
    def rule(c: XlaOp, k: int) -> XlaOp:
        reducer = scalar_computation("Add", c.element_type)
        return _exchange(
            collective.reduce_scatter, inst, [c], _operand_shape(inst, k), dimensions=tuple(dimensions), to_apply=reducer)

    return _for_each(inst, ct, rule)


def _all_to_all(ct: Any, inst: Instruction, dimensions: Sequence[int]) -> Cotangents:
    """Its own transpose: what came from j goes back to j. Along a dimension one array is cut up; else there is one for each."""
    if dimensions:
        return [_exchange(collective.all_to_all, inst, [ct], _operand_shape(inst, 0), dimensions=tuple(dimensions))]
    builder = next(c for c in ct if c is not None).builder
    parts = [full(builder, 0, _operand_shape(inst, k)) if c is None else c for k, c in enumerate(ct)]
    back = _exchange(collective.all_to_all, inst, parts, inst.shape.without_layout())
    return [GetTupleElement(back, k) for k in range(len(parts))]


def _permute(ct: Any, inst: Instruction, source_target_pairs: Sequence[Sequence[int]]) -> Cotangents:
    return _for_each(inst, ct, lambda c, k: _undone(c, inst, source_target_pairs))


def _undone(c: XlaOp, inst: Instruction, pairs: Sequence[Sequence[int]]) -> XlaOp:
    """What each pair's target has, at its source."""
    return _exchange(collective.collective_permute, inst, [c], c.shape, source_target_pairs=tuple((b, a) for a, b in pairs))


def _permute_any(ct: Any, inst: Instruction, operands: tuple[Any, ...], source_target_pairs: Sequence[Sequence[int]],
                 slice_sizes: Sequence[Sequence[int]]) -> list[Any]:
    if not slice_sizes:
        return _permute(ct, inst, source_target_pairs)
    return _permute_slices(ct, inst, operands, source_target_pairs, slice_sizes)


def _permute_slices(ct: Any, inst: Instruction, operands: tuple[Any, ...], pairs: Sequence[Sequence[int]],
                    sizes: Sequence[Sequence[int]]) -> list[Any]:
    """In place: the cotangents of the input, of the output that it was written into, and of two tuples of starts."""
    shapes = [o.shape for o in inst.operands]
    read, written = (starts_of(shapes[k], shapes[k + 2], operands[k + 2]) for k in range(2))
    inputs = shapes[0].tuple_shapes or (shapes[0],)
    count = len(sizes) // len(inputs)
    cts: tuple[XlaOp | None, ...] = ct if isinstance(ct, TUPLES) else (ct,) * len(inputs)
    found = [(None, None) if c is None else _slices_back(
        c, inst, shape.without_layout(), read[k], written[k], sizes[k * count:(k + 1) * count], pairs)
        for k, (c, shape) in enumerate(zip(cts, inputs, strict=True))]
    given, kept = (tuple(parts) if shapes[0].is_tuple else parts[0] for parts in zip(*found, strict=True))
    return [given, kept, None, None]


def _slices_back(c: XlaOp, inst: Instruction, shape: Shape, read: Sequence[Any], written: Sequence[Any],
                 sizes: Sequence[Sequence[int]], pairs: Sequence[Sequence[int]]) -> tuple[XlaOp, XlaOp]:
    """Slices are taken out of the output's cotangent in the reverse of the order in which they were written, as a later one
    may lie over an earlier one; each is added where it was read."""
    given = full(c.builder, 0, shape)
    each: dict[tuple[int, int], list[Sequence[int]]] = {}
    for pair, turn in zip(pairs, turns(pairs), strict=True):
        each.setdefault(turn, []).append(pair)
    for (i, j), those in sorted(each.items(), key=lambda item: -item[0][1]):
        taken = DynamicSlice(c, written[j], sizes[j])
        back = _undone(taken, inst, those)
        given = DynamicUpdateSlice(given, DynamicSlice(given, read[i], sizes[i]) + back, read[i])
        here = _is_among([target for _, target in those], taken, inst)
        c = DynamicUpdateSlice(c, Select(here, zeros(taken), taken), written[j])
    return given, c


def _is_among(numbers: Sequence[int], like: XlaOp, inst: Instruction) -> XlaOp:
    """Whether this participant is one of those that a permutation's pairs name so, as an array of one answer."""
    own = (PartitionId if inst.attributes.get("channel_id") else ReplicaId)(like.builder)
    listed = constant(like, np.array(numbers, np.uint32))
    here = any_over(Eq(listed, broadcast_over(own, [len(numbers)], [0])), [0])
    return broadcast_over(here, like.shape.dimensions, range(like.shape.rank))


def _of_start(ct: Any, inst: Instruction, rule: Callable[[Any], Cotangents]) -> Cotangents:
    """For a start op, whose result also passes the operands on: their cotangent is added to the rule's."""
    def whole(part: Any) -> tuple[Any, ...]:
        return part if isinstance(part, TUPLES) else (part,) * len(inst.operands)

    passed, made = map(whole, ct[:2])
    return [_both(a, b) for a, b in zip(passed, rule(made), strict=True)]


def _permute_start(ct: Any, inst: Instruction, operands: tuple[Any, ...], source_target_pairs: Sequence[Sequence[int]],
                   slice_sizes: Sequence[Sequence[int]]) -> list[Any]:
    if not slice_sizes:
        return _of_start(ct, inst, lambda made: _permute(made, inst, source_target_pairs))
    given, *others = _permute_slices(ct[1], inst, operands, source_target_pairs, slice_sizes)
    return [_both(ct[0], given), *others]


def _both(a: Any, b: Any) -> Any:
    """The sum of two cotangents of a value, which may be a tuple."""
    return tree.combined(lambda x, y: y if x is None else x if y is None else x + y, a, b)


def _of_done(ct: Any, inst: Instruction) -> tuple[Any, ...]:
    """A done op takes element 1 out of what the start op made."""
    return tuple(ct if k == 1 else None for k in range(len(inst.operands[0].shape.tuple_shapes)))


linear("all-gather", operands=_all_gather)
linear("all-gather-start", operands=lambda ct, inst, dimensions: _of_start(
    ct, inst, lambda made: _all_gather(made, inst, dimensions)))
linear("all-gather-done", operand=_of_done)
linear("all-to-all", operands=_all_to_all)
linear("collective-permute", operands=_permute_any)
linear("collective-permute-start", operands=_permute_start)
linear("collective-permute-done", operand=_of_done)

# --------------------------------------------------------------------------------------------- one to all, and back


def _to_first(ct: Any, inst: Instruction) -> Cotangents:
    """The first of each group had sent its value to all, and collects the sum of their cotangents."""
    return _for_each(inst, ct, lambda c, k: _exchange(
        collective.collective_reduce, inst, [c], c.shape, to_apply=scalar_computation("Add", c.element_type)))


def _from_first(ct: Any, inst: Instruction, to_apply: Computation) -> Cotangents:
    if reducer_kind(to_apply) is not ReducerKind.ADD:
        raise DifferentiationError("collective-reduce has a gradient for adding only", expected="computation add")
    return _for_each(inst, ct, lambda c, k: _exchange(collective.collective_broadcast, inst, [c], c.shape))


linear("collective-broadcast", operands=_to_first)
linear("collective-reduce", operands=_from_first)

# ------------------------------------------------------------------------------------------------ ragged all-to-all


def _swapped(plan: XlaOp, inst: Instruction) -> XlaOp:
    """Entry j of each participant's offsets, at participant j."""
    return _exchange(collective.all_to_all, inst, [plan], plan.shape, dimensions=(0,))


def _wide(plan: XlaOp) -> XlaOp:
    return convert(plan, S64 if plan.element_type.bits == 64 else S32)


def _ragged_source(ct: XlaOp, inst: Instruction, input_offsets: XlaOp, send_sizes: XlaOp, output_offsets: XlaOp,
                   recv_sizes: XlaOp) -> XlaOp:
    """Every piece goes back: from where the peer was told to write it to where it was read. A row that was sent several times
    gets the sum of what comes back, for which the pieces need places of their own first."""
    reads, sent, writes, got = map(_wide, (input_offsets, send_sizes, output_offsets, recv_sizes))
    operands = [ct, _swapped(writes, inst), got, reads, sent]
    if math.prod(reads.shape.dimensions) == 1:
        return _returned(operands, inst)
    branches = [_branch(operands, lambda given, function=function: function(given, inst))
                for function in (_returned_apart, _returned)]
    given = Tuple(ct.builder, operands)
    return Conditional(_shares_rows(reads, sent, inst), given, branches[0], given, branches[1])


def _branch(operands: Sequence[XlaOp], function: Callable[[list[XlaOp]], XlaOp]) -> Computation:
    builder = Builder("returned")
    given = builder.parameter(0, Shape.tuple([o.shape for o in operands]))
    return builder.finish(function([GetTupleElement(given, k) for k in range(len(operands))]))


def _returned(given: Sequence[XlaOp], inst: Instruction) -> XlaOp:
    """Each piece straight to where it was read."""
    ct, places, got, reads, sent = given
    start = full(ct.builder, 0, _operand_shape(inst, 0))
    return _exchange(collective.ragged_all_to_all, inst, [ct, start, places, got, _swapped(reads, inst), sent], start.shape)


def _returned_apart(given: Sequence[XlaOp], inst: Instruction) -> XlaOp:
    """Each piece to an array of its own, and their sum."""
    ct, places, got, reads, sent = given
    shape, count = _operand_shape(inst, 0), math.prod(reads.shape.dimensions)
    rows = shape.dimensions[0]
    start = full(ct.builder, 0, shape.with_dimensions([count * rows, *shape.dimensions[1:]]))
    number = reshape(iota(reads, [count], 0, reads.element_type), reads.shape.dimensions)
    operands = [ct, start, places, got, _swapped(reads + number * rows, inst), sent]
    apart = _exchange(collective.ragged_all_to_all, inst, operands, start.shape)
    return sum_over(reshape(apart, [count, *shape.dimensions]), [0])


def _shares_rows(reads: XlaOp, sent: XlaOp, inst: Instruction) -> XlaOp:
    """Whether a member of the group sends some row several times: a PRED scalar, the same for all of them."""
    count = math.prod(reads.shape.dimensions)
    first, size = reshape(reads, [count]), reshape(sent, [count])
    here, there = ([broadcast_over(x, [count, count], [d]) for x in (first, first + size, size)] for d in (1, 0))
    meet = And(And(Lt(here[0], there[1]), Lt(there[0], here[1])), And(Gt(here[2], zeros(here[2])), Gt(there[2], zeros(there[2]))))
    earlier = Lt(iota(reads, [count, count], 0), iota(reads, [count, count], 1))
    answer = convert(any_over(And(meet, earlier), [0, 1]), S32)
    answers = _swapped(broadcast_over(answer, reads.shape.dimensions, range(reads.shape.rank)), inst)
    return any_over(Gt(answers, zeros(answers)), range(reads.shape.rank))


def _ragged_target(ct: XlaOp, inst: Instruction, output_offsets: XlaOp, recv_sizes: XlaOp) -> XlaOp:
    """The output keeps its cotangent where nothing was written over it."""
    places, got = _swapped(_wide(output_offsets), inst), _wide(recv_sizes)
    rows, count = ct.shape.dimensions[0], math.prod(got.shape.dimensions)
    first, size = (broadcast_over(reshape(x, [count]), [rows, count], [0]) for x in (places, got))
    row = iota(ct, [rows, count], 0, got.element_type)
    written = any_over(And(Ge(row, first), Lt(row, first + size)), [1])
    return Select(broadcast_over(written, ct.shape.dimensions, range(1, ct.shape.rank)), zeros(ct), ct)


linear("ragged-all-to-all", operand=_ragged_source, output=_ragged_target)
zero("replica-id", "partition-id")
