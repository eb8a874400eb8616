"""What is compiled: kept on disk, shared by processes, made anew where it is broken."""

from __future__ import annotations

import ctypes
import math
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from xla_torch.codegen.compiled import OPTIONS, MachineCode, compiler, is_available, machine_code

needs_compiler = pytest.mark.skipif(not is_available(), reason="there is no C compiler")

SOURCE = "int run(long long steps, char **places) { *(int *)places[0] += (int)steps; return 0; }"


def added(code: MachineCode) -> int:
    """What the code of `SOURCE` makes of 5 with 2 steps."""
    number = ctypes.c_int(5)
    assert code.function is not None
    code.function(2, (ctypes.c_void_p * 1)(ctypes.addressof(number)))
    return number.value


@needs_compiler
@pytest.mark.parametrize(("mode", "is_there"), [(0o700, True), (0o777, False)])
def test_what_is_on_disk_is_there_at_once(mode: int, is_there: bool, tmp_path: Path) -> None:
    """Unless somebody else could have put it there: then it is made anew."""
    folder, command = tmp_path / "native", (*compiler(), *OPTIONS)
    code = MachineCode(SOURCE, command, folder)
    assert code.function is None
    code.make()
    code.wait()
    assert added(code) == 7
    folder.chmod(mode)
    again = MachineCode(SOURCE, command, folder)
    assert (again.function is not None) == is_there
    again.make()
    again.wait()
    assert added(again) == 7


@needs_compiler
@pytest.mark.parametrize("refused", ["", "-nostdlib", "-lgcc"])
def test_compilers_link_as_they_can(refused: str, tmp_path: Path) -> None:
    """What a source calls of the C library and of the compiler's own is there, whatever is linked."""
    script = tmp_path / "compiler"
    refuses = f'case " $* " in *" {refused} "*) exit 1 ;; esac' if refused else ""
    script.write_text(f'#!/bin/sh\n{refuses}\nexec {compiler()[0]} "$@"\n')
    script.chmod(0o700)
    text = """int run(long long steps, char **places) {
        long long *bits = (long long *)places[0]; double *x = (double *)places[1];
        __builtin_memset(places[2], 7, steps);
        *bits = __builtin_popcountll(*bits); *x = __builtin_exp(*x); return 0;
    }"""
    code = MachineCode(text, (str(script), *OPTIONS), tmp_path / "native")
    code.make()
    code.wait()
    assert code.function is not None, code.error
    bits, x, written = ctypes.c_longlong(0xff0f), ctypes.c_double(1.5), (ctypes.c_char * 5)()
    code.function(5, (ctypes.c_void_p * 3)(ctypes.addressof(bits), ctypes.addressof(x), ctypes.addressof(written)))
    assert (bits.value, x.value, written.raw) == (12, math.exp(1.5), b"\7" * 5)


def refusing_compiler(folder: Path) -> tuple[Path, Path, str]:
    """A compiler that waits for a file, then adds its source to another one and refuses it; both files, and its command."""
    go, messages, script = (folder / name for name in ("go", "messages", "compiler"))
    script.write_text(f"#!/bin/sh\nwhile [ ! -e {go} ]; do sleep 0.01; done\n"
                      f"for a; do case $a in *.c) cat $a >> {messages};; esac; done\nexit 1\n")
    script.chmod(0o755)
    return go, messages, str(script)


@pytest.mark.parametrize("preferred", [None, 1])
def test_who_asked_last_or_is_waited_for_is_compiled_next(preferred: int | None, tmp_path: Path,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xla_torch.codegen.compiled._at_once", lambda: 1)
    go, messages, script = refusing_compiler(tmp_path)
    codes = [MachineCode(f"{k}\n", (script,), tmp_path / "native") for k in range(4)]
    for code in codes:
        code.make()
        time.sleep(0.05)  # each asks before the next one does
    waits = threading.Thread(target=codes[0 if preferred is None else preferred].wait)
    waits.start()
    time.sleep(0.05)
    go.touch()
    waits.join()
    while not all(code.error for code in codes):
        time.sleep(0.01)
    order = dict.fromkeys(messages.read_text().split())  # each is tried twice, with libraries and without
    assert list(order) == (["0", "3", "2", "1"] if preferred is None else ["0", "1", "3", "2"])


def test_many_sources_take_few_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xla_torch.codegen.compiled._at_once", lambda: 2)
    go, messages, script = refusing_compiler(tmp_path)
    before = threading.active_count()
    codes = [MachineCode(f"{k}\n", (script,), tmp_path / "native") for k in range(20)]
    for code in codes:
        code.make()
        code.make()
    assert threading.active_count() <= before + 2
    assert all(code.is_begun() for code in codes)
    codes[0].wait(0.05)
    assert not codes[0].error
    go.touch()
    for code in codes:
        code.wait()
    assert all(code.error and not code.is_begun() for code in codes)
    assert sorted(map(int, messages.read_text().split())) == sorted([*range(20)] * 2)


def test_without_another_thread_programs_stay_in_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    code = MachineCode("", ("cc",), tmp_path / "native")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        code.make()
    code.wait()
    assert code.error == "can't start new thread"
    assert not code.is_begun()
    another = MachineCode("1", ("false",), tmp_path / "native")
    another.make()
    another.wait()
    assert another.error == "it returned 1"


class Slow:
    """What others come upon while it is being made."""

    def __init__(self, *arguments: object, **named: object) -> None:
        time.sleep(0.05)
        super().__init__(*arguments, **named)


class SlowThread(Slow, threading.Thread):
    """A thread that takes time before it is there."""


class SlowCode(Slow, MachineCode):
    """Code that takes time to be found."""


@pytest.mark.parametrize("is_found", [False, True])
def test_members_that_come_to_a_source_at_once_share_its_code(is_found: bool, tmp_path: Path,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    """And its turn: where two threads waited for one source, one was forgotten, and with it whoever waited for that."""
    go, messages, script = refusing_compiler(tmp_path)
    for name, value in (("_at_once", lambda: 1), ("compiler", lambda: (script,)), ("MachineCode", SlowCode)):
        monkeypatch.setattr(f"xla_torch.codegen.compiled.{name}", value)
    monkeypatch.setenv("XLA_TORCH_CACHE", str(tmp_path))
    found: list[MachineCode] = []
    if is_found:
        machine_code("shared\n")

    def member() -> None:
        code = machine_code("shared\n")
        found.append(code)
        code.make()
        code.wait()
        assert code.error

    members = [threading.Thread(target=member, daemon=True) for _ in range(3)]
    monkeypatch.setattr(threading, "Thread", SlowThread)
    machine_code("another\n").make()  # has the only turn
    for thread in members:
        thread.start()
    time.sleep(0.5)
    go.touch()
    for thread in members:
        thread.join(20)
    assert not any(thread.is_alive() for thread in members)
    assert len(found) == 3
    assert len(set(found)) == 1
    assert messages.read_text().split() == ["another", "another", "shared", "shared"]  # each with libraries and without


@needs_compiler
def test_a_process_that_ends_leaves_its_code_to_the_next(tmp_path: Path) -> None:
    script = "import sys; from xla_torch.codegen.compiled import is_available, machine_code; machine_code(sys.argv[1]).make()"
    subprocess.run([sys.executable, "-c", script, SOURCE], check=True, timeout=100, cwd=Path(__file__).parents[2],
                   env={**os.environ, "XLA_TORCH_CACHE": str(tmp_path)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XLA_TORCH_CACHE", str(tmp_path))
        assert added(machine_code(SOURCE)) == 7


def set_age(path: Path, seconds: int) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


@needs_compiler
def test_libraries_that_were_loaded_longest_ago_are_evicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, command = tmp_path / "native", (*compiler(), *OPTIONS)
    first = MachineCode(SOURCE, command, folder)
    first.make()
    first.wait()
    size = first.path.stat().st_size
    for name, age in (("loop_a.so", 300), ("loop_b.123", 200), ("loop_c.so", 100), ("other", 400)):
        (folder / name).write_bytes(bytes(size))
        set_age(folder / name, age)
    set_age(first.path, 250)
    monkeypatch.setenv("XLA_TORCH_CACHE_LIMIT", str(4 * size + size // 2))
    assert added(MachineCode(SOURCE, command, folder)) == 7  # it is as new as any from now on
    second = MachineCode(SOURCE.replace("+=", "-="), command, folder)
    second.make()
    second.wait()
    assert added(second) == 3
    assert {path.name for path in folder.iterdir()} == {first.path.name, second.path.name, "loop_b.123", "loop_c.so", "other"}


@needs_compiler
def test_what_is_no_library_is_made_anew(tmp_path: Path) -> None:
    folder, command = tmp_path / "native", (*compiler(), *OPTIONS)
    path = MachineCode(SOURCE, command, folder).path
    folder.mkdir(mode=0o700)
    path.write_bytes(b"no library")
    code = MachineCode(SOURCE, command, folder)
    assert code.function is None
    code.make()
    code.wait()
    assert added(code) == 7
    assert path.read_bytes().startswith(b"\x7fELF") or sys.platform != "linux"
