"""Gradients of elementwise ops, comparisons and conversions: against JAX, and against differences to second order."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

pytest.importorskip("jax")
import jax
import jax.numpy as jnp
from jax import lax

import xla_torch
from support.gradient_checks import Row, built, check_first, check_second, complexes, row, twice, values
from support.oracle import as_older
from xla_torch import ops

X = np.array([-2.3, -0.7, 0.4, 1.9])
POSITIVE = np.array([0.2, 0.9, 1.3, 4.0])
UNIT = np.array([-0.8, -0.3, 0.1, 0.6])
ABOVE_ONE = np.array([1.1, 1.7, 3.0, 9.0])
Z = np.array([0.3 + 0.4j, -1.2 + 0.5j, 0.7 - 1.1j, -0.4 - 0.6j])
Y = np.array([1.5, -0.6, 2.2, -1.1])
W = np.array([-0.2 + 1.3j, 0.6 - 0.7j, 1.4 + 0.3j, -0.9 + 0.8j])
EMPTY = np.zeros((0, 3))

ROWS = [
    *(row("exponential", lax.exp, x) for x in (X, Z)),
    row("exponential", lax.exp, EMPTY, build=ops.Exp, order=0),
    *(row("exponential-minus-one", lax.expm1, x) for x in (X, Z)),
    *(row("log", lax.log, x) for x in (POSITIVE, Z)),
    *(row("log-plus-one", lax.log1p, x) for x in (POSITIVE, UNIT, Z)),
    *(row("logistic", lax.logistic, x, build=ops.Logistic) for x in (X, Z)),
    *(row("sqrt", lax.sqrt, x) for x in (POSITIVE, Z)),
    *(row("rsqrt", lax.rsqrt, x) for x in (POSITIVE, Z)),
    row("cbrt", lax.cbrt, X),
    row("erf", lax.erf, X, build=ops.Erf),
    *(row("sine", lax.sin, x) for x in (X, Z)),
    *(row("cosine", lax.cos, x) for x in (X, Z)),
    *(row("tan", lax.tan, x, build=ops.Tan) for x in (X, Z)),
    *(row("tanh", lax.tanh, x) for x in (X, Z)),
    row("asin", lax.asin, UNIT, build=ops.Asin),
    row("acos", lax.acos, UNIT, build=ops.Acos),
    row("sinh", lax.sinh, X, build=ops.Sinh),
    row("cosh", lax.cosh, X, build=ops.Cosh),
    row("asinh", lax.asinh, X, build=ops.Asinh),
    row("acosh", lax.acosh, ABOVE_ONE, build=ops.Acosh),
    row("atanh", lax.atanh, UNIT, build=ops.Atanh),
    row("atan", lax.atan, X, build=lambda x: x.builder.add("atan", [x])),
    row("atan2", lax.atan2, X, Y),
    *(row("negate", lax.neg, x) for x in (X, Z)),
    *(row("add", lax.add, *xs) for xs in ((X, Y), (Z, W))),
    row("maximum", lax.max, EMPTY, EMPTY, build=ops.Max, order=0),
    *(row("subtract", lax.sub, *xs) for xs in ((X, Y), (Z, W))),
    *(row("multiply", lax.mul, *xs) for xs in ((X, Y), (Z, W))),
    *(row("divide", lax.div, *xs) for xs in ((X, Y), (Z, W))),
    row("remainder", lax.rem, np.array([5.3, -5.3, 5.3, -7.9]), np.array([2.0, 2.0, -1.9, 1.3])),
    row("power", lax.pow, POSITIVE, Y),
    row("power", lax.pow, Z, W),
    row("power", lambda x: lax.pow(x, np.full(4, 3.0)), X),
    row("maximum", lax.max, X, Y),
    row("maximum", lax.max, Z, W, build=ops.Max),
    row("minimum", lax.min, X, Y),
    row("minimum", lax.min, Z, W, build=ops.Min),
    row("select", lax.select, np.array([True, False, True, False]), X, Y),
    row("select", lax.select, True, Z, W),
    row("clamp", lax.clamp, np.full(4, -1.0), X, np.full(4, 1.0)),
    row("clamp", jnp.clip, X, -1.1, 1.2, build=lambda x, low, high: x.builder.add("clamp", [low, x, high])),
    *(row("abs", lax.abs, x) for x in (X, Z)),
    row("sign", lambda z: jnp.where(z == 0, 0, z / lax.abs(z)), Z, build=ops.Sign),
    row("complex", lax.complex, X, Y),
    *(row("real", lax.real, x, build=ops.Real) for x in (Z,)),
    row("imag", lax.imag, Z),
    row("convert", lambda x: lax.convert_element_type(x, np.float64), X.astype(np.float32), order=0, rtol=1e-6),
    row("convert", lambda x: lax.convert_element_type(x, ml_dtypes.bfloat16).astype(np.float32), X.astype(np.float32),
        order=0, rtol=1e-2),
    row("convert", lambda x: lax.convert_element_type(x, np.complex128), X),
    row("reduce-precision", lambda x: lax.reduce_precision(x, 5, 10), X, order=0),
    row("bitcast-convert", lambda x: x, X, order=0, build=lambda x: ops.BitcastConvertType(x, xla_torch.types.F64)),
]


@pytest.mark.parametrize("row", [pytest.param(r, marks=as_older, id=str(r)) if str(r).endswith("imum(c16[4],c16[4])") else r
                                 for r in ROWS], ids=str)  # JAX 0.12 orders no complex numbers
def test_first(row: Row) -> None:
    check_first(row)


@pytest.mark.parametrize("row", twice(ROWS), ids=str)
def test_second(row: Row) -> None:
    check_second(row)


# ------------------------------------------------------------------------------------- the places where rules divide


def gradients(function, *arguments):
    """Ours of the sum of the results; None for an argument without gradient."""
    tensors = [torch.tensor(np.asarray(a), requires_grad=np.asarray(a).dtype.kind in "fc") for a in arguments]
    total = function(*tensors)
    found = torch.autograd.grad(total.sum(), [t for t in tensors if t.requires_grad], allow_unused=True)
    return [g if g is None else g.numpy() for g in found]


def jax_gradients(function, *arguments):
    numbers = tuple(k for k, a in enumerate(arguments) if np.asarray(a).dtype.kind in "fc")
    return [np.asarray(g) for g in jax.grad(lambda *xs: function(*xs).sum(), numbers)(*map(np.asarray, arguments))]


INF, NAN = np.inf, np.nan
SPECIAL = [
    ("max ties", ops.Max, lax.max, [[1.0, 2.0, 0.0], [1.0, 3.0, -0.0]]),
    ("min ties", ops.Min, lax.min, [[1.0, 2.0, 0.0], [1.0, 3.0, -0.0]]),
    ("max of infinities", ops.Max, lax.max, [[INF, -INF], [INF, 1.0]]),
    ("clamp ties", ops.Clamp, lax.clamp, [[-1.0] * 5, [-2.0, -1.0, 0.0, 1.0, 2.0], [1.0] * 5]),
    ("abs at zero", ops.Abs, lax.abs, [[0.0, -0.0, 1.0]]),
    ("complex abs at zero", ops.Abs, lax.abs, [[0j, 3 + 4j]]),
    ("sqrt at zero and infinity", ops.Sqrt, lax.sqrt, [[0.0, INF]]),
    ("rsqrt at zero and infinity", ops.Rsqrt, lax.rsqrt, [[0.0, INF]]),
    ("cbrt at zero", ops.Cbrt, lax.cbrt, [[0.0, 8.0]]),
    ("log at zero", ops.Log, lax.log, [[0.0, INF]]),
    ("log1p at -1", ops.Log1p, lax.log1p, [[-1.0, INF]]),
    ("exp of infinity", ops.Exp, lax.exp, [[-INF, 800.0]]),
    ("saturated tanh", ops.Tanh, lax.tanh, [[40.0, -40.0, INF, -INF]]),
    ("saturated logistic", ops.Logistic, lax.logistic, [[800.0, -800.0, INF, -INF]]),
    ("erf far out", ops.Erf, lax.erf, [[30.0, -INF]]),
    ("divide by infinity and zero", ops.Div, lax.div, [[1.0, 2.0, -3.0], [INF, -INF, 0.0]]),
    ("remainder", ops.Rem, lax.rem, [[5.0, -5.0, 3.0], [INF, 5.0, 1.5]]),
    ("asin at one", ops.Asin, lax.asin, [[1.0, -1.0]]),
    ("acosh at one", ops.Acosh, lax.acosh, [[1.0, INF]]),
    ("asinh of infinity", ops.Asinh, lax.asinh, [[INF, 0.0]]),
    ("atan2 on the axes", ops.Atan2, lax.atan2, [[0.0, 1.0, 0.0], [1.0, 0.0, -1.0]]),
    ("power of zero", ops.Pow, lax.pow, [[0.0, 0.0, 0.0], [1.0, 2.0, 0.5]]),
]


@pytest.mark.parametrize(("ours", "theirs", "arguments"), [s[1:] for s in SPECIAL], ids=[s[0] for s in SPECIAL])
def test_special_values(ours, theirs, arguments) -> None:
    """At ties, zeros and infinities gradients are JAX's, and there is no NaN where JAX has none."""
    for got, want in zip(gradients(ours, *arguments), jax_gradients(theirs, *arguments), strict=True):
        np.testing.assert_allclose(got, np.conj(want), rtol=1e-12)


SECOND = [s for s in SPECIAL if s[0].split()[0] in ("cbrt", "asin", "sqrt", "rsqrt", "saturated", "divide", "log")] + [
    ("erf far out", ops.Erf, lax.erf, [[30.0, -30.0]])]  # at infinity JAX before 0.12 multiplies it by 0


@pytest.mark.parametrize(("ours", "theirs", "arguments"), [s[1:] for s in SECOND], ids=[s[0] for s in SECOND])
def test_special_values_of_second_derivatives(ours, theirs, arguments) -> None:
    def first(*xs):
        return sum(g.sum() for g in jax.grad(lambda *ys: theirs(*ys).sum(), tuple(range(len(xs))))(*xs))

    tensors = [torch.tensor(a, dtype=torch.float64, requires_grad=True) for a in arguments]
    gradients_ = torch.autograd.grad(ours(*tensors).sum(), tensors, create_graph=True)
    found = torch.autograd.grad(torch.stack([g.sum() for g in gradients_]).sum(), tensors)
    for got, want in zip(found, jax_gradients(first, *arguments), strict=True):
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-12)


def test_power_where_both_are_zero() -> None:
    """x^0 is constant in x, also at 0, and 0^y is constant in y for y >= 0; nothing is NaN, to second order."""
    x, y = torch.zeros(1, dtype=torch.float64, requires_grad=True), torch.zeros(1, dtype=torch.float64, requires_grad=True)
    first = torch.autograd.grad(ops.Pow(x, y).sum(), (x, y), create_graph=True)
    assert [g.item() for g in first] == [0.0, 0.0]
    second = torch.autograd.grad(first[0].sum(), x)
    assert second[0].item() == 0.0


def test_powers_of_a_negative_base() -> None:
    """An exponent that is a constant is not differentiated, so that a negative base gives no NaN."""
    x = torch.tensor([-2.0, -0.5], requires_grad=True)
    (found,) = torch.autograd.grad(ops.Pow(x, torch.tensor([3.0, 2.0])).sum(), x)
    torch.testing.assert_close(found, torch.tensor([12.0, -1.0]))


STEPS = [ops.Floor, ops.Ceil, ops.Round, ops.RoundNearestEven, ops.Sign]


@pytest.mark.parametrize("step", STEPS, ids=lambda f: f.__name__)
def test_steps_have_gradient_zero(step) -> None:
    x = torch.tensor([0.3, -1.5, 2.0], requires_grad=True)
    derivative = xla_torch.grad(built(lambda v: ops.Reduce(step(v) + v, 0.0, _add(), [0]), x.detach().numpy()))
    torch.testing.assert_close(derivative(x.detach()), torch.ones(3))


def _add() -> xla_torch.XlaComputation:
    builder = xla_torch.XlaBuilder("add")
    scalar = xla_torch.Shape.array(xla_torch.types.F32)
    return builder.build(builder.parameter(0, scalar) + builder.parameter(1, scalar))


def test_complex_gradients_are_torchs() -> None:
    """The cotangent of f(z) is ct * conj(f'(z)), as torch has it."""
    z = torch.tensor(complexes(5), requires_grad=True)
    w = torch.tensor(complexes(5, seed=3), requires_grad=True)
    ct = torch.tensor(complexes(5, seed=7))
    for ours, theirs in ((ops.Mul, torch.mul), (ops.Div, torch.div), (ops.Atan2, None), (ops.Pow, torch.pow)):
        if theirs is not None:
            got = torch.autograd.grad(ours(z, w), (z, w), ct)
            torch.testing.assert_close(got, torch.autograd.grad(theirs(z, w), (z, w), ct))
    for ours, theirs in ((ops.Exp, torch.exp), (ops.Sign, torch.sgn), (ops.Sqrt, torch.sqrt), (ops.Tanh, torch.tanh)):
        torch.testing.assert_close(torch.autograd.grad(ours(z), z, ct), torch.autograd.grad(theirs(z), z, ct))


def test_operands_of_different_precision() -> None:
    """Each operand's cotangent has that operand's type."""
    derivative = xla_torch.vjp(built(ops.Dot, values(3).astype(np.float32), values(3).astype(ml_dtypes.bfloat16)))
    assert str(derivative.program_shape.result) == "(f32[3], bf16[3])"


# ------------------------------------------------------------------------------------------------------ random numbers


@pytest.mark.parametrize(("function", "fraction"), [
    (ops.RngUniform, lambda out, a, b: ((out - a) / (b - a), lambda u: (1 - u, u))),
    (ops.RngNormal, lambda out, a, b: ((out - a) / b, lambda z: (np.ones_like(z), z))),
], ids=["uniform", "normal"])
def test_random_numbers_move_with_their_distribution(function, fraction) -> None:
    """low + u (high - low) and mu + sigma z, for the u and z that were drawn."""
    low, high = np.float64(-1.0), np.float64(2.5)
    program = built(lambda a, b: function(a, b, xla_torch.Shape.parse("f64[2,3]")), low, high)
    ct = values(2, 3)
    out, by_low, by_high = xla_torch.vjp(program, with_outputs=True).run_numpy(low, high, ct)
    drawn, slopes = fraction(out, low, high)
    for got, slope in zip((by_low, by_high), slopes(drawn), strict=True):
        np.testing.assert_allclose(got, (ct * slope).sum(), rtol=1e-12)


def test_random_numbers_without_a_width() -> None:
    """An empty interval and a deviation of zero have finite gradients."""
    at = np.float64(1.5)
    for function, width in ((ops.RngUniform, at), (ops.RngNormal, np.float64(0.0))):
        program = built(lambda a, b, f=function: f(a, b, xla_torch.Shape.parse("f64[4]")), at, width)
        found = xla_torch.vjp(program).run_numpy(at, width, np.ones(4))
        assert np.isfinite(found).all()
