"""Which opcodes a documented function builds, read from its source."""

from __future__ import annotations

import ast
import dataclasses
import functools
import itertools
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .. import functions, opcodes
from ..functions.hlo_builder import Builder
from ..hlo.schema import OPS


@dataclasses.dataclass(frozen=True, slots=True)
class Emitted:
    """The opcodes that a function adds to a program: as its result, and on the way to it."""

    results: frozenset[str] = frozenset()
    inside: frozenset[str] = frozenset()


@functools.cache
def functions_of_ops() -> dict[str, Emitted]:
    """For each documented function the opcodes it builds, directly or through functions of `xla_torch.functions`.

    A documented function that another one calls counts with its last return, not with the early ones of special cases. Not
    counted: what Python operators between XlaOps build, implicit broadcasts, and the constants that
    numbers become.
    """
    sources = _Sources(Path(functions.__file__).parent)
    places = ((name, sources.resolve(module, name)) for module, names in sources.public.items() for name in names)
    return {name: sources.emitted(place, every_return=True) for name, place in places if place is not None}


Place = tuple[str, str]
"""A module of `xla_torch.functions` and the name of a function in it."""

_METHODS = (OPS.keys() & vars(Builder).keys()) - {"add"}
"""Methods of the builder that append the op of their own name; its `add` takes the opcode."""


class _Sources:
    """The source of `xla_torch.functions`: its functions, who imports what, and what each call builds."""

    def __init__(self, folder: Path):
        self.functions: dict[Place, ast.FunctionDef] = {}
        self.reexports: dict[Place, Place] = {}
        self.public: dict[str, list[str]] = {}
        self.families: dict[tuple[str, str], Any] = {}
        """What a module calls the modules of `xla_torch.opcodes`, where each opcode stands under a name."""
        self._known: dict[tuple[Place, tuple[tuple[str, str], ...], bool], Emitted] = {}
        for path in sorted(folder.glob("*.py")):
            if path.stem not in ("__init__", "hlo_builder"):  # what a builder adds by itself is no function's
                self._read(path.stem, ast.parse(path.read_text(encoding="utf-8")))

    def _read(self, module: str, tree: ast.Module) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.level == 2 and node.module == "opcodes":
                self.families |= {(module, a.asname or a.name): getattr(opcodes, a.name) for a in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 1 and node.module:
                self.reexports |= {(module, a.asname or a.name): (node.module, a.name) for a in node.names}
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                self.functions[module, node.name] = node
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id
                if name == "__all__":
                    self.public[module] = ast.literal_eval(node.value)
                elif isinstance(node.value, ast.Name):
                    self.reexports[module, name] = (module, node.value.id)

    def resolve(self, module: str, name: str) -> Place | None:
        """Where a function that a module calls `name` stands; None for what is no function of `xla_torch.functions`."""
        place: Place | None = (module, name)
        while place is not None and place not in self.functions:
            place = self.reexports.get(place)
        return place

    def emitted(self, place: Place, strings: tuple[tuple[str, str], ...] = (), every_return: bool = False) -> Emitted:
        """What a function builds where these of its parameters are these strings. Of a documented one only the last return
        counts unless `every_return`."""
        module, name = place
        every_return = every_return or name not in self.public.get(module, ())
        key = place, strings, every_return
        if key not in self._known:
            self._known[key] = Emitted()  # a function that calls itself adds nothing by that
            self._known[key] = self._walk(module, self.functions[place], dict(strings), every_return)
        return self._known[key]

    def _walk(self, module: str, function: ast.FunctionDef, strings: dict[str, str], every_return: bool) -> Emitted:
        nodes = list(ast.walk(function))
        returns = sorted((n for n in nodes if isinstance(n, ast.Return)), key=lambda n: n.lineno)
        left_out = () if every_return else returns[:-1]
        returns = [n for n in returns if n not in left_out]
        skipped = {id(inner) for n in left_out for inner in ast.walk(n)}
        assigned: dict[str, list[ast.expr]] = defaultdict(list)
        for node in nodes:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                assigned[node.targets[0].id].append(node.value)
        ends = (call for n in returns if n.value for call in _returned(n.value, assigned, frozenset()))
        results = frozenset(itertools.chain.from_iterable(self._call(module, call, strings).results for call in ends))
        calls = (self._call(module, n, strings) for n in nodes if isinstance(n, ast.Call) and id(n) not in skipped)
        built = frozenset(itertools.chain.from_iterable(e.results | e.inside for e in calls))
        return Emitted(results, built - results)

    def _call(self, module: str, call: ast.Call, strings: dict[str, str]) -> Emitted:
        if isinstance(call.func, ast.Attribute):
            added = self._opcode(module, call.args[0], strings) if call.func.attr == "add" and call.args else call.func.attr
            is_op = added in OPS and (call.func.attr == "add" or added in _METHODS)
            return Emitted(frozenset([added])) if added and is_op else Emitted()
        place = self.resolve(module, call.func.id) if isinstance(call.func, ast.Name) else None
        if place is None:
            return Emitted()
        names = [a.arg for a in self.functions[place].args.args]
        given = [*zip(names, call.args, strict=False), *((k.arg or "", k.value) for k in call.keywords)]
        known = ((name, self._opcode(module, value, strings)) for name, value in given)
        return self.emitted(place, tuple(sorted((name, text) for name, text in known if text in OPS and text)))

    def _opcode(self, module: str, node: ast.expr, strings: dict[str, str]) -> str | None:
        """The opcode that an expression is: a parameter that is known, or a name in a module of `xla_torch.opcodes`."""
        if isinstance(node, ast.Name):
            return strings.get(node.id)
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
            return None
        found = getattr(self.families.get((module, node.value.id)), node.attr, None)
        return found if isinstance(found, str) and found in OPS else None


def _returned(value: ast.expr, assigned: dict[str, list[ast.expr]], seen: frozenset[str]) -> Iterator[ast.Call]:
    """The calls whose result an expression may be, also through local variables."""
    if isinstance(value, ast.Call):
        yield value
    elif isinstance(value, ast.IfExp):
        yield from _returned(value.body, assigned, seen)
        yield from _returned(value.orelse, assigned, seen)
    elif isinstance(value, ast.Name) and value.id not in seen:
        for expression in assigned.get(value.id, ()):
            yield from _returned(expression, assigned, seen | {value.id})
