"""Custom calls in C: functions of a library that the test compiles, with the documented signature."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import xla_torch
from xla_torch import XlaBuilder, ops, register_custom_call
from xla_torch.api.custom_calls import unregister_custom_call
from xla_torch.errors import DeviceError, DifferentiationError, InvalidArgument, UnsupportedError
from xla_torch.hlo.custom_calls import CustomCall
from xla_torch.shape import Shape
from xla_torch.storage.dtypes import torch_dtype

COMPILER = shutil.which("gcc") or shutil.which("cc")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")

SOURCE = r"""
#include <stdint.h>

// The documented example: z[i][j] = x[1] + y[1][0] at [0][0], and places it can be told by elsewhere.
void myfunc(void* out, void** in) {
  float (*x) = (float*)in[0];
  float (*y)[3] = (float(*)[3])in[1];
  float (*z)[3] = (float(*)[3])out;
  z[0][0] = x[1] + y[1][0];
  z[2][1] = x[0] * y[0][2];
}

void two_results(void* out, void** in) {
  void** results = (void**)out;
  int32_t* x = (int32_t*)in[0];
  for (int i = 0; i < 3; i++) {
    ((int64_t*)results[0])[i] = -(int64_t)x[i];
    ((uint8_t*)results[1])[i] = x[i] > 0;
  }
}

void nested(void* out, void** in) {
  void** pair = (void**)in[0];
  void** inner = (void**)pair[1];
  void** results = (void**)out;
  ((float*)((void**)results[0])[0])[0] = *(float*)pair[0] + *(float*)inner[0];
}

void add_one_to_bytes(void* out, void** in) {
  for (int i = 0; i < 4; i++) ((uint8_t*)out)[i] = ((uint8_t*)in[0])[i] + 1;
}

void fill(void* out, void** in) { for (int i = 0; i < 4; i++) ((float*)out)[i] = i; }
"""

TARGETS = ("myfunc", "two_results", "nested", "add_one_to_bytes", "fill")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder: Path = tmp_path_factory.mktemp("custom_calls")
    (folder / "calls.c").write_text(SOURCE)
    assert COMPILER is not None
    subprocess.run([COMPILER, "-O1", "-shared", "-fPIC", "calls.c", "-o", "calls.so"], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "calls.so"))


@pytest.fixture(autouse=True)
def _registered(library: ctypes.CDLL) -> Iterator[None]:
    for target in TARGETS:
        register_custom_call(target, getattr(library, target))
    yield
    for target in TARGETS:
        unregister_custom_call(target)


def program(target: str, result: str, *operands: str, **facts: Any) -> xla_torch.XlaComputation:
    builder = XlaBuilder(target)
    given = [builder.parameter(k, Shape.parse(text)) for k, text in enumerate(operands)]
    return builder.build(ops.CustomCall(builder, target, given, Shape.parse(result), **facts))


def test_the_example_of_the_document() -> None:
    builder = XlaBuilder("do_it")
    x = ops.ConstantR1(builder, [1.0, 2.0])
    y = ops.ConstantR2(builder, [[10.0, 20.0, 30.0], [40.0, 50.0, 60.0]])
    z = builder.build(ops.CustomCall(builder, "myfunc", [x, y], Shape.parse("f32[3,3]")))()
    assert z.dtype == torch.float32
    assert z[0, 0] == 42
    assert z.tolist() == [[42, 0, 0], [0, 0, 0], [0, 30, 0]]


def test_an_address_will_do(library: ctypes.CDLL) -> None:
    register_custom_call("myfunc", ctypes.cast(library.myfunc, ctypes.c_void_p).value or 0)
    call = program("myfunc", "f32[3,3]", "f32[2]", "f32[2,3]")
    assert call(torch.tensor([0.0, 1]), torch.full((2, 3), 4.0))[0, 0] == 5


def test_a_callback_of_ctypes_will_do() -> None:
    @ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_float), ctypes.POINTER(ctypes.POINTER(ctypes.c_float)))
    def double(out: Any, given: Any) -> None:
        out[0] = 2 * given[0][0]

    register_custom_call("double", double)
    del double
    try:
        assert program("double", "f32[]", "f32[]")(torch.tensor(3.0)) == 6
    finally:
        unregister_custom_call("double")


def test_operands_are_contiguous() -> None:
    y = torch.arange(6.0).reshape(3, 2).t()  # y[1][0] is 1
    z = program("myfunc", "f32[3,3]", "f32[2]", "f32[2,3]")(torch.arange(8.0)[::4], y)
    assert z[0, 0] == 4 + 1
    assert z[2, 1] == 0


def test_tuple_results_are_arrays_of_pointers() -> None:
    first, second = program("two_results", "(s64[3], pred[3])", "s32[3]")(torch.tensor([1, -2, 3], dtype=torch.int32))
    assert (first.dtype, first.tolist()) == (torch.int64, [-1, 2, -3])
    assert (second.dtype, second.tolist()) == (torch.bool, [True, False, True])


def test_tuples_nest() -> None:
    builder = XlaBuilder("nested")
    x, y = (builder.parameter(k, Shape.parse("f32[]")) for k in range(2))
    pair = ops.Tuple(builder, [x, ops.Tuple(builder, [y])])
    result = ops.CustomCall(builder, "nested", [pair], Shape.parse("((f32[1]))"))
    run = builder.build(ops.GetTupleElement(ops.GetTupleElement(result, 0), 0))
    assert run(torch.tensor(1.0), torch.tensor(2.0)).tolist() == [3]


@pytest.mark.parametrize(("element_type", "given", "want"), [  # as bytes: 1 more than each
    ("u8", [0, 1, 254, 255], [1, 2, 255, 0]),
    ("s8", [-1, 0, 1, 127], [0, 1, 2, -128]),
    ("s4", [-2, -1, 0, 6], [-1, 0, 1, 7]),
    ("u4", [0, 1, 2, 14], [1, 2, 3, 15]),
    ("f4e2m1fn", [0, 0.5, 1, 4], [0.5, 1, 1.5, 6]),
    ("f8e4m3", [1, 1.125, 2, 3.75], [1.125, 1.25, 2.25, 4]),
    ("f8e5m2", [1, 1.25, 2, 3.5], [1.25, 1.5, 2.5, 4]),
])
def test_narrow_types_are_bytes(element_type: str, given: list[float], want: list[float]) -> None:
    shape = Shape.parse(f"{element_type}[4]")
    result = program("add_one_to_bytes", str(shape), str(shape))(torch.tensor(given).to(torch_dtype(shape.element_type)))
    assert result.dtype == torch_dtype(shape.element_type)
    assert result.to(torch.float32).tolist() == want


@pytest.mark.parametrize("element_type", ["u16", "u32", "u64", "bf16", "c64"])
def test_other_types_pass_as_they_are(element_type: str) -> None:
    """Four bytes of them, changed by one in the lowest."""
    shape = Shape.parse(f"{element_type}[4]")
    dtype = torch_dtype(shape.element_type)
    assert dtype is not None
    x = torch.tensor([2, 3, 4, 5]).to(dtype)
    result = program("add_one_to_bytes", str(shape), str(shape))(x)
    bytes_of = x.view(torch.uint8).clone()
    bytes_of[:4] += 1
    bytes_of[4:] = 0
    assert torch.equal(result.view(torch.uint8), bytes_of)


def test_without_operands() -> None:
    assert program("fill", "f32[2,2]")().tolist() == [[0, 1], [2, 3]]


def test_a_program_from_text_and_its_surroundings() -> None:
    text = """HloModule m
ENTRY e {
  x = f32[2] parameter(0)
  y = f32[2,3] parameter(1)
  z = f32[3,3]{1,0} custom-call(x, y), custom_call_target="myfunc"
  ROOT r = f32[3,3] add(z, z)
}"""
    result = xla_torch.parse_hlo(text)(torch.tensor([1.0, 2]), torch.full((2, 3), 40.0))
    assert result[0, 0] == 84


def test_the_call_knows_its_operands() -> None:
    seen: list[CustomCall] = []

    def function(x: torch.Tensor, *, call: CustomCall) -> torch.Tensor:
        seen.append(call)
        return x

    register_custom_call("fill", function)
    program("fill", "f8e4m3[2]", "f8e4m3[2]")(torch.zeros(2))
    assert seen[0].operands == (Shape.parse("f8e4m3[2]"),)


# --------------------------------------------------------------------------------------------- refusals


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_tensors_on_another_device_are_refused() -> None:
    run = program("add_one_to_bytes", "u8[4]", "u8[4]")
    with pytest.raises(DeviceError, match="runs on the CPU"):
        run(torch.zeros(4, dtype=torch.uint8, device="cuda"))


def test_a_device_error_names_target_and_device(library: ctypes.CDLL) -> None:
    from xla_torch.lowering.c_functions import CFunction

    shape = Shape.parse("f32[2]")
    with pytest.raises(DeviceError, match=r"custom call 'f' is a C function[^$]*an operand on meta"):
        CFunction(library.fill)(torch.zeros(2, device="meta"), call=CustomCall("f", shape, "", (shape,)))


def test_c_functions_have_no_gradient() -> None:
    run = program("add_one_to_bytes", "f32[1]", "f32[1]")
    with pytest.raises(DifferentiationError):
        run(torch.ones(1, requires_grad=True)).sum().backward()


@pytest.mark.parametrize(("result", "operand", "facts", "what"), [
    ("f32[4]", "f32[4]", {"api_version": "API_VERSION_TYPED_FFI"}, "API version"),
    ("f32[4]", "f32[<=4]", {}, "dynamic size"),
])
def test_what_c_functions_cannot_run(result: str, operand: str, facts: dict[str, Any], what: str) -> None:
    run = program("add_one_to_bytes", result, operand, **facts)
    with pytest.raises(UnsupportedError, match=what):
        run(torch.zeros(Shape.parse(operand).dimensions))


@pytest.mark.parametrize(("result", "operand"), [("f32[2,2]{0,1}", "f32[2,2]{1,0}"), ("f32[2,2]{1,0}", "f32[2,2]{0,1}")])
def test_constrained_layouts_are_row_major(result: str, operand: str) -> None:
    builder = XlaBuilder("constrained")
    x = builder.parameter(0, Shape.parse("f32[2,2]"))
    run = builder.build(ops.CustomCallWithLayout(builder, "fill", [x], Shape.parse(result), [Shape.parse(operand)]))
    with pytest.raises(UnsupportedError, match="not row-major"):
        run(torch.zeros(2, 2))


def test_a_row_major_constraint_will_do() -> None:
    builder = XlaBuilder("constrained")
    x, shape = builder.parameter(0, Shape.parse("f32[2,2]")), Shape.parse("f32[2,2]{1,0}")
    run = builder.build(ops.CustomCallWithLayout(builder, "fill", [x], shape, [shape]))
    assert run(torch.zeros(2, 2)).tolist() == [[0, 1], [2, 3]]


@pytest.mark.parametrize(("function", "vjp", "what"), [("fill", None, "no function"), (12345, lambda *_: None, "cannot have a "
                                                                                       "vjp")])
def test_what_cannot_be_registered(function: Any, vjp: Any, what: str) -> None:
    with pytest.raises(InvalidArgument, match=what):
        register_custom_call("refused", function, vjp)


def test_a_result_that_shares_memory_with_an_operand_does_not_change_the_callers(library: ctypes.CDLL) -> None:
    """An alias allows to write over an operand; what the caller keeps is his own."""
    x = torch.tensor([[5.0, 6], [7, 8]])
    run = program("fill", "f32[2,2]", "f32[2,2]", output_operand_aliasing=[((), (0, ()))])
    assert run(x).tolist() == [[0, 1], [2, 3]]
    assert x.tolist() == [[5, 6], [7, 8]]
