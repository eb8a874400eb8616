"""Implicit broadcast of the documented functions (hlo/SPEC.md), with all examples of the documents."""

from __future__ import annotations

import pytest
import torch

from xla_torch import ops
from xla_torch.builder import XlaBuilder
from xla_torch.errors import InvalidArgument
from xla_torch.shape import Shape

MATRIX = torch.tensor([[1, 2, 3], [4, 5, 6]])
BROADCASTS = [
    (MATRIX, torch.tensor([7, 8, 9]), (1,), [[8, 10, 12], [11, 13, 15]]),
    (torch.tensor([7, 8, 9]), MATRIX, (1,), [[8, 10, 12], [11, 13, 15]]),
    (MATRIX, 7, (), [[8, 9, 10], [11, 12, 13]]),
    (7, MATRIX, (), [[8, 9, 10], [11, 12, 13]]),
    (MATRIX, torch.tensor(7), (), [[8, 9, 10], [11, 12, 13]]),
    (torch.zeros(3, 3, dtype=torch.int64), torch.tensor([7, 8, 9]), (1,), [[7, 8, 9]] * 3),
    (torch.zeros(3, 3, dtype=torch.int64), torch.tensor([7, 8, 9]), (0,), [[7] * 3, [8] * 3, [9] * 3]),
    (torch.tensor([1, 2, 3, 4]), torch.tensor([[5, 6]]), (0,), [[6, 7], [7, 8], [8, 9], [9, 10]]),
    (MATRIX, torch.tensor([[1, 1, 1], [2, 2, 2]]), (0, 1), [[2, 3, 4], [6, 7, 8]]),
]


@pytest.mark.parametrize(("lhs", "rhs", "dims", "result"), BROADCASTS)
def test_document_examples_of_broadcasting(lhs: torch.Tensor, rhs: torch.Tensor, dims: tuple[int, ...], result: list) -> None:
    assert ops.Add(lhs, rhs, dims).tolist() == result


BROADCAST_SHAPES = [
    ((2, 1), (2, 3), (), (2, 3)),
    ((1, 2, 5), (7, 2, 5), (), (7, 2, 5)),
    ((7, 2, 5), (7, 1, 5), (), (7, 2, 5)),
    ((2, 1), (1, 3), (), (2, 3)),
    ((1, 2), (4, 3, 1), (1, 2), (4, 3, 2)),
    ((2, 3, 4), (3, 4), (1, 2), (2, 3, 4)),
    ((1,), (0,), (), (0,)),
    ((), (2, 0), (), (2, 0)),
    ((3,), (3, 1), (0,), (3, 1)),
]


@pytest.mark.parametrize(("lhs", "rhs", "dims", "result"), BROADCAST_SHAPES)
def test_shapes_of_broadcasting(lhs: tuple, rhs: tuple, dims: tuple, result: tuple) -> None:
    a, b = torch.randn(lhs), torch.randn(rhs)
    got = ops.Mul(a, b, dims)
    assert tuple(got.shape) == result
    if len(lhs) == len(rhs):
        assert torch.equal(got, a * b)


BROADCAST_ERRORS = [
    ((7, 2, 5), (7, 2, 6), (), "incompatible shapes"),
    ((2, 3), (3,), (), "need broadcast_dimensions"),
    ((2, 3), (2,), (1,), "incompatible shapes"),
    ((2, 3, 4), (4, 3), (2, 1), "out of order"),
    ((2, 3, 3), (3, 3), (1, 1), "out of order"),
    ((2, 3), (3,), (2,), "out of order or range"),
    ((2, 3), (3,), (-1,), "out of order or range"),
    ((2, 3), (2, 3), (1, 0), "one rank"),
    ((2, 3), (2, 3), (0,), "one rank"),
]


@pytest.mark.parametrize(("lhs", "rhs", "dims", "message"), BROADCAST_ERRORS)
def test_errors_of_broadcasting(lhs: tuple, rhs: tuple, dims: tuple, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        ops.Add(torch.zeros(lhs), torch.zeros(rhs), dims)


def test_bounded_dimensions_broadcast() -> None:
    builder = XlaBuilder("test")
    p = builder.parameter(0, Shape.parse("f32[4]"))
    size = builder.parameter(1, Shape.parse("s32[]"))
    dynamic = builder.add("set-dimension-size", [p, size], {"dimensions": (0,)})
    total = ops.Add(ops.Mul(dynamic, 2.0), builder.parameter(2, Shape.parse("f32[1]")))
    assert str(total.shape) == "f32[<=4]"
    got = builder.build(total)(torch.arange(4.0), torch.tensor(3, dtype=torch.int32), torch.tensor([0.5]))
    assert got.tolist() == [0.5, 2.5, 4.5]
