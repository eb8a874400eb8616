"""Python functions that JAX programs call: where they were traced they run, elsewhere what gives no values is left out."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import xla_torch
from support.oracle import needs_xla
from xla_torch.errors import CallbackLeftOut, DifferentiationError, UnsupportedError

jax = pytest.importorskip("jax")
lax, jnp = jax.lax, jax.numpy
io_callback = pytest.importorskip("jax.experimental").io_callback

pytestmark = needs_xla

X = np.arange(3, dtype=np.float32)
messages: list[Any] = []


@pytest.fixture(autouse=True)
def silence() -> None:
    messages.clear()


def reported(x: Any) -> Any:
    messages.append(np.asarray(x).tolist())
    return np.asarray(x) * 2


def tell(x: Any) -> None:
    reported(x)


def narrow(x: Any) -> Any:
    a, b = x.astype(jnp.bfloat16), x.astype(jnp.uint32)
    return jax.pure_callback(lambda a, b: (a + a, b + b), (a, b), a, b)


def branch(x: Any) -> Any:
    return lax.cond(x[0] > 1, lambda v: jax.pure_callback(reported, v, v), lambda v: v + 1, x)


def looped(x: Any) -> Any:
    return lax.scan(lambda c, _: (jax.pure_callback(reported, c, c), None), x, length=3)[0]


CALLS: dict[str, tuple[Callable[[Any], Any], int]] = {
    "pure": (lambda x: jax.pure_callback(reported, x, x) + 1, 1),
    "pure, unread": (lambda x: (jax.pure_callback(reported, x, x), x + 1)[1], 0),
    "without arguments": (lambda x: x + jax.pure_callback(lambda: reported(X), jax.ShapeDtypeStruct((3,), np.float32)), 1),
    "several results of narrow types": (narrow, 0),
    "of each element": (jax.vmap(lambda x: jax.pure_callback(reported, x, x, vmap_method="sequential")), 3),
    "two functions": (lambda x: jax.pure_callback(reported, x, x) + jax.pure_callback(lambda v: v + 1, x, x), 1),
    "debug": (lambda x: (jax.debug.callback(tell, x), x + 1)[1], 1),
    "debug, ordered": (
        lambda x: (jax.debug.callback(tell, x, ordered=True), jax.debug.callback(tell, 2 * x, ordered=True), x)[2], 2),
    "io": (lambda x: io_callback(reported, x, x) + 1, 1),
    "io, ordered": (lambda x: io_callback(reported, x, x, ordered=True) + 1, 1),
    "in a loop": (looped, 3),
    "in a branch that is not taken": (branch, 0),
}


@pytest.mark.parametrize("case", CALLS)
def test_they_run_as_in_jax(case: str) -> None:
    function, count = CALLS[case]
    found = xla_torch.from_jax(function, X)(torch.tensor(X))
    calls = list(messages)
    messages.clear()
    expected = jax.jit(function)(X)
    jax.effects_barrier()
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert ours.tolist() == np.asarray(theirs).tolist()
    assert len(calls) == count
    assert calls == messages[:len(calls)]


def test_what_they_raise_passes_through() -> None:
    with pytest.raises(ZeroDivisionError):
        xla_torch.from_jax(lambda x: jax.pure_callback(lambda v: 1 / 0, x, x), X)(torch.tensor(X))


def ruled() -> Any:
    function = jax.custom_jvp(lambda x: jax.pure_callback(np.sin, x, x))
    function.defjvp(lambda p, t: (function(p[0]), jax.pure_callback(np.cos, p[0], p[0]) * t[0]))
    return function


GRADIENTS: dict[str, tuple[Any, Any]] = {
    "with a rule that calls back": (ruled, np.cos(X)),
    "ordered effects beside it": (lambda: lambda x: (jax.debug.callback(tell, x, ordered=True), x * x)[1], 2 * X),
    "a rule beside ordered effects": (
        lambda: lambda x: (jax.debug.callback(tell, x, ordered=True), x * lax.stop_gradient(x))[1], X),
}


@pytest.mark.parametrize("case", GRADIENTS)
def test_derivatives_are_those_of_jax(case: str) -> None:
    make, expected = GRADIENTS[case]
    x = torch.tensor(X, requires_grad=True)
    (found,) = torch.autograd.grad(xla_torch.from_jax(make(), X)(x).sum(), x)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_without_a_rule_there_is_no_derivative() -> None:
    x = torch.tensor(X, requires_grad=True)
    with pytest.raises(DifferentiationError, match="a Python function"):
        torch.autograd.grad(xla_torch.from_jax(lambda x: jax.pure_callback(np.sin, x, x), X)(x).sum(), x)


def test_another_process_has_other_functions() -> None:
    """The text of a program names a function that no other process has, not a number that it has for another one."""
    program = xla_torch.from_jax(CALLS["pure"][0], X)
    (target,) = {i.attributes["custom_call_target"] for i in program.entry.instructions if i.opcode == "custom-call"}
    text = program.to_hlo_text().replace(target, target + "0")
    with pytest.raises(UnsupportedError, match=target):
        xla_torch.parse_hlo(text)(torch.tensor(X))
    assert pickle.loads(pickle.dumps(program))(torch.tensor(X)).tolist() == [1, 3, 5]


# ------------------------------------------------------------------------------------------------ from files


@jax.jit
def branched_error_if_impl(x: Any, pred: Any) -> Any:
    """As equinox's, by its name."""
    def fail() -> Any:
        out = jax.pure_callback(lambda k: 1 / 0, jax.eval_shape(lambda: x), 0)
        return jax.pure_callback(lambda out, k: out, jax.eval_shape(lambda: x), out, 0)

    return lax.cond(pred, fail, lambda: x)


def checked(x: Any) -> Any:
    return branched_error_if_impl(x, jnp.any(x < 0)) * 2


def counted(x: Any) -> Any:
    return branched_error_if_impl(x.astype(np.int32), jnp.any(x < 0)) * 1


FORMS: dict[str, Callable[[Any], Any]] = {
    "StableHLO": lambda lowered: xla_torch.from_stablehlo(lowered.as_text()),
    "with names": lambda lowered: xla_torch.from_stablehlo(lowered.as_text(debug_info=True)),
    "HLO": lambda lowered: xla_torch.parse_hlo(lowered.compiler_ir("hlo").as_hlo_text()),
    "compiled": lambda lowered: xla_torch.parse_hlo(lowered.compile().as_text()),
    "proto": lambda lowered: xla_torch.from_hlo_proto(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()),
}
LEFT_OUT: dict[str, tuple[Callable[[Any], Any], str, list[float]]] = {
    "debug": (CALLS["debug"][0], "1 Python callback of", [1, 2, 3]),
    "two of them": (
        lambda x: (jax.debug.callback(tell, x), jax.debug.callback(tell, x + 1), x + 1)[2], "2 Python callbacks", [1, 2, 3]),
    "a check": (checked, "2 Python callbacks", [0, 2, 4]),
    "a check of integers": (counted, "2 Python callbacks", [0, 1, 2]),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", LEFT_OUT)
def test_what_gives_no_values_is_left_out_of_files(case: str, form: str) -> None:
    function, what, expected = LEFT_OUT[case]
    lowered = jax.jit(function).lower(X)

    def read_and_run_twice() -> list[Any]:
        program = FORMS[form](lowered)
        return [program(torch.tensor(X)) for _ in range(2)]

    with pytest.warns(CallbackLeftOut, match=what) as found:
        results = read_and_run_twice()
    assert [w.category for w in found] == [CallbackLeftOut]
    assert [(r[0] if isinstance(r, tuple) else r).tolist() for r in results] == [expected] * 2
    assert messages == []


def test_a_check_that_fails_is_not_silent() -> None:
    lowered = jax.jit(checked).lower(X)
    with pytest.warns(CallbackLeftOut):
        program = xla_torch.from_stablehlo(lowered.as_text())
    x = torch.tensor(X, requires_grad=True)
    assert program(torch.tensor(-X)).isnan().all()
    (found,) = torch.autograd.grad(program(x).sum(), x)
    assert found.tolist() == [2, 2, 2]


def test_values_of_callbacks_are_refused_in_files() -> None:
    text = jax.jit(CALLS["pure"][0]).lower(X).as_text()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = xla_torch.from_stablehlo(text)
    with pytest.raises(UnsupportedError, match="trace with from_jax"):
        program(torch.tensor(X))


def test_equinox() -> None:
    equinox = pytest.importorskip("equinox")

    def function(x: Any) -> Any:
        return equinox.error_if(x, jnp.any(x < 0), "negative") * 2

    program = xla_torch.from_jax(function, X)
    assert program(torch.tensor(X)).tolist() == [0, 2, 4]
    with pytest.raises(RuntimeError, match="negative"):
        program(torch.tensor(-X))
    with pytest.warns(CallbackLeftOut):
        assert xla_torch.from_stablehlo(jax.jit(function).lower(X).as_text())(torch.tensor(X)).tolist() == [0, 2, 4]
