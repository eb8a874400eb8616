"""The documented functions under their documented names, on XlaOps and on torch tensors.

Given XlaOps, a function makes one or a few HLO instructions, and raises InvalidArgument at once for what XLA's shape inference
refuses. Given torch tensors instead, it runs at once, and gradients flow through it. A function follows the section of its own
name in the operation semantics documents; parameters have the newest document's names, and take older ones too. A builder need
not be given: it is that of the operands, and a function without operands runs at once where there is none.
"""

from types import ModuleType as _Module

from .. import functions as _functions
from ..api import builder as _builder  # noqa: F401  (makes the functions take tensors)
from ..functions import *


def __dir__() -> list[str]:
    return [name for name in dir(_functions) if not isinstance(getattr(_functions, name), _Module)]
