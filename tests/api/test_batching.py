"""`vmap`: programs for a batch against `jax.vmap`, on our side and on real XLA; ops that JAX does not reach; errors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import xla_torch
from support.jax_functions import MATRIX, NAMES, ROW, ROWS, SQUARE, mlp_loss, newton, scanned
from support.jax_oracle import evaluated, flat, program, to_torch
from support.oracle import HAS_XLA, needs_xla, run_xla
from xla_torch import F32, S32, Shape, XlaBuilder, ops, vmap
from xla_torch.errors import InvalidArgument, UnsupportedError

if HAS_XLA:
    import jax
    import jax.numpy as jnp

SIZE = 3


def leaves(value):
    return [leaf for part in value for leaf in leaves(part)] if isinstance(value, tuple) else [value]


def batch_of(array, axis):
    """Three examples like an array, each different."""
    array, random = np.asarray(array), np.random.RandomState(5)
    if axis is None:
        return array
    if array.dtype.kind in "fc":
        rows = [array + 0.3 * k * random.rand(*array.shape) for k in range(SIZE)]
    else:
        rows = [np.maximum(array - k, 0) if array.dtype.kind == "i" else array + np.asarray(k, array.dtype) for k in range(SIZE)]
    return np.stack(rows, axis).astype(array.dtype)


def agree(found, want):
    assert len(found) == len(want)
    for got, expected in zip(found, want, strict=True):
        got = got.resolve_conj().numpy() if isinstance(got, torch.Tensor) else np.asarray(got)
        expected = np.asarray(expected)
        assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)


def every_way(function, arguments):
    """Each choice of batched arguments, along dimension 0 or, once, along the second."""
    choices = [c for c in itertools.product([0, None], repeat=len(arguments)) if any(a is not None for a in c)]
    return [*choices, tuple(min(1, np.ndim(a)) for a in arguments)]


@needs_xla
@pytest.mark.parametrize(("function", "arguments"), ROWS, ids=NAMES)
def test_batches_are_jax_s(function, arguments):
    computation = program(function, *arguments)
    for axes in every_way(function, arguments):
        batched = vmap(computation, SIZE, axes)
        given = [batch_of(a, axis) for a, axis in zip(arguments, axes, strict=True)]
        want = flat(evaluated(jax.vmap(function, in_axes=axes), *given))
        agree(leaves(batched(*map(to_torch, given))), want)
        assert not any(i.name.endswith("_rows") for i in batched.entry.instructions)
    agree(run_xla(batched.to_hlo_text(), *given), want)


@needs_xla
@pytest.mark.parametrize("function", [mlp_loss, scanned], ids=["mlp", "scan"])
def test_derived_programs_are_programs(function):
    """A gradient for each example, in one program; and the gradient of a batch."""
    def loss(w, x):
        return sum(jnp.sum(jnp.square(o)) for o in flat(function(w, x)))

    arguments, axes = (SQUARE, MATRIX), (None, 0)
    computation = program(loss, *arguments)
    given = [batch_of(a, axis) for a, axis in zip(arguments, axes, strict=True)]
    of_each = vmap(xla_torch.grad(computation), SIZE, axes)
    want = evaluated(jax.vmap(jax.grad(loss), in_axes=axes), *given)
    agree([of_each(*map(to_torch, given))], [want])
    agree(run_xla(of_each.to_hlo_text(), *given), [want])
    agree([xla_torch.grad(vmap(computation, SIZE, axes))(*map(to_torch, given))], [want.sum(0)])
    tangents = vmap(xla_torch.jvp(computation, 0), SIZE, (None, 0, 0))
    directions = np.random.RandomState(1).randn(SIZE, *SQUARE.shape)
    agree([tangents(*map(to_torch, [*given, directions]))[1]], [(want * directions).sum((1, 2))])


# ------------------------------------------------------------------------------------------ loops that end for some examples


def _until(goes_on, step):
    return lambda x: jax.lax.while_loop(goes_on, step, x)


if HAS_XLA:
    _UP, _DOWN = _until(lambda v: v < 10, lambda v: v * 2 + 1), _until(lambda v: v > -10, lambda v: v * 2 - 1)
    _TO_HALF = _until(lambda v: v != 0.5, lambda v: v + 0.25)
    _COUNTED = _until(lambda c: c[0] != 3, lambda c: (c[0] + c[1], c[1]))


def _of_two(x):
    return jax.lax.cond(x >= 0, _UP, _DOWN, x)


def _of_three(x):
    return jax.lax.switch((x >= 0).astype(int) + (x >= 1), [_DOWN, _TO_HALF, _UP], x)


def _branches_within(x):
    return jax.lax.cond(x >= 0, lambda x: jax.lax.cond(x >= 1, _UP, _TO_HALF, x), _DOWN, x)


def _branches_in_a_loop(x):
    return jax.lax.fori_loop(0, 3, lambda _, v: 0.1 * _of_two(v), x)


def _loops_within(x):
    """The inner loop never ends for an example that the outer one is done with."""
    def step(c):
        return c[0] - 0.5, _until(lambda y: y < 5, lambda y: y + jnp.maximum(c[0] - 0.7, 0))(c[1] - 3)

    return _until(lambda c: c[0] > 0.7, step)((x, 5.0))[1]


def _the_same_loop_for_all(x):
    """A loop that does not depend on the example, and never ends, in a branch that no example takes."""
    return jax.lax.cond(x > -100, lambda x: x, lambda x: x + _COUNTED((1.0, 5.0))[0], x)


ENDING = [_of_two, _of_three, _branches_within, _branches_in_a_loop, _loops_within, _the_same_loop_for_all]


@needs_xla
@pytest.mark.parametrize("function", ENDING)
def test_loops_run_for_the_examples_that_reach_them(function):
    examples = np.array([3, -2, 0.5, -0.7, 0.0, 2.1])
    computation = program(function, examples[0])
    want = np.array([evaluated(function, x) for x in examples])
    batched = vmap(computation, len(examples))
    agree([batched(to_torch(examples)), torch.func.vmap(computation)(to_torch(examples))], [want, want])
    agree(run_xla(batched.to_hlo_text(), examples), [want])


def _with_own_derivative(loop, slope):
    """A loop whose author says what its derivative is, which is computed by a loop."""
    @jax.custom_vjp
    def function(x):
        return loop(x)

    function.defvjp(lambda x: (loop(x), x), lambda x, ct: (ct * slope(x),))
    return function


def _with_own_tangent(loop, slope):
    function = jax.custom_jvp(loop)
    function.defjvp(lambda primals, tangents: (loop(*primals), tangents[0] * slope(*primals)))
    return function


def _with_slopes_by_loops(kind):
    """`_of_two`, both of whose branches bring a derivative; each loop never ends for examples of the other branch."""
    up = kind(_UP, _until(lambda v: v < 3, lambda v: v * 3 + 1))
    down = kind(_DOWN, _until(lambda v: v > -2, lambda v: v * 2 - 0.5))
    return {
        "in branches": lambda x: jax.lax.cond(x >= 0, up, down, x),
        "in branches of a loop": lambda x: jax.lax.fori_loop(0, 2, lambda _, v: 0.1 * jax.lax.cond(v >= 0, up, down, v), x),
        "calls in calls": lambda x: jax.lax.cond(x >= 0, kind(lambda x: up(x) + 1, lambda x: up(x) * 2), down, x),
        "only in the derivative": lambda x: jax.lax.cond(x >= 0, kind(jnp.sin, _UP), kind(jnp.cos, _DOWN), x),
    }


@needs_xla
@pytest.mark.parametrize("name", ["in branches", "in branches of a loop", "calls in calls", "only in the derivative"])
@pytest.mark.parametrize("kind", [_with_own_derivative, _with_own_tangent])
def test_calls_with_derivatives_run_for_the_examples_that_reach_them(kind, name):
    """In the value and in the derivative, by `vmap` and by torch.func."""
    function = _with_slopes_by_loops(kind)[name]
    examples, ones = np.array([3, -2, 0.5, -0.7, 2.1]), np.ones(5)
    computation = xla_torch.from_jax(function, examples[0])
    want, slopes = ([evaluated(f, x) for x in examples] for f in (function, jax.grad(function)))
    batched = vmap(computation, len(examples))
    agree([batched(to_torch(examples)), torch.func.vmap(computation)(to_torch(examples))], [want, want])
    agree([*xla_torch.vjp(batched)(to_torch(examples), to_torch(ones)),
           torch.func.vmap(torch.func.grad(computation))(to_torch(examples))], [slopes, slopes])
    agree(run_xla(batched.to_hlo_text(), examples), [want])
    if kind is _with_own_tangent:
        agree([xla_torch.jvp(batched)(to_torch(examples), to_torch(ones))[1]], [slopes])


# ------------------------------------------------------------------------------------------------ ops


def one_op(function, *parameters):
    """A program of one op over parameters of these shapes, given as HLO text."""
    builder = XlaBuilder("one")
    return builder.build(function(*(builder.parameter(k, Shape.parse(s)) for k, s in enumerate(parameters))))


def scalar(function, text="f32[]"):
    return one_op(function, text, text)


def grouped(feature_groups, batch_groups):
    return lambda x, k: ops.ConvGeneralDilated(
        x, k, [1], [(1, 1)], [1], [1], ops.ConvolutionDimensionNumbers(0, 1, (2,), 1, 0, (2,), 0, 1, (2,)), feature_groups,
        batch_groups)


def windowed(x, init):
    return ops.ReduceWindow(x, init, scalar(ops.Add), [2], [1], "valid")


OPS = {
    "conv": (grouped(1, 1), "f32[2,4,5]", "f32[6,4,3]"),
    "conv feature groups": (grouped(2, 1), "f32[2,4,5]", "f32[6,2,3]"),
    "conv batch groups": (grouped(1, 2), "f32[4,4,5]", "f32[6,4,3]"),
    "dot": (lambda x, y: ops.DotGeneral(x, y, ops.DotDimensionNumbers((2,), (1,), (0,), (2,))), "f32[2,3,4]", "f32[5,4,2]"),
    "pad": (lambda x, v: ops.Pad(x, v, [(1, 2, 1)]), "f32[3]", "f32[]"),
    "sum": (lambda x, v: ops.Reduce(x, v, scalar(ops.Add), [0]), "f32[3,2]", "f32[]"),
    "product": (lambda x, v: ops.Reduce(x, v, scalar(ops.Mul), [1]), "f32[3,2]", "f32[]"),
    "maximum": (lambda x, v: ops.Reduce(x, v, scalar(ops.Max), [0]), "f32[3,2]", "f32[]"),
    "and": (lambda x, v: ops.Reduce(x, v, scalar(ops.And, "u8[]"), [0]), "u8[3,2]", "u8[]"),
    "window": (windowed, "f32[4]", "f32[]"),
    "clamp": (lambda low, x: ops.Clamp(low, x, low + 1.0), "f32[]", "f32[3]"),
    "select": (lambda x, y: ops.Select(ops.Gt(ops.Reshape(ops.Slice(x, [0], [1], [1]), []), y), x, x * 2.0), "f32[3]", "f32[]"),
    "dynamic-slice": (lambda x, i: ops.DynamicSlice(x, [i, i], [2, 1]), "f32[4,3]", "s32[]"),
    "dynamic-update-slice": (lambda x, i: ops.DynamicUpdateSlice(x, x.builder.constant(np.ones((2, 1), np.float32)), [i, i]),
                             "f32[4,3]", "s32[]"),
    "dynamic-update-slice u8": (lambda x, i: ops.DynamicUpdateSlice(x, x.builder.constant(np.ones(2, np.float32)), [i]),
                                "f32[400]", "u8[]"),
    "map": (lambda x, y: ops.Map(x.builder, [x, y], scalar(ops.Add), [0]), "f32[3]", "f32[3]"),
    "sort": (lambda x, y: ops.GetTupleElement(ops.Sort([x, y], one_op(lambda a, b, c, d: ops.Lt(a, b), *["f32[]"] * 4), 0), 1),
             "f32[4]", "f32[4]"),
    "reverse": (lambda x, y: ops.Rev(ops.ConcatInDim(x.builder, [x, y], 0), [0]), "f32[3]", "f32[2]"),
    "bitcast-convert": (lambda x, y: ops.Add(ops.BitcastConvertType(x, xla_torch.U16), y), "f32[3]", "u16[3,2]"),
    "triangular-solve": (lambda a, b: ops.TriangularSolve(a + 3.0, b, True, True, False, "NO_TRANSPOSE"), "f32[2,2]", "f32[2,3]"),
    # No rule: one example after the other.
    "batch-norm": (lambda x, s: ops.GetTupleElement(ops.BatchNormTraining(x, s, s, 0.1, 1), 0), "f32[4,2]", "f32[2]"),
    "random bits": (lambda x, y: ops.Add(ops.GetTupleElement(ops.RngBitGenerator("rng_three_fry", x, Shape.parse("u32[3]")), 1),
                                         y), "u64[2]", "u32[3]"),
}


def drawn(shape, seed):
    random = np.random.RandomState(seed)
    sizes = (SIZE, *shape.dimensions)
    if shape.element_type.is_floating:
        return random.randn(*sizes).astype(shape.element_type.numpy)
    return random.randint(0, 5, sizes).astype(shape.element_type.numpy)


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("flags", [(True, True), (True, False), (False, True)], ids=str)
def test_each_example_is_what_the_op_gives_alone(name, flags):
    computation = one_op(*OPS[name])
    given = [drawn(s, k) for k, s in enumerate(computation.program_shape.parameters)]
    given = [g if flag else g[0] for g, flag in zip(given, flags, strict=True)]
    batched = vmap(computation, SIZE, [0 if flag else None for flag in flags])
    (found,) = batched.run_numpy(*given)
    alone = [computation.run_numpy(*(g[k] if flag else g for g, flag in zip(given, flags, strict=True)))[0] for k in range(SIZE)]
    np.testing.assert_allclose(found, np.stack(alone), rtol=1e-5, atol=1e-5)
    if HAS_XLA:
        np.testing.assert_allclose(run_xla(batched.to_hlo_text(), *given)[0], found, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@needs_xla
def test_loops_of_different_lengths():
    a = np.abs(batch_of(ROW, 0)) * np.array([[1.0], [100.0], [1e-3]]) + 0.01
    found = vmap(program(newton, ROW), 3)(to_torch(a))
    torch.testing.assert_close(found, to_torch(a).sqrt())


def test_a_batch_of_none():
    computation = one_op(*OPS["batch-norm"])
    (found,) = vmap(computation, 0).run_numpy(np.zeros((0, 4, 2), np.float32), np.zeros((0, 2), np.float32))
    assert found.shape == (0, 4, 2)


def test_tuples():
    builder = XlaBuilder("pair")
    pair = builder.parameter(0, Shape.tuple([Shape.array(F32, (2,)), Shape.array(S32)]))
    x, n = (ops.GetTupleElement(pair, k) for k in range(2))
    computation = builder.build(ops.Tuple(builder, [ops.Mul(x, ops.ConvertElementType(n, F32)), n]))
    product, number = vmap(computation, 3, 0)((torch.ones(3, 2), torch.arange(3, dtype=torch.int32)))
    assert product.tolist() == [[0, 0], [1, 1], [2, 2]]
    assert number.tolist() == [0, 1, 2]


@pytest.mark.parametrize(("axes", "message"), [
    ((0,), "in_axes has the wrong length"), ((3, 0), "axis 3 is out of range for parameter 0"), ((-3, 0), "axis -3")])
def test_wrong_axes(axes, message):
    with pytest.raises(InvalidArgument, match=message):
        vmap(one_op(ops.Add, "f32[2]", "f32[2]"), 3, axes)


def test_dynamic_sizes_are_refused():
    computation = one_op(lambda x, n: ops.Sin(ops.SetDimensionSize(x, n, 0)), "f32[4]", "s32[]")
    with pytest.raises(UnsupportedError, match=r"(?s)dynamic size cannot be batched.*pad it"):
        vmap(computation, 3)


def test_a_barrier_around_several_values_is_passed_through():
    """Some of them batched and some not: no loop over the examples."""
    program = xla_torch.parse_hlo("""HloModule m
ENTRY e { x = f32[2] parameter(0) y = f32[2] parameter(1) t = (f32[2], f32[2]) tuple(x, y)
  b = (f32[2], f32[2]) opt-barrier(t) u = f32[2] get-tuple-element(b), index=0 v = f32[2] get-tuple-element(b), index=1
  ROOT r = f32[2] subtract(u, v) }""")
    batched = xla_torch.vmap(program, 3, (0, None))
    x, y = torch.arange(6.0).reshape(3, 2), torch.ones(2)
    torch.testing.assert_close(batched(x, y), x - y)
    assert not any(i.opcode == "while" for i in batched.entry.instructions)
