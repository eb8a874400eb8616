"""Documented functions: dynamic sizes.

Documents: operation semantics, the sections of the functions' own names.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..core.errors import InvalidArgument
from ..core.shape import UNBOUNDED
from ..core.types import S32
from ..opcodes import dynamic, movement
from ._documented import documented, renamed
from .hlo_builder import XlaOp, lift

__all__ = ["DynamicReshape", "GetDimensionSize", "RemoveDynamicDimension", "SetDimensionSize"]


@documented
def GetDimensionSize(operand: XlaOp, dimension: int) -> XlaOp:
    """The size that a dimension has at run time, s32[]. Raises InvalidArgument for a dimension out of range.

    >>> ops.GetDimensionSize(torch.tensor([1.0, 2.0, 3.0]), 0)
    tensor(3, dtype=torch.int32)
    """
    return operand.builder.add(dynamic.get_dimension_size, [operand], {"dimensions": (dimension,)})


@renamed(size="val")
@documented
def SetDimensionSize(operand: XlaOp, val: XlaOp | int, dimension: int) -> XlaOp:
    """The first `val` (s32[]) elements of a dimension, which becomes dynamic; its bound stays. A size below 0 counts as 0, one
    above the bound as the bound; of a smaller array than that, zeros are the rest.

    With a constant equal to the size of the dimension the result is static. Raises InvalidArgument for a dimension out of
    range and where `val` is not an s32 scalar.

    >>> ops.SetDimensionSize(torch.tensor([1.0, 2.0, 3.0]), torch.tensor(2, dtype=torch.int32), 0)
    tensor([1., 2.])
    """
    size = lift(operand.builder, val, S32)
    given = operand.shape
    if size.instruction.opcode != movement.constant or size.shape.rank or not 0 <= dimension < given.rank:
        return operand.builder.add(dynamic.set_dimension_size, [operand, size], {"dimensions": (dimension,)})
    flags = list(given.dynamic_flags)
    flags[dimension] = int(size.instruction.attributes["literal"].array) != given.dimensions[dimension]
    return operand.builder.add(dynamic.set_dimension_size, [operand, size], {"dimensions": (dimension,)},
                               given.with_dimensions(given.dimensions, flags))


@documented
def RemoveDynamicDimension(operand: XlaOp, dimension: int) -> XlaOp:
    """The operand with a dynamic dimension at its bound; what is beyond its size at run time is filled up with zeros.
    Raises InvalidArgument for a dimension out of range or without a bound.

    >>> builder = XlaBuilder("two of three")
    >>> two = ops.SetDimensionSize(builder.parameter(0, Shape.parse("f32[3]")), 2, 0)
    >>> builder.build(ops.RemoveDynamicDimension(two, 0))(torch.tensor([1.0, 2.0, 3.0]))
    tensor([1., 2., 0.])
    """
    if not 0 <= dimension < operand.shape.rank:
        raise InvalidArgument("the dimension is out of range", subject="RemoveDynamicDimension",
                              got=f"{dimension} for {operand.shape}")
    if operand.shape.dimensions[dimension] == UNBOUNDED:
        raise InvalidArgument("the dimension has no bound", subject="RemoveDynamicDimension", got=operand.shape,
                              expected="a static or bounded dimension")
    return SetDimensionSize(operand, operand.shape.dimensions[dimension], dimension)


@documented
def DynamicReshape(operand: XlaOp, dim_sizes: Sequence[XlaOp | int], new_size_bounds: Sequence[int],
                   dims_are_dynamic: Sequence[bool]) -> XlaOp:
    """The operand's first elements in dimensions that are known at run time: `dim_sizes`, one s32 scalar for each.

    `new_size_bounds` has the operand's element count; `dims_are_dynamic` says which dimensions may be smaller. Raises
    InvalidArgument where the three lists differ in length, for sizes that are no s32 scalars, and for another element count.

    >>> sizes = [torch.tensor(2, dtype=torch.int32), torch.tensor(2, dtype=torch.int32)]
    >>> ops.DynamicReshape(torch.arange(6.0), sizes, [3, 2], [True, False])
    tensor([[0., 1.],
            [2., 3.]])
    """
    if not len(dim_sizes) == len(new_size_bounds) == len(dims_are_dynamic):
        raise InvalidArgument("sizes, bounds and flags differ in number", subject="DynamicReshape",
                              got=f"{len(dim_sizes)}, {len(new_size_bounds)}, {len(dims_are_dynamic)}")
    sizes = [lift(operand.builder, s, S32) for s in dim_sizes]
    return operand.builder.add(dynamic.dynamic_reshape, [operand, *sizes], {},
                               operand.shape.with_dimensions(new_size_bounds, dims_are_dynamic))
