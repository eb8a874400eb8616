"""The opcodes that are the structure of programs: those that the IR and HLO text themselves give a meaning or a spelling to.

Their schemas stand with all others in `xla_torch.opcodes`, under these names.
"""

from __future__ import annotations

PARAMETER = "parameter"
"""Parameter number `parameter_number` of its computation."""

CONSTANT = "constant"
"""Written with its literal in place of operands."""

TUPLE = "tuple"
GET_TUPLE_ELEMENT = "get-tuple-element"

ASYNC_START = "async-start"
"""With the next two, the wrappers that text may spell by the wrapped op's name: ``negate-start``."""
ASYNC_UPDATE = "async-update"
ASYNC_DONE = "async-done"
