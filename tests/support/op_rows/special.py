"""Rows of the special functions: XLA runs the programs that they are made of, and its own functions give the values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from support.jax_oracle import evaluated
from support.oracle import HAS_XLA
from xla_torch import ops

from .drawn import Drawn, Row
from .kinds import FLOATS

if HAS_XLA:
    import jax

Values = Callable[[np.random.Generator, list[int]], np.ndarray]


def _normal(width: float) -> Values:
    return lambda rng, dims: rng.normal(size=dims) * width


def _positive(rng: np.random.Generator, dims: list[int]) -> np.ndarray:
    return rng.gamma(2.0, size=dims) + 0.05


def _above_one(rng: np.random.Generator, dims: list[int]) -> np.ndarray:
    return rng.gamma(2.0, size=dims) + 1.1


def _unit(rng: np.random.Generator, dims: list[int]) -> np.ndarray:
    return rng.uniform(0.02, 0.98, dims)


def _both_signs(rng: np.random.Generator, dims: list[int]) -> np.ndarray:
    return rng.uniform(-0.9, 0.9, dims)


def _order(rng: np.random.Generator, dims: list[int]) -> np.ndarray:
    return rng.integers(0, 5, dims)


# function, XLA's own, values of its operands, tolerance of the program against XLA and of the value against XLA's own
FUNCTIONS: list[tuple[str, str, tuple[Values, ...], float, float]] = [
    ("Erfc", "erfc", (_normal(2.0),), 4, 4),
    ("ErfInv", "erf_inv", (_both_signs,), 8, 16),
    ("Lgamma", "lgamma", (_normal(4.0),), 32, 32),
    ("Digamma", "digamma", (_positive,), 32, 32),
    ("BesselI0e", "bessel_i0e", (_normal(8.0),), 8, 8),
    ("BesselI1e", "bessel_i1e", (_normal(8.0),), 8, 8),
    ("Zeta", "zeta", (_above_one, _positive), 8, 8),
    ("Polygamma", "polygamma", (_order, _above_one), 64, 64),
    ("Igamma", "igamma", (_positive, _positive), 64, 128),
    ("Igammac", "igammac", (_positive, _positive), 128, 128),  # 1 - Igamma loses digits; 79 were met in f64
    ("IgammaGradA", "igamma_grad_a", (_positive, _positive), 128, 1024),
    ("RandomGammaGrad", "random_gamma_grad", (_positive, _positive), 128, 1024),
    ("RegularizedIncompleteBeta", "betainc", (_positive, _positive, _unit), 64, 128),
]
COUNTED = ("Igamma", "Igammac", "IgammaGradA", "RandomGammaGrad", "RegularizedIncompleteBeta")


def _builder(name: str, values: tuple[Values, ...]) -> Callable[[Drawn], Any]:
    def build(d: Drawn) -> Any:
        """Scalars beside arrays; loops of a given number of rounds, or until they have converged."""
        dims = d.dims(most=3)
        sizes = [dims, *([] if d.flag() else dims for _ in values[1:])]
        operands = [d.array(size, domain=lambda rng, v=v, size=size: v(rng, size)) for v, size in zip(values, sizes, strict=True)]
        rounds = d.choice(None, 100) if name in COUNTED else None
        return getattr(ops, name)(*operands, **({} if rounds is None else {"iterations": rounds}))

    return build


def _own(name: str) -> Callable[..., list[np.ndarray]]:
    """XLA's own function. Of 16 bits it is F32's, rounded."""

    def reference(*arrays: np.ndarray) -> list[np.ndarray]:
        dtype = arrays[0].dtype
        wide = [np.broadcast_to(a, arrays[0].shape).astype(np.float32 if dtype.itemsize == 2 else dtype) for a in arrays]
        with np.errstate(over="ignore"):
            return [evaluated(getattr(jax.lax, name), *wide).astype(dtype)]

    return reference


ROWS: list[Row] = [
    *(Row(name, _builder(name, values), ("f32", "f64"), ulps=ulps, of_largest=True, variant="as a program")
      for name, _, values, ulps, _ in FUNCTIONS),
    *(Row(name, _builder(name, values), FLOATS, ulps=ulps, of_largest=True, reference=_own(own))
      for name, own, values, _, ulps in FUNCTIONS),
]
