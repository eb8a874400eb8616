"""Kernels in Python that stand in for autograd's while torch traces, and compute something else: mended meanwhile."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .torch_private import private

_AUTOGRAD: Any = private(torch, "_C.DispatchKey.Autograd")
_MEAN, _SUM = 1, 2


def _multilabel_margin_loss(input: torch.Tensor, target: torch.Tensor, reduction: int) -> tuple[torch.Tensor, torch.Tensor]:
    """As the operator, to which targets behind the first negative one do not count. To torch's kernel they are class 0."""
    x, labels = torch.atleast_2d(input), torch.atleast_2d(target)
    classes = x.shape[1]
    place = torch.arange(classes, device=target.device)
    end = torch.where(labels < 0, place, classes).amin(-1, keepdim=True)
    given = place < end
    is_target = (place == torch.where(given, labels, -1)[:, :, None]).any(1)
    chosen = x.gather(-1, torch.where(given, labels, 0))
    short = 1 - chosen[:, :, None] + x[:, None, :]
    counts = given[:, :, None] & ~is_target[:, None, :] & (short > 0)
    loss = torch.where(counts, short, 0).sum((1, 2)) / classes
    loss = loss.mean() if reduction == _MEAN else loss.sum() if reduction == _SUM else loss.reshape(input.shape[:-1])
    return loss, is_target.to(input.dtype).reshape(target.shape)


_MENDED: dict[Any, Callable[..., Any]] = {torch.ops.aten.multilabel_margin_loss_forward.default: _multilabel_margin_loss}

_lock, _blocks = threading.Lock(), 0
_kernels: dict[Any, Callable[..., Any]] = {}


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """A block in which these kernels compute what the operators do, in all threads until the last such block ends."""
    _change(1)
    try:
        yield
    finally:
        _change(-1)


def _change(count: int) -> None:
    global _blocks
    with _lock:
        before, _blocks = _blocks, _blocks + count
        if bool(before) == bool(_blocks):
            return
        for operator in [op for op in _MENDED if _AUTOGRAD in op.py_kernels]:
            if _blocks:
                _kernels[operator] = operator.py_kernels[_AUTOGRAD]
            operator.py_kernels[_AUTOGRAD] = _MENDED[operator] if _blocks else _kernels.pop(operator)
            operator._dispatch_cache.clear()
