"""All modules of rules, imported so that they fill the table."""

from . import (  # noqa: F401
    calls,
    chlo,
    collective,
    contraction,
    control,
    custom_calls,
    dynamic,
    einsum,
    elementwise,
    indexing,
    internal,
    movement,
    quantized,
    reduction,
    shapes,
    shardy,
    token,
)
