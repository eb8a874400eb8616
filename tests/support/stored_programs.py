"""Whole programs that JAX lowered, with arguments, results and gradients: those of `tests/data/programs`, which
`tests/make_programs.py` makes, and those of a folder ``shared`` beside the checkout, where there is one.

A program's folder holds ``module.hlo``, ``module.stablehlo.mlir``, ``optimized_cpu.hlo``, and ``data.npz``: arg0, ..., out0, ...
and gradN, the gradient of the sum of out0 for argument N. ``info.json`` counts them.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import ml_dtypes
import numpy as np
import pytest
import torch

DATA = Path(__file__).resolve().parents[1] / "data" / "programs"
SHARED = Path(__file__).resolve().parents[3] / "shared"
FORMS = ("module.hlo", "optimized_cpu.hlo", "module.stablehlo.mlir")
FOLDERS = sorted(p.parent for root in (DATA, SHARED / "programs") for p in root.glob("*/info.json"))

NEGLIGIBLE = 1e-5
"""Gradients are compared relative to their scale, or to this where they are smaller: the gradient of a bias that softmax
cancels is zero, and what float32 leaves of it is noise of about 1e-9, in JAX as here."""


def name_of(folder: Path) -> str:
    """The folder's name for test ids; a shared program may have that of one of ours."""
    return folder.name if folder.parent == DATA else f"shared {folder.name}"


@dataclasses.dataclass(frozen=True)
class StoredProgram:
    arguments: list[np.ndarray]
    results: list[np.ndarray]
    gradients: dict[int, np.ndarray]

    @classmethod
    def load(cls, folder: Path) -> StoredProgram:
        info = json.loads((folder / "info.json").read_text())
        with np.load(folder / "data.npz") as data:
            def get(key: str) -> np.ndarray:
                return data[key].view(getattr(ml_dtypes, info["dtypes"][key], data[key].dtype))

            return cls([get(f"arg{k}") for k in range(info["n_args"])], [get(f"out{k}") for k in range(info["n_outs"])],
                       {k: get(f"grad{k}") for k in info["grad_args"]})

    @property
    def tensors(self) -> list[torch.Tensor]:
        return [torch.from_numpy(a.view(np.int16)).view(torch.bfloat16) if a.dtype == ml_dtypes.bfloat16 else torch.from_numpy(a)
                for a in self.arguments]


def assert_near(got: torch.Tensor, want: np.ndarray) -> None:
    """Equal relative to the scale of what is wanted; NaN and infinities in the same places."""
    found = got.detach().to(torch.complex128 if got.is_complex() else torch.float64).resolve_conj().numpy()
    expected = want.astype(found.dtype)
    scale = max(float(np.abs(expected[np.isfinite(expected)]).max(initial=0.0)), 1e-6)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-4 * scale, equal_nan=True)


def script(path: Path) -> ModuleType:
    """A Python file of the shared folder, as a module."""
    if not path.exists():
        pytest.skip(f"no {path.parent.name} beside the checkout")
    spec = importlib.util.spec_from_file_location(f"shared_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
