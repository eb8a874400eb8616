"""Operators that stay whole: their kernels and decompositions are the same function, forward and back, in every format."""

from __future__ import annotations

import copy
import itertools
import json
import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch._higher_order_ops.scan import scan

import xla_torch
from xla_torch.api.torch_composites import decomposition
from xla_torch.core import tuning
from xla_torch.hlo.composites import VJP, Kernel, described, is_composite, kernel_of
from xla_torch.hlo.derivatives import bringing
from xla_torch.hlo.ir import Computation, Module
from xla_torch.kernels import composites
from xla_torch.runtime.static import StaticComputation
from xla_torch.storage.dtypes import torch_dtype

F64 = torch.float64


def _x(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, dtype=F64)


def _network(kind: type[nn.RNNBase], *args: Any, **options: Any) -> Callable[..., Any]:
    torch.manual_seed(1)
    return kind(*args, dtype=F64, **options)


def _grid(*sizes: int, **options: Any) -> Callable[..., Any]:
    return lambda x, g: F.grid_sample(x, g, **{"align_corners": False, **options})


def _identity(dims: int, aligned: bool) -> torch.Tensor:
    return F.affine_grid(torch.eye(dims, dims + 1, dtype=F64)[None], [1, 1, *[4] * dims], align_corners=aligned)


def _packed(kind: type[nn.RNNBase], *args: Any, **options: Any) -> Callable[..., Any]:
    layers, sizes = _network(kind, *args, **options), torch.tensor([3, 3, 2, 1])
    return lambda data: (out := layers(nn.utils.rnn.PackedSequence(data, sizes)), (out[0].data, out[1]))[1]


LENGTHS = torch.tensor([6, 5]), torch.tensor([3, 2])
LABELS = torch.tensor([[1, 2, 2], [3, 1, 0]])

ROWS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "lstm": (_network(nn.LSTM, 4, 3), (_x(5, 2, 4),)),
    "lstm, layers both ways, batch first": (_network(nn.LSTM, 4, 3, 2, bidirectional=True, batch_first=True), (_x(2, 5, 4),)),
    "lstm with projections, without biases": (_network(nn.LSTM, 4, 5, proj_size=3, bias=False), (_x(5, 2, 4),)),
    "lstm of one step": (_network(nn.LSTM, 4, 3), (_x(1, 2, 4),)),
    "gru": (_network(nn.GRU, 4, 3, 2, bidirectional=True), (_x(5, 2, 4),)),
    "gru without biases": (_network(nn.GRU, 4, 3, bias=False), (_x(5, 2, 4),)),
    "rnn of tanh": (_network(nn.RNN, 4, 3, 2), (_x(5, 2, 4),)),
    "rnn of relu": (_network(nn.RNN, 4, 3, nonlinearity="relu"), (_x(5, 2, 4),)),
    "packed lstm": (_packed(nn.LSTM, 4, 5, 2, proj_size=3, bidirectional=True), (_x(9, 4),)),
    "packed gru": (_packed(nn.GRU, 4, 3, bias=False, bidirectional=True), (_x(9, 4),)),
    "packed rnn of tanh": (_packed(nn.RNN, 4, 3, 2), (_x(9, 4),)),
    "packed rnn of relu": (_packed(nn.RNN, 4, 3, nonlinearity="relu"), (_x(9, 4),)),
    "grid of a plane": (_grid(), (_x(2, 3, 5, 4), torch.rand(2, 3, 3, 2, dtype=F64) * 2.4 - 1.2)),
    "grid, nearest": (_grid(mode="nearest"), (_x(2, 3, 5, 4), torch.rand(2, 3, 3, 2, dtype=F64) * 2.4 - 1.2)),
    "grid at borders": (_grid(padding_mode="border"), (_x(2, 3, 5, 4), torch.rand(2, 3, 3, 2, dtype=F64) * 3 - 1.5)),
    "grid, reflected": (_grid(padding_mode="reflection", align_corners=True),
                        (_x(2, 3, 5, 4), torch.rand(2, 3, 3, 2, dtype=F64) * 3 - 1.5)),
    **{f"{mode} samples of an identity, {padding}, {'corners' if aligned else 'edges'}, {dims}-d": (
        _grid(mode=mode, padding_mode=padding, align_corners=aligned), (_x(1, 2, *[4] * dims), _identity(dims, aligned)))
       for mode, padding, aligned, dims in itertools.product(
           ("bilinear", "nearest"), ("zeros", "border", "reflection"), (True, False), (2, 3))},
    "grid, bicubic": (_grid(mode="bicubic"), (_x(2, 3, 5, 4), torch.rand(2, 3, 3, 2, dtype=F64) * 2 - 1)),
    "grid of a volume": (_grid(), (_x(1, 2, 4, 3, 5), torch.rand(1, 2, 3, 2, 3, dtype=F64) * 2 - 1)),
    "linear": (lambda x: F.interpolate(x, size=7, mode="linear"), (_x(2, 3, 4),)),
    "bilinear": (lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear"), (_x(2, 3, 4, 6),)),
    "bilinear, aligned": (lambda x: F.interpolate(x, (3, 9), mode="bilinear", align_corners=True), (_x(2, 3, 4, 6),)),
    "bicubic": (lambda x: F.interpolate(x, (7, 5), mode="bicubic"), (_x(2, 3, 4, 6),)),
    "trilinear": (lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"), (_x(1, 2, 2, 3, 2),)),
    "nearest": (lambda x: F.interpolate(x, scale_factor=2), (_x(2, 3, 4, 6),)),
    "nearest of a line": (lambda x: F.interpolate(x, 5), (_x(2, 3, 4),)),
    "nearest of a volume": (lambda x: F.interpolate(x, scale_factor=2), (_x(1, 2, 2, 3, 2),)),
    "largest of parts": (nn.AdaptiveMaxPool2d((3, 2)), (_x(2, 3, 7, 5),)),
    "largest of parts of a volume": (nn.AdaptiveMaxPool3d(2), (_x(1, 2, 3, 4, 5),)),
    "unfold": (nn.Unfold(3, padding=1, stride=2), (_x(2, 3, 6, 5),)),
    "fold": (nn.Fold((6, 5), 3, padding=1), (_x(2, 27, 30),)),
    "ctc": (lambda x: F.ctc_loss(x.log_softmax(-1), LABELS, *LENGTHS), (_x(6, 2, 5),)),
    "ctc of each": (lambda x: F.ctc_loss(x.log_softmax(-1), LABELS, *LENGTHS, reduction="none", blank=4), (_x(6, 2, 5),)),
    "ctc without a path": (lambda x: F.ctc_loss(x.log_softmax(-1), LABELS, torch.tensor([2, 5]), LENGTHS[1], zero_infinity=True),
                           (_x(6, 2, 5),)),
    "ctc of lists": (lambda x: F.ctc_loss(x.log_softmax(-1), LABELS, (6, 5), (3, 2), reduction="sum"), (_x(6, 2, 5),)),  # pyright: ignore
    "cumprod": (lambda x: x.cumprod(1), (_x(3, 5),)),
    "cumprod with zeros": (lambda x: x.cumprod(1), (torch.tensor([[2., 0, 3, 0, 1], [0, 1, 2, 3, 4]], dtype=F64),)),
    "logcumsumexp": (lambda x: x.logcumsumexp(0), (_x(4, 3),)),
    "cummax": (lambda x: x.cummax(1).values, (_x(3, 5),)),
    "cummin": (lambda x: x.cummin(0).values, (_x(3, 5),)),
    "distances": (torch.cdist, (_x(4, 3), _x(5, 3))),
    "distances by another norm": (lambda x, y: torch.cdist(x, y, p=1.5), (_x(4, 3), _x(5, 3))),
    "distances of many points": (torch.cdist, (_x(30, 3), _x(5, 3))),
    "distances of many points, some the same": (torch.cdist, (_x(30, 3).round(), _x(4, 3).round())),
    "distances of batches": (torch.cdist, (_x(2, 1, 4, 3), _x(3, 5, 3))),
    "distances of many batches": (lambda x, y: torch.cdist(x, y, compute_mode="use_mm_for_euclid_dist"),
                                  (_x(2, 1, 4, 3), _x(3, 5, 3))),
    "bags, sums": (nn.EmbeddingBag(9, 4, mode="sum", dtype=F64), (torch.randint(9, (3, 4)),)),
    "bags, means": (nn.EmbeddingBag(9, 4, dtype=F64), (torch.randint(9, (7,)), torch.tensor([0, 3, 3]))),
    "bags, maxima": (nn.EmbeddingBag(9, 4, mode="max", dtype=F64), (torch.randint(9, (3, 4)),)),
    "bags with padding": (nn.EmbeddingBag(9, 4, mode="sum", padding_idx=2, dtype=F64), (torch.randint(9, (3, 4)),)),
    "bags, maxima with padding": (nn.EmbeddingBag(9, 4, mode="max", padding_idx=2, include_last_offset=True, dtype=F64),
                                  (torch.tensor([2, 5, 2, 7, 1, 5]), torch.tensor([0, 1, 4, 4, 6]))),
    "bags, means with the last row as padding": (nn.EmbeddingBag(9, 4, padding_idx=-1, dtype=F64),
                                                 (torch.tensor([[8, 5, 2], [8, 8, 8]]),)),
    "bags of the operator, the last row as padding": (
        lambda w, i, o: torch.ops.aten.embedding_bag.padding_idx(w, i, o, False, 0, False, None, False, -1)[0],
        (_x(9, 4), torch.tensor([0, 8, 1, 8]), torch.tensor([0, 2]))),
    "bags with weights of each": (lambda w, p: F.embedding_bag(torch.tensor([[8, 5, 2], [1, 5, 8]]), w, mode="sum",
                                                               per_sample_weights=p), (_x(9, 4), _x(2, 3))),
    "embedding": (nn.Embedding(9, 4, dtype=F64), (torch.randint(9, (3, 4)),)),
    "topk": (lambda x: x.topk(2).values, (_x(3, 5),)),
    "kthvalue": (lambda x: x.kthvalue(2).values, (_x(3, 5),)),
    "median": (lambda x: x.median(1).values, (_x(3, 5),)),
    "mode": (lambda x: x.mode(1).values, (_x(3, 5),)),
    "scatter, largest": (lambda x, s: x.scatter_reduce(0, torch.tensor([[0, 1, 1], [2, 0, 1]]), s, "amax"), (_x(3, 3), _x(2, 3))),
    "scatter, product": (lambda x, s: x.scatter_reduce(0, torch.tensor([[0, 1, 1], [2, 0, 1]]), s, "prod"), (_x(3, 3), _x(2, 3))),
    "max pooling": (nn.MaxPool2d(3, 2, 1), (_x(2, 3, 7, 6),)),
    "max pooling of volumes": (nn.MaxPool3d(2), (_x(1, 2, 4, 5, 6),)),
    "average pooling": (nn.AvgPool2d(3, 2, 1), (_x(2, 3, 7, 6),)),
    "averages of parts": (nn.AdaptiveAvgPool2d(3), (_x(2, 3, 7, 5),)),
    "gather": (lambda x: x.gather(0, torch.tensor([[0, 1, 1], [2, 0, 1]])), (_x(3, 3),)),
    "scatter, sums": (lambda x, s: x.scatter_add(0, torch.tensor([[0, 1, 1], [2, 0, 1]]), s), (_x(3, 3), _x(2, 3))),
    "scatter": (lambda x, s: x.scatter(0, torch.tensor([[0, 1, 1], [2, 0, 2]]), s), (_x(3, 3), _x(2, 3))),
    "scatter of a number": (lambda x: x.scatter(1, torch.tensor([[0], [2], [1]]), 3.0), (_x(3, 3),)),
    "rows added": (lambda x, s: x.index_add(0, torch.tensor([2, 0, 2]), s, alpha=2), (_x(3, 4), _x(3, 4))),
    "rows chosen": (lambda x: x.index_select(1, torch.tensor([2, 0, 2])), (_x(3, 4),)),
    "windows": (lambda x: x.unfold(1, 3, 2), (_x(2, 7, 3),)),
    "reflected": (lambda x: F.pad(x, (2, 1), "reflect") ** 2, (_x(2, 3, 5),)),
    "reflected planes": (lambda x: F.pad(x, (2, 1, 0, 3), "reflect") ** 2, (_x(2, 3, 5, 4),)),
    "reflected volumes": (lambda x: F.pad(x, (2, 1, 0, 1, 1, 0), "reflect") ** 2, (_x(1, 2, 3, 4, 5),)),
    "short-time Fourier transform": (lambda x: torch.stft(x, 8, 3, window=torch.hann_window(8, dtype=F64),
                                                          return_complex=True).abs(), (_x(2, 20),)),
    "solve": (torch.linalg.solve, (_x(2, 3, 3) + 4 * torch.eye(3), _x(2, 3, 2))),
    "solve from the right": (lambda a, b: torch.linalg.solve(a, b, left=False), (_x(2, 3, 3) + 4 * torch.eye(3), _x(2, 2, 3))),
    "solve for vectors": (torch.linalg.solve, (_x(2, 3, 3) + 4 * torch.eye(3), _x(2, 3))),
    "solve for many batches": (torch.linalg.solve, (_x(2, 1, 3, 3) + 4 * torch.eye(3), _x(4, 3, 2))),
    "gelu": (nn.GELU(), (_x(3, 4),)),
    "gelu by tanh": (nn.GELU("tanh"), (_x(3, 4),)),
    "prelu": (nn.PReLU(3, dtype=F64), (_x(2, 3, 4),)),
    "cosine similarity": (F.cosine_similarity, (_x(4, 3), _x(4, 3))),
    "cosine similarity of short vectors": (lambda x, y: F.cosine_similarity(x, y, eps=0.5),
                                           (torch.tensor([[0., 0, 0], [1e-9, 0, 0], [1, 2, 3]], dtype=F64), _x(2, 1, 3))),
    "pairwise distance": (F.pairwise_distance, (_x(4, 3), _x(4, 3))),
    "pairwise distance from itself": (lambda x, y: F.pairwise_distance(x, y * 1, eps=0.0, keepdim=True),
                                      (torch.ones(2, 3, dtype=F64), torch.ones(3, dtype=F64))),
    "pairwise distance by sums": (lambda x, y: F.pairwise_distance(x, y, p=1.0), (_x(4, 3), _x(3))),
    "instance norm": (nn.InstanceNorm1d(3, affine=True, dtype=F64), (_x(2, 3, 5),)),
    "batch norm, training": (nn.BatchNorm1d(4, dtype=F64, track_running_stats=False), (_x(5, 4, 3),)),
    "group norm without weights": (nn.GroupNorm(2, 4, affine=False), (_x(2, 4, 3),)),
    "layer norm": (nn.LayerNorm([3, 4], dtype=F64), (_x(2, 3, 4),)),
    "group norm": (nn.GroupNorm(2, 4, dtype=F64), (_x(2, 4, 3),)),
    "batch norm": (nn.BatchNorm1d(4, dtype=F64).eval(), (_x(5, 4, 3),)),
    "bins": (lambda x: torch.histc(x, 5, -2, 2) * x.sum(), (_x(9),)),
    "buckets": (lambda x: torch.bucketize(x, torch.tensor([-1.0, 0.0, 0.5], dtype=F64), right=True) * x, (_x(7),)),
    "places": (lambda x: torch.searchsorted(torch.arange(0., 5, dtype=F64), x) * x, (_x(7) * 3,)),
}


def _flat(results: Any) -> list[torch.Tensor]:
    return [r for r in torch.utils._pytree.tree_leaves(results) if isinstance(r, torch.Tensor)]  # pyright: ignore


def _composites(computation: xla_torch.XlaComputation) -> list[Computation]:
    """The decompositions in a program whose kernels are known."""
    return [c for c in computation.program.module.computations if kernel_of(c) is not None]


def _converted(name: str) -> tuple[Any, Any, tuple[torch.Tensor, ...], list[torch.Tensor]]:
    """The converted row, the module or function, the arguments, and those of both that are differentiated."""
    given, arguments = copy.deepcopy(ROWS[name])
    torch.manual_seed(0)
    converted = xla_torch.nn.XlaModule.from_torch(given, *arguments) if isinstance(given, nn.Module) else (
        xla_torch.from_torch(given, *arguments))
    return converted, given, arguments, [a.requires_grad_() for a in arguments if a.is_floating_point()]


@pytest.fixture
def by_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "SMALL_COMPOSITE", 0)


@pytest.mark.usefixtures("by_kernels")
@pytest.mark.parametrize("name", ROWS)
def test_values_and_gradients_are_those_of_eager_torch(name: str) -> None:
    converted, given, arguments, moving = _converted(name)
    ours, theirs = converted(*arguments), given(*arguments)
    torch.testing.assert_close(_flat(ours), _flat(theirs), rtol=1e-12, atol=1e-12)
    cotangents = [torch.randn_like(r) for r in _flat(theirs) if r.requires_grad]
    found = []
    for function, results in ((converted, ours), (given, theirs)):
        weights = list(function.parameters()) if isinstance(function, nn.Module) else []
        found.append(torch.autograd.grad([r for r in _flat(results) if r.requires_grad], [*moving, *weights], cotangents))
    torch.testing.assert_close(found[0], found[1], rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", ROWS)
def test_decompositions_are_the_kernels(name: str) -> None:
    given, arguments = ROWS[name]
    program = xla_torch.from_torch(given, *arguments)
    whole = _composites(program.computation)
    back: Any = program.computation.entry.derivatives
    if back._is_there():
        whole += [c for c in _composites_of(back._back) if not any(c is w for w in whole)]
    assert whole
    for computation in whole:
        kernel = kernel_of(computation)
        assert kernel is not None
        operands = _operands(name, kernel, computation)
        by_ops = StaticComputation(Module("ops", bringing(computation, None)))(*operands)
        by_kernel = composites.run(kernel.name, kernel.attributes, *operands)
        # Of the other results of a bag's operator, torch computes those alone that its own way back reads.
        count = 1 if name.startswith("bags") else None
        torch.testing.assert_close(_flat(by_ops)[:count], list(by_kernel)[:count], rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(("name", "kernel"), [
    ("solve", "aten._linalg_solve_ex.vjp"), ("group norm", "aten.native_group_norm.vjp"), ("cumprod", "aten.cumprod.vjp")])
def test_ways_back_are_kernels(name: str, kernel: str) -> None:
    back: Any = xla_torch.from_torch(*_call(name)).computation.entry.derivatives
    assert back._is_there()
    assert kernel in [known.name for c in _composites_of(back._back) if (known := kernel_of(c)) is not None]


def _call(name: str) -> tuple[Any, ...]:
    given, arguments = ROWS[name]
    return given, *arguments


def _composites_of(computation: Computation) -> list[Computation]:
    return [c for c in Module("m", computation).computations if kernel_of(c) is not None]


def _operands(name: str, kernel: Kernel, computation: Computation) -> list[torch.Tensor]:
    """Operands of these shapes. Whole numbers are the row's own, where it has such of the same shape, or else 0; and what a way
    back reads of the results is what the way forward gives."""
    given = _flat((ROWS[name][1], LABELS, *LENGTHS)) if name.startswith("ctc") else _flat(ROWS[name][1])
    whole = [b for a in given if not a.is_floating_point() for b in ((a, a.flatten()) if a.ndim > 1 else (a,))]
    found = list[torch.Tensor]()
    for parameter in computation.parameters:
        sizes, dtype = parameter.shape.dimensions, torch_dtype(parameter.shape.element_type)
        if dtype.is_floating_point:
            found.append(torch.randn(sizes, dtype=dtype).log_softmax(-1) if name.startswith("ctc") and sizes else
                         torch.rand(sizes, dtype=dtype) + 0.1)
        else:
            place = next((k for k, a in enumerate(whole) if a.shape == sizes), None)
            found.append(torch.zeros(sizes, dtype=dtype) if place is None else whole[place])
            del whole[:0 if place is None else place + 1]
    options = json.loads(kernel.attributes)
    if kernel.name.endswith(VJP):
        count, kept = len(options["operands"]), options["kept"]
        results = composites.run(kernel.name.removesuffix(VJP), kernel.attributes, *found[:count])
        found[count:count + len(kept)] = [results[k] for k in kept]
    return found


FORMATS: dict[str, Callable[[Any], Any]] = {
    "HLO text": lambda c: xla_torch.parse_hlo(c.to_hlo_text(), derivatives="as written"),
    "HLO proto": lambda c: xla_torch.from_hlo_proto(c.to_hlo_proto(), derivatives="as written"),
    "StableHLO": lambda c: xla_torch.from_stablehlo(c.to_stablehlo(), derivatives="as written"),
    "StableHLO bytecode": lambda c: xla_torch.from_stablehlo(c.to_stablehlo_bytecode(), derivatives="as written"),
    "pickle": lambda c: pickle.loads(pickle.dumps(c))}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", ["lstm", "grid of a plane", "ctc", "topk", "bags, means", "distances", "cumprod"])
def test_files_run_and_are_differentiated_by_kernels(name: str, form: str) -> None:
    given, arguments = ROWS[name]
    program = xla_torch.from_torch(given, *arguments)
    read = FORMATS[form](program.computation)
    assert {kernel_of(c).name for c in _composites(read)} == {  # pyright: ignore[reportOptionalMemberAccess]
        kernel_of(c).name for c in _composites(program.computation)}  # pyright: ignore[reportOptionalMemberAccess]
    flat = [*_flat(program.weights), *arguments]
    flat = [t.detach().requires_grad_(t.is_floating_point()) for t in flat]
    torch.testing.assert_close(_flat(read(*flat)), _flat(program.computation(*flat)))
    sums = [sum(r.sum() for r in _flat(p(*flat)) if r.requires_grad) for p in (read, program.computation)]
    moving = [t for t in flat if t.requires_grad]
    torch.testing.assert_close(*(torch.autograd.grad(s, moving) for s in sums))  # pyright: ignore


GRID = xla_torch.from_torch(ROWS["grid of a plane"][0], *ROWS["grid of a plane"][1])


@pytest.mark.parametrize(("what", "old", "new"), [
    ("another decomposition", "subtract(", "add("), ("another version", 'composite.version="1"', 'composite.version="2"'),
    ("another name", 'composite.name="aten.grid_sampler"', 'composite.name="aten.unheard_of"'),
    ("other attributes", "padding_mode = 0", "padding_mode = 1"), ("no attributes", "composite.attributes={", "other={")])
def test_what_is_not_known_runs_by_its_decomposition(what: str, old: str, new: str) -> None:
    text = GRID.computation.to_hlo_text()
    assert old in text
    changed = xla_torch.parse_hlo(text.replace(old, new), derivatives="as written")
    assert not _composites(changed)
    plain = xla_torch.parse_hlo(re.sub(r", is_composite=true", "", text.replace(old, new)), derivatives="as written")
    arguments = ROWS["grid of a plane"][1]
    assert torch.equal(changed(*arguments), plain(*arguments))


def test_a_custom_call_of_a_file_is_no_kernel() -> None:
    with pytest.raises(xla_torch.errors.UnsupportedError, match="no function is registered"):
        xla_torch.parse_hlo('ENTRY e { p = f32[2] parameter(0)\n ROOT r = f32[2] custom-call(p), '
                            'custom_call_target="xla_torch.composite" }')(torch.ones(2))


@pytest.mark.parametrize(("limit", "is_whole"), [(0, True), (511, False), (10**9, False)])
def test_small_composites_are_opened(limit: int, is_whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "SMALL_COMPOSITE", limit)
    converted, given, arguments, moving = _converted("lstm")
    assert ("composites_run('aten.lstm.input'" in converted.computation.lowered("cpu").code) == is_whole
    ours, theirs = (torch.autograd.grad(f(*arguments)[0].sum(), moving) for f in (converted, given))
    torch.testing.assert_close(ours, theirs)
    sorts, _, _, _ = _converted("topk")
    assert "composites_run('aten.topk'" in sorts.computation.lowered("cpu").code


def test_maxima_whose_places_nobody_reads_are_native(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "SMALL_COMPOSITE", 0)
    x = _x(2, 3, 7, 6)
    for indices, is_whole in ((False, False), (True, True)):
        program = xla_torch.from_torch(nn.MaxPool2d(3, 2, 1, return_indices=indices), x)
        assert ("composites_run" in program.computation.lowered("cpu").code) == is_whole
        torch.testing.assert_close(program(x), F.max_pool2d(x, 3, 2, 1, return_indices=indices))


@pytest.mark.parametrize("name", ["lstm", "grid of a plane", "bilinear", "cumprod", "logcumsumexp"])
def test_second_derivatives_and_batches(name: str) -> None:
    converted, given, arguments, moving = _converted(name)
    def total(function: Callable[..., Any]) -> Callable[..., torch.Tensor]:
        return lambda *args: sum(r.sin().sum() for r in _flat(function(*args)) if r.is_floating_point())  # pyright: ignore

    plain = [a.detach() for a in arguments]
    if name != "lstm":  # torch's own derivative of one in float64 has no second one
        ours, theirs = (torch.autograd.grad(total(f)(*arguments), moving, create_graph=True) for f in (converted, given))
        torch.testing.assert_close(ours, theirs)
        second = [torch.autograd.grad(sum(g.square().sum() for g in first), moving[0])[0]  # pyright: ignore
                  for first in (ours, theirs)]
        torch.testing.assert_close(second[0], second[1], rtol=1e-9, atol=1e-9)
    batches = [torch.stack([a, a * 0.5]) for a in plain]
    found = torch.func.vmap(converted)(*batches)
    torch.testing.assert_close([r[1] for r in _flat(found)], _flat(converted(*(a * 0.5 for a in plain))))


def _experts(x: torch.Tensor, gates: torch.Tensor) -> torch.Tensor:
    weights, chosen = gates.softmax(-1).topk(2, -1)
    found = torch.zeros_like(x)
    for k in range(3):
        row, column = torch.where(chosen == k)
        found = found.index_add(0, row, (x[row] * (k + 1)).tanh() * weights[row, column, None])
    return found


def _means_of_groups(x: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    distinct, places, counts = torch.unique(groups, return_inverse=True, return_counts=True)
    return torch.zeros(len(distinct), 2, dtype=F64).index_add(0, places, x.sin()) / counts[:, None]


def _hardest(x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    kept = labels != -1
    return F.cross_entropy(x[kept], labels[kept], reduction="none").topk(2).values.mean()


def _scanned(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    first = x[y != -1].sum(0)
    last, found = scan(lambda carry, row: (carry.cumprod(0).tanh() + row, (carry * row).topk(2).values), first,
                       torch.stack([first, first * 2, first.sin()]))
    return last.sum() + found


LABELLED = torch.tensor([0, -1, 2, 3, 1, -1, 2, 1])
OF_VALUES: dict[str, tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, torch.Tensor]]] = {
    "the largest": (lambda x, y: (x[y != -1].sin() * 2).sum(1).topk(3).values.mean(), (_x(8, 5), LABELLED)),
    "experts": (_experts, (_x(7, 4), _x(7, 3))),
    "groups": (_means_of_groups, (_x(6, 2), torch.tensor([0, 2, 2, 5, 0, 2]))),
    "the hardest": (_hardest, (_x(8, 4), LABELLED)),
    "in a branch": (lambda x, y: torch.cond(x.sum() > 0, lambda z: z.topk(2).values.cumprod(0), lambda z: (z * z).topk(2).values,
                                            (x[y != -1].sum(0),)), (_x(8, 5), LABELLED)),
    "in a loop": (_scanned, (_x(8, 5), LABELLED)),
    "beside what stops gradients": (lambda x, y: (x.detach() * x)[y != -1].sum(1).cumprod(0).sum() + x.sum(0).topk(2).values,
                                    (_x(8, 5), LABELLED)),
}


@pytest.mark.filterwarnings("ignore:.torch.jit.script.*is deprecated", "ignore:The .grad attribute of a Tensor that is not a")
@pytest.mark.parametrize("name", OF_VALUES)
def test_derivatives_where_sizes_depend_on_values(name: str) -> None:
    function, (x, other) = OF_VALUES[name]
    ours = xla_torch.from_torch(function, x, other)
    leaf, tangent = x.clone().requires_grad_(), x.cos()
    value, expected = ours(leaf, other), function(leaf, other)
    torch.testing.assert_close(value, expected)
    cotangent = torch.linspace(1, 2, value.numel(), dtype=F64).view(value.shape)
    first, wanted = (torch.autograd.grad(r, leaf, cotangent, create_graph=True)[0] for r in (value, expected))
    torch.testing.assert_close(first, wanted)
    moved = torch.func.jvp(lambda x: ours(x, other), (x,), (tangent,))[1]
    torch.testing.assert_close((moved * cotangent).sum(), (wanted * tangent).sum().detach())
    batch = torch.stack([x, x * 1.5]).requires_grad_()
    several = torch.func.vmap(lambda x: ours(x, other))(batch)
    torch.testing.assert_close(several, torch.stack([function(x, other) for x in batch]))
    torch.testing.assert_close(torch.autograd.grad(several, batch, torch.stack([cotangent] * 2))[0][0], wanted.detach())
    if name != "beside what stops gradients":  # not the derivative of the value
        assert torch.autograd.gradgradcheck(lambda x: ours(x, other), leaf)


def test_derived_programs_are_written_with_composites() -> None:
    arguments = ROWS["grid of a plane"][1]
    gradient = xla_torch.value_and_grad(xla_torch.from_torch(lambda x, g: ROWS["grid of a plane"][0](x, g).sum(), *arguments))
    value, found = gradient(*arguments)
    x = arguments[0].detach().requires_grad_()
    expected = ROWS["grid of a plane"][0](x, arguments[1]).sum()
    torch.testing.assert_close(value, expected.detach())
    torch.testing.assert_close(found, torch.autograd.grad(expected, x)[0])


def test_what_a_kernel_does_not_do_is_taken_apart() -> None:
    program = xla_torch.from_torch(nn.LSTM(4, 3, 2, dropout=0.5, dtype=F64), _x(5, 2, 4))  # it draws random numbers
    assert not _composites(program.computation)


def test_descriptions_are_dictionaries_of_mlir() -> None:
    (computation,) = _composites(GRID.computation)
    kernel = kernel_of(computation)
    assert kernel is not None
    assert described(kernel)["composite.attributes"] == (
        '{interpolation_mode = 0 : i64, padding_mode = 0 : i64, align_corners = false, operands = ["input", "grid"]}')
    shapes = tuple(p.shape for p in computation.parameters)
    assert decomposition(kernel.name, kernel.attributes, shapes) is decomposition(kernel.name, kernel.attributes, shapes)
    assert all(is_composite(i) for i in GRID.computation.program.canonical.instructions if i.opcode == "custom-call")
