"""xla_torch: XLA programs on PyTorch. Load or build one, run it on tensors, differentiate it, train it, read its code.

What is used is imported when it is first asked for: reading and checking HLO text (`xla_torch.front`) brings in no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .types import *  # noqa: F403
from .types import PrimitiveType

if TYPE_CHECKING:
    from . import debug, distributed, errors, nn, ops, training, types
    from .autodiff.options import GradientOptions
    from .budget import limits
    from .builder import XlaBuilder
    from .compiling import compile
    from .computation import XlaComputation
    from .custom_calls import register_custom_call
    from .distributed.threads import run_replicas
    from .exported_function import from_exported
    from .gradients import grad, jvp, register_gradient, value_and_grad, vjp
    from .hlo.literal import Literal
    from .hlo_builder import XlaOp
    from .jax_function import from_jax
    from .layout import pack, unpack
    from .loading import from_hlo_proto, from_stablehlo, load, parse_hlo
    from .shape import Layout, ProgramShape, Shape, Tile
    from .shards import Sharding, shard, shard_arguments, unshard
    from .torch_function import from_torch
    from .training import training_step
    from .vectorizing import rebatch, vmap

__version__ = "0.1.0"

__all__ = [
    "GradientOptions", "Layout", "Literal", "PrimitiveType", "ProgramShape", "Shape", "Sharding", "Tile", "XlaBuilder",
    "XlaComputation", "XlaOp", "compile",
    "debug", "distributed", "errors", "from_exported", "from_hlo_proto", "from_jax", "from_stablehlo", "from_torch", "grad",
    "jvp", "limits", "load", "nn", "ops", "pack", "parse_hlo",
    "rebatch", "register_custom_call", "register_gradient", "run_replicas", "shard", "shard_arguments", "training",
    "training_step", "types", "unpack", "unshard", "value_and_grad", "vjp", "vmap",
]

_ROOMS = {
    "autodiff.options": "GradientOptions",
    "budget": "limits",
    "builder": "XlaBuilder XlaOp",
    "compiling": "compile",
    "computation": "XlaComputation",
    "distributed.threads": "run_replicas",
    "exported_function": "from_exported",
    "gradients": "grad jvp register_gradient value_and_grad vjp",
    "hlo.literal": "Literal",
    "custom_calls": "register_custom_call",
    "jax_function": "from_jax",
    "layout": "pack unpack",
    "loading": "from_hlo_proto from_stablehlo load parse_hlo",
    "shape": "Layout ProgramShape Shape Tile",
    "shards": "Sharding shard shard_arguments unshard",
    "torch_function": "from_torch",
    "training": "training_step",
    "vectorizing": "rebatch vmap",
}
_HOME = {name: room for room, names in _ROOMS.items() for name in names.split()}
"""Where each name of `__all__` that is not a module of its own name lies."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    room = importlib.import_module(f"{__name__}.{_HOME.get(name, name)}")
    value = getattr(room, name) if name in _HOME else room
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *PrimitiveType.__members__, *(name for name in globals() if name.startswith("__"))})
