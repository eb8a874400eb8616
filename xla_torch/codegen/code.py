"""Source text while it is written: lines with their depth, names, buffers; and what stands for an array in it."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ..core.shape import Shape
from ..core.types import PrimitiveType
from .elements import HALVES, NAMES, VECTOR_WORK, memory_of, name_of, read, stored

Index = Sequence[str]

_LOCAL = 32
"""Elements up to which an array is a local one, which a compiler may keep in registers."""
_LANES = 8
"""Elements of a vector, of which each has up to 32 bits: the smaller ones meet larger ones in the same loops."""
ANYWHERE = sys.maxsize
"""The reach of what has one value at all places."""
_ALIGNED = 64
ASKS_EVERY = 50_000_000
"""Nanoseconds after which a loop in the loop asks whether to stop, roughly."""
_TYPES = frozenset(NAMES.values())


@dataclasses.dataclass(frozen=True)
class Array:
    """An array in native code: the expression of its element at given indices.

    `stored` arrays can be read many times at no cost: locals, buffers and views of them. Others compute at each reading.
    `buffer` names the memory that holds all of it, row by row. Of a transpose of such an array, which has none of its own, `lies`
    names it, with the dimensions in the order in which they lie there.

    Up to `reach` its elements may be read by the last index alone, row by row, where the others are 0: for loops over all of them
    at once, and over the rest of a vector behind them. Arrays that know their elements by all indices have none.
    """

    shape: Shape
    at: Callable[[Index], str]
    stored: bool = True
    buffer: str = ""
    reach: int = 0
    lies: tuple[str, Sequence[int]] = ("", ())
    depth: int = 0
    """How many operations deep the expression of an element is; 0 for stored arrays."""

    @property
    def memory(self) -> tuple[str, Sequence[int]]:
        """The memory that holds all of it and nothing else, for reading, and its dimensions in the order in which they lie there;
        no name where there is none."""
        return (self.buffer, range(self.shape.rank)) if self.buffer else self.lies

    @property
    def is_single(self) -> bool:
        return self.shape.element_count == 1

    def spread(self, index: Index) -> str:
        """The element that an array of another shape has at `index`: of a scalar always the one."""
        return self.at(index if self.shape.rank else ())


def single(shape: Shape, name: str) -> Array:
    """An array of one element, which is a local."""
    return Array(shape, lambda _: name, reach=ANYWHERE)


def held(shape: Shape, name: str, reach: int = 0) -> Array:
    """An array in a buffer, which may reach farther than the array."""
    return Array(shape, lambda index: element_of(shape, name, index), buffer=name, reach=max(reach, shape.element_count))


def element_of(shape: Shape, name: str, index: Index) -> str:
    """An element of a buffer that holds an array of this shape."""
    return read(shape.element_type, place_of(shape, name, index))


def place_of(shape: Shape, name: str, index: Index) -> str:
    """Where an element of a buffer is: an element of C's, whose value is only for `read` and `stored` to know."""
    place = "0"
    for i, size in zip(index, shape.dimensions, strict=True):
        place = i if place == "0" else f"{place} * {size}" if i == "0" else f"({place} * {size} + {i})"
    return f"{name}[{place}]"


def is_local(shape: Shape) -> bool:
    """Whether an array of several elements is a local one: it is copied, where others change places."""
    return shape.element_count <= _LOCAL


def with_rest(shape: Shape) -> int:
    """How many elements the vectors have that a local array takes more than one of. Those behind its own are computed with them,
    and nobody looks at them; compilers compute the last ones one by one otherwise."""
    count = shape.element_count
    return -(-count // _LANES) * _LANES if _LANES < count <= _LOCAL and shape.element_type.bits <= 32 else count


class Code:
    """The lines of one function. What is allocated once stands before the loop."""

    def __init__(self, elements: int) -> None:
        self._elements = elements
        self.lines: list[str] = []
        self.allocations: list[str] = []
        self.constants: list[np.ndarray] = []
        self._given: list[np.ndarray] = []
        self.constant_types: list[PrimitiveType] = []
        self.buffers: set[str] = set()
        self.whole_vectors = False
        """Whether short local arrays are padded to whole vectors."""
        self.capacities: dict[str, int] = {}
        """How many elements there is memory for under a name, if that is known."""
        self.routines: list[str] = []
        """Names of the routines that are called, which the function gets as arguments."""
        self.scratch = 0
        """Bytes of the buffers that are no local arrays."""
        self.work = 0.0
        """Nanoseconds of one step, roughly."""
        self.spared = 0.0
        """Those of them that torch, or LAPACK, would take as well."""
        self.has_loops = False
        """Whether there are loops in the loop, which ask now and then whether to stop."""
        self._depth, self._numbers = 2, itertools.count()

    def works(self, shape: Shape, work: float, spared: float) -> None:
        """Count what the code of an array's elements takes, and what of it torch does as well; it takes ten times as long for
        complex numbers, one after another."""
        self.work += work
        if shape.element_type.is_complex:
            self.spared += work
        elif shape.element_count <= self._elements:
            self.spared += min(work, spared)

    def name(self, stem: str) -> str:
        """A new name, which is none of a type: ``s64`` is one."""
        return next(name for k in self._numbers if (name := f"{stem}{k}") not in _TYPES)

    def line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text)

    @contextlib.contextmanager
    def block(self, header: str) -> Iterator[None]:
        self.line(header + " {")
        self._depth += 1
        yield
        self._depth -= 1
        self.line("}")

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """The body of a loop in the loop, whose steps nobody else counts."""
        place, before, self.has_loops = len(self.lines), self.work, True
        yield
        self.lines.insert(place, "    " * self._depth + f"if ((left -= {max(1, int(self.work - before))}) < 0) "
                          f"{{ left = {ASKS_EVERY}; if (stopped(python)) return -1; }}")

    @contextlib.contextmanager
    def loops(self, dims: Sequence[int], apart: bool = False, pragma: str = "") -> Iterator[list[str]]:
        """Nested loops over the indices of an array; those of size one need none. Where what is written lies `apart` from what is
        read, the compiler is told so; it may be told something else of the innermost one by a `pragma`."""
        pragma = pragma or "#pragma GCC ivdep" * apart
        with contextlib.ExitStack() as stack:
            index: list[str] = []
            last = max((d for d, size in enumerate(dims) if size != 1), default=-1)
            for d, size in enumerate(dims):
                i = self.name("i") if size != 1 else "0"
                index.append(i)
                if size != 1:
                    if pragma and d == last:
                        self.line(pragma)
                    stack.enter_context(self.block(f"for (s64 {i} = 0; {i} < {size}; {i}++)"))
            yield index

    def buffer(self, shape: Shape) -> str:
        """New memory for an array, kept through all steps."""
        name, of = self.name("b"), memory_of(shape.element_type)
        self.buffers.add(name)
        if is_local(shape):
            self.allocations.append(f"    {of} {name}[{self.capacity(name, shape)}]{self.zeros(name, shape)};")
            return name
        self.allocations.append(f"    {of} *{name} = ({of} *)(scratch + {self.scratch});")
        self.scratch += -(-shape.element_count * shape.element_type.bits // 8 // _ALIGNED) * _ALIGNED + _ALIGNED
        return name

    def capacity(self, name: str, shape: Shape) -> int:
        """The elements for which there is memory where an array gets it under this name."""
        return self.capacities.setdefault(name, self.vectors(shape))

    def zeros(self, name: str, shape: Shape) -> str:
        """What a local array begins with: nothing, but for numbers behind its own, which are computed with."""
        return " = {0}" * (self.capacity(name, shape) > shape.element_count)

    def vectors(self, shape: Shape) -> int:
        """How many elements the vectors of a local array have."""
        return with_rest(shape) if self.whole_vectors else shape.element_count

    def held(self, shape: Shape, name: str) -> Array:
        """An array in a buffer, with the capacity of the buffer if it is known."""
        return held(shape, name, self.capacities.get(name, 0))

    def local(self, shape: Shape, stem: str, value: str = "") -> str:
        """A new local for one element."""
        name = self.name(stem)
        self.line(f"{name_of(shape.element_type)} {name}{' = ' * bool(value)}{value};")
        return name

    def put(self, shape: Shape, name: str, index: Index, value: str) -> None:
        """Write an element of a buffer that holds an array of this shape."""
        self.line(f"{place_of(shape, name, index)} = {stored(shape.element_type, value)};")

    def assign(self, array: Array, index: Index, value: str) -> None:
        """Write an element of an array in a buffer, or of a local one."""
        if array.buffer:
            self.put(array.shape, array.buffer, index, value)
        else:
            self.line(f"{array.at(index)} = {value};")

    def constant(self, value: np.ndarray, element_type: PrimitiveType) -> str:
        """An array of constants, which the function gets as an argument."""
        value = np.ascontiguousarray(value)
        if (place := next((k for k, given in enumerate(self._given) if given is value), None)) is not None:
            return f"k{place}"
        self._given.append(value)
        more = self.vectors(Shape.array(element_type, value.shape)) - value.size
        value = np.pad(value.reshape(-1), (0, more), mode="edge") if more else value
        self.constants.append(value.view(np.uint16) if element_type in HALVES else value)
        self.constant_types.append(element_type)
        self.capacities[name := f"k{len(self.constants) - 1}"] = value.size
        return name

    def store(self, array: Array) -> Array:
        """The array where it can be read many times."""
        return array if array.stored else self.copy(array)

    def owned(self, array: Array) -> Array:
        """The array in memory that nothing but this body's own instructions write to."""
        return array if array.buffer in self.buffers else self.copy(array)

    def copy(self, array: Array) -> Array:
        """The array in memory of its own."""
        if array.is_single:
            return single(array.shape, self.local(array.shape, "v", array.at(["0"] * array.shape.rank)))
        name = self.buffer(array.shape)
        self.fill(name, array)
        return self.held(array.shape, name)

    def fill(self, name: str, array: Array) -> None:
        """Write the array into memory of its size."""
        shape, count = array.shape, array.shape.element_count
        if not count:
            return
        self.works(shape, count * VECTOR_WORK, count * VECTOR_WORK)
        capacity = self.capacities.get(name, count)
        flat = 0 if count == 1 or array.reach < count else capacity if array.reach >= capacity else count
        with self.loops([flat] if flat else shape.dimensions, apart=True) as index:
            index = [*["0"] * (shape.rank - 1), *index] if flat else index
            self.put(shape, name, index, array.at(index))

    def filled(self, shape: Shape, name: str) -> Array:
        """The array that was written into a buffer; a local where it is one element."""
        array = self.held(shape, name)
        return self.copy(array) if array.is_single else array
