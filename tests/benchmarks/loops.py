"""A counted loop of n steps that writes one row of an n-row buffer in each: time for each step must not grow with n.

    python tests/benchmarks/loops.py
"""

from __future__ import annotations

import time

import torch

from xla_torch import XlaComputation, parse_hlo

WIDTH = 64

PROGRAM = """
HloModule fill

body {{
  carry = (s32[], f32[{n},{width}], f32[1,{width}]) parameter(0)
  i = s32[] get-tuple-element(carry), index=0
  buffer = f32[{n},{width}] get-tuple-element(carry), index=1
  state = f32[1,{width}] get-tuple-element(carry), index=2
  half = f32[] constant(0.5)
  halves = f32[1,{width}] broadcast(half), dimensions={{}}
  scaled = f32[1,{width}] multiply(state, halves)
  next = f32[1,{width}] add(scaled, halves)
  zero = s32[] constant(0)
  updated = f32[{n},{width}] dynamic-update-slice(buffer, next, i, zero)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT out = (s32[], f32[{n},{width}], f32[1,{width}]) tuple(j, updated, next)
}}

condition {{
  carry = (s32[], f32[{n},{width}], f32[1,{width}]) parameter(0)
  i = s32[] get-tuple-element(carry), index=0
  n = s32[] constant({n})
  ROOT more = pred[] compare(i, n), direction=LT
}}

ENTRY main {{
  start = f32[1,{width}] parameter(0)
  zero = s32[] constant(0)
  blank = f32[] constant(0)
  buffer = f32[{n},{width}] broadcast(blank), dimensions={{}}
  init = (s32[], f32[{n},{width}], f32[1,{width}]) tuple(zero, buffer, start)
  loop = (s32[], f32[{n},{width}], f32[1,{width}]) while(init), condition=condition, body=body
  ROOT filled = f32[{n},{width}] get-tuple-element(loop), index=1
}}
"""


def fill(n: int) -> XlaComputation:
    """The program for n rows."""
    return parse_hlo(PROGRAM.format(n=n, width=WIDTH))


def seconds_for_each_step(n: int, runs: int = 3) -> float:
    """The fastest of some runs, divided by n."""
    program, start, best = fill(n), torch.zeros(1, WIDTH), float("inf")
    program(start)
    for _ in range(runs):
        before = time.perf_counter()
        program(start)
        best = min(best, time.perf_counter() - before)
    return best / n


if __name__ == "__main__":
    for n in (1000, 10_000, 100_000):
        print(f"{n:7d} steps, {n * WIDTH * 4 / 2**20:5.1f} MiB buffer: {seconds_for_each_step(n) * 1e6:5.1f} us for each step")
