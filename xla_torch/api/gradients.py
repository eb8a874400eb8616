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
from ..runtime.computation import XlaComputation
from ..runtime.program import Program
from ..runtime.static import StaticComputation
from ..runtime.steps import entry_point
from . import tree_gradients

__all__ = ["GradientOptions", "grad", "jvp", "register_gradient", "value_and_grad", "vjp"]

Argnums = int | Sequence[int]
C = TypeVar("C", bound=XlaComputation)


@entry_point(over_trees=tree_gradients.gradient)
def grad(computation: C, argnums: Argnums = 0, options: GradientOptions | None = None) -> C:
    """Return the program for the gradient of the sum of the (first) result.

    It takes the program's arguments and returns the gradient for parameter `argnums`, in its shape; for a sequence of numbers,
    a tuple of gradients. `options` control how loops are differentiated (default: the program's options).

    Raises DifferentiationError for an op on the path that has no gradient, for a result that is not real floating, and for
    parameters that are neither floating nor complex. Raises InvalidArgument for numbers out of range.

    >>> square = xla_torch.parse_hlo("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] multiply(x, x) }")
    >>> xla_torch.grad(square)(torch.tensor([1.0, 2.0]))
    tensor([2., 4.])
    """
    return _with_gradients("grad", computation, argnums, options, with_value=False)


@entry_point(over_trees=tree_gradients.value_and_gradient)
def value_and_grad(computation: C, argnums: Argnums = 0, options: GradientOptions | None = None) -> C:
    """Return the program for ``(result, gradient)``, with the (first) result; see `grad`.

    >>> square = xla_torch.parse_hlo("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] multiply(x, x) }")
    >>> xla_torch.value_and_grad(square)(torch.tensor([1.0, 2.0]))
    (tensor([1., 4.]), tensor([2., 4.]))
    """
    return _with_gradients("value_and_grad", computation, argnums, options, with_value=True)


@entry_point(over_trees=tree_gradients.vector_jacobian)
def vjp(computation: C, argnums: Argnums | None = None, with_outputs: bool = False,
        options: GradientOptions | None = None) -> C:
    """Return the program for the vector-Jacobian product.

    It takes the program's arguments and then one cotangent for each floating or complex leaf of the result, in its shape. It
    returns the tuple of gradients for `argnums` (default: all floating and complex parameters), after the result's leaves if
    `with_outputs`. Raises the errors of `grad`.

    >>> square = xla_torch.parse_hlo("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] multiply(x, x) }")
    >>> xla_torch.vjp(square)(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 0.0]))
    (tensor([2., 0.]),)
    """
    numbers = _checked_argnums(computation, argnums)
    return _derived(computation, options, lambda entry, chosen: derivatives.vector_jacobian(
        f"vjp_{computation.name}", entry, numbers, chosen, with_outputs))


@entry_point(over_trees=tree_gradients.jacobian_vector)
def jvp(computation: C, argnums: Argnums | None = None) -> C:
    """Return the program for the Jacobian-vector product, ``(result, tangent)``.

    It takes the program's arguments and then one tangent for each parameter in `argnums` (default: all floating and complex
    parameters), in that parameter's shape. `tangent` has the shape of the result; for a tuple, it is the flat tuple of tangents
    of the floating and complex leaves. Values and tangents are computed together without residuals, so loops may have
    data-dependent lengths. ``jvp(grad(f))`` is a Hessian-vector product.

    Raises DifferentiationError for an op on the path without gradient and for parameters that are not floating or complex;
    InvalidArgument for numbers out of range.

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
                                   hint="use vjp(computation), which takes a cotangent for each result")
    return _derived(computation, options, lambda entry, chosen: derivatives.gradient(
        f"{name}_{computation.name}", entry, numbers, chosen, alone=isinstance(argnums, int), with_value=with_value))


def _derived(computation: XlaComputation, options: GradientOptions | None,
             make: Callable[[Computation, GradientOptions], Computation]) -> Any:
    """The program that `make` derives, which others will get made with portable options of what they get of this one."""
    if options is not None and not isinstance(options, GradientOptions):
        raise InvalidArgument("options must be GradientOptions", got=repr(options)[:80], expected="a GradientOptions, or None")
    program, chosen = computation.program, options or computation.gradient_options or DEFAULT

    def portable() -> Program:
        source = program.portable
        return source.derived(make(source.to_differentiate(), dataclasses.replace(chosen, portable=True)))

    return StaticComputation(program.derived(make(program.to_differentiate(), chosen), portable=portable))


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
