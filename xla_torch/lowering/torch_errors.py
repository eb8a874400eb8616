"""Telling torch's errors, which are about the program, from our own, which are defects of xla_torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.overrides import TorchFunctionMode


def is_of_torch(error: Exception, again: Callable[[], object]) -> bool:
    """Whether an error was raised inside torch: by its Python code, or by a function of its C library that we called.

    C code leaves no frame in a traceback, so an IndexError of a tensor looks like one of a list. Where the innermost frame is
    not torch's, `again`, which does once more what failed, runs with an eye on each call of torch. Arguments of a type that
    torch's parser of arguments turns away before that are our mistake.
    """
    innermost = error.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    module = innermost.tb_frame.f_globals.get("__name__", "") if innermost is not None else ""
    if module.partition(".")[0] == "torch":
        return True
    with _Watched() as watched:
        try:
            again()
        except Exception as same:
            return type(same) is type(error) and same is watched.error
    return False


class _Watched(TorchFunctionMode):
    """Keeps the last error that a function of torch raised."""

    error: Exception | None = None

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            return func(*args, **(kwargs or {}))
        except Exception as error:
            self.error = error
            raise
