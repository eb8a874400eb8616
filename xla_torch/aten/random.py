"""Random numbers from an explicit state: what `api/torch_random.py` makes of every operator that draws.

The state is that of ``RngBitGenerator(rng_three_fry)``, u64[2]: a key and a counter. A draw reads at an offset of its own from
the counter, so that its numbers are a function of the state and of nothing else: the way back has those of the way forward.
"""

from __future__ import annotations

import math

import numpy as np

from .. import functions as ops
from ..core.errors import UnsupportedError
from ..core.shape import Shape
from ..core.types import BF16, F16, F64, PRED, S64, U32, U64
from ..functions.hlo_builder import Builder, XlaOp
from .operator_rules import rule
from .values import cast, full

_DIGITS = {F64: 53, F16: 11, BF16: 8}
"""How many bits of a number are drawn: as many as its type has digits, which are 24 of F32."""


@rule("xla_torch.random_advance.default")
def _advance(state: XlaOp, count: int) -> XlaOp:
    """The state whose counter is so much further."""
    return ops.Add(state, state.builder.constant(np.array([0, count], np.uint64)))


def _bits(state: XlaOp, offset: int, shape: Shape) -> XlaOp:
    return ops.GetTupleElement(ops.RngBitGenerator("rng_three_fry", _advance(state, offset), shape), 1)


@rule("xla_torch.random_uniform.default", shown="size dtype")
def _uniform(builder: Builder, state: XlaOp, offset: int, result: Shape) -> XlaOp:
    """Numbers of [0, 1) that are all equally likely: whole multiples of the distance of those below 1, as torch draws them."""
    t = result.element_type
    if not result.element_count:
        return full(builder, 0, result)
    bits, digits = _bits(state, offset, result.with_element_type(U64 if t is F64 else U32)), _DIGITS.get(t, 24)
    bits = ops.ShiftRightLogical(bits, full(builder, bits.element_type.bits - digits, bits.shape))
    return ops.Mul(cast(bits, t), full(builder, math.ldexp(1, -digits), result))


@rule("xla_torch.random_integers.default", shown="size")
def _integers(builder: Builder, state: XlaOp, offset: int, low: int, last: int, result: Shape) -> XlaOp:
    """Whole numbers from `low` to `last`: the remainders of 64 bits, whose bias is below the number of choices by 2**64."""
    if not result.element_count:
        return full(builder, 0, result)
    bits, choices = _bits(state, offset, result.with_element_type(U64)), last - low + 1
    if choices < 1 << 64:
        bits = ops.Rem(bits, full(builder, choices, bits.shape))
    return ops.Add(cast(bits, S64), full(builder, low, result))


@rule("native_dropout")
def _dropout(input: XlaOp, p: float, train: bool | None) -> list[XlaOp]:
    """Where it draws nothing."""
    draws = train is not False
    if draws and 0 < p < 1:
        raise UnsupportedError("a draw without a state", got=f"p={p}", expected="0 or 1")
    kept = full(input.builder, not (draws and p), input.shape.with_element_type(PRED))
    return [full(input.builder, 0, input.shape) if draws and p else input, kept]
