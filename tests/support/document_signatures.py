"""Every form in which the operation semantics documents print their functions, with what stands for each parameter.

A form is ``documents Name(parameter, parameter=default, ...)``. Documents: 0 is the newest, 1 the oldest, 3 in between. Where
they write ``operands...`` there is a list. ``by name`` marks forms whose order is not the functions' own:

- documents 1 and 3 print ReducePrecision(operand, mantissa_bits, exponent_bits) and list exponent_bits first;
- documents list the fields of dimension numbers as parameters of Gather and Scatter, and dilations as parameters of ReduceWindow
  and ConvWithGeneralPadding.
"""

from __future__ import annotations

import ast
import inspect
from typing import Any, NamedTuple

import xla_torch
from xla_torch import F16, F64, Layout, Shape, XlaBuilder, ops
from xla_torch.hlo.attributes import ResultAccuracy
from xla_torch.hlo.literals.literal import Literal

ACCURATE = ["Cbrt", "Cos", "Cosh", "Erf", "Exp", "Expm1", "Log", "Log1p", "Logistic", "Rsqrt", "Sin", "Sqrt", "Tan", "Tanh"]
UNARY = [*ACCURATE, "Abs", "Ceil", "Clz", "Floor", "Imag", "IsFinite", "LogicalNot", "Neg", "Not", "OptimizationBarrier",
         "PopulationCount", "Real", "Round", "RoundNearestAfz", "RoundNearestEven", "Sign"]
COMPARISONS = ["Eq", "Ge", "Gt", "Le", "Lt", "Ne"]
BINARY = ["Add", "And", "Atan2", "Complex", "Div", "LogicalAnd", "LogicalOr", "Max", "Min", "Mul", "Or", "Pow", "Rem",
          "ShiftLeft", "ShiftRightArithmetic", "ShiftRightLogical", "Sub", "Xor", *COMPARISONS,
          *(f"{name}TotalOrder" for name in COMPARISONS)]
ON_INTEGERS = {"And", "Clz", "LogicalAnd", "LogicalNot", "LogicalOr", "Not", "Or", "PopulationCount", "ShiftLeft",
               "ShiftRightArithmetic", "ShiftRightLogical", "Xor"}

_GROUPS = "replica_groups=(), channel_id=None"
_PRECISION = "precision_config=None, preferred_element_type=None"
_CONV = f"feature_group_count=1, batch_group_count=1, {_PRECISION}"
_WINDOWS = "computation, window_dimensions, window_strides, padding"

FORMS = [
    *(f"0 {name}(operand)" for name in UNARY),
    *(f"0 {name}(operand, result_accuracy=None)" for name in ACCURATE),
    *(f"0 {name}(lhs, rhs, broadcast_dimensions=())" for name in BINARY),
    "0 Compare(lhs, rhs, broadcast_dimensions, direction)", "0 Compare(lhs, rhs, direction)",
    "0 AfterAll(tokens)", "13 AfterAll(operands)", "0 AddDependency(operand, token)", "0 CreateToken()",
    f"0 AllGather(operand, all_gather_dimension, shard_count, {_GROUPS}, layout=None, use_global_device_ids=None)",
    "13 AllGather(operand, all_gather_dim, shard_count, replica_group_ids, channel_id)",
    f"0 AllReduce(operand, computation, {_GROUPS}, shape_with_layout=None, use_global_device_ids=None)",
    "13 AllReduce(operand, computation, replica_group_ids, channel_id)",
    "0 CrossReplicaSum(operand, replica_groups=())",
    "0 AllToAll(operand, split_dimension, concat_dimension, split_count, replica_groups=(), layout=None, channel_id=None)",
    f"0 RaggedAllToAll(input, input_offsets, send_sizes, output, output_offsets, recv_sizes, {_GROUPS})",
    "0 BatchNormGrad(operand, scale, batch_mean, batch_var, grad_output, epsilon, feature_index)",
    "13 BatchNormGrad(operand, scale, mean, variance, grad_output, epsilon, feature_index)",
    "0 BatchNormInference(operand, scale, offset, mean, variance, epsilon, feature_index)",
    "0 BatchNormTraining(operand, scale, offset, epsilon, feature_index)",
    "0 BitcastConvertType(operand, new_element_type)", "0 ConvertElementType(operand, new_element_type)",
    "0 Broadcast(operand, broadcast_sizes)", "0 BroadcastInDim(operand, out_dim_size, broadcast_dimensions)",
    "0 Call(computation, operands)", "13 Call(computation, args)",
    "0 CompositeCall(computation, operands, name, attributes=None, version=None)",
    "3 by name CompositeCall(decomposition, args, name, composite_attributes, version)",
    "0 Cholesky(a, lower)", "0 Clamp(min, operand, max)", "0 Collapse(operand, dimensions)",
    "0 CollectiveBroadcast(operand, replica_groups, channel_id=None)",
    "0 CollectivePermute(operand, source_target_pairs, channel_id=None, inplace=False)",
    "0 ConcatInDim(operands, dimension)", "013 Concatenate(operands, dimension)",
    "0 Conditional(predicate, true_operand, true_computation, false_operand, false_computation)",
    "13 Conditional(pred, true_operand, true_computation, false_operand, false_computation)",
    "0 Conditional(branch_index, branch_computations, branch_operands)",
    "0 Constant(literal)", "0 ConstantLiteral(literal)",
    f"0 Conv(lhs, rhs, window_strides, padding, {_CONV})",
    f"0 ConvWithGeneralPadding(lhs, rhs, window_strides, padding, {_CONV})",
    "13 by name ConvWithGeneralPadding(lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation, feature_group_count, "
    "batch_group_count)",
    f"0 ConvWithGeneralDimensions(lhs, rhs, window_strides, padding, dimension_numbers, {_CONV})",
    f"0 ConvGeneral(lhs, rhs, window_strides, padding, dimension_numbers, {_CONV})",
    f"0 ConvGeneralDilated(lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers, {_CONV}, "
    "window_reversal=None)",
    "0 Copy(operand)",
    "13 CustomCall(target_name, args, shape)",
    "0 CustomCall(call_target_name, operands, shape, opaque='', has_side_effect=False, output_operand_aliasing=(), literal=None, "
    "schedule='SCHEDULE_NONE', api_version='API_VERSION_ORIGINAL')",
    f"0 Dot(lhs, rhs, {_PRECISION})", f"0 DotGeneral(lhs, rhs, dimension_numbers, {_PRECISION})",
    f"0 ScaledDot(lhs, lhs_scale, rhs, rhs_scale, dimension_number, {_PRECISION})",
    "0 ScaledDot(lhs, lhs_scale, rhs, rhs_scale, dimension_numbers)",
    f"0 RaggedDot(lhs, rhs, group_sizes, dimension_numbers, {_PRECISION})",
    "0 DynamicReshape(operand, dim_sizes, new_size_bounds, dims_are_dynamic)",
    "0 DynamicSlice(operand, start_indices, slice_sizes)", "13 DynamicSlice(operand, start_indices, size_indices)",
    "013 DynamicUpdateSlice(operand, update, start_indices)", "0 Fft(operand, fft_type, fft_length)",
    "0 Gather(operand, start_indices, dimension_numbers, slice_sizes, indices_are_sorted=False)",
    "13 by name Gather(operand, start_indices, offset_dims, collapsed_slice_dims, slice_sizes, start_index_map, "
    "index_vector_dim, indices_are_sorted, unique_indices)",
    "0 GetDimensionSize(operand, dimension)", "0 SetDimensionSize(operand, val, dimension)",
    "13 SetDimensionSize(operand, size, dimension)", "0 GetTupleElement(tuple_data, index)",
    "0 Infeed(shape, config='')", "13 Infeed(shape)", "0 InfeedWithToken(token, shape, config='')",
    "0 Iota(shape, iota_dimension)", "0 Map(operands, computation, dimensions, static_operands=())",
    "13 Map(operands, computation)", "0 Outfeed(operand, shape_with_layout, outfeed_config='')",
    "0 OutfeedWithToken(operand, token, shape_with_layout, outfeed_config='')",
    "0 Pad(operand, padding_value, padding_config)", "0 PartitionID(shape)", "0 Recv(shape, handle)",
    "13 Recv(shape, channel_handle)", "0 RecvWithTokens(token, shape, handle)", "0 RecvToHost(token, shape, handle)",
    "0 Reduce(operands, init_values, computation, dimensions_to_reduce)",
    "13 Reduce(operands, init_values, computation, dimensions)",
    "0 Reduce(operand, init_value, computation, dimensions_to_reduce)",
    "0 ReducePrecision(operand, exponent_bits, mantissa_bits)",
    "13 by name ReducePrecision(operand, mantissa_bits, exponent_bits)",
    f"0 ReduceScatter(operand, computation, scatter_dimension, shard_count, {_GROUPS}, layout=None, use_global_device_ids=None)",
    "13 ReduceScatter(operand, computation, scatter_dim, shard_count, replica_group_ids, channel_id)",
    f"013 ReduceWindow(operands, init_values, {_WINDOWS})",
    "013 by name ReduceWindow(operand, init_value, computation, window_dimensions, window_strides, base_dilations, "
    "window_dilations, padding)",
    "0 ReduceWindowWithGeneralPadding(operands, init_values, computation, window_dimensions, window_strides, base_dilations=(), "
    "window_dilations=(), padding=())",
    "0 ReplicaId()", "0 Reshape(operand, dimensions)", "1 by name Reshape(operand, new_sizes)", "0 Reshape(shape, operand)",
    "1 Reshape(operand, dimensions, new_sizes)", "0 Rev(operand, dimensions)",
    "0 RngNormal(mu, sigma, shape)", "0 RngUniform(a, b, shape)", "0 RngBitGenerator(algorithm, initial_state, shape)",
    "13 RngBitGenerator(algorithm, key, shape)",
    "0 Scan(inputs, inits, to_apply, scan_dimension, is_reverse=False, is_associative=None)",
    "0 Scatter(operands, scatter_indices, updates, update_computation, dimension_numbers, indices_are_sorted=False, "
    "unique_indices=False)",
    "0 by name Scatter(operands, scatter_indices, updates, update_computation, dimension_number)",
    "013 by name Scatter(operands, scatter_indices, updates, update_computation, index_vector_dim, update_window_dims, "
    "inserted_window_dims, scatter_dims_to_operand_dims, indices_are_sorted)",
    "0 Select(pred, on_true, on_false)",
    "0 SelectAndScatter(operand, select, window_dimensions, window_strides, padding, source, init_value, scatter)",
    "0 SelectAndScatterWithGeneralPadding(operand, select, window_dimensions, window_strides, padding, source, init_value, "
    "scatter)",
    "0 Send(operand, handle)", "13 Send(operand, channel_handle)", "0 SendWithTokens(operand, token, handle)",
    "0 SendToHost(operand, token, shape_with_layout, handle)", "0 Slice(operand, start_indices, limit_indices, strides=None)",
    "0 Sort(operands, comparator, dimension=-1, is_stable=False)", "0 TopK(operand, k, largest=True)",
    "0 Transpose(operand, permutation)", "0 TriangularSolve(a, b, left_side, lower, unit_diagonal, transpose_a)",
    "0 Tuple(elements)", "0 While(condition, body, init)",
]


class Form(NamedTuple):
    """One printed form. `defaults` are of the parameters that may be left out."""

    function: str
    parameters: list[str]
    defaults: dict[str, Any]
    by_name: bool


def parsed(form: str) -> Form:
    head, parameters = form.split(" ", 1)[1].split("(", 1)
    signature = ast.parse(f"def f({parameters}: pass")
    arguments = signature.body[0].args  # pyright: ignore[reportAttributeAccessIssue]
    names = [a.arg for a in arguments.args]
    values = [ast.literal_eval(d) for d in arguments.defaults]
    return Form(head.split(" ")[-1], names, dict(zip(names[len(names) - len(values):], values, strict=True)), "by name" in head)


def _computation(shapes: list[str], build: Any) -> xla_torch.XlaComputation:
    builder = XlaBuilder("region")
    return builder.build(build(*(builder.parameter(k, Shape.parse(s)) for k, s in enumerate(shapes))))


ADD = _computation(["f32[]"] * 2, ops.Add)
LESS = _computation(["f32[]"] * 2, ops.Lt)
WHOLE = _computation(["f32[2,3]"], ops.Neg)
SUMS = _computation(["f32[2]"] * 2, lambda x, c: ops.Tuple(x.builder, [x, x + c]))
AS_ARRAY = "f32[2,3]{1,0}"


class Arguments:
    """What stands for the parameters of one function, made in a builder."""

    def __init__(self, form: Form):
        self.form, self.function, self.builder, self.count = form, form.function, XlaBuilder("program"), 0

    def op(self, shape: str) -> Any:
        self.count += 1
        return self.builder.parameter(self.count - 1, Shape.parse(shape))

    def value(self, name: str) -> Any:
        family = next((f for f in ("Conv", "ReduceWindow", "SelectAndScatter", "BatchNorm") if self.function.startswith(f)), "")
        if self.function == "ConvertElementType":
            family = ""
        for key in (f"{self.function}.{name}", f"{family}.{name}", name):
            if key in VALUES:
                made = VALUES[key]
                return made(self) if inspect.isfunction(made) else made
        raise KeyError(f"no value for {self.function}({name})")


def of(shape: str) -> Any:
    return lambda made: made.op(shape)


def several(*shapes: str) -> Any:
    return lambda made: [made.op(s) for s in shapes]


def token(made: Arguments) -> Any:
    return ops.CreateToken(made.builder)


_ARRAY = of("f32[2,3]")
_DOT = ops.DotDimensionNumbers((1,), (0,))

VALUES: dict[str, Any] = {
    "operand": lambda made: made.op("s32[2,3]" if made.function in ON_INTEGERS else "f32[2,3]"),
    "lhs": lambda made: made.op("s32[2,3]" if made.function in ON_INTEGERS else "f32[2,3]"),
    "rhs": lambda made: made.op("s32[2,3]" if made.function in ON_INTEGERS else "f32[2,3]"),
    "broadcast_dimensions": (0, 1), "direction": "LE", "result_accuracy": ResultAccuracy("highest"),
    "Compare.rhs": _ARRAY, "operands": several("f32[2,3]", "f32[2,3]"), "args": several("f32[2,3]"),
    "elements": several("f32[2]", "s32[]"),
    "tokens": lambda made: [token(made), token(made)], "AfterAll.operands": lambda made: [token(made)], "token": token,
    "all_gather_dimension": 1, "all_gather_dim": 1, "shard_count": 1, "replica_groups": [[0]], "replica_group_ids": [[0]],
    "channel_id": ops.ChannelHandle(1), "layout": Layout((1, 0)), "use_global_device_ids": True,
    "shape_with_layout": Shape.parse(AS_ARRAY), "computation": ADD, "split_dimension": 1, "concat_dimension": 0, "split_count": 1,
    "scatter_dimension": 1, "scatter_dim": 1, "source_target_pairs": [(0, 0)], "inplace": True,
    "input": of("f32[3]"), "output": of("f32[4]"), "input_offsets": of("s32[1]"), "send_sizes": of("s32[1]"),
    "output_offsets": of("s32[1]"), "recv_sizes": of("s32[1]"),
    **dict.fromkeys(("BatchNorm.scale", "BatchNorm.batch_mean", "BatchNorm.batch_var", "BatchNorm.mean", "BatchNorm.variance",
                     "BatchNorm.offset"), of("f32[3]")),
    "grad_output": _ARRAY, "epsilon": 0.5, "feature_index": 1, "new_element_type": F16, "broadcast_sizes": (4,),
    "BroadcastInDim.broadcast_dimensions": (0, 2), "out_dim_size": (2, 5, 3), "decomposition": WHOLE, "Call.computation": WHOLE,
    "CompositeCall.computation": WHOLE, "Call.operands": several("f32[2,3]"), "CompositeCall.operands": several("f32[2,3]"),
    "name": "a.b", "attributes": "{n = 1 : i32}", "composite_attributes": "{n = 1 : i32}", "version": 2,
    "a": of("f32[3,3]"), "b": of("f32[3,2]"), "lower": True, "left_side": True, "unit_diagonal": True, "transpose_a": "TRANSPOSE",
    "min": of("f32[]"), "max": of("f32[]"), "dimensions": (0, 1), "dimension": 1,
    "predicate": of("pred[]"), "pred": of("pred[]"), "branch_index": of("s32[]"), "true_operand": _ARRAY, "false_operand": _ARRAY,
    "true_computation": WHOLE, "false_computation": WHOLE, "branch_computations": [WHOLE, WHOLE],
    "branch_operands": several("f32[2,3]", "f32[2,3]"), "literal": Literal.of([1, 2]),
    "Conv.lhs": of("f32[1,2,5]"), "Conv.rhs": of("f32[4,2,3]"), "Conv.window_strides": (2,), "Conv.padding": ops.Padding.SAME,
    **{f"{name}.padding": [(1, 1)] for name in ("ConvWithGeneralPadding", "ConvGeneral", "ConvGeneralDilated")},
    "lhs_dilation": (2,), "rhs_dilation": (2,), "window_reversal": [True], "feature_group_count": 1, "batch_group_count": 1,
    "Conv.dimension_numbers": ops.ConvolutionDimensionNumbers(0, 1, (2,), 1, 0, (2,), 0, 1, (2,)),
    "precision_config": ("highest", "highest"), "preferred_element_type": F64,
    "target_name": "f", "call_target_name": "f", "opaque": "x", "has_side_effect": True,
    "output_operand_aliasing": (((), (0, ())),),
    "schedule": "SCHEDULE_LATEST", "api_version": "API_VERSION_STATUS_RETURNING", "shape": Shape.parse(AS_ARRAY),
    **{f"{name}.rhs": of("f32[3,4]") for name in ("Dot", "DotGeneral", "ScaledDot")}, "lhs_scale": of("f32[2,1]"),
    "rhs_scale": of("f32[1,4]"), "dimension_numbers": _DOT, "dimension_number": _DOT, "RaggedDot.rhs": of("f32[2,3,4]"),
    "group_sizes": of("s32[2]"),
    "RaggedDot.dimension_numbers": ops.RaggedDotDimensionNumbers(ops.DotDimensionNumbers((1,), (1,)), (0,), (0,)),
    "dim_sizes": several("s32[]", "s32[]"), "new_size_bounds": (3, 2), "dims_are_dynamic": (True, False),
    "start_indices": several("s32[]", "s32[]"), "slice_sizes": (1, 2), "size_indices": (1, 2), "update": of("f32[1,2]"),
    "Fft.operand": of("c64[2,3]"), "fft_type": "FFT", "fft_length": (3,), "Gather.start_indices": of("s32[5,1]"),
    "Gather.dimension_numbers": ops.GatherDimensionNumbers((1,), (0,), (0,), 1), "Gather.slice_sizes": (1, 3),
    "indices_are_sorted": True, "unique_indices": True, "offset_dims": (1,), "collapsed_slice_dims": (0,),
    "start_index_map": (0,),
    "index_vector_dim": 1, "val": of("s32[]"), "size": of("s32[]"), "index": 1,
    "tuple_data": lambda made: ops.Tuple([made.op("f32[2]"), made.op("s32[]")]), "config": "c", "iota_dimension": 1,
    "Map.dimensions": (0, 1), "static_operands": (), "outfeed_config": "c", "padding_value": of("f32[]"),
    "padding_config": [(1, 1, 0), (0, 0, 1)], "PartitionID.shape": Shape.parse("u32[]"), "handle": ops.ChannelHandle(3),
    "channel_handle": ops.ChannelHandle(3), "RecvToHost.handle": ops.ChannelHandle(3, ops.ChannelType.HOST_TO_DEVICE),
    "SendToHost.handle": ops.ChannelHandle(3, ops.ChannelType.DEVICE_TO_HOST), "init_value": of("f32[]"),
    "init_values": several("f32[]"), "Reduce.operands": several("f32[2,3]"), "dimensions_to_reduce": (0, 1),
    "exponent_bits": 5, "mantissa_bits": 10, "ReduceWindow.operands": several("f32[2,3]"), "window_dimensions": (2, 2),
    "window_strides": (1, 1), "padding": ops.Padding.VALID, "ReduceWindowWithGeneralPadding.padding": [(0, 1), (1, 0)],
    "SelectAndScatterWithGeneralPadding.padding": [(0, 0), (0, 0)], "base_dilations": (1, 1), "window_dilations": (1, 1),
    "Reshape.dimensions": lambda made: (1, 0) if "new_sizes" in made.form.parameters else (3, 2),
    "new_sizes": (3, 2), "Reshape.shape": Shape.parse("f32[3,2]"),
    "mu": of("f32[]"), "sigma": of("f32[]"), "RngUniform.a": of("f32[]"), "RngUniform.b": of("f32[]"),
    "algorithm": "rng_three_fry", "initial_state": of("u64[2]"), "key": of("u64[2]"), "inputs": several("f32[2,3]"),
    "inits": several("f32[2]"), "to_apply": SUMS, "scan_dimension": 1, "is_reverse": True, "is_associative": True,
    "scatter_indices": of("s32[5,1]"), "updates": several("f32[5,3]"), "update_computation": ADD,
    "Scatter.operands": several("f32[2,3]"), "Scatter.dimension_numbers": ops.ScatterDimensionNumbers((1,), (0,), (0,), 1),
    "Scatter.dimension_number": ops.ScatterDimensionNumbers((1,), (0,), (0,), 1), "update_window_dims": (1,),
    "inserted_window_dims": (0,), "scatter_dims_to_operand_dims": (0,), "on_true": _ARRAY, "on_false": _ARRAY, "select": LESS,
    "source": of("f32[1,2]"), "scatter": ADD, "Slice.start_indices": (0, 1), "limit_indices": (2, 3), "strides": (1, 2),
    "Sort.operands": several("f32[2,3]"), "comparator": LESS, "is_stable": True, "k": 2, "largest": False, "permutation": (1, 0),
    "condition": _computation(["f32[2,3]"], lambda x: ops.Lt(ops.ReduceAll(x, 0.0, ADD), 5.0)), "body": WHOLE, "init": _ARRAY,
    "Map.computation": ADD, "CustomCall.operands": several("f32[2,3]"),
}
"""What stands for a parameter: of one function, of the functions that begin with a word, or of all. Functions make it."""
