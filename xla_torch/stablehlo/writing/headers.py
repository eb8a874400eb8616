"""What stands beside ``main``: shardings of its arguments and results, memory that they share, how they lie, participants.

Memory and layouts are written as XLA's converter reads them (``tf.aliasing_output``, ``jax.buffer_donor``, entry layouts) and,
for runtimes that take modules as they are, as JAX writes them (``mhlo.layout_mode``). A must-alias becomes one that may be: there
is no other. Tiles of layouts are a device's own and are left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core.shape import Shape
from ...hlo.entry_notes import Place, aliases, donors, entry_layout
from ...hlo.ir import Module
from ...hlo.sharding import Sharding
from ...mlir.ir import INDEX, Elements, Tensor
from .scope import noted


def argument_attributes(module: Module) -> list[dict[str, Any]]:
    """The attributes of each argument, which is an array of a parameter."""
    stated: list[dict[str, Any]] = []
    firsts: list[int] = []
    for parameter in module.entry.parameters:
        firsts.append(len(stated))
        stated += [{} for _ in parameter.shape.leaves()]
        if stated[firsts[-1]:]:
            stated[firsts[-1]].update(noted(parameter))
        _shard(stated[firsts[-1]:], parameter.common.get("sharding"), parameter.shape)
    shape = module.entry.program_shape
    places = [{p: k for k, p in enumerate(_places(s))} for s in shape.parameters]
    outputs = {p: k for k, p in enumerate(_places(shape.result))}
    for alias in aliases(module):
        if alias.place in places[alias.number] and alias.output in outputs:
            stated[firsts[alias.number] + places[alias.number][alias.place]]["tf.aliasing_output"] = outputs[alias.output]
    for number, index in donors(module):
        if index in places[number]:
            stated[firsts[number] + places[number][index]]["jax.buffer_donor"] = True
    _lay(stated, [leaf for p in entry_layout(module).parameters for leaf in p.leaves()])
    return stated


def result_attributes(module: Module) -> list[dict[str, Any]]:
    """The attributes of each result. A sharding of one array stands with its operation."""
    root = module.entry.root
    stated: list[dict[str, Any]] = [{} for _ in root.shape.leaves()]
    if root.is_tuple:
        _shard(stated, root.common.get("sharding"), root.shape)
    _lay(stated, list(entry_layout(module).result.leaves()))
    return stated


def module_attributes(module: Module) -> dict[str, Any]:
    attributes: dict[str, Any] = {"sym_name": re.sub(r"\W", "_", module.name, flags=re.ASCII)}
    if module.header.get("frontend_attributes"):
        attributes["mhlo.frontend_attributes"] = dict(module.header["frontend_attributes"])
    if module.replica_count > 1:
        attributes["mhlo.num_replicas"] = module.replica_count
    if module.num_partitions > 1:
        attributes["mhlo.num_partitions"] = module.num_partitions
    shape = entry_layout(module)
    parameters, results = [leaf for p in shape.parameters for leaf in p.leaves()], list(shape.result.leaves())
    if any(map(_is_laid, (*parameters, *results))):
        whole = tuple(map(layout_of, results))
        attributes["mhlo.xla_entry_computation_parameter_layouts"] = tuple(map(layout_of, parameters))
        attributes["mhlo.xla_entry_computation_result_layout"] = whole if len(whole) != 1 else whole[0]
    return attributes


def _shard(stated: Sequence[dict[str, Any]], sharding: Sharding | None, shape: Shape) -> None:
    """The sharding of each array of a tuple. (That of one array is noted as any instruction's.)"""
    if sharding is None or not shape.is_tuple:
        return
    for attributes, each in zip(stated, sharding.leaves(shape), strict=False):
        attributes["mhlo.sharding"] = str(each)


def _places(shape: Shape) -> list[Place]:
    """Where each array of a shape is in it."""
    if not shape.is_tuple:
        return [()]
    return [(k, *place) for k, part in enumerate(shape.tuple_shapes) for place in _places(part)]


# ------------------------------------------------------------------------------------------------------- layouts


def _is_laid(shape: Shape) -> bool:
    """Whether an array lies in another order than its dimensions have."""
    return shape.is_array and shape.minor_to_major != tuple(range(shape.rank - 1, -1, -1))


def _lay(stated: Sequence[dict[str, Any]], shapes: Sequence[Shape]) -> None:
    for attributes, shape in zip(stated, shapes, strict=True):
        if _is_laid(shape):
            attributes["mhlo.layout_mode"] = "{" + ",".join(map(str, shape.minor_to_major)) + "}"


def layout_of(shape: Shape) -> Elements:
    """The order of an array in memory as an attribute; of a token nothing."""
    order = np.asarray(shape.minor_to_major if shape.is_array else (), np.int64)
    return Elements(Tensor(order.shape, INDEX), order)
