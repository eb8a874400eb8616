"""What a program costs, counted from shapes alone: arithmetic, transcendental functions and bytes, as XLA counts them.

A fused multiply-add is two operations; exp, tanh, sqrt and their like are counted apart. Bytes are what each
instruction reads and writes, with nothing kept in a cache; inside a fusion only its operands and result count. Where
XLA counts one iteration of a loop, a counted loop is taken as often as it runs, and `unknown_loops` says how many others
there are, each taken once. Of a conditional the dearest branch counts. Custom calls count their bytes only.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..hlo.ir import Computation, Instruction, reachable
from ..hlo.regions import is_branching, is_loop, regions
from ..hlo.schema import Trait
from ..opcodes.control import fusion
from .cost_rules import ARITHMETIC, SENT, TRAFFIC, Cost
from .loops import counted_loop

_MANY = 1 << 10


def computation_cost(computation: Computation, known: dict[int, Cost] | None = None) -> Cost:
    """The cost of running a computation once. `known` keeps called computations' costs, by id, between calls."""
    known = {} if known is None else known
    if id(computation) not in known:
        for each in reachable([computation]):  # callees first, which may call each other thousands deep
            if id(each) not in known:
                known[id(each)] = total(instruction_cost(i, known) for i in each.instructions)
    return known[id(computation)]


def instruction_cost(instruction: Instruction, known: dict[int, Cost] | None = None) -> Cost:
    """The cost of one instruction, with all that it calls."""
    known = {} if known is None else known
    called = [computation_cost(region.computation, known) for region in regions(instruction)]
    if instruction.opcode == fusion:
        return called[0].arithmetic() + Cost(bytes=_bytes(instruction), unknown_loops=called[0].unknown_loops)
    if is_loop(instruction):
        loop = counted_loop(instruction)
        return total(called) + Cost(unknown_loops=1) if loop is None else total(called).times(loop.trip_count)
    if is_branching(instruction):
        return max(called, key=lambda c: (c.flops + c.transcendentals, c.bytes), default=Cost())
    if instruction.schema.control is not None:
        return total(called)
    return _arithmetic(instruction, total(called)) + Cost(bytes=_bytes(instruction)) + _exchanged(instruction)


def _exchanged(instruction: Instruction) -> Cost:
    """What a participant sends. Where groups are not said there is one, of as many as no one knows here: of many."""
    rule = SENT.get(instruction.opcode)
    if rule is None:
        return Cost()
    groups = getattr(instruction.attributes.get("replica_groups"), "groups", ())
    members = max(map(len, groups), default=_MANY)
    sent = rule(sum(o.shape.byte_size for o in instruction.operands), instruction.shape.byte_size, members)
    return Cost(sent=round(sent), exchanges=1) if members > 1 else Cost()


def total(costs: Iterable[Cost]) -> Cost:
    """The sum."""
    return sum(costs, Cost())


def _arithmetic(instruction: Instruction, region: Cost) -> Cost:
    rule, elements = ARITHMETIC.get(instruction.opcode), instruction.shape.element_count
    if rule is not None:
        return rule(instruction, region).arithmetic()
    if instruction.has(Trait.TRANSCENDENTAL):
        return Cost(transcendentals=elements)
    computes = instruction.has(Trait.ELEMENTWISE) and not instruction.has(Trait.MOVES_DATA)
    return Cost(flops=elements) if computes and instruction.operands else Cost()


def _bytes(instruction: Instruction) -> int:
    """Bytes read and written: all operands and the result, except where only a part of an operand is touched."""
    rule = TRAFFIC.get(instruction.opcode)
    if rule is not None:
        return rule(instruction)
    if instruction.has(Trait.NO_TRAFFIC):
        return 0
    operands = [o.shape.byte_size for o in instruction.operands]
    if instruction.has(Trait.PARTIAL_READ):
        return 2 * instruction.shape.byte_size + sum(operands[1:])
    return sum(operands) + instruction.shape.byte_size
