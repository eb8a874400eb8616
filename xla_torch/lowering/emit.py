"""IR to torch.fx: a `Tracer` evaluates a computation on proxies; what its op bodies do becomes a readable graph.

Node names are HLO names, reduced to what Python allows (`identifier`), and each node remembers its instruction. Constants
become buffers of the module, built once. Ops that are the same (`transform/equal_ops.py`), once what is known of their operands
is, stand in a graph once, where the first of them stood. Nothing from a file reaches generated code but through `identifier`
and `comment`.
"""

from __future__ import annotations

import keyword
import math
import re
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
import torch.fx
from torch.fx.proxy import TracerBase

from ..codegen.compiled import MachineCode
from ..core import tuning
from ..core.shape import Shape
from ..core.sizes import Size, unnamed
from ..core.types import PrimitiveType
from ..hlo.ir import Computation, Instruction
from ..hlo.structure import CONSTANT
from ..kernels import indexing, reduction, stack
from ..kernels.calls import known
from ..opcodes import internal
from ..passes.passes import Lowering, run_passes
from ..storage.dtypes import storage_dtype
from ..storage.torch_private import LoweredModule
from ..transform.equal_ops import Forms, key_of
from . import numerics
from .evaluator import Evaluator
from .values import Host, Number, Runner, Splat, Value

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
        if isinstance(a, Size):
            return a  # until the graph is finished: see `sized.py`
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
        name = self.attribute(self.hint or CONSTANT)
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

    def __init__(self, device: torch.device | str, root: torch.nn.Module | None = None, fuses: bool = False,
                 overwrites: bool = True, portable: bool = False, ranges: bool = False):
        super().__init__(device)
        self.root = root or torch.nn.Module()
        self.fuses = fuses
        """Whether groups of calls go to torch's compiler."""
        self.overwrites = overwrites
        """Whether results may be written over values that are read no more. No block or group runs where they may not."""
        self.portable = portable
        """Whether torch makes a graph of what runs: loops and branches are torch's operators then, and nothing is on the host."""
        self.ranges = ranges
        """Whether torch's profiler is to see whose work it is."""
        self.bundles = True
        """Whether small ops may be put together in native calls (`bundles.py`)."""
        self.whole: MachineCode | None = None
        """Native code of all that is lowered here, if it is being made."""
        self.trace = _Graph(self.root)
        self.made: dict[Hashable, Any] = {}
        """Sub-programs by what they are made of: those of shared computations are made once (`inside`)."""
        self.forms = Forms()
        self._computed: dict[Hashable, tuple[Value, Sequence[Value]]] = {}
        """The values of pure ops in this graph, and their operands, by which they are found again."""

    def inside(self) -> Tracer:
        """A tracer for a sub-program."""
        inner = Tracer(self.device, fuses=self.fuses, overwrites=self.overwrites, portable=self.portable,
                       ranges=self.ranges)
        inner.made, inner.forms, inner.bundles, inner.whole = self.made, self.forms, self.bundles, self.whole
        return inner

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What was made for the key in this program or one inside it, or what `make` makes now."""
        if key not in self.made:
            self.made[key] = make()
        return self.made[key]

    def placeholder(self, name: str, shape: Shape,
                    dtype_of: Callable[[PrimitiveType], torch.dtype] = storage_dtype) -> torch.fx.Proxy:
        """An input. Those of sub-programs are values of the program; a caller's come in the boundary dtype."""
        node = self.trace.graph.placeholder(identifier(name))
        node.target = node.name  # unique, also where HLO names differ in punctuation only
        describe(node, shape, dtype_of)
        return torch.fx.Proxy(node, self.trace)

    def emit(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if _is_folded(function) and not _is_traced((args, kwargs)) and self._is_small():
            return function(*args, **kwargs)
        return self.trace.create_proxy("call_function", function, args, kwargs)

    def _is_small(self) -> bool:
        instruction = self.trace.instruction
        return (instruction is not None and not is_of_sizes(instruction)
                and instruction.shape.element_count <= tuning.CONSTANT_UP_TO)

    def instruction(self, instruction: Instruction, operands: Sequence[Value]) -> Value:
        key = self._key(instruction, operands)
        if key is None:
            return super().instruction(instruction, operands)
        if key not in self._computed:
            self._computed[key] = super().instruction(instruction, operands), operands
        return self._computed[key][0]

    def _key(self, instruction: Instruction, operands: Sequence[Value]) -> Hashable | None:
        """What the same ops of the same values have in common; None for those that stand for themselves: a barrier, behind which
        things are computed again, tokens, and what makes and opens tuples only."""
        if (instruction.is_tuple or instruction.is_element or instruction.opcode == internal.opt_barrier
                or not all(leaf.is_array for leaf in instruction.shape.leaves())):
            return None
        key = key_of(instruction, [identity(v) for v in operands], self.forms.number)
        return None if key is None else (key, self.shapes_hold)

    def computed(self, instruction: Instruction, operands: Sequence[Value]) -> Value:
        before = self.trace.hint, self.trace.instruction
        self.trace.hint, self.trace.instruction = identifier(instruction.name), instruction
        try:
            if is_of_sizes(instruction):
                operands = [self._proxy(v) for v in operands]
            result = super().computed(instruction, operands)
        finally:
            self.trace.hint, self.trace.instruction = before
        if isinstance(result, torch.fx.Proxy) and self.shapes_hold:
            describe(result.node, instruction.shape, storage_dtype)
        return self._as_number(result, instruction.shape) if isinstance(result, torch.Tensor) else result

    def _as_number(self, value: torch.Tensor, shape: Shape) -> Value:
        """A constant integer as a number, which other ops then know: an element of a table of constants, for one. A region of
        scalars may run on arrays, which are none."""
        if shape.rank or value.ndim or not shape.element_type.is_integral or value.device.type != "cpu":
            return value
        array = numerics.numpy_from_storage(value, shape.element_type)
        return Splat(numerics.number_from_numpy(array[()], shape.element_type))

    def _proxy(self, value: Value) -> Value:
        """A constant as a value of the program: what is done with it depends on sizes that torch cannot take now."""
        if isinstance(value, tuple):
            return tuple(map(self._proxy, value))
        return torch.fx.Proxy(self.trace.buffer(value), self.trace) if isinstance(value, torch.Tensor) else value

    def materialise(self, value: Value, shape: Shape) -> Value:
        if isinstance(value, Splat) and isinstance(math.prod(value.dims), Size):
            scalar = self._scalar_operand(value.scalar, shape.element_type, False)
            return self._proxy(scalar).expand(value.dims)
        return super().materialise(value, shape)

    def rows(self, value: Value, shape: Shape) -> Value:
        """The values on a stack as one array, which may leave a program."""
        return self.emit(stack.packed, value, shape.dimensions[1:], storage_dtype(shape.element_type), self.device)

    def subprogram(self, computation: Computation, run: Callable[[Runner, Sequence[Value]], tuple[Value, ...]]) -> Value:
        """`run` traced as a program of its own; the value that stands for it."""
        inner = self.inside()
        inner.fuses = False  # it may be called for arrays of any size
        inputs = [inner.placeholder(p.name, leaf) for p in computation.parameters for leaf in p.shape.leaves() if leaf.is_array]
        with inner.installed():
            module = inner.finish(run(inner, inputs), "Region")
        return self.submodule(computation.name, module)

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
        lowering = self._lowering(outputs, class_name)
        lowering.blocks, lowering.fresh_outputs = blocks, fresh_outputs
        run_passes(lowering)
        return LoweredModule(self.root, lowering.graph, class_name)

    def finish_loop_body(self, outputs: tuple[Any, ...], class_name: str, first: int) -> tuple[torch.fx.GraphModule, set[int]]:
        """Close a loop body whose carries are the inputs from number `first` on; also returns which of them the body
        overwrites, so that the loop must own their first values."""
        lowering = self._lowering(outputs, identifier(class_name))
        lowering.first_carry = first
        run_passes(lowering)
        return LoweredModule(self.root, lowering.graph, lowering.name), lowering.overwritten

    def _lowering(self, outputs: tuple[Any, ...], name: str) -> Lowering:
        graph = self.trace.graph
        graph.output(tuple(v.node if isinstance(v, torch.fx.Proxy) else self.trace.create_arg(v) for v in outputs))
        return Lowering(self.root, graph, name, self.device.type == "cpu", self.overwrites, self.fuses, ranges=self.ranges)


def describe(node: torch.fx.Node, shape: Shape, dtype_of: Callable[[PrimitiveType], torch.dtype]) -> None:
    """Note on a node what array it is, ``(dimensions, dtype)``, for the passes that plan memory."""
    if shape.is_array and shape.is_static:
        node.meta.setdefault("array", (shape.dimensions, dtype_of(shape.element_type)))


def identity(value: Value) -> Hashable:
    """What stands for a value of a graph, while it lives: numbers are the same where they are written alike, all else where it is
    one and the same."""
    if isinstance(value, tuple):
        return tuple(map(identity, value))
    if isinstance(value, Splat):
        return identity(value.scalar), unnamed(value.dims)
    if isinstance(value, Host):
        return identity(value.value), unnamed(value.low), unnamed(value.high)
    if isinstance(value, Size):
        return unnamed(value)
    if isinstance(value, Number):
        return type(value), repr(value)
    return id(value.node if isinstance(value, torch.fx.Proxy) else value)


_FOLDED = frozenset({torch.arange, torch.full, torch.zeros, torch.ones, torch.eye, indexing.gather, indexing.take,
                     indexing.scatter, reduction.any_of, reduction.all_of, reduction.running_total, reduction.running_extreme})


def _is_folded(function: Callable[..., Any]) -> bool:
    """Whether a call of constants alone is a constant as well, made once with the program."""
    return function in _FOLDED or known(function).elementwise


def is_of_sizes(instruction: Instruction) -> bool:
    """Whether sizes that stand for many are among those of the instruction's operands and result."""
    return instruction.shape.has_sizes or any(o.shape.has_sizes for o in instruction.operands)


def _is_traced(value: Any) -> bool:
    """Whether there is anything in it that is only known when the program runs."""
    if isinstance(value, (torch.fx.Proxy, Size)):
        return True
    if isinstance(value, dict):
        return any(_is_traced(v) for v in value.values())
    return isinstance(value, (list, tuple)) and any(_is_traced(v) for v in value)
