"""Answers of real XLA, kept between runs: what a test asks it again is read from a file instead of compiled.

Each test module has a file in `tests/data/answers`. A question is known by a digest of the program's text, the arguments and
jaxlib's version, so another question is another entry, and one that is missing is asked of XLA. `make oracle` writes the files
anew from what the tests ask. As a pytest plugin this adds two options:

``--oracle=xla`` asks real XLA for everything and fails where a stored answer is not what it says (`make test-slow` does);
``--store-answers`` writes what was asked.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

TESTS = Path(__file__).parents[1]
FOLDER = TESTS / "data" / "answers"
LARGEST = 1 << 14
"""Bytes of an answer that is worth its place."""

Answer = list[np.ndarray]
Entries = dict[str, Answer]


class Answers:
    """The stored answers, and what was asked of them."""

    def __init__(self, folder: Path = FOLDER, ask_xla: bool = False, note: bool = False):
        self.folder, self.ask_xla, self.note = folder, ask_xla, note
        self.asked: dict[str, Entries] = {}
        self.counts: Counter[str] = Counter()
        self.differing: list[str] = []
        self._files: dict[str, Entries] = {}

    def find(self, test: str, key: str, ask: Callable[[], Answer]) -> Answer:
        """The answer for a test: the stored one, else what `ask` gives."""
        module = test.split("::", maxsplit=1)[0].removeprefix("tests/").removesuffix(".py")
        stored = self.of_module(module).get(key)
        if stored is not None and not self.ask_xla:
            self.counts["stored"] += 1
            answer = stored
        else:
            self.counts["asked"] += 1
            answer = ask()
            if stored is not None and not close(stored, answer):
                self.differing.append(f"{test}: stored {stored!r:.200}, XLA says {answer!r:.200}")
        if self.note and sum(a.nbytes for a in answer) <= LARGEST:
            self.asked.setdefault(module, {})[key] = answer
        return answer

    def of_module(self, module: str) -> Entries:
        if module not in self._files:
            path = self.folder / f"{module}.xz"
            self._files[module] = unpacked(path.read_bytes()) if path.exists() else {}
        return self._files[module]

    def write(self, packed: Sequence[tuple[str, bytes]]) -> None:
        """Write the files of all modules that were asked, from the workers' parts of them."""
        modules: dict[str, Entries] = {}
        for module, part in packed:
            modules.setdefault(module, {}).update(unpacked(part))
        for module, entries in modules.items():
            path = self.folder / f"{module}.xz"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(pack(entries))

    def parts(self) -> list[tuple[str, bytes]]:
        return [(module, pack(entries)) for module, entries in self.asked.items()]


_session: list[Answers] = []
"""The answers of this test session; none outside one."""


def answer(what: str, text: str, arrays: Sequence[Any], ask: Callable[[], Answer]) -> Answer:
    """What `ask` gives for a program's text and its arguments, or gave when the answers were stored."""
    test = os.environ.get("PYTEST_CURRENT_TEST")
    if not _session or test is None:
        return ask()
    return _session[0].find(test, digest(what, text, arrays), ask)


def digest(what: str, text: str, arrays: Sequence[Any]) -> str:
    """What identifies a question. Where a program comes from does not matter."""
    import jaxlib

    found = hashlib.blake2b(f"{what} {jaxlib.__version__} {_unplaced(text)}".encode(), digest_size=9)
    for array in map(np.asarray, arrays):
        found.update(f" {array.dtype.name} {array.shape} ".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def _unplaced(text: str) -> str:
    text = re.sub(r", metadata=\{(?:[^{}\"]|\"[^\"]*\")*\}", "", text)
    return re.sub(r"^(?:FileNames|FunctionNames|FileLocations|StackFrames)\n(?:\d.*\n)*", "", text, flags=re.M)


def pack(entries: Entries) -> bytes:
    heads = {key: [(a.dtype.name, a.shape) for a in entries[key]] for key in sorted(entries)}
    body = b"".join(np.ascontiguousarray(a).tobytes() for key in heads for a in entries[key])
    return lzma.compress(json.dumps(heads, separators=(",", ":")).encode() + b"\n" + body, preset=9 | lzma.PRESET_EXTREME)


def unpacked(data: bytes) -> Entries:
    whole = lzma.decompress(data)
    place = whole.index(b"\n") + 1
    entries: Entries = {}
    for key, heads in json.loads(whole[:place]).items():
        entries[key] = []
        for name, shape in heads:
            dtype, count = np.dtype(getattr(ml_dtypes, name, name)), int(np.prod(shape))
            entries[key].append(np.frombuffer(whole, dtype, count, place).reshape(shape))
            place += dtype.itemsize * count
    return entries


def close(stored: Answer, fresh: Answer) -> bool:
    """Whether they are the same but for what another processor may round otherwise."""
    return len(stored) == len(fresh) and all(map(_close, stored, fresh))


def _close(stored: np.ndarray, fresh: np.ndarray) -> bool:
    if stored.dtype != fresh.dtype or stored.shape != fresh.shape:
        return False
    if stored.tobytes() == fresh.tobytes() or stored.dtype.name.startswith(("bool", "int", "uint")):
        return stored.tobytes() == fresh.tobytes()
    wide = np.complex128 if stored.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        a, b = stored.astype(wide), fresh.astype(wide)
        tolerance = (64 if stored.dtype.itemsize >= 4 else 1) * float(ml_dtypes.finfo(stored.dtype).eps)
        scale = np.abs(b[np.isfinite(b)]).max(initial=0.0)
        return np.allclose(a, b, rtol=tolerance, atol=tolerance * scale, equal_nan=True)


# --------------------------------------------------------------------------------------------- the plugin


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--oracle", choices=("stored", "xla"), default="stored",
                     help="xla: ask real XLA for everything, and hold stored answers against it")
    parser.addoption("--store-answers", action="store_true", help="write what real XLA answers to tests/data/answers")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.store_answers and config.option.keyword:
        raise pytest.UsageError("--store-answers writes whole files: run whole test modules")
    _session[:] = [Answers(ask_xla=config.option.oracle == "xla", note=config.option.store_answers)]
    config.stash[_parts] = []


_parts: pytest.StashKey[list[tuple[str, bytes]]] = pytest.StashKey()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where XLA is asked anew, only modules that something is stored of have a say."""
    if config.getoption("--oracle") != "xla" or config.getoption("--store-answers"):
        return
    stored = {path for path in {item.path for item in items}
              if path.is_relative_to(TESTS) and (FOLDER / path.relative_to(TESTS)).with_suffix(".xz").exists()}
    config.hook.pytest_deselected(items=[item for item in items if item.path not in stored])
    items[:] = [item for item in items if item.path in stored]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """What a worker of xdist was asked."""
    given = getattr(node, "workeroutput", {}).get("answers")
    if given is not None:
        (current,), (counts, differing, parts) = _session, given
        current.counts.update(counts)
        current.differing += differing
        node.config.stash[_parts] += parts


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    config: Any = session.config
    (current,) = _session
    if hasattr(config, "workeroutput"):  # a worker of xdist
        config.workeroutput["answers"] = dict(current.counts), current.differing, current.parts()
        return
    if config.option.store_answers and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        current.write([*config.stash[_parts], *current.parts()])
    elif current.differing and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any) -> None:
    (current,) = _session
    if counts := current.counts:
        terminalreporter.write_line(f"real XLA: {counts['stored']} stored answers, {counts['asked']} asked for")
        for line in current.differing:
            terminalreporter.write_line(f"{line}\nrun `make oracle` if XLA is right", red=True)
