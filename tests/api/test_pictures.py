"""Pictures of programs: what stands on the page is the program, its texts stay texts, and no more is drawn than is seen."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch

import xla_torch
from xla_torch import debug
from xla_torch.core.printable import printable
from xla_torch.errors import InvalidArgument

NODE = shutil.which("node")
HARNESS = Path(__file__).with_name("page_harness.js")

PROGRAM = """HloModule m, num_partitions=4
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }
ENTRY e {
  x = f32[4,8]{0,1} parameter(0), sharding={devices=[2,2]0,2,1,3}
  y = f32[4,8]{0,1} log(x), metadata={op_name="net/log" source_file="net.py" source_line=3}
  z = f32[] constant(0)
  ROOT r = f32[4] reduce(y, z), dimensions={1}, to_apply=add
}"""


class _Page(HTMLParser):
    """The elements of a page, and what stands in its scripts and styles."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[str] = []
        self.attributes: dict[str, list[str]] = {}
        self.inside: dict[str, list[str]] = {}
        self._within = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]):
        self.tags.append(tag)
        self._within = tag
        for name, value in attrs:
            self.attributes.setdefault(name, []).append(value or "")

    def handle_data(self, data: str):
        self.inside.setdefault(self._within, []).append(data)

    def handle_endtag(self, tag: str):
        self._within = ""

    @property
    def program(self) -> dict[str, Any]:
        return json.loads(next(d for d in self.inside["script"] if d.startswith("{")))


def row(page: _Page, name: str) -> dict[str, Any]:
    (found,) = [r for r in page.program["instructions"] if r["name"] == name]
    return found


def test_the_page_says_what_the_program_is():
    page = _Page(xla_torch.parse_hlo(PROGRAM).to_html())
    rows = page.program["instructions"]
    y = row(page, "y")
    assert (y["opcode"], y["shape"], y["op_name"], y["source"]) == ("log", "f32[4,8]{0,1}", "net/log", "net.py:3")
    assert (y["bytes"], y["flops"], y["transcendentals"]) == (2 * 128, 0, 32)
    assert [rows[o]["name"] for o in y["operands"]] == ["x"]
    assert row(page, "x")["tiles"] == {"columns": 2, "devices": [0, 2, 1, 3]}
    computations = page.program["computations"]
    assert [(c["name"], c["entry"]) for c in computations] == [("e", True), ("add", False)]
    assert row(page, "r")["calls"] == [1]
    assert rows[computations[1]["root"]]["name"] == "s"
    assert [rows[c]["name"] for c in computations[1]["callers"]] == ["r"]
    assert row(page, "r")["flops"] == 28


def test_only_the_pages_own_code_may_run():
    text = xla_torch.parse_hlo(PROGRAM).to_html()
    page = _Page(text)
    (policy,) = [c for c in page.attributes["content"] if "default-src" in c]
    scripts = [d for d in page.inside["script"] if not d.startswith("{")]
    for kind, content in (("script-src", "".join(scripts)), ("style-src", "".join(page.inside["style"]))):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert re.search(rf"{kind} 'sha256-{re.escape(digest)}'", policy)
    assert policy.startswith("default-src 'none';")
    assert not {"src", "href", "onclick"} & {*page.attributes}
    assert "http" not in re.sub(r"http-equiv", "", text)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|Function\(", text)


HOSTILE = ["</script><script>alert(1)</script>", "<!--<script>", "' onmouseover=alert(1) x='", "<img src=x onerror=alert(1)>",
           "&lt;svg onload=alert(1)&gt;", "]]>", "\u202etxt.exe", "${alert(1)}`", "\\u003cscript>"]


@pytest.mark.parametrize("hostile", HOSTILE)
def test_texts_of_files_stay_texts(hostile: str):
    metadata = f'metadata={{op_name="{hostile}" source_file="{hostile}" source_line=1}}'
    text = (f'HloModule m\nENTRY e {{\n x = f32[2] parameter(0)\n ROOT y = f32[2] custom-call(x), {metadata}, '
            f'custom_call_target="{hostile}", frontend_attributes={{a="{hostile}"}}\n}}')
    computation = xla_torch.parse_hlo(text)
    for each in computation.module.computations:  # a proto may name them as it likes
        each.name = hostile
        for instruction in each.instructions:
            instruction.name = hostile + instruction.name
    computation.module.name = hostile
    plain = _Page(xla_torch.parse_hlo(PROGRAM).to_html())
    page = _Page(computation.to_html())
    assert page.tags == plain.tags
    assert {*page.attributes} == {*plain.attributes}
    assert page.program["instructions"][1]["op_name"] == printable(computation.entry.root.op_name, 300)
    assert {*_Page(computation._repr_html_() or "").tags} == {"div", "strong", "table", "tr", "th", "td"}
    assert _strings_end(computation.to_dot())


def _strings_end(text: str) -> bool:
    """Whether each line of a graph is well formed: outside of its strings stand only words of ours."""
    rest = re.sub(r'"(?:[^"\\\n]|\\.)*"', "", text)
    return re.fullmatch(r"[\w\s=;,.{}\[\]]*", rest.replace("->", "")) is not None and "alert" not in rest


def test_times_and_marks_are_those_of_the_run():
    computation = xla_torch.parse_hlo(PROGRAM)
    x = torch.tensor([[1.0, -1, 0, 2, 1, 1, 1, 1]] * 4)
    profile = debug.profile(computation, x, runs=1, machine=debug.Machine(1e9, 1e9))
    page = _Page(computation.to_html(profile=profile, trace=debug.trace(computation, x)))
    y = row(page, "y")
    assert (y["runs"], y["nan"], y["inf"]) == (1, 4, 4)
    assert y["seconds"] == profile["y"][0].seconds
    assert (row(page, "x")["nan"], row(page, "r")["nan"]) == (0, 4)
    with pytest.raises(InvalidArgument, match="another program"):
        xla_torch.parse_hlo(PROGRAM).to_html(profile=profile)


def _chain(length: int) -> xla_torch.XlaComputation:
    lines = [f"  v{n + 1} = f32[2] negate(v{n})" for n in range(length)]
    return xla_torch.parse_hlo("\n".join(["HloModule m", "ENTRY e {", "  v0 = f32[2] parameter(0)", *lines, "}"]))


@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_no_more_is_drawn_than_is_seen(tmp_path: Path):
    """The page's code over a document of a few lines: 10,000 instructions, of which some dozens are drawn; search, clicks."""
    (tmp_path / "page.html").write_text(_chain(10_000).to_html(), encoding="utf-8")
    ran = subprocess.run([str(NODE), str(HARNESS), str(tmp_path / "page.html")], capture_output=True, text=True, timeout=60,
                         check=False)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["height"] == f"{22 * 10_002}px"
    assert found["drawn"] <= 60
    assert found["scrolled"][0].startswith("%v4")
    assert found["searched"] == ["%v777", "%v7770"]
    assert found["operands"] == ["%v776 = f32[2]{0}"]
    assert found["users"] == ["%v778 = f32[2]{0}"]
    assert found["chosen"] == "%v776"


def test_a_summary_fits_one_screen():
    text = html.unescape(_chain(3000)._repr_html_() or "")
    assert "negate 3000" in text
    assert len(text) < 2000


def test_graphs():
    text = xla_torch.parse_hlo(PROGRAM).to_dot()
    number = {m[2]: m[1] for m in re.finditer(r'(n\d+) \[label="%(\w+)\\n', text)}
    assert {*number} == {"a", "b", "s", "x", "y", "z", "r"}
    edges = set(re.findall(r"(n\d+) -> (n\d+);", text))
    assert edges == {(number[a], number[b]) for a, b in [("a", "s"), ("b", "s"), ("x", "y"), ("y", "r"), ("z", "r")]}
    assert re.findall(r"(n\d+) -> (n\d+) \[style=dashed", text) == [(number["s"], number["r"])]
    assert text.count("subgraph cluster_") == 2
    assert 'label="ENTRY %e"' in text
    assert _strings_end(text)
    dot = shutil.which("dot")
    if dot is not None:
        subprocess.run([dot, "-Tsvg"], input=text, text=True, check=True, capture_output=True, timeout=60)
