"""Native code of Fourier transforms: one axis after another, some arrays side by side (`butterflies.py`).

Specification: hlo/SPEC.md, Linear algebra. An even number of real numbers is half as many complex ones, whose spectrum is taken
apart, and the other way round; an odd number is as many complex ones.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator

import numpy as np

from ..core import tuning
from ..core.shape import Shape
from ..core.types import PrimitiveType, complex_part
from ..hlo.ir import Instruction
from ..opcodes import linalg
from .arrays import ARRAYS, Writer
from .butterflies import RADICES, roots_of_unity
from .code import Array, Code
from .elements import VECTOR_WORK, Unfit, name_of

_SIDE_BY_SIDE = 4
"""Rows from which they are transformed side by side, and not each by itself."""

_LONG_ROW = 64
"""Numbers of rows up to which they are. Where each fills vectors, bringing rows side by side takes longer than it spares: 16 rows
of 64 complex64 there and back take 2.2 us and 2.6 by themselves, of 128 4.5 and 3.9, of 512 28 and 12."""

_LANES_BITS = 512
"""How many lie side by side, in bits of a number of each: a cache line."""


@ARRAYS.rule(linalg.fft)
def fft(writer: Writer, inst: Instruction, operands: list[Array]) -> Array:
    """Real numbers become a spectrum along the last axis before the others are transformed, and are made of one after those. What
    is scaled is so along the first axis, as in XLA."""
    code, (operand,), result = writer.code, operands, inst.shape
    kind, lengths = inst.attributes["fft_type"], inst.attributes["fft_length"]
    name, given = code.buffer(result), operand.buffer
    if not given or (kind == "IRFFT" and len(lengths) > 1):
        given = name if operand.shape == result else code.buffer(operand.shape)
        code.fill(given, operand)
    scales = iter([1 / math.prod(lengths) if kind.startswith("I") else 1.0, 1.0, 1.0])
    if kind != "IRFFT":
        _rows(code, kind, result, lengths[-1], next(scales), given, name)
    whole, inside = (operand.shape, given) if kind == "IRFFT" else (result, name)
    for axis in range(whole.rank - len(lengths), result.rank - 1):
        _columns(code, whole, axis, kind.startswith("I"), next(scales), inside)
    if kind == "IRFFT":
        _rows(code, kind, result, lengths[-1], next(scales), given, name)
    work = result.element_count * math.log2(2 * math.prod(lengths)) * VECTOR_WORK
    code.work += work
    code.spared += work if result.element_count <= tuning.BLOCK else 0  # torch computes it as well
    return code.filled(result, name)


def _rows(code: Code, kind: str, result: Shape, n: int, scale: float, x: str, y: str) -> None:
    """Transforms of n numbers of each row of x, which become the rows of y."""
    count, of = math.prod(result.dimensions[:-1]), complex_part(result.element_type)
    is_packed = kind in ("RFFT", "IRFFT") and n % 2 == 0
    length, scale = (n // 2, 2 * scale if kind == "IRFFT" else scale) if is_packed else (n, scale)
    taken, made = (n // 2 + 1 if kind == halved else length for halved in ("IRFFT", "RFFT"))
    is_apart = count < _SIDE_BY_SIDE or length > _LONG_ROW
    step = 1 if is_apart else min(count, _LANES_BITS // of.bits)
    planes = _Planes(code, of, max(taken, made, length) * step)
    with planes.side_by_side(count, step) as q:
        begin = f"({planes.type} *){x} + {q} * {n if kind == 'RFFT' else 2 * taken}"
        end = f"({planes.type} *){y} + {q} * {n if kind == 'IRFFT' else 2 * made}"
        if kind == "RFFT" and not is_packed:
            planes.call("complexes", n, planes.width, begin, *planes.read)
        else:
            planes.read_rows(taken, begin)
        if kind == "IRFFT" and is_packed:
            planes.halved("packed", length)
        elif kind == "IRFFT":
            planes.call("mirrored", n, planes.width, *planes.read)
        planes.transform(length, kind.startswith("I"))
        if kind == "RFFT" and is_packed:
            planes.halved("unpacked", length)
        if kind == "IRFFT" and not is_packed:
            planes.call("reals", n, planes.width, scale.hex(), planes.read[0], end)
        else:
            planes.write_rows(made, scale, end)


def _columns(code: Code, shape: Shape, axis: int, is_inverse: bool, scale: float, x: str) -> None:
    """Transforms along another axis, in place."""
    n, count = shape.dimensions[axis], math.prod(shape.dimensions[axis + 1:])
    of = complex_part(shape.element_type)
    step = min(count, _LANES_BITS // of.bits)
    planes = _Planes(code, of, n * step)
    with code.loops([math.prod(shape.dimensions[:axis])]) as (before,), planes.side_by_side(count, step) as q:
        place = f"({planes.type} *){x} + 2 * ({before} * {n * count} + {q})"
        planes.call("parted", n, planes.width, count, place, *planes.read)
        planes.transform(n, is_inverse)
        planes.call("joined", n, planes.width, count, scale.hex(), *planes.read, place)


def factors(n: int) -> list[int]:
    """The stages of a transform of so many numbers. Raises Unfit."""
    found = list[int]()
    rest = n
    for radix in RADICES:
        while rest % radix == 0:
            found.append(radix)
            rest //= radix
    if n > tuning.NATIVE_TRANSFORM or rest != 1:
        raise Unfit(f"a transform of {n} numbers is torch's")
    return found


@functools.cache
def _roots(n: int, powers: tuple[range, ...], of: PrimitiveType) -> np.ndarray:
    """Roots of unity: for each range of powers the real parts, and then the imaginary ones."""
    return np.stack([(root.real, root.imag) for root in roots_of_unity(np.array(powers), n)]).astype(of.numpy)


class _Planes:
    """The code of transforms from planes that are read to planes that are written to, which then change places."""

    def __init__(self, code: Code, of: PrimitiveType, size: int):
        name = code.buffer(Shape.array(of, [4 * size]))
        self.code, self.of, self.type, self.width = code, of, name_of(of), ""
        self.read, self.written = ([f"{name} + {k * size}" for k in pair] for pair in ((0, 1), (2, 3)))

    def call(self, function: str, *arguments: object) -> None:
        self.code.line(f"{function}_{self.type}({', '.join(map(str, arguments))});")

    @contextlib.contextmanager
    def side_by_side(self, count: int, step: int) -> Iterator[str]:
        """A loop over arrays, `step` of them at a time."""
        q = self.code.name("i")
        with self.code.block(f"for (s64 {q} = 0; {q} < {count}; {q} += {step})"):
            self.width = str(step) if count % step == 0 else f"({q} + {step} > {count} ? {count} - {q} : {step})"
            yield q

    def exchange(self) -> None:
        self.read, self.written = self.written, self.read

    def read_rows(self, n: int, x: str) -> None:
        if self.width == "1":
            self.call("parted", 1, n, 0, x, *self.read)
        else:
            self.call("turned", self.width, n, n, x, self.width, self.written[0])
            self.call("parted", n, self.width, self.width, self.written[0], *self.read)

    def write_rows(self, n: int, scale: float, y: str) -> None:
        if self.width == "1":
            self.call("joined", 1, n, 0, scale.hex(), *self.read, y)
        else:
            self.call("joined", n, self.width, self.width, scale.hex(), *self.read, self.written[0])
            self.call("turned", n, self.width, self.width, self.written[0], n, y)

    def transform(self, n: int, is_inverse: bool) -> None:
        """All stages. The other direction is the same with both parts exchanged."""
        turn, before, rest = -1 if is_inverse else 1, 1, n
        for radix in factors(n):
            rest //= radix
            powers = tuple(range(0, k * rest, k) for k in range(1, radix))
            table = self.code.constant(_roots(rest * radix, powers, self.of), self.of) if rest > 1 else "0"
            planes = *self.read[::turn], *self.written[::turn], table
            if before == 1 and self.width == "1":
                self.call(f"first{radix}", rest, *planes)
            else:
                self.call(f"stage{radix}", rest, f"{before} * {self.width}", *planes)
            self.exchange()
            before *= radix

    def halved(self, function: str, n: int) -> None:
        """Between n complex numbers and the spectrum of twice as many real ones."""
        table = self.code.constant(_roots(2 * n, (range(n // 2 + 1), ), self.of), self.of)
        self.call(function, n, self.width, *self.read, *self.written, table)
        self.exchange()
