#!/usr/bin/env python3
"""Time single functions of JAX on arrays of middle size beside JAX, on one thread: a slow one slows each program that calls it.

    python tests/benchmarks/jax_functions.py [--only SUBSTRING] [--seconds 1] [--write]

Each runs through `from_jax` in one process. A ratio is the time divided by JAX's, once native code is there.
"""

from __future__ import annotations

import os

os.environ |= {"OMP_NUM_THREADS": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "JAX_PLATFORMS": "cpu"}

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax
from jax.scipy import special
from measuring import Table, mean_and_worst, parser, settled

import xla_torch
from xla_torch.kernels.native import make_native

RUNS = 25
DRAWN = np.random.default_rng(0)
X = DRAWN.normal(size=(512, 512)).astype(np.float32)
BATCH = DRAWN.normal(size=(16, 128, 128)).astype(np.float32)
PICTURES, FILTERS = (DRAWN.normal(size=dims).astype(np.float32) for dims in ((8, 16, 64, 64), (32, 16, 3, 3)))
SMALL = DRAWN.normal(size=(64, 64)).astype(np.float32)
POSITIVE = SMALL @ SMALL.T + 64 * np.eye(64, dtype=np.float32)
NUMBERS = DRAWN.integers(-1000, 1000, (512, 512)).astype(np.int32)
INDICES = DRAWN.integers(0, 512, 4096).astype(np.int32)
COMPLEX = (X + 1j * X.T).astype(np.complex64)
KEY = np.array([0, 7], np.uint32)


def drawn(function: Callable[..., Any], *arguments: Any, **options: Any) -> Callable[[Any], Any]:
    return lambda key: function(jax.random.wrap_key_data(key), *arguments, **options)


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    **{f"{name}, axis {axis}": (lambda x, f=f, axis=axis: f(x, axis), (X,)) for name, f in {
        "cumsum": jnp.cumsum, "cumprod": jnp.cumprod, "cummax": lax.cummax, "cumlogsumexp": lax.cumlogsumexp, "sort": jnp.sort,
        "argsort": jnp.argsort, "argmax": jnp.argmax, "sum": jnp.sum, "max": jnp.max, "var": jnp.var,
        "prod": lambda x, axis: jnp.prod(1 + x / 64, axis), "logsumexp": special.logsumexp,
        "softmax": jax.nn.softmax, "median": jnp.median}.items() for axis in (0, 1)},
    **{name: (f, (X,)) for name, f in {
        "sum of all": jnp.sum, "any": lambda x: (x > 3).any(0), "all of all": lambda x: (x < 9).all(), "gelu": jax.nn.gelu,
        "silu": jax.nn.silu, "erf": special.erf, "sin": jnp.sin, "exp": jnp.exp, "tanh": jnp.tanh,
        "power": lambda x: jnp.abs(x) ** 1.7, "lgamma": special.gammaln, "digamma": special.digamma, "i0e": special.i0e,
        "where": lambda x: jnp.where(x > 0, x, -x), "clip": lambda x: jnp.clip(x, -1, 1), "remainder": lambda x: x % 0.7,
        "transpose": lambda x: x.T + 0, "reverse": lambda x: x[::-1, ::-1], "roll": lambda x: jnp.roll(x, 3, 1),
        "pad": lambda x: jnp.pad(x, 3), "pad, reflected": lambda x: jnp.pad(x, 3, mode="reflect"), "tril": jnp.tril,
        "tile": lambda x: jnp.tile(x, (2, 2)), "repeat": lambda x: jnp.repeat(x, 3, 1), "steps": lambda x: x[::2, 1::3],
        "diff": lambda x: jnp.diff(x, axis=0),
        "stencil": lambda x: x[1:-1, 1:-1] * 4 - x[2:, 1:-1] - x[:-2, 1:-1] - x[1:-1, 2:] - x[1:-1, :-2],
        "rolled stencil": lambda x: jnp.roll(x, 1, 0) + jnp.roll(x, -1, 0) + jnp.roll(x, 1, 1) - 3 * x,
        "top_k": lambda x: lax.top_k(x, 8), "searchsorted": lambda x: jnp.searchsorted(jnp.linspace(-2, 2, 1000), x.ravel()),
        "histogram": lambda x: jnp.histogram(x, 64)[0],
        "interp": lambda x: jnp.interp(x.ravel(), jnp.linspace(-2, 2, 100), jnp.linspace(0, 1, 100)),
        "matmul": lambda x: x @ x, "matrix and vector": lambda x: x @ x[0],
        "distances": lambda x: jnp.sqrt(((x[:, None, :16] - x[None, :, :16]) ** 2).sum(-1)), "rfft": jnp.fft.rfft,
        "associative scan": lambda x: lax.associative_scan(jnp.add, x), "map": lambda x: lax.map(jnp.sort, x),
        "scan": lambda x: lax.scan(lambda c, y: (jnp.tanh(c + y), c), x[0], x),
        "fori_loop": lambda x: lax.fori_loop(0, 100, lambda i, v: v * 0.99 + x, x)}.items()},
    **{f"bfloat16 {name}": (lambda x, f=f: f(x.astype(jnp.bfloat16)).astype(jnp.float32), (X,)) for name, f in {
        "gelu": lambda x: jax.nn.gelu(x * 2 + 1), "softmax": jax.nn.softmax, "sum": lambda x: x.sum(0),
        "matmul": lambda x: x @ x}.items()},
    **{f"integer {name}": (f, (NUMBERS,)) for name, f in {
        "division": lambda x: x // 7, "remainder": lambda x: x % 7, "population count": lax.population_count,
        "sum": lambda x: x.sum(1), "matmul": lambda x: x @ x}.items()},
    **{f"complex {name}": (f, (COMPLEX,)) for name, f in {
        "abs": jnp.abs, "exp": jnp.exp, "product": lambda x: x * x.T, "matmul": lambda x: x @ x, "fft": jnp.fft.fft,
        "squared abs": lambda x: (x * jnp.conj(x)).real, "log": jnp.log, "sqrt": jnp.sqrt, "tanh": jnp.tanh, "sine": jnp.sin,
        "quotient": lambda x: x / (x.T + 3), "power": lambda x: x ** 2.5, "expm1": jnp.expm1, "sum": lambda x: x.sum(0),
        "angle": jnp.angle, "rotation": lambda x: x * jnp.exp(1j * x.real), "Mandelbrot": lambda x: lax.fori_loop(
            0, 5, lambda i, z: jnp.where(jnp.abs(z) < 2, z * z + x, z), x)}.items()},
    **{name: (f, (X,)) for name, f in {
        "select": lambda x: jnp.select([x < -1, x < 0, x < 1], [x * 2, x - 1, x * x], 0.5),
        "piecewise": lambda x: jnp.piecewise(x, [x < 0, x > 1], [jnp.sin, lambda y: y * y, 0.0]),
        "nested where": lambda x: jnp.where(x < -1, -1, jnp.where(x < 0, x, jnp.where(x > 1, 1, x / 2))),
        "selu": jax.nn.selu, "elu": jax.nn.elu, "softplus": jax.nn.softplus, "mish": jax.nn.mish,
        "log_sigmoid": jax.nn.log_sigmoid, "glu": jax.nn.glu, "hard_swish": jax.nn.hard_swish, "log_softmax": jax.nn.log_softmax,
        "standardize": jax.nn.standardize, "quantile": lambda x: jnp.quantile(x, 0.3, axis=1),
        "convolve": lambda x: jnp.convolve(x.ravel()[:20000], x[0, :33]), "kron": lambda x: jnp.kron(x[:16, :16], x[:32, :32]),
        "recurrence, associative scan": lambda x: lax.associative_scan(
            lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), (x * 0.1, x))[1],
        "scan of products": lambda x: lax.scan(lambda c, y: (jnp.tanh(c @ x[:64, :64] / 16 + y), c), x[0, :64], x[:, :64]),
        "sort with values": lambda x: lax.sort((x, x.T), num_keys=1), "unique": lambda x: jnp.unique(jnp.round(x), size=16),
        "gradient": lambda x: jnp.gradient(x)[0], "trapezoid": jnp.trapezoid, "cov": lambda x: jnp.cov(x[:128]),
        "cross": lambda x: jnp.cross(x[:, :510].reshape(512, 170, 3), x[:, 1:511].reshape(512, 170, 3)),
        "outer maximum": lambda x: jnp.maximum.outer(x[0], x[1]),
        "norms": lambda x: x / jnp.linalg.norm(x, axis=1, keepdims=True),
        "vmapped dot": lambda x: jax.vmap(lambda a, b: jnp.dot(a, b) / (1 + a.sum()))(x, x.T),
        "vmapped search": lambda x: jax.vmap(jnp.searchsorted)(jnp.sort(x, 1), x[:, :8]),
        "vmapped slices": lambda x: jax.vmap(lambda r, i: lax.dynamic_slice(r, (i,), (64,)))(x, jnp.arange(512) % 400),
        "polyval": lambda x: jnp.polyval(jnp.arange(1.0, 9), x), "sinc": jnp.sinc, "logaddexp": lambda x: jnp.logaddexp(x, x.T),
        "hypot": lambda x: jnp.hypot(x, x.T), "atan2": lambda x: jnp.arctan2(x, x.T), "float16 chain": lambda x: (
            jnp.tanh(x.astype(jnp.float16) * 2 + 1) * 0.5).astype(jnp.float32), "bits of floats": lambda x: (
            lax.bitcast_convert_type(x, jnp.int32) >> 23) & 255, "isfinite": jnp.isfinite, "round": lambda x: jnp.round(x, 2),
        "mixed window": lambda x: lax.reduce_window(x, 0.0, lax.add, (5, 5), (1, 1), "SAME"),
        "running window": lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 16), (1, 1), "VALID"),
        "while": lambda x: lax.while_loop(lambda c: c[0] < 50, lambda c: (c[0] + 1, jnp.sin(c[1])), (0, x))[1]}.items()},
    **{f"batched {name}": (f, (BATCH.reshape(-1, 8, 8),)) for name, f in {
        "inverses": lambda x: jnp.linalg.inv(x + 9 * jnp.eye(8)), "determinants": jnp.linalg.det,
        "Cholesky": lambda x: jnp.linalg.cholesky(x @ x.mT + jnp.eye(8)), "traces": lambda x: jnp.trace(x, 0, 1, 2),
        "solutions": lambda x: jnp.linalg.solve(x + 9 * jnp.eye(8), x), "eigenvalues": lambda x: jnp.linalg.eigvalsh(x + x.mT),
        "products": lambda x: x @ x}.items()},
    **{name: (f, (X, INDICES)) for name, f in {
        "rows": lambda x, i: x[i], "columns": lambda x, i: x[:, i], "points": lambda x, i: x[i, i[::-1]],
        "rows added": lambda x, i: x.at[i].add(1.0), "points added": lambda x, i: x.at[i, i[::-1]].add(2.0),
        "segment_max": lambda x, i: jax.ops.segment_max(x[i], i, 512), "take_along_axis": lambda x, i: jnp.take_along_axis(
            x, i.reshape(512, 8), 1), "maxima at points": lambda x, i: x.at[i, i[::-1]].max(2.0),
        "rows set": lambda x, i: x.at[i].set(3.0), "segment_sum": lambda x, i: jax.ops.segment_sum(x[i], i, 512),
        "bincount": lambda x, i: jnp.bincount(i, length=512), "one_hot": lambda x, i: jax.nn.one_hot(i, 128)}.items()},
    **{name: (f, (POSITIVE,)) for name, f in {
        "cholesky": jnp.linalg.cholesky, "solve": lambda x: jnp.linalg.solve(x, x[:, :4]), "inv": jnp.linalg.inv,
        "eigh": jnp.linalg.eigh, "svd": jnp.linalg.svd, "qr": jnp.linalg.qr, "det": jnp.linalg.det}.items()},
    **{name: (f, (PICTURES,)) for name, f in {
        "max pool": lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID"),
        "sum pool": lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 1, 3, 3), (1, 1, 1, 1), "SAME"),
        "resize": lambda x: jax.image.resize(x, (8, 16, 128, 128), "bilinear")}.items()},
    **{name: (f, (KEY,)) for name, f in {
        "normal": drawn(jax.random.normal, (512, 512)), "uniform": drawn(jax.random.uniform, (512, 512)),
        "gamma": drawn(jax.random.gamma, 2.0, (2000,)), "poisson": drawn(jax.random.poisson, 3.0, (2000,)),
        "permutation": drawn(jax.random.permutation, 20000), "randint": drawn(jax.random.randint, (512, 512), 0, 100)}.items()},
    "batched matmul": (lambda x: x @ x.transpose(0, 2, 1), (BATCH,)),
    "convolution": (lambda x, k: lax.conv(x, k, (1, 1), "SAME"), (PICTURES, FILTERS)),
}


def measured(name: str, seconds: float) -> tuple[float, float]:
    """The ratio and JAX's seconds. Raises AssertionError where values differ."""
    function, arguments = FUNCTIONS[name]
    compiled, given = jax.jit(function), [jnp.asarray(a) for a in arguments]
    ours, tensors = xla_torch.from_jax(function, *arguments), [torch.from_numpy(a.copy()) for a in arguments]
    ours(*tensors)
    make_native(ours.program.lowered(torch.device("cpu")))
    for mine, other in zip(jax.tree.leaves(ours(*tensors)), jax.tree.leaves(compiled(*given)), strict=True):
        if name not in ("svd", "qr", "eigh"):  # signs of vectors are open
            # Counts are of numbers on one side of a bound, which is rounded.
            bound = 0.5 if "bfloat16" in name else 1 if jnp.issubdtype(other.dtype, jnp.integer) else 1e-3
            np.testing.assert_allclose(mine.numpy(), np.asarray(other), rtol=1e-3, atol=bound)
    return settled(lambda: ours(*tensors), lambda: jax.block_until_ready(compiled(*given)), seconds, RUNS)


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--seconds", type=float, default=1.0, help="of calls before a time counts")
    chosen = made.parse_args()
    torch.set_num_threads(1)
    table, ratios = Table(__file__, ("function", "JAX ms", "ours / JAX's"), 1), list[float]()
    for name in FUNCTIONS:
        if chosen.only not in name:
            continue
        ratio, alone = measured(name, chosen.seconds)
        ratios.append(ratio)
        table.add(name, f"{alone * 1e3:.3f}", f"{ratio:.2f}")
    table.end(f"Of {len(ratios)} functions, {mean_and_worst('the geometric mean is', ratios)}.\n", write=chosen.write)


if __name__ == "__main__":
    main()
