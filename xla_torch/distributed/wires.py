"""Sockets between the processes of a session: small messages that say what each participant is at, and who has gone.

Every process is connected with every other. A message is addressed from participant to participant, and messages between
two participants arrive in order. Nobody reads in the background: whoever waits reads for all threads of the process.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import selectors
import socket
import struct
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

from ..errors import ExecutionError

_T = TypeVar("_T")

_FRAME = struct.Struct("!IB")
_ROUTE = struct.Struct("!IIiH")
_HELLO = struct.Struct("!16sI")
_MESSAGE, _NOTE, _FAILURE, _LEFT, _PING, _PONG = range(6)

SLICE = 0.2
"""Seconds after which a waiting thread looks whether another thread of its process has failed."""


class Wires:
    """The connections of process `rank` with all of `size` processes. Made at the same time by all of them.

    `store` is a torch.distributed store that is used for nothing else. Raises ExecutionError where a process does not come
    within `timeout` seconds, and names it.
    """

    def __init__(self, store: Any, rank: int, size: int, timeout: float):
        self.rank, self.size, self.timeout = rank, size, timeout
        self.failure: dict[str, Any] | None = None
        self.gone: set[int] = set()
        self.left: set[int] = set()
        self._heard: dict[int, float] = {}
        self._inbox: defaultdict[Hashable, deque[tuple[bytes, bytes]]] = defaultdict(deque)
        self._notes: dict[str, bytes] = {}
        self._state = threading.Condition()
        self._reading = False
        self._selector = selectors.DefaultSelector()
        self._sockets: dict[int, socket.socket] = {}
        self._locks = [threading.Lock() for _ in range(size)]
        self._buffers = [bytearray() for _ in range(size)]
        try:
            self._connect(store)
        except OSError as error:
            self._shut()
            raise ExecutionError("the processes of the group cannot reach each other", subject="process group",
                                 got=str(error), expected=f"connections between all of {size} processes") from None

    # ------------------------------------------------------------------------------------------- connecting

    def _connect(self, store: Any) -> None:
        address = _own_address(store)
        with socket.create_server((address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                                  backlog=self.size) as listener:
            if self.rank == 0:
                store.set("token", os.urandom(16).hex())
            store.set(f"process {self.rank}", json.dumps([address, listener.getsockname()[1]]))
            places = _everybodys(store, self.size, self.timeout)
            token = bytes.fromhex(store.get("token").decode())
            for peer in range(self.rank):
                connection = socket.create_connection(places[peer], self.timeout)
                connection.sendall(_HELLO.pack(token, self.rank))
                self._add(peer, connection)
            listener.settimeout(self.timeout)
            while len(self._sockets) < self.size - 1:
                self._accept(listener, token)

    def _accept(self, listener: socket.socket, token: bytes) -> None:
        connection, _ = listener.accept()
        connection.settimeout(self.timeout)
        hello = connection.recv(_HELLO.size, socket.MSG_WAITALL)
        if len(hello) == _HELLO.size and hello[:16] == token:
            self._add(_HELLO.unpack(hello)[1], connection)
        else:
            connection.close()

    def _add(self, peer: int, connection: socket.socket) -> None:
        connection.settimeout(self.timeout)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sockets[peer] = connection
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

    def fail(self, failure: dict[str, Any]) -> None:
        """Tell all processes that a participant of this one has failed. The first failure counts."""
        with self._state:
            if self.failure is not None:
                return
            self.failure = failure
            self._state.notify_all()
        for rank in self._sockets:
            self._send(rank, _FAILURE, json.dumps(failure).encode())

    def close(self) -> None:
        """Say good-bye, and close. After a failure others get a moment to read of it: closing may cut off what they send."""
        for rank, connection in self._sockets.items():
            self._send(rank, _LEFT, b"")
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
        if self.failure is not None:
            self.wait(lambda: True if len(self.gone) == self.size - 1 else None, 1.0)
        with self._state:
            self._shut()

    def _shut(self) -> None:
        for connection in self._sockets.values():
            connection.close()
        self._selector.close()

    def note(self, key: str, value: bytes) -> None:
        """Let all processes know the value of a key."""
        name = key.encode()
        with self._state:
            self._notes[key] = value
            self._state.notify_all()
        for rank in self._sockets:
            self._send(rank, _NOTE, struct.pack("!H", len(name)) + name + value)

    # ------------------------------------------------------------------------------------------- receiving

    def noted(self, key: str) -> bytes | None:
        """The value of a key, once some process has noted it."""
        return self._notes.get(key)

    def first(self, source: int, target: int, channel: int) -> tuple[bytes, bytes] | None:
        """The oldest message from one participant to another; it stays. To be called by what `wait` calls."""
        queue = self._inbox.get((source, target, channel))
        return queue[0] if queue else None

    def drop(self, source: int, target: int, channel: int) -> None:
        """Forget the oldest message."""
        self._inbox[source, target, channel].popleft()

    def wait(self, ready: Callable[[], _T | None], timeout: float) -> _T | None:
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
                    self._state.wait(min(rest, SLICE))
                else:
                    self._read(min(rest, SLICE))

    def look(self) -> None:
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

        self.wait(lambda: None if missing() else True, seconds)
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
        elif kind == _NOTE:
            length, = struct.unpack_from("!H", body)
            self._notes[body[2:2 + length].decode()] = body[2 + length:]
        elif kind == _FAILURE:
            self.failure = self.failure or json.loads(body)
        elif kind == _PING:
            self._send(peer, _PONG, b"")
        elif kind == _LEFT:
            self.left.add(peer)


def _own_address(store: Any) -> str:
    """The address under which others reach this process: that of the network on which it reaches the store."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    host = getattr(store, "host", None) or "localhost"
    family, kind, _, _, address = socket.getaddrinfo(host, getattr(store, "port", 1), type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:  # a connected datagram socket has sent nothing yet
        with contextlib.suppress(OSError):
            probe.connect(address)
        return probe.getsockname()[0]


def _everybodys(store: Any, size: int, timeout: float) -> list[tuple[str, int]]:
    keys = [f"process {rank}" for rank in range(size)]
    try:
        store.wait([*keys, "token"], datetime.timedelta(seconds=timeout))
        return [tuple(json.loads(store.get(key))) for key in keys]
    except RuntimeError as error:
        missing = _absent(store, keys)
        raise ExecutionError(f"processes {missing} did not come within {timeout:g} seconds", subject="process group",
                             got=str(error).partition("\n")[0], expected=f"all of {size} processes",
                             hint="every process of the group must start the session") from None


def _absent(store: Any, keys: Sequence[str]) -> list[int]:
    try:
        return [rank for rank, key in enumerate(keys) if not store.check([key])]
    except RuntimeError:  # the process that keeps the store has gone
        return [0]
