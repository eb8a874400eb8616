"""Custom calls: XLA's own, functions of the user, and what a call says of itself."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import xla_torch
from support.custom_call import call
from support.jax_oracle import program
from support.oracle import HAS_XLA, needs_xla
from support.scaled_agreement import assert_close
from xla_torch.api.custom_calls import register_custom_call
from xla_torch.errors import ExecutionError, UnsupportedError
from xla_torch.hlo import custom_calls
from xla_torch.hlo.backend_config import parse_config
from xla_torch.hlo.custom_calls import CustomCall

if HAS_XLA:
    import jax

# --------------------------------------------------------------------------------------------- XLA's own

IDENTITIES = ["Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "LayoutConstraint", "MoveToHost", "MoveToDevice",
              "PinToDevice", "annotate_device_placement", "xla.sdy.FuncResultSharding", "ShardBarrierFrom", "ShardBarrierTo"]


@pytest.mark.parametrize("target", IDENTITIES)
def test_marks_pass_values_on(target: str) -> None:
    x = torch.arange(6.0).reshape(2, 3).requires_grad_()
    (found,) = call(target, "f32[2,3]{0,1}", {"f32[2,3]": x})
    assert found.tolist() == x.tolist()
    found.sum().backward()
    assert x.grad is not None
    assert x.grad.eq(1).all()


def test_a_mark_that_changes_the_shape_is_unknown() -> None:
    with pytest.raises(UnsupportedError, match="no function is registered"):
        call("SPMDFullToShardShape", "f32[1,3]", {"f32[2,3]": torch.zeros(2, 3)})


def test_dynamic_sizes_of_compiled_programs() -> None:
    text = """HloModule m
ENTRY e {
  x = s32[2,5] parameter(0)
  n = s32[] parameter(1)
  two = s32[] constant(2)
  d = s32[2,<=5] custom-call(x, two, n), custom_call_target="SliceToDynamic"
  t = (s32[2,5], s32[], s32[]) custom-call(d), custom_call_target="PadToStatic"
  size = s32[] get-tuple-element(t), index=2
  static = s32[2,5] get-tuple-element(t), index=0
  ROOT r = (s32[2,<=5], s32[2,5], s32[]) tuple(d, static, size)
}"""
    x = torch.arange(10, dtype=torch.int32).reshape(2, 5)
    sliced, static, size = xla_torch.parse_hlo(text)(x, torch.tensor(3, dtype=torch.int32))
    assert sliced.tolist() == static[:, :3].tolist() == [[0, 1, 2], [5, 6, 7]]
    assert (static.shape, size) == ((2, 5), 3)


def test_partial_reduction_misses_nothing() -> None:
    text = """HloModule m
gt {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  i = s32[] parameter(2)
  j = s32[] parameter(3)
  ROOT c = pred[] compare(a, b), direction=GT
}
ENTRY e {
  x = f32[2,5] parameter(0)
  i = s32[2,5] iota(), iota_dimension=1
  low = f32[] constant(-inf)
  none = s32[] constant(-1)
  few = (f32[2,3], s32[2,3]) custom-call(x, i, low, none), custom_call_target="PartialReduce", called_computations={gt},
    backend_config={"log2_reduction":1,"reduction_dim":1,"to_apply_type":"comparator","top_k":2,"recall_target":0.95}
  many = (f32[2,7], s32[2,7]) custom-call(x, i, low, none), custom_call_target="PartialReduce", called_computations={gt},
    backend_config={"reduction_dim":1}
  ROOT r = ((f32[2,3], s32[2,3]), (f32[2,7], s32[2,7])) tuple(few, many)
}"""
    x = torch.tensor([[3.0, 1, 4, 1.5, 5], [9, 2, 6, 5, 3]])
    (few, few_at), (many, many_at) = xla_torch.parse_hlo(text)(x)
    assert (few.tolist(), few_at.tolist()) == ([[5, 4, 3], [9, 6, 5]], [[4, 2, 0], [0, 2, 3]])
    assert many[:, 5:].eq(-math.inf).all()
    assert many_at[:, 5:].eq(-1).all()


def test_buffers_and_sinks() -> None:
    text = """HloModule m
ENTRY e {
  x = f32[2] parameter(0)
  s = () custom-call(x), custom_call_target="dce_sink", custom_call_has_side_effect=true
  b = f32[3] custom-call(), custom_call_target="AllocateBuffer"
  ROOT r = (f32[2], f32[3]) tuple(x, b)
}"""
    first, second = xla_torch.parse_hlo(text)(torch.ones(2))
    assert (first.tolist(), second.shape) == ([1, 1], (3,))


# --------------------------------------------------------------------------------------------- the registry


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registrations of a test end with it."""
    monkeypatch.setattr(custom_calls, "_registered", dict(custom_calls._registered))


VARIANTS: list[dict[str, str]] = [
    {}, {"output_to_operand_aliasing": "{{}: (0, {})}"}, {"literal": "s32[2]{0} {1,2}"}, {"schedule": "SCHEDULE_LATEST"},
    {"schedule": "SCHEDULE_EARLIEST"}, {"api_version": "API_VERSION_TYPED_FFI"}, {"api_version": "API_VERSION_STATUS_RETURNING"},
    {"api_version": "API_VERSION_STATUS_RETURNING_UNIFIED"}, {"operand_layout_constraints": "{f32[2,3]{0,1}}"},
    {"custom_call_has_side_effect": "true"}, {"frontend_attributes": '{a="b"}'},
    {"window": "{size=2x2}", "dim_labels": "bf_io->bf"}, {"padding_type": "PADDING_SAME"}, {"operand_precision": "{high}"},
]


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("facts", VARIANTS, ids=lambda facts: next(iter(facts), "plain"))
def test_what_a_call_says_of_itself_does_not_change_its_value(facts: dict[str, str]) -> None:
    """Aliases, literals, schedules, versions, layouts: a function on tensors gets the same operands."""
    register_custom_call("double", lambda x: 2 * x)
    x = torch.arange(6.0).reshape(2, 3)
    given = x.clone()
    (found,) = call("double", "f32[2,3]", {"f32[2,3]": given}, '{"k": 1}', **facts)
    assert found.tolist() == (2 * x).tolist()
    assert given.equal(x)


@pytest.mark.usefixtures("registered")
def test_results_may_be_operands() -> None:
    """As aliases say, or without."""
    register_custom_call("same", lambda x, y: (y, x))
    x, y = torch.ones(2), torch.zeros(2)
    first, second = call("same", "(f32[2], f32[2])", {"f32[2]": x, "f32[2] ": y}, "{}",
                         output_to_operand_aliasing="{{0}: (1, {}), {1}: (0, {})}")
    assert (first.tolist(), second.tolist()) == ([0, 0], [1, 1])


@pytest.mark.usefixtures("registered")
def test_a_users_function_goes_before_ours() -> None:
    for target in ("Sharding", "TopK", "lapack_sgeqrf_ffi"):
        register_custom_call(target, lambda x: x + 1)
        assert call(target, "f32[2]", {"f32[2]": torch.zeros(2)})[0].tolist() == [1, 1]


@pytest.mark.usefixtures("registered")
def test_vjps_of_functions_with_tuples() -> None:
    """Operands and results may be tuples, and integers among them have no cotangent."""
    def function(pair: tuple[torch.Tensor, torch.Tensor], n: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return pair[0] * pair[1] * n, n

    register_custom_call("product", function)
    text = """HloModule m
ENTRY e {
  x = f64[2] parameter(0)
  y = f64[2] parameter(1)
  n = s32[] parameter(2)
  p = (f64[2], f64[2]) tuple(x, y)
  ROOT r = (f64[2], s32[]) custom-call(p, n), custom_call_target="product"
}"""
    x, y = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in ([1.0, 2], [3.0, 4]))
    xla_torch.parse_hlo(text)(x, y, torch.tensor(3, dtype=torch.int32))[0].sum().backward()
    assert x.grad is not None
    assert y.grad is not None
    assert (x.grad.tolist(), y.grad.tolist()) == ([9, 12], [3, 6])


def test_unknown_targets_are_counted() -> None:
    text = """HloModule m
ENTRY e {
  x = f32[2] parameter(0)
  a = f32[2] custom-call(x), custom_call_target="vendor.b"
  b = f32[2] custom-call(a), custom_call_target="vendor.a"
  s = f32[2] custom-call(b), custom_call_target="Sharding"
  ROOT c = f32[2] custom-call(s), custom_call_target="vendor.b"
}"""
    with pytest.raises(UnsupportedError) as raised:
        xla_torch.parse_hlo(text)(torch.zeros(2))
    assert raised.value.got == "vendor.a (1 call), vendor.b (2 calls)"
    assert "register_custom_call('vendor.a', function)" in str(raised.value)


CALLBACKS = ["xla_buffer_python_cpu_callback", "xla_ffi_partitioned_python_cpu_callback", "xla_ffi_python_cpu_callback",
             "xla_python_cpu_callback", "CustomSPMDPartitioning"]


@pytest.mark.parametrize("target", CALLBACKS)
def test_callbacks_are_refused_with_a_way_out(target: str) -> None:
    with pytest.raises(UnsupportedError, match="number in the process that traced it") as raised:
        call(target, "f32[2]", {"f32[2]": torch.zeros(2)}, "{index = 0 : ui64}")
    assert target in str(raised.value)


@needs_xla
@pytest.mark.usefixtures("registered")
def test_the_way_out_for_callbacks() -> None:
    def function(x: torch.Tensor, *, call: CustomCall) -> torch.Tensor:
        assert isinstance(call.config["index"], int)
        return x.sin()

    register_custom_call("xla_ffi_python_cpu_callback", function)
    x = np.arange(3, dtype="f4")
    traced = program(lambda v: jax.pure_callback(np.sin, v, v) + 1, x)
    assert_close(np.asarray(traced.run_numpy(x)[0]), np.sin(x) + 1, relative=1e-6)


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("result", [torch.zeros(3), torch.zeros(2, dtype=torch.float64), (torch.zeros(2), torch.zeros(2))])
def test_results_of_another_shape_are_errors(result: Any) -> None:
    register_custom_call("wrong", lambda x: result)
    with pytest.raises((ExecutionError, ValueError)):
        call("wrong", "f32[2]", {"f32[2]": torch.zeros(2)})


CONFIGS: list[tuple[str, dict[str, Any]]] = [
    ("{a = -1 : i64, b = 1.5 : f64, c = true, d = 1.0E-4 : bf16}", {"a": -1, "b": 1.5, "c": True, "d": 1e-4}),
    ("{a = 0x7F800000 : f32, b = 0xFFF0000000000000 : f64}", {"a": math.inf, "b": -math.inf}),
    ('{s = "a \\"b\\" \\0A, {c}"}', {"s": 'a "b" \n, {c}'}),
    ("{a = dense<[[1, 2], [3, 4]]> : tensor<2x2xi64>, b = dense<7> : tensor<3xi32>}", {"a": [[1, 2], [3, 4]], "b": 7}),
    ("{a = array<i64>, b = array<f32: 1.5, 2.0>, c = array<i1: true, false>, d = []}",
     {"a": [], "b": [1.5, 2.0], "c": [True, False], "d": []}),
    ("{c = #complex.number<:f64 1.0, -2.5> : complex<f64>}", {"c": 1 - 2.5j}),
    ('{flag, deep = {k = [1 : i32, {x = 2 : ui8}]}, "quoted key" = 3 : index}',
     {"flag": True, "deep": {"k": [1, {"x": 2}]}, "quoted key": 3}),
    ("{m = affine_map<(d0) -> (d0 + 1)>, after = 1 : i8}", {"m": "affine_map<(d0) -> (d0 + 1)>", "after": 1}),
    ('{"a": {"b": [1, null]}, "c": "x"}', {"a": {"b": [1, None]}, "c": "x"}),
    ("1,1,100,1e-6", {}), ("unspecified_dims=[0,1]", {}), ("[1]", {}), ("{}", {}), ("", {}),
]


@pytest.mark.parametrize(("text", "config"), CONFIGS)
def test_configurations(text: str, config: dict[str, Any]) -> None:
    assert parse_config(text) == config


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(("written", "opaque", "config"), [
    ('"plain, text"', "plain, text", {}), ('{"a": 1}', '{"a": 1}', {"a": 1}), ('"{\\"a\\": 1}"', '{"a": 1}', {"a": 1}),
    ("{a = 1 : i64}", "{a = 1 : i64}", {"a": 1}), ('"{a = 1 : i64}"', "{a = 1 : i64}", {"a": 1})])
def test_functions_get_their_configuration_parsed(written: str, opaque: str, config: dict[str, Any]) -> None:
    """MLIR attributes, JSON, and plain text, as HLO text has them: in braces or in quotes."""
    seen = []

    def function(x: torch.Tensor, *, call: CustomCall) -> torch.Tensor:
        seen.append((call.opaque, call.config, str(call.shape), [str(s) for s in call.operands]))
        return x

    register_custom_call("configured", function)
    call("configured", "f32[2]", {"f32[2]": torch.zeros(2)}, written)
    assert seen == [(opaque, config, "f32[2]", ["f32[2]"])]


COUNTED = """HloModule m
ENTRY e {
  x = f64[3] parameter(0)
  y = f64[3] negate(x)
  c = f64[3] custom-call(y), custom_call_target="counted"
  ROOT r = f64[3] multiply(c, c)
}"""


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("form", ["a tensor", "a tuple", "a list"])
def test_a_function_with_a_vjp_runs_once_a_step(form: str) -> None:
    """The way back has the result from the way there. One cotangent may be returned as it is."""
    calls: list[str] = []

    def run(x: torch.Tensor) -> torch.Tensor:
        calls.append("function")
        return torch.exp(x)

    def rule(ct: torch.Tensor, out: torch.Tensor, x: torch.Tensor) -> Any:
        calls.append("vjp")
        return {"a tensor": ct * out, "a tuple": (ct * out,), "a list": [ct * out]}[form]

    register_custom_call("counted", run, vjp=rule)
    program = xla_torch.parse_hlo(COUNTED)
    for _ in range(2):
        x = torch.tensor([0.5, -1, 2], dtype=torch.float64, requires_grad=True)
        calls.clear()
        program(x).sum().backward()
        assert calls == ["function", "vjp"]
        torch.testing.assert_close(x.grad, -2 * torch.exp(-2 * x.detach()))
    assert torch.autograd.gradgradcheck(program, (x,))
    tangent = torch.tensor([1.0, -2, 3], dtype=torch.float64)
    out, moved = xla_torch.jvp(program)(x.detach(), tangent)
    torch.testing.assert_close(moved, -2 * out * tangent)


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(("found", "words"), [(2.0, "must return cotangents"), (None, ""), ((None,), ""),
                                              (torch.ones(2), "another shape"), ((), "another number")])
def test_what_a_vjp_may_return(found: Any, words: str) -> None:
    register_custom_call("counted", torch.exp, vjp=lambda ct, out, x: found)
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    result = xla_torch.parse_hlo(COUNTED)(x).sum()
    if words:
        with pytest.raises(xla_torch.errors.ExecutionError, match=words):
            result.backward()
    else:
        result.backward()
        assert x.grad is not None
        assert not x.grad.any()


IN_REGIONS = """HloModule m

seen {{
  v = f32[] parameter(0)
  said = f32[] custom-call(v), custom_call_target="seen in regions", custom_call_has_side_effect=true
  ROOT kept = f32[] add(v, v)
}}

body {{
  p = (s32[], f32[]) parameter(0)
  k = s32[] get-tuple-element(p), index=0
  v = f32[] get-tuple-element(p), index=1
  one = s32[] constant(1)
  n = s32[] add(k, one)
  w = f32[] call(v), to_apply=seen
  ROOT r = (s32[], f32[]) tuple(n, w)
}}

below {{
  p = (s32[], f32[]) parameter(0)
  k = s32[] get-tuple-element(p), index=0
  three = s32[] constant(3)
  ROOT lt = pred[] compare(k, three), direction=LT
}}

ENTRY e {{
  x = f32[] parameter(0)
  zero = s32[] constant(0)
  is_so = pred[] constant(true)
  t = (s32[], f32[]) tuple(zero, x)
  unread = {unread}
  ROOT y = f32[] negate(x)
}}
"""


@pytest.mark.parametrize(("unread", "expected"), [
    ("(s32[], f32[]) while(t), condition=below, body=body", [2.0, 4.0, 8.0]), ("f32[] call(x), to_apply=seen", [2.0]),
    ("f32[] conditional(is_so, x, x), true_computation=seen, false_computation=seen", [2.0])])
def test_effects_in_loops_branches_and_calls_happen_though_nobody_reads_them(unread: str, expected: list[float]):
    seen: list[float] = []

    def see(x: torch.Tensor) -> torch.Tensor:
        seen.append(float(x.detach()))
        return x

    xla_torch.register_custom_call("seen in regions", see)
    program = xla_torch.parse_hlo(IN_REGIONS.format(unread=unread))
    for x in (torch.tensor(2.0), torch.tensor(2.0, requires_grad=True)):
        seen.clear()
        result = program(x)
        assert (float(result.detach()), seen) == (-2.0, expected)
    result.backward()  # pyright: ignore
    assert seen == expected
