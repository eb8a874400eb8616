"""Schemas: random (rng, rng-bit-generator, rng-get-and-update-state). Specification: hlo/SPEC.md, Random bits."""

# pyright: reportMissingParameterType=false, reportUnknownParameterType=false

from __future__ import annotations

from typing import Any

from ..core.shape import Shape
from ..core.types import U64
from ..hlo.attributes import Int, RngAlgorithm, RngDistribution
from ..hlo.schema import Trait, op
from .shapes import require, require_arrays, require_declared, require_declared_array


def rng_shape(declared: Shape | None, *parameters: Shape, distribution: str) -> Shape:
    """The declared shape; the two parameters are scalars of its element type."""
    shape = require_declared_array(declared)
    require_arrays(*parameters)
    require(len(parameters) == 2, "a distribution has two parameters", len(parameters), "2")
    for position, parameter in enumerate(parameters):
        require(parameter.is_scalar, f"parameter {position} is not a scalar", parameter, "a scalar")
        require(parameter.element_type is shape.element_type, f"parameter {position} has another element type than the result",
                f"{parameter} for {shape}", f"{shape.element_type.text}[]")
    if distribution == "rng_normal":
        require(shape.element_type.is_floating, "normal numbers are floating", shape, "a floating type")
    require(not shape.element_type.is_complex, "no uniform distribution for complex types", shape,
            "PRED, an integer or a floating type")
    return shape.without_layout()


@op("rng", infer=rng_shape, stablehlo="rng", traits=Trait.TRANSCENDENTAL, pure=False, inferable=False)
def rng(low, high, *, distribution: RngDistribution): ...


def rng_bit_generator_shape(declared: Shape | None, initial_state: Shape, *, algorithm: str) -> Shape:
    """(state, data): the declared data shape holds unsigned integers of 8 to 64 bits."""
    shape = require_declared(declared)
    require_arrays(initial_state)
    require(shape.is_tuple and len(shape.tuple_shapes) == 2, "the result is not a pair", shape, "(state, data)")
    state, data = shape.tuple_shapes
    sizes = (2,) if algorithm == "rng_three_fry" else (2, 3)
    require(initial_state.element_type is U64 and initial_state.rank == 1 and initial_state.dimensions[0] in sizes,
            f"wrong initial state for {algorithm}", initial_state, " or ".join(f"u64[{n}]" for n in sizes))
    require(state.compatible(initial_state), "the new state differs from the initial one", f"{state} and {initial_state}",
            "equal shapes")
    require(data.is_array and data.element_type.is_integral and data.element_type.bits >= 8, "unsupported data shape", data,
            "an array of u8, u16, u32 or u64", "draw integers of the same width and bitcast-convert them")
    return shape.without_layout()


@op("rng-bit-generator", infer=rng_bit_generator_shape, stablehlo="rng_bit_generator", traits=Trait.TRANSCENDENTAL,
    inferable=False)
def rng_bit_generator(initial_state, *, algorithm: RngAlgorithm): ...


def rng_state_shape(declared: Shape | None, **_: Any) -> Shape:
    """u64[2]: a 128-bit counter, low word first."""
    shape = Shape.array(U64, (2,))
    require(declared is None or declared.compatible(shape), "the state is not u64[2]", declared, "u64[2]")
    return shape


@op("rng-get-and-update-state", infer=rng_state_shape, pure=False, inferable=False)
def rng_get_and_update_state(*, delta: Int): ...
