"""Shrinks a program that fails: fewer results, parameters or operands in place of instructions, simpler arguments."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np

from fuzz.drawing import literal
from fuzz.programs import Computation, Program, Value, needed
from support.agreement import dtype_of

Fails = Callable[[Program], object]


def shrunk(program: Program, fails: Fails, steps: int = 600) -> Program:
    """A program that still fails and has no smaller neighbour that does, or after so many trials the best so far."""
    program = needed(program)
    changed = True
    while changed and steps > 0:
        changed = False
        for smaller in neighbours(program):
            steps -= 1
            if steps <= 0:
                break
            if _fails(smaller, fails):
                program, changed = smaller, True
                break
    return program


def _fails(program: Program, fails: Fails) -> bool:
    return bool(program.results) and bool(fails(program))


def neighbours(program: Program) -> Iterator[Program]:
    """Smaller programs, those first that are much smaller."""
    if len(program.results) > 1:
        for name in program.results:
            yield needed(dataclasses.replace(program, results=[name]))
    for value in reversed(program.values):  # another root
        if value.is_tuple or any(value.part.dynamic) or value.opcode in ("parameter", "constant"):
            continue
        if value.name not in program.results:
            yield needed(dataclasses.replace(program, results=[value.name]))
    for value in reversed(program.values):
        if value.opcode in ("parameter", "constant") or value.is_tuple or any(value.part.dynamic):
            continue
        if value.name not in program.results:
            yield with_parameter(program, value)
        for operand in value.operands:
            if program.named()[operand].parts == value.parts:
                yield replaced(program, value.name, operand)
    for number, region in enumerate(program.regions):
        for smaller in smaller_regions(region):
            regions = [*program.regions[:number], smaller, *program.regions[number + 1:]]
            yield needed(dataclasses.replace(program, regions=regions))
    for name, array in program.arguments.items():
        if array.size and not np.all(array == np.ones((), array.dtype)):
            yield dataclasses.replace(program, arguments=program.arguments | {name: np.ones_like(array)})


def with_parameter(program: Program, value: Value) -> Program:
    """A value is an argument instead of computed."""
    part = dataclasses.replace(value.part, rough=False)
    position = program.values.index(value)
    array = np.random.default_rng(position).integers(0, 3, part.dims).astype(dtype_of(part.type))
    made = Value(value.name, (part,), "parameter")
    values = [made if v is value else v for v in program.values]
    order = [v.name for v in values if v.opcode == "parameter"]
    arguments, *others = ({n: (own | {value.name: array})[n] for n in order} for own in (program.arguments, *program.others))
    return needed(dataclasses.replace(program, values=values, arguments=arguments, others=others))


def replaced(program: Program, name: str, by: str) -> Program:
    values = [dataclasses.replace(v, operands=tuple(by if o == name else o for o in v.operands))
              for v in program.values if v.name != name]
    return needed(dataclasses.replace(program, values=values,
                                      results=list(dict.fromkeys(by if r == name else r for r in program.results))))


def smaller_regions(region: Computation) -> Iterator[Computation]:
    """The region with one of its values a constant, or one of its operands."""
    named = {v.name: v for v in region.values}
    for value in region.values[:-1]:
        if value.opcode in ("parameter", "constant") or value.is_tuple:
            continue
        zeros = literal(np.zeros(value.part.dims, dtype_of(value.part.type)))
        constant = Value(value.name, (dataclasses.replace(value.part, rough=False),), "constant", contents=zeros)
        yield _used(Computation(region.name, [constant if v is value else v for v in region.values]))
        for operand in value.operands:
            if named[operand].parts == value.parts:
                yield _used(Computation(region.name, [
                    dataclasses.replace(v, operands=tuple(operand if o == value.name else o for o in v.operands))
                    for v in region.values if v is not value]))


def _used(region: Computation) -> Computation:
    """Without what the root does not need."""
    named, wanted, queue = {v.name: v for v in region.values}, set(), [region.values[-1].name]
    while queue:
        name = queue.pop()
        if name not in wanted:
            wanted.add(name)
            queue += named[name].operands
    return Computation(region.name, [v for v in region.values if v.name in wanted or v.opcode == "parameter"])
