"""Functions of native code on small matrices, which lie row by row: factors, and what is solved with them.

They compute what LAPACK's routines do, in loops along rows, which a compiler makes vector code of. Of what has no answer the
result has infinities and NaN, as there; nothing fails. A template stands for a function of each element type ``@``.
"""

from __future__ import annotations

MATRIX_TEMPLATES = (
    # x with op(a) x = b, which is in x: n rows of k. a has its rows `down` and its columns `across` places apart.
    """void solve_@(s64 n, s64 k, int is_lower, int is_unit, const @ *a, s64 down, s64 across, @ *x) {
    for (s64 s = 0; s < n; s++) {
        s64 i = is_lower ? s : n - 1 - s;
        for (s64 t = 0; t < s; t++) {
            s64 j = is_lower ? t : n - 1 - t;
            @ factor = a[i * down + j * across];
            #pragma GCC ivdep
            for (s64 c = 0; c < k; c++) x[i * k + c] -= factor * x[j * k + c];
        }
        @ pivot = is_unit ? 1 : a[i * (down + across)];
        for (s64 c = 0; c < k; c++) x[i * k + c] /= pivot;
    }
}""",
    # The factor U of U' U, in place of the upper triangle; whether there is one.
    """int cholesky_@(s64 n, @ *a) {
    for (s64 j = 0; j < n; j++) {
        if (!(a[j * n + j] > 0)) return 0;
        @ pivot = __builtin_sqrt(a[j * n + j]);
        for (s64 c = j; c < n; c++) a[j * n + c] /= pivot;
        a[j * n + j] = pivot;
        for (s64 i = j + 1; i < n; i++) {
            @ factor = a[j * n + i];
            #pragma GCC ivdep
            for (s64 c = i; c < n; c++) a[i * n + c] -= factor * a[j * n + c];
        }
    }
    return 1;
}""",
    # L and U in place of the matrix, m by n, and the rows that were exchanged, from 1; the first of a pivot that is 0, or 0.
    """s32 lu_@(s64 m, s64 n, @ *a, s32 *pivots) {
    s32 info = 0;
    for (s64 j = 0; j < m && j < n; j++) {
        s64 p = j;
        @ largest = a[j * n + j] < 0 ? -a[j * n + j] : a[j * n + j];
        for (s64 i = j + 1; i < m; i++) {
            @ x = a[i * n + j] < 0 ? -a[i * n + j] : a[i * n + j];
            if (x > largest) { largest = x; p = i; }
        }
        pivots[j] = p + 1;
        if (p != j) {
            #pragma GCC ivdep
            for (s64 c = 0; c < n; c++) { @ x = a[j * n + c]; a[j * n + c] = a[p * n + c]; a[p * n + c] = x; }
        }
        @ pivot = a[j * n + j];
        if (pivot == 0 && !info) info = j + 1;
        for (s64 i = j + 1; i < m; i++) {
            @ factor = a[i * n + j] /= pivot == 0 ? 1 : pivot;
            #pragma GCC ivdep
            for (s64 c = j + 1; c < n; c++) a[i * n + c] -= factor * a[j * n + c];
        }
    }
    return info;
}""",
    # The columns behind column j, and their rows from j on, reflected at 1 and what stands below a's diagonal in column j.
    """void reflect_@(s64 m, s64 n, s64 j, @ tau, @ *a, @ *w) {
    for (s64 c = j + 1; c < n; c++) w[c] = a[j * n + c];
    for (s64 i = j + 1; i < m; i++) {
        @ v = a[i * n + j];
        #pragma GCC ivdep
        for (s64 c = j + 1; c < n; c++) w[c] += v * a[i * n + c];
    }
    for (s64 c = j + 1; c < n; c++) { w[c] *= tau; a[j * n + c] -= w[c]; }
    for (s64 i = j + 1; i < m; i++) {
        @ v = a[i * n + j];
        #pragma GCC ivdep
        for (s64 c = j + 1; c < n; c++) a[i * n + c] -= v * w[c];
    }
}""",
    # The tridiagonal system's solution in x, n rows of k, by elimination with row exchanges, and the factor's diagonals; the
    # first pivot that is 0, from 1, or 0.
    """s32 tridiagonal_@(s64 n, s64 k, const @ *lower, const @ *middle, const @ *upper, @ *x, @ *second, @ *pivots, @ *above) {
    s32 info = 0;
    @ pivot = middle[0], next = n > 1 ? upper[0] : 0;
    for (s64 i = 0; i + 1 < n; i++) {
        @ below = lower[i + 1], other = middle[i + 1], further = i + 2 < n ? upper[i + 1] : 0, factor;
        @ size = pivot < 0 ? -pivot : pivot, theirs = below < 0 ? -below : below;
        second[i] = 0;
        if (size < theirs) {
            factor = pivot / below;
            pivots[i] = below; above[i] = other; second[i] = further;
            pivot = next - factor * other;
            next = 0 - factor * further;
            for (s64 c = 0; c < k; c++) {
                @ kept = x[i * k + c];
                x[i * k + c] = x[(i + 1) * k + c];
                x[(i + 1) * k + c] = kept - factor * x[i * k + c];
            }
        } else {
            factor = below / (pivot == 0 ? 1 : pivot);
            pivots[i] = pivot; above[i] = next;
            pivot = other - factor * next;
            next = further;
            for (s64 c = 0; c < k; c++) x[(i + 1) * k + c] -= factor * x[i * k + c];
        }
        if (pivots[i] == 0 && !info) info = i + 1;
    }
    pivots[n - 1] = pivot; above[n - 1] = next; second[n - 1] = 0;
    if (pivot == 0 && !info) info = n;
    for (s64 i = n - 1; i >= 0; i--)
        for (s64 c = 0; c < k; c++) {
            @ rest = x[i * k + c];
            if (i + 1 < n) rest -= above[i] * x[(i + 1) * k + c];
            if (i + 2 < n) rest -= second[i] * x[(i + 2) * k + c];
            x[i * k + c] = rest / pivots[i];
        }
    return info;
}""",
    # R, with reflectors below the diagonal, in place of the matrix. Lengths are in double precision, and what would overflow or
    # vanish there when it is squared is brought near 1 before.
    """void qr_@(s64 m, s64 n, @ *a, @ *tau, @ *w) {
    for (s64 j = 0; j < m && j < n; j++) {
        f64 first = a[j * n + j], largest = 0, total;
        for (s64 i = j + 1; i < m; i++) {
            f64 x = a[i * n + j] < 0 ? -a[i * n + j] : a[i * n + j];
            largest = x > largest || x != x ? x : largest;
        }
        tau[j] = 0;
        if (largest == 0) continue;
        f64 size = first < 0 ? -first : first;
        size = size > largest ? size : largest;
        f64 scale = size < 0x1p-450 ? 0x1p600 : size > 0x1p450 ? 0x1p-600 : 1;
        total = first * scale * (first * scale);
        for (s64 i = j + 1; i < m; i++) { f64 x = a[i * n + j] * scale; total += x * x; }
        f64 length = __builtin_sqrt(total) / scale, beta = __builtin_signbit(first) ? length : -length;
        @ over = first - beta;
        tau[j] = (beta - first) / beta;
        for (s64 i = j + 1; i < m; i++) a[i * n + j] /= over;
        a[j * n + j] = beta;
        reflect_@(m, n, j, tau[j], a, w);
    }
}""",
    # The first n columns of the product of k reflectors, in place of those.
    """void reflectors_@(s64 m, s64 n, s64 k, const @ *tau, @ *a, @ *w) {
    for (s64 i = 0; i < m; i++)
        for (s64 c = k; c < n; c++) a[i * n + c] = i == c;
    for (s64 j = k - 1; j >= 0; j--) {
        reflect_@(m, n, j, tau[j], a, w);
        for (s64 i = 0; i < j; i++) a[i * n + j] = 0;
        a[j * n + j] = 1 - tau[j];
        for (s64 i = j + 1; i < m; i++) a[i * n + j] *= -tau[j];
    }
}""",
)
