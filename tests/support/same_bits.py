"""Helpers of tests of ops that move elements: whole programs against real XLA, every bit, for any element type."""

from __future__ import annotations

from typing import Any

import numpy as np

import xla_torch
from support.agreement import assert_agree, dtype_of, special_values
from support.oracle import run_xla


def program(*instructions: str, regions: str = "") -> str:
    """HLO text of an entry computation; the last instruction is the root."""
    *lines, root = instructions
    return "\n".join(["HloModule test", regions, "ENTRY entry {", *(f"  {line}" for line in lines), f"  ROOT {root}", "}"])


def assert_same(text: str, *arrays: Any) -> None:
    """xla_torch and real XLA give the same results; NaNs are equal, zeros are not."""
    want = run_xla(text, *arrays)
    got = xla_torch.parse_hlo(text).run_numpy(*arrays)
    assert len(got) == len(want)
    for ours, theirs in zip(got, want, strict=True):
        assert_agree(np.asarray(ours), theirs)


def filled(element_type: str, *dims: int, seed: int = 0) -> np.ndarray:
    """An array of values of a type, special ones among them; special values may repeat."""
    with np.errstate(invalid="ignore"):  # infinities times the imaginary unit
        values = special_values(element_type)
    return np.random.default_rng(seed).choice(values, dims).astype(dtype_of(element_type))


def plain(element_type: str, *dims: int) -> np.ndarray:
    """1, 2, 3, ... in row-major order."""
    return np.arange(1, 1 + int(np.prod(dims))).reshape(dims).astype(dtype_of(element_type))
