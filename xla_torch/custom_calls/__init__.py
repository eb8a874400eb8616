"""What custom calls mean: for each known target, a function that builds the computation of the call's operands which gives what
the call gives. A file for each library; `calls` has what they share. They are read when a custom call is first met."""

from __future__ import annotations

import functools
import importlib

from .calls import Call, Meaning

__all__ = ["Call", "Meaning", "meaning_of"]

_LIBRARIES = ("attention", "callbacks", "convolutions", "jax_kernels", "lapack", "normalization", "onednn", "products", "solvers",
              "sparse", "xla")


def meaning_of(target: str) -> Meaning | None:
    """What a custom call's target means; None where that is not known, and for no target."""
    return _meanings().get(target) if target else None


@functools.cache
def _meanings() -> dict[str, Meaning]:
    """The meanings of all libraries, by target."""
    libraries = (importlib.import_module(f".{name}", __name__) for name in _LIBRARIES)
    return {target: meaning for library in libraries for target, meaning in library.MEANINGS.items()}
