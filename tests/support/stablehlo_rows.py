"""Rows of test_stablehlo_ops.py: one program for each op of StableHLO and CHLO, in MLIR text."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

_DRAW = np.random.RandomState(0)
F, G = (_DRAW.uniform(0.1, 0.9, (2, 3)).astype(np.float32) for _ in range(2))
N, K = np.array([[1, -2, 3], [4, 5, -6]], np.int32), np.array([[1, 2, 3], [2, 1, 2]], np.int32)
P, C = np.array([[True, False, True], [False, True, True]]), (F + 1j * G).astype(np.complex64)
V = np.arange(1, 4, dtype=np.float32)
IMAGE, KERNEL = _DRAW.rand(1, 4, 4, 1).astype(np.float32), _DRAW.rand(2, 2, 1, 2).astype(np.float32)
DEFINITE = np.eye(3, dtype=np.float32) * 3 + np.ones((3, 3), np.float32)
_ELEMENTS = {"float32": "f32", "float64": "f64", "int32": "i32", "int64": "i64", "bool": "i1", "complex64": "complex<f32>",
             "uint64": "ui64"}


def type_of(array: np.ndarray) -> str:
    return f"tensor<{''.join(f'{d}x' for d in array.shape)}{_ELEMENTS[array.dtype.name]}>"


def i32(*numbers: Any) -> np.ndarray:
    return np.array(numbers[0] if len(numbers) == 1 else numbers, np.int32)


def i64(numbers: Any) -> np.ndarray:
    return np.array(numbers, np.int64)


@dataclasses.dataclass
class Row:
    """A program: its body gives %r (of type `result`), or %r0, %r1... where there are several results. It takes %a, %b...

    `expected` is a formula where XLA cannot say it.
    """

    name: str
    result: str | Sequence[str]
    body: str
    arguments: Sequence[np.ndarray] = ()
    expected: Callable[..., Any] | None = None
    functions: str = ""

    def program(self) -> str:
        results = [self.result] if isinstance(self.result, str) else self.result
        names = ["%r"] if isinstance(self.result, str) else [f"%r{k}" for k in range(len(results))]
        taken = ", ".join(f"%{name}: {type_of(a)}" for name, a in zip("abcdefgh", self.arguments, strict=False))
        return (f"func.func @main({taken}) -> ({', '.join(results)}) {{\n{self.body}\n"
                f"return {', '.join(names)} : {', '.join(results)}\n}}\n{self.functions}")


def plain(op: str, *arguments: np.ndarray, result: str = "", attributes: str = "",
          expected: Callable[..., Any] | None = None, name: str = "") -> Row:
    """An op that takes all arguments and gives one result, of the first argument's type unless said otherwise."""
    dialect = "" if op.startswith("chlo.") else "stablehlo."
    types, result = [type_of(a) for a in arguments], result or type_of(arguments[0])
    names = ", ".join(f"%{n}" for n in "abcdefgh"[:len(arguments)])
    written = f" {{{attributes}}}" if attributes else ""
    body = f'%r = "{dialect}{op}"({names}){written} : ({", ".join(types)}) -> {result}'
    return Row(name or op, result, body, arguments, expected)


def region(op: str, element: str = "f32", compare: bool = False) -> str:
    """A region of two scalars: a binary op, or a comparison in the direction `op`."""
    scalar = f"tensor<{element}>"
    call = f"compare {op}, %x, %y : ({scalar}, {scalar}) -> tensor<i1>" if compare else f"{op} %x, %y : {scalar}"
    result = "tensor<i1>" if compare else scalar
    return f"{{ ^bb0(%x: {scalar}, %y: {scalar}): %o = stablehlo.{call}\n stablehlo.return %o : {result} }}"


M, S, MM = "tensor<2x3xf32>", "tensor<f32>", "tensor<2x3xf64>"
ZERO = f"%z = stablehlo.constant dense<0.0> : {S}\n"
ADD, ADD64 = region("add"), region("add", "f64")
GROUPS = "replica_groups = dense<0> : tensor<1x1xi64>"
GATHER = "#stablehlo.gather<offset_dims=[1], collapsed_slice_dims=[0], start_index_map=[0], index_vector_dim=1>"
SCATTER = ("#stablehlo.scatter<update_window_dims=[1], inserted_window_dims=[0], scatter_dims_to_operand_dims=[0], "
           "index_vector_dim=1>")
CONVOLUTION = ("dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>, batch_group_count = 1 : i64, "
               "feature_group_count = 1 : i64")
OUT = "tensor<1x4x4x2xf32>"


def vector(name: str, numbers: Sequence[int]) -> str:
    return f"%{name} = stablehlo.constant dense<{list(numbers)}> : tensor<{len(numbers)}xi64>\n"


def convolved(image: np.ndarray, kernel: np.ndarray, *_: Any) -> np.ndarray:
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(image, ((0, 0), (1, 0), (0, 1), (0, 0))), (2, 2), (1, 2))
    return np.einsum("bhwiyx,yxio->bhwo", windows, kernel)


def added(operand: np.ndarray, places: np.ndarray, updates: np.ndarray) -> np.ndarray:
    result = operand.astype(np.float64)
    np.add.at(result, places[:, 0], updates)
    return result


def _packed(bits: np.ndarray) -> np.ndarray:
    return np.packbits(bits, -1, "little")


BITS = [
    ("of 64 bits to an integer", np.arange(64) % 3 == 0, "tensor<i64>", lambda b: _packed(b).view(np.int64)[0]),
    ("of an integer to 64 bits", np.array(0x123456789ABCDEF), "tensor<64xi1>",
     lambda i: np.unpackbits(i[None].view(np.uint8), bitorder="little").astype(bool)),
    ("of 64 bits to a float", np.arange(64) % 5 == 1, "tensor<f64>", lambda b: _packed(b).view(np.float64)[0]),
    ("of floats to bits", np.array([1.5, -2], np.float32), "tensor<2x32xi1>",
     lambda x: np.unpackbits(x[:, None].view(np.uint8), axis=-1, bitorder="little").astype(bool)),
    ("of 8 bits to bytes", np.arange(24).reshape(3, 8) % 5 == 1, "tensor<3xui8>", lambda b: _packed(b)[:, 0]),
]
"""i1 has one bit, which XLA's own converter forgets: name, operand, result and what it is."""

ELEMENTWISE = [
    *(plain(op, F) for op in (
        "abs", "cbrt", "ceil", "cosine", "exponential", "exponential_minus_one", "floor", "log", "log_plus_one", "logistic",
        "negate", "round_nearest_afz", "round_nearest_even", "rsqrt", "sign", "sine", "sqrt", "tan", "tanh", "chlo.acos",
        "chlo.asin", "chlo.asinh", "chlo.atan", "chlo.atanh", "chlo.bessel_i1e", "chlo.conj", "chlo.cosh", "chlo.digamma",
        "chlo.erf", "chlo.erf_inv", "chlo.erfc", "chlo.lgamma", "chlo.sinh", "chlo.square", "chlo.tan")),
    plain("chlo.acosh", F + 1),
    *(plain(op, F, G) for op in ("add", "atan2", "divide", "maximum", "minimum", "multiply", "power", "remainder", "subtract",
                                 "chlo.next_after")),
    *(plain(op, N, K) for op in ("and", "or", "xor", "shift_left", "shift_right_arithmetic", "shift_right_logical")),
    *(plain(op, N) for op in ("not", "popcnt", "count_leading_zeros")),
    *(plain(op, F, result="tensor<2x3xi1>") for op in ("is_finite", "chlo.is_inf", "chlo.is_neg_inf", "chlo.is_pos_inf")),
    *(plain(op, F - F + 2, F + 2) for op in ("chlo.polygamma", "chlo.zeta", "chlo.broadcast_polygamma")),
    plain("complex", F, G, result="tensor<2x3xcomplex<f32>>"),
    plain("real", C, result=M),
    plain("imag", C, result=M),
    plain("select", P, F, G, result=M),
    plain("clamp", G * np.float32(0.5), F, G),
    plain("compare", F, G, result="tensor<2x3xi1>", attributes="comparison_direction = #stablehlo<comparison_direction LT>, "
          "compare_type = #stablehlo<comparison_type TOTALORDER>"),
    plain("convert", F * 5, result="tensor<2x3xi32>"),
    plain("bitcast_convert", F, result="tensor<2x3x4xi8>"),
    *(plain("bitcast_convert", given, name=f"bitcast_convert {name}", result=result, expected=expected)
      for name, given, result, expected in BITS),
    plain("cbrt", np.array([8, -8, 1j], np.complex64), name="cbrt of complex numbers", expected=lambda z: z ** np.float32(1 / 3)),
    plain("reduce_precision", F, attributes="exponent_bits = 5 : i32, mantissa_bits = 2 : i32"),
    *(plain("chlo.broadcast_" + op, F, V) for op in ("add", "atan2", "divide", "maximum", "minimum", "multiply", "next_after",
                                                     "power", "remainder", "subtract")),
    plain("chlo.broadcast_zeta", F + 2, V),
    *(plain("chlo.broadcast_" + op, N, i32(1, 2, 3)) for op in (
        "and", "or", "xor", "shift_left", "shift_right_arithmetic", "shift_right_logical")),
    plain("chlo.broadcast_complex", F, V, result="tensor<2x3xcomplex<f32>>"),
    plain("chlo.broadcast_select", P, F, V, result=M),
    plain("chlo.broadcast_compare", F, V * np.float32(0.3), result="tensor<2x3xi1>",
          attributes="comparison_direction = #chlo<comparison_direction LT>"),
    plain("chlo.constant_like", F, attributes="value = 3.0 : f32"),
]
MOVES = [
    plain("transpose", F, result="tensor<3x2xf32>", attributes="permutation = array<i64: 1, 0>"),
    plain("reverse", F, attributes="dimensions = array<i64: 1>"),
    plain("slice", F, result="tensor<2x1xf32>", attributes="start_indices = array<i64: 0, 0>, limit_indices = array<i64: 2, 2>, "
          "strides = array<i64: 1, 2>"),
    plain("broadcast_in_dim", F, result="tensor<2x4x3xf32>", attributes="broadcast_dimensions = array<i64: 0, 2>"),
    plain("broadcast", F, result="tensor<4x2x3xf32>", attributes="broadcast_sizes = array<i64: 4>"),
    plain("concatenate", F, G, result="tensor<4x3xf32>", attributes="dimension = 0 : i64"),
    Row("pad", "tensor<5x3xf32>", ZERO + "%r = stablehlo.pad %a, %z, low=[1, -1], high=[1, 1], interior=[1, 0] : "
        f"({M}, {S}) -> tensor<5x3xf32>", [F]),
    plain("dynamic_slice", F, i32(1), i32(5), result="tensor<1x2xf32>", attributes="slice_sizes = array<i64: 1, 2>"),
    plain("dynamic_update_slice", F, G[:1, :2].copy(), i32(1), i32(5)),
    plain("gather", F, i32([[1], [0]]), result=M, attributes=f"dimension_numbers = {GATHER}, slice_sizes = array<i64: 1, 3>"),
    plain("get_dimension_size", F, result="tensor<i32>", attributes="dimension = 1 : i64"),
    plain("torch_index_select", F, i32(2, 0), result="tensor<2x2xf32>", attributes="dim = 1 : i64, batch_dims = 0 : i64"),
    Row("scatter", M, f'%r = "stablehlo.scatter"(%a, %b, %c) <{{scatter_dimension_numbers = {SCATTER}}}> ({ADD}) : '
        f"({M}, tensor<2x1xi32>, {M}) -> {M}", [F, i32([[1], [1]]), G]),
    Row("set_dimension_size", S, ZERO + "%d = stablehlo.set_dimension_size %a, %b, dim = 1 : "
        f"({M}, tensor<i32>) -> tensor<2x?xf32, #stablehlo.bounds<?, 3>>\n"
        f'%r = "stablehlo.reduce"(%d, %z) ({ADD}) {{dimensions = array<i64: 0, 1>}} : '
        f"(tensor<2x?xf32, #stablehlo.bounds<?, 3>>, {S}) -> {S}", [F, i32(2)]),
]

REDUCTIONS = [
    Row("reduce", "tensor<3xf32>", ZERO +
        f'%r = "stablehlo.reduce"(%a, %z) ({ADD}) {{dimensions = array<i64: 0>}} : '
        f"({M}, {S}) -> tensor<3xf32>", [F]),
    Row("reduce_window", "tensor<2x2xf32>", ZERO +
        f'%r = "stablehlo.reduce_window"(%a, %z) ({ADD}) {{window_dimensions = '
        f"array<i64: 1, 2>}} : ({M}, {S}) -> tensor<2x2xf32>", [F]),
    Row("select_and_scatter", M, ZERO +
        f'%r = "stablehlo.select_and_scatter"(%a, %b, %z) ({region("GE", compare=True)}, {ADD}) '
        f"{{window_dimensions = array<i64: 1, 3>, window_strides = array<i64: 1, 3>}} : ({M}, tensor<2x1xf32>, {S}) -> {M}",
        [F, G[:, :1].copy()]),
    Row("sort", [M, M], '%r0, %r1 = "stablehlo.sort"(%a, %b) ({ ^bb0(%x: tensor<f32>, %y: tensor<f32>, %u: tensor<f32>, '
        "%v: tensor<f32>): %c = stablehlo.compare LT, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
        f"stablehlo.return %c : tensor<i1> }}) {{dimension = 1 : i64, is_stable = true}} : ({M}, {M}) -> ({M}, {M})", [F, G]),
    Row("map", M, f'%r = "stablehlo.map"(%a, %b) ({ADD}) {{dimensions = array<i64: 0, 1>}} : ({M}, {M}) -> {M}', [F, G]),
    Row("chlo.top_k", ["tensor<2x2xf32>", "tensor<2x2xi32>"],
        f"%r0, %r1 = chlo.top_k(%a, k = 2) : {M} -> (tensor<2x2xf32>, tensor<2x2xi32>)", [F]),
]

PROMOTED = [
    Row("reduce to f64", "tensor<3xf64>", ZERO +
        f'%r = "stablehlo.reduce"(%a, %z) ({ADD64}) {{dimensions = array<i64: 0>}} : '
        f"({M}, {S}) -> tensor<3xf64>", [F], lambda a: a.astype(float).sum(0)),
    Row("reduce_window to f64", "tensor<2x2xf64>", ZERO +
        f'%r = "stablehlo.reduce_window"(%a, %z) ({ADD64}) {{window_dimensions = '
        f"array<i64: 1, 2>}} : ({M}, {S}) -> tensor<2x2xf64>", [F], lambda a: a[:, 1:].astype(float) + a[:, :-1]),
    Row("scatter to f64", MM, f'%r = "stablehlo.scatter"(%a, %b, %c) <{{scatter_dimension_numbers = {SCATTER}}}> ({ADD64}) : '
        f"({M}, tensor<2x1xi32>, {M}) -> {MM}", [F, i32([[1], [1]]), G], added),
    Row("select_and_scatter to f64", MM, ZERO + '%r = "stablehlo.select_and_scatter"(%a, %b, %z) '
        f"({region('GE', compare=True)}, {ADD64}) {{window_dimensions = array<i64: 1, 3>, window_strides = array<i64: 1, 3>}} : "
        f"({M}, tensor<2x1xf32>, {S}) -> {MM}", [F, G[:, :1].copy()],
        lambda a, b: np.where(np.arange(3) == a.argmax(1)[:, None], b.astype(float), 0)),
    Row("all_reduce to f64", MM, f'%r = "stablehlo.all_reduce"(%a) ({ADD64}) {{{GROUPS}}} : ({M}) -> {MM}', [F], np.float64),
    Row("reduce_scatter to f64", MM, f'%r = "stablehlo.reduce_scatter"(%a) ({ADD64}) {{scatter_dimension = 0 : i64, {GROUPS}}} : '
        f"({M}) -> {MM}", [F], np.float64),
]

SQUARE, CUBE = _DRAW.rand(3, 3).astype(np.float32), _DRAW.rand(3, 3, 3).astype(np.float32)
EINSUMS = [  # the equation, the operands, the result's sizes
    ("ab,cb->ac", F, G, "2x2x"), ("ca,ba", F, G, "2x2x"), ("ab,ab", F, G, ""), ("a,b", V, V, "3x3x"), ("ab,c->a", F, V, "2x"),
    ("ii,ij->ij", SQUARE, SQUARE, "3x3x"), ("ij,jj->i", F, SQUARE, "2x"), ("iii,i->i", CUBE, V, "3x"), ("aab,c", CUBE, V, "3x3x"),
    ("i,i->ii", V, V, "3x3x"), ("ij,kj->kiik", F, G, "2x2x2x2x"), ("...i,...i->...", CUBE, SQUARE, "3x3x"),
    ("ii...,i->...i", CUBE, V, "3x3x"), ("i...,j->ij", F, V, "2x3x"), ("...a,...a", SQUARE[:1].copy(), SQUARE, "3x"),
    ("ab,ab->b", F, G[:1].copy(), "3x"), ("...a,...->a", SQUARE, V[:1].copy(), "3x"),
]
UNARY_EINSUMS = [("ab->b", F, "3x"), ("ii->i", SQUARE, "3x"), ("ii", SQUARE, ""), ("iij->ji", CUBE, "3x3x"),
                 ("...j->j...", F, "3x2x")]

CONTRACTIONS = [
    plain("dot", F, G.T.copy(), result="tensor<2x2xf32>"),
    Row("dot_general", "tensor<2x2xf32>", "%r = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1], precision = "
        f"[HIGHEST, DEFAULT] : ({M}, {M}) -> tensor<2x2xf32>", [F, G]),
    *[plain("einsum", a, b, result=f"tensor<{sizes}f32>", attributes=f'einsum_config = "{config}"', name=f"einsum {config}")
      for config, a, b, sizes in EINSUMS],
    *[plain("unary_einsum", a, result=f"tensor<{sizes}f32>", attributes=f'einsum_config = "{config}"',
            expected=lambda a, config=config: np.einsum(config, a), name=f"unary_einsum {config}")
      for config, a, sizes in UNARY_EINSUMS],
    plain("convolution", IMAGE, KERNEL, result=OUT,
          attributes=f"{CONVOLUTION}, padding = dense<[[1, 0], [0, 1]]> : tensor<2x2xi64>"),
    plain("chlo.ragged_dot", F, DEFINITE[None, :, :2].copy(), i64([2]), result="tensor<2x2xf32>",
          attributes="ragged_dot_dimension_numbers = #chlo.ragged_dot<lhs_contracting_dimensions = [1], "
          "rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]>, "
          "precision_config = [#chlo<precision DEFAULT>, #chlo<precision DEFAULT>]", expected=lambda a, b, c: a @ b[0]),
    plain("cholesky", DEFINITE, attributes="lower = true"),
    plain("triangular_solve", DEFINITE, F.T.copy(), result="tensor<3x2xf32>",
          attributes="left_side = true, lower = true, unit_diagonal = false, transpose_a = #stablehlo<transpose NO_TRANSPOSE>"),
    plain("fft", F, result="tensor<2x2xcomplex<f32>>",
          attributes="fft_type = #stablehlo<fft_type RFFT>, fft_length = array<i64: 3>"),
    plain("batch_norm_inference", F, V, V + 1, V + 2, V + 3, attributes="epsilon = 0.001 : f32, feature_index = 1 : i64"),
    Row("batch_norm_training", [M, "tensor<3xf32>", "tensor<3xf32>"],
        '%r0, %r1, %r2 = "stablehlo.batch_norm_training"(%a, %b, %c) '
        f"{{epsilon = 0.001 : f32, feature_index = 1 : i64}} : ({M}, tensor<3xf32>, tensor<3xf32>) -> "
        f"({M}, tensor<3xf32>, tensor<3xf32>)", [F, V, V + 1]),
    Row("batch_norm_grad", [M, "tensor<3xf32>", "tensor<3xf32>"],
        '%r0, %r1, %r2 = "stablehlo.batch_norm_grad"(%a, %b, %c, %d, %e) '
        f"{{epsilon = 0.001 : f32, feature_index = 1 : i64}} : ({M}, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, {M}) -> "
        f"({M}, tensor<3xf32>, tensor<3xf32>)", [F, V, V + 1, V + 2, G]),
]

CONTROL = [
    Row("while", "tensor<i32>", """%c = stablehlo.constant dense<0> : tensor<i32>
        %r = stablehlo.while(%i = %c) : tensor<i32>
        cond { %p = stablehlo.compare LT, %i, %a : (tensor<i32>, tensor<i32>) -> tensor<i1>
               stablehlo.return %p : tensor<i1> }
        do { %o = stablehlo.constant dense<2> : tensor<i32>
             %n = stablehlo.add %i, %o : tensor<i32>
             stablehlo.return %n : tensor<i32> }""", [i32(5)]),
    Row("if", M,
        f'%r = "stablehlo.if"(%a) ({{ stablehlo.return %b : {M} }}, {{ stablehlo.return %c : {M} }}) : (tensor<i1>) -> {M}',
        [np.array(False), F, G]),
    Row("case", M, f'%r = "stablehlo.case"(%a) ({{ stablehlo.return %b : {M} }}, {{ stablehlo.return %c : {M} }}) : '
        f"(tensor<i32>) -> {M}", [i32(7), F, G]),
    Row("tuple, get_tuple_element", M, f"%t = stablehlo.tuple %a, %b : tuple<{M}, {M}>\n"
        f"%r = stablehlo.get_tuple_element %t[1] : (tuple<{M}, {M}>) -> {M}", [F, G]),
    Row("optimization_barrier", [M, M], f"%r0, %r1 = stablehlo.optimization_barrier %a, %b : {M}, {M}", [F, G]),
    Row("create_token, after_all", M, "%t = stablehlo.create_token : !stablehlo.token\n"
        f"%u = stablehlo.after_all %t, %t : !stablehlo.token\n%r = stablehlo.negate %a : {M}", [F]),
    *(Row(name, M, f"%r = {call} : ({M}, {M}) -> {M}", [F, G], functions=f"func.func private @f(%x: {M}, %y: {M}) -> {M} {{ "
          f"%z = stablehlo.add %x, %y : {M}\n return %z : {M} }}")
      for name, call in (("composite", 'stablehlo.composite "a.name" %a, %b {decomposition = @f, version = 1 : i32}'),
                         ("call", "func.call @f(%a, %b)"))),
    Row("constant", M, f"%r = stablehlo.constant dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]> : {M}"),
    Row("chlo.constant", M, f"%r = chlo.constant dense<2.0> : {M}"),
    Row("iota", "tensor<2x3xi32>", "%r = stablehlo.iota dim = 1 : tensor<2x3xi32>"),
    Row("rng", M, f"%l = stablehlo.constant dense<0.0> : {S}\n"
        f"%h = stablehlo.constant dense<1.0> : {S}\n{vector('s', [2, 3])}"
        f"%q = stablehlo.rng %l, %h, %s, distribution = UNIFORM : ({S}, {S}, tensor<2xi64>) -> {M}\n"
        f"%r = stablehlo.floor %q : {M}"),
    Row("rng_bit_generator", ["tensor<2xui64>", "tensor<2x3xui32>"], "%r0, %r1 = stablehlo.rng_bit_generator %a, algorithm = "
        "THREE_FRY : (tensor<2xui64>) -> (tensor<2xui64>, tensor<2x3xui32>)", [np.array([1, 2], np.uint64)]),
]

COLLECTIVES = [
    Row("all_reduce", M, f'%r = "stablehlo.all_reduce"(%a) ({ADD}) {{{GROUPS}}} : ({M}) -> {M}', [F]),
    Row("reduce_scatter", M,
        f'%r = "stablehlo.reduce_scatter"(%a) ({ADD}) {{scatter_dimension = 0 : i64, {GROUPS}}} : ({M}) -> {M}',
        [F]),
    plain("all_gather", F, attributes=f"all_gather_dim = 0 : i64, {GROUPS}"),
    plain("all_to_all", F, attributes=f"split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = 1 : i64, {GROUPS}"),
    plain("collective_permute", F, attributes="source_target_pairs = dense<[[0, 0]]> : tensor<1x2xi64>"),
    plain("collective_broadcast", F, attributes=GROUPS, expected=lambda a: a),
    plain("cross-replica-sum", F, attributes=GROUPS),
    Row("partition_id", "tensor<ui32>", "%r = stablehlo.partition_id : tensor<ui32>"),
    Row("replica_id", "tensor<ui32>", "%r = stablehlo.replica_id : tensor<ui32>"),
    Row("async_start, async_done", M,
        f'%t = "stablehlo.async_start"(%a) ({{ ^bb0(%x: {M}): %y = "stablehlo.all_gather"(%x) '
        f"{{all_gather_dim = 0 : i64, {GROUPS}}} : ({M}) -> {M}\n"
        f"stablehlo.return %y : {M} }}) : ({M}) -> !stablehlo.future<{M}>\n"
        f'%r = "stablehlo.async_done"(%t) : (!stablehlo.future<{M}>) -> {M}', [F]),
]


def _dynamic() -> list[Row]:
    """Ops that take sizes and the like as operands: from constants, and from arguments."""
    rows = []

    def row(op: str, result: str, arguments: Sequence[np.ndarray], numbers: Sequence[np.ndarray], attributes: str,
            expected: Callable[..., Any]) -> None:
        everything = [*arguments, *numbers]
        names = "abcdefgh"[:len(everything)]
        call = (f'%r = "stablehlo.{op}"({", ".join(f"%{n}" for n in names)}) {{{attributes}}} : '
                f"({', '.join(map(type_of, everything))}) -> {result}")
        fixed = "".join(f"%{n} = stablehlo.constant dense<{v.tolist()}> : {type_of(v)}\n"
                        for n, v in zip(names[len(arguments):], numbers, strict=True))
        rows.append(Row(f"{op} of constants", result, fixed + call, arguments, expected))
        rows.append(Row(f"{op} of arguments", result, call, everything, lambda *a: expected(*a[:len(arguments)])))

    row("dynamic_iota", "tensor<2x3xi32>", [], [i64([2, 3])], "iota_dimension = 1 : i64", lambda: np.tile(np.arange(3), (2, 1)))
    row("dynamic_reshape", "tensor<6xf32>", [F], [i64([6])], "", np.ravel)
    row("dynamic_broadcast_in_dim", "tensor<4x2x3xf32>", [F], [i64([4, 2, 3])], "broadcast_dimensions = array<i64: 1, 2>",
        lambda a: np.tile(a, (4, 1, 1)))
    row("dynamic_pad", "tensor<5x3xf32>", [F, np.array(1.0, np.float32)], [i64([2, -1]), i64([0, 1]), i64([1, 0])], "",
        lambda a, b: np.pad(np.insert(a, 1, 1, 0)[:, 1:], ((2, 0), (0, 1)), constant_values=1))
    row("dynamic_gather", M, [F, i32([[1], [0]])], [i64([1, 3])], f"dimension_numbers = {GATHER}", lambda a, b: a[::-1])
    row("real_dynamic_slice", "tensor<1x2xf32>", [F], [i64([1, 0]), i64([2, 3]), i64([1, 2])], "", lambda a: a[1:, ::2])
    row("dynamic_conv", OUT, [IMAGE, KERNEL], [i64([[1, 0], [0, 1]])], CONVOLUTION, convolved)
    return rows


ROWS = [*ELEMENTWISE, *MOVES, *REDUCTIONS, *PROMOTED, *CONTRACTIONS, *CONTROL, *COLLECTIVES, *_dynamic()]
"""One row for each op but for those of quantized types (quantized_rows.py) and those that speak to the host."""
