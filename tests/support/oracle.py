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

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_ENABLE_X64", "1")
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")  # participants of `run_xla_replicas`

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
needs_xla = pytest.mark.skipif(not HAS_XLA, reason="jaxlib is not installed")


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
    devices = _jax.DeviceList(tuple(_backend().local_devices()[:1]))
    executable = _backend().compile_and_load(_mlir(hlo_text), devices, xla_client.CompileOptions())

    def call(arrays: list[Any]) -> list[Any]:
        results = executable.execute_sharded(arrays).disassemble_into_single_device_arrays()
        return [result[0] for result in results]

    return call


def run_xla_replicas(hlo_text: str, arguments: list[list[np.ndarray]], replicas: int, partitions: int) -> list[list[np.ndarray]]:
    """As `run_xla`, on up to 4 devices: arguments and results are lists for each participant, replica by replica.

    Arguments have at least one dimension: JAX takes those of all participants as one array along the first.
    """
    if not HAS_XLA:
        pytest.skip("jaxlib is not installed")

    def ask() -> list[np.ndarray]:
        return [array for results in _ask_replicas(hlo_text, arguments, replicas, partitions) for array in results]

    flat = answers.answer(f"run_xla_replicas {replicas} {partitions}", hlo_text, [a for given in arguments for a in given], ask)
    each = len(flat) // len(arguments)
    return [flat[each * k:each * (k + 1)] for k in range(len(arguments))]


def _ask_replicas(hlo_text: str, arguments: list[list[np.ndarray]], replicas: int, partitions: int) -> list[list[np.ndarray]]:
    devices = _backend().local_devices()[:replicas * partitions]
    sharding = jax.sharding.NamedSharding(jax.sharding.Mesh(np.array(devices), ("all",)), jax.sharding.PartitionSpec("all"))
    wholes = []
    for given in zip(*arguments, strict=True):
        shards = [jax.device_put(a, d) for a, d in zip(given, devices, strict=True)]
        shape = (len(devices) * given[0].shape[0], *given[0].shape[1:])
        wholes.append(jax.make_array_from_single_device_arrays(shape, sharding, shards))
    results = _executable_on(hlo_text, replicas, partitions).execute_sharded(wholes)
    each = results.disassemble_into_single_device_arrays()
    return [[np.asarray(result[k]) for result in each] for k in range(len(devices))]


@functools.lru_cache(maxsize=64)
def _executable_on(hlo_text: str, replicas: int, partitions: int) -> Any:
    options = xla_client.CompileOptions()
    for target in (options, options.executable_build_options):
        target.num_replicas, target.num_partitions = replicas, partitions
    options.executable_build_options.use_spmd_partitioning = partitions > 1
    places = np.arange(replicas * partitions).reshape(replicas, partitions)
    options.device_assignment = xla_client.DeviceAssignment.create(places)
    devices = _jax.DeviceList(tuple(_backend().local_devices()[:replicas * partitions]))
    return _backend().compile_and_load(_mlir(hlo_text), devices, options)


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
