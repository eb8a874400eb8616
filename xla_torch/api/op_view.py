"""All that is known of one op, from every place where something of it stands: its schema, its rules, what builds it and what it
is elsewhere, with files, lines and sources. It is read from the tables, so it says what runs."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import functools
import inspect
import re
import sys
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from grad_rules import TABLE

from .. import functions, opcodes
from ..aten import operator_rules as aten
from ..core.errors import InvalidArgument
from ..hlo.rule_tables import RuleTable
from ..hlo.schema import OPS, Attribute, OpSchema
from ..stablehlo import reading_rules as stablehlo
from .all_rule_tables import TABLES
from .emitted_ops import functions_of_ops
from .summary import operands_of

ROOT = Path(__file__).resolve().parents[2]
"""Where the package lies: places are printed from here."""

TESTS = 20
"""Lines of tests listed before the rest is counted."""


def view(name: str) -> str:
    """All that is known of an op, which may be named as documented (``Rev``) or as in StableHLO, too. Raises InvalidArgument with
    the nearest names for one that nothing has."""
    return "\n\n\n".join("\n".join(_lines(OPS[opcode])) for opcode in opcodes_of(name))


def opcodes_of(name: str) -> list[str]:
    """The opcodes that a name stands for: one, but for documented functions that give one or another."""
    if name in OPS:
        return [name]
    known = _names()
    if name not in known:
        near = ", ".join(difflib.get_close_matches(name, [*OPS, *known], 3))
        raise InvalidArgument(f"no op has the name {name!r}", subject="ops", got=name,
                              expected="an opcode, a documented function or an operation of StableHLO",
                              hint=f"did you mean {near}?" if near else "python -m xla_torch ops lists all opcodes")
    return sorted(known[name])


def _names() -> Mapping[str, set[str]]:
    """Opcodes by the other names that ops have."""
    found: dict[str, set[str]] = defaultdict(set)
    for opcode, schema in OPS.items():
        for name in (schema.stablehlo, f"stablehlo.{schema.stablehlo}") if schema.stablehlo else ():
            found[name].add(opcode)
    for function, emitted in functions_of_ops().items():
        if emitted.results:
            found[function] |= emitted.results
    return found


def _lines(schema: OpSchema) -> Iterator[str]:
    yield f"{schema.opcode}, of the family {schema.family}"
    for section in _sections(schema):
        yield f"\n{section.title}"
        yield from (f"  {fact}" for fact in section.stated)
        for found in section.places:
            yield f"  {found.file}:{found.line}"
            yield textwrap.indent(found.source, "    ")


def view_facts(name: str) -> list[dict[str, Any]]:
    """What `view` says, for programs."""
    return [{"opcode": opcode, "family": OPS[opcode].family, "gradient": TABLE[opcode].kind.value,
             "sections": [dataclasses.asdict(section) for section in _sections(OPS[opcode])]} for opcode in opcodes_of(name)]


def _sections(schema: OpSchema) -> Iterator[Section]:
    opcode = schema.opcode
    yield from _section("schema", schema_source(schema), facts(schema))
    yield from _section("shape rule", definitions(schema.infer))
    yield from _section("body", definitions(TABLES["body"].find(opcode)))
    documented = sorted(name for name, emitted in functions_of_ops().items() if opcode in emitted.results)
    yield from _section("documented functions", definitions([inspect.unwrap(getattr(functions, n)) for n in documented]))
    yield from _section("gradient", gradient_rules(opcode), [f"kind: {TABLE[opcode].kind.value}"])
    for name, table in sorted(TABLES.items()):
        if name not in ("body", "gradient", "stablehlo"):
            yield from _section(f"{name} rule", definitions(table.find(opcode)), _by_trait(table, schema))
    readers = _read_by(schema)
    yield from _section("from StableHLO", definitions(readers), sorted(readers))
    yield from _section("to StableHLO", definitions(TABLES["stablehlo"].find(opcode)))
    called = re.compile(rf"\b(?:{'|'.join(documented) or '(?!)'})\(")
    operators = {name: rule for name, rule in aten.RULES.items() if called.search(_source(rule)) or _made_with(rule, documented)}
    yield from _section("torch operators whose rules call one of these functions", definitions(operators), sorted(operators))
    yield from _tests(opcode, documented)


# ------------------------------------------------------------------------------------------------------ what stands where


@dataclasses.dataclass(frozen=True, order=True)
class Definition:
    """Where something is defined, and its source."""

    file: str
    line: int
    source: str = dataclasses.field(compare=False)


@dataclasses.dataclass(frozen=True)
class Section:
    """What is known under a title: in words, and where it is defined."""

    title: str
    stated: list[str]
    places: list[Definition]


def _section(title: str, places: list[Definition], stated: list[str] | None = None) -> Iterator[Section]:
    """What is known under a title; nothing where there is nothing."""
    if places or stated:
        yield Section(title, stated or [], places)


def definitions(rule: Any) -> list[Definition]:
    """The functions that a rule is made of, each once."""
    return sorted({definition for part in _parts(rule) for definition in _defined(part)})


def _parts(rule: Any) -> Iterator[Any]:
    """The functions and classes that a rule is: by itself, within a record, or partly applied."""
    if isinstance(rule, Mapping):
        rule = list(rule.values())
    if isinstance(rule, (list, tuple)):
        for part in rule:
            yield from _parts(part)
    elif isinstance(rule, functools.partial):
        yield from _parts([rule.func, *rule.args, *rule.keywords.values()])
    elif inspect.isroutine(rule) or inspect.isclass(rule):
        yield inspect.unwrap(rule)
    elif dataclasses.is_dataclass(rule):
        yield from _parts([getattr(rule, field.name) for field in dataclasses.fields(rule)])
    elif type(rule).__module__.partition(".")[0] in _OURS:
        yield type(rule)


_OURS = (__name__.partition(".")[0], "grad_rules")


def _defined(part: Any) -> Iterator[Definition]:
    """Where a function or class of ours stands; nothing for one of Python's or torch's, which has its name alone."""
    try:
        lines, first = inspect.getsourcelines(part)
        path = Path(inspect.getsourcefile(part) or "").resolve()
    except (OSError, TypeError):
        return
    if path.is_relative_to(ROOT):
        yield Definition(str(path.relative_to(ROOT)), first, textwrap.dedent("".join(lines)).rstrip())


def _statement(path: Path, is_it: Callable[[ast.stmt], bool]) -> Definition:
    """The innermost such statement of a file."""
    text = path.read_text(encoding="utf-8")
    node = max((n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.stmt) and is_it(n)), key=lambda n: n.lineno)
    first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", ()))])
    lines = text.splitlines()[first - 1:node.end_lineno]
    return Definition(str(path.relative_to(ROOT)), first, textwrap.dedent("\n".join(lines)))


# ------------------------------------------------------------------------------------------------------ of one op


def _home(schema: OpSchema) -> tuple[ModuleType, set[str]]:
    """The module of an op's schema, and the names that the opcode has there."""
    module = sys.modules[f"{opcodes.__name__}.{schema.family}"]
    return module, {name for name, value in vars(module).items() if value == schema.opcode}


def schema_source(schema: OpSchema) -> list[Definition]:
    """What gives the opcode its name: a decorated signature, or a call of a function that makes these, which follows."""
    module, names = _home(schema)
    path = Path(module.__file__ or "").resolve()
    made_by = schema.where.removeprefix(f"{module.__name__}.").partition(".")[0]
    maker = [] if made_by in names else definitions(getattr(module, made_by))
    return [_statement(path, lambda node: not names.isdisjoint(_named(node))), *maker]


def _named(statement: ast.stmt) -> list[str]:
    """What a statement of a module gives names to."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return [getattr(statement, "name", ""), *(target.id for target in targets if isinstance(target, ast.Name))]


def facts(schema: OpSchema) -> list[str]:
    """Operands, attributes and what else differs from an ordinary op."""
    attributes = ", ".join(map(written, schema.attributes.values()))
    usual = ("opcode", "infer", "operands", "variadic", "optional_operands", "attributes", "family", "where", "traits")
    others = [f"{f.name}: {getattr(schema, f.name)}" for f in dataclasses.fields(schema)
              if f.name not in usual and getattr(schema, f.name) != f.default]
    traits = ", ".join(str(trait.name) for trait in schema.traits)
    return [f"operands: {operands_of(schema) or 'none'}", *([f"attributes: {attributes}"] if attributes else []),
            *([f"traits: {traits}"] if traits else []), *others]


def written(attribute: Attribute) -> str:
    """``name`` where it must be written, ``name=default``, or ``name?`` where leaving it out means nothing or none."""
    if attribute.required:
        return attribute.name
    text = "" if attribute.default in (None, "", ()) else attribute.codec.format(attribute.default)
    return f"{attribute.name}?" if text in ("", "{}") else f"{attribute.name}={text}"


def gradient_rules(opcode: str) -> list[Definition]:
    """The entry in the table, and of its rules those that stand elsewhere."""
    entry = TABLE[opcode]
    file, _, line = entry.where.rpartition(":")
    path = Path(file).resolve()
    own = [_statement(path, lambda n: n.lineno <= int(line) <= (n.end_lineno or 0))] if path.is_relative_to(ROOT) else []
    return own + [rule for rule in definitions(entry.rules) if not any(_is_within(rule, of) for of in own)]


def _is_within(inner: Definition, outer: Definition) -> bool:
    return inner.file == outer.file and 0 <= inner.line - outer.line <= outer.source.count("\n")


def _by_trait(table: RuleTable[Any], schema: OpSchema) -> list[str]:
    rule = table.find(schema.opcode)
    if rule is None:
        return []
    named = [] if definitions(rule) else [f"{getattr(rule, '__module__', '')}.{getattr(rule, '__qualname__', rule)}"]
    return named + ["by a trait"] * (schema.opcode not in table)


def _read_by(schema: OpSchema) -> dict[str, Callable[..., Any]]:
    """The rules of StableHLO's operations that are read as this op: that of its own name, and those that build it by name."""
    named = re.compile(rf"\b{schema.family}\.(?:{'|'.join(_home(schema)[1])})\b")
    return {operation: rule for operation, rule in stablehlo.RULES.items()
            if operation == f"stablehlo.{schema.stablehlo}" or named.search(_source(rule))}


def _made_with(rule: Callable[..., Any], documented: list[str]) -> bool:
    """Whether a rule was made by a function that was given one of these."""
    return any(getattr(cell.cell_contents, "__name__", "") in documented for cell in rule.__closure__ or ())


@functools.cache
def _source(rule: Callable[..., Any]) -> str:
    return "".join(definition.source for definition in definitions(rule))


# ------------------------------------------------------------------------------------------------------ tests


def _tests(opcode: str, documented: list[str]) -> Iterator[Section]:
    """Lines of tests that have it as an instruction or call one of its functions. Nothing without a checkout."""
    written = rf"(?:[\"'].*|[\]}})] )(?<![\w.%-]){re.escape(opcode)}\("  # in a string, or behind a shape
    calls = re.compile("|".join([written, *(rf"\bops\.{name}\(" for name in documented)]))
    rows = [(path, number, line.strip()) for path, lines in _test_lines() for number, line in lines if calls.search(line)]
    stated = [f"{path}:{number}  {textwrap.shorten(line, 100)}" for path, number, line in rows[:TESTS]]
    stated += [f"... and {len(rows) - TESTS} more"] * (len(rows) > TESTS)
    yield from _section(f"tests, {len(rows)} lines in {len({path for path, _, _ in rows})} files", [], stated)


def _test_lines() -> list[tuple[str, list[tuple[int, str]]]]:
    """The lines of tests of ops and of gradients, file by file."""
    paths = [*(ROOT / "tests").glob("ops/test_*.py"), *(ROOT / "tests").glob("support/op_rows/*.py"),
             *(ROOT / "tests").glob("autodiff/test_*.py")]
    return [(str(path.relative_to(ROOT)), list(enumerate(path.read_text(encoding="utf-8").splitlines(), 1)))
            for folder in ("ops", "op_rows", "autodiff") for path in sorted(paths) if path.parent.name == folder]
