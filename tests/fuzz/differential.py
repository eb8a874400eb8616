"""`make differential PROGRAMS=1000 SEED=0`: drawn programs here and on real XLA, in child processes under limits.

A program is its number (and how many participants run it), and always the same. Several stand in one module, since compiling is
what takes the time; where that differs or fails, each is run alone. A finding is printed with its number and the difference;
`--only NUMBER` shrinks it and prints what is left. Exit status 1 says that there were findings.
"""

from __future__ import annotations

import argparse
import collections
import json
import multiprocessing
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from fuzz import judging, reducing
from fuzz.drawn import drawn
from fuzz.programs import Program, text_of
from support.low_thresholds import lower_thresholds
from xla_torch.errors import XlaError

SECONDS, MEMORY, BATCH, TOGETHER = 120, 24 << 30, 500, 10
"""For one module; of address space; programs of one child, of one module."""


class Refused(Exception):
    """XLA does not compile a program."""


def run_xla(text: str, arrays: Sequence[np.ndarray], level: int | None = None) -> list[np.ndarray]:
    """What real XLA gives, at a level of LLVM's optimisation."""
    from jaxlib import _jax, xla_client  # pyright: ignore[reportAttributeAccessIssue]

    from support import oracle

    options = xla_client.CompileOptions()
    if level is not None:
        options.executable_build_options.debug_options.xla_backend_optimization_level = level
    devices = _jax.DeviceList(tuple(oracle._backend().local_devices()[:1]))
    try:
        executable = oracle._backend().compile_and_load(oracle._mlir(text), devices, options)
    except Exception as error:  # the bindings raise several kinds
        raise Refused(str(error)) from None
    results = executable.execute_sharded([oracle.jax.device_put(np.asarray(a)) for a in arrays])
    return [np.asarray(r[0]) for r in results.disassemble_into_single_device_arrays()]


def tried(program: Program, level: int | None = None) -> str | None:
    """What is wrong with a program alone; None where both sides agree. Raises Refused."""
    text, arrays = program.text(), list(program.arguments.values())
    there = run_xla(text, arrays, level)
    try:
        here = judging.run_here(text, arrays)
        found = judging.differences(program, here, there)
    except XlaError as error:
        return f"refused here: {error}"
    except Exception:
        return traceback.format_exc(limit=-4)
    return "\n".join(map(str, found)) or None


def level_of(number: int) -> int | None:
    """LLVM's optimisation for a program: its default for every fourth module, else none."""
    return 0 if number // TOGETHER % 4 else None


def several(numbers: Sequence[int], tell: Callable[[str, int, str], None]) -> None:
    """Run the programs of these numbers in one module."""
    programs = [drawn(n, prefix=f"p{n}_") for n in numbers]
    programs = [p for p in programs if p.results]
    level = level_of(numbers[0])
    arrays = [a for p in programs for a in p.arguments.values()]
    try:
        text = text_of(programs)
        there, here, at = run_xla(text, arrays, level), judging.run_here(text, arrays), 0
        clean = True
        for program in programs:
            end = at + len(program.results)
            clean &= not judging.differences(program, here[at:end], there[at:end])
            at = end
    except Exception:  # each alone says what it is
        clean = False
    if clean:
        tell("agree", len(programs), "")
        return
    for number in numbers:
        program = drawn(number)
        if not program.results:
            continue
        try:
            found = tried(program, level)
        except Refused as error:
            tell("refused", 1, f"{number}: {_kind(error)}")
            continue
        tell("agree" if found is None else "differ", 1 if found is None else number, found or "")


def _kind(error: Refused) -> str:
    return str(error).strip().split("\n")[0][:160]


def as_compiled(number: int) -> dict[str, str]:
    """What XLA compiles a program with: mostly what takes the least time, an eighth as it is by default."""
    cheap = "" if number // BATCH % 8 == 7 else " --xla_cpu_use_fusion_emitters=false"
    return {"XLA_FLAGS": f"--xla_force_host_platform_device_count=4{cheap}", "JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1"}


def _child(numbers: range, low: bool, into: Connection) -> None:
    if low:
        lower_thresholds()
    os.environ.update(as_compiled(numbers.start))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    judging.quietly()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what XLA logs
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    for first in range(numbers.start, numbers.stop, TOGETHER):
        group = range(first, min(first + TOGETHER, numbers.stop))
        signal.alarm(SECONDS)
        into.send(("begun", first, ""))
        several(group, lambda *said: into.send(said))
        signal.alarm(0)
    into.send(("done", numbers.stop, ""))


def supervised(numbers: range, low: bool, hear: Callable[[str, int, str], None]) -> None:
    """Run programs in a child, which is started again behind those that end it; `low` as `--low`."""
    context = multiprocessing.get_context("spawn")
    while numbers:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_child, args=(numbers, low, theirs), daemon=True)
        process.start()
        theirs.close()
        begun = numbers.start
        try:
            while True:
                kind, number, said = ours.recv()
                if kind == "done":
                    numbers = range(numbers.stop, numbers.stop)
                    break
                if kind == "begun":
                    begun = number
                else:
                    hear(kind, number, said)
        except EOFError:
            process.join()
            hear("died", begun, f"one of {begun} to {begun + TOGETHER - 1} ended the process with {process.exitcode}")
            numbers = range(min(begun + TOGETHER, numbers.stop), numbers.stop)
        process.join()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="the first number")
    parser.add_argument("--time", type=float, default=float("inf"), help="seconds after which no more are begun")
    parser.add_argument("--only", type=int, help="shrink the program of this number, and print what is left")
    parser.add_argument("--low", action="store_true", help="run small programs as large ones are: in blocks, in place")
    options = parser.parse_args()
    if options.only is not None:
        if options.low:
            lower_thresholds()
        return _only(options.only)
    counts: collections.Counter[str] = collections.Counter()
    refusals: collections.Counter[str] = collections.Counter()

    def hear(kind: str, number: int, said: str) -> None:
        counts[kind] += number if kind == "agree" else 1
        if kind == "refused":
            refusals[said.split(": ", 1)[1][:70]] += 1
        elif kind != "agree":
            print(f"--- {number}: {kind}\n{said}", flush=True)

    start, end = time.monotonic(), options.seed + options.programs
    for first in range(options.seed, end, BATCH):
        if time.monotonic() - start > options.time:
            break
        supervised(range(first, min(first + BATCH, end)), options.low, hear)
        print(f"{min(first + BATCH, end) - options.seed} programs in {time.monotonic() - start:.0f} s: {json.dumps(counts)}",
              flush=True)
    for said, count in refusals.most_common(20):
        print(f"XLA refused {count}: {said}")
    return bool(counts["differ"] + counts["died"])


def _only(number: int) -> int:
    os.environ.update(as_compiled(number))
    judging.quietly()
    program = drawn(number)
    level = level_of(number)

    def fails(smaller: Program) -> Any:
        try:
            return tried(smaller, level)
        except Refused:
            return None

    found = fails(program)
    if found is None:
        print("agrees")
        return 0
    program = reducing.shrunk(program, fails)
    print(program.text(), *(f"{n} = {a!r}" for n, a in program.arguments.items()), fails(program), sep="\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
