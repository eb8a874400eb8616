"""Programs that older versions of JAX exported for CPUs, CUDA, ROCm and TPUs run here, and give what they gave there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import xla_torch
from support.compatibility_data import Case, cases
from xla_torch.errors import UnsupportedError

pytest.importorskip("jax")

ALL = cases()
FIRST = {case.file: case.name for case in reversed(ALL)}

UNLIKE = {
    "tpu_stablehlo_dynamic_reduce_window:data_variadic_2023_06_17":
        "the init values are no identities of the reducer, and TPUs take them in more than once, which the spec leaves open",
}
"""Cases whose result is that platform's own choice."""


def _param(case: Case) -> Any:
    """The first case of each file runs always, the others in the slow sweep."""
    return pytest.param(case, id=case.name, marks=[] if FIRST[case.file] == case.name else [pytest.mark.slow])


@pytest.mark.parametrize("case", [_param(c) for c in ALL if not c.is_kernel])
def test_exported_programs_give_what_they_gave(case: Case) -> None:
    program = xla_torch.from_stablehlo(case.data["mlir_module_serialized"])
    found = [np.asarray(x) for x in program.run_numpy(*case.data["inputs"])]
    if case.name in UNLIKE:
        with pytest.raises(AssertionError):
            case.agrees(found)
    else:
        case.agrees(found)


@pytest.mark.parametrize("case", [_param(c) for c in ALL if c.is_kernel])
def test_kernels_are_refused_by_name(case: Case) -> None:
    """What Pallas compiled is no HLO any more: the error names the target, and says what to register."""
    program = xla_torch.from_stablehlo(case.data["mlir_module_serialized"])
    with pytest.raises(UnsupportedError, match="register_custom_call") as raised:
        program.run_numpy(*case.data["inputs"])
    assert any(target in str(raised.value) for target in case.data["custom_call_targets"])


def test_there_is_data_for_each_platform() -> None:
    counts = {platform: sum(c.data["platform"] == platform for c in ALL) for platform in ("cpu", "cuda", "rocm", "tpu")}
    assert min(counts.values()) > 15, counts
