"""xla_torch: XLA programs on PyTorch. Load or build one, run it on tensors, differentiate it, train it, read its code."""

from . import distributed, errors, nn, ops, training, types
from .autodiff import GradientOptions, grad, jvp, register_gradient, value_and_grad, vjp
from .batching import vmap
from .builder import XlaBuilder, XlaOp
from .computation import XlaComputation
from .distributed.local import run_replicas
from .hlo.literal import Literal
from .interop.custom_calls import register_custom_call
from .interop.jax import from_jax
from .layout import pack, unpack
from .loading import compile, from_stablehlo, load, parse_hlo
from .shape import Layout, ProgramShape, Shape, Tile
from .sharding import Sharding, shard, shard_arguments, unshard
from .training import training_step
from .types import *  # noqa: F403
from .types import PrimitiveType

__version__ = "0.1.0"

__all__ = [
    "GradientOptions", "Layout", "Literal", "PrimitiveType", "ProgramShape", "Shape", "Sharding", "Tile", "XlaBuilder",
    "XlaComputation", "XlaOp", "compile",
    "distributed", "errors", "from_jax", "from_stablehlo", "grad", "jvp", "load", "nn", "ops", "pack", "parse_hlo",
    "register_custom_call", "register_gradient", "run_replicas", "shard", "shard_arguments", "training",
    "training_step", "types", "unpack", "unshard", "value_and_grad", "vjp", "vmap",
]
