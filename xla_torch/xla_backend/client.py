"""jaxlib's client for the CPU: the only module that knows its names. It compiles for the partitioner, and to run programs."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..core import tuning
from ..core.errors import ExecutionError, MissingDependency, UnsupportedError
from ..jax_interop.bindings import JAX, OptionalModule, require

_binding: Any = OptionalModule("jaxlib._jax")
_hlo: Any = OptionalModule("jaxlib._hlo")
_client: Any = OptionalModule("jaxlib.xla_client")
_lapack: Any = OptionalModule("jaxlib.cpu._lapack")

_NEEDED = ((_client, "make_cpu_client"), (_client, "CompileOptions"), (_client, "DeviceAssignment"), (_binding, "DeviceList"),
           (_binding, "mlir"), (_hlo, "XlaComputation"), (_binding, "dlpack_managed_tensor_to_buffer"),
           (_binding, "buffer_to_dlpack_managed_tensor"))

LOG_LEVEL = "TF_CPP_MINLOG_LEVEL"
"""What XLA writes to standard error; it reads the variable once, when it is loaded."""


def require_client(what: str) -> None:
    """Raise MissingDependency, which names `what` needs it, where jaxlib is not installed or has not what is asked of it."""
    try:
        with tuning.unless_set(LOG_LEVEL, "2"):
            require("jaxlib", what, "; pip install jaxlib is enough. What it makes runs where there is none")
            for module, name in _NEEDED:
                getattr(module, name)
    except (ImportError, AttributeError) as error:
        if isinstance(error, MissingDependency):
            raise
        import jaxlib.version  # noqa: PLC0415

        raise MissingDependency(f"{what} needs another jaxlib", got=f"jaxlib {jaxlib.version.__version__}: {error}",
                                expected=str(JAX), hint=f"pip install '{JAX.requirement.replace('jax', 'jaxlib')}'") from None


def compile_for(proto: bytes, partitions: int, propagates: list[bool], debug: Mapping[str, Any], shardy: bool) -> None:
    """Compile a serialised HloModuleProto for so many partitions, with XLA's debug options. `propagates` says for each result
    whether XLA chooses how it lies, and `shardy` in whose words the program is annotated. Raises whatever XLA does."""
    options = _client.CompileOptions()
    build = options.executable_build_options
    for target in (options, build):
        target.num_replicas, target.num_partitions = 1, partitions
    build.use_spmd_partitioning, build.use_shardy_partitioner = True, shardy
    build.allow_spmd_sharding_propagation_to_output = propagates
    for name, value in debug.items():
        setattr(build.debug_options, name, value)
    options.device_assignment = _client.DeviceAssignment.create(np.arange(partitions).reshape(1, partitions))
    client = _client.make_cpu_client(num_devices=partitions)
    devices = _binding.DeviceList(tuple(client.local_devices()))
    client.compile_and_load(_binding.mlir.xla_computation_to_mlir_module(_hlo.XlaComputation(proto)), devices, options)


def executable(stablehlo: bytes, name: str) -> Callable[[Sequence[Any]], list[Any]]:
    """A program compiled for one CPU device: a function from DLPack capsules of dense arrays, in the order of their dimensions,
    to those of its results, which are ready, lie in memory of their own and own it. Arguments are read where they are, unless
    they are not aligned as XLA wants it, and never written. It may be called from several threads.

    Raises UnsupportedError, with XLA's words, where XLA does not compile the program. The function raises ExecutionError where
    XLA does not run it.
    """
    if b"lapack_" in stablehlo:
        _register_lapack()
    client = _one_device(os.getpid())
    device = client.local_devices()[0]
    try:
        loaded = client.compile_and_load(stablehlo, _binding.DeviceList((device,)), _client.CompileOptions())
    except Exception as error:  # the binding raises several kinds
        raise UnsupportedError("XLA does not compile the program", subject=name, got=str(error), hint="the words are XLA's"
                               ) from None

    def run(capsules: Sequence[Any]) -> list[Any]:
        try:
            results = loaded.execute([_binding.dlpack_managed_tensor_to_buffer(c, device, None, None) for c in capsules])
            for result in results:
                result.block_until_ready()
            return [_binding.buffer_to_dlpack_managed_tensor(result) for result in results]
        except RuntimeError as error:  # the binding's own are of this class
            raise ExecutionError("XLA does not run the program", subject=name, got=str(error), hint="the words are XLA's"
                                 ) from None

    return run


@functools.cache
def _one_device(process: int) -> Any:
    """A client of this process: its threads do not come along when a process forks."""
    with tuning.unless_set(LOG_LEVEL, "2"):
        return _client.make_cpu_client(num_devices=1)


@functools.cache
def _register_lapack() -> None:
    _lapack.initialize()
    for name, function in _lapack.registrations().items():
        _client.register_custom_call_target(name, function, platform="cpu", api_version=1 if name.endswith("_ffi") else 0)
