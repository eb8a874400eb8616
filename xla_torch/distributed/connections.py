"""Sockets between the processes of a session: every process is connected with every other."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import hmac
import json
import os
import selectors
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any

from ..core import tuning
from ..core.errors import ExecutionError

_HELLO = struct.Struct("!16sI")
"""How a process greets the one it connects with: the session's token and its own rank."""

_UNIDENTIFIED = 64
"""Connections of which it is not known yet whose they are, beside those that are expected: more are closed, the oldest first."""


def connected(store: Any, rank: int, size: int, timeout: float) -> dict[int, socket.socket]:
    """A socket to each other process of `size`, by rank. All of them call this at the same time.

    `store` is a torch.distributed store that is used for nothing else: there they find each other's addresses. Raises
    ExecutionError where a process does not come within `timeout` seconds, and names it.
    """
    sockets: dict[int, socket.socket] = {}
    try:
        _connect(store, rank, size, timeout, sockets)
    except OSError as error:
        for connection in sockets.values():
            connection.close()
        raise ExecutionError("the processes of the group cannot reach each other", subject="process group",
                             got=str(error), expected=f"connections between all of {size} processes") from None
    return sockets


def _connect(store: Any, rank: int, size: int, timeout: float, sockets: dict[int, socket.socket]) -> None:
    address = _own_address(store)
    with socket.create_server((address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                              backlog=size + 2 * _UNIDENTIFIED) as listener:
        if rank == 0:
            store.set("token", os.urandom(16).hex())
        store.set(f"process {rank}", json.dumps([address, listener.getsockname()[1]]))
        addresses = _addresses(store, size, timeout)
        token = _token(store.get("token"))
        for peer in range(rank):
            connection = socket.create_connection(addresses[peer], timeout)
            connection.sendall(_HELLO.pack(token, rank))
            sockets[peer] = _prepared(connection, timeout)
        _accept(listener, set(range(rank + 1, size)), token, timeout, sockets)


def _token(stated: bytes) -> bytes:
    """What the processes of the session know: what the store says, and where users set one, a secret that it does not know."""
    secret = tuning.environment("XLA_TORCH_SECRET", str, "", "a text")
    return hashlib.sha256(bytes.fromhex(stated.decode()) + secret.encode()).digest()[:16]


def _accept(listener: socket.socket, expected: set[int], token: bytes, timeout: float, sockets: dict[int, socket.socket]) -> None:
    """Connections from the expected processes. Others may connect too, say anything or nothing: nobody waits for them."""
    unidentified: dict[socket.socket, bytes] = {}
    listener.setblocking(False)
    end = time.monotonic() + timeout
    try:
        while not expected <= sockets.keys():
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"processes {sorted(expected - sockets.keys())} did not connect within {timeout:g} seconds")
            for connection in _ready([listener, *unidentified], left):
                if connection is listener:
                    _meet(listener, unidentified, len(expected))
                elif connection in unidentified:  # it may have had to go meanwhile
                    _listen(connection, unidentified, expected, token, timeout, sockets)
    finally:
        for connection in unidentified:
            connection.close()


def _ready(connections: Sequence[socket.socket], seconds: float) -> list[Any]:
    """Those from which something can be read, once there are any or the time is over."""
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ)
        return [key.fileobj for key, _ in selector.select(seconds)]


def _meet(listener: socket.socket, unidentified: dict[socket.socket, bytes], expected: int) -> None:
    with contextlib.suppress(BlockingIOError, ConnectionError):
        connection, _ = listener.accept()
        connection.setblocking(False)
        unidentified[connection] = b""
    if len(unidentified) > expected + _UNIDENTIFIED:  # the first that came
        first = next(iter(unidentified))
        del unidentified[first]
        first.close()


def _listen(connection: socket.socket, unidentified: dict[socket.socket, bytes], expected: set[int], token: bytes, timeout: float,
            sockets: dict[int, socket.socket]) -> None:
    try:
        stated = connection.recv(_HELLO.size - len(unidentified[connection]))
    except OSError:
        stated = b""
    hello = unidentified[connection] = unidentified[connection] + stated
    if stated and len(hello) < _HELLO.size:
        return
    del unidentified[connection]
    known, number = _HELLO.unpack(hello) if len(hello) == _HELLO.size else (b"", 0)
    if hmac.compare_digest(known, token) and number in expected - sockets.keys():
        sockets[number] = _prepared(connection, timeout)
    else:
        connection.close()


def _prepared(connection: socket.socket, timeout: float) -> socket.socket:
    connection.settimeout(timeout)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


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


def _addresses(store: Any, size: int, timeout: float) -> list[tuple[str, int]]:
    keys = [f"process {rank}" for rank in range(size)]
    try:
        store.wait([*keys, "token"], datetime.timedelta(seconds=timeout))
        return [tuple(json.loads(store.get(key))) for key in keys]
    except RuntimeError as error:
        missing = _absent(store, keys)
        raise ExecutionError(f"processes {missing} did not come within {timeout:g} seconds", subject="process group",
                             got=str(error).partition("\n")[0], expected=f"all of {size} processes",
                             hint="start the session in every process of the group") from None


def _absent(store: Any, keys: Sequence[str]) -> list[int]:
    try:
        return [rank for rank, key in enumerate(keys) if not store.check([key])]
    except RuntimeError:  # the process that keeps the store has gone
        return [0]
