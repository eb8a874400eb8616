"""Raise the errors of xla_torch as XlaRuntimeErrors, for scripts of XLA's client library."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from ..core.errors import XlaError

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")


class XlaRuntimeError(RuntimeError):
    """What XLA's client library raises. Here each error is one of `xla_torch.errors`, too, and says what was got and expected."""


@functools.cache
def _both(kind: type[XlaError]) -> type[XlaError]:
    return type(kind.__name__, (kind, XlaRuntimeError), {"__module__": kind.__module__, "__doc__": kind.__doc__})


def raising(function: Callable[P, R]) -> Callable[P, R]:
    """Let the errors that a function raises be XlaRuntimeErrors as well."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except XlaError as error:
            if not isinstance(error, XlaRuntimeError):
                error.__class__ = _both(type(error))
            raise

    return call


def raising_methods(cls: type[C]) -> type[C]:
    """Decorate a class: the errors of its methods are XlaRuntimeErrors as well."""
    for name, value in list(vars(cls).items()):
        if isinstance(value, (staticmethod, classmethod)):
            setattr(cls, name, type(value)(raising(value.__func__)))
        elif isinstance(value, property):
            setattr(cls, name, property(raising(value.fget), doc=value.__doc__))  # pyright: ignore[reportArgumentType]
        elif callable(value) and not isinstance(value, type):
            setattr(cls, name, raising(value))
    return cls
