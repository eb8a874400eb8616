"""What torch.compile sees of a program: one call, which it puts into its graph as it is. What then makes a graph of torch's
operators of it (AOTAutograd for most backends, torch.export) goes through the call, and through the program's own way back.

(`xla_torch.compile` is the way to have the program itself compiled.)
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch

from ..storage.torch_private import compiler, pytree


class Called(Protocol):
    """What is one call in graphs. It is called by its name there, as graphs hold texts, numbers and tensors only."""

    graph_name: str

    def __call__(self, *arguments: Any, **named: Any) -> Any: ...

    def in_graph(self, *arguments: Any, **named: Any) -> Any:
        """The result as arrays, or tuples of them."""

    def in_form(self, result: Any) -> Any:
        """Of that, what a call gives."""

    def reason_not_capturable(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> str:
        """Why a call cannot be part of a graph; empty where it can. In the place of each tensor stands whether it is
        differentiated."""
        ...


_numbers = itertools.count()
_called: weakref.WeakValueDictionary[str, Called] = weakref.WeakValueDictionary()


def graph_name(owner: Called) -> str:
    """A name for what is called in graphs."""
    name = f"xla_{next(_numbers)}"
    _called[name] = owner
    return name


def _call(owner: Called, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """The call in code that torch.compile looks at. What cannot be part of a graph stays apart from it: an error says why where
    the whole must be one graph."""
    why = reason_not_capturable(owner.graph_name, *pytree.tree_map(_differentiated, (tuple(arguments), dict(named))))
    if why:
        graph_break(why)
        return apart(owner, arguments, named)
    return owner.in_form(one_call(owner.graph_name, *arguments, **named))


def _differentiated(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return torch.is_grad_enabled() and leaf.requires_grad
    return leaf if isinstance(leaf, (int, float, str)) else None


def _one_call(name: str, *arguments: Any, **named: Any) -> Any:
    return _called[name].in_graph(*arguments, **named)


def _reason_not_capturable(name: str, arguments: Sequence[Any], named: Mapping[str, Any]) -> str:
    return _called[name].reason_not_capturable(arguments, named)


def _apart(owner: Called, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
    return owner(*arguments, **named)


def _graph_break(why: str) -> None:
    """What torch's own takes the place of."""


one_call, reason_not_capturable, apart, graph_break = _one_call, _reason_not_capturable, _apart, _graph_break


def __getattr__(name: str) -> Any:
    """``called(owner, arguments, named)`` is the call. What torch.compile has to know of these functions it is told when it first
    looks at code that calls a program: this brings in torch's compiler, which takes longer to import than all the rest."""
    if name != "called":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals().update(one_call=compiler().allow_in_graph(_one_call),
                     reason_not_capturable=compiler().assume_constant_result(_reason_not_capturable),
                     apart=compiler().disable(_apart), graph_break=compiler().graph_break, called=_call)
    return _call
