"""The generated pages: every opcode with its functions, operands, attributes, element types, gradient and tests, as it is.

Nothing in them is written by hand. Operands, attributes and gradients are read from `OPS` and from the table of `grad_rules`;
which function builds an op from the source of `xla_torch.functions`; element types by asking the op's shape inference; tests
from the strings and names in `tests/`. `write` puts the pages where they are kept in the repository::

    make pages
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

from grad_rules import FUNCTIONS, FUSED, TABLE, Entry, GradientKind
from support import claim_page, limits_page, plots, stubs, tables
from support.accepted_types import element_types, operand_names
from xla_torch.api.emitted_ops import functions_of_ops
from xla_torch.api.op_view import written
from xla_torch.hlo.schema import OPS, OpSchema

ROOT = Path(__file__).parents[2]
PAGE = Path("xla_torch/opcodes/README.md")
GRADIENT_PAGE = Path("grad_rules/README.md")
PART = "op table"
COLUMNS = "opcode", "functions", "operands", "attributes", "element types", "gradient", "claims", "tests"
COMMAND = "make pages"


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """What the table says of one opcode."""

    definition: OpSchema
    functions: tuple[str, ...]
    """Documented functions whose result is this op."""
    inside: tuple[str, ...]
    """Documented functions that build this op on the way to another result."""
    types: str
    """Element types that shape inference takes; empty where they are not known."""
    gradient: Entry
    tests: tuple[str, ...]
    """Files of `tests/` that name the op, without ``test_`` and ``.py``."""

    @property
    def operands(self) -> tuple[str, ...]:
        return operand_names(self.definition)

    @property
    def attributes(self) -> tuple[str, ...]:
        return tuple(written(a) for a in self.definition.attributes.values())


def rows() -> list[Row]:
    """All opcodes, family by family, in alphabetical order."""
    functions, inside, tests = defaultdict(list), defaultdict(list), tests_by_opcode()
    for name, emitted in sorted(functions_of_ops().items()):
        for opcode in emitted.results:
            functions[opcode].append(name)
        for opcode in emitted.inside:
            inside[opcode].append(name)
    return [Row(definition, tuple(functions[opcode]), tuple(inside[opcode]), element_types(opcode), TABLE[opcode],
                tests.get(opcode, ()))
            for opcode, definition in sorted(OPS.items(), key=lambda item: (item[1].family, item[0]))]


# ----------------------------------------------------------------------------------------------------- tests

_WITHOUT_ROWS = ("test_completeness", "test_op_view", "test_pages", "pages", "tables", "accepted_types", "claim_entry_points",
                 "chromium", "claim_page", "claim_values", "claims", "test_documents")
_INSTRUCTION = re.compile(r"(?<![\w.%-])([a-z][a-z0-9-]*)\(")


@functools.cache
def tests_by_opcode() -> dict[str, tuple[str, ...]]:
    """For each opcode the files of `tests/` that name it: as an instruction of HLO text (``sort(``), as a string of its own
    (``"sort"``), or by a documented function whose result it is. Empty without a checkout."""
    opcodes: dict[str, set[str]] = {name: set(emitted.results) for name, emitted in functions_of_ops().items()}
    found: dict[str, list[str]] = defaultdict(list)
    folder = ROOT / "tests"
    for path in sorted([*folder.glob("*/test_*.py"), *folder.glob("support/*.py")], key=lambda path: path.name):
        if path.stem not in _WITHOUT_ROWS:
            for opcode in _named_in(ast.parse(path.read_text(encoding="utf-8")), opcodes):
                found[opcode].append(path.stem.removeprefix("test_"))
    return {opcode: tuple(sorted(files)) for opcode, files in found.items()}


def _named_in(tree: ast.Module, opcodes: dict[str, set[str]]) -> set[str]:
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            words = node.value.split()
            found.update(words if set(words) <= OPS.keys() else _INSTRUCTION.findall(node.value))
        elif isinstance(node, ast.Name | ast.Attribute):
            found |= opcodes.get(node.id if isinstance(node, ast.Name) else node.attr, set())
    return found & OPS.keys()


# ------------------------------------------------------------------------------------------------- rendering

def _functions(row: Row, name: str, inside: str) -> str:
    """``Add; in CrossReplicaSum``: what gives the op, and what has it inside."""
    given, within = (", ".join(map(name.format, names)) for names in (row.functions, row.inside))
    return "; ".join(filter(None, (given, within and f"{inside} {within}")))


_PREFACE = f"""\
# The ops

This page lists every HLO opcode with its functions, types, gradient and tests. It is for people who look up or change an op, and
`{COMMAND}` writes it.

- **functions**: the documented functions of `xla_torch.ops` that return the op; after *in*, functions that build it as a
  part of their result. Python operators, implicit broadcasts and constants from Python numbers are not counted.
- **attributes**: `name` is required, `name=default` has a default, and `name?` is empty or None by default.
- **element types**: those that shape inference accepts, for ops on arrays only; blank if a region decides.
- **gradient**: the kind of its entry in [`grad_rules`](../../grad_rules/README.md), and operands that have a rule.
- **claims**: tests of [the statements of XLA's documents](../../tests/documents/README.md) about these functions.
- **tests**: files of `tests/` that name the op, without `test_`.
"""


def markdown() -> str:
    """The table as the page `PAGE`: a section for each family, with links to its files."""
    table = rows()
    parts = [_PREFACE, f"{len(table)} opcodes. {_counted(TABLE.values())}\n"]
    for family, members in itertools.groupby(table, lambda row: row.definition.family):
        parts.append(f"## {family}\n\n{_links(family)}\n")
        parts.append(tables.markdown(COLUMNS, map(_cells, members)))
    return "\n".join(parts)


def _cells(row: Row) -> tuple[str, ...]:
    rules = ", ".join(map(_code, row.gradient.rules))
    return (_code(row.definition.opcode), _functions(row, "`{}`", "*in*"), ", ".join(map(_code, row.operands)),
            ", ".join(map(_code, row.attributes)), row.types, row.gradient.kind.value + (f": {rules}" if rules else ""),
            _claims(row), ", ".join(row.tests))


def _claims(row: Row) -> str:
    """Links to the claims of the functions that build the op."""
    page = "/".join([".."] * len(PAGE.parent.parts)) + f"/{claim_page.PAGE.as_posix()}"
    found = claim_page.of_functions(row.functions or row.inside)
    return ", ".join(f"[{section}]({page}#{claim_page.anchor(section)})" for section in found)


def _links(family: str) -> str:
    folders = {"opcodes": "", "lowering/bodies": "../lowering/bodies/", "functions": "../functions/",
               "grad_rules": "../../grad_rules/"}
    here = ROOT / PAGE.parent
    return " · ".join(f"[{folder}/{family}.py]({path}{family}.py)" for folder, path in folders.items()
                      if (here / f"{path}{family}.py").exists())


def gradients() -> str:
    """The gradient table with its counts, which stands in `GRADIENT_PAGE`."""
    families = sorted({definition.family for definition in OPS.values()})
    kinds = list(GradientKind)
    counts = [(family, Counter(TABLE[o].kind for o, d in OPS.items() if d.family == family)) for family in families]
    counts.append(("**all**", Counter(entry.kind for entry in TABLE.values())))
    counted = tables.markdown(("family", *(kind.value for kind in kinds), "ops"),
                              [(f, *(str(c[k] or "") for k in kinds), str(c.total())) for f, c in counts])
    listed = tables.markdown(("opcode", "family", "gradient", "operands with a rule, and its inputs"),
                             [(_code(o), OPS[o].family, TABLE[o].kind.value, _rule_text(TABLE[o])) for o in sorted(TABLE)])
    return (f"{_counted(TABLE.values())} `{COMMAND}` writes these tables.\n\n{counted}\n{listed}\n{_fused_rules()}\n"
            f"{_spelled_functions()}")


def _spelled_functions() -> str:
    """The functions that have no op, by name."""
    return "Functions without an op, recognised by their expansions:\n\n" + tables.markdown(
        ("function", "operands, and the inputs of their rules"),
        [(_code(name), "; ".join(f"{_code(o)} ({', '.join(words)})" for o, words in rules.asks.items()))
         for name, rules in sorted(FUNCTIONS.items())])


def _fused_rules() -> str:
    """The fused rules, by name."""
    return "Fused rules:\n\n" + tables.markdown(("fused rule", "replaces the rules of", "meaning"), [
        (rule.name, ", ".join(map(_code, rule.opcodes)), rule.what) for _, rule in sorted(FUSED.items())])


def _rule_text(entry: Entry) -> str:
    if entry.because:
        return f"{entry.because}; instead: {entry.instead}"
    if entry.by:
        return f"by {_code(entry.by)}"
    alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for operand, words in entry.asks.items():
        alike[words].append(_code(operand))
    return "; ".join(f"{', '.join(operands)} ({', '.join(words)})" for words, operands in alike.items())


def _counted(entries: Iterable[Entry]) -> str:
    """``Gradients of 135 opcodes: 64 formula, ...``"""
    counts = Counter(entry.kind for entry in entries)
    return f"Gradients of {counts.total()} opcodes: " + ", ".join(f"{counts[k]} {k.value}" for k in GradientKind) + "."


def _code(word: str) -> str:
    return f"`{word}`"


# -------------------------------------------------------------------------------------------------- the pages


def pages() -> dict[Path, str]:
    """The generated pages as they should be, by their path in the repository. Raises InvalidArgument without a checkout."""
    given = (ROOT / GRADIENT_PAGE).read_text(encoding="utf-8") if (ROOT / GRADIENT_PAGE).exists() else ""
    return {PAGE: markdown(), claim_page.PAGE: claim_page.markdown(), limits_page.PAGE: limits_page.markdown(),
            stubs.STUB: stubs.stub(), GRADIENT_PAGE: tables.with_part(given, PART, gradients()), **plots.pictures()}


def write() -> list[Path]:
    """Bring the generated pages up to date; returns the paths, in the repository, of those that changed."""
    changed = {path: page for path, page in pages().items()
               if not (ROOT / path).exists() or (ROOT / path).read_text(encoding="utf-8") != page}
    for path, page in changed.items():
        (ROOT / path).write_text(page, encoding="utf-8")
    return list(changed)


if __name__ == "__main__":
    for changed in write():
        print(f"wrote {changed}")
