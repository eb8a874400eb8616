"""XLA's compiler in a child process: where XLA gives up a program by ending its process, this one goes on.

The child stays for further programs, and ends with its parent. Requests and answers are frames: a size, and a pickle of plain
values, from nobody but the other one.
"""

from __future__ import annotations

import atexit
import os
import pickle
import re
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import IO, Any

from ..core.errors import UnsupportedError
from ..core.forks import Lock
from .client import LOG_LEVEL, compile_for

_SIZE = struct.Struct("!Q")
_COMMAND = "import sys; sys.path[:] = sys.argv[1:]; from xla_torch.xla_backend.child import serve; serve()"
_LAST_BYTES = 1 << 16
"""Bytes of what XLA wrote before it ended, in which the line that says why is looked for."""

_fatal = re.compile(r"^F\d{4} [^\]]*\] *(.*)", re.MULTILINE)
"""How XLA's log writes that line."""


def compile_in_child(proto: bytes, partitions: int, propagates: list[bool], debug: Mapping[str, Any], shardy: bool) -> str:
    """As `compile_for`, in the child; what XLA said where it refused, otherwise "". Raises UnsupportedError where XLA ended its
    process."""
    with _lock:
        child = _children.get(os.getpid())
        if child is None or child.has_ended:
            child = _children[os.getpid()] = _Child()
        return child.asked((proto, partitions, propagates, dict(debug), shardy))


_lock = Lock()
_children: dict[int, _Child] = {}
"""The child of this process. Global: starting one takes a second. By process: a forked one has none."""


class _Child:
    """A process that compiles what it is asked to."""

    def __init__(self) -> None:
        self._stated = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the child
        environment = {LOG_LEVEL: "2", **os.environ, "PYTHONWARNINGS": "ignore"}
        self._process = subprocess.Popen([sys.executable, "-c", _COMMAND, *sys.path], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, stderr=self._stated, env=environment)
        atexit.register(self.end)

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def asked(self, request: tuple[Any, ...]) -> str:
        try:
            _write(self._process.stdin, request)
            return _read(self._process.stdout)
        except (OSError, EOFError):
            raise self._ended() from None
        except BaseException:  # an answer that nobody waits for would be taken for the next one's
            self.end()
            raise

    def _ended(self) -> UnsupportedError:
        code = self._process.wait()
        self._stated.seek(max(0, self._stated.seek(0, os.SEEK_END) - _LAST_BYTES))
        stated = self._stated.read().decode(errors="replace").strip()
        fatal = _fatal.search(stated)
        words = fatal.group(1) if fatal else stated.rpartition("\n")[2]
        return UnsupportedError("XLA ended its process over this program", got=f"exit code {code}: {words}",
                                hint="the words are XLA's: a check of its own failed")

    def end(self) -> None:
        """End it, unless it is another process's."""
        atexit.unregister(self.end)
        if _children.get(os.getpid()) is self:
            del _children[os.getpid()]
            self._process.kill()
            self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._stated):
            if stream is not None:
                stream.close()


def _write(stream: IO[bytes] | None, value: Any) -> None:
    assert stream is not None
    written = pickle.dumps(value)
    stream.write(_SIZE.pack(len(written)) + written)
    stream.flush()


def _read(stream: IO[bytes] | None) -> Any:
    assert stream is not None
    size = stream.read(_SIZE.size)
    if len(size) < _SIZE.size:
        raise EOFError
    return pickle.loads(stream.read(*_SIZE.unpack(size)))


def serve() -> None:
    """What the child does, until its parent is gone."""
    requests, answers = os.fdopen(0, "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what XLA prints is no answer
    while True:
        try:
            request = _read(requests)
        except EOFError:
            return
        try:
            compile_for(*request)
            refusal = ""
        except Exception as error:  # the binding raises several kinds
            refusal = str(error) or type(error).__name__
        _write(answers, refusal)
