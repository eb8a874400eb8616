"""xla_torch: XLA programs on PyTorch. Load or build one, run it on tensors, differentiate it, train it, read its code."""

from . import errors, nn, ops, types
from .autodiff import grad, value_and_grad, vjp
from .builder import XlaBuilder, XlaOp
from .computation import XlaComputation
from .distributed.local import run_replicas
from .hlo.literal import Literal
from .interop.custom_calls import register_custom_call
from .interop.jax import from_jax
from .layout import pack, unpack
from .loading import compile, from_stablehlo, load, parse_hlo
from .shape import Layout, ProgramShape, Shape, Tile
from .types import *  # noqa: F403
from .types import PrimitiveType

__version__ = "0.1.0"

__all__ = [
    "Layout", "Literal", "PrimitiveType", "ProgramShape", "Shape", "Tile", "XlaBuilder", "XlaComputation", "XlaOp", "compile",
    "errors", "from_jax", "from_stablehlo", "grad", "load", "nn", "ops", "pack", "parse_hlo", "register_custom_call",
    "run_replicas", "types", "unpack", "value_and_grad", "vjp",
]
