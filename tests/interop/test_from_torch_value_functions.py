"""Functions as in libraries, whose Python looks at values: each converts, and raises where eager torch branches otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import distributions, nn

import xla_torch
from xla_torch.errors import AssumptionError, ExecutionError

pytestmark = pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad=True to a scalar")
F64 = torch.float64
X = torch.tensor([0.5, 1.0, 2.0, 3.0], dtype=F64)
BASE = torch.tensor([[4.0, 1.0, 0.5, 0.2], [1.0, 3.0, 0.3, 0.1], [0.5, 0.3, 2.0, 0.4], [0.2, 0.1, 0.4, 1.0]], dtype=F64)
TRANSITIONS = torch.tensor([[0.1, 0.9, -0.3, 0.2], [0.4, 0.2, 0.7, -0.1], [-0.5, 0.3, 0.1, 0.6], [0.2, -0.2, 0.8, 0.4]],
                           dtype=F64)


def normal(x: torch.Tensor) -> torch.Tensor:
    return distributions.Normal(x, x, validate_args=True).log_prob(x.sin())


def categorical(x: torch.Tensor) -> torch.Tensor:
    one = distributions.Categorical(probs=x, validate_args=True)
    return one.log_prob(torch.tensor(2)) + one.entropy()


def multivariate_normal(x: torch.Tensor) -> torch.Tensor:
    return distributions.MultivariateNormal(x, BASE * x[:, None].sqrt() * x.sqrt(), validate_args=True).log_prob(x * 0.5)


def dirichlet(x: torch.Tensor) -> torch.Tensor:
    return distributions.Dirichlet(x, validate_args=True).log_prob(x.detach() / x.detach().sum())


def divergence(x: torch.Tensor) -> torch.Tensor:
    one, other = (distributions.Gamma(a, b, validate_args=True) for a, b in ((x, x + 1), (x + 0.5, x)))
    return distributions.kl_divergence(one, other)


DISTRIBUTIONS = (normal, categorical, multivariate_normal, dirichlet, divergence)
IS_ASSERTED = hasattr(distributions.distribution, "_all_true_or_runtime_assert")
"""Whether torch exports the checks of distributions as assertions, which 2.15 does, and does not branch on them."""


def runge_kutta(x: torch.Tensor) -> torch.Tensor:
    """Heun's method with an embedded Euler step, whose step size follows the error."""
    time, step = 0.0, 0.4
    while time < 1.0:
        step = min(step, 1.0 - time)
        slope = -x * x.cos()
        euler = x + step * slope
        heun = x + step / 2 * (slope - euler * euler.cos())
        if (heun - euler).abs().max() > 0.2:
            step /= 2
            continue
        x, time = heun, time + step
    return x


def bisection(x: torch.Tensor) -> torch.Tensor:
    """The root of t**3 + t = sum(x), by its sign, and one differentiable Newton step."""
    low, high = 0.0, 4.0
    target = x.sum()
    while high - low > 1e-3:
        middle = (low + high) / 2
        if middle ** 3 + middle > target:
            high = middle
        else:
            low = middle
    return low - (low ** 3 + low - target) / (3 * low ** 2 + 1)


def newton(x: torch.Tensor) -> torch.Tensor:
    root = torch.ones_like(x)
    for _ in range(30):
        step = (root ** 3 - x) / (3 * root ** 2)
        root = root - step
        if step.abs().max().item() < 1e-8:
            return root
    raise RuntimeError("no convergence")


def beam_search(x: torch.Tensor) -> torch.Tensor:
    """Two beams over four labels, which end when the best one ends in the label 3."""
    scores = x.log_softmax(0)
    best, last = scores.topk(2)
    for _ in range(5):
        joined = best[:, None] + TRANSITIONS[last].log_softmax(1) * x
        best, flat = joined.flatten().topk(2)
        last = flat % 4
        if last[0] == 3:
            break
    return best


def suppression(x: torch.Tensor) -> torch.Tensor:
    """Non-maximum suppression of intervals [x, x + 1]."""
    order = x.argsort(descending=True).tolist()
    kept: list[int] = []
    for k in order:
        overlaps = [(1 - (x[k] - x[j]).abs()).clamp(min=0) for j in kept]
        if all(o < 0.3 for o in overlaps):
            kept.append(k)
    return x[kept].square().sum()


def k_means(x: torch.Tensor) -> torch.Tensor:
    centres = x[:2]
    while True:
        nearest = (x[:, None] - centres).abs().argmin(1)
        after = torch.stack([x[nearest == k].mean() for k in range(2)])
        if torch.allclose(after, centres):
            return after
        centres = after


def length_mask(x: torch.Tensor) -> torch.Tensor:
    lengths = x.ceil().long()
    mask = torch.arange(int(lengths.max()))[None] < lengths[:, None]
    return (x[:, None] * mask).sum(0)


def reshaped(x: torch.Tensor) -> torch.Tensor:
    rows = int(x[2].item())
    if x.numel() % rows:
        raise ValueError("not divisible")
    return x.view(rows, -1).cumsum(0).flatten()


def cholesky(x: torch.Tensor) -> torch.Tensor:
    """As gpytorch: with more on the diagonal until it succeeds."""
    matrix = BASE - 1.0 * torch.outer(x, x) / x.sum()
    for jitter in (0.0, 0.1, 0.5, 1.0, 5.0):
        factor, info = torch.linalg.cholesky_ex(matrix + jitter * torch.eye(4, dtype=F64))
        if not torch.any(info):
            return factor.diagonal().log()
    raise ValueError("not positive definite")


def accuracy(x: torch.Tensor) -> torch.Tensor:
    """As torchmetrics: with checks of its arguments."""
    target = (x > 1).long()
    values = set(torch.unique(target).tolist())
    if not values <= {0, 1}:
        raise ValueError(f"unexpected labels {values}")
    if x.min() < 0 or x.max() > 1:
        x = x.sigmoid()
    return ((x > 0.5).long() == target).double().mean() + F.binary_cross_entropy(x, target.double())


def line_search(x: torch.Tensor) -> torch.Tensor:
    value, slope, rate = (x ** 4).sum(), 4 * x ** 3, 1.0
    while ((x - rate * slope) ** 4).sum() > value - 0.1 * rate * slope.square().sum():
        rate *= 0.5
    return x - rate * slope


def clipped(x: torch.Tensor) -> torch.Tensor:
    norm = x.norm()
    return x * (2 / norm) if norm > 2 else x


def power_iteration(x: torch.Tensor) -> torch.Tensor:
    vector, before = x / x.norm(), x.new_zeros(())
    for _ in range(50):
        vector = BASE @ vector
        found = vector.norm()
        vector = vector / found
        if abs((found.detach() - before).item()) < 1e-2:
            break
        before = found.detach()
    return vector


def padded(x: torch.Tensor) -> torch.Tensor:
    parts = x.split(torch.tensor([1, 3]).tolist())
    whole = nn.utils.rnn.pad_sequence(list(parts), batch_first=True)
    return whole.sum(0) if whole.abs().sum() > 1 else whole[0]


def capped(x: torch.Tensor) -> torch.Tensor:
    """An adaptive computation time, which stops when all have halted."""
    halted, state = torch.zeros_like(x), x
    steps = 0
    while bool((halted < 1).any()) and steps < 10:
        state, steps = state.tanh() + 0.1 * x, steps + 1
        halted = halted + state.abs() * 0.5
    return state * halted


ROWS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], torch.Tensor]] = {
    "normal": (normal, -X), "categorical": (categorical, X * torch.tensor([-0.1, 1, 1, 1])),
    "multivariate normal": (multivariate_normal, X * torch.nan),
    "dirichlet": (dirichlet, -X), "divergence": (divergence, -X), "runge-kutta": (runge_kutta, X / 50),
    "bisection": (bisection, X * 2), "newton": (newton, X * 1e3), "beam search": (beam_search, X.flip(0) * 5),
    "suppression": (suppression, X * 0.2), "k-means": (k_means, X.flip(0) ** 3), "a mask of lengths": (length_mask, X * 2),
    "reshaped": (reshaped, X.flip(0) + 3), "cholesky with jitter": (cholesky, X * 9),
    "accuracy": (accuracy, X / 4), "line search": (line_search, X / 8), "clipped": (clipped, X / 8),
    "power iteration": (power_iteration, torch.tensor([0.95, 0.3, 0.1, 0.05], dtype=F64)), "padded": (padded, X / 99),
    "halting": (capped, X * 9)}


def with_gradient(function: Callable[..., Any], x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    given = x.clone().requires_grad_()
    found = function(given)
    return found.detach(), torch.autograd.grad((found * found.detach().cos()).sum(), given)[0]


@pytest.mark.parametrize("name", ROWS)
def test_a_function_of_a_library(name: str):
    function, other = ROWS[name]
    ours = xla_torch.from_torch(function, X)
    for x in (X, X * (1 + 1e-9)):
        try:
            found = with_gradient(ours, x)
        except AssumptionError:  # of a number that is frozen
            assert x is not X
            continue
        torch.testing.assert_close(found, with_gradient(function, x))
    is_asserted = IS_ASSERTED and function in DISTRIBUTIONS
    assert is_asserted or ours.assumptions
    with pytest.raises(ExecutionError if is_asserted else AssumptionError, match=__file__):
        ours(other)
    family = xla_torch.from_torch(function, X, assumptions="retrace")
    try:
        expected = with_gradient(function, other)
    except (ValueError, RuntimeError) as error:
        with pytest.raises(RuntimeError if is_asserted else type(error)):
            family(other)
    else:
        torch.testing.assert_close(with_gradient(family, other), expected)
