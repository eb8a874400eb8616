"""Lowering: what the generated PyTorch looks like, and that nothing from a file gets into it unwashed."""

import ast
import gc
import threading
import weakref

import numpy as np
import pytest
import torch

import xla_torch
from support.counting import Counted
from support.oracle import run_xla
from xla_torch import XlaBuilder, ops
from xla_torch.errors import DeviceError, InvalidArgument
from xla_torch.lowering.emit import comment, identifier


def program(body: str, header: str = "HloModule m"):
    return xla_torch.parse_hlo(f"{header}\n\n{body}")


CHAIN = """ENTRY %main (x: f32[4,3]) -> f32[4,3] {
  %x = f32[4,3] parameter(0)
  %half = f32[] constant(0.5)
  %halves = f32[4,3] broadcast(%half), dimensions={}
  %dead = f32[4,3] exponential(%x)
  %scaled.1 = f32[4,3] multiply(%x, %halves)
  ROOT %out.2 = f32[4,3] tanh(%scaled.1)
}"""


def test_scalars_are_folded_and_dead_code_is_gone():
    code = program(CHAIN).python_code()
    assert "x * 0.5" in code
    assert "exp" not in code
    assert "broadcast" not in code
    assert "expand" not in code


@pytest.mark.parametrize(("opcode", "init", "dims", "is_one"), [
    ("add", "0", "1", True), ("maximum", "-inf", "1", True), ("multiply", "1", "1", True), ("add", "3", "1", False),
    ("maximum", "0", "1", False), ("add", "0", "0,1", False)])
def test_the_total_of_one_element_is_the_element(opcode: str, init: str, dims: str, is_one: bool):
    results = "f32[5]" if dims == "1" else "f32[]"
    text = f"""HloModule m
meet {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] {opcode}(a, b) }}
ENTRY e {{ x = f32[5,1] parameter(0) i = f32[] constant({init})
  ROOT r = {results} reduce(x, i), dimensions={{{dims}}}, to_apply=meet }}"""
    computation, x = xla_torch.parse_hlo(text), np.array([[1.5], [-0.0], [-2], [np.nan], [np.inf]], np.float32)
    code = computation.python_code()
    assert ("reshape" in code and not any(f"torch.{name}" in code for name in ("sum", "amax", "prod"))) == is_one
    (got,) = computation.run_numpy(x)
    want = getattr(np, opcode).reduce(x, axis=tuple(map(int, dims.split(","))), initial=float(init))
    np.testing.assert_array_equal(got, want)
    if is_one:  # XLA takes the element whatever the init is
        np.testing.assert_array_equal(got, run_xla(text, x)[0])


def test_what_constants_alone_give_is_made_with_the_program():
    computation = program("""add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
ENTRY main {
  x = f32[4] parameter(0)
  c = f32[4] constant({5, -7, 9, 3})
  d = f32[4] constant({2, 4, 5, 2})
  i = s32[3,1] constant({{1}, {3}, {1}})
  u = f32[3] constant({10, 20, 30})
  m = f32[4] remainder(c, d)
  s = f32[4] scatter(m, i, u), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0},
    index_vector_dim=1, to_apply=add
  g = f32[3] gather(s, i), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1}
  z = f32[] constant(0)
  p = f32[4] pad(g, z), padding=0_1
  ROOT r = f32[4] add(x, p)
}""")
    code = computation.python_code()
    assert not any(name in code for name in ("remainder(", "scatter(", "take(", "gather("))
    assert computation(torch.zeros(4)).tolist() == [37.0, 21.0, 37.0, 0.0]


def test_each_line_carries_its_hlo_name():
    lines = program(CHAIN).python_code().splitlines()
    assert any("scaled_1 =" in line and line.endswith("# %scaled.1") for line in lines)
    assert any("out_2 =" in line and line.endswith("# %out.2") for line in lines)


def test_generated_code_is_python():
    ast.parse(program(CHAIN).python_code())


HOSTILE = ["forward", "self", "inf", "nan", "torch", "device", "operator", "print", "None", "class", "lambda", "__import__", "_",
           "xla_torch_kernels_loops_counted_loop", "a.b-c", "x" * 300]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_run_as_what_they_are(name):
    computation = program(f"""ENTRY main {{
  %{name} = f32[2] parameter(0)
  %{name}.1 = f32[2] add(%{name}, %{name})
  ROOT %{name}.2 = f32[2] multiply(%{name}.1, %{name})
}}""")
    out = computation(torch.tensor([1.0, 2.0]))
    assert out.tolist() == [2.0, 8.0]
    ast.parse(computation.python_code())


@pytest.mark.parametrize("text", ["a\nimport os", "x'); import os; ('", "\x00\r\u2028", "é" * 500, "..", "9lives", ""])
def test_sanitisers(text):
    word = identifier(text)
    assert word.isidentifier()
    assert word.isascii()
    assert "\n" not in comment(text)
    assert "\r" not in comment(text)
    assert len(comment(text)) <= 120
    assert "\u2028" not in comment(text)


def test_metadata_never_reaches_code():
    computation = program("""ENTRY main {
  x = f32[] parameter(0)
  ROOT y = f32[] negate(x), metadata={op_name="\\n__import__('os').system('false')" source_file="a\\nb"}
}""")
    assert "import" not in computation.python_code()
    assert computation(torch.tensor(2.0)).item() == -2.0


LOOP = """%body (t: (s32[], f32[{n},2], f32[{n},2])) -> (s32[], f32[{n},2], f32[{n},2]) {{
  %t = (s32[], f32[{n},2], f32[{n},2]) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %xs = f32[{n},2] get-tuple-element(%t), index=1
  %ys = f32[{n},2] get-tuple-element(%t), index=2
  %zero = s32[] constant(0)
  %n = s32[] constant({n})
  %negative = pred[] compare(%i, %zero), direction=LT
  %wrapped = s32[] add(%i, %n)
  %at = s32[] select(%negative, %wrapped, %i)
  %row = f32[1,2] dynamic-slice(%xs, %at, %zero), dynamic_slice_sizes={{1,2}}
  %twice = f32[1,2] add(%row, %row)
  %next = f32[{n},2] dynamic-update-slice(%ys, %twice, %at, %zero)
  %one = s32[] constant(1)
  %j = s32[] add(%i, %one)
  ROOT %r = (s32[], f32[{n},2], f32[{n},2]) tuple(%j, %xs, %next)
}}

%cond (t: (s32[], f32[{n},2], f32[{n},2])) -> pred[] {{
  %t = (s32[], f32[{n},2], f32[{n},2]) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %n = s32[] constant({n})
  ROOT %lt = pred[] compare(%i, %n), direction=LT
}}

ENTRY %main (xs: f32[{n},2], ys: f32[{n},2]) -> (s32[], f32[{n},2]) {{
  %xs = f32[{n},2] parameter(0)
  %ys = f32[{n},2] parameter(1)
  %zero = s32[] constant(0)
  %init = (s32[], f32[{n},2], f32[{n},2]) tuple(%zero, %xs, %ys)
  %loop = (s32[], f32[{n},2], f32[{n},2]) while(%init), condition=%cond, body=%body
  %i = s32[] get-tuple-element(%loop), index=0
  %out = f32[{n},2] get-tuple-element(%loop), index=2
  ROOT %r = (s32[], f32[{n},2]) tuple(%i, %out)
}}"""


def test_counted_loop_keeps_its_counter_on_the_host_and_writes_in_place():
    computation = program(LOOP.format(n=6))
    code = computation.python_code()
    assert "counted_loop" in code
    assert "(0, 6, 1)" in code
    assert "dynamic_update_slice_(" in code
    assert "where" not in code
    assert "<" not in code, "the interval of the counter decides the index wrap"
    xs, ys = torch.randn(6, 2), torch.full((6, 2), 7.0)
    count, out = computation(xs, ys)
    assert count.item() == 6
    assert count.dtype is torch.int32
    torch.testing.assert_close(out, 2 * xs)
    assert ys.eq(7).all(), "an argument is never written to"


def test_results_share_memory_with_nothing():
    computation = program("""ENTRY main {
  x = f32[3] parameter(0)
  c = f32[3] constant({1, 2, 3})
  y = f32[3,1] reshape(x)
  z = f32[3] negate(x)
  w = f32[1,3] reshape(z)
  ROOT r = (f32[3], f32[3], f32[3,1], f32[3], f32[1,3], f32[3]) tuple(x, c, y, z, w, z)
}""")
    x = torch.tensor([1.0, 2.0, 3.0])
    first = computation(x)
    want = [r.clone() for r in first]
    assert len({r.data_ptr() for r in (*first, x)}) == 7
    for result in first:
        result.fill_(-1)
    assert x.tolist() == [1.0, 2.0, 3.0]
    for got, expected in zip(computation(x), want, strict=True):
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("part", [
    "f32[64,256] slice(hK), slice={[64:128], [0:256]}", "f32[256,64] slice(hK), slice={[0:256], [64:128]}",
    "f32[256,64] dynamic-slice(hK, zero, s), dynamic_slice_sizes={256,64}"], ids=["rows", "columns", "columns from a place"])
def test_a_result_does_not_keep_what_it_is_a_part_of(part: str):
    """Neither while the program runs on nor afterwards."""
    steps = 8
    products = "".join(f"  h{k + 1} = f32[256,256] dot(h{k}, h{k}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}\n"
                       f"  p{k + 1} = {part.replace('hK', f'h{k + 1}')}\n" for k in range(steps))
    listed, shapes = (", ".join(texts) for texts in ([f"p{k + 1}" for k in range(steps)], [part.split(maxsplit=1)[0]] * steps))
    computation = program("ENTRY main {\n  h0 = f32[256,256] parameter(0)\n  s = s32[] parameter(1)\n  zero = s32[] constant(0)\n"
                          f"{products}  ROOT r = ({shapes}) tuple({listed})\n}}")
    x, at = torch.linalg.qr(torch.randn(256, 256))[0], torch.tensor(64, dtype=torch.int32)
    want, power = [], x
    for _ in range(steps):
        power = power @ power
        want.append(power[64:128] if "[64,256]" in part else power[:, 64:128])
    found = computation(x, at)
    for own, theirs in zip(found, want, strict=True):
        torch.testing.assert_close(own, theirs, rtol=1e-4, atol=1e-5)
        assert own.untyped_storage().nbytes() == own.nbytes
    assert Counted.of(computation, x, at).peak < (steps / 4 + 3) * x.nbytes


@pytest.mark.parametrize(("side", "is_kept"), [(128, True), (256, False)])
def test_a_part_keeps_a_small_array(side: int, is_kept: bool):
    """To either side of tuning.LARGE: a copy would take as long as the rest."""
    computation = program(f"""ENTRY main {{
  x = f32[{side},{side}] parameter(0)
  d = f32[{side},{side}] dot(x, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT p = f32[2,{side}] slice(d), slice={{[0:2], [0:{side}]}}
}}""")
    x = torch.randn(side, side)
    found = computation(x)
    torch.testing.assert_close(found, (x @ x)[:2], rtol=1e-4, atol=1e-4)
    assert (found.untyped_storage().nbytes() == x.nbytes) == is_kept


def test_large_elementwise_chains_run_in_blocks_with_equal_results():
    n = 1 << 21
    computation = program(f"""ENTRY main {{
  x = f32[{n}] parameter(0)
  y = f32[{n}] parameter(1)
  s = f32[] parameter(2)
  b = f32[{n}] broadcast(s), dimensions={{}}
  a = f32[{n}] multiply(x, y)
  c = f32[{n}] add(a, b)
  d = f32[{n}] tanh(c)
  m = f32[{n}] negate(d)
  p = pred[{n}] compare(m, x), direction=GT
  e = f32[{n}] select(p, m, x)
  ROOT r = (f32[{n}], f32[{n}], pred[{n}]) tuple(e, c, p)
}}""")
    assert "blocked" in computation.python_code()
    x, y, s = torch.randn(n), torch.randn(n), torch.tensor(0.25)
    e, c, p = computation(x, y, s)
    want = x * y + s
    torch.testing.assert_close(c, want)
    assert torch.equal(p, -torch.tanh(want) > x)
    torch.testing.assert_close(e, torch.where(p, -torch.tanh(want), x))


def test_a_chain_in_blocks_writes_over_an_array_that_dies_there():
    """The second result over the product, which the first must not overwrite: the second still reads it."""
    n = 1024
    computation = program(f"""ENTRY main {{
  x = f32[{n},{n}] parameter(0)
  d = f32[{n},{n}] dot(x, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  a = f32[{n},{n}] tanh(d)
  b = f32[{n},{n}] multiply(a, x)
  c = f32[{n},{n}] subtract(b, d)
  ROOT r = (f32[{n},{n}], f32[{n},{n}]) tuple(a, c)
}}""")
    x = torch.randn(n, n) / n**0.5
    before = x.clone()
    a, c = computation(x)
    torch.testing.assert_close(a, torch.tanh(x @ x))
    torch.testing.assert_close(c, torch.tanh(x @ x) * x - x @ x)
    assert torch.equal(x, before)
    assert "into = (None, 0)" in computation.python_code()
    assert Counted.of(computation, x).peak < 2.6 * x.nbytes


def test_programs_are_safe_to_call_from_several_threads():
    computation = program(CHAIN)
    x = torch.randn(4, 3)
    results: list[torch.Tensor] = []
    threads = [threading.Thread(target=lambda: results.extend(computation(x) for _ in range(50))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 200
    assert all(torch.equal(r, results[0]) for r in results)


@pytest.mark.parametrize(("arguments", "error", "words"), [
    ((), InvalidArgument, ["wrong number of arguments", "got       0", "1 for"]),
    ((torch.zeros(4, 2),), InvalidArgument, ["argument 0 (x)", "f32[4,2]", "f32[4,3]"]),
    ((torch.zeros(4, 3, dtype=torch.float64),), InvalidArgument, ["f64[4,3]", ".to(torch.float32)"]),
    (([1.0],), InvalidArgument, ["not a tensor", "list", "run_numpy"]),
    ((torch.zeros(4, 3, device="meta"),), DeviceError, ["meta"]),
])
def test_bad_arguments_are_refused_by_the_call(arguments, error, words):
    computation = program(CHAIN)
    device = "cpu" if error is DeviceError else None
    with pytest.raises(error) as caught:
        computation(*arguments, device=device)
    for word in words:
        assert word in str(caught.value)


def test_mixed_devices_are_named():
    computation = program("ENTRY e {\n a = f32[2] parameter(0)\n b = f32[2] parameter(1)\n ROOT c = f32[2] add(a, b)\n}")
    with pytest.raises(DeviceError, match=r"cpu, meta"):
        computation(torch.zeros(2), torch.zeros(2, device="meta"))


def test_unsigned_and_narrow_types_at_the_boundary():
    computation = program("ENTRY e {\n a = u32[2] parameter(0)\n b = f8e5m2[2] parameter(1)\n c = u32[2] add(a, a)\n"
                          " d = f8e5m2[2] add(b, b)\n ROOT r = (u32[2], f8e5m2[2]) tuple(c, d)\n}")
    a = torch.tensor([1, 2**31], dtype=torch.uint32)
    c, d = computation(a, torch.tensor([1.0, 3.0]).to(torch.float8_e5m2))
    assert c.dtype is torch.uint32
    assert c.tolist() == [2, 0]
    assert d.dtype is torch.float8_e5m2
    assert d.float().tolist() == [2.0, 6.0]


def test_run_numpy_returns_a_tuple_of_arrays():
    (out,) = program(CHAIN).run_numpy(np.ones((4, 3), np.float32))
    assert out.dtype == np.float32
    assert out.shape == (4, 3)


def test_conditional_runs_one_branch():
    for index, want in [(0, 2.0), (1, -1.0), (2, -1.0), (-5, -1.0)]:
        builder = XlaBuilder("c")
        branches = []
        for build in (lambda x: ops.Add(x, x), ops.Neg):
            inner = XlaBuilder("branch")
            build(ops.Parameter(inner, 0, xla_torch.Shape.parse("f32[]"), "x"))
            branches.append(inner.build())
        i = ops.Parameter(builder, 0, xla_torch.Shape.parse("s32[]"), "i")
        x = ops.Parameter(builder, 1, xla_torch.Shape.parse("f32[]"), "x")
        ops.Conditional(i, branches, [x, x])
        assert builder.build()(torch.tensor(index, dtype=torch.int32), torch.tensor(1.0)).item() == want


def test_data_dependent_while():
    computation = program("""body {
  t = (f32[], s32[]) parameter(0)
  x = f32[] get-tuple-element(t), index=0
  k = s32[] get-tuple-element(t), index=1
  two = f32[] constant(2)
  one = s32[] constant(1)
  y = f32[] divide(x, two)
  j = s32[] add(k, one)
  ROOT r = (f32[], s32[]) tuple(y, j)
}
cond {
  t = (f32[], s32[]) parameter(0)
  x = f32[] get-tuple-element(t), index=0
  one = f32[] constant(1)
  ROOT p = pred[] compare(x, one), direction=GT
}
ENTRY e {
  x = f32[] parameter(0)
  k = s32[] constant(0)
  t = (f32[], s32[]) tuple(x, k)
  ROOT w = (f32[], s32[]) while(t), condition=cond, body=body
}""")
    x, k = computation(torch.tensor(10.0))
    assert (x.item(), k.item()) == (0.625, 4)


def test_views_that_lead_to_the_sizes_before_are_left_out():
    code = program("""ENTRY main {
  x = f32[6,4] parameter(0)
  v = f32[6] parameter(1)
  a = f32[6,1] broadcast(v), dimensions={0}
  b = f32[6] reshape(a)
  c = f32[6,1] reshape(b)
  d = f32[1,6,1] reshape(c)
  e = f32[6] reshape(d)
  f = f32[6,4] broadcast(e), dimensions={0}
  ROOT r = f32[6,4] multiply(x, f)
}""").python_code()
    assert sum(code.count(f".{view}(") for view in ("reshape", "expand", "unsqueeze", "view")) == 1


def test_torch_compile_of_a_program():
    compiled = xla_torch.compile(program(CHAIN), backend="eager")
    x = torch.randn(4, 3)
    torch.testing.assert_close(compiled(x), torch.tanh(x * 0.5))
    with pytest.raises(InvalidArgument, match="not a computation"):
        xla_torch.compile(lambda x: x)  # pyright: ignore[reportArgumentType]


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("text", [CHAIN, LOOP.format(n=5)])
def test_programs_run_where_their_arguments_are(text):
    computation = program(text)
    arguments = [torch.randn(s.dimensions) for s in computation.program_shape.parameters]
    want = computation(*arguments)
    got = computation(*[a.cuda() for a in arguments])
    pairs = zip(got, want, strict=True) if isinstance(want, tuple) else [(got, want)]
    for g, w in pairs:
        assert g.is_cuda
        torch.testing.assert_close(g.cpu(), w)


def test_a_written_out_logistic_is_one_call_with_a_gradient_everywhere():
    computation = program("""ENTRY main {
  x = f32[3] parameter(0)
  one = f32[] constant(1)
  ones = f32[3] broadcast(one), dimensions={}
  n = f32[3] negate(x)
  e = f32[3] exponential(n)
  d = f32[3] add(e, ones)
  ROOT y = f32[3] divide(ones, d)
}""")
    assert "torch.sigmoid(x)" in computation.python_code()
    x = torch.tensor([-200.0, 0.0, 3.0], requires_grad=True)
    y = computation(x)
    y.sum().backward()
    torch.testing.assert_close(y, torch.sigmoid(x))
    assert x.grad is not None
    torch.testing.assert_close(x.grad, (y * (1 - y)).detach())


def test_a_carry_that_another_carry_looks_into_is_not_written_over():
    """The second carry is a view of the first, as it was one step ago."""
    computation = program("""body {
  t = (s32[], f32[4], f32[2,2], f32[4]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  now = f32[4] get-tuple-element(t), index=1
  before = f32[2,2] get-tuple-element(t), index=2
  sum = f32[4] get-tuple-element(t), index=3
  one = s32[] constant(1)
  j = s32[] add(i, one)
  f = f32[] convert(j)
  piece = f32[1] reshape(f)
  next = f32[4] dynamic-update-slice(now, piece, i)
  seen = f32[2,2] reshape(next)
  flat = f32[4] reshape(before)
  total = f32[4] add(sum, flat)
  ROOT r = (s32[], f32[4], f32[2,2], f32[4]) tuple(j, next, seen, total)
}
condition {
  t = (s32[], f32[4], f32[2,2], f32[4]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = s32[] constant(4)
  ROOT c = pred[] compare(i, n), direction=LT
}
ENTRY e {
  x = f32[4] parameter(0)
  y = f32[2,2] reshape(x)
  zero = s32[] constant(0)
  t = (s32[], f32[4], f32[2,2], f32[4]) tuple(zero, x, y, x)
  ROOT w = (s32[], f32[4], f32[2,2], f32[4]) while(t), condition=condition, body=body
}""")
    _, now, before, total = computation(torch.zeros(4))
    assert now.tolist() == [1, 2, 3, 4]
    assert before.flatten().tolist() == [1, 2, 3, 4]
    assert total.tolist() == [3, 4, 3, 0]


def test_results_are_freed_without_the_garbage_collector():
    """Nothing that a call leaves behind refers to itself, so memory is free as soon as the results are."""
    computation = program("ENTRY e {\n  p = f32[8] parameter(0)\n  q = f32[8] negate(p)\n  r = f32[8] add(p, p)\n"
                          "  t = (f32[8], f32[8]) tuple(q, r)\n  ROOT o = ((f32[8], f32[8]), f32[8]) tuple(t, q)\n}")
    computation(torch.ones(8))
    gc.disable()
    try:
        (first, second), third = computation(torch.ones(8))
        left = [weakref.ref(result) for result in (first, second, third)]
        del first, second, third
        assert [reference() for reference in left] == [None] * 3
    finally:
        gc.enable()
