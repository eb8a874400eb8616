"""What stands where a documented function takes a computation: a computation, or a Python function of XlaOps.

A function is called once, with ops that stand for the parameters of the computation, and what it returns is the computation's
result. Which parameters an op gives to its computations is said here, once for each way in which ops run them (see
`hlo/regions.py`); whether the result fits, the op's shape function says of every computation alike.

==============  ==========================================================  ===============================================
`reducer`       N accumulated and N new scalars, of the init values' types  `Reduce`, windows, `Scatter`, collectives
`comparator`    two scalars of each operand, side by side                   `Sort`, and `SelectAndScatter`'s `select`
`mapped`        a scalar of each operand                                    `Map`
`step`          a slice of each input, and the carries                      `Scan`
`of_values`     the operands, whole                                         `Call`, `While`, branches, `Fusion`
==============  ==========================================================  ===============================================
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.errors import InvalidArgument
from ..core.shape import Shape
from ..core.types import PRED
from ..hlo.canonical_values import LISTS
from ..hlo.ir import Computation
from ..opcodes import control
from ..opcodes.reduction import without_dimension
from ._kinds import described
from .hlo_builder import NUMBERS, Builder, Region, XlaOp, embedded_in, is_function, region_of

Form = Shape | tuple["Form", ...]
"""What a function is called with for one parameter: an op of a shape, or for a tuple that was given as one in Python, a tuple."""


def reducer(computation: Region, accumulated: Sequence[XlaOp], role: str = "the reducer") -> Computation:
    """What combines what was accumulated with new elements, both as scalars of the accumulated types."""
    scalars = [Shape(op.element_type) for op in accumulated]
    return _made(computation, role, [*scalars, *scalars], scalars[0] if len(scalars) == 1 else tuple(scalars))


def comparator(computation: Region, operands: Sequence[XlaOp], role: str = "the comparator") -> Computation:
    """What says of two places in arrays which one it is to be, by the elements that stand there."""
    return _made(computation, role, [Shape(op.element_type) for op in operands for _ in range(2)], Shape(PRED))


def mapped(computation: Region, operands: Sequence[XlaOp]) -> Computation:
    """What makes an element of the elements of arrays."""
    return _made(computation, "the function", [Shape(op.element_type) for op in operands])


def step(computation: Region, inputs: Sequence[XlaOp], carried: Sequence[XlaOp], dimension: int) -> Computation:
    """What makes outputs and the next carries of a slice of each input and the carries."""
    slices = [without_dimension(op.shape, dimension) for op in inputs]
    return _made(computation, "the step", [*slices, *(op.shape.without_layout() for op in carried)])


def of_values(computation: Region, operands: Sequence[Any], role: str, result: Form | None = None) -> Computation:
    """What is run on operands as they are. Numbers that a function returns are of the types that stand there in `result`."""
    return region_of(computation) if not is_function(computation) else _made(
        computation, role, list(map(form_of, operands)), result)


def form_of(value: Any) -> Form:
    """The form of an operand that is an op, or a Python tuple or list that stands for a tuple."""
    if isinstance(value, LISTS):
        return tuple(map(form_of, value))
    if not isinstance(value, XlaOp):
        raise InvalidArgument("not an operand", got=described(value), expected="an XlaOp or a tensor, or a tuple of such")
    return value.shape.without_layout()


# ------------------------------------------------------------------------------------------- calling the function


def _made(computation: Region, role: str, forms: Sequence[Form], result: Form | None = None) -> Computation:
    entry = embedded_in(computation)
    if entry is not None:
        return entry
    if not is_function(computation):
        return region_of(computation)
    assert callable(computation)
    builder = Builder(_name(computation, role))
    builder.region = role
    arguments = [_argument(builder.parameter(k, _shape(form)), form) for k, form in enumerate(forms)]
    _require_arity(computation, role, forms)
    try:
        returned = computation(*arguments)
    except TypeError as error:
        if isinstance(error, InvalidArgument):
            raise
        raise InvalidArgument(f"{role} is no function of XlaOps: {error}", got=_described(computation),
                              hint="it is called with XlaOps, which take operators and xla_torch.ops; Python's and torch's "
                                   "functions (max, if, torch.add) do not take them: ops.Max, ops.Select, ops.Add") from error
    _require_no_answer(role, returned, result)
    return builder.finish(_returned(builder, role, returned, result))


def _name(function: Callable[..., Any], role: str) -> str:
    name = getattr(function, "__name__", "")
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else role.removeprefix("the ").replace(" ", "_")


def _shape(form: Form) -> Shape:
    return form if isinstance(form, Shape) else Shape.tuple([_shape(part) for part in form])


def _argument(op: XlaOp, form: Form) -> Any:
    if isinstance(form, Shape):
        return op
    return tuple(_argument(op.builder.add(control.get_tuple_element, [op], {"index": k}), part) for k, part in enumerate(form))


def _require_arity(function: Callable[..., Any], role: str, forms: Sequence[Form]) -> None:
    if hasattr(function, "checker"):  # a documented function says itself what it takes
        return
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions in C have none
        return
    try:
        signature.bind(*forms)
    except TypeError:
        shown = ", ".join(str(_shape(form)) for form in forms) or "nothing"
        raise InvalidArgument(f"{role} takes another number of arguments", got=f"{_described(function)}{signature}",
                              expected=f"a function of {len(forms)}: {shown}",
                              hint="pass a tuple as one argument" if any(isinstance(f, tuple) for f in forms) else "") from None


def _described(function: Any) -> str:
    return getattr(function, "__qualname__", "") or type(function).__name__


# ------------------------------------------------------------------------------------------- what it returned


def _require_no_answer(role: str, value: Any, form: Form | None) -> None:
    """A function is called once, for all elements and steps: what it answers by itself, as with ``is``, it answers for all."""
    asked = isinstance(form, Shape) and form.is_array and form.element_type is PRED
    if isinstance(value, (bool, np.bool_)) or (asked and isinstance(value, (int, float, complex, np.ndarray, np.generic))):
        raise InvalidArgument(f"{role} returned a Python value while the computation was built", got=described(value),
                              expected="an XlaOp",
                              hint="compare its arguments with operators (==, !=, <, ...) or xla_torch.ops; a constant is "
                                   "ops.Constant(argument.builder, True)")


def _returned(builder: Builder, role: str, value: Any, form: Form | None) -> XlaOp:
    """The op that a function returned; numbers become constants, and tuples and lists tuples."""
    if isinstance(value, XlaOp):
        if value.builder is not builder:
            raise InvalidArgument(f"{role} returns an op of another builder", got=f"an op of {value.builder.name!r}",
                                  expected="an op made of its arguments", hint=builder.beyond(value.builder))
        return value
    if isinstance(value, LISTS):
        parts = form.tuple_shapes if isinstance(form, Shape) else form or ()
        given = [_returned(builder, role, v, parts[k] if k < len(parts) else None) for k, v in enumerate(value)]
        return builder.add(control.tuple_, given)
    if isinstance(value, NUMBERS):
        return builder.constant(value, form.element_type if isinstance(form, Shape) and form.is_array else None)
    hint = "its arguments are XlaOps, and so is what operators and xla_torch.ops make of them"
    if value is None:
        hint = "is there a return?"
    raise InvalidArgument(f"{role} does not return an op", got=described(value),
                          expected="an XlaOp, a number, or a tuple of such", hint=hint)
