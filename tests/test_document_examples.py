"""The documents' worked examples: at once on tensors, built and parsed again, and what real XLA says of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

import xla_torch
from document_examples import EXAMPLES, PARTICIPANTS, Example, Participants
from oracle import needs_xla, run_xla, xla_accepts
from xla_torch import XlaBuilder, ops, run_replicas
from xla_torch.errors import InvalidArgument
from xla_torch.hlo.literal import Literal


def name_of(row: Example | Participants) -> str:
    return f"{row.section} ({row.documents})"


def built(row: Example | Participants, arguments: Sequence[np.ndarray]) -> xla_torch.XlaComputation:
    builder = XlaBuilder("example")
    operands = [builder.parameter(k, Literal.of(a).shape) for k, a in enumerate(arguments)]
    result = called(row, builder, operands)
    return builder.build(ops.Tuple(builder, result) if isinstance(result, tuple) else result)


def called(row: Example | Participants, builder: XlaBuilder | None, arguments: Sequence[Any]) -> Any:
    first = (builder,) if isinstance(row, Example) and row.with_builder else ()
    return row.call(*first, *arguments)


def leaves(value: Any) -> list[Any]:
    return [leaf for v in value for leaf in leaves(v)] if isinstance(value, tuple) else [value]


def check(got: Any, wanted: Any) -> None:
    """The same shapes and values, up to the last places of floats; zeros have their signs."""
    found, want = leaves(got), leaves(wanted)
    assert len(found) == len(want)
    for array, expected in zip(map(np.asarray, found), map(np.asarray, want), strict=True):
        assert array.shape == expected.shape
        np.testing.assert_allclose(array, expected, rtol=1e-6, atol=1e-6)
        if expected.dtype.kind == "f" and array.dtype.kind == "f":
            assert (np.signbit(array) | ~np.signbit(expected))[expected == 0].all()


@pytest.mark.parametrize("row", EXAMPLES, ids=name_of)
def test_on_tensors(row: Example) -> None:
    check(called(row, None, [torch.from_numpy(np.array(a)) for a in row.arguments]), row.want)


@pytest.mark.parametrize("row", EXAMPLES, ids=name_of)
def test_built_printed_and_parsed(row: Example) -> None:
    program = xla_torch.parse_hlo(built(row, row.arguments).to_hlo_text())
    check(program.run_numpy(*row.arguments), row.want if isinstance(row.want, tuple) else (row.want,))


NOT_IN_XLA = {"RaggedDot", "ScaledDot"}
"""Ops that this XLA does not compile for the CPU in the form of the example."""


@needs_xla
@pytest.mark.parametrize("row", [r for r in EXAMPLES if r.section not in NOT_IN_XLA], ids=name_of)
def test_real_xla_agrees(row: Example) -> None:
    text = built(row, row.arguments).to_hlo_text()
    check(tuple(run_xla(text, *row.arguments)), row.want if isinstance(row.want, tuple) else (row.want,))


@pytest.mark.parametrize("row", PARTICIPANTS, ids=name_of)
def test_of_several_participants(row: Participants) -> None:
    program = built(row, row.arguments[0])
    results = run_replicas(program, row.arguments, num_replicas=len(row.arguments) // row.partitions,
                           num_partitions=row.partitions)
    for got, want in zip(results, row.want, strict=True):
        check(got, want if isinstance(want, tuple) else (want,))


# ------------------------------------------------------------------------------------------- document 2, anatomy of an op

ANATOMY = {
    "add.936": "bf16[8,1,1280,16384]{3,2,0,1:T(8,128)(2,1)} add(exponential.183, broadcast.3115)",
    "fusion.3": "bf16[32,32,4096]{2,1,0:T(8,128)(2,1)S(1)} fusion(bf16[32,32,8192]{2,1,0:T(8,128)(2,1)S(1)} %fusion.32), "
                "kind=kCustom, calls=%all-reduce-scatter.3",
}


def test_anatomy_of_ops() -> None:
    """Name, shape, layout with tiles and memory space, operation, arguments and attributes are read from the documents' lines."""
    big = "bf16[8,1,1280,16384]{3,2,0,1:T(8,128)(2,1)}"
    wide, narrow = "bf16[32,32,8192]{2,1,0:T(8,128)(2,1)S(1)}", "bf16[32,32,4096]{2,1,0:T(8,128)(2,1)S(1)}"
    program = xla_torch.parse_hlo(f"""HloModule anatomy

%all-reduce-scatter.3 {{
  %p = {wide} parameter(0)
  ROOT %s = {narrow} slice(%p), slice={{[0:32], [0:32], [0:4096]}}
}}

ENTRY %e {{
  %exponential.183 = {big} parameter(0)
  %broadcast.3115 = {big} parameter(1)
  %fusion.32 = {wide} parameter(2)
  %add.936 = {ANATOMY["add.936"]}
  %fusion.3 = {ANATOMY["fusion.3"]}
  ROOT %both = ({big}, {narrow}) tuple(%add.936, %fusion.3)
}}
""")
    found = {inst.name: inst for inst in program.entry.instructions}
    added, fused = found["add.936"], found["fusion.3"]
    assert (added.opcode, [o.name for o in added.operands]) == ("add", ["exponential.183", "broadcast.3115"])
    assert added.shape.to_text() == big
    assert added.shape.layout is not None
    assert added.shape.layout.minor_to_major == (3, 2, 0, 1)
    assert [tile.dimensions for tile in added.shape.layout.tiles] == [(8, 128), (2, 1)]
    assert fused.shape.layout is not None
    assert fused.shape.layout.memory_space == 1
    assert (fused.attributes["kind"], fused.attributes["calls"].name) == ("kCustom", "all-reduce-scatter.3")
    assert xla_accepts(program.to_hlo_text()) is None


def test_tuples_of_select_have_one_shape() -> None:
    """Document 0: tuples selected between have one shape, and the predicate is a scalar."""
    x, y = torch.zeros(2), torch.zeros(3)
    for pred, right in ((torch.tensor(True), (y, x)), (torch.tensor([True, False]), (x, y))):
        with pytest.raises(InvalidArgument):
            ops.Select(pred, (x, y), right)


def test_the_examples_cover_the_documents_sections() -> None:
    sections = {row.section.split(" ")[0] for row in (*EXAMPLES, *PARTICIPANTS)}
    assert len(sections) >= 60
    assert all(hasattr(ops, name) for name in sections)
