"""The gradient-rule table: what the gradient of every op is, in one line of calculus where there is one.

A file for each family of ops, named as in `xla_torch.opcodes`. The words in scope of a rule stand in `README.md`.
"""

from . import (  # noqa: F401
               collective,
               comparison,
               contraction,
               control,
               convert,
               convolution,
               dynamic,
               elementwise,
               indexing,
               internal,
               linalg,
               movement,
               random,
               reduction,
               sorting,
               token,
               window,
)
from ._table import TABLE, Entry, GradientKind, linear, refuse, replace, revision, structural, vjp, zero
from ._user import Registration, register_gradient

__all__ = ["TABLE", "Entry", "GradientKind", "Registration", "linear", "refuse", "register_gradient", "replace", "revision",
           "structural", "vjp", "zero"]
