"""Whether two readers gave the same program: the first difference between two operations of `xla_torch.mlir.ir`, in words."""

from __future__ import annotations

import math

import numpy as np

from xla_torch.mlir import ir

NEWER = {("sdy.all_reduce", "reduction_op"), ("sdy.reduce_scatter", "reduction_op")}
"""Attributes that jaxlib has from 0.12 on, with a default of 0 that its text leaves out."""

Numbers = dict[ir.Value, tuple[int, int]]


def difference(a: ir.Operation, b: ir.Operation, *, locations: bool = True) -> str:
    """"" where the operations are equal with all that they hold; bits of constants count, the order of attributes does not."""
    numbers: tuple[Numbers, Numbers] = ({}, {})
    stack = [("", a, b)]
    while stack:
        path, x, y = stack.pop()
        path = f"{path}/{x.name}"
        if found := _operations(x, y, numbers, locations):
            return f"{path} (line {x.line}): {found}"
        for v, w in zip(x.results, y.results, strict=True):
            numbers[0][v] = numbers[1][w] = (len(numbers[0]), 0)
        below = []
        for r, s in zip(x.regions, y.regions, strict=True):
            for c, d in zip(r.blocks, s.blocks, strict=True):
                for v, w in zip(c.arguments, d.arguments, strict=True):
                    numbers[0][v] = numbers[1][w] = (len(numbers[0]), 0)
                below += [(path, o, p) for o, p in zip(c.operations, d.operations, strict=True)]
        stack += reversed(below)
    return ""


def _operations(x: ir.Operation, y: ir.Operation, numbers: tuple[Numbers, Numbers], locations: bool) -> str:
    if x.name != y.name:
        return f"name {x.name}, {y.name}"
    if [numbers[0].get(v) for v in x.operands] != [numbers[1].get(v) for v in y.operands]:
        return "operands"
    if [v.type for v in x.results] != [v.type for v in y.results]:
        return f"results {[v.type for v in x.results]}, {[v.type for v in y.results]}"
    shapes = [[[(len(b.operations), [v.type for v in b.arguments]) for b in r.blocks] for r in o.regions] for o in (x, y)]
    if shapes[0] != shapes[1]:
        return f"regions {shapes[0]}, {shapes[1]}"
    if locations and (x.location or ir.Location()) != (y.location or ir.Location()):
        return f"location {x.location}, {y.location}"
    ours, theirs = ({k: v for k, v in o.attributes.items() if v or (o.name, k) not in NEWER} for o in (x, y))
    return attribute_difference(ours, theirs)


def attribute_difference(a: ir.Attribute, b: ir.Attribute, depth: int = 0) -> str:
    """The first difference between two attributes, in words. Types of numbers count in dictionaries that an operation has; those
    of its own numbers are known."""
    if isinstance(a, dict) and isinstance(b, dict):
        if a.keys() != b.keys():
            return f"attributes {sorted(map(str, a.keys() ^ b.keys()))}"
        return next((f"{k}: {d}" for k in a if (d := attribute_difference(a[k], b[k], depth + 1))), "")
    if depth > 1 and getattr(a, "type", None) != getattr(b, "type", None) and not isinstance(a, ir.Elements):
        return f"{a!r} of type {getattr(a, 'type', None)}, {b!r} of {getattr(b, 'type', None)}"
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        return next((f"[{k}]: {d}" for k, (x, y) in enumerate(zip(a, b, strict=True))
                     if (d := attribute_difference(x, y, depth))), "")
    if isinstance(a, ir.Elements) and isinstance(b, ir.Elements):
        return _elements(a, b)
    if isinstance(a, ir.Struct) and isinstance(b, ir.Struct) and a.kind == b.kind:
        return attribute_difference(a.fields, b.fields)
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b):
        return ""
    return "" if _kind(a) is _kind(b) and a == b else f"{a!r}, {b!r}"


def _kind(given: ir.Attribute) -> type:
    """What sort of value it is, whether it has a type of its own or not."""
    return next((kind for kind in (bool, int, float) if isinstance(given, kind)), type(given))


def _elements(a: ir.Elements, b: ir.Elements) -> str:
    if a.type != b.type:
        return f"{a.type}, {b.type}"
    if a.value.dtype != b.value.dtype or a.value.shape != b.value.shape:
        return f"{a.value.dtype}{a.value.shape}, {b.value.dtype}{b.value.shape}"
    same = a.value.tobytes() == b.value.tobytes() if a.value.size < 1 << 24 else bool(np.array_equal(a.value, b.value))
    return "" if same else f"{a.value}, {b.value}"
