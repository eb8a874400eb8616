"""Every differentiable function of jax.nn, jax.numpy, jax.scipy.special and jax.lax: values, and derivatives of first and second
order in both modes, by the ops' rules of imported programs, are JAX's, at drawn and at special points.

`STATED` lists where they are not, with the reason. A few rows run with the fast tests, all of them with the slow ones.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")
import jax
from jax import lax, nn
from jax.scipy import special

import xla_torch
from support.function_rows import ROWS, FunctionRow
from support.function_sweep import Difference, check
from support.jax_oracle import evaluated, program, to_torch
from xla_torch import ops


@dataclasses.dataclass(frozen=True)
class Stated:
    """Why some derivatives of functions differ from JAX's. `most` is in how many elements of one array, `entry points` by which
    entry points (all, if it is empty), `what` of which derivatives."""

    functions: str
    reason: str
    most: int
    entry_points: str = ""
    what: str = ""

    def covers(self, row: FunctionRow, difference: Difference) -> bool:
        return (row.name in self.functions.split() and difference.count <= self.most
                and (not self.entry_points or difference.entry_point == self.entry_points) and (
                    difference.what.partition(" ")[0]) in (
                    self.what.split() or ("vjp", "jvp", "second")))


_JAX_ERRS = "JAX's own derivative is not that of the function: "
_FOLDED = "the converter has computed what depends on constant operands, and the spelling is not that of the function any more: "

STATED: tuple[Stated, ...] = (
    Stated("special.log_ndtr", _JAX_ERRS + "mpmath says -0.99937733 at -40", 1, what="second"),
    Stated("jnp.sinc", _JAX_ERRS + "near 0 a difference of equal numbers over a small one", 3, what="jvp second"),
    Stated("jnp.i0", _JAX_ERRS + "the second derivative at 0 is a half", 2, what="second"),
    Stated("special.i0", _JAX_ERRS + "1 at 0, an even function", 2),
    Stated("special.i1", _JAX_ERRS + "the second derivative at 0 is 0, of an odd function", 3, what="second"),
    Stated("special.i1e lax.bessel_i1e", _JAX_ERRS + "the second derivative is -1 to the right of 0, and 1 to the left", 3,
           what="second"),
    Stated("jnp.logaddexp jnp.logaddexp2", _JAX_ERRS + "where an operand is infinite, the other has no share", 20),
    Stated("special.gammainc_x special.gammaincc_x special.betainc_x", _FOLDED + "exp(a log(x)) has NaN at 0", 2),
    Stated("special.digamma lax.digamma", _JAX_ERRS + "infinite at -infinity, where there is no limit between the poles", 1,
           what="vjp jvp"),
    Stated("special.gammaln lax.lgamma", _JAX_ERRS + "its second, as digamma's", 1, what="second"),
    Stated("special.zeta_2", "XLA computes NaN at infinity, JAX's derivatives go by another series", 1),
    Stated("lax.acosh", _JAX_ERRS + "the other sign for a negative real part", 150),
    Stated("lax.sign", "JAX takes it for constant, and a complex sign turns", 250),
    Stated("lax.abs jnp.absolute", "the kink of a complex absolute value at 0 has no second derivative", 1, what="second"),
)


def unstated(row: FunctionRow, differences: list[Difference]) -> list[str]:
    """The differences from JAX that are not in the list, in words."""
    return [str(d) for d in differences if not any(stated.covers(row, d) for stated in STATED)]


SAMPLE = ("nn.softplus-float64", "jnp.logaddexp-float64", "lax.asin-float64", "lax.exp-complex128", "lax.square-complex128",
          "jnp.power_-2-float64")


@pytest.mark.parametrize("row", [r for r in ROWS if str(r) in SAMPLE], ids=str)
def test_sample(row: FunctionRow) -> None:
    assert not unstated(row, check(row))


@pytest.mark.slow
@pytest.mark.parametrize("row", [r for r in ROWS if str(r) not in SAMPLE], ids=str)
def test_function(row: FunctionRow) -> None:
    assert not unstated(row, check(row))


# ------------------------------------------------------------------------------------------------ what the sweep does not ask


def gradient(computation: xla_torch.XlaComputation, *arguments: np.ndarray) -> list[np.ndarray]:
    return list(xla_torch.vjp(computation, range(len(arguments))).run_numpy(*arguments, np.ones_like(arguments[0])))


def ours(function: object, *arguments: np.ndarray) -> xla_torch.XlaComputation:
    builder = xla_torch.XlaBuilder("own")
    parameters = [builder.parameter(k, xla_torch.Shape.parse(f"f64[{a.size}]")) for k, a in enumerate(arguments)]
    return builder.build(function(*parameters))  # pyright: ignore[reportCallIssue]


A, X = np.array([0.5, 1.0, 3.0, 5.0, 2.5, 1.0, 8.0]), np.array([4.0, 1.5, 1.0, 3.0, 5.0, 4.25, 7.75])
"""At some of them x is (a + 7.5) / 2, where the formula of Igamma changes."""


@pytest.mark.parametrize("name", ["Igamma", pytest.param("Igammac", marks=pytest.mark.slow)])
def test_incomplete_gamma(name: str) -> None:
    """By a and by x, at branch points of the implementation, built, printed and read again."""
    function = getattr(lax, name.lower())
    want = [evaluated(jax.vmap(jax.grad(function, k)), A, X) for k in range(2)]
    built = ours(getattr(ops, name), A, X)
    for computation in (built, xla_torch.parse_hlo(built.to_hlo_text()), program(function, A, X)):
        for got, expected in zip(gradient(computation, A, X), want, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-11)


BETA = [(0.5, 2.0, 0.25), (3.0, 3.0, 0.5), (5.0, 1.5, 0.875), (1.0, 8.0, 0.0625)]


def test_incomplete_beta_by_its_parameters() -> None:
    """JAX has no such gradient: mpmath's differences in 30 digits."""
    mpmath = pytest.importorskip("mpmath")
    points = [np.array(v) for v in zip(*BETA, strict=True)]
    got = gradient(ours(ops.RegularizedIncompleteBeta, *points), *points)

    def value(a, b, x):
        return mpmath.betainc(a, b, 0, x, regularized=True)

    with mpmath.workdps(30):
        for k, order in enumerate([(1, 0, 0), (0, 1, 0), (0, 0, 1)]):
            want = [float(mpmath.diff(value, tuple(map(mpmath.mpf, point)), order)) for point in BETA]
            np.testing.assert_allclose(got[k], want, rtol=1e-10)


@pytest.mark.parametrize("name", ["BesselI0e", pytest.param("BesselI1e", marks=pytest.mark.slow)])
def test_bessel_functions_where_ranges_meet(name: str) -> None:
    points = np.array([-8.0, 8.0, 0.0, -0.0, 7.9999999, 8.0000001])
    reference = lax.bessel_i0e if name == "BesselI0e" else lax.bessel_i1e
    for computation in (ours(getattr(ops, name), points), program(reference, points)):
        np.testing.assert_allclose(gradient(computation, points)[0], evaluated(jax.vmap(jax.grad(reference)), points), rtol=1e-12)


def test_the_second_derivative_of_an_odd_bessel_function_at_0_is_0() -> None:
    """Where JAX says 1: i1 is ``exp(|x|) * i1e(x)``, and the kinks of its factors cancel."""
    points = np.array([0.0, -0.0, 1e-30, -1e-30])
    twice = xla_torch.vjp(xla_torch.vjp(program(special.i1, points), 0), 0)
    np.testing.assert_array_equal(twice.run_numpy(points, np.ones(4), np.ones(4))[0], 0)


def test_in_reducers_loops_branches_batches_and_pickles() -> None:
    """Where a spelling stands in a region, and what is made of a program before it is differentiated."""
    def looped(x):
        return lax.scan(lambda c, _: (nn.softplus(c) - jax.numpy.log(2.0), None), x, None, length=3)[0]

    def chosen(x):
        return lax.cond(x.sum() == 0, nn.softplus, jax.numpy.sin, x)

    zeros = np.zeros(3)
    np.testing.assert_allclose(gradient(program(lax.cumlogsumexp, zeros), zeros)[0], [11 / 6, 5 / 6, 1 / 3])
    np.testing.assert_allclose(gradient(program(looped, zeros), zeros)[0], 0.125)
    np.testing.assert_allclose(gradient(program(chosen, zeros), zeros)[0], 0.5)
    batch = xla_torch.vmap(program(nn.softplus, np.zeros(())), 3)
    np.testing.assert_allclose(gradient(batch, zeros)[0], 0.5)
    derivative = xla_torch.vjp(program(nn.softplus, zeros))
    again = pickle.loads(pickle.dumps(derivative))
    np.testing.assert_allclose(xla_torch.vjp(again, 0).run_numpy(zeros, np.ones(3), np.ones(3))[0], 0.25)
    leaf = to_torch(zeros).requires_grad_()
    program(nn.softplus, zeros)(leaf).sum().backward()
    assert leaf.grad is not None
    np.testing.assert_allclose(leaf.grad.numpy(), 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (2, 3), (23,), (3, 23), (6,)], ids=str)
@pytest.mark.parametrize(("first", "function"), [
    (0.0, nn.softplus), (0.0, nn.relu), (3.0, lambda x: special.fresnel(x)[0]), (0.0, lambda x: special.sici(x)[0]),
    (-1.0, lambda x: special.expi(x + 2.0))])
def test_spellings_in_arrays_of_all_ranks(first: float, function: Callable[..., Any], shape: tuple[int, ...]) -> None:
    """In arrays of one element constants are arrays themselves; coefficients are arrays always, and stacked conditions have a
    dimension before the array's own."""
    points = np.resize([first, 0.0, -3.0, 0.5], shape)
    want = evaluated(lambda x: jax.vjp(function, x)[1](np.ones(shape))[0], points)
    np.testing.assert_allclose(gradient(program(function, points), points)[0], want, rtol=1e-9, atol=1e-12)


def test_a_rule_of_the_users_own_counts_inside_a_spelling() -> None:
    computation = program(nn.softplus, np.zeros(3))
    with xla_torch.register_gradient("log-plus-one", lambda ct, operand: ct * 0):
        np.testing.assert_allclose(gradient(computation, np.ones(3))[0], 1)
    np.testing.assert_allclose(gradient(computation, np.zeros(3))[0], 0.5)
