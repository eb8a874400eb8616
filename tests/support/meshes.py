"""Programs on meshes, in threads and in processes: what several test modules run."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import xla_torch
from support.oracle import HAS_XLA
from xla_torch import run_replicas, shard_arguments, unshard

if HAS_XLA:
    import jax.numpy as jnp


def run_partitioned(part: Any, arguments: Any, sizes: list[tuple[int, ...]], partitions: int) -> list[np.ndarray]:
    """Whole results: by way of text, as where there is no jaxlib."""
    program = xla_torch.parse_hlo(part.to_hlo_text())
    assert "partitioned: one of" in repr(program)
    given = shard_arguments(program, [torch.tensor(a) for a in arguments])
    results = run_replicas(program, given, num_partitions=partitions)
    rows = [r if isinstance(r, tuple) else (r,) for r in results]
    root = program.entry.root
    shardings = root.common["sharding"].leaves(root.shape) if root.shape.is_tuple else [root.common["sharding"]]
    return [unshard([row[k] for row in rows], sharding, sizes[k]).numpy() for k, sharding in enumerate(shardings)]


def mesh_of(*sizes: int, names: tuple[str, ...] = ("a", "b")) -> Any:
    return dist.init_device_mesh("cpu", sizes, mesh_dim_names=names[:len(sizes)])


# ------------------------------------------------------------------------------------------------ a small network, trained


def network(params: Any, x: Any, y: Any) -> Any:
    hidden = jnp.tanh(x @ params["in"]["kernel"] + params["in"]["bias"])
    return ((hidden @ params["out"]["kernel"] - y) ** 2).mean()


def weights() -> dict[str, Any]:
    draw = np.random.default_rng(3)
    sizes = {"in": {"kernel": (6, 8), "bias": (8,)}, "out": {"kernel": (8, 4)}}
    return {g: {n: draw.standard_normal(s).astype(np.float32) for n, s in own.items()} for g, own in sizes.items()}


SHARDINGS = {"*in.kernel": (None, "b"), "*bias": ("b",), "*out.kernel": ("b",), "*": ("a",)}


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(step)
    return torch.randn(8, 6, generator=draw), torch.randn(8, 4, generator=draw)


def program_of() -> Any:
    return xla_torch.from_jax(network, weights(), np.zeros((8, 6), np.float32), np.zeros((8, 4), np.float32))


def trained(model: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> list[float]:
    losses = []
    for step in steps:
        loss = model(*batch(step))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        losses.append((loss.full_tensor() if hasattr(loss, "full_tensor") else loss).item())
    return losses
