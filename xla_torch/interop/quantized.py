"""StableHLO's quantized types (``!quant.uniform<i8:f32, 0.5:3>``) in terms of what XLA has: storage integers and floats.

XLA's HLO has no quantized types, so a program that uses them is rewritten, in place, before it is converted. Parameters,
results and constants of quantized type become arrays of the storage type. As the StableHLO specification has it, with
``x`` the stored integer and one scale and zero point for the tensor or one pair for each slice of an axis:

- ``dequantize(x) = (x - zero_point) * scale``, and ``quantize(f) = round_nearest_even(clamp(storage_min, f / scale +
  zero_point, storage_max))``, computed in the expressed type. `uniform_quantize` of a quantized operand does both.
- Ops that only move elements, and those that hand them to a region, a function or another participant, work on the
  storage. A region is a small program of quantized types itself.
- A product of a float and a quantized array dequantizes the latter (weight-only quantization).
- All others dequantize, compute and quantize. The specification leaves to implementations how: products and convolutions
  sum centred integers, exactly, and comparisons and choices between elements of one and
  the same type need not leave the storage at all.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from ..errors import UnsupportedError
from .modules import operations

_ELEMENT = re.compile(r"!quant\.uniform<([iu])(\d+)(?:<(-?\d+):(-?\d+)>)?:(\w+)(?::(\d+))?, ([^<>]*)>")

# ------------------------------------------------------------------------------------------------------- types


@dataclasses.dataclass(frozen=True)
class Quantized:
    """A quantized element type. `axis` is None where one scale and zero point stand for the whole tensor."""

    signed: bool
    bits: int
    low: int
    high: int
    expressed: str
    axis: int | None
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]

    @property
    def storage(self) -> Any:
        """The MLIR type of stored elements."""
        return ir.IntegerType.get_signless(self.bits) if self.signed else ir.IntegerType.get_unsigned(self.bits)

    @property
    def float_type(self) -> Any:
        """The expressed type in MLIR."""
        return ir.Type.parse(self.expressed)


def quantized_type(of: Any) -> Quantized | None:
    """The quantized element type of a tensor type, None for all other types. Raises UnsupportedError for those that the
    StableHLO specification does not have (parameters for blocks, or unknown ones)."""
    if not isinstance(of, ir.RankedTensorType):
        return None
    text = str(of.element_type)
    if not text.startswith("!quant."):
        return None
    match = _ELEMENT.fullmatch(text)
    if match is None:
        raise UnsupportedError("a quantized type that StableHLO does not have", subject="StableHLO", got=text,
                               expected="!quant.uniform with parameters for the tensor or for one axis")
    kind, width, low, high, expressed, axis, parameters = match.groups()
    bits = int(width)
    least = -(1 << (bits - 1)) if kind == "i" else 0
    pairs = [p.strip().partition(":") for p in parameters.strip("{}").split(",")]
    return Quantized(kind == "i", bits, int(low or least), int(high or least + (1 << bits) - 1), expressed,
                     None if axis is None else int(axis), tuple(float(s) for s, _, _ in pairs),
                     tuple(int(z or 0) for _, _, z in pairs))


def _stored(of: Any) -> Any:
    """A type with storage types for its quantized ones."""
    if isinstance(of, ir.RankedTensorType):
        quantized = quantized_type(of)
        return of if quantized is None else _with_elements(of, quantized.storage)
    if isinstance(of, ir.TupleType):
        return ir.TupleType.get_tuple([_stored(of.get_type(i)) for i in range(of.num_types)])
    if isinstance(of, ir.FunctionType):
        return ir.FunctionType.get([_stored(t) for t in of.inputs], [_stored(t) for t in of.results])
    return of


def _with_elements(of: Any, element: Any) -> Any:
    return ir.RankedTensorType.get(of.shape, element, of.encoding)


# --------------------------------------------------------------------------------------------------- the rewriting

_Types = Sequence[Quantized | None]


def remove_quantized_types(module: Any) -> None:
    """Rewrite an MLIR module so that no quantized types are left. Raises UnsupportedError for quantized types that StableHLO
    does not have."""
    everything = operations(module)
    found = [([quantized_type(v.type) for v in o.operands], [quantized_type(r.type) for r in o.results]) for o in everything]
    _store(everything)
    for operation, (operands, results) in zip(everything, found, strict=True):
        if any(operands) or any(results):
            with operation.location, ir.InsertionPoint(operation):
                _rule(operation, operands, results)(operation, operands, results)


def _store(everything: Sequence[Any]) -> None:
    """Give all values and functions storage types."""
    for operation in everything:
        arguments = [a for region in operation.regions for block in region.blocks for a in block.arguments]
        for value in (*operation.results, *arguments):
            value.set_type(_stored(value.type))
        if "function_type" in operation.attributes:
            signature = operation.attributes["function_type"].value
            operation.attributes["function_type"] = ir.TypeAttr.get(_stored(signature))


def _rule(operation: Any, operands: _Types, results: _Types) -> Callable[[Any, _Types, _Types], None]:
    """How an op with quantized operands or results is rewritten."""
    dialect, _, name = operation.name.partition(".")
    if dialect != "stablehlo" or name in _MOVES:
        return _keep
    if name in ("uniform_quantize", "uniform_dequantize"):
        return _convert
    if name in _CHOICES and len({q for q in (*operands, *results) if q}) == 1:
        return _compare_stored if name == "compare" else _keep
    if name in ("dot_general", "dot", "convolution", "dynamic_conv") and all((*operands[:2], *results)):
        return _contract
    return _in_floats


_MOVES = frozenset((
    "all_gather", "all_reduce", "all_to_all", "async_done", "async_start", "bitcast_convert", "broadcast", "broadcast_in_dim",
    "case", "collective_broadcast", "collective_permute", "composite", "concatenate", "constant", "cross-replica-sum",
    "custom_call", "dynamic_broadcast_in_dim", "dynamic_gather", "dynamic_pad", "dynamic_reshape", "dynamic_slice",
    "dynamic_update_slice", "gather", "get_dimension_size", "get_tuple_element", "if", "infeed", "map", "optimization_barrier",
    "outfeed", "pad", "real_dynamic_slice", "recv", "reduce", "reduce_scatter", "reduce_window", "reshape", "return",
    "reverse", "scatter", "select_and_scatter", "send", "set_dimension_size", "slice", "sort", "torch_index_select",
    "transpose", "tuple", "while",
))
"""Ops that work on the storage as it is."""

_CHOICES = frozenset(("clamp", "compare", "maximum", "minimum", "select"))
"""Ops that only choose between elements, or compare them: among elements of one type the stored integers do as well."""


def _keep(operation: Any, operands: _Types, results: _Types) -> None:
    """Storage in, storage out."""


def _compare_stored(operation: Any, operands: _Types, results: _Types) -> None:
    if "compare_type" in operation.attributes:
        kind = "SIGNED" if operands[0] is None or operands[0].signed else "UNSIGNED"
        operation.attributes["compare_type"] = ir.Attribute.parse(f"#stablehlo<comparison_type {kind}>")


def _convert(operation: Any, operands: _Types, results: _Types) -> None:
    value = operation.operands[0]
    if operands[0] is not None:
        value = dequantize(value, operands[0])
    if results[0] is not None:
        value = quantize(value, results[0])
    operation.results[0].replace_all_uses_with(value)
    operation.erase()


def _in_floats(operation: Any, operands: _Types, results: _Types) -> None:
    """Dequantize the operands, compute, quantize the results."""
    for number, quantized in enumerate(operands):
        if quantized is not None:
            operation.operands[number] = dequantize(operation.operands[number], quantized)
    if "compare_type" in operation.attributes:
        operation.attributes["compare_type"] = ir.Attribute.parse("#stablehlo<comparison_type FLOAT>")
    for result, quantized in zip(operation.results, results, strict=True):
        if quantized is not None:
            result.set_type(_with_elements(result.type, quantized.float_type))
            _replace_result(operation, result, lambda value, to=quantized: quantize(value, to))


def _replace_result(operation: Any, result: Any, change: Callable[[Any], Any]) -> None:
    """Let `change(result)`, made behind the op, stand wherever the result stood."""
    uses = [(use.owner, use.operand_number) for use in result.uses]
    with ir.InsertionPoint.after(operation):
        changed = change(result)
    for owner, number in uses:
        owner.operands[number] = changed


# ------------------------------------------------------------------------------------------- products and convolutions


def _contract(operation: Any, operands: _Types, results: _Types) -> None:
    """Sum products of centred integers exactly, and scale the sums. As other ops where no type holds the sums, or the scale
    is not the same in all terms of one."""
    lhs, rhs, result = operands[0], operands[1], results[0]
    assert lhs is not None
    assert rhs is not None
    assert result is not None
    channel = _output_axis(operation, rhs)
    sums_in = _type_for_sums(lhs.bits + rhs.bits + _summed(operation).bit_length(), result)
    if lhs.axis is not None or channel is None or result.axis not in (None, channel) or sums_in is None:
        _in_floats(operation, operands, results)
        return
    for number, quantized in enumerate((lhs, rhs)):
        operation.operands[number] = _centred(operation.operands[number], quantized, sums_in)
    sums = operation.results[0]
    sums.set_type(_with_elements(sums.type, sums_in))
    _replace_result(operation, sums, lambda value: _rescaled(value, lhs, rhs, result, channel))


def _type_for_sums(bits: int, result: Quantized) -> Any:
    """A float type in which integers of so many bits are exact (torch and the devices multiply matrices of floats fast,
    those of integers slowly or not at all); None if there is none."""
    if bits <= 24 and result.expressed != "f64":
        return ir.F32Type.get()
    return ir.F64Type.get() if bits <= 53 else None


def _rescaled(sums: Any, lhs: Quantized, rhs: Quantized, result: Quantized, channel: int) -> Any:
    """Sums of products as the result type, along whose dimension `channel` the parameters may differ. One factor does for
    all three scales."""
    count = max(len(rhs.scales), len(result.scales))
    pairs = zip(rhs.scales * (count // len(rhs.scales)), result.scales * (count // len(result.scales)), strict=True)
    factors = [lhs.scales[0] * of_rhs / of_result for of_rhs, of_result in pairs]
    return _rounded(_with_parameters("multiply", sums, factors, channel), result)


def _output_axis(operation: Any, rhs: Quantized) -> int | None:
    """The result's dimension that comes from the quantized dimension of the second operand; -1 where that has none, None
    where the dimension is summed over."""
    if rhs.axis is None:
        return -1
    if _name(operation) in ("convolution", "dynamic_conv"):
        numbers = stablehlo.ConvDimensionNumbers(operation.attributes["dimension_numbers"])
        return numbers.output_feature_dimension if rhs.axis == numbers.kernel_output_feature_dimension else None
    lhs_rank, rhs_rank = (v.type.rank for v in operation.operands)
    batch, summed = ([], [0]) if _name(operation) == "dot" else _rhs_dimensions(operation)
    if rhs.axis in batch:
        return batch.index(rhs.axis)
    free = [d for d in range(rhs_rank) if d not in batch and d not in summed]
    return lhs_rank - len(summed) + free.index(rhs.axis) if rhs.axis in free else None


def _rhs_dimensions(operation: Any) -> tuple[list[int], list[int]]:
    numbers = stablehlo.DotDimensionNumbers(operation.attributes["dot_dimension_numbers"])
    return list(numbers.rhs_batching_dimensions), list(numbers.rhs_contracting_dimensions)


def _summed(operation: Any) -> int:
    """How many products are summed for one element of the result; 2^16 where that is not known."""
    shape = operation.operands[1].type
    if _name(operation) in ("convolution", "dynamic_conv"):
        numbers = stablehlo.ConvDimensionNumbers(operation.attributes["dimension_numbers"])
        summed = [*numbers.kernel_spatial_dimensions, numbers.kernel_input_feature_dimension]
    else:
        summed = [0] if _name(operation) == "dot" else _rhs_dimensions(operation)[1]
    if any(shape.is_dynamic_dim(d) for d in summed):
        return 1 << 16
    return math.prod(shape.get_dim_size(d) for d in summed)


# -------------------------------------------------------------------------------------------------------- arithmetic


def dequantize(stored: Any, of: Quantized) -> Any:
    """Stored integers as values of the expressed type."""
    centred = _centred(stored, of, ir.IntegerType.get_signless(32 if of.bits <= 16 else 64))
    return _with_parameters("multiply", _converted(centred, of.float_type), of.scales, of.axis)


def quantize(value: Any, to: Quantized) -> Any:
    """Floats as stored integers of a quantized type."""
    return _rounded(_with_parameters("divide", _converted(value, to.float_type), to.scales, to.axis), to)


def _centred(stored: Any, of: Quantized, element: Any) -> Any:
    """Stored integers less the zero point, in an element type that holds the difference."""
    return _with_parameters("subtract", _converted(stored, element), of.zero_points, of.axis)


def _rounded(scaled: Any, to: Quantized) -> Any:
    """Floats in steps of the scale as stored integers. Which float type they have does not matter."""
    element = scaled.type.element_type
    shifted = _with_parameters("add", scaled, to.zero_points, to.axis)
    low, high = (_constant([bound], element, []) for bound in (to.low, to.high))
    clamped = _made("stablehlo.clamp", shifted.type, low, shifted, high)
    return _converted(_made("stablehlo.round_nearest_even", shifted.type, clamped), to.storage)


_NEUTRAL = {"subtract": 0, "add": 0, "multiply": 1, "divide": 1}


def _with_parameters(name: str, value: Any, parameters: Sequence[float], axis: int | None) -> Any:
    """`value` combined with one parameter, or with one for each slice of an axis."""
    if all(p == _NEUTRAL[name] for p in parameters):
        return value
    # Ones behind the axis let the parameters broadcast by the rule that aligns last dimensions.
    shape = [] if axis is None or len(parameters) == 1 else [len(parameters), *[1] * (value.type.rank - axis - 1)]
    operands = value, _constant(parameters, value.type.element_type, shape)
    return ir.Operation.create(f"chlo.broadcast_{name}", [value.type], operands).result


def _constant(numbers: Sequence[float], element: Any, shape: Sequence[int]) -> Any:
    of_one: Callable[..., Any] = ir.IntegerAttr.get if isinstance(element, ir.IntegerType) else ir.FloatAttr.get
    values = [of_one(element, n) for n in numbers]
    return stablehlo.ConstantOp(ir.DenseElementsAttr.get(values, ir.RankedTensorType.get(shape, element))).result


def _converted(value: Any, element: Any) -> Any:
    to = _with_elements(value.type, element)
    return value if to == value.type else _made("stablehlo.convert", to, value)


def _made(name: str, to: Any, *operands: Any) -> Any:
    return ir.Operation.create(name, [to], operands).result


def _name(operation: Any) -> str:
    return operation.name.partition(".")[2]
