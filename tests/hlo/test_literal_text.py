"""Literals in HLO text, for every element type: bits as XLA makes them, exact printing, refusals, size."""

import re

import hypothesis.extra.numpy as npst
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from support import oracle
from support.counting import python_calls
from xla_torch.errors import HloSyntaxError
from xla_torch.hlo.literals import printing as literal_printing
from xla_torch.hlo.literals.decimal_text import usual_decimals
from xla_torch.hlo.literals.float_text import shortest_texts
from xla_torch.hlo.literals.literal import Literal
from xla_torch.hlo.literals.printing import element_texts, format_literal
from xla_torch.hlo.literals.text import integer_range, parse_literal
from xla_torch.hlo.scanner import Scanner
from xla_torch.shape import Shape, parse_shape
from xla_torch.types import PrimitiveType

ARRAY_TYPES = [t for t in PrimitiveType if t.is_array]


def read(shape: str | Shape, body: str) -> Literal:
    scanner = Scanner(body)
    literal = parse_literal(scanner, parse_shape(shape) if isinstance(shape, str) else shape)
    assert scanner.at_end()
    return literal


# ---- reading: the same bits as XLA

ROWS = [
    ("f32[]", "nan"), ("f32[]", "-nan"), ("f32[]", "nan(0x3)"), ("f32[]", "nan(0x400001)"), ("f32[]", "-nan(0x1)"),
    ("f32[]", "inf"), ("f32[]", "-inf"), ("f32[]", "-0.0"), ("f32[]", "1."), ("f32[]", "1E+5"),
    ("f32[]", "0.1"), ("f32[]", "16777217"), ("f32[]", "1e-50"), ("f32[]", "3.4028235e38"), ("f32[]", "1e-45"),
    ("f64[]", "0.1"), ("f64[]", "1.7976931348623157e308"), ("f64[]", "nan(0x1)"), ("f64[]", "5e-324"),
    ("f16[]", "65504"), ("f16[]", "65519"), ("f16[]", "nan(0x3)"), ("f16[]", "1.00048828125000001"), ("f16[]", "6e-8"),
    ("bf16[]", "3.39e38"), ("bf16[]", "1.00390625"), ("bf16[]", "1.00390626"), ("bf16[]", "1.0039062500000001"),
    ("bf16[]", "-nan(0x7)"),
    ("f8e5m2[]", "61439"), ("f8e5m2[]", "nan(0x1)"), ("f8e5m2[]", "-inf"), ("f8e4m3[]", "247"), ("f8e4m3[]", "inf"),
    ("f8e4m3fn[]", "464"), ("f8e4m3fn[]", "inf"), ("f8e4m3fn[]", "-nan"), ("f8e4m3fn[]", "1.0625000001"),
    ("f8e4m3b11fnuz[]", "30.9"), ("f8e4m3fnuz[]", "-0.0"), ("f8e4m3fnuz[]", "nan"), ("f8e5m2fnuz[]", "57344"),
    ("f8e3m4[]", "15.7"), ("f8e8m0fnu[]", "3"), ("f8e8m0fnu[]", "nan"), ("f8e8m0fnu[]", "1e-39"),
    ("f4e2m1fn[]", "5"), ("f4e2m1fn[]", "-0.25"), ("f4e2m1fn[]", "7"),
    ("pred[]", "true"), ("pred[]", "0"), ("pred[3]", "{true,0,1}"),
    ("s2[]", "-2"), ("s4[2]", "{-8,7}"), ("u4[2]", "{0,15}"), ("u2[]", "3"), ("s8[]", "-128"), ("s32[]", "-0"),
    ("u64[]", "18446744073709551615"), ("s64[2]", "{-9223372036854775808,9223372036854775807}"),
    ("c64[]", "(1,-0.0)"), ("c64[2]", "{(1, nan), (inf,-inf)}"), ("c128[1,2]", "{{(0.1,1e300),(-0.,2)}}"),
    ("f32[2,2,2]", "{ { {1,2},{3,4}}, {{5,6},\n /* c */ {7,8}} // end\n}"), ("f32[0,3]", "{}"), ("f32[2,0]", "{{},{}}"),
    ("s32[2,3]{0,1}", "{{1,2,3},{4,5,6}}"), ("f32[2]", "{nan(0x3), 1}"),
    ("f32[3]", "5"), ("s8[2,2]{0,1}", "-7"), ("pred[2]", "true"), ("f32[2]", "-0.0"), ("bf16[2,2]", "nan"),
    ("f8e8m0fnu[2]", "2"), ("f32[4]", "0"),
]


@oracle.needs_xla
@pytest.mark.parametrize(("shape", "body"), ROWS)
def test_bits_are_those_of_xla(shape, body):
    want, = oracle.run_xla(f"HloModule m\nENTRY e {{\n ROOT c = {shape} constant({body})\n}}")
    literal = read(shape, body)
    assert literal.array.dtype == want.dtype
    assert literal.array.shape == want.shape
    assert literal.array.tobytes() == want.tobytes()
    assert read(shape, format_literal(literal)) == literal


def test_minus_zero_is_negative_as_it_is_meant():
    # XLA prints negative zeros as -0 and reads that back as 0; a dump means what its program held.
    assert read("f32[2]", "{-0, -0.0}").bits == np.array([-0.0, -0.0], np.float32).tobytes()


def test_tuples():
    literal = read("(f32[2], (s32[], pred[2]), ())", "({1, nan}, (7, {true, 0}), ())")
    assert format_literal(literal) == "({1,nan}, (7, {1,0}), ())"
    assert read(literal.shape, format_literal(literal)) == literal


@pytest.mark.parametrize("shape", ["f32[2]", "f32[2,3]", "f32[0]"])
def test_elision(shape):
    literal = read(shape, "{...}")
    assert literal.elided
    assert format_literal(literal) == "{...}"
    assert literal != read(shape, format_literal(Literal(literal.shape, literal.value)))


# ---- refusals

REFUSALS = [  # shape, body, words of the message, column
    ("f16[]", "65520", "value 65520 is out of range for literal's primitive type F16", 1),
    ("f16[]", "70000", "out of range", 1), ("bf16[]", "3.4e38", "out of range", 1), ("f8e4m3fn[]", "500", "out of range", 1),
    ("f8e8m0fnu[]", "0", "out of range", 1), ("f8e8m0fnu[]", "-1", "out of range", 1), ("f8e5m2[]", "61440", "out of range", 1),
    ("f32[]", "1e39", "out of range", 1), ("f64[]", "1e309", "out of range", 1), ("f32[3]", "{1,1e39,2}", "out of range", 4),
    ("s4[]", "-9", "value -9 is out of range for literal's primitive type S4 namely [-8, 7]", 1),
    ("u4[2]", "{0, 16}", "out of range", 5), ("s1[]", "1", "namely [-1, 0]", 1), ("u8[]", "-1", "out of range", 1),
    ("u64[]", "18446744073709551616", "out of range", 1), ("s32[1]", "{9223372036854775808}", "out of range", 2),
    ("s32[]", "1.0", "expects an integer", 1), ("s32[]", "nan", "expects an integer", 1), ("s32[2]", "{1,2e3}", "an integer", 4),
    ("f32[]", "x", "expects a value of type f32", 1),
    ("f32[]", "+1", "expects a value", 1), ("f32[]", ".5", "expects a value", 1),
    ("f32[]", "0x1p3", "expects a value", 1), ("f32[]", "infinity", "expects a value", 1), ("f32[]", "true", "not a number", 1),
    ("f32[]", "f32[] 1", "expects a value", 1), ("f32[]", "__import__('os').abort()", "expects a value", 1),
    ("f32[]", "nan(0x0)", "payload does not fit", 1), ("f32[]", "nan(0x800000)", "payload does not fit", 1),
    ("f8e4m3fn[]", "nan(0x7)", "no payloads", 1),
    ("c64[2]", "{0, 1}", "is a pair", 2), ("c64[]", "1", "is a pair", 1),
    ("c64[]", "(1)", "expects ','", 3), ("f32[]", "(1)", "expects a value", 1),
    ("f32[2]", "{1,2,3}", "more than 2 elements in dimension 0", 6), ("f32[2]", "{1}", "expects 2 elements in dimension 0", 1),
    ("f32[2,2]", "{5{1,2},{3,4}}", "expects '{'", 2), ("s32[2,2]", "{{1,2}5,{3,4}}", "expects '{'", 7),
    ("f32[2,2]", "{{1,2},{3}}", "expects 2 elements in dimension 1 of the literal, but sees 1", 8),
    ("f32[2]", "{{1,2}}", "expects a value", 2), ("f32[2]", "{1 2 3}", "more than 2", 6),
    ("f32[2]", "{1,", "expects a value", 4), ("f32[0,3]", "{{}}", "more than 0 elements", 2), ("f32[2,0]", "{}", "expects 2", 1),
    ("token[]", "0", "cannot have the shape", 1), ("(f32[], f32[])", "(1)", "expects ','", 3),
    ("pred[2]", "{true,maybe}", "expects a value of type pred", 7), ("pred[]", "1.5", "expects an integer", 1),
]


@pytest.mark.parametrize(("shape", "body", "message", "column"), REFUSALS)
def test_refusals(shape, body, message, column):
    with pytest.raises(HloSyntaxError) as caught:
        read(shape, body)
    assert message in caught.value.what
    assert (caught.value.line, caught.value.column) == (1, column)


# ---- printing

PRINTED = [
    ("f32[]", "0.001"), ("f32[]", "1e+10"), ("f32[]", "-0.0"), ("bf16[]", "-0.0"),
    ("f32[]", "1"), ("f32[]", "123456"), ("f32[]", "1e-05"),
    ("f32[]", "-nan(0x1)"), ("f64[]", "0.1"), ("f64[]", "1e+300"), ("f16[]", "0.1"), ("bf16[]", "0.1"), ("bf16[]", "3.39e+38"),
    ("f8e4m3fn[]", "448"), ("f8e5m2[]", "-inf"), ("f8e4m3fnuz[]", "-nan"), ("f8e8m0fnu[]", "nan"), ("f4e2m1fn[]", "-0.5"),
    ("pred[]", "true"), ("pred[2]", "{1,0}"), ("s64[]", "-9223372036854775808"), ("u64[]", "18446744073709551615"),
    ("c64[]", "(0.1, -inf)"), ("f32[2,2]", "{ {1,2}, {3,4} }"), ("s4[2,1,2]", "{ { {-8,7} }, { {0,1} } }"), ("f32[0]", "{}"),
    ("f32[2,0]", "{ {}, {} }"), ("bf16[3]", "{0.1,0.1,nan}"),
]


@pytest.mark.parametrize(("shape", "text"), PRINTED)
def test_printing(shape, text):
    assert format_literal(read(shape, text)) == text


@pytest.mark.parametrize("element_type", ARRAY_TYPES, ids=str)
def test_every_bit_pattern_survives(element_type):
    width = min(element_type.bits, 16) if not element_type.is_pred else 1
    patterns = np.arange(2**width).astype(np.uint16)
    if element_type.bits <= 8:
        patterns = patterns.astype(np.uint8)
    if element_type.is_signed and element_type.bits < 8:
        low, high = integer_range(element_type)
        value = np.arange(low, high + 1).astype(element_type.numpy)
    elif element_type.bits <= 16:
        value = patterns.view(element_type.numpy)
    else:  # the high halves of the words, with some low bits, so that NaN payloads and denormals occur
        part = element_type.bits // (2 if element_type.is_complex else 1)
        words = (patterns.astype(np.uint64) << (part - 16)) | (patterns.astype(np.uint64) * 7919 % 4093)
        value = words.astype(f"u{part // 8}").view(element_type.numpy)
    literal = Literal(Shape.array(element_type, value.shape), value)
    assert read(literal.shape, format_literal(literal)) == literal


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([np.float32, np.float64, np.int8, np.uint64, np.bool_, np.complex64]).flatmap(
    lambda dtype: npst.arrays(dtype, npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))))
def test_any_shape_survives(array):
    literal = Literal.of(array)
    assert read(literal.shape, format_literal(literal)) == literal


def test_element_texts_are_shortest():
    values = np.random.default_rng(0).standard_normal(300).astype(np.float32)
    for text, value in zip(element_texts(values, PrimitiveType.F32), values, strict=True):
        assert np.float32(text) == value
        assert len(text) <= len(repr(float(value)))


# ---- size


@pytest.mark.parametrize(("shape", "element"), [
    ("f32[300000]", "0.5"), ("s32[100000,3]", "-7"), ("bf16[300,1000]", "1e-3"), ("pred[300000]", "true"),
    ("c64[100000]", "(1, 2)"),
    ("u64[100000]", "18446744073709551615")])
def test_large_literals_are_read_and_printed_as_a_whole(shape, element):
    dims = parse_shape(shape).dimensions
    body = element
    for size in reversed(dims):
        body = "{" + ", ".join([body] * size) + "}"
    literal = read(shape, body)
    assert python_calls(read, shape, body) < 5_000 + (12 * literal.array.size if literal.shape.element_type.is_complex else 0)
    assert python_calls(format_literal, literal) < 5_000 + 3 * literal.array.size
    assert read(shape, format_literal(literal)) == literal


SHAPES = [(600,), (700, 1), (1, 600), (30, 7, 1, 5), (2, 2, 2, 2, 40), (40000,), (9000, 3)]
"""Of large literals, more than one piece of which is written at once."""


@pytest.mark.parametrize("element_type", ARRAY_TYPES, ids=str)
def test_large_literals_are_printed_as_small_ones_are(element_type):
    random = np.random.default_rng(0)
    for sizes in SHAPES:
        count = int(np.prod(sizes))
        few = element_type.is_pred or element_type.bits < 8
        value = random.integers(0, 2, count).astype(element_type.numpy) if few else \
            np.frombuffer(random.bytes(count * element_type.itemsize), element_type.numpy)
        literal = Literal(Shape.array(element_type, sizes), value.reshape(sizes))
        assert format_literal(literal) == literal_printing._nest(  # pyright: ignore[reportPrivateUsage]
            element_texts(value, element_type), sizes)


def floats() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    powers = np.concatenate([2.0 ** np.arange(-149, 128), 10.0 ** np.arange(-45, 39)]).astype(np.float32)
    beside = np.concatenate([np.nextafter(powers, np.float32(np.inf)), np.nextafter(powers, np.float32(0))])
    return {
        "normal": random.standard_normal(1 << 15),
        "any bits": random.integers(0, 2**32, 1 << 15).astype(np.uint32).view(np.float32),
        "denormals": random.integers(0, 2**23, 1 << 14).astype(np.uint32).view(np.float32), "powers": powers, "beside": beside,
        "integers": random.integers(0, 2**31, 1 << 14),
        "short": random.integers(0, 10**4, 1 << 14) / 10.0 ** random.integers(0, 9, 1 << 14),
        "edges": np.array([0, -0.0, np.inf, -np.inf, 1, 1e6, 999999.94, 1e-4, 1.0000001e-4, 3.4028235e38, 1e-45]),
    }


@pytest.mark.parametrize("name", floats())
def test_shortest_texts_are_those_of_numpy(name):
    values = floats()[name].astype(np.float32)
    values = values[~np.isnan(values)]
    want = ["-0.0" if text == "-0.0" else text.removesuffix(".0") for text in values.astype(str).tolist()]
    assert shortest_texts(values).decode().split(",")[:-1] == want


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(
    st.from_regex(r"\A-?[0-9]{1,9}(\.[0-9]{0,12})?([eE][+-]?[0-9]{1,3})?\Z"),
    st.text("0123456789.eE+-, x", max_size=8)), min_size=1, max_size=5), st.sampled_from([",", ", ", " , ", ",\n"]))
def test_usual_decimals_are_those_of_python_or_none(numbers, separator):
    text = separator.join(numbers)
    found = usual_decimals(text.encode())
    if found is not None:
        parts = [part.strip() for part in text.split(",")]
        assert all(re.fullmatch(r"-?[0-9]+(\.[0-9]*)?(e[+-]?[0-9]+)?", part) for part in parts)
        assert found.tobytes() == np.array([float(part) for part in parts]).tobytes()


def test_usual_decimals_are_usual():
    values = np.random.default_rng(0).standard_normal(4000).astype(np.float32) * np.float32(0.01)
    found = usual_decimals(", ".join(values.astype(str).tolist()).encode())
    assert found is not None
    assert found.astype(np.float32).tobytes() == values.tobytes()
