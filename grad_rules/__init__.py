"""The gradient-rule table: what the gradient of every op is, in one line of calculus where there is one.

A file for each family of ops, named as in `xla_torch.opcodes`. The words in scope of a rule stand in `README.md`.
"""

# pyright: reportUnusedImport=false

from grad_rules import (  # noqa: F401
               collective,
               comparison,
               contraction,
               control,
               convert,
               convolution,
               dynamic,
               elementwise,
               functions,
               fused,
               indexing,
               internal,
               linalg,
               movement,
               random,
               reduction,
               reflections,
               shifts,
               sorting,
               token,
               window,
)
from grad_rules._functions import FUNCTIONS, FunctionRules
from grad_rules._fused import FUSED, FusedRule
from grad_rules._table import TABLE, Entry, GradientKind, linear, refuse, replace, structural, vjp, zero
from grad_rules._user import Registration, register_gradient
from xla_torch.hlo.gradient_changes import revision

__all__ = ["FUNCTIONS", "FUSED", "TABLE", "Entry", "FunctionRules", "FusedRule", "GradientKind", "Registration", "linear",
           "refuse", "register_gradient", "replace", "revision", "structural", "vjp", "zero"]
