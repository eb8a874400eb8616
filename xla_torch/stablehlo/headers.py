"""Attributes of modules, of functions' arguments and of their results as what stands in an HLO module's header."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.errors import InvalidArgument
from ..core.shape import Shape
from ..hlo.mesh_sharding import Mesh
from ..mlir.ir import Operation
from .annotations import SHARDING, frontend_of, sharding_of
from .layouts import laid
from .shardy import of_argument
from .tilings import meshes_text

_PARAMETER_LAYOUTS = "mhlo.xla_entry_computation_parameter_layouts"
_RESULT_LAYOUT = "mhlo.xla_entry_computation_result_layout"


@dataclasses.dataclass(frozen=True, slots=True)
class ParameterAttributes:
    """What is said of a parameter: what its instruction carries, the result whose buffer it shares, and whether it is donated."""

    common: dict[str, Any]
    aliased: int | None = None
    donated: bool = False


def parameter_attributes(function: Operation, meshes: Mapping[str, Mesh]) -> list[ParameterAttributes]:
    """The attributes of a function's arguments. `meshes` are those of Shardy's shardings."""
    given = attributes_of_each(function, "arg_attrs", len(function.regions[0].blocks[0].arguments))
    return [_parameter(a, meshes) for a in given]


def attributes_of_each(function: Operation, name: str, count: int) -> list[dict[str, Any]]:
    """What a function says of each of its arguments (``arg_attrs``) or results (``res_attrs``). Raises InvalidArgument where it
    speaks of another number of them."""
    given = function.attributes.get(name) or ({},) * count
    if not isinstance(given, tuple) or len(given) != count:
        raise InvalidArgument(f"{name} of a function do not fit it", got=given if not isinstance(given, tuple) else len(given),
                             expected=f"a list of {count} dictionaries", where=function.where)
    return [a if isinstance(a, dict) else {} for a in given]


def _parameter(given: dict[str, Any], meshes: Mapping[str, Mesh]) -> ParameterAttributes:
    common: dict[str, Any] = {}
    if SHARDING in given:
        common["sharding"] = sharding_of(given[SHARDING])
    stated, tiling = of_argument(given, meshes)
    if tiling is not None:
        common["sharding"] = tiling
    frontend = frontend_of(given) | stated
    if frontend:
        common["frontend_attributes"] = frontend
    replicated = given.get("mhlo.parameter_replication")
    if isinstance(replicated, tuple) and replicated:
        common["parameter_replication"] = "{" + ",".join("true" if r else "false" for r in replicated) + "}"
    elif given.get("mhlo.is_same_data_across_replicas"):
        common["parameter_replication"] = "{true}"
    return ParameterAttributes(common, given.get("tf.aliasing_output"), bool(given.get("jax.buffer_donor")))


def header_of(module: Operation, function: Operation, parameters: Sequence[ParameterAttributes], shapes: Sequence[Shape],
              result: Shape) -> tuple[dict[str, Any], dict[str, dict[int, str]]]:
    """The header of an HLO module, and its tables (none: places in files stand in the metadata itself)."""
    attributes = module.attributes
    header: dict[str, Any] = {}
    aliases = [(p.aliased, n) for n, p in enumerate(parameters) if p.aliased is not None]
    if aliases:
        index = (lambda r: f"{{{r}}}") if result.is_tuple else (lambda r: "{}")
        header["input_output_alias"] = "{ " + ", ".join(f"{index(r)}: ({n}, {{}}, may-alias)" for r, n in sorted(aliases)) + " }"
    donors = [n for n, p in enumerate(parameters) if p.donated]
    if donors:
        header["buffer_donor"] = "{ " + ", ".join(f"({n}, {{}})" for n in donors) + " }"
    layout = _entry_layout(attributes, shapes, result)
    if layout:
        header["entry_computation_layout"] = layout
    for name, key in (("mhlo.num_replicas", "replica_count"), ("mhlo.num_partitions", "num_partitions")):
        if isinstance(attributes.get(name), int) and attributes[name] > 1:
            header[key] = attributes[name]
    meshes = meshes_text(module)
    frontend = frontend_of(attributes) | ({"xla.sdy.meshes": meshes} if meshes else {})
    if frontend:
        header["frontend_attributes"] = frontend
    return header, {}


def _entry_layout(attributes: dict[str, Any], shapes: Sequence[Shape], result: Shape) -> str:
    """Layouts of parameters and result, where some are written."""
    of_parameters, of_result = attributes.get(_PARAMETER_LAYOUTS), attributes.get(_RESULT_LAYOUT)
    if of_parameters is None and of_result is None:
        return ""
    given = [laid(s, p) for s, p in zip(shapes, of_parameters or [None] * len(shapes), strict=True)]
    parts = of_result if isinstance(of_result, tuple) else (of_result,)
    whole = (Shape.tuple([laid(s, p) for s, p in zip(result.tuple_shapes, parts, strict=True)])
             if result.is_tuple and of_result is not None else laid(result, parts[0]))
    return "{(" + ", ".join(s.to_text() for s in given) + ")->" + whole.to_text() + "}"
