"""HLO modules to modules of MLIR: the one way out for StableHLO."""

from __future__ import annotations

import re
from typing import Any

from ...errors import UnsupportedError
from ...hlo.ir import Module
from ...mlir.ir import Block, Operation, Region
from ...mlir.printing import print_module
from . import (  # noqa: F401  (fill the table)
    asynchronous,
    collective,
    compiled,
    contraction,
    control,
    custom_calls,
    elementwise,
    movement,
    reduction,
)
from .scope import Functions, function_of, noted


def to_stablehlo(module: Module) -> str:
    """The module as StableHLO text: a function ``main``, whose arguments and results are the leaves of the entry's parameters and
    result. Raises UnsupportedError, with the instruction, for what StableHLO has no word for or what is not written yet."""
    try:
        return print_module(_operation(module))
    except RecursionError:
        raise UnsupportedError("the program is nested too deeply", subject="StableHLO") from None


def _operation(module: Module) -> Operation:
    functions = Functions()
    main = function_of(functions, module.entry, "main", {"sym_visibility": "public"})
    arguments = main.regions[0].blocks[0].arguments
    said: list[dict[str, Any]] = [{} for _ in arguments]
    start = 0
    for parameter in module.entry.parameters:
        count = len(list(parameter.shape.leaves()))
        if count:
            said[start].update(noted(parameter))
        start += count
    if any(said):
        main.attributes["arg_attrs"] = tuple(said)
    attributes: dict[str, Any] = {"sym_name": re.sub(r"\W", "_", module.name, flags=re.ASCII)}
    if module.header.get("frontend_attributes"):
        attributes["mhlo.frontend_attributes"] = dict(module.header["frontend_attributes"])
    if module.replica_count > 1:
        attributes["mhlo.num_replicas"] = module.replica_count
    if module.num_partitions > 1:
        attributes["mhlo.num_partitions"] = module.num_partitions
    return Operation("builtin.module", [], (), attributes, [Region([Block((), [main, *functions.written])])])
