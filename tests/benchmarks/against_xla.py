"""Run time against real XLA on the CPU (jaxlib), in turns and in one run: medians, and the ratio of paired runs.

    python tests/benchmarks/against_xla.py [--runs 15]
"""

from __future__ import annotations

import argparse
import math
import pathlib
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import torch

import xla_torch
from xla_torch import XlaComputation

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

CHAIN = """HloModule chain
ENTRY e {
  x = f32[4000000] parameter(0)
  y = f32[4000000] parameter(1)
  one = f32[] constant(1)
  ones = f32[4000000] broadcast(one), dimensions={}
  a = f32[4000000] multiply(x, y)
  b = f32[4000000] add(a, ones)
  c = f32[4000000] tanh(b)
  d = f32[4000000] negate(x)
  f = f32[4000000] exponential(d)
  ROOT r = f32[4000000] multiply(c, f)
}"""

SORT = """HloModule sort
less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT l = pred[] compare(a, b), direction=LT, type=TOTALORDER
}
ENTRY e {
  x = f32[1000000] parameter(0)
  ROOT r = f32[1000000] sort(x), dimensions={0}, is_stable=true, to_apply=less
}"""

CUMSUM = """HloModule cumsum
plus {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
ENTRY e {
  x = f32[1000,1000] parameter(0)
  zero = f32[] constant(0)
  ROOT r = f32[1000,1000] reduce-window(x, zero), window={size=1x1000 pad=0_0x999_0}, to_apply=plus
}"""


def programs() -> dict[str, XlaComputation]:
    demo = xla_torch.load(pathlib.Path(xla_torch.__file__).parent / "demo" / "gpt_loss.hlo")
    floats = [k for k, s in enumerate(demo.program_shape.parameters) if s.element_type.is_floating]
    return {"demo: loss": demo, "demo: loss and gradients": xla_torch.value_and_grad(demo, floats),
            "elementwise, 4M": xla_torch.parse_hlo(CHAIN), "sort, 1M": xla_torch.parse_hlo(SORT),
            "running sum, 1M": xla_torch.parse_hlo(CUMSUM)}


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def paired_runs(computation: XlaComputation, runs: int) -> list[tuple[float, float]]:
    """Seconds of ours and of XLA's, one after the other, after two runs to warm up."""
    import jax

    from support.oracle import executable

    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=s.dimensions).astype(np.float32) if s.element_type.is_floating
              else rng.integers(0, 9, s.dimensions).astype(s.element_type.numpy)
              for s in computation.program_shape.parameters]
    tensors, buffers = [torch.from_numpy(a) for a in arrays], [jax.device_put(a) for a in arrays]
    theirs = executable(computation.to_hlo_text())
    return [(seconds(lambda: computation(*tensors)), seconds(lambda: jax.block_until_ready(theirs(buffers))))
            for _ in range(runs + 2)][2:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=15)
    runs = parser.parse_args().runs
    ratios = []
    print(f"{'program':26s} {'ours ms':>9s} {'XLA ms':>9s} {'ours / XLA':>11s}")
    for name, computation in programs().items():
        pairs = paired_runs(computation, runs)
        ratios.append(statistics.median(a / b for a, b in pairs))
        ours, xla = (statistics.median(column) * 1e3 for column in zip(*pairs, strict=True))
        print(f"{name:26s} {ours:9.2f} {xla:9.2f} {ratios[-1]:11.2f}")
    print(f"geometric mean of the ratios {math.exp(statistics.mean(map(math.log, ratios))):.2f}")


if __name__ == "__main__":
    main()
