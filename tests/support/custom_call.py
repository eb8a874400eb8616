"""One custom call as a program, for tests."""

from __future__ import annotations

from typing import Any

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
