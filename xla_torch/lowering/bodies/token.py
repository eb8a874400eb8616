"""Bodies of tokens, and of talk with the host and along channels."""

from __future__ import annotations

from ...distributed import feeds
from ...hlo.attributes import Bool, Int, Text
from ...hlo.ir import Instruction, Token
from ...opcodes.token import ShapeText, parts, source_target_pairs
from ...storage.dtypes import torch_dtype
from .. import numerics, values
from ..body_table import body
from ..values import Splat, Value


@body("after-all")
def after_all(inst: Instruction, *tokens: Value) -> Value:
    return Token()


@body("infeed")
def infeed(inst: Instruction, token: Value, *, infeed_config: Text) -> Value:
    data = inst.shape.tuple_shapes[0]
    arrays = parts(data)
    if not arrays:
        return (), Token()
    given = values.emit(feeds.take_infeed, tuple((p.dimensions, torch_dtype(p.element_type)) for p in arrays), values.device())
    taken = tuple(numerics.to_storage(given[k], p.element_type) for k, p in enumerate(arrays))
    return (taken if data.is_tuple else taken[0]), Token()


@body("outfeed")
def outfeed(inst: Instruction, operand: Value, token: Value, *, outfeed_config: Text, outfeed_shape: ShapeText) -> Value:
    shape = inst.operands[0].shape
    given = operand if shape.is_tuple else (operand,)
    leaves = tuple(numerics.from_storage(v, p.element_type) for v, p in zip(given, parts(shape), strict=True))
    values.emit(feeds.put_outfeed, leaves)
    return Token()


@body("send")
def send(inst: Instruction, operand: Value, token: Value, *, channel_id: Int, is_host_transfer: Bool) -> Value:
    given = numerics.from_storage(operand, inst.operands[0].shape.element_type)
    values.emit(feeds.put_channel, given, channel_id, is_host_transfer, source_target_pairs(inst))
    return operand, Splat(0), Token()


@body("send-done")
def send_done(inst: Instruction, operand: Value, *, channel_id: Int, is_host_transfer: Bool) -> Value:
    return Token()


@body("recv")
def recv(inst: Instruction, token: Value, *, channel_id: Int, is_host_transfer: Bool) -> Value:
    return Splat(0, inst.shape.tuple_shapes[0].dimensions), Splat(0), Token()


@body("recv-done")
def recv_done(inst: Instruction, operand: Value, *, channel_id: Int, is_host_transfer: Bool) -> Value:
    shape = inst.shape.tuple_shapes[0]
    data = values.emit(feeds.take_channel, channel_id, is_host_transfer, shape.dimensions, torch_dtype(shape.element_type),
                       values.device(), source_target_pairs(inst))
    return numerics.to_storage(data, shape.element_type), Token()
