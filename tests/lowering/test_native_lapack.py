"""LAPACK's routines called from native code: what torch's calls give, bit for bit up to rounding, also for what fails."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax._src.lax import linalg

import xla_torch
from support.native_programs import sources_of
from xla_torch.codegen.compiled import is_available
from xla_torch.core import tuning
from xla_torch.kernels.native_plans import NativePlan
from xla_torch.storage import torch_private

pytestmark = pytest.mark.skipif(not is_available() or "dgesdd" not in torch_private.blas(),
                                reason="there is no C compiler, or torch's library does not show LAPACK")


ROWS: dict[str, Callable[[jax.Array], Any]] = {
    "eigh": lambda a: jnp.linalg.eigh(a + a.conj().T),
    "upper eigh": lambda a: jnp.linalg.eigh(a, UPLO="U", symmetrize_input=False),
    "eigenvalues": lambda a: jnp.linalg.eigvalsh(a + a.conj().T),
    "svd": jnp.linalg.svd,
    "tall svd": lambda a: jnp.linalg.svd(a[:, :3], full_matrices=False),
    "wide svd": lambda a: jnp.linalg.svd(a[:2], full_matrices=True),
    "singular values": lambda a: jnp.linalg.svd(a, compute_uv=False),
    "batch of svds": lambda a: jnp.linalg.svd(jnp.stack([a, a * 2, a.T])),
    "qr": jnp.linalg.qr,
    "wide qr": lambda a: jnp.linalg.qr(a[:3]),
    "lu": lambda a: linalg.lu(a)[:2],
    "q times": lambda a: linalg.ormqr(*linalg.geqrf(a), a, left=True, transpose=True),
    "times q": lambda a: linalg.ormqr(*linalg.geqrf(a), a, left=False, transpose=False),
    "tridiagonal": lambda a: linalg.tridiagonal_solve(a[0], a[1], a[2], a.T),
}
OTHERS = {("tridiagonal", "c"), ("lu", "c")}
"""Those that call more than LAPACK: of complex numbers, torch's."""


@pytest.mark.parametrize("n", [4, 5, 70])
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("name", ROWS)
def test_native_calls_are_torch_s(name: str, dtype: str, n: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tuning, "BUNDLE_LEAST", 1)
    monkeypatch.setenv("XLA_TORCH_CACHE", str(tmp_path))
    rng = np.random.default_rng(n)
    a = (rng.normal(size=(n, n)) + (1j * rng.normal(size=(n, n)) if dtype[0] == "c" else 0)).astype(dtype)
    bad = a.copy()
    bad[1, 2] = np.nan

    def function(a: jax.Array) -> Any:
        return jax.tree.map(lambda x: x * 1, ROWS[name](a * 1))

    with jax.enable_x64(True):
        monkeypatch.setattr(tuning, "NATIVE_AFTER", math.inf)
        in_torch = xla_torch.from_jax(function, a)
        want = [jax.tree.leaves(in_torch(torch.from_numpy(x))) for x in (a, bad)]
        monkeypatch.setattr(tuning, "NATIVE_AFTER", 0.0)
        native = xla_torch.from_jax(function, a)
        got = [jax.tree.leaves(native(torch.from_numpy(x))) for x in (a, bad)]
    assert sources_of(native.computation)
    plans = [m for m in native.computation.lowered().modules() if isinstance(m, NativePlan)]
    assert not any(p.plan.steps for p in plans) or (name, dtype[0]) in OTHERS or n > tuning.NATIVE_MATRIX
    near = 2e-3 if dtype in ("f4", "c8") else 1e-9
    for mine, theirs in zip(chain(*got), chain(*want), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=near, atol=near, equal_nan=True)
