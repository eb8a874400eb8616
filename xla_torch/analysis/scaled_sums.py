"""Sums scaled to a maximum: what softmax and logarithms of sums of exponentials carry along, in one reduction.

Pairs (m, s) and (n, t) meet as ``top = max(m, n)`` and ``s exp(m - top) + t exp(n - top)``. Whatever the order, what comes of all
pairs are their largest number M and the sum of ``s exp(m - M)``.
"""

from __future__ import annotations

from ..hlo.inference import origin
from ..hlo.ir import Computation, Instruction, cached_on_computation
from ..opcodes import elementwise
from .selections import is_larger_of


@cached_on_computation
def scaling_maximum(reducer: Computation) -> int | None:
    """The number of the result that is the maximum, in a reducer of 2N scalars of one float type whose others are all sums scaled
    to it; None for any other reducer."""
    root, parameters = origin(reducer.root), reducer.parameters
    count = len(parameters) // 2
    shapes = [p.shape for p in parameters]
    if count < 2 or len(parameters) != 2 * count or not root.is_tuple or len(root.operands) != count:
        return None
    kind = shapes[0].element_type
    if not kind.is_floating or not all(s.is_scalar and s.element_type is kind for s in shapes):
        return None
    for number in range(count):
        found = _Scaling(reducer, number)
        if found.is_top(root.operands[number]):
            others = (k for k in range(count) if k != number)
            return number if all(found.is_sum(root.operands[k], k) for k in others) else None
    return None


class _Scaling:
    """The question which results of a reducer are scaled to the maximum of its numbers at one place."""

    def __init__(self, reducer: Computation, number: int):
        self._reducer, self._count = reducer, len(reducer.parameters) // 2
        self._sides = reducer.parameters[number], reducer.parameters[number + self._count]

    def is_top(self, result: Instruction) -> bool:
        return is_larger_of(origin(result), self._reducer, *self._sides)

    def is_sum(self, result: Instruction, number: int) -> bool:
        """Whether it is ``s exp(m - top) + t exp(n - top)`` of the scalars with this number."""
        total = origin(result)
        if total.opcode != elementwise.add:
            return False
        return any(all(map(self._is_scaled, total.operands, (number, number), sides)) for sides in ((0, 1), (1, 0)))

    def _is_scaled(self, product: Instruction, number: int, side: int) -> bool:
        product = origin(product)
        if product.opcode != elementwise.multiply:
            return False
        scalar = self._reducer.parameters[number + side * self._count]
        left, right = map(origin, product.operands)
        return (left is scalar and self._is_scale(right, side)) or (right is scalar and self._is_scale(left, side))

    def _is_scale(self, scale: Instruction, side: int) -> bool:
        """Whether it is the exponential of one side's number less the maximum."""
        if scale.opcode != elementwise.exponential:
            return False
        difference = origin(scale.operands[0])
        return (difference.opcode == elementwise.subtract and origin(difference.operands[0]) is self._sides[side]
                and self.is_top(difference.operands[1]))
