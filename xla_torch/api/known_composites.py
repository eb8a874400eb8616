"""Composites of files that a kernel may run: those whose decomposition is what ours is for their name and attributes.

A file says what a composite is called, and that alone is no reason to run something else than its decomposition. So ours is
made once more, and written and read as the file was. Where the two differ, or the version is another one, the decomposition runs.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from typing import Any

from ..hlo.composites import PREFIX, VERSION, name_of
from ..hlo.derivatives import bringing
from ..hlo.ir import Computation, Instruction, Module
from ..hlo.parser import parse_hlo
from ..hlo.printer import PrintOptions, print_module
from ..hlo.regions import callee
from ..mlir.bytecode import parser as bytecode
from ..mlir.bytecode.text import attribute_of_text
from ..proto.containers import read_proto
from ..proto.writing import serialized
from ..stablehlo.convert import to_module
from ..stablehlo.writing.module import to_stablehlo_bytecode
from ..transform.canonical import canonicalize
from .torch_composites import decomposition


def mark_known(module: Module) -> Module:
    """The module, in which the decompositions that are known bring the derivatives of their kernels."""
    for computation in module.computations:
        for instruction in computation.instructions:
            name = name_of(instruction)
            if not name.startswith(PREFIX):
                continue
            stated = instruction.common["frontend_attributes"]
            if stated.get("composite.version") == str(VERSION):
                _mark(instruction, name, stated.get("composite.attributes", ""))
    return module


def _mark(instruction: Instruction, name: str, attributes: str) -> None:
    computation = callee(instruction)
    if computation.derivatives is not None:
        return
    with contextlib.suppress(Exception):  # whatever torch raises for attributes that it does not take: then it is not known
        given = json.dumps(_numbers(attribute_of_text(attributes, 0)))
        own = decomposition(name, given, tuple(o.shape.without_layout() for o in instruction.operands))
        if _written(computation) in map(_written, _forms(bringing(own, None))):
            computation.derivatives = own.derivatives


def _numbers(value: Any) -> Any:
    """An attribute of MLIR as JSON has it."""
    if isinstance(value, dict):
        return {str(k): _numbers(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_numbers(v) for v in value]
    if isinstance(value, (bool, str)):
        return value
    return int(value) if isinstance(value, int) else float(value)


def _forms(own: Computation) -> Iterator[Computation]:
    """A decomposition as it is, and as it is read from HLO text, HLO protos and StableHLO."""
    yield own
    module = Module(own.name, own)
    yield parse_hlo(print_module(module)).entry
    yield read_proto(b"".join(serialized(module))).module().entry
    found = to_module(bytecode.parse(to_stablehlo_bytecode(module)))
    if isinstance(found, Module):
        yield found.entry


def _written(computation: Computation) -> str:
    """A computation in canonical form as text, with numbers for names: equal texts are equal computations."""
    text = print_module(Module("", canonicalize(bringing(computation, None))), PrintOptions(metadata=False, layouts=False))
    numbers: dict[str, str] = {}
    return re.sub(r"%[\w.\-]+", lambda found: numbers.setdefault(found[0], f"%{len(numbers)}"), text)
