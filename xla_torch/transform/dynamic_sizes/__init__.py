"""Dynamic sizes settled: the operands of every op have, at run time, sizes that fit together (see `engine`)."""

from . import rules  # noqa: F401  (importing fills the tables)
from .engine import settle
from .tracing import with_traced_sizes

__all__ = ["settle", "with_traced_sizes"]
