"""Derivatives at ties, where the names in a program say which function its ops are: that of `relu` is max, but has no slope at 0,
where max shares. And where a compiler has merged max and min into a clamp, which has none at its ends, while they share."""

from __future__ import annotations

import numpy as np
import pytest

import xla_torch
from support.oracle import HAS_XLA

X = np.array([0.0, -0.0, 6.0, 2.0, -1.0, 9.0, np.inf])


BODY = """
  x = f64[7] parameter(0)
  c = f64[] constant(0)
  zero = f64[7] broadcast(c), dimensions={}
  d = f64[] constant(6)
  six = f64[7] broadcast(d), dimensions={}
  high = f64[7] maximum(x, zero)METADATA
  ROOT r = f64[7] RESULTMETADATA
"""
CALLING = """
HloModule m
FUNCTION {BODY}
ENTRY main {
  p = f64[7] parameter(0)
  ROOT y = f64[7] call(p), to_apply=FUNCTION
}
"""


def _program(root: str, name: str = "", op_type: str = "") -> str:
    """A program whose result is this op, in a function of this name that is called, or with metadata."""
    metadata = f', metadata={{op_type="{op_type}" op_name="{name}"}}' if "/" in name or op_type else ""
    body = BODY.replace("METADATA", metadata).replace("RESULT", root)
    if metadata or not name:
        return f"HloModule m\nENTRY main {{{body}}}\n"
    return CALLING.replace("BODY", body).replace("FUNCTION", name)


HALF, NONE = [0.5, 0.5, 1, 1, 0, 1, 1], [0, 0, 1, 1, 0, 1, 1]
HALF6, NONE6 = [0.5, 0.5, 0.5, 1, 0, 0, 0], [0, 0, 0, 1, 0, 0, 0]
MAX, MIN, CLAMP = "maximum(x, zero)", "minimum(high, six)", "clamp(zero, x, six)"
ROWS = [
    (MAX, "", "", HALF), (MAX, "jit(f)/max", "", HALF), (MAX, "jit(relux)/max", "", HALF), (MAX, "my_relu", "", HALF),
    (MAX, "jit(relu)/jit(other)/max", "", HALF), (MAX, "relux.1", "", HALF), (MAX, "softplus.1", "", HALF),
    (MAX, "relu", "", NONE), (MAX, "relu.1", "", NONE), (MAX, "relu_3.12", "", NONE), (MAX, "relu.3.clone", "", NONE),
    (MAX, "jit(f)/jit(relu)/max", "", NONE), (MAX, "pjit(f)/vmap(jit(relu))/max", "", NONE),
    (MAX, "jvp(jit(relu)/max)", "", NONE),
    (MAX, "model/dense/Relu", "Relu", NONE), (MAX, "model/dense/Maximum", "Maximum", HALF),
    (MAX, "aten__relu", "aten__relu", NONE),
    ("maximum(zero, x)", "relu.1", "", NONE), ("maximum(x, x)", "relu.1", "", [1] * 7),
    (MIN, "", "", HALF6), (MIN, "jit(clip)/min", "", HALF6), (MIN, "relu6.1", "", NONE6), (MIN, "jit(relu6)/min", "", NONE6),
    (CLAMP, "", "", NONE6), (CLAMP, "jit(f)/clamp", "", NONE6), (CLAMP, "jit(f)/jit(relu6)/min", "", NONE6),
    (CLAMP, "jit(f)/jit(clip)/min", "", HALF6), (CLAMP, "jit(f)/max", "", HALF6),
    ("clamp(zero, x, zero)", "jit(f)/max", "", [0.25, 0.25, 0, 0, 0, 0, 0]),
]


@pytest.mark.parametrize(("root", "name", "op_type", "want"), ROWS)
def test_at_ties(root: str, name: str, op_type: str, want: list[float]) -> None:
    program = xla_torch.parse_hlo(_program(root, name, op_type))
    ones = np.ones_like(X)
    for each in (program, xla_torch.parse_hlo(program.to_hlo_text())):
        np.testing.assert_array_equal(xla_torch.vjp(each).run_numpy(X, ones)[0], want)
        np.testing.assert_array_equal(xla_torch.jvp(each).run_numpy(X, ones)[1], want)


def test_relu_and_max_of_the_same_are_not_merged() -> None:
    text = _program(MAX, "relu.1").replace("ROOT y", "s").replace("to_apply=relu.1", """to_apply=relu.1
  c = f64[] constant(0)
  zero = f64[7] broadcast(c), dimensions={}
  t = f64[7] maximum(p, zero)
  ROOT y = f64[7] add(s, t)""")
    program = xla_torch.parse_hlo(text)
    for each in (program, xla_torch.vmap(program, 2)):
        x = X if each is program else np.stack([X, X])
        got = xla_torch.vjp(each).run_numpy(x, np.ones_like(x))[0]
        np.testing.assert_array_equal(got, np.broadcast_to(np.add(HALF, NONE), got.shape))


@pytest.mark.skipif(not HAS_XLA, reason="needs jax")
def test_jax_in_loops_and_branches() -> None:
    import jax
    from jax import lax, nn

    from support.jax_oracle import evaluated, program

    def looped(x):
        return lax.scan(lambda c, _: (nn.relu(c) * 2, None), x, None, length=3)[0]

    def chosen(x):
        return lax.cond(x.sum() > 0, nn.relu6, nn.hard_silu, x)

    for function in (looped, chosen, jax.vmap(nn.relu), jax.checkpoint(nn.relu6)):
        want = evaluated(jax.vjp(function, X[:6])[1], np.ones(6))[0]
        np.testing.assert_allclose(xla_torch.vjp(program(function, X[:6])).run_numpy(X[:6], np.ones(6))[0], want)
