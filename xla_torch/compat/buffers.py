"""Provide device arrays with the methods of XLA's client library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ..core import shape
from ..core.errors import ExecutionError
from ..lowering import numerics
from ..runtime.static import tensor_from_numpy
from .errors import raising_methods
from .shapes import Shape

__all__ = ["ArrayImpl"]

@raising_methods
class ArrayImpl:
    """An array that lies on one device and does not change; `np.asarray` reads it, and `tensor` is it as torch has it."""

    __array_priority__ = 100
    aval = traceback = None

    def __init__(self, tensor: torch.Tensor, own: shape.Shape, device: Any):
        self._tensor: torch.Tensor | None = tensor
        self._own, self._device = own, device
        device.client.keep(self)

    @property
    def tensor(self) -> torch.Tensor:
        """Raises ExecutionError after `delete`."""
        if self._tensor is None:
            raise ExecutionError("the buffer has been deleted", subject=f"buffer of {self._own}")
        return self._tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return self._own.dimensions

    @property
    def dtype(self) -> np.dtype:
        return self.xla_shape().element_type()

    @property
    def ndim(self) -> int:
        return self._own.rank

    @property
    def size(self) -> int:
        return self._own.element_count

    @property
    def nbytes(self) -> int:
        return self._own.byte_size

    def xla_shape(self) -> Shape:
        return Shape.of(self._own)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        kind = self._own.element_type
        own = numerics.numpy_from_storage(numerics.to_storage(self.tensor, kind), kind)
        array = own.astype(dtype) if dtype is not None and np.dtype(dtype) != own.dtype else own.copy() if copy else own.view()
        array.flags.writeable = bool(copy)
        return array

    def __dlpack__(self, **how: Any) -> Any:
        return self.tensor.__dlpack__(**how)

    def __dlpack_device__(self) -> tuple[Any, int]:
        return self.tensor.__dlpack_device__()

    def __len__(self) -> int:
        return len(np.asarray(self))

    def __getitem__(self, index: Any) -> Any:
        return np.asarray(self)[index]

    def __float__(self) -> float:
        return float(np.asarray(self))

    def __int__(self) -> int:
        return int(np.asarray(self))

    def __repr__(self) -> str:
        return f"ArrayImpl({'deleted' if self.is_deleted() else np.asarray(self)}, dtype={self.dtype})"

    # ---- where it lies

    @property
    def client(self) -> Any:
        return self._device.client

    def device(self) -> Any:
        return self._device

    def platform(self) -> str:
        return self._device.platform

    def unsafe_buffer_pointer(self) -> int:
        """The address of its first element."""
        return self.tensor.data_ptr()

    def on_device_size_in_bytes(self) -> int:
        return self.tensor.numel() * self.tensor.element_size()

    def clone(self) -> ArrayImpl:
        """Another name for the same memory."""
        return ArrayImpl(self.tensor, self._own, self._device)

    # ---- how long

    def delete(self) -> None:
        self._tensor = None

    def is_deleted(self) -> bool:
        return self._tensor is None

    def is_ready(self) -> bool:
        """Whether the value is there: calls return when it is, or torch's stream has it in order."""
        return self.tensor is not None

    def block_until_ready(self) -> ArrayImpl:
        if self._tensor is None:
            raise ExecutionError("BlockHostUntilReady() called on deleted or donated buffer", subject=f"buffer of {self._own}")
        if self._tensor.is_cuda:
            torch.cuda.synchronize(self._tensor.device)
        return self

    def copy_to_host_async(self) -> None:
        """Nothing: `np.asarray` copies."""


def on_device(value: Any, device: Any, copy: bool) -> ArrayImpl:
    """A NumPy array, or what NumPy makes one of, as a buffer."""
    array = np.array(value) if copy else np.asarray(value)
    own = Shape.array_shape(array.dtype, array.shape).own
    return ArrayImpl(tensor_from_numpy(array, own, 0).to(device.torch_device), own, device)


def flat(arguments: Sequence[Any]) -> list[ArrayImpl]:
    """The buffers among arguments, of which each may stand alone or be a list of one for each device."""
    return [a if isinstance(a, ArrayImpl) else a[0] for a in arguments]
