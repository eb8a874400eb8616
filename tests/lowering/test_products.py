"""Products of matrices that are read transposed are made transposed; large ones by the faster library."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable

import numpy as np
import pytest
import torch

from xla_torch import Shape, XlaComputation, parse_hlo
from xla_torch.core import tuning
from xla_torch.kernels import contraction
from xla_torch.storage.dtypes import torch_dtype
from xla_torch.storage.torch_private import onednn_linear

DOT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
BATCHED = "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}"

ROWS = [
    # parameters, lines, result, whether nothing is left to be permuted
    ("f32[3,4]", "f32[4,5]", [f"d = f32[3,5] dot(a, b), {DOT}", "ROOT r = f32[5,3] transpose(d), dimensions={1,0}"], True),
    ("f32[4,3]", "f32[5,4]", ["d = f32[3,5] dot(a, b), lhs_contracting_dims={0}, rhs_contracting_dims={1}",
                              "ROOT r = f32[5,3] transpose(d), dimensions={1,0}"], True),
    ("f32[2,3,4]", "f32[2,4,5]", [f"d = f32[2,3,5] dot(a, b), {BATCHED}",
                                  "ROOT r = f32[2,5,3] transpose(d), dimensions={0,2,1}"], True),
    ("f32[2,3,4]", "f32[2,4,5]", [f"d = f32[2,3,5] dot(a, b), {BATCHED}",
                                  "ROOT r = f32[5,2,3] transpose(d), dimensions={2,0,1}"], False),
    ("f32[2,3,4]", "f32[2,4,5]", [f"d = f32[2,3,5] dot(a, b), {BATCHED}",
                                  "s = f32[2,5,3] transpose(d), dimensions={0,2,1}",
                                  "t = f32[5,2,3] transpose(d), dimensions={2,0,1}",
                                  "u = f32[2,5,3] transpose(t), dimensions={1,0,2}",
                                  "ROOT r = f32[2,5,3] subtract(s, u)"], False),
    # Its rows are read as they are, too.
    ("f32[3,4]", "f32[4,3]", [f"d = f32[3,3] dot(a, b), {DOT}", "t = f32[3,3] transpose(d), dimensions={1,0}",
                              "ROOT r = f32[3,3] add(d, t)"], False),
    # Several dimensions of rows, and none.
    ("f32[2,3,4]", "f32[4,5]", ["d = f32[2,3,5] dot(a, b), lhs_contracting_dims={2}, rhs_contracting_dims={0}",
                                "ROOT r = f32[2,5,3] transpose(d), dimensions={0,2,1}"], False),
    ("f32[2,4]", "f32[2,4,5]", ["d = f32[2,5] dot(a, b), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1}, "
                                "rhs_contracting_dims={1}", "ROOT r = f32[5,2] transpose(d), dimensions={1,0}"], False),
]


@pytest.mark.parametrize("element_type", ["f32", "bf16", "s32", "c64"])
@pytest.mark.parametrize(("a", "b", "lines", "is_whole"), ROWS, ids=[str(k) for k in range(len(ROWS))])
def test_products_are_made_as_they_are_read(a: str, b: str, lines: list[str], is_whole: bool, element_type: str,
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n".join(["HloModule m", "ENTRY e {", f"a = {a} parameter(0)", f"b = {b} parameter(1)", *lines, "}"])
    program = parse_hlo(text.replace("f32", element_type))
    arguments = [_small_numbers(shape) for shape in program.program_shape.parameters]
    got = program(*arguments)
    assert ("permute" not in program.lowered().code) == is_whole
    monkeypatch.setattr(tuning, "WITHOUT_PASSES", frozenset({"turned products"}))
    plain = parse_hlo(text.replace("f32", element_type))
    assert torch.equal(got, plain(*arguments))
    assert "permute" in plain.lowered().code


def _small_numbers(shape: Shape) -> torch.Tensor:
    return (torch.arange(shape.element_count) % 7 - 3).reshape(shape.dimensions).to(torch_dtype(shape.element_type))


LIBRARIES = [
    # element type, lhs, rhs, whether the product is oneDNN's where that is the faster one, with AVX-512
    ("f32", "512,256", "256,128", True),
    ("f32", "4,128,256", "256,128", True),
    ("f32", "8,1024", "1024,1024", True),
    ("f32", "1,4096", "4096,2048", True),
    ("f32", "512,128", "128,10", True),
    ("f32", "512,128", "128,255", True),
    ("f32", "512,128", "128,256", True),
    ("f32", "64,128", "128,10", False),
    ("f32", "128,128", "128,128", False),
    ("f64", "512,256", "256,128", False),
    ("f32", "4,128,256", "4,256,128", True),
    ("f32", "4,128,256", "4,256,127", False),
    ("f64", "4,128,256", "4,256,128", False),
]


def product(element_type: str, lhs: str, rhs: str) -> XlaComputation:
    """Of matrices, or of as many as stand in front in both; the right one may be a vector."""
    batch = max(0, rhs.count(",") - 1)
    numbers = "".join(f"{side}_batch_dims={{0}}, " for side in ("lhs", "rhs") if batch)
    numbers += f"lhs_contracting_dims={{{lhs.count(',')}}}, rhs_contracting_dims={{{batch}}}"
    result = ",".join([*lhs.split(",")[:-1], *rhs.split(",")[batch + 1:]])
    return parse_hlo(f"""
        HloModule m
        ENTRY e {{
          a = {element_type}[{lhs}] parameter(0)
          b = {element_type}[{rhs}] parameter(1)
          ROOT d = {element_type}[{result}] dot(a, b), {numbers}
        }}""")


@pytest.mark.skipif(onednn_linear is None, reason="this torch has no oneDNN")
@pytest.mark.parametrize("avx512", [True, False])
@pytest.mark.parametrize(("element_type", "lhs", "rhs", "expected"), LIBRARIES, ids=[f"{t}-{a}x{b}" for t, a, b, _ in LIBRARIES])
def test_large_products_are_made_by_the_faster_library(element_type: str, lhs: str, rhs: str, expected: bool, avx512: bool,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xla_torch.passes.products._prefers_onednn", lambda: True)
    monkeypatch.setattr("xla_torch.passes.products._has_avx512", lambda: avx512)
    program = product(element_type, lhs, rhs)
    by_few_columns = rhs.endswith(",10")
    assert ("measured_matmul" in program.lowered().code) == (expected and (avx512 or by_few_columns))
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(shape.dimensions, generator=generator, dtype=torch_dtype(shape.element_type))
                   for shape in program.program_shape.parameters)
    exact = (left.double() @ right.double()).to(left.dtype)
    by_columns = left.transpose(-1, -2).contiguous().transpose(-1, -2)
    for factor in (left, by_columns):
        torch.testing.assert_close(program(factor, right), exact, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(program(left, right.mT.contiguous().mT), exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("forms", [(lambda t: t, lambda t: t), (lambda t: t.mT.contiguous().mT, lambda t: t[..., :1])])
def test_large_products_are_measured_by_a_part(forms: tuple[Callable[..., torch.Tensor], Callable[..., torch.Tensor]]) -> None:
    """A sample of rows and columns that lie as all of them do."""
    left, right = (form(torch.ones(shape)) for form, shape in zip(forms, ((3, 700, 512), (512, 900)), strict=True))
    one, other = contraction._sample(left, right)
    assert math.prod(one.shape) * other.shape[-1] <= contraction._SAMPLED
    assert (one.stride(), other.stride(), one.shape[-1]) == (left.stride(), right.stride(), 512)
    assert (one @ other).shape == (3, one.shape[-2], other.shape[-1])


@pytest.mark.parametrize(("lhs", "numbers", "copies"), [
    ("8,512,256", "lhs_contracting_dims={1}, rhs_contracting_dims={0}", False),
    ("2,3,512,16", "lhs_contracting_dims={2}, rhs_contracting_dims={0}", False),
    ("3,8,64,16", "lhs_contracting_dims={1,2}, rhs_contracting_dims={0,1}", False),
    ("50,16,2", "lhs_contracting_dims={1}, rhs_contracting_dims={0}", True),
    ("50,512,1", "lhs_contracting_dims={1}, rhs_contracting_dims={0}", True)])
def test_a_batch_of_transposed_matrices_is_multiplied_as_it_lies(lhs: str, numbers: str, copies: bool) -> None:
    """By one matrix on the right: small ones are better copied, into one product."""
    left = torch.randn([int(n) for n in lhs.split(",")], dtype=torch.float64)
    summed = [int(n) for n in numbers.partition("{")[2].partition("}")[0].split(",")]
    right = torch.randn([*(left.shape[d] for d in summed), 10], dtype=torch.float64)
    exact = torch.from_numpy(np.tensordot(left.numpy(), right.numpy(), (summed, list(range(len(summed))))))
    program = parse_hlo(f"""HloModule m
ENTRY e {{
  a = f64[{lhs}] parameter(0)
  b = f64[{",".join(map(str, right.shape))}] parameter(1)
  ROOT d = f64[{",".join(map(str, exact.shape))}] dot(a, b), {numbers}
}}""")
    torch.testing.assert_close(program(left, right), exact)
    assert ("unflatten" in program.python_code()) == copies


@pytest.mark.skipif(onednn_linear is None, reason="this torch has no oneDNN")
@pytest.mark.parametrize("slow", ["_in_torch", "_in_onednn", "float32_matmul", ""])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("lhs", "rhs"), [((64, 32), (32, 48)), ((3, 64, 32), (32, 48)), ((3, 64, 32), (3, 32, 48)),
                                          ((2, 3, 64, 32), (2, 3, 32, 48))])
def test_the_library_that_was_faster_is_kept(lhs: tuple[int, ...], rhs: tuple[int, ...], dtype: torch.dtype, slow: str,
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    """And both give the same numbers, however the factors lie."""
    monkeypatch.setattr(contraction, "_faster", {})
    calls: list[str] = []

    def counted(name: str, make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def call(*factors: torch.Tensor) -> torch.Tensor:
            calls.append(name)
            time.sleep(0.02 * (name == slow))
            return make(*factors)
        return call

    for name in ("_in_torch", "_in_onednn", "float32_matmul"):
        monkeypatch.setattr(contraction, name, counted(name, getattr(contraction, name)))
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(dims, generator=generator).to(dtype) for dims in (lhs, rhs))
    exact = (left.double() @ right.double()).to(dtype)
    within = 1e-4 if dtype is torch.float32 else torch.finfo(dtype).eps

    def forms(tensor: torch.Tensor) -> list[torch.Tensor]:
        return [tensor, tensor.mT.contiguous().mT, torch.stack([tensor, tensor], -1)[..., 0]]

    for one, other in itertools.product(forms(left), forms(right)):
        for _ in range(2):
            torch.testing.assert_close(contraction.measured_matmul(one, other), exact, rtol=within, atol=within)
        assert not slow or calls[-1] != slow
    del calls[:]
    contraction.measured_matmul(left, right)
    assert len(calls) == 1


NARROW = [
    # element type, lhs, rhs, whether there are units for it, the kernel that makes the product
    ("f16", "64,64", "64,64", False, "float32_matmul"),
    ("bf16", "64,64", "64,64", False, "float32_matmul"),
    ("f16", "64,64", "64,64", True, "measured_matmul"),
    ("bf16", "64,64", "64,64", True, "measured_matmul"),
    ("bf16", "4,16,32", "4,32,16", True, "measured_matmul"),
    ("bf16", "256,64", "64", True, "measured_matmul"),
    ("bf16", "16,16", "16,31", True, ""),
    ("f16", "16,16", "16,31", False, ""),
    ("f16", "16,16", "16,32", False, "float32_matmul"),
    ("f16", "4,16,32", "4,32,16", False, "float32_matmul"),
    ("bf16", "256,64", "64", False, "float32_matmul"),
    ("f32", "64,64", "64,64", False, ""),
]


@pytest.mark.parametrize(("element_type", "lhs", "rhs", "units", "kernel"), NARROW)
def test_narrow_products_are_made_in_float32_where_that_is_faster(element_type: str, lhs: str, rhs: str, units: bool,
                                                                  kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number that XLA gives: sums in float32, rounded once."""
    monkeypatch.setattr("xla_torch.passes.products.has_units", lambda dtype: units)
    monkeypatch.setattr("xla_torch.passes.products._prefers_onednn", lambda: False)
    program = product(element_type, lhs, rhs)
    assert [name for name in ("float32_matmul", "measured_matmul") if name in program.lowered().code] == [kernel] * bool(kernel)
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(shape.dimensions, generator=generator, dtype=torch.float32).to(torch_dtype(shape.element_type))
                   for shape in program.program_shape.parameters)
    exact = (left.double() @ right.double()).to(left.dtype)
    torch.testing.assert_close(program(left, right), exact, rtol=torch.finfo(left.dtype).eps, atol=2**-16)
    left.requires_grad_()
    program(left, right).float().sum().backward()
    assert left.grad is not None
