"""Operators of ATen in others, where torch itself does not say what they are. They are taken apart before they are
differentiated, so that what stands here says what their gradients are, too."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..core.errors import UnsupportedError
from ..storage import torch_graphs, torch_private
from .torch_compositions import by_operator

Way = Callable[..., Any]
_WAYS: dict[str, Way] = {}


def _way(*names: str) -> Callable[[Way], Way]:
    def register(way: Way) -> Way:
        _WAYS.update(dict.fromkeys(names, way))
        return way

    return register


@functools.cache
def decompositions() -> dict[Any, Way]:
    """The functions by operator, those left out that this torch has no operators for."""
    return by_operator(_WAYS)


# ------------------------------------------------------------------------------------------- places in order


@_way("searchsorted.Tensor")
def _searchsorted(sorted_sequence: torch.Tensor, self: torch.Tensor, *, out_int32: bool = False, right: bool = False,
                  side: str | None = None, sorter: torch.Tensor | None = None) -> torch.Tensor:
    """By halving, step by step as torch does it: among NaNs it matters which elements are looked at."""
    count, right = sorted_sequence.shape[-1], right or side == "right"
    if sorter is not None:
        sorted_sequence = sorted_sequence.gather(-1, sorter)
    low = torch.zeros_like(self, dtype=torch.int64)
    high = torch.full_like(low, count)
    for _ in range(count.bit_length()):
        middle = (low + high) // 2
        at = middle.clamp(max=count - 1)
        is_one = sorted_sequence.ndim == 1
        seen = sorted_sequence.gather(0, at.flatten()).view(at.shape) if is_one else sorted_sequence.gather(-1, at)
        above, is_open = ~(seen > self if right else seen >= self), low < high
        low, high = torch.where(above & is_open, middle + 1, low), torch.where(~above & is_open, middle, high)
    return low.to(torch.int32) if out_int32 else low


@_way("searchsorted.Scalar")
def _searchsorted_number(sorted_sequence: torch.Tensor, self: float, **options: Any) -> torch.Tensor:
    return _searchsorted(sorted_sequence, torch.full((), self, dtype=sorted_sequence.dtype), **options)


@_way("bucketize.Tensor")
def _bucketize(self: torch.Tensor, boundaries: torch.Tensor, *, out_int32: bool = False, right: bool = False) -> torch.Tensor:
    return _searchsorted(boundaries, self, out_int32=out_int32, right=right)


@_way("bucketize.Scalar")
def _bucketize_number(self: float, boundaries: torch.Tensor, **options: Any) -> torch.Tensor:
    return _searchsorted_number(boundaries, self, **options)


@_way("histc")
def _histc(self: torch.Tensor, bins: int = 100, min: float = 0, max: float = 0) -> torch.Tensor:
    """Of elements between the bounds, or where these are equal between the least and the greatest element."""
    x = self.detach().flatten()
    if min == max and not x.numel():
        return x.new_zeros(bins)
    low, high = (x.amin(), x.amax()) if min == max else (torch.full((), v, dtype=x.dtype) for v in (min, max))
    if min == max:
        low, high = torch.where(low == high, low - 1, low), torch.where(low == high, high + 1, high)
    step, at = (high - low) / bins, torch.arange(bins + 1, dtype=x.dtype)
    edges = torch.where(at * 2 < bins + 1, low + step * at, high - step * (bins - at))
    place = (_searchsorted(edges, x, right=True) - 1).clamp(0, bins - 1)
    inside = (x >= low) & (x <= high)
    return x.new_zeros(bins).scatter_add(0, place, inside.to(x.dtype))


# ------------------------------------------------------------------------------------------- frequencies and quantisation


@_way("fft_fftfreq")
def _fftfreq(n: int, d: float = 1.0, *, dtype: torch.dtype | None = None, **_: Any) -> torch.Tensor:
    at = torch.arange(n)
    return torch.where(at * 2 < n, at, at - n).to(dtype or torch.get_default_dtype()) * (1.0 / (n * d))


@_way("fft_rfftfreq")
def _rfftfreq(n: int, d: float = 1.0, *, dtype: torch.dtype | None = None, **_: Any) -> torch.Tensor:
    return torch.arange(n // 2 + 1, dtype=dtype or torch.get_default_dtype()) * (1.0 / (n * d))


@_way("fake_quantize_per_tensor_affine_cachemask")
def _fake_quantized(self: torch.Tensor, scale: float | torch.Tensor, zero_point: int | torch.Tensor, quant_min: int,
                    quant_max: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Steps of the scale, as real numbers. Gradients pass where the steps are within the bounds."""
    if not isinstance(scale, torch.Tensor):
        scale = torch.full((), scale, dtype=torch.float32)
    steps = self.to(torch.promote_types(self.dtype, torch.float32)) * (1 / scale)
    is_whole = not isinstance(zero_point, torch.Tensor) or not zero_point.is_floating_point()
    steps = steps.round() + zero_point if is_whole else (steps + zero_point).round()
    inside = (steps >= quant_min) & (steps <= quant_max)
    found = ((steps.clamp(quant_min, quant_max) - zero_point) * scale).to(self.dtype)
    # The second term is 0, and has the derivative 1. `detach` does not survive below autograd.
    stop: Any = torch.ops.xla_torch.no_gradient.default
    return stop(found, "round") + torch.where(inside, self - stop(self, "round"), 0), inside


@_way("_fake_quantize_per_tensor_affine_cachemask_tensor_qparams")
def _fake_quantized_or_not(self: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor, fake_quant_enabled: torch.Tensor,
                           quant_min: int, quant_max: int) -> tuple[torch.Tensor, torch.Tensor]:
    """`scale`, `zero_point` and `fake_quant_enabled` have one element."""
    scale, zero_point, is_on = (one.reshape(()) for one in (scale, zero_point, fake_quant_enabled != 0))
    found, inside = _fake_quantized(self, scale, zero_point, quant_min, quant_max)
    return torch.where(is_on, found, self), inside | ~is_on


@_way("fake_quantize_per_channel_affine_cachemask")
def _fake_quantized_by_channels(self: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor, axis: int, quant_min: int,
                                quant_max: int) -> tuple[torch.Tensor, torch.Tensor]:
    size = [-1 if d == axis % self.dim() else 1 for d in range(self.dim())]
    return _fake_quantized(self, scale.reshape(size), zero_point.reshape(size), quant_min, quant_max)


# ------------------------------------------------------------------------------------------- diagonals


@_way("diagonal_scatter")
def _diagonal_scatter(self: torch.Tensor, src: torch.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> torch.Tensor:
    x, count = self.movedim((dim1, dim2), (-2, -1)), src.shape[-1]
    if not count:
        return self.clone()
    row, column = torch.arange(x.shape[-2])[:, None], torch.arange(x.shape[-1])
    number = (row - max(-offset, 0)).clamp(0, count - 1).expand(x.shape[-2:])
    return torch.where(column - row == offset, src[..., number], x).movedim((-2, -1), (dim1, dim2))


# ------------------------------------------------------------------------------------------- bags


def _bags(weight: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor, scale_grad_by_freq: bool, mode: int,
          per_sample_weights: torch.Tensor | None, include_last_offset: bool, padding_idx: int) -> tuple[torch.Tensor, ...]:
    if scale_grad_by_freq:
        raise UnsupportedError("scale_grad_by_freq is not supported", subject="embedding_bag",
                               got="scale_grad_by_freq=True", expected="False")
    count, rows = indices.shape[0], weight.shape[0]
    starts = offsets[:-1] if include_last_offset else offsets
    bags, width = starts.shape[0], weight.shape[1]
    place = _searchsorted(starts, torch.arange(count, dtype=starts.dtype), right=True) - 1
    kept = torch.ones_like(indices, dtype=torch.bool)
    if padding_idx != -1:
        kept = indices != (padding_idx % rows)
    sizes = torch.zeros(bags, dtype=indices.dtype).scatter_add(0, place, kept.to(indices.dtype))
    rowwise = weight[indices]
    if mode == 2:
        of_bag = (place == torch.arange(bags)[:, None]) & kept
        each = torch.where(of_bag[:, :, None], rowwise, torch.full((), -math.inf, dtype=weight.dtype))
        if not count:
            return weight.new_zeros(bags, width), place, sizes, torch.zeros(bags, width, dtype=indices.dtype)
        best = each.detach().max(1).indices
        value = each.gather(1, best[:, None])[:, 0]
        return torch.where(sizes[:, None] > 0, value, torch.zeros_like(value)), place, sizes, indices[best]
    wide = rowwise if per_sample_weights is None else rowwise * per_sample_weights[:, None]
    wide = torch.where(kept[:, None], wide, torch.zeros_like(wide))
    total = weight.new_zeros(bags, width).scatter_add(0, place[:, None].expand(count, width), wide)
    if mode == 1:
        return total / sizes.clamp(min=1)[:, None].to(total.dtype), place, sizes, sizes
    # A kernel of torch finds no bags of indices where it has none to leave out.
    has_places = padding_idx != -1 or weight.dtype not in (torch.float32, torch.float16)
    return total, place if has_places else place[:0], sizes, sizes


@_way("_embedding_bag", "_embedding_bag_forward_only")
def _embedding_bag(weight: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor, scale_grad_by_freq: bool = False,
                   mode: int = 0, sparse: bool = False, per_sample_weights: torch.Tensor | None = None,
                   include_last_offset: bool = False, padding_idx: int = -1) -> tuple[torch.Tensor, ...]:
    """(the bags, the bag of each index, the sizes of the bags, the greatest indices). No row is padding where it is -1."""
    return _bags(weight, indices, offsets, scale_grad_by_freq, mode, per_sample_weights, include_last_offset, padding_idx)


@_way("embedding_bag.padding_idx", "embedding_bag")
def _padded_bag(weight: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor, scale_grad_by_freq: bool = False,
                mode: int = 0, sparse: bool = False, per_sample_weights: torch.Tensor | None = None,
                include_last_offset: bool = False, padding_idx: int | None = None) -> tuple[torch.Tensor, ...]:
    """As `_embedding_bag`, but for numbers below 0, which count from the last row."""
    row = -1 if padding_idx is None else padding_idx % max(1, weight.shape[0])
    return _bags(weight, indices, offsets, scale_grad_by_freq, mode, per_sample_weights, include_last_offset, row)


# ------------------------------------------------------------------------------------------- windows of maxima


def _windows(x: torch.Tensor, places: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """The first greatest element of each window of the last dimensions and its number in the plane. `places` are for each of
    these dimensions [..., windows, elements of each], of which the leading dimensions are those of `x`."""
    count = len(places)
    sizes, outer = x.shape[-count:], x.shape[:-count]
    at: Any = 0
    for d, (place, size) in enumerate(zip(places, sizes, strict=True)):
        shape = [*place.shape[:-2], *(1 for _ in range(2 * count))]
        shape[place.ndim - 2 + d], shape[place.ndim - 2 + count + d] = place.shape[-2:]
        at = at * size + place.reshape(shape)
    windows = [place.shape[-2] for place in places]
    at = at.reshape(*at.shape[:at.ndim - count], -1)
    at = at.expand(*outer, *at.shape[at.ndim - count - 1:])
    each = x.flatten(-count).gather(-1, at.reshape(*outer, -1)).view(at.shape)
    best = each.detach().max(-1, keepdim=True).indices
    return each.gather(-1, best).view(*outer, *windows), at.gather(-1, best).view(*outer, *windows)


@_way("adaptive_max_pool2d", "adaptive_max_pool3d")
def _adaptive_max_pool(self: torch.Tensor, output_size: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    places = []
    for size, count in zip(self.shape[-len(output_size):], output_size, strict=True):
        first = torch.arange(count) * size // count
        last = ((torch.arange(count) + 1) * size + count - 1) // count - 1
        longest = max((-(-(k + 1) * size // count) - k * size // count for k in range(count)), default=1)
        places.append(torch.minimum(first[:, None] + torch.arange(longest), last[:, None]))
    return _windows(self, places)


@_way("fractional_max_pool2d", "fractional_max_pool3d")
def _fractional_max_pool(self: torch.Tensor, kernel_size: Sequence[int], output_size: Sequence[int],
                         random_samples: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Windows of one size at places that rest on random numbers, the last at the end."""
    count = len(kernel_size)
    samples = random_samples.detach().to(self.dtype)
    samples = samples if self.ndim == count + 2 else samples[0]
    places = []
    for d, (size, kernel, windows) in enumerate(zip(self.shape[-count:], kernel_size, output_size, strict=True)):
        # torch has the numbers of a plane from its last dimension on: width, height; but depth first of three.
        sample = samples[..., d if count == 3 else count - 1 - d, None]
        step = (size - kernel) / (windows - 1) if windows > 1 else 0.0
        number = torch.arange(windows)
        first = ((number.to(self.dtype) + sample) * step).to(torch.int64) - (sample * step).to(torch.int64)
        first = torch.where(number == windows - 1, torch.full_like(first, size - kernel), first)
        places.append(first[..., None] + torch.arange(kernel))
    return _windows(self, places)


# ------------------------------------------------------------------------------------------- samples of a grid


@_way("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def _grid_sampler(input: torch.Tensor, grid: torch.Tensor, interpolation_mode: int, padding_mode: int,
                  align_corners: bool) -> torch.Tensor:
    """What `torch.nn.functional.grid_sample` calls. Bicubic samples are torch's own decomposition; that of others clamps places,
    and so has gradients at the first and last ones, where torch's kernels have none."""
    if interpolation_mode == 2:
        (cubic,) = torch_private.decompositions(torch.ops.aten.grid_sampler_2d.default).values()
        return cubic(input, grid, interpolation_mode, padding_mode, align_corners)
    batch, channels, *sizes = input.shape
    rank = len(sizes)
    where = [_source(grid[..., rank - 1 - d], size, padding_mode, align_corners) for d, size in enumerate(sizes)]
    flat = input.flatten(2)

    def taken(corner: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """The elements at a place, and whether there are any."""
        at, inside = torch.zeros_like(corner[0], dtype=torch.int64), torch.ones_like(corner[0], dtype=torch.bool)
        for place, size in zip(corner, sizes, strict=True):
            inside = inside & (place >= 0) & (place < size)
            at = at * size + torch.where((place >= 0) & (place < size), place, torch.zeros_like(place)).to(torch.int64)
        found = flat.gather(2, at.flatten(1)[:, None].expand(batch, channels, -1))
        return found.view(batch, channels, *at.shape[1:]), inside[:, None]

    if interpolation_mode == 1:
        found, inside = taken([torch.round(p.detach()) for p in where])
        return torch.where(inside, found, torch.zeros_like(found))
    lows, total = [p.detach().floor() for p in where], None
    for ups in itertools.product((0, 1), repeat=rank):
        found, inside = taken([low + up for low, up in zip(lows, ups, strict=True)])
        share: Any = 1
        for p, low, up in zip(where, lows, ups, strict=True):
            share = share * (p - low if up else low + 1 - p)
        part = torch.where(inside, found * share[:, None], torch.zeros_like(found))
        total = part if total is None else total + part
    assert total is not None
    return total


def _source(x: torch.Tensor, size: int, padding_mode: int, align_corners: bool) -> torch.Tensor:
    """Where in a dimension a number from -1 to 1 is."""
    x = (x + 1) / 2 * (size - 1) if align_corners else ((x + 1) * size - 1) / 2
    if padding_mode == 0:
        return x
    if padding_mode == 2:
        low, span = (0.0, size - 1.0) if align_corners else (-0.5, float(size))
        if span == 0:
            return torch.zeros_like(x)
        away = (x - low).abs()
        turns = torch.floor(away.detach() / span)
        rest = away - turns * span
        x = torch.where(turns % 2 == 0, rest + low, span - rest + low)
    inside = (x > 0) & (x < size - 1)  # at a bound its gradient is 0
    return torch.where(inside, x, x.detach().clamp(0, size - 1))


# ------------------------------------------------------------------------------------------- parts of a dimension


@_way("segment_reduce")
def _segment_reduce(data: torch.Tensor, reduce: str, *, lengths: torch.Tensor | None = None, indices: torch.Tensor | None = None,
                    offsets: torch.Tensor | None = None, axis: int = 0, unsafe: bool = False,
                    initial: float | None = None) -> torch.Tensor:
    """By the number of each element's segment. Elements behind the last one are left out."""
    if lengths is not None:
        ends = lengths.cumsum(-1)
        starts = ends - lengths
    else:
        assert offsets is not None
        starts, ends = offsets[..., :-1], offsets[..., 1:]
    axis, count, empty = axis % data.ndim, ends.shape[-1], _EMPTY_SEGMENTS[reduce] if initial is None else initial
    place = torch.arange(data.shape[axis])[:, None]
    number = (place >= ends[..., None, :]).sum(-1)
    number = torch.where((place >= starts[..., None, :1])[..., 0], number, count)
    number = number.view(*number.shape, *[1] * (data.ndim - axis - 1)).expand(data.shape)
    shape = list(data.shape)
    shape[axis] = count + 1
    total = data.new_full(shape, empty).scatter_reduce(axis, number, data, _REDUCTIONS[reduce]).narrow(axis, 0, count)
    if reduce != "mean":
        return total
    sizes = (ends - starts).view(*ends.shape, *[1] * (data.ndim - axis - 1))
    mean = total / sizes.clamp(min=1)
    return mean if initial is not None else torch.where(sizes > 0, mean, torch.full_like(mean, math.nan))


_EMPTY_SEGMENTS = {"sum": 0.0, "mean": 0.0, "max": -math.inf, "min": math.inf, "prod": 1.0}
_REDUCTIONS = {"sum": "sum", "mean": "sum", "max": "amax", "min": "amin", "prod": "prod"}


@_way("conv_tbc")
def _conv_tbc(self: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, pad: int = 0) -> torch.Tensor:
    """A convolution of [time, batch, channels] by [time, inputs, outputs]."""
    return torch.conv1d(self.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad).permute(2, 0, 1)


# ------------------------------------------------------------------------------------------- element by element


@_way("ldexp.Tensor")
def _ldexp(self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return self * torch.pow(2.0, other)


@_way("rrelu_with_noise_functional")
def _rrelu(self: torch.Tensor, noise: torch.Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False,
           generator: Any = None) -> tuple[torch.Tensor, torch.Tensor]:
    """In evaluation. In training it draws: `torch_random.py`."""
    assert not training
    return torch.nn.functional.leaky_relu(self, (lower + upper) / 2), noise


# ------------------------------------------------------------------------------------------- products of groups


@_way("_grouped_mm")
def _grouped_mm(self: torch.Tensor, mat2: torch.Tensor, offs: torch.Tensor | None = None, bias: torch.Tensor | None = None,
                out_dtype: torch.dtype | None = None) -> torch.Tensor:
    """Products of parts of the one with parts of the other: `offs` are where the parts end. Rows and columns behind the last end,
    of which torch says nothing, are 0."""
    if bias is not None:
        raise UnsupportedError("a bias", subject="_grouped_mm", got=tuple(bias.shape), expected="None")
    left, right = self.ndim == 2, mat2.ndim == 2
    if not left and not right:
        found = torch.bmm(self, mat2)
    else:
        assert offs is not None
        length = self.shape[-1] if left and right else self.shape[0] if left else mat2.shape[1]
        ends = offs.to(torch.int64)
        starts = torch.cat([torch.zeros_like(ends[:1]), ends[:-1]])
        at = torch.arange(length)
        parts = []
        for k in range(offs.shape[0]):
            own = ((at >= starts[k]) & (at < ends[k])).to(self.dtype)
            rows = self * (own if right else own[:, None]) if left else self[k]
            parts.append(torch.mm(rows, mat2 * own if not left else mat2 if right else mat2[k]))
        found = torch.stack(parts) if left and right else functools.reduce(torch.add, parts)
    return found.to(out_dtype or self.dtype)


# ------------------------------------------------------------------------------------------- running statistics


@_way("batch_norm")
def _batch_norm(input: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, running_mean: torch.Tensor | None,
                running_var: torch.Tensor | None, training: bool, momentum: float, eps: float,
                cudnn_enabled: bool) -> torch.Tensor:
    """By operators that say what they write: `native_batch_norm`, of which autograd makes it, writes without a word."""
    if training and running_mean is not None:
        return torch_graphs.batch_norm.default(input, weight, bias, running_mean, running_var, True, momentum, eps)[0]
    if training:
        return torch_graphs.batch_norm.no_stats(input, weight, bias, True, momentum, eps)[0]
    return torch_graphs.batch_norm_in_inference.default(input, weight, bias, running_mean, running_var, momentum, eps)[0]


@_way("instance_norm")
def _instance_norm(input: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None,
                   running_mean: torch.Tensor | None, running_var: torch.Tensor | None, use_input_stats: bool, momentum: float,
                   eps: float, cudnn_enabled: bool) -> torch.Tensor:
    """Each example's channels are a batch norm's channels, and the running statistics the means of theirs."""
    examples, channels = input.shape[:2]
    held = (running_mean, running_var)
    own = [None if one is None else one.repeat(examples) for one in (weight, bias, *held)]
    flat = input.contiguous().view(1, examples * channels, *input.shape[2:])
    found = _batch_norm(flat, *own, use_input_stats, momentum, eps, cudnn_enabled)
    for one, after in zip(held, own[2:], strict=True):
        if use_input_stats and one is not None and after is not None:
            one.copy_(after.view(examples, channels).mean(0))
    return found.view(input.shape)
