"""What stands for a value while a program is evaluated or traced, and what op bodies may ask of their surroundings.

The same op bodies run in two ways: on torch tensors (eager `ops.*`, constant folding) and on torch.fx proxies (lowering).
A value is one of

- a `torch.Tensor` or `torch.fx.Proxy` of the instruction's full shape, in its type's storage dtype;
- a `Splat`: an array of equal elements, never materialised unless an op needs it;
- a tuple of values, for tuple shapes; a `Token` for tokens.

Bodies see only what their definition asks for: elementwise ones may get a 0-dimensional tensor or a Python number in
place of a splat, all others full tensors, except for operands named in `numbers`, which may be Python numbers or `Host`.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias

import torch
import torch.fx

from ..core.shape import Shape
from ..core.types import PrimitiveType
from ..hlo.ir import Computation, Instruction

Value: TypeAlias = Any
"""What stands for a value of a program, as listed above. Tensors, proxies and numbers share their operators and nothing that a
type checker could name, so the alias says what is meant, and no more is checked."""

Number = (bool, int, float, complex)


@dataclasses.dataclass(frozen=True, slots=True)
class Host:
    """A scalar that the running program holds as a Python int or bool, not as a tensor: loop counters and what is
    computed from them. `value` is the proxy that stands for it; every value it takes lies in [low, high]."""

    value: Any
    low: int
    high: int

    def __post_init__(self) -> None:
        if isinstance(self.value, torch.fx.Proxy):
            self.value.node.meta["number"] = True  # some calls write elsewhere for tensors only


@dataclasses.dataclass(frozen=True, slots=True)
class Splat:
    """An array of shape `dims` whose elements all equal `scalar`: a Python number, a `Host`, or a 0-dimensional tensor."""

    scalar: Any
    dims: tuple[int, ...] = ()

    @property
    def is_number(self) -> bool:
        return isinstance(self.scalar, Number)


class Runner(Protocol):
    """What op bodies and the evaluation of regions ask of the evaluator that runs them (`evaluator.Evaluator`)."""

    @property
    def device(self) -> torch.device: ...

    def run(self, computation: Computation, arguments: Sequence[Value]) -> Value: ...
    def instruction(self, instruction: Instruction, operands: Sequence[Value]) -> Value: ...
    def computed(self, instruction: Instruction, operands: Sequence[Value]) -> Value: ...
    def installed(self) -> AbstractContextManager[None]: ...
    def on_arrays(self) -> AbstractContextManager[None]: ...
    def emit(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Value: ...
    def number(self, number: Any, element_type: PrimitiveType) -> Value: ...
    def materialise(self, value: Value, shape: Shape) -> Value: ...
    def apply_region(self, computation: Computation, arguments: Sequence[Value], dims: tuple[int, ...]) -> list[Value]: ...
    def region_function(self, computation: Computation, elementwise: bool) -> Value: ...
    def subprogram(self, computation: Computation,
                   run: Callable[[Runner, Sequence[Value]], tuple[Value, ...]]) -> Value: ...


class _Current(threading.local):
    evaluator: Runner | None = None


_current = _Current()
"""The evaluator that runs on each thread: op bodies have the signature of their op, so they cannot be handed it."""


def evaluator() -> Runner:
    """The evaluator that runs the current op body on this thread."""
    if _current.evaluator is None:
        raise RuntimeError("an op body ran outside an evaluation")
    return _current.evaluator


def set_evaluator(value: Runner | None) -> Runner | None:
    """Install an evaluator for this thread; returns the one before, to be put back."""
    before, _current.evaluator = _current.evaluator, value
    return before


# ------------------------------------------------------------------------------------------- for op bodies


def device() -> torch.device:
    """The device the program runs on. For bodies that make tensors (iota, random numbers)."""
    return evaluator().device


def emit(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Value:
    """Call `function` at run time: now when evaluating tensors, as one call in the program when lowering.

    For functions that have no tensor operand (torch.arange), and for helper kernels of our own that shall stand in the
    program as one call. The function must be importable by its module and name. Returns a tensor or proxy; index the
    result (``result[0]``) where it is a tuple.
    """
    return evaluator().emit(function, *args, **kwargs)


def constant(tensor: torch.Tensor) -> Value:
    """A tensor computed once, at lowering time, as a value of the program (indices, tables). Goes to the device."""
    return tensor.to(device())


def apply_region(computation: Computation, arguments: Sequence[Value], dims: Sequence[int]) -> list[Value]:
    """Evaluate a scalar computation (reducer, comparator, combiner, map) on whole tensors at once.

    Each argument is a value of shape `dims`, or a 0-dimensional tensor or Python number that stands for such an array.
    Returns one tensor of shape `dims` for each result (a single result is a list of one). Branches inside become selects.
    """
    return evaluator().apply_region(computation, arguments, tuple(dims))


def region_function(computation: Computation, elementwise: bool = True) -> Value:
    """A region as a function of flat tensors that returns a flat tuple, to be handed to `emit` for a kernel that calls it.

    Tuple parameters and results are flattened. The function takes arrays that broadcast against each other; what it returns
    for constant results may be 0-dimensional. With `elementwise` False it is not a region of scalars, but takes exactly its
    parameters' shapes.
    """
    return evaluator().region_function(computation, elementwise)
