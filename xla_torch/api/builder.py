"""XlaBuilder, whose computations can be called, and the documented functions on torch tensors.

A documented function that gets tensors instead of XlaOps becomes a computation of this one op, with the tensors as its
parameters. It is built once for each set of other arguments, shapes and dtypes, and run at once; gradients flow through it.
Python functions that stand for computations may do something else each time, so they are called each time, and the program is
kept under its text. A call with plain tensors alone that has been seen before goes straight to what it comes to, a few torch
calls.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ..core.errors import InvalidArgument
from ..core.shape import Shape
from ..functions._documented import run_at_once_with
from ..functions.hlo_builder import Builder, XlaOp, is_function
from ..hlo.ir import Module, Token
from ..hlo.printer import print_module
from ..opcodes import control
from ..runtime.backends import Run
from ..runtime.computation import XlaComputation
from ..runtime.static import StaticComputation
from ..storage import torch_private
from ..storage.dtypes import in_memory, is_in_memory, type_from_torch


class XlaBuilder(Builder):
    """Build a computation op by op; `build` closes it into an XlaComputation.

    A call that makes an invalid op raises at once.

    >>> builder = XlaBuilder("axpy")
    >>> a, x, y = (builder.parameter(k, Shape.parse(s)) for k, s in enumerate(["f32[]", "f32[2]", "f32[2]"]))
    >>> builder.build(a * x + y)(torch.tensor(2.0), torch.tensor([1.0, 2.0]), torch.tensor([10.0, 20.0]))
    tensor([12., 24.])

    The documented functions of `xla_torch.ops` are the way to add ops; `add` does it by opcode, `append` with an instruction that
    is finished, and `finish` gives the computation of the IR, without a module around it:

    >>> builder = XlaBuilder("double")
    >>> x = builder.parameter(0, Shape.parse("f32[2]"), "x")
    >>> twice = builder.add("multiply", [x, builder.add("broadcast", [builder.constant(2.0)], {"dimensions": ()}, x.shape)])
    >>> builder.append(twice.instruction).shape == twice.shape
    True
    >>> builder.finish(twice).program_shape.result
    f32[2]{0}
    >>> builder.beyond()            # what to do where its ops meet those of another builder: nothing is known here
    ''
    """

    def build(self, root: XlaOp | None = None) -> XlaComputation:
        """Close the computation and return it; the root is the last op unless given.

        Raises InvalidArgument if the parameter numbers are not 0, 1, 2, ... .
        """
        return StaticComputation(Module(self.name, self.finish(root)))


def run_at_once(build: Callable[..., Any], name: str, args: Sequence[Any], kwargs: dict[str, Any],
                 values: Sequence[torch.Tensor | Token]) -> Any:
    values = [v if isinstance(v, Token) else in_memory(v, lambda n=n: f"tensor {n}", name) for n, v in enumerate(values)]
    specs = tuple(None if isinstance(v, Token) else (tuple(v.shape), v.dtype) for v in values)
    marks = iter(range(len(values)))
    frozen = (_freeze(tuple(args), marks), _freeze(tuple(kwargs.items()), marks))
    if _calls_functions((args, tuple(kwargs.values()))):
        module, several = _module(build, name, frozen[0], frozen[1], specs)
        brought = tuple([c.derivatives for c in module.computations if c.derivatives is not None])
        computation = _computation_of(_Written(print_module(module), tuple(map(id, brought)), module))
    else:
        computation, several = _found(build, name, frozen[0], frozen[1], specs)
    anywhere = not any(isinstance(v, torch.Tensor) for v in values)
    result = computation(*values, device=torch.get_default_device() if anywhere else None)
    if values and len(values) == len(args) and not kwargs and not several:
        _remember(build, args, computation)
    return list(result) if several else result


# ------------------------------------------------------------------------------------------- calls that have been seen


_MOST_READY = 4096

_ready: dict[tuple[Any, ...], Run] = {}

_facts = operator.attrgetter("__class__", "dtype", "shape", "device", "requires_grad")
"""What a call on a tensor depends on, besides the modes of torch."""


def run_ready(build: Callable[..., Any], args: Sequence[Any]) -> torch.Tensor | None:
    """The result of a call that has been seen before, with plain tensors alone and where torch does nothing but compute; None
    for any other. What a call costs beside torch's own is here."""
    if not args or type(args[0]) is not torch.Tensor or torch.compiler.is_compiling():
        return None
    try:
        run = _ready.get((build, *map(_facts, args)))
    except (AttributeError, TypeError, RuntimeError):  # something else than a tensor, of unknown size, or a nested one
        return None
    if run is None or torch_private.does_more_than_compute() or not all(map(is_in_memory, args)):
        return None
    return run(*args)[0]


def _remember(build: Callable[..., Any], args: Sequence[torch.Tensor], computation: StaticComputation) -> None:
    # Subclasses compute in ways of their own, and what requires grad is recorded.
    if any(type(value) is not torch.Tensor or value.requires_grad for value in args) or torch.compiler.is_compiling():
        return
    run = computation.unchecked_run(args[0].device)
    if run is None:
        return
    if len(_ready) >= _MOST_READY:
        _ready.clear()
    _ready[build, *map(_facts, args)] = run


class _Mark(int):
    """The place of tensor number N in frozen arguments."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Mark) and int(self) == int(other)

    def __hash__(self) -> int:
        return hash(("mark", int(self)))


class _Exact:
    """A Python number or a shape as a cache key: 0.0 is not -0.0, 1 is not True, and a layout that is said is not left out."""

    __slots__ = ("key", "value")

    def __init__(self, value: Any):
        stated = tuple(leaf.layout is not None for leaf in value.leaves()) if isinstance(value, Shape) else ()
        self.value, self.key = value, (type(value), repr(value), stated)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Exact) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def _freeze(value: Any, marks: Any) -> Any:
    if isinstance(value, (torch.Tensor, Token)):
        return _Mark(next(marks))
    if isinstance(value, (bool, int, float, complex, np.generic, Shape)) and not isinstance(value, enum.Enum):
        return _Exact(value)
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return tuple(_freeze(v, marks) for v in value)
    return value


def _thaw(value: Any, parameters: Sequence[XlaOp]) -> Any:
    if isinstance(value, _Mark):
        return parameters[int(value)]
    if isinstance(value, _Exact):
        return value.value
    if type(value) is tuple:
        return tuple(_thaw(v, parameters) for v in value)
    return value


def _calls_functions(value: Any) -> bool:
    """Whether there is a function among arguments of which nobody knows what it does: documented ones do the same each time."""
    if isinstance(value, (list, tuple)):
        return any(map(_calls_functions, value))
    return is_function(value) and not isinstance(value, torch.Tensor) and not hasattr(value, "checker")


@dataclasses.dataclass(frozen=True)
class _Written:
    """A program known by its text, and by the derivatives that it brings, of which the text says nothing."""

    text: str
    derivatives: tuple[int, ...]
    module: Module = dataclasses.field(compare=False)


@functools.lru_cache(maxsize=1024)
def _computation_of(program: _Written) -> StaticComputation:
    return StaticComputation(program.module)


def _found(build: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: tuple[Any, ...],
           specs: tuple[Any, ...]) -> tuple[StaticComputation, bool]:
    try:
        return _one_op_cached(build, name, args, kwargs, specs)
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        return _one_op(build, name, args, kwargs, specs)


def _one_op(build: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: tuple[Any, ...],
            specs: tuple[Any, ...]) -> tuple[StaticComputation, bool]:
    module, several = _module(build, name, args, kwargs, specs)
    return StaticComputation(module), several


def _module(build: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: tuple[Any, ...],
            specs: tuple[Any, ...]) -> tuple[Module, bool]:
    """The program of one op, and whether its result is a tuple that stands for a list."""
    builder = XlaBuilder(name)
    builder.runs_at_once = True
    parameters = [builder.parameter(number, _parameter_shape(name, spec)) for number, spec in enumerate(specs)]
    result = build(builder, _thaw(args, parameters), {k: _thaw(v, parameters) for k, v in kwargs})
    if isinstance(result, XlaOp):
        return Module(name, builder.finish(result)), False
    return Module(name, builder.finish(builder.add(control.tuple_, list(result)))), True


def _parameter_shape(name: str, spec: tuple[tuple[int, ...], torch.dtype] | None) -> Shape:
    if spec is None:
        return Shape.token()
    element_type = type_from_torch(spec[1])
    if element_type is None:
        raise InvalidArgument("a tensor of this dtype has no XLA element type", subject=name, got=spec[1])
    return Shape.array(element_type, spec[0])


_one_op_cached = functools.lru_cache(maxsize=4096)(_one_op)

run_at_once_with(run_at_once, run_ready, torch.Tensor, Token)
