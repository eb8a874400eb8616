"""Checks a row of the function sweep: values and derivatives of first and second order, through every entry point, against
JAX."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import xla_torch
from support import jax_oracle
from support.function_rows import FunctionRow
from support.oracle import HAS_XLA

if HAS_XLA:
    import jax
    import jax.numpy as jnp

Arrays = list[np.ndarray]
OPTIMISED = "optimised HLO"


def _from_jax(row: FunctionRow, arguments: Sequence[np.ndarray]) -> xla_torch.XlaComputation:
    return xla_torch.from_jax(row.function, *arguments, derivatives="xla").computation


def _from_text(row: FunctionRow, arguments: Sequence[np.ndarray]) -> xla_torch.XlaComputation:
    lowered: Any = jax.jit(row.function, keep_unused=True).lower(*arguments).compiler_ir("hlo")
    return xla_torch.parse_hlo(lowered.as_hlo_text(print_large_constants=True))


def _from_optimised(row: FunctionRow, arguments: Sequence[np.ndarray]) -> xla_torch.XlaComputation:
    compiled: Any = jax.jit(row.function, keep_unused=True).lower(*arguments).compile()
    return xla_torch.parse_hlo(compiled.as_text())


ENTRY_POINTS: dict[str, Callable[[FunctionRow, Sequence[np.ndarray]], xla_torch.XlaComputation]] = {
    "StableHLO": _from_jax, "HLO text": _from_text, OPTIMISED: _from_optimised}


def entry_points_of(row: FunctionRow) -> Sequence[str]:
    """All entry points for elementwise functions of wide numbers; one is enough for the others, whose spellings do not differ."""
    return tuple(ENTRY_POINTS) if row.elementwise and row.is_wide else ("HLO text",)


def _conj(x: Any) -> Any:
    return jnp.conj(x) if jnp.iscomplexobj(x) else x


def _pulled(function: Callable[..., Any], seeds: Any) -> Callable[..., Any]:
    """The function's gradients for these cotangents, in torch's convention, as a function."""
    def gradients(*arguments: Any) -> Any:
        _, pull = jax.vjp(function, *arguments)
        return tuple(map(_conj, pull(seeds)))

    return gradients


def wanted(row: FunctionRow, arguments: Sequence[np.ndarray]) -> dict[str, Arrays]:
    """What JAX says. Cotangents and tangents are ones that the compiler does not know: it would leave out products with them,
    and 1 times a complex infinity is NaN."""
    def ask(arguments: Any, tangents: Any, seeds: Any) -> dict[str, Any]:
        first = _pulled(row.function, seeds)
        _, tangent = jax.jvp(row.function, arguments, tangents)  # some rules compute the value in another way, too
        found = {"value": row.function(*arguments), "vjp": first(*arguments), "jvp": tangent}
        if row.order > 1:
            found["second"] = _pulled(first, tangents)(*arguments)
        return found

    results = jax.eval_shape(row.function, *arguments)
    ones, seeds = tuple(map(np.ones_like, arguments)), jax.tree.map(lambda r: np.ones(r.shape, r.dtype), results)
    found = jax_oracle.evaluated(ask, tuple(arguments), ones, seeds)
    return {name: [np.asarray(a) for a in jax.tree.leaves(part)] for name, part in found.items()}


def found(program: xla_torch.XlaComputation, arguments: Sequence[np.ndarray], asked: Sequence[str]) -> dict[str, Arrays]:
    """What the program and its derivatives say."""
    numbers, ones = list(range(len(arguments))), list(map(np.ones_like, arguments))
    values = _flat(program.run_numpy(*arguments))
    cotangents = [np.ones_like(v) for v in values]
    first = xla_torch.vjp(program, numbers)
    made = {"value": values, "vjp": _flat(first.run_numpy(*arguments, *cotangents))}
    if "jvp" in asked:
        made["jvp"] = _flat(xla_torch.jvp(program, numbers).run_numpy(*arguments, *ones))[len(values):]
    if "second" in asked:
        made["second"] = _flat(xla_torch.vjp(first, numbers).run_numpy(*arguments, *cotangents, *ones))
    return made


def _flat(value: Any) -> Arrays:
    return [np.asarray(leaf) for leaf in jax_oracle.flat(value)]


@dataclasses.dataclass(frozen=True)
class Difference:
    """Where one derivative by one entry point is not JAX's: in how many elements, and some of them."""

    entry_point: str
    what: str
    count: int
    examples: str

    def __str__(self) -> str:
        return f"{self.entry_point}, {self.what}: {self.count} elements, {self.examples}"


def check(row: FunctionRow, entry_points: Sequence[str] | None = None) -> list[Difference]:
    """What differs from JAX."""
    return [difference for arguments in row.cases
            for difference in _of_case(row, arguments, entry_points or entry_points_of(row))]


def _of_case(row: FunctionRow, arguments: Sequence[np.ndarray], entry_points: Sequence[str]) -> Iterator[Difference]:
    want = wanted(row, arguments)
    for entry_point in entry_points:
        asked = [what for what in want if entry_point != OPTIMISED or what in ("value", "vjp")]
        have = found(ENTRY_POINTS[entry_point](row, arguments), arguments, asked)
        for what in asked:
            for k, (got, expected) in enumerate(zip(have[what], want[what], strict=True)):
                yield from _difference(row, f"{what} {k}" if len(have[what]) > 1 else what, entry_point, arguments, got, expected)


def _difference(row: FunctionRow, what: str, entry_point: str, arguments: Sequence[np.ndarray], got: np.ndarray,
                want: np.ndarray) -> Iterator[Difference]:
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    with np.errstate(all="ignore"):
        places = [tuple(p) for p in np.argwhere(~_close(got, want, row))]
    points = [tuple(a[p].item() for a in arguments) if row.elementwise else p for p in places[:5]]
    if places:
        yield Difference(entry_point, what, len(places), "; ".join(
            f"{got[p]:.8g} and not {want[p]:.8g} at {point}" for p, point in zip(places, points, strict=False)))


def _close(got: np.ndarray, want: np.ndarray, row: FunctionRow) -> np.ndarray:
    """Elements that agree. Where JAX says NaN anything goes; where it is infinite, so are we."""
    scale = np.abs(want) if row.elementwise else np.abs(want).max(initial=0, where=np.isfinite(want))
    near = np.abs(got - want) <= row.rtol * (scale + 1e-3)
    return near | (got == want) | np.isnan(want)
