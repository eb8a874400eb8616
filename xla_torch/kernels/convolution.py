"""Kernels of the convolution family: torch's convolutions with the precision that XLA's have."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.grad

from ..storage import torch_private
from . import movement
from .calls import ordered

_WEIGHTS: dict[int, Callable[..., torch.Tensor]] = {
    1: torch.nn.grad.conv1d_weight, 2: torch.nn.grad.conv2d_weight, 3: torch.nn.grad.conv3d_weight}


@ordered
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


@ordered
def weight_gradient(image: torch.Tensor, ct: torch.Tensor, size: Sequence[int], stride: Sequence[int], padding: Sequence[int],
                    dilation: Sequence[int], groups: int) -> torch.Tensor:
    """``out[o, i, k] = sum over n and q of image[n, i, q * stride + k * dilation - padding] * ct[n, o, q]``, for k below `size`:
    the gradient of a convolution's weight, by torch's own routine. Shapes [n, i, spatial...] and [n, o, spatial...] give
    [o, i / groups, size...]. What lies outside of the image is 0; what of it no window reaches is not read."""
    extents = [(q - 1) * s + (k - 1) * d + 1 for q, s, k, d in zip(ct.shape[2:], stride, size, dilation, strict=True)]
    rests = [length + 2 * p - e for length, p, e in zip(image.shape[2:], padding, extents, strict=True)]
    if not all(p >= 0 and 0 <= rest < s for p, rest, s in zip(padding, rests, stride, strict=True)):
        around = [(p, e - p - length, 0) for p, e, length in zip(padding, extents, image.shape[2:], strict=True)]
        image = movement.pad(image, 0, [(0, 0, 0), (0, 0, 0), *around])
        padding = [0] * len(size)
    weight = (ct.shape[1], image.shape[1] // groups, *size)
    return _WEIGHTS[len(size)](image, weight, ct, stride, padding, dilation, groups)
