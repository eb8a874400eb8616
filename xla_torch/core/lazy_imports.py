"""Modules and names that a package imports when they are first used, so that a program runs without what it does not need."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` (PEP 562) of a package that imports these modules on first use.

    `modules` has, for each module, the names that the package exports of it, separated by spaces. The module's own name, or
    none, exports the module itself. Type checkers see the same imports under ``if TYPE_CHECKING:``. Importers write
    ``from .. import package`` and ``package.module.name``: ``from ..package.module import name`` would import the module at once.
    """
    module_of = {name: module for module, names in modules.items() for name in names.split() or [module]}

    def find(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(f"{package}.{module_of[name]}")
        value = module if name == module_of[name] else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return find
