"""Programs in files that have lost the rules of their authors: a warning, once, where they are differentiated."""

from __future__ import annotations

import warnings

import pytest
import torch

import xla_torch
from xla_torch import parse_hlo
from xla_torch.errors import LostDerivatives

LOST = """HloModule m
ENTRY main {
  x = f32[3] parameter(0)
  y = f32[3] exponential(x), metadata={op_name="jit(f)/custom_jvp_call/exp"}
  ROOT z = f32[3] negate(y)
}"""


def test_lost_rules_warn_once_and_only_when_differentiated():
    computation, x = parse_hlo(LOST), torch.ones(3)
    computation(x)
    with pytest.warns(LostDerivatives, match=r"not what custom_jvp says \(from jit\(f\)/custom_jvp_call/exp\)") as found:
        xla_torch.grad(computation)
    assert len(found) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        xla_torch.jvp(computation)
        xla_torch.grad(parse_hlo(LOST.replace("jit(f)", "jit(softmax)")))
