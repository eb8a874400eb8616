"""``python -m xla_torch ops NAME``: all of one op, with places that exist."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

from xla_torch.api.op_view import opcodes_of, view
from xla_torch.cli import main
from xla_torch.hlo.schema import OPS

ROOT = Path(__file__).parents[2]

REVERSE = """
reverse, of the family movement

schema
  operands: operand
  attributes: dimensions
  traits: MOVES_DATA, REARRANGES, STREAMS
  stablehlo: reverse
  xla_torch/opcodes/movement.py

shape rule
  xla_torch/opcodes/movement.py

body
  xla_torch/lowering/bodies/movement.py

documented functions
  xla_torch/functions/movement.py

gradient
  kind: linear data movement
  grad_rules/movement.py

batching rule
  xla_torch/batching/batching_rules.py

folding rule
  xla_torch/stablehlo/folding.py

native array rule
  xla_torch/codegen/arrays.py

rebatching rule
  xla_torch/batching/rebatching_link_rules.py

source of a size rule
  xla_torch/transform/dynamic_sizes/resolving_rules.py

from StableHLO
  stablehlo.reverse
  xla_torch/stablehlo/movement.py

to StableHLO
  xla_torch/stablehlo/writing/movement.py

torch operators whose rules call one of these functions
  flip.default
  reflection_pad1d.default
  reflection_pad2d.default
  reflection_pad3d.default
  xla_torch/aten/views.py
  xla_torch/aten/views.py
"""
"""The view without sources and the numbers of lines, up to the tests."""


def test_all_of_an_op(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ops", "reverse", "Rev"]) == 0
    first, second = capsys.readouterr().out.removesuffix("\n").split("\n\n\n")
    assert first == second
    places = re.sub(r"(\.py):\d+", r"\1", re.sub(r"\n    .*|\n(?=\n    )", "", first))
    assert places.partition("\n\ntests, ")[0] == REVERSE.strip()
    assert re.search(r'\n  tests/ops/test_movement\.py:\d+  .*"reverse\(p\), dimensions=\{0,2\}"', first)


def test_what_contributing_shows_of_an_op_is_what_stands_there() -> None:
    shown = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
    lines = [line.strip() for line in shown.splitlines() if line.strip() and "#" not in line]
    found = view("reverse")
    assert [line for line in lines if line not in found] == []


@functools.cache
def lines_of(file: str) -> list[str]:
    return (ROOT / file).read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("opcode", sorted(OPS))
def test_each_place_is_where_it_says(opcode: str) -> None:
    """In each file that is named stands, on that line, what is shown below it; and what every op has is named."""
    lines = view(opcode).splitlines()
    titled, title = set[str](), ""
    for number, line in enumerate(lines):
        title = line if line and line[0] != " " else title
        place = re.fullmatch(r"  (\S+\.py):(\d+)", line)
        if place is not None:
            assert lines_of(place[1])[int(place[2]) - 1].strip() == lines[number + 1].strip(), line
            titled.add(title)
    assert {"schema", "shape rule", "body", "gradient"} <= titled


NAMES = [("reverse", ["reverse"]), ("Rev", ["reverse"]), ("stablehlo.reverse", ["reverse"]), ("dot_general", ["dot"]),
         ("Neg", ["negate"]), ("all_reduce", ["all-reduce"])]


@pytest.mark.parametrize(("name", "opcodes"), NAMES)
def test_names_of_an_op(name: str, opcodes: list[str]) -> None:
    assert opcodes_of(name) == opcodes


@pytest.mark.parametrize(("name", "messages"), [("reverze", "did you mean reverse"), ("Qqqq", "lists all opcodes")])
def test_a_name_that_no_op_has(name: str, messages: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ops", name]) == 2
    error = capsys.readouterr().err
    assert f"no op has the name '{name}'" in error
    assert messages in error
