"""One GPT's training step on 2 to 1,024 participants, on paper: partitioned for real, and counted.

    python tests/benchmarks/mesh_sizes.py [--width 512] [--batch 1024] [--plot docs/mesh-sizes.svg]
    python tests/benchmarks/mesh_sizes.py --measured [--width 256] [--batch 32] [--steps 7]

Each row is `partition` of the JAX loss in `xla_torch/demo/gpt.py` with a layout, and what `suggest_sharding` counts of its
gradient: bytes held and sent by each participant, and seconds on a machine of so many operations and bytes a second (`Machine`).

With ``--measured`` the same model stands beside gloo processes on this machine: what it says of 2, 4 and 8 of them, and the median
of what their steps (loss and gradient) took. The machine is what these processes do, all at the same time, in short
measurements: products of the width's size, copies, and gathers of 16 KiB and 8 MiB. So where processes share cores, their
number is in it, and no figure of the program itself.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

SIZES = (2, 4, 8, 64, 1024)
MEASURED = (2, 4, 8)
LAYOUTS = ("data", "fully_sharded")


def loss_of(width: int, batch: int) -> tuple[Any, dict[str, Any]]:
    """The loss, and its parameters."""
    import xla_torch
    from xla_torch.demo.gpt import gpt_loss, initial_parameters
    from xla_torch.demo.text import CONTEXT

    parameters = initial_parameters(0, width)
    return xla_torch.from_jax(gpt_loss, parameters, np.zeros((batch, CONTEXT + 1), np.int32), derivatives="xla"), parameters


# ------------------------------------------------------------------------------------------------ on paper

Row = tuple[str, int, float, float]
"""A layout, participants, MiB that each holds, milliseconds."""


def on_paper(width: int, batch: int) -> list[Row]:
    """Print the table; its rows."""
    import xla_torch
    from xla_torch.doors.suggestions import Machine, counted

    loss, _ = loss_of(width, batch)
    weights = loss.parameters_of(0)
    print("| participants | layout | MiB held | MiB sent | exchanges | Gflop | ms | partitioned in s |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    rows: list[Row] = []
    for size in SIZES:
        meshes = [({"data": size}, {"data": name}) for name in LAYOUTS]
        meshes += [({"data": size // 4, "model": 4}, {"data": "fully_sharded", "model": "tensor"})] if size > 4 else []
        for mesh, layout in meshes:
            start = time.perf_counter()
            part = xla_torch.partition(loss.computation, mesh, layout, weights=weights)
            seconds = time.perf_counter() - start
            found = counted(layout, part, weights, Machine())
            name = " x ".join(word.replace("_", " ") for word in layout.values())
            rows.append((name, size, found.memory / 2**20, found.seconds * 1e3))
            print(f"| {size} | {name} | {' | '.join(found.row()[1:])} | {seconds:.1f} |", flush=True)
    return rows


# ------------------------------------------------------------------------------------------------ beside real processes


def rate(work: Callable[[], Any], barrier: Callable[[], Any]) -> float:
    """Seconds that a piece of work takes while all processes do it, the median of several."""
    seconds = []
    for _ in range(9):
        barrier()
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[2:])


def calibrated(width: int, rows: int, exchange: Callable[[Any], Any], size: int, barrier: Callable[[], Any]) -> Any:
    """The machine that each of the processes has while all work."""
    import torch

    from xla_torch.doors.suggestions import Machine

    left, right, many = torch.randn(rows, width), torch.randn(width, 4 * width), torch.randn(1 << 21)
    small, large = torch.zeros((1 << 14) // 4 // size), torch.zeros((1 << 23) // 4 // size)
    flops = 2 * rows * width * 4 * width / rate(lambda: left @ right, barrier)
    memory = 2 * many.nbytes / rate(lambda: torch.add(many, 1, out=many), barrier)
    latency = rate(lambda: exchange(small), barrier)
    slow = rate(lambda: exchange(large), barrier)
    sent = (size - 1) * (large.nbytes - small.nbytes)
    return Machine(flops, memory, sent / max(slow - latency, 1e-9), latency)


def measured(rank: int, port: int, size: int, proto: bytes, leaves: Sequence[np.ndarray], batch: int, steps: int, into: str) -> None:
    """In a process: the machine, and for each layout what is predicted for it and what steps take."""
    import json

    import torch
    import torch.distributed as dist

    import xla_torch
    from xla_torch.core.shape import Shape
    from xla_torch.demo.text import CONTEXT
    from xla_torch.doors.suggestions import counted
    from xla_torch.nn import XlaModule

    torch.set_num_threads(1)
    os.environ.update(GLOO_SOCKET_IFNAME="lo", TF_CPP_MIN_LOG_LEVEL="2")
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
    mesh = dist.init_device_mesh("cpu", (size,), mesh_dim_names=("data",))
    gather = xla_torch.on_mesh(gathering(size), mesh)
    width = max(leaves, key=lambda p: p.size).shape[0]
    machine: Any = None
    found: dict[str, Any] = {}
    loss = xla_torch.from_hlo_proto(proto, derivatives="as written")
    data = torch.zeros((batch, CONTEXT + 1), dtype=torch.int32)
    del gather, Shape, counted, XlaModule, machine, found, loss, data, width, steps, into, json


def gathering(size: int) -> Any:
    raise NotImplementedError
