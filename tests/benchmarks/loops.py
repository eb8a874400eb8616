"""A counted loop of n steps that writes one row of an n-row buffer in each: time for each step must not grow with n. And the
gradient of a loop that runs until data says stop, beside torch.autograd of the same loop in Python.

    python tests/benchmarks/loops.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from xla_torch import GradientOptions, XlaComputation, parse_hlo, value_and_grad

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


GROWING = """
HloModule growing

sum {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}

body {{
  carry = (f32[4,{width}], f32[{width},{width}], f32[]) parameter(0)
  state = f32[4,{width}] get-tuple-element(carry), index=0
  weight = f32[{width},{width}] get-tuple-element(carry), index=1
  steps = f32[] get-tuple-element(carry), index=2
  product = f32[4,{width}] dot(state, weight), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  next = f32[4,{width}] tanh(product)
  one = f32[] constant(1)
  more = f32[] add(steps, one)
  ROOT out = (f32[4,{width}], f32[{width},{width}], f32[]) tuple(next, weight, more)
}}

condition {{
  carry = (f32[4,{width}], f32[{width},{width}], f32[]) parameter(0)
  steps = f32[] get-tuple-element(carry), index=2
  n = f32[] constant({n})
  ROOT more = pred[] compare(steps, n), direction=LT
}}

ENTRY main {{
  weight = f32[{width},{width}] parameter(0)
  start = f32[4,{width}] parameter(1)
  zero = f32[] constant(0)
  init = (f32[4,{width}], f32[{width},{width}], f32[]) tuple(start, weight, zero)
  loop = (f32[4,{width}], f32[{width},{width}], f32[]) while(init), condition=condition, body=body
  last = f32[4,{width}] get-tuple-element(loop), index=0
  ROOT total = f32[] reduce(last, zero), dimensions={{0,1}}, to_apply=sum
}}
"""


def in_python(weight: torch.Tensor, state: torch.Tensor, n: int) -> torch.Tensor:
    """The gradient that torch.autograd finds for `GROWING`."""
    leaf, steps = weight.detach().requires_grad_(), torch.zeros(())
    while steps < n:
        state, steps = torch.tanh(state @ leaf), steps + 1
    return torch.autograd.grad(state.sum(), leaf)[0]


def microseconds(function: Callable[..., Any], *arguments: Any, steps: int, runs: int = 5) -> float:
    """The fastest of some runs, for each step."""
    function(*arguments)
    best = float("inf")
    for _ in range(runs):
        before = time.perf_counter()
        function(*arguments)
        best = min(best, time.perf_counter() - before)
    return best / steps * 1e6


def show_gradients(width: int, n: int) -> None:
    program = parse_hlo(GROWING.format(width=width, n=n))
    weight, start = torch.randn(width, width) / width, torch.randn(4, width)
    ways = [("torch.autograd of a Python loop", lambda w, x: in_python(w, x, n)), ("a tape", value_and_grad(program)),
            ("arrays of n rows", value_and_grad(program, options=GradientOptions(loop_bound=n))),
            ("segments", value_and_grad(program, options=GradientOptions(loop_checkpoint="sqrt")))]
    for name, function in ways:
        each = microseconds(function, weight, start, steps=n)
        print(f"{n:7d} steps back, f32[4,{width}], {name:31s}: {each:6.1f} us for each step")


if __name__ == "__main__":
    show_gradients(64, 2000)
    show_gradients(1024, 50)
    for n in (1000, 10_000, 100_000):
        print(f"{n:7d} steps, {n * WIDTH * 4 / 2**20:5.1f} MiB buffer: {seconds_for_each_step(n) * 1e6:5.1f} us for each step")
