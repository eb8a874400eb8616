"""Element types: XLA's names and numbers, and how each is held in NumPy (how in torch, `dtypes.py` says).

Specification: hlo/SPEC.md, Element types. `numpy` is the dtype of literals and of `run_numpy`, from ml_dtypes where NumPy has
none.
"""

from __future__ import annotations

import enum
import math
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from .errors import InvalidArgument

MAX_RANK = 64
"""Dimensions that an array of NumPy may have, and so a constant."""


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


def _facts(number: int, kind: Kind, bits: int, numpy: Any = None) -> _Facts:
    return _Facts(number, kind, bits, None if numpy is None else np.dtype(numpy))


_S, _U, _F, _C, _O = Kind.SIGNED, Kind.UNSIGNED, Kind.FLOAT, Kind.COMPLEX, Kind.OTHER


class PrimitiveType(enum.Enum):
    """Enumerate XLA's element types.

    A member's name in lower case is its HLO text (`PrimitiveType.BF16` is ``bf16``), also available as `text`. `number` is the
    value in xla_data.proto and `bits` the size of an element. `numpy` is the NumPy or ml_dtypes dtype, and None for types that
    arrays can't hold.

    >>> xla_torch.F32 is xla_torch.PrimitiveType.F32, str(Shape.array(xla_torch.BF16, [2, 3]))
    (True, 'bf16[2,3]')
    >>> xla_torch.U4.bits, xla_torch.U4.itemsize, xla_torch.U4.is_narrow, xla_torch.U4.is_array, xla_torch.U16.hides_sign
    (4, 1, True, True, True)
    >>> [(t.is_pred, t.is_integral, t.is_signed, t.is_unsigned) for t in (xla_torch.PRED, xla_torch.S8, xla_torch.U8)]
    [(True, False, False, False), (False, True, True, False), (False, True, False, True)]
    >>> [(t.is_floating, t.is_complex, t.is_differentiable) for t in (xla_torch.F16, xla_torch.C64, xla_torch.S8)]
    [(True, False, True), (False, True, True), (False, False, False)]
    """

    PRED = _facts(1, Kind.PRED, 8, np.bool_)
    S1 = _facts(30, _S, 1, ml_dtypes.int1)
    S2 = _facts(26, _S, 2, ml_dtypes.int2)
    S4 = _facts(21, _S, 4, ml_dtypes.int4)
    S8 = _facts(2, _S, 8, np.int8)
    S16 = _facts(3, _S, 16, np.int16)
    S32 = _facts(4, _S, 32, np.int32)
    S64 = _facts(5, _S, 64, np.int64)
    U1 = _facts(31, _U, 1, ml_dtypes.uint1)
    U2 = _facts(27, _U, 2, ml_dtypes.uint2)
    U4 = _facts(22, _U, 4, ml_dtypes.uint4)
    U8 = _facts(6, _U, 8, np.uint8)
    U16 = _facts(7, _U, 16, np.uint16)
    U32 = _facts(8, _U, 32, np.uint32)
    U64 = _facts(9, _U, 64, np.uint64)
    F16 = _facts(10, _F, 16, np.float16)
    F32 = _facts(11, _F, 32, np.float32)
    F64 = _facts(12, _F, 64, np.float64)
    BF16 = _facts(16, _F, 16, ml_dtypes.bfloat16)
    F8E5M2 = _facts(19, _F, 8, ml_dtypes.float8_e5m2)
    F8E4M3 = _facts(28, _F, 8, ml_dtypes.float8_e4m3)
    F8E4M3FN = _facts(20, _F, 8, ml_dtypes.float8_e4m3fn)
    F8E4M3B11FNUZ = _facts(23, _F, 8, ml_dtypes.float8_e4m3b11fnuz)
    F8E4M3FNUZ = _facts(25, _F, 8, ml_dtypes.float8_e4m3fnuz)
    F8E5M2FNUZ = _facts(24, _F, 8, ml_dtypes.float8_e5m2fnuz)
    F8E3M4 = _facts(29, _F, 8, ml_dtypes.float8_e3m4)
    F8E8M0FNU = _facts(33, _F, 8, ml_dtypes.float8_e8m0fnu)
    F4E2M1FN = _facts(32, _F, 4, ml_dtypes.float4_e2m1fn)
    F6E3M2FN = _facts(35, _F, 6, ml_dtypes.float6_e3m2fn)
    F6E2M3FN = _facts(36, _F, 6, ml_dtypes.float6_e2m3fn)
    C64 = _facts(15, _C, 64, np.complex64)
    C128 = _facts(18, _C, 128, np.complex128)
    TUPLE = _facts(13, _O, 0)
    OPAQUE_TYPE = _facts(14, _O, 0)
    TOKEN = _facts(17, _O, 0)
    BUFFER = _facts(34, _O, 0)

    # Each fact becomes a plain attribute of the member, so `element_type.bits` costs one lookup.
    number: int
    kind: Kind
    bits: int
    numpy: np.dtype | None
    text: str

    def __init__(self, *facts: object):
        self.number, self.kind, self.bits, self.numpy = facts  # pyright: ignore
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
        """Integers without a sign."""
        return self.kind is Kind.UNSIGNED

    @property
    def is_signed(self) -> bool:
        """Integers with a sign; floating and complex types are not signed in this sense."""
        return self.kind is Kind.SIGNED

    @property
    def is_floating(self) -> bool:
        """Real floating types, from F4E2M1FN to F64."""
        return self.kind is Kind.FLOAT

    @property
    def is_complex(self) -> bool:
        """C64 and C128."""
        return self.kind is Kind.COMPLEX

    @property
    def is_pred(self) -> bool:
        """Truth values."""
        return self.kind is Kind.PRED

    @property
    def is_differentiable(self) -> bool:
        """What has gradients: floating and complex types."""
        return self.kind is Kind.FLOAT or self.kind is Kind.COMPLEX

    @property
    def is_narrow(self) -> bool:
        """Stored in a wider dtype, so results must be wrapped or rounded to its grid."""
        return 0 < self.bits < 8 or (self.kind is Kind.FLOAT and self.bits == 8)

    @property
    def hides_sign(self) -> bool:
        """An unsigned type that is stored in the signed dtype of the same width (U16, U32, U64)."""
        return self.kind is Kind.UNSIGNED and self.bits > 8

    @property
    def itemsize(self) -> int:
        """Bytes of one element in an unpacked buffer; sub-byte types take one byte."""
        return max(1, self.bits // 8)


_BY_TEXT = {t.text: t for t in PrimitiveType if t not in (PrimitiveType.TUPLE, PrimitiveType.BUFFER)}
_BY_NUMBER = {t.number: t for t in PrimitiveType}
_BY_NUMPY = {t.numpy: t for t in PrimitiveType if t.numpy is not None}

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
F6E3M2FN = PrimitiveType.F6E3M2FN
F6E2M3FN = PrimitiveType.F6E2M3FN
C64 = PrimitiveType.C64
C128 = PrimitiveType.C128
TUPLE = PrimitiveType.TUPLE
OPAQUE_TYPE = PrimitiveType.OPAQUE_TYPE
TOKEN = PrimitiveType.TOKEN
BUFFER = PrimitiveType.BUFFER


def type_from_text(text: str) -> PrimitiveType | None:
    """Return the type with this name in HLO text (``"bf16"``), or None."""
    return _BY_TEXT.get(text)


def type_from_number(number: int) -> PrimitiveType | None:
    """Return the type with this number in xla_data.proto, or None."""
    return _BY_NUMBER.get(number)


def type_from_numpy(dtype: object) -> PrimitiveType | None:
    """Return the type of a NumPy or ml_dtypes dtype, or None."""
    return _BY_NUMPY.get(np.dtype(dtype))  # pyright: ignore[reportArgumentType, reportCallIssue]


_BY_WORD = _BY_TEXT | {t.numpy.name: t for t in PrimitiveType if t.numpy is not None}
"""Types by the names that HLO, NumPy and torch give them, which do not contradict each other."""
_BY_SCALAR = {dtype.type: t for dtype, t in _BY_NUMPY.items()}


def element_type_of(spelling: object) -> PrimitiveType | None:
    """Return the element type that a name, dtype or scalar class denotes, or None.

    Accepted are a PrimitiveType, its name (``"f32"``, ``"float32"``, ``"torch.float32"``), a dtype of NumPy, ml_dtypes or
    torch, and scalar classes of NumPy, ml_dtypes or JAX. ``int`` and ``float`` have no width and give None.
    """
    if isinstance(spelling, PrimitiveType):
        return spelling if spelling.is_array else None
    if isinstance(spelling, str):
        found = _BY_WORD.get(spelling.removeprefix("torch.").lower())
        return found if found is not None and found.is_array else None
    if isinstance(spelling, np.dtype):
        return _BY_NUMPY.get(spelling)
    if spelling is bool:
        return PrimitiveType.PRED
    if isinstance(spelling, type) and issubclass(spelling, np.generic):
        return _BY_SCALAR.get(spelling)
    inner = getattr(spelling, "dtype", None)
    if isinstance(inner, np.dtype) and callable(spelling):  # JAX's scalar types
        return _BY_NUMPY.get(inner)
    if type(spelling).__module__ == "torch" and type(spelling).__name__ == "dtype":  # known by its name: no torch here
        return _BY_WORD.get(str(spelling).removeprefix("torch."))
    return None


def require_element_type(spelling: object, subject: str = "") -> PrimitiveType:
    """Return `element_type_of`, or raise InvalidArgument if there is none."""
    found = element_type_of(spelling)
    if found is None:
        no_width = any(spelling is known for known in (int, float, complex))
        hint = "a width belongs to it: s32 or s64, f32 or f64" if no_width else ""
        raise InvalidArgument(f"{spelling} is not an element type of arrays" if isinstance(spelling, PrimitiveType)
                              else "not an element type of arrays", subject=subject, got=repr(spelling),
                              expected='an element type, as F32, "f32", numpy.float32 or torch.float32', hint=hint)
    return found


def has_infinity(t: PrimitiveType) -> bool:
    """Return whether a floating type has infinities.

    Types without them overflow to NaN or to the largest number.
    """
    return t.is_floating and bool(np.isinf(np.asarray(np.inf).astype(t.numpy).astype(np.float32)))


def has_nan(t: PrimitiveType) -> bool:
    """Return whether a floating or complex type has a NaN; only F4E2M1FN lacks one."""
    return t.is_differentiable and t is not F4E2M1FN


def has_zero(t: PrimitiveType) -> bool:
    """Return whether a type has a zero; only F8E8M0FNU lacks one."""
    return t is not F8E8M0FNU


def complex_part(t: PrimitiveType) -> PrimitiveType:
    """Return the component type of a complex type; other types return themselves."""
    return {C64: F32, C128: F64}.get(t, t)


def higher_precision(a: PrimitiveType, b: PrimitiveType) -> PrimitiveType:
    """Return the float type with the larger range, on a tie the larger mantissa, else `a`."""
    def rank(t: PrimitiveType) -> tuple[int, int]:
        return math.frexp(float(_finfo(t).max))[1], mantissa_bits(t)

    return a if a is b or rank(a) >= rank(b) else b


def same_type_ignoring_precision(a: PrimitiveType, b: PrimitiveType) -> bool:
    """Compare types as XLA's SameElementTypeIgnoringFpPrecision does.

    Types match if they are equal or both floating.
    """
    return a is b or (a.is_floating and b.is_floating)


def preserves_values(source: PrimitiveType, target: PrimitiveType) -> bool:
    """Return whether `target` holds every value of `source` (XLA's CastPreservesValues)."""
    if source is target:
        return True
    if target.is_complex:
        return preserves_values(complex_part(source), complex_part(target))
    if source.is_complex or target.is_pred or (source.is_floating and not target.is_floating):
        return False
    if source.is_floating:
        wide, narrow = _finfo(target), _finfo(source)
        return mantissa_bits(source) <= mantissa_bits(target) and narrow.maxexp <= wide.maxexp and bool(
            narrow.smallest_subnormal >= wide.smallest_subnormal) and has_infinity(source) <= has_infinity(target)
    digits = 1 if source.is_pred else source.bits - source.is_signed
    if target.is_integral:
        return digits <= target.bits - target.is_signed and source.is_signed <= target.is_signed
    largest = 2**digits - (not source.is_signed)
    return has_zero(target) and digits <= mantissa_bits(target) + 1 and largest <= float(_finfo(target).max)


def _finfo(t: PrimitiveType) -> Any:
    return ml_dtypes.finfo(t.numpy)  # pyright: ignore[reportArgumentType]


def exponent_bits(t: PrimitiveType) -> int:
    """Return the width of the exponent field of a floating type."""
    return {F16: 5, BF16: 8, F32: 8, F64: 11}.get(t) or int(t.name[3])


def mantissa_bits(t: PrimitiveType) -> int:
    """Return the number of explicit mantissa bits of a floating type."""
    known = {F16: 10, BF16: 7, F32: 23, F64: 52}.get(t)
    return known if known is not None else int(t.name[5])
