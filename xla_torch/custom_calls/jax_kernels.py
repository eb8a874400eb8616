"""Kernels of JAX's own that programs for GPUs call: random bits, and the permutation of row exchanges.

Source: jaxlib/gpu/prng_kernels.cc, linalg_kernels.cc; the rounds are those of jax/_src/prng.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import functions as ops
from ..core.types import S32, U32
from ..functions.decompositions import permutation
from ..functions.hlo_builder import XlaOp
from .calls import Call, Meaning

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def threefry2x32(call: Call) -> Sequence[XlaOp]:
    """Two words of 32 random bits for each pair of counters and its keys. A fifth operand of older programs is their number."""
    call.require_operands(4, 5)
    if any(o.element_type is not U32 or o.shape.dimensions != call.results[0].dimensions for o in call.operands[:4]):
        raise call.refused("its operands are not four arrays of one shape", ", ".join(str(o.shape) for o in call.operands),
                           f"u32 like {call.results[0]}")
    first, second, left, right = call.operands[:4]
    keys = (first, second, ops.Xor(ops.Xor(first, second), _PARITY))
    left, right = ops.Add(left, keys[0]), ops.Add(right, keys[1])
    for step in range(5):
        for rotation in _ROTATIONS[step % 2]:
            left = ops.Add(left, right)
            right = ops.Xor(left, _rotated(right, rotation))
        left = ops.Add(left, keys[(step + 1) % 3])
        right = ops.Add(ops.Add(right, keys[(step + 2) % 3]), step + 1)
    return [left, right]


def _rotated(x: XlaOp, count: int) -> XlaOp:
    return ops.Or(ops.ShiftLeft(x, count), ops.ShiftRightLogical(x, 32 - count))


def pivots_to_permutation(call: Call) -> XlaOp:
    """The permutation of exchanges of row i with row ``pivots[..., i]``, counted from 0."""
    call.require_operands(1)
    (pivots,), (result,) = call.operands, call.results
    if pivots.element_type is not S32 or result.dimensions[:-1] != pivots.shape.dimensions[:-1] or (
            result.dimensions[-1] < pivots.shape.dimensions[-1]):
        raise call.refused("its result is no permutation of as many rows", f"{pivots.shape} to {result}")
    rows = result.dimensions[-1]
    own = ops.Iota(call.builder, pivots.shape, pivots.shape.rank - 1)
    inside = ops.And(ops.Ge(pivots, 0), ops.Lt(pivots, rows))  # an exchange with no row of the matrix is none
    return permutation(ops.Select(inside, pivots, own), rows)


MEANINGS: dict[str, Meaning] = {
    **{f"{maker}_threefry2x32{version}": threefry2x32 for maker in ("cu", "hip") for version in ("", "_ffi")},
    **{f"{maker}_lu_pivots_to_permutation{version}": pivots_to_permutation for maker in ("cu", "hip")
       for version in ("", "_ffi")}}
"""The kernels by target."""
