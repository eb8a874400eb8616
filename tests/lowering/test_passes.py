"""The passes over lowered graphs: each of them acts somewhere, and programs give the same results without it."""

from __future__ import annotations

import functools
import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_leaves

import xla_torch
from support.counting import python_lines
from support.low_thresholds import lower_thresholds
from xla_torch import cli
from xla_torch.core import tuning
from xla_torch.core.errors import XlaWarning
from xla_torch.lowering.programs import lower
from xla_torch.passes import passes
from xla_torch.passes.passes import PASSES, recorded


def _softmax(x: Any) -> Any:
    shares = jnp.exp(x - jnp.max(x, axis=-1, keepdims=True))
    return shares / jnp.sum(shares, axis=-1, keepdims=True)


def _attention(q: Any, k: Any, v: Any) -> Any:
    return _softmax(q @ k.swapaxes(-1, -2) * 0.3) @ v


def _steps(x: Any, w: Any) -> Any:
    return jax.lax.scan(lambda c, y: (jnp.tanh(c @ w) + y, c * y), x[0], x)


def _in_or_zero(x: Any) -> Any:
    return jnp.take(x, 2 * jnp.argsort(x[:, 0]), axis=0, mode="fill", fill_value=0.0)


def _one_of_rows(x: Any) -> Any:
    return jnp.take_along_axis(x * 2.0 - x[:, :1], jnp.argmin(x, axis=1, keepdims=True), axis=1, mode="clip")


def _update(weights: Any, gradients: Any) -> Any:
    moments = [0.9 * w + 0.1 * g for w, g in zip(weights, gradients, strict=True)]
    return [w - 0.01 * m / (1.0 + m * m) for w, m in zip(weights, moments, strict=True)], moments


def _drawn(*dims: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(sum(dims)).normal(size=dims).astype(dtype)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "chain": (lambda x, y: (jnp.tanh(x * 2.0 + y) - x * y, jnp.sum(x * x, axis=1)), (_drawn(16, 8), _drawn(16, 8))),
    "softmax": (_softmax, (_drawn(6, 16),)),
    "attention": (_attention, (_drawn(2, 40, 4), _drawn(2, 40, 4), _drawn(2, 40, 4))),
    "transposed product": (lambda a, b: (a @ b).T + 1.0, (_drawn(4, 6), _drawn(6, 5))),
    "narrow product": (lambda a, b: a @ b, (_drawn(4, 6, dtype=jnp.bfloat16), _drawn(6, 5, dtype=jnp.bfloat16))),
    "large product": (lambda a, b: a @ b, (_drawn(256, 128), _drawn(128, 256))),
    "scan": (_steps, (_drawn(6, 4), _drawn(4, 4))),
    "optimizer": (_update, ([_drawn(n, 3) for n in range(2, 14)], [_drawn(n, 3) + 1.0 for n in range(2, 14)])),
    "filled gather": (_in_or_zero, (_drawn(6, 3),)),
    "one of rows": (_one_of_rows, (_drawn(40, 512),)),
    "scaled transform": (lambda x: 8.0 * jnp.fft.irfft(jnp.fft.rfft(x)), (_drawn(2, 8),)),
    "padding": (lambda x: jnp.pad(x, 2, mode="reflect"), (_drawn(6, 5),)),
    "views": (lambda x, y: x + jnp.broadcast_to(y[None], x.shape), (_drawn(2, 2), _drawn(2))),
}

EXCHANGE = """HloModule m, replica_count=2
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[8] parameter(0)
  s = f32[8] all-reduce(x), replica_groups={{0,1}}, to_apply=add
  t = f32[8] tanh(x)
  c = f32[8] cosine(x)
  u = f32[8] all-reduce(c), replica_groups={{0,1}}, to_apply=add
  v = f32[8] multiply(s, u)
  ROOT r = f32[8] multiply(v, t)
}"""


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small programs take the ways of large ones, and all processors are alike."""
    lower_thresholds(monkeypatch.setattr)
    for name, value in {"FOREACH_CALLS": 4, "PRODUCT_BLOCKED_FROM": 400, "BLOCK": 64, "BLOCKED_FROM": 8, "BUNDLED_UP_TO": 0,
                        "NATIVE_AFTER": 0.005}.items():
        monkeypatch.setattr(tuning, name, value)
    products = importlib.import_module("xla_torch.passes.products")
    monkeypatch.setattr(products, "_prefers_onednn", lambda: True)
    monkeypatch.setattr(products, "_has_avx512", lambda: True)
    monkeypatch.setattr(products, "has_units", lambda dtype: False)


@functools.cache
def _text(name: str) -> str:
    function, arguments = PROGRAMS[name]
    return xla_torch.from_jax(function, *arguments).to_hlo_text()


def _results(text: str, arguments: tuple[Any, ...]) -> list[torch.Tensor]:
    """Results and gradients, of a program that is lowered anew."""
    program = xla_torch.parse_hlo(text)
    given = [torch.from_numpy(np.asarray(a, np.float32)).to(torch.bfloat16 if a.dtype == jnp.bfloat16 else torch.float32)
             .requires_grad_() for a in jax.tree.leaves(arguments)]
    results = tree_leaves(program(*given))
    floating = [r for r in results if r.requires_grad]
    return [*(r.detach() for r in results), *torch.autograd.grad([r.float().square().sum() for r in floating], given)]


def test_each_pass_acts() -> None:
    """Or the table below would show nothing."""
    with recorded() as log:
        for name in PROGRAMS:
            xla_torch.parse_hlo(_text(name)).lowered()
        xla_torch.parse_hlo(EXCHANGE).lowered()
        lower(xla_torch.parse_hlo(_text("chain")).program.canonical, torch.device("cpu"), blocks=False, fuses=True)
        lower(xla_torch.parse_hlo(_text("chain")).program.canonical, torch.device("cpu"), ranges=True)
    assert {change.name for change in log} == {one.name for one in PASSES} - {"sizes"}  # symbolic ones: tests/interop
    assert all(change.lines for change in log)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("left_out", [
    one.name for one in PASSES if one.name not in ("dead code", "sizes", "groups", "buckets", "overlap", "ranges")])
def test_programs_are_the_same_without_it(name: str, left_out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, arguments = _text(name), PROGRAMS[name][1]
    whole = _results(text, arguments)
    monkeypatch.setattr(tuning, "WITHOUT_PASSES", frozenset({left_out}))
    with recorded() as log:
        without = _results(text, arguments)
    changed = {change.name for change in log}
    assert left_out == "overwriting" or left_out not in changed
    for one, other in zip(whole, without, strict=True):
        close = 1e-2 if one.dtype is torch.bfloat16 else 1e-5
        torch.testing.assert_close(one, other, rtol=close, atol=close * float(one.abs().max()))


@pytest.mark.parametrize("left_out", ["buckets", "overlap"])
def test_exchanges_are_the_same_without_it(left_out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = [(torch.arange(8.0),), (torch.ones(8),)]
    whole = xla_torch.run_replicas(xla_torch.parse_hlo(EXCHANGE), arguments, num_replicas=2)
    monkeypatch.setattr(tuning, "WITHOUT_PASSES", frozenset({left_out}))
    torch.testing.assert_close(xla_torch.run_replicas(xla_torch.parse_hlo(EXCHANGE), arguments, num_replicas=2), whole)


def test_nothing_is_written_over_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "WITHOUT_PASSES", frozenset({"overwriting", "blocks", "foreach", "carries", "product blocks"}))
    for name in PROGRAMS:
        assert "out = " not in xla_torch.parse_hlo(_text(name)).python_code()


def test_the_command_line_shows_them(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "chain.hlo"
    file.write_text(_text("chain"))
    assert cli.main(["show", str(file), "--passes"]) == 0
    shown = capsys.readouterr().out
    assert "Program: blocks, " in shown
    assert "\n    +%blocked" in shown


def test_the_environment_names_passes() -> None:
    code = "import xla_torch.passes.passes as p; from xla_torch.core import tuning; print(sorted(tuning.WITHOUT_PASSES))"
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "XLA_TORCH_WITHOUT_PASSES": "blocks, row functions"},
                          capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['blocks', 'row functions']"
    assert not done.stderr
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "XLA_TORCH_WITHOUT_PASSES": "block"},
                          capture_output=True, text=True, check=True)
    assert "names no pass by block: there are bundles, constants, invariants, padded sums, " in done.stderr


def _fail(*given: Any) -> Any:
    raise IndexError("tuple index out of range")


@pytest.mark.parametrize("name", [one.name for one in PASSES if one.name not in ("dead code", "sizes", "groups", "ranges")])
def test_a_pass_that_fails_is_left_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On whole programs and on bodies of loops, with one warning; also where it did half of its work."""
    for program in ("scan", "optimizer"):
        text, arguments = _text(program), PROGRAMS[program][1]
        whole = _results(text, arguments)
        with monkeypatch.context() as patch:
            failing = tuple(one._replace(run=lambda low, run=one.run: (run(low), _fail()), when=lambda low: True)
                            if one.name == name and not one.has_less else one for one in PASSES)
            patch.setattr(passes, "PASSES", failing)
            if name == "overwriting":
                patch.setattr(passes, "plan_memory", lambda graph, fresh, overwrites, run=passes.plan_memory: (
                    run(graph, fresh, overwrites=overwrites), overwrites and _fail()))
            with pytest.warns(XlaWarning, match=f"the pass '{name}' failed and was left out"):
                without = _results(text, arguments)
        for one, other in zip(whole, without, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5 * float(one.abs().max()))


@pytest.mark.parametrize(("name", "function"), [
    ("bundles", "lowering.bundles.fuse_small"), ("constants", "lowering.bundles.fold_constants"),
    ("invariants", "lowering.programs.without_invariant_code"),
    ("padded sums", "lowering.programs.without_padded_sums")])
def test_so_is_one_that_fails_before_there_is_a_graph(name: str, function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, arguments = _text("scan"), PROGRAMS["scan"][1]
    monkeypatch.setattr(tuning, "BUNDLED_UP_TO", 1 << 10)
    whole = _results(text, arguments)
    monkeypatch.setattr(f"xla_torch.{function}", _fail)
    with pytest.warns(XlaWarning, match=f"the pass '{name}' failed and was left out"):
        without = _results(text, arguments)
    for one, other in zip(whole, without, strict=True):
        torch.testing.assert_close(one, other)


def test_names_are_one_each() -> None:
    names = [one.name for one in passes.PASSES]
    assert len(set(names)) == len(names)


# ------------------------------------------------------------------------------------------------ large programs

REGIONS = """HloModule m

a { p = f32[8] parameter(0)
 ROOT r = f32[8] sine(p) }
b { p = f32[8] parameter(0)
 ROOT r = f32[8] cosine(p) }

"""

UPDATES = (" x0 = f32[8,4] parameter(0)\n u = f32[1,4] parameter(1)\n z = s32[] constant(0)",
           " i{n} = s32[] constant({m})\n t{n} = f32[8,4] tanh(x{k})\n x{n} = f32[8,4] dynamic-update-slice(x{k}, u, i{n}, z)")
BRANCHES = (" x0 = f32[8] parameter(0)\n q = pred[] parameter(1)",
            " x{n} = f32[8] conditional(q, x{k}, x{k}), true_computation=a, false_computation=b")
LARGE_ARRAYS = (" x0 = f32[128,128] parameter(0)\n w = f32[128,128] parameter(1)",
                " sine{n} = f32[128,128] sine(x{k})\n"
                " a{n} = f32[128,128] add(sine{n}, x{k})\n m{n} = f32[128,128] multiply(a{n}, sine{n})\n"
                " d{n} = f32[128,128] dot(m{n}, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}\n"
                " x{n} = f32[128,128] add(d{n}, m{n})")
MANY_RESULTS = (" x0 = f32[8] parameter(0)\n y0 = f32[8] parameter(1)",
                " own{n} = f32[] constant({n}.5)\n"
                " b{n} = f32[8] broadcast(own{n}), dimensions={{}}\n m{n} = f32[8] multiply(x0, b{n})\n"
                " d{n} = f32[8] divide(m{n}, y0)\n x{n} = f32[8] subtract(d{n}, m{n})")


@pytest.mark.parametrize(("first", "step", "all_of_them"), [
    (*UPDATES, False), (*BRANCHES, False), (*LARGE_ARRAYS, False), (*LARGE_ARRAYS, True), (*MANY_RESULTS, True)],
    ids=["updates in place", "branches", "large arrays", "large arrays, many results", "many results"])
def test_passes_take_twice_as_long_for_programs_of_twice_the_size(first: str, step: str, all_of_them: bool) -> None:
    def work(count: int) -> int:
        lines = [step.format(k=k, n=k + 1, m=k % 8) for k in range(count)]
        shape = first.split()[2]
        root = f" ROOT t = ({', '.join([shape] * count)}) tuple({', '.join(f'x{k + 1}' for k in range(count))})"
        root = root if all_of_them else f" ROOT t = {shape} negate(x{count})"
        text = "\n".join([f"{REGIONS}ENTRY e {{", first, *lines, root, "}"])
        program = xla_torch.parse_hlo(text)
        return python_lines("passes", program.lowered)

    work(8)
    assert work(400) < 2.3 * work(200)
