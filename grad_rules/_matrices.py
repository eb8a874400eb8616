"""Words of linear algebra: products, triangles and diagonals of the matrices in the last two dimensions of an array."""

from __future__ import annotations

from collections.abc import Sequence

from grad_rules._calculus import conj, iota, masked, put_along, sum_over, transpose
from xla_torch import functions as ops
from xla_torch.functions.decompositions import LU
from xla_torch.functions.hlo_builder import XlaOp


def matmul(x: XlaOp, y: XlaOp) -> XlaOp:
    """The product of the matrices."""
    rank = x.shape.rank
    batch = tuple(range(rank - 2))
    return ops.DotGeneral(x, y, ops.DotDimensionNumbers((rank - 1,), (rank - 2,), batch, batch))


def turned(x: XlaOp) -> XlaOp:
    """The matrices transposed."""
    rank = x.shape.rank
    return transpose(x, [*range(rank - 2), rank - 1, rank - 2])


def adjoint(x: XlaOp) -> XlaOp:
    """The matrices transposed and conjugated."""
    return conj(turned(x))


# ------------------------------------------------------------------------------------------- parts


def places(x: XlaOp) -> tuple[XlaOp, XlaOp]:
    """The number of its row and of its column, for each element."""
    rank = x.shape.rank
    return iota(x, x.shape.dimensions, rank - 2), iota(x, x.shape.dimensions, rank - 1)


def triangle(x: XlaOp, lower: bool, diagonal: bool = True) -> XlaOp:
    """One triangle of the matrices, zeros elsewhere."""
    rows, columns = places(x)
    inner, outer = (rows, columns) if lower else (columns, rows)
    return masked(ops.Ge(inner, outer) if diagonal else ops.Gt(inner, outer), x)


def mirrored(x: XlaOp, lower: bool) -> XlaOp:
    """The cotangent of a triangle that stands for a Hermitian matrix, from that of the whole matrix: both halves come together
    in it, and the diagonal is real."""
    return halved_diagonal(triangle(x + adjoint(x), lower))


def halved_diagonal(x: XlaOp) -> XlaOp:
    """Square matrices with half of their diagonals."""
    return ops.Select(ops.Eq(*places(x)), x * 0.5, x)


def diagonal(x: XlaOp) -> XlaOp:
    """The diagonals of square matrices."""
    return sum_over(masked(ops.Eq(*places(x)), x), [x.shape.rank - 1])


def with_diagonal(x: XlaOp, values: XlaOp) -> XlaOp:
    """Square matrices with other diagonals."""
    return ops.Select(ops.Eq(*places(x)), as_rows(values, x), x)


def as_rows(values: XlaOp, like: XlaOp) -> XlaOp:
    """Vectors [..., columns] as matrices of equal rows."""
    rank = like.shape.rank
    return ops.BroadcastInDim(values, like.shape.dimensions, [*range(rank - 2), rank - 1])


def as_columns(values: XlaOp, like: XlaOp) -> XlaOp:
    """Vectors [..., rows] as matrices of equal columns."""
    return ops.BroadcastInDim(values, like.shape.dimensions, range(like.shape.rank - 1))


def cut(x: XlaOp, dimension: int, start: int, stop: int) -> XlaOp:
    """Rows (dimension -2) or columns (-1) of the matrices, or x itself where those are all."""
    dimension += x.shape.rank
    return x if (start, stop) == (0, x.shape.dimensions[dimension]) else ops.SliceInDim(x, start, stop, 1, dimension)


def joined(parts: Sequence[XlaOp], dimension: int) -> XlaOp:
    """Matrices below (dimension -2) or beside (-1) each other."""
    return parts[0] if len(parts) == 1 else ops.ConcatInDim(parts[0].builder, list(parts), parts[0].shape.rank + dimension)


# ------------------------------------------------------------------------------------------- systems


def solved_by_adjoint(a: XlaOp, b: XlaOp) -> XlaOp:
    """The solution of ``a^H x = b`` with square matrices."""
    lu, _, order = LU(a)
    inner = ops.TriangularSolve(lu, b, True, False, False, "ADJOINT")
    return back_in_order(ops.TriangularSolve(lu, inner, True, True, True, "ADJOINT"), order)


def back_in_order(rows: XlaOp, order: XlaOp) -> XlaOp:
    """The matrices of which these are the rows number `order`: row i becomes row ``order[..., i]``."""
    dimension = rows.shape.rank - 2
    return put_along(rows, as_columns(order, rows), dimension, rows.shape.dimensions[dimension])
