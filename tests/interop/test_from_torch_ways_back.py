"""Models that take gradients within their forward: operators of torch that are gradients of others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch._decomp import decomposition_table
from torch.nn.attention import SDPBackend, sdpa_kernel

import xla_torch
from support.aten_rows import floats
from xla_torch.api import torch_ways_back
from xla_torch.api.torch_composites import operator_decompositions
from xla_torch.aten.operator_rules import RULES
from xla_torch.storage import torch_private

Call = Callable[..., torch.Tensor]

LINE, IMAGE, VOLUME = floats(1, 2, 7), floats(1, 2, 5, 4), floats(1, 2, 4, 5, 3)
ROWS, TABLE, HEADS = floats(5, 4), floats(5, 3), floats(1, 2, 5, 8)
PLACES, BOXES = 1.3 * floats(1, 3, 2, 2), 1.3 * floats(1, 3, 2, 2, 3)
WORDS, STARTS, LABELS = torch.tensor([1, 2, 0, 3, 3, 1]), torch.tensor([0, 2, 2, 5]), torch.tensor([1, 0, 2, 2, 0])
ENDING = torch.tensor([[1, 3, -1, 0], [0, -1, 1, 2], [3, 2, 1, -1], [-1, 0, 1, 2], [3, 1, 0, 2]])
SEQUENCES = floats(3, 2, 4)
LENGTHS, SAMPLES = torch.tensor([2, 3]), torch.full((1, 2, 3), 0.3)


def _larger(mode: str, x: torch.Tensor) -> tuple[str, Call, list[torch.Tensor]]:
    align = False if "linear" in mode or mode == "bicubic" else None
    return f"{mode} {x.ndim - 2}", lambda x: F.interpolate(x, scale_factor=1.7, mode=mode, align_corners=align), [x]


def _sampled(x: torch.Tensor, grid: torch.Tensor, mode: str, padding: str) -> tuple[str, Call, list[torch.Tensor]]:
    return f"grid_sample {x.ndim - 2} {mode} {padding}", lambda x, g: F.grid_sample(x, g, mode, padding, False), [x, grid]


def _layers(kind: type[torch.nn.Module], **options: Any) -> tuple[str, Call, list[torch.Tensor]]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = kind(4, 3, **options)
    names, weights = zip(*module.named_parameters(), strict=True)

    def call(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(module, dict(zip(names, weights, strict=True)), (x,))[0]

    return " ".join([kind.__name__, *map(str, options.values())]), call, [SEQUENCES, *(w.detach() for w in weights)]


def _ctc_loss(reduction: str) -> tuple[str, Call, list[torch.Tensor]]:
    return f"ctc_loss {reduction}", lambda x: F.ctc_loss(
        x.log_softmax(2), torch.tensor([[1, 2], [3, 3]]), torch.tensor([6, 5]), torch.tensor([2, 1]), reduction=reduction), [
            floats(6, 2, 5)]


CALLS: list[tuple[str, Call, list[torch.Tensor]]] = [
    *(_layers(torch.nn.LSTM, **options) for options in ({}, {"num_layers": 2, "bidirectional": True})),
    _layers(torch.nn.GRU), _layers(torch.nn.RNN), _layers(torch.nn.RNN, nonlinearity="relu"),
    *map(_ctc_loss, ("mean", "sum", "none")),
    *((f"multilabel_margin_loss {reduction}",
       lambda x, reduction=reduction: F.multilabel_margin_loss(x, ENDING, reduction=reduction), [ROWS])
      for reduction in ("mean", "sum", "none")),
    *(_larger(mode, x) for mode, x in (("linear", LINE), ("bilinear", IMAGE), ("bicubic", IMAGE), ("trilinear", VOLUME))),
    *(_larger(mode, x) for mode in ("nearest", "nearest-exact") for x in (LINE, IMAGE, VOLUME)),
    ("antialiased", lambda x: F.interpolate(x, (3, 2), mode="bilinear", antialias=True, align_corners=False), [IMAGE]),
    *((f"{mode} pad {x.ndim - 2}", lambda x, pad=pad, mode=mode: F.pad(x, pad, mode=mode), [x])
      for mode in ("replicate", "reflect") for x, pad in ((LINE, (1, 2)), (IMAGE, (1, 2, 1, 1)), (VOLUME, (1, 2, 1, 1, 0, 2)))),
    *(_sampled(IMAGE, PLACES, mode, pad) for mode in ("bilinear", "nearest", "bicubic")
      for pad in ("zeros", "border", "reflection")),
    *(_sampled(VOLUME, BOXES, mode, pad) for mode in ("bilinear", "nearest") for pad in ("zeros", "border")),
    ("adaptive_max_pool2d", lambda x: F.adaptive_max_pool2d(x, 3), [IMAGE]),
    ("adaptive_max_pool3d", lambda x: F.adaptive_max_pool3d(x, 3), [VOLUME]),
    ("fractional_max_pool2d", lambda x: F.fractional_max_pool2d(x, 2, (2, 2), _random_samples=SAMPLES[..., :2]), [IMAGE]),
    ("fractional_max_pool3d", lambda x: F.fractional_max_pool3d(x, 2, (2, 2, 1), _random_samples=SAMPLES), [VOLUME]),
    ("max_pool1d", lambda x: F.max_pool1d(x, 3), [LINE]), ("max_pool2d", lambda x: F.max_pool2d(x, 2), [IMAGE]),
    ("max_pool3d", lambda x: F.max_pool3d(x, 2), [VOLUME]), ("avg_pool1d", lambda x: F.avg_pool1d(x, 3), [LINE]),
    ("avg_pool2d", lambda x: F.avg_pool2d(x, 2), [IMAGE]), ("avg_pool3d", lambda x: F.avg_pool3d(x, 2), [VOLUME]),
    ("adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, 3), [IMAGE]),
    *((f"pdist {p}", lambda x, p=p: torch.pdist(x, p), [ROWS]) for p in (0.0, 1.0, 2.0, 3.0, float("inf"))),
    ("cdist", lambda x, y: torch.cdist(x, y, 3.0), [ROWS, ROWS[:2] + 1]),
    ("hardshrink", F.hardshrink, [IMAGE]), ("softshrink", F.softshrink, [IMAGE]), ("glu", F.glu, [ROWS]),
    ("multi_margin_loss", lambda x: F.multi_margin_loss(x, LABELS, margin=0.7), [ROWS]),
    ("layer_norm", lambda x, w: F.layer_norm(x, (4,), w), [ROWS, ROWS[0] + 2]),
    ("group_norm", lambda x, w: F.group_norm(x, 2, w), [floats(2, 4, 3), ROWS[0] + 2]),
    ("batch_norm", lambda x, w: F.batch_norm(x, None, None, w, training=True), [ROWS, ROWS[0] + 2]),
    ("instance_norm", F.instance_norm, [IMAGE]),
    ("weight_norm", lambda v, g: torch._weight_norm(v, g, 0), [ROWS, ROWS[:, :1] + 2]),
    *((f"embedding_bag {mode} {pad}", lambda w, mode=mode, pad=pad: F.embedding_bag(WORDS, w, STARTS, mode=mode, padding_idx=pad),
       [TABLE]) for mode in ("sum", "mean", "max") for pad in (None, 3)),
    ("embedding_bag weights", lambda w, p: F.embedding_bag(WORDS, w, STARTS, mode="sum", per_sample_weights=p),
     [TABLE, floats(6)]),
    ("segment_reduce mean", lambda x: torch.segment_reduce(x, "mean", lengths=LENGTHS), [ROWS]),
    ("segment_reduce max", lambda x: torch.segment_reduce(x, "max", lengths=LENGTHS), [ROWS]),
    ("attention", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), [HEADS, HEADS + 1, HEADS * 0.3]),
    ("masked_scatter", lambda x, s: x.masked_scatter(torch.tensor([True, False, True, False]), s), [ROWS, floats(11)]),
]
BY_NAME = {name: (call, arguments) for name, call, arguments in CALLS}


def penalty(call: Call) -> Callable[..., Sequence[torch.Tensor]]:
    """The gradients of a call, and the sum of their squares."""

    def model(*arguments: torch.Tensor) -> Sequence[torch.Tensor]:
        y = call(*arguments)
        found = torch.autograd.grad((y * y.detach().cos()).sum(), arguments, create_graph=True)
        return sum((g.square().sum() for g in found), torch.zeros(())), *found

    return model


def _moving(arguments: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [a.clone().requires_grad_() for a in arguments]


def _gradients(model: Any, arguments: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    moving = _moving(arguments)
    found = model(*moving)[0]
    given = torch.autograd.grad(found, moving, allow_unused=True) if found.requires_grad else [None] * len(moving)
    return [torch.zeros_like(a) if g is None else g for a, g in zip(arguments, given, strict=True)]


QUICK = {"linear 1", "nearest 2", "nearest-exact 1", "replicate pad 2", "grid_sample 2 bilinear reflection",
         "adaptive_max_pool2d", "pdist 2.0", "hardshrink", "layer_norm", "weight_norm",
         "embedding_bag weights", "embedding_bag max 3",
         "segment_reduce max", "attention", "masked_scatter", "LSTM", "GRU", "RNN relu", "ctc_loss mean",
         "multilabel_margin_loss mean"}
ONCE = ("pdist", "cdist", "multi_margin_loss", "multilabel_margin_loss", "ctc_loss", "segment_reduce", "embedding_bag weights")
"""Of their gradients torch has no derivatives."""

EACH = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in BY_NAME]


@pytest.mark.parametrize("name", EACH)
def test_a_gradient_within_a_model_and_its_gradient_are_those_of_torch(name: str):
    call, arguments = BY_NAME[name]
    model = penalty(call)
    program = xla_torch.from_torch(model, *_moving(arguments))
    torch.testing.assert_close(list(program(*arguments)), [x.detach() for x in model(*_moving(arguments))], rtol=1e-4, atol=1e-5)
    if name.startswith(ONCE):
        with pytest.raises(RuntimeError, match="not implemented"):
            _gradients(model, arguments)
    else:
        with sdpa_kernel(SDPBackend.MATH):  # the others have no derivative of their derivative
            expected = _gradients(model, arguments)
        torch.testing.assert_close(list(_gradients(program, arguments)), list(expected), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("transform", ["grad", "jvp"])
def test_transforms_of_torch_func_within_a_model_see_through_recurrent_layers(transform: str, name: str):
    call, arguments = BY_NAME[name]
    x, *weights = [a.double() for a in arguments]  # eager torch has no tangents of layers of float32

    def model(x: torch.Tensor, *weights: torch.Tensor) -> tuple[torch.Tensor]:
        if transform == "jvp":
            return (torch.func.jvp(lambda x: call(x, *weights), (x,), (torch.ones_like(x),))[1].square().sum(),)
        return (torch.func.grad(lambda x: call(x, *weights).square().sum())(x).square().sum(),)

    program = xla_torch.from_torch(model, *_moving([x, *weights]))
    torch.testing.assert_close(program(x, *weights), model(x, *weights))
    torch.testing.assert_close(_gradients(program, [x, *weights]), _gradients(model, [x, *weights]))


def test_each_operator_that_torch_decomposes_below_autograd_has_a_row_or_another_test():
    # A kernel in Python stands in for autograd's there, and computes what torch wrote twice: that of one loss is wrong.
    packets = {operator.overloadpacket.__name__ for operator in decomposition_table
               if isinstance(operator, torch_private.Operator) and torch._C.DispatchKey.Autograd in operator.py_kernels}
    kinds = ("upsample", "_upsample", "lstm", "gru", "rnn", "dropout", "native_batch_norm", "cudnn_batch_norm")
    assert {name for name in packets if not name.startswith(kinds)} == {
        "hardshrink", "softshrink", "multi_margin_loss", "multilabel_margin_loss_forward"}


OF_OTHER_DEVICES = ("cudnn", "miopen", "mkldnn", "mps", "_flash_attention", "_efficient_attention", "_thnn_fused",
                    "batch_norm_backward_", "max_pool2d_backward", "_slow_conv2d", "convolution_backward_overrideable")
OF_OTHER_LAYOUTS = ("_nested", "_sparse", "linear_backward", "matmul_backward")
WITHOUT_A_FORWARD = ("_ctc_loss_backward", "_fake_quantize_learnable", "_upsample_lanczos2d_aa", "glu_backward_jvp")


def test_gradients_without_a_rule_are_those_of_other_devices_and_layouts_or_of_operators_without_one():
    left = [name for name in _gradient_operators() if not any(part in name for part in (
        *OF_OTHER_DEVICES, *OF_OTHER_LAYOUTS, *WITHOUT_A_FORWARD))]
    assert left == []


def _gradient_operators() -> list[str]:
    """Those of torch that nothing is known of."""
    known = {*operator_decompositions()[0], *torch_ways_back.rows()}
    left = []
    for name in torch._C._dispatch_get_all_op_names():
        packet, _, overload = name.removeprefix("aten::").partition(".")
        operator = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
        if not name.startswith("aten::") or "_backward" not in name or operator is None or operator._schema.is_mutable:
            continue
        has_rule = f"{packet}.{overload or 'default'}" in RULES or operator in known
        if not has_rule and not torch_private.is_composite(operator):
            left.append(packet)
    return left
