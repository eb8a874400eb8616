"""Whether an annotated program has been partitioned: what its arrays are."""

from __future__ import annotations

import dataclasses

from ..hlo.ir import Instruction, Module
from ..opcodes.collective import partition_id
from .annotations import has_manual_regions, is_annotation, is_shardy, meshes_of
from .collective_table import COLLECTIVES

WHOLE, PART = "whole arrays", "one partition's arrays"


@dataclasses.dataclass(frozen=True, slots=True)
class Partitioning:
    """What the arguments and results of a program are; ``str()`` says it in words, "" for a program without annotations.

    `about` is ``"whole arrays"`` for an annotated program that has not been partitioned: it runs with its global meaning.
    It is ``"one partition's arrays"`` for one that has been: it runs as it is. Without annotations it is "".
    """

    about: str = ""
    partitions: int = 1
    manual_regions: bool = False
    """Whether parts of the program have to be run for all partitions at once (see `manual_regions.py`)."""

    @property
    def is_whole(self) -> bool:
        """Whether an annotated program is about whole arrays."""
        return self.about == WHOLE

    def __str__(self) -> str:
        if self.is_whole:
            return f"annotated for {self.partitions} partitions, not partitioned: runs with its global meaning, on whole arrays"
        if self.about == PART:
            return f"partitioned: one of {self.partitions} partitions' part, on that partition's arrays"
        return ""

    @property
    def hint(self) -> str:
        """What to do for someone whose arguments do not fit."""
        if self.is_whole:
            return "the program has not been partitioned: every participant gives and gets whole arrays"
        return "the program has been partitioned: shard_arguments cuts whole arrays" if self.about == PART else ""


def partitioning_of(module: Module) -> Partitioning:
    """What a module's arrays are, see `Partitioning`."""
    instructions = [i for c in module.computations for i in c.instructions]
    shardings = [i.common["sharding"] for i in instructions if "sharding" in i.common]
    regions = has_manual_regions(module)
    marked = regions or any(is_annotation(i) for i in instructions)
    counts = [s.device_count for s in shardings] + [mesh.device_count for mesh in meshes_of(module).values()]
    partitions = max([module.num_partitions, *counts])
    if regions and partitions < 2:  # where all have the same arrays only groups say how many there are
        partitions = max(map(_most_named, instructions))
    if partitions < 2 or not (marked or shardings):
        return Partitioning(manual_regions=regions and any(is_shardy(i) for i in instructions))
    # XLA's partitioner ends the entry's name so, and leaves annotations at parameters only.
    divided = not marked and (module.entry.name.endswith("_spmd") or any(map(_is_about_partitions, instructions)))
    return Partitioning(PART if divided else WHOLE, partitions, regions)


def _most_named(instruction: Instruction) -> int:
    """How many partitions there must be for the groups in which an instruction has them exchange."""
    if not _is_about_partitions(instruction) or instruction.opcode == partition_id:
        return 1
    pairs = instruction.attributes.get("source_target_pairs")
    groups = pairs if pairs is not None else getattr(instruction.attributes.get("replica_groups"), "groups", ())
    return max((number + 1 for group in groups for number in group), default=1)


def _is_about_partitions(instruction: Instruction) -> bool:
    return instruction.opcode == partition_id or (
        instruction.opcode in COLLECTIVES and bool(instruction.attributes.get("channel_id")))
