"""Programs of several participants on real XLA, whose CPU pretends to be four devices. How many is fixed when a process starts,
so tests run scripts that call `run_on_devices` in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from support import oracle

_DEVICES = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_ENABLE_X64": "1"}


def output_of(script: str, *arguments: str) -> str:
    """What a script prints in a process with four devices, and its errors. It may import what stands beside the tests."""
    path = os.pathsep.join([str(Path(__file__).parents[1]), str(Path(__file__).parents[2])])
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=300, check=False,
                          env=os.environ | _DEVICES | {"PYTHONPATH": path})
    return done.stdout + done.stderr[-3000:]


def run_on_devices(text: str, arguments: Sequence[Sequence[Any]], replicas: int, partitions: int) -> list[list[np.ndarray]]:
    """Each participant's results; scalar arguments are the same for all."""
    return oracle.run_compiled(oracle.compiled(text, replicas, partitions), arguments)
