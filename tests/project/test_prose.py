"""The documentation uses technical names, begins each page with its subject and its readers, and keeps sentences short."""

from __future__ import annotations

import ast
import importlib
import json
import re
from pathlib import Path

import pytest

from xla_torch import custom_calls
from xla_torch.core.types import PrimitiveType
from xla_torch.hlo.schema import OPS
from xla_torch.passes import passes
from xla_torch.storage.dtypes import _DTYPES

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
READMES = [ROOT / folder / "README.md" for folder in (
    "grad_rules", "tests/benchmarks", "tests/documents", "tests/fuzz", "tests/zoo", "xla_torch/opcodes", "xla_torch/ops")]
OPENED = [*(page for page in sorted((ROOT / "docs").rglob("*.md")) if page not in DECISIONS), *READMES, *NOTEBOOKS,
          *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "xla_torch/hlo/SPEC.md",
                                     "tests/documents/accuracy.md"))]
"""Pages that begin with what they cover and for whom; decisions and the changelog have forms of their own."""
PAGES = [*OPENED, *DECISIONS, ROOT / "CHANGELOG.md"]

METAPHORS = r"doors?|rooms?|houses?|floors?|strangers?|so told|at hand|elsewhere"
LITERAL: dict[str, int] = {}
"""How often a page uses one of these words in its literal sense outside of code, such as the floor of a number."""
MOST_WORDS = 35
WIDEST_CODE = 80

FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.M | re.S)
_CODE = re.compile(r"``.+?``|`[^`]*`", re.S)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_END = re.compile(r"(?<=[.?!])[\"')*]*\s+(?=[*\"'(]*[A-Z0-9`\[])")


def read(page: Path) -> str:
    """The text of a page; of a notebook, its Markdown."""
    text = page.read_text(encoding="utf-8")
    if page.suffix != ".ipynb":
        return text
    return "\n\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown")


def prose(text: str) -> str:
    """A page without code, tables, headings and the targets of links. What stands as code in a line becomes one word."""
    text = _LINK.sub(r"\1", _CODE.sub("Code", FENCED.sub("\n", text)))
    return "\n".join(line for line in text.splitlines() if not re.match(r"\s*(\||#|<)", line))


def paragraphs(text: str) -> list[str]:
    """Each paragraph and each item of a list as one line."""
    items = re.sub(r"^\s*(?:[-*]|\d+\.) ", "\n\n", prose(text), flags=re.M)
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", items) if part.strip()]


def sentences(text: str) -> list[str]:
    return [sentence for paragraph in paragraphs(text) for sentence in _END.split(paragraph)]


def metaphors(text: str) -> list[str]:
    return re.findall(rf"\b(?:{METAPHORS})\b", prose(text), re.I)


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_a_page_has_no_metaphors_for_names(page: Path):
    found = metaphors(read(page))
    assert len(found) == LITERAL.get(named(page), 0), found


@pytest.mark.parametrize("page", OPENED, ids=named)
def test_a_page_begins_with_what_it_covers_and_for_whom(page: Path):
    first = paragraphs(read(page))[0]
    assert len(_END.split(first)) == 2, first
    assert re.search(r"\bfor\b", first), first


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_sentences_are_short(page: Path):
    assert [sentence for sentence in sentences(read(page)) if len(sentence.split()) > MOST_WORDS] == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_python_fits_its_column(page: Path):
    blocks = [code for _, language, code in FENCED.findall(read(page)) if language in ("python", "py")]
    assert [line for code in blocks for line in code.splitlines() if len(line) > WIDEST_CODE] == []


@pytest.mark.parametrize(("text", "found"), [
    ("Users come in by the doors of the house.", ["doors", "house"]),
    ("A stranger may be so told.", ["stranger", "so told"]),
    ("`floor` and ``x.floor()`` round down.\n\n```python\nx.floor()\n```\n", []),
    ("| floor | rounds down |", []),
    ("An outdoor mushroom.", []),
])
def test_metaphors_are_found_outside_of_code(text: str, found: list[str]):
    assert metaphors(text) == found


@pytest.mark.parametrize(("text", "count"), [
    ("One. Two.", 2),
    ("It reads `a.b`. It takes 1.5 s, e.g. now.", 2),
    ("- One item\n- another. And more.\n", 3),
    ("It ends\nhere. **Bold** begins.", 2),
    ("| a. B. | c |\n", 0),
])
def test_sentences_are_split(text: str, count: int):
    assert len(sentences(text)) == count


# ------------------------------------------------------------------------------------------------ reference pages

CONFIGURATION = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")


def test_every_environment_variable_has_a_section():
    sources = (path.read_text(encoding="utf-8") for path in (ROOT / "xla_torch").rglob("*.py"))
    used = {name for source in sources for name in re.findall(r"\b_?XLA_TORCH_[A-Z_]+", source)}
    assert {*re.findall(r"^### (\S+)$", CONFIGURATION, re.M)} == used | {"CC"}


def test_every_pass_that_can_be_left_out_is_named():
    section = CONFIGURATION.partition("### XLA_TORCH_WITHOUT_PASSES")[2].partition("\n### ")[0]
    assert {*re.findall(r"`([^`]+)`", section)} - {"python -m xla_torch show FILE --passes"} == {*passes._NAMES}


FEATURES = (ROOT / "docs/supported-features.md").read_text(encoding="utf-8")


def test_the_page_of_features_counts_opcodes_and_custom_calls():
    assert f"All {len(OPS)} HLO opcodes" in FEATURES
    targets = [target for library in custom_calls._LIBRARIES
               for target in importlib.import_module(f"xla_torch.custom_calls.{library}").MEANINGS]
    assert f"{len(targets)} known targets" in FEATURES
    assert [target for target in targets if custom_calls.meaning_of(target) is None] == []


@pytest.mark.parametrize("element_type", _DTYPES, ids=lambda t: t.name)
def test_the_page_of_features_has_every_element_type(element_type: PrimitiveType):
    assert f"`{element_type.name.lower()}`" in FEATURES


SOURCES = [path for folder in ("xla_torch", "grad_rules", "tests") for path in sorted((ROOT / folder).rglob("*.py"))]
NOT_IN_NAMES = {"door", "doors", "room", "rooms", "house", "stranger", "strangers", "plainly", "glance", "told", "said"}


def assigned(source: str) -> set[str]:
    """The names of functions, classes, parameters and variables that a file defines."""
    nodes = [*ast.walk(ast.parse(source))]
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)} | {
        node.arg for node in nodes if isinstance(node, ast.arg)} | {
        node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}


def test_names_in_the_code_are_technical():
    found = [f"{named(path)}: {name}" for path in SOURCES for name in sorted(assigned(path.read_text(encoding="utf-8")))
             if NOT_IN_NAMES & {*name.lower().split("_")}]
    assert found == []


@pytest.mark.parametrize(("source", "names"), [
    ("def is_told(a): b = 1", {"is_told", "a", "b"}),
    ("class Door:\n  _room = f(house=1)", {"Door", "_room"}),
    ("def f(*rest, key=None): return [x for x in rest]", {"f", "rest", "key", "x"}),
])
def test_names_are_found_where_they_are_defined(source: str, names: set[str]):
    assert assigned(source) == names


def test_every_page_is_under_these_rules():
    patterns = "*.md", "docs/**/*.md", "tests/*/*.md", "xla_torch/**/*.md", "grad_rules/*.md", "notebooks/*.ipynb"
    pages = {page for pattern in patterns for page in ROOT.glob(pattern)}
    assert sorted(pages - {*PAGES}) == []
