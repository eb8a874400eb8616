"""Kernels of the linalg family."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def inverse_real_fft(spectrum: torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
    """``torch.fft.irfftn`` over the last dimensions, to the sizes `lengths`, on any device.

    The imaginary parts of what stands for real numbers, the first element along the last dimension and, for an even length,
    the last one, do not count. cuFFT, with some lengths, lets them count.
    """
    if len(lengths) > 1:
        spectrum = torch.fft.ifftn(spectrum, dim=list(range(-len(lengths), -1)))
    places = torch.arange(spectrum.shape[-1], device=spectrum.device)
    is_real = (places == 0) | (2 * places == lengths[-1])
    spectrum = torch.complex(spectrum.real, torch.where(is_real, 0, spectrum.imag))
    return torch.fft.irfft(spectrum, n=lengths[-1])
