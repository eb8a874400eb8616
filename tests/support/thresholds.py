"""Constants that a program's size, or another number, is compared with: found in the code, and how tests get to both sides.

`tests/data/thresholds.txt` has a line ``module.NAME | how`` for each. How is ``low`` for those that `low_thresholds.py` lowers,
for drawn programs too; the file of a test, and its name behind ``::``, that goes to both sides; ``drawn: why`` where drawn
programs do as they are; ``no switch: why`` where a program runs in the same way on both sides, or is refused on one; and
``open: what`` for what no test is known to straddle.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "xla_torch"
LISTED = ROOT / "tests" / "data" / "thresholds.txt"
ORDER = ast.Lt | ast.LtE | ast.Gt | ast.GtE


def listed() -> dict[str, str]:
    """How each constant of the file is straddled."""
    lines = [line for line in LISTED.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    return dict(line.split(" | ", 1) for line in lines)


def compared() -> set[str]:
    """The constants of the package that something is more or less than."""
    trees = _trees()
    constants = {f"{name}.{constant}" for name, tree in trees.items() for constant in _constants(tree)}
    found: set[str] = set()
    for name, tree in trees.items():
        known = _all_imported()[name] | {c: f"{name}.{c}" for c in _constants(tree)}
        found |= {used for node in ast.walk(tree) if isinstance(node, ast.Compare) and any(isinstance(o, ORDER) for o in node.ops)
                  for used in _used(node, known)}
    return found & constants


def importing(constant: str) -> set[str]:
    """The names under which modules import a constant by its value."""
    return {f"{name}.{own}" for name, names in _all_imported().items() for own, what in names.items() if what == constant}


@functools.cache
def _trees() -> dict[str, ast.Module]:
    return {_module(path): ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}


@functools.cache
def _all_imported() -> dict[str, dict[str, str]]:
    return {name: _imported(name, tree) for name, tree in _trees().items()}


def _module(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__").removesuffix(".")


def _constants(tree: ast.Module) -> Iterator[str]:
    """Upper-case names of a module that are bound to numbers."""
    for statement in tree.body:
        if isinstance(statement, ast.Assign):
            targets, value = statement.targets, statement.value
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            targets, value = [statement.target], statement.value
        else:
            continue
        for target in targets:
            pairs = [(target, value)]
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = zip(target.elts, value.elts, strict=True)
            for name, bound in pairs:
                if isinstance(name, ast.Name) and name.id.isupper() and _is_number(bound):
                    yield name.id


def _is_number(value: ast.expr) -> bool:
    if isinstance(value, ast.Constant):
        return type(value.value) in (int, float)
    if isinstance(value, ast.Call):  # a number that the environment may set
        return isinstance(value.func, ast.Name) and value.func.id == "environment"
    parts = [child for child in ast.iter_child_nodes(value) if isinstance(child, ast.expr)]
    return isinstance(value, ast.BinOp | ast.UnaryOp | ast.Tuple) and bool(parts) and all(map(_is_number, parts))


def _imported(module: str, tree: ast.Module) -> dict[str, str]:
    """What names of a module stand for that are imported from others of the package: constants, and modules."""
    is_package = (PACKAGE / module.replace(".", "/")).is_dir()
    inside = module.split(".") if module else []
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            up = node.level - is_package
            base = [*inside[:len(inside) - up], *(node.module.split(".") if node.module else [])]
            found.update({a.asname or a.name: ".".join([*base, a.name]) for a in node.names})
    return found


def _used(node: ast.Compare, known: dict[str, str]) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and inner.id in known:
            yield known[inner.id]
        elif isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name) and inner.value.id in known:
            yield f"{known[inner.value.id]}.{inner.attr}"
