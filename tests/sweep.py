"""Runs every row of the op table with every element type against real XLA, and writes what came out.

    make sweep
    python tests/sweep.py [--examples 20] [--only NAME] [--write]

Prints a line for each row and each failure in full. `--write` puts the result into `xla_torch/ops/README.md`; without it the
page stays as it is. `page` is also what the tests compare the page with, up to the measured columns.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import multiprocessing
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from support.op_rows import FAMILIES, ROWS, Outcome, Row, check
from support.op_rows.kinds import EVERYTHING

PAGE = Path(__file__).parent.parent / "xla_torch" / "ops" / "README.md"
COMMAND = "make sweep"
HEADER = f"""\
# The documented functions, against real XLA

This page compares the documented functions with XLA on random examples. It is for people who want to know how closely the
results agree.

`{COMMAND}` writes it. Each row is tested with every element type that it names. The shapes include sizes 0 and 1, and the values
include limits, infinities and NaN.

Each example runs in three ways: as a built computation, as HLO text that is parsed again, and eagerly on torch tensors if
torch has the type. All three must give the same bits. The expected result is that of XLA on the CPU. If XLA's CPU compiler
cannot run the op or contradicts the documents, it is that of a NumPy formula.

- **tolerance**: 0 means equal bits. Other numbers are units in the last place, *of the largest* element if XLA leaves the
  order of a sum open. **furthest** is the largest measured difference.
- **types**: the groups are *integers* (s2 to u64), *floats* (f4e2m1fn to f64), *complex* (c64, c128), *all* (these and pred).
"""


def type_names(types: tuple[str, ...]) -> str:
    """Element types in few words: the groups they fill, and those that are left."""
    left = dict.fromkeys(types)
    words = []
    for group, members in GROUPS.items():
        if all(m in left for m in members):
            words.append(group)
            left = {t: None for t in left if t not in members}
    return " ".join([*words, *left])


def page(outcomes: dict[tuple[str, str], Outcome | str]) -> str:
    """The whole page. Without outcomes the measured columns are empty."""
    lines = [HEADER]
    for family, rows in FAMILIES.items():
        lines += [f"## {family}", "", "| function | types | tolerance | examples | at once | furthest | decided by |",
                  "| --- | --- | --- | --- | --- | --- | --- |", *(_line(row, outcomes) for row in rows), ""]
    return "\n".join(lines)


def _line(row: Row, outcomes: dict[tuple[str, str], Outcome | str]) -> str:
    found = [o for kind in row.types if isinstance(o := outcomes.get((row.name, kind)), Outcome)]
    functions = ", ".join(f"`{name}`" for name in row.functions.split())
    tolerance = f"{row.ulps:g}{' of the largest' if row.of_largest else ''}"
    measured = [f"{sum(o.examples for o in found)}", f"{sum(o.eager for o in found)}",
                f"{max((o.ulps for o in found), default=0):.3g}"] if found else ["", "", ""]
    return f"| {functions} {row.variant} | {type_names(row.types)} | {tolerance} | {' | '.join(measured)} | {_judge(row)} |"


def stated(text: str) -> list[tuple[str, ...]]:
    """The lines of a page without their measured columns."""
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| `")]
    return [(*cells[:3], cells[-1]) for cells in rows]


def _judge(row: Row) -> str:
    if row.disputed:
        reasons = dict.fromkeys(row.disputed.values())
        each = ("; ".join(f"{' '.join(k for k, r in row.disputed.items() if r == reason)}: {reason}" for reason in reasons))
        return f"XLA; a formula for {each}"
    return "a formula" if row.reference else "XLA"


def _run(task: tuple[int, str, int]) -> tuple[int, str, Outcome | str]:
    number, kind, examples = task
    try:
        return number, kind, check(ROWS[number], kind, examples)
    except Exception as error:  # a row may fail in any way; the report says how
        return number, kind, f"{type(error).__name__}: {error}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=20, help="of each row and element type")
    parser.add_argument("--only", default="", help="rows whose name holds this")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    start = time.time()
    tasks = [(n, kind, options.examples) for n, row in enumerate(ROWS) if options.only in row.name for kind in row.types]
    outcomes: dict[tuple[str, str], Outcome | str] = {}
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count(), mp_context=spawn) as pool:
        for number, kind, outcome in pool.map(_run, tasks, chunksize=8):
            outcomes[ROWS[number].name, kind] = outcome
            if isinstance(outcome, str):
                print(f"FAILED {ROWS[number].name} {kind}\n{outcome}\n", flush=True)
    failed = sum(isinstance(o, str) for o in outcomes.values())
    examples = sum(o.examples for o in outcomes.values() if isinstance(o, Outcome))
    rows = len({name for name, _ in outcomes})
    print(f"{rows} rows, {len(outcomes)} pairs of row and element type, {examples} examples, {failed} failed, "
          f"{time.time() - start:.0f} s")
    if options.write and not options.only and not failed:
        summary = f"{rows} rows, {len(outcomes)} pairs of row and element type, {examples} examples: all agree."
        PAGE.write_text(page(outcomes).replace(HEADER, f"{HEADER}\n{summary}\n"), encoding="utf-8")
        print(f"written: {PAGE.name}")
    return 1 if failed else 0


GROUPS = {
    "all": EVERYTHING[:-1],
    "integers": tuple(t for t in EVERYTHING if t[0] in "su"),
    "floats": tuple(t for t in EVERYTHING[:-1] if t[0] in "fb"),
    "complex": ("c64", "c128"),
}

if __name__ == "__main__":
    sys.exit(main())
