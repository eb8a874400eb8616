"""Scalar functions of native code: XLA's meaning where C has another or none.

A template stands for a function of each element type: ``@`` is the type, ``BITS`` its width, ``LOW`` and ``HIGH`` its limits.
Sums, products and shifts wrap around, because the compiler is told so (`compiled.py`). Specification: hlo/SPEC.md, Elementwise
ops.
"""

from __future__ import annotations

import numpy as np

from ..types import PrimitiveType

TEMPLATES = (
    "@ maximum_@(@ a, @ b) { return a > b || a != a ? a : b; }",
    "@ minimum_@(@ a, @ b) { return a < b || a != a ? a : b; }",
    "@ abs_@(@ x) { return x < 0 ? -x : x; }",
    "@ sign_@(@ x) { return x > 0 ? 1 : x < 0 ? -1 : x; }",
    # x / 0 is -1 and MIN / -1 is MIN; x % 0 is x and x % -1 is 0; without a sign x / 0 has all bits set.
    "@ divide_signed_@(@ a, @ b) { return b == 0 ? -1 : b == -1 ? -a : a / b; }",
    "@ remainder_signed_@(@ a, @ b) { return b == 0 ? a : b == -1 ? 0 : a % b; }",
    "@ divide_unsigned_@(@ a, @ b) { return b == 0 ? HIGH : a / b; }",
    "@ remainder_unsigned_@(@ a, @ b) { return b == 0 ? a : a % b; }",
    # Where all bits are shifted out 0 is left, or the sign.
    "@ shift_left_@(@ a, @ b) { return 0 <= b && b < BITS ? a << b : 0; }",
    "@ shift_right_arithmetic_@(@ a, @ b) { return a >> (0 <= b && b < BITS ? b : BITS - 1); }",
    "@ shift_right_logical_@(@ a, @ b) { return b < BITS ? a >> b : 0; }",
    # Toward zero, as near as the type goes; NaN is 0.
    "@ truncated_@(f64 x) { return x != x ? 0 : x <= (f64)LOW ? LOW : x >= (f64)HIGH ? HIGH : (@)x; }",
    # A start index, moved into the range from 0 to `last`.
    "@ clamped_@(@ start, @ last) { return start < 0 ? 0 : start < last ? start : last; }",
)


def used_in(text: str, types: dict[PrimitiveType, str]) -> list[str]:
    """The functions that a text calls."""
    found = []
    for element_type, name in types.items():
        for template in TEMPLATES:
            called = template.partition("(")[0].split()[-1].replace("@", name)
            if f"{called}(" in text:
                code = _limited(template, element_type).replace("BITS", str(element_type.bits))
                found.append("static inline " + code.replace("@", name))
    return found


def _limited(template: str, element_type: PrimitiveType) -> str:
    if not element_type.is_integral:
        return template
    limits = np.iinfo(element_type.numpy)  # pyright: ignore[reportArgumentType, reportCallIssue]
    return template.replace("LOW", integer(int(limits.min))).replace("HIGH", integer(int(limits.max)))


def integer(value: int) -> str:
    """A constant; C has no negative ones, and none of the least number's size."""
    return f"{value}ULL" if value >= 0 else f"(-{-1 - value}LL - 1)"
