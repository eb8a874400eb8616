"""Custom calls, and what compiled programs contain, under their documented names.

Documents: operation semantics, the sections of the functions' own names. An op in two halves is one that has begun, and its
end; here it runs at once, where it begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..builder import XlaBuilder, XlaOp, documented, region_of, renamed
from ..hlo.literal import Literal
from ..interop.custom_calls import vjp_target
from ..opcodes.attributes import ConvolutionDimensionNumbers, WindowDimension
from ..opcodes.shapes import require
from ..shape import Shape
from ..types import U32, U64
from .collective import Groups, _attributes, _resized, _several

__all__ = [
    "AllGatherDone", "AllGatherStart", "AllReduceDone", "AllReduceStart", "AsyncDone", "AsyncStart", "AsyncUpdate", "Bitcast",
    "CollectivePermuteDone", "CollectivePermuteStart", "CopyDone", "CopyStart", "CustomCall", "CustomCallVjp",
    "CustomCallWithComputation", "CustomCallWithConvDnums", "CustomCallWithLayout", "Domain", "Fusion", "RecvDone", "RecvStart",
    "RngGetAndUpdateState", "SendDone", "SendStart",
]


@renamed(target_name="call_target_name", args="operands")
@documented
def CustomCall(builder: XlaBuilder, call_target_name: str, operands: Sequence[XlaOp], shape: Shape, opaque: str = "",
               has_side_effect: bool = False, output_operand_aliasing: Sequence[Any] = (), literal: Literal | None = None,
               schedule: str = "SCHEDULE_NONE", api_version: str = "API_VERSION_ORIGINAL") -> XlaOp:
    """Call a function of the program's surroundings by name; `register_custom_call` says which function that is.

    `opaque` is passed to the function as its configuration. `output_operand_aliasing` lists pairs (result index, (operand,
    operand index)) and has no effect. Raises InvalidArgument for a target that begins with ``$``, which is reserved.
    """
    return _custom_call(builder, call_target_name, operands, shape, opaque, {
        "custom_call_has_side_effect": has_side_effect, "literal": literal,
        "output_to_operand_aliasing": _aliasing(output_operand_aliasing),
        "schedule": schedule if schedule != "SCHEDULE_NONE" else None,
        "api_version": api_version if api_version != "API_VERSION_ORIGINAL" else None})


@documented
def CustomCallWithLayout(builder: XlaBuilder, call_target_name: str, operands: Sequence[XlaOp], shape: Shape,
                         operand_shapes_with_layout: Sequence[Shape], opaque: str = "", has_side_effect: bool = False) -> XlaOp:
    """`CustomCall` with layouts that operands and result must have. Raises InvalidArgument where one is missing."""
    for given in (shape, *operand_shapes_with_layout):
        require(all(leaf.layout is not None or not leaf.rank for leaf in given.leaves()), "a layout is missing", given,
                "a layout for each array")
    constraints = "{" + ", ".join(s.to_text() for s in operand_shapes_with_layout) + "}"
    return _custom_call(builder, call_target_name, operands, shape, opaque, {
        "operand_layout_constraints": constraints, "custom_call_has_side_effect": has_side_effect})


@documented
def CustomCallWithComputation(builder: XlaBuilder, call_target_name: str, operands: Sequence[XlaOp], computation: Any,
                              shape: Shape, opaque: str = "", has_side_effect: bool = False) -> XlaOp:
    """`CustomCall` of a function that gets a computation. Raises InvalidArgument as that does."""
    return _custom_call(builder, call_target_name, operands, shape, opaque, {
        "to_apply": region_of(computation), "custom_call_has_side_effect": has_side_effect})


@documented
def CustomCallWithConvDnums(builder: XlaBuilder, call_target_name: str, operands: Sequence[XlaOp], shape: Shape,
                            window: Sequence[WindowDimension], dnums: ConvolutionDimensionNumbers, opaque: str = "",
                            has_side_effect: bool = False) -> XlaOp:
    """`CustomCall` of a convolution in other words: with its window and dimension numbers. Raises InvalidArgument as it does."""
    return _custom_call(builder, call_target_name, operands, shape, opaque, {
        "window": tuple(window), "dim_labels": dnums, "custom_call_has_side_effect": has_side_effect})


def _custom_call(builder: XlaBuilder, target: str, operands: Sequence[XlaOp], shape: Shape, opaque: str,
                 attributes: dict[str, Any]) -> XlaOp:
    require(not target.startswith("$"), "custom call targets that begin with $ are reserved", target, "another name")
    given = {"custom_call_target": target} | {name: value for name, value in attributes.items() if value}
    return builder.add("custom-call", operands, given, shape, common={"backend_config": opaque} if opaque else None)


def _aliasing(pairs: Sequence[Any]) -> str:
    def index(numbers: Sequence[int]) -> str:
        return "{" + ", ".join(map(str, numbers)) + "}"

    listed = ", ".join(f"{index(result)}: ({operand}, {index(part)})" for result, (operand, part) in pairs)
    return "{" + listed + "}" if pairs else ""


def CustomCallVjp(operands: Sequence[XlaOp], cotangents: Sequence[XlaOp | None], wanted: Sequence[bool], target: str,
                  opaque: str = "") -> XlaOp:
    """The cotangents of a custom call's floating and complex operand arrays, of those that `wanted` flags, as a tuple;
    `cotangents` are of all arrays in its result, in order, None for zero. This is the custom call that gradients of custom
    calls are made of."""
    builder = operands[0].builder
    shapes = [leaf.without_layout() for o in operands for leaf in o.shape.leaves() if leaf.element_type.is_differentiable]
    given = [builder.add("tuple", []) if ct is None else ct for ct in cotangents]
    return builder.add("custom-call", [builder.add("tuple", operands), builder.add("tuple", given)],
                       {"custom_call_target": vjp_target(target, wanted)},
                       Shape.tuple([s for s, flag in zip(shapes, wanted, strict=True) if flag]),
                       common={"backend_config": opaque} if opaque else None)


# ------------------------------------------------------------------------------------------- what compilers write


@documented
def Bitcast(operand: XlaOp, shape: Shape) -> XlaOp:
    """The operand's memory read as an array of this shape and layout. Raises InvalidArgument for another size."""
    return operand.builder.add("bitcast", [operand], {}, shape)


@documented
def Domain(operand: XlaOp, exit_metadata: str, entry_metadata: str, kind: str = "sharding") -> XlaOp:
    """The operand, at the border of two domains, which metadata in HLO's notation describe: ``"{maximal device=0}"``."""
    written = f'{{kind="{kind}", entry={entry_metadata}, exit={exit_metadata}}}'
    return operand.builder.add("domain", [operand], {"domain": written})


@documented
def Fusion(builder: XlaBuilder, fusion_kind: str, operands: Sequence[XlaOp], fusion_computation: Any) -> XlaOp:
    """A computation of the operands that a compiler made one kernel of: kLoop, kInput, kOutput or kCustom."""
    region = region_of(fusion_computation)
    return builder.add("fusion", operands, {"kind": fusion_kind, "calls": region}, region.root.shape.without_layout())


@documented
def RngGetAndUpdateState(builder: XlaBuilder, delta: int) -> XlaOp:
    """The state of the device's random numbers, u64[2], which then moves on by `delta`."""
    return builder.add("rng-get-and-update-state", [], {"delta": delta}, Shape.array(U64, (2,)))


# ------------------------------------------------------------------------------------------- ops in two halves


@documented
def CopyStart(operand: XlaOp, cross_program_prefetch_index: int | None = None) -> XlaOp:
    """Begin a copy: (copy, operand, u32[])."""
    shape = operand.shape.without_layout()
    attributes = {} if cross_program_prefetch_index is None else {"cross_program_prefetch_index": cross_program_prefetch_index}
    return operand.builder.add("copy-start", [operand], attributes, Shape.tuple([shape, shape, Shape(U32)]))


def CopyDone(operand: XlaOp) -> XlaOp:
    """The copy that `CopyStart` began. Raises InvalidArgument for another operand than its result."""
    return _done("copy-done", operand)


@documented
def AsyncStart(builder: XlaBuilder, operands: Sequence[XlaOp], computation: Any, async_execution_thread: str = "main") -> XlaOp:
    """Begin a computation of the operands: ((operands), result). Raises InvalidArgument for operands that do not fit."""
    region = region_of(computation)
    thread = {} if async_execution_thread == "main" else {"async_execution_thread": async_execution_thread}
    shape = Shape.tuple([Shape.tuple([o.shape.without_layout() for o in operands]), region.root.shape.without_layout()])
    return builder.add("async-start", operands, {"calls": region, **thread}, shape)


def AsyncUpdate(operand: XlaOp) -> XlaOp:
    """The operation that `AsyncStart` began, looked after: what it gave, in the same tuple."""
    return operand.builder.add("async-update", [operand], {}, operand.shape)


def AsyncDone(operand: XlaOp) -> XlaOp:
    """The result of what `AsyncStart` began, which is element 1 of its tuple."""
    return _done("async-done", operand)


@documented
def AllGatherStart(operands: XlaOp | Sequence[XlaOp], all_gather_dimension: int, shard_count: int, replica_groups: Groups = (),
                   channel_id: int | None = None, use_global_device_ids: bool | None = None) -> XlaOp:
    """Begin an `AllGather`, or with a list of operands an `AllGatherTuple`: (operands, results)."""
    given = _listed(operands, "AllGatherStart")
    shapes = [_resized(o.shape, all_gather_dimension, shard_count, 1).without_layout() for o in given]
    attributes = _attributes(replica_groups, channel_id, use_global_device_ids)
    return given[0].builder.add("all-gather-start", given, {"dimensions": (all_gather_dimension,), **attributes},
                                Shape.tuple([_packed([o.shape for o in given]), _packed(shapes)]))


def AllGatherDone(operand: XlaOp) -> XlaOp:
    """The result of what `AllGatherStart` began, which is element 1 of its pair."""
    return _done("all-gather-done", operand)


@documented
def AllReduceStart(operands: XlaOp | Sequence[XlaOp], computation: Any, replica_groups: Groups = (),
                   channel_id: int | None = None, use_global_device_ids: bool | None = None) -> XlaOp:
    """Begin an `AllReduce`, or with a list of operands an `AllReduceTuple`. The shape is that of the result."""
    given = _listed(operands, "AllReduceStart")
    attributes = _attributes(replica_groups, channel_id, use_global_device_ids)
    return given[0].builder.add("all-reduce-start", given, {"to_apply": region_of(computation), **attributes},
                                _packed([o.shape for o in given]))


def AllReduceDone(operand: XlaOp) -> XlaOp:
    """The result of what `AllReduceStart` began, which has its shape."""
    return _done("all-reduce-done", operand)


@documented
def CollectivePermuteStart(operands: XlaOp | Sequence[XlaOp], source_target_pairs: Sequence[tuple[int, int]],
                           channel_id: int | None = None) -> XlaOp:
    """Begin a `CollectivePermute`, or with a list of operands a `MultiCollectivePermute`: (operands, results)."""
    given = _listed(operands, "CollectivePermuteStart")
    shape = _packed([o.shape for o in given])
    attributes = {"source_target_pairs": source_target_pairs, **_attributes((), channel_id)}
    return given[0].builder.add("collective-permute-start", given, attributes, Shape.tuple([shape, shape]))


def CollectivePermuteDone(operand: XlaOp) -> XlaOp:
    """The result of what `CollectivePermuteStart` began, which is element 1 of its tuple."""
    return _done("collective-permute-done", operand)


def SendStart(operand: XlaOp, token: XlaOp, channel_id: int, is_host_transfer: bool = False) -> XlaOp:
    """The first half of `SendWithToken` and `SendToHost`: (operand, u32[], token)."""
    return operand.builder.add("send", [operand, token], _channel(channel_id, is_host_transfer),
                               Shape.tuple([operand.shape.without_layout(), Shape(U32), Shape.token()]))


def SendDone(operand: XlaOp) -> XlaOp:
    """Wait until what `SendStart` began has been sent. The result is a token."""
    return _done("send-done", operand, "channel_id", "is_host_transfer")


def RecvStart(token: XlaOp, shape: Shape, channel_id: int, is_host_transfer: bool = False) -> XlaOp:
    """The first half of `RecvWithToken` and `RecvFromHost`: (data, u32[], token), of which the data are not there yet."""
    return token.builder.add("recv", [token], _channel(channel_id, is_host_transfer),
                             Shape.tuple([shape, Shape(U32), Shape.token()]))


def RecvDone(operand: XlaOp) -> XlaOp:
    """(data, token): what is received, which `RecvStart` announced."""
    return _done("recv-done", operand, "channel_id", "is_host_transfer")


def _channel(channel_id: int, is_host_transfer: bool) -> dict[str, Any]:
    return {"channel_id": channel_id} | ({"is_host_transfer": True} if is_host_transfer else {})


def _done(opcode: str, operand: XlaOp, *repeated: str) -> XlaOp:
    """The second half, with those attributes of the first that it repeats."""
    begun = operand.instruction.attributes
    return operand.builder.add(opcode, [operand], {name: begun[name] for name in repeated if name in begun})


def _listed(operands: XlaOp | Sequence[XlaOp], name: str) -> list[XlaOp]:
    listed = [operands] if isinstance(operands, XlaOp) else list(operands)
    _several(listed, name)
    return listed


def _packed(shapes: Sequence[Shape]) -> Shape:
    """One shape, or the tuple of several."""
    bare = [shape.without_layout() for shape in shapes]
    return bare[0] if len(bare) == 1 else Shape.tuple(bare)
