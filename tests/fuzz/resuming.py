"""What a long run has found, kept in a file: a JSON line for each batch of programs, and the next run goes on behind the last."""

from __future__ import annotations

import collections
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class Batches:
    """Counts and findings of batches, one after another from `first` on; in a file where there is one.

    Raises ValueError where the file is of another run: of other programs, or of such that ran `how` this one does not.
    """

    def __init__(self, first: int, how: Sequence[str] = (), path: Path | None = None):
        self.next, self.how, self.path = first, list(how), path
        self.counts: collections.Counter[str] = collections.Counter()
        self.reasons: collections.Counter[str] = collections.Counter()
        for batch in [] if path is None else self._read(path):
            if batch["from"] != self.next or batch["how"] != self.how:
                raise ValueError(f"{path} goes on with {batch['from']} {batch['how']} where this run has {self.next} {self.how}")
            self._count(batch)

    def _read(self, path: Path) -> list[dict[str, Any]]:
        """The whole lines; what a run had not written to its end is cut off."""
        written = path.read_bytes() if path.exists() else b""
        whole = written[:written.rfind(b"\n") + 1]
        if len(whole) < len(written):
            path.write_bytes(whole)
        return [json.loads(line) for line in whole.splitlines()]

    def _count(self, batch: dict[str, Any]) -> None:
        self.next = batch["to"]
        self.counts.update(batch["counts"])
        self.reasons.update(batch["reasons"])

    def add(self, to: int, seconds: float, heard: Sequence[tuple[str, int, str]]) -> None:
        """Programs up to `to` are done, and this was heard of them."""
        counts: collections.Counter[str] = collections.Counter()
        reasons: collections.Counter[str] = collections.Counter()
        for kind, number, messages in heard:
            counts[kind] += number if kind == "agree" else 1
            if kind in EXPLAINED:
                reasons[f"{kind}: {messages[:90]}"] += 1
        findings = [{"number": n, "kind": kind, "messages": messages} for kind, n, messages in heard if kind in FINDINGS]
        numbers = [[kind, n] for kind, n, _ in heard if kind in EXPLAINED]
        batch = {"from": self.next, "to": to, "how": self.how, "seconds": round(seconds, 1), "counts": counts, "reasons": reasons,
                 "numbers": numbers, "findings": findings}
        self._count(batch)
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(batch) + "\n")

    @property
    def found(self) -> bool:
        return any(self.counts[kind] for kind in FINDINGS)


FINDINGS = ("differ", "died")
EXPLAINED = ("refused", "unsaid", "known", "inexpressible")
"""Not tried to the end, or not the same, for reasons that are counted."""
