"""Op bodies: dot, ragged-dot and scaled-dot.

The torch calls are chosen from static shapes so that a plain matrix product becomes ``lhs @ rhs`` and operands are transposed and
flattened as views where they can be.
"""

from __future__ import annotations

import dataclasses
import math
import string
from collections.abc import Iterable, Sequence

import torch

from ...core.shape import Shape
from ...core.types import F32, PrimitiveType
from ...hlo.attributes import Dims, DotAlgorithm, Precision
from ...hlo.ir import Instruction
from ...kernels import contraction as kernels
from ...opcodes.contraction import DotDimensionNumbers, group_prefix, highest_type
from ...storage.dtypes import storage_dtype
from .. import numerics, values
from ..body_table import body
from ..values import Value
from .convert import converted


def compute_dtype(factors: PrimitiveType) -> torch.dtype:
    """The dtype in which sums of products of such factors are formed: exact for integers modulo their width. PRED (an OR of ANDs)
    is summed in float32."""
    if factors.is_pred:
        return torch.float32
    if factors.is_integral:
        return torch.int64 if factors.bits > 32 else torch.int32
    return storage_dtype(factors)


def to_factors(value: Value, element_type: PrimitiveType, factors: PrimitiveType) -> Value:
    """A stored value as factors of this type, in the dtype that they are multiplied in."""
    if element_type is not factors:
        value = numerics.normalise(converted(value, element_type, factors), factors)
    dtype = compute_dtype(factors)
    return value if storage_dtype(factors) is dtype else value.to(dtype)


def from_products(value: Value, factors: PrimitiveType, element_type: PrimitiveType) -> Value:
    """Sums of products of such factors, rounded to their type (integers wrap, PRED is true where any product was), in the
    result's."""
    value = value != 0 if factors.is_pred else value
    if factors.is_integral and compute_dtype(factors) is not storage_dtype(factors):
        value = value.to(storage_dtype(factors))
    if element_type is factors:
        return value
    return converted(numerics.normalise(value, factors), factors, element_type)


@body("dot")
def dot(inst: Instruction, lhs: Value, rhs: Value, *, lhs_contracting_dims: Dims, rhs_contracting_dims: Dims,
        lhs_batch_dims: Dims, rhs_batch_dims: Dims, operand_precision: Precision, algorithm: DotAlgorithm) -> Value:
    """Products and sums are of the precision of the compute type, whatever less `operand_precision` and `algorithm` allow.

    On CUDA torch's own switches hold: float32 is not reduced to TF32 unless `torch.set_float32_matmul_precision` allows
    it, and sums of float16 and bfloat16, formed in float32, may be split and rounded in between unless
    `torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction` (or `allow_bf16_...`) is off.
    """
    left, right = (o.shape for o in inst.operands)
    numbers = DotDimensionNumbers(lhs_contracting_dims, rhs_contracting_dims, lhs_batch_dims, rhs_batch_dims)
    factors = highest_type(left.element_type, right.element_type, inst.shape.element_type)
    if lhs_contracting_dims and _are_bytes(factors, left, right):
        product = contract(lhs, rhs, left.dimensions, right.dimensions, numbers, in_bytes=True)
        return from_products(product, factors, inst.shape.element_type)
    product = contract(to_factors(lhs, left.element_type, factors), to_factors(rhs, right.element_type, factors),
                       _sizes(left), _sizes(right), numbers, _integer_bits(factors, left, right))
    return from_products(product, factors, inst.shape.element_type)


def _integer_bits(factors: PrimitiveType, *operands: Shape) -> int:
    """0 for sums of products that are no integers, else the width of the widest operand."""
    return max(o.element_type.bits for o in operands) if factors.is_integral else 0


def _are_bytes(factors: PrimitiveType, *operands: Shape) -> bool:
    """Whether these are integers as they are stored in bytes, with sums that are formed in int32, on the CPU."""
    stored = all(o.element_type.is_integral and o.element_type.bits <= 8 and not any(o.dynamic_flags) for o in operands)
    return stored and factors.is_integral and compute_dtype(factors) is torch.int32 and values.device().type == "cpu"


def _sizes(shape: Shape) -> tuple[int, ...]:
    """The sizes of a shape, -1 for dimensions that are known at run time only."""
    return tuple(-1 if dynamic else d for d, dynamic in zip(shape.dimensions, shape.dynamic_flags, strict=True))


# ------------------------------------------------------------------------------------------- how torch does it


def contract(lhs: Value, rhs: Value, lhs_sizes: Sequence[int], rhs_sizes: Sequence[int], numbers: DotDimensionNumbers,
             integer_bits: int = 0, in_bytes: bool = False) -> Value:
    """A general dot of two values of one dtype, as few torch calls as it takes. Sizes are -1 where dynamic; for integers
    `integer_bits` is the width of their values, and where these are `in_bytes` they become int32 sums."""
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
    *outer, row = lhs_free or (0,)
    come_first = not batch and bool(outer) and max(outer) < min(lhs_summed)
    rows_kept = come_first and (row < min(lhs_summed) or _are_turned(lhs_sizes, row, lhs_summed))
    left = _matrix(lhs, numbers.lhs_batch_dimensions, lhs_free, lhs_summed, rows_kept)
    right = _matrix(rhs, numbers.rhs_batch_dimensions, rhs_summed, rhs_free, False)
    if batch and not lhs_free:
        left = left.unsqueeze(-2)
    if batch and not rhs_free:
        right = right.unsqueeze(-1)
    result = values.emit(kernels.byte_matmul, left, right) if in_bytes else _matmul(left, right, integer_bits)
    if batch and not rhs_free:
        result = result.squeeze(-1)
    if batch and not lhs_free:
        result = result.squeeze(batch)
    if len(rhs_free) > 1:
        result = result.unflatten(-1, tuple(rhs_sizes[d] for d in rhs_free))
    if len(lhs_free) > 1 and not rows_kept:
        result = result.unflatten(batch, tuple(lhs_sizes[d] for d in lhs_free))
    return result


TURNED_FROM = 64


def _are_turned(sizes: Sequence[int], row: int, summed: Dims) -> bool:
    """Whether an operand is a batch of transposed matrices, and these are large: to flatten their rows would copy all of them,
    which takes ten times as long as their products. Small ones are better copied, into one product."""
    return row > max(summed) and sizes[row] > 1 and sizes[row] * math.prod(sizes[d] for d in summed) >= TURNED_FROM


def _matmul(left: Value, right: Value, integer_bits: int) -> Value:
    if integer_bits and values.device().type != "cpu":
        return values.emit(kernels.integer_matmul, left, right, integer_bits)
    return left @ right


def _matrix(value: Value, batch: tuple[int, ...], rows: tuple[int, ...], columns: tuple[int, ...], keep_rows: bool) -> Value:
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


def permuted(value: Value, order: Sequence[int]) -> Value:
    """The value with its dimensions in this order, by the plainest call there is."""
    order, unchanged = tuple(order), tuple(range(len(order)))
    if order == unchanged:
        return value
    if order == (1, 0):
        return value.t()
    return value.transpose(-2, -1) if order == (*unchanged[:-2], *unchanged[:-3:-1]) else value.permute(order)


def _outer(lhs: Value, rhs: Value, numbers: DotDimensionNumbers, lhs_free: tuple[int, ...], rhs_free: tuple[int, ...]) -> Value:
    """No contracted dimension: every pair of elements is multiplied."""
    left = permuted(lhs, (*numbers.lhs_batch_dimensions, *lhs_free))
    right = permuted(rhs, (*numbers.rhs_batch_dimensions, *rhs_free))
    for _ in rhs_free if lhs_free or numbers.lhs_batch_dimensions else ():
        left = left.unsqueeze(-1)
    for _ in lhs_free if numbers.lhs_batch_dimensions else ():
        right = right.unsqueeze(len(numbers.lhs_batch_dimensions))
    return left * right


def _einsum(lhs: Value, rhs: Value, numbers: DotDimensionNumbers, lhs_free: Iterable[int], rhs_free: Iterable[int],
            integer_bits: int) -> Value:
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


@body("ragged-dot")
def ragged_dot(inst: Instruction, lhs: Value, rhs: Value, group_sizes: Value, *, lhs_contracting_dims: Dims,
               rhs_contracting_dims: Dims, lhs_batch_dims: Dims, rhs_batch_dims: Dims, lhs_ragged_dims: Dims,
               rhs_group_dims: Dims, operand_precision: Precision, algorithm: DotAlgorithm) -> Value:
    left, right, sizes = (o.shape for o in inst.operands)
    numbers = DotDimensionNumbers(lhs_contracting_dims, rhs_contracting_dims, lhs_batch_dims, rhs_batch_dims)
    factors = highest_type(left.element_type, right.element_type, inst.shape.element_type)
    ragged = lhs_ragged_dims[0]
    prefix = group_prefix(left.rank, ragged, numbers) if sizes.rank > 1 else ()
    # [group, lhs...]: the lhs with all but one group's elements zero, so that groups become an ordinary dimension.
    members = values.emit(kernels.group_members, group_sizes, left.dimensions[ragged])
    for _ in range(left.rank - len(prefix) - 1):
        members = members.unsqueeze(-1)
    members = members.permute(len(prefix), *_placed(left.rank, (*prefix, ragged)))
    one, other = to_factors(lhs, left.element_type, factors), to_factors(rhs, right.element_type, factors)
    spread = torch.where(members, one, 0)
    groups = sizes.dimensions[-1]
    moved = DotDimensionNumbers(tuple(d + 1 for d in lhs_contracting_dims), rhs_contracting_dims,
                                tuple(d + 1 for d in lhs_batch_dims), rhs_batch_dims)
    integer = _integer_bits(factors, left, right)
    if ragged in lhs_batch_dims:
        result = contract(spread.sum(0, dtype=compute_dtype(factors)), other, _sizes(left), _sizes(right), numbers, integer)
    elif ragged in lhs_contracting_dims:
        result = contract(spread, other, (groups, *_sizes(left)), _sizes(right), moved, integer)
        result = result.movedim(len(lhs_batch_dims), 0)
    else:
        grouped = dataclasses.replace(moved, lhs_contracting_dimensions=(0, *moved.lhs_contracting_dimensions),
                                      rhs_contracting_dimensions=(*rhs_group_dims, *rhs_contracting_dims))
        result = contract(spread, other, (groups, *_sizes(left)), _sizes(right), grouped, integer)
    return from_products(result, factors, inst.shape.element_type)


def _placed(rank: int, present: tuple[int, ...]) -> list[int]:
    """Where each of `rank` dimensions is found in an array [present[:-1]..., group, present[-1], 1, 1, ...]."""
    spare = iter(range(len(present) + 1, rank + 1))
    at = {d: k if k < len(present) - 1 else k + 1 for k, d in enumerate(present)}
    return [at[d] if d in at else next(spare) for d in range(rank)]


@body("scaled-dot")
def scaled_dot(inst: Instruction, lhs: Value, rhs: Value, lhs_scale: Value, rhs_scale: Value, *,
               lhs_contracting_dims: Dims, rhs_contracting_dims: Dims, lhs_batch_dims: Dims, rhs_batch_dims: Dims,
               operand_precision: Precision, algorithm: DotAlgorithm) -> Value:
    left, right, left_scale, right_scale = (o.shape for o in inst.operands)
    numbers = DotDimensionNumbers(lhs_contracting_dims, rhs_contracting_dims, lhs_batch_dims, rhs_batch_dims)
    types = [o.shape.element_type for o in inst.operands]
    factors = highest_type(F32, inst.shape.element_type, *types)
    one = _scaled(lhs, lhs_scale, left, left_scale, factors)
    other = _scaled(rhs, rhs_scale, right, right_scale, factors)
    return from_products(contract(one, other, _sizes(left), _sizes(right), numbers), factors, inst.shape.element_type)


def _scaled(value: Value, scale: Value, shape: Shape, scales: Shape, factors: PrimitiveType) -> Value:
    """`value` times `scale`, each entry of which stands for a block of elements."""
    value, scale = to_factors(value, shape.element_type, factors), to_factors(scale, scales.element_type, factors)
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
