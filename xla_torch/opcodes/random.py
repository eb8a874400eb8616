"""Op definitions: random (rng, rng-bit-generator, rng-get-and-update-state). Document: spec `rng.md`."""

from __future__ import annotations

from typing import Any

import torch

from ..lowering import numerics, values
from ..lowering.kernels import random as kernels
from ..shape import Shape
from ..types import U64
from .attributes import Int, RngAlgorithm, RngDistribution
from .definition import op
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


@op("rng", infer=rng_shape, stablehlo="rng", inferable=False, pure=False)
def rng(inst, low, high, *, distribution: RngDistribution):
    element_type, dims = inst.shape.element_type, inst.shape.dimensions
    if distribution == "rng_normal":
        return values.emit(kernels.normal, low, high, dims)
    if element_type.is_pred:
        return values.emit(kernels.booleans, low, dims)
    if element_type.is_floating:
        drawn = values.emit(kernels.uniform, low, high, dims)
        if not element_type.is_narrow:
            return drawn
        drawn = numerics.normalise(drawn, element_type)
        return torch.where(drawn < high, drawn, low)  # rounding may reach the open end
    mask = (1 << element_type.bits) - 1 if element_type.hides_sign and element_type.bits < 64 else 0
    return values.emit(kernels.uniform_integers, low, high, dims, mask)


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


@op("rng-bit-generator", infer=rng_bit_generator_shape, stablehlo="rng_bit_generator", inferable=False)
def rng_bit_generator(inst, initial_state, *, algorithm: RngAlgorithm):
    data = inst.shape.tuple_shapes[1]
    # XLA's default algorithm on the CPU is Philox.
    kernel = kernels.threefry_bits if algorithm == "rng_three_fry" else kernels.philox_bits
    result = values.emit(kernel, initial_state, data.dimensions, data.element_type.bits)
    state, bits = result[0], result[1]
    return state, bits if data.element_type.bits > 8 else bits.to(data.element_type.carrier)


def rng_state_shape(declared: Shape | None, **_: Any) -> Shape:
    """u64[2]: a 128-bit counter, low word first."""
    shape = Shape.array(U64, (2,))
    require(declared is None or declared.compatible(shape), "the state is not u64[2]", declared, "u64[2]")
    return shape


@op("rng-get-and-update-state", infer=rng_state_shape, inferable=False, pure=False)
def rng_get_and_update_state(inst, *, delta: Int):
    return values.emit(kernels.next_counter, delta, values.device())
