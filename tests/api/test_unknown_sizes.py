"""Programs of unknown sizes: every verb that programs have, and sizes in words."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import xla_torch
from support.oracle import HAS_XLA
from xla_torch import cli, from_stablehlo, nn, training
from xla_torch.api.summary import summary
from xla_torch.api.tree_function import TreeFunction
from xla_torch.errors import InvalidArgument, XlaError
from xla_torch.jax_interop.exported import read_exported
from xla_torch.jax_interop.exported_main import module_of
from xla_torch.runtime.computation import XlaComputation
from xla_torch.runtime.polymorphic import PolymorphicComputation
from xla_torch.stablehlo.convert import UnknownSizes, to_module

if HAS_XLA:
    import jax
    import jax.numpy as jnp
    from jax import export

LAYER = """module @layer {
  func.func @main(%w: tensor<3x2xf32>, %x: tensor<?x3xf32>, %y: tensor<?x2xf32>) -> tensor<f32> {
    %0 = stablehlo.dot %x, %w : (tensor<?x3xf32>, tensor<3x2xf32>) -> tensor<?x2xf32>
    %1 = stablehlo.subtract %0, %y : tensor<?x2xf32>
    %2 = stablehlo.multiply %1, %1 : tensor<?x2xf32>
    %c = stablehlo.constant dense<0.0> : tensor<f32>
    %3 = stablehlo.reduce(%2 init: %c) applies stablehlo.add across dimensions = [0, 1]
      : (tensor<?x2xf32>, tensor<f32>) -> tensor<f32>
    return %3 : tensor<f32>
  }
}"""
SUM = """func.func @main(%a: tensor<?x5xf32>, %b: tensor<?x5xf32>, %c: tensor<5x?xf32>) -> (tensor<?x?xf32>, tensor<?x?xf32>) {
  %0 = stablehlo.add %a, %b : tensor<?x5xf32>
  %1 = stablehlo.dot %0, %c : (tensor<?x5xf32>, tensor<5x?xf32>) -> tensor<?x?xf32>
  %2 = stablehlo.concatenate %0, %0, dim = 0 : (tensor<?x5xf32>, tensor<?x5xf32>) -> tensor<?x?xf32>
  return %1, %2 : tensor<?x?xf32>, tensor<?x?xf32> }"""
"""What is equal by an addition has one name, and a result's size is told in terms of names."""


def program(text: str = LAYER) -> PolymorphicComputation:
    found = from_stablehlo(text)
    assert isinstance(found, PolymorphicComputation)
    return found


def arguments(rows: int = 4, **options: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(3, 2, **options), torch.randn(rows, 3), torch.randn(rows, 2)


def formula(w: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return ((x @ w - y) ** 2).sum()


def slope(rows: int = 4) -> torch.Tensor:
    w, x, y = arguments(rows, requires_grad=True)
    return torch.autograd.grad(formula(w, x, y), w)[0]


# ------------------------------------------------------------------------------------------------ verbs


def test_it_is_a_computation():
    assert isinstance(program(), XlaComputation)
    assert copy.deepcopy(layer := program()) is layer
    assert str(layer.program_shape) == "(Arg_0: f32[3,2], Arg_1: f32[?,3], Arg_2: f32[?,2]) -> f32[]"


def test_it_runs_for_each_size():
    layer = program()
    for rows in (1, 4, 7, 4):
        torch.testing.assert_close(layer(*arguments(rows)), formula(*arguments(rows)))
    assert layer.specialised(*arguments(4)) is layer.specialised(*arguments(4))


DERIVED: dict[str, tuple[Callable[[Any], Any], Callable[[tuple[torch.Tensor, ...]], Any] | None, str]] = {
    "grad": (xla_torch.grad, lambda given: slope(), "-> f32[3,2]"),
    "value_and_grad": (xla_torch.value_and_grad, lambda given: (formula(*given), slope()), "-> (f32[], f32[3,2])"),
    "vjp": (lambda p: xla_torch.vjp(p, 0), lambda given: (slope() * 2,), "ct_0: f32[]) -> "),
    "jvp": (lambda p: xla_torch.jvp(p, 0), lambda given: (formula(*given), (slope() * 2).sum()),
            "t_Arg_0: f32[3,2]) -> (f32[], f32[])"),
    "compile": (lambda p: xla_torch.compile(p, "aot_eager"), lambda given: formula(*given), "Arg_1: f32[a,3], Arg_2: f32[a,2]"),
    "options": (lambda p: p.with_gradient_options(xla_torch.GradientOptions()), lambda given: formula(*given), "Arg_1: f32[a,3]"),
    "grad of grad": (lambda p: xla_torch.jvp(xla_torch.grad(p), 0), None, "-> (f32[3,2], f32[3,2])"),
}


@pytest.mark.parametrize("name", DERIVED)
@pytest.mark.parametrize("pickled", [False, True])
def test_what_is_made_of_it_is_one_too(name: str, pickled: bool):
    make, expected, reported = DERIVED[name]
    found = make(program())
    found = pickle.loads(pickle.dumps(found)) if pickled else found
    given = arguments()
    more = {"vjp": (torch.tensor(2.0),), "jvp": (torch.full((3, 2), 2.0),), "grad of grad": (torch.ones(3, 2),)}.get(name, ())
    result = found(*given, *more)
    if expected is not None:
        torch.testing.assert_close(result, expected(given))
    assert reported in repr(found)


def test_batches():
    each = xla_torch.vmap(program(), 5, (None, 0, 0))
    w, x, y = torch.randn(3, 2), torch.randn(5, 4, 3), torch.randn(5, 4, 2)
    torch.testing.assert_close(each(w, x, y), torch.stack([formula(w, a, b) for a, b in zip(x, y, strict=True)]))
    assert "Arg_1: f32[5,a,3]" in repr(each)


def test_gradients_by_torch():
    w, x, y = arguments(requires_grad=True)
    layer = program()
    layer(w, x, y).backward()
    torch.testing.assert_close(w.grad, slope())
    torch.testing.assert_close(torch.func.grad(layer)(w.detach(), x, y), slope())
    torch.testing.assert_close(torch.func.vmap(layer, (None, 0, 0))(w.detach(), x[None], y[None]), formula(w, x, y)[None])


def test_modules_and_training_steps():
    module = nn.XlaModule(program(), parameters=[torch.randn(3, 2)])
    for rows in (2, 6):
        module(*arguments(rows)[1:]).backward()
    assert [p.shape for p in module.parameters()] == [(3, 2)]
    optimizer = training.sgd(0.01)
    step = xla_torch.training_step(program(), optimizer)
    w, state = arguments()[0], optimizer.init([arguments()[0]])
    before = formula(*arguments(9))
    for rows in (4, 9, 9):
        _, w, state = step(w, *arguments(rows)[1:], *state)
    assert formula(w, *arguments(9)[1:]) < before


def test_text_and_code_are_for_certain_sizes():
    layer = program()
    text = layer.to_hlo_text(a=4)
    assert text.startswith("// main with a = 4, of unknown sizes: (Arg_0: f32[3,2], Arg_1: f32[a,3], Arg_2: f32[a,2]) -> f32[]\n")
    torch.testing.assert_close(xla_torch.parse_hlo(text)(*arguments()), formula(*arguments()))
    assert "def forward" in layer.python_code(a=4)
    assert "Arg_1" in summary(layer, {"a": 6})
    assert layer.lowered().graph
    with pytest.raises(InvalidArgument, match="no size 'b'"):
        layer.at(b=3)
    with pytest.raises(InvalidArgument, match="cannot be exported as one program"):
        _ = layer.module


COMMANDS = [(["show"], "f32[2,3]  %Arg_1"), (["show", "--sizes", "a=7"], "f32[7,3]  %Arg_1"), (["code"], "main with a = 2, of"),
            (["run", "--random", "0", "--sizes", "a=3"], "out0  f32[]"), (["grad", "--argnums", "0"], "f32[3,2]"),
            (["grad", "--value", "--sizes", "a=8"], "main with a = 8, of")]


@pytest.mark.parametrize(("command", "expected"), COMMANDS, ids=lambda c: " ".join(c) if isinstance(c, list) else "")
def test_command_line(command: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "layer.mlir"
    file.write_text(LAYER)
    assert cli.main([command[0], str(file), *command[1:]]) == 0
    assert expected in capsys.readouterr().out


def test_stored_arguments_say_the_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file, stored = tmp_path / "layer.mlir", tmp_path / "data.npz"
    file.write_text(LAYER)
    np.savez(stored, *[a.numpy() for a in arguments(6)])
    assert cli.main(["run", str(file), "--args", str(stored)]) == 0
    assert f"{formula(*arguments(6)).item():.3f}"[:4] in capsys.readouterr().out


# ------------------------------------------------------------------------------------------------ sizes in words

X, Y, Z = torch.zeros(4, 5), torch.zeros(5, 5), torch.zeros(5, 2)
WRONG = [((X, Y, Z), "a was 4 in argument 0 and 5 in argument 1"), ((X, X[0], Z), "argument 1 has the wrong shape"),
         ((X, X, X), "argument 2 has the wrong shape"), ((X, X), "wrong number of arguments"),
         ((X, X.double(), Z), "argument 1.*has the wrong shape or dtype")]


@pytest.mark.parametrize(("given", "words"), WRONG)
def test_wrong_sizes_are_named_in_the_error(given: tuple[torch.Tensor, ...], words: str):
    with pytest.raises(InvalidArgument, match=words):
        program(SUM)(*given)


def test_result_sizes_are_printed_as_names():
    assert repr(program(SUM)) == ("PolymorphicComputation(main: (Arg_0: f32[a,5], Arg_1: f32[a,5], Arg_2: f32[5,b]) -> "
                                  "(f32[a,b], f32[2*a,5]))")


def test_each_call_of_a_function_has_sizes_of_its_own():
    found = program("""module {
      func.func @main(%a: tensor<?xf32>, %b: tensor<?xf32>, %c: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>) {
        %0 = call @twice(%a) : (tensor<?xf32>) -> tensor<?xf32>
        %1 = call @twice(%b) : (tensor<?xf32>) -> tensor<?xf32>
        %2 = stablehlo.add %1, %c : tensor<?xf32>
        return %0, %2 : tensor<?xf32>, tensor<?xf32>
      }
      func.func private @twice(%x: tensor<?xf32>) -> tensor<?xf32> {
        %0 = stablehlo.add %x, %x : tensor<?xf32>
        return %0 : tensor<?xf32>
      }
    }""")
    assert found.symbols.sizes == (("a",), ("b",), ("b",))
    assert [r.shape for r in found(torch.ones(2), torch.ones(3), torch.ones(3))] == [(2,), (3,)]


@pytest.mark.skipif(not HAS_XLA, reason="needs jax")
def test_names_are_those_of_jax():
    b, s = export.symbolic_shape("b, s")

    def function(x: Any, y: Any) -> Any:
        return jnp.concatenate([jnp.tanh(x), y], 1), y.reshape(-1), x[:-1].sum()

    given = jax.ShapeDtypeStruct((b, s), jnp.float32), jax.ShapeDtypeStruct((b, 2 * s), jnp.float32)
    found = from_stablehlo(export.export(jax.jit(function))(*given).mlir_module())
    assert repr(found).endswith("main: (Arg_0: f32[b,s], Arg_1: f32[b,2*s]) -> (f32[b,3*s], f32[2*b*s], f32[]))")
    x, y = np.ones((3, 2), np.float32), np.ones((3, 4), np.float32)
    for got, expected in zip(found.run_numpy(x, y), function(x, y), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6)
    with pytest.raises(InvalidArgument, match=r"2\*s was 4, as s = 2, but 5 in argument 1"):
        found.run_numpy(x, np.ones((3, 5), np.float32))
    with pytest.raises(InvalidArgument, match="b was 3 in argument 0 and 2 in argument 1"):
        found.run_numpy(x, y[:2])


@pytest.mark.skipif(not HAS_XLA, reason="needs jax")
def test_functions_over_trees():
    """As a file of jax.export has them."""
    (b,) = export.symbolic_shape("b,")

    def loss(p: Any, x: Any) -> Any:
        return (jnp.tanh(x @ p["w"] + p["b"]) ** 2).sum()

    shapes = {"w": jax.ShapeDtypeStruct((3, 4), jnp.float32), "b": jax.ShapeDtypeStruct((4,), jnp.float32)}
    file = read_exported(bytes(export.export(jax.jit(loss))(shapes, jax.ShapeDtypeStruct((b, 3), jnp.float32)).serialize()))
    unknown = to_module(module_of(file))
    assert isinstance(unknown, UnknownSizes)
    function = TreeFunction(PolymorphicComputation(unknown), file.in_tree, file.out_tree)
    weights, x = {"w": torch.randn(3, 4), "b": torch.randn(4)}, torch.randn(5, 3)
    expected = loss({k: jnp.asarray(v.numpy()) for k, v in weights.items()}, jnp.asarray(x.numpy()))
    for found in (function, pickle.loads(pickle.dumps(function)), xla_torch.compile(function, "aot_eager")):
        np.testing.assert_allclose(found(weights, x), expected, rtol=1e-5)
    gradient = xla_torch.grad(function)(weights, x)
    wanted = jax.grad(loss)({k: jnp.asarray(v.numpy()) for k, v in weights.items()}, jnp.asarray(x.numpy()))
    np.testing.assert_allclose(gradient["w"], wanted["w"], rtol=1e-4, atol=1e-5)
    module = nn.XlaModule(function, parameters=[weights])
    module(x).backward()
    slopes = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
    np.testing.assert_allclose(slopes["b"].numpy(), wanted["b"], rtol=1e-4, atol=1e-5)
    assert xla_torch.vmap(function, 2, (None, 0))(weights, x[None].expand(2, 5, 3)).shape == (2,)
    assert "b = 2" in summary(function)
    assert (function.participants, function.partitioning.about, function._repr_html_()) == ({}, "", None)
    with pytest.raises(InvalidArgument, match="cannot be exported as one program"):
        _ = function.module


def test_sizes_may_be_integers_among_the_arguments():
    found = program("""func.func @main(%n: tensor<i64>, %x: tensor<?x3xf32>) -> tensor<?x3xf32> {
      %0 = stablehlo.reshape %n : (tensor<i64>) -> tensor<1xi64>
      %1 = stablehlo.constant dense<3> : tensor<1xi64>
      %2 = stablehlo.concatenate %0, %1, dim = 0 : (tensor<1xi64>, tensor<1xi64>) -> tensor<2xi64>
      %3 = stablehlo.constant dense<2.0> : tensor<f32>
      %4 = stablehlo.dynamic_broadcast_in_dim %3, %2, dims = [] : (tensor<f32>, tensor<2xi64>) -> tensor<?x3xf32>
      %5 = stablehlo.multiply %x, %4 : tensor<?x3xf32>
      return %5 : tensor<?x3xf32> }""")
    assert repr(found).endswith("(Arg_0: s64[], Arg_1: f32[a,3]) -> f32[a,3])")
    assert found(4, torch.ones(4, 3)).tolist() == [[2.0] * 3] * 4
    with pytest.raises(XlaError):
        found(3, torch.ones(4, 3))


def test_long_programs_are_pickled():
    lines = "\n".join(f"%{k + 1} = stablehlo.add %{k}, %{k} : tensor<?xf32>" for k in range(3000))
    text = f"func.func @main(%a: tensor<?xf32>) -> tensor<?xf32> {{\n%0 = stablehlo.negate %a : tensor<?xf32>\n{lines}\n" \
           "return %3000 : tensor<?xf32> }"
    found = pickle.loads(pickle.dumps(program(text)))
    assert found.symbols.sizes == (("a",),)


@pytest.mark.parametrize("dimension", [5, 2**63 - 1])
def test_a_dimension_that_fits_no_size_is_named_in_the_error(dimension: int) -> None:
    computation = from_stablehlo(
        "func.func @main(%a: tensor<?x3xf32>) -> tensor<?x3xf32> {\n"
        f"  %r = stablehlo.reverse %a, dims = [{dimension}] : tensor<?x3xf32>\n  return %r : tensor<?x3xf32>\n}}")
    with pytest.raises(InvalidArgument, match=rf"(?s)no sizes were found that fit.*at a=2: .*reverse.*{dimension}"):
        computation.to_hlo_text()
