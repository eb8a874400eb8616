"""Which classes of torch.autograd.Function a model applies: torch.export keeps their forward and drops their backward."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from ..core import forks
from .torch_private import private

_Function: Any = torch.autograd.Function
_Base: Any = private(torch, "autograd.function._SingleLevelFunction")
_applying = forks.Lock()


def functions_applied(run: Callable[[], Any]) -> tuple[Any, tuple[str, ...]]:
    """What `run` gives, and the names of the classes of torch.autograd.Function, torch's own apart, that it applies in this
    thread."""
    names: dict[str, None] = {}
    with _applying:
        apply, below, thread = _Function.__dict__["apply"], _Base.__dict__.get("apply"), threading.get_ident()

        def note(cls: type) -> None:
            if threading.get_ident() == thread and not cls.__module__.startswith("torch."):
                names[cls.__qualname__] = None

        def noted(cls: type, *args: Any, **kwargs: Any) -> Any:
            note(cls)
            return apply.__get__(None, cls)(*args, **kwargs)

        def noted_below(cls: type, *args: Any, **kwargs: Any) -> Any:
            note(cls)
            inner: Any = below.__get__(None, cls) if below is not None else getattr(super(_Base, cls), "apply")  # noqa: B009
            return inner(*args, **kwargs)

        # A model that keeps `Function.apply` as a function does not ask the class for it, but comes to its base.
        _Function.apply, _Base.apply = classmethod(noted), classmethod(noted_below)
        try:
            return run(), tuple(names)
        finally:
            _Function.apply = apply
            if below is None:
                del _Base.apply
            else:
                _Base.apply = below
