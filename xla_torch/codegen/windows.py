"""Windows of an array, by one native function: what a pooling's way back adds to the element that each window selects."""

from __future__ import annotations

from .loops import TYPES
from .threads import shared

SPATIAL = 3
"""The most dimensions that windows reach over."""


def add_to_selected(name: str, comparison: str) -> str:
    """Adds each element of a source to the element of the result that its window of the operand selects: the first one of which
    ``selected COMPARISON candidate`` holds for all behind it, row by row; padding is never selected. Rows are independent: of
    each, windows come in order.

    The places are those of the operand, the source and the result, the elements behind each window's (`inner`), and then of each
    of three dimensions its size, the number of windows, their size, stride and padding in front.
    """
    text = _ADD_TO_SELECTED.replace("NAME", name).replace("COMPARISON", comparison)
    return "\n".join([TYPES, text, shared(4 + 5 * SPATIAL, 0)])


_ADD_TO_SELECTED = """enum { CHUNK = 64 };
static inline __attribute__((always_inline)) void look(const NAME *restrict x, const s64 step, s64 n, s32 place,
                                                       NAME *restrict best, s32 *restrict at) {
    for (s64 e = 0; e < n; e++) {
        const NAME candidate = x[e * step];
        const int stays = (at[e] >= 0) & (best[e] COMPARISON candidate);
        best[e] = stays ? best[e] : candidate;
        at[e] = stays ? at[e] : place + (s32)e * (s32)step;
    }
}
static void part(s64 from, s64 to, char **places, s64 each, char *kept) {
    const s64 inner = (s64)places[3], *of = (const s64 *)places + 4, *a = of, *b = of + 5, *c = of + 10;
    const s64 size = a[0] * b[0] * c[0] * inner, count = a[1] * b[1] * c[1] * inner;
    /* Side by side are elements behind each window's; where there is one, windows. */
    const s64 windows = inner == 1 ? CHUNK : 1, step = inner == 1 ? c[3] : 1;
    for (s64 r = from; r < to; r++) {
        const NAME *operand = (const NAME *)places[0] + r * size, *source = (const NAME *)places[1] + r * count;
        NAME *result = (NAME *)places[2] + r * size;
        for (s64 i = 0; i < a[1]; i++) for (s64 j = 0; j < b[1]; j++) for (s64 k = 0; k < c[1]; k += windows)
        for (s64 first = 0; first < inner; first += CHUNK) {
            const s64 left = inner == 1 ? c[1] - k : inner - first, n = left < CHUNK ? left : CHUNK;
            NAME best[CHUNK];
            s32 at[CHUNK];
            for (s64 e = 0; e < n; e++) { best[e] = 0; at[e] = -1; }
            for (s64 u = 0; u < a[2]; u++) {
                const s64 x = i * a[3] - a[4] + u;
                if (x < 0 || x >= a[0]) continue;
                for (s64 v = 0; v < b[2]; v++) {
                    const s64 y = j * b[3] - b[4] + v;
                    if (y < 0 || y >= b[0]) continue;
                    for (s64 w = 0; w < c[2]; w++) {
                        s64 z = k * c[3] - c[4] + w, low = 0, high = n;
                        if (inner == 1) {
                            for (; low < high && z < 0; low++) z += c[3];
                            while (low < high && z + (high - 1 - low) * c[3] >= c[0]) high--;
                        }
                        if (z < 0 || z >= c[0] || low >= high) continue;
                        const s64 place = ((x * b[0] + y) * c[0] + z) * inner + first;
                        const NAME *candidates = operand + place;
                        if (step == 1) look(candidates, 1, high - low, (s32)place, best + low, at + low);
                        else if (step == 2) look(candidates, 2, high - low, (s32)place, best + low, at + low);
                        else look(candidates, step, high - low, (s32)place, best + low, at + low);
                    }
                }
            }
            for (s64 e = 0; e < n; e++) if (at[e] >= 0) result[at[e]] = result[at[e]] + source[e];
            source += n;
        }
    }
}"""
