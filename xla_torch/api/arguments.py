"""Values as arguments: what users hold (tensors, arrays, numbers) as tensors of a parameter's type, or an error that names it.

The rule about 64 bits is JAX's, made safe. torch and NumPy make 64-bit numbers by default, and JAX programs mostly have 32:
where a parameter is S32, U32, F32 or C64 and the value is of the same kind in 64 bits, it is narrowed. Floats are rounded.
Integers must fit, or they are refused; JAX would let them wrap. (An S64 value may also go where U32 is meant, because torch
hardly has that type.) No other type is ever converted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ..core.errors import InvalidArgument
from ..core.shape import Shape
from ..core.types import C64, C128, F32, F64, S32, S64, U32, U64, PrimitiveType, type_from_numpy
from ..hlo.numbers import constant_of
from ..runtime.static import fits, of_another_batch, of_another_dtype, require_in_range, tensor_from_numpy
from ..storage.dtypes import in_memory, torch_dtype, type_from_torch
from ..storage.torch_private import is_wrapped, unwrapped

_NARROWER = {F64: (F32,), C128: (C64,), S64: (S32, U32), U64: (U32,)}
_NUMBERS: dict[type, Callable[[PrimitiveType], bool]] = {
    bool: lambda t: t.is_pred,
    int: lambda t: t.is_integral or t.is_differentiable,
    float: lambda t: t.is_differentiable,
    complex: lambda t: t.is_complex,
}
"""Which parameters a Python number may be given to: those that hold it without loss of kind."""


def tensor_of(value: Any, shape: Shape, what: Callable[[], str], device: torch.device | None = None,
              narrow: bool = True) -> torch.Tensor:
    """`value` as a tensor for a parameter of this shape, on `device` if it is no tensor yet.

    It may be a tensor, a NumPy or JAX array, or, for a scalar, a Python number. Unless `narrow`, 64-bit values are refused where
    the parameter has 32 bits. Raises InvalidArgument, which calls the parameter what `what` says.
    """
    if type(value) in _NUMBERS and not shape.dimensions:
        return _of_number(value, shape, what).to(device)
    if isinstance(value, torch.Tensor):
        return _of_tensor(value, shape, what, narrow)
    return _of_array(value, shape, what, narrow).to(device)


def _of_tensor(tensor: torch.Tensor, shape: Shape, what: Callable[[], str], narrow: bool) -> torch.Tensor:
    wanted, tensor = torch_dtype(shape.element_type), in_memory(tensor, what)
    if not fits(tensor.shape, shape):
        raise _refused("has another shape", tensor, shape, what)
    if tensor.dtype is wanted:
        require_in_range(tensor, shape, what)
        return tensor
    given = type_from_torch(tensor.dtype)
    if given is None or shape.element_type not in _NARROWER.get(given, ()):
        raise _refused("has another dtype", tensor, shape, what)
    if not narrow:
        raise _not_narrowed(tensor, shape, what)
    if given.is_integral:
        _check_range(tensor, shape, what)
    return tensor.to(wanted)


def _check_range(tensor: torch.Tensor, shape: Shape, what: Callable[[], str]) -> None:
    """Raises InvalidArgument for integers that do not fit. Tensors without data, as in torch's fake mode, are not asked."""
    while is_wrapped(tensor):
        tensor = unwrapped(tensor)
    if tensor.numel() == 0 or tensor.is_meta or type(tensor).__name__ == "FakeTensor":
        return
    # torch cannot order uint64; their bits as signed integers are negative where they are too large anyhow.
    low, high = (int(v) for v in torch.aminmax(tensor.view(torch.int64).detach()))
    _refuse_outside(low, high, shape, what)


def _refuse_outside(low: int, high: int, shape: Shape, what: Callable[[], str]) -> None:
    limits = np.iinfo(np.uint32 if shape.element_type is U32 else np.int32)
    if low < limits.min or high > limits.max:
        raise InvalidArgument(f"{what()} has integers that do not fit in 32 bits", got=low if low < limits.min else high,
                              expected=f"{limits.min} to {limits.max}, for {shape}",
                              hint="trace with jax_enable_x64 for a program that takes 64 bits")


def _of_array(value: Any, shape: Shape, what: Callable[[], str], narrow: bool) -> torch.Tensor:
    array = _as_numpy(value)
    if array is None:
        kind = str(getattr(value, "dtype", type(value).__name__))
        hint = "pass jax.random.key_data(key)" if kind.startswith("key<") else ""
        raise InvalidArgument(f"{what()} is not an array", got=kind, expected=shape, hint=hint)
    given = type_from_numpy(array.dtype) if array.dtype != object else None
    if not fits(array.shape, shape):
        raise _refused("has another shape", array, shape, what)
    if given is not shape.element_type:
        if given is None or shape.element_type not in _NARROWER.get(given, ()):
            raise _refused("has another dtype", array, shape, what)
        if not narrow:
            raise _not_narrowed(array, shape, what)
        if given.is_integral and array.size:
            _refuse_outside(int(array.min()), int(array.max()), shape, what)
        array = array.astype(shape.element_type.numpy)
    return tensor_from_numpy(array, shape, 0)


def _as_numpy(value: Any) -> np.ndarray | None:
    """An array of NumPy, of JAX, or of whatever else NumPy understands by its own protocol; None for anything else."""
    if isinstance(value, (np.ndarray, np.generic)) or hasattr(value, "__array__"):
        try:
            array = np.asarray(value)
        except TypeError:  # JAX refuses to make NumPy arrays of typed PRNG keys
            return None
        return None if array.dtype == object else array
    return None


def _of_number(value: complex, shape: Shape, what: Callable[[], str]) -> torch.Tensor:
    element_type = shape.element_type
    if not _NUMBERS[type(value)](element_type):
        raise InvalidArgument(f"{what()} has another kind of number", got=repr(value), expected=shape)
    try:
        return tensor_from_numpy(constant_of(value, element_type), shape, 0)
    except InvalidArgument as error:
        raise InvalidArgument(f"{what()} is out of range", got=value, expected=f"{shape}: {error.expected}") from None


def _refused(why: str, given: torch.Tensor | np.ndarray, shape: Shape, what: Callable[[], str]) -> InvalidArgument:
    convert = of_another_dtype(given, shape) if isinstance(given, torch.Tensor) else ""
    return InvalidArgument(f"{what()} {why}", got=_words(given), expected=f"{shape} as {torch_dtype(shape.element_type)}",
                           hint=convert or of_another_batch(_type(given), given.shape, shape))


def _not_narrowed(given: torch.Tensor | np.ndarray, shape: Shape, what: Callable[[], str]) -> InvalidArgument:
    error = _refused("is wider than the program's, and may not be narrowed here", given, shape, what)
    error.hint = f"convert it: .to({torch_dtype(shape.element_type)})"
    return error


def _words(given: torch.Tensor | np.ndarray) -> str:
    kind = _type(given)
    return f"{kind.text if kind else given.dtype}[{','.join(map(str, given.shape))}]"


def _type(given: torch.Tensor | np.ndarray) -> PrimitiveType | None:
    return type_from_torch(given.dtype) if isinstance(given, torch.Tensor) else type_from_numpy(given.dtype)


def as_written(array: np.ndarray, shape: Shape) -> np.ndarray:
    """NumPy's files keep ml_dtypes (bf16 and the narrow types) as raw bytes; give them their type back."""
    dtype = shape.element_type.numpy
    if dtype is None or array.dtype.kind != "V" or array.dtype.itemsize != dtype.itemsize:
        return array
    return array.view(dtype)
