"""Schemas: dot, ragged-dot and scaled-dot. Specification: hlo/SPEC.md, Linear algebra."""

# pyright: reportMissingParameterType=false, reportUnknownParameterType=false

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

from ..core.shape import Shape
from ..core.types import PrimitiveType, higher_precision
from ..hlo.attributes import Dims, DotAlgorithm, Precision
from ..hlo.canonical_values import canonical_numbers
from ..hlo.schema import Trait, op
from .shapes import require, require_arrays


@dataclasses.dataclass(frozen=True, slots=True)
class DotDimensionNumbers:
    """Which dimensions of a dot's operands are summed over (`lhs_contracting_dimensions`, `rhs_contracting_dimensions`), and
    which run in parallel (`lhs_batch_dimensions`, `rhs_batch_dimensions`): numbers from 0, whose k-th entries belong together.
    Raises InvalidArgument for what is no integer; that sizes fit is the dot's to say.

    >>> numbers = ops.DotDimensionNumbers((2,), (1,), (0,), (0,))            # a product of matrices for each of a batch
    >>> numbers.lhs_free(3), numbers.rhs_free(3)
    ((1,), (2,))
    >>> ops.DotGeneral(torch.ones(5, 2, 3), torch.ones(5, 3, 4), numbers).shape
    torch.Size([5, 2, 4])
    """

    lhs_contracting_dimensions: tuple[int, ...] = ()
    rhs_contracting_dimensions: tuple[int, ...] = ()
    lhs_batch_dimensions: tuple[int, ...] = ()
    rhs_batch_dimensions: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        canonical_numbers(self)

    def lhs_free(self, rank: int) -> tuple[int, ...]:
        """Dimensions of a lhs of this rank that are neither contracted nor batch."""
        return free_dimensions(rank, self.lhs_contracting_dimensions, self.lhs_batch_dimensions)

    def rhs_free(self, rank: int) -> tuple[int, ...]:
        """Dimensions of a rhs of this rank that are neither contracted nor batch."""
        return free_dimensions(rank, self.rhs_contracting_dimensions, self.rhs_batch_dimensions)


def free_dimensions(rank: int, *taken: tuple[int, ...]) -> tuple[int, ...]:
    used = {d for dims in taken for d in dims}
    return tuple(d for d in range(rank) if d not in used)


# ------------------------------------------------------------------------------------------- element types


def contraction_type(declared: Shape | None, lhs: Shape, rhs: Shape) -> PrimitiveType:
    """Element type of a dot or convolution: the declared (preferred) one, whatever it is, else the higher precision of the
    operands."""
    if declared is None:
        return highest_type(lhs.element_type, rhs.element_type)
    require(declared.is_array, "the result is not an array", declared, "an array shape")
    return declared.element_type


def highest_type(*types: PrimitiveType) -> PrimitiveType:
    """The type of highest precision, among equals the first. That of operands and result is the one in which a dot or convolution
    multiplies: operands are converted to it, and its rounded sums to the result's type, as XLA's compilers do."""
    return functools.reduce(_higher_type, types)


def _higher_type(a: PrimitiveType, b: PrimitiveType) -> PrimitiveType:
    if a.is_floating and b.is_floating:
        return higher_precision(a, b)

    def rank(t: PrimitiveType) -> tuple[bool, bool, int, bool]:
        return t.is_complex, t.is_floating, 1 if t.is_pred else t.bits, t.is_signed

    return a if rank(a) >= rank(b) else b


# ------------------------------------------------------------------------------------------- dot


def dot_shape(declared: Shape | None, lhs: Shape, rhs: Shape, *, lhs_contracting_dims: Sequence[int] = (),
              rhs_contracting_dims: Sequence[int] = (), lhs_batch_dims: Sequence[int] = (),
              rhs_batch_dims: Sequence[int] = (), **_: Any) -> Shape:
    """Batch dimensions, then the lhs's free dimensions, then the rhs's."""
    require_arrays(lhs, rhs)
    numbers = DotDimensionNumbers(tuple(lhs_contracting_dims), tuple(rhs_contracting_dims), tuple(lhs_batch_dims),
                                  tuple(rhs_batch_dims))
    check_dot_numbers(lhs, rhs, numbers)
    dims, flags = dot_dimensions(lhs, rhs, numbers)
    return Shape.array(contraction_type(declared, lhs, rhs), dims, flags)


def check_dot_numbers(lhs: Shape, rhs: Shape, numbers: DotDimensionNumbers) -> None:
    """Dimension numbers are in range and unique, and what belongs together has one size."""
    for name, shape, contracting, batch in (
            ("lhs", lhs, numbers.lhs_contracting_dimensions, numbers.lhs_batch_dimensions),
            ("rhs", rhs, numbers.rhs_contracting_dimensions, numbers.rhs_batch_dimensions)):
        listed = [*contracting, *batch]
        require(all(0 <= d < shape.rank for d in listed), f"a {name} dimension number is out of range",
                f"{name} {shape}, contracting {list(contracting)}, batch {list(batch)}", f"numbers from 0 to {shape.rank - 1}")
        require(len(set(listed)) == len(listed), f"a {name} dimension number is not unique",
                f"contracting {list(contracting)}, batch {list(batch)}", "each dimension at most once")
    for kind, left, right in (("contracting", numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions),
                              ("batch", numbers.lhs_batch_dimensions, numbers.rhs_batch_dimensions)):
        require(len(left) == len(right), f"lhs and rhs have different numbers of {kind} dimensions",
                f"lhs {list(left)}, rhs {list(right)}", "equal numbers")
        for i, j in zip(left, right, strict=True):
            require(same_size(lhs.dimensions[i], rhs.dimensions[j]), f"{kind} dimensions differ",
                    f"lhs {lhs} dimension {i} ({lhs.dimensions[i]}), rhs {rhs} dimension {j} ({rhs.dimensions[j]})",
                    "equal sizes")


def same_size(a: int, b: int) -> bool:
    """Equal sizes; an unbounded one equals any."""
    return a == b or a < 0 or b < 0


def dot_dimensions(lhs: Shape, rhs: Shape, numbers: DotDimensionNumbers) -> tuple[list[int], list[bool]]:
    """Sizes and dynamic flags of the result of a dot; those of batch dimensions are the lhs's."""
    kept = (*numbers.lhs_batch_dimensions, *numbers.lhs_free(lhs.rank))
    picked = [(lhs.dimensions[i], lhs.dynamic_flags[i]) for i in kept]
    picked += [(rhs.dimensions[i], rhs.dynamic_flags[i]) for i in numbers.rhs_free(rhs.rank)]
    return [size for size, _ in picked], [flag for _, flag in picked]


@op("dot", infer=dot_shape, stablehlo="dot_general", traits=Trait.MIXED_PRECISION)
def dot(lhs, rhs, *, lhs_contracting_dims: Dims = (), rhs_contracting_dims: Dims = (), lhs_batch_dims: Dims = (),
        rhs_batch_dims: Dims = (), operand_precision: Precision = (), algorithm: DotAlgorithm = ""): ...


# ------------------------------------------------------------------------------------------- ragged dot


def ragged_dot_shape(declared: Shape | None, lhs: Shape, rhs: Shape, group_sizes: Shape, *,
                     lhs_contracting_dims: Sequence[int] = (), rhs_contracting_dims: Sequence[int] = (),
                     lhs_batch_dims: Sequence[int] = (), rhs_batch_dims: Sequence[int] = (),
                     lhs_ragged_dims: Sequence[int], rhs_group_dims: Sequence[int] = (), **_: Any) -> Shape:
    """As a dot; a ragged contracting dimension puts a group dimension in front."""
    require_arrays(lhs, rhs, group_sizes)
    numbers = DotDimensionNumbers(tuple(lhs_contracting_dims), tuple(rhs_contracting_dims), tuple(lhs_batch_dims),
                                  tuple(rhs_batch_dims))
    check_dot_numbers(lhs, rhs, numbers)
    require(len(lhs_ragged_dims) == 1, "there must be exactly one ragged dimension in the lhs", list(lhs_ragged_dims), "one")
    ragged = lhs_ragged_dims[0]
    require(0 <= ragged < lhs.rank, "the ragged dimension is out of range", ragged, f"0 to {lhs.rank - 1}")
    require(group_sizes.element_type.is_integral, "group sizes are not integers", group_sizes, "an integer array")
    prefix = group_prefix(lhs.rank, ragged, numbers)
    _check_group_sizes(lhs, group_sizes, prefix)
    groups = group_sizes.dimensions[-1]
    free_rhs = numbers.rhs_free(rhs.rank)
    contracting = ragged in numbers.lhs_contracting_dimensions
    rows_are_ragged = not contracting and ragged not in numbers.lhs_batch_dimensions
    require(len(rhs_group_dims) == rows_are_ragged, "wrong number of group dimensions in the rhs", list(rhs_group_dims),
            "one for a ragged free dimension, none for a ragged contracting or batch dimension")
    if rows_are_ragged:
        group = rhs_group_dims[0]
        require(group in free_rhs, "the rhs group dimension is out of range, or a batch or contracting dimension", group,
                f"one of {list(free_rhs)}")
        require(same_size(rhs.dimensions[group], groups), "the rhs group dimension has another size than the groups",
                f"{rhs.dimensions[group]} and {groups} groups", "equal sizes")
    dims, flags = dot_dimensions(lhs, rhs, numbers)
    if rows_are_ragged:
        at = len(dims) - len(free_rhs) + free_rhs.index(rhs_group_dims[0])
        del dims[at], flags[at]
    if contracting:
        dims, flags = [groups, *dims], [False, *flags]
    return Shape.array(contraction_type(declared, lhs, rhs), dims, flags)


def group_prefix(rank: int, ragged: int, numbers: DotDimensionNumbers) -> tuple[int, ...]:
    """The lhs dimensions that a group_sizes of more than one dimension has in front: those outside the ragged one."""
    batch, summed = numbers.lhs_batch_dimensions, numbers.lhs_contracting_dimensions
    if ragged in batch:
        return batch[: batch.index(ragged)]
    inner = summed if ragged in summed else numbers.lhs_free(rank)
    return batch + inner[: inner.index(ragged)]


def _check_group_sizes(lhs: Shape, group_sizes: Shape, prefix: tuple[int, ...]) -> None:
    expected = [lhs.dimensions[d] for d in prefix]
    require(group_sizes.rank in (1, len(prefix) + 1), "group_sizes has the wrong number of dimensions", group_sizes,
            f"1, or {len(prefix) + 1}: {[*expected, 'groups']}")
    if group_sizes.rank > 1:
        require(all(map(same_size, group_sizes.dimensions, expected)),
                "the leading dimensions of group_sizes differ from the lhs", group_sizes, f"{[*expected, 'groups']}")


@op("ragged-dot", infer=ragged_dot_shape, stablehlo="chlo.ragged_dot", traits=Trait.MIXED_PRECISION)
def ragged_dot(lhs, rhs, group_sizes, *, lhs_contracting_dims: Dims = (), rhs_contracting_dims: Dims = (),
               lhs_batch_dims: Dims = (), rhs_batch_dims: Dims = (), lhs_ragged_dims: Dims, rhs_group_dims: Dims = (),
               operand_precision: Precision = (), algorithm: DotAlgorithm = ""): ...


# ------------------------------------------------------------------------------------------- scaled dot


def scaled_dot_shape(declared: Shape | None, lhs: Shape, rhs: Shape, lhs_scale: Shape, rhs_scale: Shape, **dims: Any) -> Shape:
    """The shape of the dot of lhs and rhs; a scale divides its operand into blocks of equal size."""
    require_arrays(lhs, rhs, lhs_scale, rhs_scale)
    for name, operand, scale in (("lhs", lhs, lhs_scale), ("rhs", rhs, rhs_scale)):
        require(scale.element_type.is_floating, f"the {name} scale is not floating", scale, "a floating type")
        if scale.rank == 0:
            continue
        require(scale.rank == operand.rank, f"the {name} scale has another rank than its operand",
                f"{scale} for {operand}", "equal ranks, or a scalar scale")
        require(all(n == s or (s > 0 and n % s == 0) for n, s in zip(operand.dimensions, scale.dimensions, strict=True)),
                f"a dimension of the {name} scale does not divide its operand's", f"{scale} for {operand}", "whole blocks")
    return dot_shape(declared, lhs, rhs, **dims)


@op("scaled-dot", infer=scaled_dot_shape, traits=Trait.MIXED_PRECISION, inferable=False)
def scaled_dot(lhs, rhs, lhs_scale, rhs_scale, *, lhs_contracting_dims: Dims = (), rhs_contracting_dims: Dims = (),
               lhs_batch_dims: Dims = (), rhs_batch_dims: Dims = (), operand_precision: Precision = (),
               algorithm: DotAlgorithm = ""): ...
