"""The ways in which a row's function becomes a program here; each gives the values of its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import torch
from jax import export

import xla_torch
from reports.rows import Row
from support.jax_oracle import program
from xla_torch.api.tree_function import TreeFunction
from xla_torch.core import tuning

Program = Callable[..., Any]
Arrays = list[np.ndarray]


def tensors(arguments: Sequence[Any]) -> list[torch.Tensor]:
    return [torch.from_numpy(np.array(a)) for a in arguments]


def arrays(results: Any) -> Arrays:
    """The leaves of results, as NumPy has them."""
    leaves = jax.tree.leaves(results)
    return [np.asarray(r.detach().resolve_conj().numpy() if isinstance(r, torch.Tensor) else r) for r in leaves]


def from_jax(row: Row) -> TreeFunction:
    return xla_torch.from_jax(row.function, *row.arguments)


def from_hlo_text(row: Row) -> Program:
    return program(row.function, *row.arguments)


def from_stablehlo(row: Row) -> Program:
    return xla_torch.from_stablehlo(_lowered(row).as_text())


def from_jax_export(row: Row) -> Program:
    return xla_torch.from_exported(export.export(jax.jit(row.function))(*row.arguments))


def from_torch(row: Row) -> TreeFunction:
    return xla_torch.from_torch(row.function, *tensors(row.arguments))


def from_torch_by_stablehlo(row: Row) -> Program:
    return xla_torch.from_stablehlo(from_torch(row).to_stablehlo())


def compiled_of_jax(row: Row) -> Program:
    return xla_torch.compile(from_jax(row), backend="xla")


def compiled_of_torch(row: Row) -> Program:
    return xla_torch.compile(from_torch(row), backend="xla")


def _lowered(row: Row) -> Any:
    return jax.jit(row.function, keep_unused=True).lower(*row.arguments)


def called(made: Program, row: Row) -> Arrays:
    return arrays(made(*tensors(row.arguments)))


def called_in_a_batch(made: Program, row: Row) -> Arrays:
    """The last of two equal elements of a batch."""
    given = [torch.stack([t, t]) for t in tensors(row.arguments)]
    return [r[1] for r in arrays(torch.func.vmap(made)(*given))]


def called_three_times(made: Program, row: Row) -> Arrays:
    """With native code for whatever can have some."""
    assert tuning.NATIVE_AFTER == 0
    for _ in range(2):
        made(*tensors(row.arguments))
    return called(made, row)


def by_backward(made: Program, row: Row) -> Arrays:
    first, *others = tensors(row.arguments)
    _summed(made(first.requires_grad_(), *others)).backward()
    assert first.grad is not None
    return [first.grad.numpy()]


def by_functional_gradient(made: Program, row: Row) -> Arrays:
    first, *others = tensors(row.arguments)
    return [torch.func.grad(lambda x: _summed(made(x, *others)))(first).numpy()]


def _summed(results: Any) -> torch.Tensor:
    return sum((r.sum() for r in jax.tree.leaves(results)), torch.zeros((), dtype=torch.float64))


MADE_OF_JAX = {made.__name__: made for made in (from_jax, from_hlo_text, from_stablehlo, from_jax_export, compiled_of_jax)}
MADE_OF_TORCH = {made.__name__: made for made in (from_torch, from_torch_by_stablehlo, compiled_of_torch)}
LOSES_RULES = ("from_hlo_text", "from_stablehlo", "from_torch_by_stablehlo")
"""Formats without derivatives of their own, so that the gradient table gives them."""


def truth(row: Row, is_torch: bool) -> Arrays:
    """What is right: the stated values, else those of JAX compiled for the CPU or of eager torch."""
    if row.right is not None:
        return arrays(row.right)
    if is_torch:
        return by_backward(row.function, row) if row.gradient else called(row.function, row)
    if not row.gradient:
        return [np.asarray(r) for r in jax.tree.leaves(jax.jit(row.function)(*row.arguments))]
    summed = jax.grad(lambda *given: sum(r.sum() for r in jax.tree.leaves(row.function(*given))), allow_int=True)
    return [np.asarray(summed(*row.arguments))]
