"""Programs in graphs of torch.fx.symbolic_trace: what runs one is one call of a module there, as the modules of torch.nn are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.fx
from torch.fx.node import map_aggregate

from ..core.errors import UnsupportedError


class Called(torch.nn.Module):
    """What graphs hold of a program that is called by itself."""

    def __init__(self, computation: Callable[..., Any]):
        super().__init__()
        self.computation = computation

    def forward(self, *arguments: Any, **named: Any) -> Any:
        """The program's result."""
        return self.computation(*arguments, **named)


def symbolic_call(owner: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """The call as a call in the graph that torch.fx makes of the code around it; None where no argument stands for a value of
    that graph. Raises UnsupportedError where there is no code around it."""
    found: list[Any] = []
    map_aggregate((arguments, named), lambda a: found.append(a.tracer) if isinstance(a, torch.fx.Proxy) else None)
    if not found:
        return None
    root: torch.nn.Module = found[0].root
    if owner is root:
        raise UnsupportedError("a program is one call in graphs of torch.fx, and this one stands alone", subject="symbolic_trace",
                               got=type(owner).__name__, hint="trace a module that calls it, or look at computation.lowered()")
    path = found[0].path_of_module(owner) if isinstance(owner, torch.nn.Module) else _kept(root, owner)
    return found[0].create_proxy("call_module", path, tuple(arguments), dict(named))


def _kept(root: torch.nn.Module, computation: Callable[..., Any]) -> str:
    """The name by which the graph holds a program. As torch.fx does with tensors, it is kept with the module that is traced,
    which does not count it among its modules."""
    held = {name: one for name, one in vars(root).items() if isinstance(one, Called)}
    name = next((name for name, one in held.items() if one.computation is computation), f"_xla_program{len(held)}")
    vars(root).setdefault(name, Called(computation))
    return name
