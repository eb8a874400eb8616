"""What is known of the functions that lowered programs call, a row for each: all that passes over graphs ask of them.

Rows of torch's own functions stand here, and kernels get theirs where they are defined, by the decorators below. A function
without a row is taken for one of which nothing is known: its result may share memory with its operands, and it stays as it is.
A row says, where there is such a thing,

- `out`: what writes the result into ``out=``, and which operands of it may be `numbers`: ``any``, ``later`` ones, ``none``
- `elementwise`: each element of the result depends on the operands' elements at its place only, so that it may run on blocks
- `memory`: whether the result (``fresh``), or each part of it (``parts``), shares memory with nothing, ``ordered`` where torch
  also chooses the order of its dimensions; ``shared`` where it may lie in an operand's
- `reduces`: it reduces some dimensions; `row` is the C function that does so for one row, which may be reduced in parts as well
- `opcode`: the op whose C (`codegen/elements.py`) is the function's, or `code`: its own C for each kind of element of the result
- `wraps`: its bits are the same for signed and for unsigned integers
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

import torch

from ..core.types import Kind
from ..opcodes import elementwise as ops

_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclasses.dataclass(frozen=True)
class Call:
    """The row of a function."""

    out: Callable[..., Any] | None = None
    numbers: Literal["any", "later", "none"] = "later"
    elementwise: bool = False
    memory: Literal["fresh", "parts", "ordered", "shared"] = "fresh"
    reduces: bool = False
    row: str = ""
    opcode: str = ""
    code: Mapping[str, str] = dataclasses.field(default_factory=dict)
    wraps: bool = False


UNKNOWN = Call(memory="shared")

CALLS: dict[Any, Call] = {}
"""The row of each function. Read by `known`."""


def known(function: Any) -> Call:
    """What is known of a function."""
    return CALLS.get(function, UNKNOWN)


# ------------------------------------------------------------------------------------------------ kernels


def _marked(row: Call) -> Callable[[_Function], _Function]:
    """A decorator that gives a kernel its row."""
    def mark(function: _Function) -> _Function:
        CALLS[function] = row
        return function
    return mark


def elementwise_in_c(**code: str) -> Callable[[_Function], _Function]:
    """`elementwise`, with the kernel's C for some kinds of elements."""
    return _marked(Call(elementwise=True, code=code))


def elementwise_as(opcode: str) -> Callable[[_Function], _Function]:
    """`elementwise`, with the C of an op."""
    return _marked(Call(elementwise=True, opcode=opcode))


elementwise = _marked(Call(elementwise=True))
"""The kernel works element by element: it may run on blocks of its operands. Its result shares memory with nothing."""

fresh = _marked(Call())
"""The kernel's result shares memory with nothing."""

ordered = _marked(Call(memory="ordered"))
"""As `fresh`; torch chooses the order of the result's dimensions."""

reducing = _marked(Call(reduces=True))
"""As `fresh`; it reduces the dimensions that its second operand names."""

fresh_tuple = _marked(Call(memory="parts"))
"""The kernel's results share memory with nothing, not with each other either."""


# ------------------------------------------------------------------------------------------------ torch's functions


def _each(function: Callable[..., Any], spelled: Callable[..., Any] | None = None, **row: Any) -> None:
    """An elementwise function that can write elsewhere, and the operator that is the same."""
    for one in (function, spelled):
        if one is not None:
            CALLS[one] = Call(out=function, elementwise=True, **row)


_each(torch.add, operator.add, numbers="any", opcode=ops.add, wraps=True)
_each(torch.sub, operator.sub, numbers="any", opcode=ops.subtract, wraps=True)
_each(torch.mul, operator.mul, numbers="any", opcode=ops.multiply, wraps=True)
_each(torch.div, operator.truediv, numbers="any", opcode=ops.divide)
_each(torch.pow, numbers="any", opcode=ops.power)
_each(torch.neg, operator.neg, opcode=ops.negate, wraps=True)
_each(torch.square, code=dict.fromkeys(("float", "signed", "unsigned"), "{0} * {0}"), wraps=True)
_each(torch.abs, opcode=ops.abs_)
_each(torch.maximum, numbers="none", opcode=ops.maximum)
_each(torch.minimum, numbers="none", opcode=ops.minimum)
_each(torch.clamp_min, code=dict.fromkeys(("float", "signed", "unsigned"), "{0} < {1} ? {1} : {0}"))
_each(torch.clamp_max, code=dict.fromkeys(("float", "signed", "unsigned"), "{0} > {1} ? {1} : {0}"))
_each(torch.where, numbers="none")
_each(torch.reciprocal, code={"float": "1 / {0}"})
_each(torch.floor, opcode=ops.floor)
_each(torch.ceil, opcode=ops.ceil)
_each(torch.round, opcode=ops.round_nearest_even)
_each(torch.sqrt, opcode=ops.sqrt)
_each(torch.rsqrt, opcode=ops.rsqrt)
_each(torch.exp, opcode=ops.exponential)
_each(torch.log, opcode=ops.log)
_each(torch.tanh, opcode=ops.tanh)
_each(torch.sigmoid, opcode=ops.logistic)
_each(torch.log1p, opcode=ops.log_plus_one)
_each(torch.expm1, opcode=ops.exponential_minus_one)
_each(torch.erf, opcode=ops.erf)
_each(torch.sin, opcode=ops.sine)
_each(torch.cos, opcode=ops.cosine)
_each(torch.atan2, numbers="none", opcode=ops.atan2)
_each(torch.sinh, opcode=ops.sinh)
_each(torch.cosh, opcode=ops.cosh)
_each(torch.asinh, opcode=ops.asinh)
_each(torch.acosh, opcode=ops.acosh)
_each(torch.atanh, opcode=ops.atanh)
_each(torch.tan, opcode=ops.tan)
_each(torch.asin, opcode=ops.asin)
_each(torch.acos, opcode=ops.acos)
_each(torch.atan, opcode=ops.atan)
_each(torch.fmod)
_each(torch.bitwise_and, operator.and_, opcode=ops.and_, wraps=True)
_each(torch.bitwise_or, operator.or_, opcode=ops.or_, wraps=True)
_each(torch.bitwise_xor, operator.xor, opcode=ops.xor, wraps=True)
_each(torch.bitwise_not, operator.invert, opcode=ops.not_, wraps=True)
_each(torch.bitwise_left_shift, operator.lshift, code=dict.fromkeys(("signed", "unsigned"), "{0} << {1}"), wraps=True)
_each(torch.bitwise_right_shift, operator.rshift, code=dict.fromkeys(("signed", "unsigned"), "{0} >> {1}"))
_each(torch.logical_and, numbers="none", code={"pred": "{0} & {1}"})
_each(torch.logical_or, numbers="none", code={"pred": "{0} | {1}"})
_each(torch.logical_not, code={"pred": "!{0}"})

COMPARISONS: dict[Any, str] = {torch.lt: "<", torch.le: "<=", torch.gt: ">", torch.ge: ">=", torch.eq: "==", torch.ne: "!="}
"""How C writes them. Operands are compared in the type that torch would compare them in."""

for _function in COMPARISONS:
    _each(_function, getattr(operator, _function.__name__))

for _function, _code in {torch.real: "__real__ {0}", torch.imag: "__imag__ {0}"}.items():
    CALLS[_function] = Call(elementwise=True, memory="shared", code={Kind.COMPLEX.value: _code})
CALLS[torch.complex] = Call(elementwise=True)
CALLS[torch.clamp] = Call(elementwise=True, code=dict.fromkeys(("float", "signed"), "minimum_{t}(maximum_{t}({0}, {1}), {2})"))
CALLS[torch.isfinite] = Call(elementwise=True)
CALLS[torch.sign] = Call(elementwise=True, code={"signed": "sign_{t}({0})"})
for _function in (torch.prod, torch.mean, torch.all, torch.any, torch.logsumexp):
    CALLS[_function] = Call(reduces=True)
for _function in (torch.sum, torch.amax, torch.amin):
    CALLS[_function] = Call(reduces=True, row=f"row_{_function.__name__}")
for _function in (
        torch.matmul, torch.mm, torch.bmm, torch.addmm, torch.baddbmm, operator.matmul, torch.cat, torch.clone, torch.full,
        torch.arange, torch.zeros, torch.cumsum, torch.index_select, torch.gather, torch.convolution, torch.nn.functional.pad,
        torch.constant_pad_nd, torch.argmax, torch.argmin, torch.trunc, torch.cumprod, torch.softmax,
        torch.log_softmax, torch.layer_norm):
    CALLS[_function] = Call()
for _function in (torch.conv1d, torch.conv2d, torch.conv3d, torch.conv_transpose1d, torch.conv_transpose2d,
                  torch.conv_transpose3d, torch.flip):
    CALLS[_function] = Call(memory="ordered")
for _function in (torch.sort, torch.topk, torch.max, torch.min, torch.cummax, torch.cummin):
    CALLS[_function] = Call(memory="parts")


# ------------------------------------------------------------------------------------------------ methods

RESHAPE, EXPAND, UNSQUEEZE = (m.__name__ for m in (torch.Tensor.reshape, torch.Tensor.expand, torch.Tensor.unsqueeze))

ROW_VIEWS = frozenset({RESHAPE, EXPAND, UNSQUEEZE})
"""What brings a number for each row back to the row."""

VIEWS = ROW_VIEWS | {m.__name__ for m in (torch.Tensor.permute, torch.Tensor.t, torch.Tensor.transpose, torch.Tensor.flatten,
                                         torch.Tensor.unflatten, torch.Tensor.squeeze)}
"""Whose results may lie in an operand's memory, and compute nothing."""

FRESH_METHODS = frozenset({"clone", "sum", "amax", "amin", "prod", "exp", "matmul"})
"""Whose results share memory with nothing."""
