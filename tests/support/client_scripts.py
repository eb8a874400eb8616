"""Arrays, computations and runs as scripts for XLA's client library have them, for the tests of `xla_torch.compat.xla_client`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from xla_torch.compat import xla_client

ops: Any = xla_client.ops
rng = np.random.RandomState(0)

A, B = rng.randn(2, 3, 4).astype(np.float32)
POSITIVE, SMALL = np.abs(A) + np.float32(0.5), np.clip(A / 3, -0.9, 0.9)
SQUARE = rng.randn(4, 4).astype(np.float32)
DEFINITE = (SQUARE @ SQUARE.T + 4 * np.eye(4)).astype(np.float32)
LOWER = np.tril(DEFINITE)
INTS, COUNTS = rng.randint(-9, 9, (3, 4)).astype(np.int32), rng.randint(1, 5, (3, 4)).astype(np.int32)
C = (A + 1j * B).astype(np.complex64)
F34 = ("F32", 3, 4)

F, N = np.float32(0), np.int32(0)


def f32(values: Any) -> np.ndarray:
    return np.array(values, np.float32)


def s32(values: Any) -> np.ndarray:
    return np.array(values, np.int32)


def build(make: Callable[..., Any], *parameters: Any, name: str = "test") -> Any:
    """The computation that a function of a builder and parameters of these arrays' shapes makes. Its root is the op that the
    function returns, or where that is none the last one."""
    builder = xla_client.XlaBuilder(name)
    root = make(builder, *(ops.Parameter(builder, n, xla_client.shape_from_pyval(p)) for n, p in enumerate(parameters)))
    return builder.build(root if isinstance(root, xla_client.XlaOp) else None)


def run(make: Callable[..., Any], *parameters: Any) -> list[np.ndarray]:
    client = xla_client.make_cpu_client()
    return xla_client.execute_with_python_values(client.compile(build(make, *parameters)), parameters, client)


def add() -> Any:
    return build(lambda _, p, q: ops.Add(p, q), F, F)


def key_order() -> Any:
    return build(lambda _, p, q, i, j: ops.Gt(p, q), F, F, N, N)


def shape(kind: str, *dims: int) -> Any:
    return xla_client.Shape.array_shape(getattr(xla_client.PrimitiveType, kind), dims)


def k(builder: Any, value: Any) -> Any:
    return ops.Constant(builder, value)


def dot_numbers() -> Any:
    numbers = xla_client.DotDimensionNumbers()
    numbers.lhs_contracting_dimensions.append(1)
    numbers.rhs_contracting_dimensions.append(1)
    return numbers


def require_same(found: list[np.ndarray], expected: list[Any]) -> None:
    assert len(found) == len(expected)
    for result, wanted in zip(found, expected, strict=True):
        assert result.shape == np.shape(wanted)
        np.testing.assert_allclose(result, wanted, rtol=2e-4, atol=2e-6)
