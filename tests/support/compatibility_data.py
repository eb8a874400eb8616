"""JAX's compatibility data: programs that older versions of JAX exported for each platform, with inputs and what they gave there.

It ships with jax, for `tests/export_back_compat_test.py` of its repository, which says for each case how results are compared.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

PACKAGE = "jax._src.internal_test_util.export_back_compat_test_data"


@dataclasses.dataclass(frozen=True)
class Case:
    """One exported program: `name` is its file, date and variant."""

    name: str
    data: dict[str, Any] = dataclasses.field(repr=False)

    @property
    def file(self) -> str:
        return self.name.split(":")[0]

    @property
    def is_kernel(self) -> bool:
        """Whether the program is a kernel in the language of a device, of which HLO knows only the name."""
        return self.file.startswith("pallas.")

    def agrees(self, results: list[np.ndarray]) -> None:
        """Raise AssertionError unless results are those of the platform that the program was exported for."""
        expected = [np.asarray(e) for e in self.data["expected_outputs"]]
        assert [(r.shape, r.dtype) for r in results] == [(e.shape, e.dtype) for e in expected]
        compare = next((c for words, c in _COMPARED if any(w in self.file for w in words)), _equal)
        compare(results, expected)


def cases() -> list[Case]:
    """All cases of the installed jax, in the order of files."""
    package = importlib.import_module(PACKAGE)
    found: list[Case] = []
    for info in pkgutil.walk_packages(package.__path__, PACKAGE + "."):
        if not info.ispkg:
            module = importlib.import_module(info.name)
            for name, value in vars(module).items():
                if not name.startswith("_"):
                    found += _cases(value, f"{info.name[len(PACKAGE) + 1:]}:{name}")
    return found


def _cases(value: Any, name: str) -> Iterator[Case]:
    if isinstance(value, dict) and "testdata_version" in value:
        yield Case(name, value)
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from _cases(part, f"{name}.{key}")


# --------------------------------------------------------------------------------------------- how results are compared


def _tolerance(expected: list[np.ndarray]) -> float:
    return 1e-9 if any(e.dtype in (np.float64, np.complex128) for e in expected) else 2e-4


def _near(got: np.ndarray, want: np.ndarray, tolerance: float) -> None:
    """Near, relative to the largest element; NaN where the other is NaN."""
    want = np.broadcast_to(want, got.shape)
    assert np.isnan(got).tolist() == np.isnan(want).tolist()
    scale = np.nanmax(np.abs(want.astype(np.complex128)), initial=0)
    wide = np.nan_to_num(np.abs(got.astype(np.complex128) - want.astype(np.complex128)))
    assert wide.max(initial=0) <= tolerance * scale, wide.max() / max(scale, 1e-300)


def _equal(results: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for got, want in zip(results, expected, strict=True):
        _near(got, want, _tolerance(expected))


def _adjoint(x: np.ndarray) -> np.ndarray:
    return np.conj(np.swapaxes(x, -1, -2))


def _eigenpairs(results: list[np.ndarray], expected: list[np.ndarray]) -> None:
    """(vectors, values) of a symmetric matrix: vectors up to phases, and any of the same space where values meet."""
    tolerance = max(_tolerance(expected), 1e-5) * 10
    (v, w), (other, values) = results, expected
    _near(w, values, tolerance)
    _near(_adjoint(v) @ v, np.eye(v.shape[-1], dtype=v.dtype), tolerance)
    _near(v * w[..., None, :] @ _adjoint(v), other * values[..., None, :] @ _adjoint(other), tolerance)


def _singular(results: list[np.ndarray], expected: list[np.ndarray]) -> None:
    """(U, values, V^H): vectors up to phases."""
    if len(results) == 1:
        return _equal(results, expected)
    (u, d, v), (left, values, right) = results, expected
    tolerance = max(_tolerance(expected), 1e-6) * 10
    _near(d, values, tolerance)
    k = d.shape[-1]
    _near(_adjoint(u) @ u, np.eye(u.shape[-1], dtype=u.dtype), tolerance)
    _near(v @ _adjoint(v), np.eye(v.shape[-2], dtype=v.dtype), tolerance)
    _near(u[..., :k] * d[..., None, :] @ v[..., :k, :], left[..., :k] * values[..., None, :] @ right[..., :k, :], tolerance)
    return None


def _eigen(results: list[np.ndarray], expected: list[np.ndarray]) -> None:
    """(values, left vectors, right vectors) of the matrix 0, 1, 2, ...: each value is near one, and vectors are vectors."""
    n = results[0].shape[-1]
    a = np.arange(n * n, dtype=np.float64).reshape(n, n)
    tolerance = max(_tolerance(expected), 1e-6) * 100
    distances = np.abs(results[0][:, None] - expected[0][None, :])
    assert max(distances.min(0).max(), distances.min(1).max()) <= tolerance * np.abs(expected[0]).max()
    w, left, right = results
    assert np.abs(a @ right - w * right).max() <= tolerance * np.abs(a).max()
    assert np.abs(a.T @ left - np.conj(w) * left).max() <= tolerance * np.abs(a).max()


def _schur(results: list[np.ndarray], expected: list[np.ndarray]) -> None:
    """(form, vectors): they give back the matrix that the expected ones give."""
    (form, vectors), (other, rotated) = results, expected
    tolerance = max(_tolerance(expected), 1e-6) * 10
    _near(_adjoint(vectors) @ vectors, np.eye(form.shape[-1], dtype=form.dtype), tolerance)
    _near(vectors @ form @ _adjoint(vectors), rotated @ other @ _adjoint(rotated), tolerance)
    assert np.abs(np.tril(form, -2)).max() <= tolerance * np.abs(form).max()


_COMPARED: list[tuple[tuple[str, ...], Callable[[list[np.ndarray], list[np.ndarray]], None]]] = [
    (("eigh", "Eigh"), _eigenpairs), (("svd",), _singular), (("cpu_eig_",), _eigen), (("schur",), _schur)]
