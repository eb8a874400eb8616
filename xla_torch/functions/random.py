"""Random numbers under their documented names.

Documents: operation semantics, the sections of the functions' own names.
"""

from __future__ import annotations

from ..core.shape import Shape
from ..core.types import U8, U16, U32, U64
from ..hlo.choices import RandomAlgorithm
from ..opcodes import random
from ..opcodes.shapes import require
from ._documented import documented, renamed
from .hlo_builder import Builder, Liftable, XlaOp, lift

__all__ = ["RandomAlgorithm", "RngBitGenerator", "RngNormal", "RngUniform"]

_BITS = {t.bits: t for t in (U8, U16, U32, U64)}


@documented
def RngUniform(a: XlaOp | Liftable, b: XlaOp | Liftable, shape: Shape, *, builder: Builder) -> XlaOp:
    """Uniform numbers of [a, b) (integers or floats; for PRED random booleans) of the given shape.

    `a` and `b` are scalars of the shape's element type, or numbers; the builder need be given only to build from two numbers.
    Which numbers are drawn is not specified: `xla_torch.random.seed` or `torch.manual_seed` makes them repeatable. Raises
    InvalidArgument for bounds that are no such scalars.

    >>> drawn = ops.RngUniform(0.0, 1.0, Shape.parse("f32[100]"))
    >>> bool((drawn >= 0).all() and (drawn < 1).all())
    True
    """
    return builder.add(random.rng, [lift(builder, a, shape), lift(builder, b, shape)], {"distribution": "rng_uniform"}, shape)


@documented
def RngNormal(mu: XlaOp | Liftable, sigma: XlaOp | Liftable, shape: Shape, *, builder: Builder) -> XlaOp:
    """Normal floats of mean `mu` and standard deviation `sigma`, both as the bounds of `RngUniform`.

    Raises InvalidArgument for anything but floats.

    >>> ops.RngNormal(0.0, 1.0, Shape.parse("f32[2,3]")).shape
    torch.Size([2, 3])
    """
    return builder.add(random.rng, [lift(builder, mu, shape), lift(builder, sigma, shape)], {"distribution": "rng_normal"}, shape)


@renamed(key="initial_state")
@documented
def RngBitGenerator(algorithm: RandomAlgorithm | str, initial_state: XlaOp, shape: Shape) -> XlaOp:
    """(new state, random bits): the bits are a function of the state alone, the same on every machine.

    `algorithm` is "rng_three_fry" (state u64[2]), "rng_philox" (u64[2] or u64[3]) or "rng_default". The bits have the shape's
    dimensions and the unsigned integer type of its element type's width. Raises InvalidArgument where there is none.

    >>> state = torch.tensor([1, 2], dtype=torch.uint64)
    >>> new_state, bits = ops.RngBitGenerator("rng_three_fry", state, Shape.parse("u32[2]"))
    >>> new_state, bits
    (tensor([1, 3], dtype=torch.uint64), tensor([  43444564, 2150618427], dtype=torch.uint32))
    """
    element_type = None if shape.element_type.is_complex or not shape.is_array else _BITS.get(shape.element_type.bits)
    require(element_type is not None, "unsupported shape", shape, "an element type of 8, 16, 32 or 64 bits, not complex")
    assert element_type is not None
    pair = Shape.tuple([initial_state.shape.without_layout(), Shape.array(element_type, shape.dimensions)])
    return initial_state.builder.add(random.rng_bit_generator, [initial_state], {"algorithm": algorithm}, pair)
