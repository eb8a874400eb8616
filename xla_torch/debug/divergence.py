"""Where two programs part: whether their results differ, and back from there the first instruction that is to blame.

Results come first: where they agree, no instruction is blamed, whatever an optimiser made of what lies before them. Where they
differ, instructions with counterparts (`counterparts.py`) are walked back to through the values that they were made of
(`dataflow.py`), as long as those differ too. What has no counterpart is named as such.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import torch

from ..core.errors import InvalidArgument
from ..core.shape import Shape
from ..hlo.ir import Computation, Instruction, Module
from ..hlo.printer import print_module
from ..hlo.regions import is_loop
from ..hlo.structure import PARAMETER
from ..hlo.tree import arrays
from ..runtime.computation import XlaComputation
from ..runtime.steps import require_computation
from .counterparts import Counterparts
from .dataflow import Dataflow, Node, Place, is_wiring
from .observing import observed
from .steps import Step, far

Instructions = tuple[Instruction, ...]

KEEP = 1 << 30
"""How many bytes of the first program's values are kept for comparison, unless it is told."""


@dataclasses.dataclass(frozen=True)
class Divergence:
    """Report where two programs diverge; false if their results agree.

    `results` maps the number of each differing result to its largest difference. `a` and `b` are the first diverging
    instructions of both sides: their inputs (`agreeing`, of `b`) agree, and their values differ by up to `difference`.
    `without_counterpart` lists the instructions in between that the other side lacks. `compared` counts the values that agree.

    >>> square = xla_torch.parse_hlo("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] multiply(x, x) }")
    >>> twice = xla_torch.parse_hlo("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] add(x, x) }")
    >>> found = xla_torch.debug.first_divergence(square, twice, torch.tensor([3.0, 2.0]))
    >>> bool(found), found.results, found.a.name, [text.count("parameter(") for text in found.reduce()]
    (True, ((0, 3.0),), 'y', [2, 2])
    """

    a: Step | None = None
    b: Step | None = None
    difference: float = 0.0
    compared: int = 0
    results: tuple[tuple[int, float], ...] = ()
    agreeing: tuple[Instruction, ...] = ()
    without_counterpart: tuple[tuple[Instruction, ...], tuple[Instruction, ...]] = ((), ())

    def __bool__(self) -> bool:
        return bool(self.results)

    def reduce(self) -> tuple[str, str]:
        """Return the smallest program around the diverging instruction of each side, as HLO text.

        Raises InvalidArgument if the results agree.
        """
        if self.a is None or self.b is None:
            raise InvalidArgument("the results agree, and no instruction is to blame", subject="Divergence.reduce")
        return _alone(self.a.instruction), _alone(self.b.instruction)

    def __str__(self) -> str:
        if not self.results:
            return "the results agree"
        lines = [f"result {number} differs by up to {difference:.6g}" for number, difference in self.results]
        lines.append(f"after {self.compared} that agree, values differ by up to {self.difference:.6g}")
        lines += [f"  a  {self.a}", f"  b  {self.b}"]
        ours, theirs = self.without_counterpart
        if (ours or theirs) and self.b is not None:
            before = _names(self.agreeing) or "the beginning"
            lines.append(f"between {before} (equal) and %{self.b.name} (differs) {len(ours)} instructions of a and {len(theirs)} "
                         "of b have no counterpart")
            lines += [f"  {side}  {_names(found)}" for side, found in (("a", ours), ("b", theirs)) if found]
        return "\n".join(lines)


def _names(instructions: Iterable[Instruction], most: int = 8) -> str:
    names = [f"%{i.name}" for i in instructions]
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def first_divergence(a: XlaComputation, b: XlaComputation, *arguments: Any, tolerance: float = 1e-5,
                     keep: int = KEEP) -> Divergence:
    """Run two programs on the same arguments and find the first instruction where they diverge.

    Elements may differ by `tolerance`, relative to themselves and to the largest one; NaN equals NaN. Instructions are matched
    by structure, then by name, then by op_name, and results by position. The result is the first instruction, in evaluation
    order, whose inputs agree and whose differing value reaches a differing result.

    Raises InvalidArgument if the programs have different numbers of results, or if `a` has more than `keep` bytes of values.

    >>> square = xla_torch.parse_hlo("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] multiply(x, x) }")
    >>> twice = xla_torch.parse_hlo("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] add(x, x) }")
    >>> found = xla_torch.debug.first_divergence(square, twice, torch.tensor([3.0, 2.0]))
    >>> bool(found), found.a.instruction.opcode, found.b.instruction.opcode
    (True, 'multiply', 'add')
    """
    require_computation(a, "first_divergence")
    require_computation(b, "first_divergence")
    return divergence_of(a, b, arguments, (a(*arguments), b(*arguments)), tolerance, keep)


def divergence_of(a: XlaComputation, b: XlaComputation, arguments: tuple[Any, ...], given: tuple[Any, Any], tolerance: float,
                  keep: int = KEEP) -> Divergence:
    """See `first_divergence`: of two programs that gave these results for these arguments."""
    shapes = [c.program_shape.result for c in (a, b)]
    x, y = (arrays(result, shape) for result, shape in zip(given, shapes, strict=True))
    if len(x) != len(y):
        raise InvalidArgument("the programs have different numbers of results", subject="first_divergence", got=shapes[1],
                              expected=shapes[0])
    apart = [_apart(v, w, tolerance) for (v, _), (w, _) in zip(x, y, strict=True)]
    results = tuple((number, difference) for number, difference in enumerate(apart) if difference)
    return _Comparison(a, b, tolerance, keep).walked(arguments, results) if results else Divergence()


class _Comparison:
    """Two programs that differ: which values agree, of all that have counterparts."""

    def __init__(self, a: XlaComputation, b: XlaComputation, tolerance: float, most: int):
        self.programs, self.tolerance, self.most = (a, b), tolerance, most
        self.roots = a.program.canonical.root, b.program.canonical.root
        self.pairs = Counterparts(a.program.canonical, b.program.canonical)
        self.flows = Dataflow(a.program.canonical), Dataflow(b.program.canonical)
        self.partners = set(self.pairs.of.values())
        self.loops = {mine.name: theirs.name for mine, theirs in self.pairs.of.items() if is_loop(mine)}
        self.known: dict[Node, tuple[Any, Shape] | None] = {}
        self.size = 0
        self.apart: dict[Node, float] = {}
        self.other: dict[Node, Node] = {}  # of both sides: the node of the other

    def walked(self, arguments: tuple[Any, ...], results: tuple[tuple[int, float], ...]) -> Divergence:
        """Run both again, and walk back from the results that differ."""
        for program, observer in zip(self.programs, (self.keep, self.compare), strict=True):
            with observed(observer):
                program(*arguments)
        self.known.clear()
        self.pairs.settle({node.instruction for node, difference in self.apart.items() if difference})
        blamed, agreeing, alone = self._blamed([number for number, _ in results])
        steps = [_step(program, node, arguments) for program, node in zip(self.programs, blamed, strict=True)]
        difference = self.apart.get(blamed[1]) or max(difference for _, difference in results)
        agree = sum(node.instruction in self.pairs.of and not difference for node, difference in self.apart.items())
        return Divergence(steps[0], steps[1], difference, agree, results, agreeing, alone)

    # --------------------------------------------------------------------------------------------- comparing

    def keep(self, step: Step) -> None:
        """Keep a value of the first program."""
        node = self.flows[0].see(step)
        if step.instruction not in self.partners or is_wiring(step.instruction):
            return
        self.size += step.instruction.shape.byte_size
        if self.size > self.most:
            raise InvalidArgument("the values to compare take more than is kept", subject="first_divergence", got=step.label,
                                  expected=f"{self.most} bytes at most", hint="pass a larger keep=")
        # Loops and branches may share a computation: what was evaluated twice at one place, is not known there.
        self.known[node] = None if node in self.known else (step.value, step.instruction.shape)

    def compare(self, step: Step) -> None:
        """Compare a value of the second program."""
        node = self.flows[1].see(step)
        theirs, place = self.pairs.of.get(step.instruction), self._place(node.place)
        if theirs is None or place is None:
            return
        other = Node(theirs, place)
        known = self.known.get(other)
        difference = None if known is None or node in self.apart else _difference(*known, step, self.tolerance)
        if difference is None:
            self.apart.pop(node, None)
        else:
            self.apart[node], self.other[node] = difference, other
            self.other[other] = node

    def _place(self, place: Place) -> Place | None:
        """The iterations of `b`, in the loops of `a`."""
        if any(name not in self.loops for name, _ in place):
            return None
        return tuple((self.loops[name], number) for name, number in place)

    # ------------------------------------------------------------------------------------------------ walking

    def _blamed(self, results: list[int]) -> tuple[tuple[Node, Node], Instructions, tuple[Instructions, Instructions]]:
        """The first pair that differs and is made of what agrees, with that, and with what stands between without counterpart."""
        starts = [Node(self.pairs.results[number][side], ()) for side in (0, 1) for number in results]
        reached = self._back(starts[:len(results)], starts[len(results):], through=True)
        order = self.flows[1].order
        for node in sorted((n for n in reached.pairs if self.apart[n]), key=order.__getitem__):
            made_of = [flow.sources(n) for flow, n in zip(self.flows, (self.other[node], node), strict=True)]
            found = self._back(made_of[0], made_of[1])
            if not any(self.apart[n] for n in found.pairs):
                return (self.other[node], node), *self._between(found)
        found = self._back(starts[:len(results)], starts[len(results):])
        return (Node(self.roots[0], ()), Node(self.roots[1], ())), *self._between(found)

    def _between(self, found: _Reached) -> tuple[Instructions, tuple[Instructions, Instructions]]:
        """What agrees, and what has no counterpart on each side, in the order of evaluation."""
        equal = {n for n in found.pairs if not self.apart[n]}
        sides = zip((equal, found.alone[0], found.alone[1]), (self.flows[1], *self.flows), strict=True)
        agreeing, a, b = (tuple(dict.fromkeys(n.instruction for n in sorted(nodes, key=flow.order.__getitem__)
                                              if not is_wiring(n.instruction))) for nodes, flow in sides)
        return agreeing, (a, b)

    def _back(self, a: Iterable[Node], b: Iterable[Node], through: bool = False) -> _Reached:
        """What these nodes are or were made of, through all that has no counterpart, up to pairs; with `through`, through pairs
        that differ as well."""
        found = _Reached()
        todo: list[tuple[int, Node]] = [(0, n) for n in a] + [(1, n) for n in b]
        while todo:
            side, node = todo.pop()
            pair = self._pair(side, node)
            if pair is None and node in self.flows[side].order and node not in found.alone[side]:
                found.alone[side].add(node)
                todo += ((side, n) for n in self.flows[side].sources(node))
            elif pair is not None and pair not in found.pairs:
                found.pairs.add(pair)
                if through and self.apart[pair]:
                    todo += ((1, n) for n in self.flows[1].sources(pair))
                    todo += ((0, n) for n in self.flows[0].sources(self.other[pair]))
        return found

    def _pair(self, side: int, node: Node) -> Node | None:
        """The node of `b` that stands for this one and its counterpart, if it has one."""
        mine = node if side else self.other.get(node)
        return mine if mine is not None and mine in self.apart and mine.instruction in self.pairs.of else None


@dataclasses.dataclass
class _Reached:
    """Pairs, by their nodes of `b`; and what has no counterpart, of each side."""

    pairs: set[Node] = dataclasses.field(default_factory=set)
    alone: tuple[set[Node], set[Node]] = dataclasses.field(default_factory=lambda: (set(), set()))


def _step(program: XlaComputation, node: Node, arguments: tuple[Any, ...]) -> Step:
    """The step of this node, of another run: keeping those of all nodes would take the memory of all operands."""
    found: list[Step] = []

    def see(step: Step) -> None:
        if (step.instruction, step.place) == node:
            found.append(step)

    with observed(see):
        program(*arguments)
    return found[-1]


def _difference(value: Any, shape: Shape, step: Step, tolerance: float) -> float | None:
    """By how much a value and that of a step differ; None where they have no values to compare (tokens, growing stacks)."""
    x, y = arrays(value, shape), arrays(step.value, step.instruction.shape)
    if len(x) != len(y) or any(v is None for v, _ in (*x, *y)):
        return None
    return max((_apart(v, w, tolerance) for (v, _), (w, _) in zip(x, y, strict=True)), default=None)


def _apart(x: torch.Tensor, y: torch.Tensor, tolerance: float) -> float:
    return float("inf") if x.shape != y.shape else far(x, y, tolerance, tolerance * _largest(y))


def _largest(tensor: torch.Tensor) -> float:
    wide = tensor.abs().double() if tensor.is_complex() else tensor.double()
    finite = wide[wide.isfinite()].abs()
    return float(finite.max()) if finite.numel() else 0.0


def _alone(instruction: Instruction) -> str:
    """A program of this instruction only, whose operands are its parameters."""
    parameters = [Instruction(PARAMETER, o.shape, (), {"parameter_number": n}, f"operand_{n}")
                  for n, o in enumerate(instruction.operands)]
    root = Instruction(instruction.opcode, instruction.shape, parameters, instruction.attributes, instruction.name,
                       instruction.common)
    return print_module(Module("reduced", Computation("main", [*parameters, root])))
