"""Provide the mutable records and enums of XLA's client library.

A call reads the values that a record holds at that moment.
"""

from __future__ import annotations

import copy
import dataclasses
import enum
import inspect
import os
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from .. import ops
from ..hlo.sharding import Sharding
from ..proto.context import Reading
from ..proto.devices import read_sharding
from ..proto.schema import message_class
from .errors import raising_methods

__all__ = ["ChannelHandle", "ChannelHandle_ChannelType", "ConvolutionDimensionNumbers", "CurrentSourceInfoMetadata",
           "CustomCallApiVersion", "CustomCallSchedule", "DeviceAssignment", "DotDimensionNumbers", "FftType",
           "FrontendAttributes", "GatherDimensionNumbers", "OpMetadata", "OpSharding", "OpSharding_ShardGroupType",
           "OpSharding_Type", "PaddingConfig", "PaddingConfigDimension", "PaddingType", "PrecisionConfig",
           "PrecisionConfig_Precision", "RandomAlgorithm", "ReplicaGroup", "ResultAccuracy", "ResultAccuracy_Mode",
           "ScatterDimensionNumbers", "TriangularSolveOptions_Transpose", "make_convolution_dimension_numbers",
           "make_dot_dimension_numbers", "make_padding_config", "make_replica_groups", "window_padding_type_to_pad_values"]

# ------------------------------------------------------------------------------------------- words


class _Word(enum.IntEnum):
    def of_xla_torch(self) -> str:
        return self.name


class FftType(_Word):
    """Which Fourier transform."""

    FFT = 0
    IFFT = 1
    RFFT = 2
    IRFFT = 3


class TriangularSolveOptions_Transpose(_Word):
    """What a triangular solve solves with."""

    TRANSPOSE_INVALID = 0
    NO_TRANSPOSE = 1
    TRANSPOSE = 2
    ADJOINT = 3


class RandomAlgorithm(_Word):
    """How bits are made of a state."""

    RNG_DEFAULT = 0
    RNG_THREE_FRY = 1
    RNG_PHILOX = 2


class CustomCallSchedule(_Word):
    """When a custom call is scheduled."""

    SCHEDULE_NONE = 0
    SCHEDULE_LATEST = 1
    SCHEDULE_EARLIEST = 2


class CustomCallApiVersion(_Word):
    """How a custom call's function in C is called."""

    API_VERSION_ORIGINAL = 1
    API_VERSION_STATUS_RETURNING = 2
    API_VERSION_STATUS_RETURNING_UNIFIED = 3
    API_VERSION_TYPED_FFI = 4


class PrecisionConfig_Precision(enum.IntEnum):
    """How precisely an operand of a product counts."""

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2

    def of_xla_torch(self) -> str:
        return self.name.lower()


class ResultAccuracy_Mode(enum.IntEnum):
    """How accurate a result is to be."""

    DEFAULT = 0
    HIGHEST = 1
    TOLERANCE = 2


class ChannelHandle_ChannelType(enum.IntEnum):
    """Between whom a channel is."""

    CHANNEL_TYPE_INVALID = 0
    DEVICE_TO_DEVICE = 1
    DEVICE_TO_HOST = 2
    HOST_TO_DEVICE = 3


class OpSharding_Type(enum.IntEnum):
    """How an array lies on the partitions."""

    REPLICATED = 0
    MAXIMAL = 1
    TUPLE = 2
    OTHER = 3
    MANUAL = 4
    UNKNOWN = 5


class OpSharding_ShardGroupType(enum.IntEnum):
    """What a group of shardings has in common."""

    AS = 0
    LIKE = 1


class PaddingType(enum.Enum):
    """How a window is padded."""

    VALID = 1
    SAME = 2


# ------------------------------------------------------------------------------------------- records


@dataclasses.dataclass(slots=True)
class PaddingConfigDimension:
    """How one dimension is padded."""

    edge_padding_low: int = 0
    edge_padding_high: int = 0
    interior_padding: int = 0


@dataclasses.dataclass(slots=True)
class PaddingConfig:
    """How each dimension is padded."""

    dimensions: list[PaddingConfigDimension] = dataclasses.field(default_factory=list)

    def of_xla_torch(self) -> Any:
        return ops.PaddingConfig([dataclasses.astuple(d) for d in self.dimensions])


class _OfSameFields:
    __slots__ = ()
    record: ClassVar[Any]

    def of_xla_torch(self) -> Any:
        """The record of xla_torch, which has the same fields."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}  # pyright: ignore[reportArgumentType]
        return self.record(**{n: tuple(v) if isinstance(v, (list, tuple)) else v for n, v in fields.items()})


@dataclasses.dataclass(slots=True)
class DotDimensionNumbers(_OfSameFields):
    """Which dimensions of a product are summed over, and which run in parallel."""

    record: ClassVar[Any] = ops.DotDimensionNumbers
    lhs_contracting_dimensions: list[int] = dataclasses.field(default_factory=list)
    rhs_contracting_dimensions: list[int] = dataclasses.field(default_factory=list)
    lhs_batch_dimensions: list[int] = dataclasses.field(default_factory=list)
    rhs_batch_dimensions: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(slots=True)
class ConvolutionDimensionNumbers(_OfSameFields):
    """Which dimension of a convolution plays which part."""

    record: ClassVar[Any] = ops.ConvolutionDimensionNumbers
    input_batch_dimension: int = 0
    input_feature_dimension: int = 0
    input_spatial_dimensions: list[int] = dataclasses.field(default_factory=list)
    kernel_input_feature_dimension: int = 0
    kernel_output_feature_dimension: int = 0
    kernel_spatial_dimensions: list[int] = dataclasses.field(default_factory=list)
    output_batch_dimension: int = 0
    output_feature_dimension: int = 0
    output_spatial_dimensions: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(slots=True)
class GatherDimensionNumbers(_OfSameFields):
    """Which dimension of a gather plays which part."""

    record: ClassVar[Any] = ops.GatherDimensionNumbers
    offset_dims: list[int] = dataclasses.field(default_factory=list)
    collapsed_slice_dims: list[int] = dataclasses.field(default_factory=list)
    start_index_map: list[int] = dataclasses.field(default_factory=list)
    index_vector_dim: int = 0
    operand_batching_dims: list[int] = dataclasses.field(default_factory=list)
    start_indices_batching_dims: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(slots=True)
class ScatterDimensionNumbers(_OfSameFields):
    """Which dimension of a scatter plays which part."""

    record: ClassVar[Any] = ops.ScatterDimensionNumbers
    update_window_dims: list[int] = dataclasses.field(default_factory=list)
    inserted_window_dims: list[int] = dataclasses.field(default_factory=list)
    scatter_dims_to_operand_dims: list[int] = dataclasses.field(default_factory=list)
    index_vector_dim: int = 0
    input_batching_dims: list[int] = dataclasses.field(default_factory=list)
    scatter_indices_batching_dims: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(slots=True)
class ReplicaGroup:
    """The participants that exchange with one another."""

    replica_ids: list[int] = dataclasses.field(default_factory=list)

    def of_xla_torch(self) -> tuple[int, ...]:
        return tuple(self.replica_ids)


@dataclasses.dataclass(slots=True)
class PrecisionConfig:
    """A precision for each operand of a product."""

    Precision: ClassVar[type[PrecisionConfig_Precision]] = PrecisionConfig_Precision
    operand_precision: list[PrecisionConfig_Precision] = dataclasses.field(default_factory=list)

    def of_xla_torch(self) -> list[str] | None:
        return [PrecisionConfig_Precision(p).of_xla_torch() for p in self.operand_precision] or None


@dataclasses.dataclass(slots=True)
class ResultAccuracy:
    """How accurate a result is to be; tolerances count where the mode says so."""

    mode: ResultAccuracy_Mode = ResultAccuracy_Mode.DEFAULT
    atol: float = 0.0
    rtol: float = 0.0
    ulps: int = 0

    def of_xla_torch(self) -> Any:
        if self.mode != ResultAccuracy_Mode.TOLERANCE:
            return ops.ResultAccuracy(ResultAccuracy_Mode(self.mode).name.lower())
        return ops.ResultAccuracy("tolerance", self.atol, self.rtol, self.ulps)


@dataclasses.dataclass(slots=True)
class ChannelHandle:
    """A channel between participants, or to the host."""

    handle: int = 0
    type: ChannelHandle_ChannelType = ChannelHandle_ChannelType.CHANNEL_TYPE_INVALID

    def of_xla_torch(self) -> Any:
        return ops.ChannelHandle(self.handle, ops.ChannelType(int(self.type) or 1))


@dataclasses.dataclass(slots=True)
class OpMetadata:
    """Where an instruction comes from."""

    op_type: str = ""
    op_name: str = ""
    source_file: str = ""
    source_line: int = 0


def CurrentSourceInfoMetadata(op_type: str | None = None, op_name: str | None = None, skip_frames: int = 1) -> OpMetadata:
    """The metadata of the line that calls this."""
    frame = inspect.stack()[skip_frames]
    return OpMetadata(op_type or "", op_name or "", os.path.basename(frame.filename), frame.lineno)


class FrontendAttributes(dict):
    """What a frontend notes of an instruction: texts by names."""


@raising_methods
@dataclasses.dataclass(slots=True)
class OpSharding:
    """How an array, or each array of a tuple, lies on the partitions of a program."""

    Type: ClassVar[type[OpSharding_Type]] = OpSharding_Type
    ShardGroupType: ClassVar[type[OpSharding_ShardGroupType]] = OpSharding_ShardGroupType
    type: OpSharding_Type = OpSharding_Type.REPLICATED
    replicate_on_last_tile_dim: bool = False
    last_tile_dims: list[int] = dataclasses.field(default_factory=list)
    tile_assignment_dimensions: list[int] = dataclasses.field(default_factory=list)
    tile_assignment_devices: list[int] = dataclasses.field(default_factory=list)
    iota_reshape_dims: list[int] = dataclasses.field(default_factory=list)
    iota_transpose_perm: list[int] = dataclasses.field(default_factory=list)
    tuple_shardings: list[OpSharding] = dataclasses.field(default_factory=list)
    is_shard_group: bool = False
    shard_group_id: int = 0
    shard_group_type: OpSharding_ShardGroupType = OpSharding_ShardGroupType.AS

    def of_xla_torch(self) -> Sharding:
        """Raises HloSyntaxError for fields that together say nothing sensible."""
        return read_sharding(self._proto(), Reading((), ()))

    def SerializeToString(self) -> bytes:
        return self._proto().SerializeToString(deterministic=True)

    def ParseFromString(self, s: bytes) -> None:
        self._fill(message_class("OpSharding").FromString(s))

    def clone(self) -> OpSharding:
        return copy.deepcopy(self)

    def _proto(self) -> Any:
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "tuple_shardings"}
        return message_class("OpSharding")(**fields, tuple_shardings=[part._proto() for part in self.tuple_shardings])

    def _fill(self, proto: Any) -> None:
        for field in dataclasses.fields(self):
            value = getattr(proto, field.name)
            setattr(self, field.name, list(value) if isinstance(getattr(self, field.name), list) else value)
        self.type, self.shard_group_type = OpSharding_Type(proto.type), OpSharding_ShardGroupType(proto.shard_group_type)
        parts, self.tuple_shardings = self.tuple_shardings, []
        for part in parts:
            made = OpSharding()
            made._fill(part)
            self.tuple_shardings.append(made)


# ------------------------------------------------------------------------------------------- making records


def make_padding_config(padding_config: PaddingConfig | Sequence[tuple[int, int, int]]) -> PaddingConfig:
    """The record of triples (low, high, interior)."""
    if isinstance(padding_config, PaddingConfig):
        return padding_config
    made = PaddingConfig()
    for low, high, interior in padding_config:
        dimension = PaddingConfigDimension()
        dimension.edge_padding_low, dimension.edge_padding_high, dimension.interior_padding = low, high, interior
        made.dimensions.append(dimension)
    return made


def _made(record: Any, own: Any) -> Any:
    """A record with the fields of one of xla_torch."""
    made = record()
    for field in dataclasses.fields(record):
        value = getattr(own, field.name)
        setattr(made, field.name, list(value) if isinstance(value, tuple) else value)
    return made


def make_dot_dimension_numbers(dimension_numbers: Any) -> DotDimensionNumbers:
    """The record of ``((lhs contracting, rhs contracting), (lhs batch, rhs batch))``."""
    if not isinstance(dimension_numbers, (list, tuple)):
        return dimension_numbers
    return _made(DotDimensionNumbers, ops.make_dot_dimension_numbers(dimension_numbers))


def make_convolution_dimension_numbers(dimension_numbers: Any, num_spatial_dimensions: int) -> ConvolutionDimensionNumbers:
    """The record of ``("NCHW", "OIHW", "NCHW")``; None stands for this order, in any number of dimensions."""
    if dimension_numbers is not None and not isinstance(dimension_numbers, tuple):
        return dimension_numbers
    return _made(ConvolutionDimensionNumbers,
                 ops.make_convolution_dimension_numbers(dimension_numbers, num_spatial_dimensions))


def make_replica_groups(replica_groups: Sequence[Sequence[int]] | None) -> list[ReplicaGroup]:
    """The records of lists of ids; None stands for one group of all."""
    made = []
    for ids in replica_groups or ():
        group = ReplicaGroup()
        group.replica_ids.extend(ids)
        made.append(group)
    return made


def window_padding_type_to_pad_values(padding_type: PaddingType | str, lhs_dims: Sequence[int], rhs_dims: Sequence[int],
                                      window_strides: Sequence[int]) -> list[tuple[int, int]]:
    """The padding (low, high) of each dimension. Raises TypeError for what is no PaddingType or text, and ValueError for a text
    that names none."""
    if not isinstance(padding_type, (str, PaddingType)):
        raise TypeError(f"padding_type must be str or PaddingType, got {type(padding_type)}.")
    word = padding_type.upper() if isinstance(padding_type, str) else padding_type.name
    if word not in PaddingType.__members__:
        raise ValueError(f'Unknown padding type: expected "VALID" or "SAME", got {padding_type}.')
    if word == "VALID":
        return [(0, 0)] * len(window_strides)
    return ops.MakePadding(lhs_dims, rhs_dims, window_strides, ops.Padding("same"))


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceAssignment:
    """Which device runs each replica (row) and partition (column)."""

    ids: np.ndarray

    @staticmethod
    def create(array: np.ndarray) -> DeviceAssignment:
        return DeviceAssignment(np.array(array, np.int64, ndmin=2))

    def replica_count(self) -> int:
        return self.ids.shape[0]

    def computation_count(self) -> int:
        return self.ids.shape[1]

    def serialize(self) -> bytes:
        """A DeviceAssignmentProto."""
        columns = [message_class("ComputationDevice")(replica_device_ids=column.tolist()) for column in self.ids.T]
        proto = message_class("DeviceAssignmentProto")(replica_count=self.replica_count(), computation_devices=columns,
                                                       computation_count=self.computation_count())
        return proto.SerializeToString(deterministic=True)
