"""The demo's training over processes, in which one is killed when torchrun has started it for the first time::

    torchrun --nproc-per-node 4 --max-restarts 1 -m support.killed_training WHEN OPTION...
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from torch.distributed.checkpoint.filesystem import FileSystemWriter

from xla_torch.demo import distributed


def killed(function: Callable[..., Any], happens: Callable[..., bool]) -> Callable[..., Any]:
    """The function, of which some calls are the process's end."""

    def call(*arguments: Any) -> Any:
        if happens(*arguments):
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments)

    return call


def prepare(when: str) -> None:
    rank = int(os.environ["RANK"])
    if int(os.environ["TORCHELASTIC_RESTART_COUNT"]) or when == "without jaxlib":
        sys.modules["jaxlib"] = None  # pyright: ignore[reportArgumentType] - what it is needed for has been stored
        return
    match when, rank:
        case "in a step", 2:
            distributed.batch_of = killed(distributed.batch_of, lambda step: step == 7)
        case "while shards are written", 1:
            FileSystemWriter.write_data = killed(FileSystemWriter.write_data, lambda writer, *_: "000008" in str(writer.path))
        case "before the checkpoint has its name", 0:
            distributed.commit = killed(distributed.commit, lambda _, path: path.name == "step-000008")


if __name__ == "__main__":
    prepare(sys.argv[1])
    distributed.main(sys.argv[2:])
