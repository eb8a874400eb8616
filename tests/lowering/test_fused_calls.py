"""`compile(..., "inductor")`: groups of calls go to torch's compiler, everything else stays what it is without it."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import xla_torch
from support.loops_in_place import UPDATES, drawn_order, loop_in_order
from support.oracle import run_xla
from support.stored_programs import DATA, StoredProgram, assert_near
from xla_torch.core import tuning
from xla_torch.kernels import fused_calls
from xla_torch.storage import torch_private

CPU = torch.device("cpu")


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[torch.fx.GraphModule]]:
    """What was given to torch's compiler; a module's own calls stand in for what that would make of it."""
    given: list[torch.fx.GraphModule] = []

    def make(module: torch.fx.GraphModule, examples: list[torch.Tensor]) -> Callable[..., Any]:
        given.append(module)
        return module.forward

    monkeypatch.setattr(torch_private, "compile_graph", make)
    fused_calls._compiled.cache_clear()  # pyright: ignore[reportPrivateUsage]
    yield given
    fused_calls._compiled.cache_clear()  # pyright: ignore[reportPrivateUsage]


def inductor(text: str) -> xla_torch.XlaComputation:
    return xla_torch.compile(xla_torch.parse_hlo(text), "inductor")


def calls_of(module: torch.fx.GraphModule) -> int:
    return sum(node.op in ("call_function", "call_method") for node in module.graph.nodes)


def layers(count: int) -> str:
    """Products with elementwise calls between them, the same in each layer."""
    lines, last = [], "x"
    for k in range(count):
        lines += [f"  p{k} = f32[4,4] dot({last}, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
                  f"  t{k} = f32[4,4] tanh(p{k})", f"  m{k} = f32[4,4] multiply(t{k}, p{k})", f"  y{k} = f32[4,4] add(m{k}, x)"]
        last = f"y{k}"
    body = "\n".join(lines)
    return (f"HloModule layers\nENTRY e {{\n  x = f32[4,4] parameter(0)\n  w = f32[4,4] parameter(1)\n{body}\n"
            f"  ROOT r = f32[4,4] negate({last})\n}}")


def given(*dims: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(d).astype("f") for d in dims]


def test_equal_layers_are_compiled_once(compiled: list[torch.fx.GraphModule]) -> None:
    """Two functions: that of the layers, and that of the last one, which has one call more."""
    text, arguments = layers(12), given((4, 4), (4, 4))
    program = inductor(text)
    for _ in range(2):
        np.testing.assert_allclose(program.run_numpy(*arguments), run_xla(text, *arguments), rtol=2e-5, atol=1e-5)
    assert [calls_of(module) for module in compiled] == [3, 4]
    assert program.lowered().code.count("fused_calls(") == 12
    again = pickle.loads(pickle.dumps(program))
    np.testing.assert_array_equal(again.run_numpy(*arguments), program.run_numpy(*arguments))
    assert len(compiled) == 2


def one(body: str, result: str, parameters: dict[str, str]) -> str:
    declared = "".join(f"  {name} = {shape} parameter({k})\n" for k, (name, shape) in enumerate(parameters.items()))
    return f"HloModule m\nsum {{\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT r = f32[] add(a, b)\n}}\n" \
           f"ENTRY e {{\n{declared}{body}\n  ROOT out = {result}\n}}"


TWO = {"x": "f32[4,6]", "y": "f32[4,6]"}
GROUPS = {
    # name: text, and how many calls each group has
    "column sums": (one("  m = f32[4,6] multiply(x, y)\n  z = f32[] constant(0)",
                        "f32[6] reduce(m, z), dimensions={0}, to_apply=sum", TWO), [2]),
    "one call": (one("", "f32[4,6] add(x, y)", TWO), []),
    "views alone": (one("  t = f32[6,4] transpose(x), dimensions={1,0}", "f32[24] reshape(t)", TWO), []),
    "a view that is a result": (one("  m = f32[4,6] multiply(x, y)\n  s = f32[4,6] sine(m)\n"
                                    "  t = f32[6,4] transpose(s), dimensions={1,0}",
                                    "(f32[6,4], f32[4,6]) tuple(t, s)", TWO), [2]),
    "the same twice": (one("  a = f32[4,6] multiply(x, y)\n  b = f32[4,6] multiply(x, y)\n"
                           "  c = f32[4,6] sine(a)\n  d = f32[4,6] sine(b)",
                           "(f32[4,6], f32[4,6]) tuple(c, d)", TWO), None),
    "half precision": (one("  a = bf16[4,6] multiply(x, y)\n  b = bf16[4,6] sine(a)", "bf16[4,6] add(b, a)",
                           {"x": "bf16[4,6]", "y": "bf16[4,6]"}), []),
    "through half precision": (one("  h = bf16[4,6] convert(x)\n  f = f32[4,6] convert(h)", "f32[4,6] add(f, y)", TWO), []),
}


@pytest.mark.parametrize("name", GROUPS)
def test_groups(name: str, compiled: list[torch.fx.GraphModule]) -> None:
    text, groups = GROUPS[name]
    dtype = torch.bfloat16 if text.count("x = bf16") else torch.float32
    arguments = [torch.from_numpy(a).to(dtype) for a in given((4, 6), (4, 6))]
    got, want = inductor(text)(*arguments), xla_torch.parse_hlo(text)(*arguments)
    for mine, theirs in zip(got if isinstance(got, tuple) else (got,), want if isinstance(want, tuple) else (want,), strict=True):
        assert torch.equal(mine, theirs)
    if groups is not None:
        assert [calls_of(module) for module in compiled] == groups


def test_results_that_the_compiler_makes_once_are_two(monkeypatch: pytest.MonkeyPatch,
                                                       compiled: list[torch.fx.GraphModule]) -> None:
    """Also where one of them is written over later."""
    def make(module: torch.fx.GraphModule, examples: list[torch.Tensor]) -> Callable[..., Any]:
        def run(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            first = module.forward(*inputs)[0]
            return tuple(first for _ in module.forward(*inputs))
        return run

    monkeypatch.setattr(torch_private, "compile_graph", make)
    text, _ = GROUPS["the same twice"]
    x, y = map(torch.from_numpy, given((4, 6), (4, 6)))
    first, second = inductor(text)(x, y)
    first.zero_()
    assert torch.equal(second, torch.sin(x * y))


@pytest.mark.parametrize("seed", [4, 11])
def test_what_a_loop_writes_over_was_read_before(seed: int, monkeypatch: pytest.MonkeyPatch,
                                                 compiled: list[torch.fx.GraphModule]) -> None:
    monkeypatch.setattr(tuning, "ACCUMULATED_FROM", 1)
    arguments = given((16, 8), (16, 8))
    got = inductor(loop_in_order(drawn_order(np.random.default_rng(seed)))).run_numpy(*arguments)
    assert compiled
    for mine, theirs in zip(got, run_xla(loop_in_order(list(UPDATES)), *arguments), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


def test_what_is_not_compiled_stays_in_torch(monkeypatch: pytest.MonkeyPatch, compiled: list[torch.fx.GraphModule]) -> None:
    def make(module: torch.fx.GraphModule, examples: list[torch.Tensor]) -> Callable[..., Any]:
        raise RuntimeError("no C++ compiler")

    monkeypatch.setattr(torch_private, "compile_graph", make)
    text, _ = GROUPS["column sums"]
    x, y = map(torch.from_numpy, given((4, 6), (4, 6)))
    program = inductor(text)
    with pytest.warns(RuntimeWarning, match="stay in torch, because its compiler does not compile them: RuntimeError: no"):
        assert torch.equal(program(x, y), (x * y).sum(0))
    assert torch.equal(program(x, y), (x * y).sum(0))


def test_tensors_that_stand_for_negatives(compiled: list[torch.fx.GraphModule], monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled code reads memory as it lies."""
    def make(module: torch.fx.GraphModule, examples: list[torch.Tensor]) -> Callable[..., Any]:
        def run(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            assert not any(map(torch.Tensor.is_neg, inputs))
            return module.forward(*inputs)
        return run

    monkeypatch.setattr(torch_private, "compile_graph", make)
    z = torch.complex(*map(torch.from_numpy, given((4, 6), (4, 6))))
    x, y = torch.conj(z).imag, z.real
    assert x.is_neg()
    assert torch.equal(inductor(GROUPS["column sums"][0])(x, y), (x * y).sum(0))


def test_gradients_are_compiled_too(compiled: list[torch.fx.GraphModule]) -> None:
    text = layers(3)
    x, w = (torch.from_numpy(a).requires_grad_() for a in given((4, 4), (4, 4)))
    want = torch.autograd.grad(xla_torch.parse_hlo(text)(x, w).sum(), (x, w))
    got = torch.autograd.grad(inductor(text)(x, w).sum(), (x, w))
    for mine, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(mine, theirs)
    assert len(compiled) > 2


@pytest.mark.slow  # torch's compiler builds C++
@pytest.mark.parametrize("name", sorted(folder.name for folder in DATA.iterdir() if folder.is_dir()))
def test_stored_programs(name: str) -> None:
    """Values and gradients, and nothing stays in torch."""
    stored, program = StoredProgram.load(DATA / name), xla_torch.load(DATA / name / "module.hlo")
    compiled = xla_torch.compile(program, "inductor")
    got = compiled(*stored.tensors)
    for ours, theirs in zip(got if isinstance(got, tuple) else (got,), stored.results, strict=True):
        assert_near(ours, theirs)
    if stored.gradients:
        _, found = xla_torch.value_and_grad(compiled, argnums=tuple(stored.gradients))(*stored.tensors)
        for ours, theirs in zip(found, stored.gradients.values(), strict=True):
            scale = max(float(np.abs(theirs).max(initial=0.0)), 1e-6)
            assert float(np.abs(ours.numpy() - theirs).max(initial=0.0)) <= 2e-3 * scale
