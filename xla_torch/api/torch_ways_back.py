"""Operators of ATen that are gradients of others: as the gradients of what these others are in operators.

torch has them in a graph where a model calls `torch.autograd.grad`, as gradient penalties and physics-informed losses do. A row
names the operator forwards and the arguments that the results are gradients of; arguments of both operators go by their names.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
import torch.fx

from ..core.errors import InternalError, UnsupportedError
from ..storage import inline_regions, torch_graphs, torch_private
from ..storage.torch_private import arguments_of
from . import torch_graph_nodes
from .torch_compositions import by_operator

Way = Callable[..., Any]
_of_distances: Way = torch_private.private(torch.ops, "aten._cdist_backward")
_plain_attention: Way = torch_private.private(torch.ops, "aten._scaled_dot_product_attention_math")


class _Row(NamedTuple):
    """What an operator is the gradient of."""

    forward: str | Way
    """The name of an operator, or a function."""
    of: tuple[str, ...]
    """The arguments that are differentiated. One that the operator does not take (it takes ``input_size``) has zeros."""


def _pdist(grad: torch.Tensor, self: torch.Tensor, p: float, pdist: torch.Tensor) -> torch.Tensor:
    """As that of the distances between all points and all points, each of which is there twice."""
    count = self.shape[0]
    first, second = torch.triu_indices(count, count, 1)

    def matrix(x: torch.Tensor) -> torch.Tensor:
        half = x.new_zeros(count, count).index_put((first, second), x)
        return half + half.T

    return _of_distances(matrix(grad), self, self, p, matrix(pdist))


def _masked_softmax(grad_output: torch.Tensor, output: torch.Tensor, mask: torch.Tensor, dim: int | None = None) -> torch.Tensor:
    dim = output.ndim - 1 if dim is None else dim
    found = output * (grad_output - (grad_output * output).sum(dim, keepdim=True))
    return torch.where(mask.bool(), torch.zeros_like(found), found)


def _masked_scatter(grad_output: torch.Tensor, mask: torch.Tensor, sizes: list[int]) -> torch.Tensor:
    """Elements of the source that nobody read get 0."""
    found = grad_output.new_zeros(sizes)
    mask, grad_output = (x.reshape(-1) for x in torch.broadcast_tensors(mask, grad_output))
    place = torch.where(mask, mask.cumsum(0) - 1, found.numel())
    return found.new_zeros(found.numel() + 1).scatter(0, place, grad_output)[:-1].view(sizes)


def _embedding_bag(grad: torch.Tensor, indices: torch.Tensor, offset2bag: torch.Tensor, bag_size: torch.Tensor,
                   maximum_indices: torch.Tensor, num_weights: int, scale_grad_by_freq: bool, mode: int,
                   per_sample_weights: torch.Tensor | None, padding_idx: int = -1) -> torch.Tensor:
    if scale_grad_by_freq:
        raise UnsupportedError("scale_grad_by_freq is not supported", subject="embedding_bag",
                               got="scale_grad_by_freq=True", expected="False")
    found = grad.new_zeros(num_weights, grad.shape[1])
    if mode == 2:
        return found.scatter_add(0, maximum_indices, torch.where(bag_size[:, None] > 0, grad, torch.zeros_like(grad)))
    rows = grad / bag_size.clamp(min=1)[:, None].to(grad.dtype) if mode == 1 else grad
    rows = rows[offset2bag] if per_sample_weights is None else rows[offset2bag] * per_sample_weights[:, None]
    rows = rows if padding_idx == -1 else torch.where((indices != padding_idx)[:, None], rows, torch.zeros_like(rows))
    return found.index_add(0, indices, rows)


def _embedding_bag_any(grad: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor, offset2bag: torch.Tensor,
                       bag_size: torch.Tensor, maximum_indices: torch.Tensor, num_weights: int, scale_grad_by_freq: bool,
                       mode: int, sparse: bool, per_sample_weights: torch.Tensor | None, padding_idx: int = -1) -> torch.Tensor:
    return _embedding_bag(grad, indices, _bag_of_each(indices, offsets), bag_size, maximum_indices, num_weights,
                          scale_grad_by_freq, mode, per_sample_weights, padding_idx)


def _bag_of_each(indices: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """torch says none where it does not need them."""
    return torch.searchsorted(offsets, torch.arange(indices.shape[0], dtype=offsets.dtype), right=True) - 1


def _embedding_bag_samples(grad: torch.Tensor, weight: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor,
                           offset2bag: torch.Tensor, mode: int, padding_idx: int = -1) -> torch.Tensor:
    found = (grad[_bag_of_each(indices, offsets)] * weight[indices]).sum(1)
    return found if padding_idx == -1 else torch.where(indices != padding_idx, found, torch.zeros_like(found))


def _weight_norm(saved_v: torch.Tensor, saved_g: torch.Tensor, dim: int) -> torch.Tensor:
    return saved_v * (saved_g / torch.norm_except_dim(saved_v, 2, dim))


def _attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None,
               attn_bias: torch.Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False,
               scale: float | None = None) -> torch.Tensor:
    if dropout_p:
        raise UnsupportedError("the gradient of attention with dropout has no rule", got=f"dropout_p={dropout_p}", expected="0",
                               hint="call model.eval(), or apply torch.nn.functional.dropout to the weights")
    mask = attn_bias if attn_mask is None else attn_mask
    return _plain_attention(query, key, value, mask, 0.0, is_causal, scale=scale)[0]


_SELF, _ATTENTION = ("self",), _Row(_attention, ("query", "key", "value"))

_ROWS: dict[str, _Row] = {
    **{f"{name}_backward": _Row(name, _SELF) for name in (
        "upsample_linear1d", "upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d",
        *(f"{kind}{rank}d" for kind in ("upsample_nearest", "_upsample_nearest_exact", "replication_pad") for rank in (1, 2, 3)),
        "hardshrink", "softshrink", "multi_margin_loss")},
    "_segment_reduce_backward": _Row("segment_reduce", ("data",)),
    "_weight_norm_interface_backward": _Row(_weight_norm, ("saved_v", "saved_g")),
    "grid_sampler_2d_backward": _Row("grid_sampler_2d", ("input", "grid")),
    "_grid_sampler_2d_cpu_fallback_backward": _Row("grid_sampler_2d", ("input", "grid")),
    "grid_sampler_3d_backward": _Row("grid_sampler_3d", ("input", "grid")),
    "_scaled_dot_product_flash_attention_for_cpu_backward": _ATTENTION,
    "_scaled_dot_product_flash_attention_backward": _ATTENTION,
    "_scaled_dot_product_cudnn_attention_backward": _ATTENTION,
    "_scaled_dot_product_efficient_attention_backward": _Row(_attention, ("query", "key", "value", "attn_bias")),
    "_scaled_dot_product_fused_attention_overrideable_backward": _Row(_attention, ("query", "key", "value", "attn_bias")),
}

_FORMULAS: dict[str, Way] = {
    "_pdist_backward": _pdist,
    "_masked_softmax_backward": _masked_softmax, "masked_scatter_backward": _masked_scatter,
    "_embedding_bag_backward": _embedding_bag_any, "_embedding_bag_dense_backward": _embedding_bag,
    "_embedding_bag_per_sample_weights_backward": _embedding_bag_samples}
"""Operators that take results of the one forwards in the place of its arguments."""


@functools.cache
def rows() -> dict[Any, Any]:
    """What operators are the gradients of, by operator."""
    return by_operator(_ROWS)  # pyright: ignore[reportArgumentType]


def formulas() -> dict[Any, Way]:
    """Those that are decomposed as other operators are, by operator."""
    return by_operator(_FORMULAS)


def opened(module: torch.fx.GraphModule, ways: Mapping[Any, Way]) -> None:
    """Put the gradients of what is forwards in the place of operators that have a row, given what operators forwards are in
    others: they are differentiated, which decompositions are too late for."""
    known = rows()
    for part in inline_regions.with_regions(module):
        nodes = [node for node in part.graph.nodes if node.target in known]
        for node in nodes:
            _open(part, node, _gradients(node.target, known[node.target], ways))
        if nodes:
            part.graph.eliminate_dead_code()
            part.recompile()


def has_rows(module: torch.fx.GraphModule) -> bool:
    """Whether a graph has operators with a row."""
    known = rows()
    return any(node.target in known for part in inline_regions.with_regions(module) for node in part.graph.nodes)


def _open(module: torch.fx.GraphModule, node: torch.fx.Node, way: Way) -> None:
    flat, tree = torch_private.pytree.tree_flatten((node.args, node.kwargs))
    given = [leaf for leaf in flat if isinstance(leaf, torch.fx.Node)]

    def run(*values: Any) -> Any:
        rest = iter(values)
        args, kwargs = torch_private.pytree.tree_unflatten(
            [next(rest) if isinstance(leaf, torch.fx.Node) else leaf for leaf in flat], tree)
        return way(*args, **kwargs)

    graph = torch_graphs.in_operators(run, [n.meta["val"] for n in given], {})
    torch_graph_nodes.inline(module, node, graph, given)


def _gradients(back: Any, row: _Row, ways: Mapping[Any, Way]) -> Way:
    """The operator `back` as gradients of what is forwards, all of them: nobody reads those that its mask leaves out."""
    taken, forward = arguments_of(back), _forward(row.forward, ways)

    def way(*args: Any, **kwargs: Any) -> Any:
        given = {a.name: args[k] if k < len(args) else kwargs.get(a.name, a.default_value) for k, a in enumerate(taken)}
        cotangent = given[taken[0].name]
        if "input_size" in given:  # the operator is linear: its gradient is the same everywhere
            given["self"] = cotangent.new_zeros(given["input_size"])
        active = [name for name in row.of if given[name] is not None]

        def function(*tensors: torch.Tensor) -> torch.Tensor:
            found = forward({**given, **dict(zip(active, tensors, strict=True))})
            return found[0] if isinstance(found, tuple) else found

        pull = torch.func.vjp(function, *(given[name] for name in active))[1]
        found = dict(zip(active, pull(cotangent), strict=True))
        every = [found.get(name) for name in row.of]
        return every[0] if len(back._schema.returns) == 1 else every

    return way


def _forward(given: str | Way, ways: Mapping[Any, Way]) -> Callable[[Mapping[str, Any]], Any]:
    """What is differentiated, as a function of arguments by name among which there are others."""
    if not isinstance(given, str):
        named = inspect.signature(given).parameters
        return lambda arguments: given(**{name: value for name, value in arguments.items() if name in named})
    operator = getattr(torch.ops.aten, given).default
    if operator not in ways:  # autograd would call the gradient's operator again
        raise InternalError("an operator has a row and no decomposition", subject=given)

    def call(arguments: Mapping[str, Any]) -> Any:
        found = {a.name: arguments.get(a.name, a.default_value) for a in arguments_of(operator)}
        positional = [found.pop(a.name) for a in arguments_of(operator) if not a.kwarg_only]
        return ways[operator](*positional, **found)

    return call
