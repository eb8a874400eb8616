"""Rules: operations on quantized types (``!quant.uniform<i8:f32, 0.5:3>``), in terms of storage integers and floats.

Arrays of quantized type are arrays of the storage type. As the StableHLO specification has it, with ``x`` the stored integer and
one scale and zero point for the tensor, one pair for each slice of an axis, or one for each block (sub-channel):

- ``dequantize(x) = (x - zero_point) * scale``, and ``quantize(f) = round_nearest_even(clamp(storage_min, f / scale +
  zero_point, storage_max))``, computed in the expressed type. `uniform_quantize` of a quantized operand does both.
- Operations that only move elements, and those that hand them to a region, a function or another participant, work on the
  storage. A region is a small program of quantized types itself; where it takes another type than the operands have, these are
  quantized anew.
- A product of a float and a quantized array dequantizes the latter (weight-only quantization).
- All others dequantize, compute and quantize. The specification leaves to implementations how: products and convolutions
  sum centred integers, exactly, and comparisons and choices between elements of one and the same type need not leave the storage
  at all.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from ..core.errors import InvalidArgument, UnsupportedError
from ..core.types import F32, F64, S32, S64, PrimitiveType
from ..functions.comparison import Clamp
from ..functions.convert import ConvertElementType
from ..functions.elementwise import RoundNearestEven
from ..functions.elementwise_binary import Add, Div, Mul, Sub
from ..functions.hlo_builder import XlaOp
from ..functions.movement import BroadcastInDim, Reshape
from ..mlir.ir import Operation, Quantized, Tensor, Value
from . import reading_rules
from .attributes import fields
from .reading_rules import QUANTIZED, Results, rule
from .scope import Scope, only_block, unknown

Types = Sequence[Quantized | None]


def _ops(names: str) -> frozenset[str]:
    """Operations of StableHLO by their names in the dialect."""
    return frozenset(f"stablehlo.{name}" for name in names.split())


_MOVES = _ops("""
    all_gather all_reduce all_to_all async_done async_start bitcast_convert broadcast broadcast_in_dim case
    collective_broadcast collective_permute composite concatenate constant cross-replica-sum custom_call
    dynamic_broadcast_in_dim dynamic_gather dynamic_pad dynamic_reshape dynamic_slice dynamic_update_slice gather
    get_dimension_size get_tuple_element if infeed map optimization_barrier outfeed pad real_dynamic_slice recv
    reduce reduce_scatter reduce_window reshape return reverse scatter select_and_scatter send set_dimension_size
    slice sort torch_index_select transpose tuple while
""")
"""Operations that work on the storage as it is."""

_CHOICES = _ops("clamp compare maximum minimum select")
"""Operations that only choose between elements, or compare them: among elements of one type the stored integers do as well."""

_CONVERSIONS = _ops("uniform_quantize uniform_dequantize")
_CONVOLUTIONS = _ops("convolution dynamic_conv")
_CONTRACTIONS = _CONVOLUTIONS | _ops("dot_general dot")

_PROMOTED: dict[str, Callable[[int, int], int | None]] = {
    "stablehlo.reduce": lambda operand, count: operand % count,
    "stablehlo.reduce_window": lambda operand, count: operand % count,
    "stablehlo.all_reduce": lambda operand, count: operand,
    "stablehlo.reduce_scatter": lambda operand, count: operand,
    "stablehlo.scatter": lambda operand, count: None if operand == count else operand % (count + 1),
    "stablehlo.select_and_scatter": lambda operand, count: 0,
}
"""An operand's number and the number of results -> the result whose element type the region takes for this operand."""


@rule(QUANTIZED)
def quantized(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    """An operation of which an operand or result is quantized. The operands are the stored integers."""
    name = _stablehlo_name(operation)
    types, results = [_type(v) for v in operation.operands], [_type(v) for v in operation.results]
    if name in _CONVERSIONS:
        return _converted(operation, operands[0], types[0], results[0])
    if name in _PROMOTED:
        return scope.rest(operation, _promoted(operation, name, operands, types, results))
    if not name.startswith(("stablehlo.", "chlo.")) or name in _MOVES:
        return scope.rest(operation, operands)
    if name in _CHOICES and len({q for q in (*types, *results) if q}) == 1:
        return scope.rest(_without(operation, "compare_type"), operands)
    if name in _CONTRACTIONS and all((*types[:2], *results)):
        found = _contracted(scope, operation, operands, types, results)
        if found is not None:
            return found
    return _in_floats(scope, operation, operands, types, results)


def _stablehlo_name(operation: Operation) -> str:
    name = operation.name
    return "stablehlo." + name[5:] if name.startswith("mhlo.") and name not in reading_rules.RULES else name


def _type(value: Value) -> Quantized | None:
    """The quantized element type of a value, None for all other types."""
    return value.type.element if isinstance(value.type, Tensor) and isinstance(value.type.element, Quantized) else None


def _converted(operation: Operation, value: XlaOp, source: Quantized | None, to: Quantized | None) -> XlaOp:
    """`uniform_quantize`, also of a quantized operand, and `uniform_dequantize`."""
    if source is not None:
        value = dequantize(value, source)
    if to is not None:
        return quantize(value, to)
    return value


def _promoted(operation: Operation, name: str, operands: Sequence[XlaOp], types: Types, results: Types) -> list[XlaOp]:
    """The operands in the quantized types of the region. Raises UnsupportedError where the region that chooses has another type
    than the one that adds up: the choice is then no choice among stored integers."""
    if name == "stablehlo.select_and_scatter":
        chosen = _type(only_block(operation.regions[0]).arguments[0])
        if chosen != results[0]:
            raise UnsupportedError("the region that selects takes other elements than the result has", got=chosen,
                                   expected=results[0])
    made = list(operands)
    for number, (operand, own) in enumerate(zip(operands, types, strict=True)):
        result = _PROMOTED[name](number, len(results))
        to = None if result is None else results[result]
        if to is not None and own != to:
            made[number] = quantize(operand if own is None else dequantize(operand, own), to)
    return made


def _in_floats(scope: Scope, operation: Operation, operands: Sequence[XlaOp], types: Types, results: Types) -> Results:
    """Dequantize the operands, compute, quantize the results."""
    floats = [o if q is None else dequantize(o, q) for o, q in zip(operands, types, strict=True)]
    expressed = [None if q is None else q.expressed for q in results]
    made = _own(scope, _with_results(_without(operation, "compare_type"), expressed), floats)
    return [m if q is None else quantize(m, q) for m, q in zip(made, results, strict=True)]


def _own(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> list[XlaOp]:
    """What the operation's own rule gives."""
    own = reading_rules.find(operation.name)
    if own is None:
        raise unknown(operation)
    made = own(scope, operation, operands)
    return [made] if isinstance(made, XlaOp) else list(made)


def _with_results(operation: Operation, elements: Sequence[PrimitiveType | None]) -> Operation:
    """The operation with other elements in its results, where any are given."""
    types = [r.type if e is None else dataclasses.replace(r.type, element=e)  # pyright: ignore[reportArgumentType]
             for r, e in zip(operation.results, elements, strict=True)]
    return Operation(operation.name, operation.operands, types, operation.attributes, operation.regions, operation.location,
                     operation.line, operation.column)


def _without(operation: Operation, attribute: str) -> Operation:
    if attribute not in operation.attributes:
        return operation
    kept = {k: v for k, v in operation.attributes.items() if k != attribute}
    return Operation(operation.name, operation.operands, [r.type for r in operation.results], kept, operation.regions,
                     operation.location, operation.line, operation.column)


# ------------------------------------------------------------------------------------------- products and convolutions


def _contracted(scope: Scope, operation: Operation, operands: Sequence[XlaOp], types: Types, results: Types) -> Results | None:
    """Sum products of centred integers exactly, and scale the sums. None where no type holds the sums, or the scale is not the
    same in all terms of one."""
    lhs, rhs, result = types[0], types[1], results[0]
    assert lhs is not None
    assert rhs is not None
    assert result is not None
    channel = _output_axis(operation, operands, rhs)
    own = _channel_of(result)
    sums_in = _type_for_sums(lhs.storage.bits + rhs.storage.bits + _summed(operation, operands).bit_length(), result)
    if _channel_of(lhs) != -1 or channel is None or own is None or own not in (-1, channel) or sums_in is None:
        return None
    centred = [_centred(o, q, sums_in) for o, q in zip(operands, (lhs, rhs), strict=False)]
    (sums,) = _own(scope, _with_results(operation, [sums_in]), [*centred, *operands[2:]])
    # One factor does for all three scales.
    count = max(len(rhs.scales), len(result.scales))
    pairs = zip(rhs.scales * (count // len(rhs.scales)), result.scales * (count // len(result.scales)), strict=True)
    factors = [lhs.scales[0] * of_rhs / of_result for of_rhs, of_result in pairs]
    axes, block = ((channel,), (1,)) if count > 1 else ((), ())
    scaled = _with(Mul, sums, factors, dataclasses.replace(result, axes=axes, block=block), neutral=1)
    return _rounded(scaled, result)


def _channel_of(of: Quantized) -> int | None:
    """The axis along which parameters differ; -1 where there is none, None where there are blocks."""
    if not of.axes:
        return -1
    return of.axes[0] if len(of.axes) == 1 and of.block in ((), (1,)) else None


def _type_for_sums(bits: int, result: Quantized) -> PrimitiveType | None:
    """A float type in which integers of so many bits are exact (torch and the devices multiply matrices of floats fast,
    those of integers slowly or not at all); None if there is none."""
    if bits <= 24 and result.expressed is not F64:
        return F32
    return F64 if bits <= 53 else None


def _output_axis(operation: Operation, operands: Sequence[XlaOp], rhs: Quantized) -> int | None:
    """The result's dimension that comes from the quantized dimension of the second operand; -1 where that has none, None
    where the dimension is summed over, or has blocks."""
    axis = _channel_of(rhs)
    if axis is None or axis == -1:
        return axis
    if _stablehlo_name(operation) in _CONVOLUTIONS:
        numbers = fields(operation, "dimension_numbers")
        same = axis == numbers.get("kernel_output_feature_dimension", 0)
        return numbers.get("output_feature_dimension", 0) if same else None
    lhs_rank, rhs_rank = (o.shape.rank for o in operands[:2])
    batch, summed = _rhs_dimensions(operation)
    if axis in batch:
        return batch.index(axis)
    free = [d for d in range(rhs_rank) if d not in batch and d not in summed]
    return lhs_rank - len(summed) + free.index(axis) if axis in free else None


def _rhs_dimensions(operation: Operation) -> tuple[list[int], list[int]]:
    """Batch and summed dimensions of the second operand of a product."""
    if _stablehlo_name(operation) == "stablehlo.dot":
        return [], [0]
    numbers = fields(operation, "dot_dimension_numbers")
    return list(numbers.get("rhs_batching_dimensions", ())), list(numbers.get("rhs_contracting_dimensions", ()))


def _summed(operation: Operation, operands: Sequence[XlaOp]) -> int:
    """How many products are summed for one element of the result; 2^16 where that is not known."""
    shape = operands[1].shape
    if _stablehlo_name(operation) in _CONVOLUTIONS:
        numbers = fields(operation, "dimension_numbers")
        summed = [*numbers.get("kernel_spatial_dimensions", ()), numbers.get("kernel_input_feature_dimension", 0)]
    else:
        summed = _rhs_dimensions(operation)[1]
    sizes = [shape.dimensions[d] for d in summed]
    return 1 << 16 if any(n < 0 for n in sizes) else math.prod(sizes)


# -------------------------------------------------------------------------------------------------------- arithmetic


def dequantize(stored: XlaOp, of: Quantized) -> XlaOp:
    """Stored integers as values of the expressed type."""
    centred = _centred(stored, of, S32 if of.storage.bits <= 16 else S64)
    return _with(Mul, _as(centred, of.expressed), of.scales, of, neutral=1)


def quantize(value: XlaOp, to: Quantized) -> XlaOp:
    """Floats as stored integers of a quantized type."""
    return _rounded(_with(Div, _as(value, to.expressed), to.scales, to, neutral=1), to)


def _centred(stored: XlaOp, of: Quantized, element: PrimitiveType) -> XlaOp:
    """Stored integers less the zero point, in an element type that holds the difference."""
    return _with(Sub, _as(stored, element), of.zero_points, of, neutral=0)


def _rounded(scaled: XlaOp, to: Quantized) -> XlaOp:
    """Floats in steps of the scale as stored integers. Which float type they have does not matter."""
    shifted = _with(Add, scaled, to.zero_points, to, neutral=0)
    clamped = Clamp(float(to.low), shifted, float(to.high))
    return _as(RoundNearestEven(clamped), to.storage)


def _as(value: XlaOp, element: PrimitiveType) -> XlaOp:
    return value if value.element_type is element else ConvertElementType(value, element)


def _with(function: Callable[..., XlaOp], value: XlaOp, parameters: Sequence[float], of: Quantized, neutral: float) -> XlaOp:
    """`value` combined with one parameter, with one for each slice of an axis, or with one for each block."""
    if all(p == neutral for p in parameters):
        return value
    numbers = np.array(parameters, value.element_type.numpy)
    if not of.axes or len(parameters) == 1:
        return function(value, value.builder.constant(numbers.reshape(-1)[0], value.element_type))
    sizes = [value.shape.dimensions[d] for d in of.axes]
    blocks = [n // b if b else 0 for n, b in zip(sizes, of.block or (1,) * len(sizes), strict=True)]
    if math.prod(blocks) != len(parameters) or any(n % max(b, 1) for n, b in zip(sizes, of.block, strict=False)):
        raise InvalidArgument("the quantized type does not fit the array", got=f"{len(parameters)} scales for {value.shape}",
                              expected=f"{math.prod(blocks)}, one for each block of {of.block} along dimensions {of.axes}")
    order = sorted(range(len(of.axes)), key=of.axes.__getitem__)
    placed = value.builder.constant(np.ascontiguousarray(numbers.reshape(blocks).transpose(order)), value.element_type)
    axes, sizes, blocks = ([given[k] for k in order] for given in (list(of.axes), sizes, blocks))
    if blocks != sizes:  # each parameter for all elements of its block
        apart = [n for blocks_along, size in zip(blocks, sizes, strict=True) for n in (blocks_along, size // blocks_along)]
        placed = Reshape(BroadcastInDim(placed, apart, range(0, len(apart), 2)), sizes)
    return function(value, placed, axes if len(axes) < value.shape.rank else ())
