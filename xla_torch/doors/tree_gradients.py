"""Derivatives, batches and training steps of functions over trees: each is found for the flat program, and gets its trees here.

A function's argument is a tree, which is many of its program's parameters. What is asked of an argument is asked of all of them.
Each gives a `JaxFunction`; the doors promise whatever class they were given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..core.errors import InvalidArgument
from ..hlo.canonical_values import integers_of
from ..running.computation import XlaComputation
from ..trees.structure import LEAF, Structure, tuple_of
from .tree_function import JaxFunction

Argnums = int | Sequence[int]
OfNumbers = Callable[[XlaComputation, list[int]], XlaComputation]
"""What is made of a flat program and some of its parameters."""


def gradient(function: JaxFunction, argnums: Argnums, make: OfNumbers, with_value: bool) -> Any:
    """`grad` or `value_and_grad`: gradients have the form of their arguments."""
    numbers = _numbers(argnums)
    flat = make(function.computation, [p for k in numbers for p in function.differentiable_of(k)])
    gradients = _one_or_all(argnums, [function.argument(k) for k in numbers])
    value = function.out_tree if function.out_tree.leaf_count == 1 else LEAF
    return function.with_computation(flat, out_tree=tuple_of([value, gradients]) if with_value else gradients)


def vector_jacobian(function: JaxFunction, argnums: Argnums | None, make: OfNumbers, with_outputs: bool) -> Any:
    """`vjp`: one more argument, the cotangent of the result, of its form. Leaves that have no gradient are None in it, and in
    the gradients."""
    numbers = list(range(len(function.in_tree.children[0].children))) if argnums is None else _numbers(argnums)
    kept = [(k, p, function.is_differentiable(p)) for k in numbers for p in function.parameters_of(k)]
    flat = make(function.computation, [p for _, p, has in kept if has])
    of_result = function.out_tree.only([s.element_type.is_differentiable for s in function.result_leaves()])
    in_tree, places = function.with_arguments([of_result])
    gradients = [function.argument(k).only([has for j, _, has in kept if j == k]) for k in numbers]
    wanted = _one_or_all(argnums, gradients)
    return function.with_computation(flat, in_tree, tuple_of([function.out_tree, wanted]) if with_outputs else wanted, places)


def jacobian_vector(function: JaxFunction, argnums: Argnums | None, make: OfNumbers) -> Any:
    """`jvp`: a tangent more for each argument, of its form, with None for leaves that have none."""
    numbers = list(range(len(function.in_tree.children[0].children))) if argnums is None else _numbers(argnums)
    kept = [(k, p, function.is_differentiable(p)) for k in numbers for p in function.parameters_of(k)]
    flat = make(function.computation, [p for _, p, has in kept if has])
    tangents = [function.argument(k).only([has for j, _, has in kept if j == k]) for k in numbers]
    in_tree, places = function.with_arguments(tangents)
    of_result = function.out_tree.only([s.element_type.is_differentiable for s in function.result_leaves()])
    return function.with_computation(flat, in_tree, tuple_of([function.out_tree, of_result]), places)


def batched(function: JaxFunction, in_axes: object,
            make: Callable[[XlaComputation, list[int | None]], XlaComputation]) -> Any:
    """`vmap`: axes for each positional argument, or for parts of its tree; arguments given by name have the batch first."""
    arguments, by_name = function.in_tree.children[0].children, function.in_tree.children[1]
    axes = list(in_axes) if isinstance(in_axes, (list, tuple)) else [in_axes] * len(arguments)
    if len(axes) != len(arguments):
        raise InvalidArgument("in_axes has the wrong length", subject="vmap", got=len(axes),
                              expected=f"{len(arguments)}, one an argument")
    spread = [axis for argument, own in zip(arguments, axes, strict=True) for axis in argument.spread(own)]
    spread += [None if in_axes is None else 0] * by_name.leaf_count
    flat: list[int | None] = [None] * len(spread)
    for place, axis in zip(function.places, spread, strict=True):
        flat[place] = axis
    return function.with_computation(make(function.computation, flat))


def rebatched(function: JaxFunction, argnums: Argnums, in_axes: Argnums,
              make: Callable[[XlaComputation, list[int], list[int]], XlaComputation]) -> Any:
    """`rebatch`: the arguments that hold a value for each example do so in all their leaves."""
    numbers = _numbers(argnums)
    axes = [in_axes] * len(numbers) if isinstance(in_axes, int) else list(in_axes)
    if len(axes) != len(numbers):
        raise InvalidArgument("argnums and in_axes do not fit", subject="rebatch", got=f"{numbers}, {axes}",
                              expected="an axis for each argument")
    found = [(p, axis) for k, axis in zip(numbers, axes, strict=True) for p in function.parameters_of(k)]
    return function.with_computation(make(function.computation, [p for p, _ in found], [axis for _, axis in found]))


def stepped(function: JaxFunction, argnums: Argnums, make: OfNumbers) -> Any:
    """`training_step`: the state follows the positional arguments, and parameters come back as they went in."""
    numbers = _numbers(argnums)
    flat = make(function.computation, [p for k in numbers for p in function.differentiable_of(k)])
    count = len(flat.program_shape.parameters) - len(function.program_shape.parameters)
    in_tree, places = function.with_arguments([LEAF] * count)
    parameters = _one_or_all(argnums, [function.argument(k) for k in numbers])
    value = function.out_tree if function.out_tree.leaf_count == 1 else LEAF
    return function.with_computation(flat, in_tree, tuple_of([value, parameters, tuple_of([LEAF] * count)]), places)


def _numbers(argnums: Argnums) -> list[int]:
    return [argnums] if isinstance(argnums, int) else list(integers_of(argnums))


def _one_or_all(argnums: Argnums | None, structures: Sequence[Structure]) -> Structure:
    return structures[0] if isinstance(argnums, int) else tuple_of(structures)
