"""Try drawn programs here, on real XLA, and in every format. Several stand in one module, since compiling is what takes the
time; where that differs or fails, each is tried alone."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence

from fuzz import deviations, judging, reread, round_trips
from fuzz.drawn import drawn
from fuzz.for_xla import for_xla
from fuzz.programs import Program, text_of
from fuzz.running import Given, Refused, run_here, run_xla
from xla_torch.errors import XlaError

BATCH, TOGETHER = 500, 10
"""Programs of one child, of one module."""
PARTICIPANTS = (2, 1), (1, 2), (4, 1), (1, 4), (2, 2)
"""Replicas and partitions of the modules that have several, one module in 20."""
Tell = Callable[[str, int, str], None]


def level_of(number: int) -> int | None:
    """LLVM's optimisation for a program: its default for every fourth module, else none."""
    return 0 if number // TOGETHER % 4 else None


def counts_of(number: int) -> tuple[int, int]:
    """Replicas and partitions of a program."""
    module = number // TOGETHER
    return (1, 1) if module % 20 else PARTICIPANTS[module // 20 % len(PARTICIPANTS)]


def as_compiled(number: int) -> dict[str, str]:
    """What XLA compiles a program with: mostly what takes the least time, an eighth as it is by default."""
    cheap = "" if number // BATCH % 8 == 7 else " --xla_cpu_use_fusion_emitters=false"
    return {"XLA_FLAGS": f"--xla_force_host_platform_device_count=4{cheap}", "JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1"}


def program_of(number: int, prefix: str = "") -> Program:
    replicas, partitions = counts_of(number)
    return drawn(number, prefix=prefix, replicas=replicas, partitions=partitions)


def several(numbers: Sequence[int], tell: Tell, each: bool = False) -> None:
    """Try the programs of these numbers in one module; the first of them, or `each`, also at the entry points."""
    for number in numbers if each else numbers[:1]:
        program = program_of(number)
        if program.results:
            reread.tried(program, number, tell)
    programs = [p for n in numbers if (p := program_of(n, f"p{n}_")).results]
    try:
        clean = bool(programs) and _agree(programs, numbers[0])
    except Exception:  # each alone says what it is
        clean = False
    if clean:
        tell("agree", len(programs), "")
        return
    for number in numbers:
        program = program_of(number)
        if program.results:
            kind, message = alone(program, number)
            tell(kind, 1 if kind == "agree" else number, message)


def _agree(programs: Sequence[Program], number: int) -> bool:
    text, given, one = text_of(programs), _given(programs), programs[0]
    there = run_xla(text_of([for_xla(p) for p in programs]), given, one, level_of(number))
    here, at = run_here(text, given, one), 0
    for program in programs:
        end = at + len(program.results)
        if judging.differences(program, here[at:end], there[at:end]):
            return False
        at = end
    return not round_trips.differences(text, given, one, here, round_trips.formats_of(number // TOGETHER))


def _given(programs: Sequence[Program]) -> Given:
    return [[array for arrays in each for array in arrays] for each in zip(*(p.given() for p in programs), strict=True)]


def alone(program: Program, number: int) -> tuple[str, str]:
    """What becomes of a program, as its number's would: ``agree``, ``refused`` by XLA, ``unsaid`` by StableHLO, ``known`` for a
    deviation of XLA that has a row, or ``differ``; and what is to be said of it."""
    text, given = program.text(), program.given()
    try:
        there = run_xla(for_xla(program).text(), given, program, level_of(number))
    except Refused as error:
        return "refused", str(error).strip().split("\n")[0][:160]
    try:
        here = run_here(text, given, program)
        found = judging.differences(program, here, there)
        rows = {deviations.row_of(program, difference) for difference in found}
        if None in rows:
            return "differ", "\n".join(map(str, found))
        behind = round_trips.differences(text, given, program, here, round_trips.formats_of(number // TOGETHER))
    except round_trips.Unsaid as error:
        return "unsaid", str(error)
    except XlaError as error:
        return "differ", f"refused here: {error}"
    except Exception:
        return "differ", traceback.format_exc(limit=-4)
    if behind:
        return "differ", "\n".join(behind)
    return ("known", "; ".join(sorted(map(str, rows)))) if rows else ("agree", "")
