"""Custom calls, and what compiled programs contain, under their documented names.

Documents: operation semantics, the sections of the functions' own names. An op in two halves is one that has begun, and its
end; here it runs at once, where it begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.errors import InvalidArgument
from ..core.shape import Shape
from ..core.types import U32, U64
from ..hlo.attributes import WindowDimension
from ..hlo.choices import CustomCallApiVersion, CustomCallSchedule
from ..hlo.custom_calls import vjp_target
from ..hlo.literals.literal import Literal
from ..hlo.schema import schema_of
from ..opcodes import collective, control, internal, random
from ..opcodes import token as token_ops
from ..opcodes.shapes import require
from ._documented import documented, renamed, variadic
from ._regions import of_values, reducer
from .collective import Groups, exchange_attributes, require_several, resized
from .control import GetTupleElement, Tuple
from .dimension_numbers import ConvolutionNumbers
from .hlo_builder import Builder, Region, Value, XlaOp, packed, region_of

__all__ = [
    "AllGatherDone", "AllGatherStart", "AllReduceDone", "AllReduceStart", "AsyncDone", "AsyncStart", "AsyncUpdate", "Bitcast",
    "CollectivePermuteDone", "CollectivePermuteStart", "CopyDone", "CopyStart", "CustomCall", "CustomCallApiVersion",
    "CustomCallSchedule", "CustomCallVjp",
    "CustomCallWithComputation", "CustomCallWithConvDnums", "CustomCallWithLayout", "Domain", "Fusion", "RecvDone", "RecvStart",
    "RngGetAndUpdateState", "SendDone", "SendStart",
]


Aliasing = Sequence[tuple[Sequence[int], tuple[int, Sequence[int]]]]
"""Pairs of a place in the result and (operand, place in it)."""

Schedule = CustomCallSchedule | str
ApiVersion = CustomCallApiVersion | str


@variadic("operands...")
@renamed(target_name="call_target_name", args="operands")
@documented
def CustomCall(builder: Builder, call_target_name: str, operands: Sequence[XlaOp], shape: Shape, opaque: str | bytes = "",
               has_side_effect: bool = False, output_operand_aliasing: Aliasing = (), literal: Literal | None = None,
               schedule: Schedule = "SCHEDULE_NONE", api_version: ApiVersion = "API_VERSION_ORIGINAL") -> XlaOp:
    """Call a function of the program's surroundings by name; `register_custom_call` says which function that is.

    `opaque`, text or bytes, is passed to the function as its configuration (``call.opaque``, ``call.opaque_bytes``).
    `output_operand_aliasing` lists pairs (result index, (operand, operand index)) and has no effect. Raises
    InvalidArgument for a target that begins with ``$``, which is reserved.

    >>> xla_torch.register_custom_call("three times", lambda x: 3 * x)
    >>> ops.CustomCall("three times", [torch.tensor([1.0, 2.0])], Shape.parse("f32[2]"))
    tensor([3., 6.])
    """
    return _custom_call(builder, call_target_name, operands, shape, opaque, {
        "custom_call_has_side_effect": has_side_effect, "literal": literal,
        "output_to_operand_aliasing": _aliasing(output_operand_aliasing), **_called_how(schedule, api_version)})


@renamed(shape_with_layout="shape")
@documented
def CustomCallWithLayout(builder: Builder, call_target_name: str, operands: Sequence[XlaOp], shape: Shape,
                         operand_shapes_with_layout: Sequence[Shape], opaque: str | bytes = "", has_side_effect: bool = False,
                         output_operand_aliasing: Aliasing = (), literal: Literal | None = None,
                         schedule: Schedule = "SCHEDULE_NONE", api_version: ApiVersion = "API_VERSION_ORIGINAL") -> XlaOp:
    """`CustomCall` with layouts that operands and result must have. Raises InvalidArgument where one is missing.

    >>> xla_torch.register_custom_call("three times", lambda x: 3 * x)
    >>> shape = Shape.parse("f32[2]{0}")
    >>> ops.CustomCallWithLayout("three times", [torch.tensor([1.0, 2.0])], shape, [shape])
    tensor([3., 6.])
    """
    for given in (shape, *operand_shapes_with_layout):
        require(all(leaf.layout is not None or not leaf.rank for leaf in given.leaves()), "a layout is missing", given,
                "a layout for each array")
    constraints = "{" + ", ".join(s.to_text() for s in operand_shapes_with_layout) + "}"
    return _custom_call(builder, call_target_name, operands, shape, opaque, {
        "operand_layout_constraints": constraints, "custom_call_has_side_effect": has_side_effect,
        "output_to_operand_aliasing": _aliasing(output_operand_aliasing), "literal": literal,
        **_called_how(schedule, api_version)})


@documented
def CustomCallWithComputation(builder: Builder, call_target_name: str, operands: Sequence[XlaOp], computation: Any,
                              shape: Shape, opaque: str | bytes = "", has_side_effect: bool = False,
                              schedule: Schedule = "SCHEDULE_NONE", api_version: ApiVersion = "API_VERSION_ORIGINAL") -> XlaOp:
    """`CustomCall` of a function that gets a computation. Raises InvalidArgument as that does.

    >>> xla_torch.register_custom_call("three times", lambda x: 3 * x)
    >>> builder, region = XlaBuilder("call"), XlaBuilder("region")
    >>> negated = region.build(-region.parameter(0, Shape.parse("f32[]")))
    >>> x = builder.parameter(0, Shape.parse("f32[2]"))
    >>> program = builder.build(ops.CustomCallWithComputation(builder, "three times", [x], negated, x.shape))
    >>> program(torch.tensor([1.0, 2.0]))
    tensor([3., 6.])
    """
    return _custom_call(builder, call_target_name, operands, shape, opaque, {
        "to_apply": region_of(computation), "custom_call_has_side_effect": has_side_effect,
        **_called_how(schedule, api_version)})


@documented
def CustomCallWithConvDnums(builder: Builder, call_target_name: str, operands: Sequence[XlaOp], shape: Shape,
                            window: Sequence[WindowDimension], dnums: ConvolutionNumbers, opaque: str | bytes = "",
                            has_side_effect: bool = False, schedule: Schedule = "SCHEDULE_NONE",
                            api_version: ApiVersion = "API_VERSION_ORIGINAL") -> XlaOp:
    """`CustomCall` of a convolution in other words: with its window and dimension numbers. Raises InvalidArgument as it does.

    >>> xla_torch.register_custom_call("three times", lambda x: 3 * x)
    >>> x, dims = torch.tensor([1.0, 2.0]), ("NCW", "OIW", "NCW")
    >>> ops.CustomCallWithConvDnums("three times", [x], Shape.parse("f32[2]"), [], dims)
    tensor([3., 6.])
    """
    return _custom_call(builder, call_target_name, operands, shape, opaque, {
        "window": tuple(window), "dim_labels": dnums, "custom_call_has_side_effect": has_side_effect,
        **_called_how(schedule, api_version)})


def _custom_call(builder: Builder, target: str, operands: Sequence[XlaOp], shape: Shape, opaque: str | bytes,
                 attributes: dict[str, Any]) -> XlaOp:
    require(not target.startswith("$"), "custom call targets that begin with $ are reserved", target, "another name")
    given = {"custom_call_target": target} | {name: value for name, value in attributes.items() if value}
    text = opaque.decode("utf-8", "surrogateescape") if isinstance(opaque, bytes) else opaque
    return builder.add(internal.custom_call, operands, given, shape, common={"backend_config": text} if text else None)


def _called_how(schedule: str, api_version: str) -> dict[str, str]:
    """The attributes that say when and how the function is called, where that is not as by default."""
    given = {"schedule": (schedule, "SCHEDULE_NONE"), "api_version": (api_version, "API_VERSION_ORIGINAL")}
    return {name: value for name, (value, default) in given.items() if value != default}


def _aliasing(pairs: Aliasing) -> str:
    def index(numbers: Sequence[int]) -> str:
        return "{" + ", ".join(map(str, numbers)) + "}"

    listed = ", ".join(f"{index(result)}: ({operand}, {index(part)})" for result, (operand, part) in pairs)
    return "{" + listed + "}" if pairs else ""


@documented
def CustomCallVjp(operands: Sequence[XlaOp], cotangents: Sequence[XlaOp | None], wanted: Sequence[bool], target: str,
                  opaque: str | bytes = "", result: XlaOp | None = None) -> XlaOp:
    """The cotangents of a custom call's floating and complex operand arrays, of those that `wanted` flags, as a tuple;
    `cotangents` are of all arrays in its result, in order, None for zero. With the `result` a registered ``vjp`` needs not have
    the function run again. This is the custom call that gradients of custom calls are made of.

    >>> xla_torch.register_custom_call("cube", lambda x: x**3, vjp=lambda ct, result, x: ct * 3 * x * x)
    >>> ops.CustomCallVjp([torch.tensor([2.0])], [torch.tensor([1.0])], [True], "cube")
    (tensor([12.]),)
    """
    builder = operands[0].builder
    shapes = [leaf.without_layout() for o in operands for leaf in o.shape.leaves() if leaf.element_type.is_differentiable]
    given = [builder.add(control.tuple_, []) if ct is None else ct for ct in cotangents]
    known = [] if result is None else [result]
    return builder.add(internal.custom_call, [builder.add(control.tuple_, operands), builder.add(control.tuple_, given), *known],
                       {"custom_call_target": vjp_target(target, wanted)},
                       Shape.tuple([s for s, flag in zip(shapes, wanted, strict=True) if flag]),
                       common={"backend_config": opaque} if opaque else None)


# ------------------------------------------------------------------------------------------- what compilers write


@documented
def Bitcast(operand: XlaOp, shape: Shape) -> XlaOp:
    """The operand's memory read as an array of this shape and layout. Raises InvalidArgument for another size.

    >>> ops.Bitcast(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), Shape.parse("f32[4]{0}"))
    tensor([1., 2., 3., 4.])
    """
    return operand.builder.add(internal.bitcast, [operand], {}, shape)


@documented
def Domain(operand: XlaOp, exit_metadata: str, entry_metadata: str, kind: str = "sharding") -> XlaOp:
    """The operand, at the border of two domains, which metadata in HLO's notation describe: ``"{maximal device=0}"``.

    >>> ops.Domain(torch.tensor([1.0, 2.0]), "{maximal device=0}", "{maximal device=1}")
    tensor([1., 2.])
    """
    written = f'{{kind="{kind}", entry={entry_metadata}, exit={exit_metadata}}}'
    return operand.builder.add(internal.domain, [operand], {"domain": written})


@documented
def Fusion(builder: Builder, fusion_kind: str, operands: Sequence[XlaOp], fusion_computation: Region) -> XlaOp:
    """A computation of the operands that a compiler made one kernel of: kLoop, kInput, kOutput or kCustom.

    >>> ops.Fusion("kLoop", [torch.tensor([1.0, 2.0])], lambda x: x * x + 1.0)
    tensor([2., 5.])
    """
    region = of_values(fusion_computation, operands, "the fused function")
    return builder.add(control.fusion, operands, {"kind": fusion_kind, "calls": region}, region.root.shape.without_layout())


@documented
def RngGetAndUpdateState(builder: Builder, delta: int) -> XlaOp:
    """The state of the device's random numbers, u64[2], which then moves on by `delta`.

    >>> first, second = (ops.RngGetAndUpdateState(3) for _ in range(2))
    >>> int(second[0]) - int(first[0])
    3
    """
    return builder.add(random.rng_get_and_update_state, [], {"delta": delta}, Shape.array(U64, (2,)))


# ------------------------------------------------------------------------------------------- ops in two halves


@documented
def CopyStart(operand: XlaOp, cross_program_prefetch_index: int | None = None) -> XlaOp:
    """Begin a copy: (copy, operand, u32[]).

    >>> ops.CopyStart(torch.tensor([1.0, 2.0]))[0]
    tensor([1., 2.])
    """
    shape = operand.shape.without_layout()
    attributes = {} if cross_program_prefetch_index is None else {"cross_program_prefetch_index": cross_program_prefetch_index}
    return operand.builder.add(internal.copy_start, [operand], attributes, Shape.tuple([shape, shape, Shape(U32)]))


@documented
def CopyDone(operand: Value) -> XlaOp:
    """The copy that `CopyStart` began. Raises InvalidArgument for another operand than its result.

    >>> ops.CopyDone(ops.CopyStart(torch.tensor([1.0, 2.0])))
    tensor([1., 2.])
    """
    return _done(internal.copy_done, operand)


@documented
def AsyncStart(builder: Builder, operands: Sequence[XlaOp], computation: Region, async_execution_thread: str = "main") -> XlaOp:
    """Begin a computation of the operands: ((operands), result). Raises InvalidArgument for operands that do not fit.

    >>> builder = XlaBuilder("begun")
    >>> begun = ops.AsyncStart(builder, [builder.parameter(0, Shape.parse("f32[2]"))], ops.Square)
    >>> builder.build(ops.AsyncDone(begun))(torch.tensor([2.0, 3.0]))
    tensor([4., 9.])
    """
    region = of_values(computation, operands, "the computation")
    thread = {} if async_execution_thread == "main" else {"async_execution_thread": async_execution_thread}
    shape = Shape.tuple([Shape.tuple([o.shape.without_layout() for o in operands]), region.root.shape.without_layout()])
    return builder.add(control.async_start, operands, {"calls": region, **thread}, shape)


@documented
def AsyncUpdate(operand: Value) -> XlaOp:
    """The operation that `AsyncStart` began, looked after: what it gave, in the same tuple.

    >>> builder = XlaBuilder("begun")
    >>> begun = ops.AsyncStart(builder, [builder.parameter(0, Shape.parse("f32[2]"))], ops.Square)
    >>> builder.build(ops.AsyncDone(ops.AsyncUpdate(begun)))(torch.tensor([2.0, 3.0]))
    tensor([4., 9.])
    """
    operand = packed(operand)
    if operand.builder.runs_at_once:
        return _done_at_once(control.async_update, operand)
    _require_begun(control.async_update, operand)
    return operand.builder.add(control.async_update, [operand], {}, operand.shape)


@documented
def AsyncDone(operand: Value) -> XlaOp:
    """The result of what `AsyncStart` began, which is element 1 of its tuple.

    >>> builder = XlaBuilder("begun")
    >>> begun = ops.AsyncStart(builder, [builder.parameter(0, Shape.parse("f32[2]"))], ops.Neg)
    >>> builder.build(ops.AsyncDone(begun))(torch.tensor([2.0, 3.0]))
    tensor([-2., -3.])
    """
    return _done(control.async_done, operand)


@documented
def AllGatherStart(operands: XlaOp | Sequence[XlaOp], all_gather_dimension: int, shard_count: int, replica_groups: Groups = (),
                   channel_id: int | None = None, use_global_device_ids: bool | None = None) -> XlaOp:
    """Begin an `AllGather`, or with a list of operands an `AllGatherTuple`: (operands, results).

    >>> one, two = (torch.tensor([1.0]),), (torch.tensor([2.0]),)
    >>> gather = lambda x: ops.AllGatherDone(ops.AllGatherStart(x, 0, 2))
    >>> run_replicas(gather, [one, two], num_replicas=2)
    [tensor([1., 2.]), tensor([1., 2.])]
    """
    given = _listed(operands, "AllGatherStart")
    shapes = [resized(o.shape, all_gather_dimension, shard_count, 1).without_layout() for o in given]
    attributes = exchange_attributes(replica_groups, channel_id, use_global_device_ids)
    return given[0].builder.add(collective.all_gather_start, given, {"dimensions": (all_gather_dimension,), **attributes},
                                Shape.tuple([_packed([o.shape for o in given]), _packed(shapes)]))


@documented
def AllGatherDone(operand: Value) -> XlaOp:
    """The result of what `AllGatherStart` began, which is element 1 of its pair.

    >>> ops.AllGatherDone(ops.AllGatherStart(torch.tensor([1.0]), 0, 1))
    tensor([1.])
    """
    return _done(collective.all_gather_done, operand)


@documented
def AllReduceStart(operands: XlaOp | Sequence[XlaOp], computation: Region, replica_groups: Groups = (),
                   channel_id: int | None = None, use_global_device_ids: bool | None = None) -> XlaOp:
    """Begin an `AllReduce`, or with a list of operands an `AllReduceTuple`. The shape is that of the result.

    >>> one, two = (torch.tensor([1.0]),), (torch.tensor([2.0]),)
    >>> total = lambda x: ops.AllReduceDone(ops.AllReduceStart(x, ops.Add))
    >>> run_replicas(total, [one, two], num_replicas=2)
    [tensor([3.]), tensor([3.])]
    """
    given = _listed(operands, "AllReduceStart")
    attributes = exchange_attributes(replica_groups, channel_id, use_global_device_ids)
    return given[0].builder.add(collective.all_reduce_start, given, {"to_apply": reducer(computation, given[:1]), **attributes},
                                _packed([o.shape for o in given]))


@documented
def AllReduceDone(operand: Value) -> XlaOp:
    """The result of what `AllReduceStart` began, which has its shape.

    >>> ops.AllReduceDone(ops.AllReduceStart(torch.tensor([1.0]), ops.Add))
    tensor([1.])
    """
    return _done(collective.all_reduce_done, operand)


@documented
def CollectivePermuteStart(operands: XlaOp | Sequence[XlaOp], source_target_pairs: Sequence[tuple[int, int]],
                           channel_id: int | None = None) -> XlaOp:
    """Begin a `CollectivePermute`, or with a list of operands a `MultiCollectivePermute`: (operands, results).

    >>> one, two = (torch.tensor([1.0]),), (torch.tensor([2.0]),)
    >>> exchange = lambda x: ops.CollectivePermuteDone(ops.CollectivePermuteStart(x, [(0, 1), (1, 0)]))
    >>> run_replicas(exchange, [one, two], num_replicas=2)
    [tensor([2.]), tensor([1.])]
    """
    given = _listed(operands, "CollectivePermuteStart")
    shape = _packed([o.shape for o in given])
    attributes = {"source_target_pairs": source_target_pairs, **exchange_attributes((), channel_id)}
    return given[0].builder.add(collective.collective_permute_start, given, attributes, Shape.tuple([shape, shape]))


@documented
def CollectivePermuteDone(operand: Value) -> XlaOp:
    """The result of what `CollectivePermuteStart` began, which is element 1 of its tuple.

    >>> ops.CollectivePermuteDone(ops.CollectivePermuteStart(torch.tensor([1.0]), [(0, 0)]))
    tensor([1.])
    """
    return _done(collective.collective_permute_done, operand)


@documented
def SendStart(operand: XlaOp, token: XlaOp, channel_id: int, is_host_transfer: bool = False) -> XlaOp:
    """The first half of `SendWithToken` and `SendToHost`: (operand, u32[], token).

    >>> builder = XlaBuilder("to itself")
    >>> x = builder.parameter(0, Shape.parse("f32[2]"))
    >>> sent = ops.SendDone(ops.SendStart(x, ops.CreateToken(builder), 1))
    >>> received = ops.RecvDone(ops.RecvStart(sent, x.shape, 1))
    >>> builder.build(ops.GetTupleElement(received, 0))(torch.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    return operand.builder.add(token_ops.send, [operand, token], _channel(channel_id, is_host_transfer),
                               Shape.tuple([operand.shape.without_layout(), Shape(U32), Shape.token()]))


@documented
def SendDone(operand: Value) -> XlaOp:
    """Wait until what `SendStart` began has been sent. The result is a token.

    >>> builder = XlaBuilder("to itself")
    >>> x = builder.parameter(0, Shape.parse("f32[2]"))
    >>> sent = ops.SendDone(ops.SendStart(x, ops.CreateToken(builder), 1))
    >>> str(sent.shape)
    'token[]'
    """
    return _done(token_ops.send_done, operand, "channel_id", "is_host_transfer")


@documented
def RecvStart(token: XlaOp, shape: Shape, channel_id: int, is_host_transfer: bool = False) -> XlaOp:
    """The first half of `RecvWithToken` and `RecvFromHost`: (data, u32[], token), of which the data are not there yet.

    >>> builder = XlaBuilder("receives")
    >>> str(ops.RecvStart(ops.CreateToken(builder), Shape.parse("f32[2]"), 1).shape)
    '(f32[2], u32[], token[])'
    """
    return token.builder.add(token_ops.recv, [token], _channel(channel_id, is_host_transfer),
                             Shape.tuple([shape, Shape(U32), Shape.token()]))


@documented
def RecvDone(operand: Value) -> XlaOp:
    """(data, token): what is received, which `RecvStart` announced.

    >>> builder = XlaBuilder("receives")
    >>> str(ops.RecvDone(ops.RecvStart(ops.CreateToken(builder), Shape.parse("f32[2]"), 1)).shape)
    '(f32[2], token[])'
    """
    return _done(token_ops.recv_done, operand, "channel_id", "is_host_transfer")


def _channel(channel_id: int, is_host_transfer: bool) -> dict[str, Any]:
    return {"channel_id": channel_id} | ({"is_host_transfer": True} if is_host_transfer else {})


def _done(opcode: str, operand: Value, *repeated: str) -> XlaOp:
    """The second half, with those attributes of the first that it repeats."""
    operand = packed(operand)
    if operand.builder.runs_at_once:
        return _done_at_once(opcode, operand)
    _require_begun(opcode, operand)
    begun = operand.instruction.attributes
    return operand.builder.add(opcode, [operand], {name: begun[name] for name in repeated if name in begun})


def _require_begun(opcode: str, operand: XlaOp) -> None:
    """A second half ends what its operand began, so that has to be the first half; what came through a loop is not known."""
    schema, begun = schema_of(opcode), operand.instruction.opcode
    if schema.completes and begun not in schema.completes:
        raise InvalidArgument("the operand is not the operation's first half", got=f"{begun}: {operand.shape}",
                              expected=" or ".join(schema.completes))


_GIVEN: dict[str, int | tuple[int, int] | None] = {
    internal.copy_done: 0, control.async_update: None, control.async_done: 1, collective.all_gather_done: 1,
    collective.all_reduce_done: None, collective.collective_permute_done: 1, token_ops.send_done: 2, token_ops.recv_done: (0, 2)}
"""Where the result of a second half stands in what the first half gave (None: it is all of that)."""


def _done_at_once(opcode: str, operand: XlaOp) -> XlaOp:
    """The second half of what has run at once, and so has been done by its first half."""
    where = _GIVEN[opcode]
    if where is None:
        return operand
    places = where if isinstance(where, tuple) else (where,)
    require(operand.shape.is_tuple and len(operand.shape.tuple_shapes) > max(places),
            "the operand is not what the operation's first half gives", operand.shape, "a tuple of its results")
    parts = [GetTupleElement(operand, place) for place in places]
    return parts[0] if isinstance(where, int) else Tuple(operand.builder, parts)


def _listed(operands: XlaOp | Sequence[XlaOp], name: str) -> list[XlaOp]:
    listed = [operands] if isinstance(operands, XlaOp) else list(operands)
    require_several(listed, name)
    return listed


def _packed(shapes: Sequence[Shape]) -> Shape:
    """One shape, or the tuple of several."""
    bare = [shape.without_layout() for shape in shapes]
    return bare[0] if len(bare) == 1 else Shape.tuple(bare)
