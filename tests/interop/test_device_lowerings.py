"""Functions of JAX lowered for GPUs and TPUs, without one: what they call there gives here what JAX gives on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import xla_torch
from support.oracle import HAS_XLA

pytest.importorskip("jax")
if HAS_XLA:
    import jax
    import jax.numpy as jnp
    from jax._src.cudnn import fused_attention_stablehlo as cudnn
    from jax._src.lax import linalg as internal

    linalg: Any = jax.lax.linalg


def drawn(dimensions: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    real = generator.standard_normal(dimensions)
    return np.asarray(real + 1j * generator.standard_normal(dimensions) if dtype[0] == "c" else real).astype(dtype)


def lowered(function: Callable[..., Any], arguments: list[Any], platform: str) -> xla_torch.XlaComputation:
    traced: Any = jax.jit(function, keep_unused=True).trace(*arguments)
    found = xla_torch.from_stablehlo(str(traced.lower(lowering_platforms=(platform,)).compiler_ir("stablehlo")))
    assert isinstance(found, xla_torch.XlaComputation)
    return found


def assert_near(got: Any, want: Any, tolerance: float) -> None:
    a, b = np.asarray(got).astype("c16"), np.asarray(want).astype("c16")
    assert a.shape == b.shape
    assert np.abs(a - b).max(initial=0) <= tolerance * max(np.abs(b).max(initial=0), 1e-3)


# --------------------------------------------------------------------------------------------- linear algebra


def adjoint(x: Any) -> Any:
    return jnp.conj(jnp.swapaxes(x, -1, -2))


def positive(x: Any) -> Any:
    return x @ adjoint(x) + 3 * jnp.eye(x.shape[-1], dtype=x.dtype)


def restored(vectors: Any, values: Any) -> Any:
    return values, (vectors * values[..., None, :]) @ adjoint(vectors)


def singular(full: bool = False, **options: Any) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        u, d, v = linalg.svd(x, full_matrices=full, **options)
        k = d.shape[-1]
        return d, (u[..., :k] * d[..., None, :]) @ v[..., :k, :]

    return function


def eigen(x: Any) -> Any:
    values, vectors = jnp.linalg.eig(x)
    return vectors * values @ jnp.linalg.inv(vectors)


Function = tuple[str, Callable[[Any], Any], tuple[int, ...]]

LINALG: list[Function] = [
    ("cholesky", lambda x: linalg.cholesky(positive(x)), (2, 4, 4)),
    ("cholesky update", lambda x: internal.cholesky_update(adjoint(linalg.cholesky(positive(x))), x[..., 0]), (4, 4)),
    ("lu", linalg.lu, (2, 4, 3)), ("lu of batches", linalg.lu, (5, 3, 3)),
    ("qr", lambda x: linalg.qr(x, full_matrices=False), (2, 5, 3)),
    ("qr, whole", lambda x: linalg.qr(x, full_matrices=True), (5, 3)),
    ("qr, pivoted", lambda x: linalg.qr(x, pivoting=True, full_matrices=False), (5, 3)),
    ("product with q", lambda x: internal.ormqr(*internal.geqrf(x), x), (5, 3)),
    ("eigh", lambda x: restored(*linalg.eigh(positive(x))), (2, 4, 4)),
    ("eigh of 36", lambda x: restored(*linalg.eigh(positive(x))), (36, 36)),
    ("eig", eigen, (5, 5)), ("singular values", lambda x: linalg.svd(x, compute_uv=False), (3, 5)),
    ("svd", singular(), (2, 5, 3)), ("svd, wide", singular(), (3, 5)), ("svd, whole", singular(True), (3, 5)),
    ("svd of 40", singular(), (40, 36)),
    ("svd by qr", singular(algorithm=linalg.SvdAlgorithm.QR), (3, 5)),
    ("svd by polar", singular(algorithm=linalg.SvdAlgorithm.POLAR), (3, 5)),
    ("tridiagonal", lambda x: linalg.tridiagonal(x @ adjoint(x)), (4, 4)),
    ("tridiagonal, upper", lambda x: linalg.tridiagonal(x @ adjoint(x), lower=False), (4, 4)),
    ("tridiagonal solve", lambda x: linalg.tridiagonal_solve(x[0], x[1] + 4, x[2], x[:3].T), (4, 6)),
    ("tridiagonal solve, perturbed",
     lambda x: linalg.tridiagonal_solve(x[0], x[1] + 4, x[2], x[:3].T, perturb_singular=True), (4, 6)),
    ("symmetric product", lambda x: internal.symmetric_product(x, x @ x.T), (3, 4)),
    ("solve", lambda x: jnp.linalg.solve(x, x[..., :1] + 1), (4, 4)), ("slogdet", jnp.linalg.slogdet, (4, 4)),
    ("random", lambda x: jax.random.uniform(jax.random.PRNGKey(3), (7, 3)) + x[0, 0].real, (2, 2)),
    ("top k", lambda x: jax.lax.top_k(x.real, 2), (4, 5)),
    ("approximate top k", lambda x: jax.lax.approx_max_k(x.real.astype("float32"), 2), (4, 5)),
]
FEW = {"cholesky", "lu of batches", "eigh", "svd", "symmetric product"}
"""Those that run always; the sweep has all."""


def _rows(platforms: tuple[str, ...]) -> list[Any]:
    return [pytest.param(platform, function, shape, id=f"{platform} {name}",
                         marks=[] if platform == "cuda" and name in FEW else [pytest.mark.slow])
            for platform in platforms for name, function, shape in LINALG]


def cpu(function: Callable[..., Any], *arguments: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in jax.tree.leaves(function(*arguments))]


@pytest.mark.parametrize("dtype", ["f4", "c16"])
@pytest.mark.parametrize(("platform", "function", "shape"), _rows(("cuda", "rocm", "tpu")))
def test_linear_algebra(platform: str, function: Callable[[Any], Any], shape: tuple[int, ...], dtype: str) -> None:
    x = drawn(shape, dtype)
    try:
        program = lowered(function, [x], platform)
    except (NotImplementedError, TypeError) as error:
        pytest.skip(f"JAX has no lowering: {error}")
    try:
        expected = cpu(function, x)
    except NotImplementedError:  # an algorithm that JAX has for GPUs only
        expected = cpu(singular(), x)
    for got, want in zip(program.run_numpy(x), expected, strict=True):
        assert_near(got, want, 2e-3 if dtype == "f4" else 1e-9)


DIFFERENTIABLE = {"cholesky", "qr", "eigh", "eigh of 36", "singular values", "svd", "svd, wide", "svd of 40",
                  "svd by qr", "solve", "slogdet", "tridiagonal solve"}
"""Those of which JAX has the derivative on the CPU too."""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "function", "shape"), [
    pytest.param(*row, id=row[0], marks=[] if row[0] in FEW else [pytest.mark.slow])
    for row in LINALG if row[0] in DIFFERENTIABLE])
def test_our_gradients_are_those_of_jax(name: str, function: Callable[[Any], Any], shape: tuple[int, ...]) -> None:
    """Derived here from the program for CUDA, and by JAX from the function."""
    x = drawn(shape, "f8")
    weights = [drawn(np.shape(o), "f8", k + 1) for k, o in enumerate(cpu(function, x))]

    def loss(x: Any) -> Any:
        return sum(jnp.sum(jnp.real(o) * w) for o, w in zip(jax.tree.leaves(function(x)), weights, strict=True))

    tensor = torch.from_numpy(x).requires_grad_()
    result = lowered(loss, [x], "cuda")(tensor)
    assert isinstance(result, torch.Tensor)
    result.backward()
    assert tensor.grad is not None
    assert_near(tensor.grad.numpy(), jax.grad(loss)(x), 1e-7)


# --------------------------------------------------------------------------------------------- attention

LENGTHS = {"query_seq_lengths": np.array([4, 6], "i4"), "key_value_seq_lengths": np.array([5, 3], "i4")}

ATTENTION: list[tuple[str, int, tuple[int, ...] | None, dict[str, Any]]] = [
    ("plain", 4, None, {}), ("causal", 4, None, {"is_causal": True}), ("groups of heads", 2, None, {}),
    ("one head", 1, None, {"is_causal": True}), ("bias", 4, (2, 4, 6, 6), {}), ("bias for all", 4, (1, 4, 6, 6), {}),
    ("lengths", 4, None, LENGTHS), ("lengths, causal", 4, None, {**LENGTHS, "is_causal": True}),
    ("window", 4, None, {"is_causal": True, "local_window_size": (2, 0)}), ("scale", 4, None, {"scale": 0.7}),
]


@pytest.mark.parametrize("derivative", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize(("name", "heads", "bias", "options"), [
    pytest.param(*row, id=row[0], marks=[] if row[0] in ("lengths, causal", "bias for all") else [pytest.mark.slow])
    for row in ATTENTION])
def test_attention(name: str, heads: int, bias: tuple[int, ...] | None, options: dict[str, Any], derivative: bool,
                   monkeypatch: pytest.MonkeyPatch) -> None:
    """cuDNN's kernels, forward and JAX's own way back, against JAX's attention in plain ops."""
    monkeypatch.setattr(cudnn, "check_cudnn_version", lambda: 91200)
    monkeypatch.setattr(cudnn, "check_compute_capability", lambda capability: True)
    sizes = [(2, 6, 4, 8), (2, 6, heads, 8), (2, 6, heads, 8), *([bias] if bias else [])]
    given = [drawn(s, "f4", k).astype(jnp.bfloat16) for k, s in enumerate(sizes)]
    ct = drawn((2, 6, 4, 8), "f4", 9)

    def attention(implementation: str) -> Callable[..., Any]:
        def forward(q: Any, k: Any, v: Any, *bias: Any) -> Any:
            return jax.nn.dot_product_attention(q, k, v, *bias, implementation=implementation, **options)  # pyright: ignore

        def loss(*arguments: Any) -> Any:
            return jnp.sum(forward(*arguments).astype("float32") * ct)

        return jax.grad(loss, argnums=tuple(range(len(given)))) if derivative else forward

    program = lowered(attention("cudnn"), given, "cuda")
    for got, want in zip(program.run_numpy(*given), cpu(attention("xla"), *given), strict=True):
        assert_near(got, want, 1.5e-2)
