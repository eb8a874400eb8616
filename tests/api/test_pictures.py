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
from support.layered import layers
from xla_torch import debug
from xla_torch.analysis.peak import peak_bytes
from xla_torch.core.printable import printable
from xla_torch.errors import InvalidArgument
from xla_torch.visualization import page as page_module

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
    assert row(page, "x")["tiles"] == {"columns": 2, "devices": [0, 2, 1, 3], "piece": [2, 4]}
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
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    allowed = {kind: messages.split() for kind, messages in re.findall(r"([\w-]+-src) ([^;]*)", policy)}
    for kind, contents in (("script-src", scripts), ("style-src", ["".join(page.inside["style"])])):
        digests = [base64.b64encode(hashlib.sha256(content.encode()).digest()).decode() for content in contents]
        assert allowed[kind] == [f"'sha256-{digest}'" for digest in digests]
    assert len(scripts) == page.tags.count("script") - 1  # and the program
    assert policy.startswith("default-src 'none';")
    assert not {"src", "href", "onclick"} & {*page.attributes}
    assert "http" not in re.sub(r"http-equiv", "", text)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|Function\(|sourceMappingURL", text)


def test_the_layout_library_has_its_licence_beside_it():
    vendor = Path(page_module.__file__).parent / "vendor"
    licence = (vendor / "dagre.LICENSE").read_text()
    assert "Copyright (c) 2012-2014 Chris Pettitt" in licence
    assert "The above copyright notice and this permission notice shall be included" in licence
    # What is shared of a page has it as well.
    assert "Chris Pettitt" in xla_torch.parse_hlo(PROGRAM).to_html()


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


def _looked_through(page: str, search: str, folder: Path) -> dict[str, Any]:
    """What the page's code draws, over a document of a few lines."""
    (folder / "page.html").write_text(page, encoding="utf-8")
    ran = subprocess.run([str(NODE), str(HARNESS), str(folder / "page.html"), search], capture_output=True, text=True, timeout=60,
                         check=False)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["wrong"] == []
    assert found["welcome"][:2] == ["Nothing is chosen", "what to click"]
    assert not any(mode["unknown"] for mode in found["modes"].values())
    return found


@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_no_more_is_drawn_than_is_seen(tmp_path: Path):
    """10,000 instructions, of which some dozens are drawn, in the list and in the graph; search, clicks."""
    found = _looked_through(_chain(10_000).to_html(), "v777", tmp_path)
    assert found["height"] == f"{22 * 10_002}px"
    assert found["drawn"] <= 60
    assert found["scrolled"][0].startswith("%v4")
    assert found["searched"] == ["%v777", "%v7770"]
    assert found["operands"] == ["%v776 = f32[2]{0}"]
    assert found["users"] == ["%v778 = f32[2]{0}"]
    assert found["closed"] < 20
    assert found["jumped"] == {"chosen": ["%v777"], "operand": ["%v776"], "user": ["%v778"]}
    assert found["links"] == ["link operand", "link user"]
    assert found["shown"] < 100
    assert found["chosen"] == "%v776"
    assert found["clicked"]["label"] == "%v0 \u2026 %v2015"
    assert found["clicked"]["more"] > 0
    assert (found["leaves"], found["lines"]) == (10_001, 10_000)


def test_a_page_of_10000_instructions_has_a_bound():
    own = len(_chain(1).to_html())
    assert own < 120_000
    assert len(_chain(10_000).to_html()) - own < 300 * 10_000


def test_groups_are_op_names():
    """What has no op_name, and parameters, stand with those that read them; other levels are groups."""
    page = _Page(layers(2, 1).to_html())
    entry = page.program["computations"][0]

    def group(name: str) -> str:
        at, levels = row(page, name)["group"], []
        while at >= 0:
            outer, level = entry["groups"][at]
            at, levels = outer, [level, *levels]
        return "/".join(levels)

    assert {name: group(name) for name in ("attn0.0", "x2", "back1", "x0", "w0", "zero", "loop", "out")} == {
        "attn0.0": "jit(step)/jvp(net)/layer_0/attn", "x2": "jit(step)/jvp(net)/layer_1",
        "back1": "jit(step)/transpose(jvp(net))/layer_1/attn", "x0": "jit(step)/jvp(net)/layer_0", "w0": "jit(step)",
        "zero": "jit(step)", "loop": "jit(step)", "out": ""}


@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_groups_open_on_the_way_and_colours_say_what_they_say(tmp_path: Path):
    step = layers(3, 4)
    found = _looked_through(step.to_html(), "attn1.2", tmp_path)
    assert found["jumped"] == {"chosen": ["%attn1.2"], "operand": ["%attn1.1"], "user": ["%attn1.3"]}
    assert found["leaves"] == sum(len(c.instructions) for c in step.module.computations)  # called computations within who calls
    assert "6 all-reduce" in found["welcome"]
    assert "among participants: {0,1} {2,3}" in found["welcome"]
    modes = found["modes"]
    assert {*modes} == {"kinds of op", "bytes read and written", "flops", "shardings", "forward and backward"}
    assert modes["shardings"]["legend"] == ["{devices=[2,2]<=[4]}", "{devices=[4,1]<=[4]}"]
    names = [r["name"] for r in _Page(step.to_html()).program["instructions"]]
    way = dict(zip(names, modes["forward and backward"]["seen"], strict=True))
    assert (way["attn0"], way["back0"], way["loop"]) == ("k2", "k7", "")
    kind = dict(zip(names, modes["kinds of op"]["seen"], strict=True))
    assert kind["attn0"] == f"k{modes['kinds of op']['legend'].index('multiplies')}"


@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_colours_of_a_run(tmp_path: Path):
    computation = xla_torch.parse_hlo(PROGRAM)
    x = torch.tensor([[1.0, -1, 0, 2, 1, 1, 1, 1]] * 4)
    text = computation.to_html(profile=debug.profile(computation, x, runs=1, machine=debug.Machine(1e9, 1e9)),
                               trace=debug.trace(computation, x))
    modes = _looked_through(text, "y", tmp_path)["modes"]
    names = [r["name"] for r in _Page(text).program["instructions"]]
    values = dict(zip(names, modes["NaN and Inf"]["seen"], strict=True))
    assert (values["x"], values["y"], values["r"]) == ("", "bad", "bad")
    assert "h5" in modes["time"]["seen"]


def test_live_bytes_are_those_of_the_limit():
    for computation in (layers(2, 3), _chain(5), xla_torch.parse_hlo(PROGRAM)):
        page = _Page(computation.to_html())
        live = page.program["computations"][0]["live"]
        assert len(live) == len(computation.entry.instructions)
        assert max(live) == peak_bytes(computation.entry)
    # x, then x and y, then y alone and r; of the chain two neighbours of 8 bytes, the first of which is an argument.
    assert live == [0, 128, 132, 148]
    assert _Page(_chain(3).to_html()).program["computations"][0]["live"] == [0, 8, 16, 16]
    assert page.program["computations"][1]["live"] == []  # a reducer is no run of its own


EXCHANGES = [
    ("all-reduce(x), to_apply=add, replica_groups={{0,1}}", "among replicas, for each partition", [[0, 1]]),
    ("all-reduce(x), to_apply=add", "among replicas, for each partition", [[0, 1]]),
    ("all-reduce(x), to_apply=add, channel_id=1", "among replicas with all their partitions", [[0, 1]]),
    ("all-reduce(x), to_apply=add, channel_id=1, use_global_device_ids=true, replica_groups={{0,3},{1,2}}", "among participants",
     [[0, 3], [1, 2]]),
    ("all-to-all(x), dimensions={0}, channel_id=1, replica_groups={{0,1}}", "among partitions, for each replica", [[0, 1]]),
    ("collective-permute(x), channel_id=1, source_target_pairs={{0,1},{1,0}}", "from, to: partitions, for each replica",
     [[0, 1], [1, 0]]),
    ("collective-permute(x), source_target_pairs={{1,0}}", "from, to: replicas, for each partition", [[1, 0]]),
    (f"collective-permute(x), channel_id=1, source_target_pairs={{{','.join(f'{{{k},{k}}}' for k in range(70))}}}",
     "from, to: partitions, for each replica", [[k, k] for k in range(64)]),
]


@pytest.mark.parametrize(("op", "between", "sets"), EXCHANGES)
def test_who_sends_to_whom(op: str, between: str, sets: list[list[int]]):
    add = "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }"
    text = f"HloModule m, replica_count=2, num_partitions=2\n{add}\nENTRY e {{ x = f32[4] parameter(0) ROOT r = f32[4] {op} }}"
    page = _Page(xla_torch.parse_hlo(text).to_html())
    (messages,) = page.program["exchanges"]
    assert page.program["instructions"][messages["row"]]["name"] == "r"
    assert (messages["between"], messages["sets"], messages["more"]) == (between, sets, 6 if "69" in op else 0)


# ---------------------------------------------------------------------------------------------------- Model Explorer


def test_model_explorer_reads_a_graph_for_each_computation():
    """The fields of `GraphCollection`, `Graph`, `GraphNode`, `IncomingEdge` in ai_edge_model_explorer's graph_builder.py."""
    found = json.loads(layers(1, 1).to_model_explorer())
    assert {*found} == {"label", "graphs"}
    graphs = {graph["id"]: {node["id"]: node for node in graph["nodes"]} for graph in found["graphs"]}
    assert found["graphs"][0]["id"] == "main"
    assert {*graphs} == {"main", "add", "cond", "body"}
    for nodes in graphs.values():
        for node in nodes.values():
            assert {*node} == {"id", "label", "namespace", "subgraphIds", "attrs", "incomingEdges", "outputsMetadata"}
            assert all({*edge} == {"sourceNodeId", "sourceNodeOutputId", "targetNodeInputId"} for edge in node["incomingEdges"])
            assert {edge["sourceNodeId"] for edge in node["incomingEdges"]} <= {*nodes}
            assert {*node["subgraphIds"]} <= {*graphs}
            assert all(isinstance(each["value"], str) for each in node["attrs"])
    main = graphs["main"]
    assert [(e["sourceNodeId"], e["targetNodeInputId"]) for e in main["attn0"]["incomingEdges"]] == [("x0", "0"), ("w0", "1")]
    assert (main["attn0"]["label"], main["attn0"]["namespace"]) == ("dot", "jit(step)/jvp(net)/layer_0/attn")
    assert main["loop"]["subgraphIds"] == ["cond", "body"]
    assert {"key": "shape", "value": "f32[8,8]{1,0}"} in main["attn0"]["attrs"]


def test_model_explorers_ids_are_distinct_and_slashes_escaped():
    computation = xla_torch.parse_hlo(PROGRAM.replace("net/log", "transpose(jvp(a/b))/log"))
    for each in computation.module.computations:
        each.name = "same"
        for instruction in each.instructions:
            instruction.name = "n" * 400
    graphs = json.loads(computation.to_model_explorer())["graphs"]
    assert len({graph["id"] for graph in graphs}) == 2
    entry = graphs[0]["nodes"]
    assert len({node["id"] for node in entry}) == len(entry) == 4
    assert [[e["sourceNodeId"] for e in node["incomingEdges"]] for node in entry] == [
        [], [entry[0]["id"]], [], [entry[1]["id"], entry[2]["id"]]]
    assert entry[1]["namespace"] == "transpose(jvp(a\\/b))"
    assert entry[3]["subgraphIds"] == [graphs[1]["id"]]


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
