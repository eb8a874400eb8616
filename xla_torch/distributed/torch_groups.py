"""Process groups of torch.distributed, which carry out large exchanges (`group.py`).

A group of participants gets a process group of its own when it first exchanges something large, whatever other groups do at
the time: its members find each other by notes on the wires.
"""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from ..errors import ExecutionError
from .gloo import GlooGroup
from .group import TorchGroup
from .nccl import NcclGroup
from .wires import SLICE, Wires

ANSWER = 3.0
"""Seconds in which a process says that it is there. Those that wait for an exchange look several times a second."""


class _WireStore(dist.Store):
    """Where the members of a new process group tell each other their addresses: notes on the wires between processes.

    A store that is a connection with a server serves one thread at a time, and one that waits keeps the others waiting.
    """

    def __init__(self, wires: Wires, alive: Callable[[], None], timeout: float):
        super().__init__()
        self._wires, self._alive, self._seconds = wires, alive, timeout

    def set(self, key: str, value: bytes | str) -> None:
        self._wires.note(key, value.encode() if isinstance(value, str) else bytes(value))

    def get(self, key: str) -> bytes:
        def ready() -> bytes | None:
            found = self._wires.noted(key)
            if found is None:
                self._alive()
            return found

        value = self._wires.wait(ready, self._seconds)
        if value is None:
            raise ExecutionError(f"no process told its address within {self._seconds:g} seconds")
        return value

    def wait(self, keys: Sequence[str], timeout: datetime.timedelta | None = None) -> None:
        for key in keys:
            self.get(key)

    def check(self, keys: Sequence[str]) -> bool:
        self._wires.look()
        return all(self._wires.noted(key) is not None for key in keys)


class TorchGroups:
    """The process groups of one process, made when they are first needed.

    `alive` raises where a participant has failed or a process has died; `numbers` says which participants processes run. CUDA
    tensors travel with NCCL if `nccl` is set, and through the CPU if not.
    """

    def __init__(self, wires: Wires, timeout: float, nccl: bool, alive: Callable[[], None],
                 numbers: Callable[[set[int]], list[int]]):
        self._wires, self._timeout, self._nccl, self._alive, self._numbers = wires, timeout, nccl, alive, numbers
        # Kept here: torch.distributed holds its own part of the object only.
        self._store = _WireStore(wires, alive, timeout)
        self._groups: dict[Any, TorchGroup] = {}
        self._lock = threading.Lock()

    def takes(self, device: torch.device) -> bool:
        """Whether tensors of this device travel as they are, not through the CPU."""
        return device.type == "cpu" or (device.type == "cuda" and self._nccl)

    def of(self, members: tuple[int, ...], place: int, kind: str) -> TorchGroup:
        """The group of these members, of which this process is the one at `place`, for tensors on a kind of device."""
        key = (members, kind)
        with self._lock:
            found = self._groups.get(key)
        if found is None:
            made = self._make(members, place, kind)
            found = (NcclGroup(made, len(members), place) if kind == "cuda" else
                     GlooGroup(made, len(members), place, lambda work: self._finish(work, members)))
            with self._lock:
                self._groups[key] = found
        return found

    def _make(self, members: tuple[int, ...], place: int, kind: str) -> Any:
        try:
            return self._connected(members, place, kind)
        except RuntimeError as error:
            self._look()
            raise ExecutionError(f"torch.distributed made no process group of participants {list(members)}",
                                 got=str(error).partition("\n")[0]) from None

    def _connected(self, members: tuple[int, ...], place: int, kind: str) -> Any:
        store = dist.PrefixStore(f"{kind} {members}", self._store)
        limit = datetime.timedelta(seconds=self._timeout)
        if kind == "cuda":
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = limit
            return dist.ProcessGroupNCCL(store, place, len(members), options)
        return dist.ProcessGroupGloo(store, place, len(members), limit)

    def mail(self, rank: int, size: int) -> GlooGroup:
        """The group of all processes for messages between two of them. It is named by no participants: both ends must have
        it before either knows of the other."""
        return GlooGroup(self._make(tuple(range(-size, 0)), rank, "cpu"), size, rank, self.delivered)

    def delivered(self, work: Any) -> None:
        """Wait for a message between two processes."""
        try:
            # Gloo closes all connections where such a wait ends too early.
            work.wait(datetime.timedelta(seconds=self._timeout))
        except RuntimeError as error:
            raise self._broken(error) from None

    def _finish(self, work: Any, members: tuple[int, ...]) -> None:
        """Wait for an operation of all these participants, as long as all participants are there."""
        end = time.monotonic() + self._timeout
        while True:
            try:
                work.wait(datetime.timedelta(seconds=SLICE))
                return
            except RuntimeError as error:
                if work.is_completed():
                    self._ended(work, members)
                    return
                self._look()
                if time.monotonic() > end:
                    raise self._late(error, members) from None

    def _late(self, error: RuntimeError, members: tuple[int, ...]) -> ExecutionError:
        return self._failed(f"the data of all members did not come within {self._timeout:g} seconds", error, members)

    def _ended(self, work: Any, members: tuple[int, ...]) -> None:
        try:
            work.wait()
        except RuntimeError as error:
            raise self._broken(error, members) from None

    def _broken(self, error: RuntimeError, members: tuple[int, ...] = ()) -> ExecutionError:
        """The error where a connection broke. Raises what is known in a moment of whose it was."""
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            self._look()
            time.sleep(0.02)
        return self._failed("an operation of torch.distributed failed", error, members)

    def _failed(self, what: str, error: RuntimeError, members: tuple[int, ...]) -> ExecutionError:
        """An error that names who of the members, or of all, is connected but not there: a process that was stopped or hangs."""
        silent = self._numbers(self._wires.silent(ANSWER))
        self._look()
        named = sorted(set(members or silent).intersection(silent))
        return ExecutionError(what, got=f"no answer from participants {named}" if named else str(error).partition("\n")[0])

    def _look(self) -> None:
        """Raise where a participant has failed by now."""
        self._wires.look()
        self._alive()

    def close(self, failed: bool) -> None:
        """Give the connections back. After a failure, what still waits on a device is given up."""
        with self._lock:
            for group in self._groups.values():
                if failed and isinstance(group, NcclGroup):
                    group.abort()
            self._groups.clear()
