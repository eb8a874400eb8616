"""Process groups of torch.distributed, each with the backend that carries exchanges out.

A group of participants gets a process group of its own when it first exchanges something large, whatever other groups do at
the time: its members find each other over the control plane.
"""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from ..core import tuning
from ..storage import torch_private
from .backend import Backend
from .control_plane import ControlPlane
from .exchange import Aborted
from .failures import Failures
from .gloo import GlooBackend
from .nccl import NcclBackend


class _ControlPlaneStore(dist.Store):
    """Where the members of a new process group tell each other their addresses: values published on the control plane.

    A store that is a connection with a server serves one thread at a time, and one that waits keeps the others waiting.
    """

    def __init__(self, control_plane: ControlPlane, check: Callable[[], None], timeout: float):
        """`check` raises where what is waited for will not come."""
        super().__init__()
        self._control_plane, self._check, self._seconds = control_plane, check, timeout

    def set(self, key: str, value: bytes | str) -> None:
        self._control_plane.publish(key, value.encode() if isinstance(value, str) else bytes(value))

    def get(self, key: str) -> bytes:
        def ready() -> bytes | None:
            found = self._control_plane.published(key)
            if found is None:
                self._check()
            return found

        value = self._control_plane.wait_for(ready, self._seconds)
        if value is None:
            raise Aborted.found_here(f"a process of the group was not there within {self._seconds:g} seconds")
        return value

    def wait(self, keys: Sequence[str], timeout: datetime.timedelta | None = None) -> None:
        for key in keys:
            self.get(key)

    def check(self, keys: Sequence[str]) -> bool:
        self._control_plane.poll()
        return all(self._control_plane.published(key) is not None for key in keys)


def _all_processes(size: int) -> tuple[int, ...]:
    # No participants have these numbers.
    return tuple(range(-size, 0))


def _prefix(members: tuple[int, ...], kind: str) -> str:
    return f"{kind} {members}"


def _connected_key(place: int) -> str:
    return f"connected {place}"


class ProcessGroups:
    """The process groups of one process, made when they are first needed. CUDA tensors travel with NCCL if `nccl` is set, and
    through the CPU if not."""

    def __init__(self, control_plane: ControlPlane, failures: Failures, timeout: float, nccl: bool):
        self._control_plane, self._failures, self._timeout, self._nccl = control_plane, failures, timeout, nccl
        # Kept here: torch.distributed holds its own part of the object only.
        self._store = _ControlPlaneStore(control_plane, failures.check, timeout)
        self._first_store = _ControlPlaneStore(control_plane, self._check_unconnected, timeout)
        self._backends: dict[Any, Backend] = {}
        self._lock = threading.Lock()

    def carries(self, device: torch.device) -> bool:
        """Whether tensors of this device travel as they are, not through the CPU."""
        return device.type == "cpu" or (device.type == "cuda" and self._nccl)

    def of(self, members: tuple[int, ...], number: int, kind: str) -> Backend:
        """The backend of these members, of which this process runs participant `number`, for tensors on a kind of device."""
        key = (members, kind)
        with self._lock:
            found = self._backends.get(key)
        if found is None:
            size, place = len(members), members.index(number)
            made = self._make(members, place, kind, self._store)
            found = (NcclBackend(made, size, place) if kind == "cuda" else
                     GlooBackend(made, size, place, lambda work: self._await(work, members)))
            with self._lock:
                self._backends[key] = found
        return found

    def of_all(self, rank: int, size: int) -> GlooBackend:
        """The backend of all processes, for transfers between two of them: both ends must have it before either knows of the
        other.

        All processes make it before they do anything else. A participant that fails as soon as it has it stops none of those
        that still wait for others: they connect, and where they refuse a program for the same reason, each says so itself.
        """
        made = self._make(_all_processes(size), rank, "cpu", self._first_store)
        return GlooBackend(made, size, rank, self.await_transfer)

    def _check_unconnected(self) -> None:
        plane = self._control_plane
        prefix = _prefix(_all_processes(plane.size), "cpu")
        if any(plane.published(f"{prefix}/{_connected_key(rank)}") is None for rank in plane.gone):
            self._failures.check()

    def _make(self, members: tuple[int, ...], place: int, kind: str, store: _ControlPlaneStore) -> Any:
        try:
            return self._connected(members, place, kind, store)
        except RuntimeError as error:
            self._failures.poll()
            raise Aborted.found_here(f"torch.distributed made no process group of participants {list(members)}",
                                     got=str(error).partition("\n")[0]) from None

    def _connected(self, members: tuple[int, ...], place: int, kind: str, own: _ControlPlaneStore) -> Any:
        store = dist.PrefixStore(_prefix(members, kind), own)
        limit = datetime.timedelta(seconds=self._timeout)
        if kind == "cuda":
            options = dist.ProcessGroupNCCL.Options()
            torch_private.set_timeout(options, limit)
            made: Any = dist.ProcessGroupNCCL(store, place, len(members), options)
        else:
            made = dist.ProcessGroupGloo(store, place, len(members), limit)
        # Who is connected may have nothing to do and leave, while others still connect, for whom its connection would break.
        store.set(_connected_key(place), "")
        store.wait([_connected_key(other) for other in range(len(members))], limit)
        return made

    def await_transfer(self, work: Any) -> None:
        """Wait for a transfer between two processes."""
        try:
            # Gloo closes all connections where such a wait ends too early.
            work.wait(datetime.timedelta(seconds=self._timeout))
        except RuntimeError as error:
            raise self._failures.broken(error) from None

    def _await(self, work: Any, members: tuple[int, ...]) -> None:
        """Wait for an operation of all these participants, as long as all participants are there."""
        end = time.monotonic() + self._timeout
        while True:
            try:
                work.wait(datetime.timedelta(seconds=tuning.POLL_INTERVAL))
                return
            except RuntimeError as error:
                if work.is_completed():
                    self._raise_broken(work, members)
                    return
                self._failures.poll()
                if time.monotonic() > end:
                    raise self._failures.unfinished(
                        f"the data of all members did not come within {self._timeout:g} seconds", error, members) from None

    def _raise_broken(self, work: Any, members: tuple[int, ...]) -> None:
        """Raise where an operation that has ended did so with an error."""
        try:
            work.wait()
        except RuntimeError as error:
            raise self._failures.broken(error, members) from None

    def close(self, failed: bool) -> None:
        """Give the connections back. After a failure, what still waits on a device is given up."""
        with self._lock:
            for backend in self._backends.values():
                if failed and isinstance(backend, NcclBackend):
                    backend.abort()
            self._backends.clear()
