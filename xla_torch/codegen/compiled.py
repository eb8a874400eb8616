"""Source made into machine code by the system's C compiler, and kept on disk for other processes.

The compiler is ``$CC``, or the first of `cc`, `gcc` and `clang` that is there. It runs as a process of its own, so that its
caller goes on. The folder is ``$XLA_TORCH_CACHE`` or ``~/.cache/xla_torch``; it belongs to the user alone. A library stands
there under the digest of its source and of the command that made it, with a digest of itself, without which it is made anew.
Where a folder cannot be used, code is made for this process alone. Where a new one makes the folder larger than
``$XLA_TORCH_CACHE_LIMIT`` bytes, 256 MiB if that is not set, those that were loaded longest ago go.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import math
import os
import platform
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from ..core import progress, tuning
from ..core.forks import Lock, in_child, unforked

OPTIONS = ("-x", "c", "-w", "-O2", "-ftree-vectorize", "-fvect-cost-model", "-fopenmp-simd", "-fno-tree-vrp", "-shared", "-fPIC",
           "-fwrapv", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fno-strict-aliasing")
"""No value depends on these but for the order of rounding, which is that of the source: sums wrap around, and nothing is
contracted or reordered, but where the source lets totals be made side by side. `-O3` takes twice as long for most sources, and
its code as long as that of `-O2` with all of its vectoriser (decision 25). GCC makes jumps of truth values that it knows by
their ranges, and then no vectors."""

_TIMEOUT = 120.0
"""Seconds after which a compiler is taken to hang."""

_AT_EXIT = 5.0
"""Seconds that a process which ends waits for its compiler. Most sources take a tenth of one."""

_LOOKS_EVERY = 0.1
"""Seconds between two looks whether the process ends."""

_LIMIT = 256 << 20

_ALL_LIBRARIES = ("-lm",)
_LIBRARIES = ("-nostdlib", "-lm", "-lgcc") if sys.platform == "linux" else _ALL_LIBRARIES
"""What is linked at first, and all the compiler knows of where that fails. Reading libc, which every process has, is a tenth of
what a small source takes. libm is named although they have it as well: code that names none gets its old, slower functions."""


class _Compilers:
    """Threads that compile: some at once, however much waits for them, and none where nothing does. What was asked for last comes
    next. It is what now runs, where others may belong to programs that are gone."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """In a forked process: those who compile are threads of the parent."""
        self._lock, self._threads = Lock(), 0
        self._waiting: dict[MachineCode, None] = {}
        self._being_made: set[MachineCode] = set()

    def have(self, code: MachineCode) -> bool:
        """Whether it waits or is being made."""
        with self._lock:
            return code in self._waiting or code in self._being_made

    def take(self, code: MachineCode) -> None:
        """Make it as soon as there is a turn. Raises RuntimeError where no thread can be started."""
        with self._lock:
            self._waiting[code] = None
            if self._threads >= _at_once():
                return
            self._threads += 1
        try:
            # No daemon: a process that ends waits a little for what is being compiled (and for nothing behind it), or short
            # ones would begin with nothing forever.
            threading.Thread(target=self._work, name="native code").start()
        except RuntimeError:
            with self._lock:
                self._threads -= 1
                self._waiting.pop(code, None)
            raise

    def prefer(self, code: MachineCode) -> None:
        """The next turn is its, if it waits."""
        with self._lock:
            if code in self._waiting:
                self._waiting[code] = self._waiting.pop(code)

    def _work(self) -> None:
        code = self._next()
        while code is not None:
            code.compile()
            with self._lock:
                self._being_made.remove(code)
            code.ended.set()
            if not threading.main_thread().is_alive():
                self._give_up()
            code = self._next()

    def _next(self) -> MachineCode | None:
        with self._lock:
            if not self._waiting:
                self._threads -= 1
                return None
            code, _ = self._waiting.popitem()
            self._being_made.add(code)
            return code

    def _give_up(self) -> None:
        with self._lock:
            given_up = list(self._waiting)
            self._waiting.clear()
        for code in given_up:
            code.ended.set()


def _at_once() -> int:
    """Of every four processors one is left to compilers, as torch computes on all of them; two of them at least, so that a small
    source does not wait for a large one of a program that is gone."""
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    return max(2, len(usable) // 4)


_compilers = _Compilers()
in_child(_compilers.begin_anew)
_one_at_a_time = Lock()
"""For whoever asks for code: members of a group come to the same source at the same time, and it is compiled once."""


@functools.cache
def compiler() -> tuple[str, ...]:
    """The command of the C compiler; empty where there is none."""
    given = tuning.environment("CC", _command, (), "the command of a C compiler that is there")
    return given or next(((name,) for name in ("cc", "gcc", "clang") if shutil.which(name)), ())


def _command(text: str) -> tuple[str, ...]:
    command = tuple(shlex.split(text))
    if not command or not shutil.which(command[0]):
        raise ValueError(text)
    return command


def is_available() -> bool:
    """Whether this machine has a C compiler."""
    return bool(compiler())


def machine_code(text: str, options: tuple[str, ...] = ()) -> MachineCode:
    """The machine code of a source, with options for this processor: equal sources have the same."""
    with _one_at_a_time:
        return _machine_code(text, (*compiler(), *OPTIONS, *options), _folder() / "native")


def _folder() -> Path:
    given = tuning.environment("XLA_TORCH_CACHE", Path, None, "a folder")
    try:
        return given or Path.home() / ".cache" / "xla_torch"
    except RuntimeError:  # nobody's home
        return Path(tempfile.gettempdir()) / f"xla_torch-{os.getuid()}"


class MachineCode:
    """The function ``run`` that a source defines, once it is there: from disk at once, or some time after `make`."""

    def __init__(self, text: str, command: tuple[str, ...], folder: Path):
        self.text, self.command = text, command
        digest = hashlib.sha256(repr((text, command, platform.machine())).encode()).hexdigest()[:32]
        self.path = folder / f"loop_{digest}.so"
        self.error = ""
        """Why there will never be one."""
        self.unkept = ""
        """Why it will not be there for other processes."""
        self.function: Callable[..., int] | None = None
        self.ended = threading.Event()
        """Set when nobody compiles it any longer."""
        with contextlib.suppress(OSError, AttributeError):  # not what was written here
            if self.path.exists() and _is_private(folder) and _is_whole(self.path):
                self.function = _loaded(self.path)
                os.utime(self.path)

    def make(self) -> None:
        """Begin to compile, if nobody has in this process."""
        with _one_at_a_time:
            if self.function is None and not self.error and not self.is_begun():
                self.ended = threading.Event()  # that of a process that this one was forked from is never set here
                try:
                    _compilers.take(self)
                except RuntimeError as error:
                    self.error = str(error)

    def is_begun(self) -> bool:
        """Whether it is being compiled or is to be, in this process."""
        return _compilers.have(self)

    def wait(self, seconds: float = math.inf) -> None:
        """Return when it is known whether there is a function, or after so many seconds."""
        if self.is_begun() and seconds > 0:
            _compilers.prefer(self)
            with progress.doing("compiling"):
                self.ended.wait(None if math.isinf(seconds) else seconds)

    def compile(self) -> None:
        """Compile it in this thread. It may have a function then, and else says why not."""
        try:
            with tempfile.TemporaryDirectory(prefix="xla_torch") as work:
                made = Path(work) / self.path.name
                self.error = self._compiled(made)
                if not self.error:
                    self.function = _loaded(self._kept(made))
        except Exception as error:  # whatever it is, the loop stays in torch
            self.error = f"{type(error).__name__}: {error}"

    def _compiled(self, made: Path) -> str:
        """Write the library; why there is none, or nothing."""
        error = run_compiler(self.command, self.text, made, _LIBRARIES)
        if error and _LIBRARIES != _ALL_LIBRARIES and threading.main_thread().is_alive():
            error = run_compiler(self.command, self.text, made, _ALL_LIBRARIES)
        return error

    def _kept(self, made: Path) -> Path:
        """The library where other processes find it; where it was made if nothing can be kept."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _is_private(self.path.parent):
                raise PermissionError(f"{self.path.parent} belongs to another user, or others may write there")
            _write(made.read_bytes(), self.path)
        except OSError as error:
            self.unkept = str(error)
            return made
        _evict(self.path)
        return self.path


@functools.lru_cache(maxsize=1024)
def _machine_code(text: str, command: tuple[str, ...], folder: Path) -> MachineCode:
    return MachineCode(text, command, folder)


def _loaded(path: Path) -> Callable[..., int]:
    function = ctypes.CDLL(str(path)).run
    function.argtypes, function.restype = (ctypes.c_int64, ctypes.c_void_p), ctypes.c_int
    return function


# ------------------------------------------------------------------------------------------- the compiler's process


def run_compiler(command: tuple[str, ...], text: str, made: Path, libraries: tuple[str, ...]) -> str:
    """Let the compiler write a library; why it did not, or nothing. Files are beside the library and not pipes, whose ends a
    process that is forked meanwhile would hold open. It is in a session of its own: what interrupts us does not interrupt it."""
    source, stated = made.with_suffix(".c"), made.with_suffix(".txt")
    source.write_text(text)
    with stated.open("wb") as words, unforked:
        process = subprocess.Popen([*command, "-o", str(made), str(source), *libraries], stdin=subprocess.DEVNULL, stdout=words,
                                   stderr=words, start_new_session=True)
    try:
        why = _waited(process)
    finally:
        if process.returncode is None:
            _kill(process)
    if not why and process.returncode:
        why = stated.read_text(errors="replace").strip()[-1000:] or f"it returned {process.returncode}"
    return why


def _waited(process: subprocess.Popen[bytes]) -> str:
    """Wait for a compiler; why not any longer, or nothing."""
    deadline, ends = time.monotonic() + _TIMEOUT, False
    while not _has_ended(process):
        if not ends and not threading.main_thread().is_alive():
            ends, deadline = True, min(deadline, time.monotonic() + _AT_EXIT)
        if time.monotonic() > deadline:
            return "the process ends" if ends else f"it took more than {_TIMEOUT:g} seconds"
    return ""


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether a process has ended, or does in a moment."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # this system has none
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_LOOKS_EVERY)
        return process.returncode is not None
    try:
        select.select([descriptor], [], [], _LOOKS_EVERY)
    finally:
        os.close(descriptor)
    return process.poll() is not None


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a compiler and what it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL) if os.name == "posix" else process.kill()
    process.wait()


# ------------------------------------------------------------------------------------------- the folder


def _write(library: bytes, path: Path) -> None:
    """Write a library with its digest behind it, which loaders do not read. It is on disk before it has its name."""
    written = path.with_suffix(f".{os.getpid()}_{threading.get_ident()}")
    try:
        with written.open("wb") as file:
            file.write(library + hashlib.sha256(library).digest())
            file.flush()
            os.fsync(file.fileno())
        written.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            written.unlink()
        raise


def _is_whole(path: Path) -> bool:
    """Whether a library is what was written: loading another may end the process. Raises OSError where there is none."""
    found = path.read_bytes()
    size = hashlib.sha256().digest_size
    return len(found) > size and hashlib.sha256(memoryview(found)[:-size]).digest() == found[-size:]


def _evict(kept: Path) -> None:
    """Remove the libraries of a folder that were loaded longest ago, until those that are left fit: all but `kept`, which is new.
    Who has loaded one keeps it."""
    found = []
    for path in kept.parent.glob("loop_*"):
        with contextlib.suppress(OSError):  # another process deletes old entries as well
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
    return tuning.environment("XLA_TORCH_CACHE_LIMIT", _size, _LIMIT, "a number of bytes")


def _size(text: str) -> int:
    size = int(text)
    if size < 0:
        raise ValueError(text)
    return size


def _is_private(folder: Path) -> bool:
    """Whether nobody else can put code into a folder."""
    if os.name != "posix":
        return True
    found = folder.stat()
    return found.st_uid == os.getuid() and not found.st_mode & 0o022
