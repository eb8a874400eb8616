# pyright: reportCallIssue=false, reportArgumentType=false
"""Shapes with bounded (``<=N``) and unbounded (``?``) dimensions: as they are inferred, built, written as text, and met by
arguments of any size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

import xla_torch
from support.dynamic_programs import MORE, hlo
from support.oracle import needs_xla, xla_accepts, xla_canonical
from xla_torch import XlaBuilder, XlaComputation, ops
from xla_torch.errors import InvalidArgument
from xla_torch.opcodes.contraction import DotDimensionNumbers
from xla_torch.shape import UNBOUNDED, Shape
from xla_torch.types import F32

# ------------------------------------------------------------------------------------------------ shape inference

SHAPES = {
    "u": "f32[?,3]", "v": "f32[?,3]", "w": "f32[?]", "s": "f32[4,3]", "m": "f32[3,5]", "o": "f32[1,3]", "b": "f32[<=4,3]",
    "cu": "pred[?,3]", "cb": "pred[<=4,3]", "iu": "s32[?]", "w4": "f32[<=4]", "c4": "f32[4]", "w3": "f32[3]", "cx": "c64[?,3]",
    "sq": "f32[<=4,4]", "sb": "f32[4,<=3]", "rm": "f32[2,3,5]", "g": "s32[2]", "image": "f32[?,2,5]", "kernel": "f32[2,4,2]",
    "i": "s32[2]", "up": "f32[2,3]", "z": "f32[]", "k": "s32[]"}
INFERRED = [
    "add(u, v)", "add(u, s)", "add(s, u)", "add(u, o)", "add(o, u)", "add(u, b)", "add(b, s)", "add(s, b)", "tanh(u)",
    "complex(s, b)", "complex(u, s)", "compare(u, s), direction=LT", "select(cu, u, s)", "select(cu, s, s)", "select(cb, s, s)",
    "select(cu, b, s)", "select(cb, u, s)", "select(cb, u, u)", "select(cu, b, u)",
    "clamp(z, u, z)", "clamp(s, u, s)", "clamp(u, s, s)", "clamp(b, s, s)", "atan2(b, s)",
    "map(u, v), dimensions={0,1}, to_apply=add",
    "map(s, b), dimensions={0,1}, to_apply=add", "map(s, u), dimensions={0,1}, to_apply=add",
    "transpose(u), dimensions={1,0}", "reverse(u), dimensions={0}", "concatenate(u, s), dimensions={0}",
    "concatenate(u, v), dimensions={1}", "concatenate(u, s), dimensions={1}", "concatenate(s, u), dimensions={1}",
    "concatenate(b, s), dimensions={0}", "concatenate(b, s), dimensions={1}", "pad(u, z), padding=1_1x0_0",
    "pad(b, z), padding=1_1_1x0_0_0", "reduce(u, z), dimensions={0}, to_apply=add", "reduce(u, z), dimensions={1}, to_apply=add",
    "reduce(u, s, z, z), dimensions={1}, to_apply=add_two", "reduce(b, s, z, z), dimensions={1}, to_apply=add_two",
    "reduce(s, b, z, z), dimensions={1}, to_apply=add_two", "reduce-window(u, z), window={size=2x1}, to_apply=add",
    "select-and-scatter(u, v, z), window={size=1x1}, select=ge, scatter=add", "sort(u), dimensions={0}, to_apply=lt",
    "sort(b, s), dimensions={0}, to_apply=gt_first", "dot(u, m), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "dot(u, v), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
    *(f"dot({pair}), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}"
      for pair in ("u, s", "s, u", "b, u", "s, b", "b, s")),
    "ragged-dot(b, rm, g), lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}",
    "convolution(image, kernel), window={size=2}, dim_labels=bf0_io0->bf0",
    "gather(u, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,3}",
    "gather(s, iu), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,3}",
    "scatter(u, i, up), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
    "to_apply=add",
    "scatter(s, iu, u), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
    "to_apply=add",
    *(f"batch-norm-training({x}, {y}, {y}), epsilon=0.1, feature_index={d}"
      for x, y, d in (("u", "w3", 1), ("b", "w4", 0), ("b", "c4", 0), ("b", "w3", 1))),
    "batch-norm-inference(b, w4, w4, w4, w4), epsilon=0.1, feature_index=0",
    "batch-norm-inference(s, w4, w4, w4, w4), epsilon=0.1, feature_index=0",
    "batch-norm-grad(b, c4, c4, c4, s), epsilon=0.1, feature_index=0", "topk(u), k=2, largest=true",
    "fft(cx), fft_type=FFT, fft_length={3}", "cholesky(sq)",
    "triangular-solve(sq, sb), left_side=true, lower=true, transpose_a=NO_TRANSPOSE", "real(cx)", "copy(b)",
    *(f"set-dimension-size({x}, k), dimensions={{0}}" for x in "usb"), "get-dimension-size(u), dimensions={0}", "tuple(u, b)",
]


@needs_xla
@pytest.mark.parametrize("row", INFERRED)
def test_inferred_shapes_are_xlas(row: str) -> None:
    text = hlo(row, "\n".join(f"{name} = {shape} parameter({k})" for k, (name, shape) in enumerate(SHAPES.items())))
    ours = xla_torch.parse_hlo(text)
    theirs = xla_torch.parse_hlo(xla_canonical(text))
    assert str(ours.program_shape.result) == str(theirs.program_shape.result)


@pytest.mark.parametrize(("row", "want"), [
    ("dynamic-update-slice", "f32[<=4,3]"), ("slice", "f32[?,2]"), ("slice of one", "f32[1,3]"), ("reshape", "f32[<=12]"),
    ("collapse", "f32[?]"), ("inferred", "f32[?,1,3]"), ("broadcast", "f32[2,?,3]"), ("broadcast in dim", "f32[2,<=4,3]"),
])
def test_shapes_of_what_text_cannot_infer(row: str, want: str) -> None:
    builder = XlaBuilder("shapes")
    u, b, s = (builder.parameter(k, Shape.parse(t)) for k, t in enumerate(("f32[?,3]", "f32[<=4,3]", "f32[4,3]")))
    zero = builder.constant(0)
    made = {"dynamic-update-slice": lambda: ops.DynamicUpdateSlice(s, b, [zero, zero]),
            "slice": lambda: ops.SliceInDim(u, 1, 3, 1, 1), "slice of one": lambda: ops.SliceInDim(b, 1, 2, 1, 0),
            "reshape": lambda: ops.Reshape(b, [12]), "collapse": lambda: ops.Collapse(u, [0, 1]),
            "inferred": lambda: ops.ReshapeWithInferredDimension(u, [-1, 1, 3], 0), "broadcast": lambda: ops.Broadcast(u, [2]),
            "broadcast in dim": lambda: ops.BroadcastInDim(b, [2, 4, 3], [1, 2])}
    assert str(made[row]().shape) == want


# ------------------------------------------------------------------------------------------------ builder, any size


def _adding() -> XlaComputation:
    builder = XlaBuilder("adding")
    return builder.build(ops.Add(*(builder.parameter(k, Shape.array(F32)) for k in range(2))))


X, ROW, COLUMN = torch.arange(15.0).reshape(5, 3), torch.tensor([10.0, 20.0, 30.0]), torch.arange(5.0)
Build = Callable[..., Any]
BUILT: list[tuple[str, Build, list[str], list[torch.Tensor], torch.Tensor]] = [
    ("number", lambda x: ops.Add(x, 1.0), ["?,3"], [X], X + 1),
    ("number left", lambda x: ops.Pow(2.0, x), ["?,3"], [X], 2**X),
    ("bounded", lambda x: ops.Add(x, 1.0), ["<=8,3"], [X], X + 1),
    ("two unknown", ops.Add, ["?,3", "?,3"], [X, X], X + X),
    ("unknown size 1 stretches", ops.Add, ["?,3", "?,3"], [X, X[:1]], X + X[:1]),
    ("beside 1", ops.Mul, ["?,3", "1,3"], [X, X[1:2]], X * X[1:2]),
    ("1 beside unknown", ops.Mul, ["1,3", "?,3"], [X[1:2], X], X * X[1:2]),
    ("beside a size", ops.Add, ["?,3", "5,3"], [X, X], X + X),
    ("row", lambda x, y: ops.Add(x, y, (1,)), ["?,3", "3"], [X, ROW], X + ROW),
    ("column", lambda x, y: ops.Add(x, y, (0,)), ["?,3", "?"], [X, COLUMN], X + COLUMN[:, None]),
    ("bounded row", lambda x, y: ops.Add(x, y, (1,)), ["<=8,3", "3"], [X, ROW], X + ROW),
    ("bounded column", lambda x, y: ops.Add(x, y, (0,)), ["<=8,3", "<=8"], [X, COLUMN], X + COLUMN[:, None]),
    ("bounded beside 1", ops.Add, ["<=8,3", "1,3"], [X, X[1:2]], X + X[1:2]),
    ("bounded beside static", ops.Add, ["<=8,3", "8,3"], [X, torch.ones(8, 3)], X + 1),
    ("outer", ops.Add, ["?,1", "1,?"], [X[:, :1], X[:1]], X[:, :1] + X[:1]),
    ("select", lambda x: ops.Select(ops.Gt(x, 4.0), x, 0.0), ["?,3"], [X], torch.where(X > 4, X, 0)),
    ("clamp", lambda x: ops.Clamp(2.0, x, 6.0), ["?,3"], [X], X.clamp(2, 6)),
    ("clamp bounded", lambda x: ops.Clamp(2.0, x, 6.0), ["<=8,3"], [X], X.clamp(2, 6)),
    ("reshape", lambda x: ops.ReshapeWithInferredDimension(x, [-1, 3, 1], 0), ["?,3"], [X], X[..., None]),
    ("reshape to unknown", lambda x: ops.Reshape(x, [UNBOUNDED]), ["?,3"], [X], X.flatten()),
    ("collapse", lambda x: ops.Collapse(x, [0, 1]), ["?,3"], [X], X.flatten()),
    ("collapse bounded", lambda x: ops.Collapse(x, [0, 1]), ["<=8,3"], [X], X.flatten()),
    ("transpose", lambda x: ops.Transpose(x, [1, 0]), ["?,3"], [X], X.T),
    ("slice", lambda x: ops.Slice(x, [0, 1], [UNBOUNDED, 3]), ["?,3"], [X], X[:, 1:]),
    ("slice in dim", lambda x: ops.SliceInDim(x, 1, 3, 1, 1), ["?,3"], [X], X[:, 1:]),
    ("pad", lambda x: ops.Pad(x, 0.0, [(1, 1, 0), (0, 0, 0)]), ["?,3"], [X], torch.constant_pad_nd(X, [0, 0, 1, 1])),
    ("reverse", lambda x: ops.Rev(x, [0]), ["?,3"], [X], X.flip(0)),
    ("concatenate", lambda x, y: ops.ConcatInDim(x.builder, [x, y], 0), ["?,3", "2,3"], [X, X[:2]], torch.cat([X, X[:2]])),
    ("concatenate beside", lambda x, y: ops.ConcatInDim(x.builder, [x, y], 1), ["?,3", "?,3"], [X, X], torch.cat([X, X], 1)),
    ("reduce", lambda x: ops.Reduce(x, x.builder.constant(0.0), _adding(), [0]), ["?,3"], [X], X.sum(0)),
    ("reduce rows", lambda x: ops.Reduce(x, x.builder.constant(0.0), _adding(), [1]), ["?,3"], [X], X.sum(1)),
    ("mean", lambda x: ops.Div(ops.Reduce(x, x.builder.constant(0.0), _adding(), [0]),
                               ops.ConvertElementType(ops.GetDimensionSize(x, 0), F32)), ["?,3"], [X], X.mean(0)),
    ("softmax", lambda x: ops.Div(ops.Exp(x), ops.Reduce(ops.Exp(x), x.builder.constant(0.0), _adding(), [1]), (0,)), ["?,3"],
     [X], X.softmax(1)),
    ("dot", ops.Dot, ["?,3", "3,3"], [X, X[:3]], X @ X[:3]),
    ("batched dot", lambda x, y: ops.DotGeneral(x, y, DotDimensionNumbers((2,), (1,), (0,), (0,))), ["?,1,3", "?,3,1"],
     [X[:, None], X[..., None]], (X * X).sum(1)[:, None, None]),
    ("convolution", lambda x, y: ops.Conv(x, y, [1], ops.Padding.VALID), ["?,1,3", "1,1,3"], [X[:, None], ROW[None, None]],
     (X @ ROW)[:, None, None]),
    ("broadcast", lambda x: ops.Broadcast(x, [2]), ["?,3"], [X], X.expand(2, 5, 3)),
    ("broadcast in dim", lambda x: ops.BroadcastInDim(x, [2, UNBOUNDED, 3], [1, 2]), ["?,3"], [X], X.expand(2, 5, 3)),
    ("map", lambda x, y: ops.Map(x.builder, [x, y], _adding(), [0, 1]), ["?,3", "?,3"], [X, X], X + X),
    ("dynamic slice", lambda x: ops.DynamicSlice(x, [x.builder.constant(3), x.builder.constant(0)], [2, 3]), ["?,3"], [X], X[3:]),
    ("dynamic reshape", lambda x: ops.DynamicReshape(x, [3, 5], [3, UNBOUNDED], [False, True]), ["?,3"], [X], X.reshape(3, 5)),
    ("remove", lambda x: ops.RemoveDynamicDimension(x, 0), ["<=8,3"], [X], torch.constant_pad_nd(X, [0, 0, 0, 3])),
    ("set", lambda x: ops.SetDimensionSize(x, 2, 0), ["?,3"], [X], X[:2]),
]


def built(make: Build, dims: Sequence[str]) -> XlaComputation:
    builder = XlaBuilder("built")
    return builder.build(make(*(builder.parameter(k, Shape.parse(f"f32[{d}]")) for k, d in enumerate(dims))))


@pytest.mark.parametrize(("make", "dims", "given", "want"), [row[1:] for row in BUILT], ids=[row[0] for row in BUILT])
def test_built_programs_take_any_size(make: Build, dims: list[str], given: list[torch.Tensor], want: torch.Tensor) -> None:
    computation = built(make, dims)
    torch.testing.assert_close(computation(*given), want)
    text = computation.to_hlo_text()
    again = xla_torch.parse_hlo(text)
    assert again.to_hlo_text() == text
    torch.testing.assert_close(again(*given), want)
    np.testing.assert_allclose(computation.run_numpy(*(t.numpy() for t in given))[0], want.numpy(), rtol=1e-6)


@needs_xla
@pytest.mark.parametrize(("make", "dims"), [row[1:3] for row in BUILT], ids=[row[0] for row in BUILT])
def test_xla_reads_built_programs(make: Build, dims: list[str]) -> None:
    assert xla_accepts(built(make, dims).to_hlo_text()) is None


@pytest.mark.parametrize(("dims", "given"), [("<=4,3", (5, 3)), ("?,3", (3,)), ("?,4", (5, 3)), ("<=4,?", (2, 3, 1))])
@pytest.mark.parametrize("numpy", [False, True])
def test_arguments_that_do_not_fit_are_refused_by_the_call(dims: str, given: tuple[int, ...], numpy: bool) -> None:
    computation = built(lambda x: ops.Add(x, 1.0), [dims])
    with pytest.raises(InvalidArgument, match=r"argument 0.* has the wrong shape or dtype"):
        computation.run_numpy(np.zeros(given, np.float32)) if numpy else computation(torch.zeros(given))


@pytest.mark.parametrize("rows", [0, 1, 3, 4])
def test_a_bounded_parameter_takes_every_size(rows: int) -> None:
    computation = built(lambda x: ops.Reduce(ops.Add(x, x), x.builder.constant(0.0), _adding(), [0]), ["<=4,3"])
    x = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
    np.testing.assert_allclose(computation.run_numpy(x)[0], 2 * x.sum(0))


def test_an_unbounded_dimension_has_no_bound_to_go_back_to() -> None:
    with pytest.raises(InvalidArgument, match="has no bound"):
        built(lambda x: ops.RemoveDynamicDimension(x, 0), ["?,3"])


@pytest.mark.parametrize("dims", ["<=8,3", "?,3"])
def test_gradients_for_parameters_of_any_size(dims: str) -> None:
    def loss(x: Any, y: Any, row: Any) -> Any:
        total = ops.Mul(ops.Add(ops.Tanh(x), y, (1,)), ops.Add(row, 2.0))
        return ops.Reduce(total, x.builder.constant(0.0), _adding(), [0, 1])

    computation = built(loss, [dims, "3", "1,3"])
    given = [t.clone().requires_grad_() for t in (X / 9, ROW / 9, ROW[None] / 7)]
    theirs = [t.detach().clone().requires_grad_() for t in given]
    computation(*given).backward()
    ((theirs[0].tanh() + theirs[1]) * (theirs[2] + 2)).sum().backward()
    torch.testing.assert_close([t.grad for t in given], [t.grad for t in theirs])


# ------------------------------------------------------------------------------------------------ text

FORMS = ["f32[<=8] set-dimension-size(p, n), dimensions={0}", "f32[8] set-dimension-size(d, i8), dimensions={0}",
         "s32[] get-dimension-size(d), dimensions={0}", "f32[<=2,<=4] dynamic-reshape(d, i2, i2)",
         "f32[2,<=4] dynamic-reshape(d, i2, i2)", "f32[<=8,1] reshape(d), inferred_dimension=0",
         "(f32[<=8], f32[<=4,6]) tuple(d, e)"]


@needs_xla
@pytest.mark.parametrize("row", FORMS)
def test_text_of_dynamic_shapes(row: str) -> None:
    text = xla_torch.parse_hlo(hlo(row, MORE)).to_hlo_text()
    assert xla_torch.parse_hlo(text).to_hlo_text() == text
    ours, theirs = (xla_torch.parse_hlo(t).program_shape for t in (text, xla_canonical(text)))
    assert [str(s) for s in (*ours.parameters, ours.result)] == [str(s) for s in (*theirs.parameters, theirs.result)]


def test_an_unbounded_slice_in_text() -> None:
    text = hlo("f32[?,2] slice(u), slice={[0:-9223372036854775808], [0:2]}", "u = f32[?,3] parameter(0)")
    assert xla_torch.parse_hlo(text)(X).tolist() == X[:, :2].tolist()
    with pytest.raises(InvalidArgument, match="does not take all"):
        xla_torch.parse_hlo(text.replace("[0:-", "[1:-"))
