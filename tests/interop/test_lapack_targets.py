"""Every target of custom calls that jaxlib registers, sparse products, and what is written of programs with calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import xla_torch
from grad_rules.lapack import ROUTINE_RULES
from support.custom_call import random
from support.oracle import run_xla
from support.scaled_agreement import assert_close
from xla_torch.hlo.custom_calls import ROUTINES
from xla_torch.kernels import lapack
from xla_torch.lowering import custom_calls

jax: Any = pytest.importorskip("jax")
jnp: Any = pytest.importorskip("jax.numpy")
linalg: Any = jax.lax.linalg


def test_every_target_that_jaxlib_registers_for_the_cpu_is_known() -> None:
    jaxlib: Any = pytest.importorskip("jaxlib.cpu._lapack")
    sparse: Any = pytest.importorskip("jaxlib.cpu._sparse")
    targets = [*jaxlib.registrations(), *sparse.registrations(), "dce_sink"]
    assert len(targets) > 60
    program = "HloModule m\nENTRY e {{\n  x = f32[2,2] parameter(0)\n  ROOT r = {} custom-call(x), custom_call_target=\"{}\"\n}}"
    for target in targets:
        result = "(f32[2,2], s32[])" if "potrf" in target else "()" if target == "dce_sink" else "f32[2,2]"
        operands = "x, x" if "trsm" in target else "x"
        text = program.format(result, target).replace("(x)", f"({operands})")
        (instruction,) = [i for i in xla_torch.parse_hlo(text).entry.instructions if i.opcode == "custom-call"]
        assert custom_calls.is_known(instruction), target


def test_sparse_products() -> None:
    dense = random("5,4", "f4") * (random("5,4", "f4", 1) > 0)
    sparse: Any = pytest.importorskip("jax.experimental.sparse")
    matrix = sparse.BCSR.fromdense(jnp.asarray(dense), nse=int((dense != 0).sum()) + 2)
    for right in (random("4,3", "f4", 2), random("4", "f4", 3)):
        text = (f"HloModule m\nENTRY e {{\n  d = f32[{matrix.nse}] parameter(0)\n  s = s32[6] parameter(1)\n"
                f"  c = s32[{matrix.nse}] parameter(2)\n  r = f32[{','.join(map(str, right.shape))}] parameter(3)\n"
                f"  ROOT y = f32[{','.join(map(str, (5, *right.shape[1:])))}] custom-call(d, s, c, r), "
                'custom_call_target="cpu_csr_sparse_dense_ffi", api_version=API_VERSION_TYPED_FFI, backend_config={}\n}')
        arguments = [np.asarray(matrix.data), np.asarray(matrix.indptr), np.asarray(matrix.indices), right]
        program = xla_torch.parse_hlo(text)
        assert_close(np.asarray(program.run_numpy(*arguments)[0]), dense @ right, relative=1e-5)
        ct = random(",".join(map(str, (5, *right.shape[1:]))), "f4", 3)
        derivative = xla_torch.vjp(program)
        rows, columns = (dense != 0).nonzero()
        wanted = (ct[rows] * right[columns]).reshape(len(rows), -1).sum(1), dense.T @ ct
        for found in (derivative.run_numpy(*arguments, ct), run_xla(derivative.to_hlo_text(), *arguments, ct)):
            for got, want in zip(found, (np.pad(wanted[0], (0, 2)), wanted[1]), strict=True):
                assert_close(np.asarray(got), want, relative=1e-5)


def test_the_qr_of_xla_itself() -> None:
    """XLA expands these on its own; JAX uses them where there is no LAPACK."""
    a = random("4,3", "f4")
    text = """HloModule m
ENTRY e {
  a = f32[4,3] parameter(0)
  qr = (f32[4,3], f32[3]) custom-call(a), custom_call_target="Qr"
  packed = f32[4,3] get-tuple-element(qr), index=0
  taus = f32[3] get-tuple-element(qr), index=1
  q = f32[4,3] custom-call(packed, taus), custom_call_target="ProductOfElementaryHouseholderReflectors"
  ROOT r = (f32[4,3], f32[3], f32[4,3]) tuple(packed, taus, q)
}"""
    for ours, theirs in zip(xla_torch.parse_hlo(text).run_numpy(a), run_xla(text, a), strict=True):
        assert_close(np.asarray(ours), theirs, relative=1e-4)


WRITTEN: dict[str, Callable[..., Any]] = {
    "a solved system": lambda a: linalg.triangular_solve(
        linalg.cholesky(a @ a.T + 4 * jnp.eye(4, dtype=a.dtype)), a, left_side=True, lower=True),
    "eigenvalues": lambda a: jnp.linalg.eigvalsh(a + a.T), "lu": lambda a: linalg.lu(a)[0],
    "r": lambda a: jnp.abs(jnp.linalg.qr(a)[1]), "singular values": lambda a: jnp.linalg.svd(a, compute_uv=False),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_real_xla_runs_what_is_written_of_programs_with_calls(name: str) -> None:
    """Whose flags have a width that LAPACK's targets look at: ``uplo = 76 : ui8``."""
    a = random("4,4", "f4")
    ours = xla_torch.from_jax(WRITTEN[name], a)
    again = xla_torch.from_stablehlo(ours.to_stablehlo())
    for text in (ours.to_hlo_text(), again.to_hlo_text()):
        assert "lapack_" in text
        assert_close(run_xla(text, a)[0], np.asarray(ours.run_numpy(a)[0]), relative=1e-4)


def test_every_known_routine_has_a_function_and_a_gradient_or_none() -> None:
    assert lapack.ROUTINES.keys() == ROUTINES.keys()
    assert ROUTINE_RULES.keys() == {name for name, routine in ROUTINES.items() if not routine.no_gradient}
