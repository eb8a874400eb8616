"""Rows of the elementwise functions of one and of two operands. Formulas decide where XLA's CPU code cannot or does not."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from support.agreement import dtype_of, element_type, special_values
from xla_torch import ops
from xla_torch.hlo.attributes import ResultAccuracy

from .drawn import Drawn, Row, rows_of
from .kinds import ALL, COMPLEX, FLOATS, INTEGERS, NARROW_FLOATS, NARROW_INTS, NUMBERS, REALS, SIGNED_INTEGERS

POWERS = ("f8e8m0fnu",)
"""The type of powers of two: what is not positive becomes NaN there."""
HALVES = ("f16", "bf16")

TWICE = dict.fromkeys(NARROW_FLOATS, "XLA's CPU code computes in f16 and rounds twice")
LOSING = dict.fromkeys(COMPLEX, "XLA's CPU code loses up to 6 bits near zeros of a part")
UNRUN = dict.fromkeys(("f16", "f32", "f64", *COMPLEX), "no CPU code in XLA")


# ------------------------------------------------------------------------------------------- programs


def unary(d: Drawn, function: Callable[..., Any], domain: Any = "any") -> Any:
    return function(d.array(d.dims(), domain=domain))


def _with_accuracy(d: Drawn, function: Callable[..., Any], domain: Any = "any") -> Any:
    """A function with the hint for its accuracy, now and then."""
    accuracy = d.choice(None, ResultAccuracy("highest"), ResultAccuracy("tolerance", 1e-3, 0.0, 2))
    operand = d.array(d.dims(), domain=domain)
    return function(operand) if accuracy is None else function(operand, result_accuracy=accuracy)


def binary(d: Drawn, function: Callable[..., Any], domain: Any = "any") -> Any:
    """Equal ranks with sizes 1 stretched, a scalar beside an array, or a lower rank placed by broadcast_dimensions."""
    dims = d.dims()
    form = d.choice("equal", "scalar", "placed")
    kept = d.some(len(dims)) if form == "placed" else []
    sizes = [n if d.flag() else 1 for n in dims] if form == "equal" else [dims[k] if d.flag() else 1 for k in kept]
    operands = [d.array(dims, domain=domain), d.array(sizes, domain=domain)]
    return function(*(operands[::-1] if d.flag() else operands), **({"broadcast_dimensions": kept} if kept else {}))


def pair(d: Drawn, function: Callable[..., Any]) -> Any:
    """Two operands of one shape, in order: for formulas."""
    dims = d.dims()
    return function(d.array(dims), d.array(dims))


def with_constant(d: Drawn, function: Callable[..., Any], domain: Any = "any") -> Any:
    """A constant or a Python number on either side: these take other ways through lowered programs than arrays. Constants of
    floats are powers of two, for which XLA's own shortcuts are exact; those of s2 are not negative, since XLA's CPU code reads
    -1 and -2 as 3 and 2."""
    kind = element_type(d.kind)
    values = np.array([1, 2, 0.5]) if kind.is_floating or kind.is_complex else special_values(d.kind)
    values = values[values.astype(int) >= 0] if d.kind == "s2" else values
    constant = d.constant(values[d.integer(0, len(values) - 1)]) if d.flag() else 1
    array = d.array(d.dims(), domain=domain)
    return function(array, constant) if d.flag() else function(constant, array)


# ------------------------------------------------------------------------------------------- formulas


def formula(function: Callable[..., np.ndarray]) -> Callable[..., list[np.ndarray]]:
    """A reference from a NumPy function: computed in double precision and rounded once, to the first operand's type."""

    def reference(*arrays: np.ndarray) -> list[np.ndarray]:
        wide = [a.astype(np.complex128 if np.iscomplexobj(a) else np.float64) for a in arrays]
        with np.errstate(all="ignore"):
            result = np.asarray(function(*wide))
            if arrays[0].dtype == dtype_of("f4e2m1fn"):  # it has no NaN: XLA takes -0 for that
                result = np.where(np.isnan(result), -0.0, result)
            return [result.astype(arrays[0].dtype)]

    return reference


def integral(function: Callable[[int, int], int]) -> Callable[..., list[np.ndarray]]:
    """A reference from a function of two Python integers, whose result wraps."""

    def reference(lhs: np.ndarray, rhs: np.ndarray) -> list[np.ndarray]:
        results = [function(int(a), int(b)) & ((1 << 64) - 1) for a, b in zip(lhs.flat, rhs.flat, strict=True)]
        return [np.array(results, np.uint64).astype(lhs.dtype).reshape(lhs.shape)]

    return reference


def _lexicographic(largest: bool) -> Callable[..., list[np.ndarray]]:
    def reference(lhs: np.ndarray, rhs: np.ndarray) -> list[np.ndarray]:
        if largest:
            lhs, rhs = rhs, lhs
        before = (np.real(lhs) < np.real(rhs)) | ((np.real(lhs) == np.real(rhs)) & (np.imag(lhs) <= np.imag(rhs)))
        return [np.where(before, *((rhs, lhs) if largest else (lhs, rhs)))]

    return reference


def _ones(array: np.ndarray) -> list[np.ndarray]:
    bits = _bits_of(array)
    return [np.array([(int(v) & ((1 << bits) - 1)).bit_count() for v in array.flat]).astype(array.dtype).reshape(array.shape)]


def _bits_of(array: np.ndarray) -> int:
    """Width of an integer array's element type."""
    return int(array.dtype.name.removeprefix("u").removeprefix("int"))


def _power(base: int, exponent: int) -> int:
    if exponent >= 0:
        return pow(base, exponent, 1 << 64)
    return 1 if base == 1 else -1 if base == -1 and exponent % 2 else int(base == -1)


_erf = np.vectorize(math.erf, otypes=[np.float64])

# function, formula, tolerance of 16 bits and of f32 and f64
REAL_FUNCTIONS: list[tuple[str, Callable[..., np.ndarray], float, float]] = [
    ("Sqrt", np.sqrt, 0, 1), ("Rsqrt", lambda x: 1 / np.sqrt(x), 1, 2), ("Cbrt", np.cbrt, 1, 2),
    ("Cos", np.cos, 1, 2), ("Sin", np.sin, 1, 2), ("Tan", np.tan, 1, 2), ("Exp", np.exp, 1, 2), ("Expm1", np.expm1, 1, 4),
    ("Log", np.log, 1, 2), ("Log1p", np.log1p, 1, 4), ("Logistic", lambda x: 1 / (1 + np.exp(-x)), 1, 2),
    ("Tanh", np.tanh, 1, 4), ("Erf", _erf, 1, 4),
]
INVERSES: list[tuple[str, Callable[..., np.ndarray]]] = [
    ("Acos", np.arccos), ("Acosh", np.arccosh), ("Asin", np.arcsin), ("Asinh", np.arcsinh), ("Atanh", np.arctanh),
    ("Cosh", np.cosh), ("Sinh", np.sinh),
]
_finite = functools.partial(unary, domain="finite")
_finite_binary = functools.partial(binary, domain="finite")


def _power_of_small(d: Drawn, function: Callable[..., Any]) -> Any:
    """Exponents of which XLA's CPU code takes all bits."""
    def exponents(rng: np.random.Generator) -> np.ndarray:
        return rng.integers(0, 2 if d.kind in NARROW_INTS else 16, dims).astype(dtype_of(d.kind))

    dims = d.dims()
    return function(d.array(dims), d.array(dims, domain=exponents))


ROWS: list[Row] = [
    # one operand
    *rows_of("Abs Sign", unary, (*SIGNED_INTEGERS, *REALS, *POWERS)),
    *rows_of("Abs Sign", _finite, COMPLEX, ulps=4, variant="complex"),
    *rows_of("Ceil Floor Round RoundNearestAfz RoundNearestEven IsFinite", unary, (*REALS, *POWERS)),
    *rows_of("Neg", unary, (*NUMBERS, *COMPLEX, *POWERS)),
    *rows_of("Not LogicalNot", unary, ("pred", *INTEGERS)),
    *rows_of("Clz", unary, INTEGERS),
    *rows_of("PopulationCount", unary, INTEGERS, reference=_ones, disputed={"s4": "XLA's CPU code counts the sign's copies"}),
    *rows_of("Real Imag Conj", unary, (*REALS, *COMPLEX, *POWERS)),
    *rows_of("Square", unary, ("pred", *NUMBERS, *POWERS)),
    *rows_of("Square", unary, COMPLEX, ulps=2, variant="complex"),
    *rows_of("Reciprocal", unary, (*NUMBERS, *POWERS)),
    *rows_of("Reciprocal", _finite, COMPLEX, ulps=4, variant="complex"),
    *(row for name, _, halves, wide in REAL_FUNCTIONS for row in [
        *rows_of(name, _with_accuracy, (*HALVES, *POWERS), ulps=halves, variant="of 16 bits"),
        *rows_of(name, _with_accuracy, ("f32", "f64") if name != "Log1p" else ("f32",), ulps=wide)]),
    *rows_of("Log1p", _with_accuracy, ("f64",), ulps=4, variant="of 64 bits", reference=formula(np.log1p),
             disputed={"f64": "XLA's CPU code is 40 units off here and there"}),
    *(row for name, function, *_ in REAL_FUNCTIONS for row in rows_of(
        name, _with_accuracy, NARROW_FLOATS, variant="of 8 bits", reference=formula(function), disputed=TWICE)),
    *rows_of("Sqrt Rsqrt Exp Expm1", _finite, COMPLEX, ulps=8, variant="complex"),
    *rows_of("Logistic", _finite, COMPLEX, ulps=32, variant="complex"),
    *(row for name, function in (("Sin", np.sin), ("Cos", np.cos), ("Tan", np.tan), ("Tanh", np.tanh), ("Log", np.log),
                                 ("Log1p", np.log1p))
      for row in rows_of(name, _finite, COMPLEX, ulps=8, variant="complex", reference=formula(function), disputed=LOSING)),
    *(row for name, function in INVERSES for row in rows_of(
        name, _with_accuracy, (*REALS, *POWERS), ulps=2, reference=formula(function), disputed=UNRUN | TWICE)),
    *(row for name, function in INVERSES for row in rows_of(
        name, _finite, COMPLEX, ulps=4, variant="complex", reference=formula(function))),
    *rows_of("Atan", _with_accuracy, (*REALS, *POWERS), ulps=2, reference=formula(np.arctan)),
    *rows_of("Atan", _finite, COMPLEX, ulps=4, variant="complex", reference=formula(np.arctan)),
    # two operands
    *rows_of("Add", binary, (*ALL, *POWERS)),
    *rows_of("Mul", binary, ("pred", *NUMBERS, *POWERS)),
    *rows_of("Mul", binary, COMPLEX, ulps=2, variant="complex"),
    *rows_of("Sub", binary, (*NUMBERS, *COMPLEX, *POWERS)),
    *rows_of("Div", binary, INTEGERS),
    *rows_of("Div", pair, (*REALS, *POWERS), variant="of floats"),
    # XLA's CPU code multiplies by the reciprocal of what it broadcasts
    *rows_of("Div", _finite_binary, FLOATS, ulps=1, variant="of floats, broadcast"),
    *rows_of("Div", _finite_binary, COMPLEX, ulps=4, variant="complex"),
    *rows_of("Rem", binary, NUMBERS),
    *rows_of("Rem", pair, POWERS, variant="of powers", reference=formula(np.fmod)),
    *rows_of("Max Min", binary, ("pred", *NUMBERS, *POWERS), unsigned_zero=True),
    *rows_of("Max", pair, COMPLEX, variant="complex", reference=_lexicographic(True)),
    *rows_of("Min", pair, COMPLEX, variant="complex", reference=_lexicographic(False)),
    *rows_of("Pow", binary, FLOATS, ulps=4),
    *rows_of("Pow", pair, NARROW_FLOATS, variant="of 8 bits", reference=formula(np.power), disputed=TWICE),
    *rows_of("Pow", _finite_binary, COMPLEX, ulps=64, variant="complex"),
    *rows_of("Pow", _power_of_small, INTEGERS, variant="of integers"),
    *rows_of("Pow", pair, INTEGERS, variant="of integers to any power", reference=integral(_power)),
    *rows_of("Atan2", binary, (*FLOATS, *POWERS), ulps=4),
    *rows_of("Atan2", pair, NARROW_FLOATS, variant="of 8 bits", reference=formula(np.arctan2), disputed=TWICE),
    *rows_of("Atan2", _finite_binary, COMPLEX, ulps=64, variant="complex"),
    *rows_of("And Or Xor LogicalAnd LogicalOr", binary, ("pred", *INTEGERS)),
    *rows_of("ShiftLeft ShiftRightArithmetic ShiftRightLogical", binary, INTEGERS),
    *rows_of("Complex", binary, ("f32", "f64")),
    Row("Mulhi", lambda d: pair(d, ops.Mulhi), INTEGERS,
        reference=lambda a, b: integral(lambda x, y: x * y >> _bits_of(a))(a, b)),
    # other ways
    *rows_of("Add Mul", with_constant, ("pred", *NUMBERS, *POWERS), variant="with a constant"),
    *rows_of("Sub Div", with_constant, (*NUMBERS, *POWERS), variant="with a constant"),
    *rows_of("Max Min", with_constant, ("pred", *NUMBERS, *POWERS), variant="with a constant", unsigned_zero=True),
    *rows_of("Rem", with_constant, NUMBERS, variant="with a constant"),
    *rows_of("Pow", with_constant, FLOATS, ulps=4, variant="with a constant"),
    *rows_of("Add Sub Mul Div", functools.partial(with_constant, domain="finite"), COMPLEX, ulps=4,
             variant="with a complex constant"),
    *rows_of("And Or Xor", with_constant, ("pred", *INTEGERS), variant="with a constant"),
    *rows_of("ShiftLeft ShiftRightArithmetic ShiftRightLogical", with_constant, INTEGERS, variant="with a constant"),
]
