"""Profiles: what is counted is what ran, parts add up to the whole, and names of files are text wherever they are shown."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

import xla_torch
from xla_torch import debug
from xla_torch.debug.profile_pages import tree
from xla_torch.errors import InvalidArgument

MACHINE = debug.Machine(1e9, 1e9)

LOOP = """HloModule loop
body {
  t = (s32[], f32[4,4]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  x = f32[4,4] get-tuple-element(t), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  squared = f32[4,4] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="net/layer(a/b)/dot"}
  bent = f32[4,4] tanh(squared), metadata={op_name="net/layer(a/b)/tanh"}
  ROOT r = (s32[], f32[4,4]) tuple(next, bent)
}
goes_on {
  t = (s32[], f32[4,4]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = s32[] constant(3)
  ROOT p = pred[] compare(i, n), direction=LT
}
ENTRY e {
  x = f32[4,4] parameter(0)
  zero = s32[] constant(0)
  init = (s32[], f32[4,4]) tuple(zero, x)
  loop = (s32[], f32[4,4]) while(init), condition=goes_on, body=body
  ROOT r = f32[4,4] get-tuple-element(loop), index=1
}"""

COUNTS = [
    ("squared", 3, 3 * 2 * 64, 3 * 3 * 64, 0),
    ("bent", 3, 0, 3 * 2 * 64, 3 * 16),
    ("p", 4, 4, 4 * 9, 0),
    ("loop", 1, 0, 0, 0),
]


@pytest.fixture(scope="module")
def profile() -> debug.Profile:
    return debug.profile(xla_torch.parse_hlo(LOOP), torch.ones(4, 4), runs=2, machine=MACHINE)


@pytest.mark.parametrize(("name", "count", "flops", "size", "transcendentals"), COUNTS)
def test_what_ran_is_counted(profile: debug.Profile, name: str, count: int, flops: int, size: int, transcendentals: int):
    (row,) = profile[name]
    assert (row.count, row.cost.flops, row.cost.bytes, row.cost.transcendentals) == (count, flops, size, transcendentals)
    assert row.seconds >= 0


def test_parts_add_up(profile: debug.Profile):
    """Each level of the tree is what is below it, and a loop has not the time of its body again."""
    whole = tree(profile.rows)
    waiting = [whole]
    while waiting:
        node = waiting.pop()
        if node.below:
            assert node.seconds == pytest.approx(sum(n.seconds for n in node.below.values()))
            assert node.count == sum(n.count for n in node.below.values())
        waiting += node.below.values()
    outside = [e for e in profile.events if not e.place]
    assert whole.seconds == pytest.approx(profile.seconds)
    assert profile.seconds <= sum(e.seconds for e in outside) + 1e-9
    (program,) = whole.below.values()
    assert {name for name, _ in program.below} == {"net", "(no op_name)"}
    assert [name for name, _ in program.below["net", False].below] == ["layer(a/b)"]
    assert profile.lowered is not None
    assert profile.lowered > 0


def test_the_table_says_both_times_and_the_machine(profile: debug.Profile):
    text = str(profile)
    assert re.match(r"\S+ \w+ instruction by instruction, \S+ \w+ as a call of the lowered program\nmachine: 1 GB/s, 1 Gf", text)
    assert re.search(r" 3 +576 B +384 .*dot %squared +net/layer\(a/b\)/dot", text)
    assert "... and" in profile.table(2)


def test_the_trace_is_that_of_torch(profile: debug.Profile, tmp_path: Path):
    """The form of torch.profiler, and what is in a loop lies within it."""
    profile.to_chrome_trace(tmp_path / "trace.json")
    found = json.loads((tmp_path / "trace.json").read_text())
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as theirs:
        torch.ones(3).exp()
    theirs.export_chrome_trace(str(tmp_path / "theirs.json"))
    other = json.loads((tmp_path / "theirs.json").read_text())
    event = next(e for e in other["traceEvents"] if e.get("cat") == "cpu_op")
    assert found["schemaVersion"] == other["schemaVersion"]
    events = found["traceEvents"]
    assert all({*event} <= {*e} for e in events)
    assert len(events) == sum(row.count for row in profile.rows)
    (loop,) = (e for e in events if e["name"] == "while %loop")
    inside = [e for e in events if e["args"]["loops"]]
    assert {e["args"]["loops"][0] for e in inside} == {f"loop[{n}]" for n in range(4)}
    for e in inside:
        assert loop["ts"] <= e["ts"]
        assert e["ts"] + e["dur"] <= loop["ts"] + loop["dur"] + 1e-3


class _Tags(HTMLParser):
    def __init__(self, page: str):
        super().__init__()
        self.found: list[str] = []
        self.attributes: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]):
        self.found.append(tag)
        self.attributes |= {name for name, _ in attrs}


@pytest.mark.parametrize("hostile", ["<script>alert(1)</script>", "' onload=alert(1) x='", "&lt;img src=x onerror=alert(1)&gt;",
                                     "]]><svg onload=alert(1)>", "</div><iframe>"])
def test_names_are_text_on_the_page(hostile: str):
    text = f'HloModule m\nENTRY e {{\n x = f32[] parameter(0)\n ROOT y = f32[] tanh(x), metadata={{op_name="{hostile}"}}\n}}'
    found = debug.profile(xla_torch.parse_hlo(text), torch.ones(()), runs=1, machine=MACHINE)
    tags = _Tags(found.to_html())
    assert {*tags.found} <= {"html", "head", "meta", "title", "style", "body", "p", "div"}
    assert tags.attributes <= {"lang", "charset", "http-equiv", "content", "class", "style", "title"}
    assert {*_Tags(found._repr_html_()).found} <= {"style", "p", "div"}


def test_backward_passes_are_measured():
    computation = xla_torch.parse_hlo(LOOP)
    x = torch.eye(4, requires_grad=True)
    with debug.profile(machine=MACHINE) as found:
        computation(x).sum().backward()
    assert len({row.program for row in found.rows}) > 1
    assert sum(row.cost.flops for row in found.rows if row.instruction.opcode == "dot") >= 3 * 3 * 128
    assert found.lowered is None
    derived = debug.profile(xla_torch.grad(xla_torch.parse_hlo(
        "HloModule m\nENTRY e {\n x = f32[] parameter(0)\n ROOT y = f32[] tanh(x)\n}")), torch.ones(()), runs=1, machine=MACHINE)
    assert "tanh" in str(derived)


def test_the_machine_is_measured():
    found = debug.Machine.measured(size=64)
    assert found.bandwidth > 0
    assert found.flops > 0
    with pytest.raises(InvalidArgument, match="runs must be at least 1"):
        debug.profile(xla_torch.parse_hlo(LOOP), torch.ones(4, 4), runs=0)
