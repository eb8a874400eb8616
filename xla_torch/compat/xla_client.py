"""`jaxlib.xla_client` on PyTorch: a script that builds and runs programs with it runs by changing one import.

It has the names, argument orders, defaults and classes of XLA's client library as jaxlib 0.4 had it, with `ops` and XlaBuilder,
which newer versions have lost::

    >>> import numpy as np
    >>> from xla_torch.compat import xla_client
    >>> ops = xla_client.ops
    >>> builder = xla_client.XlaBuilder("axpy")
    >>> x = ops.Parameter(builder, 0, xla_client.shape_from_pyval(np.zeros(3, np.float32)))
    >>> y = ops.Add(ops.Mul(ops.Constant(builder, np.float32(2)), x), x)
    >>> client = xla_client.make_cpu_client()
    >>> executable = client.compile(builder.build())
    >>> (result,) = executable.execute([client.buffer_from_pyval(np.float32([1, 2, 3]))])
    >>> np.asarray(result).tolist()
    [3.0, 6.0, 9.0]

The `computation` of an XlaComputation or of an executable is that of xla_torch, for gradients and all else. Errors are those of
`xla_torch.errors` and XlaRuntimeErrors as well; a bad op is refused by the call that makes it, and not by `build`. A client runs
one participant, and what belongs to XLA's own runtime (profilers, plugins, JAX's shardings of devices) is not there.
"""

from __future__ import annotations

import ctypes
import enum
import sys
import types
from typing import Any

import ml_dtypes

from ..api.custom_calls import register_custom_call
from ..core.errors import UnsupportedError
from . import xla_client_ops as ops  # noqa: F401
from .buffers import *  # noqa: F403
from .buffers import ArrayImpl
from .clients import *  # noqa: F403
from .computations import *  # noqa: F403
from .computations import mlir_module_to_xla_computation, xla_computation_to_mlir_module
from .errors import XlaRuntimeError, raising  # noqa: F401
from .records import *  # noqa: F403
from .shapes import *  # noqa: F403

bfloat16 = ml_dtypes.bfloat16
float8_e3m4 = ml_dtypes.float8_e3m4
float8_e4m3 = ml_dtypes.float8_e4m3
float8_e4m3fn = ml_dtypes.float8_e4m3fn
float8_e4m3b11fnuz = ml_dtypes.float8_e4m3b11fnuz
float8_e4m3fnuz = ml_dtypes.float8_e4m3fnuz
float8_e5m2 = ml_dtypes.float8_e5m2
float8_e5m2fnuz = ml_dtypes.float8_e5m2fnuz

Buffer = DeviceArray = ArrayImpl
xla_platform_names = {"cpu": "Host", "gpu": "CUDA"}

_xla = sys.modules[__name__]
"""What scripts take from the extension module of the client library is here as well."""
mlir = types.SimpleNamespace(xla_computation_to_mlir_module=raising(xla_computation_to_mlir_module),
                             mlir_module_to_xla_computation=raising(mlir_module_to_xla_computation))


class CustomCallTargetTraits(enum.IntFlag):
    """What is known of a custom call's function; it makes no difference here."""

    DEFAULT = 0
    COMMAND_BUFFER_COMPATIBLE = 1


@raising
def register_custom_call_target(name: bytes | str, fn: Any, platform: str = "cpu", api_version: int = 0,
                                traits: CustomCallTargetTraits = CustomCallTargetTraits.DEFAULT) -> None:
    """Let a function run for custom calls of a target: a capsule with the address of a C function ``void name(void* out, void**
    in)``, its ctypes pointer, or a Python function of tensors (see `xla_torch.register_custom_call`). Raises UnsupportedError for
    handlers of XLA's FFI and for GPUs' functions in C."""
    python = callable(fn) and not hasattr(fn, "argtypes")
    if not python and (api_version != 0 or xla_platform_names.get(platform, platform) != "Host"):
        raise UnsupportedError("a function in C of this kind is not called", subject="register_custom_call_target",
                               got=f"API version {api_version}, platform {platform!r}", expected="version 0 on the CPU",
                               hint="register a Python function of tensors")
    register_custom_call(name.decode() if isinstance(name, bytes) else name, _address(fn))


def _address(fn: Any) -> Any:
    """The address in a capsule; anything else as it is."""
    if type(fn).__name__ != "PyCapsule":
        return fn
    name_of, pointer_of = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return pointer_of(fn, name_of(fn))


_OF_THE_RUNTIME = {
    "profiler": "xla_torch.debug measures programs",
    "heap_profile": "torch.profiler sees what torch allocates",
    "Traceback": "set_op_metadata(CurrentSourceInfoMetadata()) notes lines", "tracebacks": "as Traceback",
    "HloSharding": "OpSharding, or xla_torch.Sharding", "Sharding": "xla_torch.Sharding", "NamedSharding": "xla_torch.Sharding",
    "GSPMDSharding": "xla_torch.Sharding", "PmapSharding": "xla_torch.Sharding", "SingleDeviceSharding": "xla_torch.Sharding",
    "make_c_api_client": "make_cpu_client and make_gpu_client", "make_tpu_client": "torch has no TPU",
    "make_tfrt_tpu_c_api_client": "torch has no TPU", "load_pjrt_plugin_dynamically": "make_cpu_client and make_gpu_client",
    "ifrt_programs": "Client.compile", "register_custom_call_partitioner": "xla_torch.partition",
}


def __getattr__(name: str) -> Any:
    hint = f": it belongs to XLA's runtime ({_OF_THE_RUNTIME[name]})" if name in _OF_THE_RUNTIME else ""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
