"""The Python code that runs, as text to read: the source of GraphModules with the HLO instruction behind each line."""

from __future__ import annotations

import re

import torch
import torch.fx

from ..hlo.ir import Computation
from ..kernels.native_bundles import NativeBundle
from ..lowering.emit import comment
from ..lowering.programs import lower

_SLICE = re.compile(r"slice\((None|-?\d+), (None|-?\d+), (None|-?\d+)\)")
_INDEX = re.compile(r"\[\(([-\d:]++(?:, [-\d:]++)*+),?\)\]|\[\(?([-\d:]++),?\)?\]$")
_KERNEL = re.compile(r"= xla_torch_kernels_([a-z]+)_(\w+)\(")


def _readable(code: str) -> str:
    """What torch.fx prints as ``x[(slice(None, None, None), slice(0, 3, None))]`` the way people write it, ``x[:, 0:3]``,
    and our own kernels by their name below `xla_torch`."""
    def colon(match: re.Match[str]) -> str:
        start, stop, step = ("" if word == "None" else word for word in match.groups())
        return f"{start}:{stop}" + (f":{step}" if step else "")

    code = _KERNEL.sub(r"= kernels.\1.\2(", code)
    if "slice(" not in code:
        return code
    return _INDEX.sub(lambda m: f"[{m.group(1) or m.group(2)}]", _SLICE.sub(colon, code))


def in_torch(computation: Computation, lowered: torch.fx.GraphModule, device: torch.device) -> torch.fx.GraphModule:
    """The lowered computation for people to read: with torch's calls for small ops, also where these are one native call."""
    if not any(isinstance(m, NativeBundle) for m in lowered.modules()):
        return lowered
    return lower(computation, device, bundles=False)


def annotated_code(module: torch.fx.GraphModule, indent: str = "") -> str:
    """The source of a GraphModule and its sub-programs, each line with the name of its HLO instruction."""
    origin = {n.name: n.meta["hlo"] for n in module.graph.nodes if "hlo" in n.meta}
    lines: list[str] = []
    for line in module.code.strip().splitlines():
        instruction = origin.get(line.split("=", 1)[0].strip().split(":")[0])
        code = _readable(line.split(";  ")[0])
        note = f"  # %{comment(instruction.name)}" if instruction is not None else ""
        lines.append(f"{indent}{code}{note}".rstrip())
    for name, child in module.named_children():
        if isinstance(child, torch.fx.GraphModule):
            lines += ["", f"{indent}# self.{name}:", annotated_code(child, indent)]
    return "\n".join(lines)
