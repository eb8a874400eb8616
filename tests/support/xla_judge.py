"""What real XLA says of HLO texts that may crash it: `oracle.py` in a process of its own, which is started again when it dies."""

from __future__ import annotations

import dataclasses
import pickle
import re
from typing import Any, Self

import numpy as np

from support import processes

HANGS_AFTER = 60.0


@dataclasses.dataclass(frozen=True)
class Verdict:
    """How far a text came, XLA's message, and the results where it was run.

    ``parse``, ``verify`` and ``run`` are where it was refused, ``crash`` that XLA did not survive it. ``altered`` was accepted,
    but the import to StableHLO, which stands in front of the verifier here, had changed the instructions in the message.
    """

    stage: str
    message: str = ""
    results: tuple[np.ndarray, ...] | None = None

    @property
    def accepted(self) -> bool:
        return self.stage == "accepted"


class Judge:
    """A worker process. Use as a context manager."""

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _start(self) -> None:
        context = processes.context()
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def _stop(self) -> None:
        self._process.kill()
        self._process.join()
        self._connection.close()

    def __call__(self, text: str, arrays: list[Any] | None = None) -> Verdict:
        """Whether XLA's parser and verifier take a text of the entry ``e``; with `arrays` it is compiled and run on them."""
        try:
            self._connection.send_bytes(pickle.dumps((text, arrays)))
            if self._connection.poll(HANGS_AFTER):
                return Verdict(*pickle.loads(self._connection.recv_bytes()))
        except (EOFError, OSError):
            pass
        self._stop()
        self._start()
        return Verdict("crash", "XLA ended its process, or did not answer")


_STOP = """ENTRY e {
  x__ = f32[] constant(0)
  y__ = (f32[], f32[]) custom-call(x__), custom_call_target="Eigh", custom_call_has_side_effect=true
"""
_STOPPED = "Unable to parse arguments to Eigh"
"""A decomposition that XLA refuses to expand right after it verified the module: most of compiling need not be waited for,
and what the CPU's compiler cannot do does not matter."""


def _serve(connection: Any) -> None:
    """The worker: one answer for each request."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what XLA logs before it aborts
    while True:
        text, arrays = pickle.loads(connection.recv_bytes())
        connection.send_bytes(pickle.dumps(_verified(text) if arrays is None else _run(text, arrays)))


def _verified(text: str) -> tuple[Any, ...]:
    from support import oracle

    if (message := oracle.xla_accepts(text)) is not None:
        return "parse", message
    try:
        oracle.executable.__wrapped__(text.replace("ENTRY e {\n", _STOP))
    except Exception as error:  # the bindings raise several kinds
        if _STOPPED not in str(error):
            return "verify", str(error)
    lost = sorted(set(_lines(oracle.xla_canonical(text))) - set(_lines(oracle.xla_imported(text))))
    return ("altered", "; ".join(lost)) if lost else ("accepted",)


def _lines(text: str) -> list[str]:
    """The instructions of a module without names and layouts."""
    lines = [line.strip().removeprefix("ROOT ").partition(" = ")[2] for line in text.split("\n")]
    return [re.sub(r"%[\w.-]+|(?<=\])\{[\d,]*\}|, metadata=\{.*?\}", "", line) for line in lines if line]


def _run(text: str, arrays: list[Any]) -> tuple[Any, ...]:
    from support import oracle

    try:
        return "accepted", "", tuple(oracle.run_xla(text, *arrays))
    except Exception as error:
        return "run", str(error)
