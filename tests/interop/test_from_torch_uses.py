"""Programs as people write them: values and gradients of eager torch, for two inputs, unless Python decides otherwise."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import distributions, nn
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

from xla_torch.errors import AssumptionError, ExecutionError, UnsupportedError, XlaWarning
from xla_torch.nn import XlaModule

F64, NAN = torch.float64, math.nan
pytestmark = pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad=True to a scalar")
Use = tuple[nn.Module, tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]
"""A module, its example and a second input."""


class With(nn.Module):
    """A function of layers and inputs."""

    def __init__(self, function: Callable[..., Any], *layers: nn.Module):
        super().__init__()
        self.function, self.layers = function, nn.ModuleList(layers)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*self.layers, *inputs)


def _x(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, dtype=F64)


class Solve(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        z = torch.zeros_like(x)
        for _ in range(60):
            z = torch.tanh(z @ weight + x)
        ctx.save_for_backward(weight, z)
        return z

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        weight, z = ctx.saved_tensors
        slope, found = 1 - z * z, cotangent
        for _ in range(60):
            found = cotangent + (found * slope) @ weight.T
        return z.T @ (found * slope), found * slope


def fixed_point() -> Use:
    return With(lambda linear, x: Solve.apply(linear.weight * 0.3, x).sum(-1), nn.Linear(4, 4)), (_x(3, 4),), (_x(3, 4),)


def padded_sequences() -> Use:
    def run(linear: nn.Module, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        parts = x.split(lengths.tolist())
        return nn.utils.rnn.pad_sequence([linear(part).tanh() for part in parts], batch_first=True).max(1).values

    return With(run, nn.Linear(3, 2)), (_x(6, 3), torch.tensor([3, 1, 2])), (_x(6, 3), torch.tensor([2, 2, 2]))


def writes_by_masks() -> Use:
    def run(linear: nn.Module, x: torch.Tensor) -> Any:
        h = linear(x).clone()
        mask = h > 0
        h[mask] = h[mask] * 2
        h[~mask] -= 1
        return h, h[mask].sum()

    return With(run, nn.Linear(3, 4)), (_x(4, 3),), (_x(4, 3),)


class Teacher(nn.Module):
    mean: torch.Tensor

    def __init__(self):
        super().__init__()
        self.student, self.teacher = nn.Linear(3, 4), nn.Linear(3, 4)
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            target = self.teacher(x)
            self.mean.mul_(0.9).add_(target.mean(0) * 0.1)
        return F.mse_loss(self.student(x), target - self.mean)


class Bounded(nn.Module):
    """A bound that two modules have, and that a decision reads by its second name."""

    def __init__(self):
        super().__init__()
        bounds = nn.Module()
        bounds.register_buffer("value", torch.tensor([0.5]))
        self.inner, self.bounds = nn.Linear(3, 2), bounds
        self.inner.add_module("bounds", bounds)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        bound, found = self.bounds.value, self.inner(x)
        return found.tanh() + bound if found.max() > bound else found * bound


def suppression() -> Use:
    def run(linear: nn.Module, x: torch.Tensor) -> torch.Tensor:
        boxes, kept = linear(x), []
        order = boxes[:, 0].argsort(descending=True)
        while len(order):
            kept.append(boxes[order[0]])
            order = order[1:][(boxes[order[1:]] - boxes[order[0]]).norm(dim=1) > 0.6]
        return torch.stack(kept)

    return With(run, nn.Linear(3, 3)), (_x(6, 3),), (_x(6, 3) * 0.1,)


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.experts = nn.Linear(4, 3), nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.gate(x).softmax(-1).topk(2, -1)
        found = torch.zeros_like(x)
        for k, expert in enumerate(self.experts):
            row, column = torch.where(chosen == k)
            if row.numel():
                found.index_add_(0, row, expert(x[row]) * weights[row, column, None])
        return found


def counted_groups() -> Use:
    def run(linear: nn.Module, x: torch.Tensor, groups: torch.Tensor) -> Any:
        distinct, places, counts = torch.unique(groups, return_inverse=True, return_counts=True)
        sums = torch.zeros(len(distinct), 2, dtype=x.dtype).index_add(0, places, linear(x))
        return sums / counts[:, None], torch.bincount(groups)

    return (With(run, nn.Linear(3, 2)), (_x(6, 3), torch.tensor([0, 2, 2, 5, 0, 2])),
            (_x(6, 3), torch.tensor([1, 2, 3, 5, 0, 2])))


def hardest_labels() -> Use:
    def run(linear: nn.Module, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        found, kept = linear(x), labels != -1
        if not kept.any():
            return found.sum() * 0
        losses = F.cross_entropy(found[kept], labels[kept], reduction="none")
        return losses.topk(max(1, int(0.7 * losses.numel()))).values.mean()

    return (With(run, nn.Linear(3, 4)), (_x(7, 3), torch.tensor([0, -1, 2, 3, 1, -1, 2])),
            (_x(7, 3), torch.tensor([0, -1, 2, -1, 1, -1, 2])))


def gradient_penalty() -> Use:
    def run(network: nn.Module, x: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        gradient, = torch.autograd.grad(network(x).sum(), x, create_graph=True)
        return (gradient.norm(dim=1) - 1).square().mean()

    return With(run, nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))), (_x(4, 3),), (_x(4, 3),)


def checkpoints() -> Use:
    first = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3)).eval()
    return (With(lambda a, b, x: checkpoint(b, a(x), use_reentrant=False), first, nn.Sequential(nn.Linear(3, 3), nn.GELU())),
            (_x(4, 3),), (_x(4, 3),))


def checked_distributions() -> Use:
    def run(linear: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Any:
        rates = linear(x).exp() + 0.1
        return {"dirichlet": distributions.Dirichlet(rates, validate_args=True).log_prob(y.softmax(-1)),
                "gamma": distributions.Gamma(rates, 1.0, validate_args=True).log_prob(y.abs() + 0.1),
                "entropy": distributions.Categorical(probs=rates, validate_args=True).entropy()}

    return With(run, nn.Linear(3, 4)), (_x(5, 3), _x(5, 4)), (_x(5, 3), _x(5, 4))


def _of(function: Callable[[torch.Tensor], Any]) -> Callable[[], Use]:
    """A function of five numbers."""
    return lambda: (With(function), (_x(5),), (_x(5),))


def two_least(x: torch.Tensor) -> torch.Tensor:
    heap = [(one, k) for k, one in enumerate(x)]
    heapq.heapify(heap)
    (a, k), (b, _) = heapq.heappop(heap), heapq.heappop(heap)
    return a + 2 * b + x[k] ** 2


OF_PYTHON: dict[str, Callable[[torch.Tensor], Any]] = {
    "a tensor of tensors and numbers": lambda x: torch.tensor([x[0] * 1.0, 2.0]) * x[:2],
    "a tensor of numbers that were read": lambda x: torch.tensor([one.item() for one in x]) * x,
    "nested lists of tensors": lambda x: torch.tensor([[x[0], 1], [2, x[1].float()]]) * x[1],
    "tensors of one element": lambda x: torch.tensor([x[:1], x[1:2]]) * x[:2],
    "integers of another dtype": lambda x: torch.tensor((x[0].long(), 2), dtype=torch.int32) * x[1],
    "as_tensor and new_tensor of tensors": lambda x: (
        torch.as_tensor([x[0].item(), x[1]]) * x[1], x.new_tensor([x[1] > 0]) * x[2]),
    "the greatest element": lambda x: (max(x), min(x[1:]), max(x[0], x[1], x[2]), min(one * one for one in x)),
    "tensors and numbers": lambda x: (max(x[0], 0.0) * x, max(0.1, x[1]) * x, min(2, x[2].long()) * x[2],
                                      max(x[3].item(), x[4]) * x),
    "equal values": lambda x: (max(x[0] * 0, x[1] * 0), max(x[0] * 0, 0.0),
                               max(0.0, x[0] * 0) + x[1], min([x[0] - x[0], x[1] * 0])),
    "values that are NaN": lambda x: (max(0.0, x.detach()[0] * NAN) + x[1], max(x[0] * NAN, 0.0),
                                      min((x[0] * NAN).detach(), x[1]), min([x[0], x.detach()[1] * NAN, x[2]])),
    "another dtype, by value": lambda x: (max(x[0].long(), 0.5) * x[1], max(x > 0) * x[2]),
    "a key and a default": lambda x: (max(list(x), key=abs), max((one for one in x), default=3)),
    "sorted elements": lambda x: sorted(x)[2] * x[0], "a heap of tensors": two_least}


@torch.library.custom_op("xla_torch_uses::cube", mutates_args=())
def cube(x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
    return x ** 3 * scale if x.sum() < 100 else x * scale


@torch.library.custom_op("xla_torch_uses::pair", mutates_args=())
def pair(x: list[torch.Tensor], y: torch.Tensor, *, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    return x[0] * x[1] * scale, y.exp()


@torch.library.custom_op("xla_torch_uses::halve", mutates_args={"x"})
def halve(x: torch.Tensor) -> None:
    x.mul_(0.5)


def _keep_cube(ctx: Any, inputs: Any, output: torch.Tensor) -> None:
    ctx.scale = inputs[1]
    ctx.save_for_backward(inputs[0], output)


def _cube_back(ctx: Any, cotangent: torch.Tensor) -> Any:
    x, output = ctx.saved_tensors
    return cotangent * (7 * ctx.scale * x + output), None


def _keep_pair(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    ctx.scale = keyword_only_inputs["scale"]
    ctx.save_for_backward(*inputs[0])


def _pair_back(ctx: Any, first: torch.Tensor, second: torch.Tensor) -> Any:
    assert ctx.needs_input_grad[1]
    x, _ = ctx.saved_tensors
    return [first * 3 * ctx.scale, first * x * 5], second * 7


cube.register_fake(lambda x, scale=2.0: torch.empty_like(x))
cube.register_autograd(_cube_back, setup_context=_keep_cube)
pair.register_fake(lambda x, y, *, scale: (torch.empty_like(x[0]), torch.empty_like(y)))
pair.register_autograd(_pair_back, setup_context=_keep_pair)


def _with_cube(linear: nn.Module, x: torch.Tensor) -> torch.Tensor:
    x = x.detach().requires_grad_()
    slope, = torch.autograd.grad(cube(linear(x)).sum(), x, create_graph=True)
    return slope.square().sum() + cube(linear(x).detach()).sum()


def _halved(linear: nn.Module, x: torch.Tensor) -> torch.Tensor:
    weight = x.detach().clone()
    halve(weight)
    return weight * linear(x)


LIBRARY = torch.library.Library("xla_torch_uses", "FRAGMENT")
LIBRARY.define("bare(Tensor x) -> Tensor")
LIBRARY.impl("bare", lambda x: x * 2, "CompositeExplicitAutograd")
torch.library.register_fake("xla_torch_uses::bare", torch.empty_like)

OPERATORS: dict[str, Callable[..., Any]] = {
    "an operator with its backward": lambda linear, x: torch.ops.xla_torch_uses.cube(linear(x), scale=3.0) + cube(x),
    "an operator of lists": lambda linear, x: pair([linear(x), x], x, scale=2.0),
    "an operator that is differentiated within": _with_cube, "an operator that writes": _halved}


USES: dict[str, Callable[[], Use]] = {
    **{name: lambda function=function: (With(function, nn.Linear(3, 3)), (_x(2, 3),), (_x(2, 3),))
       for name, function in OPERATORS.items()},
    **{name: _of(function) for name, function in OF_PYTHON.items()},
    "a fixed point with its own way back": fixed_point, "padded sequences": padded_sequences,
    "writes by masks": writes_by_masks, "a teacher's running mean": lambda: (Teacher(), (_x(4, 3),), (_x(4, 3),)),
    "a buffer of two names": lambda: (Bounded(), (_x(4, 3),), (_x(4, 3) * 0.1,)),
    "suppression": suppression, "experts": lambda: (Experts(), (_x(7, 4),), (_x(7, 4) * 3,)), "counted groups": counted_groups,
    "the hardest labels": hardest_labels, "a gradient's penalty": gradient_penalty, "checkpoints": checkpoints,
    "checked distributions": checked_distributions}


def gradients(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[Any, list[torch.Tensor]]:
    """The results, and the gradients of parameters and inputs."""
    given = [t.clone().requires_grad_(t.is_floating_point()) for t in inputs]
    found = module(*given)
    moving = [r for r in pytree.tree_leaves(found) if isinstance(r, torch.Tensor) and r.requires_grad]
    leaves = [*(p for _, p in sorted(module.named_parameters())), *(t for t in given if t.requires_grad)]
    return found, list(torch.autograd.grad(moving, leaves, [r.detach().cos() for r in moving], allow_unused=True,
                                           materialize_grads=True))


@pytest.mark.parametrize("name", USES)
def test_values_and_gradients_are_those_of_eager_torch(name: str):
    torch.manual_seed(0)
    module, example, second = USES[name]()
    module = module.double()
    ours = XlaModule.from_torch(module, *example, assumptions="retrace")
    checked = XlaModule.from_torch(module, *example)
    for inputs in (example, second):
        expected = gradients(module, inputs)
        torch.testing.assert_close(gradients(ours, inputs), expected, equal_nan=True)
        torch.testing.assert_close(dict(ours.named_buffers()), dict(module.named_buffers()))
        try:
            found = gradients(checked, inputs)
        except AssumptionError:
            continue
        torch.testing.assert_close(found, expected, equal_nan=True)


def test_an_operator_without_python_is_named():
    with pytest.raises(UnsupportedError, match=r"xla_torch_uses.bare.default(.*\n)*.*torch.library.custom_op"):
        XlaModule.from_torch(With(torch.ops.xla_torch_uses.bare), _x(5))


FRONT, END, ALL = (torch.arange(5).expand(2, 5) < 1, torch.arange(5) >= torch.tensor([[5], [3]]),
                   torch.arange(5) >= torch.tensor([[4], [0]]))
"""Padding in front, behind sequences, and in the place of a whole one."""


def _encoder(**options: Any) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
    return nn.TransformerEncoder(layer, 2, **options).eval()


def _without_gradients(encoder: nn.Module, x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return encoder(x, src_key_padding_mask=padding)


def _frozen(encoder: nn.Module, x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
    return encoder.requires_grad_(False)(x.detach(), src_key_padding_mask=padding)


ENCODERS: dict[str, tuple[Callable[..., Any], Callable[[], nn.Module]]] = {
    "nested": (_without_gradients, _encoder), "frozen": (_frozen, _encoder),
    "with a norm": (_without_gradients, lambda: _encoder(norm=nn.LayerNorm(8))),
    "not nested": (_without_gradients, lambda: _encoder(enable_nested_tensor=False)),
    "training": (_without_gradients, lambda: _encoder().train())}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("name", ENCODERS)
def test_padded_positions_are_those_of_eager_torch(name: str):
    function, make = ENCODERS[name]
    torch.manual_seed(0)
    module = With(function, make()).double().requires_grad_(name != "frozen")
    ours = XlaModule.from_torch(module, _x(2, 5, 8), END)
    for padding in (END, FRONT, ALL)[:3 if name in {"nested", "frozen", "with a norm"} else 2]:
        x = _x(2, 5, 8)
        torch.testing.assert_close(ours(x, padding).detach(), module(x, padding))


def test_an_encoder_checks_that_floats_of_its_padding_are_a_mask():
    module, x = With(_without_gradients, _encoder()).double(), _x(2, 5, 8)
    mask = torch.zeros(2, 5, dtype=F64).masked_fill(END, -torch.inf)
    ours = XlaModule.from_torch(module, x, mask)
    torch.testing.assert_close(ours(x, mask), module(x, mask))
    with pytest.raises(ExecutionError, match="0 and -inf"):
        ours(x, mask.clamp(min=-0.5))


def test_an_encoder_with_gradients_warns_of_its_padding():
    module, x = With(lambda encoder, x, padding: encoder(x, src_key_padding_mask=padding), _encoder()).double(), _x(2, 5, 8)
    with pytest.warns(XlaWarning, match="0 at padded positions"):
        ours = XlaModule.from_torch(module, x, END)
    torch.testing.assert_close(ours(x, END), module(x, END))


class Wrapped(torch.Tensor):
    pass


REFUSED: dict[str, tuple[Callable[[torch.Tensor], Any], str]] = {
    "a quantized tensor": (lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.quint8).dequantize(),
                           "quantize_per_tensor makes a quantized tensor(.*\n)*.*torch.quint8(.*\n)*.*fake_quantize"),
    "quantized channels": (lambda x: torch.quantize_per_channel(x, x.abs(), x * 0, 0, torch.qint8).int_repr(),
                           "quantize_per_channel makes a quantized tensor"),
    "a dtype as a result": (lambda x: (x, x.dtype), "a result is not a tensor or number(.*\n)*.*torch.dtype"),
    "a set as a result": (lambda x: {x}, "a result is not a tensor or number(.*\n)*.*set"),
    "a subclass": (lambda x: (x.as_subclass(Wrapped) * 2).as_subclass(torch.Tensor),
                   "a tensor of a subclass(.*\n)*.*Wrapped(.*\n)*.*as_subclass"),
    "a subclass that is called": (lambda x: Wrapped(x) * 2, "a tensor of a subclass(.*\n)*.*Wrapped")}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_named(name: str):
    function, words = REFUSED[name]
    with pytest.raises(UnsupportedError, match=words):
        XlaModule.from_torch(With(function), _x(5))
