"""Custom calls in C: functions of compiled libraries, with the signature that XLA documents for them.

``void name(void* out, void** in)``: `in` points to the operands' buffers and `out` is the result's. A tuple, as operand or as
result, is an array of pointers to its elements. Buffers are in host memory, contiguous, row-major, with elements as XLA
stores them: floats of 8 bits and fewer, and integers of fewer than 8 bits, take one byte each, PRED is a byte of 0 or 1.
"""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from ..core.errors import DeviceError, UnsupportedError
from ..core.shape import Shape, parse_shape
from ..core.types import F32, PrimitiveType
from ..hlo.custom_calls import CustomCall
from ..hlo.ir import Instruction
from ..storage.dtypes import torch_dtype

_SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
_POINTER: type = _SIGNATURE.__mro__[1]
"""What all function pointers of ctypes are instances of: those of `CFUNCTYPE` and a library's functions."""


class CFunction:
    """A C function as the function of a custom call: it takes and returns tensors."""

    def __init__(self, pointer: Any):
        self.pointer = pointer  # keeps what stands behind it alive
        self._function = _SIGNATURE(pointer if isinstance(pointer, int) else _value(pointer))

    def __call__(self, *operands: Any, call: CustomCall) -> Any:
        """Run on operands of the shapes that `call` declares. Raises DeviceError for operands that are not on the CPU."""
        given = _TupleBuffer.of(_stored(o, s, call.target) for o, s in zip(operands, call.operands, strict=True))
        result = _empty(call.shape)
        self._function(_address(result), _address(given))
        return _loaded(result, call.shape)


def is_c_function(function: Any) -> bool:
    """Whether this is a function pointer of ctypes, or the address of a function as an integer."""
    return isinstance(function, (int, _POINTER))


def _value(pointer: Any) -> int:
    return ctypes.cast(pointer, ctypes.c_void_p).value or 0


def check_c_call(inst: Instruction) -> None:
    """Raise UnsupportedError for a custom call that C functions of the documented signature cannot run: of another API
    version, with a size known at run time only, or constrained to buffers that are not row-major."""
    version = inst.attributes.get("api_version", "API_VERSION_ORIGINAL")
    if version != "API_VERSION_ORIGINAL":
        raise UnsupportedError("a C function of this API version is not called", got=version, expected="API_VERSION_ORIGINAL",
                               hint="register a Python function that calls it")
    for shape in (inst.shape, *(o.shape for o in inst.operands)):
        if not shape.is_static:
            raise UnsupportedError("a buffer of a C function has a dynamic size", got=shape, expected="static dimensions")
    constraints = inst.attributes.get("operand_layout_constraints", "")
    constrained = (inst.shape, parse_shape(f"({constraints.strip()[1:-1]})")) if constraints else ()
    for leaf in (leaf for shape in constrained for leaf in shape.leaves()):
        if leaf.layout and (leaf.layout.tiles or leaf.minor_to_major != tuple(reversed(range(leaf.rank)))):
            raise UnsupportedError("a buffer of a C function is not row-major", got=leaf.to_text(),
                                   hint="copy to the default layout, or register a Python function")


# ------------------------------------------------------------------------------------------- buffers
# A buffer is a tensor of the elements as XLA stores them; a tuple's is a tuple of buffers with the array of their addresses.


@dataclasses.dataclass(slots=True)
class _TupleBuffer:
    parts: tuple[Any, ...]
    table: Any

    @staticmethod
    def of(parts: Iterable[Any]) -> _TupleBuffer:
        parts = tuple(parts)
        return _TupleBuffer(parts, (ctypes.c_void_p * max(1, len(parts)))(*map(_address, parts)))


def _address(buffer: Any) -> int | None:
    if buffer is None:  # a token
        return None
    return ctypes.addressof(buffer.table) if isinstance(buffer, _TupleBuffer) else buffer.data_ptr()


def _stored(operand: Any, shape: Shape, target: str) -> Any:
    """An operand in its buffers."""
    if shape.is_tuple:
        return _TupleBuffer.of(_stored(v, s, target) for v, s in zip(operand, shape.tuple_shapes, strict=True))
    if not shape.is_array:
        return None
    if operand.device.type != "cpu":
        raise DeviceError(f"custom call {target!r} is a C function and runs on the CPU", got=f"an operand on {operand.device}",
                          expected="operands on the CPU", hint="move the arguments with .cpu()")
    if not _as_bytes(shape.element_type):
        return operand.detach().contiguous()
    return torch.from_numpy(operand.detach().contiguous().numpy().astype(shape.element_type.numpy).view(np.uint8))


def _empty(shape: Shape) -> Any:
    """Buffers for a result."""
    if shape.is_tuple:
        return _TupleBuffer.of(map(_empty, shape.tuple_shapes))
    if not shape.is_array:
        return None
    return torch.zeros(shape.dimensions, dtype=torch.uint8 if _as_bytes(shape.element_type) else torch_dtype(shape.element_type))


def _loaded(buffer: Any, shape: Shape) -> Any:
    """The tensors that a result's buffers hold."""
    if isinstance(buffer, _TupleBuffer):
        return tuple(map(_loaded, buffer.parts, shape.tuple_shapes))
    if buffer is None or not _as_bytes(shape.element_type):
        return buffer
    return torch.from_numpy(buffer.numpy().view(shape.element_type.numpy).astype(np.float32))


def _as_bytes(element_type: PrimitiveType) -> bool:
    """Whether torch has no dtype of the type's own, so that its tensors hold float32 values."""
    return torch_dtype(element_type) is torch.float32 and element_type is not F32
