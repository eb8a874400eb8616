"""jax and jaxlib, which are optional: each of their modules is imported when something in it is first asked for."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from ..core.errors import MissingDependency


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
    is not installed."""
    try:
        importlib.import_module(library)
    except ImportError as error:
        raise MissingDependency(f"{what} needs {library}", got=error,
                                expected=f"{library} {'0.12' if extra == 'flax' else '0.10.2'} or newer",
                                hint=f"pip install 'xla_torch[{extra}]'{instead}") from None


jax: Any = OptionalModule("jax")
jax_core: Any = OptionalModule("jax.extend.core")
