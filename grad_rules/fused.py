"""Fused rules: what several ops are together, when that has a gradient of its own. `_fused.py` says how they are used."""

from __future__ import annotations

from collections.abc import Callable

from grad_rules._calculus import conj, masked, zeros
from grad_rules._fused import Fused, fused
from grad_rules._patterns import as_power, behind_broadcasts, is_even_in, is_number, is_sum
from xla_torch.analysis.named_functions import clipped_part, is_merged_clamp
from xla_torch.functions import BroadcastInDim, Eq, Ge, Gt, Le, Lt, Max, Mul, Reduce, Select, Sub
from xla_torch.functions.hlo_builder import XlaOp
from xla_torch.hlo.inference import splat_of
from xla_torch.hlo.ir import Instruction
from xla_torch.opcodes import elementwise


@fused("softmax", "divide", "exponential", "reduce")
def _softmax(result: Instruction) -> Fused | None:
    """``e / sum(e)`` with ``e = exp(x)`` needs nothing but its result y: ``y * (ct - sum(y * ct))``."""
    exponential = result.operands[0]
    total, place = behind_broadcasts(result.operands[1])
    if exponential.opcode != elementwise.exponential or not is_sum(total) or total.operands[0] is not exponential:
        return None
    summed, reducer = total.attributes["dimensions"], total.attributes["to_apply"]
    kept = [d for d in range(exponential.shape.rank) if d not in summed]
    if any(place.get(k) != d for k, d in enumerate(kept) if exponential.shape.dimensions[d] != 1):
        return None

    def rule(ct: XlaOp, out: XlaOp) -> XlaOp:
        along = Reduce(ct.builder, [Mul(out, ct)], [ct.builder.constant(0, ct.element_type)], reducer, summed)
        return Mul(out, Sub(ct, BroadcastInDim(along, ct.shape.dimensions, kept)))

    return Fused(exponential.operands[0], rule, (result,), elementwise=False)


@fused("negative power", "divide", "multiply")
def _negative_power(result: Instruction) -> Fused | None:
    """``1 / (x * x)``, which is what JAX makes of ``x ** -2``, is a power: ``-2 * ct * out / x``. The products' own gradients
    multiply what has become zero with what is infinite."""
    one, product = result.operands
    base, exponent = as_power(product)
    if exponent < 2 or not is_number(one, 1):
        return None
    return Fused(base, lambda ct, out, x: ct * conj(-float(exponent) * (out / x)), (result, base))


@fused("odd function in two parts", "multiply", "sign", "abs")
def _odd(result: Instruction) -> Fused | None:
    """``sign(x) * f(|x|)`` of real x goes on to f by the sign alone, which counts as 1 at 0: its 0 there is for the value, and
    would take away the slope."""
    for sign, even in (result.operands, result.operands[::-1]):
        if sign.opcode == elementwise.sign and not sign.shape.element_type.is_complex and is_even_in(even, sign.operands[0]):
            return Fused(even, _by_sign, (sign, sign.operands[0]))
    return None


def _by_sign(ct: XlaOp, sign: XlaOp, x: XlaOp) -> XlaOp:
    return ct * Select(Eq(x, zeros(x)), zeros(x) + 1, sign)


@fused("end of relu", "maximum")
def _end_of_relu(result: Instruction) -> Fused | None:
    """``max(x, 0)`` in a function that is called `relu` or `relu6` has no slope at 0. Any other max shares its cotangent."""
    return _clipped(result, Gt)


@fused("end of relu6", "minimum")
def _end_of_relu6(result: Instruction) -> Fused | None:
    """``min(y, 6)`` in a function that is called `relu6` has no slope at 6."""
    return _clipped(result, Lt)


def _clipped(result: Instruction, inside: Callable[[XlaOp, XlaOp], XlaOp]) -> Fused | None:
    for source, end in (result.operands, result.operands[::-1]):
        if clipped_part(result) and splat_of(end) is not None:
            return Fused(source, lambda ct, x, limit: masked(inside(x, limit), ct), (source, end))
    return None


@fused("max and min that became a clamp", "clamp")
def _clip(result: Instruction) -> Fused | None:
    """A clamp that a compiler made of ``min(max(x, low), high)``, as its metadata says, shares the cotangent at both ends."""
    low, source, high = result.operands
    if not is_merged_clamp(result) or splat_of(low) is None or splat_of(high) is None:
        return None

    def rule(ct: XlaOp, low: XlaOp, x: XlaOp, high: XlaOp) -> XlaOp:
        within = masked(Le(Max(x, low), high), Select(Eq(Max(x, low), high), ct * 0.5, ct))
        return masked(Ge(x, low), Select(Eq(x, low), within * 0.5, within))

    return Fused(source, rule, (low, source, high))
