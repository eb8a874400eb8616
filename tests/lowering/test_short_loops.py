"""Loops of a few steps of elementwise ops are written out: the same values, and what depends on the step is a number."""

from __future__ import annotations

import numpy as np
import pytest

import xla_torch
from xla_torch.core import tuning

SHIFTS = """s = u32[1] slice(table), slice={[0:1]}
  a = u32[] reshape(s)
  by = u32[N] broadcast(a), dimensions={}
  left = u32[N] shift-left(x, by)
  thirty = u32[] constant(32)
  rest = u32[] subtract(thirty, a)
  back = u32[N] broadcast(rest), dimensions={}
  right = u32[N] shift-right-logical(x, back)
  turned = u32[N] or(left, right)
  t = u32[] convert(i)
  ts = u32[N] broadcast(t), dimensions={}
  y = u32[N] add(turned, ts)"""
PRODUCT = """z = u32[N] multiply(x, x)
  one_of = u32[] reduce(z, nothing), dimensions={0}, to_apply=sum
  ones = u32[N] broadcast(one_of), dimensions={}
  y = u32[N] add(x, ones)"""


def text_of(work: str, steps: int, by: int = 1) -> str:
    """A loop over (step, table, numbers), whose table is turned at each step."""
    carry = "(s32[], u32[4], u32[N])"
    return f"""HloModule short
sum {{
  a = u32[] parameter(0)
  b = u32[] parameter(1)
  ROOT r = u32[] add(a, b)
}}
body {{
  p = {carry} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  table = u32[4] get-tuple-element(p), index=1
  x = u32[N] get-tuple-element(p), index=2
  nothing = u32[] constant(0)
  {work}
  one = s32[] constant({by})
  j = s32[] add(i, one)
  begin = u32[1] slice(table), slice={{[0:1]}}
  end = u32[3] slice(table), slice={{[1:4]}}
  next = u32[4] concatenate(end, begin), dimensions={{0}}
  ROOT r = {carry} tuple(j, next, y)
}}
condition {{
  p = {carry} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant({steps * by})
  ROOT r = pred[] compare(i, n), direction=LT
}}
ENTRY main {{
  zero = s32[] constant(0)
  table = u32[4] constant({{13, 15, 26, 6}})
  x = u32[N] parameter(0)
  init = {carry} tuple(zero, table, x)
  done = {carry} while(init), condition=condition, body=body
  i = s32[] get-tuple-element(done), index=0
  t = u32[4] get-tuple-element(done), index=1
  y = u32[N] get-tuple-element(done), index=2
  ROOT r = (s32[], u32[4], u32[N]) tuple(i, t, y)
}}
""".replace("N]", "70000]")


@pytest.mark.parametrize(("work", "steps", "by", "is_written_out"), [
    (SHIFTS, 5, 1, True), (SHIFTS, 8, 3, True), (SHIFTS, 1, 1, True), (SHIFTS, 9, 1, False), (PRODUCT, 5, 1, False),
])
def test_steps_are_written_out(work: str, steps: int, by: int, is_written_out: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xla_torch.lowering.control.is_available", lambda: False)
    text = text_of(work, steps, by)
    x = np.random.default_rng(0).integers(0, 1 << 32, 70000, dtype=np.uint32)
    program = xla_torch.parse_hlo(text)
    got = program.run_numpy(x)
    assert ("counted_loop" not in program.python_code()) == is_written_out
    assert ("left_shift" in program.python_code() or "<< 13" in program.python_code()) == is_written_out
    monkeypatch.setattr(tuning, "UNROLLED_STEPS", 0)
    looped = xla_torch.parse_hlo(text)
    want = looped.run_numpy(x)
    assert "counted_loop" in looped.python_code()
    for mine, theirs in zip(got, want, strict=True):
        assert np.array_equal(mine, theirs)
