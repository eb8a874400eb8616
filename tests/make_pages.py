"""Writes tests/data/pages: what the page of a program looks like in Chromium. Look at the pictures before they are committed."""

from __future__ import annotations

import tempfile
from pathlib import Path

from support.chromium import REFERENCES, SCREENS, screenshot

if __name__ == "__main__":
    REFERENCES.mkdir(exist_ok=True)
    for name in SCREENS:
        with tempfile.TemporaryDirectory() as folder:
            screenshot(name, Path(folder)).quantize(200).save(REFERENCES / f"{name}.png", optimize=True)
