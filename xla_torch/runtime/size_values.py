"""Integer arguments of a program whose values are sizes inside it."""

from __future__ import annotations

import math

import numpy as np
import torch

from ..core.shape import Shape
from ..lowering import numerics
from ..storage.dtypes import type_from_torch

_SHORT = 64
"""The most elements of an argument that may hold sizes."""


def is_size(shape: Shape) -> bool:
    """Whether an argument of this shape may be a size."""
    return shape.is_array and shape.is_static and shape.rank < 2 and shape.element_type.is_integral and (
        shape.element_count <= _SHORT)


def size_value(argument: torch.Tensor | np.ndarray, rank: int) -> bytes | None:
    """The bytes of a short integer array of at most this rank, None for anything else."""
    if argument.ndim > rank or math.prod(argument.shape) > _SHORT:
        return None
    if isinstance(argument, torch.Tensor):
        kind = type_from_torch(argument.dtype)
        if kind is None or not kind.is_integral:
            return None
        argument = numerics.numpy_from_storage(numerics.to_storage(argument, kind), kind)
    return argument.tobytes() if argument.dtype.kind in "iu" else None
