"""Real XLA as the oracle of tests: runs HLO text on the CPU through jaxlib.

Tests that need it call these functions, which skip where jaxlib is not installed, or are marked `needs_xla`.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from support import answers
from xla_torch.core.versions import numbers

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_ENABLE_X64", "1")
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")  # participants of `run_xla_replicas`

_hlo: Any = None
try:
    import jax
    import jax.extend
    from jaxlib import _hlo, _jax, xla_client  # pyright: ignore[reportAttributeAccessIssue]
    from jaxlib.cpu import _lapack

    jax.config.update("jax_enable_x64", True)  # the variable is too late where another test imported jax first
except ImportError:
    pass

HAS_XLA = _hlo is not None
NEWER_XLA = HAS_XLA and numbers(jax.__version__) >= (0, 11)
"""Whether XLA is newer than the one of development, which some rows state the answers of."""
needs_xla = pytest.mark.skipif(not HAS_XLA, reason="jaxlib is not installed")
as_older = pytest.mark.skipif(NEWER_XLA, reason="XLA of jaxlib 0.11 and newer does otherwise")


def run_xla(hlo_text: str, *arrays: Any, known: Sequence[int] | None = None) -> list[np.ndarray]:
    """Compile HLO text with XLA for the CPU and run it. A tuple root gives its elements, any other root a list of one.

    Answers are kept between runs (`answers.py`), executables by text. Arrays are NumPy arrays (ml_dtypes for narrow types) of
    exactly the parameters' types. A result of dynamic size is a buffer of its bound, and what is behind the size is whatever the
    memory held: `known` says how many elements of each result count, and gives those, flat.
    """
    if not HAS_XLA:
        pytest.skip("jaxlib is not installed")

    def ask() -> list[np.ndarray]:
        results = [np.asarray(result) for result in executable(hlo_text)([jax.device_put(np.asarray(a)) for a in arrays])]
        return results if known is None else [r.ravel()[:count] for r, count in zip(results, known, strict=True)]

    if not _is_determined(hlo_text, known):
        return ask()
    what = "run_xla" if known is None else f"run_xla, known {list(known)}"
    return answers.answer(what, hlo_text, arrays, ask)


def _is_determined(hlo_text: str, known: Sequence[int] | None) -> bool:
    """Whether XLA says the same each time. What it draws itself follows from all that the process drew before, and behind a
    dynamic size is whatever the memory held."""
    root = hlo_text.rpartition("ROOT ")[2].partition("(")[0]
    return re.search(r" rng(-get-and-update-state)?\(", hlo_text) is None and (known is not None or "<=" not in root)


@functools.lru_cache(maxsize=1)
def _backend() -> Any:
    return jax.extend.backend.get_backend("cpu")


@functools.lru_cache(maxsize=64)
def executable(hlo_text: str) -> Callable[[list[Any]], list[Any]]:
    """HLO text compiled by XLA for the CPU: a function of a list of jax arrays."""
    if "lapack_" in hlo_text:
        _lapack.initialize()  # JAX does so when it lowers a call of LAPACK
    executable = compiled(hlo_text)

    def call(arrays: list[Any]) -> list[Any]:
        results = executable.execute_sharded(arrays).disassemble_into_single_device_arrays()
        return [result[0] for result in results]

    return call


def run_xla_replicas(hlo_text: str, arguments: list[list[np.ndarray]], replicas: int, partitions: int) -> list[list[np.ndarray]]:
    """As `run_xla`, on up to 4 devices: arguments and results are lists for each participant, replica by replica. Scalar
    arguments are the same for all."""
    if not HAS_XLA:
        pytest.skip("jaxlib is not installed")

    def ask() -> list[np.ndarray]:
        results = run_compiled(_executable_on(hlo_text, replicas, partitions), arguments)
        return [array for each in results for array in each]

    flat = answers.answer(f"run_xla_replicas {replicas} {partitions}", hlo_text, [a for given in arguments for a in given], ask)
    each = len(flat) // len(arguments)
    return [flat[each * k:each * (k + 1)] for k in range(len(arguments))]


@functools.lru_cache(maxsize=64)
def _executable_on(hlo_text: str, replicas: int, partitions: int) -> Any:
    return compiled(hlo_text, replicas, partitions)


def compiled(hlo_text: str, replicas: int = 1, partitions: int = 1, level: int | None = None) -> Any:
    """HLO text compiled for so many devices, at a level of LLVM's optimisation, or its default."""
    options = xla_client.CompileOptions()
    build: Any = options.executable_build_options
    if level is not None:
        build.debug_options.xla_backend_optimization_level = level
    count = replicas * partitions
    if count > 1:
        for target in (options, build):
            target.num_replicas, target.num_partitions = replicas, partitions
        build.use_spmd_partitioning = partitions > 1
        options.device_assignment = xla_client.DeviceAssignment.create(np.arange(count).reshape(replicas, partitions))
    devices = _jax.DeviceList(tuple(_backend().local_devices()[:count]))
    return _backend().compile_and_load(_mlir(hlo_text), devices, options)


def run_compiled(executable: Any, arguments: Sequence[Sequence[Any]]) -> list[list[np.ndarray]]:
    """Each device's results for each device's arguments."""
    devices = _backend().local_devices()[:len(arguments)]
    results = executable.execute_sharded([_placed(shards, devices) for shards in zip(*arguments, strict=True)])
    each = results.disassemble_into_single_device_arrays()
    return [[np.asarray(result[k]) for result in each] for k in range(len(devices))]


def _placed(shards: Sequence[Any], devices: Sequence[Any]) -> Any:
    """What JAX takes for an argument: those of all devices as one array along the first dimension. A scalar is one for all."""
    if len(devices) == 1:
        return jax.device_put(np.asarray(shards[0]), devices[0])
    placed = [jax.device_put(np.asarray(shard), device) for shard, device in zip(shards, devices, strict=True)]
    along, dims = ("all",) if np.ndim(shards[0]) else (), np.shape(shards[0])
    mesh = jax.sharding.Mesh(np.array(devices), ("all",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*along))
    return jax.make_array_from_single_device_arrays((len(devices) * dims[0], *dims[1:]) if dims else (), sharding, placed)


def _mlir(hlo_text: str) -> Any:
    module = _hlo.hlo_module_from_text(hlo_text)
    return _jax.mlir.xla_computation_to_mlir_module(_hlo.XlaComputation(module.as_serialized_hlo_module_proto()))


def xla_accepts(hlo_text: str) -> str | None:
    """None where XLA's parser takes the text, otherwise its message."""
    if not HAS_XLA:
        pytest.skip("jaxlib is not installed")
    try:
        _hlo.hlo_module_from_text(hlo_text)
    except Exception as error:  # the binding raises several kinds
        return str(error)
    return None


def xla_imported(hlo_text: str) -> str:
    """As `xla_canonical`, after the way to StableHLO and back that a text takes to XLA's compiler."""
    if not HAS_XLA:
        pytest.skip("jaxlib is not installed")
    return _printed(_jax.mlir.mlir_module_to_xla_computation(_mlir(hlo_text), False, False).get_hlo_module())


def xla_canonical(hlo_text: str) -> str:
    """What XLA prints for the text after parsing it: all constants in full, with metadata and layouts."""
    if not HAS_XLA:
        pytest.skip("jaxlib is not installed")
    return _printed(_hlo.hlo_module_from_text(hlo_text))


def _printed(module: Any) -> str:
    options = _hlo.HloPrintOptions()
    options.print_large_constants = True
    options.print_metadata = True
    options.print_backend_config = True
    options.include_layout_in_shapes = True
    return module.to_string(options)
