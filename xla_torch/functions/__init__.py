"""The documented functions on XlaOps, a file for each op family. `xla_torch.ops` has the same ones, which take tensors too.

Each makes one or a few HLO instructions, and raises InvalidArgument at once for what XLA's shape inference refuses. A function
follows the section of its own name in the operation semantics documents; parameters have the newest document's names, and take
older ones too. A builder need not be given: it is that of the operands.

Examples run after ``import numpy as np, torch, xla_torch``, ``from xla_torch import Shape, XlaBuilder, ops, run_replicas`` and
``from xla_torch.distributed import feeds``.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .collective import *
    from .comparison import *
    from .contraction import *
    from .control import *
    from .convert import *
    from .decompositions import *
    from .dimension_numbers import *
    from .dynamic import *
    from .elementwise import *
    from .elementwise_binary import *
    from .incomplete import *
    from .indexing import *
    from .internal import *
    from .linalg import *
    from .movement import *
    from .random import *
    from .reduction import *
    from .sorting import *
    from .special import *
    from .token import *
    from .window import *

_FAMILIES = (
    "collective", "comparison", "contraction", "control", "convert", "decompositions", "dimension_numbers",
    "dynamic", "elementwise", "elementwise_binary", "incomplete", "indexing", "internal", "linalg",
    "movement", "random", "reduction", "sorting", "special", "token", "window",
)


def __getattr__(name: str) -> Any:
    """Import all families when the first function is asked for: programs that only run need none."""
    if name != "__all__" and name.startswith("_"):  # a module of the package, or nothing
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    modules = [importlib.import_module(f"{__name__}.{family}") for family in _FAMILIES]
    found = {public: getattr(module, public) for module in modules for public in module.__all__}
    globals().update(found, __all__=[*found])
    if name not in globals():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals()[name]


def __dir__() -> list[str]:
    return [*__getattr__("__all__")]
