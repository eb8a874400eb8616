"""A program as one page to look through, without network: a graph that opens by clicks, and a list; only what is seen is drawn.

Texts of the program stand in the page as JSON, which the page's code sets as text and never as markup; the page says by its
Content-Security-Policy that no other code runs, and nothing is fetched. Layout is dagre's, which stands in the page as it is
published (`vendor/`).
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from ..analysis.cost import computation_cost
from ..hlo.ir import Instruction, Module
from .rows import Seen, data, text

_LIBRARY = "vendor/dagre.min.js", "vendor/dagre.LICENSE"
"""The licence goes where the library goes, into pages too."""

_SCRIPTS = ("tree.js", "colours.js", "draw.js", "list.js", "page.js")

_MOST_WORDS = 12
"""Parameters, results and opcodes in a summary."""


def page(module: Module, seen: Mapping[Instruction, Seen]) -> str:
    """The page as HTML."""
    folder = Path(__file__).parent
    style, body, library, licence, *own = ((folder / name).read_text(encoding="utf-8")
                                           for name in ("page.css", "page.html", *_LIBRARY, *_SCRIPTS))
    scripts = [f"/*\n{licence}*/\n{_code(library)}", *own]
    policy = f"default-src 'none'; script-src {' '.join(map(_hash, scripts))}; style-src {_hash(style)}"
    # Only "<" could end the element that the JSON stands in, or begin a comment.
    program = json.dumps(data(module, seen), separators=(",", ":")).replace("<", "\\u003c")
    name = html.escape(text(module.name))
    return (f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" '
            f'content="{policy}">\n<title>{name}</title>\n<style>{style}</style></head>\n<body>'
            + body.replace("<h1></h1>", f"<h1>{name}</h1>", 1)
            + f'<script id="program" type="application/json">{program}</script>\n'
            + "\n".join(f"<script>{script}</script>" for script in scripts) + "</body></html>\n")


def _code(script: str) -> str:
    """Without the place of a source map, which a browser would fetch."""
    return re.sub(r"^//# sourceMappingURL=.*\n?", "", script, flags=re.MULTILINE)


def _hash(words: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(words.encode()).digest()).decode()}'"


# ---------------------------------------------------------------------------------------------------- summary


def summary(module: Module) -> str:
    """One screen of HTML for notebooks, without code: parameters, results, ops and cost."""
    entry, cost = module.entry, computation_cost(module.entry)
    counts = Counter(i.opcode for c in module.computations for i in c.instructions)
    parameters = [f"%{p.name}: {p.shape}" for p in entry.parameters]
    rows = [("parameters", _some(parameters)), ("results", _some([str(leaf) for leaf in entry.root.shape.leaves()])),
            ("ops", _some([f"{opcode} {count}" for opcode, count in counts.most_common()])),
            ("cost", f"{cost.flops:,} flops, {cost.transcendentals:,} transcendentals, {cost.bytes:,} bytes read and written"
                     + (f"; {cost.unknown_loops} loops of unknown length taken once" if cost.unknown_loops else ""))]
    body = "".join(f'<tr><th style="text-align:left;vertical-align:top">{title}</th>'
                   f'<td style="text-align:left">{html.escape(words)}</td></tr>' for title, words in rows)
    stated = html.escape(text(f"{module.name}: {sum(counts.values())} instructions"))
    return f"<div><strong>{stated}</strong><table>{body}</table></div>"


def _some(words: list[str]) -> str:
    rest = [f"and {len(words) - _MOST_WORDS} more"] if len(words) > _MOST_WORDS else []
    return ", ".join([*(text(word) for word in words[:_MOST_WORDS]), *rest])
