"""A program as Google's Model Explorer reads it: a graph for each computation, namespaces by op_name."""

from __future__ import annotations

import json
from typing import Any

from ..hlo.ir import Computation, Instruction, Module
from ..hlo.printer import PrintOptions, print_instruction
from .groups import Path, paths
from .rows import LINE, source_of, text


def model_explorer(module: Module) -> str:
    """The JSON of one collection of graphs, the entry's first."""
    computations = module.computations[::-1]
    names = dict(zip(map(id, computations), _distinct([c.name for c in computations]), strict=True))
    graphs = [_graph(computation, names) for computation in computations]
    return json.dumps({"label": text(module.name), "graphs": graphs}, separators=(",", ":"))


def _distinct(names: list[str]) -> list[str]:
    """By these ids are edges; a file may have a name twice, or only its first characters may be shown."""
    shown, given = [text(name) for name in names], set[str]()
    for at, name in enumerate(shown):
        while shown[at] in given:
            shown[at] = f"{name} ({at})" if shown[at] == name else f"{shown[at]}'"
        given.add(shown[at])
    return shown


def _graph(computation: Computation, names: dict[int, str]) -> dict[str, Any]:
    inside = paths(computation)
    ids = dict(zip(computation.instructions, _distinct([i.name for i in computation.instructions]), strict=True))
    return {"id": names[id(computation)],
            "nodes": [_node(i, inside[i], i is computation.root, ids, names) for i in computation.instructions]}


def _node(instruction: Instruction, inside: Path, root: bool, ids: dict[Instruction, str],
          names: dict[int, str]) -> dict[str, Any]:
    shape = repr(instruction.shape)
    stated = {"opcode": instruction.opcode, "shape": shape, "op_name": instruction.op_name,
            "source": source_of(instruction), "root": "true" if root else "",
            "instruction": print_instruction(instruction, PrintOptions(elide_above=16))}
    return {
        "id": ids[instruction], "label": instruction.opcode,
        # A slash within a level is not between levels: Model Explorer reads it where a backslash stands before it.
        "namespace": "/".join(text(level).replace("/", "\\/") for level in inside),
        "subgraphIds": [names[id(c)] for c in dict.fromkeys(instruction.called_computations)],
        "attrs": _attributes(stated),
        "incomingEdges": [{"sourceNodeId": ids[operand], "sourceNodeOutputId": "0", "targetNodeInputId": str(at)}
                          for at, operand in enumerate(instruction.operands)],
        "outputsMetadata": [{"id": "0", "attrs": _attributes({"__tensor_tag": ids[instruction], "shape": shape})}],
    }


def _attributes(stated: dict[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": text(value, LINE)} for key, value in stated.items() if value]
