"""The op table of the tests: a row for each way to call a documented function, with the element types that XLA takes there and
how close results must be. `ops/test_op_rows.py` runs it, and `python tests/sweep.py` runs more of it and writes what came out.
"""

from . import (
    collective,
    comparison,
    contraction,
    control,
    convert,
    elementwise,
    indexing,
    internal,
    linalg,
    movement,
    random,
    reduction,
    sorting,
    special,
    window,
)
from .checks import Outcome, check
from .drawn import Drawn, Row

FAMILIES: dict[str, list[Row]] = {module.__name__.rpartition(".")[2]: module.ROWS for module in (
    elementwise, comparison, convert, special, random, movement, indexing, reduction, window, sorting, contraction, linalg,
    control, internal, collective)}
ROWS: list[Row] = [row for rows in FAMILIES.values() for row in rows]
__all__ = ["FAMILIES", "ROWS", "Drawn", "Outcome", "Row", "check"]
