"""THE op definitions: one decorated function for each HLO opcode, a file for each family. Importing fills `OPS`."""

from . import (  # noqa: F401
    collective,
    comparison,
    contraction,
    control,
    convert,
    convolution,
    dynamic,
    elementwise,
    indexing,
    internal,
    linalg,
    movement,
    random,
    reduction,
    sorting,
    token,
    window,
)
from .definition import OPS, OpDefinition, op  # noqa: F401
