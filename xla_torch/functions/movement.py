"""Documented functions: data movement and constants.

Documents: operation semantics, the sections of the functions' own names. Operands are arrays of any element type, which the
result has too.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.errors import InvalidArgument
from ..core.shape import UNBOUNDED, Shape
from ..core.sizes import common_factors, integer
from ..core.types import C64, F32, S32, PrimitiveType
from ..hlo.choices import PaddingConfig, PaddingConfigDimension
from ..hlo.literals.literal import Literal
from ..hlo.numbers import as_array
from ..opcodes import movement
from ._documented import checked, documented, renamed, variadic
from .hlo_builder import Builder, Liftable, XlaOp, lift

__all__ = ["Broadcast", "BroadcastInDim", "Collapse", "ConcatInDim", "Concatenate", "Constant", "ConstantLiteral", "ConstantR0",
           "ConstantR1", "ConstantR2", "ConstantR3", "ConstantR4", "Copy", "Iota", "Pad", "PadInDim", "PaddingConfig",
           "PaddingConfigDimension", "Parameter", "Reshape",
           "ReshapeWithInferredDimension", "Rev", "Slice", "SliceInDim", "Transpose"]


def _require(function: str, condition: bool, what: str, got: object = "", expected: object = "", hint: str = "") -> None:
    if not condition:
        raise InvalidArgument(what, subject=function, got=got, expected=expected, hint=hint)


# --------------------------------------------------------------------------------------------- broadcasts


@renamed(sizes="broadcast_sizes")
@documented
def Broadcast(operand: XlaOp, broadcast_sizes: Sequence[int]) -> XlaOp:
    """Prepend dimensions of `broadcast_sizes`: ``result[i..., j...] = operand[j...]``. Any element type.

    Raises InvalidArgument for a negative size.

    >>> ops.Broadcast(torch.tensor([1.0, 2.0]), [3])
    tensor([[1., 2.],
            [1., 2.],
            [1., 2.]])
    """
    sizes, given = list(broadcast_sizes), operand.shape
    _require("Broadcast", all(s >= 0 for s in sizes), "a size is negative", got=sizes)
    shape = given.with_dimensions([*sizes, *given.dimensions], [False] * len(sizes) + list(given.dynamic_flags))
    return operand.builder.add(movement.broadcast, [operand], {"dimensions": range(len(sizes), shape.rank)}, shape)


@renamed(shape="out_dim_size")
@documented
def BroadcastInDim(operand: XlaOp, out_dim_size: Sequence[int], broadcast_dimensions: Sequence[int]) -> XlaOp:
    """Operand dimension i becomes dimension `broadcast_dimensions[i]` of an array of `out_dim_size`; size 1 stretches.

    Raises InvalidArgument where the dimensions are not strictly increasing and in range, one for each operand dimension, or
    where an operand size is neither 1 nor the result's.

    >>> ops.BroadcastInDim(torch.tensor([1.0, 2.0]), [2, 3], [0])
    tensor([[1., 1., 1.],
            [2., 2., 2.]])
    """
    sizes, dims, given = list(out_dim_size), list(broadcast_dimensions), operand.shape
    name = "BroadcastInDim"
    _require(name, len(dims) == given.rank, "one entry of broadcast_dimensions is needed for each operand dimension",
             got=f"{dims} for {given}")
    _require(name, all(0 <= d < len(sizes) for d in dims), "broadcast_dimensions has an entry out of range", got=dims,
             expected=f"entries of 0..{len(sizes) - 1}")
    _require(name, all(a < b for a, b in itertools.pairwise(dims)), "broadcast_dimensions is not strictly increasing",
             got=dims)
    for position, d in enumerate(dims):
        size = given.dimensions[position]
        _require(name, size in (1, sizes[d], UNBOUNDED), "an operand dimension does not fit the result",
                 got=f"{given} dimension {position} ({size}), result dimension {d} ({sizes[d]})", expected="1 or equal sizes")
    flags = [False] * len(sizes)
    for position, d in enumerate(dims):
        flags[d] = given.dynamic_flags[position]
    kept = [p for p, d in enumerate(dims) if given.dimensions[p] == sizes[d]]
    if len(kept) < given.rank:
        squeezed = given.with_dimensions([given.dimensions[p] for p in kept], [given.dynamic_flags[p] for p in kept])
        operand = operand.builder.add(movement.reshape, [operand], shape=squeezed)
    if kept == list(range(len(sizes))):
        return operand
    shape = given.with_dimensions(sizes, flags)
    return operand.builder.add(movement.broadcast, [operand], {"dimensions": [dims[p] for p in kept]}, shape)


# --------------------------------------------------------------------------------------------- reshapes


@documented
def Reshape(operand: XlaOp | Shape, dimensions: XlaOp | Sequence[int] | None = None, new_sizes: Sequence[int] | None = None, *,
            shape: Shape | None = None) -> XlaOp:
    """The same elements, in row-major order, in other dimensions.

    ``Reshape(operand, dimensions)``, of which older documents call the second `new_sizes`; ``Reshape(shape, operand)`` with the
    result's shape, which says what is dynamic; and the old ``Reshape(operand, dimensions, new_sizes)``, in which `dimensions`
    is a permutation that is applied first. Raises InvalidArgument where the numbers of elements differ.

    >>> ops.Reshape(torch.tensor([[1, 2, 3], [4, 5, 6]]), [3, 2])
    tensor([[1, 2],
            [3, 4],
            [5, 6]])
    """
    if isinstance(operand, Shape):
        operand, dimensions, shape = dimensions, None, operand  # pyright: ignore[reportAssignmentType] (looked at next)
    if not isinstance(operand, XlaOp) or isinstance(dimensions, XlaOp) or dimensions is new_sizes is shape is None:
        raise InvalidArgument("wrong arguments", subject="Reshape",
                              expected="(operand, dimensions), (shape, operand) or (operand, dimensions, new_sizes)")
    if shape is not None:
        return operand.builder.add(movement.reshape, [operand], shape=shape)
    if dimensions is not None and new_sizes is not None:
        return Reshape(Transpose(operand, dimensions), new_sizes)
    sizes = [integer(n) for n in (dimensions if new_sizes is None else new_sizes) or ()]
    if sizes == list(operand.shape.dimensions):
        return operand
    return operand.builder.add(movement.reshape, [operand], shape=operand.shape.with_dimensions(
        sizes, _reshaped_flags(operand.shape, sizes)))


def _reshaped_flags(operand: Shape, sizes: Sequence[int]) -> list[bool]:
    """Which dimensions of a reshaped dynamic array are dynamic: of those a dynamic one is split into, the first."""
    flags = [n == UNBOUNDED for n in sizes]
    if operand.is_static or UNBOUNDED in operand.dimensions or UNBOUNDED in sizes:
        return flags
    for old, new in common_factors(operand.dimensions, sizes):
        if new and any(operand.dynamic_flags[d] for d in old):
            flags[next((d for d in new if sizes[d] != 1), new[0])] = True
    return flags


@documented
def ReshapeWithInferredDimension(operand: XlaOp, new_sizes: Sequence[int], inferred_dimension: int) -> XlaOp:
    """`Reshape` in which, if the operand has dynamic dimensions, `inferred_dimension` gets its size at run time.

    The size given there is the bound; -1 stands for what is left of the element count.

    >>> ops.ReshapeWithInferredDimension(torch.arange(6), [-1, 2], 0)
    tensor([[0, 1],
            [2, 3],
            [4, 5]])
    """
    sizes, given = [integer(n) for n in new_sizes], operand.shape
    _require("ReshapeWithInferredDimension", 0 <= inferred_dimension < len(sizes), "inferred_dimension is out of range",
             got=f"{inferred_dimension} for sizes {sizes}")
    if sizes[inferred_dimension] == -1:
        known = math.prod(n for d, n in enumerate(sizes) if d != inferred_dimension)
        unbounded = UNBOUNDED in given.dimensions
        sizes[inferred_dimension] = UNBOUNDED if unbounded else given.element_count // known if known else 0
    flags = [d == inferred_dimension and not given.is_static for d in range(len(sizes))]
    attributes = {} if given.is_static else {"inferred_dimension": inferred_dimension}
    return operand.builder.add(movement.reshape, [operand], attributes, given.with_dimensions(sizes, flags))


@documented
def Collapse(operand: XlaOp, dimensions: Sequence[int]) -> XlaOp:
    """Replace a run of dimensions (consecutive, ascending) by one with their product; fewer than two change nothing.

    ``Collapse(f32[4,2,3], (0, 1))`` is f32[8,3] and ``Collapse(f32[4,2,3], (1, 2))`` is f32[4,6].

    >>> ops.Collapse(torch.zeros(4, 2, 3), [0, 1]).shape
    torch.Size([8, 3])
    """
    dims, given = list(dimensions), operand.shape
    _require("Collapse", all(0 <= d < given.rank and d == dims[0] + k for k, d in enumerate(dims)),
             "the dimensions are not a run of the operand's", got=f"{dims} for {given}", expected="consecutive and ascending")
    if len(dims) <= 1:
        return operand
    run = given.dimensions[dims[0]:dims[-1] + 1]
    collapsed = UNBOUNDED if UNBOUNDED in run else math.prod(run)
    return Reshape(operand, [*given.dimensions[:dims[0]], collapsed, *given.dimensions[dims[-1] + 1:]])


@documented
def Transpose(operand: XlaOp, permutation: Sequence[int]) -> XlaOp:
    """The operand with its dimensions in another order: result dimension i is operand dimension `permutation[i]`.

    Raises InvalidArgument for what is no permutation of the operand's dimensions.

    >>> ops.Transpose(torch.tensor([[1, 2, 3], [4, 5, 6]]), [1, 0])
    tensor([[1, 4],
            [2, 5],
            [3, 6]])
    """
    return operand.builder.add(movement.transpose, [operand], {"dimensions": permutation})


@documented
def Rev(operand: XlaOp, dimensions: Sequence[int]) -> XlaOp:
    """Reverse the order of elements along `dimensions`. Raises InvalidArgument for a dimension out of range or given twice.

    >>> ops.Rev(torch.tensor([[1, 2], [3, 4]]), [1])
    tensor([[2, 1],
            [4, 3]])
    """
    attributes = {"dimensions": dimensions}
    return operand.builder.add(movement.reverse, [operand], attributes)


# --------------------------------------------------------------------------------------------- slices, concatenation, padding


@documented
def Slice(operand: XlaOp, start_indices: Sequence[int], limit_indices: Sequence[int],
          strides: Sequence[int] | None = None) -> XlaOp:
    """The elements from start to before limit in each dimension, every `strides`-th one (default: every one).

    Raises InvalidArgument for a wrong number of entries, 0 <= start <= limit <= size violated, or a stride under 1.

    >>> ops.Slice(torch.tensor([0, 10, 20, 30, 40]), [1], [5], [2])
    tensor([10, 30])
    """
    steps = [1] * len(start_indices) if strides is None else list(strides)
    _require("Slice", len(start_indices) == len(limit_indices) == len(steps), "starts, limits and strides differ in number",
             got=f"{len(start_indices)}, {len(limit_indices)}, {len(steps)}")
    bounds = tuple(zip(start_indices, limit_indices, steps, strict=True))
    return operand.builder.add(movement.slice_, [operand], {"slice": bounds})


@documented
def SliceInDim(operand: XlaOp, start_index: int, limit_index: int, stride: int, dimno: int) -> XlaOp:
    """`Slice` in dimension `dimno`, all of the others. Raises InvalidArgument as that does, and for a dimension out of range.

    >>> ops.SliceInDim(torch.tensor([[1, 2, 3], [4, 5, 6]]), 0, 3, 2, 1)
    tensor([[1, 3],
            [4, 6]])
    """
    _require("SliceInDim", 0 <= dimno < operand.shape.rank, "the dimension is out of range", got=f"{dimno} for {operand.shape}")
    bounds = [(0, n, 1) for n in operand.shape.dimensions]
    bounds[dimno] = (start_index, limit_index, stride)
    return operand.builder.add(movement.slice_, [operand], {"slice": tuple(bounds)})


@variadic("operands...")
@documented
def ConcatInDim(builder: Builder, operands: Sequence[XlaOp], dimension: int) -> XlaOp:
    """The operands (a list, or one by one) one after another along a dimension; ranks, element types and other sizes are equal.

    Raises InvalidArgument for no operands, scalars, and whatever is not equal.

    >>> ops.ConcatInDim([torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0], [4.0]])], 1)
    tensor([[1., 3.],
            [2., 4.]])
    """
    return builder.add(movement.concatenate, operands, {"dimensions": (dimension,)})


@variadic("operands...")
@documented
def Concatenate(builder: Builder, operands: Sequence[XlaOp], dimension: int) -> XlaOp:
    """The older name of `ConcatInDim`.

    >>> ops.Concatenate([torch.tensor([1.0]), torch.tensor([2.0, 3.0])], 0)
    tensor([1., 2., 3.])
    """
    return ConcatInDim(builder, operands, dimension)


@documented
def Pad(operand: XlaOp, padding_value: XlaOp | Liftable, padding_config: PaddingConfig | Sequence[Sequence[int]]) -> XlaOp:
    """Pad each dimension by (low, high, interior) of `padding_config`: interior values between neighbours first, then the
    edges. Negative edges crop, also what was just inserted.

    `padding_value` is a scalar of the operand's type. Raises InvalidArgument for negative interior padding and for a
    negative size of the result.

    >>> ops.Pad(torch.tensor([1.0, 2.0, 3.0]), 0.0, [(2, -1, 1)])
    tensor([0., 0., 1., 0., 2., 0.])
    """
    _require("Pad", all(len(entry) == 3 for entry in padding_config), "an entry is not (low, high, interior)",
             got=[tuple(entry) for entry in padding_config], hint="use make_padding_config(pairs), which has no interior padding")
    value = lift(operand.builder, padding_value, operand)
    if not operand.shape.rank and not padding_config and value.shape.compatible(operand.shape):
        return operand  # XLA cannot read what its text has for this: an empty attribute
    return operand.builder.add(movement.pad, [operand, value], {"padding": tuple(tuple(map(integer, e)) for e in padding_config)})


@documented
def PadInDim(operand: XlaOp, padding_value: XlaOp | Liftable, dimno: int, pad_lo: int, pad_hi: int) -> XlaOp:
    """`Pad` at the edges of dimension `dimno`. Raises InvalidArgument for a dimension out of range and a negative size.

    >>> ops.PadInDim(torch.tensor([[1.0], [2.0]]), 0.0, 1, 1, 2)
    tensor([[0., 1., 0., 0.],
            [0., 2., 0., 0.]])
    """
    _require("PadInDim", 0 <= dimno < operand.shape.rank, "the dimension is out of range", got=f"{dimno} for {operand.shape}")
    return Pad(operand, padding_value, [(pad_lo, pad_hi, 0) if d == dimno else (0, 0, 0) for d in range(operand.shape.rank)])


# --------------------------------------------------------------------------------------------- constants and parameters


@renamed(type="shape", size="iota_dimension")
@documented
def Iota(builder: Builder, shape: Shape | PrimitiveType, iota_dimension: int) -> XlaOp:
    """0, 1, 2, ... along a dimension of `shape`. Integers wrap, floats are converted integers.

    ``Iota(builder, type, size)`` is the vector of so many elements. Raises InvalidArgument for PRED, a dynamic shape and a
    dimension out of range.

    >>> ops.Iota(Shape.parse("f32[2,3]"), 1)
    tensor([[0., 1., 2.],
            [0., 1., 2.]])
    """
    if isinstance(shape, PrimitiveType):
        shape, iota_dimension = Shape.array(shape, [iota_dimension]), 0
    return builder.add(movement.iota, [], {"iota_dimension": iota_dimension}, shape)


@documented
def ConstantLiteral(builder: Builder, literal: Literal | Any) -> XlaOp:
    """A constant with the value of a Literal, or of anything that NumPy understands, in NumPy's type for it.

    >>> ops.ConstantLiteral(np.array([1, 2], np.int8))
    tensor([1, 2], dtype=torch.int8)
    """
    return builder.constant(literal if isinstance(literal, Literal) else as_array(literal))


@renamed(literal="value")
@documented
def Constant(builder: Builder, value: Literal | Liftable | Sequence[Any], element_type: PrimitiveType | None = None) -> XlaOp:
    """A constant. Unless `element_type` says otherwise, Python ints are S32 (a single one S64 or U64 where it needs that), floats
    F32 and complex numbers C64, while numbers and arrays of NumPy keep their type.

    >>> ops.Constant([1, 2, 3])
    tensor([1, 2, 3], dtype=torch.int32)
    >>> ops.Constant(0.1, "bf16")
    tensor(0.1001, dtype=torch.bfloat16)
    """
    if isinstance(value, Literal):
        return builder.constant(value)
    if isinstance(value, (bool, int, float, complex)):
        return builder.constant(value, element_type)
    array = as_array(value)
    if element_type is None and not isinstance(value, (np.ndarray, np.generic)):
        return builder.constant(array, {"i": S32, "f": F32, "c": C64}.get(array.dtype.kind))
    return builder.constant(array, element_type)


def _constant_of_rank(rank: int, builder: Builder, value: Any, element_type: PrimitiveType | None) -> XlaOp:
    found = Constant(builder, value, element_type)
    _require(f"ConstantR{rank}", found.shape.rank == rank, "the value has another rank", got=found.shape, expected=f"rank {rank}")
    return found


@documented
def ConstantR0(builder: Builder, value: Any, element_type: PrimitiveType | None = None) -> XlaOp:
    """A scalar constant. Types as in `Constant`; raises InvalidArgument for a value of another rank.

    >>> ops.ConstantR0(2.5)
    tensor(2.5000)
    """
    return _constant_of_rank(0, builder, value, element_type)


@documented
def ConstantR1(builder: Builder, values: Any, value: Any = None, element_type: PrimitiveType | None = None) -> XlaOp:
    """A vector constant of `values`; ``ConstantR1(builder, length, value)`` repeats one value.
    Types as in `Constant`; raises InvalidArgument for a value of another rank.

    >>> ops.ConstantR1(3, 0.5)
    tensor([0.5000, 0.5000, 0.5000])
    """
    if value is not None:
        _require("ConstantR1", isinstance(values, int) and values >= 0, "the length is no integer of 0 or more", got=repr(values))
        values = [value] * values
    return _constant_of_rank(1, builder, values, element_type)


@documented
def ConstantR2(builder: Builder, values: Any, element_type: PrimitiveType | None = None) -> XlaOp:
    """A matrix constant. Types as in `Constant`; raises InvalidArgument for a value of another rank.

    >>> ops.ConstantR2([[1, 2], [3, 4]])
    tensor([[1, 2],
            [3, 4]], dtype=torch.int32)
    """
    return _constant_of_rank(2, builder, values, element_type)


@documented
def ConstantR3(builder: Builder, values: Any, element_type: PrimitiveType | None = None) -> XlaOp:
    """A constant of rank 3. Types as in `Constant`; raises InvalidArgument for a value of another rank.

    >>> ops.ConstantR3([[[1, 2], [3, 4]]]).shape
    torch.Size([1, 2, 2])
    """
    return _constant_of_rank(3, builder, values, element_type)


@documented
def ConstantR4(builder: Builder, values: Any, element_type: PrimitiveType | None = None) -> XlaOp:
    """A constant of rank 4. Types as in `Constant`; raises InvalidArgument for a value of another rank.

    >>> ops.ConstantR4([[[[1.0, 2.0]]]]).shape
    torch.Size([1, 1, 1, 2])
    """
    return _constant_of_rank(4, builder, values, element_type)


@checked
def Parameter(builder: Builder, parameter_number: int, shape: Shape, name: str = "",
              replicated_at_leaf_buffers: Sequence[bool] = ()) -> XlaOp:
    """Parameter number `parameter_number` of the computation. Raises InvalidArgument for a number that is taken.

    >>> builder = XlaBuilder("twice")
    >>> x = ops.Parameter(builder, 0, Shape.parse("f32[2]"), "x")
    >>> builder.build(x + x)(torch.tensor([1.0, 2.0]))
    tensor([2., 4.])
    """
    found = builder.parameter(parameter_number, shape, name)
    if replicated_at_leaf_buffers:
        found.instruction.common["parameter_replication"] = tuple(map(bool, replicated_at_leaf_buffers))
    return found


@documented
def Copy(operand: XlaOp) -> XlaOp:
    """The operand itself; a copy matters only where layouts and buffers do.

    >>> ops.Copy(torch.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    return operand.builder.add(movement.copy, [operand])
