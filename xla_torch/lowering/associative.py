"""Whether a reducer is associative, told by trying it on examples.

XLA leaves open in what order a reducer meets its elements. One that is associative may be evaluated in trees, which takes few
calls. Any other has one meaning that users see: what XLA's CPU code makes of it, so its elements are combined in that order.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import torch

from ..hlo.ir import Computation, live_instructions
from ..opcodes.definition import OPS
from ..types import PrimitiveType
from . import numerics, regions

EXAMPLES = 512
"""Triples of elements that a reducer is tried on."""

_WITHOUT_LOOPS = frozenset({"parameter", "constant", "tuple", "get-tuple-element", "call", "fusion", "conditional", "copy",
                            "bitcast", "broadcast", "reshape", "transpose"})


@functools.lru_cache(maxsize=1024)
def is_associative(reducer: Computation) -> bool:
    """Whether a reducer of 2N scalars gave equal results, up to rounding, for ``(a b) c`` and ``a (b c)`` on all examples.

    False also where it cannot be tried: if it has loops, which might not end on some examples, or works on arrays.
    """
    parameters = reducer.parameters
    types = [p.shape.element_type for p in parameters]
    count = len(parameters) // 2
    if types[:count] != types[count:] or not regions.works_on_scalars(reducer) or not _can_be_tried(reducer):
        return False
    from .evaluator import Evaluator

    runner = Evaluator()
    generator = torch.Generator().manual_seed(0)
    a, b, c = zip(*(_examples(t, generator) for t in types[:count]), strict=True)

    def combine(left: Sequence[torch.Tensor], right: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return runner.apply_region(reducer, [*left, *right], (EXAMPLES,))

    with torch.no_grad():
        ab, bc = combine(a, b), combine(b, c)
        return _agree(combine(ab, c), combine(a, bc), types[:count], [*a, *b, *c], [*ab, *bc])


def _can_be_tried(computation: Computation) -> bool:
    return all((i.opcode in _WITHOUT_LOOPS or (i.opcode in OPS and OPS[i.opcode].elementwise))
               and all(map(_can_be_tried, i.called_computations)) for i in live_instructions(computation))


def _examples(element_type: PrimitiveType, generator: torch.Generator) -> torch.Tensor:
    """Carriers [3, EXAMPLES]: small integers, then ordinary values, then both with NaN and values of all magnitudes."""
    shape = (3, EXAMPLES)
    third = torch.arange(EXAMPLES) * 3 // EXAMPLES
    choice = torch.randint(0, 16, shape, generator=generator)
    small = torch.randint(-3, 4, shape, generator=generator)
    is_small = (third == 0) | ((third == 2) & (choice < 4))
    if element_type.is_pred:
        return small > 0
    if element_type.is_integral:
        wide = torch.randint(-1 << 62, 1 << 62, shape, generator=generator)
        values = torch.where(is_small, small.abs() if element_type.is_unsigned else small, wide)
        assert element_type.carrier is not None
        return numerics.normalise(values.to(element_type.carrier), element_type)
    real = torch.float64
    parts = 2 if element_type.is_complex else 1
    values = torch.randn((*shape, parts), generator=generator, dtype=real)
    magnitudes = 10.0 ** torch.randint(-3, 4, shape, generator=generator)
    values = values * torch.where((third == 2) & (choice > 9), magnitudes, 1.0).unsqueeze(-1)
    values = torch.where(is_small.unsqueeze(-1), torch.stack([small, small.roll(1, 1)], -1)[..., :parts].to(real), values)
    values = torch.where(((third == 2) & (choice == 9)).unsqueeze(-1), math.nan, values)
    whole = torch.view_as_complex(values) if element_type.is_complex else values.squeeze(-1)
    assert element_type.carrier is not None
    return numerics.normalise(whole.to(element_type.carrier), element_type)


def _agree(left: Sequence[torch.Tensor], right: Sequence[torch.Tensor], types: Sequence[PrimitiveType],
           given: Sequence[torch.Tensor], between: Sequence[torch.Tensor]) -> bool:
    """Whether two sets of results are one up to rounding. An example counts unless it overflowed on the way."""
    zeros = torch.zeros(EXAMPLES)
    scale = functools.reduce(torch.maximum, map(_magnitude, [*given, *between, *left, *right]), zeros)
    has_nan = functools.reduce(torch.logical_or, (g.isnan() for g in given), zeros > 0)
    counts = scale.isfinite() & (has_nan | ~functools.reduce(torch.logical_or, (x.isnan() for x in [*between, *left, *right])))
    if int(counts.sum()) < EXAMPLES // 4:
        return False
    same = [_same(a, b, t, scale) for a, b, t in zip(left, right, types, strict=True)]
    return bool((functools.reduce(torch.logical_and, same) | ~counts).all())


def _magnitude(values: torch.Tensor) -> torch.Tensor:
    if not (values.is_floating_point() or values.is_complex()):
        return torch.zeros(EXAMPLES)
    return torch.where(values.isnan(), 0, values.abs()).to(torch.float32)


def _same(left: torch.Tensor, right: torch.Tensor, element_type: PrimitiveType, scale: torch.Tensor) -> torch.Tensor:
    equal = (left == right) | (left.isnan() & right.isnan())
    if not (element_type.is_floating or element_type.is_complex):
        return equal
    return equal | ((left - right).abs() <= _tolerance(element_type) * scale)


def _tolerance(element_type: PrimitiveType) -> float:
    """Relative error that a few roundings make."""
    if element_type.is_narrow:
        return 0.25
    assert element_type.carrier is not None
    return min(64 * torch.finfo(element_type.carrier).eps, 0.25)
