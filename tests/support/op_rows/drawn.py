"""What a row of the op table draws, and the forms in which its example runs.

A row's `build` is called with a `Drawn`. It draws sizes and attributes, asks for operands, and calls documented functions. The
same `build` runs twice on the same draws: on a builder, where operands are parameters, and at once, where they are torch
tensors.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from support.agreement import dtype_of, element_type, special_values
from support.oracle import run_xla
from xla_torch import Shape, XlaBuilder, XlaComputation, ops
from xla_torch.lowering import numerics
from xla_torch.runtime.static import tensor_from_numpy
from xla_torch.storage.dtypes import torch_dtype, type_from_torch

SIZES = (0, 1, 2, 3, 5)


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the op table: functions, how an example of them is made, and what must come out."""

    functions: str
    """The documented functions that `build` calls and that the row is there for, separated by blanks."""
    build: Callable[[Drawn], Any]
    types: tuple[str, ...]
    """Every element type that XLA takes here."""
    ulps: float = 0
    """How far a float may be from XLA's, in units in the last place; 0 is bit for bit. Integers are always equal."""
    of_largest: bool = False
    """The units are those of the result's largest element: for sums, whose order XLA does not fix."""
    variant: str = ""
    """What sets the row apart from others of the same functions."""
    reference: Callable[..., Any] | None = None
    """From the argument arrays (NumPy) to the result arrays, for what XLA's CPU compiler cannot run, and for disputed types."""
    disputed: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Element types for which XLA's CPU contradicts the documents or itself, with the reason: `reference` decides there."""
    unsigned_zero: bool = False
    """+0 and -0 count as equal here."""
    eager: bool = True
    """False for what means nothing outside a program."""
    participants: tuple[int, int] = (1, 1)
    """Replicas and partitions that run the program together."""

    def wanted(self, drawn: Drawn, text: str) -> list[np.ndarray]:
        """The right results of an example: real XLA's, or the reference's where it decides."""
        formula = drawn.formula or self.reference
        if formula is not None and (drawn.kind in self.disputed or not self.disputed):
            return formula(*drawn.arrays)
        return run_xla(text, *drawn.arrays)

    @property
    def name(self) -> str:
        """The row's own name: its first function, and the variant."""
        return f"{self.functions.split()[0]} {self.variant}".strip()


def rows_of(functions: str, build: Callable[[Drawn, Callable[..., Any]], Any], types: tuple[str, ...],
            **columns: Any) -> list[Row]:
    """A row for each of several functions that are called alike: ``build(d, function)``."""
    return [Row(name, functools.partial(_call, build, name), types, **columns) for name in functions.split()]


def _call(build: Callable[..., Any], name: str, drawn: Drawn) -> Any:
    return build(drawn, getattr(ops, name))


class Drawn:
    """An example being made: draws, operands and regions. `replay` makes it again with torch tensors."""

    def __init__(self, draw: Callable[..., Any], kind: str):
        self._draw, self.kind = draw, kind
        self._draws: list[Any] = []
        self.builder: XlaBuilder | None = XlaBuilder("drawn")
        self.arrays: list[np.ndarray] = []
        self._values: list[Callable[[np.random.Generator], np.ndarray]] = []
        self.formula: Callable[..., list[Any]] | None = None
        self.seed = self._drawn(st.integers(0, 1 << 16))

    def _drawn(self, strategy: Any) -> Any:
        value = self._draw(strategy)
        self._draws.append(value)
        return value

    def replay(self) -> Drawn:
        """The same example for `build` to make at once, without a builder."""
        past: Iterator[Any] = iter(list(self._draws))
        again = Drawn(lambda strategy: next(past), self.kind)
        again.builder = None
        return again

    # ---- sizes and attributes

    def integer(self, low: int, high: int) -> int:
        return self._drawn(st.integers(low, high))

    def flag(self) -> bool:
        return self._drawn(st.booleans())

    def choice(self, *options: Any) -> Any:
        return options[self._drawn(st.integers(0, len(options) - 1))]

    def dims(self, least: int = 0, most: int = 4, smallest: int = 0) -> list[int]:
        """Sizes of an array, 0 and 1 among them."""
        sizes = [n for n in SIZES if n >= smallest]
        return self._drawn(st.lists(st.sampled_from(sizes), min_size=least, max_size=most))

    def order(self, rank: int) -> list[int]:
        """A permutation of the dimensions."""
        return list(self._drawn(st.permutations(range(rank))))

    def some(self, rank: int) -> list[int]:
        """Some of the dimensions, ascending."""
        return [d for d in range(rank) if self.flag()]

    # ---- operands

    def array(self, dims: Sequence[int], kind: str = "", domain: str | Callable[[np.random.Generator], Any] = "any") -> Any:
        """An operand: a parameter, or a tensor at once.

        The domain of its values: ``any`` (limits, zeros, infinities and NaN among them), ``finite``, ``small`` (whole numbers
        whose sums and products are exact in most types), ``few`` (zeros and at most three ones, whose sums are exact in every
        type), ``positive``, ``unit`` (between -1 and 1), or a function of a random
        generator that returns the array.
        """
        kind = kind or self.kind
        function = domain if callable(domain) else functools.partial(_values, kind=kind, dims=tuple(dims), domain=domain)
        return self._operand(lambda rng: np.asarray(function(rng), dtype_of(kind)), kind)

    def given(self, values: np.ndarray, kind: str = "") -> Any:
        """An operand of these values, for every participant."""
        return self._operand(lambda rng: values, kind or self.kind)

    def of_participant(self, number: int) -> list[np.ndarray]:
        """The arguments of one of several participants; those of number 0 are `arrays`."""
        return [values(np.random.default_rng(self.seed + k + 1000 * number)) for k, values in enumerate(self._values)]

    def _operand(self, made: Callable[[np.random.Generator], np.ndarray], kind: str) -> Any:
        values = made(np.random.default_rng(self.seed + len(self.arrays)))
        shape = Shape.array(element_type(kind), values.shape)
        self.arrays.append(values)
        self._values.append(made)
        if self.builder is None:
            return tensor_from_numpy(values, shape, 0)
        number = len(self.arrays) - 1
        return ops.Parameter(self.builder, number, shape, f"p{number}")

    def constant(self, value: Any, kind: str = "") -> Any:
        """A constant: a number or an array."""
        kind = kind or self.kind
        values = np.asarray(value).astype(dtype_of(kind))
        if self.builder is None:
            return tensor_from_numpy(values, Shape.array(element_type(kind), values.shape), 0)
        return self.builder.constant(values, element_type(kind))

    def index(self, low: int, high: int, kind: str = "s32") -> Any:
        """A scalar operand between low and high."""
        return self.given(np.asarray(self.integer(low, high)).astype(dtype_of(kind)), kind)

    def expect(self, formula: Callable[..., list[Any]]) -> None:
        """A `reference` that depends on what was drawn: `build` says it."""
        self.formula = formula

    def region(self, function: Callable[..., Any], *kinds: str) -> XlaComputation:
        """A computation of scalars of these types; of two of the row's type unless given."""
        builder = XlaBuilder("region")
        kinds = kinds or (self.kind, self.kind)
        root = function(*(ops.Parameter(builder, k, Shape.array(element_type(t)), f"x{k}") for k, t in enumerate(kinds)))
        return builder.build(root if not isinstance(root, (list, tuple)) else ops.Tuple(builder, list(root)))


def _values(rng: np.random.Generator, kind: str, dims: tuple[int, ...], domain: str) -> np.ndarray:
    if domain == "any":
        return _any(rng, kind, dims)
    found = element_type(kind)
    if domain == "few":
        values = np.zeros(dims, dtype_of(kind))
        values.flat[rng.integers(0, values.size, min(3, values.size))] = 1
        return values
    if domain == "small":
        low = 0 if found.is_unsigned or found.is_pred or kind == "f8e8m0fnu" else -2
        whole = rng.integers(low, 3 if found.bits > 2 else 2, dims)
        return (whole + 1j * rng.integers(-2, 3, dims) if found.is_complex else whole).astype(dtype_of(kind))
    if not found.is_floating and not found.is_complex:
        values = _any(rng, kind, dims)
        return np.maximum(values, 1).astype(values.dtype) if domain == "positive" else values
    real = {"finite": lambda: rng.normal(size=dims) * 2, "unit": lambda: rng.uniform(-1, 1, dims),
            "positive": lambda: rng.gamma(2.0, size=dims) + 0.01}[domain]
    return (real() + 1j * real() if found.is_complex else real()).astype(dtype_of(kind))


def _any(rng: np.random.Generator, kind: str, dims: tuple[int, ...]) -> np.ndarray:
    with np.errstate(all="ignore"):  # infinities times the imaginary unit
        special = special_values(kind)
        picked = rng.choice(special, dims)
        found = element_type(kind)
        if found.is_narrow or found.is_pred or not dims:
            return np.asarray(picked, dtype_of(kind))
        if found.is_integral:
            ordinary = rng.integers(0, 1 << 63, dims, dtype=np.uint64).astype(np.int64)
        else:
            ordinary = rng.normal(size=dims) * 3 + (1j * rng.normal(size=dims) if found.is_complex else 0)
        return np.where(rng.random(dims) < 0.5, picked, np.asarray(ordinary).astype(dtype_of(kind)))


# --------------------------------------------------------------------------------------------------------- the eager form


def has_torch_dtype(kind: str) -> bool:
    """Torch has tensors of this type, and not of another in its place."""
    found = element_type(kind)
    return torch_dtype(found) is not None and type_from_torch(torch_dtype(found)) is found



def eager_result(row: Row, drawn: Drawn) -> list[np.ndarray]:
    """What `build` gives on torch tensors, at once."""
    return [_numpy(t) for t in _leaves(row.build(drawn.replay()))]


def _leaves(result: Any) -> Iterator[torch.Tensor]:
    if isinstance(result, (list, tuple)):
        for one in result:
            yield from _leaves(one)
    else:
        yield result


def _numpy(tensor: torch.Tensor) -> np.ndarray:
    kind = type_from_torch(tensor.dtype)
    assert kind is not None
    return numerics.numpy_from_storage(numerics.to_storage(tensor.detach(), kind), kind)
