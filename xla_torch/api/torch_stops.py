"""Where gradients stop in programs that torch exported: `detach`, `Tensor.data`, torch.no_grad, the padding of an embedding.

torch forgets them when it decomposes a program. So each is marked before, by an operator that passes a value on and whose
derivative is zero (`transform.stops`), and the program knows of them whatever its derivatives are made of.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.fx

from ..aten.operator_rules import rule
from ..functions.hlo_builder import XlaOp
from ..hlo.derivatives import Stop
from ..storage import torch_graphs
from ..storage.function_modes import DETACHES, FunctionMode
from ..storage.torch_private import Operator, arguments_of, is_view
from ..transform.stops import stopped
from . import torch_graph

_OPS = torch.library.Library("xla_torch", "FRAGMENT")
_OPS.define("no_gradient(Tensor x, str name) -> Tensor", tags=(torch.Tag.pointwise,))
torch.library.register_fake("xla_torch::no_gradient", lambda x, name: x.new_empty_strided(x.size(), x.stride()))
_OPS.impl("no_gradient", lambda x, name: x.clone(), "CompositeExplicitAutograd")  # torch computes constants as it decomposes
_STOP: Any = torch.ops.xla_torch.no_gradient.default
torch.library.register_vmap("xla_torch::no_gradient", lambda info, in_dims, x, name: (_STOP(x, name), in_dims[0]))


@rule("xla_torch.no_gradient.default")
def _no_gradient(x: XlaOp, name: str) -> XlaOp:
    return stopped(x, Stop((name,))) if x.element_type.is_differentiable else x


def without_autograd() -> dict[Any, Callable[..., Any]]:
    """The operator for autograd, which is to follow it no more than the program's derivatives do."""
    return {_STOP: lambda x, name: _STOP(x.detach(), name)}


class InPlaceOfDetach(FunctionMode):
    """Let `detach` be the operator, where torch traces a function."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _STOP(args[0], "detach") if func in DETACHES else self.call(func, args, kwargs or {})


def of_gradients(module: torch.fx.GraphModule) -> tuple[str, ...]:
    """The names of what says of gradients what its value does not, also in the graphs within."""
    nodes = (node for graph in _graphs(module) for node in graph.nodes)
    return tuple(dict.fromkeys(torch_graph.name_of(node.target) for node in nodes if _is_of_gradients(node)))


def marked(exported: Any) -> tuple[Any, tuple[str, ...]]:
    """The exported program with gradients stopped by operators, and the names of what says so and could not be marked: all, where
    memory that they share with others is written into."""
    names = of_gradients(exported.graph_module)
    if not names or not all(map(_can_be_marked, _graphs(exported.graph_module))):
        return exported, names
    module = torch_graphs.deep_copied(exported)
    for graph in _graphs(module):
        for node in list(graph.nodes):
            if _is_of_gradients(node):
                _mark(node)
    for one in _modules(module):
        one.recompile()
    return torch_graphs.with_graph(exported, module, exported.graph_signature, {}), ()


def _modules(module: torch.fx.GraphModule) -> Iterator[torch.fx.GraphModule]:
    return (one for one in module.modules() if isinstance(one, torch.fx.GraphModule))


def _graphs(module: torch.fx.GraphModule) -> list[torch.fx.Graph]:
    return [one.graph for one in _modules(module)]


# ------------------------------------------------------------------------------------------- which nodes


def _is_of_gradients(node: torch.fx.Node) -> bool:
    """Whether a node says of gradients what its value does not."""
    if node.op != "call_function":
        return False
    name = torch_graph.name_of(node.target)
    if name == "embedding.default":
        return len(node.args) > 2 and node.args[2:3] != (-1,)  # no gradient for the padding
    if name.startswith("detach"):
        return not _is_constant(node.args[0]) and _moves(node)
    return _is_no_grad(node) or (name == "view.dtype" and _moves(node))  # no gradient goes through bits


def _is_no_grad(node: torch.fx.Node) -> bool:
    return node.op == "call_function" and torch_graph.name_of(node.target).startswith("wrap_with_set_grad_enabled")


def _moves(node: torch.fx.Node) -> bool:
    value = node.meta.get("val")
    is_number = isinstance(value, (bool, int, float, torch.SymBool, torch.SymInt, torch.SymFloat))
    return not is_number and (not isinstance(value, torch.Tensor) or value.dtype.is_floating_point or value.dtype.is_complex)


def _is_constant(node: Any) -> bool:
    """Whether a node is a tensor that the module makes of numbers: torch lifts it and detaches what comes of that."""
    while node.op == "call_function" and torch_graph.name_of(node.target).startswith("lift_fresh"):
        node = node.args[0]
    return node.op == "get_attr" or (node.op == "placeholder" and node.name.startswith("c_"))


def _region(node: torch.fx.Node) -> torch.fx.Graph:
    """The graph that runs with gradients on or off."""
    owner: Any = node.graph.owning_module
    return operator.attrgetter(node.args[1].target)(owner).graph  # pyright: ignore


# ------------------------------------------------------------------------------------------- memory


def _can_be_marked(graph: torch.fx.Graph) -> bool:
    """Whether a copy may stand in the place of each value whose gradient stops: nothing writes into memory that it shares, or
    reads it otherwise than as it is."""
    nodes = [node for node in graph.nodes if node.op == "call_function"]
    written = {_base(argument) for node in nodes for argument in _written(node)}
    for node in nodes:
        if torch_graph.name_of(node.target).startswith("as_strided"):
            return False
        if _is_of_gradients(node) and _base(node) in written:
            return False
        if _is_no_grad(node) and not _is_plain_region(_region(node)):
            return False
    return True


def _is_plain_region(graph: torch.fx.Graph) -> bool:
    """Whether a graph that runs with gradients off writes into its own tensors alone, and does not put gradients on again."""
    nodes = [node for node in graph.nodes if node.op == "call_function"]
    return not any(_is_no_grad(node) for node in nodes) and not any(
        _base(argument).op == "placeholder" for node in nodes for argument in _written(node))


def _written(node: torch.fx.Node) -> list[torch.fx.Node]:
    """The arguments that an operator writes into. What `detach_` changes is no value."""
    if not isinstance(node.target, Operator) or torch_graph.name_of(node.target).startswith("detach"):
        return []
    given = [node.args[place] if place < len(node.args) else node.kwargs.get(one.name)
             for place, one in enumerate(arguments_of(node.target)) if one.alias_info and one.alias_info.is_write]
    return [one for one in given if isinstance(one, torch.fx.Node)]


def _base(node: torch.fx.Node) -> torch.fx.Node:
    """The value whose memory a node views."""
    while node.op == "call_function" and node.args and isinstance(node.args[0], torch.fx.Node):
        if not (node.target is operator.getitem or (isinstance(node.target, Operator) and is_view(node.target))):
            return node
        node = node.args[0]
    return node


# ------------------------------------------------------------------------------------------- marks


def _mark(node: torch.fx.Node) -> None:
    name = torch_graph.name_of(node.target)
    if _is_no_grad(node):
        if not node.args[0]:
            _mark_parts(node, name)
    elif name == "embedding.default":
        _mark_padding(node, name)
    elif name == "view.dtype":
        _stop_here(node, _before(node, node.target, node.args, node.meta["val"]), name)
    else:
        if name.startswith("detach_"):
            node.args[0].replace_all_uses_with(node, lambda user: node < user)  # pyright: ignore
        _stop_here(node, node.args[0], name)


def _mark_parts(region: torch.fx.Node, name: str) -> None:
    """Stop the gradients of what a region gives, but for what it takes and passes on."""
    results: Any = _region(region).output_node().args[0]
    for part in list(region.users):
        if results[part.args[1]].op != "placeholder" and _moves(part):
            _stop_here(part, _before(part, part.target, part.args, part.meta["val"]), name)


def _mark_padding(node: torch.fx.Node, name: str) -> None:
    """Stop the gradients of the rows of an embedding that are its padding."""
    (weight, at, padding, *_), aten = node.args, torch.ops.aten
    found = _before(node, aten.embedding.default, (weight, at), node.meta["val"])
    fixed = _before(node, _STOP, (found, name), node.meta["val"])
    is_one = _before(node, aten.eq.Scalar, (at, padding), at.meta["val"] == padding)  # pyright: ignore
    is_padding = _before(node, aten.unsqueeze.default, (is_one, -1), is_one.meta["val"].unsqueeze(-1))
    node.target, node.args, node.kwargs = aten.where.self, (is_padding, fixed, found), {}


def _before(node: torch.fx.Node, target: Any, args: Any, value: Any) -> torch.fx.Node:
    """A node before another one, from the same line."""
    with node.graph.inserting_before(node):
        made = node.graph.call_function(target, args)
    made.meta = {**node.meta, "val": value}
    return made


def _stop_here(node: torch.fx.Node, given: Any, name: str) -> None:
    """Let a node, which keeps its name, be what is given without its gradient."""
    node.target, node.args, node.kwargs = _STOP, (given, name), {}
