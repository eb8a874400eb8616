"""Integer kernels: division, powers, shifts and bit counts with XLA's meaning in the cases that torch leaves open.

Operands come in storage dtypes (see `dtypes.py`). One of two operands may be a Python number as it is stored instead of a tensor.
`bits` is the width of the element type, which is smaller than the storage dtype's for types of 1, 2 and 4 bits.
"""

from __future__ import annotations

import torch

from .calls import elementwise, elementwise_in_c

Operand = torch.Tensor | int | float | complex


def as_tensors(lhs: Operand, rhs: Operand) -> tuple[torch.Tensor, torch.Tensor]:
    """Both operands as tensors of one dtype; a number becomes a 0-dimensional tensor. At least one is a tensor."""
    like = lhs if isinstance(lhs, torch.Tensor) else rhs
    assert isinstance(like, torch.Tensor)
    return _tensor(lhs, like), _tensor(rhs, like)


def _tensor(value: Operand, like: torch.Tensor) -> torch.Tensor:
    return value if isinstance(value, torch.Tensor) else torch.full((), value, dtype=like.dtype, device=like.device)


# ------------------------------------------------------------------------------- division


@elementwise_in_c(signed="divide_signed_{t}({0}, {1})")
def divide_signed(lhs: Operand, rhs: Operand) -> torch.Tensor:
    """Quotient truncated toward zero; x / 0 is -1 and MIN / -1 is MIN."""
    if isinstance(lhs, torch.Tensor) and isinstance(rhs, int) and rhs not in (0, -1):
        return torch.div(lhs, rhs, rounding_mode="trunc")
    lhs, rhs = as_tensors(lhs, rhs)
    quotient = torch.div(lhs, _without_traps(rhs), rounding_mode="trunc")
    return torch.where(rhs == 0, -1, torch.where(rhs == -1, -lhs, quotient))


@elementwise_in_c(signed="remainder_signed_{t}({0}, {1})")
def remainder_signed(lhs: Operand, rhs: Operand) -> torch.Tensor:
    """Remainder with the sign of the dividend; x % 0 is x and x % -1 is 0."""
    if isinstance(lhs, torch.Tensor) and isinstance(rhs, int) and rhs not in (0, -1):
        return torch.fmod(lhs, rhs)
    lhs, rhs = as_tensors(lhs, rhs)
    return torch.where(rhs == 0, lhs, torch.fmod(lhs, _without_traps(rhs)))


def _of_unsigned(function: str) -> dict[str, str]:
    """C of a function of two unsigned numbers of so many bits, which are stored as signed ones or with more."""
    def shown(code: str) -> str:
        return f"((u64){code} << (64 - {{2}}) >> (64 - {{2}}))"

    return dict.fromkeys(("signed", "unsigned"), shown(f"{function}({shown('{0}')}, {shown('{1}')})"))


def _without_traps(divisor: torch.Tensor) -> torch.Tensor:
    """The divisor with 1 in place of 0 and -1: a processor may stop the program on x / 0 and on MIN / -1."""
    return torch.where((divisor == 0) | (divisor == -1), 1, divisor)


@elementwise_in_c(**_of_unsigned("divide_unsigned_u64"))
def divide_unsigned(lhs: Operand, rhs: Operand, bits: int) -> torch.Tensor:
    """Unsigned quotient; x / 0 has all bits set."""
    if isinstance(lhs, torch.Tensor) and isinstance(rhs, int) and rhs != 0 and bits < 64:
        return torch.div(zero_extended(lhs, bits), rhs & ((1 << bits) - 1), rounding_mode="trunc").to(lhs.dtype)
    lhs, rhs = as_tensors(lhs, rhs)
    if bits == 64:
        return torch.where(rhs == 0, -1, _divide_unsigned_64(lhs, rhs)[0])
    top, bottom = zero_extended(lhs, bits), zero_extended(rhs, bits)
    quotient = torch.div(top, bottom.clamp(min=1), rounding_mode="trunc")
    return torch.where(bottom == 0, (1 << bits) - 1, quotient).to(lhs.dtype)


@elementwise_in_c(**_of_unsigned("remainder_unsigned_u64"))
def remainder_unsigned(lhs: Operand, rhs: Operand, bits: int) -> torch.Tensor:
    """Unsigned remainder; x % 0 is x."""
    if isinstance(lhs, torch.Tensor) and isinstance(rhs, int) and rhs != 0 and bits < 64:
        return torch.fmod(zero_extended(lhs, bits), rhs & ((1 << bits) - 1)).to(lhs.dtype)
    lhs, rhs = as_tensors(lhs, rhs)
    if bits == 64:
        return torch.where(rhs == 0, lhs, _divide_unsigned_64(lhs, rhs)[1])
    top, bottom = zero_extended(lhs, bits), zero_extended(rhs, bits)
    return torch.where(bottom == 0, top, torch.fmod(top, bottom.clamp(min=1))).to(lhs.dtype)


def _divide_unsigned_64(lhs: torch.Tensor, rhs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Unsigned quotient and remainder of 64-bit integers by signed division; the divisor 0 gives anything.

    Halving the dividend makes it positive, and doubling the quotient again leaves it at most one too small. A divisor with
    the top bit set goes into any dividend once or not at all, and there the halved division gives 0 as it should.
    """
    divisor = torch.where(rhs > 0, rhs, torch.iinfo(torch.int64).max)
    quotient = torch.div((lhs >> 1) & torch.iinfo(torch.int64).max, divisor, rounding_mode="trunc") << 1
    quotient = torch.where(rhs < 0, 0, quotient)
    remainder = lhs - quotient * rhs
    low = torch.iinfo(torch.int64).min
    one_more = (remainder ^ low) >= (rhs ^ low)
    return quotient + one_more, torch.where(one_more, remainder - rhs, remainder)


@elementwise
def zero_extended(x: torch.Tensor, bits: int) -> torch.Tensor:
    """An unsigned value of at most 32 bits as int64 values."""
    return x.to(torch.int64) & ((1 << bits) - 1)


# ------------------------------------------------------------------------------- powers and products


@elementwise
def power(base: Operand, exponent: Operand, unsigned: bool) -> torch.Tensor:
    """Integer power that wraps. 0^0 is 1; a negative exponent gives 0 but for the bases 1 and -1, as 1/base would."""
    if isinstance(base, torch.Tensor) and isinstance(exponent, int) and exponent >= 0:
        return torch.pow(base, exponent)
    base, exponent = as_tensors(base, exponent)
    if not unsigned:
        # torch.pow refuses negative exponents only where they are numbers, and has the meaning above for tensors.
        return torch.pow(base, exponent)
    # Half of an unsigned exponent is positive in signed storage, too.
    root = torch.pow(base, shift_right_logical(exponent, 1, exponent.dtype.itemsize * 8))
    return root * root * torch.where((exponent & 1) == 1, base, 1)


@elementwise
def high_product(lhs: Operand, rhs: Operand, bits: int, unsigned: bool) -> torch.Tensor:
    """The upper half of the product of twice the width."""
    lhs, rhs = as_tensors(lhs, rhs)
    if bits == 64:
        return _high_product_64(lhs, rhs, unsigned)
    a, b = (zero_extended(v, bits) if unsigned else v.to(torch.int64) for v in (lhs, rhs))
    return ((a * b) >> bits).to(lhs.dtype)


def _high_product_64(lhs: torch.Tensor, rhs: torch.Tensor, unsigned: bool) -> torch.Tensor:
    half = (1 << 32) - 1
    a_low, a_high, b_low, b_high = lhs & half, lhs >> 32, rhs & half, rhs >> 32
    low = a_low * b_low
    middle = a_high * b_low + shift_right_logical(low, 32, 64)
    other = a_low * b_high + (middle & half)
    signed = a_high * b_high + (middle >> 32) + (other >> 32)
    # Reading an operand as unsigned adds 2^64 where its top bit is set, so the other operand to the upper half.
    return signed + torch.where(lhs < 0, rhs, 0) + torch.where(rhs < 0, lhs, 0) if unsigned else signed


# ------------------------------------------------------------------------------- shifts


@elementwise
def shift_right_logical(x: Operand, amount: Operand, bits: int) -> torch.Tensor:
    """Shift right with zeros coming in; the amount counts as unsigned, and one of the width or more gives 0."""
    x, amount = as_tensors(x, amount)
    if x.dtype is torch.uint8 or bits < 8:
        within = x & ((1 << bits) - 1)
        return torch.where((amount < 0) | (amount >= bits), 0, within >> amount)
    # The mask is computed from the amount alone: most programs shift a whole array by one amount.
    kept = (torch.ones_like(amount) << (bits - amount)) - 1
    return (x >> amount) & torch.where((amount < 0) | (amount >= bits), 0, kept)


@elementwise
def shift_right_arithmetic_unsigned(x: torch.Tensor, amount: Operand, bits: int) -> torch.Tensor:
    """Shift an unsigned integer of at most 8 bits right as if it were signed: copies of its top bit come in."""
    spare = 8 - bits
    signed = (x << spare).view(torch.int8) >> spare
    return (signed >> (amount.view(torch.int8) if isinstance(amount, torch.Tensor) else amount)).view(torch.uint8)


# ------------------------------------------------------------------------------- order


@elementwise
def unsigned_extreme(lhs: Operand, rhs: Operand, largest: bool) -> torch.Tensor:
    """The larger (or smaller) of unsigned integers in signed storage."""
    lhs, rhs = as_tensors(lhs, rhs)
    flip = torch.iinfo(lhs.dtype).min
    return (torch.maximum if largest else torch.minimum)(lhs ^ flip, rhs ^ flip) ^ flip


@elementwise
def unsigned_clamp(low: Operand, x: Operand, high: Operand) -> torch.Tensor:
    """The smaller of `high` and the larger of `low` and x, of unsigned integers in signed storage."""
    return unsigned_extreme(unsigned_extreme(x, low, True), high, False)


# ------------------------------------------------------------------------------- bit counts

_TOP_BITS = "((u64){0} << (64 - {1}))"
"""A number of so many bits at the top of 64, in C."""


@elementwise_in_c(**dict.fromkeys(("signed", "unsigned"), f"__builtin_popcountll({_TOP_BITS})"))
def population_count(x: torch.Tensor, bits: int) -> torch.Tensor:
    """The number of bits that are set."""
    x = x & ((1 << bits) - 1) if bits < 8 else x
    width = x.dtype.itemsize * 8
    # Sums of neighbouring bits, then of pairs, nibbles and bytes; the signed shifts are masked to be logical ones.
    ones = sum(1 << 8 * i for i in range(width // 8))
    x = x - ((x >> 1) & (0x55 * ones))
    x = (x & (0x33 * ones)) + ((x >> 2) & (0x33 * ones))
    x = (x + ((x >> 4) & (0x0F * ones))) & (0x0F * ones)
    return (x * ones) >> (width - 8)


@elementwise_in_c(**dict.fromkeys(("signed", "unsigned"), f"{_TOP_BITS} == 0 ? {{1}} : __builtin_clzll({_TOP_BITS})"))
def count_leading_zeros(x: torch.Tensor, bits: int) -> torch.Tensor:
    """The number of zeros above the highest bit that is set; the width for 0."""
    x = x & ((1 << bits) - 1) if bits < 8 else x
    width = x.dtype.itemsize * 8
    step = 1
    while step < width:  # set every bit below the highest one; a negative value becomes all ones by the signed shift
        x = x | (x >> step)
        step *= 2
    return bits - population_count(x, width)
