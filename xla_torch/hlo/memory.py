"""The memory of constants: each has its own, whatever file it was read from."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Generator
from typing import Any

import numpy as np

_CHUNK = 1 << 22
"""Bytes that are copied at a time, a multiple of every page size."""

_ARRAY: type[Any] = np.ndarray

_AROUND = 1 << 17
"""How far in front of what is given back pages are too: reading a page brings in those around it, which would stay."""


@contextlib.contextmanager
def mapped(path: str | os.PathLike[str]) -> Generator[memoryview]:
    """The bytes of a file, mapped to memory: what is not looked at is not read. OSError as `open` raises it."""
    with open(path, "rb") as file:
        if not os.fstat(file.fileno()).st_size:  # which cannot be mapped
            yield memoryview(b"")
            return
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    try:
        yield memoryview(mapping)
    finally:
        # Where something still refers to the bytes (an error's traceback, say), the last of these closes the file.
        with contextlib.suppress(BufferError):
            mapping.close()


def owned(data: bytes | bytearray | memoryview) -> np.ndarray:
    """The bytes in memory of their own, which is aligned for every element type.

    Of a mapped file the pages are given back as they are copied, so that the file's bytes and the copy are never both in memory.
    """
    source = np.frombuffer(data, np.uint8)
    return _copied(source, data.obj if isinstance(data, memoryview) and isinstance(data.obj, mmap.mmap) else None)


def unmapped(array: np.ndarray) -> np.ndarray:
    """An array that is not part of a mapped file, which may change and be cut off: itself, or a copy."""
    mapping = _mapping_of(array)
    if mapping is None:
        return array
    if 0 in array.strides:  # one element stands for all
        return np.broadcast_to(array[(slice(0, 1),) * array.ndim].copy(), array.shape)
    flat = array.reshape(-1)
    return _copied(flat.view(np.uint8), mapping).view(array.dtype).reshape(array.shape)


def _mapping_of(base: Any) -> mmap.mmap | None:
    while isinstance(base, _ARRAY) and base.base is not None:
        base = base.base
    base = base.obj if isinstance(base, memoryview) else base
    return base if isinstance(base, mmap.mmap) else None


def give_back(part: memoryview) -> None:
    """Say that the bytes are not needed any more: of a mapped file they need not stay in memory. Others are left alone."""
    if isinstance(part.obj, mmap.mmap):
        _give_back(part.obj, np.frombuffer(part, np.uint8))


def _copied(source: np.ndarray, mapping: mmap.mmap | None) -> np.ndarray:
    found = np.empty(source.size, np.uint8)
    if mapping is None or source.size < _AROUND:
        found[:] = source
        return found
    for start in range(0, source.size, _CHUNK):
        found[start:start + _CHUNK] = source[start:start + _CHUNK]
        _give_back(mapping, source[start:start + _CHUNK])
    return found


def _give_back(mapped: mmap.mmap, part: np.ndarray) -> None:
    """Pages of a mapped file that are not needed any more; they are read again if they are."""
    if not hasattr(mapped, "madvise"):
        return  # on systems without it they stay until memory is short
    first = part.__array_interface__["data"][0] - np.frombuffer(mapped, np.uint8).__array_interface__["data"][0]
    start = max(0, (first - _AROUND) // mmap.PAGESIZE * mmap.PAGESIZE)
    end = (first + part.size) // mmap.PAGESIZE * mmap.PAGESIZE
    if end > start:
        mapped.madvise(mmap.MADV_DONTNEED, start, end - start)
