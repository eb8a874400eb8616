"""Rows of random numbers: generators bit for bit, distributions by what holds for every draw."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from support.agreement import dtype_of, element_type, special_values
from xla_torch import Shape, ops

from .drawn import Drawn, Row
from .kinds import FLOATS, INTEGERS, INTS, NARROW_FLOATS, NARROW_INTS

OF_BYTES = ("pred", *INTS, *NARROW_FLOATS[:-1], "f8e8m0fnu", *FLOATS)
"""The types for whose width there are unsigned integers."""


def _bits(d: Drawn) -> Any:
    """All algorithms and forms of the state, with counters that go round."""
    algorithm = d.choice("rng_three_fry", "rng_philox", "rng_default")
    words = 2 if algorithm == "rng_three_fry" else d.choice(2, 3)
    near_end = d.flag()

    def state(rng: np.random.Generator) -> np.ndarray:
        last = np.uint64(2**64 - 1)
        return last - rng.integers(0, 3, words, np.uint64) if near_end else rng.integers(0, last, words, np.uint64)

    shape = Shape.array(element_type(d.kind), d.dims(most=3))
    return ops.RngBitGenerator(algorithm, d.array([words], "u64", state), shape)


def _uniform(d: Drawn, by_formula: bool = False) -> Any:
    """Whether all numbers are in the interval."""
    dims = d.dims()
    if by_formula:
        d.expect(lambda *_: [np.full(dims, True)])
    low, high = (d.array([], domain=lambda rng, bound=bound: np.asarray(bound)) for bound in (0, 1))
    drawn = ops.RngUniform(low, high, Shape.array(element_type(d.kind), dims))
    return ops.And(ops.Ge(drawn, low), ops.Lt(drawn, high))


def _uniform_of_one(d: Drawn) -> Any:
    """Intervals that hold one integer."""
    limit = special_values(d.kind).max()
    low = d.array([], domain=lambda rng: rng.integers(0, limit, (), dtype_of(d.kind) if limit > 127 else np.int64))
    dims = d.dims()
    d.expect(lambda low: [np.full(dims, low)])
    return ops.RngUniform(low, ops.Add(low, 1), Shape.array(element_type(d.kind), dims))


def _certain(d: Drawn) -> Any:
    """Without deviation, the mean."""
    deviation = 0.0 if d.flag() else d.constant(0)
    return ops.RngNormal(d.array([], domain="finite"), deviation, Shape.array(element_type(d.kind), d.dims()))


ROWS: list[Row] = [
    Row("RngBitGenerator", _bits, OF_BYTES),
    Row("RngUniform", _uniform, ("s32", "s64", "u32", "u64", *FLOATS)),
    # real XLA on the CPU ends the process for these types
    Row("RngUniform", functools.partial(_uniform, by_formula=True), (*NARROW_INTS, "s8", "s16", "u8", "u16", *NARROW_FLOATS),
        variant="of few bits"),
    Row("RngUniform", _uniform_of_one, INTEGERS, variant="of one integer"),
    Row("RngNormal", _certain, FLOATS, unsigned_zero=True),
]
