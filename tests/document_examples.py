"""Worked examples of the documents, with the numbers they print or that their figures show.

Documents: 0 operation semantics, newest; 1 the oldest; 3 in between. Where they contradict themselves or the implementation,
the row's note says what holds. The examples of documents 2 (shapes, layouts and tiles) and 4 (broadcasting) are rows of
`test_shapes.py`, `test_layout.py` and `test_broadcasting.py`; those of collectives with several participants are
`PARTICIPANTS` below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import xla_torch
from xla_torch import F16, F32, S32, U4, U8, Shape, XlaBuilder, ops


class Example(NamedTuple):
    """`call` of the arguments is the array, or tuple of arrays, `want`. With `with_builder` a builder, or None, comes first."""

    documents: str
    section: str
    call: Callable[..., Any]
    arguments: Sequence[Any]
    want: Any
    note: str = ""
    with_builder: bool = False


def f(values: Any) -> np.ndarray:
    return np.asarray(values, np.float32)


def i(values: Any) -> np.ndarray:
    return np.asarray(values, np.int32)


def computation(shapes: str, build: Callable[..., Any]) -> xla_torch.XlaComputation:
    """A computation of parameters of the shapes, which spaces separate."""
    builder = XlaBuilder("region")
    return builder.build(build(*(builder.parameter(k, Shape.parse(s)) for k, s in enumerate(shapes.split(" ")))))


def binary(name: str, element_type: str = "f32") -> xla_torch.XlaComputation:
    return computation(f"{element_type}[] {element_type}[]", getattr(ops, name))


ADD, LESS = binary("Add"), binary("Lt")
FIVE = f([0, 1, 2, 3, 4])
TABLE = f(np.arange(12).reshape(4, 3))
V = f([[[10, 11, 12], [15, 16, 17]], [[20, 21, 22], [25, 26, 27]], [[30, 31, 32], [35, 36, 37]], [[40, 41, 42], [45, 46, 47]]])
CUBE = f([[[1, 2, 3], [4, 5, 6]]] * 4)
CASES = {True: i([1, 2, 3, 4]), False: i([100, 200, 300, 400])}
COLUMNS = [[10, 20, 30, 40, 11, 21, 31, 41, 12, 22, 32, 42], [15, 25, 35, 45, 16, 26, 36, 46, 17, 27, 37, 47]]
"""V with its dimension 0 last."""
DECADES = f([10000, 1000, 100, 10, 1])
POOLED = f([[7, 2, 5, 3, 10, 2], [3, 8, 9, 3, 4, 2], [1, 5, 7, 5, 6, 1], [0, 6, 2, 7, 2, 8]])
INPUT16 = f(np.arange(16 * 11).reshape(16, 11))
STARTS = i([[0, 0], [3, 2], [8, 5], [1, 4], [7, 1]])

# ---------------------------------------------------------------------------------------------- computations of examples

ARGMAX = computation("f32[] s32[] f32[] s32[]", lambda best, place, value, index: ops.Tuple([
    ops.Select(ops.Ge(value, best), value, best), ops.Select(ops.Ge(value, best), index, place)]))
BY_FIRST = computation("s32[] s32[] s32[] s32[] f32[] f32[]", lambda a, b, *rest: ops.Lt(a, b))
RUNNING = computation("f32[] f32[]", lambda x, c: ops.Tuple([c * 2.0 + x, c + x]))
"""f(x, c) -> (y, c')."""
COUNT = computation("(s32[],f32[10])", lambda t: ops.Lt(ops.GetTupleElement(t, 0), 1000))
ACCUMULATE = computation("(s32[],f32[10])", lambda t: ops.Tuple([
    ops.GetTupleElement(t, 0) + 1, ops.GetTupleElement(t, 1) + ops.Constant(t.builder, [0.5] * 10)]))


def conv_by_pseudocode(x: np.ndarray, kernel: np.ndarray, stride: tuple[int, int], low: tuple[int, int],
                       high: tuple[int, int]) -> np.ndarray:
    """The documents' pseudo-code of a 2-D convolution with padding and strides."""
    sizes = [(n + a + b - k) // s + 1 for n, k, s, a, b in zip(x.shape[2:], kernel.shape[2:], stride, low, high, strict=True)]
    out = np.zeros((x.shape[0], kernel.shape[0], *sizes), np.float32)
    for b, oz, oy, ox in np.ndindex(out.shape):
        for iz, ky, kx in np.ndindex(*kernel.shape[1:]):
            iy, ix = oy * stride[0] + ky - low[0], ox * stride[1] + kx - low[1]
            if 0 <= iy < x.shape[2] and 0 <= ix < x.shape[3]:
                out[b, oz, oy, ox] += x[b, iz, iy, ix] * kernel[oz, iz, ky, kx]
    return out


IMAGE, KERNEL = f(np.arange(60).reshape(1, 3, 4, 5) % 7), f(np.arange(36).reshape(2, 3, 2, 3) % 5)

EXAMPLES = [
    # ------------------------------------------------------------------------------------------ elementwise
    Example("013", "Clamp", ops.Clamp, [i(0), i([-1, 5, 9]), i(6)], [0, 5, 6], "document 1 has lost the sign of -1"),
    Example("013", "Sign", ops.Sign, [f([-7, -0.0, math.nan, 0.0, 7])], [-1, -0.0, math.nan, 0.0, 1]),
    Example("013", "LtTotalOrder", lambda x: tuple(ops.LtTotalOrder(ops.Slice(x, [k], [k + 1]), ops.Slice(x, [k + 1], [k + 2]))
                                                   for k in range(7)),
            [np.array([0xFFC00000, 0xFF800000, 0xBF800000, 0x80000000, 0, 0x3F800000, 0x7F800000, 0x7FC00000],
                      np.uint32).view(np.float32)], ([True],) * 7,
            "-NaN < -Inf < -Finite < -0 < +0 < +Finite < +Inf < +NaN; document 1 has lost the signs"),
    Example("0", "Ge", ops.GeTotalOrder, [f([-0.0, math.nan]), f([0.0, math.inf])], [False, True],
            "document 0 calls the total order of Ge GtTotalOrder"),
    Example("013", "Select", ops.Select, [np.array([True, False, False, True]), CASES[True], CASES[False]], [1, 200, 300, 4]),
    Example("013", "Select", ops.Select, [np.array(True), CASES[True], CASES[False]], [1, 2, 3, 4]),
    Example("013", "Select", lambda p, x, y, z: ops.Select(p, ops.Tuple([x, y]), ops.Tuple([y, z])),
            [np.array(False), *(i([n]) for n in range(3))], ([1], [2]), "tuples are selected whole"),
    Example("013", "ConvertElementType", lambda a: ops.ConvertElementType(a, F32), [i([0, 1, 2])], [0.0, 1.0, 2.0]),
    Example("013", "BitcastConvertType", lambda a: ops.BitcastConvertType(a, F16), [f(np.zeros(10))], np.zeros((10, 2))),
    Example("013", "BitcastConvertType", lambda a: ops.BitcastConvertType(a, F16), [f(0)], [0, 0]),
    Example("013", "BitcastConvertType", lambda a: ops.BitcastConvertType(a, F32), [np.zeros((10, 2), np.float16)], np.zeros(10)),
    Example("0", "BitcastConvertType", lambda a: ops.BitcastConvertType(a, U8), [f(1)], [0, 0, 128, 63], "low part first"),
    Example("0", "BitcastConvertType", lambda a: ops.BitcastConvertType(a, U4), [np.array([0x21], np.uint8)], [[1, 2]]),
    Example("013", "ReducePrecision", lambda x: ops.ReducePrecision(x, 5, 10), [f([65519.99, 65520, 6e-8, math.nan])],
            [65504, math.inf, 0, math.nan], "the headings of 1 and 3 have the two widths in the other order"),
    Example("0", "Round", ops.Round, [f([0.5, -2.5, 2.4])], [1, -3, 2]),
    Example("0", "RoundNearestEven", ops.RoundNearestEven, [f([0.5, -2.5, 1.5])], [0, -2, 2]),
    Example("013", "Rem", ops.Rem, [i([7, -7, 7, -7]), i([3, 3, -3, -3])], [1, -1, 1, -1], "the sign of the dividend"),
    # ------------------------------------------------------------------------------------------ data movement
    Example("013", "Broadcast", lambda x: ops.Broadcast(x, [2, 3]), [f(2)], np.full((2, 3), 2.0)),
    Example("013", "BroadcastInDim", lambda x: ops.BroadcastInDim(x, [2, 2], [0]), [f([1, 2])], [[1, 1], [2, 2]]),
    Example("013", "BroadcastInDim", lambda x: ops.BroadcastInDim(x, [2, 3], [0, 1]), [f([[1], [2]])], [[1] * 3, [2] * 3]),
    Example("013", "Collapse", lambda v: ops.Collapse(v, [0, 1, 2]), [V], V.reshape(24)),
    Example("013", "Collapse", lambda v: ops.Collapse(v, [0, 1]), [V], V.reshape(8, 3), "printed for dimensions 1 and 2"),
    Example("013", "Collapse", lambda v: ops.Collapse(v, [1, 2]), [V], V.reshape(4, 6), "printed for dimensions 0 and 1"),
    Example("013", "ConcatInDim", lambda *x: ops.ConcatInDim(list(x), 0), [f([2, 3]), f([4, 5]), f([6, 7])], [2, 3, 4, 5, 6, 7]),
    Example("013", "ConcatInDim", lambda *x: ops.Concatenate(list(x), 0), [f([[1, 2], [3, 4], [5, 6]]), f([[7, 8]])],
            [[1, 2], [3, 4], [5, 6], [7, 8]]),
    Example("013", "DynamicSlice", lambda a, s: ops.DynamicSlice(a, [s], [2]), [FIVE, i(2)], [2, 3]),
    Example("013", "DynamicSlice", lambda b, *s: ops.DynamicSlice(b, s, [2, 2]), [TABLE, i(2), i(1)], [[7, 8], [10, 11]]),
    Example("013", "DynamicSlice", lambda a, s: ops.DynamicSlice(a, [s], [2]), [FIVE, i(9)], [3, 4], "the start is clamped"),
    Example("013", "DynamicUpdateSlice", lambda a, u, s: ops.DynamicUpdateSlice(a, u, [s]), [FIVE, f([5, 6]), i(2)],
            [0, 1, 5, 6, 4]),
    Example("013", "DynamicUpdateSlice", lambda b, u, *s: ops.DynamicUpdateSlice(b, u, s),
            [TABLE, f([[12, 13], [14, 15], [16, 17]]), i(1), i(1)], [[0, 1, 2], [3, 12, 13], [6, 14, 15], [9, 16, 17]]),
    Example("013", "Slice", lambda a: ops.Slice(a, [2], [4]), [FIVE], [2, 3]),
    Example("013", "Slice", lambda b: ops.Slice(b, [2, 1], [4, 3]), [TABLE], [[7, 8], [10, 11]]),
    Example("013", "Rev", lambda x: ops.Rev(x, [0]), [FIVE], [4, 3, 2, 1, 0], "index i becomes N - 1 - i"),
    Example("013", "Transpose", lambda x: ops.Transpose(x, [2, 0, 1]), [V], V.transpose(2, 0, 1),
            "input_dimensions[permutation[i]] = output_dimensions[i]"),
    Example("03", "Reshape", lambda v: ops.Reshape(v, [24]), [V], V.reshape(24)),
    Example("03", "Reshape", lambda v: ops.Reshape(v, [8, 3]), [V], V.reshape(8, 3)),
    Example("03", "Reshape", lambda x: ops.Reshape(x, []), [f([[5]])], 5),
    Example("03", "Reshape", lambda x: ops.Reshape(x, [1, 1]), [f(5)], [[5]]),
    Example("0", "Reshape (explicit)", lambda v: ops.Reshape(Shape.parse("f32[8,3]"), v), [V], V.reshape(8, 3)),
    Example("1", "Reshape", lambda v: ops.Reshape(v, [0, 1, 2], [24]), [V], V.reshape(24)),
    Example("1", "Reshape", lambda v: ops.Reshape(v, [0, 1, 2], [8, 3]), [V], V.reshape(8, 3)),
    Example("1", "Reshape", lambda v: ops.Reshape(v, [1, 2, 0], [24]), [V], np.ravel(COLUMNS)),
    Example("1", "Reshape", lambda v: ops.Reshape(v, [1, 2, 0], [8, 3]), [V], np.reshape(COLUMNS, (8, 3))),
    Example("1", "Reshape", lambda v: ops.Reshape(v, [1, 2, 0], [2, 6, 2]), [V], np.reshape(COLUMNS, (2, 6, 2))),
    Example("1", "Reshape", lambda x: ops.Reshape(x, [0, 1], []), [f([[5]])], 5),
    Example("1", "Reshape", lambda x: ops.Reshape(x, [], [1, 1]), [f(5)], [[5]]),
    Example("013", "Pad", lambda x, p: ops.Pad(x, p, [(1, 0, 0), (2, 1, 1)]), [f([[1, 2], [3, 4]]), f(9)],
            [[9] * 6, [9, 9, 1, 9, 2, 9], [9, 9, 3, 9, 4, 9]]),
    Example("013", "Pad", lambda x, p: ops.Pad(x, p, [(-1, -1, 1)]), [f([1, 2, 3, 4]), f(9)], [9, 2, 9, 3, 9],
            "interior padding comes before negative edges"),
    Example("0", "Iota", lambda b: ops.Iota(b, Shape.parse("s32[4,8]"), 0), [], np.indices((4, 8))[0], "", True),
    Example("013", "Iota", lambda b: ops.Iota(b, Shape.parse("s32[4,8]"), 1), [], np.indices((4, 8))[1], "", True),
    Example("013", "GetTupleElement", lambda v, s: ops.GetTupleElement(ops.Tuple([v, s]), 1), [f(np.arange(10)), i(5)], 5),
    Example("0", "Tuple", lambda v, s: ops.Tuple([v, s]), [f(np.arange(10)), i(5)], (np.arange(10), 5)),
    # ------------------------------------------------------------------------------------------ gather and scatter
    Example("013", "Gather", lambda x, s: ops.Gather(x, s, ops.GatherDimensionNumbers((1, 2), (), (0, 1), 1), [8, 6]),
            [INPUT16, STARTS], np.stack([INPUT16[a:a + 8, b:b + 6] for a, b in STARTS]), "Out[G,O0,O1] = In[X+O0,Y+O1]"),
    Example("013", "Gather", lambda x, s: ops.Gather(x, s, ops.GatherDimensionNumbers((2, 3), (), (0, 1), 2), [8, 6]),
            [INPUT16, np.stack([STARTS] * 4)], np.stack([[INPUT16[a:a + 8, b:b + 6] for a, b in STARTS]] * 4)),
    Example("013", "Gather", lambda x, s: ops.Gather(x, s, ops.GatherDimensionNumbers((2,), (0,), (0,), 2), [1, 11]),
            [INPUT16, STARTS[:, :, None]], INPUT16[STARTS], "gather_nd: slice_sizes [1,11], Out[G0,G1,O0] = In[X,O0]"),
    Example("0", "Scatter", lambda x, s, u: ops.Scatter(
        x, s, u, ADD, update_window_dims=(3, 4), inserted_window_dims=(1,), scatter_dims_to_operand_dims=(2, 1),
        index_vector_dim=3, input_batching_dims=(0,), scatter_indices_batching_dims=(1,)),
        [f(np.arange(1, 49).reshape(2, 3, 4, 2)),
         np.array([[[[0, 0], [1, 0], [2, 1]], [[0, 1], [1, 1], [0, 9]]], [[[0, 0], [2, 1], [2, 2]], [[1, 2], [0, 1], [1, 0]]]]),
         f(np.ones((2, 2, 3, 1, 2)))],
        [[[[3, 4], [4, 5], [5, 6], [7, 8]], [[9, 10], [11, 12], [15, 16], [15, 16]], [[17, 18], [19, 20], [22, 23], [23, 24]]],
         [[[25, 26], [28, 29], [29, 30], [31, 32]], [[35, 36], [36, 37], [37, 38], [39, 40]],
          [[41, 42], [44, 45], [45, 46], [47, 48]]]], "an index out of bounds is skipped"),
    Example("013", "Scatter", lambda x, s, u: ops.Scatter(x, s, u, ADD, ops.ScatterDimensionNumbers((1, 2), (), (0, 1), 1)),
            [f(np.zeros((3, 3))), i([[2, 1]]), f(np.ones((1, 2, 2)))], np.zeros((3, 3)), "XLA skips whole windows"),
    Example("013", "Scatter", lambda x, s, u: ops.Scatter(x, s, u, ADD, ops.ScatterDimensionNumbers((1, 2), (), (0, 1), 1),
                                                          out_of_bounds="element"),
            [f(np.zeros((3, 3))), i([[2, 1]]), f(np.ones((1, 2, 2)))], [[0, 0, 0], [0, 0, 0], [0, 1, 1]],
            "the documents skip each index that is out of bounds"),
    # ------------------------------------------------------------------------------------------ reductions
    *(Example("013", "Reduce", lambda x, dims=dims: ops.Reduce(x, 0.0, ADD, dims), [CUBE], want) for dims, want in [
        ((0,), [[4, 8, 12], [16, 20, 24]]), ((2,), [[6, 15]] * 4), ((0, 1), [20, 28, 36]), ((0, 1, 2), 84)]),
    *(Example("013", "Reduce", lambda x, dims=dims: ops.Reduce(x, 0.0, ADD, dims), [f([[1, 2, 3], [4, 5, 6]])], want)
      for dims, want in [((0,), [5, 7, 9]), ((1,), [6, 15])]),
    Example("013", "Reduce", lambda x: ops.Reduce(x, 0.0, ADD, [0]), [f([10, 11, 12, 13])], 46, "in any association"),
    Example("013", "Reduce (variadic)", lambda v, k: ops.Reduce([v, k], [-math.inf, 0], ARGMAX, [0]),
            [f([3, 9, 2, 9, 1]), i(range(5))], (9, 3), "of equal values the later one"),
    Example("013", "ReduceWindow", lambda x: ops.ReduceWindow(x, -math.inf, binary("Max"), [2, 3], [2, 3], ops.Padding.VALID),
            [f(np.arange(24).reshape(4, 6))], [[8, 11], [20, 23]]),
    Example("013", "ReduceWindow", lambda x: ops.ReduceWindow(x, math.inf, binary("Min"), [3], [2], ops.Padding.VALID),
            [DECADES], [100, 1]),
    Example("013", "ReduceWindow", lambda x: ops.ReduceWindow(x, math.inf, binary("Min"), [3], [2], ops.Padding.SAME),
            [DECADES], [1000, 10, 1]),
    Example("0", "ReduceWindow", lambda x: ops.ReduceWindowWithGeneralPadding(
        x, 0, binary("Add", "s32"), [2, 1], [4, 1], [2, 1], [3, 1], [(2, 1), (0, 0)]), [i([[1, 2], [3, 4], [5, 6]])],
        [[0, 0], [3, 4]]),
    Example("013", "SelectAndScatter", lambda x, s: ops.SelectAndScatter(
        x, binary("Ge"), [2, 3], [2, 3], ops.Padding.VALID, s, 0.0, ADD), [POOLED, f([[2, 6], [3, 1]])],
        [[0, 0, 0, 0, 6, 0], [0, 0, 2, 0, 0, 0], [0, 0, 3, 0, 0, 0], [0, 0, 0, 0, 0, 1]], "figure 1"),
    Example("013", "SelectAndScatter", lambda x, s: ops.SelectAndScatter(
        x, binary("Ge"), [2, 3], [2, 2], ops.Padding.VALID, s, 0.0, ADD), [f([[7, 2, 5, 3, 8], [3, 8, 9, 3, 4]]), f([[2, 6]])],
        [[0, 0, 0, 0, 0], [0, 0, 8, 0, 0]], "figure 2: the element 9 is selected twice, 2 + 6"),
    Example("0", "Scan", lambda x, c: ops.Scan([x], [c], RUNNING, 0), [f([1, 2, 3]), f(10)], ([21, 24, 29], 16),
            "y_k, c_k = f(x_k, c_(k-1))"),
    Example("0", "Scan", lambda x, c: ops.Scan([x], [c], RUNNING, 0, is_reverse=True), [f([1, 2, 3]), f(10)], ([31, 28, 23], 16)),
    Example("013", "Sort", lambda *x: ops.Sort(list(x), BY_FIRST, 0), [i([3, 1]), i([42, 50]), f([-3.0, 1.1])],
        ([1, 3], [50, 42], [1.1, -3.0]), "document 1 has lost the sign of -3.0"),
    Example("013", "Sort", lambda x: ops.Sort([x], LESS), [f([[3, 1, 2], [6, 4, 5]])], [[1, 2, 3], [4, 5, 6]],
            "the last dimension where none is given"),
    Example("03", "TopK", lambda x: ops.TopK(x, 2), [f([1, 3, 3, 2])], ([3, 3], [1, 2]), "of equal ones the lower index first"),
    Example("03", "TopK", lambda x: ops.TopK(x, 2, False), [f([[1, 3, 1, 2]])], ([[1, 1]], [[0, 2]])),
    Example("013", "Map", lambda x, y, z: ops.Map([x, y, z], computation("f32[] f32[] f32[]", lambda a, b, c: a * b + c), [0]),
            [f([1, 2]), f([3, 4]), f(10)], [13, 18], "a further scalar is an operand"),
    Example("013", "BatchNormTraining", lambda x, s, o: ops.BatchNormTraining(x, s, o, 0.0, 1),
            [f([[1, 2], [3, 4]]), f([1, 1]), f([0, 5])], ([[-1, 4], [1, 6]], [2, 3], [1, 1])),
    Example("013", "BatchNormInference", lambda x, s, o, m, v: ops.BatchNormInference(x, s, o, m, v, 0.0, 1),
            [f([[1, 2], [3, 4]]), f([2, 1]), f([0, 5]), f([2, 3]), f([1, 4])], [[-2, 4.5], [2, 5.5]]),
    Example("013", "BatchNormGrad", lambda x, s, m, v, g: ops.BatchNormGrad(x, s, m, v, g, 0.0, 1),
            [f([[1], [3]]), f([2]), f([2]), f([1]), f([[1], [5]])], ([[0], [0]], [4], [6]), "the documents' formulas"),
    # ------------------------------------------------------------------------------------------ products, transforms
    Example("013", "Dot", ops.Dot, [f([1, 2, 3]), f([4, 5, 6])], 32),
    Example("013", "Dot", ops.Dot, [f([[1, 2], [3, 4]]), f([5, 6])], [17, 39]),
    Example("013", "Dot", ops.Dot, [f([[1, 2], [3, 4]]), f([[5, 6], [7, 8]])], [[19, 22], [43, 50]]),
    Example("013", "DotGeneral", lambda x, y: ops.DotGeneral(x, y, ops.DotDimensionNumbers((1,), (1,))),
            [f([[1, 2, 3], [4, 5, 6]]), f([[1, 1, 1], [2, 2, 2]])], [[6, 12], [15, 30]]),
    Example("013", "DotGeneral", lambda x, y: ops.DotGeneral(x, y, ops.DotDimensionNumbers((2,), (1,), (0,), (0,))),
            [f([[[1, 2], [3, 4]], [[5, 6], [7, 8]]]), f([[[1, 0], [0, 1]]] * 2)], [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]),
    Example("0", "ScaledDot", lambda x, y, s, t: ops.ScaledDot(x, y, s, t, ops.DotDimensionNumbers((1,), (0,))),
            [f([[1, 2]]), f([[3], [4]]), f([[2, 10]]), f([[1], [1]])], [[86]], "operands are (lhs, rhs, lhs_scale, rhs_scale)"),
    Example("0", "RaggedDot", lambda x, y, g: ops.RaggedDot(x, y, g, ops.RaggedDotDimensionNumbers(
        ops.DotDimensionNumbers((1,), (1,)), (0,), (0,))), [f(np.arange(1, 9).reshape(4, 2)), f(np.arange(1, 9).reshape(2, 2, 2)),
                                                             i([1, 2])], [[7, 10], [43, 50], [67, 78], [0, 0]]),
    Example("013", "Conv", lambda x, k: ops.ConvWithGeneralPadding(x, k, [2, 1], [(1, 0), (2, 1)]), [IMAGE, KERNEL],
            conv_by_pseudocode(IMAGE, KERNEL, (2, 1), (1, 2), (0, 1)), "the documents' pseudo-code"),
    Example("013", "Conv", lambda x, k: ops.Conv(x, k, [1, 1], ops.Padding.SAME), [IMAGE, KERNEL],
            conv_by_pseudocode(IMAGE, KERNEL, (1, 1), (0, 1), (1, 1)), "SAME: the output has the input's sizes"),
    Example("013", "Cholesky", lambda a: ops.Cholesky(a, True), [f([[4, 99], [2, 5]])], [[2, 0], [1, 2]], "one triangle is read"),
    Example("013", "Cholesky", lambda a: ops.Cholesky(a, False), [f([[4, 2], [99, 5]])], [[2, 1], [0, 2]]),
    Example("013", "TriangularSolve", lambda a, b: ops.TriangularSolve(a, b, True, True, False, "NO_TRANSPOSE"),
            [f([[2, 99], [1, 4]]), f([[2], [9]])], [[1], [2]], "no broadcasting of leading dimensions"),
    Example("013", "Fft", lambda x: ops.Fft(x, "RFFT", [16]), [f(np.eye(16)[0])], np.ones(9)),
    Example("013", "Fft", lambda x: ops.Fft(x, "RFFT", [17]), [f(np.eye(17)[0])], np.ones(9), "the same shape as of 16"),
    Example("013", "Fft", lambda x: ops.Fft(x, "IRFFT", [4]), [np.array([1 + 5j, 2 + 1j, 3 + 7j], np.complex64)], [2, -1, 0, 0],
            "complex to real, though the table says real to complex"),
    # ------------------------------------------------------------------------------------------ control, dynamic sizes
    Example("013", "Conditional", lambda p, x, y: ops.Conditional(p, x, computation("f32[2]", ops.Neg), y, computation(
        "f32[2]", ops.Exp)), [np.array(True), f([1, 2]), f([0, 0])], [-1, -2]),
    *(Example("013", "Conditional", lambda k, *x: ops.Conditional(k, [
        computation("f32[]", ops.Neg), computation("f32[]", ops.Abs), computation("f32[]", lambda x: x * 10.0)], list(x)),
        [i(k), f(1), f(2), f(3)], want) for k, want in [(0, -1), (1, 2), (2, 30), (3, 30), (-7, 30)]),
    Example("013", "While", lambda n, v: ops.While(COUNT, ACCUMULATE, ops.Tuple([n, v])), [i(0), f(np.zeros(10))],
            (1000, np.full(10, 500.0))),
    Example("013", "Call", lambda x: ops.Call(computation("f32[2]", ops.Neg), [x]), [f([1, 2])], [-1, -2]),
    Example("03", "CompositeCall", lambda x: ops.CompositeCall(
        computation("f32[]", ops.Neg), [x], "foo.bar", "{n = 1 : i32, tensor = dense<1> : tensor<i32>}", 1), [f(2)], -2),
    *(Example("013", "SetDimensionSize", lambda v, n, name=name, unit=unit: ops.Reduce(
        ops.SetDimensionSize(v, n, 0), unit, binary(name), [0]), [f(range(1, 11)), i(n)], want)
      for n, name, unit, want in [(5, "Add", 0.0, 15), (5, "Mul", 1.0, 120), (6, "Add", 0.0, 21)]),
    Example("013", "GetDimensionSize", lambda v, n: ops.GetDimensionSize(ops.SetDimensionSize(v, n, 0), 0),
            [f(range(10)), i(5)], 5),
    Example("0", "AfterAll", lambda b, x: ops.AddDependency(x, ops.AfterAll([ops.CreateToken(b), ops.CreateToken(b)])), [f(2)], 2,
            "", True),
]


class Participants(NamedTuple):
    """`call` with one tuple of arguments for each participant, of whom `partitions` make one replica."""

    documents: str
    section: str
    call: Callable[..., Any]
    arguments: Sequence[Sequence[Any]]
    want: Sequence[Any]
    partitions: int = 1
    note: str = ""


PAIR = [[f([1, 2.5])], [f([3, 5.25])]]
EIGHTS = [[f(np.arange(64).reshape(4, 16) + 100 * r)] for r in range(4)]
ROWS = [[f(np.arange(8).reshape(2, 4) + 10 * r)] for r in range(2)]
GLOBAL = [[0, 1, 4, 5], [2, 3, 6, 7]]

PARTICIPANTS = [
    Participants("013", "AllGather", lambda x: ops.AllGather(x, 0, 2), PAIR, [[1, 2.5, 3, 5.25]] * 2),
    Participants("013", "AllGather", lambda x: ops.AllGather(x, 0, 2, [[0, 2], [1, 3]]), [[f([r])] for r in range(4)],
                 [[0, 2], [1, 3]] * 2),
    Participants("013", "AllReduce", lambda x: ops.AllReduce(x, ADD), PAIR, [[4, 7.75]] * 2),
    Participants("013", "AllReduce", lambda x: ops.AllReduce((x, x), ADD, [[0, 2], [1, 3]]), [[f([r])] for r in range(4)],
                 [([2], [2]), ([4], [4])] * 2, note="of tuples, element by element"),
    Participants("0", "CrossReplicaSum", ops.CrossReplicaSum, PAIR, [[4, 7.75]] * 2),
    Participants("013", "AllToAll", lambda x: ops.AllToAll(x, 1, 0, 4), EIGHTS,
                 [np.concatenate([e[0][:, 4 * r:4 * r + 4] for e in EIGHTS]) for r in range(4)],
                 note="cores 0 to 3; document 1 says split on 0 and concatenated on 1"),
    Participants("0", "AllToAll", lambda x: ops.AllToAll(x, 1, 0, 2), ROWS,
                 [np.concatenate([e[0][:, 2 * r:2 * r + 2] for e in ROWS]) for r in range(2)]),
    Participants("0", "RaggedAllToAll", ops.RaggedAllToAll,
                 [[f([1, 2, 2]), i([0, 1]), i([1, 2]), f(np.zeros(4)), i([0, 0]), i([1, 1])],
                  [f([3, 4, 0]), i([0, 1]), i([1, 1]), f(np.zeros(4)), i([1, 2]), i([2, 1])]], [[1, 3, 0, 0], [2, 2, 4, 0]]),
    Participants("0", "CollectiveBroadcast", lambda x: ops.CollectiveBroadcast(x, [[1, 0]]), [[f([r + 1])] for r in range(3)],
                 [[2], [2], [0]], note="zeros for a replica in no group"),
    Participants("013", "CollectivePermute", lambda x: ops.CollectivePermute(x, [(0, 1), (1, 2)]),
                 [[f([r + 1])] for r in range(3)], [[0], [1], [2]], note="zeros for a replica that is no target"),
    Participants("013", "ReduceScatter", lambda x: ops.ReduceScatter(x, ADD, 0, 2), [[f([1, 2.25])], [f([3, 5.25])]],
                 [[4], [7.5]]),
    Participants("0", "ReduceScatter", lambda x: ops.ReduceScatter(x, ADD, 1, 2), ROWS,
                 [(ROWS[0][0] + ROWS[1][0])[:, 2 * r:2 * r + 2] for r in range(2)]),
    Participants("013", "ReduceScatter", lambda x: ops.ReduceScatter(x, ADD, 0, 4, GLOBAL, 1, None, True),
                 [[f([0, 1, 2, 3]) + 10 * n] for n in range(8)],
                 [[4 * g.index(n) + 10 * sum(g)] for n in range(8) for g in GLOBAL if n in g], 4,
                 "group 0 is (0,0), (0,1), (1,0), (1,1), pairs of replica and partition"),
    Participants("0", "ReplicaId", lambda x: x + ops.ConvertElementType(ops.ReplicaId(x.builder), S32), [[i(0)]] * 3, [0, 1, 2]),
]
