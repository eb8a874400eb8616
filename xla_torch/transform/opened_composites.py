"""Composites as their decompositions: all, or those of few elements, which are faster in native code than by a call of torch.

Computations are in canonical form (see `transform.canonical`), also in loops and branches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..core import tuning
from ..functions.hlo_builder import Builder
from ..hlo.composites import decomposition, is_composite, kernel_of
from ..hlo.ir import Computation, Instruction, reachable
from ..opcodes import internal, sorting
from .canonical import Canonicalizer
from .rewriter import rebuilt
from .values import Value


def for_native_code(computation: Computation) -> Computation:
    """The computation with decompositions in the place of composites that are faster so: small ones, and maxima of windows whose
    places nobody reads (9 ms by torch's kernel, 2.4 by native code). Itself where there are none."""
    if not _has(computation, is_composite):
        return computation
    placed = {i.operands[0] for c in reachable([computation]) for i in c.instructions if i.is_element and i.attributes["index"]}
    return _opened(computation, lambda i: _is_small(i) or (i not in placed and _name(i) in _FASTER_ALONE))


def without_composites(computation: Computation) -> Computation:
    """The same of all composites, for who looks at what they do to each element."""
    return _opened(computation, is_composite)


def _opened(computation: Computation, is_opened: Callable[[Instruction], bool]) -> Computation:
    if not _has(computation, is_opened):
        return computation
    result = rebuilt(computation, lambda builder: _Opener(builder, is_opened))
    result.is_canonical = True
    return result


def _has(computation: Computation, is_wanted: Callable[[Instruction], bool]) -> bool:
    return any(map(is_wanted, (i for c in reachable([computation]) for i in c.instructions)))


def _is_small(instruction: Instruction) -> bool:
    if not is_composite(instruction):
        return False
    shapes = [*(o.shape for o in instruction.operands), *instruction.shape.leaves()]
    return sum(shape.element_count for shape in shapes) <= tuning.SMALL_COMPOSITE and not _has(
        decomposition(instruction), lambda i: i.opcode in _BETTER_WHOLE)


_FASTER_ALONE = frozenset({"aten.max_pool2d_with_indices", "aten.max_pool3d_with_indices"})
"""Composites whose first result is faster by its ops, if nothing else is wanted."""


def _name(instruction: Instruction) -> str:
    kernel = kernel_of(decomposition(instruction)) if is_composite(instruction) else None
    return kernel.name if kernel is not None else ""


_BETTER_WHOLE = frozenset({sorting.sort, internal.custom_call})
"""Ops that native code leaves to torch, too."""


class _Opener(Canonicalizer):
    """The canonicalizer that also opens some composites."""

    def __init__(self, builder: Builder, is_opened: Callable[[Instruction], bool]):
        super().__init__(builder)
        self.is_opened = is_opened

    def within(self, builder: Builder) -> Canonicalizer:
        return _Opener(builder, self.is_opened)

    def visit(self, instruction: Instruction, operands: list[Value], arguments: Sequence[Value]) -> Value:
        if self.is_opened(instruction):
            return self.run(decomposition(instruction), operands)
        return super().visit(instruction, operands, arguments)
