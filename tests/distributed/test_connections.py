"""Setting a session up where others connect too: who says nothing, or what is wrong, neither blocks nor joins it."""

from __future__ import annotations

import hashlib
import json
import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
import torch.distributed as dist

from xla_torch.distributed.connections import connected
from xla_torch.errors import ExecutionError


def session(store: object, size: int, timeout: float = 20.0) -> list[dict[int, socket.socket]]:
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(lambda rank: connected(store, rank, size, timeout), range(size)))


def close(found: list[dict[int, socket.socket]]) -> None:
    for own in found:
        for connection in own.values():
            connection.close()


@pytest.mark.parametrize("hellos", [[b""], [b"\0" * 20], [b"\0" * 7], [b""] * 100, [b"GET / HTTP/1.1\r\n\r\n" * 3]],
                         ids=["silent", "wrong", "short", "many", "http"])
def test_unidentified_connections_do_not_matter(hellos: list[bytes]) -> None:
    store = dist.HashStore()
    with ExitStack() as stack, ThreadPoolExecutor(2) as pool:
        first = pool.submit(connected, store, 0, 2, 20.0)
        store.wait(["process 0"])
        host, port = json.loads(store.get("process 0"))
        for hello in hellos:
            stack.enter_context(socket.create_connection((host, port))).sendall(hello)
        second = pool.submit(connected, store, 1, 2, 20.0)
        both = [first.result(30.0), second.result(30.0)]
        assert [sorted(own) for own in both] == [[1], [0]]
        both[0][1].sendall(b"x")
        assert both[1][0].recv(1) == b"x"
        close(both)


@pytest.mark.parametrize(("rank", "secret"), [(0, ""), (2, ""), (2**32 - 1, ""), (1, "another")])
def test_who_does_not_belong_does_not_join(rank: int, secret: str) -> None:
    """A rank that is not expected, though with the token, and the right rank with another secret: time runs out."""
    store = dist.HashStore()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(connected, store, 0, 2, 0.5)
        store.wait(["process 0", "token"])
        host, port = json.loads(store.get("process 0"))
        store.set("process 1", json.dumps([host, port]))
        token = hashlib.sha256(bytes.fromhex(store.get("token").decode()) + secret.encode()).digest()[:16]
        with socket.create_connection((host, port)) as connection:
            connection.sendall(struct.pack("!16sI", token, rank))
            with pytest.raises(ExecutionError, match=r"processes \[1\] did not connect"):
                first.result(20.0)


def test_all_find_each_other() -> None:
    found = session(dist.HashStore(), 4)
    assert [sorted(own) for own in found] == [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]
    close(found)
