"""Models that catch errors: eager torch judges which way they take, and a program checks that a call takes the same one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch

import xla_torch
from xla_torch.errors import AssumptionError, UnsupportedError

F64 = torch.float64
ONE = torch.eye(4, dtype=F64)
torch.manual_seed(0)
FULL = torch.randn(4, 4, dtype=F64)
Function = Callable[[torch.Tensor], torch.Tensor]


def _with_jitter(a: torch.Tensor) -> torch.Tensor:
    for k in range(8):
        try:
            return torch.linalg.cholesky(a @ a.T + ONE * (0.1 * 2 ** k - 0.5))
        except torch.linalg.LinAlgError:
            pass
    raise ValueError("no factor")


def _twice(a: torch.Tensor) -> torch.Tensor:
    s = a @ a.T - ONE * 0.5
    try:
        return torch.linalg.cholesky(s)
    except Exception:
        return torch.linalg.cholesky(s + ONE)


def _factor(s: torch.Tensor) -> torch.Tensor:
    return s.cholesky() if s.ndim > 3 else torch.linalg.cholesky(s)


def _around_a_call(a: torch.Tensor) -> torch.Tensor:
    s = a @ a.T - ONE * 0.5
    try:
        return _factor(s)
    except (KeyError, RuntimeError):
        return _factor(s + ONE)


def _inverse(a: torch.Tensor) -> torch.Tensor:
    try:
        return torch.linalg.inv(a)
    except RuntimeError:
        return torch.linalg.pinv(a)


def _inverse_of_a_method(a: torch.Tensor) -> torch.Tensor:
    try:
        return a.inverse()
    except:  # noqa: E722
        return a * 2


def _solve(a: torch.Tensor) -> torch.Tensor:
    try:
        return torch.linalg.solve(a, a[:, :1])
    except RuntimeError:
        return a[:, :1] * 2


def _suppressed(a: torch.Tensor) -> torch.Tensor:
    found = a
    with contextlib.suppress(RuntimeError):
        found = torch.inverse(a)
    return found


def _integer(x: torch.Tensor) -> torch.Tensor:
    try:
        n = int(x.abs().max())
    except Exception:
        n = 7
    return x * n


def _decision(x: torch.Tensor) -> torch.Tensor:
    try:
        return x * 2 if x.sum() > 0 else x * 3
    except Exception:
        return x * 5


def _size(x: torch.Tensor) -> torch.Tensor:
    try:
        return x[x > 0].view(2, -1)
    except RuntimeError:
        return x * 5


ROWS: list[tuple[Function, torch.Tensor, torch.Tensor]] = [
    (_with_jitter, FULL, ONE), (_twice, FULL, ONE), (_twice, ONE, FULL * 0.1), (_around_a_call, FULL, ONE),
    (_around_a_call, ONE * 0.1, ONE), (_inverse, FULL, FULL * 0), (_inverse, FULL * 0, FULL),
    (_inverse_of_a_method, FULL, FULL * 0), (_solve, FULL, FULL * 0), (_solve, FULL * 0, FULL), (_suppressed, FULL * 0, FULL),
    (_integer, FULL, FULL * 3), (_decision, ONE, -ONE), (_decision, -ONE, ONE),
    (_size, torch.tensor([1.0, -1, 2]), torch.tensor([1.0, 1, 2]))]


@pytest.mark.parametrize(("function", "example", "other"), ROWS)
def test_a_way_that_is_taken_after_an_error_is_a_decision(function: Function, example: torch.Tensor, other: torch.Tensor) -> None:
    program = xla_torch.from_torch(function, example)
    torch.testing.assert_close(program(example), function(example))
    with pytest.raises(AssumptionError, match=__file__):
        program(other)


def _for_others(a: torch.Tensor) -> torch.Tensor:
    try:
        return torch.linalg.cholesky(a)
    except KeyError:
        return a
    finally:
        a.sum()


@pytest.mark.parametrize("function", [_for_others, _factor])
def test_errors_that_nothing_catches_are_no_decisions(function: Any) -> None:
    program = xla_torch.from_torch(function, ONE)
    assert not program.assumptions
    assert program(-ONE).isnan().any()


def _refused(x: torch.Tensor) -> torch.Tensor:
    try:
        y = x * 2
        y.data = x
        return y
    except Exception:
        return x * 5


def test_an_operation_that_is_refused_is_not_caught() -> None:
    with pytest.raises(UnsupportedError, match=r"\.data"):
        xla_torch.from_torch(_refused, ONE)
