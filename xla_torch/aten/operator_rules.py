"""The table of rules: what each operator of torch is in XLA's ops.

A rule's parameters are named as the operator's arguments, and it gets those that it names: tensors as ops of one builder, element
types for dtypes, numbers and lists as they are. Names beyond these say more: `builder`; `result`, the shape that torch gives
the result (a list of shapes for several), whose element type says what torch promotes to; `is_contiguous` and `is_plain`, whether
the first tensor lies in memory by rows, and there as it stands. A rule returns an op, or a list with one for each result; what
is checked of that is `applied`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from ..core.errors import InternalError, UnsupportedError
from ..core.shape import UNBOUNDED, Shape
from ..core.types import PRED
from ..functions import GetDimensionSize, PadInDim, RemoveDynamicDimension, SetDimensionSize, SliceInDim
from ..functions.hlo_builder import Builder, XlaOp
from ..hlo.checks import Assumption
from .checks import require_size

Results: TypeAlias = XlaOp | Sequence[XlaOp | None]
Rule: TypeAlias = Callable[..., Results]
Declared = TypeVar("Declared", bound=Rule)

RULES: dict[str, Rule] = {}
"""The rule of each operator by its name with the overload, as in ``add.Tensor``. Filled by the modules of rules, at import."""

WANTED: dict[str, tuple[str, ...]] = {}
"""The names of the arguments that each operator's rule takes."""

SHOWN: dict[str, frozenset[str]] = {}
"""The arguments of which the result's shape says all, so that the rule need not look at them."""

OF_NO_CONSEQUENCE = frozenset({"device", "layout", "pin_memory", "memory_format", "non_blocking", "implicit", "sparse_grad",
                               "sparse", "scale_grad_by_freq"})
"""Arguments that say nothing of values: where a result lies and in which strides, and how gradients are kept."""


def rule(*names: str, shown: str = "") -> Callable[[Declared], Declared]:
    """Decorate the rule of these operators; without an overload, ``default`` is meant. `shown` are arguments of which
    `result` says all. Raises TypeError for an operator that has a rule already."""

    def register(function: Declared) -> Declared:
        for name in names:
            full = name if "." in name else f"{name}.default"
            if full in RULES:
                raise TypeError(f"{full} has two rules")
            RULES[full], WANTED[full] = function, tuple(inspect.signature(function).parameters)
            SHOWN[full] = frozenset(shown.split())
        return function

    return register


def applied(name: str, builder: Builder, arguments: Mapping[str, Any], defaults: Mapping[str, Any],
            expected: Shape | Sequence[Shape | None], is_plain: bool = False,
            is_contiguous: bool = False, where: Callable[[], str | None] = str,
            assumed: Callable[[str, int, int], Assumption | None] = lambda where, size, dim: None) -> list[XlaOp | None]:
    """The results of an operator. `where` says where it stands in the user's code, or None where its sizes need no check; it
    is asked only for sizes that depend on values. `assumed` makes the assumption that there a dimension has a size.

    Raises UnsupportedError for an argument that its rule does not look at, unless that is what it is by default, and
    InternalError where the results are not of the shapes that torch says."""
    asked, unread = WANTED[name], SHOWN[name] | OF_NO_CONSEQUENCE
    for key, value in arguments.items():
        if key not in asked and key not in unread and not (key in defaults and _equal(defaults[key], value)):
            raise UnsupportedError(f"unknown argument {key}", subject=name, got=repr(value)[:80],
                                   expected=f"{key} = {defaults.get(key)}")
    given = {**arguments, "builder": builder, "result": expected, "is_plain": is_plain, "is_contiguous": is_contiguous,
             "where": where}
    found = RULES[name](**{key: given[key] for key in asked if key in given})
    results: list[XlaOp | None] = [found] if isinstance(found, XlaOp) else list(found)
    shapes = [expected] if isinstance(expected, Shape) else expected
    results = [one if one is None or shape is None else _of_known_size(one, shape, name, where, assumed)
               for one, shape in zip(results, shapes, strict=True)]
    return compared(name, results, shapes)


def _of_known_size(found: XlaOp, shape: Shape, name: str, where: Callable[[], str | None],
                   assumed: Callable[[str, int, int], Assumption | None]) -> XlaOp:
    """A result whose size depends on values, where torch has asserted which one it is: that is checked."""
    for d, (n, flag) in enumerate(zip(found.shape.dimensions, found.shape.dynamic_flags, strict=True)):
        if not flag or shape.rank != found.shape.rank:
            continue
        size = shape.dimensions[d]
        if shape.dynamic_flags[d] and UNBOUNDED not in (size, n):
            found = _with_bound(found, d, size)
        elif not shape.dynamic_flags[d] and size <= n:
            if (place := where()) is not None:
                stated = f"dimension {d} of what {name} gives has size {size}"
                require_size(found, d, size, stated, place, assumed(place, size, d))
            found = SliceInDim(RemoveDynamicDimension(found, d), 0, size, 1, d)
    return found


def _with_bound(x: XlaOp, dim: int, bound: int) -> XlaOp:
    """`x` with another bound of a dynamic dimension. That it is not above it is checked."""
    have = x.shape.dimensions[dim]
    if have == bound:
        return x
    size, x = GetDimensionSize(x, dim), RemoveDynamicDimension(x, dim)
    x = SliceInDim(x, 0, bound, 1, dim) if have > bound else PadInDim(x, 0, dim, 0, bound - have)
    return SetDimensionSize(x, size, dim)


def compared(name: str, results: Sequence[XlaOp | None], shapes: Sequence[Shape | None]) -> list[XlaOp | None]:
    """The results. Raises InternalError where they are not of these shapes."""
    for k, (result, shape) in enumerate(zip(results, shapes, strict=True)):
        if result is not None and shape is not None and not result.shape.compatible(shape):
            raise InternalError(f"result {k} is of another shape than torch's", subject=name, got=result.shape, expected=shape)
    return list(results)


WITH_DYNAMIC = frozenset({
    "_log_softmax.default", "_softmax.default", "_to_copy.default", "_unique2.default", "abs.default", "add.Scalar",
    "add.Tensor", "addmm.default", "alias.default", "amax.default", "amin.default", "any.default", "any.dim", "any.dims",
    "arange.start_step", "argmax.default", "argmin.default", "atan.default", "atan2.default", "bitwise_and.Tensor",
    "bitwise_not.default", "bitwise_or.Tensor", "bmm.default", "cat.default", "ceil.default", "clamp.Tensor", "clamp.default",
    "clone.default", "constant_pad_nd.default",
    "copy.default", "cos.default", "cumprod.default", "cumsum.default", "div.Scalar", "div.Tensor", "elu.default",
    "embedding.default", "eq.Scalar", "eq.Tensor", "erf.default", "exp.default", "expand.default", "expm1.default",
    "flip.default", "floor.default", "full.default", "full_like.default", "gather.default", "ge.Scalar", "ge.Tensor",
    "gelu.default", "gt.Scalar", "gt.Tensor", "hardtanh.default", "index.Tensor",
    "index_select.default", "isinf.default", "isnan.default", "le.Scalar", "le.Tensor", "leaky_relu.default",
    "linalg_vector_norm.default", "log.default", "log1p.default", "logical_and.default", "logical_not.default",
    "logical_or.default", "lt.Scalar", "lt.Tensor", "masked_select.default", "max.default", "max.dim", "maximum.default",
    "mean.default", "mean.dim", "min.default", "min.dim", "minimum.default", "mm.default", "mul.Scalar", "mul.Tensor",
    "native_layer_norm.default", "ne.Scalar", "ne.Tensor", "neg.default", "nonzero.default", "permute.default", "pow.Scalar",
    "pow.Tensor_Scalar", "pow.Tensor_Tensor", "prod.default", "prod.dim_int", "reciprocal.default", "relu.default",
    "remainder.Scalar", "remainder.Tensor", "repeat.default", "repeat_interleave.Tensor", "round.default", "rsqrt.default",
    "scalar_tensor.default", "sigmoid.default", "sign.default", "sin.default", "slice.Tensor", "sort.default", "sort.stable",
    "sqrt.default", "squeeze.dim", "squeeze.dims", "std.correction", "sub.Scalar", "sub.Tensor", "sum.dim_IntList",
    "tan.default", "tanh.default", "torchvision.nms.default", "trunc.default",
    "unique_consecutive.default", "unique_dim.default", "unsqueeze.default",
    "var.correction", "var.dim", "var_mean.correction", "view.default", "where.self"})
"""The operators that are known where sizes depend on values."""

ALONG_OTHERS = frozenset({
    "kthvalue.default", "median.dim", "mode.default", "nanmedian.dim", "select.int", "select_scatter.default",
    "slice_scatter.default", "split_with_sizes.default", "topk.default"})
"""Those that are known as long as the dimensions that they name are of known size."""

INTO_KNOWN = frozenset({
    "bincount.default", "index_put.default", "masked_scatter.default", "scatter.src", "scatter.value", "scatter_add.default",
    "scatter_reduce.two"})
"""Those that bring elements to places of an array, and are known as long as that is of known size."""

_INSTEAD = {"select.int": "x[:1] is the first one where there is one, and x[-1:] the last",
            "topk.default": "x.sort(dim, descending=True).values[:k] gives as many as there are"}
"""What can be said in their place where there may be fewer elements than they ask for, for which torch raises an error."""


def check_dynamic(name: str, arguments: Mapping[str, Any]) -> None:
    """Raise UnsupportedError for an operator that is not known on arrays whose sizes depend on values, where there is one
    among its arguments or results."""
    shape, dims = getattr(arguments.get("self"), "shape", None), arguments.get("dim", arguments.get("dims"))
    into_known = name in INTO_KNOWN and shape is not None and shape.is_static
    if name in WITH_DYNAMIC or into_known or (name == "index_put.default" and _is_put_by_mask(arguments)):
        return
    if name in ALONG_OTHERS and shape is not None and shape.rank and dims is not None:
        named = [d % shape.rank for d in ([dims] if isinstance(dims, int) else dims)]
        if not any(shape.dynamic_flags[d] for d in named):
            return
    hint = _INSTEAD.get(name, "use torch.where(mask, x, 0), which keeps all elements and static sizes")
    raise UnsupportedError("the operator has no rule for an array whose size depends on values", subject=name,
                           got=", ".join(_dynamic(arguments)), expected="arrays of known sizes", hint=hint)


def _dynamic(arguments: Mapping[str, Any]) -> list[str]:
    """The arguments whose sizes depend on values."""
    given = [(key, one) for key, value in arguments.items() for one in (value if isinstance(value, list) else [value])]
    return [f"{key} {one.shape}" for key, one in given if isinstance(one, XlaOp) and not one.shape.is_static]


def _is_put_by_mask(arguments: Mapping[str, Any]) -> bool:
    """Whether elements are written where one mask says so, which needs no places."""
    index, *others = arguments["indices"]
    return not others and index is not None and index.element_type is PRED


def _equal(default: Any, value: Any) -> bool:
    """Whether an argument is what it is by default, which no op is: comparing with one builds an op."""
    if isinstance(value, (list, tuple)):
        return isinstance(default, (list, tuple)) and len(default) == len(value) and all(map(_equal, default, value))
    return not isinstance(value, XlaOp) and default == value


NO_VALUES = frozenset({"_assert_tensor_metadata.default", "_linalg_check_errors.default"})
"""Operators without results, which check what torch knows before a program runs, or what NaN says in XLA."""

CHECKS = frozenset({"_assert_async.default", "_assert_async.msg", "_assert_scalar.default",
                    "sym_constrain_range_for_size.default", "sym_constrain_range.default"})
"""Operators without results, which check values while the program runs."""
