"""What MLIR's text means, mistakes with their places, and texts that are hostile or broken: the reader by itself."""

from __future__ import annotations

import contextlib
import re
import tracemalloc

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from support.mlir_texts import DATA, operations
from xla_torch.errors import HloSyntaxError
from xla_torch.mlir import ir
from xla_torch.mlir.text.parser import parse
from xla_torch.types import F16, F32, PRED, S8, U8


def value_of(type: str, body: str) -> ir.Elements:
    module = parse(f"func.func @f() {{\n  %0 = stablehlo.constant dense<{body}> : {type}\n  return\n}}")
    return module.regions[0].blocks[0].operations[0].regions[0].blocks[0].operations[0].attributes["value"]


@pytest.mark.parametrize(("type", "body", "want"), [
    ("tensor<2xf6E2M3FN>", "[7.5, -0.125]", [7.5, -0.125]),
    ("tensor<2xf6E3M2FN>", "[28.0, 0x01]", [28.0, 0.0625]),
    ("tensor<2x!quant.uniform<i8:f32, 0.5>>", "[-1, 127]", [-1, 127]),
    ("tensor<3xcomplex<f32>>", "(1.0, 2.0)", [1 + 2j] * 3),
    ("tensor<2xf32>", "[1., 2.E0]", [1.0, 2.0]),
    ("tensor<10xi1>", '"0x1D03"', [True, False, True, True, True, False, False, False, True, True]),
])
def test_constants_that_jaxlib_cannot_show(type, body, want):
    assert value_of(type, body).value.astype(np.array(want).dtype).tolist() == want


def test_a_splat_of_any_size_takes_no_memory():
    found = value_of("tensor<999999999999xf32>", "1.5")
    assert found.value.shape == (999999999999,)
    assert found.value.strides == (0,)


def test_long_literals_are_read_as_a_whole():
    numbers = np.random.default_rng(0).standard_normal((512, 512)).astype(np.float32)
    listed = ", ".join("[" + ", ".join(f"{v:.8e}" for v in row) + "]" for row in numbers.tolist())
    assert value_of("tensor<512x512xf32>", f"[{listed}]").value.tobytes() == numbers.tobytes()
    text = numbers.tobytes().hex()
    tracemalloc.start()
    found = value_of("tensor<512x512xf32>", f'"0x{text}"')
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.value.tobytes() == numbers.tobytes()
    assert peak < 6.5 * numbers.nbytes  # of which the text, made here in pieces, takes five


# ---- small things

def first(text: str) -> ir.Operation:
    """The first operation of a function whose body is `text`."""
    module = parse(f"func.func @f(%a: tensor<f32>, %b: tensor<2xf32>) {{\n{text}\n  return\n}}")
    return module.regions[0].blocks[0].operations[0].regions[0].blocks[0].operations[0]


@pytest.mark.parametrize(("text", "want", "own"), [
    ("200 : i8", -56, S8), ("200 : ui8", 200, U8), ("-128 : i8", -128, S8), ("0xFF : i8", -1, S8), ("-1 : i1", True, None),
    ("0x3C00 : f16", 1.0, F16), ("1.5 : f32", 1.5, F32), ("1.5 : f64", 1.5, None), ("7 : i64", 7, None), ("7", 7, None),
    ("array<i8: 255, -1, 127>", (-1, -1, 127), S8), ("array<f32: 1.0, 0x40000000>", (1.0, 2.0), F32),
    ("array<i64: 1>", (1,), None),
])
def test_numbers_are_those_of_their_type(text, want, own):
    """And those that are no i64 or f64, nor truth values, say which type that is."""
    found = first(f'  "x.y"() {{a = {text}}} : () -> ()').attributes["a"]
    assert found == want
    assert isinstance(found, type(want))
    assert getattr(found, "type", None) is own


def test_what_a_text_means():
    module = parse("module @m {}")
    assert module.symbol == "m"
    assert parse("").name == "builtin.module"
    operation = first("  %c = stablehlo.compare EQ, %a, %a, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1> // a comment")
    assert operation.attributes == {"comparison_direction": ir.Enum("stablehlo.comparison_direction", "EQ"),
                                    "compare_type": ir.Enum("stablehlo.comparison_type", "FLOAT")}
    assert (operation.line, operation.column) == (2, 3)
    assert operation.results[0].type == ir.Tensor((), PRED)
    bounded = first('  %0 = "x.y"() : () -> tensor<?xf32, #stablehlo.type_extensions<bounds = [4]>>').results[0].type
    assert bounded == ir.Tensor((None,), F32, ir.Struct("stablehlo.bounds", {"bounds": (4,)}))
    quantized = first('  %0 = "x.y"() : () -> !quant.uniform<i8<-127:127>:f32:1, {0.5:1, 0.25}>').results[0].type
    assert quantized == ir.Quantized(S8, -127, 127, F32, (0.5, 0.25), (1, 0), (1,), (1,))
    assert first('  "x.y"() {a = #foo.bar<"x>", [->]>} : () -> ()').attributes == {"a": ir.Opaque('#foo.bar<"x>", [->]>')}
    older = first('  "x.y"() {a = #mhlo<"comparison_direction LT">} : () -> ()').attributes["a"]
    assert older == ir.Enum("mhlo.comparison_direction", "LT")
    listed = value_of("tensor<2x3xi32>", "[[1,2 , 3 ]\n,[4, // a comment\n5,\t6]]")
    assert listed.value.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert np.signbit(value_of("tensor<2xf32>", "[-0.0, 0.0]").value).tolist() == [True, False]


RESOURCES = """func.func @main() {
  %0 = stablehlo.constant dense_resource<"a b"> : tensor<3xf32>
  %1 = stablehlo.constant dense_resource<blob1> : tensor<2x2xi8>
  return
}

{-#
  dialect_resources: {
    builtin: {
      "a b": "0x040000000000803F0000004000004040",
      blob1: "0x01000000FF000102"
    }
  },
  external_resources: {
    mlir_reproducer: {
      verify_each: true
    }
  }
#-}
"""


def test_constants_may_stand_at_the_end_of_the_file():
    floats, integers, _ = parse(RESOURCES).regions[0].blocks[0].operations[0].regions[0].blocks[0].operations
    assert floats.attributes["value"].value.tolist() == [1.0, 2.0, 3.0]
    assert integers.attributes["value"].value.tolist() == [[-1, 0], [1, 2]]


@pytest.mark.parametrize("text", [
    "func @f(%a: tensor<f32>) -> tensor<f32> {\n  return %a : tensor<f32>\n}",
    "module {\r\n  func.func @f() {\r\n    %0 = stablehlo.constant dense<1> : tensor<i32>\r\n    return\r\n  }\r\n}\r\n",
    'func.func @f(%a: tensor<f32>) {\n  %0 = "mhlo.map"(%a) ( {\n  ^bb0(%x: tensor<f32>):  // no predecessors\n'
    '    "mhlo.return"(%x) : (tensor<f32>) -> ()\n  }) {dimensions = dense<> : tensor<0xi64>} : (tensor<f32>) -> tensor<f32>\n'
    "  return\n}",
    "func.func @f(%a: tensor<1x4x4x1xf32>, %b: tensor<1x1x1x1xf32>) {\n  %0 = mhlo.convolution(%a, %b) dim_numbers = "
    "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], reverse = [0, 1]} {batch_group_count = 1 : i64} : "
    "(tensor<1x4x4x1xf32>, tensor<1x1x1x1xf32>) -> tensor<1x4x4x1xf32>\n  return\n}",
])
def test_older_spellings_are_read(text):
    assert parse(text).name == "builtin.module"


# ---- mistakes

BAD = [
    ("\ufeffmodule {}", 1, 1, "byte order mark"),
    ("module {", 1, 9, "ends within builtin.module"),
    ("nonsense", 1, 1, "no form of the operation"),
    ("module {\n  foo.bar %x\n}", 2, 3, "no form of the operation"),
    ("  cf.br ^bb1(%a : tensor<f32>)", 2, 3, "HLO has no jumps between blocks: write stablehlo.if"),
    ('  "cf.br"(%a)[^bb1] : (tensor<f32>) -> ()', 2, 14, "HLO has no jumps between blocks"),
    ("  %0 = scf.if %a -> tensor<f32> {}", 2, 8, "write stablehlo.if, stablehlo.case or stablehlo.while"),
    ("  %0 = linalg.abs %a : tensor<f32>", 2, 8, "the dialects that can be read are"),
    ("  %0 = stablehlo.add %a, %z : tensor<f32>", 2, 26, "%z is not defined"),
    ("  %0 = stablehlo.add %a, %b : tensor<f32>", 2, 31, "operand 1 is defined with another type"),
    ("  %0 = stablehlo.add %a#1, %a : tensor<f32>", 2, 22, "has 1 results"),
    ("  %0 = stablehlo.abs %1 : tensor<f32>\n  %1 = stablehlo.abs %a : tensor<f32>", 2, 22, "%1 is not defined"),
    ("  %0 = stablehlo.add %a, %a : tensor<f32>\n  %1 = stablehlo.add %a, 3a : tensor<f32>", 3, 24, "expects ':'"),
    ('  "x.y"() {a = #stablehlo.dot<lhs_batching_dimensions = [0, false]>} : () -> ()', 2, 57, "a list of integers"),
    ("func.func hidden @f()", 1, 11, "visibility"),
    ("  %a = stablehlo.abs %a : tensor<f32>", 2, 3, "defined twice"),
    ("  %0:2 = stablehlo.abs %a : tensor<f32>", 2, 3, "has 1 results, but names for 2"),
    ("  %0 = stablehlo.abs %a : tensor<f33>", 2, 34, "no type is called"),
    ("  %0 = stablehlo.abs %a tensor<f32>", 2, 25, "expects ':'"),
    ("  %0 = stablehlo.transpose %b, perm = [0] : (tensor<2xf32>) -> tensor<2xf32>", 2, 32, "has no 'perm'"),
    ("  %0 = stablehlo.constant dense<[1, 2, 3]> : tensor<2xi32>", 2, 33, "3 numbers, but its type 2"),
    ("  %0 = stablehlo.constant dense<[[1, 2], [3]]> : tensor<2x2xi32>", 2, 33, "3 numbers, but its type 4"),
    ("  %0 = stablehlo.constant dense<[[1, 2, 3], [4]]> : tensor<2x2xi32>", 2, 33, "brackets"),
    ("  %0 = stablehlo.constant dense<[5[1, 2], [3, 4]]> : tensor<2x2xi32>", 2, 33, "5 numbers, but its type 4"),
    ("  %0 = stablehlo.constant dense<[[1.0, 2.0]5.0, [3.0, 4.0]]> : tensor<2x2xf32>", 2, 33, "5 numbers, but its type 4"),
    ("  %0 = stablehlo.constant dense<[1, 1 2]> : tensor<2xi32>", 2, 37, "is no element"),
    ("  %0 = stablehlo.constant dense<[1, 256]> : tensor<2xi8>", 2, 37, "out of range"),
    ("  %0 = stablehlo.constant dense<-1> : tensor<ui8>", 2, 33, "out of range"),
    ("  %0 = stablehlo.constant dense<1.5> : tensor<i32>", 2, 33, "out of range"),
    ("  %0 = stablehlo.constant dense<1> : tensor<f32>", 2, 33, "1 is an integer"),
    ("  %0 = stablehlo.constant dense<[1.0, -2]> : tensor<2xf32>", 2, 39, "-2 is an integer"),
    ("  %0 = stablehlo.constant dense<[0x3F800000, 2]> : tensor<2xf32>", 2, 46, "2 is an integer"),
    ("  %0 = stablehlo.constant dense<(1.0, 2)> : tensor<complex<f32>>", 2, 39, "2 is an integer"),
    ("  %0 = stablehlo.constant dense<1> : tensor<f8E4M3FN>", 2, 33, "1 is an integer"),
    ('  "x.y"() {a = 1 : f32} : () -> ()', 2, 16, "1 is an integer"),
    ('  "x.y"() {a = array<f32: 1.0, 2>} : () -> ()', 2, 32, "2 is an integer"),
    ('  "x.y"() {a = array<i8: 1, 256>} : () -> ()', 2, 29, "out of range"),
    ('  "x.y"() {a = 300 : i8} : () -> ()', 2, 16, "out of range"),
    ('  "x.y"() {a = -1 : ui8} : () -> ()', 2, 16, "out of range"),
    ("  %0 = stablehlo.constant dense<[1.0, nan]> : tensor<2xf32>", 2, 39, "is no element"),
    ("  %0 = stablehlo.constant dense<\"0x0000\"> : tensor<2xf32>", 2, 33, "has 2 bytes"),
    ("  %0 = stablehlo.constant dense<\"0x0000G\"> : tensor<2xf32>", 2, 33, "hexadecimal digits"),
    ("  %0 = stablehlo.constant dense<1> : tensor<?xi32>", 2, 27, "known sizes"),
    ("  %0 = stablehlo.constant dense<1> : tensor<99999999999x99999999999xi32>", 2, 27, "larger than memory"),
    ("  %0 = stablehlo.constant dense<[]> : tensor<9999999999999xi32>", 2, 33, "0 numbers"),
    ("  %0 = stablehlo.constant dense_resource<r> : tensor<2xi32>", 2, 42, "no data of the resource"),
    ("  %0 = stablehlo.constant dense<1 : tensor<2xi32>", 2, 27, "expects a literal"),
    ('  "x.y"() {a = 1, a = 2} : () -> ()', 2, 19, "given twice"),
    ('  "x.y"() {a = #foo} : () -> ()', 2, 16, "the alias #foo is not defined"),
    ('  "x.y"() {a = #stablehlo.gather<offset_dim = [1]>} : () -> ()', 2, 34, "no field 'offset_dim'"),
    ('  "x.y"() {a = #stablehlo.conv<[b, 0, f]x[0, i, o]->[b, 1, f]>} : () -> ()', 2, 53, "dimensions of a convolution"),
    ('  "x.y"() {a = #foo.bar<[)>} : () -> ()', 2, 26, "brackets do not match"),
    ('  "x.y"() {a = "b} : () -> ()', 2, 16, "a string"),
    ('  "x.y"()[^bb1] : () -> ()', 2, 10, "branches"),
    ('  "x.y"() : () -> () loc(#loc7)', 2, 26, "the location #loc7 is not defined"),
    ('  "x.y"() : () -> () loc(nowhere)', 2, 26, "expects a location"),
    ("  %0 = func.call @g(%a) : (tensor<2xf32>) -> tensor<f32>", 2, 27, "operand 0 is defined with another type"),
    ("  %0 = stablehlo.reduce(%b init: %a) across dimensions = [0] : (tensor<2xf32>, tensor<f32>) -> tensor<f32>\n reducer() {}",
     3, 12, "two arguments for each operand"),
]


@pytest.mark.parametrize(("text", "line", "column", "what"), BAD)
def test_errors_have_line_and_column(text, line, column, what):
    whole = text if not text.startswith("  ") else f"func.func @f(%a: tensor<f32>, %b: tensor<2xf32>) {{\n{text}\n  return\n}}"
    with pytest.raises(HloSyntaxError, match=re.escape(what)) as caught:
        parse(whole, "file.mlir")
    assert (caught.value.line, caught.value.column) == (line, column)
    assert f"file.mlir, line {line}, column {column}" in str(caught.value)
    assert str(caught.value).startswith("MLIR text: ")


@pytest.mark.parametrize("text", [
    '"x.y"() ({' * 100_000,
    '"x.y"() {a = ' + "[" * 100_000,
    '"x.y"() {a = ' + "{b = " * 100_000,
    '"x.y"() : () -> ' + "tuple<" * 100_000,
    '"x.y"() : () -> ' + "() -> (" * 100_000,
    '"x.y"() : () -> () loc(' + 'fused["a", ' * 100_000,
    '"x.y"() {a = #foo.bar' + "<" * 100_000,
    '"x.y"() {a = ' + "9" * 100_000 + "} : () -> ()",
    "%0:999999999999 = " + '"x.y"() : () -> ()',
    '"x.y"() : () -> () loc(#a)\n#a = loc("x"(#b))\n#b = loc("y"(#a))',
    "#a = loc(#a)\n" + '"x.y"() : () -> () loc(#a)',
])
def test_hostile_texts_are_refused(text):
    with pytest.raises(HloSyntaxError):
        parse(text)


def test_regions_may_lie_deep_in_each_other_and_locations_depend_on_many():
    module = parse('"x.y"() ({\n' * 900 + "}) : () -> ()\n" * 900)
    assert sum(1 for _ in ir.walk(module)) == 901
    chain = "".join(f"#l{k} = loc(fused[#l{k - 1}, #l{k - 1}])\n" for k in range(1, 5000))
    module = parse('"x.y"() : () -> () loc(#l4999)\n' + chain + '#l0 = loc("f.py":1:2)\n')
    location = module.regions[0].blocks[0].operations[0].location
    assert location is not None
    assert len(location.frames) <= 100


MUTATED = [*(p for p in (DATA / "mlir_programs.mlir").read_text().split("// -----\n")), *operations()[::7]]
PIECES = [*'"<>(){}[]:,=-#!?*x\n\\\0é\ud800', "%0", "%a", "->", "@f", "^bb0", "tensor<", "dense<", "0x", "1.5",
          "9" * 30, "//", "{-#", "loc(", "stablehlo.", "true", "i3", "nan"]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_mutated_texts_raise_nothing_but_syntax_errors(data):
    text = data.draw(st.sampled_from(MUTATED))
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.sampled_from([0, 1, 3, 30])))
        text = text[:start] + data.draw(st.sampled_from(["", *PIECES])) + text[end:]
    with contextlib.suppress(HloSyntaxError):
        parse(text)
