"""Drawn modules here and on real XLA. Each participant has a list of arguments; what several give is stacked, one array for each
result, so that results are compared alike whoever gave them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import xla_torch
from fuzz.programs import Program

Given = Sequence[Sequence[np.ndarray]]


class Refused(Exception):
    """XLA does not compile a program."""


def run_here(computation: str | xla_torch.XlaComputation, given: Given, of: Program) -> list[np.ndarray]:
    """The results here, for as many replicas and partitions as a program is `of`."""
    called = xla_torch.parse_hlo(computation) if isinstance(computation, str) else computation
    if len(given) == 1:
        return list(called.run_numpy(*given[0]))
    return _stacked(xla_torch.run_replicas(called, given, num_replicas=of.replicas, num_partitions=of.partitions))


def run_xla(text: str, given: Given, of: Program, level: int | None = None) -> list[np.ndarray]:
    """What real XLA gives, at a level of LLVM's optimisation. Raises Refused."""
    from jaxlib import _jax, xla_client  # pyright: ignore[reportAttributeAccessIssue]

    from support import oracle

    options = xla_client.CompileOptions()
    build: Any = options.executable_build_options
    if level is not None:
        build.debug_options.xla_backend_optimization_level = level
    devices = oracle._backend().local_devices()[:len(given)]
    if len(devices) > 1:
        for target in (options, build):
            target.num_replicas, target.num_partitions = of.replicas, of.partitions
        build.use_spmd_partitioning = of.partitions > 1
        options.device_assignment = xla_client.DeviceAssignment.create(
            np.arange(len(devices)).reshape(of.replicas, of.partitions))
    try:
        executable = oracle._backend().compile_and_load(oracle._mlir(text), _jax.DeviceList(tuple(devices)), options)
    except Exception as error:  # the bindings raise several kinds
        raise Refused(str(error)) from None
    whole = [_on_devices(shards, devices) for shards in zip(*given, strict=True)]
    results = executable.execute_sharded(whole).disassemble_into_single_device_arrays()
    each = [[np.asarray(shards[k]) for shards in results] for k in range(len(devices))]
    return each[0] if len(each) == 1 else _stacked(each)


def _on_devices(shards: Sequence[np.ndarray], devices: Sequence[Any]) -> Any:
    """One array of jax's: each device's along the first dimension, or a scalar that all have."""
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    if len(devices) == 1:
        return jax.device_put(np.asarray(shards[0]), devices[0])
    placed = [jax.device_put(np.asarray(shard), device) for shard, device in zip(shards, devices, strict=True)]
    dims = np.shape(shards[0])
    spec, shape = (PartitionSpec("i"), (len(shards) * dims[0], *dims[1:])) if dims else (PartitionSpec(), ())
    return jax.make_array_from_single_device_arrays(shape, NamedSharding(Mesh(np.array(devices), ("i",)), spec), placed)


def _stacked(each: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
    return [np.stack(shards) for shards in zip(*each, strict=True)]
