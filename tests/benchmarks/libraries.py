#!/usr/bin/env python3
"""Time programs of other JAX libraries (those of `tests/zoo/jax_science.py`) beside JAX, on one thread.

    .venv-zoo/bin/python tests/benchmarks/libraries.py [--only SUBSTRING] [--seconds 5] [--write]

Each runs in a process of its own with an empty cache of C code: through `from_jax`, as HLO text of the same function, and
`value_and_grad` of the sum of its floating results. A cell is the time beside JAX's, once nothing compiles any longer; "ten
calls" includes tracing, lowering and compiling of both. The environment is that of `make zoo`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

from measuring import Table, in_child, mean_and_worst, parser, settled

HEADER = ("program", "JAX ms", "from_jax", "HLO text", "gradient", "ten calls")
RUNS = 25


def _ten(make: Callable[[], Callable[[], Any]]) -> tuple[float, Callable[[], Any]]:
    """Seconds of ten calls, with what makes the function before."""
    begun = time.perf_counter()
    call = make()
    for _ in range(10):
        call()
    return time.perf_counter() - begun, call


def measured(name: str, seconds: float) -> dict[str, float]:
    """One program's ratios."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    import torch

    import xla_torch
    from xla_torch.kernels.native import make_native
    from zoo.jax_science import ROWS

    jax.config.update("jax_enable_x64", True)
    torch.set_num_threads(1)
    function, arguments = ROWS[name]()
    leaves, tree = jax.tree.flatten(tuple(arguments))

    def flat(*given: Any) -> list[Any]:
        results = jax.tree.leaves(function(*jax.tree.unflatten(tree, given)))
        return [r for r in results if not jax.dtypes.issubdtype(r.dtype, jax.dtypes.extended)]

    def total(*given: Any) -> Any:
        return sum(jnp.sum(r) for r in flat(*given) if jnp.issubdtype(r.dtype, jnp.floating))

    given, tensors = [jnp.asarray(a) for a in leaves], [torch.from_numpy(np.array(a)) for a in leaves]
    moving = tuple(k for k, a in enumerate(given) if jnp.issubdtype(a.dtype, jnp.floating))
    compiled, gradient = jax.jit(flat, keep_unused=True), jax.jit(jax.value_and_grad(total, moving))
    ten_jax, theirs = _ten(lambda: lambda: jax.block_until_ready(compiled(*given)))

    def converted() -> Callable[[], Any]:
        ours = xla_torch.from_jax(flat, *given)
        return lambda: ours(*tensors)

    ten_ours, ours = _ten(converted)
    hlo = compiled.lower(*given).compiler_ir("hlo")
    assert hlo is not None
    program = xla_torch.parse_hlo(hlo.as_hlo_text())
    make_native(program.program.lowered(torch.device("cpu")))
    for mine, other in zip(ours(), theirs(), strict=True):
        np.testing.assert_allclose(np.asarray(mine), np.asarray(other), rtol=1e-3, atol=1e-4)
    ratio, alone = settled(ours, theirs, seconds, RUNS)
    found = {"jax": alone, "from_jax": ratio, "ten": ten_ours / ten_jax}
    with contextlib.suppress(xla_torch.errors.UnsupportedError):  # text does not hold Python callbacks
        found["text"], _ = settled(lambda: program(*tensors), theirs, seconds, RUNS)
    try:
        jax.block_until_ready(gradient(*given))
        derived = xla_torch.value_and_grad(xla_torch.from_jax(total, *given), moving)
        derived(*tensors)
        make_native(derived.program.lowered(torch.device("cpu")))
        found["gradient"], _ = settled(lambda: derived(*tensors), lambda: jax.block_until_ready(gradient(*given)), seconds, RUNS)
    except (TypeError, ValueError) as error:  # JAX has no gradient of a loop of unknown length, say
        print(f"{name}: no gradient: {str(error).splitlines()[0]}")
    return found


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--seconds", type=float, default=5.0, help="of calls before a time counts")
    made.add_argument("--one", help=argparse.SUPPRESS)
    chosen = made.parse_args()
    if chosen.one:
        print(json.dumps(measured(chosen.one, chosen.seconds)))
        return
    from zoo.jax_science import ROWS

    table, all_found = Table(__file__, HEADER, 1), list[dict[str, float]]()
    for name in ROWS:
        if chosen.only not in name:
            continue
        with tempfile.TemporaryDirectory() as cache:
            found = in_child(__file__, "--one", name, "--seconds", str(chosen.seconds), limit=300, environment={
                "XLA_TORCH_CACHE": cache, "OMP_NUM_THREADS": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
                "PYTHONPATH": os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), "tests", ".")))})
        if found is None:
            table.add(name, *["over 300 s"] * (len(HEADER) - 1))
            continue
        all_found.append(found)
        cells = (f"{found[k]:.2f}" if k in found else "none" for k in ("from_jax", "text", "gradient", "ten"))
        table.add(name, f"{found['jax'] * 1e3:.3f}", *cells)
    means = []
    for title, k in zip(HEADER[2:], ("from_jax", "text", "gradient", "ten"), strict=True):
        means.append(mean_and_worst(title, [f[k] for f in all_found if k in f]))
    table.end(f"Geometric means of {len(all_found)} programs: {', '.join(means)}.\n", write=chosen.write)


if __name__ == "__main__":
    main()
