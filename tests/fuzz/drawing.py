"""A computation that is being drawn: values to choose from, new ones, regions.

The ops stand in `drawing_ops.py`, `drawing_regions.py` and `drawing_collectives.py`, each a function that adds to a `Drawer`
and declines by `Declined` where nothing fits; `drawn.py` makes whole programs with them.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence

import ml_dtypes
import numpy as np

from fuzz.programs import Computation, Part, Value
from support.agreement import dtype_of, element_type

SIGNED, UNSIGNED = ("s8", "s16", "s32", "s64"), ("u8", "u16", "u32", "u64")
INTS = SIGNED + UNSIGNED
FLOATS = ("f32", "f64", "bf16", "f16")
NARROW_FLOATS = ("f8e5m2", "f8e4m3fn", "f8e4m3", "f8e4m3b11fnuz", "f8e5m2fnuz", "f8e4m3fnuz", "f8e3m4")
COMPLEX = ("c64", "c128")
SUMS = ("add", "multiply")
LARGEST = 300
"""Elements of a value."""


class Declined(Exception):
    """An op does not fit what is there."""


Op = Callable[["Drawer"], None]


class Drawer:
    """A computation that is being drawn; those within it share its program."""

    def __init__(self, chance: random.Random, prefix: str, types: Sequence[str], parent: Drawer | None = None):
        self.chance, self.prefix, self.types, self.parent = chance, prefix, types, parent
        self.values: list[Value] = []
        self.arguments: dict[str, np.ndarray] = {}
        self.regions: list[Computation] = parent.regions if parent else []
        self.depth: int = parent.depth + 1 if parent else 0
        self.named: list[int] = parent.named if parent else [0]
        self.numbers: np.random.Generator = parent.numbers if parent else np.random.default_rng(chance.getrandbits(63))
        self.special: bool = parent.special if parent else False
        self.replicas: int = parent.replicas if parent else 1
        self.partitions: int = parent.partitions if parent else 1

    @property
    def participants(self) -> int:
        return self.replicas * self.partitions

    # ---- adding

    def name(self, stem: str = "v") -> str:
        self.named[0] += 1
        return f"{self.prefix}{stem}{self.named[0]}"

    def add(self, opcode: str, operands: Sequence[Value], part: Part | tuple[Part, ...], attributes: str = "", contents: str = "",
            regions: Sequence[str] = ()) -> Value:
        parts = part if isinstance(part, tuple) else (part,)
        if any(p.count > LARGEST or (0 in p.dims and self.chance.random() < 0.9) for p in parts):
            raise Declined
        value = Value(self.name(), parts, opcode, tuple(o.name for o in operands), attributes, contents, tuple(regions),
                      isinstance(part, tuple))
        self.values.append(value)
        return value

    def folds(self, value: Value) -> bool:
        """Whether XLA may know the value when it compiles. It knows that x - x is 0, so all but arguments may be known."""
        return self.parent is not None or value.opcode != "parameter"

    def element(self, whole: Value, index: int) -> Value:
        return self.add("get-tuple-element", [whole], whole.parts[index], f"index={index}")

    # ---- choosing

    def choice(self, options: Sequence[object]) -> object:
        return self.chance.choice(options)

    def known(self, fits: Callable[[Part], bool] = lambda part: True) -> list[Value]:
        return [v for v in self.values if not v.is_tuple and not v.part.dynamic and fits(v.part)]

    def pick(self, fits: Callable[[Part], bool] = lambda part: True) -> Value:
        """A value that is there, mostly a late one."""
        found = self.known(fits)
        if not found:
            raise Declined
        return found[-1 - int(self.chance.random() ** 2 * len(found))]

    def like(self, type: str, dims: tuple[int, ...], rough: bool = True) -> Value:
        """A value of a type and dimensions, rough only where it may be."""
        found = self.known(lambda p: p.type == type and p.dims == dims and (rough or not p.rough))
        if found and self.chance.random() < 0.75:
            return self.chance.choice(found)
        others = self.known(lambda p: p.dims == dims and converts(p, type) and (rough or not p.rough))
        if others and self.chance.random() < 0.5:
            return self.converted(self.chance.choice(others), type)
        return self.fresh(type, dims)

    def converted(self, value: Value, type: str) -> Value:
        return self.add("convert", [value], Part(type, value.part.dims, value.part.rough))

    def dims(self, most: int = 4, rank: int | None = None) -> tuple[int, ...]:
        rank = self.chance.choice((0, 1, 1, 2, 2, 2, 3, 3, 4)) if rank is None else rank
        sizes = (1, 2, 3, 3, 4, 5, 7) if rank < 3 else (1, 2, 3, 3, 4)
        found = tuple(self.chance.choice(sizes) for _ in range(rank))
        return found if self.chance.random() < 0.97 or not found else (*found[:-1], self.chance.choice((0, 33)))

    def type(self, fits: Callable[[str], bool] = lambda text: True) -> str:
        found = [t for t in self.types if fits(t)]
        if not found:
            raise Declined
        return self.chance.choice(found)

    # ---- what comes from outside

    def fresh(self, type: str, dims: tuple[int, ...]) -> Value:
        """A parameter, or where a region is drawn a constant."""
        if self.parent is None and self.chance.random() < 0.7:
            return self.parameter(self.array(type, dims))
        kind = self.chance.random()
        if kind < 0.5 or not dims:
            scalar = self.constant(self.array(type, ()))
            return scalar if not dims else self.add("broadcast", [scalar], Part(type, dims), "dimensions={}")
        if kind < 0.65 and (type in INTS or type in FLOATS):
            return self.add("iota", [], Part(type, dims), f"iota_dimension={self.chance.randrange(len(dims))}")
        return self.constant(self.array(type, dims))

    def parameter(self, array: np.ndarray, type: str = "") -> Value:
        """A parameter of the entry with its argument."""
        value = self.add("parameter", [], Part(type or text_of_dtype(array.dtype), array.shape))
        self.arguments[value.name] = array
        return value

    def constant(self, array: np.ndarray) -> Value:
        return self.add("constant", [], Part(text_of_dtype(array.dtype), array.shape), contents=literal(array))

    def like_constant(self, number: int, part: Part) -> Value:
        """An array of one number."""
        scalar = self.constant(np.array(number).astype(dtype_of(part.type)))
        return self.add("broadcast", [scalar], Part(part.type, part.dims), "dimensions={}") if part.dims else scalar

    def numbers_between(self, low: int, high: int, dims: tuple[int, ...], type: str = "s32") -> Value:
        """Integers of a range: a parameter, or a constant."""
        array = self.numbers.integers(low, high + 1, dims).astype(dtype_of(type))
        return self.parameter(array) if self.parent is None and self.chance.random() < 0.7 else self.constant(array)

    def array(self, type: str, dims: tuple[int, ...]) -> np.ndarray:
        """Values of a type: of integers small ones and any; of floats ordinary ones, in some programs special ones too."""
        kind, rng = element_type(type), self.numbers
        dtype = dtype_of(type)
        if kind.is_pred:
            return rng.random(dims) > 0.5
        if kind.is_integral:
            if self.chance.random() < 0.6:
                return rng.integers(0 if kind.is_unsigned else -min(9, 1 << kind.bits - 1), min(10, 1 << kind.bits - 1),
                                    dims).astype(dtype)
            return rng.integers(0, 1 << 63, dims, dtype=np.uint64).astype(np.int64).astype(dtype)
        if kind.is_complex:
            return (ordinary(rng, dims) + 1j * ordinary(rng, dims)).astype(dtype)
        found = np.asarray(ordinary(rng, dims)).astype(dtype)
        if self.special and dims:
            at = rng.random(dims) < 0.2
            values = [0.0, -0.0, 1.0, float(ml_dtypes.finfo(dtype).max)]
            if type not in ("f8e4m3fn", "f8e4m3fnuz", "f8e5m2fnuz", "f8e4m3b11fnuz"):
                values += [np.inf, -np.inf]
            found = np.where(at, rng.choice(values, dims).astype(dtype), found)
        return found

    # ---- regions

    def inner(self) -> Drawer:
        return Drawer(self.chance, self.prefix, self.types, self)

    def region(self, parts: Sequence[Part], draw: Callable[[Drawer, list[Value]], Value], stem: str = "region") -> str:
        """A computation of these parameters; `draw` gives its root, whatever it is. Its name."""
        inner = self.inner()
        given = [inner.add("parameter", [], part, contents=str(k)) for k, part in enumerate(parts)]
        return inner.finish(draw(inner, given), stem)

    def packed_region(self, parts: tuple[Part, ...], draw: Callable[[Drawer, list[Value]], Value], stem: str = "block") -> str:
        """A computation whose one parameter is a tuple of these parts."""
        inner = self.inner()
        whole = inner.add("parameter", [], parts, contents="0")
        return inner.finish(draw(inner, [inner.element(whole, k) for k in range(len(parts))]), stem)

    def finish(self, root: Value, stem: str) -> str:
        """The region is done, with this root."""
        self.values = [*(v for v in self.values if v is not root), root]
        name = self.name(stem)
        self.regions.append(Computation(name, self.values))
        return name


def ordinary(rng: np.random.Generator, dims: tuple[int, ...]) -> np.ndarray:
    return np.asarray(rng.choice((-1.0, 1.0), dims) * rng.uniform(0.125, 3.5, dims))


def converts(part: Part, to: str) -> bool:
    """Whether a value may be converted without asking for more than its digits say."""
    if part.type == to:
        return False
    into_float = to in FLOATS or to in NARROW_FLOATS or to in COMPLEX
    if part.is_complex:
        return to in COMPLEX
    return into_float or not part.rough


def text_of_dtype(dtype: np.dtype) -> str:
    found = _TEXTS.get(np.dtype(dtype))
    assert found is not None, dtype
    return found


_TEXTS = {dtype_of(t): t for t in ("pred", "s2", "s4", "u2", "u4", *INTS, *FLOATS, *NARROW_FLOATS, *COMPLEX)}


def literal(array: np.ndarray) -> str:
    """An array as a constant's text."""
    if array.ndim:
        return "{" + ", ".join(literal(a) for a in array) + "}"
    if np.iscomplexobj(array):
        return f"({_number(np.real(array))}, {_number(np.imag(array))})"
    return _number(array)


def _number(array: np.ndarray) -> str:
    if array.dtype == bool:
        return "true" if array else "false"
    if text_of_dtype(array.dtype) in ("s2", "s4", "u2", "u4", *INTS):
        return str(int(array))
    number = float(array)
    return repr(number) if np.isfinite(number) else {"inf": "inf", "-inf": "-inf"}.get(str(number), "nan")


def grow(drawer: Drawer, ops: Sequence[tuple[Op, float]], wanted: int) -> None:
    """Add ops until there are so many instructions that compute."""
    weights = [w for _, w in ops]
    for _ in range(20 * wanted):
        if sum(v.opcode not in ("parameter", "constant", "get-tuple-element", "tuple") for v in drawer.values) >= wanted:
            return
        op = drawer.chance.choices(ops, weights)[0][0]
        before = len(drawer.values), len(drawer.regions), dict(drawer.arguments)
        try:
            op(drawer)
        except Declined:  # whatever it had added
            del drawer.values[before[0]:]
            del drawer.regions[before[1]:]
            drawer.arguments = before[2]


def unrough(part: Part) -> bool:
    return not part.rough


def as_rough(part: Part) -> Part:
    """The part as what an op gives that rounds as it likes."""
    return dataclasses.replace(part, rough=part.is_float or part.is_complex)


def combiner(d: Drawer, opcode: str, part: Part) -> str:
    """A region of two scalars and one op."""
    return d.region([part, part], lambda inner, given: inner.add(opcode, given, part))


def neutral(d: Drawer, opcode: str, part: Part) -> Value:
    """The value that changes nothing: reductions may begin with it as often as they like."""
    kind, dtype = element_type(part.type), dtype_of(part.type)
    if opcode in ("maximum", "minimum", "and") and not kind.is_floating:
        low = kind.is_pred or kind.is_unsigned
        top = 1 if kind.is_pred else (1 << kind.bits - (not kind.is_unsigned)) - 1
        bottom = 0 if low else -(1 << kind.bits - 1)
        number = {"maximum": bottom, "minimum": top, "and": top if low else -1}[opcode]
    else:
        number = {"maximum": float("-inf"), "minimum": float("inf"), "multiply": 1}.get(opcode, 0)
        if part.is_float and opcode in ("maximum", "minimum"):
            limits = ml_dtypes.finfo(dtype)
            number = float(np.array(number).astype(dtype))
            if not np.isinf(number):  # the type has none
                number = float(limits.min if opcode == "maximum" else limits.max)
    return d.constant(np.array(number).astype(dtype))
