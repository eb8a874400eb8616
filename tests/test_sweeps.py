"""Slow sweeps: whole programs and conformance cases from a folder ``shared`` beside the checkout (skipped where there is
none), and programs through torch.compile."""

from __future__ import annotations

import importlib.util
import pathlib
import sys
from types import ModuleType

import numpy as np
import pytest
import torch

import xla_torch

SHARED = pathlib.Path(__file__).resolve().parents[2] / "shared"
pytestmark = pytest.mark.slow

NEGLIGIBLE = 1e-5
"""Gradients are compared relative to their scale, or to this where they are smaller: the gradient of a bias that softmax
cancels is zero, and what float32 leaves of it is noise of about 1e-9, in JAX as here."""


def script(path: pathlib.Path) -> ModuleType:
    if not path.exists():
        pytest.skip(f"no {path.parent.name} beside the checkout")
    spec = importlib.util.spec_from_file_location(f"shared_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_conformance_cases():
    run = script(SHARED / "conformance" / "run.py")
    failed = []
    for folder in sorted(p.parent for p in run.HERE.joinpath("cases").glob("*/*/case.json")):
        status, why = run.run_case(xla_torch, folder, "hlo")
        if status not in ("pass", "no program"):
            failed.append(f"{folder.name}: {why}")
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("form", ["module.hlo", "optimized_cpu.hlo", "module.stablehlo.mlir"])
def test_programs(form):
    check = script(SHARED / "programs" / "check.py")
    seen = 0
    for folder in sorted(p.parent for p in check.HERE.glob("*/info.json")):
        _, arguments, results, gradients = check.load(folder)
        computation = xla_torch.load(folder / form)
        tensors = [check.to_torch(a) for a in arguments]
        got = computation(*tensors)
        for ours, theirs in zip(got if isinstance(got, tuple) else (got,), results, strict=True):
            assert check.error(ours, theirs) <= 2e-4, folder.name
        if gradients:
            _, found = xla_torch.value_and_grad(computation, argnums=tuple(gradients))(*tensors)
            for ours, theirs in zip(found, gradients.values(), strict=True):
                scale = max(float(np.abs(theirs).max(initial=0.0)), NEGLIGIBLE)
                assert float(np.abs(ours.numpy() - theirs).max(initial=0.0)) <= 2e-3 * scale, folder.name
        seen += 1
    assert seen == len(list(check.HERE.glob("*/info.json"))) > 0


@pytest.mark.filterwarnings("ignore")  # of torch.compile's own
@pytest.mark.parametrize("name", ["mlp_loss", "lstm_scan_loss", "newton_while", "topk_sort_sampling"])
def test_programs_compile_with_inductor(name):
    check = script(SHARED / "programs" / "check.py")
    _, arguments, results, _ = check.load(check.HERE / name)
    compiled = xla_torch.compile(xla_torch.load(check.HERE / name / "module.hlo"), backend="inductor")
    got = compiled(*[check.to_torch(a) for a in arguments])
    for ours, theirs in zip(got if isinstance(got, tuple) else (got,), results, strict=True):
        assert check.error(ours, theirs) <= 2e-4
    torch.compiler.reset()
