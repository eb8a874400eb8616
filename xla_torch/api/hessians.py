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
from ..runtime.computation import Step, XlaComputation, door
from ..runtime.program import Program
from ..runtime.static import StaticComputation
from .gradients import grad, jvp
from .tree_function import TreeFunction
from .vectorizing import vmap

C = TypeVar("C", bound=XlaComputation)


def _of_one_array(function: TreeFunction, step: Step) -> TreeFunction:
    number = step.given["argnum"]
    argument = function.argument(number)
    if argument.kind is not Kind.LEAF:
        raise UnsupportedError("a Hessian by several arrays has a block for each two of them", subject="hessian", got=argument,
                               expected="an argument that is one array", hint="jvp(grad(f)) multiplies with it, for any tree")
    (parameter,) = function.differentiable_of(number)
    return function.with_computation(step(function.computation, argnum=parameter), out_tree=argument)


@door(over_trees=_of_one_array)
def hessian(computation: C, argnum: int = 0, options: GradientOptions | None = None) -> C:
    """The Hessian of the sum of the program's result (of its first, if it returns a tuple) by the floating array that is
    parameter `argnum`, of dimensions D.

    Takes the same arguments. Returns an array of dimensions ``[*D, *D]``: forward over reverse mode, for all directions at
    once (as ``jax.hessian``), so it needs the memory of as many tangents as the parameter has elements; ``jvp(grad(f))`` is one
    of them. `options` say how loops are walked back. Raises DifferentiationError like `grad`, and for complex parameters;
    UnsupportedError for arguments of several arrays::

        hessian(load("loss.hlo"), argnum=1)(weights, x)      # [*x.shape, *x.shape]

    >>> square = xla_torch.parse_hlo("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] multiply(x, x) }")
    >>> xla_torch.hessian(square)(torch.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 2.]])
    """
    gradient = grad(computation, argnum, options)
    shape = gradient.program_shape.result
    if not shape.is_array or not shape.element_type.is_floating:
        raise DifferentiationError("a Hessian is by a real array", subject=computation.name, got=shape,
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

    def elsewhere() -> Program:
        return hessian(StaticComputation(program.elsewhere), argnum, dataclasses.replace(chosen, portable=True)).program

    made: Any = StaticComputation(program.derived(builder.finish(found), elsewhere=elsewhere))
    return made
