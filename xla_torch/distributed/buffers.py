"""Memory for large results on the CPU, used again once nobody holds them.

The system hands out fresh memory page by page, when it is first written to. For an array of many megabytes that takes as
long as the exchange itself, so what results and intermediate pieces leave behind is kept for the next ones.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Sequence

import numpy as np
import torch

LARGE = 1 << 20
"""Bytes from which memory is used again."""

KEPT = 1 << 28
"""Bytes of unused memory that are kept at most."""


def _references(blocks: Sequence[np.ndarray]) -> list[int]:
    return [sys.getrefcount(block) for block in blocks]


_OWN = _references([np.empty(0)])[0]
"""What is counted of a block that only its list holds, which differs between versions of Python."""


class Buffers:
    """Blocks of memory. One is free when no tensor's storage refers to it any more, whoever made views of the first."""

    def __init__(self) -> None:
        self._blocks: list[np.ndarray] = []
        self._lock = threading.Lock()

    def empty(self, dims: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """A dense tensor of its own memory, not initialised."""
        size = math.prod(dims) * dtype.itemsize
        if device.type != "cpu" or size < LARGE:
            return torch.empty(tuple(dims), dtype=dtype, device=device)
        return self._block(size).view(dtype).view(tuple(dims))

    def like(self, tensor: torch.Tensor) -> torch.Tensor:
        """`empty` of the tensor's shape, element type and device."""
        return self.empty(tensor.shape, tensor.dtype, tensor.device)

    def _block(self, size: int) -> torch.Tensor:
        with self._lock:
            found = self._unused(size)
            if found is None:
                time.sleep(0)  # threads of gloo need the interpreter to let go of what they have sent
                found = self._unused(size)
            if found is None:
                self._forget(size)
                found = np.empty(size, np.uint8)  # NumPy asks for huge pages
                self._blocks.append(found)
            return torch.from_numpy(found)

    def _unused(self, size: int) -> np.ndarray | None:
        return next((block for block in self._all_unused() if block.nbytes == size), None)

    def _all_unused(self) -> list[np.ndarray]:
        return [block for block, count in zip(self._blocks, _references(self._blocks), strict=True) if count == _OWN]

    def _forget(self, size: int) -> None:
        """Give unused blocks back, the oldest first, until one of this size fits beside them."""
        unused = self._all_unused()
        kept = sum(block.nbytes for block in unused)
        for block in unused:
            if kept + size <= KEPT:
                return
            kept -= block.nbytes
            self._blocks = [b for b in self._blocks if b is not block]

    def clear(self) -> None:
        """Keep nothing. What is in use stays as long as it is."""
        with self._lock:
            self._blocks.clear()


BUFFERS = Buffers()
