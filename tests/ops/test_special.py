# pyright: reportCallIssue=false, reportArgumentType=false
"""Special functions against real XLA, against mathematics where XLA is less accurate, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import xla_torch
from support.agreement import dtype_of
from support.jax_oracle import evaluated
from support.oracle import HAS_XLA, needs_xla, run_xla
from xla_torch import Shape, ops
from xla_torch.errors import InvalidArgument

if HAS_XLA:
    import jax

INF, NAN = math.inf, math.nan
TYPES = ("f16", "bf16", "f32", "f64")


def points(*parts: Any) -> np.ndarray:
    return np.concatenate([np.ravel(p) for p in parts])


NORMAL = np.random.default_rng(0).normal(size=200)
WIDE = points(NORMAL * 3, NORMAL * 20, np.linspace(-1, 1, 64))
POSITIVE = np.exp(NORMAL * 1.5)
ENDS = [0.0, -0.0, 1.0, 2.0, -1.0, -2.0, -1.5, INF, -INF, NAN]

# (ours, JAX's, points, tolerance in units of 2^-24 and 2^-53, relative to results above 1 and absolute below)
UNARY = [
    ("Lgamma", "lgamma", WIDE, 150, 60), ("Digamma", "digamma", WIDE, 150, 60), ("Erfc", "erfc", WIDE, 4, 20),
    ("ErfInv", "erf_inv", np.linspace(-0.99, 0.99, 150), 20, 60), ("BesselI0e", "bessel_i0e", WIDE, 16, 16),
    ("BesselI1e", "bessel_i1e", WIDE, 16, 16),
]

A, X = points(POSITIVE, [20, 300, 300]), points(POSITIVE[::-1], [22, 280, 310])
UNIT = np.random.default_rng(1).uniform(size=A.size)

SEVERAL = [
    ("Igamma", "igamma", (A, X), 1200, 1200), ("Igammac", "igammac", (A, X), 1200, 1200),
    ("IgammaGradA", "igamma_grad_a", (A, X), 1200, 1200), ("RandomGammaGrad", "random_gamma_grad", (A, X), 12000, 12000),
    ("RegularizedIncompleteBeta", "betainc", (POSITIVE, POSITIVE[::-1], UNIT[:200]), 1200, 1200),
    ("Zeta", "zeta", (1.1 + POSITIVE, POSITIVE[::-1]), 60, 60),
    ("Polygamma", "polygamma", (np.arange(200) % 5, 1 + POSITIVE), 60, 60),
]


def program(function: Callable[..., Any], *shapes: str) -> xla_torch.XlaComputation:
    builder = xla_torch.XlaBuilder("program")
    return builder.build(function(*(builder.parameter(k, Shape.parse(s)) for k, s in enumerate(shapes))))


def assert_near(got: np.ndarray, want: np.ndarray, tolerance: float) -> None:
    """NaN and infinities in the same places, the rest relative to results above 1 and absolute below."""
    a, b = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_array_equal(np.isfinite(a), np.isfinite(b))
    np.testing.assert_array_equal(a[~np.isfinite(b)], b[~np.isfinite(b)])
    finite = np.isfinite(b)
    error = np.abs(a[finite] - b[finite]) / np.maximum(np.abs(b[finite]), 1.0)
    assert error.max(initial=0) <= tolerance


def check(name: str, reference: str, given: tuple[np.ndarray, ...], element_type: str, single: float, double: float) -> None:
    """Ours here, ours printed and run by XLA, and XLA's own agree."""
    tolerance = {"f64": double * 2**-53, "f32": single * 2**-24, "f16": 2**-9, "bf16": 2**-6}[element_type]
    arrays = [np.asarray(v).astype(dtype_of(element_type)) for v in given]
    ours = program(getattr(ops, name), *(f"{element_type}[{v.size}]" for v in given))
    got = ours.run_numpy(*arrays)[0]
    assert got.dtype == arrays[0].dtype
    # XLA's own code for 16 bits is F32's, too.
    wide = [a.astype(np.float32) if a.dtype.itemsize == 2 else a for a in arrays]
    with np.errstate(over="ignore"):
        want = evaluated(getattr(jax.lax, reference), *wide).astype(got.dtype)
    assert_near(got, want, tolerance)
    if element_type in ("f32", "f64"):
        assert_near(run_xla(ours.to_hlo_text(), *arrays)[0], want, tolerance)


@needs_xla
@pytest.mark.parametrize("element_type", TYPES)
@pytest.mark.parametrize(("name", "reference", "given", "single", "double"), UNARY, ids=[row[0] for row in UNARY])
def test_functions_of_one(name: str, reference: str, given: np.ndarray, single: float, double: float, element_type: str) -> None:
    if name == "ErfInv" and element_type == "f64":  # XLA's is good to 9 digits near the ends
        given = given[np.abs(given) < 0.9]
    check(name, reference, (given,), element_type, single, double)


@needs_xla
@pytest.mark.parametrize("element_type", TYPES)
@pytest.mark.parametrize(("name", "reference", "given", "single", "double"), SEVERAL, ids=[row[0] for row in SEVERAL])
def test_functions_of_several(name: str, reference: str, given: tuple[np.ndarray, ...], single: float, double: float,
                              element_type: str) -> None:
    if element_type in ("f16", "bf16"):
        given = tuple(v[:100] for v in given)
    check(name, reference, given, element_type, single, double)


# ------------------------------------------------------------------------------------------- special values

PAIRS = ([0, 1, 0, -1, 1, 1, 1, 0, 2, NAN, 0.5], [1, 0, 0, 1, -1, INF, NAN, INF, 2, 1, 0.5])
BETA = ([0, 1, 1, 1, 1, 1, -1, 2, INF, 2, NAN, 0, 2, 1, INF, 0], [1, 0, 1, 1, 1, 1, 1, 3, 1, INF, 1, 0, INF, 1, INF, INF],
        [.5, .5, 0, 1, -.1, 1.1, .5, .3, .5, .5, .5, .5, 1, NAN, .5, .5])
ZETA = ([1, 0.5, 2, 2, 2, 3, 2.5, 2, NAN, 2, 3, 2.5], [2, 1, 0, -1, -1.5, -1.5, -.5, 1, 1, 1e-3, -1, -2])
ORDERS = ([0, 1, 2, 1.5, -1, 1, 3, 0, 0], [1, 1, 2, 2, 1, 0, 20, INF, -1])
SPECIAL = [
    *((name, reference, ([x for x in ENDS if x or name != "Digamma"],)) for name, reference, *_ in UNARY),
    *((name, reference, PAIRS) for name, reference, *_ in SEVERAL[:4]),
    ("RegularizedIncompleteBeta", "betainc", BETA), ("Zeta", "zeta", ZETA), ("Polygamma", "polygamma", ORDERS),
]


@needs_xla
@pytest.mark.parametrize("element_type", ["f32", "f64"])
@pytest.mark.parametrize(("name", "reference", "given"), SPECIAL, ids=[row[0] for row in SPECIAL])
def test_special_values(name: str, reference: str, given: tuple[Any, ...], element_type: str) -> None:
    check(name, reference, tuple(np.array(v, float) for v in given), element_type, 100, 100)


def test_digamma_of_zero_is_that_of_newer_xla() -> None:
    """Of jaxlib 0.12; before it was NaN."""
    assert ops.Digamma(torch.tensor([0.0, -0.0])).tolist() == [-math.inf, -math.inf]


@pytest.mark.parametrize("name", ["ErfInv", "BesselI1e"])
def test_the_sign_of_zero_stays(name: str) -> None:
    assert torch.signbit(getattr(ops, name)(torch.tensor([0.0, -0.0]))).tolist() == [False, True]


# ------------------------------------------------------------------------------------------- against mathematics

EXACT = [
    ("Erfc", [5.0], 1.5374597944280349e-12), ("Erfc", [10.0], 2.0884875837625448e-45), ("Erfc", [26.0], 5.6631924088561428e-296),
    ("ErfInv", [1 - 2.0**-53], 5.8635847487551679), ("ErfInv", [1 - 2.0**-20], 3.4655050258033307),
    ("Lgamma", [100.5], 361.43554046777762), ("Zeta", [3.0, 1.0], 1.2020569031595942),
    ("Igammac", [3.0, 100.0], 1.8976107553682284e-40), ("BesselI0e", [1.0], 0.46575960759364043),
]


@pytest.mark.parametrize(("name", "given", "want"), EXACT)
def test_relative_accuracy(name: str, given: list[float], want: float) -> None:
    got = getattr(ops, name)(*(torch.tensor(v, dtype=torch.float64) for v in given)).item()
    assert abs(got - want) <= 1e-13 * abs(want)


def test_large_shapes_in_single_precision() -> None:
    """Where x^a, exp(-x) and gamma(a) on their own leave no digits to F32."""
    got = ops.Igamma(torch.tensor([2000.0, 2000.0]), torch.tensor([1950.0, 2040.0]))
    want = ops.Igamma(torch.tensor([2000.0, 2000.0], dtype=torch.float64), torch.tensor([1950.0, 2040.0], dtype=torch.float64))
    torch.testing.assert_close(got.double(), want, rtol=3e-5, atol=0)


def test_erf_inv_inverts() -> None:
    x = torch.linspace(-3.0, 3.0, 61, dtype=torch.float64)
    torch.testing.assert_close(ops.ErfInv(torch.erf(x)), x, rtol=1e-11, atol=0)


# ------------------------------------------------------------------------------------------- gradients

def derivative(function: Callable[..., Any], *values: float) -> list[float]:
    """By reverse mode."""
    leaves = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in values]
    return [g.item() for g in torch.autograd.grad(function(*leaves), leaves)]


def slopes(function: Callable[..., Any], *values: float) -> list[float]:
    """By central differences."""
    def at(k: int, step: float) -> float:
        moved = [v + step if j == k else v for j, v in enumerate(values)]
        return function(*(torch.tensor(v, dtype=torch.float64) for v in moved)).item()

    return [(8 * (at(k, 1e-3) - at(k, -1e-3)) - at(k, 2e-3) + at(k, -2e-3)) / 12e-3 for k in range(len(values))]


GRADIENTS = [
    ("Erfc", [(0.3,), (2.5,), (-4.0,), (0.0,)]), ("ErfInv", [(0.0,), (0.2,), (0.9,), (-0.9,)]),
    ("Lgamma", [(1.0,), (2.0,), (7.5,), (0.3,), (-1.7,)]), ("Digamma", [(1.0,), (7.5,), (-1.7,)]),
    ("BesselI0e", [(0.5,), (-3.0,), (20.0,)]), ("BesselI1e", [(0.5,), (-3.0,), (20.0,)]), ("Zeta", [(2.5, 1.5), (4.0, 0.5)]),
]


@pytest.mark.parametrize(("name", "places"), GRADIENTS, ids=[row[0] for row in GRADIENTS])
def test_gradients(name: str, places: list[tuple[float, ...]]) -> None:
    function = getattr(ops, name)
    for place in places:
        np.testing.assert_allclose(derivative(function, *place), slopes(function, *place), rtol=1e-7, atol=1e-9)


LOOPS = [("Igamma", (2.0, 1.5)), ("Igamma", (2.0, 5.0)), ("Igammac", (0.5, 0.3)), ("Igammac", (3.0, 7.0)),
         ("RegularizedIncompleteBeta", (2.0, 3.0, 0.3)), ("RegularizedIncompleteBeta", (2.0, 3.0, 0.8))]


@pytest.mark.parametrize("iterations", [None, 60], ids=["until convergence", "counted"])
@pytest.mark.parametrize(("name", "place"), LOOPS)
def test_loops_differentiate(name: str, place: tuple[float, ...], iterations: int | None) -> None:
    function = getattr(ops, name)
    got = derivative(lambda *v: function(*v, iterations=iterations), *place)
    want = slopes(lambda *v: function(*v, iterations=60), *place)  # smooth, which a loop with a tolerance is not
    np.testing.assert_allclose(got, want, rtol=1e-7 if iterations else 2e-4, atol=1e-9)


def test_derivatives_by_formula() -> None:
    """`IgammaGradA` is what reverse mode finds, and `RandomGammaGrad` keeps P(a, x)."""
    for a, x in ((2.0, 1.5), (0.7, 3.0), (30.0, 31.0)):
        by_a, by_x = derivative(lambda *v: ops.Igamma(*v, iterations=150), a, x)
        at = torch.tensor(a, dtype=torch.float64), torch.tensor(x, dtype=torch.float64)
        np.testing.assert_allclose(ops.IgammaGradA(*at).item(), by_a, rtol=1e-11)
        np.testing.assert_allclose(ops.RandomGammaGrad(*at).item(), -by_a / by_x, rtol=1e-11)


# ------------------------------------------------------------------------------------------- operands


def test_scalars_broadcast() -> None:
    x = torch.tensor([0.5, 1.0, 2.0])
    torch.testing.assert_close(ops.Igamma(2.0, x), ops.Igamma(torch.full((3,), 2.0), x))
    torch.testing.assert_close(ops.Zeta(x=torch.tensor(3.0), q=x), ops.Zeta(torch.full((3,), 3.0), x))


@pytest.mark.parametrize(("name", "shapes", "what"), [
    ("Lgamma", ["s32[2]"], "not floats"), ("Erfc", ["c64[2]"], "not floats"),
    ("Igamma", ["f32[2]", "f64[2]"], "different shapes"),
    ("Zeta", ["f32[2]", "f32[3]"], "different shapes"),
])
def test_refusals(name: str, shapes: list[str], what: str) -> None:
    with pytest.raises(InvalidArgument, match=what):
        program(getattr(ops, name), *shapes)
