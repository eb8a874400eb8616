"""A loop that reads large carries and writes over them, with its instructions in any order."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

SUM = """sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}"""
UPDATES = {
    "a": "f32[16,8] sine(first)", "b": "f32[16,8] cosine(second)", "c": "f32[16,8] multiply(a, a)", "d": "f32[16,8] negate(c)",
    "e": "f32[16,8] add(d, b)", "f": "f32[16,8] multiply(e, third)", "added": "f32[16,8] add(second, b)",
    "updated": "f32[16,8] dynamic-update-slice(first, w, i, zero_i)",
    "written": "f32[16,8] scatter(updated, at, rows), update_window_dims={1}, inserted_window_dims={0},"
               " scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum",
    "g": "f32[16,8] tanh(written)", "h": "f32[16,8] multiply(g, f)"}
"""Instructions of a loop's body that read carries, and others that write over them."""


def loop_in_order(names: Sequence[str]) -> str:
    body = "\n".join(f"  {name} = {UPDATES[name]}" for name in names)
    return f"""HloModule loop
{SUM}
body {{
  p = (s32[], f32[16,8], f32[16,8], f32[16,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  first = f32[16,8] get-tuple-element(p), index=1
  second = f32[16,8] get-tuple-element(p), index=2
  third = f32[16,8] get-tuple-element(p), index=3
  w = f32[1,8] constant({{{{1, 2, 3, 4, 5, 6, 7, 8}}}})
  at = s32[2,1] constant({{{{3}}, {{5}}}})
  rows = f32[2,8] slice(third), slice={{[0:2], [0:8]}}
  zero_i = s32[] constant(0)
  one = s32[] constant(1)
  next = s32[] add(i, one)
{body}
  ROOT out = (s32[], f32[16,8], f32[16,8], f32[16,8]) tuple(next, written, added, h)
}}
condition {{
  p = (s32[], f32[16,8], f32[16,8], f32[16,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3)
  ROOT less = pred[] compare(i, n), direction=LT
}}
ENTRY main {{
  x = f32[16,8] parameter(0)
  y = f32[16,8] parameter(1)
  z = s32[] constant(0)
  t = (s32[], f32[16,8], f32[16,8], f32[16,8]) tuple(z, x, y, x)
  ROOT r = (s32[], f32[16,8], f32[16,8], f32[16,8]) while(t), condition=condition, body=body
}}"""


def drawn_order(rng: np.random.Generator) -> list[str]:
    """The instructions, each after what it reads."""
    order: list[str] = []
    while len(order) < len(UPDATES):
        free = [n for n, line in UPDATES.items() if n not in order
                and all(u in order for u in re.findall(r"\w+", line) if u in UPDATES)]
        order.append(str(rng.choice(free)))
    return order
