"""Reducers that torch has kernels for, with what XLA's element types ask of them.

A `Monoid` is a recognised reducer over one element type. Op bodies call its methods on tensors or proxies in storage dtypes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import torch

from ..analysis.reducers import reducer_kind
from ..analysis.selections import selection
from ..core.types import PrimitiveType
from ..hlo.ir import Computation
from ..kernels import reduction
from ..kernels.window import reduce_windows
from ..opcodes.reducer_kinds import ReducerKind
from ..storage.dtypes import storage_dtype
from . import numerics
from .values import Number, Value, emit


@dataclasses.dataclass(frozen=True, slots=True)
class Monoid:
    """A reducer that torch knows, for one element type. `neutral` is the number, as it is stored, that adds nothing."""

    kind: ReducerKind
    element_type: PrimitiveType
    neutral: Value

    def ignores(self, init: Value) -> bool:
        """Whether the init value is known to change nothing."""
        return isinstance(init, Number) and self.kind is not ReducerKind.SUBTRACT and init == self.neutral

    def reduce(self, value: Value, dims: Sequence[int], may_be_empty: bool = False) -> Value:
        """Reduce at least one dimension of a tensor; `may_be_empty` if they can have size 0 at run time."""
        return self._ordered(self._fold(self._ordered(value), tuple(dims), may_be_empty))

    def reduce_windows(self, value: Value, window: Sequence[tuple[int, ...]]) -> Value:
        """Reduce each window (see `kernels.window.windows`) of a tensor to one element."""
        kind = ReducerKind.ADD if self.kind is ReducerKind.SUBTRACT else self.kind
        return self._ordered(emit(reduce_windows, self._ordered(value), kind.value, self._ordered(self.neutral), tuple(window)))

    def _ordered(self, value: Value) -> Value:
        """Unsigned values as stored with their order mended, for maximum and minimum; done twice it undoes itself."""
        return numerics.sign_flip(value, self.element_type) if self.kind in (ReducerKind.MAXIMUM, ReducerKind.MINIMUM) else value

    def _fold(self, value: Value, dims: tuple[int, ...], may_be_empty: bool) -> Value:
        storage = storage_dtype(self.element_type)
        if self.kind in (ReducerKind.ADD, ReducerKind.SUBTRACT):
            return torch.sum(value, dims) if _keeps_dtype(self.element_type) else torch.sum(value, dims, dtype=storage)
        if self.kind is ReducerKind.MULTIPLY:
            return self._product(value, dims)
        if self.kind in (ReducerKind.OR, ReducerKind.AND):
            if may_be_empty:
                return torch.any(value, dims) if self.kind is ReducerKind.OR else torch.all(value, dims)
            return emit(reduction.any_of if self.kind is ReducerKind.OR else reduction.all_of, value, dims)
        largest = self.kind is ReducerKind.MAXIMUM
        if may_be_empty:
            return emit(reduction.extreme, value, dims, largest, self._ordered(self.neutral))
        return torch.amax(value, dims) if largest else torch.amin(value, dims)

    def _product(self, value: Value, dims: tuple[int, ...]) -> Value:
        """Formed in float32 where the type is narrower, and rounded once, as torch's sums are."""
        storage = storage_dtype(self.element_type)
        wide = torch.float32 if storage in (torch.bfloat16, torch.float16) else storage
        whole = torch.prod(value, dims[0], dtype=wide) if len(dims) == 1 else emit(reduction.product, value, dims, wide)
        return whole if wide is storage else whole.to(storage)

    def running(self, value: Value, dim: int, reverse: bool) -> Value:
        """The reduction of elements 0..i along a dimension at each place i (in reverse: of i to the end)."""
        if reverse:
            return self.running(value.flip(dim), dim, False).flip(dim)
        if self.kind in (ReducerKind.ADD, ReducerKind.SUBTRACT, ReducerKind.MULTIPLY):
            return emit(reduction.running_total, value, dim, self.kind is ReducerKind.MULTIPLY)
        if self.kind in (ReducerKind.OR, ReducerKind.AND):
            return emit(reduction.running_extreme, value.to(torch.uint8), dim, self.kind is ReducerKind.OR).to(torch.bool)
        return self._ordered(emit(reduction.running_extreme, self._ordered(value), dim, self.kind is ReducerKind.MAXIMUM))


_ON_PREDICATES = {ReducerKind.ADD: ReducerKind.OR, ReducerKind.MULTIPLY: ReducerKind.AND, ReducerKind.MAXIMUM: ReducerKind.OR,
                  ReducerKind.MINIMUM: ReducerKind.AND}


def monoid(kind: ReducerKind | None, element_type: PrimitiveType) -> Monoid | None:
    """The monoid of a reducer kind (see `analysis.reducers`) over a type, or None where torch has no kernel for it."""
    if kind is None:
        return None
    if element_type.is_pred:
        kind = _ON_PREDICATES.get(kind, kind)
        return Monoid(kind, element_type, kind is ReducerKind.AND) if kind in (ReducerKind.AND, ReducerKind.OR) else None
    if kind in (ReducerKind.ADD, ReducerKind.SUBTRACT):
        return Monoid(kind, element_type, 0)
    if kind is ReducerKind.MULTIPLY:
        return Monoid(kind, element_type, 1)
    if kind in (ReducerKind.MAXIMUM, ReducerKind.MINIMUM) and not element_type.is_complex:
        return Monoid(kind, element_type, lowest(element_type) if kind is ReducerKind.MAXIMUM else highest(element_type))
    return None


def _keeps_dtype(element_type: PrimitiveType) -> bool:
    """Torch adds up integers in int64 unless told otherwise."""
    return element_type.is_floating or element_type.is_complex


def lowest(element_type: PrimitiveType) -> float | int | bool:
    """The number below or equal to all others of the type, as it is stored (-inf for floats)."""
    if element_type.is_floating:
        return -math.inf
    return -(1 << (element_type.bits - 1)) if element_type.is_signed else 0


def highest(element_type: PrimitiveType) -> float | int | bool:
    """The number above or equal to all others of the type, as it is stored (inf for floats)."""
    if element_type.is_floating:
        return math.inf
    if element_type.is_signed:
        return (1 << (element_type.bits - 1)) - 1
    return -1 if element_type.hides_sign else (1 << element_type.bits) - 1


def kind_of_reducer(to_apply: Computation) -> ReducerKind | None:
    """The kind of a reducer of two scalars; a selection of the larger or smaller one counts as MAXIMUM or MINIMUM."""
    kind = reducer_kind(to_apply)
    if kind is None and len(to_apply.parameters) == 2 and not to_apply.root.shape.is_tuple:
        found = selection(to_apply)
        return found and (ReducerKind.MAXIMUM if found.largest else ReducerKind.MINIMUM)
    return kind
