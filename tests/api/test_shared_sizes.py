"""Programs of unknown sizes are lowered once for many sizes, and are then what they are for each size alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import xla_torch
from support.oracle import HAS_XLA
from xla_torch import from_stablehlo
from xla_torch.core.sizes import Size, Unknowns, unnamed
from xla_torch.errors import InvalidArgument
from xla_torch.lowering import programs
from xla_torch.runtime import program as running
from xla_torch.runtime.polymorphic import PolymorphicComputation
from xla_torch.runtime.static import StaticComputation

if HAS_XLA:
    import jax
    import jax.numpy as jnp
    from jax import export, lax

# ------------------------------------------------------------------------------------------------ sizes

ARITHMETIC: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, lambda a, b: a // b, lambda a, b: a % b, lambda a, b: a < b,
    lambda a, b: a == b, lambda a, b: a != b, lambda a, b: a >= b, lambda a, b: a > b, lambda a, b: a <= b, max, min,
    lambda a, b: a + b, lambda a, b: a * b, lambda a, b: -a, lambda a, b: abs(a - b)]


def walked(sizes: list[Any], seed: int) -> list[Any]:
    """Numbers that are computed of sizes, each of two that were there before."""
    draw, found = random.Random(seed), list(sizes)
    for _ in range(6):
        try:
            found.append(draw.choice(ARITHMETIC)(draw.choice(found), draw.choice(found)))
        except ZeroDivisionError:
            found.append(-99)
    return [int(n) if isinstance(n, bool) else n for n in found]


def test_a_shared_lowering_is_right_for_all_sizes_with_equal_answers():
    draw, held = random.Random(0), 0
    for seed in range(3000):
        here, there = ({n: draw.randint(0, 9) for n in "bt"} for _ in range(2))
        unknowns = Unknowns(here)
        made = walked([unknowns.size("b"), unknowns.size("t"), 2, -3, 1, 7], seed)
        assert [n.value if isinstance(n, Size) else n for n in made] == walked([*here.values(), 2, -3, 1, 7], seed)
        if unknowns.holds(there):
            held += 1
            assert [n.at(there) if isinstance(n, Size) else n for n in made] == walked([*there.values(), 2, -3, 1, 7], seed)
    assert held > 1000


TELLING: dict[str, Callable[[Any], Any]] = {
    "index": lambda b: [0] * b, "range": range, "numpy": lambda b: np.zeros((b, 2)), "torch": lambda b: torch.zeros(int(b)),
    "hash": lambda b: {b: 0}, "float": float, "quotient": lambda b: b / 2, "bits": lambda b: b & 1, "array": np.int32,
    "comparison": lambda b: b == 5, "truth": lambda b: 0 if b - 5 else 1}


@pytest.mark.parametrize("name", TELLING)
def test_whoever_reads_a_size_tells_it(name: str):
    unknowns = Unknowns({"b": 5})
    TELLING[name](unknowns.size("b"))
    assert unknowns.holds({"b": 5})
    assert not unknowns.holds({"b": 6})


UNTOLD: dict[str, Callable[[Size], Any]] = {
    "sum": lambda b: (b + b) // 2 == b, "sign": lambda b: b * 3 >= 0, "unknown": lambda b: b == -(2**63), "text": str,
    "rest": lambda b: (4 * b) % 2 == 0, "key": lambda b: {unnamed((b, 3)): 1}[unnamed((1 * b, 3))]}


@pytest.mark.parametrize("name", UNTOLD)
def test_what_holds_for_all_sizes_tells_nothing(name: str):
    unknowns = Unknowns({"b": 5})
    UNTOLD[name](unknowns.size("b"))
    assert unknowns.holds({"b": 6})
    assert unknowns.holds({"b": 0})


# ------------------------------------------------------------------------------------------------ programs

LAYER = """func.func @main(%w: tensor<3x2xf32>, %x: tensor<?x3xf32>) -> tensor<?x2xf32> {
  %0 = stablehlo.dot %x, %w : (tensor<?x3xf32>, tensor<3x2xf32>) -> tensor<?x2xf32>
  %1 = stablehlo.tanh %0 : tensor<?x2xf32>
  return %1 : tensor<?x2xf32> }"""


def layer_of_any_size() -> PolymorphicComputation:
    found = from_stablehlo(LAYER)
    assert isinstance(found, PolymorphicComputation)
    return found


@pytest.fixture
def lowerings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The programs that are lowered meanwhile."""
    found: list[str] = []

    def lower(computation: Any, *args: Any, **kwargs: Any) -> Any:
        found.append(computation.name)
        return programs.lower(computation, *args, **kwargs)

    monkeypatch.setattr(running, "lower", lower)
    return found


def test_a_new_size_costs_no_lowering(lowerings: list[str]):
    layer, w = layer_of_any_size(), torch.randn(3, 2, requires_grad=True)
    for rows in range(2, 9):
        x = torch.randn(rows, 3)
        with torch.no_grad():
            torch.testing.assert_close(layer(w, x), torch.tanh(x @ w))
        layer(w, x).sum().backward()
    assert len(lowerings) == 3  # without gradient, forwards, and back
    assert layer.specialised(w, torch.zeros(3, 3)).program_shape.result.dimensions == (3, 2)


def test_what_is_derived_is_shared_as_well(lowerings: list[str]):
    each = xla_torch.vmap(layer_of_any_size(), 4, (None, 0))
    back = xla_torch.vjp(layer_of_any_size(), 0)
    for rows in (2, 3, 5):
        w, x = torch.randn(3, 2), torch.randn(4, rows, 3)
        torch.testing.assert_close(each(w, x), torch.tanh(x @ w))
        ct, out = torch.randn(rows, 2), torch.tanh(x[0] @ w)
        torch.testing.assert_close(back(w, x[0], ct)[0], x[0].T @ (ct * (1 - out * out)))
    assert len(lowerings) == 2


def test_no_and_one_row_are_other_programs():
    layer = layer_of_any_size()
    for rows in (4, 0, 1, 6, 0):
        w, x = torch.randn(3, 2, requires_grad=True), torch.randn(rows, 3)
        out = layer(w, x)
        torch.testing.assert_close(out, torch.tanh(x @ w))
        (gradient,) = torch.autograd.grad(out.sum(), w)
        torch.testing.assert_close(gradient, torch.autograd.grad(torch.tanh(x @ w).sum(), w)[0])


def test_the_way_back_of_the_way_back():
    layer, w = layer_of_any_size(), torch.randn(3, 2, dtype=torch.float32, requires_grad=True)
    for rows in (3, 5):
        x = torch.randn(rows, 3)
        found, expected = (torch.autograd.grad(torch.autograd.grad(out.square().sum(), w, create_graph=True)[0].square().sum(), w)
                           for out in (layer(w, x), torch.tanh(x @ w)))
        torch.testing.assert_close(found, expected)


def test_a_refused_program_is_that_of_its_size_alone(monkeypatch: pytest.MonkeyPatch):
    layer = layer_of_any_size()
    monkeypatch.setattr(PolymorphicComputation, "_of_sizes", lambda *_: 1 / 0)
    for rows in (2, 3, 4):
        w, x = torch.randn(3, 2), torch.randn(rows, 3)
        torch.testing.assert_close(layer(w, x), torch.tanh(x @ w))


# ------------------------------------------------------------------------------------------------ JAX's programs

Arguments = tuple[tuple[Any, ...], ...]


def _scan(x: Any, w: Any) -> Any:
    def step(carry: Any, row: Any) -> Any:
        carry = jnp.tanh(carry @ w + row)
        return carry, carry
    return lax.scan(step, jnp.zeros(x.shape[1:]), x)


def _attention(x: Any) -> Any:
    weights = jax.nn.softmax(jnp.einsum("bth,bsh->bts", x, x) / 2)
    return jnp.where(jnp.tril(jnp.ones(weights.shape[1:], bool)), weights, 0) @ x


def _norm(x: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    return (x - mean) / jnp.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5)


JAX: dict[str, tuple[Callable[..., Any], Arguments, int]] = {
    # what it computes, of arguments with these sizes, and of how many sizes of (b, t) it is lowered at most
    "reductions": (lambda x: (x.sum(0), x.mean(1), x.max(), x.var(0)), (("b", "t"),), 1),
    "softmax": (lambda x: (jax.nn.softmax(x), jax.nn.logsumexp(x, 0)), (("b", "t"),), 1),
    "sorts": (lambda x: (jnp.sort(x, 0), jnp.argmax(x, 1), jnp.argsort(x, 1)), (("b", "t"),), 1),
    "moves": (lambda x: (x.T, x[::-1], jnp.concatenate([x, x]), jnp.pad(x, ((1, 2), (0, 1))), x.reshape(-1)), (("b", "t"),), 1),
    "halves": (lambda x: (x[:x.shape[0] // 2 + 1], x[-1:], x[::2]), (("b", "t"),), 3),
    "indices": (lambda x: (jnp.arange(x.shape[0]), jnp.tril(x), jnp.eye(x.shape[0])), (("b", "t"),), 1),
    "scatters": (lambda x: (x.at[0].set(1.0), x.at[:, -1].multiply(3.0)), (("b", "t"),), 1),
    "dense": (lambda x, w, c: jax.nn.gelu(x @ w + c), (("b", "t"), ("t", 5), (5,)), 1),
    "attention": (_attention, (("b", "t", 4),), 1),
    "norm": (_norm, (("b", "t"),), 1),
    "convolution": (lambda x, k: lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")),
                    (("b", 8, "t", 2), (3, 3, 2, 4)), 1),
    "pools": (lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"), (("b", 6, 6, 2),), 1),
    "scan": (_scan, (("t", "b", 4), (4, 4)), 1),
    "running sum": (lambda x: jnp.cumsum(x, 0), (("b", "t"),), 4),
    "loop": (lambda x: lax.while_loop(lambda v: v.sum() < 10, lambda v: jnp.abs(v) + 1, x), (("b", "t"),), 1),
    "branches": (lambda x: lax.cond(x.sum() > 0, lambda v: v * 2, lambda v: v - 1, x), (("b", "t"),), 1),
    "sizes": (lambda x: (x * x.shape[0], x / (x.shape[0] * x.shape[1] + 1), jnp.full((3,), x.shape[1] // 2)), (("b", "t"),), 1),
    "products": (lambda x, y: x.reshape(y.shape) * y, (("b*t",), ("b", "t")), 1),
}
SIZES = ((6, 7), (5, 4), (1, 1), (4, 4), (3, 9))


def exported(name: str) -> PolymorphicComputation:
    function, arguments, _ = JAX[name]
    sizes = dict(zip(("b", "t", "b*t"), export.symbolic_shape("b,t,b*t"), strict=True))
    given = [jax.ShapeDtypeStruct([sizes.get(n, n) for n in dims], np.float32) for dims in arguments]  # pyright: ignore
    found: Any = from_stablehlo(export.export(jax.jit(function))(*given).mlir_module())
    return getattr(found, "computation", found)


def run(program: Any, given: list[torch.Tensor]) -> list[torch.Tensor]:
    """Results and gradients."""
    leaves = [x.clone().requires_grad_() for x in given]
    results = program(*leaves)
    results = list(results) if isinstance(results, tuple) else [results]
    total = sum((r.square().sum() for r in results if r.requires_grad), torch.zeros(()))
    return results + (list(torch.autograd.grad(total, leaves)) if total.requires_grad else [])


@pytest.mark.skipif(not HAS_XLA, reason="jax writes the programs")
@pytest.mark.parametrize("name", JAX if HAS_XLA else [])
@pytest.mark.filterwarnings("ignore::xla_torch.errors.LostDerivatives")
def test_it_is_the_program_of_each_size(name: str):
    program, most = exported(name), JAX[name][2]
    for b, t in SIZES:
        sizes = {"b": b, "t": t, "b*t": b * t}
        torch.manual_seed(0)
        given = [torch.randn([sizes[n] if isinstance(n, str) else n for n in dims]) for dims in JAX[name][1]]
        alone = StaticComputation(program._source.specialised([(tuple(x.shape), None) for x in given]))
        for found, expected in zip(run(program, given), run(alone, given), strict=True):
            torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    assert not program._refused
    assert len(program._generals) <= most + 1  # for one row and column all is another program


@pytest.mark.skipif(not HAS_XLA, reason="jax writes the programs")
def test_what_a_program_asserts_is_asserted_of_each_size():
    program = exported("norm")
    program(torch.randn(3, 4))
    with pytest.raises(InvalidArgument, match="Expected value >= 1"):
        program(torch.randn(3, 0))
