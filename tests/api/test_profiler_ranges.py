"""Ranges of torch's profiler: whose work a program does, by op_name, and the same numbers as without."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import xla_torch
from xla_torch.nn import XlaModule
from xla_torch.runtime.polymorphic import of_unknown_sizes
from xla_torch.storage.torch_private import profiler_is_on


def layers(p: Any, x: Any) -> Any:
    for name in ("Dense_0", "Dense_1"):
        with jax.named_scope(name):
            x = jnp.tanh(x @ p + 1)
    with jax.named_scope("Loop"):
        return jax.lax.scan(lambda c, _: (jnp.sin(c) @ p, None), x, None, length=3)[0]


def network(rows: int, width: int) -> tuple[XlaModule, torch.Tensor]:
    w = np.eye(width, dtype=np.float32) / 2
    x = np.linspace(-1, 1, rows * width, dtype=np.float32).reshape(rows, width)
    return XlaModule.from_jax(layers, w, x), torch.from_numpy(x)


def traced(call: Any) -> tuple[list[Any], list[str], Any]:
    """What a call gives under the profiler, and the ranges in it, each behind those around it."""
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as prof:  # torch 2.11 warns without
        found = call()
    return found, [event.key for event in prof.key_averages()], prof


def with_gradients(model: Any, x: torch.Tensor) -> list[torch.Tensor]:
    given = x.clone().requires_grad_()
    y = model(given)
    inputs = [given, *(model.parameters() if isinstance(model, torch.nn.Module) else ())]
    return [y.detach(), *torch.autograd.grad(y.square().sum(), inputs)]


HLO = """HloModule by_hand
ENTRY e {
  x = f32[3] parameter(0)
  bent = f32[3] tanh(x), metadata={op_name="net/layer(a/b)/tanh"}
  ROOT odd = f32[3] multiply(bent, x), metadata={op_name="net/quote\\"'; import os/mul"}
}"""
FAMILY = """module @many { func.func public @main(%arg0: tensor<?xf32>) -> tensor<?xf32> {
  %0 = stablehlo.tanh %arg0 : tensor<?xf32> loc("net/tanh")
  %1 = stablehlo.multiply %0, %0 : tensor<?xf32> loc("net/mul")
  return %1 : tensor<?xf32> } }"""

CASES = {
    "layers": (lambda: network(4, 4), [
        r"jit_layers", r"jit\(layers\)/jvp\(Dense_0\)", r"jit\(layers\)/jvp\(Dense_1\)/dot_general",
        r"jit\(layers\)/jvp\(Loop\)/while", r"jit_layers_backward", r"jit\(layers\)/transpose\(jvp\(Dense_0\)\)/dot_general"]),
    "blocks": (lambda: network(2048, 256), [
        r"jit\(layers\)/jvp\(Dense_0\)/add \+ tanh", r"jit\(layers\)/transpose\(jvp\(Dense_1\)\)/dot_general"]),
    "HLO": (lambda: (xla_torch.parse_hlo(HLO), torch.tensor([1.0, 2.0, 3.0])), [
        r"by_hand", r"by_hand_backward", r"jvp\(net\)/layer\(a/b\)/tanh|net/layer\(a/b\)/tanh", "import os/mul"]),
    "unknown sizes": (lambda: (xla_torch.from_stablehlo(FAMILY), torch.ones(3)), [r"many", "net/tanh", "net/mul"]),
    "inductor's pieces": (lambda: (xla_torch.compile(xla_torch.parse_hlo(HLO), "inductor"), torch.ones(3)), [r"by_hand"]),
}


@pytest.mark.parametrize("case", CASES)
def test_ranges_and_the_same_numbers(case: str) -> None:
    make, patterns = CASES[case]
    model, x = make()
    plain = with_gradients(model, x)
    found, keys, _ = traced(lambda: with_gradients(model, x))
    torch.testing.assert_close(found, plain, rtol=0, atol=0)
    for pattern in patterns:
        assert any(re.search(pattern, key) for key in keys), (pattern, keys)
    torch.testing.assert_close(with_gradients(model, x), plain, rtol=0, atol=0)


def test_levels_stand_within_each_other() -> None:
    model, x = network(4, 4)
    _, _, prof = traced(lambda: model(x.requires_grad_()))
    product = next(e for e in prof.events() if e.name.endswith("jvp(Dense_1)/dot_general"))
    outwards = []
    around = product.cpu_parent
    while around is not None:
        outwards.append(around.name)
        around = around.cpu_parent
    assert outwards[:3] == ["jit(layers)/jvp(Dense_1)", "jit(layers)", "jit_layers"]
    assert {child.name for child in product.cpu_children} & {"aten::matmul", "aten::mm"}


def test_nothing_is_made_where_no_profiler_runs() -> None:
    model, x = network(4, 4)
    model(x)
    program = model.computation.program
    assert not profiler_is_on()
    assert "_with_profiler_ranges" not in vars(program)
    assert not any("entered" in str(node.target) for node in program.lowered(torch.device("cpu")).graph.nodes)


def test_an_error_ends_its_ranges() -> None:
    """What comes after it stands in none of them."""
    def fails(x: Any) -> Any:
        raise ValueError("no")

    def function(x: Any) -> Any:
        with jax.named_scope("Broken"):
            return jax.pure_callback(fails, jax.ShapeDtypeStruct((2,), np.float32), jnp.sin(x))

    program = xla_torch.from_jax(function, np.ones(2, np.float32))

    def call() -> None:
        with pytest.raises(Exception, match="no"):
            program(torch.ones(2))
        torch.ones(2).cos()

    _, _, prof = traced(call)
    assert any("Broken" in e.name for e in prof.events())
    after = next(e for e in prof.events() if e.name == "aten::cos")
    assert after.cpu_parent is None


def test_unknown_sizes_are_their_own_programs_then() -> None:
    family = of_unknown_sizes(xla_torch.from_stablehlo(FAMILY))
    assert family is not None
    for size in (2, 5):
        found, _, _ = traced(lambda size=size: family(torch.ones(size)))
        torch.testing.assert_close(found, torch.ones(size).tanh().square())
