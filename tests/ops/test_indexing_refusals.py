"""What is said of dynamic slices, gathers and scatters that do not fit."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

import xla_torch
from xla_torch.builder import XlaBuilder
from xla_torch.errors import InvalidArgument
from xla_torch.functions.hlo_builder import Builder, XlaOp
from xla_torch.shape import Shape
from xla_torch.types import F32, PRED, S32, U8

ops: Any = xla_torch.ops  # which take tensors for XlaOps


def _p(*dims: int, element_type=F32, builder: Builder | None = None) -> XlaOp:
    builder = builder or XlaBuilder("refused")
    return builder.parameter(len(builder.instructions), Shape.array(element_type, dims))


def _with(operand: XlaOp, *dims: int, element_type=S32) -> XlaOp:
    return _p(*dims, element_type=element_type, builder=operand.builder)


GATHER = ops.GatherDimensionNumbers((1,), (0,), (0,), 1)
SCATTER = ops.ScatterDimensionNumbers((1,), (0,), (0,), 1)


def _gather(slice_sizes=(1, 3), indices=(5, 1), element_type=S32, **changes):
    x = _p(4, 3)
    return ops.Gather(x, _with(x, *indices, element_type=element_type), dataclasses.replace(GATHER, **changes), slice_sizes)


def _add(element_type=F32):
    builder = XlaBuilder("add")
    return builder.build(builder.parameter(0, Shape(element_type)) + builder.parameter(1, Shape(element_type)))


def _scatter_in_line(out_of_bounds: str):
    """A window of 4 elements for an operand of 3."""
    return ops.Scatter(torch.zeros(3), torch.zeros(1, 1, dtype=torch.int32), torch.zeros(1, 4), _add(F32),
                       ops.ScatterDimensionNumbers((1,), (), (0,), 1), out_of_bounds=out_of_bounds)


def _scatter(updates=(5, 3), indices=(5, 1), element_type=F32, computation=None, **changes):
    x = _p(4, 3)
    return ops.Scatter(x, _with(x, *indices), _with(x, *updates, element_type=element_type), computation or _add(),
                       dataclasses.replace(SCATTER, **changes))


REFUSALS = [
    (lambda: ops.DynamicSlice(_p(4, 3), [0], [2, 2]), "one start index is needed"),
    (lambda: ops.DynamicSlice((x := _p(4)), [_with(x, 2)], [2, 2]), "index vector's size"),
    (lambda: ops.DynamicSlice((x := _p(4, 3)), [_with(x, 1), _with(x)], [2, 2]), "not a scalar"),
    (lambda: ops.DynamicSlice((x := _p(4)), [x], [2]), "not integral"),
    (lambda: ops.DynamicSlice((x := _p(4, 3)), [_with(x), _with(x, element_type=U8)], [2, 2]), "different types"),
    (lambda: ops.DynamicSlice(_p(4, 3), [0, 0], [2]), "one slice size"),
    (lambda: ops.DynamicSlice(_p(4, 3), [0, 0], [2, 4]), "does not fit the operand"),
    (lambda: ops.DynamicSlice(_p(4, 3), [0, 0], [2, -1]), "does not fit the operand"),
    (lambda: ops.DynamicSliceInDim(_p(4), 0, 1, 1), "out of range"),
    (lambda: ops.DynamicUpdateSlice((x := _p(4)), _with(x, 1, 1, element_type=F32), [0]), "different ranks"),
    (lambda: ops.DynamicUpdateSlice((x := _p(4)), _with(x, 1), [0]), "different element types"),
    (lambda: ops.DynamicUpdateSlice((x := _p(4)), _with(x, 5, element_type=F32), [0]), "larger than the operand"),
    (lambda: _gather(element_type=F32), "not integral"),
    (lambda: _gather(element_type=PRED), "not integral"),
    (lambda: _gather(index_vector_dim=3), "index_vector_dim is out of range"),
    (lambda: _gather(offset_dims=(2,)), "offset_dims has an entry out of range"),
    (lambda: _gather(offset_dims=(1, 0), collapsed_slice_dims=()), "offset_dims is not sorted"),
    (lambda: _gather(offset_dims=(1, 1), collapsed_slice_dims=()), "offset_dims has an entry twice"),
    (lambda: _gather(start_index_map=(0, 1)), "does not fit the index vector"),
    (lambda: _gather(start_index_map=(2,)), "start_index_map has an entry out of range"),
    (lambda: _gather(indices=(5, 2), start_index_map=(0, 0)), "start_index_map has an entry twice"),
    (lambda: _gather(collapsed_slice_dims=(2,)), "collapsed_slice_dims has an entry out of range"),
    (lambda: _gather(slice_sizes=(1,)), "one slice size is needed"),
    (lambda: _gather(collapsed_slice_dims=()), "together are not the operand's dimensions"),
    (lambda: _gather(slice_sizes=(1, 4)), "does not fit the operand"),
    (lambda: _gather(slice_sizes=(2, 3)), "slice size other than 1"),
    (lambda: _gather(operand_batching_dims=(0,)), "different numbers of batching dimensions"),
    (lambda: _gather(operand_batching_dims=(0,), start_indices_batching_dims=(0,)), "both batching and collapsed"),
    (lambda: _gather(operand_batching_dims=(1,), start_indices_batching_dims=(0,)), "differ in size"),
    (lambda: _scatter(updates=(5,)), "wrong rank"),
    (lambda: _scatter(updates=(5, 4)), "larger than the operand"),
    (lambda: _scatter(updates=(6, 3)), "updates and indices differ in size"),
    (lambda: _scatter(update_window_dims=()), "wrong rank"),
    (lambda: _scatter(update_window_dims=(2,)), "update_window_dims has an entry out of range"),
    (lambda: _scatter(inserted_window_dims=()), "together are not the operand's dimensions"),
    (lambda: _scatter(inserted_window_dims=(2,)), "inserted_window_dims has an entry out of range"),
    (lambda: _scatter(scatter_dims_to_operand_dims=(0, 1)), "does not fit the index vector"),
    (lambda: _scatter(scatter_dims_to_operand_dims=(2,)), "out of range"),
    (lambda: _scatter(index_vector_dim=3), "index_vector_dim is out of range"),
    (lambda: _scatter(computation=_add(S32)), "does not fit"),
    (lambda: _scatter_in_line("element"), "larger than the operand"),
    (lambda: _scatter_in_line("elements"), "unknown out_of_bounds mode"),
    (lambda: ops.Gather(torch.zeros(3), torch.zeros(1, dtype=torch.int32), slice_sizes=[1], offset_dims=(0,)),
     "wrong dimension numbers"),
    (lambda: _scatter(element_type=S32), "does not fit"),
    (lambda: ops.Scatter([(x := _p(4))], _with(x, 1, 1), [], _add(), SCATTER), "one update for each operand"),
]


@pytest.mark.parametrize(("call", "message"), REFUSALS)
def test_refusals(call, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        call()
