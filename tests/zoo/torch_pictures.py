"""torch models of pictures that go out: torchvision and timm, with random weights."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from typing import Any

import torch

from zoo.judging import Build

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    # PyPI's torchvision has operators for another build of torch only; it asks for these when it is imported, and no model
    # here for any.
    _OPERATORS = torch.library.Library("torchvision", "DEF")
    if not hasattr(torch.ops.torchvision, "nms"):
        _OPERATORS.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _OPERATORS.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import timm
    import torchvision

ROWS: dict[str, Build] = {}


# ---- images

def images(size: int = 64, channels: int = 3) -> torch.Tensor:
    """Two pictures. Of one alone torch's own gradients of a batch normalisation may be wrong on a CPU (2.13): a cotangent whose
    strides are like a picture's with channels last, but for the batch's, is read as if it were contiguous."""
    return torch.randn(2, channels, size, size)


def _torchvision(name: str, size: int, **options: Any) -> tuple[Any, Sequence[Any]]:
    return torchvision.models.get_model(name, weights=None, num_classes=10, **options), (images(size),)


TORCHVISION: dict[str, int] = {
    "alexnet": 64, "resnet18": 32, "squeezenet1_0": 64, "squeezenet1_1": 64, "mobilenet_v2": 32, "mobilenet_v3_small": 32,
    "shufflenet_v2_x0_5": 32, "efficientnet_b0": 32,
}
ROWS |= {f"torchvision {n}": functools.partial(_torchvision, n, size) for n, size in TORCHVISION.items()}
ROWS |= {"torchvision vit_b_32": functools.partial(_torchvision, "vit_b_32", 32, image_size=32)}


def _video(name: str) -> tuple[Any, Sequence[Any]]:
    return torchvision.models.get_model(name, weights=None, num_classes=10), (torch.randn(1, 3, 4, 32, 32),)


ROWS |= {"torchvision r3d_18": functools.partial(_video, "r3d_18")}


def _segmentation(name: str) -> tuple[Any, Sequence[Any]]:
    made = torchvision.models.get_model(name, weights=None, weights_backbone=None, num_classes=5)
    return made, (images(32),)


ROWS |= {f"torchvision {n}": functools.partial(_segmentation, n)
         for n in ("deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large")}


def _timm(name: str, size: int) -> tuple[Any, Sequence[Any]]:
    try:
        made = timm.create_model(name, pretrained=False, num_classes=10, img_size=size)
    except TypeError:  # a convolutional one takes all sizes
        made = timm.create_model(name, pretrained=False, num_classes=10)
    return made, (images(size),)


TIMM = {
    "resnet10t": 32, "resnetv2_18": 32, "seresnet18": 32, "ecaresnet26t": 64, "resnest14d": 32, "ghostnetv2_100": 64,
    "mobilenetv4_conv_small": 32, "lcnet_035": 32, "nfnet_l0": 32, "convnextv2_atto": 32, "mixer_s32_224": 64,
    "levit_128s": 64, "coat_lite_tiny": 32, "poolformerv2_s12": 32, "pvt_v2_b0": 64, "xcit_nano_12_p16_224": 32,
    "edgenext_xx_small": 64, "efficientformer_l1": 224, "mobilevit_xxs": 64, "fastvit_t8": 64, "tiny_vit_5m_224": 64,
    "starnet_s1": 32, "inception_next_atto": 32, "swin_tiny_patch4_window7_224": 56, "efficientvit_b0": 32,
    "eva02_tiny_patch14_224": 28, "lambda_resnet26t": 64, "botnet26t_256": 64, "coatnet_pico_rw_224": 32,
    "nest_tiny": 32,
}
ROWS |= {f"timm {n}": functools.partial(_timm, n, size) for n, size in TIMM.items()}
