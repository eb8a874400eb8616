"""The pictures of the documentation, drawn from its tables: no number stands in a picture that none of the tables has.

Each is SVG for light and dark pages alike, on ground of its own: what a picture in a page takes for light or dark is what the
reader's system prefers, and not what the page has been switched to. `pages.write` puts them where they are kept (``make pages``).
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from support import tables
from support.tables import Row

ROOT = Path(__file__).parents[2]
BENCHMARKS, MESHES = Path("tests/benchmarks/README.md"), Path("docs/distributed.md")
RIVALS = "XLA", "torch by hand", "torch.compile"
"""Whose times the table of the benchmarks has beside ours."""
COLOURS = "#3b82f6", "#e8590c", "#2f9e44"
STYLE = ("text { fill: #333; font: 12px sans-serif } .ground { fill: #fff; stroke: #8884 } .grid { stroke: #8884 } "
         ".one { stroke: #888 } .small { font-size: 10.5px; fill: #666 } "
         "@media (prefers-color-scheme: dark) { text { fill: #ddd } .ground { fill: #1e2129 } .small { fill: #aaa } }")


def table(page: Path, first: str, part: str = "") -> list[Row]:
    """The rows of the table on a page, or between the marks of one of its parts, whose head begins with this cell."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return tables.rows(tables.part(text, part) if part else text, first)


# ------------------------------------------------------------------------------------------------ parts of pictures


def _text(x: float, y: float, words: str, anchor: str = "start", kind: str = "") -> str:
    kind = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{kind}>{html.escape(words)}</text>'


def _picture(wide: float, high: float, title: str, parts: Iterable[str]) -> str:
    """The title is what those hear who do not see it."""
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:g} {high:g}" role="img">',
                      f"<title>{html.escape(title)}</title>", f"<style>{STYLE}</style>",
                      f'<rect class="ground" x="0.5" y="0.5" width="{wide - 1:g}" height="{high - 1:g}" rx="6"/>',
                      *parts, "</svg>\n"])


def _mark(kind: int, x: float, y: float) -> str:
    """A circle, square or triangle, so that colours are not all that tells them apart."""
    shape = (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4"', f'<rect x="{x - 3.5:.1f}" y="{y - 3.5:.1f}" width="7" height="7"',
             f'<path d="M{x:.1f} {y - 4.5:.1f}l4.5 8h-9z"')[kind]
    return f'{shape} fill="{COLOURS[kind]}"/>'


def _keys(names: Sequence[str], left: float, y: float, step: float) -> list[str]:
    at = [(k, left + step * k, name) for k, name in enumerate(names)]
    return [part for k, x, name in at for part in (_mark(k, x, y - 4), _text(x + 10, y, name))]


def _small(y: float, words: str) -> list[str]:
    """Lines below a picture."""
    return [_text(14, y + 15 * k, line, kind="small") for k, line in enumerate(words.split("\n"))]


# ------------------------------------------------------------------------------------------------ ratios

Ratios = Sequence[tuple[str, Sequence[float | None]]]
"""By name of a row, a ratio for each series."""


def ratios(title: str, below: str, series: Sequence[str], rows: Ratios) -> str:
    """A line for each row with a mark for each series, over a logarithmic axis on which 1 is drawn stronger."""
    known = [value for _, values in rows for value in values if value is not None]
    low, high = (bound(math.log2(extreme)) for bound, extreme in ((math.floor, min(known)), (math.ceil, max(known))))
    left, top, wide, step = 205, 70, 430, 19
    bottom = top + step * len(rows)

    def x(value: float) -> float:
        return left + wide * (math.log2(value) - low) / (high - low)

    parts = [_text(14, 22, title), *_keys(series, 24, 44, 190)]
    for power in range(low, high + 1):
        kind = "one" if power == 0 else "grid"
        words = f"{2**power}" if power >= 0 else f"1/{2**-power}"
        parts += [f'<path class="{kind}" d="M{x(2.0**power):.1f} {top - 8}V{bottom}"/>',
                  _text(x(2.0**power), bottom + 15, words, "middle")]
    for k, (name, values) in enumerate(rows):
        y = top + step * k + 6
        parts += [f'<path class="grid" d="M{left} {y}h{wide}"/>', _text(left - 10, y + 4, name, "end")]
        parts += [_mark(kind, x(value), y) for kind, value in enumerate(values) if value is not None]
    parts += _small(bottom + 38, below)
    return _picture(left + wide + 30, bottom + 46 + 15 * below.count("\n"), title, parts)


def _to(row: Row, rival: str) -> float | None:
    """Our time to a rival's; None where the rival has none. To the best of them it is the table's own, which was taken turn by
    turn and before times were rounded."""
    times = {name: float(row[f"{name} ms"]) for name in (*RIVALS, "IREE") if row[f"{name} ms"]}
    if rival not in times:
        return None
    return float(row["ours / best"]) if times[rival] == min(times.values()) else float(row["ours ms"]) / times[rival]


def _source(script: str, *others: str) -> str:
    """When and on what the table of a script was measured, as it says itself, and the commands that write what is drawn."""
    first = tables.part((ROOT / BENCHMARKS).read_text(encoding="utf-8"), script).partition("\n")[0]
    return f"{first}\n{', '.join(f'python tests/benchmarks/{name} --write' for name in (script, *others))}"


def speed() -> str:
    rows = [(row["program"], [_to(row, rival) for rival in RIVALS]) for row in table(BENCHMARKS, "program", "rivals.py")]
    return ratios("Run time on the CPU: ours to another's (left of 1 ours is faster)", _source("rivals.py"),
                  [f"to {rival}" for rival in RIVALS], rows)


def training() -> str:
    """Speed and memory of training steps: times from the one table, memory from the other."""
    steps = {row["program"]: row for row in table(BENCHMARKS, "program", "rivals.py")}
    rows = [(row["program"].partition(",")[0], [*(_to(steps[row["program"]], rival) for rival in ("XLA", "torch by hand")),
                                                float(row["counted, to by hand"])])
            for row in table(BENCHMARKS, "program", "memory.py")]
    return ratios("A training step on the CPU: ours to another's (left of 1 ours takes less)", _source("rivals.py", "memory.py"),
                  ["time to XLA", "time to torch by hand", "memory to torch by hand"], rows)


# ------------------------------------------------------------------------------------------------ over sizes

Points = Sequence[tuple[str, int, float]]
"""Of a line, its place and value."""


def lines(title: str, left: float, points: Points, names: Sequence[str], top: float = 48) -> list[str]:
    """Lines over sizes; both axes are logarithmic."""
    wide, tall = 240, 190
    sizes, values = sorted({size for _, size, _ in points}), [value for _, _, value in points]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    x, y = _scale(sizes[0], sizes[-1], left, wide), _scale(10.0**low, 10.0**high, top + tall, -tall)
    found = [_text(left, top - 14, title)]
    for power in range(low, high + 1):
        at = y(10.0**power)
        found += [f'<path class="grid" d="M{left} {at:.1f}h{wide}"/>', _text(left - 6, at + 4, f"{10.0**power:,.10g}", "end")]
    found += [_text(x(size), top + tall + 18, f"{size:,}", "middle") for size in sizes]
    for kind, name in enumerate(names):
        own = [(x(size), y(value)) for other, size, value in points if other == name]
        line = " ".join(f"{a:.1f},{b:.1f}" for a, b in own)
        found.append(f'<polyline points="{line}" fill="none" stroke="{COLOURS[kind]}" stroke-width="2"/>')
        found += [_mark(kind, a, b) for a, b in own]
    return found


def _scale(first: float, last: float, start: float, length: float) -> Callable[[float], float]:
    return lambda value: start + length * math.log(value / first) / math.log(last / first)


def meshes() -> str:
    """What each participant holds, and how long a step takes, over the number of participants."""
    rows = [(re.sub(r" \(\d+\)", "", row["layout"]), int(row["participants"]), row) for row in table(MESHES, "participants")]
    names = list(dict.fromkeys(name for name, _, _ in rows))
    parts = [part for k, (column, title) in enumerate((("MiB held", "MiB held by each"), ("ms", "ms for a step, by the model")))
             for part in lines(title, 60 + 310 * k, [(name, size, float(row[column])) for name, size, row in rows], names)]
    parts += [_text(360, 274, "participants", "middle", "small"), *_keys(names, 66, 294, 150)]
    return _picture(640, 310, "A GPT's training step over 2 to 1,024 participants, on paper", parts)


def scaling() -> str:
    """What grows with what, a diagram for each kind."""
    rows, names = table(BENCHMARKS, "what grows", "scaling.py"), ["ours", "XLA"]
    kinds = list(dict.fromkeys(row["what grows"] for row in rows))
    parts = [_text(14, 22, "Milliseconds over the size, on the CPU"), *_keys(names, 400, 22, 90)]
    for k, kind in enumerate(kinds):
        points = [(name, int(row["size"].replace(",", "")), float(row[f"{name} ms"])) for row in rows for name in names
                  if row["what grows"] == kind]
        parts += lines(kind, 70 + 310 * (k % 2), points, names, 72 + 250 * (k // 2))
    bottom = 62 + 250 * math.ceil(len(kinds) / 2)
    parts += _small(bottom, _source("scaling.py"))
    return _picture(650, bottom + 26, "Milliseconds over the size of arrays, of loops and of programs, ours and XLA's", parts)


def pictures() -> dict[Path, str]:
    """All of them by their path in the repository."""
    return {Path("docs/measured-speed.svg"): speed(), Path("docs/measured-training.svg"): training(),
            Path("docs/measured-scaling.svg"): scaling(), Path("docs/mesh-sizes.svg"): meshes()}
