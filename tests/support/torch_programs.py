"""Programs of documented functions for the entry points to torch.autograd, and arguments for them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch.autograd import gradcheck, gradgradcheck

import xla_torch
from xla_torch import F64, Shape, XlaBuilder, ops


def f64(*dims: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.RandomState(seed).randn(*dims)).requires_grad_()


def build(function, *dims: tuple[int, ...], element_type=F64) -> xla_torch.XlaComputation:
    """A program over parameters of these dimensions; a list of results becomes a tuple."""
    builder = XlaBuilder("program")
    result = function(*(builder.parameter(k, Shape.array(element_type, d)) for k, d in enumerate(dims)))
    return builder.build(builder.add("tuple", result) if isinstance(result, list) else result)


def dense(x, w):
    return ops.Tanh(ops.Dot(x, w))


def several(x, y):
    return [ops.Mul(x, ops.Exp(y)), ops.ConvertElementType(x, xla_torch.S32), ops.Sin(y), ops.Gt(x, y)]


def complex_square(x, y):
    z = ops.Complex(x, y)
    return ops.Mul(z, ops.Conj(ops.Exp(z)))


def random_branch() -> xla_torch.XlaComputation:
    """(x with noise if its sum is positive; sin(x)): the first result has no reverse-mode gradient."""
    return xla_torch.parse_hlo("""HloModule noisy
sum { a = f64[] parameter(0)  b = f64[] parameter(1)  ROOT c = f64[] add(a, b) }
noisy {
  x = f64[3] parameter(0)
  one = f64[] constant(1)
  two = f64[] constant(2)
  noise = f64[3] rng(one, two), distribution=rng_uniform
  ROOT y = f64[3] add(x, noise)
}
plain { x = f64[3] parameter(0)  ROOT y = f64[3] copy(x) }
ENTRY main {
  x = f64[3] parameter(0)
  zero = f64[] constant(0)
  total = f64[] reduce(x, zero), dimensions={0}, to_apply=sum
  positive = pred[] compare(total, zero), direction=GT
  chosen = f64[3] conditional(positive, x, x), true_computation=noisy, false_computation=plain
  sine = f64[3] sine(x)
  ROOT r = (f64[3], f64[3]) tuple(chosen, sine)
}
""")


LOOP = """HloModule m
body { t = (f64[], f64[]) parameter(0) c = f64[] get-tuple-element(t), index=0 x = f64[] get-tuple-element(t), index=1
  y = f64[] sine(x) s = f64[] add(c, y) h = f64[] constant(0.3) d = f64[] add(s, h) ROOT r = (f64[], f64[]) tuple(d, y) }
more { t = (f64[], f64[]) parameter(0) c = f64[] get-tuple-element(t), index=0 n = f64[] constant(2)
  ROOT l = pred[] compare(c, n), direction=LT }
ENTRY e { t = (f64[], f64[]) parameter(0) ROOT w = (f64[], f64[]) while(t), condition=more, body=body }"""
"""A loop whose length depends on numbers."""


def check_gradients(compiled: xla_torch.XlaComputation, inputs: Sequence[torch.Tensor]) -> None:
    """Of all results that have some, of the first and of the second order, against differences."""
    def floating(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        results = compiled(*given)
        return tuple(r for r in (results if isinstance(results, tuple) else (results,)) if r.requires_grad)

    assert gradcheck(floating, inputs)
    assert gradgradcheck(floating, inputs)
