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
    """Each participant's results. Arguments are arrays of one dimension or more: XLA is given them one after another."""
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    devices = oracle._backend().local_devices()[:replicas * partitions]
    sharding = NamedSharding(Mesh(np.array(devices), ("i",)), PartitionSpec("i"))
    given = [_sharded(shards, devices, sharding) for shards in zip(*arguments, strict=True)]
    results = _compiled(text, devices, replicas, partitions).execute_sharded(given).disassemble_into_single_device_arrays()
    return [[np.asarray(shards[k]) for shards in results] for k in range(len(devices))]


def _sharded(shards: Sequence[np.ndarray], devices: Sequence[Any], sharding: Any) -> Any:
    import jax

    placed = [jax.device_put(shard, device) for shard, device in zip(shards, devices, strict=True)]
    shape = len(shards) * len(shards[0]), *shards[0].shape[1:]
    return jax.make_array_from_single_device_arrays(shape, sharding, placed)


def _compiled(text: str, devices: Sequence[Any], replicas: int, partitions: int) -> Any:
    from jaxlib import xla_client

    module = oracle._hlo.hlo_module_from_text(text)
    proto = oracle._hlo.XlaComputation(module.as_serialized_hlo_module_proto())
    options = xla_client.CompileOptions()
    build: Any = options.executable_build_options
    for target in (options, build):
        target.num_replicas, target.num_partitions = replicas, partitions
    build.use_spmd_partitioning = partitions > 1
    places = np.arange(replicas * partitions).reshape(replicas, partitions)
    options.device_assignment = xla_client.DeviceAssignment.create(places)
    mlir = oracle._jax.mlir.xla_computation_to_mlir_module(proto)
    return oracle._backend().compile_and_load(mlir, oracle._jax.DeviceList(tuple(devices)), options)
