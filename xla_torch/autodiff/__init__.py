"""Differentiation of computations: reverse mode, forward mode, and what is kept between the ways forward and back.

Computations go in and come out; no opcode is known by name here but by the handlers of loops, branches and channels. What an
op's gradient is stands in `grad_rules`.
"""

from . import branches, calls, loops, transfers  # noqa: F401  (each enters what it handles)
from .options import GradientOptions

__all__ = ["GradientOptions"]
