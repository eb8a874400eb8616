"""Calls of ATen's operators of linear algebra that the rules of `xla_torch.aten` are tested with."""

from __future__ import annotations

from typing import Any

import torch

from support.aten_rows import floats

F64, C64 = torch.float64, torch.complex64
SQUARE, BATCH, TALL, WIDE = floats(3, 3), floats(2, 3, 3, dtype=F64), floats(4, 2), floats(2, 2, 4, dtype=F64)
COMPLEX = torch.complex(floats(3, 3), floats(3, 3, seed=1))
NONE, NOBODY = torch.zeros(0, 0), torch.zeros(0, 2, 2)
SINGULAR = torch.tensor([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]])
SQUARES = [(SQUARE,), (BATCH,), (COMPLEX,), (BATCH.mT,), (NONE,), (NOBODY,)]
ALL = [*SQUARES, (TALL,), (WIDE,), (torch.zeros(0, 3),), (torch.zeros(3, 0),)]
INDEFINITE = torch.stack([torch.eye(3), torch.diag(torch.tensor([1.0, -1.0, 2.0])), torch.diag(torch.tensor([2.0, 1.0, 0.0]))])


def positive(x: torch.Tensor) -> torch.Tensor:
    """Positive definite matrices of others."""
    return x @ x.mH + torch.eye(x.shape[-1], dtype=x.dtype)


POSITIVE = [(positive(x),) for x, in SQUARES]
FACTORS = [(torch.linalg.cholesky(x),) for x, in POSITIVE]


def with_last(rows: list[tuple[Any, ...]], *last: Any) -> list[tuple[Any, ...]]:
    return [(*row, *last) for row in rows]


def twice(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Each with itself as a right side."""
    return [(x, x) for x, in rows]


def factored(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [tuple(torch.linalg.lu_factor_ex(x)[:2]) for x, in rows]


def rows() -> dict[str, list[tuple[Any, ...]]]:
    factors = factored(SQUARES)
    systems = [(lu, pivots, x, {"left": left, "adjoint": adjoint}) for (lu, pivots), (x,) in zip(factors, SQUARES, strict=True)
               for left in (True, False) for adjoint in (True, False)]
    reflections = [tuple(torch.geqrf(x)) for x, in ((SQUARE,), (TALL,), (BATCH,))]
    return {
        "_linalg_eigh": [*with_last([(torch.tensor([[2.0, 1.0], [1.0, -1.0]]),), *POSITIVE], "L", True), (BATCH, "U", False)],
        "linalg_eig": SQUARES, "_linalg_eigvals": SQUARES, "linalg_eigvals": SQUARES,
        "_linalg_svd": [*with_last(ALL, False, True), *with_last(ALL, True, True), (TALL, False, False)],
        "linalg_pinv.atol_rtol_tensor": [
            *ALL, (SINGULAR,), (SINGULAR, {"rtol": torch.tensor(0.3)}), (BATCH, {"atol": torch.tensor([0.1, 2.0])}),
            *((positive(x), {"hermitian": True}) for x, in SQUARES)],
        "linalg_cholesky_ex": [*POSITIVE, *((x, {"upper": True}) for x, in POSITIVE), (INDEFINITE[:1], {"upper": True})],
        "cholesky": [*POSITIVE, *with_last(POSITIVE, True)],
        "cholesky_inverse": [*FACTORS[:4], *((x.mH, True) for x, in FACTORS[:4])],
        "cholesky_solve": [*twice(FACTORS), (floats(3, 1), FACTORS[0][0].mT, True)],
        "_cholesky_solve_helper": [(x, x, False) for x, in FACTORS],
        "linalg_solve_triangular": [(x.triu() if upper else x.tril(), x, {"upper": upper, "left": left, "unitriangular": unit})
                                    for x, in SQUARES for upper in (True, False) for left in (True, False)
                                    for unit in (True, False)],
        "triangular_solve": [(x, x.triu(), True, transpose, False) for x, in SQUARES[:4] for transpose in (False, True)],
        "linalg_lu_factor_ex": [*ALL, (SINGULAR,)], "linalg_lu": ALL,
        "lu_unpack": [*factored(ALL), (*factors[0], False), (*factors[0], True, False)],
        "linalg_lu_solve": systems,
        "_linalg_solve_ex": [*twice(SQUARES), (SQUARE, floats(3)), (BATCH, floats(2, 3, dtype=F64)),
                             (SQUARE, floats(2, 3), {"left": False})],
        "linalg_inv_ex": SQUARES, "_linalg_det": [*SQUARES, (SQUARE.mT,)], "_linalg_slogdet": [*SQUARES, (SQUARE.mT,)],
        "linalg_qr": [*ALL, *with_last(ALL, "complete"), (TALL, "r")],
        "geqrf": [(SQUARE,), (TALL,), (BATCH,)], "linalg_householder_product": reflections,
        "ormqr": [(*reflections[0], SQUARE), (*reflections[1], TALL, True, True), (*reflections[2], BATCH, False)],
        "linalg_matrix_exp": [*SQUARES, (floats(3, 3) * 20,), (torch.stack([SQUARE * 1e-3, SQUARE, SQUARE * 9]),)],
    }


ARBITRARY = {"_linalg_eigh": (1,), "linalg_eig": (1,), "_linalg_svd": (0, 2)}
"""Results that are vectors of any phase: which phase a library gives is not compared."""
