"""Processes for tests: a few of them that stay, joined by torch.distributed, and run functions of test modules."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any

from support import processes

PATIENCE = 90.0
"""Seconds until a test that waits for a process fails."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _serve(rank: int, size: int, port: int, connection: Connection) -> None:
    os.environ.update(GLOO_SOCKET_IFNAME="lo")
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
    connection.send("ready")
    while (job := connection.recv()) is not None:
        function, arguments = job
        try:
            answer: Any = ("result", function(*arguments))
        except Exception as error:
            answer = ("error", type(error).__name__, str(error))
        connection.send(answer)
    dist.destroy_process_group()


class Workers:
    """`size` processes. Functions given to them must be importable, results picklable."""

    def __init__(self, size: int):
        context = processes.context()
        port = free_port()
        self.size = size
        self.connections: list[Connection] = []
        self.processes: list[Any] = []
        for rank in range(size):
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(rank, size, port, there), daemon=True)
            process.start()
            there.close()
            self.connections.append(here)
            self.processes.append(process)
        assert all(self.outcome(rank) == "ready" for rank in range(size))

    def start(self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> None:
        """Let each process call the function with its arguments."""
        for connection, given in zip(self.connections, arguments, strict=True):
            connection.send((function, given))

    def outcome(self, rank: int) -> Any:
        """What became of the function at one of them: ("result", value), ("error", type, text) or ("dead",)."""
        connection = self.connections[rank]
        assert connection.poll(PATIENCE), f"process {rank} hangs"
        try:
            return connection.recv()
        except EOFError:
            return ("dead",)

    def outcomes(self) -> list[Any]:
        """What became of the started functions, as `outcome` says it."""
        return [self.outcome(rank) for rank in range(self.size)]

    def call(self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The function's results. Any error is an error of the test."""
        self.start(function, arguments)
        outcomes = self.outcomes()
        assert all(outcome[0] == "result" for outcome in outcomes), "\n".join(map(str, outcomes))
        return [outcome[1] for outcome in outcomes]

    def close(self) -> None:
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.send(None)
        for process in self.processes:
            process.join(20)
            if process.is_alive():
                process.kill()
                process.join()
        for connection in self.connections:
            connection.close()


@contextlib.contextmanager
def workers(size: int) -> Iterator[Workers]:
    made = Workers(size)
    try:
        yield made
    finally:
        made.close()
