"""Steps: what is made of a computation by an entry point, whatever kind of computation it is."""

from __future__ import annotations

import abc
import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import torch

from .. import stablehlo
from ..core.errors import InvalidArgument

Facts: TypeAlias = "Sequence[stablehlo.convert.Fact]"

OfArguments = Callable[["Step", Facts, int], Facts]
"""From what is known of the arguments of a derived program, and how many the one that it was derived from takes, to what is known
of that one's."""

OverTrees = Callable[[Any, "Step"], Any]
"""From a function over trees and a step to the function over trees that it makes."""


class Derivable(abc.ABC):
    """What steps make something of: an `XlaComputation`, of any kind."""

    @abc.abstractmethod
    def derived(self, step: Step) -> Any:
        """What a step makes of it."""


def require_computation(value: Any, subject: str) -> None:
    """Raise InvalidArgument unless `value` is a program."""
    if not isinstance(value, Derivable):
        hint = ""
        if isinstance(value, torch.nn.Module) and hasattr(value, "computation"):
            hint = "pass the computation of this module, which takes the weights as arguments: module.computation"
        elif isinstance(value, torch.nn.Module):
            hint = "convert the module with from_torch(module, *arguments)"
        elif callable(value):
            hint = "trace a JAX function with from_jax(function, *arguments); torch.func differentiates a torch function"
        raise InvalidArgument("not a computation", subject=subject, got=type(value).__name__,
                              expected="an XlaComputation (of load, from_jax or XlaBuilder.build())", hint=hint)


def same_arguments(step: Step, facts: Facts, count: int) -> Facts:
    """The derived program takes the same arguments, and perhaps more behind them."""
    return facts[:count]


def same_trees(function: Any, step: Step) -> Any:
    """The derived function takes and gives the same trees."""
    return function.with_computation(step(function.computation))


@dataclasses.dataclass(frozen=True)
class Step:
    """What is made of a computation: ``function(computation, **given)``, where `function` is an entry point."""

    function: Callable[..., Any]
    given: Mapping[str, Any]
    of_arguments: OfArguments = same_arguments
    over_trees: OverTrees = same_trees

    def __call__(self, computation: Any, **otherwise: Any) -> Any:
        """The same of any computation, with other arguments."""
        return self.function(computation, **{**self.given, **otherwise})

    def of_one(self, computation: Any) -> Any:
        """What it makes of one flat program."""
        return inspect.unwrap(self.function)(computation, **self.given)


F = TypeVar("F", bound=Callable[..., Any])


def entry_point(of_arguments: OfArguments = same_arguments, over_trees: OverTrees = same_trees) -> Callable[[F], F]:
    """Decorate a function from one flat program to another, so that it takes every kind of computation.

    Programs of unknown sizes and functions over pytrees return the same kind; `over_trees` gives the result's pytrees. Raises
    InvalidArgument if the first argument is not a computation.
    """

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        subject = next(iter(signature.parameters))

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            given = dict(bound.arguments)
            computation = given.pop(subject)
            require_computation(computation, function.__name__)
            return computation.derived(Step(call, given, of_arguments, over_trees))

        return call  # pyright: ignore[reportReturnType]

    return decorate
