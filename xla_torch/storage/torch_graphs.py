"""The private interfaces of torch that make and run its graphs: tracing, stand-ins, the levels of torch.func.vmap in exports."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.fx.experimental.proxy_tensor
import torch.fx.experimental.symbolic_shapes
from torch.nn.attention import SDPBackend, sdpa_kernel

from .torch_private import private, pytree

make_fx: Callable[..., Any] = private(torch.fx.experimental.proxy_tensor, "make_fx")


batch_norm: Any = private(torch.ops.aten, "_native_batch_norm_legit")
"""Batch norm whose schema says that it writes into the running statistics."""

batch_norm_in_inference: Any = private(torch.ops.aten, "_native_batch_norm_legit_no_training")
"""Batch norm by the running statistics."""

flex_attention: Any = private(torch, "_higher_order_ops.flex_attention")
"""Attention with functions of its scores, as torch.export has it."""


def scan(step: Callable[..., torch.Tensor], first: torch.Tensor, slices: Sequence[torch.Tensor],
         others: Sequence[torch.Tensor]) -> torch.Tensor:
    """The last of a chain of steps, each of which takes the next slices, as one operator while torch traces."""
    operator = private(importlib.import_module("torch._higher_order_ops.scan"), "scan_op")
    return operator(lambda *given: [found := step(*given), found.clone()], [first], list(slices), list(others))[0]


DataDependent: type[Exception] = private(torch.fx.experimental.symbolic_shapes, "GuardOnDataDependentSymNode")
"""What torch raises for a size that depends on values where it asks for a number."""


def stand_in(like: torch.Tensor) -> torch.Tensor:
    """A tensor without data beside one."""
    with like.fake_mode:  # pyright: ignore[reportAttributeAccessIssue]
        return torch.empty_like(like, requires_grad=False)


def stand_ins(forms: Iterable[tuple[Sequence[int], torch.dtype]]) -> list[torch.Tensor]:
    """Tensors without data of these sizes and dtypes."""
    with _FakeTensorMode():
        return [torch.empty(tuple(sizes), dtype=dtype) for sizes, dtype in forms]


def hint(size: Any) -> int:
    """The number in the place of a symbolic size when the program was exported."""
    return size if type(size) is int else int(size.node.hint)


def example(like: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    """A tensor as a stand-in says, of these sizes, whose elements are anything."""
    strides = [hint(n) for n in like.stride()]
    order = sorted(range(like.ndim), key=lambda d: -strides[d])
    found = torch.empty_permuted(tuple(sizes), order, dtype=like.dtype, device=like.device)
    return found.requires_grad_(like.requires_grad)


def names_of_symbols(sizes: Sequence[Any]) -> Callable[[Any], str]:
    """What sizes, or expressions in their symbols, are in words, where a symbol is called as its `torch.export.Dim`; as torch
    calls it, where that has no name or is not known any more."""
    names = {}
    for node in (n.node for n in sizes if type(n) is not int):
        for symbol in node.expr.free_symbols:
            sources = [source.name for source in node.shape_env.var_to_sources.get(symbol, ())]
            known = [node.shape_env.source_name_to_debug_name.get(name, name) for name in sources]
            names[symbol] = next((name for name in known if name.isidentifier()), str(symbol))
    called = {symbol: type(symbol)(name) for symbol, name in names.items()}
    return lambda size: str((size.node.expr if isinstance(size, torch.SymInt) else size).xreplace(called))


def traced(function: Callable[..., Any], values: list[Any], decompositions: dict[Any, Any],
           in_two_steps: bool = False) -> torch.fx.GraphModule:
    """The graph of a function of these values, stand-ins and constants, in operators without side effects. Attention is what it
    is in products and a softmax: operators of a kernel's own are no core operators. A torch.autograd.Function is traced only
    `in_two_steps`: the first leaves the side effects."""
    mode = next(v.fake_mode for v in values if hasattr(v, "fake_mode"))
    tensors = [v.detach() if isinstance(v, torch.Tensor) else v for v in values]
    with mode, torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
        if in_two_steps:
            function = make_fx(function)(*tensors)
        graph = make_fx(torch.func.functionalize(function), decomposition_table=decompositions)(*tensors)
    graph.graph.eliminate_dead_code()
    return graph


def in_operators(function: Callable[..., Any], values: list[Any], decompositions: dict[Any, Any]) -> torch.fx.GraphModule:
    """The graph of a function of these stand-ins as it computes, of which autograd knows no more than what is computed."""
    with values[0].fake_mode, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        return make_fx(function, decomposition_table=decompositions)(*values)


def with_numbers(module: torch.fx.GraphModule, arguments: Sequence[Any]) -> torch.fx.GraphModule:
    """The graph for the sizes of these arguments, numbers and tensors of which only the form matters."""
    with torch.no_grad():
        return make_fx(torch.fx.Interpreter(module).run, tracing_mode="fake")(*arguments)


def deep_copied(exported: Any) -> torch.fx.GraphModule:
    """The graph of an exported program to change, with its modules, regions and names."""
    module = copy.deepcopy(exported.graph_module)
    for own, copied in zip(exported.graph_module.graph.nodes, module.graph.nodes, strict=True):
        copied.name = own.name  # deepcopy renames an input that is called as a function of Python
    return module


def copied(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """A graph to change, with the names of the other one."""
    graph = torch.fx.Graph()
    results = graph.graph_copy(module.graph, {})
    graph.output(results)
    return torch.fx.GraphModule(module, graph)


def split_results(module: torch.fx.GraphModule, count: int, inputs: int) -> tuple[torch.fx.GraphModule, torch.fx.GraphModule]:
    """Two graphs of the same inputs: one with the first so many results, one with the others. The first reads only the first so
    many inputs, and has no checks of what comes of the rest."""
    late: dict[torch.fx.Node, None] = dict.fromkeys(list(module.graph.find_nodes(op="placeholder"))[inputs:])
    for node in module.graph.nodes:
        if node.op != "output" and not late.keys().isdisjoint(node.all_input_nodes):
            late[node] = None
    halves = []
    for chosen, left_out in ((slice(count), [*late]), (slice(count, None), [])):
        graph, copies = torch.fx.Graph(), dict[torch.fx.Node, torch.fx.Node]()
        results: Any = graph.graph_copy(module.graph, copies)
        graph.output(results[chosen])
        for node in reversed(left_out):
            if node.op != "placeholder":
                graph.erase_node(copies[node])
        graph.eliminate_dead_code()
        halves.append(torch.fx.GraphModule(module, graph))
    return halves[0], halves[1]


def convert_by_aten(graph: torch.fx.Graph) -> None:
    """Let conversions of a number of Python, which AOTAutograd writes as an operator of its own, be operators of ATen."""
    for node in graph.find_nodes(op="call_function", target=_convert):
        tensor, dtype = node.args
        node.target, node.args, node.kwargs = torch.ops.aten._to_copy.default, (tensor,), {"dtype": dtype}


_convert: Any = private(torch.ops, "prims.convert_element_type.default")


def aot_autograd(**options: Any) -> Callable[..., Any]:
    """A backend of torch.compile that traces graphs and their gradients in operators, and gives these to its compilers."""
    return private(importlib.import_module("torch._dynamo.backends.common"), "aot_autograd")(**options)


def boxed(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function as AOTAutograd calls it, with a list that it may empty."""
    return importlib.import_module("functorch.compile").make_boxed_func(function)


def is_full_graph() -> bool:
    """Whether the code that torch.compile now traces was given with ``fullgraph=True``."""
    translator = private(importlib.import_module("torch._dynamo.symbolic_convert"), "InstructionTranslator")
    try:
        return bool(translator.current_tx().one_graph)
    except AttributeError:  # nothing is traced: the backend was called by itself
        return False


def storage_key(tensor: torch.Tensor) -> int:
    """A number that is equal for tensors, with data or without, that share their memory."""
    return tensor.untyped_storage()._cdata


_mode_of: Callable[[Any], Any] = private(torch, "_guards.detect_fake_mode")
_FakeTensorMode: Any = private(torch, "_subclasses.FakeTensorMode")


def state_of(module: torch.fx.GraphModule) -> torch.Tensor:
    """A stand-in of u64[2] beside those of a graph."""
    known = [leaf for node in module.graph.nodes for leaf in pytree.tree_leaves(node.meta.get("val"))]
    with _mode_of(known) or _FakeTensorMode():
        return torch.empty(2, dtype=torch.uint64)


def with_graph(exported: Any, module: torch.fx.GraphModule, signature: Any, constants: dict[str, torch.Tensor]) -> Any:
    """An exported program with another graph, and further constants."""
    return exported._update(module, signature, constants={**exported.constants, **constants})


def enter_level(node: torch.fx.Node, levels: list[tuple[int, str]]) -> None:
    """Add the level of torch.func.vmap that a node opens, its size and its randomness, or take off the one that it ends."""
    if node.target is _nested:
        size, randomness = node.args
        levels.append((size, randomness))  # pyright: ignore[reportArgumentType]
    elif node.target is _ended:
        levels.pop()


def map_over_first(graph: torch.fx.Graph, node: torch.fx.Node, levels: Sequence[int]) -> None:
    """Let levels of torch.func.vmap map over the first dimensions of a node."""
    found, readers = node, list(node.users)
    for level in levels:
        with graph.inserting_after(found):
            mapped = graph.call_function(_added, (found, 0, level))
        mapped.meta = dict(node.meta)
        found = mapped
    for reader in readers:
        reader.replace_input_with(node, found)


def beside(like: torch.Tensor, value: Any) -> Any:
    """A stand-in of the form of a tensor, as it is within the levels of torch.func.vmap, beside another one."""
    if not isinstance(value, torch.Tensor):
        return value
    with like.fake_mode:  # pyright: ignore[reportAttributeAccessIssue]
        return torch.empty(tuple(value.shape), dtype=value.dtype)


_nested, _ended, _added, _removed = (private(torch, f"_functorch.predispatch.{name}") for name in (
    "_vmap_increment_nesting", "_vmap_decrement_nesting", "_add_batch_dim", "_remove_batch_dim"))


class Decomposing(torch.fx.Interpreter):
    """What runs a graph with some operators as what they are in others. Levels of torch.func.vmap in it are those that they are
    here, below the transforms that are on, and not those that they were when the graph was exported."""

    def __init__(self, module: torch.fx.GraphModule, decompositions: dict[Any, Any]):
        super().__init__(module)
        self._ways, self._levels = decompositions, list[int]()

    def run(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().run(*args, **kwargs)
        finally:  # a level that stays open spoils all that comes after
            while self._levels:
                self._end()

    def _end(self) -> None:
        self._levels.pop()
        _ended()

    def run_node(self, n: torch.fx.Node) -> Any:
        found = super().run_node(n)
        return _as_laid_out(found, n.meta["val"]) if n.target is torch.ops.aten.scaled_dot_product_attention.default else found

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target is _nested:
            self._levels.append(_nested(*args, **kwargs))
            return len(self._levels)
        if target is _ended:
            return self._end()
        if target is _added:
            x, dim, level = args
            return _added(x, dim, self._levels[level - 1])
        if target is _removed:
            x, level, *rest = args
            return _removed(x, self._levels[level - 1], *rest)
        return super().call_function(self._ways.get(target, target), args, kwargs)


def _as_laid_out(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A tensor with its dimensions in memory in the order of another's: what is viewed must lie as it lay."""
    order = sorted(range(x.ndim), key=like.stride, reverse=True)
    return x.permute(order).contiguous().permute([order.index(d) for d in range(x.ndim)])
