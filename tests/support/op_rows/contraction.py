"""Rows of the products: dots and convolutions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from support.agreement import dtype_of, element_type
from xla_torch import ops

from .drawn import Drawn, Row
from .kinds import COMPLEX, FLOATS, INTS, NARROW_FLOATS

EXACT = ("s4", "u4", *INTS, *FLOATS, *COMPLEX)
"""Types in which sums of a few small whole numbers are exact in any order."""


def _dot(d: Drawn) -> Any:
    form = d.choice("vectors", "matrix and vector", "matrices", "more dimensions")
    m, k, n = (d.integer(0, 5) for _ in range(3))
    lhs, rhs = {"vectors": ([k], [k]), "matrix and vector": ([m, k], [k]), "matrices": ([m, k], [k, n]),
                "more dimensions": ([m, k, 2], [k, n])}[form]
    return ops.Dot(d.array(lhs, domain="small"), d.array(rhs, domain="small"))


def _dot_of_two_bits(d: Drawn) -> Any:
    """XLA's CPU compiler has no products of 2-bit integers."""
    m, k, n = (d.integer(0, 5) for _ in range(3))
    d.expect(lambda a, b: [(a.astype(np.int8) @ b.astype(np.int8)).astype(a.dtype)])
    return ops.Dot(d.array([m, k]), d.array([k, n]))


class _Sides:
    """Two operands of a dot: batch, contracted and free dimensions in any order."""

    def __init__(self, d: Drawn):
        batch, contracted = d.dims(0, 2), d.dims(0, 2)
        self.dims, self.where = zip(*(self._side(d, batch, contracted, d.dims(0, 1)) for _ in range(2)), strict=True)
        self.batch, self.contracted = len(batch), len(contracted)

    @staticmethod
    def _side(d: Drawn, batch: list[int], contracted: list[int], free: list[int]) -> tuple[list[int], dict[tuple[str, int], int]]:
        labels = [(label, k, n) for label, sizes in (("b", batch), ("c", contracted), ("f", free)) for k, n in enumerate(sizes)]
        order = [labels[k] for k in d.order(len(labels))]
        return [n for _, _, n in order], {(label, k): place for place, (label, k, _) in enumerate(order)}

    def numbers(self) -> ops.DotDimensionNumbers:
        left, right = self.where
        return ops.DotDimensionNumbers(
            lhs_contracting_dimensions=tuple(left["c", k] for k in range(self.contracted)),
            rhs_contracting_dimensions=tuple(right["c", k] for k in range(self.contracted)),
            lhs_batch_dimensions=tuple(left["b", k] for k in range(self.batch)),
            rhs_batch_dimensions=tuple(right["b", k] for k in range(self.batch)))

    def product(self, lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
        """The dot by its definition."""
        numbers: dict[tuple[Any, ...], int] = {}
        left, right = ([numbers.setdefault((*label, side if label[0] == "f" else -1), len(numbers))
                        for label in sorted(where, key=where.__getitem__)] for side, where in enumerate(self.where))
        batch = [numbers["b", k, -1] for k in range(self.batch)]
        free = [n for label, n in sorted(numbers.items(), key=lambda item: item[0][::-1]) if label[0] == "f"]
        return np.einsum(lhs, left, rhs, right, [*batch, *free])


def _dot_general(domain: str) -> Callable[[Drawn], Any]:
    def build(d: Drawn) -> Any:
        sides = _Sides(d)
        lhs, rhs = (d.array(dims, domain=domain) for dims in sides.dims)
        return ops.DotGeneral(lhs, rhs, sides.numbers(), d.choice(None, ["HIGHEST", "HIGHEST"]))
    return build


def _dot_preferring(preferred: str) -> Callable[[Drawn], Any]:
    def build(d: Drawn) -> Any:
        sides = _Sides(d)
        lhs, rhs = (d.array(dims, domain="small") for dims in sides.dims)
        product = ops.DotGeneral(lhs, rhs, sides.numbers(), preferred_element_type=element_type(preferred))
        if element_type(d.kind).bits < 8:
            # XLA's CPU compiler refuses its own conversion of elements that share a byte, in dots that it makes products.
            d.expect(lambda lhs, rhs: [sides.product(lhs.astype(dtype_of(preferred)), rhs.astype(dtype_of(preferred)))])
        return product
    return build


def _ragged_dot(d: Drawn) -> Any:
    """XLA's CPU compiler has none: each group's rows times its own matrix, or each group's share of the contraction."""
    m, k, n, groups = d.integer(1, 5), d.integer(1, 4), d.integer(1, 4), d.integer(1, 3)
    by_rows = d.flag()
    ragged = m if by_rows else k
    sizes = d.array([groups], "s32", lambda rng: rng.multinomial(rng.integers(0, ragged + 1), [1 / groups] * groups))
    numbers = ops.RaggedDotDimensionNumbers(ops.DotDimensionNumbers((1,), (1 if by_rows else 0,)), (0 if by_rows else 1,),
                                            (0,) if by_rows else ())
    lhs, rhs = d.array([m, k], domain="small"), d.array([groups, k, n] if by_rows else [k, n], domain="small")

    def product(counts: np.ndarray, left: np.ndarray, right: np.ndarray) -> list[np.ndarray]:
        group = np.repeat(np.arange(groups + 1), [*counts, ragged - counts.sum()])
        member = group == np.arange(groups)[:, None]
        if by_rows:
            return [np.einsum("gm,mk,gkn->mn", member.astype(left.dtype), left, right)]
        return [np.einsum("gk,mk,kn->gmn", member.astype(left.dtype), left, right)]

    d.expect(product)
    return ops.RaggedDot(lhs, rhs, sizes, numbers)


def _scaled_dot(d: Drawn) -> Any:
    """XLA's CPU compiler has none: the scales are repeated over blocks of the contracted dimension."""
    m, n, blocks, block = d.integer(1, 4), d.integer(1, 4), d.integer(1, 3), d.integer(1, 4)
    k = blocks * block

    def product(lhs: np.ndarray, rhs: np.ndarray, lhs_scale: np.ndarray, rhs_scale: np.ndarray) -> list[np.ndarray]:
        wide = [a.astype(np.float32) for a in (lhs, rhs, np.repeat(lhs_scale, block, 1), np.repeat(rhs_scale, block, 0))]
        return [(wide[0] * wide[2]) @ (wide[1] * wide[3])]

    def scale(dims: list[int]) -> Any:
        return d.array(dims, "f8e8m0fnu", lambda rng: 2.0 ** rng.integers(-2, 3, dims))

    d.expect(product)
    lhs, rhs = d.array([m, k], domain="few"), d.array([k, n], domain="few")
    lhs_scale, rhs_scale = scale([m, blocks]), scale([blocks, n])
    return ops.ScaledDot(lhs, lhs_scale, rhs, rhs_scale, ops.DotDimensionNumbers((1,), (0,)),
                         preferred_element_type=element_type("f32"))


# ------------------------------------------------------------------------------------------------------ convolution


class _Sizes:
    """Sizes of a convolution that fit together."""

    def __init__(self, d: Drawn, spatial: int):
        self.groups = d.integer(1, 3)
        self.of_batch = self.groups > 1 and d.flag()
        inner, outer = d.integer(1, 2), d.integer(1, 2)
        self.image = [d.integer(1, 6) for _ in range(spatial)]
        self.window = [d.integer(1, 3) for _ in range(spatial)]
        self.strides = [d.integer(1, 2) for _ in range(spatial)]
        batch, features = (self.groups, inner) if self.of_batch else (d.integer(1, 2), self.groups * inner)
        self.lhs = [batch, features, *self.image]
        self.rhs = [self.groups * outer, inner, *self.window]
        self.counts = (1, self.groups) if self.of_batch else (self.groups, 1)

    def padding(self, d: Drawn) -> list[tuple[int, int]]:
        return [(d.integer(-1, 2), d.integer(0, 2)) for _ in self.window]


def _conv(d: Drawn) -> Any:
    s = _Sizes(d, d.integer(1, 2))
    return ops.Conv(d.array(s.lhs, domain="small"), d.array(s.rhs, domain="small"), s.strides,
                    d.choice(ops.Padding.SAME, ops.Padding.VALID), *s.counts)


def _conv_with_general_padding(d: Drawn) -> Any:
    s = _Sizes(d, d.integer(1, 2))
    return ops.ConvWithGeneralPadding(d.array(s.lhs, domain="small"), d.array(s.rhs, domain="small"), s.strides, s.padding(d),
                                      *s.counts)


def _placed(d: Drawn, s: _Sizes) -> tuple[Any, Any, Any]:
    """Operands whose dimensions stand in any order, and the numbers that say which."""
    rank = len(s.lhs)
    left, right, out = (d.order(rank) for _ in range(3))
    numbers = ops.ConvolutionDimensionNumbers(
        left.index(0), left.index(1), tuple(left.index(k) for k in range(2, rank)),
        right.index(1), right.index(0), tuple(right.index(k) for k in range(2, rank)),
        out.index(0), out.index(1), tuple(out.index(k) for k in range(2, rank)))
    return d.array([s.lhs[k] for k in left], domain="small"), d.array([s.rhs[k] for k in right], domain="small"), numbers


def _conv_with_general_dimensions(d: Drawn) -> Any:
    s = _Sizes(d, d.integer(1, 2))
    lhs, rhs, numbers = _placed(d, s)
    return ops.ConvWithGeneralDimensions(lhs, rhs, s.strides, d.choice(ops.Padding.SAME, ops.Padding.VALID), numbers, *s.counts)


def _conv_general(d: Drawn) -> Any:
    s = _Sizes(d, d.integer(1, 2))
    lhs, rhs, numbers = _placed(d, s)
    return ops.ConvGeneral(lhs, rhs, s.strides, s.padding(d), numbers, *s.counts)


def _conv_general_dilated(d: Drawn) -> Any:
    s = _Sizes(d, d.integer(1, 3))
    lhs, rhs, numbers = _placed(d, s)
    return ops.ConvGeneralDilated(
        lhs, rhs, s.strides, s.padding(d), [d.integer(1, 2) for _ in s.window], [d.integer(1, 2) for _ in s.window], numbers,
        *s.counts, window_reversal=d.choice(None, [d.flag() for _ in s.window]))


def _conv_preferring(preferred: str) -> Callable[[Drawn], Any]:
    def build(d: Drawn) -> Any:
        s = _Sizes(d, 1)
        return ops.Conv(d.array(s.lhs, domain="small"), d.array(s.rhs, domain="small"), s.strides, ops.Padding.SAME, *s.counts,
                        preferred_element_type=element_type(preferred))
    return build


CONVOLVED = (*INTS, *FLOATS, *COMPLEX)

ROWS: list[Row] = [
    Row("Dot", _dot, ("pred", *EXACT)),
    Row("Dot", _dot_of_two_bits, ("s2", "u2"), variant="of two bits"),
    Row("DotGeneral DotDimensionNumbers", _dot_general("small"), ("pred", *EXACT)),
    Row("DotGeneral", _dot_general("few"), NARROW_FLOATS, variant="narrow"),
    Row("DotGeneral", _dot_general("finite"), ("f32", "f64", *COMPLEX), variant="of any numbers", ulps=8, of_largest=True),
    Row("DotGeneral", _dot_preferring("s32"), ("s8", "u8", "s16", "u16", "s4", "u4"), variant="to s32"),
    Row("DotGeneral", _dot_preferring("f32"), ("f16", "bf16", *NARROW_FLOATS), variant="to f32"),
    Row("RaggedDot RaggedDotDimensionNumbers", _ragged_dot, ("s32", "f32", "f64"), unsigned_zero=True),
    Row("ScaledDot", _scaled_dot, ("f8e4m3fn", "f8e5m2", "f4e2m1fn", "bf16", "f32"), unsigned_zero=True),
    Row("Conv", _conv, CONVOLVED, unsigned_zero=True),
    Row("Conv", _conv_preferring("s32"), ("s8", "u8", "s16"), variant="to s32"),
    Row("Conv", _conv_preferring("f32"), ("f16", "bf16"), variant="to f32", unsigned_zero=True),
    Row("ConvWithGeneralPadding", _conv_with_general_padding, CONVOLVED, unsigned_zero=True),
    Row("ConvWithGeneralDimensions", _conv_with_general_dimensions, CONVOLVED, unsigned_zero=True),
    Row("ConvGeneral", _conv_general, CONVOLVED, unsigned_zero=True),
    Row("ConvGeneralDilated ConvolutionDimensionNumbers", _conv_general_dilated, CONVOLVED, unsigned_zero=True),
]

