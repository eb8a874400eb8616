"""An example of each documented function that has no row in the op table: it needs more than arguments (a peer, a feed, a
registered target), or it makes no op. Each example runs the function and checks what comes out."""

from __future__ import annotations

from collections.abc import Callable

import torch

import xla_torch
from xla_torch import F32, Shape, XlaBuilder, XlaOp, ops
from xla_torch.api.custom_calls import register_custom_call
from xla_torch.distributed import feeds

PAIR = Shape.parse("f32[2]{0}")
ONE_TWO = torch.tensor([1.0, 2.0])


def _of_pair(build: Callable[[XlaBuilder, XlaOp], XlaOp]) -> list[float]:
    """The result of a program over [1, 2]."""
    builder = XlaBuilder("example")
    return builder.build(build(builder, builder.parameter(0, Shape.array(F32, [2]))))(ONE_TWO).tolist()


def _to_itself(send: str, receive: str) -> Callable[[], None]:
    """A participant that sends to itself."""
    def example() -> None:
        def build(builder: XlaBuilder, x: XlaOp) -> XlaOp:
            if receive == "Recv":  # which has no token to order it by, but the channel does
                getattr(ops, send)(x, 1)
                return ops.Recv(builder, Shape.array(F32, [2]), 1)
            sent = getattr(ops, send)(x, ops.CreateToken(builder), 1)
            return ops.GetTupleElement(getattr(ops, receive)(sent, Shape.array(F32, [2]), 1), 0)

        assert _of_pair(build) == [1, 2]

    return example


def _halves() -> None:
    def build(builder: XlaBuilder, x: XlaOp) -> XlaOp:
        sent = ops.SendDone(ops.SendStart(x, ops.CreateToken(builder), 1))
        return ops.GetTupleElement(ops.RecvDone(ops.RecvStart(sent, Shape.array(F32, [2]), 1)), 0)

    assert _of_pair(build) == [1, 2]


def _with_the_host(receive: str) -> Callable[[], None]:
    def example() -> None:
        def build(builder: XlaBuilder, x: XlaOp) -> XlaOp:
            received = getattr(ops, receive)(ops.CreateToken(builder), PAIR, ops.ChannelHandle(1, ops.ChannelType.HOST_TO_DEVICE))
            data, token = (ops.GetTupleElement(received, k) for k in range(2))
            ops.SendToHost(data + x, token, PAIR, ops.ChannelHandle(2, ops.ChannelType.DEVICE_TO_HOST))
            return data

        feeds.send(1, torch.tensor([10.0, 20.0]))
        assert _of_pair(build) == [10, 20]
        assert feeds.receive(2).tolist() == [11, 22]

    return example


def _fed() -> None:
    def build(builder: XlaBuilder, x: XlaOp) -> XlaOp:
        data = ops.Infeed(builder, PAIR)
        ops.Outfeed(data + x, PAIR)
        return data

    feeds.feed(torch.tensor([10.0, 20.0]))
    assert _of_pair(build) == [10, 20]
    assert [fed.tolist() for fed in feeds.fetch()] == [[11, 22]]


def _fed_in_order() -> None:
    def build(builder: XlaBuilder, x: XlaOp) -> XlaOp:
        fed = ops.InfeedWithToken(ops.CreateToken(builder), PAIR)
        data, token = (ops.GetTupleElement(fed, k) for k in range(2))
        ops.OutfeedWithToken(data + x, token, PAIR)
        return data

    feeds.feed(torch.tensor([10.0, 20.0]))
    assert _of_pair(build) == [10, 20]
    assert [fed.tolist() for fed in feeds.fetch()] == [[11, 22]]


def _called(build: Callable[[XlaBuilder, XlaOp], XlaOp]) -> Callable[[], None]:
    def example() -> None:
        register_custom_call("three times", lambda x: 3 * x)
        assert _of_pair(build) == [3, 6]

    return example


def _of_a_region(builder: XlaBuilder, x: XlaOp) -> XlaOp:
    region = XlaBuilder("region")
    negated = region.build(-region.parameter(0, Shape(F32)))
    return ops.CustomCallWithComputation(builder, "three times", [x], negated, x.shape)


def _of_a_convolution(builder: XlaBuilder, x: XlaOp) -> XlaOp:
    program = xla_torch.parse_hlo("""ENTRY e {
  image = f32[1,3,1] parameter(0)
  kernel = f32[2,1,1] parameter(1)
  ROOT r = f32[1,2,1] convolution(image, kernel), window={size=2}, dim_labels=b0f_0io->b0f
}""")
    attributes = program.entry.root.attributes
    return ops.CustomCallWithConvDnums(builder, "three times", [x], x.shape, attributes["window"], attributes["dim_labels"])


def _partition() -> None:
    builder = XlaBuilder("number")
    program = builder.build(ops.PartitionID(builder))
    assert [int(number) for number in xla_torch.run_replicas(program, [()] * 2, num_partitions=2)] == [0, 1]


def _random_state() -> None:
    builder = XlaBuilder("state")
    program = builder.build(ops.RngGetAndUpdateState(builder, 3))
    first, second = (program.run_numpy()[0] for _ in range(2))
    assert int(second[0]) - int(first[0]) == 3


def _padding() -> None:
    assert ops.MakePadding([5, 6], [3, 2], [2, 1], ops.Padding.SAME) == [(1, 1), (0, 1)]


EXAMPLES: dict[str, Callable[[], None]] = {
    "Send Recv": _to_itself("Send", "Recv"),
    "SendWithToken RecvWithToken": _to_itself("SendWithToken", "RecvWithToken"),
    "SendWithTokens RecvWithTokens": _to_itself("SendWithTokens", "RecvWithTokens"),
    "SendStart SendDone RecvStart RecvDone": _halves,
    "RecvFromHost SendToHost": _with_the_host("RecvFromHost"),
    "RecvToHost": _with_the_host("RecvToHost"),
    "Infeed Outfeed": _fed,
    "InfeedWithToken OutfeedWithToken": _fed_in_order,
    "CustomCall": _called(lambda builder, x: ops.CustomCall(builder, "three times", [x], x.shape)),
    "CustomCallWithLayout": _called(lambda builder, x: ops.CustomCallWithLayout(builder, "three times", [x], PAIR, [PAIR])),
    "CustomCallWithComputation": _called(_of_a_region),
    "CustomCallWithConvDnums": _called(_of_a_convolution),
    "PartitionID": _partition,
    "RngGetAndUpdateState": _random_state,
    "MakePadding": _padding,
}
"""The functions, separated by blanks, and the example that runs them."""
