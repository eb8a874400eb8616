"""The op table: every opcode with its functions, operands, attributes, element types, gradient and tests, as it is.

Nothing in it is written by hand. Operands, attributes and gradients are read from `OPS` and from the table of `grad_rules`;
which function builds an op from the source of `xla_torch.ops`; element types by asking the op's shape inference; tests from
the strings and names in `tests/`, where there is a checkout. `write` puts the table where it is kept in the repository::

    python -m xla_torch ops --write
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import itertools
import re
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from grad_rules import TABLE, Entry, GradientKind

from . import ops
from .builder import XlaBuilder
from .errors import InvalidArgument, XlaError
from .opcodes import OPS, OpDefinition
from .opcodes.attributes import ChoiceCodec, Codec, DimsCodec, FloatCodec, IntCodec, PaddingCodec, SliceCodec
from .opcodes.definition import Attribute
from .opcodes.inference import infer_shape
from .shape import Shape
from .types import C64, F32, PRED, S32, U32, Kind, PrimitiveType

ROOT = Path(__file__).parent.parent
PAGE = Path("xla_torch/opcodes/README.md")
GRADIENT_PAGE = Path("grad_rules/README.md")
BEGIN, END = "<!-- op table: begin -->", "<!-- op table: end -->"
COMMAND = "python -m xla_torch ops --write"


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """What the table says of one opcode."""

    definition: OpDefinition
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
        return _operands(self.definition)

    @property
    def attributes(self) -> tuple[str, ...]:
        return tuple(_attribute(a) for a in self.definition.attributes.values())


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


def _operands(definition: OpDefinition) -> tuple[str, ...]:
    return definition.operands + ((f"*{definition.variadic}",) if definition.variadic else ())


def _attribute(attribute: Attribute) -> str:
    """``name`` where it must be written, ``name=default``, or ``name?`` where leaving it out means nothing or none."""
    if attribute.required:
        return attribute.name
    text = "" if attribute.default in (None, "", ()) else attribute.codec.format(attribute.default)
    return f"{attribute.name}?" if text in ("", "{}") else f"{attribute.name}={text}"


# ------------------------------------------------------------------------------------ which function builds what


@dataclasses.dataclass(frozen=True, slots=True)
class Emitted:
    """The opcodes that a function adds to a program: as its result, and on the way to it."""

    results: frozenset[str] = frozenset()
    inside: frozenset[str] = frozenset()


@functools.cache
def functions_of_ops() -> dict[str, Emitted]:
    """For each documented function the opcodes it builds, directly or through functions of `xla_torch.ops`.

    A documented function that another one calls counts with its last return, not with the early ones of special cases. Not
    counted: what Python operators between XlaOps build, implicit broadcasts (`ops/_broadcast.py`), and the constants that
    numbers become.
    """
    sources = _Sources(Path(ops.__file__).parent)
    places = ((name, sources.resolve(module, name)) for module, names in sources.public.items() for name in names)
    return {name: sources.emitted(place, every_return=True) for name, place in places if place is not None}


Place = tuple[str, str]
"""A module of `xla_torch.ops` and the name of a function in it."""

_METHODS = (OPS.keys() & vars(XlaBuilder).keys()) - {"add"}
"""Methods of the builder that append the op of their own name; its `add` takes the opcode."""


class _Sources:
    """The source of `xla_torch.ops`: its functions, who imports what, and what each call builds."""

    def __init__(self, folder: Path):
        self.functions: dict[Place, ast.FunctionDef] = {}
        self.elsewhere: dict[Place, Place] = {}
        self.public: dict[str, list[str]] = {}
        self._known: dict[tuple[Place, tuple[tuple[str, str], ...], bool], Emitted] = {}
        for path in sorted(folder.glob("*.py")):
            if path.stem not in ("__init__", "_broadcast"):
                self._read(path.stem, ast.parse(path.read_text(encoding="utf-8")))

    def _read(self, module: str, tree: ast.Module) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module:
                self.elsewhere |= {(module, a.asname or a.name): (node.module, a.name) for a in node.names}
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                self.functions[module, node.name] = node
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id
                if name == "__all__":
                    self.public[module] = ast.literal_eval(node.value)
                elif isinstance(node.value, ast.Name):
                    self.elsewhere[module, name] = (module, node.value.id)

    def resolve(self, module: str, name: str) -> Place | None:
        """Where a function that a module calls `name` stands; None for what is no function of `xla_torch.ops`."""
        place: Place | None = (module, name)
        while place is not None and place not in self.functions:
            place = self.elsewhere.get(place)
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
            added = _string(call.args[0], strings) if call.func.attr == "add" and call.args else call.func.attr
            is_op = added in OPS and (call.func.attr == "add" or added in _METHODS)
            return Emitted(frozenset([added])) if added and is_op else Emitted()
        place = self.resolve(module, call.func.id) if isinstance(call.func, ast.Name) else None
        if place is None:
            return Emitted()
        names = [a.arg for a in self.functions[place].args.args]
        given = [*zip(names, call.args, strict=False), *((k.arg or "", k.value) for k in call.keywords)]
        known = ((name, _string(value, strings)) for name, value in given)
        return self.emitted(place, tuple(sorted((name, text) for name, text in known if text in OPS and text)))


def _string(node: ast.expr, strings: dict[str, str]) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return strings.get(node.id) if isinstance(node, ast.Name) else None


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


# --------------------------------------------------------------------------------------------- element types

_SEEDS = (F32, S32, PRED, C64, U32)
_DIMENSIONS = ((2, 2), (2,), ())
_ARRAY_TYPES = tuple(t for t in PrimitiveType if t.is_array)
_SAMPLES: dict[type[Codec], tuple[Any, ...]] = {
    DimsCodec: ((0,), (2,), (), (0, 1)), IntCodec: (0, 1), FloatCodec: (0.5,), PaddingCodec: (((0, 0, 0),) * 2,),
    SliceCodec: (((0, 2, 1),) * 2,)}
_KIND_NAMES = {Kind.PRED: "pred", Kind.SIGNED: "signed", Kind.UNSIGNED: "unsigned", Kind.FLOAT: "floats",
               Kind.COMPLEX: "complex"}


@functools.cache
def element_types(opcode: str) -> str:
    """The element types of an op's operands, found by trying: its shape inference is given small arrays of every type.

    Operands that take different types are named. Empty for ops of regions, windows, tuples and tokens, which it cannot try.
    """
    definition = OPS[opcode]
    names = _operands(definition)
    if not names or any(a.required and not _samples(a) for a in definition.attributes.values()):
        return ""
    found = _accepted(definition, len(names))
    if not all(found):
        return ""
    texts = [_type_text(types) for types in found]
    if len(set(texts)) == 1:
        return texts[0]
    return "; ".join(f"{name.lstrip('*')}: {text}" for name, text in zip(names, texts, strict=True))


def _samples(attribute: Attribute) -> tuple[Any, ...]:
    """Values to try for a required attribute; none for what has no small example."""
    codec = attribute.codec
    if isinstance(codec, ChoiceCodec):
        return codec.words
    return _SAMPLES.get(type(codec), ())


def _accepted(definition: OpDefinition, count: int) -> list[set[PrimitiveType]]:
    """For each operand the types that are taken, over all choices of attributes that are one word of several."""
    found: list[set[PrimitiveType]] = [set() for _ in range(count)]
    required = [a for a in definition.attributes.values() if a.required]
    words, others = ([a for a in required if isinstance(a.codec, ChoiceCodec) is chosen] for chosen in (True, False))
    for choice in _settings(words):
        taken = (_taken(definition.opcode, count, choice | setting) for setting in _settings(others))
        for types in next(filter(None, taken), ()):
            for place, element_type in enumerate(types):
                found[place].add(element_type)
    return found


def _settings(attributes: Sequence[Attribute]) -> Iterator[dict[str, Any]]:
    """Every combination of the attributes' samples."""
    for values in itertools.product(*map(_samples, attributes)):
        yield {a.name: value for a, value in zip(attributes, values, strict=True)}


Types = tuple[PrimitiveType, ...]


def _taken(opcode: str, count: int, attributes: dict[str, Any]) -> list[Types]:
    """Type combinations that are taken, in the first dimensions in which there is one.

    All combinations of up to two operands; of more, a few, and these with every type in some of the places.
    """
    for dims in itertools.product(_DIMENSIONS, repeat=count) if count <= 3 else _same_but_first(count):
        examples = [types for types in _seed_types(count) if _takes(opcode, types, dims, attributes)]
        if examples:
            tried = itertools.product(_ARRAY_TYPES, repeat=count) if count <= 2 else _varied(examples, count)
            return [types for types in tried if _takes(opcode, types, dims, attributes)]
    return []


def _same_but_first(count: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    for first, other in itertools.product(_DIMENSIONS, repeat=2):
        yield (first, *[other] * (count - 1))


def _seed_types(count: int) -> Iterator[Types]:
    """One type for all operands, or one of them of another type."""
    for common, other in itertools.product(_SEEDS, repeat=2):
        for place in range(count) if common is not other else (0,):
            yield tuple(other if k == place else common for k in range(count))


def _varied(examples: Sequence[Types], count: int) -> set[Types]:
    """Each example, with every type in the place of some of its own, all at once."""
    places = [p for size in range(1, count + 1) for p in itertools.combinations(range(count), size)]
    return {tuple(tried if k in changed else t for k, t in enumerate(types))
            for types, changed, tried in itertools.product(examples, places, _ARRAY_TYPES)}


def _takes(opcode: str, types: Sequence[PrimitiveType], dims: Sequence[tuple[int, ...]], attributes: dict[str, Any]) -> bool:
    shapes = [Shape.array(t, d) for t, d in zip(types, dims, strict=True)]
    try:
        infer_shape(opcode, shapes[0], shapes, attributes)
    except XlaError:
        return False
    return True


def _type_text(types: set[PrimitiveType]) -> str:
    """Whole kinds by their names, other types by their own."""
    by_kind = {kind: {t for t in _ARRAY_TYPES if t.kind is kind} for kind in _KIND_NAMES}
    whole = [kind for kind, members in by_kind.items() if members <= types]
    if len(whole) == len(by_kind):
        return "any"
    words = [_KIND_NAMES[kind] for kind in whole]
    if Kind.SIGNED in whole and Kind.UNSIGNED in whole:
        words[words.index("signed"):words.index("unsigned") + 1] = ["integers"]
    return ", ".join(words + [t.text for t in _ARRAY_TYPES if t in types and t.kind not in whole])


# ----------------------------------------------------------------------------------------------------- tests

_WITHOUT_ROWS = ("test_completeness", "test_optable")
_INSTRUCTION = re.compile(r"(?<![\w.%-])([a-z][a-z0-9-]*)\(")


@functools.cache
def tests_by_opcode() -> dict[str, tuple[str, ...]]:
    """For each opcode the files of `tests/` that name it: as an instruction of HLO text (``sort(``), as a string of its own
    (``"sort"``), or by a documented function whose result it is. Empty without a checkout."""
    opcodes: dict[str, set[str]] = {name: set(emitted.results) for name, emitted in functions_of_ops().items()}
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "tests").glob("*.py")):
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

_WIDTH = 118


def text() -> str:
    """The table for a terminal: aligned columns, long cells on several lines. Functions that only have the op inside are
    named where no function gives it."""
    header = ("opcode", "family", "gradient", "element types", "documented functions")
    cells = [(row.definition.opcode, row.definition.family, row.gradient.kind.value, row.types,
              _functions(dataclasses.replace(row, inside=() if row.functions else row.inside), "{}", "in"))
             for row in rows()]
    widths = [max(map(len, column)) for column in zip(header, *cells, strict=True)][:-1]
    widths[3] = min(widths[3], 34)
    lines = [_line(header, widths), ""]
    for row in cells:
        lines += _wrapped(row, widths)
    return "\n".join([*lines, "", _counted(TABLE.values())])


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=False)]
    return "  ".join([*padded, *cells[len(widths):]]).rstrip()


def _wrapped(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    last = max(_WIDTH - sum(widths) - 2 * len(widths), 30)
    columns = [textwrap.wrap(cell, width, break_on_hyphens=False, break_long_words=False)
               for cell, width in zip(row, [*widths, last], strict=True)]
    for parts in itertools.zip_longest(*columns, fillvalue=""):
        yield _line(parts, widths)


def _functions(row: Row, name: str, inside: str) -> str:
    """``Add; in CrossReplicaSum``: what gives the op, and what has it inside."""
    given, within = (", ".join(map(name.format, names)) for names in (row.functions, row.inside))
    return "; ".join(filter(None, (given, within and f"{inside} {within}")))


_PREFACE = f"""\
# The ops

One row for each HLO opcode. This file is generated from the code: `{COMMAND}` writes it anew.

- **functions**: the documented functions of `xla_torch.ops` whose result the op is; after *in*, functions that build it on
  the way. Not counted: what Python operators between XlaOps build, the broadcasts that elementwise functions insert, and
  the constants that Python numbers become.
- **attributes**: `name` must be written, `name=default` need not, `name?` is empty or none where it is not written.
- **element types**: what shape inference takes, for ops whose operands are arrays only; blank where regions decide.
- **gradient**: the kind of its entry in [`grad_rules`](../../grad_rules/README.md), and operands that have a rule.
- **tests**: files of `tests/` that name it, without `test_`.
"""


def markdown() -> str:
    """The table as the page `PAGE`: a section for each family, with links to its files."""
    table = rows()
    parts = [_PREFACE, f"{len(table)} opcodes. {_counted(TABLE.values())}\n"]
    for family, members in itertools.groupby(table, lambda row: row.definition.family):
        parts.append(f"## {family}\n\n{_links(family)}\n")
        parts.append(_table(("opcode", "functions", "operands", "attributes", "element types", "gradient", "tests"),
                            map(_cells, members)))
    return "\n".join(parts)


def _cells(row: Row) -> tuple[str, ...]:
    rules = ", ".join(map(_code, row.gradient.rules))
    return (_code(row.definition.opcode), _functions(row, "`{}`", "*in*"), ", ".join(map(_code, row.operands)),
            ", ".join(map(_code, row.attributes)), row.types, row.gradient.kind.value + (f": {rules}" if rules else ""),
            ", ".join(row.tests))


def _links(family: str) -> str:
    folders = {"opcodes": "", "ops": "../ops/", "grad_rules": "../../grad_rules/"}
    here = ROOT / PAGE.parent
    return " · ".join(f"[{folder}/{family}.py]({path}{family}.py)" for folder, path in folders.items()
                      if (here / f"{path}{family}.py").exists())


def gradients() -> str:
    """The gradient table with its counts, which stands in `GRADIENT_PAGE`."""
    families = sorted({definition.family for definition in OPS.values()})
    kinds = list(GradientKind)
    counts = [(family, Counter(TABLE[o].kind for o, d in OPS.items() if d.family == family)) for family in families]
    counts.append(("**all**", Counter(entry.kind for entry in TABLE.values())))
    counted = _table(("family", *(kind.value for kind in kinds), "ops"),
                     [(f, *(str(c[k] or "") for k in kinds), str(c.total())) for f, c in counts])
    listed = _table(("opcode", "family", "gradient", "operands with a rule, and what the rule asks for"),
                    [(_code(o), OPS[o].family, TABLE[o].kind.value, _rule_text(TABLE[o])) for o in sorted(TABLE)])
    return f"{_counted(TABLE.values())} `{COMMAND}` writes these tables anew.\n\n{counted}\n{listed}"


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


def _table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    made = [header, ["---"] * len(header), *lines]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in made)


# -------------------------------------------------------------------------------------------------- the pages


def pages() -> dict[Path, str]:
    """The generated pages as they should be, by their path in the repository. Raises InvalidArgument without a checkout."""
    given = (ROOT / GRADIENT_PAGE).read_text(encoding="utf-8") if (ROOT / GRADIENT_PAGE).exists() else ""
    before, begin, rest = given.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise InvalidArgument("no page to write the gradient table into", subject="ops", got=str(ROOT),
                              expected=f"a checkout with {GRADIENT_PAGE}, and {BEGIN} and {END} in it")
    return {PAGE: markdown(), GRADIENT_PAGE: f"{before}{BEGIN}\n\n{gradients()}\n{END}{after}"}


def write() -> list[Path]:
    """Bring the generated pages up to date; returns the paths of those that changed."""
    changed = [(ROOT / path, page) for path, page in pages().items()
               if not (ROOT / path).exists() or (ROOT / path).read_text(encoding="utf-8") != page]
    for path, page in changed:
        path.write_text(page, encoding="utf-8")
    return [path for path, _ in changed]
