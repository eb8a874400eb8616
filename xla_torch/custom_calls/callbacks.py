"""Python functions that programs call which JAX traced: `jax.pure_callback`, `io_callback`, `debug.callback` and what is made of
them.

In the program such a call is a number, which means something in the process that traced it. There `bind` gives each call a
target of its own, whose function is known. Anywhere else the function is gone, and `leave_out` does without the calls that give
the program no values: those that print or tell, and checks that can only raise, which is what equinox's `error_if` comes to.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .. import functions as ops
from ..core.shape import Shape
from ..functions.hlo_builder import XlaOp
from ..hlo.custom_calls import described, registered, target_of
from ..hlo.ir import Computation, Instruction, Module, reachable
from .calls import Call, Meaning, zeros

CALLBACK = re.compile(r"xla_(ffi_|buffer_)?(partitioned_)?python_(cpu|gpu)_callback|CustomSPMDPartitioning")
"""Targets of such calls."""

_LEFT_OUT = "xla_torch.callback_left_out"
_CHECK = re.compile(r"\bbranched_error_if_impl\b")
"""The function of equinox's that raises in a branch, as a name of a computation and within names of ops."""


def bind(module: Module, functions: Sequence[Callable[..., Any]], register: Callable[[Callable[..., Any]], str]) -> None:
    """Give the calls of these functions, which have their numbers, the targets under which `register` makes them known. Calls
    whose target has a function of the user's stay."""
    targets: dict[int, str] = {}
    for call in _calls(module.computations):
        number = described(call).config.get("index")
        if isinstance(number, int) and number < len(functions):
            if number not in targets:
                targets[number] = register(functions[number])
            _rename(call, targets[number])


def leave_out(module: Module) -> int:
    """Do without the calls that give the program no values; how many there are. All others are refused when it runs."""
    checks = {id(i) for c in module.computations if _CHECK.search(_plain(c.name)) for i in _calls(reachable([c]))}
    found = [i for i in _calls(module.computations)
             if id(i) in checks or _CHECK.search(i.op_name) or not any(leaf.is_array for leaf in i.shape.leaves())]
    for call in found:
        _rename(call, _LEFT_OUT)
    return len(found)


def _calls(computations: Sequence[Computation]) -> Iterator[Instruction]:
    """The calls whose target the user has registered nothing for."""
    found = (i for c in computations for i in c.instructions if CALLBACK.fullmatch(target_of(i)))
    return (i for i in found if registered(target_of(i)) is None)


def _plain(name: str) -> str:
    """A computation's name without the number that makes it unique."""
    return re.sub(r"[._]\d+$", "", name)


def _rename(call: Instruction, target: str) -> None:
    call.attributes = {**call.attributes, "custom_call_target": target}


def _left_out(call: Call) -> Sequence[XlaOp]:
    """Tokens, and in place of values that are not there because the check before them has failed, NaNs, or integers of ones."""
    return [_nothing(call, shape) for shape in call.results]


def _nothing(call: Call, shape: Shape) -> XlaOp:
    if not shape.is_array:
        return ops.CreateToken(call.builder)
    if not (shape.element_type.is_floating or shape.element_type.is_complex):
        return ops.Not(zeros(call.builder, shape))
    return ops.Broadcast(call.builder.constant(math.nan, shape.element_type), shape.dimensions)


MEANINGS: dict[str, Meaning] = {_LEFT_OUT: _left_out}
"""What stands in the place of calls that were left out."""
