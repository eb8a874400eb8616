"""The classes of `xla_torch.compat.xla_client`: records, shapes, builders, computations, clients, buffers, errors."""

from __future__ import annotations

import copy
import dataclasses
import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import xla_torch
from support.client_scripts import (
    F34,
    INTS,
    SQUARE,
    A,
    B,
    F,
    N,
    add,
    build,
    dot_numbers,
    f32,
    k,
    ops,
    require_same,
    rng,
    run,
    shape,
)
from xla_torch.compat import xla_client

# ------------------------------------------------------------------------------------------- records, shapes, builders


@pytest.mark.parametrize("record", [
    "ConvolutionDimensionNumbers", "DotDimensionNumbers", "GatherDimensionNumbers", "ScatterDimensionNumbers", "PaddingConfig",
    "PaddingConfigDimension", "ReplicaGroup", "OpMetadata", "OpSharding", "PrecisionConfig", "ResultAccuracy", "ChannelHandle",
    "CompileOptions", "HloPrintOptions"])
def test_records_are_made_empty_and_filled(record: str) -> None:
    made, other = getattr(xla_client, record)(), getattr(xla_client, record)()
    assert made == other
    for name in (field.name for field in dataclasses.fields(made)):
        kept = copy.deepcopy(made)
        value = getattr(made, name)
        if isinstance(value, list):
            value.append(1)
        else:
            setattr(made, name, not value if isinstance(value, bool) else 3)
        assert made != kept
    assert other == getattr(xla_client, record)()


def test_what_a_record_holds_when_it_is_used_counts() -> None:
    numbers = dot_numbers()
    found = []

    def make(b: Any, x: Any, y: Any) -> None:
        found.append(ops.DotGeneral(x, y, numbers).shape.dimensions)
        numbers.lhs_batch_dimensions.append(0)
        numbers.rhs_batch_dimensions.append(0)
        found.append(ops.DotGeneral(x, y, numbers).shape.dimensions)

    build(make, A, B)
    assert found == [(3, 3), (3,)]


def test_numbers_of_words() -> None:
    assert (int(xla_client.PrimitiveType.F32), xla_client.PrimitiveType(16)) == (11, xla_client.PrimitiveType.BF16)
    assert int(ops.TriangularSolveOptions_Transpose.ADJOINT) == 3
    assert int(ops.CustomCallApiVersion.API_VERSION_ORIGINAL) == 1
    assert xla_client.XLA_ELEMENT_TYPE_TO_DTYPE[xla_client.PrimitiveType.BF16] == np.dtype(xla_client.bfloat16)
    assert xla_client.dtype_to_etype(np.bool_) is xla_client.PrimitiveType.PRED
    with pytest.raises(KeyError):
        xla_client.dtype_to_etype(np.datetime64)
    with pytest.raises(xla_client.XlaRuntimeError, match="PRIMITIVE_TYPE_INVALID"):
        xla_client.Shape.array_shape(xla_client.PrimitiveType.PRIMITIVE_TYPE_INVALID, (2,))


def test_shapes() -> None:
    array = xla_client.Shape.array_shape(np.dtype(np.float32), (2, 3), (0, 1))
    assert (repr(array), str(array), array.rank(), array.dimensions()) == ("f32[2,3]{0,1}", "f32[2,3]{0,1}", 2, (2, 3))
    assert (array.element_type(), array.xla_element_type()) == (np.float32, xla_client.PrimitiveType.F32)
    assert (array.layout().minor_to_major(), hash(array.layout())) == ((0, 1), hash(xla_client.Layout((0, 1))))
    assert array != xla_client.Shape("f32[2,3]{1,0}") == xla_client.Shape.array_shape(xla_client.PrimitiveType.F32, (2, 3))
    assert (array.is_array(), array.is_tuple(), array.is_static(), array.leaf_count()) == (True, False, True, 1)
    pair = xla_client.shape_from_pyval((A, (N,)))
    assert (repr(pair), len(pair.tuple_shapes()), pair.leaf_count()) == ("(f32[3,4]{1,0}, (s32[]))", 2, 2)
    assert pair.numpy_dtype() == np.dtype(np.object_)
    assert repr(xla_client.Shape.token_shape()) == "token[]"
    dynamic = xla_client.Shape.array_shape(np.dtype(np.float32), dims=[5], dynamic_dimensions=[True])
    assert (repr(dynamic), dynamic.is_dynamic(), dynamic.is_dynamic_dimension(0)) == ("f32[<=5]{0}", True, True)
    dynamic.set_dynamic_dimension(0, False)
    assert dynamic == xla_client.Shape("f32[5]").with_major_to_minor_layout_if_absent()
    assert xla_client.ShapeIndex([1, 2]) == xla_client.ShapeIndex((1, 2)) != xla_client.ShapeIndex((2, 3))
    assert xla_torch.Shape.parse("f32[5]{0}") == dynamic.of_xla_torch()
    assert dynamic.to_serialized_proto().startswith(b"\x10\x0b\x1a\x01\x05")
    for wrong in (pair.dimensions, pair.layout, array.tuple_shapes, lambda: array.set_dynamic_dimension(2, True)):
        with pytest.raises(xla_client.XlaRuntimeError):
            wrong()
    with pytest.raises(NotImplementedError):
        xla_client.shape_from_pyval((A,), [0, 1])


@pytest.mark.parametrize(("kind", "expected"), [("VALID", [(0, 0), (0, 0)]), ("same", [(0, 1), (0, 0)])])
def test_padding_words(kind: str, expected: list[tuple[int, int]]) -> None:
    assert xla_client.window_padding_type_to_pad_values(kind, (3, 4), (2, 1), (1, 2)) == expected
    word = xla_client.PaddingType[kind.upper()]
    assert xla_client.window_padding_type_to_pad_values(word, (3, 4), (2, 1), (1, 2)) == expected
    with pytest.raises(ValueError, match="Unknown"):
        xla_client.window_padding_type_to_pad_values("half", (3,), (2,), (1,))
    with pytest.raises(TypeError):
        xla_client.window_padding_type_to_pad_values(3, (3,), (2,), (1,))  # pyright: ignore[reportArgumentType]


# Of XLA's builder, by jaxlib 0.4.38: ops of constants alone.
CONSTANT: list[tuple[bool, Callable[..., Any]]] = [
    (True, lambda b, c: ops.Neg(c)), (True, lambda b, c: ops.Iota(b, shape("F32", 2), 0)), (True, lambda b, c: ops.ReplicaId(b)),
    (True, lambda b, c: ops.Reduce(b, [c], [k(b, F)], add(), [0])), (True, lambda b, c: ops.OptimizationBarrier(c)),
    (True, lambda b, c: ops.AllGather(c, 0, 1)), (True, lambda b, c: ops.Sort(b, [c])), (True, lambda b, c: ops.CreateToken(b)),
    (True, lambda b, c: ops.Conditional(k(b, N), [build(lambda _, p: ops.Neg(p), A)], [c])),
    (True, lambda b, c: ops.GetDimensionSize(ops.Parameter(b, 0, xla_client.shape_from_pyval(A)), 0)),
    (False, lambda b, c: ops.Sub(c, ops.Parameter(b, 0, xla_client.shape_from_pyval(A)))),
    (False, lambda b, c: ops.Call(b, build(lambda _, p: ops.Neg(p), A), [c])),
    (False, lambda b, c: ops.While(build(lambda d, p: k(d, False), A), build(lambda _, p: p, A), c)),
    (False, lambda b, c: ops.RngUniform(k(b, F), k(b, F), shape("F32", 2))),
    (False, lambda b, c: ops.CustomCall(b, b"x", [c], shape(*F34))), (False, lambda b, c: ops.CrossReplicaSum(c)),
    (False, lambda b, c: ops.ReduceScatter(c, add(), 0, 1)),
    (False, lambda b, c: ops.InfeedWithToken(ops.CreateToken(b), shape(*F34))),
]


@pytest.mark.parametrize(("expected", "make"), CONSTANT)
def test_is_constant(expected: bool, make: Callable[..., Any]) -> None:
    builder = xla_client.XlaBuilder("constants")
    assert builder.is_constant(make(builder, k(builder, A))) is expected


def test_builders() -> None:
    builder = xla_client.XlaBuilder("named")
    x = ops.Parameter(builder, 0, xla_client.shape_from_pyval(A))
    first = ops.Neg(x)
    second = ops.Exp(first)
    same = first
    assert (first == same) is True
    assert first != second
    assert second in [first, second]
    assert builder.get_shape(first) == builder.GetShape(second) == shape(*F34)
    assert repr(builder.get_program_shape()) == "((unknown): f32[3,4]) -> f32[3,4]"
    by_root, whole = builder.Build(first), builder.build()
    assert "exponential" not in by_root.as_hlo_text()
    assert "exponential" in whole.as_hlo_text()
    assert whole.name() == "named"
    assert whole.program_shape().parameter_shapes() == [whole.program_shape().result_shape()] == [shape(*F34)]
    with pytest.raises(xla_client.XlaRuntimeError, match="not an op of this builder"):
        builder.get_shape(ops.Parameter(xla_client.XlaBuilder("other"), 0, shape(*F34)))


def test_what_a_builder_notes() -> None:
    builder = xla_client.XlaBuilder("noted")
    builder.set_op_metadata(xla_client.CurrentSourceInfoMetadata("kind", "my/op"))
    x = ops.Parameter(builder, 0, shape(*F34))
    builder.clear_op_metadata()
    sharding = xla_client.OpSharding()
    sharding.type = xla_client.OpSharding.Type.OTHER
    sharding.tile_assignment_dimensions, sharding.tile_assignment_devices = [2, 1], [0, 1]
    builder.set_sharding(sharding)
    both = ops.Tuple(builder, [ops.Neg(x), x])
    builder.clear_sharding()
    builder.set_frontend_attributes({"a": "b"})
    ops.GetTupleElement(both, 0)
    builder.clear_frontend_attributes()
    builder.setup_alias([], 0, [])
    lines = builder.build().as_hlo_text().splitlines()
    assert "input_output_alias={ {}: (0, {}, may-alias) }" in lines[0]
    assert 'metadata={op_type="kind" op_name="my/op" source_file="test_xla_client_objects.py" source_line=' in lines[3]
    assert lines[4].endswith("sharding={devices=[2,1]0,1}")
    assert lines[5].endswith("sharding={{devices=[2,1]0,1}, {devices=[2,1]0,1}}")
    assert lines[6].endswith('frontend_attributes={a="b"}')
    read = xla_client.OpSharding()
    read.ParseFromString(sharding.SerializeToString())
    assert read == sharding == sharding.clone()
    assert sharding.SerializeToString() == b'\x08\x03\x1a\x02\x02\x01"\x02\x00\x01'


def test_computations_go_out_and_come_back() -> None:
    computation = build(lambda b, x: ops.Add(x, k(b, np.arange(12, dtype=np.float32).reshape(3, 4))), A, name="sum")
    assert "constant({...})" in computation.as_hlo_text()
    assert "{8,9,10,11}" in computation.as_hlo_text(print_large_constants=True)
    data = computation.as_serialized_hlo_module_proto()
    again = xla_client.XlaComputation(data)
    assert again.hash() == computation.hash() != add().hash()
    module = again.get_hlo_module()
    assert (module.name, [c.name for c in module.computations()]) == ("sum", ["sum"])
    options = xla_client.HloPrintOptions()
    options.print_large_constants = True
    for other in (xla_client._xla.hlo_module_from_text(module.to_string(options)),
                  xla_client.HloModule.from_serialized_hlo_module_proto(module.as_serialized_hlo_module_proto())):
        assert other.to_string() == module.to_string()
    assert xla_client.hlo_module_cost_analysis(None, module)["flops"] == 12
    assert computation.as_hlo_dot_graph() == xla_client.hlo_module_to_dot_graph(module)
    text = xla_client._xla.mlir.xla_computation_to_mlir_module(computation)
    client = xla_client.make_cpu_client()
    for program in (computation, data, text, text.encode(), computation.as_hlo_text(True), module, computation.computation):
        found = xla_client.execute_with_python_values(client.compile(program), [A], client)
        require_same(found, [A + np.arange(12, dtype=np.float32).reshape(3, 4)])


@pytest.mark.parametrize("tuples", [(True, False), (False, True), (True, True)])
def test_mlir_with_tuples(tuples: tuple[bool, bool]) -> None:
    text = xla_client.mlir.xla_computation_to_mlir_module(build(lambda _, x, y: ops.Sub(x, y), A, B))
    made = xla_client.mlir.mlir_module_to_xla_computation(text, *tuples)
    assert [p.is_tuple() for p in made.program_shape().parameter_shapes()] == ([True] if tuples[0] else [False, False])
    assert made.program_shape().result_shape().is_tuple() is tuples[1]
    client = xla_client.make_cpu_client()
    require_same(xla_client.execute_with_python_values(client.compile(made), [A, B], client), [A - B])


# ------------------------------------------------------------------------------------------- clients and buffers


def test_buffers() -> None:
    client = xla_client.make_cpu_client()
    array = A.copy()
    copied = client.buffer_from_pyval(array)
    shared = client.buffer_from_pyval(array, host_buffer_semantics=xla_client.HostBufferSemantics.ZERO_COPY)
    assert shared.unsafe_buffer_pointer() == array.__array_interface__["data"][0] != copied.unsafe_buffer_pointer()
    array[:] = 0
    require_same([np.asarray(copied)], [A])
    assert not np.asarray(copied).flags.writeable
    assert (copied.shape, copied.dtype, copied.ndim, copied.size) == ((3, 4), np.float32, 2, 12)
    assert (copied.nbytes, copied.on_device_size_in_bytes(), copied.platform()) == (48, 48, "cpu")
    assert (copied.xla_shape(), copied.device(), copied.client) == (shape(*F34), client.devices()[0], client)
    assert copied.clone().unsafe_buffer_pointer() == copied.unsafe_buffer_pointer()
    assert copied.block_until_ready() is copied
    assert np.asarray(copied, np.float64).dtype == np.float64
    capsule = xla_client._xla.buffer_to_dlpack_managed_tensor(copied)
    require_same([np.asarray(xla_client._xla.dlpack_managed_tensor_to_buffer(capsule, client, None))], [A])
    require_same([torch.from_dlpack(copied).numpy()], [A])
    copied.delete()
    assert copied.is_deleted()
    for use in (copied.is_ready, copied.block_until_ready, lambda: np.asarray(copied)):
        with pytest.raises(xla_client.XlaRuntimeError, match="deleted"):
            use()


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.int64, np.uint16, np.uint32, np.uint64, np.float16, np.float64,
                                   np.complex128, xla_client.bfloat16, xla_client.float8_e4m3fn])
@pytest.mark.parametrize("sizes", [(), (2, 0), (2, 3)])
def test_values_of_buffers(dtype: Any, sizes: tuple[int, ...]) -> None:
    array = (rng.rand(*sizes) * 9 + np.zeros(sizes)).astype(dtype)
    found = np.asarray(xla_client.make_cpu_client().buffer_from_pyval(array))
    assert (found.dtype, found.shape) == (array.dtype, sizes)
    assert np.array_equal(found, array)
    assert [r.dtype for r in run(lambda b, p: ops.Reshape(p, sizes), array)] == [array.dtype]


def test_live_buffers() -> None:
    client = xla_client.make_cpu_client()
    first, second = client.buffer_from_pyval(A), client.buffer_from_pyval(B)
    assert client.live_buffers() == client.devices()[0].live_buffers() == [second, first]
    second.delete()
    assert client.live_buffers() == [first]
    del first
    gc.collect()
    assert client.live_buffers() == []


def test_ways_to_execute() -> None:
    client = xla_client.make_cpu_client()
    executable = client.compile_and_load(build(lambda b, x: ops.Tuple(b, [x, ops.Neg(x)]), A), client.devices())
    buffer = client.buffer_from_pyval(A)
    results, token = executable.execute_with_token([buffer])
    token.block_until_ready()
    sharded = executable.execute_sharded([[buffer]], with_tokens=True)
    sharded.consume_token().block_until_ready()
    on_devices, tokens = executable.execute_sharded_on_local_devices_with_tokens([[buffer]])
    tokens.get_token(0).block_until_ready()
    flat = [results, executable.execute([buffer], client.devices()[0]),
            *([part[0] for part in parts] for parts in (sharded.disassemble_into_single_device_arrays(), on_devices,
                                                        executable.execute_sharded_on_local_devices([[buffer]])))]
    for found in flat:
        assert all(isinstance(r, xla_client.ArrayImpl) for r in found)
        require_same(list(map(np.asarray, found)), [A, -A])
    assert len(sharded) == 2
    require_same(sharded.consume_with_handlers([lambda parts: np.asarray(parts[0])] * 2), [A, -A])
    assert [layout.minor_to_major() for layout in executable.get_parameter_layouts()] == [(1, 0)]
    assert [layout.minor_to_major() for layout in executable.get_output_layouts()] == [(1, 0), (1, 0)]
    assert executable.cost_analysis()["flops"] == 12
    assert (executable.fingerprint, executable.hlo_modules()[0].name) == (None, "test")
    assert xla_client.execute_with_python_values_replicated(executable, [[A]], client)[0][1][0, 0] == -A[0, 0]
    executable.delete()
    with pytest.raises(xla_client.XlaRuntimeError, match="deleted"):
        executable.execute([buffer])


def test_compile_options() -> None:
    client, computation = xla_client.make_cpu_client(), build(lambda _, x: ops.Neg(x), N)
    options = xla_client.CompileOptions()
    options.argument_layouts = [xla_client.Shape.array_shape(np.dtype(np.float32), [])]
    with pytest.raises(RuntimeError, match=r"Invalid argument shape.*expected s32\[\], got f32\[\]"):
        client.compile(computation, options)
    options.argument_layouts = [shape("S32")]
    assert client.compile(computation, options).compile_options() == options
    options.argument_layouts = []
    with pytest.raises(xla_client.XlaRuntimeError, match="another number"):
        client.compile(computation, options)
    several = xla_client.CompileOptions()
    several.executable_build_options.num_partitions = several.num_replicas = 2
    with pytest.raises(xla_client.XlaRuntimeError, match="run_replicas"):
        client.compile(computation, several)
    with pytest.raises(xla_client.XlaRuntimeError, match="channels"):
        client.compile(computation, host_callbacks=[1])


WRONG: list[tuple[str, Callable[[], Any], type[Exception]]] = [
    ("incompatible shapes", lambda: build(lambda _, x, y: ops.Add(x, y), A, B[:2]), xla_torch.errors.InvalidArgument),
    ("belongs to another builder", lambda: build(lambda b, x: ops.Add(x, ops.Constant(xla_client.XlaBuilder("o"), F)), A),
     xla_torch.errors.InvalidArgument),
    ("parameter numbers", lambda: build(lambda b: ops.Parameter(b, 1, shape(*F34))), xla_torch.errors.InvalidArgument),
    ("wrong shape or dtype", lambda: _run_with(np.int32(1)), xla_torch.errors.InvalidArgument),
    ("wrong shape or dtype", lambda: _run_with(f32([1])), xla_torch.errors.InvalidArgument),
    ("another number of buffers", lambda: _run_with(F, F), xla_torch.errors.InvalidArgument),
    ("transpose_a", lambda: build(lambda b, x: ops.TriangularSolve(
        x, x, True, True, False, ops.TriangularSolveOptions_Transpose.TRANSPOSE_INVALID), SQUARE),
     xla_torch.errors.InvalidArgument),
    ("not matrices", lambda: build(lambda b, x: ops.QrDecomposition(x), INTS), xla_torch.errors.InvalidArgument),
    ("UTF-16 text", lambda: xla_client.make_cpu_client().compile(b"\xff\x00\x01"), xla_torch.errors.InvalidArgument),
    ("HLO proto|several|says", lambda: xla_client.XlaComputation(b"nothing"), xla_torch.errors.XlaError),
    ("one process", lambda: xla_client.make_cpu_client(num_nodes=2), xla_torch.errors.UnsupportedError),
    ("no CUDA device", lambda: xla_client.make_gpu_client(mock=True), xla_torch.errors.DeviceError),
    ("takes a program", xla_client.HloModule, xla_torch.errors.UnsupportedError),
]


def _run_with(*values: Any) -> None:
    client = xla_client.make_cpu_client()
    client.compile(build(lambda _, x: ops.Neg(x), F)).execute([client.buffer_from_pyval(v) for v in values])


@pytest.mark.parametrize(("message", "wrong", "kind"), WRONG)
def test_errors_are_of_both_libraries(message: str, wrong: Callable[[], Any], kind: type[Exception]) -> None:
    with pytest.raises(xla_client.XlaRuntimeError, match=message) as caught:
        wrong()
    assert isinstance(caught.value, kind)
    assert isinstance(caught.value, RuntimeError)


def test_what_is_not_there_says_why() -> None:
    with pytest.raises(AttributeError, match=r"XLA's runtime \(xla_torch.debug"):
        _ = xla_client.profiler
    with pytest.raises(AttributeError, match=r"'no_such_name'$"):
        _ = xla_client.no_such_name


def test_device_assignments() -> None:
    made = xla_client.DeviceAssignment.create(np.arange(4).reshape(2, 2))
    assert (made.replica_count(), made.computation_count()) == (2, 2)
    assert made.serialize() == b"\x08\x02\x10\x02\x1a\x04\n\x02\x00\x02\x1a\x04\n\x02\x01\x03"


def test_gradients_through_what_was_built() -> None:
    computation = build(lambda b, x: ops.Reduce(b, [ops.Mul(x, x)], [k(b, F)], add(), [0, 1]), A).computation
    require_same([xla_torch.grad(computation)(torch.from_numpy(A)).numpy()], [2 * A])
