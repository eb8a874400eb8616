"""Loops: what is known of them before they run, and their gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import xla_torch
from support.counting import Counted
from support.jax_oracle import check_gradients, program, to_torch
from support.oracle import HAS_XLA, needs_xla, run_xla
from xla_torch.analysis.loops import counted_loop, invariant_carries
from xla_torch.hlo.ir import Computation, Instruction
from xla_torch.transform.canonical import canonicalize

if HAS_XLA:
    import jax
    import jax.numpy as jnp
    from jax import lax


# ------------------------------------------------------------------------------------------------ what is known


def loop_text(start: int = 0, step: int = 1, bound: int = 24, direction: str = "LT", element_type: str = "s32",
              condition: str = "compare(i, n)", change: str = "add(i, one)", config: str = "") -> str:
    """A loop over (counter, vector, bound), and a call and a fusion to write its parts with."""
    t = element_type
    carry = f"({t}[], f32[4], {t}[])"
    return f"""HloModule loop
compare_call {{
  a = {t}[] parameter(0)
  b = {t}[] parameter(1)
  ROOT r = pred[] compare(a, b), direction={direction}
}}
add_call {{
  a = {t}[] parameter(0)
  b = {t}[] parameter(1)
  ROOT r = {t}[] add(a, b)
}}
condition {{
  p = {carry} parameter(0)
  i = {t}[] get-tuple-element(p), index=0
  n = {t}[] get-tuple-element(p), index=2
  limit = {t}[] constant({bound})
  ROOT r = pred[] {condition.replace("DIRECTION", direction)}
}}
body {{
  p = {carry} parameter(0)
  i = {t}[] get-tuple-element(p), index=0
  x = f32[4] get-tuple-element(p), index=1
  n = {t}[] get-tuple-element(p), index=2
  one = {t}[] constant({step})
  c = {t}[] copy(i)
  b = {t}[] opt-barrier(i)
  next = {t}[] {change}
  ROOT r = {carry} tuple(next, x, n)
}}
ENTRY main {{
  x = f32[4] parameter(0)
  start = {t}[] constant({start})
  bound = {t}[] constant({bound})
  init = {carry} tuple(start, x, bound)
  ROOT w = {carry} while(init), condition=condition, body=body{config}
}}
"""


def the_loop(computation: Computation) -> Instruction:
    return next(i for i in computation.instructions if i.opcode == "while")


COMPARE = "compare(i, n), direction=DIRECTION"
KNOWN = '{"known_trip_count":{"n":"%d"}}'
COUNTED = [
    # what is special, arguments of loop_text, (start, step, trip count) or None
    ("plain", {}, (0, 1, 24)),
    ("LE with steps of two", {"step": 2, "bound": 5, "direction": "LE"}, (0, 2, 3)),
    ("down", {"start": 10, "step": -3, "bound": 0, "direction": "GT"}, (10, -3, 4)),
    ("down to and with", {"start": 9, "step": -3, "bound": 0, "direction": "GE"}, (9, -3, 4)),
    ("NE that is hit", {"step": 3, "bound": 9, "direction": "NE"}, (0, 3, 3)),
    ("NE that is missed", {"step": 3, "bound": 10, "direction": "NE"}, None),
    ("EQ holds once", {"start": 7, "bound": 7, "direction": "EQ"}, (7, 1, 1)),
    ("never", {"start": 30}, (30, 1, 0)),
    ("for ever", {"step": 0}, None),
    ("wrong way", {"step": -1}, None),
    ("wraps around", {"element_type": "s8", "bound": 127, "direction": "LE"}, None),
    ("just fits", {"element_type": "s8", "bound": 127}, (0, 1, 127)),
    ("unsigned", {"element_type": "u32"}, (0, 1, 24)),
    ("unsigned down", {"element_type": "u8", "start": 5, "step": 255, "bound": 0, "direction": "GT"}, (5, -1, 5)),
    ("constant bound", {"condition": "compare(i, limit), direction=DIRECTION"}, (0, 1, 24)),
    ("mirrored", {"condition": "compare(limit, i), direction=GT"}, (0, 1, 24)),
    ("called condition", {"condition": "call(i, limit), to_apply=compare_call"}, (0, 1, 24)),
    ("fused condition", {"condition": "fusion(i, n), kind=kLoop, calls=compare_call"}, (0, 1, 24)),
    ("fused step of a copy", {"change": "fusion(c, one), kind=kLoop, calls=add_call"}, (0, 1, 24)),
    ("behind a barrier", {"change": "add(b, one)"}, (0, 1, 24)),
    ("step first", {"change": "add(one, i)"}, (0, 1, 24)),
    ("subtracted", {"start": 24, "bound": 0, "direction": "GT", "change": "subtract(i, one)"}, (24, -1, 24)),
    ("multiplied", {"start": 1, "step": 2, "change": "multiply(i, one)"}, None),
    ("constant minus counter", {"change": "subtract(one, i)"}, None),
    ("XLA agrees", {"config": f", backend_config={KNOWN % 24}"}, (0, 1, 24)),
    ("XLA does not agree", {"config": f", backend_config={KNOWN % 23}"}, None),
]


def test_counters_are_followed_through_barriers():
    """Around whole carries, as `jax.checkpoint` writes them: before the loop, at its body's ends and in its condition."""
    carry = "(s32[], f32[4], s32[])"
    text = loop_text(condition=COMPARE)
    for whole in (f"  init = {carry} tuple(start, x, bound)", f"  ROOT r = {carry} tuple(next, x, n)"):
        name = whole.removeprefix("  ").removeprefix("ROOT ").split()[0]
        text = text.replace(whole, whole.replace("ROOT ", "").replace(f"{name} =", "made =") + "\n"
                            + f"  {'ROOT ' if 'ROOT' in whole else ''}{name} = {carry} opt-barrier(made)")
    text = text.replace(f"  p = {carry} parameter(0)", f"  given = {carry} parameter(0)\n  p = {carry} opt-barrier(given)")
    assert text.count("opt-barrier(made)") == text.count("opt-barrier(given)") == 2
    program = xla_torch.parse_hlo(text)
    for computation in (program.entry, canonicalize(program.entry)):
        found = counted_loop(the_loop(computation))
        assert found is not None
        assert (found.index, found.start, found.step, found.trip_count) == (0, 0, 1, 24)
        assert found.invariants == {1, 2}
    assert program(torch.ones(4))[0].item() == 24


@pytest.mark.parametrize(("settings", "want"), [row[1:] for row in COUNTED], ids=[row[0] for row in COUNTED])
def test_counted_loop(settings, want):
    settings = {"condition": COMPARE} | settings
    entry = xla_torch.parse_hlo(loop_text(**settings)).entry
    for computation in (entry, canonicalize(entry)):
        found = counted_loop(the_loop(computation))
        if "XLA" not in str(want) and computation is not entry and "config" in settings:
            continue  # what XLA noted is not kept in plain form
        assert (found and (found.start, found.step, found.trip_count)) == want
        assert found is None or (found.index == 0 and found.invariants == {1, 2})


def test_invariants_are_known_without_a_trip_count():
    entry = xla_torch.parse_hlo(loop_text(step=0, condition=COMPARE)).entry
    assert invariant_carries(the_loop(entry)) == {1, 2}


# ------------------------------------------------------------------------------------------------ gradients

R = np.random.RandomState(0)
W, B, H, XS = R.randn(3, 3), R.randn(3), R.randn(2, 3), R.randn(5, 2, 3)


def rnn(w, b, h, xs):
    def step(h, x):
        h = jnp.tanh(h @ w + x + b)
        return h, h * 2

    return lax.scan(step, h, xs)


def lstm(w, b, h, xs):
    def step(carry, x):
        h, c = carry
        f, i, o = (jax.nn.sigmoid(x @ w + h * k + b) for k in (1.0, 2.0, 3.0))
        c = f * c + i * jnp.tanh(h)
        return (o * jnp.tanh(c), c), (h, c.sum())

    return lax.scan(step, (h, h), xs)


def reverse_scan(w, b, h, xs):
    return lax.scan(lambda h, x: (jnp.sin(h @ w) * x, h), h, xs, reverse=True)


def nested(w, b, h, xs):
    def outer(h, x):
        def inner(g, y):
            g = jnp.tanh(g * y + x[0] @ w)
            return g, g * b

        g, ys = lax.scan(inner, h[0], x)
        return h * g + ys.sum(0), ys

    return lax.scan(outer, h, xs)


def branch_inside(w, b, h, xs):
    def step(carry, x):
        i, h = carry
        h = lax.cond(i % 2 == 0, lambda h, x: jnp.sin(h) * x, lambda h, x: h @ w + x, h, x)
        return (i + 1, h), h

    return lax.scan(step, (0, h), xs)


def integers_inside(w, b, h, xs):
    def step(carry, x):
        h, count, key = carry
        key = key * jnp.uint32(1664525) + jnp.uint32(1013904223)
        keep = (key >> 16) % 2 == 0
        return (jnp.where(keep, jnp.tanh(h + x), h * x), count + keep, key), count

    return lax.scan(step, (h, 0, jnp.uint32(7)), xs)


def counting(w, b, h, xs):
    return lax.fori_loop(2, 9, lambda i, h: jnp.cos(h) * i + b, h)


def unused_carry(w, b, h, xs):
    return lax.scan(lambda c, x: ((c[0] * x, c[1] @ w), None), (h, h), xs)[0][0]


def turning_carries(w, b, h, xs):
    return lax.scan(lambda c, x: ((c[1] * x, c[2] @ w, c[0] + b), None), (h, h * 2, h * 3), xs)[0]


def checkpointed(w, b, h, xs):
    step = jax.checkpoint(lambda h, x: (jnp.tanh(h @ w + x), jnp.sin(h)))
    return lax.scan(step, h, xs)


def no_iterations(w, b, h, xs):
    return lax.fori_loop(3, 3, lambda i, h: h * b, h)


def invariant_arithmetic(w, b, h, xs):
    return lax.fori_loop(0, 4, lambda i, h: h @ jnp.tanh(w) + jnp.exp(xs[i]) * jnp.exp(b), h)


def buffer_in_place(w, b, h, xs):
    def step(i, buffer):
        row = jnp.tanh(buffer[i] @ w)
        return buffer.at[i + 1].set(row * xs[i])

    return lax.fori_loop(0, 4, step, jnp.concatenate([h[None], xs[1:] * 0 + b]))


def second_derivative(w, b, h, xs):
    return jax.grad(lambda h: rnn(w, b, h, xs)[0].sum() ** 2)(h)


LOOPS = [
    rnn, lstm, reverse_scan, nested, branch_inside, integers_inside, counting, unused_carry,
    turning_carries, checkpointed, no_iterations, invariant_arithmetic, buffer_in_place, second_derivative,
]


@needs_xla
@pytest.mark.parametrize("function", LOOPS, ids=lambda f: f.__name__)
def test_gradient_of_a_loop_is_jax_s(function):
    check_gradients(function, (W, B, H, XS))


def counting_down(w, h, xs):
    return 9, -2, lambda i, h: jnp.tanh(h @ w) * xs[i // 2] + i


def unsigned_counter(w, h, xs):
    return np.uint8(0), 1, lambda i, h: jnp.sin(h @ w) * xs[i]


@needs_xla
@pytest.mark.parametrize("loop", [counting_down, unsigned_counter], ids=lambda f: f.__name__)
def test_gradient_of_a_while_that_jax_does_not_differentiate(loop):
    def function(w, h, xs):
        start, step, change = loop(w, h, xs)
        holds = (lambda c: c[0] > 0) if step < 0 else (lambda c: c[0] < 5)
        return lax.while_loop(holds, lambda c: (c[0] + step, change(c[0], c[1])), (start, h))[1].sum()

    def unrolled(w, h, xs):
        start, step, change = loop(w, h, xs)
        for i in range(int(start), 0 if step < 0 else 5, step):
            h = change(i, h)
        return h.sum()

    found = xla_torch.grad(program(function, W, H, XS), (0, 1, 2))(*map(to_torch, (W, H, XS)))
    for ours, theirs in zip(found, jax.grad(unrolled, (0, 1, 2))(W, H, XS), strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-9, atol=1e-12)


@needs_xla
def test_gradient_of_an_optimised_dump():
    text = jax.jit(rnn).lower(W, B, H, XS).compile().as_text()
    assert text is not None
    computation = xla_torch.parse_hlo(text)
    want = jax.grad(lambda w: rnn(w, B, H, XS)[0].sum())(W)
    _, (found,) = xla_torch.value_and_grad(computation, (0,))(*map(to_torch, (W, B, H, XS)))
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-9)


def opcodes(computation: Computation) -> list[str]:
    return [i.opcode for i in computation.instructions]


@needs_xla
def test_only_what_the_way_back_reads_is_stacked():
    def function(w, xs):  # needs tanh's result for each step; the rows of xs, w and the counter are there anyway
        return lax.scan(lambda h, x: (jnp.tanh(x * w), x * 3), jnp.zeros(3), xs)

    entry = xla_torch.grad(program(function, B, XS[:, 0])).entry
    forward = the_loop(entry)
    stacks = [s for s in forward.shape.tuple_shapes if s.dimensions == (5, 3)]
    assert len(stacks) <= 3  # xs, the scan's own result, at most one stack


@needs_xla
def test_what_does_not_change_is_not_stacked():
    def function(w, h):
        return lax.fori_loop(0, 6, lambda i, h: h * jnp.exp(jnp.tanh(jnp.sin(w) @ w)), h)

    check_gradients(function, (W, H[:1] * W))
    loops = [i for i in xla_torch.vjp(program(function, W, H[:1] * W)).entry.instructions if i.opcode == "while"]
    stacks = {s for loop in loops for s in loop.shape.tuple_shapes if len(s.dimensions) == 3}
    assert [str(s) for s in stacks] == ["f64[6,3,3]"]  # of h alone
    assert sum(s.dimensions == (6, 3, 3) for s in loops[0].shape.tuple_shapes) == 1


@needs_xla
def test_a_data_dependent_loop_off_the_active_path_does_not_matter():
    def function(x, n):
        steps = lax.while_loop(lambda n: n < 100, lambda n: n * 2, n)
        return jnp.sin(x) * steps

    check_gradients(function, (B, np.int32(3)))


@needs_xla
def test_a_scan_over_n_rows_costs_order_n():
    def function(h, xs):
        return lax.scan(lambda h, x: (h * 0.5 + x, h), h, xs)

    def bytes_made(rows: int) -> int:
        arguments = (np.ones(8), np.ones((rows, 8)))
        derivative = xla_torch.vjp(program(function, *arguments))
        tensors = [to_torch(a) for a in (*arguments, *arguments)]
        return Counted.of(derivative, *tensors).made

    assert bytes_made(1000) < 8.5 * bytes_made(125)


@needs_xla
def test_gradient_of_a_gradient_through_a_loop():
    computation = program(lambda w, h, xs: rnn(w, B, h, xs)[0].sum(), W, H, XS)
    twice = xla_torch.grad(xla_torch.grad(computation, 0), 0)
    want = jax.grad(lambda w: jax.grad(lambda w: rnn(w, B, H, XS)[0].sum())(w).sum())(W)
    arguments = (W, H, XS)
    np.testing.assert_allclose(twice(*map(to_torch, arguments)).numpy(), want, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(run_xla(twice.to_hlo_text(), *arguments)[0], want, rtol=1e-8, atol=1e-9)


@needs_xla
def test_double_backward_through_a_scan():
    computation = program(lambda w, xs: rnn(w, B, H, xs), W, XS)
    torch.autograd.gradgradcheck(computation, (
        to_torch(W).requires_grad_(), to_torch(XS[:2].repeat(3, 0)[:5]).requires_grad_()), fast_mode=True)


@pytest.mark.parametrize("opcode", ["select(c, x, b)", "select(c, b, x)", "maximum(x, b)", "and(b, x)"])
def test_large_arrays_beside_a_counter(opcode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A counter is a number, which not every call of torch's takes that writes over an array."""
    text = f"""HloModule m
body {{
  p = (s32[], s32[600000]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = s32[600000] get-tuple-element(p), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  b = s32[600000] broadcast(next), dimensions={{}}
  c = pred[600000] compare(b, x), direction=GT
  y = s32[600000] {opcode}
  ROOT out = (s32[], s32[600000]) tuple(next, y)
}}
condition {{
  p = (s32[], s32[600000]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3)
  ROOT less = pred[] compare(i, n), direction=LT
}}
ENTRY e {{
  x = s32[600000] parameter(0)
  z = s32[] constant(0)
  t = (s32[], s32[600000]) tuple(z, x)
  w = (s32[], s32[600000]) while(t), condition=condition, body=body
  ROOT r = s32[600000] get-tuple-element(w), index=1
}}"""
    x = np.arange(600000, dtype="i4")
    np.testing.assert_array_equal(xla_torch.parse_hlo(text).run_numpy(x)[0], run_xla(text, x)[0])
