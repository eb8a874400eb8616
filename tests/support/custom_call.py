"""One custom call as a program, and its arguments, for tests."""

from __future__ import annotations

from typing import Any

import numpy as np

import xla_torch


def call(target: str, result: str, operands: dict[str, Any], config: str = "{}", **facts: str) -> list[Any]:
    """Run one custom call on tensors, by its text: `operands` are values by shape (spaces behind tell equal shapes apart)."""
    parameters = "\n".join(f"  p{k} = {shape} parameter({k})" for k, shape in enumerate(operands))
    names = ", ".join(f"p{k}" for k in range(len(operands)))
    more = "".join(f", {name}={value}" for name, value in facts.items())
    text = (f"HloModule m\nENTRY e {{\n{parameters}\n  ROOT r = {result} custom-call({names}), "
            f'custom_call_target="{target}"{more}, backend_config={config}\n}}')
    found = xla_torch.parse_hlo(text)(*operands.values())
    return list(found) if isinstance(found, tuple) else [found]


def random(shape: str, dtype: str, seed: int = 0) -> np.ndarray:
    """Normal numbers, also imaginary ones for a complex dtype."""
    generator = np.random.default_rng(seed)
    dims = tuple(map(int, shape.split(",")))
    real = generator.standard_normal(dims)
    return np.asarray(real + 1j * generator.standard_normal(dims) if dtype[0] == "c" else real).astype(dtype)
