"""Derivatives of what `from_torch` makes of modules and functions: torch's own, those of the ops, and those of a Function."""

from __future__ import annotations

import copy
import math
import pickle
import types
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch._higher_order_ops.associative_scan import associative_scan
from torch.export.experimental import _export_forward_backward
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

import xla_torch
from support.torch_models import Wrapped, assert_close, loss_of
from xla_torch.errors import DifferentiationError, LostDerivatives, UnsupportedError
from xla_torch.nn import XlaModule
from xla_torch.storage import torch_graphs, torch_private


def cut(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        y = x.sin()
    return y * x + x.detach() * x.square()


TIED = torch.tensor([[0.0, 1.0, 1.0], [-1.0, 0.5, 0.0]])
GRADIENTS: dict[str, tuple[Any, list[torch.Tensor]]] = {
    "cut": (cut, [TIED]),
    "at ties and bounds": (lambda x: (x.clamp(0, 1), x.amax(1), x.max(0).values, F.relu(x), F.hardtanh(x, 0, 1), x.abs(),
                                      torch.maximum(x, x.flip(0)), x.sort(1).values, F.elu(x), F.leaky_relu(x)), [TIED]),
    "norm at 0": (lambda x: (x.norm(dim=1), x.norm(1), x.norm(3), torch.cdist(x, x)), [torch.zeros(2, 3)]),
    "distances and norms where elements are 0": (
        lambda x: [f(x, p) for p in (0.5, 1.5) for f in (
            lambda x, p: torch.cdist(x, x.flip(0), p), F.pdist, torch.norm, lambda x, p: torch.linalg.vector_norm(x, p, 1),
            lambda x, p: F.pairwise_distance(x, x.flip(0), p, 0.0), lambda x, p: torch.renorm(x, p, 0, 0.5), F.normalize)],
        [TIED.roll(1, 1)]),
    "padding": (lambda w, at: F.embedding(at, w, padding_idx=1), [torch.randn(4, 3), torch.tensor([0, 1, 1, 3])]),
    "upsample": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), [torch.randn(1, 2, 3, 3)]),
    "fold": (lambda x: F.fold(x, (4, 4), 2).square(), [torch.randn(1, 8, 9)]),
    "grid": (lambda x, g: F.grid_sample(x, g, align_corners=False), [torch.randn(1, 2, 3, 3), torch.rand(1, 2, 2, 2) - 0.5]),
    "attention": (lambda q, k: F.scaled_dot_product_attention(q, k, k, is_causal=True), [torch.randn(1, 2, 3, 4),
                                                                                       torch.randn(1, 2, 3, 4)]),
    "indices": (lambda x, at: x[at, at.flip(0)] + x.gather(0, at[None]).sum(), [torch.randn(4, 4), torch.tensor([0, 3, 3])]),
    "targets that end": (lambda x: F.multilabel_margin_loss(x, torch.tensor([[1, -1, 0], [-1, 2, 0]])), [TIED]),
    "norms": (lambda x, w: (F.layer_norm(x, [4], w), F.group_norm(x, 1, w[:3]),
                            F.batch_norm(x, None, None, w[:3], training=True)),
              [torch.randn(2, 3, 4), torch.randn(4)]),
    "pools": (lambda x: (F.max_pool2d(x, 2).square(), F.avg_pool2d(x, 3, 2, 1, True, False), F.adaptive_avg_pool2d(x, 3)),
              [torch.randn(1, 2, 5, 5)]),
    "convolutions": (lambda x, w: (F.conv2d(x, w, stride=2).tanh(), F.conv_transpose2d(x, w.transpose(0, 1), stride=2).tanh()),
                     [torch.randn(1, 2, 4, 4), torch.randn(3, 2, 2, 2)]),
}


@pytest.mark.parametrize("name", [
    *(quick := ["cut", "norm at 0", "distances and norms where elements are 0", "padding", "indices"]),
    *(pytest.param(name, marks=pytest.mark.slow) for name in GRADIENTS if name not in quick)])
def test_gradients_are_those_of_torch(name: str):
    function, arguments = GRADIENTS[name]
    ours = xla_torch.from_torch(function, *arguments)
    found = []
    for called in (ours, function):
        given = [a.clone().requires_grad_() if a.is_floating_point() else a for a in arguments]
        loss_of(called(*given)).backward()
        found.append([g.grad for g in given])
    assert_close(*found)


@pytest.mark.parametrize("norm", [torch.norm, torch.linalg.vector_norm, F.normalize], ids=lambda f: f.__name__)
@pytest.mark.parametrize("p", [0.5, 1.5, -1.0])
def test_gradients_of_norms_by_their_ops_are_0_where_elements_are(norm: Any, p: float):
    ours, found = xla_torch.from_torch(lambda x: norm(x, p), TIED, derivatives="xla"), []
    for called in (ours, lambda x: norm(x, p)):
        x = TIED.clone().requires_grad_()
        loss_of(called(x)).backward()
        found.append(x.grad)
    assert_close(*found)


MAPPED: dict[str, Any] = {
    "vmap": torch.func.vmap(lambda row: row.sin() * row.sum()),
    "one in another": lambda x: torch.func.vmap(torch.func.vmap(lambda a, b: a * b.exp(), (0, None)), (0, None))(x, x[0, 0]),
    "one after another": lambda x: torch.func.vmap(torch.sin)(x) * torch.func.vmap(lambda row: row.cumsum(0))(x.T).T,
    "a running product": lambda x: associative_scan(lambda a, b: a * b, x, 0, combine_mode="generic")}


@pytest.mark.parametrize("name", ["vmap", *(pytest.param(name, marks=pytest.mark.slow) for name in MAPPED if name != "vmap")])
def test_gradients_of_transforms_within(name: str):
    function, found = MAPPED[name], []
    ours = xla_torch.from_torch(function, TIED)
    for called in (ours, function):
        x = TIED.clone().requires_grad_()
        loss_of(called(x)).backward()
        found.append(x.grad)
    assert_close(*found)


def test_a_level_that_a_failure_leaves_open_is_closed():
    def failing(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("as told")

    sine, function = torch.ops.aten.sin.default, torch.func.vmap(torch.sin)
    program = torch.export.export(Wrapped(function), (TIED,))
    with pytest.raises(ValueError, match="as told"):
        torch_graphs.Decomposing(program.graph_module, {sine: failing}).run(TIED)
    assert not torch_private.transforms_are_active()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["norms", "pools", "convolutions"])
def test_second_derivatives(name: str):
    function, arguments = GRADIENTS[name]
    ours = xla_torch.from_torch(function, *arguments)
    found = []
    for called in (ours, function):
        given = [a.clone().requires_grad_() for a in arguments]
        first = torch.autograd.grad(loss_of(called(*given)), given, create_graph=True)
        found.append(torch.autograd.grad(loss_of([g.square() for g in first]), given))
    assert_close(found[0], found[1], 2e-4)


def test_derivatives_forward_and_after_a_pickle():
    ours = xla_torch.from_torch(cut, TIED)
    x, t = torch.randn(2, 3), torch.randn(2, 3)
    expected = (x.sin() + 2 * x * x) * t
    forward: Any = xla_torch.jvp(ours)
    assert_close(forward(x, t)[1], expected)
    again = pickle.loads(pickle.dumps(ours))
    again(x.requires_grad_()).backward(t)
    assert_close(x.grad, expected)
    assert {*again.weights} == {*ours.weights}


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.line, self.norm = nn.Linear(3, 2), nn.BatchNorm1d(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.norm(self.line(x)) * torch.arange(2.0)).square().sum()


def test_the_forward_half_of_a_joint_graph_has_no_checks_of_cotangents():
    def joint(x: torch.Tensor, ct: torch.Tensor) -> Any:
        own, of_x = torch.linalg.inv_ex(x)
        back, of_ct = torch.linalg.inv_ex(ct)
        for info in (of_x, of_ct):
            torch._linalg_check_errors(info, "linalg.inv", is_matrix=True)  # a check that has no result
        return own, back

    x, ct = torch.eye(2) * 2, torch.eye(2) * 4
    forward, backward = torch_graphs.split_results(make_fx(joint)(x, ct), 1, 1)
    checks = torch.ops.aten._linalg_check_errors.default
    assert [len(half.graph.find_nodes(op="call_function", target=checks)) for half in (forward, backward)] == [1, 2]
    assert_close((forward(x, ct), backward(x, ct)), ((x.inverse(),), (ct.inverse(),)))


@pytest.mark.slow
def test_graphs_that_torch_has_decomposed_or_joined():
    torch.manual_seed(0)
    model, x = Normed(), torch.randn(4, 3)
    exported = torch_private.quietly(lambda: torch.export.export(model, (x,)))
    joint = xla_torch.from_torch(torch_private.quietly(lambda: _export_forward_backward(exported)))
    loss, gradients, after = joint(joint.weights, x)
    decomposed = xla_torch.from_torch(torch_private.quietly(exported.run_decompositions))
    decomposed(decomposed.weights, x)[0].backward()
    found = {key: copy.deepcopy(p.grad) for key, p in decomposed.weights["line"].items()}
    model.zero_grad()
    expected = model(x)
    expected.backward()
    assert_close(loss, expected)
    wanted = {key: p.grad for key, p in model.line.named_parameters()}
    assert_close(gradients["weights"]["line"], wanted)
    assert_close(found, wanted)
    assert_close(after["norm"]["running_mean"], model.norm.running_mean)


def test_buffers_have_gradients_where_torch_has_them():
    class Scaled(nn.Module):
        def __init__(self, inner: nn.Module):
            super().__init__()
            self.inner = inner
            self.register_buffer("factor", torch.tensor(2.0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (self.inner(x) * self.factor).sum()

    x = torch.randn(2, 3)
    plain = xla_torch.from_torch(Scaled(nn.Tanh()), x)
    assert_close(xla_torch.grad(plain, 0)(plain.weights, x)["factor"], x.tanh().sum())
    normed = xla_torch.from_torch(Scaled(nn.BatchNorm1d(3)).eval(), x)
    held = copy.deepcopy(normed.weights)
    held["inner"]["running_mean"].requires_grad_()
    with pytest.raises(DifferentiationError, match="no derivative with respect to the buffer b_inner_running_mean"):
        normed(held, x).backward()
    assert_close(xla_torch.grad(normed, 1)(normed.weights, x), torch.full((2, 3), 2 / math.sqrt(1 + 1e-5)))


@pytest.mark.parametrize("derivatives", ["torch", "xla"])
def test_second_derivatives_know_where_gradients_stop(derivatives: Any):
    ours, x = xla_torch.from_torch(cut, TIED, derivatives=derivatives), torch.randn(2, 3)
    found = []
    for function in (ours, cut):
        given = x.clone().requires_grad_()
        (first,) = torch.autograd.grad(function(given).sum(), given, create_graph=True)
        found.append((first.detach(), *torch.autograd.grad(first.square().sum(), given)))
    assert_close(*found)


def written_beside(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    y.detach().mul_(2)
    return y * x


def test_derivatives_of_the_ops_say_what_they_do_not_know():
    ours = xla_torch.from_torch(written_beside, TIED, derivatives="xla")
    with pytest.warns(LostDerivatives, match="detach"):
        ours(torch.randn(2, 3, requires_grad=True)).sum().backward()
    again = xla_torch.from_torch(written_beside, TIED)
    with pytest.warns(LostDerivatives, match="the way back"):
        torch.autograd.grad(again(x := torch.randn(2, 3, requires_grad=True)).sum(), x, create_graph=True)[0].sum().backward()


class Heads(nn.Module):
    """Attention whose result is viewed as it lies in memory, as that of GPT2 is; what is detached has its way back by torch."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        q, k, v = (part.view(2, 3, 2, 4).transpose(1, 2) for part in x.split(8, -1))
        found = F.scaled_dot_product_attention(q, k, v.detach(), mask, is_causal=mask is None).transpose(1, 2)
        return found.reshape(*found.shape[:-2], -1).contiguous().view(-1, 8)


@pytest.mark.parametrize("masked", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_attention_lies_as_it_lay(masked: bool):
    x, mask = torch.randn(2, 3, 24), torch.ones(3, 3).tril().bool() if masked else None
    ours, found = xla_torch.from_torch(Heads(), x, mask), []
    for called in (ours, Heads()):
        given = x.clone().requires_grad_()
        result = called(given, mask)
        loss_of(result).backward()
        found.append((result, given.grad))
    assert_close(*found)


class Sevenfold(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * x

    @staticmethod
    def backward(ctx: Any, ct: torch.Tensor) -> torch.Tensor:
        return ct * 7


def test_a_backward_that_torch_does_not_export_is_missed_by_the_ops():
    before = torch.autograd.Function.__dict__["apply"]
    ours = xla_torch.from_torch(lambda x: Sevenfold.apply(x).sum(), x := torch.randn(3), derivatives="xla")
    assert torch.autograd.Function.__dict__["apply"] is before
    assert_close(ours(x), x.square().sum())
    for again in (ours, pickle.loads(pickle.dumps(ours)), xla_torch.parse_hlo(ours.to_hlo_text())):
        with pytest.warns(LostDerivatives, match="Sevenfold"):
            again(x.clone().requires_grad_()).backward()
    with pytest.warns(LostDerivatives, match="Sevenfold"):
        xla_torch.jvp(pickle.loads(pickle.dumps(ours)))(x, x)


class Compiled(Sevenfold):
    """Calls a kernel that takes nothing but memory."""

    @staticmethod
    def backward(ctx: Any, ct: torch.Tensor) -> torch.Tensor:
        if torch.compiler.is_exporting():
            raise RuntimeError("no such kernel")
        return ct * 7


@pytest.mark.parametrize(("function", "reason"), [
    (Compiled.apply, "cannot be traced: [^;]*RuntimeError: no such kernel"),
    (lambda x: Sevenfold.apply(x) + torch.rand(3), "cannot be traced: the model draws random numbers")])
def test_the_warning_says_why_a_backward_is_not_kept(function: Any, reason: str):
    module = xla_torch.nn.XlaModule.from_torch(function, x := torch.randn(3))
    for again in (module, pickle.loads(pickle.dumps(module))):
        with pytest.warns(LostDerivatives, match=reason):
            again(x.clone().requires_grad_()).sum().backward()


def test_a_backward_of_the_module_is_its_derivative():
    ours = xla_torch.from_torch(lambda x: Sevenfold.apply(x).sum(), x := torch.randn(3))
    for again in (ours, pickle.loads(pickle.dumps(ours))):
        (again(given := x.clone().requires_grad_()) * 2).backward()
        assert_close(given.grad, torch.full((3,), 14.0))
    assert_close(xla_torch.jvp(ours)(x, x)[1], 7 * x.sum())
    with pytest.warns(LostDerivatives, match="Sevenfold"):
        xla_torch.parse_hlo(ours.to_hlo_text())(x.clone().requires_grad_()).backward()


class Again(torch.autograd.Function):
    """A backward that calls the layer once more, as adjoint solvers and reversible layers do."""

    @staticmethod
    def forward(ctx: Any, layer: nn.Module, x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        ctx.layer = layer
        ctx.save_for_backward(x, *weights)
        return layer(x)

    @staticmethod
    def backward(ctx: Any, *cts: torch.Tensor) -> Any:
        x, *weights = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            return (None, *torch.autograd.grad(ctx.layer(x), (x, *weights), cts))


class Reversed(nn.Module):
    """Beside a gradient of another sign: a buffer that is written into, an option, and results without gradients."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor, *, scale: float) -> dict[str, torch.Tensor]:
        self.calls += 1
        found = Again.apply(self.layer, x, *self.layer.parameters())
        return {"most": found.argmax(), "found": -Sevenfold.apply(found) * scale}


def test_a_backward_may_call_its_module():
    model, x = Reversed().double(), torch.randn(4, 3, dtype=torch.float64)
    ours = xla_torch.from_torch(model, x, scale=3.0)
    weights = pytree.tree_map(lambda t: (t.detach() * 1.5).requires_grad_(), ours.weights)
    found, expected = x.clone().requires_grad_(), x.clone().requires_grad_()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    ours(weights, found, scale=3.0)[0]["found"].sin().sum().backward()
    model(expected, scale=3.0)["found"].sin().sum().backward()
    assert_close(found.grad, expected.grad)
    assert_close([weights["layer"][name].grad for name in ("weight", "bias")], [p.grad for p in model.parameters()])


def test_tangents_go_through_a_backward_that_calls_its_module():
    layer, x, tangent = nn.Linear(3, 2), torch.randn(4, 3), torch.randn(4, 3)
    ours = xla_torch.from_torch(lambda x: Again.apply(layer, x, *layer.parameters()).sum(), x)
    assert_close(xla_torch.jvp(ours)(x, tangent)[1], (tangent @ layer.weight.T).sum().detach())


class Keeping(nn.Module):
    """Keeps what its first call computes of its weights, as gpytorch's models do, in an object that torch knows nothing of."""

    def __init__(self, reads: bool):
        super().__init__()
        self.reads, self.weight = reads, nn.Parameter(torch.tensor([1.0, 2.0]))
        self.kept = types.SimpleNamespace()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not hasattr(self.kept, "found"):
            self.kept.found = self.weight.exp()
        if self.reads and (x > 0).all():
            x = Sevenfold.apply(x * self.weight)
        return (x * self.kept.found).sum()


def test_what_a_model_keeps_is_computed_of_the_weights_that_are_given():
    x = torch.tensor([0.5, 1.5])
    ours = xla_torch.from_torch(made := Keeping(reads=True), x)
    assert not vars(made.kept)
    model = Keeping(reads=True)
    with torch.no_grad():
        model.weight.mul_(1.5)
    weight, given, expected = (t.detach().clone().requires_grad_() for t in (model.weight, x, x))
    found, want = ours({"weight": weight}, given), model(expected)
    found.backward()
    want.backward()
    assert_close([found, weight.grad, given.grad], [want, model.weight.grad, expected.grad])


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # of a tensor that is no leaf
def test_what_an_earlier_call_kept_is_refused():
    model, x = Keeping(reads=False), torch.tensor([0.5, 1.5])
    model(x)
    with pytest.raises(UnsupportedError, match="an earlier call computed from its weights"):
        xla_torch.from_torch(model, x)
    with torch.no_grad():
        del model.kept.found
        model(x)
    assert_close(xla_torch.from_torch(model, x)(dict(model.named_parameters()), x), model(x))


@pytest.mark.parametrize("function", [Sevenfold.apply, cut])
def test_who_vouches_for_the_ops_hears_nothing(function: Any):
    ours = xla_torch.from_torch(function, TIED, derivatives="as written")
    with warnings.catch_warnings():
        warnings.simplefilter("error", LostDerivatives)
        for again in (ours, pickle.loads(pickle.dumps(ours)), xla_torch.parse_hlo(ours.to_hlo_text())):
            again(torch.randn(2, 3, requires_grad=True)).sum().backward()


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.layers(x).flatten(0, 1), torch.arange(12) % 5)


ONCE: dict[str, tuple[Any, tuple[int, ...], str, int, int]] = {
    # module, sizes of its argument, an opcode, how often it stands in the way forward and in the way back
    "products of rows in a batch": (lambda: nn.Linear(6, 4), (3, 4, 6), "dot", 1, 2),
    "a classifier": (Classifier, (3, 4, 6), "dot", 2, 4),
    "reductions of a softmax": (lambda: nn.Softmax(-1), (3, 6), "reduce", 2, 1),
    "attention": (lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), (3, 4, 8), "dot", 6, 12),
    "a convolution before a norm": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()), (2, 3, 5, 5),
                                    "convolution", 1, 2),
    "a convolution before a norm of each": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.InstanceNorm2d(4, affine=True, track_running_stats=True)), (2, 3, 5, 5),
        "convolution", 1, 2),
}


@pytest.mark.parametrize("name", ONCE)
def test_the_way_back_runs_nothing_of_the_way_forward_again(name: str) -> None:
    make, sizes, opcode, ahead, back = ONCE[name]
    torch.manual_seed(0)
    module, x = make(), torch.randn(sizes)
    ours = XlaModule.from_torch(copy.deepcopy(module), x)
    given = [x.clone().requires_grad_() for _ in range(2)]
    for call, argument in zip((module, ours), given, strict=True):
        call(argument).square().sum().backward()
    for mine, theirs in zip((given[1], *ours.parameters()), (given[0], *module.parameters()), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-5)
    for mine, theirs in zip(ours.buffers(), module.buffers(), strict=True):
        torch.testing.assert_close(mine, theirs, check_dtype=False)
    program = ours.computation.program
    plan = program.plan(tuple(not name.startswith("b_") for name in program.program_shape.parameter_names), False)
    halves = [plan.forward, *plan._backward.found.values()]
    counted = [sum(i.opcode == opcode for i in half.canonical.instructions) for half in halves]
    assert counted == [ahead, back]
