"""Arrays that are made from numbers alone."""

from __future__ import annotations

from .. import functions as ops
from ..core.shape import Shape
from ..core.types import F64, S64
from ..functions.hlo_builder import Builder, XlaOp
from .operator_rules import rule
from .values import Number, Value, cast, full


@rule("full", "full_like", shown="self size dtype")
def _full(builder: Builder, fill_value: Value, result: Shape) -> XlaOp:
    return full(builder, fill_value, result)


@rule("scalar_tensor", shown="dtype")
def _scalar(builder: Builder, s: Value, result: Shape) -> XlaOp:
    return full(builder, s, result)


@rule("fill.Scalar", shown="self")
def _fill(builder: Builder, value: Value, result: Shape) -> XlaOp:
    return full(builder, value, result)


@rule("empty.memory_format", "empty_strided", "empty_permuted", "new_empty_strided",
      shown="self size stride dtype physical_layout")
def _empty(builder: Builder, result: Shape) -> XlaOp:
    """What nobody has written is 0."""
    return full(builder, 0, result)


@rule("arange.start_step", shown="end dtype")
def _arange(builder: Builder, start: Number, step: Number, result: Shape) -> XlaOp:
    """Floats are computed in F64, as torch does, so that a long range ends where it should."""
    t = result.element_type
    inner = F64 if t.is_floating else S64
    found = ops.Iota(builder, Shape.array(inner, result.dimensions), 0)
    found = ops.Add(ops.Mul(found, full(builder, step, found.shape)), full(builder, start, found.shape))
    return cast(found, t)


@rule("_new_zeros_with_same_feature_meta", shown="other self_num_batch_dims")
def _zeros_of_tangents(self: XlaOp, result: Shape) -> XlaOp:
    """What torch.func.linearize has for the tangents of what does not move."""
    return full(self.builder, 0, result)
