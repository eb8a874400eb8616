"""Kernels of the random family: counter-based generators, bit for bit as XLA's, and draws from torch's generators.

Specification: hlo/SPEC.md, Random bits. u64 words travel as int64 and u32 words as int32 of the same bits; Philox multiplies
32-bit words kept in int64. All arithmetic wraps, and nothing is read back from the device.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch

from ..core import tuning
from ..core.errors import InvalidArgument
from ..core.forks import Lock

_LOW = 0xFFFFFFFF
_SIGN = -(1 << 63)

Words = tuple[torch.Tensor, ...]


def _words(blocks: Callable[[torch.Tensor], Words], count: int, device: torch.device) -> torch.Tensor:
    """[count, words]: the int32 words of the blocks number 0 to count - 1, which `blocks` gives for some of the numbers."""
    if count <= tuning.COUNTERS_AT_ONCE or device.type != "cpu" or torch.compiler.is_compiling():
        return torch.stack(blocks(torch.arange(count, device=device)), -1)
    made: torch.Tensor | None = None
    for start in range(0, count, tuning.COUNTERS_AT_ONCE):
        words = blocks(torch.arange(start, min(start + tuning.COUNTERS_AT_ONCE, count), device=device))
        if made is None:
            made = torch.empty(count, len(words), dtype=words[0].dtype, device=device)
        torch.stack(words, -1, out=made[start: start + tuning.COUNTERS_AT_ONCE])
    assert made is not None
    return made


# ------------------------------------------------------------------------------------------- Threefry

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def threefry2x32(x0: torch.Tensor, x1: torch.Tensor, k0: torch.Tensor, k1: torch.Tensor) -> Words:
    """The Threefry block function of 20 rounds on int32 words. `x0` and `x1` are not changed."""
    keys = (k0, k1, k0 ^ k1 ^ _PARITY)
    x0, x1 = x0 + keys[0], x1 + keys[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x0 += x1
            left = x1 << rotation
            x1 >>= 32 - rotation
            x1 &= (1 << rotation) - 1
            x1 |= left
            x1 ^= x0
        x0 += keys[(group + 1) % 3]
        x1 += keys[(group + 2) % 3] + (group + 1)
    return x0, x1


def _low_word(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.int32)


def _high_word(x: torch.Tensor) -> torch.Tensor:
    return (x >> 32).to(torch.int32)


def _threefry_words(state: torch.Tensor, count: int) -> torch.Tensor:
    """[count, 2]: the words of blocks in sequence."""
    k0, k1 = _low_word(state[0]), _high_word(state[0])

    def blocks(numbers: torch.Tensor) -> Words:
        counter = numbers + state[1]
        return threefry2x32(_low_word(counter), _high_word(counter), k0, k1)

    return _words(blocks, count, state.device)


def threefry_bits(state: torch.Tensor, dims: Sequence[int], bits: int) -> tuple[torch.Tensor, torch.Tensor]:
    """New state and random bits of shape `dims` from the state [key, counter].

    The bits are int64 for 64 of them and int32, int16 or uint8 for fewer.
    """
    if bits == 64:
        count = math.prod(dims)
        return _advanced(state, count), _joined(_threefry_words(state, count)).reshape(tuple(dims))
    if not dims:
        return _advanced(state, 1), _narrowed(_threefry_words(state, 1)[0, 0], bits)
    # One dimension is halved: the blocks' first and second words alternate along it.
    split = _split_dimension(dims)
    work = list(dims)
    work[split] = (dims[split] + 1) // 2
    words = _threefry_words(state, math.prod(work)).reshape(*work, 2).movedim(-1, split + 1).flatten(split, split + 1)
    return _advanced(state, math.prod(work)), _narrowed(words.narrow(split, 0, dims[split]), bits)


def _split_dimension(dims: Sequence[int]) -> int:
    """The first even dimension, else the first of the largest."""
    even = (d for d, size in enumerate(dims) if size % 2 == 0)
    return next(even, max(range(len(dims)), key=lambda d: dims[d]))


def _advanced(state: torch.Tensor, blocks: int) -> torch.Tensor:
    return torch.stack((state[0], state[1] + blocks))


def _joined(words: torch.Tensor) -> torch.Tensor:
    """Pairs of words in the last dimension as int64, the low word first."""
    return (words[..., 0].to(torch.int64) & _LOW) | (words[..., 1].to(torch.int64) << 32)


def _narrowed(words: torch.Tensor, bits: int) -> torch.Tensor:
    return words.to({8: torch.uint8, 16: torch.int16, 32: torch.int32}[bits]).contiguous()


# ------------------------------------------------------------------------------------------- Philox

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)


def philox4x32(counter: Sequence[torch.Tensor], k0: torch.Tensor, k1: torch.Tensor) -> Words:
    """The Philox block function of 10 rounds on four 32-bit words, each kept in the low half of an int64."""
    x0, x1, x2, x3 = counter
    for _ in range(10):
        first, second = x0 * _MULTIPLIERS[0], x2 * _MULTIPLIERS[1]
        x0, x1 = ((second >> 32) & _LOW).bitwise_xor_(x1).bitwise_xor_(k0), second.bitwise_and_(_LOW)
        x2, x3 = ((first >> 32) & _LOW).bitwise_xor_(x3).bitwise_xor_(k1), first.bitwise_and_(_LOW)
        k0, k1 = (k0 + _WEYL[0]) & _LOW, (k1 + _WEYL[1]) & _LOW
    return x0, x1, x2, x3


def philox_bits(state: torch.Tensor, dims: Sequence[int], bits: int) -> tuple[torch.Tensor, torch.Tensor]:
    """New state and random bits of shape `dims` from the state [key, counter] or [key, low counter, high counter].

    A state of two words takes its key as the counter's high half. The bits are int64 for 64 of them and int32, int16 or
    uint8 for fewer.
    """
    key, low = state[0], state[1]
    high = state[2] if state.shape[0] == 3 else key

    def blocks(numbers: torch.Tensor) -> Words:
        lows = numbers + low
        highs = high + _carried(lows, low)
        counter = (lows & _LOW, (lows >> 32) & _LOW, highs & _LOW, (highs >> 32) & _LOW)
        return tuple(w.to(torch.int32) for w in philox4x32(counter, key & _LOW, (key >> 32) & _LOW))

    count = math.prod(dims)
    total = -(-(2 * count if bits == 64 else count) // 4)
    words = _words(blocks, total, state.device)
    data = _joined(words.reshape(-1, 2)) if bits == 64 else words.flatten()
    after = low + total
    rest = (high + _carried(after, low),) if state.shape[0] == 3 else ()
    data = data[:count].reshape(tuple(dims))
    return torch.stack((key, after, *rest)), data if bits == 64 else _narrowed(data, bits)


def _carried(total: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    """1 where an unsigned addition to `before` went round."""
    return ((total ^ _SIGN) < (before ^ _SIGN)).to(torch.int64)


# ------------------------------------------------------------------------------------------- draws


class _Source(threading.local):
    """The generators that draws on this thread use; torch's own default generator where there is none."""

    generators: dict[torch.device, torch.Generator] | None = None
    seed: int = 0


_source = _Source()


def _generator(device: torch.device) -> torch.Generator | None:
    known = _source.generators
    if known is None:
        return None
    if device not in known:
        known[device] = torch.Generator(device).manual_seed(_source.seed)
    return known[device]


def seed(number: int) -> None:
    """Let RngUniform, RngNormal and RngGetAndUpdateState on this thread restart from a seed, the same on every device.

    Without a call of `seed` they draw from torch's default generators, which `torch.manual_seed` seeds.

    >>> from xla_torch import random
    >>> random.seed(0)
    >>> first = ops.RngUniform(0.0, 1.0, Shape.parse("f32[2]"))
    >>> random.seed(0)
    >>> bool((ops.RngUniform(0.0, 1.0, Shape.parse("f32[2]")) == first).all())
    True
    """
    _source.generators, _source.seed = {}, int(number)
    _counter.value = _FIRST_COUNTER + int(number)


@contextlib.contextmanager
def use_generator(generator: torch.Generator) -> Iterator[None]:
    """Draw from `generator` (for its device) within the block.

    >>> from xla_torch import random
    >>> generator = torch.Generator().manual_seed(0)
    >>> with random.use_generator(generator):
    ...     drawn = ops.RngUniform(0.0, 1.0, Shape.parse("f32[2]"))
    >>> drawn.shape
    torch.Size([2])
    """
    before = _source.generators
    _source.generators = {**(before or {}), generator.device: generator}
    try:
        yield
    finally:
        _source.generators = before


def state(device: torch.device) -> tuple[np.ndarray, int]:
    """What draws on this thread and device, and the program-wide counter, go on from."""
    generator = _generator(device)
    if generator is not None:
        found = generator.get_state()
    else:
        found = torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()
    return found.numpy().copy(), _counter.value


@contextlib.contextmanager
def restored(found: np.ndarray | None, counter: int, device: torch.device) -> Iterator[None]:
    """Within the block draws on this thread go on from such a state, and from the counter; afterwards from where they were.
    Raises InvalidArgument for what is no state of this kind of device."""
    generator, before = torch.Generator(device), _counter.value
    if found is not None:
        try:
            generator.set_state(torch.from_numpy(found))
        except (RuntimeError, TypeError) as error:
            raise InvalidArgument("invalid state of a random generator", got=error) from None
    _counter.value = counter
    try:
        with use_generator(generator):
            yield
    finally:
        _counter.value = before


def uniform(low: torch.Tensor, high: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
    """Uniform floats of [low, high) in the dtype of the bounds."""
    dtype = low.dtype
    wide = dtype if dtype == torch.float64 else torch.float32
    unit = torch.rand(tuple(dims), dtype=wide, device=low.device, generator=_generator(low.device))
    drawn = (unit * (high.to(wide) - low.to(wide)) + low.to(wide)).to(dtype)
    return torch.where(drawn < high, drawn, low)  # rounding may reach the open end


def uniform_integers(low: torch.Tensor, high: torch.Tensor, dims: Sequence[int], mask: int) -> torch.Tensor:
    """Uniform integers of [low, high) in the dtype of the bounds. `mask` selects the bits of an unsigned type that
    travels in a signed dtype, and is 0 for others."""
    first, last = low.to(torch.int64), high.to(torch.int64)
    if mask:
        first, last = first & mask, last & mask
    span = last - first
    generator = _generator(low.device)
    drawn = torch.randint(0, 1 << 62, tuple(dims), device=low.device, generator=generator)
    drawn = drawn ^ (torch.randint(0, 4, tuple(dims), device=low.device, generator=generator) << 62)
    # A span of 2^63 or more is negative here: such a draw is below it, or one span above.
    wide = torch.where((drawn ^ _SIGN) < (span ^ _SIGN), drawn, drawn - span)
    within = (drawn & ~_SIGN) % torch.where(span > 0, span, 1)
    return (torch.where(span < 0, wide, within) + first).to(low.dtype)


def booleans(low: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
    """Random booleans, on the device of `low`."""
    return torch.randint(0, 2, tuple(dims), device=low.device, generator=_generator(low.device)).to(torch.bool)


def normal(mean: torch.Tensor, deviation: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
    """Normal floats in the dtype of the parameters."""
    drawn = torch.randn(tuple(dims), dtype=mean.dtype, device=mean.device, generator=_generator(mean.device))
    return drawn * deviation + mean


# ------------------------------------------------------------------------------------------- the program-wide counter

_FIRST_COUNTER = 0x7012395


class _Counter:
    """The 128-bit counter behind rng-get-and-update-state, one for the process."""

    def __init__(self) -> None:
        self.lock, self.value = Lock(), _FIRST_COUNTER


_counter = _Counter()


def next_counter(delta: int, device: torch.device) -> torch.Tensor:
    """The counter as [low, high] u64 words in int64, before `delta` is added to it."""
    with _counter.lock:
        value = _counter.value
        _counter.value = (value + delta) % (1 << 128)
    words = [((value >> shift) + (1 << 63)) % (1 << 64) - (1 << 63) for shift in (0, 64)]
    # Filled on the device: a copy from the host would wait for it.
    return torch.stack([torch.full((), word, dtype=torch.int64, device=device) for word in words])
