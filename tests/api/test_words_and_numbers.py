"""Words that functions are configured with, as enums and as texts, and dimension numbers as people write them."""

from __future__ import annotations

import enum
import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from support.oracle import needs_xla
from xla_torch import Shape, XlaBuilder, XlaOp, ops
from xla_torch.errors import InvalidArgument

ENUMS: dict[str, tuple[type[enum.Enum], str, Callable[[XlaOp, Any], Any]]] = {
    "Fft": (ops.FftType, "c64[4,4]", lambda x, w: ops.Fft(
        ops.Real(x) if str(w) == "RFFT" else x, w, [6 if "IR" in str(w) else 4])),
    "RngBitGenerator": (ops.RandomAlgorithm, "u64[2]", lambda x, w: ops.RngBitGenerator(w, x, Shape.parse("u32[3]"))),
    "TriangularSolve": (ops.TriangularSolveTranspose, "f32[4,4]", lambda x, w: ops.TriangularSolve(x, x, True, True, False, w)),
    "Compare": (ops.ComparisonDirection, "f32[3]", lambda x, w: ops.Compare(x, x, (), w)),
    "Compare, shorter": (ops.ComparisonDirection, "f32[3]", lambda x, w: ops.Compare(x, x, w)),
    "comparison type": (ops.ComparisonType, "f32[3]", lambda x, w: ops.Compare(_of(x, w), _of(x, w), (), "LT", w)),
    "precision of each": (ops.Precision, "f32[4,4]", lambda x, w: ops.Dot(x, x, [w, w])),
    "precision of both": (ops.Precision, "f32[4,4]", lambda x, w: ops.Dot(x, x, w)),
    "precision of a convolution": (ops.Precision, "f32[1,1,4,4]", lambda x, w: ops.Conv(x, x, [1, 1], "valid", 1, 1, w)),
    "schedule": (ops.CustomCallSchedule, "f32[4]", lambda x, w: ops.CustomCall("t", [x], x.shape, schedule=w)),
    "api version": (ops.CustomCallApiVersion, "f32[4]", lambda x, w: ops.CustomCall("t", [x], x.shape, api_version=w)),
    "padding": (ops.Padding, "f32[1,1,4,4]", lambda x, w: ops.Conv(x, x, [1, 1], w)),
}


def _of(x: XlaOp, kind: Any) -> XlaOp:
    wanted = {"SIGNED": "s32", "UNSIGNED": "u32"}.get(str(kind).upper())
    return ops.ConvertElementType(x, wanted) if wanted else x


def text_of(build: Callable[[XlaOp, Any], Any], shape: str, word: Any) -> str:
    builder = XlaBuilder("program")
    build(builder.parameter(0, Shape.parse(shape)), word)
    return builder.build().to_hlo_text()


@pytest.mark.parametrize("name", ENUMS)
def test_members_and_texts_are_the_same(name: str) -> None:
    words, shape, build = ENUMS[name]
    texts = {text_of(build, shape, member) for member in words}
    assert len(texts) == len(words)
    for member in words:
        assert text_of(build, shape, member) == text_of(build, shape, str(member.value)) == text_of(build, shape, member.name)


@pytest.mark.parametrize("wrong", ["no such word", 7, True, ops.Precision])
@pytest.mark.parametrize("name", ENUMS)
def test_other_words_are_refused_with_all_that_there_are(name: str, wrong: Any) -> None:
    words, shape, build = ENUMS[name]
    with pytest.raises(InvalidArgument) as caught:
        text_of(build, shape, wrong)
    messages = str(caught.value)
    assert "wrong kind" in messages
    assert [member.name for member in words if member.name not in messages] == []


# ------------------------------------------------------------------------------------------- dimension numbers


def drawn() -> list[tuple[str, str, str]]:
    source = random.Random(3)
    specs = [("".join(source.sample("NC" + spatial, 2 + len(spatial))), "".join(source.sample("OI" + spatial, 2 + len(spatial))),
              "".join(source.sample("NC" + spatial, 2 + len(spatial)))) for spatial in ("", "W", "HW", "HW", "DHW", "xyzw")]
    return [("NCHW", "OIHW", "NCHW"), ("NHWC", "HWIO", "NHWC"), *specs]


@needs_xla
@pytest.mark.parametrize("spec", drawn(), ids="-".join)
def test_letters_mean_what_they_mean_in_jax(spec: tuple[str, str, str]) -> None:
    from jax import lax

    rank = len(spec[0])
    found = ops.make_convolution_dimension_numbers(spec)
    theirs = lax.conv_dimension_numbers((1,) * rank, (1,) * rank, spec)
    assert found == ops.make_convolution_dimension_numbers(tuple(theirs))
    assert found == ops.make_convolution_dimension_numbers([list(part) for part in theirs])


def test_convolutions_take_letters_and_labels() -> None:
    torch.manual_seed(0)
    x, w = torch.randn(2, 3, 6, 5), torch.randn(4, 3, 3, 2)
    expected = torch.nn.functional.conv2d(x, w)
    for image, kernel, result in itertools.product(("NCHW", "NHWC"), ("OIHW", "HWIO"), ("NCHW", "WNCH")):
        images = x.permute(["NCHW".index(c) for c in image])
        weights = w.permute(["OIHW".index(c) for c in kernel])
        found = ops.ConvGeneral(images, weights, [1, 1], [(0, 0)] * 2, (image, kernel, result))
        torch.testing.assert_close(found, expected.permute(["NCHW".index(c) for c in result]))
    labelled = ops.ConvGeneralDilated(x, w, [1, 1], [(0, 0)] * 2, (), (), "bf01_oi01->bf01")
    torch.testing.assert_close(labelled, expected)
    torch.testing.assert_close(ops.ConvWithGeneralDimensions(x, w, [1, 1], "valid", ("NCHW", "OIHW", "NCHW")), expected)
    assert ops.make_convolution_dimension_numbers() == ops.make_convolution_dimension_numbers("bf01_oi01->bf01")


def test_dots_take_nested_pairs() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(2, 3, 4), torch.randn(2, 4, 5)
    record = ops.DotDimensionNumbers((2,), (1,), (0,), (0,))
    assert ops.make_dot_dimension_numbers((((2,), (1,)), ((0,), (0,)))) == record
    torch.testing.assert_close(ops.DotGeneral(x, y, (([2], [1]), ([0], [0]))), x @ y)
    torch.testing.assert_close(ops.DotGeneral(x, y[0], ([2], [0])), torch.tensordot(x, y[0], 1))
    assert ops.make_dot_dimension_numbers(((), ())) == ops.make_dot_dimension_numbers((((), ()), ((), ()))) \
        == ops.DotDimensionNumbers()


def test_padding_is_filled_up() -> None:
    config = ops.make_padding_config([(1, 2), (3, 4, 5)])
    assert config == ops.PaddingConfig([(1, 2, 0), (3, 4, 5)])
    assert ops.make_padding_config(config) is config
    assert ops.Pad(torch.ones(2, 2), 0.0, ops.make_padding_config([(1, 2), (0, 0)])).shape == (5, 2)


WRONG: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "another letter": (lambda: ops.make_convolution_dimension_numbers(("NCHX", "OIHW", "NCHW")), [
        "'NCHX'", "each of N C H W once"]),
    "a letter twice": (lambda: ops.make_convolution_dimension_numbers(("NCHH", "OIHH", "NCHH")), ["once"]),
    "two of three": (lambda: ops.make_convolution_dimension_numbers(("NCHW", "OIHW")), ["NCHW", "bf01_oi01->bf01"]),
    "letters beside lists": (lambda: ops.make_convolution_dimension_numbers(("NCHW", (0, 1), "NCHW")), ["NCHW"]),
    "lists of other lengths": (lambda: ops.make_convolution_dimension_numbers(((0, 1), (0, 1, 2), (0, 1))), ["equally many"]),
    "a dimension twice": (lambda: ops.ConvGeneral(torch.ones(1, 1, 4, 4), torch.ones(1, 1, 2, 2), [1, 1], [(0, 0)] * 2, (
        (0, 0, 2, 3), (0, 1, 2, 3), (0, 1, 2, 3))), ["convolution"]),
    "labels": (lambda: ops.make_convolution_dimension_numbers("bf01"), ["bf01"]),
    "labels of two dimensions": (lambda: ops.make_convolution_dimension_numbers("bf01_oi0->bf01"), ["oi0"]),
    "a number for a dot": (lambda: ops.DotGeneral(torch.ones(2, 2), torch.ones(2, 2), 1), ["lhs contracting"]),  # pyright: ignore
    "flat numbers for a dot": (lambda: ops.DotGeneral(torch.ones(2, 2), torch.ones(2, 2), (1, 0)), ["lhs contracting"]),
    "three for a dot": (lambda: ops.make_dot_dimension_numbers(([1], [0], [])), ["lhs contracting"]),
    "floats for a dot": (lambda: ops.make_dot_dimension_numbers(([1.5], [0])), ["lhs_contracting_dimensions", "1.5"]),
    "one padding": (lambda: ops.make_padding_config([(1,)]), ["(low, high, interior)"]),
    "pairs for Pad": (lambda: ops.Pad(torch.ones(2), 0.0, [(1, 1)]), ["make_padding_config"]),
    "a tuple for Gather": (lambda: ops.Gather(torch.ones(2, 2), torch.zeros(1), ((1,), (0,)), [1, 2]), [  # pyright: ignore
        "GatherDimensionNumbers(offset_dims,"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_other_numbers_are_refused_in_words(name: str) -> None:
    build, words = WRONG[name]
    with pytest.raises(InvalidArgument) as caught:
        build()
    assert [word for word in words if word not in str(caught.value)] == []
