"""A profile to read: a table, a trace of events, a flame graph. Names are from files: they are escaped wherever they go."""

from __future__ import annotations

import dataclasses
import html
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..analysis.cost_rules import Cost
from ..analysis.op_names import levels_of
from ..core.printable import printable
from .profile_rows import Event, Machine, Row

_NAME = 200
"""Characters of a name that are shown."""

_LEAST = 0.0005
"""The share of the whole from which a piece of a flame graph is drawn: half a pixel of a thousand."""


# ---------------------------------------------------------------------------------------------------- tree


@dataclasses.dataclass
class Node:
    """One level of the op_names: what is below it, all together. A `leaf` is an instruction."""

    name: str
    seconds: float = 0.0
    cost: Cost = dataclasses.field(default_factory=Cost)
    count: int = 0
    below: dict[tuple[str, bool], Node] = dataclasses.field(default_factory=dict)
    leaf: bool = False

    def add(self, row: Row) -> None:
        self.seconds += row.seconds
        self.cost += row.cost
        self.count += row.count

    @property
    def dearest(self) -> list[Node]:
        return sorted(self.below.values(), key=lambda node: -node.seconds)


def tree(rows: Sequence[Row]) -> Node:
    """The rows by program, then by the levels of their op_name, the instructions at the ends."""
    root = Node("all")
    for row in rows:
        root.add(row)
        node = root
        path = [row.program, *(levels_of(row.op_name) or ["(no op_name)"]), row.name]
        for depth, name in enumerate(path):
            leaf = depth == len(path) - 1
            node = node.below.setdefault((name, leaf), Node(name, leaf=leaf))
            node.add(row)
    return root


# ---------------------------------------------------------------------------------------------------- table


def table(rows: Sequence[Row], machine: Machine, lowered: float | None, most: int) -> str:
    """The instructions and the tree in lines, with shares of the machine."""
    whole = sum(row.seconds for row in rows)
    lines = [f"{time_of(whole)} instruction by instruction"]
    if lowered is not None:
        lines[0] += f", {time_of(lowered)} as a call of the lowered program"
    lines += [f"machine: {machine.bandwidth / 1e9:.3g} GB/s, {machine.flops / 1e9:.3g} Gflop/s in products of f32", ""]
    shown = [_cells(row.seconds, whole, row.count, row.cost, machine, f"{row.instruction.opcode} %{row.name}", row.op_name)
             for row in rows[:most]]
    lines += _aligned(shown, "instruction", "op_name")
    lines += [f"... and {len(rows) - most} more"] * (len(rows) > most)
    parts = [_cells(node.seconds, whole, node.count, node.cost, machine, "  " * depth + node.name, "")
             for depth, node in _upper(tree(rows), most)]
    return "\n".join([*lines, "", *_aligned(parts, "by op_name", "")])


def _upper(node: Node, most: int) -> Iterator[tuple[int, Node]]:
    """The tree without its leaves, the dearest first, `most` lines at most."""
    waiting = [(0, n) for n in reversed(node.dearest)]
    while waiting and most:
        depth, found = waiting.pop()
        yield depth, found
        most -= 1
        waiting += [(depth + 1, n) for n in reversed(found.dearest) if not n.leaf]


def _cells(seconds: float, whole: float, count: int, cost: Cost, machine: Machine, name: str, op_name: str) -> tuple[str, ...]:
    return (time_of(seconds), _share(seconds, whole), str(count), _scaled(cost.bytes, "B"), _scaled(cost.flops, ""),
            _share(cost.bytes, seconds * machine.bandwidth), _share(cost.flops, seconds * machine.flops),
            printable(name, _NAME), printable(op_name, _NAME))


def _aligned(cells: Sequence[tuple[str, ...]], name: str, op_name: str) -> list[str]:
    head = ("time", "share", "runs", "bytes", "flops", "of bandwidth", "of flops", name, op_name)
    return aligned([head, *cells], right=7)


def aligned(rows: Sequence[Sequence[str]], right: int) -> list[str]:
    """Rows of cells as lines, the first `right` columns to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.rjust(width) if n < right else cell.ljust(width) for n, (cell, width) in enumerate(
        zip(row, widths, strict=True))).rstrip() for row in rows]


def time_of(seconds: float) -> str:
    """Seconds in their unit, three digits of them."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f}%" if part and whole > 0 else ""


def _scaled(number: float, unit: str) -> str:
    if not number:
        return ""
    for prefix in ("", "k", "M", "G"):
        if number < 1000:
            return f"{number:.3g} {prefix}{unit}".rstrip()
        number /= 1000
    return f"{number:.3g} T{unit}"


# ---------------------------------------------------------------------------------------------------- trace


def chrome_trace(events: Sequence[Event], left_out: int, path: str | os.PathLike[str]) -> None:
    """Write events in the form of torch.profiler: complete events in microseconds."""
    process = os.getpid()
    found: list[dict[str, Any]] = [{
        "ph": "X", "cat": "cpu_op", "name": f"{event.row.instruction.opcode} %{event.row.name}", "pid": process,
        "tid": event.thread, "ts": event.start * 1e6, "dur": event.seconds * 1e6, "args": _stated(event)} for event in events]
    write_trace(found, path, left_out=left_out)


def write_trace(events: Sequence[dict[str, Any]], path: str | os.PathLike[str], **stated: Any) -> None:
    """Write events of the trace format as a file for chrome://tracing and Perfetto."""
    whole = {"schemaVersion": 1, "displayTimeUnit": "ms", "traceEvents": list(events), **stated}
    Path(path).write_text(json.dumps(whole), encoding="utf-8")


def _stated(event: Event) -> dict[str, Any]:
    instruction = event.row.instruction
    return {"program": event.row.program, "shape": str(instruction.shape), "op_name": instruction.op_name,
            "loops": [f"{name}[{number}]" for name, number in event.place]}


# ---------------------------------------------------------------------------------------------------- flame graph

_STYLE = """
body{font:13px system-ui,sans-serif;margin:1em}
.flame{position:relative;overflow:hidden}
.flame div{position:absolute;height:17px;box-sizing:border-box;border:1px solid #fff;border-radius:2px;overflow:hidden;
white-space:nowrap;font-size:11px;line-height:15px;padding:0 2px;color:#222}
"""


def flame_graph(rows: Sequence[Row], lowered: float | None, whole_page: bool = True) -> str:
    """The tree as boxes whose width is time. Plain HTML: what a box is stands in its tooltip."""
    root = tree(rows)
    boxes, levels = list(_boxes(root)), 1 + max((depth for depth, *_ in _boxes(root)), default=0)
    drawn = "\n".join(_box(depth, left, node, root.seconds) for depth, left, node in boxes)
    stated = f"{time_of(root.seconds)} instruction by instruction"
    if lowered is not None:
        stated += f"; a call of the lowered program takes {time_of(lowered)}"
    body = f'<p>{stated}</p><div class="flame" style="height:{18 * levels}px">{drawn}</div>'
    if not whole_page:
        return f"<style>{_STYLE.replace('body{font:13px system-ui,sans-serif;margin:1em}', '')}</style>{body}"
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" '
            f'content="{policy}"><title>profile</title><style>{_STYLE}</style></head><body>{body}</body></html>')


def _boxes(root: Node) -> Iterator[tuple[int, float, Node]]:
    """Each box with its depth and its left edge, in seconds."""
    waiting = [(0, 0.0, root)]
    while waiting:
        depth, left, node = waiting.pop()
        yield depth, left, node
        for each in node.dearest:
            if each.seconds >= _LEAST * root.seconds:
                waiting.append((depth + 1, left, each))
            left += each.seconds


def _box(depth: int, left: float, node: Node, whole: float) -> str:
    share = (lambda part: f"{100 * part / whole:.3f}%") if whole else (lambda part: "0%")
    name = html.escape(printable(node.name, _NAME))
    stated = html.escape(f"{printable(node.name, _NAME)}: {time_of(node.seconds)}, {_share(node.seconds, whole)}, "
                       f"{node.count} runs, {_scaled(node.cost.bytes, 'B') or '0 B'}, "
                       f"{_scaled(node.cost.flops, '') or '0'} flops")
    hue = 210 if node.leaf else 20 + sum(map(ord, node.name[:40])) % 40
    return (f'<div title="{stated}" style="left:{share(left)};width:{share(node.seconds)};top:{18 * depth}px;'
            f'background:hsl({hue},80%,75%)">{name}</div>')
