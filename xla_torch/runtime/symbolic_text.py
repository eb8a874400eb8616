"""Shapes of programs of unknown sizes in words, ``f32[b,2*b]``, as they follow from the programs for some sizes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from ..core.shape import UNBOUNDED, ProgramShape, Shape


def all_leaves(shape: ProgramShape) -> list[Shape]:
    """The arrays of a program: of its parameters, then of its result."""
    return [leaf for s in (*shape.parameters, shape.result) for leaf in s.leaves()]


def with_unknown(shapes: Sequence[Shape]) -> Shape:
    """One shape for several that differ in sizes."""
    first = shapes[0]
    if first.is_tuple:
        return Shape.tuple([with_unknown(column) for column in zip(*(s.tuple_shapes for s in shapes), strict=True)])
    if not first.is_array:
        return first
    columns = list(zip(*(s.dimensions for s in shapes), strict=True))
    return Shape.array(first.element_type, [c[0] if len(set(c)) == 1 else UNBOUNDED for c in columns])


def text_of(shape: Shape, texts: Iterator[str]) -> str:
    """A shape in words, from the words of its arrays."""
    if shape.is_tuple:
        return f"({', '.join(text_of(s, texts) for s in shape.tuple_shapes)})"
    return next(texts)


def leaf_text(shapes: Sequence[Shape], points: Sequence[Mapping[str, int]], all_vary: bool) -> str:
    """An array's shape with names for sizes. Unless all names vary between the points, a size that does not vary is ``?``."""
    first = shapes[0]
    if not first.is_array:
        return str(first)
    columns = zip(*(s.dimensions for s in shapes), strict=True)
    sizes = ("?" if not all_vary and len(set(column)) == 1 else _size_text(column, points) for column in columns)
    return f"{first.element_type.text}[{','.join(sizes)}]"


def _size_text(sizes: Sequence[int], points: Sequence[Mapping[str, int]]) -> str:
    """How a size follows from the names at these points: a number, a product of names, a sum of multiples; ``?`` where it is
    none of these."""
    if len(set(sizes)) == 1:
        return str(sizes[0])
    start = points[0]
    varying = [n for n in start if any(s != sizes[0] for s, p in zip(sizes, points, strict=True)
                                       if p[n] != start[n] and sum(p[m] != start[m] for m in start) == 1)]
    product = math.prod(start[n] for n in varying)
    if varying and product and sizes[0] % product == 0:
        factor = sizes[0] // product
        if all(s == factor * math.prod(p[n] for n in varying) for s, p in zip(sizes, points, strict=True)):
            return "*".join([str(factor)] * (factor != 1) + varying)
    return _sum_text(sizes, points, varying) or "?"


def _sum_text(sizes: Sequence[int], points: Sequence[Mapping[str, int]], varying: Sequence[str]) -> str:
    start, factors = points[0], dict[str, int]()
    for name in varying:
        size, point = next((s, p) for s, p in zip(sizes, points, strict=True)
                           if p[name] != start[name] and all(p[m] == start[m] for m in start if m != name))
        factors[name], rest = divmod(size - sizes[0], point[name] - start[name])
        if rest:
            return ""
    constant = sizes[0] - sum(f * start[n] for n, f in factors.items())
    if any(s != constant + sum(f * p[n] for n, f in factors.items()) for s, p in zip(sizes, points, strict=True)):
        return ""
    terms = [n if f == 1 else f"{f}*{n}" for n, f in factors.items()] + [str(constant)] * (constant != 0)
    return "+".join(terms).replace("+-", "-")
