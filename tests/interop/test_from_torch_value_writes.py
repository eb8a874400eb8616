"""Decisions of Python about what is written, drawn, read without gradients or converted: each is checked, or needs no check."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

import xla_torch
from xla_torch.errors import AssumptionError, ExecutionError, UnsupportedError

pytestmark = pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad=True to a scalar")
F64 = torch.float64
X = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=F64)


def written_into(x: torch.Tensor) -> torch.Tensor:
    made = torch.zeros(4, dtype=F64)
    made.add_(x)
    return x * 2 if (made > 0).all() else x


def written_through_a_view(x: torch.Tensor) -> torch.Tensor:
    made = torch.zeros(2, 4, dtype=F64)
    made[0].copy_(x)
    return x * 2 if made.sum() > 0 else x


def written_into_what_it_views(x: torch.Tensor) -> torch.Tensor:
    made = torch.zeros(4, dtype=F64)
    part = made.view(2, 2)[0]
    made.mul_(2).add_(x)
    return x * 2 if part.sum() > 0 else x


def written_without_gradients(x: torch.Tensor) -> torch.Tensor:
    made = torch.ones(4, dtype=F64)
    with torch.no_grad():
        made.mul_(x)
    return x.exp() if made.sum() > 0 else x


def statistics(x: torch.Tensor) -> torch.Tensor:
    mean, var = torch.zeros(1, dtype=F64), torch.ones(1, dtype=F64)
    found = F.batch_norm(x[:, None], mean, var, training=True)[:, 0]
    return found * 2 if mean.item() > 0 else found


def decided_without_gradients(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        y = x * 2
        if y.sum() > 3:
            y = y + 1
        count = int(y.max())
    return x * y + count


def counted_without_gradients(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        size = x[x > 2].shape[0]
        scale = x * size if size > 2 else x
    return scale * x


def a_range_to_a_float(x: torch.Tensor) -> torch.Tensor:
    times = torch.arange(0, torch.ceil(x[1] + 1).item(), dtype=x.dtype) * 0.25 + x[0]
    times[-1] = x[2]
    for start, stop in itertools.pairwise(times):
        x = x + (stop - start) * x.sin()
    return x


def a_range_between_floats(x: torch.Tensor) -> torch.Tensor:
    return torch.arange(x[0].item(), x[3].item(), dtype=x.dtype).sum() * x


def truths_as_numbers(x: torch.Tensor) -> torch.Tensor:
    number = int(x[0] > 0) * 2 + (x[1] > 5).item() + sum((x > 2).tolist())
    return x * number if number > 3 else x.sin()


def of_a_derivative(x: torch.Tensor) -> torch.Tensor:
    slope = torch.func.grad(lambda v: (v ** 3).sum())(x)
    count = int(slope.max() / 10)
    while slope.sum() > 10:
        slope = slope / 2
    return x * slope * count


ROWS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], torch.Tensor]] = {
    "written into": (written_into, -X), "written through a view": (written_through_a_view, -X),
    "written into what it views": (written_into_what_it_views, -X),
    "written without gradients": (written_without_gradients, -X), "statistics": (statistics, -X),
    "decided without gradients": (decided_without_gradients, -X),
    "a range to a float": (a_range_to_a_float, X * 2), "a range between floats": (a_range_between_floats, X * 2),
    "truths as numbers": (truths_as_numbers, -X), "of a derivative": (of_a_derivative, X * 2)}


def with_gradient(function: Callable[..., Any], x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    given = x.clone().requires_grad_()
    found = function(given)
    return found.detach(), torch.autograd.grad((found * found.detach().cos()).sum(), given)[0]


@pytest.mark.parametrize("name", ROWS)
def test_a_decision_is_checked(name: str):
    function, other = ROWS[name]
    ours = xla_torch.from_torch(function, X)
    torch.testing.assert_close(with_gradient(ours, X), with_gradient(function, X))
    assert ours.assumptions
    for call in (ours, lambda x: with_gradient(ours, x)):
        with pytest.raises(AssumptionError, match=__file__):
            call(other)
    family = xla_torch.from_torch(function, X, assumptions="retrace")
    torch.testing.assert_close(with_gradient(family, other), with_gradient(function, other))


def test_a_size_that_decides_without_gradients_is_checked():
    ours = xla_torch.from_torch(counted_without_gradients, X, assumptions="retrace")
    for x in (X, X + 2, X):
        torch.testing.assert_close(with_gradient(ours, x), with_gradient(counted_without_gradients, x))
    checked = xla_torch.from_torch(counted_without_gradients, X)
    with pytest.raises(ExecutionError):  # by what torch asserts of the size
        checked(X + 2)


def beside_a_write(x: torch.Tensor) -> torch.Tensor:
    found = x * 1
    found.add_(1)
    return found if bool((torch.ones(2) == 1).all()) else x


def beside_a_draw(x: torch.Tensor) -> torch.Tensor:
    found = x + torch.rand(()) * 0
    return found if (torch.arange(3) == torch.tensor([0, 1, 2])).all() else x


def written_with_constants(x: torch.Tensor) -> torch.Tensor:
    made = torch.zeros(4, dtype=F64)
    made[:2].add_(torch.ones(2, dtype=F64))
    x = x.clone()
    x[:1] = made[:1]
    return x * 2 if made.sum() == 2 else x


@pytest.mark.parametrize("function", [beside_a_write, beside_a_draw, written_with_constants])
def test_a_decision_about_constants_needs_no_check(function: Callable[[torch.Tensor], torch.Tensor]):
    ours = xla_torch.from_torch(function, X, weights="constants")
    assert not ours.assumptions
    for x in (X, -X):
        found = ours(ours.weights, x)[0] if ours.weights else ours(x)
        torch.testing.assert_close(found, function(x))


def test_a_decision_about_what_is_drawn_is_checked():
    def function(x: torch.Tensor) -> torch.Tensor:
        made = torch.zeros(2)
        made.uniform_()
        return x * 2 if made.sum() < 3 else x

    assert len(xla_torch.from_torch(function, X).assumptions) == 1


class Initialized(nn.Module):
    """Takes its first batch as its codebook, as vector_quantize_pytorch does."""

    ready: torch.Tensor
    codes: torch.Tensor

    def __init__(self):
        super().__init__()
        self.register_buffer("ready", torch.tensor(False))
        self.register_buffer("codes", torch.ones(4, dtype=F64))

    @torch.no_grad()
    def initialize(self, x: torch.Tensor) -> None:
        if not self.ready:
            self.codes.copy_(x)
            self.ready.copy_(torch.tensor(True))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.initialize(x)
        return x * self.codes


def test_a_buffer_that_decides_without_gradients_is_checked():
    ours = xla_torch.from_torch(Initialized(), X, assumptions="retrace")
    found, after = ours(ours.weights, X)
    torch.testing.assert_close(found, X * X)
    torch.testing.assert_close(after, {"ready": torch.tensor(True), "codes": X})
    found, after = ours({**ours.weights, **after}, X * 2)
    torch.testing.assert_close(found, X * X * 2)
    torch.testing.assert_close(after["codes"], X)
    checked = xla_torch.from_torch(Initialized(), X)
    with pytest.raises(AssumptionError, match=r"self\.ready"):
        checked({**checked.weights, **after}, X)


def converted(x: torch.Tensor) -> torch.Tensor:
    line = nn.Linear(4, 4, bias=False)
    nn.init.constant_(line.weight, 0.5)
    layer = nn.Sequential(line, nn.BatchNorm1d(4)).eval().to(x)
    found = layer(torch.stack([x, x.sin()])).sum(0)
    return found if x.sum() > 0 else x


def test_a_module_that_is_made_and_converted_within():
    assert converted(X).dtype is F64
    ours = xla_torch.from_torch(converted, X)
    torch.testing.assert_close(with_gradient(lambda x: ours(ours.weights, x)[0], X), with_gradient(converted, X))
    with pytest.raises(AssumptionError, match=r"x\.sum\(\) > 0"):
        ours(ours.weights, -X)
    assert not isinstance(nn.Linear(2, 2).double().weight, torch._subclasses.FakeTensor)


def test_the_models_own_layers_stay_as_they_were():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer.to(x)(x) if x.sum() > 0 else x

    model = Model()
    xla_torch.from_torch(model, X)
    assert type(model.layer.weight) is nn.Parameter
    torch.testing.assert_close(model.layer.weight.double().sum(), model.layer.weight.sum().double())


def test_a_failure_of_the_second_trace_is_the_error():
    def function(x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return torch.linalg.ldl_factor(x[:, None] * x)[0]
        return x

    with pytest.raises(UnsupportedError, match="ldl_factor") as caught:
        xla_torch.from_torch(function, X)
    assert "data-dependent" in str(caught.value.__cause__)


def test_an_error_of_the_model_itself_passes_through():
    def function(x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            raise KeyError("nothing there")
        return x

    with pytest.raises(KeyError, match="nothing there") as caught:
        xla_torch.from_torch(function, X)
    assert "data-dependent" in str(caught.value.__cause__)


# ------------------------------------------------------------------------------------------- places that a mask chooses


def target(x: torch.Tensor, m: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    made = torch.zeros(6, 4, dtype=F64)
    made[m, labels[m]] = 1.0
    return made * x


def column(x: torch.Tensor, m: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y[m, 0] = x[m, 1]
    return y


def added(x: torch.Tensor, m: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y[torch.arange(5, -1, -1)[m], labels[m]] += x[m, 2]
    return y


def by_where(x: torch.Tensor, m: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    y, (places,) = x * 2, torch.where(m)
    y[places, labels[m]] = x[m].sum(1)
    return y


PLACED: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "a target": target, "a column": column, "added": added, "beside places of where": by_where,
    "read": lambda x, m, labels: x * x[m, labels[m]].square().sum(),
    "read by where": lambda x, m, labels: x * (x[torch.where(m)[0]] * x[m]).sum()}
ROWS_CHOSEN = [torch.tensor(rows, dtype=torch.bool) for rows in ([1, 0, 1, 1, 0, 1], [0, 0, 0, 1, 0, 0], [0] * 6, [1] * 6)]


@pytest.mark.parametrize("is_fixed", [False, True], ids=["of any number", "of the number that Python asked for"])
@pytest.mark.parametrize("first", [0, 1, 2])
@pytest.mark.parametrize("name", PLACED)
def test_places_that_a_mask_and_its_labels_say(name: str, first: int, is_fixed: bool):
    def function(x: torch.Tensor, m: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return PLACED[name](x, m, labels) * (sum(range(len(labels[m]))) if is_fixed else 3)

    def results(run: Any, mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = x.clone().requires_grad_()
        found = run(given, mask, labels)
        return found.detach(), *torch.autograd.grad(found.sin().sum(), given)

    x, labels = torch.linspace(-1, 2, 24, dtype=F64).reshape(6, 4), torch.tensor([0, 1, 2, 3, 0, 2])
    ours = xla_torch.from_torch(function, x, ROWS_CHOSEN[first], labels)
    for mask in ROWS_CHOSEN:
        if is_fixed and mask.sum() != ROWS_CHOSEN[first].sum():
            with pytest.raises(AssumptionError, match=__file__):
                ours(x, mask, labels)
        else:
            torch.testing.assert_close(results(ours, mask), results(function, mask))


class Copied(nn.Module):
    """Copies its input, of another type, into a buffer."""

    held: torch.Tensor
    WAYS: dict[str, Callable[[Copied, torch.Tensor], Any]] = {
        "copy_": lambda self, x: self.held.copy_(x),
        "through data": lambda self, x: self.held.data.copy_(x),
        "through detach": lambda self, x: self.held.detach().copy_(x),
        "without gradients": lambda self, x: torch.no_grad()(self.held.copy_)(x),
        "within": lambda self, x: self.held.data[:1].copy_(x[:1])}

    def __init__(self, way: str, dtype: torch.dtype):
        super().__init__()
        self.way = way
        self.register_buffer("held", torch.zeros(4, dtype=dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.WAYS[self.way](self, x)
        return x * self.held


@pytest.mark.parametrize("dtype", [torch.bool, torch.int32, torch.float32])
@pytest.mark.parametrize("way", Copied.WAYS)
def test_what_is_copied_into_a_buffer_has_its_type(way: str, dtype: torch.dtype):
    model, x = Copied(way, dtype), X * 0.7
    ours = xla_torch.from_torch(model, x)
    found, after = ours(ours.weights, x)
    expected = model(x)
    torch.testing.assert_close((found, after["held"]), (expected, model.held))


def test_what_an_exported_program_copies_into_a_buffer_has_its_type():
    model = Copied("copy_", torch.bool)
    exported = torch.export.export(model, (X,), strict=False)
    before = str(exported.graph)
    ours = xla_torch.from_torch(exported)
    torch.testing.assert_close(ours(ours.weights, X), (X, {"held": torch.ones(4, dtype=torch.bool)}))
    assert str(exported.graph) == before
