"""Functions of complex numbers in native code, written over real and imaginary parts.

C's own operators of products and quotients call functions that make infinities of NaN, and XLA's do not; and a compiler makes no
vectors of a choice between two complex numbers. Beside zeros, infinities and NaN all give what `kernels/elementwise.py` gives,
which says what XLA's rules are. Specification: hlo/SPEC.md, Elementwise ops.
"""

from __future__ import annotations

import re

_TEMPLATES = (
    "@ select_@(pred p, @ x, @ y) { return OF(p ? RE x : RE y, p ? IM x : IM y); }",
    # NaN for NaN changes nothing, but for GCC 12: of a difference and a sum of products side by side it makes fused ones, also
    # where nothing may be contracted.
    """@ multiply_@(@ x, @ y) {
    PART real = RE x * RE y - IM x * IM y;
    return OF(real == real ? real : LIB(nan)(""), RE x * IM y + IM x * RE y);
}""",
    # 1 for an infinite part and 0 for others, with the part's sign.
    "PART unit_@(PART a) { return LIB(copysign)(__builtin_isinf(a) ? 1 : 0, a); }",
    # Parts of the divisor are divided by the larger one, so that no square overflows.
    """@ divide_@(@ x, @ y) {
    PART a = RE x, b = IM x, c = RE y, d = IM y;
    pred turned = !(LIB(fabs)(c) >= LIB(fabs)(d));
    PART large = turned ? d : c, ratio = (turned ? c : d) / large, by = large + (turned ? c : d) * ratio;
    PART real = ((turned ? b : a) + (turned ? a : b) * ratio) / by, imag = (turned ? b * ratio - a : b - a * ratio) / by;
    PART over = a * c + b * d, over_i = b * c - a * d, zero = LIB(copysign)(LIB(inf)(), c);
    PART ua = unit_@(a), ub = unit_@(b), uc = unit_@(c), ud = unit_@(d);
    pred is_unknown = over != over & over_i != over_i;
    over = is_unknown ? LIB(inf)() * (ua * c + ub * d) : over;
    over_i = is_unknown ? LIB(inf)() * (ub * c - ua * d) : over_i;
    pred overflows = (ua != 0 | ub != 0) & __builtin_isfinite(c) & __builtin_isfinite(d);
    pred vanishes = (uc != 0 | ud != 0) & __builtin_isfinite(a) & __builtin_isfinite(b);
    pred by_zero = c == 0 & d == 0 & !(a != a & b != b);
    real = by_zero ? zero * a : overflows ? over : vanishes ? 0 * (a * uc + b * ud) : real;
    imag = by_zero ? zero * b : overflows ? over_i : vanishes ? 0 * (b * uc - a * ud) : imag;
    return OF(real, imag);
}""",
    """@ sign_@(@ x) {
    PART size = abs_@(x), by = size == 0 ? 1 : size;
    return OF(RE x / by, IM x / by);
}""",
    "@ known_@(pred p, @ x) { return OF(p ? RE x : LIB(nan)(\"\"), p ? IM x : LIB(nan)(\"\")); }",
    "@ exponential_@(@ x) { return known_@(__builtin_isfinite(IM x), LIB(cexp)(x)); }",
    "@ log_@(@ x) { return known_@(x == x, LIB(clog)(x)); }",
    "@ sqrt_@(@ x) { return known_@(x == x, LIB(csqrt)(x)); }",
    "@ rsqrt_@(@ x) { return divide_@(1, LIB(csqrt)(x)); }",
    "@ tanh_@(@ x) { return known_@(!__builtin_isfinite(RE x) | __builtin_isfinite(IM x), LIB(ctanh)(x)); }",
    """@ sine_@(@ x) {
    @ r = LIB(csin)(x);
    PART real = RE x == 0 & !__builtin_isfinite(IM x) ? LIB(nan)("") : RE r;
    return known_@(__builtin_isfinite(RE x), OF(real, IM r));
}""",
    """@ cosine_@(@ x) {
    @ r = LIB(ccos)(x);
    PART imag = RE x == 0 & !__builtin_isfinite(IM x) ? LIB(nan)("") : IM r;
    return known_@(__builtin_isfinite(RE x), OF(RE r, imag));
}""",
)
"""``@`` is the type, PART that of its parts, RE and IM are these, OF makes a number of two, and LIB(f) is C's f for a part."""


def _of(template: str, name: str, part: str, ending: str) -> str:
    for word, code in {"@": name, "PART": part, "OF(": "__builtin_complex(", "RE ": "__real__ ", "IM ": "__imag__ "}.items():
        template = template.replace(word, code)
    return re.sub(r"LIB\((\w+)\)", rf"__builtin_\1{ending}", template)


COMPLEX = {
    # In double precision no square of a single overflows.
    "abs_c64": "f32 abs_c64(c64 x) { f64 a = __real__ x, b = __imag__ x; return (f32)__builtin_sqrt(a * a + b * b); }",
    "abs_c128": "f64 abs_c128(c128 x) { return x == x ? __builtin_hypot(__real__ x, __imag__ x) : __builtin_nan(\"\"); }",
    **{code.partition("(")[0].split()[-1]: code for types in (("c64", "f32", "f"), ("c128", "f64", ""))
       for code in (_of(template, *types) for template in _TEMPLATES)},
    # With a fused multiply-add (`transcendental.py`), compilers make vector code of these. `exp_wide` is finite also where the
    # result is not, so that 0 times it is 0.
    "exp_c64": """c64 exp_c64(c64 x) {
    f64 b = __imag__ x, e = exp_wide(__real__ x, 0);
    return __builtin_complex((f32)(e * sine_wide(b, 0.5)), b == 0 ? (f32)b : (f32)(e * sine_wide(b, -0.0)));
}""",
    # Squares are exact in double precision, and what their sum loses counts where it is near 1.
    "log_c64": """c64 log_c64(c64 x) {
    f64 a = __real__ x, b = __imag__ x, p = a * a, q = b * b, s = p + q;
    f64 lost = __builtin_fabs(a) < __builtin_fabs(b) ? (q - s) + p : (p - s) + q;
    f32 real = s == 0 ? -__builtin_inff() : s == __builtin_inf() ? __builtin_inff() : (f32)(0.5 * log_wide(s, lost));
    return known_c64(x == x, __builtin_complex(real, atan2_f32(__imag__ x, __real__ x)));
}""",
}
"""Each function behind those that it calls."""
