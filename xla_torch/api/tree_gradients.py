"""Derivatives, batches and training steps of functions over trees: each is found for the flat program, and gets its trees here.

A function's argument is a tree, which is many of its program's parameters. What is asked of an argument is asked of all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..core.errors import InvalidArgument
from ..hlo.canonical_values import integers_of
from ..pytree.structure import LEAF, Structure, tuple_of
from ..runtime.computation import XlaComputation
from ..runtime.steps import Step
from .tree_function import TreeFunction

Argnums = int | Sequence[int]


def gradient(function: TreeFunction, step: Step) -> TreeFunction:
    """`grad`: gradients have the form of their arguments."""
    flat, gradients = _with_gradients(function, step)
    return function.with_computation(flat, out_tree=gradients)


def value_and_gradient(function: TreeFunction, step: Step) -> TreeFunction:
    """`value_and_grad`: the value of the first result, then as `grad`."""
    flat, gradients = _with_gradients(function, step)
    return function.with_computation(flat, out_tree=tuple_of([_value(function), gradients]))


def vector_jacobian(function: TreeFunction, step: Step) -> TreeFunction:
    """`vjp`: one more argument, the cotangent of the result, of its form. Leaves that have no gradient are None in it, and in
    the gradients."""
    flat, gradients = _differentiated(function, step)
    in_tree, places = function.with_arguments([_of_result(function)])
    wanted = _one_or_all(step, gradients)
    out_tree = tuple_of([function.out_tree, wanted]) if step.given["with_outputs"] else wanted
    return function.with_computation(flat, in_tree, out_tree, places)


def jacobian_vector(function: TreeFunction, step: Step) -> TreeFunction:
    """`jvp`: a tangent more for each argument, of its form, with None for leaves that have none."""
    flat, tangents = _differentiated(function, step)
    in_tree, places = function.with_arguments(tangents)
    return function.with_computation(flat, in_tree, tuple_of([function.out_tree, _of_result(function)]), places)


def stepped(function: TreeFunction, step: Step) -> TreeFunction:
    """`training_step`: the state follows the positional arguments, and parameters come back as they went in."""
    flat, parameters = _with_gradients(function, step)
    state = [LEAF] * (len(flat.program_shape.parameters) - len(function.program_shape.parameters))
    in_tree, places = function.with_arguments(state)
    return function.with_computation(flat, in_tree, tuple_of([_value(function), parameters, tuple_of(state)]), places)


def batched(function: TreeFunction, step: Step) -> TreeFunction:
    """`vmap`: axes for each positional argument, or for parts of its tree; arguments given by name have the batch first."""
    arguments, by_name = function.in_tree.children[0].children, function.in_tree.children[1]
    in_axes = step.given["in_axes"]
    axes = list(in_axes) if isinstance(in_axes, (list, tuple)) else [in_axes] * len(arguments)
    if len(axes) != len(arguments):
        raise InvalidArgument("in_axes has the wrong length", subject="vmap", got=len(axes),
                              expected=f"{len(arguments)}, one an argument")
    spread = [axis for argument, own in zip(arguments, axes, strict=True) for axis in argument.broadcast_prefix(own)]
    spread += [None if in_axes is None else 0] * by_name.leaf_count
    flat: list[int | None] = [None] * len(spread)
    for place, axis in zip(function.places, spread, strict=True):
        flat[place] = axis
    return function.with_computation(step(function.computation, in_axes=flat))


def rebatched(function: TreeFunction, step: Step) -> TreeFunction:
    """`rebatch`: the arguments that hold a value for each example do so in all their leaves."""
    numbers, in_axes = _numbers(function, step), step.given["in_axes"]
    axes = [in_axes] * len(numbers) if isinstance(in_axes, int) else list(in_axes)
    if len(axes) != len(numbers):
        raise InvalidArgument("argnums and in_axes do not fit", subject="rebatch", got=f"{numbers}, {axes}",
                              expected="an axis for each argument")
    found = [(p, axis) for k, axis in zip(numbers, axes, strict=True) for p in function.parameters_of(k)]
    return function.with_computation(step(function.computation, argnums=[p for p, _ in found], in_axes=[a for _, a in found]))


# ------------------------------------------------------------------------------------------------------ what they share


def _with_gradients(function: TreeFunction, step: Step) -> tuple[XlaComputation, Structure]:
    """The step of the flat program, for arguments all of whose leaves have gradients, and the form of these."""
    numbers = _numbers(function, step)
    flat = step(function.computation, argnums=[p for k in numbers for p in function.differentiable_of(k)])
    return flat, _one_or_all(step, [function.argument(k) for k in numbers])


def _differentiated(function: TreeFunction, step: Step) -> tuple[XlaComputation, list[Structure]]:
    """The step of the flat program, for all leaves that have gradients, and the form of these in each argument."""
    numbers = _numbers(function, step)
    kept = {k: [(p, function.is_differentiable(p)) for p in function.parameters_of(k)] for k in numbers}
    flat = step(function.computation, argnums=[p for k in numbers for p, has in kept[k] if has])
    return flat, [function.argument(k).only([has for _, has in kept[k]]) for k in numbers]


def _numbers(function: TreeFunction, step: Step) -> list[int]:
    """The arguments that are asked about; None stands for all that are positional."""
    argnums = step.given["argnums"]
    if argnums is None:
        return list(range(len(function.in_tree.children[0].children)))
    return [argnums] if isinstance(argnums, int) else list(integers_of(argnums))


def _one_or_all(step: Step, structures: Sequence[Structure]) -> Structure:
    return structures[0] if isinstance(step.given["argnums"], int) else tuple_of(structures)


def _value(function: TreeFunction) -> Structure:
    return function.out_tree if function.out_tree.leaf_count == 1 else LEAF


def _of_result(function: TreeFunction) -> Structure:
    return function.out_tree.only([s.element_type.is_differentiable for s in function.result_leaves()])
