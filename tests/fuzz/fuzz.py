"""`make fuzz TIME=60`: mutants of programs are read, printed and run in child processes, under limits of time and memory.

A mutant may be a program or an xla_torch error. Everything else is a finding: another exception, a process that dies, one that
takes too long or too much. Findings are printed with their kind and number, which `--only KIND NUMBER` does again, and leave exit
status 1.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

import xla_torch
from fuzz.mutants import NPZ_PROGRAM, SEEDS, mutant
from xla_torch.api import weights
from xla_torch.errors import InternalError, XlaError

SECONDS, MEMORY, BATCH = 20, 8 << 30, 50
"""For one mutant; of address space, of which torch takes two; mutants of one child."""

def _arguments(data: bytes) -> None:
    """An .npz file as weights and as arguments, which fit or not."""
    with tempfile.NamedTemporaryFile(suffix=".npz") as file:
        file.write(data)
        file.flush()
        arrays = weights.npz(Path(file.name))
    xla_torch.parse_hlo(NPZ_PROGRAM).run_numpy(*arrays.values())


READ: dict[str, Callable[[bytes], object]] = {
    "hlo": lambda data: xla_torch.parse_hlo(data.decode("utf-8", "replace")),
    "stablehlo": lambda data: xla_torch.from_stablehlo(data.decode("utf-8", "replace")),
    "bytecode": xla_torch.from_stablehlo, "proto": xla_torch.from_hlo_proto, "npz": _arguments}


def tried(read: Callable[[bytes], object], data: bytes) -> str | None:
    """What is wrong with how a mutant is read, printed and run; None for a program and for an xla_torch error."""
    try:
        with xla_torch.limits(max_instructions=100_000, max_bytes=1 << 28, max_seconds=SECONDS / 2, max_loop_steps=1000):
            program = read(data)
            if isinstance(program, xla_torch.XlaComputation):
                _printed_and_run(program)
    except InternalError as error:
        return f"InternalError: {error}"
    except XlaError as error:
        message = str(error)
        return None if len(message.encode()) <= 2048 and "\x1b" not in message else f"an unprintable error: {message[:500]!r}"
    except BaseException:
        return traceback.format_exc(limit=-4)
    return None


def _printed_and_run(program: xla_torch.XlaComputation) -> None:
    if "\x1b" in program.to_hlo_text():
        raise AssertionError("a control character in the text")
    shapes = program.program_shape.parameters
    if all(s.is_array and s.is_static and s.element_count < 10_000 and s.element_type.numpy is not None for s in shapes):
        program.run_numpy(*(np.ones(s.dimensions, s.element_type.numpy) for s in shapes))


def _child(kind: str, numbers: range, into: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends the process, also where it stands in C
    for number in numbers:
        data = mutant(kind, number)
        signal.alarm(SECONDS)
        into.send((number, None))
        found = tried(READ[kind], data)
        signal.alarm(0)
        if found is not None:
            into.send((number, found))
    into.send((None, None))


def batch(kind: str, numbers: range, child: Callable[..., None] = _child) -> list[tuple[int, str]]:
    """The findings among these mutants."""
    context = multiprocessing.get_context("spawn")
    findings: list[tuple[int, str]] = []
    while numbers:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=child, args=(kind, numbers, theirs), daemon=True)
        process.start()
        theirs.close()
        last: int | None = numbers.start
        try:
            while last is not None:
                last, found = ours.recv()
                if last is not None and found is not None:
                    findings.append((last, found))
        except EOFError:
            process.join()
            code = process.exitcode
            why = f"took more than {SECONDS} s" if code == -signal.SIGALRM else f"ended the process with {code}"
            findings.append((last or 0, why))
        process.join()
        numbers = range(numbers.stop, numbers.stop) if last is None else range(last + 1, numbers.stop)
    return findings


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--time", type=float, default=60, help="seconds")
    parser.add_argument("--seed", type=int, default=0, help="the number of the first mutant of each kind")
    parser.add_argument("--only", nargs=2, metavar=("KIND", "NUMBER"))
    options = parser.parse_args()
    if options.only:
        kind, number = options.only[0], int(options.only[1])
        sys.stdout.buffer.write(mutant(kind, number))
        print("\n", tried(READ[kind], mutant(kind, number)))
        return 0
    end, start, findings = time.monotonic() + options.time, options.seed, []
    while time.monotonic() < end:
        for kind in SEEDS:
            for number, what in batch(kind, range(start, start + BATCH)):
                findings.append(what)
                print(f"--- {kind} {number}\n{what}", flush=True)
        start += BATCH
    print(f"{start - options.seed} mutants of each of {', '.join(SEEDS)}; {len(findings)} findings")
    return bool(findings)


if __name__ == "__main__":
    sys.exit(main())
