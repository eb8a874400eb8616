"""Source made into machine code by the system's C compiler, and kept on disk for other processes.

The compiler is ``$CC``, or the first of `cc`, `gcc` and `clang` that is there. It runs as a process of its own, so that its
caller goes on. The folder is ``$XLA_TORCH_CACHE`` or ``~/.cache/xla_torch``; it belongs to the user alone. A library stands
there under the digest of its source and of the command that made it. Where a new one makes the folder larger than
``$XLA_TORCH_CACHE_LIMIT`` bytes, 256 MiB if that is not set, those that were loaded longest ago go.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

OPTIONS = ("-x", "c", "-w", "-O3", "-shared", "-fPIC", "-fwrapv", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math",
           "-fno-strict-aliasing")
"""No value depends on these but for the order of rounding, which is that of the source: sums wrap around, and nothing is
contracted or reordered."""

_TIMEOUT = 60.0

_LIMIT = 256 << 20

_one_at_a_time = threading.Lock()


@functools.cache
def compiler() -> tuple[str, ...]:
    """The command of the C compiler; empty where there is none."""
    for command in (shlex.split(os.environ.get("CC", "")), ["cc"], ["gcc"], ["clang"]):
        if command and shutil.which(command[0]):
            return tuple(command)
    return ()


def is_available() -> bool:
    """Whether this machine has a C compiler."""
    return bool(compiler())


def machine_code(text: str, options: tuple[str, ...] = ()) -> MachineCode:
    """The machine code of a source, with options for this processor: equal sources have the same."""
    return _machine_code(text, (*compiler(), *OPTIONS, *options),
                         Path(os.environ.get("XLA_TORCH_CACHE") or Path.home() / ".cache" / "xla_torch") / "native")


class MachineCode:
    """The function ``run`` that a source defines, once it is there: from disk at once, or some time after `make`."""

    def __init__(self, text: str, command: tuple[str, ...], folder: Path):
        self.text, self.command = text, command
        digest = hashlib.sha256(repr((text, command, platform.machine())).encode()).hexdigest()[:32]
        self.path = folder / f"loop_{digest}.so"
        self.error = ""
        """Why there will never be one."""
        self.function: Callable[..., int] | None = None
        self._thread: threading.Thread | None = None
        if self.path.exists() and _is_private(folder):
            try:
                self.function = _loaded(self.path)
            except (OSError, AttributeError):  # not what was written here
                self.function = None
            else:
                with contextlib.suppress(OSError):
                    os.utime(self.path)

    def make(self) -> None:
        """Begin to compile, if nobody has."""
        if self.function is None and self._thread is None:
            # No daemon: a process that ends waits for what is being compiled (and for nothing behind it), or short ones would
            # begin with nothing forever.
            self._thread = threading.Thread(target=self._make, name="native code")
            self._thread.start()

    def wait(self) -> None:
        """Return when it is known whether there is a function."""
        if self._thread is not None:
            self._thread.join()

    def _make(self) -> None:
        at_once = not _one_at_a_time.locked()
        try:
            with _one_at_a_time, tempfile.TemporaryDirectory(prefix="xla_torch") as work:
                if not (at_once or threading.main_thread().is_alive()):
                    return
                made = Path(work) / self.path.name
                subprocess.run([*self.command, "-o", str(made), "-", "-lm"], input=self.text, text=True, check=True,
                               capture_output=True, timeout=_TIMEOUT)
                self.function = _loaded(_kept(made, self.path))
        except subprocess.CalledProcessError as error:
            self.error = error.stderr.strip()[-1000:] or str(error)
        except Exception as error:  # whatever it is, the loop stays in torch
            self.error = f"{type(error).__name__}: {error}"


@functools.lru_cache(maxsize=1024)
def _machine_code(text: str, command: tuple[str, ...], folder: Path) -> MachineCode:
    return MachineCode(text, command, folder)


def _loaded(path: Path) -> Callable[..., int]:
    function = ctypes.CDLL(str(path)).run
    function.argtypes, function.restype = (ctypes.c_int64, ctypes.c_void_p), ctypes.c_int
    return function


def _kept(made: Path, path: Path) -> Path:
    """The library where other processes find it; where it was made if nothing can be kept."""
    written = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_private(path.parent):
            return made
        shutil.copyfile(made, written)
        written.replace(path)
    except OSError:
        return made
    _make_room(path)
    return path


def _make_room(kept: Path) -> None:
    """Remove the libraries of a folder that were loaded longest ago, until those that are left fit: all but `kept`, which is new.
    Who has loaded one keeps it."""
    found = []
    for path in kept.parent.glob("loop_*"):
        with contextlib.suppress(OSError):  # another process makes room as well
            state = path.stat()
            found.append((state.st_mtime_ns, state.st_size, path))
    excess = sum(size for _, size, _ in found) - _limit()
    for _, size, path in sorted(found):
        if excess <= 0:
            return
        if path != kept:
            with contextlib.suppress(OSError):
                path.unlink()
            excess -= size


def _limit() -> int:
    given = os.environ.get("XLA_TORCH_CACHE_LIMIT", "")
    return int(given) if given.isdecimal() else _LIMIT


def _is_private(folder: Path) -> bool:
    """Whether nobody else can put code into a folder."""
    if os.name != "posix":
        return True
    found = folder.stat()
    return found.st_uid == os.getuid() and not found.st_mode & 0o022
