"""Models that seed torch's generator: what they draw then is the same in each call."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

import xla_torch
from xla_torch.errors import UnsupportedError


def _in_a_fork(v: torch.Tensor) -> torch.Tensor:
    with torch.random.fork_rng():
        torch.manual_seed(4)
        fixed = torch.rand(4, 3, dtype=v.dtype)
    return v * fixed


def _with_a_state_put_back(v: torch.Tensor) -> torch.Tensor:
    state = torch.get_rng_state()
    torch.random.manual_seed(3)
    fixed = torch.rand(4, 3)
    torch.set_rng_state(state)
    return v * fixed


def _seeded(draw: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    def forward(v: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(3)
        return v * draw(v)

    return forward


SEEDED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "in a fork": _in_a_fork, "with a state put back": _with_a_state_put_back,
    "normal": _seeded(lambda v: torch.randn(4, 3) + torch.normal(0.0, 2.0, (4, 3))),
    "integers": _seeded(lambda v: torch.randint(0, 5, (4, 3)) + torch.randperm(3)),
    "like": _seeded(lambda v: torch.rand_like(v) + torch.randn_like(v)),
    "in place": _seeded(lambda v: torch.empty(4, 3).normal_()),
    "by torch's generator": _seeded(lambda v: torch.rand(4, 3, generator=torch.manual_seed(8))),
    "of a distribution": _seeded(lambda v: torch.distributions.Normal(v, 1.0, validate_args=False).rsample())}


@pytest.mark.parametrize("name", SEEDED)
def test_numbers_after_a_seed_in_the_model_are_constants(name: str) -> None:
    function, x = SEEDED[name], torch.randn(4, 3)
    program = xla_torch.from_torch(function, x)
    for given in (x, x + 1):
        torch.testing.assert_close(program(given), function(given))


@pytest.mark.parametrize("draw", [
    F.dropout, lambda v: torch.bernoulli(v.sigmoid()), F.gumbel_softmax, lambda v: nn.Linear(3, 3)(v) * 2])
def test_numbers_of_tensors_after_a_seed_are_refused(draw: Callable[[torch.Tensor], torch.Tensor]) -> None:
    with pytest.raises(UnsupportedError, match="depend on a tensor"):
        xla_torch.from_torch(_seeded(draw), torch.randn(4, 3))


def test_numbers_before_a_seed_and_after_its_fork_are_drawn_in_each_call() -> None:
    def forward(v: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.rand(3), _in_a_fork(v), torch.rand(3)

    program, x = xla_torch.from_torch(forward, v := torch.randn(4, 3)), v + 1
    first, later = program(program.weights, x)
    second, _ = program(later, x)
    torch.testing.assert_close((first[1], second[1]), (_in_a_fork(x),) * 2)
    assert len(torch.cat([first[0], first[2], second[0], second[2]]).unique()) == 12
