"""Names survive StableHLO: those of arguments, of their places in trees, and of scopes; so weights by name still fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import xla_torch
from xla_torch.nn import XlaModule

PARAMS = {"layer.0": {"w": np.ones((3, 2), np.float32), "b": [np.ones(2, np.float32)]}}
FORMS: dict[str, Callable[[xla_torch.XlaComputation], Any]] = {
    "text": lambda c: c.to_stablehlo(), "bytecode": lambda c: c.to_stablehlo_bytecode()}


@pytest.mark.parametrize("form", FORMS)
def test_of_trees(form: str) -> None:
    def apply(params: Any, x: Any) -> Any:
        layer = params["layer.0"]
        return jnp.tanh(x @ layer["w"] + layer["b"][0])

    traced = xla_torch.from_jax(apply, PARAMS, np.ones((4, 3), np.float32))
    program = xla_torch.from_stablehlo(FORMS[form](traced.computation), derivatives="as written")
    assert [i.op_name for i in program.entry.instructions] == [i.op_name for i in traced.computation.entry.instructions
                                                               if i.opcode != "tuple"]
    module = XlaModule(program, PARAMS)
    assert sorted(n for n, _ in module.named_parameters()) == sorted(
        n for n, _ in XlaModule(traced, [PARAMS]).named_parameters())
    again = xla_torch.from_stablehlo(FORMS[form](program), derivatives="as written")
    assert again.to_hlo_text() == program.to_hlo_text()
    x = torch.ones(4, 3)
    assert torch.equal(module(x), traced(PARAMS, x))


@pytest.mark.parametrize("form", FORMS)
def test_of_text(form: str) -> None:
    program = xla_torch.parse_hlo("""HloModule m
ENTRY e { w.1 = f32[2] parameter(0) pair = (f32[2], s32[]) parameter(1) x = f32[2] get-tuple-element(pair), index=0
  ROOT r = f32[2] add(w.1, x), metadata={op_name="sum/of both"} }""", derivatives="as written")
    found = xla_torch.from_stablehlo(FORMS[form](program), derivatives="as written")
    assert found.program_shape.parameter_names == ("w.1", "pair", "pair.1")
    assert [i.op_name for i in found.entry.instructions if i.op_name and not i.is_parameter] == ["sum/of both"]
