"""convolution: against real XLA in every form, the documents' examples, and refusals."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import xla_torch
from support.oracle import needs_xla
from support.scaled_agreement import assert_agrees, run_one
from xla_torch import ops
from xla_torch.errors import InvalidArgument

NHWC, N1, N3 = "b01f_01io->b01f", "b0f_0io->b0f", "b012f_012io->b012f"
IMAGE, KERNEL = "f32[2,6,6,3]", "f32[3,3,3,5]"


def conv(result: str, window: str, labels: str, more: str = "") -> str:
    return f"{result} convolution(p0, p1)" + (f", window={{{window}}}" if window else "") + f", dim_labels={labels}{more}"


FORMS = [
    # result, lhs, rhs, window, labels, group counts
    ("f32[2,6,6,5]", IMAGE, KERNEL, "size=3x3 pad=1_1x1_1", NHWC, ""),
    ("f32[2,5,4,4]", "f32[2,3,6,6]", "f32[5,3,3,3]", "size=3x3", "bf01_oi01->bf01", ""),
    ("f32[2,3,3,5]", IMAGE, KERNEL, "size=3x3 stride=2x2 pad=0_1x0_1", NHWC, ""),
    ("f32[2,4,4,5]", IMAGE, KERNEL, "size=3x3 pad=-1_1x1_-1", NHWC, ""),
    ("f32[2,4,4,5]", IMAGE, KERNEL, "size=3x3 pad=7_-7x-7_7", NHWC, ""),  # more is cut than there is
    ("f32[2,5,1,5]", IMAGE, KERNEL, "size=3x3 stride=1x12 pad=10_-9x-7_10 rhs_reversal=1x0", NHWC, ""),
    ("f32[2,6,6,5]", IMAGE, KERNEL, "size=3x3 pad=2_2x2_2 rhs_dilate=2x2", NHWC, ""),
    ("f32[2,12,12,5]", IMAGE, "f32[2,2,3,5]", "size=2x2 pad=1_1x1_1 lhs_dilate=2x2", NHWC, ""),
    ("f32[2,11,13,5]", IMAGE, KERNEL, "size=3x3 pad=1_1x2_2 lhs_dilate=2x2", NHWC, ""),
    ("f32[2,12,12,5]", IMAGE, KERNEL, "size=3x3 pad=1_2x2_1 lhs_dilate=2x2", NHWC, ""),
    ("f32[2,14,10,5]", IMAGE, KERNEL, "size=3x3 pad=5_0x-1_2 lhs_dilate=2x2", NHWC, ""),
    ("f32[2,6,6,5]", IMAGE, KERNEL, "size=3x3 stride=2x2 pad=1_2x1_2 lhs_dilate=2x2", NHWC, ""),
    ("f32[2,11,6,5]", IMAGE, KERNEL, "size=3x3 pad=1_1x1_1 lhs_dilate=2x1 rhs_reversal=1x0", NHWC, ""),
    ("f32[2,9,9,5]", IMAGE, KERNEL, "size=3x3 pad=1_1x1_1 lhs_dilate=2x2 rhs_dilate=2x2", NHWC, ""),
    ("f32[2,6,6,5]", IMAGE, KERNEL, "size=3x3 pad=1_1x1_1 rhs_reversal=1x0", NHWC, ""),
    ("f32[2,6,6,4]", "f32[2,6,6,4]", "f32[3,3,1,4]", "size=3x3 pad=1_1x1_1", NHWC, ", feature_group_count=4"),
    ("f32[2,6,6,6]", "f32[2,6,6,4]", "f32[3,3,2,6]", "size=3x3 pad=1_1x1_1", NHWC, ", feature_group_count=2"),
    ("f32[2,11,6]", "f32[2,6,4]", "f32[3,2,6]", "size=3 pad=1_1 lhs_dilate=2", N1, ", feature_group_count=2"),
    ("f32[2,4,6]", "f32[4,6,3]", "f32[3,3,6]", "size=3", N1, ", batch_group_count=2"),
    ("f32[2,11,6]", "f32[4,6,3]", "f32[3,3,6]", "size=3 pad=1_1 lhs_dilate=2", N1, ", batch_group_count=2"),
    ("f32[2,5]", "f32[2,3]", "f32[3,5]", "", "bf_io->bf", ""),
    ("f32[2,6]", "f32[2,4]", "f32[2,6]", "", "bf_io->bf", ", feature_group_count=2"),
    ("f32[2,4,4,4,5]", "f32[2,6,6,6,3]", "f32[3,3,3,3,5]", "size=3x3x3", N3, ""),
    ("f32[2,2,2,2,2,5]", "f32[2,3,3,3,3,3]", "f32[2,2,2,2,3,5]", "size=2x2x2x2", "b0123f_0123io->b0123f", ""),
    ("f32[6,6,2,5]", "f32[6,6,2,3]", "f32[3,3,5,3]", "size=3x3 pad=1_1x1_1", "01bf_01oi->01bf", ""),
    ("f32[2,6,5,6]", IMAGE, KERNEL, "size=3x3 pad=1_1x1_1", "b01f_01io->b0f1", ""),
    # Gradients of weights: what is summed over lies outermost, and the window is larger than the result.
    ("f32[3,5,2,2]", "f32[4,3,6,6]", "f32[4,5,5,5]", "size=5x5", "fb01_io01->bf01", ""),
    ("f32[3,3,3,5]", "f32[4,6,7,3]", "f32[4,6,7,5]", "size=6x7 pad=1_1x1_1", "f01b_i01o->01bf", ""),
    ("f32[5,3,3,3]", "f32[4,6,6,3]", "f32[4,3,3,5]", "size=3x3 pad=0_1x1_0 rhs_dilate=2x2", "f01b_i01o->f01b", ""),
    ("f32[3,4,3,5]", "f32[4,8,8,3]", "f32[4,3,4,5]", "size=3x4 pad=0_-1x1_-2 rhs_dilate=2x1", "f01b_i01o->01bf", ""),
    ("f32[2,2,3,5]", "f32[4,9,9,3]", "f32[4,4,3,5]", "size=4x3 pad=0_0x2_-1 rhs_dilate=1x3 stride=4x2", "f01b_i01o->01bf", ""),
    ("f32[2,1,3,5]", "f32[4,9,9,3]", "f32[4,3,3,5]", "size=3x3 pad=-1_0x0_-2 rhs_dilate=1x2 stride=5x3", "f01b_i01o->01bf", ""),
    ("f32[3,2,6]", "f32[4,7,6]", "f32[4,7,6]", "size=7 pad=1_1", "f0b_i0o->0bf", ", batch_group_count=3"),
    ("f32[3,3,5,1]", "f32[4,3,5,5]", "f32[4,5,8,6]", "size=8x6 pad=0_1x1_0 lhs_dilate=2x1", "fb01_io01->0bf1", ""),
    ("f32[3,3,5,2]", "f32[4,3,4,5]", "f32[4,5,8,6]", "size=8x6 pad=2_1x1_1 lhs_dilate=2x1", "fb01_io01->0bf1", ""),
    ("f32[2,2,6]", "f32[4,4,4]", "f32[4,7,6]", "size=7 pad=1_0 lhs_dilate=2", "f0b_i0o->0bf", ", batch_group_count=2"),
    ("f32[3,4,6]", "f32[4,4,4]", "f32[4,7,6]", "size=7 stride=2 pad=3_2 lhs_dilate=2", "f0b_i0o->0bf", ""),
    ("f32[2,2,2,3,5]", "f32[4,4,4,5,3]", "f32[4,3,3,4,5]", "size=3x3x4", "f012b_i012o->012bf", ""),
    ("f32[2,4,6]", "f32[4,5,4]", "f32[4,9,6]", "size=9 pad=8_-3", "f0b_i0o->0bf", ""),  # more is cut than there is
    ("f32[1,1,3,5]", "f32[4,6,6,3]", "f32[4,6,6,5]", "size=6x6", "f01b_i01o->01bf", ""),
    ("f32[2,2,3,5]", "f32[4,3,3,3]", "f32[4,7,7,5]", "size=7x7 pad=3_2x2_3", "f01b_i01o->01bf", ""),  # more around than there is
    ("f32[2,0,4,5]", "f32[2,1,6,3]", KERNEL, "size=3x3", NHWC, ""),
    ("f32[2,4,4,5]", "f32[2,6,6,0]", "f32[3,3,0,5]", "size=3x3", NHWC, ""),
    ("f32[0,4,4,5]", "f32[0,6,6,3]", KERNEL, "size=3x3", NHWC, ""),
    ("f32[2,3,4,5]", "f32[2,0,6,3]", KERNEL, "size=3x3 pad=2_3x0_0", NHWC, ""),
]


@needs_xla
@pytest.mark.parametrize(("result", "lhs", "rhs", "window", "labels", "groups"), FORMS)
def test_every_form(result: str, lhs: str, rhs: str, window: str, labels: str, groups: str) -> None:
    assert_agrees(conv(result, window, labels, groups), lhs, rhs)


TYPES = ["s8", "u8", "s16", "s32", "u32", "s64", "f16", "bf16", "f64", "c64", "c128"]


WINDOWS = ["size=3x3 stride=2x2 pad=1_0x0_1", "size=3x3 stride=1x2 pad=-2_1x0_1 lhs_dilate=2x1 rhs_reversal=1x1"]


@needs_xla
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("element_type", TYPES)
def test_every_type(element_type: str, window: str) -> None:
    rows = 3 if "stride=2x2" in window else 8
    assert_agrees(conv(f"{element_type}[2,{rows},3,4]", window, NHWC, ", feature_group_count=2"), f"{element_type}[2,6,6,4]",
                  f"{element_type}[3,3,2,4]")


@needs_xla
@pytest.mark.parametrize("element_type", ["s32", "f16", "bf16", "f64", "c64"])
def test_gradients_of_weights_of_every_type(element_type: str) -> None:
    assert_agrees(conv(f"{element_type}[3,3,3,5]", "size=5x5 pad=1_1x1_1", "f01b_i01o->01bf"), f"{element_type}[4,5,5,3]",
                  f"{element_type}[4,5,5,5]")


@needs_xla
@pytest.mark.parametrize(("result", "operand"), [("s32", "s8"), ("s32", "u8"), ("f32", "bf16")])
def test_wider_results(result: str, operand: str) -> None:
    assert_agrees(conv(f"{result}[2,4,4,5]", "size=3x3", NHWC), f"{operand}[2,6,6,3]", f"{operand}[3,3,3,5]")


def test_examples_of_the_reference() -> None:
    ones = np.ones((2, 1, 1), "f")
    got, = run_one(conv("f32[1,5,1]", "size=2 lhs_dilate=2 rhs_dilate=2", N1), ["f32[1,4,1]", "f32[2,1,1]"],
                   np.array([1, 2, 3, 4], "f").reshape(1, 4, 1), ones)
    assert got.ravel().tolist() == [3, 0, 5, 0, 7]
    got, = run_one(conv("f32[2,1,2]", "size=1", N1, ", batch_group_count=2"), ["f32[4,1,1]", "f32[1,1,2]"],
                   np.arange(4, dtype="f").reshape(4, 1, 1), np.ones((1, 1, 2), "f"))
    assert got[:, 0].tolist() == [[0, 2], [1, 3]]  # out[b, o] = lhs[o * 2 + b]
    hundreds = np.full((1, 1, 3), 100, np.int8)
    got, = run_one(conv("s8[1,1]", "", "bf_io->bf"), ["s8[1,3]", "s8[3,1]"], hundreds[0], hundreds[0].T)
    assert got.item() == 48  # 30000 modulo 256


def test_dynamic_batch() -> None:
    text = ("HloModule m\nENTRY e {\n  p0 = f32[<=4,6,3] parameter(0)\n  p1 = f32[3,3,5] parameter(1)\n"
            f"  ROOT r = {conv('f32[<=4,4,5]', 'size=3', N1)}\n}}")
    image, kernel = torch.randn(2, 6, 3), torch.randn(3, 3, 5)
    got = xla_torch.parse_hlo(text)(image, kernel)
    torch.testing.assert_close(got, torch.conv1d(image.mT, kernel.permute(2, 1, 0)).mT)


# --------------------------------------------------------------------------------------------- documented functions


def test_conv_same_and_valid() -> None:
    image, kernel = torch.randn(2, 3, 7, 8), torch.randn(5, 3, 3, 3)
    torch.testing.assert_close(ops.Conv(image, kernel, [1, 1], ops.Padding.VALID), torch.conv2d(image, kernel))
    torch.testing.assert_close(ops.Conv(image, kernel, [1, 1], ops.Padding.SAME), torch.conv2d(image, kernel, padding=1))
    torch.testing.assert_close(ops.ConvWithGeneralPadding(image, kernel, [2, 1], [(1, 1), (0, 0)]),
                               torch.conv2d(image, kernel, stride=(2, 1), padding=(1, 0)))


def test_depthwise() -> None:
    image, kernel = torch.randn(2, 4, 7), torch.randn(8, 1, 3)
    torch.testing.assert_close(ops.Conv(image, kernel, [1], ops.Padding.VALID, feature_group_count=4),
                               torch.conv1d(image, kernel, groups=4))


REFUSED = [
    ({"lhs": "f32[2,3,7]"}, "different numbers of dimensions"),
    ({"rhs": "s32[5,3,3,3]"}, "lhs and rhs have different element types"),
    ({"lhs": "s64[2,3,7,8]", "rhs": "f64[5,3,3,3]"}, "different element types"),
    ({"lhs": "bf16[2,3,7,8]", "rhs": "f16[5,3,3,3]"}, "different element types"),
    ({"feature_group_count": 2}, "input features do not fit the kernel"),
    ({"rhs": "f32[5,4,3,3]"}, "input features do not fit the kernel"),
    ({"feature_group_count": 3, "rhs": "f32[5,1,3,3]"}, "output features cannot be split into feature groups"),
    ({"batch_group_count": 2}, "output features cannot be split into batch groups"),
    ({"batch_group_count": 5}, "the batch cannot be split"),
    ({"feature_group_count": 3, "batch_group_count": 2}, "exclude each other"),
    ({"feature_group_count": 0}, "a group count is not positive"),
    ({"window_strides": [1]}, "window_strides has another length"),
    ({"window_strides": [0, 1]}, "the stride of window dimension 0 is not positive"),
    ({"lhs_dilation": [0, 1]}, "a dilation of window dimension 0 is not positive"),
    ({"dimension_numbers": ops.ConvolutionDimensionNumbers(0, 1, (2, 2), 1, 0, (2, 3), 0, 1, (2, 3))},
     "the input dimension numbers do not name every dimension once"),
]


@pytest.mark.parametrize(("changes", "what"), REFUSED)
def test_refusals(changes: dict, what: str) -> None:
    given = {"lhs": "f32[2,3,7,8]", "rhs": "f32[5,3,3,3]", "window_strides": [1, 1], "padding": [(0, 0), (0, 0)],
             "lhs_dilation": [], "rhs_dilation": [],
             "dimension_numbers": ops.ConvolutionDimensionNumbers(0, 1, (2, 3), 1, 0, (2, 3), 0, 1, (2, 3))}
    given |= changes
    builder = xla_torch.XlaBuilder("refused")
    lhs, rhs = (builder.parameter(k, xla_torch.Shape.parse(given.pop(n))) for k, n in enumerate(("lhs", "rhs")))
    with pytest.raises(InvalidArgument, match=what):
        ops.ConvGeneralDilated(lhs, rhs, **given)
