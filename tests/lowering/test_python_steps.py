"""A guard on Python between regions of native code, in programs that other people's JAX libraries wrote (``shared/perf/wild``).

For each program: the calls of its lowered graph, and the calls of torch from within its plans. Each takes microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import xla_torch
from support.native_programs import native_after
from support.stored_programs import SHARED
from xla_torch.codegen.compiled import is_available
from xla_torch.kernels.native import Awaited
from xla_torch.kernels.native_plans import NativePlan
from xla_torch.runtime.computation import XlaComputation

WILD = SHARED / "perf" / "wild"

STEPS = {
    "dinosaur_shallow_water_step": (61, 0), "flowjax_block_neural_autoregressive_f32": (1, 0),
    "flowjax_coupling_spline_flow_sampling": (2, 0), "interpax_1d_methods": (1, 0), "jaxley_hodgkin_huxley_cell": (3, 0),
    "jaxley_network_with_synapse": (3, 0), "jaxopt_lbfgs_implicit": (1, 0), "jaxopt_levenbergmarquardt": (1, 0),
    "lineax_solvers_without_throw": (4, 0), "mjx_contacts_step_cg": (1, 0), "mjx_pendulum_rollout_rk4": (1, 0),
    "mjx_pendulum_step": (1, 0), "optimistix_without_throw": (1, 0), "pennylane_state_probs_and_purity": (3, 0),
    "pennylane_strongly_entangling_vqe": (1, 0), "pgx_2048": (4, 0), "pgx_go_9x9": (6, 0),
    "s2fft_forward_and_inverse_transform": (1, 0), "tfp_distributions_log_prob": (1, 0), "tfp_hmc_chain": (2, 0),
    "tfp_math_special_functions": (1, 0)}
"""Of each program: calls of its graph, and calls of torch within plans."""

OF_GRADIENTS = {**STEPS, "dinosaur_shallow_water_step": (144, 0), "interpax_1d_methods": (2, 0),
                "jaxley_hodgkin_huxley_cell": (4, 0), "jaxley_network_with_synapse": (5, 0)}
"""The same of each program with its gradients, where loops of unknown length are."""

pytestmark = [pytest.mark.skipif(not WILD.is_dir(), reason="the programs are not there"),
              pytest.mark.skipif(not is_available(), reason="there is no compiler")]


@pytest.fixture(autouse=True)
def with_native_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(Awaited, "begin", lambda self: None)  # it is planned, and not made
    with native_after(3600.0, tmp_path):
        yield


@pytest.mark.parametrize("name", STEPS)
def test_steps_are_no_more_than_in_the_table(name: str) -> None:
    assert_no_more(xla_torch.load(WILD / name / "module.hlo"), *STEPS[name])


@pytest.mark.filterwarnings("ignore::xla_torch.errors.PerhapsLostDerivatives")
@pytest.mark.parametrize("name", OF_GRADIENTS)
def test_steps_with_gradients_are_no_more_than_in_the_table(name: str) -> None:
    computation = xla_torch.load(WILD / name / "module.hlo")
    numbers = [k for k, p in enumerate(computation.program_shape.parameters) if p.is_array and p.element_type.is_floating]
    assert_no_more(xla_torch.vjp(computation, numbers, with_outputs=True), *OF_GRADIENTS[name])


def assert_no_more(computation: XlaComputation, most: int, most_within: int) -> None:
    module = computation.program.lowered(torch.device("cpu"))
    calls = [n for n in module.graph.nodes if n.op.startswith("call") and getattr(n.target, "__name__", "") != "getitem"]
    assert len(calls) <= most
    assert sum(len(m.plan.steps) for m in module.modules() if isinstance(m, NativePlan)) <= most_within


def test_the_table_has_the_programs() -> None:
    assert {p.parent.name for p in Path(WILD).glob("*/module.hlo")} >= {*STEPS}
