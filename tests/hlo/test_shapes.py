"""Shapes and layouts: text, queries, compatibility, where elements lie in memory."""

import math

import hypothesis.strategies as st
import pytest
from hypothesis import given

from support import oracle
from xla_torch.errors import HloSyntaxError, InvalidArgument
from xla_torch.shape import UNBOUNDED, Layout, ProgramShape, Shape, Tile, parse_shape, scan_shape
from xla_torch.types import F32, S32, TOKEN, U8

# ---- text

TEXTS = [  # as written, as printed with layouts, as printed without
    ("f32[]", "f32[]", "f32[]"),
    ("f32[]{}", "f32[]", "f32[]"),
    ("f32[2,3]", "f32[2,3]{1,0}", "f32[2,3]"),
    ("f32[2,3]{0,1}", "f32[2,3]{0,1}", "f32[2,3]"),
    ("f32[2,3] { 1, 0 }", "f32[2,3]{1,0}", "f32[2,3]"),
    ("f32[0,3]", "f32[0,3]{1,0}", "f32[0,3]"),
    ("s4[16]{0:E(4)}", "s4[16]{0:E(4)}", "s4[16]"),
    ("bf16[8,1,1280,16384]{3,2,0,1:T(8,128)(2,1)}", "bf16[8,1,1280,16384]{3,2,0,1:T(8,128)(2,1)}", "bf16[8,1,1280,16384]"),
    ("f32[2,<=3,?]{2,1,0:T(8,128)(2,1)L(4)E(4)S(1)}", "f32[2,<=3,?]{2,1,0:T(8,128)(2,1)L(4)E(4)S(1)}", "f32[2,<=3,?]"),
    ("f32[2,7]{1,0:T(*,2)}", "f32[2,7]{1,0:T(*,2)}", "f32[2,7]"),
    ("f32[2,3]{1,0:T(2,128)#(u32)*(u16)}", "f32[2,3]{1,0:T(2,128)#(u32)*(u16)}", "f32[2,3]"),
    ("f32[2,3]{1,0:SC(0:1)(1:1,2)M(8)}", "f32[2,3]{1,0:SC(0:1)(1:1,2)M(8)}", "f32[2,3]"),
    ("f32[2]{0:}", "f32[2]{0}", "f32[2]"),
    ("token[]", "token[]", "token[]"),
    ("opaque[]", "opaque[]", "opaque[]"),
    ("b(f32[2])", "b(f32[2]{0})", "b(f32[2])"),
    ("()", "()", "()"),
    ("( f32[2]{0} ,s32[], (pred[], ()))", "(f32[2]{0}, s32[], (pred[], ()))", "(f32[2], s32[], (pred[], ()))"),
    ("(s8[], s8[], s8[], s8[], s8[], s8[])", "(s8[], s8[], s8[], s8[], s8[], /*index=5*/s8[])",
     "(s8[], s8[], s8[], s8[], s8[], /*index=5*/s8[])"),
    ("(f32[2] /* first */, // second\n s32[])", "(f32[2]{0}, s32[])", "(f32[2], s32[])"),
]


@pytest.mark.parametrize(("text", "full", "bare"), TEXTS)
def test_text(text, full, bare):
    shape = parse_shape(text)
    assert shape.to_text() == full
    assert str(shape) == bare
    assert parse_shape(full).to_text() == full


@oracle.needs_xla
@pytest.mark.parametrize("full", [full for _, full, _ in TEXTS])
def test_text_is_what_xla_prints(full):
    assert f"= {full} parameter(0)" in oracle.xla_canonical(f"ENTRY e {{\n ROOT p = {full} parameter(0)\n}}")


@pytest.mark.parametrize(("text", "what", "column"), [
    ("f33[2]", "unknown element type", 1),
    ("f32", "not a shape", 1),
    ("", "not a shape", 1),
    ("f32[-1]", "negative", 1),
    ("f32[a]", "not a size", 1),
    ("f32[2,3]{0}", "Dimensions size is 2, but minor to major size is 1", 9),
    ("f32[2]{0,1}", "Dimensions size is 1, but minor to major size is 2", 7),
    ("f32[2]{1}", "not a permutation", 7),
    ("f32[2]{0,x}", "not a list of dimensions", 7),
    ("f32[2]{0:S(1)E(4)}", "wrong layout attribute", 7),
    ("f32[2]{0:Q(1)}", "wrong layout attribute", 7),
    ("f32[2]{0:S(a)}", "malformed layout attribute S", 7),
    ("f32[2]{}", "after the end", 7),
    ("(f32[2]", "goes on wrongly", 8),
    ("(f32[2] s32[])", "goes on wrongly", 9),
    ("f32[2] f32[2]", "after the end", 7),
])
def test_text_errors(text, what, column):
    with pytest.raises(HloSyntaxError, match=what) as caught:
        parse_shape(text)
    assert (caught.value.line, caught.value.column) == (1, column)


@pytest.mark.parametrize(("text", "end"), [("f32[2] {", 6), ("f32[2]{0} {", 9), ("f32[2] { ROOT", 6), ("f32[] {0", 5)])
def test_a_brace_begins_a_layout_only_before_an_integer_or_colon(text, end):
    assert scan_shape(text, 0)[1] == end


# ---- making and asking


def test_making():
    assert Shape.array(F32, [2, 3]) == parse_shape("f32[2,3]")
    assert Shape.array(F32, [2, UNBOUNDED], [True, False]) == parse_shape("f32[<=2,?]")
    assert Shape.tuple([Shape(S32), Shape.token()]) == parse_shape("(s32[], token[])")
    with pytest.raises(InvalidArgument, match="negative"):
        Shape.array(F32, [-1])
    with pytest.raises(InvalidArgument, match="not an element type of arrays"):
        Shape.array(TOKEN)


def test_asking():
    shape = parse_shape("(f32[2,<=3]{0,1}, (u8[], token[]))")
    assert [str(s) for s in shape.leaves()] == ["f32[2,<=3]", "u8[]", "token[]"]
    assert shape.at(()) is shape
    assert shape.at((1, 0)) == Shape(U8)
    assert shape.byte_size == 25
    assert not shape.is_static
    assert shape.at((1,)).is_static
    assert shape.at((0,)).dynamic_flags == (False, True)
    assert shape.without_layout() == parse_shape("(f32[2,<=3], (u8[], token[]))")
    assert shape.at((1, 0)).is_scalar
    with pytest.raises(InvalidArgument, match="does not lead into"):
        shape.at((2,))


@pytest.mark.parametrize(("a", "b", "strict", "loose"), [  # loose: ignoring float precision
    ("f32[2,3]{0,1}", "f32[2,3]", True, True),
    ("f32[2]", "f16[2]", False, True),
    ("f32[2]", "s32[2]", False, False),
    ("f32[2]", "f32[3]", False, False),
    ("f32[2]", "f32[2,1]", False, False),
    ("f32[<=2]", "f32[2]", True, True),
    ("f32[?]", "f32[7]", True, True),
    ("(f32[2], s32[])", "(f32[2]{0}, s32[])", True, True),
    ("(f32[2])", "f32[2]", False, False),
    ("(f32[2])", "(f32[2], f32[2])", False, False),
    ("(f32[2])", "(bf16[2])", False, True),
    ("token[]", "token[]", True, True),
])
def test_compatible(a, b, strict, loose):
    a, b = parse_shape(a), parse_shape(b)
    assert a.compatible(b) is b.compatible(a) is strict
    assert a.compatible(b, ignore_precision=True) is b.compatible(a, ignore_precision=True) is loose


def test_dynamic_dimensions_can_count():
    assert not parse_shape("f32[<=2]").compatible(parse_shape("f32[2]"), ignore_dynamic=False)


def test_program_shape():
    shape = ProgramShape((Shape(F32), Shape.array(S32, [2])), Shape.tuple([]), ("x", ""))
    assert str(shape) == "(x: f32[], s32[2]) -> ()"


# ---- where elements lie (hlo/SPEC.md, Tiling)


@pytest.mark.parametrize(("text", "index", "linear"), [
    ("f32[]", (), 0),
    ("f32[2,3]{1,0}", (1, 2), 5),
    ("f32[2,3]{0,1}", (1, 2), 5),
    ("f32[2,3]{1,0}", (0, 2), 2),
    ("f32[2,3]{0,1}", (0, 2), 4),
    ("f32[3,5]{1,0:T(2,2)}", (2, 3), 17),
    ("f32[3,5]{1,0:T(2,2)}", (0, 0), 0),
    ("f32[3,5]{1,0:T(2,2)}", (0, 1), 1),
    ("f32[3,5]{1,0:T(2,2)}", (1, 0), 2),
    ("f32[3,5]{1,0:T(2,2)}", (0, 2), 4),
    ("f32[3,5]{1,0:T(2,2)}", (2, 4), 20),
    ("f32[4,8]{1,0:T(2,4)(2,1)}", (1, 2), 5),
    ("f32[2,7]{1,0:T(*,3)}", (1, 1), 8),
    ("f32[10]{0:T(2,4)}", (9,), 17),
])
def test_linear_index(text, index, linear):
    assert parse_shape(text).linear_index(index) == linear


@pytest.mark.parametrize(("text", "size"), [
    ("f32[]", 1), ("f32[2,3]", 6), ("f32[0,3]", 0), ("f32[3,5]{1,0:T(2,2)}", 24), ("f32[10]{0:L(8)}", 16),
    ("f32[2,7,8,11,10]{4,3,2,1,0:T(*,*,2,*,3)}", 56 * 37 * 6), ("f32[8,130]{1,0:T(8,128)}", 2048),
])
def test_buffer_size(text, size):
    assert parse_shape(text).buffer_size == size


@given(st.lists(st.integers(1, 4), max_size=4).flatmap(
    lambda dims: st.tuples(st.just(dims), st.permutations(range(len(dims))))))
def test_untiled_places_are_a_bijection(case):
    dims, order = case
    layout = "{" + ",".join(map(str, order)) + "}" if dims else ""
    shape = parse_shape(f"f32[{','.join(map(str, dims))}]{layout}")
    places = [shape.linear_index(shape.multi_index(n)) for n in range(shape.element_count)]
    assert places == list(range(math.prod(dims)))


def test_place_errors():
    with pytest.raises(InvalidArgument, match="outside the array"):
        parse_shape("f32[2]").linear_index((2,))
    with pytest.raises(InvalidArgument, match="outside the array"):
        parse_shape("f32[2]").multi_index(2)
    with pytest.raises(InvalidArgument, match="padding, so positions"):
        parse_shape("f32[2]{0:T(4)}").multi_index(0)


IMPOSSIBLE = [
    ("f32[4,4]{1,0:T(2,*)}", lambda: Tile((2, -1)), "a tile has no size"),
    ("f32[4]{0:T(0)}", lambda: Tile((0,)), "a tile has no size"),
    ("f32[4]{0:T(-2)}", lambda: Tile((-2,)), "a tile has no size"),
    ("f32[4]{0:L(0)}", lambda: Layout((0,), tail_padding_alignment=0), "tail_padding_alignment is out of range"),
    ("f32[4]{0:L(-1)}", lambda: Layout((0,), tail_padding_alignment=-1), "tail_padding_alignment is out of range"),
    ("f32[4]{0:S(-1)}", lambda: Layout((0,), memory_space=-1), "memory_space is out of range"),
    ("f32[4]{0:E(-4)}", lambda: Layout((0,), element_size_in_bits=-4), "element_size_in_bits is out of range"),
    ("f32[4,4]{0,0}", lambda: Layout((0, 0)), "not a permutation"),
    ("f32[4,4]{1,2}", lambda: Layout((1, 2)), "not a permutation"),
    ("f32[4,4]{0}", lambda: Shape.array(F32, (4, 4), layout=Layout((0,))), "minor to major size is 1"),
    ("f32[4]{0,1}", lambda: Shape(F32, (4,), Layout((0, 1))), "minor to major size is 2"),
    ("f32[-4]", lambda: Shape.array(F32, [-4]), "a dimension is negative"),
    ("f32[9223372036854775808]", lambda: Shape.array(F32, [2**63]), "does not fit in 64 bits"),
    ("f32[2.5]", lambda: Shape.array(F32, [2.5]), "(?i)integers|not a size"),  # pyright: ignore[reportArgumentType]
]


@pytest.mark.parametrize(("text", "make", "what"), IMPOSSIBLE)
def test_impossible_shapes_and_layouts_are_refused_when_made(text, make, what):
    with pytest.raises(HloSyntaxError, match=what):
        parse_shape(text)
    with pytest.raises(InvalidArgument, match=what):
        make()


def test_a_shape_has_the_default_layout():
    shape = Shape.array(F32, [2, 3])
    assert shape.layout == Layout((1, 0))
    assert (repr(shape), shape.to_text(), str(shape)) == ("f32[2,3]{1,0}", "f32[2,3]{1,0}", "f32[2,3]")
    for same in (parse_shape("f32[2,3]"), parse_shape("f32[2,3]{1,0}"), shape.without_layout(), Shape(F32, (2, 3))):
        assert same == shape
        assert hash(same) == hash(shape)
    for other in ("f32[2,3]{0,1}", "f32[2,3]{1,0:T(2,2)}", "f32[2,3]{1,0:S(1)}", "f32[3,2]", "f16[2,3]", "f32[<=2,3]"):
        assert parse_shape(other) != shape
    assert Shape.array(F32).layout == Layout(())
    assert Shape.array(F32) == parse_shape("f32[]")


@pytest.mark.parametrize(("text", "number"), [("f32[]", 0), ("f32[1,5,0,2]", 2), ("f32[1,1]", 0), ("f32[?,<=3]", 2)])
def test_the_true_number_of_dimensions(text, number):
    assert parse_shape(text).true_number_of_dimensions == parse_shape(text).true_rank == number
