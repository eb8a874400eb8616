"""`xla_torch.partition`: XLA's partitioner makes one participant's program, and it computes what the whole program does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import xla_torch
from support.oracle import HAS_XLA, needs_xla
from support.partition_rows import ROWS, Row
from xla_torch import partition, run_replicas, shard_arguments, unshard
from xla_torch.cli import main
from xla_torch.errors import InvalidArgument, MissingDependency, UnsupportedError

if HAS_XLA:
    import jax
    import jax.numpy as jnp

MESHES = [{"a": 2, "b": 1}, {"a": 4, "b": 1}, {"a": 2, "b": 2}, {"b": 2, "a": 4}]


def count_of(mesh: dict[str, int]) -> int:
    return int(np.prod(list(mesh.values())))


def leaves_of(result: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(result)]


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


def loss_of(row: Row) -> Any:
    def loss(*arguments: Any) -> Any:
        return sum((leaf * jnp.cos(leaf)).sum() for leaf in jax.tree_util.tree_leaves(row.function(*arguments))
                   if jnp.issubdtype(leaf.dtype, jnp.floating))
    return loss


def floating(row: Row) -> tuple[int, ...]:
    return tuple(k for k, a in enumerate(row.arguments) if a.dtype == np.float32)


def cases(quick_meshes: int) -> list[Any]:
    """Quick rows on the meshes at the list's end in the fast tests, all others among the slow ones."""
    return [pytest.param(row, mesh, id=f"{row}-{'x'.join(map(str, mesh.values()))}",
                         marks=() if row.quick and k >= len(MESHES) - quick_meshes - 1 and k < len(MESHES) - 1 else pytest.mark.slow)
            for row in ROWS for k, mesh in enumerate(MESHES)]


@needs_xla
@pytest.mark.parametrize(("row", "mesh"), cases(1))
def test_values_are_those_of_the_whole_program(row: Row, mesh: dict[str, int]) -> None:
    want = leaves_of(jax.jit(row.function)(*row.arguments))
    part = partition(xla_torch.from_jax(row.function, *row.arguments), mesh, row.specs, row.out)
    assert part.module.num_partitions == count_of(mesh)
    got = run_partitioned(part, row.arguments, [w.shape for w in want], count_of(mesh))
    for own, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(own, theirs, row.rtol, 1e-5)


@needs_xla
@pytest.mark.parametrize(("row", "mesh"), [
    c for c in cases(1) if floating(c.values[0]) and c.values[0].name not in ("while", "mlp step", "argmax across")])
def test_gradients_are_those_of_the_whole_program(row: Row, mesh: dict[str, int]) -> None:
    """The gradient's program, partitioned; and the gradient of the partitioned program, which is of all participants' sum."""
    loss, numbers, count = loss_of(row), floating(row), count_of(mesh)
    value, grads = jax.jit(jax.value_and_grad(loss, numbers))(*row.arguments)
    want = [np.asarray(value), *map(np.asarray, grads)]
    whole = xla_torch.from_jax(loss, *row.arguments, derivatives="xla")
    first = partition(xla_torch.value_and_grad(whole, numbers), mesh, row.specs)
    for own, theirs in zip(run_partitioned(first, row.arguments, [w.shape for w in want], count), want, strict=True):
        np.testing.assert_allclose(own, theirs, 1e-3, 1e-4)
    part = partition(whole, mesh, row.specs, ())
    derived = xla_torch.value_and_grad(part.computation, numbers)
    given = shard_arguments(part, [torch.tensor(a) for a in row.arguments])
    results = run_replicas(derived, given, num_partitions=count)
    np.testing.assert_allclose(results[0][0], want[0], 1e-3, 1e-4)
    for number, theirs in zip(numbers, want[1:], strict=True):
        sharding, total = part.entry.parameters[number].common["sharding"], np.zeros(theirs.shape)
        for (place, _), result in zip(sharding.slices(theirs.shape, count), results, strict=True):
            own = dict(zip(numbers, result[1] if isinstance(result[1], tuple) else result[1:], strict=True))[number].numpy()
            total[place] += own[tuple(slice(0, s.stop - s.start) for s in place)]
        np.testing.assert_allclose(total / count, theirs, 1e-3, 1e-4)
