"""Reductions to a maximum and sums scaled to it (`analysis/scaled_sums.py`) as reductions that torch has: the maximum first, then
one exponential for each element, where elements that meet two by two take two.

The results are those of the order in which the largest element comes first and all others then meet it one after another. XLA
leaves the order open. So where orders differ by more than rounding these are numbers of a legal one: an element at minus infinity
adds nothing, and makes no NaN of ``-inf - -inf``, unless all are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..core.shape import Shape
from ..functions import Add, BroadcastInDim, Exp, Max, Mul, Reduce, Sub, Tuple
from ..functions.hlo_builder import Builder, XlaOp
from ..hlo.inference import splat_of
from ..hlo.ir import Computation, Instruction, live_instructions
from .values import Number, Splat, Value, evaluator


def scaled_sums(inst: Instruction, number: int, operands: Sequence[Value], inits: Sequence[Value], dims: Sequence[int]) -> list[
        Value]:
    """The results of a reduction over at least one element, of which this one is the maximum."""
    ones = frozenset(k for k in range(len(operands)) if k != number and _is_one(inst.operands[k]))
    computation = _computation([o.shape for o in inst.operands], number, dims, ones, _neutral(number, inits))
    return list(_value(computation, [*operands, *(Splat(i) if isinstance(i, Number) else i for i in inits)]))


def _is_one(operand: Instruction) -> bool:
    literal = splat_of(operand)
    return literal is not None and bool(literal.array == 1)


def _neutral(number: int, inits: Sequence[Value]) -> frozenset[int]:
    """The init values that are known to change nothing: a maximum of minus infinity, and sums of zero, unless what scales them
    makes NaN of it. (That of minus infinity does where all elements are so, and then makes NaN of these, too.)"""
    top = inits[number]
    if not isinstance(top, Number) or not top < math.inf:  # pyright: ignore[reportOperatorIssue]
        return frozenset()
    return frozenset(k for k, init in enumerate(inits) if isinstance(init, Number) and init == (-math.inf if k == number else 0))


def _computation(shapes: Sequence[Shape], number: int, dims: Sequence[int], ones: frozenset[int],
                 neutral: frozenset[int]) -> Computation:
    """The results, of arrays and the scalars that they begin with. Arrays `ones` are 1, and `neutral` scalars left out."""
    builder, count = Builder("scaled_sums"), len(shapes) // 2
    given = [builder.parameter(k, shape.without_layout()) for k, shape in enumerate(shapes)]
    arrays, sizes = given[:count], shapes[0].dimensions
    kept = [d for d in range(len(sizes)) if d not in dims]
    inits = [BroadcastInDim(i, [sizes[d] for d in kept], []) for i in given[count:]]
    largest = Reduce(arrays[number], -math.inf, Max, dims)
    top = largest if number in neutral else Max(largest, inits[number])
    scale, first = Exp(Sub(arrays[number], BroadcastInDim(top, sizes, kept))), Exp(Sub(inits[number], top))

    def total(k: int) -> XlaOp:
        added = Reduce(scale if k in ones else Mul(arrays[k], scale), 0.0, Add, dims)
        return added if k in neutral else Add(added, Mul(inits[k], first))

    return builder.finish(Tuple(builder, [top if k == number else total(k) for k in range(count)]))


def _value(computation: Computation, arguments: Sequence[Value]) -> Sequence[Value]:
    """What instructions of no program make of values."""
    runner, values = evaluator(), dict[Instruction, Value]()
    for i in live_instructions(computation):
        operands = [values[o] for o in i.operands]
        values[i] = arguments[i.attributes["parameter_number"]] if i.is_parameter else runner.computed(i, operands)
    return values[computation.root]
