"""What compares programs: `diff`."""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from typing import Any

from ..api.dumps import paired, stages
from ..core import progress
from ..core.errors import InvalidArgument
from ..debug.files import DIFFERENT, Difference, difference
from .inputs import drawn
from .messages import Message

_WORDS = ("equal", "differs", "not compared")


def diff(file: Path, other: Path | None, tolerance: float, random: int) -> Message:
    """Results of two programs, of the modules of two dumps, or of each stage and the next of a dump's modules."""
    found: list[tuple[str, Path | None, Path | None, Difference]] = []
    for label, first, second in _pairs(file, other):
        if first is None or second is None:
            found.append((label, first, second, Difference(f"only in {file if second is None else other}", DIFFERENT)))
            continue
        with progress.doing(f"comparing {label or f'{first.name} and {second.name}'}"):
            found.append((label, first, second, difference(first, second, partial(drawn, random), tolerance)))
    status = max((of.status for *_, of in found), default=0)
    return Message(lambda: "\n".join(f"{label}: {of.words}" if label else of.words for label, _, _, of in found),
                lambda: {"status": _WORDS[status], "pairs": [_facts(*one) for one in found]}, status)


def _facts(label: str, first: Path | None, second: Path | None, found: Difference) -> dict[str, Any]:
    return {"label": label, "first": first and str(first), "second": second and str(second), "status": _WORDS[found.status],
            "results": [{"number": number, "difference": by} for number, by in found.results], "words": found.words}


def _pairs(first: Path, second: Path | None) -> list[tuple[str, Path | None, Path | None]]:
    if second is None and not first.is_dir():
        raise InvalidArgument("diff needs two programs, or a folder of dumps", subject="diff", got=first,
                              expected="two files, or a folder of --xla_dump_to")
    if second is not None and first.is_dir() != second.is_dir():
        raise InvalidArgument("diff cannot compare a folder and a file", subject="diff", got=f"{first} and {second}",
                              expected="two files, or two folders of --xla_dump_to")
    if second is None:
        return [(f"module {y.module}: {x.stage} -> {y.stage}", x.path, y.path)
                for x, y in itertools.pairwise(stages(first)) if x.module == y.module]
    return paired(first, second) if first.is_dir() else [("", first, second)]
