"""Claims: checkable sentences of the documents, a line each, and what runs them through every entry point.

The files ``tests/documents/*.claims`` hold the lines. ``# Add Sub [013] T=f32`` begins a section, or several that say the same,
with the documents it stands in (0 operation semantics, newest; 1 the oldest; 3 in between; 2 shapes, layouts and tiles;
4 broadcasting). A line below it is ``the sentence in short :: check``, or ``... :: check :: marks``; ``{op}`` in it is the
section's name, ``{T}`` a word of the heading, and ``[1]`` before it says that this sentence stands in other documents.

A check is a call of documented functions and what comes of it, where ``f32[1, 2]`` is an argument, an array of these elements
along dimension 0, ``f32(1)`` a scalar and ``f32.of(2, 3)`` some array of these sizes:

- ``Neg(f32[1, 2]) == f32[-1, -2]`` the value, with type and sizes, and the sign of zeros. On the right may be another call.
- ``Neg(f32.of(2)) -> f32[2]`` the shape. ``Neg(f32.of(2)) where (r < 0).all()`` what holds of the result `r`.
- ``Neg(f32.of(2)) prints negate(`` what its text has in it. ``Neg(pred[True]) ! message`` a refusal, in these words among others.
- ``@2 AllGather(...)`` and ``@2x4 ...`` by so many replicas, and partitions; arguments and result lie along dimension 0.
- ``hlo("f32[2] negate(p0)", f32[1, 2]) == ...`` text; without documented functions or text it is plain Python that must be true.

The entry points: *eager* calls on torch tensors, *built* with XlaBuilder and run, *text* printed, parsed and run (for errors:
the text of the instruction, without its result shape, is refused too), *XLA*: real XLA runs the same text (of a refusal: its
parser infers the shape). An entry point that does not apply is marked with the reason: ``xla=reason``. ``differs=key`` names
one of the stated differences (``differences.txt``). Other marks: ``rtol=1e-3``; ``feed=value`` and ``fetch=value``, what the
host gives and takes.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parents[1] / "documents"
ENTRY_POINTS = ("eager", "built", "text", "xla")
DOCUMENTS = {"0": "operation semantics (newest)", "1": "operation semantics (oldest)", "2": "shapes and layouts",
             "3": "operation semantics (in between)", "4": "broadcasting"}

_HEADING = re.compile(r"# (.+?) \[(\d+)\]((?: \w+=\S+)*)$")
_LINE = re.compile(r"(?:\[(\d+)\] )?(.+?) :: (.+?)(?: :: (.+))?$")
_FORMS = (" where ", " prints ", " -> ", " ! ")


@dataclasses.dataclass(frozen=True, slots=True)
class Claim:
    """One line: the sentence in short, and its check taken apart into call, form (`_FORMS`, ``==``, none) and what is wanted."""

    section: str
    documents: str
    number: int
    """Its place in its section, from 1."""
    words: str
    check: str
    call: str
    form: str
    want: str
    participants: tuple[int, int] | None
    marks: dict[str, str]
    where: str

    @property
    def name(self) -> str:
        return f"{self.section}-{self.number}"

    @property
    def names(self) -> set[str]:
        """The Python names in the check."""
        text = self.call if self.form in (" prints ", " -> ", " ! ") else f"({self.call}, {self.want or 0})"
        return {node.id for node in ast.walk(ast.parse(text, mode="eval")) if isinstance(node, ast.Name)}


@functools.cache
def claims() -> list[Claim]:
    """All claims, in the order of the files."""
    found = [claim for path in sorted(FOLDER.glob("*.claims")) for claim in claims_of(path)]
    counts = Counter[str]()
    for place, claim in enumerate(found):
        counts[claim.section] += 1
        found[place] = dataclasses.replace(claim, number=counts[claim.section])
    return found


def claims_of(path: Path) -> Iterator[Claim]:
    """The claims of one file. Raises ValueError for a line that is none."""
    sections, documents, block, words = [""], "", list[tuple[int, str]](), dict[str, str]()
    for place, line in enumerate([*path.read_text(encoding="utf-8").splitlines(), "# end [0]"], 1):
        if heading := _HEADING.match(line):
            for section in sections:
                yield from _section(section, documents, block, words, path)
            sections = heading[1].split(" ") if _is_names(heading[1]) else [heading[1]]
            documents, block, words = heading[2], [], dict(word.split("=") for word in heading[3].split())
        elif line and not line.startswith("//"):
            block.append((place, line))


def _is_names(heading: str) -> bool:
    """The heading has names of functions only; any other is one section, whose name has words."""
    return all(word[0].isupper() for word in heading.split(" "))


def _section(section: str, documents: str, block: list[tuple[int, str]], words: dict[str, str], path: Path) -> Iterator[Claim]:
    for number, (place, line) in enumerate(block, 1):
        where = f"{path.name}:{place}"
        for name, word in {"op": section, **words}.items():
            line = line.replace(f"{{{name}}}", word)
        if not (found := _LINE.match(line)):
            raise ValueError(f"{where}: not a claim: {line}")
        own, sentence, check, marks = found.groups()
        yield Claim(section, own or documents, number, sentence, check, *_taken_apart(check, where), _marks(marks), where)


def _taken_apart(check: str, where: str) -> tuple[str, str, str, tuple[int, int] | None]:
    participants = None
    if counts := re.match(r"@(\d+)(?:x(\d+))? ", check):
        participants, check = (int(counts[1]), int(counts[2] or 1)), check[counts.end():]
    for form in _FORMS:
        call, found, want = f"{check} ".partition(form)
        if found:
            return call, form, want.strip(), participants
    try:
        tree = ast.parse(check, mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"{where}: {error.msg}: {check}") from None
    if isinstance(tree, ast.Compare) and len(tree.ops) == 1 and isinstance(tree.ops[0], ast.Eq):
        return ast.unparse(tree.left), "==", ast.unparse(tree.comparators[0]), participants
    return check, "", "", participants


def _marks(text: str | None) -> dict[str, str]:
    return dict(mark.split("=", 1) for mark in text.split("; ")) if text else {}


class Difference(NamedTuple):
    """A place where the documents say one thing and real XLA does another, or where they leave it open."""

    documents: str
    xla: str
    followed: str
    why: str


def differences() -> dict[str, Difference]:
    """The stated differences by the keys that claims' marks ``differs=key`` name."""
    lines = (FOLDER / "differences.txt").read_text(encoding="utf-8").splitlines()[1:]
    return {key: Difference(*words) for key, *words in (line.split(" | ") for line in lines)}
