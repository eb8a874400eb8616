"""A region that works on arrays inside, for all elements of its operands at once."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch

Tensors = tuple[torch.Tensor, ...]
Region = Callable[..., Tensors]


def for_each_element(region: Region, arguments: Tensors) -> Tensors:
    """A region of scalars that works on arrays inside, for each element of `arguments`, which broadcast.

    All elements are mapped at once (torch.vmap), unless something inside must read its data: a loop, a branch, a scatter
    with any combiner. Then they go one by one.
    """
    arguments = tuple(torch.broadcast_tensors(*arguments))
    dims = arguments[0].shape
    flat = [a.reshape(-1) for a in arguments]
    with warnings.catch_warnings():
        # Torch warns of ops that it maps by a loop of its own.
        warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
        try:
            results = torch.vmap(region)(*flat)
        except RuntimeError:
            each = [region(*elements) for elements in zip(*flat, strict=True)]
            results = tuple(torch.stack(parts) for parts in zip(*each, strict=True))
    return tuple(r.reshape(dims) for r in results)
