"""Programs whose native code is compiled with sanitizers; run by `tests/lowering/test_native_sanitized.py` in a child process.

    python -m fuzz.sanitized drawn FIRST LAST HOW    drawn programs of these numbers; HOW is plain, or low: as large ones run
    python -m fuzz.sanitized conformance PART PARTS  every PARTS-th conformance case
    python -m fuzz.sanitized overrun                 a source that reads behind its array: this must end the process

A sanitizer ends the process with a report. The last line of stdout says what ran then.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable

import xla_torch
from fuzz import judging
from fuzz.drawn import drawn
from fuzz.programs import text_of
from fuzz.running import run_here
from support.low_thresholds import lower_thresholds
from support.stored_programs import SHARED, script
from xla_torch.codegen import compiled

TOGETHER = 10


def drawn_programs(first: str, last: str, how: str) -> None:
    judging.quietly()
    if how == "low":
        lower_thresholds()
    for start in range(int(first), int(last), TOGETHER):
        print(f"drawn programs from {start}", flush=True)
        programs = [p for n in range(start, start + TOGETHER) if (p := drawn(n, prefix=f"p{n}_")).results]
        run_here(text_of(programs), [[a for p in programs for a in p.arguments.values()]], programs[0])


def conformance(part: str, parts: str) -> None:
    run = script(SHARED / "conformance" / "run.py")
    for path in sorted(run.HERE.joinpath("cases").glob("*/*/case.json"))[int(part)::int(parts)]:
        print(path.parent.name, flush=True)
        status, why = run.run_case(xla_torch, path.parent, "hlo")
        assert status in ("pass", "no program"), why


def overrun() -> None:
    code = compiled.machine_code("int run(long n, void **a) { return ((int *)a[0])[n]; }")
    code.make()
    code.wait()
    assert code.function is not None, code.error
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    code.function(4, (ctypes.c_void_p * 1)(libc.malloc(ctypes.c_size_t(16))))


RUNS: dict[str, Callable[..., None]] = {"drawn": drawn_programs, "conformance": conformance, "overrun": overrun}

if __name__ == "__main__":
    RUNS[sys.argv[1]](*sys.argv[2:])
