"""What XLA's parser takes is taken, and what it refuses is refused: 3,700 texts, whose verdicts are stored with them.

Where the two disagree a line of `support/text_rows.py` says why."""

from __future__ import annotations

import pytest

import xla_torch.opcodes.front  # noqa: F401  (the schemas)
from support import oracle
from support.text_rows import excused, rows
from xla_torch.errors import XlaError
from xla_torch.hlo.parser import parse_hlo
from xla_torch.hlo.verifier import verify


def _taken(text: str, verified: bool) -> bool:
    """By the parser, and the verifier: much that XLA's parser refuses is refused there."""
    try:
        module = parse_hlo(text)
        if verified:
            verify(module)
    except XlaError:
        return False
    return True


def test_texts_are_taken_as_by_xla() -> None:
    wrong = [(messages, text[-300:]) for messages, text in rows()
             if (taken := _taken(text, messages != "taken")) != (messages == "taken") and not excused(text, taken)]
    assert not wrong, f"{len(wrong)}: " + "\n".join(map(str, wrong[:20]))


@oracle.needs_xla
@pytest.mark.slow
def test_what_is_stored_is_what_xla_says() -> None:
    assert [text for messages, text in rows() if (oracle.xla_accepts(text) is None) != (messages == "taken")] == []
