"""Rules of ATen operators against torch itself: each core operator on rows of arguments, and the table as a whole."""

from __future__ import annotations

import functools
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.fx

from support import aten_linalg_rows, aten_rows, composition_rows
from support.oracle import needs_xla, run_xla
from xla_torch import Shape, XlaBuilder
from xla_torch.api import decomposition_tables, torch_function, torch_graph, torch_random
from xla_torch.aten.operator_rules import NO_VALUES, OF_NO_CONSEQUENCE, RULES, SHOWN, WANTED, applied
from xla_torch.aten.refused import INSTEAD, REASONS
from xla_torch.errors import InternalError, UnsupportedError
from xla_torch.lowering import numerics
from xla_torch.opcodes import control
from xla_torch.storage import torch_private
from xla_torch.types import type_from_numpy

ROWS = aten_rows.rows() | aten_linalg_rows.rows() | composition_rows.rules()
FURTHER_NAMES = {"where", "builder", "result", "is_plain", "is_contiguous", "most"}


def operator(name: str) -> Any:
    packet, _, overload = name.partition(".")
    if packet in ("xla_torch", "prims"):
        return functools.reduce(getattr, overload.split("."), getattr(torch.ops, packet))
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def is_there(name: str) -> bool:
    """Whether this torch has the operator: torch 2.14 took `cholesky` out, which older exports still call."""
    try:
        return operator(name) is not None
    except AttributeError:
        return False


HERE = sorted(filter(is_there, ROWS))


def call(name: str, row: tuple[Any, ...]) -> tuple[Any, list[torch.Tensor], torch.fx.Graph]:
    """(What torch gives, the tensors among the arguments, the graph of the call on them.)"""
    keywords = row[-1] if row and isinstance(row[-1], dict) else {}
    given = row[:-1] if keywords else row
    graph, tensors = torch.fx.Graph(), []

    def placeholder(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        tensors.append(value)
        node = graph.placeholder(f"t{len(tensors) - 1}")
        node.meta["val"] = value
        return node

    args = torch_private.pytree.tree_map(placeholder, given)
    node = graph.call_function(operator(name), tuple(args), torch_private.pytree.tree_map(placeholder, keywords))
    expected = operator(name)(*given, **keywords)
    node.meta["val"] = expected
    graph.output((node,))
    return expected, tensors, graph


def built(tensors: list[torch.Tensor], graph: torch.fx.Graph) -> Any:
    builder = XlaBuilder("row")
    inputs = {f"t{k}": builder.parameter(k, torch_graph.shape_of(t, "argument")) for k, t in enumerate(tensors)}
    torch_graph.check(graph)
    found, = torch_graph.build(builder, graph, inputs, lambda name: torch.zeros(()))
    several = [f for f in found if f is not None] if isinstance(found, (list, tuple)) else [found]
    return builder.build(builder.add(control.tuple_, several))


def agree(name: str, found: Any, expected: Any) -> None:
    results = expected if isinstance(expected, (list, tuple)) else [expected]
    assert len(found) == len(results)
    phases = aten_linalg_rows.ARBITRARY.get(name, ())
    for k, (got, want) in enumerate(zip(found, results, strict=True)):
        got, want = (got.abs(), want.abs()) if k in phases else (got, want)
        assert (got.dtype, got.shape) == (want.dtype, want.shape), name
        if name.startswith(("empty", "new_empty")):
            continue
        rough = {torch.bfloat16: 2e-2, torch.float16: 2e-3, torch.float64: 1e-10, torch.complex128: 1e-10}.get(want.dtype, 2e-5)
        torch.testing.assert_close(got, want, rtol=rough, atol=rough / 10, equal_nan=True)


@pytest.mark.filterwarnings("ignore:torch.triangular_solve is deprecated")
@pytest.mark.parametrize(("name", "last"), [
    *((name, 1) for name in HERE), *(pytest.param(name, None, marks=pytest.mark.slow) for name in HERE)])
def test_a_rule_gives_what_torch_gives(name: str, last: int | None):
    for number, row in enumerate(ROWS[name][:last]):
        expected, tensors, graph = call(name, row)
        try:
            agree(name, built(tensors, graph)(*tensors), expected)
        except Exception as error:
            error.add_note(f"row {number} of {name}")
            raise


def as_numpy(tensor: torch.Tensor) -> np.ndarray:
    kind = torch_graph.element_type_of(tensor.dtype, "a tensor")
    return numerics.numpy_from_storage(numerics.to_storage(tensor.contiguous(), kind), kind)


def as_tensor(array: np.ndarray) -> torch.Tensor:
    kind = type_from_numpy(array.dtype)
    assert kind is not None
    return numerics.from_storage(numerics.storage_from_numpy(np.array(array), kind), kind)


@needs_xla
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*only xla_torch runs checks")  # sizes that follow from values
@pytest.mark.parametrize("name", HERE)
def test_real_xla_gives_what_torch_gives(name: str):
    for row in ROWS[name]:
        expected, tensors, graph = call(name, row)
        found = run_xla(built(tensors, graph).to_hlo_text(), *map(as_numpy, tensors))
        agree(name, [as_tensor(array) for array in found], expected)


def core() -> set[str]:
    """The operators that torch tags as core."""
    names = (name.removeprefix("aten::") for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::"))
    return {str(op).removeprefix("aten.") for op in map(operator, names) if torch.Tag.core in op.tags}


def decomposed() -> set[str]:
    """Those that are taken apart, some of them because they draw."""
    taken_apart = (*torch_function.operator_decompositions()[0], *torch_random.ways())
    return {torch_graph.name_of(target) for target in taken_apart} - {*RULES}


def test_every_core_operator_has_a_rule_or_a_decomposition_or_a_reason():
    assert core() - {*RULES, *REASONS} - decomposed() == set()
    assert {*REASONS} - core() == set() == {*REASONS, *INSTEAD} & {*RULES} == {*INSTEAD} & core()
    assert all(map(operator, INSTEAD))


def test_the_page_of_entry_points_counts_them():
    known = core() & ({*RULES} | decomposed() - {*REASONS})
    page = (Path(__file__).parents[2] / "docs/entry-points.md").read_text(encoding="utf-8")
    assert f"({len(known)} of the {len(core())} core operators" in page


def test_every_rule_has_rows_and_is_one_that_graphs_have():
    # test_from_torch_random.py, test_from_torch_detection.py
    draws = {name for name in RULES if name.startswith(("xla_torch.", "torchvision."))}
    assert {name if "." in name else f"{name}.default" for name in ROWS} == {*RULES} - draws
    assert {*map(torch_graph.name_of, decomposition_tables.without_composites()[0])} & {*RULES} == set()


@pytest.mark.parametrize("name", sorted(filter(is_there, RULES)))
def test_a_rule_takes_what_its_operator_takes(name: str):
    takes = {argument.name for argument in torch_private.arguments_of(operator(name))} | FURTHER_NAMES
    needed = {n for n, p in inspect.signature(RULES[name]).parameters.items() if p.default is p.empty}
    assert needed <= takes
    assert {*SHOWN[name]}.isdisjoint(WANTED[name])


def test_arguments_of_no_consequence_are_arguments():
    known = {argument.name for name in filter(is_there, RULES) for argument in torch_private.arguments_of(operator(name))}
    assert known >= OF_NO_CONSEQUENCE
    assert {key for name in filter(is_there, RULES) for key in (*WANTED[name], *SHOWN[name])} <= known | FURTHER_NAMES
    assert all(operator(name) is not None for name in NO_VALUES)


def test_an_argument_that_a_rule_does_not_look_at_is_refused():
    builder = XlaBuilder("program")
    x = builder.parameter(0, Shape.parse("f32[2]"))
    assert applied("neg.default", builder, {"self": x, "layout": "strided"}, {}, x.shape)
    with pytest.raises(UnsupportedError, match="unknown argument turned"):
        applied("neg.default", builder, {"self": x, "turned": True}, {"turned": False}, x.shape)
    with pytest.raises(InternalError, match="another shape than torch's"):
        applied("neg.default", builder, {"self": x}, {}, Shape.parse("f32[3]"))
