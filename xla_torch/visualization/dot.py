"""A program as a graph in Graphviz's language: a cluster for each computation, dashed arrows where one is called."""

from __future__ import annotations

from collections.abc import Iterator

from ..core.printable import printable
from ..hlo.ir import Computation, Instruction, Module

_MOST = 200
"""Characters of a name."""


def dot(module: Module) -> str:
    """The graph as text. An arrow goes from an operand to its user, a dashed one from a computation's root to who calls it."""
    return "\n".join(_lines(module)) + "\n"


def _lines(module: Module) -> Iterator[str]:
    yield f"digraph {_quoted(module.name)} {{"
    yield '  graph [compound=true]; node [shape=box, fontname="sans-serif", fontsize=10];'
    computations = module.computations
    number = {i: n for n, i in enumerate(i for c in computations for i in c.instructions)}
    place = {id(c): n for n, c in enumerate(computations)}
    for computation in computations:
        yield from _cluster(place[id(computation)], computation, computation is module.entry, number)
    for instruction, own in number.items():
        for operand in instruction.operands:
            yield f"  n{number[operand]} -> n{own};"
        for called in dict.fromkeys(instruction.called_computations):
            yield f"  n{number[called.root]} -> n{own} [style=dashed, ltail=cluster_{place[id(called)]}];"
    yield "}"


def _cluster(place: int, computation: Computation, entry: bool, number: dict[Instruction, int]) -> Iterator[str]:
    yield f"  subgraph cluster_{place} {{"
    yield f"    label={_quoted(('ENTRY ' if entry else '') + '%' + computation.name)};"
    for instruction in computation.instructions:
        label = f"%{instruction.name}\n{instruction.opcode}\n{instruction.shape}"
        bold = ", penwidth=2" if instruction is computation.root else ""
        tip = f", tooltip={_quoted(instruction.op_name)}" if instruction.op_name else ""
        yield f"    n{number[instruction]} [label={_quoted(label)}{bold}{tip}];"
    yield "  }"


def _quoted(text: str) -> str:
    """A string of Graphviz: only quotes end it, but labels have escapes of their own, so that a backslash is two."""
    shown = "\n".join(printable(line, _MOST) for line in text.split("\n"))
    return '"' + shown.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
