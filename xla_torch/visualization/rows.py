"""What a page says of a program: computations, groups, instructions and exchanges, by number, as JSON has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ..analysis.cost import instruction_cost
from ..analysis.cost_rules import Cost
from ..analysis.peak import live_bytes
from ..core.printable import printable
from ..core.shape import Shape
from ..hlo.ir import Instruction, Module
from ..hlo.printer import PrintOptions, print_instruction
from ..hlo.regions import Role, has_regions_of_values, regions
from ..hlo.sharding import Iota, Sharding, ShardingKind
from .exchanges import senders
from .groups import Path, paths

NAME, LINE = 300, 3000
"""Characters of a name, and of an instruction's line."""

_TILES = 256
"""Tiles of a sharding that are drawn."""


class Seen(NamedTuple):
    """What runs showed of an instruction: seconds in how many evaluations, where it was timed, and how many NaNs and Infs there
    were at most in one evaluation."""

    seconds: float | None = None
    runs: int = 0
    nan: int = 0
    inf: int = 0


def data(module: Module, seen: Mapping[Instruction, Seen]) -> dict[str, Any]:
    """The entry first. An instruction's ``group`` is a number in the ``groups`` of its computation, -1 where it is in none;
    ``live`` are the bytes that live while each instruction runs, where the computation is run as it stands."""
    computations = module.computations[::-1]
    place = {id(c): n for n, c in enumerate(computations)}
    number = {i: n for n, i in enumerate(i for c in computations for i in c.instructions)}
    callers: dict[int, list[int]] = {}
    for instruction, own in number.items():
        for called in dict.fromkeys(instruction.called_computations):
            callers.setdefault(id(called), []).append(own)
    costs: dict[int, Cost] = {}
    run = {id(module.entry), *_run(number)}
    stated, rows = [], []
    for computation in computations:
        groups = _Groups()
        inside = paths(computation)
        first = number[computation.instructions[0]]
        rows += [_row(i, place[id(computation)], i is computation.root, number, place, costs, seen)
                 | {"group": groups.number(inside[i])} for i in computation.instructions]
        stated.append({"name": text(computation.name), "entry": computation is module.entry, "first": first,
                     "end": first + len(computation.instructions), "root": number[computation.root],
                     "callers": callers.get(id(computation), []), "groups": groups.rows,
                     "live": live_bytes(computation) if id(computation) in run else []})
    return {"computations": stated, "instructions": rows, "exchanges": list(_exchanges(module, number, costs))}


class _Groups:
    """The groups of a computation: [the outer one's number or -1, name]."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, str]] = []
        self._known: dict[Path, int] = {(): -1}

    def number(self, path: Path) -> int:
        if path not in self._known:
            outer = self.number(path[:-1])
            self._known[path] = len(self.rows)
            self.rows.append((outer, text(path[-1])))
        return self._known[path]


def _run(instructions: Mapping[Instruction, int]) -> Iterator[int]:
    """The computations that instructions run once or in turns, not for single elements."""
    for instruction in instructions:
        if instruction.called_computations:
            yield from (id(r.computation) for r in regions(instruction) if r.role not in (Role.ELEMENTS, Role.OPAQUE))


def _exchanges(module: Module, number: Mapping[Instruction, int], costs: dict[int, Cost]) -> Iterator[dict[str, Any]]:
    for instruction, own in number.items():
        found = senders(instruction, module.replica_count, module.num_partitions)
        if found is not None:
            yield {"row": own, "between": found.kind, "sets": found.sets, "more": found.more,
                   "sent": instruction_cost(instruction, costs).sent}


def _row(instruction: Instruction, computation: int, root: bool, number: Mapping[Instruction, int], place: Mapping[int, int],
         costs: dict[int, Cost], seen: Mapping[Instruction, Seen]) -> dict[str, Any]:
    # With times stands what an instruction itself does; without, a loop has the cost of its body too.
    own = bool(seen) and has_regions_of_values(instruction)
    cost = Cost() if own else instruction_cost(instruction, costs)
    row: dict[str, Any] = {
        "name": text(instruction.name), "opcode": instruction.opcode, "family": instruction.schema.family,
        "shape": text(repr(instruction.shape)), "computation": computation, "root": root,
        "operands": [number[o] for o in instruction.operands],
        "calls": [place[id(c)] for c in dict.fromkeys(instruction.called_computations)],
        "bytes": cost.bytes, "flops": cost.flops, "transcendentals": cost.transcendentals,
        "op_name": text(instruction.op_name), "source": text(source_of(instruction)),
        "text": text(print_instruction(instruction, PrintOptions(elide_above=16)), LINE), "sharding": "",
    }
    sharding = instruction.common.get("sharding")
    if sharding is not None:
        row["sharding"] = text(str(sharding))
        row |= _tiles(sharding, instruction.shape)
    found = seen.get(instruction)
    if found is not None:
        timed = {} if found.seconds is None else {"seconds": found.seconds, "runs": found.runs}
        row |= timed | {"nan": found.nan, "inf": found.inf}
    return row


def source_of(instruction: Instruction) -> str:
    """Where an instruction comes from in the user's program, ``net.py:3``, or ""."""
    metadata = instruction.common.get("metadata")
    if not isinstance(metadata, Mapping) or not metadata.get("source_file"):
        return ""
    return f"{metadata['source_file']}:{metadata.get('source_line', 0)}"


def _tiles(sharding: Any, shape: Shape) -> dict[str, Any]:
    """The devices of a tiling in its order, in rows of its last dimension, and the sizes of one's piece."""
    if not isinstance(sharding, Sharding) or sharding.kind != ShardingKind.TILED or sharding.device_count > _TILES:
        return {}
    if not shape.is_array:
        return {}
    devices = sharding.devices.ids if isinstance(sharding.devices, Iota) else sharding.devices
    last = [size for size in sharding.tile_dims if size > 1][-1:]
    piece = [-(-size // parts) for size, parts in zip(shape.dimensions, sharding.tile_dims, strict=False)]
    return {"tiles": {"columns": (last or [1])[0], "devices": [int(d) for d in devices], "piece": piece}}


def seen_by(module: Module, profile: Any, trace: Any) -> dict[Instruction, Seen]:
    """What a profile and a trace (of `xla_torch.debug`) say of the module's instructions."""
    inside = {i for c in module.computations for i in c.instructions}
    found: dict[Instruction, Seen] = {}
    for row in profile.rows if profile is not None else ():
        if row.instruction in inside:
            found[row.instruction] = Seen(row.seconds, row.count)
    for row in trace.rows if trace is not None else ():
        if row.instruction in inside:
            old = found.get(row.instruction, Seen())
            nan, inf = (sum(getattr(s, kind) for s in row.statistics) for kind in ("nan", "inf"))
            found[row.instruction] = old._replace(nan=max(old.nan, nan), inf=max(old.inf, inf))
    return found


def text(words: str, most: int = NAME) -> str:
    """What may stand in a page."""
    return printable(words, most)
