"""The generated page of the claims: each with its check and the entry points in which it holds, and the stated differences."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from support import tables
from support.claim_entry_points import ENTRY_POINTS, entry_points
from support.claims import DOCUMENTS, Claim, claims, differences
from support.value_differences import KINDS, value_differences

PAGE = Path("tests/documents/README.md")

_PREFACE = """\
# What the documents say, claim by claim

This page lists the statements of XLA's documents with a test of each. It is for people who want to check that xla_torch
follows them.

Each row is a short form of a sentence and the check that it holds. `test_documents.py` runs every check. The rows are stored
in the `*.claims` files of this folder, in the format that `tests/support/claims.py` defines. `make pages` writes this page.

- **in**: the documents that contain the sentence: {documents}.
- **check**: a call and its result (`==`), shape (`->`), a property of its result `r` (`where`), its text (`prints`) or its
  error (`!`). `f32[1, 2]` is an argument, `f32.of(2, 3)` an array of these sizes, and `@2` means two replicas.
- **entry points**: **e** eager, on torch tensors; **b** built and run; **t** printed, parsed and run; **x** XLA agrees. The
  reason for a missing entry point follows it.
- **differs**: the key of a row of the stated differences below. A second table lists values that differ from XLA's.

"""


def of_functions(names: Iterable[str]) -> list[str]:
    """The sections of these functions; the halves of an operation are in its own, as variants for tuples and participants are."""
    known = {claim.section for claim in claims()}
    short = (name if name in known else _VARIANT.sub("", name) for name in names)
    return [section for section in dict.fromkeys(short) if section in known]


_VARIANT = re.compile(r"Start$|Done$|Update$|Tuple$|With\w*$|InDim$|R\d$")


def anchor(section: str) -> str:
    """The section's place on the page."""
    return "".join(c for c in section.lower().replace(" ", "-") if c.isalnum() or c in "-_")


def markdown() -> str:
    """The page."""
    found = claims()
    documents = "; ".join(f"**{d}** {name}" for d, name in DOCUMENTS.items())
    parts = [_PREFACE.format(documents=documents), _counts(found), _differences(), _value_differences()]
    ordered = sorted(found, key=lambda claim: (claim.section.casefold(), claim.number))
    for section, members in groupby(ordered, key=lambda claim: claim.section):
        parts.append(f"## {section}\n\n" + table_of(members))
    return "\n".join(parts)


def table_of(members: Iterable[Claim]) -> str:
    """A line for each claim."""
    return tables.markdown(("claim", "in", "check", "entry_points"), map(_cells, members))


def _counts(found: Sequence[Claim]) -> str:
    holds = Counter(entry_point for claim in found for entry_point, state in entry_points(claim).items() if state == "yes")
    of_documents = Counter(d for claim in found for d in claim.documents)
    return (f"{len(found)} claims in {len({c.section for c in found})} sections. They hold "
            + ", ".join(f"{holds[entry_point]} times {words}" for entry_point, words in zip(
                ENTRY_POINTS, ("eagerly", "built", "as text", "with real XLA beside"), strict=True))
            + ". By document: " + ", ".join(f"{d} {of_documents[d]}" for d in sorted(of_documents)) + ".\n")


def _differences() -> str:
    lines = [(key, *difference) for key, difference in differences().items()]
    return "## Stated differences\n\n" + tables.markdown(("key", "the documents", "real XLA", "followed", "why"), lines)


def _value_differences() -> str:
    lines = [(KINDS[d.kind], d.title, d.xla, d.here, "<br>".join(f"`{e.call}`: {_side(e.here)}, XLA {_side(e.there)}"
                                                                 for e in d.examples)) for d in value_differences()]
    return ("## Values that differ from XLA's\n\nThese values differ from those of XLA's CPU code. "
            "`tests/hlo/test_values_as_xla.py` tests both sides of each example, so it fails when XLA changes.\n\n"
            + tables.markdown(("", "where", "real XLA", "here", "examples"), lines))


def _side(side: str) -> str:
    return "refused" if side.startswith("! ") else side if side == "taken" else f"`{side}`"


def _cells(claim: Claim) -> tuple[str, ...]:
    state = entry_points(claim)
    marks = "".join(entry_point[0] for entry_point in ENTRY_POINTS if state[entry_point] == "yes")
    reasons = dict.fromkeys(f"{entry_point[0]}: {why}" for entry_point, why in state.items() if why not in ("yes", "text",
                                                                                                            "shapes"))
    if "differs" in claim.marks:
        reasons[f"**differs** {claim.marks['differs']}"] = None
    return claim.words, claim.documents, f"`{claim.check}`", "; ".join([f"**{marks}**", *reasons])
