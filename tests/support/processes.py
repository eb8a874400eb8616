"""How tests start processes: forked from a server that has imported what they need, so that each begins at once."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.context import ForkServerContext
from pathlib import Path

_IMPORTED = ["torch.distributed", "xla_torch.distributed", "support.agreement", "support.oracle"]
"""Importing them starts no thread and nothing of XLA, so that the server may be forked."""


def context() -> ForkServerContext:
    tests = Path(__file__).parents[1]
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    for folder in (str(tests.parent), str(tests)):  # the server knows only the variable
        if folder not in path:
            path.insert(0, folder)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(_IMPORTED)
    return made
