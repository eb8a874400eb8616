"""Reductions in the forms in which NCCL gets them, with NCCL's own operations done here: what comes back is the reduction."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
import torch.distributed as dist

from xla_torch.distributed.nccl import form_of, has_form
from xla_torch.distributed.reductions import Reduction, fold

MEMBERS = 3

OPERATIONS = {dist.ReduceOp.SUM: torch.add, dist.ReduceOp.PRODUCT: torch.mul, dist.ReduceOp.MIN: torch.fmin,
              dist.ReduceOp.MAX: torch.fmax}
"""What NCCL does; of a number and a NaN it takes the number."""

DTYPES = [torch.bool, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
          torch.float32, torch.float64, torch.complex64]
KNOWN_TO_NCCL = {torch.int8, torch.uint8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64}
UNSIGNED = [torch.int16, torch.int32, torch.int64]
"""The storage dtypes of unsigned types."""


def drawn(dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    if dtype.is_floating_point or dtype.is_complex:
        parts = [torch.randn(40, generator=generator).to(dtype) for _ in range(MEMBERS)]
        parts[1][7] = parts[2][9] = float("nan")
        parts[0][3], parts[1][3] = 0.0, -0.0
        return parts
    return [torch.randint(-100, 100, (40,), generator=generator).to(dtype) for _ in range(MEMBERS)]


CASES = [(reduction, dtype) for reduction in Reduction for dtype in DTYPES
         if has_form(dtype, reduction) and (dtype in UNSIGNED or not reduction.is_unsigned)]


@pytest.mark.parametrize(("reduction", "dtype"), CASES)
@pytest.mark.parametrize("overwrite", [False, True], ids=["", "over the operand"])
def test_forms(reduction: Reduction, dtype: torch.dtype, overwrite: bool) -> None:
    parts = drawn(dtype)
    # Of booleans a sum is whether any is set.
    wanted = functools.reduce(torch.logical_or, parts) if (reduction, dtype) == (Reduction.ADD, torch.bool) else fold(
        [p.clone() for p in parts], reduction)
    forms = [form_of(part, reduction, part if overwrite else torch.empty_like(part)) for part in parts]
    buffers: list[Any] = [buffer for buffer, _, _ in forms]
    assert {buffer.dtype for buffer in buffers} <= KNOWN_TO_NCCL
    _, operation, back = forms[0]
    found = back(functools.reduce(OPERATIONS[operation], buffers))
    assert found.dtype is dtype
    assert torch.equal(found.isnan(), wanted.isnan())
    assert torch.equal(found[~found.isnan()], wanted[~wanted.isnan()])


def test_what_has_no_form() -> None:
    """Those are scattered, folded in the group's order, and gathered."""
    assert not has_form(torch.int32, Reduction.XOR)
    assert not has_form(torch.int32, Reduction.AND)
    assert not has_form(torch.complex64, Reduction.MULTIPLY)
    assert {reduction for reduction in Reduction if has_form(torch.bool, reduction)} >= {Reduction.AND, Reduction.OR}
