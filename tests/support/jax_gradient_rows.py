"""JAX functions on drawn shapes and attributes, of which `jax.vjp` says the gradient: rows of `test_drawn_gradients.py`.

A row's `draw` gives the function and its arguments. Values have ties and zeros where gradients depend on them, indices are out
of bounds as often as inside.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

from support.gradient_checks import smooth_values
from support.op_rows import Drawn
from support.op_rows.contraction import _Sides as Sides
from support.op_rows.contraction import _Sizes as Sizes
from support.op_rows.indexing import _Numbers as Numbers

Example = tuple[Callable[..., Any], list[np.ndarray]]


@dataclasses.dataclass(frozen=True)
class JaxRow:
    """A name, what draws an example, and the relative tolerance."""

    name: str
    draw: Callable[[Drawn], Example]
    rtol: float = 1e-9
    on_xla: bool = True
    """Whether real XLA runs the backward program."""


def _values(d: Drawn, dims: list[int], number: int = 0) -> np.ndarray:
    """Distinct values, complex or not."""
    return smooth_values(dims, d.kind == "c128", d.seed % 7 + number)


def _ties(d: Drawn, dims: list[int], number: int = 0) -> np.ndarray:
    """Few different values, zeros among them."""
    return np.random.default_rng(d.seed + number).integers(-2, 3, dims).astype(float)


# ------------------------------------------------------------------------------------------------------- movement


def _pad(d: Drawn) -> Example:
    dims = d.dims(0, 3)
    config = []
    for n in dims:
        interior = d.integer(0, 2)
        inside = n + max(n - 1, 0) * interior
        low = d.integer(-min(inside, 3), 3)
        config.append((low, d.integer(-min(inside + low, 3), 3), interior))
    return lambda x, v: lax.pad(x, v, config), [_values(d, dims), _values(d, [], 1)]


def _moved(d: Drawn) -> Example:
    """One op after another: transposed, reversed, cut with strides, broadcast."""
    dims = d.dims(1, 3)
    order, turned = d.order(len(dims)), d.some(len(dims))
    starts = [d.integer(0, dims[k]) for k in order]
    limits = [d.integer(s, dims[k]) for s, k in zip(starts, order, strict=True)]
    strides = [d.integer(1, 3) for _ in dims]

    def function(x: Any) -> Any:
        cut = lax.slice(lax.rev(lax.transpose(x, order), turned), starts, limits, strides)
        return lax.broadcast_in_dim(cut, (2, *cut.shape), tuple(range(1, cut.ndim + 1)))
    return function, [_values(d, dims)]


def _concatenated(d: Drawn) -> Example:
    dims = d.dims(1, 3)
    at = d.integer(0, len(dims) - 1)
    parts = [_values(d, [*dims[:at], d.integer(0, 3), *dims[at + 1:]], k) for k in range(d.integer(1, 3))]
    return lambda *xs: lax.concatenate(xs, at), parts


def _dynamic_slice(d: Drawn) -> Example:
    dims = d.dims(1, 3)
    starts = [np.int32(d.integer(-3, 6)) for _ in dims]
    sizes = [d.integer(0, n) for n in dims]
    return lambda x, *at: lax.dynamic_slice(x, at, sizes), [_values(d, dims), *map(np.asarray, starts)]


def _dynamic_update_slice(d: Drawn) -> Example:
    dims = d.dims(1, 3)
    starts = [np.int32(d.integer(-3, 6)) for _ in dims]
    return (lambda x, u, *at: lax.dynamic_update_slice(x, u, at),
            [_values(d, dims), _values(d, [d.integer(0, n) for n in dims], 1), *map(np.asarray, starts)])


# --------------------------------------------------------------------------------------------- gather and scatter


def _indices(d: Drawn, n: Numbers) -> tuple[np.ndarray, tuple[int, ...]]:
    """Indices with their vectors in the last dimension, as JAX has them, and where the batching dimensions are then."""
    indices = np.random.default_rng(d.seed).integers(-2, 6, n.index_dims).astype(np.int32)
    at = n.index_vector_dim
    whole = indices[..., None] if at == indices.ndim else np.moveaxis(indices, at, -1)
    return whole, tuple(k - (k > at) for k in n.index_batching)


def _gather(d: Drawn) -> Example:
    n = Numbers(d)
    indices, batching = _indices(d, n)
    numbers = lax.GatherDimensionNumbers(tuple(n.offsets), tuple(n.left_out), tuple(n.indexed), tuple(n.batching), batching)
    mode = d.choice("clip", "fill")
    return (lambda x, i: lax.gather(x, i, numbers, tuple(n.sizes), mode=mode, fill_value=0)), [_values(d, n.dims), indices]


def _scatter(function: Callable[..., Any], values: Callable[..., np.ndarray], unique: bool = False,
             modes: tuple[str, ...] = ("clip", "drop")) -> Callable[[Drawn], Example]:
    def draw(d: Drawn) -> Example:
        n = Numbers(d)
        if unique:  # of one update only it is true
            n.index_dims = [1 if k != n.index_vector_dim and k not in n.index_batching else s for k, s in enumerate(n.index_dims)]
            n.batch = [s for k, s in enumerate(n.index_dims) if k != n.index_vector_dim]
        indices, batching = _indices(d, n)
        numbers = lax.ScatterDimensionNumbers(tuple(n.offsets), tuple(n.left_out), tuple(n.indexed), tuple(n.batching), batching)
        mode = d.choice(*modes)
        return (lambda x, i, u: function(x, i, u, numbers, unique_indices=unique, mode=mode),
                [values(d, n.dims), indices, values(d, n.result, 1)])
    return draw


# ------------------------------------------------------------------------------------------------------- products


def _dot(d: Drawn) -> Example:
    sides = Sides(d)
    n = sides.numbers()
    numbers = ((n.lhs_contracting_dimensions, n.rhs_contracting_dimensions), (n.lhs_batch_dimensions, n.rhs_batch_dimensions))
    return lambda x, y: lax.dot_general(x, y, numbers), [_values(d, dims, k) for k, dims in enumerate(sides.dims)]


def _dot_to_wider(d: Drawn) -> Example:
    sides = Sides(d)
    n = sides.numbers()
    numbers = ((n.lhs_contracting_dimensions, n.rhs_contracting_dimensions), (n.lhs_batch_dimensions, n.rhs_batch_dimensions))
    return (lambda x, y: lax.dot_general(x, y, numbers, preferred_element_type=np.float64),
            [_values(d, dims, k).astype(np.float32) for k, dims in enumerate(sides.dims)])


def _convolution(d: Drawn) -> Example:
    s = Sizes(d, d.integer(1, 3))
    rank = len(s.lhs)
    left, right, out = (d.order(rank) for _ in range(3))
    numbers = lax.ConvDimensionNumbers(*(tuple(order.index(k) for k in range(rank)) for order in (left, right, out)))
    padding, base = s.padding(d), [d.integer(1, 2) for _ in s.window]
    dilation = [d.integer(1, 2) for _ in s.window]
    return (lambda x, k: lax.conv_general_dilated(x, k, s.strides, padding, base, dilation, numbers, *s.counts),
            [_values(d, [s.lhs[k] for k in left]), _values(d, [s.rhs[k] for k in right], 1)])


# ----------------------------------------------------------------------------------------------------- reductions


def _reduced(function: Callable[..., Any], values: Callable[..., np.ndarray], smallest: int = 0) -> Callable[[Drawn], Example]:
    def draw(d: Drawn) -> Example:
        dims = d.dims(0, 3, smallest)
        over = tuple(d.some(len(dims)))
        return lambda x: function(x, over), [values(d, dims)]
    return draw


def _at_argmax(x: Any, over: tuple[int, ...]) -> Any:
    return jnp.take_along_axis(x, jnp.argmax(x, -1, keepdims=True), -1) if x.ndim else x


def _cumulative(function: Callable[..., Any], values: Callable[..., np.ndarray]) -> Callable[[Drawn], Example]:
    def draw(d: Drawn) -> Example:
        dims = d.dims(1, 3)
        at, back = d.integer(0, len(dims) - 1), d.flag()
        return lambda x: function(x, at, back), [values(d, dims)]
    return draw


def _windows(function: Callable[..., Any], init: float, values: Callable[..., np.ndarray],
             dilated: bool = False) -> Callable[[Drawn], Example]:
    def draw(d: Drawn) -> Example:
        dims = d.dims(1, 3, smallest=1)
        sizes, strides = [d.integer(1, 3) for _ in dims], [d.integer(1, 2) for _ in dims]
        base, dilation = ([d.integer(1, 2) if dilated else 1 for _ in dims] for _ in range(2))
        padding = [(d.integer(0, min(2, w - 1)), d.integer(0, min(2, w - 1))) for w in sizes]
        return (lambda x: lax.reduce_window(x, np.float64(init), function, sizes, strides, padding, base, dilation),
                [values(d, dims)])
    return draw


# ------------------------------------------------------------------------------------------------ sorting, algebra


def _sorted(d: Drawn) -> Example:
    """Several operands, several keys, ties."""
    dims = d.dims(1, 2)
    at, keys, count = d.integer(0, len(dims) - 1), d.integer(1, 2), d.integer(2, 3)
    return (lambda *xs: lax.sort(xs, dimension=at, num_keys=keys, is_stable=True)), [_ties(d, dims, k) for k in range(count)]


def _top_k(d: Drawn) -> Example:
    dims = [*d.dims(0, 2), d.integer(1, 5)]
    k = d.integer(0, dims[-1])
    return lambda x: lax.top_k(x, k)[0], [_ties(d, dims)]


def _fft(d: Drawn) -> Example:
    form, lengths, batch = d.choice("FFT", "IFFT", "RFFT", "IRFFT"), d.dims(1, 3, smallest=1), d.dims(0, 1)
    last = lengths[-1] // 2 + 1 if form == "IRFFT" else lengths[-1]
    return (lambda x: lax.fft(x, form, tuple(lengths)),
            [smooth_values([*batch, *lengths[:-1], last], form != "RFFT", d.seed % 7)])


def _matrix(d: Drawn, batch: list[int], rows: int, columns: int, number: int = 0) -> np.ndarray:
    random = np.random.default_rng(d.seed + number)
    a = random.normal(size=[*batch, rows, columns])
    return a + 1j * random.normal(size=a.shape) if d.kind == "c128" else a


def _definite(d: Drawn) -> np.ndarray:
    n = d.integer(1, 4)
    a = _matrix(d, d.dims(0, 1), n, n)
    return a @ a.conj().swapaxes(-1, -2) + n * np.eye(n)


def _triangular_solve(d: Drawn) -> Example:
    batch, n, columns, left = d.dims(0, 1), d.integer(1, 4), d.integer(1, 3), d.flag()
    flags = {"left_side": left, "lower": d.flag(), "transpose_a": d.flag(), "unit_diagonal": d.flag()}
    flags["conjugate_a"] = flags["transpose_a"] and d.flag()
    a = _matrix(d, batch, n, n) + 3 * np.eye(n)
    b = _matrix(d, batch, *((n, columns) if left else (columns, n)), 1)
    return (lambda a, b: lax.linalg.triangular_solve(a, b, **flags)), [a, b]


def _factored(function: Callable[..., Any], wide: bool = True) -> Callable[[Drawn], Example]:
    def draw(d: Drawn) -> Example:
        n = d.integer(1, 4)
        return function, [_matrix(d, d.dims(0, 1, smallest=1), n, d.integer(1, 4) if wide else d.integer(1, n))]
    return draw


def _hermitian(a: Any) -> Any:
    return (a + jnp.conj(jnp.swapaxes(a, -1, -2))) / 2


def _magnitudes(values: Any, *vectors: Any) -> Any:
    """What does not depend on the phase of vectors: values, and the squares of their elements' sizes."""
    return (values, *(jnp.abs(v) ** 2 for v in vectors))


def _svd(a: Any) -> Any:
    u, s, v = lax.linalg.svd(a, full_matrices=False)
    return _magnitudes(s, u, v)


def _eigh(a: Any) -> Any:
    vectors, values = lax.linalg.eigh(_hermitian(a), symmetrize_input=False)
    return _magnitudes(values, vectors)


# ----------------------------------------------------------------------------------------------------- conversions

FLOAT_TYPES = (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)


def _converted(d: Drawn) -> Example:
    first, second = d.choice(*FLOAT_TYPES), d.choice(*FLOAT_TYPES)
    return lambda x: lax.convert_element_type(x, second), [_values(d, d.dims()).astype(first)]


def _reduced_precision(d: Drawn) -> Example:
    exponent, mantissa = d.integer(2, 11), d.integer(1, 52)
    return lambda x: lax.reduce_precision(x, exponent, mantissa), [_values(d, d.dims())]


def _selected(d: Drawn) -> Example:
    dims = d.dims()
    pred = np.random.default_rng(d.seed).random(dims if d.flag() else []) < 0.5
    return lax.select, [pred, _values(d, dims), _values(d, dims, 1)]


def _clamped(d: Drawn) -> Example:
    """Bounds in order; values equal to them. JAX drops the cotangent of equal bounds, so that none are equal."""
    dims = d.dims()
    low = _ties(d, dims)
    return lax.clamp, [low, _ties(d, dims, 1), low + 1 + np.abs(_ties(d, dims, 2))]


ROWS = [
    JaxRow("pad", _pad), JaxRow("movement", _moved), JaxRow("concatenate", _concatenated), JaxRow("select", _selected),
    JaxRow("dynamic-slice", _dynamic_slice), JaxRow("dynamic-update-slice", _dynamic_update_slice),
    JaxRow("gather", _gather), JaxRow("scatter", _scatter(lax.scatter, _values)),
    JaxRow("scatter add", _scatter(lax.scatter_add, _values)), JaxRow("scatter sub", _scatter(lax.scatter_sub, _values)),
    JaxRow("dot", _dot), JaxRow("convolution", _convolution), JaxRow("reduce add", _reduced(lambda x, a: x.sum(a), _values)),
    JaxRow("reduce mul", _reduced(lambda x, a: x.prod(a), _values)),
    JaxRow("window add", _windows(lax.add, 0.0, _values, dilated=True)),
    JaxRow("cumsum", _cumulative(lax.cumsum, _values)), JaxRow("cumprod", _cumulative(lax.cumprod, _values)),
    JaxRow("triangular-solve", _triangular_solve, 1e-8),
    JaxRow("cholesky", lambda d: (lambda a: lax.linalg.cholesky(_hermitian(a), symmetrize_input=False), [_definite(d)]), 1e-8),
    JaxRow("lu", _factored(lambda a: lax.linalg.lu(a)[0]), 1e-7),
    JaxRow("qr", _factored(lambda a: lax.linalg.qr(a, full_matrices=False), wide=False), 1e-7),
    JaxRow("eigh", lambda d: (_eigh, [_definite(d)]), 1e-7),
    JaxRow("svd", _factored(_svd), 1e-6),
]
"""Rows for real and for complex numbers."""

REAL_ROWS = [
    JaxRow("dot to a wider type", _dot_to_wider, 1e-5), JaxRow("convert", _converted, 1e-2),
    JaxRow("reduce-precision", _reduced_precision), JaxRow("clamp ties", _clamped),
    JaxRow("scatter mul", _scatter(lax.scatter_mul, _ties, unique=True)),
    # JAX's own rule for these forgets that indices are clipped, and divides by zero.
    *(JaxRow(f"scatter {name}", _scatter(function, _ties, modes=("drop",)))
      for name, function in (("min", lax.scatter_min), ("max", lax.scatter_max))),
    JaxRow("reduce mul of zeros", _reduced(lambda x, a: x.prod(a), _ties)),
    JaxRow("reduce max of ties", _reduced(lambda x, a: x.max(a), _ties, smallest=1)),
    JaxRow("reduce min of ties", _reduced(lambda x, a: x.min(a), _ties, smallest=1)),
    JaxRow("argmax", _reduced(_at_argmax, _ties, smallest=1)),
    JaxRow("logsumexp", _reduced(lambda x, a: jnp.log(jnp.exp(x - x.max()).sum(a)), _values, smallest=1)),
    JaxRow("window max", _windows(lax.max, -np.inf, _values)), JaxRow("window min", _windows(lax.min, np.inf, _values)),
    JaxRow("cumprod of zeros", _cumulative(lax.cumprod, _ties)), JaxRow("cummax of ties", _cumulative(lax.cummax, _values)),
    JaxRow("cummin", _cumulative(lax.cummin, _values)), JaxRow("cumlogsumexp", _cumulative(lax.cumlogsumexp, _values)),
    JaxRow("sort", _sorted), JaxRow("top-k", _top_k), JaxRow("fft", _fft),
]
