"""Tensors whose memory does not hold their elements one by one: what stands for a negative or a conjugate is computed, and
sparse, nested and other forms are refused in our words, at every entry point."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import xla_torch
from xla_torch import ops
from xla_torch.errors import InvalidArgument
from xla_torch.nn import XlaModule

Z = torch.complex(torch.arange(3.0), torch.arange(1.0, 4.0))


class Plain(torch.Tensor):
    pass


def quietly(make: Callable[[], torch.Tensor]) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, that these are prototypes
        return make()


SINE = "HloModule m\nENTRY e {\n  p = f32[3] parameter(0)\n  ROOT r = f32[3] sine(p)\n}"
SUMMED = """HloModule m
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
ENTRY e {
  p = f32[3] parameter(0)
  s = f32[3] sine(p)
  z = f32[] constant(0)
  ROOT r = f32[] reduce(s, z), dimensions={0}, to_apply=sum
}"""
BITS = "HloModule m\nENTRY e {\n  p = f32[3] parameter(0)\n  ROOT r = s32[3] bitcast-convert(p)\n}"
PARTS = "HloModule m\nENTRY e {\n  p = c64[3] parameter(0)\n  i = f32[3] imag(p)\n  ROOT r = s32[3] bitcast-convert(i)\n}"


class Sine(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x)


ENTRY_POINTS: dict[str, tuple[Callable[[torch.Tensor], Any], Callable[[torch.Tensor], torch.Tensor]]] = {
    "computation": (xla_torch.parse_hlo(SINE), torch.sin),
    "bits": (xla_torch.parse_hlo(BITS), lambda x: x.clone().view(torch.int32)),
    "ops": (ops.Sin, torch.sin),
    "ops, bits": (lambda x: ops.BitcastConvertType(x, xla_torch.S32), lambda x: x.clone().view(torch.int32)),
    "ops of two": (lambda x: ops.Add(torch.ones(3), x), lambda x: x + 1),
    "module": (XlaModule(xla_torch.parse_hlo(SINE)), torch.sin),
    "from_torch": (xla_torch.from_torch(Sine(), torch.ones(3)), torch.sin),
    "gradient": (xla_torch.grad(xla_torch.parse_hlo(SUMMED)), torch.cos),
}
TAKEN: dict[str, torch.Tensor] = {"negative": Z.conj().imag, "subclass": torch.ones(3).as_subclass(Plain)}
REFUSED: dict[str, tuple[Callable[[], torch.Tensor], str]] = {
    "coo": (lambda: torch.ones(3).to_sparse(), "is of sparse form"),
    "csr": (lambda: torch.ones(3, 3).to_sparse_csr(), "is of sparse form"),
    "nested": (lambda: torch.nested.nested_tensor([torch.ones(3)]), "is of nested form"),
    "jagged": (lambda: torch.nested.nested_tensor([torch.ones(3)], layout=torch.jagged), "is of nested form"),
    "oneDNN": (lambda: torch.ones(3).to_mkldnn(), "is of opaque form"),
    "quantized": (lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8), "quint8"),
}


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
@pytest.mark.parametrize("form", TAKEN)
def test_values_are_those_of_the_elements(entry_point: str, form: str) -> None:
    """Also where the call has been seen with plain tensors before."""
    call, want = ENTRY_POINTS[entry_point]
    call(torch.ones(3))
    given = TAKEN[form]
    assert form != "negative" or given.is_neg()
    assert torch.equal(call(given), want(given.resolve_neg()))


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
@pytest.mark.parametrize("form", REFUSED)
def test_other_forms_are_refused(entry_point: str, form: str) -> None:
    make, words = REFUSED[form]
    call = ENTRY_POINTS[entry_point][0]
    call(torch.ones(3))
    with pytest.raises(InvalidArgument, match=words):
        call(quietly(make))


def test_a_conjugate_is_computed() -> None:
    given = Z.conj()
    assert given.is_conj()
    want = given.resolve_conj().imag.clone().view(torch.int32)
    assert torch.equal(xla_torch.parse_hlo(PARTS)(given), want)
    assert torch.equal(ops.BitcastConvertType(ops.Imag(given), xla_torch.S32), want)
    assert torch.equal(ops.Add(given, given), (2 * given).resolve_conj())


def test_gradients_go_through_a_negative() -> None:
    z = Z.clone().requires_grad_()
    xla_torch.parse_hlo(SINE)(z.conj().imag).sum().backward()
    want = Z.clone().requires_grad_()
    torch.sin(want.conj().imag).sum().backward()
    torch.testing.assert_close(z.grad, want.grad)


def test_what_has_no_data_has_shapes() -> None:
    assert xla_torch.parse_hlo(BITS)(torch.ones(3, device="meta")).dtype is torch.int32
    with pytest.raises(xla_torch.errors.DeviceError, match="several devices"):
        ops.Add(torch.ones(3), torch.ones(3, device="meta"))
