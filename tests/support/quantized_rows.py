"""Rows of test_quantized.py: one for each StableHLO op that takes quantized types, with a formula in NumPy."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np


@dataclasses.dataclass(frozen=True)
class Q:
    """A quantized element type; lists for parameters along `axis`."""

    scale: Any = 0.05
    zero: Any = 0
    storage: str = "i8"
    expressed: str = "f32"
    axis: int | None = None
    bounds: tuple[int, int] | None = None

    def __str__(self) -> str:
        scales, zeros = np.atleast_1d(self.scale), np.atleast_1d(self.zero)
        pairs = [f"{float(s)!r}:{z}" for s, z in np.broadcast(scales, zeros)]
        bounds = "<{}:{}>".format(*self.bounds) if self.bounds else ""
        axis, written = ("", pairs[0]) if self.axis is None else (f":{self.axis}", "{" + ",".join(pairs) + "}")
        return f"!quant.uniform<{self.storage}{bounds}:{self.expressed}{axis}, {written}>"

    @property
    def dtype(self) -> np.dtype:
        name = self.storage.replace("i", "int").replace("u", "uint")
        return np.dtype(getattr(ml_dtypes, name) if hasattr(ml_dtypes, name) else name)

    @property
    def limits(self) -> tuple[int, int]:
        bits = int(self.storage[1:])
        least = -(1 << (bits - 1)) if self.storage[0] == "i" else 0
        return self.bounds or (least, least + (1 << bits) - 1)

    @property
    def float_dtype(self) -> Any:
        return {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16}[self.expressed]

    def _spread(self, parameters: Any, rank: int) -> np.ndarray:
        shape = [-1 if d == self.axis else 1 for d in range(rank)] if self.axis is not None else []
        return np.reshape(parameters, shape)

    def dequantize(self, stored: np.ndarray) -> np.ndarray:
        centred = stored.astype(np.int64) - self._spread(self.zero, stored.ndim)
        return centred.astype(self.float_dtype) * self._spread(self.scale, stored.ndim).astype(self.float_dtype)

    def quantize(self, value: np.ndarray) -> np.ndarray:
        value = np.asarray(value, self.float_dtype)
        steps = value / self._spread(self.scale, value.ndim).astype(self.float_dtype)
        steps = steps + self._spread(self.zero, value.ndim).astype(self.float_dtype)
        return np.rint(np.clip(steps.astype(np.float64), *self.limits)).astype(self.dtype)


Type = Q | str
A, B, R = Q(0.05, -3), Q(0.07, 5), Q(0.1, -10)
WIDE, SUMS = Q(0.05, 0, "i32"), Q(0.0035, 0, "i32")
ALONG = Q([0.5, 0.25, 0.125, 1.0, 2.0, 4.0], [1, 0, -3, 2, 0, 7], axis=1)


def text(shape: tuple[int, ...], element: Type) -> str:
    return f"tensor<{''.join(f'{d}x' for d in shape)}{element}>"


def values(shape: tuple[int, ...], element: Type, seed: int) -> np.ndarray:
    draw = np.random.default_rng(seed)
    if isinstance(element, Q):
        low, high = element.limits
        return draw.integers(max(low + 1, -1000), min(high, 1000) + 1, size=shape).astype(element.dtype)
    kinds = {"f32": lambda: draw.normal(size=shape).astype(np.float32), "i1": lambda: draw.random(shape) < 0.5,
             "i32": lambda: draw.integers(0, 3, size=shape).astype(np.int32)}
    return kinds[element]()


@dataclasses.dataclass
class Row:
    """An op: its MLIR (with %r for the result, and {0}, {1}... for the parameters' types and {r} for the result's), types,
    and what it does to floats (or, if `stored`, to the stored integers)."""

    op: str
    body: str
    parameters: list[tuple[tuple[int, ...], Type]]
    result: tuple[tuple[int, ...], Type]
    formula: Callable[..., np.ndarray]
    stored: bool = False
    functions: str = ""

    def program(self) -> str:
        types = [text(*p) for p in self.parameters]
        result = text(*self.result)
        body = re.sub(r"\{(\d|r)\}", lambda m: result if m[1] == "r" else types[int(m[1])], self.body)
        taken = ", ".join(f"%{name}: {t}" for name, t in zip("abcdefgh", types, strict=False))
        return f"func.func @main({taken}) -> {result} {{\n{body}\nreturn %r : {result}\n}}\n{self.functions}"

    def arguments(self) -> list[np.ndarray]:
        return [values(shape, element, seed) for seed, (shape, element) in enumerate(self.parameters)]

    def expected(self) -> np.ndarray:
        arguments = self.arguments()
        if self.stored:
            return self.formula(*arguments)
        floats = [e.dequantize(a) if isinstance(e, Q) else a for a, (_, e) in zip(arguments, self.parameters, strict=True)]
        with np.errstate(all="ignore"):
            result = self.formula(*floats)
        return self.result[1].quantize(result) if isinstance(self.result[1], Q) else result


S = (4, 6)


def _afz(x: np.ndarray) -> np.ndarray:
    return np.trunc(x + np.copysign(0.5, x))


UNARY = {"abs": np.abs, "cbrt": np.cbrt, "ceil": np.ceil, "cosine": np.cos, "exponential": np.exp,
         "exponential_minus_one": np.expm1, "floor": np.floor, "log": np.log, "log_plus_one": np.log1p,
         "logistic": lambda x: 1 / (1 + np.exp(-x)), "negate": np.negative, "round_nearest_afz": _afz,
         "round_nearest_even": np.rint, "rsqrt": lambda x: 1 / np.sqrt(x), "sign": np.sign, "sine": np.sin, "sqrt": np.sqrt,
         "tanh": np.tanh, "tan": np.tan}
BINARY = {"add": np.add, "atan2": np.arctan2, "divide": np.divide, "maximum": np.maximum, "minimum": np.minimum,
          "multiply": np.multiply, "power": np.power, "remainder": np.fmod, "subtract": np.subtract}
POSITIVE = ("log", "log_plus_one", "rsqrt", "sqrt", "power", "divide", "remainder")  # no NaN: what becomes of it is left open
ABOVE, DIVISOR = Q(0.05, -128), Q(0.07, -128)  # all drawn values are positive


def elementwise() -> list[Row]:
    rows = []
    for op, formula in UNARY.items():
        operand = ABOVE if op in POSITIVE else A
        rows.append(Row(op, f'%r = "stablehlo.{op}"(%a) : ({{0}}) -> {{r}}', [(S, operand)], (S, R), formula))
    for op, formula in BINARY.items():
        first, second = (ABOVE, DIVISOR) if op in POSITIVE else (A, B)
        body = f'%r = "stablehlo.{op}"(%a, %b) : ({{0}}, {{1}}) -> {{r}}'
        rows.append(Row(op, body, [(S, first), (S, second)], (S, R), formula))
        rows.append(Row(op, body, [(S, first), (S, first)], (S, first), formula))
    return rows


ADD = '%r = "stablehlo.add"(%a, %b) : ({0}, {1}) -> {r}'
TYPES = [Q(0.25, 1, kind) for kind in ("i4", "u4", "u8", "i16", "u16", "i32", "i2", "u2")] + [
    Q(0.25, 1, "i8", expressed) for expressed in ("bf16", "f16", "f64")] + [
    Q(0.25, 1, bounds=(-7, 7)), Q(0.25, 9, "u8", bounds=(3, 200)), Q(1.0, 0), Q(2.0**-9, 0, "i16", "bf16")]


def region(op: str, element: Type, result: Type | None = None) -> str:
    scalar, to = f"tensor<{element}>", f"tensor<{result or element}>"
    call = f"stablehlo.compare {op}, %x, %y : ({scalar}, {scalar}) -> {to}" if result else f"stablehlo.{op} %x, %y : {scalar}"
    return f"{{ ^bb0(%x: {scalar}, %y: {scalar}): %z = {call}\n stablehlo.return %z : {to} }}"


def saturated(stored: np.ndarray, of: Q, axis: int) -> np.ndarray:
    """Sums along an axis that stay within the storage type after each step."""
    total = np.take(stored, 0, axis)
    for number in range(1, stored.shape[axis]):
        total = of.quantize(of.dequantize(total) + of.dequantize(np.take(stored, number, axis)))
    return total


def small(stored: np.ndarray) -> np.ndarray:
    return stored


TRANSPOSED = dataclasses.replace(ALONG, axis=0)
SCATTER = ("#stablehlo.scatter<update_window_dims=[1], inserted_window_dims=[0], scatter_dims_to_operand_dims=[0], "
           "index_vector_dim=1>")
GATHER = "#stablehlo.gather<offset_dims=[1], collapsed_slice_dims=[0], start_index_map=[0], index_vector_dim=1>"


MOVES = [
    Row("transpose", "%r = stablehlo.transpose %a, dims=[1, 0] : ({0}) -> {r}", [(S, A)], ((6, 4), A), np.transpose, True),
    Row("transpose along", "%r = stablehlo.transpose %a, dims=[1, 0] : ({0}) -> {r}", [(S, ALONG)],
        ((6, 4), TRANSPOSED), np.transpose, True),
    Row("reshape", "%r = stablehlo.reshape %a : ({0}) -> {r}", [(S, A)], ((24,), A), np.ravel, True),
    Row("broadcast_in_dim", "%r = stablehlo.broadcast_in_dim %a, dims=[0, 2] : ({0}) -> {r}", [(S, A)], ((4, 2, 6), A),
        lambda a: np.repeat(a[:, None], 2, 1), True),
    Row("concatenate", "%r = stablehlo.concatenate %a, %b, dim=0 : ({0}, {1}) -> {r}", [(S, A), (S, A)], ((8, 6), A),
        lambda a, b: np.concatenate([a, b]), True),
    Row("pad", "%r = stablehlo.pad %a, %b, low=[1, 0], high=[1, 0], interior=[0, 0] : ({0}, {1}) -> {r}", [(S, A), ((), A)],
        ((6, 6), A), lambda a, b: np.pad(a, ((1, 1), (0, 0)), constant_values=b), True),
    Row("slice", "%r = stablehlo.slice %a [0:2, 0:6:2] : ({0}) -> {r}", [(S, A)], ((2, 3), A), lambda a: a[:2, ::2], True),
    Row("reverse", "%r = stablehlo.reverse %a, dims=[0] : {0}", [(S, A)], (S, A), lambda a: a[::-1], True),
    Row("dynamic_slice", "%r = stablehlo.dynamic_slice %a, %b, %b, sizes=[2, 6] : ({0}, {1}, {1}) -> {r}", [(S, A), ((), "i32")],
        ((2, 6), A), lambda a, b: a[b:b + 2], True),
    Row("dynamic_update_slice", "%r = stablehlo.dynamic_update_slice %a, %b, %c, %c : ({0}, {1}, {2}, {2}) -> {r}",
        [(S, A), ((4, 6), A), ((), "i32")], (S, A), lambda a, b, c: b, True),
    Row("gather", f'%r = "stablehlo.gather"(%a, %b) <{{dimension_numbers={GATHER}, slice_sizes=array<i64: 1, 6>}}> : '
        "({0}, {1}) -> {r}", [(S, A), ((2, 1), "i32")], ((2, 6), A), lambda a, b: a[b[:, 0]], True),
    Row("dynamic_broadcast_in_dim", "%c = stablehlo.constant dense<[4, 2, 6]> : tensor<3xi64>\n"
        "%r = stablehlo.dynamic_broadcast_in_dim %a, %c, dims=[0, 2] : ({0}, tensor<3xi64>) -> {r}", [(S, A)], ((4, 2, 6), A),
        lambda a: np.repeat(a[:, None], 2, 1), True),
    Row("bitcast_convert", "%r = stablehlo.bitcast_convert %a : ({0}) -> {r}", [(S, A)], (S, "i8"), small, True),
    Row("optimization_barrier", "%r = stablehlo.optimization_barrier %a : {0}", [(S, A)], (S, A), small, True),
    Row("tuple", "%t = stablehlo.tuple %a, %b : tuple<{0}, {1}>\n"
        "%r = stablehlo.get_tuple_element %t[1] : (tuple<{0}, {1}>) -> {r}",
        [(S, A), (S, B)], (S, B), lambda a, b: b, True),
    Row("call", "%r = func.call @g(%a) : ({0}) -> {r}", [(S, A)], (S, A), lambda a: a + a,
        functions=f"func.func private @g(%x: {text(S, A)}) -> {text(S, A)} {{ %y = stablehlo.add %x, %x : {text(S, A)}\n"
                  f"return %y : {text(S, A)} }}"),
    Row("if", '%r = "stablehlo.if"(%a) ({ stablehlo.return %b : {1} }, { %y = stablehlo.add %b, %b : {1}\n'
        "stablehlo.return %y : {1} }) : ({0}) -> {r}", [((), "i1"), (S, A)], (S, A), lambda a, b: b if a else b + b),
    Row("while", """%k = stablehlo.constant dense<0> : tensor<i32>
        %w:2 = stablehlo.while(%i = %k, %v = %a) : tensor<i32>, {0}
        cond { %l = stablehlo.constant dense<2> : tensor<i32>
               %p = stablehlo.compare LT, %i, %l : (tensor<i32>, tensor<i32>) -> tensor<i1>
               stablehlo.return %p : tensor<i1> }
        do { %o = stablehlo.constant dense<1> : tensor<i32>
             %n = stablehlo.add %i, %o : tensor<i32>
             %u = stablehlo.negate %v : {0}
             stablehlo.return %n, %u : tensor<i32>, {0} }
        %r = stablehlo.negate %w#1 : {0}""", [(S, A)], (S, A),
        lambda a: -A.dequantize(A.quantize(-A.dequantize(A.quantize(-a))))),
    Row("constant", "%k = stablehlo.constant() <{value = dense<5> : tensor<4x6xi8>}> : () -> {0}\n"
        "%r = stablehlo.add %a, %k : {0}",
        [(S, A)], (S, A), lambda a: a + 8 * np.float32(0.05)),
    Row("sort", f'%r = "stablehlo.sort"(%a) ({region("LT", A, "i1")}) {{dimension = 1 : i64}} : ({{0}}) -> {{r}}',
        [(S, A)], (S, A), np.sort, True),
    Row("all_gather", '%r = "stablehlo.all_gather"(%a) {all_gather_dim = 0 : i64, replica_groups = dense<0> : tensor<1x1xi64>} : '
        "({0}) -> {r}", [(S, A)], (S, A), small, True),
    Row("scatter", f'%r = "stablehlo.scatter"(%a, %b, %c) <{{scatter_dimension_numbers={SCATTER}, unique_indices=true}}> '
        f'({region("maximum", A)}) : ({{0}}, {{1}}, {{2}}) -> {{r}}', [(S, A), ((1, 1), "i32"), ((1, 6), A)], (S, A),
        lambda a, b, c: np.stack([np.maximum(row, c[0]) if k == b[0, 0] else row for k, row in enumerate(a)]), True),
]

REDUCTIONS = [
    Row("reduce add", f'%r = "stablehlo.reduce"(%a, %b) ({region("add", A)}) {{dimensions = array<i64: 0>}} : '
        "({0}, {1}) -> {r}",
        [((2, 6), A), ((), Q(0.05, -3))], ((6,), A),
        lambda a, b: saturated(np.concatenate([np.broadcast_to(b, (1, 6)), a]), A, 0), True),
    Row("reduce maximum", f'%r = "stablehlo.reduce"(%a, %b) ({region("maximum", A)}) {{dimensions = array<i64: 0>}} : '
        "({0}, {1}) -> {r}", [(S, A), ((), A)], ((6,), A), lambda a, b: np.maximum(a.max(0), b), True),
    Row("reduce, wider sums", f'%r = "stablehlo.reduce"(%a, %b) ({region("add", WIDE)}) {{dimensions = array<i64: 0>}} : '
        "({0}, {1}) -> {r}", [(S, A), ((), A)], ((6,), WIDE), lambda a, b: a.sum(0) + b),
    Row("reduce_window maximum", f'%r = "stablehlo.reduce_window"(%a, %b) ({region("maximum", A)}) '
        "{window_dimensions = array<i64: 1, 2>} : ({0}, {1}) -> {r}", [(S, A), ((), A)], ((4, 5), A),
        lambda a, b: np.maximum(np.maximum(a[:, 1:], a[:, :-1]), b), True),
    Row("reduce_window, wider sums", f'%r = "stablehlo.reduce_window"(%a, %b) ({region("add", WIDE)}) '
        "{window_dimensions = array<i64: 1, 2>} : ({0}, {1}) -> {r}", [(S, A), ((), A)], ((4, 5), WIDE),
        lambda a, b: a[:, 1:] + a[:, :-1] + b),
    Row("all_reduce", f'%r = "stablehlo.all_reduce"(%a) ({region("add", A)}) {{replica_groups = dense<0> : tensor<1x1xi64>}} : '
        "({0}) -> {r}", [(S, A)], (S, A), small, True),
    Row("select_and_scatter", '%r = "stablehlo.select_and_scatter"(%a, %b, %c) '
        f"({region('GE', Q(), 'i1')}, {region('add', Q())}) "
        "{window_dimensions = array<i64: 1, 3>, window_strides = array<i64: 1, 3>} : ({0}, {1}, {2}) -> {r}",
        [((2, 3), Q()), ((2, 1), Q()), ((), Q(bounds=None))], ((2, 3), Q()),
        lambda a, b, c: Q().quantize(Q().dequantize(np.where(np.arange(3) == a.argmax(1)[:, None], b, 0)) + Q().dequantize(c)),
        True),
    Row("map", f'%r = "stablehlo.map"(%a, %b) ({region("add", A)}) {{dimensions = array<i64: 0, 1>}} : ({{0}}, {{1}}) -> {{r}}',
        [(S, A), (S, A)], (S, A), np.add),
]

CONVERSIONS = [
    Row("uniform_quantize", "%r = stablehlo.uniform_quantize %a : ({0}) -> {r}", [(S, "f32")], (S, A), small),
    Row("uniform_quantize along", "%r = stablehlo.uniform_quantize %a : ({0}) -> {r}", [(S, "f32")], (S, ALONG), small),
    Row("uniform_quantize along 0", "%r = stablehlo.uniform_quantize %a : ({0}) -> {r}", [((6, 4), "f32")],
        ((6, 4), TRANSPOSED), small),
    Row("uniform_quantize anew", "%r = stablehlo.uniform_quantize %a : ({0}) -> {r}", [(S, A)], (S, R), small),
    Row("uniform_quantize to along", "%r = stablehlo.uniform_quantize %a : ({0}) -> {r}", [(S, A)], (S, ALONG), small),
    Row("uniform_quantize from along", "%r = stablehlo.uniform_quantize %a : ({0}) -> {r}", [(S, ALONG)], (S, R), small),
    Row("uniform_dequantize", "%r = stablehlo.uniform_dequantize %a : ({0}) -> {r}", [(S, A)], (S, "f32"), small),
    Row("uniform_dequantize along", "%r = stablehlo.uniform_dequantize %a : ({0}) -> {r}", [(S, ALONG)], (S, "f32"), small),
    Row("compare", "%r = stablehlo.compare LT, %a, %b : ({0}, {1}) -> {r}", [(S, A), (S, B)], (S, "i1"), np.less),
    Row("compare same", "%r = stablehlo.compare GE, %a, %b, FLOAT : ({0}, {1}) -> {r}", [(S, Q(0.1, 9, "u8"))] * 2, (S, "i1"),
        np.greater_equal),
    Row("select", "%r = stablehlo.select %a, %b, %c : {0}, {1}", [(S, "i1"), (S, A), (S, A)], (S, A), np.where),
    Row("clamp", '%r = "stablehlo.clamp"(%a, %b, %c) : ({0}, {1}, {2}) -> {r}', [((), A), (S, A), ((), A)], (S, A),
        lambda a, b, c: np.minimum(np.maximum(b, a), c)),
    Row("is_finite", "%r = stablehlo.is_finite %a : ({0}) -> {r}", [(S, A)], (S, "i1"), np.isfinite),
    Row("iota", "%r = stablehlo.iota dim = 1 : {r}", [], (S, R), lambda: np.tile(np.arange(6), (4, 1))),
    Row("reduce_precision", "%r = stablehlo.reduce_precision %a, format = e8m7 : {0}", [(S, A)], (S, A),
        lambda a: a.astype(ml_dtypes.bfloat16).astype(np.float32)),
    Row("batch_norm_inference", '%r = "stablehlo.batch_norm_inference"(%a, %b, %b, %b, %c) {epsilon = 0.1 : f32, '
        "feature_index = 1 : i64} : ({0}, {1}, {1}, {1}, {2}) -> {r}", [(S, A), ((6,), A), ((6,), ABOVE)], (S, R),
        lambda a, b, c: (a - b) / np.sqrt(c + np.float32(0.1)) * b + b),
    Row("cholesky", "%k = stablehlo.broadcast_in_dim %a, dims=[] : ({0}) -> {r}\n%r = stablehlo.cholesky %k : {r}", [((), ABOVE)],
        ((1, 1), ABOVE), lambda a: np.sqrt(a).reshape(1, 1)),
]

HALF = dataclasses.replace(B, zero=0)
COLUMNS = Q([0.5, 0.25, 0.125, 1.0, 2.0], 0, axis=1, bounds=(-127, 127))
SCALED = Q([0.025, 0.0125, 0.00625, 0.05, 0.1], 0, "i32", axis=1)
KERNEL = Q([0.5, 0.25], 0, axis=3, bounds=(-127, 127))
FEATURES = Q([0.025, 0.0125], 0, "i32", axis=3)
DOT = "%r = stablehlo.dot_general %a, %b, contracting_dims=[1] x [0] : ({0}, {1}) -> {r}"
BATCHED = "%r = stablehlo.dot_general %a, %b, batching_dims=[0] x [0], contracting_dims=[2] x [1] : ({0}, {1}) -> {r}"
NUMBERS = "dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]"
CONVOLUTION = (f"%r = stablehlo.convolution(%a, %b) {NUMBERS}, window = {{pad = [[1, 0], [0, 1]]}} "
               "{batch_group_count = 1 : i64, feature_group_count = 1 : i64} : ({0}, {1}) -> {r}")
DYNAMIC_CONVOLUTION = ("""%p = stablehlo.constant dense<[[1, 0], [0, 1]]> : tensor<2x2xi64>
    %r = "stablehlo.dynamic_conv"(%a, %b, %p) {dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>,
    batch_group_count = 1 : i64, feature_group_count = 1 : i64} : ({0}, {1}, tensor<2x2xi64>) -> {r}""")


def convolved(image: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    padded = np.pad(image.astype(np.float64), ((0, 0), (1, 0), (0, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, kernel.shape[:2], (1, 2))
    return np.einsum("bhwiyx,yxio->bhwo", windows, kernel.astype(np.float64))


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a.astype(np.float64) @ b.astype(np.float64)


IMAGE, WINDOW, OUT = (1, 5, 5, 3), (2, 2, 3, 2), (1, 5, 5, 2)
CONTRACTIONS = [
    Row("dot_general", DOT, [(S, A), ((6, 5), HALF)], ((4, 5), SUMS), product),
    Row("dot_general to i8", DOT, [(S, A), ((6, 5), HALF)], ((4, 5), R), product),
    Row("dot_general weights only", DOT, [(S, "f32"), ((6, 5), HALF)], ((4, 5), "f32"), product),
    Row("dot_general along", DOT, [(S, A), ((6, 5), COLUMNS)], ((4, 5), SCALED), product),
    Row("dot_general along to one", DOT, [(S, A), ((6, 5), COLUMNS)], ((4, 5), R), product),
    Row("dot_general weights only along", DOT, [(S, "f32"), ((6, 5), COLUMNS)], ((4, 5), "f32"), product),
    Row("dot_general i16", DOT, [(S, Q(0.01, 7, "i16")), ((6, 5), Q(0.01, 0, "i16"))], ((4, 5), Q(1.0, 3, "i16")), product),
    Row("dot_general i32", DOT, [(S, Q(0.01, 7, "i32")), ((6, 5), Q(0.01, 0, "i32"))], ((4, 5), Q(1.0, 3, "i16")), product),
    Row("dot_general f64", DOT, [(S, Q(0.01, 7, expressed="f64")), ((6, 5), Q(0.01, expressed="f64"))],
        ((4, 5), Q(0.1, 3, expressed="f64")), product),
    Row("dot_general batched along", BATCHED, [((2, 4, 6), A), ((2, 6, 3), Q([0.5, 0.25], 0, axis=0))],
        ((2, 4, 3), Q(0.2, 3)), product),
    Row("convolution", CONVOLUTION, [(IMAGE, A), (WINDOW, B)], (OUT, SUMS), convolved),
    Row("convolution along", CONVOLUTION, [(IMAGE, A), (WINDOW, KERNEL)], (OUT, FEATURES), convolved),
    Row("convolution weights only", CONVOLUTION, [(IMAGE, "f32"), (WINDOW, KERNEL)], (OUT, "f32"), convolved),
    Row("dynamic_conv", DYNAMIC_CONVOLUTION, [(IMAGE, A), (WINDOW, B)], (OUT, SUMS), convolved),
]

ROWS = [*elementwise(), *(Row(f"add {q}", ADD, [(S, q), (S, q)], (S, q), np.add) for q in TYPES), *MOVES, *REDUCTIONS,
        *CONVERSIONS, *CONTRACTIONS]
