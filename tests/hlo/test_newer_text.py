"""HLO text that XLA of jaxlib 0.12 writes, and what older XLA writes of the same: both are one program here."""

from __future__ import annotations

import pytest

from xla_torch import parse_hlo
from xla_torch.errors import HloSyntaxError

MODULE = """HloModule m

ENTRY e {{
  a = {0}[4] parameter(0)
  ROOT r = {1}
}}
"""


@pytest.mark.parametrize(("element", "newer", "older"), [
    ("f32", "pred[4] compare(a, a), direction=LT, order=TOTAL", "pred[4] compare(a, a), direction=LT, type=TOTALORDER"),
    ("f32", "pred[4] compare(a, a), direction=LT, order=PARTIAL", "pred[4] compare(a, a), direction=LT"),
    ("s32", "pred[4] compare(a, a), direction=LT, order=TOTAL", "pred[4] compare(a, a), direction=LT"),
    ("u8", "pred[4] compare(a, a), direction=GE, order=PARTIAL", "pred[4] compare(a, a), direction=GE"),
    ("f32", "(f32[2], s32[2]) topk(a), k=2, largest=true, is_stable=true", "(f32[2], s32[2]) topk(a), k=2, largest=true"),
    ("f32", "(f32[2], s32[2]) topk(a), k=2, largest=true, is_stable=false", "(f32[2], s32[2]) topk(a), k=2, largest=true"),
    ("f32", "f32[4] negate(a), sharding={single_device[device_id=3]}", "f32[4] negate(a), sharding={maximal device=3}"),
])
def test_newer_text_is_the_older_one(element: str, newer: str, older: str) -> None:
    assert parse_hlo(MODULE.format(element, newer)).to_hlo_text() == parse_hlo(MODULE.format(element, older)).to_hlo_text()


@pytest.mark.parametrize(("text", "message"), [
    ("pred[4] compare(a, a), direction=LT, type=FLOAT, order=TOTAL", "both its type and its order"),
    ("pred[4] compare(a, a), direction=LT, order=WEAK", "one of TOTAL PARTIAL"),
    ("f32[4] negate(a), is_stable=true", "unexpected attribute 'is_stable'"),
    ("f32[4] negate(a), sharding={single_device[device=3]}", "device_id"),
])
def test_wrong_newer_text_is_an_error(text: str, message: str) -> None:
    with pytest.raises(HloSyntaxError, match=message):
        parse_hlo(MODULE.format("f32", text))
