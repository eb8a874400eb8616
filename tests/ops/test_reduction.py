# pyright: reportCallIssue=false, reportArgumentType=false
"""Reduce, map, scan and batch normalisation: against real XLA, the documents' examples, and the errors they name."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import xla_torch
from support.oracle import needs_xla
from support.reductions import (
    AFFINE,
    agree,
    binary_region,
    close,
    entry,
    module,
    ours,
    reduce_text,
    shape_text,
    values,
    without,
)
from xla_torch import Shape, XlaBuilder, ops
from xla_torch.core import tuning
from xla_torch.errors import InvalidArgument
from xla_torch.types import F32, PRED, S32, PrimitiveType

NAN = float("nan")


def region(function, *types: PrimitiveType) -> xla_torch.XlaComputation:
    """A computation of scalars; a list of results becomes a tuple."""
    builder = XlaBuilder("region")
    result = function(*(builder.parameter(k, Shape.array(t)) for k, t in enumerate(types)))
    return builder.build(ops.Tuple(builder, result) if isinstance(result, list) else result)


ADD, MUL, MAX = (region(f, F32, F32) for f in (ops.Add, ops.Mul, ops.Max))
ADD_INT = region(ops.Add, S32, S32)

# ------------------------------------------------------------------------------------------------ known reducers

IDENTITY = {"add": "0", "multiply": "1", "and": "1", "or": "0", "xor": "0", "maximum": "1", "minimum": "1"}
TYPES = ("pred", "s4", "u4", "s8", "u8", "u16", "s32", "u32", "u64", "f16", "bf16", "f32", "f64", "c64", "f8e4m3fn", "f8e5m2")
LOGIC = ("and", "or", "xor")
KNOWN = [(text, step) for text in TYPES for step in IDENTITY if step not in LOGIC or text[0] in "psu"]


def init_of(text: str, step: str) -> str:
    if text == "pred":
        return "true" if step in ("and", "multiply", "minimum") else "false"
    if text in ("c64", "c128"):
        return f"({IDENTITY[step]}, 0)"
    return IDENTITY[step]


@needs_xla
@pytest.mark.parametrize(("text", "step"), KNOWN)
def test_known_reducers_over_every_type(text, step):
    agree(reduce_text(text, step, (3, 5, 4), [1], init_of(text, step)), values(text, 3, 5, 4))


@needs_xla
@pytest.mark.parametrize("step", ["add", "multiply", "maximum", "xor"])
@pytest.mark.parametrize("reduced", [[0], [2], [0, 2], [2, 0], [0, 1, 2]])
def test_any_dimensions(step, reduced):
    agree(reduce_text("s32", step, (3, 5, 4), reduced, IDENTITY[step]), values("s32", 3, 5, 4))


@needs_xla
@pytest.mark.parametrize("step", ["maximum", "minimum", "add", "multiply"])
def test_nan_goes_through(step):
    init = {"maximum": "-inf", "minimum": "inf"}.get(step, IDENTITY[step])
    agree(reduce_text("f32", step, (6, 5), [1], init), values("f32", 6, 5, choices=[1.0, 2.0, -3.0, NAN]))


@needs_xla
@pytest.mark.parametrize(("text", "step", "init"), [
    ("f32", "add", "3"), ("u32", "maximum", "4000000000"), ("u32", "minimum", "7"), ("s32", "multiply", "-2"),
    ("u8", "and", "15"), ("f32", "maximum", "nan"), ("pred", "or", "true"), ("s32", "xor", "9"), ("s32", "subtract", "100")])
def test_an_init_value_counts_once(text, step, init):
    agree(reduce_text(text, step, (4, 6), [1], init), values(text, 4, 6))


@needs_xla
@pytest.mark.parametrize(("text", "step"),
                         [("s32", "multiply"), ("u64", "maximum"), ("s64", "and"), ("s4", "multiply"), ("u8", "xor")])
@pytest.mark.parametrize("reduced", [[1], [0, 1, 2]])
def test_an_array_of_one_number(text, step, reduced):
    """What is reduced and what it begins with are known before the program runs."""
    dims = without((4, 3, 2), reduced)
    shape, whole = shape_text(text, dims), shape_text(text, (4, 3, 2))
    braces = ",".join(map(str, reduced))
    agree(module(binary_region(text, step), entry(
        [], f"c = {text}[] constant(3)", f"x = {whole} broadcast(c), dimensions={{}}",
        f"r = {shape} reduce(x, c), dimensions={{{braces}}}, to_apply=reducer")))


@needs_xla
@pytest.mark.parametrize("step", ["add", "maximum", "and", "ROOT c = T[] copy(a)"])
@pytest.mark.parametrize(("dims", "reduced"), [((2, 0), [1]), ((2, 0), [0]), ((0,), [0]), ((0, 3), [1])])
def test_reducing_nothing_gives_the_init_value(step, dims, reduced):
    agree(reduce_text("s32", step, dims, reduced, "7"), values("s32", *dims))


@needs_xla
@pytest.mark.parametrize("step", ["add", "ROOT c = T[] copy(a)"])
def test_no_dimensions_give_the_operand(step):
    agree(reduce_text("f32", step, (2, 3), [], "7"), values("f32", 2, 3))
    agree(reduce_text("f32", step, (), [], "7"), values("f32"))


@needs_xla
@pytest.mark.parametrize(("step", "init"), [
    ("m = T[] maximum(a, b)\n  d = T[] subtract(m, m)\n  ROOT c = T[] add(m, d)", "-100"),
    ("p = pred[] compare(a, b), direction=GE\n  ROOT c = T[] select(p, a, b)", "-100"),
    ("n = T[] negate(b)\n  ROOT c = T[] subtract(a, n)", "0"),
    ("ROOT c = T[] copy(b)", "5"),
    ("ROOT c = T[] copy(a)", "5"),
])
def test_other_reducers_of_one_array(step, init):
    for reduced in ([0], [1], [0, 1]):
        agree(reduce_text("f32", step, (5, 7), reduced, init), values("f32", 5, 7))


@needs_xla
def test_several_known_reducers_at_once():
    reducer = """reducer {
  a = s32[] parameter(0)
  b = f32[] parameter(1)
  c = s32[] parameter(2)
  d = f32[] parameter(3)
  e = s32[] add(a, c)
  f = f32[] maximum(b, d)
  ROOT r = (s32[], f32[]) tuple(e, f)
}
"""
    text = module(reducer, entry(["s32[4,5]", "f32[4,5]"], "i = s32[] constant(0)", "j = f32[] constant(-inf)",
                                 "r = (s32[5], f32[5]) reduce(p0, p1, i, j), dimensions={0}, to_apply=reducer"))
    agree(text, values("s32", 4, 5), values("f32", 4, 5))


def test_a_reducer_computes_in_the_type_of_its_operands():
    """XLA refuses a wider one in a program as text, and so do we, also while a program is built."""
    add, builder = xla_torch.XlaBuilder("add"), xla_torch.XlaBuilder("sums")
    scalar = xla_torch.Shape.parse("f32[]")
    region = add.build(ops.Add(add.parameter(0, scalar), add.parameter(1, scalar)))
    operand = builder.parameter(0, xla_torch.Shape.parse("bf16[4,300]"))
    with pytest.raises(InvalidArgument, match="mixed precision"):
        ops.Reduce(operand, ops.ConstantR0(builder, np.float32(0)), region, [1])
    text = module(binary_region("f32", "add"), entry(
        ["bf16[4,300]"], "i = f32[] constant(0)", "r = f32[4] reduce(p0, i), dimensions={1}, to_apply=reducer"))
    with pytest.raises(InvalidArgument, match="mixed precision"):
        xla_torch.parse_hlo(text)


# ------------------------------------------------------------------------------------------------ selections


def argument_reducer(text: str, direction: str, nan: bool, lowest: bool) -> str:
    """What JAX writes for argmax and argmin: with NaN the result, and the lower index on a tie."""
    return f"""reducer {{
  a = T[] parameter(0)
  i = s32[] parameter(1)
  b = T[] parameter(2)
  j = s32[] parameter(3)
  better = pred[] compare(a, b), direction={direction}
  isnan = pred[] compare(a, a), direction=NE
  keep = pred[] or(better, {"isnan" if nan else "better"})
  tie = pred[] compare(a, b), direction=EQ
  lower = pred[] compare(i, j), direction=LT
  both = pred[] and(tie, lower)
  keep_index = pred[] or(keep, {"both" if lowest else "keep"})
  v = T[] select(keep, a, b)
  k = s32[] select(keep_index, i, j)
  ROOT r = (T[], s32[]) tuple(v, k)
}}
""".replace("T[]", f"{text}[]")


WORST = {"f32": ("-inf", "inf"), "bf16": ("-inf", "inf"), "s32": ("-2147483648", "2147483647"), "u32": ("0", "4294967295"),
         "pred": ("false", "true")}


@needs_xla
@pytest.mark.parametrize("text", WORST)
@pytest.mark.parametrize(("direction", "lowest"), [("GT", True), ("LT", True), ("GE", False), ("LE", False), ("GT", False)])
@pytest.mark.parametrize("positions", ["iota", "any"])
def test_argmax_and_argmin(text, direction, lowest, positions):
    nan = text == "f32" and lowest
    keys = values(text, 4, 9, choices=[1, 2, 3, NAN if nan else 0])
    for dim in (0, 1):
        result = without((4, 9), [dim])
        second = f"i = s32[4,9] iota(), iota_dimension={dim}" if positions == "iota" else "i = s32[4,9] copy(p1)"
        program = module(argument_reducer(text, direction, nan, lowest), entry(
            [shape_text(text, (4, 9)), "s32[4,9]"], second, f"w = {text}[] constant({WORST[text][direction[0] == 'L']})",
            "z = s32[] constant(0)", f"r = ({shape_text(text, result)}, {shape_text('s32', result)}) reduce(p0, i, w, z), "
            f"dimensions={{{dim}}}, to_apply=reducer"))
        agree(program, keys, values("s32", 4, 9, choices=range(50)))


def test_argmax_becomes_one_search():
    builder = XlaBuilder("argmax")
    keys = builder.parameter(0, Shape.array(F32, (8, 16)))
    reducer = region(lambda a, i, b, j: [ops.Select(ops.Ge(a, b), a, b), ops.Select(ops.Ge(a, b), i, j)], F32, S32, F32, S32)
    counts = ops.Iota(builder, Shape.array(S32, (8, 16)), 1)
    found = ops.Reduce([keys, counts], [-np.inf, 0], reducer, [1])
    code = builder.build(ops.GetTupleElement(found, 1)).python_code()
    assert "arg_extreme" not in code, "GE keeps a smaller number before NaN, which no search does"
    strict = region(lambda a, i, b, j: [ops.Select(_wins(a, b), a, b), ops.Select(_wins(a, b), i, j)], F32, S32, F32, S32)
    found = ops.Reduce([keys, counts], [-np.inf, 0], strict, [1])
    code = builder.build(ops.GetTupleElement(found, 1)).python_code()
    assert "arg_extreme" in code
    assert "reduce_by" not in code


def _wins(a, b):
    return ops.Or(ops.Ge(a, b), ops.Ne(a, a))


# ------------------------------------------------------------------------------------------------ any reducer

def affine_text(dims, reduced, inits=("1", "0")) -> str:
    shape, result = shape_text("f32", dims), shape_text("f32", without(dims, reduced))
    return module(AFFINE, entry(
        [shape, shape], *(f"i{k} = f32[] constant({v})" for k, v in enumerate(inits)),
        f"r = ({result}, {result}) reduce(p0, p1, i0, i1), dimensions={{{','.join(map(str, reduced))}}}, to_apply=reducer"))


@needs_xla
@pytest.mark.parametrize(("dims", "reduced"), [
    ((1,), [0]), ((2,), [0]), ((7,), [0]), ((64,), [0]), ((5, 13), [1]), ((5, 13), [0]), ((3, 4, 5), [0, 2]), ((3, 4, 5), [1]),
    ((2, 3, 4), [0, 1, 2]), ((2, 0), [1])])
def test_the_order_of_elements_is_kept(dims, reduced):
    agree(affine_text(dims, reduced), *(values("f32", *dims, seed=s) for s in (0, 1)))


def test_an_init_value_comes_first():
    x, y = values("f32", 3, 8), values("f32", 3, 8, seed=1)
    got = ours(affine_text((3, 8), [1], ("2", "3")), x, y)
    a, b = np.full(3, 2, np.float32), np.full(3, 3, np.float32)
    for k in range(8):
        a, b = a * x[:, k], b * x[:, k] + y[:, k]
    close(got[0], a)
    close(got[1], b)


@pytest.mark.parametrize(("dims", "reduced"), [
    ((3, 1000), [1]), ((1000, 3), [0]), ((2999,), [0]), ((4, 500, 2), [1]), ((2, 2000), [0])])
def test_large_arrays_are_reduced_in_pieces(dims, reduced, monkeypatch):
    monkeypatch.setattr(tuning, "COMBINED_AT_ONCE", 64)
    x, y = 1 + 0.01 * values("f32", *dims), values("f32", *dims, seed=1)
    got = ours(affine_text(dims, reduced), x, y)
    wide = [np.moveaxis(v.astype(np.float64), reduced[0], 0) for v in (x, y)]
    a, b = 1.0, 0.0
    for c, d in zip(*wide, strict=True):
        a, b = a * c, b * c + d
    close(got[0], np.asarray(a, np.float32))
    close(got[1], np.asarray(b, np.float32))


# ------------------------------------------------------------------------------------------------ documents


def test_document_example_of_a_three_dimensional_array():
    v = torch.arange(1.0, 7).reshape(1, 2, 3).expand(4, 2, 3).contiguous()
    assert ops.Reduce(v, 0.0, ADD, [0]).tolist() == [[4, 8, 12], [16, 20, 24]]
    assert ops.Reduce(v, 0.0, ADD, [2]).tolist() == [[6, 15]] * 4
    assert ops.Reduce(v, 0.0, ADD, [0, 1]).tolist() == [20, 28, 36]
    assert ops.Reduce(v, 0.0, ADD, [0, 1, 2]).item() == 84
    assert ops.ReduceAll(v, 0.0, ADD).item() == 84


def test_document_example_of_one_dimension():
    assert ops.Reduce(torch.tensor([10, 11, 12, 13], dtype=torch.int32), 0, ADD_INT, [0]).item() == 46


def test_document_example_of_a_variadic_argmax():
    def newer(max_value, max_index, value, index):
        better = ops.Ge(value, max_value)
        return [ops.Select(better, value, max_value), ops.Select(better, index, max_index)]

    found = ops.Reduce([torch.tensor([3.0, 7.0, 7.0, 1.0]), torch.arange(4, dtype=torch.int32)], [float("-inf"), 0],
                       region(newer, F32, S32, F32, S32), [0])
    assert [f.item() for f in found] == [7.0, 2]


def test_the_forms_with_and_without_a_builder_are_one():
    builder = XlaBuilder("b")
    x = builder.parameter(0, Shape.array(F32, (2, 3)))
    assert ops.Reduce(builder, [x], [0.0], ADD, [1]).shape == Shape.array(F32, (2,))
    assert ops.Reduce(operand=x, init_value=0.0, computation=ADD, dimensions_to_reduce=[0]).shape == Shape.array(F32, (3,))


# ------------------------------------------------------------------------------------------------ errors

X23 = Shape.array(F32, (2, 3))
THREE = region(lambda a, b, c: ops.Add(a, ops.Add(b, c)), F32, F32, F32)
LESS = region(ops.Lt, F32, F32)
VECTORS = XlaBuilder("vectors")
VECTORS = VECTORS.build(ops.Add(VECTORS.parameter(0, Shape.array(F32, (1,))), VECTORS.parameter(1, Shape.array(F32, (1,)))))


@pytest.mark.parametrize(("arguments", "message"), [
    (lambda x: (x, 0.0, ADD, [2]), "out of range"),
    (lambda x: (x, 0.0, ADD, [-1]), "out of range"),
    (lambda x: (x, 0.0, ADD, [1, 1]), "reduced twice"),
    (lambda x: ([x, x], [0.0], ADD, [1]), "as many init values"),
    (lambda x: ([], [], ADD, [1]), "as many init values"),
    (lambda x: (x, 0.0, THREE, [1]), "another number of parameters"),
    (lambda x: (x, 0.0, LESS, [1]), "not of the type of parameter 0"),
    (lambda x: (x, 0.0, ADD_INT, [1]), "init value 0 does not fit"),
    (lambda x: (x, 0.0, VECTORS, [1]), "not a scalar"),
    (lambda x: ([x, ops.Collapse(x, [0, 1])], [0.0, 0.0], region(lambda a, b, c, d: [a, b], F32, F32, F32, F32), [0]),
     "other dimensions than operand 0"),
    (lambda x: ([x, x], [0.0, 0.0], region(lambda a, b, c, d: ops.Add(a, b), F32, F32, F32, F32), [0]),
     "another number of values"),
])
def test_reduce_refuses(arguments, message):
    builder = XlaBuilder("b")
    with pytest.raises(InvalidArgument, match=message):
        ops.Reduce(*arguments(builder.parameter(0, X23)))


@pytest.mark.parametrize(("call", "message"), [
    (lambda x, v: ops.Map(x.builder, [x], ADD, [0, 1]), "another number of parameters"),
    (lambda x, v: ops.Map(x.builder, [x, x], ADD, [0]), "all dimensions in order"),
    (lambda x, v: ops.Map(x.builder, [x, x], ADD, [1, 0]), "all dimensions in order"),
    (lambda x, v: ops.Map(x.builder, [x, v], ADD, [0, 1]), "other dimensions"),
    (lambda x, v: ops.Map(x.builder, [x, x], ADD_INT, [0, 1]), "does not fit parameter 0"),
    (lambda x, v: ops.Map(x.builder, [x, x], ADD, [0, 1], [v]), "static operands"),
    (lambda x, v: ops.BatchNormTraining(x, v, v, 1e-3, 2), "feature_index is out of range"),
    (lambda x, v: ops.BatchNormTraining(x, v, v, 1e-3, 0), "one element for each feature"),
    (lambda x, v: ops.BatchNormTraining(ops.ConvertElementType(x, S32), v, v, 1e-3, 1), "not floating"),
    (lambda x, v: ops.BatchNormInference(x, v, v, x, v, 1e-3, 1), "mean does not have"),
    (lambda x, v: ops.BatchNormGrad(x, v, v, v, v, 1e-3, 1), "grad_output does not have"),
    (lambda x, v: ops.Scan([x], [v], ADD, 2), "no dimension 2"),
    (lambda x, v: ops.Scan([x], [v], ADD, 0), "does not fit"),
    (lambda x, v: ops.Scan([], [v], ADD, 0), "at least one input"),
])
def test_map_scan_and_batch_norm_refuse(call, message):
    builder = XlaBuilder("b")
    with pytest.raises(InvalidArgument, match=message):
        call(builder.parameter(0, X23), builder.parameter(1, Shape.array(F32, (3,))))


# ------------------------------------------------------------------------------------------------ map and scan


@needs_xla
@pytest.mark.parametrize(("text", "step"), [
    ("f32", "divide"), ("u32", "maximum"), ("s8", "multiply"), ("pred", "xor"), ("c64", "add")])
def test_map(text, step):
    shape = shape_text(text, (3, 4))
    program = entry([shape, shape], f"r = {shape} map(p0, p1), dimensions={{0,1}}, to_apply=reducer")
    agree(module(binary_region(text, step), program), values(text, 3, 4), values(text, 3, 4, seed=1))


def test_map_changes_types_and_broadcasts_scalars():
    below = region(ops.Lt, F32, F32)
    result = ops.Map(None, [torch.tensor([1.0, 2.0, 3.0]), 2.0], below, [0])
    assert result.dtype == torch.bool
    assert result.tolist() == [True, False, False]
    constant = region(lambda a: ops.Select(a.builder.constant(True), a.builder.constant(5, S32), a.builder.constant(6, S32)), F32)
    assert ops.Map(None, [torch.zeros(2, 2)], constant, [0, 1]).tolist() == [[5, 5], [5, 5]]


def scan_text(text, step, dims, dim, reverse=False, associative="", apart=False) -> str:
    shape, element = shape_text(text, dims), shape_text(text, without(dims, [dim]))
    body = f"""step {{
  x = {element} parameter(0)
  c = {element} parameter(1)
  y = {element} {step}
  z = {element} multiply(x, c)
  ROOT t = ({element}, {element}) tuple({"z" if apart else "y"}, y)
}}
"""
    return module(body, entry([shape, element], f"r = ({shape}, {element}) scan(p0, p1), dimensions={{{dim}}}, num_carries=1, "
                              f"is_reverse={str(reverse).lower()}, {associative}to_apply=step"))


@needs_xla
@pytest.mark.parametrize(("text", "step"), [
    ("s32", "add(x, c)"), ("s32", "subtract(c, x)"), ("s32", "maximum(c, x)"), ("u32", "minimum(x, c)"), ("f32", "add(c, x)"),
    ("f32", "multiply(x, c)"), ("bf16", "add(x, c)"), ("f32", "subtract(x, c)")])
@pytest.mark.parametrize(("dims", "dim"), [((5,), 0), ((3, 4), 1), ((3, 4), 0)])
def test_scan(text, step, dims, dim):
    x, c = values(text, *dims), values(text, *without(dims, [dim]), seed=1)
    for reverse, apart in itertools.product((False, True), repeat=2):
        agree(scan_text(text, step, dims, dim, reverse, apart=apart), x, c)


def test_document_example_of_scan():
    step = region(lambda x, c: [ops.Add(x, c), ops.Add(x, c)], S32, S32)
    x = torch.tensor([1, 2, 3], dtype=torch.int32)
    forward, backward = (ops.Scan([x], [10], step, 0, is_reverse=r) for r in (False, True))
    assert [t.tolist() for t in forward] == [[11, 13, 16], 16]
    assert [t.tolist() for t in backward] == [[16, 15, 13], 16]


@pytest.mark.parametrize("step", ["add(x, c)", "subtract(c, x)"])
@pytest.mark.parametrize("reverse", [False, True])
def test_scan_of_no_steps_gives_the_init_values(step, reverse):
    stacked, carry = ours(scan_text("f32", step, (0, 2), 0, reverse), np.zeros((0, 2), np.float32), np.array([3, 4], np.float32))
    assert stacked.shape == (0, 2)
    assert carry.tolist() == [3, 4]


def test_a_known_scan_runs_without_a_loop():
    code = xla_torch.parse_hlo(scan_text("s32", "add(c, x)", (4, 8), 1)).python_code()
    assert "running_total" in code
    assert "scan(" not in code
    narrow = scan_text("bf16", "add(c, x)", (4, 8), 1)
    assert "running_total" not in xla_torch.parse_hlo(narrow).python_code()
    allowed = scan_text("bf16", "add(c, x)", (4, 8), 1, associative="is_associative=true, ")
    assert "running_total" in xla_torch.parse_hlo(allowed).python_code()


def test_scan_with_several_inputs_outputs_and_carries():
    def step(x, y, c, d):
        total = ops.Add(c, ops.Mul(x, y))
        return [total, ops.Sub(x, d), ops.Mul(total, total), total, x]

    x, y = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([4.0, 5.0, 6.0])
    one, two, three, total, last = ops.Scan([x, y], [0.5, 10.0], region(step, F32, F32, F32, F32), 0)
    assert one.tolist() == [4.5, 14.5, 32.5]
    assert two.tolist() == [-9.0, 1.0, 1.0]
    assert three.tolist() == [20.25, 210.25, 1056.25]
    assert [total.item(), last.item()] == [32.5, 3.0]


# ------------------------------------------------------------------------------------------------ batch normalisation


@needs_xla
@pytest.mark.parametrize("text", ["f32", "f64", "bf16"])
@pytest.mark.parametrize(("dims", "feature"), [((2, 3), 1), ((2, 3), 0), ((4, 2, 3, 2), 2), ((1, 3), 1)])
def test_batch_normalisation(text, dims, feature):
    full, each = shape_text(text, dims), shape_text(text, [dims[feature]])
    x, g = values(text, *dims), values(text, *dims, seed=1)
    scale, offset, mean, variance = (values(text, dims[feature], seed=s) for s in range(2, 6))
    variance = np.abs(variance)
    three, facts = f"({full}, {each}, {each})", f"epsilon=0.001, feature_index={feature}"
    agree(module(entry([full, each, each], f"r = {three} batch-norm-training(p0, p1, p2), {facts}")), x, scale, offset)
    agree(module(entry([full, each, each, each, each], f"r = {full} batch-norm-inference(p0, p1, p2, p3, p4), {facts}")),
          x, scale, offset, mean, variance)
    agree(module(entry([full, each, each, each, full], f"r = {three} batch-norm-grad(p0, p1, p2, p3, p4), {facts}")),
          x, scale, mean, variance, g)


def test_document_example_of_batch_normalisation():
    ones = torch.ones(2)
    output, mean, variance = ops.BatchNormTraining(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), ones, ones, 0.001, 1)
    torch.testing.assert_close(output, torch.tensor([[0.0005, 0.0005], [1.9995, 1.9995]]), atol=1e-4, rtol=0)
    assert mean.tolist() == [2, 3]
    assert variance.tolist() == [1, 1]


def test_pred_is_reduced_to_pred():
    anything = region(ops.Or, PRED, PRED)
    assert ops.Reduce(torch.tensor([[False, True], [False, False]]), False, anything, [1]).tolist() == [True, False]
