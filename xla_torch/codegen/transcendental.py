"""Transcendental functions of float32 that a compiler makes vector code of, for processors with a fused multiply-add.

C's library has one call for each element. All but exp, tanh and logistic compute in double precision, where an error of 2^-35 is
none after rounding, and no sum has to be kept in two parts: what has to be exact is what cancels. Polynomials are best ones,
whose coefficients Remez's algorithm gave. Infinities, NaN, zeros and denormal numbers give what C's library gives.

Nothing branches. No limit is a constant in a select whose value is computed with: GCC 12 would compute what follows for the
constant apart and select each of its results (`exp_wide` took twice as long). A limit with the argument's sign is none.
"""

from __future__ import annotations

TRANSCENDENTAL = {
    # 2^k, for k in the range of normal numbers.
    "power_of_two_f32": "f32 power_of_two_f32(s32 k) { s32 b = (k + 127) << 23; f32 r; __builtin_memcpy(&r, &b, 4); return r; }",
    # e^x = 2^k e^r with |r| <= ln(2) / 2, where 1 + r and r are kept with what rounding took from them. A product that is a
    # denormal number takes Intel's processors 150 cycles: so one below 2^-126 is computed 2^126 times as large, and added to 1,
    # whose last bits are those of denormal numbers.
    "exp_f32": """f32 exp_f32(f32 x) {
    f32 c = __builtin_fabsf(x) > 104 ? __builtin_copysignf(104, x) : x, k = __builtin_rintf(c * 0x1.715476p+0f);
    f32 g = __builtin_fmaf(k, -0x1.62e4p-1f, c), r = __builtin_fmaf(k, -0x1.7f7d1cp-20f, g);
    f32 p = __builtin_fmaf(0x1.a0583ep-13f, r, 0x1.6d2d52p-10f);
    p = __builtin_fmaf(p, r, 0x1.11111cp-7f); p = __builtin_fmaf(p, r, 0x1.5554eep-5f);
    p = __builtin_fmaf(p, r, 0x1.555556p-3f); p = __builtin_fmaf(p, r, 0.5f);
    f32 h = 1.0f + r, l = ((1.0f - h) + r) + __builtin_fmaf(k, -0x1.7f7d1cp-20f, g - r);
    s32 q = (s32)k, n = k < -126 ? q + 126 : q, half = n >> 1, bits;
    f32 e = (h + __builtin_fmaf(r * r, p, l)) * power_of_two_f32(half) * power_of_two_f32(n - half), beside_1 = 1 + e, small;
    __builtin_memcpy(&bits, &beside_1, 4); bits -= 0x3f800000; __builtin_memcpy(&small, &bits, 4);
    return k < -126 ? small : e;
}""",
    "logistic_f32": "f32 logistic_f32(f32 x) { return 1.0f / (1.0f + exp_f32(0.0f - x)); }",
    # e^x - less = 2^k (e^r - 1) + (2^k - less), for a number `less` that is 0 or 1. Beyond 700 it is as there: more than float32
    # has, or less.
    "exp_wide": """f64 exp_wide(f64 x, f64 less) {
    f64 c = __builtin_fabs(x) > 700 ? __builtin_copysign(700, x) : x, b = c * 0x1.71547652b82fep+0 + 0x1.8p52;
    f64 r = __builtin_fma(b - 0x1.8p52, -0x1.62e42fefa39efp-1, c), t; s64 e;
    f64 p = __builtin_fma(0x1.a019f1c788b6fp-16, r, 0x1.a17d6269097d1p-13);
    p = __builtin_fma(p, r, 0x1.6c175b22eb231p-10); p = __builtin_fma(p, r, 0x1.1110a68c7be5fp-7);
    p = __builtin_fma(p, r, 0x1.555554f2f937cp-5); p = __builtin_fma(p, r, 0x1.5555557e23079p-3);
    p = __builtin_fma(p, r, 0x1.000000001a876p-1); p = __builtin_fma(p, r, 0x1.fffffffff641ep-1);
    __builtin_memcpy(&e, &b, 8); e = (e << 52) + 0x3ff0000000000000LL; __builtin_memcpy(&t, &e, 8);
    return __builtin_fma(t, p * r, t - less);
}""",
    "expm1_f32": "f32 expm1_f32(f32 x) { f32 r = (f32)exp_wide(x, 1); return x == 0 ? x : r; }",
    # (e^2x - 1) / (e^2x + 1) in single precision, in 0.7 of the time of double precision: e^2x - 1 is e + m, and e + 2 is
    # d + n. What the quotient of e and d leaves is divided as well.
    "tanh_f32": """f32 tanh_f32(f32 x) {
    f32 w = __builtin_fabsf(x) > 10 ? __builtin_copysignf(10, x) : x, c = 2 * __builtin_fabsf(w);
    f32 k = __builtin_rintf(c * 0x1.715476p+0f), t = power_of_two_f32((s32)k), b = t - 1;
    f32 g = __builtin_fmaf(k, -0x1.62e4p-1f, c), r = __builtin_fmaf(k, -0x1.7f7d1cp-20f, g);
    f32 p = __builtin_fmaf(0x1.a0583ep-13f, r, 0x1.6d2d52p-10f);
    p = __builtin_fmaf(p, r, 0x1.11111cp-7f); p = __builtin_fmaf(p, r, 0x1.5554eep-5f);
    p = __builtin_fmaf(p, r, 0x1.555556p-3f); p = __builtin_fmaf(p, r, 0.5f);
    f32 a = t * r, s = a + b, l = ((b - s) + a) + t * __builtin_fmaf(r * r, p, __builtin_fmaf(k, -0x1.7f7d1cp-20f, g - r));
    f32 e = s + l, m = (s - e) + l, d = 2 + e, n = e > 2 ? (e - d) + 2 : (2 - d) + e, by = 1 / d, q = e * by;
    return __builtin_copysignf(__builtin_fmaf(__builtin_fmaf(-q, d, e) + (m - q * (m + n)), by, q), x);
}""",
    "sinh_f32": """f32 sinh_f32(f32 x) {
    f64 e = exp_wide(__builtin_fabs((f64)x), 1);
    return (f32)__builtin_copysign(0.5 * (e + e / (e + 1)), x);
}""",
    "cosh_f32": "f32 cosh_f32(f32 x) { f64 e = exp_wide(__builtin_fabs((f64)x), 0); return (f32)(0.5 * (e + 1 / e)); }",
    # log(2^k m) = k log(2) + 2 artanh((m - 1) / (m + 1)), with m between the roots of 1/2 and 2. x is too small by `lost`, which
    # counts where it is near 1. Of 0 and infinity it is -709 and 709; NaN and negative numbers give some number.
    "log_wide": """f64 log_wide(f64 x, f64 lost) {
    f64 m, k; s64 b;
    __builtin_memcpy(&b, &x, 8);
    s64 e = (b - 0x3fe6a09e667f3bcdLL) >> 52, rest = b - (e << 52), biased = e + 0x4338000000000000LL;
    __builtin_memcpy(&m, &rest, 8); __builtin_memcpy(&k, &biased, 8); k -= 0x1.8p52;
    f64 s = (m - 1 + (k == 0 ? lost : -0.0)) / (m + 1), z = s * s;
    f64 p = __builtin_fma(0x1.9198dc35a4023p-3, z, 0x1.c6207f8dd5000p-3);
    p = __builtin_fma(p, z, 0x1.2494398741166p-2); p = __builtin_fma(p, z, 0x1.999996284a6d4p-2);
    p = __builtin_fma(p, z, 0x1.555555567303ep-1); p = __builtin_fma(p, z, 0x1.fffffffffff10p+0);
    return __builtin_fma(k, 0x1.62e42fefa39efp-1, s * p);
}""",
    # The logarithm of x, which is r where x has a finite one.
    "log_ends_f32": """f32 log_ends_f32(f32 x, f32 r) {
    r = x > 0 ? r : x == 0 ? -__builtin_inff() : __builtin_nanf("");
    return x < __builtin_inff() ? r : x;
}""",
    "log_f32": "f32 log_f32(f32 x) { return log_ends_f32(x, (f32)log_wide(x, -0.0)); }",
    "log1p_wide": "f64 log1p_wide(f64 x) { f64 u = 1 + x; return log_wide(u, x - (u - 1)); }",
    "log1p_f32": "f32 log1p_f32(f32 x) { f32 r = log_ends_f32(1 + x, (f32)log1p_wide(x)); return x == 0 || x != x ? x : r; }",
    "asinh_f32": """f32 asinh_f32(f32 x) {
    f64 a = __builtin_fabs((f64)x), r = log1p_wide(a + a * a / (1 + __builtin_sqrt(a * a + 1)));
    return __builtin_copysignf(log_ends_f32(1 + __builtin_fabsf(x), (f32)r), x);
}""",
    "acosh_f32": """f32 acosh_f32(f32 x) {
    f64 a = (f64)x - 1, r = log1p_wide(a + __builtin_sqrt(a * (a + 2)));
    return log_ends_f32(x < 1 ? -1 : x, (f32)r);
}""",
    "atanh_f32": """f32 atanh_f32(f32 x) {
    f64 a = __builtin_fabs((f64)x), less = 2 * a / (1 - a), r = 0.5 * log1p_wide(less);
    return __builtin_copysignf(log_ends_f32((f32)(1 + less), (f32)r), x);
}""",
    "cbrt_f32": """f32 cbrt_f32(f32 x) {
    f32 r = (f32)__builtin_copysign(exp_wide(log_wide(__builtin_fabs((f64)x), -0.0) * (1.0 / 3), 0), x);
    return x != x ? x : r;
}""",
    # |x|^y = e^(y log|x|), where the logarithms of 0 and infinity are taken for infinite ones, and an infinite y for a finite
    # one: of 1 it has no effect.
    "power_f32": """f32 power_f32(f32 x, f32 y) {
    f64 a = __builtin_fabs((f64)x), l = log_wide(a, -0.0), w = y;
    w = __builtin_fabs(w) > 0x1p200 ? __builtin_copysign(0x1p200, w) : w;
    f64 r = exp_wide(w * (__builtin_fabs(l) > 700 ? l * 0x1p200 : l), 0);
    f64 whole = __builtin_rint(w), even = 2 * __builtin_rint(0.5 * w);
    r = __builtin_copysign(1, (f64)x) < 0 && whole == w && even != w ? -r : r;
    r = (x < 0 && a < __builtin_inf() && whole != w) || x != x ? __builtin_nan("") : r;
    return x == 1 || y == 0 ? 1 : (f32)r;
}""",
    # sin(x + more pi) = (-1)^k sin(h pi), where k + h = x / pi + more and k is whole. 1 / pi is in parts whose products with x
    # are exact, the last one aside; from each product goes what is whole, so that h has lost nothing when it is small. Where x is
    # a multiple of 2^53, the bits of 1 / pi are left out that give even numbers.
    "sine_wide": """f64 sine_wide(f64 x, f64 more) {
    pred far = __builtin_fabs(x) >= 0x1p76;
    f64 a = far ? 0x1.529fc26p-53 : 0x1.45f306cp-2, b = far ? 0x1.57d1f52p-81 : 0x1.c9c882ap-30;
    f64 c = far ? 0x1.4ddc0dap-109 : 0x1.4fe13a8p-60, d = far ? 0x1.6295993c43904p-137 : 0x1.f47d4d377036ep-87;
    f64 even = (x * a + 0x1.8p82) - 0x1.8p82, h = __builtin_fma(x, a, -even) + more, k = h + 0x1.8p52;
    s64 i, j, l, sign;
    __builtin_memcpy(&i, &k, 8); h -= k - 0x1.8p52; k = __builtin_fma(x, b, h) + 0x1.8p52;
    __builtin_memcpy(&j, &k, 8); h += __builtin_fma(x, b, -(k - 0x1.8p52)); k = __builtin_fma(x, c, h) + 0x1.8p52;
    __builtin_memcpy(&l, &k, 8); h += __builtin_fma(x, c, -(k - 0x1.8p52)); h = __builtin_fma(x, d, h);
    f64 z = h * h, p = __builtin_fma(-0x1.cba62ecb6b34ap-8, z, 0x1.500ac8534a68bp-4);
    p = __builtin_fma(p, z, -0x1.32d0f05238879p-1); p = __builtin_fma(p, z, 0x1.466bbf10f6a3dp+1);
    p = __builtin_fma(p, z, -0x1.4abbce4c919fep+2); h *= __builtin_fma(p, z, 0x1.921fb54418682p+1);
    __builtin_memcpy(&sign, &h, 8); sign ^= (i + j + l) << 63; __builtin_memcpy(&h, &sign, 8);
    return h;
}""",
    # -0.0 is what changes no number, 0 not either.
    "sine_f32": "f32 sine_f32(f32 x) { return (f32)sine_wide(x, -0.0); }",
    "cosine_f32": "f32 cosine_f32(f32 x) { return (f32)sine_wide(x, 0.5); }",
    "tan_f32": "f32 tan_f32(f32 x) { return (f32)(sine_wide(x, -0.0) / sine_wide(x, 0.5)); }",
    # 1 / sqrt(x) of a normal number by Newton's method, three steps from half of its bits, which processors compute sooner than a
    # root of doubles. Of 0 it is some number.
    "inverse_root_wide": """f64 inverse_root_wide(f64 x) {
    u64 b; f64 r, half = 0.5 * x;
    __builtin_memcpy(&b, &x, 8); b = 0x5fe6eb50c7b537a9ULL - (b >> 1); __builtin_memcpy(&r, &b, 8);
    r *= __builtin_fma(-(half * r), r, 1.5); r *= __builtin_fma(-(half * r), r, 1.5);
    return r * __builtin_fma(-(half * r), r, 1.5);
}""",
    # The angle of a point, of which not both numbers are infinite: of the smaller number by the larger one, to which an addend
    # that no other number feels is added for 0 / 0.
    "angle_wide": """f64 angle_wide(f64 y, f64 x) {
    f64 a = __builtin_fabs(x), b = __builtin_fabs(y), q = (b < a ? b : a) / ((b < a ? a : b) + 0x1p-400), z = q * q;
    f64 p = __builtin_fma(0x1.c5fddd2775ea4p-12, z, -0x1.adb1eae5456bep-9);
    p = __builtin_fma(p, z, 0x1.7da32eb15d86dp-7); p = __builtin_fma(p, z, -0x1.af886d7169bbcp-6);
    p = __builtin_fma(p, z, 0x1.682e25e7b4a0ap-5); p = __builtin_fma(p, z, -0x1.ef0351d7b060ap-5);
    p = __builtin_fma(p, z, 0x1.335cc4209cb55p-4); p = __builtin_fma(p, z, -0x1.72c11f620572ep-4);
    p = __builtin_fma(p, z, 0x1.c6e424967a86ap-4); p = __builtin_fma(p, z, -0x1.248ff6c4556dep-3);
    p = __builtin_fma(p, z, 0x1.99997fe178990p-3); p = __builtin_fma(p, z, -0x1.5555551cfb2d9p-2);
    p = q * __builtin_fma(p, z, 0x1.ffffffffeb72ep-1);
    p = b > a ? 0x1.921fb54442d18p+0 - p : p;
    p = __builtin_copysign(1, x) < 0 ? 0x1.921fb54442d18p+1 - p : p;
    return __builtin_copysign(p, y);
}""",
    "atan_f32": "f32 atan_f32(f32 x) { return (f32)angle_wide(x, 1); }",
    "atan2_f32": """f32 atan2_f32(f32 y, f32 x) {
    f64 b = y, a = x;
    pred far = __builtin_fabs(a) > 0x1p200 && __builtin_fabs(b) > 0x1p200;
    return (f32)angle_wide(far ? __builtin_copysign(1, b) : b, far ? __builtin_copysign(1, a) : a);
}""",
    "asin_f32": "f32 asin_f32(f32 x) { f64 w = x; return (f32)angle_wide(w, __builtin_sqrt((1 - w) * (1 + w))); }",
    "acos_f32": "f32 acos_f32(f32 x) { f64 w = x; return (f32)angle_wide(__builtin_sqrt((1 - w) * (1 + w)), w); }",
    # x times a polynomial in x^2, up to where the result rounds to 1.
    "erf_f32": """f32 erf_f32(f32 x) {
    f64 w = x, c = __builtin_fabs(w) > 3.92 ? __builtin_copysign(3.92, w) : w, z = __builtin_fma(c * c, 1 / 7.6875, -1);
    f64 p = __builtin_fma(0x1.ca3473e1d6830p-15, z, -0x1.47f0fdad175b6p-13);
    p = __builtin_fma(p, z, 0x1.3a08d74710b93p-13); p = __builtin_fma(p, z, -0x1.251eb028c8a6fp-12);
    p = __builtin_fma(p, z, 0x1.0a8b60df0dd86p-10); p = __builtin_fma(p, z, -0x1.21a78546a81a8p-9);
    p = __builtin_fma(p, z, 0x1.0140ab8c324f0p-8); p = __builtin_fma(p, z, -0x1.d234f90c84ef4p-8);
    p = __builtin_fma(p, z, 0x1.98e4f1aedfdbap-7); p = __builtin_fma(p, z, -0x1.4b3f0b80d53e8p-6);
    p = __builtin_fma(p, z, 0x1.f4c2be0c68a23p-6); p = __builtin_fma(p, z, -0x1.63ee52be7b4bbp-5);
    p = __builtin_fma(p, z, 0x1.dcddf3bed4e9cp-5); p = __builtin_fma(p, z, -0x1.2f38c04f7dad4p-4);
    p = __builtin_fma(p, z, 0x1.732c4dafac1a5p-4); p = __builtin_fma(p, z, -0x1.bf1eebe55e9f0p-4);
    p = __builtin_fma(p, z, 0x1.1288e1fac1976p-3); p = __builtin_fma(p, z, -0x1.70c2f34bd2658p-3);
    return (f32)(c * __builtin_fma(p, z, 0x1.714a9472c1f4ep-2));
}""",
}
"""Each function behind those that it calls. Errors in units of the last place against C's functions of double precision, over
every 257th float32 number: erf 0.503, all others of one number 0.501, but for exp 0.65 (results below 2^-126: 0.76) and logistic
2.48, which are those over all numbers, and tanh 0.75, over every 7th; power and atan2 0.501 over 8 million drawn pairs. Torch's
own over all numbers: exp 0.57, tanh 0.513, log 0.92, logistic 2.48."""
