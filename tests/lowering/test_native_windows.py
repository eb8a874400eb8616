"""Windows over small arrays in native code: drawn sizes, strides, dilations and padding, as torch has them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

import xla_torch
from support.native_programs import native_after
from xla_torch.codegen.compiled import is_available
from xla_torch.core import tuning
from xla_torch.kernels.native_bundles import NativeBundle
from xla_torch.kernels.native_plans import NativePlan

pytestmark = pytest.mark.skipif(not is_available(), reason="there is no C compiler")


def drawn_window(seed: int) -> tuple[list[int], list[int], str]:
    """Sizes of an array, of its windows' results, and the windows."""
    rng = np.random.default_rng(seed)
    found = [[], [], [], [], []]
    for _ in range(rng.integers(1, 5)):
        n, size, stride, dilation = (int(rng.integers(low, high)) for low, high in ((3, 9), (1, 4), (1, 4), (1, 3)))
        low, high = (int(rng.integers(-1, 3)) for _ in range(2))
        reach = n + low + high - (size - 1) * dilation
        if reach < 1:
            size, reach = 1, max(1, n + low + high)
        for column, value in zip(found, (n, (reach - 1) // stride + 1, size, stride, f"{low}_{high}:{dilation}"), strict=True):
            column.append(value)
    pads = [p.split(":") for p in found[4]]
    words = {"size": found[2], "stride": found[3], "pad": [p for p, _ in pads], "rhs_dilate": [d for _, d in pads]}
    return found[0], found[1], " ".join(f"{name}={'x'.join(map(str, values))}" for name, values in words.items())


@pytest.mark.parametrize("seed", range(24))
def test_drawn_windows(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "BUNDLE_LEAST", 2)
    given, made, window = drawn_window(seed)
    opcode, kind = (("add", "f32"), ("maximum", "f32"), ("xor", "u32"))[seed % 3]
    x, w = (f"{kind}[{','.join(map(str, dims))}]" for dims in (given, made))
    text = f"""HloModule windows
        meet {{ a = {kind}[] parameter(0)
            b = {kind}[] parameter(1)
            ROOT r = {kind}[] {opcode}(a, b) }}
        ENTRY main {{ x = {x} parameter(0)
            m = {x} multiply(x, x)
            z = {kind}[] constant({seed})
            ROOT w = {w} reduce-window(m, z), window={{{window}}}, to_apply=meet }}"""
    values = np.abs(np.random.default_rng(seed).normal(size=given) * 3)
    argument = torch.from_numpy(values.astype(np.float32 if kind == "f32" else np.uint32))
    found = []
    for after in (0.0, math.inf):
        with native_after(after, tmp_path):
            computation = xla_torch.parse_hlo(text)
            found.append(computation(argument))
            native = [m for m in computation.lowered().modules() if isinstance(m, (NativeBundle, NativePlan))]
            assert [m.seconds for m in native] == [0] * (after == 0)
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-6)
