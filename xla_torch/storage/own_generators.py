"""Random generators that a model makes and seeds itself: they draw the same in each call, so that is a constant."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from ..core.errors import UnsupportedError
from .torch_private import private, pytree

_without_modes: Callable[[], Any] = private(torch, "utils._python_dispatch._disable_current_modes")
_Generator = torch.Generator


class _IsGenerator(type(_Generator)):
    def __instancecheck__(cls, instance: Any) -> bool:
        return type.__instancecheck__(_Generator, instance)


class _Own(_Generator, metaclass=_IsGenerator):
    """A generator that was made while a model is traced."""

    is_seeded = True

    def seed(self) -> int:
        self.is_seeded = False
        return super().seed()


@contextlib.contextmanager
def noted() -> Iterator[None]:
    """A block in which generators that are made are known by their class."""
    torch.Generator = _Own  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    finally:
        torch.Generator = _Generator  # pyright: ignore[reportAttributeAccessIssue]


def drawn(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What a function draws of a generator. Raises UnsupportedError unless the model made and seeded it, or where the numbers
    depend on a tensor."""
    generator, name = kwargs["generator"], getattr(func, "__name__", str(func))
    if type(generator) is not _Own or not generator.is_seeded:
        raise UnsupportedError("a random generator from outside of the model is not supported", subject=name, got=generator,
                               expected="a torch.Generator that the model makes and seeds, whose numbers become constants",
                               hint="draw from torch's own generator, or pass the numbers as an argument")
    tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    writes = name.endswith("_") and len(tensors) == 1 and tensors[0] is args[0]
    if tensors and not writes:
        raise UnsupportedError("numbers of a generator depend on a tensor", subject=name, expected="numbers as parameters",
                               hint="draw standard numbers, and compute with them")
    with _without_modes(), torch.no_grad():
        if not writes:
            return func(*args, **kwargs)
        found = func(torch.empty(args[0].shape, dtype=args[0].dtype), *args[1:], **kwargs)
    return args[0].copy_(found)
