"""Runs the notebooks and stores what they print and draw. Look at the pictures before they are committed.

    make notebooks                          # all
    make notebooks ARGS="notebooks/03*"     # some

Texts that still fit, numbers up to rounding, stay as they are: what changes is what is new. Where something differs from run to
run, ``...`` may be written by hand.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from support.notebooks import NOTEBOOKS, executed, read, renewed, text_of


def main(paths: list[Path]) -> int:
    for path in paths:
        began = time.monotonic()
        path.write_text(text_of(renewed(executed(path), read(path))), encoding="utf-8")
        print(f"{path.name}: {time.monotonic() - began:.0f} s, {path.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main([Path(name).resolve() for name in sys.argv[1:]] or NOTEBOOKS))
