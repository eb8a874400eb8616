"""Attributes that are records, in messages of an HloInstructionProto: windows, dimension numbers, slices, paddings, accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.errors import HloSyntaxError
from ..hlo.attributes import ConvolutionDimensionNumbers, PrecisionCodec, ResultAccuracy, WindowDimension
from .context import Reading, Writing


def read_window(proto: Any, _: Reading) -> tuple[WindowDimension, ...] | None:
    if not proto.HasField("window"):
        return None
    # XLA writes strides and dilations always; those that are missing are 1.
    return tuple(WindowDimension(w.size, w.stride or 1, w.padding_low, w.padding_high, w.base_dilation or 1,
                                 w.window_dilation or 1, w.window_reversal) for w in proto.window.dimensions)


def write_window(proto: Any, value: Sequence[WindowDimension], _: Writing) -> None:
    proto.window.SetInParent()
    for w in value:
        proto.window.dimensions.add(size=w.size, stride=w.stride, padding_low=w.padding_low, padding_high=w.padding_high,
                                    base_dilation=w.base_dilation, window_dilation=w.window_dilation, window_reversal=w.reversal)


_CONVOLUTION_NUMBERS = ("input_batch_dimension", "input_feature_dimension", "kernel_input_feature_dimension",
                        "kernel_output_feature_dimension", "output_batch_dimension", "output_feature_dimension")
_CONVOLUTION_LISTS = ("input_spatial_dimensions", "kernel_spatial_dimensions", "output_spatial_dimensions")


def read_dim_labels(proto: Any, _: Reading) -> ConvolutionDimensionNumbers | None:
    if not proto.HasField("convolution_dimension_numbers"):
        return None
    numbers = proto.convolution_dimension_numbers
    fields: dict[str, Any] = {name: getattr(numbers, name) for name in _CONVOLUTION_NUMBERS}
    fields |= {name: tuple(getattr(numbers, name)) for name in _CONVOLUTION_LISTS}
    found = ConvolutionDimensionNumbers(**fields)
    lists = (found.input_spatial_dimensions, found.kernel_spatial_dimensions, found.output_spatial_dimensions)
    if len({*map(len, lists)}) > 1 or any(not 0 <= d < 64 for spatial in lists for d in spatial):
        raise HloSyntaxError("the dimension numbers of a convolution do not fit together", got=str(found))
    return found


def write_dim_labels(proto: Any, value: ConvolutionDimensionNumbers, _: Writing) -> None:
    numbers = proto.convolution_dimension_numbers
    numbers.SetInParent()
    for name in _CONVOLUTION_NUMBERS:
        setattr(numbers, name, getattr(value, name))
    for name in _CONVOLUTION_LISTS:
        getattr(numbers, name).extend(getattr(value, name))


def read_slice(proto: Any, _: Reading) -> tuple[tuple[int, int, int], ...]:
    return tuple((s.start, s.limit, s.stride) for s in proto.slice_dimensions)


def write_slice(proto: Any, value: Sequence[tuple[int, int, int]], _: Writing) -> None:
    for start, limit, stride in value:
        proto.slice_dimensions.add(start=start, limit=limit, stride=stride)


def read_padding(proto: Any, _: Reading) -> tuple[tuple[int, int, int], ...]:
    return tuple((d.edge_padding_low, d.edge_padding_high, d.interior_padding) for d in proto.padding_config.dimensions)


def write_padding(proto: Any, value: Sequence[tuple[int, int, int]], _: Writing) -> None:
    proto.padding_config.SetInParent()
    for low, high, interior in value:
        proto.padding_config.dimensions.add(edge_padding_low=low, edge_padding_high=high, interior_padding=interior)


def read_pairs(proto: Any, _: Reading) -> tuple[tuple[int, int], ...]:
    return tuple((pair.source, pair.target) for pair in proto.source_target_pairs)


def write_pairs(proto: Any, value: Sequence[Sequence[int]], _: Writing) -> None:
    for source, target in value:
        proto.source_target_pairs.add(source=source, target=target)


_PRECISIONS = PrecisionCodec.words


def read_precision(proto: Any, _: Reading) -> tuple[str, ...] | None:
    numbers = proto.precision_config.operand_precision
    if not all(0 <= number < len(_PRECISIONS) for number in numbers):
        raise HloSyntaxError("unknown operand precision", got=list(numbers))
    return tuple(_PRECISIONS[number] for number in numbers) if any(numbers) else None


def write_precision(proto: Any, value: Sequence[str], _: Writing) -> None:
    proto.precision_config.operand_precision.extend(map(_PRECISIONS.index, value))


def read_accuracy(proto: Any, _: Reading) -> ResultAccuracy | None:
    given = proto.result_accuracy
    which = given.WhichOneof("specs")
    if which == "tolerance":
        return ResultAccuracy("tolerance", given.tolerance.atol, given.tolerance.rtol, given.tolerance.ulps)
    return ResultAccuracy("highest") if which == "mode" and given.mode == 1 else None


def write_accuracy(proto: Any, value: ResultAccuracy, _: Writing) -> None:
    if value.mode == "tolerance":
        into = proto.result_accuracy.tolerance
        into.SetInParent()
        into.atol, into.rtol, into.ulps = value.atol or 0, value.rtol or 0, value.ulps or 0
    else:
        proto.result_accuracy.mode = int(value.mode == "highest")
