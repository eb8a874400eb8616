"""Differentiation: programs in, programs out (`grad`, `value_and_grad`, `vjp`, `jvp`), and the bridge to torch.autograd."""

from grad_rules._user import register_gradient

from . import branches, channels, loops
from .options import GradientOptions
from .program import grad, jvp, value_and_grad, vjp

__all__ = ["GradientOptions", "branches", "channels", "grad", "jvp", "loops", "register_gradient", "value_and_grad", "vjp"]
