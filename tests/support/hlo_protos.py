"""HLO protos by jaxlib, which is the oracle of the own reader and writer, and modules in a form that two readers can agree on."""

from __future__ import annotations

import re
from typing import Any

from support import oracle
from xla_torch.hlo.ir import Module
from xla_torch.hlo.printer import print_module
from xla_torch.opcodes import front
from xla_torch.proto.containers import read_proto
from xla_torch.proto.writing import serialized

if oracle.HAS_XLA:
    from jaxlib import _hlo  # pyright: ignore[reportAttributeAccessIssue]


def module_proto(text: str) -> bytes:
    """The HloModuleProto that XLA makes of HLO text."""
    return _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()


def module_text(data: bytes) -> str:
    """The HLO text that XLA makes of an HloModuleProto, with all constants."""
    options = _hlo.HloPrintOptions()
    options.print_large_constants = True
    return _hlo.HloModule.from_serialized_hlo_module_proto(data).to_string(options)


def canonical(module: Module) -> dict[str, tuple[str, ...]]:
    """The lines of each computation by its head, without what is a reader's choice: the order of computations, of instructions
    and of attributes, and which rows of the tables stack frames are in."""
    for computation in module.computations:
        for instruction in computation.instructions:
            instruction.attributes = dict(sorted(instruction.attributes.items()))
            metadata = instruction.common.get("metadata")
            if metadata and "stack_frame_id" in metadata:
                frames = _frames(module.tables, metadata["stack_frame_id"])
                instruction.common["metadata"] = metadata | {"stack_frame_id": frames}
    text = print_module(Module(module.name, module.entry, module.header, {}, module.unreachable))
    blocks = [block.strip().split("\n") for block in re.split(r"\n\n?(?=%|ENTRY)", text)]
    return {head: tuple(sorted(lines)) for head, *lines in blocks}


def _frames(tables: dict[str, dict[int, str]], number: int) -> str:
    found: list[Any] = []
    while number and len(found) < 200:
        frame = _numbers(tables["StackFrames"][number])
        place = _numbers(tables["FileLocations"][frame["file_location_id"]])
        found.append((tables["FileNames"][place.pop("file_name_id")], tables["FunctionNames"][place.pop("function_name_id")],
                      sorted(place.items())))
        number = frame["parent_frame_id"] - 1
    return str(found)


def _numbers(row: str) -> dict[str, int]:
    return {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", row)}


def read_text(text: str) -> dict[str, tuple[str, ...]]:
    """HLO text in canonical form."""
    return canonical(front.parse_module(text))


def entry(*lines: str, header: str = "", before: str = "") -> str:
    """A module of one computation."""
    body = "\n  ".join(lines)
    return f"HloModule m{header}\n\n{before}ENTRY e {{\n  {body}\n}}\n"


def read(data: bytes) -> front.Module:
    """The module that we read of a proto."""
    return read_proto(data).module()


def written(text: str) -> bytes:
    """The HloModuleProto that we write of HLO text."""
    return b"".join(serialized(front.parse_module(text)))
