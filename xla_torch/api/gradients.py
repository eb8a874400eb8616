"""`grad`, `value_and_grad`, `vjp` and `jvp`: derivatives of whole programs, as programs; and `register_gradient`.

Of a function over trees (`TreeFunction`) they are functions over trees, and `argnums` are its arguments: see `tree_gradients.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from grad_rules._user import register_gradient

from ..autodiff import derivatives
from ..autodiff.options import DEFAULT, GradientOptions
from ..core.errors import DifferentiationError, InvalidArgument
from ..hlo.canonical_values import integers_of
from ..hlo.ir import Computation
from ..runtime.computation import XlaComputation, door
from ..runtime.program import Program
from ..runtime.static import StaticComputation
from . import tree_gradients

__all__ = ["GradientOptions", "grad", "jvp", "register_gradient", "value_and_grad", "vjp"]

Argnums = int | Sequence[int]
C = TypeVar("C", bound=XlaComputation)


@door(over_trees=tree_gradients.gradient)
def grad(computation: C, argnums: Argnums = 0, options: GradientOptions | None = None) -> C:
    """The gradient of the sum of the program's result (of its first, if it returns a tuple).

    Takes the same arguments. Returns the gradient with respect to parameter `argnums`, of that parameter's shape, or for a
    sequence of numbers a tuple of gradients. Raises DifferentiationError for an op without gradient on the way, for a
    result or parameter that is not of a real floating (a parameter may be complex) type; InvalidArgument for numbers out
    of range. `options` say how loops are walked back (default: the program's own).

    >>> square = xla_torch.parse_hlo("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] multiply(x, x) }")
    >>> xla_torch.grad(square)(torch.tensor([1.0, 2.0]))
    tensor([2., 4.])
    """
    return _with_gradients("grad", computation, argnums, options, with_value=False)


@door(over_trees=tree_gradients.value_and_gradient)
def value_and_grad(computation: C, argnums: Argnums = 0, options: GradientOptions | None = None) -> C:
    """Like `grad`, and returns ``(result, gradient)`` with the program's (first) result.

    >>> square = xla_torch.parse_hlo("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] multiply(x, x) }")
    >>> xla_torch.value_and_grad(square)(torch.tensor([1.0, 2.0]))
    (tensor([1., 4.]), tensor([2., 4.]))
    """
    return _with_gradients("value_and_grad", computation, argnums, options, with_value=True)


@door(over_trees=tree_gradients.vector_jacobian)
def vjp(computation: C, argnums: Argnums | None = None, with_outputs: bool = False,
        options: GradientOptions | None = None) -> C:
    """The vector-Jacobian product: takes the program's arguments and then one cotangent for each floating or complex
    leaf of its result, of that leaf's shape; returns the tuple of gradients for `argnums` (default: all floating and complex
    parameters), preceded by the result's leaves if `with_outputs`. Raises like `grad`.

    >>> square = xla_torch.parse_hlo("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] multiply(x, x) }")
    >>> xla_torch.vjp(square)(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 0.0]))
    (tensor([2., 0.]),)
    """
    numbers = _checked_argnums(computation, argnums)
    return _derived(computation, options, lambda entry, chosen: derivatives.vector_jacobian(
        f"vjp_{computation.name}", entry, numbers, chosen, with_outputs))


@door(over_trees=tree_gradients.jacobian_vector)
def jvp(computation: C, argnums: Argnums | None = None) -> C:
    """The Jacobian-vector product: takes the program's arguments and then one tangent for each parameter in `argnums`
    (default: all floating and complex parameters), of that parameter's shape; returns ``(result, tangent)``.

    `result` is the program's; `tangent` is that of the result, of its shape, and for a tuple the flat tuple of the tangents
    of its floating and complex leaves. Values and tangents go through the program together: nothing is kept, and a loop may
    run as long as data says. ``jvp(grad(f))`` multiplies with the Hessian. Raises DifferentiationError for an op without
    gradient on the way and for parameters that are not floating or complex; InvalidArgument for numbers out of range.

    >>> square = xla_torch.parse_hlo("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] multiply(x, x) }")
    >>> xla_torch.jvp(square)(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 0.0]))
    (tensor([1., 4.]), tensor([2., 0.]))
    """
    numbers = _checked_argnums(computation, argnums)
    return _derived(computation, None, lambda entry, _: derivatives.jacobian_vector(
        f"jvp_{computation.name}", entry, numbers))


def _with_gradients(name: str, computation: XlaComputation, argnums: Argnums, options: GradientOptions | None,
                    with_value: bool) -> Any:
    numbers = _checked_argnums(computation, argnums)
    result = computation.program_shape.result
    first = next(iter(result.leaves()), None)
    if first is None or not first.element_type.is_floating:
        raise DifferentiationError("the result has no gradient", subject=computation.name, got=result,
                                   expected="a real floating result (the first, of a tuple)",
                                   hint="vjp(computation) takes a cotangent for each result")
    return _derived(computation, options, lambda entry, chosen: derivatives.gradient(
        f"{name}_{computation.name}", entry, numbers, chosen, alone=isinstance(argnums, int), with_value=with_value))


def _derived(computation: XlaComputation, options: GradientOptions | None,
             make: Callable[[Computation, GradientOptions], Computation]) -> Any:
    """The program that `make` derives, which others will get made with portable options of what they get of this one."""
    if options is not None and not isinstance(options, GradientOptions):
        raise InvalidArgument("not options of gradients", got=repr(options)[:80], expected="a GradientOptions, or None")
    program, chosen = computation.program, options or computation.gradient_options or DEFAULT

    def elsewhere() -> Program:
        source = program.elsewhere
        return source.derived(make(source.to_differentiate(), dataclasses.replace(chosen, portable=True)))

    return StaticComputation(program.derived(make(program.to_differentiate(), chosen), elsewhere=elsewhere))


def _checked_argnums(computation: XlaComputation, argnums: Argnums | None) -> list[int]:
    """The numbers as a list; None stands for all parameters with a floating or complex leaf."""
    shapes = computation.program_shape.parameters
    if argnums is None:
        argnums = [k for k, s in enumerate(shapes) if any(leaf.element_type.is_differentiable for leaf in s.leaves())]
    numbers = list(integers_of([argnums] if isinstance(argnums, int) else argnums))
    names = computation.program_shape.parameter_names
    for number in numbers:
        if not 0 <= number < len(shapes):
            there = ", ".join(f"{k} ({name})" for k, name in enumerate(names)) or f"0 to {len(shapes) - 1}"
            raise InvalidArgument(f"argnums names parameter {number}", subject=computation.name, got=number, expected=there)
        if not all(leaf.element_type.is_differentiable for leaf in shapes[number].leaves()):
            called = f"{number} ({names[number]})" if names else f"{number}"
            raise DifferentiationError(f"parameter {called} has no gradient", subject=computation.name, got=shapes[number],
                                       expected="a floating or complex parameter")
    return numbers
