"""Regions: what is recognised in them, and that any of them is evaluated on whole arrays at once."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import xla_torch
from support.oracle import needs_xla
from support.reductions import AFFINE, agree, binary_region, close, entry, module, ours, reduce_text, values
from xla_torch.analysis.patterns import counts_along
from xla_torch.analysis.reducers import running_reducer
from xla_torch.analysis.selections import Selection, Ties, selection
from xla_torch.lowering.evaluator import Evaluator
from xla_torch.lowering.scalar_regions import works_on_scalars


def region_in(text: str, name: str):
    """The computation of this name of a module."""
    return next(c for c in xla_torch.parse_hlo(text).module.computations if c.name == name)


# ------------------------------------------------------------------------------------------------ control flow inside

BRANCH = """larger {
  p = (f32[], f32[]) parameter(0)
  a = f32[] get-tuple-element(p), index=0
  b = f32[] get-tuple-element(p), index=1
  ROOT m = f32[] maximum(a, b)
}
sum {
  p = (f32[], f32[]) parameter(0)
  a = f32[] get-tuple-element(p), index=0
  b = f32[] get-tuple-element(p), index=1
  ROOT m = f32[] add(a, b)
}
"""

PICK = BRANCH + """reducer {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  both = pred[] compare(a, b), direction=GT
  t = (f32[], f32[]) tuple(a, b)
  ROOT c = f32[] conditional(both, t, t), true_computation=larger, false_computation=sum
}
"""

CASES = """zero {
  p = f32[] parameter(0)
  n = f32[] negate(p)
  k = s32[] constant(10)
  ROOT r = (f32[], s32[]) tuple(n, k)
}
one {
  p = f32[] parameter(0)
  seven = f32[] constant(7)
  m = f32[] multiply(p, seven)
  k = s32[] convert(m)
  ROOT r = (f32[], s32[]) tuple(m, k)
}
last {
  p = f32[] parameter(0)
  c = f32[] constant(42)
  k = s32[] constant(-1)
  ROOT r = (f32[], s32[]) tuple(c, k)
}
chosen {
  a = f32[] parameter(0)
  s = s32[] convert(a)
  c = (f32[], s32[]) conditional(s, a, a, a), branch_computations={zero, one, last}
  v = f32[] get-tuple-element(c), index=0
  k = s32[] get-tuple-element(c), index=1
  f = f32[] convert(k)
  ROOT r = f32[] add(v, f)
}
"""

DOUBLING = """goes_on {
  p = (s32[], f32[], f32[]) parameter(0)
  x = f32[] get-tuple-element(p), index=1
  l = f32[] get-tuple-element(p), index=2
  ROOT g = pred[] compare(x, l), direction=LT
}
step {
  p = (s32[], f32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[] get-tuple-element(p), index=1
  l = f32[] get-tuple-element(p), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[] add(x, x)
  ROOT t = (s32[], f32[], f32[]) tuple(j, y, l)
}
doublings {
  a = f32[] parameter(0)
  one = f32[] constant(1)
  b = f32[] abs(a)
  c = f32[] add(b, one)
  z = s32[] constant(0)
  l = f32[] constant(37)
  t = (s32[], f32[], f32[]) tuple(z, c, l)
  w = (s32[], f32[], f32[]) while(t), condition=goes_on, body=step
  i = s32[] get-tuple-element(w), index=0
  x = f32[] get-tuple-element(w), index=1
  k = f32[] convert(i)
  ROOT r = f32[] add(k, x)
}
"""

ARRAYS = """plus {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
weighted {
  a = f32[] parameter(0)
  v = f32[4] broadcast(a), dimensions={}
  c = f32[4] constant({1, 2, 3, 4})
  m = f32[4] multiply(v, c)
  z = f32[] constant(0)
  ROOT r = f32[] reduce(m, z), dimensions={0}, to_apply=plus
}
"""


def mapped(region: str, name: str) -> str:
    return module(region, entry(["f32[6,8]"], f"r = f32[6,8] map(p0), dimensions={{0,1}}, to_apply={name}"))


def doublings(x: np.ndarray) -> np.ndarray:
    steps = np.ceil(np.log2(37 / (np.abs(x) + 1)))
    return steps + (np.abs(x) + 1) * 2**steps


def cases(x: np.ndarray) -> np.ndarray:
    return np.select([x.astype(np.int32) == 0, x.astype(np.int32) == 1], [10 - x, 7 * x + (7 * x).astype(np.int32)], 41)


@pytest.mark.parametrize(("region", "name", "reference"), [
    (CASES, "chosen", cases), (DOUBLING, "doublings", doublings), (ARRAYS, "weighted", lambda x: 10 * x)])
def test_branches_loops_and_arrays_inside_a_region(region, name, reference):
    x = 3 * values("f32", 6, 8)
    close(ours(mapped(region, name), x)[0], reference(x).astype(np.float32))


@needs_xla
def test_a_reducer_with_a_branch():
    text = module(PICK, entry(["f32[5,9]"], "i = f32[] constant(-1000)",
                              "r = f32[5] reduce(p0, i), dimensions={1}, to_apply=reducer"))
    agree(text, np.sort(-np.abs(values("f32", 5, 9)), axis=1)[:, ::-1].copy())


def test_a_loop_inside_a_region_runs_without_lowering_too():
    computation = region_in(mapped(DOUBLING, "doublings"), "doublings")
    x = torch.from_numpy(3 * values("f32", 20))
    result, = Evaluator().apply_region(computation, [x], (20,))
    close(result.numpy(), doublings(x.numpy()).astype(np.float32))


def test_arguments_may_be_numbers_and_scalars():
    computation = region_in(reduce_text("f32", "subtract", (3,), [0], "0"), "reducer")
    x = torch.arange(3.0)
    rows = (([x, 1.0], [-1, 0, 1]), ([2.0, x], [2, 1, 0]), ([torch.tensor(5.0), x], [5, 4, 3]), ([4.0, 1.0], [3, 3, 3]))
    for arguments, want in rows:
        result, = Evaluator().apply_region(computation, arguments, (3,))
        assert result.tolist() == want


def test_results_that_do_not_depend_on_all_arguments_have_the_full_shape():
    first = region_in(reduce_text("f32", "ROOT c = T[] copy(a)", (3,), [0], "0"), "reducer")
    result, = Evaluator().apply_region(first, [torch.tensor(5.0), torch.arange(3.0)], (3,))
    assert result.tolist() == [5, 5, 5]
    constant = region_in(reduce_text("f32", "ROOT c = T[] constant(8)", (3,), [0], "0"), "reducer")
    result, = Evaluator().apply_region(constant, [torch.arange(3.0), torch.arange(3.0)], (3,))
    assert result.tolist() == [8, 8, 8]


@pytest.mark.parametrize("dims", [(4, 6), (1, 6), (4, 1)])
def test_a_reducer_that_ignores_its_operands(dims):
    text = reduce_text("f32", "ROOT c = T[] constant(8)", dims, [1], "0")
    assert ours(text, values("f32", *dims))[0].tolist() == [8] * dims[0]


@needs_xla
def test_a_reducer_in_calls():
    text = module(binary_region("f32", "add", "inner"), binary_region("f32", "ROOT c = T[] call(a, b), to_apply=inner", "middle"),
                  binary_region("f32", "ROOT c = T[] call(b, a), to_apply=middle"), entry(
                      ["f32[3,4]"], "i = f32[] constant(0)", "r = f32[3] reduce(p0, i), dimensions={1}, to_apply=reducer"))
    agree(text, values("f32", 3, 4))


def test_a_region_whose_root_is_a_call_that_returns_a_tuple():
    inner = """inner {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT t = (f32[], f32[]) tuple(b, a)
}
outer {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT t = (f32[], f32[]) call(a, b), to_apply=inner
}
"""
    text = module(inner, entry(["f32[]", "f32[]"], "r = (f32[], f32[]) call(p0, p1), to_apply=outer"))
    second, first = Evaluator().apply_region(region_in(text, "outer"), [torch.arange(3.0), 7.0], (3,))
    assert first.tolist() == [0, 1, 2]
    assert second.tolist() == [7, 7, 7]


@needs_xla
def test_parameters_whose_names_differ_in_punctuation_only():
    reducer = """reducer {
  x.1 = f32[] parameter(0)
  x_1 = f32[] parameter(1)
  d = f32[] maximum(x.1, x_1)
  e = f32[] subtract(d, d)
  ROOT c = f32[] add(d, e)
}
"""
    agree(module(reducer, entry(["f32[3,5]"], "i = f32[] constant(-9)",
                                "r = f32[3] reduce(p0, i), dimensions={1}, to_apply=reducer")), values("f32", 3, 5))


def test_scalar_regions_are_recognised():
    assert works_on_scalars(region_in(mapped(DOUBLING, "doublings"), "doublings"))
    assert works_on_scalars(region_in(mapped(CASES, "chosen"), "chosen"))
    assert not works_on_scalars(region_in(mapped(ARRAYS, "weighted"), "weighted"))


# ------------------------------------------------------------------------------------------------ arrays inside

TABLE = """less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = f32[] multiply(a, a)
  d = f32[] multiply(b, b)
  ROOT r = pred[] compare(c, d), direction=LT
}
plus {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
mix {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  half = f32[] constant(0.5)
  c = f32[] multiply(a, half)
  ROOT r = f32[] add(c, b)
}
goes_on {
  p = (s32[], f32[40]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(5)
  ROOT r = pred[] compare(i, n), direction=LT
}
step {
  p = (s32[], f32[40]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[40] get-tuple-element(p), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[40] add(x, x)
  ROOT t = (s32[], f32[40]) tuple(j, y)
}
minus {
  x = f32[40] parameter(0)
  ROOT y = f32[40] negate(x)
}
twice {
  x = f32[40] parameter(0)
  ROOT y = f32[40] add(x, x)
}
inner {
  a = f32[] parameter(0)
  row = f32[40] broadcast(a), dimensions={}
  c = f32[40] constant({%s})
  v = f32[40] add(row, c)
  i = s32[] convert(a)
  one = f32[] constant(1)
  %s
  zero = f32[] constant(0)
  weights = f32[40] constant({%s})
  weighted = f32[40] multiply(s, weights)
  ROOT r = f32[] reduce(weighted, zero), dimensions={0}, to_apply=plus
}
"""

INSIDE = {
    "sort": "s = f32[40] sort(v), dimensions={0}, to_apply=less",
    "dynamic-slice": "d = f32[3] dynamic-slice(c, i), dynamic_slice_sizes={3}\n s = f32[40] pad(d, one), padding=5_32",
    "dynamic-update-slice": "q = f32[3] constant({7, 8, 9})\n s = f32[40] dynamic-update-slice(v, q, i)",
    "gather": "at = s32[40] broadcast(i), dimensions={}\n s = f32[40] gather(v, at), offset_dims={}, collapsed_slice_dims={0}, "
              "start_index_map={0}, index_vector_dim=1, slice_sizes={1}",
    "reduce": "m = f32[] reduce(v, one), dimensions={0}, to_apply=mix\n s = f32[40] broadcast(m), dimensions={}",
    "reduce-window": "s = f32[40] reduce-window(v, one), window={size=3 pad=1_1}, to_apply=mix",
    "scatter": "at = s32[4] broadcast(i), dimensions={}\n u = f32[4] broadcast(a), dimensions={}\n "
               "s = f32[40] scatter(v, at, u), update_window_dims={}, inserted_window_dims={0}, "
               "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=mix",
    "while": "t = (s32[], f32[40]) tuple(i, v)\n w = (s32[], f32[40]) while(t), condition=goes_on, body=step\n "
             "s = f32[40] get-tuple-element(w), index=1",
    "conditional": "p = pred[] compare(a, one), direction=LT\n s = f32[40] conditional(p, v, v), true_computation=minus, "
                   "false_computation=twice",
}


def with_arrays(name: str) -> str:
    """A region "inner" of one scalar, made of arrays."""
    return TABLE % (", ".join(str(17 * k % 41 - 20) for k in range(40)), INSIDE[name], ", ".join(str(k % 7) for k in range(40)))


@pytest.mark.parametrize("name", INSIDE)
def test_regions_that_work_on_arrays(name):
    """XLA's CPU compiler dies of most of these, so the region run by itself is the reference."""
    x = np.array([[-3, 0, 2.5], [1, 4, 6]], np.float32)
    alone = xla_torch.parse_hlo(module(with_arrays(name), entry(["f32[]"], "r = f32[] call(p0), to_apply=inner")))
    want = np.array([alone.run_numpy(v)[0] for v in x.reshape(-1)]).reshape(x.shape)
    text = module(with_arrays(name), entry(["f32[2,3]"], "r = f32[2,3] map(p0), dimensions={0,1}, to_apply=inner"))
    close(ours(text, x)[0], want)


@pytest.mark.parametrize("name", ["sort", "while", "conditional"])
def test_reducers_that_work_on_arrays(name):
    reducer = binary_region("f32", "m = T[] maximum(a, b)\n  k = T[] call(m), to_apply=inner\n  z = T[] constant(0)\n  "
                                   "n = T[] multiply(k, z)\n  ROOT c = T[] add(m, n)")
    text = module(with_arrays(name), reducer, entry(["f32[3,5]"], "i = f32[] constant(-9)",
                                                    "r = f32[3] reduce(p0, i), dimensions={1}, to_apply=reducer"))
    x = values("f32", 3, 5)
    close(ours(text, x)[0], x.max(1))


# ------------------------------------------------------------------------------------------------ gradients

SQUARES = "m = T[] multiply(b, b)\n  ROOT c = T[] add(a, m)"
DECAY = "k = T[] constant(0.5)\n  m = T[] multiply(a, k)\n  ROOT c = T[] add(m, b)"


def affine(op: str, dims: tuple[int, ...], result: str) -> str:
    shape = f"f64[{','.join(map(str, dims))}]"
    return module(AFFINE.replace("f32", "f64"), entry(
        [shape, shape], "i = f64[] constant(1)", "j = f64[] constant(0)", f"both = ({result}, {result}) {op}, to_apply=reducer",
        f"r = {result} get-tuple-element(both), index=1"))


@pytest.mark.parametrize("text", [
    reduce_text("f64", SQUARES, (3, 7), [1], "0"), reduce_text("f64", DECAY, (2, 4, 3), [0, 2], "1"),
    reduce_text("f64", SQUARES, (40,), [0], "0"),
    affine("reduce(p0, p1, i, j), dimensions={0}", (7,), "f64[]"),
    affine("reduce(p0, p1, i, j), dimensions={0,2}", (2, 2, 3), "f64[2]"),
    affine("reduce-window(p0, p1, i, j), window={size=2x3}", (3, 5), "f64[2,3]"),
    *(module(binary_region("f64", step), entry(
        ["f64[5,3]"], "i = f64[] constant(0)",
        "r = f64[3,2] reduce-window(p0, i), window={size=3x2 stride=2x1 pad=1_1x0_0}, to_apply=reducer"))
      for step in (SQUARES, DECAY)),
])
def test_gradients_keep_the_order_of_elements(text):
    computation = xla_torch.parse_hlo(text)
    given = [torch.from_numpy(values("f64", *p.dimensions, seed=k)).requires_grad_()
             for k, p in enumerate(computation.program_shape.parameters)]
    assert torch.autograd.gradcheck(computation, given)


def test_reducers_that_are_not_associative_have_no_gradient_over_a_long_dynamic_dimension():
    """In what pieces it is reduced depends on its size at run time."""
    text = reduce_text("f64", SQUARES, (40,), [0], "0").replace("f64[40]", "f64[<=40]")
    x = torch.ones(35, dtype=torch.float64, requires_grad=True)
    with pytest.raises(xla_torch.errors.DifferentiationError, match="not associative"):
        xla_torch.parse_hlo(text)(x).backward()


# ------------------------------------------------------------------------------------------------ what is recognised


def of_two(step: str, text: str = "f32"):
    return region_in(reduce_text(text, step, (3,), [0], "0"), "reducer")


def pairwise(text: str, keep: str, index: str = "s32"):
    """A reducer of (key, index) that keeps the accumulated pair where `keep` (over a, i, b, j) holds."""
    body = f"""reducer {{
  a = {text}[] parameter(0)
  i = {index}[] parameter(1)
  b = {text}[] parameter(2)
  j = {index}[] parameter(3)
  gt = pred[] compare(a, b), direction=GT
  ge = pred[] compare(a, b), direction=GE
  lt = pred[] compare(a, b), direction=LT
  eq = pred[] compare(a, b), direction=EQ
  old = pred[] compare(a, a), direction=NE
  low = pred[] compare(i, j), direction=LT
  tie = pred[] and(eq, low)
  keep = pred[] {keep}
  v = {text}[] select(keep, a, b)
  k = {index}[] select(keep, i, j)
  ROOT r = ({text}[], {index}[]) tuple(v, k)
}}
"""
    return region_in(module(body, entry([f"{text}[3]", f"{index}[3]"], f"c = {text}[] constant(0)", f"d = {index}[] constant(0)",
                                        f"r = ({text}[], {index}[]) reduce(p0, p1, c, d), dimensions={{0}}, to_apply=reducer")),
                     "reducer")


@pytest.mark.parametrize(("computation", "found"), [
    (pairwise("f32", "or(gt, old)"), None),
    (pairwise("f32", "or(ge, old)"), Selection(0, True, Ties.FIRST)),
    (pairwise("f32", "or(lt, old)"), None),
    (pairwise("f32", "and(ge, ge)"), None),
    (pairwise("s32", "and(ge, ge)"), Selection(0, True, Ties.FIRST)),
    (pairwise("s32", "and(gt, gt)"), Selection(0, True, Ties.LAST)),
    (pairwise("s32", "or(gt, tie)"), Selection(0, True, Ties.LOWEST)),
    (pairwise("u8", "or(lt, tie)"), Selection(0, False, Ties.LOWEST)),
    (pairwise("s32", "and(low, low)"), Selection(1, False, Ties.LAST)),
    (pairwise("s32", "not(eq)"), None),
    (of_two("p = pred[] compare(a, b), direction=GT\n  ROOT c = T[] select(p, a, b)", "s32"), Selection(0, True, Ties.FIRST)),
    (of_two("p = pred[] compare(a, b), direction=GT\n  ROOT c = T[] select(p, a, b)"), None),
    (of_two("add"), None),
])
def test_selections_are_recognised_by_what_they_do(computation, found):
    assert selection(computation) == found


def test_counting_operands_are_recognised():
    text = module(entry(["s32[4]"], "i = s32[4] iota(), iota_dimension=0", "r = s32[3,4] broadcast(i), dimensions={1}",
                        "s = s32[3,4] broadcast(p0), dimensions={1}", "t = (s32[3,4], s32[3,4]) tuple(r, s)"))
    counting, other = xla_torch.parse_hlo(text).entry.root.operands
    assert counts_along(counting, 1)
    assert not counts_along(counting, 0)
    assert not counts_along(other, 1)


@pytest.mark.parametrize(("body", "found"), [
    ("y = f32[] add(x, c)\n  ROOT t = (f32[], f32[]) tuple(y, y)", "add"),
    ("y = f32[] maximum(c, x)\n  ROOT t = (f32[], f32[]) tuple(y, y)", "maximum"),
    ("y = f32[] subtract(c, x)\n  ROOT t = (f32[], f32[]) tuple(y, y)", None),
    ("y = f32[] add(x, x)\n  ROOT t = (f32[], f32[]) tuple(y, y)", None),
    ("y = f32[] add(x, c)\n  ROOT t = (f32[], f32[]) tuple(c, y)", None),
])
def test_running_reducers_are_recognised(body, found):
    step = f"step {{\n  x = f32[] parameter(0)\n  c = f32[] parameter(1)\n  {body}\n}}\n"
    text = module(step, entry(["f32[4]", "f32[]"],
                              "r = (f32[4], f32[]) scan(p0, p1), dimensions={0}, num_carries=1, to_apply=step"))
    assert running_reducer(region_in(text, "step"), 1) == found


# ------------------------------------------------------------------------------------------------ generated code


STEP = "m = T[] multiply(a, b)\n  s = T[] add(a, b)\n  ROOT c = T[] add(m, s)"
"""1 + c = (1 + a)(1 + b): associative, and known to nothing here."""


def test_a_scalar_region_is_written_out_in_the_program():
    code = xla_torch.parse_hlo(mapped(CASES, "chosen")).python_code()
    assert code.count("torch.where(") == 4
    assert "for_each_element" not in code
    assert "for_each_element" in xla_torch.parse_hlo(mapped(ARRAYS, "weighted")).python_code()


def test_an_unknown_reducer_is_one_call():
    text, x = reduce_text("f32", STEP, (4, 100), [1], "0"), 0.1 * values("f32", 4, 100)
    assert xla_torch.parse_hlo(text).python_code().count("reduce_by(") == 1
    close(ours(text, x)[0], (np.prod(1 + x.astype(np.float64), 1) - 1).astype(np.float32))


@pytest.mark.parametrize("text", [
    reduce_text("f32", STEP, (4, 37), [1], "0"),
    reduce_text("f32", STEP, (4, 37, 2), [0, 2], "0"),
    mapped(CASES, "chosen"),
    module(binary_region("f32", STEP), entry(["f32[4,20]"], "i = f32[] constant(0)", "r = f32[4,20] reduce-window(p0, i), "
                                             "window={size=1x20 pad=0_0x19_0}, to_apply=reducer")),
    module(binary_region("f32", STEP), entry(["f32[4,20]"], "i = f32[] constant(0)", "r = f32[4,11] reduce-window(p0, i), "
                                             "window={size=1x12 pad=0_0x1_1}, to_apply=reducer")),
    module(binary_region("f32", "add"), entry(["f32[4,20]"], "i = f32[] constant(0)", "r = f32[5,10] reduce-window(p0, i), "
                                              "window={size=2x2 stride=1x2 pad=1_1x0_0}, to_apply=reducer")),
    module(binary_region("f32", "add"), binary_region("f32", "ROOT c = pred[] compare(a, b), direction=GE", "chooser"), entry(
        ["f32[4,20]"], "i = f32[] constant(0)", "s = f32[3,10] slice(p0), slice={[0:3], [0:10]}",
        "r = f32[4,20] select-and-scatter(p0, s, i), window={size=2x2 stride=1x2}, select=chooser, scatter=reducer")),
])
def test_regions_compile(text):
    computation = xla_torch.parse_hlo(text)
    x = torch.from_numpy(0.1 * values("f32", *computation.program_shape.parameters[0].dimensions))
    torch._dynamo.reset()
    compiled = torch.compile(computation.lowered(), backend="eager", fullgraph=True)
    for got, want in zip(compiled(x), [computation(x)], strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


def test_infinities_and_nan_survive_a_masked_window():
    larger = binary_region("f32", "m = T[] maximum(a, b)\n  d = T[] minimum(a, b)\n  ROOT c = T[] maximum(m, d)")
    text = module(larger, entry(["f32[4]"], "i = f32[] constant(-inf)",
                                "r = f32[5] reduce-window(p0, i), window={size=2 pad=1_1}, to_apply=reducer"))
    got = ours(text, np.array([math.inf, 1, math.nan, -math.inf], np.float32))[0]
    np.testing.assert_array_equal(got, np.array([math.inf, math.inf, math.nan, math.nan, -math.inf], np.float32))
