"""What StableHLO cannot say: opcodes and attributes without a rule, each with the reason, which is the error's text."""

from __future__ import annotations

from ...opcodes import collective, contraction, convolution, internal, random

OPCODES: dict[str, str] = {
    collective.collective_reduce: "StableHLO of before 1.19 reduces to all members of a group, not to its first one",
    random.rng_get_and_update_state: "StableHLO's random numbers take their state as an operand, not from a counter",
}
"""The reason of each opcode that is not written."""

_NOTES = "StableHLO's custom calls have no such field"
_IN_PLACE = "StableHLO permutes whole arrays, not slices of them in place"
_PRODUCTS = "StableHLO has algorithms for plain products only"

ATTRIBUTES: dict[tuple[str, str], str] = {
    (collective.collective_permute, "slice_sizes"): _IN_PLACE,
    (collective.collective_permute_start, "slice_sizes"): _IN_PLACE,
    (contraction.ragged_dot, "algorithm"): _PRODUCTS,
    (contraction.scaled_dot, "algorithm"): _PRODUCTS,
    (convolution.convolution, "sparsity_config"): "StableHLO's convolutions have dense operands",
    (convolution.convolution, "convolution_kind"): "StableHLO's convolutions do not say whose gradient they are",
    **{(internal.custom_call, name): _NOTES for name in (
        "to_apply", "schedule", "window", "dim_labels", "feature_group_count", "batch_group_count", "padding_type", "literal",
        "operand_precision")},
}
"""The reason of each attribute that is not written where it is set."""
