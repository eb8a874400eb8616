"""Control plane: small messages between the processes of a session, which say what each participant is at, and who has gone.

A message is addressed from participant to participant, and messages between two participants arrive in order. Nobody reads in
the background: whoever waits reads for all threads of the process.
"""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import struct
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from ..core import tuning
from .connections import connected

_T = TypeVar("_T")

_FRAME = struct.Struct("!IB")
"""What stands before every body: its size and its kind."""

_ROUTE = struct.Struct("!IIiH")
"""What stands before a message: source, target, channel, and the size of its text."""

_MESSAGE, _VALUE, _FAILURE, _LEFT, _PING, _PONG = range(6)


class ControlPlane:
    """The connections of process `rank` with all of `size` processes. Made at the same time by all of them.

    `store` is a torch.distributed store that is used for nothing else. Raises ExecutionError where a process does not come
    within `timeout` seconds, and names it.
    """

    def __init__(self, store: Any, rank: int, size: int, timeout: float):
        self.rank, self.size, self.timeout = rank, size, timeout
        self.failure: dict[str, Any] | None = None
        """What the first participant that failed says of it."""
        self.gone: set[int] = set()
        """The processes whose connections have ended."""
        self.left: set[int] = set()
        """The processes that have said good-bye."""
        self._heard: dict[int, float] = {}
        self._inbox: defaultdict[Hashable, deque[tuple[bytes, bytes]]] = defaultdict(deque)
        self._values: dict[str, bytes] = {}
        self._state = threading.Condition()
        self._reading = False
        self._locks = [threading.Lock() for _ in range(size)]
        self._buffers = [bytearray() for _ in range(size)]
        self._sockets: dict[int, socket.socket] = connected(store, rank, size, timeout)
        self._selector = selectors.DefaultSelector()
        for peer, connection in self._sockets.items():
            self._selector.register(connection, selectors.EVENT_READ, peer)

    # ------------------------------------------------------------------------------------------- sending

    def send(self, rank: int, source: int, target: int, channel: int, text: bytes, payload: bytes = b"") -> None:
        """A message from a participant to another, which process `rank` runs. Channel -1 is that of exchanges."""
        if rank == self.rank:
            with self._state:
                self._inbox[source, target, channel].append((text, payload))
                self._state.notify_all()
            return
        self._send(rank, _MESSAGE, _ROUTE.pack(source, target, channel, len(text)) + text + payload)

    def _send(self, rank: int, kind: int, body: bytes) -> None:
        # Where it cannot be written to, reading from it tells whether it failed, left or died.
        with contextlib.suppress(OSError), self._locks[rank]:
            self._sockets[rank].sendall(_FRAME.pack(len(body), kind) + body)

    def broadcast_failure(self, failure: dict[str, Any]) -> None:
        """Tell all processes that a participant of this one has failed. The first failure counts."""
        with self._state:
            if self.failure is not None:
                return
            self.failure = failure
            self._state.notify_all()
        for rank in self._sockets:
            self._send(rank, _FAILURE, json.dumps(failure).encode())

    def close(self) -> None:
        """Say good-bye, and close. After a failure others get a moment to read of it: closing may cut off what they send.

        The good-bye tells the failure on: whoever reads it first must not take this process for one that ended by itself.
        """
        farewell = json.dumps(self.failure).encode() if self.failure is not None else b""
        for rank, connection in self._sockets.items():
            self._send(rank, _LEFT, farewell)
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
        if self.failure is not None:
            self.wait_for(lambda: True if len(self.gone) == self.size - 1 else None, 1.0)
        with self._state:
            self._shut()

    def _shut(self) -> None:
        for connection in self._sockets.values():
            connection.close()
        self._selector.close()

    def publish(self, key: str, value: bytes) -> None:
        """Let all processes know the value of a key."""
        name = key.encode()
        with self._state:
            self._values[key] = value
            self._state.notify_all()
        for rank in self._sockets:
            self._send(rank, _VALUE, struct.pack("!H", len(name)) + name + value)

    # ------------------------------------------------------------------------------------------- receiving

    def published(self, key: str) -> bytes | None:
        """The value of a key, once some process has published it."""
        return self._values.get(key)

    def peek(self, source: int, target: int, channel: int) -> tuple[bytes, bytes] | None:
        """The oldest message from one participant to another; it stays. To be called by what `wait_for` calls."""
        queue = self._inbox.get((source, target, channel))
        return queue[0] if queue else None

    def pop(self, source: int, target: int, channel: int) -> None:
        """Forget the oldest message."""
        self._inbox[source, target, channel].popleft()

    def wait_for(self, ready: Callable[[], _T | None], timeout: float) -> _T | None:
        """What `ready` returns as soon as it is not None; None after `timeout` seconds. It is called after each arrival."""
        end = time.monotonic() + timeout
        with self._state:
            while True:
                found = ready()
                if found is not None:
                    return found
                rest = end - time.monotonic()
                if rest <= 0:
                    return None
                if self._reading:
                    self._state.wait(min(rest, tuning.POLL_INTERVAL))
                else:
                    self._read(min(rest, tuning.POLL_INTERVAL))

    def poll(self) -> None:
        """Read what has arrived."""
        with self._state:
            if not self._reading:
                self._read(0)

    def silent(self, seconds: float) -> set[int]:
        """The processes that do not answer within so many seconds. Those that wait for something do; one that computes, or
        was stopped, does not."""
        start = time.monotonic()
        for rank in self._sockets:
            self._send(rank, _PING, b"")

        def missing() -> set[int]:
            return {rank for rank in self._sockets if rank not in self.gone and self._heard.get(rank, 0.0) < start}

        self.wait_for(lambda: None if missing() else True, seconds)
        return missing()

    def _read(self, seconds: float) -> None:
        """Read for all threads; the state is unlocked while nothing comes."""
        self._reading = True
        self._state.release()
        try:
            arrived = self._selector.select(seconds)
        finally:
            self._state.acquire()
            self._reading = False
        for key, _ in arrived:
            self._receive(key.data, key.fileobj)
        self._state.notify_all()

    def _receive(self, peer: int, connection: Any) -> None:
        try:
            data = connection.recv(1 << 18)
        except OSError:
            data = b""
        if not data:
            self._selector.unregister(connection)
            self.gone.add(peer)
            return
        self._heard[peer] = time.monotonic()
        buffer = self._buffers[peer]
        buffer += data
        start = 0
        while len(buffer) - start >= _FRAME.size:
            size, kind = _FRAME.unpack_from(buffer, start)
            end = start + _FRAME.size + size
            if len(buffer) < end:
                break
            self._arrived(peer, kind, bytes(buffer[start + _FRAME.size:end]))
            start = end
        del buffer[:start]

    def _arrived(self, peer: int, kind: int, body: bytes) -> None:
        if kind == _MESSAGE:
            source, target, channel, length = _ROUTE.unpack_from(body)
            text = body[_ROUTE.size:_ROUTE.size + length]
            self._inbox[source, target, channel].append((text, body[_ROUTE.size + length:]))
        elif kind == _VALUE:
            length, = struct.unpack_from("!H", body)
            self._values[body[2:2 + length].decode()] = body[2 + length:]
        elif kind == _FAILURE:
            self.failure = self.failure or json.loads(body)
        elif kind == _PING:
            self._send(peer, _PONG, b"")
        elif kind == _LEFT:
            self.left.add(peer)
            if body:
                self.failure = self.failure or json.loads(body)
