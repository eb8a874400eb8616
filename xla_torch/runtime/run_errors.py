"""What torch raises while a program runs, in the standard error format: too little memory, and sizes that do not fit after
all."""

from __future__ import annotations

import linecache
from types import TracebackType

import torch

from ..core.errors import ExecutionError, LimitError, XlaError

_NO_MEMORY = ("can't allocate memory", "out of memory", "storage size calculation overflowed", "multiplication overflow")


def as_xla_error(error: BaseException, program: str) -> XlaError | None:
    """The error to raise for one that came out of a run. None for what came from functions of the user, and for errors that are
    no news of torch."""
    if isinstance(error, RecursionError):
        return LimitError("the program goes too deep: too many loops or branches stand in each other", subject=program)
    line = _line(error.__traceback__)
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)) or (
            type(error) is RuntimeError and any(words in str(error) for words in _NO_MEMORY)):
        stated = str(error).partition("] ")[2] or str(error)
        return LimitError("there is not enough memory", subject=program, got=stated, where=line)
    if type(error) in (RuntimeError, IndexError) and line:
        return ExecutionError(f"torch refused: {error}", subject=program, where=line,
                              hint="check the sizes that are only known when the program runs")
    return None


def _line(trace: TracebackType | None) -> str:
    """The line of the lowered program that failed; empty where it called what is not torch's and not ours."""
    found = ""
    while trace is not None:
        code = trace.tb_frame.f_code
        module = str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
        if code.co_filename.startswith("<eval_with_key>"):
            found = linecache.getline(code.co_filename, trace.tb_lineno).strip()
        elif module not in ("torch", "xla_torch"):
            found = ""
        trace = trace.tb_next
    return found
