"""What stands for a value while a program is evaluated or traced, and what op bodies may ask of their surroundings.

The same op bodies run in two ways: on torch tensors (eager `ops.*`, constant folding) and on torch.fx proxies (lowering).
A value is one of

- a `torch.Tensor` or `torch.fx.Proxy` of the instruction's full shape, in its type's carrier dtype;
- a `Splat`: an array of equal elements, never materialised unless an op needs it;
- a tuple of values, for tuple shapes; a `Token` for tokens.

Bodies see only what their definition asks for: elementwise ones may get a 0-dimensional tensor or a Python number in
place of a splat, all others full tensors, except for operands named in `numbers`, which may be Python numbers or `Host`.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

if TYPE_CHECKING:
    from ..hlo.ir import Computation
    from .evaluator import Evaluator

Number = (bool, int, float, complex)


@dataclasses.dataclass(frozen=True, slots=True)
class Host:
    """A scalar that the running program holds as a Python int or bool, not as a tensor: loop counters and what is
    computed from them. `value` is the proxy that stands for it; every value it takes lies in [low, high]."""

    value: Any
    low: int
    high: int


@dataclasses.dataclass(frozen=True, slots=True)
class Splat:
    """An array of shape `dims` whose elements all equal `scalar`: a Python number, a `Host`, or a 0-dimensional tensor."""

    scalar: Any
    dims: tuple[int, ...] = ()

    @property
    def is_number(self) -> bool:
        return isinstance(self.scalar, Number)


class _Current(threading.local):
    evaluator: Evaluator | None = None


_current = _Current()


def evaluator() -> Evaluator:
    """The evaluator that runs the current op body on this thread."""
    if _current.evaluator is None:
        raise RuntimeError("an op body ran outside an evaluation")
    return _current.evaluator


def set_evaluator(value: Evaluator | None) -> Evaluator | None:
    """Install an evaluator for this thread; returns the one before, to be put back."""
    before, _current.evaluator = _current.evaluator, value
    return before


# ------------------------------------------------------------------------------------------- for op bodies


def device() -> torch.device:
    """The device the program runs on. For bodies that make tensors (iota, random numbers)."""
    return evaluator().device


def emit(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call `function` at run time: now when evaluating tensors, as one call in the program when lowering.

    For functions that have no tensor operand (torch.arange), and for helper kernels of our own that shall stand in the
    program as one call. The function must be importable by its module and name. Returns a tensor or proxy; index the
    result (``result[0]``) where it is a tuple.
    """
    return evaluator().emit(function, *args, **kwargs)


def constant(tensor: torch.Tensor) -> Any:
    """A tensor computed once, at lowering time, as a value of the program (indices, tables). Goes to the device."""
    return tensor.to(device())


def apply_region(computation: Computation, arguments: Sequence[Any], dims: Sequence[int]) -> list[Any]:
    """Evaluate a scalar computation (reducer, comparator, combiner, map) on whole tensors at once.

    Each argument is a value of shape `dims`, or a 0-dimensional tensor or Python number that stands for such an array.
    Returns one tensor of shape `dims` for each result (a single result is a list of one). Branches inside become selects.
    """
    return evaluator().apply_region(computation, arguments, tuple(dims))
