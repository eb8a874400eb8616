"""The documentation uses technical names, begins each page with its subject and its readers, and keeps sentences short."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from xla_torch import custom_calls
from xla_torch.core.types import PrimitiveType
from xla_torch.hlo.schema import OPS
from xla_torch.passes import passes
from xla_torch.storage.dtypes import _DTYPES

ROOT = Path(__file__).parents[2]
DOCS = [*sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "tutorials").glob("*.md"))]
OTHERS = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "docs/how-it-works/README.md")]
PAGES = [*DOCS, *OTHERS]
"""Pages under these rules. A page joins the list when it has been rewritten."""

METAPHORS = r"doors?|rooms?|houses?|floors?|strangers?|so told|at hand|elsewhere"
LITERAL: dict[str, int] = {}
"""How often a page uses one of these words in its literal sense outside of code, such as the floor of a number."""
MOST_WORDS = 40
WIDEST_CODE = 80

FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.M | re.S)
_CODE = re.compile(r"``.+?``|`[^`]*`", re.S)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_END = re.compile(r"(?<=[.?!])[\"')*]*\s+(?=[*\"'(]*[A-Z0-9`\[])")


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
    found = metaphors(page.read_text(encoding="utf-8"))
    assert len(found) == LITERAL.get(named(page), 0), found


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_a_page_begins_with_what_it_covers_and_for_whom(page: Path):
    first = paragraphs(page.read_text(encoding="utf-8"))[0]
    assert len(_END.split(first)) == 2, first
    assert re.search(r"\bfor\b", first), first


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_sentences_are_short(page: Path):
    text = page.read_text(encoding="utf-8")
    assert [sentence for sentence in sentences(text) if len(sentence.split()) > MOST_WORDS] == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_python_fits_its_column(page: Path):
    blocks = [code for _, language, code in FENCED.findall(page.read_text(encoding="utf-8")) if language in ("python", "py")]
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
def test_sentences_are_told_apart(text: str, count: int):
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
    assert f"{len(custom_calls._meanings())} known targets" in FEATURES


@pytest.mark.parametrize("element_type", _DTYPES, ids=lambda t: t.name)
def test_the_page_of_features_has_every_element_type(element_type: PrimitiveType):
    assert f"`{element_type.name.lower()}`" in FEATURES
