"""Sparse matrices of cuSPARSE and hipSPARSE, as JAX calls them: in rows (CSR: elements, columns, and where each row starts) or in
coordinates (COO: elements, rows, columns).

Which way round a product is taken is the last number of a C struct, in the opaque bytes or in the attribute ``opaque``.
Source: jaxlib/gpu/sparse_kernels.h.
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import functions as ops
from ..core.shape import Shape
from ..core.types import S32
from ..functions.hlo_builder import XlaOp
from ..functions.indexing import GatherDimensionNumbers, ScatterDimensionNumbers
from ..opcodes.contraction import DotDimensionNumbers
from .calls import Call, Meaning, adder, broadcast_like, converted, ones, zeros


def _coordinates(call: Call) -> tuple[XlaOp, XlaOp, XlaOp]:
    """(elements, rows, columns)."""
    data, second, third = call.operands[:3]
    return (data, rows_of(third, data.shape.dimensions[0]), second) if "csr" in call.target else (data, second, third)


def to_dense(call: Call) -> Sequence[XlaOp]:
    """The matrix with all its elements."""
    call.require_operands(3)
    return [_dense(*_coordinates(call), call.results[0])]


def product(call: Call) -> Sequence[XlaOp]:
    """The product of the matrix, or of its transpose, with a vector or a matrix."""
    call.require_operands(4)
    data, rows, columns = _coordinates(call)
    dense, result = call.operands[3], call.results[0]
    turned = _is_turned(call)
    rows, columns = (columns, rows) if turned else (rows, columns)
    count, width = data.shape.dimensions[0], dense.shape.dimensions[1:]
    numbers = GatherDimensionNumbers(tuple(range(1, dense.shape.rank)), (0,), (0,), 1)
    terms = ops.Gather(dense, ops.Reshape(columns, (count, 1)), numbers, (1, *width))
    terms = ops.Mul(terms, broadcast_like(data, terms.shape, (0,)))
    # Elements behind the end of the last row have a row outside; turned around, a column outside, which gathers the last.
    if turned:
        inside = broadcast_like(ops.Lt(columns, dense.shape.dimensions[0]), terms.shape, (0,))
        terms = ops.Select(inside, terms, zeros(call.builder, terms.shape))
    return [_scattered(zeros(call.builder, result), rows, terms)]


def _is_turned(call: Call) -> bool:
    """Whether the matrix is transposed: the last of 10 numbers (12 where the struct tells of batches), or 14 and 18."""
    forms = ("10i", "12i", "14i", "18i")
    last = call.unpacked(*forms)[-1]
    if last not in _TURNED:
        raise call.refused("the operation has a value that is not known", last, ", ".join(map(str, _TURNED)))
    return _TURNED[last]


_TURNED = {0: False, 1: True, 111: False, 112: True}
"""Values of cusparseOperation_t and hipsparseOperation_t."""


def from_dense(call: Call) -> Sequence[XlaOp]:
    """(elements, columns, starts of rows), or (elements, rows, columns), of what is not zero, in the order of rows."""
    call.require_operands(1)
    (x,) = call.operands
    kind, (count,) = call.results[1].element_type, call.results[0].dimensions
    rows, columns = x.shape.dimensions
    total = rows * columns
    flat = ops.Reshape(x, (total,))
    used = ops.Ne(flat, zeros(call.builder, flat.shape))
    order = ops.Iota(call.builder, Shape.array(S32, (total,)), 0)
    found = ops.Sort([ops.Select(used, order, total)], _smaller(call), 0)
    places = ops.SliceInDim(found, 0, min(count, total), 1, 0)
    if count > total:
        places = ops.PadInDim(places, total, 0, 0, count - total)
    inside = ops.Lt(places, total)
    elements = _gathered(flat, places)
    data = ops.Select(inside, elements, zeros(call.builder, elements.shape))
    row, column = ops.Div(places, columns or 1), ops.Rem(places, columns or 1)
    if "coo" in call.target:
        return [data, converted(ops.Select(inside, row, rows), kind), converted(ops.Select(inside, column, columns), kind)]
    per_row = ops.Reduce(ops.ConvertElementType(ops.Reshape(used, (rows, columns)), S32), 0, adder(S32), [1])
    ends = running_sum(per_row)
    starts = ops.Min(ops.PadInDim(ends, 0, 0, 1, 0), count)
    return [data, converted(ops.Select(inside, column, 0), kind), converted(starts, kind)]


def _smaller(call: Call) -> object:
    builder = type(call.builder)("smaller")
    ops.Lt(builder.parameter(0, Shape(S32)), builder.parameter(1, Shape(S32)))
    return builder.finish()


def csrlsvqr(call: Call) -> XlaOp | Sequence[XlaOp]:
    """The solution of a sparse square system, given by rows: that of the dense one."""
    call.require_operands(4)
    data, starts, columns, b = call.operands
    (n,) = b.shape.dimensions
    matrix = Shape.array(data.element_type, (n, n))
    lu, _, order = ops.LU(_dense(data, rows_of(starts, data.shape.dimensions[0]), columns, matrix))
    positions = Shape.array(S32, (n, n))
    chosen = ops.Eq(ops.Iota(call.builder, positions, 1), broadcast_like(order, positions, (0,)))
    sorted_rows = ops.DotGeneral(converted(chosen, b.element_type), b, DotDimensionNumbers((1,), (0,)), ["HIGHEST", "HIGHEST"])
    lower = ops.TriangularSolve(lu, ops.Reshape(sorted_rows, (n, 1)), True, True, True, "NO_TRANSPOSE")
    solution = ops.Reshape(ops.TriangularSolve(lu, lower, True, False, False, "NO_TRANSPOSE"), (n,))
    return [solution] if call.instruction.shape.is_tuple else solution


# ------------------------------------------------------------------------------------------- words


def rows_of(starts: XlaOp, count: int) -> XlaOp:
    """Which row each of so many elements is in; the number of rows for those behind the last row's end."""
    rows = starts.shape.dimensions[0] - 1
    ends = ops.SliceInDim(starts, 1, rows + 1, 1, 0)
    marks = zeros(starts.builder, Shape.array(starts.element_type, (count + 1,)))
    return ops.SliceInDim(running_sum(_scattered(marks, ops.Clamp(0, ends, count), ones(ends))), 0, count, 1, 0)


def running_sum(x: XlaOp) -> XlaOp:
    """The sums of a vector's elements up to each."""
    (n,) = x.shape.dimensions
    if not n:
        return x
    return ops.ReduceWindowWithGeneralPadding(x, 0, adder(x.element_type), (n,), (1,), (1,), (1,), [(n - 1, 0)])


def _scattered(into: XlaOp, positions: XlaOp, values: XlaOp) -> XlaOp:
    """Values, or rows of them, added at positions along the first dimension; what is outside is left out."""
    numbers = ScatterDimensionNumbers(tuple(range(1, values.shape.rank)), (0,), (0,), 1)
    where = ops.Reshape(positions, (*positions.shape.dimensions, 1))
    return ops.Scatter(into, where, values, adder(into.element_type), numbers)


def _gathered(x: XlaOp, positions: XlaOp) -> XlaOp:
    """Elements of a vector; of one without elements, zeros."""
    if not x.shape.dimensions[0]:
        return zeros(x.builder, Shape.array(x.element_type, positions.shape.dimensions))
    where = ops.Reshape(positions, (*positions.shape.dimensions, 1))
    return ops.Gather(x, where, GatherDimensionNumbers((), (0,), (0,), 1), (1,))


def _dense(data: XlaOp, rows: XlaOp, columns: XlaOp, matrix: Shape) -> XlaOp:
    """The matrix of elements at coordinates; what is outside is left out."""
    count = data.shape.dimensions[0]
    where = ops.ConcatInDim(data.builder, [ops.Reshape(rows, (count, 1)), ops.Reshape(columns, (count, 1))], 1)
    return ops.Scatter(zeros(data.builder, matrix), where, data, adder(data.element_type),
                       ScatterDimensionNumbers((), (0, 1), (0, 1), 1))


_ROUTINES: dict[str, Meaning] = {
    f"{form}_{name}": meaning for form in ("csr", "coo")
    for name, meaning in (("todense", to_dense), ("fromdense", from_dense), ("matvec", product), ("matmat", product))}

MEANINGS: dict[str, Meaning] = {
    **{f"{maker}sparse_{name}{version}": meaning for maker in ("cu", "hip") for name, meaning in _ROUTINES.items()
       for version in ("", "_ffi")},
    **{f"cusolver_csrlsvqr{version}": csrlsvqr for version in ("", "_ffi")}}
"""The routines by target."""
