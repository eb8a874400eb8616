"""The op schemas: one decorated signature for each HLO opcode, a file for each family. Importing fills `hlo.schema.OPS`.

No torch in here. A module's constants are its opcodes: ``movement.reverse == "reverse"``, with an underscore behind the names
that Python has taken (``control.while_``). Of a signature, parameters without a type are operands.
"""

# pyright: reportUnusedImport=false

from ..hlo.schema import OPS
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

__all__ = ["OPS"]
