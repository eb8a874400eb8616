"""The generated op table: what it says is so, and the stored pages are what the code gives."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

import xla_torch
from support import claim_page, limits_page, pages, plots, stubs
from support.accepted_types import element_types
from xla_torch import C64, F32, PRED, S32, Shape, XlaBuilder, XlaOp, ops
from xla_torch.api.emitted_ops import functions_of_ops
from xla_torch.errors import InvalidArgument
from xla_torch.hlo.schema import OPS

ROOT = Path(__file__).parents[2]


current = functools.cache(pages.pages)
"""The pages as the code gives them now."""


@pytest.mark.parametrize("page", [pages.PAGE, claim_page.PAGE, limits_page.PAGE, pages.GRADIENT_PAGE, *plots.pictures()], ids=str)
def test_stored_pages_are_up_to_date(page: Path):
    stored = (ROOT / page).read_text(encoding="utf-8") if (ROOT / page).exists() else ""
    assert stored == current()[page], f"{page} is stale; `{pages.COMMAND}` writes it anew"


def test_every_opcode_has_one_row():
    assert sorted(row.definition.opcode for row in pages.rows()) == sorted(OPS)
    page = pages.markdown()
    assert [opcode for opcode in OPS if page.count(f"\n| `{opcode}` |") != 1] == []


# ------------------------------------------------------------------------------------------ functions


def adder() -> xla_torch.XlaComputation:
    builder = XlaBuilder("adder")
    return builder.build(ops.Add(builder.parameter(0, Shape(F32)), builder.parameter(1, Shape(F32))))


BUILT: list[tuple[str, Callable[[XlaBuilder, XlaOp], XlaOp]]] = [
    ("Add", lambda b, x: ops.Add(x, x)),
    ("Square", lambda b, x: ops.Square(x)),
    ("Exp", lambda b, x: ops.Exp(x)),
    ("Conj", lambda b, x: ops.Conj(ops.Complex(x, x))),
    ("EqTotalOrder", lambda b, x: ops.EqTotalOrder(x, x)),
    ("Select", lambda b, x: ops.Select(ops.Parameter(b, 1, Shape.array(PRED, [4, 6])), x, x)),
    ("NextAfter", lambda b, x: ops.NextAfter(x, x)),
    ("ConvertElementType", lambda b, x: ops.ConvertElementType(x, S32)),
    ("ConvertElementType", lambda b, x: ops.ConvertElementType(ops.Parameter(b, 1, Shape(C64)), S32)),
    ("BroadcastInDim", lambda b, x: ops.BroadcastInDim(x, [4, 6, 2], [0, 1])),
    ("Reshape", lambda b, x: ops.Reshape(x, [1, 0], [24])),
    ("Collapse", lambda b, x: ops.Collapse(x, [0, 1])),
    ("PadInDim", lambda b, x: ops.PadInDim(x, ops.ConstantR0(b, 0.0), 0, 1, 1)),
    ("DotGeneral", lambda b, x: ops.DotGeneral(x, x, ops.DotDimensionNumbers((0, 1), (0, 1)))),
    ("ReduceAll", lambda b, x: ops.ReduceAll(x, 0.0, adder())),
    ("ReduceWindow", lambda b, x: ops.ReduceWindow(x, 0.0, adder(), [2, 2], [1, 1], ops.Padding.VALID)),
    ("Conv", lambda b, x: ops.Conv(ops.Reshape(x, [1, 1, 24]), ops.Reshape(x, [1, 1, 24]), [1], ops.Padding.VALID)),
    ("AllToAll", lambda b, x: ops.AllToAll(x, 0, 1, 2)),
    ("Infeed", lambda b, x: ops.Infeed(b, Shape.parse("f32[4]{0}"))),
    ("Send", lambda b, x: ops.Send(x, 1)),
    ("RemoveDynamicDimension", lambda b, x: ops.RemoveDynamicDimension(x, 0)),
]
ON_THE_SIDE = {"parameter", "constant", "complex", "reshape", "broadcast"}
"""What the rows use for their operands, beside the function that they are about, and implicit broadcasts."""


@pytest.mark.parametrize(("name", "build"), BUILT)
def test_the_table_knows_what_a_function_builds(name: str, build: Callable[[XlaBuilder, XlaOp], XlaOp]):
    builder = XlaBuilder("b")
    result = build(builder, builder.parameter(0, Shape.array(F32, [4, 6])))
    emitted = functions_of_ops()[name]
    assert result.instruction.opcode in emitted.results
    assert {i.opcode for i in builder.instructions} - emitted.results - emitted.inside <= ON_THE_SIDE


NOT_SO = [("NextAfter", "conditional"), ("Square", "divide"), ("Eq", "constant"), ("Collapse", "transpose")]


@pytest.mark.parametrize(("name", "opcode"), NOT_SO)
def test_the_table_does_not_name_what_a_function_never_builds(name: str, opcode: str):
    emitted = functions_of_ops()[name]
    assert opcode not in emitted.results | emitted.inside


def test_aliases_are_functions_too():
    known = functions_of_ops()
    assert known["BuildPartitionId"] == known["PartitionId"]


# ------------------------------------------------------------------------------------------ element types

TYPES = [
    ("add", "any"), ("popcnt", "integers"), ("floor", "floats"), ("and", "pred, integers"), ("complex", "f32, f64"),
    ("abs", "signed, floats, complex"), ("select", "pred: pred; on_true: any; on_false: any"), ("cholesky", "floats, complex"),
    ("fft", "complex, f32, f64"), ("gather", "operand: any; start_indices: integers"), ("batch-norm-grad", "floats"),
    ("iota", ""), ("reduce", ""), ("after-all", ""),
]


@pytest.mark.parametrize(("opcode", "types"), TYPES)
def test_element_types(opcode: str, types: str):
    assert element_types(opcode) == types


# ------------------------------------------------------------------------------------------ tests


def test_files_that_name_an_op():
    files = pages.tests_by_opcode()
    assert {"sorting", "hlo_text"} <= set(files["sort"])
    assert "linalg" in files["cholesky"]
    assert "linalg" not in files["sort"]
    assert not any(name in found for found in files.values() for name in ("pages", "completeness"))


# ------------------------------------------------------------------------------------------ pictures


@pytest.mark.parametrize("path", plots.pictures(), ids=str)
def test_a_picture_is_for_light_and_dark_and_is_shown_on_a_page(path: Path):
    picture = current()[path]
    kinds = {part.tag.rpartition("}")[2] for part in ElementTree.fromstring(picture).iter()}
    assert {"title", "style", "rect", "text"} <= kinds
    assert "prefers-color-scheme: dark" in picture
    assert any(f"]({path.name})" in page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob("*.md"))


@pytest.mark.parametrize(("cells", "picture"), [
    (r"argmax \| [\d.]+ \|", "measured-speed.svg"),
    (r"elements of a sum \| 1,000 \|", "measured-scaling.svg"),
    (r"perceptron, training step \|(?: [\d.]+ \|){6}", "measured-training.svg"),
])
def test_a_picture_has_the_numbers_of_its_table(cells: str, picture: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    before = current()  # which whoever asks first draws, by the pages that are there
    for page in (plots.BENCHMARKS, plots.MESHES):
        (tmp_path / page).parent.mkdir(parents=True, exist_ok=True)
        text = (ROOT / page).read_text(encoding="utf-8")
        (tmp_path / page).write_text(re.sub(rf"(\| {cells}) [\d.]+", r"\1 0.77", text), encoding="utf-8")
    monkeypatch.setattr(plots, "ROOT", tmp_path)
    assert [path.name for path, drawn in plots.pictures().items() if drawn != before[path]] == [picture]


# ------------------------------------------------------------------------------------------ writing


def test_write_changes_what_is_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    written_pages = [pages.PAGE, claim_page.PAGE, limits_page.PAGE, stubs.STUB, pages.GRADIENT_PAGE, *plots.pictures()]
    for page in written_pages:
        (tmp_path / page).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / pages.GRADIENT_PAGE).write_text(f"before\n<!-- {pages.PART}: begin -->\nold\n<!-- {pages.PART}: end -->\nafter\n")
    assert pages.write() == written_pages
    written = (tmp_path / pages.GRADIENT_PAGE).read_text()
    assert written.startswith("before\n")
    assert written.endswith("\nafter\n")
    assert "old" not in written
    assert pages.write() == []


def test_write_needs_a_page_to_write_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    with pytest.raises(InvalidArgument, match="no page to write the op table into"):
        pages.pages()
