"""Element types in torch: each has a dtype that users see, and one that it is stored in inside a lowered program.

Specification: hlo/SPEC.md, Element types. At the boundary of a program that is torch's own dtype where torch has one. Inside
it is one that torch computes with. Torch lacks arithmetic for uint16, uint32 and uint64 (stored as the signed integer of the
same bits), for integers under 8 bits (stored in int8 or uint8, where results wrap), and for floats of 8 bits and fewer (stored
as float32 values that lie on the narrow grid; where a format has several NaNs, float32's payload says which).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ..core.errors import InvalidArgument
from ..core.types import PrimitiveType

_DTYPES: dict[PrimitiveType, tuple[torch.dtype, torch.dtype]] = {
    PrimitiveType.PRED: (torch.bool, torch.bool),
    PrimitiveType.S1: (torch.int8, torch.int8),
    PrimitiveType.S2: (torch.int8, torch.int8),
    PrimitiveType.S4: (torch.int8, torch.int8),
    PrimitiveType.S8: (torch.int8, torch.int8),
    PrimitiveType.S16: (torch.int16, torch.int16),
    PrimitiveType.S32: (torch.int32, torch.int32),
    PrimitiveType.S64: (torch.int64, torch.int64),
    PrimitiveType.U1: (torch.uint8, torch.uint8),
    PrimitiveType.U2: (torch.uint8, torch.uint8),
    PrimitiveType.U4: (torch.uint8, torch.uint8),
    PrimitiveType.U8: (torch.uint8, torch.uint8),
    PrimitiveType.U16: (torch.uint16, torch.int16),
    PrimitiveType.U32: (torch.uint32, torch.int32),
    PrimitiveType.U64: (torch.uint64, torch.int64),
    PrimitiveType.F16: (torch.float16, torch.float16),
    PrimitiveType.F32: (torch.float32, torch.float32),
    PrimitiveType.F64: (torch.float64, torch.float64),
    PrimitiveType.BF16: (torch.bfloat16, torch.bfloat16),
    PrimitiveType.F8E5M2: (torch.float8_e5m2, torch.float32),
    PrimitiveType.F8E4M3: (torch.float32, torch.float32),
    PrimitiveType.F8E4M3FN: (torch.float8_e4m3fn, torch.float32),
    PrimitiveType.F8E4M3B11FNUZ: (torch.float32, torch.float32),
    PrimitiveType.F8E4M3FNUZ: (torch.float8_e4m3fnuz, torch.float32),
    PrimitiveType.F8E5M2FNUZ: (torch.float8_e5m2fnuz, torch.float32),
    PrimitiveType.F8E3M4: (torch.float32, torch.float32),
    PrimitiveType.F8E8M0FNU: (torch.float8_e8m0fnu, torch.float32),
    PrimitiveType.F4E2M1FN: (torch.float32, torch.float32),
    PrimitiveType.F6E3M2FN: (torch.float32, torch.float32),
    PrimitiveType.F6E2M3FN: (torch.float32, torch.float32),
    PrimitiveType.C64: (torch.complex64, torch.complex64),
    PrimitiveType.C128: (torch.complex128, torch.complex128),
}
"""The dtype at the boundary, and the storage dtype."""

_BOUNDARY = {t: boundary for t, (boundary, _) in _DTYPES.items()}
_STORAGE = {t: storage for t, (_, storage) in _DTYPES.items()}
# Where several types share a torch dtype, it stands for the one whose own dtype it is.
_TYPES = {boundary: t for t, boundary in reversed(_BOUNDARY.items())} | {
    torch.int8: PrimitiveType.S8, torch.uint8: PrimitiveType.U8, torch.float32: PrimitiveType.F32}


def torch_dtype(element_type: PrimitiveType) -> torch.dtype:
    """The dtype that users see. Raises InvalidArgument for what is no element type of arrays."""
    return _of(_BOUNDARY, element_type)


def storage_dtype(element_type: PrimitiveType) -> torch.dtype:
    """The dtype inside a lowered program. Raises InvalidArgument for what is no element type of arrays."""
    return _of(_STORAGE, element_type)


def _of(table: dict[PrimitiveType, torch.dtype], element_type: PrimitiveType) -> torch.dtype:
    found = table.get(element_type)
    if found is None:
        raise InvalidArgument(f"{element_type} is not an element type of arrays")
    return found


def type_from_torch(dtype: torch.dtype) -> PrimitiveType | None:
    """The type that a torch dtype stands for, or None. `torch.int8` is S8, never a narrower type."""
    return _TYPES.get(dtype)


def is_in_memory(tensor: torch.Tensor) -> bool:
    """Whether a tensor's memory holds its elements at strides: kernels go by memory."""
    return tensor.layout is torch.strided and not (tensor.is_neg() or tensor.is_conj() or tensor.is_nested)


def is_as(value: object, sizes: Sequence[int], dtype: torch.dtype) -> bool:
    """Whether a value is a tensor of these sizes and this dtype, in memory. It is asked of each argument of each call, so that it
    asks for itself what `is_in_memory` does."""
    return (isinstance(value, torch.Tensor) and value.dtype is dtype and value.layout is torch.strided
            and not (value.is_neg() or value.is_nested or (dtype.is_complex and value.is_conj())) and value.shape == sizes)


def in_memory(tensor: torch.Tensor, what: Callable[[], str], subject: str = "") -> torch.Tensor:
    """The tensor with its elements in memory: one that stands for the negative or the conjugate of what is there
    (`z.conj().imag`) is computed. Raises InvalidArgument for sparse, nested and other tensors of forms of their own, which `what`
    names."""
    if is_in_memory(tensor):
        return tensor
    if tensor.is_nested or tensor.layout is not torch.strided:
        kind = "nested" if tensor.is_nested else "sparse" if "sparse" in str(tensor.layout) else "opaque"
        raise InvalidArgument(f"{what()} is of {kind} form", subject=subject, got=f"layout {tensor.layout}, {tensor.dtype}",
                              expected="a dense tensor, at strides (torch.strided)", hint=_DENSE[kind])
    return tensor.resolve_neg().resolve_conj()


_DENSE = {"nested": "torch.nested.to_padded_tensor(tensor, 0.0), and the program takes the lengths as well",
          "sparse": "tensor.to_dense(); sparse products are custom calls in XLA, on values and indices",
          "opaque": "tensor.to_dense()"}
