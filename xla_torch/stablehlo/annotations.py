"""What stands beside an operation and is no part of what it computes: locations, shardings, frontend attributes, layouts."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .. import proto
from ..core.errors import InvalidArgument
from ..core.types import PrimitiveType
from ..functions.hlo_builder import XlaOp
from ..hlo.ir import Instruction
from ..hlo.mesh_sharding import Mesh
from ..hlo.sharding import Sharding, ShardingKind
from ..mlir.ir import Array, Elements, Float, Integer, Location, Opaque, Operation, Type
from ..mlir.text import printing
from ..mlir.text.printing import type_text
from .tilings import per_value, tilings_of

SHARDING = "mhlo.sharding"
FRONTEND = "mhlo.frontend_attributes"
SDY_SHARDING = "sdy.sharding"
SDY_RULE = "sdy.sharding_rule"


def annotate(instructions: Sequence[Instruction], operation: Operation, results: Sequence[XlaOp],
             meshes: Mapping[str, Mesh]) -> None:
    """Give the instructions that an operation became what stands beside it. `meshes` are those of Shardy's shardings; without
    any their tilings are left away."""
    metadata = metadata_of(operation.location)
    attributes = operation.attributes
    frontend = frontend_of(attributes)
    text = attributes.get(SHARDING)
    for instruction in instructions:
        instruction.line, instruction.column = operation.line, operation.column
        if metadata:
            instruction.common["metadata"] = metadata
        if frontend:
            instruction.common["frontend_attributes"] = instruction.common.get("frontend_attributes", {}) | frontend
    if text is not None and instructions:
        _shard(instructions, sharding_of(text), results)
    elif meshes and instructions and SDY_SHARDING in attributes:
        tilings = tilings_of(attributes[SDY_SHARDING], meshes)
        whole = tilings[0] if len(tilings) == 1 else Sharding(ShardingKind.TUPLE, elements=tuple(tilings))
        _shard(instructions, whole, results)


def _shard(instructions: Sequence[Instruction], sharding: Sharding, results: Sequence[XlaOp]) -> None:
    """A sharding on all instructions of an operation; of a tuple's, each element has its own."""
    if not sharding.elements:
        for instruction in instructions:
            instruction.common["sharding"] = sharding.of_tuple(instruction.shape) if instruction.shape.is_tuple else sharding
        return
    for number, result in enumerate(results):
        if result.instruction.is_element and number < len(sharding.elements):
            result.instruction.common["sharding"] = sharding.elements[number]
    for instruction in instructions:
        if instruction.shape.is_tuple:
            instruction.common["sharding"] = sharding


def metadata_of(location: Location | None) -> dict[str, Any] | None:
    """A location as HLO's metadata: the named scope, and the innermost place in a file."""
    if location is None:
        return None
    found: dict[str, Any] = {}
    if location.name:
        found["op_name"] = location.name
    if location.frames:
        found["source_file"], found["source_line"] = location.frames[0][:2]
    return found or None


def frontend_of(attributes: Mapping[str, Any]) -> dict[str, str]:
    """Frontend attributes as written, and Shardy's among them, as XLA's converter hands them on."""
    given = attributes.get(FRONTEND)
    found = {k: v if isinstance(v, str) else attribute_text(v) for k, v in given.items()} if isinstance(given, dict) else {}
    sharding, rule = attributes.get(SDY_SHARDING), attributes.get(SDY_RULE)
    if isinstance(sharding, Opaque):
        found[f"xla.{SDY_SHARDING}"] = per_value(sharding.text)
    if isinstance(rule, Opaque):
        found[f"xla.{SDY_RULE}"] = rule.text
    return found


def attribute_text(value: Any) -> str:
    """An attribute as MLIR writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, int | float):
        return _number_text(value)
    if isinstance(value, tuple):
        return _list_text(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k} = {attribute_text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, Elements):
        return printing.attribute_text(value)
    return value.text if isinstance(value, Opaque) else str(value)


def _number_text(value: float, elided: bool = False) -> str:
    """A number with its type, as whoever takes a configuration looks at the width. In lists a usual one is left out."""
    default = PrimitiveType.F64 if isinstance(value, float) else PrimitiveType.S64
    of = value.type if isinstance(value, Integer | Float) else default
    return _digits(value, of) if elided and of is default and math.isfinite(value) else f"{_digits(value, of)} : {type_text(of)}"


def _digits(value: float, of: Type) -> str:
    """Digits, or the bits of a float that a few digits do not say."""
    if not isinstance(value, float):
        return str(value)
    numpy = (of.numpy if isinstance(of, PrimitiveType) else None) or np.float64
    text, bits = f"{value:.6e}", np.asarray(value, numpy)
    if math.isfinite(value) and np.asarray(float(text), numpy) == bits:
        return text
    return f"0x{bits.view(f'u{bits.itemsize}')[()]:0{2 * bits.itemsize}X}"


def _list_text(value: tuple[Any, ...]) -> str:
    """A list, or an array, which is all that those who take configurations read of numbers alone."""
    of = value.type if isinstance(value, Array) else PrimitiveType.S64
    if not isinstance(value, Array) and (not value or any(type(v) is not int for v in value)):
        return f"[{', '.join(_number_text(v, True) if _is_number(v) else attribute_text(v) for v in value)}]"
    return f"array<{type_text(of)}{': ' if value else ''}{', '.join(_digits(v, of) for v in value)}>"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@functools.lru_cache(maxsize=1024)
def _parsed(text: str) -> Sharding:
    return Sharding.parse(text)


def sharding_of(text: Any) -> Sharding:
    """The sharding in an ``mhlo.sharding`` attribute."""
    if isinstance(text, str) and text.startswith("{"):
        return _parsed(text)
    if not isinstance(text, (str, bytes)):
        raise InvalidArgument("the sharding is no text", got=repr(text)[:80], expected='as "{replicated}"')
    return proto.serialized_sharding.sharding_of_bytes(text.encode() if isinstance(text, str) else text)
