"""How long a program takes to its first result and until it is as fast as it gets, with nothing on disk: ours, XLA's CPU and
torch by hand under torch.compile.

    python tests/benchmarks/first_seconds.py [--seconds 6] [--limit 90] [--only SUBSTRING] [--write]

Each has a process of its own and fresh folders for what is compiled. Seconds begin with a function (ours are from `from_jax` on),
when all libraries are loaded. Ours runs in Python and torch while the C compiler works; steady is when calls begin that take no
more than 10 % above the median of the last half of all, within `--seconds` of calls.
"""

from __future__ import annotations

import json
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks.cases import CASES, COMPILED, TRAINING_STEPS
from benchmarks.measuring import Run, Table, in_child, parser, timed

PROGRAMS = ["elementwise chain, 4M", "softmax rows", "sort, 1M", "scatter-add rows", "random normals, 1M",
            "1,000 steps over ten elements", "Kalman filter, 200 steps", "attention, 1,024 positions", *TRAINING_STEPS]
ROW = 5
"""How many calls in a row must be as fast as calls get."""


def steady(calls: Sequence[tuple[float, float]]) -> float:
    """The second at which calls begin to be as fast as they get, of the beginning of each call and of what it took."""
    settled = statistics.median(took for _, took in calls[len(calls) // 2:])
    rows = zip(*(calls[k:] for k in range(ROW)), strict=False)
    return next((row[0][0] for row in rows if max(row[0][1], statistics.median(took for _, took in row)) <= 1.1 * settled),
                calls[-1][0])


def seconds(run: Run, limit: float) -> tuple[float, float]:
    """To the first result, and until calls are steady."""
    start = time.perf_counter()
    first, _ = timed(run)
    calls = []
    while len(calls) < 2 * ROW or calls[-1][0] < first + limit:
        begin = time.perf_counter() - start
        calls.append((begin, timed(run)[0]))
    return first, steady(calls)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--seconds", type=float, default=6)
    options.add_argument("--limit", type=float, default=90, help="seconds of a process, beyond --seconds")
    options.add_argument("--of", nargs=2, help="print the seconds of a program, by its name and who runs it")
    chosen = options.parse_args()
    if chosen.of:
        name, who = chosen.of
        run = CASES[name]().get(who)
        print(json.dumps(seconds(run, chosen.seconds) if run else []))
        return
    table = Table(__file__, ["program", "first s", "steady s", "XLA's first s", "XLA's steady s", f"{COMPILED}'s first s"])
    for name in PROGRAMS:
        if chosen.only in name:
            cells = [*_cells(name, "ours", chosen.seconds, chosen.limit), *_cells(name, "XLA", 1, chosen.limit),
                     _cells(name, COMPILED, 0, chosen.limit)[0]]
            table.add(name, *cells)
    table.end(write=chosen.write)


def _cells(name: str, who: str, calls: float, limit: float) -> list[str]:
    """Seconds to the first result and until calls are steady; blank where somebody does not have the program."""
    with tempfile.TemporaryDirectory() as folder:
        places = {"XLA_TORCH_CACHE": folder, "TORCHINDUCTOR_CACHE_DIR": folder}
        found = in_child(__file__, "--of", name, who, "--seconds", f"{calls:g}", environment=places, limit=limit + calls)
    if found is None:
        return [f"over {limit:g}"] * 2
    return [f"{value:.2f}" for value in found] or ["", ""]


if __name__ == "__main__":
    main()
