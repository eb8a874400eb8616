"""Provide clients, devices and compiled programs as XLA's client library does."""

from __future__ import annotations

import copy
import dataclasses
import enum
import itertools
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.dlpack import from_dlpack, to_dlpack

from ..api.custom_calls import register_callback, unregister_custom_call
from ..api.loading import from_hlo_proto, from_stablehlo, parse_hlo
from ..core.errors import DeviceError, ExecutionError, InvalidArgument, UnsupportedError
from ..core.layouts import Layout as OwnLayout
from ..core.shape import Shape as OwnShape
from ..distributed import feeds
from ..functions.hlo_builder import XlaOp
from ..hlo.tree import arrays, from_arrays
from ..jax_interop.recognition import Form, recognise
from ..runtime.computation import XlaComputation as Computation
from ..runtime.static import fits, tensor_from_numpy
from . import xla_client_ops
from .buffers import ArrayImpl, flat, on_device
from .computations import HloModule, XlaBuilder, hlo_module_cost_analysis
from .errors import raising, raising_methods
from .records import DeviceAssignment
from .shapes import Layout, Shape, given

__all__ = ["Client", "CompileOptions", "Device", "ExecutableBuildOptions", "ExecuteResults", "HostBufferSemantics",
           "LoadedExecutable", "Token", "buffer_to_dlpack_managed_tensor", "dlpack_managed_tensor_to_buffer",
           "execute_with_python_values", "execute_with_python_values_replicated", "make_cpu_client", "make_gpu_client"]


class HostBufferSemantics(enum.IntEnum):
    """How long an array of the host stays as it is. Only what never changes (ZERO_COPY) is not copied."""

    IMMUTABLE_ONLY_DURING_CALL = 0
    IMMUTABLE_UNTIL_TRANSFER_COMPLETES = 1
    ZERO_COPY = 2


@dataclasses.dataclass(slots=True)
class ExecutableBuildOptions:
    """How a program is compiled, further options. Those of XLA's compiler mean nothing here, and have no field."""

    num_replicas: int = 1
    num_partitions: int = 1
    result_layout: Shape | None = None
    device_assignment: DeviceAssignment | None = None


@dataclasses.dataclass(slots=True)
class CompileOptions:
    """How a program is compiled: for one participant, as it stands."""

    argument_layouts: list[Shape] | None = None
    parameter_is_tupled_arguments: bool = False
    tuple_arguments: bool = False
    num_replicas: int = 1
    num_partitions: int = 1
    device_assignment: DeviceAssignment | None = None
    compile_portable_executable: bool = False
    executable_build_options: ExecutableBuildOptions = dataclasses.field(default_factory=ExecutableBuildOptions)


@raising_methods
class Device:
    """Represent a torch device."""

    host_id = process_index = task_id = 0

    def __init__(self, client: Client, number: int, torch_device: torch.device):
        self.client, self.id, self.local_hardware_id, self.torch_device = client, number, number, torch_device

    @property
    def platform(self) -> str:
        return self.client.platform

    @property
    def device_kind(self) -> str:
        return torch.cuda.get_device_name(self.torch_device) if self.torch_device.type == "cuda" else "cpu"

    def live_buffers(self) -> list[ArrayImpl]:
        return [buffer for buffer in self.client.live_buffers() if buffer.device() is self]

    def transfer_to_infeed(self, literal: Any) -> None:
        """What the program's next infeed reads: an array, or a tuple of such."""
        leaves = [np.asarray(leaf) for leaf in _leaves(literal)]
        feeds.feed(*(tensor_from_numpy(leaf, Shape.array_shape(leaf.dtype, leaf.shape).own, n) for n, leaf in enumerate(leaves)),
                   participant=self.id)

    def transfer_from_outfeed(self, shape: Shape) -> Any:
        """What a program outfed, oldest first: an array, or a tuple of such. It waits for it. Raises ExecutionError where it has
        another shape."""
        tensors, own = feeds.fetch(participant=self.id), given(shape)
        leaves = [leaf for leaf in own.leaves() if leaf.is_array]
        if [tuple(t.shape) for t in tensors] != [leaf.dimensions for leaf in leaves]:
            raise ExecutionError("the outfed value has another shape", got=[list(t.shape) for t in tensors], expected=own)
        return from_arrays([np.asarray(ArrayImpl(t, leaf, self)) for t, leaf in zip(tensors, leaves, strict=True)], own)

    def __repr__(self) -> str:
        return f"{self.torch_device.type.capitalize()}Device(id={self.id})"


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, (tuple, list)):
        for part in value:
            yield from _leaves(part)
    else:
        yield value


@raising_methods
class Client:
    """Run programs on one or several torch devices."""

    runtime_type = "torch"
    platform_version = "<unknown>"

    def __init__(self, platform: str, devices: Sequence[torch.device]):
        self.platform = platform
        self._devices = [Device(self, number, device) for number, device in enumerate(devices)]
        self._kept: weakref.WeakValueDictionary[int, ArrayImpl] = weakref.WeakValueDictionary()
        self._numbers = itertools.count()

    def devices(self) -> list[Device]:
        return list(self._devices)

    local_devices = devices

    def device_count(self) -> int:
        return len(self._devices)

    local_device_count = device_count

    def host_id(self) -> int:
        return 0

    process_index = task_id = host_id

    def keep(self, buffer: ArrayImpl) -> None:
        """Know a buffer, as long as it lives."""
        self._kept[next(self._numbers)] = buffer

    def live_buffers(self) -> list[ArrayImpl]:
        """Buffers that are not deleted, the newest first."""
        return [buffer for _, buffer in sorted(self._kept.items(), reverse=True) if not buffer.is_deleted()]

    live_arrays = live_buffers

    def buffer_from_pyval(self, argument: Any, device: Device | None = None, force_copy: bool = False,
                          host_buffer_semantics: HostBufferSemantics = HostBufferSemantics.IMMUTABLE_UNTIL_TRANSFER_COMPLETES,
                          ) -> ArrayImpl:
        """A NumPy array, a number or a buffer on a device. Raises InvalidArgument for what has no element type."""
        copied = force_copy or host_buffer_semantics != HostBufferSemantics.ZERO_COPY
        return on_device(argument, self._devices[0] if device is None else device, copied)

    def compile(self, computation: Any, compile_options: CompileOptions | None = None,
                host_callbacks: Sequence[Any] = ()) -> LoadedExecutable:
        """A program to execute: an XlaComputation, a serialised HloModuleProto, HLO text, or StableHLO as text, bytecode or a
        module of MLIR's bindings. Raises InvalidArgument for layouts of arguments that are not the program's, and
        UnsupportedError for several participants and for callbacks over channels."""
        if host_callbacks:
            raise UnsupportedError("callbacks over channels are not called", subject="compile",
                                   hint="use Client.emit_python_callback, or feeds of xla_torch.distributed")
        return LoadedExecutable(self, _program(computation), compile_options or CompileOptions())

    def compile_and_load(self, computation: Any, executable_devices: Any = None,
                         compile_options: CompileOptions | None = None, host_callbacks: Sequence[Any] = ()) -> LoadedExecutable:
        """As `compile`, under the name of newer versions."""
        return self.compile(computation, compile_options, host_callbacks)

    def emit_python_callback(self, callable: Callable[..., Any], builder: XlaBuilder, operands: Sequence[XlaOp],
                             result_shapes: Sequence[Shape], operand_layouts: Sequence[Shape] | None = None,
                             has_side_effects: bool = False) -> tuple[XlaOp, Any]:
        """An op that calls a Python function with NumPy arrays (None for tokens), which lie as `operand_layouts` say, and which
        returns a tuple of such; and what has to be kept as long as the program runs. What the function raises is an
        ExecutionError of the run."""
        layouts = [shape.own.layout if shape.is_array() else None for shape in operand_layouts or ()]

        def call(*arrays: np.ndarray | None) -> Any:
            try:
                return callable(*map(_lying, arrays, layouts or itertools.repeat(None)))
            except Exception as error:
                raise ExecutionError(f"a callback has failed: {type(error).__name__}: {error}", subject=builder.name) from error

        target = register_callback(call)
        op = xla_client_ops.CustomCall(builder, target, operands, Shape.tuple_shape(list(result_shapes)),
                                       has_side_effect=has_side_effects)
        kept = _Kept(callable)
        weakref.finalize(kept, unregister_custom_call, target)
        return op, kept


def _lying(array: np.ndarray | None, layout: OwnLayout | None) -> np.ndarray | None:
    """The array in memory as a layout says."""
    if array is None or layout is None:
        return array
    order = layout.minor_to_major[::-1]
    return np.ascontiguousarray(array.transpose(order)).transpose(np.argsort(order))


class _Kept:
    """A callback that may be called as long as this lives."""

    def __init__(self, function: Callable[..., Any]):
        self.function = function


def _program(computation: Any) -> Computation:
    own = getattr(computation, "computation", computation)
    if hasattr(own, "program"):
        return own
    data = computation.encode() if isinstance(computation, str) else computation
    form = recognise(data) if isinstance(data, bytes) else None
    if form is Form.HLO_PROTO:
        return from_hlo_proto(data)
    return parse_hlo(data.decode()) if form is Form.HLO_TEXT else from_stablehlo(computation)


class Token:
    """What is waited for: here nothing, as calls return when all is done."""

    def block_until_ready(self) -> None:
        """Nothing is left to wait for."""

    def get_token(self, device_id: int) -> Token:
        return self


class ExecuteResults:
    """The results of one run, an array after the other, each as a list of one for each device."""

    def __init__(self, results: Sequence[ArrayImpl]):
        self._results = [[result] for result in results]

    def __len__(self) -> int:
        return len(self._results)

    def disassemble_into_single_device_arrays(self) -> list[list[ArrayImpl]]:
        return self._results

    def disassemble_prefix_into_single_device_arrays(self, n: int) -> list[list[ArrayImpl]]:
        return self._results[:n]

    def consume_with_handlers(self, handlers: Sequence[Callable[[Any], Any]]) -> list[Any]:
        """What each handler makes of its result."""
        return [handler(result) for handler, result in zip(handlers, self._results, strict=True)]

    def consume_token(self) -> Token:
        return Token()


@raising_methods
class LoadedExecutable:
    """A program that is ready to run. `computation` is that of xla_torch."""

    fingerprint = traceback = None

    def __init__(self, client: Client, computation: Computation, options: CompileOptions):
        self.client, self.computation, self._options = client, computation, copy.deepcopy(options)
        self._deleted = False
        build = options.executable_build_options
        count = max(options.num_replicas, build.num_replicas) * max(options.num_partitions, build.num_partitions)
        if count > 1:
            raise UnsupportedError("a client runs one participant", subject="compile", got=f"{count} replicas and partitions",
                                   hint="use xla_torch.run_replicas(executable.computation, ...) to run several")
        self._leaves = [leaf for p in computation.program_shape.parameters for leaf in p.leaves() if leaf.is_array]
        _check_layouts(options.argument_layouts, computation.program_shape.parameters)

    # ---- running

    def execute(self, arguments: Sequence[ArrayImpl], device: Device | None = None) -> list[ArrayImpl]:
        """Run on buffers, one for each array that the program takes; the result's arrays. Raises InvalidArgument for another
        number, and for buffers of another shape or element type."""
        if self._deleted:
            raise ExecutionError("the executable has been deleted", subject=self.computation.name)
        given = flat(arguments)
        tensors = [buffer.tensor for buffer in given]
        self._check(given)
        rest, shape = iter(tensors), self.computation.program_shape
        values = [from_arrays(itertools.islice(rest, sum(leaf.is_array for leaf in p.leaves())), p) for p in shape.parameters]
        place = device or (given[0].device() if given else self.client.devices()[0])
        with torch.no_grad():
            result = self.computation(*values, device=None if given else place.torch_device)
        return [ArrayImpl(tensor, OwnShape.array(own.element_type, tensor.shape), place)
                for tensor, own in arrays(result, shape.result)]

    def _check(self, buffers: Sequence[ArrayImpl]) -> None:
        if len(buffers) != len(self._leaves):
            raise InvalidArgument("another number of buffers than the program takes", subject=self.computation.name,
                                  got=len(buffers), expected=len(self._leaves))
        for number, (buffer, leaf) in enumerate(zip(buffers, self._leaves, strict=True)):
            own = buffer.xla_shape().own
            if own.element_type is not leaf.element_type or not fits(own.dimensions, leaf):
                raise InvalidArgument(f"argument {number} has the wrong shape or dtype", subject=self.computation.name, got=own,
                                      expected=leaf)

    def execute_with_token(self, arguments: Sequence[ArrayImpl], device: Device | None = None) -> tuple[list[ArrayImpl], Token]:
        return self.execute(arguments, device), Token()

    def execute_sharded(self, arguments: Sequence[Any], with_tokens: bool = False) -> ExecuteResults:
        """As `execute`; each argument may be a list of one buffer."""
        return ExecuteResults(self.execute(arguments))

    def execute_sharded_on_local_devices(self, arguments: Sequence[Any]) -> list[list[ArrayImpl]]:
        return [[result] for result in self.execute(arguments)]

    def execute_sharded_on_local_devices_with_tokens(self, arguments: Sequence[Any]) -> tuple[list[list[ArrayImpl]], Token]:
        return self.execute_sharded_on_local_devices(arguments), Token()

    def delete(self) -> None:
        self._deleted = True

    # ---- looking

    def local_devices(self) -> list[Device]:
        return self.client.devices()[:1]

    def compile_options(self) -> CompileOptions:
        return copy.deepcopy(self._options)

    def hlo_modules(self) -> list[HloModule]:
        """The program as it was given: torch runs it."""
        return [HloModule.of(self.computation)]

    def cost_analysis(self) -> dict[str, float]:
        """As `hlo_module_cost_analysis`."""
        return hlo_module_cost_analysis(self.client, HloModule.of(self.computation))

    def get_parameter_layouts(self) -> list[Layout]:
        return [Shape.of(leaf).layout() for leaf in self._leaves]

    def get_output_layouts(self) -> list[Layout]:
        return [Shape.of(leaf).layout() for leaf in self.computation.program_shape.result.leaves() if leaf.is_array]


def _check_layouts(layouts: Sequence[Shape] | None, parameters: Sequence[OwnShape]) -> None:
    if layouts is None:
        return
    if len(layouts) != len(parameters):
        raise InvalidArgument("layouts for another number of arguments", subject="compile", got=len(layouts),
                              expected=len(parameters))
    for layout, parameter in zip(given(list(layouts)), parameters, strict=True):
        if not layout.compatible(parameter):
            raise InvalidArgument(f"Invalid argument shape in argument_layouts, expected {parameter}, got {layout}",
                                  subject="compile", got=layout, expected=parameter)


# ------------------------------------------------------------------------------------------- making clients; arrays in and out


@raising
def make_cpu_client(asynchronous: bool = True, distributed_client: Any = None, node_id: int = 0, num_nodes: int = 1,
                    collectives: Any = None) -> Client:
    """A client with one device, torch's CPU; calls return when they are done. Raises UnsupportedError for several nodes."""
    _alone(distributed_client, num_nodes)
    return Client("cpu", [torch.device("cpu")])


@raising
def make_gpu_client(distributed_client: Any = None, node_id: int = 0, num_nodes: int = 1, platform_name: str | None = None,
                    allowed_devices: Sequence[int] | None = None, mock: bool = False) -> Client:
    """A client with torch's CUDA devices. Raises DeviceError where there are none, UnsupportedError for several nodes."""
    _alone(distributed_client, num_nodes)
    numbers = range(torch.cuda.device_count()) if allowed_devices is None else sorted(allowed_devices)
    if mock or not torch.cuda.is_available() or not numbers:
        raise DeviceError("torch has no CUDA device", subject="make_gpu_client", hint="use make_cpu_client() to run on the CPU")
    return Client("gpu", [torch.device("cuda", number) for number in numbers])


def _alone(distributed_client: Any, num_nodes: int) -> None:
    if distributed_client is not None or num_nodes != 1:
        raise UnsupportedError("a client runs in one process", got=f"{num_nodes} nodes",
                               hint="use xla_torch.distributed to run programs over processes")


def execute_with_python_values(executable: LoadedExecutable, arguments: Sequence[Any], backend: Client) -> list[np.ndarray]:
    """Run on NumPy arrays; the result's arrays."""
    device = executable.local_devices()[0]
    buffers = [backend.buffer_from_pyval(argument, device=device) for argument in arguments]
    return [np.asarray(result) for result in executable.execute(buffers)]


def execute_with_python_values_replicated(executable: LoadedExecutable, arguments: Sequence[Sequence[Any]],
                                          backend: Client) -> list[list[np.ndarray]]:
    """As `execute_with_python_values`, with the arguments of each device, of which there is one."""
    return [execute_with_python_values(executable, own, backend) for own in arguments]


@raising
def buffer_to_dlpack_managed_tensor(buffer: ArrayImpl, stream: int | None = None) -> Any:
    """The buffer's memory as a capsule of DLPack."""
    return to_dlpack(buffer.tensor)


@raising
def dlpack_managed_tensor_to_buffer(tensor: Any, *backends: Any, **named: Any) -> ArrayImpl:
    """A capsule of DLPack as a buffer of the client (or on the device) that is given; a capsule can be read once."""
    clients = [b for b in (*backends, *named.values()) if isinstance(b, (Client, Device))]
    found = from_dlpack(tensor)
    devices = [d for c in clients for d in ([c] if isinstance(c, Device) else c.devices())]
    device = next((d for d in devices if d.torch_device.type == found.device.type), None)
    if device is None:
        raise InvalidArgument("no given client has the device", got=str(found.device))
    return ArrayImpl(found, Shape.array_shape(found.dtype, found.shape).own, device)
