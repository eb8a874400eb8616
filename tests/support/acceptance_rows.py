"""Valid HLO for `mutations.py`: every opcode in three variants or more, as one instruction over definitions p0, p1, ...

A row is the definitions, joined by ``; `` (a shape alone is a parameter), and the instruction.
"""

from __future__ import annotations

from collections.abc import Iterator

REGIONS = {
    "add": "a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT r = f32[] add(a, b)",
    "add_s32": "a = s32[] parameter(0)\n  b = s32[] parameter(1)\n  ROOT r = s32[] add(a, b)",
    "max_f64": "a = f64[] parameter(0)\n  b = f64[] parameter(1)\n  ROOT r = f64[] maximum(a, b)",
    "or_pred": "a = pred[] parameter(0)\n  b = pred[] parameter(1)\n  ROOT r = pred[] or(a, b)",
    "add_pair": "a = f32[] parameter(0)\n  b = s32[] parameter(1)\n  c = f32[] parameter(2)\n  d = s32[] parameter(3)\n"
                "  e = f32[] add(a, c)\n  f = s32[] add(b, d)\n  ROOT r = (f32[], s32[]) tuple(e, f)",
    "greater": "a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT r = pred[] compare(a, b), direction=GE",
    "less_s32": "a = s32[] parameter(0)\n  b = s32[] parameter(1)\n  ROOT r = pred[] compare(a, b), direction=LT",
    "less_of_two": "a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  c = s32[] parameter(2)\n  d = s32[] parameter(3)\n"
                   "  ROOT r = pred[] compare(a, b), direction=LT",
    "negative": "a = f32[] parameter(0)\n  ROOT r = f32[] negate(a)",
    "to_s32": "a = f32[] parameter(0)\n  b = s32[] parameter(1)\n  c = s32[] convert(a)\n  ROOT r = s32[] add(b, c)",
    "below": "a = s32[] parameter(0)\n  n = s32[] constant(5)\n  ROOT r = pred[] compare(a, n), direction=LT",
    "next": "a = s32[] parameter(0)\n  n = s32[] constant(1)\n  ROOT r = s32[] add(a, n)",
    "pair_below": "a = (s32[], f32[2]) parameter(0)\n  i = s32[] get-tuple-element(a), index=0\n  n = s32[] constant(5)\n"
                  "  ROOT r = pred[] compare(i, n), direction=LT",
    "pair_next": "a = (s32[], f32[2]) parameter(0)\n  i = s32[] get-tuple-element(a), index=0\n  n = s32[] constant(1)\n"
                 "  j = s32[] add(i, n)\n  x = f32[2] get-tuple-element(a), index=1\n  y = f32[2] negate(x)\n"
                 "  ROOT r = (s32[], f32[2]) tuple(j, y)",
    "stop": "a = f32[2] parameter(0)\n  ROOT r = pred[] constant(false)",
    "vector": "a = f32[2] parameter(0)\n  ROOT r = f32[2] negate(a)",
    "vector2": "a = f32[2] parameter(0)\n  ROOT r = f32[2] add(a, a)",
    "vectors": "a = f32[2] parameter(0)\n  b = f32[2] parameter(1)\n  ROOT r = f32[2] add(a, b)",
    "shorten": "a = f32[3] parameter(0)\n  ROOT r = f32[2] slice(a), slice={[0:2]}",
    "constant": "a = s32[] parameter(0)\n  ROOT r = f32[2] constant({1,2})",
    "scalar_step": "a = f32[] parameter(0)\n  c = f32[] parameter(1)\n  d = f32[] add(a, c)\n"
                   "  ROOT r = (f32[], f32[]) tuple(d, d)",
    "row_step": "a = f32[3] parameter(0)\n  c = s32[] parameter(1)\n  n = s32[] constant(1)\n  d = s32[] add(c, n)\n"
                "  b = f32[3] negate(a)\n  ROOT r = (f32[3], s32[]) tuple(b, d)",
}

_FLOATING = ("f32[2,3]", "f64[]", "bf16[4]")
_INEXACT = (*_FLOATING, "c64[2]")
_INTEGRAL = ("s32[2,3]", "u8[]", "u64[3]")
_UNARY = [
    (_INEXACT, "cosine exponential exponential-minus-one log log-plus-one logistic rsqrt sine sqrt tan tanh real imag"),
    (_FLOATING, "acos acosh asin asinh atan atanh cosh sinh cbrt erf ceil floor round-nearest-even round-nearest-afz is-finite"),
    ((*_FLOATING, "s32[3]", "c64[2]"), "abs sign negate copy opt-barrier"),
    ((*_INTEGRAL, "pred[2]"), "not"),
    (_INTEGRAL, "popcnt count-leading-zeros"),
]
_BINARY = [
    ((*_FLOATING, "s32[2,3]", "c64[2]"), "add subtract multiply divide power maximum minimum"),
    ((*_FLOATING, "s32[2,3]"), "remainder"),
    (_INEXACT, "atan2"),
    ((*_INTEGRAL, "pred[2]"), "and or xor"),
    (_INTEGRAL, "shift-left shift-right-arithmetic shift-right-logical mulhi"),
]
_PARTS = {"c64": "f32", "c128": "f64"}


def _result(opcode: str, shape: str) -> str:
    element_type, dims = shape.split("[")
    if opcode == "is-finite":
        return f"pred[{dims}"
    return f"{_PARTS.get(element_type, element_type)}[{dims}" if opcode in ("real", "imag", "abs") else shape


def rows() -> Iterator[tuple[str, str]]:
    """All of them."""
    for shapes, opcodes in _UNARY:
        for opcode in opcodes.split():
            yield from ((s, f"{_result(opcode, s)} {opcode}(p0)") for s in shapes)
    for shapes, opcodes in _BINARY:
        for opcode in opcodes.split():
            yield from ((f"{s}; {s}", f"{s} {opcode}(p0, p1)") for s in shapes)
    yield from _ROWS


_ROWS = [
    # ---- elementwise with attributes or several types
    ("f32[2]", "f32[2] exponential(p0), result_accuracy={mode=highest}"),
    ("f32[2]", "f32[2] tanh(p0), result_accuracy={tolerance={atol=0.001,rtol=0,ulps=2}}"),
    ("f32[2,3]; f32[2,3]", "c64[2,3] complex(p0, p1)"),
    ("f64[]; f64[]", "c128[] complex(p0, p1)"),
    ("f32[<=4]; f32[<=4]", "c64[<=4] complex(p0, p1)"),
    ("f32[2,3]; f32[2,3]", "pred[2,3] compare(p0, p1), direction=LT"),
    ("f32[2]; f32[2]", "pred[2] compare(p0, p1), direction=GE, type=TOTALORDER"),
    ("u8[]; u8[]", "pred[] compare(p0, p1), direction=EQ, type=UNSIGNED"),
    ("c64[2]; c64[2]", "pred[2] compare(p0, p1), direction=NE"),
    ("f32[]; f32[2,3]; f32[]", "f32[2,3] clamp(p0, p1, p2)"),
    ("s32[3]; s32[3]; s32[3]", "s32[3] clamp(p0, p1, p2)"),
    ("f64[]; f64[3]; f64[3]", "f64[3] clamp(p0, p1, p2)"),
    ("pred[2,3]; f32[2,3]; f32[2,3]", "f32[2,3] select(p0, p1, p2)"),
    ("pred[]; s32[3]; s32[3]", "s32[3] select(p0, p1, p2)"),
    ("pred[2]; c64[2]; c64[2]", "c64[2] select(p0, p1, p2)"),
    # ---- conversions
    ("f32[2,3]", "s32[2,3] convert(p0)"),
    ("s8[]", "bf16[] convert(p0)"),
    ("f32[2]", "c64[2] convert(p0)"),
    ("f32[2,3]", "s32[2,3] bitcast-convert(p0)"),
    ("f32[3]", "u8[3,4] bitcast-convert(p0)"),
    ("u16[3,4]", "f64[3] bitcast-convert(p0)"),
    ("c64[2]", "c64[2] bitcast-convert(p0)"),
    ("f32[2,3]", "f32[2,3] reduce-precision(p0), exponent_bits=5, mantissa_bits=10"),
    ("f64[]", "f64[] reduce-precision(p0), exponent_bits=8, mantissa_bits=0"),
    ("bf16[4]", "bf16[4] reduce-precision(p0), exponent_bits=4, mantissa_bits=3"),
    ("f32[2,3]; u32[2,3]", "s32[2,3] stochastic-convert(p0, p1)"),
    ("f16[4]; u16[4]", "s8[4] stochastic-convert(p0, p1)"),
    ("f64[]; u64[]", "s32[] stochastic-convert(p0, p1)"),
    # ---- data movement
    ("f32[2,3]", "f32[2,4,3] broadcast(p0), dimensions={0,2}"),
    ("f32[]", "f32[2,3] broadcast(p0), dimensions={}"),
    ("f32[2,3]", "f32[3,2] broadcast(p0), dimensions={1,0}"),
    ("s32[2,3]", "s32[6] reshape(p0)"),
    ("f32[1,1]", "f32[] reshape(p0)"),
    ("f32[2,6]", "f32[3,2,2] reshape(p0)"),
    ("f32[2,3]", "f32[3,2] transpose(p0), dimensions={1,0}"),
    ("pred[2,3,4]", "pred[4,2,3] transpose(p0), dimensions={2,0,1}"),
    ("f32[]", "f32[] transpose(p0), dimensions={}"),
    ("f32[2,3]", "f32[2,3] reverse(p0), dimensions={0,1}"),
    ("s8[4]", "s8[4] reverse(p0), dimensions={0}"),
    ("f32[2,3]", "f32[2,3] reverse(p0), dimensions={}"),
    ("f32[4,6]", "f32[2,3] slice(p0), slice={[1:3], [0:6:2]}"),
    ("s32[5]", "s32[0] slice(p0), slice={[2:2]}"),
    ("f32[4,3]", "f32[4,2] slice(p0), slice={[0:4], [1:3]}"),
    ("f32[2,3]; f32[4,3]", "f32[6,3] concatenate(p0, p1), dimensions={0}"),
    ("s32[2,3]", "s32[2,3] concatenate(p0), dimensions={1}"),
    ("f64[1]; f64[2]; f64[3]", "f64[6] concatenate(p0, p1, p2), dimensions={0}"),
    ("f32[2,3]; f32[]", "f32[5,2] pad(p0, p1), padding=1_2x0_-1"),
    ("s32[3]; s32[]", "s32[7] pad(p0, p1), padding=1_1_1"),
    ("f32[2]; f32[]", "f32[0] pad(p0, p1), padding=-1_-1"),
    ("", "s32[4,8] iota(), iota_dimension=1"),
    ("", "f32[3] iota(), iota_dimension=0"),
    ("", "c64[2,2] iota(), iota_dimension=0"),
    ("", "f32[2] constant({1,-2.5})"),
    ("", "s8[2,2] constant({{1,2},{-128,127}})"),
    ("", "pred[] constant(true)"),
    ("", "c64[1] constant({(1,2)})"),
    ("", "(f32[], u8[2]) constant((inf, {0,255}))"),
    ("", "f32[2,3] parameter(0)"),
    ("", "(f32[2], s32[]) parameter(0)"),
    ("f32[]", "pred[3] parameter(1)"),
    # ---- indexing
    ("f32[4,5]; s32[]; s32[]", "f32[2,3] dynamic-slice(p0, p1, p2), dynamic_slice_sizes={2,3}"),
    ("s32[5]; u8[]", "s32[5] dynamic-slice(p0, p1), dynamic_slice_sizes={5}"),
    ("f32[]", "f32[] dynamic-slice(p0), dynamic_slice_sizes={}"),
    ("f32[4,5]; f32[2,3]; s64[]; s64[]", "f32[4,5] dynamic-update-slice(p0, p1, p2, p3)"),
    ("pred[5]; pred[5]; s32[]", "pred[5] dynamic-update-slice(p0, p1, p2)"),
    ("f32[5]; f32[0]; s32[]", "f32[5] dynamic-update-slice(p0, p1, p2)"),
    ("f32[4,3]; s32[5,1]", "f32[5,3] gather(p0, p1), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, "
                           "index_vector_dim=1, slice_sizes={1,3}"),
    ("f32[4,3]; s32[5,2]", "f32[5,2,2] gather(p0, p1), offset_dims={1,2}, collapsed_slice_dims={}, start_index_map={1,0}, "
                           "index_vector_dim=1, slice_sizes={2,2}, indices_are_sorted=true"),
    ("f32[5,4,3]; s32[5]", "f32[3,5] gather(p0, p1), offset_dims={0}, collapsed_slice_dims={1}, start_index_map={1}, "
                           "operand_batching_dims={0}, start_indices_batching_dims={0}, index_vector_dim=1, slice_sizes={1,1,3}"),
    ("f32[4]; s32[]", "f32[] gather(p0, p1), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=0, "
                      "slice_sizes={1}"),
    ("f32[4,3]; s32[5,1]; f32[5,3]", "f32[4,3] scatter(p0, p1, p2), update_window_dims={1}, inserted_window_dims={0}, "
                                     "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add"),
    ("s32[4,3]; s32[5,2]; s32[2,5,2]", "s32[4,3] scatter(p0, p1, p2), update_window_dims={0,2}, inserted_window_dims={}, "
     "scatter_dims_to_operand_dims={1,0}, index_vector_dim=1, indices_are_sorted=true, unique_indices=false, to_apply=add_s32"),
    ("f32[5,4,3]; s32[5]; f32[5,3]", "f32[5,4,3] scatter(p0, p1, p2), update_window_dims={1}, inserted_window_dims={1}, "
     "scatter_dims_to_operand_dims={1}, input_batching_dims={0}, scatter_indices_batching_dims={0}, index_vector_dim=1, "
     "to_apply=add"),
    ("f32[4]; s32[4]; s32[2,1]; f32[2]; s32[2]", "(f32[4], s32[4]) scatter(p0, p1, p2, p3, p4), update_window_dims={}, "
     "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add_pair"),
    # ---- reductions, windows, sorting
    ("f32[2,3]; f32[]", "f32[2] reduce(p0, p1), dimensions={1}, to_apply=add"),
    ("f32[2,3]; s32[2,3]; f32[]; s32[]", "(f32[3], s32[3]) reduce(p0, p1, p2, p3), dimensions={0}, to_apply=add_pair"),
    ("pred[2,3]; pred[]", "pred[] reduce(p0, p1), dimensions={0,1}, to_apply=or_pred"),
    ("f64[3]; f64[]", "f64[3] reduce(p0, p1), dimensions={}, to_apply=max_f64"),
    ("f32[2,3]; f32[2,3]", "f32[2,3] map(p0, p1), dimensions={0,1}, to_apply=add"),
    ("f32[3]", "f32[3] map(p0), dimensions={0}, to_apply=negative"),
    ("f32[3]; s32[3]", "s32[3] map(p0, p1), dimensions={0}, to_apply=to_s32"),
    ("f32[3]; f32[]", "(f32[3], f32[]) scan(p0, p1), dimensions={0}, num_carries=1, to_apply=scalar_step"),
    ("f32[4,3]; s32[]", "(f32[4,3], s32[]) scan(p0, p1), dimensions={0}, is_reverse=true, num_carries=1, to_apply=row_step"),
    ("f32[5]; f32[]", "(f32[5], f32[]) scan(p0, p1), dimensions={0}, num_carries=1, is_associative=true, to_apply=scalar_step"),
    ("f32[4,2]; f32[2]; f32[2]", "(f32[4,2], f32[2], f32[2]) batch-norm-training(p0, p1, p2), epsilon=0.001, feature_index=1"),
    ("f32[2,4]; f32[2]; f32[2]", "(f32[2,4], f32[2], f32[2]) batch-norm-training(p0, p1, p2), epsilon=0, feature_index=0"),
    ("f64[3,4,2]; f64[4]; f64[4]", "(f64[3,4,2], f64[4], f64[4]) batch-norm-training(p0, p1, p2), epsilon=1, feature_index=1"),
    ("f32[4,2]; f32[2]; f32[2]; f32[2]; f32[2]",
     "f32[4,2] batch-norm-inference(p0, p1, p2, p3, p4), epsilon=0.1, feature_index=1"),
    ("f64[3]; f64[3]; f64[3]; f64[3]; f64[3]", "f64[3] batch-norm-inference(p0, p1, p2, p3, p4), epsilon=0.1, feature_index=0"),
    ("f16[4,2]; f16[4]; f16[4]; f16[4]; f16[4]",
     "f16[4,2] batch-norm-inference(p0, p1, p2, p3, p4), epsilon=1, feature_index=0"),
    ("f32[4,2]; f32[2]; f32[2]; f32[2]; f32[4,2]",
     "(f32[4,2], f32[2], f32[2]) batch-norm-grad(p0, p1, p2, p3, p4), epsilon=0.1, feature_index=1"),
    ("f64[2,4]; f64[2]; f64[2]; f64[2]; f64[2,4]",
     "(f64[2,4], f64[2], f64[2]) batch-norm-grad(p0, p1, p2, p3, p4), epsilon=1, feature_index=0"),
    ("f32[3,4,2]; f32[4]; f32[4]; f32[4]; f32[3,4,2]",
     "(f32[3,4,2], f32[4], f32[4]) batch-norm-grad(p0, p1, p2, p3, p4), epsilon=0.001, feature_index=1"),
    ("f32[4,6]; f32[]", "f32[3,2] reduce-window(p0, p1), window={size=2x3 stride=1x2}, to_apply=add"),
    ("s32[5]; s32[]", "s32[6] reduce-window(p0, p1), window={size=3 pad=1_2 lhs_dilate=1 rhs_dilate=1}, to_apply=add_s32"),
    ("f32[3]; s32[3]; f32[]; s32[]",
     "(f32[3], s32[3]) reduce-window(p0, p1, p2, p3), window={size=2 pad=0_1}, to_apply=add_pair"),
    ("f32[3]; f32[]", "f32[2] reduce-window(p0, p1), window={size=2 stride=1 lhs_dilate=2 rhs_dilate=3}, to_apply=add"),
    ("f32[4,6]; f32[2,3]; f32[]", "f32[4,6] select-and-scatter(p0, p1, p2), window={size=2x2 stride=2x2}, select=greater, "
                                  "scatter=add"),
    ("f32[4]; f32[4]; f32[]", "f32[4] select-and-scatter(p0, p1, p2), window={size=2 pad=0_1}, select=greater, scatter=add"),
    ("s32[5]; s32[3]; s32[]", "s32[5] select-and-scatter(p0, p1, p2), window={size=3 stride=2 pad=1_1}, select=less_s32, "
                              "scatter=add_s32"),
    ("f32[4,3]", "f32[4,3] sort(p0), dimensions={1}, to_apply=greater"),
    ("f32[5]; s32[5]", "(f32[5], s32[5]) sort(p0, p1), dimensions={0}, is_stable=true, to_apply=less_of_two"),
    ("s32[6]", "s32[6] sort(p0), dimensions={0}, is_stable=true, to_apply=less_s32"),
    ("f32[5]", "(f32[2], s32[2]) topk(p0), k=2, largest=true"),
    ("f32[3,5]", "(f32[3,1], s32[3,1]) topk(p0), k=1, largest=false"),
    ("bf16[2,4]", "(bf16[2,4], s32[2,4]) topk(p0), k=4, largest=true"),
    # ---- contractions, convolutions, linear algebra
    ("f32[2,3]; f32[3,4]", "f32[2,4] dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
    ("f32[5,2,3]; f32[5,3,4]", "f32[5,2,4] dot(p0, p1), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, "
                               "rhs_contracting_dims={1}, operand_precision={highest,default}"),
    ("s32[3]; s32[3]", "s32[] dot(p0, p1), lhs_contracting_dims={0}, rhs_contracting_dims={0}"),
    ("bf16[2]; bf16[3]", "f32[2,3] dot(p0, p1), lhs_contracting_dims={}, rhs_contracting_dims={}"),
    ("f32[4,2]; f32[2,2,3]; s32[2]", "f32[4,3] ragged-dot(p0, p1, p2), lhs_contracting_dims={1}, rhs_contracting_dims={1}, "
                                     "lhs_ragged_dims={0}, rhs_group_dims={0}"),
    ("f32[4,6]; f32[6,3]; s32[2]", "f32[2,4,3] ragged-dot(p0, p1, p2), lhs_contracting_dims={1}, rhs_contracting_dims={0}, "
                                   "lhs_ragged_dims={1}"),
    ("f32[5,4,2]; f32[2,5,2,3]; s32[5,2]", "f32[5,4,3] ragged-dot(p0, p1, p2), lhs_batch_dims={0}, rhs_batch_dims={1}, "
     "lhs_contracting_dims={2}, rhs_contracting_dims={2}, lhs_ragged_dims={1}, rhs_group_dims={0}"),
    ("f8e4m3fn[2,4]; f8e4m3fn[4,3]; f8e8m0fnu[2,2]; f8e8m0fnu[2,3]",
     "f32[2,3] scaled-dot(p0, p1, p2, p3), lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
    ("bf16[2,4]; bf16[3,4]; bf16[2,1]; bf16[3,1]",
     "f32[2,3] scaled-dot(p0, p1, p2, p3), lhs_contracting_dims={1}, rhs_contracting_dims={1}"),
    ("f32[2,4]; f32[4,3]; f32[]; f32[2,3]",
     "f32[2,3] scaled-dot(p0, p1, p2, p3), lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
    ("f32[1,4,5,2]; f32[2,3,2,6]", "f32[1,3,5,6] convolution(p0, p1), window={size=2x3 pad=0_0x1_1}, dim_labels=b01f_01io->b01f"),
    ("f32[1,4,7]; f32[6,2,3]", "f32[1,6,3] convolution(p0, p1), window={size=3 stride=2}, dim_labels=bf0_oi0->bf0, "
                               "feature_group_count=2"),
    ("f32[4,2,5]; f32[6,2,2]", "f32[2,6,4] convolution(p0, p1), window={size=2}, dim_labels=bf0_oi0->bf0, batch_group_count=2"),
    ("f64[1,2,3]; f64[4,2,2]", "f64[1,4,3] convolution(p0, p1), window={size=2 lhs_dilate=2 rhs_dilate=2 rhs_reversal=1}, "
                               "dim_labels=bf0_oi0->bf0, operand_precision={high,highest}"),
    ("f32[2,3]; f32[3,4]", "f32[2,4] convolution(p0, p1), dim_labels=bf_io->bf"),
    ("f32[3,3]", "f32[3,3] cholesky(p0), lower=true"),
    ("f64[2,3,3]", "f64[2,3,3] cholesky(p0)"),
    ("c64[2,2]", "c64[2,2] cholesky(p0), lower=false"),
    ("f32[3,3]; f32[3,2]", "f32[3,2] triangular-solve(p0, p1), left_side=true, lower=true, unit_diagonal=true, "
                           "transpose_a=TRANSPOSE"),
    ("f64[2,3,3]; f64[2,4,3]", "f64[2,4,3] triangular-solve(p0, p1), left_side=false, lower=false, unit_diagonal=false, "
                               "transpose_a=NO_TRANSPOSE"),
    ("c64[2,2]; c64[2,1]", "c64[2,1] triangular-solve(p0, p1), left_side=true, lower=true, transpose_a=ADJOINT"),
    ("c64[4,6]", "c64[4,6] fft(p0), fft_type=FFT, fft_length={4,6}"),
    ("f32[2,6]", "c64[2,4] fft(p0), fft_type=RFFT, fft_length={6}"),
    ("c64[2,4]", "f32[2,6] fft(p0), fft_type=IRFFT, fft_length={6}"),
    ("c128[5]", "c128[5] fft(p0), fft_type=IFFT, fft_length={5}"),
    # ---- random numbers
    ("f32[]; f32[]", "f32[2,3] rng(p0, p1), distribution=rng_uniform"),
    ("f32[]; f32[]", "f32[4] rng(p0, p1), distribution=rng_normal"),
    ("s32[]; s32[]", "s32[] rng(p0, p1), distribution=rng_uniform"),
    ("u64[2]", "(u64[2], u32[2,3]) rng-bit-generator(p0), algorithm=rng_three_fry"),
    ("u64[3]", "(u64[3], u64[4]) rng-bit-generator(p0), algorithm=rng_philox"),
    ("u64[2]", "(u64[2], u8[5]) rng-bit-generator(p0), algorithm=rng_default"),
    ("", "u64[2] rng-get-and-update-state(), delta=1"),
    ("", "u64[2] rng-get-and-update-state(), delta=4096"),
    ("f32[]", "u64[2] rng-get-and-update-state(), delta=0"),
    # ---- control flow, tuples, calls
    ("f32[2]; s32[]", "(f32[2], s32[]) tuple(p0, p1)"),
    ("", "() tuple()"),
    ("(f32[2]); pred[]", "((f32[2]), pred[]) tuple(p0, p1)"),
    ("(f32[2], s32[])", "s32[] get-tuple-element(p0), index=1"),
    ("(f32[2])", "f32[2] get-tuple-element(p0), index=0"),
    ("((f32[2], u8[]), s32[])", "(f32[2], u8[]) get-tuple-element(p0), index=0"),
    ("f32[2]", "f32[2] call(p0), to_apply=vector"),
    ("f32[2]; f32[2]", "f32[2] call(p0, p1), to_apply=vectors"),
    ("s32[]", "f32[2] call(p0), to_apply=constant"),
    ("f32[2]", "f32[2] fusion(p0), kind=kLoop, calls=vector"),
    ("f32[2]; f32[2]", "f32[2] fusion(p0, p1), kind=kInput, calls=vectors"),
    ("f32[3]", "f32[2] fusion(p0), kind=kOutput, calls=shorten"),
    ("pred[]; f32[2]; f32[2]", "f32[2] conditional(p0, p1, p2), true_computation=vector, false_computation=vector2"),
    ("s32[]; f32[2]; f32[3]; s32[]", "f32[2] conditional(p0, p1, p2, p3), branch_computations={vector, shorten, constant}"),
    ("pred[]; f32[3]; f32[2]", "f32[2] conditional(p0, p1, p2), true_computation=shorten, false_computation=vector"),
    ("s32[]", "s32[] while(p0), condition=below, body=next"),
    ("(s32[], f32[2])", "(s32[], f32[2]) while(p0), condition=pair_below, body=pair_next"),
    ("f32[2]", "f32[2] while(p0), condition=stop, body=vector"),
    ("f32[2]", "((f32[2]), f32[2], u32[]) async-start(p0), calls=vector"),
    ("f32[2]", "((f32[2]), f32[2], s32[]) negate-start(p0)"),
    ("f32[2]; f32[2]", "((f32[2], f32[2]), f32[2], s32[]) add-start(p0, p1)"),
    ("f32[2]; ((f32[2]), f32[2], u32[]) async-start(p0), calls=vector", "((f32[2]), f32[2], u32[]) async-update(p1)"),
    ("f32[2]; ((f32[2]), f32[2], u32[]) async-start(p0), calls=vector", "f32[2] async-done(p1)"),
    ("f32[2]; ((f32[2]), f32[2], s32[]) negate-start(p0)", "f32[2] negate-done(p1)"),
    # ---- what appears in compiled programs
    ("f32[2,3]", "f32[6] bitcast(p0)"),
    ("f32[2]{0}", "s32[2]{0} bitcast(p0)"),
    ("f32[2,3]{1,0}", "f32[3,2]{0,1} bitcast(p0)"),
    ("f32[2,3]", "(f32[2,3], f32[2,3], u32[]) copy-start(p0)"),
    ("s8[]", "(s8[], s8[], u32[]) copy-start(p0)"),
    ("f32[4]", "(f32[4], f32[4], u32[]) copy-start(p0), cross_program_prefetch_index=0"),
    ("f32[2]; (f32[2], f32[2], u32[]) copy-start(p0)", "f32[2] copy-done(p1)"),
    ("s8[]; (s8[], s8[], u32[]) copy-start(p0)", "s8[] copy-done(p1)"),
    ("pred[2,3]; (pred[2,3], pred[2,3], u32[]) copy-start(p0)", "pred[2,3] copy-done(p1)"),
    ("(f32[2], s32[])", "(f32[2], s32[]) opt-barrier(p0)"),
    ("(f32[2], s32[])", "(f32[2], s32[]) copy(p0)"),
    ("f32[2]", 'f32[2] domain(p0), domain={kind="sharding", entry={maximal device=0}, exit={maximal device=1}}'),
    ("s32[]", 's32[] domain(p0), domain={kind="sharding", entry={replicated}, exit={maximal device=0}}'),
    ("f32[2,3]", 'f32[2,3] domain(p0), domain={kind="sharding", entry={replicated}, exit={replicated}}'),
    ("f32[2]; token[] after-all()", "f32[2] add-dependency(p0, p1)"),
    ("s32[]; token[] after-all()", "s32[] add-dependency(p0, p1)"),
    ("pred[2,3]; token[] after-all()", "pred[2,3] add-dependency(p0, p1)"),
    ("f32[2,2]", 'f32[2,2] custom-call(p0), custom_call_target="SomeCall", api_version=API_VERSION_STATUS_RETURNING'),
    ("f32[2]", '(f32[2], s32[]) custom-call(p0), custom_call_target="SomeCall", custom_call_has_side_effect=true'),
    ("f32[2]", 'f32[2] custom-call(p0), custom_call_target="Sharding", sharding={replicated}'),
    # ---- tokens, host and channels
    ("", "token[] after-all()"),
    ("token[] after-all()", "token[] after-all(p0)"),
    ("token[] after-all(); token[] after-all()", "token[] after-all(p0, p1)"),
    ("token[] after-all()", '(f32[2], token[]) infeed(p0), infeed_config="x"'),
    ("token[] after-all()", "((f32[2], s32[]), token[]) infeed(p0)"),
    ("token[] after-all()", "(pred[], token[]) infeed(p0)"),
    ("f32[2]; token[] after-all()", "token[] outfeed(p0, p1), outfeed_shape=f32[2]{0}"),
    ("f32[2]; token[] after-all()", 'token[] outfeed(p0, p1), outfeed_config="x"'),
    ("s32[]; token[] after-all()", "token[] outfeed(p0, p1), outfeed_shape=s32[]"),
    ("f32[2]; token[] after-all()", "(f32[2], u32[], token[]) send(p0, p1), channel_id=1"),
    ("s32[]; token[] after-all()", "(s32[], u32[], token[]) send(p0, p1), channel_id=2, is_host_transfer=true"),
    ("pred[2,3]; token[] after-all()", "(pred[2,3], u32[], token[]) send(p0, p1), channel_id=3"),
    ("f32[2]; token[] after-all(); (f32[2], u32[], token[]) send(p0, p1), channel_id=1", "token[] send-done(p2), channel_id=1"),
    ("s8[]; token[] after-all(); (s8[], u32[], token[]) send(p0, p1), channel_id=2, is_host_transfer=true",
     "token[] send-done(p2), channel_id=2, is_host_transfer=true"),
    ("s32[3]; token[] after-all(); (s32[3], u32[], token[]) send(p0, p1), channel_id=3", "token[] send-done(p2), channel_id=3"),
    ("token[] after-all()", "(f32[2], u32[], token[]) recv(p0), channel_id=1"),
    ("token[] after-all()", "(s32[], u32[], token[]) recv(p0), channel_id=2, is_host_transfer=true"),
    ("token[] after-all()", "(pred[2,3], u32[], token[]) recv(p0), channel_id=3"),
    ("token[] after-all(); (f32[2], u32[], token[]) recv(p0), channel_id=1", "(f32[2], token[]) recv-done(p1), channel_id=1"),
    ("token[] after-all(); (s8[], u32[], token[]) recv(p0), channel_id=2, is_host_transfer=true",
     "(s8[], token[]) recv-done(p1), channel_id=2, is_host_transfer=true"),
    ("token[] after-all(); (s8[3], u32[], token[]) recv(p0), channel_id=3", "(s8[3], token[]) recv-done(p1), channel_id=3"),
    # ---- collectives
    ("f32[2,3]", "f32[2,3] all-gather(p0), replica_groups={}, dimensions={0}"),
    ("f32[2,3]", "f32[4,3] all-gather(p0), replica_groups={{0,1}}, dimensions={0}"),
    ("f32[2]", "f32[2] all-gather(p0), channel_id=1, replica_groups={{0}}, dimensions={0}, use_global_device_ids=true"),
    ("f32[2]", "(f32[2], f32[4]) all-gather-start(p0), replica_groups={{0,1}}, dimensions={0}"),
    ("s8[3,2]", "(s8[3,2], s8[3,4]) all-gather-start(p0), replica_groups={{0,1}}, dimensions={1}"),
    ("f32[2]", "(f32[2], f32[2]) all-gather-start(p0), channel_id=1, replica_groups={{0}}, dimensions={0}, "
               "use_global_device_ids=true"),
    ("f32[2]; (f32[2], f32[4]) all-gather-start(p0), replica_groups={{0,1}}, dimensions={0}", "f32[4] all-gather-done(p1)"),
    ("s8[3]; (s8[3], s8[3]) all-gather-start(p0), replica_groups={}, dimensions={0}", "s8[3] all-gather-done(p1)"),
    ("f32[2,2]; (f32[2,2], f32[2,4]) all-gather-start(p0), replica_groups={{1,0}}, dimensions={1}",
     "f32[2,4] all-gather-done(p1)"),
    ("f32[2,3]", "f32[2,3] all-reduce(p0), replica_groups={}, to_apply=add"),
    ("f32[2]; f32[3]", "(f32[2], f32[3]) all-reduce(p0, p1), replica_groups={{0}}, to_apply=add"),
    ("s32[2]", "s32[2] all-reduce(p0), channel_id=1, replica_groups=[1,1]<=[1], use_global_device_ids=true, to_apply=add_s32"),
    ("f32[2]", "f32[2] all-reduce-start(p0), replica_groups={}, to_apply=add"),
    ("s32[2]", "s32[2] all-reduce-start(p0), replica_groups={{0}}, to_apply=add_s32"),
    ("f32[2]", "f32[2] all-reduce-start(p0), channel_id=1, replica_groups={{0}}, use_global_device_ids=true, to_apply=add"),
    ("f32[2]; f32[2] all-reduce-start(p0), replica_groups={}, to_apply=add", "f32[2] all-reduce-done(p1)"),
    ("s32[2]; s32[2] all-reduce-start(p0), replica_groups={{0}}, to_apply=add_s32", "s32[2] all-reduce-done(p1)"),
    ("f32[]; f32[] all-reduce-start(p0), replica_groups={}, to_apply=add", "f32[] all-reduce-done(p1)"),
    ("f32[4]", "f32[4] reduce-scatter(p0), replica_groups={{0}}, dimensions={0}, to_apply=add"),
    ("f32[4,3]", "f32[2,3] reduce-scatter(p0), replica_groups={{0,1}}, dimensions={0}, to_apply=add"),
    ("s32[4]", "s32[4] reduce-scatter(p0), channel_id=1, replica_groups={{0}}, use_global_device_ids=true, dimensions={0}, "
               "to_apply=add_s32"),
    ("f32[2]", "f32[2] collective-reduce(p0), replica_groups={{0,1}}, to_apply=add"),
    ("f32[3]", "f32[3] collective-reduce(p0), replica_groups={{0}}, to_apply=add"),
    ("s32[]", "s32[] collective-reduce(p0), channel_id=1, replica_groups={{0}}, to_apply=add_s32"),
    ("f32[4]", "f32[4] all-to-all(p0), replica_groups={{0}}, dimensions={0}"),
    ("f32[3,4]", "f32[3,4] all-to-all(p0), replica_groups={{0,1}}, dimensions={1}"),
    ("f32[2]; f32[2]", "(f32[2], f32[2]) all-to-all(p0, p1), replica_groups={{0,1}}"),
    ("f32[4]; f32[4]; s32[1]; s32[1]; s32[1]; s32[1]",
     "f32[4] ragged-all-to-all(p0, p1, p2, p3, p4, p5), channel_id=1, replica_groups={{0}}"),
    ("f32[4,2]; f32[6,2]; s64[2]; s64[2]; s64[2]; s64[2]",
     "f32[6,2] ragged-all-to-all(p0, p1, p2, p3, p4, p5), channel_id=1, replica_groups={{0,1}}"),
    ("s8[4]; s8[4]; s32[1,2]; s32[1,2]; s32[1,2]; s32[1,2]",
     "s8[4] ragged-all-to-all(p0, p1, p2, p3, p4, p5), channel_id=1, replica_groups={{0}}"),
    ("f32[2]", "f32[2] collective-broadcast(p0), replica_groups={{0}}"),
    ("f32[2,3]", "f32[2,3] collective-broadcast(p0), replica_groups={{0,1}}"),
    ("s8[]", "s8[] collective-broadcast(p0), channel_id=1, replica_groups={{0}}"),
    ("f32[2]", "f32[2] collective-permute(p0), source_target_pairs={{0,0}}"),
    ("f32[2,3]", "f32[2,3] collective-permute(p0), source_target_pairs={{0,1},{1,0}}"),
    ("s32[]", "s32[] collective-permute(p0), channel_id=1, source_target_pairs={}"),
    ("f32[2]", "(f32[2], f32[2]) collective-permute-start(p0), source_target_pairs={{0,0}}"),
    ("f32[2]", "(f32[2], f32[2], u32[], u32[]) collective-permute-start(p0), source_target_pairs={{0,1},{1,0}}"),
    ("s32[]", "(s32[], s32[]) collective-permute-start(p0), channel_id=1, source_target_pairs={}"),
    ("f32[2]; (f32[2], f32[2]) collective-permute-start(p0), source_target_pairs={{0,0}}", "f32[2] collective-permute-done(p1)"),
    ("s8[]; (s8[], s8[]) collective-permute-start(p0), source_target_pairs={{0,0}}", "s8[] collective-permute-done(p1)"),
    ("f32[3]; (f32[3], f32[3], u32[], u32[]) collective-permute-start(p0), source_target_pairs={{0,1}}",
     "f32[3] collective-permute-done(p1)"),
    ("", "u32[] replica-id()"), ("f32[2]", "u32[] replica-id()"), ("s32[]", "u32[] replica-id()"),
    ("", "u32[] partition-id()"), ("f32[2]", "u32[] partition-id()"), ("s32[]", "u32[] partition-id()"),
    # ---- dynamic sizes
    ("f32[2,3]", "s32[] get-dimension-size(p0), dimensions={1}"),
    ("s8[4]", "s32[] get-dimension-size(p0), dimensions={0}"),
    ("f32[<=4]", "s32[] get-dimension-size(p0), dimensions={0}"),
    ("f32[4]; s32[]", "f32[<=4] set-dimension-size(p0, p1), dimensions={0}"),
    ("s32[2,3]; s32[]", "s32[2,<=3] set-dimension-size(p0, p1), dimensions={1}"),
    ("pred[3,2]; s32[]", "pred[<=3,2] set-dimension-size(p0, p1), dimensions={0}"),
    ("f32[6]; s32[]; s32[]", "f32[<=2,<=3] dynamic-reshape(p0, p1, p2)"),
    ("f32[2,3]; s32[]", "f32[<=6] dynamic-reshape(p0, p1)"),
    ("s32[4]; s32[]; s32[]", "s32[2,<=2] dynamic-reshape(p0, p1, p2)"),
]
