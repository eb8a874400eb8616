"""Each kind of program and each training step, by everybody who has it: ours, XLA, torch by hand, the same under torch.compile,
and IREE where it is installed. What is compiled is compiled by the first run. Needs jax."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import torch

from benchmarks.kinds import KINDS, Kind
from benchmarks.measuring import Run
from benchmarks.models import MODELS, Model
from benchmarks.more_kinds import MORE_KINDS
from xla_torch import compile, from_jax

Case = dict[str, Run]
"""One computation by who runs it, ``ours`` first; each run gives the results as arrays or tensors."""
COMPILED = "torch.compile"
GRAPHED = "ours, cudagraphs"
CALLED = "ours, no-cudagraphs"
ON_CUDA = {GRAPHED: "cudagraphs", CALLED: "no-cudagraphs"}
"""Beside the default, which records by itself."""


def of_kind(kind: Kind, device: str = "cpu") -> Case:
    """A function of arrays, written in JAX and in torch."""
    tensors, buffers = [torch.from_numpy(a).to(device) for a in kind.arguments], [jax.device_put(a) for a in kind.arguments]
    compiled = jax.jit(kind.function)
    case: Case = {"ours": our_run(kind, device), "XLA": lambda: jax.block_until_ready(compiled(*buffers))}
    if device != "cpu":
        case |= {who: our_run(kind, device, backend) for who, backend in ON_CUDA.items()}
    if kind.by_hand is not None:
        by_hand, by_inductor = kind.by_hand, torch.compile(kind.by_hand, dynamic=False)
        case["torch by hand"] = lambda: by_hand(*tensors)
        case[COMPILED] = lambda: by_inductor(*tensors)
    if device == "cpu" and importlib.util.find_spec("iree") is not None:
        case["IREE"] = iree_run(kind)
    return case


def our_run(kind: Kind, device: str = "cpu", backend: str = "eager") -> Run:
    tensors = [torch.from_numpy(a).to(device) for a in kind.arguments]

    @functools.cache
    def program() -> Callable[..., Any]:
        with jax.enable_x64(False):
            return compile(from_jax(kind.function, *kind.arguments), backend)

    return lambda: program()(*tensors)


def of_model(model: Model, device: str = "cpu") -> Case:
    """A training step: the loss and the gradients of all parameters."""
    values = jax.tree_util.tree_map(lambda t: jax.device_put(t.detach().numpy()), model.parameters)
    batch = [jax.device_put(t.numpy()) for t in model.batch]
    program, model = model.program, model.on(device)
    step, by_inductor = jax.jit(jax.value_and_grad(model.source)), torch.compile(model.by_hand, dynamic=False)
    case = {"ours": step_of(model, program), "XLA": lambda: jax.block_until_ready(step(values, *batch)),
            "torch by hand": step_of(model, model.by_hand), COMPILED: step_of(model, by_inductor)}
    if device != "cpu":
        case |= {who: step_of(model, compile(program, backend)) for who, backend in ON_CUDA.items()}
    return case


def step_of(model: Model, loss: Callable[..., torch.Tensor]) -> Run:
    """A loss of a model's parameters, and its gradients."""
    parameters = [leaf.requires_grad_() if leaf.is_floating_point() else leaf for leaf in model.leaves()]

    def run() -> list[torch.Tensor]:
        value = loss(model.parameters, *model.batch)
        return [value.detach(), *torch.autograd.grad(value, parameters)]

    return run


def iree_run(kind: Kind) -> Run:
    """The same function in IREE. Its first run raises where it does not compile it."""
    import iree.compiler  # pyright: ignore[reportMissingImports]
    import iree.runtime  # pyright: ignore[reportMissingImports]

    @functools.cache
    def module() -> tuple[Any, list[Any]]:
        text = str(jax.jit(kind.function).lower(*kind.arguments).compiler_ir("stablehlo"))
        code = iree.compiler.compile_str(text, target_backends=["llvm-cpu"], input_type="stablehlo",
                                         extra_args=["--iree-llvmcpu-target-cpu=host"])
        device = iree.runtime.get_device("local-task")
        return (iree.runtime.load_vm_flatbuffer(code, driver="local-task"),
                [iree.runtime.asdevicearray(device, a) for a in kind.arguments])

    def run() -> list[np.ndarray]:
        loaded, given = module()
        return [np.asarray(r) for r in jax.tree_util.tree_leaves(loaded.main(*given))]

    return run


CASES: dict[str, Callable[..., Case]] = {
    **{name: (lambda device="cpu", kind=kind: of_kind(kind(), device)) for name, kind in {**KINDS, **MORE_KINDS}.items()},
    **{f"{name}, training step": (lambda device="cpu", make=make: of_model(make(), device)) for name, make in MODELS.items()},
}
TRAINING_STEPS = [f"{name}, training step" for name in MODELS]
