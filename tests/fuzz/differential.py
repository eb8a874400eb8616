"""`make differential PROGRAMS=1000 SEED=0`: drawn programs here and on real XLA, in child processes under limits.

A program is its number, and always the same; one module in 20 is for two or four participants. Each is also written as
StableHLO, bytecode and protos and read again, and must give the same bits. One in ten, or each with `--entry-points`, is also
read by `from_jax` and `from_torch`. A finding is printed with its number and the difference; `--only NUMBER` shrinks it and
prints what is left. `--into FILE` keeps what was found of each batch, and the same command goes on behind the last one. Exit
status 1 says that there were findings.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import signal
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

from fuzz import judging, reducing, reread
from fuzz.programs import Program
from fuzz.resuming import EXPLAINED, Batches
from fuzz.trying import BATCH, TOGETHER, Tell, alone, as_compiled, program_of, several
from support.low_thresholds import lower_thresholds

SECONDS, MEMORY = 120, 24 << 30
"""For one module; of address space."""


def _child(numbers: range, low: bool, each: bool, into: Connection) -> None:
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
        several(group, lambda *message: into.send(message), each)
        signal.alarm(0)
    into.send(("done", numbers.stop, ""))


def supervised(numbers: range, low: bool, hear: Tell, each: bool = False) -> None:
    """Run programs in a child, which is started again behind those that end it; `low` as `--low`, `each` as `--entry-points`."""
    context = multiprocessing.get_context("spawn")
    while numbers:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_child, args=(numbers, low, each, theirs), daemon=True)
        process.start()
        theirs.close()
        begun = numbers.start
        try:
            while True:
                kind, number, message = ours.recv()
                if kind == "done":
                    numbers = range(numbers.stop, numbers.stop)
                    break
                if kind == "begun":
                    begun = number
                else:
                    hear(kind, number, message)
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
    parser.add_argument("--entry-points", action="store_true", help="read each program by from_jax and from_torch, too")
    parser.add_argument("--into", type=Path, metavar="FILE", help="keep what is found there, a line for each batch, and go on")
    options = parser.parse_args()
    if options.only is not None:
        if options.low:
            lower_thresholds()
        return _only(options.only)
    try:
        batches = Batches(options.seed, [name for name in ("low", "entry_points") if getattr(options, name)], options.into)
    except ValueError as error:
        parser.error(str(error))
    start = time.monotonic()
    while batches.next < options.seed + options.programs and time.monotonic() - start < options.time:
        _batch(batches, range(batches.next, min(batches.next + BATCH, options.seed + options.programs)), options.low,
               options.entry_points)
    for message, count in batches.reasons.most_common(20):
        print(f"{count} {message}")
    return batches.found


def _batch(batches: Batches, numbers: range, low: bool, each: bool) -> None:
    heard: list[tuple[str, int, str]] = []

    def hear(kind: str, number: int, message: str) -> None:
        heard.append((kind, number, message))
        if kind not in ("agree", reread.AGAIN, *EXPLAINED):
            print(f"--- {number}: {kind}\n{message}", flush=True)

    start = time.monotonic()
    supervised(numbers, low, hear, each)
    seconds = time.monotonic() - start
    batches.add(numbers.stop, seconds, heard)
    print(f"{len(numbers)} programs up to {numbers.stop} in {seconds:.0f} s; in all: {json.dumps(batches.counts)}", flush=True)


def _only(number: int) -> int:
    os.environ.update(as_compiled(number))
    judging.quietly()

    def fails(program: Program) -> str:
        kind, message = alone(program, number)
        return message if kind == "differ" else "\n".join(reread.differences(program))

    program = program_of(number)
    if not fails(program):
        print(*alone(program, number))
        return 0
    program = reducing.shrunk(program, fails)
    print(program.text(), *(f"{n} = {a!r}" for n, a in program.arguments.items()), fails(program), sep="\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
