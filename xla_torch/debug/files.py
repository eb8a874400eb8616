"""Two files of programs, compared: whether their results differ, in words and as an exit status."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..api.dumps import compared
from ..api.loading import load
from ..core.errors import XlaError
from ..core.shape import Shape
from ..hlo.ir import Computation
from ..hlo.regions import has_regions_of_values, regions
from ..hlo.tree import arrays
from ..runtime.computation import XlaComputation
from ..runtime.static import numpy_from_tensor, tensor_from_numpy
from .counterparts import Counterparts
from .divergence import divergence_of

EQUAL, DIFFERENT, TROUBLE = range(3)
"""Exit statuses, as those of diff(1); a replay that is not as it was recorded is `DIFFERENT` as well."""


@dataclasses.dataclass(frozen=True)
class Difference:
    """How the results of two programs differ: in words, as an exit status, and the numbers of the results that do, each with by
    how much at most."""

    words: str
    status: int
    results: tuple[tuple[int, float], ...] = ()


def difference(first: Path, second: Path, drawn: Callable[[Sequence[Shape]], list[Any]], tolerance: float) -> Difference:
    """How the results of two programs differ for drawn arguments."""
    try:
        return _difference(load(first), load(second), first.name, drawn, tolerance)
    except XlaError as error:
        return Difference(f"not compared: {error}", TROUBLE)


def _difference(a: XlaComputation, b: XlaComputation, name: str, drawn: Callable[[Sequence[Shape]], list[Any]],
                tolerance: float) -> Difference:
    shapes, others = a.program_shape.parameters, b.program_shape.parameters
    if [str(s) for s in shapes] != [str(s) for s in others]:
        return Difference(f"differs: the parameters are {a.program_shape} and {b.program_shape}", DIFFERENT)
    tensors = tuple(tensor_from_numpy(v, s, n) for n, (v, s) in enumerate(zip(drawn(shapes), shapes, strict=True)))
    given = a(*tensors), b(*tensors)
    x, y = (_in_numpy(result, c.program_shape.result) for result, c in zip(given, (a, b), strict=True))
    if len(x) != len(y):
        return Difference(f"differs: the results are {a.program_shape.result} and {b.program_shape.result}", DIFFERENT)
    found = divergence_of(a, b, tensors, given, tolerance)
    lines = [f"{'differs' if found else 'equal'}: {_counted(a, b)}", compared(y, x, name)]
    return Difference("\n".join([*lines, str(found)] if found else lines), DIFFERENT if found else EQUAL, found.results)


def _in_numpy(result: Any, shape: Shape) -> list[np.ndarray]:
    return [numpy_from_tensor(value, leaf) for value, leaf in arrays(result, shape) if leaf.is_array]


def _counted(a: XlaComputation, b: XlaComputation) -> str:
    """How many instructions there are, and how many have no counterpart."""
    pairs = Counterparts(a.program.canonical, b.program.canonical).of
    sides = _all(a.program.canonical), _all(b.program.canonical)
    partners = set(pairs.values())
    alone = [sum(i not in known for i in side) for side, known in zip(sides, (partners, pairs), strict=True)]
    return f"{len(sides[0])} and {len(sides[1])} instructions, only in the first {alone[0]}, only in the second {alone[1]}"


def _all(computation: Computation) -> set[Any]:
    found = set(computation.instructions)
    for i in filter(has_regions_of_values, computation.instructions):
        for region in regions(i):
            found |= _all(region.computation)
    return found
