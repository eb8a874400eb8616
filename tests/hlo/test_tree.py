"""Values in the form of a shape."""

from __future__ import annotations

import pytest

from xla_torch.hlo import tree
from xla_torch.hlo.ir import Token
from xla_torch.shape import Shape

SHAPE = Shape.parse("(f32[2], (s32[], token[]), (), pred[3])")
FLAT = [Shape.parse(text) for text in ("f32[2]", "s32[]", "token[]", "pred[3]")]
VALUE = ("a", ("b", "t"), (), "c")


def test_leaves_come_depth_first_with_their_shapes() -> None:
    assert list(tree.leaves(VALUE, SHAPE)) == list(zip(["a", "b", "t", "c"], FLAT, strict=True))
    assert list(tree.leaves("a", FLAT[0])) == [("a", FLAT[0])]


def test_a_leaf_may_be_a_tuple_itself() -> None:
    """What a leaf is does not matter: the walk follows the shape."""
    assert list(tree.leaves(((1, 2),), Shape.parse("(f32[2])"))) == [((1, 2), FLAT[0])]


def test_arrays_are_leaves_without_tokens() -> None:
    assert tree.arrays(VALUE, SHAPE) == [("a", FLAT[0]), ("b", FLAT[1]), ("c", FLAT[3])]


def test_grouped_is_the_inverse_of_leaves() -> None:
    flat = [leaf for leaf, _ in tree.leaves(VALUE, SHAPE)]
    assert tree.grouped(flat, SHAPE) == VALUE
    assert tree.grouped(flat, SHAPE, list) == ["a", ["b", "t"], [], "c"]
    assert tree.grouped(FLAT, SHAPE, Shape.tuple) == SHAPE


def test_grouped_takes_no_more_than_it_needs() -> None:
    rest = iter("abtcd")
    assert tree.grouped(rest, SHAPE) == VALUE
    assert next(rest) == "d"


def test_from_arrays_puts_tokens_where_the_shape_has_them() -> None:
    assert tree.from_arrays(["a", "b", "c"], SHAPE) == ("a", ("b", Token()), (), "c")


def test_mapped_walks_several_values_at_once() -> None:
    def join(own: Shape, one: str, two: str) -> str:
        return f"{one}{two}{own.rank if own.is_array else '-'}"

    assert tree.mapped(join, SHAPE, VALUE, VALUE) == ("aa1", ("bb0", "tt-"), (), "cc1")
    assert tree.mapped(lambda own: own.is_array, SHAPE, kind=list) == [True, [True, False], [], True]


def test_mapped_refuses_values_of_another_form() -> None:
    with pytest.raises(ValueError, match="shorter"):
        tree.mapped(lambda _, leaf: leaf, SHAPE, ("a", ("b",), (), "c"))


def test_everywhere_is_one_leaf_at_every_place() -> None:
    assert tree.everywhere(False, SHAPE, list) == [False, [False, False], [], False]
    assert tree.everywhere(1, FLAT[0]) == 1
