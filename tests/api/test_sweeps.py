"""Whole programs that JAX lowered, in every form in which XLA writes them; slow: the conformance
cases of a folder ``shared`` beside the checkout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import xla_torch
from support.oracle import HAS_XLA
from support.stored_programs import (
    DATA,
    FOLDERS,
    FORMS,
    NEGLIGIBLE,
    SHARED,
    StoredProgram,
    assert_near,
    name_of,
    script,
)


@pytest.mark.slow
def test_conformance_cases():
    run = script(SHARED / "conformance" / "run.py")
    failed = []
    for folder in sorted(p.parent for p in run.HERE.joinpath("cases").glob("*/*/case.json")):
        status, why = run.run_case(xla_torch, folder, "hlo")
        if status not in ("pass", "no program"):
            failed.append(f"{folder.name}: {why}")
    assert not failed, "\n".join(failed)


EACH = [pytest.param(folder, marks=[] if folder.parent == DATA else [pytest.mark.slow], id=name_of(folder)) for folder in FOLDERS]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("folder", EACH)
def test_programs(folder: Path, form: str):
    if form.endswith(".mlir") and not HAS_XLA:
        pytest.skip("jaxlib is not installed")
    stored, computation = StoredProgram.load(folder), xla_torch.load(folder / form)
    got = computation(*stored.tensors)
    for ours, theirs in zip(got if isinstance(got, tuple) else (got,), stored.results, strict=True):
        assert_near(ours, theirs)
    if stored.gradients:
        _, found = xla_torch.value_and_grad(computation, argnums=tuple(stored.gradients))(*stored.tensors)
        for ours, theirs in zip(found, stored.gradients.values(), strict=True):
            scale = max(float(np.abs(theirs).max(initial=0.0)), NEGLIGIBLE)
            assert float(np.abs(ours.numpy() - theirs).max(initial=0.0)) <= 2e-3 * scale
