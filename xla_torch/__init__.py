"""xla_torch: XLA programs on PyTorch. Load or build one, run it on tensors, differentiate it, train it, read its code.

What is used is imported when it is first asked for: reading and checking HLO text (`xla_torch.opcodes.front`) brings in no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .core import moved
from .core.lazy_imports import lazy
from .core.types import *  # noqa: F403
from .core.types import PrimitiveType

if TYPE_CHECKING:
    from . import debug, distributed, nn, ops, training
    from .api.builder import XlaBuilder
    from .api.compiling import compile
    from .api.custom_calls import register_custom_call
    from .api.exported_function import from_exported
    from .api.gradients import grad, jvp, register_gradient, value_and_grad, vjp
    from .api.hessians import hessian
    from .api.jax_function import from_jax
    from .api.loading import from_hlo_proto, from_stablehlo, load, parse_hlo
    from .api.on_mesh import on_mesh
    from .api.partition import partition
    from .api.shards import Sharding, shard, shard_arguments, unshard
    from .api.suggestions import suggest_sharding
    from .api.to_jax import to_jax, to_jax_export
    from .api.torch_function import from_torch
    from .api.vectorizing import rebatch, vmap
    from .autodiff.options import GradientOptions
    from .core import errors, types
    from .core.budget import limits
    from .core.layouts import Layout, Tile
    from .core.shape import ProgramShape, Shape
    from .distributed.threads import run_replicas
    from .functions.hlo_builder import XlaOp
    from .hlo.literals.literal import Literal
    from .runtime.computation import XlaComputation
    from .storage.layout import pack, unpack
    from .training import training_step

__version__ = "0.1.0"

moved.install()

__all__ = [
    "GradientOptions", "Layout", "Literal", "PrimitiveType", "ProgramShape", "Shape", "Sharding", "Tile", "XlaBuilder",
    "XlaComputation", "XlaOp", "compile",
    "debug", "distributed", "errors", "from_exported", "from_hlo_proto", "from_jax", "from_stablehlo", "from_torch", "grad",
    "hessian", "jvp", "limits", "load", "nn", "on_mesh", "ops", "pack", "parse_hlo", "partition",
    "rebatch", "register_custom_call", "register_gradient", "run_replicas", "shard", "shard_arguments",
    "suggest_sharding", "to_jax",
    "to_jax_export", "training", "training_step", "types", "unpack", "unshard", "value_and_grad", "vjp", "vmap",
]

_EXPORTS = {
    "autodiff.options": "GradientOptions",
    "core.budget": "limits",
    "core.layouts": "Layout Tile",
    "core.shape": "ProgramShape Shape",
    "distributed.threads": "run_replicas",
    "api.builder": "XlaBuilder XlaOp",
    "api.compiling": "compile",
    "api.custom_calls": "register_custom_call",
    "api.exported_function": "from_exported",
    "api.gradients": "grad jvp register_gradient value_and_grad vjp",
    "api.hessians": "hessian",
    "api.jax_function": "from_jax",
    "api.loading": "from_hlo_proto from_stablehlo load parse_hlo",
    "api.on_mesh": "on_mesh",
    "api.partition": "partition",
    "api.shards": "Sharding shard shard_arguments unshard",
    "api.suggestions": "suggest_sharding",
    "api.to_jax": "to_jax to_jax_export",
    "api.torch_function": "from_torch",
    "api.vectorizing": "rebatch vmap",
    "hlo.literals.literal": "Literal",
    "runtime.computation": "XlaComputation",
    "storage.layout": "pack unpack",
    "training": "training training_step",
    "debug": "",
    "distributed": "",
    "errors": "",
    "nn": "",
    "ops": "",
    "types": "",
}
"""The modules that are imported on first use, and the names of `__all__` that each defines."""
__getattr__ = lazy(__name__, _EXPORTS)


def __dir__() -> list[str]:
    return sorted({*__all__, *PrimitiveType.__members__, *(name for name in globals() if name.startswith("__"))})
