"""What native code has to do with the system: other processes, forks, signals, disks, compilers that hang."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import re
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import xla_torch
from xla_torch.core import forks, tuning
from xla_torch.distributed import connections
from xla_torch.errors import ExecutionError
from xla_torch.kernels.native import Awaited
from xla_torch.native import compiled
from xla_torch.native.compiled import OPTIONS, MachineCode, compiler, is_available
from xla_torch.participants import feeds
from xla_torch.participants.participant import Participant, current_participant, installed_for_process

ROOT = Path(__file__).parents[2]
COMMAND = (*compiler(), *OPTIONS)
SOURCE = "int run(long long steps, char **places) { *(int *)places[0] += (int)steps; return 0; }"
pytestmark = [
    pytest.mark.skipif(not is_available() or not hasattr(os, "fork"), reason="there is no C compiler, or no fork"),
    pytest.mark.filterwarnings("ignore:os.fork", "ignore:This process .* is multi-threaded", "ignore:This DataLoader will"),
]  # jax and Python warn of forks, and torch of more processes than there are cores: here they are what is tried


def added(code: MachineCode) -> int:
    """What the code of `SOURCE` makes of 5 with 2 steps."""
    number = ctypes.c_int(5)
    assert code.function is not None, code.error
    code.function(2, (ctypes.c_void_p * 1)(ctypes.addressof(number)))
    return number.value


def made(code: MachineCode) -> MachineCode:
    code.make()
    code.wait()
    return code


# ------------------------------------------------------------------------------------------- forks


def in_a_fork(check: Callable[[], object]) -> None:
    """Run a check in a forked process, which ends after a minute if it hangs."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            os._exit(0 if check() else 1)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(2)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def waiting_compiler(folder: Path) -> tuple[str, ...]:
    """A compiler that says when it has begun, and waits until it may go on."""
    script = folder / "compiler"
    script.write_text(f"#!/bin/sh\ntouch {folder}/begun\nwhile [ ! -e {folder}/go ]; do sleep 0.01; done\n"
                      f"exec {COMMAND[0]} \"$@\"\n")
    script.chmod(0o700)
    return (str(script), *COMMAND[len(compiler()):])


def test_a_process_that_is_forked_while_code_is_made_makes_its_own(tmp_path: Path) -> None:
    code = MachineCode(SOURCE, waiting_compiler(tmp_path), tmp_path / "native")
    code.make()
    while not (tmp_path / "begun").exists():
        pass
    own = MachineCode(SOURCE.replace("+=", "-="), COMMAND, tmp_path / "native")

    def check() -> bool:
        assert added(made(own)) == 3
        (tmp_path / "go").touch()
        return added(made(code)) == 7

    try:
        in_a_fork(check)
    finally:
        (tmp_path / "go").touch()
    code.wait()
    assert added(code) == 7


@pytest.fixture
def all_locks_held() -> Iterator[None]:
    """Another thread has every lock of this package."""
    locks = [*forks._locks, *(p.lock for p in forks._properties)]  # pyright: ignore[reportPrivateUsage]
    taken, over = threading.Event(), threading.Event()

    def hold() -> None:
        for lock in locks:
            lock.acquire()
        taken.set()
        over.wait()
        for lock in locks:
            lock.release()

    thread = threading.Thread(target=hold)
    locks.remove(forks.unforked)  # while that is held, nobody forks
    thread.start()
    taken.wait()
    yield
    over.set()
    thread.join()


PROGRAM = xla_torch.parse_hlo("""HloModule m
ENTRY e {
  p = f32[3] parameter(0)
  q = f32[3] sine(p)
  ROOT r = f32[3] add(q, p)
}""")


def works() -> bool:
    """A program that is made ready here, and differentiated."""
    x = torch.ones(3, requires_grad=True)
    PROGRAM(x).sum().backward()
    feeds.feed(torch.ones(1))
    return x.grad is not None and torch.allclose(x.grad, 1 + torch.cos(torch.ones(3)))


@pytest.mark.usefixtures("all_locks_held")
def test_locks_of_other_threads_hold_up_no_fork() -> None:
    in_a_fork(works)


class Worked(Dataset[bool]):
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> bool:
        return works()


@pytest.mark.usefixtures("all_locks_held")
def test_locks_of_other_threads_hold_up_no_data_loader() -> None:
    loader = DataLoader(Worked(), num_workers=2, multiprocessing_context="fork", timeout=60)
    assert [bool(b.all()) for b in loader] == [True, True]


def test_what_was_fed_is_there_in_a_fork() -> None:
    feeds.send(7, torch.ones(2))
    try:
        in_a_fork(lambda: feeds._take(("to program", 7, 0), "", "").sum() == 2)  # pyright: ignore[reportPrivateUsage]
    finally:
        feeds.clear()


class Second(Participant):
    replica_id, replica_count = 1, 2

    def begin(self, exchange: object) -> None:
        raise AssertionError("a forked process is no participant")


def test_a_forked_process_is_no_participant() -> None:
    program = xla_torch.parse_hlo("""HloModule m, replica_count=2
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
ENTRY e {
  p = f32[3] parameter(0)
  ROOT r = f32[3] all-reduce(p), replica_groups={{0,1}}, to_apply=sum
}""")

    def check() -> bool:
        with pytest.raises(ExecutionError, match="forked from a participant"):
            program(torch.ones(3))
        return current_participant().number == 1

    with installed_for_process(Second()):  # pyright: ignore[reportAbstractUsage]
        in_a_fork(check)


SESSIONS = "xla_torch/distributed/"
"""Sessions end with a fork (`participants/participant.py`), so that theirs may be Python's."""


PYTHON_S = ("threading.Lock", "threading.RLock", "threading.Condition", "functools.cached_property",
            "from functools import cached_property")


def test_locks_are_those_that_a_fork_makes_anew() -> None:
    """Also functools' cached properties, which had locks before Python 3.12."""
    found = []
    for path in sorted((ROOT / "xla_torch").rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        text = path.read_text(encoding="utf-8")
        wrong = {word for word in PYTHON_S if word in text}
        if wrong and not name.startswith(SESSIONS) and name != "xla_torch/core/forks.py":
            found.append((name, wrong))
    assert found == []


# ------------------------------------------------------------------------------------------- signals

ENDLESS = """HloModule endless
all {{
  a = pred[] parameter(0)
  b = pred[] parameter(1)
  ROOT r = pred[] and(a, b)
}}
inner_holds {{
  p = (s32[], f64[{n}]) parameter(0)
  x = f64[{n}] get-tuple-element(p), index=1
  y = f64[] constant(-1)
  z = f64[{n}] broadcast(y), dimensions={{}}
  c = pred[{n}] compare(x, z), direction=GT
  t = pred[] constant(true)
  ROOT r = pred[] reduce(c, t), dimensions={{0}}, to_apply=all
}}
inner {{
  p = (s32[], f64[{n}]) parameter(0)
  k = s32[] get-tuple-element(p), index=0
  x = f64[{n}] get-tuple-element(p), index=1
  one = s32[] constant(1)
  next = s32[] add(k, one)
  y = f64[{n}] abs(x)
  ROOT r = (s32[], f64[{n}]) tuple(next, y)
}}
holds {{
  p = (s32[], f64[{n}]) parameter(0)
  k = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3)
  ROOT r = pred[] compare(k, n), direction=NE
}}
outer {{
  p = (s32[], f64[{n}]) parameter(0)
  ROOT w = (s32[], f64[{n}]) while(p), condition=inner_holds, body=inner
}}
ENTRY e {{
  x = f64[{n}] parameter(0)
  k = s32[] constant(0)
  t = (s32[], f64[{n}]) tuple(k, x)
  w = (s32[], f64[{n}]) while(t), condition=holds, body=outer
  ROOT r = f64[{n}] get-tuple-element(w), index=1
}}"""


class Stop(Exception):
    pass


@pytest.mark.parametrize("n", [1, 40])
def test_a_loop_in_a_loop_can_be_stopped(n: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Handlers run, and what they raise is raised; a handler that returns lets the loop go on."""
    monkeypatch.setattr(tuning, "NATIVE_AFTER", 0.0)
    monkeypatch.setenv("XLA_TORCH_CACHE", str(tmp_path))
    rung: list[int] = []

    def ring(*_: object) -> None:
        """Counts once there is native code, and raises the second time, when no other signal is on its way."""
        if is_kept():
            rung.append(1)
        if len(rung) == 2:
            raise Stop("by a handler")
        signal.setitimer(signal.ITIMER_REAL, 0.3 if rung else 0.01)

    def is_kept() -> bool:
        return any((tmp_path / "native").glob("loop_*.so"))

    program = xla_torch.parse_hlo(ENDLESS.format(n=n))
    assert "_native" in program.python_code()
    before = signal.signal(signal.SIGALRM, ring)
    faulthandler.dump_traceback_later(120, exit=True)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        with pytest.raises(Stop, match="by a handler"):
            program.run_numpy(np.ones(n))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGALRM, before)
    assert len(rung) == 2
    assert is_kept()


@pytest.mark.parametrize("ends", ["pass", "raise SystemExit(3)", "__import__('signal').raise_signal(2)"])
def test_a_compiler_that_hangs_ends_with_the_process(ends: str, tmp_path: Path) -> None:
    script = (f"import sys; sys.path.insert(0, {str(ROOT)!r}); from pathlib import Path; from xla_torch.native import compiled; "
              f"compiled._AT_EXIT = 0.1; compiled.MachineCode('', ('sh', '-c', 'echo $$ > {tmp_path}/id; sleep 1000; :'), "
              f"Path({str(tmp_path)!r})).make()\nwhile not Path('{tmp_path}/id').exists(): pass\n{ends}")
    subprocess.run([sys.executable, "-c", script], check=False, timeout=100, capture_output=True)
    assert not is_running(int((tmp_path / "id").read_text()))


def is_running(number: int) -> bool:
    """Whether there is such a process, which has not ended: one whose parent is gone may be left as a name."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(number)], check=False, capture_output=True, text=True).stdout.strip()
    return state != "" and state[0] not in "ZX"


def test_a_compiler_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_TIMEOUT", 0.1)
    code = made(MachineCode(SOURCE, ("sh", "-c", "sleep 1000; :"), tmp_path))
    assert code.function is None
    assert code.error == "it took more than 0.1 seconds"


# ------------------------------------------------------------------------------------------- disks


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-4096])


def with_another_byte(path: Path) -> None:
    found = bytearray(path.read_bytes())
    found[len(found) // 2] ^= 1
    path.write_bytes(found)


def replaced(path: Path) -> None:
    path.write_bytes(b"\x7fELF" + bytes(20_000))


def emptied(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [truncated, with_another_byte, replaced, emptied])
def test_a_damaged_file_is_made_anew(damage: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, loaded = tmp_path / "native", []
    path = made(MachineCode(SOURCE, COMMAND, folder)).path
    # Written beside it, as whoever restores a folder does: this process has the old one loaded.
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    damage(copy)
    copy.replace(path)
    load = compiled._loaded  # pyright: ignore[reportPrivateUsage]
    with monkeypatch.context() as patch:
        patch.setattr(compiled, "_loaded", loaded.append)
        code = MachineCode(SOURCE, COMMAND, folder)
    assert (code.function, loaded) == (None, []), "it is not even loaded"
    assert added(made(code)) == 7
    assert load(path)
    assert MachineCode(SOURCE, COMMAND, folder).function is not None


def no_space(*_: object) -> None:
    raise OSError(28, "No space left on device")


def readable_by_all(folder: Path, patch: pytest.MonkeyPatch) -> None:
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)


def a_file(folder: Path, patch: pytest.MonkeyPatch) -> None:
    folder.write_text("")


def full(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(os, "fsync", no_space)


def another_s(folder: Path, patch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    patch.setattr(os, "getuid", lambda: 12345)


@pytest.mark.parametrize("prepare", [readable_by_all, a_file, full, another_s])
def test_a_folder_that_cannot_be_used_is_told_once(prepare: Callable[[Path, pytest.MonkeyPatch], None], tmp_path: Path,
                                                   monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder) -> None:
    prepare(tmp_path / "native", monkeypatch)
    monkeypatch.setenv("XLA_TORCH_CACHE", str(tmp_path))
    monkeypatch.setattr(tuning, "NATIVE_AFTER", 0.0)
    for sign in "-*":
        code = Awaited(SOURCE.replace("+=", f"{sign}="), "arithmetic")
        assert code.is_ready()
        assert code.is_ready()
        assert added(code.code) == (3 if sign == "-" else 10)  # pyright: ignore[reportArgumentType]
    (warning,) = recwarn
    assert "is not kept for other processes" in str(warning.message)
    assert not [p for p in tmp_path.rglob("*") if p.is_file() and p.stat().st_size]


# ------------------------------------------------------------------------------------------- the environment


@pytest.mark.parametrize(("name", "value", "reads", "says"), [
    ("XLA_TORCH_NATIVE_AFTER", "", "tuning.NATIVE_AFTER == 0.005", ""),
    ("XLA_TORCH_NATIVE_AFTER", " ", "tuning.NATIVE_AFTER == 0.005", ""),
    ("XLA_TORCH_NATIVE_AFTER", "inf", "tuning.NATIVE_AFTER == float('inf')", ""),
    ("XLA_TORCH_NATIVE_AFTER", "soon", "tuning.NATIVE_AFTER == 0.005", "XLA_TORCH_NATIVE_AFTER='soon' .*not a number of seconds"),
    ("XLA_TORCH_NATIVE_AFTER", "nan", "tuning.NATIVE_AFTER == 0.005", "is not a number of seconds"),
    ("XLA_TORCH_NATIVE_AFTER", "-1", "tuning.NATIVE_AFTER == 0.005", "is not a number of seconds"),
    ("XLA_TORCH_CACHE", "", "compiled._folder() == Path.home() / '.cache' / 'xla_torch'", ""),
    ("XLA_TORCH_CACHE_LIMIT", "", "compiled._limit() == 256 << 20", ""),
    ("XLA_TORCH_CACHE_LIMIT", "1e9", "compiled._limit() == 256 << 20", "XLA_TORCH_CACHE_LIMIT='1e9' .* is not a number of bytes"),
    ("XLA_TORCH_CACHE_LIMIT", "-5", "compiled._limit() == 256 << 20", "is not a number of bytes"),
    ("XLA_TORCH_SECRET", "", "len(connections._token(b'00')) == 16", ""),
    ("CC", "", "compiled.compiler.__wrapped__()", ""),
    ("CC", "no_such_compiler -O2", "compiled.compiler.__wrapped__()", "CC='no_such_compiler -O2' .* compiler that is there"),
    ("CC", "cc '", "compiled.compiler.__wrapped__()", "compiler that is there"),
])
def test_the_environment_says_something_or_the_default_holds(name: str, value: str, reads: str, says: str,
                                                             monkeypatch: pytest.MonkeyPatch,
                                                             recwarn: pytest.WarningsRecorder) -> None:
    monkeypatch.setenv(name, value)
    names = {"tuning": fresh_tuning(), "compiled": compiled, "Path": Path, "connections": connections}
    assert eval(reads, names)
    assert len(recwarn) == bool(says)
    assert all(re.search(says, str(w.message)) for w in recwarn)


def fresh_tuning() -> object:
    """The module as a new process has it."""
    names: dict[str, object] = {"__name__": "fresh"}
    exec(compile((ROOT / "xla_torch/core/tuning.py").read_text(), "tuning.py", "exec"), names)
    return type("fresh", (), names)


def test_all_of_the_environment_is_read_in_one_place() -> None:
    """But for whether torchrun is there."""
    found = {p.relative_to(ROOT).as_posix() for p in (ROOT / "xla_torch").rglob("*.py")
             if any(word in p.read_text(encoding="utf-8") for word in ("environ.get", "environ[", "getenv"))}
    assert found == {"xla_torch/core/tuning.py"}
