"""Notebooks stand with what they print and draw, and it is what they print and draw now."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from support.expected import fits
from support.notebooks import (
    FOLDER,
    LARGEST_PICTURE,
    NOTEBOOKS,
    code_cells,
    differences,
    executed,
    read,
    renewed,
    stored_form,
    text_of,
)

FAST = "00", "01"
RUN = [pytest.param(p, id=p.name, marks=[] if p.name.startswith(FAST) else pytest.mark.slow) for p in NOTEBOOKS]


@pytest.mark.parametrize("path", RUN)
def test_notebooks_show_what_is_stored(path: Path):
    """Where a notebook or what it shows was changed: make notebooks."""
    assert "\n\n".join(differences(executed(path), read(path))) == ""


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.name)
def test_notebooks_are_stored_clean(path: Path):
    notebook = read(path)
    cells = code_cells(notebook)
    assert any("assert " in line for cell in cells for line in cell["source"])
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert not [o for o in outputs if o["output_type"] == "error" or o.get("name") == "stderr"]
    pictures = ["".join(o["data"]["image/png"]) for o in outputs if "image/png" in o.get("data", {})]
    assert pictures
    assert max(len(picture) * 3 // 4 for picture in pictures) < LARGEST_PICTURE
    assert not re.search(r"\b0x[0-9a-f]{8,}", text_of(notebook)), "an address differs from run to run"
    unpictured = [{**cell, "outputs": []} for cell in notebook["cells"]]
    assert stored_form({**notebook, "cells": unpictured}) == {**notebook, "cells": unpictured}
    assert path.read_text(encoding="utf-8") == text_of(notebook)


def test_readme_and_site_name_every_notebook():
    for page in ("README.md", "mkdocs.yml"):
        text = (FOLDER.parent / page).read_text()
        assert [p.name for p in NOTEBOOKS if f"notebooks/{p.name}" not in text] == [], page


# ------------------------------------------------------------------------------------------------- the comparison


@pytest.mark.parametrize(("messages", "expected", "same"), [
    ("a 1.5 b\n", "a ... b\n", True),
    ("a 1.5 c\n", "a ... b\n", False),
    ("a 1.51 b\n", "a 1.5 b\n", False),
])
def test_texts_fit_exactly(messages: str, expected: str, same: bool):
    assert fits(messages, expected) is same


@pytest.mark.parametrize(("messages", "expected", "same"), [
    ("loss 1.501", "loss 1.500", True),
    ("loss 1.6", "loss 1.5", False),
    ("loss nan", "loss 1.5", False),
    ("loss 1.5", "loss nan", False),
    ("by 2.1e-07 at most", "by 6.0e-06 at most", True),  # what rounding leaves
    ("by 2.1e-03 at most", "by 6.0e-06 at most", False),
    ("by 0.0 at most", "by 6.0e-06 at most", True),
    ("-0.5", "0.5", False),
    ("tensor([ 0.25, 1.])", "tensor([0.2501, 1.0000])", False),  # a word less
    ("16 steps", "17 steps", False),  # counts are no subject to rounding
    ("%add.28 = f32[8]", "%add.29 = f32[8]", False),
    ("%add.28.1", "%add.28.2", False),
    ("12 ms, 3 steps", "... ms, 3 steps", True),
    ("12 ms, 4 steps", "... ms, 3 steps", False),
    ("1.0   2.0\n", "1.0 2.0", True),
])
def test_texts_fit_up_to_rounding(messages: str, expected: str, same: bool):
    assert fits(messages, expected, relative=0.02, absolute=1e-4) is same


def notebook(*outputs: dict[str, Any]) -> dict[str, Any]:
    return {"cells": [{"cell_type": "code", "id": "cell-0", "source": [], "outputs": list(outputs)}]}


def picture(width: int) -> dict[str, Any]:
    import base64
    import struct

    header = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, 40)
    return {"output_type": "display_data", "data": {"image/png": base64.b64encode(header).decode()}, "metadata": {}}


def printed(text: str) -> dict[str, Any]:
    return {"output_type": "stream", "name": "stdout", "text": [text]}


@pytest.mark.parametrize(("made", "stored", "same"), [
    ([printed("1.501")], [printed("1.500")], True),
    ([printed("2.5")], [printed("1.5")], False),
    ([], [printed("1.5")], False),
    ([printed("1.5")], [], False),
    ([picture(100)], [picture(101)], True),
    ([picture(100)], [picture(150)], False),
    ([picture(100)], [], False),
    ([printed("1.5")], [picture(100)], False),
    ([{**printed("1.5"), "name": "stderr"}], [printed("1.5")], False),
])
def test_a_notebook_that_shows_something_else_is_found(made: list[Any], stored: list[Any], same: bool):
    assert (differences(notebook(*made), notebook(*stored)) == []) is same


def test_what_still_fits_stays():
    stored = notebook(printed("... ms"), picture(101), printed("old"))
    made = renewed(notebook(printed("12 ms"), picture(100), printed("new")), stored)
    assert made["cells"][0]["outputs"] == [printed("... ms"), picture(100), printed("new")]
