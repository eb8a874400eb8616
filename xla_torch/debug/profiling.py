"""Where the time of a program goes: seconds, bytes and flops of each instruction, beside what the machine can do.

Two runs are measured, and neither is the other. Instructions are timed one by one, as every watched program runs; a call runs
the lowered program, whose chains stand in blocks and native code and have no instructions any more. So the profile says both:
where the time goes, and in `lowered` what a call takes, whose distance from the sum is what lowering saves.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Iterator
from typing import Any

import torch

from ..analysis.cost import instruction_cost
from ..analysis.cost_rules import Cost
from ..core.errors import InvalidArgument
from ..core.forks import Lock
from ..hlo.ir import Instruction
from ..hlo.regions import has_regions_of_values
from ..runtime.computation import XlaComputation
from ..runtime.steps import require_computation
from .observing import observed
from .profile_pages import chrome_trace, flame_graph, table
from .profile_rows import Event, Machine, Row, best
from .steps import Step

EVENTS = 200_000
"""How many evaluations a profile keeps one by one, for its trace; all are in its sums."""


@dataclasses.dataclass
class Profile:
    """Hold the profile of a run: `rows` by instruction, slowest first.

    `lowered` is the time in seconds of a call of the lowered program (None if a block was profiled). `events` are those of the
    trace, `left_out` the number that was dropped, and `machine` the peak performance that the table's percentages refer to.

    >>> square = xla_torch.parse_hlo("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] multiply(x, x) }")
    >>> found = xla_torch.debug.profile(square, torch.ones(2), machine=xla_torch.debug.Machine(bandwidth=1e10, flops=1e11))
    >>> len(found["y"]), found.seconds > 0, "multiply" in found.table(rows=5), "<svg" in found.to_html()
    (1, True, True, False)
    >>> found.to_chrome_trace("run.json")
    """

    machine: Machine
    rows: list[Row] = dataclasses.field(default_factory=list)
    lowered: float | None = None
    events: list[Event] = dataclasses.field(default_factory=list)
    left_out: int = 0

    @property
    def seconds(self) -> float:
        """Return the sum of all rows: the time of a run instruction by instruction."""
        return sum(row.seconds for row in self.rows)

    def __getitem__(self, name: str) -> list[Row]:
        """The rows of the instructions of this name, in all programs and computations."""
        return [row for row in self.rows if row.name == name]

    def __str__(self) -> str:
        return self.table()

    def table(self, rows: int = 30) -> str:
        """Return the slowest instructions and the tree of op_names as text."""
        return table(self.rows, self.machine, self.lowered, rows)

    def to_chrome_trace(self, path: Any) -> None:
        """Write the run for chrome://tracing, Perfetto and TensorBoard, in torch.profiler's format."""
        chrome_trace(self.events, self.left_out, path)

    def to_html(self) -> str:
        """Return a flame graph of the op_name tree as one HTML page.

        The page has no scripts and needs no network.
        """
        return flame_graph(self.rows, self.lowered)

    def _repr_html_(self) -> str:
        return flame_graph(self.rows, self.lowered, whole_page=False)


class _Clock:
    """Sees the steps of one run. What is inside a loop or call is seen before it is, and is not its own time."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.rows: dict[tuple[str, Instruction], Row] = {}
        self.events: list[Event] = []
        self.left_out = 0
        self._spans: dict[int, list[tuple[float, float]]] = {}
        self._costs: dict[int, Cost] = {}
        self._lock = Lock()

    def see(self, step: Step) -> None:
        """Note a step, and how long the noting itself took."""
        if step.runner.device.type == "cuda":
            torch.cuda.synchronize(step.runner.device)  # or the time would be that of asking
        now, thread = time.perf_counter(), threading.get_ident()
        with self._lock:
            spans, inside = self._spans.setdefault(thread, []), 0.0
            while spans and spans[-1][0] >= step.began:
                start, end = spans.pop()
                inside += end - start
            self._note(step, now, max(now - step.began - inside, 0.0), thread)
            spans.append((step.began, time.perf_counter()))

    def _note(self, step: Step, now: float, own: float, thread: int) -> None:
        key = step.program, step.instruction
        row = self.rows.get(key)
        if row is None:
            row = self.rows[key] = Row(step.program, step.instruction)
        row.count += 1
        row.seconds += own
        if not has_regions_of_values(step.instruction):
            row.cost += self._cost(step.instruction)
        if len(self.events) < EVENTS:
            self.events.append(Event(row, step.began - self.began, now - step.began, step.place, thread))
        else:
            self.left_out += 1

    def _cost(self, instruction: Instruction) -> Cost:
        if id(instruction) not in self._costs:
            self._costs[id(instruction)] = instruction_cost(instruction)
        return self._costs[id(instruction)]

    def profile(self, machine: Machine) -> Profile:
        rows = sorted(self.rows.values(), key=lambda row: -row.seconds)
        return Profile(machine, rows, None, self.events, self.left_out)


def profile(computation: XlaComputation | None = None, *arguments: Any, runs: int = 3, machine: Machine | None = None) -> Any:
    """Profile a program on these arguments, instruction by instruction.

    Returns the fastest of `runs` runs after one warm-up run, and the fastest call of the lowered program after two. Random
    draws, feeds and sends take place in every run. Without a computation it is a context manager: ``with profile() as found:``
    profiles each program in the block once, including backward passes. `machine` is the reference for percentages, measured if
    not given. Raises InvalidArgument if `runs` is below 1.

    >>> square = xla_torch.parse_hlo("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] multiply(x, x) }")
    >>> machine = xla_torch.debug.Machine(bandwidth=1e10, flops=1e11)
    >>> sorted(row.name for row in xla_torch.debug.profile(square, torch.ones(2), machine=machine).rows)
    ['x', 'y']
    """
    if runs < 1:
        raise InvalidArgument("runs must be at least 1", subject="profile", got=runs, expected="1 run or more")
    if computation is None:
        return _profiled(machine)
    require_computation(computation, "profile")
    clocks = [_watched(computation, arguments) for _ in range(runs + 1)][1:]
    # One run as it was, and not the least of each instruction in any: its parts are of one whole.
    fastest = min(clocks, key=_total)
    tensors = [a for a in arguments if isinstance(a, torch.Tensor)]
    device = tensors[0].device if tensors else torch.device("cpu")
    found = fastest.profile(machine or Machine.measured(device))
    for _ in range(2):
        computation(*arguments)
    found.lowered = best(lambda: computation(*arguments), device, max(runs, 5))
    return found


def _total(clock: _Clock) -> float:
    return sum(row.seconds for row in clock.rows.values())


def _watched(computation: XlaComputation, arguments: tuple[Any, ...]) -> _Clock:
    clock = _Clock()
    with observed(clock.see):
        computation(*arguments)
    return clock


@contextlib.contextmanager
def _profiled(machine: Machine | None) -> Iterator[Profile]:
    found, clock = Profile(machine or Machine.measured()), _Clock()
    try:
        with observed(clock.see):
            yield found
    finally:
        measured = clock.profile(found.machine)
        found.rows, found.events, found.left_out = measured.rows, measured.events, measured.left_out
