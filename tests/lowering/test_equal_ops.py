"""Ops that are the same run once: which are, which are not, and that values, gradients and memory are those of the program as it
is written."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import xla_torch
from support.oracle import run_xla
from xla_torch import from_jax
from xla_torch.api.custom_calls import unregister_custom_call
from xla_torch.core import tuning

REGIONS = """add1 { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
add2 { c = f32[] parameter(0)  d = f32[] parameter(1)  ROOT s = f32[] add(c, d) }
less { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] subtract(a, b) }
more { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] subtract(b, a) }
body1 { p = (s32[], f32[4]) parameter(0)  i = s32[] get-tuple-element(p), index=0  v = f32[4] get-tuple-element(p), index=1
  one = s32[] constant(1)  j = s32[] add(i, one)  w = f32[4] sine(v)  ROOT r = (s32[], f32[4]) tuple(j, w) }
body2 { q = (s32[], f32[4]) parameter(0)  k = s32[] get-tuple-element(q), index=0  z = f32[4] get-tuple-element(q), index=1
  un = s32[] constant(1)  n = s32[] add(k, un)  y = f32[4] sine(z)  ROOT r = (s32[], f32[4]) tuple(n, y) }
drawing { p = (s32[], f32[4]) parameter(0)  i = s32[] get-tuple-element(p), index=0  one = s32[] constant(1)
  j = s32[] add(i, one)  l = f32[] constant(0)  h = f32[] constant(1)  u = f32[4] rng(l, h), distribution=rng_uniform
  ROOT r = (s32[], f32[4]) tuple(j, u) }
goes { p = (s32[], f32[4]) parameter(0)  i = s32[] get-tuple-element(p), index=0  n = s32[] constant(20)
  ROOT r = pred[] compare(i, n), direction=LT }
"""
X = np.array([0.5, -1.5, 2.25, -0.0], np.float32)
Y = np.array([[1, -2, 3, 4], [5, 6, -7, 8], [9, 1, 2, -3], [0.5, 0.25, 4, 2]], np.float32)


def program(lines: str) -> str:
    """Of `x` and `y`, with results `a` and `b`."""
    shapes = [found[1] for name in "ab" if (found := re.search(rf"\b{name} = (\w+\[[\d,]*\])", lines))]
    return (f"HloModule same\n{REGIONS}ENTRY main {{\n  x = f32[4] parameter(0)\n  y = f32[4,4] parameter(1)\n"
            f"  zero = f32[] constant(0)\n  {lines}\n  ROOT r = ({', '.join(shapes)}) tuple(a, b)\n}}")


def count(text: str, opcode: str) -> int:
    """The instructions of an opcode that stand in the lowered program."""
    nodes = xla_torch.parse_hlo(text).lowered().graph.nodes
    return len({id(n.meta["hlo"]) for n in nodes if "hlo" in n.meta and n.meta["hlo"].opcode == opcode})


START = "start = (s32[], f32[4]) tuple(i, x)"
LOOPS = f"""i = s32[] constant(0)  {START}
  l = (s32[], f32[4]) while(start), condition=goes, body=body1  a = f32[4] get-tuple-element(l), index=1
  m = (s32[], f32[4]) while(start), condition=goes, body=BODY  b = f32[4] get-tuple-element(m), index=1"""


EIGEN = 'custom-call(s), custom_call_target="lapack_ssyevd_ffi", api_version=API_VERSION_TYPED_FFI, backend_config='
VALUES = """t = f32[4,4] transpose(y), dimensions={1,0}  s = f32[4,4] add(y, t)
  e = (f32[4,4], f32[4], s32[]) EIGEN{CONFIG}  a = f32[4] get-tuple-element(e), index=1
  f = (f32[4,4], f32[4], s32[]) EIGEN{OTHER}  b = f32[4] get-tuple-element(f), index=1""".replace("EIGEN", EIGEN)
LOWER, UPPER = "{mode = 86 : ui8, uplo = 76 : ui8}", "{mode = 86 : ui8, uplo = 85 : ui8}"


@pytest.mark.parametrize(("opcode", "often", "lines"), [
    ("custom-call", 1, VALUES.replace("{CONFIG}", LOWER).replace("{OTHER}", LOWER)),
    ("custom-call", 2, VALUES.replace("{CONFIG}", LOWER).replace("{OTHER}", UPPER)),
    ("sine", 1, "a = f32[4] sine(x)  b = f32[4] sine(x)"),
    ("sine", 1, 'a = f32[4] sine(x), metadata={op_name="one"}  b = f32[4] sine(x), metadata={op_name="other"}'),
    ("sine", 1, "a = f32[4] sine(x)  b = f32[4] sine(x), sharding={replicated}"),
    ("tanh", 1, "s = f32[4] sine(x)  t = f32[4] sine(x)  a = f32[4] tanh(s)  b = f32[4] tanh(t)"),
    ("add", 2, "a = f32[4] add(x, x)  s = f32[4] sine(x)  b = f32[4] add(x, s)"),
    ("add", 1, "c = f32[4] constant({1, 2, 3, 4})  d = f32[4] constant({1, 2, 3, 4})  a = f32[4] add(x, c)  "
               "b = f32[4] add(x, d)"),
    ("divide", 2, "c = f32[4] constant({0, 0, 0, 1})  d = f32[4] constant({-0.0, 0, 0, 1})  a = f32[4] divide(x, c)  "
                  "b = f32[4] divide(x, d)"),
    ("divide", 2, "c = f32[] constant(0)  d = f32[] constant(-0.0)  e = f32[4] broadcast(c), dimensions={}  "
                  "f = f32[4] broadcast(d), dimensions={}  a = f32[4] divide(x, e)  b = f32[4] divide(x, f)"),
    ("add", 1, "c = f32[] constant(2)  d = f32[] add(c, c)  e = f32[] constant(4)  f = f32[4] broadcast(d), dimensions={}  "
               "g = f32[4] broadcast(e), dimensions={}  a = f32[4] add(x, f)  "
               "b = f32[4] add(x, g)"),
    ("reduce", 1, "a = f32[4] reduce(y, zero), dimensions={1}, to_apply=add1  b = f32[4] reduce(y, zero), dimensions={1}, "
                  "to_apply=add2"),
    ("reduce", 2, "a = f32[4] reduce(y, zero), dimensions={1}, to_apply=add1  b = f32[4] reduce(y, zero), dimensions={0}, "
                  "to_apply=add2"),
    ("reduce", 2, "a = f32[4] reduce(y, zero), dimensions={1}, to_apply=less  b = f32[4] reduce(y, zero), dimensions={1}, "
                  "to_apply=more"),
    ("convert", 2, "a = f16[4] convert(x)  b = bf16[4] convert(x)"),
    ("while", 1, LOOPS.replace("BODY", "body2")),
    ("while", 2, LOOPS.replace("BODY", "body1").replace("m = (s32[], f32[4]) while(start)",
                                                        "neg = f32[4] negate(x)  t = (s32[], f32[4]) tuple(i, neg)  "
                                                        "m = (s32[], f32[4]) while(t)")),
    ("sine", 2, "g = f32[4] opt-barrier(x)  h = f32[4] opt-barrier(x)  a = f32[4] sine(x)  b = f32[4] sine(g)"),
    ("rng-bit-generator", 1, "k = u64[2] constant({1, 2})  o = (u64[2], u32[8]) rng-bit-generator(k), algorithm=rng_three_fry  "
                             "p = (u64[2], u32[8]) rng-bit-generator(k), algorithm=rng_three_fry  "
                             "a = u32[8] get-tuple-element(o), index=1  b = u32[8] get-tuple-element(p), index=1"),
])
def test_what_is_the_same(opcode: str, often: int, lines: str) -> None:
    text = program(lines)
    found, want = xla_torch.parse_hlo(text)(torch.from_numpy(X), torch.from_numpy(Y)), run_xla(text, X, Y)
    for one, other in zip(found, want, strict=True):
        np.testing.assert_allclose(one.float().numpy(), np.asarray(other, np.float32), rtol=1e-6)
    assert found[0].data_ptr() != found[1].data_ptr()
    if opcode == "sine" and "barrier" in lines:
        return  # a barrier is nothing in torch; that it stays one is asked of the table below
    assert count(text, opcode) == often


@pytest.mark.parametrize(("opcode", "lines"), [
    ("rng", "h = f32[] constant(1)  a = f32[4] rng(zero, h), distribution=rng_uniform  b = f32[4] rng(zero, h), "
            "distribution=rng_uniform"),
    ("while", LOOPS.replace("BODY", "drawing").replace("body1", "drawing")),
    ("custom-call", 'a = f32[4] custom-call(x), custom_call_target="counted"  b = f32[4] custom-call(x), '
                    'custom_call_target="counted"'),
    ("all-reduce", "a = f32[4] all-reduce(x), replica_groups={}, to_apply=add1  b = f32[4] all-reduce(x), replica_groups={}, "
                   "to_apply=add1"),
])
def test_what_is_done_as_often_as_it_is_written(opcode: str, lines: str) -> None:
    calls: list[int] = []

    def counted(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x + len(calls)

    xla_torch.register_custom_call("counted", counted)
    try:
        text = program(lines)
        assert count(text, opcode) == 2
        a, b = xla_torch.parse_hlo(text)(torch.from_numpy(X), torch.from_numpy(Y))
        assert torch.equal(a, b) == (opcode == "all-reduce")
    finally:
        unregister_custom_call("counted")


def test_the_first_of_equal_ops_stands_for_all_and_the_program_s_text_stays() -> None:
    text = program('a = f32[4] sine(x), metadata={op_name="one"}  b = f32[4] sine(x), metadata={op_name="other"}')
    computation = xla_torch.parse_hlo(text)
    (node,) = [n for n in computation.lowered().graph.nodes if "hlo" in n.meta and n.meta["hlo"].opcode == "sine"]
    assert node.meta["hlo"].op_name == "one"
    assert computation.to_hlo_text().count("sine(") == 4  # two in the entry, and in the loops' bodies


def quotients(x: jax.Array, y: jax.Array | int) -> tuple[jax.Array, jax.Array]:
    return x // y, x % y


@pytest.mark.parametrize(("dtype", "other", "often"), [
    (np.int32, 7, 1), (np.uint8, 7, 1), (np.float32, 7, 1), (np.uint8, None, 1), (np.float32, None, 1),
    (np.int32, None, 2),  # of JAX's `%`, zeros among the divisors are ones first
])
def test_quotients_and_remainders_share_theirs(dtype: type, other: int | None, often: int) -> None:
    x = np.arange(24).astype(dtype) * 3
    y = (np.arange(24) % 5 + 1).astype(dtype)
    if np.dtype(dtype).kind != "u":
        x, y = x - 30, y * np.where(np.arange(24) % 2, -1, 1).astype(dtype)
    given = (x, y) if other is None else (x,)
    function = quotients if other is None else lambda x: quotients(x, other)
    computation = from_jax(function, *given)
    for one, want in zip(computation(*map(torch.from_numpy, given)), jax.jit(function)(*given), strict=True):
        np.testing.assert_array_equal(one.numpy(), np.asarray(want))
    nodes = computation.computation.lowered().graph.nodes
    assert len({id(n.meta["hlo"]) for n in nodes if "hlo" in n.meta and n.meta["hlo"].opcode == "remainder"}) == often


def test_gradients_of_what_is_shared() -> None:
    def function(x: jax.Array) -> jax.Array:
        return jnp.sum(jnp.sin(x) * jnp.exp(x) + jnp.exp(x) * jax.lax.fori_loop(0, 3, lambda _, c: jnp.sin(c) + jnp.sin(c), x))

    x = torch.from_numpy(X).requires_grad_()
    from_jax(function, X)(x).backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad, jax.grad(function)(X), rtol=1e-5)


def test_equal_first_carries_are_apart_once_a_loop_writes_to_one() -> None:
    def function(x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        def step(i: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            return jax.lax.dynamic_update_index_in_dim(carry[0], x[0], i, 0), carry[1] + carry[0]

        start = jnp.sin(x) + 1
        return *jax.lax.fori_loop(0, 4, step, (start, jnp.sin(x) + 1)), start

    for one, want in zip(from_jax(function, X)(torch.from_numpy(X)), jax.jit(function)(X), strict=True):
        np.testing.assert_allclose(one, want, rtol=1e-5)


def test_the_steps_of_a_loop_that_is_written_out_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """What depends on no carry is computed once."""
    monkeypatch.setattr("xla_torch.lowering.control.is_available", lambda: False)
    computation = from_jax(lambda x: jax.lax.fori_loop(0, 3, lambda _, c: c * jnp.sin(x), x), X)
    nodes = computation.computation.lowered().graph.nodes
    assert sum(n.target is torch.sin for n in nodes) == 1


def test_constants_up_to_a_size_are_compared() -> None:
    for size, often in ((tuning.COMPARED_CONSTANTS, 1), (tuning.COMPARED_CONSTANTS + 1, 2)):
        numbers = ", ".join(map(str, range(size)))
        lines = [f"  c{k} = f32[{size}] constant({{{numbers}}})\n  d{k} = f32[{size}] divide(x, c{k})" for k in range(2)]
        head = f"HloModule same\nENTRY main {{\n  x = f32[{size}] parameter(0)\n"
        assert count("\n".join([head, *lines, f"  ROOT r = (f32[{size}], f32[{size}]) tuple(d0, d1)\n}}"]), "divide") == often


@pytest.mark.parametrize("length", [2000, 4000])
def test_long_programs_cost_by_length(length: int) -> None:
    """Chains, each op of which stands there twice: half of it goes, and no key grows with the chain."""
    lines = ["v0 = f32[4] sine(x)  w0 = f32[4] sine(x)"]
    lines += [f"v{k} = f32[4] sine(v{k - 1})\n  w{k} = f32[4] sine(w{k - 1})" for k in range(1, length)]
    text = program("\n  ".join([*lines, f"a = f32[4] negate(v{length - 1})\n  b = f32[4] negate(w{length - 1})"]))
    assert count(text, "sine") == length
