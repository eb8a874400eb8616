"""Real XLA as the oracle of tests: runs HLO text on the CPU through jaxlib.

Tests that need it call these functions, which skip where jaxlib is not installed, or are marked `needs_xla`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_ENABLE_X64", "1")

_hlo: Any = None
try:
    import jax
    import jax.extend
    from jaxlib import _hlo, _jax, xla_client  # pyright: ignore[reportAttributeAccessIssue]

    jax.config.update("jax_enable_x64", True)  # the variable is too late where another test imported jax first
except ImportError:
    pass

HAS_XLA = _hlo is not None
needs_xla = pytest.mark.skipif(not HAS_XLA, reason="jaxlib is not installed")


def run_xla(hlo_text: str, *arrays: Any) -> list[np.ndarray]:
    """Compile HLO text with XLA for the CPU and run it. A tuple root gives its elements, any other root a list of one.

    Executables are cached by text. Arrays are NumPy arrays (ml_dtypes for narrow types) of exactly the parameters' types.
    """
    if not HAS_XLA:
        pytest.skip("jaxlib is not installed")
    return [np.asarray(result) for result in executable(hlo_text)([jax.device_put(np.asarray(a)) for a in arrays])]


@functools.lru_cache(maxsize=1)
def _backend() -> Any:
    return jax.extend.backend.get_backend("cpu")


@functools.lru_cache(maxsize=512)
def executable(hlo_text: str) -> Callable[[list[Any]], list[Any]]:
    """HLO text compiled by XLA for the CPU: a function of a list of jax arrays."""
    module = _hlo.hlo_module_from_text(hlo_text)
    mlir = _jax.mlir.xla_computation_to_mlir_module(_hlo.XlaComputation(module.as_serialized_hlo_module_proto()))
    devices = _jax.DeviceList(tuple(_backend().local_devices()[:1]))
    executable = _backend().compile_and_load(mlir, devices, xla_client.CompileOptions())

    def call(arrays: list[Any]) -> list[Any]:
        results = executable.execute_sharded(arrays).disassemble_into_single_device_arrays()
        return [result[0] for result in results]

    return call


def xla_accepts(hlo_text: str) -> str | None:
    """None where XLA's parser takes the text, otherwise its message."""
    if not HAS_XLA:
        pytest.skip("jaxlib is not installed")
    try:
        _hlo.hlo_module_from_text(hlo_text)
    except Exception as error:  # the binding raises several kinds
        return str(error)
    return None


def xla_canonical(hlo_text: str) -> str:
    """What XLA prints for the text after parsing it: all constants in full, with metadata and layouts."""
    if not HAS_XLA:
        pytest.skip("jaxlib is not installed")
    options = _hlo.HloPrintOptions()
    options.print_large_constants = True
    options.print_metadata = True
    options.print_backend_config = True
    options.include_layout_in_shapes = True
    return _hlo.hlo_module_from_text(hlo_text).to_string(options)
