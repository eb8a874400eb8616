"""A program as one page to look through, without network: its instructions in a list that draws only what is seen.

Texts of the program stand in the page as JSON, which the page's code sets as text and never as markup; the page says by its
Content-Security-Policy that no other code runs, and nothing is fetched.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..analysis.cost import computation_cost, instruction_cost
from ..analysis.cost_rules import Cost
from ..core.printable import printable
from ..hlo.ir import Instruction, Module
from ..hlo.printer import PrintOptions, print_instruction
from ..hlo.regions import has_regions_of_values
from ..hlo.sharding import Iota, Sharding, ShardingKind

_NAME, _LINE = 300, 3000
"""Characters of a name, and of an instruction's line."""

_TITLES = ("<span>instruction</span><span>opcode</span><span>shape</span><span class=\"number\">bytes</span>"
           "<span class=\"number\">flops</span><span class=\"number\">total time</span><span>values</span>")

_TILES = 256
"""Tiles of a sharding that are drawn."""

_GLANCE = 12
"""Parameters, results and opcodes in a summary."""


class Seen(NamedTuple):
    """What runs showed of an instruction: seconds in how many evaluations, where it was timed, and how many NaNs and Infs there
    were at most in one evaluation."""

    seconds: float | None = None
    runs: int = 0
    nan: int = 0
    inf: int = 0


def page(module: Module, seen: Mapping[Instruction, Seen]) -> str:
    """The page as HTML."""
    folder = Path(__file__).parent
    style, script = ((folder / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    policy = f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}"
    # Only "<" could end the element that the JSON stands in, or begin a comment.
    data = json.dumps(_data(module, seen), separators=(",", ":")).replace("<", "\\u003c")
    name = html.escape(_text(module.name, _NAME))
    return (f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" '
            f'content="{policy}">\n<title>{name}</title>\n<style>{style}</style></head>\n<body><header><h1>{name}</h1>'
            f'<input id="search" type="search" placeholder="name, opcode, shape, op_name, source" aria-label="search"></header>\n'
            f'<div id="list"><div id="titles" class="row">{_TITLES}</div><div id="space"></div></div><div id="detail"></div>\n'
            f'<script id="program" type="application/json">{data}</script>\n<script>{script}</script></body></html>\n')


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _text(text: str, most: int) -> str:
    return printable(text, most)


# ---------------------------------------------------------------------------------------------------- data


def _data(module: Module, seen: Mapping[Instruction, Seen]) -> dict[str, Any]:
    computations = module.computations[::-1]  # the entry first
    place = {id(c): n for n, c in enumerate(computations)}
    number = {i: n for n, i in enumerate(i for c in computations for i in c.instructions)}
    callers: dict[int, list[int]] = {}
    for instruction, own in number.items():
        for called in dict.fromkeys(instruction.called_computations):
            callers.setdefault(id(called), []).append(own)
    costs: dict[int, Cost] = {}
    return {
        "computations": [{"name": _text(c.name, _NAME), "entry": c is module.entry, "first": number[c.instructions[0]],
                          "end": number[c.instructions[0]] + len(c.instructions), "root": number[c.root],
                          "callers": callers.get(id(c), [])} for c in computations],
        "instructions": [_row(i, place[id(c)], i is c.root, number, place, costs, seen)
                         for c in computations for i in c.instructions],
    }


def _row(instruction: Instruction, computation: int, root: bool, number: Mapping[Instruction, int], place: Mapping[int, int],
         costs: dict[int, Cost], seen: Mapping[Instruction, Seen]) -> dict[str, Any]:
    # With times stands what an instruction itself does; without, a loop has the cost of its body too.
    own = bool(seen) and has_regions_of_values(instruction)
    cost = Cost() if own else instruction_cost(instruction, costs)
    row: dict[str, Any] = {
        "name": _text(instruction.name, _NAME), "opcode": instruction.opcode, "shape": _text(repr(instruction.shape), _NAME),
        "computation": computation, "root": root, "operands": [number[o] for o in instruction.operands],
        "calls": [place[id(c)] for c in dict.fromkeys(instruction.called_computations)],
        "bytes": cost.bytes, "flops": cost.flops, "transcendentals": cost.transcendentals,
        "op_name": _text(instruction.op_name, _NAME), "source": _text(_source(instruction), _NAME),
        "text": _text(print_instruction(instruction, PrintOptions(elide_above=16)), _LINE), "sharding": "",
    }
    sharding = instruction.common.get("sharding")
    if sharding is not None:
        row["sharding"] = _text(str(sharding), _NAME)
        row |= _tiles(sharding)
    found = seen.get(instruction)
    if found is not None:
        timed = {} if found.seconds is None else {"seconds": found.seconds, "runs": found.runs}
        row |= timed | {"nan": found.nan, "inf": found.inf}
    return row


def _source(instruction: Instruction) -> str:
    metadata = instruction.common.get("metadata")
    if not isinstance(metadata, Mapping) or not metadata.get("source_file"):
        return ""
    return f"{metadata['source_file']}:{metadata.get('source_line', 0)}"


def _tiles(sharding: Any) -> dict[str, Any]:
    """The devices of a tiling in its order, in rows of its last dimension."""
    if not isinstance(sharding, Sharding) or sharding.kind != ShardingKind.TILED or sharding.device_count > _TILES:
        return {}
    devices = sharding.devices.ids if isinstance(sharding.devices, Iota) else sharding.devices
    last = [size for size in sharding.tile_dims if size > 1][-1:]
    return {"tiles": {"columns": (last or [1])[0], "devices": [int(d) for d in devices]}}


# ---------------------------------------------------------------------------------------------------- at a glance


def glance(module: Module) -> str:
    """One screen of HTML for notebooks, without code: parameters, results, ops and cost."""
    entry, cost = module.entry, computation_cost(module.entry)
    counts = Counter(i.opcode for c in module.computations for i in c.instructions)
    parameters = [f"%{p.name}: {p.shape}" for p in entry.parameters]
    rows = [("parameters", _some(parameters)), ("results", _some([str(leaf) for leaf in entry.root.shape.leaves()])),
            ("ops", _some([f"{opcode} {count}" for opcode, count in counts.most_common()])),
            ("cost", f"{cost.flops:,} flops, {cost.transcendentals:,} transcendentals, {cost.bytes:,} bytes read and written"
                     + (f"; {cost.unknown_loops} loops of unknown length taken once" if cost.unknown_loops else ""))]
    body = "".join(f'<tr><th style="text-align:left;vertical-align:top">{title}</th>'
                   f'<td style="text-align:left">{html.escape(text)}</td></tr>' for title, text in rows)
    said = html.escape(_text(f"{module.name}: {sum(counts.values())} instructions", _NAME))
    return f"<div><strong>{said}</strong><table>{body}</table></div>"


def _some(words: list[str]) -> str:
    rest = [f"and {len(words) - _GLANCE} more"] if len(words) > _GLANCE else []
    return ", ".join([*(_text(word, _NAME) for word in words[:_GLANCE]), *rest])


def seen_by(module: Module, profile: Any, trace: Any) -> dict[Instruction, Seen]:
    """What a profile and a trace (of `xla_torch.debug`) say of the module's instructions."""
    inside = {i for c in module.computations for i in c.instructions}
    found: dict[Instruction, Seen] = {}
    for row in profile.rows if profile is not None else ():
        if row.instruction in inside:
            found[row.instruction] = Seen(row.seconds, row.count)
    for row in trace.rows if trace is not None else ():
        if row.instruction in inside:
            old = found.get(row.instruction, Seen())
            nan, inf = (sum(getattr(s, kind) for s in row.statistics) for kind in ("nan", "inf"))
            found[row.instruction] = old._replace(nan=max(old.nan, nan), inf=max(old.inf, inf))
    return found
