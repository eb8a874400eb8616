"""Rows of the gradient tests: one line says an opcode, a JAX function that uses it, and where to look at its gradient.

`check_first` compares with JAX through every entry point (`jax_oracle`); `check_second` compares first and second derivatives
with differences. A row's program must contain its opcode, so that a row cannot silently test something else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import xla_torch
from support.agreement import element_type
from support.jax_oracle import Vjp, compare, program, through_autograd, to_torch
from support.op_rows import Drawn
from support.oracle import run_xla
from xla_torch.hlo.ir import reachable
from xla_torch.types import type_from_numpy


@dataclasses.dataclass(frozen=True)
class Row:
    """`function` is the op in JAX; where JAX has no way to write the opcode, `build` makes it of XlaOps instead."""

    opcode: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    build: Callable[..., Any] | None = None
    order: int = 2
    rtol: float = 1e-9
    on_xla: bool = True

    def __str__(self) -> str:
        shapes = ",".join(f"{a.dtype.str[1:]}{list(a.shape)}" for a in map(np.asarray, self.arguments))
        return f"{self.opcode}({shapes})"

    def computation(self) -> xla_torch.XlaComputation:
        """The row's program, which contains its opcode."""
        found = program(self.function, *self.arguments) if self.build is None else built(self.build, *self.arguments)
        opcodes = {i.opcode for c in reachable([found.module.entry]) for i in c.instructions}
        assert self.opcode in opcodes, f"the row's program has no {self.opcode}, only {sorted(opcodes)}"
        return found


def row(opcode: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> Row:
    """A row for some arguments; Python floats become float64 scalars."""
    return Row(opcode, function, tuple(np.asarray(a) for a in arguments), **options)


def built(function: Callable[..., Any], *arguments: Any) -> xla_torch.XlaComputation:
    """The program that `function` builds from XlaOps of the arguments' shapes. It may return a list, for a tuple."""
    builder = xla_torch.XlaBuilder("row")
    parameters = []
    for number, array in enumerate(map(np.asarray, arguments)):
        element_type = type_from_numpy(array.dtype)
        assert element_type is not None
        parameters.append(builder.parameter(number, xla_torch.Shape.array(element_type, array.shape)))
    result = function(*parameters)
    return builder.build(xla_torch.ops.Tuple(builder, result) if isinstance(result, list) else result)


def check_first(row: Row) -> None:
    """First derivatives are JAX's: by `vjp`, by real XLA running what `vjp` gives, and by torch.autograd."""
    computation, want = row.computation(), Vjp(row.function, row.arguments)
    derivative = xla_torch.vjp(computation, want.argnums)
    compare(derivative(*map(to_torch, [*row.arguments, *want.cotangents])), want.gradients, row.rtol)
    if row.on_xla:
        compare(run_xla(derivative.to_hlo_text(), *row.arguments, *want.cotangents), want.gradients, row.rtol)
    compare(through_autograd(computation, row.arguments, want), want.gradients, row.rtol)


def check_second(row: Row) -> None:
    """First and second derivatives are those of differences."""
    computation = row.computation()
    tensors = [to_torch(a) for a in row.arguments]
    for tensor in tensors:
        tensor.requires_grad_(tensor.is_floating_point() or tensor.is_complex())

    def differentiable(*arguments: torch.Tensor) -> Any:
        result = computation(*arguments)
        parts = result if isinstance(result, tuple) else (result,)
        return tuple(p for p in parts if p.is_floating_point() or p.is_complex())

    assert torch.autograd.gradcheck(differentiable, tensors, fast_mode=True)
    if row.order > 1:
        assert torch.autograd.gradgradcheck(differentiable, tensors, fast_mode=True)


def twice(rows: Sequence[Row]) -> list[Any]:
    """Parameters for `check_second`: of each opcode the first row and the first complex one, all others among the slow tests."""
    seen, found = set(), []
    for each in rows:
        kind = each.opcode, any(np.iscomplexobj(a) for a in each.arguments)
        if each.order and 0 not in np.shape(each.arguments[0]):
            found.append(pytest.param(each, marks=[pytest.mark.slow] if kind in seen else []))
            seen.add(kind)
    return found


def values(*dimensions: int, seed: int = 0, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    """Distinct float64 numbers between `low` and `high`, none of them near another; other seeds give others."""
    count = int(np.prod(dimensions))
    places = np.random.RandomState(seed).permutation(count) + (0.37 + 0.11 * seed) % 1
    return (low + (high - low) * places / max(count, 1)).reshape(dimensions)


def complexes(*dimensions: int, seed: int = 0) -> np.ndarray:
    """Complex128 numbers off the axes."""
    return values(*dimensions, seed=seed) + 1j * values(*dimensions, seed=seed + 1)


def smooth_values(dimensions: Sequence[int], is_complex: bool = False, seed: int = 0, low: float = -2.0,
                  high: float = 2.0) -> np.ndarray:
    """As `values` or, complex, off the axes; of other seeds no value is in both."""
    count, step = int(np.prod(dimensions)), 0.37 + 0.61803398875 * seed
    places = np.random.RandomState(seed).permutation(count) + step % 1
    real = (low + (high - low) * places / max(count, 1)).reshape(tuple(dimensions))
    return real + 1j * smooth_values(dimensions, False, seed + 5, 0.3, 2.0) if is_complex else real


# ----------------------------------------------------------------------------------------------------- drawn examples


class Smooth(Drawn):
    """An example whose floating operands have values of which no two are equal, none of them near a kink of its function."""

    low, high = -2.0, 2.0

    def array(self, dims: Sequence[int], kind: str = "", domain: str | Callable[[np.random.Generator], Any] = "any") -> Any:
        found = element_type(kind or self.kind)
        if callable(domain) or not found.is_differentiable or found.is_narrow:
            return super().array(dims, kind, domain)
        low, high = (0.3, 2.0) if domain == "positive" else (-0.9, 0.9) if domain == "unit" else (self.low, self.high)
        return super().array(dims, kind, lambda rng: smooth_values(dims, found.is_complex, int(rng.integers(1 << 16)), low, high))


def drawn_examples(check: Callable[[Any], None], count: int) -> None:
    """Check so many examples. Of a single one it is the second that hypothesis draws: the first is the simplest, mostly empty."""
    seen = 0

    @settings(max_examples=count + 1, deadline=None, derandomize=True, database=None, phases=(Phase.generate,),
              suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large,
                                     HealthCheck.large_base_example])
    @given(st.data())
    def each(data: Any) -> None:
        nonlocal seen
        seen += 1
        if count > 1 or seen > 1:
            check(data.draw)
        else:
            data.draw(st.integers(0, 1 << 16))

    each()
