"""Arithmetic with numbers that Python reads from tensors: they stay values, round as Python's, and raise where Python raises."""

from __future__ import annotations

import math
from collections.abc import Callable
from math import log
from math import sqrt as root
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import distributions

import xla_torch
from xla_torch.errors import AssumptionError, ExecutionError

F64 = torch.float64
V = torch.arange(3.0, dtype=F64)
FIRST = torch.tensor(1.7, dtype=F64), torch.tensor(5)
SECOND = torch.tensor(2.45, dtype=F64), torch.tensor(8)
Function = Callable[[Any, Any], Any]


def converted(function: Function) -> tuple[Any, Callable[..., Any]]:
    def model(v: torch.Tensor, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        return v * function(x.item(), n.item())

    return xla_torch.from_torch(model, V, *FIRST), model


NUMBERS: list[tuple[str, Function]] = [
    ("x ** 0.2", lambda x, n: x ** 0.2), ("x ** 2", lambda x, n: x ** 2), ("x ** -1", lambda x, n: x ** -1),
    ("x ** -0.5", lambda x, n: x ** -0.5), ("2 ** x", lambda x, n: 2 ** x), ("2.0 ** n", lambda x, n: 2.0 ** n),
    ("n ** 2", lambda x, n: n ** 2), ("(-n) ** 2", lambda x, n: (-n) ** 2), ("x ** n", lambda x, n: x ** n),
    ("n ** 0.5", lambda x, n: n ** 0.5), ("abs of floats", lambda x, n: abs(-x)), ("abs of integers", lambda x, n: abs(-n)),
    ("-x", lambda x, n: -x), ("round", lambda x, n: round(x)), ("floor", lambda x, n: math.floor(x)),
    ("ceil", lambda x, n: math.ceil(x)), ("trunc", lambda x, n: math.trunc(x)), ("x // 0.1", lambda x, n: x // 0.1),
    ("floor division that rounds up", lambda x, n: (x * 0 + 1.0) // 0.1), ("n // x", lambda x, n: n // x),
    ("x % 1", lambda x, n: x % 1), ("-x % 1.5", lambda x, n: -x % 1.5), ("x % -2.0", lambda x, n: x % -2.0),
    ("tiny % 1", lambda x, n: (x * 1e-20) % 1), ("n % -3", lambda x, n: n % -3), ("n // 2", lambda x, n: -n // 2),
    ("divmod of floats", lambda x, n: sum(divmod(x, 0.3))), ("divmod of integers", lambda x, n: sum(divmod(n, 3))),
    ("1 / x", lambda x, n: 1 / x), ("n / 3", lambda x, n: n / 3), ("n << 1", lambda x, n: n << 1), ("n & 1", lambda x, n: n & 1),
    ("n | 1", lambda x, n: n | 1), ("n ^ 3", lambda x, n: n ^ 3), ("~n", lambda x, n: ~n),
    ("sums are not reordered", lambda x, n: (x + 1e20) - 1e20), ("products, neither", lambda x, n: x * 1e-200 * 1e-200 * 1e200),
    ("n + x", lambda x, n: n + x), ("math.prod", lambda x, n: math.prod([x, n, 2])), ("sum", lambda x, n: sum([x, n, 2])),
    ("math.sqrt", lambda x, n: math.sqrt(x)), ("math.sqrt of integers", lambda x, n: math.sqrt(n)),
    ("math.exp", lambda x, n: math.exp(x)), ("math.log", lambda x, n: math.log(x)), ("to a base", lambda x, n: math.log(x, 3)),
    ("math.cos", lambda x, n: math.cos(math.pi * x / 10)), ("math.hypot", lambda x, n: math.hypot(x, 3.0)),
    ("math.atan2", lambda x, n: math.atan2(x, n + 1)), ("math.copysign", lambda x, n: math.copysign(2.0, -x)),
    ("math.pow", lambda x, n: math.pow(x, 1.5)), ("math.lgamma", lambda x, n: math.lgamma(x)),
    ("Adam's step", lambda x, n: x / (1 - 0.9 ** n) / (math.sqrt(x) + 1e-8)),
    ("round to two digits", lambda x, n: round(x, 2)), ("to the even digit", lambda x, n: round(n / 8 + 0.125, 2)),
    ("halfway as rounded", lambda x, n: round(x + 0.225, 2)), ("no digits", lambda x, n: round(x, 0)),
    ("digits beyond floats", lambda x, n: round(x * 1e17, 3)), ("an imported function", lambda x, n: root(x) + log(n)),
    ("np.sqrt", lambda x, n: np.sqrt(x)), ("np.log of integers", lambda x, n: np.log(n)),
    ("np.power", lambda x, n: np.power(x, 3)),
    ("np.floor", lambda x, n: np.floor(-x)), ("np.maximum", lambda x, n: np.maximum(x, 2.0)),
    ("np.square", lambda x, n: np.square(x)),
    ("np.float64 times", lambda x, n: np.float64(2.5) * x), ("np.float64 less", lambda x, n: np.pi - np.float64(3) * x),
    ("np.floor_divide", lambda x, n: np.floor_divide(x, -0.4)), ("np.hypot", np.hypot),
    ("a Gumbel number", lambda x, n: -math.log(-math.log(x / 10)))]


@pytest.mark.parametrize(("name", "function"), NUMBERS, ids=[name for name, _ in NUMBERS])
def test_numbers_that_only_enter_arithmetic_stay_values(name: str, function: Function) -> None:
    computed, model = converted(function)
    assert [a for a in computed.computation.assumptions if ">= 0" not in str(a)] == []
    torch.testing.assert_close(computed(V, *SECOND), model(V, *SECOND), rtol=1e-13, atol=0, equal_nan=True)


RAISING: list[tuple[str, Function]] = [
    ("1 / 0.0", lambda x, n: 1 / (x - 2.45)), ("NaN / 0", lambda x, n: (x + math.nan) / (n - 8)),
    ("infinity / 0", lambda x, n: (x + math.inf) / (n - 8)), ("7 // a floor of 0", lambda x, n: 7 // math.floor(x - 2.45)),
    ("7 % a floor of 0", lambda x, n: 7 % math.floor(x - 2.45)), ("7 / a floor of 0", lambda x, n: 7 / math.floor(x - 2.45)),
    ("divmod by a floor of 0", lambda x, n: sum(divmod(7, math.floor(x - 2.45)))),
    ("round of NaN", lambda x, n: round(x + math.nan)), ("round of infinity", lambda x, n: round((x - 1.7) * 1e400)),
    ("math.sin of infinity", lambda x, n: math.sin((x - 1.7) * 1e400)),
    ("math.fmod of infinity", lambda x, n: math.fmod((x - 1.7) * 1e400, 2.0)),
    ("math.log of -infinity", lambda x, n: math.log((1.8 - x) * 1e400)),
    ("7 // 0", lambda x, n: 7 // (n - 8)), ("7 % 0", lambda x, n: 7 % (n - 8)),
    ("7 / 0", lambda x, n: 7 / (n - 8)), ("x % 0.0", lambda x, n: x % (x - 2.45)), ("0.0 ** -1", lambda x, n: (x - 2.45) ** -1),
    ("math.sqrt of less than 0", lambda x, n: math.sqrt(2 - x)), ("math.log of 0", lambda x, n: math.log(x - 2.45)),
    ("a power beyond floats", lambda x, n: 1e300 ** (x - 1)), ("math.exp beyond floats", lambda x, n: math.exp((x - 1.7) * 1e4))]


@pytest.mark.parametrize(("name", "function"), RAISING, ids=[name for name, _ in RAISING])
def test_a_program_raises_where_python_does(name: str, function: Function) -> None:
    computed, model = converted(function)
    with pytest.raises((ZeroDivisionError, ValueError, OverflowError)):
        model(V, *SECOND)
    with pytest.raises(ExecutionError):
        computed(V, *SECOND)


LONG: list[tuple[str, Function]] = [
    ("round", lambda x, n: round(1e19 * x)), ("math.floor", lambda x, n: math.floor(-1e19 * x)),
    ("math.ceil", lambda x, n: math.ceil(1e19 * x)), ("math.trunc", lambda x, n: math.trunc(1e19 * x)),
    ("n * n", lambda x, n: (n << 30) * (n << 30)), ("n ** 2", lambda x, n: (n << 30) ** 2),
    ("3 ** n", lambda x, n: 3 ** (n + 32)),
    ("a large factor", lambda x, n: n * (1 << 61)), ("factors in the other order", lambda x, n: (1 << 61) * n)]


@pytest.mark.parametrize(("name", "function"), LONG, ids=[name for name, _ in LONG])
def test_a_program_raises_for_integers_that_only_python_has(name: str, function: Function) -> None:
    computed = xla_torch.from_torch(lambda v, x, n: v * function(x.item(), n.item()), V, torch.tensor(0.1, dtype=F64),
                                    torch.tensor(1))
    assert function(SECOND[0].item(), SECOND[1].item()).bit_length() > 63
    with pytest.raises(ExecutionError, match="64 bits"):
        computed(V, *SECOND)


@pytest.mark.parametrize("bits", [64, -1])
def test_a_program_raises_for_shifts_that_python_refuses_or_int64_loses(bits: int) -> None:
    computed, _ = converted(lambda x, n: 1 << n)
    with pytest.raises(ExecutionError, match="64 bits"):
        computed(V, SECOND[0], torch.tensor(bits))


FAR: list[tuple[str, Function]] = [
    ("1 / x beyond floats", lambda x, n: 1e300 / (x * 1e-100)), ("x % infinity", lambda x, n: x % ((x - 1.0) * 1e400)),
    ("x // -infinity", lambda x, n: x // ((1.0 - x) * 1e400)), ("infinity % x", lambda x, n: ((x - 1.0) * 1e400) % x),
    ("-x // infinity", lambda x, n: -x // ((x - 1.0) * 1e400)), ("infinity ** 0.5", lambda x, n: ((1.0 - x) * 1e400) ** 0.5),
    ("math.sqrt of infinity", lambda x, n: math.sqrt((x - 1.0) * 1e400))]


@pytest.mark.parametrize(("name", "function"), FAR, ids=[name for name, _ in FAR])
def test_infinity_has_the_results_that_python_gives(name: str, function: Function) -> None:
    computed, model = converted(function)
    torch.testing.assert_close(computed(V, *SECOND), model(V, *SECOND), rtol=1e-13, atol=0, equal_nan=True)


def test_a_root_that_would_be_complex_raises() -> None:
    computed, model = converted(lambda x, n: (2 - x) ** 0.5)
    assert model(V, *SECOND).is_complex()
    with pytest.raises(ExecutionError):
        computed(V, *SECOND)


ASKING: list[tuple[str, Function, float]] = [
    ("math.isnan", lambda x, n: 0.0 if math.isnan(x) else x, math.nan),
    ("math.isinf", lambda x, n: 0.0 if math.isinf(x) else x, math.inf),
    ("math.isfinite", lambda x, n: x if math.isfinite(x) else 0.0, -math.inf),
    ("math.isclose", lambda x, n: 0.0 if math.isclose(x, 7.0, rel_tol=1e-3) else x, 7.001),
    ("math.isclose, absolute", lambda x, n: 0.0 if math.isclose(x, 7.0, abs_tol=0.5) else x, 6.5),
    ("np.isnan", lambda x, n: 0.0 if np.isnan(x) else x, math.nan),
    ("a comparison of what was computed", lambda x, n: x if x ** 2 + 1 > 3 else 0.0, 1.0)]


@pytest.mark.parametrize(("name", "function", "other"), ASKING, ids=[name for name, *_ in ASKING])
def test_a_question_about_a_number_is_one_decision(name: str, function: Function, other: float) -> None:
    computed, model = converted(function)
    assert len(computed.computation.assumptions) == 1
    torch.testing.assert_close(computed(V, *SECOND), model(V, *SECOND))
    with pytest.raises(AssumptionError):
        computed(V, torch.tensor(other, dtype=F64), SECOND[1])


OPERATORS: list[tuple[str, Callable[[torch.Tensor, Any], torch.Tensor]]] = [
    ("add, alpha", lambda v, x: v.add(v, alpha=x)), ("sub, alpha", lambda v, x: torch.sub(v, v, alpha=x)),
    ("pow", lambda v, x: v ** x), ("x ** v", lambda v, x: x ** v), ("lerp", lambda v, x: torch.lerp(v, 2 * v, x)),
    ("addcdiv", lambda v, x: torch.addcdiv(v, v, v + 1, value=x)), ("clamp", lambda v, x: v.clamp(x - 1, x)),
    ("leaky_relu", lambda v, x: F.leaky_relu(v - 1, x)), ("elu", lambda v, x: F.elu(v - 1, x)),
    ("softplus", F.softplus), ("threshold", lambda v, x: F.threshold(v, x, x + 1)),
    ("addmm", lambda v, x: torch.addmm(v[None], v[None], torch.ones(3, 3, dtype=F64), beta=x, alpha=x + 1)),
    ("fill_", lambda v, x: v.clone().fill_(x)), ("masked_fill", lambda v, x: v.masked_fill(v > 1, x)),
    ("torch.full", lambda v, x: torch.full((3,), x, dtype=F64)),
    ("torch.linspace", lambda v, x: torch.linspace(0, x, 3, dtype=F64)),
    ("torch.tensor", lambda v, x: torch.tensor([x, x + 1, 2 * x], dtype=F64)),
    ("torch.as_tensor", lambda v, x: torch.as_tensor(x, dtype=F64) * v),
    ("new_tensor", lambda v, x: v.new_tensor([x, 1.0, 2.0])),
    ("a distribution", lambda v, x: distributions.Normal(0.0, x).log_prob(v)),
    ("a distribution of tensors and numbers", lambda v, x: distributions.Gamma(v + 1, x).log_prob(v + 1))]


@pytest.mark.parametrize(("name", "function"), OPERATORS, ids=[name for name, _ in OPERATORS])
def test_operators_take_numbers_that_were_read(name: str, function: Callable[[torch.Tensor, Any], torch.Tensor]) -> None:
    def model(v: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return function(v, x.item())

    computed = xla_torch.from_torch(model, V, FIRST[0])
    assert not any(a.value == FIRST[0].item() for a in computed.computation.assumptions)
    torch.testing.assert_close(computed(V, SECOND[0]), model(V, SECOND[0]), rtol=1e-6, atol=1e-9)


def test_arithmetic_is_torchs_own_after_a_conversion() -> None:
    before = dict(vars(torch.SymFloat)), dict(vars(torch.SymInt)), dict(vars(math))
    converted(lambda x, n: math.sqrt(x) % n)
    assert (dict(vars(torch.SymFloat)), dict(vars(torch.SymInt)), dict(vars(math))) == before


def test_a_number_that_was_read_has_no_gradient() -> None:
    computed, model = converted(lambda x, n: math.sqrt(x) ** 1.5)
    v, x = V.clone().requires_grad_(), FIRST[0].clone().requires_grad_()
    computed(v, x, FIRST[1]).sum().backward()
    assert x.grad is None or x.grad == 0
    w = V.clone().requires_grad_()
    model(w, *FIRST).sum().backward()
    torch.testing.assert_close(v.grad, w.grad)


def without_grad(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        most = x.max().item()
    return x.sin() * most * x.detach()


def test_a_number_that_is_read_without_gradients_stays_a_value() -> None:
    computed = xla_torch.from_torch(without_grad, V)
    assert not computed.computation.assumptions
    ours, theirs = ((V + 0.5).requires_grad_() for _ in range(2))
    computed(ours).sum().backward()
    without_grad(theirs).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


def by_memory(x: torch.Tensor) -> torch.Tensor:
    kept = x.detach()
    parts = torch.zeros(2, dtype=x.dtype)
    parts[0] = x[int(kept.argmax())] * kept.as_strided((1,), (1,), 1)[0]
    return parts * kept.argmin().item()


def test_numbers_are_the_examples_where_derivatives_would_be_lost() -> None:
    computed = xla_torch.from_torch(by_memory, V)
    assert computed.computation.assumptions
    ours, theirs = (V.clone().requires_grad_() for _ in range(2))
    computed(ours).sum().backward()
    by_memory(theirs).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)
