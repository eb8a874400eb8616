"""Operators of ATen in others, in the place of their values alone: torch's formulas of their derivatives hold, since autograd
has seen the operators themselves. What is differentiated as it stands is in `torch_decompositions.py`."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..storage import torch_private

Way = Callable[..., Any]
_WAYS: dict[str, Way] = {}


def _way(*names: str) -> Callable[[Way], Way]:
    def register(way: Way) -> Way:
        _WAYS.update(dict.fromkeys(names, way))
        return way

    return register


@functools.cache
def compositions() -> dict[Any, Way]:
    """The functions by operator, those left out that this torch has no operators for."""
    return by_operator(_WAYS)


def by_operator(ways: dict[str, Way]) -> dict[Any, Way]:
    """Functions by operator instead of its name."""
    found = {}
    for name, way in ways.items():
        packet, _, overload = name.partition(".")
        operator = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
        if operator is not None:
            found[operator] = way
    return found


# ------------------------------------------------------------------------------------------- signs, angles and bits


def _floats(x: torch.Tensor) -> torch.Tensor:
    """Whole numbers as floats, as torch takes them for a function whose result is one."""
    return x if x.dtype.is_floating_point or x.dtype.is_complex else x.to(torch.get_default_dtype())


@_way("angle")
def _angle(self: torch.Tensor) -> torch.Tensor:
    if self.dtype.is_complex:
        return torch.atan2(self.imag, self.real)
    x = _floats(self)
    return torch.where(torch.isnan(x), x, torch.where(x < 0, math.pi, 0.0).to(x.dtype))


@_way("polar")
def _polar(abs: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
    return torch.complex(abs * angle.cos(), abs * angle.sin())


@_way("_neg_view")
def _neg_view(self: torch.Tensor) -> torch.Tensor:
    return torch.neg(self)


_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


@_way("signbit")
def _signbit(self: torch.Tensor) -> torch.Tensor:
    """A zero and a NaN have a sign, too."""
    if self.dtype is torch.bool:
        return torch.zeros_like(self)
    return (self.view(_BITS[self.dtype.itemsize]) if self.dtype.is_floating_point else self) < 0


@_way("frexp.Tensor")
def _frexp(self: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """By the bits: XLA takes numbers below the normal ones for 0 where it computes with them."""
    x = self if self.dtype in (torch.float32, torch.float64) else self.float()
    digits, bits = (52, torch.int64) if x.dtype is torch.float64 else (23, torch.int32)
    ones = (1 << (8 * x.dtype.itemsize - digits - 1)) - 1
    bias = ones // 2 - 1
    pattern = x.view(bits)
    field, fraction = (pattern >> digits) & ones, pattern & ((1 << digits) - 1)
    is_small, is_whole = field == 0, (field != ones) & ((field != 0) | (fraction != 0))
    normal = torch.where(is_small, fraction.to(x.dtype).view(bits) | (pattern & torch.iinfo(bits).min), pattern)
    exponent = ((normal >> digits) & ones) - bias - torch.where(is_small, bias + digits, 0)
    mantissa = ((normal & ~(ones << digits)) | (bias << digits)).view(x.dtype)
    return (torch.where(is_whole, mantissa, x).to(self.dtype),
            torch.where(is_whole, exponent, torch.zeros_like(exponent)).to(torch.int32))


@_way("round.decimals")
def _round(self: torch.Tensor, *, decimals: int) -> torch.Tensor:
    if not self.dtype.is_floating_point:
        return self.clone()
    x = self if self.dtype.itemsize > 2 else self.float()
    unit = 10.0 ** abs(decimals)
    return ((x / unit).round() * unit if decimals < 0 else (x * unit).round() / unit).to(self.dtype)


# ------------------------------------------------------------------------------------------- two operands


def _promoted(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    dtype = torch.result_type(x, y)
    return x.to(dtype), y.to(dtype)


@_way("hypot")
def _hypot(self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Of the quotient, whose square does not overflow before the result does. Infinite beside NaN, too."""
    x, y = (part.abs() for part in _promoted(self, other))
    high, low = torch.maximum(x, y), torch.minimum(x, y)
    ratio = torch.where(high == 0, 0.0, low / torch.where(high == 0, 1.0, high)).to(high.dtype)
    return torch.where((x == math.inf) | (y == math.inf), math.inf, high * torch.sqrt(1 + ratio * ratio)).to(high.dtype)


@_way("fmax")
def _fmax(self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    x, y = _promoted(self, other)
    return torch.where((x >= y) | (y != y), x, y)


@_way("fmin")
def _fmin(self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    x, y = _promoted(self, other)
    return torch.where((x <= y) | (y != y), x, y)


@_way("lcm")
def _lcm(self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    x, y = _promoted(self, other)
    divisor = torch.gcd(x, y)
    return (x // torch.where(divisor == 0, torch.ones_like(divisor), divisor) * y).abs()


def _of_number(function: Way, number: Any, like: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
    dtype = like.dtype if like.dtype.is_floating_point else torch.get_default_dtype()
    return function(torch.full((), number, dtype=dtype), like, *rest)


for _name in ("special_xlog1py", "special_zeta"):
    _whole = getattr(torch.ops.aten, _name).default
    _WAYS[f"{_name}.self_scalar"] = functools.partial(_of_number, _whole)
    _WAYS[f"{_name}.other_scalar"] = functools.partial(
        lambda function, x, number: _of_number(lambda n, like: function(like, n), number, x), _whole)


@_way("dist")
def _dist(self: torch.Tensor, other: torch.Tensor, p: float = 2) -> torch.Tensor:
    return torch.linalg.vector_norm(self - other, p)


# ------------------------------------------------------------------------------------------- products


@_way("addmv")
def _addmv(self: torch.Tensor, mat: torch.Tensor, vec: torch.Tensor, *, beta: Any = 1, alpha: Any = 1) -> torch.Tensor:
    start = self.expand(mat.shape[0])[:, None]
    return torch.addmm(start, mat, vec[:, None], beta=beta, alpha=alpha)[:, 0]


@_way("addbmm")
def _addbmm(self: torch.Tensor, batch1: torch.Tensor, batch2: torch.Tensor, *, beta: Any = 1, alpha: Any = 1) -> torch.Tensor:
    left = batch1.permute(1, 0, 2).flatten(1)
    return torch.addmm(self, left, batch2.flatten(0, 1), beta=beta, alpha=alpha)


@_way("_trilinear")
def _trilinear(i1: torch.Tensor, i2: torch.Tensor, i3: torch.Tensor, expand1: Sequence[int], expand2: Sequence[int],
               expand3: Sequence[int], sumdim: Sequence[int], unroll_dim: int = 1) -> torch.Tensor:
    rank = i1.ndim + len(expand1)
    letters = [[d for d in range(rank) if d not in expanded] for expanded in (expand1, expand2, expand3)]
    return torch.einsum(i1, letters[0], i2, letters[1], i3, letters[2], [d for d in range(rank) if d not in sumdim])


# ------------------------------------------------------------------------------------------- places


_VIEWS = ("alias", "as_strided", "diagonal", "expand", "narrow", "permute", "select.int", "slice.Tensor", "split.Tensor",
          "split_with_sizes", "squeeze.dim", "squeeze.dims", "t", "transpose.int", "unbind.int", "unfold", "unsqueeze", "view",
          "view.dtype")
for _name in _VIEWS:
    _packet, _, _overload = _name.partition(".")
    _view = getattr(getattr(torch.ops.aten, _packet), _overload or "default")
    _WAYS[f"{_packet}_copy{'.' * bool(_overload)}{_overload}"] = functools.partial(
        lambda view, *args, **kwargs: torch_private.pytree.tree_map(torch.clone, view(*args, **kwargs)), _view)


@_way("take")
def _take(self: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten.index.Tensor(self.reshape(-1), [index])


@_way("nonzero_static")
def _nonzero_static(self: torch.Tensor, *, size: int, fill_value: int = -1) -> torch.Tensor:
    """Places go to where a running count says, those beyond the size to one more that is left out."""
    is_there = (self != 0).reshape(-1)
    number = is_there.cumsum(0) - 1
    number = torch.where(is_there & (number < size), number, size)
    at = torch.zeros(size + 1, dtype=torch.int64).scatter(0, number, torch.arange(self.numel()))[:size]
    found = torch.zeros(size, self.ndim, dtype=torch.int64)
    if self.ndim:
        strides = [math.prod(self.shape[d + 1:]) for d in range(self.ndim)]
        found = torch.stack([at // max(step, 1) % max(n, 1) for step, n in zip(strides, self.shape, strict=True)], 1)
    return torch.where((torch.arange(size) < is_there.sum())[:, None], found, fill_value)


@_way("put")
def _put(self: torch.Tensor, index: torch.Tensor, source: torch.Tensor, accumulate: bool = False) -> torch.Tensor:
    flat = torch.ops.aten.index_put(self.reshape(-1), [index.reshape(-1)], source.reshape(-1), accumulate)
    return flat.view(self.shape)


@_way("index_reduce")
def _index_reduce(self: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, reduce: str, *,
                  include_self: bool = True) -> torch.Tensor:
    if not self.ndim:
        return _index_reduce(self[None], 0, index.reshape(-1), source.reshape(-1), reduce, include_self=include_self)[0]
    if not source.numel():
        return self.clone()
    shape = [1] * source.ndim
    shape[dim] = -1
    at = index.view(shape).expand(source.shape)
    return self.scatter_reduce(dim, at, source, reduce, include_self=include_self)


@_way("embedding_renorm")
def _embedding_renorm(self: torch.Tensor, indices: torch.Tensor, max_norm: float, norm_type: float) -> torch.Tensor:
    """The rows that are looked up, made as long as `max_norm` where they are longer."""
    at = indices.reshape(-1)
    looked_up = torch.zeros(self.shape[0], dtype=at.dtype).scatter_add(0, at, torch.ones_like(at)) > 0
    norm = torch.linalg.vector_norm(self, norm_type, 1)
    scale = torch.where(looked_up & (norm > max_norm), max_norm / (norm + 1e-7), torch.ones_like(norm))
    return self * scale[:, None]


# ------------------------------------------------------------------------------------------- windows


def _window(of: Callable[..., torch.Tensor]) -> Way:
    """A window by what it is at each place, given the last place and all. A periodic one is the beginning of a longer one."""

    def way(window_length: int, *given: Any, dtype: torch.dtype | None = None, **options: Any) -> torch.Tensor:
        dtype = dtype or torch.get_default_dtype()
        periodic, *numbers = given or (True,)
        if window_length <= 1:
            return torch.ones(window_length, dtype=dtype)
        last = window_length - (not periodic)
        return of(float(last), torch.arange(window_length, dtype=dtype), *numbers)

    return way


@_window
def _bartlett(last: float, at: torch.Tensor) -> torch.Tensor:
    rising = at * 2 / last
    return torch.where(rising <= 1, rising, 2 - rising)


@_window
def _blackman(last: float, at: torch.Tensor) -> torch.Tensor:
    turn = at * (math.pi / last)
    return (turn * 4).cos() * 0.08 - (turn * 2).cos() * 0.5 + 0.42


@_window
def _hamming(last: float, at: torch.Tensor, alpha: float = 0.54, beta: float = 0.46) -> torch.Tensor:
    return (at * (2 * math.pi / last)).cos() * -beta + alpha


@_window
def _kaiser(last: float, at: torch.Tensor, beta: float = 12.0) -> torch.Tensor:
    half = last / 2
    place = (at - half) / half
    return torch.i0(beta * (1 - place * place).clamp(min=0).sqrt()) / torch.i0(torch.full((), beta, dtype=at.dtype))


for _name, _of in {"bartlett": _bartlett, "blackman": _blackman, "hamming": _hamming, "kaiser": _kaiser}.items():
    for _form in ("default", "periodic", "periodic_alpha", "periodic_alpha_beta", "beta"):
        _WAYS[f"{_name}_window.{_form}"] = _of
