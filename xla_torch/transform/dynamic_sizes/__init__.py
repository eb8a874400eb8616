"""Dynamic sizes resolved: the operands of every op have, at run time, sizes that fit together (see `resolver`)."""

from .resolver import resolve_sizes
from .tracing import with_traced_sizes

__all__ = ["resolve_sizes", "with_traced_sizes"]
