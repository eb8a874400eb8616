"""A small training over processes, to one of which something happens: by number, or for some time from a number on.

Whatever it is, every other process ends with its result or with the error that names the one, nobody hangs,
and the last checkpoint that was written can be read.

    python -m fuzz.chaos --time 60 --seed 0
"""

from __future__ import annotations

import argparse
import io
import os
import resource
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import xla_torch
from support.distributed_workers import Workers, workers
from xla_torch.distributed import of_process_group
from xla_torch.distributed.exchange import Aborted
from xla_torch.distributed.participant import current_participant

TIMEOUT = 3.0
STEPS = 12
FAULTS = ("killed", "stopped", "late", "raises", "disk full", "paused", "nothing")
HARMLESS = ("paused", "nothing")
SAYS = {"killed": "are gone", "stopped": "did not come|no answer", "late": "did not come|no answer", "raises": "gone astray",
        "disk full": "File too large"}


def program(n: int) -> xla_torch.XlaComputation:
    """One step towards the mean of all participants' data."""
    return xla_torch.parse_hlo(f"""HloModule step
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}}
ENTRY e {{
  w = f32[{n}] parameter(0)
  x = f32[{n}] parameter(1)
  d = f32[{n}] subtract(x, w)
  s = f32[{n}] all-reduce(d), to_apply=add, replica_groups={{}}, channel_id=1
  q = f32[] constant(0.125)
  rate = f32[{n}] broadcast(q), dimensions={{}}
  g = f32[{n}] multiply(s, rate)
  ROOT r = f32[{n}] add(w, g)
}}""")


def save(weights: torch.Tensor, step: int, path: Path) -> None:
    """A checkpoint, which has its name when it is whole."""
    written = path.with_suffix(".part")
    try:
        torch.save({"weights": weights, "step": step}, buffer := io.BytesIO())
        written.write_bytes(buffer.getbuffer())
        written.replace(path)
    finally:
        written.unlink(missing_ok=True)


def strikes(fault: str) -> None:
    """What happens to the victim, before a step."""
    if fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif fault in ("late", "paused"):
        time.sleep(2.5 * TIMEOUT if fault == "late" else TIMEOUT / 3)
    elif fault == "raises":
        raise KeyError("gone astray")
    elif fault == "disk full":
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (256, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def trains(n: int, fault: str, at: int, folder: str) -> tuple[str, str, int]:
    """In a process: the class of the error and its text, or nothing, and at which step it ended."""
    step, run = 0, program(n)
    weights = torch.zeros(n)
    try:
        with of_process_group(timeout=TIMEOUT):
            me = current_participant().number
            data = torch.full((n,), float(me))
            for step in range(STEPS):
                if step == at:
                    strikes(fault)
                weights = run(weights, data)
                save(weights, step, Path(folder) / f"{me}.pt")
    except Exception as error:
        kind = "Aborted" if isinstance(error, Aborted) else type(error).__name__
        return kind, str(error), step
    return "", "", step


def check(seed: int) -> str:
    """One training; what happened in it. Raises AssertionError where it ended otherwise than it must."""
    draw = np.random.default_rng(seed)
    fault, size = FAULTS[seed % len(FAULTS)], int(draw.integers(3, 5))
    victim, at, n = int(draw.integers(size)), int(draw.integers(1, STEPS - 1)), int(draw.choice([8, 1 << 18]))
    reported = f"seed {seed}: participant {victim} of {size} is {fault} before step {at}, with {n} elements"
    with tempfile.TemporaryDirectory() as folder, workers(size) as made:
        made.start(trains, [(n, fault if k == victim else "nothing", at, folder) for k in range(size)])
        found = {k: made.outcome(k) for k in range(size) if k != victim}
        for rank, outcome in found.items():
            _ended(outcome, fault, victim, at, f"{reported}; participant {rank}")
        _end_of_victim(made, victim, fault, reported)
        for rank in range(size):
            kept = torch.load(Path(folder) / f"{rank}.pt")
            assert kept["step"] >= at - 1, reported
            assert torch.isfinite(kept["weights"]).all(), reported
        assert not list(Path(folder).glob("*.part")) or fault == "killed", reported
    return reported


def _ended(outcome: Any, fault: str, victim: int, at: int, reported: str) -> None:
    assert outcome[0] == "result", (reported, outcome)
    kind, message, step = outcome[1]
    if fault in HARMLESS:
        assert (kind, step) == ("", STEPS - 1), (reported, outcome)
        return
    assert kind == "Aborted", (reported, outcome)
    assert any(words in message for words in SAYS[fault].split("|")), (reported, outcome)
    assert f"participant {victim}" in message or f"participants [{victim}]" in message or "no answer" in message, (
        reported, outcome)
    assert step in (at, at + 1), (reported, outcome)


def _end_of_victim(made: Workers, victim: int, fault: str, reported: str) -> None:
    if fault == "stopped":
        number: int = made.processes[victim].pid
        os.kill(number, signal.SIGCONT)
    outcome = made.outcome(victim)
    if fault == "killed":
        assert outcome == ("dead",), (reported, outcome)
    else:
        assert outcome[0] == "result", (reported, outcome)
        assert bool(outcome[1][0]) == (fault not in HARMLESS), (reported, outcome)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--time", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    end, seed = time.monotonic() + options.time, options.seed
    while time.monotonic() < end:
        print(check(seed), flush=True)
        seed += 1


if __name__ == "__main__":
    main()
