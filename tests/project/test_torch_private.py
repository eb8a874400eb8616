"""Private parts of torch: in one file, checked when it is imported, for the versions that pyproject.toml names."""

from __future__ import annotations

import ast
import functools
import re
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from xla_torch.errors import MissingDependency
from xla_torch.storage import torch_private

ROOT = Path(__file__).parents[2]
PRIVATE = {"torch_private.py", "torch_graphs.py", "value_reads.py", "value_texts.py", "export_repairs.py", "kernel_repairs.py"}
FILES = sorted(p for folder in ("xla_torch", "grad_rules") for p in (ROOT / folder).rglob("*.py"))


@functools.cache
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def names_of_torch(tree: ast.Module) -> dict[str, str]:
    """What names of a module stand for parts of torch."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {a.asname or "torch": a.name if a.asname else "torch" for a in node.names
                      if a.name.split(".")[0] == "torch"}
        elif isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] == "torch":
            found |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    return found


def path_of(node: ast.AST) -> list[str]:
    """The names in ``a.b.c``, nothing for any other expression."""
    if isinstance(node, ast.Name):
        return [node.id]
    above = path_of(node.value) if isinstance(node, ast.Attribute) else []
    return [*above, node.attr] if above and isinstance(node, ast.Attribute) else []


def private_parts(tree: ast.Module) -> Iterator[str]:
    """The private parts of torch that a module imports, or reaches through what it imports."""
    known = names_of_torch(tree)
    yield from (a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names
                if a.name.split(".")[0] == "torch" and any(map(is_private, a.name.split("."))))
    yield from (path for path in known.values() if any(map(is_private, path.split("."))))
    for node in ast.walk(tree):
        path = path_of(node) if isinstance(node, ast.Attribute) and is_private(node.attr) else []
        if path and path[0] in known:
            yield ".".join([known[path[0]], *path[1:]])


def own_names() -> set[str]:
    """The private names that the library itself gives to anything."""
    found = {"_replace", "_fields", "_asdict"}  # of every named tuple
    for node in (node for tree in trees().values() for node in ast.walk(tree)):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and path_of(node)[:1] == ["self"]:
            found.add(node.attr)
    return found


def test_no_other_module_touches_a_private_part_of_torch():
    assert [f"{path.relative_to(ROOT)}: {part}" for path, tree in trees().items() if path.name not in PRIVATE
            for part in private_parts(tree)] == []


def test_private_attributes_are_our_own():
    """What is reached through a value, and not through a name of torch, is private to the library and not to torch."""
    own = own_names()
    found = {f"{path.relative_to(ROOT)}: {node.attr}" for path, tree in trees().items() for node in ast.walk(tree)
             if isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in own
             and path.name not in PRIVATE and "jax_interop" not in path.parts}  # jaxlib's bindings have such names
    assert found == set()


@pytest.mark.parametrize("text", [
    "from torch._functorch import utils", "import torch._dynamo", "import torch\ntorch._C.x()", "from torch import _convolution",
    "from torch.autograd import forward_ad\nforward_ad._current_level", "import torch.distributed as dist\ndist.a._b"])
def test_the_test_finds_them(text: str):
    assert list(private_parts(ast.parse(text)))


def test_a_torch_without_a_private_part_is_an_error_that_names_it():
    other = types.ModuleType("torch")
    with pytest.raises(MissingDependency, match=rf"no torch\._C\._gone(.|\n)*torch {re.escape(torch.__version__)}"):
        torch_private.private(other, "_C._gone")
