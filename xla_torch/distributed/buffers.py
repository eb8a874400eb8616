"""Memory for large results on the CPU, used again once nobody holds them.

The system hands out fresh memory page by page, when it is first written to. For an array of many megabytes that takes as
long as the exchange itself, so what results and intermediate chunks leave behind is kept for the next ones.

A tensor of a pool holds a *lease*: a NumPy view of its block, made for it alone and kept alive by its storage. However many
views of the tensor there are, the lease ends with the storage, and then a finalizer gives the block back.
"""

from __future__ import annotations

import math
import time
import weakref
from collections import deque
from collections.abc import Sequence

import numpy as np
import torch

from ..core import tuning
from ..core.forks import Lock


class BufferPool:
    """Blocks of memory that nobody uses, the longest unused first, and those that have just been given back."""

    def __init__(self) -> None:
        self._free: list[np.ndarray] = []
        # Finalizers run in whichever thread lets go of a tensor, perhaps while that holds the lock: they only append.
        self._returned: deque[np.ndarray] = deque()
        self._lock = Lock()

    def empty(self, dims: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """A dense tensor of its own memory, not initialised."""
        size = math.prod(dims) * dtype.itemsize
        if device.type != "cpu" or size < tuning.POOLED_BYTES:
            return torch.empty(tuple(dims), dtype=dtype, device=device)
        return self._leased(self._block(size)).view(dtype).view(tuple(dims))

    def like(self, tensor: torch.Tensor) -> torch.Tensor:
        """`empty` of the tensor's shape, element type and device."""
        return self.empty(tensor.shape, tensor.dtype, tensor.device)

    @property
    def unused_bytes(self) -> int:
        """How much memory is kept for later."""
        with self._lock:
            self._collect()
            return sum(block.nbytes for block in self._free)

    def clear(self) -> None:
        """Keep nothing. What is in use stays as long as it is, and is not given back any more."""
        with self._lock:
            self._free, self._returned = [], deque()

    def _leased(self, block: np.ndarray) -> torch.Tensor:
        lease = block.view()
        weakref.finalize(lease, _give_back, weakref.ref(self._returned), block).atexit = False
        return torch.from_numpy(lease)

    def _block(self, size: int) -> np.ndarray:
        with self._lock:
            found = self._taken(size)
            if found is None:
                time.sleep(0)  # threads of gloo need the interpreter to let go of what they have sent
                found = self._taken(size)
            self._forget(size)
            return np.empty(size, np.uint8) if found is None else found  # NumPy asks for huge pages

    def _taken(self, size: int) -> np.ndarray | None:
        """The unused block of this size that was used last, which the processor's caches may still hold."""
        self._collect()
        for place in reversed(range(len(self._free))):
            if self._free[place].nbytes == size:
                return self._free.pop(place)
        return None

    def _collect(self) -> None:
        while self._returned:
            self._free.append(self._returned.popleft())

    def _forget(self, size: int) -> None:
        """Give unused blocks back to the system, the longest unused first, until as many bytes are left as may be kept beside a
        block of this size."""
        kept = sum(block.nbytes for block in self._free)
        most = tuning.POOL_KEEPS * max([size, *(block.nbytes for block in self._free)])
        while kept > most:
            kept -= self._free.pop(0).nbytes


def _give_back(returned: weakref.ref[deque[np.ndarray]], block: np.ndarray) -> None:
    """End a lease. A pool that was cleared meanwhile has another deque, and the block goes back to the system."""
    blocks = returned()
    if blocks is not None:
        blocks.append(block)


BUFFERS = BufferPool()
"""The pool of this process. Global, as memory is: threads that exchange with each other use what the others leave behind.
Sessions clear it at their end."""
