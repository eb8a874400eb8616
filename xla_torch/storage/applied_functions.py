"""Which classes of torch.autograd.Function a model applies, and whether it hooks gradients: torch.export keeps what is done
forwards, and drops what is done backwards. Copies of parameters get their hooks here."""

from __future__ import annotations

import contextlib
import inspect
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from ..core import forks
from ..core.errors import XlaWarning
from .torch_private import private

_Function: Any = torch.autograd.Function
_Base: Any = private(torch, "autograd.function._SingleLevelFunction")
_Hook: Any = private(torch.nn.modules, "_functions.BackwardHookFunction")
_hook = torch.Tensor.register_hook
_applying = forks.Lock()


class _Running(threading.local):
    """How many functions the thread is running."""

    count = 0


_running = _Running()


def is_applying() -> bool:
    """Whether this thread runs the forward of a torch.autograd.Function, whose backward says its derivatives whatever it does."""
    return _running.count > 0


def functions_applied(run: Callable[[], Any]) -> tuple[Any, tuple[str, ...]]:
    """What `run` gives, and the names of the classes of torch.autograd.Function, torch's own apart, that it applies in this
    thread, and of torch's functions by which it hooks gradients."""
    names: dict[str, None] = {}
    with _applying:
        own, of_base, thread = vars(_Function)["apply"], vars(_Base).get("apply"), threading.get_ident()

        def noting(apply: Any) -> Any:
            def noted(cls: type, *args: Any, **kwargs: Any) -> Any:
                if threading.get_ident() != thread or (cls is not _Hook and cls.__module__.startswith("torch.")):
                    return apply.__get__(None, cls)(*args, **kwargs)
                names[cls.__qualname__] = None
                _running.count += 1
                try:
                    return apply.__get__(None, cls)(*args, **kwargs)
                finally:
                    _running.count -= 1

            return classmethod(noted)

        # A model that keeps `Function.apply` as a function does not ask the class for it, but comes to its base.
        _Function.apply, _Base.apply = noting(own), noting(inspect.getattr_static(_Base, "apply"))

        def hooked(self: torch.Tensor, hook: Callable[..., Any]) -> Any:
            if threading.get_ident() == thread:
                names["Tensor.register_hook"] = None
            return _hook(self, hook)

        torch.Tensor.register_hook = hooked
        try:
            return run(), tuple(names)
        finally:
            _Function.apply, torch.Tensor.register_hook = own, _hook
            if of_base is None:
                del _Base.apply
            else:
                _Base.apply = of_base


def hooks_of_nodes(model: Any) -> tuple[str, ...]:
    """The functions of torch by which a module hooks nodes of autograd, which only its call does, and no class of a Function."""
    modules = model.modules() if isinstance(model, torch.nn.Module) else ()
    has_old = any(_hooks(module) and not private(module, "_is_full_backward_hook") for module in modules)
    return ("Module.register_backward_hook",) if has_old else ()


def hooks_of(module: torch.nn.Module) -> dict[str, list[Any]]:
    """The hooks of a module's parameters, by name."""
    return {name: [*hooks.values()] for name, held in module.named_parameters() if (hooks := _hooks(held))}


def _hooks(held: torch.Tensor | torch.nn.Module) -> dict[Any, Any]:
    return private(held, "_backward_hooks") or {}


@contextlib.contextmanager
def hooking(module: torch.nn.Module, hooks: Mapping[str, Iterable[Any]]) -> Iterator[None]:
    """While it is on, tensors in the places of a module's parameters have these hooks: gradients within the model have them."""
    held = {name: tensor for name, tensor in module.named_parameters() if tensor.requires_grad}
    handles = [_hook(held[name], hook) for name, own in hooks.items() if name in held for hook in own]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def keep_hooks(given: Iterable[tuple[str, torch.Tensor]], copies: Mapping[str, torch.Tensor]) -> None:
    """Register the hooks of tensors on their copies, and warn of those that only the tensors themselves can have."""
    lost: dict[str, None] = {}
    for name, tensor in given:
        copy = copies.get(name, tensor)
        if copy is tensor:
            continue
        for hook in _hooks(tensor).values():
            if copy.requires_grad and not _is_of_several(hook):
                copy.register_hook(hook)
            else:
                lost[f"{'register_multi_grad_hook' if _is_of_several(hook) else 'register_hook'} of {name}"] = None
        if private(tensor, "_post_accumulate_grad_hooks"):
            lost[f"register_post_accumulate_grad_hook of {name}"] = None
    if lost:
        warnings.warn(f"from_torch: hooks of the model are not kept: {', '.join(lost)}. Register them on the new module's "
                      "parameters", XlaWarning, stacklevel=5)


def _is_of_several(hook: Any) -> bool:
    """Whether a hook is one of several that belong together: they wait for nodes of autograd of the tensors themselves."""
    code = getattr(hook, "__code__", None)
    return code is not None and code.co_filename == torch.autograd.graph.__file__
