"""Modes that see the functions of torch that Python calls, in the bodies of loops and branches as well."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch
import torch.fx
from torch.overrides import TorchFunctionMode

from .torch_private import HigherOrderOperator, pytree

DETACHES = (torch.Tensor.detach, torch.detach, torch.Tensor.data.__get__)  # pyright: ignore[reportAttributeAccessIssue]
"""The functions that stop gradients. Below autograd torch 2.14 and newer write `alias` for them, so a mode must see the call."""


def on_tensors(change: Callable[[torch.Tensor], Any], result: Any) -> Any:
    """Change each tensor of what a function of torch returns. A torch.Size, of which pytree makes a tuple, stays."""
    return pytree.tree_map_only(torch.Tensor, change, result, is_leaf=lambda part: isinstance(part, torch.Size))


class FunctionMode(TorchFunctionMode):
    """A mode that stays on in the bodies of loops and branches, where torch turns it off."""

    def call(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Call a function of torch from `__torch_function__`."""
        if isinstance(function, HigherOrderOperator):
            args, kwargs = pytree.tree_map_only((torch.fx.GraphModule, types.FunctionType), self._on_in, (tuple(args), kwargs))
        return function(*args, **kwargs)

    def _on_in(self, body: Callable[..., Any]) -> Callable[..., Any]:
        call = torch.fx.Interpreter(body).run if isinstance(body, torch.fx.GraphModule) else body

        def run(*args: Any) -> Any:
            with self:
                return call(*args)

        return run
