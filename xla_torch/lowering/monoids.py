"""Reducers that torch has kernels for, with what XLA's element types ask of them.

A `Monoid` is a recognised reducer over one element type. Op bodies call its methods on tensors or proxies in carrier dtypes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import torch

from ..hlo.ir import Computation
from ..transform.recognise import reducer_kind
from ..transform.recognise_reduce import selection
from ..types import PrimitiveType
from . import numerics
from .kernels import reduction
from .kernels.window import reduce_windows
from .values import Number, emit


@dataclasses.dataclass(frozen=True, slots=True)
class Monoid:
    """A reducer that torch knows, for one element type. `neutral` is the number, in carrier terms, that adds nothing."""

    kind: str
    element_type: PrimitiveType
    neutral: Any

    def ignores(self, init: Any) -> bool:
        """Whether the init value is known to change nothing."""
        return isinstance(init, Number) and self.kind != "subtract" and init == self.neutral

    def reduce(self, value: Any, dims: Sequence[int], may_be_empty: bool = False) -> Any:
        """Reduce at least one dimension of a tensor; `may_be_empty` if they can have size 0 at run time."""
        return self._ordered(self._fold(self._ordered(value), tuple(dims), may_be_empty))

    def reduce_windows(self, value: Any, window: Sequence[tuple[int, ...]]) -> Any:
        """Reduce each window (see `kernels.window.windows`) of a tensor to one element."""
        kind = "add" if self.kind == "subtract" else self.kind
        return self._ordered(emit(reduce_windows, self._ordered(value), kind, self._ordered(self.neutral), tuple(window)))

    def _ordered(self, value: Any) -> Any:
        """Unsigned carriers with their order mended, for maximum and minimum; done twice it undoes itself."""
        return numerics.sign_flip(value, self.element_type) if self.kind in ("maximum", "minimum") else value

    def _fold(self, value: Any, dims: tuple[int, ...], may_be_empty: bool) -> Any:
        carrier = self.element_type.carrier
        if self.kind in ("add", "subtract"):
            return torch.sum(value, dims) if _keeps_dtype(self.element_type) else torch.sum(value, dims, dtype=carrier)
        if self.kind == "multiply":
            return torch.prod(value, dims[0], dtype=carrier) if len(dims) == 1 else emit(reduction.product, value, dims)
        if self.kind in ("or", "and"):
            return torch.any(value, dims) if self.kind == "or" else torch.all(value, dims)
        largest = self.kind == "maximum"
        if may_be_empty:
            return emit(reduction.extreme, value, dims, largest, self._ordered(self.neutral))
        return torch.amax(value, dims) if largest else torch.amin(value, dims)

    def running(self, value: Any, dim: int, reverse: bool) -> Any:
        """The reduction of elements 0..i along a dimension at each place i (in reverse: of i to the end)."""
        if reverse:
            return self.running(value.flip(dim), dim, False).flip(dim)
        carrier = self.element_type.carrier
        if self.kind in ("add", "subtract"):
            return torch.cumsum(value, dim) if _keeps_dtype(self.element_type) else torch.cumsum(value, dim, dtype=carrier)
        if self.kind == "multiply":
            return torch.cumprod(value, dim, dtype=carrier)
        if self.kind in ("or", "and"):
            return emit(reduction.running_extreme, value.to(torch.uint8), dim, self.kind == "or").to(torch.bool)
        return self._ordered(emit(reduction.running_extreme, self._ordered(value), dim, self.kind == "maximum"))


def monoid(kind: str | None, element_type: PrimitiveType) -> Monoid | None:
    """The monoid of a reducer kind (see `recognise.reducer_kind`) over a type, or None where torch has no kernel for it."""
    if kind is None:
        return None
    if element_type.is_pred:
        kind = {"add": "or", "multiply": "and", "maximum": "or", "minimum": "and"}.get(kind, kind)
        return Monoid(kind, element_type, kind == "and") if kind in ("and", "or") else None
    if kind in ("add", "subtract"):
        return Monoid(kind, element_type, 0)
    if kind == "multiply":
        return Monoid(kind, element_type, 1)
    if kind in ("maximum", "minimum") and not element_type.is_complex:
        return Monoid(kind, element_type, lowest(element_type) if kind == "maximum" else highest(element_type))
    return None


def _keeps_dtype(element_type: PrimitiveType) -> bool:
    """Torch adds up integers in int64 unless told otherwise."""
    return element_type.is_floating or element_type.is_complex


def lowest(element_type: PrimitiveType) -> float | int | bool:
    """The number below or equal to all others of the type, in carrier terms (-inf for floats)."""
    if element_type.is_floating:
        return -math.inf
    return -(1 << (element_type.bits - 1)) if element_type.is_signed else 0


def highest(element_type: PrimitiveType) -> float | int | bool:
    """The number above or equal to all others of the type, in carrier terms (inf for floats)."""
    if element_type.is_floating:
        return math.inf
    if element_type.is_signed:
        return (1 << (element_type.bits - 1)) - 1
    return -1 if element_type.hides_sign else (1 << element_type.bits) - 1


def kind_of_reducer(to_apply: Computation) -> str | None:
    """The kind of a reducer of two scalars; a selection of the larger or smaller one counts as "maximum" or "minimum"."""
    kind = reducer_kind(to_apply)
    if kind is None and len(to_apply.parameters) == 2 and not to_apply.root.shape.is_tuple:
        found = selection(to_apply)
        return found and ("maximum" if found.largest else "minimum")
    return kind
