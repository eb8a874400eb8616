"""Operators of torchvision; where it is not installed, by operators of the same names, which say what its do."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import xla_torch
from support.aten_rows import floats

try:
    import torchvision.ops  # noqa: F401  # pyright: ignore[reportMissingImports]
except (ImportError, RuntimeError):  # not there, or built for another torch
    _OPS = torch.library.Library("torchvision", "DEF")
    _OPS.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

    def _one_by_one(dets: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
        at, kept = scores.argsort(descending=True, stable=True).tolist(), list[int]()
        area = (dets[:, 2] - dets[:, 0]) * (dets[:, 3] - dets[:, 1])
        for k in at:
            low, high = torch.maximum(dets[k, :2], dets[kept, :2]), torch.minimum(dets[k, 2:], dets[kept, 2:])
            both = (high - low).clamp(min=0).prod(-1)
            share = both / (area[k] + area[kept] - both)
            if not any(one > iou_threshold for one in share.tolist()):
                kept.append(k)
        return torch.tensor(kept, dtype=torch.int64)

    _OPS.impl("nms", _one_by_one, "CPU")

    @torch.library.register_fake("torchvision::nms")
    def _(dets: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
        return dets.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.int64)


def boxes(count: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    corners = floats(count, 2, dtype=dtype)
    return torch.cat([corners, corners + 1 + floats(count, 2, dtype=dtype).abs().flip(0)], 1)


def kept(dets: torch.Tensor, scores: torch.Tensor, threshold: float = 0.3) -> torch.Tensor:
    return torch.ops.torchvision.nms(dets, scores, threshold)


STAIRS = torch.stack([torch.tensor([k, 0.0, k + 2, 1]) for k in range(12)])
"""Each covers a third of the next: whether one is kept depends on all before."""

CALLS: dict[str, tuple[Any, list[torch.Tensor]]] = {
    "boxes": (kept, [boxes(30), floats(30)]),
    "double": (kept, [boxes(30, torch.float64), floats(30, dtype=torch.float64)]),
    "a chain": (kept, [STAIRS, -torch.arange(12.0)]),
    "equal scores": (kept, [STAIRS, torch.zeros(12)]),
    "a share that is the threshold": (lambda d, s: kept(d, s, 1 / 3), [STAIRS, torch.zeros(12)]),
    "all are kept": (lambda d, s: kept(d, s, 1.0), [boxes(9), floats(9)]),
    "empty boxes": (kept, [torch.zeros(3, 4), floats(3)]),
    "one box": (kept, [boxes(1), floats(1)]),
    "what is kept of it": (lambda d, s: (d[kept(d, s)] * 2, s[kept(d, s)].sum()), [boxes(30), floats(30)]),
    "of boxes that a mask chose": (lambda d, s: d[s > 0][kept(d[s > 0], s[s > 0])], [boxes(30), floats(30)]),
}


@pytest.mark.parametrize("name", CALLS)
def test_boxes_that_cover_others_are_those_of_torchvision(name: str):
    call, arguments = CALLS[name]
    torch.testing.assert_close(xla_torch.from_torch(call, *arguments)(*arguments), call(*arguments))


def test_other_boxes_have_another_number_kept():
    program = xla_torch.from_torch(kept, boxes(30), floats(30))
    for threshold in (1.0, 4.0):
        scaled = boxes(30) * torch.tensor([threshold, threshold, 1, 1])
        torch.testing.assert_close(program(scaled, floats(30)), kept(scaled, floats(30)))


def test_a_gradient_goes_to_the_boxes_that_are_kept():
    def loss(d: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        return d[kept(d.detach(), s)].square().sum()

    expected, found = (boxes(30).requires_grad_() for _ in range(2))
    loss(expected, floats(30)).backward()
    xla_torch.from_torch(loss, boxes(30), floats(30))(found, floats(30)).backward()
    torch.testing.assert_close(found.grad, expected.grad)
