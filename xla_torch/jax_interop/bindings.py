"""jax and jaxlib, which are optional: each of their modules is imported when something in it is first asked for."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
from typing import Any

from ..core.errors import MissingDependency
from ..core.versions import Window

JAX = Window("jax", oldest=(0, 10, 2), newest=(0, 12))
"""Of jaxlib as well, which has the same versions."""


class OptionalModule:
    """A module of a library that may not be installed. Its names are asked of it as of the module itself."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(_imported(self._name), name)


@functools.cache
def _imported(name: str) -> Any:
    return importlib.import_module(name)


def require(library: str, what: str, instead: str = "", extra: str = "jax") -> None:
    """Raise MissingDependency, which names `what` needs it, the `extra` that brings it and what to do `instead`, where a library
    is not installed or too old."""
    try:
        importlib.import_module(library)
    except ImportError as error:
        raise MissingDependency(f"{what} needs {library}", got=error,
                                expected=f"{library} 0.12 or newer" if extra == "flax" else str(JAX),
                                hint=f"pip install 'xla_torch[{extra}]'{instead}") from None
    check_jax()


@functools.cache
def check_jax() -> None:
    """Once for each process: jaxlib is what differs, and jax refuses one that is older than itself."""
    JAX.check(importlib.metadata.version("jaxlib"))


jax: Any = OptionalModule("jax")
jax_core: Any = OptionalModule("jax.extend.core")
