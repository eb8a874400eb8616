"""Shardy's shardings, by axes of a mesh, as the tilings that they mean."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..hlo.mesh_sharding import Mesh, MeshSharding, parse_meshes, parse_sdy_shardings
from ..hlo.sharding import Sharding
from ..mlir.ir import Opaque, Operation


def meshes_text(module: Operation) -> str:
    """The meshes of a module as the frontend attribute ``xla.sdy.meshes``, "" where there are none."""
    operations = [o for r in module.regions for b in r.blocks for o in b.operations]
    meshes = {o.symbol: o.attributes.get("mesh") for o in operations if o.name == "sdy.mesh"}
    listed = [f"{name} = {mesh.text}" for name, mesh in meshes.items() if isinstance(mesh, Opaque)]
    return "{" + ", ".join(listed) + "}" if listed else ""


def meshes_of(module: Operation) -> dict[str, Mesh]:
    """The meshes of a module by name. Raises HloSyntaxError for one that is none."""
    text = meshes_text(module)
    return parse_meshes(text) if text else {}


def per_value(text: str) -> str:
    """Shardy's sharding of one value, or of several, as the frontend attribute has it."""
    inner = text.removeprefix("#sdy.sharding")
    return text if inner.startswith("_per_value") else f"#sdy.sharding_per_value<[{inner}]>"


def tilings_of(attribute: object, meshes: Mapping[str, Mesh]) -> list[Sharding]:
    """The tilings that an attribute ``sdy.sharding`` means, one for each value. Raises HloSyntaxError."""
    if not isinstance(attribute, Opaque):
        return []
    return [tiling(s) for s in parse_sdy_shardings(per_value(attribute.text), meshes)]


def tiling(sharding: MeshSharding) -> Sharding:
    counts, tiles, _ = sharding.tiles()
    pieces = int(np.prod(counts, dtype=np.int64)) if counts else 1
    if pieces == 1:
        return Sharding.parse("{replicated}")
    count = sharding.device_count
    order = np.argsort(tiles, kind="stable").tolist()
    dims = [*counts, count // pieces] if count != pieces else list(counts)
    listed = f"<=[{count}]" if order == list(range(count)) else ",".join(map(str, order))
    last = " last_tile_dim_replicate" if count != pieces else ""
    return Sharding.parse(f"{{devices=[{','.join(map(str, dims))}]{listed}{last}}}")
