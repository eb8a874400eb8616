"""Gradients of elementwise functions at zeros, ties, limits and infinities, real and complex: where JAX's are finite, ours are
the same, for the ops and for what JAX makes of them when it lowers them (`select`s of several formulas)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import mpmath
import numpy as np
import pytest
import torch

pytest.importorskip("jax")
import jax
from jax import lax
from jax.scipy import special

import xla_torch
from support.gradient_checks import built
from support.jax_oracle import evaluated, program
from support.oracle import as_older
from xla_torch import ops

REAL = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, np.inf, -np.inf, 1e-3, -1e-3, 1e-300, -1e-300, 1e300,
                 -1e300, 0.3, -0.7, 40.0, -40.0, 800.0, -800.0, 1.5, -2.5])
LEFT, RIGHT = (pairs.reshape(-1) for pairs in np.meshgrid(REAL, REAL))
PARTS = np.array([0.0, 1.0, -1.0, 0.5, -2.25, 3.0, 30.0, -800.0])
COMPLEX = (PARTS[:, None] + 1j * PARTS).reshape(-1)
INSIDE = np.abs(REAL) <= 1
OFF_AXES = COMPLEX[(COMPLEX.real != 0) & (COMPLEX.imag != 0) & (np.abs(COMPLEX.real) != np.abs(COMPLEX.imag))]
"""Where the lowered complex functions choose no formula for one point or line only, which has no slope of its own."""

UNARY: dict[str, Callable[..., Any] | None] = {
    "exp": ops.Exp, "exp2": None, "expm1": ops.Expm1, "log": ops.Log, "log1p": ops.Log1p, "logistic": ops.Logistic,
    "tanh": ops.Tanh, "sin": ops.Sin, "cos": ops.Cos, "tan": ops.Tan, "asin": ops.Asin, "acos": ops.Acos, "atan": ops.Atan,
    "sinh": ops.Sinh, "cosh": ops.Cosh, "asinh": ops.Asinh, "acosh": ops.Acosh, "atanh": ops.Atanh, "sqrt": ops.Sqrt,
    "rsqrt": ops.Rsqrt, "cbrt": ops.Cbrt, "erf": ops.Erf, "erfc": ops.Erfc, "erf_inv": ops.ErfInv, "lgamma": ops.Lgamma,
    "digamma": ops.Digamma, "bessel_i0e": ops.BesselI0e, "bessel_i1e": ops.BesselI1e, "abs": ops.Abs, "sign": ops.Sign,
    "floor": ops.Floor, "ceil": ops.Ceil, "round": ops.Round, "square": ops.Square,
    "neg": ops.Neg, "conj": ops.Conj,
}
BINARY = {"add": ops.Add, "sub": ops.Sub, "mul": ops.Mul, "div": ops.Div, "rem": ops.Rem, "pow": ops.Pow, "atan2": ops.Atan2,
          "max": ops.Max, "min": ops.Min, "complex": ops.Complex}
OF_COMPLEX = {name: op for name, op in UNARY.items() if name not in (
    "acosh", "sign", "cbrt", "floor", "ceil", "round") and not name.startswith(("erf", "lgamma", "digamma", "bessel"))}
OF_COMPLEX |= {"real": ops.Real, "imag": ops.Imag}
"""Not acosh, whose gradient in JAX has the other sign for a negative real part, nor sign, whose gradient JAX takes for zero."""

OUTSIDE = {"atanh": INSIDE, "acosh": REAL >= 1}
"""Where lowered functions are asked: outside their domain, where they are NaN, they are a constant."""

KINKS = {"bessel_i0e": REAL != 0}
"""Where functions have no derivative, and JAX, of whose own rule a lowered program shows nothing, takes another number between
those of both sides."""


def gradients(computation: xla_torch.XlaComputation, *arguments: np.ndarray) -> list[np.ndarray]:
    """Ours, for cotangents of one."""
    shape = computation.program_shape.result
    return list(xla_torch.vjp(computation).run_numpy(*arguments, np.ones(shape.dimensions, shape.element_type.numpy)))


def wanted(function: Callable[..., Any], *arguments: np.ndarray) -> list[np.ndarray]:
    def of_ones(*primals: Any) -> Any:
        result, pull = jax.vjp(function, *primals)
        return pull(jax.numpy.ones(result.shape, result.dtype))

    return list(map(np.conj, evaluated(of_ones, *arguments)))


def agree(found: list[np.ndarray], want: list[np.ndarray], at: np.ndarray | None = None) -> None:
    """Where JAX's gradients are finite, ours are those."""
    for got, expected in zip(found, want, strict=True):
        asked = np.isfinite(expected) if at is None else np.isfinite(expected) & at
        np.testing.assert_allclose(got[asked], expected[asked], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", UNARY)
def test_real(name: str) -> None:
    function, op = getattr(lax, name), UNARY[name]
    want = wanted(function, REAL)
    agree(gradients(program(function, REAL), REAL), want, OUTSIDE.get(name, KINKS.get(name)))
    if op is not None:
        agree(gradients(built(op, REAL), REAL), want)


@pytest.mark.parametrize("name", [pytest.param(n, marks=as_older) if n == "asinh" else n for n in OF_COMPLEX])  # on its cut
def test_complex(name: str) -> None:
    function, op = getattr(lax, name), OF_COMPLEX[name]
    agree(gradients(program(function, OFF_AXES), OFF_AXES), wanted(function, OFF_AXES))
    if op is not None:
        agree(gradients(built(op, COMPLEX), COMPLEX), wanted(function, COMPLEX))


@pytest.mark.parametrize("name", BINARY)
def test_pairs(name: str) -> None:
    want = wanted(getattr(lax, name), LEFT, RIGHT)
    agree(gradients(built(BINARY[name], LEFT, RIGHT), LEFT, RIGHT), want)
    agree(gradients(program(getattr(lax, name), LEFT, RIGHT), LEFT, RIGHT), want)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "pow"])
def test_complex_pairs(name: str) -> None:
    left, right = (np.random.default_rng(seed).choice(COMPLEX, 200) for seed in range(2))
    agree(gradients(built(BINARY[name], left, right), left, right), wanted(getattr(lax, name), left, right))


@pytest.mark.parametrize("exponent", [-2, -1, 0, 1, 2, 3, 5])
def test_integer_powers(exponent: int) -> None:
    """As one op with an exponent that is a constant, and as JAX's products."""
    want = wanted(lambda x: lax.integer_pow(x, exponent), REAL)
    agree(gradients(program(lambda x: lax.integer_pow(x, exponent), REAL), REAL), want)
    agree(gradients(built(lambda x: ops.Pow(x, float(exponent)), REAL), REAL), want)


@pytest.mark.parametrize("exponent", [-2, -3, -5])
def test_negative_powers(exponent: int) -> None:
    """Of which JAX makes the reciprocal of a product: infinite at 0 and not NaN, to second order, complex, and under a select."""
    def power(x):
        return lax.integer_pow(x, exponent)

    (zeros,) = gradients(program(power, REAL[:2]), REAL[:2])
    np.testing.assert_array_equal(zeros, wanted(power, REAL[:2])[0])
    agree(gradients(program(power, OFF_AXES), OFF_AXES), wanted(power, OFF_AXES))
    ones = np.ones(REAL.shape)
    agree(list(xla_torch.vjp(xla_torch.vjp(program(power, REAL), 0), 0).run_numpy(REAL, ones, ones)),
          [evaluated(jax.vmap(jax.grad(jax.grad(power))), REAL)])
    chosen = program(lambda x: jax.numpy.where(x == 0, 7.0, power(x)), REAL)
    assert (gradients(chosen, REAL)[0][:2] == 0).all()


def test_a_formula_that_was_not_chosen_makes_no_nan() -> None:
    """A select between formulas of which one has an infinite slope: in the first derivative and in the second."""
    x = np.array([0.0, 1.0, 4.0, -1.0])

    def root_or_square(x: xla_torch.XlaOp) -> xla_torch.XlaOp:
        root = ops.Sqrt(x)
        return ops.Select(ops.Gt(x, 0.0), root * ops.Log(root) + 1.0 / x, x * x)

    derivative = xla_torch.vjp(built(root_or_square, x))
    (first,) = derivative.run_numpy(x, np.ones(4))
    np.testing.assert_allclose(first, [0.0, -0.5, 0.25 * (np.log(2) + 1) - 1 / 16, -2.0])
    twice = xla_torch.vjp(derivative)
    assert np.isfinite(twice.run_numpy(x, np.ones(4), np.ones(4))[0]).all()


def test_masks_cost_nothing() -> None:
    """The select moves behind what the cotangent is multiplied by: there is still one."""
    text = xla_torch.vjp(built(lambda x: ops.Select(ops.Gt(x, 0.0), ops.Exp(ops.Sin(x)), x.builder.constant(np.zeros(3))),
                               np.zeros(3))).to_hlo_text()
    assert text.count(" select(") == 1


# ------------------------------------------------------------------------------------------- loops and calls that were not chosen

SIDES = np.array([-2.0, 0.0, 4.0, 9.0])


def _roots(x):
    """The eighth root, NaN on the left."""
    return lax.fori_loop(0, 3, lambda _, y: lax.sqrt(y), x)


def _roots_until_small(x):
    """Roots of each element until it is small, a varying number: NaN on the left, infinite slope at 0."""
    def step(y):
        return jax.numpy.where(y > 1.8, lax.sqrt(y), y)

    return lax.while_loop(lambda y: (y > 1.8).any(), step, lax.sqrt(x))


def _roots_in_loops(x):
    return lax.fori_loop(0, 2, lambda _, y: lax.fori_loop(0, 2, lambda _, z: lax.sqrt(z), y), x)


def _log_gamma(x):
    return lax.lgamma(jax.numpy.maximum(x, 0.0) * 1.0)


def _power_slope(power: float) -> np.ndarray:
    right = np.where(SIDES > 0, SIDES, 1.0)
    return np.where(SIDES > 0, power * right ** (power - 1.0), 2.0)


@pytest.mark.parametrize(("function", "want"), [
    (_roots, _power_slope(1 / 8)), (_roots_in_loops, _power_slope(1 / 16)), (_roots_until_small, _power_slope(1 / 4)),
    (_log_gamma, np.array([2.0, 2.0, 1.2561176684318005, 2.1406414779556097])),
])
def test_what_was_not_chosen_leaves_no_trace(function: Callable[..., Any], want: np.ndarray) -> None:
    """The derivative of ``f(x)`` on the right and ``2 x`` on the left, where f and its slope are NaN or infinite."""
    chosen = program(lambda x: jax.numpy.where(x > 0, function(x), 2 * x), SIDES)
    np.testing.assert_allclose(gradients(chosen, SIDES)[0], want, rtol=1e-12)


def _mirrored(x):
    return lax.fori_loop(0, 2, lambda _, y: y + y[::-1], x)


def _summed(x):
    return lax.fori_loop(0, 2, lambda _, y: y + y.sum(), x)


def _scaled_by_a_sum(x):
    return lax.fori_loop(0, 2, lambda _, c: (c[0] * c[1], c[0].sum() + c[1]), (x, 1.0))[0]


@pytest.mark.parametrize("function", [_mirrored, _summed, _scaled_by_a_sum])
def test_what_was_not_chosen_counts_for_other_places(function: Callable[..., Any]) -> None:
    """Loops in which elements depend on those at other places: an element that was not chosen has a gradient by these."""
    def chosen(x):
        return jax.numpy.where(x > 0, function(x), 0.0)

    np.testing.assert_allclose(gradients(program(chosen, SIDES), SIDES)[0], wanted(chosen, SIDES)[0], rtol=1e-12)


# ------------------------------------------------------------------------------------------------ against mathematics

LEFT_HALF = [-16.5, -10.5, -9.7, -300.3, -1e-3, -0.5, 0.25, 0.5, 3.0, 30.0]


def _polygammas(order: int) -> list[float]:
    return [float(mpmath.polygamma(order, x)) for x in LEFT_HALF]


@pytest.mark.parametrize(("function", "points", "order", "want"), [
    (ops.Digamma, LEFT_HALF, 1, _polygammas(1)), (ops.Digamma, LEFT_HALF, 2, _polygammas(2)),
    (ops.Lgamma, LEFT_HALF, 1, _polygammas(0)), (ops.Lgamma, LEFT_HALF, 2, _polygammas(1)),
    *((functools.partial(ops.Polygamma, float(n)), LEFT_HALF, 1, _polygammas(n + 1)) for n in (1, 2, 3)),  # pyright: ignore
    (ops.BesselI1e, [1e-300, 1e-8, -1e-8], 2, [-1.0, -0.99999998125, 0.99999998125]),
    (ops.Digamma, [0.0, -1.0, -10.0], 1, [np.inf] * 3),  # poles, on both sides of which the slope grows without end
])
def test_derivatives_are_true(function: Callable[..., Any], points: list[float], order: int, want: list[float]) -> None:
    """Also where XLA's value of the function that is the derivative, a sum for arguments above -10, is wrong."""
    x = np.array(points)
    derivative, given = built(function, x), [x]
    for _ in range(order):
        derivative, given = xla_torch.vjp(derivative, 0), [*given, np.ones(x.shape)]
    np.testing.assert_allclose(derivative.run_numpy(*given)[0], want, rtol=1e-9)


def test_derivatives_near_zero_keep_their_digits() -> None:
    """Of the sine integral to second order, and of logit to first order, where x^2 vanishes."""
    x = np.array([1e-300, 1e-8, -1e-8])
    twice = xla_torch.vjp(xla_torch.vjp(program(lambda x: special.sici(x)[0], x)), 0)
    np.testing.assert_allclose(twice.run_numpy(x, np.ones(3), np.ones(3))[0], -x / 3, rtol=1e-9)
    np.testing.assert_allclose(gradients(program(special.logit, x[:1]), x[:1])[0], [1e300], rtol=1e-12)


def test_equal_bounds_of_a_clamp_have_the_cotangent() -> None:
    """Where both bounds are the same value, the result is that value."""
    low, x = np.array([0.5, 0.5, 0.5]), np.array([-1.0, 0.5, 2.0])
    clamp = built(lambda low, x: ops.Clamp(low, x, low), low, x)
    by_low, by_x = gradients(clamp, low, x)
    np.testing.assert_array_equal([by_low, by_x], [[1, 1, 1], [0, 0, 0]])
    np.testing.assert_array_equal(xla_torch.jvp(clamp, [0]).run_numpy(low, x, np.ones(3))[-1], [1, 1, 1])


def test_positions_in_floats_tell_where_elements_came_from() -> None:
    """A sort, and a reduction, with positions that are floats."""
    x = np.array([3.0, 1.0, 2.0])

    def sorted_with_positions(x: jax.Array) -> jax.Array:
        first, second = lax.sort((x, jax.numpy.arange(3.0)), num_keys=1)
        return first * jax.numpy.arange(1.0, 4.0) + second

    def largest_with_its_position(x: jax.Array) -> jax.Array:
        def larger(a, b):
            return jax.numpy.where(a[0] >= b[0], a[0], b[0]), jax.numpy.where(a[0] >= b[0], a[1], b[1])

        return lax.reduce((x, jax.numpy.arange(3.0)), (-np.inf, 0.0), larger, (0,))[0]

    np.testing.assert_array_equal(gradients(program(sorted_with_positions, x), x)[0], [3, 1, 2])
    np.testing.assert_array_equal(gradients(program(largest_with_its_position, x), x)[0], [1, 0, 0])


def test_the_angle_of_small_and_large_sides() -> None:
    """Squares of the sides neither vanish nor overflow."""
    y, x = np.array([0.0, 1e-300, 1e300, 1.0, -3.0, 2e-200]), np.array([1e-300, 1e-300, 1e300, 1e300, 4.0, -1e-200])
    by_y, by_x = gradients(built(ops.Atan2, y, x), y, x)
    np.testing.assert_allclose(by_y, [1e300, 5e299, 5e-301, 1e-300, 4 / 25, -2e199], rtol=1e-12)
    np.testing.assert_allclose(by_x, [0.0, -5e299, -5e-301, 0.0, 3 / 25, -4e199], rtol=1e-12)


def test_values_of_polygamma_are_xla_s() -> None:
    """Wrong left of -10; only its gradient is not."""
    value = ops.Polygamma(torch.ones((), dtype=torch.float64), torch.tensor(-16.5, dtype=torch.float64))
    assert abs(value.item() - float(mpmath.polygamma(1, -16.5))) > 1


# ------------------------------------------------------------------------------------------------ NaN among what is compared

NANS = np.array([1.0, 2.0, np.nan, 2.0])


def _scattered(array, updates):
    return array.at[jax.numpy.array([0, 0, 1])].max(updates)


@pytest.mark.parametrize(("function", "arguments"), [
    (jax.numpy.max, [NANS]), (jax.numpy.min, [NANS]), (lambda x: jax.numpy.max(x, 0), [NANS.reshape(2, 2)]),
    (jax.numpy.max, [np.array([np.nan, np.nan, 1.0])]), (jax.numpy.maximum, [NANS, NANS[::-1].copy()]), (lax.cummax, [NANS]),
    (lambda x: x[jax.numpy.argmax(x)], [NANS]), (lambda x: lax.clamp(0.0, x, 1.5), [NANS]), (jax.numpy.sort, [NANS]),
    (lambda x: lax.top_k(x, 2)[0], [NANS]), (_scattered, [NANS, NANS[:3]]), (jax.nn.logsumexp, [NANS]),
    (lambda x: lax.reduce_window(x, -np.inf, lax.max, (2,), (1,), "VALID"), [NANS]), (jax.numpy.prod, [NANS]),
    (lambda x: lax.reduce_window(x, -np.inf, lax.max, (2,), (2,), "VALID"), [NANS]), (jax.nn.softmax, [NANS]),
])
def test_nan_goes_where_jax_has_it(function: Callable[..., Any], arguments: list[np.ndarray]) -> None:
    """A reduction has NaN for all elements; a selection has a cotangent for what it selects, and none for what it does not. JAX
    is asked op by op: compiled, XLA makes a select of its product of 0 with infinity, and the NaN is gone."""
    computation = program(function, *arguments)
    result, pull = jax.vjp(function, *map(jax.numpy.asarray, arguments))
    want = list(map(np.asarray, pull(jax.numpy.ones_like(result))))
    for got, expected in zip(gradients(computation, *arguments), want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12)
    leaves = [torch.from_numpy(a.copy()).requires_grad_() for a in arguments]
    for got, expected in zip(torch.autograd.grad(computation(*leaves).sum(), leaves), want, strict=True):
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-12)


def test_a_maximum_of_nan_is_torch_s() -> None:
    """amax has NaN for all elements, too; an init value among them."""
    x = torch.tensor([1.0, 2.0, np.nan], requires_grad=True)
    want = torch.autograd.grad(torch.amax(x, 0), x)[0]
    found = torch.autograd.grad(program(jax.numpy.max, np.ones(3, np.float32))(x), x)[0]
    torch.testing.assert_close(found, want, equal_nan=True)
    assert want.isnan().all()


@pytest.mark.parametrize(("operation", "want"), [
    ("f4e2m1fn[] reduce(x, zero), dimensions={0}, to_apply=larger", [0, 1, 0]),
    ("f4e2m1fn[1] reduce-window(x, zero), window={size=3}, to_apply=larger", [0, 1, 0]),
    ("f4e2m1fn[3] scatter(x, at, update), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
     "index_vector_dim=1, to_apply=larger", [0, 1, 1]),
    ("f4e2m1fn[3] all-reduce(x), to_apply=larger", [1, 1, 1])], ids=lambda case: str(case).partition("(")[0])
def test_a_maximum_of_a_type_without_nan_has_a_gradient(operation: str, want: list[float]) -> None:
    """It writes no NaN, which other types have where the maximum is NaN."""
    program = xla_torch.parse_hlo(f"""HloModule m
larger {{
  a = f4e2m1fn[] parameter(0)
  b = f4e2m1fn[] parameter(1)
  ROOT r = f4e2m1fn[] maximum(a, b)
}}
ENTRY e {{
  x = f4e2m1fn[3] parameter(0)
  zero = f4e2m1fn[] constant(0)
  at = s32[1,1] constant({{{{0}}}})
  update = f4e2m1fn[1] constant({{2}})
  ROOT r = {operation}
}}""")
    x = np.array([1, 3, 0.5], ml_dtypes.float4_e2m1fn)
    ones = np.ones(program.program_shape.result.dimensions, x.dtype)
    found, = xla_torch.vjp(program).run_numpy(x, ones)
    assert found.astype(float).tolist() == want
