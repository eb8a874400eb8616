"""VHLO's operations in tables: their versions, which attributes are lists of numbers or names, what StableHLO leaves out."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from . import ir

_ONE = """
abs add after_all and atan2 batch_norm_grad batch_norm_inference batch_norm_training bitcast_convert broadcast broadcast_in_dim
call case ceil cholesky clamp collective_permute collective_reduce compare complex concatenate constant convert convolution
count_leading_zeros create_token cross-replica-sum divide dot dynamic_broadcast_in_dim dynamic_iota dynamic_pad
dynamic_reshape dynamic_slice dynamic_update_slice einsum fft floor func get_dimension_size get_tuple_element if imag infeed iota
is_finite map maximum minimum multiply negate not optimization_barrier or outfeed pad partition_id popcnt power real
real_dynamic_slice reduce reduce_precision reduce_scatter reduce_window remainder replica_id reshape return reverse rng
rng_bit_generator round_nearest_afz round_nearest_even select select_and_scatter set_dimension_size shift_left
shift_right_arithmetic shift_right_logical sign slice sort subtract torch_index_select trace transpose triangular_solve tuple
unary_einsum uniform_dequantize uniform_quantize while xor async_start async_done
"""
_ACCURATE = "cbrt cosine exponential exponential_minus_one log log_plus_one logistic rsqrt sine sqrt tan tanh"
_TWO = ("all_gather all_reduce all_to_all collective_broadcast composite custom_call dot_general dynamic_conv dynamic_gather "
        "gather recv scatter send")

VERSIONS: dict[str, tuple[str, ...]] = {
    **{f"vhlo.{name}": ("1",) for name in _ONE.split()}, **{f"vhlo.{name}": ("1", "2") for name in f"{_ACCURATE} {_TWO}".split()}}
"""The versions that each operation has had."""

_WINDOW = ("lhs_dilation", "rhs_dilation", "window_reversal", "window_strides")
LISTS: dict[str, tuple[str, ...]] = {
    "stablehlo.broadcast": ("broadcast_sizes",),
    "stablehlo.broadcast_in_dim": ("broadcast_dimensions",),
    "stablehlo.convolution": _WINDOW,
    "stablehlo.dynamic_conv": _WINDOW,
    "stablehlo.dynamic_broadcast_in_dim": ("broadcast_dimensions", "known_expanding_dimensions", "known_nonexpanding_dimensions"),
    "stablehlo.dynamic_slice": ("slice_sizes",),
    "stablehlo.fft": ("fft_length",),
    "stablehlo.gather": ("slice_sizes",),
    "stablehlo.map": ("dimensions",),
    "stablehlo.pad": ("edge_padding_low", "edge_padding_high", "interior_padding"),
    "stablehlo.reduce": ("dimensions",),
    "stablehlo.reduce_window": ("window_dimensions", "window_strides", "base_dilations", "window_dilations"),
    "stablehlo.reverse": ("dimensions",),
    "stablehlo.select_and_scatter": ("window_dimensions", "window_strides"),
    "stablehlo.slice": ("start_indices", "limit_indices", "strides"),
    "stablehlo.transpose": ("permutation",),
}
"""Attributes that are lists of numbers in StableHLO, and elements in VHLO."""

SYMBOLS = {"func.call": ("callee",), "stablehlo.composite": ("decomposition",),
           "stablehlo.custom_call": ("called_computations",)}
"""Attributes that name functions; VHLO has them as strings."""


class Splat(NamedTuple):
    """Elements that are all equal to one value."""

    value: Any


class Each(NamedTuple):
    """Lists whose parts are all equal to one value."""

    value: Any


EMPTY = Splat(None)
"""No elements."""

_PRECISION = Each(ir.Enum("stablehlo.precision", "DEFAULT"))
_ACCURACY = ir.Struct("stablehlo.result_accuracy", {"mode": ir.Enum("stablehlo.result_accuracy_mode", "DEFAULT")})
_CHANNEL = {"channel_id": 0}
_GROUPED = {**_CHANNEL, "use_global_device_ids": False}
_CONVOLUTION = {"window_strides": Splat(1), "padding": Splat(0), "lhs_dilation": Splat(1), "rhs_dilation": Splat(1),
                "window_reversal": Splat(False), "precision_config": _PRECISION}
_TRANSFER = {"is_host_transfer": False, "source_target_pairs": EMPTY}

DEFAULTS: dict[str, dict[str, Any]] = {
    "stablehlo.all_gather": _GROUPED,
    "stablehlo.all_reduce": _GROUPED,
    "stablehlo.all_to_all": _CHANNEL,
    "stablehlo.cholesky": {"lower": False},
    "stablehlo.collective_broadcast": {**_CHANNEL, "has_dynamic_root": False},
    "stablehlo.collective_permute": _CHANNEL,
    "stablehlo.collective_reduce": {**_GROUPED, "has_dynamic_root": False},
    "stablehlo.compare": {"compare_type": ir.Enum("stablehlo.comparison_type", "NOTYPE")},
    "stablehlo.composite": {"version": 0, "composite_attributes": {}},
    "stablehlo.convolution": _CONVOLUTION,
    "stablehlo.custom_call": {"has_side_effect": False, "backend_config": "", "api_version": 1, "called_computations": (),
                    "operand_layouts": (), "result_layouts": (), "output_operand_aliases": (), "result_tilings": ()},
    "stablehlo.dot": {"precision_config": _PRECISION},
    "stablehlo.dot_general": {"precision_config": _PRECISION},
    "stablehlo.dynamic_broadcast_in_dim": {"known_expanding_dimensions": EMPTY, "known_nonexpanding_dimensions": EMPTY},
    "stablehlo.dynamic_conv": _CONVOLUTION,
    "stablehlo.dynamic_gather": {"indices_are_sorted": False},
    "func.func": {"sym_visibility": "", "arg_attrs": (), "res_attrs": ()},
    "stablehlo.gather": {"indices_are_sorted": False},
    "stablehlo.infeed": {"infeed_config": "", "layout": ()},
    "stablehlo.outfeed": {"outfeed_config": ""},
    "stablehlo.recv": _TRANSFER,
    "stablehlo.reduce_scatter": _GROUPED,
    "stablehlo.reduce_window": {"window_strides": Splat(1), "base_dilations": Splat(1), "window_dilations": Splat(1),
                                "padding": Splat(0)},
    "stablehlo.scatter": {"indices_are_sorted": False, "unique_indices": False},
    "stablehlo.select_and_scatter": {"window_strides": Splat(1), "padding": Splat(0)},
    "stablehlo.send": _TRANSFER,
    "stablehlo.sort": {"dimension": -1, "is_stable": False},
    **{f"stablehlo.{name}": {"result_accuracy": _ACCURACY} for name in _ACCURATE.split()},
}
"""Values that StableHLO has where an attribute is missing. (A dimension that lies apart never has a default in VHLO.)"""


def is_default(value: ir.Attribute, default: Any) -> bool:
    if default is EMPTY:
        return isinstance(value, ir.Elements) and value.value.size == 0
    if isinstance(default, Splat):
        return isinstance(value, ir.Elements) and value.value.size > 0 and bool(np.all(value.value == default.value))
    if isinstance(default, Each):
        return isinstance(value, tuple) and all(part == default.value for part in value)
    return type(value) is type(default) and value == default
