"""How far functions of numbers are from their exact values, which mpmath knows, in units in the last place: ours, torch's own,
and what real XLA makes of the operation for CPUs.

A row of `FUNCTIONS` says where a function is asked: at numbers drawn there, evenly by value and by magnitude, and at the ends.
An exact value that is no normal number of the type is left out, as XLA's CPU code flushes these to 0.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import mpmath
import numpy as np
import torch
from mpmath import mp

from support.agreement import dtype_of
from support.oracle import run_xla
from support.stablehlo_oracle import load_stablehlo
from xla_torch import ops

PAGE = Path(__file__).parents[1] / "documents" / "accuracy.md"
TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32, "f64": torch.float64}
DIGITS = 120
"""Many, as mpmath's zeta is exact to so many places behind the point, and its values are as small as 1e-60."""
POINTS = 240
"""Drawn numbers for each function and type."""

Interval = tuple[float, float]
Of = Callable[..., torch.Tensor]


class Function(NamedTuple):
    """A function, its exact value, and for each operand the interval where it is asked. `operation` is StableHLO's (or CHLO's),
    empty for a documented function that is none of its operations; `torch` torch's own function, if it has one."""

    name: str
    operation: str
    torch: Of | None
    exact: Callable[..., Any]
    domain: tuple[Interval, ...]


def _erf_inverse(x: Any) -> Any:
    return mpmath.erfinv(x) if abs(x) < 1 else mp.inf * x


def _scaled(order: int) -> Callable[[Any], Any]:
    return lambda x: mpmath.exp(-abs(x)) * mpmath.besseli(order, x)


def _upper_gamma(a: Any, x: Any) -> Any:
    return mpmath.gammainc(a, x, mp.inf, regularized=True)


def _lower_gamma(a: Any, x: Any) -> Any:
    return mpmath.gammainc(a, 0, x, regularized=True)


def _logistic(x: Any) -> Any:
    return 1 / (1 + mpmath.exp(-x))


_ALL, _UNIT, _ANGLES, _POSITIVE = (-1e300, 1e300), (-1.0, 1.0), (-1e4, 1e4), (0.0, 1e300)
_special = torch.special

FUNCTIONS = (
    Function("Cbrt", "stablehlo.cbrt", None, lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)), (_ALL,)),
    Function("Cos", "stablehlo.cosine", torch.cos, mpmath.cos, (_ANGLES,)),
    Function("Exp", "stablehlo.exponential", torch.exp, mpmath.exp, ((-700.0, 709.0),)),
    Function("Expm1", "stablehlo.exponential_minus_one", torch.expm1, mpmath.expm1, ((-700.0, 709.0),)),
    Function("Log", "stablehlo.log", torch.log, mpmath.log, (_POSITIVE,)),
    Function("Log1p", "stablehlo.log_plus_one", torch.log1p, mpmath.log1p, ((-1.0, 1e300),)),
    Function("Logistic", "stablehlo.logistic", torch.sigmoid, _logistic, ((-700.0, 700.0),)),
    Function("Rsqrt", "stablehlo.rsqrt", torch.rsqrt, lambda x: 1 / mpmath.sqrt(x), (_POSITIVE,)),
    Function("Sin", "stablehlo.sine", torch.sin, mpmath.sin, (_ANGLES,)),
    Function("Sqrt", "stablehlo.sqrt", torch.sqrt, mpmath.sqrt, (_POSITIVE,)),
    Function("Tan", "stablehlo.tan", torch.tan, mpmath.tan, (_ANGLES,)),
    Function("Tanh", "stablehlo.tanh", torch.tanh, mpmath.tanh, (_ALL,)),
    Function("Acos", "chlo.acos", torch.acos, mpmath.acos, (_UNIT,)),
    Function("Acosh", "chlo.acosh", torch.acosh, mpmath.acosh, ((1.0, 1e300),)),
    Function("Asin", "chlo.asin", torch.asin, mpmath.asin, (_UNIT,)),
    Function("Asinh", "chlo.asinh", torch.asinh, mpmath.asinh, (_ALL,)),
    Function("Atan", "chlo.atan", torch.atan, mpmath.atan, (_ALL,)),
    Function("Atanh", "chlo.atanh", torch.atanh, mpmath.atanh, (_UNIT,)),
    Function("Cosh", "chlo.cosh", torch.cosh, mpmath.cosh, ((-709.0, 709.0),)),
    Function("Sinh", "chlo.sinh", torch.sinh, mpmath.sinh, ((-709.0, 709.0),)),
    Function("Erf", "chlo.erf", torch.erf, mpmath.erf, ((-30.0, 30.0),)),
    Function("Erfc", "chlo.erfc", torch.erfc, mpmath.erfc, ((-6.0, 26.0),)),
    Function("ErfInv", "chlo.erf_inv", torch.erfinv, _erf_inverse, (_UNIT,)),
    Function("Lgamma", "chlo.lgamma", torch.lgamma, lambda x: mpmath.log(abs(mpmath.gamma(x))), ((-20.0, 1e4),)),
    Function("Digamma", "chlo.digamma", torch.digamma, mpmath.digamma, ((-20.0, 1e4),)),
    Function("BesselI0e", "", _special.i0e, _scaled(0), ((-1e4, 1e4),)),
    Function("BesselI1e", "chlo.bessel_i1e", _special.i1e, _scaled(1), ((-1e4, 1e4),)),
    Function("Pow", "stablehlo.power", torch.pow, mpmath.power, ((0.0, 1e3), (-20.0, 20.0))),
    Function("Atan2", "stablehlo.atan2", torch.atan2, mpmath.atan2, (_ALL, _ALL)),
    Function("Div", "stablehlo.divide", torch.div, mpmath.fdiv, (_ALL, _ALL)),
    Function("Rem", "stablehlo.remainder", torch.fmod, lambda x, y: mpmath.sign(x) * (abs(x) % abs(y)), (_ANGLES, (0.1, 10.0))),
    Function("Zeta", "chlo.zeta", _special.zeta, mpmath.zeta, ((1.01, 30.0), (0.1, 100.0))),
    Function("Igamma", "", _special.gammainc, _lower_gamma, ((0.1, 50.0), (0.01, 100.0))),
    Function("Igammac", "", _special.gammaincc, _upper_gamma, ((0.1, 50.0), (0.01, 100.0))),
)


# ------------------------------------------------------------------------------------------------------------- where it is asked


def points(function: Function, kind: str, count: int = POINTS) -> list[np.ndarray]:
    """The operands: the same ones each time; fewer of them are some of them."""
    rng = np.random.default_rng(0)
    drawn = [_drawn(rng, interval, kind) for interval in function.domain]
    if len(drawn) == 1:
        ends = _ends(function.domain[0], kind)
        return [np.concatenate([ends, drawn[0][:count]])]
    return [d[:count] for d in drawn]


def _drawn(rng: np.random.Generator, interval: Interval, kind: str) -> np.ndarray:
    limits, (low, high) = ml_dtypes.finfo(dtype_of(kind)), interval
    low, high = max(low, -float(limits.max)), min(high, float(limits.max))
    by_value = low + rng.random(POINTS) * (high / 2 - low / 2) * 2
    sides = [s * max(-low if s < 0 else high, 0.0) for s in (-1, 1)]
    side = np.where(rng.random(POINTS) < 0.5, *sides) if all(sides) else np.full(POINTS, sum(sides))
    least = max(float(limits.tiny), 1e-30)
    far = np.log(np.abs(side))
    by_magnitude = np.sign(side) * np.exp(far - rng.random(POINTS) * (far - math.log(least)))
    values = np.where(np.arange(POINTS) % 2, by_value, by_magnitude)
    return np.clip(values, low, high).astype(dtype_of(kind))


def _ends(interval: Interval, kind: str) -> np.ndarray:
    """The ends of the interval where they are numbers of the type and their neighbours inside; 1, and near it."""
    dtype = dtype_of(kind)
    eps = float(ml_dtypes.finfo(dtype).eps)
    near = [v for end in (*interval, 1.0, -1.0, 0.5) if abs(end) < 1e4 for v in (end, end + eps, end - eps / 2)]
    inside = np.array(sorted({float(np.array(v).astype(dtype)) for v in near}))
    return inside[(inside >= interval[0]) & (inside <= interval[1])].astype(dtype)


# ------------------------------------------------------------------------------------------------------------- how far it is off


@functools.cache
def _exact(function: Function, kind: str, count: int) -> list[Any]:
    with mpmath.workdps(DIGITS):
        return [_value(function, [float(o) for o in operands]) for operands in zip(*points(function, kind, count), strict=True)]


def _value(function: Function, operands: Sequence[float]) -> Any:
    """None where there is no value, or none that is real."""
    try:
        value = function.exact(*map(mpmath.mpf, operands))
    except (ValueError, ZeroDivisionError):
        return None
    return value if isinstance(value, mpmath.mpf) and mpmath.isfinite(value) else None


def furthest(function: Function, kind: str, got: np.ndarray, count: int = POINTS) -> float:
    """The largest distance of results from the exact values, in units in the last place of these."""
    limits = ml_dtypes.finfo(dtype_of(kind))
    largest, least, worst = float(limits.max), float(limits.tiny), 0.0
    with mpmath.workdps(DIGITS):
        for value, want in zip(got.astype(np.float64), _exact(function, kind, count), strict=True):
            if want is None or not 2 * least <= abs(want) <= largest:
                continue
            if not math.isfinite(value):
                return math.inf
            unit = mpmath.ldexp(float(limits.eps), int(mpmath.floor(mpmath.log(abs(want), 2))))
            worst = max(worst, float(abs(mpmath.mpf(float(value)) - want) / unit))
    return worst


def ours(function: Function, kind: str, count: int = POINTS) -> float:
    return furthest(function, kind, _numpy(getattr(ops, function.name)(*_tensors(function, kind, count)), kind), count)


def of_torch(function: Function, kind: str) -> float | None:
    """None where torch has no such function of the type."""
    if function.torch is None:
        return None
    try:
        return furthest(function, kind, _numpy(function.torch(*_tensors(function, kind, POINTS)), kind))
    except RuntimeError:  # it has no kernel for the type
        return None


def of_xla(function: Function, kind: str) -> float | None:
    """None where the operation is none of StableHLO's."""
    if not function.operation:
        return None
    operands = points(function, kind)
    of = f"tensor<{operands[0].size}x{kind}>"
    names = [f"%p{k}" for k in range(len(operands))]
    given = ", ".join(f"{n}: {of}" for n in names)
    text = (f'func.func @main({given}) -> {of} {{\n %r = "{function.operation}"({", ".join(names)}) : '
            f'({", ".join([of] * len(names))}) -> {of}\n return %r : {of} }}')
    return furthest(function, kind, run_xla(load_stablehlo(text), *operands)[0])


def _tensors(function: Function, kind: str, count: int) -> list[torch.Tensor]:
    return [torch.from_numpy(o.astype(np.float64)).to(TYPES[kind]) for o in points(function, kind, count)]


def _numpy(result: torch.Tensor, kind: str) -> np.ndarray:
    return result.to(torch.float64).numpy().astype(dtype_of(kind))
