"""Differentiation of computations: reverse mode, forward mode, and what is kept between the ways forward and back.

Computations go in and come out; no opcode is known by name here but by the handlers of loops, branches and channels. What an
op's gradient is stands in `grad_rules`.
"""

from typing import TYPE_CHECKING

from ..core.lazy_imports import lazy

if TYPE_CHECKING:
    from . import calls, derivatives, flat, functions, residuals
    from .options import GradientOptions

__all__ = ["GradientOptions", "calls", "derivatives", "flat", "functions", "residuals"]

__getattr__ = lazy(__name__, {"calls": "", "derivatives": "", "flat": "", "functions": "", "residuals": "",
                              "options": "options GradientOptions"})
