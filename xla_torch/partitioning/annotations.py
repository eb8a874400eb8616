"""Marks of partitioners in programs: annotations of values, and the borders of manual regions."""

from __future__ import annotations

from ..core.errors import InvalidArgument
from ..core.shape import ProgramShape, Shape
from ..hlo.custom_calls import target_of
from ..hlo.ir import Instruction, Module
from ..hlo.mesh_sharding import Mesh, parse_meshes

SHARDING = "Sharding"
_ANNOTATIONS = frozenset({SHARDING, "xla.sdy.FuncResultSharding", "xla.sdy.PropagationBarrier", "ShardBarrierFrom",
                          "ShardBarrierTo"})
_ENTERS = frozenset({"SPMDFullToShardShape", "xla.sdy.GlobalToLocalShape"})
_WHOLE = "xla_torch.whole_shape"
_LEAVES = frozenset({"SPMDShardToFullShape", "xla.sdy.LocalToGlobalShape"})


def is_sharding(instruction: Instruction) -> bool:
    """Whether it is an annotation of a value in GSPMD's words."""
    return target_of(instruction) == SHARDING


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


def state_whole(module: Module, whole: ProgramShape) -> None:
    """Say in the header of one participant's program which whole arrays it is about."""
    stated = str(Shape.tuple((*whole.parameters, whole.result)).without_layout())
    module.header["frontend_attributes"] = {**module.header.get("frontend_attributes", {}), _WHOLE: stated}


def whole_shape(module: Module) -> ProgramShape | None:
    """The shapes of the whole arrays that one participant's program is about, where `state_whole` has said them. Raises
    InvalidArgument where they are not those of such a program."""
    stated = module.header.get("frontend_attributes", {}).get(_WHOLE)
    if stated is None:
        return None
    *parameters, result = Shape.parse(stated).tuple_shapes
    own = module.entry.program_shape
    if [p.rank for p in own.parameters if p.is_array] != [p.rank for p in parameters if p.is_array]:
        raise InvalidArgument(f"{_WHOLE} is not a shape of an array of this program", got=stated, expected=str(own))
    return ProgramShape(tuple(parameters), result, own.parameter_names)


def meshes_of(module: Module) -> dict[str, Mesh]:
    """The meshes of a program that came from Shardy, by name."""
    text = module.header.get("frontend_attributes", {}).get("xla.sdy.meshes", "")
    return parse_meshes(text) if text else {}
