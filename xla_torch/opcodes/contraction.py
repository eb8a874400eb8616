"""Op definitions: contraction (dot, ragged-dot, scaled-dot). Convolution is in `convolution.py`.

Document: spec `ops.md`, section 7. The torch calls are chosen from static shapes so that a plain matrix product becomes
``lhs @ rhs`` and operands are transposed and flattened as views where they can be.
"""

from __future__ import annotations

import dataclasses
import string
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from ..lowering import values
from ..lowering.kernels import contraction as kernels
from ..shape import Shape
from ..types import C128, F64, PrimitiveType, higher_precision
from .attributes import Dims, Precision, Raw
from .convert import float_to_integer
from .definition import op
from .shapes import require, require_arrays


@dataclasses.dataclass(frozen=True, slots=True)
class DotDimensionNumbers:
    """Which dimensions of a dot's operands are summed over, and which run in parallel. The k-th entries belong together."""

    lhs_contracting_dimensions: tuple[int, ...] = ()
    rhs_contracting_dimensions: tuple[int, ...] = ()
    lhs_batch_dimensions: tuple[int, ...] = ()
    rhs_batch_dimensions: tuple[int, ...] = ()

    def lhs_free(self, rank: int) -> tuple[int, ...]:
        """Dimensions of a lhs of this rank that are neither contracted nor batch."""
        return _others(rank, self.lhs_contracting_dimensions, self.lhs_batch_dimensions)

    def rhs_free(self, rank: int) -> tuple[int, ...]:
        """Dimensions of a rhs of this rank that are neither contracted nor batch."""
        return _others(rank, self.rhs_contracting_dimensions, self.rhs_batch_dimensions)


def _others(rank: int, *taken: tuple[int, ...]) -> tuple[int, ...]:
    used = {d for dims in taken for d in dims}
    return tuple(d for d in range(rank) if d not in used)


# ------------------------------------------------------------------------------------------- element types


def contraction_type(declared: Shape | None, lhs: Shape, rhs: Shape) -> PrimitiveType:
    """Element type of a dot or convolution: the declared (preferred) one, whatever it is, else the higher precision of the
    operands."""
    if declared is None:
        return _higher_type(lhs.element_type, rhs.element_type)
    require(declared.is_array, "the result is not an array", declared, "an array shape")
    return declared.element_type


def _higher_type(a: PrimitiveType, b: PrimitiveType) -> PrimitiveType:
    if a.is_floating and b.is_floating:
        return higher_precision(a, b)

    def rank(t: PrimitiveType) -> tuple[bool, bool, int, bool]:
        return t.is_complex, t.is_floating, 1 if t.is_pred else t.bits, t.is_signed

    return a if rank(a) >= rank(b) else b


def compute_dtype(result: PrimitiveType, *operands: PrimitiveType) -> torch.dtype:
    """The dtype in which a sum of products of such operands is formed: no narrower than any of them, and exact for
    integers modulo the result's width. PRED (an OR of ANDs) is summed in float32."""
    types = (result, *operands)
    if any(t.is_complex for t in types):
        return torch.complex128 if C128 in types or F64 in types else torch.complex64
    if any(t.is_floating for t in types):
        floats = {t.carrier for t in types if t.is_floating}
        if torch.float64 in floats:
            return torch.float64
        same = len(floats) == 1 and all(t.is_floating for t in types)
        return next(iter(floats)) if same else torch.float32  # pyright: ignore[reportReturnType]
    if result.is_pred:
        return torch.float32
    return torch.int64 if result.bits > 32 else torch.int32


def to_compute(value: Any, element_type: PrimitiveType, dtype: torch.dtype) -> Any:
    """A carrier as the dtype that products are formed in."""
    if element_type.carrier is dtype:
        return value
    if element_type.hides_sign and element_type.bits < 64:
        value = value.to(torch.int64) & ((1 << element_type.bits) - 1)
        return value if dtype is torch.int64 else value.to(dtype)
    return value.to(dtype)


def from_compute(value: Any, dtype: torch.dtype, element_type: PrimitiveType) -> Any:
    """A sum of products as the result's carrier, converted as `convert` does; integers wrap, PRED is true where any product
    was."""
    if element_type.is_pred:
        return value != 0
    if dtype.is_complex and not element_type.is_complex:
        value = torch.real(value)
        dtype = torch.float64 if dtype is torch.complex128 else torch.float32
    if dtype.is_floating_point and element_type.is_integral:
        return float_to_integer(value, element_type)
    return value if element_type.carrier is dtype else value.to(element_type.carrier)


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


@op("dot", infer=dot_shape, stablehlo="dot_general")
def dot(inst, lhs, rhs, *, lhs_contracting_dims: Dims = (), rhs_contracting_dims: Dims = (), lhs_batch_dims: Dims = (),
        rhs_batch_dims: Dims = (), operand_precision: Precision = (), algorithm: Raw = ""):
    """Products and sums are of the precision of the compute type, whatever less `operand_precision` and `algorithm` allow.

    On CUDA torch's own switches hold: float32 is not reduced to TF32 unless `torch.set_float32_matmul_precision` allows
    it, and sums of float16 and bfloat16, formed in float32, may be split and rounded in between unless
    `torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction` (or `allow_bf16_...`) is off.
    """
    left, right = (o.shape for o in inst.operands)
    numbers = DotDimensionNumbers(lhs_contracting_dims, rhs_contracting_dims, lhs_batch_dims, rhs_batch_dims)
    dtype = compute_dtype(inst.shape.element_type, left.element_type, right.element_type)
    product = contract(to_compute(lhs, left.element_type, dtype), to_compute(rhs, right.element_type, dtype),
                       _sizes(left), _sizes(right), numbers, _integer_bits(dtype, left, right))
    return from_compute(product, dtype, inst.shape.element_type)


def _integer_bits(dtype: torch.dtype, *operands: Shape) -> int:
    """0 for sums of products that are no integers, else the width of the widest operand."""
    return 0 if dtype.is_floating_point or dtype.is_complex else max(o.element_type.bits for o in operands)


def _sizes(shape: Shape) -> tuple[int, ...]:
    """The sizes of a shape, -1 for dimensions that are known at run time only."""
    return tuple(-1 if dynamic else d for d, dynamic in zip(shape.dimensions, shape.dynamic_flags, strict=True))


# ------------------------------------------------------------------------------------------- how torch does it


def contract(lhs: Any, rhs: Any, lhs_sizes: Sequence[int], rhs_sizes: Sequence[int], numbers: DotDimensionNumbers,
             integer_bits: int = 0) -> Any:
    """A general dot of two values of one dtype, as few torch calls as it takes. Sizes are -1 where dynamic; for integers
    `integer_bits` is the width of their values."""
    batch = len(numbers.lhs_batch_dimensions)
    lhs_free, rhs_free = numbers.lhs_free(len(lhs_sizes)), numbers.rhs_free(len(rhs_sizes))
    if not numbers.lhs_contracting_dimensions:
        return _outer(lhs, rhs, numbers, lhs_free, rhs_free)
    if any(sum(sizes[d] < 0 for d in free) > 1 for sizes, free in ((lhs_sizes, lhs_free), (rhs_sizes, rhs_free))):
        return _einsum(lhs, rhs, numbers, lhs_free, rhs_free, integer_bits)
    # Contracted pairs in the order of the lhs, so that at least its flattening can be a view.
    pairs = sorted(zip(numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions, strict=True))
    lhs_summed, rhs_summed = tuple(i for i, _ in pairs), tuple(j for _, j in pairs)
    # Without batch dimensions torch.matmul takes several dimensions of rows as they are, if the summed ones come last.
    rows_kept = not batch and len(lhs_free) > 1 and max(lhs_free) < min(lhs_summed)
    left = _matrix(lhs, numbers.lhs_batch_dimensions, lhs_free, lhs_summed, rows_kept)
    right = _matrix(rhs, numbers.rhs_batch_dimensions, rhs_summed, rhs_free, False)
    if batch and not lhs_free:
        left = left.unsqueeze(-2)
    if batch and not rhs_free:
        right = right.unsqueeze(-1)
    result = _matmul(left, right, integer_bits)
    if batch and not rhs_free:
        result = result.squeeze(-1)
    if batch and not lhs_free:
        result = result.squeeze(batch)
    if len(rhs_free) > 1:
        result = result.unflatten(-1, tuple(rhs_sizes[d] for d in rhs_free))
    if len(lhs_free) > 1 and not rows_kept:
        result = result.unflatten(batch, tuple(lhs_sizes[d] for d in lhs_free))
    return result


def _matmul(left: Any, right: Any, integer_bits: int) -> Any:
    if integer_bits and values.device().type != "cpu":
        return values.emit(kernels.integer_matmul, left, right, integer_bits)
    return left @ right


def _matrix(value: Any, batch: tuple[int, ...], rows: tuple[int, ...], columns: tuple[int, ...], keep_rows: bool) -> Any:
    """`value` as [batch..., rows, columns], each of the two flattened (absent where empty); rows stay apart if asked.

    Where the columns' dimensions come first in the operand they are flattened in that order and the result is transposed,
    so that nothing is copied.
    """
    count = len(batch)
    crossed = len(rows) + len(columns) > 2 and bool(rows) and bool(columns) and max(columns) < min(rows)
    first, second = (columns, rows) if crossed else (rows, columns)
    value = permuted(value, (*batch, *first, *second))
    if len(second) > 1:
        value = value.flatten(count + len(first))
    if len(first) > 1 and not keep_rows:
        value = value.flatten(count, count + len(first) - 1)
    if not crossed:
        return value
    return value.transpose(-2, -1) if count else value.t()


def permuted(value: Any, order: Sequence[int]) -> Any:
    """The value with its dimensions in this order, by the plainest call there is."""
    order, unchanged = tuple(order), tuple(range(len(order)))
    if order == unchanged:
        return value
    if order == (1, 0):
        return value.t()
    return value.transpose(-2, -1) if order == (*unchanged[:-2], *unchanged[:-3:-1]) else value.permute(order)


def _outer(lhs: Any, rhs: Any, numbers: DotDimensionNumbers, lhs_free: tuple[int, ...], rhs_free: tuple[int, ...]) -> Any:
    """No contracted dimension: every pair of elements is multiplied."""
    left = permuted(lhs, (*numbers.lhs_batch_dimensions, *lhs_free))
    right = permuted(rhs, (*numbers.rhs_batch_dimensions, *rhs_free))
    for _ in rhs_free if lhs_free or numbers.lhs_batch_dimensions else ():
        left = left.unsqueeze(-1)
    for _ in lhs_free if numbers.lhs_batch_dimensions else ():
        right = right.unsqueeze(len(numbers.lhs_batch_dimensions))
    return left * right


def _einsum(lhs: Any, rhs: Any, numbers: DotDimensionNumbers, lhs_free: Iterable[int], rhs_free: Iterable[int],
            integer_bits: int) -> Any:
    """For several dynamic sizes in one flattened dimension, whose split would have to be known."""
    letters = iter(string.ascii_letters)
    left: dict[int, str] = {}
    right: dict[int, str] = {}
    for i, j in (*zip(numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions, strict=True),
                 *zip(numbers.lhs_batch_dimensions, numbers.rhs_batch_dimensions, strict=True)):
        left[i] = right[j] = next(letters)
    left |= {i: next(letters) for i in lhs_free}
    right |= {j: next(letters) for j in rhs_free}
    result = "".join([left[i] for i in (*numbers.lhs_batch_dimensions, *lhs_free)] + [right[j] for j in rhs_free])
    equation = f"{''.join(left[i] for i in sorted(left))},{''.join(right[j] for j in sorted(right))}->{result}"
    if integer_bits and values.device().type != "cpu":
        return values.emit(kernels.integer_einsum, equation, lhs, rhs, integer_bits)
    return torch.einsum(equation, lhs, rhs)


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
    prefix = _group_prefix(lhs.rank, ragged, numbers)
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


def _group_prefix(rank: int, ragged: int, numbers: DotDimensionNumbers) -> tuple[int, ...]:
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


@op("ragged-dot", infer=ragged_dot_shape, stablehlo="chlo.ragged_dot")
def ragged_dot(inst, lhs, rhs, group_sizes, *, lhs_contracting_dims: Dims = (), rhs_contracting_dims: Dims = (),
               lhs_batch_dims: Dims = (), rhs_batch_dims: Dims = (), lhs_ragged_dims: Dims, rhs_group_dims: Dims = (),
               operand_precision: Precision = (), algorithm: Raw = ""):
    left, right, sizes = (o.shape for o in inst.operands)
    numbers = DotDimensionNumbers(lhs_contracting_dims, rhs_contracting_dims, lhs_batch_dims, rhs_batch_dims)
    dtype = compute_dtype(inst.shape.element_type, left.element_type, right.element_type)
    ragged = lhs_ragged_dims[0]
    prefix = _group_prefix(left.rank, ragged, numbers) if sizes.rank > 1 else ()
    # [group, lhs...]: the lhs with all but one group's elements zero, so that groups become an ordinary dimension.
    members = values.emit(kernels.group_members, group_sizes, left.dimensions[ragged])
    for _ in range(left.rank - len(prefix) - 1):
        members = members.unsqueeze(-1)
    members = members.permute(len(prefix), *_placed(left.rank, (*prefix, ragged)))
    one, other = to_compute(lhs, left.element_type, dtype), to_compute(rhs, right.element_type, dtype)
    spread = torch.where(members, one, 0)
    groups = sizes.dimensions[-1]
    moved = DotDimensionNumbers(tuple(d + 1 for d in lhs_contracting_dims), rhs_contracting_dims,
                                tuple(d + 1 for d in lhs_batch_dims), rhs_batch_dims)
    integer = _integer_bits(dtype, left, right)
    if ragged in lhs_batch_dims:
        result = contract(spread.sum(0, dtype=dtype), other, _sizes(left), _sizes(right), numbers, integer)
    elif ragged in lhs_contracting_dims:
        result = contract(spread, other, (groups, *_sizes(left)), _sizes(right), moved, integer)
        result = result.movedim(len(lhs_batch_dims), 0)
    else:
        grouped = dataclasses.replace(moved, lhs_contracting_dimensions=(0, *moved.lhs_contracting_dimensions),
                                      rhs_contracting_dimensions=(*rhs_group_dims, *rhs_contracting_dims))
        result = contract(spread, other, (groups, *_sizes(left)), _sizes(right), grouped, integer)
    return from_compute(result, dtype, inst.shape.element_type)


def _placed(rank: int, present: tuple[int, ...]) -> list[int]:
    """Where each of `rank` dimensions is found in an array [present[:-1]..., group, present[-1], 1, 1, ...]."""
    spare = iter(range(len(present) + 1, rank + 1))
    at = {d: k if k < len(present) - 1 else k + 1 for k, d in enumerate(present)}
    return [at[d] if d in at else next(spare) for d in range(rank)]


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


@op("scaled-dot", infer=scaled_dot_shape, inferable=False)
def scaled_dot(inst, lhs, rhs, lhs_scale, rhs_scale, *, lhs_contracting_dims: Dims = (), rhs_contracting_dims: Dims = (),
               lhs_batch_dims: Dims = (), rhs_batch_dims: Dims = (), operand_precision: Precision = (), algorithm: Raw = ""):
    left, right, left_scale, right_scale = (o.shape for o in inst.operands)
    numbers = DotDimensionNumbers(lhs_contracting_dims, rhs_contracting_dims, lhs_batch_dims, rhs_batch_dims)
    types = [o.shape.element_type for o in inst.operands]
    dtype = torch.float64 if F64 in types or inst.shape.element_type is F64 else torch.float32
    if any(t.is_complex for t in types):
        dtype = torch.complex128 if C128 in types else torch.complex64
    one = _scaled(lhs, lhs_scale, left, left_scale, dtype)
    other = _scaled(rhs, rhs_scale, right, right_scale, dtype)
    return from_compute(contract(one, other, _sizes(left), _sizes(right), numbers), dtype, inst.shape.element_type)


def _scaled(value: Any, scale: Any, shape: Shape, scales: Shape, dtype: torch.dtype) -> Any:
    """`value` times `scale`, each entry of which stands for a block of elements."""
    value, scale = to_compute(value, shape.element_type, dtype), to_compute(scale, scales.element_type, dtype)
    if all(s in (1, n) for n, s in zip(shape.dimensions, scales.dimensions, strict=False)):
        return value * scale
    for dim, (n, s) in reversed(list(enumerate(zip(shape.dimensions, scales.dimensions, strict=True)))):
        if s not in (1, n):
            value, scale = value.unflatten(dim, (s, n // s)), scale.unsqueeze(dim + 1)
    value = value * scale
    for dim, (n, s) in enumerate(zip(shape.dimensions, scales.dimensions, strict=True)):
        if s not in (1, n):
            value = value.flatten(dim, dim + 1)
    return value
