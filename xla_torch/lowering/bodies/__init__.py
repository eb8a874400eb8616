"""The op bodies: one decorated function for each HLO opcode, a file for each family. Importing fills `BODIES`."""

from ..body_table import BODIES  # noqa: F401
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
