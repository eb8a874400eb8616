"""Packages that have been renamed: importing one by its old name is an error that says the new one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import NoReturn

MOVED = {
    "custom_targets": "custom_calls", "doors": "api", "fusing": "passes", "interop": "jax_interop",
    "jaxlib_client": "xla_backend", "native": "codegen", "participants": "distributed", "pictures": "visualization",
    "rebatching": "batching", "running": "runtime", "trees": "pytree",
}
_ROOT = "xla_torch."


class _Finder(MetaPathFinder):
    """Asked last, for what no other finder has found."""

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        package = fullname.removeprefix(_ROOT).split(".")[0]
        if fullname.startswith(_ROOT) and package in MOVED:
            _refuse(fullname, package)


def _refuse(fullname: str, package: str) -> NoReturn:
    raise ModuleNotFoundError(f"xla_torch.{package} is private and has been renamed to xla_torch.{MOVED[package]}; import the "
                              f"public names from xla_torch itself", name=fullname)


def install() -> None:
    """Register the finder, once in each process."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
