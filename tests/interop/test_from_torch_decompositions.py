"""Operators that torch has no decompositions of, by ours: values, gradients and real XLA."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch.utils import _pytree as pytree

import xla_torch
from support import composition_rows
from support.aten_rows import TIES, floats, ints
from support.oracle import needs_xla, run_xla
from xla_torch.api import torch_compositions, torch_decompositions, torch_graph
from xla_torch.errors import UnsupportedError
from xla_torch.lowering import numerics

ROW, IMAGE, VOLUME = floats(4, 6), floats(2, 3, 7, 6), floats(1, 2, 5, 6, 7)
ORDERED, FEW = ROW.sort(1).values, ROW[:, :3].contiguous()
HOLED = torch.tensor([1.0, 2.0, 2.0, float("nan"), float("nan")])
WORDS, STARTS, TABLE = torch.tensor([1, 2, 0, 3, 3, 1]), torch.tensor([0, 2, 2, 5]), floats(5, 3)
GRID = 1.5 * floats(1, 2, 3, 2, 3)
SAMPLES = torch.rand(2, 3, 2, generator=torch.Generator().manual_seed(0))
PLANE = torch.tensor([complex(*sides) for x in (2.0, -2.0, 0.5, -1e-3) for y in (1.0, -0.25) for sides in ((x, y), (y, x))])
ENDS = torch.tensor([8, 8, 16], dtype=torch.int32)
STEPS = torch.tensor([[0.05, 0.15, -0.25, 0.31], [100.0, -100.0, -0.75, 0.0]])
SIGNS = torch.tensor([1.0, -0.0, -2.0, 0.0])
BF16 = torch.bfloat16

CALLS: dict[str, list[tuple[Any, list[torch.Tensor]]]] = {
    "searchsorted": [
        (lambda s, v: (torch.searchsorted(s, v), torch.searchsorted(s, v, right=True, out_int32=True)), [ORDERED, FEW]),
        (lambda s, v: (torch.searchsorted(s, v), torch.searchsorted(s, v, side="right")), [HOLED, torch.cat([HOLED, ROW[0]])]),
        (lambda s, v, o: torch.searchsorted(s, v, sorter=o), [ROW, FEW, ROW.argsort(1)]),
        (lambda s: (torch.searchsorted(s, 2), torch.searchsorted(s, 2, right=True)), [HOLED]),
        (torch.searchsorted, [torch.tensor([1, 3, 3, 9]), ints(3, 4)])],
    "bucketize": [(lambda v, s: (torch.bucketize(v, s), torch.bucketize(v, s, right=True)), [ROW, ORDERED[0]]),
                  (lambda s: torch.bucketize(0.5, s), [ORDERED[0]])],
    "histc": [(lambda x: (torch.histc(x, 5, -1, 1), torch.histc(x, 7)), [ROW]), (lambda x: torch.histc(x, 3), [torch.ones(4)]),
              (lambda x: torch.histc(x, 4, 0, 4), [torch.tensor([0.0, 1, 1, 2, 3, 4, 5, -1])])],
    "fft_fftfreq": [(lambda x: x * torch.fft.fftfreq(x.shape[-1], 0.3), [ROW])],
    "fft_rfftfreq": [(lambda x: x * torch.fft.rfftfreq(2 * x.shape[-1] - 1), [ROW])],
    "fake_quantize_per_tensor_affine_cachemask": [
        (lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -8, 7), [STEPS]),
        (lambda x: torch.fake_quantize_per_tensor_affine(x.bfloat16(), 0.1, 3, -8, 7), [STEPS])],
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams": [
        (lambda x, zero: torch.fake_quantize_per_tensor_affine(x, torch.tensor(0.1), zero, 0, 255),
         [STEPS, torch.tensor(3, dtype=torch.int32)])],
    "fake_quantize_per_channel_affine_cachemask": [
        (lambda x, zero: torch.fake_quantize_per_channel_affine(x, torch.tensor([0.1, 0.3]), zero, 0, -8, 7),
         [STEPS, torch.tensor([0, 3], dtype=torch.int32)]),
        (lambda x: torch.fake_quantize_per_channel_affine(x, torch.ones(2), torch.tensor([0.3, 0.5]), 0, -8, 7), [STEPS])],
    "_embedding_bag": [
        *((lambda i, o, w, mode=mode: F.embedding_bag(i, w, o, mode=mode), [WORDS, STARTS, TABLE])
          for mode in ("sum", "mean", "max")),
        *((lambda i, o, w, mode=mode: F.embedding_bag(i, w, o, mode=mode, padding_idx=3, include_last_offset=True),
           [WORDS, torch.tensor([0, 2, 2, 6]), TABLE]) for mode in ("sum", "mean", "max")),
        (lambda i, w, p: F.embedding_bag(i, w, mode="sum", per_sample_weights=p), [WORDS.view(2, 3), TABLE, ROW[:2, :3]])],
    "adaptive_max_pool2d": [
        (lambda x: F.adaptive_max_pool1d(x, 4, return_indices=True), [IMAGE[0]]),
        (lambda x: F.adaptive_max_pool2d(x, (3, 4), return_indices=True), [IMAGE]),
        (lambda x: F.adaptive_max_pool2d(x, (3, 2), return_indices=True), [TIES[None]])],
    "adaptive_max_pool3d": [(lambda x: F.adaptive_max_pool3d(x, (3, 6, 4), return_indices=True), [VOLUME])],
    "fractional_max_pool2d": [
        (lambda x: F.fractional_max_pool2d(x, (2, 3), (4, 3), _random_samples=SAMPLES, return_indices=True), [IMAGE]),
        (lambda x: F.fractional_max_pool2d(x, 2, (4, 1), _random_samples=SAMPLES[:1], return_indices=True), [IMAGE[0]])],
    "fractional_max_pool3d": [
        (lambda x: F.fractional_max_pool3d(x, (2, 3, 2), (3, 2, 4), _random_samples=torch.cat([SAMPLES, SAMPLES], 2)[:1, :2, :3],
                                           return_indices=True), [VOLUME])],
    "grid_sampler_3d": [
        (lambda x, g, kind=kind, pad=pad, align=align: F.grid_sample(x, g, kind, pad, align), [VOLUME, GRID])
        for kind in ("bilinear", "nearest") for pad in ("zeros", "border", "reflection") for align in (False, True)],
    "grid_sampler_2d": [
        (lambda x, g, kind=kind, pad=pad, align=align: F.grid_sample(x, g, kind, pad, align),
         [VOLUME[:, :, 0], GRID[:, 0, :, :, :2]])
        for kind in ("bilinear", "nearest", "bicubic") for pad in ("zeros", "border", "reflection") for align in (False, True)],
    "grid_sampler": [
        # With a detach, its own derivative is traced; and what is written into a view has one of strides.
        (lambda x, g: F.grid_sample(x, g, align_corners=False) * x.detach().sum(), [VOLUME[:, :, 0], GRID[:, 0, :, :, :2]])],
    "shifts": [(lambda x, n: (x << 3, x >> 1, 1 << n, 200 >> n, x << n, x >> n, x << 70, x >> -1),
                [torch.tensor([5, -7, 1 << 40]), torch.tensor([0, 3, 9])]),
               (lambda x, n: (x << 3, x >> 1, x << n, x >> n), [torch.tensor([5, -7], dtype=torch.int8), torch.tensor([0, 3])])],
    "copysign": [(lambda x, y: (x.copysign(y), x.copysign(-1), x.int().copysign(y)), [SIGNS, SIGNS.flip(0)])],
    "bits in another type": [
        (lambda x: (x.view(torch.int32), x.view(torch.int8), x.view(torch.float64), x.view(BF16) * 2,
                    x.view(torch.int32).add(1).view(torch.float32)), [SIGNS.view(2, 2)]),
        (lambda x: (x.view(torch.float32) * x.real.sum(), x.view(torch.int64), x[0].view(torch.float64)),
         [torch.complex(SIGNS, SIGNS.flip(0))]),
        (lambda x, n: (x.view(torch.uint8), x.view(torch.int16), n.view(torch.bool)), [SIGNS > 0, torch.tensor([0, 1]).byte()]),
        (lambda n: n.view(torch.complex64), [torch.tensor([[1 << 40, 3], [-1, 0]])])],
    "relu_": [(lambda x: torch.relu_((x * 1).view(-1, 2)) * x.detach().sum(), [VOLUME]),
              (lambda x: torch.relu_((x * 2)[..., 1:]) * x[..., 1:].detach(), [VOLUME])],
    "_grouped_mm": [
        (lambda a, b, o: F.grouped_mm(a, b, offs=o), [floats(16, 8, dtype=BF16), floats(3, 8, 16, dtype=BF16), ENDS]),
        (torch._grouped_mm, [floats(8, 16, dtype=BF16), floats(16, 8, dtype=BF16), ENDS]),
        (lambda a, b, o: F.grouped_mm(a, b, offs=o), [floats(3, 8, 8, dtype=BF16), floats(8, 16, dtype=BF16), ENDS]),
        (F.grouped_mm, [floats(3, 8, 8, dtype=BF16), floats(3, 8, 16, dtype=BF16)])],
    "median": [(lambda x: (x.median(), x.nanmedian(), x.median(1).values), [ROW]),
               (lambda x: (x.median(), x.nanmedian()), [torch.tensor([1.0, 2.0, 2.0, 2.0, 3.0])])],
    "ranks": [(lambda x: (x.kthvalue(3, 1), x.mode(1), x.cummax(1), x.cummin(0), x.logcumsumexp(1)), [ROW])],
    "inverses of complex numbers": [(lambda x: (x.acos(), x.acosh(), x.asin(), x.asinh()), [PLANE])],
    "cumprod": [(lambda x: (x.cumprod(1, dtype=torch.float64), x.int().cumprod(0, dtype=torch.float32)), [ROW])],
    "resampling": [(lambda x, mode=mode: F.interpolate(x, (3, 9), mode=mode, antialias=True), [IMAGE])
                   for mode in ("bilinear", "bicubic")],
    "torch's own": [(lambda x: (x.renorm(2, 0, 1.0), F.interpolate(x, (9, 4), mode="nearest-exact"), F.unfold(x, 2),
                                F.interpolate(x, (9, 4), mode="bicubic", align_corners=True)), [IMAGE])],
} | composition_rows.CALLS
EACH = [(name, k) for name, calls in CALLS.items() for k in range(len(calls))]
QUICK = [pytest.param(name, k, marks=() if k == 0 else pytest.mark.slow) for name, k in EACH]


def tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if leaf is not None]


def as_numpy(tensor: torch.Tensor) -> np.ndarray:
    kind = torch_graph.element_type_of(tensor.dtype, "a tensor")
    return numerics.numpy_from_storage(numerics.to_storage(tensor.contiguous(), kind), kind)


def close(found: Any, expected: Any) -> None:
    rough = 2e-2 if expected.dtype is BF16 else 2e-5
    torch.testing.assert_close(found, expected, rtol=rough, atol=rough, equal_nan=True)


@pytest.mark.filterwarnings("ignore:index_reduce")  # which is in beta
@pytest.mark.parametrize(("name", "number"), QUICK)
def test_values_and_gradients_are_those_of_torch(name: str, number: int):
    function, arguments = CALLS[name][number]
    ours, found = xla_torch.from_torch(function, *arguments), []
    for called in (ours, function):
        given = [a.clone().requires_grad_(a.is_floating_point()) for a in arguments]
        results = tensors(called(*given))
        moving = [r for r in results if r.requires_grad and r.is_floating_point()]
        weighted = [(r * torch.linspace(-1, 1, r.numel(), dtype=r.dtype).view(r.shape)).nansum() for r in moving]
        total = sum(weighted, torch.zeros(()))
        if called is function and not moving:
            found = found[:1]
        elif moving:
            total.backward()
        found += [r.detach() for r in results], [torch.zeros_like(a) if a.grad is None else a.grad for a in given]
    values, gradients, expected, wanted = found if len(found) == 4 else (found[0], [], *found[1:])
    for pair in [*zip(values, expected, strict=True), *(zip(gradients, wanted, strict=True) if gradients else [])]:
        close(*pair)


@pytest.mark.parametrize("derivatives", ["torch", "xla"])
@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_polygamma_and_its_gradient_are_right_on_both_sides_of_zero(order: int, derivatives: Any):
    mpmath = pytest.importorskip("mpmath")
    x = torch.tensor([-30.5, -20.3, -7.5, -0.7, -0.5, -1e-3, 1e-6, 0.5, 3.5, 1e4], dtype=torch.float64)
    function = xla_torch.from_torch(lambda a: torch.polygamma(order, a), x, derivatives=derivatives)
    values = function(x.requires_grad_())
    gradient, = torch.autograd.grad(values.sum(), x)
    for found, n in ((values.detach(), order), (gradient, order + 1)):
        wanted = torch.tensor([float(mpmath.polygamma(n, v)) for v in x.tolist()], dtype=torch.float64)
        torch.testing.assert_close(found, wanted, rtol=1e-7, atol=0)


@pytest.mark.parametrize(("name", "number"), [(name, k) for name, k in EACH if name.startswith(("fake_", "_fake_"))])
def test_derivatives_of_the_ops_pass_fake_quantisation(name: str, number: int):
    function, arguments = CALLS[name][number]
    first, *rest = arguments
    found = [torch.autograd.grad(called(x, *rest).float().sum(), x)[0] for called in (
        function, xla_torch.from_torch(function, *arguments, derivatives="xla")) for x in [first.clone().requires_grad_()]]
    close(found[1], found[0])


@needs_xla
@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.filterwarnings("ignore:.*only xla_torch runs checks")
@pytest.mark.parametrize(("name", "number"), [pytest.param(*row, marks=pytest.mark.slow) for row in EACH])
def test_real_xla_gives_what_torch_gives(name: str, number: int):
    function, arguments = CALLS[name][number]
    text = xla_torch.from_torch(function, *arguments).to_hlo_text()
    for found, expected in zip(run_xla(text, *map(as_numpy, arguments)), tensors(function(*arguments)), strict=True):
        close(torch.from_numpy(np.array(found, np.float32 if expected.dtype is BF16 else None)).to(expected.dtype), expected)


def test_every_decomposition_is_called():
    packets = {name.partition(".")[0] for name in (*torch_decompositions._WAYS, *torch_compositions._WAYS)}
    in_other_tests = {"embedding_bag", "_embedding_bag_forward_only", "diagonal_scatter",  # test_from_torch_functions
                      "batch_norm", "instance_norm",  # test_from_torch_derivatives
                      *composition_rows.UNDER_OTHER_NAMES}
    assert packets - in_other_tests <= {*CALLS}
    assert {op.name() for op in torch_decompositions.decompositions()} >= {"aten::histc", "aten::grid_sampler_3d"}


@pytest.mark.parametrize(("function", "arguments", "words"), [
    (lambda i, o, w: F.embedding_bag(i, w, o, scale_grad_by_freq=True), [WORDS, STARTS, TABLE], "scale_grad_by_freq"),
    (lambda x: F.interpolate(x, (3, 4), mode="bilinear", antialias=True), [(IMAGE * 9).to(torch.uint8)], "whole numbers"),
    (lambda x: x.logcumsumexp(0), [torch.complex(ROW, ROW)], "complex numbers")])
def test_what_is_refused(function: Any, arguments: list[torch.Tensor], words: str):
    with pytest.raises(UnsupportedError, match=words):
        xla_torch.from_torch(function, *arguments)
