"""The pages of the documentation site that are generated from the code, as Markdown by place in the site: one for each documented
function, with all that is known of the ops that it gives; one for each op that no function gives; those of the public names.

Nothing of them is kept: the build makes them anew (`site_hook.py`).
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import xla_torch
from grad_rules import TABLE
from support import claim_page
from support.accepted_types import element_types
from support.claims import claims, differences
from support.error_rows import ROWS, WRONG_TYPES
from xla_torch import functions
from xla_torch.api import op_view
from xla_torch.api.emitted_ops import functions_of_ops
from xla_torch.hlo.schema import OPS

DOCUMENT = "https://openxla.org/xla/operation_semantics"
FUNCTIONS, OPCODES, NAMES = "reference/functions", "reference/opcodes", "reference/names"
MODULES = ("nn", "training", "debug", "distributed", "random")
"""Modules whose public names have a page each; of `errors` all stand on one."""

Navigation = list[Any]

_EXAMPLE = re.compile(r"^( *)(>>> .*(?:\n.*\S.*)*(?:\n\n\1>>> .*(?:\n.*\S.*)*)*)", re.M)
_LITERAL = re.compile(r"::(?=\n\n {4})")


def as_markdown(docstring: str) -> str:
    """A docstring with its examples in fences, and code that is led to by ``::`` led to by one colon."""
    return _EXAMPLE.sub(r"\1```pycon\n\1\2\n\1```", _LITERAL.sub(":", docstring))


@functools.cache
def families() -> dict[str, tuple[str, ...]]:
    """The names that each module of `xla_torch.functions` gives users, in its own order."""
    folder = Path(functions.__file__).parent
    modules = {path.stem: importlib.import_module(f"{functions.__name__}.{path.stem}") for path in sorted(folder.glob("*.py"))
               if not path.stem.startswith("_")}
    return {family: tuple(module.__all__) for family, module in modules.items() if getattr(module, "__all__", ())}


def documented(family: str) -> list[str]:
    """The functions among them, by name."""
    return sorted(name for name in families()[family] if inspect.isfunction(getattr(functions, name)))


def pages() -> dict[str, str]:
    """All generated pages."""
    made = {f"{FUNCTIONS}/index.md": _index_of_functions(), f"{OPCODES}/index.md": _index_of_opcodes(),
            f"{NAMES}/index.md": _index_of_names()}
    for family in families():
        made |= {f"{FUNCTIONS}/{name}.md": _function(family, name) for name in documented(family)}
        made |= {f"{NAMES}/ops.{name}.md": _public(f"xla_torch.functions.{family}.{name}", f"ops.{name}")
                 for name in _kinds(family)}
    made |= {f"{OPCODES}/{opcode}.md": _opcode(opcode) for opcode in sorted(OPS)}
    made |= {f"{NAMES}/{name}.md": _public(f"xla_torch.{name}", name) for name in names()}
    errors = _shown("xla_torch.core.errors", "show_root_heading: false", "inherited_members: false")
    return made | {f"{NAMES}/errors.md": f"# Errors\n\n{errors}"}


def navigation() -> Navigation:
    """Where the generated pages stand in the site's navigation."""
    by_family: Navigation = [{family: [{name: f"{FUNCTIONS}/{name}.md"} for name in documented(family)]}
                             for family in families() if documented(family)]
    ops = [{opcode: f"{OPCODES}/{opcode}.md"} for opcode in sorted(OPS)]
    kinds = [f"ops.{name}" for family in families() for name in _kinds(family)]
    by_module: dict[str, Navigation] = defaultdict(list)
    for name in sorted([*names(), *kinds, "errors"], key=str.casefold):
        by_module[".".join(["xla_torch", *name.split(".")[:-1]])].append({name.rpartition(".")[2]: f"{NAMES}/{name}.md"})
    modules: Navigation = [{module: by_module[module]} for module in sorted(by_module)]
    return [{"API by module": [{"All names": f"{NAMES}/index.md"}, *modules]},
            {"XLA functions": [{"All functions": f"{FUNCTIONS}/index.md"}, *by_family]},
            {"HLO opcodes": [{"All opcodes": f"{OPCODES}/index.md"}, *ops]}]


# ------------------------------------------------------------------------------------------------- functions


def _function(family: str, name: str) -> str:
    function = inspect.unwrap(getattr(functions, name))
    place = op_view.definitions(function)[0]
    opcodes = sorted(functions_of_ops()[name].results) if name in functions_of_ops() else []
    gives = ", ".join(f"[`{o}`](../opcodes/{o}.md)" for o in opcodes)
    parts = [f"# {name}\n", f"``` {{.python .source}}\n{signature(function)}\n```\n", as_markdown(inspect.getdoc(function) or ""),
             f"`xla_torch.ops.{name}` takes tensors, and then runs at once, or XlaOps of a program that is built. "
             f"Where it stands: `{place.file}:{place.line}`. " + (f"It gives the op {gives}." if gives else ""),
             "## The family\n\n" + textwrap.indent(_family_text(family), "> "), _messages(name)]
    parts += [part for opcode in opcodes for part in _of_opcode(opcode, "## ")]
    return "\n\n".join(filter(None, parts)) + "\n"


def signature(function: Any) -> str:
    """A function's head as it is written."""
    node = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(node, ast.FunctionDef)
    parameters = [p for p in ast.unparse(node.args).split(", ") if p]
    line = f"{node.name}({', '.join(parameters)}) -> {ast.unparse(node.returns) if node.returns else 'None'}"
    return line if len(line) <= 100 else textwrap.fill(line, 100, subsequent_indent="    ", break_long_words=False)


def _family_text(family: str) -> str:
    return as_markdown(inspect.getdoc(importlib.import_module(f"{functions.__name__}.{family}")) or "")


def _messages(name: str) -> str:
    """What XLA's document says of a function, sentence by sentence, and where we differ."""
    parts = []
    for section in claim_page.of_functions([name]):
        members = [claim for claim in claims() if claim.section == section]
        parts.append(f"XLA's document: [{section}]({DOCUMENT}#{claim_page.anchor(section)}). Each line is a test; "
                     f"[what the columns mean](../../{_repository(claim_page.PAGE)}).\n\n{claim_page.table_of(members)}")
        keys = dict.fromkeys(claim.marks["differs"] for claim in members if "differs" in claim.marks)
        parts += [f"- **{key}**: {'; '.join(filter(None, differences()[key]))}" for key in keys]
    return "## What XLA's document says\n\n" + "\n\n".join(parts) if parts else ""


def _repository(path: Path) -> str:
    """Where a page of the repository that is none of docs/ stands in the site."""
    return f"repository/{path.as_posix()}"


_PREFACE = """\
The documented functions of `xla_torch.ops`, family by family. Given tensors a function runs at once, and gradients flow through
it; given XlaOps it builds a program. Examples, here and in docstrings, run after

```python
import numpy as np, torch, xla_torch
from xla_torch import Shape, XlaBuilder, ops, run_replicas
from xla_torch.distributed import feeds
```
"""


def _index_of_functions() -> str:
    lines = ["# Functions", _PREFACE]
    for family in families():
        messages = (f"- [{name}]({name}.md): {_first(getattr(functions, name))}\n" for name in documented(family))
        lines += [f"## {family}", "".join(messages)]
    return "\n\n".join(lines) + "\n"


def _first(thing: Any) -> str:
    """The first sentence of a docstring."""
    text = " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())
    return re.split(r"(?<=\.) (?=[A-Z`])", text)[0].removesuffix("::")


# ------------------------------------------------------------------------------------------------- ops


def _opcode(opcode: str) -> str:
    by = sorted(name for name, emitted in functions_of_ops().items() if opcode in emitted.results)
    inside = sorted(name for name, emitted in functions_of_ops().items() if opcode in emitted.inside)
    links = (", ".join(f"[{n}](../functions/{n}.md)" for n in names) for names in (by, inside))
    given, within = links
    facts = [f"- documented functions: {given}" if given else "", f"- also built by: {within}" if within else "",
             f"- element types: {element_types(opcode)}" if element_types(opcode) else "",
             *(f"- {fact}" for fact in op_view.facts(OPS[opcode]))]
    return "\n\n".join([f"# {opcode}\n\nAn op of the family {OPS[opcode].family}.", "\n".join(filter(None, facts)),
                        *_of_opcode(opcode, "## ", title="")]) + "\n"


def _of_opcode(opcode: str, mark: str, title: str | None = None) -> Iterator[str]:
    """Schema, shape rule, gradient rule and errors of an op."""
    of = f" of `{opcode}`" if title is None else title
    schema, entry = OPS[opcode], TABLE[opcode]
    yield f"{mark}Schema{of}\n\n{_sources(op_view.schema_source(schema))}"
    yield f"{mark}Shape rule{of}\n\n{_sources(op_view.definitions(schema.infer))}"
    kind = f"{entry.kind.value}: {entry.because}; instead: {entry.instead}" if entry.because else entry.kind.value
    yield f"{mark}Gradient{of}\n\nKind: {kind}.\n\n{_sources(op_view.gradient_rules(opcode))}"
    refused = list(_refused(opcode))
    if refused:
        head = "| operands | instruction | says |\n| --- | --- | --- |"
        yield "\n".join([f"{mark}Errors{of}\n\nEach line is a test.\n\n{head}", *refused])


def _refused(opcode: str) -> Iterator[str]:
    for shapes, instruction, messages in ROWS:
        if re.search(rf" {re.escape(opcode)}\(", instruction):
            yield f"| `{shapes}` | `{instruction}` | {messages} |"
    for operands, opcodes in WRONG_TYPES:
        if opcode in opcodes.split():
            yield f"| `{operands}` | `{opcode}` | the element type is not one that this operation takes |"


def _sources(found: Iterable[op_view.Definition]) -> str:
    return "\n\n".join(f"`{d.file}:{d.line}`\n\n``` {{.python .source}}\n{d.source}\n```" for d in found)


def _index_of_opcodes() -> str:
    lines: dict[str, list[str]] = defaultdict(list)
    for opcode in sorted(OPS):
        lines[OPS[opcode].family].append(f"- [{opcode}]({opcode}.md): gradient {TABLE[opcode].kind.value}\n")
    return "# Ops\n\nHLO's opcodes, family by family.\n\n" + "\n".join(
        f"## {family}\n\n{''.join(lines[family])}" for family in sorted(lines))


# ------------------------------------------------------------------------------------------------- public names


def _kinds(family: str) -> list[str]:
    return [name for name in families()[family] if not inspect.isfunction(getattr(functions, name))]


@functools.cache
def names() -> dict[str, Any]:
    """The public classes and functions, by name below `xla_torch`."""
    found = {name: getattr(xla_torch, name) for name in xla_torch.__all__}
    found = {name: value for name, value in found.items() if not inspect.ismodule(value)}
    for place in MODULES:
        module = importlib.import_module(f"xla_torch.{place}")
        found |= {f"{place}.{name}": getattr(module, name) for name in _public_names(module) if name not in found}
    return {name: value for name, value in found.items() if not inspect.ismodule(value)}


@functools.cache
def public() -> dict[str, Any]:
    """All that the reference's pages of names show: these, the classes beside the documented functions, and the errors."""
    kinds = {f"ops.{name}": getattr(functions, name) for family in families() for name in _kinds(family)}
    errors = importlib.import_module("xla_torch.errors")
    return {**names(), **kinds, **{f"errors.{name}": getattr(errors, name) for name in _public_names(errors)}}


def _public_names(module: ModuleType) -> list[str]:
    written = [name for name, value in vars(module).items() if not name.startswith("_")
               and (inspect.isfunction(value) or inspect.isclass(value)) and value.__module__ == module.__name__]
    return list(getattr(module, "__all__", written))


def _public(path: str, name: str) -> str:
    return f"# {name}\n\n{_shown(path)}"


def _shown(path: str, *options: str) -> str:
    return f"::: {path}\n" + ("    options:\n" + "".join(f"      {option}\n" for option in options) if options else "")


def _index_of_names() -> str:
    things = {name: value for name, value in public().items() if not name.startswith("errors.")}
    lines = (f"- [{name}]({name}.md): {_first(things[name])}" for name in sorted(things, key=str.casefold))
    return "\n".join(["# Names\n\nThe public classes and functions of `xla_torch`.\n", *lines,
                      "- [errors](errors.md): what is raised", ""])
