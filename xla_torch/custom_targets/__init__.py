"""What custom calls mean: for each known target, a function that builds the computation of the call's operands which gives what
the call gives. A file for each library; `calls` has what they share."""

from __future__ import annotations

from . import (
    attention,
    callbacks,
    convolutions,
    jax_kernels,
    lapack,
    normalization,
    onednn,
    products,
    solvers,
    sparse,
    xla,
)
from .calls import Call, Meaning

__all__ = ["MEANINGS", "Call", "Meaning"]

MEANINGS: dict[str, Meaning] = {
    target: meaning
    for library in (attention, callbacks, convolutions, jax_kernels, lapack, normalization, onednn, products, solvers, sparse,
                    xla)
    for target, meaning in library.MEANINGS.items()}
"""The meanings of all libraries, by target."""
