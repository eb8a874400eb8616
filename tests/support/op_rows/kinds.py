"""Groups of element types, by the names that rows use."""

from support.agreement import ALL, COMPLEX, FLOATS, INTS, NARROW_FLOATS, NARROW_INTS, SIGNED, UNSIGNED

INTEGERS: tuple[str, ...] = (*NARROW_INTS, *INTS)
SIGNED_INTEGERS: tuple[str, ...] = ("s2", "s4", *SIGNED)
UNSIGNED_INTEGERS: tuple[str, ...] = ("u2", "u4", *UNSIGNED)
REALS: tuple[str, ...] = (*NARROW_FLOATS, *FLOATS)
NUMBERS: tuple[str, ...] = (*INTEGERS, *REALS)
EVERYTHING: tuple[str, ...] = (*ALL, "f8e8m0fnu")
__all__ = [
    "ALL", "COMPLEX", "EVERYTHING", "FLOATS", "INTEGERS", "INTS", "NARROW_FLOATS", "NARROW_INTS", "NUMBERS", "REALS", "SIGNED",
    "SIGNED_INTEGERS", "UNSIGNED", "UNSIGNED_INTEGERS",
]
