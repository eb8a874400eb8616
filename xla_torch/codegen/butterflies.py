"""Functions of native code for Fourier transforms of several arrays side by side.

An array of `n` complex numbers lies in two planes, real parts and imaginary ones, and a number of `lanes` arrays element by
element: element `t` of array `q` at ``t * lanes + q``. A transform is one stage for each of its length's factors (Stockham's, in
order at the end of each), from planes to other planes; its innermost loop goes along the lanes. The other direction is the same
with real and imaginary parts exchanged. What a factor's own small transform computes is written out from the smallest ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

RADICES = (8, 4, 2, 3, 5, 7, 11, 13)
"""The factors that have a stage."""

Number = tuple[str, str]
"""The names of a complex number's parts."""


def roots_of_unity(powers: np.ndarray | int, n: int) -> np.ndarray:
    """``exp(-2 pi i power / n)``: quarters of a turn, whose parts are exact, and at most an eighth more or less, where errors are
    least."""
    quarters, rest = np.divmod(4 * np.asarray(powers), n)
    angle = np.minimum(rest, n - rest) * (math.pi / 2 / n)
    c, s = np.cos(angle), np.sin(angle)
    return np.where(2 * rest > n, s - 1j * c, c - 1j * s) * np.array([1, -1j, -1, 1j])[quarters % 4]


class _Lines:
    """Statements, each of which gives a name to what it computes."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def let(self, expression: str) -> str:
        name = f"t{len(self.lines)}"
        self.lines.append(f"@ {name} = {expression};")
        return name

    def both(self, x: Number, sign: str, y: Number) -> Number:
        return self.let(f"{x[0]} {sign} {y[0]}"), self.let(f"{x[1]} {sign} {y[1]}")

    def turned(self, x: Number, power: int, n: int) -> Number:
        """A number times a root of unity; where that is a quarter of a turn, nothing is multiplied."""
        root = complex(roots_of_unity(power, n))
        c, s = root.real, root.imag
        if 0 in (c, s):
            a, b = x if s == 0 else (x[1], f"-{x[0]}")
            return (a, b) if c + -s > 0 else (self.let(f"-{a}"), self.let(f"-({b})"))
        if 8 * power % n == 0:
            return (self.let(f"{_number(c)} * ({x[0]} {_sign(-s / c)} {x[1]})"),
                    self.let(f"{_number(c)} * ({x[1]} {_sign(s / c)} {x[0]})"))
        return (self.let(f"{x[0]} * {_number(c)} - {x[1]} * {_number(s)}"),
                self.let(f"{x[0]} * {_number(s)} + {x[1]} * {_number(c)}"))

    def transform(self, x: Sequence[Number]) -> list[Number]:
        """The transform of a few numbers."""
        n = len(x)
        radix = next((r for r in range(2, n) if n % r == 0), n)
        if n == 1:
            return list(x)
        if radix == n:
            return self._prime(x)
        parts, result = [self.transform(x[k::radix]) for k in range(radix)], list(x)
        for k in range(n // radix):
            result[k::n // radix] = self.transform([self.turned(part[k], k * j, n) for j, part in enumerate(parts)])
        return result

    def _prime(self, x: Sequence[Number]) -> list[Number]:
        """By sums and differences of what stands at both ends."""
        first, *others = x
        if len(x) == 2:
            return [self.both(first, sign, others[0]) for sign in "+-"]
        half = len(x) // 2
        sums = [self.both(others[k], "+", others[-1 - k]) for k in range(half)]
        differences = [self.both(others[k], "-", others[-1 - k]) for k in range(half)]
        re, im = (self._total([first[d], *(s[d] for s in sums)]) for d in (0, 1))
        made = [(re, im)] * len(x)
        for k in range(1, half + 1):
            roots = roots_of_unity(k * np.arange(1, half + 1), len(x)).tolist()
            even = [self._total([first[d], *(f"{_number(root.real)} * {s[d]}" for root, s in zip(roots, sums, strict=True))])
                    for d in (0, 1)]
            odd = [self._total([f"{_number(root.imag)} * {t[d]}" for root, t in zip(roots, differences, strict=True)])
                   for d in (0, 1)]
            made[k] = self.let(f"{even[0]} - {odd[1]}"), self.let(f"{even[1]} + {odd[0]}")
            made[-k] = self.let(f"{even[0]} + {odd[1]}"), self.let(f"{even[1]} - {odd[0]}")
        return made

    def _total(self, terms: Sequence[str]) -> str:
        return self.let(" + ".join(terms))


def _number(value: float) -> str:
    return f"(@){value.hex()}" if value >= 0 else f"(-(@){(-value).hex()})"


def _sign(value: float) -> str:
    return "+" if value > 0 else "-"


def _stages(radix: int) -> list[str]:
    """One stage: transforms of m numbers each become shorter ones, for each of s arrays (the lanes, times those made before).
    Result `k` of place `p` is turned by the root of number ``p * k``, whose parts are in `w`. That of ``p = 0`` is 1: nothing is
    multiplied, or infinities and NaN would come into the other part. Where s is 1, places lie side by side instead."""
    code, count = _Lines(), range(radix)
    results = code.transform([(f"xr[from + {k} * m * s]", f"xi[from + {k} * m * s]") for k in count])
    whole = [f"yr[to + {k} * s] = {re}; yi[to + {k} * s] = {im};" for k, (re, im) in enumerate(results)]
    turned = [f"{{ @ c = w[{2 * k - 2} * m + p], d = w[{2 * k - 1} * m + p]; yr[to + {k} * s] = {re} * c - {im} * d; "
              f"yi[to + {k} * s] = {re} * d + {im} * c; }}" for k, (re, im) in enumerate(results) if k]
    first, other = ("\n        ".join([*code.lines, *last]) for last in (whole, [whole[0], *turned]))
    arguments = "const @ *xr, const @ *xi, @ *yr, @ *yi, const @ *w"
    return [f"""void stage{radix}_@(s64 m, s64 s, {arguments}) {{
    #pragma GCC ivdep
    for (s64 q = 0; q < s; q++) {{
        s64 from = q, to = q;
        {first}
    }}
    for (s64 p = 1; p < m; p++) {{
        #pragma GCC ivdep
        for (s64 q = 0; q < s; q++) {{
        s64 from = q + s * p, to = q + s * {radix} * p;
        {other}
        }}
    }}
}}""", f"""void first{radix}_@(s64 m, {arguments}) {{
    const s64 s = 1;
    {{
        s64 from = 0, to = 0;
        {first}
    }}
    #pragma GCC ivdep
    for (s64 p = 1; p < m; p++) {{
        s64 from = p, to = {radix} * p;
        {other}
    }}
}}"""]


FOURIER_TEMPLATES = (
    # Complex numbers of arrays that lie side by side, into planes and back.
    """void parted_@(s64 n, s64 lanes, s64 along, const @ *x, @ *re, @ *im) {
    for (s64 t = 0; t < n; t++) {
        #pragma GCC ivdep
        for (s64 q = 0; q < lanes; q++) {
            re[t * lanes + q] = x[2 * (t * along + q)];
            im[t * lanes + q] = x[2 * (t * along + q) + 1];
        }
    }
}""",
    """void joined_@(s64 n, s64 lanes, s64 along, @ scale, const @ *re, const @ *im, @ *x) {
    for (s64 t = 0; t < n; t++) {
        #pragma GCC ivdep
        for (s64 q = 0; q < lanes; q++) {
            x[2 * (t * along + q)] = re[t * lanes + q] * scale;
            x[2 * (t * along + q) + 1] = im[t * lanes + q] * scale;
        }
    }
}""",
    # Rows of complex numbers, some numbers apart, as columns.
    """void turned_@(s64 rows, s64 columns, s64 apart, const @ *x, s64 apart_there, @ *y) {
    for (s64 t = 0; t < columns; t++)
        for (s64 q = 0; q < rows; q++)
            __builtin_memcpy(y + 2 * (t * apart_there + q), x + 2 * (q * apart + t), 2 * sizeof(@));
}""",
    # Rows of real numbers into planes, and back from the one of real parts.
    """void complexes_@(s64 n, s64 lanes, const @ *x, @ *re, @ *im) {
    for (s64 t = 0; t < n; t++)
        for (s64 q = 0; q < lanes; q++) { re[t * lanes + q] = x[q * n + t]; im[t * lanes + q] = 0; }
}""",
    """void reals_@(s64 n, s64 lanes, @ scale, const @ *re, @ *x) {
    for (s64 q = 0; q < lanes; q++)
        for (s64 t = 0; t < n; t++) x[q * n + t] = re[t * lanes + q] * scale;
}""",
    # The spectrum of 2 n real numbers, of which those in odd places were imaginary parts: from its mean with, and its difference
    # from, its mirror image. Numbers are halved first, so that no sum is larger than what is made.
    """void unpacked_@(s64 n, s64 lanes, const @ *xr, const @ *xi, @ *yr, @ *yi, const @ *w) {
    for (s64 q = 0; q < lanes; q++) {
        s64 last = n * lanes + q;
        yr[q] = xr[q] + xi[q]; yr[last] = xr[q] - xi[q]; yi[q] = yi[last] = 0;
    }
    for (s64 k = 1; 2 * k < n; k++) {
        @ c = w[k], d = w[n / 2 + 1 + k];
        #pragma GCC ivdep
        for (s64 q = 0; q < lanes; q++) {
            s64 low = k * lanes + q, high = (n - k) * lanes + q;
            @ ar = xr[low] / 2, ai = xi[low] / 2, br = xr[high] / 2, bi = xi[high] / 2;
            @ er = ar + br, ei = ai - bi, or = ai + bi, oi = br - ar, tr = or * c - oi * d, ti = or * d + oi * c;
            yr[low] = er + tr; yi[low] = ei + ti; yr[high] = er - tr; yi[high] = ti - ei;
        }
    }
    for (s64 q = n / 2 * lanes; n % 2 == 0 && q < (n / 2 + 1) * lanes; q++) { yr[q] = xr[q]; yi[q] = -xi[q]; }
}""",
    # The other way round. Both ends stand for real numbers, whatever their imaginary parts are.
    """void packed_@(s64 n, s64 lanes, const @ *xr, const @ *xi, @ *yr, @ *yi, const @ *w) {
    for (s64 q = 0; q < lanes; q++) {
        @ a = xr[q] / 2, b = xr[n * lanes + q] / 2;
        yr[q] = a + b; yi[q] = a - b;
    }
    for (s64 k = 1; 2 * k < n; k++) {
        @ c = w[k], d = w[n / 2 + 1 + k];
        #pragma GCC ivdep
        for (s64 q = 0; q < lanes; q++) {
            s64 low = k * lanes + q, high = (n - k) * lanes + q;
            @ ar = xr[low] / 2, ai = xi[low] / 2, br = xr[high] / 2, bi = xi[high] / 2;
            @ er = ar + br, ei = ai - bi, tr = ar - br, ti = ai + bi, or = tr * c + ti * d, oi = ti * c - tr * d;
            yr[low] = er - oi; yi[low] = ei + or; yr[high] = er + oi; yi[high] = or - ei;
        }
    }
    for (s64 q = n / 2 * lanes; n % 2 == 0 && q < (n / 2 + 1) * lanes; q++) { yr[q] = xr[q]; yi[q] = -xi[q]; }
}""",
    # The whole spectrum, of n numbers, n being odd.
    """void mirrored_@(s64 n, s64 lanes, @ *re, @ *im) {
    for (s64 q = 0; q < lanes; q++) im[q] = 0;
    for (s64 k = 1; 2 * k < n; k++)
        for (s64 q = 0; q < lanes; q++) {
            re[(n - k) * lanes + q] = re[k * lanes + q]; im[(n - k) * lanes + q] = -im[k * lanes + q];
        }
}""",
    *(stage for radix in RADICES for stage in _stages(radix)),
)
