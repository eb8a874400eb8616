"""Whether tensors are like those of an earlier call: one question to torch's C++ for all of them.

What a check in Python finds out about a tensor takes as long as a small op, and most calls of a program bring tensors of the same
class, dtype, device and sizes. Such checks are made once, and later calls are compared with what passed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .torch_private import tensor_guards

_CHANGES = 16
"""How often tensors of another kind are remembered in the place of the last ones: each time takes as long as some slow checks."""


def _never(*tensors: object) -> bool:
    return False


_PLAIN = (torch.Tensor, torch.nn.Parameter)


class KnownTensors:
    """The plain tensors and parameters that passed a slower check last, by class, dispatch keys, dtype, device, sizes and whether
    they require grad. Values `within` a program, which are dense, are compared by strides as well. Two arguments that are the
    same tensor are never known.

    >>> known, x = KnownTensors(), torch.ones(2, 3)
    >>> known.remember([x])
    >>> [known.needs_grad([t]) for t in (torch.zeros(2, 3), torch.zeros(3, 3), torch.zeros(2, 3).double())]
    [False, None, None]
    """

    __slots__ = ("_last", "_left", "_within")

    def __init__(self, within: bool = False):
        self._within, self._left = within, _CHANGES
        self._last: tuple[list[type], Callable[..., bool], bool] = ([], _never, False)  # one object, which threads see whole

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled without what it knows, which is of this process and thread."""
        return KnownTensors, (self._within,)

    def needs_grad(self, tensors: Sequence[Any]) -> bool | None:
        """Whether one of these requires grad; None where they are not known."""
        kinds, check, needs_grad = self._last
        if not self._within and ([type(t) for t in tensors] != kinds or True in [t.is_nested for t in tensors]):
            return None  # torch's C++ ends the process where a tensor cannot tell its sizes
        return needs_grad if check(*tensors) else None

    def remember(self, tensors: Sequence[torch.Tensor]) -> None:
        """From now on tensors like these are known."""
        kinds = [type(t) for t in tensors]
        if self._left and kinds and all(kind in _PLAIN for kind in kinds):
            self._left -= 1
            sizes = [list(t.shape) for t in tensors]
            strides = [list(t.stride()) if self._within else [None] * t.dim() for t in tensors]
            guards = tensor_guards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides)
            self._last = (kinds, guards.check, any(t.requires_grad for t in tensors))
