"""The cost of single ops: the arithmetic of those that are not one operation for each result element, and their bytes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from ..core.shape import Shape
from ..hlo.attributes import WindowDimension
from ..hlo.ir import Instruction
from ..hlo.rule_tables import RuleTable
from ..opcodes import collective, contraction, convolution, indexing, linalg, reduction, sorting, window


@dataclasses.dataclass(frozen=True, slots=True)
class Cost:
    """Counts that add up. `flops` leaves out what `transcendentals` counts; `sent` are the bytes that a participant sends to
    others, in so many `exchanges`."""

    flops: int = 0
    transcendentals: int = 0
    bytes: int = 0
    unknown_loops: int = 0
    sent: int = 0
    exchanges: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.flops + other.flops, self.transcendentals + other.transcendentals, self.bytes + other.bytes,
                    self.unknown_loops + other.unknown_loops, self.sent + other.sent, self.exchanges + other.exchanges)

    def times(self, count: int) -> Cost:
        """The same work `count` times over."""
        return Cost(self.flops * count, self.transcendentals * count, self.bytes * count, self.unknown_loops, self.sent * count,
                    self.exchanges * count)

    def arithmetic(self, count: int = 1) -> Cost:
        """The arithmetic alone, `count` times: for regions, whose values live in registers."""
        return Cost(self.flops * count, self.transcendentals * count)


ARITHMETIC: RuleTable[Callable[[Instruction, Cost], Cost]] = RuleTable("arithmetic")
"""By opcode, the work of an instruction, from the cost of its region for one element (nothing where it has no region)."""

TRAFFIC: RuleTable[Callable[[Instruction], int]] = RuleTable("traffic")
"""By opcode, the bytes that an instruction reads and writes, where its traits do not say it."""

SENT: RuleTable[Callable[[int, int, int], float]] = RuleTable("bytes sent")
"""By opcode, the bytes that a participant sends in an exchange, from those of its operands and results and the size of its group,
by the usual algorithms: rings, and all to all."""


# ------------------------------------------------------------------------------------------------- memory traffic


@TRAFFIC.rule(indexing.dynamic_update_slice)
def _dynamic_update_slice(instruction: Instruction) -> int:
    """In place: the update is read and written."""
    _, update, *starts = instruction.operands
    return 2 * update.shape.byte_size + sum(o.shape.byte_size for o in starts)


# ----------------------------------------------------------------------------------------------------- arithmetic


def _operand(instruction: Instruction, number: int) -> Shape:
    return instruction.operands[number].shape


@ARITHMETIC.rule(contraction.dot)
def _dot(instruction: Instruction, region: Cost) -> Cost:
    lhs = _operand(instruction, 0)
    contracted = math.prod(lhs.dimensions[d] for d in instruction.attributes.get("lhs_contracting_dims", ()))
    return Cost(flops=2 * instruction.shape.element_count * contracted)


@ARITHMETIC.rule(convolution.convolution)
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


@ARITHMETIC.rule(reduction.reduce)
def _reduce(instruction: Instruction, region: Cost) -> Cost:
    first = instruction.shape.tuple_shapes[0] if instruction.shape.is_tuple else instruction.shape
    return region.arithmetic(max(_operand(instruction, 0).element_count - first.element_count, 0))


@ARITHMETIC.rule(window.reduce_window)
def _reduce_window(instruction: Instruction, region: Cost) -> Cost:
    first = instruction.shape.tuple_shapes[0] if instruction.shape.is_tuple else instruction.shape
    return region.arithmetic(first.element_count * (_window_size(instruction) - 1))


@ARITHMETIC.rule(window.select_and_scatter)
def _select_and_scatter(instruction: Instruction, region: Cost) -> Cost:
    return region.arithmetic(_operand(instruction, 1).element_count * _window_size(instruction))


def _window_size(instruction: Instruction) -> int:
    return math.prod(d.size for d in instruction.attributes.get("window", ()))


@ARITHMETIC.rule(indexing.scatter)
def _scatter(instruction: Instruction, region: Cost) -> Cost:
    return region.arithmetic(instruction.operands[-1].shape.element_count)


@ARITHMETIC.rule(reduction.map_)
def _map(instruction: Instruction, region: Cost) -> Cost:
    return region.arithmetic(instruction.shape.element_count)


@ARITHMETIC.rule(sorting.sort)
def _sort(instruction: Instruction, region: Cost) -> Cost:
    elements = _operand(instruction, 0).element_count
    return Cost(flops=elements * math.ceil(math.log2(max(elements, 1))))


@ARITHMETIC.rule(linalg.fft)
def _fft(instruction: Instruction, region: Cost) -> Cost:
    elements = max(_operand(instruction, 0).element_count, instruction.shape.element_count)
    stages = math.prod(n.bit_length() - 1 for n in instruction.attributes.get("fft_length", ()))
    return Cost(flops=8 * elements * stages)


@ARITHMETIC.rule(linalg.cholesky)
def _cholesky(instruction: Instruction, region: Cost) -> Cost:
    return Cost(flops=instruction.shape.element_count * instruction.shape.dimensions[-1] // 3)


@ARITHMETIC.rule(linalg.triangular_solve)
def _triangular_solve(instruction: Instruction, region: Cost) -> Cost:
    return Cost(flops=2 * instruction.shape.element_count * _operand(instruction, 0).dimensions[-1])


@ARITHMETIC.rule(collective.all_reduce, collective.reduce_scatter)
def _all_reduce(instruction: Instruction, region: Cost) -> Cost:
    return region.arithmetic(sum(leaf.element_count for leaf in instruction.shape.leaves() if leaf.is_array))


# ------------------------------------------------------------------------------------------------- exchanges


@SENT.rule(collective.all_reduce, collective.all_reduce_start)
def _sent_to_all(operands: int, results: int, members: int) -> float:
    return 2 * operands * (members - 1) / members


@SENT.rule(collective.all_gather, collective.all_gather_start)
def _sent_around(operands: int, results: int, members: int) -> float:
    return operands * (members - 1)


@SENT.rule(collective.reduce_scatter, collective.all_to_all, collective.ragged_all_to_all, collective.collective_reduce)
def _sent_but_for_ones_own(operands: int, results: int, members: int) -> float:
    return operands * (members - 1) / members


@SENT.rule(collective.collective_permute, collective.collective_permute_start, collective.collective_broadcast)
def _sent_once(operands: int, results: int, members: int) -> float:
    return operands
