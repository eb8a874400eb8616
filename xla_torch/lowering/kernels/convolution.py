"""Kernels of the convolution family: torch's convolutions with the precision that XLA's have."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ... import torch_private


def convolve(x: torch.Tensor, weight: torch.Tensor, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
             groups: int, output_padding: Sequence[int] | None = None, highest: bool = False) -> torch.Tensor:
    """torch's convolution (with `output_padding`: its transposed convolution) of any device, for float32 on CUDA.

    There torch computes in TF32, with 10 bits of mantissa, unless `torch.backends.cudnn` says otherwise. Here a convolution
    has the precision of a matrix product: TF32 only where torch is told to use it for these (by
    `torch.set_float32_matmul_precision`, for example), and never if `highest` is asked for. Nothing global is changed.
    """
    cudnn = torch.backends.cudnn
    tf32 = not highest and torch.backends.cuda.matmul.fp32_precision == "tf32"
    return torch_private.convolution(x, weight, None, stride, padding, dilation, output_padding is not None,
                                     output_padding or [0] * len(stride), groups, cudnn.benchmark, cudnn.deterministic,
                                     cudnn.enabled, tf32)
