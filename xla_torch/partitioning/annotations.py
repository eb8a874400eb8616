"""Marks of partitioners in programs: annotations of values, and the borders of manual regions."""

from __future__ import annotations

from ..hlo.custom_calls import target_of
from ..hlo.ir import Instruction, Module
from ..hlo.mesh_sharding import Mesh, parse_meshes

_SHARDING = "Sharding"
_ANNOTATIONS = frozenset({_SHARDING, "xla.sdy.FuncResultSharding", "xla.sdy.PropagationBarrier", "ShardBarrierFrom",
                          "ShardBarrierTo"})
_ENTERS = frozenset({"SPMDFullToShardShape", "xla.sdy.GlobalToLocalShape"})
_LEAVES = frozenset({"SPMDShardToFullShape", "xla.sdy.LocalToGlobalShape"})


def is_sharding(instruction: Instruction) -> bool:
    """Whether it is an annotation of a value in GSPMD's words."""
    return target_of(instruction) == _SHARDING


def is_annotation(instruction: Instruction) -> bool:
    """Whether it is a custom call that only says how its operand should lie on the partitions."""
    return target_of(instruction) in _ANNOTATIONS


def enters(instruction: Instruction) -> bool:
    """Whether a value goes into a manual region here: from the whole array to each partition's part."""
    return target_of(instruction) in _ENTERS


def is_border(instruction: Instruction) -> bool:
    """Whether a value goes into a manual region here, or comes out of one."""
    return enters(instruction) or target_of(instruction) in _LEAVES


def is_shardy(instruction: Instruction) -> bool:
    """Whether it is a mark in Shardy's words, and not in GSPMD's."""
    return target_of(instruction).startswith("xla.sdy.")


def has_manual_regions(module: Module) -> bool:
    """Whether values enter or leave regions that are about one partition's arrays."""
    return any(is_border(i) for c in module.computations for i in c.instructions)


def meshes_of(module: Module) -> dict[str, Mesh]:
    """The meshes of a program that came from Shardy, by name."""
    text = module.header.get("frontend_attributes", {}).get("xla.sdy.meshes", "")
    return parse_meshes(text) if text else {}
