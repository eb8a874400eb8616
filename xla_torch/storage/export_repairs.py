"""What torch.export gets wrong in programs that eager torch runs, mended for as long as one is exported."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.fx

from .torch_private import private

_Fake: Any = private(importlib.import_module("torch._subclasses.fake_tensor"), "FakeTensor")
_lifting: Any = importlib.import_module("torch._export.passes.lift_constants_pass")
_unused: Callable[[torch.fx.Node], Any] = private(_lifting, "_unused_constant")
_Module: Any = torch.nn.Module
_apply: Callable[..., Any] = _Module._apply


@contextlib.contextmanager
def repaired() -> Iterator[None]:
    """A block in which torch.export takes constants without users and converts modules that the model makes. One at a time."""
    _lifting._unused_constant, _Module._apply = _without_user, _converted
    try:
        yield
    finally:
        _lifting._unused_constant, _Module._apply = _unused, _apply


def _without_user(node: torch.fx.Node) -> Any:
    """As torch's, which asks for the first user also where there is none."""
    return _unused(node) if node.users else [node]


def _converted(module: torch.nn.Module, fn: Callable[[torch.Tensor], torch.Tensor], *options: Any, **named: Any) -> Any:
    """As torch's, which would swap traced parameters with others in place, and cannot: the trace refers to them."""
    held: dict[str, Any] = {name: given for name, given in module._parameters.items() if isinstance(given, _Fake)}
    if not held:
        return _apply(module, fn, *options, **named)
    for name in held:
        module._parameters[name] = None
    try:
        _apply(module, fn, *options, **named)
    finally:
        module._parameters.update(held)
    for name, given in held.items():
        with torch.no_grad():
            found = fn(given)
        if found is not given:
            module._parameters[name] = torch.nn.Parameter(found, given.requires_grad)
    return module
