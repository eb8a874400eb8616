"""Where two programs part: instructions that mean the same on both sides, and the first whose values differ."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable
from typing import Any

import torch

from ..computation import XlaComputation, require_computation
from ..errors import InvalidArgument
from ..hlo.ir import Computation, Instruction, Module
from ..hlo.printer import print_module
from ..hlo.regions import has_regions_of_values, regions
from ..hlo.structure import CONSTANT, PARAMETER
from ..hlo.tree import arrays
from .observing import observed
from .steps import Step, far

KEEP = 1 << 30
"""How many bytes of the first program's values are kept for comparison, unless it is told."""


@dataclasses.dataclass(frozen=True)
class Divergence:
    """The first instruction whose value differs, on both sides, by how much at most, and how many were compared before it."""

    a: Step
    b: Step
    difference: float
    compared: int

    def reduce(self) -> tuple[str, str]:
        """On each side the smallest program around it, as HLO text: the instruction alone, of its operands."""
        return _alone(self.a.instruction), _alone(self.b.instruction)

    def __str__(self) -> str:
        return (f"after {self.compared} that agree, values differ by up to {self.difference:.6g}\n  a  {self.a}\n  b  {self.b}")


def first_divergence(a: XlaComputation, b: XlaComputation, *arguments: Any, tolerance: float = 1e-5,
                     keep: int = KEEP) -> Divergence | None:
    """The first instruction of `b`, in the order of its evaluation, whose value differs from that of the instruction of `a` which
    means the same; None where all agree that could be matched. Elements may differ by `tolerance` of themselves and of the
    largest. Instructions are matched by structure, then by name, then by op_name; the roots always.

    Raises InvalidArgument where `a` has more than `keep` bytes of values to compare."""
    require_computation(a, "first_divergence")
    require_computation(b, "first_divergence")
    comparison = _Comparison(a, b, tolerance, keep)
    with observed(comparison.keep):
        a(*arguments)
    with observed(comparison.compare):
        b(*arguments)
    return comparison.found


class _Comparison:
    """Two programs, instruction by instruction: the first one's values, and how many of the second's agreed."""

    def __init__(self, a: XlaComputation, b: XlaComputation, tolerance: float, most: int):
        self.tolerance, self.most = tolerance, most
        self.pairs: dict[Instruction, Instruction] = {}
        _match(a.program.canonical, b.program.canonical, self.pairs)
        self.partners = set(self.pairs.values())
        self.known: dict[Hashable, Step] = {}
        self.size = self.compared = 0
        self.found: Divergence | None = None

    def keep(self, step: Step) -> None:
        """Keep a value of the first program."""
        if step.instruction not in self.partners or has_regions_of_values(step.instruction):
            return
        self.size += step.instruction.shape.byte_size
        if self.size > self.most:
            raise InvalidArgument("the values to compare take more than is kept", subject="first_divergence", got=step.label,
                                  expected=f"{self.most} bytes at most", hint="a larger keep=")
        self.known[step.instruction, _iterations(step)] = step

    def compare(self, step: Step) -> None:
        """Compare a value of the second program, until one differs."""
        other = self.known.get((self.pairs.get(step.instruction), _iterations(step)))
        if other is None or self.found is not None:
            return
        difference = _difference(other, step, self.tolerance)
        if difference:
            self.found = Divergence(other, step, difference, self.compared)
        self.compared += 1


def _iterations(step: Step) -> tuple[int, ...]:
    return tuple(number for _, number in step.place)


def _difference(a: Step, b: Step, tolerance: float) -> float:
    found = 0.0
    for (x, _), (y, _) in zip(arrays(a.value, a.instruction.shape), arrays(b.value, b.instruction.shape), strict=True):
        if x is not None and y is not None:
            found = max(found, float("inf") if x.shape != y.shape else far(x, y, tolerance, tolerance * _largest(y)))
    return found


def _largest(tensor: torch.Tensor) -> float:
    wide = tensor.abs().double() if tensor.is_complex() else tensor.double()
    finite = wide[wide.isfinite()].abs()
    return float(finite.max()) if finite.numel() else 0.0


def _match(a: Computation, b: Computation, pairs: dict[Instruction, Instruction]) -> None:
    """Note in `pairs` which instruction of `a` each of `b` is."""
    left: dict[Hashable, list[Instruction]] = {}
    ours: dict[Instruction, Instruction] = {}
    for i in a.instructions:
        left.setdefault(_structure(i, lambda o: o), []).append(i)
    for i in b.instructions:  # operands come first, so that they are matched already
        if all(o in ours for o in i.operands):
            same = left.get(_structure(i, ours.__getitem__))
            if same:
                ours[i] = same.pop(0)
    for key in (lambda i: i.name, lambda i: i.op_name):
        _by(key, a, b, ours)
    if len(list(a.root.shape.leaves())) == len(list(b.root.shape.leaves())):
        ours.setdefault(b.root, a.root)
    pairs.update(ours)
    for mine, theirs in ours.items():
        for x, y in zip(regions(theirs), regions(mine), strict=False):
            alike = x.role is y.role and len(x.computation.parameters) == len(y.computation.parameters)
            if alike and has_regions_of_values(mine):
                _match(x.computation, y.computation, pairs)


def _by(key: Callable[[Instruction], str], a: Computation, b: Computation, ours: dict[Instruction, Instruction]) -> None:
    """Match what is left by a text that stands for one instruction only on each side, of one opcode and one size."""
    taken = set(ours.values())
    sides: list[dict[Hashable, list[Instruction]]] = [{}, {}]
    for side, instructions in zip(sides, ((i for i in a.instructions if i not in taken),
                                          (i for i in b.instructions if i not in ours)), strict=True):
        for i in instructions:
            if key(i) and i.opcode not in (CONSTANT, PARAMETER):
                side.setdefault((key(i), i.opcode, _sizes(i)), []).append(i)
    for name, mine in sides[1].items():
        theirs = sides[0].get(name, [])
        if len(mine) == len(theirs) == 1:
            ours[mine[0]] = theirs[0]


def _structure(instruction: Instruction, of: Callable[[Instruction], Instruction]) -> Hashable:
    """What an instruction is, but for its element type: opcode, sizes, attributes, and the operands of the first program."""
    attributes = tuple(sorted((name, _said(value)) for name, value in instruction.attributes.items()))
    return instruction.opcode, _sizes(instruction), attributes, tuple(id(of(o)) for o in instruction.operands)


def _said(value: Any) -> str:
    if isinstance(value, Computation):
        return f"{len(value.parameters)} {value.root.opcode}"
    if isinstance(value, tuple):
        return ",".join(map(_said, value))
    array = getattr(value, "array", None)
    # Values are compared afterwards, so that a few numbers of a constant are enough to tell it from others.
    return repr(array.reshape(-1)[:64].tolist()) if array is not None else str(value)


def _sizes(instruction: Instruction) -> Hashable:
    return tuple(leaf.dimensions for leaf in instruction.shape.leaves())


def _alone(instruction: Instruction) -> str:
    """A program of this instruction only, whose operands are its parameters."""
    parameters = [Instruction(PARAMETER, o.shape, (), {"parameter_number": n}, f"operand_{n}")
                  for n, o in enumerate(instruction.operands)]
    root = Instruction(instruction.opcode, instruction.shape, parameters, instruction.attributes, instruction.name,
                       instruction.common)
    return print_module(Module("reduced", Computation("main", [*parameters, root])))
