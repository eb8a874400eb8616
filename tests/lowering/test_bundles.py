"""Small ops as one native call: what torch's calls give, which ops go together, and where they may not."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.fx

import xla_torch
from support.native_programs import native_after, sources_of
from xla_torch.codegen import loops
from xla_torch.codegen.compiled import MachineCode, is_available
from xla_torch.core import tuning
from xla_torch.kernels.native_bundles import NativeBundle, bundle, fits
from xla_torch.kernels.native_plans import NativePlan
from xla_torch.lowering.emit import is_of_sizes
from xla_torch.runtime.computation import XlaComputation

pytestmark = pytest.mark.skipif(not is_available(), reason="there is no C compiler")


@pytest.fixture(autouse=True)
def at_once(tmp_path: Path) -> Iterator[None]:
    with native_after(0.0, tmp_path), pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "BUNDLE_LEAST", 2)
        patch.setattr(tuning, "BUNDLED_BY_ONE", 1)
        yield


def program(*lines: str, more: str = "") -> XlaComputation:
    return xla_torch.parse_hlo("\n".join(["HloModule small", more, "ENTRY main {", *lines, "}"]))


def bundles_of(computation: XlaComputation) -> list[NativeBundle | NativePlan]:
    return [m for m in computation.lowered().modules() if isinstance(m, (NativeBundle, NativePlan))]


def inside(computation: XlaComputation) -> list[int]:
    """How many ops each bundle holds."""
    graphs = [m.graph for m in computation.lowered().modules() if isinstance(m, torch.fx.GraphModule)]
    return [len(node.meta["inside"]) for graph in graphs for node in graph.nodes if node.target is bundle]


def in_torch(computation: XlaComputation, arguments: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "NATIVE_AFTER", math.inf)
        again = xla_torch.parse_hlo(computation.to_hlo_text())
        assert not bundles_of(again)
        found = again(*arguments)
    return found if isinstance(found, tuple) else (found,)


def drawn(computation: XlaComputation, seed: int = 0) -> list[torch.Tensor]:
    rng = np.random.default_rng(seed)
    return [torch.from_numpy(np.array(np.asarray(rng.normal(size=s.dimensions) * 3).astype(s.element_type.numpy)))
            for s in computation.program_shape.parameters]


def assert_close(got: tuple[torch.Tensor, ...] | torch.Tensor, want: tuple[torch.Tensor, ...]) -> None:
    got = got if isinstance(got, tuple) else (got,)
    assert len(got) == len(want)
    for one, other in zip(got, want, strict=True):
        assert one.is_contiguous()
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6, equal_nan=True)


PLUS = "plus { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = f32[] add(a, b) }"
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("opcode", ["add", "multiply"])
def test_running_sums_have_torch_s_bits(opcode: str, reverse: bool) -> None:
    """Which element the last digit of a running sum chooses may be all that follows."""
    padding = "0_999" if reverse else "999_0"
    found = program("x = f32[1000] parameter(0)", "m = f32[1000] negate(x)", f"i = f32[] constant({int(opcode == 'multiply')})",
                    f"ROOT s = f32[1000] reduce-window(m, i), window={{size=1000 pad={padding}}}, to_apply=meet",
                    more=f"meet {{ a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = f32[] {opcode}(a, b) }}")
    assert bundles_of(found)
    x = torch.from_numpy(np.random.default_rng(0).uniform(-1.1, -0.9, 1000).astype(np.float32))
    assert torch.equal(found(x), *in_torch(found, [x]))


TOTALS = {"add": 0.0, "multiply": 1.0, "maximum": -math.inf, "minimum": math.inf}


@pytest.mark.parametrize("opcode", TOTALS)
@pytest.mark.parametrize("kind", ["f32", "f64", "bf16", "f16"])
@pytest.mark.parametrize("n", [1, 3, 4, 8, 19, 64])
def test_totals_are_made_side_by_side(n: int, kind: str, opcode: str) -> None:
    """Each row of a matrix has the special value at another place. Sums begin with 2, which counts once."""
    init = 2 if opcode == "add" and kind.startswith("f") and kind != "f16" else TOTALS[opcode]
    more = f"meet {{ a = {kind}[] parameter(0)\n b = {kind}[] parameter(1)\n ROOT r = {kind}[] {opcode}(a, b) }}"
    found = program(f"x = {kind}[{n},{n}] parameter(0)", f"m = {kind}[{n},{n}] negate(x)", f"i = {kind}[] constant({init})",
                    f"s = {kind}[{n}] reduce(m, i), dimensions={{1}}, to_apply=meet", f"ROOT r = {kind}[{n}] negate(s)",
                    more=more)
    assert bundles_of(found)
    dtype = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16}[kind]
    precision = {"f32": 1e-5, "f64": 1e-12, "bf16": 0.01, "f16": 0.002}[kind]
    for special in (1.25, math.nan, math.inf, -math.inf, -0.0):
        values = torch.from_numpy(np.random.default_rng(0).uniform(0.5, 1.5, (n, n)))
        x = values.fill_diagonal_(special).to(dtype)
        with np.errstate(invalid="ignore"):
            want = -getattr(np, opcode).reduce(-x.double().numpy(), axis=1, initial=init)
        np.testing.assert_allclose(found(x).double().numpy(), want, rtol=precision, atol=precision)


CHAIN = ["x = f32[4,8] parameter(0)", "e = f32[4,8] tanh(x)", "t = f32[8,4] transpose(e), dimensions={1,0}",
         "d = f32[4,4] dot(e, t), lhs_contracting_dims={1}, rhs_contracting_dims={0}", "zero = f32[] constant(0)",
         "s = f32[4] reduce(d, zero), dimensions={1}, to_apply=plus", "b = f32[4,4] broadcast(s), dimensions={0}",
         "c = f32[4,8] concatenate(b, d), dimensions={1}"]
SORT = ["k = f32[6] parameter(0)", "i = s32[6] iota(), iota_dimension=0",
        "w = (f32[6], s32[6]) sort(k, i), dimensions={0}, is_stable=true, to_apply=less",
        "a = f32[6] get-tuple-element(w), index=0", "n = s32[6] get-tuple-element(w), index=1", "m = f32[6] negate(a)"]
LESS = """less { a = f32[] parameter(0)
 b = f32[] parameter(1)
 i = s32[] parameter(2)
 j = s32[] parameter(3)
 ROOT r = pred[] compare(a, b), direction=LT }"""
FAR = "f = f32[3,3] cholesky(p)"


@pytest.mark.parametrize(("lines", "more", "ops"), [
    ([*CHAIN, "ROOT r = f32[4,8] add(c, x)"], PLUS, [7]),
    ([*CHAIN, "ROOT r = (f32[4,8], f32[4,4], f32[4]) tuple(c, d, s)"], PLUS, [6]),
    ([*SORT, "ROOT r = (f32[6], s32[6], f32[6]) tuple(a, n, m)"], LESS, [4]),
    # Constants, and what follows from them alone, each bundle has itself.
    (["x = f64[3] parameter(0)", "c = f64[3] constant({1, 2, 3})", "h = f64[] constant(0.5)",
      "b = f64[3] broadcast(h), dimensions={}", "i = s32[3] iota(), iota_dimension=0", "j = f64[3] convert(i)",
      "y = f64[3] multiply(x, c)", "z = f64[3] add(y, b)",
      "ROOT r = f64[3] subtract(z, j)"], "", [4]),
    # A large op divides what stands before it from what stands behind it, but for what does not depend on it.
    (["p = f32[3,3] parameter(0)", "t = f32[3,3] transpose(p), dimensions={1,0}", "q = f32[3,3] add(p, t)", "a = f32[3,3] abs(q)",
      "z = f32[] constant(2)", "l = f32[3,20000] pad(q, z), padding=0_0x0_19997",
      "c = f32[3,3] slice(l), slice={[0:3], [1:4]}",
      "m = f32[3,3] cosine(c)", "e = f32[3,3] add(a, m)", "n = f32[3,3] negate(a)",
      "ROOT r = (f32[3,3], f32[3,3]) tuple(e, n)"], "", [4, 3]),
    (["x = s8[5] parameter(0)", "y = s8[5] parameter(1)", "a = s8[5] add(x, y)", "m = s8[5] multiply(a, a)",
      "c = pred[5] compare(m, x), direction=LT", "ROOT s = s8[5] select(c, m, y)"], "", [4]),
    # What only has other places is no result: neither are two of them a bundle.
    (["x = f32[3] parameter(0)", "a = f32[3] negate(x)", "s = f32[3] multiply(a, x)", "b = f32[2,3] broadcast(s), dimensions={1}",
      "t = f32[3,2] transpose(b), dimensions={1,0}", "n = f32[3,2] add(t, t)", "ROOT r = (f32[3,2], f32[3,2]) tuple(n, t)"],
     "", [5]),
    (["x = f32[3] parameter(0)", "b = f32[2,3] broadcast(x), dimensions={1}", "t = f32[3,2] transpose(b), dimensions={1,0}",
      "s = f32[2,2] slice(t), slice={[0:2], [0:2]}", "ROOT r = (f32[2,2], f32[3,2]) tuple(s, t)"], "", []),
    (["x = u32[] parameter(0)", "a = u32[] add(x, x)", "b = u32[] multiply(a, x)", "ROOT r = (u32[]) tuple(b)"], "", []),
    # What has no code of its type is a call of torch's within.
    (["x = u64[3] parameter(0)", "m = u64[3] add(x, x)", "n = u64[3] multiply(m, x)", "ROOT b = u32[3,2] bitcast-convert(n)"],
     "", [3]),
])
def test_which_ops_go_together(lines: list[str], more: str, ops: list[int]) -> None:
    computation = program(*lines, more=more)
    assert inside(computation) == ops
    for seed in range(2):
        arguments = drawn(computation, seed)
        assert_close(computation(*arguments), in_torch(computation, arguments))
    assert all(native.seconds == 0 for native in bundles_of(computation))


XOR = "xor { a = u32[] parameter(0)\n b = u32[] parameter(1)\n ROOT r = u32[] xor(a, b) }"


@pytest.mark.parametrize("lines", [
    # gcc 12 made wrong masks of reads under conditions, of which there were some in an inner loop.
    ["x = u32[1,4,3] parameter(0)", "m = u32[1,4,3] multiply(x, x)", "z = u32[] constant(0)",
      "ROOT w = u32[1,6,3] reduce-window(m, z), window={size=2x1x1 stride=1x1x2 pad=0_1x0_2x0_2 rhs_dilate=1x2x1}, to_apply=xor"],
    ["x = u32[5,6] parameter(0)", "m = u32[5,6] multiply(x, x)", "z = u32[] constant(7)",
      "ROOT w = u32[4,4] reduce-window(m, z), window={size=3x2 stride=2x1 pad=3_4x-2_3 rhs_dilate=2x3}, to_apply=xor"],
    ["x = s32[3,5] parameter(0)", "m = s32[3,5] multiply(x, x)", "z = s32[] constant(9)",
      "ROOT w = s32[7,4] pad(m, z), padding=-1_3_1x2_-3_0"],
    ["x = s32[2,5] parameter(0)", "m = s32[2,5] multiply(x, x)", "z = s32[] constant(9)",
      "ROOT w = s32[3,3] pad(m, z), padding=-4_4_1x-5_3_0"],
])
def test_where_elements_are_left_out(lines: list[str]) -> None:
    computation = program(*lines, more=XOR)
    assert bundles_of(computation)
    arguments = drawn(computation)
    assert_close(computation(*arguments), in_torch(computation, arguments))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.0, 1e-42, 3e38])
def test_special_numbers(value: float) -> None:
    computation = program("x = f32[4] parameter(0)", "a = f32[4] multiply(x, x)", "b = f32[4] maximum(a, x)",
                          "c = pred[4] compare(b, x), direction=GE", "e = f32[4] exponential(x)", "d = f32[4] select(c, b, e)",
                          "ROOT r = (f32[4], f32[4], pred[4]) tuple(d, e, c)")
    arguments = [torch.tensor([value, 1.0, -value, value])]
    assert inside(computation) == [5]
    for got, want in zip(computation(*arguments), in_torch(computation, arguments), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-6, atol=0, equal_nan=True)


SQUARES = ["x = f32[16] parameter(0)", *[f"x{k} = f32[16] multiply({f'x{k - 1}' if k else 'x'}, x)" for k in range(5)],
           "x5 = f32[16] reverse(x4), dimensions={0}"]


@pytest.mark.parametrize(("constant", "value", "ops"), [
    ("BUNDLE_LEAST", 6, [6]), ("BUNDLE_LEAST", 7, []), ("BUNDLE_MOST", 6, [6]), ("BUNDLE_MOST", 5, [6]),
    ("BUNDLE_MOST", 4, [6]),
    ("BUNDLED_UP_TO", 16, [6]), ("BUNDLED_UP_TO", 15, []),
    ("NATIVE_AFTER", math.inf, []), ("WITHOUT_PASSES", frozenset({"bundles"}), [])])
def test_limits(constant: str, value: float, ops: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, constant, value)
    computation = program(*SQUARES, "ROOT r = (f32[16]) tuple(x5)")
    assert inside(computation) == ops
    arguments = drawn(computation)
    assert_close(computation(*arguments), in_torch(computation, arguments))


@pytest.mark.parametrize(("under", "ops"), [(6.0, [3]), (5.9, [])])
def test_limits_of_work(under: float, ops: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """That of hyperbolic tangents beyond torch's own."""
    monkeypatch.setattr(tuning, "NATIVE_UNDER", under)
    computation = program("x = f32[16] parameter(0)", "a = f32[16] tanh(x)", "b = f32[16] tanh(a)", "ROOT r = f32[16] tanh(b)")
    assert inside(computation) == ops


@pytest.mark.parametrize(("times", "ops"), [(4, [4]), (3, [])])
def test_limits_of_passes(times: int, ops: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes once through arrays may have more elements, the fewer threads torch has; a gather may not."""
    monkeypatch.setattr(tuning, "BUNDLED_UP_TO", 4)
    monkeypatch.setattr(tuning, "BUNDLED_BY_ONE", times * torch.get_num_threads())
    computation = program("x = f32[4,4] parameter(0)", "i = s32[16,1] parameter(1)", "a = f32[4,4] add(x, x)",
                          "t = f32[4,4] transpose(a), dimensions={1,0}", "b = f32[4,4] multiply(t, a)", "c = f32[4,4] negate(b)",
                          "ROOT g = f32[16,4] gather(c, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, "
                          "index_vector_dim=1, slice_sizes={1,4}")
    assert inside(computation) == ops
    arguments = [torch.randn(4, 4), torch.arange(16, dtype=torch.int32)[:, None] % 4]
    assert_close(computation(*arguments), in_torch(computation, arguments))


@pytest.mark.parametrize(("up_to", "ops"), [(64, [2]), (63, [])])
def test_limits_of_products(up_to: int, ops: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "BUNDLED_PRODUCTS", up_to)
    computation = program("x = f32[4,4] parameter(0)",
                          "d = f32[4,4] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
                          "ROOT r = f32[4,4] negate(d)")
    assert inside(computation) == ops


@pytest.mark.parametrize(("on_stack", "given"), [(320, 0), (319, 320)])
def test_little_memory_is_the_function_s_own(on_stack: int, given: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "_ON_STACK", on_stack)
    computation = program("x = f32[64] parameter(0)", "a = f32[64] sine(x)", "b = f32[64] multiply(a, a)",
                          "ROOT r = f32[64] reverse(b), dimensions={0}")
    (source,) = sources_of(computation)
    assert source.scratch == given
    arguments = drawn(computation)
    assert_close(computation(*arguments), in_torch(computation, arguments))


@pytest.mark.parametrize(("most", "calls"), [(30, "bundle"), (29, "foreach")])
def test_many_results_are_a_foreach(most: int, calls: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An optimizer's updates have equal code, which a foreach has once."""
    monkeypatch.setattr(tuning, "BUNDLE_MOST", most)
    lines = [f"{n}{k} = f32[{k + 1}] {op}" for k in range(10) for n, op in (
        ("p", f"parameter({k})"), ("a", f"multiply(p{k}, p{k})"), ("b", f"add(a{k}, p{k})"), ("c", f"negate(b{k})"))]
    shapes = ", ".join(f"f32[{k + 1}]" for k in range(10))
    computation = program(*lines, f"ROOT r = ({shapes}) tuple({', '.join(f'c{k}' for k in range(10))})")
    code = computation.lowered().code
    assert [f"{name}(" in code for name in ("bundle", "foreach")] == [calls == "bundle", calls == "foreach"]
    arguments = drawn(computation)
    assert_close(computation(*arguments), in_torch(computation, arguments))


@pytest.mark.parametrize("is_tuple", [True, False])
@pytest.mark.parametrize("count", [loops.DEEPEST, loops.DEEPEST + 1, 250, 256, 257, 325, 1500])
def test_a_chain_is_in_bundles_however_long(count: int, is_tuple: bool) -> None:
    """It is no optimizer's end, whose results are many, and no element of it is one expression of all its ops."""
    opcodes = ("negate(v{0})", "add(v{0}, x)", "multiply(v{0}, x)")
    lines = [f"v{k} = f32[8] {opcodes[k % 3].format(k - 1)}" for k in range(1, count + 1)]
    root = f"ROOT r = (f32[8]) tuple(v{count})" if is_tuple else f"ROOT r = f32[8] reverse(v{count}), dimensions={{0}}"
    computation = program("x = f32[8] parameter(0)", "v0 = f32[8] copy(x)", *lines, root)
    assert sum(inside(computation)) >= count
    assert all(source.calls <= tuning.BUNDLE_MOST for source in sources_of(computation))
    arguments = [torch.linspace(-0.9, 0.9, 8)]
    assert_close(computation(*arguments), in_torch(computation, arguments))


@pytest.mark.parametrize(("of_a_result", "calls"), [(3, "foreach"), (2, "bundle")])
def test_many_ops_for_each_result_are_no_foreach(of_a_result: int, calls: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "BUNDLE_MOST", 29)
    monkeypatch.setattr(tuning, "ENDS_OF_A_RESULT", of_a_result)
    lines = [f"{n}{k} = f32[{k + 1}] {op}" for k in range(10) for n, op in (
        ("p", f"parameter({k})"), ("a", f"multiply(p{k}, p{k})"), ("b", f"add(a{k}, p{k})"), ("c", f"negate(b{k})"))]
    shapes = ", ".join(f"f32[{k + 1}]" for k in range(10))
    computation = program(*lines, f"ROOT r = ({shapes}) tuple({', '.join(f'c{k}' for k in range(10))})")
    assert f"{calls}(" in computation.lowered().code


LOOP = """body {
  c = (s32[], f32[3,3], f32[3]) parameter(0)
  i = s32[] get-tuple-element(c), index=0
  m = f32[3,3] get-tuple-element(c), index=1
  v = f32[3] get-tuple-element(c), index=2
  one = s32[] constant(1)
  n = s32[] add(i, one)
  i2 = f32[] convert(i)
  w = f32[100000] broadcast(i2), dimensions={}
  far = f32[100000] sine(w)
  near = f32[3] slice(far), slice={[2:5]}
  a = f32[3] dot(m, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[3] tanh(a)
  u = f32[3] add(t, near)
  h = f32[3] negate(u)
  ROOT r = (s32[], f32[3,3], f32[3]) tuple(n, m, h)
}
holds {
  c = (s32[], f32[3,3], f32[3]) parameter(0)
  i = s32[] get-tuple-element(c), index=0
  five = s32[] constant(5)
  ROOT r = pred[] compare(i, five), direction=LT
}"""
BRANCHES = """up {
  p = f32[4] parameter(0)
  a = f32[4] sine(p)
  ROOT r = f32[4] add(a, p)
}
up_far {
  p = f32[4] parameter(0)
  zero = f32[] constant(0)
  w = f32[100000] pad(p, zero), padding=0_99996
  far = f32[100000] sine(w)
  a = f32[4] slice(far), slice={[0:4]}
  ROOT r = f32[4] add(a, p)
}
down {
  p = f32[4] parameter(0)
  a = f32[4] cosine(p)
  b = f32[4] multiply(a, p)
  ROOT r = f32[4] subtract(b, p)
}"""


def test_in_loops_that_stay_in_torch() -> None:
    """A body with an op that torch does better has its small ops in bundles."""
    computation = program("x = f32[3,3] parameter(0)", "y = f32[3] parameter(1)", "z = s32[] constant(0)",
                          "t = (s32[], f32[3,3], f32[3]) tuple(z, x, y)",
                          "w = (s32[], f32[3,3], f32[3]) while(t), condition=holds, body=body",
                          "ROOT r = f32[3] get-tuple-element(w), index=2", more=LOOP)
    assert sorted(inside(computation)) == [3, 3]
    arguments = drawn(computation)
    assert_close(computation(*arguments), in_torch(computation, arguments))


COUNTED = """step {
  c = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(c), index=0
  x = f32[4] get-tuple-element(c), index=1
  one = s32[] constant(1)
  n = s32[] add(i, one)
  y = f32[4] sine(x)
  ROOT r = (s32[], f32[4]) tuple(n, y)
}
goes_on {
  c = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(c), index=0
  steps = s32[] constant(STEPS)
  ROOT r = pred[] compare(i, steps), direction=LT
}"""


def counting(steps: int) -> XlaComputation:
    return program("x = f32[4] parameter(0)", "z = s32[] constant(0)", "a = f32[4] negate(x)",
                   "t = (s32[], f32[4]) tuple(z, a)", "w = (s32[], f32[4]) while(t), condition=goes_on, body=step",
                   "y = f32[4] get-tuple-element(w), index=1", "ROOT r = f32[4] negate(y)",
                   more=COUNTED.replace("STEPS", str(steps)))


@pytest.mark.parametrize(("steps", "begun"), [(3, 0), (1_500, 1)])
def test_a_bundle_whose_loops_take_long_is_compiled_while_it_is_lowered(steps: int, begun: int,
                                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    """And the loop in it, which torch runs until then, is not compiled by itself."""
    made: list[MachineCode] = []

    def noted(code: MachineCode) -> None:
        made.append(code)

    monkeypatch.setattr(MachineCode, "make", noted)
    monkeypatch.setattr(tuning, "NATIVE_AFTER", 0.005)
    computation = counting(steps)
    assert len(inside(computation)) == 1
    assert len(made) == begun
    computation(*drawn(computation))
    assert len(made) == begun


@pytest.mark.parametrize(("steps", "bundles"), [(3, 1), (10_000, 0)])
def test_long_loops_stay_by_themselves(steps: int, bundles: int) -> None:
    computation = counting(steps)
    assert len(inside(computation)) == bundles
    arguments = drawn(computation)
    assert_close(computation(*arguments), in_torch(computation, arguments))


@pytest.mark.parametrize("chosen", [False, True])
@pytest.mark.parametrize(("up", "bundles"), [("up", [4]), ("up_far", [3])])
def test_branches(up: str, bundles: list[int], chosen: bool) -> None:
    """Whole, with the tuples around it, or where one does what torch does better, those in them."""
    computation = program("p = pred[] parameter(0)", "x = f32[4] parameter(1)",
                          f"ROOT c = f32[4] conditional(p, x, x), true_computation={up}, false_computation=down", more=BRANCHES)
    assert sorted(inside(computation)) == bundles
    arguments = [torch.tensor(chosen), torch.tensor([1.0, 2.0, -3.0, 0.5])]
    assert_close(computation(*arguments), in_torch(computation, arguments))


def test_arguments_that_lie_otherwise_and_those_that_torch_must_see() -> None:
    computation = program(*CHAIN, "ROOT r = f32[4,8] add(c, x)", more=PLUS)
    (argument,) = drawn(computation)
    want = in_torch(computation, [argument])
    assert_close(computation(argument.t().contiguous().t()), want)
    assert_close(computation(torch.stack([argument, argument], 2)[:, :, 1]), want)
    assert [b.seconds for b in bundles_of(computation)] == [0]
    (native,) = bundles_of(computation)
    assert not fits(native, (argument.double(),))
    assert not fits(native, (argument.clone().requires_grad_(),))
    batched = torch.func.vmap(computation)(torch.stack([argument, argument + 1]))
    assert_close(batched[0].contiguous(), want)


PART = ["x = f32[200,200] parameter(0)", "i = s32[2,1] parameter(1)", "z = s32[] constant(7)",
        "g = f32[2,200] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, "
        "slice_sizes={1,200}", "d = f32[2,200] dynamic-slice(x, z, z), dynamic_slice_sizes={2,200}",
        "l = f32[2,200] slice(x), slice={[3:5], [0:200]}", "a = f32[2,200] add(g, d)", "ROOT r = f32[2,200] multiply(a, l)"]


def test_parts_of_what_is_large() -> None:
    """It is no member of a bundle, but read by one, if that need not copy it."""
    computation = program(*PART)
    assert inside(computation) == [5]
    (native,) = bundles_of(computation)
    arguments = [torch.randn(200, 200), torch.tensor([[3], [270]], dtype=torch.int32)]
    assert_close(computation(*arguments), in_torch(computation, arguments))
    assert native.seconds == 0
    turned = [arguments[0].t().contiguous().t(), arguments[1]]
    assert not turned[0].is_contiguous()
    assert_close(computation(*turned), in_torch(computation, arguments))
    assert native.seconds > 0


def test_gradients_are_those_of_torch() -> None:
    computation = program(*CHAIN, "ROOT r = f32[4,8] add(c, x)", more=PLUS)
    (argument,) = drawn(computation)
    found, want = argument.clone().requires_grad_(), argument.clone().requires_grad_()
    computation(found).square().sum().backward()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "NATIVE_AFTER", math.inf)
        xla_torch.parse_hlo(computation.to_hlo_text())(want).square().sum().backward()
    torch.testing.assert_close(found.grad, want.grad)


def test_copies_have_no_code_until_they_ask() -> None:
    computation = program(*CHAIN, "ROOT r = f32[4,8] add(c, x)", more=PLUS)
    arguments = drawn(computation)
    want = computation(*arguments)
    (native,) = bundles_of(computation)
    again = copy.deepcopy(native)
    assert again.code is None
    assert again.is_ready()
    assert isinstance(want, torch.Tensor)


def test_a_long_chain_of_bundles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bundles are found without recursion, however many depend on each other."""
    monkeypatch.setattr(tuning, "NATIVE_AFTER", 1e9)
    lines = ["x = f32[4] parameter(0)", "y0 = f32[4] negate(x)"]
    for k in range(1500):
        lines += [f"a{k} = f32[4] add(y{k}, x)", f"b{k} = f32[4] multiply(a{k}, x)",
                  f"p{k} = f32[20000] pad(b{k}, z), padding=0_19996", f"y{k + 1} = f32[4] slice(p{k}), slice={{[0:4]}}"]
    lines.insert(1, "z = f32[] constant(0)")
    computation = program(*lines, "ROOT r = f32[4] negate(y1500)")
    assert inside(computation) == [3] * 1500


def test_sizes_that_stand_for_many_are_in_no_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose source would be about one of them."""
    function = jax.jit(lambda x: jnp.tanh(x * 2 + 1) - x.mean())
    (n,) = jax.export.symbolic_shape("n")
    exported = jax.export.export(function)(jax.ShapeDtypeStruct((n, 4), jnp.float32))
    monkeypatch.setattr("xla_torch.lowering.bundles.fuse_small", lambda computation, weight, least: (
        asked.extend(weight(i) for i in computation.instructions if is_of_sizes(i)), computation)[1])
    asked: list[int | None] = []
    computation = xla_torch.from_stablehlo(exported.mlir_module_serialized)
    for size in (3, 5):
        x = np.arange(4 * size, dtype=np.float32).reshape(size, 4)
        np.testing.assert_allclose(computation(torch.from_numpy(x)), function(x), rtol=1e-5)
    assert asked
    assert set(asked) == {None}
