"""Element types: XLA's names and numbers, and how each is held in NumPy and in torch.

Document: spec `shapes.md`, section 1. Every type has up to three torch faces:

- `torch`: the dtype that users see at the boundary of a program, torch's own where torch has one;
- `carrier`: the dtype that travels inside a lowered program. Torch lacks arithmetic for uint16, uint32 and uint64 (they
  travel as the signed integer of the same bits), for integers under 8 bits (they travel in int8 or uint8 and wrap), and
  for floats of 8 bits and fewer (they travel as float32 values that lie on the narrow grid).
- `numpy`: the dtype of literals and of `run_numpy`, from ml_dtypes where NumPy has none.
"""

from __future__ import annotations

import enum
import math
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import torch


class Kind(enum.Enum):
    """What family of values a type holds."""

    PRED = "pred"
    SIGNED = "signed"
    UNSIGNED = "unsigned"
    FLOAT = "float"
    COMPLEX = "complex"
    OTHER = "other"


class _Facts(NamedTuple):
    number: int
    kind: Kind
    bits: int
    numpy: np.dtype | None
    torch: torch.dtype | None
    carrier: torch.dtype | None


def _facts(number: int, kind: Kind, bits: int, numpy: Any = None, boundary: torch.dtype | None = None,
           carrier: torch.dtype | None = None) -> _Facts:
    return _Facts(number, kind, bits, None if numpy is None else np.dtype(numpy), boundary, carrier or boundary)


_S, _U, _F, _C, _O = Kind.SIGNED, Kind.UNSIGNED, Kind.FLOAT, Kind.COMPLEX, Kind.OTHER
_f32 = torch.float32
_t = torch  # inside the enumeration `torch` is the name of an attribute


class PrimitiveType(enum.Enum):
    """An XLA element type. The member's name in lower case is its HLO text (`PrimitiveType.BF16` is ``bf16``)."""

    PRED = _facts(1, Kind.PRED, 8, np.bool_, _t.bool)
    S1 = _facts(30, _S, 1, ml_dtypes.int1, _t.int8)
    S2 = _facts(26, _S, 2, ml_dtypes.int2, _t.int8)
    S4 = _facts(21, _S, 4, ml_dtypes.int4, _t.int8)
    S8 = _facts(2, _S, 8, np.int8, _t.int8)
    S16 = _facts(3, _S, 16, np.int16, _t.int16)
    S32 = _facts(4, _S, 32, np.int32, _t.int32)
    S64 = _facts(5, _S, 64, np.int64, _t.int64)
    U1 = _facts(31, _U, 1, ml_dtypes.uint1, _t.uint8)
    U2 = _facts(27, _U, 2, ml_dtypes.uint2, _t.uint8)
    U4 = _facts(22, _U, 4, ml_dtypes.uint4, _t.uint8)
    U8 = _facts(6, _U, 8, np.uint8, _t.uint8)
    U16 = _facts(7, _U, 16, np.uint16, _t.uint16, _t.int16)
    U32 = _facts(8, _U, 32, np.uint32, _t.uint32, _t.int32)
    U64 = _facts(9, _U, 64, np.uint64, _t.uint64, _t.int64)
    F16 = _facts(10, _F, 16, np.float16, _t.float16)
    F32 = _facts(11, _F, 32, np.float32, _t.float32)
    F64 = _facts(12, _F, 64, np.float64, _t.float64)
    BF16 = _facts(16, _F, 16, ml_dtypes.bfloat16, _t.bfloat16)
    F8E5M2 = _facts(19, _F, 8, ml_dtypes.float8_e5m2, _t.float8_e5m2, _f32)
    F8E4M3 = _facts(28, _F, 8, ml_dtypes.float8_e4m3, _f32)
    F8E4M3FN = _facts(20, _F, 8, ml_dtypes.float8_e4m3fn, _t.float8_e4m3fn, _f32)
    F8E4M3B11FNUZ = _facts(23, _F, 8, ml_dtypes.float8_e4m3b11fnuz, _f32)
    F8E4M3FNUZ = _facts(25, _F, 8, ml_dtypes.float8_e4m3fnuz, _t.float8_e4m3fnuz, _f32)
    F8E5M2FNUZ = _facts(24, _F, 8, ml_dtypes.float8_e5m2fnuz, _t.float8_e5m2fnuz, _f32)
    F8E3M4 = _facts(29, _F, 8, ml_dtypes.float8_e3m4, _f32)
    F8E8M0FNU = _facts(33, _F, 8, ml_dtypes.float8_e8m0fnu, _t.float8_e8m0fnu, _f32)
    F4E2M1FN = _facts(32, _F, 4, ml_dtypes.float4_e2m1fn, _f32)
    C64 = _facts(15, _C, 64, np.complex64, _t.complex64)
    C128 = _facts(18, _C, 128, np.complex128, _t.complex128)
    TUPLE = _facts(13, _O, 0)
    OPAQUE_TYPE = _facts(14, _O, 0)
    TOKEN = _facts(17, _O, 0)
    BUFFER = _facts(34, _O, 0)

    # Each fact becomes a plain attribute of the member, so `element_type.bits` costs one lookup.
    number: int
    kind: Kind
    bits: int
    numpy: np.dtype | None
    torch: _t.dtype | None
    carrier: _t.dtype | None
    text: str

    def __init__(self, *facts: object):
        self.number, self.kind, self.bits, self.numpy, self.torch, self.carrier = facts  # pyright: ignore
        self.text = {"OPAQUE_TYPE": "opaque"}.get(self.name, self.name.lower())
        self._hash = hash(self.name)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return self.name

    __str__ = __repr__

    @property
    def is_array(self) -> bool:
        """True for what can be an element of an array: everything but TUPLE, OPAQUE_TYPE, TOKEN and BUFFER."""
        return self.kind is not Kind.OTHER

    @property
    def is_integral(self) -> bool:
        """Signed or unsigned integers; PRED is not integral."""
        return self.kind is Kind.SIGNED or self.kind is Kind.UNSIGNED

    @property
    def is_unsigned(self) -> bool:
        return self.kind is Kind.UNSIGNED

    @property
    def is_signed(self) -> bool:
        return self.kind is Kind.SIGNED

    @property
    def is_floating(self) -> bool:
        return self.kind is Kind.FLOAT

    @property
    def is_complex(self) -> bool:
        return self.kind is Kind.COMPLEX

    @property
    def is_pred(self) -> bool:
        return self.kind is Kind.PRED

    @property
    def is_differentiable(self) -> bool:
        return self.kind is Kind.FLOAT or self.kind is Kind.COMPLEX

    @property
    def is_narrow(self) -> bool:
        """Travels in a wider carrier, so results must be wrapped or rounded to its grid."""
        return 0 < self.bits < 8 or (self.kind is Kind.FLOAT and self.bits == 8)

    @property
    def hides_sign(self) -> bool:
        """An unsigned type that travels in a signed carrier of the same width (U16, U32, U64)."""
        return self.kind is Kind.UNSIGNED and self.bits > 8

    @property
    def itemsize(self) -> int:
        """Bytes of one element in an unpacked buffer; sub-byte types take one byte."""
        return max(1, self.bits // 8)


_BY_TEXT = {t.text: t for t in PrimitiveType if t not in (PrimitiveType.TUPLE, PrimitiveType.BUFFER)}
_BY_NUMBER = {t.number: t for t in PrimitiveType}
_BY_NUMPY = {t.numpy: t for t in PrimitiveType if t.numpy is not None}
# Where several types share a torch dtype, the type whose own dtype it is comes first in the enumeration's widths.
_BY_TORCH = {t.torch: t for t in reversed(PrimitiveType) if t.torch is not None} | {
    torch.int8: PrimitiveType.S8, torch.uint8: PrimitiveType.U8, torch.float32: PrimitiveType.F32}

PRED = PrimitiveType.PRED
S1 = PrimitiveType.S1
S2 = PrimitiveType.S2
S4 = PrimitiveType.S4
S8 = PrimitiveType.S8
S16 = PrimitiveType.S16
S32 = PrimitiveType.S32
S64 = PrimitiveType.S64
U1 = PrimitiveType.U1
U2 = PrimitiveType.U2
U4 = PrimitiveType.U4
U8 = PrimitiveType.U8
U16 = PrimitiveType.U16
U32 = PrimitiveType.U32
U64 = PrimitiveType.U64
F16 = PrimitiveType.F16
F32 = PrimitiveType.F32
F64 = PrimitiveType.F64
BF16 = PrimitiveType.BF16
F8E5M2 = PrimitiveType.F8E5M2
F8E4M3 = PrimitiveType.F8E4M3
F8E4M3FN = PrimitiveType.F8E4M3FN
F8E4M3B11FNUZ = PrimitiveType.F8E4M3B11FNUZ
F8E4M3FNUZ = PrimitiveType.F8E4M3FNUZ
F8E5M2FNUZ = PrimitiveType.F8E5M2FNUZ
F8E3M4 = PrimitiveType.F8E3M4
F8E8M0FNU = PrimitiveType.F8E8M0FNU
F4E2M1FN = PrimitiveType.F4E2M1FN
C64 = PrimitiveType.C64
C128 = PrimitiveType.C128
TUPLE = PrimitiveType.TUPLE
OPAQUE_TYPE = PrimitiveType.OPAQUE_TYPE
TOKEN = PrimitiveType.TOKEN
BUFFER = PrimitiveType.BUFFER


def type_from_text(text: str) -> PrimitiveType | None:
    """The type that HLO text calls `text` (``"bf16"``), or None."""
    return _BY_TEXT.get(text)


def type_from_number(number: int) -> PrimitiveType | None:
    """The type with this number in xla_data.proto, or None."""
    return _BY_NUMBER.get(number)


def type_from_numpy(dtype: object) -> PrimitiveType | None:
    """The type that a NumPy (or ml_dtypes) dtype stands for, or None."""
    return _BY_NUMPY.get(np.dtype(dtype))  # pyright: ignore[reportArgumentType, reportCallIssue]


def type_from_torch(dtype: torch.dtype) -> PrimitiveType | None:
    """The type that a torch dtype stands for, or None. `torch.int8` is S8, never a narrower type."""
    return _BY_TORCH.get(dtype)


def complex_part(t: PrimitiveType) -> PrimitiveType:
    """The component type of a complex type: F32 for C64, F64 for C128; any other type is its own part."""
    return {C64: F32, C128: F64}.get(t, t)


def higher_precision(a: PrimitiveType, b: PrimitiveType) -> PrimitiveType:
    """The float type of the two with the larger range; on a tie, the one with more mantissa, else `a`."""
    def rank(t: PrimitiveType) -> tuple[int, int]:
        return math.frexp(float(ml_dtypes.finfo(t.numpy).max))[1], mantissa_bits(t)  # pyright: ignore[reportArgumentType]

    return a if a is b or rank(a) >= rank(b) else b


def same_type_ignoring_precision(a: PrimitiveType, b: PrimitiveType) -> bool:
    """XLA's SameElementTypeIgnoringFpPrecision: equal, or two floating types of any width."""
    return a is b or (a.is_floating and b.is_floating)


def exponent_bits(t: PrimitiveType) -> int:
    """Width of the exponent field of a floating type."""
    return {F16: 5, BF16: 8, F32: 8, F64: 11}.get(t) or int(t.name[3])


def mantissa_bits(t: PrimitiveType) -> int:
    """Explicit mantissa bits of a floating type (the hidden bit not counted)."""
    known = {F16: 10, BF16: 7, F32: 23, F64: 52}.get(t)
    return known if known is not None else int(t.name[5])
