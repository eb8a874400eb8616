# pyright: reportCallIssue=false, reportArgumentType=false
"""Gradients of reductions, windows, scans, sorts and batch normalisation: against JAX, and to second order."""

from __future__ import annotations

import operator
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from xla_torch.storage.dtypes import torch_dtype

pytest.importorskip("jax")
import jax
import jax.numpy as jnp
from jax import lax

import xla_torch
from support.gradient_checks import Row, built, check_first, check_second, complexes, row, twice, values
from support.jax_oracle import compare, to_torch
from support.oracle import run_xla
from support.reductions import entry, module, shape_text, without
from xla_torch import Shape, ops
from xla_torch.types import F64, S32

V23, V6, V234, V7 = values(2, 3), values(6), values(2, 3, 4), values(7)
ZERO_FACTORS = np.array([[1.5, 0.0, 2.0], [0.0, 0.0, 3.0], [0.5, -2.0, 4.0]])
TIES = np.array([[1.0, 2.0, 2.0, 0.5], [3.0, 3.0, 3.0, 3.0]])


def computation(function, *types) -> xla_torch.XlaComputation:
    """A computation of scalars."""
    builder = xla_torch.XlaBuilder("region")
    result = function(*(builder.parameter(k, Shape.array(t)) for k, t in enumerate(types)))
    return builder.build(ops.Tuple(builder, result) if isinstance(result, list) else result)


def reducer(function) -> xla_torch.XlaComputation:
    return computation(function, F64, F64)


def log_add_exp(a, b):
    """A reducer that no torch call does: log(exp a + exp b), as its own composition."""
    top = ops.Max(a, b)
    return top + ops.Log(ops.Exp(a - top) + ops.Exp(b - top))


def moments(n, m, s, n2, m2, s2):
    """Welford's merge of (count, mean, sum of squares): variadic, all results differentiable."""
    total = n + n2
    shift = m2 - m
    return [total, m + shift * n2 / total, s + s2 + shift * shift * n * n2 / total]


def variance(x):
    one = ops.Broadcast(x.builder.constant(1.0, F64), x.shape.dimensions)
    zero = ops.Broadcast(x.builder.constant(0.0, F64), x.shape.dimensions)
    # The init value is the identity but for 0 / 0, so start from the first element.
    first = [ops.Slice(v, [0], [1]) for v in (one, x, zero)]
    rest = [ops.Slice(v, [1], x.shape.dimensions) for v in (one, x, zero)]
    merged = ops.Reduce(rest, [ops.Reshape(f, []) for f in first], computation(moments, *[F64] * 6), [0])
    return ops.GetTupleElement(merged, 2) / float(x.shape.dimensions[0])


def argmax_of(x):
    """The (value, place) pair as JAX reduces it."""
    def keep(v, i, w, j):
        first = ops.Or(ops.Gt(v, w), ops.And(ops.Eq(v, w), ops.Lt(i, j)))
        return [ops.Select(first, v, w), ops.Select(first, i, j)]

    places = ops.Iota(x.builder, Shape.array(S32, x.shape.dimensions), 1)
    inits = [x.builder.constant(-np.inf, F64), x.builder.constant(2**31 - 1)]
    return ops.GetTupleElement(ops.Reduce([x, places], inits, computation(keep, F64, S32, F64, S32), [1]), 0)


REDUCE = [
    row("reduce", lambda x: x.sum(1), V234),
    row("reduce", lambda x: x.sum((0, 2)), V234),
    row("reduce", lambda x: x.sum(), complexes(2, 2)),
    row("reduce", lambda x: x.sum(0), np.zeros((0, 3)), order=0,
        build=lambda x: ops.Reduce(x, 0.0, reducer(operator.add), [0])),
    row("reduce", lambda x, i: x.sum(0) + i, V23, 0.5, build=lambda x, i: ops.Reduce(x, i, reducer(operator.add), [0])),
    row("reduce", lambda x, i: x, V23, 0.5, build=lambda x, i: ops.Reduce(x, i, reducer(operator.add), [])),
    row("reduce", lambda x: x.max(1), V234),
    row("reduce", lambda x: x.min((0, 2)), V234),
    row("reduce", lambda x: x.max(1), TIES, order=0),
    row("reduce", lambda x: x.min(1), TIES, order=0),
    row("reduce", lambda x: x.prod(1), V234),
    row("reduce", lambda x: x.prod((0, 2)), values(2, 3, 3)),
    row("reduce", lambda x: x.prod(1), ZERO_FACTORS),
    row("reduce", lambda x: x.prod(0), complexes(3, 2)),
    row("reduce", lambda x: x.prod(1), np.zeros((2, 0)), order=0, build=lambda x: ops.Reduce(x, 1.0, reducer(operator.mul), [1])),
    row("reduce", lambda x: jax.nn.logsumexp(x, 1), values(2, 5),
        build=lambda x: ops.Reduce(x, -np.inf, reducer(log_add_exp), [1]), order=0),
    row("reduce", jax.nn.logsumexp, values(2, 3),
        build=lambda x: ops.Reduce(x, -1e30, reducer(log_add_exp), [0, 1])),
    row("reduce", lambda x: x.var(), V7, build=variance),
    row("reduce", lambda x: x.max(1), V234[0], build=argmax_of),
    row("reduce", lambda x: x[jnp.arange(2), jnp.argmax(x, 1)], TIES, order=0, build=argmax_of),
    row("map", lambda x, y: jnp.sin(x) * y, V6, values(6, seed=1),
        build=lambda x, y: ops.Map(x.builder, [x, y], reducer(lambda a, b: ops.Sin(a) * b), [0])),
]


@pytest.mark.parametrize("row", REDUCE, ids=str)
def test_reduce(row: Row) -> None:
    check_first(row)


@pytest.mark.parametrize("row", twice(REDUCE), ids=str)
def test_reduce_twice(row: Row) -> None:
    check_second(row)


# ------------------------------------------------------------------------------------------------------------ windows


def window(kind, function, init, sizes, strides, padding, base=(), dilation=()):
    """reduce-window in JAX and as ops, in one row's two forms."""
    rank = len(sizes)
    return (lambda x: kind(x, sizes, strides, padding, base or (1,) * rank, dilation or (1,) * rank),
            lambda x: ops.ReduceWindowWithGeneralPadding(x, init, reducer(function), sizes, strides, base, dilation, padding))


def summed(*args):
    return window(lax_sum, operator.add, 0.0, *args)


def lax_sum(x, sizes, strides, padding, base, dilation):
    return lax.reduce_window(x, 0.0, lax.add, sizes, strides, padding, base, dilation)


def lax_max(x, sizes, strides, padding, base, dilation):
    return lax.reduce_window(x, -np.inf, lax.max, sizes, strides, padding, base, dilation)


def unrolled_product(x, sizes, strides, padding, base, dilation):
    """The products of windows by gathering their elements: JAX has no gradient of its own for them."""
    (size,), (stride,), ((low, high),), (b,), (d,) = sizes, strides, padding, base, dilation
    padded = lax.pad(x, 1.0, [(low, high, b - 1)])
    count = (padded.shape[0] - (size - 1) * d - 1) // stride + 1
    places = np.arange(count)[:, None] * stride + np.arange(size) * d
    return padded[places].prod(1)


SUMS = [((2, 3), (1, 2), ((0, 1), (1, 1))), ((2, 2), (2, 1), ((0, 0), (-1, 2))), ((3, 1), (1, 1), ((2, 0), (0, 0))),
        ((2, 2), (2, 1), ((1, 2), (0, 1)), (2, 1), (1, 2)), ((2, 2), (3, 2), ((0, 0), (0, 0)), (3, 1), (2, 3))]
WINDOWS = [
    *(row("reduce-window", f, values(4, 5), build=b) for f, b in (summed(*s) for s in SUMS)),
    *(row("reduce-window", f, V7, build=b) for f, b in (
        window(lax_max, ops.Max, -np.inf, (3,), (2,), ((1, 1),)), window(lax_max, ops.Max, -np.inf, (2,), (2,), ((0, 0),)))),
    *(row("reduce-window", f, V7, build=b) for f, b in (
        window(unrolled_product, operator.mul, 1.0, (3,), (2,), ((1, 1),)),
        window(unrolled_product, operator.mul, 1.0, (3,), (1,), ((-1, 2),), (2,), (2,)))),
    row("reduce-window", lambda x: lax.cumsum(x, 0), V7, build=lambda x: cumulative(x, operator.add, 0.0)),
    row("reduce-window", lambda x: lax.cumsum(x, 0, reverse=True), V7, build=lambda x: cumulative(x, operator.add, 0.0, True)),
    row("reduce-window", lambda x: lax.cumprod(x, 0), np.array([1.5, 0.0, -2.0, 0.0, 0.7]),
        build=lambda x: cumulative(x, operator.mul, 1.0)),
    row("reduce-window", lambda x: lax.cummax(x, 0), V7, build=lambda x: cumulative(x, ops.Max, -np.inf)),
    row("reduce-window", lambda x: lax.cumlogsumexp(x, 0), V7, build=lambda x: cumulative(x, log_add_exp, -1e30)),
    row("reduce-window", lambda x: lax.cumsum(x, 0), np.zeros((0,)), order=0,
        build=lambda x: ops.ReduceWindowWithGeneralPadding(x, 0.0, reducer(operator.add), [3], [1], (), (), [(1, 1)])),
]


def cumulative(x, function, init, reverse=False):
    n = x.shape.dimensions[0]
    padding = (0, n - 1) if reverse else (n - 1, 0)
    return ops.ReduceWindowWithGeneralPadding(x, init, reducer(function), [n], [1], (), (), [padding])


@pytest.mark.parametrize("row", WINDOWS, ids=str)
def test_windows(row: Row) -> None:
    if 0 in row.arguments[0].shape:
        empty = torch.zeros(0, dtype=torch_dtype(F64))
        assert xla_torch.vjp(row.computation())(empty, empty)[0].shape == (0,)
        return
    check_first(row)


@pytest.mark.parametrize("row", twice(WINDOWS), ids=str)
def test_windows_twice(row: Row) -> None:
    check_second(row)


IN_ORDER = {
    "one": (1, """  a = f64[] parameter(0)
  b = f64[] parameter(1)
  k = f64[] constant(0.75)
  m = f64[] multiply(a, k)
  s = f64[] sine(m)
  q = f64[] multiply(b, b)
  ROOT r = f64[] add(s, q)"""),
    "two": (2, """  a = f64[] parameter(0)
  c = f64[] parameter(1)
  b = f64[] parameter(2)
  d = f64[] parameter(3)
  k = f64[] constant(0.75)
  m = f64[] multiply(a, k)
  s = f64[] sine(m)
  r = f64[] add(s, b)
  n = f64[] multiply(c, k)
  t = f64[] add(n, a)
  u = f64[] subtract(d, t)
  ROOT p = (f64[], f64[]) tuple(r, u)"""),
}
"""Reducers that are not associative: how many arrays they are of, and their lines."""


@pytest.mark.parametrize(("dims", "reduced"), [
    ((33,), (0,)), ((1500,), (0,)), ((3, 70), (1,)), ((35, 2, 34), (0, 2)), ((5, 7), (0, 1))])
@pytest.mark.parametrize("name", IN_ORDER)
def test_reducers_that_are_not_associative(name: str, dims: tuple[int, ...], reduced: tuple[int, ...]) -> None:
    kept = without(dims, reduced)
    _is_slope_of_xla(name, dims, kept, f"reduce(%s), dimensions={{{','.join(map(str, reduced))}}}")


@pytest.mark.parametrize(("dims", "result", "window"), [
    ((100,), (31,), "size=70"), ((30,), (14,), "size=10 stride=2 pad=3_4"), ((40,), (85,), "size=70 pad=40_35 lhs_dilate=2"),
    ((10, 12), (5, 2), "size=9x9 stride=1x2 pad=2_1x0_0"), ((16,), (16,), "size=16 pad=15_0"), ((40,), (40,), "size=40 pad=0_39"),
    ((40,), (41,), "size=40 pad=40_0"), ((17,), (18,), "size=17 pad=0_17"),
    ((3, 50, 2), (3, 50, 2), "size=1x50x1 pad=0_0x49_0x0_0")])
@pytest.mark.parametrize("name", IN_ORDER)
def test_windows_by_what_is_not_associative(name: str, dims: tuple[int, ...], result: tuple[int, ...], window: str) -> None:
    _is_slope_of_xla(name, dims, result, f"reduce-window(%s), window={{{window}}}")


def _is_slope_of_xla(name: str, dims: Sequence[int], result: Sequence[int], op: str) -> None:
    """Elements meet in XLA's order, and the init value as often as there: gradients are difference quotients of XLA's values."""
    count, lines = IN_ORDER[name]
    shape, operands = shape_text("f64", result), ", ".join([f"p{k}" for k in range(count)] + ["z"] * count)
    text = module(f"reducer {{\n{lines}\n}}\n", entry(
        [shape_text("f64", dims)] * count, "z = f64[] constant(0.5)",
        f"r = {shape if count == 1 else f'({shape}, {shape})'} {op % operands}, to_apply=reducer"))
    rng = np.random.default_rng(0)
    arrays, ways, cts = ([rng.standard_normal(sizes) for _ in range(count)] for sizes in (dims, dims, result))
    given = [torch.tensor(a, requires_grad=True) for a in arrays]
    values = xla_torch.parse_hlo(text)(*given)
    results = [values] if count == 1 else values
    found = torch.autograd.grad(results, given, [torch.from_numpy(np.asarray(c)) for c in cts])
    got = sum(float((g * torch.from_numpy(w)).sum()) for g, w in zip(found, ways, strict=True))
    ahead, behind = (run_xla(text, *(a + step * w for a, w in zip(arrays, ways, strict=True))) for step in (1e-6, -1e-6))
    want = sum(float(((a - b) / 2e-6 * c).sum()) for a, b, c in zip(ahead, behind, cts, strict=True))
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_init_of_a_window_counts_once() -> None:
    """f(init, x) with an init that is no identity: padding does not repeat it."""
    found = xla_torch.vjp(built(lambda x, i: ops.ReduceWindowWithGeneralPadding(
        x, i, reducer(lambda a, b: a * b), [2], [1], (), (), [(1, 0)]), V6, np.float64(3.0)))
    ct = values(6, seed=2)
    gradients = found(*map(to_torch, (V6, np.float64(3.0), ct)))

    def windows(x, i):
        return i * x * jnp.concatenate([jnp.ones(1), x[:-1]])

    compare(gradients, list(map(np.asarray, jax.vjp(windows, V6, 3.0)[1](ct))), 1e-12)


def test_first_of_equal_maxima_in_a_window() -> None:
    x = torch.tensor([2.0, 2.0, 1.0, 2.0], requires_grad=True, dtype=torch.float64)
    out = ops.ReduceWindow(x, -np.inf, reducer(ops.Max), [2], [2], ops.Padding.VALID)
    (found,) = torch.autograd.grad(out.sum(), x)
    assert found.tolist() == [1.0, 0.0, 0.0, 1.0]


def test_init_above_all_elements_has_the_cotangent() -> None:
    """max(0, windows): where all elements are negative the init value is the result."""
    program = built(lambda x, i: ops.ReduceWindowWithGeneralPadding(
        x, i, reducer(ops.Max), [2], [2], (), (), [(0, 0)]), V6, np.float64(0.0))
    x = np.array([-1.0, -2.0, 3.0, -1.0, -5.0, -4.0])
    got = xla_torch.vjp(program)(*map(to_torch, (x, np.float64(0.0), np.array([1.0, 10.0, 100.0]))))
    assert got[0].tolist() == [0.0, 0.0, 10.0, 0.0, 0.0, 0.0]
    assert got[1].item() == 101.0


POOLED = np.array([[7.0, 2, 5, 3, 10, 2], [3, 8, 9, 3, 4, 2], [1, 5, 7, 5, 6, 1], [0, 6, 2, 7, 2, 8]])


def select_and_scatter(x, s, i, strides=(2, 3), padding=((0, 0), (0, 0)), scatter=operator.add):
    return ops.SelectAndScatterWithGeneralPadding(
        x, computation(ops.Ge, F64, F64), (2, 3), strides, padding, s, i, reducer(scatter))


@pytest.mark.parametrize("scatter", [operator.add, operator.mul, ops.Max, lambda a, b: a * ops.Cos(b) + b])
@pytest.mark.parametrize(("strides", "padding", "count"), [
    ((2, 3), ((0, 0), (0, 0)), (2, 2)), ((1, 2), ((1, 0), (0, 2)), (4, 3))])
def test_select_and_scatter(scatter, strides, padding, count) -> None:
    """The source gathers from where its windows selected, whatever is made of what comes to one place."""
    arrays = POOLED, values(*count), np.float64(0.5)
    program = built(lambda x, s, i: select_and_scatter(x, s, i, strides, padding, scatter), *arrays)
    tensors = [to_torch(a) for a in arrays]
    tensors[1].requires_grad_()
    tensors[2].requires_grad_()
    assert torch.autograd.gradcheck(program, tensors)
    assert torch.autograd.gradgradcheck(program, tensors)


# ---------------------------------------------------------------------------------------------- scan, sort, batch norm


def recurrence(x, h):
    """h' = tanh(h x) with the output h' x, a cell with both inputs and carries."""
    def cell(a, c):
        new = ops.Tanh(c * a)
        return [new * a, new]

    return ops.Scan([x], [h], computation(cell, F64, F64), 0)


def lax_recurrence(x, h):
    def cell(c, a):
        new = jnp.tanh(c * a)
        return new, new * a

    final, outputs = lax.scan(cell, h, x)
    return outputs, final


def counted_recurrence(x, h, n):
    """A reversed scan along dimension 1 with a carry of rows and a counter that weighs the steps."""
    def cell(a, c, k):
        new = c + ops.Sin(a) * ops.ConvertElementType(k, F64)
        return [new * a, new, k + 1]

    rows = Shape.array(F64, (2,))
    builder = xla_torch.XlaBuilder("cell")
    a, c, k = builder.parameter(0, rows), builder.parameter(1, rows), builder.parameter(2, Shape.array(S32, (2,)))
    scanned = ops.Scan([x], [h, n], builder.build(ops.Tuple(builder, cell(a, c, k))), 1, True)
    return [ops.GetTupleElement(scanned, i) for i in range(2)]


def lax_counted(x, h, n):
    def cell(carry, a):
        c, k = carry
        new = c + jnp.sin(a) * k
        return (new, k + 1), new * a

    (final, _), outputs = lax.scan(cell, (h, n), x.T, reverse=True)
    return outputs.T, final


def with_passenger(x, y):
    return ops.Sort([x, y], computation(lambda a, b, _, __: ops.Lt(a, b), F64, F64, F64, F64), 1)


SORT = [
    row("scan", lax_recurrence, V6, 0.7, build=recurrence),
    row("scan", lax_counted, V23, values(2), np.array([1, 2], np.int32), build=counted_recurrence),
    row("sort", lambda x: jnp.sort(x, 1), values(3, 5)),
    row("sort", lambda x: lax.sort(x, dimension=0), values(4, 2)),
    row("sort", lambda x, y: lax.sort((x, y), dimension=1, num_keys=1), values(3, 5), values(3, 5, seed=1), build=with_passenger),
    row("sort", lambda x: x[jnp.argsort(x)], V7),
    row("topk", lambda x: lax.top_k(x, 3)[0], values(2, 5),
        build=lambda x: ops.GetTupleElement(ops.TopK(x, 3), 0)),
    row("sort", lambda x: jnp.sort(x, 1), np.zeros((2, 0)), order=0,
        build=lambda x: ops.Sort(x, computation(ops.Lt, F64, F64), 1)),
]


@pytest.mark.parametrize("row", SORT, ids=str)
def test_scan_and_sort(row: Row) -> None:
    check_first(row)


@pytest.mark.parametrize("row", twice(SORT), ids=str)
def test_scan_and_sort_twice(row: Row) -> None:
    check_second(row)


def normalised(x, mean, var, scale, offset, epsilon=0.125):
    shape = (1, 3, 1)
    return (x - mean.reshape(shape)) / jnp.sqrt(var.reshape(shape) + epsilon) * scale.reshape(shape) + offset.reshape(shape)


def training(x, scale, offset):
    mean, var = x.mean((0, 2)), x.var((0, 2))
    return normalised(x, mean, var, scale, offset), mean, var


def inference(x, scale, offset, mean, var):
    return normalised(x, mean, var, scale, offset)


def backward(x, scale, mean, var, grad):
    count = x.shape[0] * x.shape[2]
    shape = (1, 3, 1)
    deviation, root = x - mean.reshape(shape), jnp.sqrt(var + 0.125)
    c, d = (grad * deviation).sum((0, 2)) / (var + 0.125) / count, grad.sum((0, 2)) / count
    whole = (scale / root).reshape(shape) * (grad - d.reshape(shape) - c.reshape(shape) * deviation)
    return whole, (grad * deviation).sum((0, 2)) / root, grad.sum((0, 2))


X3, S3, O3 = values(2, 3, 2), values(3, seed=1), values(3, seed=2)
M3, P3 = values(3, seed=3), values(3, low=0.5, high=2.0)
NORMS = [
    row("batch-norm-training", training, X3, S3, O3,
        build=lambda x, s, o: ops.BatchNormTraining(x, s, o, 0.125, 1)),
    row("batch-norm-inference", inference, X3, S3, O3, M3, P3,
        build=lambda *x: ops.BatchNormInference(*x, 0.125, 1)),
    row("batch-norm-grad", backward, X3, S3, M3, P3, values(2, 3, 2, seed=5),
        build=lambda *x: ops.BatchNormGrad(*x, 0.125, 1)),
]


@pytest.mark.parametrize("row", NORMS, ids=str)
def test_batch_norm(row: Row) -> None:
    check_first(row)
    check_second(row)
