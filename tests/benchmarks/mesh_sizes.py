"""One GPT's training step on 2 to 1,024 participants, on paper: partitioned for real, and counted.

    python tests/benchmarks/mesh_sizes.py [--width 512] [--batch 1024]

Each row is `partition` of the JAX loss in `xla_torch/demo/gpt.py` with a layout, and what `suggest_sharding` counts of its
gradient: bytes held and sent by each participant, and seconds on a machine of so many operations and bytes a second (`Machine`).
No row is run; `meshes.py` runs four.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

SIZES = (2, 4, 8, 64, 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--batch", type=int, default=1024)
    given = parser.parse_args()
    import xla_torch
    from xla_torch.demo.gpt import gpt_loss, initial_parameters
    from xla_torch.demo.text import CONTEXT
    from xla_torch.doors.suggestions import Machine, counted

    parameters = initial_parameters(0, given.width)
    loss: Any = xla_torch.from_jax(gpt_loss, parameters, np.zeros((given.batch, CONTEXT + 1), np.int32), derivatives="xla")
    weights = loss.parameters_of(0)
    print("| participants | layout | MiB held | MiB sent | exchanges | Gflop | ms | partitioned in s |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for size in SIZES:
        meshes = [({"data": size}, {"data": "data"}), ({"data": size}, {"data": "fully_sharded"})]
        meshes += [({"data": size // 4, "model": 4}, {"data": "fully_sharded", "model": "tensor"})] if size > 4 else []
        for mesh, layout in meshes:
            start = time.perf_counter()
            part = xla_torch.partition(loss.computation, mesh, layout, weights=weights)
            seconds = time.perf_counter() - start
            row = counted(layout, part, weights, Machine()).row()
            print(f"| {size} | {' | '.join(row)} | {seconds:.1f} |", flush=True)


if __name__ == "__main__":
    main()
