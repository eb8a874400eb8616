"""Which classes of torch.autograd.Function a model applies, and whether it hooks gradients: torch.export keeps what is done
forwards, and drops what is done backwards."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from typing import Any

import torch

from ..core import forks
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
