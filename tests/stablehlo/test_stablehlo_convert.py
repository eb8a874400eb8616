"""StableHLO operations to HLO: the same programs as XLA's own converter gives, by way of jaxlib."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.mlir_oracle import read as read_by_bindings
from support.oracle import as_older
from support.same_program import difference
from support.stablehlo_oracle import module_of
from support.stablehlo_programs import PROGRAMS, M, main
from support.stablehlo_rows import ROWS, Row
from xla_torch.api.loading import from_stablehlo, parse_hlo
from xla_torch.errors import InvalidArgument, UnsupportedError, XlaError
from xla_torch.mlir.text.parser import parse
from xla_torch.opcodes.front import Module, parse_module, print_module
from xla_torch.stablehlo.convert import Functions, UnknownSizes, to_module
from xla_torch.stablehlo.reading_rules import RULES, rule

OTHERWISE = {
    "einsum": "XLA's client adds frontend attributes for its own gradients",
    "unary_einsum": "as einsum",
    "async_start, async_done": "XLA has opcodes of its own for an all-gather in two halves",
}
"""What XLA's converter does otherwise, and why that is the same."""

BEYOND_XLA = frozenset({
    "bitcast_convert of 64 bits to an integer", "bitcast_convert of an integer to 64 bits",
    "bitcast_convert of 64 bits to a float",
    "bitcast_convert of floats to bits", "bitcast_convert of 8 bits to bytes", "cbrt of complex numbers"})
"""What StableHLO says of single bits and complex roots, and XLA's converter refuses or takes for bytes."""

SHARED = Path(__file__).parents[3] / "shared"
EXPANDED = re.compile(
    r"atanh|acosh|asinh|acos|asin|atan|cosh|sinh|lgamma|digamma|bessel|erf|polygamma|zeta|top_k|next_after|square")
"""Functions of CHLO in the names of cases: XLA's converter writes them out, we keep an op or write out the documented formula."""
COMPLEX = ("log_plus_one", "log_complex")
INLINED = ("lstm_scan_loss",)
"""Programs of which XLA's converter writes a function's body in place of its call."""
"""Functions of complex numbers that XLA's converter writes out, and we keep as ops."""


def converted(program: str, **options: Any) -> Module:
    found = to_module(parse(program), **options)
    assert isinstance(found, Module)
    return found


@pytest.mark.parametrize("row", [r for r in ROWS if not r.name.startswith("chlo.") and r.name not in BEYOND_XLA],
                         ids=lambda r: r.name)
def test_every_op_is_what_xla_makes_of_it(row: Row):
    want = module_of(row.program())
    if not isinstance(want, Module):
        assert type(to_module(parse(row.program()))).__name__ == type(want).__name__
    elif not row.name.startswith(tuple(OTHERWISE)):
        assert difference(converted(row.program()), want) == ""


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=as_older) if name == "Shardy's manual computation" else name for name in PROGRAMS])
def test_what_stands_around_ops_is_what_xla_makes_of_it(name: str):
    want = module_of(PROGRAMS[name])
    assert isinstance(want, Module)
    assert difference(converted(PROGRAMS[name]), want) == ""


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.exists(), reason="the cases are not here")
def test_all_cases_are_what_xla_makes_of_them():
    found = {}
    for path in sorted([*SHARED.glob("conformance/cases/*/*/module.mlir"), *SHARED.glob("programs/*/module.stablehlo.mlir")]):
        name = path.parent.name
        if EXPANDED.search(name) or name.startswith("quantized") or any(w in name for w in (*COMPLEX, *INLINED)):
            continue
        text = path.read_text()
        if "@main" not in text:  # XLA's converter asks for it
            continue
        want, got = module_of(text), to_module(parse(text))
        if isinstance(want, Module) and (reason := difference(got, want) if isinstance(got, Module) else "unknown sizes"):
            found[name] = reason[:200]
    assert found == {}


@pytest.mark.parametrize("name", ["calls of functions", "a loop in a loop", "custom call with a dictionary", "bounded sizes"])
def test_bindings_of_mlir_read_the_same(name: str):
    found = to_module(read_by_bindings(PROGRAMS[name]))
    assert isinstance(found, Module)
    assert difference(found, converted(PROGRAMS[name])) == ""


# ------------------------------------------------------------------------------------------------------------------- sizes

POLYMORPHIC = """func.func @main(%n: tensor<i32>, %x: tensor<?x3xf32>) -> tensor<?xf32> {
  %0 = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x3xf32>) -> tensor<i32>
  %1 = stablehlo.constant dense<3> : tensor<i32>
  %2 = func.call @twice(%0) : (tensor<i32>) -> tensor<i32>
  %3 = stablehlo.multiply %2, %1 : tensor<i32>
  %4 = stablehlo.reshape %3 : (tensor<i32>) -> tensor<1xi32>
  %5 = stablehlo.concatenate %x, %x, dim = 0 : (tensor<?x3xf32>, tensor<?x3xf32>) -> tensor<?x3xf32>
  %6 = stablehlo.dynamic_reshape %5, %4 : (tensor<?x3xf32>, tensor<1xi32>) -> tensor<?xf32>
  return %6 : tensor<?xf32>
}
func.func private @twice(%x: tensor<i32>) -> tensor<i32> {
  %0 = stablehlo.add %x, %x : tensor<i32>
  return %0 : tensor<i32>
}"""


def test_sizes_follow_from_the_shapes_of_arguments():
    assert isinstance(to_module(parse(POLYMORPHIC)), UnknownSizes)
    assert str(converted(POLYMORPHIC, argument_shapes=[(), (4, 3)]).entry.root.shape) == "f32[24]"


@pytest.mark.parametrize(("shapes", "reason"), [
    ([(), (4, 2)], "argument 1: f32"), ([(4, 3)], "wrong number of arguments")])
def test_shapes_that_do_not_fit_are_refused(shapes: Any, reason: str):
    with pytest.raises(InvalidArgument, match=f"(?s){reason}"):
        to_module(parse(POLYMORPHIC), argument_shapes=shapes)


def test_sizes_may_be_values_of_arguments():
    program = """func.func @main(%n: tensor<1xi64>) -> tensor<?xi32> {
      %0 = stablehlo.dynamic_iota %n, dim = 0 : (tensor<1xi64>) -> tensor<?xi32>
      return %0 : tensor<?xi32>
    }"""
    assert isinstance(to_module(parse(program)), UnknownSizes)
    with pytest.raises(InvalidArgument, match="are not known before the program runs"):
        to_module(parse(program), argument_shapes=[(1,)])
    found = converted(program, argument_shapes=[(1,)], argument_values={0: np.array([5])})
    assert str(found.entry.root.shape) == "s32[5]"
    assert len(found.entry.parameters) == 1


@pytest.mark.parametrize(("size", "message"), [(4, ""), (3, "needs an even size, not 3")])
def test_assertions_about_sizes_are_decided(size: int, message: str):
    program = """func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
      %0 = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
      %two = stablehlo.constant dense<2> : tensor<i32>
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %1 = stablehlo.remainder %0, %two : tensor<i32>
      %2 = stablehlo.compare EQ, %1, %zero : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.custom_call @shape_assertion(%2, %0) {error_message = "needs an even size, not {0}", has_side_effect = true}
        : (tensor<i1>, tensor<i32>) -> ()
      return %x : tensor<?xf32>
    }"""
    if not message:
        assert str(converted(program, argument_shapes=[(size,)]).entry.root.shape) == f"f32[{size}]"
        return
    with pytest.raises(InvalidArgument, match=message):
        to_module(parse(program), argument_shapes=[(size,)])


# ------------------------------------------------------------------------------------------------------------------ errors

REFUSED = {
    "an operation without a rule": (f"%r = \"stablehlo.nothing\"(%a) : ({M}) -> {M}\nreturn %r : {M}",
                                    UnsupportedError, "stablehlo.nothing"),
    "a result of another type": (f"%r = \"stablehlo.negate\"(%a) : ({M}) -> tensor<2x4xf32>\nreturn %a : {M}",
                                 InvalidArgument, "not of the type that is written"),
    "a function that does not exist": (
        f"%r = func.call @f(%a) : ({M}) -> {M}\nreturn %r : {M}", InvalidArgument, "no such function"),
    "a region that uses an argument": (
        f"%z = stablehlo.constant dense<0.0> : tensor<f32>\n"
        f"%r = \"stablehlo.reduce\"(%a, %z) ({{ ^bb0(%x: tensor<f32>, %y: tensor<f32>): "
        f"%o = stablehlo.add %x, %b : tensor<f32>\nstablehlo.return %o : tensor<f32> }}) "
        f"{{dimensions = array<i64: 0>}} : ({M}, tensor<f32>) -> tensor<3xf32>\nreturn %a : {M}",
        UnsupportedError, "from outside"),
    "an attribute of another kind": (
        f"%r = \"stablehlo.transpose\"(%a) {{permutation = \"x\"}} : ({M}) -> {M}\nreturn %r : {M}",
        InvalidArgument, "another kind of value"),
    "a missing attribute": (f"%r = \"stablehlo.transpose\"(%a) : ({M}) -> {M}\nreturn %r : {M}", XlaError, "permutation"),
    "too few operands": (
        f"%r = \"stablehlo.select_and_scatter\"(%a) : ({M}) -> {M}\nreturn %r : {M}", XlaError, "select_and_scatter"),
    "a missing region": (
        f"%r = \"stablehlo.map\"(%a) {{dimensions = array<i64: 0, 1>}} : ({M}) -> {M}\nreturn %r : {M}", XlaError, "map"),
    "an einsum of other ranks": (
        f"%r = \"stablehlo.einsum\"(%a, %b) {{einsum_config = \"abc,->a\"}} : ({M}, tensor<f32>) -> {M}\nreturn %r : {M}",
        InvalidArgument, "does not fit the operands"),
    "an einsum of a letter from nowhere": (
        f"%r = \"stablehlo.einsum\"(%a, %b) {{einsum_config = \"ab,->ac\"}} : ({M}, tensor<f32>) -> {M}\nreturn %r : {M}",
        InvalidArgument, "does not fit the operands"),
    "an einsum of two sizes": (
        f"%r = \"stablehlo.einsum\"(%a, %a) {{einsum_config = \"ab,ba->a\"}} : ({M}, {M}) -> tensor<2xf32>\n"
        "return %r : tensor<2xf32>",
        InvalidArgument, "a letter of the einsum has two sizes"),
    "a diagonal of two sizes": (
        f"%r = \"stablehlo.unary_einsum\"(%a) {{einsum_config = \"aa->a\"}} : ({M}) -> tensor<2xf32>\n"
        "return %r : tensor<2xf32>",
        InvalidArgument, "dimensions of one letter differ"),
    "blocks that jump": ("cf.br ^bb1\n^bb1:\n  return %a : " + M, XlaError, "no jumps between blocks"),
    "several blocks": (f"return %a : {M}\n^bb1:\n  return %a : {M}", UnsupportedError, "no jumps between blocks"),
    "a broken sharding": (f"%r = stablehlo.negate %a {{mhlo.sharding = \"junk\"}} : {M}\nreturn %r : {M}", XlaError, "sharding"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str):
    body, error, message = REFUSED[name]
    with pytest.raises(error, match=f"(?s){message}"):
        to_module(parse(main(body, f"%a: {M}, %b: tensor<f32>")))


def test_recursion_is_refused():
    with pytest.raises(UnsupportedError, match="calls itself"):
        to_module(parse("""func.func @main(%x: tensor<f32>) -> tensor<f32> {
          %0 = func.call @main(%x) : (tensor<f32>) -> tensor<f32>
          return %0 : tensor<f32>
        }"""))


def test_long_chains_of_calls_are_converted():
    functions = [f"func.func private @f{k}(%x: tensor<f32>) -> tensor<f32> {{ %0 = func.call @f{k + 1}(%x) : (tensor<f32>) -> "
                 "tensor<f32>\n return %0 : tensor<f32> }" for k in range(2000)]
    last = "func.func private @f2000(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }"
    first = "func.func @main(%x: tensor<f32>) -> tensor<f32> { %0 = func.call @f0(%x) : (tensor<f32>) -> tensor<f32>\n"
    assert len(converted("\n".join([first + "return %0 : tensor<f32> }", *functions, last])).computations) == 2002


def test_no_operation_has_two_rules():
    with pytest.raises(TypeError, match=re.escape("stablehlo.add has two rules")):
        rule("stablehlo.add")(RULES["stablehlo.add"])


# ------------------------------------------------------------------------------------------------------------------- entry points


def test_the_wrong_entry_point_names_the_right_one():
    with pytest.raises(InvalidArgument, match=r"(?s)this is HLO text.*parse_hlo"):
        from_stablehlo("HloModule m\nENTRY e { ROOT p = f32[] parameter(0) }")
    with pytest.raises(InvalidArgument, match=r"(?s)this is MLIR.*from_stablehlo"):
        parse_hlo("module {}")
    with pytest.raises(InvalidArgument, match="not a StableHLO program"):
        from_stablehlo(3)


def test_objects_of_jax_are_programs():
    jax: Any = pytest.importorskip("jax")
    lowered = jax.jit(lambda x: x * 2).lower(np.ones(3, np.float32))
    exported = jax.export.export(jax.jit(lambda x: x * 2))(np.ones(3, np.float32))
    for program in (lowered, exported, lowered.compiler_ir("stablehlo")):
        assert from_stablehlo(program).run_numpy(np.arange(3, dtype=np.float32))[0].tolist() == [0, 2, 4]


def test_modules_of_several_functions_give_their_names():
    found = to_module(parse(
        "module { func.func @f() { return }\n func.func @g() { return }\n func.func private @h() { return } }"))
    assert isinstance(found, Functions)
    assert found.names == ("f", "g")


def test_locations_are_metadata():
    root = converted("""func.func @main(%x: tensor<f32>) -> tensor<f32> {
      %0 = stablehlo.negate %x : tensor<f32> loc("jit(f)/neg"(callsite("g"("a.py":1:2) at "b.py":4:5)))
      return %0 : tensor<f32>
    }""").entry.root
    assert root.common["metadata"] == {"op_name": "jit(f)/neg", "source_file": "a.py", "source_line": 1}
    assert root.line == 2


def test_what_is_converted_prints_and_reads_back():
    for program in PROGRAMS.values():
        module = converted(program)
        assert difference(parse_module(print_module(module)), module) == ""
