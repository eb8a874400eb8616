"""Schemas: tokens, and talk with the host and along channels.

Documents: XLA's operation semantics, the sections AfterAll, Infeed, Outfeed, Recv and Send. A token orders side effects and
carries nothing. A recv only announces; its recv-done waits for the data.
"""

# pyright: reportMissingParameterType=false, reportUnknownParameterType=false

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from ..core.shape import Shape
from ..core.types import U32
from ..hlo.attributes import Bool, Int, Text
from ..hlo.codecs import RawCodec
from ..hlo.ir import Instruction
from ..hlo.reader import Reader
from ..hlo.schema import Trait, op
from .shapes import require, require_declared


def _require_token(shape: Shape, position: int) -> None:
    require(shape.is_token, f"operand {position} is not a token", shape, "token[]")


# ------------------------------------------------------------------------------------------- tokens


def after_all_shape(declared: Shape | None, *tokens: Shape) -> Shape:
    """token[]; every operand is a token."""
    for position, token in enumerate(tokens):
        _require_token(token, position)
    return Shape.token()


@op("after-all", infer=after_all_shape, stablehlo="after_all", traits=Trait.NO_TRAFFIC | Trait.MIXED_PRECISION)
def after_all(*tokens): ...


# ------------------------------------------------------------------------------------------- infeed and outfeed


def infeed_shape(declared: Shape | None, token: Shape, **_: Any) -> Shape:
    """(data, token): data is an array or a flat tuple of arrays."""
    _require_token(token, 0)
    shape = require_declared(declared)
    require(shape.is_tuple and len(shape.tuple_shapes) == 2 and shape.tuple_shapes[1].is_token, "the result is not a pair", shape,
            "(data, token[])")
    require(all(part.is_array for part in parts(shape.tuple_shapes[0])), "infeed data is no array and no flat tuple of arrays",
            shape, "(data, token[])")
    return shape


def parts(data: Shape) -> Sequence[Shape]:
    return data.tuple_shapes if data.is_tuple else (data,)


@op("infeed", infer=infeed_shape, stablehlo="infeed", traits=Trait.MIXED_PRECISION, pure=False, inferable=False)
def infeed(token, *, infeed_config: Text = ""): ...


class ShapeCodec(RawCodec):
    """A shape, kept as text."""

    def parse(self, reader: Reader) -> str:
        start = reader.skip()
        reader.shape()
        return reader.text[start:reader.pos]


ShapeText = Annotated[str, ShapeCodec()]


def outfeed_shape_of(declared: Shape | None, operand: Shape, token: Shape, *, outfeed_shape: str = "", **_: Any) -> Shape:
    """token[]."""
    _require_token(token, 1)
    require(operand.is_array or (operand.is_tuple and all(p.is_array for p in operand.tuple_shapes)),
            "what is outfed is no array and no flat tuple of arrays", operand)
    if outfeed_shape:  # XLA does not compare: what is outfed are the arrays, in one tuple or another
        given, arrays = (Shape.tuple(list(shape.leaves())) for shape in (Shape.parse(outfeed_shape), operand))
        require(given.compatible(arrays), "outfeed_shape is not the operand's", outfeed_shape, operand)
    return Shape.token()


@op("outfeed", infer=outfeed_shape_of, stablehlo="outfeed", traits=Trait.MIXED_PRECISION, pure=False, inferable=False)
def outfeed(operand, token, *, outfeed_config: Text = "", outfeed_shape: ShapeText = ""): ...


# ------------------------------------------------------------------------------------------- channels


def send_shape(declared: Shape | None, operand: Shape, token: Shape, **_: Any) -> Shape:
    """(operand, u32 context, token)."""
    require(operand.is_array, "what is sent is not an array", operand, "an array shape")
    _require_token(token, 1)
    return Shape.tuple([operand.without_layout(), Shape(U32), Shape.token()])


@op("send", infer=send_shape, stablehlo="send", traits=Trait.MIXED_PRECISION, pure=False, inferable=False)
def send(operand, token, *, channel_id: Int = 0, is_host_transfer: Bool = False): ...


def send_done_shape(declared: Shape | None, operand: Shape, **_: Any) -> Shape:
    """token[]."""
    parts = operand.tuple_shapes
    require(operand.is_tuple and len(parts) == 3 and parts[2].is_token, "the operand is not the result of a send", operand,
            "(operand, u32[], token[])")
    return Shape.token()


@op("send-done", infer=send_done_shape, traits=Trait.MIXED_PRECISION, pure=False, inferable=False, channel_of=send)
def send_done(operand, *, channel_id: Int = 0, is_host_transfer: Bool = False): ...


def recv_shape(declared: Shape | None, token: Shape, **_: Any) -> Shape:
    """(data, u32 context, token)."""
    _require_token(token, 0)
    shape = require_declared(declared)
    parts = shape.tuple_shapes
    require(shape.is_tuple and len(parts) == 3 and parts[0].is_array and parts[2].is_token, "the result is no triple", shape,
            "(data, u32[], token[])")
    return shape


@op("recv", infer=recv_shape, stablehlo="recv", traits=Trait.MIXED_PRECISION, pure=False, inferable=False)
def recv(token, *, channel_id: Int = 0, is_host_transfer: Bool = False): ...


def recv_done_shape(declared: Shape | None, operand: Shape, **_: Any) -> Shape:
    """(data, token)."""
    parts = operand.tuple_shapes
    require(operand.is_tuple and len(parts) == 3 and parts[2].is_token, "the operand is not the result of a recv", operand,
            "(data, u32[], token[])")
    return Shape.tuple([parts[0].without_layout(), parts[2]])


@op("recv-done", infer=recv_done_shape, traits=Trait.MIXED_PRECISION, pure=False, inferable=False, channel_of=recv)
def recv_done(operand, *, channel_id: Int = 0, is_host_transfer: Bool = False): ...


def source_target_pairs(inst: Instruction) -> tuple[tuple[int, int], ...]:
    """Who sends to whom, where the frontend attributes of a send or recv say it, or of a done those of what it completes."""
    attributes: Mapping[str, str] = inst.common.get("frontend_attributes") or {}
    written = attributes.get("_xla_send_recv_source_target_pairs", "")
    if not written and inst.opcode == recv_done:
        return source_target_pairs(inst.operands[0])
    return tuple((int(a), int(b)) for a, b in re.findall(r"\{\s*(\d+)\s*,\s*(\d+)\s*\}", written))
