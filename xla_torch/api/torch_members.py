"""What `from_torch` returns: a module as a computation over trees, or a family of those that were traced with values."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ..core.errors import ExecutionError, InvalidArgument, UnsupportedError
from ..pytree.signatures import Signature
from ..pytree.structure import Leaves, Structure
from ..runtime.computation import XlaComputation
from ..storage import torch_private
from .torch_exporting import with_weights
from .torch_verified import own_random_numbers
from .tree_function import TreeFunction


class TorchFunction(TreeFunction):
    """A PyTorch module or function as a computation over trees. `from_torch` returns one.

    `weights` are the module's parameters and buffers, in dicts as their names say (``weights["layer1"]["0"]["bias"]``): the first
    argument, unless they are constants of the program. `replaced` are the names of the buffers that a call replaces: where there
    are any, the result is a pair of the module's own and a tree of what they are afterwards. `unsaved` are those that a
    `state_dict` leaves out.
    """

    def __init__(self, computation: XlaComputation, in_tree: Structure, out_tree: Structure, signature: Signature,
                 places: Sequence[int], weights: Mapping[str, Any], buffers: Sequence[str] = (), replaced: Sequence[str] = (),
                 unsaved: Sequence[str] = ()):
        super().__init__(computation, in_tree, out_tree, signature, places, narrows=False)
        self.weights, self.buffers, self.replaced, self.unsaved = weights, tuple(buffers), tuple(replaced), tuple(unsaved)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "weights": torch_private.picklable(self.weights)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, weights=torch_private.unpickled(state["weights"]))


class RetracedFunction(TorchFunction):
    """A family of programs that were traced with values of examples. A call runs the member whose assumptions hold, or traces
    the next one. All else that is asked of the function is asked of the first member. Members that write into fewer buffers
    return the others as they were given."""

    def __init__(self, first: TorchFunction, given: Any, make: Callable[..., TorchFunction]):
        vars(self).update(vars(first))
        self._given, self._make, self._first, self.members = given, make, first, [first]

    def with_narrowing(self, narrows: bool) -> TreeFunction:
        return self if narrows is self.narrows else super().with_narrowing(narrows)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling() or torch_private.is_traced_symbolically():
            return self._first(*args, **kwargs)
        held, others, named = self._parted(args, kwargs)
        broken = None
        for member in self.members:
            try:
                return self._called(member, held, others, named)
            except ExecutionError as error:  # also sizes that torch asserts
                broken = error
        if torch_private.transforms_are_active() and broken is not None:
            broken.hint = "call the function with such values outside of torch.func first, which traces their program"
            raise broken
        given = with_weights(self._given, held) if self.weights else self._given
        with own_random_numbers(others, named):  # the state of its random numbers is the first one's
            made = self._make(given, *torch_private.pytree.tree_map_only(np.ndarray, torch.as_tensor, (others, named)))
        self.members = [made, *self.members[:_MEMBERS - 1]]
        return self._called(made, held, others, named)

    def _parted(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """The weights of a call, and its other arguments."""
        if not self.weights:
            return {}, args, dict(kwargs)
        others, named = args, dict(kwargs)
        if "weights" in named:
            held = named.pop("weights")
        elif args:
            held, *rest = args
            others = tuple(rest)
        else:
            raise InvalidArgument("no weights", subject=self.name, expected="the weights as the first argument")
        return self.argument(0).unflatten(held) if isinstance(held, Leaves) else held, others, named

    def _called(self, member: TorchFunction, held: Any, others: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        found = member(*([_fitting(held, member.weights)] if member.weights else []), *others, **named)
        if member.replaced == self.replaced:
            return found
        if not set(member.replaced) <= set(self.replaced):
            raise UnsupportedError("another program of the family writes into buffers that the first one leaves alone",
                                   subject="from_torch", got=", ".join(member.replaced),
                                   expected=", ".join(self.replaced) or "no buffers",
                                   hint="convert with an example for which the model writes into all of them")
        result, after = found if member.replaced else (found, {})
        return result, _overlaid(self._buffers(), held, after)

    def _buffers(self) -> dict[str, Any]:
        """The buffers that the first member replaces, in dicts by name."""
        tree: dict[str, Any] = {}
        for name in self.replaced:
            *groups, last = name.split(".")
            functools.reduce(lambda inner, group: inner.setdefault(group, {}), groups, tree)[last] = None
        return tree


_MEMBERS = 64


def _fitting(held: Any, own: Any) -> Any:
    """What a member takes of the weights of another."""
    if not isinstance(own, Mapping) or not isinstance(held, Mapping):
        return held
    if missing := own.keys() - held.keys():
        raise UnsupportedError("another program of the family has weights that the first one lacks", subject="from_torch",
                               got=", ".join(sorted(missing)), hint="convert with an example for which the model reads them")
    return {name: _fitting(held[name], part) for name, part in own.items()}


def _overlaid(names: Any, held: Any, after: Any) -> Any:
    """Buffers after a call: as it left them, or as they were given."""
    if not isinstance(names, dict):
        return held if after is None else after
    return {name: _overlaid(inner, held[name], None if after is None else after.get(name)) for name, inner in names.items()}
