"""The backend "xla_torch" of torch.compile has eager's numbers in values, gradients and training, and names what it refuses."""

from __future__ import annotations

import copy
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from xla_torch.api import torch_backend
from xla_torch.core.errors import XlaWarning

backend = torch_backend.xla_torch
PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
BackendError = torch._dynamo.exc.BackendCompilerFailed  # pyright: ignore[reportAttributeAccessIssue]


@pytest.fixture(autouse=True)
def compiler():
    """No graph of another test, and none of torch's own warnings as it traces."""
    torch.compiler.reset()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"torch\.")
        yield


class Buffers(nn.Module):
    calls: torch.Tensor

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += x.shape[0]
        return self.layer(x) / self.calls


class Breaks(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x).tanh()
        if x.sum() > 0:
            x = x * 2
        return self.second(x)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.last = nn.LSTMCell(4, 6), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = (x.new_zeros(x.shape[0], 6), x.new_zeros(x.shape[0], 6))
        for step in x.unbind(1):
            state = self.cell(step, state)
        return self.last(state[0])


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.last = nn.LSTM(4, 6, batch_first=True), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.layer(x)[0][:, -1])


class Reader(nn.Module):
    def __init__(self, dropout: float):
        super().__init__()
        self.embedding, self.last = nn.Embedding(11, 8), nn.Linear(8, 3)
        self.block = nn.TransformerEncoderLayer(8, 2, 16, dropout, batch_first=True)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.last(self.block(self.embedding(tokens)).mean(1))


class Written(nn.Module):
    """Writes into a part of what it computed, and returns views of it."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        y[:, 0] += 1
        y[:, 1:3].mul_(2)
        return y.view(-1, 3, 2).transpose(1, 2)


def _network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 4, 3),
                         nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))


def _rows(n: int) -> torch.Tensor:
    return torch.randn(n, 4)


def _steps(n: int) -> torch.Tensor:
    return torch.randn(n, 5, 4)


def _tokens(n: int) -> torch.Tensor:
    return torch.randint(0, 11, (n, 6))


def _images(n: int) -> torch.Tensor:
    return torch.randn(n, 3, 8, 8)


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], torch.Tensor]]] = {
    "a multilayer perceptron": (lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)), _rows),
    "convolutions with batch normalisation": (_network, _images),
    "batch normalisation in evaluation": (lambda: _network().eval(), _images),
    "a transformer": (lambda: Reader(0.0), _tokens),
    "a transformer with dropout": (lambda: Reader(0.1), _tokens),
    "dropout": (lambda: nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 3)), _rows),
    "cells of an LSTM": (Recurrent, _steps),
    "an LSTM": (Lstm, _steps),
    "a graph break": (Breaks, _rows),
    "buffers": (Buffers, _rows),
    "writes in place and views": (Written, _rows),
    "frozen weights": (lambda: nn.Sequential(nn.Linear(4, 8).requires_grad_(False), nn.ReLU(), nn.Linear(8, 3)), _rows),
    "group normalisation": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.SiLU(), nn.Flatten(),
                                                  nn.Linear(144, 3)), _images),
    "double precision": (lambda: nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 3), nn.Softmax(-1)).double(),
                         lambda n: _rows(n).double())}


def trained(model: nn.Module, call: Callable[..., Any], batches: list[torch.Tensor]) -> list[torch.Tensor]:
    """The losses of steps of gradient descent, and the weights and buffers after them."""
    optimizer, losses = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.1), []
    for number, batch in enumerate(batches):
        torch.manual_seed(number)
        optimizer.zero_grad()
        loss = call(batch).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [*losses, *model.state_dict().values()]


@pytest.mark.parametrize("sizes", [(4, 4, 4), (4, 6, 5)], ids=["one batch size", "several batch sizes"])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_trains_with_eagers_numbers(name: str, sizes: tuple[int, ...]):
    torch.manual_seed(0)
    make, example = MODELS[name]
    model = make()
    ours, batches = copy.deepcopy(model), [example(n) for n in sizes]
    found = trained(ours, torch.compile(ours, backend=backend), batches)
    torch.testing.assert_close(found, trained(model, model, batches), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", [
    "a multilayer perceptron", "convolutions with batch normalisation", "a transformer with dropout"])
def test_a_model_trains_by_xla_with_eagers_numbers(name: str):
    torch.manual_seed(0)
    make, example = MODELS[name]
    model = make()
    ours, batches = copy.deepcopy(model), [example(4) for _ in range(3)]
    found = trained(ours, torch.compile(ours, backend=backend, options={"runtime": "xla"}), batches)
    torch.testing.assert_close(found, trained(model, model, batches), atol=1e-5, rtol=1e-5)


X = torch.linspace(-2, 2, 16).reshape(4, 4)

FUNCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "the argument": lambda x: x,
    "a view of the argument": lambda x: x.t(),
    "a copy": lambda x: x.clone(),
    "a flat copy": lambda x: x.reshape(-1).clone(),
    "a product with 1": lambda x: x * 1,
    "one result twice": lambda x: ((y := x + 1), y),
    "a result and its copy": lambda x: ((y := x + 1), y.clone()),
    "views of a result": lambda x: ((y := x + 1), y.t(), y[1], y[:2].flatten()),
    "expanded views": lambda x: ((y := x[0] + 1).expand(3, 4), y[:2]),
    "overlapping windows": lambda x: (x[0] + 1).unfold(0, 2, 1),
    "another order in memory": lambda x: (x + 1).t().clone().t(),
    "empty results": lambda x: ((x + 1)[:0].t(), x[:0] + 1),
    "constants": lambda x: (torch.ones(3), torch.ones(3), x.shape[0], None),
    "an argument written into": lambda x: x.add_(1),
    "a view written into": lambda x: (x[1:].mul_(2), x.sum()),
    "other dtypes": lambda x: (x > 0, x.argmax(0), x.to(torch.complex64) * 1j, x.to(torch.float64), x.to(torch.int8)),
    "random numbers": lambda x: (
        torch.rand(3), torch.randn_like(x), nn.functional.dropout(x, 0.4), torch.randint(0, 9, (3,)), torch.randperm(5),
        torch.empty(3).uniform_(), torch.empty(3).normal_(), torch.empty(2).exponential_(), torch.bernoulli(x.sigmoid())),
    "dropout of a transposed array": lambda x: nn.functional.dropout(x.t() + 1, 0.4),
    "dropout of everything": lambda x: torch.dropout(x + 1, 1.0, True),
    "dropout that is off": lambda x: torch.dropout(x + 1, 0.5, False),
    "a number of Python": lambda x: x * x.sum().item(),
    "a size that depends on values": lambda x: x[x > 0] + 1}


def _shared(results: list[Any], argument: torch.Tensor) -> list[list[bool]]:
    keys = [t.untyped_storage().data_ptr() for t in (*results, argument) if isinstance(t, torch.Tensor) and t.numel()]
    return [[a == b for a in keys] for b in keys]


@pytest.mark.filterwarnings("ignore:.*Casting complex")
@pytest.mark.parametrize("order", [False, True], ids=["by rows", "transposed"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_lie_in_memory_as_torch_compile_says(name: str, order: bool):
    def run(backend: Any) -> tuple[list[Any], torch.Tensor]:
        torch.compiler.reset()
        x = X.t().clone().t() if order else X.clone()
        torch.manual_seed(0)
        found = torch.compile(FUNCTIONS[name], backend=backend)(x)
        return list(found) if isinstance(found, tuple) else [found], x

    (found, x), (expected, y) = run(backend), run("aot_eager")
    assert _shared(found, x) == _shared(expected, y)
    torch.testing.assert_close([*found, x], [*expected, y])
    for one, other in zip(found, expected, strict=True):
        assert not isinstance(one, torch.Tensor) or one.stride() == other.stride()


@pytest.mark.parametrize("dynamic", [False, True])
def test_targets_behind_the_first_negative_one_do_not_count_in_a_compiled_loss(dynamic: bool):
    x, target = torch.tensor([[0.3, -1.2, 0.9, 0.1], [0.2, 1.1, -0.4, 0.0]]), torch.tensor([[1, -1, 0, 2], [3, 0, -1, 1]])
    run = torch.compile(nn.functional.multilabel_margin_loss, backend=backend, dynamic=dynamic, fullgraph=True)
    expected, found = (x.clone().requires_grad_() for _ in range(2))
    loss = nn.functional.multilabel_margin_loss(expected, target)
    torch.testing.assert_close(run(x, target), loss.detach())
    loss.backward()
    run(found, target).backward()
    torch.testing.assert_close(found.grad, expected.grad)


def test_sizes_and_numbers_are_symbolic():
    run = torch.compile(lambda x, n: (x * n, x.shape[0] * 2, x.sum() / x.shape[0]), backend=backend, dynamic=True)
    for size in (3, 4, 3):
        expected = torch.full((size, 2), size + 0.5), 2 * size, torch.tensor(2.0)
        torch.testing.assert_close(run(torch.ones(size, 2), size + 0.5), expected)


# ------------------------------------------------------------------------------------------- refusals


def _drawn(x: torch.Tensor) -> torch.Tensor:
    return torch.multinomial(x.sigmoid(), 2) * 2


def test_a_graph_without_a_program_runs_in_eager_torch_with_one_warning():
    run = torch.compile(_drawn, backend=backend)
    torch.manual_seed(0)
    with pytest.warns(XlaWarning, match="multinomial.default") as caught:
        found = run(X)
    assert len([w for w in caught if w.category is XlaWarning]) == 1
    torch.manual_seed(0)
    assert torch.equal(found, _drawn(X))
    run(X)  # a second warning would be an error


@pytest.mark.parametrize(("options", "message"), [
    ({"fullgraph": True}, "multinomial.default"),
    ({"options": {"fallback": False}}, "multinomial.default"),
    ({"options": {"runtime": "tpu"}}, "no such runtime\n.*'tpu'"),
    ({"options": {"fall_back": False}}, "no such option of the backend\n.*fall_back"),
    ({"options": {"fallback": "no"}}, "fallback is no bool"),
    ({"mode": "max-autotune"}, "no such option of the backend\n.*max-autotune")])
def test_what_cannot_be_done_is_refused(options: dict[str, Any], message: str):
    with pytest.raises(BackendError, match=message):
        torch.compile(_drawn, backend=backend, **options)(X)


# ------------------------------------------------------------------------------------------- the entry point


def test_the_entry_point_of_the_project_is_the_backend(tmp_path: Path):
    """torch.compile finds it by its name, in a Python where the package is installed so."""
    stated = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]["entry-points"]
    folder = tmp_path / "described-0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: described\nVersion: 0\n")
    lines = [f"{name} = {target}" for name, target in stated["torch_dynamo_backends"].items()]
    (folder / "entry_points.txt").write_text("\n".join(["[torch_dynamo_backends]", *lines]))
    code = (f"import sys; sys.path[:0] = {[str(tmp_path), *sys.path]!r}\n"
            "import torch\n"
            "run = torch.compile(lambda x: x.sin() + 1, backend='xla_torch', fullgraph=True)\n"
            "x = torch.ones(3)\n"
            "assert torch.allclose(run(x), x.sin() + 1)\n"
            "assert 'xla_torch.api.torch_backend' in sys.modules\n")
    subprocess.run([sys.executable, "-c", code], check=True)
