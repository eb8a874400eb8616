"""Differentiation: programs in, programs out (`grad`, `value_and_grad`, `vjp`), and the bridge to torch.autograd."""

from . import branches, loops
from .program import grad, value_and_grad, vjp

__all__ = ["branches", "grad", "loops", "value_and_grad", "vjp"]
