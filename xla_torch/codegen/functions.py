"""Scalar functions of native code: XLA's meaning where C has another or none.

A template stands for a function of each element type: ``@`` is the type, ``BITS`` its width, ``LOW`` and ``HIGH`` its limits.
Sums, products and shifts wrap around, because the compiler is told so (`compiled.py`). Specification: hlo/SPEC.md, Elementwise
ops.
"""

from __future__ import annotations

import re

import numpy as np

from ..core.types import PrimitiveType
from .butterflies import FOURIER_TEMPLATES
from .complex_numbers import COMPLEX
from .matrices import MATRIX_TEMPLATES
from .transcendental import TRANSCENDENTAL

TEMPLATES = (
    # Both are read, whichever is chosen: what gcc 12 makes of reads under a condition in two nested loops of constant length with
    # masks for AVX2 has the first lanes' mask for all lanes (wrong numbers, -O3).
    "@ select_@(pred p, @ a, @ b) { return p ? a : b; }",
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
    "@ count_leading_zeros_@(@ x) { return x == 0 ? BITS : __builtin_clzll((u64)(uBITS)x) - (64 - BITS); }",
    "@ high_product_signed_@(@ a, @ b) { return (__int128)a * b >> BITS; }",
    "@ high_product_unsigned_@(@ a, @ b) { return (unsigned __int128)a * b >> BITS; }",
    # Bits, and the value that has them.
    "uBITS bits_of_@(@ x) { uBITS b; __builtin_memcpy(&b, &x, sizeof b); return b; }",
    "@ of_bits_@(uBITS b) { @ x; __builtin_memcpy(&x, &b, sizeof x); return x; }",
    # The nearest number with so many bits of exponent and mantissa, to even; what is too large is infinite, what is below the
    # least normal number 0.
    """@ reduce_precision_@(@ x, int exponent, int mantissa) {
    const int own = BITS == 32 ? 23 : 52, wide = BITS - 1 - own, spare = mantissa < own ? own - mantissa : 1;
    const uBITS one = 1, sign = one << (BITS - 1), infinity = ((one << wide) - 1) << own;
    uBITS b = bits_of_@(x), near = (b + (b >> spare & 1) + (one << (spare - 1)) - 1) & -(one << spare);
    uBITS r = mantissa < own ? near : b, e = (r & ~sign) >> own;
    uBITS bias = (one << (wide - 1)) - 1, reach = (one << (exponent - 1)) - 1;
    uBITS within = e > bias + reach ? (r & sign) | infinity : e <= bias - reach ? r & sign : r;
    return x != x ? x : of_bits_@(exponent < wide ? within : r);
}""",
    # A start index, moved into the range from 0 to `last`.
    "@ clamped_@(@ start, @ last) { return start < 0 ? 0 : start < last ? start : last; }",
)


_VECTOR_BITS = 256
"""The vectors of torch's sums, whatever the processor has."""

VECTOR_FUNCTIONS = {
    # Integers in the total order of floating numbers: -NaN, -inf, ..., -0, 0, ..., inf, NaN. And the numbers of these integers.
    "order_f32": "s32 order_f32(f32 x) { s32 b; __builtin_memcpy(&b, &x, 4); return b ^ (b >> 31 & 0x7fffffff); }",
    "order_f64": "s64 order_f64(f64 x) { s64 b; __builtin_memcpy(&b, &x, 8); return b ^ (b >> 63 & 0x7fffffffffffffffLL); }",
    "of_order_f32": "f32 of_order_f32(s32 b) { f32 x; b ^= b >> 31 & 0x7fffffff; __builtin_memcpy(&x, &b, 4); return x; }",
    "of_order_f64": """f64 of_order_f64(s64 b) {
    f64 x; b ^= b >> 63 & 0x7fffffffffffffffLL; __builtin_memcpy(&x, &b, 8);
    return x;
}""",
    # Numbers of 16 bits: their values in single precision, what stands for such a value in memory, and the value next to a
    # number, to nearest even. A NaN keeps the bits that fit.
    "load_bf16": "f32 load_bf16(u16 h) { u32 b = (u32)h << 16; f32 x; __builtin_memcpy(&x, &b, 4); return x; }",
    "store_bf16": "u16 store_bf16(f32 x) { u32 b; __builtin_memcpy(&b, &x, 4); return (u16)(b >> 16); }",
    "round_bf16": """f32 round_bf16(f32 x) {
    u32 b; __builtin_memcpy(&b, &x, 4);
    u32 near = b + 0x7fff + (b >> 16 & 1), r = (b & 0x7fffffff) > 0x7f800000 ? b | 0x400000 : near;
    r &= 0xffff0000; __builtin_memcpy(&x, &r, 4);
    return x;
}""",
    "load_f16": """f32 load_f16(u16 h) {
    u32 m = h & 0x7fff, sign = (u32)(h & 0x8000) << 16, small;
    f32 x = (f32)(s32)m * 0x1p-24f; __builtin_memcpy(&small, &x, 4);
    u32 b = m < 0x400 ? small : (m << 13) + (m < 0x7c00 ? 112 << 23 : 224 << 23);
    b |= sign; __builtin_memcpy(&x, &b, 4);
    return x;
}""",
    "store_f16": """u16 store_f16(f32 x) {
    u32 b; __builtin_memcpy(&b, &x, 4);
    u32 m = b & 0x7fffffff, below = m < 0x38800000 ? m : 0;
    __builtin_memcpy(&x, &below, 4);
    u32 small = (u32)(s32)(x * 0x1p24f), h = (m >> 13) - (m < 0x7f800000 ? 112 << 10 : 224 << 10);
    return (u16)((m < 0x38800000 ? small : h) | (b >> 16 & 0x8000));
}""",
    # Beside 2^13 times its power of two, float32 has the places that a number keeps; of the least ones, those of 2^-14.
    "round_f16": """f32 round_f16(f32 x) {
    u32 b; __builtin_memcpy(&b, &x, 4);
    u32 m = b & 0x7fffffff, e = b & 0x7f800000;
    e = e < 0x38800000 ? 0x38800000 : e; e = (e > 0x47800000 ? 0x47800000 : e) + (13 << 23);
    f32 a, large; __builtin_memcpy(&a, &m, 4); __builtin_memcpy(&large, &e, 4);
    a = (a + large) - large; a = a >= 0x1p16f ? __builtin_inff() : a;
    __builtin_memcpy(&m, &a, 4); m |= b & 0x80000000; __builtin_memcpy(&x, &m, 4);
    return x;
}""",
    # A number that rounds to float16 as x does: where x is no float32, its neighbour there with an odd last bit.
    "once_f16": """f32 once_f16(f64 x) {
    f32 s = (f32)x; u32 b; __builtin_memcpy(&b, &s, 4);
    f64 error = x - (f64)s;
    b += error - error == 0 && error != 0 && !(b & 1) ? ((error > 0) == (x > 0) ? 1 : -1) : 0;
    __builtin_memcpy(&s, &b, 4);
    return s;
}""",
    **TRANSCENDENTAL,
    **COMPLEX,
    # c = a b + c_times c, row by row: m x k by k x n. A matrix that lies the other way round in memory is `turned`. The routine
    # is BLAS's, which counts columns first, so that it is asked for the transpose; where it is given what sets how many threads
    # MKL has, it computes on one.
    **{f"product_{t}": f"""void product_{t}(void *gemm, void *threads, int a_turned, int b_turned, int m, int n, int k,
                 const {t} *a, const {t} *b, {t} c_times, {t} *c) {{
    const {t} one = 1;
    int across_a = a_turned ? m : k, across_b = b_turned ? k : n, before = threads ? ((int (*)(int))threads)(1) : 0;
    ((void (*)(const char *, const char *, const int *, const int *, const int *, const {t} *, const {t} *, const int *,
               const {t} *, const int *, const {t} *, {t} *, const int *))gemm)(
        b_turned ? "T" : "N", a_turned ? "T" : "N", &n, &m, &k, &one, b, &across_b, a, &across_a, &c_times, c, &n);
    if (threads) ((int (*)(int))threads)(before);
}}""" for t in ("f32", "f64", "c64", "c128")},
}
"""Functions of one type that a compiler makes vector code of, each behind those that it calls."""


# What a row sums up to in torch's own order: four vectors of partial sums at a time, each in four levels, so that errors grow
# with the logarithm. LANES is how many elements a vector has there.
ROW_TEMPLATES = (
    """@ row_sum_@(const @ *x, s64 n) {
    typedef @ vector __attribute__((vector_size(LANES * sizeof(@)), aligned(sizeof(@)), may_alias));
    s64 vectors = n / LANES, rows = vectors / 4, power = 0, i = 0;
    while (((s64)1 << power) < rows) power++;
    power = power / 4 > 4 ? power / 4 : 4;
    s64 step = (s64)1 << power;
    const vector *v = (const vector *)x, none = {0};
    vector a = none, b = none, c = none, d = none, above[3][4] = {{none}};
    @ total = 0;
    while (i + step <= rows) {
        for (s64 j = 0; j < step; j++, i++) { a += v[4 * i]; b += v[4 * i + 1]; c += v[4 * i + 2]; d += v[4 * i + 3]; }
        above[0][0] += a; above[0][1] += b; above[0][2] += c; above[0][3] += d;
        a = b = c = d = none;
        for (int j = 1; j < 3 && !(i & ((step - 1) << (j * power))); j++)
            for (int k = 0; k < 4; k++) { above[j][k] += above[j - 1][k]; above[j - 1][k] = none; }
    }
    for (; i < rows; i++) { a += v[4 * i]; b += v[4 * i + 1]; c += v[4 * i + 2]; d += v[4 * i + 3]; }
    for (int j = 0; j < 3; j++) { a += above[j][0]; b += above[j][1]; c += above[j][2]; d += above[j][3]; }
    for (i = rows * 4; i < vectors; i++) a += v[i];
    a += b; a += c; a += d;
    for (i = vectors * LANES; i < n; i++) total += x[i];
    for (int k = 0; k < LANES; k++) total += a[k];
    return total + 0;
}""",
    *("""@ row_NAME_@(const @ *x, s64 n) {
    @ best = x[0];
#pragma omp declare reduction(NAME: @: omp_out = omp_out REL omp_in || omp_out != omp_out ? omp_out : omp_in) \\
    initializer(omp_priv = WORST)
#pragma omp simd reduction(NAME: best) simdlen(4 * LANES)
    for (s64 i = 0; i < n; i++) best = best REL x[i] || best != best ? best : x[i];
    return best;
}""".replace("NAME", name).replace("REL", relation).replace("WORST", worst)
      for name, relation, worst in (("amax", ">", "-__builtin_inf()"), ("amin", "<", "__builtin_inf()"))),
)


_NAMED = [(template.partition("(")[0].split()[-1], template)
          for template in reversed((*TEMPLATES, *ROW_TEMPLATES, *MATRIX_TEMPLATES, *FOURIER_TEMPLATES))]
"""Each function with its name, the last one first."""

INLINE = "static inline __attribute__((always_inline)) "
"""What functions of one element begin with: loops with a call in them are no vector code, and GCC leaves larger ones calls."""

_OF_ELEMENTS = frozenset({*TEMPLATES, *ROW_TEMPLATES})

_CALL = re.compile(r"\b\w++(?=\()")


def used_in(text: str, types: dict[PrimitiveType, str]) -> list[str]:
    """The functions that a text calls."""
    found, calls = list[str](), set(_CALL.findall(text))
    for element_type, name in types.items():
        if element_type.is_complex:  # of these no template is true
            continue
        for called, template in _NAMED:
            if called.replace("@", name) in calls:
                code = _limited(template, element_type).replace("BITS", str(element_type.bits))
                code = code.replace("LANES", str(_VECTOR_BITS // element_type.bits))
                kind = INLINE if template in _OF_ELEMENTS else "static "
                found.insert(0, kind + code.replace("@", name))
                calls.update(_CALL.findall(found[0]))
    return _vector_functions(text) + found


def _vector_functions(text: str) -> list[str]:
    found, calls = list[str](), set(_CALL.findall(text))
    for name, code in reversed(VECTOR_FUNCTIONS.items()):
        if name in calls:
            found.insert(0, INLINE + code)
            calls.update(_CALL.findall(code))
    return found


def _limited(template: str, element_type: PrimitiveType) -> str:
    if not element_type.is_integral:
        return template
    limits = np.iinfo(element_type.numpy)  # pyright: ignore[reportArgumentType, reportCallIssue]
    return template.replace("LOW", integer(int(limits.min))).replace("HIGH", integer(int(limits.max)))


def integer(value: int) -> str:
    """A constant; C has no negative ones, and none of the least number's size."""
    return f"{value}ULL" if value >= 0 else f"(-{-1 - value}LL - 1)"
