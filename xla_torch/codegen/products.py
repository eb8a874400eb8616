"""Source of two products and what stands between them, some rows at a time: scores of queries and keys, shares, mixed values.

A thread makes a tile of the first product, puts each row of it through a function of rows, and multiplies the tile with the
second product's right factor. Where what stands between is a softmax of a select, columns at both ends whose places the mask
hides in all rows of a tile are left out: their shares are 0, and 0 times a finite number is nothing. Whether that is so is looked
at as the tile is made (no row whose largest element is near the number that stands for hidden ones, no infinity or NaN among the
values), and else the tile is made again with all columns.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from .threads import shared


@dataclasses.dataclass(frozen=True)
class Mask:
    """What hides: the number of the input, the byte of a place that it hides, and what stands there instead."""

    number: int
    hidden: int
    instead: str


GIVEN = 3
"""The places: sizes, addresses for each member of the batch, the routine of BLAS."""

UNDERFLOWS = 104
"""How much less than another number one is whose exponential is 0 beside the other's, in float32."""


def text(rows: str, scores: int, widths: Sequence[int], kept_bytes: int, mask: Mask | None) -> str:
    """The source: `rows` is a function ``rows(from, to, places, n, kept)`` whose result may stand in the place of its input
    number `scores`; where there is a mask it also gives the largest element of each row. The inputs have so many bytes for
    each column.
    """
    others = [k for k in range(len(widths)) if k != scores]
    given = "".join(f"                row[{k}] = at[{3 + place}] + r * steps[{3 + place}] + low * {widths[k]};\n"
                    for place, k in enumerate(others))
    last = len(widths) + (1 if mask is None else 2)
    seen = "" if mask is None else (_SEEN.replace("MASK", str(3 + others.index(mask.number)))
                                    .replace("HIDDEN", f"{mask.hidden * 0x0101010101010101}ULL"))
    fails = "0" if mask is None else f"!(most - ({mask.instead}) > {UNDERFLOWS})"
    most = "" if mask is None else f"                row[{len(widths) + 1}] = (char *)&most;\n"
    part = (_PART.replace("SEEN", seen).replace("MOST", most).replace("GIVEN", given).replace("FAILS", fails)
            .replace("SCORES", str(scores)).replace("RESULT", str(len(widths))).replace("TAILS", str(last))
            .replace("PLACES", str(last + len(widths)))
            .replace("OPERANDS", str(4 + len(others))).replace("LAST", str(3 + len(others))))
    return "\n".join([rows, part, shared(GIVEN, kept_bytes)])


_PART = """typedef void gemm(const char *, const char *, const int *, const int *, const int *, const f32 *, const f32 *,
                  const int *, const f32 *, const int *, const f32 *, f32 *, const int *);
static void multiply(gemm *routine, s64 m, s64 n, s64 k, const char *a, s64 a_row, s64 a_column, const char *b, s64 b_row,
                     s64 b_column, char *c, s64 c_row) { /* by columns, as BLAS has them, all are transposed */
    const int rows = m, columns = n, depth = k, under = c_row;
    const s64 from_a = a_column == 1 ? a_row : a_column, least_a = a_column == 1 ? k : m;
    const s64 from_b = b_column == 1 ? b_row : b_column, least_b = b_column == 1 ? n : k;
    const int next_a = from_a > least_a ? from_a : least_a, next_b = from_b > least_b ? from_b : least_b; /* of one row, any */
    const f32 one = 1, zero = 0;
    routine(b_column == 1 ? "N" : "T", a_column == 1 ? "N" : "T", &columns, &rows, &depth, &one, (const f32 *)b, &next_b,
            (const f32 *)a, &next_a, &zero, (f32 *)c, &under);
}
static int finite(const char *values, s64 from, s64 to, s64 next, s64 width) {
    u32 any = 0;
    for (s64 j = from; j < to; j++) {
        const u32 *row = (const u32 *)values + j * next;
        for (s64 i = 0; i < width; i++) any |= (row[i] & 0x7f800000u) == 0x7f800000u;
    }
    return !any;
}
static void part(s64 from, s64 to, char **places, s64 n, char *kept) {
    const s64 *sizes = (const s64 *)places[0], *steps = sizes + 10;
    const s64 all = sizes[0], most_rows = sizes[1], depth = sizes[2], width = sizes[3];
    const s64 blocks = (all + most_rows - 1) / most_rows;
    gemm *routine = (gemm *)places[2];
    char *tile = kept, *own = kept + 4 * most_rows * n, *row[PLACES], *at[OPERANDS];
    for (int k = TAILS; k < PLACES; k++) row[k] = (char *)1; /* rows after which a tail begins anew */
    for (s64 b = from; b < to; b++) {
        const s64 first = b % blocks * most_rows, count = all - first < most_rows ? all - first : most_rows;
        for (int k = 0; k < OPERANDS; k++) at[k] = ((char **)places[1])[b / blocks * OPERANDS + k] + first * steps[k];
        s64 low = 0, high = n;
SEEN        for (;;) {
            const s64 columns = high - low;
            int fails = 0;
            multiply(routine, count, columns, depth, at[0], sizes[4], sizes[5], at[1] + 4 * low * sizes[7], sizes[6], sizes[7],
                     tile, n);
            for (s64 r = 0; r < count && !fails; r++) {
                f32 most = 0;
GIVEN                row[SCORES] = row[RESULT] = tile + 4 * r * n;
MOST                rows(0, 1, row, columns, own);
                fails = columns < n && FAILS;
            }
            if (!fails) break;
            low = 0, high = n;
        }
        multiply(routine, count, width, high - low, tile, n, 1, at[2] + 4 * low * sizes[8], sizes[8], 1, at[LAST], sizes[9]);
    }
}"""

_SEEN = """        s64 end = 0, begin = n;
        for (s64 r = count - 1; r >= 0; r--) {
            const u8 *m = (const u8 *)at[MASK] + r * steps[MASK];
            s64 j = n;
            u64 word;
            for (; j - 8 >= end; j -= 8) { __builtin_memcpy(&word, m + j - 8, 8); if (word != HIDDEN) break; }
            end = j > end ? j : end;
            for (j = 0; j + 8 <= begin; j += 8) { __builtin_memcpy(&word, m + j, 8); if (word != HIDDEN) break; }
            begin = j < begin ? j : begin;
        }
        if (begin < end && (begin > 0 || end < n)
            && finite(at[2], 0, begin, sizes[8], width) && finite(at[2], end, n, sizes[8], width)) low = begin, high = end;
"""
