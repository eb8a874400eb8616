"""Gradients of type conversions: back to the operand's type, straight through the rounding. Integers have none."""

from __future__ import annotations

from grad_rules._calculus import convert
from grad_rules._table import vjp, zero
from xla_torch.functions import ReducePrecision
from xla_torch.functions.hlo_builder import XlaOp
from xla_torch.hlo.ir import Instruction


def _back(ct: XlaOp, inst: Instruction) -> XlaOp | None:
    """The cotangent in the operand's type; a complex one of a real operand is its real part."""
    element_type = inst.operands[0].shape.element_type
    return convert(ct, element_type) if element_type.is_differentiable and ct.element_type.is_differentiable else None


def _same_bits(ct: XlaOp, inst: Instruction) -> XlaOp | None:
    """Bits read as another type are no function of calculus; read as the same type they are the identity."""
    return ct if inst.operands[0].shape.element_type is inst.shape.element_type else None


vjp("convert", operand=_back)
vjp("bitcast-convert", operand=_same_bits)
# The cotangent is rounded like the value: what JAX does, and what a convert there and back would do.
vjp("reduce-precision", operand=lambda ct, exponent_bits, mantissa_bits: ReducePrecision(ct, exponent_bits, mantissa_bits))
zero("stochastic-convert")  # to integers only
