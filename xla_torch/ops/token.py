"""Tokens, infeed and outfeed, send and receive under their documented names.

Documents: operation semantics, the sections of the functions' own names. A token orders side effects and carries nothing. The
host's side of feeds and channels is `xla_torch.distributed.feeds`.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence

from ..builder import XlaBuilder, XlaOp, documented, renamed
from ..opcodes.shapes import require
from ..shape import Shape
from ..types import U32
from ._broadcast import Value, packed

__all__ = ["AfterAll", "ChannelHandle", "ChannelType", "CreateToken", "Infeed", "InfeedWithToken", "Outfeed", "OutfeedWithToken",
           "Recv", "RecvFromHost", "RecvToHost", "RecvWithToken", "RecvWithTokens", "Send", "SendToHost", "SendWithToken",
           "SendWithTokens"]


class ChannelType(enum.Enum):
    """Who talks on a channel."""

    DEVICE_TO_DEVICE = 1
    DEVICE_TO_HOST = 2
    HOST_TO_DEVICE = 3


@dataclasses.dataclass(frozen=True, slots=True)
class ChannelHandle:
    """A channel: a number, and who talks on it."""

    handle: int
    type: ChannelType = ChannelType.DEVICE_TO_DEVICE


@renamed(operands="tokens")
@documented
def AfterAll(builder: XlaBuilder, tokens: Sequence[XlaOp]) -> XlaOp:
    """A token that comes after all of the tokens. Raises InvalidArgument for an operand that is none."""
    return builder.add("after-all", tokens)


@documented
def CreateToken(builder: XlaBuilder) -> XlaOp:
    """A token that comes after nothing."""
    return AfterAll(builder, ())


def _require_layout(shape: Shape, name: str) -> None:
    require(all(leaf.layout is not None or leaf.rank == 0 for leaf in shape.leaves()),
            f"the shape given to {name} must have a layout", shape,
            "a layout for each array", "Shape.array(..., layout=Layout((1, 0)))")


def _element(pair: XlaOp, index: int) -> XlaOp:
    return pair.builder.add("get-tuple-element", [pair], {"index": index})


# ------------------------------------------------------------------------------------------- infeed and outfeed


@documented
def Infeed(builder: XlaBuilder, shape: Shape, config: str = "") -> XlaOp:
    """The next data of this shape (an array, or a tuple of arrays) that the host feeds.

    Raises InvalidArgument for a shape without layouts and for nested tuples.
    """
    return _element(InfeedWithToken(CreateToken(builder), shape, config), 0)


@documented
def InfeedWithToken(token: XlaOp, shape: Shape, config: str = "") -> XlaOp:
    """(data, token): as `Infeed`, ordered by tokens. Raises InvalidArgument as that does."""
    _require_layout(shape, "Infeed")
    return token.builder.add("infeed", [token], {"infeed_config": config} if config else {}, Shape.tuple([shape, Shape.token()]))


@documented
def Outfeed(operand: Value, shape_with_layout: Shape, outfeed_config: str = "") -> XlaOp:
    """Give the operand to the host. Raises InvalidArgument for a shape without layouts or another shape than the operand's."""
    operand = packed(operand)
    return OutfeedWithToken(operand, CreateToken(operand.builder), shape_with_layout, outfeed_config)


@documented
def OutfeedWithToken(operand: Value, token: XlaOp, shape_with_layout: Shape, outfeed_config: str = "") -> XlaOp:
    """A token: as `Outfeed`, ordered by tokens. Raises InvalidArgument as that does."""
    operand = packed(operand)
    _require_layout(shape_with_layout, "Outfeed")
    require(shape_with_layout.compatible(operand.shape), "the outfeed shape is not the operand's", shape_with_layout,
            str(operand.shape))
    attributes = {"outfeed_shape": shape_with_layout.to_text()} | ({"outfeed_config": outfeed_config} if outfeed_config else {})
    return operand.builder.add("outfeed", [operand, token], attributes)


# ------------------------------------------------------------------------------------------- channels


def _channel(handle: ChannelHandle | int, kind: ChannelType, what: str) -> int:
    handle = handle if isinstance(handle, ChannelHandle) else ChannelHandle(handle, kind)
    require(handle.type is kind, f"{what} on a channel of the wrong type", handle.type.name, kind.name)
    return handle.handle


def _sent(operand: XlaOp, token: XlaOp, channel: int, to_host: bool) -> XlaOp:
    attributes = {"channel_id": channel} | ({"is_host_transfer": True} if to_host else {})
    return operand.builder.add("send-done", [operand.builder.add("send", [operand, token], attributes)], attributes)


def _received(token: XlaOp, shape: Shape, channel: int, from_host: bool) -> XlaOp:
    attributes = {"channel_id": channel} | ({"is_host_transfer": True} if from_host else {})
    begun = token.builder.add("recv", [token], attributes, Shape.tuple([shape, Shape(U32), Shape.token()]))
    return token.builder.add("recv-done", [begun], attributes)


@renamed(channel_handle="handle")
@documented
def Send(operand: XlaOp, handle: ChannelHandle | int) -> XlaOp:
    """Send the operand to whoever receives on the channel. The result is a token. Raises InvalidArgument for a channel that is
    not device to device."""
    return SendWithToken(operand, CreateToken(operand.builder), handle)


@renamed(channel_handle="handle")
@documented
def SendWithToken(operand: XlaOp, token: XlaOp, handle: ChannelHandle | int) -> XlaOp:
    """`Send`, ordered by tokens. Raises InvalidArgument for a channel that is not device to device."""
    return _sent(operand, token, _channel(handle, ChannelType.DEVICE_TO_DEVICE, "Send"), False)


@renamed(channel_handle="handle")
@documented
def SendToHost(operand: XlaOp, token: XlaOp, shape_with_layout: Shape, handle: ChannelHandle | int) -> XlaOp:
    """Send an array to the host. Raises InvalidArgument for a tuple, a shape without layout or a channel of another type."""
    require(operand.shape.is_array, "SendToHost takes arrays only", operand.shape, "an array")
    _require_layout(shape_with_layout, "SendToHost")
    require(shape_with_layout.compatible(operand.shape), "the shape is not the operand's", shape_with_layout, str(operand.shape))
    return _sent(operand, token, _channel(handle, ChannelType.DEVICE_TO_HOST, "SendToHost"), True)


@renamed(channel_handle="handle")
@documented
def Recv(builder: XlaBuilder, shape: Shape, handle: ChannelHandle | int) -> XlaOp:
    """What is sent on the channel, which has this shape. Raises InvalidArgument for a channel that is not device to device."""
    return _element(RecvWithToken(CreateToken(builder), shape, handle), 0)


@renamed(channel_handle="handle")
@documented
def RecvWithToken(token: XlaOp, shape: Shape, handle: ChannelHandle | int) -> XlaOp:
    """(data, token): `Recv`, ordered by tokens. Raises InvalidArgument for a channel that is not device to device."""
    return _received(token, shape, _channel(handle, ChannelType.DEVICE_TO_DEVICE, "Recv"), False)


@renamed(channel_handle="handle")
@documented
def RecvFromHost(token: XlaOp, shape: Shape, handle: ChannelHandle | int) -> XlaOp:
    """(data, token): what the host sends. Raises InvalidArgument for a tuple, a shape without layout or another channel type."""
    require(shape.is_array, "RecvFromHost takes arrays only", shape, "an array")
    _require_layout(shape, "RecvFromHost")
    return _received(token, shape, _channel(handle, ChannelType.HOST_TO_DEVICE, "RecvFromHost"), True)


# The spelling of the newest document.
SendWithTokens = SendWithToken
RecvWithTokens = RecvWithToken
RecvToHost = RecvFromHost
