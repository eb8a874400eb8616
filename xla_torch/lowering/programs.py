"""Whole programs lowered: a computation becomes a GraphModule for one device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.fx

from ..core.errors import DeviceError
from ..core.shape import Shape
from ..core.types import PrimitiveType
from ..hlo.ir import Computation, Token
from ..hlo.stacks import is_stack
from ..hlo.tree import arrays, grouped, places
from ..passes.optional import attempt, runs, without_failing
from ..storage.dtypes import storage_dtype, torch_dtype
from ..storage.torch_private import LoweredModule
from ..transform.invariant_code import without_invariant_code
from ..transform.opened_composites import for_native_code
from ..transform.padded_sums import without_padded_sums
from . import numerics
from .bundles import with_bundles
from .emit import Tracer, describe
from .values import Host, Splat, Value


def lower(computation: Computation, device: torch.device, blocks: bool = True, fuses: bool = False,
          overwrites: bool = True, portable: bool = False, ranges: bool = False, bundles: bool = True) -> torch.fx.GraphModule:
    """The computation, equal ops of which run once, what is the same in a loop's steps before it, and sums of pads in one pass,
    as a GraphModule for one device. Where it `fuses`, groups of calls go to torch's compiler; what is read no more is written
    over only where it `overwrites`. What is `portable` may become part of a graph that torch makes; one with `ranges` tells
    torch's profiler whose work it does. Small ops become native calls only where `bundles` may be.

    Its inputs are the flattened parameters (tuples depth first, tokens left out) and its output the flat tuple of the
    root's leaves, all in the boundary dtypes of their element types.
    """
    return without_failing(computation.name, lambda: _lowered(
        computation, Tracer(device, fuses=fuses, overwrites=overwrites, portable=portable, ranges=ranges), blocks, bundles))


def _lowered(computation: Computation, tracer: Tracer, blocks: bool, bundles: bool) -> torch.fx.GraphModule:
    passes = (("composites", for_native_code), ("padded sums", without_padded_sums),
              ("invariants", without_invariant_code))
    for name, rewritten in passes:
        if runs(name):
            computation = attempt(name, rewritten, computation)
    tracer.bundles = blocks and bundles and runs("bundles")
    arguments = [_argument(tracer, p.name, p.shape) for p in computation.parameters]
    result = tracer.run(with_bundles(tracer, computation), arguments)
    outputs = tuple(_output(tracer, value, shape) for value, shape in arrays(result, computation.root.shape))
    return tracer.finish(outputs, "Program", fresh_outputs=True, blocks=blocks)


def freeing(module: torch.fx.GraphModule, returned: int = 0) -> torch.fx.GraphModule:
    """The same program, which takes one list of its inputs and empties it. Python cannot free an argument of a call while
    the call runs; what is taken out of a list is freed after its last use. The last inputs, so many as may be `returned`, are
    results themselves where these would be copies."""
    graph = torch.fx.Graph()
    given = graph.placeholder("inputs")
    inputs = [n for n in module.graph.nodes if n.op == "placeholder"]
    inside = {n: graph.create_node("call_method", "pop", (given,), {}, n.name) for n in reversed(inputs)}
    own = inputs[len(inputs) - returned:]
    for node in module.graph.nodes:
        if node.target is torch.clone and node.args[0] in own and all(user.op == "output" for user in node.users):
            inside[node] = graph.call_method("contiguous", (inside[node.args[0]],))
        elif node.op != "placeholder":
            inside[node] = graph.node_copy(node, inside.__getitem__)
    return LoweredModule(module, graph, "Program")


def _argument(tracer: Tracer, name: str, shape: Shape) -> Value:
    """Placeholders for a parameter's leaves, converted to storage dtypes."""
    return grouped((_leaf(tracer, "_".join([name, *map(str, place)]), own) for place, own in places(shape)), shape)


def _leaf(tracer: Tracer, name: str, shape: Shape) -> Value:
    if not shape.is_array:
        return Token()
    value = tracer.placeholder(name, shape, torch_dtype)
    if not _needs_conversion(shape.element_type):
        return value
    stored = numerics.to_storage(value, shape.element_type)
    describe(stored.node, shape, storage_dtype)
    return stored


def _needs_conversion(element_type: PrimitiveType) -> bool:
    return storage_dtype(element_type) is not torch_dtype(element_type)


def _output(tracer: Tracer, value: Value, shape: Shape) -> Value:
    """A leaf of the result as a tensor that nothing else holds."""
    if isinstance(value, Splat):
        scalar = value.scalar.value if isinstance(value.scalar, Host) else value.scalar
        if isinstance(scalar, torch.fx.Proxy) and not isinstance(value.scalar, Host):
            value = scalar.expand(value.dims).clone(memory_format=torch.contiguous_format)
        elif isinstance(scalar, complex | torch.Tensor):  # `full` loses a NaN's bits; of complex, see `Evaluator._scalar_operand`
            value = tracer.trace.create_proxy("call_method", "clone", (tracer.materialise(value, shape),),
                                              {"memory_format": torch.contiguous_format})
        else:
            value = tracer.trace.create_proxy("call_function", torch.full, (value.dims, scalar),
                                              {"dtype": storage_dtype(shape.element_type), "device": tracer.device})
    if is_stack(shape):
        value = tracer.rows(value, shape)
    if _needs_conversion(shape.element_type):
        value = numerics.from_storage(value, shape.element_type)
    return value


def check_devices(tensors: Sequence[torch.Tensor]) -> None:
    """Raise DeviceError, naming the devices, unless all tensors are on one."""
    devices = sorted({str(t.device) for t in tensors})
    if len(devices) > 1:
        raise DeviceError("arguments are on several devices", got=", ".join(devices), expected="one device",
                          hint="move them with tensor.to(device)")
