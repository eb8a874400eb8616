"""Op definitions: tokens, and talk with the host and along channels. Document: spec `ops.md`, section 11.

A token orders side effects and carries nothing. A recv only announces; its recv-done waits for the data.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from ..distributed import feeds
from ..hlo.ir import Instruction, Token
from ..lowering import numerics, values
from ..lowering.values import Splat
from ..shape import Shape
from ..types import U32
from .attributes import Bool, Int, RawCodec, Text
from .definition import op
from .shapes import require, require_declared

if TYPE_CHECKING:
    from ..hlo.parser import Parser


def _require_token(shape: Shape, position: int) -> None:
    require(shape.is_token, f"operand {position} is not a token", shape, "token[]")


# ------------------------------------------------------------------------------------------- tokens


def after_all_shape(declared: Shape | None, *tokens: Shape) -> Shape:
    """token[]; every operand is a token."""
    for position, token in enumerate(tokens):
        _require_token(token, position)
    return Shape.token()


@op("after-all", infer=after_all_shape, stablehlo="after_all")
def after_all(inst, *tokens):
    return Token()


# ------------------------------------------------------------------------------------------- infeed and outfeed


def infeed_shape(declared: Shape | None, token: Shape, **_: Any) -> Shape:
    """(data, token): data is an array or a flat tuple of arrays."""
    _require_token(token, 0)
    shape = require_declared(declared)
    require(shape.is_tuple and len(shape.tuple_shapes) == 2 and shape.tuple_shapes[1].is_token, "the result is not a pair", shape,
            "(data, token[])")
    require(all(part.is_array for part in _parts(shape.tuple_shapes[0])), "infeed data is no array and no flat tuple of arrays",
            shape, "(data, token[])")
    return shape


def _parts(data: Shape) -> Sequence[Shape]:
    return data.tuple_shapes if data.is_tuple else (data,)


@op("infeed", infer=infeed_shape, stablehlo="infeed", inferable=False, pure=False)
def infeed(inst, token, *, infeed_config: Text = ""):
    data = inst.shape.tuple_shapes[0]
    parts = _parts(data)
    if not parts:
        return (), Token()
    given = values.emit(feeds.take_infeed, tuple((p.dimensions, p.element_type.torch) for p in parts), values.device())
    taken = tuple(numerics.to_carrier(given[k], p.element_type) for k, p in enumerate(parts))
    return (taken if data.is_tuple else taken[0]), Token()


class ShapeCodec(RawCodec):
    """A shape, kept as text."""

    def parse(self, parser: Parser) -> str:
        start = parser.skip()
        parser.shape()
        return parser.text[start:parser.pos]


ShapeText = Annotated[str, ShapeCodec()]


def outfeed_shape_of(declared: Shape | None, operand: Shape, token: Shape, *, outfeed_shape: str = "", **_: Any) -> Shape:
    """token[]."""
    _require_token(token, 1)
    require(operand.is_array or (operand.is_tuple and all(p.is_array for p in operand.tuple_shapes)),
            "what is outfed is no array and no flat tuple of arrays", operand)
    require(not outfeed_shape or Shape.parse(outfeed_shape).compatible(operand), "outfeed_shape is not the operand's",
            outfeed_shape, operand)
    return Shape.token()


@op("outfeed", infer=outfeed_shape_of, stablehlo="outfeed", inferable=False, pure=False)
def outfeed(inst, operand, token, *, outfeed_config: Text = "", outfeed_shape: ShapeText = ""):
    shape = inst.operands[0].shape
    given = operand if shape.is_tuple else (operand,)
    leaves = tuple(numerics.from_carrier(v, p.element_type) for v, p in zip(given, _parts(shape), strict=True))
    values.emit(feeds.put_outfeed, leaves)
    return Token()


# ------------------------------------------------------------------------------------------- channels


def send_shape(declared: Shape | None, operand: Shape, token: Shape, **_: Any) -> Shape:
    """(operand, u32 context, token)."""
    require(operand.is_array, "what is sent is not an array", operand, "an array shape")
    _require_token(token, 1)
    return Shape.tuple([operand.without_layout(), Shape(U32), Shape.token()])


def source_target_pairs(inst: Instruction) -> tuple[tuple[int, int], ...]:
    """Who sends to whom, where the frontend attributes of a send or recv say it, or of a done those of what it completes."""
    attributes = inst.common.get("frontend_attributes") or {}
    written = attributes.get("_xla_send_recv_source_target_pairs", "")
    if not written and inst.opcode == "recv-done":
        return source_target_pairs(inst.operands[0])
    return tuple((int(a), int(b)) for a, b in re.findall(r"\{\s*(\d+)\s*,\s*(\d+)\s*\}", written))


@op("send", infer=send_shape, stablehlo="send", inferable=False, pure=False)
def send(inst, operand, token, *, channel_id: Int = 0, is_host_transfer: Bool = False):
    given = numerics.from_carrier(operand, inst.operands[0].shape.element_type)
    values.emit(feeds.put_channel, given, channel_id, is_host_transfer, source_target_pairs(inst))
    return operand, Splat(0), Token()


def send_done_shape(declared: Shape | None, operand: Shape, **_: Any) -> Shape:
    """token[]."""
    parts = operand.tuple_shapes
    require(operand.is_tuple and len(parts) == 3 and parts[2].is_token, "the operand is not the result of a send", operand,
            "(operand, u32[], token[])")
    return Shape.token()


@op("send-done", infer=send_done_shape, inferable=False, pure=False)
def send_done(inst, operand, *, channel_id: Int = 0, is_host_transfer: Bool = False):
    return Token()


def recv_shape(declared: Shape | None, token: Shape, **_: Any) -> Shape:
    """(data, u32 context, token)."""
    _require_token(token, 0)
    shape = require_declared(declared)
    parts = shape.tuple_shapes
    require(shape.is_tuple and len(parts) == 3 and parts[0].is_array and parts[2].is_token, "the result is no triple", shape,
            "(data, u32[], token[])")
    return shape


@op("recv", infer=recv_shape, stablehlo="recv", inferable=False, pure=False)
def recv(inst, token, *, channel_id: Int = 0, is_host_transfer: Bool = False):
    return Splat(0, inst.shape.tuple_shapes[0].dimensions), Splat(0), Token()


def recv_done_shape(declared: Shape | None, operand: Shape, **_: Any) -> Shape:
    """(data, token)."""
    parts = operand.tuple_shapes
    require(operand.is_tuple and len(parts) == 3 and parts[2].is_token, "the operand is not the result of a recv", operand,
            "(data, u32[], token[])")
    return Shape.tuple([parts[0].without_layout(), parts[2]])


@op("recv-done", infer=recv_done_shape, inferable=False, pure=False)
def recv_done(inst, operand, *, channel_id: Int = 0, is_host_transfer: Bool = False):
    shape = inst.shape.tuple_shapes[0]
    data = values.emit(feeds.take_channel, channel_id, is_host_transfer, shape.dimensions, shape.element_type.torch,
                       values.device(), source_target_pairs(inst))
    return numerics.to_carrier(data, shape.element_type), Token()
