"""Old names of packages: an import says the new one."""

from __future__ import annotations

import importlib

import pytest

from xla_torch.core import moved


@pytest.mark.parametrize("old", moved.MOVED)
def test_an_old_package_names_the_new_one(old: str) -> None:
    with pytest.raises(ImportError, match=f"renamed to xla_torch.{moved.MOVED[old]}"):
        importlib.import_module(f"xla_torch.{old}.anything")
    importlib.import_module(f"xla_torch.{moved.MOVED[old]}")


@pytest.mark.parametrize("name", ["xla_torch.nothing", "xla_torch.doorsteps"])
def test_other_names_are_not_found_as_usual(name: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=f"No module named '{name}'"):
        importlib.import_module(name)
