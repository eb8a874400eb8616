"""What a program costs, counted from shapes alone: arithmetic, transcendental functions and bytes, as XLA counts them.

A fused multiply-add is two operations; exp, tanh, sqrt and their like are counted apart. Bytes are what each
instruction reads and writes, with nothing kept in a cache; inside a fusion only its operands and result count. Where
XLA counts one iteration of a loop, a counted loop is taken as often as it runs, and `unknown_loops` says how many others
there are, each taken once. Of a conditional the dearest branch counts. Custom calls count their bytes only.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable

import numpy as np

from .hlo.ir import Computation, Instruction
from .opcodes.attributes import WindowDimension
from .opcodes.definition import OPS
from .shape import Shape
from .transform.loop_analysis import counted_loop


@dataclasses.dataclass(frozen=True, slots=True)
class Cost:
    """Counts that add up. `flops` leaves out what `transcendentals` counts."""

    flops: int = 0
    transcendentals: int = 0
    bytes: int = 0
    unknown_loops: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.flops + other.flops, self.transcendentals + other.transcendentals, self.bytes + other.bytes,
                    self.unknown_loops + other.unknown_loops)

    def times(self, count: int) -> Cost:
        """The same work `count` times over."""
        return Cost(self.flops * count, self.transcendentals * count, self.bytes * count, self.unknown_loops)

    def arithmetic(self, count: int = 1) -> Cost:
        """The arithmetic alone, `count` times: for regions, whose values live in registers."""
        return Cost(self.flops * count, self.transcendentals * count)


def computation_cost(computation: Computation, known: dict[int, Cost] | None = None) -> Cost:
    """The cost of running a computation once. `known` keeps called computations' costs, by id, between calls."""
    known = {} if known is None else known
    if id(computation) not in known:
        known[id(computation)] = total(instruction_cost(i, known) for i in computation.instructions)
    return known[id(computation)]


def instruction_cost(instruction: Instruction, known: dict[int, Cost] | None = None) -> Cost:
    """The cost of one instruction, with all that it calls."""
    known = {} if known is None else known
    calls = _CALLS.get(instruction.opcode)
    if calls is not None:
        return calls(instruction, [computation_cost(c, known) for c in instruction.called_computations])
    work = _WORK.get(instruction.opcode)
    if work is not None:
        regions = [computation_cost(c, known) for c in instruction.called_computations]
        return work(instruction, total(regions)).arithmetic() + Cost(bytes=_bytes(instruction))
    elements, count = instruction.shape.element_count, Cost()
    definition = OPS.get(instruction.opcode)
    if instruction.opcode in _TRANSCENDENTAL:
        count = Cost(transcendentals=elements)
    elif definition is not None and definition.elementwise and instruction.operands and not definition.movement:
        count = Cost(flops=elements)
    return count + Cost(bytes=_bytes(instruction))


def total(costs: Iterable[Cost]) -> Cost:
    """The sum."""
    return sum(costs, Cost())


# ------------------------------------------------------------------------------------------------- memory traffic

_FREE = frozenset({"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "add-dependency",
                   "optimization-barrier", "partition-id", "replica-id"})


def _bytes(instruction: Instruction) -> int:
    """Bytes read and written: all operands and the result, except where only a part of an operand is touched."""
    opcode, operands = instruction.opcode, [o.shape.byte_size for o in instruction.operands]
    if opcode in _FREE:
        return 0
    if opcode in ("slice", "dynamic-slice", "gather"):
        return 2 * instruction.shape.byte_size + sum(operands[1:])
    if opcode == "dynamic-update-slice":
        return 2 * operands[1] + sum(operands[2:])
    return sum(operands) + instruction.shape.byte_size


# ---------------------------------------------------------------------------------------------- called computations


def _fusion(instruction: Instruction, callees: list[Cost]) -> Cost:
    return callees[0].arithmetic() + Cost(bytes=_bytes(instruction), unknown_loops=callees[0].unknown_loops)


def _while(instruction: Instruction, callees: list[Cost]) -> Cost:
    once, loop = total(callees), counted_loop(instruction)
    if loop is None:
        return once + Cost(unknown_loops=1)
    return once.times(loop.trip_count)


def _conditional(instruction: Instruction, callees: list[Cost]) -> Cost:
    return max(callees, key=lambda c: (c.flops + c.transcendentals, c.bytes), default=Cost())


_CALLS: dict[str, Callable[[Instruction, list[Cost]], Cost]] = {
    "fusion": _fusion,
    "while": _while,
    "conditional": _conditional,
    "call": lambda instruction, callees: total(callees),
    "async-start": lambda instruction, callees: total(callees),
}


# ------------------------------------------------------------------------------------------------------ arithmetic

_TRANSCENDENTAL = frozenset({
    "erf", "cbrt", "exponential", "exponential-minus-one", "log", "log-plus-one", "logistic", "power", "rsqrt", "sqrt",
    "tan", "tanh", "sine", "cosine", "atan2", "rng", "rng-bit-generator"})


def _operand(instruction: Instruction, number: int) -> Shape:
    return instruction.operands[number].shape


def _dot(instruction: Instruction, region: Cost) -> Cost:
    lhs = _operand(instruction, 0)
    contracted = math.prod(lhs.dimensions[d] for d in instruction.attributes.get("lhs_contracting_dims", ()))
    return Cost(flops=2 * instruction.shape.element_count * contracted)


def _convolution(instruction: Instruction, region: Cost) -> Cost:
    """Multiply-adds that meet real elements: padding and the holes of dilation are not multiplied."""
    labels, window = instruction.attributes["dim_labels"], instruction.attributes.get("window", ())
    lhs, kernel, out = _operand(instruction, 0), _operand(instruction, 1), instruction.shape
    taps = 1
    places = zip(window, labels.input_spatial_dimensions, labels.output_spatial_dimensions, strict=True)
    for dimension, size, result in places:
        taps *= _taps(dimension, lhs.dimensions[size], out.dimensions[result])
    batch = out.dimensions[labels.output_batch_dimension]
    features = out.dimensions[labels.output_feature_dimension]
    return Cost(flops=2 * batch * features * kernel.dimensions[labels.kernel_input_feature_dimension] * taps)


def _taps(window: WindowDimension, size: int, results: int) -> int:
    """Along one dimension, the pairs of a window position and an offset in it that fall on an element of the base."""
    at = (np.arange(results)[:, None] * window.stride + np.arange(window.size) * window.window_dilation
          - window.padding_low)
    inside = (at >= 0) & (at < (size - 1) * window.base_dilation + 1) & (at % window.base_dilation == 0)
    return int(inside.sum())


def _reduce(instruction: Instruction, region: Cost) -> Cost:
    first = instruction.shape.tuple_shapes[0] if instruction.shape.is_tuple else instruction.shape
    return region.arithmetic(max(_operand(instruction, 0).element_count - first.element_count, 0))


def _reduce_window(instruction: Instruction, region: Cost) -> Cost:
    first = instruction.shape.tuple_shapes[0] if instruction.shape.is_tuple else instruction.shape
    return region.arithmetic(first.element_count * (_window_size(instruction) - 1))


def _select_and_scatter(instruction: Instruction, region: Cost) -> Cost:
    return region.arithmetic(_operand(instruction, 1).element_count * _window_size(instruction))


def _window_size(instruction: Instruction) -> int:
    return math.prod(d.size for d in instruction.attributes.get("window", ()))


def _scatter(instruction: Instruction, region: Cost) -> Cost:
    return region.arithmetic(instruction.operands[-1].shape.element_count)


def _map(instruction: Instruction, region: Cost) -> Cost:
    return region.arithmetic(instruction.shape.element_count)


def _sort(instruction: Instruction, region: Cost) -> Cost:
    elements = _operand(instruction, 0).element_count
    return Cost(flops=elements * math.ceil(math.log2(max(elements, 1))))


def _fft(instruction: Instruction, region: Cost) -> Cost:
    elements = max(_operand(instruction, 0).element_count, instruction.shape.element_count)
    stages = math.prod(n.bit_length() - 1 for n in instruction.attributes.get("fft_length", ()))
    return Cost(flops=8 * elements * stages)


def _cholesky(instruction: Instruction, region: Cost) -> Cost:
    return Cost(flops=instruction.shape.element_count * instruction.shape.dimensions[-1] // 3)


def _triangular_solve(instruction: Instruction, region: Cost) -> Cost:
    return Cost(flops=2 * instruction.shape.element_count * _operand(instruction, 0).dimensions[-1])


def _all_reduce(instruction: Instruction, region: Cost) -> Cost:
    return region.arithmetic(sum(leaf.element_count for leaf in instruction.shape.leaves() if leaf.is_array))


_WORK: dict[str, Callable[[Instruction, Cost], Cost]] = {
    "dot": _dot,
    "convolution": _convolution,
    "reduce": _reduce,
    "reduce-window": _reduce_window,
    "select-and-scatter": _select_and_scatter,
    "scatter": _scatter,
    "map": _map,
    "sort": _sort,
    "fft": _fft,
    "cholesky": _cholesky,
    "triangular-solve": _triangular_solve,
    "all-reduce": _all_reduce,
    "reduce-scatter": _all_reduce,
}
