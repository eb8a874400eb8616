"""Sockets between the processes of a session: every process is connected with every other."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import socket
import struct
from collections.abc import Sequence
from typing import Any

from ..errors import ExecutionError

_HELLO = struct.Struct("!16sI")
"""How a process greets the one it connects with: the session's token and its own rank."""


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
                              backlog=size) as listener:
        if rank == 0:
            store.set("token", os.urandom(16).hex())
        store.set(f"process {rank}", json.dumps([address, listener.getsockname()[1]]))
        addresses = _addresses(store, size, timeout)
        token = bytes.fromhex(store.get("token").decode())
        for peer in range(rank):
            connection = socket.create_connection(addresses[peer], timeout)
            connection.sendall(_HELLO.pack(token, rank))
            sockets[peer] = _prepared(connection, timeout)
        listener.settimeout(timeout)
        while len(sockets) < size - 1:
            _accept(listener, token, timeout, sockets)


def _accept(listener: socket.socket, token: bytes, timeout: float, sockets: dict[int, socket.socket]) -> None:
    connection, _ = listener.accept()
    connection.settimeout(timeout)
    hello = connection.recv(_HELLO.size, socket.MSG_WAITALL)
    if len(hello) == _HELLO.size and hello[:16] == token:
        sockets[_HELLO.unpack(hello)[1]] = _prepared(connection, timeout)
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
                             hint="every process of the group must start the session") from None


def _absent(store: Any, keys: Sequence[str]) -> list[int]:
    try:
        return [rank for rank, key in enumerate(keys) if not store.check([key])]
    except RuntimeError:  # the process that keeps the store has gone
        return [0]
