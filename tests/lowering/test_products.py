"""Products of matrices that are read transposed are made transposed."""

from __future__ import annotations

import pytest
import torch

from xla_torch import Shape, parse_hlo
from xla_torch.dtypes import torch_dtype

DOT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
BATCHED = "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}"

ROWS = [
    # parameters, lines, result, whether nothing is left to be permuted
    ("f32[3,4]", "f32[4,5]", [f"d = f32[3,5] dot(a, b), {DOT}", "ROOT r = f32[5,3] transpose(d), dimensions={1,0}"], True),
    ("f32[4,3]", "f32[5,4]", ["d = f32[3,5] dot(a, b), lhs_contracting_dims={0}, rhs_contracting_dims={1}",
                              "ROOT r = f32[5,3] transpose(d), dimensions={1,0}"], True),
    ("f32[2,3,4]", "f32[2,4,5]", [f"d = f32[2,3,5] dot(a, b), {BATCHED}",
                                  "ROOT r = f32[2,5,3] transpose(d), dimensions={0,2,1}"], True),
    ("f32[2,3,4]", "f32[2,4,5]", [f"d = f32[2,3,5] dot(a, b), {BATCHED}",
                                  "ROOT r = f32[5,2,3] transpose(d), dimensions={2,0,1}"], False),
    ("f32[2,3,4]", "f32[2,4,5]", [f"d = f32[2,3,5] dot(a, b), {BATCHED}",
                                  "s = f32[2,5,3] transpose(d), dimensions={0,2,1}",
                                  "t = f32[5,2,3] transpose(d), dimensions={2,0,1}",
                                  "u = f32[2,5,3] transpose(t), dimensions={1,0,2}",
                                  "ROOT r = f32[2,5,3] subtract(s, u)"], False),
    # Its rows are read as they are, too.
    ("f32[3,4]", "f32[4,3]", [f"d = f32[3,3] dot(a, b), {DOT}", "t = f32[3,3] transpose(d), dimensions={1,0}",
                              "ROOT r = f32[3,3] add(d, t)"], False),
    # Several dimensions of rows, and none.
    ("f32[2,3,4]", "f32[4,5]", ["d = f32[2,3,5] dot(a, b), lhs_contracting_dims={2}, rhs_contracting_dims={0}",
                                "ROOT r = f32[2,5,3] transpose(d), dimensions={0,2,1}"], False),
    ("f32[2,4]", "f32[2,4,5]", ["d = f32[2,5] dot(a, b), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1}, "
                                "rhs_contracting_dims={1}", "ROOT r = f32[5,2] transpose(d), dimensions={1,0}"], False),
]


@pytest.mark.parametrize("element_type", ["f32", "bf16", "s32", "c64"])
@pytest.mark.parametrize(("a", "b", "lines", "is_whole"), ROWS, ids=[str(k) for k in range(len(ROWS))])
def test_products_are_made_as_they_are_read(a: str, b: str, lines: list[str], is_whole: bool, element_type: str,
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n".join(["HloModule m", "ENTRY e {", f"a = {a} parameter(0)", f"b = {b} parameter(1)", *lines, "}"])
    program = parse_hlo(text.replace("f32", element_type))
    arguments = [_small_numbers(shape) for shape in program.program_shape.parameters]
    got = program(*arguments)
    assert ("permute" not in program.lowered().code) == is_whole
    monkeypatch.setattr("xla_torch.lowering.emit.turn_products", lambda graph: None)
    plain = parse_hlo(text.replace("f32", element_type))
    assert torch.equal(got, plain(*arguments))
    assert "permute" in plain.lowered().code


def _small_numbers(shape: Shape) -> torch.Tensor:
    return (torch.arange(shape.element_count) % 7 - 3).reshape(shape.dimensions).to(torch_dtype(shape.element_type))
