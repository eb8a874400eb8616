"""What a profile is made of: instructions with their time and cost, single evaluations, and what the machine does at most."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

import torch

from ..analysis.cost_rules import Cost
from ..hlo.ir import Instruction


@dataclasses.dataclass(frozen=True)
class Machine:
    """Hold the measured peak performance of the machine.

    `bandwidth` is the number of bytes that a copy reads and writes in a second. `flops` is the number of operations in a second
    of a matrix product on torch's threads.

    >>> machine = xla_torch.debug.Machine.measured(size=64)
    >>> machine.bandwidth > 0, machine.flops > 0
    (True, True)
    """

    bandwidth: float
    flops: float

    @staticmethod
    def measured(device: torch.device | str = "cpu", size: int = 1024) -> Machine:
        """Measure this machine: copy 16 `size`^2 floats, and multiply two matrices of `size`^2."""
        source = torch.ones(16 * size * size, device=device)
        target, matrix = torch.empty_like(source), torch.ones(size, size, device=device)
        copied = best(lambda: target.copy_(source), torch.device(device), 5)
        multiplied = best(lambda: torch.mm(matrix, matrix), torch.device(device), 5)
        return Machine(2 * source.numel() * source.element_size() / copied, 2 * size**3 / multiplied)


@dataclasses.dataclass
class Row:
    """One instruction, all its evaluations together. A loop, call or conditional has only the time between the instructions
    inside it, which have rows of their own."""

    program: str
    instruction: Instruction
    count: int = 0
    seconds: float = 0.0
    cost: Cost = dataclasses.field(default_factory=Cost)

    @property
    def name(self) -> str:
        return self.instruction.name

    @property
    def op_name(self) -> str:
        return self.instruction.op_name


@dataclasses.dataclass(frozen=True)
class Event:
    """One evaluation: when it began, in seconds since the run did, how long it took, in which loops and in which thread."""

    row: Row
    start: float
    seconds: float
    place: tuple[tuple[str, int], ...]
    thread: int


def best(run: Callable[[], object], device: torch.device, times: int) -> float:
    """The least seconds of several runs."""
    found = float("inf")
    for _ in range(times):
        start = time.perf_counter()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        found = min(found, time.perf_counter() - start)
    return found
