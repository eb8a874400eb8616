"""Which properties operations have, for `bytecode_properties.py`: since version 5 bytecode holds them without names.

A line is for the operations in front of its colon: their properties in the order in which they are written, which is that of
their names; ``?`` marks those that may be missing, ``*3`` three groups of operands or results. Behind a bar stands the order of
another version. Operations: StablehloOps.td, ChloOps.td, hlo_ops.td, FuncOps.td, VhloOps.td and their like; in VHLO nothing may
be missing.
"""

from __future__ import annotations

import re

_ACCURATE = "cbrt cosine exponential exponential_minus_one log log_plus_one logistic rsqrt sine sqrt tan tanh"

_HLO = """
all_gather: all_gather_dim channel_handle? replica_groups use_global_device_ids?
all_reduce: channel_handle? replica_groups use_global_device_ids?
batch_norm_grad batch_norm_inference batch_norm_training: epsilon feature_index
broadcast_in_dim: broadcast_dimensions
broadcast: broadcast_sizes
cholesky: lower?
collective_permute: channel_handle? source_target_pairs
compare: compare_type? comparison_direction
composite: composite_attributes? decomposition name version?
concatenate: dimension
constant: value
cross-replica-sum: replica_groups
dot_general: algorithm? dot_dimension_numbers precision_config? | dot_dimension_numbers precision_config?
dot: precision_config?
dynamic_broadcast_in_dim: broadcast_dimensions known_expanding_dimensions? known_nonexpanding_dimensions?
dynamic_gather: dimension_numbers indices_are_sorted?
dynamic_iota: iota_dimension
dynamic_slice: slice_sizes
einsum: einsum_config
fft: fft_length fft_type
gather: dimension_numbers indices_are_sorted? slice_sizes
get_dimension_size: dimension
get_tuple_element: index
infeed: infeed_config? layout?
iota: iota_dimension
map: dimensions
outfeed: outfeed_config?
pad: edge_padding_high edge_padding_low interior_padding
recv: channel_handle is_host_transfer? source_target_pairs? | channel_handle is_host_transfer?
reduce: dimensions
reduce_precision: exponent_bits mantissa_bits
reduce_scatter: channel_handle? replica_groups scatter_dimension use_global_device_ids?
reduce_window: base_dilations? padding? window_dilations? window_dimensions window_strides?
reverse: dimensions
rng_bit_generator: rng_algorithm
rng: rng_distribution
scatter: indices_are_sorted? scatter_dimension_numbers unique_indices?
select_and_scatter: padding? window_dimensions? window_strides?
send: channel_handle is_host_transfer? source_target_pairs? | channel_handle is_host_transfer?
set_dimension_size: dimension
slice: limit_indices start_indices strides
sort: dimension? is_stable?
torch_index_select: batch_dims dim
transpose: permutation
triangular_solve: left_side lower transpose_a unit_diagonal
unary_einsum: einsum_config
convolution: batch_group_count dimension_numbers feature_group_count lhs_dilation? padding? precision_config?
    rhs_dilation? window_reversal? window_strides?
""" + f"{_ACCURATE}: result_accuracy?\n"

_STABLEHLO = """
all_to_all: channel_handle? concat_dimension replica_groups split_count split_dimension
collective_broadcast: channel_handle? replica_groups | channel_handle? has_dynamic_root? replica_groups
collective_reduce: channel_handle? has_dynamic_root? replica_groups use_global_device_ids?
custom_call: api_version? backend_config? call_target_name called_computations? has_side_effect? operand_layouts?
    output_operand_aliases? result_layouts? | api_version? backend_config? call_target_name called_computations?
    has_side_effect? operand_layouts? output_operand_aliases? result_layouts? result_tilings?
dynamic_conv: batch_group_count dimension_numbers feature_group_count lhs_dilation? precision_config? rhs_dilation?
    window_reversal? window_strides?
"""

_MHLO = """
all_to_all: channel_handle? concat_dimension? replica_groups split_count? split_dimension?
async_start async_update async_done: called_computation execution_thread
collective_broadcast: channel_handle? replica_groups
copy: cross_program_prefetch_index?
custom_call: api_version? backend_config? call_target_name called_computations? custom_call_schedule? has_side_effect?
    operand_layouts? output_operand_aliases? result_layouts? | api_version? backend_config? call_target_name
    called_computations? custom_call_schedule? has_side_effect? operand_layouts? output_operand_aliases? result_layouts?
    undefined_alias?
domain: entry_metadata exit_metadata kind
dynamic_conv: batch_group_count dimension_numbers feature_group_count lhs_dilation? padding? precision_config?
    rhs_dilation? window_reversal? window_strides?
fusion: fusion_kind? output_operand_aliases?
ragged_dot: precision_config? ragged_dot_dimension_numbers
scan: dimension is_associative? is_reverse? scan_dim_size? *2 *2
topk: k largest? | is_stable? k largest?
trace: tag
xla.rng_get_and_update_state: delta
"""

_CHLO = """
broadcast_add broadcast_and broadcast_atan2 broadcast_complex broadcast_divide broadcast_maximum broadcast_minimum
    broadcast_multiply broadcast_next_after broadcast_or broadcast_polygamma broadcast_power broadcast_remainder
    broadcast_shift_left broadcast_shift_right_arithmetic broadcast_shift_right_logical broadcast_subtract broadcast_xor
    broadcast_zeta: broadcast_dimensions?
broadcast_compare: broadcast_dimensions? compare_type? comparison_direction
constant_like constant: value
ragged_dot: precision_config? ragged_dot_dimension_numbers
scan: dimension is_associative? is_reverse? scan_dim_size? *2 *2
top_k: is_stable? k | k
"""

_FUNC = """
call: arg_attrs? callee no_inline? res_attrs? | callee no_inline? | callee
call_indirect: arg_attrs? res_attrs?
constant: value
func: arg_attrs? function_type no_inline? res_attrs? sym_name sym_visibility? | arg_attrs? function_type res_attrs?
    sym_name sym_visibility?
"""

_SDY = """
all_gather: gathering_axes out_sharding
all_reduce: out_sharding reduction_axes reduction_op? | out_sharding reduction_axes
all_slice: out_sharding slicing_axes
all_to_all: out_sharding params
collective_permute: out_sharding
constant: value
data_flow_edge: sharding?
manual_computation: in_shardings manual_axes out_shardings
mesh: mesh sym_name
named_computation: in_shardings? name out_shardings?
propagation_barrier: allowed_direction
reduce_scatter: out_sharding reduce_scatter_axes reduction_op? | out_sharding reduce_scatter_axes
replicated_to_unreduced sharded_to_unreduced: axes out_sharding
reshard sharding_constraint: sharding
sharding_group: group_id
"""

_ARITH = """
addf divf mulf subf: fastmath? roundingmode?
addi muli shli subi trunci: overflowFlags?
cmpf: fastmath? predicate
cmpi: predicate
constant: value
divsi divui shrsi shrui: isExact?
extui index_castui uitofp: nonNeg?
extf maxnumf maximumf minnumf minimumf negf remf select: fastmath?
truncf: fastmath? roundingmode?
"""

_SHAPE = """
any broadcast: error?
const_shape: shape
const_size: value
const_witness: passing
cstr_require: msg
"""

_TENSOR = """
collapse_shape: reassociation
concat: dim
expand_shape: reassociation static_output_shape
extract_slice: static_offsets static_sizes static_strides *4
"""

_VHLO = f"""
all_gather_v1 all_gather_v2: all_gather_dim channel_id replica_groups use_global_device_ids
all_reduce_v1 all_reduce_v2: channel_id replica_groups use_global_device_ids
all_to_all_v1 all_to_all_v2: channel_id concat_dimension replica_groups split_count split_dimension
batch_norm_grad_v1 batch_norm_inference_v1 batch_norm_training_v1: epsilon feature_index
broadcast_in_dim_v1: broadcast_dimensions
broadcast_v1: broadcast_sizes
call_v1: callee
cholesky_v1: lower
collective_broadcast_v1: channel_id replica_groups
collective_broadcast_v2: channel_id has_dynamic_root replica_groups
collective_permute_v1: channel_id source_target_pairs
collective_reduce_v1: channel_id has_dynamic_root replica_groups use_global_device_ids
compare_v1: compare_type comparison_direction
composite_v1 composite_v2: composite_attributes decomposition name version
concatenate_v1: dimension
constant_v1: value
convolution_v1 dynamic_conv_v1: batch_group_count feature_group_count input_batch_dimension input_feature_dimension
    input_spatial_dimensions kernel_input_feature_dimension kernel_output_feature_dimension kernel_spatial_dimensions
    lhs_dilation output_batch_dimension output_feature_dimension output_spatial_dimensions padding precision_config
    rhs_dilation window_reversal window_strides
dynamic_conv_v2: batch_group_count feature_group_count input_batch_dimension input_feature_dimension
    input_spatial_dimensions kernel_input_feature_dimension kernel_output_feature_dimension kernel_spatial_dimensions
    lhs_dilation output_batch_dimension output_feature_dimension output_spatial_dimensions precision_config rhs_dilation
    window_reversal window_strides
cross-replica-sum_v1: replica_groups
custom_call_v1: api_version backend_config call_target_name called_computations has_side_effect operand_layouts
    output_operand_aliases result_layouts
custom_call_v2: api_version backend_config call_target_name called_computations has_side_effect operand_layouts
    output_operand_aliases result_layouts result_tilings
dot_general_v1: lhs_batching_dimensions lhs_contracting_dimensions precision_config rhs_batching_dimensions
    rhs_contracting_dimensions
dot_general_v2: accumulation_type allow_imprecise_accumulation lhs_batching_dimensions lhs_component_count
    lhs_contracting_dimensions lhs_precision_type num_primitive_operations precision_config rhs_batching_dimensions
    rhs_component_count rhs_contracting_dimensions rhs_precision_type
dot_v1: precision_config
dynamic_broadcast_in_dim_v1: broadcast_dimensions known_expanding_dimensions known_nonexpanding_dimensions
dynamic_gather_v1: collapsed_slice_dims index_vector_dim indices_are_sorted offset_dims start_index_map
dynamic_gather_v2: collapsed_slice_dims index_vector_dim indices_are_sorted offset_dims operand_batching_dims
    start_index_map start_indices_batching_dims
dynamic_iota_v1 iota_v1: iota_dimension
dynamic_slice_v1: slice_sizes
einsum_v1 unary_einsum_v1: einsum_config
fft_v1: fft_length fft_type
func_v1: arg_attrs function_type res_attrs sym_name sym_visibility
gather_v1: collapsed_slice_dims index_vector_dim indices_are_sorted offset_dims slice_sizes start_index_map
gather_v2: collapsed_slice_dims index_vector_dim indices_are_sorted offset_dims operand_batching_dims slice_sizes
    start_index_map start_indices_batching_dims
get_dimension_size_v1 set_dimension_size_v1: dimension
get_tuple_element_v1: index
infeed_v1: infeed_config layout
map_v1 reduce_v1 reverse_v1: dimensions
outfeed_v1: outfeed_config
pad_v1: edge_padding_high edge_padding_low interior_padding
recv_v1 send_v1: channel_id channel_type is_host_transfer
recv_v2 send_v2: channel_id channel_type is_host_transfer source_target_pairs
reduce_precision_v1: exponent_bits mantissa_bits
reduce_scatter_v1: channel_id replica_groups scatter_dimension use_global_device_ids
reduce_window_v1: base_dilations padding window_dilations window_dimensions window_strides
rng_bit_generator_v1: rng_algorithm
rng_v1: rng_distribution
scatter_v1: index_vector_dim indices_are_sorted inserted_window_dims scatter_dims_to_operand_dims unique_indices
    update_window_dims
scatter_v2: index_vector_dim indices_are_sorted input_batching_dims inserted_window_dims scatter_dims_to_operand_dims
    scatter_indices_batching_dims unique_indices update_window_dims
select_and_scatter_v1: padding window_dimensions window_strides
slice_v1: limit_indices start_indices strides
sort_v1: dimension is_stable
torch_index_select_v1: batch_dims dim
transpose_v1: permutation
triangular_solve_v1: left_side lower transpose_a unit_diagonal
{_ACCURATE.replace(" ", "_v2 ")}_v2: result_accuracy
"""

_MATH = """
absf acos acosh asin asinh atan2 atan atanh cbrt ceil clampf copysign cos cosh erf erfc exp2 expm1 exp fpowi floor
    isfinite isinf isnan isnormal log1p log2 log10 log powf roundeven round rsqrt sin sincos sinh sqrt tan tanh trunc:
    fastmath?
"""

Layout = tuple[str, ...]


def _table(dialect: str, *texts: str) -> dict[str, tuple[Layout, ...]]:
    lines = [line.split(": ") for text in texts for line in re.sub(r"\n +", " ", text.strip()).splitlines()]
    return {f"{dialect}.{name}": tuple([tuple(layout.split()) for layout in layouts.split("|")])
            for names, layouts in lines for name in names.split()}


LAYOUTS = {
    "builtin.module": (("sym_name?", "sym_visibility?"),), **_table("stablehlo", _HLO, _STABLEHLO), **_table("mhlo", _HLO, _MHLO),
    **_table("chlo", _CHLO), **_table("func", _FUNC), **_table("sdy", _SDY), **_table("arith", _ARITH), **_table("math", _MATH),
    **_table("shape", _SHAPE), **_table("tensor", _TENSOR), **_table("vhlo", _VHLO)}
"""For each operation the properties it may have, in the order of each of its versions; the first one that fits counts."""
