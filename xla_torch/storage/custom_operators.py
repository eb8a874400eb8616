"""Operators of `torch.library.custom_op` as their function in Python, with the backward that is registered for them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from .torch_private import Operator, private, pytree

_Packet: Any = private(torch, "_ops.OpOverloadPacket")
_definition_of: Callable[[Any], Any] = private(torch, "_library.custom_ops._maybe_get_opdef")


def in_python(function: Any) -> Callable[..., Any] | None:
    """What such an operator calls, differentiated as it says. None for any other function."""
    operator = getattr(function, "default", None) if isinstance(function, _Packet) else function
    definition = _definition_of(operator) if isinstance(operator, Operator) else None
    if definition is None:
        return None
    return lambda *args, **kwargs: _called(definition, args, kwargs)


def _called(definition: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    function, backward, setup, name = (private(definition, path) for path in (
        "_init_fn", "_backward_fn", "_setup_context_fn", "_qualname"))
    given = inspect.signature(function).bind(*args, **kwargs)
    given.apply_defaults()
    if backward is None:
        return function(*given.args, **given.kwargs)
    leaves, tree = pytree.tree_flatten(given.args)
    results: list[Any] = []

    def forward(ctx: Any, *tensors: Any) -> Any:
        inputs = pytree.tree_unflatten(tensors, tree)
        found = function(*inputs, **given.kwargs)
        if setup is not None:
            by_keyword = {"keyword_only_inputs": given.kwargs} if given.kwargs else {}
            setup(ctx=ctx, inputs=inputs, output=found, **by_keyword)
        flat, form = pytree.tree_flatten(found)
        results[:] = [form]
        return tuple(flat)

    def back(ctx: Any, *cotangents: Any) -> Any:
        needs, of_results = ctx.needs_input_grad, pytree.tree_unflatten(cotangents, results[0])
        ctx.needs_input_grad = pytree.tree_unflatten(needs, tree)
        try:
            found = backward(ctx, *(of_results if isinstance(of_results, tuple) else (of_results,)))
        finally:
            ctx.needs_input_grad = needs
        found = found if isinstance(found, tuple) else (found,)
        return tuple(g for arg, of_arg in zip(given.args, found, strict=True) for g in _of_leaves(arg, of_arg))

    opened: Any = type(name, (torch.autograd.Function,), {"forward": staticmethod(forward), "backward": staticmethod(back)})
    return pytree.tree_unflatten(opened.apply(*leaves), results[0])


def _of_leaves(argument: Any, gradient: Any) -> Sequence[Any]:
    """The gradients of the tensors of an argument, which may be a list of them."""
    return gradient if isinstance(gradient, (list, tuple)) else [gradient] * len(pytree.tree_leaves(argument))
