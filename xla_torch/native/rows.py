"""Sources of functions of rows that torch has not, or has slower: the largest elements of each row.

Each is the text of a function ``part(from, to, places, n, kept)`` for some of the rows, of `n` elements each, which threads share
(`threads.py`).
"""

from __future__ import annotations

from typing import Literal

from .loops import TYPES
from .threads import shared

Order = Literal["float", "unsigned", "plain"]
"""How the stored integers of a type are ordered: as the bits of floats in their total order; as unsigned numbers though their C
type is signed; as their C type is."""


def top_k(name: str, bits: int, order: Order) -> str:
    """The largest `k` elements of each row and where they stand, of equal ones the first. The places are those of the operand and
    of the two results, then `k`, and a mask that turns the order round where it is -1.

    A heap has the best so far, with the worst of them on top; most elements are compared with that one alone, several at a time.
    Elements are numbers with their places behind, the first place the largest, so that no two are equal.
    """
    high = f"(({name})1 << {bits - 1})"
    key = {"float": f"(b ^ ((b >> {bits - 1}) & ({name})~{high}))", "unsigned": f"(({name})(b ^ {high}))", "plain": "b"}[order]
    text = _TOP_K.replace("NAME", name).replace("PAIR", "__int128" if bits > 32 else "s64").replace("KEY", key)
    return "\n".join([TYPES, text, shared(5, 0)])


_TOP_K = """typedef PAIR pair;
static inline NAME key_of(NAME b, NAME turn) { return (NAME)(KEY ^ turn); }
static inline pair made(NAME key, s64 i) { return (pair)key * 4294967296 + (u32)~(u32)i; }
static inline void sink(pair *heap, s64 size, s64 at, pair p) {
    for (;;) {
        s64 below = 2 * at + 1;
        if (below >= size) break;
        below += below + 1 < size && heap[below + 1] < heap[below];
        if (heap[below] >= p) break;
        heap[at] = heap[below];
        at = below;
    }
    heap[at] = p;
}
static void part(s64 from, s64 to, char **places, s64 n, char *kept) {
    const s64 k = (s64)places[3];
    const NAME turn = (NAME)(s64)places[4];
    pair best[k];
    for (s64 r = from; r < to; r++) {
        const NAME *row = (const NAME *)places[0] + r * n;
        for (s64 i = 0; i < k; i++) best[i] = made(key_of(row[i], turn), i);
        for (s64 at = k / 2 - 1; at >= 0; at--) sink(best, k, at, best[at]);
        NAME worst = (NAME)(best[0] >> 32);
        for (s64 i = k; i < n; ) {
            s64 end = i + 16;
            if (end <= n) {
                int any = 0;
                for (s64 j = 0; j < 16; j++) any |= key_of(row[i + j], turn) > worst;
                if (!any) { i = end; continue; }
            }
            else end = n;
            for (; i < end; i++) {
                const NAME key = key_of(row[i], turn);
                if (key > worst) {
                    sink(best, k, 0, made(key, i));
                    worst = (NAME)(best[0] >> 32);
                }
            }
        }
        for (s64 size = k - 1; size > 0; size--) {
            const pair last = best[size];
            best[size] = best[0];
            sink(best, size, 0, last);
        }
        for (s64 i = 0; i < k; i++) {
            const s32 place = (s32)~(u32)best[i];
            ((NAME *)places[1])[r * k + i] = row[place];
            ((s32 *)places[2])[r * k + i] = place;
        }
    }
}"""
