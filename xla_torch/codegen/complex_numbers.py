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
    "@ tan_@(@ x) { return known_@(__builtin_isfinite(RE x) | !__builtin_isfinite(IM x), LIB(ctan)(x)); }",
    "@ sinh_@(@ x) { return known_@(__builtin_isfinite(IM x), LIB(csinh)(x)); }",
    "@ cosh_@(@ x) { return known_@(__builtin_isfinite(IM x), LIB(ccosh)(x)); }",
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
    "abs_by_parts": """f32 abs_by_parts(c64 x) {
    f64 a = __real__ x, b = __imag__ x, s = a * a + b * b, r = s * inverse_root_wide(s);
    return (f32)(s < __builtin_inf() ? r : s);
}""",
    # 0 where the size is infinite in single precision.
    "sign_by_parts": """c64 sign_by_parts(c64 x) {
    f64 a = __real__ x, b = __imag__ x, s = a * a + b * b, r = inverse_root_wide(s);
    r = s < 0x1.fffffe0000008p255 ? r : 0;
    return known_c64(x == x, __builtin_complex((f32)(a * r), (f32)(b * r)));
}""",
    # e^a cos b - 1 is (e^a - 1) cos b - 2 sin^2 (b / 2), where a negative zero is one that was rounded.
    "expm1_by_parts": """c64 expm1_by_parts(c64 x) {
    f64 a = __real__ x, b = __imag__ x, half = sine_wide(0.5 * b, -0.0);
    f32 real = (f32)(exp_wide(a, 1) * sine_wide(b, 0.5) - 2 * half * half), alone = expm1_f32(__real__ x);
    real += a == 0 ? (f32)a : 0;
    return __builtin_complex(b == 0 ? alone : real, b == 0 ? (f32)b : (f32)(exp_wide(a, 0) * sine_wide(b, -0.0)));
}""",
    # Half the logarithm of |1 + x|^2, of which what is lost beside 1 is in the sums of its terms.
    "log1p_by_parts": """c64 log1p_by_parts(c64 x) {
    f64 a = __real__ x, b = __imag__ x, w = 1 + a, p = a * a, q = b * b, s = w * w + q, twice = 2 * a;
    f64 t = twice + p, h = t - twice, u = t + q, g = u - t, rest = (twice - (t - h)) + (p - h) + ((t - (u - g)) + (q - g));
    f32 real = (f32)(0.5 * log_wide(s, (u - (s - 1)) + rest));
    real = s == 0 ? -__builtin_inff() : s == __builtin_inf() ? __builtin_inff() : real;
    pred far = __builtin_fabs(a) > 0x1p200 && __builtin_fabs(b) > 0x1p200;
    f64 imag = angle_wide(far ? __builtin_copysign(1, b) : b, far ? __builtin_copysign(1, a) : w);
    return known_c64(x == x, __builtin_complex(real, (f32)imag));
}""",
    # x^y = e^(y log x), where all is finite: an angle that is not has no sine, and powers of infinity have none but real ones. A
    # large angle is rounded as the sine needs it.
    "power_by_parts": """c64 power_by_parts(c64 x, c64 y) {
    f64 a = __real__ x, b = __imag__ x, c = __real__ y, d = __imag__ y, p = a * a, q = b * b, s = p + q;
    f64 lost = __builtin_fabs(a) < __builtin_fabs(b) ? (q - s) + p : (p - s) + q, size = 0.5 * log_wide(s, lost);
    f64 angle = angle_wide(b, a), e = exp_wide(c * size - d * angle, 0), turn = c * angle + d * size;
    f32 rounded = (f32)turn;
    turn = __builtin_fabs(turn) < 0x1p30 ? turn : rounded;
    f32 real = (f32)(e * sine_wide(turn, 0.5)), imag = turn == 0 ? (f32)turn : (f32)(e * sine_wide(turn, -0.0));
    pred one = (a == 1 & b == 0) | (c == 0 & d == 0), of_zero = s == 0, alone = b == 0 & d == 0 & a == __builtin_inf() & c == c;
    pred known = one | alone | (of_zero ? d == 0 & c > 0 : __builtin_isfinite(s) & __builtin_isfinite(rounded));
    real = one ? 1 : alone & c > 0 ? __builtin_inff() : alone | of_zero ? 0 : real;
    return known_c64(known, __builtin_complex(real, one | alone | of_zero ? 0 : imag));
}""",
    # With t the root of (|a| + |x|) / 2 the parts are t and b / 2t, or the other way round: sums of what has one sign.
    "root_by_parts": """c64 root_by_parts(c64 x) {
    f64 a = __real__ x, b = __imag__ x, w = __builtin_fabs(a), t = __builtin_sqrt(0.5 * (w + __builtin_sqrt(a * a + b * b)));
    pred far = __builtin_fabs(b) == __builtin_inf(), left = a < 0;
    t = w == __builtin_inf() ? w : t;
    f64 other = t == 0 ? b : b / (2 * t), size = __builtin_fabs(other), turned = __builtin_copysign(t, b);
    f64 real = left ? size : t, imag = left ? turned : other;
    return __builtin_complex(far ? __builtin_inff() : (f32)real, far ? (f32)b : (f32)imag);
}""",
    "sqrt_by_parts": "c64 sqrt_by_parts(c64 x) { return known_c64(x == x, root_by_parts(x)); }",
    "rsqrt_by_parts": "c64 rsqrt_by_parts(c64 x) { return divide_c64(1, root_by_parts(x)); }",
    # Hyperbolic functions that are finite also where they are not, so that 0 times them is 0.
    "sinh_wide": """f64 sinh_wide(f64 x) {
    f64 e = exp_wide(__builtin_fabs(x), 1);
    return __builtin_copysign(0.5 * (e + e / (e + 1)), x);
}""",
    "cosh_wide": "f64 cosh_wide(f64 x) { f64 e = exp_wide(__builtin_fabs(x), 0); return 0.5 * (e + 1 / e); }",
    # Of a real number that is NaN the imaginary part is still 0.
    "sinh_by_parts": """c64 sinh_by_parts(c64 x) {
    f64 a = __real__ x, b = __imag__ x, imag = cosh_wide(a) * sine_wide(b, -0.0);
    f32 real = (f32)(sinh_wide(a) * sine_wide(b, 0.5));
    return known_c64(__builtin_isfinite(b), __builtin_complex(real, b == 0 ? (f32)b : (f32)imag));
}""",
    "cosh_by_parts": """c64 cosh_by_parts(c64 x) {
    f64 a = __real__ x, b = __imag__ x, imag = sinh_wide(a) * sine_wide(b, -0.0);
    f32 real = (f32)(cosh_wide(a) * sine_wide(b, 0.5));
    return known_c64(__builtin_isfinite(b), __builtin_complex(real, b == 0 & a != a ? (f32)b : (f32)imag));
}""",
    "sine_by_parts": """c64 sine_by_parts(c64 x) {
    f64 a = __real__ x, b = __imag__ x, real = sine_wide(a, -0.0) * cosh_wide(b);
    f32 imag = (f32)(sine_wide(a, 0.5) * sinh_wide(b));
    pred unknown = a == 0 & !__builtin_isfinite(b);
    return known_c64(__builtin_isfinite(a), __builtin_complex(unknown ? __builtin_nanf("") : (f32)real, imag));
}""",
    "cosine_by_parts": """c64 cosine_by_parts(c64 x) {
    f64 a = __real__ x, b = __imag__ x, imag = -sine_wide(a, -0.0) * sinh_wide(b);
    f32 real = (f32)(sine_wide(a, 0.5) * cosh_wide(b));
    pred unknown = a == 0 & !__builtin_isfinite(b);
    return known_c64(__builtin_isfinite(a), __builtin_complex(real, unknown ? __builtin_nanf("") : (f32)imag));
}""",
    # (sinh a cosh a + i sin b cos b) / (sinh^2 a + cos^2 b), where nothing cancels. Beyond 60 the parts are 1 and 0.
    "tanh_by_parts": """c64 tanh_by_parts(c64 x) {
    f64 a = __real__ x, b = __imag__ x, w = __builtin_fabs(a) > 60 ? __builtin_copysign(60, a) : a;
    f64 s = sinh_wide(w), c = sine_wide(b, 0.5), by = s * s + c * c, imag = sine_wide(b, -0.0) * c / by;
    f32 real = (f32)(s * cosh_wide(w) / by), zero = __builtin_copysignf(0, __imag__ x);
    pred far = __builtin_fabs(a) == __builtin_inf(), bound = far & !__builtin_isfinite(b);
    real = far ? __builtin_copysignf(1, __real__ x) : real;
    return __builtin_complex(real, bound | b == 0 ? zero : (f32)imag);
}""",
    "tan_by_parts": """c64 tan_by_parts(c64 x) {
    c64 r = tanh_by_parts(__builtin_complex(-__imag__ x, __real__ x));
    return __builtin_complex(__imag__ r, -__real__ r);
}""",
}
"""Each function behind those that it calls."""
