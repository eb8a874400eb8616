"""Functions of torch that torch.export cannot take, or takes as a whole: values, gradients and real XLA."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import func, linalg, nn
from torch.export import Dim, export
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils import _pytree as pytree

import xla_torch
from support.aten_rows import floats
from support.oracle import needs_xla, run_xla
from xla_torch.errors import UnsupportedError
from xla_torch.storage import torch_private

F64 = torch.float64

TALL, WIDE, SQUARE = floats(5, 3, dtype=F64), floats(2, 3, 5, dtype=F64), floats(3, 3, dtype=F64)
STEPS = floats(6, 3, 4, dtype=F64).log_softmax(-1)
LABELS, ROW = torch.tensor([[1, 1, 2], [2, 3, 0], [3, 0, 0]]), torch.tensor([1, 1, 2, 2, 3, 3])
LENGTHS, COUNTS = torch.tensor([6, 4, 1]), torch.tensor([3, 2, 1])

CALLS: dict[str, tuple[Any, list[torch.Tensor]]] = {
    "lstsq": (linalg.lstsq, [TALL, floats(5, 2, dtype=F64)]),
    "lstsq of a vector": (lambda a, b: linalg.lstsq(a, b).solution, [TALL, floats(5, dtype=F64)]),
    "lstsq of least norm": (lambda a, b: linalg.lstsq(a, b).solution, [WIDE, floats(2, 3, 1, dtype=F64)]),
    "lstsq with residuals": (lambda a, b: tuple(linalg.lstsq(a, b, driver="gels")), [TALL, floats(5, 2, dtype=F64)]),
    "lstsq with singular values": (lambda a, b: tuple(linalg.lstsq(a, b, driver="gelsd")), [SQUARE, floats(3, 2, dtype=F64)]),
    "ctc": (lambda x: F.ctc_loss(x, LABELS, LENGTHS, COUNTS), [STEPS]),
    "ctc of each": (lambda x: F.ctc_loss(x, LABELS, LENGTHS, COUNTS, reduction="none"), [STEPS]),
    "ctc of labels in a row": (lambda x, t: F.ctc_loss(x, t, LENGTHS, COUNTS, reduction="sum"), [STEPS, ROW]),
    "ctc with another blank": (
        lambda x: F.ctc_loss(x, LABELS.clamp(min=1), torch.tensor([6, 4, 3]), torch.tensor([2, 1, 1]), blank=0), [STEPS]),
    "ctc of lengths as arguments": (lambda x, t, n, m: torch.ctc_loss(x, t, n, m, 0, 1), [STEPS, LABELS, LENGTHS, COUNTS]),
    "ctc without labels": (
        lambda x: F.ctc_loss(x, LABELS, LENGTHS, torch.tensor([0, 2, 0]), reduction="none"), [STEPS]),
    "ctc that has no path": (
        lambda x: F.ctc_loss(x, LABELS, torch.tensor([2, 1, 1]), COUNTS, reduction="none", zero_infinity=True), [STEPS]),
    "ctc of one": (lambda x: F.ctc_loss(x, torch.tensor([1, 2]), torch.tensor(6), torch.tensor(2)), [STEPS[:, 0]]),
    "a diagonal": (lambda a, b: a.diagonal_scatter(b, 1) * a, [TALL, floats(2, dtype=F64)]),
    "a deep copy": (lambda x: copy.deepcopy(x)[x[:, 0].argsort()] * x, [TALL]),
    "a deep copy of a container": (lambda x: copy.deepcopy({"a": x, "b": [x]})["b"][0] * x, [TALL]),
    "another diagonal": (lambda a, b: a.diagonal_scatter(b, -1, 0, 2) * a, [WIDE, floats(3, 1, dtype=F64)]),
}


def leaves(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if leaf is not None]


def of_arguments(function: Any, given: list[torch.Tensor]) -> tuple[list[torch.Tensor], Any]:
    """The results and the gradients of what moves."""
    inputs = [g.clone().requires_grad_(g.is_floating_point()) for g in given]
    results = leaves(function(*inputs))
    moving = [r for r in results if r.requires_grad and r.numel()]
    cotangents = [torch.linspace(0.5, 2, r.numel(), dtype=r.dtype).view(r.shape) for r in moving]
    found = torch.autograd.grad(moving, [i for i in inputs if i.requires_grad], cotangents, materialize_grads=True)
    return [r.detach() for r in results], found


@pytest.mark.parametrize("name", CALLS)
def test_values_and_gradients_are_those_of_torch(name: str):
    function, given = CALLS[name]
    ours = xla_torch.from_torch(function, *given)
    for found, expected in zip(of_arguments(ours, given), of_arguments(function, given), strict=True):
        torch.testing.assert_close(list(found), list(expected), rtol=1e-9, atol=1e-9)


@needs_xla
@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_real_xla_gives_what_torch_gives(name: str):
    function, given = CALLS[name]
    text = xla_torch.from_torch(function, *given).to_hlo_text()
    for found, expected in zip(run_xla(text, *(g.numpy() for g in given)), leaves(function(*given)), strict=True):
        torch.testing.assert_close(torch.from_numpy(np.array(found)), expected, rtol=1e-9, atol=1e-9)


def test_least_squares_of_less_than_full_rank_are_not_a_number():
    flat = torch.stack([TALL[:, 0], TALL[:, 0] * 2, TALL[:, 1]], 1)
    ours = xla_torch.from_torch(lambda a, b: linalg.lstsq(a, b)[:3:2], flat, TALL)
    solution, rank = ours(flat, TALL)
    assert solution.isnan().all()
    assert int(rank) == 2


# ------------------------------------------------------------------------------------------- attention of functions

Q, K = floats(2, 4, 5, 8, dtype=F64), floats(2, 4, 6, 8, dtype=F64)
FEW = floats(2, 2, 6, 8, dtype=F64)
TABLE = floats(4, 11, dtype=F64)
AHEAD = torch.arange(5)[:, None] - torch.arange(6)
HEADS = torch.arange(4.0, dtype=F64)[:, None, None]


@pytest.fixture(autouse=True)
def _compiled_anew():
    """torch compiles flex_attention for its callers, and compares each with those before, whose closures may be gone."""
    torch.compiler.reset()


def masked(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    block = create_block_mask(lambda b, h, i, j: (i >= j) & (i != 2), None, None, 5, 6, device="cpu")
    return flex_attention(q, k, k.exp(), block_mask=block)


def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, change: Any = lambda s: s, seen: Any = None) -> torch.Tensor:
    """The definition, of scores that change as one array; rows of which nothing is seen are 0."""
    scores = change(q @ k.mT / math.sqrt(8))
    if seen is None:
        return scores.softmax(-1) @ v
    none = ~seen.any(-1, keepdim=True)
    return torch.where(none, 0, torch.where(seen | none, scores, -math.inf).softmax(-1)) @ v


ATTENTION: dict[str, tuple[Any, Any, list[torch.Tensor]]] = {
    "as it is": (lambda q, k: flex_attention(q, k, k.exp()), lambda q, k: plain(q, k, k.exp()), [Q, K]),
    "places": (lambda q, k: flex_attention(q, k, k, score_mod=lambda s, b, h, i, j: s.tanh() * 2 + (i - j) * h),
               lambda q, k: plain(q, k, k, lambda s: s.tanh() * 2 + AHEAD * HEADS), [Q, K]),
    "a table": (lambda q, k, t: flex_attention(q, k, k, score_mod=lambda s, b, h, i, j: s + t[h, i - j + 5]),
                lambda q, k, t: plain(q, k, k, lambda s: s + t[torch.arange(4)[:, None, None], AHEAD + 5]), [Q, K, TABLE]),
    "a mask, a row of which sees nothing": (masked, lambda q, k: plain(
        q, k, k.exp(), seen=(AHEAD >= 0) & (torch.arange(5) != 2)[:, None]), [Q, K]),
    "fewer keys": (lambda q, k: flex_attention(q, k, k, enable_gqa=True, scale=0.5), lambda q, k: plain(
        q * math.sqrt(8) / 2, k.repeat_interleave(2, 1), k.repeat_interleave(2, 1)), [Q, FEW]),
}


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_is_its_definition(name: str):
    function, definition, given = ATTENTION[name]
    ours = xla_torch.from_torch(function, *given)
    torch.testing.assert_close(ours(*given), function(*given))
    for found, expected in zip(of_arguments(ours, given), of_arguments(definition, given), strict=True):
        torch.testing.assert_close(list(found), list(expected))


@needs_xla
@pytest.mark.slow
@pytest.mark.parametrize("name", ATTENTION)
def test_real_xla_gives_the_attention(name: str):
    function, _, given = ATTENTION[name]
    found = run_xla(xla_torch.from_torch(function, *given).to_hlo_text(), *(g.numpy() for g in given))
    torch.testing.assert_close(torch.from_numpy(np.array(found[0])), function(*given))


def test_attention_of_an_exported_program_and_of_any_size():
    class Attention(torch.nn.Module):
        def forward(self, q: torch.Tensor) -> torch.Tensor:
            return flex_attention(q, q, q, score_mod=lambda s, b, h, i, j: s - (i - j).abs())

    ours = xla_torch.from_torch(export(Attention(), (Q,), strict=False))
    torch.testing.assert_close(ours(Q), Attention()(Q))
    ours = xla_torch.from_torch(Attention(), Q, dynamic_shapes=({0: Dim("batch")},))
    for count in (2, 3):
        q = floats(count, 4, 5, 8, dtype=F64)
        torch.testing.assert_close(ours(q), Attention()(q))


# ------------------------------------------------------------------------------------------- derivatives within

class Field(torch.nn.Module):
    """A number of a vector, and what somebody makes of it."""

    def __init__(self, way: Any):
        super().__init__()
        self.first, self.second, self.way = torch.nn.Linear(3, 4), torch.nn.Linear(4, 1), way
        self.shift = torch.nn.Buffer(torch.linspace(-1, 1, 4))

    def forward(self, x: torch.Tensor) -> Any:
        level = x.sin().sum()
        return self.way(lambda y: (self.second(torch.tanh(self.first(y) + self.shift)) * level).sum(), x)


def moving(x: torch.Tensor) -> torch.Tensor:
    return (x * 1.0).requires_grad_()


@torch.no_grad()
def written_apart(x: torch.Tensor) -> torch.Tensor:
    """All ways to write into memory without derivatives, and a size."""
    y = x.sin()
    y.mul_(x).add_(x[0])
    y /= 2
    y[0] = x[1]
    y[y > 0.5] = x.sum()
    F.relu(y, inplace=True)
    torch.mul(y, y.size()[1:].numel(), out=y)
    return y + x


def polynomials(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([1.5 * x[0] * x[1], 0.5 * (2.5 * x[2].pow(2) - 1.0), x[1] * 3.0], -1)


LAYERS = [torch.nn.Linear(3, 2, dtype=F64) for _ in range(3)]


def ensemble(x: torch.Tensor) -> torch.Tensor:
    weights, _ = func.stack_module_state(LAYERS)
    return func.vmap(lambda w, y: func.functional_call(LAYERS[0], w, (y,)), (0, None))(weights, x).sum()


def of_layers(x: torch.Tensor) -> torch.Tensor:
    y = F.layer_norm(x, (3,), x[0], x[1])
    y = F.scaled_dot_product_attention(y[None, None], y[None, None].cos(), x[None, None])[0, 0]
    return F.gelu(F.group_norm(y, 3) + F.batch_norm(y, None, None, training=True)).sum()


WITHIN: dict[str, Any] = {
    "autograd.grad": lambda f, x: torch.autograd.grad(f(z := moving(x)), z, create_graph=True)[0] * z,
    "autograd.grad, by place": lambda f, x: torch.autograd.grad([f(z := moving(x))], [z], None, None, True)[0] * z,
    "autograd.grad, of which none is to be had": lambda f, x: torch.autograd.grad(f(z := moving(x)), z)[0] * z,
    "grad": lambda f, x: func.grad(f)(x),
    "grad_and_value": lambda f, x: func.grad_and_value(f)(x),
    "grad with aux": lambda f, x: func.grad(lambda y: (f(y), y * 2), has_aux=True)(x),
    "grad of grad": lambda f, x: func.grad(lambda y: func.grad(f)(y).square().sum())(x),
    "vmap of grad": lambda f, x: func.vmap(func.grad(f))(x),
    "vjp": lambda f, x: func.vjp(f, x)[1](x.sum())[0],
    "jvp of grad": lambda f, x: func.jvp(func.grad(f), (x,), (x.cos(),)),
    "jacrev": lambda f, x: func.jacrev(lambda y: y.sin() * f(y))(x),
    "jacfwd": lambda f, x: func.jacfwd(lambda y: y.sin() * f(y))(x),
    "hessian": lambda f, x: func.hessian(f)(x),
    "vmap of hessian": lambda f, x: func.vmap(func.hessian(lambda row: f(row) * row.sum()))(x),
    "vmap of jacfwd": lambda f, x: func.vmap(func.jacfwd(lambda row: F.normalize(row.sin(), dim=-1) * f(row)))(x),
    "vmap of jacrev": lambda f, x: func.vmap(func.jacrev(lambda row: row.sin() * f(row)), chunk_size=2)(x),
    "jvp of elements": lambda f, x: func.jvp(lambda y: torch.stack([y[0] * y[1], y[2] * f(y)]), (x,), (x.cos(),)),
    "vmap of jacfwd of TorchScript": lambda f, x: func.vmap(
        func.jacfwd(lambda row: torch.jit.script(polynomials)(row) * f(row)))(x),
    "an ensemble": lambda f, x: ensemble(x) * func.grad(f)(x).sum(),
    "what is detached": lambda f, x: func.grad(lambda y: f(y.detach()) * f(y) * y.tanh().data.sum())(x),
    "what has no_grad": lambda f, x: func.grad(lambda y: f(y) * torch.no_grad()(lambda: y.sin().sum())())(x) * x,
    "what is written within no_grad": lambda f, x: func.grad(f)(x) * written_apart(x),
    "layers": lambda f, x: func.grad(of_layers)(x),
    "indices": lambda f, x: func.grad(lambda y: (y[[1, 0, 1]].cumsum(0).sort(0).values * F.max_pool1d(y, 2)).sum())(x),
}
QUICK = ("vmap of hessian", "jvp of elements", "autograd.grad", "autograd.grad, of which none is to be had", "vmap of grad",
         "what has no_grad", "what is written within no_grad", "layers")


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # torch.func.jvp asks for it
@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in WITHIN])
def test_a_derivative_within(name: str):
    """Values, and gradients by the argument and by the weights."""
    torch.manual_seed(0)
    model, x = Field(WITHIN[name]).double(), floats(3, 3, dtype=F64)
    ours = xla_torch.from_torch(model, x)
    names = [n for n, _ in model.named_parameters() if n.partition(".")[0] in ours.weights]

    def by_hand(x: torch.Tensor, *weights: torch.Tensor) -> Any:
        with sdpa_kernel(SDPBackend.MATH):  # the others have no derivative of their derivative
            return torch.func.functional_call(model, dict(zip(names, weights, strict=True)), (x,))

    def imported(x: torch.Tensor, *weights: torch.Tensor) -> Any:
        tree: dict[str, Any] = {k: dict(v) if isinstance(v, dict) else v for k, v in ours.weights.items()}
        for n, weight in zip(names, weights, strict=True):
            module, _, key = n.partition(".")
            tree[module][key] = weight
        return ours(tree, x) if tree else ours(x)

    given = [x, *(model.get_parameter(n).detach() for n in names)]
    for found, expected in zip(of_arguments(imported, given), of_arguments(by_hand, given), strict=True):
        torch.testing.assert_close(list(found), list(expected), rtol=1e-9, atol=1e-12)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node")  # torch.func.linearize, of what stands around it
def test_linearize():
    """Values and derivatives of any argument."""
    def alone(x: torch.Tensor) -> Any:
        value, push = func.linearize(lambda y: y.sin() * y, x)
        return value * push(x.cos())

    def beside(x: torch.Tensor) -> Any:
        level = x.exp()
        return func.linearize(lambda y: y.sin() * level, x)[1](x.cos())

    given, other = floats(3, 3, dtype=F64), floats(3, 3, dtype=F64) + 1
    for function in (alone, beside):
        torch.testing.assert_close(xla_torch.from_torch(function, given)(other), function(other))
        ours = xla_torch.from_torch(function, given)
        for found, expected in zip(of_arguments(ours, [other]), of_arguments(function, [other]), strict=True):
            torch.testing.assert_close(list(found), list(expected))


def test_derivatives_by_weights_and_for_each_example():
    layer = torch.nn.Linear(3, 2).double()

    def loss(weights: Any, row: torch.Tensor) -> torch.Tensor:
        return func.functional_call(layer, weights, (row,)).square().sum()

    class Each(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x: torch.Tensor) -> Any:
            return func.vmap(func.grad(loss), (None, 0))(dict(self.layer.named_parameters()), x)

    x = floats(4, 3, dtype=F64)
    ours = xla_torch.from_torch(Each(), x)
    found, expected = ours(ours.weights, x), Each()(x)
    for name in ("weight", "bias"):
        torch.testing.assert_close(found[name], expected[name])


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
@pytest.mark.parametrize("function", [
    lambda v: (v[1:] / v[:2]).sum(), lambda v: (v.clamp(0.5, 1.5) / v).sum()], ids=["a quotient", "what is cut off"])
def test_products_with_a_tangent_that_is_not_there_are_0(function: Any):
    """Also where the other factor is infinite."""
    mapped, x = func.vmap(func.jacfwd(func.grad(function))), torch.tensor([[0.0, 1.0, 2.0], [1.0, 2.0, 3.0]])
    torch.testing.assert_close(xla_torch.from_torch(mapped, x)(x), mapped(x), equal_nan=True)


@needs_xla
def test_real_xla_gives_a_derivative_within():
    x = floats(3, 3, dtype=F64)
    function = func.vmap(func.grad(lambda y: y.sin().prod()))
    (found,) = run_xla(xla_torch.from_torch(function, x).to_hlo_text(), x.numpy())
    torch.testing.assert_close(torch.from_numpy(np.array(found)), function(x))


def test_a_model_is_as_it_was():
    """The forward function that is looked into is put back, and no transform stays on."""
    model = Field(WITHIN["grad"])
    xla_torch.from_torch(model, floats(3, 3))
    assert "forward" not in vars(model)
    with pytest.raises(ValueError, match="not mine"):
        xla_torch.from_torch(func.grad(not_mine), Q)
    assert torch_private.level_of_transforms() == 0


def not_mine(x: torch.Tensor) -> torch.Tensor:
    raise ValueError("not mine")


def backward(x: torch.Tensor) -> torch.Tensor:
    y = x.detach().requires_grad_()
    y.sin().sum().backward()
    assert y.grad is not None
    return y.grad


def in_place(write: Any) -> Any:
    """What writes into a tensor that has a derivative, where autograd does not look."""
    def run(x: torch.Tensor) -> torch.Tensor:
        y = func.grad(lambda y: y.sin().sum())(x)
        with torch.no_grad():
            write(y)
        return y

    return run


def taken(y: torch.Tensor) -> None:
    y[0] = 1


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
@pytest.mark.parametrize(("function", "words"), [
    (backward, "backward.. within the model"),
    (func.grad(lambda y: y.sin().detach_().sum()), "detach_ in a model"),
    (lambda x: copy.deepcopy([x, x[0]])[0] * x, "several views of one tensor"),
    (in_place(lambda y: y.mul_(2)), "mul_ within torch.no_grad"),
    (in_place(lambda y: y[0].detach().mul_(2)), "mul_ within torch.no_grad"),
    (in_place(taken), "__setitem__ within torch.no_grad"),
    (in_place(lambda y: F.relu(y, inplace=True)), "relu within torch.no_grad"),
    (in_place(lambda y: torch.mul(y, y, out=torch.empty(0, dtype=y.dtype))), "mul within torch.no_grad"),
    (torch.no_grad()(func.grad(lambda y: y.sin().sum())), "torch.func within torch.no_grad"),
    (func.grad(lambda y: torch.no_grad()(func.grad(lambda z: z.sin().sum()))(y).sum()), "torch.func within torch.no_grad"),
    (lambda x: flex_attention(x, x, x, score_mod=lambda s, b, h, i, j: s + TABLE[h].sum()), "single elements")])
def test_what_is_refused(function: Any, words: str):
    with pytest.raises(UnsupportedError, match=words):
        xla_torch.from_torch(function, Q)


# ------------------------------------------------------------------------------------------- checks and `if`s about values


class Sparse(nn.Module):
    def __init__(self, held: torch.Tensor):
        super().__init__()
        self.held = held

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.held @ x


@pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta")
@pytest.mark.parametrize(("make", "words"), [
    (lambda: Sparse(torch.eye(3).to_sparse()), "held: torch.sparse_coo(.*\n)*.*to_dense"),
    (lambda: Sparse(torch.eye(3).to_sparse_csr()), "held: torch.sparse_csr(.*\n)*.*to_dense"),
    (lambda: nn.Sequential(Sparse(torch.eye(3).to_sparse_bsc((1, 1)))), "0.held: torch.sparse_bsc(.*\n)*.*to_dense"),
    (lambda: nn.Sequential(nn.ReLU(), torch.jit.script(nn.Linear(3, 3))), "1: .*Script(.*\n)*.*load_state_dict"),
    (lambda: torch.jit.script(nn.Linear(3, 3)), "TorchScript(.*\n)*.*load_state_dict")])
def test_what_is_refused_says_where_and_what_to_do(make: Any, words: str):
    with pytest.raises(UnsupportedError, match=words) as caught:
        xla_torch.from_torch(make(), torch.ones(3, 3))
    assert "xla_torch/api" not in str(caught.value)


STATISTICS: dict[str, Any] = {
    "cov": lambda x: (torch.cov(x), torch.cov(x[0]), x.cov(correction=0), torch.cov(x.float())),
    "weighted cov": lambda x: (torch.cov(x, fweights=torch.tensor([1, 2, 1])), torch.cov(x, aweights=x[0].abs()),
                               torch.cov(x, fweights=torch.tensor([1, 2, 1]), aweights=x[0].abs())),
    "corrcoef": lambda x: (torch.corrcoef(x), torch.corrcoef(x[0]), x.corrcoef()),
    "combinations": lambda x: (torch.combinations(x[0]), torch.combinations(x[0], 3, True), torch.combinations(x[0], 4),
                               torch.combinations(x[0], 1)),
}


@pytest.mark.parametrize("name", STATISTICS)
def test_functions_with_checks_of_values(name: str):
    x = torch.randn(3, 3, dtype=torch.float64)
    torch.testing.assert_close(xla_torch.from_torch(STATISTICS[name], x)(x), STATISTICS[name](x))
