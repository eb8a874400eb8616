"""Gradients along channels: what was received sends its cotangent back, in one process and between participants."""

from __future__ import annotations

import pytest
import torch

import xla_torch
from xla_torch import run_replicas
from xla_torch.distributed import feeds
from xla_torch.errors import DifferentiationError

# What torch says about its own parts when forward mode first runs.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script.*")

X = torch.tensor([0.3, 0.5, 0.7], dtype=torch.float64)
CT = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
T = torch.tensor([0.1, -0.2, 0.3], dtype=torch.float64)
WEIGHTS = [torch.tensor([1.0, 0.5, 0.2], dtype=torch.float64) * (k + 1) for k in range(3)]

TO_ITSELF = """
ENTRY main {
  x = f64[3] parameter(0)
  w = f64[3] parameter(1)
  t = token[] after-all()
  y = f64[3] multiply(x, w)
  s = (f64[3], u32[], token[]) send(y, t), channel_id=7
  sent = token[] send-done(s), channel_id=7
  r = (f64[3], u32[], token[]) recv(sent), channel_id=7
  got = (f64[3], token[]) recv-done(r), channel_id=7
  there = f64[3] get-tuple-element(got), index=0
  ROOT z = f64[3] sine(there)
}
"""

PAIRS = 'frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,2}}"}'
STAGES = f"""HloModule stages, replica_count=3
ENTRY main {{
  x = f64[3] parameter(0)
  w = f64[3] parameter(1)
  t = token[] after-all()
  r = (f64[3], u32[], token[]) recv(t), channel_id=1, {PAIRS}
  got = (f64[3], token[]) recv-done(r), channel_id=1
  there = f64[3] get-tuple-element(got), index=0
  me = u32[] replica-id()
  zero = u32[] constant(0)
  is_first = pred[] compare(me, zero), direction=EQ
  first = pred[3] broadcast(is_first), dimensions={{}}
  given = f64[3] select(first, x, there)
  product = f64[3] multiply(given, w)
  y = f64[3] sine(product)
  after = token[] get-tuple-element(got), index=1
  s = (f64[3], u32[], token[]) send(y, after), channel_id=1, {PAIRS}
  sent = token[] send-done(s), channel_id=1
  two = u32[] constant(2)
  is_last = pred[] compare(me, two), direction=EQ
  last = pred[3] broadcast(is_last), dimensions={{}}
  nothing = f64[] constant(0)
  nothings = f64[3] broadcast(nothing), dimensions={{}}
  ROOT result = f64[3] select(last, y, nothings)
}}
"""
"""Each participant takes what the one before it sent, and only the last has a result."""

ONE_WAY = 'frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1}}"}'
MANY = f"""HloModule many, replica_count=2
body {{
  c = (s64[], f64[], f64[4], f64[]) parameter(0)
  k = s64[] get-tuple-element(c), index=0
  sum = f64[] get-tuple-element(c), index=1
  xs = f64[4] get-tuple-element(c), index=2
  w = f64[] get-tuple-element(c), index=3
  one = s64[] constant(1)
  next = s64[] add(k, one)
  cut = f64[1] dynamic-slice(xs, k), dynamic_slice_sizes={{1}}
  x = f64[] reshape(cut)
  y = f64[] multiply(x, w)
  z = f64[] sine(y)
  t = token[] after-all()
  s = (f64[], u32[], token[]) send(z, t), channel_id=1, {ONE_WAY}
  sent = token[] send-done(s), channel_id=1
  r = (f64[], u32[], token[]) recv(t), channel_id=1, {ONE_WAY}
  got = (f64[], token[]) recv-done(r), channel_id=1
  there = f64[] get-tuple-element(got), index=0
  weighted = f64[] multiply(there, w)
  square = f64[] multiply(weighted, weighted)
  more = f64[] add(sum, square)
  ROOT all = (s64[], f64[], f64[4], f64[]) tuple(next, more, xs, w)
}}
condition {{
  c = (s64[], f64[], f64[4], f64[]) parameter(0)
  k = s64[] get-tuple-element(c), index=0
  four = s64[] constant(4)
  ROOT less = pred[] compare(k, four), direction=LT
}}
ENTRY main {{
  xs = f64[4] parameter(0)
  w = f64[] parameter(1)
  k = s64[] constant(0)
  zero = f64[] constant(0)
  c = (s64[], f64[], f64[4], f64[]) tuple(k, zero, xs, w)
  loop = (s64[], f64[], f64[4], f64[]) while(c), condition=condition, body=body
  ROOT sum = f64[] get-tuple-element(loop), index=1
}}
"""
"""Four values are sent from one participant to the other, one in each iteration."""


def staged(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
    for w in weights:
        x = torch.sin(x * w)
    return x


@pytest.fixture(autouse=True)
def impatient():
    """No one waits long for what does not come, and nothing is left over."""
    feeds.timeout, before = 10.0, feeds.timeout
    yield
    assert all(q.empty() for q in feeds._queues.values())
    feeds.clear()
    feeds.timeout = before


def test_what_a_participant_sends_itself() -> None:
    """By programs, by backward, to second order, and forward."""
    program, want = xla_torch.parse_hlo(TO_ITSELF), lambda x, w: torch.sin(x * w)
    x, w = (v.clone().requires_grad_() for v in (X, WEIGHTS[1]))
    torch.testing.assert_close(list(xla_torch.vjp(program)(X, WEIGHTS[1], CT)), list(torch.autograd.grad(want(x, w), (x, w), CT)))
    torch.testing.assert_close(xla_torch.jvp(program)(X, WEIGHTS[1], CT, T)[1],
                               torch.func.jvp(want, (X, WEIGHTS[1]), (CT, T))[1])
    assert torch.autograd.gradcheck(program, (x, w))
    assert torch.autograd.gradgradcheck(program, (x, w))


def run(program: xla_torch.XlaComputation, *rest: torch.Tensor | list[torch.Tensor]) -> list:
    """The stages' results: each has X, its own weight, and of the rest its own of a list."""
    given = [[X, w, *(r[k] if isinstance(r, list) else r for r in rest)] for k, w in enumerate(WEIGHTS)]
    return run_replicas(program, given, num_replicas=3)


def test_stages_are_walked_back_from_the_last() -> None:
    program, tangents = xla_torch.parse_hlo(STAGES), [w.flip(0) for w in WEIGHTS]
    torch.testing.assert_close(run(program)[2], staged(X, *WEIGHTS))
    x, *weights = leaves = [v.clone().requires_grad_() for v in (X, *WEIGHTS)]
    want = torch.autograd.grad(staged(x, *weights), leaves, CT, create_graph=True)
    derivative = xla_torch.vjp(program)
    found = run(derivative, CT)
    torch.testing.assert_close([found[0][0], *(f[1] for f in found)], list(want))
    along = torch.func.jvp(staged, (X, *WEIGHTS), (T, *tangents))[1]
    torch.testing.assert_close(run(xla_torch.jvp(program), T, tangents)[2][1], along)
    again = run(xla_torch.vjp(derivative), CT, T, tangents)
    wanted = torch.autograd.grad(want, leaves, [T, *tangents])
    torch.testing.assert_close([again[0][0], *(f[1] for f in again)], list(wanted))


def test_the_way_back_is_a_way_of_its_own() -> None:
    """Another channel, its participants in reverse, and only one gradient asked for sends all the same."""
    text = xla_torch.vjp(xla_torch.parse_hlo(STAGES), 1).to_hlo_text()
    assert text.count(" send(") == text.count(" recv(") == 2
    assert text.count('_xla_send_recv_source_target_pairs={{1,0},{2,1}}') == 4
    assert text.count("channel_id=2") == 4


def test_a_channel_in_a_loop() -> None:
    program = xla_torch.parse_hlo(MANY)
    xs, other = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64), torch.ones(4, dtype=torch.float64)
    first, second = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (0.7, 1.5))
    leaf = xs.clone().requires_grad_()
    loss = (torch.sin(leaf * first) * second).square().sum()
    want = torch.autograd.grad(loss, (leaf, first, second))
    (value, (in_xs, in_first)), (total, (in_other, in_second)) = run_replicas(
        xla_torch.value_and_grad(program, (0, 1)), [[xs, first.detach()], [other, second.detach()]], num_replicas=2)
    assert value == 0
    torch.testing.assert_close([total, in_xs, in_first, in_second], [loss.detach(), *want])
    assert not in_other.any()


@pytest.mark.parametrize("ends", [
    """s = (f32[3], u32[], token[]) send(x, t), channel_id=1
  sent = token[] send-done(s), channel_id=1
  ROOT y = f32[3] add(x, x)""",
    """r = (f32[3], u32[], token[]) recv(t), channel_id=2
  got = (f32[3], token[]) recv-done(r), channel_id=2
  there = f32[3] get-tuple-element(got), index=0
  ROOT y = f32[3] multiply(x, there)"""], ids=["send", "recv"])
def test_one_end_alone_is_refused(ends: str) -> None:
    """Who knows what else depends on what is sent, or what is received on what: that is no zero."""
    program = xla_torch.parse_hlo(f"""ENTRY main {{
  x = f32[3] parameter(0)
  t = token[] after-all()
  {ends}
}}""")
    with pytest.raises(DifferentiationError, match=r"(?s)other end of this channel.*cut the program at the channel"):
        xla_torch.vjp(program)


def test_the_host_s_values_are_constants() -> None:
    program = xla_torch.parse_hlo("""ENTRY main {
  x = f64[3] parameter(0)
  t = token[] after-all()
  s = (f64[3], u32[], token[]) send(x, t), channel_id=1, is_host_transfer=true
  sent = token[] send-done(s), channel_id=1, is_host_transfer=true
  r = (f64[3], u32[], token[]) recv(t), channel_id=2, is_host_transfer=true
  got = (f64[3], token[]) recv-done(r), channel_id=2, is_host_transfer=true
  there = f64[3] get-tuple-element(got), index=0
  ROOT y = f64[3] multiply(x, there)
}""")
    feeds.send(2, T)
    torch.testing.assert_close(xla_torch.vjp(program)(X, CT)[0], CT * T)
    torch.testing.assert_close(feeds.receive(1), X)
