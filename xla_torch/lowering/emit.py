"""IR to torch.fx: a `Tracer` evaluates a computation on proxies; what its op bodies do becomes a readable graph.

Node names are HLO names, reduced to what Python allows (`identifier`), and each node remembers its instruction. Constants
become buffers of the module, built once. Nothing from a file reaches generated code but through `identifier` and `comment`.
"""

from __future__ import annotations

import keyword
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx
from torch.fx.proxy import TracerBase

from ..errors import DeviceError
from ..hlo.ir import Computation, Instruction, Token
from ..shape import UNBOUNDED, Shape
from ..types import PrimitiveType
from . import numerics
from .blocking import block_elementwise
from .evaluator import Evaluator
from .kernels import tape
from .memory import overwrite_carries, plan_memory
from .overlap import overlap_exchanges
from .simplify import drop_needless_views
from .values import Host, Splat

LARGE = 1 << 16
"""Elements from which a foldable result without operands (iota) is made at run time instead of being kept as a constant."""

_NOT_WORD = re.compile(r"[^A-Za-z0-9_]+")


def identifier(name: str) -> str:
    """An HLO name as a Python identifier. The only way for a file's text into generated code."""
    word = _NOT_WORD.sub("_", name).strip("_") or "value"
    if keyword.iskeyword(word) or word == "self":
        return f"{word}_"
    return f"v{word}" if word[0].isdigit() else word


def comment(text: str) -> str:
    """Text of a file as the end of a comment: printable, one line, of bounded length."""
    return "".join(c if c.isprintable() else "?" for c in text)[:120]


class _Graph(TracerBase):
    """What torch.fx needs to make proxies and to keep constants; it traces no Python code of users."""

    def __init__(self, root: torch.nn.Module):
        super().__init__()
        self.root, self.graph, self.module_stack = root, torch.fx.Graph(), OrderedDict()
        self.hint = ""
        self.instruction: Instruction | None = None
        self._buffers: dict[int, tuple[torch.Tensor, torch.fx.Node]] = {}

    def create_arg(self, a: Any) -> Any:
        if isinstance(a, torch.Tensor):
            return self.buffer(a)
        return super().create_arg(a)

    def create_node(self, kind: str, target: Any, args: Any, kwargs: Any, name: str | None = None,
                    type_expr: Any = None) -> torch.fx.Node:
        if kind in ("call_function", "call_method") and self.hint:
            name = self.hint  # torch.fx would name the result of torch.tanh "tanh"
        node = self.graph.create_node(kind, target, args, kwargs, name, type_expr)
        if self.instruction is not None:
            node.meta["hlo"] = self.instruction
        return node

    def buffer(self, tensor: torch.Tensor) -> torch.fx.Node:
        """The get_attr node of a constant tensor, registered on the module once."""
        known = self._buffers.get(id(tensor))
        if known is not None:
            return known[1]
        name = self.attribute(self.hint or "constant")
        # Constants are data of the program, never parameters: they are not saved or trained.
        self.root.register_buffer(name, tensor, persistent=False)
        instruction, self.instruction = self.instruction, None
        node = self.create_node("get_attr", name, (), {}, name)
        self.instruction = instruction
        node.meta["array"] = (tuple(tensor.shape), tensor.dtype)
        self._buffers[id(tensor)] = (tensor, node)
        return node

    def attribute(self, stem: str) -> str:
        """A free attribute name of the module."""
        name, count = f"{stem}_value", 0
        while hasattr(self.root, name):
            count += 1
            name = f"{stem}_value_{count}"
        return name


class Tracer(Evaluator):
    """Evaluates on proxies and so builds the graph of one GraphModule."""

    def __init__(self, device: torch.device | str, root: torch.nn.Module | None = None):
        super().__init__(device)
        self.root = root or torch.nn.Module()
        self.trace = _Graph(self.root)

    def placeholder(self, name: str, shape: Shape) -> torch.fx.Proxy:
        node = self.trace.graph.placeholder(identifier(name))
        node.target = node.name  # unique, also where HLO names differ in punctuation only
        describe(node, shape, shape.element_type.torch)
        return torch.fx.Proxy(node, self.trace)

    def emit(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if function in _FACTORIES and not _has_proxy((args, kwargs)) and self._is_small():
            return function(*args, **kwargs)
        return self.trace.create_proxy("call_function", function, args, kwargs)

    def _is_small(self) -> bool:
        instruction = self.trace.instruction
        return instruction is not None and instruction.shape.element_count <= LARGE

    def instruction(self, instruction: Instruction, operands: Sequence[Any]) -> Any:
        before = self.trace.hint, self.trace.instruction
        self.trace.hint, self.trace.instruction = identifier(instruction.name), instruction
        try:
            result = super().instruction(instruction, operands)
        finally:
            self.trace.hint, self.trace.instruction = before
        if isinstance(result, torch.fx.Proxy) and self.shapes_hold:
            describe(result.node, instruction.shape, instruction.shape.element_type.carrier)
        return result

    def submodule(self, name: str, module: torch.nn.Module) -> torch.fx.Proxy:
        """Register a sub-program (a loop body, a branch) and return the value that stands for it."""
        attribute = self.trace.attribute(identifier(name)).removesuffix("_value")
        while hasattr(self.root, attribute):
            attribute += "_"
        self.root.add_module(attribute, module)
        return self.trace.create_proxy("get_attr", attribute, (), {})

    def finish(self, outputs: tuple[Any, ...], class_name: str, fresh_outputs: bool = False,
               blocks: bool = True) -> torch.fx.GraphModule:
        """Close the graph with its results and make the module. Buffers are updated in place where that is safe.

        `fresh_outputs` copies results that share memory with inputs, constants or each other; `blocks` lets chains of
        elementwise calls on large arrays run block by block on the CPU.
        """
        graph = self._close(outputs)
        if blocks:
            self._block(graph)
        plan_memory(graph, fresh_outputs)
        return torch.fx.GraphModule(self.root, graph, class_name)

    def finish_loop_body(self, outputs: tuple[Any, ...], class_name: str, first: int) -> tuple[torch.fx.GraphModule, set[int]]:
        """Close a loop body whose carries are the inputs from number `first` on; also returns which of them the body
        overwrites, so that the loop must own their first values."""
        graph = self._close(outputs)
        overwritten = overwrite_carries(graph, first, len(outputs))
        self._block(graph)
        plan_memory(graph, fresh_outputs=False)
        return torch.fx.GraphModule(self.root, graph, identifier(class_name)), overwritten

    def _block(self, graph: torch.fx.Graph) -> None:
        if self.device.type == "cpu":
            block_elementwise(self.root, graph)

    def _close(self, outputs: tuple[Any, ...]) -> torch.fx.Graph:
        self.trace.graph.output(tuple(
            v.node if isinstance(v, torch.fx.Proxy) else self.trace.create_arg(v) for v in outputs))
        self.trace.graph.eliminate_dead_code(is_impure_node=_is_impure)
        drop_needless_views(self.trace.graph)
        overlap_exchanges(self.trace.graph)
        return self.trace.graph


def describe(node: torch.fx.Node, shape: Shape, dtype: torch.dtype | None) -> None:
    """Note on a node what array it is, ``(dimensions, dtype)``, for the passes that plan memory."""
    if shape.is_array and shape.is_static:
        node.meta.setdefault("array", (shape.dimensions, dtype))


_FACTORIES = frozenset({torch.arange, torch.full, torch.zeros, torch.ones, torch.eye})


def _is_impure(node: torch.fx.Node) -> bool:
    from ..opcodes.definition import OPS
    from ..opcodes.inference import has_effect

    if node.op in ("placeholder", "output"):
        return True
    instruction = node.meta.get("hlo")
    return instruction is not None and instruction.opcode in OPS and has_effect(instruction)


def _has_proxy(value: Any) -> bool:
    if isinstance(value, torch.fx.Proxy):
        return True
    if isinstance(value, dict):
        return any(_has_proxy(v) for v in value.values())
    return isinstance(value, (list, tuple)) and any(_has_proxy(v) for v in value)


# ----------------------------------------------------------------------------------------------- whole programs


def lower(computation: Computation, device: torch.device, blocks: bool = True) -> torch.fx.GraphModule:
    """The computation as a GraphModule for one device.

    Its inputs are the flattened parameters (tuples depth first, tokens left out) and its output the flat tuple of the
    root's leaves, all in the boundary dtypes of their element types.
    """
    tracer = Tracer(device)
    arguments = [tracer_argument(tracer, p.name, p.shape) for p in computation.parameters]
    result = tracer.run(computation, arguments)
    outputs = tuple(_output(tracer, value, shape) for value, shape in flatten(result, computation.root.shape))
    return tracer.finish(outputs, "Program", fresh_outputs=True, blocks=blocks)


def freeing(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The same program, which takes one list of its inputs and empties it. Python cannot free an argument of a call while
    the call runs; what is taken out of a list is freed after its last use."""
    graph = torch.fx.Graph()
    given = graph.placeholder("inputs")
    inputs = [n for n in module.graph.nodes if n.op == "placeholder"]
    inside = {n: graph.create_node("call_method", "pop", (given,), {}, n.name) for n in reversed(inputs)}
    for node in module.graph.nodes:
        if node.op != "placeholder":
            inside[node] = graph.node_copy(node, inside.__getitem__)
    return torch.fx.GraphModule(module, graph, "Program")


def tracer_argument(tracer: Tracer, name: str, shape: Shape) -> Any:
    """Placeholders for a parameter, converted to carriers."""
    if shape.is_tuple:
        return tuple(tracer_argument(tracer, f"{name}_{i}", s) for i, s in enumerate(shape.tuple_shapes))
    if not shape.is_array:
        return Token()
    value = tracer.placeholder(name, shape)
    return numerics.to_carrier(value, shape.element_type) if _needs_carrier(shape.element_type) else value


def _needs_carrier(element_type: PrimitiveType) -> bool:
    return element_type.carrier is not element_type.torch


def _output(tracer: Tracer, value: Any, shape: Shape) -> Any:
    """A leaf of the result as a tensor that nothing else holds."""
    if isinstance(value, Splat):
        scalar = value.scalar.value if isinstance(value.scalar, Host) else value.scalar
        if isinstance(scalar, torch.fx.Proxy) and not isinstance(value.scalar, Host):
            value = scalar.expand(value.dims).clone(memory_format=torch.contiguous_format)
        elif isinstance(scalar, complex):  # not every one survives being printed: see `Evaluator._scalar_operand`
            value = tracer.trace.create_proxy("call_method", "clone", (tracer.materialise(value, shape),),
                                              {"memory_format": torch.contiguous_format})
        else:
            value = tracer.trace.create_proxy("call_function", torch.full, (value.dims, scalar),
                                              {"dtype": shape.element_type.carrier, "device": tracer.device})
    if UNBOUNDED in shape.dimensions:
        value = tracer.emit(tape.packed, value, shape.dimensions[1:], shape.element_type.carrier, tracer.device)
    if _needs_carrier(shape.element_type):
        value = numerics.from_carrier(value, shape.element_type)
    return value


def flatten(value: Any, shape: Shape) -> list[tuple[Any, Shape]]:
    """The array leaves of a value with their shapes, depth first; tokens are left out."""
    if shape.is_tuple:
        return [leaf for v, s in zip(value, shape.tuple_shapes, strict=True) for leaf in flatten(v, s)]
    return [(value, shape)] if shape.is_array else []


def unflatten(leaves: Any, shape: Shape) -> Any:
    """The inverse of `flatten`, from an iterator of leaves."""
    if shape.is_tuple:
        return tuple(unflatten(leaves, s) for s in shape.tuple_shapes)
    return next(leaves) if shape.is_array else Token()


def check_devices(tensors: Sequence[torch.Tensor]) -> None:
    """Raise DeviceError, naming the devices, unless all tensors are on one."""
    devices = sorted({str(t.device) for t in tensors})
    if len(devices) > 1:
        raise DeviceError("arguments are on several devices", got=", ".join(devices), expected="one device",
                          hint="move them with tensor.to(device)")
