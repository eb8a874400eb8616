"""`vmap`: a program for one example as a program for a batch, for every op, loop and branch (see `batching/`).
`rebatch`: a program for a batch as one for a batch of another size (see `batching/`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from ..batching.programs import batched
from ..batching.rebatched_programs import rebatched
from ..core.errors import InvalidArgument
from ..hlo.ir import Computation
from ..runtime.computation import XlaComputation
from ..runtime.static import StaticComputation
from ..runtime.steps import Step, entry_point
from ..stablehlo.convert import Fact
from ..transform.opened_composites import without_composites
from . import tree_gradients

Axes = int | None | Sequence[Any]
"""For each parameter None or a dimension; for an argument that is a tree, a tree of these."""

C = TypeVar("C", bound=XlaComputation)


def _of_one_example(step: Step, facts: Sequence[Fact], count: int) -> list[Fact]:
    """What is known of one example's arguments, where this is known of a batch's."""
    axes = step.given["in_axes"]
    each = list(axes) if isinstance(axes, Sequence) else [axes] * len(facts)
    return [(sizes, value) if axis is None else (_without(sizes, axis), None)
            for (sizes, value), axis in zip(facts, each, strict=False)]


def _without(sizes: Sequence[Any], axis: int) -> tuple[Any, ...]:
    axis += len(sizes) if axis < 0 else 0
    return *sizes[:axis], *sizes[axis + 1:]


@entry_point(_of_one_example, tree_gradients.batched)
def vmap(computation: C, size: int, in_axes: Axes = 0) -> C:
    """Vectorize a program over a batch of `size` examples.

    `in_axes` gives the batch dimension of each parameter (or of all); None shares a parameter among examples. Negative
    dimensions count from the end of the batched array. All arrays of a tuple parameter have the same batch dimension, and all
    results have dimension 0. A loop runs until its last example is done, and branches that differ between examples are all
    computed. Ops without a batched form run in a loop over examples. Ops with effects that don't depend on a batched value (a
    shared random number) run once. torch.func.vmap also takes programs, with its own arguments ``in_dims``, ``out_dims``,
    ``randomness``, ``chunk_size``. For functions over pytrees, `in_axes` refers to positional arguments and may have their
    structure.

    Raises InvalidArgument for axes that don't fit the parameters; UnsupportedError for ops on dynamic sizes and on tokens.

    >>> square = xla_torch.parse_hlo("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] multiply(x, x) }")
    >>> xla_torch.vmap(square, 3)(torch.ones(3, 2)).shape
    torch.Size([3, 2])
    """
    entry = computation.program.differentiable
    found = batched(f"vmap_{computation.name}", entry, size, _axes_of(entry, in_axes))
    return _derived(computation, found)


@entry_point(over_trees=tree_gradients.rebatched)
def rebatch(computation: C, argnums: int | Sequence[int], size: int, in_axes: int | Sequence[int] = 0) -> C:
    """Convert a program made for one batch size to a batch of `size` examples.

    `argnums` are the parameters with a batch dimension, and `in_axes` their batch dimensions (for all arrays of a tuple). The
    new program computes for each example what the old one computed, at any position and with any neighbours. The program must
    prove this: each op on the batch has to treat examples independently. Reductions over the batch are allowed for and, or,
    minimum and maximum only. A sum or mean is refused, because the program doesn't say which constant was the batch size. The
    ops determine the batch dimension of a result. Custom derivatives hold for groups of the old size; where examples interact
    they are dropped, with a warning at differentiation (LostDerivatives). For functions over pytrees, `argnums` are positional
    arguments, and `in_axes` applies to all leaves.

    Raises UnsupportedError with the instruction that prevents it; InvalidArgument for parameters and axes that don't fit.

    >>> square = xla_torch.parse_hlo("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] multiply(x, x) }")
    >>> xla_torch.rebatch(square, 0, 3)(torch.tensor([1.0, 2.0, 3.0]))
    tensor([1., 4., 9.])
    """
    entry = without_composites(computation.program.canonical)
    numbers = [argnums] if isinstance(argnums, int) else list(argnums)
    axes = [in_axes] * len(numbers) if isinstance(in_axes, int) else list(in_axes)
    program = computation.program
    own = program.authored if program.brings_derivatives else None  # where composites are calls
    found, by_calls = rebatched(entry, own, numbers, axes, _batch_of(entry, numbers, axes, size), size)
    return StaticComputation(program.derived(found, by_calls, own is not None and by_calls is None))  # pyright: ignore


def _derived(computation: XlaComputation, found: Computation) -> Any:
    return StaticComputation(computation.program.derived(found))


def _batch_of(entry: Computation, numbers: Sequence[int], axes: Sequence[int], size: int) -> int:
    """The size of the batch that all these parameters have."""
    if len(axes) != len(numbers) or not numbers or len(set(numbers)) != len(numbers):
        raise InvalidArgument("argnums and in_axes do not fit", subject="rebatch", got=f"{list(numbers)}, {list(axes)}",
                              expected="different parameters, at least one, and an axis for each")
    if not isinstance(size, int) or size < 1:
        raise InvalidArgument("the size of the batch is missing", subject="rebatch", got=size, expected="1 or more")
    found: dict[int, str] = {}
    for number, axis in zip(numbers, axes, strict=True):
        if not 0 <= number < len(entry.parameters):
            raise InvalidArgument(f"there is no parameter {number}", subject="rebatch",
                                  expected=f"0 to {len(entry.parameters) - 1}")
        parameter = entry.parameters[number].shape
        for leaf in (leaf for leaf in parameter.leaves() if leaf.is_array):
            if not 0 <= axis < leaf.rank:
                raise InvalidArgument(f"axis {axis} is out of range for parameter {number}", subject="rebatch", got=parameter)
            found.setdefault(leaf.dimensions[axis], f"parameter {number} {parameter.without_layout()}, axis {axis}")
    if len(found) != 1 or 0 in found:
        raise InvalidArgument("the parameters have no common batch", subject="rebatch",
                              got="; ".join(found.values()) or "no arrays", expected="one size, 1 or more")
    return next(iter(found))


def _axes_of(entry: Computation, in_axes: Axes) -> list[int | None]:
    count = len(entry.parameters)
    axes = list(in_axes) if isinstance(in_axes, Sequence) else [in_axes] * count
    if len(axes) != count:
        raise InvalidArgument("in_axes has the wrong length", subject="vmap", got=len(axes), expected=f"{count}, one a parameter")
    for k, (axis, parameter) in enumerate(zip(axes, entry.parameters, strict=True)):
        ranks = [leaf.rank for leaf in parameter.shape.leaves() if leaf.is_array]
        if axis is not None and not all(-rank - 1 <= axis <= rank for rank in ranks or [0]):
            raise InvalidArgument(f"axis {axis} is out of range for parameter {k}", subject="vmap", got=parameter.shape,
                                  expected=f"{-min(ranks, default=0) - 1} to {min(ranks, default=0)}, or None")
        if axis is not None and axis < 0:
            if len(set(ranks)) > 1:
                raise InvalidArgument(f"axis {axis} differs among the arrays of parameter {k}", subject="vmap",
                                      got=parameter.shape, expected="one counted from the front")
            axes[k] = axis + max(ranks, default=0) + 1
    return axes
