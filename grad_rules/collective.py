"""Gradients of collectives. The loss is the sum of all participants' losses, so what one of them received from others sends
its cotangent back to all of them: sums stay sums, gathering becomes scattering, a permutation is undone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from xla_torch.builder import XlaOp
from xla_torch.errors import DifferentiationError
from xla_torch.hlo.ir import Computation, Instruction
from xla_torch.opcodes.definition import OPS
from xla_torch.ops import Eq, Max, Select
from xla_torch.shape import Shape
from xla_torch.transform.recognise import reducer_kind

from ._calculus import conj, convert, full, masked, scalar_computation, zeros
from ._regions import Cotangents
from ._table import linear, vjp, zero

_WHO = ("replica_groups", "channel_id", "use_global_device_ids", "mode")


def _exchange(opcode: str, inst: Instruction, operands: Sequence[XlaOp], shape: Shape, **attributes: Any) -> XlaOp:
    """A collective among the participants of `inst`. Built from its attributes, so that none of them is lost."""
    known = OPS[opcode].attributes
    who = {name: inst.attributes[name] for name in _WHO if name in inst.attributes and name in known}
    return operands[0].builder.add(opcode, operands, who | attributes, shape)


def _added(x: XlaOp, inst: Instruction) -> XlaOp:
    reducer = scalar_computation("Add", x.element_type).module.entry
    return _exchange("all-reduce", inst, [x], x.shape, to_apply=reducer)


def _for_each(inst: Instruction, ct: Any, rule: Callable[[XlaOp, int], XlaOp | None]) -> Cotangents:
    """The rule for each operand whose result has a cotangent."""
    cts = ct if isinstance(ct, tuple) else (ct,)
    return [None if c is None else rule(c, k) for k, c in enumerate(cts)]


def _operand_shape(inst: Instruction, number: int) -> Shape:
    return inst.operands[number].shape.without_layout()


# ----------------------------------------------------------------------------------------------------- reductions


def _all_reduce(ct: Any, out: Any, operands: tuple[XlaOp, ...], inst: Instruction, to_apply: Computation) -> Cotangents:
    outs, kind = out if isinstance(out, tuple) else (out,), reducer_kind(to_apply)
    rule = {"add": _sum, "maximum": _extreme, "minimum": _extreme, "multiply": _product}.get(kind or "")
    if rule is None:
        raise DifferentiationError("this all-reduce computation has no gradient", expected="add, multiply, maximum or minimum",
                                   hint="gather the values with all-gather and reduce them")
    return _for_each(inst, ct, lambda c, k: rule(_added(c, inst), outs[k], operands[k], inst))


def _sum(total: XlaOp, out: XlaOp, operand: XlaOp, inst: Instruction) -> XlaOp:
    return total


def _extreme(total: XlaOp, out: XlaOp, operand: XlaOp, inst: Instruction) -> XlaOp:
    """In equal shares to those who have the extreme."""
    here = Eq(operand, out)
    number = _added(convert(here, total.element_type), inst)
    return masked(here, total / Max(number, zeros(number) + 1))


def _product(total: XlaOp, out: XlaOp, operand: XlaOp, inst: Instruction) -> XlaOp:
    """Times the product of the others. Where factors are zero it is told by how many are."""
    is_zero = Eq(operand, zeros(operand))
    factor = Select(is_zero, zeros(operand) + 1, operand)
    reducer = scalar_computation("Mul", operand.element_type).module.entry
    product = _exchange("all-reduce", inst, [factor], factor.shape, to_apply=reducer)
    own = convert(is_zero, operand.element_type)
    return total * conj(masked(Eq(_added(own, inst), own), product / factor))


def _reduce_scatter(ct: Any, inst: Instruction, dimensions: Sequence[int], to_apply: Computation) -> Cotangents:
    if reducer_kind(to_apply) != "add":
        raise DifferentiationError("reduce-scatter has a gradient for adding only", expected="computation add",
                                   hint="use all-reduce and slice its result")
    return _for_each(inst, ct, lambda c, k: _exchange(
        "all-gather", inst, [c], _operand_shape(inst, k), dimensions=tuple(dimensions)))


vjp("all-reduce", operands=_all_reduce)
vjp("all-reduce-start", operands=_all_reduce)
linear("all-reduce-done", operand=lambda ct: ct)
linear("reduce-scatter", operands=_reduce_scatter)

# --------------------------------------------------------------------------------------- gathering and exchanging


def _all_gather(ct: Any, inst: Instruction, dimensions: Sequence[int]) -> Cotangents:
    def rule(c: XlaOp, k: int) -> XlaOp:
        reducer = scalar_computation("Add", c.element_type).module.entry
        return _exchange("reduce-scatter", inst, [c], _operand_shape(inst, k), dimensions=tuple(dimensions), to_apply=reducer)

    return _for_each(inst, ct, rule)


def _all_to_all(ct: Any, inst: Instruction, dimensions: Sequence[int]) -> Cotangents:
    """Its own transpose: what came from j goes back to j. Along a dimension one array is cut up; else there is one for each."""
    if dimensions:
        return [_exchange("all-to-all", inst, [ct], _operand_shape(inst, 0), dimensions=tuple(dimensions))]
    builder = next(c for c in ct if c is not None).builder
    parts = [full(builder, 0, _operand_shape(inst, k)) if c is None else c for k, c in enumerate(ct)]
    back = _exchange("all-to-all", inst, parts, inst.shape.without_layout())
    return [builder.add("get-tuple-element", [back], {"index": k}) for k in range(len(parts))]


def _permute(ct: Any, inst: Instruction, source_target_pairs: Sequence[Sequence[int]],
             slice_sizes: Sequence[Sequence[int]]) -> Cotangents:
    if slice_sizes:  # where slices went is not kept: the rule would keep the operands of every other permutation, too
        raise DifferentiationError("collective-permute in place, with slices, has no gradient",
                                   hint="permute the slice and write it with dynamic-update-slice")
    pairs = tuple((target, source) for source, target in source_target_pairs)
    return _for_each(inst, ct, lambda c, k: _exchange(
        "collective-permute", inst, [c], _operand_shape(inst, k), source_target_pairs=pairs))


def _of_start(ct: Any, inst: Instruction, rule: Callable[[Any], Cotangents]) -> Cotangents:
    """For a start op, whose result also passes the operands on: their cotangent is added to the rule's."""
    passed, made = (part if isinstance(part, tuple) else (part,) * len(inst.operands) for part in ct[:2])
    return [b if a is None else a if b is None else a + b for a, b in zip(passed, rule(made), strict=True)]


def _of_done(ct: Any, inst: Instruction) -> tuple[Any, ...]:
    """A done op takes element 1 out of what the start op made."""
    return tuple(ct if k == 1 else None for k in range(len(inst.operands[0].shape.tuple_shapes)))


linear("all-gather", operands=_all_gather)
linear("all-gather-start", operands=lambda ct, inst, dimensions: _of_start(
    ct, inst, lambda made: _all_gather(made, inst, dimensions)))
linear("all-gather-done", operand=_of_done)
linear("all-to-all", operands=_all_to_all)
linear("collective-permute", operands=_permute)
linear("collective-permute-start", operands=lambda ct, inst, source_target_pairs, slice_sizes: _of_start(
    ct, inst, lambda made: _permute(made, inst, source_target_pairs, slice_sizes)))
linear("collective-permute-done", operand=_of_done)

# --------------------------------------------------------------------------------------------- one to all, and back


def _to_first(ct: Any, inst: Instruction) -> Cotangents:
    """The first of each group had sent its value to all, and collects the sum of their cotangents."""
    return _for_each(inst, ct, lambda c, k: _exchange(
        "collective-reduce", inst, [c], c.shape, to_apply=scalar_computation("Add", c.element_type).module.entry))


def _from_first(ct: Any, inst: Instruction, to_apply: Computation) -> Cotangents:
    if reducer_kind(to_apply) != "add":
        raise DifferentiationError("collective-reduce has a gradient for adding only", expected="computation add")
    return _for_each(inst, ct, lambda c, k: _exchange("collective-broadcast", inst, [c], c.shape))


linear("collective-broadcast", operands=_to_first)
linear("collective-reduce", operands=_from_first)

# ------------------------------------------------------------------------------------------------ ragged all-to-all


def _swapped(offsets: XlaOp, inst: Instruction) -> XlaOp:
    """Entry j of each participant's offsets, at participant j."""
    return _exchange("all-to-all", inst, [offsets], offsets.shape, dimensions=(0,))


def _ragged_source(ct: XlaOp, inst: Instruction, input_offsets: XlaOp, send_sizes: XlaOp, output_offsets: XlaOp,
                   recv_sizes: XlaOp) -> XlaOp:
    """Every piece goes back: from where the peer was told to write it to where it was read."""
    start = full(ct.builder, 0, _operand_shape(inst, 0))
    places = (_swapped(output_offsets, inst), recv_sizes, _swapped(input_offsets, inst), send_sizes)
    return _exchange("ragged-all-to-all", inst, [ct, start, *places], start.shape)


def _ragged_target(ct: XlaOp, inst: Instruction, input_offsets: XlaOp, send_sizes: XlaOp, output_offsets: XlaOp,
                   recv_sizes: XlaOp) -> XlaOp:
    """The output keeps its cotangent where nothing was written over it."""
    ones = full(ct.builder, 1, _operand_shape(inst, 0))
    written = _exchange("ragged-all-to-all", inst, [ones, zeros(ct), input_offsets, send_sizes, output_offsets, recv_sizes],
                        ct.shape)
    return masked(Eq(written, zeros(written)), ct)


linear("ragged-all-to-all", operand=_ragged_source, output=_ragged_target)
zero("replica-id", "partition-id")
