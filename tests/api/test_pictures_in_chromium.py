"""The page of a program as Chromium shows it: 300 and 10,000 instructions, light and dark, held against stored screenshots.

``python tests/make_pages.py`` takes them anew.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.chromium import REFERENCES, SCREENS, apart, needs_chromium, screenshot

pytestmark = needs_chromium
image = pytest.importorskip("PIL.Image")

MOST = 0.04
"""The difference that is still the same picture: another group that is open, or other colours, are more."""


@pytest.mark.parametrize("name", SCREENS)
def test_the_page_looks_as_it_did(name: str, tmp_path: Path):
    assert apart(screenshot(name, tmp_path), image.open(REFERENCES / f"{name}.png").convert("RGB")) < MOST


def test_other_screens_are_further_apart():
    stored = {name: image.open(REFERENCES / f"{name}.png").convert("RGB") for name in SCREENS}
    pairs = {(a, b): apart(stored[a], stored[b]) for a in stored for b in stored if a < b}
    assert min(pairs.values()) > 2 * MOST, pairs
