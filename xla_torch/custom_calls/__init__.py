"""What custom calls mean: for each known target, a function that builds the computation of the call's operands which gives what
the call gives. A file for each library; `calls` has what they share. They are read when a custom call is first met."""

from __future__ import annotations

import functools
import importlib

from .calls import Call, Meaning

__all__ = ["Call", "Meaning", "meaning_of"]

_LIBRARIES = {
    "attention": ("__cudnn$fmha",), "convolutions": ("__cudnn$conv",), "normalization": ("__cudnn$norm",),
    "jax_kernels": ("cu_", "hip_"), "lapack": ("lapack_", "blas_"), "onednn": ("__onednn$",), "products": ("__cublas$", "__op$"),
    "solvers": ("cu", "hip", "roc", "__cublas$", "__cusolver$"), "sparse": ("cusparse_", "hipsparse_", "cusolver_"),
    "callbacks": ("",), "xla": ("",),
}
"""What the targets begin with that each library knows: it is imported for these alone."""


@functools.cache
def meaning_of(target: str) -> Meaning | None:
    """What a custom call's target means; None where that is not known, and for no target."""
    libraries = (library for library, beginnings in _LIBRARIES.items() if target and target.startswith(beginnings))
    tables = (importlib.import_module(f".{library}", __name__).MEANINGS for library in libraries)
    return next((table[target] for table in tables if target in table), None)
