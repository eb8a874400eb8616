"""Measures how accurate elementwise functions are, and writes what came out.

    make accuracy
    python tests/accuracy.py [--only NAME] [--write]

Prints a line for each function and floating type. `--write` puts them into `tests/documents/accuracy.md`, to whose figures a
test holds some of the points.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from support.accuracy import FUNCTIONS, PAGE, POINTS, TYPES, Function, of_torch, of_xla, ours

HEADER = f"""\
# How accurate elementwise functions are

This page gives the largest error of each elementwise function, beside those of torch and XLA. It is for people who choose a
tolerance.

`make accuracy` wrote it on DATE. The errors are in units in the last place of the exact value, which mpmath computes; 0.5 is the
best that a type allows. Each is the largest error over {POINTS} random numbers and the ends of the domain in
`tests/support/accuracy.py`. Exact values that overflow or are subnormal are excluded.

Near the zeros of Lgamma (at 1 and 2) and of Digamma, one unit of the result is far smaller than one unit of its terms. XLA has
equally large errors there.

| function | type | here | torch | XLA |
| --- | --- | --- | --- | --- |
"""


def line(function: Function, kind: str) -> str:
    figures = [_figure(measure(function, kind)) for measure in (ours, of_torch, of_xla)]
    return f"| {function.name} | {kind} | {' | '.join(figures)} |"


def _figure(ulps: float | None) -> str:
    return "" if ulps is None else f"{ulps:.2f}" if ulps < 1000 else f"{ulps:.3e}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="functions with this in their name")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name} anew")
    given = parser.parse_args()
    if given.write and given.only:
        parser.error("the page has all functions: --write goes without --only")
    lines = []
    for function in FUNCTIONS:
        for kind in TYPES if given.only in function.name else ():
            lines.append(line(function, kind))
            print(lines[-1], flush=True)
    if given.write:
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        PAGE.write_text(HEADER.replace("DATE", today) + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
