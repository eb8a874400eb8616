"""What is said of HLO text with mistakes, by the parser and by the verifier."""

import pytest

from xla_torch.errors import HloSyntaxError, InvalidArgument, UnknownOpcodeError, UnsupportedError
from xla_torch.hlo.ir import Computation, Instruction, Module
from xla_torch.hlo.parser import parse_hlo
from xla_torch.hlo.verifier import verify
from xla_torch.shape import Shape
from xla_torch.types import F32

# ---------------------------------------------------------------------------------------------------- errors

BODY = "HloModule m\nENTRY e {\n  p = f32[2] parameter(0)\n"

ERRORS = [  # text, words of the message, line, column, words of the hint
    ("", "the text is empty", 1, 1, ""),
    ("HloModule m", "no computation", 1, 12, ""),
    ("HloModule m, is_scheduld=true\nENTRY e { ROOT p = f32[] parameter(0) }", "unknown attribute of the module", 1, 14,
     "is_scheduled"),
    ("HloModule m, is_scheduled=yes", "expects true or false", 1, 27, ""),
    ("HloModule m, replica_count=1, replica_count=1", "already exists", 1, 31, ""),
    ("HloModule m, input_output_alias={ {}: (0, {}, can-alias) }", "unknown kind of alias", 1, 47, ""),
    ("hello world", "neither a module nor a computation", 1, 1, ""),
    (BODY + "  ROOT r = f32[2] negat(p)\n}", "unknown opcode 'negat'", 4, 19, "negate"),
    (BODY + "  ROOT r = f32[2] negate(q)\n}", "instruction does not exist: q", 4, 26, ""),
    (BODY + "  pp = f32[2] negate(p)\n  ROOT r = f32[2] negate(p2)\n}", "instruction does not exist", 5, 26, "p"),
    (BODY + "  r = f32[2] negate(s)\n  s = f32[2] negate(p)\n}", "instruction does not exist: s", 4, 21, "defined below"),
    (BODY + "  ROOT r = f32[2] negate(f32[3] p)\n}", "the operand has the shape f32[2], not f32[3]", 4, 33, ""),
    (BODY + "  ROOT r = f32[2] negate(p), dimension={0}\n}", "unexpected attribute 'dimension'", 4, 30, ""),
    (BODY + "  ROOT r = f32[2] reverse(p), dimension={0}\n}", "unexpected attribute 'dimension'", 4, 31, "dimensions"),
    (BODY + "  ROOT r = f32[2] reverse(p)\n}", "attribute dimensions is expected but not seen", 4, 19, ""),
    (BODY + "  ROOT r = f32[2] reverse(p), dimensions={0}, dimensions={0}\n}", "dimensions already exists", 4, 47, ""),
    (BODY + "  ROOT r = f32[2] reverse(p), dimensions = {0}\n}", "expects '=' right after dimensions", 4, 42, ""),
    (BODY + "  ROOT r = f32[2] reverse(p), dimensions={0,}\n}", "expects an integer", 4, 45, ""),
    (BODY + "  ROOT r = f32[2] add(p)\n}", "expects 2 operands, but has 1 operands", 4, 19, ""),
    (BODY + "  ROOT r = f32[2] negate(p, p)\n}", "expects 1 operands, but has 2 operands", 4, 19, ""),
    (BODY + "  ROOT r = pred[2] compare(p, p), direction=LTE\n}", "unknown value of an attribute", 4, 45, "LT"),
    (BODY + "  ROOT r = f32[2] call(p), to_apply=f\n}", "computation does not exist: f", 4, 37, ""),
    (BODY + "  ROOT r = f32[2] call(p), to_apply=f\n}\nf { ROOT x = f32[2] parameter(0) }", "does not exist: f", 4, 37,
     "defined below"),
    (BODY + "  p = f32[2] negate(p)\n}", "instruction p already exists", 4, 3, ""),
    (BODY + "  x=f32[2] negate(p)\n}", "expects a name", 4, 3, "put a blank between x and '='"),
    (BODY + "  %1 = f32[2] negate(p)\n}", "expects an instruction", 4, 3, ""),
    (BODY + "  ROOT r = f33[2] negate(p)\n}", "unknown element type", 4, 12, ""),
    (BODY + "  ROOT r = f32[2]{1} negate(p)\n}", "not a permutation", 4, 18, ""),
    (BODY + "  ROOT r = reshape(p)\n}", "the shape of reshape must be written", 4, 12, ""),
    (BODY + "  ROOT a = f32[2] negate(p)\n  ROOT b = f32[2] negate(p)\n}", "two ROOT instructions", 5, 3, ""),
    (BODY + "}\nENTRY g { ROOT x = f32[2] parameter(0) }", "two ENTRY", 5, 1, ""),
    (BODY + "  q = f32[2] parameter(2)\n}", "parameter numbers of e are not dense", 2, 7, ""),
    (BODY, "the computation is not closed", 4, 1, ""),
    (BODY + "  ROOT r = f32[2] negate(p), metadata={op_name=\"x\"\n}", "the computation is not closed", 5, 2, ""),
    (BODY + "  ROOT r = f32[2] negate(p), origin={{replicated)\n}", "brackets do not match", 4, 49, ""),
    (BODY + "  ROOT r = f32[2] negate(p), sharding={replicated)\n}", "expects a word of a sharding", 4, 50, ""),
    ("HloModule m\nENTRY e (p : f32[2]) -> f32[2] { ROOT p = f32[2] parameter(0) }", "a parameter as in p: f32[2]", 2, 10, ""),
    ("HloModule m\nENTRY e (p: f32[2]) -> f32[3] { ROOT p = f32[2] parameter(0) }", "signature's result f32[3]", 2, 7, ""),
    ("e { ROOT c = f32[2] constant({1,2,3}) }", "more than 2 elements", 1, 35, ""),
    ("e { ROOT c = f32[2] constant({1,x}) }", "expects a value of type f32", 1, 33, ""),
    ("e { ROOT c = s8[] constant(128) }",
     "value 128 is out of range for literal's primitive type S8 namely [-128, 127]", 1, 28, ""),
    ("e { ROOT w = f32[2] reduce-window(w), window={size=2x2 strid=1x1} }", "does not exist", 1, 35, ""),
    ("e { p = f32[2] parameter(0)\n ROOT w = f32[2] reduce-window(p, p), window={size=2x2 strid=1x1} }",
     "a window has no such field", 2, 56, "stride"),
    ("e { p = f32[2] parameter(0)\n ROOT w = f32[2] reduce-window(p, p), window={size=2x2 stride=1} }",
     "stride has 1 entries and its size 2", 2, 46, ""),
    ("e { p = f32[2] parameter(0)\n ROOT w = f32[2] convolution(p, p), dim_labels=b0f_0io->b1f }",
     "dimension labels 'b1f'", 2, 48, ""),
]


@pytest.mark.parametrize(("text", "message", "line", "column", "hint"), ERRORS)
def test_syntax_errors(text, message, line, column, hint):
    with pytest.raises(HloSyntaxError) as caught:
        parse_hlo(text, "file.hlo")
    error = caught.value
    assert message in error.what
    assert (error.line, error.column) == (line, column)
    assert hint in error.hint
    shown = str(error).splitlines()
    source = text.split("\n")[line - 1] if text else ""
    position = next(n for n, row in enumerate(shown) if f"file.hlo, line {line}, column {column}" in row)
    assert shown[position + 1].strip() == source.strip().replace("\t", " ")
    assert shown[position + 2].index("^") == 12 + column - 1


def test_every_unknown_opcode_is_named_at_once():
    text = BODY + ("  a = f32[2] frobnicate(p, /*index=1*/p), foo={a, {b}}, metadata={op_name=\"f(\"}\n  b = grind(a), x=1\n"
                   "  ROOT c = f32[2] frobnicate(b)\n}")
    with pytest.raises(UnknownOpcodeError, match=r"unknown opcodes 'frobnicate' \(2 times\), 'grind' \(1 time\)") as caught:
        parse_hlo(text)
    assert isinstance(caught.value, UnsupportedError)
    assert (caught.value.line, caught.value.column) == (4, 14)


def test_long_lines_are_shortened_around_the_place():
    with pytest.raises(HloSyntaxError) as caught:
        parse_hlo("e { c = f32[1000] constant({" + "1," * 500 + "x," + "1," * 499 + "}) }")
    source, caret = str(caught.value).splitlines()[-2:]
    assert len(source) < 150
    assert source[caret.index("^")] == "x"


def test_inference_errors_name_instruction_and_place():
    with pytest.raises(InvalidArgument) as caught:
        parse_hlo(BODY + "  q = f32[3] parameter(1)\n  ROOT r = add(p, q)\n}")
    assert caught.value.subject == "add (%r)"
    assert "line 5, column 12" in caught.value.where


def test_deep_nesting_is_an_error_not_a_crash():
    with pytest.raises(HloSyntaxError, match="nested too deeply"):
        parse_hlo(BODY + "  ROOT r = f32[2] " + "negate(" * 20_000 + "p" + ")" * 20_000 + "\n}")
    with pytest.raises(HloSyntaxError, match="nested too deeply"):
        parse_hlo(BODY + "  ROOT r = " + "(" * 20_000 + ")" * 20_000 + " negate(p)\n}")


# ---------------------------------------------------------------------------------------------------- verifier

VERIFIER_ERRORS = [
    ("ROOT r = f32[3] negate(p)", "declared shape contradicts the inferred shape"),
    ("ROOT r = f16[2] negate(p)", "declared shape contradicts the inferred shape"),
    ("ROOT r = f32[2] add(p, q)", "incompatible shapes"),
    ("ROOT r = f32[2] add(p, i)", "different element types"),
    ("ROOT r = f32[3] reshape(p)", "mismatched element counts"),
    ("ROOT r = f32[2] get-tuple-element(p), index=0", "not a tuple"),
    ("ROOT r = f32[2] transpose(p), dimensions={1}", "permutation"),
]


@pytest.mark.parametrize(("row", "message"), VERIFIER_ERRORS)
def test_verifier_errors(row, message):
    module = parse_hlo(BODY + "  q = f32[3] parameter(1)\n  i = s32[2] parameter(2)\n"
                       f"  {row}, metadata={{op_name=\"jit(f)/x\"}}\n}}")
    with pytest.raises(InvalidArgument, match=message) as caught:
        verify(module)
    assert caught.value.subject.endswith("(%r)")
    assert caught.value.where.startswith("jit(f)/x, line 6, column 8")


def test_mixed_precision_is_refused_unless_allowed():
    text = "HloModule m\nENTRY e {{ a = f32[2] parameter(0)\n b = f16[2] parameter(1)\n ROOT r = {} }}"
    module = parse_hlo(text.format("f32[2] add(a, b)"))
    with pytest.raises(InvalidArgument, match="mixed precision"):
        verify(module)
    verify(module, allow_mixed_precision=True)
    verify(parse_hlo(text.format("f32[] dot(a, b), lhs_contracting_dims={0}, rhs_contracting_dims={0}")))
    verify(parse_hlo(text.format("(f32[2], f16[2]) tuple(a, b)")))


def test_layouts_do_not_matter_to_the_verifier():
    verify(parse_hlo("HloModule m\nENTRY e { p = f32[2,3]{0,1} parameter(0)\n ROOT n = f32[2,3]{1,0} negate(p) }"))


def test_verifier_knows_opcodes_and_attributes():
    p = Instruction("parameter", Shape(F32), (), {"parameter_number": 0}, "p")
    for bad in (Instruction("nonsense", Shape(F32), (p,), name="n"), Instruction("negate", Shape(F32), (p,), {"k": 1}, "n"),
                Instruction("reverse", Shape(F32), (p,), name="n"), Instruction("negate", Shape(F32), (p, p), name="n")):
        with pytest.raises((InvalidArgument, UnsupportedError)) as caught:
            verify(Module("m", Computation("e", [p, bad])))
        assert "n" in caught.value.subject
