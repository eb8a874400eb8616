"""Python's `max` and `min` of tensors while torch.export traces a model, which has `torch.maximum` in their place.

Python chooses the first of equal values and takes no NaN for greater than a number. Gradients go to the chosen value alone.
"""

from __future__ import annotations

import contextlib
import importlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from .replaced_attributes import replacing
from .torch_private import private

_tracing: Any = importlib.import_module("torch._export.non_strict_utils")
_tensor_min_max: Callable[..., Any] = private(_tracing, "_tensor_min_max")


@contextlib.contextmanager
def as_python() -> Iterator[None]:
    """A block in which the `max` and `min` that torch.export puts in the place of Python's give what Python's do."""
    with replacing() as put:
        put(_tracing, "_tensor_min_max", _extreme)
        yield


def _extreme(*given: Any, real_callable: Callable[..., Any], tensor_callable: Any, **options: Any) -> Any:
    items = list(given[0]) if len(given) == 1 and hasattr(given[0], "__iter__") else list(given)
    if not any(isinstance(one, torch.Tensor) for one in items):
        again = (items,) if len(given) == 1 else given  # an iterator is used up
        return _tensor_min_max(*again, real_callable=real_callable, tensor_callable=tensor_callable, **options)
    if options or (dtype := _common_type(items)) is None:
        return real_callable(items, **options)
    return _chosen(torch.stack([torch.as_tensor(one, dtype=dtype) for one in items]), tensor_callable is torch.maximum)


def _common_type(items: Sequence[Any]) -> torch.dtype | None:
    """The dtype of all items, if the result has it whichever is chosen."""
    tensors = [one for one in items if isinstance(one, torch.Tensor)]
    dtype, shape = tensors[0].dtype, tensors[0].shape
    numbers = [one for one in items if not isinstance(one, torch.Tensor)]
    if dtype is torch.bool or dtype.is_complex or shape or any(t.dtype is not dtype or t.shape != shape for t in tensors):
        return None
    of_its_kind = (int, torch.SymInt) + ((float, torch.SymFloat) if dtype.is_floating_point else ())
    return dtype if all(isinstance(one, of_its_kind) for one in numbers) else None


def _chosen(items: torch.Tensor, is_greatest: bool) -> torch.Tensor:
    """The first greatest or least item, or the first item if that is NaN."""
    levels = items.detach()
    if items.is_floating_point():
        worst = -math.inf if is_greatest else math.inf
        levels = torch.where(levels.isnan(), worst, levels)
    place = levels.argmax(0) if is_greatest else levels.argmin(0)
    if items.is_floating_point():
        place = torch.where(items[0].isnan(), 0, place)
    return items.index_select(0, place.reshape(1)).squeeze(0)
