"""`suggest_sharding`: the layouts by name of a program on a mesh, partitioned for real, and what each would take."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..analysis.cost import computation_cost, total
from ..analysis.cost_rules import SENT, Cost
from ..analysis.peak import peak_bytes
from ..core.errors import UnsupportedError
from ..core.shape import Shape
from ..hlo.ir import Instruction
from ..opcodes.collective import all_reduce
from ..runtime.computation import XlaComputation
from ..runtime.steps import Step, entry_point
from .gradients import value_and_grad
from .layouts import LAYOUTS
from .mesh_words import mesh_of
from .partition import partition_flat, weights_of

__all__ = ["Machine", "Suggestion", "suggest_sharding"]


@dataclasses.dataclass(frozen=True)
class Machine:
    """What one participant does in a second, and what an exchange takes: operations, bytes of memory, bytes sent, and seconds
    until the first byte is there."""

    flops: float = 5e10
    memory: float = 1e10
    link: float = 1e9
    latency: float = 5e-5

    def seconds(self, cost: Cost) -> float:
        """How long a program takes that computes and exchanges by turns."""
        arithmetic = (cost.flops + 10 * cost.transcendentals) / self.flops
        return max(arithmetic, cost.bytes / self.memory) + cost.sent / self.link + cost.exchanges * self.latency


@dataclasses.dataclass(frozen=True)
class Suggestion:
    """A layout, as `partition` takes it, and what it takes of each participant: bytes held at one time, with arguments and
    results; what is computed and sent; the seconds that come of it. Or why XLA refuses it."""

    shardings: Mapping[str, str]
    memory: int = 0
    cost: Cost = dataclasses.field(default_factory=Cost)
    seconds: float = float("inf")
    refused: str = ""

    def row(self) -> list[str]:
        layout = ", ".join(f"{axis}: {name}" for axis, name in self.shardings.items())
        if self.refused:
            return [layout, self.refused, "", "", "", ""]
        numbers = [f"{self.memory / 2**20:.1f}", f"{self.cost.sent / 2**20:.2f}", str(self.cost.exchanges),
                   f"{self.cost.flops / 1e9:.3f}", f"{self.seconds * 1e3:.2f}"]
        return [layout, *numbers]


class Suggestions(tuple[Suggestion, ...]):
    """Layouts, that which takes least time first."""

    __slots__ = ()

    def __str__(self) -> str:
        rows = [["layout", "MiB held", "MiB sent", "exchanges", "Gflop", "ms"], *(s.row() for s in self)]
        widths = [max(len(row[k]) for row in rows if not (row[2] == "" and k == 1)) for k in range(6)]
        return "\n".join(" ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))]
                                  ).rstrip() for row in rows)


def suggest_sharding(program: XlaComputation, mesh: Any, weights: Sequence[int] | None = None,
                     machine: Machine | None = None) -> Suggestions:
    """Compare named layouts, and mixtures over mesh axes, by estimated time; fastest first.

    Each layout is partitioned by XLA's partitioner and its costs are counted. The result prints as a table whose rows have
    `shardings` for `partition`, `on_mesh` and `XlaModule`. A program with a scalar floating result is a loss: costs are those
    of its gradient. `weights` and `mesh` are as in `partition`; `machine` describes the speed of participants and their
    connections. A layout that XLA refuses has the reason in its row. Raises the errors of `partition` otherwise.

    Example::

        best, *_ = suggestions = xla_torch.suggest_sharding(loss, {"data": 2, "model": 2})
        print(suggestions)
        part = xla_torch.partition(loss, {"data": 2, "model": 2}, best.shardings)

    >>> square = xla_torch.parse_hlo("ENTRY e { x = f32[8] parameter(0) ROOT y = f32[8] multiply(x, x) }")
    >>> len(xla_torch.suggest_sharding(square, {"data": 2}))
    3
    """
    found: list[Suggestion] = []
    _suggested(program, mesh, weights, machine or Machine(), found)
    return Suggestions(sorted(found, key=lambda s: s.seconds))


def _of_weights(function: Any, step: Step) -> XlaComputation:
    """Of a function over trees what is asked is asked of its program."""
    given = step.given["weights"]
    step(function.computation, weights=[place for k in ([0] if given is None else given) for place in function.parameters_of(k)])
    return function


@entry_point(over_trees=_of_weights)
def _suggested(computation: XlaComputation, mesh: Any, weights: Sequence[int] | None, machine: Machine,
               found: list[Suggestion]) -> XlaComputation:
    grid = mesh_of(mesh, computation.module, computation.partitioning.partitions)
    numbers = sorted(weights_of(computation, weights))
    axes = [name for name, size in grid.axes if size > 1]
    for layouts in itertools.product(LAYOUTS, repeat=len(axes)):
        shardings = dict(zip(axes, layouts, strict=True))
        try:
            part = partition_flat(computation, mesh, shardings, None, numbers)
        except UnsupportedError as error:
            found.append(Suggestion(shardings, refused=error.what))
            continue
        found.append(counted(shardings, part, numbers, machine))
    return computation


def counted(shardings: Mapping[str, str], part: XlaComputation, numbers: Sequence[int], machine: Machine) -> Suggestion:
    """What a partitioned program takes of each participant; of a loss, its gradient by the parameters `numbers`."""
    result, shared = part.program_shape.result, Cost()
    if result.is_array and not result.rank and result.element_type.is_floating:
        shapes = part.program_shape.parameters
        trained = [k for k in numbers if shapes[k].is_array and shapes[k].element_type.is_differentiable]
        shared = total(_summed(part.entry.parameters[k], part.partitioning.partitions) for k in trained)
        part = value_and_grad(part, trained)
    entry = part.program.canonical
    held = sum(_bytes(p.shape) for p in entry.parameters)
    cost = computation_cost(entry) + shared
    return Suggestion(shardings, held + peak_bytes(entry), cost, machine.seconds(cost))


def _summed(weight: Instruction, partitions: int) -> Cost:
    """What it takes to add up the gradients of those that hold the same of a weight."""
    sharing = partitions // math.prod(weight.common["sharding"].grid(weight.shape.rank, partitions).counts)
    return Cost() if sharing < 2 else Cost(sent=round(SENT[all_reduce](_bytes(weight.shape), 0, sharing)), exchanges=1)


def _bytes(shape: Shape) -> int:
    return sum(leaf.byte_size for leaf in shape.leaves() if leaf.is_array)

