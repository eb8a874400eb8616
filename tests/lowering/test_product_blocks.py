"""A product much larger than its factors runs block by block up to the next product, with the results it has without blocks."""

from __future__ import annotations

import numpy as np
import pytest

import xla_torch
from support.oracle import run_xla
from xla_torch.core import tuning

REGIONS = """most {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT m = f32[] maximum(a, b)
}
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
"""
PARAMETERS = {"q": "f32[2,3,64,4]", "k": "f32[2,3,64,4]", "v": "f32[2,3,64,5]", "g": "f32[2,1,64,4]", "m": "pred[64,64]",
              "b": "f32[3,64,64]"}
HEADS = "lhs_batch_dims={0,1}, rhs_batch_dims={0,1}, lhs_contracting_dims={3}"
SCORES = [f"s = f32[2,3,64,64] dot(q, k), {HEADS}, rhs_contracting_dims={{3}}"]
MASK = ["mb = pred[2,3,64,64] broadcast(m), dimensions={2,3}", "far = f32[2,3,64,64] broadcast(lowest), dimensions={}",
        "t = f32[2,3,64,64] select(mb, s, far)"]
BIAS = ["bb = f32[2,3,64,64] broadcast(b), dimensions={1,2,3}", "t = f32[2,3,64,64] add(s, bb)"]
PLAIN = ["c = f32[2,3,64,64] broadcast(half), dimensions={}", "t = f32[2,3,64,64] multiply(s, c)"]
SOFTMAX = ["x = f32[2,3,64] reduce(t, low), dimensions={3}, to_apply=most",
           "xb = f32[2,3,64,64] broadcast(x), dimensions={0,1,2}",
           "d = f32[2,3,64,64] subtract(t, xb)", "e = f32[2,3,64,64] exponential(d)",
           "n = f32[2,3,64] reduce(e, zero), dimensions={3}, to_apply=sum",
           "nb = f32[2,3,64,64] broadcast(n), dimensions={0,1,2}", "p = f32[2,3,64,64] divide(e, nb)"]
VALUES = [f"o = f32[2,3,64,5] dot(p, v), {HEADS}, rhs_contracting_dims={{2}}"]
SHARED = ["gr = f32[2,64,4] reshape(g)", "gb = f32[2,3,64,4] broadcast(gr), dimensions={0,2,3}",
          f"s = f32[2,3,64,64] dot(q, gb), {HEADS}, rhs_contracting_dims={{3}}"]
TANH = ["p = f32[2,3,64,64] tanh(s)"]

CASES = {
    # name: lines, results, whether it runs in blocks; None where it does so only if these hold all rows of a head
    "scaled": ([*SCORES, *PLAIN, *SOFTMAX, *VALUES], "o", True),
    "masked": ([*SCORES, *MASK, *SOFTMAX, *VALUES], "o", True),
    "with a bias": ([*SCORES, *BIAS, *SOFTMAX, *VALUES], "o", True),
    "shared keys": ([*SHARED, *PLAIN, *SOFTMAX, *VALUES], "o", True),
    "no softmax": ([*SCORES, *TANH, *VALUES], "o", True),
    "shares are a result": ([*SCORES, *PLAIN, *SOFTMAX, *VALUES], "o, p", False),
    "scores are read again": ([*SCORES, *PLAIN, *SOFTMAX, *VALUES, "z = f32[2,3,64,64] negate(s)"], "o, z", False),
    "sums of columns between": ([*SCORES, "n = f32[2,3,64] reduce(s, zero), dimensions={2}, to_apply=sum",
                                 "nb = f32[2,3,64,64] broadcast(n), dimensions={0,1,3}", "p = f32[2,3,64,64] subtract(s, nb)",
                                 *VALUES], "o", None),
    "no second product": ([*SCORES, *PLAIN, *SOFTMAX], "p", False),
}


def text_of(lines: list[str], results: str) -> str:
    shapes = {line.split(" = ")[0]: line.split(" = ")[1].split(" ")[0] for line in lines}
    parameters = "".join(f"  {n} = {s} parameter({k})\n" for k, (n, s) in enumerate(PARAMETERS.items()))
    body = "".join(f"  {line}\n" for line in lines)
    made = ", ".join(shapes[n] for n in results.split(", "))
    return (f"HloModule attention\n{REGIONS}ENTRY main {{\n{parameters}  zero = f32[] constant(0)\n  low = f32[] constant(-inf)\n"
            f"  lowest = f32[] constant(-1e30)\n  half = f32[] constant(0.5)\n{body}  ROOT made = ({made}) tuple({results})\n}}")


@pytest.mark.parametrize("block", [1 << 8, 1 << 10, 1 << 12, 1 << 14])
@pytest.mark.parametrize("name", CASES)
def test_products_in_blocks(name: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut among rows, heads, examples; with rows that see nothing, which are of equal shares then, as XLA has them."""
    lines, results, runs = CASES[name]
    rng, dims = np.random.default_rng(0), [s.partition("[")[2][:-1].split(",") for s in PARAMETERS.values()]
    arguments = [rng.standard_normal([int(n) for n in own]).astype("f") for own in dims]
    arguments[4] = np.tril(np.ones((64, 64), bool), -1)
    text = text_of(lines, results)
    whole = xla_torch.parse_hlo(text).run_numpy(*arguments)
    monkeypatch.setattr(tuning, "PRODUCT_BLOCKED_FROM", 1 << 12)
    monkeypatch.setattr(tuning, "BLOCKED_FROM", 1 << 12)
    monkeypatch.setattr(tuning, "BLOCK", block)
    program = xla_torch.parse_hlo(text)
    assert ("@" not in program.lowered().code) == (block >= 1 << 12 if runs is None else runs)
    for mine, theirs, ours in zip(program.run_numpy(*arguments), run_xla(text, *arguments), whole, strict=True):
        np.testing.assert_allclose(mine, ours, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-4)
