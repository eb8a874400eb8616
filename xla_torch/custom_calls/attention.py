"""Attention that cuDNN has in one kernel: ``softmax(scale q k^T + bias, masked) v``, its way back, and its form in 8 bits.

Which dimensions are contracted, the configuration says, so that arrays may have batch, head and time in different orders; scores
have [batch, head, q time, k time]. Sources: jax/_src/cudnn/fused_attention_stablehlo.py, xla/service/gpu/backend_configs.proto
(CudnnfMHABackendConfig). Random dropout, packed sequences, paged arrays and ALiBi are refused.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from .. import functions as ops
from ..core.forks import cached_property
from ..core.shape import Shape
from ..core.types import S32
from ..functions.hlo_builder import XlaOp
from ..opcodes.contraction import DotDimensionNumbers
from .arithmetic import dot_numbers, product, saturated, scaled, wide_type
from .calls import Call, Meaning, broadcast_like, converted, maximum, total, zeros

_MASKS = {"NO_MASK": (False, False), "CAUSAL": (True, False), "PADDING": (False, True), "PADDING_CAUSAL": (True, True)}
"""Of each mask: whether it is causal, and whether sequences have lengths."""


@dataclasses.dataclass(frozen=True)
class _Attention:
    """A call's configuration. Raises UnsupportedError, when it is made, for what has no meaning here."""

    call: Call

    def __post_init__(self) -> None:
        refused = self.call.refused
        if self.number("dropout_rate") != 0:
            raise refused("its dropout is random in cuDNN's own way", self.number("dropout_rate"), "a rate of 0")
        if self.number("max_seg_per_batch", 1) > 1 or self.config.get("is_paged_attention", False):
            raise refused("packed sequences and paged arrays are not supported")
        if self.config.get("mask_type", "NO_MASK") not in _MASKS:
            raise refused("its mask is not known", self.config.get("mask_type"), ", ".join(_MASKS))

    @cached_property
    def config(self) -> Mapping[str, Any]:
        return self.call.section("cudnn_fmha_backend_config")

    def number(self, name: str, default: float = 0) -> float:
        value = self.config.get(name, default)
        if not isinstance(value, (int, float)):
            raise self.call.refused(f"{name} is no number", value)
        return value

    def numbers(self, name: str) -> DotDimensionNumbers:
        return dot_numbers(self.call, self.config.get(f"{name}_dot_dimension_numbers", {}))

    @property
    def is_causal(self) -> bool:
        return _MASKS[self.config.get("mask_type", "NO_MASK")][0]

    @property
    def has_lengths(self) -> bool:
        return _MASKS[self.config.get("mask_type", "NO_MASK")][1]

    # ---- scores

    def dot(self, lhs: XlaOp, rhs: XlaOp, numbers: DotDimensionNumbers) -> XlaOp:
        """A product in F32 (F64 of such), whose rhs may have fewer heads: each is for a group of the lhs's."""
        kind = wide_type(lhs.element_type)
        batches = zip(numbers.lhs_batch_dimensions, numbers.rhs_batch_dimensions, strict=True)
        for left, right in batches:
            rhs = _repeated(self.call, rhs, right, lhs.shape.dimensions[left])
        return product(converted(lhs, kind), converted(rhs, kind), numbers, kind)

    def allowed(self, shape: Shape, lengths: Sequence[XlaOp], mask: XlaOp | None = None) -> XlaOp | None:
        """Where scores count, or None for everywhere."""
        positions = Shape.array(S32, shape.dimensions)
        rows, columns = (ops.Iota(self.call.builder, positions, d) for d in (2, 3))
        found: list[XlaOp] = []
        if self.is_causal:
            found.append(ops.Le(columns, rows))
        window = int(self.number("sliding_window_length"))
        if window > 0:
            found.append(ops.Gt(columns, ops.Sub(rows, window)))
        if self.has_lengths:
            found.append(ops.Lt(columns, broadcast_like(ops.Reshape(lengths[1], shape.dimensions[:1]), positions, (0,))))
        if mask is not None:
            stretched = _stretched(self.call, mask, shape)
            found.append(ops.Ne(stretched, zeros(self.call.builder, stretched.shape)))
        return functools.reduce(ops.And, found) if found else None

    def scores(self, q: XlaOp, k: XlaOp, numbers: DotDimensionNumbers, bias: XlaOp | None) -> XlaOp:
        found = scaled(self.dot(q, k, numbers), self.number("fmha_scale", 1))
        if found.shape.rank != 4:
            raise self.call.refused("its scores have not four dimensions", found.shape)
        if bias is None:
            return found
        return ops.Add(found, _stretched(self.call, converted(bias, found.element_type), found.shape))

    def known_rows(self, x: XlaOp, lengths: Sequence[XlaOp]) -> XlaOp:
        """Zeros in rows (of dimension 2) behind a sequence's end."""
        if not self.has_lengths:
            return x
        rows = ops.Iota(self.call.builder, Shape.array(S32, x.shape.dimensions), 2)
        ends = broadcast_like(ops.Reshape(lengths[0], x.shape.dimensions[:1]), x.shape, (0,))
        return ops.Select(ops.Lt(rows, ends), x, zeros(self.call.builder, x.shape))


def _repeated(call: Call, x: XlaOp, dimension: int, count: int) -> XlaOp:
    """Each position along a dimension repeated, so that there are `count`."""
    sizes = list(x.shape.dimensions)
    own = sizes[dimension]
    if own == count:
        return x
    if not own or count % own:
        raise call.refused("heads cannot be grouped", f"{own} for {count}")
    apart = [*sizes[:dimension + 1], count // own, *sizes[dimension + 1:]]
    sizes[dimension] = count
    kept = [d for d in range(len(apart)) if d != dimension + 1]
    return ops.Reshape(ops.BroadcastInDim(x, apart, kept), sizes)


def _summed(x: XlaOp, dimension: int, count: int) -> XlaOp:
    """The way back of `_repeated`."""
    sizes = list(x.shape.dimensions)
    if sizes[dimension] == count:
        return x
    apart = [*sizes[:dimension], count, sizes[dimension] // count, *sizes[dimension + 1:]]
    return total(ops.Reshape(x, apart), [dimension + 1])


def _stretched(call: Call, x: XlaOp, shape: Shape) -> XlaOp:
    """An array of up to four dimensions broadcast to scores: they are the last ones, and those of size 1 stretch."""
    first = shape.rank - x.shape.rank
    sizes = x.shape.dimensions
    if first < 0 or any(n not in (1, m) for n, m in zip(sizes, shape.dimensions[first:], strict=True)):
        raise call.refused("a bias or mask does not fit the scores", f"{x.shape} to {shape}")
    kept = [d for d, n in enumerate(sizes) if n == shape.dimensions[first + d]]
    return ops.BroadcastInDim(ops.Reshape(x, [sizes[d] for d in kept]), shape.dimensions, [first + d for d in kept])


def _softmax(call: Call, scores: XlaOp, allowed: XlaOp | None) -> tuple[XlaOp, XlaOp]:
    """(probabilities, the logarithms of their denominators [batch, head, time]). A row without any score has zeros."""
    kept = scores if allowed is None else ops.Select(allowed, scores, call.builder.constant(-math.inf, scores.element_type))
    largest = ops.Max(maximum(kept, [3]), -1e30)
    powers = ops.Exp(ops.Sub(kept, broadcast_like(largest, scores.shape, (0, 1, 2))))
    sums = total(powers, [3])
    denominator = ops.Select(ops.Eq(sums, 0.0), ops.Add(sums, 1.0), sums)
    return ops.Div(powers, broadcast_like(denominator, scores.shape, (0, 1, 2))), ops.Add(largest, ops.Log(denominator))


def _taken(call: Call, operands: list[XlaOp], wanted: bool) -> XlaOp | None:
    if wanted and not operands:
        raise call.refused("it has fewer operands than its name and configuration ask for", len(call.operands))
    return operands.pop(0) if wanted else None


def _lengths(this: _Attention, operands: list[XlaOp]) -> list[XlaOp]:
    found = [_taken(this.call, operands, True) for _ in range(2)] if this.has_lengths else []
    if operands:
        raise this.call.refused("it has more operands than its name and configuration ask for", len(this.call.operands))
    return [x for x in found if x is not None]


def forward(call: Call) -> Sequence[XlaOp]:
    """(the attention, in training the logarithms of the denominators)."""
    this, rest = _Attention(call), list(call.operands)
    q, k, v = (x for _ in range(3) if (x := _taken(call, rest, True)) is not None)
    mask = _taken(call, rest, "Mask" in call.target)
    bias = _taken(call, rest, "Bias" in call.target)
    lengths = _lengths(this, rest)
    scores = this.scores(q, k, this.numbers("bmm1"), bias)
    if "Softmax" in call.target:
        chances, statistics = _softmax(call, scores, this.allowed(scores.shape, lengths, mask))
    else:
        chances, statistics = scores, maximum(scores, [3])
    found = this.known_rows(this.dot(chances, v, this.numbers("bmm2")), lengths)
    results = [saturated(found, call.results[0].element_type)]
    if len(call.results) > 1 and call.results[1].rank >= 3:
        results.append(ops.Reshape(converted(statistics, call.results[1].element_type), call.results[1].dimensions))
    return results


def backward(call: Call) -> Sequence[XlaOp]:
    """(dq, dk, dv, with a bias its cotangent) of (q, k, v, logarithms of the denominators, do, bias, o, lengths)."""
    this, rest = _Attention(call), list(call.operands)
    q, k, v, statistics, ct = (x for _ in range(5) if (x := _taken(call, rest, True)) is not None)
    bias = _taken(call, rest, "Bias" in call.target)
    _taken(call, rest, True)  # the attention itself, which the other operands say too
    lengths = _lengths(this, rest)
    inner = this.numbers("bmm2_grad_gemm2")  # also that of q and k, which have the forms of do and v
    scores = this.scores(q, k, inner, bias)
    logarithms = ops.Reshape(converted(statistics, scores.element_type), scores.shape.dimensions[:3])
    chances = ops.Exp(ops.Sub(scores, broadcast_like(logarithms, scores.shape, (0, 1, 2))))
    allowed = this.allowed(scores.shape, lengths)
    if allowed is not None:
        chances = ops.Select(allowed, chances, zeros(call.builder, chances.shape))
    chances = this.known_rows(chances, lengths)
    of_chances = this.dot(ct, v, inner)
    mean = total(ops.Mul(chances, of_chances), [3])
    of_scores = ops.Mul(chances, ops.Sub(of_chances, broadcast_like(mean, scores.shape, (0, 1, 2))))
    factor = this.number("fmha_scale", 1)
    found = [scaled(this.dot(of_scores, k, this.numbers("bmm1_grad_gemm2")), factor),
             scaled(this.dot(of_scores, q, this.numbers("bmm1_grad_gemm1")), factor),
             this.dot(chances, ct, this.numbers("bmm2_grad_gemm1"))]
    if len(call.results) < 3:
        raise call.refused("it gives fewer results than three", len(call.results))
    results = [saturated(_summed(x, 1, shape.dimensions[1]), shape.element_type)
               for x, shape in zip(found, call.results, strict=False)]
    if bias is not None and len(call.results) > 3 and call.results[3].dimensions == bias.shape.dimensions:
        results.append(_to_bias(of_scores, call.results[3]))
    return results


def _to_bias(x: XlaOp, shape: Shape) -> XlaOp:
    """The sum over the dimensions along which a bias was broadcast."""
    first = x.shape.rank - shape.rank
    over = [d for d, n in enumerate(x.shape.dimensions) if d < first or shape.dimensions[d - first] != n]
    return converted(ops.Reshape(total(x, over), shape.dimensions), shape.element_type)


def forward_f8(call: Call) -> Sequence[XlaOp]:
    """(the attention in 8 bits, largest probability, largest magnitude of the attention, in training the logarithms of the
    denominators) of (q, k, v, their scales, the scale of probabilities both ways, the result's)."""
    call.require_operands(9)
    this = _Attention(call)
    q, k, v, of_q, of_k, of_v, of_s, to_s, to_o = call.operands
    scores = this.scores(q, k, this.numbers("bmm1"), None)
    scores = scaled(scaled(scores, of_q), of_k)
    chances, statistics = _softmax(call, scores, this.allowed(scores.shape, ()))
    narrow = saturated(scaled(chances, to_s), q.element_type)
    found = scaled(scaled(this.dot(narrow, v, this.numbers("bmm2")), of_s), of_v)
    results = [saturated(scaled(found, to_o), call.results[0].element_type)]
    for value in (chances, found):
        shape = call.results[len(results)]
        results.append(ops.Reshape(converted(maximum(ops.Abs(value), range(4)), shape.element_type), shape.dimensions))
    if len(call.results) > 3 and call.results[3].rank == 3:
        results.append(ops.Reshape(statistics, call.results[3].dimensions))
    return results


_FORWARD = ("BmmBmm", "Softmax", "ScaleBiasSoftmax", "ScaleMaskSoftmax", "ScaleBiasMaskSoftmax")

MEANINGS: dict[str, Meaning] = {
    **{f"__cudnn$fmha{name}{dropout}": forward for name in _FORWARD for dropout in ("", "Dropout")},
    **{f"__cudnn$fmha{name}{dropout}Backward": backward for name in ("Softmax", "ScaleBiasSoftmax")
       for dropout in ("", "Dropout")},
    "__cudnn$fmhaSoftmaxF8": forward_f8}
"""The kernels by target."""
