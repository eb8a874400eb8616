"""Gradients of loops whose trip count depends on data."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch

import xla_torch
from support.gradient_loops import (
    WHILES,
    XS,
    B,
    H,
    R,
    W,
    check,
    doubling,
    in_a_branch,
    in_a_scan,
    loop_shapes,
    newton,
    rows_written,
    scanned,
    unrolled,
    weights_inside,
)
from support.jax_oracle import compare, evaluated_in_steps, program, through_autograd, to_torch
from support.oracle import HAS_XLA, needs_xla
from xla_torch.autodiff.options import GradientOptions
from xla_torch.errors import DifferentiationError, InvalidArgument
from xla_torch.hlo.ir import reachable
from xla_torch.kernels import stack
from xla_torch.transform.canonical import canonicalize
from xla_torch.transform.dead_carries import without_dead_carries

if HAS_XLA:
    import jax
    import jax.numpy as jnp


@needs_xla
@pytest.mark.parametrize("function", WHILES, ids=lambda f: f.__name__)
def test_gradient_of_a_while_is_that_of_the_same_steps_in_python(function):
    computation, want = program(function, W, B, H, XS), unrolled(function)
    derivative = xla_torch.vjp(computation, want.argnums)
    given = [to_torch(a) for a in (W, B, H, XS, *want.cotangents)]
    compare(derivative(*given), want.gradients, 1e-9)
    compare(through_autograd(computation, (W, B, H, XS), want), want.gradients, 1e-9)
    compare(xla_torch.parse_hlo(derivative.to_hlo_text())(*given), want.gradients, 1e-9)


@needs_xla
@pytest.mark.parametrize("function", WHILES, ids=lambda f: f.__name__)
def test_with_a_bound_xla_runs_the_gradient(function):
    check(function, GradientOptions(loop_bound=60), on_xla=True)


@needs_xla
def test_rows_are_on_tapes_unless_their_number_is_known():
    found = loop_shapes(xla_torch.vjp(program(doubling, W, B, H, XS)).entry)
    assert "f64[?,2,3]" in found
    found = loop_shapes(xla_torch.vjp(program(doubling, W, B, H, XS), options=GradientOptions(loop_bound=60)).entry)
    assert "f64[60,2,3]" in found
    found = loop_shapes(xla_torch.vjp(program(newton, W, B, H, XS)).entry)  # its condition says i < 50
    assert "f64[50,3]" in found
    assert not any("?" in shape for shape in found)


@needs_xla
def test_a_loop_longer_than_its_bound_has_nan_as_gradient():
    computation = program(doubling, W, B, H, XS)
    given = (*map(to_torch, (W, B, H, XS)), torch.ones(2, 3, dtype=torch.float64))
    assert xla_torch.vjp(computation, (2,), options=GradientOptions(loop_bound=2))(*given)[0].isnan().all()
    assert not xla_torch.vjp(computation, (2,), options=GradientOptions(loop_bound=20))(*given)[0].isnan().any()


# ------------------------------------------------------------------------------------------------ higher orders

SECOND = [(doubling, {}), (weights_inside, {}), (newton, {}), (in_a_scan, {}), (in_a_branch, {}), (rows_written, {}),
          (weights_inside, {"loop_bound": 60}), (weights_inside, {"loop_checkpoint": 2}), (in_a_scan, {"loop_checkpoint": 2}),
          (weights_inside, {"loop_checkpoint": "sqrt"}), (rows_written, {"loop_checkpoint": "sqrt", "loop_bound": 60}),
          (scanned, {"loop_checkpoint": 2})]


@needs_xla
@pytest.mark.parametrize(("function", "settings"), SECOND, ids=lambda part: getattr(part, "__name__", str(part)))
def test_gradient_of_a_gradient(function, settings):
    options = GradientOptions(**settings)

    def first(w, b, h, xs):
        leaves = jax.tree.leaves(function(w, b + w[2], h + w[:2], xs))
        return sum(leaf.sum() for leaf in leaves if leaf.dtype == W.dtype)

    direction = R.randn(3, 3)
    (want,) = evaluated_in_steps(jax.grad(lambda w, d: jnp.vdot(jax.grad(first)(w, B, H, XS), d)), W, direction,
                                 known_by=(first, (W, B, H, XS)))
    derivative = xla_torch.grad(program(first, W, B, H, XS), options=options)
    given = (W, B, H, XS)
    (found,) = xla_torch.vjp(derivative, (0,), options=options)(*map(to_torch, (*given, direction)))
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-8, atol=1e-9)
    w = to_torch(W).requires_grad_()
    total = program(first, *given).with_gradient_options(options)(w, *map(to_torch, given[1:]))
    (once,) = torch.autograd.grad(total, w, create_graph=True)
    (found,) = torch.autograd.grad(once, w, to_torch(direction))
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-8, atol=1e-9)


@needs_xla
def test_gradcheck_through_a_while():
    computation = program(lambda w, h: weights_inside(w, B, h, XS)[0], W, H)
    leaves = to_torch(W).requires_grad_(), to_torch(H).requires_grad_()
    assert torch.autograd.gradcheck(computation, leaves, fast_mode=True)
    assert torch.autograd.gradgradcheck(computation, leaves, fast_mode=True)


# ------------------------------------------------------------------------------------------------ the rest


def test_the_newton_iteration_against_differences():
    """x that solves x^3 + x = a: its derivative is 1 / (3 x^2 + 1)."""
    text = """HloModule solve
condition {
  c = (f64[], f64[]) parameter(0)
  x = f64[] get-tuple-element(c), index=0
  a = f64[] get-tuple-element(c), index=1
  square = f64[] multiply(x, x)
  cube = f64[] multiply(square, x)
  sum = f64[] add(cube, x)
  difference = f64[] subtract(sum, a)
  size = f64[] abs(difference)
  tolerance = f64[] constant(1e-14)
  ROOT go = pred[] compare(size, tolerance), direction=GT
}
body {
  c = (f64[], f64[]) parameter(0)
  x = f64[] get-tuple-element(c), index=0
  a = f64[] get-tuple-element(c), index=1
  square = f64[] multiply(x, x)
  cube = f64[] multiply(square, x)
  sum = f64[] add(cube, x)
  difference = f64[] subtract(sum, a)
  three = f64[] constant(3)
  scaled = f64[] multiply(three, square)
  one = f64[] constant(1)
  slope = f64[] add(scaled, one)
  change = f64[] divide(difference, slope)
  next = f64[] subtract(x, change)
  ROOT r = (f64[], f64[]) tuple(next, a)
}
ENTRY main {
  a = f64[] parameter(0)
  start = f64[] constant(1)
  init = (f64[], f64[]) tuple(start, a)
  loop = (f64[], f64[]) while(init), condition=condition, body=body
  ROOT x = f64[] get-tuple-element(loop), index=0
}
"""
    solve = xla_torch.parse_hlo(text)
    a = torch.tensor(7.0, dtype=torch.float64)
    x, slope = xla_torch.value_and_grad(solve)(a)
    torch.testing.assert_close(slope, 1 / (3 * x * x + 1))
    torch.testing.assert_close(slope, (solve(a + 1e-5) - solve(a - 1e-5)) / 2e-5, rtol=1e-6, atol=0)


RANDOM = """HloModule noise
condition {{
  c = (f64[3], f64[]) parameter(0)
  n = f64[] get-tuple-element(c), index=1
  five = f64[] constant(5)
  ROOT go = pred[] compare(n, five), direction=LT
}}
body {{
  c = (f64[3], f64[]) parameter(0)
  x = f64[3] get-tuple-element(c), index=0
  n = f64[] get-tuple-element(c), index=1
  one = f64[] constant(1)
  two = f64[] constant(2)
  noise = f64[3] rng(one, two), distribution=rng_uniform
  y = f64[3] multiply(x, noise)
  m = f64[] add(n, one)
  ROOT r = (f64[3], f64[]) tuple(y, m)
}}
outer_condition {{
  c = (f64[3], f64[]) parameter(0)
  n = f64[] get-tuple-element(c), index=1
  ROOT go = pred[] compare(n, n), direction=NE
}}
outer_body {{
  c = (f64[3], f64[]) parameter(0)
  ROOT r = (f64[3], f64[]) while(c), condition=condition, body=body
}}
ENTRY main {{
  x = f64[3] parameter(0)
  zero = f64[] constant(0)
  init = (f64[3], f64[]) tuple(x, zero)
  loop = (f64[3], f64[]) while(init), condition={outer}condition, body={outer}body
  ROOT y = f64[3] get-tuple-element(loop), index=0
}}
"""


@pytest.mark.parametrize("checkpoint", ["auto", 2, "sqrt"])
def test_random_numbers_are_not_drawn_again(checkpoint):
    computation = xla_torch.parse_hlo(RANDOM.format(outer="")).with_gradient_options(GradientOptions(loop_checkpoint=checkpoint))
    x = torch.tensor([1.0, 2.0, -3.0], dtype=torch.float64, requires_grad=True)
    y = computation(x)
    (found,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(found, (y / x).detach())


def test_random_numbers_in_a_loop_of_unknown_length_in_a_loop_need_a_bound():
    computation = xla_torch.parse_hlo(RANDOM.format(outer="outer_"))
    with pytest.raises(DifferentiationError, match="unknown size") as caught:
        xla_torch.grad(computation)
    assert "loop_bound" in str(caught.value)
    bounded = xla_torch.grad(computation, options=GradientOptions(loop_bound=10))
    assert (bounded(torch.ones(3, dtype=torch.float64)) == 1).all()  # the outer loop never runs


REFUSED = [{"loop_checkpoint": 0}, {"loop_checkpoint": "root"}, {"loop_checkpoint": True}, {"loop_bound": 0},
           {"loop_bound": 2.5}, {"memory_bound": -1}]


@pytest.mark.parametrize("settings", REFUSED, ids=str)
def test_options_that_mean_nothing_are_refused(settings):
    with pytest.raises(InvalidArgument, match=next(iter(settings))):
        GradientOptions(**settings)


def test_tapes():
    cpu, first, second = torch.device("cpu"), torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    one = stack.push(stack.new(), first)
    two = stack.push(one, second)
    assert stack.pop(two, (2,), torch.float32, cpu)[0] is second
    assert stack.pop(stack.pop(two, (2,), torch.float32, cpu)[1], (2,), torch.float32, cpu)[0] is first
    assert stack.pop(one, (2,), torch.float32, cpu)[0] is first  # a tape never changes
    value, below = stack.pop(stack.new(), (2,), torch.float32, cpu)
    assert value.tolist() == [0.0, 0.0]
    assert below is None
    rows = stack.packed(two, (2,), torch.float32, cpu)
    assert rows.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    value, below = stack.pop(rows, (2,), torch.float32, cpu)
    assert value.tolist() == [3.0, 4.0]
    assert stack.packed(stack.push(below, first), (2,), torch.float32, cpu).tolist() == [[1.0, 2.0], [1.0, 2.0]]
    assert stack.packed(stack.push(rows, first), (2,), torch.float32, cpu).shape == (3, 2)
    assert stack.packed(None, (2,), torch.int32, cpu).shape == (0, 2)


# --------------------------------------------------------------------------------------------------- dead carries

WASTEFUL = """
inner {
  c = (s32[], f64[], f64[]) parameter(0)
  k = s32[] get-tuple-element(c), index=0
  x = f64[] get-tuple-element(c), index=1
  noted = f64[] get-tuple-element(c), index=2
  one = s32[] constant(1)
  next = s32[] add(k, one)
  y = f64[] sine(x)
  more = f64[] add(noted, y)
  ROOT all = (s32[], f64[], f64[]) tuple(next, y, more)
}
less {
  c = (s32[], f64[], f64[]) parameter(0)
  k = s32[] get-tuple-element(c), index=0
  three = s32[] constant(3)
  ROOT less = pred[] compare(k, three), direction=LT
}
outer {
  c = (s32[], f64[], f64[]) parameter(0)
  k = s32[] get-tuple-element(c), index=0
  x = f64[] get-tuple-element(c), index=1
  noted = f64[] get-tuple-element(c), index=2
  zero = s32[] constant(0)
  start = (s32[], f64[], f64[]) tuple(zero, x, noted)
  three = (s32[], f64[], f64[]) while(start), condition=less, body=inner
  y = f64[] get-tuple-element(three), index=1
  more = f64[] get-tuple-element(three), index=2
  one = s32[] constant(1)
  next = s32[] add(k, one)
  ROOT all = (s32[], f64[], f64[]) tuple(next, y, more)
}
ENTRY main {
  x = f64[] parameter(0)
  n = f64[] parameter(1)
  zero = s32[] constant(0)
  start = (s32[], f64[], f64[]) tuple(zero, x, n)
  loop = (s32[], f64[], f64[]) while(start), condition=less, body=outer
  y = f64[] get-tuple-element(loop), index=1
  noted = f64[] get-tuple-element(loop), index=2
  ROOT both = (f64[], f64[]) tuple(y, noted)
}
"""
"""Nine sines, and their sum, which is noted beside them."""


def test_gradients_carry_only_what_is_read() -> None:
    """What loops compute for results that a derivative has no use for is not in its program, in a nested loop neither."""
    program = xla_torch.parse_hlo(WASTEFUL)
    x, n = (torch.tensor(v, dtype=torch.float64) for v in (0.5, 0.25))
    assert xla_torch.grad(program).to_hlo_text().count("f64[] add(") == 0
    assert xla_torch.vjp(program, with_outputs=True).to_hlo_text().count("f64[] add(") > 0
    leaf = x.clone().requires_grad_()
    y = leaf
    for _ in range(9):
        y = y.sin()
    torch.testing.assert_close(xla_torch.grad(program)(x, n), *torch.autograd.grad(y, leaf))
    slim = without_dead_carries(canonicalize(xla_torch.parse_hlo(WASTEFUL.replace("tuple(y, noted)", "tuple(y, x)")).entry))
    assert [len(i.shape.tuple_shapes) for c in reachable([slim]) for i in c.instructions if i.opcode == "while"] == [2, 2]


# ------------------------------------------------------------------------------------------------ loops that end at once

ENDS = """c {
  t = (s32[], f32[3], f32[]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  left = f32[] get-tuple-element(t), index=2
  zero = f32[] constant(0)
  n = s32[] constant(%s)
  a = pred[] compare(left, zero), direction=GT
  b = pred[] compare(i, n), direction=%s
  ROOT r = pred[] and(a, b)
}
b {
  t = (s32[], f32[3], f32[]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  x = f32[3] get-tuple-element(t), index=1
  left = f32[] get-tuple-element(t), index=2
  step = s32[] constant(%s)
  one = f32[] constant(1)
  j = s32[] add(i, step)
  y = f32[3] sine(x)
  m = f32[] subtract(left, one)
  ROOT r = (s32[], f32[3], f32[]) tuple(j, y, m)
}
ENTRY e {
  x = f32[3] parameter(0)
  left = f32[] parameter(1)
  start = s32[] constant(%s)
  t = (s32[], f32[3], f32[]) tuple(start, x, left)
  w = (s32[], f32[3], f32[]) while(t), condition=c, body=b
  ROOT r = f32[3] get-tuple-element(w), index=1
}
"""


@pytest.mark.parametrize("left", [2.0, -1.0])
@pytest.mark.parametrize(("bound", "direction", "step", "start"), [
    (0, "LT", 1, 0), (-5, "LT", 1, 0), (0, "LE", 1, 0), (0, "GT", -1, 0), (0, "GE", -1, 0), (5, "GT", 1, 0), (3, "LT", 1, 0),
    (0, "NE", 1, 0), (2, "LT", 1, 7), (-3, "GT", -1, -3)])
def test_loops_that_end_at_once(bound: int, direction: str, step: int, start: int, left: float) -> None:
    """A loop that depends on data is differentiated also where its condition says that it runs once or not at all."""
    computation = xla_torch.parse_hlo(ENDS % (bound, direction, step, start))
    x, direction_of_x = torch.tensor([0.3, 0.5, 0.7]), torch.ones(3)
    runs = 0
    while left - runs > 0 and {"LT": start + runs * step < bound, "LE": start + runs * step <= bound, "NE": start + runs != bound,
                               "GT": start + runs * step > bound, "GE": start + runs * step >= bound}[direction]:
        runs += 1
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    result, want = computation(ours, torch.tensor(left)), functools.reduce(lambda y, _: y.sin(), range(runs), theirs)
    result.sum().backward()
    want.sum().backward()
    torch.testing.assert_close((result.detach(), ours.grad), (want.detach(), theirs.grad))
    _, tangent = xla_torch.jvp(computation, 0)(x, torch.tensor(left), direction_of_x)
    torch.testing.assert_close(tangent, theirs.grad)
