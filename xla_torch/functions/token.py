"""Tokens, infeed and outfeed, send and receive under their documented names.

Documents: operation semantics, the sections of the functions' own names. A token orders side effects and carries nothing. The
host's side of feeds and channels is `xla_torch.distributed.feeds`.
"""

# pyright: reportUnnecessaryIsInstance=false

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence

from ..core.errors import InvalidArgument
from ..core.shape import Shape
from ..core.types import U32
from ..hlo.canonical_values import index_of
from ..opcodes import control
from ..opcodes import token as token_ops
from ..opcodes.shapes import require
from ._documented import documented, renamed, variadic
from .hlo_builder import Builder, Value, XlaOp, packed

__all__ = ["AfterAll", "ChannelHandle", "ChannelType", "CreateToken", "Infeed", "InfeedWithToken", "Outfeed", "OutfeedWithToken",
           "Recv", "RecvFromHost", "RecvToHost", "RecvWithToken", "RecvWithTokens", "Send", "SendToHost", "SendWithToken",
           "SendWithTokens"]


class ChannelType(enum.Enum):
    """Who talks on a channel: two participants, or one and the program's host, in one way or the other. The numbers are XLA's.

    >>> ops.ChannelHandle(3, ops.ChannelType.DEVICE_TO_HOST).type.value
    2
    """

    DEVICE_TO_DEVICE = 1
    DEVICE_TO_HOST = 2
    HOST_TO_DEVICE = 3


@dataclasses.dataclass(frozen=True, slots=True)
class ChannelHandle:
    """A channel: its number, `handle`, and who talks on it, `type`. Raises InvalidArgument for a handle that is no integer, and
    for another type.

    >>> ops.ChannelHandle(3).type
    <ChannelType.DEVICE_TO_DEVICE: 1>
    """

    handle: int
    type: ChannelType = ChannelType.DEVICE_TO_DEVICE

    def __post_init__(self) -> None:
        index_of(self.handle)
        if not isinstance(self.type, ChannelType):
            raise InvalidArgument("unknown channel type", subject="ChannelHandle", got=self.type, expected="a ChannelType")


@variadic("tokens...")
@renamed(operands="tokens")
@documented
def AfterAll(builder: Builder, tokens: Sequence[XlaOp]) -> XlaOp:
    """A token that comes after all of the tokens. Raises InvalidArgument for an operand that is none.

    >>> ops.AddDependency(torch.tensor(1.0), ops.AfterAll([ops.CreateToken(), ops.CreateToken()]))
    tensor(1.)
    """
    return builder.add(token_ops.after_all, tokens)


@documented
def CreateToken(builder: Builder) -> XlaOp:
    """A token that comes after nothing.

    >>> ops.AddDependency(torch.tensor(1.0), ops.CreateToken())
    tensor(1.)
    """
    return AfterAll(builder, ())


def _require_layout(shape: Shape, name: str) -> None:
    require(all(leaf.layout is not None or leaf.rank == 0 for leaf in shape.leaves()),
            f"the shape given to {name} must have a layout", shape,
            "a layout for each array", "Shape.array(..., layout=Layout((1, 0)))")


def _element(pair: XlaOp, index: int) -> XlaOp:
    return pair.builder.add(control.get_tuple_element, [pair], {"index": index})


# ------------------------------------------------------------------------------------------- infeed and outfeed


@documented
def Infeed(builder: Builder, shape: Shape, config: str = "") -> XlaOp:
    """The next data of this shape (an array, or a tuple of arrays) that the host feeds.

    Raises InvalidArgument for a shape without layouts and for nested tuples.

    >>> feeds.feed(torch.tensor([1.0, 2.0]))
    >>> ops.Infeed(Shape.parse("f32[2]{0}"))
    tensor([1., 2.])
    """
    return _element(InfeedWithToken(CreateToken(builder), shape, config), 0)


@documented
def InfeedWithToken(token: XlaOp, shape: Shape, config: str = "") -> XlaOp:
    """(data, token): as `Infeed`, ordered by tokens. Raises InvalidArgument as that does.

    >>> feeds.feed(torch.tensor([1.0, 2.0]))
    >>> ops.InfeedWithToken(ops.CreateToken(), Shape.parse("f32[2]{0}"))[0]
    tensor([1., 2.])
    """
    _require_layout(shape, "Infeed")
    attributes = {"infeed_config": config} if config else {}
    return token.builder.add(token_ops.infeed, [token], attributes, Shape.tuple([shape, Shape.token()]))


@documented
def Outfeed(operand: Value, shape_with_layout: Shape, outfeed_config: str = "") -> XlaOp:
    """Give the operand to the host. Raises InvalidArgument for a shape without layouts or another shape than the operand's.

    >>> ops.Outfeed(torch.tensor([1.0, 2.0]), Shape.parse("f32[2]{0}"))
    Token()
    >>> [fed.tolist() for fed in feeds.fetch()]
    [[1.0, 2.0]]
    """
    operand = packed(operand)
    return OutfeedWithToken(operand, CreateToken(operand.builder), shape_with_layout, outfeed_config)


@documented
def OutfeedWithToken(operand: Value, token: XlaOp, shape_with_layout: Shape, outfeed_config: str = "") -> XlaOp:
    """A token: as `Outfeed`, ordered by tokens. Raises InvalidArgument as that does.

    >>> token = ops.OutfeedWithToken(torch.tensor([1.0, 2.0]), ops.CreateToken(), Shape.parse("f32[2]{0}"))
    >>> [fed.tolist() for fed in feeds.fetch()]
    [[1.0, 2.0]]
    """
    operand = packed(operand)
    _require_layout(shape_with_layout, "Outfeed")
    require(shape_with_layout.compatible(operand.shape), "the outfeed shape is not the operand's", shape_with_layout,
            str(operand.shape))
    attributes = {"outfeed_shape": shape_with_layout.to_text()} | ({"outfeed_config": outfeed_config} if outfeed_config else {})
    return operand.builder.add(token_ops.outfeed, [operand, token], attributes)


# ------------------------------------------------------------------------------------------- channels


def _channel(handle: ChannelHandle | int, kind: ChannelType, what: str) -> int:
    handle = handle if isinstance(handle, ChannelHandle) else ChannelHandle(handle, kind)
    require(handle.type is kind, f"{what} on a channel of the wrong type", handle.type.name, kind.name)
    return handle.handle


def _sent(operand: XlaOp, token: XlaOp, channel: int, to_host: bool) -> XlaOp:
    attributes = {"channel_id": channel} | ({"is_host_transfer": True} if to_host else {})
    begun = operand.builder.add(token_ops.send, [operand, token], attributes)
    return operand.builder.add(token_ops.send_done, [begun], attributes)


def _received(token: XlaOp, shape: Shape, channel: int, from_host: bool) -> XlaOp:
    attributes = {"channel_id": channel} | ({"is_host_transfer": True} if from_host else {})
    begun = token.builder.add(token_ops.recv, [token], attributes, Shape.tuple([shape, Shape(U32), Shape.token()]))
    return token.builder.add(token_ops.recv_done, [begun], attributes)


@renamed(channel_handle="handle")
@documented
def Send(operand: XlaOp, handle: ChannelHandle | int) -> XlaOp:
    """Send the operand to whoever receives on the channel. The result is a token. Raises InvalidArgument for a channel that is
    not device to device.

    >>> builder = XlaBuilder("to itself")
    >>> x = builder.parameter(0, Shape.parse("f32[2]"))
    >>> sent = ops.Send(x, 1)
    >>> builder.build(ops.Recv(builder, x.shape, 1))(torch.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    return SendWithToken(operand, CreateToken(operand.builder), handle)


@renamed(channel_handle="handle")
@documented
def SendWithToken(operand: XlaOp, token: XlaOp, handle: ChannelHandle | int) -> XlaOp:
    """`Send`, ordered by tokens. Raises InvalidArgument for a channel that is not device to device.

    >>> builder = XlaBuilder("to itself")
    >>> x = builder.parameter(0, Shape.parse("f32[2]"))
    >>> sent = ops.SendWithToken(x, ops.CreateToken(builder), 1)
    >>> received = ops.RecvWithToken(sent, x.shape, 1)
    >>> builder.build(ops.GetTupleElement(received, 0))(torch.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    return _sent(operand, token, _channel(handle, ChannelType.DEVICE_TO_DEVICE, "Send"), False)


@renamed(channel_handle="handle")
@documented
def SendToHost(operand: XlaOp, token: XlaOp, shape_with_layout: Shape, handle: ChannelHandle | int) -> XlaOp:
    """Send an array to the host. Raises InvalidArgument for a tuple, a shape without layout or a channel of another type.

    >>> to_host = ops.ChannelHandle(2, ops.ChannelType.DEVICE_TO_HOST)
    >>> builder = XlaBuilder("to the host")
    >>> x = builder.parameter(0, Shape.parse("f32[2]{0}"))
    >>> token = ops.SendToHost(x, ops.CreateToken(builder), x.shape, to_host)
    >>> result = builder.build(x)(torch.tensor([1.0, 2.0]))
    >>> feeds.receive(2)
    tensor([1., 2.])
    """
    require(operand.shape.is_array, "SendToHost takes arrays only", operand.shape, "an array")
    _require_layout(shape_with_layout, "SendToHost")
    require(shape_with_layout.compatible(operand.shape), "the shape is not the operand's", shape_with_layout, str(operand.shape))
    return _sent(operand, token, _channel(handle, ChannelType.DEVICE_TO_HOST, "SendToHost"), True)


@renamed(channel_handle="handle")
@documented
def Recv(builder: Builder, shape: Shape, handle: ChannelHandle | int) -> XlaOp:
    """What is sent on the channel, which has this shape. Raises InvalidArgument for a channel that is not device to device.

    >>> builder = XlaBuilder("to itself")
    >>> x = builder.parameter(0, Shape.parse("f32[2]"))
    >>> sent = ops.Send(x, 1)
    >>> builder.build(ops.Recv(builder, x.shape, 1))(torch.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    return _element(RecvWithToken(CreateToken(builder), shape, handle), 0)


@renamed(channel_handle="handle")
@documented
def RecvWithToken(token: XlaOp, shape: Shape, handle: ChannelHandle | int) -> XlaOp:
    """(data, token): `Recv`, ordered by tokens. Raises InvalidArgument for a channel that is not device to device.

    >>> builder = XlaBuilder("to itself")
    >>> x = builder.parameter(0, Shape.parse("f32[2]"))
    >>> sent = ops.SendWithToken(x, ops.CreateToken(builder), 1)
    >>> received = ops.RecvWithToken(sent, x.shape, 1)
    >>> builder.build(ops.GetTupleElement(received, 0))(torch.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    return _received(token, shape, _channel(handle, ChannelType.DEVICE_TO_DEVICE, "Recv"), False)


@renamed(channel_handle="handle", shape_with_layout="shape")
@documented
def RecvFromHost(token: XlaOp, shape: Shape, handle: ChannelHandle | int) -> XlaOp:
    """(data, token): what the host sends. Raises InvalidArgument for a tuple, a shape without layout or another channel type.

    >>> from_host = ops.ChannelHandle(1, ops.ChannelType.HOST_TO_DEVICE)
    >>> builder = XlaBuilder("from the host")
    >>> received = ops.RecvFromHost(ops.CreateToken(builder), Shape.parse("f32[2]{0}"), from_host)
    >>> feeds.send(1, torch.tensor([1.0, 2.0]))
    >>> builder.build(ops.GetTupleElement(received, 0))()
    tensor([1., 2.])
    """
    require(shape.is_array, "RecvFromHost takes arrays only", shape, "an array")
    _require_layout(shape, "RecvFromHost")
    return _received(token, shape, _channel(handle, ChannelType.HOST_TO_DEVICE, "RecvFromHost"), True)


# The spelling of the newest document.
SendWithTokens = SendWithToken
RecvWithTokens = RecvWithToken
RecvToHost = RecvFromHost
