"""What torch.compile sees of a program: one call that it leaves as it is, with its gradients.

(`xla_torch.compile` is the way to have the program itself compiled.)
"""

from __future__ import annotations

from typing import Any

import torch


def _called(program: Any, *arguments: Any, **options: Any) -> Any:
    return program(*arguments, **options)


def __getattr__(name: str) -> Any:
    """``one_call(program, *arguments)`` is that call. It is made when torch.compile first looks at code that calls a program:
    making it brings in torch's compiler, which takes longer to import than all the rest."""
    if name != "one_call":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = torch.compiler.disable(_called)
    return globals()[name]
