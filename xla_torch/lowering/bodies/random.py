"""Op bodies: random (rng, rng-bit-generator, rng-get-and-update-state). Specification: hlo/SPEC.md, Random bits."""

from __future__ import annotations

import torch

from ...hlo.attributes import Int, RngAlgorithm, RngDistribution
from ...hlo.ir import Instruction
from ...kernels import random as kernels
from ...storage.dtypes import storage_dtype
from .. import numerics, values
from ..body_table import body
from ..values import Value


@body("rng")
def rng(inst: Instruction, low: Value, high: Value, *, distribution: RngDistribution) -> Value:
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


@body("rng-bit-generator")
def rng_bit_generator(inst: Instruction, initial_state: Value, *, algorithm: RngAlgorithm) -> Value:
    data = inst.shape.tuple_shapes[1]
    # XLA's default algorithm on the CPU is Philox.
    kernel = kernels.threefry_bits if algorithm == "rng_three_fry" else kernels.philox_bits
    result = values.emit(kernel, initial_state, data.dimensions, data.element_type.bits)
    state, bits = result[0], result[1]
    return state, bits if data.element_type.bits > 8 else bits.to(storage_dtype(data.element_type))


@body("rng-get-and-update-state")
def rng_get_and_update_state(inst: Instruction, *, delta: Int) -> Value:
    return values.emit(kernels.next_counter, delta, values.device())
