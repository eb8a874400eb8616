"""How an op's attributes stand in an HloInstructionProto: for each attribute by its HLO name, reading and writing.

The schemas say which attributes an op has; no opcode is named here. Where two ops have different attributes of one name, the
attribute's codec tells them apart. Reading gives what the text's reader gives, and None for what is not there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..core.errors import HloSyntaxError, InvalidArgument, UnsupportedError
from ..core.shape import Shape
from ..hlo.ir import Computation
from ..hlo.literals.literal import Literal
from ..hlo.scanner import Scanner
from ..hlo.schema import Attribute
from ..hlo.sharding import parse_sharding
from ..hlo.structure import CONSTANT
from ..opcodes.collective import group_mode
from .context import Reading, Writing
from .devices import read_groups, read_sharding, write_groups, write_sharding
from .literals import read_literal, write_literal
from .records import (
    read_accuracy,
    read_dim_labels,
    read_padding,
    read_pairs,
    read_precision,
    read_slice,
    read_window,
    write_accuracy,
    write_dim_labels,
    write_padding,
    write_pairs,
    write_precision,
    write_slice,
    write_window,
)
from .shapes import write_shape


class Link(NamedTuple):
    """Reading takes the instruction's proto and what is known of its file; writing also the value."""

    read: Callable[[Any, Reading], Any]
    write: Callable[[Any, Any, Writing], None]


def link_of(attribute: Attribute) -> Link:
    """The link of an op's attribute. Raises UnsupportedError for one that has no place in a proto."""
    found = _LINKS.get(f"{attribute.name}:{type(attribute.codec).__name__}") or _LINKS.get(attribute.name)
    if found is None:
        raise UnsupportedError(f"HLO protos have no field for the attribute {attribute.name}",
                               hint="use to_hlo_text, which writes it")
    return found


# --------------------------------------------------------------------------------------------------- kinds of links


def _scalar(field: str, missing: Any = None) -> Link:
    """A number, truth value or string as it stands; `missing` is what stands there where the attribute is not given."""
    def read(proto: Any, _: Reading) -> Any:
        value = getattr(proto, field)
        return None if value == missing else value

    return Link(read, lambda proto, value, _: setattr(proto, field, value))


def _list(field: str, always: bool = True) -> Link:
    """Integers; unless `always`, none stand for an attribute that is not given."""
    def read(proto: Any, _: Reading) -> tuple[int, ...] | None:
        values = tuple(getattr(proto, field))
        return values if values or always else None

    return Link(read, lambda proto, value, _: getattr(proto, field).extend(value))


def _first(field: str) -> Link:
    """The one integer of a list."""
    return Link(lambda proto, _: next(iter(getattr(proto, field)), None),
                lambda proto, value, _: getattr(proto, field).append(value))


def _within(message: str, link: Link) -> Link:
    """A field of a message that may not be there."""
    return Link(lambda proto, reading: link.read(getattr(proto, message), reading) if proto.HasField(message) else None,
                lambda proto, value, writing: link.write(getattr(proto, message), value, writing))


def _word(field: str, words: Sequence[Any], default: int = 0) -> Link:
    """A word out of a list, by its number; numbers up to `default` stand for an attribute that is not given."""
    def read(proto: Any, _: Reading) -> Any:
        number = getattr(proto, field)
        if not 0 <= number < len(words):
            raise HloSyntaxError(f"{field} has an unknown number", got=number, expected=f"0 to {len(words) - 1}")
        return words[number] if number > default else None

    def write(proto: Any, value: Any, _: Writing) -> None:
        if value not in words:
            raise InvalidArgument(f"HLO protos have no such value of {field}", got=value, expected=", ".join(map(str, words)))
        setattr(proto, field, words.index(value))

    return Link(read, write)


def _text(field: str) -> Link:
    """Bytes or a string as a string, which may hold bytes that are no UTF-8."""
    def read(proto: Any, _: Reading) -> str | None:
        value = getattr(proto, field)
        return (value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value) or None

    def write(proto: Any, value: str, _: Writing) -> None:
        is_bytes = isinstance(getattr(proto, field), bytes)
        setattr(proto, field, value.encode("utf-8", "surrogateescape") if is_bytes else value)

    return Link(read, write)


def _called(place: int) -> Link:
    """The computation that is called at this place of the list; a negative place counts from its end."""
    def read(proto: Any, reading: Reading) -> Computation | None:
        called = reading.called(proto)
        return called[place] if -len(called) <= place < len(called) else None

    def write(_: Any, value: Computation, writing: Writing) -> None:
        writing.call(place, value)

    return Link(read, write)


# --------------------------------------------------------------------------------------------------- computations


def _read_all_called(proto: Any, reading: Reading) -> tuple[Computation, ...] | None:
    return reading.called(proto) or None


def _write_all_called(_: Any, value: Sequence[Computation], writing: Writing) -> None:
    for place, computation in enumerate(value):
        writing.call(place, computation)


def _read_branches(proto: Any, reading: Reading) -> tuple[Computation, ...] | None:
    return None if reading.selects_by_truth(proto) else reading.called(proto)


def _branch(place: int) -> Link:
    return Link(lambda proto, reading: _called(place).read(proto, reading) if reading.selects_by_truth(proto) else None,
                _called(place).write)


# --------------------------------------------------------------------------------------------------- messages


def _read_thread(proto: Any, _: Reading) -> str | None:
    name = proto.async_execution_thread
    return None if name in ("", "main") else name


def _dot(field: str) -> Link:
    """A list of dot's dimension numbers, which of a ragged dot lie a message deeper."""
    def read(proto: Any, _: Reading) -> tuple[int, ...]:
        if proto.dot_sparsity:
            raise UnsupportedError("dot with sparse operands is not supported")
        ragged = proto.HasField("ragged_dot_dimension_numbers")
        return tuple(getattr(proto.ragged_dot_dimension_numbers.dot_dimension_numbers if ragged else proto.dot_dimension_numbers,
                             field))

    def write(proto: Any, value: Sequence[int], writing: Writing) -> None:
        ragged = "lhs_ragged_dims" in writing.schema.attributes
        numbers = proto.ragged_dot_dimension_numbers.dot_dimension_numbers if ragged else proto.dot_dimension_numbers
        getattr(numbers, field).extend(value)

    return Link(read, write)


_DOT_ALGORITHMS = ("", "dot_any_f8_any_f8_f32", "dot_any_f8_any_f8_f32_fast_accum", "dot_f16_f16_f16", "dot_f16_f16_f32",
                   "dot_bf16_bf16_bf16", "dot_bf16_bf16_f32", "dot_bf16_bf16_f32_x3", "dot_bf16_bf16_f32_x6",
                   "dot_tf32_tf32_f32", "dot_tf32_tf32_f32_x3", "dot_f32_f32_f32", "dot_f64_f64_f64", "dot_bf16_bf16_f32_x9")


def _index_vector(proto: Any) -> Any:
    """The dimension numbers of a gather or a scatter."""
    is_gather = proto.HasField("gather_dimension_numbers")
    return proto.gather_dimension_numbers if is_gather else proto.scatter_dimension_numbers


def _write_index_vector(proto: Any, value: int, writing: Writing) -> None:
    is_gather = "offset_dims" in writing.schema.attributes
    numbers = proto.gather_dimension_numbers if is_gather else proto.scatter_dimension_numbers
    numbers.SetInParent()
    numbers.index_vector_dim = value


# --------------------------------------------------------------------------------------------------- kept as text


def _indices(values: Sequence[int]) -> str:
    return "{" + ",".join(map(str, values)) + "}"


def _read_aliasing(proto: Any, _: Reading) -> str | None:
    entries = [f"{_indices(a.output_shape_index)}: ({a.operand_index}, {_indices(a.operand_shape_index)})"
               for a in proto.output_operand_aliasing]
    return "{" + ", ".join(entries) + "}" if entries else None


def _write_aliasing(proto: Any, value: str, _: Writing) -> None:
    scanner = Scanner(value)

    def entry() -> None:
        output = scanner.listed(scanner.integer)
        for mark in (":", "("):
            scanner.expect(mark)
        number = scanner.integer()
        scanner.expect(",")
        proto.output_operand_aliasing.add(output_shape_index=output, operand_index=number,
                                          operand_shape_index=scanner.listed(scanner.integer))
        scanner.expect(")")

    scanner.listed(entry)


def _read_layouts(proto: Any, reading: Reading) -> str | None:
    if not proto.constrain_layout:
        return None
    return "{" + ", ".join(reading.shapes.read(s).to_text() for s in proto.operand_shapes_with_layout) + "}"


def _write_layouts(proto: Any, value: str, _: Writing) -> None:
    proto.constrain_layout = True
    scanner = Scanner(value)
    for shape in scanner.listed(scanner.shape):
        write_shape(shape, proto.operand_shapes_with_layout.add())


def _read_domain(proto: Any, reading: Reading) -> str | None:
    # XLA's text calls the users' side the entry, and its proto the operand's.
    entry, leave = (read_sharding(p, reading) for p in (proto.domain_exit_sharding, proto.domain_entry_sharding))
    return f'{{kind="sharding", entry={entry}, exit={leave}}}'


def _write_domain(proto: Any, value: str, _: Writing) -> None:
    scanner = Scanner(value)
    for marks, field in ((("{", "kind", "=", '"sharding"', ",", "entry", "="), "domain_exit_sharding"),
                         ((",", "exit", "="), "domain_entry_sharding")):
        for mark in marks:
            scanner.expect(mark)
        getattr(proto, field).SetInParent()
        write_sharding(parse_sharding(scanner), getattr(proto, field))


_SPARSITY = re.compile(r"\{\s*(?:(?:lhs|rhs)=\{\s*(?:(?:sparsity=\d+x\d+|(?:dimension|stride)=-?\d+)\s*)*+\}\s*)*+\}")


def _read_sparsity(proto: Any, _: Reading) -> str | None:
    """``{lhs={sparsity=2x4 dimension=1 stride=1} rhs={...}}``: so many in a block of so many are not zero."""
    config = proto.sparsity_config
    sides = [(side, getattr(config, side)) for side in ("lhs", "rhs") if config.HasField(side)]
    texts = [f"{side}={{sparsity={given.num_non_zero}x{given.block_size} dimension={given.dimension} stride={given.stride}}}"
             for side, given in sides]
    return "{" + " ".join(texts) + "}" if texts else None


def _write_sparsity(proto: Any, value: str, _: Writing) -> None:
    if not _SPARSITY.fullmatch(value):
        raise InvalidArgument("invalid sparsity of a convolution", got=value,
                              expected="{lhs={sparsity=2x4 dimension=1 stride=1}}, or of rhs, or both")
    for side, text in re.findall(r"(lhs|rhs)=\{([^{}]*)", value):
        into = getattr(proto.sparsity_config, side)
        into.SetInParent()
        for field, number in re.findall(r"(dimension|stride)=(\S+)", text):
            setattr(into, field, int(number))
        for count, block in re.findall(r"sparsity=(\d+)x(\d+)", text):
            into.num_non_zero, into.block_size = int(count), int(block)


def _read_outfeed_shape(proto: Any, reading: Reading) -> str | None:
    return reading.shapes.read(proto.outfeed_shape).to_text() if proto.HasField("outfeed_shape") else None


def _write_outfeed_shape(proto: Any, value: str, _: Writing) -> None:
    write_shape(Shape.parse(value), proto.outfeed_shape)


# --------------------------------------------------------------------------------------------------- single attributes


def _read_constant(proto: Any, reading: Reading) -> Literal | None:
    """A constant's literal; one that was left out of the file is known by its shape only."""
    if proto.HasField("literal"):
        return read_literal(proto.literal, reading.blobs, reading.shapes)
    return reading.elided() if reading.schema.opcode == CONSTANT else None


def _write_constant(proto: Any, value: Literal, writing: Writing) -> None:
    if not value.elided:
        write_literal(value, writing.literal_shape(value), proto.literal, writing.blobs)


def _read_comparison_type(proto: Any, reading: Reading) -> str | None:
    """How values are compared, where it is not as the operands' type says. XLA writes it always, and prints it only then. From
    jaxlib 0.12 on it writes whether the order is total, which says nothing of integers."""
    kind = reading.operands[0].shape.element_type if reading.operands else None
    if proto.comparison_order:
        return "TOTALORDER" if proto.comparison_order == "TOTAL" and kind and kind.is_floating else None
    usual = "SIGNED" if kind and kind.is_signed else "FLOAT" if kind and kind.is_differentiable else "UNSIGNED"
    return None if proto.comparison_type in ("", usual) else proto.comparison_type


def _read_channel(proto: Any, _: Reading) -> int | None:
    number = proto.channel_id or proto.all_reduce_id
    return number if number > 0 else None


def _write_mode(proto: Any, value: Any, writing: Writing) -> None:
    attributes = writing.instruction.attributes
    if value != group_mode(attributes.get("channel_id"), attributes.get("use_global_device_ids", False)):
        raise InvalidArgument("HLO protos do not hold the mode of a collective", got=f"mode={value}",
                              hint="use channel_id and use_global_device_ids, as older HLO does")


def _read_prefetch(proto: Any, _: Reading) -> int | None:
    if proto.HasField("cross_program_prefetch_index"):
        return proto.cross_program_prefetch_index
    return 0 if proto.is_cross_program_prefetch else None


def _read_dimensions(proto: Any, reading: Reading) -> tuple[int, ...] | None:
    """Dimensions; of an exchange that has none they are not given."""
    values = tuple(proto.dimensions)
    return values if values or not reading.schema.exchange else None


def _positive(field: str) -> Link:
    """A count, for which 0 stands for 1."""
    return Link(lambda proto, _: value if (value := getattr(proto, field)) > 1 else None,
                lambda proto, value, _: setattr(proto, field, value))


def _read_to_apply(proto: Any, reading: Reading) -> Computation | None:
    """The one computation; an op that may have several (`called_computations`) does not have it as well."""
    return None if "called_computations" in reading.schema.attributes else _called(0).read(proto, reading)


def _write_lower(proto: Any, value: bool, writing: Writing) -> None:
    is_solve = "left_side" in writing.schema.attributes
    options = proto.triangular_solve_options if is_solve else proto.cholesky_options
    options.SetInParent()
    options.lower = value


_CALLS, _ALL_CALLED = _called(0), Link(_read_all_called, _write_all_called)
_GATHER, _SCATTER = "gather_dimension_numbers", "scatter_dimension_numbers"

_LINKS: dict[str, Link] = {
    "algorithm": _within("precision_config", _word("algorithm", _DOT_ALGORITHMS)),
    "algorithm:ChoiceCodec": _word("rng_algorithm", ("rng_default", "rng_three_fry", "rng_philox"), default=-1),
    "api_version": _word("custom_call_api_version", (
        "API_VERSION_UNSPECIFIED", "API_VERSION_ORIGINAL", "API_VERSION_STATUS_RETURNING",
        "API_VERSION_STATUS_RETURNING_UNIFIED", "API_VERSION_TYPED_FFI"), default=1),
    "async_execution_thread": Link(_read_thread, lambda proto, value, _: setattr(proto, "async_execution_thread", value)),
    "batch_group_count": _positive("batch_group_count"),
    "body": _called(0),
    "branch_computations": Link(_read_branches, _write_all_called),
    "called_computations": _ALL_CALLED,
    "calls": _CALLS,
    "channel_id": Link(_read_channel, lambda proto, value, _: setattr(proto, "channel_id", value)),
    "collapsed_slice_dims": _within(_GATHER, _list("collapsed_slice_dims")),
    "condition": _called(1),
    "constrain_layout": _scalar("constrain_layout", False),
    "convolution_kind": _word("conv_kind", ("unset", "fprop", "dgrad", "wgrad")),
    "cross_program_prefetch_index": Link(_read_prefetch,
                                         lambda proto, value, _: setattr(proto, "cross_program_prefetch_index", value)),
    "custom_call_has_side_effect": _scalar("custom_call_has_side_effect", False),
    "custom_call_target": _scalar("custom_call_target"),
    "delta": _scalar("delta"),
    "dim_labels": Link(read_dim_labels, write_dim_labels),
    "dimensions": Link(_read_dimensions, lambda proto, value, _: proto.dimensions.extend(value)),
    "direction": _scalar("comparison_direction"),
    "distribution": _word("distribution", ("", "rng_uniform", "rng_normal")),
    "domain": Link(_read_domain, _write_domain),
    "dynamic_slice_sizes": _list("dynamic_slice_sizes"),
    "epsilon": _scalar("epsilon"),
    "exponent_bits": _scalar("exponent_bits"),
    "false_computation": _branch(1),
    "feature_group_count": _positive("feature_group_count"),
    "feature_index": _scalar("feature_index"),
    "fft_length": _list("fft_length"),
    "fft_type": _word("fft_type", ("FFT", "IFFT", "RFFT", "IRFFT"), default=-1),
    "index": _scalar("tuple_index"),
    "index_vector_dim": Link(lambda proto, _: _index_vector(proto).index_vector_dim, _write_index_vector),
    "indices_are_sorted": _scalar("indices_are_sorted", False),
    "infeed_config": _text("infeed_config"),
    "inferred_dimension": _first("dimensions"),
    "input_batching_dims": _within(_SCATTER, _list("input_batching_dims", always=False)),
    "inserted_window_dims": _within(_SCATTER, _list("inserted_window_dims")),
    "iota_dimension": _first("dimensions"),
    "is_associative": _word("is_associative", (None, True, False)),
    "is_composite": _scalar("is_composite", False),
    "is_host_transfer": _scalar("is_host_transfer", False),
    "is_reverse": _scalar("is_reverse", False),
    "is_stable": _scalar("is_stable", False),
    "k": _scalar("k"),
    "kind": _scalar("fusion_kind", ""),
    "largest": _scalar("largest"),
    "left_side": _within("triangular_solve_options", _scalar("left_side")),
    "lhs_batch_dims": _dot("lhs_batch_dimensions"),
    "lhs_contracting_dims": _dot("lhs_contracting_dimensions"),
    "lhs_ragged_dims": _within("ragged_dot_dimension_numbers", _list("lhs_ragged_dimensions")),
    "literal": Link(_read_constant, _write_constant),
    "lower": Link(lambda proto, _: proto.triangular_solve_options.lower or proto.cholesky_options.lower or None,
                  _write_lower),
    "mantissa_bits": _scalar("mantissa_bits"),
    "has_dynamic_root": Link(lambda proto, _: None, lambda proto, value, _: None),  # what is true is refused (`opcodes`)
    "mode": Link(lambda proto, _: None, _write_mode),
    "num_carries": _scalar("num_carries"),
    "offset_dims": _within(_GATHER, _list("offset_dims")),
    "operand_batching_dims": _within(_GATHER, _list("operand_batching_dims", always=False)),
    "operand_layout_constraints": Link(_read_layouts, _write_layouts),
    "operand_precision": Link(read_precision, write_precision),
    "outfeed_config": _text("outfeed_config"),
    "outfeed_shape": Link(_read_outfeed_shape, _write_outfeed_shape),
    "output_to_operand_aliasing": Link(_read_aliasing, _write_aliasing),
    "padding": Link(read_padding, write_padding),
    "padding_type": _word("padding_type", ("PADDING_INVALID", "PADDING_VALID", "PADDING_SAME")),
    "parameter_number": _scalar("parameter_number"),
    "replica_groups": Link(read_groups, write_groups),
    "result_accuracy": Link(read_accuracy, write_accuracy),
    "result_layout": Link(lambda proto, _: None, lambda proto, value, _: None),
    "rhs_batch_dims": _dot("rhs_batch_dimensions"),
    "rhs_contracting_dims": _dot("rhs_contracting_dimensions"),
    "rhs_group_dims": _within("ragged_dot_dimension_numbers", _list("rhs_group_dimensions", always=False)),
    "scatter": _called(1),
    "scatter_dims_to_operand_dims": _within(_SCATTER, _list("scatter_dims_to_operand_dims")),
    "scatter_indices_batching_dims": _within(_SCATTER, _list("scatter_indices_batching_dims", always=False)),
    "schedule": _word("custom_call_schedule", ("SCHEDULE_NONE", "SCHEDULE_LATEST", "SCHEDULE_EARLIEST")),
    "select": _called(0),
    "slice": Link(read_slice, write_slice),
    "slice_sizes": _list("gather_slice_sizes"),
    "slice_sizes:PairsCodec": Link(lambda proto, _: tuple((size,) for size in proto.dynamic_slice_sizes) or None,
                                   lambda proto, value, _: proto.dynamic_slice_sizes.extend(s for sizes in value for s in sizes)),
    "source_target_pairs": Link(read_pairs, write_pairs),
    "sparsity_config": Link(_read_sparsity, _write_sparsity),
    "start_index_map": _within(_GATHER, _list("start_index_map")),
    "start_indices_batching_dims": _within(_GATHER, _list("start_indices_batching_dims", always=False)),
    "to_apply": Link(_read_to_apply, _called(0).write),
    "transpose_a": _within("triangular_solve_options", _word("transpose_a", ("", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"))),
    "true_computation": _branch(0),
    "type": Link(_read_comparison_type, lambda proto, value, _: setattr(proto, "comparison_type", value)),
    "unique_indices": _scalar("unique_indices", False),
    "unit_diagonal": _within("triangular_solve_options", _scalar("unit_diagonal")),
    "update_window_dims": _within(_SCATTER, _list("update_window_dims")),
    "use_global_device_ids": _scalar("use_global_device_ids", False),
    "window": Link(read_window, write_window),
}
