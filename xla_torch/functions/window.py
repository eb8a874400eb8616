"""Reductions over sliding windows, and their transpose, under their documented names.

Documents: operation semantics, the sections of the functions' own names.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from ..core.sizes import integer
from ..hlo.attributes import WindowDimension
from ..opcodes import window as window_ops
from ..opcodes.shapes import require
from ._documented import checked, documented, renamed, variadic
from ._regions import comparator, reducer
from .hlo_builder import Liftable, Region, XlaOp, lift
from .reduction import Arrays, Inits, arrays_and_inits

__all__ = ["MakePadding", "Padding", "ReduceWindow", "ReduceWindowWithGeneralPadding", "SelectAndScatter",
           "SelectAndScatterWithGeneralPadding"]


class Padding(enum.Enum):
    """How a window may reach over the edges: VALID not at all, SAME so far that the result has ceil(size / stride) elements.

    >>> [ops.ReduceWindow(torch.ones(4), 0.0, lambda a, b: a + b, [2], [1], padding) for padding in ops.Padding]
    [tensor([2., 2., 2., 1.]), tensor([2., 2., 2.])]
    """

    SAME = "same"
    VALID = "valid"
    kSame = SAME  # noqa: N815 (C++'s names)
    kValid = VALID  # noqa: N815


@checked
def MakePadding(input_dimensions: Sequence[int], window_dimensions: Sequence[int], window_strides: Sequence[int],
                padding: Padding) -> list[tuple[int, int]]:
    """Low and high padding of each dimension. SAME puts an odd element at the high end; dilations are not considered.

    Raises InvalidArgument for another number of sizes or strides than dimensions.

    >>> ops.MakePadding([5, 6], [3, 2], [2, 1], "SAME")
    [(1, 1), (0, 1)]
    """
    require(len(input_dimensions) == len(window_dimensions) == len(window_strides),
            "window sizes or strides for another number of dimensions",
            got=f"{len(window_dimensions)} window sizes, {len(window_strides)} strides", expected=len(input_dimensions))
    return [(0, 0) if padding is Padding.VALID else _same(n, w, s)
            for n, w, s in zip(input_dimensions, window_dimensions, window_strides, strict=True)]


def _same(size: int, window: int, stride: int) -> tuple[int, int]:
    positions = -(-size // stride)
    total = max((positions - 1) * stride + window - size, 0)
    return total // 2, total - total // 2


@variadic("operands...", "init_values...", numbers=True)
@renamed(operand="operands", init_value="init_values")
@documented
def ReduceWindow(operands: Arrays, init_values: Inits, computation: Region, window_dimensions: Sequence[int],
                 window_strides: Sequence[int], padding: Padding, base_dilations: Sequence[int] = (),
                 window_dilations: Sequence[int] = ()) -> XlaOp:
    """Reduce every window of an array (or of N arrays of the same dimensions) with a computation, as in `Reduce`.

    The window has a size and a stride for each dimension; `padding` is SAME or VALID, made without regard to dilations (see
    `ReduceWindowWithGeneralPadding`). Padding is not reduced. The result has an element for each place of the window. Raises
    InvalidArgument as the general form does.

    >>> ops.ReduceWindow(torch.tensor([1.0, 3.0, 2.0, 5.0]), float("-inf"), ops.Max, [2], [2], "VALID")
    tensor([3., 5.])
    """
    arrays, inits = arrays_and_inits(operands, init_values)
    pairs = MakePadding(arrays[0].shape.dimensions, window_dimensions, window_strides, padding)
    return ReduceWindowWithGeneralPadding(arrays, inits, computation, window_dimensions, window_strides, base_dilations,
                                          window_dilations, pairs)


@variadic("operands...", "init_values...", numbers=True)
@renamed(operand="operands", init_value="init_values")
@documented
def ReduceWindowWithGeneralPadding(operands: Arrays, init_values: Inits, computation: Region, window_dimensions: Sequence[int],
                                   window_strides: Sequence[int], base_dilations: Sequence[int] = (),
                                   window_dilations: Sequence[int] = (), padding: Sequence[tuple[int, int]] = ()) -> XlaOp:
    """`ReduceWindow` with low and high padding for each dimension (negative padding takes elements away) and dilations.

    Base dilation puts holes between the array's elements, window dilation between the window's; empty lists mean none.
    Raises InvalidArgument for sizes, strides or dilations under 1 and for lists of another length than the rank.

    >>> x = torch.tensor([1.0, 2.0, 3.0])
    >>> ops.ReduceWindowWithGeneralPadding(x, 0.0, ops.Add, [3], [1], padding=[(2, 0)])
    tensor([1., 3., 6.])
    """
    arrays, inits = arrays_and_inits(operands, init_values)
    window = make_window(arrays[0].shape.rank, window_dimensions, window_strides, padding, base_dilations, window_dilations)
    attributes = {"to_apply": reducer(computation, inits), "window": window}
    return arrays[0].builder.add(window_ops.reduce_window, [*arrays, *inits], attributes)


@documented
def SelectAndScatter(operand: XlaOp, select: Region, window_dimensions: Sequence[int], window_strides: Sequence[int],
                     padding: Padding, source: XlaOp, init_value: XlaOp | Liftable, scatter: Region) -> XlaOp:
    """Combine each source element into the operand's element that its window selects; everything else is the init value.

    `select(selected, candidate)` says whether the selected element stays, elements taken in row-major order; `scatter`
    combines (current, source element). The source has one element, of the operand's type, for each window. Raises
    InvalidArgument for a source of other dimensions or another type, and computations of other types.

    >>> x, source = torch.tensor([1.0, 3.0, 2.0, 5.0]), torch.tensor([10.0, 20.0])
    >>> ops.SelectAndScatter(x, ops.Ge, [2], [2], "VALID", source, 0.0, ops.Add)
    tensor([ 0., 10.,  0., 20.])
    """
    pairs = MakePadding(operand.shape.dimensions, window_dimensions, window_strides, padding)
    return SelectAndScatterWithGeneralPadding(operand, select, window_dimensions, window_strides, pairs, source, init_value,
                                              scatter)


@documented
def SelectAndScatterWithGeneralPadding(operand: XlaOp, select: Region, window_dimensions: Sequence[int],
                                       window_strides: Sequence[int], padding: Sequence[tuple[int, int]], source: XlaOp,
                                       init_value: XlaOp | Liftable, scatter: Region) -> XlaOp:
    """`SelectAndScatter` with low and high padding for each dimension. Padding is never selected. Raises InvalidArgument as
    that does.

    >>> x, source = torch.tensor([4.0, 3.0, 2.0]), torch.tensor([10.0, 20.0])
    >>> ops.SelectAndScatterWithGeneralPadding(x, ops.Ge, [2], [2], [(1, 0)], source, 0.0, ops.Add)
    tensor([10., 20.,  0.])
    """
    window = make_window(operand.shape.rank, window_dimensions, window_strides, padding)
    init = lift(operand.builder, init_value, source)
    return operand.builder.add(window_ops.select_and_scatter, [operand, source, init], {
        "select": comparator(select, [operand], "select"), "scatter": reducer(scatter, [source], "scatter"), "window": window})


def make_window(rank: int, sizes: Sequence[int], strides: Sequence[int], padding: Sequence[tuple[int, int]] = (),
                base_dilations: Sequence[int] = (), window_dilations: Sequence[int] = ()) -> tuple[WindowDimension, ...]:
    """The window attribute of lists with one entry for each dimension; empty lists stand for strides and dilations of 1 and
    no padding."""
    lists = {"window_dimensions": sizes, "window_strides": strides or (1,) * rank, "padding": padding or ((0, 0),) * rank,
             "base_dilations": base_dilations or (1,) * rank, "window_dilations": window_dilations or (1,) * rank}
    for name, given in lists.items():
        require(len(given) == rank, f"{name} has another length than the operand's rank", got=len(given), expected=rank)
    return tuple(WindowDimension(integer(size), int(stride), integer(low), integer(high), int(base), int(window))
                 for size, stride, (low, high), base, window in zip(*lists.values(), strict=True))
