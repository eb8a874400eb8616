"""Routines for GPUs as older JAX calls them, with a C struct for a configuration and workspaces for results: they give what the
newer calls give, which are compared with JAX itself elsewhere. And sparse matrices, and calls that are refused."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
import torch

import xla_torch
from support.custom_call import call
from support.scaled_agreement import random_array
from xla_torch import ops
from xla_torch.errors import UnsupportedError


def opaque(form: str, *values: int) -> str:
    """A struct's bytes as text, as configurations that are no UTF-8 are held."""
    return struct.pack(form, *values).decode("utf-8", "surrogateescape")


def run(target: str, operands: list[np.ndarray], result: str, configuration: str) -> list[np.ndarray]:
    """The results of one call, workspaces too."""
    builder = xla_torch.XlaBuilder("one")
    parameters = [ops.Parameter(builder, k, xla_torch.Shape.parse(_shape(a)), f"p{k}") for k, a in enumerate(operands)]
    ops.CustomCall(builder, target, parameters, xla_torch.Shape.parse(result), configuration)
    return [np.asarray(x) for x in builder.build().run_numpy(*operands)]


def _shape(array: np.ndarray) -> str:
    kind = {"f": "f", "c": "c", "i": "s", "u": "u"}[array.dtype.kind] + str(8 * array.dtype.itemsize)
    return f"{kind}[{','.join(map(str, array.shape))}]"


A, SQUARE, WIDE = random_array("f64[2,5,3]"), random_array("f64[2,4,4]", 1), random_array("f64[3,5]", 2)
COMPLEX = random_array("c64[4,4]", 3)
HERMITIAN = COMPLEX + COMPLEX.conj().T
PACKED, TAU = (np.asarray(x) for x in run("cusolver_geqrf_ffi", [A], "(f64[2,5,3], f64[2,3])", "{}"))

OLDER: list[tuple[str, list[np.ndarray], str, str, str, str, str]] = [
    ("cusolver_getrf", [A], "(f64[2,5,3], s32[2,3], s32[2], f64[8])", opaque("5i", 1, 2, 5, 3, 8),
     "cusolver_getrf_ffi", "(f64[2,5,3], s32[2,3], s32[2])", "{}"),
    ("cublas_getrf_batched", [SQUARE], "(f64[2,4,4], s32[2,4], s32[2], s8[16])", opaque("3i", 1, 2, 4),
     "cublas_getrf_batched_ffi", "(f64[2,4,4], s32[2,4], s32[2])", "{}"),
    ("hipsolver_geqrf", [A], "(f64[2,5,3], f64[2,3], s32[2], f64[8])", opaque("5i", 1, 2, 5, 3, 8),
     "cusolver_geqrf_ffi", "(f64[2,5,3], f64[2,3])", "{}"),
    ("hipblas_geqrf_batched", [A], "(f64[2,5,3], f64[2,3], s8[16], s8[16])", opaque("4i", 1, 2, 5, 3),
     "cublas_geqrf_batched_ffi", "(f64[2,5,3], f64[2,3])", "{}"),
    ("cusolver_orgqr", [PACKED, TAU], "(f64[2,5,3], s32[2], f64[8])", opaque("6i", 1, 2, 5, 3, 3, 8),
     "cusolver_orgqr_ffi", "f64[2,5,3]", "{}"),
    ("cusolver_syevd", [HERMITIAN], "(c64[4,4], f32[4], s32[], c64[200])", opaque("5i", 2, 0, 1, 4, 200),
     "cusolver_syevd_ffi", "(c64[4,4], f32[4], s32[])", "{algorithm = 0 : ui8, lower = true}"),
    ("hipsolver_syevj", [np.triu(HERMITIAN)], "(c64[4,4], f32[4], s32[], c64[200])", opaque("5i", 2, 121, 1, 4, 200),
     "hipsolver_syevd_ffi", "(c64[4,4], f32[4], s32[])", "{algorithm = 0 : ui8, lower = false}"),
    ("cusolver_sytrd", [SQUARE], "(f64[2,4,4], f64[2,4], f64[2,3], f64[2,3], s32[2], f64[9])", opaque("6i", 1, 1, 2, 4, 4, 9),
     "cusolver_sytrd_ffi", "(f64[2,4,4], f64[2,4], f64[2,3], f64[2,3], s32[2])", "{lower = false}"),
    ("cusolver_gesvd", [A], "(f64[2,5,3], f64[2,3], f64[2,5,5], f64[2,3,3], s32[2], f64[9])",
     opaque("5i2b2x", 1, 2, 5, 3, 9, ord("A"), ord("A")), "cusolver_gesvd_ffi",
     "(f64[2,5,3], f64[2,3], f64[2,5,5], f64[2,3,3], s32[2])",
     "{compute_uv = true, full_matrices = true, transposed = false}"),
    ("hipsolver_gesvd", [WIDE], "(f64[3,5], f64[3], f64[3,5], f64[3,3], s32[], f64[9])",
     opaque("5i2b2x", 1, 1, 5, 3, 9, ord("S"), ord("S")), "cusolver_gesvd_ffi",
     "(f64[3,5], f64[3], f64[3,5], f64[3,3], s32[])", "{compute_uv = true, full_matrices = false, transposed = true}"),
    ("cusolver_gesvdj", [WIDE], "(f64[3,5], f64[3], f64[3,3], f64[5,5], s32[], f64[9])", opaque("7i", 1, 1, 3, 5, 9, 1, 0),
     "cusolver_gesvdj_ffi", "(f64[3,5], f64[3], f64[3,3], f64[5,5], s32[])", "{compute_uv = true, full_matrices = true}"),
    ("cusolver_gesvdj", [WIDE], "(f64[3,5], f64[3], f64[3,3], f64[5,5], s32[], f64[9])", opaque("7i", 1, 1, 3, 5, 9, 0, 0),
     "cusolver_gesvdj_ffi", "(f64[3,5], f64[3], f64[3,3], f64[5,5], s32[])", "{compute_uv = false, full_matrices = true}"),
    ("cusparse_gtsv2_f64", [random_array("f64[4]", k) for k in range(3)] + [random_array("f64[4,2]", 4)],
     "(f64[4,2], s8[64])", opaque("3i", 4, 2, 4), "cusparse_gtsv2_ffi", "f64[4,2]", "{}"),
    ("cu_threefry2x32", [random_array("u32[5]", k) for k in range(4)], "(u32[5], u32[5])", opaque("q", 5),
     "cu_threefry2x32_ffi", "(u32[5], u32[5])", "{}"),
    ("cublas_trsm_batched", [SQUARE, SQUARE[:, :, :2]], "(f64[2,4,2], s8[16], s8[16])", opaque("8i", 1, 2, 4, 2, 0, 0, 1, 1),
     "lapack_dtrsm_ffi", "f64[2,4,2]", "{diag = 85 : ui8, side = 76 : ui8, trans_x = 84 : ui8, uplo = 76 : ui8}"),
]


@pytest.mark.parametrize(("older", "operands", "shape", "written", "newer", "result", "configuration"), OLDER,
                         ids=[row[0] for row in OLDER])
def test_older_calls_give_what_newer_ones_give(older: str, operands: list[np.ndarray], shape: str, written: str, newer: str,
                                               result: str, configuration: str) -> None:
    found, expected = run(older, operands, shape, written), run(newer, operands, result, configuration)
    assert len(found) >= len(expected)
    for got, want in zip(found, expected, strict=False):
        np.testing.assert_array_equal(got, want)


CPU: list[tuple[str, list[int], list[np.ndarray], str, str, str]] = [
    ("lapack_dgetrf", [2, 5, 3], [A], "(f64[2,5,3], s32[2,3], s32[2])", "(f64[2,5,3], s32[2,3], s32[2])", "{}"),
    ("lapack_dgeqrf", [2, 5, 3, 9], [A], "(f64[2,5,3], f64[2,3], s32[2], f64[9])", "(f64[2,5,3], f64[2,3])", "{}"),
    ("lapack_dorgqr", [2, 5, 3, 3, 9], [PACKED, TAU], "(f64[2,5,3], s32[2], f64[9])", "f64[2,5,3]", "{}"),
    ("lapack_dgesdd", [1, 1, 1, 3, 5, 9], [WIDE], "(f64[3,5], f64[3], f64[3,3], f64[5,5], s32[], s32[9], f64[9])",
     "(f64[3,5], f64[3], f64[3,3], f64[5,5], s32[])", "{mode = 65 : ui8}"),
    ("lapack_dgesdd", [0, 1, 1, 3, 5, 9], [WIDE], "(f64[3,5], f64[3], f64[3,3], f64[3,5], s32[], s32[9], f64[9])",
     "(f64[3,5], f64[3], f64[3,3], f64[3,5], s32[])", "{mode = 83 : ui8}"),
    ("lapack_cheevd", [0, 1, 4], [HERMITIAN], "(c64[4,4], f32[4], s32[], c64[9], f32[9], s32[9])",
     "(c64[4,4], f32[4], s32[])", "{mode = 86 : ui8, uplo = 85 : ui8}"),
    ("lapack_dsytrd", [4, 1, 4, 2, 9], [SQUARE], "(f64[2,4,4], f64[2,4], f64[2,3], f64[2,3], s32[2], f64[9])",
     "(f64[2,4,4], f64[2,4], f64[2,3], f64[2,3], s32[2])", "{uplo = 76 : ui8}"),
    ("lapack_cpotrf", [1, 1, 4], [HERMITIAN + 9 * np.eye(4, dtype="c8")], "(c64[4,4], s32[])", "(c64[4,4], s32[])",
     "{uplo = 76 : ui8}"),
    ("blas_dtrsm", [1, 1, 1, 0, 2, 4, 2], [np.asarray(1.0), SQUARE, SQUARE[:, :, :2]], "f64[2,4,2]", "f64[2,4,2]",
     "{diag = 78 : ui8, side = 76 : ui8, trans_x = 84 : ui8, uplo = 76 : ui8}"),
]


@pytest.mark.parametrize(("older", "scalars", "operands", "shape", "result", "configuration"), CPU, ids=[row[0] for row in CPU])
def test_older_calls_of_lapack(older: str, scalars: list[int], operands: list[np.ndarray], shape: str, result: str,
                               configuration: str) -> None:
    """Sizes and flags are constants before the arrays."""
    builder = xla_torch.XlaBuilder("one")
    given = [ops.Parameter(builder, k, xla_torch.Shape.parse(_shape(a)), f"p{k}") for k, a in enumerate(operands)]
    flags = [ops.ConstantR0(builder, np.int32(value)) for value in scalars]
    ops.CustomCall(builder, older, [*flags, *given], xla_torch.Shape.parse(shape))
    found = builder.build().run_numpy(*operands)
    newer = older.replace("blas", "lapack") + "_ffi"
    for got, want in zip(found, run(newer, [o for o in operands if o.ndim], result, configuration), strict=False):
        np.testing.assert_array_equal(np.asarray(got), want)


@pytest.mark.parametrize("dtype", ["f64", "c128"])
def test_older_eigenvalues(dtype: str) -> None:
    a = random_array(f"{dtype}[2,6,6]", 3)
    values = "f64[2,6], f64[2,6]" if dtype == "f64" else "c128[2,6]"
    work = "f64[6,6], f64[6,6], f64[6,6]" if dtype == "f64" else "c128[6,6], f64[12]"
    builder = xla_torch.XlaBuilder("one")
    matrix = ops.Parameter(builder, 0, xla_torch.Shape.parse(f"{dtype}[2,6,6]"), "a")
    flags = [ops.ConstantR0(builder, np.int32(value)) for value in (2, 6, ord("N"), ord("V"))]
    ops.CustomCall(builder, f"lapack_{'d' if dtype == 'f64' else 'z'}geev", [*flags, matrix],
                   xla_torch.Shape.parse(f"({work}, {values}, c128[2,6,6], c128[2,6,6], s32[2])"))
    *rest, _, right, info = (np.asarray(x) for x in builder.build().run_numpy(a))
    eigenvalues = rest[3] + 1j * rest[4] if dtype == "f64" else rest[2]
    assert not info.any()
    np.testing.assert_allclose(a @ right, right * eigenvalues[:, None, :], atol=1e-10)


@pytest.mark.parametrize("dtype", ["f64", "c128"])
def test_eigenvalues_of_any_matrix(dtype: str) -> None:
    """cuSOLVER packs the vectors of a pair of eigenvalues of a real matrix into two real columns, as LAPACK does."""
    a = random_array(f"{dtype}[2,6,6]", 3)
    shape = f"({dtype}[2,6,6], c128[2,6], {dtype}[2,6,6], {dtype}[2,6,6], s32[2])"
    _, values, left, right, info = run("cusolver_geev_ffi", [a], shape, "{left = true, right = true}")
    assert not info.any()
    if dtype == "f64":
        assert np.iscomplex(values).any()
        left, right = (_unpacked(values, v) for v in (left, right))
    np.testing.assert_allclose(a @ right, right * values[:, None, :], atol=1e-10)
    adjoint = np.conj(np.swapaxes(left, 1, 2))
    np.testing.assert_allclose(adjoint @ a, values[..., None] * adjoint, atol=1e-10)


def _unpacked(values: np.ndarray, packed: np.ndarray) -> np.ndarray:
    found = packed.astype("c16")
    for b, k in zip(*np.nonzero(np.imag(values) > 0), strict=True):
        found[b, :, k] = packed[b, :, k] + 1j * packed[b, :, k + 1]
        found[b, :, k + 1] = np.conj(found[b, :, k])
    return found


# --------------------------------------------------------------------------------------------- sparse matrices

DENSE = random_array("f64[4,6]") * (random_array("f64[4,6]", 1) > 0.3)
NONZERO = np.nonzero(DENSE)
DATA, ROWS, COLUMNS = DENSE[NONZERO], NONZERO[0].astype("i4"), NONZERO[1].astype("i4")
STARTS = np.searchsorted(ROWS, np.arange(5)).astype("i4")
COUNT = len(DATA)
PADDED = [np.pad(x, (0, 2), constant_values=v) for x, v in ((DATA, 7), (COLUMNS, 0))]
MATRIX = (1, 2, 4, 6, COUNT)  # types, rows, columns, elements


def _product(name: str, dense: Any, result: Any, turned: Any) -> tuple[str, list[np.ndarray], str, str]:
    sparse = [DATA, COLUMNS, STARTS] if "csr" in name else [DATA, ROWS, COLUMNS]
    sizes = (1, 6, 1, 4) if "vec" in name else (1, 6, 2, 1, 0, 1, 4, 2, 1, 0)
    form = f"{7 + len(sizes) + 1}i"
    return name, [*sparse, random_array(dense, 5)], f"({result}, s8[8])", opaque(form, *MATRIX, 1, 0, *sizes, turned)


_KINDS = (("matvec", "f64[6]", "f64[4]", 0), ("matvec", "f64[4]", "f64[6]", 1), ("matmat", "f64[6,2]", "f64[4,2]", 0),
          ("matmat", "f64[4,2]", "f64[6,2]", 1))
PRODUCTS = [_product(f"cusparse_{form}_{kind}", *rest) for form in ("csr", "coo") for kind, *rest in _KINDS]


@pytest.mark.parametrize(("target", "operands", "result", "configuration"), PRODUCTS)
def test_sparse_products(target: str, operands: list[np.ndarray], result: str, configuration: str) -> None:
    matrix = DENSE.T if operands[-1].shape[0] == 4 else DENSE
    escaped = "".join(f"\\{byte:02X}" for byte in configuration.encode("utf-8", "surrogateescape"))
    for name, written in ((target, configuration), (f"{target}_ffi", f'{{opaque = "{escaped}"}}')):
        np.testing.assert_allclose(run(name, operands, result, written)[0], matrix @ operands[-1], rtol=1e-12)


def test_sparse_and_dense() -> None:
    sizes = opaque("7i", *MATRIX, 1, 0)
    for target, operands in (("cusparse_csr_todense", [DATA, COLUMNS, STARTS]), ("hipsparse_coo_todense", [DATA, ROWS, COLUMNS]),
                             ("cusparse_csr_todense_ffi", [*PADDED, STARTS])):
        np.testing.assert_array_equal(run(target, operands, "(f64[4,6], s8[8])", sizes)[0], DENSE)
    wide = f"f64[{COUNT + 2}], s32[{COUNT + 2}]"
    data, columns, starts, _ = run("cusparse_csr_fromdense", [DENSE], f"({wide}, s32[5], s8[8])", sizes)
    np.testing.assert_array_equal(run("cusparse_csr_todense", [data, columns, starts], "(f64[4,6], s8[8])", sizes)[0], DENSE)
    assert starts.tolist() == STARTS.tolist()
    data, rows, columns, _ = run("cusparse_coo_fromdense", [DENSE], f"({wide}, s32[{COUNT + 2}], s8[8])", sizes)
    for got, want in ((data, DATA), (rows, ROWS), (columns, COLUMNS)):
        assert got[:COUNT].tolist() == want.tolist()
    np.testing.assert_array_equal(run("cusparse_coo_todense", [data, rows, columns], "(f64[4,6], s8[8])", sizes)[0], DENSE)


def test_sparse_systems() -> None:
    square = DENSE[:, :4] + 3 * np.eye(4)
    rows, columns = (x.astype("i4") for x in np.nonzero(square))
    data, b = square[np.nonzero(square)], random_array("f64[4]", 8)
    operands = [data, np.searchsorted(rows, np.arange(5)).astype("i4"), columns, b]
    found = run("cusolver_csrlsvqr", operands, "f64[4]", opaque("4id", 1, 4, len(data), 1, 0))
    np.testing.assert_allclose(found[0], np.linalg.solve(square, b), rtol=1e-10)


# --------------------------------------------------------------------------------------------- what is refused

_DOT = '"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}'
_SQUARES = {"f32[2,2]": random_array("f32[2,2]"), "f32[2,2] ": random_array("f32[2,2]", 1)}
REFUSED: list[tuple[str, str, dict[str, Any], str, dict[str, str], str]] = [
    ("__cublas$lt$matmul", "f32[2,2]", _SQUARES, f'{{"epilogue":"DSILU",{_DOT}}}', {}, "epilogue is not known"),
    ("__cublas$gemm", "f32[2,2]", _SQUARES, f'{{"beta":1,{_DOT}}}', {}, "another number of operands"),
    ("__cublas$gemm", "f32[2,2]", _SQUARES, f'{{"alpha_imag":1,{_DOT}}}', {}, "alpha is complex"),
    ("__cublas$gemm", "f32[2,3]", _SQUARES, f"{{{_DOT}}}", {}, "another shape than it declares"),
    ("__cublas$gemm", "f32[2,2]", _SQUARES, '{"dot_dimension_numbers":{"lhs_contracting_dimensions":["x"]}}', {},
     "no lists of integers"),
    ("__cudnn$convForward", "f32[2,2]", _SQUARES, "{}", {}, "dimension labels"),
    ("__cudnn$fmhaSoftmaxDropout", "f32[2,2]", _SQUARES, '{"dropout_rate":0.1}', {}, "dropout is random"),
    ("__cudnn$fmhaSoftmax", "f32[2,2]", _SQUARES, '{"mask_type":"ALIBI"}', {}, "mask is not known"),
    ("__cudnn$norm", "f32[2,2]", _SQUARES, '{"kind":"LAYER_FWD"}', {}, "kind is not known"),
    ("__onednn$matmul", "f32[2,2]", _SQUARES, '{"onednn_matmul_config":{"fusions":{"ops":["MUL"]}}}', {},
     "fused op is not known"),
    ("cusolver_getrf", "(f32[2,2], s32[2], s32[])", {"s32[2,2]": np.zeros((2, 2), "i4")}, "{}", {}, "no matrices"),
    ("cusolver_syevd", "(f32[2,2], f32[2], s32[])", {"f32[2,2]": _SQUARES["f32[2,2]"]}, '"abc"', {}, "another length"),
    ("Eigh", "(f32[2,2], f32[2])", {"f32[2,2]": _SQUARES["f32[2,2]"]}, '"x"', {}, "which triangle"),
    ("MoveToHost", "f32[4]", {"f32[2,2]": _SQUARES["f32[2,2]"]}, "{}", {}, "changes the shape"),
]


@pytest.mark.parametrize(("target", "result", "operands", "configuration", "facts", "why"), REFUSED)
def test_what_is_not_known_is_refused(target: str, result: str, operands: dict[str, Any], configuration: str,
                                      facts: dict[str, str], why: str) -> None:
    """With the reason, and never with a number that may be wrong."""
    tensors = {shape: torch.from_numpy(value) for shape, value in operands.items()}
    with pytest.raises(UnsupportedError, match="register_custom_call") as raised:
        call(target, result, tensors, configuration, **facts)
    assert why in str(raised.value)
