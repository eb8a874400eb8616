"""Every claim of the documents holds in every entry point that applies, and the claims cover the documents."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import claim_entry_points
from support.claims import DOCUMENTS, Claim, claims, differences
from support.document_signatures import FORMS
from xla_torch import ops
from xla_torch.distributed import feeds

CLAIMS = claims()
SOURCES = Path(__file__).parents[3] / "shared" / "spec" / "documents"


@pytest.fixture(autouse=True)
def nothing_fed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(feeds, "timeout", 5.0)
    feeds.clear()
    yield
    feeds.clear()


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_claim_holds(claim: Claim) -> None:
    try:
        claim_entry_points.check(claim)
    except BaseException as error:
        error.add_note(f"{claim.where}: {claim.words} :: {claim.check}")
        raise


# ------------------------------------------------------------------------------------------------- that they are all


def test_there_are_a_thousand() -> None:
    assert len(CLAIMS) >= 1000
    assert len({(claim.section, claim.words, claim.check) for claim in CLAIMS}) == len(CLAIMS)
    assert {d for claim in CLAIMS for d in claim.documents} == DOCUMENTS.keys()


def test_every_documented_function_has_claims() -> None:
    """Every function that the documents print a form of."""
    printed = {form.split("(")[0].split(" ")[-1] for form in FORMS}
    called = {name for claim in CLAIMS for name in claim.names}
    assert sorted(printed - called - WITHOUT) == []
    assert sorted(WITHOUT & called) == []


WITHOUT = {
    "InfeedWithToken", "RecvToHost", "RecvWithTokens", "SendToHost", "SendWithTokens",
}
"""Named in passing, beside the function whose section it is."""


def test_every_section_of_the_documents_has_claims() -> None:
    """The documents' sections: newest ones refer to XlaBuilder's function, or HloInstruction's, older ones are headed by it."""
    if not SOURCES.exists():
        pytest.skip("the documents are not here")
    texts = [path.read_text(encoding="utf-8") for path in SOURCES.glob("*.txt")]
    reference = re.compile(r"(?:XlaBuilder::|HloInstruction::(?:Create)?)([A-Za-z0-9]+)")
    referred = {name for text in texts for name in reference.findall(text)}
    known = {claim.section for claim in CLAIMS} | {name for claim in CLAIMS for name in claim.names}
    halves = {"AllGatherStart", "AllReduceStart", "CollectivePermuteStart", "AsyncStart", "AsyncUpdate", "AsyncDone"}
    assert sorted(referred - known - halves) == []


def test_stated_differences_are_met() -> None:
    named = {claim.marks["differs"] for claim in CLAIMS if "differs" in claim.marks}
    assert sorted(named ^ differences().keys()) == []
    assert len(" ".join(map(" ".join, differences().values())).split()) < 1000, "to be read in five minutes"


def test_marks_are_known() -> None:
    known = {*claim_entry_points.ENTRY_POINTS, "differs", "rtol", "feed", "fetch"}
    assert [(claim.where, claim.marks) for claim in CLAIMS if claim.marks.keys() - known] == []


def test_the_names_in_checks_are_known() -> None:
    functions = {name for name, value in vars(ops).items() if name[0].isupper() and inspect.isfunction(value)}
    assert len({name for claim in CLAIMS for name in claim.names} & functions) > 140
