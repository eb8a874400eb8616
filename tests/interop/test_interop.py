"""Other front ends: StableHLO text and bytecode, HLO protos, JAX functions over trees."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from support import oracle
from support.stablehlo_oracle import load_stablehlo
from xla_torch import from_jax, from_stablehlo, grad, load
from xla_torch.distributed import feeds
from xla_torch.errors import HloSyntaxError, InvalidArgument, MissingDependency
from xla_torch.runtime.polymorphic import PolymorphicComputation

pytestmark = oracle.needs_xla

if oracle.HAS_XLA:
    import jax
    import jax.numpy as jnp
    from jaxlib import _hlo, _jax  # pyright: ignore[reportAttributeAccessIssue]

VALUES = [float(i) + 0.1 for i in range(64)]
MODULE = f"""
module @affine {{
  func.func public @main(%x: tensor<64xf32>) -> tensor<64xf32> {{
    %c = stablehlo.constant dense<{VALUES}> : tensor<64xf32>
    %0 = stablehlo.add %x, %c : tensor<64xf32>
    return %0 : tensor<64xf32>
  }}
}}
"""
X = np.arange(64, dtype=np.float32)
EXPECTED = X + np.array(VALUES, np.float32)


def bytecode() -> bytes:
    return _jax.mlir.serialize_portable_artifact(MODULE, "1.0.0")


def proto() -> bytes:
    return _hlo.hlo_module_from_text(load_stablehlo(MODULE)).as_serialized_hlo_module_proto()


def hlo_proto() -> bytes:
    """An HloProto: the module in field 1, and another field after it."""
    inner, length, size = proto(), b"", len(proto())
    while size > 127:
        length, size = length + bytes([size & 127 | 128]), size >> 7
    return b"\x0a" + length + bytes([size]) + inner + b"\x1a\x00"


FORMS: dict[str, Any] = {
    "affine.mlir": MODULE.encode, "affine.txt": MODULE.encode, "affine.mlirbc": bytecode, "affine": bytecode,
    "commented.txt": f"// Made by hand.\n\n  {MODULE.lstrip()}".encode,
    "affine.pb": proto, "proto.bin": hlo_proto,
}


@pytest.mark.parametrize("name", FORMS)
def test_load_takes_every_form(name: str, tmp_path: Path):
    """The content decides, whatever the name; large constants come whole."""
    path = tmp_path / name
    path.write_bytes(FORMS[name]())
    result, = load(path).run_numpy(X)
    np.testing.assert_array_equal(result, EXPECTED)


@pytest.mark.parametrize("program", [MODULE, MODULE.encode()], ids=["str", "bytes"])
def test_from_stablehlo(program: str | bytes):
    result, = from_stablehlo(program).run_numpy(X)
    np.testing.assert_array_equal(result, EXPECTED)


def test_several_results_are_a_tuple_and_one_is_not():
    two = """func.func @main(%a: tensor<f32>, %b: tensor<i1>) -> (tensor<i1>, tensor<f32>) {
      return %b, %a : tensor<i1>, tensor<f32>
    }"""
    one = "func.func @main(%a: tensor<f32>) -> tensor<f32> { return %a : tensor<f32> }"
    assert from_stablehlo(two)(torch.tensor(2.0), torch.tensor(True)) == (torch.tensor(True), torch.tensor(2.0))
    assert isinstance(from_stablehlo(one)(torch.tensor(2.0)), torch.Tensor)


def test_arguments_are_called_as_jax_calls_them():
    lowered = jax.jit(lambda p, x: p["w"]["b.1"] * x).lower({"w": {"b.1": jnp.ones(2)}}, jnp.ones(2))
    buffer = io.BytesIO()
    module: Any = lowered.compiler_ir("stablehlo")
    module.operation.write_bytecode(buffer)
    for program in (lowered.as_text(debug_info=True), buffer.getvalue()):
        read = from_stablehlo(program)
        assert [p.op_name for p in read.entry.parameters] == ["p['w']['b.1']", "x"]
        assert read.program_shape.parameter_names == ("p__w____b.1__", "x")
    assert from_stablehlo(lowered.as_text()).program_shape.parameter_names == ("Arg_0", "Arg_1")


def test_text_errors_have_a_position():
    with pytest.raises(HloSyntaxError, match="no form of the operation 'junk'") as caught:
        from_stablehlo("module {\n  junk\n}")
    assert (caught.value.line, caught.value.column) == (2, 3)
    assert "from      line 2, column 3" in str(caught.value)


def test_bytes_that_are_neither_text_nor_bytecode():
    with pytest.raises(InvalidArgument, match="this is UTF-16 text"):
        from_stablehlo(b"\xff\xfe\x00")


def test_without_jax_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(MissingDependency, match=r"(?s)from_jax needs jax.*pip install 'xla_torch\[jax\]'"):
        from_jax(lambda x: x, torch.ones(2))


# --------------------------------------------------------------------------------------------------- from_jax


@pytest.fixture(params=[False, True], ids=["x32", "x64"])
def x64(request: pytest.FixtureRequest) -> Iterator[bool]:
    with jax.enable_x64(request.param):
        yield request.param


def mlp(parameters: dict[str, Any], x: Any, *, scale: Any = 1.0) -> dict[str, Any]:
    hidden = jnp.tanh(x @ parameters["w"] + parameters["b"][0])
    return {"out": hidden * scale, "pair": (hidden.sum(), None), "kept": parameters["b"][1]}


def arguments(**options: Any) -> tuple[dict[str, Any], torch.Tensor]:
    parameters = {"w": torch.randn(3, 4, **options), "b": [torch.randn(4), torch.randn(2, dtype=torch.bfloat16)]}
    return parameters, torch.randn(5, 3)


def test_trees_go_in_and_out(x64: bool):
    parameters, x = arguments()
    function = from_jax(mlp, parameters, x, scale=2.0)
    got = function(parameters, x, scale=3.0)
    hidden = torch.tanh(x @ parameters["w"] + parameters["b"][0])
    torch.testing.assert_close(got["out"], hidden * 3)
    torch.testing.assert_close(got["pair"][0], hidden.sum())
    assert got["pair"][1] is None
    torch.testing.assert_close(got["kept"], parameters["b"][1])
    assert str(function.computation.program_shape.result) in repr(function)


def test_gradients_flow_to_the_leaves():
    parameters, x = arguments(requires_grad=True)
    from_jax(mlp, parameters, x)(parameters, x)["pair"][0].backward()
    hidden = torch.tanh(x @ parameters["w"].detach() + parameters["b"][0])
    torch.testing.assert_close(parameters["w"].grad, x.T @ (1 - hidden**2))


def test_unused_arguments_stay():
    function = from_jax(lambda a, b, c: c + 1, 1.0, torch.ones(3), torch.ones(2))
    assert len(function.computation.program_shape.parameters) == 3
    torch.testing.assert_close(function(0.0, torch.ones(3), torch.ones(2)), torch.full((2,), 2.0))


def test_examples_may_be_anything_that_jax_takes():
    examples = [torch.ones(3), np.ones(3, np.float32), jnp.ones(3, jnp.float32), jax.ShapeDtypeStruct((3,), np.float32)]
    for example in examples:
        torch.testing.assert_close(from_jax(lambda x: x * 2, example)(torch.ones(3)), torch.full((3,), 2.0))


def test_leaves_may_be_arrays_and_numbers():
    function = from_jax(lambda x, y: x * y, np.ones(3, jnp.bfloat16), 1.0)
    assert function(np.full(3, 2, jnp.bfloat16), 3).tolist() == [6, 6, 6]


WIDE = [torch.float64, torch.int64, torch.complex128, torch.uint64]


@pytest.mark.parametrize("dtype", WIDE, ids=str)
def test_wide_arguments_are_narrowed_as_jax_does(dtype: torch.dtype, x64: bool):
    value = torch.tensor([1, 2, 3]).to(dtype)
    result = from_jax(lambda x: x + x, value)(value)
    assert (result.dtype is dtype) == x64
    assert result.to(dtype).tolist() == [2, 4, 6]


def test_closed_over_arrays_come_along():
    table = jnp.arange(3000.0, dtype=jnp.float32).reshape(30, 100)
    x = torch.randn(30)
    torch.testing.assert_close(from_jax(lambda x: x @ table, x)(x), x @ torch.from_numpy(np.array(table)))


def test_other_trees_are_refused():
    function = from_jax(lambda tree: tree["a"], {"a": torch.ones(2)})
    with pytest.raises(InvalidArgument, match=r"argument tree\.a is missing"):
        function({"b": torch.ones(2)})


def test_instructions_remember_where_they_come_from():
    module = from_jax(jax.jit(mlp), *arguments()).computation.module
    assert any(i.op_name.endswith("tanh") for c in module.computations for i in c.instructions)


# ------------------------------------------------------------------------------------------------ unknown sizes

POLYMORPHIC = """
module @rows {
  func.func public @main(%n: tensor<i64>, %x: tensor<?x3xf32>) -> tensor<?x3xf32> {
    %0 = stablehlo.reshape %n : (tensor<i64>) -> tensor<1xi64>
    %1 = stablehlo.constant dense<3> : tensor<1xi64>
    %2 = stablehlo.concatenate %0, %1, dim = 0 : (tensor<1xi64>, tensor<1xi64>) -> tensor<2xi64>
    %3 = stablehlo.constant dense<2.0> : tensor<f32>
    %4 = stablehlo.dynamic_broadcast_in_dim %3, %2, dims = [] : (tensor<f32>, tensor<2xi64>) -> tensor<?x3xf32>
    %5 = stablehlo.multiply %x, %4 : tensor<?x3xf32>
    return %5 : tensor<?x3xf32>
  }
}
"""


def test_a_program_of_unknown_sizes_runs_for_each_size():
    program = from_stablehlo(POLYMORPHIC)
    for rows in (1, 4, 0, 4):
        x = torch.randn(rows, 3)
        assert torch.equal(program(torch.tensor(rows), x), 2 * x)
    (got,) = program.run_numpy(np.array(2), np.ones((2, 3), np.float32))
    assert got.tolist() == [[2.0] * 3] * 2


def test_a_specialised_program_is_an_ordinary_one():
    program = from_stablehlo(POLYMORPHIC)
    assert isinstance(program, PolymorphicComputation)
    special = program.specialised(torch.tensor(2), torch.zeros(2, 3))
    assert special is program.specialised(torch.tensor(2), torch.ones(2, 3))
    gradient = grad(special, argnums=1)(torch.tensor(2), torch.zeros(2, 3))
    assert gradient.tolist() == [[2.0] * 3] * 2


def test_sizes_that_do_not_fit_are_refused():
    program = from_stablehlo(POLYMORPHIC)
    with pytest.raises(InvalidArgument, match=r"(?s)argument 1 has the wrong shape.*\[a, 3\]"):
        program(torch.tensor(2), torch.zeros(2, 4))
    with pytest.raises(InvalidArgument, match="wrong number of arguments"):
        program(torch.zeros(2, 3))


def test_paddings_may_be_arguments():
    program = from_stablehlo("""func.func @main(%x: tensor<?xf32>, %low: tensor<1xi64>) -> tensor<?xf32> {
      %z = stablehlo.constant dense<7.0> : tensor<f32>
      %0 = stablehlo.constant dense<0> : tensor<1xi64>
      %1 = stablehlo.dynamic_pad %x, %z, %low, %0, %0
        : (tensor<?xf32>, tensor<f32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<?xf32>
      return %1 : tensor<?xf32>
    }""")
    for low in (1, 3):
        assert program(torch.ones(2), torch.tensor([low])).tolist() == [7.0] * low + [1.0] * 2


SLICES = """func.func @main(%x: tensor<?xf32>, %start: tensor<i64>, %size: tensor<i64>) -> tensor<?xf32> {
  %0 = stablehlo.reshape %start : (tensor<i64>) -> tensor<1xi64>
  %1 = stablehlo.reshape %size : (tensor<i64>) -> tensor<1xi64>
  %2 = stablehlo.add %0, %1 : tensor<1xi64>
  %3 = stablehlo.constant dense<1> : tensor<1xi64>
  %4 = stablehlo.real_dynamic_slice %x, %0, %2, %3
    : (tensor<?xf32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<?xf32>
  return %4 : tensor<?xf32>
}"""


@pytest.mark.parametrize(("start", "size", "expected"), [(1, 2, [1, 2]), (3, 2, [2, 3]), (-5, 3, [0, 1, 2]), (9, 1, [3])])
def test_slices_of_unknown_bounds_begin_where_they_fit(start: int, size: int, expected: list[float]):
    got = from_stablehlo(SLICES)(torch.arange(4.0), torch.tensor(start), torch.tensor(size))
    assert got.tolist() == expected


def test_unknown_sizes_that_refinement_leaves_run_as_they_are():
    program = from_stablehlo("""func.func @main(%x: tensor<?xf32>) -> tensor<?x4xi8> {
      %0 = stablehlo.bitcast_convert %x : (tensor<?xf32>) -> tensor<?x4xi8>
      return %0 : tensor<?x4xi8>
    }""")
    x = np.arange(3, dtype=np.float32)
    assert np.array_equal(program.run_numpy(x)[0], x.view(np.int8).reshape(3, 4))


# ------------------------------------------------------------------------------------------------ entry functions

FUNCTIONS = """module @several {
  func.func @double(%x: tensor<f32>) -> tensor<f32> {
    %0 = func.call @add(%x, %x) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    return %0 : tensor<f32>
  }
  func.func @main_0(%x: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.negate %x : tensor<f32>
    return %0 : tensor<f32>
  }
  func.func private @add(%x: tensor<f32>, %y: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.add %x, %y : tensor<f32>
    return %0 : tensor<f32>
  }
}"""


def test_the_only_public_function_is_the_entry():
    program = FUNCTIONS.replace("func.func @main_0", "func.func private @main_0")
    assert from_stablehlo(program)(torch.tensor(3.0)) == 6


ENTRIES = [("double", FUNCTIONS, 6), ("main_0", FUNCTIONS, -3), ("main", FUNCTIONS.replace("double", "main"), 6),
           ("main_0", FUNCTIONS.replace("double", "main"), -3)]


@pytest.mark.parametrize(("entry", "program", "expected"), ENTRIES)
def test_an_entry_may_be_named(entry: str, program: str, expected: float, tmp_path: Path):
    path = tmp_path / "several.mlir"
    path.write_text(program)
    assert load(path, entry=entry)(torch.tensor(3.0)) == expected


def test_several_functions_are_a_library():
    library: Any = from_stablehlo(FUNCTIONS)
    assert list(library) == ["double", "main_0"]
    assert (len(library), repr(library)) == (2, "Library(double, main_0)")
    assert library["double"] is library["double"]
    assert library["double"](torch.tensor(3.0)) == 6
    with pytest.raises(KeyError):
        library["add"]


USES = [lambda library: library(torch.tensor(1.0)), lambda library: library.run_numpy(np.float32(1)),
        lambda library: library.to_hlo_text()]


@pytest.mark.parametrize("use", USES)
def test_a_library_is_no_program(use: Any):
    with pytest.raises(InvalidArgument, match=r"(?s)none is called main.*double, main_0.*entry='double'"):
        use(from_stablehlo(FUNCTIONS))


def test_an_entry_that_does_not_exist_is_refused():
    with pytest.raises(InvalidArgument, match=r"(?s)entry='other'.*double, main_0, add"):
        from_stablehlo(FUNCTIONS, entry="other")
    with pytest.raises(InvalidArgument, match="main"):
        from_stablehlo("module {}")


ONE = "func.func @main(%x: tensor<f32>) -> tensor<f32> {{ %0 = stablehlo.{} %x : tensor<f32> return %0 : tensor<f32> }}"


@pytest.mark.parametrize(("program", "names"), [
    (f"module @a {{ {ONE.format('negate')} }} module @b {{ {ONE.format('abs')} }}", ["a", "b"]),
    (f"module {{ {ONE.format('negate')} }}\n// -----\nmodule {{ {ONE.format('abs')} }}", ["0", "1"]),
    (f"module {{ module @a {{ {ONE.format('negate')} }} module @b {{ {ONE.format('abs')} }} }}", ["a", "b"]),
    (f"module @a {{ {ONE.format('negate').replace('main', 'f')} {ONE.format('abs').replace('main', 'g')} }} module @b {{ }}",
     ["a.f", "a.g"]),
])
def test_several_modules_are_a_library(program: str, names: list[str]):
    library: Any = from_stablehlo(program)
    assert list(library) == names
    assert [library[name](torch.tensor(-3.0)).item() for name in names] == [3, 3]
    assert from_stablehlo(program, entry=names[1])(torch.tensor(2.0)) == (2 if "abs" in program else -2)
    with pytest.raises(InvalidArgument, match=f"{names[0]}, {names[1]}"):
        from_stablehlo(program, entry="c")


def test_functions_talk_through_the_host():
    library: Any = from_stablehlo("""module {
      func.func @give(%x: tensor<2xf32>, %t: !stablehlo.token) -> !stablehlo.token {
        %0 = "stablehlo.send"(%x, %t) <{
          channel_handle = #stablehlo.channel_handle<handle = 7, type = 2>, is_host_transfer = true}>
          : (tensor<2xf32>, !stablehlo.token) -> !stablehlo.token
        return %0 : !stablehlo.token
      }
      func.func @take(%t: !stablehlo.token) -> (tensor<2xf32>, !stablehlo.token) {
        %0:2 = "stablehlo.recv"(%t) <{
          channel_handle = #stablehlo.channel_handle<handle = 7, type = 3>, is_host_transfer = true}>
          : (!stablehlo.token) -> (tensor<2xf32>, !stablehlo.token)
        return %0#0, %0#1 : tensor<2xf32>, !stablehlo.token
      }
    }""")
    x = np.array([1, 2], np.float32)
    library["give"].run_numpy(x)
    feeds.send(7, feeds.receive(7))
    assert library["take"].run_numpy()[0].tolist() == [1, 2]
