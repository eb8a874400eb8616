"""What changes at run time and belongs to a module, not to a program, stands with its reason in docs/global-state.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = sorted(p for folder in ("xla_torch", "grad_rules") for p in (ROOT / folder).rglob("*.py"))
MUTATORS = {"add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft", "remove",
            "setdefault", "update"}
CACHES = {"cache", "lru_cache"}


def assigned(tree: ast.Module) -> dict[str, ast.expr]:
    """The names of a module that its own lines give a value, also in an `if`."""
    found: dict[str, ast.expr] = {}
    for node in tree.body:
        for part in ast.walk(node) if isinstance(node, (ast.If, ast.Try)) else [node]:
            if isinstance(part, ast.Assign):
                found |= {t.id: part.value for t in part.targets if isinstance(t, ast.Name)}
            elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name) and part.value is not None:
                found[part.target.id] = part.value
    return found


def called(node: ast.AST) -> str:
    """The last name of what is called: ``lru_cache`` of ``functools.lru_cache(maxsize=4)(f)``."""
    while isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def mutable_classes(tree: ast.Module) -> set[str]:
    """The classes of a module whose objects may change, as far as the text tells."""
    fixed = {"NamedTuple", "Enum", "Flag", "Protocol", "Exception"}
    return {c.name for c in tree.body if isinstance(c, ast.ClassDef) and not fixed & {called(b) for b in c.bases}
            and not any("frozen=True" in ast.unparse(d) for d in c.decorator_list)
            and ("local" in {called(b) for b in c.bases} or any(map(_changes_itself, ast.walk(c))))}


def _changes_itself(node: ast.AST) -> bool:
    return (isinstance(node, ast.FunctionDef) and node.name != "__init__"
            and any(name.startswith("self.") for name in written(node))) or (
        isinstance(node, ast.FunctionDef) and node.name == "__init__" and "Lock" in ast.unparse(node))


def written(function: ast.AST) -> Iterator[str]:
    """The names (or ``self.name``) that a function writes into: an element, an attribute, or by a method that changes it."""
    for node in ast.walk(function):
        if isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.ctx, (ast.Store, ast.Del)):
            yield ast.unparse(node.value)
            yield ast.unparse(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MUTATORS:
            yield ast.unparse(node.func.value)
        elif isinstance(node, ast.Global):
            yield from node.names


def global_state(tree: ast.Module) -> set[str]:
    """The names of a module that hold what changes at run time."""
    names, classes = assigned(tree), mutable_classes(tree)
    functions = [n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.Lambda))]
    found = {name for f in functions for name in written(f) if name in names and not _is_local(f, name)}
    found |= {name for name, value in names.items() if isinstance(value, ast.Call)
              and (called(value) in classes | CACHES | {"WeakSet", "WeakKeyDictionary", "local", "deque", "ContextVar"})}
    found |= {n.name for n in tree.body if isinstance(n, ast.FunctionDef) and CACHES & set(map(called, n.decorator_list))}
    if any("globals()" in ast.unparse(f) for f in functions):
        found.add("globals()")
    return found


def _is_local(function: ast.AST, name: str) -> bool:
    """Whether a function has a name of its own that is written the same."""
    if isinstance(function, ast.FunctionDef) and any(
            isinstance(n, ast.Global) and name in n.names for n in ast.walk(function)):
        return False
    arguments = {a.arg for a in ast.walk(function) if isinstance(a, ast.arg)}
    stored = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return name in arguments | stored


ENTRY = re.compile(r"^\*\*`([^`]+)`\*\* (.+)\n\n- Reason: .+\n- Written by: .+\n- Threads: .+$", re.M)
PAGE = (ROOT / "docs/global-state.md").read_text(encoding="utf-8")


def listed() -> dict[str, set[str]]:
    """The modules that the page lists, and their names."""
    entries: dict[str, set[str]] = {}
    for path, state in ENTRY.findall(PAGE):
        entries.setdefault(path, set()).update(re.findall(r"`([^`]+)`", state))
    return entries


def test_global_state_is_listed() -> None:
    found = {path.relative_to(ROOT).as_posix(): names for path in FILES
             if (names := global_state(ast.parse(path.read_text(encoding="utf-8"))))}
    assert found == listed()


def test_each_has_a_reason_a_writer_and_a_word_on_threads() -> None:
    assert len(ENTRY.findall(PAGE)) == len(re.findall(r"^\*\*`", PAGE, re.M)) > 0


def test_state_is_found() -> None:
    tree = ast.parse("""
import functools, threading
REGISTRY, FIXED = {}, {}
_known = {}
_table = {"a": 1}
class _Here(threading.local): x = 1
_here = _Here()
_count = 0
def add(k, FIXED): _known[k] = 1; FIXED[k] = 2
def bump():
    global _count
    _count += 1
@functools.cache
def once(): return {}
""")
    assert global_state(tree) == {"_known", "_here", "_count", "once"}
