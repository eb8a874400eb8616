"""Schemas: elementwise arithmetic of one and of two operands. Comparisons, clamp and select stand in `comparison.py`.

Specification: hlo/SPEC.md, Elementwise ops.
"""

# pyright: reportMissingParameterType=false, reportUnknownParameterType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.shape import Shape
from ..core.types import PRED, Kind, complex_part
from ..hlo.attributes import Accuracy
from ..hlo.schema import Trait, op
from .shapes import ANY, ARITHMETIC, FLOATING, INEXACT, INTEGRAL, LOGICAL, binary, complex_shape, unary

_SIGNED = (Kind.SIGNED, Kind.FLOAT, Kind.COMPLEX)
_DEAR = Trait.TRANSCENDENTAL
_STEEP = Trait.SINGULAR_DERIVATIVE
_MONOID = Trait.COMMUTATIVE | Trait.ASSOCIATIVE


# ------------------------------------------------------------------------------------------- one operand


def _unary(opcode: str, *kinds: Kind, stablehlo: str = "", traits: Trait = Trait.NONE,
           infer: Callable[..., Shape] | None = None) -> str:
    def signature(operand: Any) -> None: ...

    return op(opcode, infer=infer or unary(*kinds), stablehlo=stablehlo, traits=Trait.ELEMENTWISE | traits)(signature)


def _function(opcode: str, *kinds: Kind, stablehlo: str = "", traits: Trait = Trait.NONE) -> str:
    """A function that takes an attribute for the accuracy of its result."""

    def signature(operand: Any, *, result_accuracy: Accuracy = None) -> None: ...

    return op(opcode, infer=unary(*kinds), stablehlo=stablehlo, traits=Trait.ELEMENTWISE | traits)(signature)


cbrt = _function("cbrt", *FLOATING, stablehlo="cbrt", traits=_DEAR | _STEEP)
cosine = _function("cosine", *INEXACT, stablehlo="cosine", traits=_DEAR)
erf = _function("erf", *FLOATING, traits=_DEAR)
exponential = _function("exponential", *INEXACT, stablehlo="exponential", traits=_DEAR | _STEEP)
exponential_minus_one = _function("exponential-minus-one", *INEXACT, stablehlo="exponential_minus_one", traits=_DEAR | _STEEP)
log = _function("log", *INEXACT, stablehlo="log", traits=_DEAR | _STEEP)
log_plus_one = _function("log-plus-one", *INEXACT, stablehlo="log_plus_one", traits=_DEAR | _STEEP)
logistic = _function("logistic", *INEXACT, stablehlo="logistic", traits=_DEAR)
rsqrt = _function("rsqrt", *INEXACT, stablehlo="rsqrt", traits=_DEAR | _STEEP)
sine = _function("sine", *INEXACT, stablehlo="sine", traits=_DEAR)
sqrt = _function("sqrt", *INEXACT, stablehlo="sqrt", traits=_DEAR | _STEEP)
tan = _function("tan", *INEXACT, stablehlo="tan", traits=_DEAR | _STEEP)
tanh = _function("tanh", *INEXACT, stablehlo="tanh", traits=_DEAR)
# XLA's inference takes real operands only here, but its builder and StableHLO's chlo have complex ones: so have we.
acos = _function("acos", *INEXACT, traits=_STEEP)
acosh = _function("acosh", *INEXACT, traits=_STEEP)
asin = _function("asin", *INEXACT, traits=_STEEP)
asinh = _function("asinh", *INEXACT)
atan = _function("atan", *INEXACT)
atanh = _function("atanh", *INEXACT, traits=_STEEP)
cosh = _function("cosh", *INEXACT)
sinh = _function("sinh", *INEXACT)

abs_ = _unary("abs", infer=unary(*_SIGNED, result=complex_part), stablehlo="abs")
ceil = _unary("ceil", *FLOATING, stablehlo="ceil")
floor = _unary("floor", *FLOATING, stablehlo="floor")
round_nearest_even = _unary("round-nearest-even", *FLOATING, stablehlo="round_nearest_even")
round_nearest_afz = _unary("round-nearest-afz", *FLOATING, stablehlo="round_nearest_afz")
sign = _unary("sign", *_SIGNED, stablehlo="sign")
negate = _unary("negate", *ARITHMETIC, stablehlo="negate")
not_ = _unary("not", *LOGICAL, stablehlo="not")
popcnt = _unary("popcnt", *INTEGRAL, stablehlo="popcnt")
count_leading_zeros = _unary("count-leading-zeros", *INTEGRAL, stablehlo="count_leading_zeros")
is_finite = _unary("is-finite", infer=unary(*FLOATING, result=lambda _: PRED), stablehlo="is_finite")
real = _unary("real", infer=unary(*INEXACT, result=complex_part), stablehlo="real")
imag = _unary("imag", infer=unary(*INEXACT, result=complex_part), stablehlo="imag")


# ------------------------------------------------------------------------------------------- two operands


def _binary(opcode: str, *kinds: Kind, traits: Trait = Trait.NONE) -> str:
    def signature(lhs: Any, rhs: Any) -> None: ...

    return op(opcode, infer=binary(*kinds), stablehlo=opcode.replace("-", "_"), traits=Trait.ELEMENTWISE | traits)(signature)


add = _binary("add", *ANY, traits=_MONOID)
subtract = _binary("subtract", *ARITHMETIC)
multiply = _binary("multiply", *ANY, traits=_MONOID)
divide = _binary("divide", *ARITHMETIC, traits=_STEEP)
remainder = _binary("remainder", *ARITHMETIC[:-1])
maximum = _binary("maximum", *ANY, traits=_MONOID)
minimum = _binary("minimum", *ANY, traits=_MONOID)
power = _binary("power", *ARITHMETIC, traits=_DEAR | _STEEP)
atan2 = _binary("atan2", *INEXACT, traits=_DEAR | _STEEP)
and_ = _binary("and", *LOGICAL, traits=_MONOID)
or_ = _binary("or", *LOGICAL, traits=_MONOID)
xor = _binary("xor", *LOGICAL, traits=_MONOID)
shift_left = _binary("shift-left", *INTEGRAL)
shift_right_arithmetic = _binary("shift-right-arithmetic", *INTEGRAL)
shift_right_logical = _binary("shift-right-logical", *INTEGRAL)
mulhi = _binary("mulhi", *INTEGRAL, traits=Trait.COMMUTATIVE)


@op("complex", infer=complex_shape, stablehlo="complex", traits=Trait.ELEMENTWISE)
def complex_(lhs, rhs): ...
