"""The messages of XLA's protos that are read here, and protobuf classes made of them without a compiler of protos.

`_MESSAGES` holds a line for each message: number, type and name of each field, as xla_data.proto and hlo.proto number them. ``*``
marks what may be there several times, ``@`` the name of the oneof. Names matter to nobody but this package, so that inner
messages stand beside their outer ones, enumerations are int32 (their words are where they are used), and maps are lists of
entries; none of that shows in the bytes. What is not listed (buffer assignments, profiles, all that later versions add) is an
unknown field to protobuf, which keeps it and writes it again.
"""

from __future__ import annotations

import functools
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from .wire import BLOBS

_MESSAGES = f"""
HloSnapshot: 1 HloProto hlo, 2 LiteralProto* arguments, 3 LiteralProto result, 4 string execution_platform
HloProto: 1 HloModuleProto hlo_module, 3 Bytes buffer_assignment
HloModuleProtoWithConfig: 1 HloModuleProto hlo_module, 2 Bytes config
HloUnoptimizedSnapshot: 1 HloModuleProto hlo_module, 2 HloInputs* partitions, 3 int32 version
HloInputs: 1 LiteralProto* arguments, 2 LiteralDescriptor* arguments_descriptors
LiteralDescriptor: 1 int32 version, 2 uint64 argument_size_bytes
HloModuleProto: 1 string name, 2 string entry_computation_name, 3 HloComputationProto* computations,
  4 ProgramShapeProto host_program_shape, 5 int64 id, 6 int64 entry_computation_id, 7 HloScheduleProto schedule,
  8 HloInputOutputAliasProto input_output_alias, 11 bool is_dynamic, 12 OpSharding spmd_output_sharding,
  14 OpSharding* spmd_parameters_shardings, 15 DeviceAssignmentProto device_assignment,
  17 StackFrameIndexProto stack_frame_index, 18 HloBufferDonorProto buffer_donor, 19 FrontendAttributes frontend_attributes,
  20 OriginalValueRecoveryTableProto original_value_recovery_table, 22 bytes* payloads
HloComputationProto: 1 string name, 2 HloInstructionProto* instructions, 4 ProgramShapeProto program_shape, 5 int64 id,
  6 int64 root_id, 7 bool is_fusion_computation, 8 string execution_thread
HloInstructionProto: 1 string name, 2 string opcode, 3 ShapeProto shape, 7 OpMetadata metadata, 8 LiteralProto literal,
  9 int64 parameter_number, 11 string fusion_kind, 13 int64 tuple_index, 14 int64* dimensions, 15 Window window,
  16 ConvolutionDimensionNumbers convolution_dimension_numbers, 17 SliceDimensions* slice_dimensions,
  18 int32 exponent_bits, 19 int32 mantissa_bits, 20 int64* dynamic_slice_sizes, 21 PaddingConfig padding_config,
  22 bytes outfeed_config, 23 int32 distribution, 24 float epsilon, 25 int64 feature_index, 26 int64 channel_id,
  27 bytes infeed_config, 28 string custom_call_target, 29 ShapeProto outfeed_shape,
  30 DotDimensionNumbers dot_dimension_numbers, 31 int32 fft_type, 32 int64* fft_length,
  33 GatherDimensionNumbers gather_dimension_numbers, 34 int64* gather_slice_sizes, 35 int64 id, 36 int64* operand_ids,
  37 int64* control_predecessor_ids, 38 int64* called_computation_ids, 40 OpSharding sharding, 43 bytes backend_config,
  45 int64 all_reduce_id, 47 bool is_host_transfer, 48 ScatterDimensionNumbers scatter_dimension_numbers,
  49 ReplicaGroup* replica_groups, 50 int64 feature_group_count, 51 PrecisionConfig precision_config,
  52 SourceTarget* source_target_pairs, 53 bytes custom_call_opaque, 54 OpSharding domain_entry_sharding,
  55 OpSharding domain_exit_sharding,
  56 bool constrain_layout, 57 ShapeProto* operand_shapes_with_layout, 58 int64 batch_group_count,
  59 TriangularSolveOptions triangular_solve_options, 60 bool is_stable, 61 ParameterReplication parameter_replication,
  62 CholeskyOptions cholesky_options, 63 string comparison_direction, 65 bool custom_call_has_side_effect, 66 int64 delta,
  67 bool indices_are_sorted, 68 FrontendAttributes frontend_attributes, 69 bool unique_indices, 70 int32 rng_algorithm,
  71 bool use_global_device_ids, 72 string comparison_type, 73 bool is_cross_program_prefetch,
  74 OutputOperandAliasing* output_operand_aliasing, 75 int32 padding_type, 76 int32 custom_call_schedule,
  77 int32 custom_call_api_version, 79 string async_execution_thread,
  80 int32@optional_cross_program_prefetch_index cross_program_prefetch_index, 81 int64 k, 82 StatisticsViz statistics_viz,
  85 bool largest, 86 Bytes* dot_sparsity, 87 CollectiveDeviceListProto@replica_group_list collective_device_list,
  88 OriginalValueProto original_value, 89 bool is_composite, 90 RaggedDotDimensionNumbers ragged_dot_dimension_numbers,
  91 ResultAccuracy result_accuracy, 92 IotaReplicaGroupListProto@replica_group_list iota_collective_device_list,
  93 MeshAxesReplicaGroupListProto@replica_group_list mesh_axes_replica_group_list, 94 bool is_reverse, 95 int64 num_carries,
  96 int32 is_associative, 97 int32 conv_kind, 98 SparsityConfig sparsity_config, 99 Payload backend_config_payload,
  100 bool has_dynamic_root, 101 bytes block_scaling_config, 102 string comparison_order
ShapeProto: 2 int32 element_type, 3 int64* dimensions, 4 ShapeProto* tuple_shapes, 5 LayoutProto layout,
  6 bool* is_dynamic_dimension
LayoutProto: 1 int64* minor_to_major, 6 TileProto* tiles, 7 int64 element_size_in_bits, 8 int64 memory_space,
  9 int32* dim_level_types, 10 ShapeProto physical_shape, 11 int32 index_primitive_type, 12 int32 pointer_primitive_type,
  13 bool* dim_unique, 14 bool* dim_ordered, 15 int64 dynamic_shape_metadata_prefix_bytes,
  16 int64 tail_padding_alignment_in_elements, 17 SplitConfigProto* split_configs
TileProto: 1 int64* dimensions
SplitConfigProto: 1 int64 dimension, 2 int64* split_indices
ProgramShapeProto: 1 ShapeProto* parameters, 2 ShapeProto result, 3 string* parameter_names
LiteralProto: 1 ShapeProto shape, 2 bool* preds, 3 bytes u8s, 4 int32* s32s, 5 int64* s64s, 6 uint32* u32s, 7 uint64* u64s,
  8 float* f32s, 9 double* f64s, 10 LiteralProto* tuple_literals, 11 bytes f16s, 12 float* c64s, 13 bytes bf16s,
  14 int64* sparse_indices, 15 bytes s8s, 16 bytes u16s, 17 bytes s16s, 18 double* c128s, 19 bytes f8e5m2s,
  20 bytes f8e4m3fns, 21 bytes s4s, 22 bytes u4s, 23 bytes f8e4m3b11fnuzs, 24 bytes f8e5m2fnuzs, 25 bytes f8e4m3fnuzs,
  26 bytes s2s, 27 bytes u2s, 28 bytes f8e4m3s, 29 bytes f8e3m4s, 30 bytes s1s, 31 bytes u1s, 32 bytes f4e2m1fns,
  33 bytes f8e8m0fnus, 34 int32* dynamic_sizes, {BLOBS} Blob* blobs
Blob: 1 int32 field, 2 int64 number
OpMetadata: 1 string op_type, 2 string op_name, 3 string source_file, 4 int32 source_line, 5 int32* profile_type,
  8 int64 size_of_generated_code_in_bytes, 9 int64 size_of_memory_working_set_in_bytes, 12 string deduplicated_name,
  15 int32 stack_frame_id, 16 string scheduling_name, 17 int32 source_end_line, 18 int32 source_column,
  19 int32 source_end_column, 20 Payload metadata_payload
Payload: 1 bytes@payload_source value, 2 int64@payload_source id
Window: 1 WindowDimension* dimensions
WindowDimension: 1 int64 size, 2 int64 stride, 3 int64 padding_low, 4 int64 padding_high, 5 int64 window_dilation,
  6 int64 base_dilation, 7 bool window_reversal
ConvolutionDimensionNumbers: 3 int64 kernel_input_feature_dimension, 4 int64 kernel_output_feature_dimension,
  6 int64* kernel_spatial_dimensions, 7 int64 input_batch_dimension, 8 int64 input_feature_dimension,
  9 int64 output_batch_dimension, 10 int64 output_feature_dimension, 11 int64* input_spatial_dimensions,
  12 int64* output_spatial_dimensions
SliceDimensions: 1 int64 start, 2 int64 limit, 3 int64 stride
PaddingConfig: 1 PaddingConfigDimension* dimensions
PaddingConfigDimension: 1 int64 edge_padding_low, 2 int64 edge_padding_high, 3 int64 interior_padding
DotDimensionNumbers: 1 int64* lhs_contracting_dimensions, 2 int64* rhs_contracting_dimensions, 3 int64* lhs_batch_dimensions,
  4 int64* rhs_batch_dimensions
RaggedDotDimensionNumbers: 1 DotDimensionNumbers dot_dimension_numbers, 2 int64* lhs_ragged_dimensions,
  3 int64* rhs_group_dimensions
GatherDimensionNumbers: 1 int64* offset_dims, 2 int64* collapsed_slice_dims, 3 int64* start_index_map,
  4 int64 index_vector_dim, 5 int64* operand_batching_dims, 6 int64* start_indices_batching_dims
ScatterDimensionNumbers: 1 int64* update_window_dims, 2 int64* inserted_window_dims, 3 int64* scatter_dims_to_operand_dims,
  4 int64 index_vector_dim, 5 int64* input_batching_dims, 6 int64* scatter_indices_batching_dims
OpSharding: 1 int32 type, 2 ShapeProto tile_shape, 3 int64* tile_assignment_dimensions, 4 int64* tile_assignment_devices,
  5 OpSharding* tuple_shardings, 6 bool replicate_on_last_tile_dim, 7 OpMetadata* metadata, 8 int32* last_tile_dims,
  9 int64* iota_reshape_dims, 10 int32* iota_transpose_perm, 11 bool is_shard_group, 12 int64 shard_group_id,
  13 int32 shard_group_type, 14 NamedShardingProto named_sharding
NamedShardingProto: 2 MeshProto mesh, 3 DimensionSharding* dim_shardings, 4 AxisRefProto* replicated_axes,
  5 AxisRefProto* unreduced_axes, 6 OpMetadata* metadata, 7 AxisRefProto* manual_axes,
  8 int32 reduction_op
MeshProto: 1 MeshAxis* axes, 2 int64* device_ids, 3 IotaTransform iota_transform
MeshAxis: 1 string name, 2 int64 size
IotaTransform: 1 int64* reshape_dims, 2 int64* transpose_perm
DimensionSharding: 1 AxisRefProto* axes, 2 bool is_closed
AxisRefProto: 1 int64 mesh_axis_index, 2 SubAxis sub_axis_info
SubAxis: 1 int64 pre_size, 2 int64 size
ReplicaGroup: 1 int64* replica_ids
CollectiveDeviceListProto: 1 ReplicaGroup* replica_groups, 2 IotaReplicaGroupListProto iota_replica_group_list
IotaReplicaGroupListProto: 1 int64 num_replica_groups, 2 int64 num_devices_per_group, 3 int64* iota_reshape_dims,
  4 int32* iota_transpose_perm
MeshAxesReplicaGroupListProto: 1 MeshProto mesh, 2 AxisRefProto* axes
PrecisionConfig: 1 int32* operand_precision, 2 int32 algorithm
SourceTarget: 1 int64 source, 2 int64 target
TriangularSolveOptions: 1 bool left_side, 2 bool lower, 3 bool unit_diagonal, 4 int32 transpose_a
CholeskyOptions: 1 bool lower
ParameterReplication: 1 bool* replicated_at_leaf_buffers
OutputOperandAliasing: 1 int64* output_shape_index, 2 int64 operand_index, 3 int64* operand_shape_index
FrontendAttributes: 1 FrontendAttribute* map
FrontendAttribute: 1 string key, 2 string value
StatisticsViz: 1 int64 stat_index_to_visualize, 2 Statistic* statistics
Statistic: 1 string stat_name, 2 double stat_val
OriginalValueProto: 1 OriginalValueElementProto* elements, 2 bool is_synthetic_call
OriginalValueElementProto: 1 int64* shape_index, 2 OriginalArrayProto original_array
OriginalArrayProto: 1 string instruction_name, 2 int64* shape_index
OriginalValueRecoveryTableProto: 1 OriginalValueRecovery* entries
OriginalValueRecovery: 1 OriginalArrayProto old_original_array, 2 OriginalArrayProto new_original_array,
  3 HloModuleProto recovery_module
ResultAccuracy: 1 int32@specs mode, 2 Tolerance@specs tolerance
Tolerance: 1 double atol, 2 double rtol, 3 int64 ulps
SparsityConfig: 1 TensorSparsityConfig lhs, 2 TensorSparsityConfig rhs
TensorSparsityConfig: 1 int64 num_non_zero, 2 int64 block_size, 3 int64 dimension, 4 int64 stride
HloScheduleProto: 1 InstructionSequences* sequences
InstructionSequences: 1 int64 key, 2 InstructionSequence value
InstructionSequence: 1 int64* instruction_ids
HloInputOutputAliasProto: 1 AliasEntryProto* entries
AliasEntryProto: 1 int64* output_shape_index, 2 int64 parameter_number, 3 int64* parameter_shape_index, 4 int32 kind
HloBufferDonorProto: 1 BufferDonorEntryProto* entries
BufferDonorEntryProto: 1 int64 parameter_number, 2 int64* parameter_shape_index
DeviceAssignmentProto: 1 int32 replica_count, 2 int32 computation_count, 3 ComputationDevice* computation_devices
ComputationDevice: 1 int64* replica_device_ids
StackFrameIndexProto: 1 string* file_names, 2 string* function_names, 3 FileLocation* file_locations,
  4 StackFrame* stack_frames
FileLocation: 1 int32 file_name_id, 2 int32 function_name_id, 3 int32 line, 4 int32 column, 5 int32 end_line,
  6 int32 end_column
StackFrame: 1 int32 file_location_id, 2 int32 parent_frame_id
Bytes:
"""

_PACKAGE = "xla_torch.proto"
_Field = descriptor_pb2.FieldDescriptorProto


def messages() -> tuple[str, ...]:
    """The names of all messages."""
    return tuple(_table())


def fields_of(message: str) -> dict[int, tuple[str, str]]:
    """Type (with its ``*``) and name of each field of a message, by number."""
    return {number: (kind, name) for number, kind, _, name in _table()[message]}


@functools.cache
def message_class(name: str) -> Any:
    """The protobuf class of a message."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{_PACKAGE}.{name}"))


@functools.cache
def _table() -> dict[str, list[tuple[int, str, str, str]]]:
    """Number, type, oneof and name of the fields of each message."""
    found: dict[str, list[tuple[int, str, str, str]]] = {}
    for line in _MESSAGES.replace("\n  ", " ").strip().splitlines():
        message, _, fields = line.partition(":")
        found[message] = []
        for field in filter(None, map(str.strip, fields.split(","))):
            number, kind, name = field.split()
            kind, _, oneof = kind.partition("@")
            found[message].append((int(number), kind, oneof, name))
    return found


@functools.cache
def _pool() -> descriptor_pool.DescriptorPool:
    """The messages in a pool of their own: the process's may hold XLA's own descriptors, from other libraries."""
    table = _table()
    file = descriptor_pb2.FileDescriptorProto(name="xla_torch/hlo.proto", package=_PACKAGE, syntax="proto3")
    for message, fields in table.items():
        described = file.message_type.add(name=message)
        for number, kind, oneof, name in fields:
            field = described.field.add(name=name, number=number)
            field.label = _Field.LABEL_REPEATED if kind.endswith("*") else _Field.LABEL_OPTIONAL
            kind = kind.removesuffix("*")
            if kind in table:
                field.type, field.type_name = _Field.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
            else:
                field.type = _Field.Type.Value(f"TYPE_{kind.upper()}")
            if oneof:
                field.oneof_index = _oneof(described, oneof)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)  # pyright: ignore[reportAttributeAccessIssue]
    return pool


def _oneof(message: descriptor_pb2.DescriptorProto, name: str) -> int:
    names = [o.name for o in message.oneof_decl]
    if name not in names:
        message.oneof_decl.add(name=name)
        names.append(name)
    return names.index(name)
