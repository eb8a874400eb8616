"""The first call of each function that torch takes from MKL's vector mathematics, made by one thread.

MKL chooses a function's code at its first call. Where several threads make that call at once, one of them can get code of low
accuracy for its part: a square root of 4,000 ulp, a tanh of 4e-5 (https://github.com/pytorch/pytorch/issues/188792). torch's own
threads and participants on threads do so.
"""

from __future__ import annotations

import torch

from .torch_private import undisturbed

FUNCTIONS = (
    torch.acos, torch.asin, torch.atan, torch.cos, torch.erf, torch.erfc, torch.erfinv, torch.exp, torch.log, torch.log10,
    torch.log2, torch.sin, torch.sqrt, torch.tan, torch.tanh, torch.trunc)


def _choose_code() -> None:
    with undisturbed(), torch.no_grad():
        for dtype in (torch.float32, torch.float64):
            half = torch.full((1,), 0.5, dtype=dtype, device="cpu")
            for function in FUNCTIONS:
                function(half)


_choose_code()
