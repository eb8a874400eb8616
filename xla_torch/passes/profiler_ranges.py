"""Ranges of torch's profiler around the calls of a graph, so that it shows whose work they are."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator, Sequence

from torch.fx import Graph, Node

from ..analysis.op_names import levels_of
from ..core.printable import printable
from ..hlo.ir import Instruction
from ..kernels.ranges import entered, left

LONGEST = 400
"""Characters of a name that a range has at most."""


def enter_ranges(graph: Graph) -> None:
    """Rewrite the graph in place: each level of the instructions' op_names is a range, named by all levels down to it, around the
    calls below it that follow each other. A call that does the work of several instructions is in the levels that all have, and
    in one range with the names of all."""
    within: list[tuple[str, Node]] = []
    for node in list(graph.nodes):
        names = list(_names(node))
        if node.op != "output" and not names:
            continue  # it takes no time, or is part of what stands around it
        wanted = _ranges(names)
        shared = len(_shared([[name for name, _ in within], wanted]))
        with graph.inserting_before(node):
            while len(within) > shared:
                graph.call_function(left, (within.pop()[1],))
            for name in wanted[shared:]:
                within.append((name, graph.call_function(entered, (name,))))


def _names(node: Node) -> Iterator[str]:
    """The op_names of what a call computes; none where it only takes apart what another has computed."""
    if node.op in ("call_function", "call_method") and node.target is not operator.getitem:
        hlo: Instruction | None = node.meta.get("hlo")
        yield from dict.fromkeys(i.op_name for i in node.meta.get("inside", [hlo] if hlo is not None else []))


def _ranges(op_names: Sequence[str]) -> list[str]:
    """The names of the ranges around a call, from the outermost."""
    paths = [levels_of(name) for name in op_names]
    shared = _shared(paths)
    found = ["/".join(shared[:k + 1]) for k in range(len(shared))]
    rest = list(dict.fromkeys("/".join(path[len(shared):]) for path in paths if len(path) > len(shared)))
    if rest:
        found.append("/".join([*shared, " + ".join(rest)]))
    return [printable(name, LONGEST) for name in found]


def _shared(lists: Sequence[list[str]]) -> list[str]:
    """What all lists begin with."""
    columns = itertools.takewhile(lambda column: len(set(column)) == 1, zip(*lists, strict=False))
    return [column[0] for column in columns]
