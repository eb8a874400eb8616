"""Operators of torch that run in one piece: the kernels of composites (`hlo/composites.py`), forward and back.

A composite is called ``aten.`` and the operator's name, such as ``aten.grid_sampler_2d``; its attributes are a JSON object of the
operator's arguments that are not tensors, and of ``operands``, the names of those that are. ``aten.grid_sampler_2d.vjp`` is the
way back: it takes the operands, the results number ``kept``, and the cotangents of the results that ``demanded`` flags, and
returns the gradients of the operands that ``needed`` flags.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from ..hlo.composites import PREFIX, VJP
from ..storage.torch_private import arguments_of, is_graphed, private
from .calls import fresh_tuple

Tensors = Sequence[torch.Tensor]
Back = Callable[[Mapping[str, Any], Tensors, Sequence[torch.Tensor | None], Sequence[bool]], Iterable[torch.Tensor | None]]
"""From the operator's arguments by name, the results that are kept, the cotangents, of which the first alone is there, and which
operands need a gradient to those."""


def _grid(argument: Mapping[str, Any], results: Tensors, cts: Sequence[Any], needed: Sequence[bool]) -> Tensors:
    back = torch.ops.aten.grid_sampler_2d_backward if argument["input"].ndim == 4 else torch.ops.aten.grid_sampler_3d_backward
    return back(cts[0], *(argument[k] for k in ("input", "grid", "interpolation_mode", "padding_mode", "align_corners")), needed)


def _resampled(dims: int, back: Any, argument: Mapping[str, Any], results: Tensors, cts: Sequence[Any],
               needed: Sequence[bool]) -> Tensors:
    x, scales = argument["input"], argument["scale_factors"] or [None] * dims
    aligned = [argument["align_corners"]] if "align_corners" in argument else []
    return (back(cts[0], cts[0].shape[2:], x.shape, *aligned, *scales),)


def _with_indices(name: str, argument: Mapping[str, Any], results: Tensors, cts: Sequence[Any],
                  needed: Sequence[bool]) -> Tensors:
    return (getattr(torch.ops.aten, f"{name}_backward")(cts[0], argument["self"], results[0]),)


def _im2col(argument: Mapping[str, Any], results: Tensors, cts: Sequence[Any], needed: Sequence[bool]) -> Tensors:
    return (torch.ops.aten.col2im(cts[0], argument["self"].shape[-2:], *(argument[k] for k in _WINDOW)),)


def _col2im(argument: Mapping[str, Any], results: Tensors, cts: Sequence[Any], needed: Sequence[bool]) -> Tensors:
    return (torch.ops.aten.im2col(cts[0], *(argument[k] for k in _WINDOW)),)


def _group_norm(argument: Mapping[str, Any], results: Tensors, cts: Sequence[Any], needed: Sequence[bool]) -> Tensors:
    names = ("input", "weight", "bias")
    wanted = dict(zip([name for name in names if argument[name] is not None], needed, strict=True))
    found = torch.ops.aten.native_group_norm_backward(
        cts[0].contiguous(), argument["input"].contiguous(), *results, argument["weight"],
        *(argument[k] for k in ("N", "C", "HxW", "group")), [wanted.get(name, False) for name in names])
    return [found[names.index(name)] for name in wanted]


def _solutions(argument: Mapping[str, Any], results: Tensors, cts: Sequence[Any], needed: Sequence[bool]) -> Iterable[Any]:
    """By the factors of the way forward."""
    (solution, factors, pivots), (a, b, left), ct = results, (argument[name] for name in ("A", "B", "left")), cts[0]
    is_vector = solution.ndim == a.ndim - 1
    if is_vector:
        solution, ct = solution[..., None], ct[..., None]
    right = torch.linalg.lu_solve(factors, pivots, ct, left=left, adjoint=True)
    matrix = None
    if needed[0]:
        matrix = (-right @ solution.mH if left else -solution.mH @ right).sum_to_size(a.shape)
    return matrix, (right[..., 0] if is_vector else right).sum_to_size(b.shape) if needed[1] else None


def _distances(argument: Mapping[str, Any], results: Tensors, cts: Sequence[Any], needed: Sequence[bool]) -> Iterable[Any]:
    """By torch's formula for distances from a product of matrices, as it takes them of many points, or by its kernel."""
    x1, x2, p, mode = (argument[name] for name in ("x1", "x2", "p", "compute_mode"))
    distance, ct = results[0], cts[0]
    if p == 2 and (mode == 1 or (not mode and max(x1.shape[-2], x2.shape[-2]) > 25)):
        ratio = (ct / distance).masked_fill_(distance == 0, 0)
        ways = [lambda: x1 * ratio.sum(-1)[..., None] - ratio @ x2, lambda: x2 * ratio.sum(-2)[..., None] - ratio.mT @ x1]
    else:
        ways = [functools.partial(_distances_back, ct, x1, x2, p, distance),
                functools.partial(_distances_back, ct.mT, x2, x1, p, distance.mT)]
    return [way().sum_to_size(x.shape) if flag else None for way, x, flag in zip(ways, (x1, x2), needed, strict=True)]


def _cumprod(argument: Mapping[str, Any], results: Tensors, cts: Sequence[Any], needed: Sequence[bool]) -> Tensors:
    return (torch.ops.aten.cumprod_backward(cts[0], argument["self"], argument["dim"], results[0]),)


def _logcumsumexp(argument: Mapping[str, Any], results: Tensors, cts: Sequence[Any], needed: Sequence[bool]) -> Tensors:
    """By sums of logarithms, as torch: positive and negative cotangents apart."""
    x, dim, ct = argument["self"], argument["dim"], cts[0]
    if not ct.ndim:
        return (ct.clone(),)
    logarithm, none = ct.abs().log_(), torch.finfo(ct.dtype).min

    def part(is_there: torch.Tensor) -> torch.Tensor:
        shares = torch.where(is_there, logarithm, none).sub_(results[0])
        return shares.flip(dim).logcumsumexp(dim).flip(dim).add_(x).exp_()

    return (part(ct > 0).sub_(part(ct < 0)),)


def _pairwise_distance(argument: Mapping[str, Any], results: Tensors, cts: Sequence[Any], needed: Sequence[bool]) -> Any:
    """torch's formula for Euclidean distances, of which those that are 0 have no gradient."""
    x1, x2, keepdim = (argument[name] for name in ("x1", "x2", "keepdim"))
    if argument["p"] != 2:
        return NotImplemented
    distance, ct = (v if keepdim else v[..., None] for v in (results[0], cts[0]))
    first = (x1 - x2).add_(argument["eps"]).div_(distance.masked_fill(distance == 0, torch.inf)).mul_(ct)
    return [(first if k == 0 else -first).to(x.dtype).sum_to_size(x.shape) if flag else None
            for k, (x, flag) in enumerate(zip((x1, x2), needed, strict=True))]


def _cosine_similarity(argument: Mapping[str, Any], results: Tensors, cts: Sequence[Any], needed: Sequence[bool]) -> Any:
    """As torch, which does not record that lengths are at least epsilon."""
    given, dim = (argument["x1"], argument["x2"]), argument["dim"]
    if given[0].dtype is not given[1].dtype:
        return NotImplemented
    wide = torch.broadcast_tensors(*given)
    lengths = [torch.linalg.vector_norm(x, 2, dim, keepdim=True) for x in wide]
    bounded = [length.clamp_min(argument["eps"]) for length in lengths]
    result, ct = (v if v.ndim == wide[0].ndim else v.unsqueeze(dim) for v in (results[0], cts[0]))
    found: list[torch.Tensor | None] = [None, None]
    for k in (0, 1):
        if needed[k]:
            share = (result / lengths[k]).masked_fill_(lengths[k] == 0, 0)
            other = wide[1 - k] / bounded[1 - k]
            found[k] = other.sub_(wide[k] * share).mul_(ct / bounded[k]).sum_to_size(given[k].shape)
    return found


_one_distance_back, _bag_back, _bag_weights_back = (private(torch, f"ops.aten.{name}") for name in (
    "_cdist_backward", "_embedding_bag_backward", "_embedding_bag_per_sample_weights_backward"))


def _distances_back(ct: torch.Tensor, x1: torch.Tensor, x2: torch.Tensor, p: float, distance: torch.Tensor) -> torch.Tensor:
    x1, x2 = (x.expand(*ct.shape[:-2], *x.shape[-2:]).contiguous() for x in (x1, x2))
    return _one_distance_back(ct.contiguous(), x1, x2, p, distance.contiguous())


def _bags(argument: Mapping[str, Any], results: Tensors, cts: Sequence[Any], needed: Sequence[bool],
          from_end: bool = False) -> Iterable[Any]:
    """torch finds the bag of each index itself where it is given none: a call without gradients may leave them out. A padding
    below 0 counts `from_end`, or is none."""
    weight, indices, offsets, each = (argument[k] for k in ("weight", "indices", "offsets", "per_sample_weights"))
    mode, padding, bags = argument["mode"], argument.get("padding_idx"), indices.new_empty(0)
    padding = -1 if padding is None or not (from_end or padding >= 0) else padding % max(1, len(weight))
    found: list[torch.Tensor | None] = [None] * len(needed)
    if needed[0]:
        found[0] = _bag_back(
            cts[0], indices, offsets, bags, *results, len(weight), argument["scale_grad_by_freq"], mode, False, each, padding)
    if each is not None and needed[3]:
        found[3] = _bag_weights_back(
            cts[0], weight, indices, offsets, bags, mode, padding)
    return found


_WINDOW = ("kernel_size", "dilation", "padding", "stride")

_RESAMPLING = {"upsample_linear1d": 1, "upsample_bilinear2d": 2, "upsample_bicubic2d": 2, "upsample_trilinear3d": 3,
               "upsample_nearest1d": 1, "upsample_nearest2d": 2, "upsample_nearest3d": 3}
"""The operators, and in how many dimensions."""

_LAYERS = [f"{kind}.{given}" for kind in ("lstm", "gru", "rnn_tanh", "rnn_relu") for given in ("input", "data")]
"""Recurrent layers over padded batches and over packed sequences, whose batch sizes are an attribute."""

_BACK: dict[str, Back | None] = {
    "grid_sampler": _grid, "grid_sampler_2d": _grid, "grid_sampler_3d": _grid,
    **{f"{name}.vec": functools.partial(_resampled, dims, getattr(torch.ops.aten, f"{name}_backward"))
       for name, dims in _RESAMPLING.items()},
    **{name: functools.partial(_with_indices, name) for name in ("adaptive_max_pool2d", "adaptive_max_pool3d")},
    "im2col": _im2col, "col2im": _col2im, "native_group_norm": _group_norm, "cdist": _distances,
    "_linalg_solve_ex": _solutions, "cumprod": _cumprod, "logcumsumexp": _logcumsumexp,
    "pairwise_distance": _pairwise_distance, "cosine_similarity": _cosine_similarity,
    **dict.fromkeys(("embedding_bag", "embedding_bag.padding_idx"), functools.partial(_bags, from_end=True)),
    **dict.fromkeys(("_embedding_bag", "_embedding_bag_forward_only"), _bags),
    **dict.fromkeys((
        *_LAYERS, "ctc_loss.Tensor", "searchsorted.Tensor", "bucketize.Tensor", "histc"))}
"""Operators that are differentiated in one piece, too, and their ways back. None, or what gives NotImplemented, is the way that
autograd records, from the operands."""

_PLAIN = frozenset({
    "topk", "cummax", "cummin", "kthvalue", "median.dim", "nanmedian.dim", "mode",
    "embedding", "embedding_dense_backward", "gather", "index_add", "index_select", "scatter.src", "scatter.value", "scatter_add",
    "scatter_reduce.two", "gelu", "gelu_backward", "_prelu_kernel", "_prelu_kernel_backward",
    "max_pool2d_with_indices", "max_pool2d_with_indices_backward", "max_pool3d_with_indices",
    "max_pool3d_with_indices_backward", "avg_pool2d", "avg_pool2d_backward",
    "_adaptive_avg_pool2d", "_adaptive_avg_pool2d_backward", "unfold", "unfold_backward",
    *(f"reflection_pad{dims}d_backward" for dims in (1, 2, 3)),
    "native_layer_norm", "native_layer_norm_backward",
    "_native_batch_norm_legit.no_stats", "_native_batch_norm_legit_functional", "_native_batch_norm_legit_no_training",
    "native_batch_norm_backward"})
"""Operators that torch's autograd differentiates by others, of which those that matter are here, too."""


def is_known(name: str) -> bool:
    """Whether there is a kernel of this name."""
    bare = name.removeprefix(PREFIX).removesuffix(VJP)
    return name.startswith(PREFIX) and (bare in _BACK or bare in _PLAIN)


def _of_ctc_loss(argument: Mapping[str, Any]) -> list[torch.Tensor]:
    """torch would ask for the lengths' values."""
    x = argument["log_probs"]
    return [x.new_empty(x.shape[1] if x.ndim == 3 and argument["reduction"] == 0 else ())]


def _of_layers(argument: Mapping[str, Any]) -> list[torch.Tensor]:
    """torch would walk through all steps."""
    states = argument["hx"] if isinstance(argument["hx"], list) else [argument["hx"]]
    width, steps = states[0].shape[2] * (1 + argument["bidirectional"]), argument.get("input", argument.get("data"))
    return [steps.new_empty(*steps.shape[:-1], width), *map(torch.empty_like, states)]


_SHAPES: dict[str, Callable[[Mapping[str, Any]], list[torch.Tensor]]] = {
    "ctc_loss.Tensor": _of_ctc_loss,
    **dict.fromkeys(_LAYERS, _of_layers)}
"""Results of which only the shapes count, where torch's own operators take long for them, or cannot."""


def of_results(name: str, attributes: str, operands: Tensors) -> list[torch.Tensor]:
    """What a composite gives, of which only the shapes matter: stand-ins for the results of stand-ins."""
    options = json.loads(attributes)
    if name.endswith(VJP):
        return [torch.empty_like(o, memory_format=torch.contiguous_format)
                for o, flag in zip(operands, options["needed"], strict=False) if flag]
    shapes = _SHAPES.get(name.removeprefix(PREFIX))
    return list(run(name, attributes, *operands)) if shapes is None else shapes(Call(name, options).arguments(operands))


@functools.cache
def operators(differentiated: bool) -> frozenset[Any]:
    """The operators with kernels, as far as this torch has them: those that are differentiated in one piece, or the others."""
    names = _BACK if differentiated else _PLAIN
    return frozenset(operator_of(PREFIX + name) for name in names if hasattr(torch.ops.aten, name.partition(".")[0]))


def takes(options: Mapping[str, Any]) -> bool:
    """Whether a kernel computes what its operator does of such arguments: not where that is random, leaves results out, converts
    its operands, or takes batch sizes that calls may change."""
    is_random = options.get("dropout") and options["train"]
    leaves_out = False in options.get("output_mask", ())
    return not (is_random or leaves_out or "dtype" in options or "batch_sizes" in options["operands"])


def operator_of(name: str) -> Any:
    """The operator that a kernel, or the one that it is the way back of, is called after."""
    packet, _, overload = name.removeprefix(PREFIX).removesuffix(VJP).partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def name_of(operator: Any) -> str:
    """What the kernel of an operator is called."""
    return str(operator).removesuffix(".default")


# ------------------------------------------------------------------------------------------- arguments


def taken_apart(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """The attributes, before they are JSON, and the operands of an operator's arguments."""
    attributes: dict[str, Any] = {}
    names, operands = list[str](), list[Any]()
    for place, argument in enumerate(arguments_of(operator)):
        value = args[place] if place < len(args) else kwargs.get(argument.name, argument.default_value)
        parts = value if isinstance(value, (list, tuple)) and any(isinstance(v, torch.Tensor) for v in value) else [value]
        if any(isinstance(part, torch.Tensor) for part in parts):
            operands += parts
            names += [argument.name] * len(parts)
        elif value is not None and not (argument.has_default_value() and argument.default_value == value):
            attributes[argument.name] = list(value) if isinstance(value, (list, tuple)) else value
    return attributes | {"operands": names}, operands


class Call:
    """A call of the operator of a kernel, which knows beforehand where each operand goes."""

    def __init__(self, name: str, options: Mapping[str, Any]):
        self.operator, self.options = operator_of(name), options
        arguments, names = arguments_of(self.operator), options["operands"]
        self.positional = [a.name for a in arguments if not a.kwarg_only]
        self.named = [a.name for a in arguments if a.kwarg_only]
        self.fixed = {a.name: options.get(a.name, a.default_value) for a in arguments if a.name not in names}
        lists = {a.name for a in arguments if "List" in str(a.type)}
        self.places: dict[str, int | list[int]] = {
            name: [k for k, own in enumerate(names) if own == name] if name in lists else names.index(name) for name in names}

    def arguments(self, operands: Sequence[Any]) -> dict[str, Any]:
        """The operator's arguments by name: the other way round."""
        return self.fixed | {name: [operands[k] for k in place] if isinstance(place, list) else operands[place]
                             for name, place in self.places.items()}

    def results(self, operands: Sequence[Any], function: Callable[..., Any] | None = None) -> tuple[torch.Tensor, ...]:
        """The results of the operator, or of a function that takes its arguments, as a flat tuple."""
        argument = self.arguments(operands)
        if function is None and "batch_sizes" in argument:
            argument["batch_sizes"] = torch.tensor(argument["batch_sizes"])
        named = {name: argument[name] for name in self.named}
        found = (function or self.operator)(*[argument[name] for name in self.positional], **named)
        return (found,) if isinstance(found, torch.Tensor) else tuple(found)

    def back(self, given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The gradients of the operands that need one."""
        needed, demanded = self.options["needed"], self.options["demanded"]
        count = len(self.options["operands"])
        first = count + len(self.options["kept"])
        operands, results, rest = given[:count], given[count:first], iter(given[first:])
        cotangents = [next(rest) if flag else None for flag in demanded]
        own, found = _BACK.get(name_of(self.operator).removeprefix(PREFIX)), NotImplemented
        if own is not None and not any(demanded[1:]):
            found = own(self.arguments(operands), results, cotangents, needed)
        if found is NotImplemented:
            return self._by_autograd(operands, cotangents, needed)
        return [torch.zeros_like(o) if g is None else g for o, flag, g in zip(operands, needed, found, strict=True) if flag]

    def _by_autograd(self, operands: Tensors, cotangents: Sequence[torch.Tensor | None],
                     needed: Sequence[bool]) -> list[torch.Tensor]:
        with torch.enable_grad():
            moving = [o.detach().requires_grad_() if flag else o for o, flag in zip(operands, needed, strict=True)]
            results = self.results(moving)
            pairs = [(r, ct) for r, ct in zip(results, cotangents, strict=True) if ct is not None and r.requires_grad]
            sources = [o for o, flag in zip(moving, needed, strict=True) if flag]
            found = [None] * len(sources)
            if pairs and sources:
                found = torch.autograd.grad([r for r, _ in pairs], sources, [ct for _, ct in pairs], allow_unused=True)
        return [torch.zeros_like(o) if g is None else _apart(g, given=cotangents) for o, g in zip(sources, found, strict=True)]


# ------------------------------------------------------------------------------------------- running


def _apart(gradient: torch.Tensor, given: Sequence[torch.Tensor | None]) -> torch.Tensor:
    """A gradient in memory of its own: that of a sum is the cotangent itself."""
    if is_graphed():  # tensors have no memory there
        return gradient.clone()
    place = gradient.untyped_storage().data_ptr()
    shared = any(ct is not None and ct.untyped_storage().data_ptr() == place for ct in given)
    return gradient.clone() if shared else gradient


@functools.lru_cache(maxsize=1024)
def _prepared(name: str, attributes: str) -> Callable[[Tensors], Sequence[torch.Tensor]]:
    call = Call(name, json.loads(attributes))
    return call.back if name.endswith(VJP) else call.results


@fresh_tuple
def run(name: str, attributes: str, *operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """What a composite's kernel makes of its operands: fresh tensors, by rows."""
    return tuple([found.contiguous() for found in _prepared(name, attributes)(operands)])
