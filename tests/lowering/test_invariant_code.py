"""What is the same in each step of a loop is computed before it: what is, and what stays; and that values are those of the
program as it is written, and XLA's."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax import export, lax

import xla_torch
from support.native_programs import native_after
from support.oracle import run_xla
from xla_torch import compile, from_jax
from xla_torch.codegen.compiled import is_available
from xla_torch.core import tuning
from xla_torch.hlo.ir import Computation, reachable
from xla_torch.hlo.regions import is_loop, loop_of
from xla_torch.transform.canonical import canonicalize, is_canonical
from xla_torch.transform.invariant_code import without_invariant_code

CARRY = "(s32[], f32[4,4], f32[4,4], f32[4], s32[])"
READS = """p = CARRY parameter(0)  i = s32[] get-tuple-element(p), index=0  x = f32[4,4] get-tuple-element(p), index=1
  w = f32[4,4] get-tuple-element(p), index=2  v = f32[4] get-tuple-element(p), index=3  n = s32[] get-tuple-element(p), index=4
  zero = f32[] constant(0)  one = s32[] constant(1)  j = s32[] add(i, one)"""
REGIONS = """sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
less { a = f32[] parameter(0)  b = f32[] parameter(1)  c = f32[] parameter(2)  d = f32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=LT }
squares { q = f32[4,4] parameter(0)  ROOT r = f32[4,4] exponential(q) }
same { q = f32[4,4] parameter(0)  ROOT r = f32[4,4] negate(q) }
inner_goes { q = (s32[], f32[4,4], f32[4,4]) parameter(0)  k = s32[] get-tuple-element(q), index=0  m = s32[] constant(3)
  ROOT r = pred[] compare(k, m), direction=LT }
inner { q = (s32[], f32[4,4], f32[4,4]) parameter(0)  k = s32[] get-tuple-element(q), index=0
  y = f32[4,4] get-tuple-element(q), index=1  u = f32[4,4] get-tuple-element(q), index=2  un = s32[] constant(1)
  l = s32[] add(k, un)  c = f32[4,4] cosine(u)  z = f32[4,4] multiply(y, c)
  ROOT r = (s32[], f32[4,4], f32[4,4]) tuple(l, z, u) }
looping { q = f32[4,4] parameter(0)  k = s32[] constant(0)  t = (s32[], f32[4,4], f32[4,4]) tuple(k, q, q)
  w = (s32[], f32[4,4], f32[4,4]) while(t), condition=inner_goes, body=inner  ROOT r = f32[4,4] get-tuple-element(w), index=1 }
"""
PROJECTED = "d = f32[4,4] dot(x, t), lhs_contracting_dims={1}, rhs_contracting_dims={0}  y = f32[4,4] tanh(d)"
INNER = """k = s32[] constant(0)  s = (s32[], f32[4,4], f32[4,4]) tuple(k, x, OF)
  l = (s32[], f32[4,4], f32[4,4]) while(s), condition=inner_goes, body=inner  y = f32[4,4] get-tuple-element(l), index=1"""
BRANCHES = "c = pred[] compare(i, one), direction=LT  " \
           "y = f32[4,4] conditional(c, w, x), true_computation={}, false_computation=same"
X, W, V = (np.random.default_rng(seed).normal(size=dims).astype(np.float32) for seed, dims in enumerate(((4, 4), (4, 4), (4,))))

WHEN = [math.inf, pytest.param(0.0, marks=pytest.mark.skipif(not is_available(), reason="there is no C compiler"))]

ROWS: dict[str, tuple[list[str], str]] = {
    "a function": (["exponential"], "e = f32[4,4] exponential(w)  y = f32[4,4] multiply(x, e)"),
    "the last of a chain": (["multiply"], "e = f32[4,4] exponential(w)  f = f32[4,4] multiply(e, w)  "
                            "y = f32[4,4] multiply(x, f)"),
    "all of a chain that is read": (["exponential", "negate"], "e = f32[4,4] exponential(w)  f = f32[4,4] negate(e)  "
                                    "g = f32[4,4] multiply(x, f)  y = f32[4,4] add(g, e)"),
    "a view with what it is of": (["exponential"], "e = f32[4] exponential(v)  b = f32[4,4] broadcast(e), dimensions={1}  "
                                  "y = f32[4,4] add(x, b)"),
    "arithmetic that grows a little": (["add"], "b = f32[4,4] broadcast(v), dimensions={1}  c = f32[4,4] broadcast(v), "
                                       "dimensions={0}  s = f32[4,4] add(b, c)  y = f32[4,4] multiply(x, s)"),
    "a transposed factor": (["transpose"], f"t = f32[4,4] transpose(w), dimensions={{1,0}}  {PROJECTED}"),
    "a transposed function": (["transpose"], f"e = f32[4,4] sine(w)  t = f32[4,4] transpose(e), dimensions={{1,0}}  {PROJECTED}"),
    "a slice": (["slice"], "s = f32[1,4] slice(w), slice={[2:3], [0:4]}  f = f32[4] reshape(s)  "
                "b = f32[4,4] broadcast(f), dimensions={1}  y = f32[4,4] add(x, b)"),
    "a product": (["dot"], "t = f32[4,4] dot(w, w), lhs_contracting_dims={0}, rhs_contracting_dims={1}  y = f32[4,4] add(x, t)"),
    "a sum": (["reduce"], "s = f32[4] reduce(w, zero), dimensions={0}, to_apply=sum  b = f32[4,4] broadcast(s), dimensions={1}  "
              "y = f32[4,4] add(x, b)"),
    "one of two results": (["get-tuple-element"], "s = (f32[4,4], f32[4,4]) sort(w, w), dimensions={0}, to_apply=less  "
                           "f = f32[4,4] get-tuple-element(s), index=1  y = f32[4,4] add(x, f)"),
    "a mask": (["compare"], "b = f32[4,4] broadcast(zero), dimensions={}  m = pred[4,4] compare(w, b), direction=GT  "
               "y = f32[4,4] select(m, x, b)"),
    "a carry": (["exponential"], "y = f32[4,4] exponential(w)"),
    "what a loop in it does not change": (["cosine"], INNER.replace("OF", "w")),
    "what it changes for a loop in it": ([], INNER.replace("OF", "x")),
    "what changes": ([], "e = f32[4,4] exponential(x)  y = f32[4,4] multiply(w, e)"),
    "views": ([], "b = f32[4,4] broadcast(v), dimensions={0}  f = f32[2,8] reshape(w)  s = f32[4,4] reshape(f)  "
              "a = f32[4,4] add(x, b)  y = f32[4,4] add(a, s)"),
    "constants": ([], "k = f32[4,4] iota(), iota_dimension=0  e = f32[4,4] exponential(k)  y = f32[4,4] multiply(x, e)"),
    "integers that others count with": ([], "m = s32[] add(n, n)  k = s32[] add(m, i)  f = f32[] convert(k)  "
                                        "b = f32[4,4] broadcast(f), dimensions={}  y = f32[4,4] add(x, b)"),
    "what is behind a barrier": ([], "o = f32[4,4] opt-barrier(w)  e = f32[4,4] exponential(o)  y = f32[4,4] multiply(x, e)"),
    "a branch": ([], BRANCHES.format("squares")),
    "a loop in a branch": ([], BRANCHES.format("looping")),
}


def program(work: str, condition: str = "ROOT r = pred[] compare(i, n), direction=LT") -> str:
    """A loop of `n` steps over `x`, the next of which is the `y` of its body, beside `w` and `v`."""
    return f"""HloModule steps
{REGIONS}
body {{ {READS}
  {work}
  ROOT r = CARRY tuple(j, y, w, v, n) }}
goes {{ {READS}
  {condition} }}
ENTRY main {{
  x = f32[4,4] parameter(0)  w = f32[4,4] parameter(1)  v = f32[4] parameter(2)  n = s32[] parameter(3)  i = s32[] constant(0)
  start = CARRY tuple(i, x, w, v, n)  end = CARRY while(start), condition=goes, body=body
  ROOT y = f32[4,4] get-tuple-element(end), index=1 }}""".replace("CARRY", CARRY)


def canonical(text: str) -> Computation:
    return canonicalize(xla_torch.parse_hlo(text).entry)


def leaving(computation: Computation) -> list[str]:
    """The opcodes of what a program's loop is given beyond what it is written with."""
    found = without_invariant_code(computation)
    assert is_canonical(found)
    assert without_invariant_code(found) is found
    before, after = ([i for i in c.instructions if is_loop(i)] for c in (computation, found))
    carries = [loop.operands[0].operands for loop in (*before, *after)]
    return [i.opcode for i in carries[1][len(carries[0]):]]


def check(text: str, given: Sequence[Any]) -> np.ndarray:
    """The program's result, which is XLA's."""
    (found,) = xla_torch.parse_hlo(text).run_numpy(*given)
    np.testing.assert_allclose(found, run_xla(text, *given)[0], 1e-5, 1e-6)
    return found


@pytest.mark.parametrize("row", ROWS)
def test_what_leaves_a_loop(row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    moved, work = ROWS[row]
    text = program(work)
    assert leaving(canonical(text)) == moved
    for steps in (0, 3):
        given = [X, W, V, np.int32(steps)]
        found = check(text, given)
        with monkeypatch.context() as patch:
            patch.setattr(tuning, "WITHOUT_PASSES", frozenset({"invariants"}))
            np.testing.assert_allclose(found, xla_torch.parse_hlo(text).run_numpy(*given)[0], 1e-6, 1e-7)


@pytest.mark.parametrize("work", [
    "zero_1 = f32[] constant(1)  u = f32[4,4] rng(zero, zero_1), distribution=rng_uniform  y = f32[4,4] add(u, w)",
    'c = f32[4,4] custom-call(w), custom_call_target="anything"  y = f32[4,4] add(x, c)',
    "c = f32[4,4] all-reduce(w), replica_groups={}, to_apply=sum  y = f32[4,4] add(x, c)",
    "k = s32[] constant(2)  d = f32[<=4,4] set-dimension-size(w, k), dimensions={0}  s = f32[4] reduce(d, zero), dimensions={0}, "
    "to_apply=sum  b = f32[4,4] broadcast(s), dimensions={1}  y = f32[4,4] add(x, b)",
])
def test_what_draws_exchanges_or_may_fail_stays(work: str) -> None:
    assert leaving(canonical(program(work))) == []


@pytest.mark.parametrize(("limit", "work"), [
    ("INVARIANT_UP_TO", "b = f32[4,4] broadcast(v), dimensions={1}  c = f32[4,4] broadcast(v), dimensions={0}  "
                        "m = f32[4,4] multiply(b, c)  e = f32[4,4] exponential(m)  y = f32[4,4] multiply(x, e)"),
    ("INVARIANT_ARITHMETIC_UP_TO", ROWS["arithmetic that grows a little"][1]),
])
def test_what_is_larger_than_what_it_is_made_of(limit: str, work: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for most in (15, 16):
        monkeypatch.setattr(tuning, limit, most)
        monkeypatch.setattr(tuning, "INVARIANT_ARITHMETIC_UP_TO", most)
        assert bool(leaving(canonical(program(work)))) == (most == 16)


def test_the_condition_is_looked_at_too() -> None:
    text = program("y = f32[4,4] add(x, w)", """s = f32[] reduce(w, zero), dimensions={0,1}, to_apply=sum
  m = f32[] reduce(x, zero), dimensions={0,1}, to_apply=sum  c = pred[] compare(m, s), direction=LT
  d = pred[] compare(i, n), direction=LT  ROOT r = pred[] and(c, d)""")
    assert leaving(canonical(text)) == ["reduce"]
    given = [X, np.abs(W), V, np.int32(9)]
    check(text, given)


def test_what_two_loops_share_leaves_both() -> None:
    found = without_invariant_code(canonical(program(INNER.replace("OF", "w"))))
    bodies = [c for c in reachable([found]) if c is not found]
    assert [i.opcode for i in found.instructions].count("cosine") == 1
    assert not any(i.opcode == "cosine" for c in bodies for i in c.instructions)


def test_a_loop_in_a_branch_is_left_into_the_branch() -> None:
    found = without_invariant_code(canonical(program(ROWS["a loop in a branch"][1])))
    where = [c.name for c in reachable([found]) for i in c.instructions if i.opcode == "cosine"]
    assert where == ["looping"]


def test_loops_of_one_step_at_most_stay() -> None:
    for steps, moved in ((0, []), (1, []), (2, ["exponential"])):
        text = program(ROWS["a function"][1], f"k = s32[] constant({steps})  ROOT r = pred[] compare(i, k), direction=LT")
        assert leaving(canonical(text)) == moved
        given = [X, W, V, np.int32(0)]
        check(text, given)


def test_loops_that_are_alike_share_their_computations() -> None:
    text = program(ROWS["a function"][1]).replace("  ROOT y = f32[4,4] get-tuple-element(end), index=1", """
  again = CARRY while(end), condition=goes, body=body
  ROOT y = f32[4,4] get-tuple-element(again), index=1""".replace("CARRY", CARRY))
    found = without_invariant_code(canonical(text))
    one, other = (i for i in found.instructions if is_loop(i))
    assert is_canonical(found)
    assert all(i.operands[0].is_tuple for i in (one, other))
    assert [loop_of(i).body.root.operands[-1].is_element for i in (one, other)] == [True, True]
    given = [X, W, V, np.int32(2)]
    check(text, given)


@pytest.mark.parametrize("seconds", WHEN)
def test_what_leaves_is_not_written_over_where_a_carry_begins_with_it(seconds: float, tmp_path: Path) -> None:
    text = program("e = f32[4,4] exponential(w)  u = f32[1,4] slice(e), slice={[1:2], [0:4]}  "
                   "z = f32[4,4] dynamic-update-slice(x, u, i, i)  y = f32[4,4] multiply(z, e)")
    text = text.replace("tuple(i, x, w, v, n)", "tuple(i, first, w, v, n)").replace(
        "  v = f32[4] parameter(2)", "  first = f32[4,4] exponential(w)  v = f32[4] parameter(2)")
    with native_after(seconds, tmp_path):
        check(text, [X, W, V, np.int32(3)])


def state_space(a: Any, dt: Any, w: Any, xs: Any) -> Any:
    def step(h: Any, x: Any) -> tuple[Any, Any]:
        h = jnp.exp(a * dt[:, None]) * h + x[:, None] * dt[:, None]
        return h, jnp.tanh(h @ w.T).sum(1)

    return lax.scan(step, jnp.zeros(a.shape), xs)[1]


def drawn(*dims: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=dims).astype(np.float32)


STATES = [-np.abs(drawn(6, 4)), np.abs(drawn(6, seed=1)), drawn(5, 4, seed=2), drawn(20, 6, seed=3)]


@pytest.mark.parametrize("seconds", WHEN)
def test_gradients_of_a_scan(seconds: float, tmp_path: Path) -> None:
    """The way back has loops of its own, and is written before anything moves."""
    back = drawn(20, 6, seed=4)
    with native_after(seconds, tmp_path), jax.enable_x64(False):
        want, pull = jax.vjp(state_space, *STATES)
        ours = from_jax(state_space, *STATES)
        given = [torch.tensor(a, requires_grad=True) for a in STATES]
        found = ours(*given)
        found.backward(torch.tensor(back))
        grads = pull(back)
    np.testing.assert_allclose(found.detach().numpy(), want, 1e-4, 1e-5)
    for leaf, grad in zip(given, grads, strict=True):
        assert leaf.grad is not None
        np.testing.assert_allclose(leaf.grad.numpy(), grad, 1e-3, 1e-4)


def test_steps_of_torch_make_no_call_for_what_has_left(tmp_path: Path) -> None:
    with native_after(math.inf, tmp_path):
        lowered = from_jax(state_space, *STATES).lowered()
    bodies = [m for name, m in lowered.named_modules() if name.endswith("_body")]
    assert bodies
    assert not any(node.target is torch.exp for body in bodies for node in body.graph.nodes)
    assert any(node.target is torch.exp for node in lowered.graph.nodes)


WAYS: dict[str, Callable[[Any], Any]] = {"torch's own graphs": lambda p: torch.compile(p, backend="eager"),
                                         "inductor": lambda p: compile(p, "inductor")}


@pytest.mark.parametrize("way", ["torch's own graphs", pytest.param("inductor", marks=pytest.mark.slow)])
def test_other_ways_to_run(way: str) -> None:
    with jax.enable_x64(False):
        found = WAYS[way](from_jax(state_space, *STATES))(*map(torch.tensor, STATES))
        np.testing.assert_allclose(found.numpy(), state_space(*STATES), 1e-4, 1e-5)


def test_sizes_that_stand_for_many() -> None:
    n, m = export.symbolic_shape("n, m")
    shapes = [jax.ShapeDtypeStruct(s, np.float32) for s in ((n, m), (n,), (5, m), (20, n))]
    with jax.enable_x64(False):
        ours = xla_torch.from_exported(export.export(jax.jit(state_space))(*shapes))
        for sizes in ((6, 4), (3, 2), (1, 1)):
            given = [-np.abs(drawn(*sizes)), np.abs(drawn(sizes[0])), drawn(5, sizes[1]), drawn(20, sizes[0])]
            np.testing.assert_allclose(ours(*map(torch.tensor, given)).numpy(), state_space(*given), 1e-4, 1e-5)
