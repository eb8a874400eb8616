"""`hessian`: second derivatives of a program, as a program."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import numpy as np

from .. import functions as ops
from ..autodiff.calls import emit_call
from ..autodiff.options import DEFAULT, GradientOptions
from ..core.errors import DifferentiationError, UnsupportedError
from ..functions.hlo_builder import Builder
from ..pytree.nodes import Kind
from ..runtime.computation import XlaComputation
from ..runtime.program import Program
from ..runtime.static import StaticComputation
from ..runtime.steps import Step, entry_point
from .gradients import grad, jvp
from .tree_function import TreeFunction
from .vectorizing import vmap

C = TypeVar("C", bound=XlaComputation)


def _of_one_array(function: TreeFunction, step: Step) -> TreeFunction:
    number = step.given["argnum"]
    argument = function.argument(number)
    if argument.kind is not Kind.LEAF:
        raise UnsupportedError("hessian takes one array parameter, not a tuple", subject="hessian", got=argument,
                               expected="an argument that is one array",
                               hint="use jvp(grad(f)), the Hessian-vector product, which takes any pytree")
    (parameter,) = function.differentiable_of(number)
    return function.with_computation(step(function.computation, argnum=parameter), out_tree=argument)


@entry_point(over_trees=_of_one_array)
def hessian(computation: C, argnum: int = 0, options: GradientOptions | None = None) -> C:
    """Return the program for the Hessian of the sum of the (first) result.

    `argnum` is a floating array parameter of dimensions D. The program takes the same arguments and returns an array of
    dimensions ``[*D, *D]``. It uses forward over reverse mode for all directions at once, as ``jax.hessian`` does, so memory
    grows with the number of elements; ``jvp(grad(f))`` computes one direction. `options` control how loops are differentiated.
    Raises DifferentiationError like `grad`, and for complex parameters; UnsupportedError for tuple parameters::

        hessian(load("loss.hlo"), argnum=1)(weights, x)      # [*x.shape, *x.shape]

    >>> square = xla_torch.parse_hlo("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] multiply(x, x) }")
    >>> xla_torch.hessian(square)(torch.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 2.]])
    """
    gradient = grad(computation, argnum, options)
    shape = gradient.program_shape.result
    if not shape.is_array or not shape.element_type.is_floating:
        raise DifferentiationError("hessian takes a real floating parameter", subject=computation.name, got=shape,
                                   expected="a floating parameter that is one array")
    count, parameters = shape.element_count, computation.program_shape.parameters
    directions = vmap(jvp(gradient, [argnum]), count, [*[None] * len(parameters), 0]).program.authored
    builder = Builder(f"hessian_{computation.name}")
    given = [builder.parameter(k, p.without_layout(), name) for k, (p, name) in enumerate(zip(
        parameters, computation.program_shape.parameter_names, strict=True))]
    basis = builder.constant(np.eye(count, dtype=shape.element_type.numpy).reshape(count, *shape.dimensions), shape.element_type)
    _, tangents = emit_call(builder, directions, [*given, basis])
    order = [*range(1, shape.rank + 1), 0]
    found = ops.Reshape(ops.Transpose(tangents, order), [*shape.dimensions, *shape.dimensions])
    program, chosen = computation.program, options or computation.gradient_options or DEFAULT

    def portable() -> Program:
        return hessian(StaticComputation(program.portable), argnum, dataclasses.replace(chosen, portable=True)).program

    made: Any = StaticComputation(program.derived(builder.finish(found), portable=portable))
    return made
