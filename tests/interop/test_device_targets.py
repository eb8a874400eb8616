"""What compilers for devices write means what the program meant: values against real XLA, gradients against the program's."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest
import torch

import xla_torch
from support.device_rows import FACTORS, PRODUCTS, WRAPPERS, Row
from support.device_rows_kernels import ATTENTION, CONVOLUTIONS, NORMALIZATIONS, ONEDNN
from support.oracle import run_xla
from support.scaled_agreement import random_array
from xla_torch.runtime.static import tensor_from_numpy
from xla_torch.transform.expand_custom_calls import expansion, why_unknown

ROWS = [*PRODUCTS, *FACTORS, *WRAPPERS, *CONVOLUTIONS, *NORMALIZATIONS, *ATTENTION, *ONEDNN]


def arguments(row: Row) -> list[np.ndarray]:
    found = []
    for k, shape in enumerate(row.parameters):
        drawn = random_array(shape, k)
        found.append((drawn.astype("f4") * row.scale).astype(drawn.dtype) if drawn.dtype.kind == "f" else drawn)
    return found


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_values(row: Row) -> None:
    given = arguments(row)
    found = xla_torch.parse_hlo(row.text(row.written)).run_numpy(*given)
    for got, want in zip(found, run_xla(row.text(row.meant), *given), strict=True):
        assert_near(np.asarray(got), want, row.tolerance)


@pytest.mark.parametrize("row", [r for r in ROWS if r.gradient and r.tolerance], ids=lambda row: row.name)
def test_gradients(row: Row) -> None:
    ours, theirs = (gradients(row, body) for body in (row.written, row.meant))
    for got, want in zip(ours, theirs, strict=True):
        assert_near(got, want, 10 * row.tolerance)


def gradients(row: Row, body: str) -> list[np.ndarray]:
    """The gradients of all floating parameters, for cotangents that are drawn."""
    shapes = [xla_torch.Shape.parse(p) for p in row.parameters]
    tensors = [tensor_from_numpy(a, s, k) for k, (a, s) in enumerate(zip(arguments(row), shapes, strict=True))]
    wanted = [t.requires_grad_() for t in tensors if t.is_floating_point() or t.is_complex()]
    found = xla_torch.parse_hlo(row.text(body))(*tensors)
    results = [r for r in (found if isinstance(found, tuple) else (found,)) if r.requires_grad]
    generator = torch.Generator().manual_seed(0)
    cotangents = [torch.randn(r.shape, generator=generator).to(r.dtype) for r in results]
    torch.autograd.backward(results, cotangents)
    return [t.grad.detach().to(torch.complex128).numpy() for t in wanted if t.grad is not None]


ODD = [None, "x", -1, 7, 0.5, [], {}, True, ["1"], {"a": 1}, 1e30]
"""What a configuration's entries are replaced with."""


def changed(value: Any, generator: random.Random) -> Any:
    """A configuration with one of its entries replaced."""
    if isinstance(value, dict) and value and generator.random() < 0.9:
        key = generator.choice(sorted(value))
        return {**value, key: changed(value[key], generator)}
    if isinstance(value, list) and value and generator.random() < 0.5:
        return [changed(value[0], generator), *value[1:]]
    return generator.choice(ODD)


@pytest.mark.parametrize("row", [r for r in ROWS if "backend_config={" in r.written], ids=lambda row: row.name)
def test_broken_configurations_are_refused_or_mean_something(row: Row) -> None:
    """No text leads into an error that is not ours, and a meaning has the declared shape."""
    generator = random.Random(row.name)
    start = row.written.index("backend_config={") + len("backend_config=")
    settings, length = json.JSONDecoder().raw_decode(row.written[start:])
    for _ in range(20):
        text = json.dumps(changed(settings, generator))
        broken = row.text(row.written[:start] + (text if text[0] == "{" else "{}") + row.written[start + length:])
        for instruction in xla_torch.parse_hlo(broken).entry.instructions:
            if why_unknown(instruction) is None and (meaning := expansion(instruction)) is not None:
                assert meaning.root.shape.compatible(instruction.shape)


def assert_near(got: np.ndarray, want: np.ndarray, tolerance: float) -> None:
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    difference = np.abs(got.astype("c16") - want.astype("c16")).max(initial=0)
    assert difference <= tolerance * max(np.abs(want.astype("c16")).max(initial=0), 1e-3), difference
